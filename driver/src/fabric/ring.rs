//! A member's inbound ring: bounded, any number of senders, one receiver, in shared memory.
//!
//! The file is a header and [`SLOTS`] slots of [`STRIDE`] bytes: a state word, a word of length
//! and tag, the frame. Positions count frames from 0; position p uses slot p modulo [`SLOTS`].
//! The state word says, of one position, whether the slot is
//!
//! - *free*: the sender that swaps it to *claimed* owns the slot;
//! - *claimed* by a member that copies its frame in, and then swaps it to *ready*;
//! - *ready*: the receiver copies the frame out and frees the slot for the next lap;
//! - *abandoned*: a lap was skipped because the member that had claimed the slot, though alive,
//!   took too long. It may still write to the slot, so nobody else gets it. When the member comes
//!   back it makes the slot ready with a frame of no bytes, which the receiver drops.
//!
//! A sender that dies leaves its slot claimed; the receiver skips it once it knows of the death.
//! Senders find the end by a hint that the one who claims a slot moves forward, or, if it died
//! just then, the next one.
//!
//! The receiver alone knows the head; nothing in the file is believed. A state that cannot be is
//! skipped like a lost frame, a hint that cannot be is put right, every loop has a bound, and
//! lengths are checked after they have been copied out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_stack::icrc;

use super::shm::Shared;

/// The longest frame the ring takes, in bytes: a path MTU of 4096 and its headers.
pub const FRAME_MAX: usize = 4096 + 120;
/// Frames the ring holds.
pub const SLOTS: u64 = 1024;
/// Length of the file.
pub const FILE_LEN: usize = SLOTS_AT + SLOTS as usize * STRIDE;

/// Bytes from slot to slot: whole cache lines, an odd number of them, so that the first lines of
/// the slots spread over all sets of a cache.
const STRIDE: usize = 67 * 64;
const LENGTH_AND_TAG: usize = 8;
const FRAME: usize = 16;
const _: () = assert!(FRAME + FRAME_MAX <= STRIDE && SLOTS.is_power_of_two());

/// Bytes of a frame that is better summed while it is copied than afterwards.
const SUMMED_FROM: usize = 512;

// Offsets in the header. What senders write each time stands on lines of its own.
const MAGIC_AT: usize = 0;
const GENERATION_AT: usize = 8;
const SLEEP_AT: usize = 16;
const REPORTS_WANTED_AT: usize = 64;
const HINT_AT: usize = 128;
const WAKE_AT: usize = 256;
const SLOTS_AT: usize = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"FERRING1");

/// Slots that a burst claims together.
const RUN: usize = 8;
/// Frames of a burst before those.
const SINGLY: usize = 4;
/// Slots a sender looks at before it says that the ring is full.
const CLAIM_TRIES: usize = 64;
/// Frames [`Inbound::pending`] counts at most.
const PENDING_MAX: usize = 64;
/// How often the receiver looks whether the member it waits for still lives.
const LOOK_NS: u64 = 1_000_000;
/// How long the receiver waits for a living member that has claimed a slot.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Empty looks between two checks of the hint.
const EMPTY_BETWEEN_MENDS: u32 = 1024;

/// A member as slots name it: its slot in the registry, and of its generation what fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u16);

impl Owner {
    /// The member that took the slot as the given generation.
    pub fn new(slot: u8, generation: u64) -> Owner {
        Owner(u16::from(slot) << 6 | (generation & 0x3f) as u16)
    }

    /// Its slot in the registry.
    pub fn slot(self) -> u8 {
        (self.0 >> 6) as u8
    }
}

/// What a receiver asks about the world when a claimed slot holds it up.
pub trait Watch {
    /// Now, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Whether the member is certainly dead.
    fn is_dead(&mut self, owner: Owner) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Claimed,
    Ready,
    Abandoned,
}

const POSITION_BITS: u32 = 48;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// A state word: position in the high 48 bits, then 14 bits of owner, 2 of phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u64);

impl State {
    #[inline]
    fn free(position: u64) -> State {
        State(position << 16)
    }

    #[inline]
    fn owned(position: u64, owner: Owner, phase: Phase) -> State {
        State(position << 16 | u64::from(owner.0) << 2 | phase as u64)
    }

    #[inline]
    fn position(self) -> u64 {
        self.0 >> 16
    }

    #[inline]
    fn owner(self) -> Owner {
        Owner((self.0 >> 2) as u16 & 0x3fff)
    }

    #[inline]
    fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Free,
            1 => Phase::Claimed,
            2 => Phase::Ready,
            _ => Phase::Abandoned,
        }
    }
}

#[inline]
fn after(position: u64, count: u64) -> u64 {
    position.wrapping_add(count) & POSITION_MASK
}

/// How far `a` is ahead of `b`; positions wrap.
#[inline]
fn ahead(a: u64, b: u64) -> i64 {
    (a.wrapping_sub(b) << (64 - POSITION_BITS)) as i64 >> (64 - POSITION_BITS)
}

#[inline]
fn slot_at(position: u64) -> usize {
    SLOTS_AT + (position % SLOTS) as usize * STRIDE
}

#[inline]
fn state(shared: &Shared, position: u64) -> &AtomicU64 {
    shared.word(slot_at(position))
}

/// Swaps `from` to `to` if it is still there.
#[inline]
fn swap(word: &AtomicU64, from: State, to: State) -> bool {
    word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// What the receiver sleeps on, as the file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The wake word itself, a futex.
    Word,
    /// Descriptors, one of which is the socket beside the file.
    Socket,
}

/// Makes an empty ring of a file of zeros; the receiver does so before others know of it.
pub fn format(shared: &Shared, generation: u64, sleep: Sleep) {
    for position in 0..SLOTS {
        state(shared, position).store(State::free(position).0, Ordering::Relaxed);
    }
    shared.word(SLEEP_AT).store(sleep as u64, Ordering::Relaxed);
    shared.word(GENERATION_AT).store(generation, Ordering::Relaxed);
    shared.word(MAGIC_AT).store(MAGIC, Ordering::Release);
}

/// What the receiver sleeps on.
pub fn sleep_of(shared: &Shared) -> Sleep {
    match shared.word(SLEEP_AT).load(Ordering::Relaxed) {
        0 => Sleep::Word,
        _ => Sleep::Socket,
    }
}

/// The wake word of a ring.
#[inline]
pub fn wake_word(shared: &Shared) -> &AtomicU32 {
    shared.half(WAKE_AT)
}

/// Whether the receiver is a member of that generation.
pub fn is_of(shared: &Shared, generation: u64) -> bool {
    shared.word(MAGIC_AT).load(Ordering::Acquire) == MAGIC
        && shared.word(GENERATION_AT).load(Ordering::Relaxed) == generation
}

/// Asks the receiver for a report, and gives the number of the question: a report that answers
/// this or a later one will do. Waking it must follow.
pub fn ask(shared: &Shared) -> u64 {
    shared.word(REPORTS_WANTED_AT).fetch_add(1, Ordering::Release).wrapping_add(1)
}

/// The sending end.
///
/// Between CPUs that are far apart, most of what a frame costs is waiting for the lines that the
/// receiver has looked at last, its slot's first, and every locked instruction waits for all that
/// was written before it. So a burst claims slots in runs, and makes those of a run visible
/// together. Its first frames go one by one: short bursts are waited for.
#[derive(Debug)]
pub struct Outbound {
    shared: Shared,
    owner: Owner,
    run: Run,
    /// Frames since the last [`Outbound::flush`].
    burst: usize,
    /// Those of them in runs that the receiver has given up.
    lost: usize,
}

/// Slots claimed together.
#[derive(Debug, Default)]
struct Run {
    /// Their positions, of which the first `len` count.
    positions: [u64; RUN],
    /// Length and tag of the frame in each of the first `written`.
    frames: [(u32, u32); RUN],
    len: usize,
    /// As many as `len`, once the run has been made visible.
    written: usize,
}

impl Outbound {
    /// The end at which `owner` sends.
    pub fn new(shared: Shared, owner: Owner) -> Outbound {
        Outbound { shared, owner, run: Run::default(), burst: 0, lost: 0 }
    }

    /// Whether the receiver is a member of that generation.
    pub fn leads_to(&self, generation: u64) -> bool {
        is_of(&self.shared, generation)
    }

    /// Copies a frame in; false if the ring has no room, or if the receiver has given the slot up
    /// meanwhile. The frame is visible after [`Outbound::flush`] at the latest.
    ///
    /// # Panics
    ///
    /// If the frame is longer than [`FRAME_MAX`].
    #[inline]
    pub fn push(&mut self, frame: &[u8], tag: u32) -> bool {
        assert!(frame.len() <= FRAME_MAX, "frame of {} bytes", frame.len());
        if self.run.written == self.run.len && !self.begin_run() {
            return false;
        }
        let at = self.run.written;
        self.shared.write(slot_at(self.run.positions[at]) + FRAME, frame);
        self.run.frames[at] = (frame.len() as u32, tag);
        self.run.written += 1;
        self.burst += 1;
        if self.run.written < self.run.len {
            return true;
        }
        let lost = self.end_run();
        if self.run.len == 1 {
            return lost == 0;
        }
        self.lost += lost;
        true
    }

    /// Makes all frames visible, before the receiver is woken. How many of them the receiver has
    /// given up meanwhile: it may for a sender that stood still for a second.
    #[inline]
    pub fn flush(&mut self) -> usize {
        self.burst = 0;
        if self.run.written < self.run.len {
            self.lost += self.end_run();
        }
        std::mem::take(&mut self.lost)
    }

    /// Claims slots; false if there is none.
    #[inline]
    fn begin_run(&mut self) -> bool {
        let Some(first) = self.claim() else {
            return false;
        };
        self.run.positions[0] = first;
        (self.run.len, self.run.written) = (1, 0);
        if self.burst >= SINGLY {
            self.extend_run(first);
        }
        true
    }

    fn extend_run(&mut self, first: u64) {
        for ahead in 1..RUN as u64 {
            self.shared.prefetch_to_write(slot_at(after(first, ahead)));
        }
        while self.run.len < RUN
            && let Some(position) = self.claim()
        {
            self.run.positions[self.run.len] = position;
            self.run.len += 1;
        }
    }

    /// Makes the frames of the run visible, and gives back what has none; how many are lost.
    #[inline]
    fn end_run(&mut self) -> usize {
        let Run { len, written, .. } = self.run;
        let mut lost = 0;
        for at in 0..len {
            let (frame_len, tag) = if at < written { self.run.frames[at] } else { (0, 0) };
            let is_seen = self.commit(self.run.positions[at], frame_len, tag);
            lost += usize::from(at < written && !is_seen);
        }
        self.run.written = len;
        lost
    }

    /// The mapping, for who wakes the receiver.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    #[inline]
    fn claim(&self) -> Option<u64> {
        let hint = self.shared.word(HINT_AT);
        let mut at = hint.load(Ordering::Acquire) & POSITION_MASK;
        for _ in 0..CLAIM_TRIES {
            let word = state(&self.shared, at);
            let seen = State(word.load(Ordering::Acquire));
            let distance = ahead(seen.position(), at);
            let next = if distance < 0 {
                return None; // The last lap's frame is still there.
            } else if distance > 0 {
                // The slot waits for a later lap, so all positions up to this have been used.
                after(seen.position(), 1).wrapping_sub(SLOTS) & POSITION_MASK
            } else if seen.phase() == Phase::Free {
                if !swap(word, seen, State::owned(at, self.owner, Phase::Claimed)) {
                    continue;
                }
                advance(hint, at, after(at, 1));
                return Some(at);
            } else {
                after(at, 1)
            };
            advance(hint, at, next);
            at = next;
        }
        None
    }

    #[inline]
    fn commit(&self, position: u64, len: u32, tag: u32) -> bool {
        let word = state(&self.shared, position);
        let length_and_tag = self.shared.word(slot_at(position) + LENGTH_AND_TAG);
        length_and_tag.store(u64::from(len) | u64::from(tag) << 32, Ordering::Relaxed);
        let claimed = State::owned(position, self.owner, Phase::Claimed);
        if swap(word, claimed, State::owned(position, self.owner, Phase::Ready)) {
            return true;
        }
        // If the slot was abandoned, it is still ours: hand it back. The receiver may be moving
        // it to another lap just now, a few times at most.
        for _ in 0..CLAIM_TRIES {
            let seen = State(word.load(Ordering::Acquire));
            if seen.phase() != Phase::Abandoned || seen.owner() != self.owner {
                break;
            }
            length_and_tag.store(0, Ordering::Relaxed);
            if swap(word, seen, State::owned(seen.position(), self.owner, Phase::Ready)) {
                break;
            }
        }
        false
    }
}

/// Moves the hint, unless somebody else has.
#[inline]
fn advance(hint: &AtomicU64, from: u64, to: u64) {
    let _ = hint.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
}

/// A frame that has been copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length in bytes.
    pub len: usize,
    /// What the sender said with it.
    pub tag: u32,
    /// The sum of all but the last four bytes, from [`icrc::of_plain_head`] on, if it was asked for
    /// and the frame is long.
    pub sum: Option<u32>,
}

/// A claimed slot that holds the receiver up.
#[derive(Clone, Copy, Debug)]
struct Stall {
    position: u64,
    owner: Owner,
    since_ns: u64,
    looked_ns: u64,
}

/// The receiving end.
#[derive(Debug)]
pub struct Inbound {
    shared: Arc<Shared>,
    head: u64,
    stall: Option<Stall>,
    empty: u32,
}

impl Inbound {
    /// The receiving end of a ring that has just been formatted.
    pub fn new(shared: Arc<Shared>) -> Inbound {
        Inbound { shared, head: 0, stall: None, empty: 0 }
    }

    /// The mapping, for those who keep the wake word.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The number of the last question for a report.
    #[inline]
    pub fn reports_wanted(&self) -> u64 {
        self.shared.word(REPORTS_WANTED_AT).load(Ordering::Relaxed)
    }

    /// Frames to take, and one that is about to be: slots in a row that are not free, up to one
    /// that is claimed. 0 says that there is nothing to wait for but a wake-up; counts no further
    /// than 64. What is behind a claimed slot is its sender's to write to, undisturbed.
    #[inline]
    pub fn pending(&self) -> usize {
        for count in 0..PENDING_MAX {
            let position = after(self.head, count as u64);
            let seen = State(state(&self.shared, position).load(Ordering::Acquire));
            match seen.phase() {
                _ if seen == State::free(position) => return count,
                Phase::Claimed => return count + 1,
                _ => {}
            }
        }
        PENDING_MAX
    }

    /// Copies the next frame to the start of `frame` and frees its slot; `sums` it meanwhile, if
    /// its receiver will look at its ICRC. A frame that does not fit is dropped.
    #[inline]
    pub fn receive(
        &mut self,
        frame: &mut [u8],
        sums: bool,
        watch: &mut impl Watch,
    ) -> Option<Received> {
        for _ in 0..SLOTS {
            let shared = &self.shared;
            let seen = State(state(shared, self.head).load(Ordering::Acquire));
            if seen.position() == self.head && seen.phase() == Phase::Ready {
                self.stall = None;
                let at = slot_at(self.head);
                let word = shared.word(at + LENGTH_AND_TAG).load(Ordering::Relaxed);
                let (len, tag) = (word as u32 as usize, (word >> 32) as u32);
                let room = frame.get_mut(..len).filter(|_| (1..=FRAME_MAX).contains(&len));
                let copied = room.map(|frame| copy_out(shared, at + FRAME, frame, sums));
                self.free_head();
                if let Some(sum) = copied {
                    return Some(Received { len, tag, sum });
                }
            } else if seen == State::free(self.head) {
                self.found_nothing();
                return None;
            } else if !self.skip(seen, watch) {
                return None;
            }
        }
        None
    }

    /// Counts a look at an empty ring; after some, puts the hint right.
    #[inline]
    pub fn found_nothing(&mut self) {
        self.empty += 1;
        if self.empty >= EMPTY_BETWEEN_MENDS {
            self.mend();
        }
    }

    /// Puts the hint right if somebody has written nonsense to it.
    pub fn mend(&mut self) {
        self.empty = 0;
        let hint = self.shared.word(HINT_AT);
        // In this order: whoever moves the hint beyond the head has claimed the head's slot
        // before.
        let seen = hint.load(Ordering::Acquire);
        let head_is_free =
            state(&self.shared, self.head).load(Ordering::Acquire) == State::free(self.head).0;
        if head_is_free && seen != self.head {
            advance(hint, seen, self.head);
        }
    }

    #[inline]
    fn free_head(&mut self) {
        let next_lap = State::free(after(self.head, SLOTS));
        state(&self.shared, self.head).store(next_lap.0, Ordering::Release);
        self.head = after(self.head, 1);
    }

    /// Goes past a slot that is neither free nor ready, if that may be done; false if its owner
    /// is still to be waited for.
    #[cold]
    fn skip(&mut self, seen: State, watch: &mut impl Watch) -> bool {
        let word = state(&self.shared, self.head);
        let next_lap = after(self.head, SLOTS);
        let abandoned = State::owned(next_lap, seen.owner(), Phase::Abandoned);
        match seen.phase() {
            Phase::Claimed if seen.position() == self.head => {
                let (dead, patience_over) = self.look(seen.owner(), watch);
                if !dead && !patience_over {
                    return false;
                }
                let next = if dead { State::free(next_lap) } else { abandoned };
                let word = state(&self.shared, self.head);
                if swap(word, seen, next) {
                    self.head = after(self.head, 1);
                }
            }
            Phase::Abandoned if seen.position() == self.head => {
                let dead = watch.is_dead(seen.owner());
                if swap(word, seen, if dead { State::free(next_lap) } else { abandoned }) {
                    self.head = after(self.head, 1);
                }
            }
            // No honest member leaves such a state.
            _ => self.free_head(),
        }
        true
    }

    /// Whether the owner of the head's slot is dead, and whether it has had all the time it gets.
    fn look(&mut self, owner: Owner, watch: &mut impl Watch) -> (bool, bool) {
        let now_ns = watch.now_ns();
        let head = self.head;
        let first = Stall { position: head, owner, since_ns: now_ns, looked_ns: now_ns };
        let stall = match &mut self.stall {
            Some(stall) if stall.position == head => stall,
            // The next of a run, whose last slot was skipped: it has been waited for.
            Some(stall) if stall.owner == owner && after(stall.position, 1) == head => {
                stall.position = head;
                stall.looked_ns = stall.since_ns;
                stall
            }
            other => other.insert(first),
        };
        if now_ns.saturating_sub(stall.looked_ns) < LOOK_NS {
            return (false, false);
        }
        stall.looked_ns = now_ns;
        let patience_over = now_ns.saturating_sub(stall.since_ns) > PATIENCE_NS;
        (watch.is_dead(owner), patience_over)
    }
}

/// Copies a frame out; its sum, if that is to be made and the frame is long.
#[inline]
fn copy_out(shared: &Shared, at: usize, frame: &mut [u8], sums: bool) -> Option<u32> {
    if !sums || frame.len() < SUMMED_FROM {
        shared.read(at, frame);
        return None;
    }
    let (head, rest) = frame.split_first_chunk_mut()?;
    let (rest, end) = rest.split_at_mut(rest.len() - size_of::<u32>());
    shared.read(at, head);
    shared.read(at + icrc::PLAIN_HEAD + rest.len(), end);
    shared.read_and_sum(at + icrc::PLAIN_HEAD, rest, icrc::of_plain_head(head))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs::{File, OpenOptions};
    use std::path::PathBuf;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::rand::Rng;

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// A file for a ring, and its opened ends.
    struct TempRing(PathBuf);

    impl Drop for TempRing {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    impl TempRing {
        fn new() -> (TempRing, Inbound) {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("ferroce-ring-{}-{count}", std::process::id());
            let path = TempRing(std::env::temp_dir().join(name));
            File::create(&path.0).unwrap().set_len(FILE_LEN as u64).unwrap();
            let shared = path.map();
            format(&shared, 2, Sleep::Word);
            (path, Inbound::new(Arc::new(shared)))
        }

        fn map(&self) -> Shared {
            let file = OpenOptions::new().read(true).write(true).open(&self.0).unwrap();
            Shared::map(&file, FILE_LEN).unwrap()
        }

        fn sender(&self, slot: u8) -> Outbound {
            let sender = Outbound::new(self.map(), Owner::new(slot, 2));
            assert!(sender.leads_to(2) && !sender.leads_to(4));
            sender
        }
    }

    #[derive(Default)]
    struct World {
        now_ns: u64,
        dead: HashSet<u8>,
    }

    impl Watch for World {
        fn now_ns(&self) -> u64 {
            self.now_ns
        }

        fn is_dead(&mut self, owner: Owner) -> bool {
            self.dead.contains(&owner.slot())
        }
    }

    /// Sends a frame that is visible at once.
    fn send(sender: &mut Outbound, frame: &[u8], tag: u32) -> bool {
        sender.push(frame, tag) && sender.flush() == 0
    }

    /// Takes a frame and gives its tag.
    fn take(inbound: &mut Inbound, world: &mut World) -> Option<u32> {
        inbound.receive(&mut [0; FRAME_MAX], true, world).map(|received| received.tag)
    }

    fn hint(inbound: &Inbound) -> &AtomicU64 {
        inbound.shared.word(HINT_AT)
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (file, mut inbound) = TempRing::new();
        let mut sender = file.sender(1);
        let mut world = World::default();
        let mut buffer = [0; FRAME_MAX];
        for round in 0..3 * SLOTS as u32 {
            let len = 1 + (round as usize * 37) % FRAME_MAX;
            let frame: Vec<u8> = (0..len).map(|at| (at as u32 ^ round) as u8).collect();
            assert!(send(&mut sender, &frame, round));
            assert_eq!(inbound.pending(), 1);
            let received = inbound.receive(&mut buffer, true, &mut world).unwrap();
            let summed = |(head, rest): (&[u8; icrc::PLAIN_HEAD], &[u8])| {
                icrc::append(icrc::of_plain_head(head), &rest[..rest.len() - size_of::<u32>()])
            };
            let parts = buffer[..len].split_first_chunk().filter(|_| len >= SUMMED_FROM);
            assert_eq!(received, Received { len, tag: round, sum: parts.map(summed) });
            assert_eq!(buffer[..len], frame);
            assert_eq!(inbound.pending(), 0);
            assert_eq!(inbound.receive(&mut buffer, true, &mut world), None);
        }
    }

    #[test]
    fn full_ring_takes_no_more_until_a_frame_is_taken() {
        let (file, mut inbound) = TempRing::new();
        let mut sender = file.sender(1);
        let mut world = World::default();
        for tag in 0..SLOTS as u32 {
            assert!(send(&mut sender, b"frame", tag));
        }
        assert!(!send(&mut sender, b"frame", 9999));
        assert_eq!(inbound.pending(), 64);
        assert_eq!(take(&mut inbound, &mut world), Some(0));
        assert!(send(&mut sender, b"frame", SLOTS as u32));
        assert!(!send(&mut sender, b"frame", 9999));
        for tag in 1..=SLOTS as u32 {
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
        assert_eq!(take(&mut inbound, &mut world), None);
    }

    #[test]
    fn positions_wrap() {
        let (file, mut inbound) = TempRing::new();
        let start = POSITION_MASK - 10;
        for position in (0..SLOTS).map(|offset| after(start, offset)) {
            state(&inbound.shared, position).store(State::free(position).0, Ordering::Relaxed);
        }
        hint(&inbound).store(start, Ordering::Relaxed);
        inbound.head = start;
        let (mut sender, mut world) = (file.sender(1), World::default());
        for tag in 0..2 * SLOTS as u32 {
            assert!(send(&mut sender, b"frame", tag));
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
    }

    #[test]
    fn slot_of_a_dead_sender_is_skipped() {
        let (file, mut inbound) = TempRing::new();
        let (dead, mut sender) = (file.sender(1), file.sender(2));
        let mut world = World::default();
        dead.claim().unwrap();
        // As if it had died before it could move the hint.
        hint(&inbound).store(0, Ordering::Relaxed);
        assert!(send(&mut sender, b"frame", 7));
        assert_eq!(inbound.pending(), 1);
        assert_eq!(take(&mut inbound, &mut world), None);
        world.now_ns += PATIENCE_NS / 2;
        assert_eq!(take(&mut inbound, &mut world), None);
        world.dead.insert(1);
        world.now_ns += LOOK_NS;
        assert_eq!(take(&mut inbound, &mut world), Some(7));
        for tag in 0..2 * SLOTS as u32 {
            assert!(send(&mut sender, b"frame", tag));
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
    }

    #[test]
    fn a_burst_is_seen_run_by_run_and_whole_after_its_flush() {
        let (file, mut inbound) = TempRing::new();
        let (mut sender, mut world) = (file.sender(1), World::default());
        let bursts = [1, 2, SINGLY, SINGLY + 1, SINGLY + RUN, SINGLY + 2 * RUN + 3, 60];
        for (round, len) in bursts.into_iter().cycle().take(200).enumerate() {
            let mut taken = Vec::new();
            for tag in 0..len {
                assert!(sender.push(&[round as u8; 100], tag as u32));
                taken.extend(std::iter::from_fn(|| take(&mut inbound, &mut world)));
                let in_runs = (tag + 1).saturating_sub(SINGLY);
                assert_eq!(taken.len(), tag + 1 - in_runs % RUN, "{len}");
            }
            assert_eq!(sender.flush(), 0);
            taken.extend(std::iter::from_fn(|| take(&mut inbound, &mut world)));
            assert_eq!(taken, (0..len as u32).collect::<Vec<_>>());
            assert_eq!(inbound.pending(), 0, "slots without a frame are given back");
        }
    }

    #[test]
    fn a_full_ring_cuts_a_run_short() {
        let (file, mut inbound) = TempRing::new();
        let (mut sender, mut world) = (file.sender(1), World::default());
        for tag in 0..SLOTS as u32 {
            assert!(sender.push(b"frame", tag));
        }
        assert!(!sender.push(b"frame", 9999));
        assert_eq!(sender.flush(), 0);
        for tag in 0..SLOTS as u32 {
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
        assert_eq!(take(&mut inbound, &mut world), None);
    }

    #[test]
    fn run_of_a_dead_sender_is_skipped() {
        let (file, mut inbound) = TempRing::new();
        let (mut dead, mut sender) = (file.sender(1), file.sender(2));
        let mut world = World::default();
        for tag in 0..SINGLY as u32 + 3 {
            assert!(dead.push(b"frame", tag));
        }
        assert!(send(&mut sender, b"frame", 99));
        for tag in 0..SINGLY as u32 {
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
        world.dead.insert(1);
        assert_eq!(take(&mut inbound, &mut world), None);
        world.now_ns += LOOK_NS;
        assert_eq!(take(&mut inbound, &mut world), Some(99), "looked at once for all of the run");
    }

    #[test]
    fn frames_of_a_run_that_the_receiver_has_given_up_are_counted() {
        let (file, mut inbound) = TempRing::new();
        let (mut slow, mut sender) = (file.sender(1), file.sender(2));
        let mut world = World::default();
        for tag in 0..SINGLY as u32 + 3 {
            assert!(slow.push(b"frame", tag));
        }
        assert!(send(&mut sender, b"frame", 99));
        for tag in 0..SINGLY as u32 {
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
        assert_eq!(take(&mut inbound, &mut world), None);
        world.now_ns += 2 * PATIENCE_NS;
        assert_eq!(take(&mut inbound, &mut world), Some(99), "waited for once for all of the run");
        assert_eq!(slow.flush(), 3);
        assert!(send(&mut slow, b"frame", 5));
        assert_eq!(take(&mut inbound, &mut world), Some(5));
    }

    #[test]
    fn slot_of_a_sender_that_stands_still_is_used_by_nobody_else() {
        let (file, mut inbound) = TempRing::new();
        let (mut slow, mut sender) = (file.sender(1), file.sender(2));
        let mut world = World::default();
        let position = slow.claim().unwrap();
        assert!(send(&mut sender, b"frame", 7));
        assert_eq!(take(&mut inbound, &mut world), None);
        world.now_ns += 2 * PATIENCE_NS;
        assert_eq!(take(&mut inbound, &mut world), Some(7));
        slow.shared.write(slot_at(position) + FRAME, b"what it would have sent");
        for tag in 0..3 * SLOTS as u32 {
            assert!(send(&mut sender, b"frame", tag));
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
            let at = slot_at(position) + FRAME;
            let mut there = [0; 23];
            inbound.shared.read(at, &mut there);
            assert_eq!(&there, b"what it would have sent");
        }
        // It goes on: its frame is lost, the slot is of use again, and so is the sender.
        assert!(!slow.commit(position, 23, 8));
        for tag in 0..2 * SLOTS as u32 {
            assert!(send(&mut slow, b"other", tag));
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
        let mut there = [0; 5];
        inbound.shared.read(slot_at(position) + FRAME, &mut there);
        assert_eq!(&there, b"other");
    }

    #[test]
    fn abandoned_slot_of_a_sender_that_dies_is_of_use_again() {
        let (file, mut inbound) = TempRing::new();
        let (slow, mut sender) = (file.sender(1), file.sender(2));
        let mut world = World::default();
        let position = slow.claim().unwrap();
        assert_eq!(take(&mut inbound, &mut world), None);
        world.now_ns += 2 * PATIENCE_NS;
        assert_eq!(take(&mut inbound, &mut world), None);
        let word = state(&inbound.shared, position);
        assert_eq!(State(word.load(Ordering::Relaxed)).phase(), Phase::Abandoned);
        world.dead.insert(1);
        for tag in 0..SLOTS as u32 {
            assert!(send(&mut sender, b"frame", tag));
            assert_eq!(take(&mut inbound, &mut world), Some(tag));
        }
        let next = state(&inbound.shared, position).load(Ordering::Relaxed);
        assert_eq!(State(next), State::free(position + 2 * SLOTS));
    }

    #[test]
    fn lengths_are_checked() {
        let (file, mut inbound) = TempRing::new();
        let (sender, mut world) = (file.sender(1), World::default());
        let mut small = [0; 10];
        for len in [0, 11, FRAME_MAX as u32, FRAME_MAX as u32 + 1, u32::MAX] {
            let position = sender.claim().unwrap();
            assert!(sender.commit(position, len, 5));
            assert_eq!(inbound.receive(&mut small, true, &mut world), None);
        }
        let position = sender.claim().unwrap();
        assert!(sender.commit(position, u32::MAX, 5));
        assert_eq!(take(&mut inbound, &mut world), None);
        let position = sender.claim().unwrap();
        assert!(sender.commit(position, 10, 6));
        let received = inbound.receive(&mut small, true, &mut world);
        assert_eq!(received, Some(Received { len: 10, tag: 6, sum: None }));
    }

    #[test]
    fn ring_recovers_from_scribbles() {
        let (file, mut inbound) = TempRing::new();
        let mut sender = file.sender(1);
        // The owners that nonsense names are dead, or the ring would wait for each.
        let mut world = World { dead: (0..=255).filter(|&slot| slot != 1).collect(), now_ns: 0 };
        let mut rng = Rng::new(7);
        for round in 0..300 {
            let mut scribble = |word: &AtomicU64| {
                let old = word.load(Ordering::Relaxed);
                let new = match rng.next_u64() % 4 {
                    0 => rng.next_u64(),
                    1 => 0,
                    2 => old ^ 1 << (rng.next_u64() % 64),
                    _ => old.wrapping_add((rng.next_u64() % 4096) << 16),
                };
                word.store(new, Ordering::Relaxed);
            };
            for slot in 0..SLOTS {
                match round % 3 {
                    0 => scribble(state(&inbound.shared, slot)),
                    1 if slot == 0 => scribble(hint(&inbound)),
                    2 => scribble(inbound.shared.word(slot_at(slot) + LENGTH_AND_TAG)),
                    _ => {}
                }
            }
            // Within some thousand tries frames flow again, one for one.
            let mut in_a_row = 0;
            for tag in 0..20_000 {
                world.now_ns += LOOK_NS;
                let sent = send(&mut sender, b"frame", tag);
                let taken = std::iter::from_fn(|| take(&mut inbound, &mut world)).last();
                in_a_row = if sent && taken == Some(tag) { in_a_row + 1 } else { 0 };
                if in_a_row == 2 * SLOTS {
                    break;
                }
            }
            assert_eq!(in_a_row, 2 * SLOTS, "round {round}");
        }
    }

    #[test]
    fn many_senders() {
        const SENDERS: u8 = 4;
        const FRAMES: u32 = 30_000;
        let (file, mut inbound) = TempRing::new();
        let senders: Vec<_> = (0..SENDERS)
            .map(|slot| {
                let mut sender = file.sender(slot);
                thread::spawn(move || {
                    for tag in 0..FRAMES {
                        let len = 8 + (tag as usize * 31) % (FRAME_MAX - 8);
                        let mut frame = vec![slot ^ tag as u8; len];
                        frame[0] = slot;
                        while !sender.push(&frame, tag) {
                            assert_eq!(sender.flush(), 0);
                            thread::yield_now();
                        }
                        if tag % 20 == u32::from(slot) {
                            assert_eq!(sender.flush(), 0);
                        }
                    }
                    assert_eq!(sender.flush(), 0);
                })
            })
            .collect();
        let mut next = [0; SENDERS as usize];
        let mut world = World::default();
        let mut frame = [0; FRAME_MAX];
        while next != [FRAMES; SENDERS as usize] {
            let Some(received) = inbound.receive(&mut frame, true, &mut world) else {
                thread::yield_now();
                continue;
            };
            let slot = frame[0];
            let expected = &mut next[usize::from(slot)];
            assert_eq!(received.tag, *expected);
            assert_eq!(received.len, 8 + (*expected as usize * 31) % (FRAME_MAX - 8));
            let fill = slot ^ *expected as u8;
            assert!(frame[1..received.len].iter().all(|&byte| byte == fill));
            *expected += 1;
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(take(&mut inbound, &mut world), None, "but slots that were given back");
        assert_eq!(inbound.pending(), 0);
    }
}
