//! Protection domains: what belongs together.

use std::sync::Arc;

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{self, Access};

use super::{AddressHandle, Context, Cq, Error, Mr, Qp, QpOptions, Srq, Window, Xrcd};
use crate::memory::Region;

/// A protection domain: QPs reach the memory of their own domain alone. Clones are the same; it is
/// destroyed when the last of its objects is gone.
#[derive(Clone, Debug)]
pub struct Pd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: verbs::Pd,
}

impl Pd {
    pub(super) fn new(context: &Context) -> Result<Pd, Error> {
        let handle = context
            .lock("alloc_pd")?
            .alloc_pd()
            .map_err(|error| context.refused("alloc_pd", error, String::new))?;
        Ok(Pd { inner: Arc::new(Inner { context: context.clone(), handle }) })
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Registers memory, which the region returned owns. `access` says what peers may do and
    /// whether receives, READs and atomics may write to it ([`Access::LOCAL_WRITE`]).
    ///
    /// # Errors
    /// If `access` lets peers write without [`Access::LOCAL_WRITE`] or has an unknown flag.
    pub fn register(&self, region: impl Into<Region>, access: Access) -> Result<Mr, Error> {
        Mr::new(self, region.into(), access)
    }

    /// Registers `len` zero bytes: [`Region::zeroed`], or [`Region::huge`] from 4 MiB up.
    ///
    /// # Errors
    /// As [`Pd::register`], and if the system refuses the memory.
    pub fn register_zeroed(&self, len: usize, access: Access) -> Result<Mr, Error> {
        let region = if len < 4 << 20 { Region::zeroed(len) } else { Region::huge(len) };
        let region = region.map_err(|source| Error::Io { action: "map memory", source })?;
        self.register(region, access)
    }

    /// Makes a memory window, bound to nothing.
    ///
    /// # Errors
    /// If the device has no room for another.
    pub fn alloc_window(&self) -> Result<Window, Error> {
        Window::new(self)
    }

    /// Makes a QP. A connected one can take receives at once, and sends after
    /// [`Qp::connect`]; one without a peer (UD, raw packets) can do both at once.
    ///
    /// # Errors
    /// If a size is beyond the device's limits, or an object is missing or not for this service.
    pub fn create_qp(&self, options: &QpOptions) -> Result<Qp, Error> {
        Qp::new(self, options)
    }

    /// Makes a shared receive queue for `max_wr` work requests of `max_sge` slices each.
    ///
    /// # Errors
    /// If a size is beyond the device's limits.
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<Srq, Error> {
        Srq::new(self, max_wr, max_sge, None)
    }

    /// Makes a shared receive queue for XRC, whose receives complete in `cq`. Peers reach it by
    /// its [`Srq::number`], through XRC QPs of `xrcd`.
    ///
    /// # Errors
    /// As [`Pd::create_srq`].
    pub fn create_xrc_srq(
        &self,
        max_wr: u32,
        max_sge: u32,
        xrcd: &Xrcd,
        cq: &Cq,
    ) -> Result<Srq, Error> {
        Srq::new(self, max_wr, max_sge, Some((xrcd.clone(), cq.clone())))
    }

    /// Makes an address handle for datagrams to a device, or to a multicast group.
    ///
    /// # Errors
    /// If the address is not of the family of the device's.
    pub fn create_ah(&self, gid: Gid) -> Result<AddressHandle, Error> {
        AddressHandle::new(self, gid)
    }

    pub(super) fn handle(&self) -> verbs::Pd {
        self.inner.handle
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut guard) = self.context.engine().lock() {
            // Busy only if a region had to stay, see `Mr`.
            let _ = guard.dealloc_pd(self.handle);
        }
    }
}
