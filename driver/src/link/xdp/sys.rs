//! System calls of AF_XDP and of BPF, each as a function that cannot be misused.

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{sockaddr_xdp, socklen_t, xdp_mmap_offsets, xdp_options, xdp_umem_reg};

use super::program::Instruction;
use super::umem::CHUNK;
use crate::link::mapping::Mapping;

/// Commands of bpf(2).
mod command {
    pub const MAP_CREATE: i64 = 0;
    pub const MAP_UPDATE: i64 = 2;
    pub const PROGRAM_LOAD: i64 = 5;
    pub const LINK_CREATE: i64 = 28;
}

/// Kinds of maps, programs, and what these are attached to.
const MAP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// The program bears frames of several buffers.
const HAS_FRAGS: u32 = 1 << 5;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Gives a socket its UMEM, all chunks of it.
///
/// # Errors
/// What setsockopt(2) says.
pub fn register(socket: BorrowedFd<'_>, umem: &Mapping) -> io::Result<()> {
    // SAFETY: zeros are a value of it.
    let mut value: xdp_umem_reg = unsafe { mem::zeroed() };
    value.addr = umem.address();
    value.len = umem.len() as u64;
    value.chunk_size = CHUNK as u32;
    set(socket, libc::XDP_UMEM_REG, &value)
}

/// Makes a ring of so many entries.
///
/// # Errors
/// What setsockopt(2) says.
pub fn make_ring(socket: BorrowedFd<'_>, option: c_int, size: u32) -> io::Result<()> {
    set(socket, option, &size)
}

fn set<T>(socket: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    let (len, fd) = (mem::size_of::<T>() as socklen_t, socket.as_raw_fd());
    // SAFETY: the value is borrowed for the call and as long as said. A UMEM that it tells of is
    // kept pinned by the kernel, whatever becomes of our mapping.
    check(unsafe { libc::setsockopt(fd, libc::SOL_XDP, option, ptr::from_ref(value).cast(), len) })
        .map(|_| ())
}

/// Where the parts of the rings are.
///
/// # Errors
/// What getsockopt(2) says.
pub fn ring_offsets(socket: BorrowedFd<'_>) -> io::Result<xdp_mmap_offsets> {
    // SAFETY: zeros and whatever the kernel writes are a value of it.
    let mut value: xdp_mmap_offsets = unsafe { mem::zeroed() };
    get(socket, libc::XDP_MMAP_OFFSETS, &mut value)?;
    Ok(value)
}

/// Whether the driver sends and receives in the UMEM itself; no copies are made then.
///
/// # Errors
/// What getsockopt(2) says.
pub fn is_zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value = xdp_options { flags: 0 };
    get(socket, libc::XDP_OPTIONS, &mut value)?;
    Ok(value.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// `T` is plain data, of which any bytes are a value.
fn get<T>(socket: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<()> {
    let (mut len, fd) = (mem::size_of::<T>() as socklen_t, socket.as_raw_fd());
    let to = ptr::from_mut(value).cast();
    // SAFETY: the value is ours and as long as said.
    check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, to, &mut len) })?;
    // An older kernel would have told less.
    match len as usize == mem::size_of::<T>() {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Binds a socket to a queue of an interface.
///
/// # Errors
/// What bind(2) says.
pub fn bind(socket: BorrowedFd<'_>, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let (len, fd) = (mem::size_of::<sockaddr_xdp>() as socklen_t, socket.as_raw_fd());
    // SAFETY: the address is ours and as long as said.
    check(unsafe { libc::bind(fd, ptr::from_ref(&address).cast(), len) }).map(|_| ())
}

/// Has the kernel look at the ring of frames to send.
///
/// # Errors
/// What sendto(2) says.
pub fn kick(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: there are no bytes and no address.
    let sent = unsafe { libc::sendto(fd, ptr::null(), 0, flags, ptr::null(), 0) };
    check(sent as c_int).map(|_| ())
}

/// Has the kernel look at the ring of chunks to fill. There is nothing to do about an error: what
/// is wrong shows elsewhere.
pub fn wake_receiver(socket: BorrowedFd<'_>) {
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: there are no bytes and no address.
    unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, flags, ptr::null_mut(), ptr::null_mut()) };
}

/// A map of sockets by queue.
///
/// # Errors
/// What bpf(2) says.
pub fn make_map(entries: u32) -> io::Result<OwnedFd> {
    let attributes =
        MapCreate { kind: MAP_SOCKETS, key_size: 4, value_size: 4, max_entries: entries, flags: 0 };
    // SAFETY: points to nothing.
    descriptor(unsafe { bpf(command::MAP_CREATE, &attributes) }?)
}

/// Puts a socket into a map.
///
/// # Errors
/// What bpf(2) says.
pub fn put(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd() as u32;
    let attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const queue).addr() as u64,
        value: (&raw const value).addr() as u64,
        flags: 0,
    };
    // SAFETY: key and value are of this frame and as long as the map was made for.
    unsafe { bpf(command::MAP_UPDATE, &attributes) }.map(|_| ())
}

/// Loads a program, which may be for frames of several buffers. What the kernel has against it is
/// written to `log`, unless that is empty, and ends with a zero.
///
/// # Errors
/// What bpf(2) says.
pub fn load(program: &[Instruction], frags: bool, log: &mut [u8]) -> io::Result<OwnedFd> {
    const LICENCE: &CStr = c"Dual MIT/GPL";
    let mut name = [0; 16];
    name[..12].copy_from_slice(b"ferroce_roce");
    let attributes = ProgramLoad {
        kind: PROGRAM_XDP,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr().addr() as u64,
        licence: LICENCE.as_ptr().addr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        kernel_version: 0,
        flags: if frags { HAS_FRAGS } else { 0 },
        name,
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: program, licence and log are borrowed for the call and as long as said.
    descriptor(unsafe { bpf(command::PROGRAM_LOAD, &attributes) }?)
}

/// Attaches a program to an interface for as long as the result lives; `flags` are `XDP_FLAGS_*`.
///
/// # Errors
/// What bpf(2) says.
pub fn attach(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let attributes = LinkCreate { program, interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: points to nothing.
    descriptor(unsafe { bpf(command::LINK_CREATE, &attributes) }?)
}

/// # Safety
/// What the attributes point to is there for the call, as the command has it.
unsafe fn bpf<T>(command: i64, attributes: &T) -> io::Result<c_int> {
    let (start, len) = (ptr::from_ref(attributes), mem::size_of::<T>() as c_uint);
    // SAFETY: the attributes are borrowed for the call and as long as said; of the rest the caller
    // has made sure.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, start, len) } as c_int)
}

/// The kernel closes what bpf(2) opens on exec.
fn descriptor(fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(outcome: c_int) -> io::Result<c_int> {
    match outcome {
        0.. => Ok(outcome),
        _ => Err(io::Error::last_os_error()),
    }
}
