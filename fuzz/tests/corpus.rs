//! Every input of the corpus, on plain stable: seeds, what fuzzing found worth keeping, and
//! regressions.

use std::fs;
use std::path::Path;

/// Runs `target` on every file of its folder.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        // Shown if the target fails.
        println!("{}", file.display());
        target(&fs::read(&file).unwrap());
    }
}

#[test]
fn connection_management() {
    replay("cm", ferroce_fuzz::cm);
}

#[test]
fn frames() {
    replay("frame", ferroce_fuzz::frame);
}

#[test]
fn responder() {
    replay("responder", ferroce_fuzz::responder);
}

#[test]
fn pair() {
    replay("pair", ferroce_fuzz::pair);
}

#[test]
fn pcap() {
    replay("pcap", ferroce_fuzz::pcap);
}
