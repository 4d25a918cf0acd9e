//! What a device does with regions and queues, which only a trial tells.

use core::ffi::{c_int, c_void};

use ferroce_stack::verbs::Access;
use ferroce_verbs_layout::{IbvMr, IbvPd};

use crate::device::Device;
use crate::error::{CallError, made};
use crate::library::Library;
use crate::memory::Mapping;
use crate::scenario::CHANGE_ACCESS;

/// A page and a domain, to see what a device does with regions.
pub struct Trial<'a> {
    library: &'a Library,
    pd: *mut IbvPd,
    page: Mapping,
}

impl<'a> Trial<'a> {
    /// One of this device's.
    ///
    /// # Errors
    /// What the verbs say.
    pub fn new(device: &'a Device) -> Result<Trial<'a>, CallError> {
        let page = Mapping::new(1, 0)?;
        // SAFETY: the device is open.
        let pd = made(unsafe { (device.library.ibv_alloc_pd)(device.context) })?;
        Ok(Trial { library: &device.library, pd, page })
    }

    /// What a device does with a region over the page, with these rights.
    fn with_region(&self, access: Access, try_it: impl FnOnce(*mut IbvMr) -> bool) -> bool {
        let access = Access::LOCAL_WRITE.with(access).0 as c_int;
        let (at, len) = (self.page.address(), self.page.len());
        // SAFETY: the domain is there, and the page until the region is gone.
        let Ok(region) = made(unsafe { (self.library.ibv_reg_mr)(self.pd, at, len, access) })
        else {
            return false;
        };
        let outcome = try_it(region);
        // SAFETY: the region has just been made.
        unsafe { (self.library.ibv_dereg_mr)(region) };
        outcome
    }

    /// Whether a region may have this right.
    pub fn grants(&self, access: Access) -> bool {
        self.with_region(access, |_| true)
    }

    /// Whether a region's rights can be changed.
    pub fn can_be_changed(&self) -> bool {
        let (flags, access) = (CHANGE_ACCESS, Access::LOCAL_WRITE.0 as c_int);
        let none: *mut c_void = std::ptr::null_mut();
        self.with_region(Access::NONE, |region| {
            // SAFETY: the region is there.
            let code =
                unsafe { (self.library.ibv_rereg_mr)(region, flags, none.cast(), none, 0, access) };
            code == 0
        })
    }

    /// Whether a completion queue can be resized.
    pub fn resizes_cqs(&self) -> bool {
        let (library, none) = (self.library, std::ptr::null_mut());
        // SAFETY: the domain's device is open.
        let made =
            made(unsafe { (library.ibv_create_cq)((*self.pd).context, 1, none, none.cast(), 0) });
        let Ok(cq) = made else { return false };
        // SAFETY: the queue has just been made.
        let code = unsafe { (library.ibv_resize_cq)(cq, 8) };
        // SAFETY: as above.
        unsafe { (library.ibv_destroy_cq)(cq) };
        code == 0
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // SAFETY: its regions are gone.
        unsafe { (self.library.ibv_dealloc_pd)(self.pd) };
    }
}
