//! Absurd files: each is refused with its key, or simulated to its end, which is soon.

use std::path::Path;

use ferroce_sim::config::{Document, Setting};
use ferroce_sim::report::Run;

const FILE: &str = r#"
duration = "20 us"
sample = "5 us"

[topology]
kind = "star"
hosts = 3
rate = "10 Gbit/s"

[switch]
buffer = "1 MB"

[switch.pfc]
headroom = "50 KB"

[host]
congestion = "dcqcn"
loss_recovery = "selective-repeat"

[[workload]]
kind = "incast"
size = "64 KiB"
message = "4 KiB"

[[workload]]
kind = "request-response"
requests = 3
"#;

/// Every key that has a quantity, and some that have not.
const KEYS: &[&str] = &[
    "seed",
    "duration",
    "warmup",
    "sample",
    "capture",
    "topology.hosts",
    "topology.rate",
    "topology.delay",
    "switch.buffer",
    "switch.alpha",
    "switch.ecn.kmin",
    "switch.ecn.kmax",
    "switch.ecn.pmax",
    "switch.ecn.classes",
    "switch.pfc.xoff",
    "switch.pfc.xon",
    "switch.pfc.headroom",
    "switch.at.s0.buffer",
    "switch.at.s0.alpha",
    "switch.at.s0.ecn.kmax",
    "switch.at.s.pfc.xoff",
    "host.mtu",
    "host.timeout",
    "host.retry_cnt",
    "host.window",
    "host.ack_every",
    "host.burst",
    "host.congestion",
    "host.loss_recovery",
    "congestion.line_rate",
    "congestion.min_time_between_cnps",
    "congestion.burst",
    "congestion.dcqcn.rpg_time_reset",
    "congestion.dcqcn.rpg_min_rate",
    "congestion.swift.min_rate",
    "workload.0.start",
    "workload.0.spread",
    "workload.0.size",
    "workload.0.message",
    "workload.0.depth",
    "workload.0.gap",
    "workload.0.qps",
    "workload.0.to",
    "workload.0.from",
    "workload.0.senders",
    "workload.0.dscp",
    "workload.1.request",
    "workload.1.response",
    "workload.1.requests",
    "workload.1.clients",
    "sweep.seeds",
];

const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308",
    "nan",
    "inf",
    "true",
    "[]",
    "{}",
    "[0, 0]",
    "\"\"",
    "\"0 s\"",
    "\"1 ns\"",
    "\"18446744073709551615 ns\"",
    "\"18446744073 s\"",
    "\"18446744073709551615 B\"",
    "\"1 B\"",
    "\"1000000 GB\"",
    "\"18446744073709551615 bit/s\"",
    "\"1 bit/s\"",
    "\"10 Tbit/s\"",
    "\"1e-300 %\"",
    "\"all\"",
    "\"0..4294967295\"",
    "\"endless\"",
];

fn document() -> Document {
    Document::parse(Path::new("absurd.toml"), FILE).unwrap()
}

/// Simulates a document to the end.
fn run(document: &Document) -> Result<(), String> {
    let experiment = document.experiment().map_err(|error| error.to_string())?;
    let outcome = ferroce_sim::run(&experiment.plan, &mut |_| {});
    let outcome = outcome.map_err(|error| error.to_string())?;
    let run = Run { name: "absurd", set: &[], experiment: &experiment, outcome: &outcome };
    run.summary();
    Ok(())
}

#[test]
fn every_absurd_value_is_refused_or_simulated() {
    let mut refused = 0;
    for key in KEYS {
        for value in VALUES {
            let mut document = document();
            document.set(Setting { key: key.to_string(), value: value.to_string() });
            if let Err(error) = run(&document) {
                refused += 1;
                assert!(error.contains(':'), "{key}={value}: {error}");
            }
        }
    }
    assert!(refused > KEYS.len() * VALUES.len() / 2, "{refused}");
}

/// What is wrong with one key set to a value.
fn error(key: &str, value: &str) -> String {
    let mut document = document();
    document.set(Setting { key: key.to_owned(), value: value.to_owned() });
    run(&document).unwrap_err()
}

#[test]
fn hosts_named_millions_of_times_take_no_memory() {
    let value = "0..2,".repeat(600_000) + "0";
    let error = error("workload.0.from", &value);
    assert!(error.ends_with("h0 is there twice"), "{}", &error[error.len() - 100..]);
}

#[test]
fn parts_of_a_buffer_that_exceed_any_are_refused_with_their_key() {
    for part in ["ecn.kmin", "ecn.kmax", "pfc.xoff", "pfc.headroom"] {
        let key = format!("switch.{part}");
        let error = error(&key, "18446744073709551615 B");
        assert!(error.contains(&key) && error.contains("at most 1 TB"), "{error}");
    }
}

#[test]
fn more_links_than_have_room_are_refused() {
    let text = "[topology]\nkind = 'leaf-spine'\nleaves = 2048\nspines = 2048\nhosts-per-leaf = 2\n\
                [[workload]]\nkind = 'permutation'\nsize = '1 KB'";
    let error = run(&Document::parse(Path::new("absurd.toml"), text).unwrap()).unwrap_err();
    assert!(error.contains("topology.spines") && error.contains("at most 131072"), "{error}");
}

#[test]
fn a_workload_without_flows_is_refused() {
    for (key, value) in [("qps", "0"), ("senders", "0"), ("from", "[]")] {
        let error = error(&format!("workload.0.{key}"), value);
        assert!(error.contains("workload[0]") && error.contains("no flow"), "{error}");
    }
}

#[test]
fn a_flow_of_more_bytes_than_can_be_counted_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "start_ns,from,to,bytes,messages\n0,0,1,2147483648,18446744073709551615\n";
    std::fs::write(folder.path().join("t.csv"), trace).unwrap();
    let text = "[topology]\nkind = 'star'\nhosts = 2\n[[workload]]\nkind = 'trace'\nfile = 't.csv'";
    let document = Document::parse(&folder.path().join("t.toml"), text).unwrap();
    let error = run(&document).unwrap_err();
    assert!(error.contains("messages") && error.contains("1 to 536870912"), "{error}");
}
