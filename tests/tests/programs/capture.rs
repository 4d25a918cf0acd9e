//! What `--pcap` records and `--fault` does while programs run.

use std::fs;
use std::path::Path;
use std::process::Command;

use ferroce_tests::programs::{Ended, Fabric, Installed, Pair, free_port, have, limited};

/// `ibv_rc_pingpong` of `iterations` messages, both sides with `flags`.
fn pingpong(fabric: &Fabric, flags: &[&str], iterations: u32) -> Pair {
    let port = free_port();
    let iterations = iterations.to_string();
    let command = || {
        let mut command = fabric.run_with(flags, "ibv_rc_pingpong");
        command.args(["-g", "1", "-c", "-n", &iterations, "-p", &port.to_string()]);
        command
    };
    Pair::of(&mut command(), port, command().arg("127.0.0.1"))
}

fn decode(fabric: &Fabric, capture: &Path, flags: &[&str]) -> Ended {
    let mut command = fabric.as_user(&Installed::get().ferroce);
    limited(command.arg("decode").arg(capture).args(flags))
}

/// Two processes append to one file. Every frame is there once, and an answer after what it
/// answers: else the rules of a complete capture would be broken.
#[test]
fn a_run_is_recorded_frame_by_frame() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    for extension in ["pcap", "pcapng"] {
        let fabric = Fabric::new();
        let capture = fabric.home().join(format!("run.{extension}"));
        let path = capture.to_str().expect("a path of ours");
        pingpong(&fabric, &["--pcap", path], 200).check().unwrap();
        decode(&fabric, &capture, &["--verify", "--complete"]).check().unwrap();
        let json = decode(&fabric, &capture, &["--json"]);
        let sends = json.out.lines().filter(|line| line.contains("\"RC SEND Last\"")).count();
        assert_eq!(sends, 2 * 200, "{extension}");
        if have("tshark", "tshark") {
            assert_not_malformed(&capture);
        }
        fs::remove_file(&capture).unwrap();
    }
}

fn assert_not_malformed(capture: &Path) {
    let mut tshark = Command::new("tshark");
    let said = limited(tshark.arg("-r").arg(capture).args(["-Y", "_ws.malformed"]));
    assert_eq!(said.out, "", "{}", capture.display());
}

/// The program's data is whole, and the capture shows how.
#[test]
fn what_is_lost_is_sent_again() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let capture = fabric.home().join("lossy.pcap");
    let path = capture.to_str().expect("a path of ours");
    let flags = ["--pcap", path, "--fault", "drop 7th rc-send; drop 3rd ack", "--seed", "3"];
    pingpong(&fabric, &flags, 50).check().unwrap();
    let verdict = decode(&fabric, &capture, &["--verify"]);
    verdict.check().unwrap();
    assert!(retransmissions(&verdict) > 0, "{verdict}");
}

/// As the verdict on a capture counts them.
fn retransmissions(verdict: &Ended) -> u32 {
    let lines = verdict.out.lines();
    let resent = lines.filter_map(|line| line.trim().split_once(" retransmissions"));
    resent.filter_map(|(count, _)| count.parse::<u32>().ok()).sum()
}

/// A field is changed and the ICRC right: the peer has to judge the key, and says that it is wrong.
#[test]
fn a_wrong_key_on_the_way_is_a_remote_access_error() {
    if !have("ib_write_bw", "perftest") {
        return;
    }
    let fabric = Fabric::new();
    let port = free_port();
    let command = |flags: &[&str]| {
        let mut command = fabric.run_with(flags, "ib_write_bw");
        command.args(["-F", "-n", "20", "-s", "64", "-p", &port.to_string()]);
        command
    };
    let fault = ["--fault", "corrupt rkey of 1st write-only with icrc fixed"];
    let pair = Pair::of(&mut command(&[]), port, command(&fault).arg("127.0.0.1"));
    let said = format!("{}{}", pair.client.out, pair.client.err);
    assert!(said.contains("status 10:"), "no IBV_WC_REM_ACCESS_ERR: {}", pair.client);
}

/// Marks change nothing for the program; the capture shows them, on what was to be marked alone.
#[test]
fn marked_frames_arrive_and_are_seen_marked() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let capture = fabric.home().join("marked.pcapng");
    let path = capture.to_str().expect("a path of ours");
    pingpong(&fabric, &["--pcap", path, "--fault", "mark ce rc-send-last"], 50).check().unwrap();
    let json = decode(&fabric, &capture, &["--json"]);
    let sends = json.out.lines().filter(|line| line.contains("\"RC SEND "));
    let (marked, others): (Vec<&str>, Vec<&str>) =
        sends.partition(|line| line.contains("\"ecn\":3"));
    let is_last = |line: &&str| line.contains("\"RC SEND Last\"");
    assert!(marked.len() >= 2 * 50 && marked.iter().all(is_last), "{json}");
    assert!(!others.is_empty() && !others.iter().any(is_last), "{json}");
    decode(&fabric, &capture, &["--verify"]).check().unwrap();
}

/// One program's rules are enough to lose frames both ways.
#[test]
fn a_program_loses_what_comes_where_its_rules_say_so() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let capture = fabric.home().join("incoming.pcap");
    let path = capture.to_str().expect("a path of ours");
    let flags = ["--pcap", path, "--fault", "drop 7th rc-send incoming; delay 9th incoming by 1ms"];
    pingpong(&fabric, &flags, 50).check().unwrap();
    let verdict = decode(&fabric, &capture, &["--verify"]);
    verdict.check().unwrap();
    assert!(retransmissions(&verdict) > 0, "{verdict}");
}
