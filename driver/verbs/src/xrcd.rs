//! XRC domains, which programs may share by naming the same file, and their targets.

use core::ffi::c_int;
use std::sync::{Arc, Mutex};

use ferroce::engine::Engine;
use ferroce_stack::verbs::{Qpn, Xrcd};

use crate::context::{Context, inode_of};
use crate::device::lock;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvContext, IbvXrcd, IbvXrcdInitAttr};
use crate::log::refuse;
use crate::qp::Target;

/// `IBV_XRCD_INIT_ATTR_FD` and `_OFLAGS`: both are needed.
const MASK: u32 = 3;

/// A handle of a domain.
#[repr(C)]
pub(crate) struct XrcDomain {
    abi: IbvXrcd,
    pub shared: Arc<Shared>,
}

/// A domain.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    handle: Xrcd,
    /// Device and inode of its file.
    file: Option<(u64, u64)>,
    /// Its targets, for who opens them by number.
    pub targets: Mutex<Vec<(Qpn, Arc<Target>)>>,
}

/// Domains with a file, each with the number of its handles.
static NAMED: Mutex<Vec<(Arc<Shared>, usize)>> = Mutex::new(Vec::new());

impl XrcDomain {
    /// The domain behind a program's pointer; `None` for null.
    ///
    /// # Safety
    /// The pointer must be null or of a live domain, for as long as the reference lives.
    pub unsafe fn of<'a>(xrcd: *mut IbvXrcd) -> Option<&'a XrcDomain> {
        // SAFETY: domains are made here alone, as the head of an `XrcDomain`.
        unsafe { xrcd.cast::<XrcDomain>().as_ref() }
    }

    /// The handle in the device.
    pub fn handle(&self) -> Xrcd {
        self.shared.handle
    }
}

/// # Safety
/// The context must be null or open, the attributes null or valid.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut IbvContext,
    attr: *mut IbvXrcdInitAttr,
) -> *mut IbvXrcd {
    // SAFETY: the caller's promise.
    let (owner, attr) = unsafe { (Context::of(context), attr.as_ref()) };
    errno::pointer(owner.zip(attr).ok_or(EINVAL).and_then(|(owner, attr)| {
        let IbvXrcdInitAttr { comp_mask, fd, oflags } = *attr;
        if comp_mask != MASK || oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
            return Err(refuse!(EINVAL, comp_mask, oflags, "open_xrcd"));
        }
        let file = if fd == -1 { None } else { Some(inode_of(fd)?) };
        let shared = open(&owner.engine, file, oflags)?;
        let domain = XrcDomain { abi: IbvXrcd { context }, shared };
        Ok(Box::into_raw(Box::new(domain)).cast())
    }))
}

/// The domain of a file, or one of its own.
fn open(
    engine: &Arc<Engine>,
    file: Option<(u64, u64)>,
    oflags: c_int,
) -> Result<Arc<Shared>, Errno> {
    let mut named = lock(&NAMED);
    let found = named.iter_mut().find(|(shared, _)| {
        file.is_some() && shared.file == file && Arc::ptr_eq(&shared.engine, engine)
    });
    match found {
        Some(_) if oflags & libc::O_EXCL != 0 => {
            Err(refuse!(EINVAL, "open_xrcd: the file has a domain, and O_EXCL is given"))
        }
        Some((shared, handles)) => {
            *handles += 1;
            Ok(shared.clone())
        }
        None if oflags & libc::O_CREAT == 0 => {
            Err(refuse!(EAGAIN, "open_xrcd: the file has no domain, and O_CREAT is missing"))
        }
        None => {
            let handle = engine.lock()?.open_xrcd()?;
            let targets = Mutex::default();
            let shared = Arc::new(Shared { engine: engine.clone(), handle, file, targets });
            if file.is_some() {
                named.push((shared.clone(), 1));
            }
            Ok(shared)
        }
    }
}

/// # Safety
/// The domain must be null or live, and is gone if this succeeds.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut IbvXrcd) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { XrcDomain::of(xrcd) }.ok_or(EINVAL);
    errno::code(found.and_then(|found| {
        close(&found.shared)?;
        // SAFETY: made by `open_xrcd`, and the program gives it up.
        drop(unsafe { Box::from_raw(xrcd.cast::<XrcDomain>()) });
        Ok(())
    }))
}

fn close(shared: &Arc<Shared>) -> Result<(), Errno> {
    let mut named = lock(&NAMED);
    let place = named.iter().position(|(other, _)| Arc::ptr_eq(other, shared));
    if let Some(place) = place
        && named[place].1 > 1
    {
        named[place].1 -= 1;
        return Ok(());
    }
    shared.engine.lock()?.close_xrcd(shared.handle).map_err(|error| {
        refuse!(EBUSY, %error, "close_xrcd: SRQs or queue pairs belong to it");
        Errno::from(error)
    })?;
    if let Some(place) = place {
        named.remove(place);
    }
    Ok(())
}
