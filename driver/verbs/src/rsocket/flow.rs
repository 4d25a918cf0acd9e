//! Flow control of a stream, in numbers alone: what may be sent, what has arrived, and when the
//! peer is to be told that there is room again.
//!
//! A sender needs a work request of its own, room in its buffer, a message the receiver has
//! granted, and a target: half a buffer of the receiver, which it fills from the front and never
//! leaves before it is full. A receiver's two halves take turns, so that its buffer is a ring and
//! the sum of the lengths in the messages says where the next bytes are. Nothing here believes
//! what a peer says: a message that claims more than was granted ends the connection.

use std::collections::VecDeque;

use super::protocol::{Message, Target};

/// Bytes of free buffer below which nothing is sent, so that a stream is not cut into crumbs.
pub const LOW_WATER: u32 = 2048;
/// Work requests set aside for messages that are not data. Beyond that many at a time there is no
/// room for them at the receiver: it makes the sender try again.
pub const CONTROL_SLOTS: u32 = 4;

/// A peer broke the rules: it said it had written what it could not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// Two pieces of a ring, the second at its start or empty: offsets and lengths in bytes.
pub type Pieces = [(u32, u32); 2];

/// The sending side.
#[derive(Clone, Debug)]
pub struct SendFlow {
    /// Number of the next message, and the one at which to stop.
    number: u16,
    limit: u16,
    /// What is left of the target in use.
    target: Target,
    /// The buffer: its size, where the next bytes go, what is free.
    size: u32,
    head: u32,
    free: u32,
    /// Work requests for data that are free, and all there are.
    slots: u32,
    all_slots: u32,
    /// Control messages under way.
    control: u32,
}

impl SendFlow {
    /// For a buffer of `size` bytes and a send queue of `queue` work requests. Nothing can be sent
    /// before [`SendFlow::start`].
    pub fn new(size: u32, queue: u32) -> SendFlow {
        let slots = queue.saturating_sub(CONTROL_SLOTS);
        SendFlow {
            number: 0,
            limit: 0,
            target: Target::default(),
            size,
            head: 0,
            free: size,
            slots,
            all_slots: slots,
            control: 0,
        }
    }

    /// What the peer grants at first.
    pub fn start(&mut self, credits: u16, target: Target) {
        self.limit = credits;
        self.target = target;
    }

    /// The peer grants messages up to `limit`.
    pub fn grant(&mut self, limit: u16) {
        self.limit = limit;
    }

    /// Whether the target in use is full: the next one is wanted.
    pub fn wants_target(&self) -> bool {
        self.target.length == 0
    }

    /// The next target.
    pub fn set_target(&mut self, target: Target) {
        self.target = target;
    }

    /// Bytes that can be sent in one message; 0 if none can.
    pub fn room(&self) -> u32 {
        self.buffer_room().min(self.target.length).min(Message::MAX_DATA)
    }

    /// Bytes that one message can carry if it is not aimed at the target; 0 if none can be sent.
    pub fn buffer_room(&self) -> u32 {
        let may = self.slots > 0 && self.free >= LOW_WATER && self.number != self.limit;
        if may { self.free } else { 0 }
    }

    /// Where the next `len` bytes go in the buffer, at most [`SendFlow::buffer_room`].
    pub fn place(&self, len: u32) -> Pieces {
        let first = len.min(self.size - self.head);
        [(self.head, first), (0, len - first)]
    }

    /// Sends `len` bytes to the target, at most [`SendFlow::room`], which lie in their
    /// [place](SendFlow::place) or are inline. Returns where they go.
    pub fn reserve(&mut self, len: u32, inline: bool) -> (u64, u32) {
        assert!(len <= self.room());
        let (addr, rkey) = (self.target.addr, self.target.rkey);
        self.target.addr = self.target.addr.wrapping_add(u64::from(len));
        self.target.length -= len;
        self.reserve_other(len, inline, true);
        (addr, rkey)
    }

    /// Sends `len` bytes elsewhere, with a message of their own or none.
    pub fn reserve_other(&mut self, len: u32, inline: bool, message: bool) {
        assert!(len <= self.buffer_room());
        self.number = self.number.wrapping_add(u16::from(message));
        self.slots -= 1;
        if !inline {
            self.free -= len;
            self.head = (self.head + len) % self.size;
        }
    }

    /// A work request with data has completed, which had `len` bytes in the buffer.
    pub fn completed(&mut self, len: u32) {
        self.slots += 1;
        self.free += len;
        assert!(self.slots <= self.all_slots && self.free <= self.size);
    }

    /// Whether a control message can be sent.
    pub fn has_control(&self) -> bool {
        self.control < CONTROL_SLOTS
    }

    /// A control message goes on its way; only if there [is room](SendFlow::has_control).
    pub fn control(&mut self) {
        assert!(self.has_control());
        self.control += 1;
    }

    /// It has completed.
    pub fn control_completed(&mut self) {
        self.control -= 1;
    }

    /// Whether all that was sent has arrived.
    pub fn is_idle(&self) -> bool {
        self.control == 0 && self.slots == self.all_slots
    }
}

/// The receiving side.
#[derive(Clone, Debug)]
pub struct RecvFlow {
    size: u32,
    /// Lengths of the messages that are not read, the first without what has been read of it.
    unread: VecDeque<u32>,
    /// Their sum.
    unread_len: u32,
    /// Messages that are granted and read, modulo 2^16, and how many may be unread.
    number: u16,
    most_unread: u16,
    /// Messages read since the last grant.
    ungranted: u32,
    /// Where the next unread byte is.
    tail: u32,
    /// Bytes granted and not written.
    granted: u32,
    /// Bytes read and not granted anew, and where they begin.
    free: u32,
    free_at: u32,
}

/// What to tell the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The message at which it must stop.
    pub limit: u16,
    /// A target for its list: offset and length.
    pub target: Option<(u32, u32)>,
}

impl RecvFlow {
    /// For a buffer of `size` bytes, an even number, and a receive queue of `queue`. The first
    /// half is granted.
    pub fn new(size: u32, queue: u16) -> RecvFlow {
        let half = size / 2;
        RecvFlow {
            size,
            unread: VecDeque::new(),
            unread_len: 0,
            number: 0,
            most_unread: queue,
            ungranted: 0,
            tail: 0,
            granted: half,
            free: size - half,
            free_at: half,
        }
    }

    /// A message says that `len` bytes have been written.
    ///
    /// # Errors
    /// If so many cannot have been, or there are too many messages.
    pub fn arrive(&mut self, len: u32) -> Result<(), Violation> {
        if len > self.granted || self.unread.len() >= usize::from(self.most_unread) {
            return Err(Violation);
        }
        self.granted -= len;
        self.unread_len += len;
        match len {
            0 => self.message_read(),
            len => self.unread.push_back(len),
        }
        Ok(())
    }

    /// A message without data, that counts.
    pub fn message_read(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.ungranted = self.ungranted.saturating_add(1);
    }

    /// Whether there is something to read.
    pub fn has_data(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Where the first unread bytes are, at most `most` and those of at most all messages.
    pub fn peek(&self, most: usize) -> Pieces {
        let len = u32::try_from(most).unwrap_or(u32::MAX).min(self.unread_len);
        let first = len.min(self.size - self.tail);
        [(self.tail, first), (0, len - first)]
    }

    /// The first `len` unread bytes have been read, at most those of [`RecvFlow::peek`].
    pub fn read(&mut self, len: u32) {
        let mut left = len;
        while left > 0 {
            let first = self.unread.front_mut().expect("no more is read than was there");
            if *first > left {
                *first -= left;
                break;
            }
            left -= *first;
            self.unread.pop_front();
            self.message_read();
        }
        self.unread_len -= len;
        self.tail = ((u64::from(self.tail) + u64::from(len)) % u64::from(self.size)) as u32;
        self.free += len;
    }

    /// Whether the peer is to be told of room.
    pub fn owes_grant(&self) -> bool {
        self.free >= self.size / 2 || self.ungranted >= u32::from(self.most_unread / 2).max(1)
    }

    /// What to tell it; it counts as told.
    pub fn grant(&mut self) -> Grant {
        self.ungranted = 0;
        let limit = self.number.wrapping_add(self.most_unread);
        let half = self.size / 2;
        if self.free < half {
            return Grant { limit, target: None };
        }
        let at = self.free_at;
        self.free -= half;
        self.granted += half;
        self.free_at = (at + half) % self.size;
        Grant { limit, target: Some((at, half)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(addr: u64, length: u32) -> Target {
        Target { addr, rkey: 9, length }
    }

    fn sender() -> SendFlow {
        let mut flow = SendFlow::new(8192, 16);
        flow.start(2, target(1000, 5000));
        flow
    }

    #[test]
    fn a_target_is_filled_from_the_front_and_to_the_end() {
        let mut flow = sender();
        assert_eq!(flow.room(), 5000);
        assert_eq!(flow.place(4000), [(0, 4000), (0, 0)]);
        assert_eq!(flow.reserve(4000, false), (1000, 9));
        assert_eq!(flow.room(), 1000);
        assert_eq!(flow.reserve(1000, false), (5000, 9));
        assert!(flow.wants_target());
        assert_eq!(flow.room(), 0);
        flow.set_target(target(7000, 5000));
        assert_eq!(flow.room(), 0, "both messages are used");
        flow.grant(3);
        assert_eq!(flow.room(), 3192);
    }

    #[test]
    fn the_buffer_is_a_ring() {
        let mut flow = sender();
        flow.start(100, target(0, 1 << 20));
        flow.reserve(6000, false);
        flow.completed(6000);
        assert_eq!(flow.place(3000), [(6000, 2192), (0, 808)]);
        flow.reserve(3000, false);
        flow.reserve(64, true);
        flow.completed(0);
        flow.completed(3000);
        assert_eq!(flow.place(7384), [(808, 7384), (0, 0)]);
        flow.reserve(7384, false);
        flow.completed(7384);
        assert_eq!(flow.place(10), [(0, 10), (0, 0)]);
    }

    #[test]
    fn nothing_is_sent_without_work_requests_or_room() {
        let mut flow = SendFlow::new(4096, 6);
        flow.start(u16::MAX, target(0, 1 << 20));
        flow.reserve(2049, false);
        assert_eq!(flow.room(), 0, "less than the low-water mark is left");
        flow.completed(2049);
        flow.reserve(1, true);
        flow.reserve(1, true);
        assert_eq!(flow.room(), 0, "two of six work requests are for data");
        assert!(!flow.is_idle());
        flow.completed(0);
        flow.completed(0);
        assert!(flow.is_idle() && flow.room() == 4096);
        for _ in 0..CONTROL_SLOTS {
            flow.control();
        }
        assert!(!flow.has_control() && !flow.is_idle());
        flow.control_completed();
        assert!(flow.has_control());
    }

    #[test]
    fn message_numbers_wrap() {
        let mut flow = SendFlow::new(4096, 16);
        flow.start(0, target(0, u32::MAX));
        for number in 1..=70_000u32 {
            flow.grant(number as u16);
            assert!(flow.room() > 0);
            flow.reserve(1, true);
            flow.completed(0);
            assert_eq!(flow.room(), 0);
        }
    }

    #[test]
    fn halves_are_granted_in_turn_as_they_are_read() {
        let mut flow = RecvFlow::new(100, 8);
        assert!(flow.owes_grant(), "the second half is free from the start");
        assert_eq!(flow.grant(), Grant { limit: 8, target: Some((50, 50)) });
        assert!(!flow.owes_grant());
        flow.arrive(30).unwrap();
        flow.arrive(20).unwrap();
        flow.arrive(40).unwrap();
        assert_eq!(flow.peek(usize::MAX), [(0, 90), (0, 0)]);
        flow.read(49);
        assert!(!flow.owes_grant());
        flow.read(1);
        assert_eq!(flow.grant(), Grant { limit: 10, target: Some((0, 50)) });
        flow.arrive(60).unwrap();
        assert_eq!(flow.peek(usize::MAX), [(50, 50), (0, 50)]);
        assert_eq!(flow.peek(10), [(50, 10), (0, 0)]);
        flow.read(100);
        assert!(!flow.has_data());
        assert_eq!(flow.grant(), Grant { limit: 12, target: Some((50, 50)) });
        assert_eq!(flow.grant(), Grant { limit: 12, target: Some((0, 50)) });
        assert_eq!(flow.arrive(101), Err(Violation));
        assert_eq!(flow.arrive(100), Ok(()));
    }

    #[test]
    fn many_small_messages_are_granted_before_half_a_buffer_is_read() {
        let mut flow = RecvFlow::new(1000, 4);
        flow.grant();
        for _ in 0..4 {
            flow.arrive(1).unwrap();
        }
        assert_eq!(flow.arrive(1), Err(Violation), "more messages than were granted");
        flow.read(1);
        assert!(!flow.owes_grant());
        flow.read(1);
        assert!(flow.owes_grant());
        assert_eq!(flow.grant(), Grant { limit: 6, target: None });
    }

    #[test]
    fn a_peer_cannot_claim_more_than_it_was_granted() {
        let mut flow = RecvFlow::new(100, 8);
        assert_eq!(flow.arrive(51), Err(Violation));
        assert_eq!(flow.arrive(Message::MAX_DATA), Err(Violation));
        assert_eq!(flow.arrive(50), Ok(()));
        assert_eq!(flow.arrive(1), Err(Violation));
        for _ in 0..100_000 {
            assert_eq!(flow.arrive(0), Ok(()), "an empty message takes no room");
        }
    }

    #[test]
    fn a_stream_arrives_whole_whatever_the_sizes() {
        let mut seed = 1u64;
        let mut random = move |below: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % u64::from(below)) as u32
        };
        let (mut ring, mut sent, mut got) = (vec![0u8; 6000], 0u32, 0u32);
        let (mut tx, mut rx) = (SendFlow::new(5000, 12), RecvFlow::new(6000, 5));
        let mut list = VecDeque::new();
        tx.start(5, target(0, 3000));
        while got < 500_000 {
            if tx.wants_target()
                && let Some(next) = list.pop_front()
            {
                tx.set_target(next);
            }
            let room = tx.room();
            if room > 0 {
                let len = 1 + random(room);
                let (to, _) = tx.reserve(len, false);
                for index in 0..len {
                    ring[(to + u64::from(index)) as usize] = (sent + index) as u8;
                }
                sent += len;
                rx.arrive(len).unwrap();
                tx.completed(len);
            }
            for (at, len) in rx.peek(random(4000) as usize) {
                for index in 0..len {
                    assert_eq!(ring[(at + index) as usize], (got + index) as u8);
                }
                got += len;
                rx.read(len);
            }
            if rx.owes_grant() {
                let grant = rx.grant();
                tx.grant(grant.limit);
                list.extend(grant.target.map(|(at, len)| target(u64::from(at), len)));
                assert!(list.len() <= 2);
            }
        }
    }
}
