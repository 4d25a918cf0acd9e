//! XRC domains: what QPs that receive and the queues they receive into share.

use std::sync::Arc;

use ferroce_stack::verbs;

use super::{Context, Error};

/// An XRC domain: a message names a shared receive queue of the domain of the QP it arrives at.
/// Clones are the same; it is destroyed when the last of its objects is gone.
#[derive(Clone, Debug)]
pub struct Xrcd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: verbs::Xrcd,
}

impl Xrcd {
    pub(super) fn new(context: &Context) -> Result<Xrcd, Error> {
        const VERB: &str = "open_xrcd";
        let opened = context.lock(VERB)?.open_xrcd();
        let handle = opened.map_err(|error| context.refused(VERB, error, String::new))?;
        Ok(Xrcd { inner: Arc::new(Inner { context: context.clone(), handle }) })
    }

    pub(super) fn handle(&self) -> verbs::Xrcd {
        self.inner.handle
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut guard) = self.context.engine().lock() {
            // Nobody uses it: they hold a clone.
            let _ = guard.close_xrcd(self.handle);
        }
    }
}
