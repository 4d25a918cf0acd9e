//! What a command line asks for beside the file, checked before anything is simulated.

use std::collections::BTreeSet;

use super::{Sweep, SweepError, Table};
use crate::config::{ConfigError, Document, Experiment, Place, Setting, SweepSpec};
use crate::near::did_you_mean;
use crate::net::SimError;
use crate::outcome::{FlowRecord, Outcome, PortRecord};
use crate::report::Run;

/// What is drawn where nobody says.
const DEFAULT_METRIC: &str = "goodput_gbps";

/// What a command line asks for beside the file.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `--set`: keys, and the value or values of each.
    pub set: Vec<(String, Vec<String>)>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--seeds`.
    pub seeds: Option<u64>,
    /// `--plot`: metrics.
    pub plot: Vec<String>,
    /// `--against`.
    pub against: Option<String>,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Task {
    /// One run of this.
    Run(Box<Experiment>, Document),
    /// Many runs of this.
    Sweep(Document, Sweep, Drawing),
}

/// What of a sweep is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawing {
    /// The metrics, at least one.
    pub metrics: Vec<String>,
    /// The key they are drawn against; `None`: see [`Table::chart`](super::Table::chart).
    pub against: Option<String>,
}

impl Request {
    /// What the file and the command line together ask for, and notes of what may not be meant. All
    /// of it is right: every combination, metrics, keys.
    ///
    /// # Errors
    /// For the first that is wrong, or that contradicts another.
    pub fn task(&self, file: &Document) -> Result<(Task, Vec<String>), ConfigError> {
        let mut document = file.clone();
        let mut axes = Vec::new();
        let mut listed = None;
        for (key, values) in &self.set {
            match (file.full_key(key).as_str(), &values[..]) {
                ("seed", _) if self.seed.is_some() => {
                    let message = "the seed is given twice: by --seed, and by --set seed";
                    return Err(wrong(file, &said(key, values), message));
                }
                (_, [value]) => document.set(Setting { key: key.clone(), value: value.clone() }),
                ("seed", _) => listed = Some(seeds(file, &said(key, values), values)?),
                (_, _) => axes.push((key.clone(), values.clone())),
            }
        }
        if let Some(seed) = self.seed {
            document.set(Setting { key: "seed".to_owned(), value: seed.to_string() });
        }
        self.check_set_once(file)?;
        let spec = document.sweep()?;
        let has_spec = spec.is_some();
        let spec = spec.unwrap_or_default();
        let seeds = self.seeds(&document, &spec, listed)?;
        // What the command line sets takes the place of what the file says of the same key.
        let is_set = |key: &str| self.set.iter().any(|(set, _)| same(file, key, set));
        let of_file = spec.axes.iter().filter(|(key, _)| file.full_key(key) != "seed");
        let mut sweep =
            Sweep { axes: of_file.filter(|(key, _)| !is_set(key)).cloned().collect(), seeds };
        sweep.axes.extend(axes);
        check_axes(&document, &sweep)?;
        if sweep.axes.is_empty() && sweep.seeds.len() == 1 && self.seeds.is_none() {
            return self.single(document, sweep.seeds[0], has_spec);
        }
        let keys: Vec<String> = sweep.axes.iter().map(|(key, _)| key.clone()).collect();
        let (names, mut notes) = metric_names(&document, &sweep)?;
        notes.extend(unused(&document, &sweep.axes)?);
        let drawing = self.drawing(&document, &spec, &names, &keys)?;
        Ok((Task::Sweep(document, sweep, drawing), notes))
    }

    /// One run. What is asked for of sweeps alone is not ignored.
    fn single(
        &self,
        mut document: Document,
        seed: u64,
        has_spec: bool,
    ) -> Result<(Task, Vec<String>), ConfigError> {
        let asked = match (self.plot.first(), &self.against) {
            (Some(metric), _) => Some(format!("--plot {metric}")),
            (None, Some(key)) => Some(format!("--against {key}")),
            (None, None) => None,
        };
        if let Some(asked) = asked {
            let message = match has_spec {
                true => "nothing is left that varies: leave out one of the --set, or give --seeds",
                false => "nothing varies: expected a --set with several values, or --seeds",
            };
            return Err(wrong(&document, &asked, message));
        }
        if document.seed()? != seed {
            document.set(Setting { key: "seed".to_owned(), value: seed.to_string() });
        }
        let experiment = document.experiment()?;
        let mut notes = experiment.notes.clone();
        notes.extend(unused(&document, &[])?);
        Ok((Task::Run(Box::new(experiment), document), notes))
    }

    /// No key is set twice, whatever it is called.
    fn check_set_once(&self, file: &Document) -> Result<(), ConfigError> {
        for (index, (key, values)) in self.set.iter().enumerate() {
            if let Some((earlier, _)) =
                self.set[..index].iter().find(|(earlier, _)| same(file, earlier, key))
            {
                let message = format!(
                    "--set {earlier} is there already: expected each key once; several values \
                     are separated by commas"
                );
                return Err(wrong(file, &said(key, values), &message));
            }
        }
        Ok(())
    }

    /// The seeds: those that are listed, or so many from the first.
    fn seeds(
        &self,
        document: &Document,
        spec: &SweepSpec,
        listed: Option<Vec<u64>>,
    ) -> Result<Vec<u64>, ConfigError> {
        if let Some(listed) = listed {
            return match self.seeds {
                None => Ok(listed),
                Some(count) => {
                    let message = "the seeds are given twice: --set seed=… lists them, --seeds \
                                   counts them from --seed on";
                    Err(wrong(document, &format!("--seeds {count}"), message))
                }
            };
        }
        let of_file = spec.axes.iter().find(|(key, _)| document.full_key(key) == "seed");
        let is_first_given =
            self.seed.is_some() || self.set.iter().any(|(key, _)| document.full_key(key) == "seed");
        if let (Some((_, values)), None, false) = (of_file, self.seeds, is_first_given) {
            if spec.seeds.is_some() {
                let message = "the seeds are given twice: sweep.set lists them, too";
                return Err(document.wrong("sweep.seeds", message));
            }
            return parsed_seeds(values).map_err(|message| document.wrong("sweep.set", message));
        }
        let first = document.seed()?;
        let count = self.seeds.or(spec.seeds).unwrap_or(1);
        if !(1..=super::MAX_RUNS as u64).contains(&count) {
            let message = format!("{count} seeds: expected 1 to {}", super::MAX_RUNS);
            return Err(match self.seeds {
                Some(_) => wrong(document, &format!("--seeds {count}"), &message),
                None => document.wrong("sweep.seeds", &message),
            });
        }
        Ok((0..count).map(|number| first.wrapping_add(number)).collect())
    }

    /// What is to be drawn of a sweep that has been run. What of the file's `[sweep]` is not to be
    /// had from it does not count.
    ///
    /// # Errors
    /// If the command line asks for a metric or key that it does not have.
    pub fn drawing_of(&self, file: &Document, table: &Table) -> Result<Drawing, ConfigError> {
        let mut spec = file.sweep()?.unwrap_or_default();
        spec.plot.retain(|metric| table.metrics.contains(metric));
        spec.against.take_if(|key| !table.keys.iter().any(|own| same(file, own, key)));
        self.drawing(file, &spec, &table.metrics, &table.keys)
    }

    /// What is drawn, each name checked against what the sweep has.
    fn drawing(
        &self,
        document: &Document,
        spec: &SweepSpec,
        names: &[String],
        keys: &[String],
    ) -> Result<Drawing, ConfigError> {
        let metrics = match (&self.plot[..], &spec.plot[..]) {
            ([], []) => vec![DEFAULT_METRIC.to_owned()],
            ([], metrics) | (metrics, _) => metrics.to_vec(),
        };
        for (index, metric) in metrics.iter().enumerate() {
            let problem = match names.contains(metric) {
                false => Some(no_metric(metric, names)),
                true if metrics[..index].contains(metric) => {
                    Some(format!("'{metric}' is there twice"))
                }
                true => None,
            };
            if let Some(message) = problem {
                return Err(match self.plot.is_empty() {
                    true => document.wrong("sweep.plot", &message),
                    false => wrong(document, &format!("--plot {metric}"), &message),
                });
            }
        }
        let among = |wanted: &str| keys.iter().find(|key| same(document, key, wanted));
        let against = match (&self.against, &spec.against) {
            (Some(wanted), _) => Some(among(wanted).ok_or_else(|| {
                wrong(document, &format!("--against {wanted}"), &no_key(wanted, keys))
            })?),
            (None, Some(wanted)) => match among(wanted) {
                // It has one value now: another key takes its place.
                None if self.set.iter().any(|(set, _)| same(document, set, wanted)) => None,
                None => return Err(document.wrong("sweep.against", &no_key(wanted, keys))),
                some => some,
            },
            (None, None) => None,
        };
        Ok(Drawing { metrics, against: against.map(|key| (*key).clone()) })
    }
}

impl Drawing {
    /// The name of a metric's plot: `sweep.svg` if it is the only one, else with its name.
    pub fn file_name(&self, metric: &str) -> String {
        match self.metrics.len() {
            1 => "sweep.svg".to_owned(),
            _ => format!("sweep-{}.svg", metric.replace(['/', '\\'], "-")),
        }
    }
}

/// Why there is no such metric, and which there are.
pub(super) fn no_metric(metric: &str, names: &[String]) -> String {
    let near = did_you_mean(metric, names);
    format!("no metric '{metric}': {near}expected one of {}", names.join(", "))
}

/// Why nothing can be drawn against a key, and against which it can.
pub(super) fn no_key(key: &str, keys: &[String]) -> String {
    if keys.is_empty() {
        return format!("the sweep does not vary '{key}', nor any other key");
    }
    let near = did_you_mean(key, keys);
    format!("the sweep does not vary '{key}': {near}expected one of {}", keys.join(", "))
}

/// Whether two keys mean the same, such as `workload.0.size` and `workload.victim.size`.
fn same(document: &Document, key: &str, other: &str) -> bool {
    key == other || document.full_key(key) == document.full_key(other)
}

/// `--set KEY=VALUE,VALUE` as it was given.
fn said(key: &str, values: &[String]) -> String {
    format!("--set {key}={}", values.join(","))
}

/// Something on the command line is wrong.
fn wrong(document: &Document, argument: &str, message: &str) -> ConfigError {
    ConfigError {
        file: document.path().to_owned(),
        place: Place::Setting(argument.to_owned()),
        key: String::new(),
        message: message.to_owned(),
    }
}

fn seeds(document: &Document, argument: &str, values: &[String]) -> Result<Vec<u64>, ConfigError> {
    parsed_seeds(values).map_err(|message| wrong(document, argument, message))
}

fn parsed_seeds(values: &[String]) -> Result<Vec<u64>, &'static str> {
    let seeds = values.iter().map(|value| value.trim().parse().ok()).collect::<Option<Vec<u64>>>();
    match seeds {
        Some(seeds) if !seeds.is_empty() => match has_twins(&seeds) {
            true => Err("a seed is there twice: expected different ones"),
            false => Ok(seeds),
        },
        _ => {
            Err("expected seeds, whole numbers from 0 on, such as seed=1,2,3; --seeds N takes so \
                  many from the first on")
        }
    }
}

fn has_twins<T: Ord>(items: &[T]) -> bool {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

/// What varies is something that has an effect, each key once, each value once.
fn check_axes(document: &Document, sweep: &Sweep) -> Result<(), ConfigError> {
    for (index, (key, values)) in sweep.axes.iter().enumerate() {
        let full = document.full_key(key);
        let twin = sweep.axes[..index].iter().find(|(other, _)| document.full_key(other) == full);
        let message = match twin {
            Some((other, _)) => format!("is the same as {other}: expected each key once"),
            None if values.is_empty() => "has no values: expected at least one".to_owned(),
            None if full == "sweep" || full.starts_with("sweep.") => {
                "cannot vary: several metrics are drawn by --plot A --plot B, or plot = [A, B]"
                    .to_owned()
            }
            None if full == "capture" => "cannot vary: a sweep captures nothing".to_owned(),
            None if has_twins(values) => {
                "a value is there twice: expected different ones".to_owned()
            }
            None => continue,
        };
        return Err(wrong(document, &said(key, values), &format!("{key}: {message}")));
    }
    Ok(())
}

/// Notes of parameters that no run uses.
fn unused(document: &Document, axes: &[(String, Vec<String>)]) -> Result<Vec<String>, ConfigError> {
    let axis = axes.iter().find(|(key, _)| document.full_key(key) == "host.congestion");
    let unused = document.unused_parameters(axis.map_or(&[], |(_, values)| values))?;
    let note = |name: String| format!("[congestion.{name}] has no effect: no host uses it");
    Ok(unused.into_iter().map(note).collect())
}

/// The names of all metrics that runs of the sweep have, and notes of all combinations, each of
/// which is checked for that.
fn metric_names(
    document: &Document,
    sweep: &Sweep,
) -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let mut names = Vec::<String>::new();
    let mut notes = Vec::<String>::new();
    let mut seen = Vec::<BTreeSet<String>>::new();
    sweep
        .each_combination(document, |mut experiment| {
            if !experiment.plan.captures.is_empty() {
                let note = "capture has no effect: a sweep captures nothing".to_owned();
                experiment.notes.push(note);
            }
            for note in &experiment.notes {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
            }
            let workloads = experiment.plan.flows.iter().map(|flow| flow.group.clone()).collect();
            if seen.contains(&workloads) {
                return;
            }
            seen.push(workloads);
            // That of a run in which nothing happens: which there are does not depend on that.
            let outcome = Outcome {
                flows: vec![FlowRecord::default(); experiment.plan.flows.len()],
                ports: vec![PortRecord::default(); experiment.network.ports().len()],
                ..Outcome::default()
            };
            let run = Run { name: "", set: &[], experiment: &experiment, outcome: &outcome };
            for metric in run.summary().metrics() {
                if !names.contains(&metric.name) {
                    names.push(metric.name);
                }
            }
        })
        .map_err(|error: SweepError<SimError>| match error {
            SweepError::Config(error) => error,
            error => document.wrong("sweep", &error.to_string()),
        })?;
    Ok((names, notes))
}
