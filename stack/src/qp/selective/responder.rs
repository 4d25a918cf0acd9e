//! The responder's part: requests ahead of the expected one are kept, the peer is told of them by
//! the payload of sequence NAKs, and they are handled in their turn.

use super::super::replies::{Payload, Reply, Response, aeth};
use super::super::{Env, Qp, Shared};
use super::stash::Kept;
use crate::discard::Discard;
use crate::psn::Psn;
use crate::wire::{Kind, NakCode, OpcodeInfo, Packet, Position, PsnRange, Syndrome};

const GAP: Syndrome = Syndrome::nak(NakCode::PsnSequence);

impl Qp {
    /// A request ahead of the expected one. The peer is told when it shows a gap that is new, and
    /// when it asks.
    pub(in crate::qp) fn keep_request(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
        frame: &[u8],
    ) -> Result<(), Discard> {
        let expected = self.responder.epsn;
        let mtu = self.attr.path_mtu.bytes() as u32;
        let Some(selective) = self.recovery.selective_mut() else { return self.report_gap(env) };
        let bth = &packet.headers.bth;
        let count = match (info.kind, packet.headers.ext.reth) {
            (Kind::ReadRequest, Some(reth)) => reth.dma_len.div_ceil(mtu).clamp(1, 1 << 22),
            _ => 1,
        };
        let range = PsnRange { first: bth.psn, count };
        let known = selective.early.end().unwrap_or(expected);
        let shows_gap = bth.psn.distance(known) > 0;
        let kept = selective.early.keep(range, frame, super::room(env.shared));
        if kept == Kept::Not && selective.early.is_empty() {
            return self.report_gap(env);
        }
        let is_news = shows_gap && kept == Kept::Now;
        env.shared.counters.out_of_seq_request += u64::from(is_news);
        if is_news || bth.ack_req {
            self.tell_missing();
        }
        if kept != Kept::Now {
            return Err(Discard::RequestGap);
        }
        env.shared.counters.reordered_pkts += 1;
        Ok(())
    }

    /// Owes the peer a NAK that tells what has come: not after an RNR NAK, which says when to send
    /// again.
    fn tell_missing(&mut self) {
        if !self.responder.nak_sent {
            self.replies.acknowledge(self.responder.epsn, self.responder.msn, GAP);
        }
    }

    /// Owes the peer such a NAK instead of an ACK while requests are missing; whether any are.
    /// After an RNR NAK duplicates get their ACK: without it, the peer would wait for ever.
    pub(in crate::qp) fn tell_missing_again(&mut self) -> bool {
        let has_kept = self.recovery.selective().is_some_and(|it| !it.early.is_empty());
        let missing = has_kept && !self.responder.nak_sent;
        if missing {
            self.tell_missing();
        }
        missing
    }

    /// A request was handled and expected was `before`: handles those kept that are up now.
    pub(in crate::qp) fn handle_kept_requests(&mut self, env: &mut Env, before: Psn, asked: bool) {
        let expected = self.responder.epsn;
        if !self.is_selective() || expected == before {
            return;
        }
        while let Some(frame) = self.next_kept_request(env.shared) {
            let Ok(packet) = Packet::parse(&frame) else { continue };
            let Some(info) = packet.info() else { continue };
            if let Err(reason) = self.handle_request(env, &packet, info, &frame) {
                env.shared.counters.discard(reason);
            }
        }
        let moved = self.responder.epsn != expected;
        if !self.takes(Kind::Send) || self.responder.nak_sent || !(moved || asked) {
            return;
        }
        if self.tell_missing_again() || !moved {
            return;
        }
        // A READ or atomic is acknowledged by its answer.
        let expected = self.responder.epsn;
        let last = self.responder.records.back();
        if last.is_none_or(|last| last.psn.advance(last.psn_count) != expected) {
            self.acknowledge(expected.previous());
        }
    }

    fn next_kept_request(&mut self, shared: &mut Shared) -> Option<Box<[u8]>> {
        if !self.takes(Kind::Send) {
            return None;
        }
        let expected = self.responder.epsn;
        self.recovery.selective_mut()?.early.take(expected, &mut shared.reorder_left)
    }

    /// Writes a sequence NAK that tells what has come; none if the reply is something else.
    pub(in crate::qp) fn transmit_missing(
        &mut self,
        env: &mut Env,
        frame: &mut [u8],
        reply: &Reply,
    ) -> Option<usize> {
        let &Reply::Acknowledge { psn, msn, syndrome } = reply else { return None };
        let selective = self.recovery.selective().filter(|_| syndrome == GAP)?;
        // The gap may be closed by now.
        let (psn, syndrome) = match psn == self.responder.epsn {
            true => (psn, GAP),
            false => (psn.previous(), Syndrome::ACK),
        };
        let told = if syndrome == GAP { PsnRange::MAX } else { 0 };
        let mut payload = [0; PsnRange::MAX * PsnRange::LEN];
        let mut len = 0;
        for range in selective.early.ranges().take(told) {
            range.emit(&mut payload[len..]);
            len += PsnRange::LEN;
        }
        let response = Response {
            kind: Kind::Acknowledge,
            position: Position::Only,
            psn,
            ext: aeth(syndrome, msn),
            payload: Payload::Bytes(&payload[..len]),
        };
        self.emit_reply(env, frame, &response).ok()
    }
}
