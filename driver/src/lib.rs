//! RDMA over a RoCE v2 stack in userspace: open a [`Context`] and see [`api`].
//!
//! Around the transport: the [`engine`] that drives a device, the [`fabric`] between the processes
//! of a host, memory the library owns, the links frames travel on, and a world of devices on a
//! virtual clock. A [`gateway`] gives a fabric a [`link`] to a real network. [`config`] is what a
//! user may set, [`identity`] which devices follow from it, [`resolve`](mod@resolve) which of them
//! leads to an address.

#![deny(unsafe_code)]
// The models use parts of what the engine does.
#![cfg_attr(loom, allow(dead_code))]

// The models check the parts below these.
#[cfg(not(loom))]
pub mod api;
#[cfg(not(loom))]
pub mod config;
mod doorbell;
#[cfg(not(loom))]
pub mod engine;
mod event;
#[cfg(not(loom))]
pub mod fabric;
pub mod frame;
#[cfg(not(loom))]
pub mod gateway;
#[cfg(not(loom))]
pub mod identity;
#[cfg(not(loom))]
pub mod keeper;
#[cfg(not(loom))]
pub mod link;
pub mod memory;
mod progress;
pub mod quirk;
pub mod rand;
#[cfg(not(loom))]
pub mod resolve;
#[allow(unsafe_code)]
pub mod ring;
mod sync;
#[allow(unsafe_code)]
mod sys;
pub mod world;

#[cfg(not(loom))]
pub use api::{
    AddressHandle, AsyncEvent, Completion, ConnectOptions, Context, Cq, Endpoint, Error,
    LocalSlice, Mr, Payload, Pd, Qp, QpOptions, RecvBatch, RemoteRegion, SendBatch, SendRequest,
    Srq, Subject, Window, Xrcd,
};
pub use ferroce_stack::gid::Gid;
pub use ferroce_stack::psn::Psn;
pub use ferroce_stack::verbs;
