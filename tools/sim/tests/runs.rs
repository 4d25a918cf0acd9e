//! Files as they are written: complete, and the same each time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use ferroce_sim::config::{Document, Setting};
use ferroce_sim::report::{Folder, Run, Summary};
use ferroce_sim::sweep::Sweep;
use pcap_file::pcapng::{Block, PcapNgReader};

/// Small, and with something of everything: congestion, loss, groups, a capture.
const FILE: &str = r#"
duration = "600 us"
warmup = "50 us"
capture = ["h1"]

[topology]
kind = "star"
hosts = 4
rate = "10 Gbit/s"

[switch]
buffer = "100 KB"

[switch.pfc]
xoff = "10 KB"
xon = "8 KB"
headroom = "15 KB"

[host]
congestion = "dcqcn"
timeout = 4

[[workload]]
kind = "incast"
size = "64 KiB"
spread = "5 us"

[[workload]]
kind = "poisson"
name = "small"
sizes = "2 KB"
load = 0.05

[[fault]]
rule = "drop 1% of rc-write"
link = "s0:h0"
"#;

fn document() -> Document {
    Document::parse(Path::new("small.toml"), FILE).unwrap()
}

/// The same with these keys set.
fn document_with(set: &[(&str, &str)]) -> Document {
    let mut document = document();
    for (key, value) in set {
        document.set(Setting { key: (*key).to_owned(), value: (*value).to_owned() });
    }
    document
}

/// Runs it, and returns what is in the folder.
fn files(document: &Document) -> (Summary, BTreeMap<String, Vec<u8>>) {
    let experiment = document.experiment().unwrap();
    let outcome = ferroce_sim::run(&experiment.plan, &mut |_| {}).unwrap();
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::create(&place.path().join("out"), false).unwrap();
    let run = Run { name: "small", set: &[], experiment: &experiment, outcome: &outcome };
    let summary = run.write(&folder).unwrap();
    let files = fs::read_dir(folder.path()).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    });
    (summary, files.collect())
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let (_, first) = files(&document());
    let (_, second) = files(&document());
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    for name in ["flows.csv", "ports.csv", "samples.csv", "summary.json", "h1-s0.pcapng"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
    for name in ["queue.svg", "goodput.svg", "rate.svg", "pfc.svg", "fct.svg"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
    for (name, bytes) in &first {
        assert!(second[name] == *bytes, "{name} differs");
    }
    let mut other = document();
    other.set(Setting { key: "seed".to_owned(), value: "2".to_owned() });
    assert!(files(&other).1["flows.csv"] != first["flows.csv"]);
}

#[test]
fn plots_are_xml_and_tables_have_as_many_fields_in_each_line() {
    for (name, bytes) in files(&document()).1 {
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if name.ends_with(".svg") {
            roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        if name.ends_with(".csv") {
            let fields = |line: &str| line.split(',').count();
            let titles = fields(text.lines().next().unwrap());
            assert!(text.lines().count() > 1, "{name} is empty");
            assert!(text.lines().all(|line| fields(line) == titles), "{name}");
        }
    }
}

#[test]
fn a_capture_has_frames_of_both_ways_by_time() {
    let (_, files) = files(&document());
    let mut reader = PcapNgReader::new(&files["h1-s0.pcapng"][..]).unwrap();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            frames.push((packet.timestamp, packet.interface_id));
        }
    }
    assert!(frames.is_sorted_by_key(|frame| frame.0));
    assert!(frames.iter().any(|frame| frame.1 == 0) && frames.iter().any(|frame| frame.1 == 1));
}

/// Frames of a capture, with the interface they are of.
fn captured(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut reader = PcapNgReader::new(file).unwrap();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            frames.push((packet.interface_id, packet.data.into_owned()));
        }
    }
    frames
}

#[test]
fn a_frame_that_a_fault_has_dropped_is_in_the_capture_of_its_sender_alone() {
    let document = document_with(&[
        ("capture", "[\"s0:h0\", \"h0\"]"),
        ("fault.0.rule", "drop 5% of rc-write"),
        ("workload.incast.senders", "1"),
    ]);
    let (summary, files) = files(&document);
    assert!(summary.struck > 0);
    // Each under the name that was asked for.
    let (switch, host) = (captured(&files["s0-h0.pcapng"]), captured(&files["h0-s0.pcapng"]));
    let of = |frames: &[(u32, Vec<u8>)], interface| {
        frames.iter().filter(|frame| frame.0 == interface).map(|frame| frame.1.clone()).collect()
    };
    // Each way what came is what was sent, in its order, without what was struck.
    let mut missing = 0;
    for (sent, came) in [(&switch, &host), (&host, &switch)] {
        let (sent, came): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (of(sent, 0), of(came, 1));
        let mut rest = sent.iter();
        assert!(came.iter().all(|frame| rest.any(|sent| sent == frame)));
        missing += sent.len() - came.len();
    }
    // Some are under way when the clock stops.
    let struck = summary.struck as usize;
    assert!((struck..struck + 6).contains(&missing), "{missing} of {struck}");
}

#[test]
fn the_summary_adds_up() {
    let (summary, _) = files(&document());
    let flows: usize = summary.groups.iter().map(|group| group.flows).sum();
    assert_eq!(summary.all.flows, flows);
    assert_eq!(summary.groups.len(), 2);
    for group in &summary.groups {
        assert!(group.finished > 0, "{group:?}");
        let fastest = group.slowdown.as_ref().unwrap().min.unwrap();
        assert!(fastest >= 0.999, "{}: faster than alone: {fastest}", group.name);
        assert!(group.goodput_gbps < 10.0, "{}: more than the link takes", group.name);
    }
    let names: Vec<String> = summary.metrics().into_iter().map(|metric| metric.name).collect();
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert!(names.contains(&"small.fct_p99.9_us".to_owned()));
}

#[test]
fn a_sweep_gives_the_same_bytes_whatever_the_number_of_threads() {
    let sweep = Sweep {
        axes: vec![
            ("workload.incast.senders".to_owned(), vec!["1".to_owned(), "3".to_owned()]),
            ("host.congestion".to_owned(), vec!["none".to_owned(), "dcqcn".to_owned()]),
        ],
        seeds: vec![1, 2],
    };
    let bytes = |jobs| {
        let simulate = |experiment: &ferroce_sim::config::Experiment| {
            ferroce_sim::run(&experiment.plan, &mut |_| {})
        };
        let table = sweep.run("small", &document(), jobs, simulate, || {}).unwrap();
        let mut bytes = Vec::new();
        table.write_csv(&mut bytes).unwrap();
        table.write_json(&mut bytes).unwrap();
        bytes.extend(table.chart(Some("fct_p50_us"), None).unwrap().svg().into_bytes());
        bytes
    };
    let alone = bytes(1);
    assert_eq!(
        String::from_utf8(alone.clone())
            .unwrap()
            .lines()
            .nth(1)
            .map(|line| { line.split(',').take(3).map(str::to_owned).collect::<Vec<_>>() }),
        Some(vec!["1".to_owned(), "none".to_owned(), "1".to_owned()])
    );
    assert!(alone == bytes(2) && alone == bytes(7));
}

/// Two of the flows lose their last packets, and have no timeout within the simulation.
#[test]
fn flows_that_hang_to_the_end_are_not_left_out_of_percentiles_tables_and_plots() {
    let document = document_with(&[
        ("host.congestion", "none"),
        ("host.timeout", "14"),
        ("workload.incast.spread", "0"),
        ("switch.pfc.enabled", "false"),
        ("fault.0.rule", "drop 1..2nd rc-write-last"),
    ]);
    let (summary, files) = files(&document);
    let incast = &summary.groups[0];
    assert!(incast.unfinished >= 2 && incast.failed == 0, "{incast:?}");
    assert_eq!(incast.finished + incast.unfinished, incast.flows);
    let fct = incast.fct_us.as_ref().unwrap();
    assert_eq!((fct.p99, fct.max, fct.mean), (None, None, None));
    assert_eq!(fct.at_least.as_ref().unwrap().p99, 600.0);
    assert_eq!((incast.latency_us.as_ref().unwrap().p99), None);
    let metrics = summary.metrics();
    let p99 = metrics.iter().find(|metric| metric.name == "incast.fct_p99_us").unwrap();
    assert_eq!((p99.value, p99.at_least), (None, Some(600.0)));
    let json = String::from_utf8_lossy(&files["summary.json"]);
    assert!(json.contains("\"p99\": null") && json.contains("\"at_least\""));

    let experiment = document.experiment().unwrap();
    let outcome = ferroce_sim::run(&experiment.plan, &mut |_| {}).unwrap();
    let run = Run { name: "small", set: &[], experiment: &experiment, outcome: &outcome };
    let warnings = ferroce_sim::report::warnings(&run, &summary);
    assert!(warnings[0].contains("had not finished at 0.6 ms"), "{warnings:?}");
    assert!(warnings[1].contains("ACK timeout (host.timeout = 14, 67.109 ms)"), "{warnings:?}");

    let sweep = Sweep { axes: vec![("host.mtu".into(), vec!["1024".into()])], seeds: vec![1] };
    let simulate = |experiment: &ferroce_sim::config::Experiment| {
        ferroce_sim::run(&experiment.plan, &mut |_| {})
    };
    let table = sweep.run("small", &document, 1, simulate, || {}).unwrap();
    assert_eq!(table.rows[0].known("incast.fct_p99_us"), Some((600.0, true)));
    assert_eq!(table.rows[0].warnings, warnings);
    let chart = table.chart(Some("incast.fct_p99_us"), None).unwrap();
    assert_eq!(chart.series[0].at_least, [true]);
}

/// What a column of a table has, of the lines that `is_wanted`.
fn numbers(table: &[u8], is_wanted: impl Fn(&[&str]) -> bool, column: usize) -> Vec<f64> {
    let text = std::str::from_utf8(table).unwrap();
    let lines = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    lines.filter(|line| is_wanted(line)).map(|line| line[column].parse().unwrap()).collect()
}

#[test]
fn the_longest_queue_of_samples_is_that_of_ports_and_summary() {
    // So seldom that the queue's peaks lie between two samples.
    let document = document_with(&[("sample", "170 us"), ("warmup", "0")]);
    let (summary, files) = files(&document);
    let port = summary.queue.max_port.clone().unwrap();
    let of_port = numbers(&files["ports.csv"], |line| line[0] == port, 10);
    let largest = |what| {
        let lines = numbers(&files["samples.csv"], |line| line[1] == what && line[2] == port, 3);
        lines.into_iter().fold(0.0, f64::max)
    };
    assert_eq!(of_port, [summary.queue.max_bytes as f64]);
    assert_eq!(largest("queue_max_bytes"), summary.queue.max_bytes as f64);
    assert!(largest("queue_bytes") < summary.queue.max_bytes as f64, "no peak was missed");
}

#[test]
fn plots_show_the_ports_and_the_time_that_are_asked_for() {
    let document = document_with(&[
        ("plots.ports", "[\"s0:h3\", \"h2\"]"),
        ("plots.from", "300 us"),
        ("plots.until", "400 us"),
        ("plots.width", "330"),
    ]);
    let (_, files) = files(&document);
    let queue = String::from_utf8_lossy(&files["queue.svg"]);
    for text in ["s0:h3", "h2:s0", ">300<", ">400<", "width=\"330\""] {
        assert!(queue.contains(text), "{text}");
    }
    assert!(!queue.contains("s0:h0"));
    assert!(String::from_utf8_lossy(&files["samples.csv"]).contains("queue_bytes,s0:h3,0"));
    for (key, value) in [
        ("plots.ports", "[\"s0:h9\"]"),
        ("plots.from", "600 us"),
        ("plots.until", "299 us"),
        ("plots.width", "9"),
    ] {
        let mut wrong = document.clone();
        wrong.set(Setting { key: key.to_owned(), value: value.to_owned() });
        assert!(wrong.experiment().unwrap_err().to_string().contains("plots."), "{key}");
    }
}

/// Two workloads of eight flows each: the first is over before the second begins.
#[test]
fn goodput_and_rates_do_not_fall_because_flows_are_over() {
    let text = r#"
duration = "1.9 ms"
sample = "10 us"
topology = { kind = "star", hosts = 9, rate = "10 Gbit/s" }
host = { congestion = "dcqcn" }
[[workload]]
kind = "incast"
size = "64 KiB"
[[workload]]
kind = "flows"
name = "late"
start = "1 ms"
pairs = [[1, 0]]
size = "endless"
"#;
    let document = Document::parse(Path::new("two.toml"), text).unwrap();
    let experiment = document.experiment().unwrap();
    let outcome = ferroce_sim::run(&experiment.plan, &mut |_| {}).unwrap();
    let run = Run { name: "two", set: &[], experiment: &experiment, outcome: &outcome };
    let charts =
        ferroce_sim::plot::figures::of_run(&run, &ferroce_sim::report::flows::figures(&run));
    let last = outcome.flows.iter().filter_map(|flow| flow.finished).max().unwrap() as f64 / 1e3;
    for wanted in ["goodput", "rate"] {
        let (_, chart) = charts.iter().find(|(name, _)| *name == wanted).unwrap();
        let (incast, late) = (&chart.series[0], &chart.series[1]);
        assert!(incast.points.iter().all(|point| point.0 <= last + 10.0), "{wanted}: goes on");
        assert!(late.points.iter().all(|point| point.0 > 1000.0), "{wanted}: begins early");
        assert!(incast.points.iter().all(|point| point.1 > 0.1), "{wanted}: {:?}", incast.points);
        assert_eq!(late.points.last().unwrap().0, 1900.0);
    }
}

#[test]
fn a_wrong_combination_is_found_before_anything_is_simulated() {
    let sweep = Sweep {
        axes: vec![("workload.0.senders".to_owned(), vec!["1".to_owned(), "9".to_owned()])],
        seeds: vec![1],
    };
    let simulate = |_: &ferroce_sim::config::Experiment| -> Result<ferroce_sim::Outcome, String> {
        panic!("simulated")
    };
    let error = sweep.run("small", &document(), 2, simulate, || {}).unwrap_err();
    assert!(error.to_string().contains("with workload.0.senders=9"), "{error}");
}

#[test]
fn a_folder_that_is_there_is_only_written_into_if_that_is_wanted() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a/b");
    let folder = Folder::create(&path, false).unwrap();
    File::create(path.join("queue.svg")).unwrap();
    File::create(path.join("mine.txt")).unwrap();
    assert!(Folder::create(&path, false).is_err());
    Folder::create(folder.path(), true).unwrap();
    assert!(!path.join("queue.svg").exists(), "an older run's plot");
    assert!(path.join("mine.txt").exists());
}
