//! From a socket's making to its connection.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr;

use libc::{sockaddr, sockaddr_storage, socklen_t};

use crate::fd::release;
use crate::library::{C, Inside, R, c, r};
use crate::numbers;

/// How long a call that may not wait does so for an answer from the fabric, at most. That nobody
/// listens is answered at once; outside of the fabric there may be nobody to answer.
const ANSWER_MS: c_int = 250;

/// The rsocket a number of the program's stands for, unless it is the rsocket library that asks.
pub fn target(fd: c_int) -> Option<(&'static R, c_int)> {
    if Inside::is_inside() {
        return None;
    }
    Some((r().filter(|_| numbers::rsocket(fd).is_some())?, numbers::rsocket(fd)?))
}

/// Calls the rsocket library if the number stands for an rsocket, or else the C library.
macro_rules! either {
    ($fd:expr, $r:ident . $rcall:ident($n:ident $(, $rarg:expr)*), $call:ident($($arg:expr),*)) => {
        match $crate::call::target($fd) {
            Some(($r, $n)) => {
                let _inside = $crate::library::Inside::enter();
                ($r.$rcall)($n $(, $rarg)*)
            }
            None => ($crate::library::c().$call)($($arg),*),
        }
    };
}
pub(crate) use either;

/// The calling thread's errno.
pub fn errno() -> c_int {
    // SAFETY: the pointer is to the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets it, and evaluates to what a call that fails returns.
pub fn fail(code: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = code };
    -1
}

/// Gives an rsocket a number of the program's; closes it if there is none.
fn number_for(r: &R, rsocket: c_int, flags: c_int) -> c_int {
    let kind = libc::SOCK_STREAM | (flags & libc::SOCK_CLOEXEC);
    // SAFETY: it takes no pointers.
    let fd = unsafe { (c().socket)(libc::AF_UNIX, kind, 0) };
    if fd >= 0 && numbers::set(fd, rsocket) {
        return fd;
    }
    let code = if fd < 0 { errno() } else { libc::EMFILE };
    let _inside = Inside::enter();
    // SAFETY: these take no pointers.
    unsafe {
        (r.rclose)(rsocket);
        if fd >= 0 {
            (c().close)(fd);
        }
    }
    fail(code)
}

/// # Safety
/// As socket(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !flags == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if is_tcp
        && !Inside::is_inside()
        && let Some(r) = r()
    {
        let inside = Inside::enter();
        // SAFETY: it takes no pointers.
        let rsocket = unsafe { (r.rsocket)(domain, kind, protocol) };
        drop(inside);
        if rsocket >= 0 {
            return number_for(r, rsocket, flags);
        }
    }
    // SAFETY: as above.
    unsafe { (c().socket)(domain, kind, protocol) }
}

/// # Safety
/// As bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        if let Some((r, rsocket)) = target(fd) {
            let inside = Inside::enter();
            let outcome = (r.rbind)(rsocket, addr, len);
            drop(inside);
            let is_foreign = matches!(errno(), libc::EADDRNOTAVAIL | libc::ENODEV);
            if outcome == 0 || !is_foreign || !become_systems(r, fd, rsocket) {
                return outcome;
            }
        }
        (c().bind)(fd, addr, len)
    }
}

/// # Safety
/// As listen(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: these take no pointers.
    unsafe { either!(fd, r.rlisten(n, backlog), listen(fd, backlog)) }
}

/// # Safety
/// As accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_accept(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe { rspreload_accept4(fd, addr, len, 0) }
}

/// # Safety
/// As accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let Some((r, rsocket)) = target(fd) else { return (c().accept4)(fd, addr, len, flags) };
        let inside = Inside::enter();
        let accepted = (r.raccept)(rsocket, addr, len);
        if accepted < 0 {
            return -1;
        }
        let is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let file_flags = if is_nonblocking { libc::O_NONBLOCK } else { 0 };
        (r.rfcntl)(accepted, libc::F_SETFL, file_flags);
        drop(inside);
        number_for(r, accepted, flags)
    }
}

/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_connect(
    fd: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        if let Some((r, rsocket)) = target(fd) {
            let inside = Inside::enter();
            let outcome = (r.rconnect)(rsocket, addr, len);
            let code = if outcome == 0 { 0 } else { outcome_of(r, rsocket, errno()) };
            drop(inside);
            if !is_elsewhere(code) || !become_systems(r, fd, rsocket) {
                return if outcome == 0 { 0 } else { fail(code) };
            }
        }
        (c().connect)(fd, addr, len)
    }
}

/// What has become of a connection that a call has begun without waiting. In the fabric the answer
/// comes soon, and only a refusal that is known now can be taken for a reason to ask the system.
///
/// # Safety
/// None: what the calls read and write is there.
unsafe fn outcome_of(r: &R, rsocket: c_int, code: c_int) -> c_int {
    if code != libc::EINPROGRESS {
        return code;
    }
    let mut polled = libc::pollfd { fd: rsocket, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, and a value as long as said.
    unsafe {
        let found = (r.rpoll)(&mut polled, 1, ANSWER_MS);
        if found != 1 || polled.revents & libc::POLLERR == 0 {
            return code;
        }
        let mut error: c_int = 0;
        let mut len = size_of::<c_int>() as socklen_t;
        let place = (&raw mut error).cast();
        (r.rgetsockopt)(rsocket, libc::SOL_SOCKET, libc::SO_ERROR, place, &mut len);
        if error == 0 { code } else { error }
    }
}

/// Whether somebody outside of the fabric may have the address.
fn is_elsewhere(code: c_int) -> bool {
    matches!(
        code,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ETIMEDOUT
            | libc::EADDRNOTAVAIL
            | libc::ENODEV
    )
}

/// Puts a socket of the system in the place of an rsocket that is not connected; false, with errno
/// as it was, if there is none.
fn become_systems(r: &R, fd: c_int, rsocket: c_int) -> bool {
    let code = errno();
    let inside = Inside::enter();
    // SAFETY: what the calls read and write is there.
    let outcome = unsafe {
        let mut domain = libc::AF_INET;
        let mut len = size_of::<c_int>() as socklen_t;
        let place = (&raw mut domain).cast();
        (r.rgetsockopt)(rsocket, libc::SOL_SOCKET, libc::SO_DOMAIN, place, &mut len);
        let fresh = (c().socket)(domain, libc::SOCK_STREAM, 0);
        fresh >= 0 && {
            copy_state(r, c(), rsocket, fresh);
            let fd_flags = (c().fcntl)(fd, libc::F_GETFD, 0);
            let flags = if fd_flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
            let is_placed = (c().dup3)(fresh, fd, flags) >= 0;
            (c().close)(fresh);
            is_placed
        }
    };
    drop(inside);
    if outcome {
        release(fd);
    }
    fail(code);
    outcome
}

/// Gives a fresh socket what the program has set of an rsocket.
///
/// # Safety
/// None: what the calls read and write is there.
unsafe fn copy_state(r: &R, c: &C, rsocket: c_int, fresh: c_int) {
    let options = [
        (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    ];
    for (level, name) in options {
        let mut value: c_int = 0;
        let mut len = size_of::<c_int>() as socklen_t;
        // SAFETY: the value is as long as said.
        unsafe {
            if (r.rgetsockopt)(rsocket, level, name, (&raw mut value).cast(), &mut len) == 0 {
                (c.setsockopt)(fresh, level, name, (&raw const value).cast::<c_void>(), len);
            }
        }
    }
    // SAFETY: the address is as long as said.
    unsafe {
        let flags = (r.rfcntl)(rsocket, libc::F_GETFL, 0);
        (c.fcntl)(fresh, libc::F_SETFL, flags.max(0) as usize);
        let mut own: sockaddr_storage = zeroed();
        let mut len = size_of::<sockaddr_storage>() as socklen_t;
        let addr = (&raw mut own).cast::<sockaddr>();
        let is_bound = (r.rgetsockname)(rsocket, addr, &mut len) == 0
            && (*addr.cast::<libc::sockaddr_in>()).sin_port != 0;
        if is_bound {
            (c.bind)(fresh, addr, len);
        }
    }
}

/// # Safety
/// As shutdown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: these take no pointers.
    unsafe { either!(fd, r.rshutdown(n, how), shutdown(fd, how)) }
}

/// # Safety
/// As getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_getpeername(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rgetpeername(n, addr, len), getpeername(fd, addr, len)) }
}

/// # Safety
/// As getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_getsockname(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rgetsockname(n, addr, len), getsockname(fd, addr, len)) }
}

/// # Safety
/// As setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        either!(
            fd,
            r.rsetsockopt(n, level, name, value, len),
            setsockopt(fd, level, name, value, len)
        )
    }
}

/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        either!(
            fd,
            r.rgetsockopt(n, level, name, value, len),
            getsockopt(fd, level, name, value, len)
        )
    }
}

/// Bytes that can be read without waiting, as far as it is looked.
pub fn readable(r: &R, rsocket: c_int) -> usize {
    let mut room = [0u8; 1 << 16];
    let _inside = Inside::enter();
    // SAFETY: there is so much room.
    let count = unsafe {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let start = room.as_mut_ptr().cast();
        (r.rrecvfrom)(rsocket, start, room.len(), flags, ptr::null_mut(), ptr::null_mut())
    };
    usize::try_from(count).unwrap_or(0)
}
