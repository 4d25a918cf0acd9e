//! Names and services turned into addresses: `rdma_getaddrinfo` over the C library's `getaddrinfo`,
//! so that `/etc/hosts`, DNS and `/etc/services` count as they do for sockets.

use core::ffi::{c_char, c_int};
use core::mem::size_of;
use core::ptr;

use libc::{addrinfo, sockaddr, socklen_t};

use super::id::{QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV, QPT_XRC_SEND};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, RdmaAddrinfo, zeroed,
};
use crate::log::refuse;

/// Why there is no address.
enum Failure {
    /// Of `getaddrinfo`: what `gai_strerror` explains.
    Name(c_int),
    Errno(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

/// The address of `node` and `service`: one to listen at if the hints say so, else one to connect
/// to. With neither, what the hints have. 0; or -1 with errno set; or a code of `getaddrinfo`.
///
/// # Safety
/// `node` and `service` must be null or C strings, `hints` null or valid with addresses of the
/// lengths it says, `result` valid.
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrinfo,
    result: *mut *mut RdmaAddrinfo,
) -> c_int {
    // SAFETY: the caller gives valid hints or null.
    let hints = unsafe { hints.as_ref() };
    // SAFETY: the caller gives what the functions need.
    let found = unsafe {
        match (node.is_null() && service.is_null(), hints) {
            (true, None) => Err(refuse!(EINVAL, "rdma_getaddrinfo: nothing to go by").into()),
            (true, Some(hints)) => of_hints(hints),
            (false, hints) => lookup(node, service, &hints.copied().unwrap_or(zeroed())),
        }
    };
    match found {
        Ok(found) => {
            // SAFETY: the caller gives a valid pointer.
            unsafe { *result = found };
            0
        }
        Err(Failure::Name(code)) => code,
        Err(Failure::Errno(errno)) => errno::minus_one(Err(errno)),
    }
}

/// Frees a list from [`rdma_getaddrinfo`].
///
/// # Safety
/// `list` must be null or from there; programs may have replaced parts by others of `malloc`.
pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(mut list: *mut RdmaAddrinfo) {
    // SAFETY: the caller gives such a list or null.
    while let Some(info) = unsafe { list.as_ref() } {
        let next = info.ai_next;
        // SAFETY: each part was allocated by `malloc` or is null.
        unsafe {
            libc::free(info.ai_connect.cast());
            libc::free(info.ai_route.cast());
            libc::free(info.ai_src_canonname.cast());
            libc::free(info.ai_dst_canonname.cast());
            libc::free(info.ai_src_addr.cast());
            libc::free(info.ai_dst_addr.cast());
            libc::free(list.cast());
        }
        list = next;
    }
}

/// An entry that is freed unless it is handed out.
struct Entry(*mut RdmaAddrinfo);

impl Entry {
    fn new(value: RdmaAddrinfo) -> Result<Entry, Errno> {
        // SAFETY: the size is not 0. The program may free parts of it by itself, hence C's heap.
        let memory = unsafe { libc::malloc(size_of::<RdmaAddrinfo>()) }.cast::<RdmaAddrinfo>();
        if memory.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: the memory is fresh, large enough and aligned for any type.
        unsafe { memory.write(value) };
        Ok(Entry(memory))
    }

    fn get(&mut self) -> &mut RdmaAddrinfo {
        // SAFETY: it is valid and nobody else's as long as `self` is here.
        unsafe { &mut *self.0 }
    }

    fn into_raw(self) -> *mut RdmaAddrinfo {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: every part is null or from `malloc`.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

/// # Safety
/// The hints' addresses must have the lengths they say.
unsafe fn of_hints(hints: &RdmaAddrinfo) -> Result<*mut RdmaAddrinfo, Failure> {
    let mut entry = Entry::new(RdmaAddrinfo {
        ai_flags: hints.ai_flags,
        ai_family: hints.ai_family,
        ai_qp_type: hints.ai_qp_type,
        ai_port_space: hints.ai_port_space,
        ..zeroed()
    })?;
    let info = entry.get();
    // SAFETY: as the caller says.
    unsafe {
        (info.ai_dst_addr, info.ai_dst_len) = copied(hints.ai_dst_addr, hints.ai_dst_len)?;
        (info.ai_src_addr, info.ai_src_len) = copied(hints.ai_src_addr, hints.ai_src_len)?;
    }
    Ok(entry.into_raw())
}

/// # Safety
/// As for [`rdma_getaddrinfo`]; one of `node` and `service` is not null.
unsafe fn lookup(
    node: *const c_char,
    service: *const c_char,
    hints: &RdmaAddrinfo,
) -> Result<*mut RdmaAddrinfo, Failure> {
    let asked = question(hints, !node.is_null());
    let mut answers = ptr::null_mut();
    // SAFETY: the strings are the caller's, the hints have no pointers.
    let code = unsafe { libc::getaddrinfo(node, service, &asked, &mut answers) };
    if code != 0 {
        return Err(Failure::Name(code));
    }
    // SAFETY: there is at least one answer where there is no error; the hints are the caller's.
    let entry = unsafe { of_answer(&*answers, hints) };
    // SAFETY: the list is from `getaddrinfo`, and everything of it was copied.
    unsafe { libc::freeaddrinfo(answers) };
    Ok(entry?.into_raw())
}

/// The hints as `getaddrinfo` understands them.
fn question(hints: &RdmaAddrinfo, has_node: bool) -> addrinfo {
    let mut flags = 0;
    if hints.ai_flags & RAI_PASSIVE != 0 {
        flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        flags |= libc::AI_NUMERICHOST;
    }
    if has_node {
        flags |= libc::AI_CANONNAME;
    }
    let ai_socktype = match hints.ai_qp_type {
        QPT_RC | QPT_UC | QPT_XRC_SEND | QPT_XRC_RECV => libc::SOCK_STREAM,
        QPT_UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    let ai_protocol = match hints.ai_port_space {
        RDMA_PS_TCP => libc::IPPROTO_TCP,
        RDMA_PS_UDP | RDMA_PS_IPOIB => libc::IPPROTO_UDP,
        // The port space IB is for every kind of QP.
        _ => 0,
    };
    addrinfo {
        ai_flags: flags,
        ai_family: hints.ai_family,
        ai_socktype,
        ai_protocol,
        ai_addrlen: 0,
        ai_addr: ptr::null_mut(),
        ai_canonname: ptr::null_mut(),
        ai_next: ptr::null_mut(),
    }
}

/// What the first answer says, as far as the hints leave it open.
///
/// # Safety
/// The answer must be from `getaddrinfo`, the hints' source address of the length they say.
unsafe fn of_answer(answer: &addrinfo, hints: &RdmaAddrinfo) -> Result<Entry, Errno> {
    let (qp_type, port_space) = match answer.ai_socktype {
        libc::SOCK_DGRAM => (QPT_UD, RDMA_PS_UDP),
        _ => (QPT_RC, RDMA_PS_TCP),
    };
    let or = |hint: c_int, found: c_int| if hint == 0 { found } else { hint };
    let mut entry = Entry::new(RdmaAddrinfo {
        ai_flags: hints.ai_flags & RAI_PASSIVE,
        ai_family: answer.ai_family,
        ai_qp_type: or(hints.ai_qp_type, qp_type),
        ai_port_space: or(hints.ai_port_space, port_space),
        ..zeroed()
    })?;
    let info = entry.get();
    // SAFETY: the answer is from `getaddrinfo`, the rest as the caller says.
    unsafe {
        let address = copied(answer.ai_addr, answer.ai_addrlen)?;
        let name = match answer.ai_canonname.is_null() {
            true => ptr::null_mut(),
            false => libc::strdup(answer.ai_canonname),
        };
        if hints.ai_flags & RAI_PASSIVE != 0 {
            (info.ai_src_addr, info.ai_src_len) = address;
            info.ai_src_canonname = name;
        } else {
            (info.ai_dst_addr, info.ai_dst_len) = address;
            info.ai_dst_canonname = name;
            (info.ai_src_addr, info.ai_src_len) = copied(hints.ai_src_addr, hints.ai_src_len)?;
        }
    }
    Ok(entry)
}

/// A copy of an address in memory of `malloc`; none of none.
///
/// # Safety
/// `address` must be null or of `len` bytes.
unsafe fn copied(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<(*mut sockaddr, socklen_t), Errno> {
    if len == 0 {
        return Ok((ptr::null_mut(), 0));
    }
    if address.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: the size is not 0.
    let memory = unsafe { libc::malloc(len as usize) };
    if memory.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: both are of `len` bytes, and the new one is nobody else's.
    unsafe { ptr::copy_nonoverlapping(address.cast(), memory.cast::<u8>(), len as usize) };
    Ok((memory.cast(), len))
}
