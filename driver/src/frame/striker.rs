//! Faults where frames pass: strikes them by rules, and holds back those that arrive later or more
//! than once until they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_stack::time::Instant;

use super::fault::{Fate, Injector, Rule};
use crate::sync::{Arc, Mutex, lock};

/// Frames held back at a time; what is more is lost, as in a switch.
const HELD_MAX: usize = 1 << 14;

/// What a frame does after it was struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Struck {
    /// It goes on at once, changed perhaps.
    Passes,
    /// It is lost, or what there is of it is held back: see [`Striker::take_due`].
    Stays,
}

/// Rules at work on the frames of one direction.
#[derive(Debug)]
pub(crate) struct Striker {
    /// Of all directions: rules count the frames of each.
    injector: Arc<Mutex<Injector>>,
    /// Which node of the rules sends the frames.
    node: usize,
    /// By when they are due and in which order they were sent.
    held: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    sequence: u64,
    lost: u64,
}

impl Striker {
    /// One for the frames of each of `N` nodes, from 0; rules without effect cost nothing.
    pub fn of_nodes<const N: usize>(rules: &[Rule], seed: u64) -> [Option<Striker>; N] {
        let injector = Arc::new(Mutex::new(Injector::new(rules.iter().cloned(), seed)));
        std::array::from_fn(|node| {
            (!rules.is_empty()).then(|| Striker {
                injector: injector.clone(),
                node,
                held: BinaryHeap::new(),
                sequence: 0,
                lost: 0,
            })
        })
    }

    /// Strikes a frame that passes, and may change it.
    pub fn strike(&mut self, now: Instant, frame: &mut [u8]) -> Struck {
        let fate = lock(&self.injector).strike(now, self.node, frame);
        let Fate { dropped, duplicates, delay_ns, .. } = fate;
        if dropped {
            self.lost += 1;
            return Struck::Stays;
        }
        // Copies of one that is not late follow it.
        let is_late = delay_ns > 0;
        for copy in u64::from(!is_late)..=u64::from(duplicates) {
            if self.held.len() >= HELD_MAX {
                self.lost += 1;
                break;
            }
            self.sequence += 1;
            let due = now + delay_ns + copy;
            self.held.push(Reverse((due, self.sequence, frame.to_vec())));
        }
        if is_late { Struck::Stays } else { Struck::Passes }
    }

    /// When the next of those held back is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse((at, ..))| *at)
    }

    /// One that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.next_due().filter(|at| *at <= now)?;
        self.held.pop().map(|Reverse((_, _, frame))| frame)
    }

    /// How many frames have been lost here.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikers(rules: &str) -> [Striker; 2] {
        Striker::of_nodes(&Rule::parse_all(rules).unwrap(), 1).map(Option::unwrap)
    }

    #[test]
    fn frames_held_back_take_bounded_memory() {
        let [mut striker, _] = strikers("delay any by 3600s");
        for _ in 0..HELD_MAX + 5 {
            assert_eq!(striker.strike(Instant::ZERO, &mut [0; 64]), Struck::Stays);
        }
        assert_eq!((striker.held.len(), striker.lost()), (HELD_MAX, 5));
    }

    #[test]
    fn what_is_held_back_comes_when_it_is_due_and_in_order() {
        let [mut striker, _] = strikers("delay 1st any by 5ns\nduplicate 2nd any");
        let mut strike = |byte| striker.strike(Instant::ZERO, &mut [byte; 64]);
        assert_eq!([1, 2, 3].map(&mut strike), [Struck::Stays, Struck::Passes, Struck::Passes]);
        let mut due_at = |nanos| striker.take_due(Instant::from_nanos(nanos)).map(|frame| frame[0]);
        assert_eq!([0, 1, 1, 4, 5, 9].map(&mut due_at), [None, Some(2), None, None, Some(1), None]);
        assert_eq!(striker.next_due(), None);
    }

    #[test]
    fn both_directions_count_for_one_rule_unless_it_names_a_node() {
        let passes =
            |striker: &mut Striker| striker.strike(Instant::ZERO, &mut [0; 64]) == Struck::Passes;
        let [mut out, mut back] = strikers("drop 2nd any");
        assert_eq!([passes(&mut out), passes(&mut back), passes(&mut out)], [true, false, true]);
        assert_eq!([out.lost(), back.lost()], [0, 1]);
        let [mut out, mut back] = strikers("drop any from node 1");
        assert_eq!([passes(&mut out), passes(&mut back)], [true, false]);
    }

    #[test]
    fn without_rules_there_is_none() {
        assert!(Striker::of_nodes::<2>(&[], 1).iter().all(Option::is_none));
    }
}
