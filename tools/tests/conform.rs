//! `ferroce conform`, as a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of a test, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("conform-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn conform(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.current_dir(folder).arg("conform").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One scenario that passes and one that fails.
const TWO: &str = "ferroce scenarios 1
scenario right
\"A gap is answered with a NAK.\"
tags gap
qp a rc
peer sends send-only, psn 4, payload 4 of 7
target sends nak-sequence, psn 0

scenario wrong
\"It is not.\"
qp a rc
peer sends send-only, psn 4, payload 4 of 7
target stays silent for 1 ms
";

#[test]
fn failures_are_told_with_evidence_and_a_status() {
    let folder = folder("failures");
    fs::write(folder.join("two.scenario"), TWO).unwrap();
    let reports = ["--junit", "report.xml", "--output", "evidence"];
    let output = conform(&folder, &[&["--memory", "two.scenario"], &reports[..]].concat());
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("two/wrong: failed\n"), "{said}");
    assert!(said.contains("the target is not silent") && !said.contains("two/right"), "{said}");
    for extension in ["txt", "pcapng", "svg"] {
        let path = folder.join("evidence/two/wrong").with_added_extension(extension);
        assert!(fs::metadata(&path).unwrap().len() > 0, "{}", path.display());
    }
    assert!(fs::read_to_string(folder.join("report.xml")).unwrap().contains("failures=\"1\""));
    let output = conform(&folder, &["--memory", "two.scenario", "right"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn known_deviations_do_not_fail_the_run() {
    let folder = folder("known");
    fs::write(folder.join("two.scenario"), TWO).unwrap();
    fs::write(folder.join("known"), "# of a test\ntwo/*: as measured\n").unwrap();
    let output = conform(&folder, &["--memory", "two.scenario", "--known", "known", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<&str> = lines.iter().filter_map(|line| line["status"].as_str()).collect();
    assert_eq!(statuses, ["passed", "deviates"]);
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!(summary["passed_although_known"], serde_json::json!(["two/right"]));
}

#[test]
fn mistakes_have_a_status_of_their_own() {
    let folder = folder("mistakes");
    fs::write(folder.join("bad.scenario"), TWO.replace("tags gap\nqp a rc", "qp a rx")).unwrap();
    let output = conform(&folder, &["--check", "bad.scenario"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bad.scenario:4:6: "));
    for arguments in [&["--memory", "no-such-scenario"][..], &["--memory", "no.scenario"], &[]] {
        assert_eq!(conform(&folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_suite_is_built_in() {
    let output = conform(&folder("list"), &["--list", "responder"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).lines().all(|line| line.starts_with("responder/")));
}
