//! Ethernet headers for frames that leave by an interface: who is the next hop, and what waits until
//! that is known.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use ferroce_stack::wire::Mac;

use super::neighbour::{Neighbours, NextHop};
use super::{LinkCounters, count};
use crate::fabric::destination;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Frames that wait for the address of a next hop, in all and for one destination.
const HELD: usize = 256;
const HELD_FOR_ONE: usize = 64;

/// Gives frames their Ethernet headers.
#[derive(Debug)]
pub struct Addressing {
    mac: Mac,
    mtu: usize,
    neighbours: Neighbours,
    held: VecDeque<(IpAddr, Vec<u8>)>,
    counters: Arc<LinkCounters>,
}

impl Addressing {
    /// That of an interface with this address and MTU, in bytes.
    pub fn new(
        mac: Mac,
        mtu: usize,
        neighbours: Neighbours,
        counters: Arc<LinkCounters>,
    ) -> Addressing {
        Addressing { mac, mtu, neighbours, held: VecDeque::new(), counters }
    }

    /// Addresses the frame that is the first `len` bytes of `room`, and gives its length then.
    /// `None` if it does not go now: it waits here for its next hop, or is counted as lost.
    pub fn address(&mut self, room: &mut [u8], len: usize) -> Option<usize> {
        let frame = &mut room[..len];
        let lost = &self.counters.lost;
        let Some((gid, ..)) = destination(frame) else {
            count(&lost.not_roce, 1);
            return None;
        };
        if len > ETHERNET + self.mtu {
            count(&lost.too_long, 1);
            return None;
        }
        let to = gid.to_ip();
        match self.neighbours.next_hop(to) {
            NextHop::Mac(mac) => {
                put(frame, mac, self.mac);
                return Some(len);
            }
            NextHop::Asked => self.hold(to, frame),
            NextHop::None => count(&lost.no_neighbour, 1),
        }
        None
    }

    /// Keeps a frame until its next hop is known.
    fn hold(&mut self, to: IpAddr, frame: &[u8]) {
        let for_one = self.held.iter().filter(|(other, _)| *other == to).count();
        if self.held.len() >= HELD || for_one >= HELD_FOR_ONE {
            count(&self.counters.lost.no_neighbour, 1);
            return;
        }
        self.held.push_back((to, frame.to_vec()));
    }

    /// Whether frames that wait may find a next hop now.
    pub fn may_release(&self) -> bool {
        !self.held.is_empty() && self.neighbours.have_changed()
    }

    /// Sends those of the frames that wait whose next hop has become known.
    ///
    /// # Errors
    /// What `send` says.
    pub fn release(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        for _ in 0..self.held.len() {
            let Some((to, mut frame)) = self.held.pop_front() else { break };
            match self.neighbours.outcome(to) {
                NextHop::Mac(mac) => {
                    put(&mut frame, mac, self.mac);
                    send(&frame)?;
                }
                NextHop::Asked => self.held.push_back((to, frame)),
                NextHop::None => count(&self.counters.lost.no_neighbour, 1),
            }
        }
        Ok(())
    }
}

fn put(frame: &mut [u8], to: Mac, from: Mac) {
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
}
