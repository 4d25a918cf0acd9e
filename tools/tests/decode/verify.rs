//! With `--verify`: recorded traffic breaks no rule, and what is broken in it on purpose
//! is found.

use std::collections::BTreeMap;

use ferroce_stack::wire::{Opcode, Syndrome};
use serde_json::Value;

use crate::support::{self, Altered, json, recorded};

/// Recorded where the network lost, repeated or reordered packets, or where the programs meant
/// requests to fail. All else must have no finding at all.
const FINDINGS: &[(&str, &[&str])] = &[
    ("hw-mellanox-cx5-cm-atomics-nak.pcap", &["nak"]),
    // Holds only what one of the two sides sent.
    ("hw-mellanox-cx5-liteeth-cm-vlan.pcap", &["unmatched_response"]),
    // Two connections, one after the other, of the same QP.
    ("pub-rxe-cm-write-frames.pcap", &["restart"]),
    ("rxe-6.12-flush.pcap", &["rxe_flush"]),
    ("rxe-6.12-naks.pcap", &["nak"]),
    ("rxe-naks.pcap", &["nak"]),
    ("rxe-6.12-send-inv-mw2.pcap", &["nak"]),
    ("rxe-send-inv-mw2.pcap", &["nak"]),
    ("rxe-6.12-rnr.pcap", &["nak_after_rnr", "retransmission", "rnr_nak"]),
    ("rxe-rnr.pcap", &["nak_after_rnr", "retransmission", "rnr_nak"]),
    ("rxe-rnr-exceeded.pcap", &["retransmission", "rnr_nak"]),
    ("rxe-timeout-qp-gone.pcap", &["retransmission", "timeout"]),
    ("rxe-duplicate.pcap", &["duplicate_ack", "duplicate_frame", "duplicate_response"]),
    ("rxe-lossy.pcap", LOSS),
    ("rxe-6.12-lossy.pcap", LOSS),
    ("rxe-reorder.pcap", LOSS),
    (
        "rxe-6.12-reorder.pcap",
        &[
            "duplicate_ack",
            "duplicate_response",
            "gap",
            "late",
            "read_resume",
            "response_gap",
            "response_lost",
            "retransmission",
            "sequence_nak",
            "timeout",
        ],
    ),
];

const LOSS: &[&str] = &[
    "duplicate_ack",
    "duplicate_response",
    "gap",
    "read_resume",
    "response_gap",
    "response_lost",
    "retransmission",
    "sequence_nak",
    "timeout",
];

#[test]
fn recorded_traffic_breaks_no_rule() {
    let expected: BTreeMap<&str, &[&str]> = FINDINGS.iter().copied().collect();
    for (name, bytes) in recorded() {
        // The judgement has to stand even if what is not in a capture counts as never sent, but for
        // one that was recorded without responses.
        let complete = name != "hw-mellanox-cx5-liteeth-cm-vlan.pcap";
        let (_, summary) = json(bytes, true, complete);
        assert_eq!(summary["violations"], 0, "{name}: {summary}");
        let findings = summary["findings"].as_object().expect("an object");
        let kinds: Vec<&str> = findings.keys().map(String::as_str).collect();
        assert_eq!(kinds, *expected.get(&*name).unwrap_or(&[].as_slice()), "{name}");
    }
}

#[test]
fn flows_are_told_apart_and_their_ends_learnt() {
    let (_, summary) = json(support::file("rxe-srq-pingpong.pcap"), true, false);
    let flows = summary["flows"].as_array().expect("flows");
    // Four pairs of QPs, both directions.
    assert_eq!(flows.len(), 8);
    for flow in flows {
        assert!(flow["src_qp"].is_u64(), "{flow}");
        let is_back =
            |back: &&Value| (&back["src"], &back["dest_qp"]) == (&flow["dst"], &flow["src_qp"]);
        let back = flows.iter().find(is_back).expect("the way back");
        assert_eq!(back["src_qp"], flow["dest_qp"]);
        assert_eq!(flow["path_mtu"], 1024);
    }
    let sum = |key: &str| flows.iter().filter_map(|flow| flow[key].as_u64()).sum::<u64>();
    // One ACK was still to come.
    assert_eq!((sum("packets"), sum("messages"), sum("responses")), (172, 86, 85));
}

#[test]
fn lossy_flow_is_summed_up() {
    let (lines, summary) = json(support::file("rxe-6.12-lossy.pcap"), true, false);
    let flow = &summary["flows"][0];
    assert_eq!(flow["messages"], 90, "the program sent 90 messages: {flow}");
    assert_eq!((&flow["gaps"], &flow["sequence_naks"]), (&Value::from(6), &Value::from(5)));
    let requests = lines.iter().filter(|line| line["src"] == flow["src"]).count();
    assert_eq!(flow["packets"], requests);
}

// rxe-rc-send.pcap: frames 1 to 10 are SEND Only and ACK in turns, then come messages of several.
const SEND: &str = "rxe-rc-send.pcap";
const READ: &str = "rxe-rc-read.pcap";

fn frame_of(name: &str, opcode: u8, nth: usize) -> usize {
    let (lines, _) = json(support::file(name), false, false);
    let mut hits = lines.iter().filter(|line| line["opcode"] == opcode);
    let line = hits.nth(nth).expect("such a packet");
    line["frame"].as_u64().expect("a number") as usize
}

fn at(kind: &str, frame: usize) -> Vec<String> {
    vec![format!("{kind}@{frame}")]
}

#[test]
fn ack_of_what_was_never_sent() {
    let ack = frame_of(SEND, 0x11, 3);
    assert_eq!(Altered::of(SEND).move_psn(ack, 40).findings(), at("!ack_unsent", ack));
    // Even if no response has told before which QPs are a pair.
    let ack = frame_of(SEND, 0x11, 0);
    assert_eq!(Altered::of(SEND).move_psn(ack, 1).findings()[0], format!("!ack_unsent@{ack}"));
}

#[test]
fn nak_without_a_gap_and_twice_for_one() {
    let nak = Syndrome(0x60);
    let ack = frame_of(SEND, 0x11, 3);
    let with_nak = |altered: Altered, frame, by| {
        altered.move_psn(frame, by).change(frame, |headers, _| {
            headers.ext.aeth.as_mut().expect("AETH").syndrome = nak;
        })
    };
    let altered = with_nak(Altered::of(SEND), ack, 0);
    assert_eq!(altered.findings()[0], format!("!nak_without_gap@{ack}"));

    // A real NAK of the lossy capture, repeated with another IP identification.
    let name = "rxe-6.12-lossy.pcap";
    let again = Altered::of(name).again(13, 13);
    assert!(again.findings_complete().contains(&String::from("!repeated_nak@14")));
}

#[test]
fn resend_that_differs() {
    let last = frame_of(SEND, 0x02, 0);
    let same = Altered::of(SEND).again(last, last);
    assert_eq!(
        same.findings(),
        [format!("timeout@{0}", last + 1), format!("retransmission@{}", last + 1)]
    );
    let other = Altered::of(SEND).again(last, last).change(last + 1, |_, payload| payload[0] ^= 1);
    assert_eq!(other.findings()[1], format!("!resend_differs@{}", last + 1));
}

#[test]
fn frame_repeated_by_the_network() {
    let last = frame_of(SEND, 0x02, 0);
    let mut altered = Altered::of(SEND);
    altered.0.insert(last, altered.0[last - 1].clone());
    assert_eq!(altered.findings(), at("duplicate_frame", last + 1));
}

#[test]
fn what_is_missing_counts_only_in_a_complete_capture() {
    let middle = frame_of(SEND, 0x01, 2);
    let altered = Altered::of(SEND).without(middle);
    let found = altered.findings();
    assert_eq!(found[0], format!("gap@{middle}"));
    assert!(found.iter().all(|finding| !finding.starts_with('!')), "{found:?}");
    assert!(altered.findings_complete().iter().any(|finding| finding.starts_with("!missing@")));
}

#[test]
fn capture_that_begins_within_a_message_is_judged_from_there() {
    let middle = frame_of(SEND, 0x01, 1);
    let mut altered = Altered::of(SEND);
    altered.0.drain(..middle - 1);
    assert_eq!(altered.findings(), Vec::<String>::new());
    // Between request and response.
    let mut altered = Altered::of(READ);
    altered.0.drain(..frame_of(READ, 0x0e, 2));
    assert!(altered.findings().iter().all(|finding| finding.starts_with("unmatched_response@")));
}

#[test]
fn lengths_and_pads() {
    let middle = frame_of(SEND, 0x01, 1);
    let short = Altered::of(SEND).change(middle, |_, payload| payload.truncate(1000));
    assert_eq!(short.findings(), at("!wrong_length", middle));

    let last = frame_of(SEND, 0x02, 0);
    let empty = Altered::of(SEND).change(last, |_, payload| payload.clear());
    assert_eq!(empty.findings(), at("!wrong_length", last));

    let write = "rxe-rc-write.pcap";
    let first = frame_of(write, 0x06, 0);
    let claim = Altered::of(write).change(first, |headers, _| {
        headers.ext.reth.as_mut().expect("RETH").dma_len += 4;
    });
    let last = frame_of(write, 0x08, 0);
    assert_eq!(claim.findings(), at("!wrong_length", last));
}

#[test]
fn bad_pad() {
    let mut altered = Altered::of(SEND);
    let middle = frame_of(SEND, 0x01, 0);
    // Pad count 1 and the ICRC to match; the lengths stay.
    let frame = &mut altered.0[middle - 1];
    let layout = ferroce_stack::wire::Packet::parse(frame).expect("a packet").layout;
    frame[layout.bth + 1] |= 0x10;
    let icrc = ferroce_stack::icrc::compute(frame, &layout).to_le_bytes();
    frame[layout.icrc..][..4].copy_from_slice(&icrc);
    assert!(altered.findings().contains(&format!("!bad_pad@{middle}")), "{:?}", altered.findings());
}

#[test]
fn bad_icrc() {
    let mut altered = Altered::of(SEND);
    let only = frame_of(SEND, 0x04, 1);
    *altered.0[only - 1].last_mut().expect("bytes") ^= 1;
    assert_eq!(altered.findings()[0], format!("!bad_icrc@{only}"));
}

#[test]
fn opcodes_in_an_order_that_makes_no_message() {
    let middle = frame_of(SEND, 0x01, 2);
    let altered = Altered::of(SEND).change(middle, |headers, _| headers.bth.opcode = Opcode(0x00));
    assert!(altered.findings().contains(&format!("!opcode_sequence@{middle}")));
    let altered = Altered::of(SEND).change(middle, |headers, _| headers.bth.opcode = Opcode(0x07));
    assert!(altered.findings().contains(&format!("!opcode_sequence@{middle}")));
}

#[test]
fn read_responses_have_to_fit_the_request() {
    let middle = frame_of(READ, 0x0e, 4);
    let last = frame_of(READ, 0x0f, 0);
    let opcode = |frame, opcode| {
        Altered::of(READ).change(frame, move |headers, _| headers.bth.opcode = Opcode(opcode))
    };
    // A Middle where the Last is due, and the other way round.
    let early = opcode(last, 0x0e).change(last, |headers, _| headers.ext.aeth = None);
    assert!(early.findings().contains(&format!("!unexpected_response@{last}")));
    let beyond = Altered::of(READ).move_psn(frame_of(READ, 0x0f, 6), 1);
    assert!(beyond.findings()[0].starts_with("!"), "{:?}", beyond.findings());
    let short = Altered::of(READ).change(middle, |_, payload| payload.truncate(512));
    assert_eq!(short.findings(), at("!wrong_length", middle));
    let nak = Altered::of(READ).change(last, |headers, _| {
        headers.ext.aeth.as_mut().expect("AETH").syndrome = Syndrome(0x62);
    });
    assert_eq!(nak.findings(), at("!bad_syndrome", last));
}

#[test]
fn atomic_replayed_with_another_value() {
    let name = "rxe-rc-atomic.pcap";
    let ack = frame_of(name, 0x12, 1);
    let same = Altered::of(name).again(ack, ack);
    assert_eq!(same.findings(), at("duplicate_response", ack + 1));
    let other = Altered::of(name).again(ack, ack).change(ack + 1, |headers, _| {
        headers.ext.atomic_ack_eth.as_mut().expect("AtomicAckETH").original ^= 1;
    });
    assert_eq!(other.findings(), at("!replay_differs", ack + 1));
}

#[test]
fn resumed_read_has_to_ask_for_the_rest() {
    let name = "rxe-6.12-lossy.pcap";
    let resume = 186;
    let altered = Altered::of(name).change(resume, |headers, _| {
        headers.ext.reth.as_mut().expect("RETH").va += 8;
    });
    assert!(altered.findings().contains(&format!("!resend_differs@{resume}")));
}

/// Whatever a capture misses, it must not make a violation of sound traffic.
#[test]
fn capture_that_misses_frames_is_never_a_violation() {
    let mut random = support::Random(0x10ad);
    for (name, bytes) in recorded() {
        if name.starts_with("hw-infiniband") {
            continue;
        }
        let all = support::frames_of(bytes);
        for round in 0..6 {
            let begin = random.below(all.len());
            let one_in = [2, 5, 20][round % 3];
            let one_way = round >= 3;
            let source = |frame: &[u8]| frame.get(6..12).map(<[u8]>::to_vec);
            let kept: Vec<Vec<u8>> = all[begin..]
                .iter()
                .filter(|frame| !one_way || source(frame) == source(&all[begin]))
                .filter(|_| random.below(one_in) != 0)
                .cloned()
                .collect();
            let found = support::findings(&kept, false);
            // A capture that lacks but the newest request of all shows no sign of it.
            let signs = ["missing@", "gap@", "unmatched_response@"];
            let shows =
                found.iter().any(|finding| signs.iter().any(|sign| finding.starts_with(sign)));
            let sounds = |finding: &&String| finding.starts_with("!ack_unsent@") && !shows;
            let violation = found
                .iter()
                .filter(|finding| finding.starts_with('!'))
                .find(|finding| !sounds(finding));
            assert_eq!(violation, None, "{name} round {round}: from frame {begin}: {found:?}");
        }
    }
}

/// A network may repeat packets and let them overtake each other.
#[test]
fn network_that_repeats_and_reorders_is_never_a_violation() {
    let mut random = support::Random(0xd0b1e);
    for (name, bytes) in recorded() {
        if name.starts_with("hw-infiniband") {
            continue;
        }
        let mut frames = support::frames_of(bytes);
        let all = frames.len();
        for _ in 0..all / 10 {
            let from = random.below(all - 1);
            let source = |frame: &[u8]| frame.get(6..12).map(<[u8]>::to_vec);
            if source(&frames[from]) == source(&frames[from + 1]) {
                frames.swap(from, from + 1);
            }
        }
        for _ in 0..all / 10 {
            let from = random.below(frames.len());
            let to = (from + 1 + random.below(4)).min(frames.len());
            frames.insert(to, frames[from].clone());
        }
        let found = support::findings(&frames, true);
        let violation = found.iter().find(|finding| finding.starts_with('!'));
        if name != "hw-mellanox-cx5-liteeth-cm-vlan.pcap" {
            assert_eq!(violation, None, "{name}: {found:?}");
        }
    }
}
