//! Connections by what messages name them by, and by the moment to look at them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::conn::{Conn, Name};
use crate::time::Instant;

/// All connections and exchanges of a process on a device.
#[derive(Debug)]
pub struct Table {
    by_id: BTreeMap<u32, Box<Conn>>,
    by_name: BTreeMap<Name, u32>,
    timers: BTreeSet<(Instant, u32)>,
    ids: Range<u32>,
    next_id: u32,
    capacity: usize,
}

impl Table {
    /// An empty table. IDs come from `ids` in turn, from one that `seed` picks.
    pub fn new(ids: Range<u32>, seed: u64, capacity: usize) -> Table {
        let ids = ids.start.max(1)..ids.end;
        let count = u64::from(ids.end.saturating_sub(ids.start)).max(1);
        Table {
            by_id: BTreeMap::new(),
            by_name: BTreeMap::new(),
            timers: BTreeSet::new(),
            next_id: ids.start + (seed % count) as u32,
            capacity: capacity.min(ids.len()),
            ids,
        }
    }

    /// Whether a peer may still start a connection: the last eighth is for this side's own.
    pub fn has_room_for_peers(&self) -> bool {
        self.by_id.len() < self.capacity - self.capacity / 8
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The ID of the next connection, longest unused; none if the table is full.
    pub fn take_id(&mut self) -> Option<u32> {
        if self.by_id.len() >= self.capacity {
            return None;
        }
        loop {
            let id = self.next_id;
            self.next_id = if id + 1 < self.ids.end { id + 1 } else { self.ids.start };
            if !self.by_id.contains_key(&id) {
                return Some(id);
            }
        }
    }

    pub fn insert(&mut self, id: u32, conn: Conn) {
        self.by_id.insert(id, Box::new(conn));
    }

    pub fn get(&self, id: u32) -> Option<&Conn> {
        self.by_id.get(&id).map(|conn| &**conn)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Conn> {
        self.by_id.get_mut(&id).map(|conn| &mut **conn)
    }

    /// Takes a connection and all that finds it out of the table.
    pub fn remove(&mut self, id: u32) -> Option<Box<Conn>> {
        self.disarm(id);
        self.forget_qp(id);
        let conn = self.by_id.remove(&id)?;
        if let Some(name) = conn.peer_name {
            self.by_name.remove(&name);
        }
        Some(conn)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Conn)> {
        self.by_id.iter().map(|(&id, conn)| (id, &**conn))
    }

    /// The connection of this name.
    pub fn find(&self, name: Name) -> Option<u32> {
        self.by_name.get(&name).copied()
    }

    /// Gives the connection a name nobody has.
    pub fn name(&mut self, id: u32, name: Name) {
        let Some(conn) = self.by_id.get_mut(&id) else { return };
        match name {
            Name::Qp(..) => conn.qp_name = Some(name),
            Name::Comm(..) | Name::Exchange(..) => conn.peer_name = Some(name),
        }
        self.by_name.insert(name, id);
    }

    /// Gives the peer's QPN free.
    pub fn forget_qp(&mut self, id: u32) {
        if let Some(name) = self.by_id.get_mut(&id).and_then(|conn| conn.qp_name.take()) {
            self.by_name.remove(&name);
        }
    }

    /// Has the connection come up at `at`, and at no other moment.
    pub fn arm(&mut self, id: u32, at: Instant) {
        self.disarm(id);
        if let Some(conn) = self.by_id.get_mut(&id) {
            conn.deadline = Some(at);
            self.timers.insert((at, id));
        }
    }

    /// Has the connection not come up.
    pub fn disarm(&mut self, id: u32) {
        if let Some(at) = self.by_id.get_mut(&id).and_then(|conn| conn.deadline.take()) {
            self.timers.remove(&(at, id));
        }
    }

    /// The next moment a connection comes up.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// A connection whose moment is not after `now`; it does not come up again.
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(at, id) = self.timers.first()?;
        if at > now {
            return None;
        }
        self.disarm(id);
        Some(id)
    }
}
