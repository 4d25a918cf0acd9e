//! Faults on public record on the responder's side. Each test is named for its fault; those about
//! NAKs, statuses and duplicates stand with the tables they belong to.

use ferroce_stack::MrChange;
use ferroce_stack::verbs::{
    Access, AttrMask, EventKind, FlushLevel, QpAttr, QpState, QpType, RecvWr, Remote, SendData,
    SendFlags, SendOp, SendWr, VerbsError, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{EPSN, Expected, Node, Rig, SEC, Scripted, expect_packets, packet, statuses};

use WcStatus::{
    LocProtErr, RemAccessErr, RemInvReqErr, RemOpErr, RetryExcErr, Success, WrFlushErr,
};

/// P15: the NAK for a bad R_Key is owed though no receive is in use; the requester learns at once.
#[test]
fn a_bad_rkey_is_told_at_once_and_not_by_silence() {
    for length in [8, 5000] {
        for read in [false, true] {
            let mut rig = Rig::new(QpType::Rc);
            let remote = Remote { addr: BASE, rkey: 0x100 };
            let op = if read { SendOp::Read(remote) } else { SendOp::Write(remote) };
            rig.post(1, op, 0, length);
            rig.link.settle();
            assert_eq!(rig.sent(), [(1, RemAccessErr)], "{op:?} without a timeout");
            assert_eq!(rig.states(), (QpState::Err, QpState::Err));
            assert_eq!(rig.events_of_b(), [EventKind::QpAccessErr]);
        }
    }
}

/// P19: every right asked for must be there.
#[test]
fn a_right_too_few_is_an_access_error() {
    let both = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    let flush = |remote, placement| SendOp::Flush {
        remote,
        length: 8,
        level: FlushLevel::Range,
        placement,
    };
    type Make<'a> = &'a dyn Fn(Remote) -> (SendOp, u32);
    let table: &[(Access, Make, bool)] = &[
        (Access::REMOTE_READ, &|to| (SendOp::Read(to), 8), true),
        (Access::REMOTE_READ, &|to| (SendOp::Write(to), 8), false),
        (Access::REMOTE_READ, &|remote| (SendOp::FetchAdd { remote, add: 1 }, 8), false),
        (Access::REMOTE_READ, &|to| (flush(to, Access::FLUSH_GLOBAL), 0), false),
        (Access::REMOTE_WRITE, &|remote| (SendOp::FetchAdd { remote, add: 1 }, 8), false),
        (Access::REMOTE_WRITE, &|to| (SendOp::AtomicWrite(to, 1), 0), true),
        (Access::REMOTE_ATOMIC, &|to| (SendOp::AtomicWrite(to, 1), 0), false),
        (Access::REMOTE_ATOMIC, &|to| (SendOp::Read(to), 8), false),
        (Access::FLUSH_GLOBAL, &|to| (flush(to, Access::FLUSH_GLOBAL), 0), true),
        (Access::FLUSH_GLOBAL, &|to| (flush(to, Access::FLUSH_PERSISTENT), 0), false),
        (Access::FLUSH_GLOBAL, &|to| (flush(to, both), 0), false),
        (Access::FLUSH_PERSISTENT, &|to| (flush(to, both), 0), false),
        (both, &|to| (flush(to, both), 0), true),
    ];
    for (rights, make, allowed) in table {
        let mut rig = Rig::new(QpType::Rc);
        let keys = rig.link.b.reg_mr(0, 64, *rights | Access::LOCAL_WRITE);
        let (op, length) = make(Remote { addr: BASE, rkey: keys.rkey });
        rig.post(1, op, 0, length);
        rig.link.settle();
        let expected = if *allowed { Success } else { RemAccessErr };
        assert_eq!(rig.sent(), [(1, expected)], "{op:?} with {rights:?}");
    }
}

/// P22: byte_len of a WRITE with immediate is the length written, of however many packets.
#[test]
fn byte_len_of_a_write_with_immediate_is_what_was_written() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend] {
        for length in [0, 1, 1024, 3 * 1024 + 5] {
            let mut rig = Rig::new(qp_type);
            rig.post_recv(11, 8192, 0);
            let remote = rig.link.b.remote(0);
            rig.post(1, SendOp::WriteImm(remote, [1, 2, 3, 4]), 0, length);
            rig.link.settle();
            let received = rig.received();
            assert_eq!(statuses(&received), [(11, Success)]);
            assert_eq!(received[0].byte_len, length, "{length} bytes on {qp_type:?}");
            assert_eq!(received[0].imm_data, Some([1, 2, 3, 4]));
        }
    }
}

/// P23: every receive posted is flushed once, in order; late ones too; an SRQ's are not.
#[test]
fn the_receive_queue_is_flushed_on_error() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut scripted = Scripted::new(qp_type);
        for wr_id in 1..=10 {
            scripted.post_recv(wr_id, 0, 64);
        }
        scripted.node.to_state(scripted.qpn, QpState::Err);
        scripted.post_recv(11, 0, 64);
        let expected: Vec<_> = (1..=11).map(|wr_id| (wr_id, WrFlushErr)).collect();
        assert_eq!(statuses(&scripted.node.received()), expected, "{qp_type:?}");

        let mut scripted = Scripted::on_srq(qp_type);
        scripted.post_recv(1, 0, 64);
        scripted.node.to_state(scripted.qpn, QpState::Err);
        assert!(scripted.node.received().is_empty(), "{qp_type:?} on an SRQ");
    }
}

/// P24: a QP on an SRQ tells once, after its last completion.
#[test]
fn last_wqe_reached_comes_once_and_last() {
    let mut scripted = Scripted::on_srq(QpType::Rc);
    scripted.post_recv(1, 0, 4096);
    scripted.post_recv(2, 0, 4096);
    scripted.deliver(&scripted.packet(Opcode::RC_SEND_FIRST, EPSN).fill(1, 1024));
    scripted.node.to_state(scripted.qpn, QpState::Err);
    let received = statuses(&scripted.node.received());
    assert_eq!(received, [(1, WrFlushErr)], "the one in use alone");
    assert_eq!(scripted.events(), [EventKind::QpLastWqeReached]);
    scripted.node.to_state(scripted.qpn, QpState::Err);
    assert!(scripted.events().is_empty());
}

/// P25: the alignment of atomics is checked on the way through the device's own loop too.
#[test]
fn an_unaligned_atomic_is_refused_over_loopback() {
    let mut node = Node::new(1);
    let (a, b) = (node.create(QpType::Rc), node.create(QpType::Rc));
    let entry = node.entry;
    for (own, other) in [(a, b), (b, a)] {
        let attr = node.attr_to(&entry, other);
        node.bring_up(own, &attr, QpState::Rts);
    }
    node.device.memory_mut().put(BASE, &[7; 16]);
    // Zero based, four bytes off: address 0 is aligned on the wire and not in memory.
    let access = Access::REMOTE_ATOMIC | Access::LOCAL_WRITE | Access::ZERO_BASED;
    let rkey = node.reg_mr(4, 64, access).rkey;
    let remote = Remote { addr: 0, rkey };
    node.post(a, 1, SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 4096, 8);
    while let Some(seen) = node.next_frame() {
        node.receive(&seen.frame).ok();
    }
    assert_eq!(statuses(&node.sent()), [(1, RemInvReqErr)]);
    assert_eq!(node.device.memory().bytes(BASE, 16), [7; 16]);
}

/// An atomic whose address is misaligned on the wire is refused when posted.
#[test]
fn a_misaligned_atomic_is_refused_at_post() {
    let mut scripted = Scripted::rc();
    let sges = [scripted.node.sge(0, 8)];
    for offset in 1..8 {
        let remote = scripted.node.remote(offset);
        for op in [
            SendOp::FetchAdd { remote, add: 1 },
            SendOp::CompareSwap { remote, compare: 0, swap: 0 },
        ] {
            let outcome = scripted.node.device.post_send(scripted.qpn, &SendWr::new(1, op, &sges));
            assert_eq!(outcome, Err(VerbsError::Invalid), "{op:?}");
        }
    }
}

/// P27: the receive buffer has moved to another protection domain.
#[test]
fn a_receive_in_another_domain_fails_both_ends() {
    let mut rig = Rig::new(QpType::Rc);
    let keys = rig.link.b.reg_mr(8192, 4096, Access::LOCAL_WRITE);
    let other = rig.link.b.device.alloc_pd().unwrap();
    let change = MrChange { pd: Some(other), ..MrChange::default() };
    let moved = rig.link.b.device.rereg_mr(keys.mr, &change).unwrap();
    for wr_id in 11..21 {
        let sges = [ferroce_stack::verbs::Sge { addr: BASE + 8192, length: 64, lkey: moved.lkey }];
        rig.link.b.device.post_recv(rig.b, &RecvWr { wr_id, sges: &sges }).unwrap();
    }
    for wr_id in 1..=10 {
        rig.post(wr_id, SendOp::Send, 0, 64);
    }
    rig.link.run_for(SEC);
    let mut sent = vec![(1, RemOpErr)];
    sent.extend((2..=10).map(|wr_id| (wr_id, WrFlushErr)));
    assert_eq!(rig.sent(), sent);
    let mut received = vec![(11, LocProtErr)];
    received.extend((12..21).map(|wr_id| (wr_id, WrFlushErr)));
    assert_eq!(statuses(&rig.received()), received);
    assert_eq!(rig.states(), (QpState::Err, QpState::Err));
}

/// P28: more entries than the queue takes are refused at post, and leave it usable.
#[test]
fn too_many_sges_are_refused_at_post() {
    let mut scripted = Scripted::rc();
    let sges = [scripted.node.sge(0, 8); 5];
    let refused = |outcome: Result<(), VerbsError>| {
        matches!(outcome, Err(VerbsError::Invalid | VerbsError::NoMemory))
    };
    let recv = RecvWr { wr_id: 1, sges: &sges };
    assert!(refused(scripted.node.device.post_recv(scripted.qpn, &recv)));
    let send = SendWr::new(1, SendOp::Send, &sges);
    assert!(refused(scripted.node.device.post_send(scripted.qpn, &send)));
    let srq = scripted.node.create_srq(4, None);
    assert!(refused(scripted.node.device.post_srq_recv(srq, &recv)));
    let send = SendWr::new(2, SendOp::Send, &sges[..4]);
    scripted.node.post_wr(scripted.qpn, &send);
    expect_packets(
        "4 entries",
        &scripted.frames(),
        &[packet(Opcode::RC_SEND_ONLY).payload_len(32)],
    );
}

/// P29: the responder's depth changes in SQD, under a stream of READs; at 0 they are refused.
#[test]
fn responder_depth_changes_on_a_live_qp() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let mut psn = EPSN;
    for depth in [16, 1, 128, 2, 7] {
        scripted.node.to_state(scripted.qpn, QpState::Sqd);
        let attr =
            QpAttr { qp_state: QpState::Sqd, max_dest_rd_atomic: depth, ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::MAX_DEST_RD_ATOMIC;
        assert_eq!(scripted.node.device.modify_qp(scripted.qpn, &attr, mask), Ok(()));
        for _ in 0..20 {
            let read = scripted.packet(Opcode::RC_READ_REQUEST, psn).reth(remote, 8);
            let response = [packet(Opcode::RC_READ_RESPONSE_ONLY).psn(psn)];
            expect_packets(format!("depth {depth}"), &scripted.exchange(&[read]), &response);
            psn += 1;
        }
        scripted.node.to_state(scripted.qpn, QpState::Rts);
    }
    scripted.node.to_state(scripted.qpn, QpState::Sqd);
    let attr = QpAttr { qp_state: QpState::Sqd, max_dest_rd_atomic: 0, ..QpAttr::default() };
    let mask = AttrMask::STATE | AttrMask::MAX_DEST_RD_ATOMIC;
    assert_eq!(scripted.node.device.modify_qp(scripted.qpn, &attr, mask), Ok(()));
    let read = scripted.packet(Opcode::RC_READ_REQUEST, psn).reth(remote, 8);
    expect_packets("depth 0", &scripted.exchange(&[read]), &[Expected::nak(psn, 0x61)]);
}

/// P30: a peer in RESET or ERR, or gone, is silent; every operation ends within the bound.
#[test]
fn a_silent_peer_ends_in_retry_exceeded_within_the_bound() {
    let remote = Remote { addr: BASE, rkey: 0x101 };
    let (level, placement) = (FlushLevel::Range, Access::FLUSH_GLOBAL);
    let operations = [
        (SendOp::Send, 8),
        (SendOp::SendImm([0; 4]), 8),
        (SendOp::SendInv(1), 8),
        (SendOp::Write(remote), 5000),
        (SendOp::WriteImm(remote, [0; 4]), 8),
        (SendOp::Read(remote), 5000),
        (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 8),
        (SendOp::FetchAdd { remote, add: 1 }, 8),
        (SendOp::AtomicWrite(remote, 1), 0),
        (SendOp::Flush { remote, length: 8, level, placement }, 0),
    ];
    // Timeout code 10, retry_cnt 3: four timeouts of 4.19 ms, each detected within 4T.
    let bound = 4 * 4 * (4096u64 << 10);
    for gone in ["reset", "error", "destroyed"] {
        for (op, length) in operations {
            let mut rig = Rig::with(QpType::Rc, |_, _| {}, |attr, _| attr.timeout = 10);
            match gone {
                "reset" => rig.link.b.to_state(rig.b, QpState::Reset),
                "error" => rig.link.b.to_state(rig.b, QpState::Err),
                _ => rig.link.b.device.destroy_qp(rig.b).unwrap(),
            }
            rig.post(1, op, 0, length);
            let frames = rig.link.run_for(bound);
            assert!(frames.iter().all(|frame| frame.from_a), "{gone}, {op:?}: an answer");
            assert_eq!(rig.sent(), [(1, RetryExcErr)], "{gone}, {op:?}");
        }
    }
}

/// P37, the responder's part of it: what was written is read, in order, without a fence.
#[test]
fn a_read_sees_the_writes_before_it() {
    let mut rig = Rig::new(QpType::Rc);
    let remote = rig.link.b.remote(0);
    rig.link.a.device.memory_mut().put(BASE, &[5; 3000]);
    rig.post(1, SendOp::Write(remote), 0, 3000);
    rig.post(2, SendOp::Read(remote), 8192, 3000);
    rig.link.settle();
    assert_eq!(rig.sent(), [(1, Success), (2, Success)]);
    assert_eq!(rig.link.a.device.memory().bytes(BASE + 8192, 3000), [5; 3000]);
}

/// Solicited-only arming fires for SE and for errors, not for a plain receive; one shot each.
#[test]
fn solicited_arming_fires_for_solicited_and_failed_receives() {
    use ferroce_stack::verbs::Event;
    let mut rig = Rig::new(QpType::Rc);
    let cq = rig.link.b.recv_cq;
    for wr_id in 11..=14 {
        rig.post_recv(wr_id, 0, 64);
    }
    let fired = |rig: &mut Rig| rig.link.b.events().contains(&Event::Completion(cq));
    let send = |rig: &mut Rig, flags| {
        let sges = [rig.link.a.sge(0, 8)];
        rig.post_wr(1, SendOp::Send, SendData::Sges(&sges), flags);
        rig.link.settle();
    };
    rig.link.b.device.req_notify_cq(cq, true).unwrap();
    send(&mut rig, SendFlags::SIGNALED);
    assert!(!fired(&mut rig), "a plain receive");
    send(&mut rig, SendFlags::SIGNALED | SendFlags::SOLICITED);
    assert!(fired(&mut rig), "a solicited one");
    send(&mut rig, SendFlags::SIGNALED | SendFlags::SOLICITED);
    assert!(!fired(&mut rig), "not armed again");
    rig.link.b.device.req_notify_cq(cq, true).unwrap();
    rig.link.b.to_state(rig.b, QpState::Err);
    assert!(fired(&mut rig), "a flushed one");
}
