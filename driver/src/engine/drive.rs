//! Running batches: by whoever finds the lock free, or waits for it.

use std::sync::{MutexGuard, TryLockError};

use ferroce_stack::time::Instant;
use ferroce_stack::verbs::VerbsError;

use super::batch::{BATCH, Driver, Inner};
use super::{Core, Guard, Unlocked};
use crate::memory;
use crate::progress::Driven;
use crate::sync::lock;
use crate::sys;

/// Batches one drives for others who post meanwhile, before that is left to the thread: they could
/// keep a caller for ever.
const LAPS: usize = 8;

impl Core {
    pub(crate) fn is_here(&self) -> bool {
        self.generation == sys::fork_generation()
    }

    pub(super) fn lock(&self) -> Result<Guard<'_>, VerbsError> {
        let mut inner = self.visit()?;
        if inner.member.has_news() {
            inner.hear();
        }
        Ok(Guard { inner, unlocked: Unlocked(self) })
    }

    /// The lock alone, unless somebody has it.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`lock`](Core::lock), for who changes nothing and drives right behind.
    pub(super) fn visit(&self) -> Result<MutexGuard<'_, Inner>, VerbsError> {
        if !self.is_here() {
            return Err(VerbsError::Invalid);
        }
        memory::admit_faults();
        let mut inner = lock(&self.inner);
        inner.drain(&self.doorbells);
        Ok(inner)
    }

    /// Tells the peers of established connections that they are over, as a kernel does for a
    /// process that ends.
    pub(super) fn end_connections(&self) {
        let Ok(mut guard) = self.lock() else { return };
        let now = Instant::from_nanos(sys::now_ns());
        let ended = guard.inner.services.as_mut().map_or(0, |services| services.end_all(now));
        for _ in 0..ended.div_ceil(BATCH) {
            guard.inner.batch(Driver::Other);
        }
    }

    /// Has the thread wake up in time for the next timer.
    pub(super) fn tell_deadline(&self, inner: &Inner) {
        self.progress.timer(|| inner.next_timeout().map(|at| at.nanos()));
    }

    /// Runs one bounded batch, unless somebody else does.
    pub(crate) fn try_drive(&self, driver: Driver) -> Driven {
        if !self.is_here() {
            return Driven::Busy;
        }
        memory::admit_faults();
        let mut driven = Driven::Idle;
        for _ in 0..LAPS {
            let Some(mut inner) = self.try_lock() else { return Driven::Busy };
            inner.see_arrivals();
            inner.drain(&self.doorbells);
            match (inner.batch(driver), driven) {
                (Driven::Worked { frames }, Driven::Worked { frames: before }) => {
                    driven = Driven::Worked { frames: frames || before };
                }
                (Driven::Worked { frames }, _) => driven = Driven::Worked { frames },
                _ => {}
            }
            self.tell_deadline(&inner);
            drop(inner);
            // Who posted meanwhile found the lock taken and left it to us.
            if self.doorbells.is_empty() {
                return driven;
            }
        }
        self.progress.ring_bell();
        driven
    }
}
