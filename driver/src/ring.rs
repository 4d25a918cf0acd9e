//! Rings between one producer and one consumer: how work requests reach the engine, and
//! completions the application.
//!
//! [`ring`] carries plain values. [`work_ring`] carries a value with a list of items and a run of
//! bytes: a work request, its scatter/gather list and its inline data.
//!
//! Invariants: the indices count entries for ever and wrap around. Always `released <= read <=
//! published <= written <= released + capacity`. The producer alone touches the slots from
//! `published` to `released + capacity`, the consumer alone those from `released` to `published`.
//! Each side keeps the other's index as last seen, and looks again only when that one says full
//! or empty: in a busy ring the two index lines seldom travel.

use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::fmt;
use std::mem::MaybeUninit;

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicUsize, Ordering, Watch};

/// A ring of at least `capacity` entries, rounded up to a power of two. Its memory is not
/// touched before it is used.
///
/// # Errors
/// If there is no memory for as many.
pub fn ring<T: Copy>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), TryReserveError> {
    let capacity = rounded(capacity);
    let shared = Arc::new(Shared { indices: Indices::new(), slots: Slab::new(capacity, 1)? });
    let producer = Producer { end: ProducerEnd::new(capacity), shared: shared.clone() };
    Ok((producer, Consumer { end: ConsumerEnd::new(capacity), shared }))
}

/// Both ends of a [`work_ring`].
pub type WorkRing<T, U> = (WorkProducer<T, U>, WorkConsumer<T, U>);

/// A ring of at least `capacity` entries, rounded up to a power of two, each with up to
/// `max_items` items and `max_bytes` bytes. Its memory is not touched before it is used.
///
/// # Errors
/// If there is no memory for as many.
pub fn work_ring<T: Copy, U: Copy>(
    capacity: usize,
    max_items: usize,
    max_bytes: usize,
) -> Result<WorkRing<T, U>, TryReserveError> {
    let capacity = rounded(capacity);
    let shared = Arc::new(WorkShared {
        indices: Indices::new(),
        heads: Slab::new(capacity, 1)?,
        items: Slab::new(capacity, max_items)?,
        bytes: Slab::new(capacity, max_bytes)?,
    });
    let producer = WorkProducer { end: ProducerEnd::new(capacity), shared: shared.clone() };
    Ok((producer, WorkConsumer { end: ConsumerEnd::new(capacity), shared }))
}

/// The side of a [`ring`] that writes.
#[derive(Debug)]
pub struct Producer<T> {
    end: ProducerEnd,
    shared: Arc<Shared<T>>,
}

impl<T: Copy> Producer<T> {
    /// Writes an entry, which the consumer sees after [`publish`](Producer::publish).
    ///
    /// # Errors
    /// Gives the value back if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let Some(slot) = self.end.free_slot(&self.shared.indices) else { return Err(value) };
        // SAFETY: a free slot is the producer's; stride 1 holds one value.
        unsafe { self.shared.slots.write(slot, &[value]) };
        self.end.advance();
        Ok(())
    }

    /// How many of `wanted` pushes find a free slot.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        self.end.room(&self.shared.indices, wanted)
    }

    /// Makes everything pushed so far visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        self.end.publish(&self.shared.indices);
    }
}

/// The side of a [`ring`] that reads.
#[derive(Debug)]
pub struct Consumer<T> {
    end: ConsumerEnd,
    shared: Arc<Shared<T>>,
}

impl<T: Copy> Consumer<T> {
    /// Takes the oldest published entry. Its slot goes back to the producer with
    /// [`release`](Consumer::release), or when a later call finds nothing.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let slot = self.end.next_slot(&self.shared.indices)?;
        // SAFETY: a published slot is the consumer's, and `push` has written its one value.
        let value = unsafe { self.shared.slots.read(slot, 1)[0] };
        self.end.advance();
        Some(value)
    }

    /// Gives the slots of everything popped so far back to the producer.
    #[inline]
    pub fn release(&mut self) {
        self.end.release(&self.shared.indices);
    }

    /// How many entries are there to pop now.
    pub fn pending(&self) -> usize {
        self.end.pending(&self.shared.indices)
    }
}

/// Why an entry was not taken by a [`WorkProducer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// Every slot is in use.
    Full,
    /// More items or bytes than the ring was made for.
    TooLong,
}

/// The side of a [`work_ring`] that writes.
#[derive(Debug)]
pub struct WorkProducer<T, U> {
    end: ProducerEnd,
    shared: Arc<WorkShared<T, U>>,
}

impl<T: Copy, U: Copy> WorkProducer<T, U> {
    /// Writes an entry, which the consumer sees after [`publish`](WorkProducer::publish).
    ///
    /// # Errors
    /// If the ring is full, or was made for fewer items or bytes; nothing is written then.
    #[inline]
    pub fn push(&mut self, value: T, items: &[U], bytes: &[u8]) -> Result<(), PushError> {
        let WorkShared { indices, heads, items: item_slab, bytes: byte_slab } = &*self.shared;
        if items.len() > item_slab.stride || bytes.len() > byte_slab.stride {
            return Err(PushError::TooLong);
        }
        let Some(slot) = self.end.free_slot(indices) else { return Err(PushError::Full) };
        let head = Head { value, item_count: items.len(), byte_count: bytes.len() };
        // SAFETY: a free slot is the producer's; stride 1 holds one head, and the lengths of the
        // others have been checked above.
        unsafe {
            heads.write(slot, &[head]);
            item_slab.write(slot, items);
            byte_slab.write(slot, bytes);
        }
        self.end.advance();
        Ok(())
    }

    /// Makes everything pushed so far visible to the consumer.
    #[inline]
    pub fn publish(&mut self) {
        self.end.publish(&self.shared.indices);
    }
}

/// The side of a [`work_ring`] that reads.
#[derive(Debug)]
pub struct WorkConsumer<T, U> {
    end: ConsumerEnd,
    shared: Arc<WorkShared<T, U>>,
}

impl<T: Copy, U: Copy> WorkConsumer<T, U> {
    /// Takes the oldest published entry and gives `visit` its value, items and bytes where they
    /// lie. Its slot goes back to the producer with [`release`](WorkConsumer::release), or when a
    /// later call finds nothing.
    #[inline]
    pub fn pop<R>(&mut self, visit: impl FnOnce(T, &[U], &[u8]) -> R) -> Option<R> {
        let WorkShared { indices, heads, items, bytes } = &*self.shared;
        let slot = self.end.next_slot(indices)?;
        self.end.advance();
        // SAFETY: a published slot is the consumer's until it is released, which needs `self`
        // again; `push` has written one head, and as many items and bytes as that says.
        let (value, items, bytes) = unsafe {
            let head = heads.read(slot, 1)[0];
            (head.value, items.read(slot, head.item_count), bytes.read(slot, head.byte_count))
        };
        Some(visit(value, items, bytes))
    }

    /// Gives the slots of everything popped so far back to the producer.
    #[inline]
    pub fn release(&mut self) {
        self.end.release(&self.shared.indices);
    }
}

/// What both ends of a [`ring`] see.
#[derive(Debug)]
struct Shared<T> {
    indices: Indices,
    slots: Slab<T>,
}

/// What both ends of a [`work_ring`] see.
#[derive(Debug)]
struct WorkShared<T, U> {
    indices: Indices,
    heads: Slab<Head<T>>,
    items: Slab<U>,
    bytes: Slab<u8>,
}

/// The fixed part of an entry with items and bytes.
#[derive(Clone, Copy, Debug)]
struct Head<T> {
    value: T,
    item_count: usize,
    byte_count: usize,
}

/// The two indices the ends tell each other, each on a cache line (pair) of its own.
#[derive(Debug)]
struct Indices {
    published: CachePadded<AtomicUsize>,
    released: CachePadded<AtomicUsize>,
}

impl Indices {
    fn new() -> Indices {
        Indices {
            published: CachePadded::new(AtomicUsize::new(0)),
            released: CachePadded::new(AtomicUsize::new(0)),
        }
    }
}

/// The producer's own view of the indices.
#[derive(Debug)]
struct ProducerEnd {
    mask: usize,
    written: usize,
    published: usize,
    /// `released`, as last seen.
    released: usize,
}

impl ProducerEnd {
    fn new(capacity: usize) -> ProducerEnd {
        ProducerEnd { mask: capacity - 1, written: 0, published: 0, released: 0 }
    }

    /// The slot to write next, if one is free.
    #[inline]
    fn free_slot(&mut self, indices: &Indices) -> Option<usize> {
        (self.room(indices, 1) == 1).then_some(self.written & self.mask)
    }

    /// How many of `wanted` slots are free.
    #[inline]
    fn room(&mut self, indices: &Indices, wanted: usize) -> usize {
        let free = |end: &ProducerEnd| end.mask + 1 - end.written.wrapping_sub(end.released);
        if free(self) < wanted {
            self.released = indices.released.load(Ordering::Acquire);
        }
        free(self).min(wanted)
    }

    #[inline]
    fn advance(&mut self) {
        self.written = self.written.wrapping_add(1);
    }

    #[inline]
    fn publish(&mut self, indices: &Indices) {
        if self.published != self.written {
            self.published = self.written;
            indices.published.store(self.written, Ordering::Release);
        }
    }
}

/// The consumer's own view of the indices.
#[derive(Debug)]
struct ConsumerEnd {
    mask: usize,
    read: usize,
    released: usize,
    /// `published`, as last seen.
    published: usize,
}

impl ConsumerEnd {
    fn new(capacity: usize) -> ConsumerEnd {
        ConsumerEnd { mask: capacity - 1, read: 0, released: 0, published: 0 }
    }

    /// The slot to read next, if one is published. If none is, the slots read so far are
    /// released: a producer that waits for one would otherwise wait for ever.
    #[inline]
    fn next_slot(&mut self, indices: &Indices) -> Option<usize> {
        if self.read == self.published {
            self.published = indices.published.load(Ordering::Acquire);
            if self.read == self.published {
                self.release(indices);
                return None;
            }
        }
        Some(self.read & self.mask)
    }

    #[inline]
    fn advance(&mut self) {
        self.read = self.read.wrapping_add(1);
    }

    #[inline]
    fn release(&mut self, indices: &Indices) {
        if self.released != self.read {
            self.released = self.read;
            indices.released.store(self.read, Ordering::Release);
        }
    }

    #[inline]
    fn pending(&self, indices: &Indices) -> usize {
        indices.published.load(Ordering::Acquire).wrapping_sub(self.read)
    }
}

/// `stride` cells for each slot of a ring, uninitialised until written.
struct Slab<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    stride: usize,
    /// One a slot.
    watches: Box<[Watch]>,
}

// SAFETY: the cells are reached only through `read` and `write`, whose callers own the slot they
// name; values move between threads, references to them are not shared.
unsafe impl<T: Send> Sync for Slab<T> {}

impl<T> Slab<T> {
    fn new(slot_count: usize, stride: usize) -> Result<Slab<T>, TryReserveError> {
        // More than there can be is refused like more than there is.
        let cell_count = slot_count.saturating_mul(stride);
        let mut cells = Vec::<UnsafeCell<MaybeUninit<T>>>::new();
        cells.try_reserve_exact(cell_count)?;
        // SAFETY: there is room for as many, and neither wrapper has an invalid bit pattern.
        unsafe { cells.set_len(cell_count) };
        // A watch takes no memory, except under loom.
        let watches = (0..slot_count).map(|_| Watch::default()).collect();
        Ok(Slab { cells: cells.into_boxed_slice(), stride, watches })
    }

    /// The first cell of a slot.
    #[inline]
    fn first(&self, slot: usize) -> *mut T {
        let cells = &self.cells[slot * self.stride..(slot + 1) * self.stride];
        // A slice of cells may be written through a pointer to its first one.
        UnsafeCell::raw_get(cells.as_ptr()).cast()
    }
}

impl<T: Copy> Slab<T> {
    /// Writes `values` into the first cells of a slot.
    ///
    /// # Safety
    /// The caller owns the slot, and there are at most `stride` values.
    #[inline]
    unsafe fn write(&self, slot: usize, values: &[T]) {
        self.watches[slot].writes();
        // SAFETY: the slot has room for the values and nobody else touches it, so they do not
        // overlap; both by the caller's word.
        unsafe { self.first(slot).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// The first `len` cells of a slot.
    ///
    /// # Safety
    /// The caller owns the slot for as long as it keeps the slice, and at least `len` values
    /// have been written to it.
    #[inline]
    unsafe fn read(&self, slot: usize, len: usize) -> &[T] {
        self.watches[slot].reads();
        // SAFETY: initialised and left alone, by the caller's word.
        unsafe { std::slice::from_raw_parts(self.first(slot), len) }
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("stride", &self.stride).finish_non_exhaustive()
    }
}

/// A power of two, at least 1; the largest there is for what is beyond it.
fn rounded(capacity: usize) -> usize {
    capacity.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pushed_entries_are_invisible_until_published() {
        let (mut producer, mut consumer) = ring(3).unwrap();
        producer.push(1).unwrap();
        assert_eq!(consumer.pop(), None);
        producer.publish();
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn a_full_ring_gives_the_value_back_until_slots_are_released() {
        let (mut producer, mut consumer) = ring(2).unwrap();
        producer.push('a').unwrap();
        producer.push('b').unwrap();
        producer.publish();
        assert_eq!(producer.push('c'), Err('c'));
        assert_eq!(consumer.pop(), Some('a'));
        assert_eq!(producer.push('c'), Err('c'));
        consumer.release();
        assert_eq!(producer.push('c'), Ok(()));
    }

    #[test]
    fn a_dry_pop_releases() {
        let (mut producer, mut consumer) = ring(1).unwrap();
        producer.push(1).unwrap();
        producer.publish();
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!(consumer.pop(), None);
        assert_eq!(producer.push(2), Ok(()));
    }

    #[test]
    fn capacity_is_rounded_up_to_a_power_of_two() {
        for (asked, entries) in [(0, 1), (1, 1), (3, 4), (4, 4)] {
            let (mut producer, _consumer) = ring(asked).unwrap();
            assert_eq!((0..9).take_while(|&value| producer.push(value).is_ok()).count(), entries);
        }
    }

    #[test]
    fn more_than_there_is_memory_for_is_refused() {
        for capacity in [1 << 60, usize::MAX] {
            assert!(ring::<u64>(capacity).is_err());
            assert!(work_ring::<u8, u8>(capacity, 1, 0).is_err());
        }
        assert!(work_ring::<u8, u64>(1 << 20, usize::MAX, 0).is_err());
    }

    #[test]
    fn a_work_entry_longer_than_the_ring_was_made_for_is_refused() {
        let (mut producer, mut consumer) = work_ring::<u8, u16>(2, 2, 3).unwrap();
        assert_eq!(producer.push(1, &[0; 3], &[]), Err(PushError::TooLong));
        assert_eq!(producer.push(1, &[], &[0; 4]), Err(PushError::TooLong));
        assert_eq!(producer.push(1, &[7, 8], b"abc"), Ok(()));
        assert_eq!(producer.push(2, &[], &[]), Ok(()));
        assert_eq!(producer.push(3, &[], &[]), Err(PushError::Full));
        producer.publish();
        let entry = consumer.pop(|value, items, bytes| (value, items.to_vec(), bytes.to_vec()));
        assert_eq!(entry, Some((1, vec![7, 8], b"abc".to_vec())));
        assert_eq!(consumer.pop(|value, items, bytes| (value, items.len(), bytes.len())), {
            Some((2, 0, 0))
        });
    }

    #[test]
    fn a_ring_may_carry_no_items_and_no_bytes() {
        let (mut producer, mut consumer) = work_ring::<u8, u16>(2, 0, 0).unwrap();
        producer.push(1, &[], &[]).unwrap();
        producer.publish();
        assert_eq!(consumer.pop(|value, _, _| value), Some(1));
    }

    #[test]
    fn two_threads_pass_everything_in_order() {
        const COUNT: u64 = 200_000;
        let (mut producer, mut consumer) = work_ring::<u64, u64>(64, 2, 8).unwrap();
        let writer = std::thread::spawn(move || {
            for number in 0..COUNT {
                while producer.push(number, &[number + 1], &number.to_le_bytes()).is_err() {
                    producer.publish();
                    std::thread::yield_now();
                }
                if number % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        for number in 0..COUNT {
            let entry = loop {
                let popped = consumer.pop(|value, items, bytes| {
                    (value, items.to_vec(), u64::from_le_bytes(bytes.try_into().unwrap()))
                });
                match popped {
                    Some(entry) => break entry,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(entry, (number, vec![number + 1], number));
        }
        writer.join().unwrap();
        assert_eq!(consumer.pop(|_, _, _| ()), None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push,
        Publish,
        Pop,
        Release,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Push),
            1 => Just(Step::Publish),
            3 => Just(Step::Pop),
            1 => Just(Step::Release),
        ];
        proptest::collection::vec(step, 0..200)
    }

    /// A ring as three plain queues.
    #[derive(Default)]
    struct Model {
        written: VecDeque<u32>,
        published: VecDeque<u32>,
        popped: usize,
    }

    impl Model {
        fn push(&mut self, capacity: usize, value: u32) -> bool {
            let fits = self.written.len() + self.published.len() + self.popped < capacity;
            if fits {
                self.written.push_back(value);
            }
            fits
        }

        fn pop(&mut self) -> Option<u32> {
            let value = self.published.pop_front();
            self.popped = if value.is_some() { self.popped + 1 } else { 0 };
            value
        }
    }

    proptest! {
        #[test]
        fn a_ring_does_what_a_queue_does(capacity in 0usize..9, steps in steps()) {
            let (mut producer, mut consumer) = ring(capacity).unwrap();
            let mut model = Model::default();
            for (value, step) in (0..).zip(steps) {
                match step {
                    Step::Push => {
                        let fits = model.push(rounded(capacity), value);
                        prop_assert_eq!(producer.push(value).is_ok(), fits);
                    }
                    Step::Publish => {
                        model.published.append(&mut model.written);
                        producer.publish();
                    }
                    Step::Pop => prop_assert_eq!(consumer.pop(), model.pop()),
                    Step::Release => {
                        model.popped = 0;
                        consumer.release();
                    }
                }
            }
        }

        #[test]
        fn a_work_ring_does_what_a_queue_does(capacity in 0usize..9, steps in steps()) {
            let (mut producer, mut consumer) = work_ring::<u32, u32>(capacity, 3, 5).unwrap();
            let mut model = Model::default();
            for (value, step) in (0..).zip(steps) {
                let items = vec![value; value as usize % 4];
                let bytes = vec![value as u8; value as usize % 6];
                match step {
                    Step::Push => {
                        let fits = model.push(rounded(capacity), value);
                        prop_assert_eq!(producer.push(value, &items, &bytes).is_ok(), fits);
                    }
                    Step::Publish => {
                        model.published.append(&mut model.written);
                        producer.publish();
                    }
                    Step::Pop => {
                        let popped = consumer.pop(|value, items, bytes| {
                            assert_eq!(items, vec![value; value as usize % 4]);
                            assert_eq!(bytes, vec![value as u8; value as usize % 6]);
                            value
                        });
                        prop_assert_eq!(popped, model.pop());
                    }
                    Step::Release => {
                        model.popped = 0;
                        consumer.release();
                    }
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use ::loom::thread;

    use super::*;

    /// Tries of each side: enough to go around a ring of two.
    const TRIES: u32 = 4;

    #[test]
    fn entries_arrive_whole_and_in_order_around_the_ring() {
        ::loom::model(|| {
            let (mut producer, mut consumer) = ring(2).unwrap();
            let writer = thread::spawn(move || {
                let mut pushed = 0;
                for _ in 0..TRIES {
                    pushed += u32::from(producer.push(pushed).is_ok());
                    producer.publish();
                }
                pushed
            });
            let mut popped = 0;
            for _ in 0..TRIES {
                if let Some(value) = consumer.pop() {
                    assert_eq!(value, popped);
                    popped += 1;
                    consumer.release();
                }
            }
            let pushed = writer.join().unwrap();
            while let Some(value) = consumer.pop() {
                assert_eq!(value, popped);
                popped += 1;
            }
            assert_eq!(popped, pushed);
        });
    }

    #[test]
    fn a_batch_is_visible_as_a_whole_or_not_at_all() {
        ::loom::model(|| {
            let (mut producer, mut consumer) = ring(4).unwrap();
            let writer = thread::spawn(move || {
                for value in 0..3 {
                    producer.push(value).unwrap();
                }
                producer.publish();
            });
            if let Some(first) = consumer.pop() {
                assert_eq!((first, consumer.pop(), consumer.pop()), (0, Some(1), Some(2)));
                assert_eq!(consumer.pop(), None);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn items_and_bytes_arrive_with_their_value_around_the_ring() {
        ::loom::model(|| {
            let (mut producer, mut consumer) = work_ring::<u32, u32>(1, 2, 4).unwrap();
            let writer = thread::spawn(move || {
                let mut pushed = 0u32;
                for _ in 0..TRIES {
                    let items = [pushed; 2];
                    let items = &items[..pushed as usize % 3];
                    pushed +=
                        u32::from(producer.push(pushed, items, &pushed.to_le_bytes()).is_ok());
                    producer.publish();
                }
                pushed
            });
            let mut popped = 0;
            let mut pop = |consumer: &mut WorkConsumer<u32, u32>| {
                let found = consumer.pop(|value, items, bytes| {
                    assert_eq!(value, popped);
                    assert_eq!(items.len(), value as usize % 3);
                    assert!(items.iter().all(|item| *item == value));
                    assert_eq!(bytes, value.to_le_bytes());
                });
                popped += u32::from(found.is_some());
                consumer.release();
                found.is_some()
            };
            for _ in 0..TRIES {
                pop(&mut consumer);
            }
            let pushed = writer.join().unwrap();
            while pop(&mut consumer) {}
            assert_eq!(popped, pushed);
        });
    }
}
