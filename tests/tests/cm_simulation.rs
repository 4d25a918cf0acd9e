//! Connection management under loss, repetition, reordering, forgery, restarts and owners who do
//! anything at any time.

use std::collections::BTreeMap;

use ferroce::rand::Rng;
use ferroce_tests::cm_simulation::run;

#[test]
fn every_connection_ends_and_both_sides_know() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..4000 {
        // Shown if the run fails.
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut bytes = 0..200 + 200 * (seed % 8);
        for counters in run(&mut || bytes.next().map(|_| rng.next_u64() as u8)) {
            for (name, count) in counters.iter() {
                *seen.entry(name).or_default() += count;
            }
        }
    }
    // One connection in some, or the simulation says nothing.
    for (name, count) in seen {
        let is_rare = matches!(name, "send_queue_full" | "other_class");
        println!("{name} {count}");
        assert!(is_rare || count > 100, "{name} {count}");
    }
}
