//! Faults on public record that a frame can show: ICRC, reserved bits, opcodes, lengths, P_Key,
//! services, traffic class, VLAN. Each test is named for its fault.

use std::net::Ipv6Addr;

use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{QpState, QpType, Qpn, SendOp, SendWr, UdTarget, WcStatus};
use ferroce_stack::wire::{Headers, Net, Opcode, Packet, Vlan};
use ferroce_stack::{Config, GidEntry};
use ferroce_tests::memory::BASE;
use ferroce_tests::node::address;
use ferroce_tests::{EPSN, Expected, Link, Node, Peer, SEC, Scripted, expect_packets, statuses};

use WcStatus::{RetryExcErr, Success};

/// CRC-32 of Ethernet, bit by bit.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// ICRC of an untagged RoCE v2 frame over the bytes up to `end`, computed apart from the stack
/// (IBA 7.8.1, Annex A17.3.3).
fn independent_icrc(frame: &[u8], end: usize) -> u32 {
    let mut bytes = frame[14..end].to_vec();
    let udp = if bytes[0] >> 4 == 4 {
        for at in [1, 8, 10, 11] {
            bytes[at] = 0xff;
        }
        20
    } else {
        bytes[0] |= 0x0f;
        for at in [1, 2, 3, 7] {
            bytes[at] = 0xff;
        }
        40
    };
    bytes[udp + 6] = 0xff;
    bytes[udp + 7] = 0xff;
    bytes[udp + 8 + 4] = 0xff;
    crc32([0xff; 8].into_iter().chain(bytes))
}

fn icrc_on_wire(frame: &[u8]) -> u32 {
    let last: [u8; 4] = frame[frame.len() - 4..].try_into().expect("4 bytes");
    u32::from_le_bytes(last)
}

fn v6(last: u8) -> GidEntry {
    let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last));
    GidEntry { gid: Gid::from(ip), ..address(last) }
}

/// An RC QP over IPv6 and its scripted peer.
fn over_ipv6() -> (Node, Qpn, Peer) {
    let mut node = Node::with_config(v6(1), Config::default());
    let qpn = node.create(QpType::Rc);
    let attr = node.attr_to(&v6(2), Qpn(0x55));
    node.bring_up(qpn, &attr, QpState::Rts);
    let peer = Peer { own: v6(2), own_qpn: Qpn(0x55), to: v6(1), to_qpn: qpn, qkey: 0, srqn: 0 };
    (node, qpn, peer)
}

/// P01 and P03: with every pad length, the ICRC is the one computed apart, and goes least
/// significant byte first.
#[test]
fn icrc_covers_the_pad_and_goes_low_byte_first() {
    for length in 32..=36 {
        let mut scripted = Scripted::rc();
        let write = SendOp::Write(scripted.node.remote(0));
        scripted.node.post(scripted.qpn, 1, write, 0, length);
        let frame = &scripted.frames()[0].frame;
        let computed = independent_icrc(frame, frame.len() - 4);
        assert_eq!(icrc_on_wire(frame), computed, "{length} bytes");
        assert_eq!(usize::from(frame[14 + 28 + 1] >> 4 & 3), (4 - length as usize % 4) % 4);
    }
}

/// P01: an ICRC that leaves the pad out is wrong; the frame is dropped and counted.
#[test]
fn a_frame_whose_icrc_leaves_the_pad_out_is_dropped() {
    for length in 33..=35 {
        let mut scripted = Scripted::rc();
        let remote = scripted.node.remote(0);
        let write = scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, length);
        let mut frame = write.fill(1, length as usize).ack_req().frame();
        let end = frame.len();
        let pad = (4 - length as usize % 4) % 4;
        let wrong = independent_icrc(&frame, end - 4 - pad);
        frame[end - 4..].copy_from_slice(&wrong.to_le_bytes());
        assert_eq!(scripted.node.receive(&frame), Err(Discard::BadIcrc));
        assert_eq!(scripted.node.device.counters().discarded(Discard::BadIcrc), 1);
        assert!(scripted.frames().is_empty());
        assert_eq!(scripted.node.device.memory().bytes(BASE, 8), [0; 8]);
    }
}

/// P02: over IPv6 what routers change is not covered, all else is.
#[test]
fn icrc_over_ipv6_lets_routers_change_what_they_may() {
    let (mut node, qpn, peer) = over_ipv6();
    node.post(qpn, 1, SendOp::Send, 0, 33);
    let frame = node.next_frame().expect("a SEND").frame;
    assert_eq!(icrc_on_wire(&frame), independent_icrc(&frame, frame.len() - 4));
    let remote = node.remote(0);
    // Byte of the IPv6 header, bits to change, whether the packet is still right.
    let table = [
        ("traffic class, high", 0, 0x0f, true),
        ("traffic class, low", 1, 0xf0, true),
        ("flow label", 1, 0x0f, true),
        ("flow label, low", 3, 0xff, true),
        ("hop limit", 7, 0x3f, true),
        ("source", 23, 0x01, false),
        ("destination", 39, 0x01, false),
        ("UDP checksum", 46, 0xff, true),
        ("UDP source port", 41, 0x01, false),
    ];
    for (psn, (name, at, bits, right)) in (0x800..).zip(table) {
        let write = peer.packet(Opcode::RC_WRITE_ONLY, psn).reth(remote, 4).fill(1, 4);
        let mut frame = write.frame();
        frame[14 + at] ^= bits;
        assert_eq!(node.receive(&frame).is_ok(), right, "{name}");
        if !right {
            node.receive(&write.frame()).unwrap();
        }
    }
}

/// P04: reserved bits and FECN are ignored on receipt, and never sent.
#[test]
fn reserved_bits_are_ignored_and_not_sent() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let write =
        scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(9, 8).ack_req().change(
            |headers| {
                headers.bth.reserved6 = 0x3f;
                headers.bth.reserved7 = 0x7f;
                headers.bth.fecn = true;
                headers.bth.mig_req = false;
            },
        );
    let frames = scripted.exchange(&[write]);
    expect_packets("reserved bits", &frames, &[Expected::ack(EPSN)]);
    assert_eq!(scripted.node.device.memory().bytes(BASE, 8), [9; 8]);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    for seen in frames.into_iter().chain(scripted.frames()) {
        let bth = seen.headers.bth;
        assert_eq!((bth.reserved6, bth.reserved7, bth.fecn, bth.becn), (0, 0, false, false));
        assert_eq!(bth.transport_version, 0);
    }
}

/// P05: every opcode at every length, to QP1, to a live RC QP and to the multicast QPN: no panic,
/// no answer where the service is another, and each frame counted.
#[test]
fn every_opcode_at_every_length_is_survived() {
    for opcode in 0..=0xff {
        let mut scripted = Scripted::rc();
        scripted.node.create(QpType::Gsi);
        for to in [Qpn::GSI, scripted.qpn, Qpn::MULTICAST] {
            scripted.peer.to_qpn = to;
            for len in 0..=80 {
                let base = scripted.packet(Opcode::RC_SEND_ONLY, EPSN);
                let frame = base
                    .fill(0x20, len)
                    .change(|headers| headers.bth.opcode = Opcode(opcode))
                    .frame();
                let counters = scripted.node.device.counters();
                let before: u64 = counters.discards().map(|(_, count)| count).sum();
                let taken = scripted.node.receive(&frame).is_ok();
                let counters = scripted.node.device.counters();
                let after: u64 = counters.discards().map(|(_, count)| count).sum();
                assert_eq!(after - before, u64::from(!taken), "opcode {opcode:#x}, {len} bytes");
                let answers = scripted.frames();
                let own_service = opcode < 0x20 && to == scripted.qpn;
                assert!(own_service || answers.is_empty(), "opcode {opcode:#x}: {answers:?}");
            }
        }
    }
}

/// P07: lengths are those of IP and UDP; Ethernet padding is no payload, and a UDP length beyond
/// the IP payload is refused.
#[test]
fn lengths_are_taken_from_ip_and_udp() {
    let mut scripted = Scripted::rc();
    scripted.post_recv(11, 0, 64);
    let send = scripted.packet(Opcode::RC_SEND_ONLY, EPSN).ack_req();
    let mut padded = send.frame();
    assert_eq!(padded.len(), 58, "the shortest frame");
    padded.extend([0xee; 2]);
    scripted.node.receive(&padded).unwrap();
    let received = scripted.node.received();
    assert_eq!((statuses(&received), received[0].byte_len), (vec![(11, Success)], 0));
    scripted.frames();

    scripted.post_recv(12, 0, 64);
    let mut garbage = scripted.packet(Opcode::RC_SEND_ONLY, EPSN + 1).fill(1, 8).frame();
    garbage.extend([0xee; 40]);
    scripted.node.receive(&garbage).unwrap();
    assert_eq!(scripted.node.received()[0].byte_len, 8);

    for change in [4u16, 0xfffc] {
        let mut frame = scripted.packet(Opcode::RC_SEND_ONLY, EPSN + 2).fill(1, 8).frame();
        let udp_len = u16::from_be_bytes([frame[38], frame[39]]).wrapping_add(change);
        frame[38..40].copy_from_slice(&udp_len.to_be_bytes());
        frame.extend([0; 16]);
        assert_eq!(scripted.node.receive(&frame), Err(Discard::BadLength));
    }
}

/// P07: an ACK in a frame padded by Ethernet.
#[test]
fn a_padded_ack_is_an_ack() {
    let mut scripted = Scripted::rc();
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    let psn = scripted.frames()[0].psn();
    let mut frame = scripted.packet(Opcode::RC_ACKNOWLEDGE, psn).aeth(0x1f, 1).frame();
    frame.extend([0; 10]);
    scripted.node.receive(&frame).unwrap();
    assert_eq!(statuses(&scripted.node.sent()), [(1, Success)]);
}

/// P08: same partition, not 0, and one side at least a full member.
#[test]
fn pkey_membership_is_checked() {
    // P_Key of the packet and of the QP.
    let table = [
        (0xffff, 0xffff, true),
        (0x7fff, 0xffff, true),
        (0xffff, 0x7fff, true),
        (0x7fff, 0x7fff, false),
        (0x8001, 0xffff, false),
        (0x0001, 0x8001, true),
        (0x8000, 0x8000, false),
    ];
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for (of_packet, of_qp, matches) in table {
            let config = Config { pkeys: vec![of_qp], ..Config::default() };
            let mut node = Node::with_config(address(1), config);
            let qpn = node.create(qp_type);
            let attr = node.attr_to(&address(2), Qpn(0x55));
            node.bring_up(qpn, &attr, QpState::Rts);
            node.post_recv(qpn, 11, 0, 100);
            let peer = Peer {
                own: address(2),
                own_qpn: Qpn(0x55),
                to: address(1),
                to_qpn: qpn,
                qkey: attr.qkey,
                srqn: 0,
            };
            let opcode = match qp_type {
                QpType::Rc => Opcode::RC_SEND_ONLY,
                QpType::Uc => Opcode::UC_SEND_ONLY,
                _ => Opcode::UD_SEND_ONLY,
            };
            let send = peer.packet(opcode, 0x800).fill(1, 8).ack_req();
            let frame = send.change(|headers| headers.bth.pkey = of_packet).frame();
            let expected = if matches { Ok(()) } else { Err(Discard::BadPkey) };
            let case = format!("{of_packet:#x} to {of_qp:#x} on {qp_type:?}");
            assert_eq!(node.receive(&frame), expected, "{case}");
            let bad = u64::from(!matches);
            assert_eq!(node.device.query_port().bad_pkey_cntr, bad, "{case}");
            if !matches {
                assert!(node.transmit().is_empty(), "{case}: no NAK for a P_Key");
            }
        }
    }
}

/// P11: an RC packet to a UD QP and the reverse are dropped; each sender ends as its service says.
#[test]
fn a_packet_of_another_service_is_dropped() {
    let mut link = Link::default();
    let (rc, ud) = (link.a.create(QpType::Rc), link.b.create(QpType::Ud));
    link.connect_with(rc, ud, |_| {});
    link.b.post_recv(ud, 11, 0, 100);
    link.a.post(rc, 1, SendOp::Send, 0, 8);
    link.run_for(2 * SEC);
    assert_eq!(statuses(&link.a.sent()), [(1, RetryExcErr)]);
    assert!(link.b.received().is_empty());
    assert_eq!(link.b.state(ud), QpState::Rts);
    assert_eq!(link.b.device.counters().discarded(Discard::WrongService), 4);

    let mut link = Link::default();
    let (ud, rc) = (link.a.create(QpType::Ud), link.b.create(QpType::Rc));
    link.connect_with(ud, rc, |_| {});
    link.b.post_recv(rc, 11, 0, 100);
    let to = link.a.attr_to(&link.b.entry, rc).ah_attr;
    let ah = link.a.device.create_ah(link.a.pd, &to).unwrap();
    let sges = [link.a.sge(0, 8)];
    let ud_target = Some(UdTarget { ah, qpn: rc, qkey: 0x1111_1111 });
    link.a.post_wr(ud, &SendWr { ud: ud_target, ..SendWr::new(1, SendOp::Send, &sges) });
    link.settle();
    assert_eq!(statuses(&link.a.sent()), [(1, Success)]);
    assert!(link.b.received().is_empty());
    assert_eq!(link.b.state(rc), QpState::Rts);
    assert_eq!(link.b.device.counters().discarded(Discard::WrongService), 1);
}

/// P13: the traffic class is the whole byte, and each side sends its own, answers too.
#[test]
fn traffic_class_is_the_whole_tos_byte() {
    let mut link = Link::default();
    let (a, b) = (link.a.create(QpType::Rc), link.b.create(QpType::Rc));
    let mut of_a = link.a.attr_to(&link.b.entry, b);
    let mut of_b = link.b.attr_to(&link.a.entry, a);
    of_a.ah_attr.traffic_class = 0x6a;
    of_b.ah_attr.traffic_class = 0xc2;
    link.a.bring_up(a, &of_a, QpState::Rts);
    link.b.bring_up(b, &of_b, QpState::Rts);
    let remote = link.b.remote(0);
    link.a.post(a, 1, SendOp::Write(remote), 0, 8);
    link.a.post(a, 2, SendOp::Read(remote), 0, 8);
    for frame in link.settle() {
        let class = if frame.from_a { 0x6a } else { 0xc2 };
        assert_eq!(frame.seen.headers.net.traffic_class(), class, "{:?}", frame.seen);
    }
}

/// P14: an RC QP hears its own VLAN alone; tag 0 is no VLAN; UD hears all that matches.
#[test]
fn vlan_of_a_connection_is_checked_and_priority_tags_are_none() {
    let tag = |vid| Some(Vlan { pcp: 5, dei: false, vid });
    let table = [
        (None, None, true),
        (None, tag(0), true),
        (None, tag(7), false),
        (Some(7), tag(7), true),
        (Some(7), None, false),
        (Some(7), tag(0), false),
        (Some(7), tag(8), false),
    ];
    for (vlan, tag, of_rc) in table {
        for qp_type in [QpType::Rc, QpType::Ud] {
            let entry = GidEntry { vlan, ..address(1) };
            let mut node = Node::with_config(entry, Config::default());
            let qpn = node.create(qp_type);
            let attr = node.attr_to(&address(2), Qpn(0x55));
            node.bring_up(qpn, &attr, QpState::Rts);
            node.post_recv(qpn, 11, 0, 100);
            let peer = Peer {
                own: address(2),
                own_qpn: Qpn(0x55),
                to: entry,
                to_qpn: qpn,
                qkey: attr.qkey,
                srqn: 0,
            };
            let rc = qp_type == QpType::Rc;
            let opcode = if rc { Opcode::RC_SEND_ONLY } else { Opcode::UD_SEND_ONLY };
            let send = peer.packet(opcode, 0x800).fill(1, 8);
            let frame = send.change(|headers| headers.eth.vlan = tag).frame();
            let taken = node.receive(&frame).is_ok();
            assert_eq!(taken, of_rc || !rc, "{qp_type:?} on VLAN {vlan:?}, frame tagged {tag:?}");
        }
    }
}

/// P14: the SL becomes the priority of the tag.
#[test]
fn sl_becomes_the_priority_of_the_tag() {
    let entry = GidEntry { vlan: Some(7), ..address(1) };
    let mut node = Node::with_config(entry, Config::default());
    let qpn = node.create(QpType::Rc);
    let mut attr = node.attr_to(&address(2), Qpn(0x55));
    attr.ah_attr.sl = 3;
    node.bring_up(qpn, &attr, QpState::Rts);
    node.post(qpn, 1, SendOp::Send, 0, 8);
    let frame = node.next_frame().expect("a SEND").frame;
    let eth = Packet::parse(&frame).unwrap().headers.eth;
    assert_eq!(eth.vlan, Some(Vlan { pcp: 3, dei: false, vid: 7 }));
}

/// Frames whose addresses are not those of the connection, in every header that names one.
#[test]
fn a_frame_from_elsewhere_is_dropped() {
    type Change = fn(&mut Headers);
    let table: [(&str, Change, Discard); 4] = [
        (
            "source address",
            |headers| {
                if let Net::V4(ip) = &mut headers.net {
                    ip.src = [10, 0, 0, 9].into();
                }
            },
            Discard::WrongPeer,
        ),
        (
            "destination address",
            |headers| {
                if let Net::V4(ip) = &mut headers.net {
                    ip.dst = [10, 0, 0, 9].into();
                }
            },
            Discard::NotOurAddress,
        ),
        ("QPN", |headers| headers.bth.dest_qp = 0x7777, Discard::UnknownQp),
        ("version", |headers| headers.bth.transport_version = 1, Discard::BadTransportVersion),
    ];
    for (name, change, discard) in table {
        let mut scripted = Scripted::rc();
        let remote = scripted.node.remote(0);
        let write = scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8);
        let outcome = scripted.send(&write.ack_req().change(change));
        assert_eq!(outcome, Err(discard), "{name}");
        assert!(scripted.frames().is_empty(), "{name}");
    }
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let write = scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8);
    assert_eq!(scripted.send(&write.bad_icrc()), Err(Discard::BadIcrc));
}
