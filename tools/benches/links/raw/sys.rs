//! The system calls that the standard library has not, each as a function that cannot be misused.

use std::ffi::c_int;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

use libc::socklen_t;

/// A socket that never waits.
pub fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointer.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option; `T` is a number or a structure of the C library.
pub fn set<T: Copy>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let len = mem::size_of::<T>() as socklen_t;
    // SAFETY: the value is borrowed for the call and as long as said.
    let outcome = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, ptr::from_ref(value).cast(), len)
    };
    check(outcome).map(drop)
}

/// Gets an option that is so many words.
pub fn words<const N: usize>(fd: &OwnedFd, level: c_int, option: c_int) -> io::Result<[u64; N]> {
    let (mut value, mut len) = ([0u64; N], (8 * N) as socklen_t);
    let to = value.as_mut_ptr().cast();
    // SAFETY: the value and its length are borrowed for the call, and any bytes make words.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, to, &mut len) })?;
    Ok(value)
}

/// Binds to an address, a structure of the C library.
pub fn bind<T: Copy>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    let (at, len) = (ptr::from_ref(address).cast(), mem::size_of::<T>() as socklen_t);
    // SAFETY: the address is borrowed for the call and as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), at, len) }).map(drop)
}

/// Tells a socket that there is something to send in its ring.
pub fn kick(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: sends no bytes.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    check(sent as c_int).map(drop)
}

/// Number of an interface.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: a string with its end, borrowed for the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// A structure of the C library that is all zeros.
///
/// # Safety
/// Zeros have to be a value of `T`.
pub unsafe fn zeroed<T: Copy>() -> T {
    // SAFETY: by the caller's promise.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// bpf(2) with these attributes; a descriptor, or 0.
///
/// # Safety
/// What the attributes point to has to be what the command takes, and to outlive the call.
pub unsafe fn bpf<T: Copy>(command: c_int, attributes: &T) -> io::Result<c_int> {
    let (at, len) = (ptr::from_ref(attributes), mem::size_of::<T>());
    // SAFETY: the attributes are borrowed for the call and as long as said; the rest is promised.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, at, len) } as c_int)
}

/// Owns a descriptor that bpf(2) has returned.
///
/// # Safety
/// Nobody else may own it.
pub unsafe fn own(fd: c_int) -> OwnedFd {
    // SAFETY: by the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn check(outcome: c_int) -> io::Result<c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

/// Memory that is shared with the kernel, read and written in words.
#[derive(Debug)]
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// Memory of a socket.
    pub fn of(fd: &OwnedFd, len: usize, offset: i64) -> io::Result<Mapping> {
        Mapping::new(fd.as_raw_fd(), libc::MAP_SHARED, len, offset)
    }

    /// New memory.
    pub fn anonymous(len: usize) -> io::Result<Mapping> {
        Mapping::new(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, len, 0)
    }

    fn new(fd: c_int, flags: c_int, len: usize, offset: i64) -> io::Result<Mapping> {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { at: at.cast(), len })
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.at as u64
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The word at an offset in bytes.
    ///
    /// # Panics
    /// If there is none.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: aligned, since mappings are, and within the mapping, which lives as long as the
        // borrow. The kernel reads and writes whole words.
        unsafe { AtomicU32::from_ptr(self.at.add(offset).cast()) }
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn fill(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: within the mapping, which no reference of this process covers meanwhile.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no borrow is left.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
