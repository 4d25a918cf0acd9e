//! Our connection management does what the scenarios about it say, on every network.

use ferroce_conform::memory::{MemoryTarget, Network};
use ferroce_conform::parse::parse;
use ferroce_conform::run::{Options, Verdict, run};

const SCENARIOS: &str = include_str!("../../../tests/scenarios/cm.scenario");

#[test]
fn connections_are_managed_as_the_scenarios_say() {
    let file = parse(SCENARIOS).unwrap_or_else(|error| panic!("{error}"));
    let mut failed = Vec::new();
    for network in Network::ALL {
        let mut target = MemoryTarget::new(network);
        for scenario in &file.scenarios {
            let outcome = run(scenario, &mut target, &Options::VIRTUAL);
            if !matches!(outcome.verdict, Verdict::Passed | Verdict::Skipped(_)) {
                failed.push((network, scenario.name.value.as_str(), outcome.verdict));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
