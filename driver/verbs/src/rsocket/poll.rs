//! Waiting for many descriptors, some of which are rsockets (`rpoll`, `rselect`).

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use super::config;
use super::fd::{self, Flag};
use super::table::{self, Socket};
use super::wait::{Awaited, Patience, own_flag};
use crate::errno::Errno;

/// poll(2), of rsockets as well. Returns how many have something to say.
///
/// # Errors
/// EINTR, and the others of poll(2).
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: libc::c_int) -> Result<usize, Errno> {
    let patience = Patience::of_ms(timeout_ms);
    let mut polled: Vec<_> = fds.iter().map(|fd| Polled::new(*fd)).collect();
    let count = poll_with(&mut polled, patience, None)?;
    for (fd, polled) in fds.iter_mut().zip(&polled) {
        fd.revents = polled.fd.revents;
    }
    Ok(count)
}

/// A descriptor that is polled.
#[derive(Debug)]
pub struct Polled {
    /// What is asked, and what it has to say.
    pub fd: libc::pollfd,
    socket: Option<Socket>,
    /// If it is of interest only when something has changed since then: what counts as then.
    pub since: Option<u64>,
    /// How often its socket had changed when it was looked at.
    pub changes: u64,
}

impl Polled {
    /// One that is always of interest.
    pub fn new(fd: libc::pollfd) -> Polled {
        let fd = libc::pollfd { revents: 0, ..fd };
        Polled { fd, socket: table::find(fd.fd), since: None, changes: 0 }
    }

    /// Looks at it.
    fn look(&mut self, other: Option<i16>) {
        let Some(socket) = &self.socket else {
            self.fd.revents = other.unwrap_or(0);
            return;
        };
        // Before it is looked at: what changes meanwhile is told again rather than never.
        self.changes = socket.waiters().changes();
        let revents = socket.revents(self.fd.events);
        let is_new = self.since.is_none_or(|since| since != socket.waiters().changes());
        self.fd.revents = if is_new { revents } else { 0 };
    }
}

/// The same, which returns 0 early when `interrupt` is raised.
///
/// # Errors
/// As those of [`poll`].
pub fn poll_with(
    fds: &mut [Polled],
    patience: Patience,
    interrupt: Option<&Flag>,
) -> Result<usize, Errno> {
    let sockets: Vec<_> = fds.iter().filter_map(|polled| polled.socket.clone()).collect();
    let polling_time = config::defaults().polling_time;
    let spin_end = (!sockets.is_empty()).then(|| Instant::now() + polling_time);
    loop {
        let count = look(fds)?;
        if count > 0 || matches!(patience, Patience::None) {
            return Ok(count);
        }
        if spin_end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
    }
    let flag = own_flag()?;
    let _waiting: Vec<_> = sockets.iter().map(|socket| socket.waiters().enter(&flag)).collect();
    loop {
        let mut awaited = Vec::new();
        for socket in &sockets {
            socket.arm(&mut awaited);
        }
        let count = look(fds)?;
        let Some(left_ms) = patience.left_ms().filter(|_| count == 0) else { return Ok(count) };
        sleep(fds, &awaited, &flag, interrupt, left_ms)?;
        flag.lower();
        for socket in &sockets {
            socket.take_events();
        }
        if interrupt.is_some_and(Flag::is_raised) {
            return Ok(0);
        }
    }
}

/// Fills in what each has to say now, and counts those that have something.
fn look(fds: &mut [Polled]) -> Result<usize, Errno> {
    let mut others = others(fds);
    if !others.is_empty() {
        fd::poll(&mut others, 0)?;
    }
    let mut others = others.iter().map(|other| other.revents);
    let mut count = 0;
    for polled in fds {
        let other = if polled.socket.is_none() { others.next() } else { None };
        polled.look(other);
        count += usize::from(polled.fd.revents != 0);
    }
    Ok(count)
}

/// Those that the system knows.
fn others(fds: &[Polled]) -> Vec<libc::pollfd> {
    fds.iter().filter(|polled| polled.socket.is_none()).map(|polled| polled.fd).collect()
}

/// Sleeps until anything happens.
fn sleep(
    fds: &[Polled],
    awaited: &[RawFd],
    flag: &Arc<Flag>,
    interrupt: Option<&Flag>,
    timeout_ms: libc::c_int,
) -> Result<(), Errno> {
    let mut polled = others(fds);
    let ours = awaited.iter().copied().chain([flag.fd()]).chain(interrupt.map(Flag::fd));
    polled.extend(ours.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }));
    fd::poll(&mut polled, timeout_ms).map(drop)
}
