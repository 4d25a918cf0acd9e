//! Events an application waits for on a descriptor, and the arming of a completion queue.
//!
//! An [`EventQueue`] is what stands behind a completion channel or the asynchronous events of a
//! context: the application reads it, or waits for its descriptor with poll or epoll.
//!
//! Invariant, whenever the lock is free: the counter of the eventfd plus the counts in the hands
//! of readers, which have read but not yet locked, is the number of entries plus `surplus`. With
//! no reader under way the descriptor is readable exactly if there is an entry.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::sync::{AtomicU8, Mutex, Ordering, fence, lock};
use crate::sys::{self, LentFd};

/// Entries with a descriptor that is readable while there are any.
#[derive(Debug)]
pub struct EventQueue<T> {
    fd: LentFd,
    queued: Mutex<Queued<T>>,
}

#[derive(Debug)]
struct Queued<T> {
    entries: VecDeque<T>,
    /// Entries that have gone while a reader held their count: so many readers start over.
    surplus: usize,
}

impl<T> EventQueue<T> {
    /// An empty queue; its descriptor blocks.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> io::Result<EventQueue<T>> {
        let queued = Queued { entries: VecDeque::new(), surplus: 0 };
        Ok(EventQueue { fd: sys::eventfd()?, queued: Mutex::new(queued) })
    }

    /// Appends an entry and wakes who waits.
    pub fn push(&self, entry: T) {
        let mut queued = lock(&self.queued);
        queued.entries.push_back(entry);
        // Fails only if the application has closed the descriptor or filled the counter itself;
        // `try_pop` still finds the entry then. Under the lock, for `remove` to find the count.
        let _ = sys::write_u64(self.fd.as_fd(), 1);
    }

    /// Takes the oldest entry, or waits for one unless the application has made the descriptor
    /// non-blocking.
    ///
    /// # Errors
    /// `WouldBlock`; `Interrupted` by a signal; what else read(2) says.
    pub fn pop(&self) -> io::Result<T> {
        self.pop_then(|_| ())
    }

    /// Takes the oldest entry like [`EventQueue::pop`], and tells `taken` of it before any call of
    /// [`EventQueue::remove`] can find it gone.
    ///
    /// # Errors
    /// As [`EventQueue::pop`].
    pub fn pop_then(&self, taken: impl FnOnce(&T)) -> io::Result<T> {
        loop {
            // A real read: after a signal it goes on by itself if the handler says so, which
            // programs rely on.
            sys::read_u64(self.fd.as_fd())?;
            let mut queued = lock(&self.queued);
            if queued.surplus > 0 {
                queued.surplus -= 1;
            } else if let Some(entry) = queued.entries.pop_front() {
                taken(&entry);
                return Ok(entry);
            }
        }
    }

    /// Takes the oldest entry, if there is one. Never waits.
    pub fn try_pop(&self) -> Option<T> {
        let mut queued = lock(&self.queued);
        let entry = queued.entries.pop_front()?;
        self.take_back(&mut queued, 1);
        Some(entry)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        lock(&self.queued).entries.is_empty()
    }

    /// Whether [`pop`](EventQueue::pop) waits.
    pub fn blocks(&self) -> bool {
        sys::blocks(self.fd.as_fd())
    }

    /// Takes back the entries that `is_unwanted` is true of, and says how many. Never waits.
    pub fn remove(&self, mut is_unwanted: impl FnMut(&T) -> bool) -> usize {
        let mut queued = lock(&self.queued);
        let before = queued.entries.len();
        queued.entries.retain(|entry| !is_unwanted(entry));
        let removed = before - queued.entries.len();
        self.take_back(&mut queued, removed);
        removed
    }

    /// Takes the counts of entries that have gone.
    fn take_back(&self, queued: &mut Queued<T>, count: usize) {
        for _ in 0..count {
            // A reader holds the count; or the kernel (before 5.8) cannot read without waiting,
            // and the next reader finds one too many.
            if sys::read_u64_now(self.fd.as_fd()).is_err() {
                queued.surplus += 1;
            }
        }
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<T> AsRawFd for EventQueue<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }
}

/// Whether, and for what, a completion queue owes its channel an event.
///
/// The application arms and then looks at the queue again; the engine publishes completions and
/// then asks whether it is armed. One of the two sees the other's.
#[derive(Debug, Default)]
pub struct Armed(AtomicU8);

const UNARMED: u8 = 0;
/// For a solicited completion, or one in error.
const SOLICITED: u8 = 1;
/// For any completion.
const NEXT: u8 = 2;

impl Armed {
    /// Not armed.
    pub fn new() -> Armed {
        Armed(AtomicU8::new(UNARMED))
    }

    /// Asks for one event, at the next completion or only at a solicited one. The wider of
    /// several requests holds.
    pub fn arm(&self, solicited_only: bool) {
        let wanted = if solicited_only { SOLICITED } else { NEXT };
        self.0.fetch_max(wanted, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the completions just published make an event; disarms if so. `solicited` says
    /// that one of them is solicited or in error. Called by the engine alone, after publishing.
    pub fn fires(&self, solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        let least = if solicited { SOLICITED } else { NEXT };
        if self.0.load(Ordering::Relaxed) < least {
            return false;
        }
        // Only this side lowers it: what was armed a moment ago still is.
        self.0.swap(UNARMED, Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn readable<T>(queue: &EventQueue<T>) -> bool {
        let mut fds = [PollFd::new(queue.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_there_are_entries() {
        let queue = EventQueue::new().unwrap();
        assert!(!readable(&queue));
        queue.push(1);
        queue.push(2);
        assert!(readable(&queue));
        assert_eq!(queue.pop().unwrap(), 1);
        assert!(readable(&queue));
        assert_eq!(queue.try_pop(), Some(2));
        assert!(!readable(&queue));
        assert_eq!(queue.try_pop(), None);
    }

    #[test]
    fn removed_entries_take_their_counts_along() {
        let queue = EventQueue::new().unwrap();
        for entry in 0..6 {
            queue.push(entry);
        }
        assert_eq!(queue.remove(|entry| entry % 2 == 0), 3);
        assert_eq!(queue.remove(|entry| entry % 2 == 0), 0);
        assert_eq!([queue.pop().unwrap(), queue.pop().unwrap(), queue.pop().unwrap()], [1, 3, 5]);
        assert!(!readable(&queue));
    }

    #[test]
    fn a_reader_whose_entry_has_gone_starts_over() {
        let queue = EventQueue::new().unwrap();
        queue.push(1);
        // A reader between its read and the lock.
        sys::read_u64(queue.as_fd()).unwrap();
        assert_eq!(queue.remove(|_| true), 1);
        assert_eq!(lock(&queue.queued).surplus, 1);
        // It finds no count for the next entry until it has given up its own.
        queue.push(2);
        sys::write_u64(queue.as_fd(), 1).unwrap();
        assert_eq!(queue.pop().unwrap(), 2);
        assert!(!readable(&queue));
        assert_eq!(lock(&queue.queued).surplus, 0);
    }

    #[test]
    fn readers_and_removers_share_the_entries() {
        const COUNT: u32 = 20_000;
        let queue = Arc::new(EventQueue::new().unwrap());
        let done = Arc::new(AtomicBool::new(false));
        let reader = {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let mut read = 0;
                while queue.pop().unwrap() != u32::MAX {
                    read += 1;
                }
                read
            })
        };
        let remover = {
            let (queue, done) = (queue.clone(), done.clone());
            std::thread::spawn(move || {
                let mut removed = 0;
                while !done.load(Ordering::Relaxed) {
                    removed += queue.remove(|entry| entry % 3 == 0);
                    removed += usize::from(queue.try_pop().is_some());
                    std::thread::sleep(Duration::from_micros(20));
                }
                removed
            })
        };
        for entry in 0..COUNT {
            queue.push(entry * 2);
        }
        done.store(true, Ordering::Relaxed);
        let removed = remover.join().unwrap();
        queue.push(u32::MAX);
        assert_eq!(reader.join().unwrap() + removed, COUNT as usize);
        assert!(!readable(&queue));
    }

    #[test]
    fn a_completion_queue_fires_once_and_for_what_was_asked() {
        let armed = Armed::new();
        assert!(!armed.fires(true));
        armed.arm(true);
        assert!(!armed.fires(false));
        assert!(armed.fires(true));
        assert!(!armed.fires(true));
        armed.arm(false);
        armed.arm(true);
        assert!(armed.fires(false), "a wider request is not narrowed");
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use ::loom::sync::Arc;
    use ::loom::thread;

    use super::*;
    use crate::ring::ring;

    #[test]
    fn an_armed_completion_queue_never_keeps_a_completion_to_itself() {
        ::loom::model(|| {
            let armed = Arc::new(Armed::new());
            let (mut producer, mut consumer) = ring(2).unwrap();
            let engine = {
                let armed = armed.clone();
                thread::spawn(move || {
                    producer.push(1).unwrap();
                    producer.publish();
                    armed.fires(false)
                })
            };
            armed.arm(false);
            let sleeps = consumer.pop().is_none();
            let fired = engine.join().unwrap();
            assert!(!sleeps || fired);
        });
    }

    #[test]
    fn arming_again_while_an_event_is_made_is_not_forgotten() {
        ::loom::model(|| {
            let armed = Arc::new(Armed::new());
            armed.arm(true);
            let (mut producer, mut consumer) = ring(2).unwrap();
            let engine = {
                let armed = armed.clone();
                thread::spawn(move || {
                    producer.push(1).unwrap();
                    producer.publish();
                    let first = armed.fires(true);
                    producer.push(2).unwrap();
                    producer.publish();
                    first || armed.fires(false)
                })
            };
            armed.arm(false);
            let sleeps = consumer.pop().is_none();
            let fired = engine.join().unwrap();
            assert!(!sleeps || fired);
        });
    }
}
