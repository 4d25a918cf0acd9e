//! How far two CPUs are apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use crossbeam_utils::CachePadded;

use super::machine::pin;

/// Round trips that are timed together, and how often.
const TURNS: u64 = 2000;
const BATCHES: u64 = 64;
/// A round trip between near CPUs takes about 100 ns, between far ones about 500.
const NEAR_NS: f64 = 250.0;

/// Half a round trip of one word between two CPUs, in µs.
pub fn half_round_trip(cpus: (usize, usize)) -> Result<f64> {
    let there = CachePadded::new(AtomicU64::new(0));
    let back = CachePadded::new(AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Unpinned it answers too.
            let _ = pin(cpus.1);
            for turn in 1..=TURNS * BATCHES {
                wait_for(&there, turn);
                back.store(turn, Ordering::Release);
            }
        });
        let asker = scope.spawn(|| {
            pin(cpus.0)?;
            let mut batches: Vec<f64> = (0..BATCHES)
                .map(|batch| {
                    let start = Instant::now();
                    for turn in batch * TURNS + 1..=(batch + 1) * TURNS {
                        there.store(turn, Ordering::Release);
                        wait_for(&back, turn);
                    }
                    start.elapsed().as_nanos() as f64 / (2 * TURNS) as f64 / 1000.0
                })
                .collect();
            batches.sort_by(f64::total_cmp);
            Ok(batches[batches.len() / 2])
        });
        asker.join().expect("the asker does not panic")
    })
}

/// How far the two CPUs are apart, in words.
pub fn probe(cpus: (usize, usize)) -> Result<String> {
    let round_trip_ns = 2000.0 * half_round_trip(cpus)?;
    let word = if round_trip_ns < NEAR_NS { "near" } else { "far" };
    Ok(format!("{round_trip_ns:.0} ns for a round trip of one word ({word})"))
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) != value {}
}
