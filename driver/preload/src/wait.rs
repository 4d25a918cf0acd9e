//! poll(2) and select(2) of rsockets and others together.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr;

use libc::{fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::call::{fail, target};
use crate::library::{Inside, R, c};

/// Signals that are blocked only while a call waits.
pub struct Mask(Option<sigset_t>);

impl Mask {
    /// # Safety
    /// The mask must be null or valid.
    pub unsafe fn set(mask: *const sigset_t) -> Mask {
        if mask.is_null() {
            return Mask(None);
        }
        // SAFETY: the caller's promise; the other set is ours.
        unsafe {
            let mut before = zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, &mut before);
            Mask(Some(before))
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: as it was before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

/// Polls what the program's numbers stand for.
fn poll_all(r: &R, fds: &mut [pollfd], timeout_ms: c_int) -> c_int {
    let behind = |polled: &pollfd| {
        let fd = target(polled.fd).map_or(polled.fd, |(_, rsocket)| rsocket);
        pollfd { fd, events: polled.events, revents: 0 }
    };
    let mut polled: Vec<pollfd> = fds.iter().map(behind).collect();
    let inside = Inside::enter();
    // SAFETY: the list is as long as said.
    let outcome = unsafe { (r.rpoll)(polled.as_mut_ptr(), polled.len() as nfds_t, timeout_ms) };
    drop(inside);
    if outcome >= 0 {
        for (fd, polled) in fds.iter_mut().zip(&polled) {
            fd.revents = polled.revents;
        }
    }
    outcome
}

/// # Safety
/// As poll(2).
unsafe fn slice<'a>(fds: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    match count {
        0 => &mut [],
        // SAFETY: the caller's promise.
        _ => unsafe { core::slice::from_raw_parts_mut(fds, count as usize) },
    }
}

/// The rsocket library, if one of the numbers stands for an rsocket.
fn any(fds: &[pollfd]) -> Option<&'static R> {
    fds.iter().find_map(|polled| target(polled.fd)).map(|(r, _)| r)
}

/// # Safety
/// As poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_poll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let list = slice(fds, count);
        match any(list) {
            Some(r) => poll_all(r, list, timeout_ms),
            None => (c().poll)(fds, count, timeout_ms),
        }
    }
}

/// # Safety
/// As poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload___poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    _room: size_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe { rspreload_poll(fds, count, timeout_ms) }
}

/// # Safety
/// As ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let list = slice(fds, count);
        let Some(r) = any(list) else { return (c().ppoll)(fds, count, timeout, mask) };
        let timeout_ms = timeout.as_ref().map_or(-1, |timeout| {
            to_ms(timeout.tv_sec, timeout.tv_nsec.saturating_add(999_999) / 1_000_000)
        });
        let _mask = Mask::set(mask);
        poll_all(r, list, timeout_ms)
    }
}

/// Milliseconds for poll(2).
fn to_ms(seconds: i64, ms: i64) -> c_int {
    let ms = seconds.saturating_mul(1000).saturating_add(ms);
    c_int::try_from(ms.max(0)).unwrap_or(c_int::MAX)
}

/// # Safety
/// As select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    const SETS: [(i16, i16); 3] = [
        (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
        (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
        (libc::POLLPRI, libc::POLLPRI),
    ];
    let sets = [read, write, except];
    let wanted = |fd: c_int| {
        let mut events = 0;
        for (set, (event, _)) in sets.iter().zip(SETS) {
            // SAFETY: as the program promises, the set has that number.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                events |= event;
            }
        }
        (events != 0).then_some(pollfd { fd, events, revents: 0 })
    };
    let mut fds: Vec<pollfd> = (0..count).filter_map(wanted).collect();
    let Some(r) = any(&fds) else {
        // SAFETY: as the program promises.
        return unsafe { (c().select)(count, read, write, except, timeout) };
    };
    // SAFETY: as the program promises: null or valid.
    let timeout_ms = unsafe { timeout.as_ref() }
        .map_or(-1, |timeout| to_ms(timeout.tv_sec, timeout.tv_usec.saturating_add(999) / 1000));
    if poll_all(r, &mut fds, timeout_ms) < 0 {
        return -1;
    }
    if fds.iter().any(|polled| polled.revents & libc::POLLNVAL != 0) {
        return fail(libc::EBADF);
    }
    let mut found = 0;
    for polled in &fds {
        for (set, (event, ready)) in sets.iter().zip(SETS) {
            if polled.events & event == 0 {
                continue;
            }
            if polled.revents & ready != 0 {
                found += 1;
            } else {
                // SAFETY: it is in the set.
                unsafe { libc::FD_CLR(polled.fd, *set) };
            }
        }
    }
    found
}
