//! What a command line asks for beside the file: all of it counts, or is refused before anything is
//! simulated.

use std::path::Path;

use ferroce_sim::config::Document;
use ferroce_sim::report::Folder;
use ferroce_sim::sweep::{Drawing, Request, Sweep, Table, Task, values};

const FILE: &str = r#"
duration = "20 us"

[topology]
kind = "star"
hosts = 5
rate = "10 Gbit/s"

[[workload]]
kind = "incast"
size = "4 KiB"
"#;

const SWEEP: &str = r#"
[sweep]
seeds = 2
plot = "fct_p99_us"
against = "workload.incast.senders"

[sweep.set]
"workload.incast.senders" = [1, 2, 4]
"host.congestion" = ["none", "dcqcn"]
"#;

/// Arguments as on the command line, without `ferroce sim FILE.toml`.
fn request(arguments: &str) -> Request {
    let mut request = Request::default();
    let mut words = arguments.split_whitespace();
    while let Some(option) = words.next() {
        let value = words.next().unwrap_or_default();
        match option {
            "--set" => {
                let (key, value) = value.split_once('=').unwrap();
                request.set.push((key.to_owned(), values(value)));
            }
            "--seed" => request.seed = Some(value.parse().unwrap()),
            "--seeds" => request.seeds = Some(value.parse().unwrap()),
            "--plot" => request.plot.push(value.to_owned()),
            "--against" => request.against = Some(value.to_owned()),
            other => panic!("{other}"),
        }
    }
    request
}

fn task(text: &str, arguments: &str) -> Result<Task, String> {
    let document = Document::parse(Path::new("x.toml"), text).unwrap();
    let task = request(arguments).task(&document).map_err(|error| error.to_string())?;
    Ok(task.0)
}

fn sweep(text: &str, arguments: &str) -> (Sweep, Drawing) {
    match task(text, arguments) {
        Ok(Task::Sweep(_, sweep, drawing)) => (sweep, drawing),
        other => panic!("{arguments}: {other:?}"),
    }
}

fn with_sweep() -> String {
    format!("{FILE}{SWEEP}")
}

#[test]
fn several_values_of_seed_are_the_seeds_and_no_key() {
    let (listed, _) = sweep(FILE, "--set seed=1,2,9");
    assert_eq!((listed.seeds, listed.axes.len()), (vec![1, 2, 9], 0));
    let (counted, _) = sweep(FILE, "--set seed=5 --seeds 3");
    assert_eq!(counted.seeds, [5, 6, 7]);
    let in_file = format!("{FILE}[sweep.set]\nseed = [3, 8]\n");
    assert_eq!(sweep(&in_file, "").0.seeds, [3, 8]);
    // The command line has precedence.
    assert_eq!(sweep(&in_file, "--seeds 2").0.seeds, [1, 2]);
    assert!(matches!(task(&in_file, "--seed 4"), Ok(Task::Run(run, _)) if run.plan.seed == 4));
}

#[test]
fn a_key_of_one_value_leaves_the_sweep_and_another_is_drawn_against() {
    let (pinned, drawing) = sweep(&with_sweep(), "--set workload.0.senders=4");
    assert_eq!(pinned.axes.len(), 1, "by its number or its name: {:?}", pinned.axes);
    assert_eq!(pinned.axes[0].0, "host.congestion");
    assert_eq!((drawing.against, pinned.seeds.len()), (None, 2));
    // Nothing is left but seeds.
    let all = "--set workload.0.senders=4 --set host.congestion=none";
    assert_eq!(sweep(&with_sweep(), all).0.count(), 2);
    let one = format!("{all} --set sweep.seeds=1");
    assert!(matches!(task(&with_sweep(), &one), Ok(Task::Run(..))));
    // Several values take the place of the file's.
    let (other, drawing) = sweep(&with_sweep(), "--set workload.0.senders=1,3");
    assert_eq!(other.axes.len(), 2);
    assert_eq!(drawing.against.as_deref(), Some("workload.0.senders"));
}

#[test]
fn several_metrics_are_drawn_each_in_a_file() {
    let (_, drawing) = sweep(&with_sweep(), "--plot jain --plot fct_p99.9_us");
    assert_eq!(drawing.metrics, ["jain", "fct_p99.9_us"]);
    assert_eq!(drawing.file_name("jain"), "sweep-jain.svg");
    let (_, drawing) = sweep(&with_sweep(), "");
    assert_eq!(drawing.file_name("fct_p99_us"), "sweep.svg");
    let text = with_sweep().replace("\"fct_p99_us\"", "[\"jain\", \"dropped\"]");
    assert_eq!(sweep(&text, "").1.metrics, ["jain", "dropped"]);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_simulated() {
    let file = with_sweep();
    let mut failures = Vec::new();
    for (arguments, parts) in [
        (
            "--plot p99",
            &["with --plot p99: no metric", "did you mean fct_p99_us, slowdown_p99"][..],
        ),
        ("--plot incast.jain", &["--plot incast.jain: no metric", "did you mean jain?"]),
        ("--plot jain --plot jain", &["'jain' is there twice"]),
        ("--against host.congest", &["--against host.congest:", "did you mean host.congestion?"]),
        (
            "--set workload.0.senders=2 --against workload.0.senders",
            &["does not vary 'workload.0.senders': expected one of host.congestion"],
        ),
        ("--set sweep.against=seed", &["sweep.against: the sweep does not vary 'seed'"]),
        ("--set sweep.plot=jian", &["sweep.plot: no metric 'jian': did you mean jain?"]),
        ("--set sweep.plot=jain,dropped", &["cannot vary", "--plot A --plot B"]),
        ("--set seed=1,2 --seed 9", &["the seed is given twice"]),
        ("--set seed=1 --seed 9", &["the seed is given twice"]),
        ("--set seed=1,2 --seeds 3", &["--seeds 3: the seeds are given twice"]),
        ("--set seed=1,x", &["expected seeds", "such as seed=1,2,3"]),
        ("--set seed=2,2", &["a seed is there twice"]),
        ("--seeds 0", &["--seeds 0: 0 seeds: expected 1 to"]),
        ("--set duration=1ms --set duration=2ms", &["--set duration is there already"]),
        (
            "--set workload.0.senders=1 --set workload.incast.senders=2,3",
            &["with --set workload.incast.senders=2,3: --set workload.0.senders is there already"],
        ),
        ("--set workload.0.qps=1,1", &["workload.0.qps: a value is there twice"]),
        ("--set capture=h0,h1", &["capture: cannot vary"]),
        ("--set workload.0.senders=1,9", &["with workload.0.senders=9:", "expected at most 4"]),
        ("--set workload.incats.qps=1", &["no 'incats'", "did you mean incast?"]),
    ] {
        let error = task(&file, arguments).expect_err(arguments);
        if !parts.iter().all(|part| error.contains(part)) {
            failures.push(format!("{arguments}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for (arguments, part) in [
        ("--plot jain", "with --plot jain: nothing varies"),
        ("--against host.congestion", "--against host.congestion: nothing varies"),
    ] {
        assert!(task(FILE, arguments).unwrap_err().contains(part), "{arguments}");
    }
    for (keys, error) in [
        ("[sweep]\nseeds = 2\n[sweep.set]\nseed = [1, 2]", "x.toml:14: sweep.seeds: the seeds are"),
        (
            "[sweep]\nplot = 'p99'\nseeds = 2",
            "x.toml:14: sweep.plot: no metric 'p99': did you mean",
        ),
        (
            "[sweep]\nseeds = 2\nagainst = 'host.mtu'",
            "x.toml:15: sweep.against: the sweep does not",
        ),
        ("[sweep.set]\n'host.mtu' = []", "host.mtu: has no values"),
    ] {
        let text = task(&format!("{FILE}[host]\n{keys}"), "").unwrap_err();
        assert!(text.contains(error), "{keys}: {text}");
    }
}

#[test]
fn what_has_no_effect_is_noted() {
    let notes = |text: &str, arguments: &str| {
        let document = Document::parse(Path::new("x.toml"), text).unwrap();
        request(arguments).task(&document).unwrap().1
    };
    let swift = "[congestion.swift]\nai = 7\n";
    let captured = format!("capture = 'h0'\n{FILE}");
    for (text, arguments, note) in [
        (format!("{FILE}{swift}"), "", "[congestion.swift] has no effect: no host uses it"),
        (format!("{FILE}{swift}"), "--set host.congestion=none,dcqcn", "[congestion.swift] has"),
        (captured.clone(), "--seeds 2", "capture has no effect: a sweep captures nothing"),
    ] {
        let notes = notes(&text, arguments);
        assert!(notes.len() == 1 && notes[0].starts_with(note), "{arguments}: {notes:?}");
    }
    for (text, arguments) in [
        (FILE.to_owned(), ""),
        (format!("{FILE}{swift}"), "--set host.congestion=none,swift"),
        (format!("{FILE}{swift}"), "--set host.congestion=swift"),
        (captured, ""),
    ] {
        assert_eq!(notes(&text, arguments), Vec::<String>::new(), "{arguments}");
    }
}

#[test]
fn a_sweep_is_drawn_again_from_its_table() {
    let document = Document::parse(Path::new("x.toml"), &with_sweep()).unwrap();
    let Ok((Task::Sweep(base, sweep, _), _)) = Request::default().task(&document) else { panic!() };
    let simulate = |experiment: &ferroce_sim::config::Experiment| {
        ferroce_sim::run(&experiment.plan, &mut |_| {})
    };
    let table = sweep.run("x", &base, 1, simulate, || {}).unwrap();
    let mut json = Vec::new();
    table.write_json(&mut json).unwrap();
    let again = Table::from_json(std::str::from_utf8(&json).unwrap()).unwrap();
    let drawing = |arguments| request(arguments).drawing_of(&document, &again);
    assert_eq!(drawing("").unwrap().metrics, ["fct_p99_us"]);
    let key = drawing("--against workload.0.senders --plot jain").unwrap().against;
    assert_eq!(key.as_deref(), Some("workload.incast.senders"));
    assert!(drawing("--plot nothing").unwrap_err().to_string().contains("no metric 'nothing'"));
    let svg = |table: &Table| table.chart(Some("goodput_gbps"), key.as_deref()).unwrap().svg();
    assert_eq!(svg(&table), svg(&again));
    assert!(Table::from_json("{}").unwrap_err().contains("no table of a sweep"));
}

#[test]
fn a_folder_that_a_stopped_run_left_empty_is_taken() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("out");
    Folder::create(&path, false).unwrap();
    let folder = Folder::create(&path, false).unwrap();
    folder.write("sweep-jain.svg", |_| Ok(())).unwrap();
    assert!(Folder::create(&path, false).is_err());
    Folder::create(&path, true).unwrap();
    assert!(!path.join("sweep-jain.svg").exists(), "an older sweep's plot");
}
