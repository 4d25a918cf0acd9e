//! The calls programs have, under the names of `rdma/rsocket.h`: arguments are checked, numbers
//! become sockets, and results become errno.

use core::ffi::{c_int, c_void};

use libc::{msghdr, nfds_t, off_t, sockaddr, socklen_t, ssize_t};

use super::addr::SockAddr;
use super::datagram::Datagram;
use super::iov::Cursor;
use super::options::{Place, Value};
use super::poll::poll;
use super::select::{Sets, select};
use super::set::Set;
use super::stream::Stream;
use super::table::{self, Socket};
use crate::device::lock;
use crate::errno::{self, EINVAL, Errno};

const ENOTSUP: Errno = Errno(libc::ENOTSUP);

fn code(outcome: Result<(), Errno>) -> c_int {
    errno::minus_one(outcome.map(|()| 0))
}

fn size(outcome: Result<usize, Errno>) -> ssize_t {
    match outcome {
        // No call moves more bytes than that.
        Ok(size) => size as ssize_t,
        Err(Errno(code)) => {
            errno::set(code);
            -1
        }
    }
}

pub(crate) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    errno::minus_one(new_socket(domain, kind, protocol))
}

fn new_socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, Errno> {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if domain != libc::AF_INET && domain != libc::AF_INET6 {
        return Err(ENOTSUP);
    }
    let (fd, socket) = match (kind & !flags, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            let stream = Stream::new(domain)?;
            (stream.fd(), Socket::Stream(stream))
        }
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            let datagram = Datagram::new(domain)?;
            (datagram.fd(), Socket::Datagram(datagram))
        }
        _ => return Err(ENOTSUP),
    };
    {
        let mut options = lock(socket.options());
        options.is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        options.fd_flags = if flags & libc::SOCK_CLOEXEC != 0 { libc::FD_CLOEXEC } else { 0 };
    }
    table::insert(fd, socket);
    Ok(fd)
}

/// # Safety
/// The address must be null or have `len` bytes.
pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    code(table::get(socket).and_then(|socket| {
        // SAFETY: the caller's promise.
        let addr = unsafe { SockAddr::read(addr, len)? };
        match socket {
            Socket::Stream(stream) => stream.bind(&addr),
            Socket::Datagram(datagram) => datagram.bind(&addr),
        }
    }))
}

pub(crate) extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    code(table::get(socket).and_then(|socket| match socket {
        Socket::Stream(stream) => stream.listen(backlog),
        Socket::Datagram(_) => Err(Errno(libc::EOPNOTSUPP)),
    }))
}

/// # Safety
/// The pointers must be null, or valid and with as much room as `len` says.
pub(crate) unsafe extern "C" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    errno::minus_one(table::get(socket).and_then(|socket| match socket {
        Socket::Stream(stream) => {
            let accepted = stream.accept()?;
            // SAFETY: the caller's promise.
            unsafe { accepted.id.peer_addr().write(addr, len) };
            let fd = accepted.fd();
            table::insert(fd, Socket::Stream(accepted));
            Ok(fd)
        }
        Socket::Datagram(_) => Err(Errno(libc::EOPNOTSUPP)),
    }))
}

/// # Safety
/// The address must be null or have `len` bytes.
pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    addr: *const sockaddr,
    len: socklen_t,
) -> c_int {
    code(table::get(socket).and_then(|socket| {
        // SAFETY: the caller's promise.
        let addr = unsafe { SockAddr::read(addr, len)? };
        match socket {
            Socket::Stream(stream) => stream.connect(&addr),
            Socket::Datagram(datagram) => datagram.connect(&addr),
        }
    }))
}

pub(crate) extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    code(table::get(socket).and_then(|socket| match socket {
        Socket::Stream(stream) => stream.shutdown(how),
        Socket::Datagram(_) => Err(Errno(libc::ENOTCONN)),
    }))
}

pub(crate) extern "C" fn rclose(socket: c_int) -> c_int {
    let Some(entry) = table::remove(socket) else {
        return code(table::remove_set(socket).map(drop).ok_or(Errno(libc::EBADF)));
    };
    if entry.made_in != std::process::id() {
        // What belongs to the parent stays as it is; the child has only the number.
        core::mem::forget(entry);
        // SAFETY: the number is the caller's to close.
        return unsafe { libc::close(socket) };
    }
    match entry.socket {
        Socket::Stream(stream) => stream.close(),
        Socket::Datagram(datagram) => datagram.close(),
    }
    0
}

/// # Safety
/// There must be room for `len` bytes.
pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { rrecvfrom(socket, buf, len, flags, core::ptr::null_mut(), core::ptr::null_mut()) }
}

/// # Safety
/// There must be room for `len` bytes; the other pointers must be null, or valid and with as much
/// room as `addr_len` says.
pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    let piece = libc::iovec { iov_base: buf, iov_len: len };
    // SAFETY: the caller's promise.
    size(Cursor::new(core::slice::from_ref(&piece)).and_then(|mut room| unsafe {
        let (received, from) = recv(socket, &mut room, flags)?;
        if !addr.is_null() {
            from.write(addr, addr_len);
        }
        Ok(received)
    }))
}

/// # Safety
/// There must be as much room as said.
unsafe fn recv(
    socket: c_int,
    room: &mut Cursor<'_>,
    flags: c_int,
) -> Result<(usize, SockAddr), Errno> {
    match table::get(socket)? {
        // SAFETY: the caller's promise.
        Socket::Stream(stream) => unsafe {
            let received = stream.recv(room, flags)?;
            Ok((received, stream.id.peer_addr()))
        },
        // SAFETY: as above.
        Socket::Datagram(datagram) => unsafe { datagram.recv(room, flags) },
    }
}

/// # Safety
/// The message and what it points to must be valid.
pub(crate) unsafe extern "C" fn rrecvmsg(
    socket: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { message.as_mut() }) else {
        return size(Err(Errno(libc::EFAULT)));
    };
    // SAFETY: as above.
    size(unsafe {
        Cursor::of(message.msg_iov, message.msg_iovlen).and_then(|mut room| {
            let (received, from) = recv(socket, &mut room, flags)?;
            if !message.msg_name.is_null() {
                from.write(message.msg_name.cast(), &mut message.msg_namelen);
            }
            message.msg_controllen = 0;
            message.msg_flags = 0;
            Ok(received)
        })
    })
}

/// # Safety
/// There must be room for `count` bytes.
pub(crate) unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: usize) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { rrecv(socket, buf, count, 0) }
}

/// # Safety
/// The pieces must be valid.
pub(crate) unsafe extern "C" fn rreadv(
    socket: c_int,
    pieces: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // SAFETY: the caller's promise.
    size(unsafe {
        Cursor::of(pieces, count).and_then(|mut room| Ok(recv(socket, &mut room, 0)?.0))
    })
}

/// # Safety
/// There must be `len` bytes.
pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { rsendto(socket, buf, len, flags, core::ptr::null(), 0) }
}

/// # Safety
/// There must be `len` bytes, and `addr_len` of an address or null.
pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    let piece = libc::iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: the caller's promise.
    size(
        Cursor::new(core::slice::from_ref(&piece))
            .and_then(|mut bytes| unsafe { send(socket, &mut bytes, flags, addr, addr_len) }),
    )
}

/// # Safety
/// The bytes must be there, and `addr_len` of an address or null.
unsafe fn send(
    socket: c_int,
    bytes: &mut Cursor<'_>,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Result<usize, Errno> {
    match table::get(socket)? {
        Socket::Stream(_) if !addr.is_null() || addr_len != 0 => Err(Errno(libc::EISCONN)),
        // SAFETY: the caller's promise.
        Socket::Stream(stream) => unsafe { stream.send(bytes, flags) },
        // SAFETY: as above.
        Socket::Datagram(datagram) => unsafe {
            let peer = match addr.is_null() {
                true => None,
                false => Some(SockAddr::read(addr, addr_len)?),
            };
            datagram.send(bytes, peer.as_ref(), flags)
        },
    }
}

/// # Safety
/// The message and what it points to must be valid.
pub(crate) unsafe extern "C" fn rsendmsg(
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { message.as_ref() }) else {
        return size(Err(Errno(libc::EFAULT)));
    };
    if !message.msg_control.is_null() && message.msg_controllen > 0 {
        return size(Err(ENOTSUP));
    }
    // SAFETY: as above.
    size(unsafe {
        Cursor::of(message.msg_iov, message.msg_iovlen).and_then(|mut bytes| {
            send(socket, &mut bytes, flags, message.msg_name.cast(), message.msg_namelen)
        })
    })
}

/// # Safety
/// There must be `count` bytes.
pub(crate) unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: usize) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { rsend(socket, buf, count, 0) }
}

/// # Safety
/// The pieces must be valid.
pub(crate) unsafe extern "C" fn rwritev(
    socket: c_int,
    pieces: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // SAFETY: the caller's promise.
    size(unsafe {
        Cursor::of(pieces, count)
            .and_then(|mut bytes| send(socket, &mut bytes, 0, core::ptr::null(), 0))
    })
}

/// # Safety
/// There must be `count` entries.
pub(crate) unsafe extern "C" fn rpoll(
    fds: *mut libc::pollfd,
    count: nfds_t,
    timeout_ms: c_int,
) -> c_int {
    let fds = match count {
        0 => &mut [],
        // SAFETY: the caller's promise.
        _ if !fds.is_null() => unsafe { core::slice::from_raw_parts_mut(fds, count as usize) },
        _ => return code(Err(Errno(libc::EFAULT))),
    };
    errno::minus_one(poll(fds, timeout_ms).map(|count| count as c_int))
}

/// # Safety
/// The pointers must be null or valid.
pub(crate) unsafe extern "C" fn rselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the caller's promise; one set may not be given twice.
    errno::minus_one(unsafe {
        let mut sets = Sets { read: read.as_mut(), write: write.as_mut(), except: except.as_mut() };
        select(count, &mut sets, timeout.as_ref())
    })
}

/// # Safety
/// The pointers must be null, or valid and with as much room as `len` says.
pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    code(table::get(socket).and_then(|socket| match socket {
        Socket::Stream(stream) => {
            // That there is a peer is how programs find out that a connection has come about.
            if !stream.has_peer() {
                return Err(Errno(libc::ENOTCONN));
            }
            let peer = stream.id.peer_addr();
            // SAFETY: the caller's promise.
            unsafe { peer.write(addr, len) };
            Ok(())
        }
        Socket::Datagram(datagram) => {
            let peer = datagram.peer_addr()?;
            // SAFETY: as above.
            unsafe { peer.write(addr, len) };
            Ok(())
        }
    }))
}

/// # Safety
/// The pointers must be null, or valid and with as much room as `len` says.
pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    code(table::get(socket).and_then(|socket| match socket {
        Socket::Stream(stream) => {
            // SAFETY: the caller's promise.
            unsafe { stream.local_addr().write(addr, len) };
            Ok(())
        }
        Socket::Datagram(datagram) => {
            let own = datagram.local_addr()?;
            // SAFETY: as above.
            unsafe { own.write(addr, len) };
            Ok(())
        }
    }))
}

/// # Safety
/// There must be `len` bytes.
pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    code(table::get(socket).and_then(|socket| {
        // SAFETY: the caller's promise.
        let value = unsafe { Value::new(value, len) };
        match socket {
            Socket::Stream(stream) => stream.set_option(level, name, value),
            Socket::Datagram(datagram) => datagram.set_option(level, name, value),
        }
    }))
}

/// # Safety
/// The pointers must be null, or valid and with as much room as `len` says.
pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    code(table::get(socket).and_then(|socket| {
        // SAFETY: the caller's promise.
        let place = unsafe { Place::new(value, len)? };
        match socket {
            Socket::Stream(stream) => stream.option(level, name, place),
            Socket::Datagram(datagram) => datagram.option(level, name, place),
        }
    }))
}

/// The third argument is variable in C, and passed as here.
pub(crate) extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_int) -> c_int {
    // What a forked child sets of its parent's socket is its own: it may be about to call `exec`.
    let found = table::find(socket).ok_or(Errno(libc::EBADF));
    errno::minus_one(found.and_then(|socket| lock(socket.options()).fcntl(command, argument)))
}

/// # Safety
/// The peer may write to the buffer until it is unmapped or the socket closed.
pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = table::get(socket).and_then(|socket| match socket {
        // SAFETY: the caller's promise.
        Socket::Stream(stream) => unsafe { stream.map(buf.cast(), len, prot, offset) },
        Socket::Datagram(_) => Err(EINVAL),
    });
    match mapped {
        Ok(offset) => offset,
        Err(Errno(code)) => {
            errno::set(code);
            -1
        }
    }
}

pub(crate) extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int {
    code(table::get(socket).and_then(|socket| match socket {
        Socket::Stream(stream) => stream.unmap(buf.cast(), len),
        Socket::Datagram(_) => Err(EINVAL),
    }))
}

/// # Safety
/// There must be `count` bytes.
pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: usize,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let piece = libc::iovec { iov_base: buf.cast_mut(), iov_len: count };
    size(Cursor::new(core::slice::from_ref(&piece)).and_then(|mut bytes| {
        match table::get(socket)? {
            // SAFETY: the caller's promise.
            Socket::Stream(stream) => unsafe {
                stream.write_mapped(&mut bytes, offset as u64, flags)
            },
            Socket::Datagram(_) => Err(EINVAL),
        }
    }))
}

/// There is nothing a set needs to be told of `exec`: it is gone with its descriptor, which closes.
pub(crate) extern "C" fn repoll_create(_flags: c_int) -> c_int {
    errno::minus_one(Set::new().map(|set| {
        let fd = set.fd();
        table::insert_set(fd, set);
        fd
    }))
}

/// # Safety
/// The event must be null or valid.
pub(crate) unsafe extern "C" fn repoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: the caller's promise. C has it packed, so that it may lie anywhere.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    code(table::set(set).and_then(|set| set.control(op, fd, event.as_ref())))
}

/// # Safety
/// There must be room for `count` events.
pub(crate) unsafe extern "C" fn repoll_wait(
    set: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout_ms: c_int,
) -> c_int {
    let room = match usize::try_from(count) {
        // SAFETY: the caller's promise.
        Ok(count @ 1..) if !events.is_null() => unsafe {
            core::slice::from_raw_parts_mut(events, count)
        },
        _ => return code(Err(EINVAL)),
    };
    let found = table::set(set).and_then(|set| set.wait(room, timeout_ms));
    errno::minus_one(found.map(|count| count as c_int))
}
