//! Many scenarios, one after the other or several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::known::Known;
use crate::memory::{CONGESTION, MemoryTarget, Network};
use crate::run::{Options, Outcome, Verdict, run};
use crate::suite::Case;
use crate::target::Target;

/// How a scenario ended.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// The scenario.
    pub case: &'a Case,
    /// What it has shown, and what happened.
    pub outcome: Outcome,
    /// Why it is expected to fail, if it is.
    pub known: Option<&'a str>,
    /// How long it took the runner.
    pub took: Duration,
}

/// What becomes of a scenario in the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The target did all that it must.
    Passed,
    /// It did not, or could not be asked.
    Failed,
    /// It did not, as is known of it.
    Deviates,
    /// It cannot do what the scenario needs.
    Skipped,
}

impl Status {
    /// All, in the order of reports.
    pub const ALL: [Status; 4] =
        [Status::Passed, Status::Failed, Status::Deviates, Status::Skipped];

    /// In a word.
    pub const fn word(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::Deviates => "deviates",
            Status::Skipped => "skipped",
        }
    }
}

impl Judged<'_> {
    /// What becomes of it in the totals.
    pub fn status(&self) -> Status {
        match (&self.outcome.verdict, self.known) {
            (Verdict::Passed, _) => Status::Passed,
            (Verdict::Skipped(_), _) => Status::Skipped,
            (Verdict::Failed(_), Some(_)) => Status::Deviates,
            (Verdict::Failed(_) | Verdict::Invalid(_) | Verdict::Broken(_), _) => Status::Failed,
        }
    }
}

/// Carries out scenarios against a target, in their order, and tells of each.
///
/// # Errors
/// What `tell` says.
pub fn run_on<'a, E>(
    target: &mut dyn Target,
    options: &Options,
    cases: &'a [Case],
    known: &'a Known,
    mut tell: impl FnMut(Judged<'a>) -> Result<(), E>,
) -> Result<(), E> {
    cases.iter().try_for_each(|case| tell(judge(case, target, options, known)))
}

/// Carries out scenarios against our own stack in memory, `jobs` at a time, and tells of each in
/// their order.
///
/// # Errors
/// What `tell` says; the rest is not told then.
pub fn run_in_memory<'a, E>(
    cases: &'a [Case],
    known: &'a Known,
    jobs: usize,
    mut tell: impl FnMut(Judged<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, cases.len().max(1)) {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                while let Some((index, case)) = take(next, cases) {
                    let mut target = memory_target(case);
                    let judged = judge(case, &mut target, &Options::VIRTUAL, known);
                    if sender.send((index, judged)).is_err() {
                        // Nobody listens any more.
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Those that are done before one that comes first.
        let mut early: Vec<Option<Judged<'a>>> = cases.iter().map(|_| None).collect();
        let mut told = 0;
        while let Ok((index, judged)) = receiver.recv() {
            early[index] = Some(judged);
            while let Some(judged) = early.get_mut(told).and_then(Option::take) {
                told += 1;
                if let Err(error) = tell(judged) {
                    next.store(cases.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    })
}

fn take<'a>(next: &AtomicUsize, cases: &'a [Case]) -> Option<(usize, &'a Case)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    cases.get(index).map(|case| (index, case))
}

/// A target in memory such as a scenario needs.
pub fn memory_target(case: &Case) -> MemoryTarget {
    let target = MemoryTarget::new(network(case));
    if needs(case, CONGESTION) { target.with_congestion_control() } else { target }
}

fn needs(case: &Case, word: &str) -> bool {
    case.scenario.needs.iter().any(|need| need.value == word)
}

/// The network that a scenario needs.
fn network(case: &Case) -> Network {
    let needs = |word| needs(case, word);
    match (needs("ipv6"), needs("vlan")) {
        (true, _) => Network::Ipv6,
        (false, true) => Network::Vlan,
        (false, false) => Network::Ipv4,
    }
}

fn judge<'a>(
    case: &'a Case,
    target: &mut dyn Target,
    options: &Options,
    known: &'a Known,
) -> Judged<'a> {
    let start = Instant::now();
    let outcome = match known.is_fatal(&case.name) {
        Some(reason) => Outcome {
            verdict: Verdict::Skipped(format!("not carried out: {reason}")),
            transcript: Vec::new(),
            time: Duration::ZERO,
        },
        None => run(&case.scenario, target, options),
    };
    Judged { case, outcome, known: known.reason(&case.name), took: start.elapsed() }
}
