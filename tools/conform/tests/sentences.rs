//! What the sentences of the language mean.

mod common;

use common::{said, totals};
use ferroce_conform::report::{Junit, case_json};
use ferroce_conform::session::Status;

/// Asserts that a scenario passes.
#[track_caller]
fn passes(body: &str) {
    assert_eq!(said(body), "file/s: passed\n");
}

/// Asserts that a scenario fails, and that this is said of it.
#[track_caller]
fn fails(body: &str, why: &str) {
    let said = said(body);
    assert!(said.contains("file/s: failed") && said.contains(why), "{said}");
}

/// A gap, which the target answers with a NAK at once.
const GAP: &str = "qp a rc\npeer sends send-only, psn 4, payload 4 of 7\n";

/// A message that is received and acknowledged.
const MESSAGE: &str = "memory m 64 bytes\nqp a rc\ntarget posts receive 1, to m\n\
    peer sends send-only, psn 0, payload 4 of 7, ack-request\n";

#[test]
fn either_takes_the_branch_that_is_met() {
    passes(&format!(
        "{GAP}either
  target stays silent for 5 ms
  qp a is ERR
or
  rule \"X\": \"y\"
  target sends ack, psn 0
or
  target sends nak-sequence, psn any as x
  peer sends send-only, psn x + 1, payload 4 of 7
end
target stays silent for 50 ms"
    ));
}

#[test]
fn either_takes_silence_last() {
    passes(
        "qp a rc
either
  target sends nothing for 5 ms
  wait 1 ms
or
  target sends ack, psn 0
end",
    );
}

#[test]
fn any_order_takes_what_comes() {
    passes(&format!(
        "{MESSAGE}in any order
  memory m holds 4 of 7
  target completes 1, opcode receive, length 1 to 4
  target sends nak-sequence, psn 0, optional
  target sends ack, psn 0, msn 1
  qp a is RTS
end"
    ));
}

#[test]
fn optional_need_not_come() {
    passes(&format!(
        "{GAP}target sends ack, psn 0, optional
target sends nak-sequence, psn 0
target sends ack, psn 4, optional, within 2 ms
target completes 1, optional"
    ));
}

#[test]
fn acknowledgements_may_be_coalesced() {
    let messages = "memory m 64 bytes
qp a rc, receive-psn 0xfffffe
for i in 0 to 3
  target posts receive i, to m
  peer sends send-only, psn i, payload 4 of 7, ack-request
end
for i in 0 to 3
  target completes i
end
";
    passes(&format!("{messages}target acknowledges psn 3, msn 4"));
    fails(&format!("{messages}target acknowledges psn 2"), "psn");
    fails(&format!("{messages}target acknowledges psn 4"), "no ACK that goes so far came");
}

#[test]
fn a_queue_that_is_not_polled_keeps_what_completes() {
    let message = "memory m 64 bytes\ncq c 4, unpolled\nqp a rc, receive-cq c\n\
        target posts receive 1, to m\npeer sends send-only, psn 0, payload 4 of 7\n";
    passes(&format!("{message}target stays silent for 5 ms\ntarget polls c\ntarget completes 1"));
    passes(message);
    fails(&format!("{message}target completes 1"), "no completion came within 100 ms");
}

#[test]
fn a_query_tells_what_was_set_and_the_present_psn() {
    let qp = "qp a rc, timeout 9, access read write\nqp a has timeout 9, access write read, \
        send-psn 0x800, receive-psn any as first, mtu 256 to 1024\nlet next = first + 1\n\
        peer sends write-only, psn 0, to 0, key 0, length 0\nqp a has receive-psn next\n";
    passes(qp);
    fails(&format!("{qp}qp a has timeout 10"), "timeout");
    fails(&format!("{qp}qp a has access read"), "access");
    passes("srq s 7\ntarget arms s at 0\nsrq s has size s.size, limit 0");
}

#[test]
fn what_is_of_xrc_alone_is_refused_elsewhere() {
    let said = said("xrc-domain x\nsrq s 8, xrc-domain x");
    assert!(said.contains("`xrc-domain` is of an SRQ that is `xrc`"), "{said}");
}

#[test]
fn time_is_measured_from_the_sentence_before() {
    let resend = "memory m 64 bytes\nqp a rc, timeout 10\ntarget posts send 1, from m\n\
        target sends send-only, psn 0\n";
    let rest = "\ntarget sends send-only, psn 0\ntarget moves a to RESET";
    passes(&format!(
        "{resend}target sends send-only, psn 0, after 4 ms, within 17 ms\npeer sends ack, psn 0, msn 1\ntarget completes 1"
    ));
    fails(&format!("{resend}target sends send-only, psn 0, after 90 ms{rest}"), "not before");
    fails(&format!("{resend}target sends send-only, psn 0, within 3 ms{rest}"), "no such frame");
}

#[test]
fn a_name_that_is_made_again_is_another_object() {
    passes(
        "for service in rc, uc
  memory m 64 bytes, holds 4 of 9
  qp a service
  peer sends write-only, psn 0, to m.address, key m.key, length 4, payload 4 of 1
  wait 1 ms
  memory m holds 4 of 1
end",
    );
}

#[test]
fn counters_rise_since_the_last_frame_or_the_loop() {
    passes(
        "memory m 64 bytes
qp a rc
for i in 1 to 3
  peer sends send-only, psn 0, payload 4 of 7, icrc wrong
  counter bad_icrc rises by 1
end
counter bad_icrc rises by 3
counter no_such_counter rises by 17
peer sends send-only, psn 0, payload 4 of 7, icrc wrong
counter bad_icrc rises by 1",
    );
    fails(
        "qp a rc\npeer sends ack, psn 0, icrc wrong\ncounter bad_icrc rises by 2",
        "counter bad_icrc",
    );
}

#[test]
fn a_frame_is_sent_again_by_its_name() {
    passes(&format!(
        "{MESSAGE}target sends ack, psn 0, msn 1
target completes 1
target posts receive 2, to m
peer sends send-only, psn 1, payload 4 of 8, ack-request, as second
target sends ack, psn 1, msn 2
target completes 2
repeat 2 times
  peer resends second
  target sends ack, psn 1, msn 2
end"
    ));
}

#[test]
fn a_refusal_that_is_asked_for() {
    passes(
        "memory m 64 bytes
domain d
qp a rc, state INIT
target posts send 1, from m, refused EINVAL
memory n 64 bytes, access atomic, read-only, refused EINVAL
memory n 64 bytes, domain d
target deregisters n",
    );
}

#[test]
fn states_and_silence() {
    passes(
        "qp a rc
target moves a to ERR
qp a is ERR
target stays silent for 10 ms",
    );
    fails(&format!("{GAP}target stays silent for 1 us"), "the target is not silent");
    fails("qp a rc\nqp a is ERR", "the QP is in another state");
}

#[test]
fn several_qps_have_queues_of_their_own() {
    passes(
        "qp a rc
qp b rc
peer sends send-only, psn 4, payload 4 of 7, on a
peer sends send-only, psn 9, payload 4 of 7, on b
target sends nak-sequence, psn 0, on b
target sends nak-sequence, psn 0, on a",
    );
}

#[test]
fn known_deviations_do_not_fail_a_run() {
    let deviates = totals(GAP, "file/s: known since report 7");
    assert_eq!((deviates.of(Status::Deviates), deviates.of(Status::Failed)), (1, 0));
    let passed = totals("qp a rc", "file/*: known since report 7");
    assert_eq!((passed.of(Status::Passed), passed.unexpected), (1, vec!["file/s".to_owned()]));
}

#[test]
fn reports_for_programs() {
    let (json, junit) = common::run(GAP, "", |judged| {
        let mut junit = Junit::default();
        junit.add(judged);
        (case_json(judged), junit.finish())
    });
    assert_eq!(json["scenario"], "file/s");
    assert_eq!(json["status"], "failed");
    assert_eq!(json["failure"]["got"], "target sends nak-sequence, psn 0, msn 0");
    let last = json["failure"]["transcript"].as_array().and_then(|all| all.last()).unwrap();
    assert_eq!(last["side"], "target");
    assert!(junit.contains("<testsuite name=\"file\" tests=\"1\" failures=\"1\" errors=\"0\""));
    assert!(junit.contains("<testcase classname=\"file\" name=\"s\""), "{junit}");
}
