//! Queues of ids, and the attributes connection management has for their QPs.

use core::ffi::c_int;
use core::ptr;
use std::sync::Arc;

use ferroce_stack::verbs::{AttrMask, QpAttr, QpState};

use super::id::{CmId, QPT_UC, QPT_XRC_RECV, State};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvAhAttr, IbvCompChannel, IbvCq, IbvGid, IbvPd, IbvQp, IbvQpAttr, IbvQpInitAttr,
    IbvQpInitAttrEx, RDMA_UDP_QKEY, RdmaCmId, zeroed,
};
use crate::log::refuse;
use crate::qp::{Qp, create_qp_ex, extended, ibv_destroy_qp};
use crate::qp_attr::ibv_modify_qp;

/// `IBV_QPS_*`.
const INIT: c_int = 1;
const RTR: c_int = 2;
const RTS: c_int = 3;
const ERR: c_int = 6;

/// `IBV_QP_INIT_ATTR_PD` and `_XRCD`.
const MASK_PD: u32 = 1;
const MASK_XRCD: u32 = 2;

/// `IBV_ACCESS_REMOTE_*`.
const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;

/// What a call of libibverbs returns.
fn outcome(code: c_int) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno(code)) }
}

/// What a call of libibverbs has made.
pub(super) fn made<T>(object: *mut T) -> Result<*mut T, Errno> {
    if object.is_null() { Err(errno::last()) } else { Ok(object) }
}

/// Makes a QP and takes it as far as it gets without a peer.
///
/// # Safety
/// The id and the domain must be null or live, the attributes null or valid with live objects.
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    qp_init_attr: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(attr) = (unsafe { qp_init_attr.as_mut() }) else {
        return errno::minus_one(Err(refuse!(EINVAL, "create_qp: the attributes are null")));
    };
    let mut init = extended(attr, pd);
    // SAFETY: as above.
    let outcome = unsafe { CmId::of(id).and_then(|id| create(&id, &mut init)) };
    (attr.send_cq, attr.recv_cq, attr.srq) = (init.send_cq, init.recv_cq, init.srq);
    attr.cap = init.cap;
    errno::minus_one(outcome.map(|()| 0))
}

/// # Safety
/// As [`rdma_create_qp`].
pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut RdmaCmId,
    qp_init_attr: *mut IbvQpInitAttrEx,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(attr) = (unsafe { qp_init_attr.as_mut() }) else {
        return errno::minus_one(Err(refuse!(EINVAL, "create_qp_ex: the attributes are null")));
    };
    // SAFETY: as above.
    errno::minus_one(unsafe { CmId::of(id).and_then(|id| create(&id, attr)) }.map(|()| 0))
}

/// # Safety
/// The objects of `attr` must be null or live.
unsafe fn create(id: &CmId, attr: &mut IbvQpInitAttrEx) -> Result<(), Errno> {
    let attached = id.state().attached()?;
    // SAFETY: the fields are written by the program's threads alone.
    let abi = unsafe { &mut *id.abi() };
    if !abi.qp.is_null() {
        return Err(refuse!(EINVAL, "create_qp: the id has a QP already"));
    }
    if attr.comp_mask & MASK_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= MASK_PD;
        attr.pd = abi.pd;
    // SAFETY: the caller's promise.
    } else if unsafe { (*attr.pd).context } != abi.verbs {
        return Err(refuse!(EINVAL, "create_qp: the pd is not of the id's context (id->verbs)"));
    }
    for (own, given) in [(abi.send_cq, attr.send_cq), (abi.recv_cq, attr.recv_cq)] {
        if !own.is_null() && !given.is_null() && given != own {
            return Err(refuse!(EINVAL, "create_qp: the id has another CQ than the attributes"));
        }
    }
    if abi.qp_type == QPT_XRC_RECV && (attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null()) {
        attr.comp_mask |= MASK_XRCD;
        attr.xrcd = attached.default_xrcd()?;
    }
    let wanted = |own: *mut IbvCq, given: *mut IbvCq, count| {
        if own.is_null() && given.is_null() { count } else { 0 }
    };
    let sends = wanted(abi.send_cq, attr.send_cq, attr.cap.max_send_wr);
    let receives = wanted(abi.recv_cq, attr.recv_cq, attr.cap.max_recv_wr);
    create_cqs(abi, sends, receives)?;
    for (given, own) in [(&mut attr.send_cq, abi.send_cq), (&mut attr.recv_cq, abi.recv_cq)] {
        if given.is_null() {
            *given = own;
        }
    }
    if attr.srq.is_null() {
        attr.srq = abi.srq;
    }
    // SAFETY: the context is open, and the objects are live.
    let qp = made(unsafe { create_qp_ex(abi.verbs, attr) });
    let qp = qp.inspect_err(|_| destroy_cqs(abi))?;
    let outcome = start(id, qp);
    // SAFETY: as above, and anew: `start` has looked at the id.
    let abi = unsafe { &mut *id.abi() };
    if let Err(error) = outcome {
        // SAFETY: made above.
        unsafe { ibv_destroy_qp(qp) };
        destroy_cqs(abi);
        return Err(error);
    }
    (abi.qp, abi.pd) = (qp, attr.pd);
    Ok(())
}

/// Moves a new QP to INIT, one of datagrams to RTS.
fn start(id: &CmId, qp: *mut IbvQp) -> Result<(), Errno> {
    let states = if id.is_datagram() { &[INIT, RTR, RTS][..] } else { &[INIT] };
    states.iter().try_for_each(|state| modify(id, &id.state(), qp, *state))
}

/// Moves a QP to a state with the attributes of its id.
fn modify(id: &CmId, state: &State, qp: *mut IbvQp, qp_state: c_int) -> Result<(), Errno> {
    let (mut attr, mask) = attributes(id, state, qp_state)?;
    // SAFETY: the QP is live.
    outcome(unsafe { ibv_modify_qp(qp, &mut attr, mask.0 as c_int) })
}

/// Moves the id's QP, if it has one, to RTS: the peer is known.
pub(super) fn connect_qp(id: &CmId, state: &mut State) -> Result<(), Errno> {
    // SAFETY: the field is written by the program's threads alone.
    let qp = unsafe { (*id.abi()).qp };
    if qp.is_null() {
        return Ok(());
    }
    // INIT once more: what the peer may do is known only now.
    [INIT, RTR, RTS].into_iter().try_for_each(|qp_state| modify(id, state, qp, qp_state))?;
    // SAFETY: the QP is live.
    state.connected = unsafe { Qp::of(qp) }.map(|qp| Arc::downgrade(&qp.queue)).unwrap_or_default();
    Ok(())
}

/// Moves the QP of a connection that its peer has ended to ERR, if it is still there.
pub(super) fn flush_connected(id: &CmId) {
    let state = id.state();
    if let (Some(attached), Some(queue)) = (state.attached, state.connected.upgrade()) {
        let attr = QpAttr { qp_state: QpState::Err, ..QpAttr::default() };
        // One that is being destroyed gives nothing back.
        let _ = attached.engine.modify_qp(&queue, &attr, AttrMask::STATE);
    }
}

/// Moves the id's QP, if it has one, to ERR: what it holds is flushed.
pub(super) fn flush_qp(id: &CmId) -> Result<(), Errno> {
    // SAFETY: as above.
    let qp = unsafe { (*id.abi()).qp };
    if qp.is_null() {
        return Ok(());
    }
    let mut attr: IbvQpAttr = zeroed();
    attr.qp_state = ERR;
    // SAFETY: the QP is live.
    outcome(unsafe { ibv_modify_qp(qp, &mut attr, AttrMask::STATE.0 as c_int) })
}

/// The way to the peer.
pub(super) fn ah_attr(state: &State) -> IbvAhAttr {
    let mut attr: IbvAhAttr = zeroed();
    attr.grh.dgid = IbvGid { raw: state.path.dgid.0 };
    attr.grh.flow_label = state.path.flow_label;
    attr.grh.sgid_index = state.sgid_index;
    attr.grh.hop_limit = state.path.hop_limit;
    attr.grh.traffic_class = state.path.traffic_class;
    attr.sl = state.path.sl;
    attr.is_global = 1;
    attr.port_num = 1;
    attr
}

/// What a QP of the id is moved to a state with.
fn attributes(id: &CmId, state: &State, qp_state: c_int) -> Result<(IbvQpAttr, AttrMask), Errno> {
    type M = AttrMask;
    let mut attr: IbvQpAttr = zeroed();
    attr.qp_state = qp_state;
    if qp_state == INIT {
        attr.port_num = 1;
        let mask = M::STATE | M::PKEY_INDEX | M::PORT;
        if id.is_datagram() {
            attr.qkey = RDMA_UDP_QKEY;
            return Ok((attr, mask | M::QKEY));
        }
        attr.qp_access_flags = match state.link {
            None => 0,
            Some(link) if link.responder_resources == 0 => REMOTE_WRITE,
            Some(_) => REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC,
        };
        return Ok((attr, mask | M::ACCESS_FLAGS));
    }
    match (qp_state, id.is_datagram()) {
        (RTR, true) => return Ok((attr, M::STATE)),
        (RTS, true) => return Ok((attr, M::STATE | M::SQ_PSN)),
        (RTR | RTS, false) => {}
        _ => {
            return Err(refuse!(EINVAL, qp_state, "a QP has attributes for INIT, RTR and RTS"));
        }
    }
    let link = state.link.and_then(|link| Some((link, link.peer?)));
    let Some((link, (remote_qpn, remote_psn))) = link else {
        return Err(refuse!(EINVAL, qp_state, "the peer's QP is not known yet"));
    };
    if qp_state == RTR {
        attr.ah_attr = ah_attr(state);
        attr.path_mtu = link.mtu as c_int;
        attr.dest_qp_num = remote_qpn.0;
        attr.rq_psn = state.psn;
        attr.max_dest_rd_atomic = link.responder_resources;
        let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let reliable = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        return Ok((attr, if reliable_service(id) { mask | reliable } else { mask }));
    }
    attr.sq_psn = remote_psn;
    attr.timeout = state.choices.ack_timeout.unwrap_or(link.ack_timeout);
    attr.retry_cnt = link.retry_count;
    attr.rnr_retry = link.rnr_retry_count;
    attr.max_rd_atomic = link.initiator_depth;
    let mask = M::STATE | M::SQ_PSN;
    let reliable = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    Ok((attr, if reliable_service(id) { mask | reliable } else { mask }))
}

/// Whether the QP acknowledges and retries, or does half of it.
fn reliable_service(id: &CmId) -> bool {
    id.qp_type() != QPT_UC
}

/// Attributes for a program that moves its QP itself; `qp_state` says where.
///
/// # Safety
/// The id must be null or live, the other pointers null or valid.
pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut RdmaCmId,
    qp_attr: *mut IbvQpAttr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (found, places) = unsafe { (CmId::of(id), (qp_attr.as_mut(), qp_attr_mask.as_mut())) };
    errno::minus_one(found.and_then(|id| {
        let (Some(attr), Some(mask)) = places else { return Err(EINVAL) };
        let state = id.state();
        state.attached()?;
        let (filled, bits) = attributes(&id, &state, attr.qp_state)?;
        (*attr, *mask) = (filled, bits.0 as c_int);
        Ok(0)
    }))
}

/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut RdmaCmId) {
    // SAFETY: the caller's promise.
    if let Ok(id) = unsafe { CmId::of(id) } {
        // SAFETY: the fields are written by the program's threads alone.
        let abi = unsafe { &mut *id.abi() };
        // SAFETY: the QP is live or null.
        unsafe { ibv_destroy_qp(abi.qp) };
        abi.qp = ptr::null_mut();
        destroy_cqs(abi);
    }
}

/// Makes the CQs of which a size is given, each with a channel.
pub(super) fn create_cqs(abi: &mut RdmaCmId, sends: u32, receives: u32) -> Result<(), Errno> {
    let create = |abi: &RdmaCmId, cqe: u32| -> Result<(*mut IbvCompChannel, *mut IbvCq), Errno> {
        let context = (&raw const *abi).cast_mut().cast();
        let cqe = c_int::try_from(cqe).map_err(|_| EINVAL)?;
        // SAFETY: the context is open.
        let channel = made(unsafe { ibv_create_comp_channel(abi.verbs) })?;
        // SAFETY: as above, and the channel is new.
        let cq = made(unsafe { ibv_create_cq(abi.verbs, cqe, context, channel, 0) });
        let cq = cq.inspect_err(|_| {
            // SAFETY: nothing uses it.
            unsafe { ibv_destroy_comp_channel(channel) };
        })?;
        Ok((channel, cq))
    };
    if receives > 0 {
        (abi.recv_cq_channel, abi.recv_cq) = create(abi, receives)?;
    }
    if sends > 0 {
        match create(abi, sends) {
            Ok((channel, cq)) => (abi.send_cq_channel, abi.send_cq) = (channel, cq),
            Err(error) => {
                destroy_cqs(abi);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Destroys the CQs of an id and their channels, unless its SRQ completes there.
pub(super) fn destroy_cqs(abi: &mut RdmaCmId) {
    if abi.qp_type == QPT_XRC_RECV && !abi.srq.is_null() {
        return;
    }
    if abi.send_cq == abi.recv_cq {
        (abi.send_cq, abi.send_cq_channel) = (ptr::null_mut(), ptr::null_mut());
    }
    for cq in [&mut abi.recv_cq, &mut abi.send_cq] {
        // SAFETY: null, or made by `create_cqs` or the program for this id.
        unsafe { ibv_destroy_cq(core::mem::replace(cq, ptr::null_mut())) };
    }
    for channel in [&mut abi.recv_cq_channel, &mut abi.send_cq_channel] {
        // SAFETY: as above.
        unsafe { ibv_destroy_comp_channel(core::mem::replace(channel, ptr::null_mut())) };
    }
}
