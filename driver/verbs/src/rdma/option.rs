//! Options of ids, and what little there is of vendors' offers.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ferroce_stack::mad::Path;

use super::id::{CmId, Phase, What};
use super::resolve::resolve_route;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvEce, IbvPathData, RDMA_CM_EVENT_USER, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, RdmaCmId, zeroed,
};
use crate::log::refuse;

/// Codes of timeouts have 5 bits.
const MAX_TIMEOUT: u8 = 31;
/// `IBV_PATH_FLAG_*` of a record for datagrams and the connection, in both directions.
const WHOLE_PATH: u32 = 1 | 2 | 8 | 32;

/// # Safety
/// The id must be null or live, the value null or of as many bytes.
pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut RdmaCmId,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        if optval.is_null() {
            return Err(refuse!(EINVAL, level, optname, "set_option: the value is null"));
        }
        // SAFETY: as above.
        unsafe { set(&id, (level, optname), optval, optlen) }.map(|()| 0)
    }))
}

/// # Safety
/// The value must be of as many bytes.
unsafe fn set(
    id: &Arc<CmId>,
    (level, option): (c_int, c_int),
    value: *const c_void,
    len: usize,
) -> Result<(), Errno> {
    let sized = |size: usize| match len {
        len if len == size => Ok(()),
        len => Err(refuse!(EINVAL, level, option, len, "set_option: the value has {size} bytes")),
    };
    match (level, option) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
            sized(1)?;
            // SAFETY: the caller's promise.
            id.state().choices.tos = Some(unsafe { value.cast::<u8>().read() });
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            sized(1)?;
            // SAFETY: as above.
            let timeout = unsafe { value.cast::<u8>().read() };
            if timeout > MAX_TIMEOUT {
                return Err(refuse!(EINVAL, timeout, "set_option: a timeout is at most 31"));
            }
            id.state().choices.ack_timeout = Some(timeout);
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY) => {
            sized(size_of::<c_int>())?;
            // SAFETY: as above.
            let is_set = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
            let mut state = id.state();
            // As with Linux, sharing a port may be allowed until somebody listens on it.
            let is_late = match option {
                RDMA_OPTION_ID_REUSEADDR if is_set => state.phase == Phase::Listening,
                _ => !matches!(state.phase, Phase::Idle | Phase::Bound),
            };
            if is_late {
                let phase = state.phase;
                return Err(refuse!(EINVAL, ?phase, option, "set_option: the address is in use"));
            }
            match option {
                RDMA_OPTION_ID_REUSEADDR => state.choices.reuse_address = is_set,
                _ => state.choices.only_family = is_set,
            }
        }
        // SAFETY: as above.
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => unsafe { set_path_data(id, value, len)? },
        _ => return Err(refuse!(ENOSYS, level, option, "set_option: no such option")),
    }
    Ok(())
}

/// Resolves the route with what a program says of it.
///
/// # Safety
/// The value must be of as many bytes.
pub(super) unsafe fn set_path_data(
    id: &Arc<CmId>,
    value: *const c_void,
    len: usize,
) -> Result<(), Errno> {
    let size = size_of::<IbvPathData>();
    if len == 0 || !len.is_multiple_of(size) {
        return Err(refuse!(EINVAL, len, "IB_PATH: records of {size} bytes"));
    }
    let records = value.cast::<IbvPathData>();
    // SAFETY: the caller's promise; the records may lie anywhere.
    let mut records = (0..len / size).map(|at| unsafe { records.add(at).read_unaligned() });
    let whole = records.find(|record| record.flags == WHOLE_PATH);
    let record = whole.ok_or_else(|| {
        refuse!(EINVAL, "IB_PATH: no record for everything in both directions ({WHOLE_PATH:#x})")
    })?;
    resolve_route(id, |path| adjust(path, &record))
}

fn adjust(path: &mut Path, data: &IbvPathData) {
    let flow_and_hops = u32::from_be(data.path.flowlabel_hoplimit);
    path.flow_label = flow_and_hops >> 8 & 0xf_ffff;
    if flow_and_hops as u8 != 0 {
        path.hop_limit = flow_and_hops as u8;
    }
    path.traffic_class = data.path.tclass;
    path.sl = (u16::from_be(data.path.qosclass_sl) & 7) as u8;
}

/// What this side offers; nothing is made of it.
///
/// # Safety
/// The id must be null or live, the offer null or valid.
pub(crate) unsafe extern "C" fn rdma_set_local_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    // SAFETY: the caller's promise.
    let (found, ece) = unsafe { (CmId::of(id), ece.as_ref()) };
    errno::minus_one(found.and_then(|id| {
        // SAFETY: the field is written by the program's threads alone.
        let has_qp = unsafe { !(*id.abi()).qp.is_null() };
        match ece {
            Some(ece) if !has_qp && ece.vendor_id != 0 && ece.comp_mask == 0 => Ok(0),
            _ => Err(refuse!(EINVAL, has_qp, "set_local_ece: a vendor_id, on an id without QP")),
        }
    }))
}

/// What the peer offers: nothing that is understood here.
///
/// # Safety
/// The id must be null or live, the offer null or valid.
pub(crate) unsafe extern "C" fn rdma_get_remote_ece(id: *mut RdmaCmId, ece: *mut IbvEce) -> c_int {
    // SAFETY: the caller's promise.
    let (found, ece) = unsafe { (CmId::of(id), ece.as_mut()) };
    errno::minus_one(found.and_then(|id| {
        // SAFETY: the field is written by the program's threads alone.
        let has_qp = unsafe { !(*id.abi()).qp.is_null() };
        let ece = ece.filter(|_| !has_qp).ok_or(EINVAL)?;
        *ece = zeroed();
        Ok(0)
    }))
}

/// Puts an event of the program's own into the id's channel.
///
/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_write_cm_event(
    id: *mut RdmaCmId,
    event: c_int,
    status: c_int,
    arg: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        if event != RDMA_CM_EVENT_USER {
            let want = RDMA_CM_EVENT_USER;
            return Err(refuse!(EINVAL, event, want, "write_cm_event: RDMA_CM_EVENT_USER"));
        }
        id.post(What::User { status, arg });
        Ok(0)
    }))
}
