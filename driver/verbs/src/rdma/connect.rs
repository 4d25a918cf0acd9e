//! Connections: asked for, accepted, rejected, ended.

use core::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce::engine::CmGuard;
use ferroce_stack::Config;
use ferroce_stack::mad::{
    Accept, CommId, Connect, IpHeader, RejReason, ServiceId, SidrAccept, SidrConnect,
};
use ferroce_stack::verbs::{Mtu, QpType, Qpn};

use super::channel::complete;
use super::id::{CmId, Link, Phase, State};
use super::qp::{connect_qp, flush_qp};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, RDMA_UDP_QKEY, RdmaCmId, RdmaConnParam,
};
use crate::log::refuse;
use crate::port::DEFAULT_PKEY;

/// How often a request is sent again where nobody listens: 255 ms in all.
const REFUSED_RETRIES: u8 = 8;

/// Private data programs may give, in bytes.
const REQ: usize = 56;
const REP: usize = 196;
const REJ: usize = 148;
const SIDR_REQ: usize = 180;
const SIDR_REP: usize = 136;

/// Retries where a program gives no parameters.
const RETRIES: u8 = 7;
/// `IBV_EVENT_COMM_EST`.
const COMM_EST: c_int = 4;
/// Status of SIDR_REP: rejected.
const SIDR_REJECTED: u8 = 2;

/// What a program wants of a connection, or what it gets for wanting nothing in particular.
struct Wanted {
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: bool,
    qpn: Qpn,
    /// Of a request.
    refused_retries: u8,
    private_data: Vec<u8>,
}

impl Wanted {
    /// What `param` says of an id. Depths are bounded by `most`: responder resources, initiator
    /// depth.
    ///
    /// # Safety
    /// `param` must be null or valid, with as much private data as it says.
    unsafe fn new(
        id: &CmId,
        param: *const RdmaConnParam,
        most: (u8, u8),
        (before, room): (&[u8], usize),
    ) -> Result<Wanted, Errno> {
        // SAFETY: the caller's promise.
        let param = unsafe { param.as_ref() };
        // SAFETY: the program's QP is live.
        let qp = unsafe { (*id.abi()).qp.as_ref() };
        let device = Config::default().max_rd_atomic;
        let depth = |given: Option<u8>, all: u8, most: u8, what: &str| match given {
            Some(given) if given == all => Ok(most),
            None => Ok(most),
            Some(given) if given > device && !id.is_datagram() => {
                Err(refuse!(EINVAL, given, "conn_param.{what}: at most {device}, or 255"))
            }
            Some(given) => Ok(given),
        };
        let given = param.map(|param| param.responder_resources);
        let responder_resources = depth(given, RDMA_MAX_RESP_RES, most.0, "responder_resources")?;
        let given = param.map(|param| param.initiator_depth);
        let initiator_depth = depth(given, RDMA_MAX_INIT_DEPTH, most.1, "initiator_depth")?;
        let data = param.map_or((core::ptr::null(), 0), |param| {
            (param.private_data, usize::from(param.private_data_len))
        });
        // SAFETY: the caller's promise.
        let private_data = unsafe { private_data(before, data, room)? };
        Ok(Wanted {
            responder_resources,
            initiator_depth,
            flow_control: param.is_some_and(|param| param.flow_control != 0),
            retry_count: param.map_or(RETRIES, |param| param.retry_count.min(RETRIES)),
            rnr_retry_count: param.map_or(RETRIES, |param| param.rnr_retry_count.min(RETRIES)),
            srq: match qp {
                Some(qp) => !qp.srq.is_null(),
                None => param.is_some_and(|param| param.srq != 0),
            },
            qpn: Qpn(qp.map_or(param.map_or(0, |param| param.qp_num), |qp| qp.qp_num) & 0xff_ffff),
            refused_retries: 0,
            private_data,
        })
    }
}

/// Without a QP the parameters have to say which one it is.
fn check_qp(id: &CmId, param: *const RdmaConnParam) -> Result<(), Errno> {
    // SAFETY: the field is written by the program's threads alone.
    let has_qp = unsafe { !(*id.abi()).qp.is_null() };
    match has_qp || !param.is_null() {
        true => Ok(()),
        false => Err(refuse!(EINVAL, "an id without a QP needs conn_param with qp_num")),
    }
}

/// Private data of a message that takes `room` bytes.
///
/// # Safety
/// The pointer must be null or of as many bytes.
unsafe fn private_data(
    before: &[u8],
    (data, len): (*const c_void, usize),
    room: usize,
) -> Result<Vec<u8>, Errno> {
    let mut bytes = before.to_vec();
    if !data.is_null() {
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(data.cast(), len) });
    }
    if bytes.len() > room {
        let len = bytes.len();
        return Err(refuse!(EINVAL, len, "the private data is longer than {room} bytes"));
    }
    Ok(bytes)
}

/// The connection manager and the connection of an id.
fn connection(state: &State) -> Result<(CmGuard<'static>, CommId), Errno> {
    let engine = state.attached()?.engine;
    let comm = state.comm.ok_or_else(|| refuse!(EINVAL, "the id has no connection"))?;
    Ok((engine.cm()?, comm))
}

/// Asks the peer for a connection, or for its UD QP.
///
/// # Safety
/// The id must be null or live, the parameters null or valid with as much private data as they say.
pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut RdmaCmId,
    conn_param: *mut RdmaConnParam,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ask_for(id, conn_param, REFUSED_RETRIES) }
}

/// The same, but where nobody listens that is told at once, as by a socket.
///
/// # Safety
/// As [`rdma_connect`].
pub(crate) unsafe fn connect_once(id: *mut RdmaCmId, conn_param: *const RdmaConnParam) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ask_for(id, conn_param, 0) }
}

/// # Safety
/// As [`rdma_connect`].
unsafe fn ask_for(id: *mut RdmaCmId, param: *const RdmaConnParam, refused_retries: u8) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        // SAFETY: the caller's promise.
        unsafe { connect(&id, param, refused_retries)? };
        complete(&id)?;
        Ok(0)
    }))
}

/// # Safety
/// As [`rdma_connect`].
unsafe fn connect(
    id: &Arc<CmId>,
    param: *const RdmaConnParam,
    refused_retries: u8,
) -> Result<(), Errno> {
    let mut state = id.state();
    let state = &mut *state;
    if state.phase != Phase::RouteResolved {
        let phase = state.phase;
        return Err(refuse!(EINVAL, ?phase, "connect: the route is not just resolved"));
    }
    let room = if id.is_datagram() { SIDR_REQ } else { REQ };
    if !id.is_datagram() {
        check_qp(id, param)?;
    }
    let device = Config::default().max_rd_atomic;
    let before = (&state.connect_data[..], room);
    // SAFETY: the caller's promise.
    let wanted = unsafe { Wanted::new(id, param, (device, device), before)? };
    let wanted = Wanted { refused_retries, ..wanted };
    let attached = state.attached()?;
    let mut cm = attached.engine.cm()?;
    let comm = ask(id, state, &wanted, attached.device.info.active_mtu, &mut cm)?;
    // While the manager is ours: who processes what this causes needs them.
    state.comm = Some(comm);
    state.phase = Phase::Connecting;
    state.connect_data = Vec::new();
    Ok(())
}

/// Sends the request.
fn ask(
    id: &CmId,
    state: &mut State,
    wanted: &Wanted,
    mtu: Mtu,
    cm: &mut CmGuard<'_>,
) -> Result<CommId, Errno> {
    let (source, destination) = state.source.zip(state.destination).ok_or(EINVAL)?;
    let service = ServiceId::new(id.space, destination.port());
    let ip = Some(ip_header(source, destination));
    let (cookie, path, pkey) = (id.cookie, state.path, DEFAULT_PKEY);
    let private_data = &wanted.private_data[..];
    let Wanted { responder_resources, initiator_depth, retry_count, .. } = *wanted;
    let Wanted { rnr_retry_count, refused_retries, .. } = *wanted;
    let now = cm.now();
    let asked = if id.is_datagram() {
        let sidr = SidrConnect { cookie, service, path, pkey, refused_retries, ip, private_data };
        cm.resolve(now, &sidr)
    } else {
        let Some(qp_type) = service_of(id.qp_type()) else {
            return Err(refuse!(EINVAL, qp_type = id.qp_type(), "connect: RC, UC or XRC_SEND"));
        };
        state.link = Some(Link {
            mtu,
            responder_resources,
            initiator_depth,
            retry_count,
            rnr_retry_count,
            ack_timeout: 0,
            peer: None,
        });
        let Wanted { qpn, flow_control, srq, .. } = *wanted;
        let (psn, ack_timeout) = (state.psn, state.choices.ack_timeout);
        cm.connect(
            now,
            &Connect {
                cookie,
                service,
                path,
                pkey,
                qp_type,
                qpn,
                psn,
                qkey: 0,
                responder_resources,
                initiator_depth,
                retry_count,
                rnr_retry_count,
                flow_control,
                srq,
                mtu,
                ack_timeout,
                refused_retries,
                ip,
                private_data,
            },
        )
    };
    asked.map_err(|error| {
        refuse!(EINVAL, %error, %destination, "connect");
        Errno::from(error)
    })
}

fn service_of(qp_type: c_int) -> Option<QpType> {
    [QpType::Rc, QpType::Uc, QpType::XrcSend].into_iter().find(|known| *known as c_int == qp_type)
}

fn ip_header(source: SocketAddr, destination: SocketAddr) -> IpHeader {
    IpHeader {
        source: source.ip().to_canonical(),
        source_port: source.port(),
        destination: destination.ip().to_canonical(),
    }
}

/// Confirms a connection whose QP the program has moved to RTS itself.
///
/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut RdmaCmId) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        // SAFETY: the field is written by the program's threads alone.
        if unsafe { !(*id.abi()).qp.is_null() } {
            return Err(refuse!(EINVAL, "establish: the id has a QP, and needs no such call"));
        }
        confirm(&mut id.state())?;
        Ok(0)
    }))
}

/// Tells the peer that its answer has come.
pub(super) fn confirm(state: &mut State) -> Result<(), Errno> {
    let (mut cm, comm) = connection(state)?;
    cm.confirm(comm, &[]).inspect_err(|error| {
        tracing::warn!(%error, "establish: the peer has not answered, or has been told");
    })?;
    state.phase = Phase::Connected;
    Ok(())
}

/// Says yes to a peer.
///
/// # Safety
/// As [`rdma_connect`].
pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut RdmaCmId,
    conn_param: *mut RdmaConnParam,
) -> c_int {
    // SAFETY: the caller's promise.
    let outcome = unsafe { CmId::of(id).and_then(|id| accept(&id, conn_param).map(|()| id)) };
    errno::minus_one(outcome.and_then(|id| {
        if id.is_datagram() {
            // The peer does not answer: there is nothing to wait for.
            let is_sync = id.state().is_sync;
            if is_sync {
                id.release_event();
            }
        } else {
            complete(&id)?;
        }
        Ok(0)
    }))
}

/// # Safety
/// As [`rdma_connect`].
unsafe fn accept(id: &Arc<CmId>, param: *const RdmaConnParam) -> Result<(), Errno> {
    let mut state = id.state();
    if state.phase != Phase::Requested {
        let phase = state.phase;
        return Err(refuse!(EINVAL, ?phase, "accept: the id has no unanswered request"));
    }
    check_qp(id, param)?;
    let room = if id.is_datagram() { SIDR_REP } else { REP };
    let device = Config::default().max_rd_atomic;
    let asked = state.link.map_or((0, 0), |link| (link.responder_resources, link.initiator_depth));
    let most = (asked.0.min(device), asked.1.min(device));
    // SAFETY: the caller's promise.
    let wanted = unsafe { Wanted::new(id, param, most, (&[], room))? };
    if !id.is_datagram() {
        if let Some(link) = &mut state.link {
            link.responder_resources = wanted.responder_resources;
            // The peer takes no more.
            link.initiator_depth = wanted.initiator_depth.min(asked.1);
        }
        connect_qp(id, &mut state)?;
    }
    let outcome = answer(id, &state, &wanted);
    if let Err(error) = outcome {
        let _ = flush_qp(id);
        return Err(error);
    }
    state.phase = Phase::Connected;
    if id.is_datagram() {
        state.comm = None;
    }
    Ok(())
}

fn answer(id: &CmId, state: &State, wanted: &Wanted) -> Result<(), Errno> {
    let (mut cm, comm) = connection(state)?;
    let qpn = wanted.qpn;
    let private_data = &wanted.private_data[..];
    let outcome = if id.is_datagram() {
        let answer = SidrAccept { status: 0, qpn, qkey: RDMA_UDP_QKEY, private_data };
        cm.answer(comm, &answer)
    } else {
        let initiator_depth = state.link.map_or(0, |link| link.initiator_depth);
        let now = cm.now();
        cm.accept(
            now,
            comm,
            &Accept {
                qpn,
                psn: state.psn,
                qkey: 0,
                responder_resources: wanted.responder_resources,
                initiator_depth,
                rnr_retry_count: wanted.rnr_retry_count,
                flow_control: wanted.flow_control,
                srq: wanted.srq,
                private_data,
            },
        )
    };
    outcome.map_err(|error| {
        refuse!(EINVAL, %error, "accept: the peer may have given up");
        Errno::from(error)
    })
}

/// Says no to a peer.
///
/// # Safety
/// The id must be null or live, the data null or of as many bytes.
pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut RdmaCmId,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { reject(id, RejReason::CONSUMER, private_data, private_data_len) }
}

/// The same because of what the peer's vendor offers.
///
/// # Safety
/// As [`rdma_reject`].
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut RdmaCmId,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { reject(id, RejReason::VENDOR_OPTION, private_data, private_data_len) }
}

/// # Safety
/// As [`rdma_reject`].
unsafe fn reject(id: *mut RdmaCmId, reason: RejReason, data: *const c_void, len: u8) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        let room = if id.is_datagram() { SIDR_REP } else { REJ };
        // SAFETY: as above.
        let data = unsafe { private_data(&[], (data, usize::from(len)), room)? };
        let mut state = id.state();
        let (mut cm, comm) = connection(&state)?;
        if id.is_datagram() {
            let (status, private_data) = (SIDR_REJECTED, &data[..]);
            cm.answer(comm, &SidrAccept { status, qpn: Qpn(0), qkey: 0, private_data })
        } else {
            cm.reject(comm, reason, &[], &data)
        }
        .inspect_err(|error| tracing::warn!(%error, "reject: no unanswered request"))?;
        state.comm = None;
        Ok(0)
    }))
}

/// Tells of an event of the QP: that data has come before the peer's confirmation.
///
/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut RdmaCmId, event: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        if event != COMM_EST {
            return Err(refuse!(EINVAL, event, "notify: IBV_EVENT_COMM_EST ({COMM_EST})"));
        }
        let (mut cm, comm) = connection(&id.state())?;
        cm.established(comm)
            .inspect_err(|error| tracing::warn!(%error, "notify: not waiting for the peer"))?;
        Ok(0)
    }))
}

/// Ends a connection: flushes the QP and tells the peer.
///
/// # Safety
/// The id must be null or live.
pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut RdmaCmId) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.and_then(|id| {
        disconnect(&id)?;
        complete(&id)?;
        Ok(0)
    }))
}

fn disconnect(id: &CmId) -> Result<(), Errno> {
    let state = id.state();
    state.attached()?;
    flush_qp(id)?;
    let (mut cm, comm) = connection(&state)?;
    let now = cm.now();
    cm.disconnect(now, comm, &[]).map_err(|error| {
        refuse!(EINVAL, %error, "disconnect: there is no connection");
        EINVAL
    })
}
