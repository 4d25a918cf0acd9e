//! Work requests and what their completions tell (IBA 11.4.1, 11.4.2): scatter and gather, no
//! bytes at all, signaling, the fields of a completion, the end of the PSN space.

use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, FlushLevel, MwBind, MwType, QpState, QpType, Qpn, RecvWr, SendData, SendFlags, SendOp,
    SendWr, Sge, UdTarget, VerbsError, WcOpcode, WcStatus,
};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{EPSN, Expected, PSN, Rig, Scripted, expect_packets, packet, statuses};

use WcStatus::Success;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 256) as u8).collect()
}

/// Splits `lengths` over memory from `offset` on, a gap of 100 bytes after each.
fn pieces(lkey: u32, offset: u64, lengths: [u32; 4]) -> [Sge; 4] {
    let mut at = BASE + offset;
    lengths.map(|length| {
        let sge = Sge { addr: at, length, lkey };
        at += u64::from(length) + 100;
        sge
    })
}

/// Bytes pieces hold, one after the other.
fn gathered(memory: &ferroce_tests::Flat, sges: &[Sge]) -> Vec<u8> {
    let of = |sge: &Sge| memory.bytes(sge.addr, sge.length as usize).to_vec();
    sges.iter().flat_map(of).collect()
}

/// Four pieces of odd sizes at both ends, boundaries of packets and pieces apart, one of them
/// empty.
#[test]
fn messages_are_gathered_and_scattered_piece_by_piece() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::XrcSend] {
        for (from, to) in [
            ([1, 1023, 1025, 951], [1500, 1, 0, 1499]),
            ([3000, 0, 0, 0], [0, 0, 2999, 1]),
            ([0, 1024, 1024, 952], [7, 1017, 1976, 0]),
        ] {
            let mut rig = Rig::new(qp_type);
            let source = pieces(rig.link.a.mr.lkey, 0, from);
            let data = pattern(3000);
            let mut taken = 0;
            for sge in &source {
                let next = taken + sge.length as usize;
                rig.link.a.device.memory_mut().put(sge.addr, &data[taken..next]);
                taken = next;
            }
            let target = pieces(rig.link.b.mr.lkey, 0, to);
            let recv = RecvWr { wr_id: 11, sges: &target };
            match rig.srq {
                Some(srq) => rig.link.b.device.post_srq_recv(srq, &recv).unwrap(),
                None => rig.link.b.device.post_recv(rig.b, &recv).unwrap(),
            }
            rig.post_sges(1, SendOp::Send, &source);
            rig.link.settle();
            assert_eq!(statuses(&rig.received()), [(11, Success)], "{qp_type:?}");
            let memory = rig.link.b.device.memory();
            assert_eq!(gathered(memory, &target), data, "{from:?} to {to:?} on {qp_type:?}");
            if qp_type != QpType::Uc {
                let remote = rig.link.b.remote(1 << 20);
                rig.link.b.device.memory_mut().put(BASE + (1 << 20), &data);
                let target = pieces(rig.link.a.mr.lkey, 1 << 16, to);
                rig.post_sges(2, SendOp::Read(remote), &target);
                rig.link.settle();
                let memory = rig.link.a.device.memory();
                assert_eq!(gathered(memory, &target), data, "READ to {to:?} on {qp_type:?}");
            }
        }
    }
}

/// A result of eight bytes may be scattered, too.
#[test]
fn an_atomic_result_may_be_in_pieces() {
    let mut rig = Rig::new(QpType::Rc);
    rig.link.b.device.memory_mut().put(BASE, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let remote = rig.link.b.remote(0);
    let target = pieces(rig.link.a.mr.lkey, 4096, [3, 0, 4, 1]);
    rig.post_sges(1, SendOp::FetchAdd { remote, add: 0 }, &target);
    rig.link.settle();
    assert_eq!(rig.sent(), [(1, Success)]);
    assert_eq!(gathered(rig.link.a.device.memory(), &target), [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// UD: header and payload are scattered as one.
#[test]
fn a_datagram_is_scattered_behind_its_header() {
    let mut scripted = Scripted::new(QpType::Ud);
    let target = pieces(scripted.node.mr.lkey, 4096, [10, 29, 2, 200]);
    scripted.node.device.post_recv(scripted.qpn, &RecvWr { wr_id: 1, sges: &target }).unwrap();
    scripted.deliver(&scripted.packet(Opcode::UD_SEND_ONLY, 0).payload(&pattern(100)));
    assert_eq!(statuses(&scripted.node.received()), [(1, Success)]);
    let all = gathered(scripted.node.device.memory(), &target);
    assert_eq!(all[40..140], pattern(100));
}

/// A message of no bytes is one packet and completes as any other.
#[test]
fn messages_of_no_bytes_are_messages() {
    let mut rig = Rig::new(QpType::Rc);
    let nowhere = ferroce_stack::verbs::Remote { addr: 0, rkey: 0 };
    rig.post_recv(11, 0, 64);
    rig.post_recv(12, 0, 64);
    for (wr_id, op) in [
        (1, SendOp::Send),
        (2, SendOp::Write(nowhere)),
        (3, SendOp::WriteImm(nowhere, [1; 4])),
        (4, SendOp::Read(nowhere)),
    ] {
        rig.post(wr_id, op, 0, 0);
    }
    let frames = rig.link.settle();
    assert_eq!(frames.iter().filter(|frame| frame.from_a).count(), 4);
    assert!(frames.iter().all(|frame| frame.seen.payload.is_empty()));
    assert_eq!(rig.sent(), [(1, Success), (2, Success), (3, Success), (4, Success)]);
    let received: Vec<u32> = rig.received().iter().map(|wc| wc.byte_len).collect();
    assert_eq!(received, [0, 0]);
}

/// Opcode and length of every completion.
#[test]
fn completions_tell_what_completed() {
    let mut rig = Rig::new(QpType::Rc);
    let remote = rig.link.b.remote(0);
    let (level, placement) = (FlushLevel::Region, Access::FLUSH_PERSISTENT);
    let pd = rig.link.a.pd;
    let (mw, rkey) = rig.link.a.device.alloc_mw(pd, MwType::Type2).unwrap();
    let mr = rig.link.a.mr.mr;
    let bind = MwBind { mr, addr: BASE, length: 8, access: Access::REMOTE_READ };
    rig.post_recv(11, 4096, 2048);
    rig.post_recv(12, 4096, 2048);
    // Operation, local length, opcode, byte_len where it is defined.
    let table = [
        (SendOp::Send, 1100, WcOpcode::Send, None),
        (SendOp::Write(remote), 16, WcOpcode::RdmaWrite, None),
        (SendOp::WriteImm(remote, [9; 4]), 16, WcOpcode::RdmaWrite, None),
        (SendOp::Read(remote), 2500, WcOpcode::RdmaRead, Some(2500)),
        (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 8, WcOpcode::CompSwap, Some(8)),
        (SendOp::FetchAdd { remote, add: 1 }, 8, WcOpcode::FetchAdd, Some(8)),
        (SendOp::AtomicWrite(remote, 5), 0, WcOpcode::AtomicWrite, None),
        (SendOp::Flush { remote, length: 0, level, placement }, 0, WcOpcode::Flush, None),
        (SendOp::BindMw { mw, rkey, bind }, 0, WcOpcode::BindMw, None),
        (SendOp::LocalInv(rkey), 0, WcOpcode::LocalInv, None),
    ];
    for (wr_id, (op, length, opcode, byte_len)) in (1..).zip(table) {
        rig.post(wr_id, op, 1 << 20, length);
        rig.link.settle();
        let sent = rig.link.a.sent();
        let [wc] = sent[..] else { panic!("{op:?}: {sent:?}") };
        assert_eq!((wc.wr_id, wc.status, wc.opcode), (wr_id, Success, opcode), "{op:?}");
        assert_eq!(wc.qp_num, rig.a, "{op:?}");
        assert!(byte_len.is_none_or(|len| wc.byte_len == len), "{op:?}: {wc:?}");
    }
    let received: Vec<_> = rig.received().iter().map(|wc| (wc.opcode, wc.byte_len)).collect();
    assert_eq!(received, [(WcOpcode::Recv, 1100), (WcOpcode::RecvRdmaWithImm, 16)]);
    let whole = rig.link.b.device.memory().size() as usize;
    assert_eq!(rig.link.b.device.memory().flushes, [(BASE, whole, true)], "the whole region");
}

/// sq_sig_all: every work request completes, whatever its flags.
#[test]
fn sq_sig_all_signals_everything() {
    for all in [false, true] {
        let mut scripted = Scripted::with(QpType::Rc, |_| {}, |_, init| init.sq_sig_all = all);
        let sges = [scripted.node.sge(0, 8)];
        let wr = SendWr { flags: SendFlags::NONE, ..SendWr::new(1, SendOp::Send, &sges) };
        scripted.node.post_wr(scripted.qpn, &wr);
        scripted.frames();
        scripted.answer(PSN, 0x1f).unwrap();
        assert_eq!(scripted.node.sent().len(), usize::from(all));
    }
}

/// A receive queue of its own, an SRQ, or none: where receives may be posted.
#[test]
fn a_qp_on_an_srq_has_no_receive_queue() {
    let mut scripted = Scripted::on_srq(QpType::Rc);
    let sges = [scripted.node.sge(0, 8)];
    let recv = RecvWr { wr_id: 1, sges: &sges };
    let outcome = scripted.node.device.post_recv(scripted.qpn, &recv);
    assert_eq!(outcome, Err(VerbsError::Invalid));
}

/// The datagram's address is needed on UD and refused elsewhere.
#[test]
fn addresses_are_for_datagrams() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut scripted = Scripted::new(qp_type);
        let to = scripted.node.attr_to(&scripted.peer.own, Qpn(0)).ah_attr;
        let ah = scripted.node.device.create_ah(scripted.node.pd, &to).unwrap();
        let other_pd = scripted.node.device.alloc_pd().unwrap();
        let foreign = scripted.node.device.create_ah(other_pd, &to).unwrap();
        let sges = [scripted.node.sge(0, 8)];
        let target = |ah| Some(UdTarget { ah, qpn: Qpn(9), qkey: 1 });
        let is_ud = qp_type == QpType::Ud;
        for (ud, legal) in [(None, !is_ud), (target(ah), is_ud), (target(foreign), is_ud)] {
            let wr = SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) };
            let outcome = scripted.node.device.post_send(scripted.qpn, &wr);
            assert_eq!(outcome.is_ok(), legal, "{ud:?} on {qp_type:?}");
        }
        // That its handle is of another domain is found when the packet is built.
        scripted.frames();
        let failed = scripted.node.sent().iter().any(|wc| wc.status == WcStatus::LocQpOpErr);
        assert_eq!(failed, is_ud, "{qp_type:?}");
    }
}

/// Lengths and data that an operation cannot have.
#[test]
fn impossible_lengths_are_refused_at_post() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let atomic = SendOp::FetchAdd { remote, add: 1 };
    let swap = SendOp::CompareSwap { remote, compare: 0, swap: 1 };
    for (op, length) in [(atomic, 0), (atomic, 7), (atomic, 9), (swap, 4), (swap, 16)] {
        let sges = [scripted.node.sge(0, length)];
        let outcome = scripted.node.device.post_send(scripted.qpn, &SendWr::new(1, op, &sges));
        assert_eq!(outcome, Err(VerbsError::Invalid), "{op:?} of {length}");
    }
}

/// Requests across the end of the PSN space: expected, duplicate and ahead are told apart.
#[test]
fn the_responder_crosses_the_end_of_the_psn_space() {
    let mut scripted = Scripted::rc_with(|attr| attr.rq_psn = Psn::new(0xff_fffe));
    let remote = scripted.node.remote(0);
    scripted.post_recv(11, 8192, 4096);
    let packets = [
        scripted.packet(Opcode::RC_SEND_FIRST, 0xff_fffe).fill(1, 1024),
        scripted.packet(Opcode::RC_SEND_MIDDLE, 0xff_ffff).fill(2, 1024),
        scripted.packet(Opcode::RC_SEND_LAST, 0).fill(3, 8).ack_req(),
    ];
    expect_packets("SEND", &scripted.exchange(&packets), &[Expected::ack(0).msn(1)]);
    let again = scripted.exchange(&packets[1..2]);
    expect_packets("a duplicate", &again, &[Expected::ack(0).msn(1)]);
    let ahead = scripted.packet(Opcode::RC_WRITE_ONLY, 2).reth(remote, 8).fill(1, 8);
    expect_packets("a gap", &scripted.exchange(&[ahead]), &[Expected::nak(1, 0x60)]);

    let mut scripted = Scripted::rc_with(|attr| attr.rq_psn = Psn::new(0xff_ffff));
    let read = |psn, skip: u64, len| {
        let remote = ferroce_stack::verbs::Remote { addr: remote.addr + skip, ..remote };
        scripted.peer.packet(Opcode::RC_READ_REQUEST, psn).reth(remote, len)
    };
    let (whole, rest) = (read(0xff_ffff, 0, 3000), read(1, 2048, 952));
    let responses = [
        packet(Opcode::RC_READ_RESPONSE_FIRST).psn(0xff_ffff),
        packet(Opcode::RC_READ_RESPONSE_MIDDLE).psn(0),
        packet(Opcode::RC_READ_RESPONSE_LAST).psn(1),
    ];
    expect_packets("READ", &scripted.exchange(&[whole]), &responses);
    let tail = [packet(Opcode::RC_READ_RESPONSE_ONLY).psn(1).payload_len(952)];
    expect_packets("its end again", &scripted.exchange(&[rest]), &tail);
}

/// A resend that passes a bind done meanwhile goes on by itself, however short the bursts.
#[test]
fn a_resend_does_not_stall_at_finished_work() {
    for burst in 1..=4 {
        let config = ferroce_stack::Config { burst, ..ferroce_stack::Config::default() };
        let mut node = ferroce_tests::Node::with_config(ferroce_tests::node::address(1), config);
        let qpn = node.create(QpType::Rc);
        let own = ferroce_tests::node::address(2);
        let attr = node.attr_to(&own, Qpn(0x55));
        node.bring_up(qpn, &attr, QpState::Rts);
        let (mw, rkey) = node.device.alloc_mw(node.pd, MwType::Type2).unwrap();
        let (mr, access) = (node.mr.mr, Access::REMOTE_READ);
        let bind = MwBind { mr, addr: BASE, length: 8, access };
        node.post(qpn, 1, SendOp::Send, 0, 8);
        node.post(qpn, 2, SendOp::Send, 0, 8);
        node.post(qpn, 3, SendOp::BindMw { mw, rkey, bind }, 0, 0);
        node.post(qpn, 4, SendOp::Send, 0, 8);
        assert_eq!(node.transmit().len(), 3);
        let peer = ferroce_tests::Peer {
            own,
            own_qpn: Qpn(0x55),
            to: node.entry,
            to_qpn: qpn,
            qkey: 0,
            srqn: 0,
        };
        let nak = peer.packet(Opcode::RC_ACKNOWLEDGE, PSN).aeth(0x60, 0).frame();
        node.receive(&nak).unwrap();
        let psns: Vec<u32> = node.transmit().iter().map(|seen| seen.psn() - PSN).collect();
        assert_eq!(psns, [0, 1, 2], "bursts of {burst}");
    }
}

/// What was owed before a fatal NAK still leaves, in order, before it.
#[test]
fn answers_owed_leave_before_a_fatal_nak() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let bad = ferroce_stack::verbs::Remote { rkey: 1, ..remote };
    let packets = [
        scripted.packet(Opcode::RC_READ_REQUEST, EPSN).reth(remote, 2000),
        scripted.packet(Opcode::RC_FETCH_ADD, EPSN + 2).atomic(remote, 1, 0),
        scripted.packet(Opcode::RC_WRITE_ONLY, EPSN + 3).reth(bad, 8).fill(1, 8),
    ];
    let expected = [
        packet(Opcode::RC_READ_RESPONSE_FIRST).psn(EPSN),
        packet(Opcode::RC_READ_RESPONSE_LAST).psn(EPSN + 1),
        packet(Opcode::RC_ATOMIC_ACKNOWLEDGE).psn(EPSN + 2),
        Expected::nak(EPSN + 3, 0x62).msn(2),
    ];
    expect_packets("in order", &scripted.exchange(&packets), &expected);
}

/// Two posts with data inline and in memory keep their own bytes.
#[test]
fn inline_and_gathered_data_stand_side_by_side() {
    let mut scripted = Scripted::rc();
    scripted.node.device.memory_mut().put(BASE, &[3; 8]);
    let inline = [7; 8];
    for wr_id in 1..=4u64 {
        let sges = [scripted.node.sge(0, 8)];
        let data = match wr_id % 2 {
            0 => SendData::Inline(&inline),
            _ => SendData::Sges(&sges),
        };
        let wr = SendWr { data, ..SendWr::new(wr_id, SendOp::Send, &[]) };
        scripted.node.post_wr(scripted.qpn, &wr);
    }
    let payloads: Vec<u8> = scripted.frames().iter().map(|seen| seen.payload[0]).collect();
    assert_eq!(payloads, [3, 7, 3, 7]);
}
