//! Faults on public record on the requester's side. Each test is named for its fault; those about
//! timers, NAKs and resends stand with the tables they belong to.

use ferroce_stack::verbs::{
    Access, AttrMask, MwBind, MwType, QpAttr, QpState, QpType, Remote, SendData, SendFlags, SendOp,
    SendWr, VerbsError, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{PSN, Rig, Scripted, US, expect_packets, packet, statuses};

use WcStatus::{LocProtErr, LocQpOpErr, RemAccessErr, Success, WrFlushErr};

const FENCED: SendFlags = SendFlags::SIGNALED.with(SendFlags::FENCE);

fn post_fenced(scripted: &mut Scripted, wr_id: u64, op: SendOp, offset: u64, length: u32) {
    let sges = [scripted.node.sge(offset, length)];
    let data = SendData::Sges(if length == 0 { &[] } else { &sges });
    let wr = SendWr { data, flags: FENCED, ..SendWr::new(wr_id, op, &[]) };
    scripted.node.post_wr(scripted.qpn, &wr);
}

/// P37: a fenced SEND waits for READ data and sends it; WRITEs do not delay it.
#[test]
fn a_fenced_send_waits_for_read_data() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(1 << 20);
    scripted.node.post(scripted.qpn, 1, SendOp::Read(remote), 0, 8);
    post_fenced(&mut scripted, 2, SendOp::Send, 0, 8);
    scripted.node.post(scripted.qpn, 3, SendOp::Send, 64, 8);
    let read = [packet(Opcode::RC_READ_REQUEST).psn(PSN)];
    expect_packets("READ alone", &scripted.frames(), &read);
    let response = scripted.packet(Opcode::RC_READ_RESPONSE_ONLY, PSN).aeth(0x1f, 1).fill(9, 8);
    scripted.deliver(&response);
    let frames = scripted.frames();
    let sends = [packet(Opcode::RC_SEND_ONLY).psn(PSN + 1), packet(Opcode::RC_SEND_ONLY)];
    expect_packets("after the data", &frames, &sends);
    assert_eq!(frames[0].payload, [9; 8]);
}

#[test]
fn a_fence_does_not_wait_for_writes() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(1 << 20);
    scripted.node.post(scripted.qpn, 1, SendOp::Write(remote), 0, 8);
    post_fenced(&mut scripted, 2, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 2);
}

#[test]
fn a_fence_waits_for_atomics_of_every_kind() {
    let remote = Remote { addr: BASE, rkey: 0x101 };
    for (op, length) in [
        (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 8),
        (SendOp::FetchAdd { remote, add: 1 }, 8),
        (SendOp::AtomicWrite(remote, 1), 0),
    ] {
        let mut scripted = Scripted::rc();
        scripted.node.post(scripted.qpn, 1, op, 0, length);
        post_fenced(&mut scripted, 2, SendOp::Send, 0, 8);
        assert_eq!(scripted.frames().len(), 1, "{op:?}");
    }
}

/// P37: a fenced local invalidation waits for everything before it.
#[test]
fn a_fenced_invalidation_waits_for_everything() {
    let mut scripted = Scripted::rc();
    let (pd, mr) = (scripted.node.pd, scripted.node.mr.mr);
    let (mw, rkey) = scripted.node.device.alloc_mw(pd, MwType::Type2).unwrap();
    let bind = MwBind { mr, addr: BASE, length: 64, access: Access::REMOTE_READ };
    scripted.node.post(scripted.qpn, 1, SendOp::BindMw { mw, rkey, bind }, 0, 0);
    scripted.frames();
    assert_eq!(statuses(&scripted.node.sent()), [(1, Success)]);
    let bound = scripted.node.device.mw_rkey(mw).unwrap();
    let remote = scripted.node.remote(1 << 20);
    scripted.node.post(scripted.qpn, 2, SendOp::Write(remote), 0, 8);
    post_fenced(&mut scripted, 3, SendOp::LocalInv(bound), 0, 0);
    scripted.node.post(scripted.qpn, 4, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 1, "the WRITE alone");
    scripted.answer(PSN, 0x1f).unwrap();
    assert_eq!(scripted.frames().len(), 1, "the SEND behind the invalidation");
    assert_eq!(statuses(&scripted.node.sent()), [(2, Success), (3, Success)]);
}

/// P38: after an error everything flushes, unsignaled work and late posts too; five times over.
#[test]
fn everything_after_an_error_flushes() {
    let mut rig = Rig::new(QpType::Rc);
    let sges = [rig.link.a.sge(0, 8)];
    let data = SendData::Sges(&sges);
    for round in 0..5 {
        let bad = SendOp::Write(Remote { addr: 0, rkey: 0x100 });
        rig.post_wr(1, bad, data, SendFlags::SIGNALED);
        rig.post_wr(2, bad, data, SendFlags::SIGNALED);
        rig.post_wr(3, SendOp::Send, data, SendFlags::NONE);
        rig.link.settle();
        rig.post_wr(4, SendOp::Send, data, SendFlags::NONE);
        rig.post_wr(5, SendOp::Send, data, SendFlags::SIGNALED);
        let expected =
            [(1, RemAccessErr), (2, WrFlushErr), (3, WrFlushErr), (4, WrFlushErr), (5, WrFlushErr)];
        assert_eq!(rig.sent(), expected, "round {round}");
        rig.link.a.to_state(rig.a, QpState::Reset);
        rig.link.b.to_state(rig.b, QpState::Reset);
        let (a, b) = (rig.a, rig.b);
        rig.link.connect_with(a, b, |_| {});
    }
}

/// What a QP completed in its last life is not for who uses it next.
#[test]
fn completions_of_a_qp_are_gone_after_reset() {
    let mut rig = Rig::new(QpType::Rc);
    let sges = [rig.link.a.sge(0, 8)];
    let bad = SendOp::Write(Remote { addr: 0, rkey: 0x100 });
    for wr_id in 0..3 {
        rig.post_wr(wr_id, bad, SendData::Sges(&sges), SendFlags::SIGNALED);
    }
    rig.link.settle();
    rig.link.a.to_state(rig.a, QpState::Reset);
    assert_eq!(rig.sent(), []);
}

/// P39: a work request that is refused leaves those before and after it alone.
#[test]
fn a_refused_work_request_leaves_the_others_alone() {
    let mut scripted = Scripted::rc();
    let sges = [scripted.node.sge(0, 8); 5];
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    let refused =
        scripted.node.device.post_send(scripted.qpn, &SendWr::new(2, SendOp::Send, &sges));
    assert!(refused.is_err());
    scripted.node.post(scripted.qpn, 3, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 2);
    scripted.answer(PSN + 1, 0x1f).unwrap();
    assert_eq!(statuses(&scripted.node.sent()), [(1, Success), (3, Success)]);
}

/// P40: an operation the service does not have is refused at post; the QP stays usable.
#[test]
fn an_operation_the_service_lacks_is_refused_at_post() {
    let remote = Remote { addr: BASE, rkey: 0x101 };
    let (level, placement) = (ferroce_stack::verbs::FlushLevel::Range, Access::FLUSH_GLOBAL);
    let reliable_only = [
        (SendOp::SendInv(1), 8),
        (SendOp::Read(remote), 8),
        (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 8),
        (SendOp::FetchAdd { remote, add: 1 }, 8),
        (SendOp::AtomicWrite(remote, 1), 0),
        (SendOp::Flush { remote, length: 8, level, placement }, 0),
    ];
    let not_on_ud = [
        (SendOp::Write(remote), 8),
        (SendOp::WriteImm(remote, [0; 4]), 8),
        (SendOp::LocalInv(1), 0),
    ];
    for (qp_type, lacks) in [
        (QpType::Uc, reliable_only.to_vec()),
        (QpType::Ud, [&reliable_only[..], &not_on_ud].concat()),
        (QpType::Gsi, [&reliable_only[..], &not_on_ud].concat()),
    ] {
        let mut scripted = Scripted::new(qp_type);
        let to = scripted.node.attr_to(&scripted.peer.own, scripted.peer.own_qpn).ah_attr;
        let ah = scripted.node.device.create_ah(scripted.node.pd, &to).unwrap();
        let ud = (qp_type != QpType::Uc).then_some(ferroce_stack::verbs::UdTarget {
            ah,
            qpn: scripted.peer.own_qpn,
            qkey: 1,
        });
        for (op, length) in lacks {
            let sges = [scripted.node.sge(0, length)];
            let data = SendData::Sges(if length == 0 { &[] } else { &sges });
            let wr = SendWr { data, ud, ..SendWr::new(1, op, &[]) };
            let outcome = scripted.node.device.post_send(scripted.qpn, &wr);
            let refused = matches!(outcome, Err(VerbsError::Invalid | VerbsError::NotSupported));
            assert!(refused, "{op:?} on {qp_type:?}: {outcome:?}");
        }
        let sges = [scripted.node.sge(0, 8)];
        let good = SendWr { ud, ..SendWr::new(2, SendOp::Send, &sges) };
        scripted.node.post_wr(scripted.qpn, &good);
        assert_eq!(scripted.frames().len(), 1, "{qp_type:?}");
        assert_eq!(statuses(&scripted.node.sent()), [(2, Success)], "{qp_type:?}");
    }
}

/// P42: an atomic whose local key is bad has a status; the remote side may have executed it.
#[test]
fn a_bad_local_key_on_an_atomic_is_a_protection_error() {
    let mut rig = Rig::new(QpType::Rc);
    let remote = rig.link.b.remote(0);
    let sges = [ferroce_stack::verbs::Sge { addr: BASE, length: 8, lkey: 0 }];
    rig.post_sges(1, SendOp::FetchAdd { remote, add: 1 }, &sges);
    rig.link.settle();
    assert_eq!(rig.sent(), [(1, LocProtErr)]);
    assert!(rig.link.b.device.memory().word(BASE) <= 1);
}

/// P43: inline bytes are taken when posted, without a key; too many are refused.
#[test]
fn inline_data_is_taken_when_posted() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        for length in [0, 1, 7, 100, 256] {
            let mut scripted = Scripted::new(qp_type);
            let mut bytes: Vec<u8> = (0..length).map(|at: u32| at as u8 ^ 0x5a).collect();
            let data = SendData::Inline(&bytes);
            let wr = SendWr { data, ..SendWr::new(1, SendOp::Send, &[]) };
            scripted.node.post_wr(scripted.qpn, &wr);
            let posted = bytes.clone();
            bytes.fill(0);
            assert_eq!(scripted.frames()[0].payload, posted, "{length} bytes on {qp_type:?}");
        }
    }
    let mut scripted = Scripted::rc();
    let bytes = [0; 257];
    let wr = SendWr { data: SendData::Inline(&bytes), ..SendWr::new(1, SendOp::Send, &[]) };
    let outcome = scripted.node.device.post_send(scripted.qpn, &wr);
    assert_eq!(outcome, Err(VerbsError::NoMemory));
    let read = SendOp::Read(scripted.node.remote(0));
    let wr = SendWr { data: SendData::Inline(&bytes[..8]), ..SendWr::new(1, read, &[]) };
    assert!(scripted.node.device.post_send(scripted.qpn, &wr).is_err(), "READ brings bytes");
}

/// Inline bytes are sent again as they were.
#[test]
fn inline_data_survives_a_loss() {
    let mut scripted = Scripted::rc();
    for wr_id in 1..=3u8 {
        let bytes = [wr_id; 5];
        let data = SendData::Inline(&bytes);
        let wr = SendWr { data, ..SendWr::new(u64::from(wr_id), SendOp::Send, &[]) };
        scripted.node.post_wr(scripted.qpn, &wr);
    }
    scripted.frames();
    scripted.answer(PSN + 1, 0x60).unwrap();
    let again: Vec<Vec<u8>> = scripted.frames().into_iter().map(|seen| seen.payload).collect();
    assert_eq!(again, [[2; 5], [3; 5]]);
}

/// P45: a large READ over a link that takes 64 frames at a time: nothing is lost or asked again.
#[test]
fn a_large_read_is_paced_by_the_link() {
    let mut rig = Rig::new(QpType::Rc);
    let remote = rig.link.b.remote(0);
    let length = 1 << 20;
    rig.link.b.device.memory_mut().put(BASE, &vec![3; length]);
    rig.post(1, SendOp::Read(remote), 1 << 20, length as u32);
    let mut frames = 0;
    while rig.link.a.device.counters().rcvd_pkts < 1024 {
        for _ in 0..64 {
            let Some(seen) = rig.link.a.next_frame() else { break };
            rig.link.b.receive(&seen.frame).unwrap();
        }
        let batch: Vec<_> = (0..64).map_while(|_| rig.link.b.next_frame()).collect();
        assert!(!batch.is_empty(), "stalled after {frames} responses");
        frames += batch.len();
        for seen in batch {
            rig.link.a.receive(&seen.frame).unwrap();
        }
    }
    assert_eq!(frames, 1024);
    assert_eq!(rig.sent(), [(1, Success)]);
    assert_eq!(rig.link.a.device.counters().retransmitted_pkts, 0);
    assert_eq!(rig.link.a.device.memory().bytes(BASE + (1 << 20), length), vec![3; length]);
}

/// P47: a producer faster than its consumer, the shortest RNR timer: every receive posted is used,
/// and another QP does not notice.
#[test]
fn an_rnr_storm_makes_progress() {
    let mut rig = Rig::with(QpType::Rc, |_, _| {}, |attr, _| attr.min_rnr_timer = 1);
    let (a2, b2) = rig.link.pair(QpType::Rc);
    for wr_id in 0..100 {
        rig.post(wr_id, SendOp::Send, 0, 64);
    }
    let mut done = 0;
    for round in 0..100 {
        rig.post_recv(1000 + round, 0, 64);
        rig.link.b.post_recv(b2, 5000, 0, 64);
        rig.link.a.post(a2, 5000, SendOp::Send, 0, 64);
        rig.link.run_for(20 * US);
        let received = rig.received();
        let other = received.iter().filter(|wc| wc.wr_id == 5000).count();
        assert_eq!(other, 1, "the other QP in round {round}");
        done += received.len() - other;
    }
    assert!(done >= 80, "{done} of 100 receives used");
}

/// P48 and P66 at the requester: a failed QP brought up anew starts with full counts.
#[test]
fn a_qp_brought_up_anew_has_all_its_retries() {
    let mut scripted = Scripted::rc_with(|attr| attr.retry_cnt = 1);
    let attr = scripted.node.device.query_qp(scripted.qpn).unwrap().0;
    for round in 0..3 {
        scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
        let sent = scripted.node.run_for(ferroce_tests::SEC);
        assert_eq!(sent.len(), 2, "round {round}");
        scripted.node.to_state(scripted.qpn, QpState::Reset);
        scripted.node.bring_up(scripted.qpn, &attr, QpState::Rts);
    }
}

/// A local error waits for the work before it: IBA 10.8 completes in order.
#[test]
fn a_local_error_completes_in_order() {
    let mut scripted = Scripted::rc();
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    scripted.node.post(scripted.qpn, 2, SendOp::LocalInv(0x7777), 0, 0);
    scripted.node.post(scripted.qpn, 3, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 1);
    assert!(scripted.node.sent().is_empty());
    scripted.answer(PSN, 0x1f).unwrap();
    let expected = [(1, Success), (2, LocQpOpErr), (3, WrFlushErr)];
    assert_eq!(statuses(&scripted.node.sent()), expected);
}

/// A send queue is full at its size, and free again when signaled work has completed.
#[test]
fn a_full_send_queue_refuses_and_recovers() {
    let mut scripted = Scripted::with(QpType::Rc, |_| {}, |_, init| init.cap.max_send_wr = 4);
    let sges = [scripted.node.sge(0, 8)];
    for wr_id in 1..=4 {
        let flags = if wr_id == 4 { SendFlags::SIGNALED } else { SendFlags::NONE };
        let wr = SendWr { flags, ..SendWr::new(wr_id, SendOp::Send, &sges) };
        scripted.node.post_wr(scripted.qpn, &wr);
    }
    let fifth = SendWr::new(5, SendOp::Send, &sges);
    assert_eq!(scripted.node.device.post_send(scripted.qpn, &fifth), Err(VerbsError::NoMemory));
    scripted.frames();
    scripted.answer(PSN + 3, 0x1f).unwrap();
    assert_eq!(statuses(&scripted.node.sent()), [(4, Success)], "one speaks for all before it");
    scripted.node.post_wr(scripted.qpn, &fifth);
    assert_eq!(scripted.frames().len(), 1);
}

/// Attributes changed between RTS and RTS act on packets that follow (min_rnr_timer).
#[test]
fn min_rnr_timer_changes_in_rts() {
    let mut scripted = Scripted::rc();
    let attr = QpAttr { qp_state: QpState::Rts, min_rnr_timer: 27, ..QpAttr::default() };
    let mask = AttrMask::STATE | AttrMask::MIN_RNR_TIMER;
    assert_eq!(scripted.node.device.modify_qp(scripted.qpn, &attr, mask), Ok(()));
    let send = scripted.packet(Opcode::RC_SEND_ONLY, ferroce_tests::EPSN).fill(1, 8);
    let frames = scripted.exchange(&[send]);
    assert_eq!(frames[0].syndrome(), Some(0x20 | 27));
}
