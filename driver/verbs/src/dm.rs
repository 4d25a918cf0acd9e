//! Device memory: ordinary memory that programs reach by copies only. Its regions count from 0.

use core::ffi::{c_int, c_void};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_stack::verbs::Access;

use crate::context::Context;
use crate::device::{MAX_DM_SIZE, lock};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvAllocDmAttr, IbvContext, IbvDm, IbvMr, IbvPd};
use crate::log::refuse;
use crate::mr::{self, Mr, Request};
use crate::pd::Pd;

/// Offsets and lengths of copies are multiples of this.
const WORD: u64 = 4;
/// The largest alignment a program may ask for: 2^20.
const MAX_LOG_ALIGN: u32 = 20;
/// Everything is aligned to a page at least.
const MIN_LOG_ALIGN: u32 = 12;
/// `IBV_DM_MASK_HANDLE`.
const DM_MASK_HANDLE: u32 = 1;

/// A piece of device memory, alive as long as a handle of it.
pub(crate) struct DeviceMemory {
    bytes: NonNull<u8>,
    layout: Layout,
    /// Regions in it.
    regions: AtomicU32,
}

// SAFETY: the bytes are shared with the engine and with peers by nature; every access is a copy.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    fn new(len: usize, log_align: u32) -> Result<DeviceMemory, Errno> {
        let align = 1 << log_align.max(MIN_LOG_ALIGN);
        let layout = Layout::from_size_align(len, align).map_err(|_| EINVAL)?;
        // SAFETY: the caller asks for at least one byte.
        let bytes = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno(libc::ENOMEM))?;
        Ok(DeviceMemory { bytes, layout, regions: AtomicU32::new(0) })
    }

    pub fn add_region(&self) {
        self.regions.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove_region(&self) {
        self.regions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Where `len` bytes at `offset` are.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        let size = self.layout.size();
        let inside = usize::try_from(offset)
            .ok()
            .filter(|&offset| size.checked_sub(offset).is_some_and(|room| len <= room));
        match inside {
            Some(offset) => Ok(self.bytes.as_ptr().wrapping_add(offset)),
            None => Err(refuse!(EINVAL, offset, len, size, "not inside the device memory")),
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) };
    }
}

/// A handle of device memory.
#[repr(C)]
struct Dm {
    abi: IbvDm,
    memory: Arc<DeviceMemory>,
}

impl Dm {
    /// # Safety
    /// `dm` must be null or one of ours.
    unsafe fn of<'a>(dm: *const IbvDm) -> Option<&'a Dm> {
        // SAFETY: a handle of ours begins with what programs hold.
        unsafe { dm.cast::<Dm>().as_ref() }
    }

    fn boxed(context: &Context, handle: u32, memory: Arc<DeviceMemory>) -> *mut IbvDm {
        let abi = IbvDm {
            context: context.as_abi(),
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: DM_MASK_HANDLE,
            handle,
        };
        Box::into_raw(Box::new(Dm { abi, memory })).cast()
    }
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut IbvContext,
    attr: *mut IbvAllocDmAttr,
) -> *mut IbvDm {
    static HANDLES: AtomicU32 = AtomicU32::new(1);
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(attr)) = (unsafe { (Context::of(context), attr.as_ref()) }) else {
        return errno::pointer(Err(EINVAL));
    };
    let IbvAllocDmAttr { length, log_align_req, comp_mask } = *attr;
    if comp_mask != 0 || log_align_req > MAX_LOG_ALIGN || length == 0 {
        return errno::pointer(Err(refuse!(
            EINVAL,
            length,
            log_align_req,
            comp_mask,
            "device memory is of at least one byte, aligned to at most 2^20, comp_mask 0"
        )));
    }
    if length as u64 > MAX_DM_SIZE {
        return errno::pointer(Err(refuse!(
            ENOMEM,
            length,
            max_dm_size = MAX_DM_SIZE,
            "too much device memory at once"
        )));
    }
    errno::pointer(DeviceMemory::new(length, log_align_req).map(|memory| {
        let memory = Arc::new(memory);
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        lock(&context.file.dms).insert(handle, memory.clone());
        Dm::boxed(context, handle, memory)
    }))
}

/// # Safety
/// `dm` must be null or one of ours, and not used afterwards.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut IbvDm) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(handle) = (unsafe { Dm::of(dm) }) else { return errno::code(Err(EINVAL)) };
    let regions = handle.memory.regions.load(Ordering::Relaxed);
    if regions > 0 {
        return errno::code(Err(refuse!(EBUSY, regions, "regions lie in this device memory")));
    }
    // SAFETY: a program closes a context after its device memory.
    if let Some(context) = unsafe { Context::of(handle.abi.context) } {
        lock(&context.file.dms).remove(&handle.abi.handle);
    }
    // SAFETY: it came from a `Box`, and the caller does not use it any more.
    drop(unsafe { Box::from_raw(dm.cast::<Dm>()) });
    0
}

/// Device memory of another context of the same file.
///
/// # Safety
/// `context` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_import_dm(context: *mut IbvContext, handle: u32) -> *mut IbvDm {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Context::of(context) }.ok_or(EINVAL).and_then(|context| {
        let found = lock(&context.file.dms).get(&handle).cloned();
        let memory = found.ok_or_else(|| {
            refuse!(EINVAL, handle, "no device memory of this file has the handle")
        })?;
        Ok(Dm::boxed(context, handle, memory))
    }))
}

/// Frees what [`ibv_import_dm`] returned; the memory stays.
///
/// # Safety
/// `dm` must be null or imported, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut IbvDm) {
    if !dm.is_null() {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(dm.cast::<Dm>()) });
    }
}

/// Registers a part of device memory.
///
/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut IbvPd,
    dm: *mut IbvDm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut IbvMr {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(pd), Some(dm)) = (unsafe { (Pd::of(pd), Dm::of(dm)) }) else {
        return errno::pointer(Err(EINVAL));
    };
    errno::pointer(mr::check_access(access).and_then(|()| {
        if !Access(access).has(Access::ZERO_BASED) {
            return Err(refuse!(EINVAL, access, "regions of device memory are ZERO_BASED (32)"));
        }
        let addr = dm.memory.at(offset, length)?.expose_provenance() as u64;
        let request = Request { addr, length, iova: 0, access };
        Mr::register(pd, &request, core::ptr::null_mut(), Some(dm.memory.clone()))
    }))
}

fn place(dm: &Dm, offset: u64, len: usize) -> Result<*mut u8, Errno> {
    if !offset.is_multiple_of(WORD) || !(len as u64).is_multiple_of(WORD) {
        return Err(refuse!(EINVAL, offset, len, "device memory is copied in words of 4 bytes"));
    }
    dm.memory.at(offset, len)
}

/// # Safety
/// `dm` must be null or one of ours, `host` readable for `len` bytes.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut IbvDm,
    offset: u64,
    host: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(dm) = (unsafe { Dm::of(dm) }) else { return errno::code(Err(EINVAL)) };
    errno::code(place(dm, offset, len).map(|to| {
        // SAFETY: `len` bytes lie behind both.
        unsafe { core::ptr::copy(host.cast(), to, len) };
    }))
}

/// # Safety
/// `dm` must be null or one of ours, `host` writable for `len` bytes.
unsafe extern "C" fn memcpy_from_dm(
    host: *mut c_void,
    dm: *mut IbvDm,
    offset: u64,
    len: usize,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(dm) = (unsafe { Dm::of(dm) }) else { return errno::code(Err(EINVAL)) };
    errno::code(place(dm, offset, len).map(|from| {
        // SAFETY: `len` bytes lie behind both.
        unsafe { core::ptr::copy(from.cast_const(), host.cast(), len) };
    }))
}
