//! Unmodified programs over our library, as ratios: each to a bare bound or to what other stacks do
//! on the same machine, measured in turn in one run.
//!
//! How far the two CPUs are apart, and what else the machine does, moves every figure. So that is
//! probed before and after each, only samples of one distance are compared, and those during which
//! others took CPU time are left out, as long as enough remain. Figures decide nothing: the exit
//! status says whether all programs finished.

mod bare;
mod idle;
mod metric;
mod program;
#[path = "../shared/mod.rs"]
mod shared;
mod table;
mod writes;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;

use metric::Metric;
use program::Lab;
use shared::machine::{Disturbance, two_cpus};
use shared::probe::{Distance, probe};
use shared::table::{self as shared_table, Sample};

/// The sizes at which bandwidths are compared, in bytes.
const SIZES: [usize; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20];
/// Those of them that are compared to the bare ring too.
const RING_SIZES: [usize; 2] = [64 << 10, 1 << 20];

/// Unmodified programs over our library, as ratios to bare bounds and other stacks.
#[derive(Debug, Parser)]
struct Arguments {
    /// Two short rounds instead of seven long ones
    #[arg(long)]
    quick: bool,
    /// Rounds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
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
    /// Be the idle process that is measured, in this fabric
    #[arg(long, hide = true, value_name = "DIR")]
    idle: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(fabric) = &arguments.idle {
        return idle::be(fabric);
    }
    let fabric = PathBuf::from(format!("/dev/shm/ferroce-programs-{}", std::process::id()));
    let outcome = run(&arguments, &fabric);
    let _ = std::fs::remove_dir_all(&fabric);
    outcome
}

fn run(arguments: &Arguments, fabric: &Path) -> Result<()> {
    let cpus = two_cpus()?;
    let (rounds, work) = if arguments.quick { (2, 8) } else { (arguments.rounds, 1) };
    let lab = Lab { fabric, cpus, work };
    let is_wanted = |name: &str| shared_table::is_wanted(name, &arguments.only);
    let mut metrics = Metric::all(&lab);
    metrics.retain(|metric| is_wanted(&metric.name));
    let mut samples = vec![Vec::new(); metrics.len()];
    for round in 0..rounds {
        println!(
            "round {} of {rounds}, CPUs {} and {}: {}",
            round + 1,
            cpus.0,
            cpus.1,
            probe(cpus)?
        );
        let mut distance = Distance::between(cpus)?;
        for (metric, samples) in metrics.iter().zip(&mut samples) {
            let before = Disturbance::start()?;
            let value = metric.measure(&lab)?;
            let foreign = before.foreign_share()?;
            let now = Distance::between(cpus)?;
            samples.push(Sample { value, foreign, distance: distance.until(now) });
            distance = now;
        }
    }
    let idle = is_wanted(table::IDLE).then(|| idle::share(fabric)).transpose()?;
    if arguments.only.is_empty() {
        program::one_core(&lab, &metric::on_one_core())?;
    }
    println!("after it: {}", probe(cpus)?);
    let rows = table::rows(&metrics, &samples, idle);
    shared_table::print(&rows);
    if arguments.figures {
        for (metric, samples) in metrics.iter().zip(&samples) {
            shared_table::print_figure(&metric.name, metric.unit.name(), samples);
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    }
    Ok(())
}
