//! rsockets: the calls of sockets, over RDMA (`rdma/rsocket.h`).
//!
//! A stream is an RC connection. Each side has a receive buffer in two halves; the other fills one
//! with RDMA WRITEs, whose immediate data says how much has come, while the program reads the
//! other. What is said, in connection requests and in immediate data, is what rdma-core's library
//! says, so that the two understand each other. Everything here is made of the calls a program
//! has: nothing below knows of rsockets.
//!
//! An rsocket is a number, which is a descriptor of this process, so that no file can have it too.

mod addr;
mod buffer;
mod calls;
mod cm;
mod config;
mod datagram;
mod establish;
mod fd;
mod flow;
mod iov;
mod link;
mod mapping;
mod options;
mod poll;
mod protocol;
mod select;
mod service;
mod set;
mod stream;
mod table;
mod transfer;
mod verbs;
mod wait;

pub(crate) use calls::*;
