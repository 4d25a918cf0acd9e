//! The readers of an `ibv_cq_ex`: one completion after another, looked at field by field.
//!
//! `status` and `wr_id` the program reads from the structure itself; the rest it asks for here.

use core::ffi::c_int;

use ferroce_stack::verbs::Wc;

use crate::cq::{Cq, imm_data, wc_flags};
use crate::layout::{IbvCqEx, IbvPollCqAttr, IbvWcTmInfo};

/// Fills the function pointers.
pub(crate) fn set_readers(cq: &mut IbvCqEx) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    cq.read_completion_ts = Some(read_completion_ts);
    cq.read_cvlan = Some(read_cvlan);
    cq.read_flow_tag = Some(read_flow_tag);
    cq.read_tm_info = Some(read_tm_info);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

unsafe extern "C" fn start_poll(cq: *mut IbvCqEx, attr: *mut IbvPollCqAttr) -> c_int {
    // SAFETY: the caller gives a live CQ and valid attributes, or null.
    let (cq, attr) = unsafe { (Cq::of(cq.cast()), attr.as_ref()) };
    match cq {
        None => libc::EINVAL,
        Some(_) if attr.is_some_and(|attr| attr.comp_mask != 0) => libc::EINVAL,
        Some(cq) if cq.start_poll() => 0,
        Some(_) => libc::ENOENT,
    }
}

unsafe extern "C" fn next_poll(cq: *mut IbvCqEx) -> c_int {
    // SAFETY: the caller gives a live CQ or null.
    match unsafe { Cq::of(cq.cast()) } {
        None => libc::EINVAL,
        Some(cq) if cq.next() => 0,
        Some(_) => libc::ENOENT,
    }
}

unsafe extern "C" fn end_poll(cq: *mut IbvCqEx) {
    // SAFETY: the caller gives a live CQ or null.
    if let Some(cq) = unsafe { Cq::of(cq.cast()) } {
        cq.end_poll();
    }
}

/// The completion a program looks at; an empty one for null.
///
/// # Safety
/// The CQ must be null or live.
#[inline]
unsafe fn current(cq: *mut IbvCqEx) -> Wc {
    // SAFETY: the caller's promise.
    unsafe { Cq::of(cq.cast()) }.map_or_else(Wc::default, |cq| cq.current().wc)
}

/// Readers of one field of the completion.
macro_rules! readers {
    ($($name:ident -> $ty:ty = |$wc:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut IbvCqEx) -> $ty {
            // SAFETY: the caller gives a live CQ or null.
            let $wc = unsafe { current(cq) };
            $value
        })*
    };
}

readers! {
    read_opcode -> c_int = |wc| wc.opcode as c_int;
    read_vendor_err -> u32 = |_wc| 0;
    read_byte_len -> u32 = |wc| wc.byte_len;
    read_imm_data -> u32 = |wc| imm_data(&wc);
    read_qp_num -> u32 = |wc| wc.qp_num.0;
    read_src_qp -> u32 = |wc| wc.src_qp.0;
    read_wc_flags -> u32 = |wc| wc_flags(&wc);
    read_slid -> u32 = |_wc| 0;
    read_sl -> u8 = |wc| wc.sl;
    read_dlid_path_bits -> u8 = |_wc| 0;
    read_cvlan -> u16 = |_wc| 0;
    read_flow_tag -> u32 = |_wc| 0;
}

/// When it completed, in ns of the monotonic clock.
unsafe extern "C" fn read_completion_ts(cq: *mut IbvCqEx) -> u64 {
    // SAFETY: the caller gives a live CQ or null.
    unsafe { Cq::of(cq.cast()) }.map_or(0, |cq| cq.current().at)
}

/// When it completed, in ns of the realtime clock: as long ago as by the monotonic one.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut IbvCqEx) -> u64 {
    // SAFETY: the caller gives a live CQ or null.
    let at = unsafe { read_completion_ts(cq) };
    let age = now_ns(libc::CLOCK_MONOTONIC).saturating_sub(at);
    now_ns(libc::CLOCK_REALTIME).saturating_sub(age)
}

unsafe extern "C" fn read_tm_info(_cq: *mut IbvCqEx, info: *mut IbvWcTmInfo) {
    // SAFETY: the caller gives a valid pointer or null.
    if let Some(info) = unsafe { info.as_mut() } {
        *info = IbvWcTmInfo { tag: 0, priv_: 0 };
    }
}

fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours; both clocks exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
