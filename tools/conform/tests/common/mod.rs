//! Scenarios of a test, against our own stack.

use ferroce_conform::known::Known;
use ferroce_conform::report::{Totals, explain};
use ferroce_conform::session::{Judged, run_in_memory};
use ferroce_conform::suite::Suite;

/// The scenario of which `body` is the sentences.
pub fn suite(body: &str) -> Suite {
    let mut suite = Suite::default();
    let text = format!("ferroce scenarios 1\nscenario s\n\"What it shows.\"\ntags t\n{body}\n");
    suite.add("file", "file.scenario", &text);
    suite
}

/// Runs a scenario and gives it to `tell`.
pub fn run<T>(body: &str, known: &str, tell: impl Fn(&Judged<'_>) -> T) -> T {
    let suite = suite(body);
    let problems: Vec<String> = suite.problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let known = Known::parse(known).unwrap();
    let mut told = None;
    let keep = |judged: Judged<'_>| {
        told = Some(tell(&judged));
        Ok::<(), ()>(())
    };
    assert_eq!(run_in_memory(&suite.cases, &known, 1, keep), Ok(()));
    told.unwrap()
}

/// What is said of a scenario.
#[allow(dead_code, reason = "not every test needs it")]
pub fn said(body: &str) -> String {
    run(body, "", explain)
}

/// What is wrong with a scenario that is not carried out.
#[allow(dead_code, reason = "not every test needs it")]
pub fn mistakes(body: &str) -> String {
    let suite = suite(body);
    assert!(suite.cases.is_empty(), "it is written right");
    let problems: Vec<String> = suite.problems.iter().map(ToString::to_string).collect();
    problems.join("\n")
}

/// The totals of one scenario.
#[allow(dead_code, reason = "not every test needs it")]
pub fn totals(body: &str, known: &str) -> Totals {
    run(body, known, |judged| {
        let mut totals = Totals::default();
        totals.count(judged);
        totals
    })
}
