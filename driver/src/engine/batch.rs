//! One bounded batch of an engine's work: frames in, work requests, timers, frames out,
//! completions and events published.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ferroce_stack::Device;
use ferroce_stack::gid::Gid;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Cq, Event, EventKind, Qpn, RecvWr, SendData, SendWr, Sge, Srq, Wc, WcStatus,
};
use ferroce_stack::wire::Mac;

use super::answers::{self, Answers, Drive};
use super::cm::Services;
use super::network::{Leaves, Network, leaves};
use super::objects::{
    AsyncEvent, Completion, CompletionQueue, QueuePair, SendEntry, SharedReceiveQueue, Subject,
};
use super::outbound::{Outbound, Outcome};
use super::port::PortSide;
use super::report::Reporter;
use crate::doorbell::Doorbells;
use crate::fabric::{Member, Received};
use crate::link;
use crate::memory::HostMemory;
use crate::progress::Driven;
use crate::ring::{Producer, WorkConsumer};
use crate::sync::lock;
use crate::sys;

/// Frames taken, and frames sent, in one batch: as many as a link moves at a time, or the last few of
/// each would go by themselves.
pub(super) const BATCH: usize = link::BATCH;

/// Batches in which a QP that ends may send without any of its work being done by that.
const REST: usize = 16;

/// Reading the clock costs more than all else a poller's turn in vain does: one such turn in so
/// many looks at the timers.
const QUIET_TURNS: u32 = 16;

/// The shortest time between two looks for members that have died, in nanoseconds: each takes some
/// system calls for every member.
const REAP_REST_NS: u64 = 1_000_000_000;

/// Completions moved at a time.
const WC_BATCH: usize = 32;

/// Who runs a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// A program that polls for completions, in vain so far.
    Poller,
    /// Anybody else.
    Other,
}

/// The engine's end of a CQ.
#[derive(Debug)]
pub(super) struct CqSide {
    pub shared: Arc<CompletionQueue>,
    pub producer: Producer<Completion>,
}

impl CqSide {
    /// Takes out the completions of a QP.
    fn forget(&mut self, qpn: Qpn) {
        let mut entries = lock(&self.shared.entries);
        let held: Vec<Completion> = std::iter::from_fn(|| entries.pop()).collect();
        entries.release();
        for completion in held.into_iter().filter(|completion| completion.wc.qp_num != qpn) {
            self.producer.push(completion).expect("as many slots as were emptied");
        }
        self.producer.publish();
    }
}

/// CQs by the index in their handle: every completion passes here.
#[derive(Debug, Default)]
pub(super) struct CqTable(Vec<Option<CqSide>>);

impl CqTable {
    fn index(cq: Cq) -> usize {
        (cq.value() >> 8) as usize
    }

    pub fn insert(&mut self, cq: Cq, side: CqSide) {
        let index = CqTable::index(cq);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(side);
    }

    pub fn get(&self, cq: Cq) -> Option<&CqSide> {
        let side = self.0.get(CqTable::index(cq))?.as_ref();
        side.filter(|side| side.shared.handle == cq)
    }

    pub fn get_mut(&mut self, cq: Cq) -> Option<&mut CqSide> {
        let side = self.0.get_mut(CqTable::index(cq))?.as_mut();
        side.filter(|side| side.shared.handle == cq)
    }

    pub fn remove(&mut self, cq: Cq) {
        if self.get(cq).is_some() {
            self.0[CqTable::index(cq)] = None;
        }
    }
}

/// The engine's end of a work queue, and whose it is.
#[derive(Debug)]
pub(super) enum Posted {
    Send(Qpn, WorkConsumer<SendEntry, Sge>),
    Recv(Qpn, WorkConsumer<u64, Sge>),
    Srq(Srq, WorkConsumer<u64, Sge>),
}

/// Work queues by the tag of their bell.
#[derive(Debug, Default)]
pub(super) struct PostedTable {
    queues: Vec<Option<Posted>>,
    free: Vec<u32>,
}

impl PostedTable {
    /// A tag that no queue has.
    pub fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() as u32 - 1
        })
    }

    pub fn fill(&mut self, tag: u32, queue: Posted) {
        self.queues[tag as usize] = Some(queue);
    }

    pub fn remove(&mut self, tag: u32) {
        self.queues[tag as usize] = None;
        self.free.push(tag);
    }
}

/// What the lock of an engine guards.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) device: Device<HostMemory>,
    pub(super) member: Member,
    pub(super) posted: PostedTable,
    pub(super) cqs: CqTable,
    pub(super) srqs: HashMap<Srq, Arc<SharedReceiveQueue>>,
    pub(super) qps: HashMap<Qpn, Arc<QueuePair>>,
    /// Contexts that hear of the port.
    pub(super) contexts: Vec<Arc<super::AsyncQueue>>,
    pub(super) outbound: Outbound,
    pub(super) reporter: Reporter,
    pub(super) port: PortSide,
    /// The engine's own link, while it is there.
    pub(super) network: Option<Box<Network>>,
    /// Connection management, once it is asked for.
    pub(super) services: Option<Box<Services>>,
    /// CQs whose ring had no room for all their completions.
    backlog: Vec<Cq>,
    /// Bells taken, kept for its memory.
    rung: Vec<u32>,
    /// Completions on their way, kept for its memory.
    completions: Box<[Wc; WC_BATCH]>,
    rx: Box<[u8]>,
    tx: Box<[u8]>,
    /// Turns that found nothing to do.
    quiet_turns: u32,
    /// Frames seen to have arrived before the work queues were drained.
    arrived: usize,
    /// The last batch sent as many frames as it may: there may be more.
    has_more: bool,
    /// What was posted since the last batch.
    drained: answers::Posted,
    answers: Answers,
    /// When to look for members that have died: a peer's silence has failed a QP.
    reap_due: Option<Instant>,
    reaped_at: Instant,
}

impl Inner {
    pub fn new(
        device: Device<HostMemory>,
        member: Member,
        outbound: Outbound,
        reporter: Reporter,
        port: PortSide,
        network: Option<Box<Network>>,
    ) -> Inner {
        let frame = vec![0; device.max_frame_len()].into_boxed_slice();
        Inner {
            device,
            member,
            posted: PostedTable::default(),
            cqs: CqTable::default(),
            srqs: HashMap::new(),
            qps: HashMap::new(),
            contexts: Vec::new(),
            outbound,
            reporter,
            port,
            network,
            services: None,
            backlog: Vec::new(),
            rung: Vec::new(),
            completions: Box::new([Wc::default(); WC_BATCH]),
            rx: frame.clone(),
            tx: frame,
            quiet_turns: 0,
            arrived: 0,
            has_more: false,
            drained: answers::Posted::Nothing,
            answers: Answers::new(),
            reap_due: None,
            reaped_at: Instant::default(),
        }
    }

    /// Counts the frames the next batch takes. Called before the work queues are drained: a
    /// receive that was posted before the peer sent is there when the frame is looked at.
    pub fn see_arrivals(&mut self) {
        self.arrived = self.member.pending().min(BATCH);
        if let Some(network) = &mut self.network {
            network.fetch();
        }
    }

    /// Whether a frame has arrived, or something about the link.
    pub fn has_arrivals(&mut self) -> bool {
        self.see_arrivals();
        self.arrived > 0 || self.network.as_ref().is_some_and(|network| network.has_work())
    }

    /// Puts right where others look for the end of the inbound ring: one of them may have written
    /// nonsense there, and then no frame arrives that could tell.
    pub fn mend_ring(&mut self) {
        self.member.mend();
    }

    /// Hands what was posted to the device.
    pub fn drain(&mut self, doorbells: &Doorbells) {
        if doorbells.is_empty() {
            return;
        }
        doorbells.take(&mut self.rung);
        for tag in self.rung.drain(..) {
            // A queue that is gone may have rung before.
            if let Some(Some(queue)) = self.posted.queues.get_mut(tag as usize) {
                let posted = match queue {
                    Posted::Send(..) => answers::Posted::Sends,
                    Posted::Recv(..) | Posted::Srq(..) => answers::Posted::Receives,
                };
                self.drained = self.drained.max(posted);
                drain_queue(&mut self.device, queue);
            }
        }
    }

    /// Takes the frames seen to have arrived, runs timers, sends, and publishes what came of it.
    pub fn batch(&mut self, driver: Driver) -> Driven {
        if self.is_quiet(driver) {
            self.quiet_turns = self.quiet_turns.wrapping_add(1);
            if !self.quiet_turns.is_multiple_of(QUIET_TURNS) {
                self.answers.missed(std::mem::take(&mut self.drained));
                return Driven::Idle;
            }
        }
        if self.member.has_news() {
            self.hear();
        }
        let now = Instant::from_nanos(sys::now_ns());
        let received = self.receive(now) | self.receive_from_link(now);
        if self.device.poll_timeout().is_some_and(|at| at <= now) {
            self.device.handle_timeout(now);
        }
        let served = self.serve(now);
        // With a link, before anything is sent: that depends on what a program has been told. Else
        // frames are sent as fast as it is told of them, and its peers wait for those.
        let told = self.network.is_some() && self.publish(now);
        if self.network.is_some() {
            self.hold_ack(now, driver, told);
        }
        let sent = self.transmit(now);
        let published = self.publish(now) || told;
        self.outbound.lost.ring_full += self.member.flush() as u64;
        self.look_at_link();
        if self.reap_due.is_some_and(|due| due <= now) {
            self.reap(now);
        }
        if self.is_asked() {
            self.answer();
        }
        match received || served || sent || published {
            true => Driven::Worked { frames: received },
            false => Driven::Idle,
        }
    }

    /// Holds an ACK back where nobody waits for it, and lets one go that was. Only where an engine
    /// has a link: to another member of the fabric a frame is no dearer than the waiting, and comes
    /// alone.
    fn hold_ack(&mut self, now: Instant, driver: Driver, told: bool) {
        let (posted, held) = (std::mem::take(&mut self.drained), self.device.held_ack());
        if self.answers.driven(&Drive { now, driver, posted, told, held }) {
            return;
        }
        self.device.release_ack();
        let begins = held.is_none()
            && told
            && driver == Driver::Poller
            && self.outbound.is_quiet()
            && self.device.hold_ack();
        if begins && !self.answers.told(now) {
            self.device.release_ack();
        }
    }

    /// Whether there is nothing to do but for timers.
    fn is_quiet(&self, driver: Driver) -> bool {
        self.arrived == 0
            && self.network.as_ref().is_none_or(|network| !network.has_work())
            && self.device.is_quiet()
            && self.outbound.is_quiet()
            && self.backlog.is_empty()
            && self.services.as_ref().is_none_or(|services| services.cm.is_quiet())
            && !self.is_asked()
            && !self.member.has_news()
            && self.may_poll(driver)
    }

    /// Whether an ACK that is held back, if one is, does not mind another poll.
    fn may_poll(&self, driver: Driver) -> bool {
        let held = self.device.held_ack();
        let is_poll = driver == Driver::Poller && self.drained == answers::Posted::Nothing;
        held.is_none() || is_poll && self.answers.may_poll(held)
    }

    /// When a batch is due though nothing happens. At once, if the last one has left something to
    /// send: whoever ran it may not come again.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.has_more {
            return Some(Instant::default());
        }
        let services = self.services.as_ref().and_then(|services| services.next_timeout());
        let network = self.network.as_ref().and_then(|network| network.next_timeout());
        let held = self.device.held_ack().map(|_| self.answers.due());
        let others = self.outbound.next_timeout().into_iter().chain(services).chain(network);
        let others = others.chain(held).chain(self.reap_due);
        self.device.poll_timeout().into_iter().chain(others).min()
    }

    /// Looks for members that have died, whose memory would stay as long as it is mapped here.
    #[cold]
    fn reap(&mut self, now: Instant) {
        (self.reap_due, self.reaped_at) = (None, now);
        self.member.reap();
    }

    /// The Ethernet address of the next hop to `gid`. The fabric delivers by GID and QPN, so any
    /// will do for a stranger's.
    pub fn mac_of(&mut self, gid: Gid) -> Mac {
        self.member.mac_of(gid).unwrap_or_default()
    }

    /// Takes the completions of a QP out of the rings of its CQs.
    pub fn forget_completions(&mut self, qp: &QueuePair) {
        for cq in [qp.init.send_cq, qp.init.recv_cq].into_iter().flatten() {
            if let Some(side) = self.cqs.get_mut(cq) {
                side.forget(qp.qpn);
            }
        }
    }

    /// Sends what a QP has been given and what it owes its peer, as far as the peer and the link
    /// take it at once.
    pub fn send_rest(&mut self, qpn: Qpn) {
        self.device.release_ack();
        let mut left = usize::MAX;
        let mut in_vain = 0;
        while let Some((sends, _)) = self.device.outstanding(qpn)
            && self.device.wants_to_transmit(qpn)
            && in_vain < REST
        {
            // Work of a reliable service retires when the peer has answered.
            in_vain = if sends < left { 0 } else { in_vain + 1 };
            left = sends;
            self.batch(Driver::Other);
        }
    }

    /// Tells the application's end of a QP its state.
    pub fn refresh_state(&self, qp: &QueuePair) {
        refresh_state(&self.device, qp);
    }

    fn receive(&mut self, now: Instant) -> bool {
        let mut received = false;
        if self.arrived == 0 {
            self.member.found_nothing();
        }
        for _ in 0..std::mem::take(&mut self.arrived) {
            let Inner { device, member, outbound, network, rx, .. } = self;
            // What goes on to the link is there already.
            let room = network.as_mut().and_then(|network| network.room());
            let is_linked = room.is_some();
            let buffer = room.unwrap_or(rx);
            // With a link it is not known yet whether this device will look at the ICRC.
            let arrival = member.receive(buffer, !is_linked);
            let Some(Received { len, tag, sum }) = arrival else { break };
            received = true;
            let frame = &mut buffer[..len];
            outbound.record_arrival(now, frame, tag);
            let leaves = if is_linked { leaves(frame, member) } else { Leaves::No };
            match leaves {
                Leaves::No => outbound.admit(now, frame, sum, device),
                // What faults do to it here is not for the network.
                Leaves::Also if device.hears_multicast() => {
                    outbound.admit(now, &mut frame.to_vec(), None, device);
                }
                Leaves::Yes | Leaves::Also => {}
            }
            if let (Leaves::Yes | Leaves::Also, Some(network)) = (leaves, network) {
                network.push(len);
            }
        }
        received
    }

    fn receive_from_link(&mut self, now: Instant) -> bool {
        let Inner { device, member, outbound, network, .. } = self;
        network.as_mut().is_some_and(|network| network.take(now, device, member, outbound))
    }

    /// Sees to it that everybody learns what has become of the link.
    #[inline]
    fn look_at_link(&mut self) {
        let Some(network) = &mut self.network else { return };
        if network.has_changed() {
            network.look();
            self.has_more = true;
        }
        if let Some(error) = network.take_failure() {
            let link = network.name();
            tracing::error!(%link, %error, "the link is gone; the fabric's own traffic goes on");
            self.network = None;
            self.member.resign();
            self.port.lose_link();
            self.hear();
            self.has_more = true;
        }
    }

    /// Does what connection management has to do.
    fn serve(&mut self, now: Instant) -> bool {
        let Inner { device, member, services, .. } = self;
        services.as_mut().is_some_and(|services| services.run(now, device, member))
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let mut sent = false;
        let Inner { device, member, outbound, network, services, tx, .. } = self;
        outbound.run_delayed(now, member, device, network.as_deref_mut());
        self.has_more = true;
        for _ in 0..BATCH {
            // A frame that waits has a timer of its own.
            let is_clear = outbound.is_clear(now, member);
            let room = network.as_mut().and_then(|network| network.room()).unwrap_or(tx);
            let len = if is_clear { device.poll_transmit(now, room) } else { None };
            let Some(len) = len else {
                let is_held = |services: &Services| services.has_more(device);
                self.has_more = is_clear && services.as_deref().is_some_and(is_held);
                break;
            };
            sent = true;
            let sender = || device.sender();
            let (outcome, len) = outbound.send(now, sender, &mut room[..len], member);
            match outcome {
                Outcome::Own => {
                    let _ = device.handle_frame(now, &room[..len]);
                }
                Outcome::Link => match network {
                    Some(network) if !network.has_failed() => network.push(len),
                    _ => outbound.lost.unreachable += 1,
                },
                Outcome::Gone => {}
            }
        }
        if let Some(network) = network {
            network.flush();
        }
        sent
    }

    fn publish(&mut self, now: Instant) -> bool {
        let mut published = false;
        for cq in std::mem::take(&mut self.backlog) {
            if let Some(side) = self.cqs.get(cq) {
                side.shared.has_backlog.store(false, Ordering::Relaxed);
            }
            published |= self.publish_cq(now, cq);
        }
        while let Some(cq) = self.device.poll_ready_cq() {
            if self.services.as_ref().is_some_and(|services| services.owns(cq)) {
                // What this device has sent to itself.
                self.has_more |= self.serve(now);
                continue;
            }
            published |= self.publish_cq(now, cq);
        }
        while let Some(event) = self.device.poll_event() {
            self.tell(event);
        }
        published
    }

    /// Moves a CQ's completions to its ring, and tells its channel if it is armed.
    fn publish_cq(&mut self, now: Instant, cq: Cq) -> bool {
        let Some(side) = self.cqs.get_mut(cq) else { return false };
        let batch = &mut self.completions;
        let (mut published, mut solicited) = (false, false);
        loop {
            let room = side.producer.room(WC_BATCH);
            let count = self.device.poll_cq(cq, &mut batch[..room]).unwrap_or(0);
            for wc in &batch[..count] {
                solicited |= wc.solicited || wc.status != WcStatus::Success;
                if wc.status != WcStatus::Success
                    && let Some(qp) = self.qps.get(&wc.qp_num)
                {
                    refresh_state(&self.device, qp);
                }
                if wc.status == WcStatus::RetryExcErr {
                    let due = now.max(self.reaped_at + REAP_REST_NS);
                    self.reap_due.get_or_insert(due);
                }
                let completion = Completion { wc: *wc, at: now.nanos() };
                side.producer.push(completion).expect("room was asked for");
            }
            published |= count > 0;
            if count < WC_BATCH {
                // Once, however often more completions come.
                if count == room && !side.shared.has_backlog.swap(true, Ordering::Relaxed) {
                    self.backlog.push(cq);
                }
                break;
            }
        }
        if published {
            side.producer.publish();
            if side.shared.armed.fires(solicited)
                && let Some(channel) = &side.shared.channel
            {
                side.shared.notified.fetch_add(1, Ordering::Release);
                channel.push(side.shared.cookie);
            }
        }
        published
    }

    /// Tells the context of an object what happened to it.
    fn tell(&self, event: Event) {
        match event {
            // Channels are told by the rings.
            Event::Completion(_) => {}
            Event::Cq(cq, kind) => {
                if let Some(CqSide { shared, .. }) = self.cqs.get(cq) {
                    shared.events.push(AsyncEvent { kind, subject: Subject::Cq(shared.cookie) });
                }
            }
            Event::Qp(qpn, kind) => {
                if let Some(qp) = self.qps.get(&qpn) {
                    self.refresh_state(qp);
                    qp.events.push(AsyncEvent { kind, subject: Subject::Qp(qp.cookie) });
                }
            }
            Event::Srq(srq, kind) => {
                if let Some(srq) = self.srqs.get(&srq) {
                    srq.events.push(AsyncEvent { kind, subject: Subject::Srq(srq.cookie) });
                }
            }
            Event::Port(kind) => self.tell_contexts(kind),
        }
    }

    fn tell_contexts(&self, kind: EventKind) {
        for context in &self.contexts {
            context.push(AsyncEvent { kind, subject: Subject::Port });
        }
    }
}

fn refresh_state(device: &Device<HostMemory>, qp: &QueuePair) {
    if let Ok(state) = device.qp_state(qp.qpn) {
        qp.state.store(state as u8, Ordering::Release);
        // Who posts receives rings a bell and then looks here; the bells are looked at after this.
        fence(Ordering::SeqCst);
    }
}

/// Posts everything in `queue` to the device. What it refuses vanishes, as in RESET everything
/// does: all else was refused when it was posted.
fn drain_queue(device: &mut Device<HostMemory>, queue: &mut Posted) {
    match queue {
        Posted::Send(qpn, ring) => {
            let mut post = |entry: SendEntry, sges: &[Sge], bytes: &[u8]| {
                let data =
                    if entry.inline { SendData::Inline(bytes) } else { SendData::Sges(sges) };
                let SendEntry { wr_id, op, flags, ud, srqn, .. } = entry;
                let _ = device.post_send(*qpn, &SendWr { wr_id, op, data, flags, ud, srqn });
            };
            while ring.pop(&mut post).is_some() {}
            ring.release();
        }
        Posted::Recv(qpn, ring) => {
            let mut post = |wr_id, sges: &[Sge], _: &[u8]| {
                let _ = device.post_recv(*qpn, &RecvWr { wr_id, sges });
            };
            while ring.pop(&mut post).is_some() {}
            ring.release();
        }
        Posted::Srq(srq, ring) => {
            let mut post = |wr_id, sges: &[Sge], _: &[u8]| {
                let _ = device.post_srq_recv(*srq, &RecvWr { wr_id, sges });
            };
            while ring.pop(&mut post).is_some() {}
            ring.release();
        }
    }
}
