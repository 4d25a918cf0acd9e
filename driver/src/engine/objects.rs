//! What an application holds of its objects: the application's ends of their rings.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_stack::verbs::{
    Cq, EventKind, QpInit, QpState, Qpn, SendFlags, SendOp, Sge, Srq, UdTarget, Wc,
};

use crate::doorbell::Bell;
use crate::event::{Armed, EventQueue};
use crate::ring::{Consumer, WorkProducer};

/// Where armed CQs tell of completions: the cookie of the CQ, once for each time it was armed.
pub type Channel = EventQueue<u64>;

/// Where a context hears what no completion tells.
pub type AsyncQueue = EventQueue<AsyncEvent>;

/// What kind of object an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A CQ, by its cookie.
    Cq(u64),
    /// A QP, by its cookie.
    Qp(u64),
    /// An SRQ, by its cookie.
    Srq(u64),
    /// The port.
    Port,
}

/// An asynchronous event (IBA 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// To what.
    pub subject: Subject,
}

/// A completion and when it was published.
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    /// The work completion.
    pub wc: Wc,
    /// Nanoseconds of the monotonic clock.
    pub at: u64,
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(super) handle: Cq,
    pub(super) entries: Mutex<Consumer<Completion>>,
    pub(super) armed: Armed,
    pub(super) channel: Option<Arc<Channel>>,
    pub(super) events: Arc<AsyncQueue>,
    pub(super) cookie: u64,
    pub(super) cqe: AtomicU32,
    /// Polls in a row that found nothing.
    pub(super) empty_polls: AtomicU32,
    /// The ring had no room for all its completions.
    pub(super) has_backlog: AtomicBool,
    pub(super) notified: AtomicU32,
}

impl CompletionQueue {
    /// The handle in the device.
    pub fn handle(&self) -> Cq {
        self.handle
    }

    /// Completions it takes.
    pub fn cqe(&self) -> u32 {
        self.cqe.load(Ordering::Relaxed)
    }

    /// The channel it tells of completions.
    pub fn channel(&self) -> Option<&Arc<Channel>> {
        self.channel.as_ref()
    }

    /// Events its channel has been told of it, modulo 2^32; no more once it is destroyed. Less
    /// those taken back unread, so many are in the application's hands.
    pub fn notified(&self) -> u32 {
        self.notified.load(Ordering::Acquire)
    }
}

/// The fixed part of a send work request in its ring; SGEs or inline bytes lie beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendEntry {
    pub wr_id: u64,
    pub op: SendOp,
    pub flags: SendFlags,
    pub ud: Option<UdTarget>,
    pub srqn: Option<u32>,
    pub inline: bool,
}

/// The application's end of a work queue.
#[derive(Debug)]
pub(super) struct WorkQueue<T: Copy> {
    pub ring: WorkProducer<T, Sge>,
    /// Work requests it may hold until they retire.
    pub max_wr: u32,
    /// Ever posted.
    pub posted: u64,
    /// Known to have retired.
    pub retired: u64,
}

impl<T: Copy> WorkQueue<T> {
    pub fn new(ring: WorkProducer<T, Sge>, max_wr: u32) -> WorkQueue<T> {
        WorkQueue { ring, max_wr, posted: 0, retired: 0 }
    }

    /// Whether it has room for `count` more, as far as it knows.
    pub fn seems_to_have_room(&self, count: usize) -> bool {
        self.posted - self.retired + count as u64 <= u64::from(self.max_wr)
    }

    /// Whether it holds as many as it may, as far as it knows.
    pub fn seems_full(&self) -> bool {
        !self.seems_to_have_room(1)
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    pub(super) qpn: Qpn,
    pub(super) init: QpInit,
    pub(super) state: AtomicU8,
    pub(super) sq: Mutex<WorkQueue<SendEntry>>,
    pub(super) rq: Mutex<WorkQueue<u64>>,
    pub(super) sq_bell: Bell,
    pub(super) rq_bell: Bell,
    pub(super) events: Arc<AsyncQueue>,
    pub(super) cookie: u64,
}

impl QueuePair {
    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// What it was made of.
    pub fn init(&self) -> &QpInit {
        &self.init
    }

    /// The state as last heard of: a QP that failed by itself may not have said so yet.
    pub fn state(&self) -> QpState {
        QpState::ALL[usize::from(self.state.load(Ordering::Acquire))]
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pub(super) handle: Srq,
    pub(super) max_sge: u32,
    pub(super) rq: Mutex<WorkQueue<u64>>,
    pub(super) bell: Bell,
    pub(super) events: Arc<AsyncQueue>,
    pub(super) cookie: u64,
}

impl SharedReceiveQueue {
    /// The handle in the device; its value is the SRQ number of XRC.
    pub fn handle(&self) -> Srq {
        self.handle
    }

    /// Scatter/gather entries of each receive.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }
}
