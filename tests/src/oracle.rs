//! What must be true of every completion, and of everything at the end.

use std::collections::{HashMap, HashSet};

use ferroce_stack::discard::Discard;
use ferroce_stack::verbs::{Cq, Event, MwType, SendFlags, Wc, WcOpcode, WcStatus};

use crate::flow::Action;
use crate::plan::{GRH_LEN, PoolQueue, Service, pick};
use crate::simulation::{Arming, RECV_BIT, Simulation, addend};

/// Fails with a message unless `condition`.
pub(crate) fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

/// Frames discarded for these reasons never reached a QP's protocol.
const BEFORE_QP: [Discard; 17] = [
    Discard::NotRoce,
    Discard::Truncated,
    Discard::BadIpHeader,
    Discard::BadIpChecksum,
    Discard::BadGrh,
    Discard::BadLength,
    Discard::BadTransportVersion,
    Discard::UnknownOpcode,
    Discard::NotOurAddress,
    Discard::UnknownQp,
    Discard::WrongService,
    Discard::WrongState,
    Discard::WrongPeer,
    Discard::BadPkey,
    Discard::BadQkey,
    Discard::BadIcrc,
    Discard::NotAMember,
];

impl Simulation<'_> {
    /// Takes every completion and checks it, and that armed queues told of them.
    pub(crate) fn poll_all(&mut self) -> Result<(), String> {
        let fired = self.take_events()?;
        for index in 0..self.bench.cqs.len() {
            let (node, cq) = self.bench.cqs[index];
            let completions = self.bench.world.poll(node, cq).map_err(|e| format!("{e:?}"))?;
            let due = match self.armed[index] {
                None => false,
                Some(Arming::Next) => !completions.is_empty(),
                Some(Arming::Solicited) => completions.iter().any(|wc| wc.solicited),
            };
            ensure(due == fired.contains(&(node, cq)), || {
                let armed = self.armed[index];
                format!("node {node} {cq:?} armed {armed:?}: event {due} expected; {completions:?}")
            })?;
            self.arm(index, due)?;
            for wc in completions {
                let checked = match wc.wr_id & RECV_BIT {
                    0 => self.check_send(&wc),
                    _ => self.check_receive(node, &wc),
                };
                checked.map_err(|message| format!("{message}; {wc:?}"))?;
            }
        }
        Ok(())
    }

    /// The CQs that have told of completions; there must be no other events.
    fn take_events(&mut self) -> Result<HashSet<(usize, Cq)>, String> {
        let mut fired = HashSet::new();
        for node in 0..self.bench.world.nodes() {
            while let Some(event) = self.bench.world.device(node).poll_event() {
                match event {
                    Event::Completion(cq) if fired.insert((node, cq)) => {}
                    _ => return Err(format!("node {node} has an event: {event:?}")),
                }
            }
        }
        Ok(fired)
    }

    /// Arms a queue, just emptied, at random if it is not armed.
    fn arm(&mut self, index: usize, fired: bool) -> Result<(), String> {
        if fired {
            self.armed[index] = None;
        }
        if self.armed[index].is_none() && self.rng.chance(0.3) {
            let arming = pick(&mut self.rng, &[Arming::Next, Arming::Solicited]);
            let (node, cq) = self.bench.cqs[index];
            let device = self.bench.world.device(node);
            let armed = device.req_notify_cq(cq, arming == Arming::Solicited);
            armed.map_err(|error| format!("{cq:?} cannot be armed: {error:?}"))?;
            self.armed[index] = Some(arming);
        }
        Ok(())
    }

    /// A send completes with success, in order, exactly once.
    pub(crate) fn check_send(&mut self, wc: &Wc) -> Result<(), String> {
        let (index, at) = ((wc.wr_id >> 32) as usize, wc.wr_id as u32 as usize);
        let plan = &self.plan.flows[index];
        let flow = &self.bench.flows[index];
        let named = |text: &str| format!("flow {index} op {at} {:?}: {text}", plan.ops[at]);
        let next = (flow.retired..flow.posted).find(|&op| self.is_signaled(index, &plan.ops[op]));
        ensure(next == Some(at), || named(&format!("completes, expected {next:?}")))?;
        ensure(wc.status == WcStatus::Success, || named("failed"))?;
        ensure(wc.qp_num == flow.qpn, || named("completes for another QP"))?;
        let op = &plan.ops[at];
        let window = self.plan.pairs[plan.pair].window;
        let opcode = wc_opcode(op.action, window);
        ensure(wc.opcode == opcode, || named("has the wrong opcode"))?;
        let brings = match op.action {
            Action::Read => Some(op.len),
            Action::CompareSwap { .. } | Action::FetchAdd | Action::Count => Some(8),
            _ => None,
        };
        let len_fits = brings.is_none_or(|len| wc.byte_len as usize == len);
        ensure(len_fits, || named("has the wrong length"))?;
        for done in flow.retired..=at {
            self.retire(index, done)?;
        }
        Ok(())
    }

    /// An op is known to be complete: its local memory holds what it should.
    fn retire(&mut self, index: usize, at: usize) -> Result<(), String> {
        let op = &self.plan.flows[index].ops[at];
        let flow = &mut self.bench.flows[index];
        flow.retired = at + 1;
        let slab = &mut self.bench.areas[flow.slab];
        let world = &mut self.bench.world;
        match op.action {
            Action::Read | Action::CompareSwap { .. } | Action::FetchAdd => {
                let expected = flow.bytes[at].as_deref().unwrap_or_default();
                slab.scatter(&op.pieces, expected);
                let brought = slab.actual_of(world, &op.pieces);
                ensure(brought == expected, || {
                    let same = brought.iter().zip(expected).take_while(|(a, b)| a == b).count();
                    format!("flow {index} op {at} {op:?} brought a wrong byte {same}")
                })?;
            }
            Action::Count => {
                let brought = slab.actual_of(world, &op.pieces);
                slab.scatter(&op.pieces, &brought);
                let word = brought.as_slice().try_into().map_err(|_| "no word".to_owned())?;
                self.bench.counts[flow.peer].push((u64::from_ne_bytes(word), addend(op)));
            }
            // Its memory is the application's again.
            action if action.is_message() && op.echo.is_none() => {
                slab.scribble(world, &op.pieces);
            }
            Action::Bind { zero_based, .. } => {
                let mw = flow.mw.ok_or("no window")?;
                let rkey = world.device_ref(flow.node).mw_rkey(mw).map_err(|e| format!("{e:?}"))?;
                let user = self.plan.flows[index].reverse.ok_or("no user of the window")?;
                let base = self.bench.areas[self.bench.flows[user].target].base;
                let start = if zero_based { 0 } else { base + op.remote as u64 };
                self.bench.flows[index].window_keys[at] = Some((rkey, start));
            }
            _ => {}
        }
        Ok(())
    }

    /// A receive completes once; where messages are reliable, it is the next one's.
    pub(crate) fn check_receive(&mut self, node: usize, wc: &Wc) -> Result<(), String> {
        let (index, buffer) = ((wc.wr_id & !RECV_BIT) >> 32, wc.wr_id as u32 as usize);
        let index = index as usize;
        let plan = &self.plan.pools[index];
        let pool = &mut self.bench.pools[index];
        let named =
            |text: &str| format!("receive {buffer} of pool {index} {:?} {text}", plan.queue);
        let fresh = buffer < pool.posted && !pool.completed[buffer];
        ensure(fresh && plan.node == node, || named("completes again or elsewhere"))?;
        let own = matches!(plan.queue, PoolQueue::Own { .. });
        let in_order = !own || pool.completed[..buffer].iter().all(|&completed| completed);
        ensure(in_order, || named("completes before its turn"))?;
        pool.completed[buffer] = true;
        pool.completed_count += 1;
        ensure(wc.status == WcStatus::Success, || named("failed"))?;
        let flow = self.flow_to(node, wc).ok_or_else(|| named("is for no flow"))?;
        let slot = self.plan.flows[flow].pools.iter().position(|&pool| pool == index);
        let slot = slot.ok_or_else(|| named("is of another flow's pool"))?;
        let service = self.plan.pairs[self.plan.flows[flow].pair].service;
        let at = match service.is_reliable() {
            true => {
                let next = self.bench.flows[flow].to_receive[slot].pop_front();
                next.ok_or_else(|| named("has no message"))?
            }
            false => self.find_message(flow, index, buffer, wc)?,
        };
        self.check_message(flow, at, index, buffer, wc).map_err(|text| named(&text))
    }

    /// The flow whose messages arrive so.
    fn flow_to(&self, node: usize, wc: &Wc) -> Option<usize> {
        self.bench.flows.iter().position(|flow| {
            let from_peer = wc.src_qp.0 == 0 || wc.src_qp == flow.qpn;
            flow.peer == node && flow.peer_qpn == wc.qp_num && from_peer
        })
    }

    /// A received message is the one of op `at`, whole.
    fn check_message(
        &mut self,
        index: usize,
        at: usize,
        pool: usize,
        buffer: usize,
        wc: &Wc,
    ) -> Result<(), String> {
        let op = &self.plan.flows[index].ops[at];
        let named = |text: &str| format!("(flow {index} op {at} {op:?}) {text}");
        let flow = &self.bench.flows[index];
        let pair = &self.plan.pairs[self.plan.flows[index].pair];
        let is_write = matches!(op.action, Action::Write(_));
        let opcode = if is_write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
        ensure(wc.opcode == opcode, || named("has the wrong opcode"))?;
        ensure(wc.imm_data == op.action.imm(), || named("has wrong immediate data"))?;
        let invalidated = match op.action {
            Action::SendInv { bind } => Some(self.window_key(index, bind)),
            _ => None,
        };
        ensure(wc.invalidated_rkey == invalidated, || named("invalidated another key"))?;
        let front = if pair.service == Service::Ud { GRH_LEN } else { 0 };
        ensure(wc.byte_len as usize == op.len + front, || named("has the wrong length"))?;
        ensure(wc.grh == (front > 0), || named("has a wrong GRH flag"))?;
        let solicited = op.flags.has(SendFlags::SOLICITED);
        ensure(wc.solicited == solicited, || named("has a wrong solicited flag"))?;
        if matches!(pair.service, Service::Ud | Service::Xrc) {
            ensure(wc.src_qp == flow.qpn, || named("has a wrong source"))?;
        }
        let bytes = flow.bytes[at].clone().unwrap_or_default();
        if is_write {
            // A reliable target may have changed again since.
            let target = &self.bench.areas[flow.target];
            let placed = target.actual(&self.bench.world, op.remote, op.len);
            let whole = pair.service.is_reliable() || placed == bytes;
            return ensure(whole, || named("was announced before its data was placed"));
        }
        let pieces = &self.plan.pools[pool].buffers[buffer];
        let area = &mut self.bench.areas[self.bench.pools[pool].area];
        let mut received = area.actual_of(&self.bench.world, pieces);
        received.truncate(front + op.len);
        ensure(received[front..] == bytes, || named("is not what was sent"))?;
        area.scatter(pieces, &received);
        Ok(())
    }

    fn window_key(&self, index: usize, bind: usize) -> u32 {
        let owner = self.plan.flows[index].reverse;
        let key = owner.and_then(|owner| self.bench.flows[owner].window_keys[bind]);
        key.map_or(0, |(rkey, _)| rkey)
    }

    /// The op an unreliable message must be of: the first after those delivered whose bytes are
    /// right, or an earlier one where frames may arrive twice or late.
    fn find_message(
        &mut self,
        index: usize,
        pool: usize,
        buffer: usize,
        wc: &Wc,
    ) -> Result<usize, String> {
        let plan = &self.plan.flows[index];
        let flow = &self.bench.flows[index];
        let ud = self.plan.pairs[plan.pair].service == Service::Ud;
        let front = if ud { GRH_LEN } else { 0 };
        let pieces = &self.plan.pools[pool].buffers[buffer];
        let received =
            self.bench.areas[self.bench.pools[pool].area].actual_of(&self.bench.world, pieces);
        let fits = |&at: &usize| {
            let op = &plan.ops[at];
            let write = matches!(op.action, Action::Write(_));
            let bytes = flow.bytes[at].as_deref().unwrap_or_default();
            op.action.takes_recv()
                && write == (wc.opcode == WcOpcode::RecvRdmaWithImm)
                && op.action.imm() == wc.imm_data
                && op.flags.has(SendFlags::SOLICITED) == wc.solicited
                && front + op.len == wc.byte_len as usize
                && (write || received.get(front..front + op.len) == Some(bytes))
        };
        let next = flow.delivered.last().map_or(0, |&last| last + 1);
        let earlier = if self.plan.faults.shuffles() { 0..next } else { 0..0 };
        let found = (next..flow.posted).chain(earlier).find(fits);
        let at = found.ok_or_else(|| format!("flow {index}: no message sent is like this one"))?;
        self.bench.flows[index].delivered.push(at);
        Ok(at)
    }

    /// Everything that must hold once all is done.
    pub(crate) fn check_end(&mut self) -> Result<(), String> {
        self.check_counters()?;
        self.check_memory()?;
        self.check_pools()?;
        self.check_wire()
    }

    /// Memory is as the model has it, and untouched where nothing is registered.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let flows = (0..self.plan.flows.len()).filter(|&index| self.has_flow(index));
        let of_flows = flows.map(|index| &self.bench.flows[index]);
        let of_flows = of_flows.flat_map(|flow| [flow.slab, flow.target]);
        let pools = (0..self.plan.pools.len()).filter(|&index| self.has_pool(index));
        let of_pools = pools.map(|index| self.bench.pools[index].area);
        for area in of_flows.chain(of_pools) {
            self.bench.areas[area].check(&self.bench.world)?;
        }
        self.check_uc_targets()?;
        for node in 0..self.bench.world.nodes() {
            let memory = self.bench.world.device_ref(node).memory();
            memory.check_canaries().map_err(|error| format!("node {node}: {error}"))?;
            ensure(memory.stray_accesses() == 0, || format!("node {node}: stray accesses"))?;
        }
        Ok(())
    }

    /// Every reliable message has taken exactly one receive.
    pub(crate) fn check_pools(&self) -> Result<(), String> {
        for (index, (plan, pool)) in self.plan.pools.iter().zip(&self.bench.pools).enumerate() {
            let exact = match plan.queue {
                PoolQueue::Own { pair, .. } => self.plan.pairs[pair].service.is_reliable(),
                PoolQueue::Shared | PoolQueue::Xrc { .. } => true,
            };
            let all = pool.completed_count == plan.buffers.len() || !self.has_pool(index);
            ensure(all || !exact, || format!("pool {index} has receives left"))?;
        }
        Ok(())
    }

    /// Additions to a shared counter happened once each: their originals form one chain.
    fn check_counters(&self) -> Result<(), String> {
        for (node, counts) in self.bench.counts.iter().enumerate() {
            let by_original: HashMap<u64, u64> = counts.iter().copied().collect();
            let mut value = 0u64;
            for step in 0..counts.len() {
                let add = by_original.get(&value).ok_or_else(|| {
                    format!("node {node}: addition {step} of {} did not see {value}", counts.len())
                })?;
                value = value.wrapping_add(*add);
            }
            let counter = &self.bench.areas[self.bench.counters[node]];
            let actual = counter.actual(&self.bench.world, 0, 8);
            ensure(actual == value.to_ne_bytes(), || {
                format!("node {node}: the counter holds {actual:?}, expected {value}")
            })?;
        }
        Ok(())
    }

    /// A UC WRITE has stored each packet whole or not at all, and nothing else has changed.
    fn check_uc_targets(&self) -> Result<(), String> {
        for (index, plan) in self.plan.flows.iter().enumerate() {
            let pair = &self.plan.pairs[plan.pair];
            if pair.service != Service::Uc || !self.has_flow(index) {
                continue;
            }
            let flow = &self.bench.flows[index];
            let target = &self.bench.areas[flow.target];
            let mtu = pair.options.mtu.bytes();
            let mut left = target.gather(&[(0, target.len())]);
            for (at, op) in plan.ops.iter().enumerate() {
                if !matches!(op.action, Action::Write(_)) {
                    continue;
                }
                let bytes = flow.bytes[at].as_deref().unwrap_or_default();
                for (packet, chunk) in bytes.chunks(mtu).enumerate() {
                    let start = op.remote + packet * mtu;
                    let actual = target.actual(&self.bench.world, start, chunk.len());
                    let expected = &mut left[start..start + chunk.len()];
                    if actual == chunk {
                        expected.copy_from_slice(chunk);
                    }
                    ensure(actual == expected, || {
                        format!("flow {index} op {at}: packet {packet} of a WRITE is torn")
                    })?;
                }
            }
            let actual = target.actual(&self.bench.world, 0, target.len());
            ensure(actual == left, || format!("flow {index}: bytes beside its WRITEs changed"))?;
        }
        Ok(())
    }

    /// The devices have counted what the wire has seen.
    fn check_wire(&self) -> Result<(), String> {
        let world = &self.bench.world;
        let wire = world.wire_ref().counters();
        let faults = &self.plan.faults;
        let counters = (0..world.nodes()).map(|node| world.device_ref(node).counters());
        let sent: u64 = counters.clone().map(|counters| counters.sent_pkts).sum();
        ensure(sent + self.injected == wire.sent, || {
            format!("devices sent {sent} packets, the wire saw {}", wire.sent)
        })?;
        let sum = |reasons: &[Discard]| -> u64 {
            let of = |reason| counters.clone().map(|c| c.discarded(reason)).sum::<u64>();
            reasons.iter().map(|&reason| of(reason)).sum()
        };
        let received: u64 = counters.clone().map(|counters| counters.rcvd_pkts).sum();
        let refused = sum(&BEFORE_QP);
        ensure(received + refused == wire.arrived, || {
            format!("{received} packets accepted, {refused} not, {} arrived", wire.arrived)
        })?;
        ensure(refused == 0 || faults.corrupts(), || {
            format!("{refused} undamaged frames were refused")
        })?;
        let ghosts = sum(&[Discard::GhostResponse, Discard::ReservedSyndrome]);
        ensure(ghosts == 0, || format!("{ghosts} impossible responses"))?;
        if faults.is_clean() {
            for reason in
                [Discard::DuplicateResponse, Discard::ResponseGap, Discard::StaleDuplicate]
            {
                let count = sum(&[reason]);
                ensure(count == 0, || format!("{count} x {reason:?} on a clean link"))?;
            }
            let timeouts: u64 = counters.map(|counters| counters.local_ack_timeout_err).sum();
            ensure(timeouts == 0, || format!("{timeouts} timeouts on a clean link"))?;
        }
        Ok(())
    }
}

fn wc_opcode(action: Action, window: Option<MwType>) -> WcOpcode {
    match action {
        Action::Send(_) | Action::SendInv { .. } => WcOpcode::Send,
        Action::Write(_) => WcOpcode::RdmaWrite,
        Action::Read => WcOpcode::RdmaRead,
        Action::CompareSwap { .. } => WcOpcode::CompSwap,
        Action::FetchAdd | Action::Count => WcOpcode::FetchAdd,
        Action::AtomicWrite => WcOpcode::AtomicWrite,
        Action::Flush(..) => WcOpcode::Flush,
        Action::Unbind if window == Some(MwType::Type2) => WcOpcode::LocalInv,
        Action::Bind { .. } | Action::Unbind => WcOpcode::BindMw,
    }
}
