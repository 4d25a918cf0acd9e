//! A queue pair: its state and attributes, and what its halves share.
//!
//! `requester` turns work requests into packets, `completer` retires them as answers arrive,
//! `responder` serves the peer's requests, `selective` is another way to recover from loss,
//! `datagram` does UD and `raw` whole frames. `modify` holds the table of states and attributes.

mod completer;
mod congestion;
mod datagram;
mod modify;
mod raw;
mod records;
mod replies;
mod requester;
mod responder;
mod selective;
mod unreliable;

use std::collections::VecDeque;

use crate::ah::{AddressHandle, Path};
use crate::congestion::{self as control, Limiter};
use crate::counters::{Counters, QpCounters};
use crate::cq::CompletionQueue;
use crate::discard::Discard;
use crate::loss_recovery::LossRecovery;
use crate::memory::Memory;
use crate::mr::Regions;
use crate::port::Port;
use crate::sq::SendQueue;
use crate::srq::{HeldRecv, RecvQueue, SharedRecvQueue};
use crate::table::Table;
use crate::time::Instant;
use crate::verbs::{
    Cq, Event, EventKind, GSI_QKEY, Pd, QpAttr, QpInit, QpState, QpType, Qpn, RecvWr, SendOp,
    SendWr, Srq, VerbsError, Wc, WcOpcode, WcStatus,
};
use crate::wire::{Kind, Packet, Transport};

pub use modify::{Transition, transition};

use replies::Replies;
use requester::Requester;
use responder::Responder;
use selective::Recovery;

/// Everything of a device but its QPs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub regions: Regions,
    pub cqs: Table<CompletionQueue>,
    pub srqs: Table<SharedRecvQueue>,
    pub ahs: Table<AddressHandle>,
    pub port: Port,
    pub events: VecDeque<Event>,
    pub counters: Counters,
    pub limits: Limits,
    /// How congestion is controlled, if it is.
    pub congestion: Option<control::Config>,
    /// DSCPs, as bits, whose packets may not leave.
    pub paused_dscps: u64,
    /// The next IPv4 identification.
    pub ident: u16,
    /// A CQ has lost a completion since the device last looked for QPs to fail.
    pub cq_overrun: bool,
    /// Bytes of packets that all QPs together may yet keep out of order.
    pub reorder_left: usize,
    /// CQs that have got completions, each once.
    pub ready_cqs: VecDeque<Cq>,
}

/// Bounds of the protocol engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// PSNs a requester may have unacknowledged.
    pub window: u32,
    /// A requester asks for an ACK at least every so many packets.
    pub ack_every: u32,
    pub max_rd_atomic: u8,
    pub loss_recovery: LossRecovery,
    /// Packets a QP may keep out of order, in each direction.
    pub max_reorder: u32,
}

/// What a QP works on during one call.
pub(crate) struct Env<'a> {
    pub now: Instant,
    pub shared: &'a mut Shared,
    pub memory: &'a mut dyn Memory,
}

impl Shared {
    pub fn next_ident(&mut self) -> u16 {
        self.ident = self.ident.wrapping_add(1);
        self.ident
    }

    pub fn complete(&mut self, cq: Option<Cq>, wc: Wc) {
        let Some(cq) = cq else { return };
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.push(cq, wc, &mut self.events);
            self.cq_overrun |= queue.overrun;
            if !queue.is_ready {
                queue.is_ready = true;
                self.ready_cqs.push_back(cq);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub qpn: Qpn,
    pub init: QpInit,
    pub state: QpState,
    pub attr: QpAttr,
    pub path: Option<Path>,
    /// P_Key of its packets.
    pkey: u16,
    sq: SendQueue,
    requester: Requester,
    rq: RecvQueue,
    responder: Responder,
    replies: Replies,
    /// Congestion control, if there is any, from RTR on.
    limiter: Option<Box<Limiter>>,
    recovery: Recovery,
    /// Multicast groups it is attached to.
    pub group_count: u32,
    /// It stands in the device's line of QPs with packets to send.
    pub in_line: bool,
    /// It stands among the device's paused QPs.
    pub awaits_resumption: bool,
    /// Requests go before replies in the present burst.
    requests_first: bool,
    pub counters: QpCounters,
}

/// What a completed receive tells beyond its status.
#[derive(Clone, Copy, Debug)]
struct Received {
    opcode: WcOpcode,
    byte_len: u32,
    imm_data: Option<[u8; 4]>,
    invalidated_rkey: Option<u32>,
    src_qp: Qpn,
    grh: bool,
    solicited: bool,
    pkey_index: u16,
    sl: u8,
}

impl Received {
    const NOTHING: Received = Received {
        opcode: WcOpcode::Recv,
        byte_len: 0,
        imm_data: None,
        invalidated_rkey: None,
        src_qp: Qpn(0),
        grh: false,
        solicited: false,
        pkey_index: 0,
        sl: 0,
    };
}

impl Qp {
    pub fn new(qpn: Qpn, init: QpInit) -> Qp {
        let cap = &init.cap;
        Qp {
            qpn,
            state: QpState::Reset,
            attr: QpAttr::default(),
            path: None,
            pkey: 0,
            sq: SendQueue::new(cap.max_send_wr as usize),
            requester: Requester::default(),
            rq: RecvQueue::new(cap.max_recv_wr as usize, cap.max_recv_sge as usize),
            responder: Responder::default(),
            replies: Replies::default(),
            limiter: None,
            recovery: Recovery::default(),
            group_count: 0,
            in_line: false,
            awaits_resumption: false,
            requests_first: false,
            counters: QpCounters::default(),
            init,
        }
    }

    /// The transport whose opcodes it speaks; raw packets have none.
    pub fn transport(&self) -> Option<Transport> {
        match self.init.qp_type {
            QpType::Rc => Some(Transport::Rc),
            QpType::Uc => Some(Transport::Uc),
            QpType::Ud | QpType::Gsi => Some(Transport::Ud),
            QpType::XrcSend | QpType::XrcRecv => Some(Transport::Xrc),
            QpType::RawPacket => None,
        }
    }

    pub fn is_reliable(&self) -> bool {
        matches!(self.transport(), Some(Transport::Rc | Transport::Xrc))
    }

    pub fn is_datagram(&self) -> bool {
        self.transport() == Some(Transport::Ud)
    }

    /// Send work requests that have retired since it was made.
    pub fn sends_retired(&self) -> u64 {
        self.sq.head
    }

    /// Receive work requests of its own queue that have retired since it was made.
    pub fn recvs_retired(&self) -> u64 {
        let held = self.responder.holds && self.init.srq.is_none();
        self.rq.taken() - u64::from(held)
    }

    /// Work requests that have not retired: of the send queue, and of its own receive queue.
    pub fn outstanding(&self) -> (usize, usize) {
        let held = self.responder.holds && self.init.srq.is_none();
        (self.sq.len(), self.rq.len() + usize::from(held))
    }

    /// Q_Key that incoming datagrams must carry.
    pub fn qkey(&self) -> u32 {
        if self.init.qp_type == QpType::Gsi { GSI_QKEY } else { self.attr.qkey }
    }

    /// P_Key that its packets carry and are checked against.
    pub fn pkey(&self) -> u16 {
        self.pkey
    }

    /// Whether a packet of this kind is taken in the present state.
    pub fn takes(&self, kind: Kind) -> bool {
        match (self.state, kind.is_response()) {
            (QpState::Rts | QpState::Sqd, _) => true,
            (QpState::Rtr | QpState::Sqe, is_response) => !is_response,
            _ => false,
        }
    }

    /// The moment its timer wants attention.
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.requester.deadline();
        match &self.limiter {
            None => timer,
            Some(limiter) => limiter.deadline(timer),
        }
    }

    /// Handles a packet that belongs to this QP and whose ICRC is right.
    pub fn handle(&mut self, env: &mut Env, packet: &Packet, frame: &[u8]) -> Result<(), Discard> {
        let Some(info) = packet.info() else {
            return self.refuse_unknown_opcode(env, packet);
        };
        self.look_for_mark(packet);
        if info.kind.is_response() {
            let outcome = self.handle_response(env, packet, info, frame);
            self.handle_kept_answers(env, packet, info);
            return outcome;
        }
        if self.init.qp_type == QpType::XrcSend {
            return Err(Discard::WrongService);
        }
        if self.state == QpState::Rtr && !self.responder.established {
            self.responder.established = true;
            if !self.is_datagram() {
                env.shared.events.push_back(Event::Qp(self.qpn, EventKind::CommEst));
            }
        }
        match self.init.qp_type {
            QpType::Uc => self.handle_unreliable(env, packet, info),
            QpType::Ud | QpType::Gsi => self.handle_datagram(env, packet, frame),
            _ => {
                let (before, asked) = (self.responder.epsn, packet.headers.bth.ack_req);
                let outcome = self.handle_request(env, packet, info, frame);
                self.handle_kept_requests(env, before, asked);
                outcome
            }
        }
    }

    /// Writes its next packet into `frame`; its length, or `None` if there is nothing to send.
    pub fn transmit(&mut self, env: &mut Env, frame: &mut [u8]) -> Option<usize> {
        if let Some(len) = self.transmit_cnp(env, frame) {
            return Some(len);
        }
        if self.is_paused(env.shared) {
            return None;
        }
        if self.requests_first {
            return match self.transmit_request(env, frame) {
                None => self.transmit_reply(env, frame),
                sent => sent,
            };
        }
        match self.transmit_reply(env, frame) {
            None => self.transmit_request(env, frame),
            sent => sent,
        }
    }

    /// Whether its packets are of a class that is paused.
    #[inline]
    pub fn is_paused(&self, shared: &Shared) -> bool {
        let class = |path: &Path| path.attr.traffic_class;
        shared.paused_dscps != 0
            && self
                .path
                .as_ref()
                .is_some_and(|path| shared.paused_dscps >> (class(path) >> 2) & 1 == 1)
    }

    /// In its present burst, requests go first.
    pub fn put_requests_first(&mut self) {
        self.requests_first = true;
    }

    /// Its burst is over: the other half goes first in the next.
    pub fn end_burst(&mut self) {
        self.requests_first = !self.requests_first;
    }

    pub fn post_send(&mut self, shared: &mut Shared, wr: &SendWr) -> Result<(), VerbsError> {
        let len = self.init.check_send(self.state, wr)?;
        self.sq.post(wr, len)?;
        if matches!(self.state, QpState::Sqe | QpState::Err) {
            self.flush_sends(shared);
        }
        Ok(())
    }

    pub fn post_recv(&mut self, shared: &mut Shared, wr: &RecvWr) -> Result<(), VerbsError> {
        self.init.check_recv(self.state, wr)?;
        self.rq.post(wr, usize::from(self.responder.holds))?;
        if self.state == QpState::Err {
            self.flush_receives(shared);
        }
        Ok(())
    }

    /// Completes the oldest send work request, already taken out of the queue.
    fn complete_send(&self, shared: &mut Shared, wqe: &crate::sq::SendWqe, status: WcStatus) {
        let signaled = self.init.sq_sig_all || wqe.flags.has(crate::verbs::SendFlags::SIGNALED);
        if status == WcStatus::Success && !signaled {
            return;
        }
        let byte_len = match wqe.op {
            SendOp::AtomicWrite(..) => 8,
            _ => wqe.len,
        };
        let wc = Wc {
            opcode: wqe.wc_opcode(),
            byte_len: if status == WcStatus::Success { byte_len } else { 0 },
            ..self.completion(wqe.wr_id, status, &Received::NOTHING)
        };
        shared.complete(self.init.send_cq, wc);
    }

    fn completion(&self, wr_id: u64, status: WcStatus, received: &Received) -> Wc {
        Wc {
            wr_id,
            status,
            opcode: received.opcode,
            byte_len: received.byte_len,
            imm_data: received.imm_data,
            invalidated_rkey: received.invalidated_rkey,
            qp_num: self.qpn,
            src_qp: received.src_qp,
            grh: received.grh,
            solicited: received.solicited,
            pkey_index: received.pkey_index,
            sl: received.sl,
        }
    }

    /// Completes the receive work request the message in progress holds.
    fn complete_held(&mut self, shared: &mut Shared, status: WcStatus, received: &Received) {
        let wc = self.completion(self.responder.held.wr_id, status, received);
        self.responder.holds = false;
        shared.counters.rdma_recvs += u64::from(status == WcStatus::Success);
        shared.complete(self.recv_cq(shared), wc);
    }

    /// Where receives complete: for XRC, where the SRQ says.
    fn recv_cq(&self, shared: &Shared) -> Option<Cq> {
        match self.init.qp_type {
            QpType::XrcRecv => {
                let srq = self.responder.srq.and_then(|srq| shared.srqs.get(srq.0));
                srq.and_then(|srq| srq.xrc).map(|xrc| xrc.cq)
            }
            _ => self.init.recv_cq,
        }
    }

    /// Takes a receive work request for a message; `false` if none is posted.
    fn take_recv(&mut self, shared: &mut Shared) -> bool {
        let held = &mut self.responder.held;
        let taken = match self.responder.srq.or(self.init.srq) {
            None => self.rq.take(held),
            Some(srq) => take_shared(shared, srq, held),
        };
        self.responder.holds = taken;
        taken
    }

    /// The protection domain of the peer's accesses: for XRC that of the SRQ addressed.
    fn responder_pd(&self, shared: &Shared) -> Option<Pd> {
        match self.init.qp_type {
            QpType::XrcRecv => {
                let srq = self.responder.srq.and_then(|srq| shared.srqs.get(srq.0));
                srq.map(|srq| srq.pd)
            }
            _ => self.init.pd,
        }
    }

    /// Attributes as configured, with the present state and PSNs.
    pub fn query(&self) -> QpAttr {
        QpAttr {
            qp_state: self.state,
            cur_qp_state: self.state,
            sq_psn: self.requester.next_psn,
            rq_psn: self.responder.epsn,
            ..self.attr
        }
    }

    /// The CQs it completes at now.
    pub fn completes_at(&self, shared: &Shared) -> [Option<Cq>; 2] {
        [self.init.send_cq, self.recv_cq(shared)]
    }

    /// To ERR with nothing more said to the peer: its application wants so, or a CQ it completes at
    /// is lost. A QP that has failed already still says why.
    pub fn fail(&mut self, shared: &mut Shared) {
        if self.state != QpState::Err {
            self.replies.clear();
        }
        self.enter_error(shared);
    }

    /// To ERR: everything is flushed in order, both queues. Replies already owed, a NAK the last of
    /// them, still leave.
    pub fn enter_error(&mut self, shared: &mut Shared) {
        if matches!(self.state, QpState::Err | QpState::Reset) {
            return;
        }
        self.state = QpState::Err;
        self.attr.sq_draining = false;
        self.requester.stop();
        self.forget_kept(shared);
        self.flush_sends(shared);
        if self.responder.holds {
            self.complete_held(shared, WcStatus::WrFlushErr, &Received::NOTHING);
        }
        self.flush_receives(shared);
        if self.init.srq.is_some() {
            shared.events.push_back(Event::Qp(self.qpn, EventKind::QpLastWqeReached));
        }
    }

    fn flush_sends(&mut self, shared: &mut Shared) {
        while let Some(wqe) = self.sq.pop() {
            self.complete_send(shared, &wqe, WcStatus::WrFlushErr);
        }
        self.requester.move_to(self.sq.head);
    }

    fn flush_receives(&mut self, shared: &mut Shared) {
        while let Some(wr_id) = self.rq.flush_one() {
            let wc = self.completion(wr_id, WcStatus::WrFlushErr, &Received::NOTHING);
            shared.complete(self.init.recv_cq, wc);
        }
    }
}

fn take_shared(shared: &mut Shared, srq: Srq, held: &mut HeldRecv) -> bool {
    let Some(queue) = shared.srqs.get_mut(srq.0) else {
        return false;
    };
    let (taken, limit_reached) = queue.take(held);
    if limit_reached {
        shared.events.push_back(Event::Srq(srq, EventKind::SrqLimitReached));
    }
    taken
}
