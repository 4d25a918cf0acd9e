//! Which two QPs talk to each other.

use std::collections::{HashMap, VecDeque};

use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{CmMessage, Transport};

use super::Verifier;
use super::finding::Kind;
use super::flow::{Findings, Flow, FlowKey};
use crate::mad;
use crate::packet::{Address, Packet};

/// How far beyond what was sent a response may be and still belong to the only flow it can.
const NEAR: u64 = 4096;
/// Flows between two addresses that are tried for a response; the newest are.
const WAITING_MAX: usize = 256;

/// A QP on the network.
type Endpoint = (Address, u32);

/// What is known of who talks to whom.
#[derive(Debug, Default)]
pub(super) struct Peers {
    of: HashMap<Endpoint, Endpoint>,
    /// Connections being set up, by who asked and its communication ID.
    asked: HashMap<(Address, u32), Asked>,
    /// Connections set up, by who sends to whom.
    starts: HashMap<(Endpoint, Endpoint), Start>,
    /// Flows whose requester's QPN is not known, by addresses and service.
    waiting: HashMap<(Address, Address, Transport), VecDeque<usize>>,
}

/// How a connection starts in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub psn: Psn,
    /// Path MTU in bytes.
    pub pmtu: Option<u32>,
}

/// What a CM REQ has told.
#[derive(Clone, Copy, Debug)]
struct Asked {
    qpn: u32,
    /// How the receiver of the REQ starts.
    start: Start,
}

impl Peers {
    /// The requester's QPN of a flow that begins, and how it starts, if known.
    pub fn requester_of(&self, key: &FlowKey) -> Option<(u32, Option<Start>)> {
        let responder = (key.dst, key.dest_qp);
        let requester = *self.of.get(&responder)?;
        let start = self.starts.get(&(requester, responder)).copied();
        (requester.0 == key.src).then_some((requester.1, start))
    }

    /// Lists a flow as one whose requester's QPN is to be learnt.
    pub fn wait(&mut self, key: &FlowKey, flow: usize) {
        let waiting = self.waiting.entry((key.src, key.dst, key.service)).or_default();
        waiting.push_back(flow);
        if waiting.len() > WAITING_MAX {
            waiting.pop_front();
        }
    }
}

impl Verifier {
    /// Learns of a connection from its REQ and REP.
    pub(super) fn manage(
        &mut self,
        packet: &Packet<'_>,
        kind: Option<CmMessage>,
        message: &mad::Message,
        out: &mut Findings,
    ) {
        let (Some(qpn), Some(psn)) = (message.qpn, message.starting_psn) else {
            return;
        };
        let start = |pmtu| Start { psn: Psn::new(psn), pmtu };
        match (kind, message.local_comm_id, message.remote_comm_id) {
            (Some(CmMessage::Req), Some(local), _) => {
                let asked = Asked { qpn, start: start(message.path_mtu) };
                self.peers.asked.insert((packet.src, local), asked);
            }
            (Some(CmMessage::Rep), _, Some(remote)) => {
                let Some(asked) = self.peers.asked.remove(&(packet.dst, remote)) else {
                    return;
                };
                let (active, passive) = ((packet.dst, asked.qpn), (packet.src, qpn));
                self.connect(active, passive, start(asked.start.pmtu), packet.frame, out);
                self.connect(passive, active, asked.start, packet.frame, out);
            }
            _ => {}
        }
    }

    /// A new connection in which `from` sends to `to`.
    fn connect(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        start: Start,
        frame: u64,
        out: &mut Findings,
    ) {
        self.peers.of.insert(from, to);
        if self.peers.starts.insert((from, to), start) == Some(start) {
            // The message of before, sent again.
            return;
        }
        for service in [Transport::Rc, Transport::Uc] {
            let key = FlowKey { src: from.0, dst: to.0, dest_qp: to.1, service };
            if let Some(&index) = self.by_key.get(&key) {
                let flow = &mut self.flows[index];
                flow.restart(start.psn, true, start.pmtu);
                flow.src_qp = Some(from.1);
                flow.find(out, frame, Kind::Restart, String::from("connected anew"));
            }
        }
    }

    /// Follows a response.
    pub(super) fn response(&mut self, packet: &Packet<'_>, service: Transport, out: &mut Findings) {
        if packet.headers_cut {
            return;
        }
        let requester = (packet.dst, packet.bth.dest_qp);
        let known = self.peers.of.get(&requester).filter(|peer| peer.0 == packet.src);
        let bound = known.and_then(|peer| {
            let key = FlowKey { src: packet.dst, dst: packet.src, dest_qp: peer.1, service };
            self.by_key.get(&key).copied()
        });
        // The QP may have a new peer that nobody has told of.
        let bound_fits = bound.is_some_and(|flow| is_sent(&self.flows[flow], packet.bth.psn));
        let found = match bound {
            Some(flow) if bound_fits => Some(flow),
            Some(flow) => self.pair(packet, service, false).or(Some(flow)),
            None if known.is_some() => None,
            None => self.pair(packet, service, true),
        };
        match found {
            Some(flow) => self.flows[flow].response(packet, out),
            None => {
                let detail = String::from("no request in the capture asks for it");
                self.find(packet, Kind::UnmatchedResponse, detail, out);
            }
        }
    }

    /// Finds the flow whose requests a response answers, and so which QPs are a pair. If no flow
    /// has sent its PSN, but only one could have and is `near` it, it is that.
    fn pair(&mut self, packet: &Packet<'_>, service: Transport, near: bool) -> Option<usize> {
        let psn = packet.bth.psn;
        let (flows, peers) = (&mut self.flows, &mut self.peers);
        let waiting = peers.waiting.get_mut(&(packet.dst, packet.src, service))?;
        // Both directions of a connection mostly use one source port; what was sent last is
        // answered first to be seen.
        let best = waiting.iter().copied().filter(|&flow| is_sent(&flows[flow], psn)).max_by_key(
            |&flow| (flows[flow].udp_sport == packet.udp_sport, flows[flow].last_frame),
        );
        let only = if waiting.len() == 1 && near { waiting.front().copied() } else { None };
        let flow = best.or(only.filter(|&only| {
            let requests = &flows[only].requests;
            requests.position_of(psn).wrapping_sub(requests.next) < NEAR
        }))?;
        waiting.retain(|&waits| waits != flow);
        flows[flow].waits_for_peer = false;
        let requester = (packet.dst, packet.bth.dest_qp);
        let responder = (packet.src, flows[flow].key.dest_qp);
        flows[flow].src_qp = Some(requester.1);
        peers.of.insert(requester, responder);
        peers.of.insert(responder, requester);
        let back = FlowKey { src: packet.src, dst: packet.dst, dest_qp: requester.1, service };
        if let Some(&back) = self.by_key.get(&back)
            && let back = &mut flows[back]
            && back.src_qp.is_none()
        {
            back.src_qp = Some(responder.1);
            back.waits_for_peer = false;
            if let Some(waiting) = peers.waiting.get_mut(&(packet.src, packet.dst, service)) {
                waiting.retain(|&waits| waits != back.index);
            }
        }
        Some(flow)
    }
}

/// Whether a flow has sent this PSN, as far as it was captured.
fn is_sent(flow: &Flow, psn: Psn) -> bool {
    let position = flow.requests.position_of(psn);
    (flow.requests.begin..flow.requests.next_at_most()).contains(&position)
}
