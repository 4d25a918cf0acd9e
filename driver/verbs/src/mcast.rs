//! Multicast groups of UD queue pairs.

use core::ffi::c_int;

use ferroce_stack::gid::Gid;

use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvGid, IbvQp};
use crate::log::refuse;
use crate::qp::Qp;

/// Has a QP receive what is sent to a group. The LID is of no meaning on Ethernet.
///
/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut IbvQp,
    gid: *const IbvGid,
    _lid: u16,
) -> c_int {
    // SAFETY: as the caller promises.
    errno::code(unsafe { set_member(qp, gid, true) })
}

/// Undoes [`ibv_attach_mcast`].
///
/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut IbvQp,
    gid: *const IbvGid,
    _lid: u16,
) -> c_int {
    // SAFETY: as the caller promises.
    errno::code(unsafe { set_member(qp, gid, false) })
}

/// # Safety
/// Both must be null or valid.
unsafe fn set_member(qp: *mut IbvQp, gid: *const IbvGid, attached: bool) -> Result<(), Errno> {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(qp), Some(gid)) = (unsafe { (Qp::of(qp), gid.as_ref()) }) else {
        return Err(EINVAL);
    };
    let (group, qpn) = (Gid(gid.raw), qp.queue.qpn().0);
    qp.engine.set_multicast(&qp.queue, group, attached).map_err(|_| {
        refuse!(
            EINVAL, %group, qpn, attached,
            "multicast is for UD, the group begins with ff, and only what is attached is detached"
        )
    })
}
