//! Many runs of one file: every combination of the values of some keys, each with some seeds.
//!
//! Runs are independent of each other, and their rows stand in the order of the combinations: the
//! number of threads changes nothing.

mod chart;
mod request;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, Document, Experiment, Setting};
use crate::outcome::Outcome;
use crate::report::csv::field;
use crate::report::summary::Metric;
use crate::report::{Run, warnings, write_json};

pub use request::{Drawing, Request, Task};

/// The most runs of a sweep.
pub const MAX_RUNS: usize = 100_000;

/// What varies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Keys, and the values each takes in turn; the last varies fastest.
    pub axes: Vec<(String, Vec<String>)>,
    /// Seeds of each combination.
    pub seeds: Vec<u64>,
}

/// One of the runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// The value of each key.
    pub set: BTreeMap<String, String>,
    /// The seed.
    pub seed: u64,
    /// What came out, by name; see [`Summary::metrics`](crate::report::Summary::metrics).
    pub metrics: BTreeMap<String, Option<f64>>,
    /// What those are at least that are not known, since flows had not finished.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub at_least: BTreeMap<String, f64>,
    /// What makes figures of the run say less than they seem to.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// All rows, as `sweep.json` has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The name of the file.
    pub name: String,
    /// The keys that vary.
    pub keys: Vec<String>,
    /// The names of metrics, in order.
    pub metrics: Vec<String>,
    /// A row for each run.
    pub rows: Vec<Row>,
}

/// Why a sweep ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum SweepError<E> {
    /// There are more than [`MAX_RUNS`] runs, or none.
    Count(usize),
    /// A combination is wrong. Nothing has been simulated.
    Config(ConfigError),
    /// A run failed; what was set for it, as `KEY=VALUE`.
    Run(Vec<String>, E),
}

impl<E: fmt::Display> fmt::Display for SweepError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SweepError::Count(0) => f.write_str("a key of the sweep has no values"),
            SweepError::Count(count) => {
                write!(f, "the sweep has {count} runs: expected at most {MAX_RUNS}")
            }
            SweepError::Config(error) => error.fmt(f),
            SweepError::Run(set, error) => write!(f, "with {}: {error}", set.join(", ")),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for SweepError<E> {}

impl Sweep {
    /// How many runs there are.
    pub fn count(&self) -> usize {
        let axes = self.axes.iter().map(|(_, values)| values.len());
        axes.fold(self.seeds.len(), usize::saturating_mul)
    }

    /// The settings of a run.
    fn settings(&self, run: usize) -> Vec<Setting> {
        let mut rest = run / self.seeds.len();
        let mut settings: Vec<Setting> = self
            .axes
            .iter()
            .rev()
            .map(|(key, values)| {
                let value = values[rest % values.len()].clone();
                rest /= values.len();
                Setting { key: key.clone(), value }
            })
            .collect();
        settings.reverse();
        let seed = self.seeds[run % self.seeds.len()];
        settings.push(Setting { key: "seed".to_owned(), value: seed.to_string() });
        settings
    }

    fn document(&self, base: &Document, run: usize) -> Document {
        let mut document = base.clone();
        self.settings(run).into_iter().for_each(|setting| document.set(setting));
        document
    }

    /// Whether there are runs, and each combination is right.
    ///
    /// # Errors
    /// For the first that is wrong.
    pub fn check<E>(&self, base: &Document) -> Result<(), SweepError<E>> {
        self.each_combination(base, |_| ())
    }

    /// Calls `each` with the first run of every combination.
    fn each_combination<E>(
        &self,
        base: &Document,
        mut each: impl FnMut(Experiment),
    ) -> Result<(), SweepError<E>> {
        let count = self.count();
        if count == 0 || count > MAX_RUNS {
            return Err(SweepError::Count(count));
        }
        for run in (0..count).step_by(self.seeds.len()) {
            each(self.document(base, run).experiment().map_err(SweepError::Config)?);
        }
        Ok(())
    }

    /// Carries out every run in `jobs` threads, `simulate` doing each; `done` is called after each.
    /// Nothing is captured.
    ///
    /// # Errors
    /// For the first combination, by their order, that is wrong or fails.
    pub fn run<E: Send>(
        &self,
        name: &str,
        base: &Document,
        jobs: usize,
        simulate: impl Fn(&Experiment) -> Result<Outcome, E> + Sync,
        done: impl Fn() + Sync,
    ) -> Result<Table, SweepError<E>> {
        // All are checked before the first takes its time.
        self.check(base)?;
        let count = self.count();
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let results = Mutex::new(BTreeMap::new());
        let work = || {
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= count || failed.load(Ordering::Relaxed) {
                    return;
                }
                let row = self.row(name, &self.document(base, run), run, &simulate);
                failed.fetch_or(row.is_err(), Ordering::Relaxed);
                // A thread that panicked has stopped the sweep anyway.
                results.lock().unwrap_or_else(|lock| lock.into_inner()).insert(run, row);
                done();
            }
        };
        thread::scope(|scope| {
            for _ in 1..jobs.clamp(1, count) {
                scope.spawn(work);
            }
            work();
        });
        let results = results.into_inner().unwrap_or_else(|lock| lock.into_inner());
        let rows = results.into_values().collect::<Result<Vec<_>, _>>()?;
        Ok(self.table(name, rows))
    }

    fn row<E>(
        &self,
        name: &str,
        document: &Document,
        run: usize,
        simulate: impl Fn(&Experiment) -> Result<Outcome, E>,
    ) -> Result<(Row, Vec<String>), SweepError<E>> {
        let mut experiment = document.experiment().map_err(SweepError::Config)?;
        experiment.plan.captures.clear();
        let settings = self.settings(run);
        let outcome = simulate(&experiment).map_err(|error| {
            SweepError::Run(settings.iter().map(Setting::to_string).collect(), error)
        })?;
        let run = Run { name, set: &[], experiment: &experiment, outcome: &outcome };
        let summary = run.summary();
        let metrics = summary.metrics();
        let names = metrics.iter().map(|metric| metric.name.clone()).collect();
        let bound = |metric: &Metric| Some((metric.name.clone(), metric.at_least?));
        let axes = settings.into_iter().take(self.axes.len());
        let row = Row {
            set: axes.map(|setting| (setting.key, setting.value)).collect(),
            seed: experiment.plan.seed,
            at_least: metrics.iter().filter_map(bound).collect(),
            metrics: metrics.into_iter().map(|metric| (metric.name, metric.value)).collect(),
            warnings: warnings(&run, &summary),
        };
        Ok((row, names))
    }

    fn table(&self, name: &str, rows: Vec<(Row, Vec<String>)>) -> Table {
        let mut metrics = Vec::<String>::new();
        for name in rows.iter().flat_map(|(_, names)| names) {
            if !metrics.contains(name) {
                metrics.push(name.clone());
            }
        }
        Table {
            name: name.to_owned(),
            keys: self.axes.iter().map(|(key, _)| key.clone()).collect(),
            metrics,
            rows: rows.into_iter().map(|(row, _)| row).collect(),
        }
    }
}

impl Row {
    /// A metric, or what it is at least, and whether it is that.
    pub fn known(&self, metric: &str) -> Option<(f64, bool)> {
        let value = self.metrics.get(metric).copied().flatten().map(|value| (value, false));
        value.or_else(|| self.at_least.get(metric).map(|value| (*value, true)))
    }
}

impl Table {
    /// Reads `sweep.json`.
    ///
    /// # Errors
    /// If `text` is something else.
    pub fn from_json(text: &str) -> Result<Table, String> {
        serde_json::from_str(text).map_err(|error| format!("no table of a sweep: {error}"))
    }

    /// Writes `sweep.csv`: a column for each key, the seed, and a column for each metric.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let titles = self.keys.iter().map(String::as_str).chain(["seed"]);
        let titles: Vec<_> =
            titles.chain(self.metrics.iter().map(String::as_str)).map(field).collect();
        writeln!(out, "{}", titles.join(","))?;
        for row in &self.rows {
            let mut fields = Vec::with_capacity(titles.len());
            for key in &self.keys {
                fields.push(field(row.set.get(key).map_or("", String::as_str)).into_owned());
            }
            fields.push(row.seed.to_string());
            for metric in &self.metrics {
                let value = row.metrics.get(metric).copied().flatten();
                fields.push(value.map_or(String::new(), |value| value.to_string()));
            }
            writeln!(out, "{}", fields.join(","))?;
        }
        Ok(())
    }

    /// Writes `sweep.json`.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_json(self, out)
    }
}

/// Splits `a,b` of a setting `KEY=a,b` into values; what stands in brackets or quotes stays
/// together.
pub fn values(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let (mut depth, mut is_quoted) = (0_usize, false);
    for char in text.chars() {
        match char {
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => depth += 1,
            ']' | '}' if !is_quoted => depth = depth.saturating_sub(1),
            ',' if !is_quoted && depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = values.last_mut() {
            last.push(char);
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parted_by_commas_outside_of_brackets_and_quotes() {
        assert_eq!(values("1,2, 3"), ["1", "2", "3"]);
        assert_eq!(values("[[0,1],[1,2]],[[0,1]]"), ["[[0,1],[1,2]]", "[[0,1]]"]);
        assert_eq!(values("\"a,b\",c"), ["\"a,b\"", "c"]);
        assert_eq!(values("10 us"), ["10 us"]);
    }
}
