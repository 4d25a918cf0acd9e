//! Addresses as programs give and take them.

use core::mem::offset_of;

use libc::{
    AF_INET, AF_INET6, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage,
    socklen_t,
};

use crate::errno::{EINVAL, Errno};

/// An address of IPv4 or IPv6 with a port, or none.
#[derive(Clone, Copy, Debug)]
pub struct SockAddr(sockaddr_storage);

impl SockAddr {
    /// Bytes there is room for.
    pub const CAPACITY: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

    /// The wildcard of a family, of port 0.
    pub fn any(family: libc::c_int) -> SockAddr {
        // SAFETY: a structure of numbers.
        let mut storage: sockaddr_storage = unsafe { core::mem::zeroed() };
        storage.ss_family = family as sa_family_t;
        SockAddr(storage)
    }

    /// An address of a program.
    ///
    /// # Errors
    /// EINVAL if it is too short, EAFNOSUPPORT if it is of another family.
    ///
    /// # Safety
    /// `addr` must be null or have `len` bytes.
    pub unsafe fn read(addr: *const sockaddr, len: socklen_t) -> Result<SockAddr, Errno> {
        let mut copy = SockAddr::any(0);
        let len = (len as usize).min(size_of::<sockaddr_storage>());
        if addr.is_null() || len < offset_of!(sockaddr_in, sin_port) {
            return Err(EINVAL);
        }
        // SAFETY: the caller's promise, and not more than there is room for.
        unsafe { core::ptr::copy_nonoverlapping(addr.cast(), copy.bytes_mut(), len) };
        let needed = match copy.family() {
            AF_INET => size_of::<sockaddr_in>(),
            // An address without the scope, as older headers have it.
            AF_INET6 => offset_of!(sockaddr_in6, sin6_scope_id),
            _ => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        if len < needed { Err(EINVAL) } else { Ok(copy) }
    }

    /// From the storage of an id.
    pub fn from_storage(storage: &sockaddr_storage) -> SockAddr {
        SockAddr(*storage)
    }

    /// From the bytes of an IPv4 (4) or IPv6 (16) address and a port, all in network order.
    pub fn from_parts(address: &[u8], port: [u8; 2]) -> Option<SockAddr> {
        let port = u16::from_ne_bytes(port);
        if let Ok(v4) = <[u8; 4]>::try_from(address) {
            let mut addr = SockAddr::any(AF_INET);
            addr.v4_mut().sin_port = port;
            addr.v4_mut().sin_addr.s_addr = u32::from_ne_bytes(v4);
            return Some(addr);
        }
        let mut addr = SockAddr::any(AF_INET6);
        addr.v6_mut().sin6_port = port;
        addr.v6_mut().sin6_addr.s6_addr = address.try_into().ok()?;
        Some(addr)
    }

    /// `AF_INET`, `AF_INET6` or 0.
    pub fn family(&self) -> libc::c_int {
        libc::c_int::from(self.0.ss_family)
    }

    /// Bytes of the structure for its family.
    pub fn len(&self) -> socklen_t {
        match self.family() {
            AF_INET => size_of::<sockaddr_in>() as socklen_t,
            AF_INET6 => size_of::<sockaddr_in6>() as socklen_t,
            _ => 0,
        }
    }

    /// For calls that read an address.
    pub fn as_ptr(&self) -> *const sockaddr {
        (&raw const self.0).cast()
    }

    /// For calls that write an address, of at most [`SockAddr::CAPACITY`] bytes.
    pub fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }

    fn bytes_mut(&mut self) -> *mut u8 {
        (&raw mut self.0).cast()
    }

    fn v4(&self) -> &sockaddr_in {
        // SAFETY: the storage is larger and as aligned.
        unsafe { &*(&raw const self.0).cast() }
    }

    fn v6(&self) -> &sockaddr_in6 {
        // SAFETY: as above.
        unsafe { &*(&raw const self.0).cast() }
    }

    fn v4_mut(&mut self) -> &mut sockaddr_in {
        // SAFETY: as above.
        unsafe { &mut *(&raw mut self.0).cast() }
    }

    fn v6_mut(&mut self) -> &mut sockaddr_in6 {
        // SAFETY: as above.
        unsafe { &mut *(&raw mut self.0).cast() }
    }

    /// The port, in network order.
    pub fn port(&self) -> [u8; 2] {
        // Both families have it at the same place.
        self.v4().sin_port.to_ne_bytes()
    }

    /// The same address with another port, in network order.
    pub fn with_port(mut self, port: [u8; 2]) -> SockAddr {
        self.v4_mut().sin_port = u16::from_ne_bytes(port);
        self
    }

    /// Its 4 or 16 bytes, in network order.
    pub fn address(&self) -> Vec<u8> {
        match self.family() {
            AF_INET6 => self.v6().sin6_addr.s6_addr.to_vec(),
            _ => self.v4().sin_addr.s_addr.to_ne_bytes().to_vec(),
        }
    }

    /// Whether it stands for any address.
    pub fn is_any(&self) -> bool {
        self.address().iter().all(|&byte| byte == 0)
    }

    /// Gives it to a program, cut to the room there is, with its full length.
    ///
    /// # Safety
    /// The pointers must be null or valid, with as much room as `len` says.
    pub unsafe fn write(&self, addr: *mut sockaddr, len: *mut socklen_t) {
        // SAFETY: the caller's promise.
        let Some(len) = (unsafe { len.as_mut() }) else { return };
        let room = core::mem::replace(len, self.len()).min(self.len());
        if !addr.is_null() {
            // SAFETY: the caller's promise.
            unsafe {
                let bytes = self.as_ptr().cast::<u8>();
                core::ptr::copy_nonoverlapping(bytes, addr.cast(), room as usize);
            }
        }
    }
}

impl PartialEq for SockAddr {
    /// Address and port.
    fn eq(&self, other: &SockAddr) -> bool {
        self.family() == other.family()
            && self.port() == other.port()
            && self.address() == other.address()
    }
}
