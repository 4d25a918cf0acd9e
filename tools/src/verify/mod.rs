//! Follows every connection of a capture and tells what happened on it.
//!
//! A capture shows packets, not QPs: a packet names the QP it goes to and not the one it comes
//! from. Which two QPs talk to each other is learnt from connection management, or else from
//! responses that fit the requests of one flow. A capture may begin within a connection, and it
//! may miss frames: what these can explain is an event. Only what nothing can explain is a
//! violation.

mod finding;
mod flow;
mod message;
mod peers;
mod requests;
mod responses;

use std::collections::{BTreeMap, HashMap};

use ferroce_stack::wire::{Kind as Operation, OpcodeInfo, PayloadRule, Transport};
use serde::Serialize;

pub use finding::{Finding, Kind};
use flow::{Findings, Flow, FlowKey};
use peers::Peers;
pub(crate) use responses::nak_text;

use crate::mad;
use crate::packet::{Icrc, Packet};

/// Follows connections, packet by packet.
#[derive(Debug, Default)]
pub struct Verifier {
    complete: bool,
    flows: Vec<Flow>,
    by_key: HashMap<FlowKey, usize>,
    peers: Peers,
    /// Findings of no flow.
    unbound_violations: u64,
    unbound: BTreeMap<Kind, u64>,
}

/// What was found in all of a capture.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Every flow, in the order of their first packets.
    pub flows: Vec<FlowReport>,
    /// Findings of no packet that is shown: about frames that are none, or brought to light only
    /// by the end of the capture.
    pub unattached: Vec<Finding>,
    /// Violations in all.
    pub violations: u64,
    /// Findings of all kinds, by their number.
    pub findings: BTreeMap<&'static str, u64>,
}

/// What was found on one flow: the requests of a QP, and the responses to them.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// Its number, as findings name it.
    pub flow: usize,
    /// Transport service, as in `RC`.
    pub service: &'static str,
    /// Requester.
    pub src: String,
    /// The requester's QPN, if that was told or could be learnt.
    pub src_qp: Option<u32>,
    /// Responder.
    pub dst: String,
    /// The responder's QPN.
    pub dest_qp: u32,
    /// Path MTU in bytes, if it could be learnt.
    pub path_mtu: Option<u32>,
    /// Request packets, resent ones included.
    pub packets: u64,
    /// Their payload in bytes.
    pub payload_bytes: u64,
    /// Response packets.
    pub responses: u64,
    /// Messages sent, each counted once.
    pub messages: u64,
    /// Request packets sent again.
    pub retransmissions: u64,
    /// Sequence NAKs.
    pub sequence_naks: u64,
    /// Requests refused.
    pub naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// Gaps in the PSNs of requests.
    pub gaps: u64,
    /// Violations.
    pub violations: u64,
    /// Findings of all kinds, by their number.
    pub findings: BTreeMap<&'static str, u64>,
}

impl Verifier {
    /// A verifier of a capture that holds every frame if `complete`: then what it does not
    /// hold was not sent.
    pub fn new(complete: bool) -> Verifier {
        Verifier { complete, ..Verifier::default() }
    }

    /// Follows the next packet and returns what that brought to light, on this or on earlier ones.
    pub fn packet(&mut self, packet: &Packet<'_>) -> Vec<Finding> {
        let mut out = Vec::new();
        if packet.icrc == Icrc::Bad {
            if !packet.rxe_flush {
                self.find(packet, Kind::BadIcrc, String::from("a receiver drops it"), &mut out);
                return out;
            }
            let detail = String::from("ICRC computed in the way of Linux rxe");
            self.find(packet, Kind::RxeFlush, detail, &mut out);
        }
        if packet.bth.transport_version != 0 {
            let detail = format!("TVer {}", packet.bth.transport_version);
            self.find(packet, Kind::Malformed, detail, &mut out);
            return out;
        }
        let Some(info) = packet.info() else {
            // Vendors put requests of one packet on undefined opcodes.
            if let Some(service @ (Transport::Rc | Transport::Xrc)) = packet.bth.opcode.transport()
            {
                self.request(packet, service, &mut out);
            }
            return out;
        };
        self.check_pad(packet, info, &mut out);
        match (info.transport, info.kind) {
            (_, Operation::Cnp) => {
                self.find(packet, Kind::Cnp, String::from("congestion"), &mut out);
            }
            (Transport::Rd, _) => {}
            (Transport::Ud, _) => self.datagram(packet, &mut out),
            (service, kind) if kind.is_response() => self.response(packet, service, &mut out),
            (service, _) => self.request(packet, service, &mut out),
        }
        out
    }

    /// Notes a frame that is RoCE by its port or ethertype, but no packet.
    pub fn malformed(&mut self, frame: u64, reason: &str) -> Finding {
        self.unbound_violations += 1;
        *self.unbound.entry(Kind::Malformed).or_default() += 1;
        let detail = String::from(reason);
        Finding { frame, flow: None, kind: Kind::Malformed, violation: true, detail }
    }

    /// Ends the capture.
    pub fn finish(mut self) -> Report {
        let mut unattached = Vec::new();
        for flow in &mut self.flows {
            flow.finish(&mut unattached);
        }
        let missed = self.unbound.contains_key(&Kind::UnmatchedResponse)
            || self.flows.iter().any(Flow::has_missed);
        for flow in &mut self.flows {
            flow.judge_doubtful(missed, &mut unattached);
        }
        unattached.sort_by_key(|finding| finding.frame);
        let mut findings = BTreeMap::new();
        let counts = self.flows.iter().flat_map(|flow| &flow.counts).chain(&self.unbound);
        for (kind, count) in counts {
            *findings.entry(kind.name()).or_default() += count;
        }
        let in_flows: u64 = self.flows.iter().map(|flow| flow.violations).sum();
        Report {
            violations: self.unbound_violations + in_flows,
            flows: self.flows.iter().map(FlowReport::new).collect(),
            unattached,
            findings,
        }
    }

    /// Notes a finding about a packet that is not followed further.
    fn find(&mut self, packet: &Packet<'_>, kind: Kind, detail: String, out: &mut Findings) {
        let service = packet.info().map(|info| info.transport);
        let flow = service.and_then(|service| {
            let key =
                FlowKey { src: packet.src, dst: packet.dst, dest_qp: packet.bth.dest_qp, service };
            self.by_key.get(&key).copied()
        });
        if let Some(flow) = flow {
            return self.flows[flow].find(out, packet.frame, kind, detail);
        }
        let violation = kind.is_violation(self.complete);
        self.unbound_violations += u64::from(violation);
        *self.unbound.entry(kind).or_default() += 1;
        out.push(Finding { frame: packet.frame, flow: None, kind, violation, detail });
    }

    fn check_pad(&mut self, packet: &Packet<'_>, info: &OpcodeInfo, out: &mut Findings) {
        let pad_count = u32::from(packet.bth.pad_count);
        let unpadded = !info.position.ends() || matches!(info.payload, PayloadRule::Empty);
        let problem = if !(packet.payload_len + pad_count).is_multiple_of(4) {
            Some(format!("pad {pad_count} behind {} bytes of payload", packet.payload_len))
        } else if unpadded && pad_count != 0 {
            Some(format!("pad {pad_count} in {}", info.name))
        } else {
            None
        };
        if let Some(problem) = problem {
            self.find(packet, Kind::BadPad, problem, out);
        } else if packet.pad.iter().any(|&byte| byte != 0) {
            self.find(packet, Kind::NonzeroPad, format!("{:02x?}", packet.pad), out);
        }
    }

    /// The flow of a request, made if it is new.
    fn flow_of(&mut self, packet: &Packet<'_>, service: Transport) -> usize {
        let key =
            FlowKey { src: packet.src, dst: packet.dst, dest_qp: packet.bth.dest_qp, service };
        let (flows, complete) = (&mut self.flows, self.complete);
        *self.by_key.entry(key).or_insert_with(|| {
            let mut flow = Flow::new(flows.len(), key, packet.bth.psn, complete);
            if let Some((src_qp, start)) = self.peers.requester_of(&key) {
                flow.src_qp = Some(src_qp);
                if let Some(start) = start {
                    flow.restart(start.psn, true, start.pmtu);
                }
            }
            flows.push(flow);
            flows.len() - 1
        })
    }

    fn request(&mut self, packet: &Packet<'_>, service: Transport, out: &mut Findings) {
        let index = self.flow_of(packet, service);
        let flow = &mut self.flows[index];
        flow.request(packet, out);
        if flow.src_qp.is_none() && !flow.waits_for_peer && service != Transport::Uc {
            flow.waits_for_peer = true;
            self.peers.wait(&flow.key, index);
        }
    }

    fn datagram(&mut self, packet: &Packet<'_>, out: &mut Findings) {
        let index = self.flow_of(packet, Transport::Ud);
        let flow = &mut self.flows[index];
        flow.packets += 1;
        flow.messages += 1;
        flow.payload_bytes += u64::from(packet.payload_len);
        flow.src_qp = packet.ext.deth.map(|deth| deth.src_qp);
        if let Some((header, data)) = packet.mad() {
            self.manage(packet, header.cm_message(), &mad::Message::new(&header, data), out);
        }
    }
}

impl FlowReport {
    fn new(flow: &Flow) -> FlowReport {
        let count = |kind| flow.counts.get(&kind).copied().unwrap_or_default();
        FlowReport {
            flow: flow.index,
            service: flow.key.service.name(),
            src: flow.key.src.to_string(),
            src_qp: flow.src_qp,
            dst: flow.key.dst.to_string(),
            dest_qp: flow.key.dest_qp,
            path_mtu: flow.requests.pmtu,
            packets: flow.packets,
            payload_bytes: flow.payload_bytes,
            responses: flow.responses,
            messages: flow.messages,
            retransmissions: count(Kind::Retransmission) + count(Kind::ReadResume),
            sequence_naks: count(Kind::SequenceNak) + count(Kind::NakAfterRnr),
            naks: count(Kind::Nak),
            rnr_naks: count(Kind::RnrNak),
            gaps: count(Kind::Gap),
            violations: flow.violations,
            findings: flow.counts.iter().map(|(kind, &count)| (kind.name(), count)).collect(),
        }
    }
}
