//! The way between peer and target, on which the rules of `fault` strike.

use std::time::Duration;

use ferroce::frame::fault::Rule;
use ferroce::frame::striker::Striker;
use ferroce_stack::time::Instant;

use crate::target::{Broken, Call, Description, Observation, Reply, Target};

/// Chances are the same in each run.
const SEED: u64 = 1;

/// The target, behind a network that loses, repeats, delays and changes frames by rules. Of these the
/// peer is node 0, the target node 1.
pub(super) struct Passage<'a> {
    target: &'a mut dyn Target,
    from_peer: Striker,
    from_target: Striker,
}

impl<'a> Passage<'a> {
    pub fn new(target: &'a mut dyn Target) -> Passage<'a> {
        let [from_peer, from_target] = Striker::between(SEED);
        Passage { target, from_peer, from_target }
    }

    /// Another rule strikes from here on.
    pub fn add(&mut self, rule: Rule) {
        self.from_peer.add(rule);
    }

    pub fn description(&self) -> &Description {
        self.target.description()
    }

    pub fn now(&self) -> Duration {
        self.target.now()
    }

    pub fn call(&mut self, call: &Call) -> Result<Reply, Broken> {
        self.target.call(call)
    }

    /// The peer sends a frame.
    pub fn inject(&mut self, frame: &[u8]) -> Result<(), Broken> {
        let now = instant(self.now());
        match strike(&mut self.from_peer, now, frame.to_vec()) {
            Some(frame) => self.target.inject(&frame),
            None => Ok(()),
        }
    }

    /// What happens next, or nothing once it is `until`.
    pub fn observe(&mut self, until: Duration) -> Result<Option<Observation>, Broken> {
        loop {
            let at = self.now();
            while let Some(frame) = self.from_peer.take_due(instant(at)) {
                self.target.inject(&frame)?;
            }
            if let Some(bytes) = self.from_target.take_due(instant(at)) {
                return Ok(Some(Observation::Frame { at, bytes }));
            }
            let due =
                [&self.from_peer, &self.from_target].into_iter().filter_map(Striker::next_due);
            let due = due.min().map(|due| Duration::from_nanos(due.nanos()));
            match self.target.observe(due.map_or(until, |due| due.min(until)))? {
                Some(Observation::Frame { at, bytes }) => {
                    if let Some(bytes) = strike(&mut self.from_target, instant(at), bytes) {
                        return Ok(Some(Observation::Frame { at, bytes }));
                    }
                }
                None if due.is_some_and(|due| due <= until) => {}
                observation => return Ok(observation),
            }
        }
    }
}

/// What of a frame goes on at once.
fn strike(striker: &mut Striker, now: Instant, mut frame: Vec<u8>) -> Option<Vec<u8>> {
    let struck = striker.strike(now, None, &mut frame);
    frame.truncate(struck.len);
    struck.passes.then_some(frame)
}

fn instant(time: Duration) -> Instant {
    Instant::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
