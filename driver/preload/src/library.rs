//! The functions behind: those of the C library that come next, and those of rsockets.

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

/// A table of functions that are looked up by their names.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident($($ty:ty),*) -> $ret:ty;)* }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names are those of C")]
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($ty),*) -> $ret,)*
        }

        impl $table {
            /// `None` if one is missing.
            ///
            /// # Safety
            /// The handle must be of a library that has these functions, if any of the names.
            unsafe fn load(handle: *mut c_void) -> Option<$table> {
                $(
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the name ends with zero.
                    let $name = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                    if $name.is_null() {
                        return None;
                    }
                )*
                // SAFETY: a function of that name has that type.
                Some(unsafe { $table { $($name: core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn($($ty),*) -> $ret,
                >($name),)* } })
            }
        }
    };
}

functions! {
    /// Of the C library.
    C {
        accept4(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
        bind(c_int, *const sockaddr, socklen_t) -> c_int;
        close(c_int) -> c_int;
        connect(c_int, *const sockaddr, socklen_t) -> c_int;
        dup(c_int) -> c_int;
        dup2(c_int, c_int) -> c_int;
        dup3(c_int, c_int, c_int) -> c_int;
        epoll_ctl(c_int, c_int, c_int, *mut epoll_event) -> c_int;
        epoll_pwait(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
        fcntl(c_int, c_int, usize) -> c_int;
        getpeername(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        getsockname(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        getsockopt(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
        ioctl(c_int, usize, usize) -> c_int;
        listen(c_int, c_int) -> c_int;
        poll(*mut pollfd, nfds_t, c_int) -> c_int;
        ppoll(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
        read(c_int, *mut c_void, size_t) -> ssize_t;
        readv(c_int, *const iovec, c_int) -> ssize_t;
        recvfrom(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
        recvmsg(c_int, *mut msghdr, c_int) -> ssize_t;
        select(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
        sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t;
        sendmsg(c_int, *const msghdr, c_int) -> ssize_t;
        sendto(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
        setsockopt(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
        shutdown(c_int, c_int) -> c_int;
        socket(c_int, c_int, c_int) -> c_int;
        write(c_int, *const c_void, size_t) -> ssize_t;
        writev(c_int, *const iovec, c_int) -> ssize_t;
    }
}

functions! {
    /// Of rsockets.
    R {
        raccept(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        rbind(c_int, *const sockaddr, socklen_t) -> c_int;
        rclose(c_int) -> c_int;
        rconnect(c_int, *const sockaddr, socklen_t) -> c_int;
        repoll_create(c_int) -> c_int;
        repoll_ctl(c_int, c_int, c_int, *mut epoll_event) -> c_int;
        repoll_wait(c_int, *mut epoll_event, c_int, c_int) -> c_int;
        rfcntl(c_int, c_int, c_int) -> c_int;
        rgetpeername(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        rgetsockname(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
        rgetsockopt(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
        rlisten(c_int, c_int) -> c_int;
        rpoll(*mut pollfd, nfds_t, c_int) -> c_int;
        rreadv(c_int, *const iovec, c_int) -> ssize_t;
        rrecvfrom(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
        rrecvmsg(c_int, *mut msghdr, c_int) -> ssize_t;
        rsendmsg(c_int, *const msghdr, c_int) -> ssize_t;
        rsendto(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
        rsetsockopt(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
        rshutdown(c_int, c_int) -> c_int;
        rsocket(c_int, c_int, c_int) -> c_int;
        rwritev(c_int, *const iovec, c_int) -> ssize_t;
    }
}

/// The C library's functions.
pub fn c() -> &'static C {
    static TABLE: OnceLock<C> = OnceLock::new();
    TABLE.get_or_init(|| {
        // SAFETY: the names are the C library's.
        let table = unsafe { C::load(libc::RTLD_NEXT) };
        table.unwrap_or_else(|| fatal(c"librspreload.so: the C library lacks a function\n"))
    })
}

/// Those of rsockets; `None`, which has been said, if there are none: sockets stay the system's.
pub fn r() -> Option<&'static R> {
    static TABLE: OnceLock<Option<R>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let _inside = Inside::enter();
        // SAFETY: the name ends with zero; the library is made to be loaded, and stays.
        let table = unsafe {
            let handle = libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW);
            if handle.is_null() { None } else { R::load(handle) }
        };
        if table.is_none() {
            say(c"librspreload.so: no rsockets: librdmacm.so.1 is not found, or not ferroce's\n");
        }
        table
    });
    table.as_ref()
}

fn say(text: &CStr) {
    let bytes = text.to_bytes();
    // SAFETY: the bytes are there. There is nobody else to tell.
    unsafe { libc::syscall(libc::SYS_write, 2 as c_uint, bytes.as_ptr(), bytes.len()) };
}

fn fatal(text: &CStr) -> ! {
    say(text);
    // SAFETY: it does not return.
    unsafe { libc::_exit(127) }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call into the rsocket library: what that calls is not the program's.
#[derive(Debug)]
pub struct Inside(());

impl Inside {
    /// From now on, until it is dropped.
    pub fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }

    /// Whether the calling thread is in such a call.
    pub fn is_inside() -> bool {
        DEPTH.get() > 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
