//! A program at an interface that hands RoCE to one socket of AF_XDP, and nothing else.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};

use super::frame::{HEADERS, PORT};
use super::sys;

/// Commands of bpf(2).
const MAP_CREATE: c_int = 0;
const MAP_UPDATE: c_int = 2;
const PROGRAM_LOAD: c_int = 5;
const LINK_CREATE: c_int = 28;

const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program takes frames in several pieces.
const HAS_FRAGS: u32 = 1 << 5;
/// Where to attach: at the driver, or behind it.
const NATIVE: u32 = 1 << 2;
const GENERIC: u32 = 1 << 1;

/// What the program answers: on to the kernel.
const PASS: i32 = 2;
/// A helper of the kernel: to the socket that a map has.
const REDIRECT_MAP: i32 = 51;

/// A program that is attached, and a place for a socket. It is gone with this value.
#[derive(Debug)]
pub struct Program {
    sockets: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct NewMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct NewEntry {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct NewProgram {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct NewLink {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

impl Program {
    /// Attaches one to an interface, at its driver if that can.
    pub fn attach(interface: u32) -> Result<Program> {
        let sockets = map().context("make a map of sockets")?;
        let program = load(&instructions(&sockets)).context("load a program")?;
        let link = link(&program, interface, NATIVE)
            .or_else(|_| link(&program, interface, GENERIC))
            .context("attach a program")?;
        Ok(Program { sockets, _program: program, _link: link })
    }

    /// Sends frames to this socket from now on.
    pub fn redirect_to(&self, socket: &OwnedFd) -> Result<()> {
        let (key, value) = (0u32, socket.as_raw_fd());
        let entry = NewEntry {
            map: self.sockets.as_raw_fd() as u32,
            _pad: 0,
            key: (&raw const key) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: key and value are four bytes, as the map has them, and outlive the call.
        unsafe { sys::bpf(MAP_UPDATE, &entry) }.context("put a socket into the map")?;
        Ok(())
    }
}

fn map() -> io::Result<OwnedFd> {
    let new = NewMap { kind: MAP_OF_SOCKETS, key_size: 4, value_size: 4, max_entries: 1 };
    // SAFETY: points to nothing.
    let fd = unsafe { sys::bpf(MAP_CREATE, &new) }?;
    // SAFETY: just made.
    Ok(unsafe { sys::own(fd) })
}

fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    let new = NewProgram {
        kind: PROGRAM_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: HAS_FRAGS,
        name: [0; 16],
        interface: 0,
        attach: ATTACH_XDP,
    };
    // SAFETY: the instructions are as many as said, the string has its end; both outlive the call.
    let fd = unsafe { sys::bpf(PROGRAM_LOAD, &new) }?;
    // SAFETY: just made.
    Ok(unsafe { sys::own(fd) })
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let new = NewLink { program, interface, attach: ATTACH_XDP, flags };
    // SAFETY: points to nothing.
    let fd = unsafe { sys::bpf(LINK_CREATE, &new) }?;
    // SAFETY: just made.
    Ok(unsafe { sys::own(fd) })
}

/// UDP to our port over IPv4 without options goes to the socket of the queue it came by.
fn instructions(sockets: &OwnedFd) -> [u64; 20] {
    /// How far it is from an instruction to the one that passes a frame on.
    const fn to_pass(from: i16) -> i16 {
        18 - (from + 1)
    }
    let headers = HEADERS as i32;
    let (ipv4, port) = (i32::from(0x0800u16.to_be()), i32::from(PORT.to_be()));
    let map = sockets.as_raw_fd();
    [
        // r6 = the frame's context; r2, r3 = where its bytes begin and end.
        code(0xbf, 6, 1, 0, 0),
        code(0x61, 2, 1, 0, 0),
        code(0x61, 3, 1, 4, 0),
        code(0xbf, 4, 2, 0, 0),
        code(0x07, 4, 0, 0, headers),
        code(0x2d, 4, 3, to_pass(5), 0),
        // Ethertype, version and length of the header, protocol, destination port.
        code(0x69, 5, 2, 12, 0),
        code(0x55, 5, 0, to_pass(7), ipv4),
        code(0x71, 5, 2, 23, 0),
        code(0x55, 5, 0, to_pass(9), libc::IPPROTO_UDP),
        code(0x69, 5, 2, 36, 0),
        code(0x55, 5, 0, to_pass(11), port),
        // redirect_map(sockets, queue, PASS)
        code(0x61, 2, 6, 16, 0),
        code(0x18, 1, 1, 0, map),
        code(0, 0, 0, 0, 0),
        code(0xb7, 3, 0, 0, PASS),
        code(0x85, 0, 0, 0, REDIRECT_MAP),
        code(0x95, 0, 0, 0, 0),
        code(0xb7, 0, 0, 0, PASS),
        code(0x95, 0, 0, 0, 0),
    ]
}

/// An instruction: what, target and source register, offset, constant.
fn code(what: u8, target: u8, source: u8, offset: i16, constant: i32) -> u64 {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = constant.to_le_bytes();
    u64::from_ne_bytes([what, source << 4 | target, low, high, a, b, c, d])
}
