//! The background thread, and waiting for a completion channel.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::batch::Driver;
use super::{Channel, Core, Driven, Engine};
use crate::progress::Look;
use crate::sys;

/// How long a waiter drives by itself before it leaves that to the thread and sleeps.
const SPIN_NS: u64 = 50_000;

/// The longest sleep: a sender that dies between leaving a frame and waking us wakes nobody.
const SLEEP_NS: u64 = 250_000_000;

/// Starts the thread. It takes no signal of the application's.
pub(super) fn spawn(core: Arc<Core>) -> io::Result<JoinHandle<()>> {
    let _blocked = sys::block_signals();
    Builder::new()
        .name("ferroce".to_owned())
        .spawn(move || core.progress.run(|| core.try_drive(Driver::Other), || core.look()))
}

impl Core {
    /// What there is to do, without doing it.
    fn look(&self) -> Look {
        let Some(mut inner) = self.try_lock() else { return Look::Busy };
        let now = sys::now_ns();
        let deadline_ns = inner.next_timeout().map_or(u64::MAX, |at| at.nanos());
        let is_due = deadline_ns <= now || inner.is_asked() || inner.member.has_news();
        if is_due || inner.has_arrivals() || !self.doorbells.is_empty() {
            return Look::Work;
        }
        inner.mend_ring();
        Look::Nothing { deadline_ns: Some(deadline_ns.min(now + SLEEP_NS)) }
    }
}

impl Engine {
    /// Waits for a CQ of `channel` to have something to tell, and returns its cookie. Drives for a
    /// while before it sleeps.
    ///
    /// # Errors
    /// `WouldBlock` if the channel's descriptor is non-blocking; `Interrupted`, and what else
    /// read(2) says; EINVAL in a forked child, where a read would take the parent's event away.
    pub fn wait(&self, channel: &Channel) -> io::Result<u64> {
        if !self.is_here() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut found = channel.try_pop();
        if found.is_none() && channel.blocks() {
            self.drive_until(|| {
                found = channel.try_pop();
                found.is_some()
            });
        }
        if let Some(cookie) = found {
            return Ok(cookie);
        }
        channel.pop()
    }

    /// Drives for a while, unless somebody else does, for a caller that is about to sleep: until
    /// `is_done`, which is asked after each batch. What is left is the thread's.
    pub fn drive_until(&self, mut is_done: impl FnMut() -> bool) {
        let start = sys::now_ns();
        loop {
            let driven = self.core.try_drive(Driver::Other);
            if is_done() {
                return;
            }
            if driven == Driven::Busy || sys::now_ns() - start > SPIN_NS {
                break;
            }
        }
        self.core.progress.notified();
    }
}
