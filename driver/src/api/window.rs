//! Memory windows (type 2): rights to a piece of a region, given and taken by work requests.

use std::sync::atomic::{AtomicU8, Ordering};

use ferroce_stack::verbs::{self, MwType};

use super::{Error, LocalSlice, Pd, RemoteRegion};

/// A memory window: once bound ([`SendRequest::bind`](super::SendRequest::bind)) it has a key of
/// its own, good for the peer of the QP that bound it, until it is invalidated by that QP or by
/// that peer. Dropping it ends its key too.
#[derive(Debug)]
pub struct Window {
    pd: Pd,
    handle: verbs::Mw,
    /// Low byte of the next key.
    next_key: AtomicU8,
}

impl Window {
    pub(super) fn new(pd: &Pd) -> Result<Window, Error> {
        const VERB: &str = "alloc_window";
        let context = pd.context();
        let (handle, rkey) = context
            .lock(VERB)?
            .alloc_mw(pd.handle(), MwType::Type2)
            .map_err(|error| context.refused(VERB, error, String::new))?;
        let next_key = AtomicU8::new((rkey as u8).wrapping_add(1));
        Ok(Window { pd: pd.clone(), handle, next_key })
    }

    /// What the peer needs to reach `slice`, once the bind to it has completed.
    ///
    /// # Errors
    /// In a forked child.
    pub fn remote(&self, slice: &LocalSlice<'_>) -> Result<RemoteRegion, Error> {
        const VERB: &str = "window";
        let context = self.pd.context();
        let rkey = context
            .lock(VERB)?
            .mw_rkey(self.handle)
            .map_err(|error| context.refused(VERB, error, String::new))?;
        Ok(RemoteRegion { addr: slice.sge().addr, rkey, len: u64::from(slice.len()) })
    }

    pub(super) fn handle(&self) -> verbs::Mw {
        self.handle
    }

    /// The low byte of the key of one more bind: never that of the last.
    pub(super) fn take_key(&self) -> u8 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Ok(mut guard) = self.pd.context().engine().lock() {
            // The only error is that it does not exist.
            let _ = guard.dealloc_mw(self.handle);
        }
    }
}
