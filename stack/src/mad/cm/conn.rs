//! One connection or exchange.

use crate::gid::Gid;
use crate::mad::message::MAD_LEN;
use crate::mad::{ListenerId, Path, ServiceId};
use crate::time::Instant;

/// Where a connection or exchange stands (IBA 12.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// REQ sent.
    ReqSent,
    /// REQ sent; the peer asks for time.
    MraReqRcvd,
    /// REQ received; its owner has to answer.
    ReqRcvd,
    /// As `ReqRcvd`; the peer was asked for time.
    MraReqSent,
    /// A request whose peer took it back or died before it was answered; its owner may forget it.
    Withdrawn,
    /// REP received; its owner has to confirm.
    RepRcvd,
    /// As `RepRcvd`; the peer was asked for time.
    MraRepSent,
    /// REP sent.
    RepSent,
    /// REP sent; the peer asks for time.
    MraRepRcvd,
    /// In use.
    Established,
    /// DREQ sent.
    DreqSent,
    /// Over; late packets may still be under way.
    Timewait,
    /// SIDR_REQ sent.
    SidrReqSent,
    /// SIDR_REQ received; its owner has to answer.
    SidrReqRcvd,
}

/// By what messages of peers name a connection: a number, unique together with the channel adapter
/// and GID it is of. The GID is part of it so that nobody can speak in the name of another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The peer's GID, channel adapter and communication ID.
    Comm(Gid, u64, u32),
    /// The peer's GID, channel adapter and QPN, of a connection that is not over.
    Qp(Gid, u64, u32),
    /// The peer's GID and request ID.
    Exchange(Gid, u32),
}

#[derive(Debug)]
pub struct Conn {
    pub cookie: u64,
    pub state: State,
    /// Its owner has forgotten it and is told nothing.
    pub is_silent: bool,
    /// Where its datagrams go, and from where alone they come.
    pub path: Path,
    /// Of REQ and what answers it; of SIDR_REQ.
    pub transaction_id: u64,
    /// Of a request that it holds.
    pub listener: Option<ListenerId>,
    /// The peer's communication ID; that of the exchange it asks for.
    pub remote_id: Option<u32>,
    pub local_qpn: u32,
    pub remote_qpn: u32,
    pub is_xrc: bool,
    /// The service an exchange asks for.
    pub service: ServiceId,
    /// READs and atomics the peer takes and wants to send at a time: bounds of what is accepted.
    pub remote_responder_resources: u8,
    pub remote_initiator_depth: u8,
    /// ACK timeout code of this side's QP.
    pub ack_timeout: u8,
    /// Until an unanswered message is sent again.
    pub resend_ns: u64,
    pub max_retries: u8,
    pub retries_left: u8,
    /// How often the peer has said that nobody listens, and was asked again; and may be.
    pub refusals: u8,
    pub max_refusals: u8,
    /// The last message of the handshake, as it is sent again.
    pub sent: Option<Box<[u8; MAD_LEN]>>,
    /// When to look at it again; only the table changes it.
    pub deadline: Option<Instant>,
    /// Its entries in the table; only the table changes them.
    pub peer_name: Option<Name>,
    pub qp_name: Option<Name>,
}

impl Conn {
    /// One in its first state, in which nothing of the peer but its GID is known.
    pub fn new(state: State, cookie: u64, path: Path, transaction_id: u64) -> Conn {
        Conn {
            cookie,
            state,
            is_silent: false,
            path,
            transaction_id,
            listener: None,
            remote_id: None,
            local_qpn: 0,
            remote_qpn: 0,
            is_xrc: false,
            service: ServiceId(0),
            remote_responder_resources: 0,
            remote_initiator_depth: 0,
            ack_timeout: 0,
            resend_ns: 0,
            max_retries: 0,
            retries_left: 0,
            refusals: 0,
            max_refusals: 0,
            sent: None,
            deadline: None,
            peer_name: None,
            qp_name: None,
        }
    }

    /// Whether a message from this communication ID and GID is the peer's.
    pub fn is_peer(&self, gid: Gid, id: u32) -> bool {
        self.path.dgid == gid && self.remote_id == Some(id)
    }

    /// Whether the connection still binds two QPs, or is about to.
    pub fn is_live(&self) -> bool {
        !matches!(self.state, State::Withdrawn | State::Timewait)
    }
}
