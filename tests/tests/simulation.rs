//! Random work under random faults, and error storms, seed by seed.
//!
//! `FERROCE_SEEDS=n` runs n seeds instead of 2,000, `FERROCE_SEED=n` runs seed n alone and records
//! its frames. A machine too slow for all seeds runs as many as it can in two minutes.

use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ferroce_tests::simulation::Outcome;
use ferroce_tests::{simulation, storm};

/// Seeds by default.
const SEEDS: u64 = 2000;
/// Seeds by default of those that are about loss recovery.
const RECOVERY_SEEDS: u64 = 1000;
/// When to stop, on a machine too slow for all of them.
const TIME_BOX: Duration = Duration::from_secs(120);
/// What the seeds together must have been through.
const MUST_HAPPEN: [&str; 16] = [
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "rcvd_seq_err",
    "completer_retry_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "retransmitted_pkts",
    "bad_icrc",
    "bad_ip_checksum",
    "duplicate_response",
    "response_gap",
    "request_gap",
    "stale_duplicate",
    "out_of_buffer",
    "bad_message",
];
/// Every so many seeds run twice.
const TWICE: u64 = 20;
/// Failures that are enough.
const MAX_FAILURES: usize = 5;

type Run = fn(u64, Option<&Path>) -> Result<Outcome, String>;

/// Seeds of one kind.
struct Campaign {
    name: &'static str,
    test: &'static str,
    seeds: u64,
    run: Run,
}

/// What the seeds have come to together.
#[derive(Default)]
struct Sum {
    done: u64,
    frames: u64,
    ops: usize,
    counters: BTreeMap<&'static str, u64>,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.done += 1;
        self.frames += outcome.frames;
        self.ops += outcome.ops;
        for (name, count) in &outcome.counters {
            *self.counters.entry(name).or_default() += count;
        }
    }
}

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

impl Campaign {
    /// A run; a panic of the transport is an error like any other.
    fn try_run(&self, seed: u64, record: Option<&Path>) -> Result<Outcome, String> {
        let result = catch_unwind(AssertUnwindSafe(|| (self.run)(seed, record)));
        result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        })
    }

    fn capture(&self, seed: u64) -> PathBuf {
        let name = format!("{}-{seed}.pcapng", self.name);
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    }

    /// Runs a seed that has failed once more, with its frames recorded.
    fn report(&self, seed: u64, message: &str) -> String {
        let path = self.capture(seed);
        let _ = self.try_run(seed, Some(&path));
        format!(
            "seed {seed}: {message}\n  replay: FERROCE_SEED={seed} cargo test -p ferroce-tests \
             --test simulation {} -- --nocapture\n  frames: {}",
            self.test,
            path.display()
        )
    }

    /// Runs all seeds, or the one asked for; none if there is nothing to sum up.
    fn run_all(&self) -> Option<Sum> {
        if let Some(seed) = number("FERROCE_SEED") {
            let path = self.capture(seed);
            let outcome = self.try_run(seed, Some(&path)).unwrap_or_else(|text| panic!("{text}"));
            println!("{} {seed}: {outcome:?}, frames in {}", self.name, path.display());
            return None;
        }
        let begin = Instant::now();
        let wanted = number("FERROCE_SEEDS");
        let seeds = wanted.unwrap_or(self.seeds);
        let mut sum = Sum::default();
        let mut failures = Vec::new();
        for seed in 0..seeds {
            if wanted.is_none() && begin.elapsed() > TIME_BOX || failures.len() == MAX_FAILURES {
                break;
            }
            match self.try_run(seed, None) {
                Ok(outcome) => {
                    sum.add(&outcome);
                    let again = seed % TWICE != 0 || self.try_run(seed, None) == Ok(outcome);
                    assert!(again, "seed {seed} does not give the same frames again");
                }
                Err(message) => failures.push(self.report(seed, &message)),
            }
        }
        let Sum { done, frames, ops, .. } = sum;
        let took = begin.elapsed().as_secs_f32();
        println!("{}: {done} of {seeds} seeds right in {took:.1} s", self.name);
        println!("{ops} work requests, {frames} frames, {:?}", sum.counters);
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        Some(sum)
    }
}

/// Work completes once, in order, with the right bytes, whatever the link does.
#[test]
fn every_seed_is_right() {
    let test = "every_seed_is_right";
    let (name, seeds) = ("simulation", SEEDS);
    let campaign = Campaign { name, test, seeds, run: simulation::run };
    let Some(sum) = campaign.run_all() else { return };
    // Seeds that never meet trouble prove little.
    for name in MUST_HAPPEN {
        assert!(sum.done < 100 || sum.counters[name] > 0, "no seed has counted {name}");
    }
}

/// Whatever happens to some QPs, others do not notice, and no work request completes twice.
#[test]
fn storms_hurt_only_their_victims() {
    let test = "storms_hurt_only_their_victims";
    let (name, seeds) = ("storm", SEEDS);
    let campaign = Campaign { name, test, seeds, run: storm::run };
    let Some(sum) = campaign.run_all() else { return };
    for name in ["retry_exceeded_err", "resp_cqe_error", "send_err"] {
        assert!(sum.done < 100 || sum.counters[name] > 0, "no seed has counted {name}");
    }
}

/// The same with selective repeat at all ends: nothing of what a program sees differs.
#[test]
fn every_seed_is_right_with_selective_repeat() {
    let test = "every_seed_is_right_with_selective_repeat";
    let (name, seeds) = ("selective", RECOVERY_SEEDS);
    let campaign = Campaign { name, test, seeds, run: simulation::run_selective };
    let Some(sum) = campaign.run_all() else { return };
    // What comes ahead of a gap is kept.
    let must_happen = MUST_HAPPEN.into_iter().filter(|&name| name != "response_gap");
    for name in must_happen.chain(["reordered_pkts"]) {
        assert!(sum.done < 100 || sum.counters[name] > 0, "no seed has counted {name}");
    }
}

/// One end alone is go-back-N, frame by frame.
#[test]
fn selective_repeat_of_one_end_changes_nothing_but_the_mark() {
    let test = "selective_repeat_of_one_end_changes_nothing_but_the_mark";
    let (name, seeds) = ("one-sided", RECOVERY_SEEDS);
    Campaign { name, test, seeds, run: simulation::run_one_sided }.run_all();
}

#[test]
fn storms_hurt_only_their_victims_with_selective_repeat() {
    let test = "storms_hurt_only_their_victims_with_selective_repeat";
    let (name, seeds) = ("selective-storm", RECOVERY_SEEDS);
    Campaign { name, test, seeds, run: storm::run_selective }.run_all();
}
