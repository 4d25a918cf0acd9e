//! Bytes in and out.

use core::ffi::{c_int, c_void};
use core::ptr;

use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::call::{either, fail, target};
use crate::library::{Inside, c};

/// Bytes of a file that are sent at a time.
const CHUNK: usize = 1 << 16;

/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    let none = ptr::null_mut();
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rrecvfrom(n, buf, len, 0, none, ptr::null_mut()), read(fd, buf, len)) }
}

/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload___read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { rspreload_read(fd, buf, len) }
}

/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rreadv(n, pieces, count), readv(fd, pieces, count)) }
}

/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_recv(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { rspreload_recvfrom(fd, buf, len, flags, ptr::null_mut(), ptr::null_mut()) }
}

/// # Safety
/// As recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload___recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    _room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { rspreload_recv(fd, buf, len, flags) }
}

/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe {
        either!(
            fd,
            r.rrecvfrom(n, buf, len, flags, addr, addr_len),
            recvfrom(fd, buf, len, flags, addr, addr_len)
        )
    }
}

/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload___recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    _room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { rspreload_recvfrom(fd, buf, len, flags, addr, addr_len) }
}

/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rrecvmsg(n, message, flags), recvmsg(fd, message, flags)) }
}

/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rsendto(n, buf, len, 0, ptr::null(), 0), write(fd, buf, len)) }
}

/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_writev(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rwritev(n, pieces, count), writev(fd, pieces, count)) }
}

/// # Safety
/// As send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_send(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { rspreload_sendto(fd, buf, len, flags, ptr::null(), 0) }
}

/// # Safety
/// As sendto(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe {
        either!(
            fd,
            r.rsendto(n, buf, len, flags, addr, addr_len),
            sendto(fd, buf, len, flags, addr, addr_len)
        )
    }
}

/// # Safety
/// As sendmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { either!(fd, r.rsendmsg(n, message, flags), sendmsg(fd, message, flags)) }
}

/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    if target(from).is_some() {
        return fail(libc::EINVAL) as ssize_t;
    }
    let Some((r, rsocket)) = target(to) else {
        // SAFETY: as the program promises.
        return unsafe { (c().sendfile)(to, from, offset, len) };
    };
    // SAFETY: as the program promises: null or valid.
    let given = unsafe { offset.as_ref().copied() };
    // SAFETY: it takes no pointers.
    let mut at = given.unwrap_or_else(|| unsafe { libc::lseek(from, 0, libc::SEEK_CUR) });
    let mut chunk = [0u8; CHUNK];
    let (mut sent, mut last) = (0usize, 0);
    while sent < len {
        // SAFETY: there is so much room, and then so many bytes.
        unsafe {
            let wanted = CHUNK.min(len - sent);
            last = libc::pread(from, chunk.as_mut_ptr().cast(), wanted, at);
            if last > 0 {
                let _inside = Inside::enter();
                last =
                    (r.rsendto)(rsocket, chunk.as_ptr().cast(), last as usize, 0, ptr::null(), 0);
            }
        }
        let Ok(count @ 1..) = usize::try_from(last) else { break };
        sent += count;
        at += count as off_t;
    }
    if sent == 0 {
        return last;
    }
    // SAFETY: as the program promises: null or valid; the other takes no pointers.
    unsafe {
        match offset.as_mut() {
            Some(offset) => *offset = at,
            None => {
                libc::lseek(from, at, libc::SEEK_SET);
            }
        }
    }
    sent as ssize_t
}

/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: as the program promises.
    unsafe { rspreload_sendfile(to, from, offset, len) }
}
