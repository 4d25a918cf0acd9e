//! Unmodified programs run over the library: with no `/dev/infiniband`, no kernel module and no
//! rights. Each test has a fabric of its own; two run at a time.

#![forbid(unsafe_code)]

mod agent;
mod bindings;
mod capture;
mod connections;
mod devices;
mod faults;
mod libfabric;
mod openmpi;
mod perftest;
mod pingpong;
mod places;
mod preload;
mod pyverbs;
mod qperf;
mod rdmacm;
mod sockets;
mod storage;
mod ucx;
