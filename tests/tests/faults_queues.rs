//! Faults on public record around completion queues, SRQs, limits, send completions and multicast.
//! Each test is named for its fault.

use std::net::Ipv6Addr;

use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{
    AhAttr, Event, EventKind, QpState, QpType, Qpn, RecvWr, SendOp, SendWr, Sge, Srq, UdTarget,
    VerbsError, WcStatus,
};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, GidEntry};
use ferroce_tests::node::address;
use ferroce_tests::{Node, PSN, Rig, Scripted, statuses};

use WcStatus::Success;

/// P59: resizing loses nothing, keeps the order, and refuses to drop what is held.
#[test]
fn resizing_a_cq_keeps_every_completion() {
    let mut rig = Rig::new(QpType::Rc);
    let cq = rig.link.a.send_cq;
    let mut seen = Vec::new();
    for wr_id in 0..60 {
        rig.post_recv(wr_id, 0, 64);
        rig.post(wr_id, SendOp::Send, 0, 8);
        rig.link.settle();
        let size = 10 + (wr_id as usize * 7) % 50;
        let held = wr_id as usize + 1 - seen.len();
        let outcome = rig.link.a.device.resize_cq(cq, size);
        let expected = if size < held { Err(VerbsError::Invalid) } else { Ok(()) };
        assert_eq!(outcome, expected, "{size} for {held}");
        if held > 8 {
            seen.extend(rig.sent().iter().map(|&(wr_id, _)| wr_id));
        }
        assert_eq!(rig.states(), (QpState::Rts, QpState::Rts));
    }
    seen.extend(rig.sent().iter().map(|&(wr_id, _)| wr_id));
    assert_eq!(seen, Vec::from_iter(0..60));
}

fn srq_events(node: &mut Node, srq: Srq) -> usize {
    let events = node.events();
    let limit = Event::Srq(srq, EventKind::SrqLimitReached);
    events.into_iter().filter(|&event| event == limit).count()
}

/// P60: the limit fires once below it, then is disarmed until armed again.
#[test]
fn the_srq_limit_fires_once_and_disarms() {
    for limit in [0, 1, 5] {
        let mut rig = Rig::with(
            QpType::Rc,
            |node, init| init.srq = Some(node.create_srq(10, None)),
            |_, _| {},
        );
        let srq = rig.srq.unwrap();
        assert_eq!(rig.link.b.device.query_srq(srq).unwrap().srq_limit, 0, "not armed when made");
        for wr_id in 0..10 {
            rig.post_recv(wr_id, 0, 64);
        }
        rig.link.b.device.modify_srq(srq, None, Some(limit)).unwrap();
        rig.link.b.events();
        let mut fired_at = Vec::new();
        for wr_id in 0..10u32 {
            rig.post(u64::from(wr_id), SendOp::Send, 0, 8);
            rig.link.settle();
            let left = 9 - wr_id;
            fired_at.extend((0..srq_events(&mut rig.link.b, srq)).map(|_| left));
        }
        let expected = limit.checked_sub(1);
        assert_eq!(fired_at, Vec::from_iter(expected), "limit {limit}");
        assert_eq!(rig.link.b.device.query_srq(srq).unwrap().srq_limit, 0, "disarmed");
    }
}

/// P60: armed above what is posted it fires at once; armed again it fires again.
#[test]
fn the_srq_limit_fires_at_once_when_already_below() {
    let mut node = Node::new(1);
    let srq = node.create_srq(10, None);
    for wr_id in 0..3 {
        node.post_srq(srq, wr_id, 0, 64);
    }
    for round in 0..2 {
        node.device.modify_srq(srq, None, Some(4)).unwrap();
        assert_eq!(srq_events(&mut node, srq), 1, "round {round}");
    }
    node.device.modify_srq(srq, None, Some(3)).unwrap();
    assert_eq!(srq_events(&mut node, srq), 0, "three of three");
}

/// P61: the size told is the real one; what is posted survives; no smaller than that.
#[test]
fn resizing_an_srq_keeps_what_is_posted() {
    let mut rig =
        Rig::with(QpType::Rc, |node, init| init.srq = Some(node.create_srq(10, None)), |_, _| {});
    let srq = rig.srq.unwrap();
    for wr_id in 0..7 {
        rig.post_recv(wr_id, 0, 64);
    }
    let device = &mut rig.link.b.device;
    assert!(device.query_srq(srq).unwrap().max_wr >= 10);
    device.modify_srq(srq, Some(100), None).unwrap();
    assert!(device.query_srq(srq).unwrap().max_wr >= 100);
    assert_eq!(device.modify_srq(srq, Some(5), None), Err(VerbsError::Invalid));
    assert!(device.query_srq(srq).unwrap().max_wr >= 100, "nothing changed");
    device.modify_srq(srq, Some(7), None).unwrap();
    let sges = [Sge { addr: 0, length: 0, lkey: 0 }];
    let eighth = device.post_srq_recv(srq, &RecvWr { wr_id: 8, sges: &sges });
    assert_eq!(eighth, Err(VerbsError::NoMemory));
    for wr_id in 0..7 {
        rig.post(wr_id, SendOp::Send, 0, 8);
    }
    rig.link.settle();
    let received: Vec<u64> = rig.received().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(received, [0, 1, 2, 3, 4, 5, 6]);
}

/// P63: the longest message told is the longest taken.
#[test]
fn max_msg_sz_is_what_is_enforced() {
    let mut scripted = Scripted::rc();
    let max = scripted.node.device.query_port().max_msg_sz;
    assert_eq!(max, 1 << 31);
    let remote = scripted.node.remote(0);
    for (lengths, legal) in
        [([max, 0], true), ([max, 1], false), ([max - 1, 1], true), ([u32::MAX, u32::MAX], false)]
    {
        let sges = lengths.map(|length| scripted.node.sge(0, length));
        for op in [SendOp::Send, SendOp::Write(remote), SendOp::Read(remote)] {
            let wr = SendWr::new(1, op, &sges);
            let outcome = scripted.node.device.post_send(scripted.qpn, &wr);
            assert_eq!(outcome.is_ok(), legal, "{lengths:?}, {op:?}");
        }
    }
}

/// P68: immediate data is the receiver's; a send completion has neither flag nor value.
#[test]
fn send_completions_carry_no_immediate() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend] {
        let mut rig = Rig::new(qp_type);
        rig.post_recv(11, 0, 64);
        rig.post_recv(12, 0, 64);
        let remote = rig.link.b.remote(4096);
        rig.post(1, SendOp::SendImm([1, 2, 3, 4]), 0, 8);
        rig.post(2, SendOp::WriteImm(remote, [5, 6, 7, 8]), 0, 8);
        rig.link.settle();
        let sent = rig.link.a.sent();
        assert_eq!(statuses(&sent), [(1, Success), (2, Success)]);
        assert!(sent.iter().all(|wc| wc.imm_data.is_none() && wc.invalidated_rkey.is_none()));
        let received: Vec<_> = rig.received().iter().map(|wc| wc.imm_data).collect();
        assert_eq!(received, [Some([1, 2, 3, 4]), Some([5, 6, 7, 8])], "{qp_type:?}");
    }
}

/// A UD QP, a member of `group`, with `count` receives.
fn member(node: &mut Node, group: Gid, qkey: u32, count: u64) -> Qpn {
    let qpn = node.create(QpType::Ud);
    let mut attr = node.attr_to(&address(9), Qpn(0));
    attr.qkey = qkey;
    node.bring_up(qpn, &attr, QpState::Rts);
    node.device.attach_mcast(qpn, group).unwrap();
    for wr_id in 0..count {
        node.post_recv(qpn, wr_id, 0, 100);
    }
    qpn
}

/// QPs that received, in order of their numbers.
fn hearers(node: &mut Node) -> Vec<Qpn> {
    let mut qpns: Vec<Qpn> = node.received().iter().map(|wc| wc.qp_num).collect();
    qpns.sort();
    qpns
}

/// P69: QPN, MAC, one copy for each member with the right Q_Key, local ones too, the sender not.
#[test]
fn multicast_reaches_every_member_once() {
    let v6 = |last: u8| {
        let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last));
        GidEntry { gid: Gid::from(ip), ..address(last) }
    };
    let v4_group = Gid::from(std::net::Ipv4Addr::new(239, 1, 2, 3));
    let v6_group = Gid::from(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0xa1b2, 0xc3d4));
    let table = [
        (address(1), address(2), v4_group, [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]),
        (v6(1), v6(2), v6_group, [0x33, 0x33, 0xa1, 0xb2, 0xc3, 0xd4]),
    ];
    for (of_a, of_b, group, mac) in table {
        let mut a = Node::with_config(of_a, Config::default());
        let mut b = Node::with_config(of_b, Config::default());
        let sender = member(&mut a, group, 7, 4);
        let local = member(&mut a, group, 7, 4);
        let first = member(&mut b, group, 7, 4);
        let second = member(&mut b, group, 7, 4);
        let other_key = member(&mut b, group, 8, 4);
        let to = AhAttr { dgid: group, hop_limit: 1, ..AhAttr::default() };
        let ah = a.device.create_ah(a.pd, &to).unwrap();
        let ud = Some(UdTarget { ah, qpn: Qpn::MULTICAST, qkey: 7 });
        let sges = [a.sge(0, 16)];
        let round = |a: &mut Node, b: &mut Node| {
            a.post_wr(sender, &SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) });
            let frames = a.transmit();
            assert_eq!(frames.len(), 1);
            let headers = &frames[0].headers;
            assert_eq!(headers.bth.dest_qp, 0xff_ffff);
            assert_eq!(headers.eth.dst, Mac(mac));
            b.receive(&frames[0].frame).unwrap();
            (hearers(a), hearers(b))
        };
        assert_eq!(round(&mut a, &mut b), (vec![local], vec![first, second]));
        b.device.detach_mcast(first, group).unwrap();
        assert_eq!(round(&mut a, &mut b), (vec![local], vec![second]));
        a.device.detach_mcast(local, group).unwrap();
        assert_eq!(round(&mut a, &mut b), (vec![], vec![second]));
        assert_eq!(b.device.destroy_qp(second), Err(VerbsError::Busy), "while attached");
        b.device.detach_mcast(second, group).unwrap();
        b.device.destroy_qp(second).unwrap();
        b.device.destroy_qp(other_key).unwrap_err();
    }
}

/// P69: attaching twice is attaching once.
#[test]
fn attaching_twice_gives_one_copy() {
    let group = Gid::from(std::net::Ipv4Addr::new(239, 1, 2, 3));
    let mut node = Node::new(1);
    let qpn = member(&mut node, group, 0x1111_1111, 4);
    node.device.attach_mcast(qpn, group).unwrap();
    let mut scripted = Scripted::new(QpType::Ud);
    scripted.peer.to.gid = group;
    scripted.peer.to_qpn = Qpn::MULTICAST;
    let frame = scripted.packet(ferroce_stack::wire::Opcode::UD_SEND_ONLY, 0).fill(1, 8).frame();
    node.receive(&frame).unwrap();
    assert_eq!(hearers(&mut node), [qpn]);
    node.device.detach_mcast(qpn, group).unwrap();
    assert_eq!(node.receive(&frame), Err(Discard::NotAMember));
    assert_eq!(node.device.detach_mcast(qpn, group), Err(VerbsError::Invalid));
}

/// A QP of another type joins no group, and no QP a GID that is none.
#[test]
fn only_ud_joins_and_only_groups() {
    let mut node = Node::new(1);
    let (ud, rc) = (node.create(QpType::Ud), node.create(QpType::Rc));
    let group = Gid::from(std::net::Ipv4Addr::new(239, 1, 2, 3));
    assert_eq!(node.device.attach_mcast(rc, group), Err(VerbsError::Invalid));
    assert_eq!(node.device.attach_mcast(ud, address(2).gid), Err(VerbsError::Invalid));
}

/// Objects in use are not destroyed (verbs table of objects).
#[test]
fn objects_in_use_are_busy() {
    let mut node = Node::new(1);
    let qpn = node.create(QpType::Rc);
    let (pd, send_cq) = (node.pd, node.send_cq);
    assert_eq!(node.device.dealloc_pd(pd), Err(VerbsError::Busy));
    assert_eq!(node.device.destroy_cq(send_cq), Err(VerbsError::Busy));
    let target = node.create(QpType::XrcRecv);
    let xrcd = node.device.query_qp(target).unwrap().1.xrcd.unwrap();
    assert_eq!(node.device.close_xrcd(xrcd), Err(VerbsError::Busy));
    node.device.destroy_qp(target).unwrap();
    let srq = node.create_srq(4, Some(xrcd));
    assert_eq!(node.device.close_xrcd(xrcd), Err(VerbsError::Busy));
    assert_eq!(node.device.destroy_cq(node.recv_cq), Err(VerbsError::Busy));
    node.device.destroy_srq(srq).unwrap();
    node.device.close_xrcd(xrcd).unwrap();
    node.device.destroy_qp(qpn).unwrap();
    node.device.destroy_cq(send_cq).unwrap();
    node.dereg_mr(node.mr.mr);
    node.device.dealloc_pd(pd).unwrap();
    assert_eq!(node.device.dealloc_pd(pd), Err(VerbsError::Invalid), "a stale handle");
}

/// A destroyed QP's number hears nothing, and its work vanishes without completions.
#[test]
fn a_destroyed_qp_is_silent() {
    let mut scripted = Scripted::rc();
    scripted.post_recv(11, 0, 64);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 1);
    scripted.node.device.destroy_qp(scripted.qpn).unwrap();
    let ack = scripted.packet(ferroce_stack::wire::Opcode::RC_ACKNOWLEDGE, PSN).aeth(0x1f, 1);
    assert_eq!(scripted.send(&ack), Err(Discard::UnknownQp));
    assert!(scripted.node.run_for(100 * ferroce_tests::SEC).is_empty());
    assert!(scripted.node.sent().is_empty() && scripted.node.received().is_empty());
    let again = scripted.node.create(QpType::Rc);
    assert_ne!(again, scripted.qpn, "a late packet must not find a new QP");
}
