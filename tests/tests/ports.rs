//! The port's tables at work: GIDs that come and go, P_Keys by index, link events, access flags
//! changed while running, congestion notifications.

use ferroce_stack::discard::Discard;
use ferroce_stack::verbs::{
    Access, AttrMask, Event, EventKind, QpAttr, QpState, QpType, Qpn, SendOp,
};
use ferroce_stack::wire::Opcode;
use ferroce_stack::{Config, GidEntry, GidType};
use ferroce_tests::node::address;
use ferroce_tests::{EPSN, Expected, Node, PSN, Peer, Scripted, expect_packets, packet};

/// A QP whose GID is taken away hears nothing more and fails nobody.
#[test]
fn a_gid_taken_away_hears_nothing() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let write = scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8);
    scripted.node.device.remove_gid(0).unwrap();
    assert_eq!(scripted.node.events(), [Event::Port(EventKind::GidChange)]);
    assert_eq!(scripted.send(&write), Err(Discard::NotOurAddress));
    assert_eq!(scripted.state(), QpState::Rts);
    let entry = scripted.node.entry;
    assert_eq!(scripted.node.device.add_gid(entry), Ok(0), "the first free index");
    scripted.deliver(&write);
}

/// A v1 entry does not hear v2 packets, nor the reverse.
#[test]
fn a_gid_hears_its_own_framing() {
    let mut node = Node::new(1);
    let entry = GidEntry { gid_type: GidType::RoceV1, ..address(7) };
    node.device.add_gid(entry).unwrap();
    let qpn = node.create(QpType::Ud);
    let attr = node.attr_to(&address(2), Qpn(0));
    node.bring_up(qpn, &attr, QpState::Rts);
    node.post_recv(qpn, 1, 0, 100);
    let peer =
        Peer { own: address(2), own_qpn: Qpn(9), to: entry, to_qpn: qpn, qkey: attr.qkey, srqn: 0 };
    let frame = peer.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 8).frame();
    assert_eq!(node.receive(&frame), Err(Discard::NotOurAddress));
}

#[test]
fn link_changes_raise_events_once() {
    let mut node = Node::new(1);
    for active in [false, false, true, true] {
        node.device.set_port_active(active);
    }
    let expected = [Event::Port(EventKind::PortErr), Event::Port(EventKind::PortActive)];
    assert_eq!(node.events(), expected);
    assert!(node.device.query_port().active);
}

/// The P_Key of a QP is that of its index, on requests and on answers.
#[test]
fn a_qp_sends_the_pkey_of_its_index() {
    let config = Config { pkeys: vec![0xffff, 0x8005], ..Config::default() };
    let mut node = Node::with_config(address(1), config);
    let qpn = node.create(QpType::Rc);
    let attr = QpAttr { pkey_index: 1, ..node.attr_to(&address(2), Qpn(0x55)) };
    node.bring_up(qpn, &attr, QpState::Rts);
    let peer =
        Peer { own: address(2), own_qpn: Qpn(0x55), to: address(1), to_qpn: qpn, qkey: 0, srqn: 0 };
    node.post(qpn, 1, SendOp::Send, 0, 8);
    let remote = node.remote(0);
    let write = peer.packet(Opcode::RC_WRITE_ONLY, PSN).reth(remote, 8).fill(1, 8).ack_req();
    assert_eq!(node.receive(&write.frame()), Err(Discard::BadPkey), "the key of index 0");
    let write = write.change(|headers| headers.bth.pkey = 0x0005);
    node.receive(&write.frame()).unwrap();
    let frames = node.transmit();
    assert_eq!(frames.len(), 2);
    assert!(frames.iter().all(|seen| seen.headers.bth.pkey == 0x8005), "{frames:?}");
}

/// Access flags changed in RTS hold from the next request on.
#[test]
fn access_flags_change_in_rts() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let write =
        |psn| scripted.peer.packet(Opcode::RC_WRITE_ONLY, psn).reth(remote, 8).fill(1, 8).ack_req();
    let (first, second) = (write(EPSN), write(EPSN + 1));
    expect_packets("allowed", &scripted.exchange(&[first]), &[Expected::ack(EPSN)]);
    let attr = QpAttr {
        qp_state: QpState::Rts,
        qp_access_flags: Access::REMOTE_READ,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::ACCESS_FLAGS;
    scripted.node.device.modify_qp(scripted.qpn, &attr, mask).unwrap();
    expect_packets("no more", &scripted.exchange(&[second]), &[Expected::nak(EPSN + 1, 0x61)]);
}

/// A congestion notification is taken, counted, and never answered; 0x80 is none.
#[test]
fn a_congestion_notification_is_counted_and_not_answered() {
    let mut scripted = Scripted::rc();
    let cnp = |opcode| scripted.peer.packet(Opcode(opcode), 0).fill(0, 16);
    let (right, wrong) = (cnp(0x81).change(|headers| headers.bth.becn = true), cnp(0x80));
    scripted.deliver(&right);
    assert_eq!(scripted.node.device.counters().rp_cnp_handled, 1);
    assert_eq!(scripted.send(&wrong), Err(Discard::UnknownOpcode));
    assert!(scripted.frames().is_empty());
    assert_eq!(scripted.state(), QpState::Rts);
}

/// Without an alternate path the path state is MIGRATED: M is 1, and what the peer says is
/// ignored (IBA 17.2.8).
#[test]
fn path_state_is_migrated_and_the_peers_ignored() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    let write = scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8).ack_req();
    let frames = scripted.exchange(&[write.change(|headers| headers.bth.mig_req = false)]);
    let both = [packet(Opcode::RC_SEND_ONLY), Expected::ack(EPSN)];
    let mut sorted = frames.clone();
    sorted.sort_by_key(|seen| std::cmp::Reverse(seen.psn()));
    expect_packets("request and answer", &sorted, &both);
    assert!(frames.iter().all(|seen| seen.headers.bth.mig_req));
}

/// QP1 takes any P_Key of the port's table, other QPs their own alone.
#[test]
fn gsi_takes_every_pkey_of_the_table() {
    for (qp_type, pkey, taken) in [
        (QpType::Gsi, 0xffff, true),
        (QpType::Gsi, 0x8005, true),
        (QpType::Gsi, 0x8006, false),
        (QpType::Ud, 0xffff, true),
        (QpType::Ud, 0x8005, false),
    ] {
        let config = Config { pkeys: vec![0xffff, 0x8005], ..Config::default() };
        let mut node = Node::with_config(address(1), config);
        let qpn = node.create(qp_type);
        let attr = node.attr_to(&address(2), Qpn(0));
        node.bring_up(qpn, &attr, QpState::Rts);
        node.post_recv(qpn, 1, 0, 100);
        let qkey = if qp_type == QpType::Gsi { 0x8001_0000 } else { attr.qkey };
        let (own, own_qpn) = (address(2), Qpn(1));
        let peer = Peer { own, own_qpn, to: address(1), to_qpn: qpn, qkey, srqn: 0 };
        let datagram = peer.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 8);
        let frame = datagram.change(|headers| headers.bth.pkey = pkey).frame();
        assert_eq!(node.receive(&frame).is_ok(), taken, "{pkey:#x} to {qp_type:?}");
    }
}

/// A connection hears its peer on its own address alone, however many the port has.
#[test]
fn a_connection_hears_on_its_own_gid() {
    let mut scripted = Scripted::rc();
    scripted.node.device.add_gid(address(7)).unwrap();
    let remote = scripted.node.remote(0);
    let peer = Peer { to: address(7), ..scripted.peer };
    let write = peer.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8);
    assert_eq!(scripted.send(&write), Err(Discard::WrongPeer));
    assert_eq!(scripted.state(), QpState::Rts);
}
