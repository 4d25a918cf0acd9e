//! Two nodes on a wire without delay, on one clock. A filter sees every frame and may drop it.

use ferroce_stack::verbs::{QpAttr, QpState, QpType, Qpn};

use crate::expect::Seen;
use crate::node::Node;

/// Frames one run may move; more means that two devices never come to rest.
const MAX_FRAMES: usize = 200_000;

/// Two nodes, `a` at 10.0.0.1 and `b` at 10.0.0.2.
#[derive(Debug)]
pub struct Link {
    /// One end.
    pub a: Node,
    /// The other.
    pub b: Node,
}

impl Default for Link {
    fn default() -> Link {
        Link { a: Node::new(1), b: Node::new(2) }
    }
}

/// A frame on its way.
#[derive(Debug)]
pub struct Passing {
    /// `a` sent it.
    pub from_a: bool,
    /// The frame.
    pub seen: Seen,
}

impl Link {
    /// Connects two QPs, in RESET, of any connected types, both with `change`d attributes.
    pub fn connect_with(&mut self, a: Qpn, b: Qpn, change: impl Fn(&mut QpAttr)) {
        let mut of_a = self.a.attr_to(&self.b.entry, b);
        let mut of_b = self.b.attr_to(&self.a.entry, a);
        change(&mut of_a);
        change(&mut of_b);
        self.a.bring_up(a, &of_a, QpState::Rts);
        self.b.bring_up(b, &of_b, QpState::Rts);
    }

    /// Two connected QPs of a type.
    pub fn pair(&mut self, qp_type: QpType) -> (Qpn, Qpn) {
        let (a, b) = (self.a.create(qp_type), self.b.create(qp_type));
        self.connect_with(a, b, |_| {});
        (a, b)
    }

    /// Moves frames until both ends are silent; time stands still.
    pub fn settle(&mut self) -> Vec<Passing> {
        self.settle_with(|_| true)
    }

    /// As [`Link::settle`]; frames for which `passes` is false are lost.
    pub fn settle_with(&mut self, mut passes: impl FnMut(&Passing) -> bool) -> Vec<Passing> {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            for from_a in [true, false] {
                let (from, to) =
                    if from_a { (&mut self.a, &mut self.b) } else { (&mut self.b, &mut self.a) };
                while let Some(seen) = from.next_frame() {
                    let passing = Passing { from_a, seen };
                    if passes(&passing) {
                        // A frame that is ignored is counted by the device; tests look there.
                        to.receive(&passing.seen.frame).ok();
                    }
                    all.push(passing);
                    assert!(all.len() < MAX_FRAMES, "the link never comes to rest");
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }

    /// Lets `ns` nanoseconds pass on both clocks, moving frames.
    pub fn run_for(&mut self, ns: u64) -> Vec<Passing> {
        self.run_for_with(ns, |_| true)
    }

    /// As [`Link::run_for`], with losses.
    pub fn run_for_with(
        &mut self,
        ns: u64,
        mut passes: impl FnMut(&Passing) -> bool,
    ) -> Vec<Passing> {
        let until = self.a.now.max(self.b.now) + ns;
        let mut all = Vec::new();
        loop {
            all.extend(self.settle_with(&mut passes));
            let next = [&self.a, &self.b].into_iter().filter_map(|n| n.device.poll_timeout()).min();
            let at = match next {
                Some(at) if at <= until => at.max(self.a.now),
                _ => break,
            };
            for node in [&mut self.a, &mut self.b] {
                node.now = at;
                node.device.handle_timeout(at);
            }
        }
        self.a.now = until;
        self.b.now = until;
        all
    }
}
