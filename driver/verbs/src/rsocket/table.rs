//! The sockets of this process, by number.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::datagram::Datagram;
use super::options::Options;
use super::set::Set;
use super::stream::Stream;
use super::wait::{Awaited, Waiters};
use crate::errno::{EINVAL, Errno};

/// A socket.
#[derive(Clone, Debug)]
pub enum Socket {
    /// Of a connection.
    Stream(Arc<Stream>),
    /// Of datagrams.
    Datagram(Arc<Datagram>),
}

impl Socket {
    /// What the program has set.
    pub fn options(&self) -> &Mutex<Options> {
        match self {
            Socket::Stream(stream) => &stream.options,
            Socket::Datagram(datagram) => &datagram.options,
        }
    }

    /// What poll(2) would say of it.
    pub fn revents(&self, events: i16) -> i16 {
        match self {
            Socket::Stream(stream) => stream.revents(events),
            Socket::Datagram(datagram) => datagram.revents(events),
        }
    }
}

impl Awaited for Socket {
    fn waiters(&self) -> &Waiters {
        match self {
            Socket::Stream(stream) => stream.waiters(),
            Socket::Datagram(datagram) => datagram.waiters(),
        }
    }

    fn arm(&self, fds: &mut Vec<RawFd>) {
        match self {
            Socket::Stream(stream) => stream.arm(fds),
            Socket::Datagram(datagram) => datagram.arm(fds),
        }
    }

    fn take_events(&self) {
        match self {
            Socket::Stream(stream) => stream.take_events(),
            Socket::Datagram(datagram) => datagram.take_events(),
        }
    }
}

/// A socket, and the process that made it.
#[derive(Debug)]
pub struct Entry {
    /// Itself.
    pub socket: Socket,
    /// A forked child has its number, but cannot use it.
    pub made_in: u32,
}

static TABLE: RwLock<BTreeMap<RawFd, Entry>> = RwLock::new(BTreeMap::new());

/// Enters a socket under its number.
pub fn insert(fd: RawFd, socket: Socket) {
    let entry = Entry { socket, made_in: std::process::id() };
    TABLE.write().unwrap_or_else(PoisonError::into_inner).insert(fd, entry);
}

/// Takes it out.
pub fn remove(fd: RawFd) -> Option<Entry> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner).remove(&fd)
}

/// The socket of a number, if it is one's.
pub fn find(fd: RawFd) -> Option<Socket> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(&fd).map(|entry| entry.socket.clone())
}

/// The same, for a call on it.
///
/// # Errors
/// EBADF; EINVAL for one of the process this one was forked from: what is sent would not arrive.
pub fn get(fd: RawFd) -> Result<Socket, Errno> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    match table.get(&fd) {
        None => Err(Errno(libc::EBADF)),
        Some(entry) if entry.made_in != std::process::id() => Err(EINVAL),
        Some(entry) => Ok(entry.socket.clone()),
    }
}

static SETS: RwLock<BTreeMap<RawFd, Arc<Set>>> = RwLock::new(BTreeMap::new());

/// Enters a set under its number.
pub fn insert_set(fd: RawFd, set: Arc<Set>) {
    SETS.write().unwrap_or_else(PoisonError::into_inner).insert(fd, set);
}

/// Takes it out.
pub fn remove_set(fd: RawFd) -> Option<Arc<Set>> {
    SETS.write().unwrap_or_else(PoisonError::into_inner).remove(&fd)
}

/// The set of a number.
///
/// # Errors
/// EINVAL, as of a descriptor that is not a set.
pub fn set(fd: RawFd) -> Result<Arc<Set>, Errno> {
    let sets = SETS.read().unwrap_or_else(PoisonError::into_inner);
    sets.get(&fd).cloned().ok_or(EINVAL)
}
