//! Where congestion control takes hold of a QP (Annex A17.9): its packets are ECN-capable and
//! paced, marks on the peer's packets are answered by CNPs. Without it, there is no limiter, and
//! each of these asks for that alone.

use super::{Env, Qp, Shared};
use crate::ah::MAX_OVERHEAD;
use crate::congestion::{Half, Limiter, QpRate};
use crate::discard::Discard;
use crate::psn::Psn;
use crate::time::Instant;
use crate::wire::{Bth, Extensions, Kind, Opcode, Packet, Transport, seal};

/// Reserved bytes of a CNP.
const CNP_PAYLOAD: usize = 16;

/// The low bits of a traffic class: ECT(0), and the ECN field they are part of.
const ECT0: u8 = 0b10;

impl Qp {
    /// Begins anew, as the QP becomes ready to receive. Datagrams have no rate of their own, as
    /// they go to many, and raw packets no protocol.
    pub(super) fn start_limiter(&mut self, shared: &Shared) {
        let is_connected = !matches!(self.transport(), None | Some(Transport::Ud));
        let mtu = self.attr.path_mtu.bytes() as u32;
        let config = shared.congestion.as_ref().filter(|_| is_connected);
        self.limiter = config.map(|config| Box::new(Limiter::new(config, mtu, MAX_OVERHEAD)));
    }

    /// The present limits; `None` if there are none.
    pub fn rate(&self, now: Instant) -> Option<QpRate> {
        self.limiter.as_ref().map(|limiter| limiter.limits(now))
    }

    /// A packet of the peer's has come, its ICRC right, the QP in a state that takes it. A mark on
    /// it owes a CNP, but not on an acknowledgement: it is no sign of much data.
    #[inline]
    pub fn note_mark(&mut self, env: &mut Env, packet: &Packet) {
        let Some(limiter) = &mut self.limiter else { return };
        let net = &packet.headers.net;
        if !net.is_congestion_experienced() || net.is_v1() {
            return;
        }
        env.shared.counters.np_ecn_marked_roce_packets += 1;
        let is_ack = |kind| matches!(kind, Kind::Acknowledge | Kind::AtomicAcknowledge);
        if !packet.info().is_none_or(|info| is_ack(info.kind)) {
            limiter.marked(env.now);
        }
    }

    /// Whether a CNP is one, and may come in the present state.
    pub fn check_cnp(&self, packet: &Packet) -> Result<(), Discard> {
        if packet.info().is_none() {
            return Err(Discard::UnknownOpcode);
        }
        let takes = !self.is_datagram() && self.takes(Kind::Acknowledge);
        if takes { Ok(()) } else { Err(Discard::WrongState) }
    }

    /// A CNP slows the QP down, where congestion is controlled; elsewhere it is counted.
    pub fn handle_cnp(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        packet: &Packet,
        frame: &[u8],
    ) -> Result<(), Discard> {
        if !packet.icrc_ok(frame) {
            return Err(Discard::BadIcrc);
        }
        shared.counters.rcvd_pkts += 1;
        self.counters.rcvd_pkts += 1;
        match self.limiter.as_mut().is_none_or(|limiter| limiter.notified(now)) {
            true => shared.counters.rp_cnp_handled += 1,
            false => shared.counters.rp_cnp_ignored += 1,
        }
        Ok(())
    }

    /// Whether the peer is owed a CNP.
    pub(super) fn owes_cnp(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.owes_cnp())
    }

    /// Writes the CNP that is owed into `frame`.
    #[inline]
    pub(super) fn transmit_cnp(&mut self, env: &mut Env, frame: &mut [u8]) -> Option<usize> {
        let limiter = self.limiter.as_mut().filter(|limiter| limiter.owes_cnp())?;
        limiter.cnp_leaves(env.now);
        let config = env.shared.congestion.as_ref()?;
        let mut path = self.path.clone()?;
        path.set_priority(config.cnp_dscp << 2 | ECT0, config.cnp_802p_prio);
        let bth = Bth {
            mig_req: false,
            becn: true,
            ..Bth::new(Opcode::CNP, self.attr.dest_qp_num.0, Psn::new(0))
        };
        let ident = env.shared.next_ident();
        let layout = path.emit(frame, &bth, &Extensions::default(), CNP_PAYLOAD, ident);
        frame[layout.payload..layout.payload + CNP_PAYLOAD].fill(0);
        env.shared.counters.np_cnp_sent += 1;
        env.shared.counters.sent_pkts += 1;
        self.counters.sent_pkts += 1;
        Some(seal(frame, &layout, CNP_PAYLOAD))
    }

    /// Whether the next packet of this half must wait for its turn; then it does until
    /// [`end_wait`](Self::end_wait).
    #[inline]
    pub(super) fn must_wait(&mut self, now: Instant, half: Half) -> bool {
        self.limiter.as_mut().is_some_and(|limiter| limiter.must_wait(now, half))
    }

    /// Whether a packet of this half waits for its turn.
    #[inline]
    pub(super) fn waits(&self, half: Half) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.waits(half))
    }

    /// Ends the wait for the next packet's turn, if it is over. Whether requests had waited: the
    /// time that took was not the peer's.
    pub(super) fn end_wait(&mut self, now: Instant) -> bool {
        let Some(ended) = self.limiter.as_mut().and_then(|limiter| limiter.resume(now)) else {
            return false;
        };
        // Each half goes first in turn, as between bursts.
        self.end_burst();
        let requests_waited = ended == Half::Request;
        if requests_waited && self.requester.ack_deadline.is_some() {
            self.restart_ack_timer(now);
        }
        requests_waited
    }

    /// Whether it judges the network by how soon ACKs come.
    pub(super) fn measures_round_trips(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.measures_round_trips())
    }

    /// Whether the request packet `psn` should ask for an ACK only to measure a round trip.
    #[inline]
    pub(super) fn wants_probe(&self, psn: Psn) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.wants_probe()) && self.tells_time(psn)
    }

    /// Whether the answer to the request packet `psn` tells how long a round trip takes: it has not
    /// been sent before, and does not have to wait at the peer for one that is missing there.
    fn tells_time(&self, psn: Psn) -> bool {
        let waits_for_another = self.is_selective() && self.requester.recovering.is_some();
        psn == self.requester.next_psn && !waits_for_another
    }

    /// The request packet `psn` is about to leave; `asks` for an answer, `carries` data.
    #[inline]
    pub(super) fn note_request(
        &mut self,
        now: Instant,
        frame: &mut [u8],
        psn: Psn,
        asks: bool,
        carries: bool,
    ) {
        let is_probe = asks && self.tells_time(psn);
        let Some(limiter) = &mut self.limiter else { return };
        limiter.sent(now, frame.len() as u64);
        if is_probe {
            limiter.probe(now, psn);
        }
        if let Some(path) = self.path.as_ref().filter(|_| carries) {
            path.mark_ecn_capable(frame);
        }
    }

    /// A response is about to leave; READ responses are `paced`.
    #[inline]
    pub(super) fn note_reply(&mut self, now: Instant, frame: &mut [u8], paced: bool) {
        let Some(limiter) = self.limiter.as_mut().filter(|_| paced) else { return };
        limiter.sent(now, frame.len() as u64);
        if let Some(path) = &self.path {
            path.mark_ecn_capable(frame);
        }
    }

    /// Everything before `psn` is acknowledged, which so far was so before `una`.
    #[inline]
    pub(super) fn note_acked(&mut self, now: Instant, una: Psn, psn: Psn) {
        let Some(limiter) = &mut self.limiter else { return };
        limiter.acked(now, psn, psn.since(una));
    }

    /// Packets were lost.
    pub(super) fn note_loss(&mut self, now: Instant) {
        if let Some(limiter) = &mut self.limiter {
            limiter.lost(now);
        }
    }

    /// Packets will be sent again that were not lost: their round trip tells nothing.
    pub(super) fn forget_round_trip(&mut self) {
        if let Some(limiter) = &mut self.limiter {
            limiter.forget_probe();
        }
    }

    /// Packets the algorithm lets be unacknowledged, if it limits that.
    #[inline]
    pub(super) fn congestion_window(&self) -> Option<u32> {
        self.limiter.as_ref()?.window()
    }
}
