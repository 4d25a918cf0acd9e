//! Management datagrams: connection management over QP1 (IBA 12, annex A11).
//!
//! [`message`] turns messages into plain values and back. [`Cm`] establishes, watches over and
//! ends connections: datagrams, time and the owner's calls go in, datagrams and events come out.

mod api;
mod cm;
mod counters;
pub mod message;
mod reason;
mod service;

pub use api::{
    Accept, CmConfig, CmError, CmEvent, CmEventKind, CommId, Connect, ListenerId, Path, Reply,
    Request, SidrAccept, SidrConnect, SidrReply, SidrRequest,
};
pub use cm::Cm;
pub use counters::CmCounters;
pub use reason::RejReason;
pub use service::{IpHeader, PortSpace, ServiceId};
