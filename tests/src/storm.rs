//! An error storm: while work is under way, QPs are destroyed, reset and failed, regions and SRQs
//! disappear, CQs overrun and requests are plain wrong. The first pair is a bystander, run and
//! judged as in the [`simulation`](crate::simulation); all others are victims, of which little
//! holds: each work request completes at most once, in order, with nothing but flushes behind
//! the first error of a queue, and exactly once where its QP lives.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ferroce::rand::Rng;
use ferroce::world::Endpoint;
use ferroce_stack::verbs::{
    Access, AttrMask, Cq, Event, EventKind, MwBind, QpAttr, QpState, Qpn, RecvWr, Remote, SendData,
    SendOp, SendWr, UdTarget, VerbsError, Wc, WcStatus,
};

use crate::flow::{Action, Op};
use crate::oracle::ensure;
use crate::plan::{Plan, PoolQueue, Service};
use crate::simulation::{Outcome, RECV_BIT, Simulation};

/// Marks the work requests of victims.
const VICTIM_BIT: u64 = 1 << 62;
/// How long it storms.
const STORM_NS: u64 = 15_000_000;
/// Virtual time the bystander must finish in afterwards.
const LIMIT_NS: u64 = 1_000_000_000;

/// A queue whose completions have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Queue {
    /// Send queue of an end of a pair.
    Send(usize, usize),
    /// Receive queue of an end of a pair.
    Recv(usize, usize),
    /// An SRQ, which has none.
    Shared,
}

/// A work request of a victim.
#[derive(Clone, Copy, Debug)]
struct Posted {
    queue: Queue,
    /// How often the QP had been reset when it was posted.
    life: u32,
    /// How often the QP had left SQE.
    resumed: u32,
    qpn: Qpn,
    /// Where it completes; an SRQ's completes where its QPs say.
    cq: Option<(usize, Cq)>,
    /// The pool of a receive.
    pool: Option<usize>,
    /// Success makes a completion.
    signaled: bool,
    completed: bool,
    /// Its QP was destroyed or reset, and no completion was waiting.
    gone: bool,
}

/// What is known of an ordered queue.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The number behind the last one completed.
    next: u64,
    /// Resets and resumptions before it failed.
    failed: Option<(u32, u32)>,
}

/// One end of a victim pair.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    destroyed: bool,
    /// Times it was reset.
    life: u32,
    /// Times its send queue went from SQE to RTS.
    resumed: u32,
}

struct Storm<'a> {
    simulation: Simulation<'a>,
    rng: Rng,
    posted: Vec<Posted>,
    seen: HashMap<Queue, Seen>,
    ends: Vec<[End; 2]>,
    /// Next op of each flow.
    next: Vec<usize>,
    /// Receives under way in each pool.
    outstanding: Vec<usize>,
    overrun: HashSet<(usize, Cq)>,
}

/// Runs the storm of `seed`; records its frames if told where to.
///
/// # Errors
/// What went wrong, and when.
pub fn run(seed: u64, record: Option<&Path>) -> Result<Outcome, String> {
    run_plan(Plan::for_storm(seed), record)
}

/// As [`run`], with selective repeat on all nodes.
///
/// # Errors
/// As [`run`].
pub fn run_selective(seed: u64, record: Option<&Path>) -> Result<Outcome, String> {
    let plan = Plan::for_storm(seed);
    let nodes = plan.world.nodes;
    run_plan(plan.with_selective_repeat(nodes), record)
}

fn run_plan(plan: Plan, record: Option<&Path>) -> Result<Outcome, String> {
    let simulation = Simulation::new(&plan, 1, record)?;
    let mut storm = Storm {
        simulation,
        rng: Rng::new(plan.seed ^ 0x5702),
        posted: Vec::new(),
        seen: HashMap::new(),
        ends: vec![[End::default(); 2]; plan.pairs.len()],
        next: vec![0; plan.flows.len()],
        outstanding: vec![0; plan.pools.len()],
        overrun: HashSet::new(),
    };
    let result = storm.run_all();
    storm.simulation.sum_up();
    storm.simulation.end(result)
}

impl Storm<'_> {
    fn run_all(&mut self) -> Result<(), String> {
        let faults = self.simulation.plan.faults.clone();
        let wire = self.simulation.bench.world.wire();
        faults.rules.iter().for_each(|rule| wire.faults_mut().add(rule.clone()));
        self.run_for(faults.episode_ns, false)?;
        self.simulation.bench.world.wire().faults_mut().clear();
        self.run_for(STORM_NS, true)?;
        self.run_for(LIMIT_NS, true)?;
        if !self.simulation.is_finished() {
            return Err(self.simulation.describe_unfinished());
        }
        self.fail_victims()?;
        let idle = self.simulation.bench.world.run_until_idle(LIMIT_NS);
        idle.map_err(|error| error.to_string())?;
        self.poll(1.0)?;
        self.check_all_completed()?;
        self.simulation.take_log();
        self.simulation.check_pools()?;
        self.simulation.check_memory()
    }

    /// Storms for `nanos`; after the storm's time only until the bystander has finished.
    fn run_for(&mut self, nanos: u64, quiet: bool) -> Result<(), String> {
        let end = self.simulation.bench.world.now() + nanos;
        while self.simulation.bench.world.now() < end {
            let storms = nanos != LIMIT_NS;
            if !storms && self.simulation.is_finished() {
                break;
            }
            let probability = if self.rng.chance(0.5) { 1.0 } else { 0.2 };
            self.poll(probability)?;
            self.simulation.post_receives(quiet)?;
            self.simulation.post_sends()?;
            self.post_victims();
            if storms && self.rng.chance(0.1) {
                self.strike()?;
            }
            let step = 2_000 + self.rng.below(40_000);
            self.simulation.bench.world.run_for(step);
            self.simulation.take_log();
        }
        Ok(())
    }

    /// Polls each CQ with this probability, and takes the events.
    fn poll(&mut self, probability: f64) -> Result<(), String> {
        for index in 0..self.simulation.bench.cqs.len() {
            let (node, cq) = self.simulation.bench.cqs[index];
            if !self.rng.chance(probability) {
                continue;
            }
            let completions = self.simulation.bench.world.poll(node, cq);
            for wc in completions.map_err(|error| format!("{error:?}"))? {
                let checked = match (wc.wr_id & VICTIM_BIT, wc.wr_id & RECV_BIT) {
                    (0, 0) => self.simulation.check_send(&wc),
                    (0, _) => self.simulation.check_receive(node, &wc),
                    _ => self.check_victim(&wc),
                };
                checked.map_err(|message| format!("{message}; {wc:?}"))?;
            }
        }
        self.take_events()
    }

    fn take_events(&mut self) -> Result<(), String> {
        for node in 0..self.simulation.bench.world.nodes() {
            while let Some(event) = self.simulation.bench.world.device(node).poll_event() {
                let ends = &self.simulation.bench.ends[0];
                match event {
                    Event::Cq(cq, EventKind::CqErr) => {
                        self.overrun.insert((node, cq));
                    }
                    Event::Qp(qpn, _) => {
                        let bystander = ends.iter().any(|end| (end.node, end.qpn) == (node, qpn));
                        ensure(!bystander, || format!("the bystander has an event: {event:?}"))?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn check_victim(&mut self, wc: &Wc) -> Result<(), String> {
        let number = wc.wr_id & !VICTIM_BIT & !RECV_BIT;
        let before = self.posted[number as usize];
        let named = |text: &str| format!("victim's {number} {before:?} {text}");
        let Posted { queue, life, resumed, pool, .. } = before;
        ensure(!before.completed, || named("completes again"))?;
        ensure(!before.gone, || named("completes after its QP is gone"))?;
        self.posted[number as usize].completed = true;
        if let Some(pool) = pool.filter(|_| self.life_of(queue) == Some(life)) {
            self.outstanding[pool] -= 1;
        }
        if queue == Queue::Shared {
            return Ok(());
        }
        ensure(before.qpn == wc.qp_num, || named("completes for another QP"))?;
        let seen = self.seen.entry(queue).or_default();
        ensure(number >= seen.next, || named("completes out of turn"))?;
        seen.next = number + 1;
        let flushed = wc.status == WcStatus::WrFlushErr;
        let failed = seen.failed == Some((life, resumed));
        ensure(!failed || flushed, || named("was not flushed after an error"))?;
        if wc.status != WcStatus::Success {
            seen.failed = Some((life, resumed));
        }
        Ok(())
    }

    /// The present life of the QP a queue belongs to; none once it is destroyed.
    fn life_of(&self, queue: Queue) -> Option<u32> {
        match queue {
            Queue::Shared => Some(0),
            Queue::Send(pair, side) | Queue::Recv(pair, side) => {
                let end = self.ends[pair][side];
                (!end.destroyed).then_some(end.life)
            }
        }
    }

    /// Whatever still waits is flushed.
    fn fail_victims(&mut self) -> Result<(), String> {
        for pair in 1..self.ends.len() {
            for side in 0..2 {
                let end = self.simulation.bench.ends[pair][side];
                let device = self.simulation.bench.world.device(end.node);
                match device.qp_state(end.qpn) {
                    Ok(QpState::Reset) | Err(_) => continue,
                    Ok(_) => {}
                }
                let failed = device.modify_qp(end.qpn, &to_state(QpState::Err), AttrMask::STATE);
                failed.map_err(|error| format!("to ERR refused: {error:?}"))?;
            }
        }
        Ok(())
    }

    /// Exactly once, where the QP lives on and its CQ has not overrun. An unsignaled send may have
    /// succeeded without a word.
    fn check_all_completed(&self) -> Result<(), String> {
        for (number, posted) in self.posted.iter().enumerate() {
            let lives = self.life_of(posted.queue) == Some(posted.life);
            let lost = posted.cq.is_none_or(|cq| self.overrun.contains(&cq));
            let due = lives && !lost && posted.signaled && posted.queue != Queue::Shared;
            ensure(posted.completed || !due, || {
                format!("victim's {number} {posted:?} never completes")
            })?;
        }
        Ok(())
    }
}

/// Posting.
impl Storm<'_> {
    fn post_victims(&mut self) {
        for flow in 0..self.simulation.plan.flows.len() {
            while !self.simulation.has_flow(flow) && self.rng.chance(0.4) {
                self.post_send(flow);
            }
        }
        for pool in 0..self.simulation.plan.pools.len() {
            let depth = self.simulation.plan.pools[pool].depth;
            while !self.simulation.has_pool(pool)
                && self.outstanding[pool] < depth
                && self.rng.chance(0.7)
            {
                if !self.post_receive(pool) {
                    break;
                }
            }
        }
    }

    /// Posts the next op of a victim's flow; a refusal is as good as any other outcome.
    fn post_send(&mut self, index: usize) {
        let plan = &self.simulation.plan.flows[index];
        let Some(op) = plan.ops.get(self.next[index] % plan.ops.len().max(1)) else { return };
        self.next[index] += 1;
        let send_op = self.send_op(index, op);
        let (pair, side) = (plan.pair, plan.side);
        let pair_plan = &self.simulation.plan.pairs[pair];
        let signaled = self.simulation.is_signaled(index, op);
        let bench = &mut self.simulation.bench;
        let flow = &bench.flows[index];
        let area = &bench.areas[flow.slab];
        let (sges, inline) = (area.sges(&op.pieces), area.gather(&op.pieces));
        let srq = bench.pools[plan.pools[op.srq]].srq.map_or(0, |srq| srq.value());
        let number = self.posted.len() as u64;
        let wr = SendWr {
            wr_id: VICTIM_BIT | number,
            op: send_op,
            data: if op.inline { SendData::Inline(&inline) } else { SendData::Sges(&sges) },
            flags: op.flags,
            ud: flow.ah.map(|ah| UdTarget { ah, qpn: flow.peer_qpn, qkey: pair_plan.options.qkey }),
            srqn: (pair_plan.service == Service::Xrc).then_some(srq),
        };
        let posted = Posted {
            queue: Queue::Send(pair, side),
            life: self.ends[pair][side].life,
            resumed: self.ends[pair][side].resumed,
            qpn: flow.qpn,
            cq: Some((flow.node, flow.send_cq)),
            pool: None,
            signaled,
            completed: false,
            gone: false,
        };
        let (node, qpn) = (flow.node, flow.qpn);
        // It may complete before the call returns.
        self.posted.push(posted);
        if self.simulation.bench.world.device(node).post_send(qpn, &wr).is_err() {
            self.posted.pop();
        }
    }

    /// The operation of an op, at times with an address or key that is wrong.
    fn send_op(&mut self, index: usize, op: &Op) -> SendOp {
        let bench = &self.simulation.bench;
        let flow = &bench.flows[index];
        let mut remote = bench.areas[flow.target].remote(op.remote);
        if self.rng.chance(0.01) {
            remote = Remote { addr: remote.addr ^ (op.value & !7), ..remote };
        }
        if self.rng.chance(0.01) {
            remote.rkey ^= 1 << self.rng.below(32);
        }
        match op.action {
            Action::Send(None) => SendOp::Send,
            Action::Send(Some(imm)) => SendOp::SendImm(imm),
            Action::SendInv { .. } => SendOp::SendInv(remote.rkey),
            Action::Write(None) => SendOp::Write(remote),
            Action::Write(Some(imm)) => SendOp::WriteImm(remote, imm),
            Action::Read => SendOp::Read(remote),
            Action::CompareSwap { .. } => {
                SendOp::CompareSwap { remote, compare: op.value, swap: !op.value }
            }
            Action::FetchAdd | Action::Count => SendOp::FetchAdd { remote, add: op.value },
            Action::AtomicWrite => SendOp::AtomicWrite(remote, op.value),
            Action::Flush(level, length) => {
                SendOp::Flush { remote, length, level, placement: Access::FLUSH_GLOBAL }
            }
            Action::Unbind => SendOp::LocalInv(remote.rkey),
            Action::Bind { len, .. } => {
                let user = self.simulation.plan.flows[index].reverse.unwrap_or(index);
                let area = &bench.areas[bench.flows[user].target];
                let bind = MwBind {
                    mr: area.keys.mr,
                    addr: area.base,
                    length: len as u64,
                    access: Access::REMOTE_READ,
                };
                flow.mw.map_or(SendOp::Send, |mw| SendOp::BindMw { mw, rkey: 1, bind })
            }
        }
    }

    fn post_receive(&mut self, index: usize) -> bool {
        let plan = &self.simulation.plan.pools[index];
        let number = self.posted.len();
        let pieces = plan.buffers.get(number % plan.buffers.len().max(1));
        let bench = &mut self.simulation.bench;
        let pool = &bench.pools[index];
        let sges = bench.areas[pool.area].sges(pieces.map_or(&[][..], Vec::as_slice));
        let wr = RecvWr { wr_id: RECV_BIT | VICTIM_BIT | number as u64, sges: &sges };
        let (queue, life, cq) = match plan.queue {
            PoolQueue::Own { pair, side } => {
                let end = &bench.ends[pair][side];
                let life = self.ends[pair][side].life;
                (Queue::Recv(pair, side), life, Some((end.node, end.recv_cq)))
            }
            PoolQueue::Shared | PoolQueue::Xrc { .. } => (Queue::Shared, 0, None),
        };
        let qpn = pool.qpn;
        self.posted.push(Posted {
            queue,
            life,
            resumed: 0,
            qpn,
            cq,
            pool: Some(index),
            signaled: true,
            completed: false,
            gone: false,
        });
        let device = bench.world.device(plan.node);
        let accepted = match bench.pools[index].srq {
            Some(srq) => device.post_srq_recv(srq, &wr),
            None => device.post_recv(qpn, &wr),
        };
        match accepted {
            Ok(()) => self.outstanding[index] += 1,
            Err(_) => {
                self.posted.pop();
            }
        }
        accepted.is_ok()
    }
}

/// Blows.
impl Storm<'_> {
    /// Does something bad to a victim.
    fn strike(&mut self) -> Result<(), String> {
        let victims = self.ends.len() - 1;
        if victims == 0 {
            return Ok(());
        }
        let pair = 1 + self.rng.below(victims as u64) as usize;
        let side = self.rng.below(2) as usize;
        let end = self.simulation.bench.ends[pair][side];
        match self.rng.below(16) {
            0 => self.destroy_qp(pair, side)?,
            1..=3 => self.modify(&end, QpState::Err),
            4 => self.reset(pair, side)?,
            5..=8 => self.reconnect(pair)?,
            9..=10 => self.deregister(pair),
            11 => self.destroy_srq(pair),
            12 => self.modify(&end, QpState::Sqd),
            13 => self.resume(pair, side),
            14 => self.destroy_ah(pair),
            _ => self.try_destroying_what_is_used(pair)?,
        }
        Ok(())
    }

    fn modify(&mut self, end: &Endpoint, state: QpState) {
        // A refusal is as good as any other outcome.
        let device = self.simulation.bench.world.device(end.node);
        let _ = device.modify_qp(end.qpn, &to_state(state), AttrMask::STATE);
    }

    /// Back to RTS from SQD or SQE.
    fn resume(&mut self, pair: usize, side: usize) {
        let end = self.simulation.bench.ends[pair][side];
        let state = self.simulation.bench.world.device(end.node).qp_state(end.qpn);
        self.modify(&end, QpState::Rts);
        self.ends[pair][side].resumed += u32::from(state == Ok(QpState::Sqe));
    }

    fn destroy_qp(&mut self, pair: usize, side: usize) -> Result<(), String> {
        self.give_up(pair, side)?;
        let end = self.simulation.bench.ends[pair][side];
        let destroyed = self.simulation.bench.world.device(end.node).destroy_qp(end.qpn);
        let known = self.ends[pair][side].destroyed;
        self.ends[pair][side].destroyed = true;
        ensure(destroyed.is_ok() != known, || format!("{end:?} destroyed: {destroyed:?}"))
    }

    /// Completions of a QP about to forget its work are taken, so that none may come later; at
    /// times they are not, and may.
    fn give_up(&mut self, pair: usize, side: usize) -> Result<(), String> {
        if self.rng.chance(0.5) {
            return Ok(());
        }
        self.poll(1.0)?;
        for posted in &mut self.posted {
            let (send, recv) = (Queue::Send(pair, side), Queue::Recv(pair, side));
            posted.gone |= posted.queue == send || posted.queue == recv;
        }
        Ok(())
    }

    /// To RESET: what waits is forgotten.
    fn reset(&mut self, pair: usize, side: usize) -> Result<(), String> {
        self.give_up(pair, side)?;
        let end = self.simulation.bench.ends[pair][side];
        self.modify(&end, QpState::Reset);
        self.ends[pair][side].life += 1;
        let own = PoolQueue::Own { pair, side };
        let pools = &self.simulation.plan.pools;
        if let Some(pool) = pools.iter().position(|pool| pool.queue == own) {
            self.outstanding[pool] = 0;
        }
        Ok(())
    }

    fn reconnect(&mut self, pair: usize) -> Result<(), String> {
        if self.ends[pair].iter().any(|end| end.destroyed) {
            return Ok(());
        }
        self.reset(pair, 0)?;
        self.reset(pair, 1)?;
        let options = &self.simulation.plan.pairs[pair].options;
        let bench = &mut self.simulation.bench;
        let [first, second] = bench.ends[pair];
        let connected = bench.world.connect(&first, &second, options);
        connected.map_err(|error| format!("pair {pair} cannot be connected anew: {error:?}"))
    }

    fn deregister(&mut self, pair: usize) {
        let flows = &self.simulation.plan.flows;
        let of_pair = |&flow: &usize| flows[flow].pair == pair;
        let flows: Vec<usize> = (0..flows.len()).filter(of_pair).collect();
        let flow = flows[self.rng.below(flows.len() as u64) as usize];
        let bench = &mut self.simulation.bench;
        let pool = bench.pools[self.simulation.plan.flows[flow].pools[0]].area;
        let areas = [bench.flows[flow].slab, bench.flows[flow].target, pool];
        let area = &bench.areas[areas[self.rng.below(3) as usize]];
        // Refused the second time.
        let _ = bench.world.device(area.node).dereg_mr(area.keys.mr);
    }

    fn destroy_srq(&mut self, pair: usize) {
        let pools = &self.simulation.plan.pools;
        let of_pair = |pool: &usize| match pools[*pool].queue {
            PoolQueue::Xrc { pair: own, .. } => own == pair,
            PoolQueue::Shared => true,
            PoolQueue::Own { .. } => false,
        };
        let Some(pool) = (0..pools.len()).find(of_pair) else { return };
        if let Some(srq) = self.simulation.bench.pools[pool].srq {
            let device = self.simulation.bench.world.device(pools[pool].node);
            // A basic one in use stays.
            let _ = device.destroy_srq(srq);
        }
    }

    fn destroy_ah(&mut self, pair: usize) {
        let flows = &self.simulation.plan.flows;
        let Some(flow) = flows.iter().position(|flow| flow.pair == pair) else { return };
        let flow = &self.simulation.bench.flows[flow];
        if let Some(ah) = flow.ah {
            // Refused the second time.
            let _ = self.simulation.bench.world.device(flow.node).destroy_ah(ah);
        }
    }

    fn try_destroying_what_is_used(&mut self, pair: usize) -> Result<(), String> {
        if self.ends[pair][0].destroyed {
            return Ok(());
        }
        let end = self.simulation.bench.ends[pair][0];
        let device = self.simulation.bench.world.device(end.node);
        let pd = device.dealloc_pd(end.pd);
        ensure(pd == Err(VerbsError::Busy), || format!("a PD in use is destroyed: {pd:?}"))?;
        let cq = device.destroy_cq(end.send_cq);
        ensure(cq == Err(VerbsError::Busy), || format!("a CQ in use is destroyed: {cq:?}"))
    }
}

fn to_state(qp_state: QpState) -> QpAttr {
    QpAttr { qp_state, ..QpAttr::default() }
}
