//! Completion queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferroce_stack::verbs::{self, VerbsError, Wc, WcStatus};

use super::context::Deadline;
use super::{Context, Error};
use crate::engine::{Channel, Completion, CompletionQueue, Subject};

/// Polls before a waiter sleeps: about as long as it takes to wake a sleeper.
const POLLS_BEFORE_SLEEP: u32 = 64;

/// A completion queue with a completion channel of its own. Clones are the same; it is destroyed
/// when no QP or SRQ uses it any more.
#[derive(Clone, Debug)]
pub struct Cq {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    queue: Arc<CompletionQueue>,
    channel: Arc<Channel>,
    id: u64,
    /// Threads in [`Cq::wait`] that sleep or are about to.
    waiters: AtomicU32,
}

impl Cq {
    pub(super) fn new(context: &Context, cqe: u32) -> Result<Cq, Error> {
        let channel = Channel::new()
            .map_err(|source| Error::Io { action: "make an eventfd for completions", source })?;
        let channel = Arc::new(channel);
        let id = context.next_id();
        let events = context.inner.events.clone();
        let created = context.engine().create_cq(cqe, Some(channel.clone()), events, id);
        let queue = created.map_err(|error| {
            let max = context.inner.limits.max_cqe;
            context.refused("create_cq", error, || format!("cqe is {cqe}, not 1 to {max}"))
        })?;
        let waiters = AtomicU32::new(0);
        let inner = Inner { context: context.clone(), queue, channel, id, waiters };
        Ok(Cq { inner: Arc::new(inner) })
    }

    /// How events name it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Takes the oldest completions into `out`; how many. Whoever polls drives the device.
    pub fn poll(&self, out: &mut [Completion]) -> usize {
        self.inner.context.engine().poll_cq(&self.inner.queue, out)
    }

    /// Takes the oldest completion, if there is one.
    pub fn poll_one(&self) -> Option<Completion> {
        let mut out = [Completion::default()];
        (self.poll(&mut out) > 0).then_some(out[0])
    }

    /// Waits for a completion, good or bad: polls for a moment, then sleeps.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn wait(&self, timeout: Duration) -> Result<Completion, Error> {
        for _ in 0..POLLS_BEFORE_SLEEP {
            if let Some(completion) = self.poll_one() {
                return Ok(completion);
            }
        }
        let inner = &*self.inner;
        inner.waiters.fetch_add(1, Ordering::SeqCst);
        let outcome = self.sleep(Deadline::after(timeout));
        let others = inner.waiters.fetch_sub(1, Ordering::SeqCst) > 1;
        if others {
            // There may be more completions, and this thread may have taken the only event.
            inner.channel.push(inner.id);
        }
        outcome
    }

    /// Asks for [`AsFd::as_fd`] to become readable at the next completion, or only at one that is
    /// solicited or failed. Completions already there do not count: poll again after this.
    pub fn arm(&self, solicited_only: bool) {
        self.inner.context.engine().req_notify_cq(&self.inner.queue, solicited_only);
    }

    /// Takes the events that have made the descriptor readable; how many.
    pub fn clear(&self) -> usize {
        self.inner.channel.remove(|_| true)
    }

    /// Changes how many completions it takes; those it holds stay, in order.
    ///
    /// # Errors
    /// If `cqe` is 0, below the number held, or more than the device takes.
    pub fn resize(&self, cqe: u32) -> Result<(), Error> {
        let context = &self.inner.context;
        context.engine().resize_cq(&self.inner.queue, cqe).map_err(|error| {
            let max = context.inner.limits.max_cqe;
            let cause = || format!("cqe is {cqe}, not 1 to {max}, or below the number held");
            context.refused("resize", error, cause)
        })
    }

    fn sleep(&self, deadline: Deadline) -> Result<Completion, Error> {
        self.clear();
        loop {
            self.arm(false);
            if let Some(completion) = self.poll_one() {
                return Ok(completion);
            }
            deadline.wait_readable(self.as_fd())?;
            // The event has disarmed it: it is not left armed for nobody.
            self.clear();
            if let Some(completion) = self.poll_one() {
                return Ok(completion);
            }
        }
    }

    pub(super) fn handle(&self) -> verbs::Cq {
        self.inner.queue.handle()
    }
}

/// Readable when an armed CQ has got a completion ([`Cq::arm`]): for poll and epoll. [`Cq::clear`]
/// makes it unreadable again. [`Cq::wait`] uses the same events: beside it, expect one too many.
impl AsFd for Cq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.channel.as_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody uses it: they hold a clone.
        let _: Result<(), VerbsError> = self.context.engine().destroy_cq(&self.queue);
        self.context.forget(Subject::Cq(self.id));
    }
}

impl Completion {
    /// The work completion of a success.
    ///
    /// # Errors
    /// [`Error::Completion`] if the work request failed.
    pub fn ok(self) -> Result<Wc, Error> {
        match self.wc.status {
            WcStatus::Success => Ok(self.wc),
            _ => Err(Error::Completion(self.wc)),
        }
    }

    /// Immediate data of a receive.
    pub fn imm(&self) -> Option<u32> {
        self.wc.imm_data.map(u32::from_be_bytes)
    }
}
