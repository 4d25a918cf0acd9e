//! The InfiniBand transport over RoCE (RDMA over Converged Ethernet).
//!
//! [`wire`] turns a frame into plain values and back, [`icrc`] guards it from end to end, [`psn`]
//! numbers it, [`gid`] addresses it, and [`discard`] names every reason for which it may have no
//! effect.

#![forbid(unsafe_code)]

pub mod discard;
pub mod gid;
pub mod icrc;
pub mod psn;
pub mod wire;
