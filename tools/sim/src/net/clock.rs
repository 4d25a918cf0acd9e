//! What will happen, by time. Events of one moment happen in the order they were set.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds of a nanosecond. Time is counted in the former: in whole nanoseconds all frames of
/// fast links would be too long.
pub const PER_NANO: u64 = 1000;

/// The end of time: 13 days.
pub const END: u64 = (1 << 60) - 1;

const INDEX_BITS: u32 = 25;
/// Of an event: its kind has three.
const EVENT_BITS: u32 = INDEX_BITS + 3;
/// So many that no run comes to the end of them.
const ORDER_BITS: u32 = 40;
/// Ports, hosts, flows and frames there may be, of each.
pub const INDEX_MAX: usize = 1 << INDEX_BITS;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first frame on the way from this port has arrived at the other end.
    Arrive(u32),
    /// This port has sent its last frame whole.
    Free(u32),
    /// A class of this port may have been paused for long enough.
    PauseEnd(u32),
    /// Pauses that this port has asked for would run out soon.
    Refresh(u32),
    /// The device of this host has a timer that may have run out.
    Timer(u32),
    /// This flow posts its next message.
    Post(u32),
    /// A frame that a fault holds back arrives.
    Late(u32),
    /// The next flows begin.
    Begin,
    /// Queues and rates are looked at.
    Sample,
}

impl Event {
    fn encode(self) -> u32 {
        let (kind, index) = match self {
            Event::Arrive(port) => (0, port),
            Event::Free(port) => (1, port),
            Event::PauseEnd(port) => (2, port),
            Event::Refresh(port) => (3, port),
            Event::Timer(host) => (4, host),
            Event::Post(flow) => (5, flow),
            Event::Late(frame) => (6, frame),
            Event::Begin => (7, 0),
            Event::Sample => (7, 1),
        };
        kind << INDEX_BITS | index
    }

    fn decode(code: u32) -> Event {
        let index = code & (INDEX_MAX as u32 - 1);
        match code >> INDEX_BITS {
            0 => Event::Arrive(index),
            1 => Event::Free(index),
            2 => Event::PauseEnd(index),
            3 => Event::Refresh(index),
            4 => Event::Timer(index),
            5 => Event::Post(index),
            6 => Event::Late(index),
            _ if index == 0 => Event::Begin,
            _ => Event::Sample,
        }
    }
}

/// Picoseconds of a slot, as a power of two.
const SLOT_BITS: u32 = 12;
/// Slots of the near future: 17 microseconds.
const SLOTS: usize = 4096;

/// Events to come. Those of the near future, most of them, stand in slots, of which only the
/// present one is in order: that is cheaper than to keep all of them so.
#[derive(Debug)]
pub struct Clock {
    /// The present slot, its last event the next. Moment, order and event are one number: comparing
    /// it is all the work there is.
    present: Vec<u128>,
    /// Number of the present slot, from the beginning of time.
    slot: u64,
    /// The slots behind it, by number modulo [`SLOTS`].
    near: Vec<Vec<u128>>,
    /// Which of them hold something, as bits, and how many events that is.
    occupied: [u64; SLOTS / 64],
    near_count: usize,
    /// What was set for later than all slots.
    far: BinaryHeap<Reverse<u128>>,
    order: u64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            present: Vec::new(),
            slot: 0,
            near: vec![Vec::new(); SLOTS],
            occupied: [0; SLOTS / 64],
            near_count: 0,
            far: BinaryHeap::new(),
            order: 0,
        }
    }
}

impl Clock {
    /// Has something happen at `at`, in picoseconds; not before what has happened last.
    #[inline]
    pub fn set(&mut self, at: u64, event: Event) {
        let at = at.min(END);
        self.order += 1;
        let order = u128::from(self.order) << EVENT_BITS;
        let key = u128::from(at) << (ORDER_BITS + EVENT_BITS) | order | u128::from(event.encode());
        let slot = at >> SLOT_BITS;
        if slot <= self.slot {
            let place = self.present.partition_point(|&other| other > key);
            self.present.insert(place, key);
        } else if slot - self.slot < SLOTS as u64 {
            let index = slot as usize % SLOTS;
            self.near[index].push(key);
            self.occupied[index / 64] |= 1 << (index % 64);
            self.near_count += 1;
        } else {
            self.far.push(Reverse(key));
        }
    }

    /// The next event and its moment.
    #[inline]
    pub fn next(&mut self) -> Option<(u64, Event)> {
        if self.present.is_empty() {
            self.advance();
        }
        let event = self.present.pop()?;
        Some((moment(event), Event::decode(event as u32 & ((1 << EVENT_BITS) - 1))))
    }

    /// Makes the next slot that holds something the present one, if there is one.
    fn advance(&mut self) {
        let far = self.far.peek().map(|&Reverse(event)| moment(event) >> SLOT_BITS);
        let Some(slot) = self.next_near().into_iter().chain(far).min() else { return };
        self.slot = slot;
        let index = slot as usize % SLOTS;
        if self.occupied[index / 64] >> (index % 64) & 1 == 1 {
            self.occupied[index / 64] &= !(1 << (index % 64));
            std::mem::swap(&mut self.present, &mut self.near[index]);
            self.near_count -= self.present.len();
        }
        while let Some(&Reverse(event)) = self.far.peek()
            && moment(event) >> SLOT_BITS == slot
        {
            self.present.push(event);
            self.far.pop();
        }
        self.present.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The first slot behind the present one that holds something.
    fn next_near(&self) -> Option<u64> {
        if self.near_count == 0 {
            return None;
        }
        let start = (self.slot as usize + 1) % SLOTS;
        let words = SLOTS / 64;
        // The first word once more at the end, for the slots before the start.
        (0..=words).find_map(|step| {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            let index = word * 64 + (bits != 0).then(|| bits.trailing_zeros())? as usize;
            Some(self.slot + 1 + ((index + SLOTS - start) % SLOTS) as u64)
        })
    }
}

/// The moment of an event.
fn moment(event: u128) -> u64 {
    (event >> (ORDER_BITS + EVENT_BITS)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_order() {
        let mut clock = Clock::default();
        let last = INDEX_MAX as u32 - 1;
        let all = [
            (5, Event::Free(9)),
            (3, Event::Late(last)),
            (5, Event::Arrive(1)),
            (END, Event::Begin),
            (3, Event::Sample),
            (3, Event::Post(0)),
            (4, Event::Timer(last)),
            (4, Event::PauseEnd(2)),
            (4, Event::Refresh(1)),
        ];
        all.iter().for_each(|&(at, event)| clock.set(at, event));
        let mut sorted = all;
        sorted.sort_by_key(|&(at, _)| at);
        let happened: Vec<(u64, Event)> = std::iter::from_fn(|| clock.next()).collect();
        assert_eq!(happened, sorted);
    }

    /// Against a list that is searched: near and far, now and never.
    #[test]
    fn events_come_as_from_a_sorted_list() {
        let mut rng = ferroce::rand::Rng::new(3);
        let mut clock = Clock::default();
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        for number in 0..50_000 {
            if rng.chance(0.52) {
                let reach = [0, 100, 5_000, 1_000_000, 40_000_000, 1 << 40][rng.below(6) as usize];
                let at = now + rng.below(reach + 1);
                clock.set(at, Event::Late(number));
                list.push((at, number));
            } else {
                let first = list.iter().enumerate().min_by_key(|&(_, &event)| event);
                let first = first.map(|(place, _)| place).map(|place| list.remove(place));
                let event = clock.next();
                assert_eq!(event, first.map(|(at, number)| (at, Event::Late(number))));
                now = event.map_or(now, |(at, _)| at);
            }
        }
    }
}
