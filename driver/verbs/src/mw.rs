//! Memory windows.

use core::ffi::c_int;

use ferroce_stack::verbs::{self, MwType};

use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvMw, IbvMwBind, IbvPd, IbvQp, IbvSendWr, IbvSendWrTail, IbvWrBindMw, zeroed,
};
use crate::log::refuse;
use crate::pd::Pd;
use crate::post;

/// `IBV_WR_BIND_MW`.
const WR_BIND_MW: c_int = 8;

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    abi: IbvMw,
    /// The window of the device.
    pub mw: verbs::Mw,
}

impl Mw {
    /// The window a program means.
    ///
    /// # Safety
    /// `mw` must be null or one of ours.
    pub unsafe fn of<'a>(mw: *const IbvMw) -> Option<&'a Mw> {
        // SAFETY: a window of ours begins with what programs hold.
        unsafe { mw.cast::<Mw>().as_ref() }
    }
}

/// # Safety
/// `pd` must be null or valid.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut IbvPd, mw_type: c_int) -> *mut IbvMw {
    // SAFETY: the caller gives a valid pointer or null.
    errno::pointer(unsafe { Pd::of(pd) }.ok_or(EINVAL).and_then(|domain| {
        let kind = match mw_type {
            1 => MwType::Type1,
            2 => MwType::Type2,
            _ => return Err(refuse!(EINVAL, mw_type, "windows are of type 1 or 2")),
        };
        let context = domain.context()?;
        let (mw, rkey) = context.engine.lock()?.alloc_mw(domain.pd, kind)?;
        let (context, handle) = (context.as_abi(), mw.value());
        let abi = IbvMw { context, pd, rkey, handle, type_: mw_type };
        Ok(Box::into_raw(Box::new(Mw { abi, mw })).cast())
    }))
}

/// # Safety
/// `mw` must be null or one of ours, and not used afterwards.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut IbvMw) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(window) = (unsafe { Mw::of(mw) }) else { return errno::code(Err(EINVAL)) };
    errno::code(dealloc(window).map(|()| {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(mw.cast::<Mw>()) });
    }))
}

fn dealloc(window: &Mw) -> Result<(), Errno> {
    // SAFETY: a program destroys a domain after its windows.
    let pd = unsafe { Pd::of(window.abi.pd) }.ok_or(EINVAL)?;
    Ok(pd.context()?.engine.lock()?.dealloc_mw(window.mw)?)
}

/// Binds a window of type 1: a work request whose key is the next one of the window.
///
/// # Safety
/// All must be null or valid.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut IbvQp,
    mw: *mut IbvMw,
    bind: *mut IbvMwBind,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(window), Some(bind)) = (unsafe { (mw.as_ref(), bind.as_ref()) }) else {
        return errno::code(Err(EINVAL));
    };
    if window.type_ != 1 {
        let mw_type = window.type_;
        return errno::code(Err(refuse!(
            EINVAL,
            mw_type,
            "bind_mw is for type 1; post IBV_WR_BIND_MW for type 2"
        )));
    }
    let next_key = window.rkey & !0xff | u32::from((window.rkey as u8).wrapping_add(1));
    let mut wr: IbvSendWr = zeroed();
    wr.wr_id = bind.wr_id;
    wr.opcode = WR_BIND_MW;
    wr.send_flags = bind.send_flags;
    let bind_mw = IbvWrBindMw { mw, rkey: next_key, bind_info: bind.bind_info };
    wr.bind_mw = IbvSendWrTail { bind_mw };
    let mut bad = core::ptr::null_mut();
    // SAFETY: the caller gives a live QP; the work request is ours, and copied by the call.
    let code = unsafe { post::post_send(qp, &mut wr, &mut bad) };
    if code == 0 {
        // SAFETY: the caller gave a valid window; no reference to it is left.
        unsafe { (*mw).rkey = next_key };
    }
    code
}
