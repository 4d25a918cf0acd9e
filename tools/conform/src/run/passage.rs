//! The way between peer and target, on which the rules of `fault` strike.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ferroce::frame::fault::{Fate, Injector, Rule, Way};
use ferroce_stack::time::Instant;

use crate::target::{Broken, Call, Description, Observation, Reply, Target};

/// Frames held back at a time; what is more is lost.
const HELD_MAX: usize = 1 << 14;
/// Chances are the same in each run.
const SEED: u64 = 1;

/// Who sends a frame, by the numbers of the rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Peer = 0,
    Target = 1,
}

/// A frame that is late.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    due: Duration,
    /// In which order they were sent.
    sequence: u64,
    sender: Sender,
    frame: Vec<u8>,
}

/// The target, behind a network that loses, repeats, delays and changes frames by rules.
pub(super) struct Passage<'a> {
    target: &'a mut dyn Target,
    injector: Injector,
    /// The first that is due on top.
    held: BinaryHeap<Reverse<Late>>,
    sequence: u64,
}

impl<'a> Passage<'a> {
    pub fn new(target: &'a mut dyn Target) -> Passage<'a> {
        let injector = Injector::new([], SEED);
        Passage { target, injector, held: BinaryHeap::new(), sequence: 0 }
    }

    /// Another rule strikes from here on.
    pub fn add(&mut self, rule: Rule) {
        self.injector.add(rule);
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
        match self.strike(Sender::Peer, frame.to_vec()) {
            Some(frame) => self.target.inject(&frame),
            None => Ok(()),
        }
    }

    /// What happens next, or nothing once it is `until`.
    pub fn observe(&mut self, until: Duration) -> Result<Option<Observation>, Broken> {
        loop {
            let now = self.now();
            if let Some(Late { sender, frame, .. }) = self.take_due(now) {
                match sender {
                    Sender::Peer => self.target.inject(&frame)?,
                    Sender::Target => {
                        return Ok(Some(Observation::Frame { at: now, bytes: frame }));
                    }
                }
                continue;
            }
            let due = self.next_due();
            match self.target.observe(due.map_or(until, |due| due.min(until)))? {
                Some(Observation::Frame { at, bytes }) => {
                    if let Some(bytes) = self.strike(Sender::Target, bytes) {
                        return Ok(Some(Observation::Frame { at, bytes }));
                    }
                }
                None if due.is_some_and(|due| due <= until) => {}
                observation => return Ok(observation),
            }
        }
    }

    fn next_due(&self) -> Option<Duration> {
        self.held.peek().map(|Reverse(late)| late.due)
    }

    fn take_due(&mut self, now: Duration) -> Option<Late> {
        self.next_due().filter(|due| *due <= now)?;
        self.held.pop().map(|Reverse(late)| late)
    }

    /// What of a frame goes on at once.
    fn strike(&mut self, sender: Sender, mut frame: Vec<u8>) -> Option<Vec<u8>> {
        let now = self.target.now();
        let node = sender as usize;
        let way = Way { from: node, to: Some(1 - node), source_qp: None };
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let fate = self.injector.strike(Instant::from_nanos(nanos), way, &mut frame);
        let Fate { dropped, duplicates, delay_ns, cut, .. } = fate;
        if dropped {
            return None;
        }
        frame.truncate(frame.len() - cut);
        let is_late = delay_ns > 0;
        let due = now + Duration::from_nanos(delay_ns);
        for _ in u32::from(!is_late)..=duplicates {
            if self.held.len() < HELD_MAX {
                self.sequence += 1;
                let (sequence, frame) = (self.sequence, frame.clone());
                self.held.push(Reverse(Late { due, sequence, sender, frame }));
            }
        }
        (!is_late).then_some(frame)
    }
}
