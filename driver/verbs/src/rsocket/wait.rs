//! How threads wait for a socket to change.
//!
//! Several threads may wait for one socket, each for something else, and one for several sockets.
//! A completion that any of them takes may be what another waits for. So each thread has a flag of
//! its own, which it hands to the sockets before it looks at them for the last time; who has
//! changed a socket, or taken the event that its completion queue was armed for, raises the flags
//! of the others. A thread sleeps on its flag and on the queues' channels.

use core::sync::atomic::{AtomicU64, Ordering};
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::config;
use super::fd::{Flag, poll};
use crate::device::lock;
use crate::errno::Errno;

/// What a thread can wait for.
pub trait Awaited {
    /// Who waits.
    fn waiters(&self) -> &Waiters;
    /// Asks for events, and adds the descriptors they make readable.
    fn arm(&self, fds: &mut Vec<RawFd>);
    /// Takes the events that have come.
    fn take_events(&self);
}

/// The threads that wait for a socket.
#[derive(Debug, Default)]
pub struct Waiters {
    flags: Mutex<Vec<Arc<Flag>>>,
    changes: AtomicU64,
}

impl Waiters {
    /// The calling thread waits from now on, until what this returns is dropped.
    pub fn enter(&self, flag: &Arc<Flag>) -> Waiting<'_> {
        lock(&self.flags).push(flag.clone());
        Waiting { waiters: self, flag: flag.clone() }
    }

    /// How often something has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Something has changed: everybody but the calling thread is to look again.
    pub fn wake(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let waiting = lock(&self.flags);
        if waiting.is_empty() {
            return;
        }
        let own = OWN.with_borrow(|own| own.as_ref().map(|(_, flag)| flag.clone()));
        for flag in waiting.iter() {
            if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own, flag)) {
                flag.raise();
            }
        }
    }
}

/// A thread that waits.
#[derive(Debug)]
pub struct Waiting<'a> {
    waiters: &'a Waiters,
    flag: Arc<Flag>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiters.flags);
        if let Some(place) = waiting.iter().position(|flag| Arc::ptr_eq(flag, &self.flag)) {
            waiting.swap_remove(place);
        }
    }
}

thread_local! {
    /// The calling thread's flag, and the process it was made in: a forked child's copy would be
    /// its parent's.
    static OWN: RefCell<Option<(u32, Arc<Flag>)>> = const { RefCell::new(None) };
}

/// The calling thread's flag.
///
/// # Errors
/// If there is no descriptor left.
pub fn own_flag() -> Result<Arc<Flag>, Errno> {
    let process = std::process::id();
    OWN.with_borrow_mut(|own| match own {
        Some((made_in, flag)) if *made_in == process => Ok(flag.clone()),
        _ => {
            let flag = Arc::new(Flag::new()?);
            *own = Some((process, flag.clone()));
            Ok(flag)
        }
    })
}

/// Until when a call waits.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// It does not: EAGAIN.
    None,
    /// As long as it takes.
    Endless,
    /// Until then: EAGAIN.
    Until(Instant),
}

impl Patience {
    /// For so many milliseconds, for ever if they are negative.
    pub fn of_ms(timeout_ms: libc::c_int) -> Patience {
        match u64::try_from(timeout_ms) {
            Ok(0) => Patience::None,
            Ok(ms) => Patience::Until(Instant::now() + Duration::from_millis(ms)),
            Err(_) => Patience::Endless,
        }
    }

    /// What is left, for poll(2); `None` if nothing is.
    pub fn left_ms(self) -> Option<libc::c_int> {
        match self {
            Patience::None => None,
            Patience::Endless => Some(-1),
            Patience::Until(end) => {
                let left = end.checked_duration_since(Instant::now())?;
                // Rounded up, so that nobody returns early or spins through the last millisecond.
                let ms = left.as_nanos().div_ceil(1_000_000);
                (ms > 0).then(|| libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX))
            }
        }
    }
}

/// Calls `attempt` until it has a result.
///
/// # Errors
/// EAGAIN if there is no patience left, EINTR, and those of poll(2).
pub fn wait_for<T>(
    awaited: &impl Awaited,
    patience: Patience,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<T, Errno> {
    if let Some(result) = attempt() {
        return Ok(result);
    }
    if matches!(patience, Patience::None) {
        return Err(Errno(libc::EAGAIN));
    }
    let spin_end = Instant::now() + config::defaults().polling_time;
    while Instant::now() < spin_end {
        if let Some(result) = attempt() {
            return Ok(result);
        }
    }
    let flag = own_flag()?;
    let _waiting = awaited.waiters().enter(&flag);
    let mut fds = Vec::new();
    loop {
        fds.clear();
        awaited.arm(&mut fds);
        if let Some(result) = attempt() {
            return Ok(result);
        }
        let left_ms = patience.left_ms().ok_or(Errno(libc::EAGAIN))?;
        fds.push(flag.fd());
        let wanted = |&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<_> = fds.iter().map(wanted).collect();
        poll(&mut polled, left_ms)?;
        flag.lower();
        awaited.take_events();
    }
}
