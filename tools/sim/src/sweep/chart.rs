//! A sweep as a chart: a metric against a key.

use super::request::{no_key, no_metric};
use super::{Row, Table};
use crate::plot::{Axis, Chart, Scale, Series, Style};

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
        let mut series = Vec::<(String, Vec<(f64, f64)>)>::new();
        for row in &self.rows {
            let Some(value) = row.metrics.get(metric).copied().flatten() else { continue };
            let value = value / metric_unit(metric).2;
            let name = self.series_name(row, key);
            match series.iter_mut().find(|entry| entry.0 == name) {
                Some(entry) => entry.1.push((place(row), value)),
                None => series.push((name, vec![(place(row), value)])),
            }
        }
        let ys = || series.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let y_scale = scale(ys(), 2.0 * LOG_RATIO);
        let x = match &numbers {
            Some((numbers, around)) => {
                Axis::new(&label(key, around), scale(numbers.iter().copied(), LOG_RATIO))
            }
            None => Axis { names: values.clone(), ..Axis::new(short(key), Scale::Linear) },
        };
        Ok(Chart {
            x,
            y: Axis::new(&metric_label(metric), y_scale),
            series: series.into_iter().map(|(name, points)| over_seeds(name, points)).collect(),
            levels: Vec::new(),
        })
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

    /// What the other keys that vary are set to, such as "congestion = dcqcn".
    fn series_name(&self, row: &Row, key: &str) -> String {
        let others =
            self.keys.iter().filter(|name| name.as_str() != key && self.values_of(name).len() > 1);
        let part = |name: &String| {
            format!("{} = {}", short(name), row.set.get(name).map_or("", String::as_str))
        };
        others.map(part).collect::<Vec<_>>().join(", ")
    }
}

/// Points at the same place become their mean, with the least and the greatest.
fn over_seeds(name: String, mut points: Vec<(f64, f64)>) -> Series {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut means = Vec::new();
    let mut ranges = Vec::new();
    for same in points.chunk_by(|a, b| a.0 == b.0) {
        let values = || same.iter().map(|point| point.1);
        means.push((same[0].0, values().sum::<f64>() / same.len() as f64));
        ranges.push((
            values().fold(f64::INFINITY, f64::min),
            values().fold(f64::NEG_INFINITY, f64::max),
        ));
    }
    let has_spread = points.len() > means.len();
    Series {
        name,
        style: Style::Marked,
        points: means,
        range: if has_spread { ranges } else { Vec::new() },
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

/// A key by its last word, "pfc" for switch.pfc.enabled.
fn short(key: &str) -> &str {
    let named = key.strip_suffix(".enabled").unwrap_or(key);
    named.rsplit('.').next().unwrap_or(key)
}

/// "rate (Gbit/s)", "loss (%)" for rules that drop a share, "delay …% of any".
fn label(key: &str, (before, after): &(String, String)) -> String {
    match (before.trim(), after.trim()) {
        ("", "") => short(key).to_owned(),
        ("", unit) => format!("{} ({unit})", short(key)),
        ("drop", share) if share.starts_with('%') => "loss (%)".to_owned(),
        _ => format!("{before}…{after}"),
    }
}

/// What a metric is called without its unit, that unit, and how many of the metric's make one.
fn metric_unit(metric: &str) -> (&str, &'static str, f64) {
    let units = [("_gbps", "Gbit/s", 1.0), ("_us", "us", 1.0), ("_bytes", "KB", 1e3)];
    let of = |(end, unit, size)| Some((metric.strip_suffix(end)?, unit, size));
    units.into_iter().find_map(of).unwrap_or((metric, "", 1.0))
}

/// "goodput (Gbit/s)" for "goodput_gbps".
fn metric_label(metric: &str) -> String {
    let (name, unit, _) = metric_unit(metric);
    let name = name.replace('_', " ").replacen('.', ": ", 1);
    match unit {
        "" => name,
        unit => format!("{name} ({unit})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str, u64, f64)]) -> Table {
        let row = |(x, kind, seed, value): &(&str, &str, u64, f64)| Row {
            set: [("a.x".to_owned(), (*x).to_owned()), ("b.kind".to_owned(), (*kind).to_owned())]
                .into(),
            seed: *seed,
            metrics: [("jain".to_owned(), Some(*value))].into(),
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
        assert_eq!(chart.series[0].name, "kind = p");
        assert_eq!(chart.series[0].points, [(0.01, 2.0), (5.0, 5.0)]);
        assert_eq!(chart.series[0].range, [(1.0, 3.0), (5.0, 5.0)]);
        assert_eq!(chart.series[1].points, [(5.0, 7.0)]);
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
    fn metrics_are_shown_with_their_units() {
        assert_eq!(metric_label("goodput_gbps"), "goodput (Gbit/s)");
        assert_eq!(metric_label("victim.fct_p99_us"), "victim: fct p99 (us)");
        assert_eq!(metric_label("queue_mean_bytes"), "queue mean (KB)");
        assert_eq!(metric_label("jain"), "jain");
    }

    #[test]
    fn a_metric_that_is_not_there_is_refused_with_those_that_are() {
        let table = table(&[("1", "p", 1, 1.0)]);
        assert!(table.chart(Some("speed"), None).unwrap_err().ends_with("expected one of jain"));
        assert!(table.chart(Some("jain"), Some("c")).unwrap_err().ends_with("a.x, b.kind"));
    }
}
