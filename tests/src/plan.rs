//! What one seed of the simulation does, decided before anything runs: nodes, link, faults, queue
//! pairs and every work request.
//!
//! # Why the outcome is exact
//!
//! Each direction of a connection is a *flow* with memory of its own on both sides, so only the
//! order within one send queue matters (IBA 10.8.3). That order is total but for one hole: a READ
//! may return what a later WRITE or atomic has stored, because its responses may be read again.
//! Where a flow changes bytes that an unfinished READ asked for, the change is fenced.
//!
//! # Why retries cannot run out
//!
//! Faults come in episodes shorter than the ACK timeout T, with quiet times of 3 T between. Within
//! an episode the timer of a QP runs out once at most. A timeout and a sequence NAK (or an answer
//! found missing) count once each for the same loss, since the transport takes further evidence
//! of a loss for news only after a timeout. So without progress there are at most: a NAK, a
//! timeout, a NAK, [`REPLAYED_ANSWERS`] old NAKs, and in the quiet time a timeout and a NAK. These
//! are seven, the configured `retry_cnt`. In the quiet time every receiver posts what it owes, and
//! an RNR wait is shorter than T / 2, so all flows progress, which reloads the counter. A
//! RETRY_EXC completion is therefore a fault of the transport. RNR retries are infinite.

use ferroce::frame::fault::{Action as Fault, Class, Corruption, Rule, Which};
use ferroce::frame::wire::Link;
use ferroce::rand::Rng;
use ferroce::world::{Addressing, ConnectOptions, WorldConfig};
use ferroce_stack::congestion::{self, Algorithm, dcqcn, swift, timely};
use ferroce_stack::psn::Psn;
use ferroce_stack::time::ack_timeout_ns;
use ferroce_stack::verbs::{Access, Mtu, MwType, QpCap};
use ferroce_stack::{Config, LossRecovery, MAX_MESSAGE};

use crate::flow::{Builder, FlowPlan};

/// Old answers that arrive again in one episode, at most.
pub const REPLAYED_ANSWERS: u32 = 2;
/// Completions a CQ takes that never overruns.
const CQE: usize = 4096;
/// Bytes in front of the payload of a received datagram.
pub const GRH_LEN: usize = 40;

/// Service of a pair of QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// XRC: requests in one direction only.
    Xrc,
}

impl Service {
    /// Whether every message arrives, once and in order.
    pub fn is_reliable(self) -> bool {
        matches!(self, Service::Rc | Service::Xrc)
    }
}

/// Two QPs that talk to each other.
#[derive(Clone, Debug)]
pub struct PairPlan {
    /// Service.
    pub service: Service,
    /// Their nodes.
    pub nodes: [usize; 2],
    /// Attributes.
    pub options: ConnectOptions,
    /// Each end completes at its node's common CQ.
    pub shared_cq: bool,
    /// Each end has a protection domain to itself, and cannot reach its node's shared counter.
    pub own_pd: bool,
    /// Each end receives from its node's SRQ.
    pub srq: bool,
    /// The first end lends its memory through a window of this type.
    pub window: Option<MwType>,
}

/// Part of a slab of memory: offset and length.
pub type Piece = (usize, usize);

/// A receive queue and the buffers that will be posted to it.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// Its node.
    pub node: usize,
    /// Whom it serves.
    pub queue: PoolQueue,
    /// Receives posted at a time.
    pub depth: usize,
    /// Scatter list of each receive, in the pool's slab.
    pub buffers: Vec<Vec<Piece>>,
    /// Bytes of the slab.
    pub slab_len: usize,
    /// Posts may come late, and messages find no receive.
    pub late: bool,
}

/// Which receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolQueue {
    /// Of the QP at this end of this pair.
    Own {
        /// The pair.
        pair: usize,
        /// The end.
        side: usize,
    },
    /// The basic SRQ of the node.
    Shared,
    /// One of the two XRC SRQs of a pair's target.
    Xrc {
        /// The pair.
        pair: usize,
        /// Which.
        index: usize,
    },
}

/// Faults of an episode.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Rules in force during an episode.
    pub rules: Vec<Rule>,
    /// Old frames are sent again.
    pub replays: bool,
    /// Nanoseconds of an episode and of the quiet time after it.
    pub episode_ns: u64,
    /// Quiet time.
    pub quiet_ns: u64,
    /// Episodes, unless all is done before.
    pub episodes: u32,
}

impl FaultPlan {
    fn has(&self, matches: impl Fn(&Fault) -> bool) -> bool {
        self.rules.iter().any(|rule| matches(&rule.action))
    }

    /// Frames may be damaged.
    pub fn corrupts(&self) -> bool {
        self.has(|fault| matches!(fault, Fault::Corrupt { .. }))
    }

    /// Frames may arrive more than once, or in another order.
    pub fn shuffles(&self) -> bool {
        self.replays || self.has(|fault| matches!(fault, Fault::Duplicate | Fault::Reorder { .. }))
    }

    /// Nothing goes wrong on the link.
    pub fn is_clean(&self) -> bool {
        self.rules.is_empty() && !self.replays
    }
}

/// All that a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Nodes and link, without faults.
    pub world: WorldConfig,
    /// Completions of each node's common CQ.
    pub shared_cqe: usize,
    /// QPs.
    pub pairs: Vec<PairPlan>,
    /// Their directions: of each pair those from its first end, then those from its second.
    pub flows: Vec<FlowPlan>,
    /// Receive queues.
    pub pools: Vec<PoolPlan>,
    /// Faults.
    pub faults: FaultPlan,
}

impl Plan {
    /// The plan of `seed`.
    pub fn new(seed: u64) -> Plan {
        Plan::with(seed, |_, _| CQE)
    }

    /// The same plan, with selective repeat on the first `nodes` nodes.
    pub fn with_selective_repeat(mut self, nodes: usize) -> Plan {
        let loss_recovery = LossRecovery::SelectiveRepeat;
        self.world.devices = vec![Config { loss_recovery, ..self.world.device.clone() }; nodes];
        self
    }

    /// The plan of `seed` for an error storm: the first pair shares nothing with the others, and
    /// the CQs of those may be too small.
    pub fn for_storm(seed: u64) -> Plan {
        Plan::with(seed, |rng, pairs| {
            let [bystander, victims @ ..] = pairs.as_mut_slice() else { return CQE };
            // Wrong keys must not happen to be the bystander's.
            bystander.own_pd = true;
            (bystander.shared_cq, bystander.srq) = (false, false);
            for pair in victims {
                pair.options.cqe = pick(rng, &[8, 64, CQE, CQE]);
                pair.srq |= pair.service != Service::Xrc && rng.chance(0.3);
            }
            pick(rng, &[8, 64, CQE])
        })
    }

    /// The plan of `seed` with pairs adapted by `adapt`, which returns the size of the common CQs.
    fn with(seed: u64, adapt: impl Fn(&mut Rng, &mut Vec<PairPlan>) -> usize) -> Plan {
        let mut rng = Rng::new(seed);
        let mut world = plan_world(&mut rng, seed);
        world.device.congestion = plan_congestion(seed);
        let timeout = 8 + rng.below(2) as u8;
        let count = 1 + rng.below(5) as usize;
        let mut pairs = Vec::new();
        pairs.resize_with(count, || plan_pair(&mut rng, world.nodes, timeout));
        let mut faults = plan_faults(&mut rng, timeout);
        if world.device.congestion.is_some() {
            faults.rules.push(some(Fault::MarkCe, 0.2));
        }
        let shared_cqe = adapt(&mut rng, &mut pairs);
        let mut builder = Builder::new(rng, pairs, world.nodes);
        builder.plan_flows();
        let (pairs, flows, pools) = builder.finish();
        Plan { seed, world, shared_cqe, pairs, flows, pools, faults }
    }
}

/// One of `choices`.
pub fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

fn plan_world(rng: &mut Rng, seed: u64) -> WorldConfig {
    let device = Config {
        window: pick(rng, &[3, 16, 64, 256]),
        ack_every: pick(rng, &[1, 4, 64]),
        burst: pick(rng, &[1, 2, 16]),
        ..Config::default()
    };
    let rate_bps = pick(rng, &[None, None, Some(10_000_000_000), Some(100_000_000_000)]);
    WorldConfig {
        nodes: 2 + rng.below(2) as usize,
        seed,
        device,
        link: Link { delay_ns: 500 + rng.below(5000), rate_bps, ..Link::default() },
        addressing: pick(rng, &[Addressing::Ipv4, Addressing::Ipv6, Addressing::RoceV1]),
        vlan: rng.chance(0.3).then(|| 1 + rng.below(4094) as u16),
        ..WorldConfig::default()
    }
}

fn plan_pair(rng: &mut Rng, nodes: usize, timeout: u8) -> PairPlan {
    let service =
        pick(rng, &[Service::Rc, Service::Rc, Service::Rc, Service::Uc, Service::Ud, Service::Xrc]);
    let first = rng.below(nodes as u64) as usize;
    // At times both are one.
    let distance = if rng.chance(0.1) { 0 } else { 1 + rng.below(nodes as u64 - 1) as usize };
    let second = (first + distance) % nodes;
    let window = (service == Service::Rc && rng.chance(0.5))
        .then(|| pick(rng, &[MwType::Type1, MwType::Type2, MwType::Type2]));
    PairPlan {
        service,
        nodes: [first, second],
        options: plan_options(rng, timeout),
        shared_cq: rng.chance(0.3),
        own_pd: rng.chance(0.2),
        srq: service == Service::Rc && rng.chance(0.3),
        window,
    }
}

fn plan_options(rng: &mut Rng, timeout: u8) -> ConnectOptions {
    let max_rd_atomic = pick(rng, &[1, 2, 4, 16]);
    let psn = |rng: &mut Rng| match rng.chance(0.5) {
        true => Psn::new(0xff_ffff - rng.below(60) as u32),
        false => Psn::new(rng.next_u64() as u32),
    };
    ConnectOptions {
        mtu: pick(rng, &Mtu::ALL),
        timeout,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1 + rng.below(9) as u8,
        max_rd_atomic,
        max_dest_rd_atomic: max_rd_atomic + rng.below(3) as u8,
        psns: [psn(rng), psn(rng)],
        access: Access::REMOTE | Access::LOCAL_WRITE,
        cap: QpCap {
            max_send_wr: 2 + rng.below(30) as u32,
            max_recv_wr: 1 + rng.below(20) as u32,
            max_send_sge: 1 + rng.below(6) as u32,
            max_recv_sge: 1 + rng.below(6) as u32,
            max_inline_data: pick(rng, &[0, 64, 256]),
        },
        cqe: CQE,
        sq_sig_all: rng.chance(0.2),
        qkey: 0x0102_0304,
    }
}

fn plan_faults(rng: &mut Rng, timeout: u8) -> FaultPlan {
    let timeout_ns = ack_timeout_ns(timeout).expect("the timer is on");
    let mut faults = FaultPlan {
        episode_ns: timeout_ns * 9 / 10,
        quiet_ns: timeout_ns * 3,
        episodes: 12,
        ..FaultPlan::default()
    };
    if rng.chance(0.15) {
        return faults;
    }
    let mut add = |rng: &mut Rng, action, probability: f64| {
        if rng.chance(0.6) {
            faults.rules.push(some(action, probability));
        }
    };
    let loss = pick(rng, &[0.005, 0.02, 0.1]);
    add(rng, Fault::Drop, loss);
    add(rng, Fault::Duplicate, 0.05);
    let jitter_ns = pick(rng, &[2_000, 20_000, 100_000]);
    let reordered = pick(rng, &[0.02, 0.1, 1.0]);
    add(rng, Fault::Reorder { nanos: jitter_ns }, reordered);
    add(rng, Fault::Corrupt(Corruption::ANY_BIT), 0.03);
    faults.replays = rng.chance(0.4);
    faults
}

/// Strikes every frame with this probability.
fn some(action: Fault, probability: f64) -> Rule {
    let which = Which::Chance(probability);
    Rule { action, which, class: Class::default(), conditions: vec![] }
}

/// Every eighth seed has one algorithm, every eighth another. At their lowest rate an answer still
/// comes well within the ACK timeout.
fn plan_congestion(seed: u64) -> Option<congestion::Config> {
    const LINE: u64 = 10_000_000_000;
    let algorithm = match seed % 8 {
        3 => Algorithm::Dcqcn(dcqcn::Params { rpg_min_rate: 1_000, ..dcqcn::Params::paper() }),
        5 => Algorithm::Timely(timely::Params { min_rate: 1_000, ..timely::Params::paper() }),
        7 => Algorithm::Swift(swift::Params { min_rate: 1_000, ..swift::Params::default() }),
        _ => return None,
    };
    Some(congestion::Config::new(algorithm, LINE))
}

/// Message length: mostly a few packets or less, at times many.
pub fn message_len(rng: &mut Rng, mtu: usize, longest: usize) -> usize {
    let len = match rng.below(20) {
        0 => 0,
        1..=8 => 1 + rng.below(64),
        // Around the packet boundaries.
        9..=12 => (1 + rng.below(4)) * mtu as u64 + rng.below(3) - 1,
        13..=18 => 1 + rng.below(4 * mtu as u64),
        _ => 1 + rng.below(40_000),
    };
    (len.min(MAX_MESSAGE) as usize).min(longest)
}

/// Splits `len` bytes of a slab that ends at `slab_len` into up to `max_sge` pieces with gaps
/// between them, some of them empty.
pub fn split(rng: &mut Rng, slab_len: &mut usize, len: usize, max_sge: u32) -> Vec<Piece> {
    let count = 1 + rng.below(u64::from(max_sge)) as usize;
    if len == 0 && rng.chance(0.5) {
        return Vec::new();
    }
    let mut pieces = Vec::with_capacity(count);
    let mut left = len;
    for index in 0..count {
        let piece = match index + 1 == count {
            true => left,
            false if rng.chance(0.2) => 0,
            false => rng.below(left as u64 + 1) as usize,
        };
        *slab_len += rng.below(9) as usize;
        pieces.push((*slab_len, piece));
        *slab_len += piece;
        left -= piece;
    }
    pieces
}
