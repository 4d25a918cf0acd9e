//! Shared receive queues.

use std::sync::Arc;

use ferroce_stack::SrqInit;
use ferroce_stack::verbs::{self, VerbsError};

use super::work::RecvBatch;
use super::{Cq, Error, LocalSlice, Pd, Xrcd};
use crate::engine::{SharedReceiveQueue, Subject};

/// A receive queue that several QPs take from. Clones are the same; it is destroyed when no QP uses
/// it any more.
#[derive(Clone, Debug)]
pub struct Srq {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pd: Pd,
    queue: Arc<SharedReceiveQueue>,
    id: u64,
    max_wr: u32,
    // What it uses lives as long as it does.
    _xrc: Option<(Xrcd, Cq)>,
}

impl Srq {
    pub(super) fn new(
        pd: &Pd,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(Xrcd, Cq)>,
    ) -> Result<Srq, Error> {
        let context = pd.context();
        let id = context.next_id();
        let handles = xrc.as_ref().map(|(xrcd, cq)| (xrcd.handle(), cq.handle()));
        let init = SrqInit { pd: pd.handle(), max_wr, max_sge, xrc: handles };
        let created = context.engine().create_srq(&init, context.inner.events.clone(), id);
        let queue = created.map_err(|error| {
            let limits = &context.inner.limits;
            let (wr, sge) = (limits.max_wr, limits.max_sge);
            let cause =
                || format!("max_wr is {max_wr}, at most {wr}; max_sge is {max_sge}, at most {sge}");
            context.refused("create_srq", error, cause)
        })?;
        let inner = Inner { pd: pd.clone(), queue, id, max_wr, _xrc: xrc };
        Ok(Srq { inner: Arc::new(inner) })
    }

    /// How events name it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// How XRC peers name it.
    pub fn number(&self) -> u32 {
        self.inner.queue.handle().value()
    }

    /// Posts a receive: the next message of any of its QPs goes to `slices`.
    ///
    /// # Errors
    /// For too many slices; [`Error::QueueFull`].
    pub fn post_recv(&self, wr_id: u64, slices: &[LocalSlice<'_>]) -> Result<(), Error> {
        self.recv_batch().push(wr_id, slices)
    }

    /// Begins to post receives, all at once when the batch is dropped.
    pub fn recv_batch(&self) -> RecvBatch<'_> {
        let context = self.inner.pd.context();
        let batch = context.engine().recv_shared(&self.inner.queue);
        RecvBatch::new(context, batch, self.inner.max_wr, self.inner.queue.max_sge())
    }

    /// Asks for the event SRQ_LIMIT_REACHED once fewer than `limit` receives are posted; 0 for
    /// none.
    ///
    /// # Errors
    /// If `limit` is more than the queue takes.
    pub fn arm_limit(&self, limit: u32) -> Result<(), Error> {
        let context = self.inner.pd.context();
        context.engine().modify_srq(&self.inner.queue, None, Some(limit)).map_err(|error| {
            let max = self.inner.max_wr;
            context.refused("arm_limit", error, || format!("limit is {limit}, more than {max}"))
        })
    }

    pub(super) fn handle(&self) -> verbs::Srq {
        self.inner.queue.handle()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let context = self.pd.context();
        // Nobody uses it: they hold a clone.
        let _: Result<(), VerbsError> = context.engine().destroy_srq(&self.queue);
        context.forget(Subject::Srq(self.id));
    }
}
