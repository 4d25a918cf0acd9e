//! The application's side: posting and polling. Neither waits for the engine's lock, but for a
//! work queue that seems full.

use std::sync::MutexGuard;
use std::sync::atomic::{Ordering, fence};

use ferroce_stack::verbs::{QpState, RecvWr, SendData, SendFlags, SendWr, Sge, VerbsError};

use super::batch::Driver;
use super::objects::{SendEntry, WorkQueue};
use super::{Completion, CompletionQueue, Core, Driven, Engine, QueuePair, SharedReceiveQueue};
use crate::doorbell::Bell;
use crate::sync::lock;

/// Send work requests on their way into a queue. They are published, and the engine driven, when
/// the batch is dropped.
#[derive(Debug)]
pub struct SendBatch<'a> {
    engine: &'a Engine,
    qp: &'a QueuePair,
    queue: Option<MutexGuard<'a, WorkQueue<SendEntry>>>,
}

/// Receive work requests on their way into a queue. They are published when the batch is dropped,
/// and nobody drives for them: whoever takes a frame takes what was posted before it first.
#[derive(Debug)]
pub struct RecvBatch<'a> {
    engine: &'a Engine,
    to: Receiver<'a>,
    queue: Option<MutexGuard<'a, WorkQueue<u64>>>,
}

#[derive(Clone, Copy, Debug)]
enum Receiver<'a> {
    Qp(&'a QueuePair),
    Srq(&'a SharedReceiveQueue),
}

impl Engine {
    /// Begins to post sends.
    pub fn send<'a>(&'a self, qp: &'a QueuePair) -> SendBatch<'a> {
        SendBatch { engine: self, qp, queue: Some(lock(&qp.sq)) }
    }

    /// Begins to post receives to a QP's own queue.
    pub fn recv<'a>(&'a self, qp: &'a QueuePair) -> RecvBatch<'a> {
        RecvBatch { engine: self, to: Receiver::Qp(qp), queue: Some(lock(&qp.rq)) }
    }

    /// Begins to post receives to an SRQ.
    pub fn recv_shared<'a>(&'a self, srq: &'a SharedReceiveQueue) -> RecvBatch<'a> {
        RecvBatch { engine: self, to: Receiver::Srq(srq), queue: Some(lock(&srq.rq)) }
    }

    /// Takes the oldest completions into `out`; how many. Drives the engine if there are none.
    pub fn poll_cq(&self, cq: &CompletionQueue, out: &mut [Completion]) -> usize {
        let mut count = cq.take(out);
        self.core.progress.polled();
        // What the ring had no room for is as much there as what is in it.
        let is_short = count == 0 || cq.has_backlog.load(Ordering::Relaxed);
        if is_short && count < out.len() {
            if !self.is_here() {
                return count;
            }
            if self.core.try_drive(Driver::Poller) != Driven::Idle {
                count += cq.take(&mut out[count..]);
            }
            if count == 0 {
                let streak = cq.empty_polls.fetch_add(1, Ordering::Relaxed) + 1;
                self.core.progress.empty_poll(streak);
                return 0;
            }
        }
        cq.empty_polls.store(0, Ordering::Relaxed);
        self.core.returned(count);
        count
    }

    /// Arms a CQ for one event of its channel: at the next completion, or only at a solicited or
    /// failed one. What it holds already does not count: look again after arming.
    pub fn req_notify_cq(&self, cq: &CompletionQueue, solicited_only: bool) {
        cq.armed.arm(solicited_only);
        if self.is_here() {
            self.core.progress.notified();
        }
    }
}

impl CompletionQueue {
    /// Takes the oldest completions into `out` without driving the engine; how many.
    pub fn take(&self, out: &mut [Completion]) -> usize {
        let mut entries = lock(&self.entries);
        let mut count = 0;
        while count < out.len() {
            let Some(completion) = entries.pop() else { break };
            out[count] = completion;
            count += 1;
        }
        if count > 0 {
            entries.release();
        }
        count
    }
}

impl Core {
    /// After `count` completions have been given to the application. One that has no more to come
    /// stops polling: from then on the thread has to look for frames.
    fn returned(&self, count: usize) {
        let left = self.outstanding.fetch_sub(count as i64, Ordering::Relaxed) - count as i64;
        if left <= 0 && self.is_here() && self.progress.leave() {
            self.try_drive(Driver::Other);
        }
    }

    /// After posting receives. Those of a QP in ERR are to be flushed, which takes a drive. One
    /// that gets there just now has its bell found, or its state seen here.
    fn posted_receives(&self, to: Receiver<'_>) {
        fence(Ordering::SeqCst);
        match to {
            Receiver::Qp(qp) if qp.state() == QpState::Err => self.posted(),
            _ => self.progress.posted(),
        }
    }

    /// After posting sends.
    fn posted(&self) {
        if !self.is_here() {
            return;
        }
        self.progress.posted();
        if self.try_drive(Driver::Other) == Driven::Busy {
            self.progress.ring_bell();
        }
    }
}

impl SendBatch<'_> {
    /// Makes sure that `count` more work requests find room.
    ///
    /// # Errors
    /// [`VerbsError::NoMemory`] if they do not.
    pub fn reserve(&mut self, count: usize) -> Result<(), VerbsError> {
        let Some(queue) = self.queue.as_deref_mut() else { return Err(VerbsError::Invalid) };
        if !queue.seems_to_have_room(count) {
            // The drop of this batch drives.
            queue.retired = self.engine.core.visit()?.device.retired(self.qp.qpn)?.0;
        }
        if queue.seems_to_have_room(count) { Ok(()) } else { Err(VerbsError::NoMemory) }
    }

    /// Adds a work request.
    ///
    /// # Errors
    /// As [`ferroce_stack::verbs::QpInit::check_send`]; [`VerbsError::NoMemory`] if the queue is
    /// full.
    pub fn push(&mut self, wr: &SendWr) -> Result<(), VerbsError> {
        self.qp.init.check_send(self.qp.state(), wr)?;
        self.reserve(1)?;
        let Some(queue) = self.queue.as_deref_mut() else { return Err(VerbsError::Invalid) };
        let (sges, bytes): (&[Sge], &[u8]) = match wr.data {
            SendData::Sges(sges) => (sges, &[]),
            SendData::Inline(bytes) => (&[], bytes),
        };
        let inline = matches!(wr.data, SendData::Inline(_));
        let SendWr { wr_id, op, flags, ud, srqn, .. } = *wr;
        let flags = if inline { flags | SendFlags::INLINE } else { flags };
        let entry = SendEntry { wr_id, op, flags, ud, srqn, inline };
        if self.qp.init.sq_sig_all || flags.has(SendFlags::SIGNALED) {
            self.engine.core.outstanding.fetch_add(1, Ordering::Relaxed);
        }
        queue.post(self.engine, &self.qp.sq_bell, entry, sges, bytes)
    }
}

impl Drop for SendBatch<'_> {
    fn drop(&mut self) {
        if let Some(mut queue) = self.queue.take() {
            queue.ring.publish();
            // Before the queue is unlocked: the next to post relies on a bell that has rung.
            self.qp.sq_bell.ring();
            drop(queue);
            self.engine.core.posted();
        }
    }
}

impl RecvBatch<'_> {
    /// Adds a work request.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] in RESET, without an own receive queue, or for too many SGEs;
    /// [`VerbsError::NoMemory`] if the queue is full.
    pub fn push(&mut self, wr: &RecvWr) -> Result<(), VerbsError> {
        let Some(queue) = self.queue.as_deref_mut() else { return Err(VerbsError::Invalid) };
        let bell = match self.to {
            Receiver::Qp(qp) => {
                qp.init.check_recv(qp.state(), wr)?;
                &qp.rq_bell
            }
            Receiver::Srq(srq) if wr.sges.len() > srq.max_sge as usize => {
                return Err(VerbsError::Invalid);
            }
            Receiver::Srq(srq) => &srq.bell,
        };
        if queue.seems_full() {
            // The drop of this batch drives.
            let inner = self.engine.core.visit()?;
            queue.retired = match self.to {
                Receiver::Qp(qp) => inner.device.retired(qp.qpn)?.1,
                Receiver::Srq(srq) => inner.device.srq_retired(srq.handle)?,
            };
        }
        if queue.seems_full() {
            return Err(VerbsError::NoMemory);
        }
        self.engine.core.outstanding.fetch_add(1, Ordering::Relaxed);
        queue.post(self.engine, bell, wr.wr_id, wr.sges, &[])
    }
}

impl Drop for RecvBatch<'_> {
    fn drop(&mut self) {
        if let Some(mut queue) = self.queue.take() {
            queue.ring.publish();
            match self.to {
                Receiver::Qp(qp) => qp.rq_bell.ring(),
                Receiver::Srq(srq) => srq.bell.ring(),
            }
            drop(queue);
            self.engine.core.posted_receives(self.to);
        }
    }
}

impl<T: Copy> WorkQueue<T> {
    /// Writes an entry into the ring; has it drained first if it is full.
    fn post(
        &mut self,
        engine: &Engine,
        bell: &Bell,
        entry: T,
        sges: &[Sge],
        bytes: &[u8],
    ) -> Result<(), VerbsError> {
        if self.ring.push(entry, sges, bytes).is_err() {
            self.ring.publish();
            bell.ring();
            drop(engine.core.visit()?);
            self.ring.push(entry, sges, bytes).map_err(|_| VerbsError::NoMemory)?;
        }
        self.posted += 1;
        Ok(())
    }
}
