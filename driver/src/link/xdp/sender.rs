//! The half of an AF_XDP link by which frames leave, by one queue of the interface.
//!
//! A frame is written where the kernel reads it: into one of the slots of two adjacent chunks that
//! the UMEM is for. What is longer than a chunk is two descriptors.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::ring::Descriptor;
use super::socket::SendHalf;
use super::sys;
use super::umem::CHUNK;
use crate::fabric::FRAME_MAX;
use crate::link::addressing::Addressing;
use crate::link::{BATCH, LinkCounters, LinkSender, count};

/// How often the kernel may send nothing, with a pause in between, before frames are lost.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);

const SLOT_CHUNKS: usize = 2;
const _: () = assert!(FRAME_MAX <= SLOT_CHUNKS * CHUNK);

/// The sending half of the link.
#[derive(Debug)]
pub struct XdpSender {
    slots: Slots,
    addressing: Addressing,
    /// Bytes of the longest frame that the socket takes.
    longest: usize,
    /// Where frames are written that nobody will read.
    nowhere: Box<[u8]>,
    counters: Arc<LinkCounters>,
}

impl XdpSender {
    /// One that sends frames of at most `longest` bytes by a socket.
    pub fn new(
        half: SendHalf,
        longest: usize,
        addressing: Addressing,
        counters: Arc<LinkCounters>,
    ) -> XdpSender {
        XdpSender {
            slots: Slots::new(half, counters.clone()),
            addressing,
            longest,
            nowhere: vec![0; FRAME_MAX].into_boxed_slice(),
            counters,
        }
    }

    /// Puts frames that have waited where those sent are.
    fn release(&mut self) -> io::Result<()> {
        let slots = &mut self.slots;
        self.addressing.release(|frame| {
            if slots.free.is_empty() {
                slots.send()?;
            }
            match slots.free.pop() {
                Some(slot) => {
                    slots.bytes(slot)[..frame.len()].copy_from_slice(frame);
                    slots.put(slot, frame.len());
                }
                None => count(&slots.counters.lost.send_failed, 1),
            }
            Ok(())
        })
    }
}

impl LinkSender for XdpSender {
    fn is_full(&self) -> bool {
        let Slots { unsent, free, .. } = &self.slots;
        *unsent >= BATCH || (free.is_empty() && *unsent > 0)
    }

    fn room(&mut self) -> &mut [u8] {
        match self.slots.free.last() {
            Some(&slot) => self.slots.bytes(slot),
            None => &mut self.nowhere,
        }
    }

    fn push(&mut self, len: usize) {
        let Some(slot) = self.slots.free.pop() else {
            count(&self.counters.lost.send_failed, 1);
            return;
        };
        if self.addressing.may_release() {
            // What has waited goes first. That the link is gone is found at the next flush, too.
            let _ = self.release();
        }
        match self.addressing.address(self.slots.bytes(slot), len) {
            Some(len) if len <= self.longest => return self.slots.put(slot, len),
            Some(_) => count(&self.counters.lost.too_long, 1),
            None => {}
        }
        self.slots.free.push(slot);
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.addressing.may_release() {
            self.release()?;
        }
        self.slots.send()
    }

    fn neighbours_changed(&mut self) -> io::Result<()> {
        self.release()?;
        self.slots.send()
    }
}

/// The UMEM to send from.
#[derive(Debug)]
struct Slots {
    half: SendHalf,
    /// Slots that are ours; the one used last is the next.
    free: Vec<usize>,
    /// Frames put and not shown to the kernel.
    unsent: usize,
    counters: Arc<LinkCounters>,
}

impl Slots {
    fn new(half: SendHalf, counters: Arc<LinkCounters>) -> Slots {
        let free = (0..half.area.chunks() / SLOT_CHUNKS).rev().collect();
        Slots { half, free, unsent: 0, counters }
    }

    fn bytes(&mut self, slot: usize) -> &mut [u8] {
        self.half.area.bytes(slot * SLOT_CHUNKS, 0, FRAME_MAX)
    }

    /// Puts a frame of `len` bytes that is in a slot.
    fn put(&mut self, slot: usize, len: usize) {
        let rest = len.saturating_sub(CHUNK);
        let first = slot * SLOT_CHUNKS;
        self.put_part(first, len - rest, rest > 0);
        if rest > 0 {
            self.put_part(first + 1, rest, false);
        }
        self.unsent += 1;
    }

    fn put_part(&mut self, chunk: usize, len: usize, continues: bool) {
        let address = self.half.area.give(chunk);
        self.half.tx.put(Descriptor { address, len: len as u32, continues });
    }

    /// Takes back what has been sent.
    fn reap(&mut self) {
        while self.half.completion.look(u32::MAX) {
            while let Some(address) = self.half.completion.take() {
                // Anything else would be a fault of the kernel's.
                let Some(chunk) = self.half.area.take(address) else { continue };
                let slot = chunk / SLOT_CHUNKS;
                let mut chunks = slot * SLOT_CHUNKS..(slot + 1) * SLOT_CHUNKS;
                if chunks.all(|chunk| self.half.area.is_ours(chunk)) {
                    self.free.push(slot);
                }
            }
        }
    }

    /// Has the kernel send what was put, and waits for a slot if there is none, but not for ever.
    fn send(&mut self) -> io::Result<()> {
        count(&self.counters.link_sent, std::mem::take(&mut self.unsent) as u64);
        self.half.tx.publish();
        let mut tries = 0;
        loop {
            let before = (self.half.tx.pending(), self.free.len());
            if before.0 > 0 && self.half.tx.needs_wakeup() && !self.kick()? {
                self.reap();
                return Ok(());
            }
            self.reap();
            let after = (self.half.tx.pending(), self.free.len());
            // Without copies the driver takes them when it can.
            let is_taken = after.0 == 0 || self.half.is_zero_copy;
            if is_taken && after.1 > 0 {
                return Ok(());
            }
            if after != before {
                tries = 0;
            } else if tries == TRIES {
                return Ok(());
            } else {
                tries += 1;
                thread::sleep(PAUSE);
            }
        }
    }

    /// Has the kernel send some, and says whether it makes sense to go on.
    fn kick(&self) -> io::Result<bool> {
        let Err(error) = sys::kick(self.half.socket.as_fd()) else { return Ok(true) };
        match error.raw_os_error() {
            // Not all at a time; no room now; one was dropped on the way.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY | libc::EINTR) => Ok(true),
            // They go when it is up again, as far as there are slots.
            Some(libc::ENETDOWN) => Ok(false),
            Some(libc::ENXIO | libc::ENODEV) => Err(error),
            _ => {
                count(&self.counters.lost.send_failed, 1);
                Ok(false)
            }
        }
    }
}
