//! Receive work requests in posting order: a QP's own receive queue, and the shared receive
//! queue with its limit event (IBA 10.2.9).

use std::collections::VecDeque;

use crate::verbs::{Cq, Pd, RecvWr, Sge, VerbsError, Xrcd};

#[derive(Debug)]
struct RecvWqe {
    wr_id: u64,
    sge_count: u32,
}

/// A FIFO of receive work requests.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    wqes: VecDeque<RecvWqe>,
    /// The SGEs of all of them, in order.
    sges: VecDeque<Sge>,
    capacity: usize,
    max_sge: usize,
    /// Ever posted.
    posted: u64,
}

impl RecvQueue {
    pub fn new(capacity: usize, max_sge: usize) -> RecvQueue {
        RecvQueue { wqes: VecDeque::new(), sges: VecDeque::new(), capacity, max_sge, posted: 0 }
    }

    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Those that have left it, however they did.
    pub fn taken(&self) -> u64 {
        self.posted - self.wqes.len() as u64
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Appends a work request. `held` were taken and have not completed: they may be put back, so
    /// their slots are not free.
    pub fn post(&mut self, wr: &RecvWr, held: usize) -> Result<(), VerbsError> {
        if wr.sges.len() > self.max_sge {
            return Err(VerbsError::Invalid);
        }
        if self.wqes.len() + held >= self.capacity {
            return Err(VerbsError::NoMemory);
        }
        self.wqes.push_back(RecvWqe { wr_id: wr.wr_id, sge_count: wr.sges.len() as u32 });
        self.sges.extend(wr.sges);
        self.posted += 1;
        Ok(())
    }

    /// Bytes the oldest takes.
    pub fn next_len(&self) -> Option<u64> {
        let wqe = self.wqes.front()?;
        Some(self.sges.iter().take(wqe.sge_count as usize).map(|sge| u64::from(sge.length)).sum())
    }

    /// Takes the oldest into `held`, whose buffer is used again.
    pub fn take(&mut self, held: &mut HeldRecv) -> bool {
        let Some(wqe) = self.wqes.pop_front() else {
            return false;
        };
        held.wr_id = wqe.wr_id;
        held.sges.clear();
        held.sges.extend(self.sges.drain(..wqe.sge_count as usize));
        held.len = held.sges.iter().map(|sge| u64::from(sge.length)).sum();
        held.filled = 0;
        true
    }

    /// Puts one back that was not used up (UC without an SRQ rewinds it).
    pub fn put_back(&mut self, held: &HeldRecv) {
        self.wqes.push_front(RecvWqe { wr_id: held.wr_id, sge_count: held.sges.len() as u32 });
        for &sge in held.sges.iter().rev() {
            self.sges.push_front(sge);
        }
    }

    /// Takes the oldest and forgets its memory.
    pub fn flush_one(&mut self) -> Option<u64> {
        let wqe = self.wqes.pop_front()?;
        self.sges.drain(..wqe.sge_count as usize);
        Some(wqe.wr_id)
    }

    pub fn clear(&mut self) {
        self.wqes.clear();
        self.sges.clear();
    }
}

/// The receive work request a message in progress fills.
#[derive(Debug, Default)]
pub(crate) struct HeldRecv {
    pub wr_id: u64,
    pub sges: Vec<Sge>,
    /// Bytes all SGEs take.
    pub len: u64,
    /// Bytes placed.
    pub filled: u64,
}

/// What an XRC SRQ has beyond a basic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XrcPart {
    pub xrcd: Xrcd,
    /// Where its receives complete.
    pub cq: Cq,
}

#[derive(Debug)]
pub(crate) struct SharedRecvQueue {
    pub pd: Pd,
    pub xrc: Option<XrcPart>,
    pub queue: RecvQueue,
    /// Armed where not 0.
    pub limit: usize,
    pub users: u32,
}

impl SharedRecvQueue {
    /// Takes the oldest; the second value tells that the queue fell below its limit, once.
    pub fn take(&mut self, held: &mut HeldRecv) -> (bool, bool) {
        let taken = self.queue.take(held);
        (taken, self.limit_reached())
    }

    /// Whether fewer are posted than the armed limit; disarms it.
    pub fn limit_reached(&mut self) -> bool {
        let reached = self.queue.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// Changes the capacity.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] below what is posted or below the limit.
    pub fn resize(&mut self, capacity: usize) -> Result<(), VerbsError> {
        if capacity == 0 || capacity < self.queue.len() || capacity < self.limit {
            return Err(VerbsError::Invalid);
        }
        self.queue.capacity = capacity;
        Ok(())
    }
}
