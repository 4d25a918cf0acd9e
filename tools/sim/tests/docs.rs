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
    let mut wrong = Vec::new();
    for (from, to, parts) in [
        ("hosts = 3", "hosts = ", &["x.toml:3: not TOML"][..]),
        (
            "hosts = 3",
            "hosts = 3\nhosts = 4",
            &["x.toml:4: not TOML: 'hosts' is there already: expected each"],
        ),
        ("[[w", "[topology]\n[[w", &["x.toml:5: not TOML: 'topology' is there already"]),
        ("hosts = 3", "host = 3", &["x.toml:3: topology.host: no such key: did you mean hosts?"]),
        ("hosts = 3", "k = 3", &["x.toml:3: topology.k: kind \"star\" has no such key"]),
        ("hosts = 3", "hosts = 1", &["x.toml:3: topology.hosts: 1: expected 2 to"]),
        (
            "hosts = 3",
            "hosts = \"3\"",
            &["x.toml:3: topology.hosts: \"3\": expected a whole number"],
        ),
        ("hosts = 3", "hosts = 2.5", &["topology.hosts: 2.5: expected a whole number"]),
        ("hosts = 3", "hosts = -1", &["hosts: -1: expected a whole number, not negative"]),
        ("hosts = 3", "hosts = [3]", &["topology.hosts: an array: expected a whole number"]),
        ("hosts = 3", "", &["x.toml:1: topology.hosts: missing: expected a number, 2 to"]),
        (
            "hosts = 3",
            "hosts = 3\nrate = \"40\"",
            &["x.toml:4: topology.rate: \"40\": its unit is missing; expected a rate"],
        ),
        (
            "hosts = 3",
            "hosts = 3\nrate = 40",
            &["topology.rate: 40: expected a rate with its unit"],
        ),
        (
            "hosts = 3",
            "hosts = 3\nrate = \"25 GBps\"",
            &["\"25 GBps\": no unit 'GBps': did you mean Gbps? expected a rate"],
        ),
        (
            "hosts = 3",
            "hosts = 3\nrate = \"10 Tbit/s\"",
            &["topology.rate: expected 1 Mbit/s to 8"],
        ),
        (
            "hosts = 3",
            "hosts = 3\ndelay = \"-1 us\"",
            &["x.toml:4: topology.delay: \"-1 us\": it cannot be negative; expected a time"],
        ),
        ("star", "ring", &["x.toml:2: topology.kind: no kind 'ring'", "one of \"star\", \"dumb"]),
        ("star", "Star", &["topology.kind: no kind 'Star': did you mean star?"]),
        ("1 MiB", "1 MIB", &["x.toml:7: workload[0].size:", "did you mean MiB? expected a size"]),
        ("size", "to = 3\nsize", &["x.toml:7: workload[0].to: no host h3: expected h0 to h2"]),
        ("size", "senders = 3\nsize", &["x.toml:7: workload[0].senders: expected at most 2"]),
        ("size", "message = 7\nsize", &["x.toml:8: workload[0].size: expected a multiple"]),
        ("size", "start = \"10 ms\"\nsize", &["x.toml:7: workload[0].start: 10 ms: expected less"]),
        ("size", "dscp = 300\nsize", &["x.toml:7: workload[0].dscp: expected 0 to 63"]),
        ("size = \"1 MiB\"", "", &["x.toml:5: workload[0].size: missing"]),
        (
            "incast",
            "incats",
            &["x.toml:6: workload[0].kind: no kind 'incats': did you mean incast?"],
        ),
        (
            "[[workload]]",
            "[workload]",
            &[
                "x.toml:5: workload: is one table: expected an array of tables, [[workload]] in double",
            ],
        ),
        ("[topology]", "[[topology]]", &["topology: is an array: expected one table, [topology]"]),
        ("[[w", "[[host]]\n[[w", &["x.toml:5: host: is an array: expected one table, [host]"]),
        ("[topo", "switch = 3\n[topo", &["x.toml:1: switch: 3: expected a table, [switch]"]),
        ("[[w", "[switch.ecn]\nkmin = \"9 MB\"\n[[w", &["x.toml:6: switch.ecn.kmin: kmin 9000000"]),
        (
            "[[w",
            "[switch.pfc]\nxoff = \"100 MB\"\n[[w",
            &["x.toml:6: switch.pfc.xoff: 100000000 B: expected at most the buffer, 12000000 B"],
        ),
        (
            "[[w",
            "[switch.ecn]\nkmin = \"900 KB\"\n[[w",
            &["kmin 900000 B is above kmax 500000 B (the default): expected at most that"],
        ),
        ("[[w", "[switch.ecn]\nenabled = 1\n[[w", &["ecn.enabled: 1: expected true or false"]),
        (
            "[[w",
            "[switch.ecn]\nclasses = 3\n[[w",
            &["ecn.classes: 3: expected an array: classes = [3]"],
        ),
        ("[[w", "[switch.ecn]\nclasses = [300]\n[[w", &["300: expected classes 0 to 7"]),
        (
            "[[w",
            "[switch.pfc]\nheadroom = \"4 MB\"\nxoff = \"1 MB\"\n[[w",
            &["switch.buffer: switch 0: its ports' headroom is 12000000 bytes", "expected less"],
        ),
        (
            "[[w",
            "[host]\nack_every = -1\n[[w",
            &["ack_every: -1: expected a whole number, not neg"],
        ),
        ("[[w", "[host]\nretry_cnt = 300\n[[w", &["host.retry_cnt: 300: expected 0 to 7"]),
        ("[[w", "[host]\nloss_recovery = 'gbn'\n[[w", &["'gbn': expected \"go-back-n\", \"selec"]),
        ("[[w", "[host]\nack-every = 9\nack_every = 9\n[[w", &["host.ack_every' is there already"]),
        ("[[w", "[[fault]]\nrule = \"dorp any\"\n[[w", &["x.toml:6: fault[0].rule:", "'drop'"]),
        (
            "[topo",
            "capture = [\"s0:h9\"]\n[topo",
            &["x.toml:1: capture[0]: 's0:h9' is no port: s0 has s0:h0, s0:h1, s0:h2; --check"],
        ),
        (
            "[topo",
            "capture = \"h9\"\n[topo",
            &["'h9' is no port: expected a host, \"h0\" to \"h2\", or"],
        ),
        ("[topo", "capture = 3\n[topo", &["x.toml:1: capture: 3: expected a name in quotes, or"]),
        (
            "[[w",
            "[host]\ncongestion = \"dc\"\n[[w",
            &["x.toml:6: host.congestion:", "did you mean dcqcn"],
        ),
        (
            "[[w",
            "[congestion.dcqcn]\nrpg_ai = 5\n[[w",
            &["x.toml:6: congestion.dcqcn.rpg_ai: no parameter", "did you mean", "rpg_ai_rate"],
        ),
        (
            "[[w",
            "[congestion.dcqcn]\nrpg_ai_rate = \"0 Mbit/s\"\n[[w",
            &["rpg_ai_rate is a whole number from 1 to 1000000, in Mbit/s"],
        ),
        ("[[w", "[congestion.dcqcn]\nrpg_ai_rate = \"5 us\"\n[[w", &["to 1000000, in Mbit/s"]),
        (
            "[[w",
            "[congestion]\ncnp_dscp = 64\n[[w",
            &["x.toml:6: congestion.cnp_dscp: cnp_dscp is a whole number from 0 to 63"],
        ),
        (
            "incast\"\n",
            "flows\"\npairs = [[0, 0]]\n",
            &["x.toml:7: workload[0].pairs[0]: h0 to itself: expected two different hosts"],
        ),
        ("incast\"\n", "flows\"\npairs = [[0, 3]]\n", &["pairs[0]: no host h3: expected h0 to h2"]),
        (
            "incast\"\n",
            "flows\"\npairs = [[0]]\n",
            &["pairs[0]: 1: expected two hosts, such as [1, 0]"],
        ),
        (
            "incast\"\n",
            "flows\"\npairs = [[0, \"x\"]]\n",
            &["\"x\": expected hosts: \"all\", one such as"],
        ),
        ("incast\"\n", "flows\"\npairs = [0, 1]\n", &["pairs[0]: 0: expected two hosts, such as"]),
        (
            "size",
            "name = \"all\"\nsize",
            &["x.toml:7: workload[0].name: 'all' is what all together"],
        ),
        (
            "size",
            "name = \"7\"\nsize",
            &["workload[0].name: '7': expected a name that is no number"],
        ),
        (
            "size",
            "name = \"a.b\"\nsize",
            &["workload[0].name: 'a.b': expected a name without dots"],
        ),
        (
            "[[workload]]\n",
            "[[workload]]\nkind = 'incast'\nsize = 1\nname = 'in'\n[[workload]]\nname = 'in'\n",
            &["x.toml:10: workload[1].name: 'in' is that of workload[0]: expected another"],
        ),
    ] {
        let error = with(from, to);
        if !parts.iter().all(|part| error.contains(part)) {
            wrong.push(format!("{to}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
        ("[switch.at.leaf1]\nkmin = 1", "x.toml:10: switch.at.leaf1.kmin: no such key"),
        ("[switch.at.leaf1.at.leaf0]", "switch.at.leaf1.at: no such key"),
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
            "x.toml, with topology.hosts=many: topology.hosts: \"many\": expected a whole number",
        ),
        (
            "switch.pcf.enabled",
            "true",
            "x.toml, with switch.pcf.enabled=true: switch.pcf.enabled: no such key: did you mean pfc?",
        ),
        (
            "workload.incast.to",
            "9",
            "x.toml, with workload.incast.to=9: workload[0].to: no host h9",
        ),
        ("workload.3.to", "0", "workload.3.to: no '3' in workload: expected 0, or a name: incast"),
        ("host.congestion", "swift,beta=5", "parameters stand in [congestion.NAME]"),
        ("seed.x", "0", "seed.x: 'seed' is no table"),
        ("workload", "[[1]]", "workload[0]: expected a table, [[workload]] in double"),
        ("", "0", "expected a key such as switch.pfc.enabled"),
    ] {
        assert!(error(key, value).contains(right), "{key}: {}", error(key, value));
    }
    assert_eq!(error("workload.0.senders", "1"), "none");
    assert_eq!(error("congestion.dcqcn.rpg_ai_rate", "40 Mbit/s"), "none");
    for (key, value) in [
        ("congestion.timely.t_low", "50 us"),
        ("congestion.timely.t_high", "1 ms"),
        ("congestion.timely.min_rtt", "20 us"),
        ("congestion.timely.delta", "10 Mbit/s"),
    ] {
        assert_eq!(error(key, value), "none");
    }
    assert_eq!(error("congestion.dcqcn.rpg-time-reset", "1 ms"), "none");
    assert_eq!(error("host.loss-recovery", "selective_repeat"), "none");
    assert_eq!(error("capture", "h0"), "none");
    assert_eq!(error("congestion.dcqcn.rpg_ai_rate", "7"), "none");
    assert_eq!(error("switch.ecn.kmin", "1 KB"), "none");
    for name in Algorithm::NAMES {
        assert_eq!(error("host.congestion", name), "none", "as soon as the transport has it");
    }
}

#[test]
fn keys_are_the_same_with_hyphens_and_names_are_numbers_of_hosts() {
    let text = "duration = '20 ms'\ncapture = 'leaf0:h1'\n[topology]\nkind = 'leaf_spine'\nleaves = 2\n\
                spines = 1\nhosts_per_leaf = 2\nuplink_rate = '1 Gbit/s'\nrate = '1 Gbit/s'\n\
                delay = '1 \u{b5}s'\n[switch]\nbuffer = '900 kB'\n[host]\nack_every = 9\n\
                [congestion.dcqcn]\nrpg_ai_rate = 7\n[[workload]]\nkind = 'poisson'\n\
                share_qp = true\nload = 0.1\nsizes = '1 kB'\nfrom = ['h0', 1]\n\
                [[workload]]\nkind = 'flows'\nsize = 1000\npairs = [['h0', 3]]\n";
    let hyphens = ["hosts_per_leaf", "uplink_rate", "ack_every", "rpg_ai_rate", "share_qp"]
        .iter()
        .fold(text.to_owned(), |text, key| text.replace(key, &key.replace('_', "-")));
    let plan = |text: &str| {
        let document = Document::parse(Path::new("x.toml"), text).unwrap();
        let experiment = document.experiment().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(experiment.notes, Vec::<String>::new());
        format!("{:?}", experiment.plan)
    };
    assert!(hyphens.contains("ack-every") && plan(text) == plan(&hyphens));
}

#[test]
fn workloads_without_names_go_by_kind_and_number_in_reports_and_keys_alike() {
    let twin = "[[workload]]\nkind = 'incast'\nsize = 1\n";
    let named = "[[workload]]\nkind = 'incast'\nsize = 1\nname = 'incast-2'\n";
    let text = format!("{GOOD}{twin}{named}");
    let mut document = Document::parse(Path::new("x.toml"), &text).unwrap();
    for key in ["workload.incast-3.size", "workload.incast_2.message"] {
        document.set(Setting { key: key.to_owned(), value: "77".to_owned() });
    }
    document.set(Setting { key: "workload.2.size".to_owned(), value: "77".to_owned() });
    let plan = document.experiment().unwrap().plan;
    let size = |name: &str| plan.flows.iter().find(|flow| flow.group == name).map(|f| f.message);
    let sizes = ["incast", "incast-2", "incast-3"].map(size);
    assert_eq!(sizes, [Some(1 << 20), Some(77), Some(77)]);
}

#[test]
fn flows_that_start_after_the_end_are_refused_or_noted() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |lines: &str| {
        let text = format!("start_ns,from,to,bytes\n{lines}");
        fs::write(folder.path().join("t.csv"), text).unwrap();
        let text = GOOD.replace("incast\"\nsize = \"1 MiB\"", "trace\"\nfile = \"t.csv\"");
        Document::parse(&folder.path().join("t.toml"), &text).unwrap().experiment()
    };
    let notes = plan("0,0,1,9\n99999999999,1,2,9\n").unwrap().notes;
    assert_eq!(notes, ["1 of 2 flows of 'trace' would start after the end: the duration is 10 ms"]);
    let error = plan("99999999999,1,2,9\n").unwrap_err().to_string();
    assert!(error.contains("workload[0].file: no flow starts before the end"), "{error}");
}
