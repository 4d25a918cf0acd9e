//! Whole frames by packet sockets: super-frames for bandwidth, single ones from a ring for latency.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use libc::{sock_filter, sock_fprog, sockaddr_ll};

use super::drive::Wire;
use super::frame::{self, HEADERS, PORT};
use super::sys::{self, Mapping};
use crate::task::{Load, Task};

/// Of sockets, in bytes.
const BUFFER: i32 = 16 << 20;
/// Bytes that one receive may bring: all of IP, with what is before it.
pub const RECEIVE_MAX: usize = 65535 + 14 + VNET;
/// Bytes of the header that says how a super-frame is cut.
const VNET: usize = 10;
/// virtio: the checksum is to be made; UDP datagrams of equal length.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_UDP_L4: u8 = 5;

/// A ring of single frames: blocks of memory, and slots in them.
const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 4;
const SLOT: usize = 2048;
const SLOTS: usize = BLOCK * BLOCKS / SLOT;
/// The word of a slot that says whose it is.
const KERNELS: u32 = 0;
const OURS: u32 = 1;

/// Sends and receives super-frames.
#[derive(Debug)]
pub struct Super {
    socket: File,
    burst: Vec<u8>,
    /// How many datagrams the burst is, and the length of each.
    count: usize,
    len: usize,
    room: Vec<u8>,
    _silence: UdpSocket,
}

impl Super {
    /// Opens a socket on the host's interface.
    pub fn open(task: &Task, load: Load) -> Result<Super> {
        let (len, count) = load.shape();
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        prepare(&fd)?;
        sys::set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        bind(&fd, task)?;
        let numbers = [HEADERS, len, 14 + 20, 6].map(|number| (number as u16).to_ne_bytes());
        let mut burst = vec![NEEDS_CHECKSUM, GSO_UDP_L4];
        burst.extend(numbers.as_flattened());
        burst.extend(frame::build(task, len * count));
        let (socket, room) = (File::from(fd), vec![0; RECEIVE_MAX]);
        Ok(Super { socket, burst, count, len, room, _silence: silence(true)? })
    }
}

impl Wire for Super {
    fn send(&mut self) -> Result<usize> {
        write(&mut self.socket, &self.burst, self.count)
    }

    fn receive(&mut self) -> Result<usize> {
        match self.socket.read(&mut self.room) {
            Ok(received) => Ok(received.saturating_sub(VNET + HEADERS) / self.len),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error).context("receive a frame"),
        }
    }
}

/// Sends single frames and receives them by a ring.
#[derive(Debug)]
pub struct Single {
    socket: File,
    frame: Vec<u8>,
    ring: Mapping,
    /// The next slot of the ring.
    slot: usize,
    _silence: UdpSocket,
}

impl Single {
    /// Opens a socket on the host's interface.
    pub fn open(task: &Task, load: Load) -> Result<Single> {
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        prepare(&fd)?;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        sys::set(&fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let shape = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: SLOTS as u32,
        };
        sys::set(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &shape)?;
        let ring = Mapping::of(&fd, BLOCK * BLOCKS, 0).context("map the ring")?;
        bind(&fd, task)?;
        let frame = frame::build(task, load.shape().0);
        Ok(Single { socket: File::from(fd), frame, ring, slot: 0, _silence: silence(false)? })
    }
}

impl Wire for Single {
    fn send(&mut self) -> Result<usize> {
        write(&mut self.socket, &self.frame, 1)
    }

    fn receive(&mut self) -> Result<usize> {
        let status = self.ring.word(self.slot * SLOT);
        if status.load(Ordering::Acquire) & OURS == 0 {
            return Ok(0);
        }
        status.store(KERNELS, Ordering::Release);
        self.slot = (self.slot + 1) % SLOTS;
        Ok(1)
    }
}

/// Writes a frame that makes so many.
fn write(socket: &mut File, frame: &[u8], count: usize) -> Result<usize> {
    match socket.write(frame) {
        Ok(_) => Ok(count),
        Err(error) if is_full(&error) => Ok(0),
        Err(error) => Err(error).context("send a frame"),
    }
}

/// Whether there will be room.
pub fn is_full(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// What is to be set before the socket receives anything.
fn prepare(fd: &OwnedFd) -> Result<()> {
    attach(fd, &roce_alone())?;
    sys::set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
    enlarge_buffers(fd)
}

/// Asks for buffers that are large enough.
pub fn enlarge_buffers(fd: &OwnedFd) -> Result<()> {
    for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        sys::set(fd, libc::SOL_SOCKET, option, &BUFFER).context("enlarge a buffer")?;
    }
    Ok(())
}

fn bind(fd: &OwnedFd, task: &Task) -> Result<()> {
    let address = sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: sys::interface_index(&task.here.interface)? as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    sys::bind(fd, &address).context("bind a packet socket")
}

/// A socket that is there for the kernel's UDP to find, and drops what comes: super-frames whole,
/// if it is told to.
fn silence(whole: bool) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("bind a UDP socket")?;
    let fd = OwnedFd::from(socket);
    attach(&fd, &[instruction(RETURN, 0, 0, 0)])?;
    sys::set(&fd, libc::SOL_UDP, libc::UDP_GRO, &i32::from(whole))?;
    Ok(UdpSocket::from(fd))
}

/// Codes of classic BPF.
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const JUMP_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Takes UDP to our port over IPv4 without options.
fn roce_alone() -> [sock_filter; 8] {
    [
        instruction(LOAD_HALF, 12, 0, 0),
        instruction(JUMP_EQUAL, libc::ETH_P_IP as u32, 0, 5),
        instruction(LOAD_BYTE, 14 + 9, 0, 0),
        instruction(JUMP_EQUAL, libc::IPPROTO_UDP as u32, 0, 3),
        instruction(LOAD_HALF, 14 + 20 + 2, 0, 0),
        instruction(JUMP_EQUAL, PORT.into(), 0, 1),
        instruction(RETURN, u32::MAX, 0, 0),
        instruction(RETURN, 0, 0, 0),
    ]
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

fn attach(fd: &OwnedFd, program: &[sock_filter]) -> Result<()> {
    // The kernel copies the program and does not write to it.
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    sys::set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter).context("attach a filter")
}
