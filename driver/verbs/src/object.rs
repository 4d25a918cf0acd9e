//! What the objects programs hold have in common: events in the program's hands, and locks that
//! are held from one call to another.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::layout::IbvCqEx;

/// The fields of a CQ that count the events of its channel a program is done with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    count: *mut u32,
}

impl Acknowledged {
    /// Those of a CQ.
    ///
    /// # Safety
    /// The CQ must be live.
    pub unsafe fn of(cq: *mut IbvCqEx) -> Acknowledged {
        // SAFETY: the caller's promise.
        unsafe {
            Acknowledged {
                mutex: &raw mut (*cq).mutex,
                cond: &raw mut (*cq).cond,
                count: &raw mut (*cq).comp_events_completed,
            }
        }
    }

    /// Counts `more` events.
    ///
    /// # Safety
    /// The CQ must still be live.
    pub unsafe fn add(self, more: u32) {
        // SAFETY: the caller's object is alive; the mutex guards the count.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.count = (*self.count).wrapping_add(more);
            libc::pthread_cond_broadcast(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until all of the `handed_out` events are acknowledged, or more.
    ///
    /// # Safety
    /// As [`Acknowledged::add`].
    pub unsafe fn wait(self, handed_out: u32) {
        // SAFETY: as above; the wait gives the mutex up meanwhile.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            while (self.count.read_volatile().wrapping_sub(handed_out) as i32) < 0 {
                libc::pthread_cond_wait(self.cond, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }
}

/// A lock that one call takes and a later one gives back.
#[derive(Debug, Default)]
pub(crate) struct HeldLock(AtomicBool);

impl HeldLock {
    /// Waits for the lock. Who holds it has only to fill work requests or read completions.
    pub fn acquire(&self) {
        while self
            .0
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::thread::yield_now();
        }
    }

    /// Gives it back.
    pub fn release(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether somebody holds it: the caller, unless it forgot to take it.
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
