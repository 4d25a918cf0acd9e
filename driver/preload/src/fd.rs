//! What sockets have in common with files: copies of the number, flags, and the end.

use core::ffi::c_int;

use crate::call::{readable, target};
use crate::epoll;
use crate::library::{Inside, c, r};
use crate::numbers;

/// A number stands for its rsocket no more, which is closed if no other does.
pub fn release(fd: c_int) {
    let Some(cleared) = numbers::clear(fd) else { return };
    if cleared.is_last
        && let Some(r) = r()
    {
        epoll::forget(cleared.rsocket);
        let _inside = Inside::enter();
        // SAFETY: it takes no pointers.
        unsafe { (r.rclose)(cleared.rsocket) };
    }
}

/// A new number stands for what an old one does.
fn copied(old: c_int, new: c_int) -> c_int {
    if new >= 0
        && let Some(rsocket) = numbers::rsocket(old)
    {
        numbers::set(new, rsocket);
    }
    new
}

/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_close(fd: c_int) -> c_int {
    if !Inside::is_inside() {
        epoll::close(fd);
        release(fd);
    }
    // SAFETY: as the program promises.
    unsafe { (c().close)(fd) }
}

/// # Safety
/// As dup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_dup(fd: c_int) -> c_int {
    // SAFETY: it takes no pointers.
    copied(fd, unsafe { (c().dup)(fd) })
}

/// # Safety
/// As dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_dup2(old: c_int, new: c_int) -> c_int {
    if old != new && !Inside::is_inside() {
        epoll::close(new);
        release(new);
    }
    // SAFETY: it takes no pointers.
    copied(old, unsafe { (c().dup2)(old, new) })
}

/// # Safety
/// As dup3(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new && !Inside::is_inside() {
        epoll::close(new);
        release(new);
    }
    // SAFETY: it takes no pointers.
    copied(old, unsafe { (c().dup3)(old, new, flags) })
}

/// The third argument is variable in C, and passed as here.
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    if let Some((r, rsocket)) = target(fd)
        && matches!(command, libc::F_GETFL | libc::F_SETFL)
    {
        let _inside = Inside::enter();
        // SAFETY: these take no pointers.
        return unsafe { (r.rfcntl)(rsocket, command, argument as c_int) };
    }
    // SAFETY: as the program promises.
    let outcome = unsafe { (c().fcntl)(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, outcome),
        _ => outcome,
    }
}

/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as the program promises.
    unsafe { rspreload_fcntl(fd, command, argument) }
}

/// The third argument is variable in C, and passed as here.
///
/// # Safety
/// As ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let Some((r, rsocket)) = target(fd) else { return (c().ioctl)(fd, request, argument) };
        let place = argument as *mut c_int;
        match request as libc::Ioctl {
            libc::FIONBIO => {
                let flags = if place.read() != 0 { libc::O_NONBLOCK } else { 0 };
                let _inside = Inside::enter();
                (r.rfcntl)(rsocket, libc::F_SETFL, flags)
            }
            libc::FIONREAD => {
                place.write(readable(r, rsocket) as c_int);
                0
            }
            _ => (c().ioctl)(fd, request, argument),
        }
    }
}
