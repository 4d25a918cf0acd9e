//! Work requests to request packets (IBA 9.7.2 to 9.7.4): which packet is next, whether it may
//! leave, and how it is built. Sending again moves the cursor back; PSN and content of a packet
//! never change.

use std::ops::Range;

use super::{Env, Qp, Shared};
use crate::congestion::Half;
use crate::icrc;
use crate::memory::Memory;
use crate::mr::Regions;
use crate::outgoing::Outgoing;
use crate::psn::Psn;
use crate::sq::{Progress, SendWqe};
use crate::time::{Instant, ack_timeout_ns};
use crate::verbs::{
    Access, Event, EventKind, FlushLevel, QpState, Remote, SendFlags, SendOp, WcStatus,
};
use crate::wire::{
    AtomicEth, Bth, Extensions, Feth, Ieth, ImmDt, Kind, Opcode, Position, Reth, Suffix, Transport,
    XrcEth, seal_summed,
};

/// Responses one READ request may ask for: fewer than half of the PSNs, so that old and new stay
/// apart (IBA 9.7.1). A longer READ is asked for in parts.
pub(super) const MAX_READ_PSNS: u32 = 1 << 22;

/// State of the sending half; PSNs start from `sq_psn`.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// Next PSN never sent before.
    pub next_psn: Psn,
    /// Oldest PSN not acknowledged.
    pub una_psn: Psn,
    /// Work request of the next packet, by absolute index.
    pub wqe: u64,
    /// The packet of it.
    pub packet: u32,
    /// READs and atomics begun and not answered.
    pub rd_atomic_out: u32,
    pub retry_left: u8,
    pub rnr_left: u8,
    /// Packets sent since one asked for an ACK.
    since_ack_req: u32,
    pub ack_deadline: Option<Instant>,
    pub rnr_until: Option<Instant>,
    /// Where go-back-N began again: more evidence of the same loss starts nothing.
    pub recovering: Option<Psn>,
}

impl Requester {
    pub fn deadline(&self) -> Option<Instant> {
        self.rnr_until.or(self.ack_deadline)
    }

    /// PSNs sent and not acknowledged.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.next_psn.since(self.una_psn)
    }

    /// The next packet asks for an ACK.
    pub fn ask_for_ack(&mut self) {
        self.since_ack_req = u32::MAX - 1;
    }

    pub fn stop(&mut self) {
        self.ack_deadline = None;
        self.rnr_until = None;
        self.rd_atomic_out = 0;
    }

    /// Moves the cursor to the first packet of work request `index`.
    pub fn move_to(&mut self, index: u64) {
        self.wqe = index;
        self.packet = 0;
    }
}

/// What became of the attempt to begin a work request.
enum Begin {
    Ready,
    Stalled,
    /// It ran here; the next one is up.
    Ran,
}

impl Qp {
    /// Starts the sending half at the configured PSN with full retry counts.
    pub(super) fn start_requester(&mut self) {
        self.requester = Requester {
            next_psn: self.attr.sq_psn,
            una_psn: self.attr.sq_psn,
            wqe: self.sq.head,
            ..Requester::default()
        };
        self.start_repair();
        self.reload_retries();
    }

    /// All retries are there again: the peer has moved on, or the counts have changed.
    pub(super) fn reload_retries(&mut self) {
        self.requester.retry_left = self.attr.retry_cnt;
        self.requester.rnr_left = self.attr.rnr_retry;
    }

    /// Whether a packet could leave now; cheap, and sometimes too hopeful.
    pub fn wants_to_transmit(&self) -> bool {
        self.owes_cnp() || self.may_reply() || self.wants_to_request()
    }

    /// As [`wants_to_transmit`](Self::wants_to_transmit), of requests alone.
    pub fn wants_to_request(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
            && self.requester.rnr_until.is_none()
            && !self.waits(Half::Request)
            && (self.may_send_next() || self.wants_to_repair())
    }

    fn may_send_next(&self) -> bool {
        match self.sq.get(self.requester.wqe) {
            None => false,
            Some(wqe) => match wqe.progress {
                Progress::Waiting => self.may_begin(wqe),
                Progress::Begun | Progress::Done => true,
                Progress::Failed(_) => false,
            },
        }
    }

    fn may_begin(&self, wqe: &SendWqe) -> bool {
        let fenced = wqe.flags.has(SendFlags::FENCE);
        // A fenced invalidation waits for everything, other work for READs and atomics only.
        let blocked = fenced && self.requester.rd_atomic_out > 0
            || fenced
                && matches!(wqe.op, SendOp::LocalInv(_))
                && self.sq.head != self.requester.wqe
            || wqe.op.awaits_response()
                && self.attr.max_rd_atomic > 0
                && self.requester.rd_atomic_out >= u32::from(self.attr.max_rd_atomic);
        self.state == QpState::Rts && !blocked
    }

    /// Writes the next request packet into `frame`.
    pub fn transmit_request(&mut self, env: &mut Env, frame: &mut [u8]) -> Option<usize> {
        match self.transport() {
            None => return self.transmit_raw(env, frame),
            Some(Transport::Ud) => return self.transmit_datagram(env, frame),
            Some(_) => {}
        }
        loop {
            let sends = matches!(self.state, QpState::Rts | QpState::Sqd);
            if !sends || self.requester.rnr_until.is_some() {
                return None;
            }
            if self.wants_to_repair() && self.must_wait(env.now, Half::Request) {
                return None;
            }
            if let Some(len) = self.transmit_repair(env, frame) {
                return Some(len);
            }
            let index = self.requester.wqe;
            let wqe = self.sq.get(index)?;
            match wqe.progress {
                Progress::Begun => {}
                Progress::Failed(_) => return None,
                Progress::Done => {
                    self.requester.move_to(index + 1);
                    continue;
                }
                Progress::Waiting => match self.begin(env, index) {
                    Begin::Ready => {}
                    Begin::Stalled => return None,
                    Begin::Ran => continue,
                },
            }
            if self.window_is_closed(env, index) || self.earlier_part_is_out(index) {
                return None;
            }
            if self.must_wait(env.now, Half::Request) {
                return None;
            }
            match self.build(env, frame, index, u32::MAX) {
                Ok(len) => return Some(len),
                Err(status) => self.fail_in_order(env, index, status),
            }
        }
    }

    /// A packet never sent before needs room in the window; the first outstanding one always goes.
    fn window_is_closed(&self, env: &Env, index: u64) -> bool {
        if !self.is_reliable() || !self.window_is_full(env) {
            return false;
        }
        let wqe = self.sq.get(index);
        wqe.is_some_and(|wqe| self.psn_of(wqe) == self.requester.next_psn)
    }

    /// A window that congestion has narrowed lets one more packet through if nobody has asked for
    /// an ACK of the last ones: this one does.
    fn window_is_full(&self, env: &Env) -> bool {
        let outstanding = self.requester.outstanding();
        let is_answered = self.requester.since_ack_req == 0;
        outstanding >= env.shared.limits.window || outstanding >= self.window(env) && is_answered
    }

    /// Packets that may be unacknowledged.
    fn window(&self, env: &Env) -> u32 {
        let window = env.shared.limits.window;
        self.congestion_window().map_or(window, |narrowed| narrowed.min(window))
    }

    /// One READ request at a time for each work request, or two would count as outstanding.
    fn earlier_part_is_out(&self, index: u64) -> bool {
        let part_done = |wqe: &SendWqe| wqe.responded == self.requester.packet;
        self.sq.get(index).is_some_and(|wqe| matches!(wqe.op, SendOp::Read(_)) && !part_done(wqe))
    }

    fn psn_of(&self, wqe: &SendWqe) -> Psn {
        wqe.first_psn.advance(self.requester.packet)
    }

    fn begin(&mut self, env: &mut Env, index: u64) -> Begin {
        let Some(wqe) = self.sq.get(index) else { return Begin::Stalled };
        if !self.may_begin(wqe) {
            return Begin::Stalled;
        }
        if wqe.op.is_local() {
            self.run_local(env, index);
            return Begin::Ran;
        }
        if wqe.op.awaits_response() && self.attr.max_rd_atomic == 0 {
            self.fail_in_order(env, index, WcStatus::LocQpOpErr);
            return Begin::Ran;
        }
        if self.is_reliable() && self.window_is_full(env) {
            return Begin::Stalled;
        }
        let packets = match wqe.op {
            SendOp::Flush { .. } | SendOp::AtomicWrite(..) => 1,
            _ => wqe.len.div_ceil(self.attr.path_mtu.bytes() as u32).max(1),
        };
        let responds = wqe.op.awaits_response();
        let is_message = wqe.op.sends_data();
        let first_psn = self.requester.next_psn;
        let Some(wqe) = self.sq.get_mut(index) else { return Begin::Stalled };
        wqe.first_psn = first_psn;
        wqe.psn_count = packets;
        wqe.progress = Progress::Begun;
        self.requester.rd_atomic_out += u32::from(responds);
        env.shared.counters.rdma_sends += u64::from(is_message);
        Begin::Ready
    }

    /// Runs a bind or an invalidation, which later work requests must see.
    fn run_local(&mut self, env: &mut Env, index: u64) {
        let Some(wqe) = self.sq.get_mut(index) else { return };
        let regions = &mut env.shared.regions;
        let outcome = match (wqe.op, self.init.pd) {
            (SendOp::BindMw { mw, rkey, bind }, Some(pd)) => regions
                .bind(pd, self.qpn, mw, rkey as u8, &bind)
                .map(drop)
                .map_err(|_| WcStatus::MwBindErr),
            (SendOp::LocalInv(rkey), Some(pd)) => {
                regions.invalidate(pd, self.qpn, rkey).map_err(|_| WcStatus::LocQpOpErr)
            }
            _ => Err(WcStatus::LocQpOpErr),
        };
        match outcome {
            Ok(()) => {
                wqe.progress = Progress::Done;
                self.requester.move_to(index + 1);
                self.retire(env);
            }
            Err(status) => self.fail_in_order(env, index, status),
        }
    }

    /// The work request fails here; it completes so once all before it have completed.
    pub(super) fn fail_in_order(&mut self, env: &mut Env, index: u64, status: WcStatus) {
        if let Some(wqe) = self.sq.get_mut(index) {
            wqe.progress = Progress::Failed(status);
        }
        self.retire(env);
    }

    /// Builds the packet under the cursor and moves on. A READ asks for responses before `until`.
    pub(super) fn build(
        &mut self,
        env: &mut Env,
        frame: &mut [u8],
        index: u64,
        until: u32,
    ) -> Result<usize, WcStatus> {
        let wqe = self.sq.get(index).ok_or(WcStatus::GeneralErr)?;
        let mtu = self.attr.path_mtu.bytes() as u32;
        let plan = Plan::new(wqe, self.requester.packet, until, mtu);
        let psn = self.psn_of(wqe);
        let ack_req = self.is_reliable() && self.asks_for_ack(env, &plan, psn);
        let transport = self.transport().ok_or(WcStatus::LocQpOpErr)?;
        let opcode = Opcode::encode(transport, plan.kind, plan.position, plan.suffix)
            .ok_or(WcStatus::LocQpOpErr)?;
        let solicited =
            plan.ends_message && plan.may_solicit && wqe.flags.has(SendFlags::SOLICITED);
        let ext = Extensions {
            xrceth: (transport == Transport::Xrc).then_some(XrcEth { reserved: 0, srqn: wqe.srqn }),
            ..plan.ext
        };
        let payload_len = plan.payload_len as usize;
        let reserved7 = self.recovery.request_mark();
        let bth = Bth { solicited, ack_req, reserved7, ..self.bth(opcode, psn, payload_len) };
        let path = self.path.as_ref().ok_or(WcStatus::LocQpOpErr)?;
        let layout = path.emit(frame, &bth, &ext, payload_len, env.shared.next_ident());
        let mut out = Outgoing::begin(frame, &layout, payload_len);
        let (regions, memory) = (&env.shared.regions, &*env.memory);
        self.fill(index, &plan, &mut out, regions, memory)?;
        let sum = out.sum();
        let len = seal_summed(frame, &layout, payload_len, sum);
        if plan.kind == Kind::Flush && path.rxe_flush {
            let icrc = icrc::rxe_flush(frame, &layout);
            frame[layout.icrc..len].copy_from_slice(&icrc.to_le_bytes());
        }
        let asks = ack_req || plan.ends_message;
        let carries = matches!(plan.kind, Kind::Send | Kind::Write);
        self.note_request(env.now, &mut frame[..len], psn, asks, carries);
        self.sent(env, &plan, index, &bth);
        Ok(len)
    }

    fn fill(
        &self,
        index: u64,
        plan: &Plan,
        out: &mut Outgoing,
        regions: &Regions,
        memory: &dyn Memory,
    ) -> Result<(), WcStatus> {
        if let Some(value) = plan.word {
            // Data, not a number: it stands on the wire as in memory.
            out.put(&value.to_ne_bytes());
            return Ok(());
        }
        if out.len() == 0 {
            return Ok(());
        }
        let pd = self.init.pd.ok_or(WcStatus::LocProtErr)?;
        self.sq.gather(index, plan.offset, out, pd, regions, memory)
    }

    fn asks_for_ack(&self, env: &Env, plan: &Plan, psn: Psn) -> bool {
        let limits = &env.shared.limits;
        plan.ends_message
            || self.requester.since_ack_req + 1 >= limits.ack_every
            || self.requester.outstanding() + 1 >= self.window(env)
            || self.wants_probe(psn)
    }

    /// Accounts for the packet just built and moves the cursor past it.
    fn sent(&mut self, env: &mut Env, plan: &Plan, index: u64, bth: &Bth) {
        let reliable = self.is_reliable();
        let requester = &mut self.requester;
        env.shared.counters.sent_pkts += 1;
        self.counters.sent_pkts += 1;
        requester.packet += plan.psns;
        if bth.psn == requester.next_psn {
            requester.next_psn = bth.psn.advance(plan.psns);
        } else {
            env.shared.counters.retransmitted_pkts += 1;
            self.counters.retransmitted_pkts += 1;
        }
        if plan.last {
            requester.move_to(index + 1);
        }
        if reliable {
            requester.since_ack_req = if bth.ack_req { 0 } else { requester.since_ack_req + 1 };
            if requester.ack_deadline.is_none() {
                self.restart_ack_timer(env.now);
            }
        } else {
            requester.una_psn = requester.next_psn;
            if plan.last {
                self.finish(env, index);
            }
        }
    }

    /// The last packet of an unacknowledged service's message has left.
    fn finish(&mut self, env: &mut Env, index: u64) {
        if let Some(wqe) = self.sq.get_mut(index) {
            wqe.progress = Progress::Done;
        }
        self.retire(env);
    }

    pub(super) fn restart_ack_timer(&mut self, now: Instant) {
        let outstanding = self.requester.outstanding() > 0;
        let timeout = ack_timeout_ns(self.attr.timeout);
        self.requester.ack_deadline = timeout.filter(|_| outstanding).map(|ns| now + ns);
    }

    /// Resumes transmission at `psn`, which is outstanding.
    pub(super) fn go_back(&mut self, env: &mut Env, psn: Psn) {
        let owner = self
            .sq
            .iter_begun()
            .map(|(index, wqe)| (index, wqe.offset_of(psn), wqe.psn_count))
            .find(|&(_, offset, count)| offset < count);
        let Some((index, packet, _)) = owner else { return };
        env.shared.counters.completer_retry_err += 1;
        self.forget_holes();
        self.requester.wqe = index;
        self.requester.packet = packet;
        self.requester.recovering = Some(psn);
        self.requester.since_ack_req = 0;
        let mut at = index;
        while let Some(wqe) = self.sq.get_mut(at).filter(|wqe| wqe.progress != Progress::Waiting) {
            wqe.retried = true;
            at += 1;
        }
        self.restart_ack_timer(env.now);
    }

    /// Whether SQD has nothing begun left, and the event that says so.
    pub(super) fn check_drained(&mut self, shared: &mut Shared) {
        let begun = self.sq.front().is_some_and(|wqe| wqe.progress != Progress::Waiting);
        if self.state == QpState::Sqd && self.attr.sq_draining && !begun {
            self.attr.sq_draining = false;
            if self.attr.en_sqd_async_notify {
                shared.events.push_back(Event::Qp(self.qpn, EventKind::SqDrained));
            }
        }
    }
}

/// One packet of a work request.
struct Plan {
    kind: Kind,
    position: Position,
    suffix: Suffix,
    ext: Extensions,
    /// Offset of the payload in the message.
    offset: u32,
    payload_len: u32,
    /// The 8 bytes of an ATOMIC WRITE.
    word: Option<u64>,
    /// PSNs it takes.
    psns: u32,
    /// The last packet of the work request.
    last: bool,
    /// An answer is due for it: it ends a message or asks for a response.
    ends_message: bool,
    /// It takes a receive work request, whose completion may be a solicited one.
    may_solicit: bool,
}

impl Plan {
    fn new(wqe: &SendWqe, packet: u32, until: u32, mtu: u32) -> Plan {
        let mut plan = Plan {
            kind: Kind::Send,
            position: Position::Only,
            suffix: Suffix::None,
            ext: Extensions::default(),
            offset: 0,
            payload_len: 0,
            word: None,
            psns: 1,
            last: true,
            ends_message: true,
            may_solicit: false,
        };
        match wqe.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => {
                plan.segment(wqe, packet, mtu, Kind::Send);
            }
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) => {
                plan.segment(wqe, packet, mtu, Kind::Write);
                if packet == 0 {
                    plan.ext.reth = Some(reth(remote, wqe.len));
                }
            }
            SendOp::Read(remote) => plan.read(wqe, packet..until, mtu, remote),
            SendOp::CompareSwap { remote, compare, swap } => {
                plan.atomic(Kind::CompareSwap, remote, swap, compare);
            }
            SendOp::FetchAdd { remote, add } => plan.atomic(Kind::FetchAdd, remote, add, 0),
            SendOp::AtomicWrite(remote, value) => {
                plan.kind = Kind::AtomicWrite;
                plan.ext.reth = Some(reth(remote, 8));
                plan.word = Some(value);
                plan.payload_len = 8;
            }
            SendOp::Flush { remote, length, level, placement } => {
                plan.kind = Kind::Flush;
                plan.ext.reth = Some(reth(remote, length));
                plan.ext.feth = Some(feth(level, placement));
            }
            SendOp::BindMw { .. } | SendOp::LocalInv(_) => {}
        }
        plan
    }

    /// Packet `packet` of a SEND or RDMA WRITE.
    fn segment(&mut self, wqe: &SendWqe, packet: u32, mtu: u32, kind: Kind) {
        self.kind = kind;
        self.last = packet + 1 == wqe.psn_count;
        self.ends_message = self.last;
        self.may_solicit = !matches!(wqe.op, SendOp::Write(_));
        self.position = match (packet, self.last) {
            (0, true) => Position::Only,
            (0, false) => Position::First,
            (_, false) => Position::Middle,
            (_, true) => Position::Last,
        };
        self.offset = packet * mtu;
        self.payload_len = (wqe.len - self.offset).min(mtu);
        match wqe.op {
            SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) if self.last => {
                self.suffix = Suffix::Immediate;
                self.ext.imm_dt = Some(ImmDt(imm));
            }
            SendOp::SendInv(rkey) if self.last => {
                self.suffix = Suffix::Invalidate;
                self.ext.ieth = Some(Ieth { rkey });
            }
            _ => {}
        }
    }

    /// A READ request for these responses, as far as there are.
    fn read(&mut self, wqe: &SendWqe, packets: Range<u32>, mtu: u32, remote: Remote) {
        self.kind = Kind::ReadRequest;
        let packet = packets.start;
        let part_end = (packet / MAX_READ_PSNS + 1).saturating_mul(MAX_READ_PSNS);
        let end = part_end.min(wqe.psn_count).min(packets.end);
        let start = u64::from(packet) * u64::from(mtu);
        let stop = (u64::from(end) * u64::from(mtu)).min(u64::from(wqe.len));
        let addr = remote.addr.wrapping_add(start);
        self.ext.reth = Some(reth(Remote { addr, ..remote }, (stop - start) as u32));
        self.psns = end - packet;
        self.last = end == wqe.psn_count;
    }

    fn atomic(&mut self, kind: Kind, remote: Remote, swap_or_add: u64, compare: u64) {
        self.kind = kind;
        self.ext.atomic_eth =
            Some(AtomicEth { va: remote.addr, rkey: remote.rkey, swap_or_add, compare });
    }
}

fn reth(remote: Remote, dma_len: u32) -> Reth {
    Reth { va: remote.addr, rkey: remote.rkey, dma_len }
}

fn feth(level: FlushLevel, placement: Access) -> Feth {
    let global = u8::from(placement.has(Access::FLUSH_GLOBAL));
    let persistent = u8::from(placement.has(Access::FLUSH_PERSISTENT)) << 1;
    Feth {
        reserved: 0,
        level: match level {
            FlushLevel::Range => 0,
            FlushLevel::Region => 1,
        },
        placement: global | persistent,
    }
}
