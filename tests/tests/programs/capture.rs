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
    let resent = verdict.out.lines().filter_map(|line| line.trim().split_once(" retransmissions"));
    let resent: u32 = resent.filter_map(|(count, _)| count.parse::<u32>().ok()).sum();
    assert!(resent > 0, "{verdict}");
}
