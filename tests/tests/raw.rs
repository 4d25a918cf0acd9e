//! Raw packets: frames of the application's own making, sent as they are.

use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    QpState, QpType, Qpn, RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, UdTarget, VerbsError,
    WcOpcode, WcStatus,
};
use ferroce_tests::memory::BASE;
use ferroce_tests::node::address;
use ferroce_tests::{Node, statuses};

use WcStatus::{LocLenErr, LocProtErr, Success, WrFlushErr};

/// Where frames are made in memory.
const FRAME_AT: u64 = 0x1_0000;

/// A node with a raw packet QP in RTS.
fn raw() -> (Node, Qpn) {
    let mut node = Node::new(1);
    let qpn = node.create(QpType::RawPacket);
    let attr = node.attr_to(&address(2), Qpn(0));
    node.bring_up(qpn, &attr, QpState::Rts);
    (node, qpn)
}

/// A node with a UD QP in RTS and one receive posted.
fn receiver(number: u8) -> (Node, Qpn) {
    let mut node = Node::new(number);
    let qpn = node.create(QpType::Ud);
    let attr = node.attr_to(&address(1), Qpn(0));
    node.bring_up(qpn, &attr, QpState::Rts);
    node.post_recv(qpn, 7, 0, 2048);
    (node, qpn)
}

/// A datagram of node 3, as a frame, to a QP at `to`.
fn datagram(to: &ferroce_stack::GidEntry, qpn: Qpn) -> Vec<u8> {
    let (mut node, from) = receiver(3);
    let attr = node.attr_to(to, qpn);
    let ah = node.device.create_ah(node.pd, &attr.ah_attr).expect("AH");
    node.device.memory_mut().put(BASE, b"datagram");
    let sges = [node.sge(0, 8)];
    let ud = Some(UdTarget { ah, qpn, qkey: attr.qkey });
    node.post_wr(from, &SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) });
    node.next_frame().expect("a datagram").frame
}

/// Sends `frame` from memory.
fn inject(node: &mut Node, qpn: Qpn, wr_id: u64, frame: &[u8]) {
    node.device.memory_mut().put(BASE + FRAME_AT, frame);
    node.post(qpn, wr_id, SendOp::Send, FRAME_AT, frame.len() as u32);
}

/// The frames a node puts on the link, which need not be packets.
fn frames(node: &mut Node) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut frame = vec![0; node.device.max_frame_len()];
    while let Some(len) = node.device.poll_transmit(node.now, &mut frame) {
        frames.push(frame[..len].to_vec());
    }
    frames
}

#[test]
fn a_forged_datagram_is_as_good_as_a_real_one() {
    let (mut peer, peer_qpn) = receiver(2);
    let (mut node, qpn) = raw();
    let forged = datagram(&peer.entry, peer_qpn);
    inject(&mut node, qpn, 1, &forged);
    assert_eq!(frames(&mut node), std::slice::from_ref(&forged), "byte for byte");
    let sent = node.sent();
    assert_eq!(statuses(&sent), [(1, Success)]);
    assert_eq!((sent[0].opcode, sent[0].byte_len), (WcOpcode::Send, forged.len() as u32));
    assert_eq!(peer.receive(&forged), Ok(()));
    assert_eq!(statuses(&peer.received()), [(7, Success)]);
    assert_eq!(peer.device.memory().bytes(BASE + 40, 8), b"datagram");
}

#[test]
fn garbage_leaves_as_it_is_and_harms_nobody() {
    let (mut peer, peer_qpn) = receiver(2);
    let (mut node, qpn) = raw();
    let mut damaged = datagram(&peer.entry, peer_qpn);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let garbage: [&[u8]; 4] = [&damaged, &[0xff; 14], &[0; 64], &[0x45; 1500]];
    for (wr_id, frame) in (0..).zip(garbage) {
        inject(&mut node, qpn, wr_id, frame);
        assert_eq!(frames(&mut node), [frame]);
        assert!(peer.receive(frame).is_err());
    }
    assert_eq!(peer.device.counters().discarded(Discard::BadIcrc), 1);
    assert!(node.sent().iter().all(|wc| wc.status == Success));
    assert!(peer.received().is_empty());
    assert_eq!(peer.device.outstanding(peer_qpn), Some((0, 1)));
    assert_eq!(peer.state(peer_qpn), QpState::Rts);
}

#[test]
fn a_frame_the_link_does_not_take_fails_here() {
    let (node, _) = raw();
    let longest = node.device.max_frame_len() as u32;
    for (length, status) in [
        (0, LocLenErr),
        (13, LocLenErr),
        (14, Success),
        (longest, Success),
        (longest + 1, LocLenErr),
    ] {
        let (mut node, qpn) = raw();
        node.post(qpn, 1, SendOp::Send, FRAME_AT, length);
        node.post(qpn, 2, SendOp::Send, FRAME_AT, 64);
        let behind = if status == Success { Success } else { WrFlushErr };
        let sent = if status == Success { 2 } else { 0 };
        assert_eq!(frames(&mut node).len(), sent, "{length} bytes");
        assert_eq!(statuses(&node.sent()), [(1, status), (2, behind)], "{length} bytes");
        let state = if status == Success { QpState::Rts } else { QpState::Sqe };
        assert_eq!(node.state(qpn), state);
    }
}

#[test]
fn a_wrong_key_fails_the_send_queue_alone() {
    let (mut node, qpn) = raw();
    let sges = [Sge { lkey: 0x00de_ad00, ..node.sge(0, 64) }];
    node.post_wr(qpn, &SendWr::new(1, SendOp::Send, &sges));
    assert!(frames(&mut node).is_empty());
    assert_eq!(statuses(&node.sent()), [(1, LocProtErr)]);
    assert_eq!(node.state(qpn), QpState::Sqe);
    node.to_state(qpn, QpState::Rts);
    inject(&mut node, qpn, 2, &[1; 60]);
    assert_eq!(frames(&mut node).len(), 1);
}

#[test]
fn inline_bytes_and_several_pieces_make_one_frame() {
    let (mut node, qpn) = raw();
    let bytes: Vec<u8> = (0..64).collect();
    node.device.memory_mut().put(BASE, &bytes);
    let sges = [node.sge(0, 10), node.sge(10, 54)];
    node.post_wr(qpn, &SendWr::new(1, SendOp::Send, &sges));
    let flags = SendFlags::SIGNALED;
    let data = SendData::Inline(&bytes);
    node.post_wr(qpn, &SendWr { data, flags, ..SendWr::new(2, SendOp::Send, &[]) });
    assert_eq!(frames(&mut node), [bytes.clone(), bytes]);
}

#[test]
fn only_send_is_an_operation_and_nobody_is_addressed() {
    let (mut node, qpn) = raw();
    let sges = [node.sge(0, 64)];
    let imm = SendWr::new(1, SendOp::SendImm([0; 4]), &sges);
    assert_eq!(node.device.post_send(qpn, &imm), Err(VerbsError::NotSupported));
    let write = SendWr::new(1, SendOp::Write(node.remote(0)), &sges);
    assert_eq!(node.device.post_send(qpn, &write), Err(VerbsError::NotSupported));
    let attr = node.attr_to(&address(2), Qpn(5));
    let ah = node.device.create_ah(node.pd, &attr.ah_attr).expect("AH");
    let ud = Some(UdTarget { ah, qpn: Qpn(5), qkey: 1 });
    let addressed = SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) };
    assert_eq!(node.device.post_send(qpn, &addressed), Err(VerbsError::Invalid));
}

#[test]
fn receives_wait_for_ever_and_are_flushed() {
    let (mut node, qpn) = raw();
    let sges = [node.sge(0, 2048)];
    node.device.post_recv(qpn, &RecvWr { wr_id: 1, sges: &sges }).expect("posted");
    let entry = node.entry;
    assert_eq!(node.receive(&datagram(&entry, qpn)), Err(Discard::WrongService));
    assert!(node.received().is_empty());
    node.to_state(qpn, QpState::Err);
    assert_eq!(statuses(&node.received()), [(1, WrFlushErr)]);
}

/// A group's members of this device hear a frame of its own, if it is one of theirs.
#[test]
fn a_forged_multicast_reaches_the_members_here_only_if_it_is_right() {
    let (mut node, qpn) = raw();
    let group = Gid::from(std::net::Ipv4Addr::new(239, 1, 2, 3));
    let member = node.create(QpType::Ud);
    let attr = node.attr_to(&address(2), Qpn(0));
    node.bring_up(member, &attr, QpState::Rts);
    node.device.attach_mcast(member, group).expect("attached");
    node.post_recv(member, 9, 0, 2048);
    let to = ferroce_stack::GidEntry { gid: group, ..address(2) };
    let forged = datagram(&to, Qpn::MULTICAST);
    let mut damaged = forged.clone();
    damaged[forged.len() - 1] ^= 1;
    inject(&mut node, qpn, 1, &damaged);
    frames(&mut node);
    assert!(node.received().is_empty());
    inject(&mut node, qpn, 2, &forged);
    frames(&mut node);
    assert_eq!(statuses(&node.received()), [(9, Success)]);
}

/// Its transition needs a port and nothing else, not even a PSN.
#[test]
fn it_has_no_psn() {
    let (mut node, qpn) = raw();
    inject(&mut node, qpn, 1, &[0; 64]);
    frames(&mut node);
    let (attr, _) = node.device.query_qp(qpn).expect("QP");
    assert_eq!(attr.sq_psn, Psn::default());
}
