//! Peers that depart from the standard and are declared to.

use ferroce_stack::Config;
use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::icrc;
use ferroce_stack::verbs::{Access, FlushLevel, QpType, SendData, SendFlags, SendOp, SendWr};
use ferroce_stack::wire::{Opcode, Packet};

use ferroce_tests::link::Link;
use ferroce_tests::node::{Node, address};

/// Node 1, to which node 2 is rxe or not, and the other way.
fn link(a_knows: bool, b_knows: bool) -> Link {
    let node = |number, peer: u8, knows: bool| {
        let peers: Vec<Gid> = knows.then_some(address(peer).gid).into_iter().collect();
        Node::with_config(address(number), Config { rxe_flush_peers: peers, ..Config::default() })
    };
    Link { a: node(1, 2, a_knows), b: node(2, 1, b_knows) }
}

/// The frame of a WRITE of 8 bytes and of a FLUSH of them that `a` sends.
fn write_and_flush(link: &mut Link) -> [Vec<u8>; 2] {
    let (qpn, _) = link.pair(QpType::Rc);
    let remote = link.b.remote(0);
    let (level, placement) = (FlushLevel::Range, Access::FLUSH_GLOBAL);
    link.a.post(qpn, 1, SendOp::Write(remote), 0, 8);
    let op = SendOp::Flush { remote, length: 8, level, placement };
    let (data, flags) = (SendData::Sges(&[]), SendFlags::SIGNALED);
    link.a.post_wr(qpn, &SendWr { wr_id: 2, op, data, flags, ud: None, srqn: None });
    [(); 2].map(|()| {
        let mut frame = vec![0; link.a.device.max_frame_len()];
        let len = link.a.device.poll_transmit(link.a.now, &mut frame).expect("a frame");
        frame.truncate(len);
        frame
    })
}

#[test]
fn flush_goes_to_rxe_with_its_icrc_and_all_else_with_the_right_one() {
    for knows in [false, true] {
        let [write, flush] = write_and_flush(&mut link(knows, false));
        assert!(Packet::parse(&write).unwrap().icrc_ok(&write));
        let packet = Packet::parse(&flush).unwrap();
        assert_eq!(packet.headers.bth.opcode, Opcode::RC_FLUSH);
        assert_eq!(packet.icrc_ok(&flush), !knows);
        assert_eq!(packet.icrc == icrc::rxe_flush(&flush, &packet.layout), knows);
    }
}

#[test]
fn flush_is_taken_with_the_icrc_that_its_sender_gives_it() {
    for (a_knows, b_knows) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut link = link(a_knows, b_knows);
        let [write, flush] = write_and_flush(&mut link);
        assert_eq!(link.b.receive(&write), Ok(()));
        let expected = if a_knows == b_knows { Ok(()) } else { Err(Discard::BadIcrc) };
        assert_eq!(link.b.receive(&flush), expected, "{a_knows} {b_knows}");
        assert_eq!(link.b.device.memory().flushes.len(), usize::from(a_knows == b_knows));
    }
}
