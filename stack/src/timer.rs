//! When to look at which QP again: a heap with at most one entry for each QP.
//!
//! A QP holds its own deadline and moves it later on every acknowledgement without a word here;
//! its entry then comes up early, and the device arms it again. So restarting a timer, which
//! happens for each packet, costs nothing, and the heap holds no stale entries.

use crate::time::Instant;

const ABSENT: u32 = u32::MAX;

/// QP indices ordered by the moment to look at them.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    heap: Vec<(Instant, u32)>,
    /// Place of each index in the heap, or `ABSENT`.
    places: Vec<u32>,
}

impl TimerQueue {
    /// The earliest moment.
    pub fn next(&self) -> Option<Instant> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// Has `index` come up at `at` or before.
    #[inline]
    pub fn arm(&mut self, index: u32, at: Instant) {
        if self.places.len() <= index as usize {
            self.places.resize(index as usize + 1, ABSENT);
        }
        let place = match self.places[index as usize] {
            ABSENT => {
                self.heap.push((at, index));
                self.heap.len() - 1
            }
            place if self.heap[place as usize].0 <= at => return,
            place => {
                self.heap[place as usize].0 = at;
                place as usize
            }
        };
        self.rise(place);
    }

    /// Takes out the earliest index whose moment is not after `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(at, index) = self.heap.first()?;
        if at > now {
            return None;
        }
        self.heap.swap_remove(0);
        self.places[index as usize] = ABSENT;
        if !self.heap.is_empty() {
            self.sink();
        }
        Some(index)
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            let parent = (place - 1) / 2;
            self.heap.swap(place, parent);
            self.note(place);
            place = parent;
        }
        self.note(place);
    }

    fn sink(&mut self) {
        let mut place = 0;
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let smallest = children
                .into_iter()
                .filter(|&child| child < self.heap.len())
                .min_by_key(|&child| self.heap[child]);
            match smallest {
                Some(child) if self.heap[child] < self.heap[place] => {
                    self.heap.swap(place, child);
                    self.note(place);
                    place = child;
                }
                _ => break,
            }
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        self.places[self.heap[place].1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Against a naive model: random arms and pops come out in order of time, one for each index.
    #[test]
    fn pops_in_order_like_a_model() {
        let mut queue = TimerQueue::default();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = (state >> 33) as u32 % 50;
            let at = (state >> 40) % 1000;
            if state >> 62 != 0 {
                queue.arm(index, Instant::from_nanos(at));
                let entry = model.entry(index).or_insert(at);
                *entry = at.min(*entry);
            } else {
                let expected = model.iter().map(|(&i, &at)| (at, i)).min();
                assert_eq!(queue.next().map(Instant::nanos), expected.map(|(at, _)| at));
                let due = expected.filter(|&(due, _)| due <= at).map(|(_, index)| index);
                assert_eq!(queue.pop_due(Instant::from_nanos(at)), due);
                if let Some(index) = due {
                    model.remove(&index);
                }
            }
        }
    }
}
