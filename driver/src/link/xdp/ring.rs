//! The rings of an AF_XDP socket: entries of one side, taken by the other.
//!
//! Two counters that only grow, modulo 2^32, say how many entries have been put and taken. Each
//! side has its own copy of its counter and publishes it for a batch.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crate::link::mapping::Mapping;

/// Where the parts of a ring are in its mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Counter of entries put.
    pub producer: usize,
    /// Counter of entries taken.
    pub consumer: usize,
    /// `XDP_RING_*`.
    pub flags: usize,
    /// The entries.
    pub entries: usize,
}

/// A ring in memory.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    layout: Layout,
    size: u32,
}

/// Of a frame, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Where it begins in the UMEM, in bytes.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
    /// The next descriptor is of the same frame.
    pub continues: bool,
}

/// What a ring holds, as one or two words.
pub trait Entry: Copy {
    /// In words.
    const WORDS: usize;

    /// Writes it to the ring's memory.
    fn put(self, memory: &Mapping, at: usize);

    /// Reads it from there.
    fn take(memory: &Mapping, at: usize) -> Self;
}

impl Entry for u64 {
    const WORDS: usize = 1;

    #[inline]
    fn put(self, memory: &Mapping, at: usize) {
        memory.word(at).store(self, Ordering::Relaxed);
    }

    #[inline]
    fn take(memory: &Mapping, at: usize) -> u64 {
        memory.word(at).load(Ordering::Relaxed)
    }
}

impl Entry for Descriptor {
    const WORDS: usize = 2;

    #[inline]
    fn put(self, memory: &Mapping, at: usize) {
        let options = if self.continues { libc::XDP_PKT_CONTD } else { 0 };
        memory.word(at).store(self.address, Ordering::Relaxed);
        memory.half(at + 8).store(self.len, Ordering::Relaxed);
        memory.half(at + 12).store(options, Ordering::Relaxed);
    }

    #[inline]
    fn take(memory: &Mapping, at: usize) -> Descriptor {
        Descriptor {
            address: memory.word(at).load(Ordering::Relaxed),
            len: memory.half(at + 8).load(Ordering::Relaxed),
            continues: memory.half(at + 12).load(Ordering::Relaxed) & libc::XDP_PKT_CONTD != 0,
        }
    }
}

impl Ring {
    /// Maps the ring of `size` entries of type `E` that a socket has at `offset`.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn map<E: Entry>(
        socket: BorrowedFd<'_>,
        offset: i64,
        layout: Layout,
        size: u32,
    ) -> io::Result<Ring> {
        let len = layout.entries + size as usize * E::WORDS * 8;
        Ok(Ring { memory: Mapping::of(socket, offset, len)?, layout, size })
    }

    #[inline]
    fn entry_at<E: Entry>(&self, index: u32) -> usize {
        self.layout.entries + (index & (self.size - 1)) as usize * E::WORDS * 8
    }

    /// Whether the kernel wants a call to go on.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        let flags = self.memory.half(self.layout.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Our side of a ring whose entries the kernel takes.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    next: u32,
    published: u32,
}

impl Producer {
    /// That of a new ring.
    pub fn new(ring: Ring) -> Producer {
        Producer { ring, next: 0, published: 0 }
    }

    /// How many entries the kernel has not taken yet, of those put.
    #[inline]
    pub fn pending(&self) -> u32 {
        let taken = self.ring.memory.half(self.ring.layout.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(taken)
    }

    /// Puts an entry, which the kernel sees after [`Producer::publish`]. There must be room: no
    /// ring here is smaller than the number of chunks it may have to hold.
    #[inline]
    pub fn put<E: Entry>(&mut self, entry: E) {
        entry.put(&self.ring.memory, self.ring.entry_at::<E>(self.next));
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what was put.
    #[inline]
    pub fn publish(&mut self) {
        // Whoever spins leaves the kernel's cache lines alone.
        if self.published != self.next {
            self.published = self.next;
            self.ring.memory.half(self.ring.layout.producer).store(self.next, Ordering::Release);
        }
    }

    /// As [`Ring::needs_wakeup`].
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// Our side of a ring whose entries the kernel puts.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    next: u32,
    published: u32,
    /// Entries before this one may be taken.
    end: u32,
}

impl Consumer {
    /// That of a new ring.
    pub fn new(ring: Ring) -> Consumer {
        Consumer { ring, next: 0, published: 0, end: 0 }
    }

    /// Gives the kernel the room of entries taken, looks for new ones, of which at most `limit`
    /// may be taken before the next look, and says whether there are any.
    #[inline]
    pub fn look(&mut self, limit: u32) -> bool {
        let Ring { memory, layout, size } = &self.ring;
        if self.published != self.next {
            self.published = self.next;
            memory.half(layout.consumer).store(self.next, Ordering::Release);
        }
        let put = memory.half(layout.producer).load(Ordering::Acquire);
        let there = put.wrapping_sub(self.next).min(limit).min(*size);
        self.end = self.next.wrapping_add(there);
        there > 0
    }

    /// Whether there are entries to take before the next look.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.next != self.end
    }

    /// Takes an entry that [`Consumer::look`] has found.
    #[inline]
    pub fn take<E: Entry>(&mut self) -> Option<E> {
        if !self.has_next() {
            return None;
        }
        let entry = E::take(&self.ring.memory, self.ring.entry_at::<E>(self.next));
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { producer: 0, consumer: 64, flags: 128, entries: 192 };

    fn ring(counters: u32) -> Ring {
        let memory = Mapping::anonymous(4096).unwrap();
        memory.half(0).store(counters, Ordering::Relaxed);
        memory.half(64).store(counters, Ordering::Relaxed);
        Ring { memory, layout: LAYOUT, size: 4 }
    }

    #[test]
    fn entries_come_out_as_they_went_in_over_the_wrap() {
        let start = u32::MAX - 1;
        let mut producer = Producer { ring: ring(start), next: start, published: start };
        let entries = [0, 1, 2, 3].map(|index| Descriptor {
            address: index << 33,
            len: 60 + index as u32,
            continues: index % 2 == 1,
        });
        entries.iter().for_each(|entry| producer.put(*entry));
        assert_eq!(producer.pending(), 4);
        let mut consumer =
            Consumer { ring: producer.ring, next: start, published: start, end: start };
        assert!(!consumer.look(9), "nothing is published");
        consumer.ring.memory.half(0).store(start.wrapping_add(4), Ordering::Relaxed);
        assert!(consumer.look(3));
        for entry in &entries[..3] {
            assert_eq!(consumer.take(), Some(*entry));
        }
        assert_eq!(consumer.take::<Descriptor>(), None, "beyond the limit");
        assert!(consumer.look(9));
        assert_eq!(consumer.take(), Some(entries[3]));
        assert!(!consumer.look(9) && !consumer.has_next());
    }

    #[test]
    fn a_counter_beyond_the_ring_gives_no_more_than_the_ring() {
        let mut consumer = Consumer::new(ring(0));
        consumer.ring.memory.half(0).store(u32::MAX, Ordering::Relaxed);
        assert!(consumer.look(u32::MAX));
        assert_eq!(std::iter::from_fn(|| consumer.take::<u64>()).count(), 4);
    }
}
