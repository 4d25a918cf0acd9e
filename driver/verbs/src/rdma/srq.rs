//! Shared receive queues of ids.

use core::ffi::c_int;
use core::ptr;

use super::id::{CmId, QPT_XRC_RECV};
use super::qp::{create_cqs, destroy_cqs, made};
use crate::errno::{self, Errno};
use crate::layout::{IbvPd, IbvSrqInitAttr, IbvSrqInitAttrEx, RdmaCmId, zeroed};
use crate::log::refuse;
use crate::srq::{create_srq_ex, ibv_destroy_srq};

/// `IBV_SRQ_INIT_ATTR_*`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 2;
const MASK_XRCD: u32 = 4;
const MASK_CQ: u32 = 8;

/// `enum ibv_srq_type`.
const BASIC: c_int = 0;
const XRC: c_int = 1;

/// Makes an SRQ that the QPs of the id receive from.
///
/// # Safety
/// The id and the domain must be null or live, the attributes null or valid.
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    attr: *mut IbvSrqInitAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    let (found, attr) = unsafe { (CmId::of(id), attr.as_ref()) };
    errno::minus_one(found.and_then(|id| {
        let attr = attr.ok_or_else(|| refuse!(EINVAL, "create_srq: the attributes are null"))?;
        let mut init: IbvSrqInitAttrEx = zeroed();
        init.srq_context = attr.srq_context;
        init.attr = attr.attr;
        init.comp_mask = MASK_TYPE | MASK_PD;
        init.srq_type = if id.qp_type() == QPT_XRC_RECV { XRC } else { BASIC };
        init.pd = pd;
        // SAFETY: as above.
        unsafe { create(&id, &mut init) }.map(|()| 0)
    }))
}

/// # Safety
/// The id must be null or live, the attributes null or valid with live objects.
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut RdmaCmId,
    attr: *mut IbvSrqInitAttrEx,
) -> c_int {
    // SAFETY: the caller's promise.
    let (found, attr) = unsafe { (CmId::of(id), attr.as_mut()) };
    errno::minus_one(found.and_then(|id| {
        let attr = attr.ok_or_else(|| refuse!(EINVAL, "create_srq_ex: the attributes are null"))?;
        // SAFETY: as above.
        unsafe { create(&id, attr) }.map(|()| 0)
    }))
}

/// # Safety
/// The objects of `attr` must be null or live.
unsafe fn create(id: &CmId, attr: &mut IbvSrqInitAttrEx) -> Result<(), Errno> {
    if attr.comp_mask & MASK_TYPE == 0 {
        return Err(refuse!(EINVAL, attr.comp_mask, "create_srq_ex: the type is missing (1)"));
    }
    let attached = id.state().attached()?;
    // SAFETY: the fields are written by the program's threads alone.
    let abi = unsafe { &mut *id.abi() };
    if attr.comp_mask & MASK_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= MASK_PD;
        attr.pd = abi.pd;
    }
    if attr.srq_type == XRC {
        if attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = attached.default_xrcd()?;
        }
        if attr.comp_mask & MASK_CQ == 0 || attr.cq.is_null() {
            create_cqs(abi, 0, attr.attr.max_wr)?;
            attr.cq = abi.recv_cq;
        }
        attr.comp_mask |= MASK_XRCD | MASK_CQ;
    }
    // SAFETY: the context is open, the objects are live.
    let srq = made(unsafe { create_srq_ex(abi.verbs, attr) });
    abi.srq = srq.inspect_err(|_| destroy_cqs(abi))?;
    if abi.pd.is_null() {
        abi.pd = attr.pd;
    }
    Ok(())
}

/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut RdmaCmId) {
    // SAFETY: the caller's promise.
    if let Ok(id) = unsafe { CmId::of(id) } {
        // SAFETY: the fields are written by the program's threads alone.
        let abi = unsafe { &mut *id.abi() };
        // SAFETY: the SRQ is live or null.
        unsafe { ibv_destroy_srq(abi.srq) };
        abi.srq = ptr::null_mut();
        destroy_cqs(abi);
    }
}
