//! The InfiniBand transport over RoCE (RDMA over Converged Ethernet), as a pure state machine.
//!
//! No I/O, clock, thread, lock or `unsafe`: frames come in as bytes, frames go out as bytes, and
//! the same calls give the same frames, byte for byte.
//!
//! [`Device`] owns all state and is the only way in. [`verbs`] has what an application posts to it
//! and polls from it, and [`memory`] what the application lends it. For frames, [`wire`] turns one
//! into plain values and back, [`icrc`] guards it from end to end, [`psn`] numbers it, [`gid`]
//! addresses it, and [`discard`] names every reason for which it may have no effect. [`congestion`]
//! says how fast each QP may send, where that is wanted.

#![forbid(unsafe_code)]

mod ah;
pub mod congestion;
mod control;
mod counters;
mod cq;
mod device;
pub mod discard;
pub mod flow;
pub mod gid;
pub mod icrc;
mod loss_recovery;
pub mod mad;
pub mod memory;
mod mr;
mod multicast;
mod outgoing;
mod port;
pub mod psn;
mod qp;
mod qp_table;
mod sq;
mod srq;
mod table;
pub mod time;
mod timer;
pub mod verbs;
pub mod wire;

pub use control::{MrChange, MrInit, SrqAttr, SrqInit};
pub use counters::{Counters, QpCounters};
pub use device::{Config, Device};
pub use loss_recovery::LossRecovery;
pub use port::{GidEntry, GidType, PortAttr};
pub use qp::{Transition, transition};

/// Bytes of the longest message: 2^31 (IBA 9.7.2).
pub const MAX_MESSAGE: u64 = 1 << 31;
