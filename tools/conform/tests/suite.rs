//! The suite against our own stack in memory.

use std::time::Instant;

use ferroce_conform::known::Known;
use ferroce_conform::report::explain;
use ferroce_conform::run::Options;
use ferroce_conform::session::{Judged, Status, memory_target, run_in_memory, run_on};
use ferroce_conform::suite::Suite;

fn suite() -> Suite {
    let suite = Suite::built_in();
    let problems: Vec<String> = suite.problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    suite
}

#[test]
fn every_scenario_passes_and_is_told_in_its_order() {
    let suite = suite();
    let (known, start) = (Known::default(), Instant::now());
    let (mut told, mut passed, mut failed) = (Vec::new(), 0, String::new());
    let tell = |judged: Judged<'_>| {
        told.push(judged.case.name.clone());
        match judged.status() {
            Status::Passed => passed += 1,
            Status::Skipped => println!("{}", explain(&judged)),
            Status::Failed | Status::Deviates => failed += &explain(&judged),
        }
        Ok::<(), ()>(())
    };
    assert_eq!(run_in_memory(&suite.cases, &known, 4, tell), Ok(()));
    println!("{passed} scenarios passed in {:?}", start.elapsed());
    assert!(failed.is_empty(), "{failed}");
    assert!(told.iter().eq(suite.cases.iter().map(|case| &case.name)));
}

/// Offering selective repeat is one bit more in requests, and nothing else.
#[test]
fn every_scenario_passes_if_the_target_offers_selective_repeat() {
    let (suite, known) = (suite(), Known::default());
    let mut failed = String::new();
    for case in &suite.cases {
        let mut target = memory_target(case).with_selective_repeat();
        let tell = |judged: Judged<'_>| {
            if matches!(judged.status(), Status::Failed | Status::Deviates) {
                failed += &explain(&judged);
            }
            Ok::<(), ()>(())
        };
        let case = std::slice::from_ref(case);
        assert_eq!(run_on(&mut target, &Options::VIRTUAL, case, &known, tell), Ok(()));
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn the_same_scenario_gives_the_same_frames_at_the_same_times() {
    let suite = suite();
    let known = Known::default();
    let run = |jobs| {
        let mut transcripts = Vec::new();
        let keep = |judged: Judged<'_>| {
            transcripts.push((judged.outcome.transcript, judged.outcome.time));
            Ok::<(), ()>(())
        };
        assert_eq!(run_in_memory(&suite.cases, &known, jobs, keep), Ok(()));
        transcripts
    };
    let (first, second) = (run(1), run(3));
    for ((case, first), second) in suite.cases.iter().zip(first).zip(second) {
        assert_eq!(first, second, "{}", case.name);
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> = suite().cases.into_iter().map(|case| case.name).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all);
}
