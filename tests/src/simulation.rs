//! Runs a plan: posts its work requests and receives over virtual time, with faults that come and
//! go, and asks the [`oracle`](crate::oracle) about everything that happens.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use ferroce::frame::pcap::Recorder;
use ferroce::frame::wire::{CapturePoint, SentFrame};
use ferroce::rand::Rng;
use ferroce_stack::verbs::{
    Access, MwBind, MwType, RecvWr, Remote, SendData, SendFlags, SendOp, SendWr, UdTarget,
};
use ferroce_stack::wire::{Headers, Kind};

use crate::bench::{Bench, Flow};
use crate::flow::{Action, FlowPlan, Op};
use crate::plan::{Plan, PoolQueue, REPLAYED_ANSWERS, Service};

/// Virtual time everything must be done in once the faults are over.
const LIMIT_NS: u64 = 1_000_000_000;
/// Frames that may be sent again.
const REMEMBERED: usize = 256;

/// Marks the work request identifiers of receives.
pub const RECV_BIT: u64 = 1 << 63;

/// What a run has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames sent.
    pub frames: u64,
    /// Hash of all of them, with their moments.
    pub hash: u64,
    /// The same without marks of loss recovery, and the ICRC, which covers them.
    pub content: u64,
    /// Work requests completed.
    pub ops: usize,
    /// Virtual time.
    pub nanos: u64,
    /// What the devices have counted together, by the counters' names.
    pub counters: BTreeMap<&'static str, u64>,
}

/// What a CQ was armed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arming {
    /// The next completion.
    Next,
    /// The next solicited one.
    Solicited,
}

/// A plan at work.
pub struct Simulation<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its objects.
    pub bench: Bench,
    /// Frames sent again so far.
    pub injected: u64,
    /// What each CQ is armed for.
    pub(crate) armed: Vec<Option<Arming>>,
    pub(crate) rng: Rng,
    recent: VecDeque<SentFrame>,
    outcome: Outcome,
    /// Longest pause between two posts of a flow.
    pause_ns: u64,
    /// Flows of the pairs before this one are run and judged here.
    pairs: usize,
}

/// Runs the plan of `seed`; records its frames if told where to.
///
/// # Errors
/// What went wrong, and when.
pub fn run(seed: u64, record: Option<&Path>) -> Result<Outcome, String> {
    run_plan(Plan::new(seed), record)
}

/// As [`run`], with selective repeat on all nodes.
///
/// # Errors
/// As [`run`].
pub fn run_selective(seed: u64, record: Option<&Path>) -> Result<Outcome, String> {
    let plan = Plan::new(seed);
    let nodes = plan.world.nodes;
    run_plan(plan.with_selective_repeat(nodes), record)
}

/// As [`run`], with selective repeat on the first node alone: every frame has to be the same but
/// for the mark, unless that node speaks with itself.
///
/// # Errors
/// As [`run`], or if it is not.
pub fn run_one_sided(seed: u64, record: Option<&Path>) -> Result<Outcome, String> {
    let plan = Plan::new(seed);
    let alone = plan.pairs.iter().all(|pair| pair.nodes != [0, 0]);
    let plan = plan.with_selective_repeat(1);
    let outcome = run_plan(plan, record)?;
    let plain = run(seed, None)?;
    let same = (outcome.content, &outcome.counters) == (plain.content, &plain.counters);
    if alone && !same {
        return Err("frames or counters differ from those of go-back-N".to_owned());
    }
    Ok(outcome)
}

fn run_plan(plan: Plan, record: Option<&Path>) -> Result<Outcome, String> {
    let mut simulation = Simulation::new(&plan, plan.pairs.len(), record)?;
    let result = simulation.run_all();
    simulation.end(result)
}

impl Simulation<'_> {
    /// A simulation of the first `pairs` pairs of a plan, with all objects of the plan.
    ///
    /// # Errors
    /// If a device refuses its part, or the recording cannot be created.
    pub fn new<'a>(
        plan: &'a Plan,
        pairs: usize,
        record: Option<&Path>,
    ) -> Result<Simulation<'a>, String> {
        let mut bench = Bench::new(plan).map_err(|error| format!("set-up refused: {error:?}"))?;
        if let Some(path) = record {
            let recorder = Recorder::create(path, plan.world.nodes);
            let recorder = recorder.map_err(|error| error.to_string())?;
            bench.world.wire().record(recorder, CapturePoint::Sent);
        }
        bench.world.wire().keep_log();
        let mut rng = Rng::new(plan.seed.rotate_left(32));
        let pause_ns = [0, 20_000, 200_000][rng.below(3) as usize];
        let armed = vec![None; bench.cqs.len()];
        Ok(Simulation {
            plan,
            bench,
            armed,
            injected: 0,
            rng,
            recent: VecDeque::new(),
            outcome: Outcome::default(),
            pause_ns,
            pairs,
        })
    }

    /// Completes the recording; the outcome, or what went wrong and when.
    pub(crate) fn end(mut self, result: Result<(), String>) -> Result<Outcome, String> {
        let at = self.bench.world.now().nanos();
        self.bench.world.wire().finish_recording().map_err(|error| error.to_string())?;
        result.map(|()| self.outcome).map_err(|message| format!("at {at} ns: {message}"))
    }

    /// Whether a flow is run here.
    pub(crate) fn has_flow(&self, index: usize) -> bool {
        self.plan.flows[index].pair < self.pairs
    }

    /// Whether a receive queue is served here.
    pub(crate) fn has_pool(&self, index: usize) -> bool {
        match self.plan.pools[index].queue {
            PoolQueue::Own { pair, .. } | PoolQueue::Xrc { pair, .. } => pair < self.pairs,
            PoolQueue::Shared => self.pairs == self.plan.pairs.len(),
        }
    }

    fn run_all(&mut self) -> Result<(), String> {
        let faults = self.plan.faults.clone();
        for _ in 0..faults.episodes {
            for rule in &faults.rules {
                self.bench.world.wire().faults_mut().add(rule.clone());
            }
            self.run_episode(faults.episode_ns)?;
            self.bench.world.wire().faults_mut().clear();
            self.run_quiet(faults.quiet_ns, false)?;
        }
        self.run_quiet(LIMIT_NS, true)?;
        if !self.is_finished() {
            return Err(self.describe_unfinished());
        }
        self.bench.world.run_until_idle(LIMIT_NS).map_err(|error| error.to_string())?;
        self.take_log();
        self.poll_all()?;
        self.sum_up();
        self.check_end()
    }

    /// Puts together what the run has come to.
    pub(crate) fn sum_up(&mut self) {
        self.outcome.nanos = self.bench.world.now().nanos();
        self.outcome.ops = self.bench.flows.iter().map(|flow| flow.retired).sum();
        for node in 0..self.bench.world.nodes() {
            let counters = self.bench.world.device_ref(node).counters();
            let discards = counters.discards().map(|(reason, count)| (reason.name(), count));
            for (name, count) in counters.iter().chain(discards) {
                *self.outcome.counters.entry(name).or_default() += count;
            }
        }
    }

    /// Lets everything go wrong that may, for `nanos`.
    fn run_episode(&mut self, nanos: u64) -> Result<(), String> {
        let end = self.bench.world.now() + nanos;
        let mut answers = REPLAYED_ANSWERS;
        while self.bench.world.now() < end && !self.is_finished() {
            self.poll_all()?;
            self.post_receives(false)?;
            self.post_sends()?;
            if self.plan.faults.replays && self.rng.chance(0.3) {
                self.replay(&mut answers);
            }
            let step = 1000 + self.rng.below(30_000);
            self.bench.world.run_for(step);
            self.take_log();
        }
        Ok(())
    }

    /// Lets what is posted finish, and `all` else too, for at most `nanos`.
    fn run_quiet(&mut self, nanos: u64, all: bool) -> Result<(), String> {
        let end = self.bench.world.now() + nanos;
        let is_over = |it: &Self| if all { it.is_finished() } else { it.is_drained() };
        while self.bench.world.now() < end && !is_over(self) {
            self.poll_all()?;
            self.post_receives(true)?;
            if all {
                self.post_sends()?;
            }
            let step = 10_000 + self.rng.below(40_000);
            self.bench.world.run_for(step);
            self.take_log();
        }
        Ok(())
    }

    /// A frame sent a while ago arrives again: rather a READ request, which is executed again, than
    /// others; of answers only so many, since old NAKs count.
    fn replay(&mut self, answers: &mut u32) {
        let rng = &mut self.rng;
        let recent = &self.recent;
        let mut draw = || recent.get(rng.below(recent.len() as u64) as usize);
        let kind = |frame: &SentFrame| kind_of(&frame.bytes);
        let some: Vec<&SentFrame> = (0..8).filter_map(|_| draw()).collect();
        let read = some.iter().find(|frame| kind(frame) == Some(Kind::ReadRequest));
        let Some(frame) = read.or(some.first()) else { return };
        if kind(frame).is_some_and(Kind::is_response) {
            if *answers == 0 {
                return;
            }
            *answers -= 1;
        }
        self.injected += 1;
        self.bench.world.inject(frame.from, &frame.bytes);
    }

    pub(crate) fn take_log(&mut self) {
        for frame in self.bench.world.wire().take_log() {
            self.outcome.frames += 1;
            self.outcome.hash = hash(self.outcome.hash, &frame);
            self.outcome.content = hash(self.outcome.content, &without_mark(&frame));
            if self.recent.len() == REMEMBERED {
                self.recent.pop_front();
            }
            self.recent.push_back(frame);
        }
    }

    /// Posts the receives that are due, or `all` there is room for.
    pub(crate) fn post_receives(&mut self, all: bool) -> Result<(), String> {
        let now = self.bench.world.now();
        for (index, plan) in self.plan.pools.iter().enumerate() {
            if !self.has_pool(index) {
                continue;
            }
            loop {
                let pool = &mut self.bench.pools[index];
                let full = pool.outstanding() >= plan.depth || pool.posted == plan.buffers.len();
                if full || !all && now < pool.next_post {
                    break;
                }
                if plan.late && self.rng.chance(0.5) {
                    pool.next_post = now + self.rng.below(300_000);
                }
                let wr_id = RECV_BIT | (index as u64) << 32 | pool.posted as u64;
                let sges = self.bench.areas[pool.area].sges(&plan.buffers[pool.posted]);
                let wr = RecvWr { wr_id, sges: &sges };
                let device = self.bench.world.device(plan.node);
                let posted = match pool.srq {
                    Some(srq) => device.post_srq_recv(srq, &wr),
                    None => device.post_recv(pool.qpn, &wr),
                };
                posted.map_err(|error| format!("receive {wr_id:#x} refused: {error:?}"))?;
                pool.posted += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn post_sends(&mut self) -> Result<(), String> {
        for index in 0..self.plan.flows.len() {
            while self.may_post(index) {
                self.post(index)?;
                if self.pause_ns > 0 && self.rng.chance(0.5) {
                    let pause = self.rng.below(self.pause_ns);
                    self.bench.flows[index].next_post = self.bench.world.now() + pause;
                }
            }
        }
        Ok(())
    }

    fn may_post(&self, index: usize) -> bool {
        let (plan, flow) = (&self.plan.flows[index], &self.bench.flows[index]);
        let depth = self.plan.pairs[plan.pair].options.cap.max_send_wr as usize;
        let Some(op) = plan.ops.get(flow.posted).filter(|_| self.has_flow(index)) else {
            return false;
        };
        let ready = op.after.is_none_or(|(other, op)| self.bench.flows[other].retired > op);
        ready && flow.posted - flow.retired < depth && self.bench.world.now() >= flow.next_post
    }

    /// Posts the next op of a flow and has the model do what it will do.
    fn post(&mut self, index: usize) -> Result<(), String> {
        let plan = self.plan;
        let at = self.bench.flows[index].posted;
        let op = &plan.flows[index].ops[at];
        let send_op = self.send_op(index, op);
        self.foresee(index, at, op);
        let flow = &mut self.bench.flows[index];
        flow.posted += 1;
        let slab = &mut self.bench.areas[flow.slab];
        let (sges, inline) = (slab.sges(&op.pieces), slab.gather(&op.pieces));
        let service = plan.pairs[plan.flows[index].pair].service;
        let qkey = plan.pairs[plan.flows[index].pair].options.qkey;
        let wr = SendWr {
            wr_id: (index as u64) << 32 | at as u64,
            op: send_op,
            data: if op.inline { SendData::Inline(&inline) } else { SendData::Sges(&sges) },
            flags: op.flags,
            ud: flow.ah.map(|ah| UdTarget { ah, qpn: flow.peer_qpn, qkey }),
            srqn: (service == Service::Xrc).then(|| self.xrc_srqn(index, op.srq)),
        };
        let flow = &self.bench.flows[index];
        let posted = self.bench.world.device(flow.node).post_send(flow.qpn, &wr);
        posted.map_err(|error| format!("flow {index} op {at} {op:?} refused: {error:?}"))?;
        if op.inline {
            self.bench.areas[flow.slab].scribble(&mut self.bench.world, &op.pieces);
        }
        Ok(())
    }

    fn xrc_srqn(&self, index: usize, srq: usize) -> u32 {
        let pool = self.plan.flows[index].pools[srq];
        self.bench.pools[pool].srq.map_or(0, |srq| srq.value())
    }

    fn send_op(&mut self, index: usize, op: &Op) -> SendOp {
        let remote = self.remote(index, op);
        match op.action {
            Action::Send(None) => SendOp::Send,
            Action::Send(Some(imm)) => SendOp::SendImm(imm),
            Action::SendInv { bind } => SendOp::SendInv(self.window(index, bind).0),
            Action::Write(None) => SendOp::Write(remote),
            Action::Write(Some(imm)) => SendOp::WriteImm(remote, imm),
            Action::Read => SendOp::Read(remote),
            Action::CompareSwap { hit } => {
                let word = self.bench.areas[self.bench.flows[index].target].word(op.remote);
                let compare = if hit { word } else { !word };
                SendOp::CompareSwap { remote, compare, swap: op.value }
            }
            Action::FetchAdd => SendOp::FetchAdd { remote, add: op.value },
            Action::AtomicWrite => SendOp::AtomicWrite(remote, op.value),
            Action::Count => {
                let counter = self.bench.counters[self.bench.flows[index].peer];
                let remote = self.bench.areas[counter].remote(0);
                SendOp::FetchAdd { remote, add: addend(op) }
            }
            Action::Flush(level, length) => {
                let placement = match op.value % 3 {
                    0 => Access::FLUSH_GLOBAL,
                    1 => Access::FLUSH_PERSISTENT,
                    _ => Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT,
                };
                SendOp::Flush { remote, length, level, placement }
            }
            Action::Bind { len, zero_based } => self.bind_op(index, op.remote, len, zero_based),
            Action::Unbind => self.unbind_op(index),
        }
    }

    /// Where an op reaches its target: through its region or a window.
    fn remote(&self, index: usize, op: &Op) -> Remote {
        let area = &self.bench.areas[self.bench.flows[index].target];
        let Some(bind) = op.window else { return area.remote(op.remote) };
        let (rkey, base) = self.window(index, bind);
        let owner = self.plan.flows[index].reverse.expect("windows need both directions");
        let start = self.plan.flows[owner].ops[bind].remote;
        Remote { addr: base + (op.remote - start) as u64, rkey }
    }

    /// Key and first address of the window bound by op `bind` of the opposite flow.
    fn window(&self, index: usize, bind: usize) -> (u32, u64) {
        let owner = self.plan.flows[index].reverse.expect("windows need both directions");
        self.bench.flows[owner].window_keys[bind].expect("the bind is complete")
    }

    fn bind_op(&mut self, index: usize, start: usize, len: usize, zero_based: bool) -> SendOp {
        let user = self.plan.flows[index].reverse.expect("windows need both directions");
        let area = &self.bench.areas[self.bench.flows[user].target];
        let flow = &mut self.bench.flows[index];
        flow.variant = flow.variant.wrapping_add(1);
        let mut access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        if zero_based {
            access = access | Access::ZERO_BASED;
        }
        let bind =
            MwBind { mr: area.keys.mr, addr: area.base + start as u64, length: len as u64, access };
        let mw = flow.mw.expect("the owner has a window");
        SendOp::BindMw { mw, rkey: u32::from(flow.variant), bind }
    }

    fn unbind_op(&mut self, index: usize) -> SendOp {
        let kind = self.plan.pairs[self.plan.flows[index].pair].window;
        if kind == Some(MwType::Type1) {
            return self.bind_op(index, 0, 0, false);
        }
        let flow = &self.bench.flows[index];
        let key = flow.window_keys.iter().rev().flatten().next();
        SendOp::LocalInv(key.expect("a bind is complete").0)
    }

    /// Notes what an op sends or will bring, and applies it to the model of its target.
    fn foresee(&mut self, index: usize, at: usize, op: &Op) {
        let service = self.plan.pairs[self.plan.flows[index].pair].service;
        let flow = &mut self.bench.flows[index];
        let bytes = match (op.action, op.echo) {
            (_, Some(read)) => flow.bytes[read].clone(),
            (Action::Read, _) => Some(self.bench.areas[flow.target].gather(&[(op.remote, op.len)])),
            (Action::CompareSwap { .. } | Action::FetchAdd, _) => {
                Some(self.bench.areas[flow.target].gather(&[(op.remote, 8)]))
            }
            (action, _) if action.is_message() => {
                Some(self.bench.areas[flow.slab].gather(&op.pieces))
            }
            _ => None,
        };
        let target = &mut self.bench.areas[flow.target];
        match (op.action, &bytes) {
            (Action::Write(_), Some(bytes)) if service.is_reliable() => {
                target.scatter(&[(op.remote, op.len)], bytes);
            }
            (Action::CompareSwap { hit: true } | Action::AtomicWrite, _) => {
                target.scatter(&[(op.remote, 8)], &op.value.to_ne_bytes());
            }
            (Action::FetchAdd, _) => {
                let sum = target.word(op.remote).wrapping_add(op.value);
                target.scatter(&[(op.remote, 8)], &sum.to_ne_bytes());
            }
            _ => {}
        }
        if op.action.takes_recv() {
            flow.to_receive[op.srq].push_back(at);
        }
        flow.bytes[at] = bytes;
    }

    pub(crate) fn is_finished(&self) -> bool {
        let all_retired = |(plan, flow): (&FlowPlan, &Flow)| {
            if plan.pair >= self.pairs {
                return true;
            }
            let exact = self.plan.pairs[plan.pair].service.is_reliable();
            let received = flow.to_receive.iter().all(VecDeque::is_empty) || !exact;
            flow.retired == plan.ops.len() && received
        };
        self.plan.flows.iter().zip(&self.bench.flows).all(all_retired)
    }

    /// All that was posted is known to be complete. Of unsignaled work it is not known, and it
    /// needs the whole quiet time.
    fn is_drained(&self) -> bool {
        self.bench.flows.iter().all(|flow| flow.posted == flow.retired)
    }

    pub(crate) fn describe_unfinished(&self) -> String {
        let mut text = String::from("not finished although the faults are over:");
        for (index, (plan, flow)) in self.plan.flows.iter().zip(&self.bench.flows).enumerate() {
            if flow.retired < plan.ops.len() {
                let pair = &self.plan.pairs[plan.pair];
                text += &format!(
                    " flow {index} ({:?} {} -> {} QP {:#x}) retired {} posted {} of {}, waits for \
                     {:?};",
                    pair.service,
                    flow.node,
                    flow.peer,
                    flow.qpn.0,
                    flow.retired,
                    flow.posted,
                    plan.ops.len(),
                    plan.ops[flow.retired],
                );
            }
        }
        text
    }

    /// Whether a successful op makes a completion.
    pub fn is_signaled(&self, index: usize, op: &Op) -> bool {
        let pair = &self.plan.pairs[self.plan.flows[index].pair];
        pair.options.sq_sig_all || op.flags.has(SendFlags::SIGNALED)
    }
}

/// What a count adds: known, and different from 0.
pub fn addend(op: &Op) -> u64 {
    1 + op.value % 1_000_000
}

fn kind_of(frame: &[u8]) -> Option<Kind> {
    let (headers, _) = Headers::parse(frame).ok()?;
    headers.bth.opcode.info().map(|info| info.kind)
}

/// The frame without reserved bits and ICRC.
fn without_mark(frame: &SentFrame) -> SentFrame {
    let mut frame = frame.clone();
    if let Ok((_, layout)) = Headers::parse(&frame.bytes) {
        frame.bytes[layout.bth + 8] &= 0x80;
        frame.bytes.truncate(layout.icrc);
    }
    frame
}

fn hash(state: u64, frame: &SentFrame) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let at = frame.at.nanos();
    let state = mix(mix(state, at), frame.from as u64 ^ (frame.bytes.len() as u64) << 8);
    frame.bytes.chunks(8).fold(state, |state, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(state, u64::from_le_bytes(word))
    })
}
