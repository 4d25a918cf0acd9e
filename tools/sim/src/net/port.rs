//! An end of a link: what waits to leave by it, what is on its way, and what it has been told to
//! hold back.

use ferroce::rand::Rng;

use super::clock::PER_NANO;
use super::frames::{Frames, Queue};
use crate::outcome::PortRecord;
use crate::plan::{CLASSES, FRAMING_LEN, Link, Node};

/// An end of a link.
#[derive(Debug)]
pub struct Port {
    /// The host or switch it belongs to.
    pub node: Node,
    /// Bits per second of its link.
    pub rate: u64,
    /// Picoseconds from end to end.
    pub delay: u64,
    /// What it sends and receives is captured.
    pub is_captured: bool,
    /// When it has sent what it was given, in picoseconds.
    pub free_at: u64,
    /// An event says so.
    pub awaits_free: bool,
    /// What waits, by class.
    pub queues: [Queue; CLASSES],
    /// Classes with something in their queue, as bits.
    occupied: u8,
    /// Bytes of all queues.
    pub queued: u64,
    /// The most of them since [`Port::take_longest`] was called.
    longest: u64,
    /// Pause frames that wait: before everything else, and never paused.
    pub control: Queue,
    /// Frames on their way to the other end.
    pub flight: Queue,
    /// What the other end has it hold back.
    pub pause: Paused,
    /// What has come in by it, of a switch.
    pub ingress: Ingress,
    /// Decides which frames are marked.
    pub rng: Rng,
    /// What has been seen.
    pub record: PortRecord,
}

/// Classes that stand paused.
#[derive(Debug, Default)]
pub struct Paused {
    /// They, as bits.
    pub classes: u8,
    until: [u64; CLASSES],
    since: [u64; CLASSES],
}

/// What has come in by a port of a switch and is in its buffer.
#[derive(Debug, Default)]
pub struct Ingress {
    /// Bytes, of each class.
    pub bytes: [u64; CLASSES],
    /// Of these, bytes in the headroom.
    pub headroom: [u64; CLASSES],
    /// Classes that the other end has been told to pause, as bits.
    pub pausing: u8,
    /// An event says when to tell it again.
    pub awaits_refresh: bool,
}

impl Port {
    /// An end of `link`.
    pub fn new(node: Node, link: &Link, is_captured: bool, rng: Rng) -> Port {
        Port {
            node,
            rate: link.rate,
            delay: link.delay * PER_NANO,
            is_captured,
            free_at: 0,
            awaits_free: false,
            queues: Default::default(),
            occupied: 0,
            queued: 0,
            longest: 0,
            control: Queue::default(),
            flight: Queue::default(),
            pause: Paused::default(),
            ingress: Ingress::default(),
            rng,
            record: PortRecord::default(),
        }
    }

    /// Picoseconds that a frame of so many bytes takes to leave.
    #[inline]
    pub fn frame_time(&self, len: u32) -> u64 {
        ((u64::from(len) + FRAMING_LEN) * 8 * 1_000_000_000_000).div_ceil(self.rate)
    }

    /// Adds a frame to the queue of its class.
    #[inline]
    pub fn push(&mut self, frames: &mut Frames, frame: u32) {
        let &super::frames::Meta { class, len, .. } = frames.meta(frame);
        self.queues[usize::from(class)].push(frames, frame);
        self.occupied |= 1 << class;
        self.queued += u64::from(len);
        self.longest = self.longest.max(self.queued);
    }

    /// The most bytes that were queued since the last call.
    pub fn take_longest(&mut self) -> u64 {
        let longest = std::mem::replace(&mut self.longest, self.queued);
        self.record.max_queue = self.record.max_queue.max(longest);
        longest
    }

    /// Whether something waits that may leave.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.occupied & !self.pause.classes != 0 || !self.control.is_empty()
    }

    /// Takes what leaves next: of the highest class that is not paused.
    #[inline]
    pub fn pop(&mut self, frames: &Frames) -> Option<u32> {
        if let Some(frame) = self.control.pop(frames) {
            return Some(frame);
        }
        let class = (self.occupied & !self.pause.classes).checked_ilog2()?;
        let queue = &mut self.queues[class as usize];
        let frame = queue.pop(frames)?;
        if queue.is_empty() {
            self.occupied &= !(1 << class);
        }
        self.queued -= u64::from(frames.meta(frame).len);
        Some(frame)
    }

    /// A class is to pause until `until`; at `now` or before that is the end of its pause.
    pub fn hold(&mut self, class: usize, now: u64, until: u64) {
        if until <= now {
            self.resume(class, now);
            return;
        }
        self.record.pauses[class] += 1;
        self.pause.until[class] = until;
        if self.pause.classes >> class & 1 == 0 {
            self.pause.classes |= 1 << class;
            self.pause.since[class] = now;
        }
    }

    /// Ends the pauses that are over by `now`, or all of them.
    pub fn end_pauses(&mut self, now: u64, all: bool) {
        for class in 0..CLASSES {
            if all || self.pause.until[class] <= now {
                self.resume(class, now);
            }
        }
    }

    fn resume(&mut self, class: usize, now: u64) {
        if self.pause.classes >> class & 1 == 1 {
            self.pause.classes &= !(1 << class);
            self.record.paused[class] += (now - self.pause.since[class]) / PER_NANO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(rate: u64) -> Port {
        let link = Link { ends: [Node::Host(0), Node::Switch(0)], rate, delay: 1 };
        Port::new(Node::Host(0), &link, false, Rng::new(1))
    }

    #[test]
    fn a_frame_takes_its_bits_and_framing() {
        // 1250 bytes are 10000 bits.
        assert_eq!(port(1_000_000_000).frame_time(1226), 10_000_000);
        assert_eq!(port(100_000_000_000).frame_time(1226), 100_000);
        assert_eq!(port(3).frame_time(0), 64_000_000_000_000);
    }

    #[test]
    fn higher_classes_go_first_unless_they_are_paused() {
        let mut frames = Frames::new(64);
        let mut port = port(1);
        let mut push = |port: &mut Port, class| {
            let frame = frames.take();
            *frames.meta_mut(frame) =
                super::super::frames::Meta { class, len: 10, ..Default::default() };
            port.push(&mut frames, frame);
        };
        for class in [0, 3, 6, 3] {
            push(&mut port, class);
        }
        port.hold(6, 0, 100);
        let next = |port: &mut Port| {
            let frame = port.pop(&frames)?;
            Some(frames.meta(frame).class)
        };
        assert_eq!(next(&mut port), Some(3));
        port.end_pauses(99, false);
        assert_eq!(next(&mut port), Some(3));
        port.end_pauses(100, false);
        assert_eq!(next(&mut port), Some(6));
        assert!(port.has_ready());
        port.hold(0, 200_000, 300_000);
        assert!(!port.has_ready());
        assert_eq!(next(&mut port), None);
        port.hold(0, 250_000, 0);
        assert_eq!(next(&mut port), Some(0));
        assert_eq!((port.queued, port.take_longest(), port.take_longest()), (0, 40, 0));
        assert_eq!((port.record.pauses[0], port.record.paused[0]), (1, 50));
    }
}
