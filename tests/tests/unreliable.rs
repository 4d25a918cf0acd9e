//! UC (IBA 9.8.2), UD (IBA 9.8.3) and the general services QP (IBA 13.5).

use std::net::Ipv6Addr;

use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Event, EventKind, QpAttr, QpState, QpType, Qpn, SendFlags, SendOp, SendWr, UdTarget, WcStatus,
};
use ferroce_stack::wire::{Net, Opcode};
use ferroce_stack::{Config, GidEntry};
use ferroce_tests::memory::BASE;
use ferroce_tests::node::address;
use ferroce_tests::{Builder, EPSN, Node, PSN, SEC, Scripted, expect_packets, packet, statuses};

use WcStatus::Success;

const GSI_QKEY: u32 = 0x8001_0000;

fn uc() -> Scripted {
    let mut scripted = Scripted::new(QpType::Uc);
    for wr_id in 11..=13 {
        scripted.post_recv(wr_id, 8192 * (wr_id - 10), 4096);
    }
    scripted
}

fn received(scripted: &mut Scripted) -> Vec<u64> {
    let received = scripted.node.received();
    assert!(received.iter().all(|wc| wc.status == Success), "{received:?}");
    received.iter().map(|wc| wc.wr_id).collect()
}

/// P09: AckReq is not set, nothing is awaited, nothing is sent again.
#[test]
fn uc_completes_when_the_last_packet_has_left() {
    let mut scripted = Scripted::new(QpType::Uc);
    let remote = scripted.node.remote(0);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 2500);
    scripted.node.post(scripted.qpn, 2, SendOp::WriteImm(remote, [1; 4]), 0, 8);
    let expected = [
        packet(Opcode::UC_SEND_FIRST).psn(PSN).ack_req(false),
        packet(Opcode::UC_SEND_MIDDLE).psn(PSN + 1).ack_req(false),
        packet(Opcode::UC_SEND_LAST).psn(PSN + 2).ack_req(false),
        packet(Opcode::UC_WRITE_ONLY_IMM).psn(PSN + 3).ack_req(false),
    ];
    expect_packets("UC", &scripted.frames(), &expected);
    assert_eq!(statuses(&scripted.node.sent()), [(1, Success), (2, Success)]);
    assert!(scripted.node.run_for(100 * SEC).is_empty());
}

/// P09: AckReq is ignored on receipt.
#[test]
fn uc_does_not_answer() {
    let mut scripted = uc();
    let remote = scripted.node.remote(0);
    let packets = [
        scripted.packet(Opcode::UC_SEND_ONLY, EPSN).fill(1, 8).ack_req(),
        scripted.packet(Opcode::UC_WRITE_ONLY, EPSN + 1).reth(remote, 8).fill(9, 8).ack_req(),
        scripted.packet(Opcode::UC_WRITE_ONLY_IMM, EPSN + 2).reth(remote, 0).imm([1; 4]).ack_req(),
    ];
    assert!(scripted.exchange(&packets).is_empty());
    assert_eq!(received(&mut scripted), [11, 12]);
    assert_eq!(scripted.node.device.memory().bytes(BASE, 8), [9; 8]);
}

/// A PSN that is not the expected one: First and Only begin anew there, the rest is dropped.
#[test]
fn uc_restarts_at_the_next_message() {
    for psn in [EPSN + 3, EPSN - 3, EPSN + 0x80_0000] {
        for opcode in [Opcode::UC_SEND_MIDDLE, Opcode::UC_SEND_LAST] {
            let mut scripted = uc();
            let len = if opcode == Opcode::UC_SEND_MIDDLE { 1024 } else { 8 };
            scripted.send(&scripted.packet(opcode, psn).fill(1, len)).unwrap_err();
            assert!(received(&mut scripted).is_empty());
        }
        let mut scripted = uc();
        let psn = Psn::new(psn);
        scripted.deliver(&scripted.packet(Opcode::UC_SEND_FIRST, psn.value()).fill(1, 1024));
        let last = scripted.packet(Opcode::UC_SEND_LAST, psn.advance(1).value()).fill(2, 8);
        scripted.deliver(&last);
        assert_eq!(received(&mut scripted), [11], "from {psn:?}");
        assert_eq!(scripted.node.device.memory().bytes(BASE + 8192, 1024), [1; 1024]);
        assert_eq!(scripted.node.device.memory().bytes(BASE + 8192 + 1024, 8), [2; 8]);
    }
}

/// A lost packet loses its message; the messages around it arrive.
#[test]
fn uc_loses_only_the_message_of_a_lost_packet() {
    let message = |scripted: &Scripted, psn: u32| {
        vec![
            scripted.packet(Opcode::UC_SEND_FIRST, psn).fill(1, 1024),
            scripted.packet(Opcode::UC_SEND_MIDDLE, psn + 1).fill(2, 1024),
            scripted.packet(Opcode::UC_SEND_LAST, psn + 2).fill(3, 24),
        ]
    };
    for lost in 3..6 {
        let mut scripted = uc();
        let packets: Vec<Builder> = [EPSN, EPSN + 3, EPSN + 6]
            .into_iter()
            .flat_map(|psn| message(&scripted, psn))
            .collect();
        for (at, packet) in packets.iter().enumerate() {
            if at != lost {
                // What is left of the broken message is ignored.
                scripted.send(packet).ok();
            }
        }
        assert_eq!(received(&mut scripted), [11, 12], "packet {lost} lost");
    }
}

#[test]
fn uc_without_a_receive_drops_the_whole_message() {
    let mut scripted = Scripted::new(QpType::Uc);
    let first = scripted.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1024);
    assert_eq!(scripted.send(&first), Err(Discard::NoReceive));
    scripted.post_recv(11, 0, 4096);
    scripted.send(&scripted.packet(Opcode::UC_SEND_LAST, EPSN + 1).fill(1, 8)).unwrap_err();
    assert!(received(&mut scripted).is_empty());
    scripted.deliver(&scripted.packet(Opcode::UC_SEND_ONLY, EPSN + 2).fill(1, 8));
    assert_eq!(received(&mut scripted), [11]);
}

/// A WRITE that overruns its region is refused at First: no byte of it is placed.
#[test]
fn uc_checks_the_whole_range_of_a_write_first() {
    use ferroce_stack::verbs::{Access, Remote};
    let mut scripted = uc();
    let keys = scripted.node.reg_mr(0, 1500, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
    let remote = Remote { addr: BASE, rkey: keys.rkey };
    let first = scripted.packet(Opcode::UC_WRITE_FIRST, EPSN).reth(remote, 2048).fill(1, 1024);
    scripted.send(&first).unwrap_err();
    assert_eq!(scripted.node.device.memory().bytes(BASE, 1024), [0; 1024]);
    assert_eq!(scripted.state(), QpState::Rts);
}

/// A UD QP at the node's address, its path to node 2, and a receive of `length` bytes.
fn ud(length: u32) -> Scripted {
    let mut scripted = Scripted::new(QpType::Ud);
    scripted.post_recv(11, 8192, length);
    scripted
}

/// The first 40 bytes are the network header's: 20 undefined and the IPv4 header, or IPv6.
#[test]
fn ud_payload_follows_forty_bytes_of_header() {
    let mut scripted = ud(140);
    let datagram = scripted.packet(Opcode::UD_SEND_ONLY_IMM, 77).imm([4; 4]).fill(9, 100);
    let frame = datagram.frame();
    scripted.deliver(&datagram.solicited());
    let completions = scripted.node.received();
    assert_eq!(statuses(&completions), [(11, Success)]);
    let wc = completions[0];
    assert_eq!((wc.byte_len, wc.imm_data, wc.grh), (140, Some([4; 4]), true));
    assert_eq!(wc.src_qp, scripted.peer.own_qpn);
    let memory = scripted.node.device.memory();
    assert_eq!(memory.bytes(BASE + 8192 + 20, 20), &frame[14..34]);
    assert_eq!(memory.bytes(BASE + 8192 + 40, 100), [9; 100]);

    let v6 = |last| GidEntry {
        gid: Gid::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)),
        ..address(last as u8)
    };
    let mut node = Node::with_config(v6(1), Config::default());
    let qpn = node.create(QpType::Ud);
    let attr = node.attr_to(&v6(2), Qpn(0));
    node.bring_up(qpn, &attr, QpState::Rts);
    node.post_recv(qpn, 12, 8192, 140);
    let peer = ferroce_tests::Peer { own: v6(2), to: v6(1), to_qpn: qpn, ..scripted.peer };
    let frame = peer.packet(Opcode::UD_SEND_ONLY, 0).fill(8, 100).frame();
    node.receive(&frame).unwrap();
    assert_eq!(statuses(&node.received()), [(12, Success)]);
    assert_eq!(node.device.memory().bytes(BASE + 8192, 40), &frame[14..54]);
    assert_eq!(node.device.memory().bytes(BASE + 8192 + 40, 100), [8; 100]);
}

/// The receiver takes any PSN, in any order.
#[test]
fn ud_ignores_the_psn() {
    let mut scripted = ud(48);
    scripted.post_recv(12, 8192, 48);
    scripted.post_recv(13, 8192, 48);
    for psn in [9, 9, 0xff_ffff] {
        scripted.deliver(&scripted.packet(Opcode::UD_SEND_ONLY, psn).fill(1, 8).ack_req());
    }
    assert!(scripted.frames().is_empty());
    assert_eq!(received(&mut scripted), [11, 12, 13]);
}

/// A buffer too short by a byte: dropped in silence, and there for the next datagram.
#[test]
fn ud_that_does_not_fit_leaves_the_receive() {
    let mut scripted = ud(47);
    scripted.send(&scripted.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 8)).unwrap_err();
    assert!(received(&mut scripted).is_empty());
    assert_eq!(scripted.state(), QpState::Rts);
    scripted.deliver(&scripted.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 7));
    assert_eq!(received(&mut scripted), [11]);
}

#[test]
fn ud_without_a_receive_is_dropped() {
    let mut scripted = Scripted::new(QpType::Ud);
    let datagram = scripted.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 8);
    assert_eq!(scripted.send(&datagram), Err(Discard::NoReceive));
}

/// All 32 bits of the Q_Key count; a mismatch is dropped and counted.
#[test]
fn ud_checks_the_qkey() {
    for damage in [1, 1 << 16, 1 << 31] {
        let mut scripted = ud(48);
        let mut datagram = scripted.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 8);
        if let Some(deth) = &mut datagram.headers.ext.deth {
            deth.qkey ^= damage;
        }
        assert_eq!(scripted.send(&datagram), Err(Discard::BadQkey));
        assert_eq!(scripted.node.device.query_port().qkey_viol_cntr, 1);
        assert!(received(&mut scripted).is_empty());
    }
}

/// The work request's Q_Key is sent, unless its top bit is set: then the QP's own (IBA 10.2.5).
#[test]
fn ud_sends_the_qkey_it_may() {
    for (asked, sent) in [(0x1234, 0x1234), (0x7fff_ffff, 0x7fff_ffff), (0x8000_0001, 0x1111_1111)]
    {
        let mut scripted = ud(48);
        let to = scripted.node.attr_to(&scripted.peer.own, Qpn(0)).ah_attr;
        let ah = scripted.node.device.create_ah(scripted.node.pd, &to).unwrap();
        let ud = Some(UdTarget { ah, qpn: Qpn(0x99), qkey: asked });
        let sges = [scripted.node.sge(0, 8)];
        for wr_id in 1..=2 {
            let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
            let wr = SendWr { ud, flags, ..SendWr::new(wr_id, SendOp::Send, &sges) };
            scripted.node.post_wr(scripted.qpn, &wr);
        }
        let expected = [
            packet(Opcode::UD_SEND_ONLY).psn(PSN).dest_qp(0x99).ack_req(false).solicited(true),
            packet(Opcode::UD_SEND_ONLY).psn(PSN + 1),
        ];
        let frames = scripted.frames();
        expect_packets("datagrams", &frames, &expected);
        let deth = frames[0].headers.ext.deth.unwrap();
        assert_eq!((deth.qkey, deth.src_qp), (sent, scripted.qpn.0), "asked for {asked:#x}");
        assert_eq!(statuses(&scripted.node.sent()), [(1, Success), (2, Success)]);
    }
}

/// Traffic class, hop limit and SL of the address handle.
#[test]
fn ud_headers_are_those_of_the_handle() {
    let mut scripted = ud(48);
    let attr: QpAttr = scripted.node.attr_to(&scripted.peer.own, Qpn(0));
    let to = ferroce_stack::verbs::AhAttr { traffic_class: 0x6a, hop_limit: 9, ..attr.ah_attr };
    let ah = scripted.node.device.create_ah(scripted.node.pd, &to).unwrap();
    let ud = Some(UdTarget { ah, qpn: Qpn(0x99), qkey: 1 });
    let sges = [scripted.node.sge(0, 8)];
    scripted.node.post_wr(scripted.qpn, &SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) });
    let Net::V4(ip) = scripted.frames()[0].headers.net else { panic!("IPv4") };
    assert_eq!((ip.tos, ip.ttl, ip.dst), (0x6a, 9, scripted.peer.own.gid.ipv4().unwrap()));
}

/// QP1: its Q_Key is fixed whatever was configured, and a long datagram does not silence it.
#[test]
fn gsi_has_its_own_qkey_and_survives_a_long_datagram() {
    let mut scripted = Scripted::new(QpType::Gsi);
    assert_eq!(scripted.qpn, Qpn::GSI);
    scripted.post_recv(11, 8192, 40 + 256);
    let datagram = |scripted: &Scripted, qkey, len| {
        let mut datagram = scripted.packet(Opcode::UD_SEND_ONLY, 0).fill(1, len);
        if let Some(deth) = &mut datagram.headers.ext.deth {
            deth.qkey = qkey;
        }
        datagram
    };
    let wrong = datagram(&scripted, 0x1111_1111, 256);
    assert_eq!(scripted.send(&wrong), Err(Discard::BadQkey));
    scripted.send(&datagram(&scripted, GSI_QKEY, 257)).unwrap_err();
    assert!(received(&mut scripted).is_empty());
    scripted.deliver(&datagram(&scripted, GSI_QKEY, 256));
    assert_eq!(received(&mut scripted), [11]);
    assert!(
        scripted
            .node
            .events()
            .iter()
            .all(|event| { !matches!(event, Event::Qp(_, EventKind::CommEst)) })
    );
    let to = scripted.node.attr_to(&scripted.peer.own, Qpn(0)).ah_attr;
    let ah = scripted.node.device.create_ah(scripted.node.pd, &to).unwrap();
    let ud = Some(UdTarget { ah, qpn: Qpn::GSI, qkey: GSI_QKEY });
    let sges = [scripted.node.sge(0, 256)];
    scripted.node.post_wr(scripted.qpn, &SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) });
    let frames = scripted.frames();
    expect_packets("MAD", &frames, &[packet(Opcode::UD_SEND_ONLY).dest_qp(1).payload_len(256)]);
    let deth = frames[0].headers.ext.deth.unwrap();
    assert_eq!((deth.qkey, deth.src_qp), (GSI_QKEY, 1));
    assert_eq!(frames[0].headers.bth.pkey, 0xffff);
}
