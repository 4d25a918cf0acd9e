//! What documentation and examples say is what the simulator takes.

use std::fs;
use std::path::{Path, PathBuf};

use ferroce_sim::SimError;
use ferroce_sim::config::{Document, Setting};
use ferroce_sim::sweep::Sweep;
use ferroce_stack::congestion::{Algorithm, dcqcn};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Every combination of a sweep is right, or the file if it has none.
fn check(document: &Document) {
    document.experiment().unwrap_or_else(|error| panic!("{error}"));
    if let Some(spec) = document.sweep().unwrap() {
        let sweep = Sweep { axes: spec.axes, seeds: vec![1] };
        sweep.check::<SimError>(document).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn every_example_is_right() {
    let mut count = 0;
    for entry in fs::read_dir(docs().join("sim")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            check(&Document::read(&path).unwrap());
            count += 1;
        }
    }
    assert!(count >= 7, "{count} examples");
}

#[test]
fn every_toml_block_of_the_documentation_is_right() {
    let path = docs().join("sim.md");
    let text = fs::read_to_string(&path).unwrap();
    let blocks: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        check(&Document::parse(&path, block).unwrap());
    }
}

#[test]
fn the_large_example_has_the_hosts_and_qps_that_it_says() {
    let document = Document::read(&docs().join("sim/large.toml")).unwrap();
    let plan = document.experiment().unwrap().plan;
    assert_eq!(plan.topology.hosts, 200);
    // A flow has a QP at either end.
    assert_eq!(2 * plan.flows.len(), 10_000);
}

/// The error of a file.
fn error(text: &str, set: &[(&str, &str)]) -> String {
    let mut document = match Document::parse(Path::new("x.toml"), text) {
        Ok(document) => document,
        Err(error) => return error.to_string(),
    };
    for (key, value) in set {
        document.set(Setting { key: (*key).to_owned(), value: (*value).to_owned() });
    }
    match document.experiment() {
        Ok(_) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

const GOOD: &str = "\
[topology]
kind = \"star\"
hosts = 3

[[workload]]
kind = \"incast\"
size = \"1 MiB\"
";

#[test]
fn errors_name_file_line_key_and_what_would_be_right() {
    assert_eq!(error(GOOD, &[]), "none");
    let with = |from: &str, to: &str| error(&GOOD.replace(from, to), &[]);
    for (from, to, parts) in [
        ("hosts = 3", "hosts = ", &["x.toml:3: not TOML"][..]),
        ("hosts = 3", "host = 3", &["x.toml:3: topology.host: unknown field", "`hosts`"]),
        ("hosts = 3", "k = 3", &["x.toml:3: topology.k: kind \"star\" has no such key"]),
        ("hosts = 3", "hosts = 1", &["x.toml:3: topology.hosts: 1: expected 2 to"]),
        ("hosts = 3", "hosts = 3\nrate = \"40\"", &["x.toml:4: topology.rate:", "expected a rate"]),
        ("hosts = 3", "", &["x.toml:1: topology.hosts: missing"]),
        ("star", "ring", &["x.toml:2: topology.kind: expected one of \"star\", \"dumbbell\""]),
        ("1 MiB", "1 MIB", &["x.toml:7: workload[0].size:", "expected a size"]),
        ("size", "to = 3\nsize", &["x.toml:7: workload[0].to: no host h3: expected h0 to h2"]),
        ("size", "senders = 3\nsize", &["x.toml:7: workload[0].senders: expected at most 2"]),
        ("size", "message = 7\nsize", &["x.toml:8: workload[0].size: expected a multiple"]),
        ("size = \"1 MiB\"", "", &["x.toml:5: workload[0].size: missing"]),
        ("incast", "outcast", &["x.toml:6: workload[0].kind: expected one of \"flows\""]),
        ("[[w", "[switch.ecn]\nkmin = \"9 MB\"\n[[w", &["x.toml:6: switch.ecn.kmin: kmin 9000000"]),
        (
            "[[w",
            "[switch.pfc]\nxoff = \"100 MB\"\n[[w",
            &["x.toml:6: switch.pfc.xoff: 100000000 B: expected at most the buffer, 12000000 B"],
        ),
        ("[[w", "[[fault]]\nrule = \"dorp any\"\n[[w", &["x.toml:6: fault[0].rule:", "'drop'"]),
        ("[topo", "capture = [\"s0:h9\"]\n[topo", &["x.toml:1: capture[0]: 's0:h9' is no port"]),
        ("[[w", "[host]\ncongestion = \"dc\"\n[[w", &["x.toml:6: host.congestion:", "\"dcqcn\""]),
        (
            "[[w",
            "[congestion.dcqcn]\nrpg_ai = 5\n[[w",
            &["x.toml:6: congestion.dcqcn.rpg_ai: no parameter", "rpg_ai_rate"],
        ),
    ] {
        let error = with(from, to);
        assert!(parts.iter().all(|part| error.contains(part)), "{to}: {error}");
    }
}

#[test]
fn a_set_of_parameters_has_a_name_and_a_table_of_its_own() {
    let text = "[host]\ncongestion = 'dcqcn-nvidia'\n[congestion.dcqcn]\nrpg_hai_rate = 9\n\
                [congestion.dcqcn-nvidia]\nrpg_ai_rate = 7\n";
    let document = Document::parse(Path::new("x.toml"), &format!("{text}{GOOD}")).unwrap();
    let control = document.experiment().unwrap().plan.host.device.congestion.unwrap();
    let params = dcqcn::Params { rpg_ai_rate: 7, ..dcqcn::Params::nvidia() };
    assert_eq!(control.algorithm, Algorithm::Dcqcn(params));
    assert_eq!(control.line_rate, 100_000_000_000);
}

const TIERS: &str = "\
[topology]
kind = 'leaf-spine'
leaves = 2
spines = 1
hosts-per-leaf = 2
[[workload]]
kind = 'permutation'
size = '1 MiB'
";

#[test]
fn a_switch_is_as_its_name_says_else_as_its_kind_else_as_all_are() {
    // The order in the file does not matter.
    let own = "[switch.at.leaf0.ecn]\nkmax = '80 KB'\n";
    let kind =
        "[switch.at.leaf.ecn]\nkmin = '30 KB'\nkmax = '90 KB'\n[switch.at.leaf]\nbuffer = '2 MB'\n";
    for at in [format!("{own}{kind}"), format!("{kind}{own}")] {
        let text = format!("{TIERS}[switch.ecn]\nkmin = '20 KB'\nkmax = '70 KB'\n{at}");
        let document = Document::parse(Path::new("x.toml"), &text).unwrap();
        let plan = document.experiment().unwrap().plan;
        let of = |number| {
            let switch = plan.switch(number);
            let ecn = switch.ecn.iter().flatten().next().unwrap();
            (ecn.kmin, ecn.kmax, switch.buffer)
        };
        assert_eq!(
            [0, 1, 2].map(of),
            [
                (30_000, 80_000, 2_000_000),
                (30_000, 90_000, 2_000_000),
                (20_000, 70_000, 12_000_000),
            ]
        );
        // The part of each port follows from the buffer.
        let xoff = |number| plan.switch(number).pfc.iter().flatten().next().unwrap().xoff;
        assert!(xoff(0) == xoff(1) && xoff(1) < xoff(2));
    }
}

#[test]
fn errors_of_some_switches_name_their_key() {
    for (at, right) in [
        ("[switch.at.leaf9.ecn]\nkmin = 1", "x.toml:9: switch.at.leaf9: no such switch: expected"),
        ("[switch.at.h0]\nalpha = 1", "one such as \"leaf0\", or a kind: \"leaf\", \"spine\""),
        ("[switch.at.'']\nalpha = 1", "x.toml:9: switch.at.: no such switch"),
        ("[switch.at.leaf.ecn]\nkmin = '9 MB'", "x.toml:10: switch.at.leaf.ecn.kmin: kmin 9000000"),
        ("[switch.at.leaf1]\nalpha = 0", "x.toml:10: switch.at.leaf1.alpha: 0: expected 1/1024"),
        ("[switch.at.leaf1]\nbuffer = '20 KB'", "x.toml:10: switch.at.leaf1.buffer: 20000 B are"),
        ("[switch.at.leaf1.pfc]\nclasses = [8]", "switch.at.leaf1.pfc.classes: 8: expected"),
        ("[switch.at.leaf1]\nkmin = 1", "x.toml:10: switch.at.leaf1.kmin: unknown field"),
        ("[switch.at.leaf1.at.leaf0]", "switch.at.leaf1.at: unknown field"),
    ] {
        let error = error(&format!("{TIERS}{at}"), &[]);
        assert!(error.contains(right), "{at}: {error}");
    }
    let set = [("switch.at.spine0.pfc.xoff", "1 MB")];
    assert_eq!(error(TIERS, &set), "none");
    let set = [("switch.at.spine1.pfc.xoff", "1 MB")];
    assert!(error(TIERS, &set).contains("with switch.at.spine1.pfc.xoff=1 MB: switch.at.spine1"));
}

#[test]
fn errors_of_settings_name_the_setting() {
    let error = |key, value| error(GOOD, &[("seed", "3"), (key, value)]);
    for (key, value, right) in [
        (
            "topology.hosts",
            "many",
            "x.toml, with topology.hosts=many: topology.hosts: invalid type",
        ),
        (
            "switch.pcf.enabled",
            "true",
            "x.toml, with switch.pcf.enabled=true: switch.pcf.enabled: unknown",
        ),
        (
            "workload.incast.to",
            "9",
            "x.toml, with workload.incast.to=9: workload[0].to: no host h9",
        ),
        ("workload.3.to", "0", "workload.3.to: no '3' in workload: expected a number below 1"),
        ("host.congestion", "swift,beta=5", "parameters stand in [congestion.NAME]"),
        ("seed.x", "0", "seed.x: 'seed' is no table"),
        ("", "0", "expected a key such as switch.pfc.enabled"),
    ] {
        assert!(error(key, value).contains(right), "{key}: {}", error(key, value));
    }
    assert_eq!(error("workload.0.senders", "1"), "none");
    assert_eq!(error("congestion.dcqcn.rpg_ai_rate", "7"), "none");
    assert_eq!(error("switch.ecn.kmin", "1 KB"), "none");
    for name in Algorithm::NAMES {
        assert_eq!(error("host.congestion", name), "none", "as soon as the transport has it");
    }
}
