//! The contexts librdmacm opens: one of each device, shared by all ids.

use core::ffi::c_int;
use core::ptr;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ferroce::engine::Engine;
use ferroce::identity::{self, DeviceInfo};
use ferroce::resolve::{self, ResolveError, Resolved};
use ferroce_stack::gid::Gid;

use super::qp::made;
use super::sink::Sink;
use crate::context::{Context, open_device};
use crate::device::{self, Device, lock};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvContext, IbvPd, IbvXrcd, IbvXrcdInitAttr};
use crate::pd::ibv_alloc_pd;
use crate::xrcd::open_xrcd;

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`.
const MASK_FD_OFLAGS: u32 = 1 | 2;

/// A context that every caller of librdmacm shares, never closed.
struct SharedContext {
    device: &'static Device,
    context: *mut IbvContext,
    /// The domains of who gives none, made when they are first needed; never destroyed.
    pd: *mut IbvPd,
    xrcd: *mut IbvXrcd,
}

// SAFETY: a context and its domains are used from any thread.
unsafe impl Send for SharedContext {}

static CONTEXTS: Mutex<Vec<SharedContext>> = Mutex::new(Vec::new());

/// Calls `then` with the one context of a device; a forked child gets one of its own.
fn with_shared<T>(
    device: &'static Device,
    then: impl FnOnce(&mut SharedContext) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut contexts = lock(&CONTEXTS);
    // SAFETY: a context of the list is never closed.
    contexts.retain(|shared| unsafe { Context::of(shared.context) }.is_some_and(Context::is_here));
    if let Some(shared) = contexts.iter_mut().find(|shared| ptr::eq(shared.device, device)) {
        return then(shared);
    }
    let context = open_device(device)?;
    let (pd, xrcd) = (ptr::null_mut(), ptr::null_mut());
    let mut shared = SharedContext { device, context, pd, xrcd };
    let outcome = then(&mut shared);
    contexts.push(shared);
    outcome
}

/// A device an id works on.
#[derive(Clone, Copy)]
pub(super) struct Attached {
    pub device: &'static Device,
    pub context: *mut IbvContext,
    pub engine: &'static Engine,
}

impl Attached {
    /// Opens the device, unless that has been done, and starts connection management on it.
    pub fn new(device: &'static Device) -> Result<Attached, Errno> {
        let context = with_shared(device, |shared| Ok(shared.context))?;
        // SAFETY: shared contexts are never closed.
        let opened: Option<&'static Context> = unsafe { Context::of(context) };
        let engine = &*opened.ok_or(EINVAL)?.engine;
        engine.start_cm(Arc::new(Sink::new(device)))?;
        Ok(Attached { device, context, engine })
    }

    /// The devices, opened, that an id without an address works on.
    pub fn all() -> Result<Vec<Attached>, Errno> {
        device::all()?.iter().map(|device| Attached::new(device)).collect()
    }

    /// Index of a GID of the device; of the last, its address, if it has no such.
    pub fn index_of(&self, gid: Gid) -> u8 {
        let gids = self.device.gids();
        let found = gids.iter().position(|entry| entry.gid == gid);
        found.unwrap_or(gids.len().saturating_sub(1)) as u8
    }

    /// The domain of ids that are given none.
    pub fn default_pd(&self) -> Result<*mut IbvPd, Errno> {
        with_shared(self.device, |shared| {
            if shared.pd.is_null() {
                // SAFETY: the context is open.
                shared.pd = made(unsafe { ibv_alloc_pd(shared.context) })?;
            }
            Ok(shared.pd)
        })
    }

    /// The XRC domain of ids that are given none.
    pub fn default_xrcd(&self) -> Result<*mut IbvXrcd, Errno> {
        with_shared(self.device, |shared| {
            if shared.xrcd.is_null() {
                let mut attr =
                    IbvXrcdInitAttr { comp_mask: MASK_FD_OFLAGS, fd: -1, oflags: libc::O_CREAT };
                // SAFETY: the context is open, and the attributes are ours.
                shared.xrcd = made(unsafe { open_xrcd(shared.context, &mut attr) })?;
            }
            Ok(shared.xrcd)
        })
    }
}

/// Drives the devices in use for a while, for a caller that is about to sleep.
pub(super) fn drive_until(mut is_done: impl FnMut() -> bool) {
    let contexts: Vec<_> = lock(&CONTEXTS).iter().map(|shared| shared.context).collect();
    for context in contexts {
        // SAFETY: a context of the list is never closed.
        if let Some(context) = unsafe { Context::of(context) } {
            context.engine.drive_until(&mut is_done);
        }
        if is_done() {
            return;
        }
    }
}

/// What addresses are resolved with, in the order of [`device::all`].
fn infos() -> Result<Vec<DeviceInfo>, Errno> {
    let info = |device: &&'static Device| DeviceInfo { gids: device.gids(), ..device.info.clone() };
    Ok(device::all()?.iter().map(info).collect())
}

/// What else is an address of the first device. Interfaces come and go.
fn machine_addresses() -> Result<Vec<IpAddr>, Errno> {
    let device = device::all()?.first();
    let found = device.map(|device| identity::machine_addresses(device.settings)).transpose();
    found.map(Option::unwrap_or_default).map_err(|error| {
        tracing::error!(%error, "addresses cannot be resolved");
        Errno(error.errno as c_int)
    })
}

/// The device that has an address.
pub(super) fn device_at(address: IpAddr) -> Result<Option<usize>, Errno> {
    let infos = infos()?;
    // Most addresses are a device's own: the machine is asked only for others.
    match resolve::local(&infos, &[], address) {
        None => Ok(resolve::local(&infos, &machine_addresses()?, address)),
        found => Ok(found),
    }
}

/// The way to an address.
pub(super) fn way_to(
    source: Option<IpAddr>,
    destination: IpAddr,
) -> Result<Result<Resolved, ResolveError>, Errno> {
    let infos = infos()?;
    match resolve::resolve(&infos, &[], source, destination) {
        Ok(resolved) if resolved.path.dgid == resolved.path.sgid => Ok(Ok(resolved)),
        _ => Ok(resolve::resolve(&infos, &machine_addresses()?, source, destination)),
    }
}

/// The contexts of all devices, ended by a null pointer; null and errno if one cannot be opened.
///
/// # Safety
/// `count` must be null or valid.
pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut IbvContext {
    let open = |device| with_shared(device, |shared| Ok(shared.context));
    let contexts = device::all().and_then(|devices| {
        devices.iter().map(|device| open(device)).collect::<Result<Vec<_>, _>>()
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
