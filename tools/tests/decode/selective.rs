//! Selective repeat: the mark and what a NAK tells are shown, and are no violation.

use ferroce::frame::fault::Rule;
use ferroce::world::{ConnectOptions, Endpoint, World, WorldConfig};
use ferroce_stack::verbs::{Mtu, QpCap, SendOp, SendWr, WcStatus};
use ferroce_stack::wire::{Aeth, Opcode, PsnRange, Syndrome};
use ferroce_stack::{Config, LossRecovery};
use ferroce_tools::capture::Capture;
use ferroce_tools::decode::{Options, decode};
use serde_json::Value;

use crate::support::{Altered, findings, json, pcap};

const FAULTS: &str = "drop 5% of any\nduplicate 2% of any\nreorder 3% of any by 20us";
/// Work requests of each node.
const COUNT: u64 = 60;
const LEN: usize = 64 << 10;

/// A frame, and whether it arrives.
type Sent = (Vec<u8>, bool);

/// What two devices send each other on a link that loses, repeats and delays: WRITEs, READs and
/// atomics in both directions.
fn traffic(seed: u64) -> Vec<Sent> {
    let device = Config { loss_recovery: LossRecovery::SelectiveRepeat, ..Config::default() };
    let faults = Rule::parse_all(FAULTS).expect("rules");
    let mut world = World::new(WorldConfig { seed, device, faults, ..WorldConfig::default() })
        .expect("a world");
    world.wire().keep_log();
    let cap = QpCap { max_send_wr: COUNT as u32, ..QpCap::default() };
    let options = ConnectOptions { mtu: Mtu::Mtu1024, timeout: 10, cap, ..Default::default() };
    let (a, b) = world.connect_rc(0, 1, &options).expect("a connection");
    for (own, other) in [(&a, &b), (&b, &a)] {
        post(&mut world, own, other, &options);
    }
    let mut done = [0, 0];
    let finished = |world: &mut World| {
        for (own, done) in [&a, &b].into_iter().zip(&mut done) {
            for wc in world.poll(own.node, own.send_cq).expect("a CQ") {
                assert_eq!(wc.status, WcStatus::Success);
                *done += 1;
            }
        }
        done == [COUNT; 2]
    };
    world.run_until(finished, 60_000_000_000).expect("all is done");
    let log = world.wire().take_log();
    log.into_iter().map(|sent| (sent.bytes, !sent.fate.dropped)).collect()
}

fn post(world: &mut World, own: &Endpoint, other: &Endpoint, options: &ConnectOptions) {
    // What is written must stay as it is until it has arrived.
    let source = world.register(own, LEN, options.access).expect("memory");
    let sink = world.register(own, LEN, options.access).expect("memory");
    let remote = world.register(other, LEN, options.access).expect("memory").remote();
    for wr_id in 0..COUNT {
        let (op, len) = match wr_id % 4 {
            0 | 1 => (SendOp::Write(remote), 7000),
            2 => (SendOp::Read(remote), 9000),
            _ => (SendOp::FetchAdd { remote, add: 1 }, 8),
        };
        let local = if matches!(op, SendOp::Write(_)) { &source } else { &sink };
        let sges = [local.slice(0, len)];
        let wr = SendWr::new(wr_id, op, &sges);
        world.device(own.node).post_send(own.qpn, &wr).expect("room");
    }
}

fn frames(traffic: &[Sent], only_arrived: bool) -> Vec<Vec<u8>> {
    let kept = traffic.iter().filter(|(_, arrives)| *arrives || !only_arrived);
    kept.map(|(bytes, _)| bytes.clone()).collect()
}

#[test]
fn what_selective_repeat_sends_breaks_no_rule() {
    for seed in 1..=20 {
        let traffic = traffic(seed);
        for (only_arrived, complete) in [(false, false), (false, true), (true, false)] {
            let found = findings(&frames(&traffic, only_arrived), complete);
            let violation = found.iter().find(|finding| finding.starts_with('!'));
            assert_eq!(violation, None, "seed {seed}, {only_arrived} {complete}: {found:?}");
            let has = |kind| found.iter().any(|finding| finding.starts_with(kind));
            assert!(has("sequence_nak@") && has("retransmission@"), "{found:?}");
        }
    }
}

/// The frame, counted from 1, and the object of the first NAK that tells something.
fn first_telling(traffic: &[Sent]) -> (usize, Value) {
    let (lines, _) = json(pcap(&frames(traffic, false)), false, false);
    let line = lines.into_iter().find(|line| line["arrived"].is_array()).expect("such a NAK");
    (line["frame"].as_u64().expect("a number") as usize, line)
}

#[test]
fn the_mark_and_what_has_arrived_are_shown() {
    let traffic = traffic(1);
    let (frame, line) = first_telling(&traffic);
    assert_eq!(line["loss_recovery"], "selective-repeat");
    assert_eq!(line["aeth"]["syndrome_name"], "NAK, PSN sequence error");
    let first = line["arrived"][0]["first_psn"].as_u64().expect("a number");
    assert!(first > line["psn"].as_u64().expect("a number"), "{line}");
    let capture = Capture::new(std::io::Cursor::new(pcap(&frames(&traffic, false))));
    let mut text = Vec::new();
    decode(capture.expect("header"), Options::default(), &mut text).expect("memory takes it");
    let text = anstream::adapter::strip_bytes(&text).into_vec();
    let text = String::from_utf8(text).expect("UTF-8");
    let shown = text.lines().nth(frame - 1).expect("its line");
    assert!(shown.contains(&format!(" arrived {first}")), "{shown}");
    assert!(shown.contains(" selective-repeat"), "{shown}");
}

/// A capture with a NAK that tells ranges, changed by `change`.
fn altered(told: &[(i32, u32)], mark: bool) -> Vec<String> {
    let traffic = traffic(1);
    let (frame, _) = first_telling(&traffic);
    let altered = Altered(frames(&traffic, false)).change(frame, |headers, payload| {
        assert_eq!(headers.bth.opcode, Opcode::RC_ACKNOWLEDGE);
        if !mark {
            headers.bth.reserved7 = 0;
        }
        payload.clear();
        for &(ahead, count) in told {
            let mut bytes = [0; PsnRange::LEN];
            let first = headers.bth.psn.advance(ahead as u32);
            PsnRange { first, count }.emit(&mut bytes);
            payload.extend(bytes);
        }
        headers.ext.aeth = Some(Aeth { syndrome: Syndrome(0x60), msn: 0 });
    });
    let found = altered.findings_complete();
    let of_frame = format!("@{frame}");
    let violations = found.into_iter().filter(|it| it.starts_with('!') && it.ends_with(&of_frame));
    violations.map(|it| it[1..].replace(&of_frame, "")).collect()
}

#[test]
fn ranges_that_cannot_be_are_violations() {
    assert_eq!(altered(&[(1, 1)], true), [""; 0]);
    assert_eq!(altered(&[(1, 1)], false), ["wrong_length"], "nobody else may send a payload");
    assert_eq!(altered(&[(0, 1)], true), ["malformed"], "the missing one has not arrived");
    assert_eq!(altered(&[(1, 0)], true), ["malformed"]);
    assert_eq!(altered(&[(2, 1), (1, 1)], true), ["malformed"]);
    assert_eq!(altered(&[(1, 60_000)], true), ["ack_unsent"]);
}
