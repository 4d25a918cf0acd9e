//! Waking a member that sleeps, if its wake word says so.
//!
//! A member sleeps on the word itself, or, where it also waits for other descriptors, on a datagram
//! socket beside its ring's file. A byte in the socket is a wake-up; a full one has wake-ups enough.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::registry::remove_stale;
use super::ring::{self, Sleep};
use super::shm::Shared;
use crate::progress::takes_wake;
use crate::sys;

/// Wake-ups taken at a time: whoever sends more has the member look for the rest once more.
const TAKEN: usize = 64;

/// A sender's way to wake a member.
#[derive(Debug)]
pub enum Waker {
    /// By its wake word.
    Word,
    /// By its socket.
    Socket(UnixDatagram),
    /// Not at all: its socket is gone. It looks by itself now and then.
    None,
}

impl Waker {
    /// That of the member whose ring is `shared`; its socket, if it has one, is at `path`.
    pub fn of(shared: &Shared, path: &Path) -> Waker {
        match ring::sleep_of(shared) {
            Sleep::Word => Waker::Word,
            Sleep::Socket => connect(path).map_or(Waker::None, Waker::Socket),
        }
    }

    /// Wakes the member if it sleeps. What was written before is visible to it when it wakes, or
    /// if it does not sleep yet, when it looks after having armed its wake word.
    #[inline]
    pub fn wake(&self, shared: &Shared) {
        let word = ring::wake_word(shared);
        if !takes_wake(word) {
            return;
        }
        match self {
            Waker::Word => sys::futex_wake(word),
            Waker::Socket(socket) => {
                // If it has no room, it is readable; if it is gone, so is the member.
                let _ = socket.send(&[0]);
            }
            Waker::None => {}
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    Ok(socket)
}

/// A member's own end: readable when somebody has woken it.
#[derive(Debug)]
pub struct WakeSocket(UnixDatagram);

impl WakeSocket {
    /// Makes the socket, in place of what an earlier member has left.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn bind(path: &Path) -> io::Result<WakeSocket> {
        remove_stale(path)?;
        let socket = UnixDatagram::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(WakeSocket(socket))
    }

    /// Takes wake-ups, as many as a burst brings. What they say does not matter.
    pub fn drain(&self) {
        for _ in 0..TAKEN {
            match self.0.recv(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl AsFd for WakeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
