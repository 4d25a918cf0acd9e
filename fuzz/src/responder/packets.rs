//! Packets from the input: right in most respects, for the QP they are addressed to, and wrong in
//! one that the input chooses.

use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{QpType, Qpn};
use ferroce_stack::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ethernet, Extensions, Feth, Headers, Ieth, ImmDt,
    Ipv4, Ipv6, Kind, Layout, Net, Opcode, OpcodeInfo, Packet, Position, PsnRange, Rdeth, Reth,
    Syndrome, Transport, Udp, Vlan, XrcEth, seal,
};
use ferroce_stack::{GidType, LossRecovery};

use super::rig::{GROUP, GROUP_V4, MTU, NODE, QKEY, Rig};
use crate::input::Input;

/// Longest payload made.
const PAYLOAD_MAX: usize = 4200;

/// What the input says of a packet; a fixed number of bytes, so that what follows stays in place.
struct Choice {
    slot: usize,
    opcode: u8,
    psn: u8,
    len: u8,
    flags: u8,
    key: u8,
    offset: u16,
    dma: u8,
    data: u8,
    twist: u8,
}

impl Choice {
    fn read(rig: &Rig, input: &mut Input) -> Choice {
        Choice {
            slot: input.below(rig.slots.len()),
            opcode: input.byte(),
            psn: input.byte(),
            len: input.byte(),
            flags: input.byte(),
            key: input.byte(),
            offset: input.word16(),
            dma: input.byte(),
            data: input.byte(),
            twist: input.byte(),
        }
    }

    fn flag(&self, bit: u32) -> bool {
        self.flags & 1 << bit != 0
    }

    /// What is wrong; nothing, mostly.
    fn twist(&self) -> Option<u8> {
        (self.twist >= 0xc0).then_some(self.twist & 0x1f)
    }
}

/// Sends the device a packet made from the input.
pub fn send(rig: &mut Rig, input: &mut Input) {
    let choice = Choice::read(rig, input);
    let frame = build(rig, &choice);
    rig.deliver(&frame);
    rig.remember(frame);
}

/// Sends a frame again.
pub fn send_again(rig: &mut Rig, input: &mut Input) {
    let at = input.below(rig.recent.len());
    if let Some(frame) = rig.recent.get(at).cloned() {
        rig.deliver(&frame);
    }
}

fn build(rig: &mut Rig, choice: &Choice) -> Vec<u8> {
    let opcode = opcode(rig.slots[choice.slot].role.qp_type, choice);
    let info = opcode.info();
    let payload_len = payload_len(rig, choice, info);
    let ext = extensions(rig, choice, info, payload_len);
    follow_write(rig, choice, info, payload_len, &ext);
    let bth = bth(rig, choice, opcode, info);
    let mut headers = Headers { bth, ext, ..addresses(rig) };
    twist_headers(&mut headers, choice);
    let mut frame = vec![0; PAYLOAD_MAX + 256];
    let layout = headers.emit(payload_len, &mut frame).expect("there is room");
    let payload = frame[layout.payload..][..payload_len].iter_mut().zip(0u8..=255);
    payload.for_each(|(byte, at)| *byte = at.wrapping_mul(5) ^ choice.data);
    if info.is_some_and(|info| info.kind == Kind::Acknowledge) {
        tell_what_has_come(&mut frame[layout.payload..][..payload_len], headers.bth.psn, choice);
    }
    finish(frame, &layout, payload_len, choice)
}

fn opcode(qp_type: QpType, choice: &Choice) -> Opcode {
    let base = match qp_type {
        QpType::Rc => Opcode::RC_SEND_FIRST,
        QpType::Uc => Opcode::UC_SEND_FIRST,
        // A raw packet QP takes none; this would find out.
        QpType::Ud | QpType::Gsi | QpType::RawPacket => Opcode(Opcode::UD_SEND_ONLY.0 & 0xe0),
        QpType::XrcSend | QpType::XrcRecv => Opcode::XRC_SEND_FIRST,
    };
    match choice.twist() {
        Some(0) => Opcode(choice.opcode),
        Some(1) => Opcode::CNP,
        _ => Opcode(base.0 | choice.opcode & 0x1f),
    }
}

/// The path from the peer.
fn addresses(rig: &Rig) -> Headers {
    let (own, peer) = (rig.world.address(NODE), rig.world.ah_attr(1));
    let source = rig.world.address(1);
    let ipv6 = || Ipv6 {
        src: source.gid.0.into(),
        dst: own.gid.0.into(),
        traffic_class: 0,
        flow_label: 0,
        hop_limit: peer.hop_limit,
    };
    let net = match (own.gid_type, source.gid.ipv4(), own.gid.ipv4()) {
        (GidType::RoceV1, ..) => Net::V1(ipv6()),
        (_, Some(src), Some(dst)) => {
            Net::V4(Ipv4 { src, dst, tos: 2, ident: 7, dont_fragment: true, ttl: 64 })
        }
        _ => Net::V6(ipv6()),
    };
    let vlan = own.vlan.map(|vid| Vlan { pcp: 3, dei: false, vid });
    Headers {
        eth: Ethernet { dst: own.mac, src: source.mac, vlan },
        net,
        udp: Udp { source_port: 0xc000, checksum: 0 },
        bth: Bth::parse(&[0; Bth::LEN]),
        ext: Extensions::default(),
    }
}

fn bth(rig: &mut Rig, choice: &Choice, opcode: Opcode, info: Option<&OpcodeInfo>) -> Bth {
    let qpn = rig.slots[choice.slot].own.qpn;
    let (attr, _) = rig.device().query_qp(qpn).expect("the QP is there");
    let is_response = info.is_some_and(|info| {
        matches!(info.kind, Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::ReadResponse)
    });
    // A request is mostly the next one, a response mostly for one outstanding.
    let psn = match (is_response, choice.psn) {
        (false, 0..=191) => attr.rq_psn,
        (false, step) => attr.rq_psn.advance(u32::from(step).wrapping_sub(245)),
        (true, back @ 0..=191) => attr.sq_psn.advance(u32::from(back & 31).wrapping_neg()),
        (true, step) => attr.sq_psn.advance(u32::from(step).wrapping_sub(245)),
    };
    let psn = if choice.twist() == Some(2) { psn.advance(1 << 23) } else { psn };
    Bth {
        opcode,
        solicited: choice.flag(0),
        mig_req: true,
        pad_count: 0,
        transport_version: 0,
        pkey: 0xffff,
        fecn: false,
        becn: choice.flag(1),
        reserved6: 0,
        dest_qp: qpn.0,
        ack_req: choice.flag(2),
        reserved7: if choice.flag(5) { LossRecovery::SelectiveRepeat.mark() } else { 0 },
        psn,
    }
}

/// The length the opcode, and the message it goes on with, ask for; or any other.
fn payload_len(rig: &Rig, choice: &Choice, info: Option<&OpcodeInfo>) -> usize {
    let mtu = MTU.bytes();
    let len = usize::from(choice.len);
    if choice.twist() == Some(3) {
        return (len * 16 + usize::from(choice.dma & 15)).min(PAYLOAD_MAX);
    }
    let Some(info) = info else { return len & 15 };
    let left = rig.slots[choice.slot].left as usize;
    match (info.kind, info.position) {
        (Kind::Write, Position::Last) if left > 0 => left.min(mtu),
        (Kind::Send | Kind::Write, Position::Only) if info.transport == Transport::Ud => len * 4,
        (Kind::Send | Kind::Write | Kind::ReadResponse, position) => match position {
            Position::First | Position::Middle => mtu,
            Position::Last => len.clamp(1, mtu),
            Position::Only => len,
        },
        (Kind::AtomicWrite, _) => 8,
        (Kind::Cnp, _) => 16,
        (Kind::Acknowledge, _) if choice.flag(5) => (len & 3) * PsnRange::LEN,
        _ => 0,
    }
}

/// Remembers what is left of the WRITE a packet begins or goes on with.
fn follow_write(
    rig: &mut Rig,
    choice: &Choice,
    info: Option<&OpcodeInfo>,
    payload_len: usize,
    ext: &Extensions,
) {
    let slot = &mut rig.slots[choice.slot];
    let Some(info) = info.filter(|info| info.kind == Kind::Write) else { return };
    let total = ext.reth.map_or(slot.left, |reth| reth.dma_len);
    slot.left = match info.position {
        Position::First | Position::Middle => total.saturating_sub(payload_len as u32),
        Position::Last | Position::Only => 0,
    };
}

/// Ranges of PSNs behind `psn`, most of them in order.
fn tell_what_has_come(payload: &mut [u8], psn: Psn, choice: &Choice) {
    let mut first = psn.advance(u32::from(choice.data & 3));
    for bytes in payload.chunks_exact_mut(PsnRange::LEN) {
        let count = u32::from(choice.data >> 2 & 7);
        PsnRange { first, count }.emit(bytes);
        first = first.advance(count + u32::from(choice.dma & 3));
    }
}

/// A key the device has or had, and an address near what it names.
fn claim(rig: &Rig, choice: &Choice) -> (u32, u64) {
    let keys = rig.plots.len() + rig.windows.len();
    let at = usize::from(choice.key) % keys;
    let offset = u64::from(choice.offset);
    if choice.twist() == Some(4) {
        return (u32::from(choice.key) << 8 | u32::from(choice.dma), offset << 48 | offset);
    }
    match rig.plots.get(at) {
        Some(plot) => {
            let key = plot.keys.map_or(0, |keys| keys.lkey);
            (key, plot.base().wrapping_add(offset))
        }
        None => {
            let (mw, bound) = rig.windows[at - rig.plots.len()];
            let key = rig.world.device_ref(NODE).mw_rkey(mw).unwrap_or(bound);
            (key, rig.plots[0].base().wrapping_add(offset))
        }
    }
}

fn extensions(
    rig: &Rig,
    choice: &Choice,
    info: Option<&OpcodeInfo>,
    payload_len: usize,
) -> Extensions {
    use ferroce_stack::wire::HeaderSet as Set;
    let Some(info) = info else { return Extensions::default() };
    let (rkey, va) = claim(rig, choice);
    let dma_len = match (info.kind, info.position) {
        _ if choice.twist() == Some(5) => u32::from(choice.dma) << 24 | u32::from(choice.len),
        (Kind::Write, Position::First) => {
            payload_len as u32 * (1 + u32::from(choice.dma & 3)) + u32::from(choice.dma >> 2) + 1
        }
        (Kind::ReadRequest | Kind::Flush, _) => u32::from(choice.dma) * 8,
        _ => payload_len as u32,
    };
    let word = u64::from(choice.data) << 32 | u64::from(choice.len);
    let syndrome = match choice.key {
        0..=127 => Syndrome::ACK,
        _ => Syndrome(choice.key & 0x7f),
    };
    let srqn = if choice.flag(3) { rig.srq.value() } else { rig.xrc_srq.value() };
    let qkey = match rig.slots[choice.slot].role.qp_type {
        QpType::Gsi => 0x8001_0000,
        _ => QKEY,
    };
    let has = |set| info.headers.has(set);
    let twisted = u32::from(choice.twist() == Some(6));
    Extensions {
        rdeth: has(Set::RDETH).then_some(Rdeth::parse(&[0; Rdeth::LEN])),
        deth: has(Set::DETH).then_some(Deth { qkey: qkey + twisted, reserved: 0, src_qp: 0x77 }),
        xrceth: has(Set::XRCETH).then_some(XrcEth { reserved: 0, srqn: srqn + twisted }),
        feth: has(Set::FETH).then_some(Feth {
            reserved: 0,
            level: choice.data & 3,
            placement: choice.len & 3,
        }),
        reth: has(Set::RETH).then_some(Reth { va, rkey, dma_len }),
        atomic_eth: has(Set::ATOMIC_ETH).then_some(AtomicEth {
            va: va & !u64::from(!choice.flag(4)).wrapping_mul(7),
            rkey,
            swap_or_add: word,
            compare: word >> 32,
        }),
        aeth: has(Set::AETH).then_some(Aeth { syndrome, msn: word as u32 & 0xff_ffff }),
        atomic_ack_eth: has(Set::ATOMIC_ACK_ETH).then_some(AtomicAckEth { original: word }),
        imm_dt: has(Set::IMM_DT).then_some(ImmDt([choice.data; 4])),
        ieth: has(Set::IETH).then_some(Ieth { rkey }),
    }
}

/// Wrong in a header, the ICRC nevertheless right.
fn twist_headers(headers: &mut Headers, choice: &Choice) {
    let bth = &mut headers.bth;
    match choice.twist() {
        Some(7) => bth.pkey = u16::from(choice.data) << 8 | u16::from(choice.len),
        Some(8) => bth.transport_version = choice.data & 15,
        Some(9) => bth.dest_qp = bth.dest_qp.wrapping_add(u32::from(choice.data)) & 0xff_ffff,
        Some(10) => {
            bth.dest_qp = Qpn::MULTICAST.0;
            match &mut headers.net {
                Net::V4(ip) => ip.dst = GROUP_V4.ipv4().unwrap_or(ip.dst),
                Net::V6(ip) | Net::V1(ip) => ip.dst = GROUP.0.into(),
            }
        }
        Some(11) => match &mut headers.net {
            Net::V4(ip) => ip.src = [10, 0, 0, choice.data].into(),
            Net::V6(ip) | Net::V1(ip) => ip.src = std::net::Ipv6Addr::LOCALHOST,
        },
        Some(12) => headers.eth.vlan = Some(Vlan { pcp: 0, dei: true, vid: 42 }),
        Some(13) => headers.eth.vlan = None,
        Some(14) => (bth.reserved6, bth.reserved7) = (choice.data & 0x3f, choice.len & 0x7f),
        Some(15) => bth.psn = Psn::new(u32::from(choice.data) << 16 | u32::from(choice.offset)),
        _ => {}
    }
}

/// ICRC, and what is wrong with the frame as a whole.
fn finish(mut frame: Vec<u8>, layout: &Layout, payload_len: usize, choice: &Choice) -> Vec<u8> {
    let len = seal(&mut frame, layout, payload_len);
    let byte = usize::from(choice.data) % len;
    match choice.twist() {
        Some(16) => frame.truncate(byte),
        Some(17) => frame.truncate(len + usize::from(choice.data)),
        Some(18) => frame[byte] ^= 1 << (choice.len & 7),
        // The pad count takes bytes of the payload.
        Some(19) => {
            frame[layout.bth + 1] ^= (choice.data & 3) << 4;
            frame.truncate(len);
            seal_as_it_is(&mut frame);
        }
        _ => frame.truncate(len),
    }
    frame
}

/// Makes the ICRC right without a change of the pad.
fn seal_as_it_is(frame: &mut [u8]) {
    let Ok(packet) = Packet::parse(frame) else { return };
    let layout = packet.layout;
    let icrc = ferroce_stack::icrc::compute(frame, &layout);
    frame[layout.icrc..][..4].copy_from_slice(&icrc.to_le_bytes());
}
