//! Time and counts of the requester (IBA 9.7.5.1, 9.7.6): the ACK timer, the RNR wait, and how
//! often each may run out.

use ferroce_stack::verbs::{QpState, SendOp, WcStatus};
use ferroce_stack::wire::Opcode;
use ferroce_tests::{MS, PSN, SEC, Scripted, US, statuses};

use WcStatus::{RetryExcErr, RnrRetryExcErr, Success, WrFlushErr};

const ACK: u8 = 0x1f;

/// No moments.
const NEVER: [u64; 0] = [];

/// The delay of each RNR timer code, in microseconds.
const RNR_US: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

fn one_send(scripted: &mut Scripted) {
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 8);
    assert_eq!(scripted.frames().len(), 1);
}

fn rnr(code: u8) -> u8 {
    0x20 | code
}

fn sent(scripted: &mut Scripted) -> Vec<(u64, WcStatus)> {
    statuses(&scripted.node.sent())
}

/// Moments, in nanoseconds from now, of what is sent in the next `ns`.
fn moments(scripted: &mut Scripted, ns: u64) -> Vec<u64> {
    let start = scripted.node.now.nanos();
    scripted.node.run_for(ns).iter().map(|(at, _)| at.nanos() - start).collect()
}

/// P33: all 32 codes on the virtual clock; never early, and at most a microsecond late.
#[test]
fn every_rnr_timer_code_waits_its_time() {
    for (code, wait) in (0..).zip(RNR_US) {
        let mut scripted = Scripted::rc();
        one_send(&mut scripted);
        scripted.node.run_for(5 * US);
        scripted.answer(PSN, rnr(code)).unwrap();
        let sent = moments(&mut scripted, wait * US + 2 * US);
        let [at] = sent[..] else { panic!("code {code}: sent at {sent:?}") };
        assert!((wait * US..=wait * US + US).contains(&at), "code {code}: {at} ns");
    }
}

/// P31: the ACK timer of 8.2 us may not cut a wait of 1.28 ms short.
#[test]
fn rnr_wait_is_not_cut_short_by_the_ack_timer() {
    let mut scripted = Scripted::rc_with(|attr| attr.timeout = 1);
    one_send(&mut scripted);
    scripted.answer(PSN, rnr(14)).unwrap();
    assert_eq!(moments(&mut scripted, 1_280 * US - 1), NEVER);
    assert_eq!(moments(&mut scripted, US).len(), 1);
}

/// New work waits too: nothing else is sent meanwhile.
#[test]
fn nothing_is_sent_during_an_rnr_wait() {
    let mut scripted = Scripted::rc();
    one_send(&mut scripted);
    scripted.answer(PSN, rnr(14)).unwrap();
    let remote = scripted.node.remote(0);
    scripted.node.post(scripted.qpn, 2, SendOp::Write(remote), 0, 8);
    assert_eq!(moments(&mut scripted, 1_279 * US), NEVER);
    let at_end = scripted.node.run_for(2 * US);
    let psns: Vec<u32> = at_end.iter().map(|(_, seen)| seen.psn() - PSN).collect();
    assert_eq!(psns, [0, 1]);
}

/// An RNR NAK that comes while one is waited out neither prolongs nor counts.
#[test]
fn rnr_naks_during_the_wait_are_ignored() {
    let mut scripted = Scripted::rc_with(|attr| attr.rnr_retry = 1);
    one_send(&mut scripted);
    scripted.answer(PSN, rnr(14)).unwrap();
    scripted.node.run_for(MS);
    for _ in 0..5 {
        scripted.answer(PSN, rnr(31)).ok();
    }
    assert_eq!(scripted.state(), QpState::Rts);
    let sent = moments(&mut scripted, MS);
    assert_eq!(sent, [280 * US]);
}

/// An RNR NAK acknowledges what came before it.
#[test]
fn an_rnr_nak_acknowledges_what_is_before_it() {
    let mut scripted = Scripted::rc();
    for wr_id in 1..=4 {
        scripted.node.post(scripted.qpn, wr_id, SendOp::Send, 0, 8);
    }
    scripted.frames();
    scripted.answer(PSN + 2, rnr(1)).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success), (2, Success)]);
    let psns: Vec<u32> =
        scripted.node.run_for(11 * US).iter().map(|(_, seen)| seen.psn() - PSN).collect();
    assert_eq!(psns, [2, 3]);
}

/// P32: 0 fails on the first RNR NAK, n allows n retries, 7 never fails.
#[test]
fn rnr_retry_counts_and_seven_is_for_ever() {
    for rnr_retry in [0, 1, 2, 3, 4, 5, 6, 7] {
        let mut scripted = Scripted::rc_with(|attr| attr.rnr_retry = rnr_retry);
        one_send(&mut scripted);
        let mut resent = 0;
        while scripted.state() == QpState::Rts && resent < 100 {
            scripted.answer(PSN, rnr(1)).unwrap();
            resent += moments(&mut scripted, 15 * US).len();
        }
        if rnr_retry == 7 {
            assert_eq!((resent, scripted.state()), (100, QpState::Rts));
        } else {
            assert_eq!(resent, usize::from(rnr_retry), "rnr_retry {rnr_retry}");
            assert_eq!(sent(&mut scripted), [(1, RnrRetryExcErr)], "rnr_retry {rnr_retry}");
            assert_eq!(scripted.state(), QpState::Err, "rnr_retry {rnr_retry}");
        }
    }
}

/// Progress gives all retries back: both counts, by an ACK of even one packet.
#[test]
fn retry_counts_reload_on_progress() {
    let mut scripted = Scripted::rc_with(|attr| {
        attr.rnr_retry = 1;
        attr.retry_cnt = 1;
    });
    scripted.node.post(scripted.qpn, 1, SendOp::Send, 0, 20 * 1024);
    scripted.frames();
    for at in 0..19 {
        scripted.answer(PSN + at, rnr(1)).unwrap();
        scripted.node.run_for(11 * US);
        assert_eq!(scripted.state(), QpState::Rts, "RNR NAK for packet {at}");
        // T is 67.1 ms.
        scripted.node.run_for(68 * MS);
        assert_eq!(scripted.state(), QpState::Rts, "timeout at packet {at}");
        scripted.answer(PSN + at, ACK).unwrap();
        scripted.frames();
    }
    scripted.answer(PSN + 19, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success)]);
}

/// RNR retries and timeouts are counted apart.
#[test]
fn rnr_retries_do_not_use_up_timeouts() {
    let mut scripted = Scripted::rc_with(|attr| {
        attr.rnr_retry = 3;
        attr.retry_cnt = 1;
    });
    one_send(&mut scripted);
    for _ in 0..3 {
        scripted.answer(PSN, rnr(1)).unwrap();
        scripted.node.run_for(11 * US);
    }
    assert_eq!(moments(&mut scripted, 68 * MS).len(), 1, "the one retry is left");
    assert_eq!(scripted.state(), QpState::Rts);
}

/// retry_cnt resends after the first, 7 being seven; then RETRY_EXC and the rest flushed.
#[test]
fn retry_cnt_resends_and_then_the_qp_fails() {
    for retry_cnt in 0..=7 {
        let mut scripted = Scripted::rc_with(|attr| attr.retry_cnt = retry_cnt);
        one_send(&mut scripted);
        scripted.node.post(scripted.qpn, 2, SendOp::Send, 0, 8);
        let sent_in_all = scripted.node.run_for(10 * SEC);
        let firsts = sent_in_all.iter().filter(|(_, seen)| seen.psn() == PSN).count();
        assert_eq!(firsts, usize::from(retry_cnt), "resends with retry_cnt {retry_cnt}");
        let expected = [(1, RetryExcErr), (2, WrFlushErr)];
        assert_eq!(sent(&mut scripted), expected, "retry_cnt {retry_cnt}");
        assert_eq!(scripted.state(), QpState::Err, "retry_cnt {retry_cnt}");
    }
}

/// Sequence NAKs use the same count.
#[test]
fn sequence_naks_count_as_retries() {
    let mut scripted = Scripted::rc_with(|attr| attr.retry_cnt = 0);
    one_send(&mut scripted);
    scripted.answer(PSN, 0x60).unwrap();
    assert_eq!(sent(&mut scripted), [(1, RetryExcErr)]);
    assert_eq!(scripted.state(), QpState::Err);
}

/// Missing responses use it too.
#[test]
fn missing_responses_count_as_retries() {
    let mut scripted = Scripted::rc_with(|attr| attr.retry_cnt = 0);
    let read = SendOp::Read(scripted.node.remote(0));
    scripted.node.post(scripted.qpn, 1, read, 0, 8);
    scripted.node.post(scripted.qpn, 2, SendOp::Send, 0, 8);
    scripted.frames();
    scripted.answer(PSN + 1, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(1, RetryExcErr), (2, WrFlushErr)]);
}

/// 4.096 us * 2^code, detected between T and 4T (IBA 9.7.6.1.3).
#[test]
fn the_ack_timer_runs_its_time() {
    for code in 1..=31u32 {
        let mut scripted = Scripted::rc_with(|attr| attr.timeout = code as u8);
        one_send(&mut scripted);
        let timeout = 4096u64 << code;
        assert_eq!(moments(&mut scripted, timeout - 1), NEVER, "code {code}: early");
        assert_eq!(moments(&mut scripted, 3 * timeout).len().min(1), 1, "code {code}: late");
    }
}

#[test]
fn timeout_code_zero_waits_for_ever() {
    let mut scripted = Scripted::rc_with(|attr| attr.timeout = 0);
    one_send(&mut scripted);
    assert_eq!(moments(&mut scripted, 100_000 * SEC), NEVER);
    scripted.answer(PSN, ACK).unwrap();
    assert_eq!(sent(&mut scripted), [(1, Success)]);
}

/// The timer starts again with every acknowledgement that leaves something outstanding, and stops
/// when nothing is.
#[test]
fn the_ack_timer_restarts_on_progress_and_stops_when_idle() {
    let mut scripted = Scripted::rc();
    for wr_id in 1..=3 {
        scripted.node.post(scripted.qpn, wr_id, SendOp::Send, 0, 8);
    }
    scripted.frames();
    for at in 0..2 {
        assert_eq!(moments(&mut scripted, 60 * MS), NEVER, "ACK {at}");
        scripted.answer(PSN + at, ACK).unwrap();
    }
    assert_eq!(moments(&mut scripted, 66 * MS), NEVER);
    scripted.answer(PSN + 2, ACK).unwrap();
    assert_eq!(moments(&mut scripted, 100 * SEC), NEVER);
    assert_eq!(scripted.state(), QpState::Rts);
    assert_eq!(scripted.node.device.poll_timeout(), None);
}

/// After a wait the first resend is timed by the ACK timer as any other packet.
#[test]
fn the_ack_timer_runs_again_after_an_rnr_wait() {
    let mut scripted = Scripted::rc_with(|attr| attr.retry_cnt = 2);
    one_send(&mut scripted);
    scripted.answer(PSN, rnr(1)).unwrap();
    scripted.node.run_for(11 * US);
    let sent_again = scripted.node.run_for(68 * MS);
    assert_eq!(sent_again.len(), 1);
    assert_eq!(sent_again[0].1.opcode(), Opcode::RC_SEND_ONLY);
}
