//! Descriptors: what threads sleep on.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::errno::{self, Errno};

/// 0 or more, or the errno of a system call.
pub fn check(outcome: libc::c_int) -> Result<libc::c_int, Errno> {
    if outcome < 0 { Err(errno::last()) } else { Ok(outcome) }
}

/// Makes a descriptor one that never blocks.
///
/// # Errors
/// If there is no such descriptor.
pub fn set_nonblocking(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: these take no pointers.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// A flag that threads can sleep on.
#[derive(Debug)]
pub struct Flag(OwnedFd);

impl Flag {
    /// A flag that is down.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> Result<Flag, Errno> {
        // SAFETY: it takes no pointers, and what it returns is ours.
        unsafe {
            let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            Ok(Flag(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Readable while the flag is up.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Puts it up.
    pub fn raise(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read. It fails only if the flag is up, more than anybody counts.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Whether it is up.
    pub fn is_raised(&self) -> bool {
        let mut polled = [libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 }];
        poll(&mut polled, 0).is_ok_and(|count| count > 0)
    }

    /// Takes it down.
    pub fn lower(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are written. It fails if the flag is down.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}

/// poll(2). `timeout_ms` of -1 is for ever.
///
/// # Errors
/// EINTR, and the others of poll(2).
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: libc::c_int) -> Result<usize, Errno> {
    // SAFETY: the slice is as long as said.
    let outcome = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
    usize::try_from(outcome).map_err(|_| Errno::from(io::Error::last_os_error()))
}
