//! What is simulated, with nothing left to choose.

use std::collections::BTreeMap;

use ferroce::frame::fault::Rule;
use ferroce_stack::Config;
use ferroce_stack::verbs::Mtu;

/// Traffic classes of a port: each has a queue of its own, and a higher one goes first.
pub const CLASSES: usize = 8;

/// Bytes a frame takes on a link beside its own: preamble 8, FCS 4, gap 12.
pub const FRAMING_LEN: u64 = 24;

/// A simulation.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything that is left to chance: marks, faults, spread over paths.
    pub seed: u64,
    /// What is connected with what.
    pub topology: Topology,
    /// How every switch behaves,
    pub switch: Switch,
    /// but for these, by number.
    pub other_switches: BTreeMap<usize, Switch>,
    /// How every host behaves.
    pub host: Host,
    /// What the hosts' programs do, by start.
    pub flows: Vec<Flow>,
    /// What happens to frames on which links.
    pub faults: Vec<Fault>,
    /// The clock stops here, or when all flows are over, whichever is first; nanoseconds.
    pub until: u64,
    /// Nanoseconds between two samples of queues and rates; 0 takes none.
    pub sample_every: u64,
    /// Ports whose frames are kept for a pcap: `2 * link + end`.
    pub captures: Vec<usize>,
}

impl Plan {
    /// How the switch of this number behaves.
    pub fn switch(&self, number: usize) -> &Switch {
        self.other_switches.get(&number).unwrap_or(&self.switch)
    }
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The host of this number.
    Host(usize),
    /// The switch of this number.
    Switch(usize),
}

/// Hosts, switches, and the links between them. A host has one link; between any two hosts there is
/// a way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// How many hosts there are.
    pub hosts: usize,
    /// How many switches there are.
    pub switches: usize,
    /// Links; the number of one is its place here.
    pub links: Vec<Link>,
}

/// A full-duplex link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Its ends.
    pub ends: [Node; 2],
    /// Bits per second each way.
    pub rate: u64,
    /// Nanoseconds a bit takes from end to end.
    pub delay: u64,
}

/// A switch with output queues in one shared buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// Bytes of the buffer that all queues share.
    pub buffer: u64,
    /// Marking, of each class; `None` marks nothing.
    pub ecn: [Option<Ecn>; CLASSES],
    /// Pausing, of each class; `None` drops what does not fit.
    pub pfc: [Option<Pfc>; CLASSES],
    /// The largest share of the free buffer one queue may take (dynamic threshold alpha).
    pub alpha: f64,
}

/// RED-like marking of ECN-capable packets by the length of the queue they join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ecn {
    /// Bytes up to which nothing is marked.
    pub kmin: u64,
    /// Bytes from which everything is marked.
    pub kmax: u64,
    /// Probability at `kmax`, 0 to 1.
    pub pmax: f64,
}

/// Priority flow control (IEEE 802.1Qbb) by the bytes of an ingress port that are in the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pfc {
    /// Bytes from which the upstream port is paused.
    pub xoff: u64,
    /// Bytes at which it is resumed.
    pub xon: u64,
    /// Bytes kept free for each ingress port, for what is still under way when it is paused.
    pub headroom: u64,
}

/// A host: a device, and a port that obeys PFC.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its device; addresses and QPN ranges are given by the simulation.
    pub device: Config,
    /// Path MTU of every QP.
    pub mtu: Mtu,
    /// ACK timeout code, 0 to 31.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs, 0 to 7.
    pub retry_cnt: u8,
    /// Traffic class of each DSCP.
    pub classes: [u8; 64],
}

/// A QP pair and what goes over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// A name for reports.
    pub group: String,
    /// The host that sends.
    pub from: usize,
    /// The host that receives; not the same.
    pub to: usize,
    /// When its first message is posted.
    pub start: u64,
    /// Bytes of each message, 1 to 2^31.
    pub message: u64,
    /// How many messages.
    pub messages: u64,
    /// There are more messages than can be sent: that it does not finish says nothing.
    pub is_endless: bool,
    /// How many of them are posted at a time: the next when the oldest completes.
    pub depth: u32,
    /// Nanoseconds between a completion and the post that follows from it.
    pub gap: u64,
    /// By which verb they go.
    pub verb: Verb,
    /// DSCP of its packets, 0 to 63.
    pub dscp: u8,
    /// Flows with the same number, if any, share a QP pair, one after another (`from`, `to`, `dscp`
    /// are the same).
    pub qp: Option<usize>,
}

/// How a flow's bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// RDMA WRITE.
    Write,
    /// SEND into receives that are always there.
    Send,
    /// RDMA READ: the bytes travel from `to` to `from`.
    Read,
    /// SEND, and the receiver answers each message by a SEND of so many bytes; it completes when
    /// the answer has arrived.
    Request(u64),
}

/// A fault rule and where it strikes.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The link; `None` is every one.
    pub link: Option<usize>,
    /// What happens to frames on it.
    pub rule: Rule,
}
