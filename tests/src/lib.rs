//! What the tests stand on.
//!
//! For scenarios and tables: a device on a virtual clock with flat memory ([`Node`]), two of them
//! on a wire ([`Link`], [`Rig`]), a scripted peer that sends any frame ([`Peer`], [`Scripted`]),
//! expectations that name the field that differs ([`expect`]), and the verbs tables as data
//! ([`transitions`]). For the simulation: from a seed's plan to the oracles ([`simulation`]).

#![forbid(unsafe_code)]

pub mod bench;
pub mod cm;
pub mod cm_simulation;
pub mod expect;
pub mod flow;
pub mod link;
pub mod links;
pub mod memory;
pub mod model;
pub mod node;
pub mod oracle;
pub mod peer;
pub mod plan;
pub mod programs;
pub mod rig;
pub mod scripted;
pub mod simulation;
pub mod storm;
pub mod transitions;

pub use expect::{Expected, Seen, expect_packets, packet};
pub use link::Link;
pub use memory::{BASE, Flat};
pub use node::{Node, statuses};
pub use peer::{Builder, Peer};
pub use rig::Rig;
pub use scripted::{EPSN, PSN, Scripted};

/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SEC: u64 = 1_000_000_000;
