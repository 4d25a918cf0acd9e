//! One AF_XDP socket: a queue of an interface, with its UMEM and four rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use libc::xdp_ring_offset;

use super::error::XdpError;
use super::ring::{Consumer, Descriptor, Layout, Producer, Ring};
use super::sys;
use super::umem::{Area, CHUNK};
use crate::link::mapping::Mapping;
use crate::link::socket::Socket;

/// What a socket is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The interface's number.
    pub interface: u32,
    /// Of the interface.
    pub queue: u32,
}

/// How many chunks a socket has for each direction; powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// To receive; 0 receives nothing.
    pub receive: u32,
    /// To send.
    pub send: u32,
}

/// A bound socket in its two halves.
///
/// Each has its rings before the socket: a mapping of a ring holds the queue, so all must be gone
/// before the socket is closed.
#[derive(Debug)]
pub struct Halves {
    /// Receives.
    pub receive: ReceiveHalf,
    /// Sends.
    pub send: SendHalf,
    /// Frames may have several descriptors.
    pub bears_frags: bool,
}

/// What it takes to receive.
#[derive(Debug)]
pub struct ReceiveHalf {
    /// Frames that have come.
    pub rx: Consumer,
    /// Chunks for more.
    pub fill: Producer,
    /// The chunks.
    pub area: Area,
    /// The socket.
    pub socket: Arc<Socket>,
}

/// What it takes to send.
#[derive(Debug)]
pub struct SendHalf {
    /// Frames to send.
    pub tx: Producer,
    /// Chunks that have been sent.
    pub completion: Consumer,
    /// The chunks.
    pub area: Area,
    /// The driver takes frames when it likes, rather than when it is told to.
    pub is_zero_copy: bool,
    /// The socket.
    pub socket: Arc<Socket>,
}

/// Of the socket's queue of frames that the kernel has copied and not yet sent, in bytes.
const SEND_BUFFER: i32 = 8 << 20;

/// What a closed socket leaves behind holds its queue for a moment.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Opens a socket and binds it; all chunks to receive into are the kernel's then.
///
/// # Errors
/// [`XdpError`].
pub fn open(place: Place, sizes: Sizes) -> Result<Halves, XdpError> {
    let socket = Arc::new(
        Socket::new(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(XdpError::at("open a socket"))?,
    );
    socket.enlarge_buffers(SEND_BUFFER);
    let fd = socket.as_fd();
    let (receive, send) = (sizes.receive as usize, sizes.send as usize);
    let len = (receive + send) * CHUNK;
    let umem = Mapping::anonymous(len).map_err(XdpError::at("make memory for frames"))?;
    sys::register(fd, &umem).map_err(|source| XdpError::of_umem(source, len))?;
    let [area, send_area] = Area::split(umem, receive, send);
    let rings = Rings::make(fd, sizes).map_err(XdpError::at("make rings"))?;
    let Rings { fill, completion, rx, tx } = rings;
    let bears_frags = bind(fd, place)?;
    let is_zero_copy = sys::is_zero_copy(fd).map_err(XdpError::at("ask for the socket's mode"))?;
    let mut receive = ReceiveHalf { rx, fill, area, socket: socket.clone() };
    for chunk in 0..receive.area.chunks() {
        let address = receive.area.give(chunk);
        receive.fill.put(address);
    }
    receive.fill.publish();
    let send = SendHalf { tx, completion, area: send_area, is_zero_copy, socket };
    Ok(Halves { receive, send, bears_frags })
}

struct Rings {
    fill: Producer,
    completion: Consumer,
    rx: Consumer,
    tx: Producer,
}

impl Rings {
    /// As many entries as chunks: no ring can be full, and no more chunks are under way than
    /// completions have room, beyond which the kernel stops sending without a word.
    fn make(fd: BorrowedFd<'_>, sizes: Sizes) -> io::Result<Rings> {
        let Sizes { receive, send } = sizes;
        sys::make_ring(fd, libc::XDP_UMEM_FILL_RING, receive)?;
        sys::make_ring(fd, libc::XDP_UMEM_COMPLETION_RING, send)?;
        sys::make_ring(fd, libc::XDP_RX_RING, receive)?;
        sys::make_ring(fd, libc::XDP_TX_RING, send)?;
        let offsets = sys::ring_offsets(fd)?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        let (rx, tx) = (libc::XDP_PGOFF_RX_RING, libc::XDP_PGOFF_TX_RING);
        Ok(Rings {
            fill: Producer::new(Ring::map::<u64>(fd, fill, layout(&offsets.fr), receive)?),
            completion: Consumer::new(Ring::map::<u64>(fd, completion, layout(&offsets.cr), send)?),
            rx: Consumer::new(Ring::map::<Descriptor>(fd, rx, layout(&offsets.rx), receive)?),
            tx: Producer::new(Ring::map::<Descriptor>(fd, tx, layout(&offsets.tx), send)?),
        })
    }
}

fn layout(offset: &xdp_ring_offset) -> Layout {
    Layout {
        producer: offset.producer as usize,
        consumer: offset.consumer as usize,
        flags: offset.flags as usize,
        entries: offset.desc as usize,
    }
}

/// Binds, in the driver's best mode, and says whether frames of several descriptors are known.
fn bind(fd: BorrowedFd<'_>, place: Place) -> Result<bool, XdpError> {
    let Place { interface, queue } = place;
    let flags = libc::XDP_USE_NEED_WAKEUP;
    let mut tries = 0;
    let mut frags = true;
    loop {
        let with = if frags { libc::XDP_USE_SG } else { 0 };
        match sys::bind(fd, interface, queue, flags | with).map_err(|e| (e.raw_os_error(), e)) {
            Ok(()) => return Ok(frags),
            Err((Some(libc::EBUSY), _)) if tries < BUSY_TRIES => {
                tries += 1;
                thread::sleep(BUSY_PAUSE);
            }
            // Kernels before 6.6 do not know them.
            Err((Some(libc::EINVAL), _)) if frags => frags = false,
            Err((_, source)) => return Err(XdpError::of_bind(source, queue)),
        }
    }
}
