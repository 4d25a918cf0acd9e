//! Requests seen before (IBA 9.7.4.1.3): the records of READs and atomics, and the answers to
//! duplicates. Nothing is ever executed twice.

use super::replies::{ReadReply, Reply};
use super::responder::{Checked, INVALID};
use super::{Env, Qp, Shared};
use crate::discard::Discard;
use crate::psn::Psn;
use crate::verbs::{Access, Pd};
use crate::wire::{Kind, OpcodeInfo, Packet, Reth};

/// PSNs after which the record of a READ or atomic is forgotten.
const MAX_RECORD_AGE: i32 = 1 << 22;

/// A READ or atomic that was executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub psn: Psn,
    pub psn_count: u32,
    pub msn: u32,
    pub kind: RecordKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RecordKind {
    Read(Reth, Option<Pd>),
    Atomic { original: u64 },
    Placed,
}

impl Qp {
    /// Drops the oldest record once its PSNs are so far back that they begin to look new.
    pub(super) fn forget_ancient_records(&mut self) {
        while let Some(oldest) = self.responder.records.front() {
            let age = oldest.psn.advance(oldest.psn_count).distance(self.responder.epsn);
            if (-MAX_RECORD_AGE..=0).contains(&age) || !self.forget_oldest_record() {
                return;
            }
        }
    }

    /// Forgets the oldest records when all are in use, unless the first answer of one has yet to
    /// leave: then the peer has more outstanding than it may.
    pub(super) fn make_room(&mut self) -> Checked<()> {
        let limit = usize::from(self.attr.max_dest_rd_atomic);
        while self.responder.records.len() >= limit {
            if !self.forget_oldest_record() {
                return Err(INVALID);
            }
        }
        Ok(())
    }

    /// Forgets the oldest record and its repetition that waits; `false` if there is none, or if its
    /// first answer waits. So the records bound the replies.
    fn forget_oldest_record(&mut self) -> bool {
        let Some(psn) = self.responder.records.front().map(|record| record.psn) else {
            return false;
        };
        let forgotten = self.replies.forget_again(psn);
        if forgotten {
            self.responder.records.pop_front();
        }
        forgotten
    }

    pub(super) fn record_placed(&mut self) {
        let record = self.record(1, RecordKind::Placed);
        self.replies.push(Reply::Placed { psn: record.psn, msn: record.msn, again: false });
    }

    /// Counts a READ or atomic as executed and keeps it for replay.
    pub(super) fn record(&mut self, psn_count: u32, kind: RecordKind) -> Record {
        let psn = self.responder.epsn;
        self.responder.epsn = psn.advance(psn_count);
        self.end_message();
        let record = Record { psn, psn_count, msn: self.responder.msn, kind };
        self.responder.records.push_back(record);
        record
    }

    /// A request seen before (IBA 9.7.4.1.3): never executed again, always answered.
    pub(super) fn handle_duplicate(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
    ) -> Result<(), Discard> {
        let psn = packet.headers.bth.psn;
        env.shared.counters.duplicate_request += 1;
        self.counters.duplicate_request += 1;
        if matches!(info.kind, Kind::Send | Kind::Write) {
            if self.tell_missing_again() {
                return Ok(());
            }
            let acknowledged = self.acknowledgeable_after(psn);
            self.replies.acknowledge_again(acknowledged, self.responder.msn);
            return Ok(());
        }
        let record = self.record_of(psn).ok_or(Discard::StaleDuplicate)?;
        let reply = match (record.kind, info.kind) {
            (RecordKind::Read(whole, pd), Kind::ReadRequest) => {
                let reth = packet.headers.ext.reth.ok_or(Discard::StaleDuplicate)?;
                if !self.is_part_of(&record, &whole, psn, &reth) {
                    return Err(Discard::StaleDuplicate);
                }
                let rest = whole.va.wrapping_add(u64::from(whole.dma_len));
                let part = reth.va.wrapping_add(u64::from(reth.dma_len)) != rest;
                let part = part && self.is_selective();
                let reply = ReadReply { again: true, part, ..read_reply(&record, pd, psn, &reth) };
                return self.answer_read_again(env.shared, reply);
            }
            (RecordKind::Atomic { original }, Kind::CompareSwap | Kind::FetchAdd) => {
                Reply::Atomic { psn, msn: record.msn, original, again: true }
            }
            (RecordKind::Placed, Kind::AtomicWrite | Kind::Flush) => {
                Reply::Placed { psn, msn: record.msn, again: true }
            }
            _ => return Err(Discard::StaleDuplicate),
        };
        if !self.replies.waits_for(psn) {
            self.replies.push_again(reply);
        }
        Ok(())
    }

    /// The last PSN an ACK may name for a duplicate of `psn` without passing a READ or atomic,
    /// whose own answer acknowledges.
    fn acknowledgeable_after(&self, psn: Psn) -> Psn {
        let next = self.responder.records.iter().find(|record| record.psn.distance(psn) > 0);
        next.map_or(self.responder.epsn, |record| record.psn).previous()
    }

    fn record_of(&self, psn: Psn) -> Option<Record> {
        let mut records = self.responder.records.iter().rev();
        records.find(|record| psn.is_within(record.psn, record.psn_count)).copied()
    }

    /// Whether a READ asks again for the end, or a part, of the one on record.
    fn is_part_of(&self, record: &Record, whole: &Reth, psn: Psn, part: &Reth) -> bool {
        let mtu = self.attr.path_mtu.bytes() as u64;
        let skipped = psn.since(record.psn);
        let skipped_bytes = u64::from(skipped) * mtu;
        part.rkey == whole.rkey
            && part.va == whole.va.wrapping_add(skipped_bytes)
            && skipped_bytes + u64::from(part.dma_len) <= u64::from(whole.dma_len)
    }

    /// Answers a READ again. If its responses are still leaving, they start over from the PSN asked
    /// for; those that have yet to pass it will do so anyway.
    fn answer_read_again(&mut self, shared: &Shared, again: ReadReply) -> Result<(), Discard> {
        let claim =
            again.pd.map(|pd| self.claim(pd, again.rkey, again.va, again.len, Access::REMOTE_READ));
        let granted = claim.is_some_and(|claim| shared.regions.remote(&claim).is_ok());
        if again.len > 0 && !granted {
            return Err(Discard::StaleDuplicate);
        }
        if again.part {
            let fits = self.replies.push_part(again);
            return if fits { Ok(()) } else { Err(Discard::StaleDuplicate) };
        }
        match self.replies.of_record(again.record) {
            None => self.replies.push_again(Reply::Read(again)),
            Some(Reply::Read(waiting)) if again.psn.distance(waiting.psn) < 0 => {
                *waiting = ReadReply { again: waiting.again, ..again };
            }
            Some(_) => {}
        }
        Ok(())
    }
}

pub(super) fn read_reply(record: &Record, pd: Option<Pd>, psn: Psn, reth: &Reth) -> ReadReply {
    ReadReply {
        record: record.psn,
        msn: record.msn,
        pd,
        psn,
        va: reth.va,
        rkey: reth.rkey,
        len: reth.dma_len,
        first: true,
        again: false,
        part: false,
    }
}
