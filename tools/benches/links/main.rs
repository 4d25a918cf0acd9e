//! Links to a network, as ratios: a reliable connection over each, to the same frames with no
//! transport and to what TCP and UCX do, on one virtual cable between two network namespaces.
//!
//! Everything is measured in turn in one run. How far the two CPUs are apart, and what else the
//! machine does, moves every figure; see the bench `programs`. Figures decide nothing: the exit
//! status says whether there are any.

mod cable;
mod conversation;
mod metric;
mod peer;
mod program;
mod raw;
#[path = "../shared/mod.rs"]
mod shared;
mod task;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use cable::{Cable, Mode};
use conversation::Conversation;
use metric::{Comparison, Metric};
use shared::machine::{Disturbance, two_cpus};
use shared::probe::{Distance, probe};
use shared::table::{Row, Sample, is_wanted, median, print, print_figure};
use task::{Job, Task};

/// How long a trial takes that tells what can be measured here.
const TRIAL_MILLIS: u64 = 30;
/// Above all processes that have no priority, and the lowest that are.
const PRIORITY: &str = "1";

/// Links to a network, as ratios to bare frames and to other stacks.
#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long each figure is measured in each round
    #[arg(long, default_value_t = 200)]
    millis: u64,
    /// How programs of ours get to the cable; all ways, unless told
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
    /// Take the CPUs from everybody else meanwhile (SCHED_RR, needs CAP_SYS_NICE): on a busy machine
    #[arg(long)]
    real_time: bool,
    /// Only figures whose names contain one of these
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Print every figure too
    #[arg(long)]
    figures: bool,
    /// Print the table as JSON too
    #[arg(long)]
    json: bool,
    /// Cargo says so
    #[arg(long, hide = true)]
    bench: bool,
    /// Be one end of a measurement
    #[arg(long, hide = true, value_name = "TASK")]
    be: Option<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.be {
        Some(task) => be(&serde_json::from_str(task)?),
        None => run(&arguments),
    }
}

fn be(task: &Task) -> Result<()> {
    let conversation = Conversation::new();
    match task.job {
        Job::Raw(raw, load) => raw::be(task, raw, load, conversation),
        Job::Rdma { operation, mtu } => peer::be(task, operation, mtu, conversation),
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.real_time {
        take_precedence()?;
    }
    let cpus = two_cpus()?;
    println!("between CPU {} and CPU {}: {}", cpus.0, cpus.1, probe(cpus)?);
    let cable = Cable::lay(cpus)?;
    let modes = match &arguments.mode[..] {
        [] => &[Mode::Own, Mode::Gateway],
        modes => modes,
    };
    let metrics = possible(&cable, Metric::all(modes), &arguments.only);
    let mut samples = vec![Vec::new(); metrics.len()];
    for round in 0..arguments.rounds {
        eprintln!("round {} of {}", round + 1, arguments.rounds);
        let mut distance = Distance::between(cpus)?;
        for (metric, samples) in metrics.iter().zip(&mut samples) {
            let before = Disturbance::start()?;
            let value = metric.measure(&cable, arguments.millis);
            let foreign = before.foreign_share()?;
            let now = Distance::between(cpus)?;
            match value {
                Ok(value) => {
                    samples.push(Sample { value, foreign, distance: distance.until(now) });
                }
                Err(error) => eprintln!("{}: {error:#}", metric.name),
            }
            distance = now;
        }
    }
    println!("between CPU {} and CPU {}: {}", cpus.0, cpus.1, probe(cpus)?);
    let rows: Vec<Row> = metric::comparisons(modes)
        .iter()
        .filter_map(|comparison| rows(comparison, &metrics, &samples))
        .flatten()
        .collect();
    print(&rows);
    if arguments.figures {
        print_figures(&metrics, &samples);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    }
    Ok(())
}

/// Gives this process, and with it all that it starts, precedence over those without real time.
fn take_precedence() -> Result<()> {
    let own = std::process::id().to_string();
    let output = Command::new("chrt").args(["-r", "-p", PRIORITY, &own]).output();
    let output = output.context("cannot start chrt")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Those that can be measured here; says why the others cannot.
fn possible(cable: &Cable, mut metrics: Vec<Metric>, only: &[String]) -> Vec<Metric> {
    metrics.retain(|metric| {
        let trial = || match metric.measure(cable, TRIAL_MILLIS) {
            Ok(_) => true,
            Err(error) => {
                println!("skipped: {}: {error:#}", metric.name);
                false
            }
        };
        is_wanted(&metric.name, only) && trial()
    });
    metrics
}

/// Lines of the table; none if one of its sides was never measured.
fn rows(comparison: &Comparison, metrics: &[Metric], samples: &[Vec<Sample>]) -> Option<Vec<Row>> {
    let find = |name: &String| {
        let index = metrics.iter().position(|metric| metric.name == *name)?;
        (!samples[index].is_empty()).then_some(index)
    };
    let reference = find(&comparison.to)?;
    let unit = metrics[reference].unit;
    let typical = |samples: &[Sample]| median(samples.iter().map(|sample| sample.value).collect());
    let of = comparison.of.iter().filter_map(find).reduce(|best, other| {
        let [one, two] = [best, other].map(|index| typical(&samples[index]));
        if unit.is_better(two, one) { other } else { best }
    })?;
    let name = match comparison.of.len() {
        1 => comparison.name.clone(),
        _ => format!("best: {}", metrics[of].name),
    };
    let names = [&*name, &*comparison.to];
    Some(Row::of(names, unit.name(), [&samples[of], &samples[reference]], comparison.target))
}

fn print_figures(metrics: &[Metric], samples: &[Vec<Sample>]) {
    println!();
    for (metric, samples) in metrics.iter().zip(samples) {
        print_figure(&metric.name, metric.unit.name(), samples);
    }
}
