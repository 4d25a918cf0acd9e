//! Multicast groups of ids of the datagram service. There is no subnet manager to ask: attaching the
//! QP is all, and has the fabric's gateway join the group on its link.

use core::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_stack::gid::Gid;

use super::address;
use super::channel::{Made, complete};
use super::id::{CmId, Group, Phase, State, What};
use super::qp::ah_attr;
use crate::errno::{self, Errno};
use crate::layout::{
    IbvGid, RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN,
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_MC_JOIN_FLAG_FULLMEMBER,
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, RDMA_UDP_QKEY, RdmaCmId, RdmaCmJoinMcAttrEx,
    RdmaEventParam, RdmaUdParam, zeroed,
};
use crate::log::refuse;
use crate::mcast::{ibv_attach_mcast, ibv_detach_mcast};
use ferroce::resolve::HOP_LIMIT;

/// The QP number of all groups.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// The GID of a group: an IPv4 address mapped, an IPv6 address as it is.
fn group_gid(address: SocketAddr) -> Gid {
    Gid::from_ip(address.ip())
}

/// Joins a group and tells the channel.
///
/// # Safety
/// The id must be null or live, the address null or as long as its family says.
pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut RdmaCmId,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let outcome = unsafe { join(id, addr, context, false) };
    errno::minus_one(outcome.map(|()| 0))
}

/// The same with a choice of what to be in it.
///
/// # Safety
/// As [`rdma_join_multicast`]; the attributes must be null or valid.
pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut RdmaCmId,
    mc_join_attr: *mut RdmaCmJoinMcAttrEx,
    context: *mut c_void,
) -> c_int {
    const KNOWN: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    // SAFETY: the caller's promise.
    let outcome = match unsafe { mc_join_attr.as_ref() } {
        None => Err(refuse!(EINVAL, "join_multicast_ex: the attributes are null")),
        Some(attr) if attr.comp_mask & !KNOWN != 0 => {
            Err(refuse!(EOPNOTSUPP, attr.comp_mask, "join_multicast_ex: unknown attributes"))
        }
        Some(attr) if attr.comp_mask != KNOWN => {
            Err(refuse!(EINVAL, attr.comp_mask, "join_multicast_ex: address and flags (3)"))
        }
        Some(attr) => match attr.join_flags {
            flag @ (RDMA_MC_JOIN_FLAG_FULLMEMBER | RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) => {
                let send_only = flag == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
                // SAFETY: as above.
                unsafe { join(id, attr.addr, context, send_only) }
            }
            flags => Err(refuse!(EINVAL, flags, "join_multicast_ex: full (0) or send-only (1)")),
        },
    };
    errno::minus_one(outcome.map(|()| 0))
}

/// # Safety
/// As [`rdma_join_multicast`].
unsafe fn join(
    id: *mut RdmaCmId,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
    send_only: bool,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (id, address) = unsafe { (CmId::of(id)?, address::read(addr)?) };
    let address = address
        .filter(|address| group_gid(*address).is_multicast())
        .ok_or_else(|| refuse!(EINVAL, ?address, "join_multicast: not a multicast address"))?;
    let key = {
        let mut state = id.state();
        state.attached()?;
        let is_early =
            !matches!(state.phase, Phase::Bound | Phase::AddressResolved | Phase::RouteResolved);
        if is_early || !id.is_datagram() {
            let phase = state.phase;
            return Err(refuse!(EINVAL, ?phase, "join_multicast: a bound id of RDMA_PS_UDP"));
        }
        let key = super::sink::new_cookie();
        state.groups.push(Group { key, address, context, send_only, attached: false });
        key
    };
    id.post(What::Joined { group: key });
    complete(&id)
}

/// A group is joined: the QP, if there is one, hears what is sent to it.
pub(super) fn joined(id: &Arc<CmId>, key: u64) -> Option<Made> {
    let mut state = id.state();
    let mut param: RdmaUdParam = zeroed();
    let state = &mut *state;
    let at = state.groups.iter().position(|group| group.key == key)?;
    let gid = group_gid(state.groups[at].address);
    param.ah_attr = group_attr(state, gid);
    param.qp_num = MULTICAST_QPN;
    param.qkey = RDMA_UDP_QKEY;
    param.private_data = state.groups[at].context;
    // SAFETY: the field is written by the program's threads alone.
    let qp = unsafe { (*id.abi()).qp };
    let group = &mut state.groups[at];
    let (mut event, mut status) = (RDMA_CM_EVENT_MULTICAST_JOIN, 0);
    if !qp.is_null() && !group.send_only {
        // SAFETY: the QP is live.
        match unsafe { ibv_attach_mcast(qp, &IbvGid { raw: gid.0 }, 0) } {
            0 => group.attached = true,
            code => (event, status) = (RDMA_CM_EVENT_MULTICAST_ERROR, -code),
        }
    }
    let mut made = Made::plain(event, status);
    made.param = RdmaEventParam { ud: param };
    Some(made)
}

/// The way to a group.
fn group_attr(state: &State, gid: Gid) -> crate::layout::IbvAhAttr {
    let mut attr = ah_attr(state);
    attr.grh.dgid = IbvGid { raw: gid.0 };
    attr.grh.hop_limit = HOP_LIMIT;
    attr.grh.flow_label = 0;
    attr.grh.traffic_class = state.choices.tos.unwrap_or(0);
    attr
}

/// Leaves a group; waits until its events are acknowledged.
///
/// # Safety
/// The id must be null or live, the address null or as long as its family says.
pub(crate) unsafe extern "C" fn rdma_leave_multicast(
    id: *mut RdmaCmId,
    addr: *mut libc::sockaddr,
) -> c_int {
    // SAFETY: the caller's promise.
    let arguments = unsafe { CmId::of(id).and_then(|id| Ok((id, address::read(addr)?))) };
    errno::minus_one(arguments.and_then(|(id, address)| {
        let group = {
            let mut state = id.state();
            if state.is_sync {
                // It may be of the group.
                id.release_event();
            }
            let at = state.groups.iter().position(|group| Some(group.address) == address);
            let at = at.ok_or_else(|| {
                refuse!(EADDRNOTAVAIL, ?address, "leave_multicast: a group that was not joined")
            })?;
            state.groups.remove(at)
        };
        // SAFETY: the field is written by the program's threads alone.
        let qp = unsafe { (*id.abi()).qp };
        if group.attached && !qp.is_null() {
            let gid = IbvGid { raw: group_gid(group.address).0 };
            // SAFETY: the QP is live.
            unsafe { ibv_detach_mcast(qp, &gid, 0) };
        }
        id.take_queued(|queued| queued.group() == Some(group.key));
        id.wait_for_events(Some(group.key));
        Ok(0)
    }))
}
