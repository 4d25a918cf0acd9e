//! Endpoints: ids made from what `rdma_getaddrinfo` has found, in one call.

use core::ffi::c_int;
use core::slice;
use std::sync::Arc;

use super::address;
use super::bind::bind;
use super::channel::{Channel, complete, next_event, rdma_ack_cm_event, status_of};
use super::id::{CmId, QPT_RC, QPT_UD, destroy};
use super::option::set_path_data;
use super::qp::{rdma_create_qp, rdma_destroy_qp};
use super::resolve::{resolve_address, resolve_route};
use super::srq::rdma_destroy_srq;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvPd, IbvQpInitAttr, RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_IPOIB, RDMA_PS_UDP,
    RdmaAddrinfo, RdmaCmId,
};
use crate::log::refuse;

/// Makes an id that is bound, or one whose route is resolved and that has a QP if attributes for
/// one are given.
///
/// # Safety
/// The pointers must be null or valid, with live objects.
pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut RdmaCmId,
    res: *mut RdmaAddrinfo,
    pd: *mut IbvPd,
    qp_init_attr: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    let (place, info) = unsafe { (id.as_mut(), res.as_ref()) };
    let (Some(place), Some(info)) = (place, info) else {
        return errno::minus_one(Err(refuse!(EINVAL, "create_ep: id or res is null")));
    };
    let is_datagram = matches!(info.ai_port_space, RDMA_PS_UDP | RDMA_PS_IPOIB);
    let qp_type = match info.ai_qp_type {
        0 if is_datagram => QPT_UD,
        0 => QPT_RC,
        given => given,
    };
    // SAFETY: null is allowed.
    let made = unsafe {
        CmId::new(core::ptr::null_mut(), core::ptr::null_mut(), info.ai_port_space, qp_type)
    };
    errno::minus_one(made.and_then(|id| {
        let is_passive = info.ai_flags & RAI_PASSIVE != 0;
        let make = if is_passive { passive } else { active };
        // SAFETY: the caller's promise.
        let outcome = unsafe { make(&id, info, pd, qp_init_attr) };
        match outcome {
            Ok(()) => {
                *place = id.into_abi();
                Ok(0)
            }
            Err(error) => {
                // SAFETY: nobody else knows it.
                unsafe { rdma_destroy_qp(id.abi()) };
                destroy(&id);
                Err(error)
            }
        }
    }))
}

/// # Safety
/// The pointers must be null or valid, with live objects.
unsafe fn passive(
    id: &Arc<CmId>,
    info: &RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (address, attr) = unsafe { (address::read(info.ai_src_addr)?, attr.as_ref()) };
    let address = address.ok_or_else(|| refuse!(EINVAL, "create_ep: ai_src_addr is null"))?;
    let mut state = id.state();
    bind(id, &mut state, address)?;
    state.passive_qp = attr.map(|attr| IbvQpInitAttr { qp_type: id.qp_type(), ..*attr });
    if !pd.is_null() {
        // SAFETY: nobody else knows the id yet.
        unsafe { (*id.abi()).pd = pd };
    }
    Ok(())
}

/// # Safety
/// As [`passive`].
unsafe fn active(
    id: &Arc<CmId>,
    info: &RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (source, destination) =
        unsafe { (address::read(info.ai_src_addr)?, address::read(info.ai_dst_addr)?) };
    let destination =
        destination.ok_or_else(|| refuse!(EINVAL, "create_ep: ai_dst_addr is null"))?;
    resolve_address(id, source, destination)?;
    complete(id)?;
    if info.ai_route_len > 0 && !info.ai_route.is_null() {
        // SAFETY: the caller's promise.
        unsafe { set_path_data(id, info.ai_route, info.ai_route_len)? };
    } else {
        resolve_route(id, |_| ())?;
    }
    complete(id)?;
    // SAFETY: as above.
    if let Some(attr) = unsafe { attr.as_mut() } {
        attr.qp_type = id.qp_type();
        // SAFETY: as above.
        created(unsafe { rdma_create_qp(id.abi(), pd, attr) })?;
    }
    if info.ai_connect_len > 0 && !info.ai_connect.is_null() {
        // SAFETY: as above.
        let data = unsafe { slice::from_raw_parts(info.ai_connect.cast(), info.ai_connect_len) };
        id.state().connect_data = data.to_vec();
    }
    Ok(())
}

/// What `rdma_create_qp` returns.
fn created(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        _ => Err(errno::last()),
    }
}

/// # Safety
/// The id must be null or live, and is gone afterwards.
pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut RdmaCmId) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(abi) = id.as_ref() {
            let (has_qp, has_srq) = (!abi.qp.is_null(), !abi.srq.is_null());
            if has_qp {
                rdma_destroy_qp(id);
            }
            if has_srq {
                rdma_destroy_srq(id);
            }
        }
        super::id::rdma_destroy_id(id);
    }
}

/// Waits for a request to a listener with a channel of its own; the new id has one too.
///
/// # Safety
/// The listener must be null or live, `id` null or valid.
pub(crate) unsafe extern "C" fn rdma_get_request(
    listen: *mut RdmaCmId,
    id: *mut *mut RdmaCmId,
) -> c_int {
    // SAFETY: the caller's promise.
    let (listener, place) = unsafe { (CmId::of(listen), id.as_mut()) };
    errno::minus_one(listener.and_then(|listener| {
        let place = place.ok_or(EINVAL)?;
        let (is_sync, attr) = {
            let state = listener.state();
            (state.is_sync, state.passive_qp)
        };
        if !is_sync {
            return Err(refuse!(EINVAL, "get_request: the listener's events go to a channel"));
        }
        listener.release_event();
        // SAFETY: the channel of such an id lives as long as the id.
        let event = next_event(unsafe { Channel::of((*listener.abi()).channel) }?)?;
        // SAFETY: the event is new.
        let (kind, status, child) = unsafe { ((*event).event, (*event).status, (*event).id) };
        let outcome = status_of(kind, status).and_then(|()| match (kind, attr) {
            (RDMA_CM_EVENT_CONNECT_REQUEST, None) => Ok(()),
            (RDMA_CM_EVENT_CONNECT_REQUEST, Some(mut attr)) => {
                // SAFETY: the child is new, and the listener's objects are live.
                created(unsafe { rdma_create_qp(child, (*listener.abi()).pd, &mut attr) })
            }
            _ => Err(refuse!(EINVAL, kind, "get_request: another event has come")),
        });
        match outcome {
            Ok(()) => {
                // SAFETY: the child is new.
                unsafe { (*child).event = event };
                *place = child;
                Ok(0)
            }
            Err(error) => {
                // SAFETY: both are new, and nobody else knows them.
                unsafe {
                    rdma_ack_cm_event(event);
                    if kind == RDMA_CM_EVENT_CONNECT_REQUEST {
                        super::id::rdma_destroy_id(child);
                    }
                }
                Err(error)
            }
        }
    }))
}
