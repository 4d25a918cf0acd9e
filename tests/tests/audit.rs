//! What a hostile peer, and an application that errs, must not be able to do.

use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, AttrMask, Event, EventKind, Mtu, MwBind, MwType, QpAttr, QpInit, QpState, QpType, Qpn,
    RecvWr, Remote, SendOp, SendWr, Sge, UdTarget, VerbsError, WcStatus,
};
use ferroce_stack::wire::{Deth, Net, Opcode, Rdeth};
use ferroce_stack::{Config, GidEntry};
use ferroce_tests::node::address;
use ferroce_tests::peer::resealed;
use ferroce_tests::{
    BASE, EPSN, Expected, Node, PSN, Peer, SEC, Scripted, expect_packets, packet, statuses,
};

/// READs may ask for as many PSNs as there are apart from those outstanding, but the answers owed
/// never outnumber `max_dest_rd_atomic`.
#[test]
fn huge_reads_cannot_pile_up_answers() {
    let mut scripted = Scripted::rc_with(|attr| {
        attr.path_mtu = Mtu::Mtu256;
        attr.max_dest_rd_atomic = 2;
    });
    let keys = scripted.node.reg_mr(0, 1 << 31, Access::REMOTE_READ);
    let remote = Remote { addr: BASE, rkey: keys.rkey };
    let psns = (1 << 22) + 1;
    let mut psn = Psn::new(EPSN);
    for _ in 0..2 {
        scripted.deliver(
            &scripted.packet(Opcode::RC_READ_REQUEST, psn.value()).reth(remote, psns * 256),
        );
        psn = psn.advance(psns);
    }
    scripted
        .deliver(&scripted.packet(Opcode::RC_READ_REQUEST, psn.value()).reth(remote, psns * 256));
    assert_eq!(scripted.state(), QpState::Err, "a third READ before the first was answered");
}

/// Reliable datagrams carry a DETH too, and are nobody's here.
#[test]
fn a_group_does_not_hear_reliable_datagrams() {
    let group = Gid::from_ip("239.1.2.3".parse().unwrap());
    let mut scripted = Scripted::new(QpType::Ud);
    scripted.node.device.attach_mcast(scripted.qpn, group).unwrap();
    scripted.post_recv(11, 0, 100);
    let Net::V4(mut ip) = scripted.packet(Opcode::UD_SEND_ONLY, 0).headers.net else {
        panic!("IPv4")
    };
    ip.dst = group.ipv4().unwrap();
    let qkey = scripted.peer.qkey;
    let to_group = |scripted: &Scripted, opcode| {
        scripted.packet(opcode, 0).fill(1, 8).change(|headers| {
            headers.net = Net::V4(ip);
            headers.bth.dest_qp = Qpn::MULTICAST.0;
        })
    };
    let reliable = to_group(&scripted, Opcode::RD_SEND_ONLY).change(|headers| {
        headers.ext.rdeth = Some(Rdeth { reserved: 0, ee_context: 0 });
        headers.ext.deth = Some(Deth { qkey, reserved: 0, src_qp: 9 });
    });
    assert_eq!(scripted.send(&reliable), Err(Discard::WrongService));
    scripted.deliver(&to_group(&scripted, Opcode::UD_SEND_ONLY));
    assert_eq!(statuses(&scripted.node.received()), [(11, WcStatus::Success)]);
}

#[test]
fn a_second_gsi_qp_leaves_the_first_alone() {
    let mut node = Node::new(1);
    let init = node.qp_init(QpType::Gsi, None);
    assert_eq!(node.device.create_qp(&init), Ok(Qpn::GSI));
    assert_eq!(node.device.create_qp(&init), Err(VerbsError::NoMemory));
    assert_eq!(node.device.qp_state(Qpn::GSI), Ok(QpState::Reset));
    node.device.destroy_qp(Qpn::GSI).unwrap();
    assert_eq!(node.device.create_qp(&init), Ok(Qpn::GSI));
}

/// A CQ that has overrun is unusable for good: a QP brought up on it later fails at its first
/// completion, rather than lose it in silence.
#[test]
fn no_completion_vanishes_in_a_cq_that_has_overrun() {
    let mut small = None;
    let mut scripted = Scripted::with(
        QpType::Rc,
        |_| {},
        |node, init| {
            small = Some(node.device.create_cq(1).unwrap());
            init.recv_cq = small;
        },
    );
    for wr_id in 0..3 {
        scripted.post_recv(wr_id, 0, 64);
        scripted.send(&scripted.packet(Opcode::RC_SEND_ONLY, EPSN + wr_id as u32)).ok();
    }
    assert_eq!(scripted.state(), QpState::Err);
    let qpn = scripted.node.create(QpType::Rc);
    let own = scripted.node.device.query_qp(qpn).unwrap().1;
    scripted.node.device.destroy_qp(qpn).unwrap();
    let init = QpInit { recv_cq: small, ..own };
    let qpn = scripted.node.device.create_qp(&init).unwrap();
    let attr = scripted.node.attr_to(&scripted.peer.own, Qpn(0x55));
    scripted.node.bring_up(qpn, &attr, QpState::Rts);
    scripted.node.post_recv(qpn, 9, 0, 64);
    let peer = Peer { to_qpn: qpn, ..scripted.peer };
    let send = peer.packet(Opcode::RC_SEND_ONLY, attr.rq_psn.value()).fill(1, 8);
    scripted.node.receive(&send.frame()).unwrap();
    assert_eq!(scripted.node.state(qpn), QpState::Err);
}

/// The application often asks for ERR the moment it sees the failure: the peer is told all the
/// same.
#[test]
fn a_nak_outlives_the_applications_own_move_to_err() {
    let mut scripted = Scripted::rc();
    scripted.deliver(&scripted.packet(Opcode::RC_SEND_LAST, EPSN).fill(1, 8));
    scripted.node.to_state(scripted.qpn, QpState::Err);
    expect_packets("NAK", &scripted.frames(), &[Expected::nak(EPSN, 0x61)]);
}

/// A QP in line for the link that is destroyed leaves no place in it to its successor.
#[test]
fn a_successor_has_one_place_in_line() {
    let config = Config { max_qp: 3, burst: 1, ..Config::default() };
    let mut node = Node::with_config(address(1), config);
    let attr = node.attr_to(&address(2), Qpn(0x55));
    let [a, _, c] = [(); 3].map(|()| node.create(QpType::Rc));
    for qpn in [a, c] {
        node.bring_up(qpn, &attr, QpState::Rts);
    }
    node.post(c, 1, SendOp::Send, 0, 8);
    node.device.destroy_qp(c).unwrap();
    let c = node.create(QpType::Rc);
    let peers = |qpn: Qpn| QpAttr { dest_qp_num: qpn, ..attr };
    node.bring_up(c, &peers(Qpn(0x66)), QpState::Rts);
    for wr_id in 0..8 {
        node.post(c, wr_id, SendOp::Send, 0, 8);
        node.post(a, wr_id, SendOp::Send, 0, 8);
    }
    let order: Vec<u32> = node.transmit().iter().map(|seen| seen.headers.bth.dest_qp).collect();
    assert_eq!(order[..8], [0x66, 0x55, 0x66, 0x55, 0x66, 0x55, 0x66, 0x55]);
}

/// The eight bytes of an ATOMIC WRITE are data: they stand in memory as on the wire (seen from
/// rxe).
#[test]
fn an_atomic_write_places_its_bytes_in_order() {
    let bytes = [0x00, 0x07, 0x0e, 0x15, 0x1c, 0x23, 0x2a, 0x31];
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(64);
    let write = scripted.packet(Opcode::RC_ATOMIC_WRITE, EPSN).reth(remote, 8).payload(&bytes);
    scripted.deliver(&write);
    assert_eq!(scripted.node.device.memory().bytes(BASE + 64, 8), bytes);
    scripted.frames();
    let op = SendOp::AtomicWrite(remote, u64::from_ne_bytes(bytes));
    scripted.node.post(scripted.qpn, 1, op, 0, 0);
    assert_eq!(scripted.frames()[0].payload, bytes);
}

/// A receive with a wrong key is the application's fault (class A): it completes, and the QP
/// fails, rather than swallow every message in silence.
#[test]
fn a_bad_receive_fails_an_unreliable_qp() {
    for (qp_type, opcode) in
        [(QpType::Uc, Opcode::UC_SEND_ONLY), (QpType::Ud, Opcode::UD_SEND_ONLY)]
    {
        for on_srq in [false, true] {
            let mut scripted =
                if on_srq { Scripted::on_srq(qp_type) } else { Scripted::new(qp_type) };
            let sges = [Sge { lkey: 0xdead_be00, ..scripted.node.sge(0, 100) }];
            let wr = RecvWr { wr_id: 11, sges: &sges };
            match scripted.srq {
                Some(srq) => scripted.node.device.post_srq_recv(srq, &wr).unwrap(),
                None => scripted.node.device.post_recv(scripted.qpn, &wr).unwrap(),
            }
            scripted.send(&scripted.packet(opcode, EPSN).fill(1, 8)).unwrap_err();
            let received = statuses(&scripted.node.received());
            assert_eq!(received, [(11, WcStatus::LocProtErr)], "{qp_type:?} {on_srq}");
            assert_eq!(scripted.state(), QpState::Err);
        }
    }
}

/// PadCnt has to round the payload up to four bytes.
#[test]
fn a_payload_without_its_pad_is_an_invalid_request() {
    let mut scripted = Scripted::rc();
    scripted.post_recv(11, 0, 64);
    let mut frame = scripted.packet(Opcode::RC_SEND_ONLY, EPSN).fill(0, 8).frame();
    // One byte less for IP and UDP, which the IPv4 checksum makes up for.
    for (at, change) in [(17, -1), (25, 1), (39, -1)] {
        frame[at] = frame[at].checked_add_signed(change).expect("no carry");
    }
    frame.pop();
    scripted.node.receive(&resealed(frame)).unwrap();
    expect_packets("NAK", &scripted.frames(), &[Expected::nak(EPSN, 0x61)]);
}

/// READ responses and atomic acknowledgements have an ACK syndrome (IBA 9.7.5.2).
#[test]
fn a_response_that_says_nak_is_a_bad_response() {
    for syndrome in [0x20, 0x60, 0x62] {
        let mut scripted = Scripted::rc();
        let remote = scripted.node.remote(0);
        scripted.node.post(scripted.qpn, 1, SendOp::Read(remote), 0, 8);
        scripted.frames();
        let response = scripted.packet(Opcode::RC_READ_RESPONSE_ONLY, PSN);
        scripted.deliver(&response.aeth(syndrome, 1).fill(1, 8));
        assert_eq!(statuses(&scripted.node.sent()), [(1, WcStatus::BadRespErr)], "{syndrome:#x}");
    }
}

/// A FLUSH that names no placement, or a foreign one, is the application's fault and not the
/// connection's.
#[test]
fn a_flush_without_placement_is_refused_at_post() {
    use ferroce_stack::verbs::FlushLevel::Range;
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    for placement in [Access::NONE, Access::REMOTE_READ, Access::FLUSH_GLOBAL | Access::MW_BIND] {
        let op = SendOp::Flush { remote, length: 8, level: Range, placement };
        let outcome = scripted.node.device.post_send(scripted.qpn, &SendWr::new(1, op, &[]));
        assert_eq!(outcome, Err(VerbsError::Invalid), "{placement:?}");
    }
    let placement = Access::FLUSH_GLOBAL;
    let op = SendOp::Flush { remote, length: (1 << 31) + 1, level: Range, placement };
    let outcome = scripted.node.device.post_send(scripted.qpn, &SendWr::new(1, op, &[]));
    assert_eq!(outcome, Err(VerbsError::Invalid));
}

/// At region level address and length of a FLUSH are ignored.
#[test]
fn a_flush_of_a_region_has_no_length() {
    let mut scripted = Scripted::rc();
    let remote = Remote { addr: u64::MAX, ..scripted.node.remote(0) };
    let flush = scripted.packet(Opcode::RC_FLUSH, EPSN).feth(1, 1).reth(remote, u32::MAX);
    let expected = [packet(Opcode::RC_READ_RESPONSE_ONLY).psn(EPSN)];
    expect_packets("FLUSH", &scripted.exchange(&[flush]), &expected);
}

#[test]
fn a_gid_on_an_impossible_vlan_is_refused() {
    let mut node = Node::new(1);
    for vid in [0, 4095, 4096, u16::MAX] {
        let entry = GidEntry { vlan: Some(vid), ..address(3) };
        assert_eq!(node.device.add_gid(entry), Err(VerbsError::Invalid), "VLAN {vid}");
    }
}

/// An XRC initiator takes no requests, so none can establish its communication.
#[test]
fn a_request_to_an_xrc_initiator_is_nothing() {
    let mut node = Node::new(1);
    let qpn = node.create(QpType::XrcSend);
    let attr = node.attr_to(&address(2), Qpn(0x55));
    node.bring_up(qpn, &attr, QpState::Rtr);
    let peer =
        Peer { own: address(2), own_qpn: Qpn(0x55), to: node.entry, to_qpn: qpn, qkey: 0, srqn: 1 };
    let send = peer.packet(Opcode::XRC_SEND_ONLY, attr.rq_psn.value()).fill(1, 8);
    assert_eq!(node.receive(&send.frame()), Err(Discard::WrongService));
    assert_eq!(node.events(), []);
}

/// Fewer resources than before hold fewer answers from then on.
#[test]
fn lowered_responder_resources_are_kept_to() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let atomic =
        |scripted: &Scripted, psn| scripted.packet(Opcode::RC_FETCH_ADD, psn).atomic(remote, 1, 0);
    for psn in 0..8 {
        scripted.exchange(&[atomic(&scripted, EPSN + psn)]);
    }
    scripted.node.to_state(scripted.qpn, QpState::Sqd);
    let attr = QpAttr { max_dest_rd_atomic: 1, ..Default::default() };
    scripted.node.device.modify_qp(scripted.qpn, &attr, AttrMask::MAX_DEST_RD_ATOMIC).unwrap();
    scripted.exchange(&[atomic(&scripted, EPSN + 8)]);
    assert_eq!(scripted.send(&atomic(&scripted, EPSN + 7)), Err(Discard::StaleDuplicate));
    assert_eq!(scripted.send(&atomic(&scripted, EPSN + 8)), Ok(()));
}

/// A datagram whose address handle is gone fails alone; the queue can be brought back.
#[test]
fn a_destroyed_address_handle_fails_its_sends() {
    let mut scripted = Scripted::new(QpType::Ud);
    let to = scripted.node.attr_to(&scripted.peer.own, Qpn(0)).ah_attr;
    let ah = scripted.node.device.create_ah(scripted.node.pd, &to).unwrap();
    let ud = Some(UdTarget { ah, qpn: Qpn(0x99), qkey: 1 });
    let sges = [scripted.node.sge(0, 8)];
    for wr_id in 1..=2 {
        let wr = SendWr { ud, ..SendWr::new(wr_id, SendOp::Send, &sges) };
        scripted.node.post_wr(scripted.qpn, &wr);
    }
    scripted.node.device.destroy_ah(ah).unwrap();
    assert!(scripted.frames().is_empty());
    let expected = [(1, WcStatus::LocQpOpErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&scripted.node.sent()), expected);
    assert_eq!(scripted.state(), QpState::Sqe);
}

/// An SRQ destroyed under an XRC target that holds one of its receives: no byte is placed any
/// more, and the peer is told.
#[test]
fn an_xrc_srq_destroyed_in_mid_message_fails_the_target() {
    let mut scripted = Scripted::new(QpType::XrcRecv);
    scripted.post_recv(11, 0, 4096);
    scripted.deliver(&scripted.packet(Opcode::XRC_SEND_FIRST, EPSN).fill(1, 1024));
    scripted.node.device.destroy_srq(scripted.srq.unwrap()).unwrap();
    scripted.deliver(&scripted.packet(Opcode::XRC_SEND_LAST, EPSN + 1).fill(2, 8));
    assert_eq!(scripted.node.device.memory().bytes(BASE + 1024, 8), [0; 8]);
    assert_eq!(scripted.state(), QpState::Err);
    let nak = packet(Opcode::XRC_ACKNOWLEDGE).psn(EPSN + 1).syndrome(0x63);
    expect_packets("NAK", &scripted.frames(), &[nak]);
    let events = scripted.node.events();
    assert!(!events.contains(&Event::Qp(scripted.qpn, EventKind::QpAccessErr)), "{events:?}");
}

/// Retry counts changed in SQD hold for the first loss after it.
#[test]
fn retry_counts_changed_in_sqd_hold_at_once() {
    let mut scripted = Scripted::rc_with(|attr| {
        attr.retry_cnt = 0;
        attr.rnr_retry = 0;
    });
    let (node, qpn) = (&mut scripted.node, scripted.qpn);
    node.to_state(qpn, QpState::Sqd);
    let attr = QpAttr { retry_cnt: 2, rnr_retry: 1, ..QpAttr::default() };
    node.device.modify_qp(qpn, &attr, AttrMask::RETRY_CNT | AttrMask::RNR_RETRY).unwrap();
    node.to_state(qpn, QpState::Rts);
    node.post(qpn, 1, SendOp::Send, 0, 8);
    assert_eq!(node.next_frame().map(|seen| seen.psn()), Some(PSN));
    scripted.answer(PSN, 0x21).unwrap();
    assert_eq!(scripted.state(), QpState::Rts, "one RNR retry");
    assert_eq!(scripted.node.run_for(SEC).len(), 1 + 2, "after the RNR wait, and two retries");
    assert_eq!(statuses(&scripted.node.sent()), [(1, WcStatus::RetryExcErr)]);
}

/// Datagrams longer than its receives must not use up an SRQ that others receive from.
#[test]
fn oversized_datagrams_do_not_drain_an_srq() {
    let mut scripted = Scripted::on_srq(QpType::Ud);
    scripted.post_recv(11, 0, 48);
    for psn in 0..3 {
        let long = scripted.packet(Opcode::UD_SEND_ONLY, psn).fill(1, 12);
        assert_eq!(scripted.send(&long), Err(Discard::BadMessage));
    }
    assert_eq!(statuses(&scripted.node.received()), []);
    scripted.deliver(&scripted.packet(Opcode::UD_SEND_ONLY, 3).fill(1, 8));
    assert_eq!(statuses(&scripted.node.received()), [(11, WcStatus::Success)]);
}

/// QP1 takes every P_Key of the port, and its completion says which one it was.
#[test]
fn a_gsi_completion_names_the_pkey_that_matched() {
    let config = Config { pkeys: vec![0xffff, 0x8001], ..Config::default() };
    let mut node = Node::with_config(address(1), config);
    let qpn = node.create(QpType::Gsi);
    let attr = node.attr_to(&address(2), Qpn::GSI);
    node.bring_up(qpn, &attr, QpState::Rts);
    let qkey = 0x8001_0000;
    let (own, own_qpn) = (address(2), Qpn::GSI);
    let peer = Peer { own, own_qpn, to: node.entry, to_qpn: qpn, qkey, srqn: 0 };
    for (pkey, index) in [(0xffff, 0), (0x0001, 1), (0x8001, 1)] {
        node.post_recv(qpn, 11, 0, 100);
        let datagram = peer.packet(Opcode::UD_SEND_ONLY, 0).fill(1, 8);
        let datagram = datagram.change(|headers| headers.bth.pkey = pkey);
        node.receive(&datagram.frame()).unwrap();
        let received = node.received();
        assert_eq!(received.iter().map(|wc| wc.pkey_index).collect::<Vec<_>>(), [index]);
    }
}

/// A type 2 window is bound for the peer its QP had: not for the next one after RESET.
#[test]
fn a_window_does_not_outlive_the_reset_of_its_qp() {
    let mut scripted = Scripted::rc();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = scripted.node.reg_mr(0, 64, access);
    let (node, qpn) = (&mut scripted.node, scripted.qpn);
    let (mw, rkey) = node.device.alloc_mw(node.pd, MwType::Type2).unwrap();
    let bind = MwBind { mr: region.mr, addr: BASE, length: 64, access: Access::REMOTE_READ };
    node.post(qpn, 1, SendOp::BindMw { mw, rkey, bind }, 0, 0);
    node.transmit();
    assert_eq!(statuses(&node.sent()), [(1, WcStatus::Success)]);
    assert_eq!(node.device.dereg_mr(region.mr), Err(VerbsError::Busy));
    node.to_state(qpn, QpState::Reset);
    assert_eq!(node.device.dereg_mr(region.mr), Ok(()));
}
