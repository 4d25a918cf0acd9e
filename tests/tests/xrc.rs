//! XRC (Annex A14): the SRQ is named by each request and gives receives, CQ and protection domain;
//! the rest is RC. Causes of NAKs on XRC targets are tested with those of RC.

use ferroce_stack::MrInit;
use ferroce_stack::verbs::{
    Access, EventKind, QpState, QpType, SendData, SendFlags, SendOp, SendWr, VerbsError, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{EPSN, Rig, Scripted, expect_packets, packet, statuses};

use WcStatus::Success;

#[test]
fn every_request_names_the_srq_and_no_response_does() {
    let mut rig = Rig::new(QpType::XrcSend);
    let srqn = rig.srq.unwrap().value();
    let remote = rig.link.b.remote(0);
    rig.post_recv(11, 8192, 4096);
    rig.post_recv(12, 8192, 4096);
    rig.post(1, SendOp::Send, 0, 2500);
    rig.post(2, SendOp::WriteImm(remote, [1; 4]), 0, 2500);
    rig.post(3, SendOp::Read(remote), 1 << 20, 2500);
    rig.post(4, SendOp::FetchAdd { remote, add: 1 }, 1 << 20, 8);
    rig.post(5, SendOp::AtomicWrite(remote, 1), 0, 0);
    let frames = rig.link.settle();
    for frame in &frames {
        let named = frame.seen.headers.ext.xrceth.map(|xrceth| xrceth.srqn);
        assert_eq!(named, frame.from_a.then_some(srqn), "{:?}", frame.seen);
        assert_eq!(frame.seen.opcode().0 & 0xe0, 0xa0, "{:?}", frame.seen);
    }
    assert_eq!(rig.sent(), (1..=5).map(|wr_id| (wr_id, Success)).collect::<Vec<_>>());
    let received = rig.received();
    assert_eq!(statuses(&received), [(11, Success), (12, Success)]);
    for wc in received {
        assert_eq!(wc.qp_num, rig.b, "the target's number");
        assert_eq!(wc.src_qp, rig.a, "the initiator's number");
    }
}

#[test]
fn an_initiator_must_name_an_srq() {
    let mut rig = Rig::new(QpType::XrcSend);
    let sges = [rig.link.a.sge(0, 8)];
    let outcome = rig.link.a.device.post_send(rig.a, &SendWr::new(1, SendOp::Send, &sges));
    assert_eq!(outcome, Err(VerbsError::Invalid));
}

/// A target has no queues: nothing can be posted to it, and an initiator receives nothing.
#[test]
fn targets_send_nothing_and_initiators_receive_nothing() {
    let mut rig = Rig::new(QpType::XrcSend);
    let sges = [rig.link.b.sge(0, 8)];
    let recv = ferroce_stack::verbs::RecvWr { wr_id: 1, sges: &sges };
    assert!(rig.link.b.device.post_recv(rig.b, &recv).is_err());
    let send = SendWr { srqn: Some(1), ..SendWr::new(1, SendOp::Send, &sges) };
    assert!(rig.link.b.device.post_send(rig.b, &send).is_err());
    assert!(rig.link.a.device.post_recv(rig.a, &recv).is_err());
    let mut initiator = Scripted::new(QpType::XrcSend);
    let send = initiator.packet(Opcode::XRC_SEND_ONLY, EPSN).fill(1, 8).ack_req();
    initiator.send(&send).unwrap_err();
    assert!(initiator.frames().is_empty());
    assert_eq!(initiator.state(), QpState::Rts);
}

/// The SRQ named must exist, be an XRC one, and in the target's domain.
#[test]
fn an_srq_that_may_not_be_named_is_an_invalid_request() {
    for which in ["none", "a basic one", "of another domain"] {
        let mut scripted = Scripted::new(QpType::XrcRecv);
        scripted.peer.srqn = match which {
            "none" => 0xff_ff00,
            "a basic one" => scripted.node.create_srq(4, None).value(),
            _ => {
                let other = scripted.node.device.open_xrcd().unwrap();
                scripted.node.create_srq(4, Some(other)).value()
            }
        };
        let frames =
            scripted.exchange(&[scripted.packet(Opcode::XRC_SEND_ONLY, EPSN).fill(1, 8).ack_req()]);
        let nak = [packet(Opcode::XRC_ACKNOWLEDGE).psn(EPSN).syndrome(0x61)];
        expect_packets(which, &frames, &nak);
        assert_eq!(scripted.events(), [EventKind::QpReqErr], "{which}");
    }
}

#[test]
fn all_packets_of_a_message_name_the_same_srq() {
    let mut scripted = Scripted::new(QpType::XrcRecv);
    let init = scripted.node.device.query_qp(scripted.qpn).unwrap().1;
    scripted.post_recv(11, 0, 4096);
    scripted.deliver(&scripted.packet(Opcode::XRC_SEND_FIRST, EPSN).fill(1, 1024));
    scripted.peer.srqn = scripted.node.create_srq(4, init.xrcd).value();
    let frames = scripted.exchange(&[scripted.packet(Opcode::XRC_SEND_LAST, EPSN + 1).fill(1, 8)]);
    let nak = [packet(Opcode::XRC_ACKNOWLEDGE).psn(EPSN + 1).syndrome(0x61)];
    expect_packets("another SRQ in the middle", &frames, &nak);
    assert_eq!(statuses(&scripted.node.received()), [(11, WcStatus::RemInvReqErr)]);
}

/// Messages choose among the SRQs of a domain, each with its own receives.
#[test]
fn one_target_serves_many_srqs() {
    let mut scripted = Scripted::new(QpType::XrcRecv);
    let init = scripted.node.device.query_qp(scripted.qpn).unwrap().1;
    let other = scripted.node.create_srq(4, init.xrcd);
    let first = scripted.peer.srqn;
    scripted.post_recv(11, 0, 64);
    scripted.node.post_srq(other, 21, 0, 64);
    scripted.peer.srqn = other.value();
    let to_other = scripted.packet(Opcode::XRC_SEND_ONLY, EPSN).fill(1, 8);
    scripted.peer.srqn = first;
    let to_first = scripted.packet(Opcode::XRC_SEND_ONLY, EPSN + 1).fill(1, 8);
    scripted.exchange(&[to_other, to_first]);
    assert_eq!(statuses(&scripted.node.received()), [(21, Success), (11, Success)]);
}

/// R_Keys are checked in the SRQ's protection domain: the target has none.
#[test]
fn the_srq_gives_the_protection_domain() {
    for same in [true, false] {
        let mut scripted = Scripted::new(QpType::XrcRecv);
        let pd = match same {
            true => scripted.node.pd,
            false => scripted.node.device.alloc_pd().unwrap(),
        };
        let access = Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        let mr = MrInit { addr: BASE, length: 64, iova: BASE, access };
        let rkey = scripted.node.device.reg_mr(pd, &mr).unwrap().rkey;
        let remote = ferroce_stack::verbs::Remote { addr: BASE, rkey };
        let write = scripted.packet(Opcode::XRC_WRITE_ONLY, EPSN).reth(remote, 8).fill(1, 8);
        let frames = scripted.exchange(&[write.ack_req()]);
        let syndrome = if same { 0x1f } else { 0x62 };
        let answer = [packet(Opcode::XRC_ACKNOWLEDGE).psn(EPSN).syndrome(syndrome)];
        expect_packets(format!("same domain: {same}"), &frames, &answer);
    }
}

/// An error of one target leaves the SRQ, and other targets on it, alone.
#[test]
fn a_failed_target_leaves_its_srq_alone() {
    let mut rig = Rig::new(QpType::XrcSend);
    rig.post_recv(11, 0, 8);
    rig.post_recv(12, 0, 64);
    rig.post(1, SendOp::Send, 0, 16);
    rig.link.settle();
    assert_eq!(rig.states(), (QpState::Err, QpState::Err));
    assert_eq!(statuses(&rig.received()), [(11, WcStatus::LocLenErr)]);
    // A second pair with the same SRQ.
    let srq = rig.srq.unwrap();
    let xrcd = rig.link.b.device.query_qp(rig.b).unwrap().1.xrcd;
    let init = rig.link.b.qp_init(QpType::XrcRecv, xrcd);
    let b = rig.link.b.device.create_qp(&init).unwrap();
    let a = rig.link.a.create(QpType::XrcSend);
    rig.link.connect_with(a, b, |_| {});
    let sges = [rig.link.a.sge(0, 16)];
    let data = SendData::Sges(&sges);
    let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
    let wr = SendWr { wr_id: 2, op, data, flags, ud: None, srqn: Some(srq.value()) };
    rig.link.a.post_wr(a, &wr);
    rig.link.settle();
    assert_eq!(statuses(&rig.received()), [(12, Success)]);
}
