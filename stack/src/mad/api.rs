//! What the calls of [`Cm`](super::Cm) take and what its events say.

use std::fmt;
use std::ops::Range;

use super::{IpHeader, RejReason, ServiceId};
use crate::gid::Gid;
use crate::verbs::{Mtu, QpType, Qpn};

/// How management datagrams and a connection's packets travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// GID they leave from.
    pub sgid: Gid,
    /// GID they go to.
    pub dgid: Gid,
    /// IPv6 flow label, 20 bits; decides the UDP source port.
    pub flow_label: u32,
    /// The whole IPv4 ToS or IPv6 traffic class byte.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Service level, 0 to 15.
    pub sl: u8,
}

/// A connection or exchange of a [`Cm`](super::Cm): its local communication ID or request ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommId(pub u32);

/// A listener of a [`Cm`](super::Cm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub(crate) u64);

/// What a [`Cm`](super::Cm) is made of. Codes are times: 4.096 us * 2^code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmConfig {
    /// Communication IDs are taken from here; 0 is never one.
    pub ids: Range<u32>,
    /// GUID of the channel adapter, by which peers tell apart communication IDs of several.
    pub ca_guid: u64,
    /// Code: within this a message is answered.
    pub response_timeout: u8,
    /// Code: within this a packet has arrived or is lost.
    pub packet_life: u8,
    /// How often a message is resent before the peer counts as unreachable, 0 to 15.
    pub max_retries: u8,
    /// Code: within this the channel adapter acknowledges a request.
    pub ack_delay: u8,
    /// Connections and exchanges in all states, those waiting for their time to end among them. Of
    /// these peers may start seven eighths.
    pub max_connections: usize,
    /// Chooses the first communication ID, so that a successor does not repeat them.
    pub seed: u64,
}

impl Default for CmConfig {
    fn default() -> CmConfig {
        CmConfig {
            ids: 1..u32::MAX,
            ca_guid: 0,
            response_timeout: 17,
            packet_life: 14,
            max_retries: 15,
            ack_delay: 15,
            max_connections: 65536,
            seed: 0,
        }
    }
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmError {
    /// No connection or listener has this ID.
    UnknownId,
    /// The connection's state does not allow the call.
    State,
    /// The private data or the additional information is longer than the message takes.
    PrivateData,
    /// The QP type is none that connects.
    Argument,
    /// As many connections exist as may, or all communication IDs are in use.
    NoRoom,
    /// Another listener has the service and address.
    InUse,
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmError::UnknownId => "no connection or listener has this ID",
            CmError::State => "the connection's state does not allow this",
            CmError::PrivateData => "the private data is too long",
            CmError::Argument => "the QP type cannot be connected",
            CmError::NoRoom => "no further connection may exist",
            CmError::InUse => "another listener has this service and address",
        })
    }
}

impl std::error::Error for CmError {}

/// What to connect, and to what.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// Comes back in every event of the connection.
    pub cookie: u64,
    /// The service asked for.
    pub service: ServiceId,
    /// Path to the peer, for the management datagrams and the QP.
    pub path: Path,
    /// P_Key of the connection.
    pub pkey: u16,
    /// [`Rc`](QpType::Rc), [`Uc`](QpType::Uc) or [`XrcSend`](QpType::XrcSend).
    pub qp_type: QpType,
    /// The QP.
    pub qpn: Qpn,
    /// PSN the QP expects first; the low 24 bits count.
    pub psn: u32,
    /// Q_Key.
    pub qkey: u32,
    /// READs and atomics this side takes at a time.
    pub responder_resources: u8,
    /// READs and atomics this side wants to send at a time.
    pub initiator_depth: u8,
    /// Retries the peer shall use, 0 to 7.
    pub retry_count: u8,
    /// RNR retries the peer shall use, 0 to 7.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The QP has a shared receive queue.
    pub srq: bool,
    /// Path MTU.
    pub mtu: Mtu,
    /// ACK timeout code; none: follows from packet life and ACK delay.
    pub ack_timeout: Option<u8>,
    /// How often the request is sent again where nobody listens, after 1 ms, 2 ms, 4 ms and so on,
    /// 0 to 15. Programs that listen on one side and connect on the other at a moment they agree
    /// on count on that connecting takes longer than listening.
    pub refused_retries: u8,
    /// Put before the private data.
    pub ip: Option<IpHeader>,
    /// At most 92 bytes, 56 with an IP header.
    pub private_data: &'a [u8],
}

/// With what a request is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// The QP; of XRC the target.
    pub qpn: Qpn,
    /// PSN the QP expects first; the low 24 bits count.
    pub psn: u32,
    /// Q_Key.
    pub qkey: u32,
    /// READs and atomics this side takes at a time; at most what the peer wants is sent.
    pub responder_resources: u8,
    /// READs and atomics this side sends at a time; at most what the peer takes is sent.
    pub initiator_depth: u8,
    /// RNR retries the peer shall use, 0 to 7.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The QP has a shared receive queue.
    pub srq: bool,
    /// At most 196 bytes.
    pub private_data: &'a [u8],
}

/// Which service to resolve to a UD QP, and where.
#[derive(Clone, Copy, Debug)]
pub struct SidrConnect<'a> {
    /// Comes back in every event of the exchange.
    pub cookie: u64,
    /// The service asked for.
    pub service: ServiceId,
    /// Path to the peer.
    pub path: Path,
    /// P_Key of the datagrams to come.
    pub pkey: u16,
    /// As of a [`Connect`].
    pub refused_retries: u8,
    /// Put before the private data.
    pub ip: Option<IpHeader>,
    /// At most 216 bytes, 180 with an IP header.
    pub private_data: &'a [u8],
}

/// How a service resolution is answered.
#[derive(Clone, Copy, Debug)]
pub struct SidrAccept<'a> {
    /// 0: valid; see [`SidrRep::status`](super::message::SidrRep::status).
    pub status: u8,
    /// The UD QP.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// At most 136 bytes.
    pub private_data: &'a [u8],
}

/// Something a connection's owner has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// The connection's; of one that has none yet, its listener's.
    pub cookie: u64,
    /// The connection or exchange.
    pub id: CommId,
    /// What happened.
    pub kind: CmEventKind,
}

/// What happened to a connection. Private data is always the message's whole area, padded with
/// zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    /// A peer asks a listener for a connection. The ID lives until it is answered or destroyed.
    Request(Box<Request>),
    /// The peer accepts. The QP may go to RTR and RTS; then confirm, or reject.
    Reply(Box<Reply>),
    /// The peer has confirmed, or its data came. Who confirms is not told of it.
    Established {
        /// 224 bytes, or none if data came first.
        private_data: Box<[u8]>,
    },
    /// The peer does not want the connection. The ID is forgotten, but of an unanswered request it
    /// stays until destroyed.
    Rejected {
        /// Why.
        reason: RejReason,
        /// Additional information, 0 to 72 bytes.
        ari: Box<[u8]>,
        /// 148 bytes.
        private_data: Box<[u8]>,
    },
    /// Nothing came back though every resend was tried. As with `Rejected` the ID is forgotten.
    Unreachable,
    /// The connection is over: the peer says so, or has answered our request to end it, or does
    /// not answer it. [`TimewaitExit`](Self::TimewaitExit) follows.
    Disconnected {
        /// Of DREQ 220 bytes, of DREP 224, otherwise none.
        private_data: Box<[u8]>,
    },
    /// No packet of the connection is under way any more: its QP number may be used again. The ID
    /// is forgotten.
    TimewaitExit,
    /// A peer asks a listener for its UD QP. The ID lives until it is answered or destroyed.
    SidrRequest(Box<SidrRequest>),
    /// The answer. The ID is forgotten.
    SidrReply(Box<SidrReply>),
}

/// A peer's request for a connection, seen from the side asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The listener asked.
    pub listener: ListenerId,
    /// Path to the peer.
    pub path: Path,
    /// The service asked for.
    pub service: ServiceId,
    /// Who asks whom; none if the service needs no such header.
    pub ip: Option<IpHeader>,
    /// P_Key of the connection.
    pub pkey: u16,
    /// Type of the peer's QP; where it is [`XrcSend`](QpType::XrcSend), this side's is
    /// [`XrcRecv`](QpType::XrcRecv).
    pub qp_type: QpType,
    /// The peer's QP.
    pub remote_qpn: Qpn,
    /// The peer's channel adapter.
    pub remote_ca_guid: u64,
    /// The peer's communication ID.
    pub remote_comm_id: CommId,
    /// Q_Key.
    pub qkey: u32,
    /// PSN to start sending with.
    pub psn: u32,
    /// READs and atomics the peer wants to send at a time: this side's `max_dest_rd_atomic`.
    pub responder_resources: u8,
    /// READs and atomics the peer takes at a time: bounds this side's `max_rd_atomic`.
    pub initiator_depth: u8,
    /// Retries to use.
    pub retry_count: u8,
    /// RNR retries to use.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The peer's QP has a shared receive queue.
    pub srq: bool,
    /// Path MTU.
    pub mtu: Mtu,
    /// ACK timeout code for this side's QP.
    pub ack_timeout: u8,
    /// 92 bytes, 56 with an IP header.
    pub private_data: Box<[u8]>,
}

/// A peer's consent to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The peer's QP; of XRC the target.
    pub remote_qpn: Qpn,
    /// The peer's channel adapter.
    pub remote_ca_guid: u64,
    /// Q_Key.
    pub qkey: u32,
    /// PSN to start sending with.
    pub psn: u32,
    /// READs and atomics the peer takes at a time: this side's `max_rd_atomic`.
    pub responder_resources: u8,
    /// READs and atomics the peer sends at a time: this side's `max_dest_rd_atomic`.
    pub initiator_depth: u8,
    /// RNR retries to use.
    pub rnr_retry_count: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// The peer's QP has a shared receive queue.
    pub srq: bool,
    /// ACK timeout code for this side's QP.
    pub ack_timeout: u8,
    /// 196 bytes.
    pub private_data: Box<[u8]>,
}

/// A peer's question for the UD QP of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRequest {
    /// The listener asked.
    pub listener: ListenerId,
    /// Path to the peer.
    pub path: Path,
    /// The service asked for.
    pub service: ServiceId,
    /// Who asks whom; none if the service needs no such header.
    pub ip: Option<IpHeader>,
    /// P_Key of the datagrams to come.
    pub pkey: u16,
    /// 216 bytes, 180 with an IP header.
    pub private_data: Box<[u8]>,
}

/// The UD QP of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrReply {
    /// 0: valid; see [`SidrRep::status`](super::message::SidrRep::status).
    pub status: u8,
    /// The UD QP.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// 136 bytes.
    pub private_data: Box<[u8]>,
}
