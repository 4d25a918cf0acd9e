//! How far two CPUs are apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use crossbeam_utils::CachePadded;
use serde::Serialize;

use super::machine::pin;

/// Round trips that are timed together; how often, and how often to see no more than whether the
/// CPUs are near.
const TURNS: u64 = 2000;
const BATCHES: u64 = 64;
const FEW_BATCHES: u64 = 8;
/// A round trip between near CPUs takes about 100 ns, between far ones about 500.
const NEAR_NS: f64 = 250.0;

/// How far two CPUs are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// One cache between them.
    Near,
    /// Several.
    Far,
    /// Now near, now far: the host moves them.
    Moving,
}

impl Distance {
    /// Of two CPUs, now.
    pub fn between(cpus: (usize, usize)) -> Result<Distance> {
        Ok(Distance::of(2000.0 * median_half(cpus, FEW_BATCHES)?))
    }

    fn of(round_trip_ns: f64) -> Distance {
        if round_trip_ns < NEAR_NS { Distance::Near } else { Distance::Far }
    }

    /// Of what began at one distance and ended at another one.
    pub fn until(self, end: Distance) -> Distance {
        if self == end { self } else { Distance::Moving }
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Distance::Near => "near",
            Distance::Far => "far",
            Distance::Moving => "moving",
        }
    }
}

/// Half a round trip of one word between two CPUs, in µs.
pub fn half_round_trip(cpus: (usize, usize)) -> Result<f64> {
    median_half(cpus, BATCHES)
}

fn median_half(cpus: (usize, usize), batches: u64) -> Result<f64> {
    let there = CachePadded::new(AtomicU64::new(0));
    let back = CachePadded::new(AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(cpus.1);
            for turn in 1..=TURNS * batches {
                wait_for(&there, turn);
                back.store(turn, Ordering::Release);
            }
        });
        let asker = scope.spawn(|| {
            // Unpinned the other answers too, and waits for all it is to be asked.
            let pinned = pin(cpus.0);
            let mut halves: Vec<f64> = (0..batches)
                .map(|batch| {
                    let start = Instant::now();
                    for turn in batch * TURNS + 1..=(batch + 1) * TURNS {
                        there.store(turn, Ordering::Release);
                        wait_for(&back, turn);
                    }
                    start.elapsed().as_nanos() as f64 / (2 * TURNS) as f64 / 1000.0
                })
                .collect();
            halves.sort_by(f64::total_cmp);
            pinned.map(|()| halves[halves.len() / 2])
        });
        asker.join().expect("the asker does not panic")
    })
}

/// How far the two CPUs are apart, in words.
pub fn probe(cpus: (usize, usize)) -> Result<String> {
    let round_trip_ns = 2000.0 * half_round_trip(cpus)?;
    let word = Distance::of(round_trip_ns).name();
    Ok(format!("{round_trip_ns:.0} ns for a round trip of one word ({word})"))
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) != value {}
}
