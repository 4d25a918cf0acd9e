//! The atomics and locks that threads share: the standard library's, or loom's, which tries
//! every interleaving of a test.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use crate::sys::{futex_wait, futex_wake};
#[cfg(loom)]
pub(crate) use futex::{futex_wait, futex_wake};
#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

/// Locks; a thread that panicked with the lock held does not take the others with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Tells loom of the accesses to one plain cell, so that it finds two that race. Otherwise
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Watch {
    /// The cell is read.
    #[inline]
    pub(crate) fn reads(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }

    /// The cell is written.
    #[inline]
    pub(crate) fn writes(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}

/// A futex as the kernel's, for one word, with no time-out: loom calls a lost wake-up a deadlock.
#[cfg(loom)]
mod futex {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref QUEUE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _timeout_ns: Option<u64>) {
        let guard = super::lock(&QUEUE.0);
        if word.load(Ordering::Relaxed) == expected {
            drop(QUEUE.1.wait(guard));
        }
    }

    pub(crate) fn futex_wake(_word: &AtomicU32) {
        let _guard = super::lock(&QUEUE.0);
        QUEUE.1.notify_one();
    }
}
