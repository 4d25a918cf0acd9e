//! Faults of the link from the input: which frames are lost, come twice, late, or damaged.

use ferroce::frame::fault::{Action, Class, Condition, Corruption, Place, Rule, Which};

use crate::input::Input;

/// Rules at most.
const RULES_MAX: usize = 16;
/// Delays are below 2^20 ns, about the ACK timeout.
const DELAY_BITS: usize = 20;

/// Rules, each about a few frames that one node sends.
pub fn rules(input: &mut Input) -> Vec<Rule> {
    let count = input.below(RULES_MAX + 1);
    (0..count).map(|_| rule(input)).collect()
}

fn rule(input: &mut Input) -> Rule {
    let what = input.byte();
    let first = u64::from(input.byte()) + 1;
    let detail = input.byte();
    let nanos = 1 << (usize::from(detail) % DELAY_BITS);
    let action = match what & 7 {
        0..=2 => Action::Drop,
        3 => Action::Duplicate,
        4 => Action::Delay { nanos },
        5 => Action::Reorder { nanos },
        6 => Action::Corrupt(Corruption::of(Place::Byte(usize::from(detail)))),
        _ => Action::Corrupt(Corruption::ANY_BIT),
    };
    let which = Which::Nth(first..=first + u64::from(what >> 4 & 3));
    let from = Condition::FromNode(usize::from(what >> 3 & 1));
    Rule { action, which, class: Class::default(), conditions: vec![from] }
}
