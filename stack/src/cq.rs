//! Completion queue: capacity, overrun, one-shot arming (IBA 11.4.2).

use std::collections::VecDeque;

use crate::verbs::{Cq, Event, EventKind, Qpn, VerbsError, Wc, WcStatus};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Armed {
    #[default]
    No,
    Solicited,
    Next,
}

#[derive(Debug)]
pub(crate) struct CompletionQueue {
    entries: VecDeque<Wc>,
    capacity: usize,
    armed: Armed,
    /// A completion found no room: the queue is unusable and its QPs fail.
    pub overrun: bool,
    /// QPs and SRQs that complete here.
    pub users: u32,
    /// It stands among the device's ready ones.
    pub is_ready: bool,
}

impl CompletionQueue {
    pub fn new(capacity: usize) -> CompletionQueue {
        CompletionQueue {
            entries: VecDeque::new(),
            capacity,
            armed: Armed::No,
            overrun: false,
            users: 0,
            is_ready: false,
        }
    }

    /// Adds a completion; events it causes go to `events`.
    pub fn push(&mut self, handle: Cq, wc: Wc, events: &mut VecDeque<Event>) {
        if self.overrun {
            return;
        }
        if self.entries.len() == self.capacity {
            self.overrun = true;
            events.push_back(Event::Cq(handle, EventKind::CqErr));
            return;
        }
        self.entries.push_back(wc);
        let fires = match self.armed {
            Armed::No => false,
            Armed::Next => true,
            Armed::Solicited => wc.solicited || wc.status != WcStatus::Success,
        };
        if fires {
            self.armed = Armed::No;
            events.push_back(Event::Completion(handle));
        }
    }

    pub fn poll(&mut self, out: &mut [Wc]) -> usize {
        let count = out.len().min(self.entries.len());
        for (slot, wc) in out.iter_mut().zip(self.entries.drain(..count)) {
            *slot = wc;
        }
        count
    }

    /// Drops the completions of a QP.
    pub fn forget(&mut self, qpn: Qpn) {
        self.entries.retain(|wc| wc.qp_num != qpn);
    }

    /// Arms the queue; of two requests the one that fires sooner holds.
    pub fn arm(&mut self, solicited_only: bool) {
        if !solicited_only {
            self.armed = Armed::Next;
        } else if self.armed == Armed::No {
            self.armed = Armed::Solicited;
        }
    }

    /// Changes the capacity.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] below the completions held.
    pub fn resize(&mut self, capacity: usize) -> Result<(), VerbsError> {
        if capacity == 0 || capacity < self.entries.len() {
            return Err(VerbsError::Invalid);
        }
        self.capacity = capacity;
        Ok(())
    }
}
