//! The devices of this process: the list programs get, and what a device says of itself.
//!
//! Devices live for ever: programs keep using `context->device` after they have freed the list.

use core::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ferroce::config::Settings;
use ferroce::identity::{self, DeviceInfo, FW_VER, HW_VER, VENDOR_ID, VENDOR_PART_ID};
use ferroce_stack::{Config, GidEntry};

use crate::context::Context;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvContext, IbvDevice, IbvDeviceAttr, IbvDeviceAttrEx, IbvOdpCaps, IbvQueryDeviceExInput,
    zeroed,
};
use crate::log::{self, refuse};

/// `IBV_NODE_CA`; libfabric offers less to anything else.
const NODE_CA: c_int = 1;
/// Bytes of one piece of device memory.
pub(crate) const MAX_DM_SIZE: u64 = 1 << 20;
/// kHz of the clock completions are stamped with: nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;
/// Multicast groups, and QPs in one; what programs are told, not a table's size.
const MAX_GROUPS: c_int = 8192;
/// `IBV_ATOMIC_GLOB`: atomic against the processor too.
const ATOMIC_GLOB: c_int = 2;

/// `enum ibv_device_cap_flags`: P_Key and Q_Key counters, port events, a system image GUID, RNR
/// NAKs, SRQ resize, windows of types 1 and 2B, XRC, local and remote invalidation.
const CAP_FLAGS: u32 =
    1 << 1 | 1 << 2 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 24;
/// What only the extended query tells: FLUSH, global and persistent, and ATOMIC WRITE.
const CAP_FLAGS_EX: u64 = CAP_FLAGS as u64 | 1 << 38 | 1 << 39 | 1 << 40;

/// `enum ibv_odp_transport_cap_bits`.
const ODP_SEND: u32 = 1 << 0;
const ODP_RECV: u32 = 1 << 1;
const ODP_WRITE: u32 = 1 << 2;
const ODP_READ: u32 = 1 << 3;
const ODP_ATOMIC: u32 = 1 << 4;
const ODP_SRQ_RECV: u32 = 1 << 5;
/// All our memory is demand-paged, implicit registration included.
const ODP_CAPS: IbvOdpCaps = IbvOdpCaps {
    general_caps: 0b11,
    per_transport_caps: [
        ODP_CAPS_RC,
        ODP_SEND | ODP_RECV | ODP_WRITE | ODP_SRQ_RECV,
        ODP_SEND | ODP_RECV | ODP_SRQ_RECV,
    ],
};
const ODP_CAPS_RC: u32 = ODP_SEND | ODP_RECV | ODP_WRITE | ODP_READ | ODP_ATOMIC | ODP_SRQ_RECV;

/// A device. Drivers of vendors look for their own mark right behind `ibv_device` and must find
/// zeros there.
#[repr(C)]
pub(crate) struct Device {
    abi: IbvDevice,
    vendor_mark: [u8; 512],
    pub info: DeviceInfo,
    pub settings: &'static Settings,
    /// Its place in the list.
    index: usize,
    pub engine: Mutex<crate::context::EngineSlot>,
}

// SAFETY: what `abi` holds is written before the device is shared and never after.
unsafe impl Sync for Device {}
// SAFETY: as above; its pointers are null.
unsafe impl Send for Device {}

impl Device {
    fn new(info: DeviceInfo, settings: &'static Settings, index: usize) -> Device {
        let mut abi: IbvDevice = zeroed();
        abi.node_type = NODE_CA;
        fill(&mut abi.name, &info.name);
        fill(&mut abi.dev_name, device_file(&info));
        fill(&mut abi.dev_path, &format!("/sys/class/infiniband_verbs/{}", info.dev_name));
        fill(&mut abi.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
        let engine = Mutex::default();
        Device { abi, vendor_mark: [0; 512], info, settings, index, engine }
    }

    /// The device a program means.
    pub fn find(device: *const IbvDevice) -> Result<&'static Device, Errno> {
        let known = all().ok().and_then(|devices| {
            devices.iter().find(|known| core::ptr::eq(known.as_abi(), device)).copied()
        });
        known.ok_or_else(|| refuse!(EINVAL, ?device, "not a device of ibv_get_device_list"))
    }

    /// What programs hold.
    pub fn as_abi(&self) -> *mut IbvDevice {
        (&raw const *self).cast_mut().cast()
    }

    /// Its GID table, full from index 0: that of the engine while one is open, as addresses change.
    pub fn gids(&self) -> Vec<GidEntry> {
        let engine = lock(&self.engine).upgrade().filter(|engine| engine.is_here());
        let gids = engine.and_then(|engine| engine.gids().ok());
        gids.unwrap_or_else(|| self.info.gids.clone())
    }

    /// The number of its interface, 0 if it has none.
    pub fn netdev_index(&self) -> u32 {
        let name = self.info.netdev.as_deref().and_then(|name| std::ffi::CString::new(name).ok());
        // SAFETY: the name is a string.
        name.map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
    }

    fn attributes(&self) -> IbvDeviceAttr {
        let config = Config::default();
        let most = |count: usize| c_int::try_from(count).unwrap_or(c_int::MAX);
        let objects = most(config.max_objects);
        let rd_atomic = c_int::from(config.max_rd_atomic);
        let mut attr: IbvDeviceAttr = zeroed();
        fill(&mut attr.fw_ver, FW_VER);
        attr.node_guid = self.info.node_guid.to_be();
        attr.sys_image_guid = attr.node_guid;
        attr.max_mr_size = u64::MAX;
        attr.page_size_cap = !0xfff;
        attr.vendor_id = VENDOR_ID;
        attr.vendor_part_id = VENDOR_PART_ID;
        attr.hw_ver = HW_VER;
        attr.device_cap_flags = CAP_FLAGS;
        attr.max_qp = most(config.max_qp);
        attr.max_qp_wr = config.max_wr as c_int;
        attr.max_sge = config.max_sge as c_int;
        attr.max_sge_rd = attr.max_sge;
        attr.max_cq = objects;
        attr.max_cqe = most(config.max_cqe);
        attr.max_mr = most(config.max_mr);
        attr.max_mw = attr.max_mr;
        attr.max_pd = objects;
        attr.max_ah = objects;
        attr.max_qp_rd_atom = rd_atomic;
        attr.max_qp_init_rd_atom = rd_atomic;
        attr.max_res_rd_atom = rd_atomic.saturating_mul(attr.max_qp);
        attr.atomic_cap = ATOMIC_GLOB;
        attr.max_mcast_grp = MAX_GROUPS;
        attr.max_mcast_qp_attach = MAX_GROUPS;
        attr.max_total_mcast_qp_attach = MAX_GROUPS * 16;
        attr.max_srq = objects;
        attr.max_srq_wr = attr.max_qp_wr;
        attr.max_srq_sge = attr.max_sge;
        attr.max_pkeys = config.pkeys.len() as u16;
        attr.local_ca_ack_delay = 15;
        attr.phys_port_cnt = 1;
        attr
    }

    fn attributes_ex(&self) -> IbvDeviceAttrEx {
        let mut attr: IbvDeviceAttrEx = zeroed();
        attr.orig_attr = self.attributes();
        attr.odp_caps = ODP_CAPS;
        attr.completion_timestamp_mask = u64::MAX;
        attr.hca_core_clock = CLOCK_KHZ;
        attr.device_cap_flags_ex = CAP_FLAGS_EX;
        attr.max_dm_size = MAX_DM_SIZE;
        attr.xrc_odp_caps = ODP_CAPS_RC;
        attr.phys_port_cnt_ex = 1;
        attr
    }
}

/// Writes a string with its terminating 0, shortened to what fits.
fn fill(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    for (place, byte) in field[..room].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
}

/// The device's file below /dev/infiniband. UCX opens no device without one; where there is only
/// the folder, any character device will do.
fn device_file(info: &DeviceInfo) -> &str {
    let folder = Path::new("/dev/infiniband");
    let stand_in = folder.is_dir() && !folder.join(&info.dev_name).exists();
    if stand_in { "../null" } else { &info.dev_name }
}

/// All devices; once they could be listed they stay the same.
pub(crate) fn all() -> Result<&'static [&'static Device], Errno> {
    static DEVICES: OnceLock<Vec<&'static Device>> = OnceLock::new();
    static LISTING: Mutex<()> = Mutex::new(());
    let _listing = lock(&LISTING);
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    let settings = Settings::load();
    log::start(settings.as_ref().ok());
    let settings = settings.map_err(|error| {
        tracing::error!(%error, "no devices");
        EINVAL
    })?;
    let infos = identity::devices(&settings).map_err(|error| {
        tracing::error!(%error, "no devices");
        Errno(error.errno as c_int)
    })?;
    let settings: &'static Settings = Box::leak(Box::new(settings));
    let devices = infos.into_iter().enumerate().map(|(index, info)| {
        let device: &'static Device = Box::leak(Box::new(Device::new(info, settings, index)));
        device
    });
    Ok(DEVICES.get_or_init(|| devices.collect()))
}

/// Locks, whatever happened to an earlier holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices, an array that ends with null, to be freed; null and errno if there is no list.
///
/// # Safety
/// `count` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut IbvDevice {
    errno::pointer(all().and_then(|devices| {
        let list: Vec<_> = devices.iter().map(|device| device.as_abi()).collect();
        let list = null_ended_list(&list)?;
        // SAFETY: the caller gives a valid pointer or null.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = devices.len() as c_int;
        }
        Ok(list)
    }))
}

/// A copy of a list of pointers, ended by null, for the program to free.
pub(crate) fn null_ended_list<T>(entries: &[*mut T]) -> Result<*mut *mut T, Errno> {
    // SAFETY: takes no pointer; zeroed, so that the last entry is null.
    let list: *mut *mut T = unsafe { libc::calloc(entries.len() + 1, size_of::<*mut T>()) }.cast();
    if list.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: the array has one entry more than there are.
    unsafe { list.copy_from_nonoverlapping(entries.as_ptr(), entries.len()) };
    Ok(list)
}

/// # Safety
/// `list` must be null or from [`ibv_get_device_list`].
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut IbvDevice) {
    // SAFETY: the array was allocated with calloc; the devices stay.
    unsafe { libc::free(list.cast()) };
}

/// The device's name, null and errno for an unknown device.
pub(crate) extern "C" fn ibv_get_device_name(device: *mut IbvDevice) -> *const c_char {
    errno::pointer(Device::find(device).map(|device| device.abi.name.as_ptr().cast_mut()))
}

/// The node GUID in network order, 0 for an unknown device.
pub(crate) extern "C" fn ibv_get_device_guid(device: *mut IbvDevice) -> u64 {
    Device::find(device).map_or(0, |device| device.info.node_guid.to_be())
}

/// The device's number, -1 for an unknown device.
pub(crate) extern "C" fn ibv_get_device_index(device: *mut IbvDevice) -> c_int {
    errno::minus_one(Device::find(device).map(|device| device.index as c_int))
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut IbvContext,
    attr: *mut IbvDeviceAttr,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(attr)) = (unsafe { (Context::of(context), attr.as_mut()) }) else {
        return errno::code(Err(EINVAL));
    };
    *attr = context.device.attributes();
    0
}

/// The extended query; writes as much as the caller's structure takes.
///
/// # Safety
/// `context` and `input` must be null or valid, `attr` null or writable for `size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut IbvContext,
    input: *const IbvQueryDeviceExInput,
    attr: *mut IbvDeviceAttrEx,
    size: usize,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(context) = (unsafe { Context::of(context) }) else {
        return errno::code(Err(EINVAL));
    };
    // SAFETY: as above.
    let comp_mask = unsafe { input.as_ref() }.map_or(0, |input| input.comp_mask);
    if comp_mask != 0 || attr.is_null() || size < size_of::<IbvDeviceAttr>() {
        return errno::code(Err(refuse!(
            EINVAL,
            comp_mask,
            size,
            "query_device_ex wants no comp_mask and a whole structure"
        )));
    }
    let answer = context.device.attributes_ex();
    let len = size.min(size_of::<IbvDeviceAttrEx>());
    // SAFETY: the caller's structure has `size` bytes, ours no fewer than `len`.
    unsafe {
        core::ptr::write_bytes(attr.cast::<u8>(), 0, size);
        core::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), attr.cast(), len);
    }
    0
}

const _: () = assert!(core::mem::offset_of!(Device, abi) == 0);
const _: () = assert!(core::mem::offset_of!(Device, vendor_mark) == 664);
