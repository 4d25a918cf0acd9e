//! The ring in which a packet socket leaves what comes: slots in memory shared with the kernel,
//! each of which has a word that says whose it is. Looking for a frame takes no system call.
//!
//! A slot holds any single frame. What is longer stays with the socket, and its slot says so.
//! That keeps the ring small enough for the caches, and the copy of long ones, which is most of
//! what they cost, on the receiver's CPU.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::tpacket2_hdr;

use super::mapping::Mapping;
use super::socket::Socket;
use crate::fabric::FRAME_MAX;

/// Bytes of the header by which a packet socket tells of joined frames.
pub const VNET: usize = 10;

/// Bytes of a slot: its header, an address, and any frame. A block has whole ones.
const SLOT: usize = 4352;
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 64;
const PER_BLOCK: usize = BLOCK / SLOT;
const SLOTS: usize = BLOCKS * PER_BLOCK;

/// Bytes of a cache line; and how many lines of a slot a short frame takes.
const LINE: usize = 64;
const SHORT_LINES: usize = 3;

/// Bytes in front of a frame: a header and an address, rounded up, and the other header.
const IN_FRONT: usize = 96;
const _: () = assert!(IN_FRONT + FRAME_MAX <= SLOT && SLOT.is_multiple_of(16));

/// A packet socket's ring.
#[derive(Debug)]
pub struct Ring {
    mapping: Mapping,
    /// The next slot.
    next: usize,
    /// What of the one before it is ours, from its first byte in the mapping on.
    lent: Option<(usize, usize)>,
}

/// What is in a slot.
#[derive(Clone, Copy, Debug)]
pub enum Taken {
    /// The frame is here, after [`VNET`] bytes: [`Ring::bytes`].
    Here,
    /// The socket has it.
    AtSocket,
    /// It was too long and there was no room for it.
    Lost,
}

impl Ring {
    /// Makes a socket's ring. Options that change what is in front of a frame come before that,
    /// binding the socket after it.
    ///
    /// # Errors
    /// What setsockopt(2) or mmap(2) say.
    pub fn of(socket: &Socket) -> io::Result<Ring> {
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
        socket.set_ring([BLOCK, BLOCKS, SLOT, SLOTS].map(|number| number as u32))?;
        let mapping = Mapping::of(socket.as_fd(), 0, BLOCK * BLOCKS)?;
        Ok(Ring { mapping, next: 0, lent: None })
    }

    /// Whether there is a frame in the next slot. If so, begins to fetch the lines of a short one,
    /// for writing: the kernel has just written them, perhaps on another CPU, and giving the slot
    /// back writes to the first.
    #[inline]
    pub fn has_next(&self) -> bool {
        let has_next = self.status(self.next).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0;
        if has_next {
            for line in 0..SHORT_LINES {
                self.mapping.prefetch_to_write(start(self.next) + line * LINE);
            }
        }
        has_next
    }

    /// Takes the next slot, if there is something in it; the one before must have been given back.
    /// Says as well whether the kernel had to drop frames since it was asked how many.
    pub fn take(&mut self) -> Option<(Taken, bool)> {
        assert!(self.lent.is_none());
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let start = start(self.next);
        let number = |at: usize| self.mapping.half(start + at).load(Ordering::Relaxed) as usize;
        let whole_len = number(offset_of!(tpacket2_hdr, tp_len));
        let len = number(offset_of!(tpacket2_hdr, tp_snaplen));
        let mac = usize::from(self.mac(start));
        let is_here = len == whole_len && mac >= VNET && mac + len <= SLOT;
        let taken = match () {
            () if status & libc::TP_STATUS_COPY != 0 => Taken::AtSocket,
            () if is_here => Taken::Here,
            () => Taken::Lost,
        };
        self.lent = Some(match taken {
            Taken::Here => (start + mac - VNET, VNET + len),
            Taken::AtSocket | Taken::Lost => (start, 0),
        });
        Some((taken, status & libc::TP_STATUS_LOSING != 0))
    }

    /// What is in the slot taken last: [`VNET`] bytes, and the frame. Empty if there is none, or it
    /// was given back.
    pub fn bytes(&mut self) -> &mut [u8] {
        let (start, len) = self.lent.unwrap_or_default();
        // SAFETY: inside a slot that the kernel has given us and we have not given back, which we
        // cannot while the bytes are lent.
        unsafe { self.mapping.bytes(start, len) }
    }

    /// Gives the slot taken last back to the kernel, if there is one.
    pub fn release(&mut self) {
        if self.lent.take().is_some() {
            self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % SLOTS;
        }
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        self.mapping.half(start(slot) + offset_of!(tpacket2_hdr, tp_status))
    }

    /// Where in the slot that starts there its frame is.
    fn mac(&self, start: usize) -> u16 {
        // Two half-sized numbers, of which this one is the first in memory.
        const AT: usize = offset_of!(tpacket2_hdr, tp_mac);
        const _: () = assert!(offset_of!(tpacket2_hdr, tp_net) == AT + 2);
        let [low, high, ..] = self.mapping.half(start + AT).load(Ordering::Relaxed).to_ne_bytes();
        u16::from_ne_bytes([low, high])
    }
}

/// Where a slot starts in the mapping.
fn start(slot: usize) -> usize {
    slot / PER_BLOCK * BLOCK + slot % PER_BLOCK * SLOT
}
