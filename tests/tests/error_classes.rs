//! The responder's error classes (IBA 9.9.3): what each does to the receive in use, to both queues,
//! to the QP and to its neighbours. Class F is of reliable datagrams alone.

use ferroce_stack::verbs::{
    Access, Cq, Event, EventKind, MwBind, MwType, QpState, QpType, Qpn, RecvWr, Remote, SendOp,
    WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{Builder, EPSN, Expected, Rig, Scripted, expect_packets, statuses};

use WcStatus::{LocProtErr, RemInvReqErr, Success, WrFlushErr};

/// An RC QP with two unanswered sends, 1 and 2, the second unsignaled, and receives 11 to 13.
fn busy() -> Scripted {
    let mut scripted = Scripted::rc();
    for wr_id in 11..=13 {
        scripted.post_recv(wr_id, 8192, 2048);
    }
    add_sends(&mut scripted);
    scripted
}

fn add_sends(scripted: &mut Scripted) {
    use ferroce_stack::verbs::{SendFlags, SendWr};
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    let sges = [scripted.node.sge(0, 8)];
    let flags = SendFlags::NONE;
    let wr = SendWr { flags, ..SendWr::new(2, SendOp::Send, &sges) };
    scripted.node.post_wr(scripted.qpn, &wr);
    assert_eq!(scripted.frames().len(), 2);
}

fn only(scripted: &Scripted, len: usize) -> Builder {
    scripted.packet(Opcode::RC_SEND_ONLY, EPSN).fill(1, len).ack_req()
}

/// Everything posted is flushed, in order, after receive 11 ended with `first`; late posts too.
fn check_flushed(scripted: &mut Scripted, first: Option<WcStatus>) {
    assert_eq!(scripted.state(), QpState::Err);
    assert_eq!(statuses(&scripted.node.sent()), [(1, WrFlushErr), (2, WrFlushErr)]);
    let first = first.unwrap_or(WrFlushErr);
    let expected = [(11, first), (12, WrFlushErr), (13, WrFlushErr)];
    assert_eq!(statuses(&scripted.node.received()), expected);
    scripted.post_recv(14, 0, 8);
    scripted.node.post(scripted.qpn, 3, SendOp::Send, 0, 8);
    assert_eq!(statuses(&scripted.node.received()), [(14, WrFlushErr)]);
    assert_eq!(statuses(&scripted.node.sent()), [(3, WrFlushErr)]);
}

#[test]
fn class_a_a_bad_receive_fails_the_qp() {
    let mut scripted = Scripted::rc();
    let outside = scripted.node.device.memory().size();
    scripted.post_recv(11, outside, 2048);
    scripted.post_recv(12, 8192, 2048);
    scripted.post_recv(13, 8192, 2048);
    add_sends(&mut scripted);
    let frames = scripted.exchange(&[only(&scripted, 8)]);
    expect_packets("class A", &frames, &[Expected::nak(EPSN, 0x63)]);
    check_flushed(&mut scripted, Some(LocProtErr));
}

#[test]
fn class_b_a_gap_or_no_receive_leaves_the_qp_alone() {
    let mut scripted = busy();
    let ahead = scripted.packet(Opcode::RC_SEND_ONLY, EPSN + 1).fill(1, 8);
    let frames = scripted.exchange(&[ahead]);
    expect_packets("gap", &frames, &[Expected::nak(EPSN, 0x60)]);
    assert_eq!(scripted.state(), QpState::Rts);
    assert!(scripted.node.received().is_empty() && scripted.node.sent().is_empty());
    let mut scripted = Scripted::rc();
    let frames = scripted.exchange(&[only(&scripted, 8)]);
    expect_packets("RNR", &frames, &[Expected::nak(EPSN, 0x20 | 12)]);
    assert_eq!(scripted.state(), QpState::Rts);
}

#[test]
fn class_c_an_invalid_request_fails_the_qp_and_the_receive_in_use() {
    let mut scripted = busy();
    let first = scripted.packet(Opcode::RC_SEND_FIRST, EPSN).fill(1, 1024);
    let again = scripted.packet(Opcode::RC_SEND_FIRST, EPSN + 1).fill(1, 1024);
    let frames = scripted.exchange(&[first, again]);
    expect_packets("held", &frames, &[Expected::nak(EPSN + 1, 0x61)]);
    assert!(scripted.events().is_empty(), "the receive tells it");
    check_flushed(&mut scripted, Some(RemInvReqErr));
}

#[test]
fn class_c_without_a_receive_in_use_raises_an_event() {
    for (syndrome, kind) in [(0x61, EventKind::QpReqErr), (0x62, EventKind::QpAccessErr)] {
        let mut scripted = busy();
        let bad = match syndrome {
            0x61 => scripted.packet(Opcode::RC_WRITE_LAST, EPSN).fill(1, 8),
            _ => {
                let remote = Remote { addr: BASE, rkey: 1 };
                scripted.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8)
            }
        };
        let frames = scripted.exchange(&[bad]);
        expect_packets("not held", &frames, &[Expected::nak(EPSN, syndrome)]);
        assert_eq!(scripted.events(), [kind]);
        check_flushed(&mut scripted, None);
    }
}

/// A QP on an SRQ: the receive in use completes, the others stay for its neighbours, and the QP
/// tells once that it takes no more (P24).
#[test]
fn class_c_on_an_srq_spares_the_srq() {
    let mut scripted = Scripted::on_srq(QpType::Rc);
    scripted.post_recv(11, 8192, 2048);
    scripted.post_recv(12, 8192, 2048);
    let first = scripted.packet(Opcode::RC_SEND_FIRST, EPSN).fill(1, 1024);
    scripted.exchange(&[first.clone(), scripted.packet(Opcode::RC_SEND_FIRST, EPSN + 1)]);
    assert_eq!(statuses(&scripted.node.received()), [(11, RemInvReqErr)]);
    assert_eq!(scripted.events(), [EventKind::QpLastWqeReached]);
    scripted.node.to_state(scripted.qpn, QpState::Err);
    assert!(scripted.events().is_empty(), "once");
}

/// Class D: what is wrong on UC or UD is dropped in silence; queue and QP stay.
#[test]
fn class_d_unreliable_faults_are_silent() {
    let far = Remote { addr: BASE, rkey: 1 };
    type Make = fn(&Scripted, Remote) -> Vec<Builder>;
    let table: [(&str, Make); 7] = [
        ("gap in the middle", |s, _| {
            vec![
                s.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1024),
                s.packet(Opcode::UC_SEND_LAST, EPSN + 2).fill(1, 8),
            ]
        }),
        ("no First", |s, _| vec![s.packet(Opcode::UC_SEND_LAST, EPSN).fill(1, 8)]),
        ("longer than the receive", |s, _| {
            vec![
                s.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1024),
                s.packet(Opcode::UC_SEND_MIDDLE, EPSN + 1).fill(1, 1024),
                s.packet(Opcode::UC_SEND_LAST, EPSN + 2).fill(1, 8),
            ]
        }),
        ("a short First", |s, _| vec![s.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1000)]),
        ("a wrong R_Key", |s, far| {
            vec![s.packet(Opcode::UC_WRITE_ONLY, EPSN).reth(far, 8).fill(1, 8)]
        }),
        ("a WRITE that is short", |s, _| {
            let remote = s.node.remote(0);
            vec![s.packet(Opcode::UC_WRITE_ONLY, EPSN).reth(remote, 9).fill(1, 8)]
        }),
        ("a WRITE with immediate and a wrong R_Key", |s, far| {
            vec![s.packet(Opcode::UC_WRITE_ONLY_IMM, EPSN).reth(far, 8).imm([1; 4]).fill(1, 8)]
        }),
    ];
    for (name, make) in table {
        let mut scripted = Scripted::new(QpType::Uc);
        scripted.post_recv(11, 8192, 2048);
        let packets = make(&scripted, far);
        for packet in &packets {
            scripted.send(&packet.clone().ack_req()).ok();
        }
        assert!(scripted.frames().is_empty(), "{name}: an answer");
        assert!(scripted.node.received().is_empty(), "{name}: a completion");
        assert!(scripted.events().is_empty(), "{name}: an event");
        assert_eq!(scripted.state(), QpState::Rts, "{name}");
        // The receive is there for the next message, from its beginning.
        let good = scripted.packet(Opcode::UC_SEND_ONLY, EPSN + 9).fill(7, 16);
        scripted.deliver(&good);
        let received = scripted.node.received();
        assert_eq!(statuses(&received), [(11, Success)], "{name}");
        assert_eq!(received[0].byte_len, 16, "{name}");
        assert_eq!(scripted.node.device.memory().bytes(BASE + 8192, 16), [7; 16], "{name}");
    }
}

/// Class D1: a new message while one is open; the old one's receive is used again for it.
#[test]
fn class_d1_a_new_message_takes_over_the_receive() {
    let mut scripted = Scripted::new(QpType::Uc);
    scripted.post_recv(11, 8192, 2048);
    let first = scripted.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1024);
    let new = scripted.packet(Opcode::UC_SEND_ONLY, EPSN + 1).fill(2, 100);
    assert!(scripted.exchange(&[first, new]).is_empty());
    let received = scripted.node.received();
    assert_eq!(statuses(&received), [(11, Success)]);
    assert_eq!(received[0].byte_len, 100);
    assert_eq!(scripted.node.device.memory().bytes(BASE + 8192, 100), [2; 100]);
}

/// Class E: on an SRQ the receive cannot go back; it completes with an error, the QP stays.
#[test]
fn class_e_an_aborted_message_on_an_srq_completes_with_an_error() {
    let mut scripted = Scripted::on_srq(QpType::Uc);
    scripted.post_recv(11, 8192, 2048);
    scripted.post_recv(12, 8192, 2048);
    let first = scripted.packet(Opcode::UC_SEND_FIRST, EPSN).fill(1, 1024);
    let new = scripted.packet(Opcode::UC_SEND_ONLY, EPSN + 1).fill(2, 100);
    scripted.exchange(&[first, new]);
    let received = scripted.node.received();
    assert_eq!((received[0].wr_id, received[1].wr_id), (11, 12));
    assert_ne!(received[0].status, Success);
    assert_eq!(received[1].status, Success);
    assert_eq!(scripted.state(), QpState::Rts);
}

/// Class G and P59: an overrun CQ raises CQ_ERR and fails all QPs that complete there; nothing
/// that was in it is lost.
#[test]
fn class_g_an_overrun_cq_fails_its_qps() {
    let mut small: Option<Cq> = None;
    let mut scripted = Scripted::with(
        QpType::Rc,
        |_| {},
        |node, init| {
            let cq = node.device.create_cq(8).expect("CQ");
            small = Some(cq);
            init.recv_cq = Some(cq);
        },
    );
    let cq = small.expect("made");
    let neighbour = {
        let mut init = scripted.node.qp_init(QpType::Rc, None);
        init.send_cq = Some(cq);
        let qpn = scripted.node.device.create_qp(&init).expect("QP");
        let attr = scripted.node.attr_to(&scripted.peer.own, Qpn(0x77));
        scripted.node.bring_up(qpn, &attr, QpState::Rts);
        qpn
    };
    let stranger = scripted.node.create(QpType::Rc);
    let attr = scripted.node.attr_to(&scripted.peer.own, Qpn(0x78));
    scripted.node.bring_up(stranger, &attr, QpState::Rts);
    for wr_id in 1..=9 {
        scripted.post_recv(wr_id, 0, 8);
    }
    for at in 0..9 {
        let send = scripted.packet(Opcode::RC_SEND_ONLY, EPSN + at).fill(1, 8).ack_req();
        scripted.deliver(&send);
        for seen in scripted.frames() {
            let told = seen.syndrome().expect("AETH");
            assert!(told == 0x1f && at < 8 || told == 0x63, "SEND {at}: {seen:?}");
        }
    }
    let events = scripted.node.events();
    let cq_errs = events.iter().filter(|&&event| event == Event::Cq(cq, EventKind::CqErr));
    assert_eq!(cq_errs.count(), 1, "{events:?}");
    assert_eq!(scripted.state(), QpState::Err);
    assert_eq!(scripted.node.state(neighbour), QpState::Err, "it completes there too");
    assert_eq!(scripted.node.state(stranger), QpState::Rts, "it does not");
    let kept: Vec<u64> = scripted.node.poll(cq).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(kept, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Class J: the data is placed, then the invalidation fails: no NAK, the receive ends with an
/// error. The right key is invalidated and can be used no more.
#[test]
fn class_j_and_an_invalidation_that_succeeds() {
    for right in [true, false] {
        let mut rig = Rig::new(QpType::Rc);
        let (pd, mr) = (rig.link.b.pd, rig.link.b.mr.mr);
        let (mw, rkey) = rig.link.b.device.alloc_mw(pd, MwType::Type2).expect("MW");
        let bind = MwBind { mr, addr: BASE, length: 64, access: Access::REMOTE_READ };
        rig.link.b.post(rig.b, 50, SendOp::BindMw { mw, rkey: rkey + 1, bind }, 0, 0);
        rig.link.settle();
        let bound = rig.link.b.device.mw_rkey(mw).expect("MW");
        assert_eq!(statuses(&rig.link.b.sent()), [(50, Success)]);
        rig.post_recv(11, 8192, 64);
        rig.post_recv(12, 8192, 64);
        let named = if right { bound } else { bound ^ 1 };
        rig.post(1, SendOp::SendInv(named), 0, 8);
        let frames = rig.link.settle();
        let received = rig.received();
        if right {
            assert_eq!(statuses(&received), [(11, Success)]);
            assert_eq!(received[0].invalidated_rkey, Some(bound));
            rig.post(2, SendOp::Read(Remote { addr: BASE, rkey: bound }), 0, 8);
            rig.link.settle();
            assert_eq!(rig.sent(), [(1, Success), (2, WcStatus::RemAccessErr)]);
        } else {
            assert_eq!(statuses(&received), [(11, RemInvReqErr), (12, WrFlushErr)]);
            assert!(frames.iter().all(|frame| frame.from_a), "no NAK is owed");
            assert_eq!(rig.states().1, QpState::Err);
        }
    }
}

/// Errors of one QP leave every other alone.
#[test]
fn errors_of_one_qp_leave_its_neighbours_alone() {
    let mut rig = Rig::new(QpType::Rc);
    let (a2, b2) = rig.link.pair(QpType::Rc);
    let sges = [rig.link.b.sge(8192, 64)];
    rig.link.b.device.post_recv(b2, &RecvWr { wr_id: 21, sges: &sges }).expect("posted");
    rig.post(1, SendOp::Write(Remote { addr: 0, rkey: 1 }), 0, 8);
    rig.link.a.post(a2, 2, SendOp::Send, 0, 64);
    rig.link.settle();
    let mut sent = rig.sent();
    sent.sort_by_key(|&(wr_id, _)| wr_id);
    assert_eq!(sent, [(1, WcStatus::RemAccessErr), (2, Success)]);
    assert_eq!(statuses(&rig.received()), [(21, Success)]);
    assert_eq!(rig.link.b.state(b2), QpState::Rts);
}
