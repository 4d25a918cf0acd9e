//! Fabrics on a network: unmodified programs across a virtual cable between two network namespaces,
//! and with Linux's own RoCE in a virtual machine. What a machine does not allow is skipped, with a
//! word why.

#![forbid(unsafe_code)]

mod addressing;
mod conform;
mod connections;
mod flood;
mod interop;
mod marked;
mod placed;
mod port;
mod situations;
mod veth;
mod xdp;
