//! The half of an AF_XDP link by which frames arrive: all queues of the interface.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::program::ETHERTYPE_VLAN;
use super::ring::Descriptor;
use super::socket::ReceiveHalf;
use super::sys;
use super::umem::CHUNK;
use crate::fabric::FRAME_MAX;
use crate::link::socket::Socket;
use crate::link::{BATCH, LinkCounters, LinkReceiver, count, interface};

/// The receiving half of the link.
#[derive(Debug)]
pub struct XdpReceiver {
    /// The program. First of all: what comes when it is gone is the kernel's.
    _program: OwnedFd,
    queues: Vec<Queue>,
    /// The queue whose frames are taken now.
    current: usize,
    /// Readable when one of several sockets is.
    any: Option<Epoll>,
    /// Keeps the interface hearing all groups.
    _groups: Socket,
    interface: u32,
    counters: Arc<LinkCounters>,
}

impl XdpReceiver {
    /// One of sockets that the program feeds.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(
        program: OwnedFd,
        halves: Vec<ReceiveHalf>,
        interface: u32,
        counters: Arc<LinkCounters>,
    ) -> io::Result<XdpReceiver> {
        let any = match &halves[..] {
            [_] => None,
            several => Some(all_of(several)?),
        };
        let groups = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        // Interfaces that cannot filter groups hear them all anyhow.
        let _ = groups.hear_groups(interface);
        Ok(XdpReceiver {
            _program: program,
            queues: halves.into_iter().map(Queue::new).collect(),
            current: 0,
            any,
            _groups: groups,
            interface,
            counters,
        })
    }
}

fn all_of(halves: &[ReceiveHalf]) -> io::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for half in halves {
        epoll.add(&*half.socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    }
    Ok(epoll)
}

impl LinkReceiver for XdpReceiver {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.any {
            Some(epoll) => epoll.0.as_fd(),
            None => self.queues[0].half.socket.as_fd(),
        }
    }

    fn fetch(&mut self) -> io::Result<bool> {
        if self.queues[self.current..].iter().any(|queue| queue.half.rx.has_next()) {
            return Ok(true);
        }
        self.current = 0;
        let mut any = false;
        for queue in &mut self.queues {
            any |= queue.fetch();
        }
        Ok(any)
    }

    fn next(&mut self) -> Option<&mut [u8]> {
        loop {
            if let Some(found) = self.queues[self.current].next(&self.counters) {
                return Some(self.queues[self.current].frame(found));
            }
            if self.current + 1 == self.queues.len() {
                return None;
            }
            self.current += 1;
        }
    }

    fn look(&self) -> io::Result<()> {
        interface::look(self.interface)
    }
}

/// What comes by one queue.
#[derive(Debug)]
struct Queue {
    half: ReceiveHalf,
    /// The chunk of the frame that our caller has.
    lent: Option<usize>,
    /// A frame of several descriptors, as far as it has come.
    chain: Chain,
}

#[derive(Debug)]
struct Chain {
    bytes: Box<[u8]>,
    /// Of the frame, which may be longer than any that is kept.
    len: usize,
    is_open: bool,
}

/// Where a frame is.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// In a chunk of the UMEM, from an offset on.
    Chunk(usize, usize, usize),
    /// In the chain's bytes.
    Chain(usize),
}

impl Queue {
    fn new(half: ReceiveHalf) -> Queue {
        let chain = Chain { bytes: vec![0; FRAME_MAX].into_boxed_slice(), len: 0, is_open: false };
        Queue { half, lent: None, chain }
    }

    /// Gives the kernel what has been read, and says whether it has more.
    fn fetch(&mut self) -> bool {
        self.return_lent();
        self.half.fill.publish();
        let any = self.half.rx.look(BATCH as u32);
        if self.half.fill.needs_wakeup() {
            sys::wake_receiver(self.half.socket.as_fd());
        }
        any
    }

    fn return_lent(&mut self) {
        if let Some(chunk) = self.lent.take() {
            self.give(chunk);
        }
    }

    fn give(&mut self, chunk: usize) {
        let address = self.half.area.give(chunk);
        self.half.fill.put(address);
    }

    /// Finds the next frame that is whole.
    fn next(&mut self, counters: &LinkCounters) -> Option<Found> {
        self.return_lent();
        loop {
            let Descriptor { address, len, continues } = self.half.rx.take()?;
            // Anything else would be a fault of the kernel's.
            let Some(chunk) = self.half.area.take(address) else { continue };
            let offset = (address % CHUNK as u64) as usize;
            let len = (len as usize).min(CHUNK - offset);
            if !continues && !self.chain.is_open {
                self.lent = Some(chunk);
                return Some(Found::Chunk(chunk, offset, len));
            }
            self.chain.append(self.half.area.bytes(chunk, offset, len));
            self.give(chunk);
            if continues {
                continue;
            }
            match self.chain.close() {
                len if len <= FRAME_MAX => return Some(Found::Chain(len)),
                // A super-frame, of which nobody knows where to cut it.
                _ => count(&counters.lost.too_long, 1),
            }
        }
    }

    fn frame(&mut self, found: Found) -> &mut [u8] {
        let frame = match found {
            Found::Chunk(chunk, offset, len) => self.half.area.bytes(chunk, offset, len),
            Found::Chain(len) => &mut self.chain.bytes[..len],
        };
        without_tag(frame)
    }
}

/// Takes out the tag of the VLAN, which the program has seen to.
fn without_tag(frame: &mut [u8]) -> &mut [u8] {
    const ADDRESSES: usize = 12;
    if frame.get(ADDRESSES..ADDRESSES + 2) != Some(&ETHERTYPE_VLAN.to_be_bytes()[..]) {
        return frame;
    }
    let tag = 4.min(frame.len() - ADDRESSES);
    frame.copy_within(..ADDRESSES, tag);
    &mut frame[tag..]
}

impl Chain {
    fn append(&mut self, part: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len()) {
            room.copy_from_slice(part);
        }
        self.len = self.len.saturating_add(part.len());
        self.is_open = true;
    }

    /// Ends the frame, and gives its length.
    fn close(&mut self) -> usize {
        self.is_open = false;
        std::mem::take(&mut self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_taken_out() {
        let mut tagged = *b"to MACfrom M\x81\0\xe0\x07\x08\0ip";
        assert_eq!(without_tag(&mut tagged), b"to MACfrom M\x08\0ip");
        let mut plain = *b"to MACfrom M\x08\0ip";
        assert_eq!(without_tag(&mut plain), b"to MACfrom M\x08\0ip");
        assert_eq!(without_tag(&mut [0; 13]), [0; 13]);
    }

    #[test]
    fn a_chain_that_is_too_long_is_only_counted() {
        let mut queue_chain =
            Chain { bytes: vec![0; FRAME_MAX].into_boxed_slice(), len: 0, is_open: false };
        for round in 1..4 {
            for _ in 0..10 * round {
                queue_chain.append(&[round as u8; 3840]);
            }
            assert_eq!(queue_chain.close(), 38400 * round);
            queue_chain.append(&[7; 3840]);
            queue_chain.append(&[8; 376]);
            assert_eq!(queue_chain.close(), 4216);
            assert_eq!(queue_chain.bytes[..4216], [&[7; 3840][..], &[8; 376]].concat());
            assert!(!queue_chain.is_open);
        }
    }
}
