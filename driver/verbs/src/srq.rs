//! Shared receive queues.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::sync::Arc;

use ferroce::engine::{AsyncQueue, Engine, SharedReceiveQueue};
use ferroce_stack::SrqInit;

use crate::context::Context;
use crate::cq::Cq;
use crate::errno::{self, EINVAL, Errno};
use crate::event;
use crate::layout::{
    IbvContext, IbvPd, IbvSrq, IbvSrqAttr, IbvSrqInitAttr, IbvSrqInitAttrEx, zeroed,
};
use crate::log::refuse;
use crate::pd::Pd;
use crate::xrcd::XrcDomain;

/// `enum ibv_srq_type`.
const BASIC: c_int = 0;
const XRC: c_int = 1;

/// `enum ibv_srq_init_attr_mask`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 2;
const MASK_XRCD: u32 = 4;
const MASK_CQ: u32 = 8;

/// `enum ibv_srq_attr_mask`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    abi: UnsafeCell<IbvSrq>,
    pub engine: Arc<Engine>,
    pub queue: Arc<SharedReceiveQueue>,
    events: Arc<AsyncQueue>,
}

impl Srq {
    /// The SRQ behind a program's pointer; `None` for null.
    ///
    /// # Safety
    /// The pointer must be null or of a live SRQ, for as long as the reference lives.
    #[inline]
    pub unsafe fn of<'a>(srq: *mut IbvSrq) -> Option<&'a Srq> {
        // SAFETY: SRQs are made here alone, as the head of a `Srq`.
        unsafe { srq.cast::<Srq>().as_ref() }
    }
}

/// Makes an SRQ.
///
/// # Safety
/// The pointers of `init` must be null or live.
unsafe fn create(context: *mut IbvContext, init: &IbvSrqInitAttrEx) -> Result<*mut IbvSrq, Errno> {
    let given = |bit| init.comp_mask & bit != 0;
    let srq_type = if given(MASK_TYPE) { init.srq_type } else { BASIC };
    if !matches!(srq_type, BASIC | XRC) {
        return Err(refuse!(EOPNOTSUPP, srq_type, "create_srq: neither basic nor XRC"));
    }
    // SAFETY: the caller's promise.
    let owner = unsafe { Context::of(context) }.ok_or(EINVAL)?;
    // SAFETY: as above.
    let pd = unsafe { Pd::of(init.pd) }.filter(|_| given(MASK_PD)).ok_or(EINVAL)?.pd;
    let xrc = match srq_type {
        BASIC => None,
        _ => {
            // SAFETY: as above.
            let (xrcd, cq) = unsafe { (XrcDomain::of(init.xrcd), Cq::of(init.cq)) };
            let complete = xrcd.zip(cq).filter(|_| given(MASK_XRCD) && given(MASK_CQ));
            let (xrcd, cq) = complete
                .ok_or_else(|| refuse!(EINVAL, "create_srq_ex: XRC needs an XRCD and a CQ"))?;
            Some((xrcd.handle(), cq.queue.handle()))
        }
    };
    let IbvSrqAttr { max_wr, max_sge, .. } = init.attr;
    if max_wr == 0 {
        return Err(refuse!(EINVAL, "create_srq: max_wr is 0"));
    }
    let place = Box::into_raw(Box::new(MaybeUninit::<Srq>::uninit())).cast::<Srq>();
    let (engine, events) = (owner.engine.clone(), owner.events.clone());
    let made = SrqInit { pd, max_wr, max_sge, xrc };
    let made = engine.create_srq(&made, events.clone(), place as usize as u64);
    let queue = made.map_err(|error| {
        // SAFETY: allocated above, and never filled.
        drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<Srq>>()) });
        refuse!(EINVAL, %error, max_wr, max_sge, "create_srq");
        Errno::from(error)
    })?;
    let mut abi: IbvSrq = zeroed();
    abi.context = context;
    abi.srq_context = init.srq_context;
    abi.pd = init.pd;
    abi.handle = queue.handle().value();
    abi.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    abi.cond = libc::PTHREAD_COND_INITIALIZER;
    let srq = Srq { abi: UnsafeCell::new(abi), engine, queue, events };
    // SAFETY: the place was allocated for it.
    unsafe { place.write(srq) };
    Ok(place.cast())
}

/// # Safety
/// The PD must be null or live, the attributes null or valid.
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut IbvPd,
    attr: *mut IbvSrqInitAttr,
) -> *mut IbvSrq {
    // SAFETY: the caller's promise.
    let (Some(owner), Some(attr)) = (unsafe { (pd.as_ref(), attr.as_ref()) }) else {
        return errno::pointer(Err(EINVAL));
    };
    let mut init: IbvSrqInitAttrEx = zeroed();
    init.srq_context = attr.srq_context;
    init.attr = attr.attr;
    init.comp_mask = MASK_PD;
    init.pd = pd;
    // SAFETY: as above.
    errno::pointer(unsafe { create(owner.context, &init) })
}

/// # Safety
/// The context must be open, the attributes null or valid with live objects.
pub(crate) unsafe extern "C" fn create_srq_ex(
    context: *mut IbvContext,
    attr: *mut IbvSrqInitAttrEx,
) -> *mut IbvSrq {
    // SAFETY: the caller's promise.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    // SAFETY: as above.
    errno::pointer(attr.and_then(|attr| unsafe { create(context, attr) }))
}

/// # Safety
/// The SRQ must be null or live, the number's place null or valid.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut IbvSrq, number: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(srq), Some(number)) = (unsafe { (Srq::of(srq), number.as_mut()) }) else {
        return errno::code(Err(EINVAL));
    };
    *number = srq.queue.handle().value();
    0
}

/// # Safety
/// The SRQ must be null or live, the attributes null or valid.
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut IbvSrq,
    attr: *mut IbvSrqAttr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(srq), Some(attr)) = (unsafe { (Srq::of(srq), attr.as_ref()) }) else {
        return errno::code(Err(EINVAL));
    };
    let IbvSrqAttr { max_wr, srq_limit, .. } = *attr;
    let size = (mask & MAX_WR != 0).then_some(max_wr);
    let limit = (mask & LIMIT != 0).then_some(srq_limit);
    let outcome = match mask & !(MAX_WR | LIMIT) {
        0 => srq.engine.modify_srq(&srq.queue, size, limit).map_err(|error| {
            refuse!(EINVAL, %error, ?size, ?limit, "modify_srq: below what is posted, or too many");
            Errno::from(error)
        }),
        unknown => Err(refuse!(EINVAL, unknown, "modify_srq: unknown attributes")),
    };
    errno::code(outcome)
}

/// # Safety
/// The SRQ must be null or live, the attributes null or valid.
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut IbvSrq, attr: *mut IbvSrqAttr) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(srq), Some(attr)) = (unsafe { (Srq::of(srq), attr.as_mut()) }) else {
        return errno::code(Err(EINVAL));
    };
    errno::code(srq.engine.query_srq(&srq.queue).map_err(Errno::from).map(|found| {
        let (max_wr, max_sge) = (found.max_wr, found.max_sge);
        *attr = IbvSrqAttr { max_wr, max_sge, srq_limit: found.srq_limit };
    }))
}

/// # Safety
/// The SRQ must be null or live, and is gone if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut IbvSrq) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { Srq::of(srq) }.ok_or(EINVAL);
    errno::code(found.and_then(|found| {
        found.engine.destroy_srq(&found.queue).map_err(|error| {
            refuse!(EBUSY, %error, "destroy_srq: queue pairs receive from it");
            Errno::from(error)
        })?;
        event::settle(&found.events, srq as usize as u64);
        // SAFETY: made by `create`, and the program gives it up.
        drop(unsafe { Box::from_raw(srq.cast::<Srq>()) });
        Ok(())
    }))
}
