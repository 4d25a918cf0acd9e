//! What the requester makes of every answer (IBA 9.7.5): a scripted responder answers right, late,
//! twice, out of order or nonsense.

use ferroce_stack::verbs::{QpState, QpType, SendOp, SendWr, WcStatus};
use ferroce_stack::wire::{Kind, Opcode, Position};
use ferroce_tests::memory::BASE;
use ferroce_tests::{MS, PSN, Scripted, expect_packets, packet, statuses};

use WcStatus::{BadRespErr, RemAccessErr, RemInvReqErr, RemOpErr, Success, WrFlushErr};

const ACK: u8 = 0x1f;
const SEQUENCE_NAK: u8 = 0x60;

/// Where READs and atomics put their result.
const RESULT: u64 = 1 << 20;

fn post(scripted: &mut Scripted, wr_id: u64, op: SendOp, length: u32) {
    scripted.node.post(scripted.qpn, wr_id, op, RESULT, length);
}

fn read(scripted: &Scripted) -> SendOp {
    SendOp::Read(scripted.node.remote(0))
}

fn fetch_add(scripted: &Scripted) -> SendOp {
    SendOp::FetchAdd { remote: scripted.node.remote(0), add: 1 }
}

fn psns(scripted: &mut Scripted) -> Vec<u32> {
    scripted.frames().iter().map(|seen| seen.psn() - PSN).collect()
}

fn sent(scripted: &mut Scripted) -> Vec<(u64, WcStatus)> {
    statuses(&scripted.node.sent())
}

/// A READ response with the AETH its opcode has.
fn respond(scripted: &mut Scripted, opcode: Opcode, psn: u32, len: usize) {
    let response = scripted.packet(opcode, psn).fill(psn as u8, len);
    let has_aeth = opcode != Opcode::RC_READ_RESPONSE_MIDDLE;
    let response = if has_aeth { response.aeth(ACK, 0) } else { response };
    // Whether it is taken is what the tests look at.
    scripted.send(&response).ok();
}

const FIRST: Opcode = Opcode::RC_READ_RESPONSE_FIRST;
const MIDDLE: Opcode = Opcode::RC_READ_RESPONSE_MIDDLE;
const LAST: Opcode = Opcode::RC_READ_RESPONSE_LAST;
const ONLY: Opcode = Opcode::RC_READ_RESPONSE_ONLY;

#[test]
fn one_ack_completes_everything_up_to_it_in_order() {
    let mut scripted = Scripted::rc();
    for wr_id in 1..=4 {
        post(&mut scripted, wr_id, SendOp::Send, 8);
    }
    assert_eq!(psns(&mut scripted), [0, 1, 2, 3]);
    scripted.answer(PSN + 2, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success), (2, Success), (3, Success)]);
    scripted.answer(PSN + 3, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(4, Success)]);
}

#[test]
fn every_credit_code_is_a_plain_ack() {
    for credits in 0..=0x1f {
        let mut scripted = Scripted::rc();
        for wr_id in 1..=3 {
            post(&mut scripted, wr_id, SendOp::Send, 8);
        }
        scripted.frames();
        scripted.answer(PSN, credits).unwrap();
        post(&mut scripted, 4, SendOp::Send, 8);
        assert_eq!(psns(&mut scripted), [3], "credit code {credits}: nothing waits for credits");
        scripted.answer(PSN + 3, credits).unwrap();
        assert_eq!(sent(&mut scripted).len(), 4, "credit code {credits}");
    }
}

#[test]
fn an_ack_inside_a_message_advances_without_completing() {
    let mut scripted = Scripted::rc();
    post(&mut scripted, 1, SendOp::Send, 5000);
    assert_eq!(psns(&mut scripted), [0, 1, 2, 3, 4]);
    scripted.answer(PSN + 2, ACK).unwrap();
    assert!(sent(&mut scripted).is_empty());
    // What is sent again begins after the PSN acknowledged.
    scripted.node.run_for(0);
    let again: Vec<_> = scripted.node.run_for(68 * MS).into_iter().map(|(_, seen)| seen).collect();
    let expected =
        [packet(Opcode::RC_SEND_MIDDLE).psn(PSN + 3), packet(Opcode::RC_SEND_LAST).psn(PSN + 4)];
    expect_packets("after the timeout", &again, &expected);
}

/// An ACK beyond an unanswered READ or atomic: its answer was lost (implied NAK), and it is asked
/// for again at once.
#[test]
fn an_ack_beyond_an_unanswered_read_asks_again() {
    type Make = fn(&Scripted) -> SendOp;
    let makes: [(Make, u32, Opcode); 2] =
        [(read, 1500, Opcode::RC_READ_REQUEST), (fetch_add, 8, Opcode::RC_FETCH_ADD)];
    for (make, length, opcode) in makes {
        let mut scripted = Scripted::rc();
        let psn_count = length.div_ceil(1024);
        post(&mut scripted, 1, SendOp::Send, 8);
        let op = make(&scripted);
        post(&mut scripted, 2, op, length);
        post(&mut scripted, 3, SendOp::Send, 8);
        assert_eq!(psns(&mut scripted), [0, 1, 1 + psn_count]);
        scripted.answer(PSN + 1 + psn_count, ACK).unwrap();
        assert_eq!(sent(&mut scripted), [(1, Success)], "nothing after the READ completes");
        let expected =
            [packet(opcode).psn(PSN + 1), packet(Opcode::RC_SEND_ONLY).psn(PSN + 1 + psn_count)];
        expect_packets("asked again at once", &scripted.frames(), &expected);
    }
}

#[test]
fn old_and_future_acks_are_ignored() {
    let mut scripted = Scripted::rc();
    post(&mut scripted, 1, SendOp::Send, 8);
    post(&mut scripted, 2, SendOp::Send, 8);
    scripted.frames();
    scripted.answer(PSN, ACK).unwrap();
    assert_eq!(sent(&mut scripted).len(), 1);
    for (psn, name) in [
        (PSN, "a duplicate"),
        (PSN - 1, "from before"),
        (PSN + 2, "never sent"),
        (PSN + 0x7f_ffff, "far ahead"),
        (PSN + 0x80_0000, "far behind"),
    ] {
        for syndrome in [ACK, SEQUENCE_NAK, 0x61, 0x62, 0x63, 0x21] {
            assert!(scripted.answer(psn, syndrome).is_err(), "{name} with {syndrome:#x}");
            assert!(scripted.frames().is_empty(), "{name} with {syndrome:#x}");
            assert_eq!(scripted.state(), QpState::Rts, "{name} with {syndrome:#x}");
        }
    }
    assert!(sent(&mut scripted).is_empty());
    scripted.answer(PSN + 1, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(2, Success)]);
}

/// A duplicate ACK is no progress: the timer runs on.
#[test]
fn a_duplicate_ack_does_not_prolong_the_timer() {
    let mut scripted = Scripted::rc();
    post(&mut scripted, 1, SendOp::Send, 8);
    post(&mut scripted, 2, SendOp::Send, 8);
    scripted.frames();
    scripted.answer(PSN, ACK).unwrap();
    scripted.node.run_for(60 * MS);
    scripted.answer(PSN, ACK).ok();
    let again = scripted.node.run_for(8 * MS);
    assert_eq!(again.len(), 1, "T is 67.1 ms: {again:?}");
}

#[test]
fn read_responses_scatter_and_acknowledge_what_came_before() {
    let mut scripted = Scripted::rc();
    post(&mut scripted, 1, SendOp::Send, 8);
    let op = read(&scripted);
    post(&mut scripted, 2, op, 2500);
    assert_eq!(psns(&mut scripted), [0, 1]);
    respond(&mut scripted, FIRST, PSN + 1, 1024);
    assert_eq!(sent(&mut scripted), [(1, Success)], "a response acknowledges what came before");
    respond(&mut scripted, MIDDLE, PSN + 2, 1024);
    assert!(sent(&mut scripted).is_empty());
    respond(&mut scripted, LAST, PSN + 3, 452);
    let completions = scripted.node.sent();
    assert_eq!(statuses(&completions), [(2, Success)]);
    assert_eq!(completions[0].byte_len, 2500);
    let memory = scripted.node.device.memory();
    for (offset, len, psn) in [(0, 1024, PSN + 1), (1024, 1024, PSN + 2), (2048, 452, PSN + 3)] {
        assert_eq!(memory.bytes(BASE + RESULT + offset, len), vec![psn as u8; len]);
    }
    assert_eq!(memory.bytes(BASE + RESULT + 2500, 1), [0]);
}

/// A gap in the responses is recovered at once, without a timer, from the first one missing; what
/// follows the gap is ignored until that comes.
#[test]
fn a_gap_in_read_responses_is_asked_for_at_once() {
    let mut scripted = Scripted::rc();
    let op = read(&scripted);
    post(&mut scripted, 1, op, 5000);
    post(&mut scripted, 2, SendOp::Send, 8);
    scripted.frames();
    respond(&mut scripted, FIRST, PSN, 1024);
    // PSN + 1 is lost.
    respond(&mut scripted, MIDDLE, PSN + 2, 1024);
    let expected = [
        packet(Opcode::RC_READ_REQUEST).psn(PSN + 1).reth(BASE + 1024, 5000 - 1024),
        packet(Opcode::RC_SEND_ONLY).psn(PSN + 5),
    ];
    expect_packets("re-read", &scripted.frames(), &expected);
    respond(&mut scripted, MIDDLE, PSN + 3, 1024);
    respond(&mut scripted, LAST, PSN + 4, 904);
    assert!(scripted.frames().is_empty(), "one recovery for one loss");
    assert!(sent(&mut scripted).is_empty());
    // The new stream begins with First.
    respond(&mut scripted, FIRST, PSN + 1, 1024);
    respond(&mut scripted, MIDDLE, PSN + 2, 1024);
    respond(&mut scripted, MIDDLE, PSN + 3, 1024);
    respond(&mut scripted, LAST, PSN + 4, 904);
    assert_eq!(sent(&mut scripted), [(1, Success)]);
}

/// The last response is lost: the re-read is answered by Only.
#[test]
fn the_tail_of_a_read_may_come_as_only() {
    let mut scripted = Scripted::rc();
    let op = read(&scripted);
    post(&mut scripted, 1, op, 2048);
    scripted.frames();
    respond(&mut scripted, FIRST, PSN, 1024);
    let again: Vec<_> = scripted.node.run_for(68 * MS).into_iter().map(|(_, seen)| seen).collect();
    let expected = [packet(Opcode::RC_READ_REQUEST).psn(PSN + 1).reth(BASE + 1024, 1024)];
    expect_packets("after the timeout", &again, &expected);
    respond(&mut scripted, ONLY, PSN + 1, 1024);
    assert_eq!(sent(&mut scripted), [(1, Success)]);
}

#[test]
fn responses_seen_before_are_ignored() {
    let mut scripted = Scripted::rc();
    let op = read(&scripted);
    post(&mut scripted, 1, op, 2048);
    scripted.frames();
    for _ in 0..3 {
        respond(&mut scripted, FIRST, PSN, 1024);
    }
    assert!(scripted.frames().is_empty() && sent(&mut scripted).is_empty());
    respond(&mut scripted, LAST, PSN + 1, 1024);
    respond(&mut scripted, LAST, PSN + 1, 1024);
    assert_eq!(sent(&mut scripted), [(1, Success)]);
    assert_eq!(scripted.state(), QpState::Rts);
}

/// A stream of responses that is illegal by order or length: BAD_RESP, and the QP fails.
#[test]
fn an_illegal_response_stream_fails_the_qp() {
    type Response = (Opcode, usize);
    // READ of 2500 bytes: 1024, 1024, 452. The last response of each row is the illegal one.
    let table: &[&[Response]] = &[
        &[(MIDDLE, 1024)],
        &[(LAST, 452)],
        &[(LAST, 1024)],
        &[(ONLY, 1024)],
        &[(ONLY, 2500)],
        &[(FIRST, 1020)],
        &[(FIRST, 1028)],
        &[(FIRST, 0)],
        &[(FIRST, 1024), (FIRST, 1024)],
        &[(FIRST, 1024), (ONLY, 1024)],
        &[(FIRST, 1024), (LAST, 1024)],
        &[(FIRST, 1024), (MIDDLE, 1000)],
        &[(FIRST, 1024), (MIDDLE, 1024), (MIDDLE, 1024)],
        &[(FIRST, 1024), (MIDDLE, 1024), (LAST, 448)],
        &[(FIRST, 1024), (MIDDLE, 1024), (LAST, 456)],
        &[(FIRST, 1024), (MIDDLE, 1024), (LAST, 0)],
        &[(FIRST, 1024), (MIDDLE, 1024), (ONLY, 452)],
    ];
    for responses in table {
        let mut scripted = Scripted::rc();
        let op = read(&scripted);
        post(&mut scripted, 1, op, 2500);
        post(&mut scripted, 2, SendOp::Send, 8);
        scripted.frames();
        for (index, &(opcode, len)) in responses.iter().enumerate() {
            assert_eq!(scripted.state(), QpState::Rts, "{responses:?} before {index}");
            respond(&mut scripted, opcode, PSN + index as u32, len);
        }
        let names: Vec<_> = responses.iter().map(|(op, len)| (op.name(), len)).collect();
        assert_eq!(sent(&mut scripted), [(1, BadRespErr), (2, WrFlushErr)], "{names:?}");
        assert_eq!(scripted.state(), QpState::Err, "{names:?}");
    }
}

/// An answer of the wrong kind for the work request that owns its PSN.
#[test]
fn an_answer_of_the_wrong_kind_fails_the_qp() {
    let sends = |scripted: &Scripted| {
        let remote = scripted.node.remote(0);
        [
            (SendOp::Send, 8),
            (SendOp::Write(remote), 8),
            (SendOp::Read(remote), 8),
            (SendOp::FetchAdd { remote, add: 1 }, 8),
            (SendOp::AtomicWrite(remote, 1), 0),
        ]
    };
    let fits = |op: &SendOp, kind| match op {
        SendOp::Read(_) | SendOp::AtomicWrite(..) => kind == Kind::ReadResponse,
        SendOp::FetchAdd { .. } => kind == Kind::AtomicAcknowledge,
        _ => false,
    };
    for index in 0..5 {
        for kind in [Kind::ReadResponse, Kind::AtomicAcknowledge] {
            let mut scripted = Scripted::rc();
            let (op, length) = sends(&scripted)[index];
            if fits(&op, kind) {
                continue;
            }
            post(&mut scripted, 1, SendOp::Send, 8);
            post(&mut scripted, 2, op, length);
            post(&mut scripted, 3, SendOp::Send, 8);
            scripted.frames();
            match kind {
                Kind::ReadResponse => respond(&mut scripted, ONLY, PSN + 1, 8),
                _ => {
                    let ack = scripted.packet(Opcode::RC_ATOMIC_ACKNOWLEDGE, PSN + 1);
                    scripted.send(&ack.aeth(ACK, 0).original(7)).ok();
                }
            }
            let expected = [(1, Success), (2, BadRespErr), (3, WrFlushErr)];
            assert_eq!(sent(&mut scripted), expected, "{kind:?} for {op:?}");
            assert_eq!(scripted.state(), QpState::Err, "{kind:?} for {op:?}");
        }
    }
    assert_eq!(ONLY.info().map(|info| info.position), Some(Position::Only));
}

#[test]
fn an_atomic_acknowledge_stores_the_original_and_acknowledges() {
    let mut scripted = Scripted::rc();
    post(&mut scripted, 1, SendOp::Send, 8);
    let op = fetch_add(&scripted);
    post(&mut scripted, 2, op, 8);
    scripted.node.post(scripted.qpn, 3, op, RESULT + 8, 8);
    assert_eq!(psns(&mut scripted), [0, 1, 2]);
    let answer = |scripted: &mut Scripted, psn, original| {
        let ack = scripted.packet(Opcode::RC_ATOMIC_ACKNOWLEDGE, psn).aeth(ACK, 0);
        scripted.send(&ack.original(original)).ok();
    };
    answer(&mut scripted, PSN + 1, 0x0102_0304_0506_0708);
    answer(&mut scripted, PSN + 1, 0xdead);
    assert_eq!(sent(&mut scripted), [(1, Success), (2, Success)]);
    let memory = scripted.node.device.memory();
    assert_eq!(memory.word(BASE + RESULT), 0x0102_0304_0506_0708, "a duplicate changes nothing");
    answer(&mut scripted, PSN + 2, 5);
    assert_eq!(sent(&mut scripted), [(3, Success)]);
    assert_eq!(scripted.node.device.memory().word(BASE + RESULT + 8), 5);
}

/// An atomic acknowledge ahead of a missing one: the missing one is asked for at once.
#[test]
fn a_missing_atomic_acknowledge_is_asked_for_at_once() {
    let mut scripted = Scripted::rc();
    let op = fetch_add(&scripted);
    for wr_id in 1..=3 {
        post(&mut scripted, wr_id, op, 8);
    }
    scripted.frames();
    for psn in [PSN + 1, PSN + 2] {
        let ack = scripted.packet(Opcode::RC_ATOMIC_ACKNOWLEDGE, psn).aeth(ACK, 0).original(1);
        scripted.send(&ack).ok();
    }
    let again: Vec<_> = (0..3).map(|at| packet(Opcode::RC_FETCH_ADD).psn(PSN + at)).collect();
    expect_packets("asked again, once", &scripted.frames(), &again);
    assert!(sent(&mut scripted).is_empty());
}

#[test]
fn a_sequence_nak_goes_back_to_its_psn_at_once() {
    let mut scripted = Scripted::rc();
    for wr_id in 1..=5 {
        post(&mut scripted, wr_id, SendOp::Send, 8);
    }
    scripted.frames();
    scripted.answer(PSN + 2, SEQUENCE_NAK).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success), (2, Success)], "it acknowledges what is before");
    assert_eq!(psns(&mut scripted), [2, 3, 4]);
    scripted.answer(PSN + 4, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(3, Success), (4, Success), (5, Success)]);
}

/// A sequence NAK behind an unanswered READ: the READ's answer was lost too.
#[test]
fn a_sequence_nak_beyond_an_unanswered_read_goes_back_to_the_read() {
    let mut scripted = Scripted::rc();
    post(&mut scripted, 1, SendOp::Send, 8);
    let op = read(&scripted);
    post(&mut scripted, 2, op, 8);
    post(&mut scripted, 3, SendOp::Send, 8);
    scripted.frames();
    scripted.answer(PSN + 2, SEQUENCE_NAK).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success)]);
    assert_eq!(psns(&mut scripted), [1, 2]);
}

/// P44: the fatal NAKs, and what each tells the application.
#[test]
fn fatal_naks_have_their_status() {
    for qp_type in [QpType::Rc, QpType::XrcSend] {
        for (syndrome, status) in [(0x61, RemInvReqErr), (0x62, RemAccessErr), (0x63, RemOpErr)] {
            let mut scripted = Scripted::new(qp_type);
            let sges = [scripted.node.sge(0, 8)];
            for wr_id in 1..=3 {
                let wr = SendWr { srqn: Some(5), ..SendWr::new(wr_id, SendOp::Send, &sges) };
                scripted.node.post_wr(scripted.qpn, &wr);
            }
            assert_eq!(psns(&mut scripted), [0, 1, 2]);
            scripted.answer(PSN + 1, syndrome).unwrap();
            let expected = [(1, Success), (2, status), (3, WrFlushErr)];
            assert_eq!(sent(&mut scripted), expected, "{syndrome:#x} on {qp_type:?}");
            assert_eq!(scripted.state(), QpState::Err, "{syndrome:#x} on {qp_type:?}");
            assert!(scripted.frames().is_empty(), "{syndrome:#x} on {qp_type:?}");
        }
    }
}

#[test]
fn a_fatal_nak_beyond_an_unanswered_read_asks_again_first() {
    let mut scripted = Scripted::rc();
    let op = read(&scripted);
    post(&mut scripted, 1, op, 8);
    post(&mut scripted, 2, SendOp::Send, 8);
    scripted.frames();
    scripted.answer(PSN + 1, 0x62).unwrap();
    assert!(sent(&mut scripted).is_empty());
    assert_eq!(psns(&mut scripted), [0, 1]);
    respond(&mut scripted, ONLY, PSN, 8);
    scripted.answer(PSN + 1, 0x62).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success), (2, RemAccessErr)]);
}

/// Reserved NAK codes and syndromes are ignored; the right answer after them counts.
#[test]
fn reserved_syndromes_are_ignored() {
    for syndrome in (0x40..=0x5f).chain(0x64..=0xff) {
        let mut scripted = Scripted::rc();
        post(&mut scripted, 1, SendOp::Send, 8);
        post(&mut scripted, 2, SendOp::Send, 8);
        scripted.frames();
        scripted.answer(PSN + 1, syndrome).ok();
        assert!(sent(&mut scripted).is_empty(), "{syndrome:#x}");
        assert!(scripted.frames().is_empty(), "{syndrome:#x}");
        scripted.answer(PSN + 1, ACK).unwrap();
        assert_eq!(sent(&mut scripted), [(1, Success), (2, Success)], "{syndrome:#x}");
    }
}

/// ATOMIC WRITE and FLUSH are answered by an empty READ Response Only (Annex A19).
#[test]
fn atomic_write_and_flush_are_answered_by_an_empty_response() {
    use ferroce_stack::verbs::{Access, FlushLevel};
    let mut scripted = Scripted::rc();
    let remote = scripted.node.remote(0);
    let (level, placement) = (FlushLevel::Range, Access::FLUSH_GLOBAL);
    post(&mut scripted, 1, SendOp::AtomicWrite(remote, 0x0102), 0);
    post(&mut scripted, 2, SendOp::Flush { remote, length: 64, level, placement }, 0);
    let expected = [
        packet(Opcode::RC_ATOMIC_WRITE).psn(PSN).reth(BASE, 8).payload_len(8),
        packet(Opcode::RC_FLUSH).psn(PSN + 1).reth(BASE, 64).payload_len(0),
    ];
    expect_packets("requests", &scripted.frames(), &expected);
    scripted.answer(PSN + 1, ACK).ok();
    assert!(sent(&mut scripted).is_empty(), "an ACK is no answer to them");
    scripted.frames();
    respond(&mut scripted, ONLY, PSN, 0);
    respond(&mut scripted, ONLY, PSN + 1, 0);
    assert_eq!(sent(&mut scripted), [(1, Success), (2, Success)]);
}
