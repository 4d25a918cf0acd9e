//! Why a plan cannot be simulated.

use std::fmt;

use ferroce_stack::verbs::VerbsError;

use crate::plan::Node;

/// Why a plan cannot be simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum SimError {
    /// A number is out of its range.
    Value {
        /// Of what: `flow 3`, `link 0`, `switch`.
        of: String,
        /// Its name.
        name: &'static str,
        /// It.
        value: String,
        /// What would be right.
        right: String,
    },
    /// A link ends nowhere.
    NoSuchNode {
        /// The link.
        link: usize,
        /// Its end.
        node: Node,
    },
    /// Both ends of a link are the same.
    LinkToItself {
        /// The link.
        link: usize,
    },
    /// A host has no link, or more than one.
    HostLinks {
        /// The host.
        host: usize,
        /// How many it has.
        links: usize,
    },
    /// There is no way between two hosts.
    NoWay {
        /// The flow that would take it.
        flow: usize,
        /// Its hosts.
        hosts: [usize; 2],
    },
    /// Flows share a QP pair, and differ in what a pair has one of.
    UnequalFlows {
        /// The flows.
        flows: [usize; 2],
        /// Number of the pair.
        qp: usize,
    },
    /// The headroom of all ports leaves nothing of a switch's buffer.
    NoBuffer {
        /// The switch.
        switch: usize,
        /// Bytes its ports' headroom takes.
        headroom: u64,
        /// Bytes there are.
        buffer: u64,
    },
    /// A device refused what its program asked for.
    Refused {
        /// The host.
        host: usize,
        /// For what.
        verb: &'static str,
        /// Why.
        error: VerbsError,
    },
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Value { of, name, value, right } => {
                write!(f, "{of}: {name} is {value}, and must be {right}")
            }
            SimError::NoSuchNode { link, node } => {
                write!(f, "link {link} ends at {}, which does not exist", name(node))
            }
            SimError::LinkToItself { link } => {
                write!(f, "link {link} has both ends at the same host or switch")
            }
            SimError::HostLinks { host, links: 0 } => write!(f, "host {host} has no link"),
            SimError::HostLinks { host, links } => {
                write!(f, "host {host} has {links} links, and must have one")
            }
            SimError::NoWay { flow, hosts: [from, to] } => {
                write!(f, "flow {flow}: there is no way from host {from} to host {to}")
            }
            SimError::UnequalFlows { flows: [first, other], qp } => write!(
                f,
                "flows {first} and {other} share QP {qp}, and must have the same from, to and dscp"
            ),
            SimError::NoBuffer { switch, headroom, buffer } => write!(
                f,
                "switch {switch}: its ports' headroom is {headroom} bytes, and its buffer {buffer}: \
                 expected less of the one, or more of the other"
            ),
            SimError::Refused { host, verb, error } => {
                write!(f, "host {host}: {verb} was refused: {error}")
            }
        }
    }
}

impl std::error::Error for SimError {}

fn name(node: &Node) -> String {
    match node {
        Node::Host(host) => format!("host {host}"),
        Node::Switch(switch) => format!("switch {switch}"),
    }
}
