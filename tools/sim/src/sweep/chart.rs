//! A sweep as a chart: a metric against a key.

use super::request::{no_key, no_metric};
use super::{Row, Table};
use crate::plot::{Axis, Chart, Scale, Series, Style, units};

/// An axis whose largest value is so many times its smallest is logarithmic.
const LOG_RATIO: f64 = 50.0;

impl Table {
    /// The chart of `metric` against `key`: each mark is the mean over the seeds, its bar goes from
    /// the least to the greatest; the other keys make series. Without `metric` it is goodput,
    /// without `key` the one whose values are numbers and most.
    ///
    /// # Errors
    /// Says which metric or key is not there, and which are.
    pub fn chart(&self, metric: Option<&str>, key: Option<&str>) -> Result<Chart, String> {
        let metric = metric.unwrap_or("goodput_gbps");
        if !self.metrics.iter().any(|name| name == metric) {
            return Err(no_metric(metric, &self.metrics));
        }
        let key = match key {
            Some(key) if self.keys.iter().any(|name| name == key) => key,
            Some(key) => return Err(no_key(key, &self.keys)),
            None => self.main_key().ok_or("the sweep varies no key: nothing to draw against")?,
        };
        let values = self.values_of(key);
        let numbers = numbers(&values);
        let place = |row: &Row| {
            let index =
                values.iter().position(|value| Some(value) == row.set.get(key).as_ref().copied());
            match (&numbers, index) {
                (Some((numbers, _)), Some(index)) => numbers[index],
                (_, index) => index.unwrap_or(0) as f64,
            }
        };
        let mut series = Vec::<(String, Vec<Figure>)>::new();
        for row in &self.rows {
            let Some((value, at_least)) = row.known(metric) else { continue };
            let figure = Figure { place: place(row), value, at_least };
            let name = self.series_name(row, key);
            match series.iter_mut().find(|entry| entry.0 == name) {
                Some(entry) => entry.1.push(figure),
                None => series.push((name, vec![figure])),
            }
        }
        // As large as the bars reach.
        let ys = || series.iter().flat_map(|(_, figures)| figures.iter().map(|own| own.value));
        let y_scale = scale(ys(), 2.0 * LOG_RATIO);
        let (name, (unit, size)) = metric_unit(metric, ys().fold(0.0, f64::max));
        let x = match &numbers {
            Some((numbers, around)) => {
                Axis::new(&label(key, around), scale(numbers.iter().copied(), LOG_RATIO))
            }
            None => {
                let names = values.iter().map(|value| place_name(key, value)).collect();
                Axis { names, ..Axis::new(&short(key), Scale::Linear) }
            }
        };
        let y = Axis::new(&metric_label(name, unit), y_scale);
        let of = |(name, figures)| over_seeds(name, figures, size);
        let series = series.into_iter().map(of).collect();
        Ok(Chart { range: "least to greatest".to_owned(), ..Chart::new(x, y, series) })
    }

    /// The key whose values are numbers and most; else that with most values.
    fn main_key(&self) -> Option<&str> {
        let rank = |key: &&String| {
            let values = self.values_of(key);
            (values.len() > 1 && numbers(&values).is_some(), values.len())
        };
        // Of equals the first.
        self.keys.iter().rev().max_by_key(rank).map(String::as_str)
    }

    /// The values that a key takes, in order.
    fn values_of(&self, key: &str) -> Vec<String> {
        let mut values = Vec::<String>::new();
        for value in self.rows.iter().filter_map(|row| row.set.get(key)) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        values
    }

    /// What the other keys that vary are set to, such as "dcqcn, PFC".
    fn series_name(&self, row: &Row, key: &str) -> String {
        let others =
            self.keys.iter().filter(|name| name.as_str() != key && self.values_of(name).len() > 1);
        let part = |name: &String| value_name(name, row.set.get(name).map_or("", String::as_str));
        others.map(part).collect::<Vec<_>>().join(", ")
    }
}

/// The metric of a run.
struct Figure {
    place: f64,
    value: f64,
    /// It may be more.
    at_least: bool,
}

/// Figures at the same place become their mean, with the least and the greatest, in a unit of so
/// many of theirs. It is open if one of them is.
fn over_seeds(name: String, mut figures: Vec<Figure>, unit: f64) -> Series {
    figures.sort_by(|a, b| a.place.total_cmp(&b.place));
    let mut means = Vec::new();
    let mut ranges = Vec::new();
    let mut at_least = Vec::new();
    for same in figures.chunk_by(|a, b| a.place == b.place) {
        let values = || same.iter().map(|figure| figure.value / unit);
        means.push((same[0].place, values().sum::<f64>() / same.len() as f64));
        at_least.push(same.iter().any(|figure| figure.at_least));
        ranges.push((
            values().fold(f64::INFINITY, f64::min),
            values().fold(f64::NEG_INFINITY, f64::max),
        ));
    }
    let has_spread = figures.len() > means.len();
    Series {
        name,
        style: Style::Marked,
        points: means,
        range: if has_spread { ranges } else { Vec::new() },
        at_least,
    }
}

fn scale(values: impl Iterator<Item = f64>, ratio: f64) -> Scale {
    let (low, high) = values
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    match low > 0.0 && high / low >= ratio {
        true => Scale::Log,
        false => Scale::Linear,
    }
}

/// The one number in which values differ, and what stands before and after it.
fn numbers(values: &[String]) -> Option<(Vec<f64>, (String, String))> {
    let parts: Vec<(&str, f64, &str)> =
        values.iter().map(|value| split(value)).collect::<Option<_>>()?;
    let (before, _, after) = *parts.first()?;
    let is_alike = parts.iter().all(|part| (part.0, part.2) == (before, after));
    is_alike.then(|| {
        let numbers = parts.iter().map(|part| part.1).collect();
        (numbers, (before.to_owned(), after.to_owned()))
    })
}

/// A text's first number with what stands around it.
fn split(text: &str) -> Option<(&str, f64, &str)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = &text[start..];
    let len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    Some((&text[..start], rest[..len].parse().ok()?, &rest[len..]))
}

/// What a key is called by, "PFC" for switch.pfc.enabled.
fn short(key: &str) -> String {
    let named = key.strip_suffix(".enabled").unwrap_or(key);
    let word = named.rsplit('.').next().unwrap_or(key);
    match word {
        "pfc" | "ecn" => word.to_uppercase(),
        "congestion" => "congestion control".to_owned(),
        // Those of algorithms are names that papers and NICs have.
        _ if named.starts_with("congestion.") => word.to_owned(),
        _ => word.replace(['_', '-'], " "),
    }
}

/// A value by its own name if that says what it is: "dcqcn", "no congestion control", "PFC",
/// "no PFC", "senders = 4".
fn value_name(key: &str, value: &str) -> String {
    let is_word = value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.chars().all(|char| char.is_ascii_alphanumeric() || "-_".contains(char));
    match value {
        "true" => short(key),
        "false" | "none" => format!("no {}", short(key)),
        value if is_word => value.to_owned(),
        value => format!("{} = {value}", short(key)),
    }
}

/// A value beside an axis that has the key as its label.
fn place_name(key: &str, value: &str) -> String {
    match value {
        "true" | "false" => value_name(key, value),
        value => value.to_owned(),
    }
}

/// "rate (Gbit/s)", "loss (%)" for rules that drop a share, "delay …% of any".
fn label(key: &str, (before, after): &(String, String)) -> String {
    match (before.trim(), after.trim()) {
        ("", "") => short(key),
        ("", unit) => format!("{} ({unit})", short(key)),
        ("drop", share) if share.starts_with('%') => "loss (%)".to_owned(),
        _ => format!("{before}…{after}"),
    }
}

/// What a metric is called without its unit, the unit that suits its largest value, and how many of
/// the metric's make one.
fn metric_unit(metric: &str, largest: f64) -> (&str, (&'static str, f64)) {
    match metric.rsplit_once('_') {
        Some((name, "gbps")) => (name, ("Gbit/s", 1.0)),
        Some((name, "us")) => (name, units::of_time(largest)),
        Some((name, "bytes")) => (name, units::of_size(largest)),
        _ => (metric, ("", 1.0)),
    }
}

/// "99th percentile of FCT (ms)" for "fct_p99", "victim: goodput (Gbit/s)" for "victim.goodput".
fn metric_label(name: &str, unit: &str) -> String {
    // A percentile may have a dot, and so may a workload's name.
    let dots = name.match_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]));
    let known = dots.rev().find_map(|(group, metric)| Some((group, spoken(metric)?)));
    let label = match (spoken(name), known) {
        (Some(own), _) => own,
        (None, Some((group, own))) => format!("{group}: {own}"),
        (None, None) => name.replace('_', " "),
    };
    match unit {
        "" => label,
        unit => format!("{label} ({unit})"),
    }
}

/// A metric, without its unit, in words; `None` if there is none of that name.
fn spoken(name: &str) -> Option<String> {
    let words = match name {
        "flows" => "flows",
        "finished" => "flows finished",
        "failed" => "flows failed",
        "unfinished" => "flows not finished",
        "goodput" => "goodput",
        "flow_goodput_mean" => "mean goodput of a flow",
        "flow_goodput_min" => "least goodput of a flow",
        "flow_goodput_max" => "greatest goodput of a flow",
        "jain" => "Jain's fairness index",
        "retransmitted" => "packets sent again",
        "queue_max" => "longest queue",
        "queue_mean" => "mean queue",
        "pfc_pauses" => "PFC pauses, all ports",
        "pfc_paused" => "time paused by PFC, all ports",
        "marked" => "packets marked",
        "dropped" => "packets dropped",
        "struck" => "frames struck by faults",
        "ended" => "time simulated",
        "hops" => "frames handed to links",
        _ => {
            let (of, part) = name.split_once('_')?;
            let of = match of {
                "fct" => "FCT",
                "slowdown" => "FCT slowdown",
                "latency" => "message latency",
                _ => return None,
            };
            return Some(match part {
                "mean" => format!("mean {of}"),
                "p50" => format!("median {of}"),
                "max" => format!("longest {of}"),
                "p95" | "p99" | "p99.9" => format!("{}th percentile of {of}", &part[1..]),
                _ => return None,
            });
        }
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::config::Document;
    use crate::report::Run;
    use crate::report::summary::Metric;

    fn table(rows: &[(&str, &str, u64, f64)]) -> Table {
        let row = |(x, kind, seed, value): &(&str, &str, u64, f64)| Row {
            set: [("a.x".to_owned(), (*x).to_owned()), ("b.kind".to_owned(), (*kind).to_owned())]
                .into(),
            seed: *seed,
            metrics: [("jain".to_owned(), Some(*value))].into(),
            at_least: BTreeMap::new(),
            warnings: Vec::new(),
        };
        Table {
            name: "t".to_owned(),
            keys: vec!["a.x".to_owned(), "b.kind".to_owned()],
            metrics: vec!["jain".to_owned()],
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn seeds_become_a_mean_with_its_range_and_other_keys_series() {
        let table = table(&[
            ("drop 0.01% of any", "p", 1, 1.0),
            ("drop 0.01% of any", "p", 2, 3.0),
            ("drop 5% of any", "p", 1, 5.0),
            ("drop 5% of any", "q", 1, 7.0),
        ]);
        let chart = table.chart(Some("jain"), None).unwrap();
        assert_eq!(chart.x.label, "loss (%)");
        assert_eq!(chart.x.scale, Scale::Log);
        assert_eq!(chart.series[0].name, "p");
        assert_eq!(chart.series[0].points, [(0.01, 2.0), (5.0, 5.0)]);
        assert_eq!(chart.series[0].range, [(1.0, 3.0), (5.0, 5.0)]);
        assert_eq!(chart.series[1].points, [(5.0, 7.0)]);
    }

    #[test]
    fn a_run_whose_flows_had_not_finished_draws_what_is_known_and_not_nothing() {
        let mut table = table(&[("1", "p", 1, 4.0), ("1", "p", 2, 0.0), ("2", "p", 1, 5.0)]);
        table.rows[1].metrics = [("jain".to_owned(), None)].into();
        table.rows[1].at_least = [("jain".to_owned(), 20.0)].into();
        let chart = table.chart(Some("jain"), None).unwrap();
        assert_eq!(chart.series[0].points, [(1.0, 12.0), (2.0, 5.0)]);
        assert_eq!(chart.series[0].at_least, [true, false]);
    }

    #[test]
    fn values_that_are_no_numbers_have_places_by_name() {
        let table = table(&[("1 KB", "p", 1, 1.0), ("1 MB", "p", 1, 2.0)]);
        let chart = table.chart(Some("jain"), Some("a.x")).unwrap();
        assert_eq!(chart.x.names, ["1 KB", "1 MB"]);
        assert_eq!(chart.series[0].points, [(0.0, 1.0), (1.0, 2.0)]);
        assert!(chart.series[0].range.is_empty());
    }

    #[test]
    fn metrics_are_shown_in_words_with_units_that_suit_them() {
        let label = |metric, largest| {
            let (name, (unit, _)) = metric_unit(metric, largest);
            metric_label(name, unit)
        };
        assert_eq!(label("goodput_gbps", 1e9), "goodput (Gbit/s)");
        assert_eq!(label("victim.fct_p99_us", 5.0), "victim: 99th percentile of FCT (us)");
        assert_eq!(
            label("a.b.latency_p99.9_us", 5e3),
            "a.b: 99.9th percentile of message latency (ms)"
        );
        assert_eq!(label("pfc_paused_us", 1.5e6), "time paused by PFC, all ports (ms)");
        assert_eq!(label("queue_mean_bytes", 3e6), "mean queue (MB)");
        assert_eq!(label("dropped", 3e6), "packets dropped");
        assert_eq!(label("slowdown_max", 3.0), "longest FCT slowdown");
    }

    /// Those of every run, so that none is drawn by its raw name.
    #[test]
    fn every_metric_has_words() {
        let text =
            "[topology]\nkind = \"star\"\nhosts = 2\n[[workload]]\nkind = \"incast\"\nsize = 1";
        let document = Document::parse(Path::new("small.toml"), text).unwrap();
        let experiment = document.experiment().unwrap();
        let outcome = crate::run(&experiment.plan, &mut |_| {}).unwrap();
        let run = Run { name: "small", set: &[], experiment: &experiment, outcome: &outcome };
        let metrics = run.summary().metrics();
        assert!(metrics.len() > 30);
        for Metric { name, .. } in metrics {
            assert!(spoken(metric_unit(&name, 1.0).0).is_some(), "{name}");
        }
    }

    #[test]
    fn values_that_say_what_they_are_stand_alone_in_the_legend() {
        for (key, value, name) in [
            ("host.congestion", "dcqcn", "dcqcn"),
            ("host.congestion", "none", "no congestion control"),
            ("host.loss_recovery", "go-back-n", "go-back-n"),
            ("switch.pfc.enabled", "true", "PFC"),
            ("switch.pfc.enabled", "false", "no PFC"),
            ("workload.incast.senders", "4", "senders = 4"),
            ("congestion.dcqcn.rpg_ai_rate", "40", "rpg_ai_rate = 40"),
            ("topology.hosts-per-leaf", "4 to 5", "hosts per leaf = 4 to 5"),
        ] {
            assert_eq!(value_name(key, value), name);
        }
    }

    #[test]
    fn a_metric_that_is_not_there_is_refused_with_those_that_are() {
        let table = table(&[("1", "p", 1, 1.0)]);
        assert!(table.chart(Some("speed"), None).unwrap_err().ends_with("expected one of jain"));
        assert!(table.chart(Some("jain"), Some("c")).unwrap_err().ends_with("a.x, b.kind"));
    }
}
