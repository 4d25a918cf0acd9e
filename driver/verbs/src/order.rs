//! Whether a program may look at received bytes before their completion.

use core::ffi::c_int;

use crate::errno;
use crate::layout::IbvQp;

/// `IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS`: answer with a mask instead of yes or no.
const RETURN_CAPS: u32 = 1;
/// Whole messages in order, and so also blocks of 128 bytes.
const CAPS: c_int = 0b11;
/// The last of `enum ibv_wr_opcode` that moves data of any length: RDMA READ.
const LAST_DATA_OPCODE: c_int = 4;

/// Yes for WRITE, SEND and READ: bytes land in increasing order of addresses, the last ones with
/// release order. Nothing else has more than eight bytes.
///
/// # Safety
/// `qp` must be null or live.
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut IbvQp,
    opcode: c_int,
    flags: u32,
) -> c_int {
    if qp.is_null() || flags & !RETURN_CAPS != 0 || !(0..=LAST_DATA_OPCODE).contains(&opcode) {
        errno::set(libc::EINVAL);
        return 0;
    }
    if flags & RETURN_CAPS != 0 { CAPS } else { 1 }
}
