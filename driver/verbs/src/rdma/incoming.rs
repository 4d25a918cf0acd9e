//! What happened, as programs get it. What an event needs of an id is done here, by the thread
//! that gets it.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce_stack::mad::{
    CmEventKind, CommId, IpHeader, Path, RejReason, Reply, Request, ServiceId, SidrReply,
    SidrRequest,
};
use ferroce_stack::verbs::QpType;

use super::bind::{attach, set_destination, set_source};
use super::channel::Made;
use super::connect::confirm;
use super::devices::Attached;
use super::id::{CmId, Link, Phase, Queued, What, destroy, set_path};
use super::multicast;
use super::qp::{ah_attr, connect_qp, flush_qp};
use super::resolve::{record, show_gids};
use crate::device::Device;
use crate::errno::Errno;
use crate::layout::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_USER, RdmaConnParam,
    RdmaUdParam, zeroed,
};
use crate::log::refuse;

/// The event that something becomes; `None` if the program is not to know of it.
pub(super) fn process(queued: &Queued) -> Option<Made> {
    let id = &queued.id;
    match &queued.what {
        What::Told { event, status } => Some(Made::plain(*event, *status)),
        What::User { status, arg } => {
            let mut made = Made::plain(RDMA_CM_EVENT_USER, *status);
            made.param.arg = *arg;
            Some(made)
        }
        What::Joined { group } => multicast::joined(id, *group),
        What::Cm { device, comm, kind } => match &**kind {
            CmEventKind::Request(request) => child(id, device, *comm, &Asked::of(request)),
            CmEventKind::SidrRequest(request) => child(id, device, *comm, &Asked::of_sidr(request)),
            CmEventKind::Reply(reply) => Some(accepted(id, reply)),
            CmEventKind::SidrReply(reply) => Some(resolved(id, reply)),
            CmEventKind::Established { .. } => {
                Some(connection_event(RDMA_CM_EVENT_ESTABLISHED, 0, zeroed(), &[]))
            }
            CmEventKind::Rejected { reason, private_data, .. } => {
                rejected(id, *reason, private_data)
            }
            CmEventKind::Unreachable => {
                let (event, status) = (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT);
                let peer = id.state().destination.map(tracing::field::display);
                (!forget(id)).then(|| {
                    tracing::warn!(peer, "the peer does not answer");
                    Made::plain(event, status)
                })
            }
            CmEventKind::Disconnected { private_data } => {
                let event = RDMA_CM_EVENT_DISCONNECTED;
                let has_failed = id.state().has_failed;
                (!has_failed).then(|| connection_event(event, 0, zeroed(), private_data))
            }
            CmEventKind::TimewaitExit => {
                id.state().comm = None;
                Some(Made::plain(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0))
            }
        },
    }
}

/// An event with the parameters of a connection.
fn connection_event(event: c_int, status: c_int, mut conn: RdmaConnParam, data: &[u8]) -> Made {
    let mut made = Made::plain(event, status);
    made.private_data = data.into();
    (conn.private_data, conn.private_data_len) = shown(&made.private_data);
    made.param.conn = conn;
    made
}

/// An event with the parameters of the datagram service.
fn datagram_event(event: c_int, status: c_int, mut ud: RdmaUdParam, data: &[u8]) -> Made {
    let mut made = Made::plain(event, status);
    made.private_data = data.into();
    (ud.private_data, ud.private_data_len) = shown(&made.private_data);
    made.param.ud = ud;
    made
}

/// Private data as programs see it: none is null. No message carries 255 bytes.
fn shown(data: &[u8]) -> (*const c_void, u8) {
    let start = if data.is_empty() { ptr::null() } else { data.as_ptr().cast() };
    (start, u8::try_from(data.len()).unwrap_or(u8::MAX))
}

fn rejected(id: &CmId, reason: RejReason, private_data: &[u8]) -> Option<Made> {
    if forget(id) {
        return None;
    }
    let peer = id.state().destination.map(tracing::field::display);
    let why = match reason {
        // What it means for a program that gave an address and a port.
        RejReason::INVALID_SERVICE_ID => "nobody listens on the port",
        _ => reason.name().unwrap_or("for a reason unknown here"),
    };
    tracing::warn!(peer, reason = reason.0, "the peer rejects: {why}");
    let status = c_int::from(reason.0);
    // Its QP may still be in RESET or gone; the peer is lost either way.
    let _ = flush_qp(id);
    Some(connection_event(RDMA_CM_EVENT_REJECTED, status, zeroed(), private_data))
}

/// The connection manager has forgotten the connection, unless it is a request without an answer;
/// whether the program is not to know. It has been told of another failure, or finds out when it
/// answers: Linux tells nothing of an id before.
fn forget(id: &CmId) -> bool {
    let mut state = id.state();
    let is_request = state.phase == Phase::Requested;
    if !is_request {
        state.comm = None;
    }
    state.has_failed || is_request
}

/// The peer accepts: the QP goes to RTS and the peer is told, unless the program does both.
fn accepted(id: &Arc<CmId>, reply: &Reply) -> Made {
    let mut state = id.state();
    if let Some(link) = &mut state.link {
        link.peer = Some((reply.remote_qpn, reply.psn));
        link.responder_resources = link.responder_resources.min(reply.initiator_depth);
        link.initiator_depth = link.initiator_depth.min(reply.responder_resources);
        link.rnr_retry_count = reply.rnr_retry_count;
        link.ack_timeout = reply.ack_timeout;
    }
    let mut param: RdmaConnParam = zeroed();
    param.responder_resources = reply.initiator_depth;
    param.initiator_depth = reply.responder_resources;
    param.flow_control = u8::from(reply.flow_control);
    param.rnr_retry_count = reply.rnr_retry_count;
    param.srq = u8::from(reply.srq);
    param.qp_num = reply.remote_qpn.0;
    // SAFETY: the field is written by the program's threads alone.
    let has_qp = unsafe { !(*id.abi()).qp.is_null() };
    let (event, status) = if has_qp {
        match connect_qp(id, &mut state).and_then(|()| confirm(&mut state)) {
            Ok(()) => (RDMA_CM_EVENT_ESTABLISHED, 0),
            Err(Errno(code)) => {
                state.has_failed = true;
                let _ = flush_qp(id);
                (RDMA_CM_EVENT_CONNECT_ERROR, -code)
            }
        }
    } else {
        (RDMA_CM_EVENT_CONNECT_RESPONSE, 0)
    };
    connection_event(event, status, param, &reply.private_data)
}

/// The UD QP of a service is known, or there is none.
fn resolved(id: &Arc<CmId>, reply: &SidrReply) -> Made {
    let mut state = id.state();
    state.comm = None;
    if reply.status != 0 {
        let (event, status) = (RDMA_CM_EVENT_UNREACHABLE, c_int::from(reply.status));
        return datagram_event(event, status, zeroed(), &reply.private_data);
    }
    state.phase = Phase::Connected;
    let mut param: RdmaUdParam = zeroed();
    param.ah_attr = ah_attr(&state);
    param.qp_num = reply.qpn.0;
    param.qkey = reply.qkey;
    datagram_event(RDMA_CM_EVENT_ESTABLISHED, 0, param, &reply.private_data)
}

/// What both kinds of request have.
struct Asked<'a> {
    path: &'a Path,
    service: ServiceId,
    ip: Option<IpHeader>,
    private_data: &'a [u8],
    connection: Option<&'a Request>,
}

impl<'a> Asked<'a> {
    fn of(request: &'a Request) -> Asked<'a> {
        let Request { path, service, ip, private_data, .. } = request;
        let connection = Some(request);
        Asked { path, service: *service, ip: *ip, private_data, connection }
    }

    fn of_sidr(request: &'a SidrRequest) -> Asked<'a> {
        let SidrRequest { path, service, ip, private_data, .. } = request;
        Asked { path, service: *service, ip: *ip, private_data, connection: None }
    }
}

/// A peer wants to connect: a new id.
fn child(
    listener: &Arc<CmId>,
    device: &'static Device,
    comm: CommId,
    asked: &Asked<'_>,
) -> Option<Made> {
    let attached = match Attached::new(device) {
        Ok(attached) => attached,
        Err(Errno(errno)) => {
            tracing::error!(errno, device = device.info.name, "a request is lost");
            return None;
        }
    };
    if let Err((reason, ari)) = check(listener, device, asked) {
        drop_request(listener, &attached, comm, reason, &ari);
        return None;
    }
    match new_child(listener, &attached, comm, asked) {
        Ok(child) => Some(request_event(child, asked)),
        Err(Errno(errno)) => {
            tracing::error!(errno, "no id for a request");
            drop_request(listener, &attached, comm, RejReason::NO_RESOURCES, &[]);
            None
        }
    }
}

/// Whether a request can be one for the listener; otherwise why it is rejected.
fn check(listener: &CmId, device: &Device, asked: &Asked<'_>) -> Result<(), (RejReason, Vec<u8>)> {
    let Some(request) = asked.connection else {
        return match listener.is_datagram() {
            true => Ok(()),
            false => Err((RejReason::INVALID_TRANSPORT_TYPE, Vec::new())),
        };
    };
    let wanted = match request.qp_type {
        QpType::XrcSend => QpType::XrcRecv,
        other => other,
    };
    if wanted as c_int != listener.qp_type() {
        let (asked, here) = (request.qp_type, listener.qp_type());
        refuse!(EINVAL, ?asked, here, "a request for another service than the listener's");
        return Err((RejReason::INVALID_TRANSPORT_TYPE, Vec::new()));
    }
    let mtu = device.info.active_mtu;
    if request.mtu > mtu {
        refuse!(EINVAL, asked = ?request.mtu, ?mtu, "a request with a larger path MTU");
        return Err((RejReason::INVALID_MTU, vec![mtu as u8]));
    }
    Ok(())
}

/// Refuses a request of which the program is not told, nor of what has become of it since.
fn drop_request(listener: &CmId, attached: &Attached, comm: CommId, reason: RejReason, ari: &[u8]) {
    if let Ok(mut cm) = attached.engine.cm() {
        let now = cm.now();
        // Of a datagram's there is nothing to say.
        if cm.reject(comm, reason, ari, &[]).is_err() {
            cm.destroy(now, comm);
        }
        take_aftermath(listener, attached.device, comm);
    }
}

/// What came of a request after it had come to the listener, out of the listener's queue. Nothing
/// more comes while the caller has the connection manager.
fn take_aftermath(listener: &CmId, device: &Device, comm: CommId) -> Vec<Queued> {
    listener.take_queued(|queued| match &queued.what {
        What::Cm { device: its, comm: other, kind } => {
            *other == comm
                && ptr::eq(*its, device)
                && !matches!(**kind, CmEventKind::Request(_) | CmEventKind::SidrRequest(_))
        }
        _ => false,
    })
}

fn new_child(
    listener: &Arc<CmId>,
    attached: &Attached,
    comm: CommId,
    asked: &Asked<'_>,
) -> Result<Arc<CmId>, Errno> {
    let is_sync = listener.state().is_sync;
    // SAFETY: the fields are written by the program's threads alone.
    let (channel, context, ps) = unsafe {
        let abi = &*listener.abi();
        (abi.channel, abi.context, abi.ps)
    };
    let channel = if is_sync { ptr::null_mut() } else { channel };
    // SAFETY: the listener's channel is live: the event came from it.
    let child = unsafe { CmId::new(channel, context, ps, listener.qp_type())? };
    let outcome =
        fill(&child, attached, asked).and_then(|()| adopt(listener, &child, attached, comm));
    match outcome {
        Ok(()) => Ok(child),
        Err(error) => {
            destroy(&child);
            Err(error)
        }
    }
}

/// Has events of a request come to its own id, those that came before too.
fn adopt(
    listener: &CmId,
    child: &Arc<CmId>,
    attached: &Attached,
    comm: CommId,
) -> Result<(), Errno> {
    child.state().comm = Some(comm);
    let mut cm = attached.engine.cm()?;
    cm.set_cookie(comm, child.cookie);
    // As with Linux, the backlog is what the program has not got yet.
    cm.take(comm);
    for queued in take_aftermath(listener, attached.device, comm) {
        child.post(queued.what);
    }
    Ok(())
}

/// What is known of a connection from its request.
fn fill(child: &CmId, attached: &Attached, asked: &Asked<'_>) -> Result<(), Errno> {
    let mut state = child.state();
    let state = &mut *state;
    attach(child, state, *attached)?;
    state.path = *asked.path;
    state.sgid_index = attached.index_of(asked.path.sgid);
    let port = asked.service.port().unwrap_or(0);
    let (source, destination) = match asked.ip {
        Some(ip) => {
            let peer = SocketAddr::new(ip.source, ip.source_port);
            (SocketAddr::new(ip.destination, port), peer)
        }
        None => {
            let peer = SocketAddr::new(asked.path.dgid.to_ip(), 0);
            (SocketAddr::new(asked.path.sgid.to_ip(), port), peer)
        }
    };
    set_source(child, state, source);
    set_destination(child, state, destination);
    show_gids(child, asked.path);
    let mtu = asked.connection.map_or(attached.device.info.active_mtu, |request| request.mtu);
    set_path(child, record(asked.path, mtu as u8));
    state.link = asked.connection.map(|request| Link {
        mtu: request.mtu,
        responder_resources: request.responder_resources,
        initiator_depth: request.initiator_depth,
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        ack_timeout: request.ack_timeout,
        peer: Some((request.remote_qpn, request.psn)),
    });
    state.phase = Phase::Requested;
    Ok(())
}

fn request_event(child: Arc<CmId>, asked: &Asked<'_>) -> Made {
    let event = RDMA_CM_EVENT_CONNECT_REQUEST;
    let mut made = match asked.connection {
        None => datagram_event(event, 0, zeroed(), asked.private_data),
        Some(request) => {
            let mut param: RdmaConnParam = zeroed();
            param.responder_resources = request.responder_resources;
            param.initiator_depth = request.initiator_depth;
            param.flow_control = u8::from(request.flow_control);
            param.retry_count = request.retry_count;
            param.rnr_retry_count = request.rnr_retry_count;
            param.srq = u8::from(request.srq);
            param.qp_num = request.remote_qpn.0;
            connection_event(event, 0, param, asked.private_data)
        }
    };
    made.child = Some(child);
    made
}
