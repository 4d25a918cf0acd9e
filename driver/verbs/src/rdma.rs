//! What of librdmacm needs no connection manager: the contexts that it opens of each device.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Mutex;

use crate::context::{Context, open_device};
use crate::device::{self, Device, lock};
use crate::errno::{self, Errno};
use crate::layout::IbvContext;

/// A context that every caller of librdmacm shares, never closed.
struct SharedContext {
    device: &'static Device,
    context: *mut IbvContext,
}

// SAFETY: a context is used from any thread.
unsafe impl Send for SharedContext {}

static CONTEXTS: Mutex<Vec<SharedContext>> = Mutex::new(Vec::new());

/// The one context of a device; a forked child gets one of its own.
fn shared_context(device: &'static Device) -> Result<*mut IbvContext, Errno> {
    let mut contexts = lock(&CONTEXTS);
    // SAFETY: a context of the list is never closed.
    contexts.retain(|shared| unsafe { Context::of(shared.context) }.is_some_and(Context::is_here));
    if let Some(shared) = contexts.iter().find(|shared| ptr::eq(shared.device, device)) {
        return Ok(shared.context);
    }
    let context = open_device(device)?;
    contexts.push(SharedContext { device, context });
    Ok(context)
}

/// The contexts of all devices, ended by a null pointer; null and errno if one cannot be opened.
///
/// # Safety
/// `count` must be null or valid.
pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut IbvContext {
    let contexts = device::all().and_then(|devices| {
        devices.iter().map(|device| shared_context(device)).collect::<Result<Vec<_>, _>>()
    });
    // SAFETY: the caller gives a valid pointer or null.
    if let Some(count) = unsafe { count.as_mut() } {
        // libfabric looks at the count alone.
        *count = contexts.as_ref().map_or(0, |contexts| contexts.len() as c_int);
    }
    errno::pointer(contexts.and_then(|contexts| device::null_ended_list(&contexts)))
}

/// # Safety
/// `list` must be null or from [`rdma_get_devices`].
pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut IbvContext) {
    // SAFETY: the array was allocated with calloc; the contexts stay.
    unsafe { libc::free(list.cast()) };
}

/// There is no connection manager: the errno says that the machine has none, which programs take
/// better than an operation that is not supported.
pub(crate) extern "C" fn rdma_create_event_channel() -> *mut c_void {
    errno::set(libc::ENODEV);
    ptr::null_mut()
}
