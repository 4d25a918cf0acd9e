//! Whole frames by AF_XDP, which here copies them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libc::{sockaddr_xdp, xdp_umem_reg};

use super::bpf::Program;
use super::drive::Wire;
use super::frame;
use super::packet::is_full;
use super::sys::{self, Mapping};
use crate::task::{Load, Task};

/// Bytes of a chunk of the memory shared with the kernel. A longer frame takes several.
const CHUNK: usize = 4096;
/// Entries of each ring, and so the chunks for each direction.
const ENTRIES: u32 = 2048;
/// Frames that are sent with one call.
const BURST: usize = 32;
/// More calls than that in a row do not help.
const KICKS: usize = 64;
/// How long the kernel may hold a queue whose socket is gone.
const RELEASE: Duration = Duration::from_secs(1);
/// An entry that is not the last of its frame.
const CONTINUED: u32 = 1;

/// A socket for one queue.
#[derive(Debug)]
pub struct Xdp {
    // Before the socket: whoever is redirected to has to be there.
    _program: Program,
    receive: Ring,
    transmit: Ring,
    fill: Ring,
    completion: Ring,
    _memory: Mapping,
    socket: OwnedFd,
    /// Lengths of the pieces of one frame.
    pieces: Vec<u32>,
    /// Frames that are sent at a time.
    burst: usize,
    /// Entries sent, all in all.
    sent: u32,
    /// Those of them whose chunks are free again.
    completed: u32,
}

/// A ring shared with the kernel.
#[derive(Debug)]
struct Ring {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    entries: usize,
}

impl Xdp {
    /// Opens a socket at the host's interface.
    pub fn open(task: &Task, load: Load) -> Result<Xdp> {
        let (len, count) = load.shape();
        let frame = frame::build(task, len);
        let (memory, pieces) = memory_with(&frame)?;
        let socket = sys::socket(libc::AF_XDP, libc::SOCK_RAW)?;
        // SAFETY: numbers, of which 0 is one.
        let empty: xdp_umem_reg = unsafe { sys::zeroed() };
        let region = xdp_umem_reg {
            addr: memory.address(),
            len: memory.len() as u64,
            chunk_size: CHUNK as u32,
            ..empty
        };
        sys::set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region).context("share memory")?;
        let rings = [
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
        ];
        for ring in rings {
            sys::set(&socket, libc::SOL_XDP, ring, &ENTRIES).context("make a ring")?;
        }
        let offsets = sys::words::<16>(&socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let ring =
            |index: usize, page: u64, entry| Ring::map(&socket, &offsets[4 * index..], page, entry);
        let receive = ring(0, libc::XDP_PGOFF_RX_RING as u64, 16)?;
        let transmit = ring(1, libc::XDP_PGOFF_TX_RING as u64, 16)?;
        let fill = ring(2, libc::XDP_UMEM_PGOFF_FILL_RING, 8)?;
        let completion = ring(3, libc::XDP_UMEM_PGOFF_COMPLETION_RING, 8)?;
        let index = sys::interface_index(&task.here.interface)?;
        bind(&socket, index)?;
        let program = Program::attach(index)?;
        program.redirect_to(&socket)?;
        for chunk in 0..ENTRIES {
            fill.set_address(chunk, (ENTRIES + chunk) * CHUNK as u32);
        }
        fill.word(fill.producer).store(ENTRIES, Ordering::Release);
        Ok(Xdp {
            _program: program,
            receive,
            transmit,
            fill,
            completion,
            _memory: memory,
            socket,
            pieces,
            burst: count.min(BURST),
            sent: 0,
            completed: 0,
        })
    }

    /// Has the kernel send what is in the ring.
    fn kick(&self) -> Result<()> {
        for _ in 0..KICKS {
            match sys::kick(&self.socket) {
                Ok(()) => {}
                Err(error) if is_full(&error) || error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error).context("send frames"),
            }
            if self.transmit.word(self.transmit.consumer).load(Ordering::Acquire) == self.sent {
                break;
            }
        }
        Ok(())
    }
}

impl Wire for Xdp {
    fn send(&mut self) -> Result<usize> {
        let done = self.completion.word(self.completion.producer).load(Ordering::Acquire);
        self.completion.word(self.completion.consumer).store(done, Ordering::Release);
        self.completed = done;
        let per_frame = self.pieces.len() as u32;
        let free = (ENTRIES - self.sent.wrapping_sub(self.completed)) / per_frame;
        let frames = self.burst.min(free as usize);
        for _ in 0..frames {
            for (index, &len) in self.pieces.iter().enumerate() {
                let more = index + 1 < self.pieces.len();
                let chunk = self.sent % ENTRIES;
                self.transmit.set(chunk, chunk * CHUNK as u32, len, u32::from(more) * CONTINUED);
                self.sent = self.sent.wrapping_add(1);
            }
        }
        self.transmit.word(self.transmit.producer).store(self.sent, Ordering::Release);
        self.kick()?;
        Ok(frames)
    }

    fn receive(&mut self) -> Result<usize> {
        let consumer = self.receive.word(self.receive.consumer);
        let produced = self.receive.word(self.receive.producer).load(Ordering::Acquire);
        let (mut next, mut frames) = (consumer.load(Ordering::Relaxed), 0);
        if next == produced {
            return Ok(0);
        }
        let filled = self.fill.word(self.fill.producer);
        let mut free = filled.load(Ordering::Relaxed);
        while next != produced {
            let (address, options) = self.receive.get(next % ENTRIES);
            frames += usize::from(options & CONTINUED == 0);
            self.fill.set_address(free % ENTRIES, address);
            (next, free) = (next.wrapping_add(1), free.wrapping_add(1));
        }
        consumer.store(next, Ordering::Release);
        filled.store(free, Ordering::Release);
        Ok(frames)
    }
}

impl Ring {
    /// One whose offsets are these: of its producer, its consumer, its entries, its flags.
    fn map(socket: &OwnedFd, offsets: &[u64], page: u64, entry: usize) -> io::Result<Ring> {
        let [producer, consumer, entries] = [0, 1, 2].map(|index| offsets[index] as usize);
        let len = entries + ENTRIES as usize * entry;
        let memory = Mapping::of(socket, len, page as i64)?;
        Ok(Ring { memory, producer, consumer, entries })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        self.memory.word(offset)
    }

    /// Writes an entry that is an address alone. Addresses are below 4 GiB, and entries little
    /// endian, as all of this machine.
    fn set_address(&self, index: u32, address: u32) {
        let at = self.entries + 8 * index as usize;
        self.word(at).store(address, Ordering::Relaxed);
        self.word(at + 4).store(0, Ordering::Relaxed);
    }

    /// Writes an entry that is a piece of a frame.
    fn set(&self, index: u32, address: u32, len: u32, options: u32) {
        let at = self.entries + 16 * index as usize;
        for (place, value) in [address, 0, len, options].into_iter().enumerate() {
            self.word(at + 4 * place).store(value, Ordering::Relaxed);
        }
    }

    /// Reads address and options of such an entry.
    fn get(&self, index: u32) -> (u32, u32) {
        let at = self.entries + 16 * index as usize;
        let read = |offset| self.word(at + offset).load(Ordering::Relaxed);
        (read(0), read(12))
    }
}

/// Memory whose first half holds the frame again and again, in pieces of these lengths.
fn memory_with(frame: &[u8]) -> io::Result<(Mapping, Vec<u32>)> {
    let mut memory = Mapping::anonymous(2 * ENTRIES as usize * CHUNK)?;
    let pieces: Vec<&[u8]> = frame.chunks(CHUNK).collect();
    for (chunk, piece) in (0..ENTRIES as usize).zip(pieces.iter().cycle()) {
        memory.fill(chunk * CHUNK, piece);
    }
    Ok((memory, pieces.iter().map(|piece| piece.len() as u32).collect()))
}

/// Takes the first queue of an interface.
fn bind(socket: &OwnedFd, index: u32) -> Result<()> {
    let address = sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_SG,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let start = Instant::now();
    loop {
        match sys::bind(socket, &address) {
            // The socket before this one is not quite gone.
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < RELEASE =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome.context("take a queue of the interface"),
        }
    }
}
