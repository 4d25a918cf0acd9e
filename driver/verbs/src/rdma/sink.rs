//! The way of events from a device to its ids.
//!
//! Connections know their ids by cookies, numbers that are never used twice; one table per process
//! says whose they are. An event of an id that is gone finds nobody. Lock order: the engine's lock,
//! the table, an id's inbox, a channel's queue.

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce::engine::CmSink;
use ferroce_stack::mad::CmEvent;

use super::id::{CmId, What};
use crate::device::{Device, lock};

/// The ids of a process by their cookies.
struct Table {
    process: u32,
    ids: Mutex<HashMap<u64, Arc<CmId>>>,
    /// That of the process this one was forked from: somebody may hold its lock for ever.
    _inherited: *mut Table,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
static NEXT_COOKIE: AtomicU64 = AtomicU64::new(1);

/// The table of this process.
fn table() -> &'static Table {
    let process = std::process::id();
    loop {
        let current = TABLE.load(Ordering::Acquire);
        // SAFETY: tables are never freed.
        if let Some(table) = unsafe { current.as_ref() }.filter(|table| table.process == process) {
            return table;
        }
        let fresh = Table { process, ids: Mutex::default(), _inherited: current };
        let fresh = Box::into_raw(Box::new(fresh));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if TABLE.compare_exchange(current, fresh, order.0, order.1).is_err() {
            // SAFETY: made above, and never shown to anybody.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// A cookie nobody has had.
pub(super) fn new_cookie() -> u64 {
    NEXT_COOKIE.fetch_add(1, Ordering::Relaxed)
}

/// Events of `id` find it from now on.
pub(super) fn enter(id: &Arc<CmId>) {
    lock(&table().ids).insert(id.cookie, id.clone());
}

/// Events of `id` find nobody from now on.
pub(super) fn leave(id: &CmId) {
    let gone = lock(&table().ids).remove(&id.cookie);
    // After the table is unlocked.
    drop(gone);
}

/// Where a device tells of its connections.
pub(super) struct Sink {
    device: &'static Device,
}

impl Sink {
    pub fn new(device: &'static Device) -> Sink {
        Sink { device }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sink").field(&self.device.info.name).finish()
    }
}

impl CmSink for Sink {
    fn deliver(&self, event: CmEvent) {
        let CmEvent { cookie, id: comm, kind } = event;
        // With the table locked to the end: an id that has left it gets nothing more.
        if let Some(id) = lock(&table().ids).get(&cookie) {
            id.post(What::Cm { device: self.device, comm, kind: Arc::new(kind) });
        }
    }
}
