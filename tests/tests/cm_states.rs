//! What every message does in every state of a connection: what is answered, and what its owner is
//! told.

use ferroce_stack::mad::message::{
    Apr, Drep, Dreq, Lap, Message, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq,
};
use ferroce_stack::mad::{CmEvent, CmEventKind, CommId, RejReason};
use ferroce_stack::time::Instant;
use ferroce_stack::wire::CmMessage;
use ferroce_tests::cm::{
    Datagram, Pair, SERVICE, Side, UDP_SERVICE, accept, connect, kind, patched, read, resolve,
};

/// One side in a state, and its peer as it appears in messages.
struct Subject {
    pair: Pair,
    is_active: bool,
    id: CommId,
    peer_id: u32,
    peer_qpn: u32,
    qpn: u32,
}

impl Subject {
    fn side(&mut self) -> &mut Side {
        if self.is_active { &mut self.pair.active } else { &mut self.pair.passive }
    }

    /// A message of the peer to this side.
    fn hear(&mut self, mad: &Datagram) {
        let (now, from) = (self.pair.now, if self.is_active { 2 } else { 1 });
        self.side().hear(now, from, mad);
    }

    /// What it says and tells, as in `REJ 10, Rejected`; nothing is `-`.
    fn outcome(&mut self) -> String {
        let sent = self.side().sent();
        let events = self.side().events();
        let said = sent.iter().map(|(_, mad)| name(mad));
        let told = events.iter().map(|event| told(event).to_owned());
        let all: Vec<String> = said.chain(told).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(", ") }
    }
}

fn name(mad: &Datagram) -> String {
    match kind(mad) {
        CmMessage::Rej => format!("REJ {}", read::<Rej>(mad).reason.0),
        CmMessage::Apr => format!("APR {}", read::<Apr>(mad).status),
        CmMessage::SidrRep => format!("SIDR_REP {}", read::<SidrRep>(mad).status),
        CmMessage::Mra => match read::<Mra>(mad).received {
            Mra::REQ => "MRA(REQ)".to_owned(),
            _ => "MRA(REP)".to_owned(),
        },
        kind => kind.name().to_owned(),
    }
}

fn told(event: &CmEvent) -> &'static str {
    match event.kind {
        CmEventKind::Request(_) => "Request",
        CmEventKind::Reply(_) => "Reply",
        CmEventKind::Established { .. } => "Established",
        CmEventKind::Rejected { .. } => "Rejected",
        CmEventKind::Unreachable => "Unreachable",
        CmEventKind::Disconnected { .. } => "Disconnected",
        CmEventKind::TimewaitExit => "TimewaitExit",
        CmEventKind::SidrRequest(_) => "SidrRequest",
        CmEventKind::SidrReply(_) => "SidrReply",
    }
}

const STATES: [&str; 16] = [
    "none",
    "SIDR_REQ sent",
    "REQ sent",
    "MRA(REQ) rcvd",
    "REP rcvd",
    "MRA(REP) sent",
    "established, active",
    "DREQ sent",
    "timewait",
    "REQ rcvd",
    "MRA(REQ) sent",
    "withdrawn",
    "REP sent",
    "MRA(REP) rcvd",
    "established, passive",
    "SIDR_REQ rcvd",
];

/// A side brought to the state, which has nothing more to say or tell.
fn subject(state: &str) -> Subject {
    let mut pair = Pair::default();
    let now = pair.now;
    let is_passive = STATES[9..].contains(&state);
    let (id, peer) = match state {
        "none" => (CommId(0x0100_0007), CommId(0x0200_0007)),
        "established, active" | "established, passive" | "DREQ sent" | "timewait" => {
            pair.establish()
        }
        "SIDR_REQ sent" => {
            let id = pair.active.cm.resolve(now, &resolve(b"")).unwrap();
            pair.active.sent();
            (id, CommId(0))
        }
        "SIDR_REQ rcvd" => {
            let peer = pair.active.cm.resolve(now, &resolve(b"")).unwrap();
            pair.exchange();
            (peer, pair.passive.event().id)
        }
        _ => (pair.active.cm.connect(now, &connect(b"")).unwrap(), CommId(0)),
    };
    let mut peer = peer;
    if is_passive || matches!(state, "MRA(REQ) rcvd" | "REP rcvd" | "MRA(REP) sent") {
        pair.exchange();
        peer = pair.passive.events().first().map_or(peer, |event| event.id);
    }
    match state {
        "MRA(REQ) rcvd" | "MRA(REQ) sent" => pair.passive.cm.delay(peer).unwrap(),
        "REP rcvd" | "MRA(REP) sent" | "REP sent" | "MRA(REP) rcvd" => {
            pair.passive.cm.accept(now, peer, &accept(b"")).unwrap();
        }
        "DREQ sent" => pair.active.cm.disconnect(now, id, b"").unwrap(),
        "timewait" => pair.passive.cm.disconnect(now, peer, b"").unwrap(),
        "withdrawn" => pair.active.cm.destroy(now, id),
        _ => {}
    }
    if !matches!(state, "REQ sent" | "DREQ sent" | "REP sent") {
        pair.exchange();
    }
    if matches!(state, "MRA(REP) sent" | "MRA(REP) rcvd") {
        pair.active.cm.delay(id).unwrap();
        pair.exchange();
    }
    for side in [&mut pair.active, &mut pair.passive] {
        side.sent();
        side.events();
    }
    let (qpn, peer_qpn) = (0x101, 0x202);
    if is_passive {
        Subject { pair, is_active: false, id: peer, peer_id: id.0, qpn: peer_qpn, peer_qpn: qpn }
    } else {
        // Who has only asked does not know the peer's ID.
        let peer_id = if peer.0 == 0 { 0x0200_0007 } else { peer.0 };
        Subject { pair, is_active: true, id, peer_id, qpn, peer_qpn }
    }
}

const HAPPENINGS: [&str; 15] = [
    "REQ",
    "MRA(REQ)",
    "MRA(REP)",
    "REJ",
    "REP",
    "RTU",
    "DREQ",
    "DREP",
    "SIDR_REQ",
    "SIDR_REP",
    "LAP",
    "APR",
    "time",
    "destroy",
    "peer died",
];

/// The peer's message of this name.
fn message(name: &str, subject: &Subject) -> Datagram {
    let (local_comm_id, remote_comm_id) = (subject.peer_id, subject.id.0);
    let guid = if subject.is_active {
        subject.pair.passive.config.ca_guid
    } else {
        subject.pair.active.config.ca_guid
    };
    let mra = |received| Mra { local_comm_id, remote_comm_id, received, service_timeout: 20 };
    let mad = match name {
        "REQ" => {
            let (_, mad) = Pair::default().request();
            let mut req: Req = read(&mad);
            req.local_comm_id = local_comm_id;
            req.local_ca_guid = guid;
            req.local_qpn = subject.peer_qpn;
            return patched(&mad, &req);
        }
        "MRA(REQ)" => mra(Mra::REQ).datagram(1, &[]),
        "MRA(REP)" => mra(Mra::REP).datagram(1, &[]),
        "REJ" => Rej {
            local_comm_id,
            remote_comm_id,
            rejected: Rej::OTHER,
            ari_len: 0,
            reason: RejReason::CONSUMER,
            ari: [0; Rej::ARI_LEN],
        }
        .datagram(1, &[]),
        "REP" => Rep {
            local_comm_id,
            remote_comm_id,
            local_qpn: subject.peer_qpn,
            local_ca_guid: guid,
            ..Rep::default()
        }
        .datagram(1, &[]),
        "RTU" => Rtu { local_comm_id, remote_comm_id }.datagram(1, &[]),
        "DREQ" => Dreq { local_comm_id, remote_comm_id, remote_qpn: subject.qpn }.datagram(1, &[]),
        "DREP" => Drep { local_comm_id, remote_comm_id }.datagram(1, &[]),
        "SIDR_REQ" => {
            let request_id = local_comm_id;
            SidrReq { request_id, pkey: 0xffff, service: UDP_SERVICE }.datagram(1, &[0, 0x40])
        }
        "SIDR_REP" => sidr_rep(remote_comm_id).datagram(1, &[]),
        "LAP" => Lap { local_comm_id, remote_comm_id, ..Lap::default() }.datagram(1, &[]),
        _ => {
            Apr { local_comm_id, remote_comm_id, info_len: 0, status: 0, info: [0; Apr::INFO_LEN] }
                .datagram(1, &[])
        }
    };
    mad.unwrap()
}

fn sidr_rep(request_id: u32) -> SidrRep {
    SidrRep {
        request_id,
        status: SidrRep::VALID,
        info_len: 0,
        ece_vendor_id: 0,
        qpn: 9,
        service: SERVICE,
        qkey: 1,
        info: [0; SidrRep::INFO_LEN],
    }
}

/// What each message does in each state. `time` is that the next timer runs out.
const TABLE: &str = "\
none
    REQ: REJ 8
    REP: REJ 6
    DREQ: DREP
    SIDR_REQ: SIDR_REP 1
SIDR_REQ sent
    REQ: REJ 8
    DREQ: DREP
    SIDR_REQ: SIDR_REP 1
    SIDR_REP: SidrReply
    time: SIDR_REQ
    peer died: SidrReply
REQ sent
    REQ: REJ 8
    MRA(REQ): waits
    REJ: Rejected
    REP: Reply
    DREQ: DREP
    SIDR_REQ: SIDR_REP 1
    time: REQ
    destroy: REJ 4
    peer died: Rejected
MRA(REQ) rcvd
    REQ: REJ 8
    REJ: Rejected
    REP: Reply
    DREQ: DREP
    SIDR_REQ: SIDR_REP 1
    time: REQ
    destroy: REJ 4
    peer died: Rejected
REP rcvd
    REJ: Rejected
    REP: MRA(REP)
    DREQ: DREP, Disconnected
    SIDR_REQ: SIDR_REP 1
    destroy: REJ 28
    peer died: Rejected
MRA(REP) sent
    REJ: Rejected
    REP: MRA(REP)
    DREQ: DREP, Disconnected
    SIDR_REQ: SIDR_REP 1
    destroy: REJ 28
    peer died: Rejected
established, active
    REJ: Disconnected
    REP: RTU
    DREQ: DREP, Disconnected
    SIDR_REQ: SIDR_REP 1
    LAP: APR 2
    destroy: DREQ
    peer died: Disconnected
DREQ sent
    REJ: Disconnected
    DREQ: DREP, Disconnected
    DREP: Disconnected
    SIDR_REQ: SIDR_REP 1
    time: DREQ
    peer died: Disconnected
timewait
    REQ: REJ 10
    DREQ: DREP
    SIDR_REQ: SIDR_REP 1
    time: TimewaitExit
REQ rcvd
    REQ: MRA(REQ)
    REJ: Rejected
    DREQ: DREP
    SIDR_REQ: SidrRequest
    destroy: REJ 28
    peer died: Rejected
MRA(REQ) sent
    REQ: MRA(REQ)
    REJ: Rejected
    DREQ: DREP
    SIDR_REQ: SidrRequest
    destroy: REJ 28
    peer died: Rejected
withdrawn
    DREQ: DREP
    SIDR_REQ: SidrRequest
REP sent
    MRA(REP): waits
    REJ: Rejected
    RTU: Established
    DREQ: DREP, Disconnected
    SIDR_REQ: SidrRequest
    time: REP
    destroy: REJ 28
    peer died: Rejected
MRA(REP) rcvd
    REJ: Rejected
    RTU: Established
    DREQ: DREP, Disconnected
    SIDR_REQ: SidrRequest
    time: REP
    destroy: REJ 28
    peer died: Rejected
established, passive
    REJ: Disconnected
    DREQ: DREP, Disconnected
    SIDR_REQ: SidrRequest
    LAP: APR 2
    destroy: DREQ
    peer died: Disconnected
SIDR_REQ rcvd
    REQ: Request
    DREQ: DREP
    destroy: SIDR_REP 2
    peer died: Unreachable
";

#[test]
fn every_message_in_every_state() {
    let mut table = String::new();
    for state in STATES {
        table += &format!("{state}\n");
        for name in HAPPENINGS {
            let mut subject = subject(state);
            let id = subject.id;
            let before = subject.side().cm.poll_timeout();
            match name {
                "time" => before.into_iter().for_each(|at| subject.side().cm.handle_timeout(at)),
                "destroy" => subject.side().cm.destroy(Instant::ZERO, id),
                "peer died" => subject.side().cm.peer_died(Instant::ZERO, id),
                _ => {
                    let mad = message(name, &subject);
                    subject.hear(&mad);
                }
            }
            let mut outcome = subject.outcome();
            let after = subject.side().cm.poll_timeout();
            if outcome == "-" && after.is_some() && after != before {
                outcome = "waits".to_owned();
            }
            if outcome != "-" {
                table += &format!("    {name}: {outcome}\n");
            }
        }
    }
    assert!(table == TABLE, "{table}");
}
