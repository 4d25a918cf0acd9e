//! What a process that measures is told: one end of a measurement.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The task of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// What is measured.
    pub job: Job,
    /// Whether it begins, or answers.
    pub is_active: bool,
    /// How long is measured.
    pub millis: u64,
    /// Its host.
    pub here: End,
    /// The other's.
    pub there: End,
}

/// A host, at its end of the cable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    /// Name of its interface.
    pub interface: String,
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
    /// The interface's address.
    pub ip: Ipv4Addr,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// Frames alone, with no transport.
    Raw(Raw, Load),
    /// Our transport.
    Rdma {
        /// What is done.
        operation: Operation,
        /// Payload of a packet, in bytes.
        mtu: usize,
    },
}

/// How frames get to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Raw {
    /// By AF_XDP, copied.
    Xdp,
    /// By packet sockets.
    Packet,
    /// As datagrams of a UDP socket.
    Udp,
}

/// What is done with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// One way, as many as possible; counted where they arrive.
    Stream {
        /// Bytes behind the UDP header of each.
        len: usize,
        /// How many the kernel gets at a time, as one where the way allows it.
        count: usize,
    },
    /// One, and one back; half that time.
    PingPong {
        /// Bytes behind the UDP header.
        len: usize,
    },
}

impl Load {
    /// Bytes behind the UDP header of a frame, and how many frames are sent at a time.
    pub fn shape(self) -> (usize, usize) {
        match self {
            Load::Stream { len, count } => (len, count),
            Load::PingPong { len } => (len, 1),
        }
    }
}

/// What is done with a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// RDMA WRITEs of so many bytes, one after the other.
    Write(usize),
    /// A SEND of so many bytes, and one back.
    PingPong(usize),
}
