//! What the hosts' programs do: post messages, answer requests, post the next when one completes.
//!
//! A flow's QP pair is made when its first message is due. Receives are always there: one that
//! completes is posted again before the device sees another frame.

use std::collections::{BTreeMap, VecDeque};

use ferroce::rand::Rng;
use ferroce::world::bring_up;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, AhAttr, QpAttr, QpCap, QpInit, QpType, Qpn, RecvWr, Remote, SendOp, SendWr, Sge,
    VerbsError, Wc, WcStatus,
};

use super::clock::{Event, PER_NANO};
use super::host::{COMPLETIONS, address};
use super::memory::{Area, RING_MAX};
use super::{Network, SimError};
use crate::outcome::FlowRecord;
use crate::plan::{Flow, Plan, Verb};

/// READs a QP has outstanding at most.
const READS: u8 = 16;
/// Code of the shortest RNR timer. No receiver is ever not ready.
const MIN_RNR_TIMER: u8 = 1;
/// RNR retries for ever.
const RNR_RETRY: u8 = 7;
const HOP_LIMIT: u8 = 64;

/// All flows, and the QP pairs they go over.
#[derive(Debug)]
pub struct Programs {
    flows: Vec<FlowState>,
    /// Two of each pair: that of the sender, then that of the receiver.
    ends: Vec<End>,
    /// Flows by start.
    order: Vec<u32>,
    /// How many of them have begun.
    begun: usize,
    /// How many have finished or failed.
    pub over: usize,
    rng: Rng,
}

/// How far a flow has come.
#[derive(Debug, Default)]
struct FlowState {
    pair: u32,
    posted: u64,
    /// When each message was posted that has not completed, in picoseconds.
    posted_at: VecDeque<u64>,
    record: FlowRecord,
}

/// A message, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Post {
    flow: u32,
    is_answer: bool,
}

/// One end of a QP pair.
#[derive(Debug, Default)]
struct End {
    host: usize,
    qpn: Option<Qpn>,
    /// Work requests its send queue takes, and how many it holds.
    room: u32,
    held: u32,
    /// What waits for room.
    backlog: VecDeque<Post>,
    /// Messages on their way to it that take a receive, in order.
    expected: VecDeque<Post>,
    /// Receives posted, and completed, ever.
    receives: u64,
    received: u64,
    /// Bytes of the longest message that takes a receive; `None` if none does.
    receive_len: Option<u32>,
}

/// What a work request was posted for, as its number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Post(Post),
    Receive { end: u32 },
}

impl Work {
    fn id(self) -> u64 {
        match self {
            Work::Post(Post { flow, is_answer }) => u64::from(flow) << 2 | u64::from(is_answer),
            Work::Receive { end } => u64::from(end) << 2 | 2,
        }
    }

    fn of(id: u64) -> Work {
        let number = (id >> 2) as u32;
        match id & 3 {
            2 => Work::Receive { end: number },
            kind => Work::Post(Post { flow: number, is_answer: kind == 1 }),
        }
    }
}

impl Programs {
    /// The programs of a plan that has been checked.
    pub fn new(plan: &Plan, seed: u64) -> Programs {
        let mut shared: BTreeMap<usize, u32> = BTreeMap::new();
        let mut ends: Vec<End> = Vec::new();
        let mut flows = Vec::with_capacity(plan.flows.len());
        for flow in &plan.flows {
            let next = (ends.len() / 2) as u32;
            let pair = flow.qp.map_or(next, |qp| *shared.entry(qp).or_insert(next));
            if pair == next {
                ends.extend([flow.from, flow.to].map(|host| End { host, ..End::default() }));
            }
            let pair_ends = &mut ends[2 * pair as usize..][..2];
            let depth = u64::from(flow.depth).min(flow.messages).min(u64::from(u32::MAX)) as u32;
            for end in pair_ends.iter_mut() {
                end.room = end.room.saturating_add(depth).min(plan.host.device.max_wr);
            }
            let (message, answer) = match flow.verb {
                Verb::Send => (Some(flow.message), None),
                Verb::Request(answer) => (Some(flow.message), Some(answer)),
                Verb::Write | Verb::Read => (None, None),
            };
            for (end, len) in pair_ends.iter_mut().zip([answer, message]) {
                end.receive_len = end.receive_len.max(len.map(|len| len as u32));
            }
            flows.push(FlowState { pair, ..FlowState::default() });
        }
        let mut order: Vec<u32> = (0..plan.flows.len() as u32).collect();
        order.sort_by_key(|&flow| plan.flows[flow as usize].start);
        Programs { flows, ends, order, begun: 0, over: 0, rng: Rng::new(seed) }
    }

    /// What became of the flows.
    pub fn records(&self) -> impl Iterator<Item = &FlowRecord> {
        self.flows.iter().map(|flow| &flow.record)
    }

    /// Of each flow, how long ago the messages were posted that have not completed, in nanoseconds.
    pub fn under_way(&self, now: u64) -> impl Iterator<Item = Vec<u64>> {
        let since = move |posted: &u64| (now - posted) / PER_NANO;
        self.flows.iter().map(move |flow| flow.posted_at.iter().map(since).collect())
    }

    /// Host and number of the QP that posts a flow's messages, if it has begun.
    pub fn requester(&self, flow: usize) -> Option<(usize, Qpn)> {
        let end = &self.ends[2 * self.flows[flow].pair as usize];
        Some((end.host, end.qpn?))
    }

    /// Host and number of the QP that a flow's bytes come from, if it has begun.
    pub fn sender(&self, flow: usize, verb: Verb) -> Option<(usize, Qpn)> {
        let side = usize::from(verb == Verb::Read);
        let end = &self.ends[2 * self.flows[flow].pair as usize + side];
        Some((end.host, end.qpn?))
    }
}

impl FlowState {
    fn is_over(&self) -> bool {
        self.record.finished.is_some() || self.record.failed.is_some()
    }
}

/// Making QPs.
impl Network<'_> {
    /// Sets the event of the next flow's start.
    pub(super) fn await_next_flow(&mut self) {
        let programs = &self.programs;
        if let Some(&flow) = programs.order.get(programs.begun) {
            let start = self.plan.flows[flow as usize].start;
            self.clock.set(start.saturating_mul(PER_NANO), Event::Begin);
        }
    }

    /// Begins every flow whose time has come.
    pub(super) fn begin_flows(&mut self) -> Result<(), SimError> {
        while let Some(&flow) = self.programs.order.get(self.programs.begun) {
            let planned = &self.plan.flows[flow as usize];
            if planned.start.saturating_mul(PER_NANO) > self.now {
                break;
            }
            self.programs.begun += 1;
            self.connect(flow)?;
            for _ in 0..u64::from(planned.depth).min(planned.messages) {
                self.post_message(flow);
            }
            self.drive(planned.from)?;
        }
        self.await_next_flow();
        Ok(())
    }

    /// Makes and connects the QPs of a flow, unless another flow has.
    fn connect(&mut self, flow: u32) -> Result<(), SimError> {
        let first = 2 * self.programs.flows[flow as usize].pair as usize;
        if self.programs.ends[first].qpn.is_some() {
            return Ok(());
        }
        let made = [self.create_qp(first)?, self.create_qp(first + 1)?];
        let psns = [0; 2].map(|_| Psn::new(self.programs.rng.next_u64() as u32));
        let dscp = self.plan.flows[flow as usize].dscp;
        for side in 0..2 {
            let own = &self.programs.ends[first + side];
            let peer = self.programs.ends[first + 1 - side].host;
            let attr = QpAttr {
                dest_qp_num: made[1 - side],
                sq_psn: psns[side],
                rq_psn: psns[1 - side],
                ah_attr: AhAttr {
                    dgid: address(peer).gid,
                    dmac: address(peer).mac,
                    hop_limit: HOP_LIMIT,
                    traffic_class: dscp << 2,
                    ..AhAttr::default()
                },
                ..self.qp_attr()
            };
            let host = own.host;
            bring_up(&mut self.hosts[host].device, made[side], &attr).map_err(|error| {
                SimError::Refused { host, verb: "the connection of a QP", error }
            })?;
        }
        for (side, qpn) in made.into_iter().enumerate() {
            self.programs.ends[first + side].qpn = Some(qpn);
            self.post_receives(first + side);
        }
        Ok(())
    }

    fn create_qp(&mut self, end: usize) -> Result<Qpn, SimError> {
        let end = &self.programs.ends[end];
        let host = &mut self.hosts[end.host];
        let receives = end.receive_count().min(self.plan.host.device.max_wr);
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(host.pd),
            send_cq: Some(host.cq),
            recv_cq: Some(host.cq),
            srq: None,
            xrcd: None,
            cap: QpCap {
                max_send_wr: end.room,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
        };
        host.device.create_qp(&init).map_err(|error| SimError::Refused {
            host: end.host,
            verb: "a QP",
            error,
        })
    }

    fn qp_attr(&self) -> QpAttr {
        let host = &self.plan.host;
        let reads = READS.min(host.device.max_rd_atomic);
        QpAttr {
            path_mtu: host.mtu,
            qp_access_flags: Access::REMOTE_WRITE
                .with(Access::REMOTE_READ)
                .with(Access::LOCAL_WRITE),
            max_rd_atomic: reads,
            max_dest_rd_atomic: reads,
            min_rnr_timer: MIN_RNR_TIMER,
            port_num: 1,
            timeout: host.timeout,
            retry_cnt: host.retry_cnt,
            rnr_retry: RNR_RETRY,
            ..QpAttr::default()
        }
    }

    /// Posts all the receives an end has room for.
    fn post_receives(&mut self, end: usize) {
        let count = self.programs.ends[end].receive_count();
        for _ in 0..count {
            self.post_receive(end);
        }
    }

    fn post_receive(&mut self, number: usize) {
        let end = &mut self.programs.ends[number];
        let (Some(qpn), Some(length)) = (end.qpn, end.receive_len) else { return };
        let host = &mut self.hosts[end.host];
        let area =
            Area::Receive { end: number as u32, ring: (end.receives % u64::from(RING_MAX)) as u32 };
        let sges = [Sge { addr: area.addr(), length, lkey: host.keys.lkey }];
        let wr_id = Work::Receive { end: number as u32 }.id();
        // A QP that has failed refuses nothing either: it flushes.
        if host.device.post_recv(qpn, &RecvWr { wr_id, sges: &sges }).is_ok() {
            end.receives += 1;
        }
    }
}

impl End {
    /// One for each message that may be under way, and one more.
    fn receive_count(&self) -> u32 {
        self.receive_len.map_or(0, |_| self.room.saturating_add(1).min(RING_MAX))
    }
}

/// Posting and completing.
impl Network<'_> {
    /// A flow posts its next message.
    pub(super) fn post_message(&mut self, number: u32) {
        let flow = &mut self.programs.flows[number as usize];
        let all = self.plan.flows[number as usize].messages;
        if flow.is_over() || flow.posted == all {
            return;
        }
        flow.posted += 1;
        flow.posted_at.push_back(self.now);
        let end = 2 * flow.pair as usize;
        self.post(end, Post { flow: number, is_answer: false });
    }

    fn post(&mut self, end: usize, post: Post) {
        self.programs.ends[end].backlog.push_back(post);
        self.post_backlog(end);
    }

    /// Posts what waits, as far as there is room.
    fn post_backlog(&mut self, number: usize) {
        loop {
            let end = &mut self.programs.ends[number];
            if end.held == end.room {
                return;
            }
            let Some(post) = end.backlog.pop_front() else { return };
            match self.post_send(number, post) {
                Ok(()) => self.programs.ends[number].held += 1,
                Err(error) => self.fail(post.flow, error.to_string()),
            }
        }
    }

    fn post_send(&mut self, number: usize, post: Post) -> Result<(), VerbsError> {
        let Flow { message, verb, .. } = self.plan.flows[post.flow as usize];
        let [end, peer] = [number, number ^ 1].map(|end| &self.programs.ends[end]);
        let qpn = end.qpn.ok_or(VerbsError::Invalid)?;
        let area = Area::Flow(post.flow).addr();
        let remote = Remote { addr: area, rkey: self.hosts[peer.host].keys.rkey };
        let (op, len) = match verb {
            Verb::Write => (SendOp::Write(remote), message),
            Verb::Read => (SendOp::Read(remote), message),
            Verb::Request(answer) if post.is_answer => (SendOp::Send, answer),
            Verb::Send | Verb::Request(_) => (SendOp::Send, message),
        };
        let host = &mut self.hosts[end.host];
        let sges = [Sge { addr: area, length: len as u32, lkey: host.keys.lkey }];
        host.device.post_send(qpn, &SendWr::new(Work::Post(post).id(), op, &sges))?;
        if op == SendOp::Send {
            self.programs.ends[number ^ 1].expected.push_back(post);
        }
        Ok(())
    }

    /// Lets a host's program take what has completed and post what follows.
    pub(super) fn serve(&mut self, host: usize) -> Result<(), SimError> {
        self.count_landed(host);
        let mut batch = std::mem::take(&mut self.completions);
        while let Some(cq) = self.hosts[host].device.poll_ready_cq() {
            loop {
                let polled = self.hosts[host].device.poll_cq(cq, &mut batch);
                let count = polled.map_err(|error| SimError::Refused {
                    host,
                    verb: "the polling of a CQ",
                    error,
                })?;
                for wc in &batch[..count] {
                    self.complete(wc);
                }
                if count < COMPLETIONS {
                    break;
                }
            }
        }
        self.completions = batch;
        while self.hosts[host].device.poll_event().is_some() {}
        Ok(())
    }

    /// Adds what has arrived at a host to its flows.
    fn count_landed(&mut self, host: usize) {
        let Network { hosts, programs, .. } = self;
        let landed = &mut hosts[host].device.memory_mut().landed;
        for (area, len) in landed.drain(..) {
            let flow = match area {
                Area::Flow(flow) => flow,
                Area::Receive { end, ring } => {
                    let end = &programs.ends[end as usize];
                    let place = (u64::from(ring).wrapping_sub(end.received)) % u64::from(RING_MAX);
                    match end.expected.get(place as usize) {
                        Some(&Post { flow, is_answer: false }) => flow,
                        _ => continue,
                    }
                }
            };
            programs.flows[flow as usize].record.delivered += u64::from(len);
        }
    }

    fn complete(&mut self, wc: &Wc) {
        match Work::of(wc.wr_id) {
            Work::Post(post) => {
                let pair = self.programs.flows[post.flow as usize].pair as usize;
                let end = 2 * pair + usize::from(post.is_answer);
                self.programs.ends[end].held -= 1;
                if wc.status != WcStatus::Success {
                    self.fail(post.flow, wc.status.text().to_string_lossy().into_owned());
                } else if !matches!(self.plan.flows[post.flow as usize].verb, Verb::Request(_)) {
                    self.complete_message(post.flow);
                }
                self.post_backlog(end);
            }
            Work::Receive { end } if wc.status == WcStatus::Success => self.receive_message(end),
            // The sender of the message is told, too.
            Work::Receive { .. } => {}
        }
    }

    /// A message has come, or an answer.
    fn receive_message(&mut self, number: u32) {
        let end = &mut self.programs.ends[number as usize];
        end.received += 1;
        let post = end.expected.pop_front();
        self.post_receive(number as usize);
        let Some(Post { flow, is_answer }) = post else { return };
        match self.plan.flows[flow as usize].verb {
            Verb::Request(_) if is_answer => self.complete_message(flow),
            Verb::Request(_) => self.post(number as usize, Post { flow, is_answer: true }),
            _ => {}
        }
    }

    fn complete_message(&mut self, number: u32) {
        let planned = &self.plan.flows[number as usize];
        let flow = &mut self.programs.flows[number as usize];
        if flow.is_over() {
            return;
        }
        let posted_at = flow.posted_at.pop_front().unwrap_or(self.now);
        let completed = flow.record.latencies.len() as u64 + 1;
        flow.record.bytes += planned.message;
        flow.record.latencies.push((self.now - posted_at) / PER_NANO);
        if completed == planned.messages {
            flow.record.finished = Some(self.now / PER_NANO);
            self.programs.over += 1;
            return;
        }
        match planned.gap {
            0 => self.post_message(number),
            gap => {
                let at = self.now.saturating_add(gap.saturating_mul(PER_NANO));
                self.clock.set(at, Event::Post(number));
            }
        }
    }

    fn fail(&mut self, flow: u32, why: String) {
        let flow = &mut self.programs.flows[flow as usize];
        if !flow.is_over() {
            flow.record.failed = Some(why);
            flow.record.failed_at = Some(self.now / PER_NANO);
            self.programs.over += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_work_requests_say_what_they_are() {
        for number in [0, 1, 1 << 21] {
            for work in [
                Work::Post(Post { flow: number, is_answer: false }),
                Work::Post(Post { flow: number, is_answer: true }),
                Work::Receive { end: number },
            ] {
                assert_eq!(Work::of(work.id()), work);
            }
        }
    }
}
