//! QPs of a target without an agent: our peer asks a program there for connections, as `rping -c`
//! asks `rping -s`, and plays the scenario on the QP that the program accepts with.
//!
//! The target's verbs are not called. What a scenario would have of them is left out, and a state
//! that nobody can ask for is not judged; frames are.

use std::ops::Range;
use std::time::{Duration, Instant};

use ferroce_stack::mad::{
    Cm, CmConfig, CmEventKind, CommId, Connect, IpHeader, Path, PortSpace, Reply as CmReply,
    ServiceId,
};
use ferroce_stack::time::Instant as Moment;
use ferroce_stack::verbs::{Mtu, QpType, Qpn};

use super::{WireError, WireTarget, broken};
use crate::cm::CmCall;
use crate::frame::{self, Flow};
use crate::target::{Broken, Call, Description, QpMake, Reply};

/// The words for `needs` that any target fulfils whose programs accept connections.
pub const FEATURES: [&str; 2] = ["rc", "cm"];

/// Why the rest cannot be done.
pub const NO_VERBS: &str = "without an agent the target's verbs are not called";

/// Communication IDs, unlike those that scripts use.
const IDS: Range<u32> = 0x0200_0000..0x0300_0000;

/// Hops of datagrams.
const HOPS: u8 = 64;

/// The port from which the peer asks.
const SOURCE_PORT: u16 = 40_001;

/// READs and atomics at a time that are asked for.
const DEPTH: u8 = 16;

/// A program that nobody runs refuses so often, within a quarter of a second.
const REFUSED_RETRIES: u8 = 8;

/// Attributes of a QP that a request for a connection can ask for.
const ASKED: [&str; 4] = ["path_mtu", "sq_psn", "retry_cnt", "rnr_retry"];

/// A connection's end takes so long at most.
const END: Duration = Duration::from_secs(2);

/// Connection management of the peer: of the connections it asks for, and of what is left of those
/// of scripts.
#[derive(Debug)]
pub struct Handshake {
    /// Where it asks.
    port: Option<u16>,
    origin: Instant,
    cm: Cm,
    /// Between both QP1s.
    flow: Flow,
    path: Path,
    /// Connections that are not over.
    open: Vec<CommId>,
}

/// What became of a request.
enum Outcome {
    Accepted(Box<CmReply>),
    /// For this reason.
    Rejected(u16),
    Unreachable,
}

impl Handshake {
    /// One that asks at this port of the space of TCP, if at any.
    pub fn new(description: &Description, port: Option<u16>) -> Handshake {
        let (target, peer) = (description.address, description.peer);
        Handshake {
            port,
            origin: Instant::now(),
            cm: Cm::new(config(description)),
            flow: frame::cm::flow(target, peer, description.peer_guid),
            path: Path {
                sgid: peer.gid,
                dgid: target.gid,
                flow_label: 0,
                traffic_class: 0,
                hop_limit: HOPS,
                sl: 0,
            },
            open: Vec::new(),
        }
    }

    /// Begins without connections, as another channel adapter.
    pub fn begin(&mut self, description: &Description) {
        self.cm = Cm::new(config(description));
        self.open.clear();
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// When there is something to do.
    pub fn timeout(&self) -> Option<Instant> {
        let at = self.cm.poll_timeout()?;
        Some(self.origin + Duration::from_nanos(at.nanos()))
    }

    /// Takes a datagram that has come for the peer's QP1.
    pub fn take(&mut self, frame: &[u8]) {
        if let Some(mad) = frame::cm::received(frame, &self.flow) {
            self.cm.handle_mad(self.now(), &self.path, mad);
        }
    }

    /// Frames that are to be sent now.
    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        self.cm.handle_timeout(self.now());
        let mut frames = Vec::new();
        while let Some((_, mad)) = self.cm.poll_transmit() {
            frames.extend(frame::cm::frame(&mad, &self.flow).ok());
        }
        frames
    }

    /// Asks for a connection with a QP of these attributes; nothing if that makes no sense.
    fn ask(&mut self, make: &QpMake) -> Option<CommId> {
        let service = ServiceId::new(PortSpace::Tcp, self.port?);
        let wanted = &make.attributes;
        let mtu = Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == wanted.path_mtu as usize)?;
        let ip = IpHeader {
            source: self.path.sgid.to_ip(),
            source_port: SOURCE_PORT,
            destination: self.path.dgid.to_ip(),
        };
        let connect = Connect {
            cookie: 0,
            service,
            path: self.path,
            pkey: 0xffff,
            qp_type: QpType::Rc,
            qpn: Qpn(wanted.dest_qp_num),
            psn: wanted.sq_psn,
            qkey: 0,
            responder_resources: DEPTH,
            initiator_depth: DEPTH,
            retry_count: wanted.retry_cnt,
            rnr_retry_count: wanted.rnr_retry,
            flow_control: false,
            srq: false,
            mtu,
            ack_timeout: None,
            refused_retries: REFUSED_RETRIES,
            ip: Some(ip),
            private_data: &[],
        };
        let id = self.cm.connect(self.now(), &connect).ok()?;
        self.open.push(id);
        Some(id)
    }

    /// What became of a request, once that is known. Of other connections only their end counts.
    fn outcome(&mut self, wanted: CommId) -> Option<Outcome> {
        while let Some(event) = self.cm.poll_event() {
            let outcome = match event.kind {
                CmEventKind::Reply(reply) => Some(Outcome::Accepted(reply)),
                CmEventKind::Rejected { reason, .. } => Some(Outcome::Rejected(reason.0)),
                CmEventKind::Unreachable => Some(Outcome::Unreachable),
                CmEventKind::Disconnected { .. } | CmEventKind::TimewaitExit => {
                    self.open.retain(|id| *id != event.id);
                    None
                }
                _ => None,
            };
            if let Some(outcome) = outcome {
                if !matches!(outcome, Outcome::Accepted(_)) {
                    self.open.retain(|id| *id != event.id);
                }
                if event.id == wanted {
                    return Some(outcome);
                }
            }
        }
        None
    }

    /// Ends what is open.
    fn end(&mut self) {
        let now = self.now();
        for id in self.open.clone() {
            if self.cm.disconnect(now, id, &[]).is_err() {
                self.cm.destroy(now, id);
                self.open.retain(|open| *open != id);
            }
        }
    }

    /// Whether nothing is open any more.
    fn is_over(&mut self) -> bool {
        // No connection has this ID: what is left are ends.
        let _ = self.outcome(CommId(0));
        self.open.is_empty()
    }
}

impl WireTarget {
    /// Makes a connection with the program and ends it.
    pub(super) fn try_out(&mut self, port: u16) -> Result<(), WireError> {
        let failed = |Broken(why): Broken| WireError::Program(format!("at port {port} {why}"));
        let make = crate::run::trial_qp();
        match self.meet(&make).map_err(failed)? {
            Reply::Met { .. } => {}
            Reply::Unable { why } => {
                return Err(WireError::Program(format!("at port {port} {why}")));
            }
            other => return Err(WireError::Program(format!("at port {port}: {other:?}"))),
        }
        self.part().map_err(failed)
    }

    /// Answers a call without verbs.
    pub(super) fn call_without_verbs(&mut self, call: &Call) -> Result<Reply, Broken> {
        match call {
            Call::CreateQp(make) => self.meet(make),
            // It has got there by being connected to.
            Call::ModifyQp { state, attributes, .. }
                if attributes.change.is_empty()
                    && ["INIT", "RTR", "RTS"].contains(&state.as_str()) =>
            {
                Ok(Reply::Done)
            }
            Call::Cm(CmCall::Start) => Ok(Reply::Done),
            Call::Counter { .. } => Ok(Reply::Counter { value: None }),
            _ => Ok(Reply::Unable { why: NO_VERBS.to_owned() }),
        }
    }

    /// Asks the program for a QP like this one.
    fn meet(&mut self, make: &QpMake) -> Result<Reply, Broken> {
        let unable = |why: String| Ok(Reply::Unable { why });
        if make.service != "rc" || make.srq.is_some() || make.state != "RTS" {
            return unable("without an agent QPs are RC, in RTS, without an SRQ".to_owned());
        }
        let asked = |name: &&String| ASKED.contains(&name.as_str());
        if let Some(other) = make.attributes.change.iter().find(|name| !asked(name)) {
            return unable(format!("without an agent the target's program chooses the {other}"));
        }
        self.peers.insert(make.attributes.dest_qp_num);
        let Some(id) = self.handshake.ask(make) else {
            return unable("there is no such connection".to_owned());
        };
        // The state machine gives up by itself.
        loop {
            self.gather(Instant::now() + END)?;
            match self.handshake.outcome(id) {
                None => {}
                Some(Outcome::Accepted(reply)) => {
                    let confirmed = self.handshake.cm.confirm(id, &[]);
                    confirmed.map_err(|error| broken("its connection", format!("{error:?}")))?;
                    self.gather(Instant::now())?;
                    return Ok(Reply::Met { qpn: reply.remote_qpn.0, psn: reply.psn });
                }
                Some(Outcome::Rejected(8)) => {
                    return Err(Broken("nobody accepts connections".to_owned()));
                }
                Some(Outcome::Rejected(reason)) => {
                    return unable(format!("the program rejects the connection, reason {reason}"));
                }
                Some(Outcome::Unreachable) => {
                    return Err(Broken("nobody answers a request for a connection".to_owned()));
                }
            }
        }
    }

    /// Ends the scenario's connections.
    pub(super) fn part(&mut self) -> Result<(), Broken> {
        // From here on messages are not the script's.
        self.peers.clear();
        let deadline = Instant::now() + END;
        self.handshake.end();
        loop {
            self.gather(Instant::now())?;
            if self.handshake.is_over() || Instant::now() >= deadline {
                return Ok(());
            }
            self.gather(deadline)?;
        }
    }
}

fn config(description: &Description) -> CmConfig {
    let guid = description.peer_guid;
    CmConfig { ids: IDS, ca_guid: guid, seed: guid, ..CmConfig::default() }
}
