//! Every example runs to its end. `cargo test` has built them; no figure of theirs is looked at.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs an example in a fabric of its own.
fn run(name: &str) -> String {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let Output { status, stdout, stderr } = Command::new(executable(name))
        .env("FERROCE_FABRIC", folder.path().join("fabric"))
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{name}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Examples lie in a folder beside the one of this test.
fn executable(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let built = "is not built: only `cargo test` without a choice of targets builds examples";
    assert!(path.exists(), "{} {built}", path.display());
    path
}

#[test]
fn ping_pong() {
    assert!(run("ping_pong").contains("half a round trip takes"));
}

#[test]
fn replicated_log() {
    let told = run("replicated_log");
    for line in [
        "writer: killed replica 2 after 128 records",
        "writer: 256 records on replicas 1 and 3",
        "writer: replica 1 read back, every byte as written",
        "writer: replica 3 read back, every byte as written",
        "replica 3: woke up, and was told of 256 records",
    ] {
        assert!(told.contains(line), "{told}");
    }
}

#[test]
fn registration_cost() {
    let table = run("registration_cost");
    assert_eq!(table.lines().count(), 2 + 5, "{table}");
}
