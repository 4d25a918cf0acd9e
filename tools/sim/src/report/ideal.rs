//! How long a flow would take if it were alone: what slowdown is measured by.

use std::collections::BTreeMap;

use crate::plan::{FRAMING_LEN, Flow, Link, Plan, Verb};
use crate::topology::Network;

/// Ethernet, IPv4, UDP and BTH headers and the ICRC of each packet.
const HEADERS: u64 = 14 + 20 + 8 + 12 + 4;

/// The least a frame takes on the link.
const LEAST: u64 = 60 + FRAMING_LEN;

/// RETH of the first packet of a WRITE or READ.
const RETH: u64 = 16;

/// AETH of an acknowledgement.
const AETH: u64 = 4;

/// Shortest ways through a network, and times over them.
pub struct Ideal<'a> {
    network: &'a Network,
    mtu: u64,
    /// Of each host that was asked for, the ways to all others.
    paths: BTreeMap<usize, Vec<Vec<usize>>>,
}

impl<'a> Ideal<'a> {
    /// Times in `network` of packets as `plan` has them.
    pub fn new(plan: &Plan, network: &'a Network) -> Ideal<'a> {
        Ideal { network, mtu: plan.host.mtu.bytes() as u64, paths: BTreeMap::new() }
    }

    /// Nanoseconds from the start of a flow to its last completion, without any other.
    pub fn flow(&mut self, flow: &Flow) -> f64 {
        let network = self.network;
        let paths = self.paths.entry(flow.from).or_insert_with(|| network.paths(flow.from));
        let path: Vec<Link> =
            paths[flow.to].iter().map(|link| network.topology.links[*link]).collect();
        let alone = |bytes| self.message(&path, flow.verb, bytes);
        let gaps = (flow.messages - 1) as f64 * flow.gap as f64;
        match flow.depth {
            1 => alone(flow.message) * flow.messages as f64 + gaps,
            depth => alone(flow.message * flow.messages).max(gaps / f64::from(depth)),
        }
    }

    /// Nanoseconds of a message, from post to completion.
    fn message(&self, path: &[Link], verb: Verb, bytes: u64) -> f64 {
        match verb {
            Verb::Write => self.transfer(path, bytes, RETH) + control(path, AETH),
            Verb::Send => self.transfer(path, bytes, 0) + control(path, AETH),
            Verb::Read => control(path, RETH) + self.transfer(path, bytes, AETH),
            Verb::Request(response) => {
                self.transfer(path, bytes, 0) + self.transfer(path, response, 0)
            }
        }
    }

    /// From the first bit's departure to the last one's arrival. Packets follow each other at the
    /// rate of the slowest link; the last crosses each other link once more.
    fn transfer(&self, path: &[Link], bytes: u64, once: u64) -> f64 {
        let packets = bytes.div_ceil(self.mtu).max(1);
        let last = bytes - (packets - 1) * self.mtu;
        let all = bytes + once + packets * (HEADERS + FRAMING_LEN);
        let last = (last + HEADERS + FRAMING_LEN).max(LEAST);
        let slowest = path.iter().map(|link| link.rate).min().unwrap_or(1);
        let crossing: f64 = path.iter().map(|link| link.delay as f64 + time(last, link.rate)).sum();
        crossing - time(last, slowest) + time(all.max(LEAST), slowest)
    }
}

/// A packet without payload, all the way.
fn control(path: &[Link], header: u64) -> f64 {
    let bytes = (HEADERS + FRAMING_LEN + header).max(LEAST);
    path.iter().map(|link| link.delay as f64 + time(bytes, link.rate)).sum()
}

/// Nanoseconds that bytes take at a rate.
fn time(bytes: u64, rate: u64) -> f64 {
    bytes as f64 * 8e9 / rate as f64
}
