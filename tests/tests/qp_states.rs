//! What QPs do in each state: which posts are legal (IBA 10.3.1), attribute ranges, queries, SQD,
//! SQE, RESET.

use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, Event, EventKind, Mtu, QpAttr, QpState, QpType, Qpn, RecvWr, SendOp,
    SendWr, Sge, UdTarget, VerbsError, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_stack::{Config, GidEntry};
use ferroce_tests::node::address;
use ferroce_tests::{
    EPSN, Expected, Link, MS, Node, PSN, SEC, Scripted, expect_packets, packet, statuses,
};

use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

fn rc_in(node: &mut Node, state: QpState) -> Qpn {
    let qpn = node.create(QpType::Rc);
    let attr = node.attr_to(&address(2), Qpn(0x55));
    match state {
        Reset => {}
        Sqd | Error => {
            node.bring_up(qpn, &attr, Rts);
            node.to_state(qpn, state);
        }
        _ => node.bring_up(qpn, &attr, state),
    }
    qpn
}

/// P79: state by verb. `None` is refused, else the status a post completes with at once, if any.
#[test]
fn posts_are_legal_by_state() {
    let table = [
        (Reset, Err(VerbsError::Invalid), Err(VerbsError::Invalid)),
        (Init, Ok(None), Err(VerbsError::Invalid)),
        (Rtr, Ok(None), Err(VerbsError::Invalid)),
        (Rts, Ok(None), Ok(None)),
        (Sqd, Ok(None), Ok(None)),
        (Error, Ok(Some(WcStatus::WrFlushErr)), Ok(Some(WcStatus::WrFlushErr))),
    ];
    for (state, recv, send) in table {
        let mut node = Node::new(1);
        let qpn = rc_in(&mut node, state);
        let sges = [node.sge(0, 16)];
        let outcome = node.device.post_recv(qpn, &RecvWr { wr_id: 1, sges: &sges });
        assert_eq!(outcome, recv.map(drop), "post_recv in {state:?}");
        let flushed = recv.ok().flatten().map(|status| (1, status));
        assert_eq!(statuses(&node.received()), Vec::from_iter(flushed), "receives in {state:?}");
        let outcome = node.device.post_send(qpn, &SendWr::new(2, SendOp::Send, &sges));
        assert_eq!(outcome, send.map(drop), "post_send in {state:?}");
        let flushed = send.ok().flatten().map(|status| (2, status));
        assert_eq!(statuses(&node.sent()), Vec::from_iter(flushed), "sends in {state:?}");
        let frames = node.transmit().len();
        assert_eq!(frames, usize::from(state == Rts), "frames in {state:?}");
    }
}

#[test]
fn requests_are_served_by_state() {
    let table =
        [(Reset, false), (Init, false), (Rtr, true), (Rts, true), (Sqd, true), (Error, false)];
    for (state, served) in table {
        let mut scripted = Scripted::rc();
        let qpn = rc_in(&mut scripted.node, state);
        scripted.peer.to_qpn = qpn;
        let write = scripted
            .packet(Opcode::RC_WRITE_ONLY, PSN)
            .reth(scripted.node.remote(0), 4)
            .fill(9, 4)
            .ack_req();
        assert_eq!(scripted.send(&write).is_ok(), served, "{state:?}");
        assert_eq!(scripted.frames().len(), usize::from(served), "{state:?}");
    }
}

/// An attribute at its last legal value, and one beyond.
#[test]
fn attributes_have_ranges() {
    let rts = AttrMask::SQ_PSN
        | AttrMask::TIMEOUT
        | AttrMask::RETRY_CNT
        | AttrMask::RNR_RETRY
        | AttrMask::MAX_QP_RD_ATOMIC;
    let rtr = AttrMask::AV
        | AttrMask::PATH_MTU
        | AttrMask::DEST_QPN
        | AttrMask::RQ_PSN
        | AttrMask::MAX_DEST_RD_ATOMIC
        | AttrMask::MIN_RNR_TIMER;
    let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    type Change = fn(&mut QpAttr);
    type Case = (&'static str, QpState, AttrMask, Change, bool);
    let table: &[Case] = &[
        ("port 0", Reset, init, |a| a.port_num = 0, false),
        ("port 2", Reset, init, |a| a.port_num = 2, false),
        ("pkey 1", Reset, init, |a| a.pkey_index = 1, false),
        ("access", Reset, init, |a| a.qp_access_flags = Access::MW_BIND, true),
        ("access", Reset, init, |a| a.qp_access_flags = Access(1 << 10), false),
        ("path_mtu", Init, rtr, |a| a.path_mtu = Mtu::Mtu4096, true),
        ("qpn", Init, rtr, |a| a.dest_qp_num = Qpn(0xff_fffe), true),
        ("qpn", Init, rtr, |a| a.dest_qp_num = Qpn(0x100_0000), false),
        ("dest_rd_atomic", Init, rtr, |a| a.max_dest_rd_atomic = 0, true),
        ("dest_rd_atomic", Init, rtr, |a| a.max_dest_rd_atomic = 128, true),
        ("dest_rd_atomic", Init, rtr, |a| a.max_dest_rd_atomic = 129, false),
        ("min_rnr_timer", Init, rtr, |a| a.min_rnr_timer = 31, true),
        ("min_rnr_timer", Init, rtr, |a| a.min_rnr_timer = 32, false),
        ("sgid_index", Init, rtr, |a| a.ah_attr.sgid_index = 1, false),
        ("no dgid", Init, rtr, |a| a.ah_attr.dgid = Gid::default(), false),
        ("v6 dgid", Init, rtr, |a| a.ah_attr.dgid = Gid([0xfe; 16]), false),
        ("sl", Init, rtr, |a| a.ah_attr.sl = 8, false),
        ("flow_label", Init, rtr, |a| a.ah_attr.flow_label = 0x10_0000, false),
        ("timeout", Rtr, rts, |a| a.timeout = 31, true),
        ("timeout", Rtr, rts, |a| a.timeout = 32, false),
        ("retry_cnt", Rtr, rts, |a| a.retry_cnt = 7, true),
        ("retry_cnt", Rtr, rts, |a| a.retry_cnt = 8, false),
        ("rnr_retry", Rtr, rts, |a| a.rnr_retry = 7, true),
        ("rnr_retry", Rtr, rts, |a| a.rnr_retry = 8, false),
        ("max_rd_atomic", Rtr, rts, |a| a.max_rd_atomic = 128, true),
        ("max_rd_atomic", Rtr, rts, |a| a.max_rd_atomic = 129, false),
    ];
    for (name, from, mask, change, legal) in table {
        let mut node = Node::new(1);
        let qpn = rc_in(&mut node, *from);
        let to = match from {
            Reset => Init,
            Init => Rtr,
            _ => Rts,
        };
        let mut attr = QpAttr { qp_state: to, ..node.attr_to(&address(2), Qpn(0x55)) };
        change(&mut attr);
        let before = node.device.query_qp(qpn);
        let outcome = node.device.modify_qp(qpn, &attr, *mask | AttrMask::STATE);
        assert_eq!(outcome.is_ok(), *legal, "{name}: {attr:?}");
        if !legal {
            assert_eq!(node.device.query_qp(qpn), before, "{name}: something changed");
        }
    }
}

/// P64: the path MTU may not be larger than the port's.
#[test]
fn path_mtu_above_the_ports_is_refused() {
    for port in Mtu::ALL {
        for path_mtu in Mtu::ALL {
            let config = Config { active_mtu: port, ..Config::default() };
            let mut node = Node::with_config(address(1), config);
            let qpn = rc_in(&mut node, Init);
            let attr = QpAttr { qp_state: Rtr, path_mtu, ..node.attr_to(&address(2), Qpn(0x55)) };
            let mask = AttrMask::STATE
                | AttrMask::AV
                | AttrMask::PATH_MTU
                | AttrMask::DEST_QPN
                | AttrMask::RQ_PSN
                | AttrMask::MAX_DEST_RD_ATOMIC
                | AttrMask::MIN_RNR_TIMER;
            let outcome = node.device.modify_qp(qpn, &attr, mask);
            assert_eq!(outcome.is_ok(), path_mtu <= port, "{path_mtu:?} on {port:?}");
            let state = if path_mtu <= port { Rtr } else { Init };
            assert_eq!(node.state(qpn), state, "{path_mtu:?} on {port:?}");
        }
    }
    assert_eq!(Mtu::of_link(1500), Some(Mtu::Mtu1024));
    assert_eq!(Mtu::of_link(4200), Some(Mtu::Mtu4096));
}

/// P62: a query tells what was configured, in the middle of retries and in ERR too.
#[test]
fn query_returns_what_was_configured() {
    let mut scripted = Scripted::rc();
    let configured = QpAttr {
        qp_state: Rts,
        cur_qp_state: Rts,
        rq_psn: Psn::new(EPSN),
        sq_psn: Psn::new(PSN),
        qkey: 0,
        ..scripted.node.attr_to(&address(2), ferroce_tests::scripted::PEER_QPN)
    };
    let query = |scripted: &Scripted| scripted.node.device.query_qp(scripted.qpn).unwrap().0;
    assert_eq!(query(&scripted), configured);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 10);
    // Past the first two timeouts of 67.1 ms: one retry left of three.
    scripted.node.run_for(150 * MS);
    let sent_one = QpAttr { sq_psn: Psn::new(PSN + 1), ..configured };
    assert_eq!(query(&scripted), sent_one, "in the middle of retries");
    scripted.node.to_state(scripted.qpn, Error);
    let failed = QpAttr { qp_state: Error, cur_qp_state: Error, ..sent_one };
    assert_eq!(query(&scripted), failed, "in ERR");
}

/// P48: RESET clears PSNs, queues and counts; the same QP object starts anew ten times.
#[test]
fn a_qp_used_again_starts_at_its_new_psns() {
    let mut link = Link::default();
    let (a, b) = (link.a.create(QpType::Rc), link.b.create(QpType::Rc));
    for round in 0..10u32 {
        let psn = Psn::new(0xff_fff0 + round * 777);
        link.connect_with(a, b, |attr| {
            attr.sq_psn = psn;
            attr.rq_psn = psn;
        });
        link.b.post_recv(b, 1, 0, 5000);
        link.b.post_recv(b, 2, 0, 5000);
        link.a.post(a, 3, SendOp::Send, 0, 5000);
        let frames = link.settle();
        let first = frames.iter().find(|frame| frame.from_a).expect("a frame");
        assert_eq!(first.seen.psn(), psn.value(), "round {round}");
        let ack = frames.iter().find(|frame| !frame.from_a).expect("an ACK");
        let msn = ack.seen.headers.ext.aeth.expect("AETH").msn;
        assert_eq!(msn, 1, "MSN counts from RESET, round {round}");
        assert_eq!(statuses(&link.a.sent()), [(3, WcStatus::Success)], "round {round}");
        assert_eq!(statuses(&link.b.received()), [(1, WcStatus::Success)], "round {round}");
        // The second receive and an unanswered send vanish without a completion.
        link.a.post(a, 4, SendOp::Send, 0, 8);
        link.a.to_state(a, Reset);
        link.b.to_state(b, Reset);
        link.run_for(2 * SEC);
        assert!(link.a.sent().is_empty() && link.b.received().is_empty(), "round {round}");
    }
}

fn to_sqd(scripted: &mut Scripted, notify: bool) {
    let attr = QpAttr { qp_state: Sqd, en_sqd_async_notify: notify, ..QpAttr::default() };
    let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
    assert_eq!(scripted.node.device.modify_qp(scripted.qpn, &attr, mask), Ok(()));
}

fn draining(scripted: &Scripted) -> bool {
    scripted.node.device.query_qp(scripted.qpn).unwrap().0.sq_draining
}

/// P66: SQD finishes what has begun, tells once, holds what is posted, and resumes.
#[test]
fn sqd_finishes_what_has_begun_and_holds_the_rest() {
    let mut scripted = Scripted::rc();
    let qpn = scripted.qpn;
    let config = Config { burst: 1, ..Config::default() };
    assert!(config.window >= 8);
    scripted.node.post(qpn, 1, SendOp::Write(scripted.node.remote(0)), 0, 8 * 1024);
    let begun = scripted.node.next_frame().expect("the first packet");
    assert_eq!(begun.psn(), PSN);
    to_sqd(&mut scripted, true);
    scripted.node.post(qpn, 2, SendOp::Send, 0, 8);
    scripted.node.post(qpn, 3, SendOp::Send, 0, 8);
    let rest: Vec<u32> = scripted.frames().iter().map(|seen| seen.psn()).collect();
    assert_eq!(rest, Vec::from_iter(PSN + 1..PSN + 8), "the begun WRITE, nothing more");
    assert!(draining(&scripted));
    assert!(scripted.node.events().is_empty(), "not drained before the ACK");
    for (state, name) in [(Rts, "RTS"), (Sqd, "SQD")] {
        let attr = QpAttr { qp_state: state, ..QpAttr::default() };
        let outcome = scripted.node.device.modify_qp(qpn, &attr, AttrMask::STATE);
        assert_eq!(outcome, Err(VerbsError::Invalid), "{name} while draining");
    }
    scripted.answer(PSN + 7, 0x1f).unwrap();
    assert_eq!(scripted.node.events(), [Event::Qp(qpn, EventKind::SqDrained)]);
    assert!(!draining(&scripted));
    assert!(scripted.node.run_for(SEC).is_empty(), "posts are held in SQD");
    assert_eq!(statuses(&scripted.node.sent()), [(1, WcStatus::Success)]);
    scripted.node.to_state(qpn, Rts);
    let resumed = [packet(Opcode::RC_SEND_ONLY).psn(PSN + 8), packet(Opcode::RC_SEND_ONLY)];
    expect_packets("after RTS", &scripted.frames(), &resumed);
    scripted.answer(PSN + 9, 0x1f).unwrap();
    assert_eq!(statuses(&scripted.node.sent()), [(2, WcStatus::Success), (3, WcStatus::Success)]);
    assert!(scripted.node.events().is_empty(), "SQ_DRAINED came once");
}

#[test]
fn sqd_drains_at_once_when_nothing_has_begun() {
    for notify in [false, true] {
        let mut scripted = Scripted::rc();
        to_sqd(&mut scripted, notify);
        assert!(!draining(&scripted));
        let expected = notify.then_some(Event::Qp(scripted.qpn, EventKind::SqDrained));
        assert_eq!(scripted.node.events(), Vec::from_iter(expected));
    }
}

#[test]
fn a_begun_message_is_sent_again_in_sqd() {
    let mut scripted = Scripted::rc();
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 1);
    to_sqd(&mut scripted, true);
    let again: Vec<_> = scripted.node.run_for(70 * MS).into_iter().map(|(_, seen)| seen).collect();
    expect_packets("timeout in SQD", &again, &[packet(Opcode::RC_SEND_ONLY).psn(PSN)]);
    assert!(draining(&scripted));
}

#[test]
fn err_needs_no_detour_while_draining() {
    let mut scripted = Scripted::rc();
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 1);
    to_sqd(&mut scripted, true);
    scripted.node.to_state(scripted.qpn, Error);
    assert_eq!(statuses(&scripted.node.sent()), [(1, WcStatus::WrFlushErr)]);
    assert!(scripted.node.events().is_empty(), "a failed queue has not drained");
}

/// Attributes that SQD lets change are used from RTS on.
#[test]
fn a_path_changed_in_sqd_is_used() {
    let mut scripted = Scripted::rc();
    scripted.node.to_state(scripted.qpn, Sqd);
    let entry: GidEntry = address(9);
    let ah_attr =
        AhAttr { dgid: entry.gid, dmac: entry.mac, traffic_class: 0x6a, ..AhAttr::default() };
    let attr = QpAttr { qp_state: Sqd, ah_attr, timeout: 8, ..QpAttr::default() };
    let mask = AttrMask::STATE | AttrMask::AV | AttrMask::TIMEOUT;
    assert_eq!(scripted.node.device.modify_qp(scripted.qpn, &attr, mask), Ok(()));
    scripted.node.to_state(scripted.qpn, Rts);
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    // T of code 8 is 1.05 ms.
    let sent = scripted.node.run_for(1100 * 1000);
    assert_eq!(sent.len(), 2, "the new timeout is used");
    for (_, seen) in sent {
        assert_eq!(seen.headers.net.destination(), entry.gid);
        assert_eq!(seen.headers.net.traffic_class(), 0x6a);
        assert_eq!(seen.headers.eth.dst, entry.mac);
    }
}

/// SQE: sends flush, requests are still served, RTS brings the queue back.
#[test]
fn sqe_flushes_sends_and_serves_requests() {
    let mut scripted = Scripted::new(QpType::Uc);
    let qpn = scripted.qpn;
    let bad = [Sge { addr: 0, length: 4, lkey: 1 }];
    scripted.node.post(qpn, 1, SendOp::Send, 0, 4);
    scripted.node.post_wr(qpn, &SendWr::new(2, SendOp::Send, &bad));
    scripted.node.post(qpn, 3, SendOp::Send, 0, 4);
    assert_eq!(scripted.frames().len(), 1);
    assert_eq!(scripted.state(), Sqe);
    scripted.node.post(qpn, 4, SendOp::Send, 0, 4);
    let outcome = statuses(&scripted.node.sent());
    let expected = [
        (1, WcStatus::Success),
        (2, WcStatus::LocProtErr),
        (3, WcStatus::WrFlushErr),
        (4, WcStatus::WrFlushErr),
    ];
    assert_eq!(outcome, expected);
    scripted.node.post_recv(qpn, 5, 0, 16);
    scripted.deliver(&scripted.packet(Opcode::UC_SEND_ONLY, EPSN).fill(1, 16));
    assert_eq!(statuses(&scripted.node.received()), [(5, WcStatus::Success)]);
    scripted.node.to_state(qpn, Rts);
    scripted.node.post(qpn, 6, SendOp::Send, 0, 4);
    let next = [packet(Opcode::UC_SEND_ONLY).psn(PSN + 1)];
    expect_packets("after RTS", &scripted.frames(), &next);
    assert_eq!(statuses(&scripted.node.sent()), [(6, WcStatus::Success)]);
}

#[test]
fn ud_local_error_leads_to_sqe() {
    let mut node = Node::new(1);
    let qpn = node.create(QpType::Ud);
    let attr = node.attr_to(&address(2), Qpn(0));
    node.bring_up(qpn, &attr, Rts);
    let ah = node.device.create_ah(node.pd, &attr.ah_attr).unwrap();
    let ud = Some(UdTarget { ah, qpn: Qpn(0x55), qkey: 7 });
    let bad = [Sge { addr: 0, length: 4, lkey: 1 }];
    node.post_wr(qpn, &SendWr { ud, ..SendWr::new(1, SendOp::Send, &bad) });
    assert!(node.transmit().is_empty());
    assert_eq!(node.state(qpn), Sqe);
    assert_eq!(statuses(&node.sent()), [(1, WcStatus::LocProtErr)]);
}

/// The first request in RTR raises COMM_EST, once.
#[test]
fn comm_est_is_raised_once_in_rtr() {
    let mut scripted = Scripted::rc();
    let qpn = rc_in(&mut scripted.node, Rtr);
    scripted.peer.to_qpn = qpn;
    let remote = scripted.node.remote(0);
    for at in 0..3 {
        let write = scripted.packet(Opcode::RC_WRITE_ONLY, PSN + at).reth(remote, 4).fill(1, 4);
        scripted.deliver(&write.ack_req());
    }
    assert_eq!(scripted.node.events(), [Event::Qp(qpn, EventKind::CommEst)]);
    expect_packets("answers in RTR", &scripted.frames(), &[Expected::ack(PSN + 2).msn(3)]);
}
