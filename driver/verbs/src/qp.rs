//! Queue pairs: made, opened and destroyed. Each is allocated as an `ibv_qp_ex`.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use ferroce::engine::{AsyncQueue, Engine, QueuePair};
use ferroce_stack::verbs::{QpCap, QpInit, QpType, Qpn};

use crate::context::Context;
use crate::cq::Cq;
use crate::device::lock;
use crate::errno::{self, EINVAL, Errno};
use crate::event;
use crate::layout::{
    IbvContext, IbvPd, IbvQp, IbvQpCap, IbvQpEx, IbvQpInitAttr, IbvQpInitAttrEx, IbvQpOpenAttr,
    IbvSge, zeroed,
};
use crate::log::refuse;
use crate::pd::Pd;
use crate::post::MAX_SGE;
use crate::srq::Srq;
use crate::wr::{self, Builder};
use crate::xrcd::{self, XrcDomain};

/// `enum ibv_qp_init_attr_mask`.
const MASK_PD: u32 = 1 << 0;
const MASK_XRCD: u32 = 1 << 1;
const MASK_CREATE_FLAGS: u32 = 1 << 2;
const MASK_SEND_OPS: u32 = 1 << 6;

/// `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`.
const BLOCK_SELF_MCAST_LB: u32 = 1 << 1;

/// `enum ibv_qp_create_send_ops_flags`.
const WITH_WRITE: u64 = 1 << 0;
const WITH_WRITE_IMM: u64 = 1 << 1;
const WITH_SEND: u64 = 1 << 2;
const WITH_SEND_IMM: u64 = 1 << 3;
const WITH_LOCAL_INV: u64 = 1 << 7;
const WITH_BIND_MW: u64 = 1 << 8;
const WITH_TSO: u64 = 1 << 10;
/// Every operation of a reliable service: all bits there are but segmentation offload.
const RELIABLE_OPS: u64 = ((1 << 13) - 1) & !WITH_TSO;

/// `enum ibv_qp_open_attr_mask`: the number and the domain are needed, the rest optional.
const OPEN_NUM: u32 = 1;
const OPEN_XRCD: u32 = 2;
const OPEN_CONTEXT: u32 = 4;
const OPEN_TYPE: u32 = 8;

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    abi: UnsafeCell<IbvQpEx>,
    pub engine: Arc<Engine>,
    pub queue: Arc<QueuePair>,
    events: Arc<AsyncQueue>,
    /// An XRC target, which several handles may share.
    target: Option<Arc<Target>>,
    /// Work requests between `ibv_wr_start` and `ibv_wr_complete`.
    pub builder: Builder,
}

/// What the handles of an XRC target share.
pub(crate) struct Target {
    /// The handle it was made with, by which its events name it: it stays as long as any.
    first: *mut Qp,
    handles: AtomicUsize,
    domain: Arc<xrcd::Shared>,
}

// SAFETY: the pointer is followed only by who holds the last handle.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Qp {
    /// The QP behind a program's pointer; `None` for null.
    ///
    /// # Safety
    /// The pointer must be null or of a live QP, for as long as the reference lives.
    #[inline]
    pub unsafe fn of<'a>(qp: *mut IbvQp) -> Option<&'a Qp> {
        // SAFETY: QPs are made here alone, as the head of a `Qp`.
        unsafe { qp.cast::<Qp>().as_ref() }
    }

    /// What the program sees of it.
    #[inline]
    pub fn abi(&self) -> *mut IbvQpEx {
        self.abi.get()
    }

    /// Its context.
    ///
    /// # Errors
    /// EINVAL if it was made without one.
    pub fn context(&self) -> Result<&Context, Errno> {
        // SAFETY: a program closes a context after everything made from it.
        unsafe { Context::of((*self.abi()).qp_base.context) }.ok_or(EINVAL)
    }

    /// Shows the program the state.
    pub fn show_state(&self) {
        let state = self.queue.state() as c_int;
        // SAFETY: the structure is alive; the program reads a number.
        unsafe { (&raw mut (*self.abi()).qp_base.state).write(state) };
    }
}

/// The service; refuses those there are not.
fn service(qp_type: c_int) -> Result<QpType, Errno> {
    Ok(match qp_type {
        2 => QpType::Rc,
        3 => QpType::Uc,
        4 => QpType::Ud,
        // Real devices ask for CAP_NET_RAW; here the link is the user's own.
        8 => QpType::RawPacket,
        9 => QpType::XrcSend,
        10 => QpType::XrcRecv,
        0 | 1 => {
            return Err(refuse!(EINVAL, qp_type, "create_qp: QP0 and QP1 are not for programs"));
        }
        _ => return Err(refuse!(EOPNOTSUPP, qp_type, "create_qp: no such service")),
    })
}

/// Checks the extended part of the attributes; whether the `ibv_wr_*` calls are wanted.
fn check_extended(init: &IbvQpInitAttrEx, qp_type: QpType) -> Result<bool, Errno> {
    let comp_mask = init.comp_mask & !(MASK_PD | MASK_XRCD | MASK_CREATE_FLAGS | MASK_SEND_OPS);
    if comp_mask != 0 {
        return Err(refuse!(EOPNOTSUPP, comp_mask, "create_qp_ex: unknown attributes"));
    }
    // No QP hears what it sends to a group itself.
    let known = if qp_type == QpType::Ud { BLOCK_SELF_MCAST_LB } else { 0 };
    let flags = if init.comp_mask & MASK_CREATE_FLAGS != 0 { init.create_flags } else { 0 };
    if flags & !known != 0 {
        return Err(refuse!(EOPNOTSUPP, flags, known, "create_qp_ex: unknown create_flags"));
    }
    if init.comp_mask & MASK_SEND_OPS == 0 {
        return Ok(false);
    }
    let possible = match qp_type {
        QpType::Rc | QpType::XrcSend => RELIABLE_OPS,
        QpType::Uc => {
            WITH_WRITE | WITH_WRITE_IMM | WITH_SEND | WITH_SEND_IMM | WITH_LOCAL_INV | WITH_BIND_MW
        }
        QpType::Ud | QpType::Gsi => WITH_SEND | WITH_SEND_IMM,
        QpType::RawPacket => WITH_SEND,
        QpType::XrcRecv => 0,
    };
    match init.send_ops_flags & !possible {
        0 => Ok(true),
        ops => Err(refuse!(EOPNOTSUPP, ops, ?qp_type, "create_qp_ex: no such send operations")),
    }
}

/// What the device makes the QP of. Objects that a service does not use are ignored, as programs
/// fill in one structure for all.
///
/// # Safety
/// The pointers of `init` must be null or live.
unsafe fn stack_init(init: &IbvQpInitAttrEx, qp_type: QpType) -> Result<QpInit, Errno> {
    // SAFETY: the caller's promise.
    let (pd, srq) = unsafe { (Pd::of(init.pd), Srq::of(init.srq)) };
    // SAFETY: as above.
    let cqs = unsafe { [Cq::of(init.send_cq), Cq::of(init.recv_cq)] };
    // SAFETY: as above.
    let xrcd = unsafe { XrcDomain::of(init.xrcd) };
    let [send_cq, recv_cq] = cqs.map(|cq| cq.map(|cq| cq.queue.handle()));
    let (sends, receives, is_target) = match qp_type {
        QpType::XrcSend => (true, false, false),
        QpType::XrcRecv => (false, false, true),
        _ => (true, true, false),
    };
    let pd = pd.filter(|_| init.comp_mask & MASK_PD != 0 && !is_target).map(|pd| pd.pd);
    let xrcd = xrcd.filter(|_| init.comp_mask & MASK_XRCD != 0 && is_target);
    let srq = srq.filter(|_| receives);
    for (missing, what) in [
        (!is_target && pd.is_none(), "pd"),
        (is_target && xrcd.is_none(), "xrcd"),
        (sends && send_cq.is_none(), "send_cq"),
        (receives && recv_cq.is_none(), "recv_cq"),
    ] {
        if missing {
            return Err(refuse!(EINVAL, ?qp_type, "create_qp: {what} is missing"));
        }
    }
    let has_own_queue = receives && srq.is_none();
    // Programs post inline, unasked, what fits in place of the SGEs: devices grant as much.
    let in_place = init.cap.max_send_sge.min(MAX_SGE as u32) * size_of::<IbvSge>() as u32;
    let if_used = |used, count| if used { count } else { 0 };
    Ok(QpInit {
        qp_type,
        pd,
        send_cq: send_cq.filter(|_| sends),
        recv_cq: recv_cq.filter(|_| receives),
        srq: srq.map(|srq| srq.queue.handle()),
        xrcd: xrcd.map(XrcDomain::handle),
        cap: QpCap {
            max_send_wr: if_used(sends, init.cap.max_send_wr),
            max_recv_wr: if_used(has_own_queue, init.cap.max_recv_wr),
            max_send_sge: if_used(sends, init.cap.max_send_sge),
            max_recv_sge: if_used(has_own_queue, init.cap.max_recv_sge),
            max_inline_data: if_used(sends, init.cap.max_inline_data.max(in_place)),
        },
        sq_sig_all: init.sq_sig_all != 0,
    })
}

/// Sizes as programs read them.
pub(crate) fn cap_of(cap: &QpCap) -> IbvQpCap {
    IbvQpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Makes a QP.
///
/// # Safety
/// The pointers must be null or live.
unsafe fn create(context: *mut IbvContext, init: &IbvQpInitAttrEx) -> Result<*mut Qp, Errno> {
    let qp_type = service(init.qp_type)?;
    let has_wr_calls = check_extended(init, qp_type)?;
    // SAFETY: the caller's promise.
    let owner = unsafe { Context::of(context) }.ok_or(EINVAL)?;
    // SAFETY: as above.
    let made_of = unsafe { stack_init(init, qp_type)? };
    let place = Box::into_raw(Box::new(MaybeUninit::<Qp>::uninit())).cast::<Qp>();
    let (engine, events) = (owner.engine.clone(), owner.events.clone());
    let made = engine.create_qp(&made_of, events.clone(), place as usize as u64);
    let queue = made.map_err(|error| {
        // SAFETY: allocated above, and never filled.
        drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<Qp>>()) });
        refuse!(EINVAL, %error, ?made_of, "create_qp: a size is beyond the device's limits, or \
            an object of another device");
        Errno::from(error)
    })?;
    let mut abi = head(context, &queue, init.qp_context);
    let base = &mut abi.qp_base;
    (base.pd, base.send_cq, base.recv_cq) = (init.pd, init.send_cq, init.recv_cq);
    base.srq = init.srq;
    if has_wr_calls {
        wr::set_calls(&mut abi);
    }
    // SAFETY: as above.
    let target = unsafe { XrcDomain::of(init.xrcd) }.filter(|_| qp_type == QpType::XrcRecv);
    let target = target.map(|xrcd| {
        let domain = xrcd.shared.clone();
        Arc::new(Target { first: place, handles: AtomicUsize::new(1), domain })
    });
    let abi = UnsafeCell::new(abi);
    let qp = Qp { abi, engine, queue, events, target, builder: Builder::default() };
    // SAFETY: the place was allocated for it.
    let qp = unsafe {
        place.write(qp);
        &*place
    };
    if let Some(target) = &qp.target {
        lock(&target.domain.targets).push((qp.queue.qpn(), target.clone()));
    }
    Ok(place)
}

/// What every QP has.
fn head(context: *mut IbvContext, queue: &QueuePair, qp_context: *mut c_void) -> IbvQpEx {
    let mut abi: IbvQpEx = zeroed();
    let base = &mut abi.qp_base;
    base.context = context;
    base.qp_context = qp_context;
    base.handle = queue.qpn().0;
    base.qp_num = queue.qpn().0;
    base.state = queue.state() as c_int;
    base.qp_type = queue.init().qp_type as c_int;
    base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    base.cond = libc::PTHREAD_COND_INITIALIZER;
    abi
}

/// # Safety
/// The PD must be null or live, the attributes null or valid with live objects.
pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> *mut IbvQp {
    // SAFETY: the caller's promise.
    let (Some(owner), Some(attr)) = (unsafe { (pd.as_ref(), attr.as_mut()) }) else {
        return errno::pointer(Err(EINVAL));
    };
    let init = extended(attr, pd);
    // SAFETY: as above.
    let made = unsafe { create(owner.context, &init) };
    if let Ok(qp) = made {
        // SAFETY: it was made just now.
        attr.cap = granted(unsafe { &*qp }, attr.cap);
    }
    errno::pointer(made.map(|qp| qp.cast()))
}

/// The same attributes as `create_qp_ex` takes them.
pub(crate) fn extended(attr: &IbvQpInitAttr, pd: *mut IbvPd) -> IbvQpInitAttrEx {
    let IbvQpInitAttr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *attr;
    IbvQpInitAttrEx {
        qp_context,
        send_cq,
        recv_cq,
        srq,
        cap,
        qp_type,
        sq_sig_all,
        comp_mask: MASK_PD,
        pd,
        ..zeroed()
    }
}

/// The sizes asked for are those there are, but for inline data, of which there may be more.
fn granted(qp: &Qp, asked: IbvQpCap) -> IbvQpCap {
    let max_inline_data = qp.queue.init().cap.max_inline_data.max(asked.max_inline_data);
    IbvQpCap { max_inline_data, ..asked }
}

/// # Safety
/// The context must be open, the attributes null or valid with live objects.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut IbvContext,
    attr: *mut IbvQpInitAttrEx,
) -> *mut IbvQp {
    // SAFETY: the caller's promise.
    let Some(attr) = (unsafe { attr.as_mut() }) else {
        return errno::pointer(Err(EINVAL));
    };
    // SAFETY: as above.
    let made = unsafe { create(context, attr) };
    if let Ok(qp) = made {
        // SAFETY: it was made just now.
        attr.cap = granted(unsafe { &*qp }, attr.cap);
    }
    errno::pointer(made.map(|qp| qp.cast()))
}

/// Another handle of an XRC target.
///
/// # Safety
/// The context must be open, the attributes null or valid with a live domain.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut IbvContext,
    attr: *mut IbvQpOpenAttr,
) -> *mut IbvQp {
    // SAFETY: the caller's promise.
    let attr = unsafe { attr.as_ref() }.ok_or(EINVAL);
    // SAFETY: as above.
    errno::pointer(attr.and_then(|attr| unsafe { open(context, attr) }.map(|qp| qp.cast())))
}

unsafe fn open(context: *mut IbvContext, attr: &IbvQpOpenAttr) -> Result<*mut Qp, Errno> {
    let IbvQpOpenAttr { comp_mask, qp_num, qp_type, .. } = *attr;
    let needed = OPEN_NUM | OPEN_XRCD;
    let known = needed | OPEN_CONTEXT | OPEN_TYPE;
    let is_target = comp_mask & OPEN_TYPE == 0 || qp_type == QpType::XrcRecv as c_int;
    if comp_mask & needed != needed || comp_mask & !known != 0 || !is_target {
        return Err(refuse!(EINVAL, comp_mask, qp_type, "open_qp: needs an XRC target's number"));
    }
    // SAFETY: the caller's promise.
    let xrcd = unsafe { XrcDomain::of(attr.xrcd) }.ok_or(EINVAL)?;
    let targets = lock(&xrcd.shared.targets);
    let target = targets.iter().find(|(qpn, _)| *qpn == Qpn(qp_num)).map(|(_, target)| target);
    let target =
        target.ok_or_else(|| refuse!(EINVAL, qp_num, "open_qp: no such target in this domain"))?;
    // SAFETY: the first handle stays while the target is in the list.
    let first = unsafe { &*target.first };
    let qp_context =
        if comp_mask & OPEN_CONTEXT != 0 { attr.qp_context } else { core::ptr::null_mut() };
    let abi = head(context, &first.queue, qp_context);
    target.handles.fetch_add(1, Ordering::AcqRel);
    let (engine, queue, events) = (first.engine.clone(), first.queue.clone(), first.events.clone());
    let target = Some(target.clone());
    let abi = UnsafeCell::new(abi);
    let qp = Qp { abi, engine, queue, events, target, builder: Builder::default() };
    Ok(Box::into_raw(Box::new(qp)))
}

/// Destroys a QP, with its work requests and those of its completions that were not polled.
///
/// # Safety
/// The QP must be null or live, and is gone if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { Qp::of(qp) }.ok_or(EINVAL);
    let qp = qp.cast::<Qp>();
    errno::code(found.and_then(|found| match &found.target {
        // SAFETY: as above.
        Some(target) => unsafe { close(qp, &target.clone()) },
        // SAFETY: as above.
        None => unsafe { destroy(qp) },
    }))
}

/// Destroys a QP and its only handle.
///
/// # Safety
/// The QP must be live, and is gone if this succeeds.
unsafe fn destroy(qp: *mut Qp) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let found = unsafe { &*qp };
    found.engine.destroy_qp(&found.queue).map_err(|error| {
        refuse!(EBUSY, %error, "destroy_qp: attached to a multicast group, or a flow steers to it");
        Errno::from(error)
    })?;
    event::settle(&found.events, qp as usize as u64);
    // SAFETY: made by `create`, and the program gives it up.
    drop(unsafe { Box::from_raw(qp) });
    Ok(())
}

/// Closes one handle of an XRC target, and destroys it with the last.
///
/// # Safety
/// As [`destroy`].
unsafe fn close(qp: *mut Qp, target: &Target) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let qpn = unsafe { (*qp).queue.qpn() };
    let mut targets = lock(&target.domain.targets);
    if target.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
        targets.retain(|(other, _)| *other != qpn);
        drop(targets);
        // SAFETY: nobody else has a handle any more.
        unsafe { destroy(target.first)? };
    }
    if qp != target.first {
        // SAFETY: made by `open`, and the program gives it up.
        drop(unsafe { Box::from_raw(qp) });
    }
    Ok(())
}

/// # Safety
/// The QP must be null or live.
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut IbvQp) -> *mut IbvQpEx {
    // SAFETY: the caller's promise.
    let found = unsafe { Qp::of(qp) };
    // SAFETY: the structure is alive and its calls are set once.
    match found.filter(|qp| unsafe { (*qp.abi()).wr_start.is_some() }) {
        Some(qp) => qp.abi(),
        None => core::ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ops(flags: u64) -> IbvQpInitAttrEx {
        let mut init: IbvQpInitAttrEx = zeroed();
        (init.comp_mask, init.send_ops_flags) = (MASK_PD | MASK_SEND_OPS, flags);
        init
    }

    #[test]
    fn send_operations_are_those_of_the_service() {
        let outcome = |flags, qp_type| check_extended(&with_ops(flags), qp_type);
        assert_eq!(outcome(RELIABLE_OPS, QpType::Rc), Ok(true));
        assert_eq!(outcome(WITH_SEND, QpType::Ud), Ok(true));
        assert_eq!(outcome(WITH_WRITE, QpType::Ud), Err(Errno(libc::EOPNOTSUPP)));
        assert_eq!(outcome(WITH_TSO, QpType::Rc), Err(Errno(libc::EOPNOTSUPP)));
        assert_eq!(outcome(1 << 13, QpType::Rc), Err(Errno(libc::EOPNOTSUPP)));
    }

    #[test]
    fn what_is_no_service_is_not_supported_and_qp0_is_not_allowed() {
        assert_eq!(service(8), Ok(QpType::RawPacket));
        assert_eq!(service(255), Err(Errno(libc::EOPNOTSUPP)));
        assert_eq!(service(0), Err(EINVAL));
    }
}
