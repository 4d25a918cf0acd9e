//! What a simulation shows.

/// Everything that was observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// When it ended, in nanoseconds.
    pub ended: u64,
    /// One for each flow of the plan, in its order.
    pub flows: Vec<FlowRecord>,
    /// One for each end of each link: `2 * link + end`.
    pub ports: Vec<PortRecord>,
    /// Samples, by time.
    pub samples: Vec<Sample>,
    /// Counters of each host's device that are not 0, by name.
    pub counters: Vec<Vec<(&'static str, u64)>>,
    /// Frames that were handed to a link: each hop counts.
    pub hops: u64,
    /// Frames that devices have handled.
    pub delivered: u64,
    /// Frames of the ports that are captured, by time.
    pub captures: Vec<Captured>,
}

/// What became of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRecord {
    /// When its last message completed, in nanoseconds; `None` if it had not at the end.
    pub finished: Option<u64>,
    /// Why it failed, by `ibv_wc_status_str`; `None` if it did not.
    pub failed: Option<String>,
    /// When it failed, in nanoseconds.
    pub failed_at: Option<u64>,
    /// Bytes of the messages that completed.
    pub bytes: u64,
    /// Bytes of payload that arrived for the first time by the end.
    pub delivered: u64,
    /// Nanoseconds from post to completion, of each message in order.
    pub latencies: Vec<u64>,
    /// Nanoseconds since the post of each message that had not completed at the end, or never will.
    pub under_way: Vec<u64>,
    /// Request packets its QP sent again.
    pub retransmitted: u64,
}

/// What passed one end of a link, outwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortRecord {
    /// Frames sent.
    pub frames: u64,
    /// Bytes sent, without preamble, FCS and gap.
    pub bytes: u64,
    /// Frames marked CE as they joined its queue.
    pub marked: u64,
    /// Frames dropped because the buffer was full.
    pub dropped: u64,
    /// Frames struck by a fault.
    pub struck: u64,
    /// Pauses it has asked the other end for, by class; a pause that lasts is asked for again.
    pub pauses_sent: [u64; 8],
    /// Pauses received, by class: it is this port that stands still.
    pub pauses: [u64; 8],
    /// Nanoseconds it stood paused, by class.
    pub paused: [u64; 8],
    /// The most bytes its queues held.
    pub max_queue: u64,
}

/// A moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When, in nanoseconds.
    pub at: u64,
    /// Bytes in the queues of each port, as numbered in [`Outcome::ports`].
    pub queues: Vec<u64>,
    /// The most bytes that were in them since the sample before.
    pub longest: Vec<u64>,
    /// Classes each port stands paused in, as bits.
    pub paused: Vec<u8>,
    /// Bytes of payload of each flow that have arrived so far.
    pub delivered: Vec<u64>,
    /// Rate its sender allows each flow, in bits per second; 0 if nothing limits it.
    pub rates: Vec<u64>,
}

/// A frame as a port that is captured sees it: before faults of the link strike what it sends,
/// after they have struck what it receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captured {
    /// The port, as numbered in [`Outcome::ports`].
    pub port: usize,
    /// It has come in; else it left.
    pub came_in: bool,
    /// When its last bit came, or its first left, in nanoseconds.
    pub at: u64,
    /// It, without FCS.
    pub frame: Vec<u8>,
}
