//! Carries out a scenario: plays the peer, calls the target's verbs, and judges what the target does.
//!
//! Sentences are carried out in their order. What the target tells is sorted as it comes: frames
//! and completions into a queue of their QP, events into one. An expectation takes the first of its
//! queue, and waits for it until its deadline. What nobody has asked for stays in its queue, where
//! the next expectation meets it, or the end of the scenario.

mod blocks;
mod call;
pub(crate) mod cm;
mod expect;
mod failure;
pub(crate) mod fields;
mod given;
mod make;
mod observe;
mod passage;
mod peer;
mod post;
mod qp;
mod queues;
mod scope;
mod stage;
mod state;
mod transcript;

use std::time::Duration;

use crate::ast::Scenario;
use crate::check;
use crate::target::{QpMake, Target};

pub use failure::{Failure, ScriptError, Verdict};
pub use transcript::{Entry, Side};

/// How long the runner waits, and for what not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// An expectation that says nothing of it, for what it expects.
    pub within: Duration,
    /// At the end of a scenario, for what nobody expects.
    pub end: Duration,
    /// Between two looks at the state of a QP, a memory or a counter that is not yet as it must be.
    pub look_again: Duration,
    /// A silence, at least: what an answer takes that there should not be.
    pub silence: Duration,
    /// By how much a frame may seem to come too early: the one before it was seen late.
    pub slack: Duration,
    /// Code of the ACK timeout of QPs that are not given one: long enough that nothing is sent
    /// again because the peer is slow, short enough that it is before `within` is over.
    pub timeout: u8,
    /// Events that the target is known not to raise; none of them is waited for.
    pub unraised: Vec<String>,
    /// Fields of which the target is known not to keep what every frame must.
    pub unkept: Vec<String>,
}

impl Options {
    /// For a target on a virtual clock.
    pub const VIRTUAL: Options = Options {
        within: Duration::from_millis(100),
        end: Duration::from_millis(20),
        look_again: Duration::from_millis(1),
        silence: Duration::ZERO,
        slack: Duration::ZERO,
        timeout: 14,
        unraised: Vec::new(),
        unkept: Vec::new(),
    };
    /// For a target across a link.
    pub const WIRE: Options = Options {
        within: Duration::from_secs(1),
        end: Duration::from_millis(20),
        look_again: Duration::from_millis(5),
        silence: Duration::from_millis(20),
        slack: Duration::from_millis(10),
        timeout: 17,
        unraised: Vec::new(),
        unkept: Vec::new(),
    };
}

/// How a scenario ended, and what happened until then.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it has shown.
    pub verdict: Verdict,
    /// Frames, completions, events and calls in their order.
    pub transcript: Vec<Entry>,
    /// On the target's clock.
    pub time: Duration,
}

/// A QP of which nothing is said, to try out a target with.
pub(crate) fn trial_qp() -> QpMake {
    make::plain_qp(Options::WIRE.timeout)
}

/// Carries out a scenario against a target.
pub fn run(scenario: &Scenario, target: &mut dyn Target, options: &Options) -> Outcome {
    let nothing = |verdict| Outcome { verdict, transcript: Vec::new(), time: Duration::ZERO };
    if let Some(error) = check::scenario(scenario).into_iter().next() {
        return nothing(Verdict::Invalid(error));
    }
    let features = &target.description().features;
    if let Some(need) = scenario.needs.iter().find(|need| !features.contains(&need.value)) {
        return nothing(Verdict::Skipped(format!("the target has no `{}`", need.value)));
    }
    if let Err(broken) = target.begin() {
        return nothing(Verdict::Broken(broken));
    }
    let mut stage = stage::Stage::new(scenario, target, options);
    let verdict = stage.play(scenario).map_or_else(Verdict::from, |()| Verdict::Passed);
    let time = stage.target.now();
    Outcome { verdict, transcript: stage.transcript, time }
}
