//! The device: owns all tables, and is the only way in.
//!
//! Frames, time and verbs come in as calls; frames, completions and events go out as calls. The
//! device holds no clock, thread, lock or buffer of the caller: after the same calls it gives the
//! same frames, byte for byte.

use std::collections::VecDeque;
use std::ops::Range;

use crate::ah::MAX_OVERHEAD;
use crate::congestion;
use crate::counters::{Counters, QpCounters};
use crate::discard::Discard;
use crate::flow::FlowTable;
use crate::gid::Gid;
use crate::icrc;
use crate::loss_recovery::LossRecovery;
use crate::memory::Memory;
use crate::mr::Regions;
use crate::port::{GidEntry, Port, PortAttr, pkeys_match};
use crate::psn::Psn;
use crate::qp::{Env, Limits, Qp, Shared};
use crate::qp_table::QpTable;
use crate::table::Table;
use crate::time::Instant;
use crate::timer::TimerQueue;
use crate::verbs::{Cq, Event, Mtu, Pd, QpType, Qpn, VerbsError};
use crate::wire::{Kind, Packet, Transport};

/// Sizes and bounds of a device.
#[derive(Clone, Debug)]
pub struct Config {
    /// QPs, at most 2^20 - 1, and no more than `qpns` has room for.
    pub max_qp: usize,
    /// Memory regions and windows together.
    pub max_mr: usize,
    /// Completion queues, and each of: SRQs, address handles, protection and XRC domains.
    pub max_objects: usize,
    /// Completions of one CQ.
    pub max_cqe: usize,
    /// Work requests of one queue.
    pub max_wr: u32,
    /// Scatter/gather entries of one work request.
    pub max_sge: u32,
    /// Inline bytes of one work request.
    pub max_inline: u32,
    /// READs and atomics outstanding for each QP and side, at most 255.
    pub max_rd_atomic: u8,
    /// Packets a requester may have unacknowledged, 1 to 2^22.
    pub window: u32,
    /// A requester asks for an ACK at least every so many packets.
    pub ack_every: u32,
    /// What its QPs do about lost packets.
    pub loss_recovery: LossRecovery,
    /// Packets that one QP keeps, in each direction, which have come ahead of a missing one.
    pub max_reorder: u32,
    /// Bytes of such packets that all QPs keep together.
    pub max_reorder_bytes: usize,
    /// Packets one QP sends before the next has its turn.
    pub burst: u32,
    /// The largest path MTU the link takes.
    pub active_mtu: Mtu,
    /// P_Key table.
    pub pkeys: Vec<u16>,
    /// Numbers its QPs may have: devices that share an address have ranges of their own.
    pub qpns: Range<u32>,
    /// Peers that compute the ICRC of FLUSH as Linux rxe does ([`icrc::rxe_flush`]): with them,
    /// and in both directions, it is what we compute, too.
    pub rxe_flush_peers: Vec<Gid>,
    /// How congestion is controlled; `None`: packets are not ECN-capable, and nothing slows down.
    pub congestion: Option<congestion::Config>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_qp: 16_383,
            max_mr: 1 << 20,
            max_objects: 1 << 16,
            max_cqe: 1 << 20,
            max_wr: 1 << 15,
            max_sge: 32,
            max_inline: 1024,
            max_rd_atomic: 128,
            window: 256,
            ack_every: 64,
            loss_recovery: LossRecovery::GoBackN,
            max_reorder: 1024,
            max_reorder_bytes: 16 << 20,
            burst: 16,
            active_mtu: Mtu::Mtu4096,
            pkeys: vec![0xffff],
            qpns: 0..1 << 24,
            rxe_flush_peers: Vec::new(),
            congestion: None,
        }
    }
}

/// A RoCE device with one port, over the memory `M` of its application.
#[derive(Debug)]
pub struct Device<M> {
    pub(crate) shared: Shared,
    pub(crate) memory: M,
    pub(crate) qps: QpTable,
    pub(crate) pds: Table<()>,
    pub(crate) xrcds: Table<()>,
    pub(crate) config: Config,
    /// Multicast groups and the QPs attached to each.
    pub(crate) groups: Vec<(Gid, Vec<Qpn>)>,
    pub(crate) flows: FlowTable,
    /// QPs that may have a packet to send, by slot.
    line: VecDeque<u32>,
    /// Packets the first in line may still send in its turn.
    burst_left: u32,
    /// The QP of the last packet, by slot.
    last_sender: u32,
    /// The QP whose ACK is held back, unless it owes more meanwhile.
    held: Option<Qpn>,
    /// QPs that have something to send in a class that is paused, by slot.
    paused: Vec<u32>,
    timers: TimerQueue,
}

impl<M: Memory> Device<M> {
    /// A device with an empty GID table; see [`Device::add_gid`].
    pub fn new(config: Config, memory: M) -> Device<M> {
        let objects = config.max_objects;
        let shared = Shared {
            regions: Regions::new(config.max_mr),
            cqs: Table::new(objects),
            srqs: Table::new(objects),
            ahs: Table::new(objects),
            port: Port {
                gids: Vec::new(),
                pkeys: config.pkeys.clone(),
                active_mtu: config.active_mtu,
                active: true,
                rxe_flush_peers: config.rxe_flush_peers.clone(),
            },
            events: VecDeque::new(),
            counters: Counters::default(),
            limits: Limits {
                window: config.window.clamp(1, 1 << 22),
                ack_every: config.ack_every.max(1),
                max_rd_atomic: config.max_rd_atomic,
                loss_recovery: config.loss_recovery,
                max_reorder: config.max_reorder,
            },
            congestion: config.congestion.clone(),
            paused_dscps: 0,
            ident: 0,
            cq_overrun: false,
            reorder_left: config.max_reorder_bytes,
            ready_cqs: VecDeque::new(),
        };
        Device {
            shared,
            memory,
            qps: QpTable::new(config.max_qp, &config.qpns),
            pds: Table::new(objects),
            xrcds: Table::new(objects),
            groups: Vec::new(),
            flows: FlowTable::default(),
            line: VecDeque::new(),
            burst_left: config.burst,
            last_sender: 0,
            held: None,
            paused: Vec::new(),
            timers: TimerQueue::default(),
            config,
        }
    }

    /// The application's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The application's memory, for the application to change.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Sizes and bounds.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the device has counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// What a QP has counted; `None` if there is no such QP.
    pub fn qp_counters(&self, qpn: Qpn) -> Option<QpCounters> {
        self.qps.get(qpn).map(|qp| qp.counters)
    }

    /// Work requests posted and not retired: of a QP's send queue, and of its own receive queue;
    /// `None` if there is no such QP.
    pub fn outstanding(&self, qpn: Qpn) -> Option<(usize, usize)> {
        self.qps.get(qpn).map(Qp::outstanding)
    }

    /// Whether a QP may have something to send at once: requests, answers or acknowledgements.
    pub fn wants_to_transmit(&self, qpn: Qpn) -> bool {
        self.qps.get(qpn).is_some_and(|qp| qp.in_line)
    }

    /// Port attributes.
    pub fn query_port(&self) -> PortAttr {
        PortAttr {
            active_mtu: self.shared.port.active_mtu,
            active: self.shared.port.active,
            max_msg_sz: crate::MAX_MESSAGE as u32,
            gid_tbl_len: self.shared.port.gids.len(),
            pkey_tbl_len: self.shared.port.pkeys.len(),
            bad_pkey_cntr: self.shared.counters.discarded(Discard::BadPkey),
            qkey_viol_cntr: self.shared.counters.discarded(Discard::BadQkey),
        }
    }

    /// The GID table's entry `index`.
    pub fn query_gid(&self, index: u8) -> Option<GidEntry> {
        self.shared.port.gid(index).ok().copied()
    }

    /// Bytes a frame buffer must have for [`Device::poll_transmit`].
    pub fn max_frame_len(&self) -> usize {
        self.config.active_mtu.bytes() + MAX_OVERHEAD
    }

    /// Handles a frame from the link, without FCS.
    ///
    /// # Errors
    /// Why the frame had no effect; it is counted already, and there is nothing to do about it.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) -> Result<(), Discard> {
        self.handle_summed_frame(now, frame, None)
    }

    /// As [`Device::handle_frame`], of a frame that was summed while it was copied: from
    /// [`icrc::of_plain_head`] on, all but the last four bytes.
    ///
    /// # Errors
    /// As [`Device::handle_frame`].
    pub fn handle_summed_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        sum: Option<u32>,
    ) -> Result<(), Discard> {
        let outcome = match self.receive(now, frame, sum) {
            Err(Discard::NotRoce) => self.steer(now, frame),
            outcome => outcome,
        };
        match outcome {
            Ok(()) => {}
            Err(reason) => self.shared.counters.discard(reason),
        }
        self.fail_users_of_overrun_cqs();
        outcome
    }

    /// Writes the next frame to send into `frame` and returns its length; `None` when nothing can
    /// be sent before another call.
    ///
    /// # Panics
    /// If `frame` is shorter than [`Device::max_frame_len`].
    pub fn poll_transmit(&mut self, now: Instant, frame: &mut [u8]) -> Option<usize> {
        assert!(frame.len() >= self.max_frame_len(), "frame buffer too short");
        while let Some(&slot) = self.line.front() {
            if self.burst_left == 0 {
                self.end_burst(slot);
                continue;
            }
            let Some(qp) = self.qps.at(slot) else {
                self.leave_line();
                continue;
            };
            let mut env = Env { now, shared: &mut self.shared, memory: &mut self.memory };
            let sent = match is_held(qp, &mut self.held) {
                true => qp.transmit_request(&mut env, frame),
                false => qp.transmit(&mut env, frame),
            };
            if let Some(deadline) = qp.deadline() {
                self.timers.arm(slot, deadline);
            }
            // Asked here, which is cheaper than to try and build one more.
            if sent.is_none() || !wants_to_transmit(qp, &mut self.held) {
                qp.in_line = false;
                if sent.is_none() && qp.is_paused(&self.shared) && !qp.awaits_resumption {
                    qp.awaits_resumption = true;
                    self.paused.push(slot);
                }
                self.leave_line();
            } else {
                self.burst_left -= 1;
            }
            self.fail_users_of_overrun_cqs();
            if let Some(len) = sent {
                self.last_sender = slot;
                self.loop_back_multicast(now, slot, &frame[..len]);
                return Some(len);
            }
        }
        None
    }

    /// The QP that the frame of the last [`Device::poll_transmit`] is from, asked before anything
    /// else is called.
    #[inline]
    pub fn sender(&mut self) -> Option<Qpn> {
        self.qps.at(self.last_sender).map(|qp| qp.qpn)
    }

    /// Holds back an ACK, if one is all there is to send and none is held: [`Device::poll_transmit`]
    /// leaves it until [`Device::release_ack`], or until its QP owes its peer more than that. For
    /// callers that know of a request to come, whose peer waits for that rather than for the ACK;
    /// what the QP sends goes before it. Says whether it is held.
    ///
    /// They must see to its leaving well within a millisecond: none is held for a QP whose own
    /// timeout is shorter, since its peer's is mostly the same.
    pub fn hold_ack(&mut self) -> bool {
        let (Some(&slot), 1, None) = (self.line.front(), self.line.len(), self.held_ack()) else {
            return false;
        };
        let Some(qp) = self.qps.at(slot).filter(|qp| qp.may_hold_ack()) else { return false };
        qp.put_requests_first();
        qp.in_line = false;
        self.held = Some(qp.qpn);
        self.leave_line();
        true
    }

    /// Has connected QPs send nothing whose packets have one of these DSCPs, each a bit; of what
    /// was paused before and is not now, the packets leave. For links with priority flow control,
    /// which would otherwise have to take what they may not send to get at what they may. CNPs have
    /// a DSCP of their own and leave.
    pub fn pause_dscps(&mut self, dscps: u64) {
        if self.shared.paused_dscps == dscps {
            return;
        }
        self.shared.paused_dscps = dscps;
        for slot in std::mem::take(&mut self.paused) {
            if let Some(qp) = self.qps.at(slot) {
                qp.awaits_resumption = false;
                self.settle(slot);
            }
        }
    }

    /// What the ACK that is held back acknowledges; `None` if none is. It grows with each request
    /// that arrives meanwhile.
    pub fn held_ack(&self) -> Option<Psn> {
        self.qps.get(self.held?)?.plain_ack()
    }

    /// Lets the ACK that is held back leave.
    pub fn release_ack(&mut self) {
        if let Some(qpn) = self.held.take().filter(|&qpn| self.qps.get(qpn).is_some()) {
            self.settle(self.qps.slot_of(qpn));
        }
    }

    /// When [`Device::handle_timeout`] wants to be called; it may turn out too early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Lets every timer that has run out by `now` act.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(qp) = self.qps.at(slot) else { continue };
            match qp.deadline() {
                Some(deadline) if deadline <= now => {
                    let mut env = Env { now, shared: &mut self.shared, memory: &mut self.memory };
                    qp.handle_timeout(&mut env);
                    self.settle(slot);
                }
                Some(deadline) => self.timers.arm(slot, deadline),
                None => {}
            }
        }
        self.fail_users_of_overrun_cqs();
    }

    /// The next thing the application is to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// A CQ that has got completions since it was last returned here, for callers that move them
    /// on rather than wait to be asked.
    pub fn poll_ready_cq(&mut self) -> Option<Cq> {
        let cq = self.shared.ready_cqs.pop_front()?;
        if let Some(queue) = self.shared.cqs.get_mut(cq.0) {
            queue.is_ready = false;
        }
        Some(cq)
    }

    /// Whether nothing waits to be sent or told: only a frame, a verb or a timer changes that.
    pub fn is_quiet(&self) -> bool {
        self.line.is_empty() && self.shared.events.is_empty() && self.shared.ready_cqs.is_empty()
    }

    /// Puts a QP in line if it may have something to send, and its timer in the queue.
    pub(crate) fn settle(&mut self, slot: u32) {
        let Some(qp) = self.qps.at(slot) else { return };
        if !qp.in_line && wants_to_transmit(qp, &mut self.held) {
            qp.in_line = true;
            self.line.push_back(slot);
        }
        if let Some(deadline) = qp.deadline() {
            self.timers.arm(slot, deadline);
        }
    }

    /// Fails the QPs of every CQ that has overrun (IBA 11.6.3.1).
    pub(crate) fn fail_users_of_overrun_cqs(&mut self) {
        while self.shared.cq_overrun {
            self.shared.cq_overrun = false;
            for qpn in self.qps.qpns() {
                let shared = &mut self.shared;
                let Some(qp) = self.qps.get_mut(qpn) else { continue };
                let broken =
                    |cq: &crate::verbs::Cq| shared.cqs.get(cq.0).is_some_and(|cq| cq.overrun);
                if qp.completes_at(shared).iter().flatten().any(broken) {
                    qp.fail(shared);
                }
            }
        }
    }

    /// Takes a QP that is going away out of the line and from among the paused ones, or its
    /// successor would stand there twice.
    pub(crate) fn forget(&mut self, slot: u32) {
        if self.line.front() == Some(&slot) {
            self.leave_line();
        } else {
            self.line.retain(|&other| other != slot);
        }
        self.paused.retain(|&other| other != slot);
    }

    fn end_burst(&mut self, slot: u32) {
        self.leave_line();
        if let Some(qp) = self.qps.at(slot) {
            qp.in_line = false;
            qp.end_burst();
        }
        self.settle(slot);
    }

    fn leave_line(&mut self) {
        self.line.pop_front();
        self.burst_left = self.config.burst.max(1);
    }

    /// The checks of IBA 9.6 in its order, down to the QP.
    fn receive(&mut self, now: Instant, frame: &[u8], sum: Option<u32>) -> Result<(), Discard> {
        let packet = Packet::parse(frame)?;
        let bth = &packet.headers.bth;
        if bth.transport_version != 0 {
            return Err(Discard::BadTransportVersion);
        }
        let transport = bth.opcode.transport().ok_or(Discard::UnknownOpcode)?;
        if Qpn(bth.dest_qp) == Qpn::MULTICAST {
            return self.receive_multicast(now, &packet, frame);
        }
        if !self.shared.port.has_gid_of(&packet.headers.net) {
            return Err(Discard::NotOurAddress);
        }
        let slot = self.qps.slot_of(Qpn(bth.dest_qp));
        let qp = self.qps.get_mut(Qpn(bth.dest_qp)).ok_or(Discard::UnknownQp)?;
        if transport == Transport::Cnp {
            qp.check_cnp(&packet)?;
            check_sender(&self.shared, qp, &packet)?;
            return qp.handle_cnp(now, &mut self.shared, &packet, frame);
        }
        if Some(transport) != qp.transport() {
            return Err(Discard::WrongService);
        }
        if !qp.takes(packet.info().map_or(Kind::Send, |info| info.kind)) {
            return Err(Discard::WrongState);
        }
        check_sender(&self.shared, qp, &packet)?;
        if !icrc_is_right(qp, &packet, frame, sum) {
            return Err(Discard::BadIcrc);
        }
        self.shared.counters.rcvd_pkts += 1;
        qp.counters.rcvd_pkts += 1;
        let mut env = Env { now, shared: &mut self.shared, memory: &mut self.memory };
        qp.note_mark(&mut env, &packet);
        let outcome = qp.handle(&mut env, &packet, frame);
        self.settle(slot);
        outcome
    }

    /// Gives a frame that is not RoCE to the QP whose rule it matches.
    #[cold]
    fn steer(&mut self, now: Instant, frame: &[u8]) -> Result<(), Discard> {
        let qp = self.flows.find(frame).and_then(|qpn| self.qps.get_mut(qpn));
        let qp = qp.ok_or(Discard::NotRoce)?;
        let mut env = Env { now, shared: &mut self.shared, memory: &mut self.memory };
        qp.handle_raw(&mut env, frame)?;
        qp.counters.rcvd_pkts += 1;
        self.shared.counters.rcvd_pkts += 1;
        Ok(())
    }

    /// Whether any object still belongs to `pd`.
    pub(crate) fn pd_is_used(&self, pd: Pd) -> bool {
        self.shared.regions.uses_pd(pd)
            || self.shared.ahs.iter().any(|(_, ah)| ah.pd == pd)
            || self.shared.srqs.iter().any(|(_, srq)| srq.pd == pd)
            || self.qps.iter().any(|qp| qp.init.pd == Some(pd))
    }

    pub(crate) fn qp_mut(&mut self, qpn: Qpn) -> Result<&mut Qp, VerbsError> {
        self.qps.get_mut(qpn).ok_or(VerbsError::Invalid)
    }
}

/// Whether a QP's ACK is the one `held` back. One that owes more goes on as any other.
fn is_held(qp: &Qp, held: &mut Option<Qpn>) -> bool {
    if *held != Some(qp.qpn) {
        return false;
    }
    *held = held.filter(|_| qp.plain_ack().is_some());
    held.is_some()
}

/// Whether a QP has anything to send but an ACK that is held back.
fn wants_to_transmit(qp: &Qp, held: &mut Option<Qpn>) -> bool {
    match is_held(qp, held) {
        true => qp.wants_to_request(),
        false => qp.wants_to_transmit(),
    }
}

/// Whether the packet has the ICRC that the peer's packets should have.
fn icrc_is_right(qp: &Qp, packet: &Packet, frame: &[u8], sum: Option<u32>) -> bool {
    let from_rxe = qp.path.as_ref().is_some_and(|path| path.rxe_flush);
    if from_rxe && packet.info().is_some_and(|info| info.kind == Kind::Flush) {
        return icrc::rxe_flush(frame, &packet.layout) == packet.icrc;
    }
    match sum.filter(|_| icrc::is_plain(frame, &packet.layout)) {
        Some(sum) => sum == packet.icrc,
        None => packet.icrc_ok(frame),
    }
}

/// Rows 8 to 10 of the receive checks: peer, P_Key, Q_Key.
fn check_sender(shared: &Shared, qp: &Qp, packet: &Packet) -> Result<(), Discard> {
    let headers = &packet.headers;
    if !qp.is_datagram() {
        let from_peer =
            qp.path.as_ref().is_some_and(|path| path.is_from_peer(&headers.eth, &headers.net));
        if !from_peer {
            return Err(Discard::WrongPeer);
        }
    }
    let pkey = headers.bth.pkey;
    let pkey_fits = match qp.init.qp_type {
        QpType::Gsi => shared.port.pkeys.iter().any(|&own| pkeys_match(own, pkey)),
        _ => pkeys_match(qp.pkey(), pkey),
    };
    if !pkey_fits {
        return Err(Discard::BadPkey);
    }
    if qp.is_datagram() && headers.ext.deth.is_some_and(|deth| deth.qkey != qp.qkey()) {
        return Err(Discard::BadQkey);
    }
    Ok(())
}
