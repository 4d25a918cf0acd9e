//! Brings frames of an interface to sockets, for as long as the result lives: the kernel detaches
//! the program with the last descriptor of it, however the process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::error::XdpError;
use super::{program, sys};

/// `XDP_FLAGS_*`.
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// What the kernel has to say of a program.
const LOG: usize = 64 << 10;

/// Which frames, and how.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// The interface's number.
    pub interface: u32,
    /// The VLAN; 0 is that of frames without.
    pub vid: u16,
    /// Frames may have several buffers.
    pub bears_frags: bool,
    /// Not in the driver.
    pub is_generic: bool,
}

/// A map for the sockets of so many queues.
///
/// # Errors
/// [`XdpError`].
pub fn make_map(queues: u32) -> Result<OwnedFd, XdpError> {
    sys::make_map(queues).map_err(XdpError::at("make a BPF map"))
}

/// Attaches a program that picks out frames for the sockets in the map: in the driver if it can.
///
/// # Errors
/// [`XdpError`].
pub fn attach(map: BorrowedFd<'_>, selection: Selection) -> Result<OwnedFd, XdpError> {
    let Selection { interface, vid, bears_frags, is_generic } = selection;
    let code = program::assemble(map.as_raw_fd(), vid);
    let program = sys::load(&code, bears_frags, &mut []).or_else(|_| {
        // Once more, to hear why.
        let mut log = vec![0; LOG];
        let outcome = sys::load(&code, bears_frags, &mut log);
        outcome.map_err(|source| XdpError::of_program(source, &log))
    })?;
    let by = |flags| sys::attach(program.as_fd(), interface, flags);
    match if is_generic { Err(io::ErrorKind::Unsupported.into()) } else { by(NATIVE) } {
        Err(error) if is_final(&error) => Err(error),
        // The driver cannot, or not with frames as long as the interface's.
        Err(_) => by(GENERIC),
        attached => attached,
    }
    .map_err(XdpError::of_attach)
}

/// Whether it would not help to ask for less.
fn is_final(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY | libc::EEXIST))
}
