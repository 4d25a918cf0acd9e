//! Memory regions.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ferroce::memory;
use ferroce_stack::verbs::{self, Access, MrKeys};
use ferroce_stack::{MrChange, MrInit};

use crate::device::lock;
use crate::dm::DeviceMemory;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvMr, IbvPd, IbvSge};
use crate::log::refuse;
use crate::pd::Pd;

/// Rights a device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: u32 = 0x3ff0_0000;
/// The rights there are.
const KNOWN: u32 = (1 << 10) - 1;
/// `enum ibv_rereg_mr_flags`.
const CHANGE_TRANSLATION: c_int = 1 << 0;
const CHANGE_PD: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;
/// `IBV_REREG_MR_ERR_INPUT`: the region is as it was.
const ERR_INPUT: c_int = -1;
/// Of `enum ib_uverbs_advise_mr_advice`, prefetch without faults is the last.
const LAST_ADVICE: c_int = 2;
/// `IBV_ADVISE_MR_FLAG_FLUSH`.
const ADVISE_FLUSH: u32 = 1;

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    abi: IbvMr,
    /// The region of the device.
    pub mr: verbs::Mr,
    /// The device memory it lies in.
    dm: Option<Arc<DeviceMemory>>,
}

/// What a file knows of a region.
#[derive(Clone)]
pub(crate) struct Registered {
    pd: verbs::Pd,
    /// What the program calls the first byte.
    iova: u64,
    length: u64,
    keys: MrKeys,
}

/// A registration as a program asks for it.
pub(crate) struct Request {
    pub addr: u64,
    pub length: usize,
    pub iova: u64,
    pub access: u32,
}

impl Mr {
    /// The region a program means.
    ///
    /// # Safety
    /// `mr` must be null or one of ours.
    pub unsafe fn of<'a>(mr: *const IbvMr) -> Option<&'a Mr> {
        // SAFETY: a region of ours begins with what programs hold.
        unsafe { mr.cast::<Mr>().as_ref() }
    }

    /// Registers, after the request was found possible, and returns what programs hold.
    pub fn register(
        pd: &Pd,
        request: &Request,
        addr: *mut c_void,
        dm: Option<Arc<DeviceMemory>>,
    ) -> Result<*mut IbvMr, Errno> {
        let context = pd.context()?;
        let (length, access) = (request.length as u64, Access(request.access & !OPTIONAL));
        let init = MrInit { addr: request.addr, length, iova: request.iova, access };
        let keys = context.engine.lock()?.reg_mr(pd.pd, &init)?;
        let iova = if access.has(Access::ZERO_BASED) { 0 } else { request.iova };
        let registered = Registered { pd: pd.pd, iova, length, keys };
        lock(&context.file.mrs).insert(keys.mr.value(), registered);
        if let Some(dm) = &dm {
            dm.add_region();
        }
        Ok(Mr::boxed(pd, keys, addr, request.length, dm))
    }

    fn boxed(
        pd: &Pd,
        keys: MrKeys,
        addr: *mut c_void,
        length: usize,
        dm: Option<Arc<DeviceMemory>>,
    ) -> *mut IbvMr {
        // SAFETY: the domain is valid, for a program destroys it after its regions.
        let context = unsafe { (*pd.as_abi()).context };
        let (handle, lkey, rkey) = (keys.mr.value(), keys.lkey, remote_key(keys));
        let abi = IbvMr { context, pd: pd.as_abi(), addr, length, handle, lkey, rkey };
        Box::into_raw(Box::new(Mr { abi, mr: keys.mr, dm })).cast()
    }

    /// Its domain.
    fn pd(&self) -> Result<&Pd, Errno> {
        // SAFETY: a program destroys a domain after its regions.
        unsafe { Pd::of(self.abi.pd) }.ok_or(EINVAL)
    }
}

/// What peers are told. Programs tell it before they grant remote rights by `ibv_rereg_mr`, so a
/// region without such rights has a key too: the one it will have then.
fn remote_key(keys: MrKeys) -> u32 {
    keys.lkey
}

/// Whether the rights go together.
pub(crate) fn check_access(access: u32) -> Result<(), Errno> {
    let flags = Access(access & !OPTIONAL);
    if flags.0 & !KNOWN != 0 {
        let unknown = flags.0 & !KNOWN;
        return Err(refuse!(EINVAL, access, unknown, "access has unknown flags"));
    }
    let writes = flags.has_any(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !flags.has(Access::LOCAL_WRITE) {
        return Err(refuse!(
            EINVAL,
            access,
            "REMOTE_WRITE (2) and REMOTE_ATOMIC (8) need LOCAL_WRITE (1) as well"
        ));
    }
    Ok(())
}

/// Whether the memory is there. On-demand regions may cover what is not mapped yet, up to the
/// whole address space (implicit registration).
fn check_range(request: &Request) -> Result<(), Errno> {
    let (addr, length) = (request.addr, request.length as u64);
    let wraps = addr.checked_add(length).is_none() || request.iova.checked_add(length).is_none();
    if wraps {
        return Err(refuse!(EINVAL, addr, length, request.iova, "the range wraps around"));
    }
    let access = Access(request.access);
    if access.has(Access::ON_DEMAND) || memory::probe(addr, length, access.has(Access::LOCAL_WRITE))
    {
        return Ok(());
    }
    Err(refuse!(
        EFAULT,
        addr,
        length,
        access = request.access,
        "the memory is not mapped, or not writable though LOCAL_WRITE is asked for"
    ))
}

/// A region of nothing, for SGEs: every address reads as zero, and what is written vanishes.
///
/// # Safety
/// `pd` must be null or valid.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut IbvPd) -> *mut IbvMr {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Pd::of(pd) }.ok_or(EINVAL).and_then(|pd| {
        let context = pd.context()?;
        let keys = context.engine.lock()?.alloc_null_mr(pd.pd)?;
        Ok(Mr::boxed(pd, keys, core::ptr::null_mut(), 0, None))
    }))
}

/// # Safety
/// `pd` must be null or valid.
unsafe fn reg_mr(pd: *mut IbvPd, addr: *mut c_void, request: Request) -> *mut IbvMr {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Pd::of(pd) }.ok_or(EINVAL).and_then(|pd| {
        check_access(request.access)?;
        check_range(&request)?;
        Mr::register(pd, &request, addr, None)
    }))
}

/// # Safety
/// `pd` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut IbvMr {
    let (at, access) = (addr.addr() as u64, access as u32);
    // SAFETY: as the caller promises.
    unsafe { reg_mr(pd, addr, Request { addr: at, length, iova: at, access }) }
}

/// Registers memory under an address of its own.
///
/// # Safety
/// `pd` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut IbvMr {
    let access = access as u32;
    // SAFETY: as the caller promises.
    unsafe { reg_mr(pd, addr, Request { addr: addr.addr() as u64, length, iova, access }) }
}

/// What the header calls for rights that are not constant, or optional ones.
///
/// # Safety
/// `pd` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut IbvMr {
    // SAFETY: as the caller promises.
    unsafe { reg_mr(pd, addr, Request { addr: addr.addr() as u64, length, iova, access }) }
}

/// Deregisters: when this returns nothing touches the memory any more.
///
/// # Safety
/// `mr` must be null or one of ours, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(region) = (unsafe { Mr::of(mr) }) else { return errno::code(Err(EINVAL)) };
    errno::code(deregister(region).map(|()| {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    }))
}

fn deregister(region: &Mr) -> Result<(), Errno> {
    let context = region.pd()?.context()?;
    let handle = region.mr.value();
    context.engine.lock()?.dereg_mr(region.mr).inspect_err(|error| {
        tracing::warn!(handle, %error, "region not deregistered; are windows bound to it?");
    })?;
    lock(&context.file.mrs).remove(&handle);
    if let Some(dm) = &region.dm {
        dm.remove_region();
    }
    Ok(())
}

/// Changes a region; 0, or -1 with errno and the region as it was.
///
/// # Safety
/// `mr` must be null or one of ours, `pd` null or valid.
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(region) = (unsafe { mr.cast::<Mr>().as_mut() }) else {
        errno::set(libc::EINVAL);
        return ERR_INPUT;
    };
    let at = addr.addr() as u64;
    let request = Request { addr: at, length, iova: at, access: access as u32 };
    // SAFETY: as above.
    let pd = unsafe { Pd::of(pd) };
    match reregister(region, flags, pd, &request) {
        Ok(()) => {
            if flags & CHANGE_TRANSLATION != 0 {
                (region.abi.addr, region.abi.length) = (addr, length);
            }
            0
        }
        Err(Errno(code)) => {
            errno::set(code);
            ERR_INPUT
        }
    }
}

fn reregister(
    region: &mut Mr,
    flags: c_int,
    pd: Option<&Pd>,
    request: &Request,
) -> Result<(), Errno> {
    let asked = |flag| flags & flag != 0;
    if flags == 0 || flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) != 0 {
        return Err(refuse!(EINVAL, flags, "rereg_mr: translation (1), pd (2), access (4)"));
    }
    if asked(CHANGE_ACCESS) {
        check_access(request.access)?;
    } else if request.access != 0 {
        return Err(refuse!(EINVAL, request.access, "access given without its flag (4)"));
    }
    if asked(CHANGE_TRANSLATION) {
        if request.addr == 0 || request.length == 0 {
            return Err(refuse!(EINVAL, request.addr, request.length, "no memory given"));
        }
        check_range(request)?;
    }
    let new_pd = match pd {
        Some(pd) if asked(CHANGE_PD) => Some(pd),
        None if asked(CHANGE_PD) => return Err(refuse!(EINVAL, "no protection domain given")),
        _ => None,
    };
    let length = request.length as u64;
    let change = MrChange {
        range: asked(CHANGE_TRANSLATION).then_some((request.addr, length, request.iova)),
        pd: new_pd.map(|pd| pd.pd),
        access: asked(CHANGE_ACCESS).then_some(Access(request.access & !OPTIONAL)),
    };
    let context = region.pd()?.context()?;
    let keys = context.engine.lock()?.rereg_mr(region.mr, &change)?;
    let mut known = lock(&context.file.mrs);
    if let Some(mut registered) = known.remove(&region.mr.value()) {
        registered.keys = keys;
        registered.pd = change.pd.unwrap_or(registered.pd);
        if change.range.is_some() {
            (registered.iova, registered.length) = (request.iova, length);
        }
        known.insert(keys.mr.value(), registered);
    }
    drop(known);
    region.mr = keys.mr;
    let abi = &mut region.abi;
    (abi.handle, abi.lkey, abi.rkey) = (keys.mr.value(), keys.lkey, remote_key(keys));
    if let Some(pd) = new_pd {
        abi.pd = pd.as_abi();
    }
    Ok(())
}

/// A region of another context of the same file. Its address is not known, as documented.
///
/// # Safety
/// `pd` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut IbvPd, handle: u32) -> *mut IbvMr {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Pd::of(pd) }.ok_or(EINVAL).and_then(|pd| {
        let found = lock(&pd.context()?.file.mrs).get(&handle).cloned();
        let registered = found.filter(|registered| registered.pd == pd.pd).ok_or_else(|| {
            refuse!(EINVAL, handle, "no region of this protection domain has the handle")
        })?;
        let length = registered.length as usize;
        Ok(Mr::boxed(pd, registered.keys, core::ptr::null_mut(), length, None))
    }))
}

/// Frees what [`ibv_import_mr`] returned; the region stays.
///
/// # Safety
/// `mr` must be null or imported, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut IbvMr) {
    if !mr.is_null() {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    }
}

/// Advice on pages that are always there; that the ranges are registered is checked.
///
/// # Safety
/// `pd` must be null or valid, `sges` readable for `count` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut IbvPd,
    advice: c_int,
    flags: u32,
    sges: *mut IbvSge,
    count: u32,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(pd) = (unsafe { Pd::of(pd) }) else { return errno::code(Err(EINVAL)) };
    if !(0..=LAST_ADVICE).contains(&advice) || flags & !ADVISE_FLUSH != 0 {
        return errno::code(Err(refuse!(
            EOPNOTSUPP,
            advice,
            flags,
            "advice is prefetch (0 to 2), its one flag flush (1)"
        )));
    }
    if sges.is_null() || count == 0 {
        return errno::code(Err(refuse!(EINVAL, count, "advice on nothing")));
    }
    // SAFETY: the caller gives `count` entries.
    let sges = unsafe { core::slice::from_raw_parts(sges, count as usize) };
    errno::code(sges.iter().try_for_each(|sge| check_sge(pd, sge)))
}

fn check_sge(pd: &Pd, sge: &IbvSge) -> Result<(), Errno> {
    let known = lock(&pd.context()?.file.mrs).get(&sge.lkey).cloned();
    let (addr, length, lkey) = (sge.addr, sge.length, sge.lkey);
    let registered = known
        .filter(|registered| registered.pd == pd.pd)
        .ok_or_else(|| refuse!(EINVAL, lkey, "no region of this protection domain has the key"))?;
    let inside = addr.checked_sub(registered.iova).is_some_and(|offset| {
        registered.length.checked_sub(offset).is_some_and(|room| u64::from(length) <= room)
    });
    if inside { Ok(()) } else { Err(refuse!(EFAULT, addr, length, lkey, "not inside its region")) }
}
