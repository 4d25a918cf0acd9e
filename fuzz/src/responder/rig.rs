//! The device under test with its objects, and a second one that only lends its QPNs: what peers
//! say, the input makes up.

use ferroce::memory::Arena;
use ferroce::world::{ConnectOptions, Endpoint, World, WorldConfig};
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Ah, AhAttr, AttrMask, Cq, Event, EventKind, Mtu, Mw, Pd, QpAttr, QpCap, QpInit, QpState,
    QpType, Qpn, Srq, Wc, Xrcd,
};
use ferroce_stack::wire::{
    Headers, Kind, Mac, NakCode, Packet, PayloadRule, PsnRange, Syndrome, Transport,
};
use ferroce_stack::{Config, Device, LossRecovery, SrqInit};

use super::plots::{self, Plot};
use crate::choices::Choices;
use crate::input::Input;
use crate::ledger::{Ledger, Queue};

/// The node under test, and the one whose name the input uses.
pub const NODE: usize = 0;
const PEER: usize = 1;

/// The multicast group some QPs join.
pub const GROUP: Gid = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
/// The same in IPv4.
pub const GROUP_V4: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 0, 0, 9]);
pub const QKEY: u32 = 0x1111_1111;
/// Path MTU of the connected QPs.
pub const MTU: Mtu = Mtu::Mtu256;
const ACTIVE_MTU: Mtu = Mtu::Mtu1024;
/// Completions of the CQ that overruns.
const SMALL_CQ: usize = 3;
const LARGE_CQ: usize = 1024;
/// Work requests of a QP's queues.
const CAP: QpCap =
    QpCap { max_send_wr: 8, max_recv_wr: 4, max_send_sge: 3, max_recv_sge: 3, max_inline_data: 64 };
/// Frames recent enough to be sent again.
const RECENT_MAX: usize = 8;
/// Frames a device has to send at most without being told anything new: all work requests and
/// answers of all QPs.
const FRAMES_MAX: usize = 4096;
/// Timers that run out one after the other until every QP has given up.
const TIMEOUTS_MAX: usize = 4096;
/// Events that one call may cause.
const EVENTS_MAX: usize = 64;

/// What a QP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    pub qp_type: QpType,
    /// It receives from the common SRQ.
    pub shared: bool,
    /// Its CQ is too small.
    pub small_cq: bool,
}

const fn role(qp_type: QpType, shared: bool) -> Role {
    Role { qp_type, shared, small_cq: false }
}

const ROLES: [Role; 10] = [
    role(QpType::Rc, false),
    role(QpType::Rc, true),
    Role { qp_type: QpType::Rc, shared: false, small_cq: true },
    role(QpType::Uc, false),
    role(QpType::Uc, true),
    role(QpType::Ud, false),
    role(QpType::Ud, true),
    role(QpType::Gsi, false),
    role(QpType::XrcRecv, false),
    role(QpType::XrcSend, false),
];

/// A QP under test.
#[derive(Debug)]
pub struct Slot {
    pub role: Role,
    pub own: Endpoint,
    /// Whose packets it takes; a datagram QP has nobody in particular.
    pub peer: Option<Endpoint>,
    /// Bytes left of the RDMA WRITE the input is sending to it.
    pub left: u32,
    /// Its CQ has overrun: nothing completes any more.
    pub overrun: bool,
}

/// Everything.
pub struct Rig {
    pub world: World,
    pub ledger: Ledger,
    pub slots: Vec<Slot>,
    pub plots: Vec<Plot>,
    pub windows: Vec<(Mw, u32)>,
    pub pd: Pd,
    pub foreign: Pd,
    pub srq: Srq,
    pub xrc_srq: Srq,
    pub xrcd: Xrcd,
    pub ahs: Vec<Ah>,
    pub now: u64,
    /// Frames made from the input.
    pub recent: Vec<Vec<u8>>,
    cqs: Vec<Cq>,
    xrc_cq: Cq,
    frame: Vec<u8>,
}

pub fn options() -> ConnectOptions {
    ConnectOptions {
        mtu: MTU,
        timeout: 1,
        retry_cnt: 2,
        rnr_retry: 2,
        min_rnr_timer: 1,
        max_rd_atomic: 3,
        max_dest_rd_atomic: 3,
        // PSNs wrap soon.
        psns: [Psn::new(0xff_fffd), Psn::new(0xff_fffa)],
        qkey: QKEY,
        cap: CAP,
        ..ConnectOptions::default()
    }
}

fn config(input: &mut Input) -> WorldConfig {
    let choices = Choices::read(input);
    let device = Config {
        rxe_flush_peers: Vec::new(),
        congestion: None,
        max_qp: 15,
        max_mr: 40,
        max_objects: 40,
        max_cqe: LARGE_CQ,
        max_wr: 16,
        max_sge: 4,
        max_inline: 64,
        max_rd_atomic: 4,
        window: 16,
        ack_every: 4,
        burst: 4,
        loss_recovery: LossRecovery::GoBackN,
        max_reorder: 8,
        max_reorder_bytes: 1 << 14,
        active_mtu: ACTIVE_MTU,
        pkeys: vec![0xffff, 0x8001],
        qpns: 0..1 << 24,
    };
    let vlan = input.flag().then_some(42);
    let device = choices.apply(NODE, &device);
    let addressing = choices.addressing;
    WorldConfig { device, addressing, vlan, arena_capacity: 1 << 15, ..WorldConfig::default() }
}

/// For what the rig builds from valid arguments, within the limits it sets itself.
const VALID: &str = "the rig's own call is valid";

impl Rig {
    /// All QPs up and waiting.
    pub fn new(input: &mut Input) -> Rig {
        let mut world = World::new(config(input)).expect(VALID);
        let device = world.device(NODE);
        let [pd, xrc_pd, foreign] = std::array::from_fn(|_| device.alloc_pd().expect(VALID));
        let mut plots = plots::all(device.memory_mut(), pd, xrc_pd, foreign);
        for plot in &mut plots {
            plot.register(device).expect(VALID);
        }
        let xrcd = device.open_xrcd().expect(VALID);
        let xrc_cq = device.create_cq(LARGE_CQ).expect(VALID);
        let size = SrqInit { pd, max_wr: 8, max_sge: 3, xrc: None };
        let srq = device.create_srq(&size).expect(VALID);
        let xrc_srq = SrqInit { pd: xrc_pd, xrc: Some((xrcd, xrc_cq)), ..size };
        let xrc_srq = device.create_srq(&xrc_srq).expect(VALID);
        let frame = vec![0; device.max_frame_len()];
        let mut rig = Rig {
            world,
            ledger: Ledger::default(),
            slots: Vec::new(),
            plots,
            windows: Vec::new(),
            pd,
            foreign,
            srq,
            xrc_srq,
            xrcd,
            ahs: Vec::new(),
            now: 0,
            recent: Vec::new(),
            cqs: Vec::new(),
            xrc_cq,
            frame,
        };
        rig.make_address_handles();
        for role in ROLES {
            let slot = rig.create(role, None);
            rig.slots.push(slot);
        }
        rig.drain_events();
        rig
    }

    pub fn device(&mut self) -> &mut Device<Arena> {
        self.world.device(NODE)
    }

    pub fn time(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn make_address_handles(&mut self) {
        let peer = self.world.ah_attr(PEER);
        let pd = self.pd;
        for dgid in [peer.dgid, GROUP, GROUP_V4] {
            let attr = AhAttr { dgid, ..peer };
            // One of the groups is of the other family.
            let ah = self.device().create_ah(pd, &attr);
            self.ahs.extend(ah);
        }
    }

    /// Makes a QP and connects it, with one of the other device or a new one of it.
    fn create(&mut self, role: Role, peer: Option<Endpoint>) -> Slot {
        let cqe = if role.small_cq { SMALL_CQ } else { LARGE_CQ };
        let (pd, srq, xrcd) = (self.pd, self.srq, self.xrcd);
        let device = self.device();
        let is_target = role.qp_type == QpType::XrcRecv;
        let receives = !matches!(role.qp_type, QpType::XrcRecv | QpType::XrcSend);
        let cq = device.create_cq(cqe).expect(VALID);
        let qpn = device.create_qp(&QpInit {
            qp_type: role.qp_type,
            pd: (!is_target).then_some(pd),
            send_cq: (!is_target).then_some(cq),
            recv_cq: receives.then_some(cq),
            srq: role.shared.then_some(srq),
            xrcd: is_target.then_some(xrcd),
            cap: CAP,
            sq_sig_all: false,
        });
        let own = Endpoint { node: NODE, pd, send_cq: cq, recv_cq: cq, qpn: qpn.expect(VALID) };
        self.cqs.push(cq);
        let mut slot = Slot { role, own, peer, left: 0, overrun: false };
        self.bring_up(&mut slot);
        slot
    }

    /// RESET to RTS.
    pub fn bring_up(&mut self, slot: &mut Slot) {
        let qpn = slot.own.qpn;
        if matches!(slot.role.qp_type, QpType::Ud | QpType::Gsi) {
            bring_up_datagram(self.device(), qpn, slot.role.qp_type);
            return;
        }
        let peer_type = match slot.role.qp_type {
            QpType::XrcSend => QpType::XrcRecv,
            QpType::XrcRecv => QpType::XrcSend,
            other => other,
        };
        let peer = slot.peer.unwrap_or_else(|| self.peer(peer_type));
        let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        self.world.device(PEER).modify_qp(peer.qpn, &reset, AttrMask::STATE).expect(VALID);
        self.world.connect(&slot.own, &peer, &options()).expect(VALID);
        slot.peer = Some(peer);
        slot.left = 0;
    }

    /// A QP of the other device, to have its number.
    fn peer(&mut self, qp_type: QpType) -> Endpoint {
        if qp_type != QpType::XrcRecv {
            return self.world.endpoint(PEER, qp_type, &options()).expect(VALID);
        }
        let device = self.world.device(PEER);
        let pd = device.alloc_pd().expect(VALID);
        let cq = device.create_cq(1).expect(VALID);
        let xrcd = device.open_xrcd().expect(VALID);
        let qpn = device.create_qp(&QpInit {
            qp_type,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(xrcd),
            cap: CAP,
            sq_sig_all: false,
        });
        Endpoint { node: PEER, pd, send_cq: cq, recv_cq: cq, qpn: qpn.expect(VALID) }
    }

    /// Destroys a QP with its CQ and makes one like it.
    pub fn replace(&mut self, at: usize) {
        self.check();
        self.poll_cqs();
        let (role, own, peer) = {
            let slot = &self.slots[at];
            (slot.role, slot.own, slot.peer)
        };
        if self.device().destroy_qp(own.qpn).is_err() {
            // It is in a multicast group.
            return;
        }
        self.lose(own.qpn);
        self.device().destroy_cq(own.send_cq).expect("nobody uses it any more");
        self.cqs.retain(|&cq| cq != own.send_cq);
        self.slots[at] = self.create(role, peer);
    }

    fn lose(&mut self, qpn: Qpn) {
        self.ledger.lose(Queue::Send(qpn));
        self.ledger.lose(Queue::Recv(qpn));
    }

    /// To RESET, where work requests vanish, and up again.
    pub fn reset(&mut self, at: usize, up: bool) {
        self.check();
        self.poll_cqs();
        if self.slots[at].overrun {
            return self.replace(at);
        }
        let qpn = self.slots[at].own.qpn;
        let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        self.device().modify_qp(qpn, &reset, AttrMask::STATE).expect("any state may be reset");
        self.lose(qpn);
        if up {
            let mut slot = self.slots.swap_remove(at);
            self.bring_up(&mut slot);
            self.slots.push(slot);
            let last = self.slots.len() - 1;
            self.slots.swap(at, last);
        }
    }

    /// Takes all completions there are.
    pub fn poll_cqs(&mut self) {
        for cq in self.cqs.iter().copied().chain([self.xrc_cq]) {
            let mut batch = [Wc::default(); 16];
            loop {
                let device = self.world.device(NODE);
                let count = device.poll_cq(cq, &mut batch).expect("the CQ is there");
                batch[..count].iter().for_each(|wc| self.ledger.completed(wc));
                if count < batch.len() {
                    break;
                }
            }
        }
        for slot in self.slots.iter().filter(|slot| !slot.overrun) {
            let sends = self.ledger.due(Queue::Send(slot.own.qpn));
            let recvs = self.ledger.due(Queue::Recv(slot.own.qpn));
            let fits = sends <= CAP.max_send_wr as usize && recvs <= CAP.max_recv_wr as usize;
            assert!(fits, "{slot:?} holds {sends} sends and {recvs} receives");
        }
    }

    /// Takes all events there are.
    pub fn drain_events(&mut self) {
        let mut count = 0;
        while let Some(event) = self.device().poll_event() {
            count += 1;
            assert!(count <= EVENTS_MAX, "too many events, {event:?} the last");
            if let Event::Cq(cq, EventKind::CqErr) = event {
                self.overran(cq);
            }
        }
    }

    /// A CQ has lost completions, and the QPs that complete there fail.
    fn overran(&mut self, cq: Cq) {
        for slot in self.slots.iter_mut().filter(|slot| slot.own.send_cq == cq) {
            assert_eq!(self.world.device(NODE).qp_state(slot.own.qpn), Ok(QpState::Err));
            slot.overrun = true;
        }
    }

    /// Hands a frame to the device.
    pub fn deliver(&mut self, frame: &[u8]) {
        let now = self.time();
        if let Err(discard) = self.device().handle_frame(now, frame) {
            assert!(self.device().counters().discarded(discard) > 0, "{discard:?} not counted");
        }
    }

    /// Keeps a frame to be sent again.
    pub fn remember(&mut self, frame: Vec<u8>) {
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(frame);
    }

    /// Lets the device send up to `count` frames; whether it had fewer.
    pub fn transmit(&mut self, count: usize) -> bool {
        let now = self.time();
        for _ in 0..count {
            let mut frame = std::mem::take(&mut self.frame);
            let len = self.device().poll_transmit(now, &mut frame);
            let sent = len.map(|len| self.check_sent(&frame[..len]));
            self.frame = frame;
            if sent.is_none() {
                return true;
            }
        }
        false
    }

    /// # Panics
    ///
    /// If the device would send what no peer takes.
    fn check_sent(&self, frame: &[u8]) {
        let packet = Packet::parse(frame).expect("what is sent is a packet");
        assert_eq!(packet.layout.icrc + 4, frame.len());
        assert!(packet.icrc_ok(frame), "wrong ICRC: {packet:x?}");
        let pad = packet.layout.payload + packet.payload.len()..packet.layout.icrc;
        assert!(pad.len() < 4 && frame[pad].iter().all(|&byte| byte == 0), "wrong pad");
        let info = packet.info().expect("what is sent has an opcode");
        let (own, peer) = (self.world.address(NODE), self.world.address(PEER));
        let eth = packet.headers.eth;
        assert_eq!(eth.src, own.mac);
        assert_eq!(eth.vlan.map(|vlan| vlan.vid), own.vlan);
        assert_eq!(packet.headers.net.source(), own.gid);
        let to = packet.headers.net.destination();
        let to_peer = to == peer.gid && eth.dst == peer.mac;
        let group_mac = to.multicast_mac();
        assert!(to_peer || group_mac == Some(eth.dst) && eth.dst != Mac::default(), "{packet:x?}");
        let mtu = match info.transport {
            Transport::Ud => ACTIVE_MTU,
            _ => MTU,
        };
        let (len, mtu) = (packet.payload.len(), mtu.bytes());
        let fits = match info.payload {
            PayloadRule::Empty => len == 0 || tells_what_has_come(&packet),
            PayloadRule::Mtu => len == mtu,
            PayloadRule::OneToMtu => (1..=mtu).contains(&len),
            PayloadRule::UpToMtu => len <= mtu,
            PayloadRule::Exactly(exact) => len == usize::from(exact),
        };
        assert!(fits, "{} with {len} bytes", info.name);
    }

    /// Moves the clock.
    pub fn advance(&mut self, nanos: u64) {
        self.now += nanos;
        let now = self.time();
        self.device().handle_timeout(now);
        let next = self.device().poll_timeout();
        assert!(next.is_none_or(|next| next > now), "a timer that has run out still waits");
    }

    /// What must hold after every step.
    pub fn check(&mut self) {
        self.drain_events();
        assert_eq!(self.device().memory().stray_accesses(), 0);
        for slot in self.slots.iter().filter(|slot| slot.overrun) {
            self.ledger.lose(Queue::Send(slot.own.qpn));
            self.ledger.lose(Queue::Recv(slot.own.qpn));
        }
    }

    /// Nobody says anything any more: every QP that is not held comes to an end with its work
    /// requests, then all fail and everything is flushed.
    pub fn finish(&mut self) {
        for _ in 0..TIMEOUTS_MAX {
            assert!(self.transmit(FRAMES_MAX), "it never stops sending");
            let Some(next) = self.device().poll_timeout() else { break };
            let wait = next.nanos().saturating_sub(self.now);
            self.advance(wait);
            self.drain_events();
            self.poll_cqs();
        }
        assert_eq!(self.device().poll_timeout(), None, "timers never stop");
        self.check();
        self.poll_cqs();
        for at in 0..self.slots.len() {
            let qpn = self.slots[at].own.qpn;
            let state = self.device().qp_state(qpn).expect("the QP is there");
            let held = matches!(state, QpState::Sqd);
            let due = self.ledger.due(Queue::Send(qpn));
            assert!(held || due == 0, "{:?} in {state:?}: {due} stay", self.slots[at]);
        }
        self.fail_all();
        let arena = self.world.device_ref(NODE).memory();
        self.plots.iter().for_each(|plot| plot.check(arena));
        arena.check_canaries().expect("a byte outside all plots has changed");
    }

    fn fail_all(&mut self) {
        for at in 0..self.slots.len() {
            let qpn = self.slots[at].own.qpn;
            let fail = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
            let failed = self.device().modify_qp(qpn, &fail, AttrMask::STATE);
            self.check();
            self.poll_cqs();
            let state = self.device().qp_state(qpn).expect("the QP is there");
            assert!(failed.is_ok() && state == QpState::Err || state == QpState::Reset);
            for queue in [Queue::Send(qpn), Queue::Recv(qpn)] {
                assert_eq!(self.ledger.due(queue), 0, "not flushed: {queue:?}");
            }
        }
        assert!(self.transmit(FRAMES_MAX), "it never stops sending");
    }
}

/// Whether it is the sequence NAK of selective repeat, whose payload is ranges of PSNs.
fn tells_what_has_come(packet: &Packet) -> bool {
    let Headers { bth, ext, .. } = &packet.headers;
    let is_nak = bth.opcode.info().is_some_and(|info| info.kind == Kind::Acknowledge)
        && ext.aeth.is_some_and(|aeth| aeth.syndrome == Syndrome::nak(NakCode::PsnSequence));
    let mut expected = bth.psn;
    is_nak
        && bth.reserved7 == LossRecovery::SelectiveRepeat.mark()
        && packet.payload.len() <= PsnRange::MAX * PsnRange::LEN
        && packet.payload.len().is_multiple_of(PsnRange::LEN)
        && PsnRange::parse_all(packet.payload).all(|range| {
            let rises = range.first.distance(expected) > 0 && range.count > 0;
            expected = range.first.advance(range.count);
            rises
        })
}

fn bring_up_datagram(device: &mut Device<Arena>, qpn: Qpn, qp_type: QpType) {
    let port = if qp_type == QpType::Ud { AttrMask::PORT } else { AttrMask::NONE };
    let init = AttrMask::PKEY_INDEX | AttrMask::QKEY | port;
    let steps =
        [(QpState::Init, init), (QpState::Rtr, AttrMask::NONE), (QpState::Rts, AttrMask::SQ_PSN)];
    for (qp_state, mask) in steps {
        let attr = QpAttr { qp_state, qkey: QKEY, port_num: 1, ..QpAttr::default() };
        device.modify_qp(qpn, &attr, mask | AttrMask::STATE).expect(VALID);
    }
}
