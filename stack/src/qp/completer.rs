//! Answers from the peer (IBA 9.7.5): ACK, NAK, READ responses and atomic acknowledgements retire
//! work requests in order or send the requester back. Timers end here too.

use super::requester::MAX_READ_PSNS;
use super::{Env, Qp};
use crate::discard::Discard;
use crate::psn::Psn;
use crate::sq::{Progress, SendWqe};
use crate::verbs::{QpState, SendOp, WcStatus};
use crate::wire::{Aeth, Kind, NakCode, OpcodeInfo, Packet, Position, SyndromeKind, rnr_delay_ns};

/// Retry count that never runs out (RNR only).
const FOR_EVER: u8 = 7;

/// Where a response stands among what is outstanding.
pub(super) struct Awaited {
    /// The oldest READ or atomic without its answer.
    index: u64,
    /// The PSN it waits for.
    pub psn: Psn,
}

impl Qp {
    /// Handles a response packet.
    pub(super) fn handle_response(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
        frame: &[u8],
    ) -> Result<(), Discard> {
        let psn = packet.headers.bth.psn;
        let outstanding = self.requester.outstanding();
        if !psn.is_within(self.requester.una_psn, outstanding) {
            let old = psn.distance(self.requester.una_psn) < 0;
            return Err(if old { Discard::DuplicateResponse } else { Discard::GhostResponse });
        }
        match info.kind {
            Kind::Acknowledge => self.handle_acknowledge(env, psn, packet),
            _ => self.handle_data_response(env, packet, info, frame),
        }
    }

    fn handle_acknowledge(
        &mut self,
        env: &mut Env,
        psn: Psn,
        packet: &Packet,
    ) -> Result<(), Discard> {
        let aeth = packet.headers.ext.aeth.ok_or(Discard::BadLength)?;
        match aeth.syndrome.kind() {
            // Credits are not used: RNR NAK is the flow control.
            SyndromeKind::Ack { .. } => {
                if !self.acknowledge_selectively(env, psn.advance(1), None) {
                    self.acknowledged_before(env, psn.advance(1));
                }
            }
            SyndromeKind::RnrNak { timer } => {
                env.shared.counters.rcvd_rnr_err += 1;
                if self.requester.rnr_until.is_none() && self.acknowledged_before(env, psn) {
                    self.wait_for_receiver(env, psn, timer);
                }
            }
            SyndromeKind::Nak(NakCode::PsnSequence) => {
                env.shared.counters.rcvd_seq_err += 1;
                let repairs = self.acknowledge_selectively(env, psn, Some(packet.payload));
                if !repairs && self.acknowledged_before(env, psn) {
                    self.retry_from(env, psn);
                }
            }
            SyndromeKind::Nak(code) => return self.handle_fatal_nak(env, psn, code),
            SyndromeKind::Reserved => return Err(Discard::ReservedSyndrome),
        }
        Ok(())
    }

    fn handle_fatal_nak(&mut self, env: &mut Env, psn: Psn, code: NakCode) -> Result<(), Discard> {
        let status = match code {
            NakCode::InvalidRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperational => WcStatus::RemOpErr,
            _ => return Err(Discard::ReservedSyndrome),
        };
        if self.acknowledged_before(env, psn) {
            self.fail_oldest(env, status);
        }
        Ok(())
    }

    /// The peer has executed everything before `psn`. `false` if a READ or atomic among that has
    /// no answer: the answer was lost, and is asked for again (implied NAK). And if a work request
    /// that is up now has failed, and the QP with it.
    fn acknowledged_before(&mut self, env: &mut Env, psn: Psn) -> bool {
        let una = self.requester.una_psn;
        let acked = psn.since(una);
        let awaited = self.awaited().filter(|awaited| awaited.psn.is_within(una, acked));
        match awaited {
            None => {
                self.advance_una(env, psn);
                self.takes(Kind::Acknowledge)
            }
            Some(awaited) => {
                self.advance_una(env, awaited.psn);
                self.answer_was_lost(env, awaited.psn);
                false
            }
        }
    }

    fn answer_was_lost(&mut self, env: &mut Env, psn: Psn) {
        if self.requester.recovering != Some(psn) && self.requester.rnr_until.is_none() {
            env.shared.counters.implied_nak_seq_err += 1;
            self.retry_from(env, psn);
        }
    }

    /// The oldest READ or atomic still unanswered.
    pub(super) fn awaited(&self) -> Option<Awaited> {
        if self.requester.rd_atomic_out == 0 {
            return None;
        }
        self.sq
            .iter_begun()
            .find(|(_, wqe)| wqe.op.awaits_response())
            .map(|(index, wqe)| Awaited { index, psn: wqe.first_psn.advance(wqe.responded) })
    }

    /// Moves the oldest unacknowledged PSN forward and retires what that completes.
    pub(super) fn advance_una(&mut self, env: &mut Env, psn: Psn) {
        if psn == self.requester.una_psn {
            return;
        }
        self.note_acked(env.now, self.requester.una_psn, psn);
        self.requester.una_psn = psn;
        self.requester.recovering = None;
        self.reload_retries();
        self.skip_acknowledged();
        self.restart_ack_timer(env.now);
        self.retire(env);
    }

    /// Going back may have left the cursor before what is acknowledged meanwhile.
    fn skip_acknowledged(&mut self) {
        let una = self.requester.una_psn;
        let Some(wqe) = self.sq.get(self.requester.wqe) else { return };
        if wqe.progress != Progress::Begun {
            return;
        }
        let cursor = wqe.first_psn.advance(self.requester.packet);
        if cursor.distance(una) >= 0 {
            return;
        }
        let next = self
            .sq
            .iter_begun()
            .map(|(index, wqe)| (index, wqe.offset_of(una), wqe.psn_count))
            .find(|&(index, offset, count)| index >= self.requester.wqe && offset < count);
        match next {
            Some((index, packet, _)) => {
                self.requester.wqe = index;
                self.requester.packet = packet;
            }
            None => self.pass_all_begun(),
        }
    }

    /// Everything begun is acknowledged: the cursor goes to what has not begun.
    fn pass_all_begun(&mut self) {
        let mut index = self.requester.wqe;
        let passed = |wqe: &SendWqe| matches!(wqe.progress, Progress::Begun | Progress::Done);
        while self.sq.get(index).is_some_and(passed) {
            index += 1;
        }
        self.requester.move_to(index);
    }

    /// A response that carries data: READ response or atomic acknowledgement.
    fn handle_data_response(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
        frame: &[u8],
    ) -> Result<(), Discard> {
        let psn = packet.headers.bth.psn;
        let awaited = self.awaited();
        let ahead = awaited.as_ref().map_or(-1, |awaited| psn.distance(awaited.psn));
        if let Some(awaited) = awaited.as_ref().filter(|_| ahead > 0) {
            if let Some(kept) = self.keep_answer(env, packet, frame, awaited.psn) {
                return kept;
            }
            self.advance_una(env, awaited.psn);
            self.answer_was_lost(env, awaited.psn);
            return Err(Discard::ResponseGap);
        }
        // Whatever it is, all before it was executed.
        self.advance_una(env, psn);
        match awaited.filter(|_| ahead == 0) {
            Some(awaited) => match self.take_response(env, packet, info, awaited.index) {
                Ok(()) => self.advance_una(env, psn.advance(1)),
                Err(status) => self.fail_in_order(env, awaited.index, status),
            },
            // Data for a SEND or WRITE.
            None => self.fail_oldest(env, WcStatus::BadRespErr),
        }
        Ok(())
    }

    /// Stores what the oldest READ or atomic gets.
    fn take_response(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
        index: u64,
    ) -> Result<(), WcStatus> {
        let wqe = self.sq.get(index).ok_or(WcStatus::GeneralErr)?;
        let mtu = self.attr.path_mtu.bytes();
        let expected = match wqe.op {
            SendOp::Read(_) => check_read_response(wqe, packet, info, mtu, self.is_selective()),
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                info.kind == Kind::AtomicAcknowledge
            }
            _ => {
                info.kind == Kind::ReadResponse
                    && info.position == Position::Only
                    && packet.payload.is_empty()
            }
        };
        // A response that carries data can say nothing but ACK.
        let positive = |aeth: Aeth| matches!(aeth.syndrome.kind(), SyndromeKind::Ack { .. });
        if !expected || !packet.headers.ext.aeth.is_none_or(positive) {
            return Err(WcStatus::BadRespErr);
        }
        let offset = wqe.responded * mtu as u32;
        let original = packet.headers.ext.atomic_ack_eth.map(|eth| eth.original.to_ne_bytes());
        let data = match &original {
            Some(word) => &word[..],
            None => packet.payload,
        };
        if !data.is_empty() {
            let pd = self.init.pd.ok_or(WcStatus::LocProtErr)?;
            self.sq.scatter(index, offset, data, pd, &env.shared.regions, env.memory)?;
        }
        let Some(wqe) = self.sq.get_mut(index) else { return Err(WcStatus::GeneralErr) };
        wqe.responded += 1;
        if wqe.responded == wqe.psn_count {
            wqe.progress = Progress::Done;
            self.requester.rd_atomic_out -= 1;
        }
        Ok(())
    }

    /// Completes, in order, every work request at the head of the queue that is done.
    pub(super) fn retire(&mut self, env: &mut Env) {
        while let Some(wqe) = self.sq.front() {
            let status = match wqe.progress {
                Progress::Waiting => break,
                Progress::Done => WcStatus::Success,
                Progress::Failed(status) => status,
                Progress::Begun if self.is_acknowledged(wqe) => WcStatus::Success,
                Progress::Begun => break,
            };
            let Some(wqe) = self.sq.pop() else { break };
            self.complete_send(env.shared, &wqe, status);
            if status != WcStatus::Success {
                env.shared.counters.send_err += 1;
                self.stop_sending(env);
                return;
            }
            // Done by answers to an earlier try while the cursor stood before it.
            if self.requester.wqe < self.sq.head {
                self.requester.move_to(self.sq.head);
            }
        }
        self.check_drained(env.shared);
    }

    /// Whether the peer has acknowledged all of the oldest work request.
    fn is_acknowledged(&self, wqe: &SendWqe) -> bool {
        !wqe.op.awaits_response() && wqe.offset_of(self.requester.una_psn) >= wqe.psn_count
    }

    /// The send queue has failed: all of the QP if it is reliable (IBA 10.3.1).
    fn stop_sending(&mut self, env: &mut Env) {
        if self.is_reliable() {
            self.replies.clear();
            self.enter_error(env.shared);
        } else {
            self.state = QpState::Sqe;
            self.attr.sq_draining = false;
            self.flush_sends(env.shared);
        }
    }

    /// The oldest work request fails with `status`.
    fn fail_oldest(&mut self, env: &mut Env, status: WcStatus) {
        let index = self.sq.head;
        if let Some(wqe) = self.sq.get_mut(index) {
            wqe.progress = Progress::Failed(status);
        }
        self.retire(env);
    }

    /// Goes back to `psn`, unless that has begun already or no retry is left.
    fn retry_from(&mut self, env: &mut Env, psn: Psn) {
        if self.requester.recovering == Some(psn) || self.requester.rnr_until.is_some() {
            return;
        }
        self.retry(env, psn);
    }

    fn retry(&mut self, env: &mut Env, psn: Psn) {
        if self.spend_retry(env) {
            self.go_back(env, psn);
        }
    }

    /// Whether there was a retry left; without one the oldest work request has failed.
    pub(super) fn spend_retry(&mut self, env: &mut Env) -> bool {
        if self.requester.retry_left == 0 {
            env.shared.counters.retry_exceeded_err += 1;
            self.fail_oldest(env, WcStatus::RetryExcErr);
            return false;
        }
        self.requester.retry_left -= 1;
        self.note_loss(env.now);
        true
    }

    /// RNR NAK for `psn`: nothing is sent before its time is over.
    fn wait_for_receiver(&mut self, env: &mut Env, psn: Psn, timer: u8) {
        if self.requester.rnr_left == 0 {
            env.shared.counters.retry_rnr_exceeded_err += 1;
            self.fail_oldest(env, WcStatus::RnrRetryExcErr);
            return;
        }
        if self.attr.rnr_retry != FOR_EVER {
            self.requester.rnr_left -= 1;
        }
        if self.reopen_oldest(env).is_none() {
            self.go_back(env, psn);
        }
        self.forget_round_trip();
        self.requester.recovering = None;
        self.requester.ack_deadline = None;
        self.requester.rnr_until = Some(env.now + rnr_delay_ns(timer));
    }

    /// A timer of this QP may have run out.
    pub fn handle_timeout(&mut self, env: &mut Env) {
        if self.end_wait(env.now) {
            return;
        }
        if let Some(until) = self.requester.rnr_until {
            // The ACK timer must not cut the wait short.
            if until <= env.now {
                self.requester.rnr_until = None;
                self.restart_ack_timer(env.now);
            }
        } else if self.requester.ack_deadline.is_some_and(|deadline| deadline <= env.now) {
            env.shared.counters.local_ack_timeout_err += 1;
            if !self.probe(env) {
                self.retry(env, self.requester.una_psn);
            }
            // The packets sent again may be lost again: their NAK is news.
            self.requester.recovering = None;
        }
    }

    /// A packet of our service whose opcode nobody has defined: a responder answers, the rest
    /// ignore it.
    pub(super) fn refuse_unknown_opcode(
        &mut self,
        env: &mut Env,
        packet: &Packet,
    ) -> Result<(), Discard> {
        let psn = packet.headers.bth.psn;
        if !self.serves_requests() || psn != self.responder.epsn {
            return Err(Discard::UnknownOpcode);
        }
        self.refuse(env, psn, NakCode::InvalidRequest, WcStatus::RemInvReqErr);
        Ok(())
    }
}

/// Whether the packet is the next response of a READ. A stream begins with First or Only, once for
/// each part asked for; after a retry it may begin anew anywhere. With selective repeat, which asks
/// again `in_parts`, it may end anywhere too.
fn check_read_response(
    wqe: &SendWqe,
    packet: &Packet,
    info: &OpcodeInfo,
    mtu: usize,
    in_parts: bool,
) -> bool {
    let next = wqe.responded + 1;
    let last = next == wqe.psn_count || next.is_multiple_of(MAX_READ_PSNS);
    let left = wqe.len as usize - wqe.responded as usize * mtu;
    let begins_part = wqe.responded.is_multiple_of(MAX_READ_PSNS);
    let begins = begins_part || wqe.retried;
    let continues = !begins_part;
    let position_fits = match info.position {
        Position::Only => last && begins,
        Position::First => !last && begins,
        Position::Middle => !last && continues,
        Position::Last => last && continues,
    };
    let position_fits = position_fits || in_parts && wqe.retried;
    info.kind == Kind::ReadResponse && position_fits && packet.payload.len() == left.min(mtu)
}
