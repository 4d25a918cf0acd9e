//! Faults where frames pass: strikes them by rules, and holds back those that arrive later or more
//! than once until they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ferroce_stack::time::Instant;

use super::fault::{Fate, Injector, Rule, Way};
use crate::sync::{Arc, Mutex, lock};

/// Frames held back at a time; what is more is lost, as in a switch.
const HELD_MAX: usize = 1 << 14;

/// What is left of a frame after it was struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struck {
    /// How long it is.
    pub len: usize,
    /// Whether it goes on at once. Else it is lost, or what there is of it is held back: see
    /// [`Striker::take_due`].
    pub passes: bool,
}

/// Rules at work on the frames of one direction.
#[derive(Debug)]
pub struct Striker {
    /// Of all directions for which rules count together.
    injector: Arc<Mutex<Injector>>,
    /// Which node of the rules sends the frames,
    node: usize,
    /// and which they are for, if that is known.
    peer: Option<usize>,
    /// By when they are due and in which order they were sent.
    held: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    sequence: u64,
    lost: u64,
}

impl Striker {
    /// Those for what passes between two sides: frames that node 0 sends to node 1, and those the
    /// other way. A rule counts both. Where there are no rules there is nothing.
    pub fn of_passage(rules: &[Rule], seed: u64) -> [Option<Striker>; 2] {
        let strikers = Striker::between(seed);
        for rule in rules {
            strikers[0].add(rule.clone());
        }
        strikers.map(|striker| (!rules.is_empty()).then_some(striker))
    }

    /// As [`of_passage`](Striker::of_passage), with no rules yet.
    pub fn between(seed: u64) -> [Striker; 2] {
        let injector = Arc::new(Mutex::new(Injector::new([], seed)));
        [0, 1].map(|node| Striker::new(injector.clone(), node, Some(1 - node)))
    }

    /// Another rule is at work from here on, for all directions that count together.
    pub fn add(&self, rule: Rule) {
        lock(&self.injector).add(rule);
    }

    /// Those for one host, node 0: what it sends, and what it receives. The latter is struck only
    /// by rules that ask for it: all else has been struck where it was sent.
    pub fn of_host(rules: &[Rule], seed: u64) -> [Option<Striker>; 2] {
        let (incoming, outgoing): (Vec<Rule>, Vec<Rule>) =
            rules.iter().cloned().partition(Rule::is_incoming);
        let striker = |rules: Vec<Rule>, node, peer| {
            (!rules.is_empty())
                .then(|| Striker::new(Arc::new(Mutex::new(Injector::new(rules, seed))), node, peer))
        };
        [striker(outgoing, 0, None), striker(incoming, 1, Some(0))]
    }

    fn new(injector: Arc<Mutex<Injector>>, node: usize, peer: Option<usize>) -> Striker {
        Striker { injector, node, peer, held: BinaryHeap::new(), sequence: 0, lost: 0 }
    }

    /// Strikes a frame that passes, and may change it. `source_qp` sends it, if that is known.
    pub fn strike(&mut self, now: Instant, source_qp: Option<u32>, frame: &mut [u8]) -> Struck {
        let way = Way { from: self.node, to: self.peer, source_qp };
        let fate = lock(&self.injector).strike(now, way, frame);
        let Fate { dropped, duplicates, delay_ns, cut, .. } = fate;
        let len = frame.len() - cut;
        if dropped {
            self.lost += 1;
            return Struck { len, passes: false };
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
            self.held.push(Reverse((due, self.sequence, frame[..len].to_vec())));
        }
        Struck { len, passes: !is_late }
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

    fn rules(text: &str) -> Vec<Rule> {
        Rule::parse_all(text).unwrap()
    }

    fn strikers(text: &str) -> [Striker; 2] {
        Striker::of_passage(&rules(text), 1).map(Option::unwrap)
    }

    fn passes(striker: &mut Striker) -> bool {
        striker.strike(Instant::ZERO, None, &mut [0; 64]).passes
    }

    #[test]
    fn frames_held_back_take_bounded_memory() {
        let [mut striker, _] = strikers("delay any by 3600s");
        for _ in 0..HELD_MAX + 5 {
            assert!(!passes(&mut striker));
        }
        assert_eq!((striker.held.len(), striker.lost()), (HELD_MAX, 5));
    }

    #[test]
    fn what_is_held_back_comes_when_it_is_due_and_in_order() {
        let [mut striker, _] = strikers("delay 1st any by 5ns\nduplicate 2nd any");
        let mut strike = |byte| striker.strike(Instant::ZERO, None, &mut [byte; 64]).passes;
        assert_eq!([1, 2, 3].map(&mut strike), [false, true, true]);
        let mut due_at = |nanos| striker.take_due(Instant::from_nanos(nanos)).map(|frame| frame[0]);
        assert_eq!([0, 1, 1, 4, 5, 9].map(&mut due_at), [None, Some(2), None, None, Some(1), None]);
        assert_eq!(striker.next_due(), None);
    }

    #[test]
    fn both_directions_count_for_one_rule_unless_it_names_a_node() {
        let [mut out, mut back] = strikers("drop 2nd any");
        assert_eq!([passes(&mut out), passes(&mut back), passes(&mut out)], [true, false, true]);
        assert_eq!([out.lost(), back.lost()], [0, 1]);
        for rule in ["drop any from node 1", "drop any to node 0", "drop incoming"] {
            let [mut out, mut back] = strikers(rule);
            assert_eq!([passes(&mut out), passes(&mut back)], [true, false], "{rule}");
        }
        let [mut out, mut back] = strikers("drop outgoing");
        assert_eq!([passes(&mut out), passes(&mut back)], [false, true]);
    }

    #[test]
    fn a_host_is_struck_by_what_it_receives_only_where_a_rule_says_so() {
        let of_host = |text| Striker::of_host(&rules(text), 1);
        assert!(matches!(of_host("drop any"), [Some(_), None]));
        assert!(matches!(of_host("drop any from node 0"), [Some(_), None]));
        assert!(matches!(of_host("drop incoming"), [None, Some(_)]));
        let [out, back] = of_host("drop 2nd any\ndrop 1st incoming").map(Option::unwrap);
        let [mut out, mut back] = [out, back];
        assert_eq!([passes(&mut back), passes(&mut out), passes(&mut out)], [false, true, false]);
    }

    #[test]
    fn without_rules_there_is_none() {
        assert!(Striker::of_passage(&[], 1).iter().all(Option::is_none));
        assert!(Striker::of_host(&[], 1).iter().all(Option::is_none));
    }
}
