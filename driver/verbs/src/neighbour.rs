//! GIDs to Ethernet addresses, for programs that ask.

use core::ffi::c_int;

use ferroce_stack::gid::Gid;

use crate::context::Context;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvAhAttr, IbvContext};
use crate::log::refuse;

/// "No VLAN" in the answer below.
const NO_VLAN: u16 = 0xffff;

/// Where packets of an address vector go: 6 bytes, and the VLAN or 0xffff. 0 or an errno.
///
/// # Safety
/// `context` and `attr` must be null or valid, `mac` null or 6 bytes, `vid` null or valid.
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut IbvContext,
    attr: *const IbvAhAttr,
    mac: *mut [u8; 6],
    vid: *mut u16,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (context, attr, mac) = unsafe { (Context::of(context), attr.as_ref(), mac.as_mut()) };
    let (Some(context), Some(attr), Some(mac)) = (context, attr, mac) else {
        return errno::code(Err(EINVAL));
    };
    errno::code(resolve(context, Gid(attr.grh.dgid.raw)).map(|resolved| {
        *mac = resolved;
        // SAFETY: as above.
        if let Some(vid) = unsafe { vid.as_mut() } {
            *vid = NO_VLAN;
        }
    }))
}

fn resolve(context: &Context, gid: Gid) -> Result<[u8; 6], Errno> {
    let known = match gid.multicast_mac() {
        Some(mac) => Some(mac),
        None => context.engine.mac_of(gid)?,
    };
    known
        .map(|mac| mac.0)
        .ok_or_else(|| refuse!(EHOSTUNREACH, %gid, "no device of the fabric has this address"))
}
