//! What is sent again (IBA 9.7.5.1.1): the same packets, from the right one on, once for a loss.

use ferroce_stack::Config;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, FlushLevel, Mtu, QpState, QpType, Qpn, SendData, SendFlags, SendOp, SendWr, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::node::address;
use ferroce_tests::{Link, MS, Node, PSN, SEC, Scripted, Seen, expect_packets, packet, statuses};

/// All that may not differ between a packet and its copy: everything but the IPv4 identification
/// and what is computed over it.
fn content(seen: &Seen) -> impl PartialEq + std::fmt::Debug + use<> {
    (seen.headers.bth, seen.headers.ext, seen.headers.udp, seen.payload.clone())
}

fn every_operation(scripted: &mut Scripted) {
    let remote = scripted.node.remote(0);
    let (level, placement) = (FlushLevel::Range, Access::FLUSH_GLOBAL);
    let work = [
        (SendOp::Send, 3000),
        (SendOp::SendImm([1; 4]), 10),
        (SendOp::SendInv(77), 1030),
        (SendOp::Write(remote), 2048),
        (SendOp::WriteImm(remote, [2; 4]), 1025),
        (SendOp::CompareSwap { remote, compare: 1, swap: 2 }, 8),
        (SendOp::FetchAdd { remote, add: 3 }, 8),
        (SendOp::AtomicWrite(remote, 4), 0),
        (SendOp::Flush { remote, length: 64, level, placement }, 0),
        (SendOp::Read(remote), 2500),
        (SendOp::Write(remote), 0),
    ];
    for (wr_id, (op, length)) in (1..).zip(work) {
        scripted.node.post(scripted.qpn, wr_id, op, 64 * wr_id, length);
    }
}

#[test]
fn a_packet_sent_again_is_the_same_packet() {
    let mut scripted = Scripted::rc();
    let fill: Vec<u8> = (0..1 << 16).map(|at: u32| (at * 7 + at / 251) as u8).collect();
    scripted.node.device.memory_mut().put(BASE, &fill);
    every_operation(&mut scripted);
    let first = scripted.frames();
    let again: Vec<Seen> = scripted.node.run_for(68 * MS).into_iter().map(|(_, s)| s).collect();
    assert_eq!(first.len(), again.len());
    for (first, again) in first.iter().zip(&again) {
        assert_eq!(content(first), content(again));
    }
}

/// A message is resumed in its middle, with the packets as they were.
#[test]
fn a_message_resumes_where_it_was_lost() {
    let mut scripted = Scripted::rc();
    let write = SendOp::Write(scripted.node.remote(0));
    scripted.node.post(scripted.qpn, 1, write, 0, 6 * 1024);
    let first = scripted.frames();
    for lost in 1..6 {
        // Twice the NAK of one loss: one recovery.
        scripted.answer(PSN + lost, 0x60).unwrap();
        scripted.answer(PSN + lost, 0x60).ok();
        let again = scripted.frames();
        let expected: Vec<_> = first[lost as usize..].iter().map(content).collect();
        assert_eq!(again.iter().map(content).collect::<Vec<_>>(), expected, "from {lost}");
    }
}

/// P35: evidence of a loss that is being recovered starts nothing; only a timeout does.
#[test]
fn one_recovery_for_one_loss() {
    let mut scripted = Scripted::rc();
    for wr_id in 0..64 {
        scripted.node.post(scripted.qpn, wr_id, SendOp::Send, 0, 8);
    }
    assert_eq!(scripted.frames().len(), 64);
    let mut resent = 0;
    for _ in 0..30 {
        scripted.answer(PSN + 10, 0x60).ok();
        resent += scripted.frames().len();
    }
    assert_eq!(resent, 54);
    // The first packet sent again is lost as well.
    assert_eq!(scripted.node.run_for(68 * MS).len(), 54);
}

/// READs resume by a new request for the rest; max_rd_atomic counts each once.
#[test]
fn reads_sent_again_count_once() {
    let mut scripted = Scripted::rc_with(|attr| attr.max_rd_atomic = 2);
    let read = SendOp::Read(scripted.node.remote(0));
    for wr_id in 1..=3 {
        scripted.node.post(scripted.qpn, wr_id, read, 0, 2048);
    }
    let two = [
        packet(Opcode::RC_READ_REQUEST).psn(PSN).reth(BASE, 2048),
        packet(Opcode::RC_READ_REQUEST).psn(PSN + 2).reth(BASE, 2048),
    ];
    expect_packets("two at a time", &scripted.frames(), &two);
    for _ in 0..2 {
        let again: Vec<Seen> = scripted.node.run_for(68 * MS).into_iter().map(|(_, s)| s).collect();
        expect_packets("the same two again", &again, &two);
    }
    let first = scripted.packet(Opcode::RC_READ_RESPONSE_FIRST, PSN).aeth(0x1f, 1).fill(1, 1024);
    scripted.deliver(&first);
    let again: Vec<Seen> = scripted.node.run_for(68 * MS).into_iter().map(|(_, s)| s).collect();
    let rest =
        [packet(Opcode::RC_READ_REQUEST).psn(PSN + 1).reth(BASE + 1024, 1024), two[1].clone()];
    expect_packets("the rest of the first", &again, &rest);
    let only = scripted.packet(Opcode::RC_READ_RESPONSE_ONLY, PSN + 1).aeth(0x1f, 1).fill(1, 1024);
    scripted.deliver(&only);
    let third = [packet(Opcode::RC_READ_REQUEST).psn(PSN + 4)];
    expect_packets("one is answered: the third leaves", &scripted.frames(), &third);
}

/// P12: the UDP source port of a flow never changes, and both directions use the same.
#[test]
fn a_flow_keeps_its_source_port() {
    let mut link = Link::default();
    let (a, b) = link.pair(QpType::Rc);
    link.b.post_recv(b, 1, 0, 8);
    link.a.post(a, 1, SendOp::Send, 0, 8);
    let mut lost = false;
    let frames =
        link.run_for_with(SEC, |passing| passing.from_a && std::mem::replace(&mut lost, true));
    let ports: Vec<u16> = frames.iter().map(|frame| frame.seen.headers.udp.source_port).collect();
    assert!(ports.len() >= 3, "a packet, its copy and an answer: {ports:?}");
    assert!(ports[0] >= 0xc000);
    assert!(ports.iter().all(|&port| port == ports[0]), "{ports:x?}");
    let (other, _) = link.pair(QpType::Rc);
    link.a.post(other, 1, SendOp::Send, 0, 8);
    let port = link.a.transmit()[0].headers.udp.source_port;
    assert_ne!(port, ports[0], "another connection, another path");
    let mut scripted = Scripted::rc_with(|attr| attr.ah_attr.flow_label = 0x12345);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames()[0].headers.udp.source_port, 0xe341, "the label decides");
}

/// P34: window and acknowledgement across the end of the PSN space.
#[test]
fn the_window_wraps_with_the_psn() {
    let mut scripted = Scripted::rc_with(|attr| attr.sq_psn = Psn::new(0xff_fff0));
    let write = SendOp::Write(scripted.node.remote(0));
    scripted.node.post(scripted.qpn, 1, write, 0, 1 << 20);
    let window = scripted.node.device.config().window;
    let (mut next, mut acked) = (0u32, 0u32);
    while acked < 1024 {
        for seen in scripted.frames() {
            let expected = Psn::new(0xff_fff0 + next).value();
            assert_eq!(seen.psn(), expected, "packet {next}");
            next += 1;
        }
        assert!(next > acked, "stalled after {next} packets");
        assert!(next - acked <= window, "{} outstanding", next - acked);
        acked = next;
        scripted.answer(0xff_fff0 + acked - 1, 0x1f).unwrap();
    }
    assert_eq!(statuses(&scripted.node.sent()), [(1, WcStatus::Success)]);
}

/// AckReq is on the last packet of every message, and often enough that the window never closes
/// without one.
#[test]
fn the_window_never_closes_without_an_ack_request() {
    let mut scripted = Scripted::rc();
    let write = SendOp::Write(scripted.node.remote(0));
    scripted.node.post(scripted.qpn, 1, write, 0, 1 << 20);
    let frames = scripted.frames();
    assert!(frames.len() < 1024, "the window is smaller than the message");
    let asked = frames.iter().rposition(|seen| seen.headers.bth.ack_req);
    assert!(asked.is_some_and(|at| at + 1 >= frames.len() - 1), "last AckReq at {asked:?}");
    let mut short = Scripted::rc();
    short.node.post(short.qpn, 1, SendOp::Send, 0, 2048);
    let ack_reqs: Vec<bool> = short.frames().iter().map(|s| s.headers.bth.ack_req).collect();
    assert_eq!(ack_reqs, [false, true]);
}

/// SE is set on the last packet of SENDs and WRITEs with immediate, where asked for, alone (P10).
#[test]
fn solicited_is_on_the_last_packet_of_what_takes_a_receive() {
    let scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let (level, placement) = (FlushLevel::Range, Access::FLUSH_GLOBAL);
    let table: [(SendOp, u32, &[bool]); 8] = [
        (SendOp::Send, 2048, &[false, true]),
        (SendOp::SendImm([0; 4]), 8, &[true]),
        (SendOp::SendInv(1), 8, &[true]),
        (SendOp::WriteImm(remote, [0; 4]), 2048, &[false, true]),
        (SendOp::Write(remote), 2048, &[false, false]),
        (SendOp::Read(remote), 8, &[false]),
        (SendOp::FetchAdd { remote, add: 1 }, 8, &[false]),
        (SendOp::Flush { remote, length: 8, level, placement }, 0, &[false]),
    ];
    for (op, length, expected) in table {
        let mut scripted = Scripted::rc();
        let sges = [scripted.node.sge(0, length)];
        let data = SendData::Sges(if length == 0 { &[] } else { &sges });
        let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
        scripted.node.post_wr(scripted.qpn, &SendWr { data, flags, ..SendWr::new(1, op, &[]) });
        let seen: Vec<bool> = scripted.frames().iter().map(|s| s.headers.bth.solicited).collect();
        assert_eq!(seen, expected, "{op:?}");
    }
}

/// AckReq comes at least as often as configured, in the middle of messages too.
#[test]
fn ack_requests_come_as_often_as_configured() {
    for ack_every in [1, 8, 64] {
        let config = Config { ack_every, ..Config::default() };
        let mut node = Node::with_config(address(1), config);
        let qpn = node.create(QpType::Rc);
        let attr = node.attr_to(&address(2), Qpn(0x55));
        node.bring_up(qpn, &attr, QpState::Rts);
        let write = SendOp::Write(node.remote(0));
        node.post(qpn, 1, write, 0, 200 * 1024);
        let mut without = 0;
        for seen in node.transmit() {
            without = if seen.headers.bth.ack_req { 0 } else { without + 1 };
            assert!(without < ack_every, "{without} packets without, {ack_every} configured");
        }
    }
}

/// Messages are cut by the path MTU of their QP.
#[test]
fn messages_are_cut_by_the_path_mtu() {
    for mtu in Mtu::ALL {
        let mut scripted = Scripted::rc_with(|attr| attr.path_mtu = mtu);
        scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 10_001);
        let lengths: Vec<usize> = scripted.frames().iter().map(|s| s.payload.len()).collect();
        let mut expected = vec![mtu.bytes(); 10_001 / mtu.bytes()];
        expected.push(10_001 % mtu.bytes());
        assert_eq!(lengths, expected, "{mtu:?}");
    }
}
