//! The work requests of each flow: a random mix, ordered so that its outcome is exact.

use std::ops::Range;

use ferroce::rand::Rng;
use ferroce_stack::verbs::{FlushLevel, MwType, SendFlags};

use crate::plan::{
    GRH_LEN, PairPlan, Piece, PoolPlan, PoolQueue, Service, message_len, pick, split,
};

/// The longest message that is received from an SRQ.
const SRQ_MESSAGE: usize = 4096;
/// The longest datagram.
const DATAGRAM: usize = 4096;
/// Atomics hit one of so many words at the start of the target.
const WORDS: u64 = 32;

/// What a work request does; addresses are offsets in the target of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// SEND.
    Send(Option<[u8; 4]>),
    /// SEND that invalidates the window bound by this op of the peer.
    SendInv {
        /// Index of the bind in the peer's flow.
        bind: usize,
    },
    /// RDMA WRITE.
    Write(Option<[u8; 4]>),
    /// RDMA READ.
    Read,
    /// Compare and swap; hits or misses.
    CompareSwap {
        /// The word is as expected.
        hit: bool,
    },
    /// Fetch and add.
    FetchAdd,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// Fetch and add on the counter all flows to a node share.
    Count,
    /// FLUSH of so many bytes.
    Flush(FlushLevel, u32),
    /// Binds the window to so many bytes of the peer's target.
    Bind {
        /// Length.
        len: usize,
        /// Its addresses count from 0.
        zero_based: bool,
    },
    /// Makes the window unusable: local invalidation, or for type 1 an empty bind.
    Unbind,
}

impl Action {
    /// Takes a receive at the peer.
    pub fn takes_recv(self) -> bool {
        matches!(self, Action::Send(_) | Action::SendInv { .. } | Action::Write(Some(_)))
    }

    /// Immediate data.
    pub fn imm(self) -> Option<[u8; 4]> {
        match self {
            Action::Send(imm) | Action::Write(imm) => imm,
            _ => None,
        }
    }

    /// Its local bytes leave.
    pub fn is_message(self) -> bool {
        matches!(self, Action::Send(_) | Action::SendInv { .. } | Action::Write(_))
    }
}

/// A work request.
#[derive(Clone, Debug)]
pub struct Op {
    /// What it does.
    pub action: Action,
    /// Local bytes.
    pub len: usize,
    /// Where in the target.
    pub remote: usize,
    /// Operand of atomics.
    pub value: u64,
    /// Its local bytes, in the flow's slab.
    pub pieces: Vec<Piece>,
    /// Flags.
    pub flags: SendFlags,
    /// Posted inline.
    pub inline: bool,
    /// Sends what this READ of the same flow has brought.
    pub echo: Option<usize>,
    /// Reaches the target through the window this op of the peer's flow binds.
    pub window: Option<usize>,
    /// Posted once this op of another flow is complete: flow, op.
    pub after: Option<(usize, usize)>,
    /// XRC: which SRQ.
    pub srq: usize,
}

/// One direction of a pair.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// The pair.
    pub pair: usize,
    /// The end whose send queue it is.
    pub side: usize,
    /// The flow in the other direction.
    pub reverse: Option<usize>,
    /// In order.
    pub ops: Vec<Op>,
    /// Bytes of local memory.
    pub slab_len: usize,
    /// Bytes of the peer's memory.
    pub target_len: usize,
    /// Receive queues at the peer.
    pub pools: Vec<usize>,
}

/// Makes flows and receive queues for pairs.
pub struct Builder {
    rng: Rng,
    pairs: Vec<PairPlan>,
    flows: Vec<FlowPlan>,
    pools: Vec<PoolPlan>,
    /// The basic SRQ of each node, if any pair uses it.
    shared: Vec<Option<usize>>,
}

/// A flow in the making.
struct Draft<'a> {
    pair: &'a PairPlan,
    flow: FlowPlan,
    /// What unfinished READs asked for.
    reading: Vec<Range<usize>>,
    unsignaled: u32,
}

impl Builder {
    /// Flows between `pairs`, by `rng`.
    pub fn new(rng: Rng, pairs: Vec<PairPlan>, nodes: usize) -> Builder {
        let shared = vec![None; nodes];
        Builder { rng, pairs, flows: Vec::new(), pools: Vec::new(), shared }
    }

    /// What was made.
    pub fn finish(self) -> (Vec<PairPlan>, Vec<FlowPlan>, Vec<PoolPlan>) {
        (self.pairs, self.flows, self.pools)
    }

    /// Makes the flows of every pair, and their receives.
    pub fn plan_flows(&mut self) {
        let pairs = self.pairs.clone();
        for (index, pair) in pairs.iter().enumerate() {
            let first = self.flows.len();
            if pair.service == Service::Xrc {
                let draft = self.random_flow(index, pair, 0, None);
                self.flows.push(draft.end());
            } else {
                let mut forth = self.random_flow(index, pair, 0, Some(first + 1));
                let mut back = self.random_flow(index, pair, 1, Some(first));
                if let Some(kind) = pair.window {
                    self.plan_windows(&mut forth, &mut back, first, kind);
                }
                self.flows.extend([forth.end(), back.end()]);
            }
            for flow in first..self.flows.len() {
                self.plan_receives(flow, pair);
            }
        }
    }

    fn random_flow<'a>(
        &mut self,
        index: usize,
        pair: &'a PairPlan,
        side: usize,
        reverse: Option<usize>,
    ) -> Draft<'a> {
        let rng = &mut self.rng;
        let target_len = match pair.service {
            Service::Rc | Service::Xrc => pick(rng, &[4096, 16_384, 65_536]),
            Service::Uc | Service::Ud => 0,
        };
        let flow = FlowPlan {
            pair: index,
            side,
            reverse,
            ops: Vec::new(),
            slab_len: 0,
            target_len,
            pools: Vec::new(),
        };
        let mut draft = Draft { pair, flow, reading: Vec::new(), unsignaled: 0 };
        let count = match side {
            0 => 4 + rng.below(60),
            _ => rng.below(60),
        };
        for _ in 0..count {
            draft.push_random(rng);
        }
        draft
    }

    /// Binds, uses and invalidates a window of the first end a few times.
    fn plan_windows(&mut self, owner: &mut Draft, user: &mut Draft, first: usize, kind: MwType) {
        let rng = &mut self.rng;
        let mut invalidated_by = None;
        for _ in 0..1 + rng.below(3) {
            let len = 8 + rng.below(2000) as usize;
            let start = rng.below((user.flow.target_len - len) as u64) as usize;
            let zero_based = kind == MwType::Type2 && rng.chance(0.3);
            let bind = owner.flow.ops.len();
            owner.push_local(start, Action::Bind { len, zero_based }, invalidated_by);
            let use_count = 1 + rng.below(4);
            for use_index in 0..use_count {
                let after = (use_index == 0).then_some((first, bind));
                user.push_window_use(rng, start..start + len, bind, after);
                if rng.chance(0.3) {
                    user.push_random(rng);
                }
            }
            if kind == MwType::Type2 && rng.chance(0.5) {
                user.push_send_inv(rng, bind);
                invalidated_by = Some((first + 1, user.flow.ops.len() - 1));
            } else {
                let last = user.flow.ops.len() - 1;
                user.flow.ops[last].flags = user.flow.ops[last].flags | SendFlags::SIGNALED;
                if rng.chance(0.5) {
                    owner.push_random(rng);
                }
                owner.push_local(start, Action::Unbind, Some((first + 1, last)));
                invalidated_by = None;
            }
        }
        for _ in 0..rng.below(5) {
            owner.push_random(rng);
            user.push_random(rng);
        }
    }

    /// The receives a flow needs: exactly as many as its messages take where they all arrive.
    fn plan_receives(&mut self, flow: usize, pair: &PairPlan) {
        let plan = &self.flows[flow];
        let side = 1 - plan.side;
        let node = pair.nodes[side];
        let index = plan.pair;
        let pools = match pair.service {
            Service::Xrc => (0..2)
                .map(|srq| self.new_pool(node, PoolQueue::Xrc { pair: index, index: srq }, 16))
                .collect(),
            _ if pair.srq => vec![self.shared_pool(node)],
            _ => {
                let depth = pair.options.cap.max_recv_wr as usize;
                vec![self.new_pool(node, PoolQueue::Own { pair: index, side }, depth)]
            }
        };
        self.flows[flow].pools.clone_from(&pools);
        let plan = &self.flows[flow];
        let taking: Vec<(usize, usize)> = plan
            .ops
            .iter()
            .filter(|op| op.action.takes_recv())
            .map(|op| (pools[op.srq], if op.action.is_write() { 0 } else { op.len }))
            .collect();
        let longest = taking.iter().map(|&(_, len)| len).max().unwrap_or(0);
        let max_sge = pair.options.cap.max_recv_sge;
        for &(pool, len) in &taking {
            let len = match pair.service {
                _ if pair.srq => GRH_LEN + SRQ_MESSAGE,
                Service::Rc => len + self.rng.below(20) as usize,
                Service::Xrc => longest,
                Service::Uc => longest,
                Service::Ud => GRH_LEN + DATAGRAM,
            };
            let max_sge = if pair.srq { 3 } else { max_sge };
            self.add_buffer(pool, len, max_sge);
        }
        // Messages that are lost half way, or arrive twice, take more of them.
        if !pair.service.is_reliable() && !taking.is_empty() {
            let buffers = self.pools[pools[0]].buffers.clone();
            for buffer in buffers.iter().take(5) {
                let len = buffer.iter().map(|piece| piece.1).sum();
                self.add_buffer(pools[0], len, max_sge);
            }
        }
    }

    fn add_buffer(&mut self, pool: usize, len: usize, max_sge: u32) {
        let pool = &mut self.pools[pool];
        let pieces = split(&mut self.rng, &mut pool.slab_len, len, max_sge);
        pool.buffers.push(pieces);
    }

    fn new_pool(&mut self, node: usize, queue: PoolQueue, max_depth: usize) -> usize {
        let depth = 1 + self.rng.below(max_depth as u64) as usize;
        let late = self.rng.chance(0.4);
        let buffers = Vec::new();
        self.pools.push(PoolPlan { node, queue, depth, buffers, slab_len: 0, late });
        self.pools.len() - 1
    }

    fn shared_pool(&mut self, node: usize) -> usize {
        if let Some(pool) = self.shared[node] {
            return pool;
        }
        let pool = self.new_pool(node, PoolQueue::Shared, 16);
        self.shared[node] = Some(pool);
        pool
    }
}

impl Action {
    fn is_write(self) -> bool {
        matches!(self, Action::Write(_))
    }
}

impl Draft<'_> {
    fn end(mut self) -> FlowPlan {
        if let Some(last) = self.flow.ops.last_mut() {
            last.flags = last.flags | SendFlags::SIGNALED;
        }
        self.flow
    }

    fn longest_send(&self) -> usize {
        match self.pair.service {
            Service::Ud => DATAGRAM,
            Service::Rc if self.pair.srq => SRQ_MESSAGE,
            _ => usize::MAX,
        }
    }

    /// Appends any work request the service has.
    fn push_random(&mut self, rng: &mut Rng) {
        let imm = rng.next_u64().to_be_bytes();
        let imm = rng.chance(0.4).then_some([imm[0], imm[1], imm[2], imm[3]]);
        let roll = match self.pair.service {
            Service::Ud => 0,
            Service::Uc => rng.below(60),
            _ => rng.below(100),
        };
        match roll {
            0..30 => self.push_message(rng, Action::Send(imm)),
            30..60 => self.push_message(rng, Action::Write(imm)),
            60..75 => self.push_read(rng),
            75..80 => {
                let hit = rng.chance(0.6);
                self.push_atomic(rng, Action::CompareSwap { hit });
            }
            80..85 => self.push_atomic(rng, Action::FetchAdd),
            85..89 => self.push_atomic(rng, Action::AtomicWrite),
            89..93 if !self.pair.own_pd => self.push_atomic(rng, Action::Count),
            89..93 => self.push_atomic(rng, Action::FetchAdd),
            93..97 => self.push_flush(rng),
            _ => self.push_echo(rng),
        }
    }

    fn push_message(&mut self, rng: &mut Rng, action: Action) {
        let longest = match (action, self.pair.service) {
            (Action::Write(_), Service::Rc | Service::Xrc) => self.flow.target_len,
            (Action::Write(_), _) => usize::MAX,
            _ => self.longest_send(),
        };
        let len = message_len(rng, self.pair.options.mtu.bytes(), longest);
        let remote = match (action, self.pair.service) {
            (Action::Write(_), Service::Uc) => self.new_slot(len),
            (Action::Write(_), _) => rng.below((self.flow.target_len - len) as u64 + 1) as usize,
            _ => 0,
        };
        let op = self.op(rng, action, len, remote);
        self.push(op);
    }

    /// UC: each WRITE has a place of its own, so that what a lost one leaves is known.
    fn new_slot(&mut self, len: usize) -> usize {
        let slot = self.flow.target_len;
        self.flow.target_len += len + 8;
        slot
    }

    fn push_read(&mut self, rng: &mut Rng) {
        let len = message_len(rng, self.pair.options.mtu.bytes(), self.flow.target_len);
        let remote = rng.below((self.flow.target_len - len) as u64 + 1) as usize;
        let op = self.op(rng, Action::Read, len, remote);
        self.push(op);
    }

    fn push_atomic(&mut self, rng: &mut Rng, action: Action) {
        let len = if action == Action::AtomicWrite { 0 } else { 8 };
        let remote = rng.below(WORDS) as usize * 8;
        let op = self.op(rng, action, len, remote);
        self.push(op);
    }

    fn push_flush(&mut self, rng: &mut Rng) {
        let len = rng.below(self.flow.target_len as u64 + 1) as usize;
        let remote = rng.below((self.flow.target_len - len) as u64 + 1) as usize;
        let level = pick(rng, &[FlushLevel::Range, FlushLevel::Region]);
        let op = self.op(rng, Action::Flush(level, len as u32), 0, remote);
        self.push(op);
    }

    /// A SEND of what a READ before it brings: right only behind a fence.
    fn push_echo(&mut self, rng: &mut Rng) {
        let longest = self.longest_send();
        let fits = |op: &Op| op.action == Action::Read && op.len <= longest;
        let Some(read) = self.flow.ops.iter().rposition(fits) else {
            return self.push_read(rng);
        };
        let (len, pieces) = (self.flow.ops[read].len, self.flow.ops[read].pieces.clone());
        let mut op = self.op(rng, Action::Send(None), 0, 0);
        op.flags = op.flags | SendFlags::FENCE;
        self.push(Op { len, pieces, echo: Some(read), inline: false, ..op });
    }

    /// A bind or unbind of the owner.
    fn push_local(&mut self, remote: usize, action: Action, after: Option<(usize, usize)>) {
        let op = Op {
            action,
            len: 0,
            remote,
            value: 0,
            pieces: Vec::new(),
            flags: SendFlags::SIGNALED,
            inline: false,
            echo: None,
            window: None,
            after,
            srq: 0,
        };
        self.push(op);
    }

    fn push_window_use(
        &mut self,
        rng: &mut Rng,
        range: Range<usize>,
        bind: usize,
        after: Option<(usize, usize)>,
    ) {
        let action = if rng.chance(0.5) { Action::Read } else { Action::Write(None) };
        let len = message_len(rng, self.pair.options.mtu.bytes(), range.len());
        let remote = range.start + rng.below((range.len() - len) as u64 + 1) as usize;
        let op = self.op(rng, action, len, remote);
        self.push(Op { window: Some(bind), after, ..op });
    }

    /// READs through the window must be done before: hence the fence.
    fn push_send_inv(&mut self, rng: &mut Rng, bind: usize) {
        let len = message_len(rng, self.pair.options.mtu.bytes(), self.longest_send());
        let mut op = self.op(rng, Action::SendInv { bind }, len, 0);
        op.flags = op.flags | SendFlags::FENCE | SendFlags::SIGNALED;
        self.push(op);
    }

    fn op(&mut self, rng: &mut Rng, action: Action, len: usize, remote: usize) -> Op {
        let cap = &self.pair.options.cap;
        let mut flags = SendFlags::NONE;
        if rng.chance(0.6) {
            flags = flags | SendFlags::SIGNALED;
        }
        if self.pair.service.is_reliable() && rng.chance(0.1) {
            flags = flags | SendFlags::FENCE;
        }
        if rng.chance(0.2) && action.takes_recv() {
            flags = flags | SendFlags::SOLICITED;
        }
        let small = len <= cap.max_inline_data as usize;
        let srq = match self.pair.service {
            Service::Xrc => rng.below(2) as usize,
            _ => 0,
        };
        Op {
            action,
            len,
            remote,
            value: rng.next_u64(),
            pieces: split(rng, &mut self.flow.slab_len, len, cap.max_send_sge),
            flags,
            inline: small && action.is_message() && rng.chance(0.4),
            echo: None,
            window: None,
            after: None,
            srq,
        }
    }

    /// Appends `op`, fenced where it changes what an unfinished READ asks for, and signaled where
    /// the queue could not be reclaimed otherwise.
    fn push(&mut self, mut op: Op) {
        let changed = match op.action {
            Action::Write(_) => op.remote..op.remote + op.len,
            Action::CompareSwap { .. } | Action::FetchAdd | Action::AtomicWrite => {
                op.remote..op.remote + 8
            }
            _ => 0..0,
        };
        let overlaps = |read: &Range<usize>| changed.start < read.end && read.start < changed.end;
        if self.reading.iter().any(overlaps) {
            op.flags = op.flags | SendFlags::FENCE;
        }
        if op.flags.has(SendFlags::FENCE) {
            self.reading.clear();
        }
        if op.action == Action::Read {
            self.reading.push(op.remote..op.remote + op.len);
        }
        self.unsignaled += 1;
        if self.unsignaled >= self.pair.options.cap.max_send_wr {
            op.flags = op.flags | SendFlags::SIGNALED;
        }
        if op.flags.has(SendFlags::SIGNALED) {
            self.unsignaled = 0;
        }
        self.flow.ops.push(op);
    }
}
