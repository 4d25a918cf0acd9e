//! The peer's requests on a reliable connection (IBA 9.7.4, 9.9.3): validate in the spec's order,
//! execute, acknowledge. Duplicates are the business of `records`.

use std::collections::VecDeque;

use super::records::{Record, RecordKind, read_reply};
use super::replies::Reply;
use super::{Env, Qp, Received, Shared};
use crate::discard::Discard;
use crate::memory::{AtomicOp, Span};
use crate::mr::RemoteClaim;
use crate::psn::Psn;
use crate::sq;
use crate::srq::HeldRecv;
use crate::verbs::{Access, Event, EventKind, Pd, QpType, Qpn, Srq, WcOpcode, WcStatus};
use crate::wire::{Kind, NakCode, OpcodeInfo, Packet, Position, Syndrome, pad_count};

/// READ requests for this many responses or more cannot be told from old ones.
const PSN_HALF: u32 = 1 << 23;

/// State of the receiving half; PSNs start from `rq_psn`.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// Expected PSN.
    pub epsn: Psn,
    /// Messages completed, modulo 2^24.
    pub msn: u32,
    /// Of the message in progress.
    pub open: Open,
    /// A sequence NAK or an RNR NAK was sent and the expected packet has not come since.
    pub nak_sent: bool,
    /// The receive work request in use, valid while `holds`.
    pub held: HeldRecv,
    pub holds: bool,
    /// XRC: the SRQ of the message in progress.
    pub srq: Option<Srq>,
    /// READs and atomics for replay, oldest first.
    pub records: VecDeque<Record>,
    /// The first request has come.
    pub established: bool,
}

/// A message of which the last packet has not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Open {
    #[default]
    No,
    Send,
    Write(WriteInProgress),
}

/// The rest of an RDMA WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteInProgress {
    pub va: u64,
    pub rkey: u32,
    pub left: u32,
    pub total: u32,
}

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No receive work request: try again later.
    NotReady,
    /// Fatal: the NAK, and how the receive work request in use ends.
    Nak(NakCode, WcStatus),
    /// Fatal without a NAK: an invalidation failed after the data was placed (class J).
    Silent(WcStatus),
}

pub(super) type Checked<T> = Result<T, Refusal>;

pub(super) const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest, WcStatus::RemInvReqErr);
const DENIED: Refusal = Refusal::Nak(NakCode::RemoteAccess, WcStatus::RemAccessErr);
const FAULT: Refusal = Refusal::Nak(NakCode::RemoteOperational, WcStatus::LocAccessErr);

impl Qp {
    /// Starts the receiving half at the configured PSN.
    pub(super) fn start_responder(&mut self) {
        self.responder = Responder { epsn: self.attr.rq_psn, ..Responder::default() };
        self.replies.clear();
    }

    /// Whether reliable requests are for this QP.
    pub(super) fn serves_requests(&self) -> bool {
        matches!(self.init.qp_type, QpType::Rc | QpType::XrcRecv)
    }

    /// Handles a request packet.
    pub(super) fn handle_request(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
        frame: &[u8],
    ) -> Result<(), Discard> {
        let psn = packet.headers.bth.psn;
        match psn.distance(self.responder.epsn) {
            0 => {}
            ahead if ahead > 0 => return self.keep_request(env, packet, info, frame),
            _ => return self.handle_duplicate(env, packet, info),
        }
        match self.accept(env, packet, info) {
            Ok(()) => {
                self.responder.nak_sent = false;
                let answered = matches!(info.kind, Kind::Send | Kind::Write);
                if answered && packet.headers.bth.ack_req {
                    self.acknowledge(psn);
                }
            }
            Err(Refusal::NotReady) => {
                env.shared.counters.send_rnr_err += 1;
                self.responder.nak_sent = true;
                let syndrome = Syndrome::rnr_nak(self.attr.min_rnr_timer);
                self.replies.acknowledge(psn, self.responder.msn, syndrome);
            }
            Err(Refusal::Nak(code, status)) => self.refuse(env, psn, code, status),
            Err(Refusal::Silent(status)) => {
                if self.responder.holds {
                    self.complete_held(env.shared, status, &Received::NOTHING);
                }
                self.enter_error(env.shared);
            }
        }
        Ok(())
    }

    /// A packet ahead of the expected one: one NAK for a gap, none after an RNR NAK.
    pub(super) fn report_gap(&mut self, env: &mut Env) -> Result<(), Discard> {
        if self.responder.nak_sent {
            return Err(Discard::RequestGap);
        }
        env.shared.counters.out_of_seq_request += 1;
        self.responder.nak_sent = true;
        let syndrome = Syndrome::nak(NakCode::PsnSequence);
        self.replies.acknowledge(self.responder.epsn, self.responder.msn, syndrome);
        Ok(())
    }

    /// Fatal NAK for `psn`: the QP fails, the peer and the application are told.
    pub(super) fn refuse(&mut self, env: &mut Env, psn: Psn, code: NakCode, status: WcStatus) {
        env.shared.counters.resp_cqe_error += 1;
        if self.responder.holds {
            self.complete_held(env.shared, status, &Received::NOTHING);
        } else {
            self.raise_responder_event(env.shared, code);
        }
        self.replies.acknowledge(psn, self.responder.msn, Syndrome::nak(code));
        self.enter_error(env.shared);
    }

    /// An error of class C with no receive work request to complete.
    pub(super) fn raise_responder_event(&self, shared: &mut Shared, code: NakCode) {
        let kind = match code {
            NakCode::InvalidRequest => EventKind::QpReqErr,
            NakCode::RemoteAccess => EventKind::QpAccessErr,
            _ => EventKind::QpFatal,
        };
        shared.events.push_back(Event::Qp(self.qpn, kind));
    }

    fn accept(&mut self, env: &mut Env, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        self.forget_ancient_records();
        self.check_sequence(info)?;
        self.check_enabled(packet, info)?;
        self.check_resources(env, packet, info)?;
        self.check_length(packet, info)?;
        match info.kind {
            Kind::Send => self.accept_send(env, packet, info)?,
            Kind::Write => self.accept_write(env, packet, info)?,
            Kind::ReadRequest => return self.accept_read(env, packet),
            Kind::CompareSwap | Kind::FetchAdd => return self.accept_atomic(env, packet, info),
            Kind::AtomicWrite => return self.accept_atomic_write(env, packet),
            Kind::Flush => return self.accept_flush(env, packet),
            _ => return Err(INVALID),
        }
        self.responder.epsn = self.responder.epsn.advance(1);
        Ok(())
    }

    /// Middle and Last continue what First began; everything else begins anew.
    pub(super) fn check_sequence(&self, info: &OpcodeInfo) -> Checked<()> {
        let continues = !info.position.begins();
        let fits = match self.responder.open {
            Open::No => !continues,
            Open::Send => continues && info.kind == Kind::Send,
            Open::Write(_) => continues && info.kind == Kind::Write,
        };
        if fits { Ok(()) } else { Err(INVALID) }
    }

    /// The QP allows this class of operation.
    pub(super) fn check_enabled(&self, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        let needed = match info.kind {
            Kind::Write if info.position.begins() => Access::REMOTE_WRITE,
            Kind::ReadRequest => Access::REMOTE_READ,
            Kind::CompareSwap | Kind::FetchAdd => Access::REMOTE_ATOMIC,
            Kind::AtomicWrite => Access::REMOTE_WRITE,
            Kind::Flush => placement(packet).ok_or(INVALID)?,
            _ => Access::NONE,
        };
        if self.attr.qp_access_flags.has(needed) { Ok(()) } else { Err(INVALID) }
    }

    /// A receive work request where one is needed; room to record a READ or atomic.
    fn check_resources(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
    ) -> Checked<()> {
        self.choose_srq(env, packet, info)?;
        if takes_recv(info) {
            return if self.take_recv(env.shared) { Ok(()) } else { Err(Refusal::NotReady) };
        }
        match info.kind {
            Kind::Send | Kind::Write => Ok(()),
            _ if self.attr.max_dest_rd_atomic == 0 => Err(INVALID),
            _ => self.make_room(),
        }
    }

    /// XRC: every packet of a message names the same SRQ, in the QP's domain.
    fn choose_srq(&mut self, env: &Env, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        let Some(xrceth) = packet.headers.ext.xrceth else {
            return Ok(());
        };
        let srq = Srq(xrceth.srqn);
        if !info.position.begins() {
            return if self.responder.srq == Some(srq) { Ok(()) } else { Err(INVALID) };
        }
        let queue = env.shared.srqs.get(srq.0).ok_or(INVALID)?;
        if queue.xrc.map(|xrc| xrc.xrcd) != self.init.xrcd {
            return Err(INVALID);
        }
        self.responder.srq = Some(srq);
        Ok(())
    }

    /// Payload against position, path MTU and DMALen; pad against payload.
    pub(super) fn check_length(&self, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        let (len, mtu) = (packet.payload.len(), self.attr.path_mtu.bytes());
        let by_position = match (info.kind, info.position) {
            (Kind::Send | Kind::Write, Position::First | Position::Middle) => len == mtu,
            (Kind::Send | Kind::Write, Position::Last) => (1..=mtu).contains(&len),
            (Kind::Send | Kind::Write, Position::Only) => len <= mtu,
            (Kind::AtomicWrite, _) => len == 8,
            _ => len == 0,
        };
        let total = packet.headers.ext.reth.map(|reth| reth.dma_len as usize);
        let by_total = match (info.kind, info.position, self.responder.open) {
            (Kind::Write, Position::Only, _) => total == Some(len),
            (Kind::Write, Position::First, _) => total.is_some_and(|total| total > len),
            (Kind::Write, Position::Middle, Open::Write(write)) => (write.left as usize) > len,
            (Kind::Write, Position::Last, Open::Write(write)) => write.left as usize == len,
            (Kind::AtomicWrite, ..) => total == Some(8),
            _ => true,
        };
        let ranged = packet.headers.ext.feth.is_none_or(|feth| feth.level == 0);
        let fits = !ranged || total.is_none_or(|total| total as u64 <= crate::MAX_MESSAGE);
        let padded = packet.headers.bth.pad_count == pad_count(len);
        if by_position && by_total && fits && padded { Ok(()) } else { Err(INVALID) }
    }

    fn accept_send(&mut self, env: &mut Env, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        let len = packet.payload.len() as u64;
        let held = &self.responder.held;
        if held.filled + len > held.len {
            return Err(Refusal::Nak(NakCode::InvalidRequest, WcStatus::LocLenErr));
        }
        let fault = |status| Refusal::Nak(NakCode::RemoteOperational, status);
        let pd = self.receive_pd(env.shared).ok_or(fault(WcStatus::LocProtErr))?;
        let regions = &env.shared.regions;
        sq::scatter(held.sges.iter(), held.filled, packet.payload, pd, regions, env.memory)
            .map_err(fault)?;
        self.responder.held.filled += len;
        self.responder.open = Open::Send;
        if info.position.ends() {
            self.end_send(env, packet)?;
        }
        Ok(())
    }

    fn end_send(&mut self, env: &mut Env, packet: &Packet) -> Checked<()> {
        let ext = &packet.headers.ext;
        if let Some(ieth) = ext.ieth {
            let done = self.init.pd.map(|pd| (pd, &mut env.shared.regions));
            let done =
                done.and_then(|(pd, regions)| regions.invalidate(pd, self.qpn, ieth.rkey).ok());
            done.ok_or(Refusal::Silent(WcStatus::RemInvReqErr))?;
        }
        let received = Received {
            byte_len: self.responder.held.filled as u32,
            imm_data: ext.imm_dt.map(|imm| imm.0),
            invalidated_rkey: ext.ieth.map(|ieth| ieth.rkey),
            src_qp: self.xrc_source(),
            solicited: packet.headers.bth.solicited,
            ..Received::NOTHING
        };
        self.end_message();
        self.complete_held(env.shared, WcStatus::Success, &received);
        Ok(())
    }

    fn accept_write(&mut self, env: &mut Env, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        let write = self.place_write(env, packet, info)?;
        if info.position.ends() {
            self.end_message();
            if let Some(imm) = packet.headers.ext.imm_dt {
                let received = Received {
                    opcode: WcOpcode::RecvRdmaWithImm,
                    byte_len: write.total,
                    imm_data: Some(imm.0),
                    src_qp: self.xrc_source(),
                    solicited: packet.headers.bth.solicited,
                    ..Received::NOTHING
                };
                self.complete_held(env.shared, WcStatus::Success, &received);
            }
        }
        Ok(())
    }

    /// The WRITE a packet begins or continues.
    fn write_in_progress(&self, packet: &Packet) -> Option<WriteInProgress> {
        match (packet.headers.ext.reth, self.responder.open) {
            (Some(reth), _) => Some(WriteInProgress {
                va: reth.va,
                rkey: reth.rkey,
                left: reth.dma_len,
                total: reth.dma_len,
            }),
            (None, Open::Write(write)) => Some(write),
            _ => None,
        }
    }

    /// Places the payload of one packet: the key is checked for the whole message before its first
    /// byte, and anew for each packet, since the region may have gone meanwhile.
    pub(super) fn place_write(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
    ) -> Checked<WriteInProgress> {
        let mut write = self.write_in_progress(packet).ok_or(INVALID)?;
        let payload = packet.payload;
        if !payload.is_empty() {
            let pd = self.responder_pd(env.shared).ok_or(DENIED)?;
            let regions = &env.shared.regions;
            let claim = |len| self.claim(pd, write.rkey, write.va, len, Access::REMOTE_WRITE);
            if info.position == Position::First {
                regions.remote(&claim(write.left)).map_err(|_| DENIED)?;
            }
            let len = payload.len() as u32;
            let span = regions.remote(&claim(len)).map_err(|_| DENIED)?;
            env.memory.write(span, payload).map_err(|_| FAULT)?;
            write.va = write.va.wrapping_add(u64::from(len));
            write.left -= len;
        }
        self.responder.open = Open::Write(write);
        Ok(write)
    }

    fn accept_read(&mut self, env: &mut Env, packet: &Packet) -> Checked<()> {
        let reth = packet.headers.ext.reth.ok_or(INVALID)?;
        let packets = reth.dma_len.div_ceil(self.attr.path_mtu.bytes() as u32).max(1);
        if packets >= PSN_HALF {
            return Err(INVALID);
        }
        let pd = self.responder_pd(env.shared);
        if reth.dma_len > 0 {
            let pd = pd.ok_or(DENIED)?;
            let claim = self.claim(pd, reth.rkey, reth.va, reth.dma_len, Access::REMOTE_READ);
            env.shared.regions.remote(&claim).map_err(|_| DENIED)?;
        }
        let record = self.record(packets, RecordKind::Read(reth, pd));
        self.replies.push(Reply::Read(read_reply(&record, pd, record.psn, &reth)));
        Ok(())
    }

    fn accept_atomic(&mut self, env: &mut Env, packet: &Packet, info: &OpcodeInfo) -> Checked<()> {
        let eth = packet.headers.ext.atomic_eth.ok_or(INVALID)?;
        let op = match info.kind {
            Kind::CompareSwap => {
                AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_or_add }
            }
            _ => AtomicOp::FetchAdd(eth.swap_or_add),
        };
        let span = self.word(env.shared, eth.rkey, eth.va, Access::REMOTE_ATOMIC)?;
        let original = env.memory.atomic(span, op).map_err(|_| FAULT)?;
        let record = self.record(1, RecordKind::Atomic { original });
        let (psn, msn) = (record.psn, record.msn);
        self.replies.push(Reply::Atomic { psn, msn, original, again: false });
        Ok(())
    }

    fn accept_atomic_write(&mut self, env: &mut Env, packet: &Packet) -> Checked<()> {
        let reth = packet.headers.ext.reth.ok_or(INVALID)?;
        let bytes = packet.payload.try_into().map_err(|_| INVALID)?;
        let value = u64::from_ne_bytes(bytes);
        let span = self.word(env.shared, reth.rkey, reth.va, Access::REMOTE_WRITE)?;
        env.memory.atomic(span, AtomicOp::Store(value)).map_err(|_| FAULT)?;
        self.record_placed();
        Ok(())
    }

    /// The aligned word an atomic names; both the address on the wire and the memory behind it
    /// must be aligned.
    fn word(&self, shared: &Shared, rkey: u32, va: u64, access: Access) -> Checked<Span> {
        if !va.is_multiple_of(8) {
            return Err(INVALID);
        }
        let pd = self.responder_pd(shared).ok_or(DENIED)?;
        let span = shared.regions.remote(&self.claim(pd, rkey, va, 8, access));
        let span = span.map_err(|_| DENIED)?;
        if span.addr().is_multiple_of(8) { Ok(span) } else { Err(INVALID) }
    }

    fn accept_flush(&mut self, env: &mut Env, packet: &Packet) -> Checked<()> {
        let ext = &packet.headers.ext;
        let (reth, feth) = ext.reth.zip(ext.feth).ok_or(INVALID)?;
        let access = placement(packet).ok_or(INVALID)?;
        let pd = self.responder_pd(env.shared).ok_or(DENIED)?;
        let claim = self.claim(pd, reth.rkey, reth.va, reth.dma_len, access);
        let span = match feth.level {
            0 if reth.dma_len == 0 => None,
            0 => Some(env.shared.regions.remote(&claim).map_err(|_| DENIED)?),
            1 => Some(env.shared.regions.remote_whole(&claim).map_err(|_| DENIED)?),
            _ => return Err(INVALID),
        };
        if let Some(span) = span {
            let persistent = access.has(Access::FLUSH_PERSISTENT);
            env.memory.flush(span, persistent).map_err(|_| FAULT)?;
        }
        self.record_placed();
        Ok(())
    }

    pub(super) fn end_message(&mut self) {
        self.responder.open = Open::No;
        self.responder.msn = (self.responder.msn + 1) & 0xff_ffff;
    }

    /// The protection domain of the receive buffers: the SRQ's where there is one.
    pub(super) fn receive_pd(&self, shared: &Shared) -> Option<Pd> {
        match self.responder.srq.or(self.init.srq) {
            Some(srq) => shared.srqs.get(srq.0).map(|srq| srq.pd),
            None => self.init.pd,
        }
    }

    fn xrc_source(&self) -> Qpn {
        match self.init.qp_type {
            QpType::XrcRecv => self.attr.dest_qp_num,
            _ => Qpn(0),
        }
    }

    pub(super) fn claim(
        &self,
        pd: Pd,
        rkey: u32,
        va: u64,
        len: u32,
        access: Access,
    ) -> RemoteClaim {
        RemoteClaim { pd, qpn: self.qpn, rkey, va, len: u64::from(len), access }
    }
}

/// Whether a packet takes a receive work request.
pub(super) fn takes_recv(info: &OpcodeInfo) -> bool {
    match info.kind {
        Kind::Send => info.position.begins(),
        Kind::Write => info.headers.has(crate::wire::HeaderSet::IMM_DT),
        _ => false,
    }
}

/// The rights a FLUSH asks for; `None` if it names no placement, or an unknown one.
fn placement(packet: &Packet) -> Option<Access> {
    match packet.headers.ext.feth?.placement {
        1 => Some(Access::FLUSH_GLOBAL),
        2 => Some(Access::FLUSH_PERSISTENT),
        3 => Some(Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT),
        _ => None,
    }
}
