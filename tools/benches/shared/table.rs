//! Figures compared to others, and what came of it.

use serde::Serialize;

/// A sample counts if others had less of the machine meanwhile.
const FOREIGN_MAX: f64 = 0.07;
/// So many count in any case: those with the least.
const UNDISTURBED_MIN: usize = 3;

/// One measurement of one figure.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// In the figure's unit.
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
    /// Nothing in particular.
    None,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Its median.
    pub value: f64,
    /// Of both values.
    pub unit: &'static str,
    /// What it is compared to.
    pub reference_name: String,
    /// Its median.
    pub reference: f64,
    /// The median of the rounds' ratios, and the least and the greatest.
    pub ratio: f64,
    /// See `ratio`.
    pub ratio_min: f64,
    /// See `ratio`.
    pub ratio_max: f64,
    /// What the ratio is meant to be.
    pub target: Target,
    /// Whether it is.
    pub met: bool,
    /// Too few rounds were undisturbed: disturbed ones count too.
    pub disturbed: bool,
}

impl Target {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Target::AtLeast(bound) => ratio >= bound,
            Target::AtMost(bound) => ratio <= bound,
            Target::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtLeast(bound) => format!(">= {bound}"),
            Target::AtMost(bound) => format!("<= {bound}"),
            Target::None => String::new(),
        }
    }
}

impl Row {
    /// Of two figures with these names, their samples in each round, at least one.
    pub fn of(
        [name, reference_name]: [&str; 2],
        unit: &'static str,
        mut rounds: Vec<(Sample, Sample)>,
        target: Target,
    ) -> Row {
        let foreign = |(a, b): &(Sample, Sample)| a.foreign.max(b.foreign);
        rounds.sort_by(|a, b| foreign(a).total_cmp(&foreign(b)));
        let calm = rounds.iter().filter(|round| foreign(round) < FOREIGN_MAX).count();
        let disturbed = calm < UNDISTURBED_MIN;
        rounds.truncate(calm.max(UNDISTURBED_MIN));
        // Of each round: the machine changes between them.
        let ratios: Vec<f64> = rounds.iter().map(|(a, b)| a.value / b.value).collect();
        let ratio = median(ratios.clone());
        Row {
            name: name.into(),
            value: median(rounds.iter().map(|(a, _)| a.value).collect()),
            unit,
            reference_name: reference_name.into(),
            reference: median(rounds.iter().map(|(_, b)| b.value).collect()),
            ratio,
            ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_max: ratios.iter().copied().fold(0.0, f64::max),
            target,
            met: target.is_met(ratio),
            disturbed,
        }
    }
}

/// The middle one; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Whether a figure of this name is to be measured: one that contains any of the texts, or if there
/// is none.
pub fn is_wanted(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|text| name.contains(text))
}

/// Prints one figure's samples: the median, the least and the most, and each in its turn.
pub fn print_figure(name: &str, unit: &str, samples: &[Sample]) {
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let each: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
    let (typical, each) = (median(values), each.join(" "));
    println!("{name:<40} {typical:>9.3} {unit} ({least:.3} .. {most:.3}): {each}");
}

/// Prints them.
pub fn print(rows: &[Row]) {
    let width = |name: fn(&Row) -> &str| rows.iter().map(|row| name(row).chars().count()).max();
    let names = width(|row| &row.name).unwrap_or(0);
    let references = width(|row| &row.reference_name).unwrap_or(0).max("divided by".len());
    println!(
        "\n{:<names$} {:>9}      {:<references$} {:>9} {:>7} {:>15} {:>7}",
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
            "{:<names$} {:>9.3} {:<4} {:<references$} {:>9.3} {:>7.3} {span:>15} {:>7} {met}{}",
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
