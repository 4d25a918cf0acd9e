//! Figures compared to others, and what came of it.

use serde::Serialize;

use super::probe::Distance;

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
    /// How far the two CPUs were apart.
    pub distance: Distance,
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
    /// How far the two CPUs were apart; none if that does not matter.
    pub distance: Option<Distance>,
    /// Its median.
    pub value: f64,
    /// Of both values.
    pub unit: &'static str,
    /// What it is compared to.
    pub reference_name: String,
    /// Its median.
    pub reference: f64,
    /// The median of the ratios of all samples to all of the reference's, and what the middle half
    /// of them is between.
    pub ratio: f64,
    /// See `ratio`.
    pub ratio_low: f64,
    /// See `ratio`.
    pub ratio_high: f64,
    /// What the ratio is meant to be.
    pub target: Target,
    /// Whether it is.
    pub met: bool,
    /// Too few samples were undisturbed: disturbed ones count too.
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
    /// Of two figures with these names: one line for each distance of the CPUs at which both have
    /// samples, since that moves figures more than all else does. If there is none, one without a
    /// verdict of all samples; none if one of the two has none at all.
    pub fn of(
        names: [&str; 2],
        unit: &'static str,
        samples: [&[Sample]; 2],
        target: Target,
    ) -> Vec<Row> {
        let at = |distance: Distance| {
            let of = |sample: &&Sample| sample.distance == distance;
            let samples = samples.map(|all| all.iter().filter(of).copied().collect());
            Row::of_some(names, unit, samples, target, distance)
        };
        let rows: Vec<Row> = [Distance::Near, Distance::Far].into_iter().filter_map(at).collect();
        if !rows.is_empty() {
            return rows;
        }
        let samples = samples.map(<[Sample]>::to_vec);
        Row::of_some(names, unit, samples, Target::None, Distance::Moving).into_iter().collect()
    }

    fn of_some(
        [name, reference_name]: [&str; 2],
        unit: &'static str,
        samples: [Vec<Sample>; 2],
        target: Target,
        distance: Distance,
    ) -> Option<Row> {
        let [(values, was_disturbed), (references, were_disturbed)] = samples.map(calm);
        if values.is_empty() || references.is_empty() {
            return None;
        }
        let over = |a: f64| references.iter().map(move |b| a / b);
        let mut ratios: Vec<f64> = values.iter().copied().flat_map(over).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = median(ratios.clone());
        Some(Row {
            name: name.into(),
            distance: Some(distance),
            value: median(values),
            unit,
            reference_name: reference_name.into(),
            reference: median(references.clone()),
            ratio,
            ratio_low: ratios[ratios.len() / 4],
            ratio_high: ratios[ratios.len() - 1 - ratios.len() / 4],
            target,
            met: target.is_met(ratio),
            disturbed: was_disturbed || were_disturbed,
        })
    }
}

/// What counts of samples; and whether there are too few undisturbed ones: then the least disturbed
/// of the others count too.
fn calm(mut samples: Vec<Sample>) -> (Vec<f64>, bool) {
    samples.sort_by(|a, b| a.foreign.total_cmp(&b.foreign));
    let calm = samples.iter().filter(|sample| sample.foreign < FOREIGN_MAX).count();
    let count = calm.max(UNDISTURBED_MIN.min(samples.len()));
    (samples[..count].iter().map(|sample| sample.value).collect(), calm < UNDISTURBED_MIN)
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
    let each = |sample: &Sample| format!("{:.3} {}", sample.value, sample.distance.name());
    let each: Vec<String> = samples.iter().map(each).collect();
    let (typical, each) = (median(values), each.join(", "));
    println!("{name:<40} {typical:>9.3} {unit} ({least:.3} .. {most:.3}): {each}");
}

/// Prints them.
pub fn print(rows: &[Row]) {
    let width = |name: fn(&Row) -> &str| rows.iter().map(|row| name(row).chars().count()).max();
    let names = width(|row| &row.name).unwrap_or(0);
    let references = width(|row| &row.reference_name).unwrap_or(0).max("divided by".len());
    println!(
        "\n{:<names$} {:<6} {:>9}      {:<references$} {:>9} {:>7} {:>15} {:>7}",
        "", "CPUs", "value", "divided by", "value", "ratio", "middle half", "target"
    );
    for row in rows {
        let span = format!("{:.2} .. {:.2}", row.ratio_low, row.ratio_high);
        let met = match (row.target, row.met) {
            (Target::None, _) => "",
            (_, true) => "met",
            (_, false) => "NOT MET",
        };
        print!(
            "{:<names$} {:<6} {:>9.3} {:<4} ",
            row.name,
            row.distance.map_or("", Distance::name),
            row.value,
            row.unit,
        );
        println!(
            "{:<references$} {:>9.3} {:>7.3} {span:>15} {:>7} {met}{}",
            row.reference_name,
            row.reference,
            row.ratio,
            row.target.text(),
            if row.disturbed { " (disturbed)" } else { "" },
        );
    }
    if rows.iter().any(|row| row.disturbed) {
        println!("disturbed: too few samples during which others had little of the machine");
    }
}
