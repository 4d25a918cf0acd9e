//! Connection management as a program uses it, by the verbs of RDMA-CM and what they report.

use serde::{Deserialize, Serialize};

use crate::target::Object;

/// Words of [`Report::event`], which are those of RDMA-CM.
pub const EVENTS: &[&str] = &[
    "connect-request",
    "connect-response",
    "established",
    "rejected",
    "unreachable",
    "disconnected",
    "timewait-exit",
];

/// A verb of connection management. Connections have names: those the script starts the name it
/// gives them, those a peer starts the name their report says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verb")]
pub enum CmCall {
    /// Connection management begins; before it nobody answers at QP1.
    Start,
    /// `rdma_listen` at any address.
    Listen {
        /// Port of the space.
        port: u16,
        /// Whether the space is that of UDP, not that of TCP.
        datagrams: bool,
        /// Requests held that are not answered.
        backlog: u32,
    },
    /// `rdma_connect` to the peer.
    Connect(Connect),
    /// `rdma_accept`.
    Accept(Accept),
    /// `rdma_establish`: the reply of a peer is confirmed.
    Confirm {
        /// Its name.
        connection: Object,
        /// Of the message.
        private_data: Vec<u8>,
    },
    /// `rdma_reject`.
    Reject {
        /// Its name.
        connection: Object,
        /// As on the wire; of datagrams the status.
        reason: u16,
        /// Additional information.
        information: Vec<u8>,
        /// Of the message.
        private_data: Vec<u8>,
    },
    /// The peer is asked for time (MRA).
    Prolong {
        /// Its name.
        connection: Object,
    },
    /// `rdma_notify` of data that came before the connection was established.
    Notify {
        /// Its name.
        connection: Object,
    },
    /// `rdma_disconnect`.
    Disconnect {
        /// Its name.
        connection: Object,
        /// Of the message.
        private_data: Vec<u8>,
    },
    /// `rdma_destroy_id`.
    Destroy {
        /// Its name.
        connection: Object,
    },
}

/// What to connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Connect {
    /// Its name.
    pub connection: Object,
    /// Port of the space.
    pub port: u16,
    /// Whether the space is that of UDP, not that of TCP.
    pub datagrams: bool,
    /// `rc`, `uc` or `xrc`.
    pub service: String,
    /// QPN; may be one that no verb has given.
    pub qpn: u32,
    /// The PSN it expects first; else the target chooses.
    pub psn: Option<u32>,
    /// READs and atomics it takes at a time.
    pub responder_resources: u8,
    /// READs and atomics it sends at a time.
    pub initiator_depth: u8,
    /// Retries the peer shall use.
    pub retry_count: u8,
    /// RNR retries the peer shall use.
    pub rnr_retry_count: u8,
    /// `RDMA_OPTION_ID_ACK_TIMEOUT`.
    pub ack_timeout: Option<u8>,
    /// `RDMA_OPTION_ID_TOS`.
    pub traffic_class: u8,
    /// Of the message, behind the header of RDMA-CM.
    pub private_data: Vec<u8>,
}

/// With what a request is accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Accept {
    /// Its name.
    pub connection: Object,
    /// QPN; may be one that no verb has given.
    pub qpn: u32,
    /// The PSN it expects first; else the target chooses.
    pub psn: Option<u32>,
    /// Q_Key; else the target chooses.
    pub qkey: Option<u32>,
    /// READs and atomics it takes at a time.
    pub responder_resources: u8,
    /// READs and atomics it sends at a time.
    pub initiator_depth: u8,
    /// RNR retries the peer shall use.
    pub rnr_retry_count: u8,
    /// Of the message.
    pub private_data: Vec<u8>,
}

/// What a program is told of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// The connection's name.
    pub connection: Object,
    /// One of [`EVENTS`].
    pub event: String,
    /// What is said with it, by the names of [`NUMBERS`].
    pub numbers: Vec<(String, u64)>,
    /// The whole area of the message.
    pub private_data: Vec<u8>,
    /// Additional information of a rejection.
    pub information: Vec<u8>,
    /// What the target's interfaces tell no program, by the names of fields; it is not judged.
    pub untold: Vec<String>,
}

/// Names of [`Report::numbers`].
pub const NUMBERS: &[&str] = &[
    "status",
    "service",
    "port",
    "peer-port",
    "peer-id",
    "qpn",
    "psn",
    "qkey",
    "ca-guid",
    "responder-resources",
    "initiator-depth",
    "retry-count",
    "rnr-retry-count",
    "flow-control",
    "srq",
    "mtu",
    "ack-timeout",
    "partition-key",
    "traffic-class",
    "flow-label",
    "hop-limit",
    "sl",
];
