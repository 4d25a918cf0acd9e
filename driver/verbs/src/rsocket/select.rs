//! select(2), as a poll.

use super::poll::poll;
use crate::errno::{EINVAL, Errno};

/// What makes a descriptor readable, writable and exceptional, as the system has it.
const IN: i16 = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const OUT: i16 = libc::POLLOUT | libc::POLLERR;
const EXCEPT: i16 = libc::POLLPRI;

/// The three sets of a call.
#[derive(Debug)]
pub struct Sets<'a> {
    /// Those to read from.
    pub read: Option<&'a mut libc::fd_set>,
    /// Those to write to.
    pub write: Option<&'a mut libc::fd_set>,
    /// Those with something exceptional.
    pub except: Option<&'a mut libc::fd_set>,
}

/// select(2), of rsockets as well; the sets then have those that are ready, and nothing if it
/// fails.
///
/// # Errors
/// EINVAL if there are more descriptors than a set has; EBADF; those of poll(2).
pub fn select(
    count: libc::c_int,
    sets: &mut Sets<'_>,
    timeout: Option<&libc::timeval>,
) -> Result<libc::c_int, Errno> {
    let timeout_ms = timeout.map_or(Ok(-1), to_ms)?;
    if usize::try_from(count).map_or(true, |count| count > libc::FD_SETSIZE) {
        return Err(EINVAL);
    }
    let mut fds: Vec<_> = (0..count).filter_map(|fd| wanted(fd, sets)).collect();
    poll(&mut fds, timeout_ms)?;
    if fds.iter().any(|polled| polled.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    for set in [&mut sets.read, &mut sets.write, &mut sets.except].into_iter().flatten() {
        // SAFETY: a set of the caller's.
        unsafe { libc::FD_ZERO(&mut **set) };
    }
    let mut found = 0;
    for polled in &fds {
        let ready = [
            (&mut sets.read, libc::POLLIN, IN),
            (&mut sets.write, libc::POLLOUT, OUT),
            (&mut sets.except, libc::POLLPRI, EXCEPT),
        ];
        for (set, event, events) in ready {
            let is_ready = polled.events & event != 0 && polled.revents & events != 0;
            if let Some(set) = set.as_deref_mut().filter(|_| is_ready) {
                // SAFETY: a set of the caller's, with a descriptor that fits.
                unsafe { libc::FD_SET(polled.fd, set) };
                found += 1;
            }
        }
    }
    Ok(found)
}

/// What is wanted of a descriptor.
fn wanted(fd: libc::c_int, sets: &Sets<'_>) -> Option<libc::pollfd> {
    let has = |set: &Option<&mut libc::fd_set>| {
        // SAFETY: a set of the caller's, with a descriptor that fits.
        set.as_deref().is_some_and(|set| unsafe { libc::FD_ISSET(fd, set) })
    };
    let mut events = 0;
    for (set, event) in
        [(&sets.read, libc::POLLIN), (&sets.write, libc::POLLOUT), (&sets.except, libc::POLLPRI)]
    {
        if has(set) {
            events |= event;
        }
    }
    (events != 0).then_some(libc::pollfd { fd, events, revents: 0 })
}

/// Rounded up, so that what is short is not no time at all.
fn to_ms(timeout: &libc::timeval) -> Result<libc::c_int, Errno> {
    if timeout.tv_sec < 0 || timeout.tv_usec < 0 {
        return Err(EINVAL);
    }
    let ms = timeout.tv_usec.saturating_add(999) / 1000;
    let ms = timeout.tv_sec.saturating_mul(1000).saturating_add(ms);
    Ok(libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX))
}
