//! The engine: a device and its link behind one lock, and who drives them.
//!
//! Applications share rings with it: they write work requests and read completions, and never wait
//! for the lock to do so. Whoever polls an empty CQ, has just posted, or waits, tries the lock and
//! runs one bounded batch; if it is taken somebody else is making progress. A background thread
//! drives while nobody polls (`progress`). Control verbs wait for the lock.

mod answers;
mod batch;
mod cm;
mod drive;
mod exit;
mod network;
mod objects;
mod open;
mod outbound;
mod port;
mod ports;
mod post;
mod report;
mod sleeper;
mod thread;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use ferroce_stack::flow::{Flow, FlowRule};
use ferroce_stack::gid::Gid;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Ah, AhAttr, AttrMask, Pd, QpAttr, QpCap, QpInit, QpState, VerbsError};
use ferroce_stack::wire::Mac;
use ferroce_stack::{Config, Device, SrqAttr, SrqInit};

use crate::doorbell::Doorbells;
use crate::event::Armed;
use crate::frame::tap::Tap;
use crate::memory::HostMemory;
use crate::progress::{self, Driven, Progress};
use crate::quirk::Quirk;
use crate::ring::{ring, work_ring};
use crate::sync::lock;
use crate::sys;

use batch::{CqSide, Driver, Inner, Posted};
use objects::WorkQueue;
use open::Place;
use outbound::Outbound;
use port::PortSide;
use report::Reporter;
use sleeper::Sleeper;

pub use crate::event::EventQueue;
pub use cm::{CmGuard, CmSink};
pub use objects::{
    AsyncEvent, AsyncQueue, Channel, Completion, CompletionQueue, QueuePair, SharedReceiveQueue,
    Subject,
};
pub use open::{OpenError, Options, OwnLink};
pub use ports::{BoundPort, PortClaim, PortError};
pub use post::{RecvBatch, SendBatch};

/// Empty polls in a row before each yields the core, where frames come into a ring of a link's: in
/// that time one goes to a peer and its answer comes back, if the peer is near. By UDP, where each
/// poll is a system call, that takes fewer.
const POLLS_OF_RING: u32 = 80;

/// One device of this process.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

/// What its threads share.
#[derive(Debug)]
pub(crate) struct Core {
    inner: Mutex<Inner>,
    doorbells: Doorbells,
    progress: Progress<Sleeper>,
    /// Completions that are to come, as far as is known: signaled sends and receives.
    outstanding: AtomicI64,
    /// The process it works in: a forked child has neither its thread nor its ring.
    generation: u32,
}

/// The device, to oneself. What was posted before has reached it, and when the guard goes, what
/// the calls have caused is told and sent.
#[derive(Debug)]
pub struct Guard<'a> {
    inner: MutexGuard<'a, Inner>,
    /// Dropped after the lock.
    unlocked: Unlocked<'a>,
}

/// Looks, once the lock is free, whether somebody has posted meanwhile and left it to us.
#[derive(Debug)]
struct Unlocked<'a>(&'a Core);

impl Drop for Unlocked<'_> {
    fn drop(&mut self) {
        if !self.0.doorbells.is_empty() {
            self.0.try_drive(Driver::Other);
        }
    }
}

impl Deref for Guard<'_> {
    type Target = Device<HostMemory>;

    fn deref(&self) -> &Device<HostMemory> {
        &self.inner.device
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Device<HostMemory> {
        &mut self.inner.device
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.inner.batch(Driver::Other);
        self.unlocked.0.tell_deadline(&self.inner);
    }
}

impl Engine {
    /// Joins the fabric, opens the link if it is to own one and the fabric has no gateway, and
    /// starts the background thread.
    ///
    /// # Errors
    /// [`OpenError`] if the fabric cannot be joined, the link cannot be opened, an address is not
    /// one, the capture cannot be written, or there is no thread.
    pub fn open(options: &Options) -> Result<Engine, OpenError> {
        let Place { member, sleeper, network, active_mtu, line_rate } = Place::take(options)?;
        let control = options.congestion.cloned();
        let of_rxe = options.quirks.iter().map(|Quirk::RxeFlush(peer)| Gid::from_ip(*peer));
        let config = Config {
            active_mtu,
            qpns: member.qpns(),
            rxe_flush_peers: of_rxe.collect(),
            congestion: control.map(|control| control.on_link(line_rate)),
            loss_recovery: options.loss_recovery,
            ..Config::default()
        };
        let mut device = Device::new(config, HostMemory::new());
        for entry in options.gids {
            device.add_gid(*entry).map_err(|_| OpenError::Address(*entry))?;
        }
        let mut settings = progress::Settings::default();
        if network.as_ref().is_some_and(|network| network.has_ring()) {
            settings.polls_before_yield = POLLS_OF_RING;
        }
        let owns_link = network.is_some();
        let progress = Progress::new(sleeper, settings);
        let now = Instant::from_nanos(sys::now_ns());
        let tap = options.pcap.map(|path| {
            Tap::open(path, now).map_err(|error| OpenError::Capture(path.to_owned(), error))
        });
        let outbound = Outbound::new(options.faults, options.seed, tap.transpose()?);
        let port = PortSide::new(options.fabric, options.follows);
        let mut inner =
            Inner::new(device, member, outbound, Reporter::new(options.name), port, network);
        inner.hear();
        while inner.device.poll_event().is_some() {}
        let core = Arc::new(Core {
            inner: Mutex::new(inner),
            doorbells: Doorbells::new(),
            progress,
            outstanding: AtomicI64::new(0),
            generation: sys::fork_generation(),
        });
        let thread = thread::spawn(core.clone()).map_err(OpenError::Thread)?;
        if owns_link {
            exit::watch(&core);
        }
        Ok(Engine { core, thread: Some(thread) })
    }

    /// Takes the device to oneself; waits while somebody drives.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] in a process that was forked after the engine was opened.
    pub fn lock(&self) -> Result<Guard<'_>, VerbsError> {
        self.core.lock()
    }

    /// Has `events` hear of the port.
    ///
    /// # Errors
    /// As [`Engine::lock`].
    pub fn add_context(&self, events: Arc<AsyncQueue>) -> Result<(), VerbsError> {
        self.lock()?.inner.contexts.push(events);
        Ok(())
    }

    /// Undoes [`Engine::add_context`].
    ///
    /// # Errors
    /// As [`Engine::lock`].
    pub fn remove_context(&self, events: &Arc<AsyncQueue>) -> Result<(), VerbsError> {
        self.lock()?.inner.contexts.retain(|other| !Arc::ptr_eq(other, events));
        Ok(())
    }

    /// Whether this is still the process that opened it.
    pub fn is_here(&self) -> bool {
        self.core.is_here()
    }

    /// Makes a CQ for `cqe` completions, which tells `channel` of them and `events` if it
    /// overruns. `cookie` is how both name it.
    ///
    /// # Errors
    /// As [`Device::create_cq`]; [`VerbsError::NoMemory`].
    pub fn create_cq(
        &self,
        cqe: u32,
        channel: Option<Arc<Channel>>,
        events: Arc<AsyncQueue>,
        cookie: u64,
    ) -> Result<Arc<CompletionQueue>, VerbsError> {
        let mut guard = self.lock()?;
        let handle = guard.create_cq(cqe as usize)?;
        let Ok((producer, consumer)) = ring(cqe as usize) else {
            guard.destroy_cq(handle)?;
            return Err(VerbsError::NoMemory);
        };
        let cq = Arc::new(CompletionQueue {
            handle,
            entries: Mutex::new(consumer),
            armed: Armed::new(),
            channel,
            events,
            cookie,
            cqe: AtomicU32::new(cqe),
            empty_polls: AtomicU32::new(0),
            has_backlog: AtomicBool::new(false),
            notified: AtomicU32::new(0),
        });
        guard.inner.cqs.insert(handle, CqSide { shared: cq.clone(), producer });
        Ok(cq)
    }

    /// Changes how many completions a CQ takes; those it holds stay, in order.
    ///
    /// # Errors
    /// As [`Device::resize_cq`]; [`VerbsError::NoMemory`].
    pub fn resize_cq(&self, cq: &CompletionQueue, cqe: u32) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        let mut entries = lock(&cq.entries);
        if entries.pending() > cqe as usize || cqe as usize > guard.config().max_cqe {
            return Err(VerbsError::Invalid);
        }
        let (mut producer, consumer) = ring(cqe as usize).map_err(|_| VerbsError::NoMemory)?;
        guard.resize_cq(cq.handle, cqe as usize)?;
        while let Some(completion) = entries.pop() {
            // The ring takes as many as the queue does.
            let _ = producer.push(completion);
        }
        producer.publish();
        *entries = consumer;
        cq.cqe.store(cqe, Ordering::Relaxed);
        if let Some(side) = guard.inner.cqs.get_mut(cq.handle) {
            side.producer = producer;
        }
        Ok(())
    }

    /// Destroys a CQ and what it holds.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while QPs or SRQs complete there.
    pub fn destroy_cq(&self, cq: &CompletionQueue) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        guard.destroy_cq(cq.handle)?;
        guard.inner.cqs.remove(cq.handle);
        Ok(())
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// As [`Device::create_srq`]; [`VerbsError::NoMemory`].
    pub fn create_srq(
        &self,
        init: &SrqInit,
        events: Arc<AsyncQueue>,
        cookie: u64,
    ) -> Result<Arc<SharedReceiveQueue>, VerbsError> {
        let mut guard = self.lock()?;
        let handle = guard.create_srq(init)?;
        let Ok((producer, consumer)) = work_ring(init.max_wr as usize, init.max_sge as usize, 0)
        else {
            guard.destroy_srq(handle)?;
            return Err(VerbsError::NoMemory);
        };
        let tag = guard.inner.posted.reserve();
        let srq = Arc::new(SharedReceiveQueue {
            handle,
            max_sge: init.max_sge,
            rq: Mutex::new(WorkQueue::new(producer, init.max_wr)),
            bell: self.core.doorbells.hang(tag),
            events,
            cookie,
        });
        guard.inner.posted.fill(tag, Posted::Srq(handle, consumer));
        guard.inner.srqs.insert(handle, srq.clone());
        Ok(srq)
    }

    /// Changes the size of an SRQ, or arms its limit.
    ///
    /// # Errors
    /// As [`Device::modify_srq`]; [`VerbsError::NoMemory`].
    pub fn modify_srq(
        &self,
        srq: &SharedReceiveQueue,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), VerbsError> {
        let mut queue = lock(&srq.rq);
        let mut guard = self.lock()?;
        if max_wr.is_some_and(|max_wr| max_wr > guard.config().max_wr) {
            return Err(VerbsError::Invalid);
        }
        let new_ring = |max_wr| work_ring(max_wr as usize, srq.max_sge as usize, 0);
        let ring = max_wr.map(new_ring).transpose().map_err(|_| VerbsError::NoMemory)?;
        guard.modify_srq(srq.handle, max_wr, limit)?;
        if let (Some(max_wr), Some((producer, consumer))) = (max_wr, ring) {
            // Everything posted has been drained: who posts rings with the queue locked.
            queue.ring = producer;
            queue.max_wr = max_wr;
            guard.inner.posted.fill(srq.bell.tag(), Posted::Srq(srq.handle, consumer));
        }
        Ok(())
    }

    /// Size and limit of an SRQ.
    ///
    /// # Errors
    /// As [`Device::query_srq`].
    pub fn query_srq(&self, srq: &SharedReceiveQueue) -> Result<SrqAttr, VerbsError> {
        self.lock()?.query_srq(srq.handle)
    }

    /// Destroys an SRQ and what is posted to it.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while QPs receive from it.
    pub fn destroy_srq(&self, srq: &SharedReceiveQueue) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        guard.destroy_srq(srq.handle)?;
        guard.inner.posted.remove(srq.bell.tag());
        guard.inner.srqs.remove(&srq.handle);
        Ok(())
    }

    /// Makes a QP in RESET. `events` hears what happens to it, under the name `cookie`.
    ///
    /// # Errors
    /// As [`Device::create_qp`]; [`VerbsError::NoMemory`].
    pub fn create_qp(
        &self,
        init: &QpInit,
        events: Arc<AsyncQueue>,
        cookie: u64,
    ) -> Result<Arc<QueuePair>, VerbsError> {
        let mut guard = self.lock()?;
        let qpn = guard.create_qp(init)?;
        let QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
            init.cap;
        let has_own_queue = init.srq.is_none() && init.recv_cq.is_some();
        let max_recv_wr = if has_own_queue { max_recv_wr } else { 0 };
        let (Ok((sq, sends)), Ok((rq, receives))) = (
            work_ring(max_send_wr as usize, max_send_sge as usize, max_inline_data as usize),
            work_ring(max_recv_wr as usize, max_recv_sge as usize, 0),
        ) else {
            guard.destroy_qp(qpn)?;
            return Err(VerbsError::NoMemory);
        };
        let posted = &mut guard.inner.posted;
        let (sq_tag, rq_tag) = (posted.reserve(), posted.reserve());
        posted.fill(sq_tag, Posted::Send(qpn, sends));
        posted.fill(rq_tag, Posted::Recv(qpn, receives));
        let qp = Arc::new(QueuePair {
            qpn,
            init: *init,
            state: AtomicU8::new(QpState::Reset as u8),
            sq: Mutex::new(WorkQueue::new(sq, max_send_wr)),
            rq: Mutex::new(WorkQueue::new(rq, max_recv_wr)),
            sq_bell: self.core.doorbells.hang(sq_tag),
            rq_bell: self.core.doorbells.hang(rq_tag),
            events,
            cookie,
        });
        guard.inner.qps.insert(qpn, qp.clone());
        Ok(qp)
    }

    /// Changes state and attributes of a QP. RESET takes its completions out of the CQs, as
    /// programs start over without draining them, and waits for batches that are being posted.
    ///
    /// # Errors
    /// As [`Device::modify_qp`].
    pub fn modify_qp(
        &self,
        qp: &QueuePair,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), VerbsError> {
        // What is being posted meanwhile comes before or after: what reached a QP in RESET would
        // vanish and hold its place in the queue for ever.
        let resets = mask.has(AttrMask::STATE) && attr.qp_state == QpState::Reset;
        let _queues = resets.then(|| (lock(&qp.sq), lock(&qp.rq)));
        let mut guard = self.lock()?;
        if mask.has(AttrMask::STATE) && matches!(attr.qp_state, QpState::Err | QpState::Reset) {
            // As when it is destroyed.
            guard.inner.send_rest(qp.qpn);
        }
        let mut attr = *attr;
        if mask.has(AttrMask::AV) && attr.ah_attr.dmac == Default::default() {
            attr.ah_attr.dmac = guard.inner.mac_of(attr.ah_attr.dgid);
        }
        guard.modify_qp(qp.qpn, &attr, mask)?;
        guard.inner.refresh_state(qp);
        if qp.state() == QpState::Reset {
            guard.inner.forget_completions(qp);
        }
        Ok(())
    }

    /// Attributes of a QP.
    ///
    /// # Errors
    /// As [`Device::query_qp`].
    pub fn query_qp(&self, qp: &QueuePair) -> Result<(QpAttr, QpInit), VerbsError> {
        let guard = self.lock()?;
        guard.inner.refresh_state(qp);
        guard.query_qp(qp.qpn)
    }

    /// Destroys a QP; its work requests vanish without completions, and completions with it. What
    /// can be sent at once is sent before: programs count on a NIC being faster than they are.
    ///
    /// # Errors
    /// As [`Device::destroy_qp`].
    pub fn destroy_qp(&self, qp: &QueuePair) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        guard.inner.send_rest(qp.qpn);
        guard.destroy_qp(qp.qpn)?;
        guard.inner.forget_completions(qp);
        guard.inner.posted.remove(qp.sq_bell.tag());
        guard.inner.posted.remove(qp.rq_bell.tag());
        guard.inner.qps.remove(&qp.qpn);
        if guard.inner.qps.is_empty() {
            self.core.outstanding.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes an address handle; finds the next hop's MAC.
    ///
    /// # Errors
    /// As [`Device::create_ah`].
    pub fn create_ah(&self, pd: Pd, attr: &AhAttr) -> Result<Ah, VerbsError> {
        let mut guard = self.lock()?;
        let mut attr = *attr;
        attr.dmac = guard.inner.mac_of(attr.dgid);
        guard.create_ah(pd, &attr)
    }

    /// The Ethernet address of a device of the fabric, by its address.
    ///
    /// # Errors
    /// As [`Engine::lock`].
    pub fn mac_of(&self, gid: Gid) -> Result<Option<Mac>, VerbsError> {
        Ok(self.lock()?.inner.member.mac_of(gid))
    }

    /// Attaches a UD QP to a multicast group, or detaches it.
    ///
    /// # Errors
    /// As [`Device::attach_mcast`] and [`Device::detach_mcast`].
    pub fn set_multicast(
        &self,
        qp: &QueuePair,
        group: Gid,
        attached: bool,
    ) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        match attached {
            true => guard.attach_mcast(qp.qpn, group)?,
            false => guard.detach_mcast(qp.qpn, group)?,
        }
        let groups: Vec<Gid> = guard.groups().collect();
        guard.inner.member.set_groups(&groups);
        Ok(())
    }

    /// Steers frames that are not RoCE to a raw packet QP.
    ///
    /// # Errors
    /// As [`Device::create_flow`].
    pub fn create_flow(&self, qp: &QueuePair, rule: &FlowRule) -> Result<Flow, VerbsError> {
        let mut guard = self.lock()?;
        let flow = guard.create_flow(qp.qpn, rule)?;
        guard.inner.member.set_foreign(true);
        Ok(flow)
    }

    /// Undoes [`Engine::create_flow`].
    ///
    /// # Errors
    /// As [`Device::destroy_flow`].
    pub fn destroy_flow(&self, flow: Flow) -> Result<(), VerbsError> {
        let mut guard = self.lock()?;
        guard.destroy_flow(flow)?;
        let wants = guard.steers();
        guard.inner.member.set_foreign(wants);
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A forked child has no such thread, and what the C library knows of it may be in use for
        // another one.
        if !self.is_here() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.core.progress.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.core.end_connections();
    }
}
