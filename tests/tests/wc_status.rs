//! Every completion status that RC, UC, UD and XRC can produce (IBA 11.6.2), each by a real
//! situation with both sides checked; and why the others never come.

use std::collections::BTreeSet;

use ferroce_stack::verbs::{
    Access, EventKind, MwBind, MwType, QpState, QpType, Remote, SendFlags, SendOp, Sge, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{EPSN, PSN, Rig, SEC, Scripted, statuses};

use QpState::{Err as Error, Rts};
use WcStatus::*;

type Statuses = &'static [(u64, WcStatus)];

/// One cause, and what both sides are told. Work requests are 1 and 2, receives 11 and 12. Flushed
/// receives and QP_LAST_WQE_REACHED are not expected of XRC, where the SRQ keeps its receives.
struct Case {
    name: &'static str,
    arrange: fn(&mut Rig),
    sent: Statuses,
    received: Statuses,
    events: &'static [EventKind],
    states: (QpState, QpState),
}

const BAD_KEY: u32 = 0x7777_7700;

fn bad_remote(rig: &Rig) -> Remote {
    Remote { rkey: BAD_KEY, ..rig.link.b.remote(0) }
}

fn two_receives(rig: &mut Rig, length: u32) {
    rig.post_recv(11, 0, length);
    rig.post_recv(12, 0, length);
}

/// A second work request after the one that fails: it flushes.
fn then_send(rig: &mut Rig) {
    rig.post(2, SendOp::Send, 0, 8);
}

fn bad_sges() -> [Sge; 1] {
    [Sge { addr: BASE, length: 8, lkey: BAD_KEY }]
}

const CASES: &[Case] = &[
    Case {
        name: "success",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.post(1, SendOp::Send, 0, 64);
            then_send(rig);
        },
        sent: &[(1, Success), (2, Success)],
        received: &[(11, Success), (12, Success)],
        events: &[],
        states: (Rts, Rts),
    },
    Case {
        name: "a SEND longer than the receive",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.post(1, SendOp::Send, 0, 65);
            then_send(rig);
        },
        sent: &[(1, RemInvReqErr), (2, WrFlushErr)],
        received: &[(11, LocLenErr), (12, WrFlushErr)],
        events: &[],
        states: (Error, Error),
    },
    Case {
        name: "a local invalidation of no window",
        arrange: |rig| {
            rig.post(1, SendOp::LocalInv(BAD_KEY), 0, 0);
            then_send(rig);
        },
        sent: &[(1, LocQpOpErr), (2, WrFlushErr)],
        received: &[],
        events: &[],
        states: (Error, Rts),
    },
    Case {
        name: "a wrong L_Key at the sender",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.post_sges(1, SendOp::Send, &bad_sges());
            then_send(rig);
        },
        sent: &[(1, LocProtErr), (2, WrFlushErr)],
        received: &[],
        events: &[],
        states: (Error, Rts),
    },
    Case {
        name: "a wrong L_Key for what a READ brings",
        arrange: |rig| {
            let remote = rig.link.b.remote(0);
            rig.post_sges(1, SendOp::Read(remote), &bad_sges());
            then_send(rig);
        },
        sent: &[(1, LocProtErr), (2, WrFlushErr)],
        received: &[],
        events: &[],
        states: (Error, Rts),
    },
    Case {
        name: "a wrong L_Key for what an atomic returns",
        arrange: |rig| {
            let remote = rig.link.b.remote(0);
            rig.post_sges(1, SendOp::FetchAdd { remote, add: 1 }, &bad_sges());
        },
        sent: &[(1, LocProtErr)],
        received: &[],
        events: &[],
        states: (Error, Rts),
    },
    Case {
        name: "a wrong L_Key in the receive",
        arrange: |rig| {
            let outside = rig.link.b.device.memory().size();
            rig.post_recv(11, outside, 64);
            rig.post_recv(12, 0, 64);
            rig.post(1, SendOp::Send, 0, 64);
            then_send(rig);
        },
        sent: &[(1, RemOpErr), (2, WrFlushErr)],
        received: &[(11, LocProtErr), (12, WrFlushErr)],
        events: &[],
        states: (Error, Error),
    },
    Case {
        name: "a window bound to what is no region's",
        arrange: |rig| {
            let (pd, mr) = (rig.link.a.pd, rig.link.a.mr.mr);
            let (mw, rkey) = rig.link.a.device.alloc_mw(pd, MwType::Type2).unwrap();
            let access = Access::REMOTE_READ;
            let bind = MwBind { mr, addr: BASE - 1, length: 8, access };
            rig.post(1, SendOp::BindMw { mw, rkey, bind }, 0, 0);
            then_send(rig);
        },
        sent: &[(1, MwBindErr), (2, WrFlushErr)],
        received: &[],
        events: &[],
        states: (Error, Rts),
    },
    Case {
        name: "memory that faults under a WRITE with immediate",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.link.b.device.memory_mut().faulty = BASE..BASE + 1;
            let remote = rig.link.b.remote(0);
            rig.post(1, SendOp::WriteImm(remote, [1, 2, 3, 4]), 0, 64);
        },
        sent: &[(1, RemOpErr)],
        received: &[(11, LocAccessErr), (12, WrFlushErr)],
        events: &[],
        states: (Error, Error),
    },
    Case {
        name: "memory that faults under a READ",
        arrange: |rig| {
            rig.link.b.device.memory_mut().faulty = BASE..BASE + 1;
            let remote = rig.link.b.remote(0);
            rig.post(1, SendOp::Read(remote), 0, 64);
        },
        sent: &[(1, RemOpErr)],
        received: &[],
        events: &[EventKind::QpFatal],
        states: (Error, Error),
    },
    Case {
        name: "an invalidation by a SEND of what is no window",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.post(1, SendOp::SendInv(BAD_KEY), 0, 64);
            then_send(rig);
        },
        // No NAK is owed (class J): the requester's retries run out.
        sent: &[(1, RetryExcErr), (2, WrFlushErr)],
        received: &[(11, RemInvReqErr), (12, WrFlushErr)],
        events: &[],
        states: (Error, Error),
    },
    Case {
        name: "a WRITE with a wrong R_Key",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.post(1, SendOp::Write(bad_remote(rig)), 0, 64);
            then_send(rig);
        },
        sent: &[(1, RemAccessErr), (2, WrFlushErr)],
        received: &[(11, WrFlushErr), (12, WrFlushErr)],
        events: &[EventKind::QpAccessErr],
        states: (Error, Error),
    },
    Case {
        name: "a READ with a wrong R_Key",
        arrange: |rig| rig.post(1, SendOp::Read(bad_remote(rig)), 0, 64),
        sent: &[(1, RemAccessErr)],
        received: &[],
        events: &[EventKind::QpAccessErr],
        states: (Error, Error),
    },
    Case {
        name: "a WRITE with immediate and a wrong R_Key",
        arrange: |rig| {
            two_receives(rig, 64);
            rig.post(1, SendOp::WriteImm(bad_remote(rig), [0; 4]), 0, 64);
        },
        sent: &[(1, RemAccessErr)],
        received: &[(11, RemAccessErr), (12, WrFlushErr)],
        events: &[],
        states: (Error, Error),
    },
    Case {
        name: "an atomic on memory that is not aligned although its address is",
        arrange: |rig| {
            let addr = BASE + 4;
            let init = ferroce_stack::MrInit {
                addr,
                length: 64,
                iova: 0,
                access: Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
            };
            let keys = rig.link.b.device.reg_mr(rig.link.b.pd, &init).unwrap();
            let remote = Remote { addr: 0, rkey: keys.rkey };
            rig.post(1, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
        },
        sent: &[(1, RemInvReqErr)],
        received: &[],
        events: &[EventKind::QpReqErr],
        states: (Error, Error),
    },
    Case {
        name: "a peer in RESET",
        arrange: |rig| {
            rig.link.b.to_state(rig.b, QpState::Reset);
            rig.post(1, SendOp::Send, 0, 64);
            then_send(rig);
        },
        sent: &[(1, RetryExcErr), (2, WrFlushErr)],
        received: &[],
        events: &[],
        states: (Error, QpState::Reset),
    },
];

/// Runs a case on a service; the statuses both sides saw.
fn run(case: &Case, qp_type: QpType) -> Vec<WcStatus> {
    let mut rig = Rig::new(qp_type);
    (case.arrange)(&mut rig);
    rig.link.run_for(10 * SEC);
    let on = format!("{} on {qp_type:?}", case.name);
    let xrc = qp_type == QpType::XrcSend;
    let sent = rig.sent();
    assert_eq!(sent, case.sent, "requester: {on}");
    let received = statuses(&rig.received());
    let kept = |(_, status): &&(u64, WcStatus)| !xrc || *status != WrFlushErr;
    let expected: Vec<_> = case.received.iter().filter(kept).copied().collect();
    assert_eq!(received, expected, "responder: {on}");
    let events: Vec<_> =
        rig.events_of_b().into_iter().filter(|&kind| kind != EventKind::QpLastWqeReached).collect();
    assert_eq!(events, case.events, "events at the responder: {on}");
    assert_eq!(rig.states(), case.states, "states: {on}");
    sent.into_iter().chain(received).map(|(_, status)| status).collect()
}

#[test]
fn rc_causes_and_statuses() {
    for case in CASES {
        run(case, QpType::Rc);
    }
}

#[test]
fn xrc_causes_and_statuses() {
    for case in CASES {
        run(case, QpType::XrcSend);
    }
}

/// A class of operation that the QP does not allow: NAK invalid request, whatever the key allows.
#[test]
fn a_disabled_operation_is_an_invalid_request() {
    let remote = |rig: &Rig| rig.link.b.remote(0);
    type Post = fn(&mut Rig, Remote);
    let table: [(Access, Post); 6] = [
        (Access::REMOTE_WRITE, |rig, to| rig.post(1, SendOp::Write(to), 0, 8)),
        (Access::REMOTE_READ, |rig, to| rig.post(1, SendOp::Read(to), 0, 8)),
        (Access::REMOTE_ATOMIC, |rig, remote| {
            rig.post(1, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
        }),
        (Access::REMOTE_ATOMIC, |rig, remote| {
            rig.post(1, SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 0, 8);
        }),
        (Access::REMOTE_WRITE, |rig, to| rig.post(1, SendOp::AtomicWrite(to, 1), 0, 0)),
        (Access::FLUSH_GLOBAL, |rig, remote| {
            let (level, placement) =
                (ferroce_stack::verbs::FlushLevel::Range, Access::FLUSH_GLOBAL);
            rig.post(1, SendOp::Flush { remote, length: 8, level, placement }, 0, 0);
        }),
    ];
    for (disabled, post) in table {
        for qp_type in [QpType::Rc, QpType::XrcSend] {
            let mut rig = Rig::with(
                qp_type,
                |_, _| {},
                |attr, is_a| {
                    if !is_a {
                        attr.qp_access_flags = Access::REMOTE.without(disabled);
                    }
                },
            );
            let to = remote(&rig);
            post(&mut rig, to);
            rig.link.run_for(SEC);
            let on = format!("{disabled:?} on {qp_type:?}");
            assert_eq!(rig.sent(), [(1, RemInvReqErr)], "{on}");
            assert!(rig.events_of_b().contains(&EventKind::QpReqErr), "{on}");
            assert_eq!(rig.states(), (Error, Error), "{on}");
        }
    }
}

/// No room for READs at the responder: invalid request. None at the requester: a local error, in
/// order after the work before it.
#[test]
fn no_room_for_reads_is_an_error_on_its_side() {
    for (at_a, expected, states) in
        [(true, LocQpOpErr, (Error, Rts)), (false, RemInvReqErr, (Error, Error))]
    {
        let mut rig = Rig::with(
            QpType::Rc,
            |_, _| {},
            |attr, is_a| match is_a == at_a {
                true if is_a => attr.max_rd_atomic = 0,
                true => attr.max_dest_rd_atomic = 0,
                false => {}
            },
        );
        rig.post_recv(11, 0, 64);
        rig.post(1, SendOp::Send, 0, 64);
        let remote = rig.link.b.remote(0);
        rig.post(2, SendOp::Read(remote), 0, 64);
        rig.post(3, SendOp::Send, 0, 64);
        rig.link.run_for(SEC);
        assert_eq!(rig.sent(), [(1, Success), (2, expected), (3, WrFlushErr)]);
        assert_eq!(rig.states(), states);
        assert_eq!(rig.events_of_b().contains(&EventKind::QpReqErr), !at_a);
    }
}

/// The receive queue stays empty: the requester fails, the responder stays in RTS.
#[test]
fn rnr_retries_run_out() {
    for qp_type in [QpType::Rc, QpType::XrcSend] {
        let mut rig = Rig::with(qp_type, |_, _| {}, |attr, _| attr.rnr_retry = 2);
        rig.post(1, SendOp::Send, 0, 64);
        rig.post(2, SendOp::Send, 0, 64);
        rig.link.run_for(SEC);
        assert_eq!(rig.sent(), [(1, RnrRetryExcErr), (2, WrFlushErr)], "{qp_type:?}");
        assert_eq!(rig.states(), (Error, Rts), "{qp_type:?}");
        assert!(rig.received().is_empty() && rig.events_of_b().is_empty(), "{qp_type:?}");
    }
}

/// A READ response stream out of its order: BAD_RESP.
#[test]
fn a_broken_response_is_a_bad_response() {
    let mut scripted = Scripted::rc();
    let read = SendOp::Read(scripted.node.remote(0));
    scripted.node.post(scripted.qpn, 1, read, 0, 3000);
    scripted.node.post(scripted.qpn, 2, SendOp::Send, 0, 8);
    scripted.frames();
    let only = scripted.packet(Opcode::RC_READ_RESPONSE_ONLY, PSN).aeth(0x1f, 1).fill(0, 1024);
    scripted.send(&only).ok();
    assert_eq!(statuses(&scripted.node.sent()), [(1, BadRespErr), (2, WrFlushErr)]);
    assert_eq!(scripted.state(), Error);
}

/// An invalid request in the middle of a SEND: the receive it holds is told.
#[test]
fn an_invalid_request_completes_the_receive_in_use() {
    let mut scripted = Scripted::rc();
    scripted.node.post_recv(scripted.qpn, 11, 0, 4096);
    scripted.node.post_recv(scripted.qpn, 12, 0, 4096);
    scripted.deliver(&scripted.packet(Opcode::RC_SEND_FIRST, EPSN).fill(1, 1024));
    scripted.deliver(&scripted.packet(Opcode::RC_SEND_ONLY, EPSN + 1).fill(1, 8));
    let expected = [(11, RemInvReqErr), (12, WrFlushErr)];
    assert_eq!(statuses(&scripted.node.received()), expected);
}

/// UC on an SRQ: a message given up half way completes with an error, the QP stays.
fn uc_abort_on_srq() -> Vec<WcStatus> {
    let mut scripted = Scripted::on_srq(QpType::Uc);
    let srq = scripted.srq.unwrap();
    scripted.node.post_srq(srq, 11, 0, 4096);
    scripted.node.post_srq(srq, 12, 0, 4096);
    scripted.deliver(&scripted.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1024));
    scripted.deliver(&scripted.packet(Opcode::UC_SEND_ONLY, EPSN + 5).fill(1, 8));
    let received = scripted.node.received();
    assert_eq!(received.len(), 2, "{received:?}");
    assert_eq!(received[0].wr_id, 11);
    // The published tables allow either word for it.
    assert!(matches!(received[0].status, RemAbortErr | RemInvReqErr), "{received:?}");
    assert_eq!((received[1].wr_id, received[1].status), (12, Success));
    assert_eq!(scripted.state(), Rts);
    received.iter().map(|wc| wc.status).collect()
}

#[test]
fn an_aborted_uc_message_on_an_srq_completes_with_an_error() {
    uc_abort_on_srq();
}

/// UD: longer than the port's MTU; the handle destroyed before the send went out.
#[test]
fn ud_local_errors() {
    use ferroce_stack::verbs::{SendWr, UdTarget};
    use ferroce_tests::{Node, node::address};
    for (length, destroy, expected) in
        [(4096, false, Success), (4097, false, LocLenErr), (8, true, LocQpOpErr)]
    {
        let mut node = Node::new(1);
        let qpn = node.create(QpType::Ud);
        let attr = node.attr_to(&address(2), ferroce_stack::verbs::Qpn(0));
        node.bring_up(qpn, &attr, Rts);
        let ah = node.device.create_ah(node.pd, &attr.ah_attr).unwrap();
        let ud = Some(UdTarget { ah, qpn: ferroce_stack::verbs::Qpn(9), qkey: 1 });
        let sges = [node.sge(0, length)];
        node.post_wr(qpn, &SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) });
        if destroy {
            node.device.destroy_ah(ah).unwrap();
        }
        let frames = node.transmit().len();
        assert_eq!(frames, usize::from(expected == Success), "{length} bytes");
        assert_eq!(statuses(&node.sent()), [(1, expected)], "{length} bytes");
        let state = if expected == Success { Rts } else { QpState::Sqe };
        assert_eq!(node.state(qpn), state, "{length} bytes");
    }
}

/// An unsignaled work request completes all the same when it fails or is flushed.
#[test]
fn unsignaled_work_requests_complete_on_error() {
    let mut rig = Rig::new(QpType::Rc);
    let bad = bad_remote(&rig);
    let sges = [rig.link.a.sge(0, 8)];
    let data = ferroce_stack::verbs::SendData::Sges(&sges);
    rig.post_recv(11, 0, 8);
    rig.post_wr(1, SendOp::Send, data, SendFlags::NONE);
    rig.post_wr(2, SendOp::Write(bad), data, SendFlags::NONE);
    rig.post_wr(3, SendOp::Send, data, SendFlags::NONE);
    rig.link.run_for(SEC);
    rig.post_wr(4, SendOp::Send, data, SendFlags::NONE);
    assert_eq!(rig.sent(), [(2, RemAccessErr), (3, WrFlushErr), (4, WrFlushErr)]);
}

/// Statuses no situation here can produce, and why.
const NEVER: &[(WcStatus, &str)] = &[
    (LocEecOpErr, "reliable datagrams only"),
    (LocRddViolErr, "reliable datagrams only"),
    (RemInvRdReqErr, "reliable datagrams only"),
    (InvEecnErr, "reliable datagrams only"),
    (InvEecStateErr, "reliable datagrams only"),
    (FatalErr, "stands for a fault of the adapter itself; software has none to report"),
    (RespTimeoutErr, "of management datagrams, whose layer times them"),
    (GeneralErr, "for what fits no other status; every fault here does"),
    (TmErr, "tag matching only"),
    (TmRndvIncomplete, "tag matching only"),
];

#[test]
fn every_status_is_produced_or_has_a_reason_not_to_be() {
    let mut seen: BTreeSet<u8> =
        CASES.iter().flat_map(|case| run(case, QpType::Rc)).map(|status| status as u8).collect();
    seen.extend(uc_abort_on_srq().into_iter().map(|status| status as u8));
    // Tests above assert these.
    seen.extend([BadRespErr as u8, RnrRetryExcErr as u8]);
    for (status, why) in NEVER {
        assert!(!seen.contains(&(*status as u8)), "{status:?} was produced: {why}");
        seen.insert(*status as u8);
    }
    assert_eq!(Vec::from_iter(seen), Vec::from_iter(0..=23), "a status nobody speaks for");
}
