//! The demo, as its users run it: what it finds, and what its capture holds.

use std::path::PathBuf;
use std::process::{Command, Output};

use ferroce_stack::verbs::Mtu;
use ferroce_tools::demo::{self, Report, Settings};

const SETTINGS: Settings = Settings { mtu: Mtu::Mtu1024, ipv6: false, loss: 0.0, seed: 1 };

fn failures(report: &Report) -> Vec<String> {
    let failed = report.rows.iter().filter(|row| row.failure.is_some());
    failed.map(|row| format!("{} {}: {}", row.transport, row.operation, row.verdict())).collect()
}

fn ferroce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).args(arguments).output().unwrap()
}

/// A file that is removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        let name = format!("ferroce-demo-{}-{name}", std::process::id());
        TempFile(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_operation_is_right_at_every_mtu_over_ipv4_and_ipv6() {
    for mtu in Mtu::ALL {
        for ipv6 in [false, true] {
            let settings = Settings { mtu, ipv6, ..SETTINGS };
            let report = demo::perform(settings, None).unwrap();
            assert_eq!(failures(&report), Vec::<String>::new(), "{settings}");
            assert_eq!((report.rows.len(), report.frames_lost), (35, 0));
            assert!(report.rows.iter().all(|row| row.retransmissions == 0 && row.lost == 0));
        }
    }
}

#[test]
fn every_operation_is_right_on_a_lossy_link() {
    for seed in 1..=5 {
        let settings = Settings { loss: 0.05, seed, ..SETTINGS };
        let report = demo::perform(settings, None).unwrap();
        assert_eq!(failures(&report), Vec::<String>::new(), "{settings}");
        assert!(report.frames_lost > 0);
        let reliable = |row: &&demo::Row| matches!(row.transport, "RC" | "XRC");
        assert!(report.rows.iter().filter(reliable).all(|row| row.lost == 0));
    }
}

#[test]
fn its_capture_is_without_violation_and_the_same_each_time() {
    for (name, flags) in [
        ("plain.pcapng", &["--mtu", "512"][..]),
        ("lossy.pcap", &["--loss", "0.05", "--ipv6", "--seed", "9"][..]),
    ] {
        let [first, second] = ["a-", "b-"].map(|run| {
            let file = TempFile::new(&format!("{run}{name}"));
            let output = ferroce(&[&["demo", "--pcap", file.path()], flags].concat());
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            file
        });
        let bytes = |file: &TempFile| std::fs::read(&file.0).unwrap();
        assert!(bytes(&first) == bytes(&second), "{name} differs from run to run");
        let output = ferroce(&["decode", "--verify", "--complete", first.path()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn its_ladder_shows_what_was_lost() {
    for (name, flags) in [("a.svg", &["--loss", "0.002"][..]), ("b.html", &["--ipv6"][..])] {
        let file = TempFile::new(name);
        let output = ferroce(&[&["demo", "--ladder", file.path()], flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = std::fs::read_to_string(&file.0).unwrap();
        assert!(text.contains("node 0") && text.contains("over RC"), "{name}");
        let loses = name == "a.svg";
        assert_eq!(text.contains(">lost<"), loses, "{name}");
        assert!(!loses || text.contains("0.2 % loss, seed 1"), "{name}");
    }
}

#[test]
fn json_says_the_same_as_the_table() {
    let output = ferroce(&["demo", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, rows) = lines.split_last().unwrap();
    assert!(rows.iter().all(|row| row["verdict"] == "ok"));
    let bytes: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(summary["summary"]["bytes"], bytes);

    let output = ferroce(&["demo"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.is_ascii() && !text.contains('\x1b'), "not plain: {text}");
    assert_eq!(text.lines().count(), rows.len() + 3);
}

#[test]
fn impossible_arguments_are_refused_and_explained() {
    let table = [
        (["demo", "--mtu", "1500"], "256, 512, 1024, 2048 or 4096"),
        (["demo", "--loss", "0.6"], "0 to 0.5"),
        (["demo", "--loss", "-1"], "0 to 0.5"),
        (["demo", "--loss", "NaN"], "0 to 0.5"),
        (["demo", "--pcap", "/nonexistent/x.pcap"], "cannot create /nonexistent/x.pcap"),
        (["demo", "--ladder", "/nonexistent/x.svg"], "cannot write /nonexistent/x.svg"),
        (["demo", "--ladder", "x.png"], "drawn as .svg or .html"),
    ];
    for (arguments, explanation) in table {
        let output = ferroce(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(explanation), "{arguments:?}: {text}");
    }
}

/// Wireshark's dissectors on the demo's captures, of every MTU and framing, lossy ones among them.
#[test]
fn tshark_finds_nothing_malformed_in_its_captures() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "tshark is missing, and CI must have it");
        println!("skipped: tshark is not installed");
        return;
    }
    let mut variants: Vec<Vec<String>> = Vec::new();
    for mtu in Mtu::ALL {
        variants.push(vec![format!("--mtu={}", mtu.bytes())]);
        variants.push(vec![format!("--mtu={}", mtu.bytes()), "--ipv6".into()]);
    }
    variants.push(vec!["--loss=0.05".into()]);
    variants.push(vec!["--loss=0.05".into(), "--ipv6".into()]);
    for (index, variant) in variants.iter().enumerate() {
        let extension = if index % 2 == 0 { "pcap" } else { "pcapng" };
        let capture = TempFile::new(&format!("tshark-{index}.{extension}"));
        let arguments: Vec<&str> = ["demo", "--pcap", capture.path()]
            .into_iter()
            .chain(variant.iter().map(String::as_str))
            .collect();
        assert!(ferroce(&arguments).status.success(), "{variant:?}");
        assert_eq!(tshark(capture.path(), "_ws.malformed"), "", "{variant:?}");
        // The filter works: something in the capture is RoCE to it.
        assert_ne!(tshark(capture.path(), "infiniband.bth.opcode == 17"), "", "{variant:?}");
    }
}

/// What tshark prints of the packets that pass a display filter.
fn tshark(capture: &str, filter: &str) -> String {
    let output = Command::new("tshark").args(["-n", "-r", capture, "-Y", filter]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
