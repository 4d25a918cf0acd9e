//! What the application has posted, and the rules its completions keep: each belongs to a work
//! request posted, none comes twice, those of one queue come in order.

use std::collections::BTreeMap;

use ferroce_stack::verbs::{Qpn, Srq, Wc, WcOpcode, WcStatus};

/// A queue of work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// Send queue of a QP.
    Send(Qpn),
    /// Receive queue of a QP.
    Recv(Qpn),
    /// Shared receive queue.
    Shared(Srq),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It will complete.
    Due,
    /// It completes if it fails, and need not otherwise.
    Silent,
    /// Its queue is gone or has lost completions.
    Lost,
    /// It has completed.
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    queue: Queue,
    fate: Fate,
    /// Bytes a receive takes.
    len: u64,
}

/// All work requests of a device, by `wr_id`.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    /// The newest that has completed of each queue that completes in order.
    newest: BTreeMap<Queue, u64>,
}

impl Ledger {
    /// The `wr_id` for the next work request.
    pub fn next_id(&self) -> u64 {
        self.entries.len() as u64
    }

    /// A work request was accepted under [`Ledger::next_id`]: a send that completes where it is
    /// `signaled`, or a receive of `len` bytes, which always does.
    pub fn posted(&mut self, queue: Queue, signaled: bool, len: u64) {
        let fate = if signaled { Fate::Due } else { Fate::Silent };
        self.entries.push(Entry { queue, fate, len });
    }

    /// Work requests of a queue that must still complete.
    pub fn due(&self, queue: Queue) -> usize {
        let due = |entry: &&Entry| entry.fate == Fate::Due && entry.queue == queue;
        self.entries.iter().filter(due).count()
    }

    /// Nothing more need be said about the work requests of a queue.
    pub fn lose(&mut self, queue: Queue) {
        for entry in self.entries.iter_mut().filter(|entry| entry.queue == queue) {
            if entry.fate != Fate::Done {
                entry.fate = Fate::Lost;
            }
        }
    }

    /// A completion was polled.
    ///
    /// # Panics
    ///
    /// If it breaks a rule.
    pub fn completed(&mut self, wc: &Wc) {
        let Some(&entry) = self.entries.get(wc.wr_id as usize) else {
            panic!("nobody posted {wc:?}");
        };
        assert_ne!(entry.fate, Fate::Done, "twice: {wc:?}");
        let success = wc.status == WcStatus::Success;
        let is_recv = matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        match entry.queue {
            Queue::Send(qpn) => {
                assert_eq!(wc.qp_num, qpn, "{wc:?}");
                assert!(!success || !is_recv, "{wc:?}");
                self.in_order(wc, entry);
            }
            Queue::Recv(qpn) => {
                assert_eq!(wc.qp_num, qpn, "{wc:?}");
                self.in_order(wc, entry);
            }
            Queue::Shared(_) => {}
        }
        if success && !matches!(entry.queue, Queue::Send(_)) {
            assert!(is_recv, "{wc:?}");
            let placed = wc.opcode == WcOpcode::Recv;
            assert!(!placed || u64::from(wc.byte_len) <= entry.len, "{wc:?}");
        }
        self.entries[wc.wr_id as usize].fate = Fate::Done;
    }

    /// Everything posted before it to the same queue is over.
    fn in_order(&mut self, wc: &Wc, entry: Entry) {
        let newest = self.newest.insert(entry.queue, wc.wr_id);
        assert!(newest.is_none_or(|newest| newest < wc.wr_id), "out of order: {wc:?}");
        let start = newest.map_or(0, |newest| newest as usize + 1);
        for earlier in &mut self.entries[start..wc.wr_id as usize] {
            if earlier.queue == entry.queue && earlier.fate != Fate::Lost {
                assert_ne!(earlier.fate, Fate::Due, "one before it is missing: {wc:?}");
                earlier.fate = Fate::Done;
            }
        }
    }
}
