//! Protection domains; parent and thread domains, which change nothing of what they surround.

use core::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_stack::verbs;

use crate::context::Context;
use crate::device::lock;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvContext, IbvParentDomainInitAttr, IbvPd, IbvTd, IbvTdInitAttr};
use crate::log::refuse;

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`.
const ALLOCATORS: u32 = 1 << 0;
/// `IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT`.
const PD_CONTEXT: u32 = 1 << 1;

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    abi: IbvPd,
    /// The domain of the device.
    pub pd: verbs::Pd,
    /// Parent domains around this one.
    parents: AtomicU32,
    kind: Kind,
}

enum Kind {
    /// Made by `ibv_alloc_pd`, or imported.
    Domain,
    /// Made by `ibv_alloc_parent_domain` around others.
    Parent { pd: *mut IbvPd, td: *mut IbvTd },
}

/// A thread domain. Our objects are made for any number of threads; it is a promise we do not need.
#[repr(C)]
struct Td {
    abi: IbvTd,
    parents: AtomicU32,
}

impl Pd {
    /// The domain a program means.
    ///
    /// # Safety
    /// `pd` must be null or one of ours.
    pub unsafe fn of<'a>(pd: *const IbvPd) -> Option<&'a Pd> {
        // SAFETY: a domain of ours begins with what programs hold.
        unsafe { pd.cast::<Pd>().as_ref() }
    }

    /// What programs hold.
    pub fn as_abi(&self) -> *mut IbvPd {
        (&raw const self.abi).cast_mut()
    }

    /// Its context.
    ///
    /// # Errors
    /// EINVAL if it was made without one.
    pub fn context(&self) -> Result<&Context, Errno> {
        // SAFETY: a program closes a context after everything made from it.
        unsafe { Context::of(self.abi.context) }.ok_or(EINVAL)
    }

    fn boxed(context: &Context, pd: verbs::Pd, kind: Kind) -> *mut IbvPd {
        let abi = IbvPd { context: context.as_abi(), handle: pd.value() };
        Box::into_raw(Box::new(Pd { abi, pd, parents: AtomicU32::new(0), kind })).cast()
    }
}

/// # Safety
/// `context` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Context::of(context) }.ok_or(EINVAL).and_then(|context| {
        let pd = context.engine.lock()?.alloc_pd()?;
        lock(&context.file.pds).insert(pd.value(), pd);
        Ok(Pd::boxed(context, pd, Kind::Domain))
    }))
}

/// Destroys a domain of any kind.
///
/// # Safety
/// `pd` must be null or one of ours, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(domain) = (unsafe { Pd::of(pd) }) else { return errno::code(Err(EINVAL)) };
    errno::code(dealloc(domain).map(|()| {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
    }))
}

fn dealloc(domain: &Pd) -> Result<(), Errno> {
    let handle = domain.abi.handle;
    match &domain.kind {
        _ if domain.parents.load(Ordering::Relaxed) > 0 => {
            Err(refuse!(EBUSY, handle, "a parent domain is around this protection domain"))
        }
        Kind::Domain => {
            let context = domain.context()?;
            let mut device = context.engine.lock()?;
            device.dealloc_pd(domain.pd).inspect_err(|error| {
                tracing::warn!(handle, %error, "protection domain not destroyed");
            })?;
            lock(&context.file.pds).remove(&handle);
            Ok(())
        }
        Kind::Parent { pd, td } => {
            // SAFETY: neither can be destroyed while this one counts in `parents`.
            let inside = unsafe { (Pd::of(*pd), td.cast::<Td>().as_ref()) };
            if let Some(pd) = inside.0 {
                pd.parents.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some(td) = inside.1 {
                td.parents.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }
}

/// A domain of another context of the same file.
///
/// # Safety
/// `context` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_import_pd(context: *mut IbvContext, handle: u32) -> *mut IbvPd {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Context::of(context) }.ok_or(EINVAL).and_then(|context| {
        let found = lock(&context.file.pds).get(&handle).copied();
        let pd = found.ok_or_else(|| {
            refuse!(EINVAL, handle, "no protection domain of this file has the handle")
        })?;
        Ok(Pd::boxed(context, pd, Kind::Domain))
    }))
}

/// Frees what [`ibv_import_pd`] returned; the domain stays.
///
/// # Safety
/// `pd` must be null or imported, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut IbvPd) {
    if !pd.is_null() {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(pd.cast::<Pd>()) });
    }
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut IbvContext,
    attr: *mut IbvTdInitAttr,
) -> *mut IbvTd {
    // SAFETY: the caller gives valid pointers or null.
    let (known, attr) = unsafe { (Context::of(context), attr.as_ref()) };
    let comp_mask = attr.map_or(0, |attr| attr.comp_mask);
    errno::pointer(match known {
        None => Err(EINVAL),
        Some(_) if comp_mask != 0 => {
            Err(refuse!(EINVAL, comp_mask, "a thread domain has no attributes"))
        }
        Some(_) => {
            let td = Td { abi: IbvTd { context }, parents: AtomicU32::new(0) };
            Ok(Box::into_raw(Box::new(td)).cast())
        }
    })
}

/// # Safety
/// `td` must be null or one of ours, and not used afterwards.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut IbvTd) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(domain) = (unsafe { td.cast::<Td>().as_ref() }) else {
        return errno::code(Err(EINVAL));
    };
    if domain.parents.load(Ordering::Relaxed) > 0 {
        return errno::code(Err(refuse!(EBUSY, "a parent domain is around this thread domain")));
    }
    // SAFETY: it came from a `Box`, and the caller does not use it any more.
    drop(unsafe { Box::from_raw(td.cast::<Td>()) });
    0
}

/// A domain around a protection domain and perhaps a thread domain. Allocators are accepted; our
/// queues need no memory of the program's.
///
/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut IbvContext,
    attr: *mut IbvParentDomainInitAttr,
) -> *mut IbvPd {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(attr)) = (unsafe { (Context::of(context), attr.as_ref()) }) else {
        return errno::pointer(Err(EINVAL));
    };
    // SAFETY: as above.
    let inside = unsafe { (Pd::of(attr.pd), attr.td.cast::<Td>().as_ref()) };
    errno::pointer(check_parent_domain(attr).and_then(|()| {
        let pd = inside.0.ok_or_else(|| refuse!(EINVAL, "a parent domain needs a pd"))?;
        pd.parents.fetch_add(1, Ordering::Relaxed);
        if let Some(td) = inside.1 {
            td.parents.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Pd::boxed(context, pd.pd, Kind::Parent { pd: attr.pd, td: attr.td }))
    }))
}

fn check_parent_domain(attr: &IbvParentDomainInitAttr) -> Result<(), Errno> {
    let comp_mask = attr.comp_mask;
    if comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
        return Err(refuse!(EINVAL, comp_mask, "known are allocators (1) and pd_context (2)"));
    }
    if comp_mask & ALLOCATORS != 0 && attr.alloc.is_some() != attr.free.is_some() {
        return Err(refuse!(EINVAL, "allocators come in pairs: alloc and free"));
    }
    Ok(())
}
