//! Which figures are compared to which, and what came of it.

use serde::Serialize;

use crate::metric::names::{self, sized};
use crate::metric::{Metric, Unit};
use crate::{RING_SIZES, SIZES};

/// A sample counts if others had less of the machine meanwhile.
const FOREIGN_MAX: f64 = 0.07;
/// So many count in any case: those with the least.
const UNDISTURBED_MIN: usize = 3;

/// One measurement of one figure.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// In the metric's unit.
    pub value: f64,
    /// The part of all CPU time that others had meanwhile.
    pub foreign: f64,
}

/// What a ratio is meant to be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// That or more.
    AtLeast(f64),
    /// That or less.
    AtMost(f64),
    /// More than that.
    Above(f64),
    /// Nothing in particular.
    None,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    reference_name: String,
    reference: f64,
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
    target: Target,
    met: bool,
    /// Too few rounds were undisturbed: disturbed ones count too.
    disturbed: bool,
}

impl Target {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Target::AtLeast(bound) => ratio >= bound,
            Target::AtMost(bound) => ratio <= bound,
            Target::Above(bound) => ratio > bound,
            Target::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtLeast(bound) => format!(">= {bound}"),
            Target::AtMost(bound) => format!("<= {bound}"),
            Target::Above(bound) => format!("> {bound}"),
            Target::None => String::new(),
        }
    }
}

/// What is compared to what.
fn comparisons() -> Vec<(String, String, Target)> {
    let mut all = Vec::new();
    for size in RING_SIZES {
        for what in ["RC WRITE, own", "ib_write_bw"] {
            all.push((sized(what, size), sized("two-core ring", size), Target::AtLeast(0.5)));
        }
    }
    for what in [names::WRITE_LAT, names::SEND_LAT] {
        let references = [
            (names::PING_PONG, Target::None),
            (names::UCX_SHM, Target::AtMost(2.0)),
            (names::FI_SHM, Target::AtMost(2.0)),
            (names::FI_TCP, Target::AtMost(0.2)),
        ];
        all.extend(references.map(|(name, target)| (what.into(), name.into(), target)));
    }
    for what in ["ib_write_bw", "ib_send_bw"] {
        let row = |size| (sized(what, size), sized("UCX tag_bw, tcp", size), Target::Above(1.0));
        all.extend(SIZES.map(row));
    }
    all
}

/// The table: of each metric its samples, one a round. Without what is not installed.
pub fn rows(metrics: &[Metric], samples: &[Vec<Sample>], idle: f64) -> Vec<Row> {
    let find = |name: &str| metrics.iter().position(|metric| metric.name == name);
    let compare = |(name, reference, target): (String, String, Target)| {
        let (at, of) = (find(&name)?, find(&reference)?);
        Some(compare(&metrics[at], &metrics[of], [&samples[at], &samples[of]], target))
    };
    let idle = Row {
        name: "idle process, CPU time".into(),
        value: 100.0 * idle,
        unit: "%",
        reference_name: "one core".into(),
        reference: 100.0,
        ratio: idle,
        ratio_min: idle,
        ratio_max: idle,
        target: Target::AtMost(0.01),
        met: idle <= 0.01,
        disturbed: false,
    };
    comparisons().into_iter().filter_map(compare).chain([idle]).collect()
}

fn compare(metric: &Metric, reference: &Metric, samples: [&[Sample]; 2], target: Target) -> Row {
    let mut rounds: Vec<_> = samples[0].iter().zip(samples[1]).collect();
    let foreign = |(a, b): &(&Sample, &Sample)| a.foreign.max(b.foreign);
    rounds.sort_by(|a, b| foreign(a).total_cmp(&foreign(b)));
    let calm = rounds.iter().filter(|round| foreign(round) < FOREIGN_MAX).count();
    let disturbed = calm < UNDISTURBED_MIN;
    rounds.truncate(calm.max(UNDISTURBED_MIN));
    let values = rounds.iter().map(|(a, _)| a.value).collect();
    let references = rounds.iter().map(|(_, b)| b.value).collect();
    // Of each round: the machine changes between them.
    let ratios: Vec<f64> = rounds.iter().map(|(a, b)| a.value / b.value).collect();
    let ratio = median(ratios.clone());
    Row {
        name: metric.name.clone(),
        value: median(values),
        unit: match metric.unit {
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Microseconds => "µs",
        },
        reference_name: reference.name.clone(),
        reference: median(references),
        ratio,
        ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio_max: ratios.iter().copied().fold(0.0, f64::max),
        target,
        met: target.is_met(ratio),
        disturbed,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints them.
pub fn print(rows: &[Row]) {
    println!(
        "\n{:<24} {:>9}      {:<25} {:>9} {:>7} {:>15} {:>7}",
        "", "value", "divided by", "value", "ratio", "from .. to", "target"
    );
    for row in rows {
        let span = format!("{:.2} .. {:.2}", row.ratio_min, row.ratio_max);
        let met = match (row.target, row.met) {
            (Target::None, _) => "",
            (_, true) => "met",
            (_, false) => "NOT MET",
        };
        println!(
            "{:<24} {:>9.3} {:<4} {:<25} {:>9.3} {:>7.3} {span:>15} {:>7} {met}{}",
            row.name,
            row.value,
            row.unit,
            row.reference_name,
            row.reference,
            row.ratio,
            row.target.text(),
            if row.disturbed { " (disturbed)" } else { "" },
        );
    }
    if rows.iter().any(|row| row.disturbed) {
        println!("disturbed: others had too much of the machine in too many rounds");
    }
}
