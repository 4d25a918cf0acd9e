//! `ferroce stat` against an engine of this process.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use ferroce::engine::{Engine, Options};
use ferroce_stack::gid::Gid;
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};

struct Fabric(PathBuf);

impl Fabric {
    fn new(name: &str) -> Fabric {
        let name = format!("ferroce-stat-{name}-{}", std::process::id());
        Fabric(std::env::temp_dir().join(name))
    }

    fn engine(&self) -> Engine {
        let gid = Gid::from(Ipv4Addr::new(10, 9, 0, 1));
        let mac = Mac([2, 0, 10, 9, 0, 1]);
        let gids = [GidEntry { gid, gid_type: GidType::RoceV2, mac, vlan: None }];
        Engine::open(&Options::plain(&self.0, &gids)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command.arg("stat").arg("--fabric").arg(&self.0).args(arguments);
        command
    }

    fn stat(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn process_is_shown_while_it_lives() {
    let fabric = Fabric::new("one");
    let engine = fabric.engine();
    let output = fabric.stat(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all[0]["pid"], std::process::id());
    assert_eq!(all[0]["device"], "ferroce0");
    assert_eq!(all[0]["gids"][0], "::ffff:10.9.0.1");
    assert_eq!(all[0]["counters"]["sent_pkts"], 0);
    let text = String::from_utf8(fabric.stat(&[]).stdout).unwrap();
    assert!(text.contains("ferroce0  ::ffff:10.9.0.1\n no QPs\n"), "{text}");

    drop(engine);
    let output = fabric.stat(&[]);
    assert!(output.status.success() && output.stdout.starts_with(b"no process in fabric "));
    assert_eq!(fabric.stat(&["--json"]).stdout, b"[]\n");
}

#[test]
fn watch_without_a_terminal_goes_on_until_nobody_reads() {
    let fabric = Fabric::new("watch");
    let _engine = fabric.engine();
    let mut command = fabric.command(&["--watch", "0.1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_heading = |line: &String| line.contains("ferroce0");
    assert_eq!(lines.map(Result::unwrap).filter(is_heading).take(3).count(), 3);
    assert!(child.wait().unwrap().success());
}

#[test]
fn fabric_that_is_none_is_an_error() {
    let fabric = Fabric::new("none");
    std::fs::write(&fabric.0, "a file").unwrap();
    let output = fabric.stat(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a directory"));
    std::fs::remove_file(&fabric.0).unwrap();
}
