//! What a responder answers to requests that succeed (IBA 9.7.5.1, 9.7.4.1.3): ACKs and their PSN
//! and MSN, the order of replies, one NAK for a gap, and duplicates, which are answered and never
//! executed again.

use ferroce_stack::verbs::{Access, QpState, Remote, SendOp, WcStatus};
use ferroce_stack::wire::Opcode;
use ferroce_tests::memory::BASE;
use ferroce_tests::{Builder, EPSN, Expected, Scripted, expect_packets, packet, statuses};

const ACK: u8 = 0x1f;

fn write(scripted: &Scripted, psn: u32, offset: u64, byte: u8) -> Builder {
    let remote = scripted.node.remote(offset);
    scripted.packet(Opcode::RC_WRITE_ONLY, psn).reth(remote, 8).fill(byte, 8)
}

fn read(scripted: &Scripted, psn: u32, offset: u64, len: u32) -> Builder {
    scripted.packet(Opcode::RC_READ_REQUEST, psn).reth(scripted.node.remote(offset), len)
}

fn fetch_add(scripted: &Scripted, psn: u32, add: u64) -> Builder {
    scripted.packet(Opcode::RC_FETCH_ADD, psn).atomic(scripted.node.remote(0), add, 0)
}

/// Every request moves PSN and MSN as it should, and has its own answer.
#[test]
fn each_request_has_its_answer() {
    let mut scripted = Scripted::rc();
    scripted.post_recv(11, 8192, 4096);
    scripted.post_recv(12, 8192, 4096);
    for (packets, expected) in one_of_each(&scripted) {
        let seen = scripted.exchange(&packets);
        expect_packets(format!("{:?}", packets[0].headers.bth.opcode), &seen, &expected);
        for seen in seen {
            assert_eq!(seen.headers.bth.dest_qp, 0x55);
            assert!(!seen.headers.bth.ack_req && !seen.headers.bth.solicited);
            assert_eq!(seen.headers.bth.pkey, 0xffff);
        }
    }
    let received = scripted.node.received();
    assert_eq!(statuses(&received), [(11, WcStatus::Success), (12, WcStatus::Success)]);
    assert_eq!(received[1].imm_data, Some([7; 4]));
    assert_eq!(scripted.node.device.memory().bytes(BASE, 8), [1; 8]);
    assert_eq!(scripted.node.device.memory().flushes, [(BASE, 64, true)]);
}

#[test]
fn an_ack_that_is_held_leaves_behind_the_request_posted_meanwhile() {
    let mut scripted = Scripted::rc();
    assert!(!scripted.node.device.hold_ack(), "none is owed");
    let request = write(&scripted, EPSN, 0, 1).ack_req();
    scripted.deliver(&request);
    assert!(scripted.node.device.hold_ack());
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    scripted.node.device.release_ack();
    assert!(!scripted.node.device.hold_ack(), "there is more to send");
    let seen = scripted.frames();
    let expected = [packet(Opcode::RC_SEND_ONLY), Expected::ack(EPSN).msn(1)];
    expect_packets("held", &seen, &expected);

    let beyond = write(&scripted, EPSN + 2, 0, 1).ack_req();
    let _ = scripted.send(&beyond);
    assert!(!scripted.node.device.hold_ack(), "a NAK is not an ACK");
}

#[test]
fn one_ack_answers_all_requests_that_came_while_it_was_held() {
    let mut scripted = Scripted::rc();
    let acknowledged = |scripted: &Scripted| scripted.node.device.held_ack().map(|psn| psn.value());
    for index in 0..3 {
        let request = write(&scripted, EPSN + index, 0, 1).ack_req();
        scripted.deliver(&request);
        assert_eq!(scripted.node.device.hold_ack(), index == 0);
        assert_eq!(acknowledged(&scripted), Some(EPSN + index));
        scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
        let seen = scripted.frames();
        expect_packets("without it", &seen, &[packet(Opcode::RC_SEND_ONLY)]);
        assert!(scripted.node.device.is_quiet());
    }
    scripted.node.device.release_ack();
    assert_eq!(acknowledged(&scripted), None);
    let seen = scripted.frames();
    expect_packets("released", &seen, &[Expected::ack(EPSN + 2).msn(3)]);
}

#[test]
fn an_ack_that_is_held_leaves_before_other_answers() {
    let mut scripted = Scripted::rc();
    let request = write(&scripted, EPSN, 0, 1).ack_req();
    scripted.deliver(&request);
    assert!(scripted.node.device.hold_ack());
    let beyond = write(&scripted, EPSN + 2, 0, 1).ack_req();
    let _ = scripted.send(&beyond);
    let seen = scripted.frames();
    expect_packets("a gap", &seen, &[Expected::nak(EPSN + 1, 0x60).msn(1)]);
    assert_eq!(scripted.node.device.held_ack(), None);

    let request = write(&scripted, EPSN + 1, 0, 1).ack_req();
    scripted.deliver(&request);
    assert!(scripted.node.device.hold_ack());
    let read = read(&scripted, EPSN + 2, 0, 8);
    let seen = scripted.exchange(&[read]);
    let response = packet(Opcode::RC_READ_RESPONSE_ONLY).psn(EPSN + 2).msn(3);
    expect_packets("a READ", &seen, &[Expected::ack(EPSN + 1).msn(2), response]);
}

#[test]
fn no_ack_is_held_for_a_peer_that_may_be_impatient() {
    for (timeout, holds) in [(0, true), (1, false), (7, false), (8, true), (14, true)] {
        let mut scripted = Scripted::rc_with(|attr| attr.timeout = timeout);
        let request = write(&scripted, EPSN, 0, 1).ack_req();
        scripted.deliver(&request);
        assert_eq!(scripted.node.device.hold_ack(), holds, "timeout {timeout}");
    }
}

/// A message of each kind, in PSN order, and what answers it.
fn one_of_each(scripted: &Scripted) -> Vec<(Vec<Builder>, Vec<Expected>)> {
    let remote = scripted.node.remote(0);
    let at = |opcode, psn| scripted.packet(opcode, psn);
    vec![
        (
            vec![
                at(Opcode::RC_SEND_FIRST, EPSN).fill(1, 1024),
                at(Opcode::RC_SEND_LAST, EPSN + 1).fill(1, 8).ack_req(),
            ],
            vec![Expected::ack(EPSN + 1).msn(1).payload_len(0)],
        ),
        (
            vec![
                at(Opcode::RC_WRITE_FIRST, EPSN + 2).reth(remote, 2056).fill(2, 1024).ack_req(),
                at(Opcode::RC_WRITE_MIDDLE, EPSN + 3).fill(2, 1024),
                at(Opcode::RC_WRITE_LAST, EPSN + 4).fill(2, 8).ack_req(),
            ],
            vec![Expected::ack(EPSN + 4).msn(2)],
        ),
        (
            vec![at(Opcode::RC_READ_REQUEST, EPSN + 5).reth(remote, 2100)],
            vec![
                packet(Opcode::RC_READ_RESPONSE_FIRST).psn(EPSN + 5).msn(3).payload_len(1024),
                packet(Opcode::RC_READ_RESPONSE_MIDDLE).psn(EPSN + 6).payload_len(1024),
                packet(Opcode::RC_READ_RESPONSE_LAST).psn(EPSN + 7).msn(3).payload_len(52),
            ],
        ),
        (
            vec![at(Opcode::RC_FETCH_ADD, EPSN + 8).atomic(remote, 3, 0)],
            vec![
                packet(Opcode::RC_ATOMIC_ACKNOWLEDGE)
                    .psn(EPSN + 8)
                    .syndrome(ACK)
                    .msn(4)
                    .original(0x0202_0202_0202_0202),
            ],
        ),
        (
            vec![at(Opcode::RC_CMP_SWAP, EPSN + 9).atomic(remote, 9, 0x0202_0202_0202_0205)],
            vec![
                packet(Opcode::RC_ATOMIC_ACKNOWLEDGE)
                    .psn(EPSN + 9)
                    .msn(5)
                    .original(0x0202_0202_0202_0205),
            ],
        ),
        (
            vec![at(Opcode::RC_ATOMIC_WRITE, EPSN + 10).reth(remote, 8).payload(&[1; 8])],
            vec![packet(Opcode::RC_READ_RESPONSE_ONLY).psn(EPSN + 10).msn(6).payload_len(0)],
        ),
        (
            vec![at(Opcode::RC_FLUSH, EPSN + 11).feth(0, 2).reth(remote, 64)],
            vec![packet(Opcode::RC_READ_RESPONSE_ONLY).psn(EPSN + 11).msn(7).payload_len(0)],
        ),
        (
            vec![at(Opcode::RC_WRITE_ONLY_IMM, EPSN + 12).reth(remote, 0).imm([7; 4]).ack_req()],
            vec![Expected::ack(EPSN + 12).msn(8)],
        ),
    ]
}

/// One ACK covers all that came before it; nobody asks, nothing need be said.
#[test]
fn acks_are_owed_where_asked_for() {
    let mut scripted = Scripted::rc();
    for at in 0..10 {
        let write = write(&scripted, EPSN + at, 0, 1);
        scripted.deliver(&write);
    }
    let early = scripted.frames();
    assert!(early.iter().all(|seen| seen.syndrome() == Some(ACK)), "{early:?}");
    let last = write(&scripted, EPSN + 10, 0, 1).ack_req();
    let seen = scripted.exchange(&[last]);
    expect_packets("AckReq", &seen, &[Expected::ack(EPSN + 10).msn(11)]);
}

/// P85: a message of 1000 packets with AckReq on the last alone is answered by few ACKs.
#[test]
fn one_ack_for_a_thousand_packets() {
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let mut acks = Vec::new();
    for at in 0..1000 {
        let psn = EPSN + at;
        let packet = match at {
            0 => {
                scripted.packet(Opcode::RC_WRITE_FIRST, psn).reth(remote, 1000 * 1024).fill(1, 1024)
            }
            999 => scripted.packet(Opcode::RC_WRITE_LAST, psn).fill(1, 1024).ack_req(),
            _ => scripted.packet(Opcode::RC_WRITE_MIDDLE, psn).fill(1, 1024),
        };
        acks.extend(scripted.exchange(&[packet]));
    }
    assert!(acks.len() <= 16, "{} ACKs", acks.len());
    expect_packets("the last", &acks[acks.len() - 1..], &[Expected::ack(EPSN + 999).msn(1)]);
}

/// Replies leave in PSN order: no ACK overtakes the responses to an earlier READ.
#[test]
fn no_ack_overtakes_a_read() {
    let mut scripted = Scripted::rc();
    let packets = [
        write(&scripted, EPSN, 0, 1).ack_req(),
        read(&scripted, EPSN + 1, 0, 3000),
        write(&scripted, EPSN + 4, 0, 2).ack_req(),
        fetch_add(&scripted, EPSN + 5, 1),
        write(&scripted, EPSN + 6, 16, 2).ack_req(),
    ];
    let psns: Vec<u32> = scripted.exchange(&packets).iter().map(|seen| seen.psn() - EPSN).collect();
    assert_eq!(psns, [0, 1, 2, 3, 4, 5, 6]);
}

/// P82: one NAK for a gap, for the expected PSN, until that has come.
#[test]
fn one_nak_for_a_gap() {
    let mut scripted = Scripted::rc();
    scripted.deliver(&write(&scripted, EPSN, 0, 1));
    scripted.frames();
    let mut naks = Vec::new();
    for at in 2..32 {
        // All but the first are ignored.
        scripted.send(&write(&scripted, EPSN + at, 8, 9).ack_req()).ok();
        naks.extend(scripted.frames());
    }
    expect_packets("gap", &naks, &[Expected::nak(EPSN + 1, 0x60).msn(1)]);
    assert_eq!(scripted.node.device.memory().bytes(BASE + 8, 8), [0; 8], "nothing is executed");
    assert_eq!(scripted.state(), QpState::Rts);
    let filled = scripted.exchange(&[write(&scripted, EPSN + 1, 0, 1).ack_req()]);
    expect_packets("filled", &filled, &[Expected::ack(EPSN + 1).msn(2)]);
    let next_gap = scripted.exchange(&[write(&scripted, EPSN + 3, 0, 1)]);
    expect_packets("the next gap", &next_gap, &[Expected::nak(EPSN + 2, 0x60).msn(2)]);
}

/// The farthest PSN ahead is a gap, the next is a duplicate.
#[test]
fn the_psn_space_has_two_halves() {
    for (distance, syndrome) in [(1, 0x60), (0x7f_ffff, 0x60), (0x80_0000, ACK), (0xff_ffff, ACK)] {
        let mut scripted = Scripted::rc();
        let psn = EPSN.wrapping_add(distance);
        scripted.deliver(&write(&scripted, psn, 0, 1).ack_req());
        let frames = scripted.frames();
        assert_eq!(frames.len(), 1, "distance {distance:#x}");
        assert_eq!(frames[0].syndrome(), Some(syndrome), "distance {distance:#x}");
        assert_eq!(scripted.node.device.memory().bytes(BASE, 8), [0; 8]);
    }
}

/// A duplicate SEND or WRITE: memory and queues untouched, an ACK of the newest, MSN current.
#[test]
fn duplicate_sends_and_writes_are_acknowledged_and_not_executed() {
    let mut scripted = Scripted::rc();
    scripted.post_recv(11, 8192, 4096);
    scripted.post_recv(12, 8192, 4096);
    let packets = [
        scripted.packet(Opcode::RC_SEND_ONLY, EPSN).fill(1, 8).ack_req(),
        write(&scripted, EPSN + 1, 0, 1).ack_req(),
        write(&scripted, EPSN + 2, 0, 2).ack_req(),
    ];
    scripted.exchange(&packets);
    assert_eq!(scripted.node.received().len(), 1);
    scripted.node.device.memory_mut().put(BASE, &[0xee; 8]);
    for packet in &packets {
        let again = scripted.exchange(std::slice::from_ref(packet));
        let expected = [Expected::ack(EPSN + 2).msn(3)];
        expect_packets(packet.headers.bth.opcode.name(), &again, &expected);
    }
    assert_eq!(scripted.node.device.memory().bytes(BASE, 8), [0xee; 8]);
    assert!(scripted.node.received().is_empty(), "the second receive stays");
    let next = scripted.exchange(&[write(&scripted, EPSN + 3, 0, 3).ack_req()]);
    expect_packets("goes on", &next, &[Expected::ack(EPSN + 3).msn(4)]);
}

/// While the answer to a READ is owed, no ACK of a duplicate may pass it.
#[test]
fn a_duplicates_ack_does_not_pass_an_owed_response() {
    let mut scripted = Scripted::rc();
    scripted.deliver(&write(&scripted, EPSN, 0, 1));
    scripted.deliver(&read(&scripted, EPSN + 1, 0, 2000));
    scripted.deliver(&write(&scripted, EPSN + 3, 16, 1).ack_req());
    scripted.deliver(&write(&scripted, EPSN, 0, 1).ack_req());
    let mut responses = 0;
    for seen in scripted.frames() {
        match seen.opcode() {
            Opcode::RC_READ_RESPONSE_FIRST | Opcode::RC_READ_RESPONSE_LAST => responses += 1,
            _ if responses < 2 => {
                assert!(seen.psn() <= EPSN, "{seen:?} passes the responses");
            }
            _ => {}
        }
    }
    assert_eq!(responses, 2);
}

/// Memory is read again for a duplicate READ, from the PSN asked for.
#[test]
fn a_duplicate_read_is_executed_again_from_its_psn() {
    let mut scripted = Scripted::rc();
    scripted.exchange(&[read(&scripted, EPSN, 0, 3000)]);
    scripted.node.device.memory_mut().put(BASE, &[5; 3000]);
    use Opcode as O;
    type Response = (Opcode, u32, usize);
    let table: [(u32, u32, &[Response]); 4] = [
        (
            0,
            3000,
            &[
                (O::RC_READ_RESPONSE_FIRST, 0, 1024),
                (O::RC_READ_RESPONSE_MIDDLE, 1, 1024),
                (O::RC_READ_RESPONSE_LAST, 2, 952),
            ],
        ),
        (1, 1976, &[(O::RC_READ_RESPONSE_FIRST, 1, 1024), (O::RC_READ_RESPONSE_LAST, 2, 952)]),
        (2, 952, &[(O::RC_READ_RESPONSE_ONLY, 2, 952)]),
        (0, 1024, &[(O::RC_READ_RESPONSE_ONLY, 0, 1024)]),
    ];
    for (skip, len, responses) in table {
        let again = read(&scripted, EPSN + skip, u64::from(skip) * 1024, len);
        let seen = scripted.exchange(&[again]);
        let expected: Vec<Expected> = responses
            .iter()
            .map(|&(opcode, at, len)| packet(opcode).psn(EPSN + at).payload_len(len))
            .collect();
        expect_packets(format!("from {skip}"), &seen, &expected);
        assert!(seen.iter().all(|seen| seen.payload.iter().all(|&byte| byte == 5)));
    }
    let next = scripted.exchange(&[write(&scripted, EPSN + 3, 0, 3).ack_req()]);
    expect_packets("epsn and MSN stay", &next, &[Expected::ack(EPSN + 3).msn(2)]);
}

/// A duplicate that is no part of the READ on record is dropped silently.
#[test]
fn a_duplicate_read_outside_the_original_is_dropped() {
    let mut scripted = Scripted::rc();
    let other = scripted.node.reg_mr(0, 8192, Access::REMOTE_READ);
    scripted.exchange(&[read(&scripted, EPSN, 1024, 2048)]);
    let remote = scripted.node.remote(1024);
    let table = [
        ("longer", read(&scripted, EPSN, 1024, 2049)),
        ("before", read(&scripted, EPSN, 0, 1024)),
        ("after", read(&scripted, EPSN + 1, 3072, 1024)),
        ("past the end", read(&scripted, EPSN + 1, 2048, 1025)),
        ("another key", {
            let remote = Remote { rkey: other.rkey, ..remote };
            scripted.packet(Opcode::RC_READ_REQUEST, EPSN).reth(remote, 2048)
        }),
        ("never asked", read(&scripted, EPSN - 5, 1024, 1024)),
    ];
    for (name, packet) in table {
        assert!(scripted.send(&packet).is_err(), "{name}");
        assert!(scripted.frames().is_empty(), "{name}");
        assert_eq!(scripted.state(), QpState::Rts, "{name}");
    }
}

/// A late copy of a READ whose region is gone does no harm to the connection.
#[test]
fn a_late_copy_of_a_read_of_a_dead_key_is_harmless() {
    let mut scripted = Scripted::rc();
    let keys = scripted.node.reg_mr(0, 4096, Access::REMOTE_READ);
    let remote = Remote { addr: BASE, rkey: keys.rkey };
    let read = scripted.packet(Opcode::RC_READ_REQUEST, EPSN).reth(remote, 2048);
    assert_eq!(scripted.exchange(std::slice::from_ref(&read)).len(), 2);
    scripted.node.dereg_mr(keys.mr);
    scripted.send(&read).ok();
    for seen in scripted.frames() {
        let data = !seen.payload.is_empty();
        assert!(!data, "data of a dead key: {seen:?}");
    }
    assert_eq!(scripted.state(), QpState::Rts);
}

/// Replays: an atomic, ATOMIC WRITE or FLUSH asked for again has its first answer, and is executed
/// once.
#[test]
fn duplicate_atomic_is_replayed_not_executed_twice() {
    let mut scripted = Scripted::rc();
    scripted.node.device.memory_mut().put(BASE, &100u64.to_ne_bytes());
    let remote = scripted.node.remote(64);
    let packets = [
        fetch_add(&scripted, EPSN, 1),
        scripted.packet(Opcode::RC_CMP_SWAP, EPSN + 1).atomic(scripted.node.remote(0), 7, 101),
        scripted.packet(Opcode::RC_ATOMIC_WRITE, EPSN + 2).reth(remote, 8).payload(&[3; 8]),
        scripted.packet(Opcode::RC_FLUSH, EPSN + 3).feth(0, 1).reth(remote, 8),
        fetch_add(&scripted, EPSN + 4, 1),
    ];
    let first = scripted.exchange(&packets);
    assert_eq!(first.len(), 5);
    scripted.node.device.memory_mut().put(BASE + 64, &[9; 8]);
    for (packet, before) in packets.iter().zip(&first) {
        let again = scripted.exchange(std::slice::from_ref(packet));
        assert_eq!(again.len(), 1, "{before:?}");
        assert_eq!(again[0].headers.ext.atomic_ack_eth, before.headers.ext.atomic_ack_eth);
        assert_eq!(again[0].opcode(), before.opcode());
        assert_eq!(again[0].psn(), before.psn());
        assert_eq!(again[0].syndrome(), Some(ACK));
    }
    let memory = scripted.node.device.memory();
    assert_eq!(memory.word(BASE), 8, "101 was swapped for 7, then one added, once each");
    assert_eq!(memory.bytes(BASE + 64, 8), [9; 8], "the ATOMIC WRITE was done once");
    assert_eq!(memory.flushes.len(), 1, "the FLUSH was done once");
}

/// At least max_dest_rd_atomic answers can be replayed; an unknown one is dropped silently.
#[test]
fn as_many_atomics_are_kept_as_may_be_outstanding() {
    let depth = 4;
    let mut scripted = Scripted::rc_with(|attr| attr.max_dest_rd_atomic = depth);
    let all: Vec<Builder> = (0..10).map(|at| fetch_add(&scripted, EPSN + at, 1)).collect();
    for packet in &all {
        assert_eq!(scripted.exchange(std::slice::from_ref(packet)).len(), 1);
    }
    for (at, packet) in all.iter().enumerate() {
        let outcome = scripted.send(packet);
        let frames = scripted.frames();
        if at >= 10 - usize::from(depth) {
            let original = packet_original(at as u64);
            expect_packets(format!("atomic {at}"), &frames, &[original.psn(EPSN + at as u32)]);
        } else {
            assert!(frames.len() <= 1, "atomic {at}: {outcome:?}");
        }
        assert_eq!(scripted.node.device.memory().word(BASE), 10, "atomic {at} executed again");
    }
    assert_eq!(scripted.state(), QpState::Rts);
}

fn packet_original(original: u64) -> Expected {
    packet(Opcode::RC_ATOMIC_ACKNOWLEDGE).syndrome(ACK).original(original)
}

/// Duplicates are served while a gap is open.
#[test]
fn duplicates_are_served_during_a_gap() {
    let mut scripted = Scripted::rc();
    scripted.exchange(&[
        write(&scripted, EPSN, 0, 1),
        fetch_add(&scripted, EPSN + 1, 1),
        read(&scripted, EPSN + 2, 0, 8),
    ]);
    let gap = scripted.exchange(&[write(&scripted, EPSN + 9, 0, 1)]);
    expect_packets("gap", &gap, &[Expected::nak(EPSN + 3, 0x60)]);
    let again = scripted.exchange(&[fetch_add(&scripted, EPSN + 1, 1)]);
    expect_packets("atomic", &again, &[packet(Opcode::RC_ATOMIC_ACKNOWLEDGE).psn(EPSN + 1)]);
    let again = scripted.exchange(&[read(&scripted, EPSN + 2, 0, 8)]);
    expect_packets("READ", &again, &[packet(Opcode::RC_READ_RESPONSE_ONLY).psn(EPSN + 2)]);
    let again = scripted.exchange(&[write(&scripted, EPSN, 0, 1).ack_req()]);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].syndrome(), Some(ACK));
}

/// A peer that has all its READs outstanding, one of which it asked for twice, is within its
/// rights.
#[test]
fn a_repeated_read_leaves_room_for_the_next() {
    let mut scripted = Scripted::rc_with(|attr| attr.max_dest_rd_atomic = 2);
    let reads: Vec<Builder> = (0..3).map(|at| read(&scripted, EPSN + at, 0, 8)).collect();
    scripted.exchange(&reads[..2]);
    // The network's copy of the first, its second answer still waiting when the third READ comes.
    scripted.deliver(&reads[0]);
    scripted.deliver(&reads[2]);
    let frames = scripted.frames();
    assert_eq!(scripted.state(), QpState::Rts, "{frames:?}");
    let last = frames.last().expect("an answer");
    assert_eq!((last.opcode(), last.psn()), (Opcode::RC_READ_RESPONSE_ONLY, EPSN + 2));
}
