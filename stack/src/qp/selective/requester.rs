//! The requester's part: what the peer's answers tell of what is missing, and sending just that
//! again. Requests are missing at the peer, answers here; both are known by holes among the PSNs
//! outstanding.

use super::super::{Env, Qp, Shared};
use super::holes::{Holes, Sending};
use super::stash::{Kept, Stash};
use crate::discard::Discard;
use crate::psn::Psn;
use crate::sq::SendWqe;
use crate::verbs::SendOp;
use crate::wire::{Kind, OpcodeInfo, Packet, PsnRange};

/// What the sending half knows beyond its oldest unacknowledged PSN.
#[derive(Debug)]
pub(super) struct Repair {
    /// Requests missing at the peer.
    requests: Holes,
    /// Answers to READs and atomics missing here, which the peer has sent: their requests are not.
    answers: Holes,
    /// The peer has executed all before it. Missing answers keep `una_psn` behind.
    executed: Psn,
    probe: Option<Probe>,
    /// Packets sent again.
    order: u64,
    /// Answers ahead of one that is missing.
    kept: Stash,
}

/// The oldest packet, sent again alone.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// It is answered when everything before it is.
    until: Psn,
    /// When it was sent, PSNs before it had been sent.
    next_psn: Psn,
}

/// What to do about a missing PSN.
enum Step {
    /// Work request, its packet, and where a READ asked for again ends.
    Send(u64, u32, u32),
    /// Nothing before this PSN has to be sent.
    Skip(Psn),
}

impl Repair {
    pub fn new(una: Psn) -> Repair {
        Repair {
            requests: Holes::new(una),
            answers: Holes::new(una),
            executed: una,
            probe: None,
            order: 0,
            kept: Stash::default(),
        }
    }

    pub fn clear(&mut self, bytes: &mut usize) {
        self.kept.clear(bytes);
    }

    fn executed_before(&mut self, psn: Psn) {
        if psn.distance(self.executed) > 0 {
            self.executed = psn;
        }
    }

    /// The next missing PSN, where its hole ends, and whether it is an answer.
    fn next(&self) -> Option<(Psn, Psn, bool)> {
        let request = self.requests.next();
        let answer = self.answers.next();
        match (request, answer) {
            (Some((psn, end)), Some((first, _))) if psn.distance(first) < 0 => {
                Some((psn, end, false))
            }
            (_, Some((psn, end))) => Some((psn, end, true)),
            (Some((psn, end)), None) => Some((psn, end, false)),
            (None, None) => None,
        }
    }
}

impl Qp {
    /// Whether something waits to be sent again.
    #[inline]
    pub(in crate::qp) fn wants_to_repair(&self) -> bool {
        self.recovery.selective().is_some_and(|it| it.repair.next().is_some())
    }

    /// The peer has executed all before `psn`, and says so by an ACK or, with `told` what has come
    /// besides, by a sequence NAK. `false`: it is for go-back-N.
    pub(in crate::qp) fn acknowledge_selectively(
        &mut self,
        env: &mut Env,
        psn: Psn,
        told: Option<&[u8]>,
    ) -> bool {
        let next_psn = self.requester.next_psn;
        let waits = self.requester.rnr_until.is_some();
        let Some(selective) = self.recovery.selective_mut() else { return false };
        let repair = &mut selective.repair;
        let mut ranges = told.map(|told| {
            let mut from = psn;
            PsnRange::parse_all(told).take_while(move |range| {
                let left = next_psn.since(from);
                let offset = range.first.since(from);
                from = range.first.advance(range.count);
                (1..left).contains(&offset) && (1..=left - offset).contains(&range.count)
            })
        });
        if let Some(ranges) = &mut ranges {
            // A NAK that tells of nothing, or whose packet has yet to wait, goes back.
            let Some(first) = ranges.next().filter(|_| !waits) else { return false };
            repair.requests.arrived_before(psn);
            repair.requests.arrived(first);
            ranges.for_each(|range| {
                repair.requests.arrived(range);
            });
        }
        repair.executed_before(psn);
        self.catch_up(env);
        self.begin_repair(env);
        true
    }

    /// Advances to what the peer is known to have executed, but for answers that are missing.
    fn catch_up(&mut self, env: &mut Env) {
        let Some(selective) = self.recovery.selective() else { return };
        let executed = selective.repair.executed;
        let missing = self.awaited().filter(|awaited| awaited.psn.distance(executed) < 0);
        let psn = missing.as_ref().map_or(executed, |awaited| awaited.psn);
        if psn.distance(self.requester.una_psn) > 0 {
            self.advance_una(env, psn);
        }
        let una = self.requester.una_psn;
        let Some(selective) = self.recovery.selective_mut() else { return };
        let repair = &mut selective.repair;
        repair.executed_before(una);
        repair.requests.arrived_before(repair.executed);
        repair.answers.arrived_before(una);
        if missing.is_some() && repair.answers.missing_before(executed) {
            env.shared.counters.implied_nak_seq_err += 1;
        }
        // A probe that was answered, and by nothing else, was the only packet on its way.
        if repair.probe.is_some_and(|probe| una.distance(probe.until) >= 0)
            && let Some(probe) = repair.probe.take()
        {
            repair.requests.missing_before(probe.next_psn);
        }
    }

    /// Looks for what has to be sent again. As with go-back-N, a loss costs one retry, and more
    /// evidence of it nothing until a timeout.
    fn begin_repair(&mut self, env: &mut Env) {
        // What was acknowledged may have let a work request fail.
        if !self.takes(Kind::Acknowledge) {
            return;
        }
        let una = self.requester.una_psn;
        let Some(selective) = self.recovery.selective_mut() else { return };
        let repair = &mut selective.repair;
        repair.requests.find_lost_again();
        repair.answers.find_lost_again();
        let blocks = repair.next().is_some_and(|(psn, ..)| psn == una);
        let is_news = self.requester.recovering != Some(una) && self.requester.rnr_until.is_none();
        if blocks && is_news && self.spend_retry(env) {
            env.shared.counters.completer_retry_err += 1;
            self.requester.recovering = Some(una);
            self.restart_ack_timer(env.now);
        }
    }

    /// An answer ahead of the one `awaited`: none if it is for go-back-N.
    pub(in crate::qp) fn keep_answer(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        frame: &[u8],
        awaited: Psn,
    ) -> Option<Result<(), Discard>> {
        let psn = packet.headers.bth.psn;
        let is_awaited = |&(_, wqe): &(u64, &SendWqe)| {
            wqe.op.awaits_response() && wqe.offset_of(psn) < wqe.psn_count
        };
        self.recovery.selective()?;
        if self.sq.iter_begun().find(is_awaited).is_none() {
            return Some(Err(Discard::ResponseGap));
        }
        let repair = &mut self.recovery.selective_mut()?.repair;
        let range = PsnRange { first: psn, count: 1 };
        let kept = repair.kept.keep(range, frame, super::room(env.shared));
        if kept == Kept::Not {
            return if repair.kept.is_empty() { None } else { Some(Err(Discard::ResponseGap)) };
        }
        repair.executed_before(awaited);
        self.catch_up(env);
        let repair = &mut self.recovery.selective_mut()?.repair;
        repair.executed_before(psn);
        if repair.answers.arrived(range) {
            env.shared.counters.implied_nak_seq_err += 1;
        }
        self.begin_repair(env);
        if kept == Kept::Before {
            return Some(Err(Discard::DuplicateResponse));
        }
        env.shared.counters.reordered_pkts += 1;
        Some(Ok(()))
    }

    /// A response was handled: takes the answers kept that are up now.
    pub(in crate::qp) fn handle_kept_answers(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
    ) {
        let psn = packet.headers.bth.psn;
        let una = self.requester.una_psn;
        let Some(selective) = self.recovery.selective_mut() else { return };
        if info.kind != Kind::Acknowledge && una.distance(psn) > 0 {
            selective.repair.answers.arrived(PsnRange { first: psn, count: 1 });
        }
        while let Some(frame) = self.next_kept_answer(env.shared) {
            let Ok(packet) = Packet::parse(&frame) else { continue };
            let Some(info) = packet.info() else { continue };
            if let Err(reason) = self.handle_response(env, &packet, info, &frame) {
                env.shared.counters.discard(reason);
            }
        }
        // A response may have let the QP fail: it must not have a timer any more.
        if self.takes(Kind::Acknowledge) {
            self.catch_up(env);
            self.begin_repair(env);
        }
    }

    fn next_kept_answer(&mut self, shared: &mut Shared) -> Option<Box<[u8]>> {
        let selective = self.recovery.selective()?;
        if selective.repair.kept.is_empty() || !self.takes(Kind::Acknowledge) {
            return None;
        }
        let psn = self.awaited().map_or(self.requester.una_psn, |awaited| awaited.psn);
        let kept = &mut self.recovery.selective_mut()?.repair.kept;
        kept.take(psn, &mut shared.reorder_left)
    }

    /// The ACK timer has run out: the oldest packet alone is sent again, to see what the peer says
    /// of the rest. `false`: it is for go-back-N.
    pub(in crate::qp) fn probe(&mut self, env: &mut Env) -> bool {
        if !self.is_selective() {
            return false;
        }
        if self.spend_retry(env) {
            let until = self.reopen_oldest(env);
            let next_psn = self.requester.next_psn;
            if let (Some(selective), Some(until)) = (self.recovery.selective_mut(), until) {
                selective.repair.probe = Some(Probe { until, next_psn });
            }
            self.restart_ack_timer(env.now);
        }
        true
    }

    /// The oldest packet alone is sent again: after a timeout, or because the peer had no receive
    /// for it and keeps the others. Where it ends; none if it is for go-back-N.
    pub(in crate::qp) fn reopen_oldest(&mut self, env: &mut Env) -> Option<Psn> {
        if !self.is_selective() {
            return None;
        }
        env.shared.counters.completer_retry_err += 1;
        let (una, next_psn) = (self.requester.una_psn, self.requester.next_psn);
        let owner = self.sq.iter_begun().find(|(_, wqe)| wqe.offset_of(una) < wqe.psn_count);
        let end = match owner {
            // A READ is asked for to its end: the peer may never have heard of it.
            Some((_, wqe)) if matches!(wqe.op, SendOp::Read(_)) => {
                let end = wqe.first_psn.advance(wqe.psn_count);
                if end.distance(next_psn) > 0 { next_psn } else { end }
            }
            _ => una.advance(1),
        };
        let repair = &mut self.recovery.selective_mut()?.repair;
        let missing = repair.answers.first() == Some(una);
        let holes = if missing { &mut repair.answers } else { &mut repair.requests };
        Some(holes.reopen(una, end))
    }

    /// Go-back-N takes over: nothing is known from `una_psn` on.
    pub(in crate::qp) fn forget_holes(&mut self) {
        let una = self.requester.una_psn;
        if let Some(selective) = self.recovery.selective_mut() {
            selective.repair.requests.forget(una);
            selective.repair.answers.forget(una);
            selective.repair.probe = None;
        }
    }

    /// Writes the next packet that has to be sent again; new ones go on where they were.
    pub(in crate::qp) fn transmit_repair(
        &mut self,
        env: &mut Env,
        frame: &mut [u8],
    ) -> Option<usize> {
        loop {
            let (psn, end, is_answer) = self.recovery.selective()?.repair.next()?;
            match self.step(psn, end, is_answer) {
                Step::Skip(to) => self.repaired_before(to, is_answer),
                Step::Send(index, packet, until) => {
                    let (wqe_before, packet_before) = (self.requester.wqe, self.requester.packet);
                    (self.requester.wqe, self.requester.packet) = (index, packet);
                    if let Some(wqe) = self.sq.get_mut(index) {
                        wqe.retried = true;
                    }
                    if psn.advance(1) == end {
                        self.requester.ask_for_ack();
                    }
                    let outcome = self.build(env, frame, index, until);
                    let after = self.cursor_psn(index);
                    (self.requester.wqe, self.requester.packet) = (wqe_before, packet_before);
                    match outcome {
                        Ok(len) => {
                            self.repaired_before(after, is_answer);
                            return Some(len);
                        }
                        Err(status) => self.fail_in_order(env, index, status),
                    }
                }
            }
        }
    }

    /// The PSN under the cursor, which has just passed a packet of work request `index`.
    fn cursor_psn(&self, index: u64) -> Psn {
        let Some(wqe) = self.sq.get(index) else { return self.requester.next_psn };
        let is_past = self.requester.wqe != index;
        wqe.first_psn.advance(if is_past { wqe.psn_count } else { self.requester.packet })
    }

    fn repaired_before(&mut self, psn: Psn, is_answer: bool) {
        let next_psn = self.requester.next_psn;
        let Some(selective) = self.recovery.selective_mut() else { return };
        let repair = &mut selective.repair;
        repair.order += 1;
        let holes = if is_answer { &mut repair.answers } else { &mut repair.requests };
        holes.resent_before(psn, Sending { order: repair.order, next_psn });
    }

    fn step(&self, psn: Psn, end: Psn, is_answer: bool) -> Step {
        let after = |wqe: &SendWqe| wqe.first_psn.advance(wqe.psn_count);
        // The longest message takes half of the PSNs: its end is not ahead of its first.
        let ends_later =
            |wqe: &SendWqe| wqe.offset_of(psn) < wqe.psn_count || wqe.first_psn.distance(psn) > 0;
        let owner = self.sq.iter_begun().find(|(_, wqe)| ends_later(wqe));
        let Some((index, wqe)) = owner else { return Step::Skip(end) };
        if wqe.first_psn.distance(psn) > 0 {
            return Step::Skip(wqe.first_psn);
        }
        let packet = wqe.offset_of(psn);
        if !wqe.op.awaits_response() {
            return if is_answer { Step::Skip(after(wqe)) } else { Step::Send(index, packet, 0) };
        }
        let packet = packet.max(wqe.responded);
        let hole_end = end.since(wqe.first_psn);
        let until = if is_answer { hole_end.min(wqe.psn_count) } else { wqe.psn_count };
        if packet >= until { Step::Skip(after(wqe)) } else { Step::Send(index, packet, until) }
    }
}
