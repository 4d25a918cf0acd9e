//! Address handles: where datagrams go.

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{self, AhAttr};

use super::{Error, Pd};

/// Hop limit of what this API sends.
pub(super) const HOP_LIMIT: u8 = 64;

/// A device, or a multicast group, as the destination of datagrams. Datagrams still queued when it
/// is dropped fail.
#[derive(Debug)]
pub struct AddressHandle {
    pd: Pd,
    handle: verbs::Ah,
    gid: Gid,
}

impl AddressHandle {
    pub(super) fn new(pd: &Pd, gid: Gid) -> Result<AddressHandle, Error> {
        let context = pd.context();
        let sgid_index = context.inner.gid_index;
        let attr = AhAttr { dgid: gid, sgid_index, hop_limit: HOP_LIMIT, ..AhAttr::default() };
        let created = context.engine().create_ah(pd.handle(), &attr);
        let handle = created.map_err(|error| {
            let own = context.gid();
            let cause = || format!("gid {gid} cannot be reached from {own}: not of one family");
            context.refused("create_ah", error, cause)
        })?;
        Ok(AddressHandle { pd: pd.clone(), handle, gid })
    }

    /// The destination.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    pub(super) fn handle(&self) -> verbs::Ah {
        self.handle
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        if let Ok(mut guard) = self.pd.context().engine().lock() {
            // The only error is that it does not exist.
            let _ = guard.destroy_ah(self.handle);
        }
    }
}
