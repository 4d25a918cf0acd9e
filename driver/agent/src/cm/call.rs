//! The verbs of connections. What a scenario can ask for and no function of librdmacm can do is
//! said to be so.

use core::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_conform::cm::{Accept, CmCall, Connect};
use ferroce_verbs_layout::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_TOS, RDMA_PS_TCP, RDMA_PS_UDP, RdmaCmId,
    RdmaConnParam, zeroed,
};
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

use super::{Cm, Connection, RESOLUTION};
use crate::error::{CallError, UNSUPPORTED, check};

/// `IBV_EVENT_COMM_EST`.
const COMMUNICATION_ESTABLISHED: c_int = 4;

/// As on the wire: the reason that `rdma_reject` gives a connection, and its status of a datagram
/// service.
const CONSUMER_REASON: u16 = 28;
const REJECTED: u16 = 2;

/// Carries a call out.
pub(super) fn carry_out(cm: &mut Cm<'_>, call: &CmCall) -> Result<(), CallError> {
    let library = cm.library;
    match call {
        CmCall::Start => Ok(()),
        CmCall::Listen { port, datagrams, backlog } => listen(cm, *port, *datagrams, *backlog),
        CmCall::Connect(connect) => start(cm, connect),
        CmCall::Accept(accept) => take(cm, accept),
        CmCall::Confirm { connection, private_data } => {
            let id = cm.connection(connection)?.id;
            nothing(private_data, "rdma_establish carries no private data")?;
            let establish = library.rdma_establish.ok_or(UNSUPPORTED)?;
            // SAFETY: the id is there.
            check(unsafe { establish(id) })
        }
        CmCall::Reject { connection, reason, information, private_data } => {
            let &mut Connection { id, is_exchange, .. } = cm.connection(connection)?;
            if *reason != (if is_exchange { REJECTED } else { CONSUMER_REASON }) {
                return Err(CallError::Unable("rdma_reject chooses the reason itself"));
            }
            nothing(information, "rdma_reject carries no additional information")?;
            let (data, len) = (private_data.as_ptr().cast::<c_void>(), length(private_data)?);
            // SAFETY: the id is there, and the data while the call lasts.
            check(unsafe { (library.rdma_reject)(id, data, len) })
        }
        CmCall::Prolong { .. } => Err(CallError::Unable("librdmacm has no call that sends MRA")),
        CmCall::Notify { connection } => {
            let id = cm.connection(connection)?.id;
            // SAFETY: the id is there.
            check(unsafe { (library.rdma_notify)(id, COMMUNICATION_ESTABLISHED) })
        }
        CmCall::Disconnect { connection, private_data } => {
            let id = cm.connection(connection)?.id;
            nothing(private_data, "rdma_disconnect carries no private data")?;
            // SAFETY: the id is there.
            check(unsafe { (library.rdma_disconnect)(id) })
        }
        CmCall::Destroy { connection } => {
            let connection = cm.connection(connection)?;
            connection.is_gone = true;
            // SAFETY: the id is there, and is forgotten; all its events are acknowledged.
            check(unsafe { (library.rdma_destroy_id)(connection.id) })
        }
    }
}

/// What cannot be sent must not be there.
fn nothing(bytes: &[u8], why: &'static str) -> Result<(), CallError> {
    if bytes.is_empty() { Ok(()) } else { Err(CallError::Unable(why)) }
}

/// Bytes of private data, as librdmacm takes them.
fn length(private_data: &[u8]) -> Result<u8, CallError> {
    u8::try_from(private_data.len())
        .map_err(|_| CallError::Unable("librdmacm counts private data in one byte"))
}

fn create(cm: &Cm<'_>, datagrams: bool) -> Result<*mut RdmaCmId, CallError> {
    let space = if datagrams { RDMA_PS_UDP } else { RDMA_PS_TCP };
    let (mut id, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the channel is open, the id is the verb's to write.
    check(unsafe { (cm.library.rdma_create_id)(cm.channel, &raw mut id, none, space) })?;
    Ok(id)
}

/// Destroys an id that nothing came of.
fn discard(cm: &Cm<'_>, id: *mut RdmaCmId) {
    // SAFETY: it has just been made, and nobody knows of it.
    unsafe { (cm.library.rdma_destroy_id)(id) };
}

fn listen(cm: &mut Cm<'_>, port: u16, datagrams: bool, backlog: u32) -> Result<(), CallError> {
    let any = match cm.own {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let id = create(cm, datagrams)?;
    let address = SockaddrStorage::from(SocketAddr::new(any, port));
    let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
    // SAFETY: the id is there, and the address, which is only read.
    let bound = check(unsafe { (cm.library.rdma_bind_addr)(id, address.as_ptr().cast_mut()) });
    // SAFETY: the id is there.
    let listens = bound.and_then(|()| check(unsafe { (cm.library.rdma_listen)(id, backlog) }));
    match listens {
        Ok(()) => cm.listeners.push(id),
        Err(_) => discard(cm, id),
    }
    listens
}

fn start(cm: &mut Cm<'_>, connect: &Connect) -> Result<(), CallError> {
    if connect.psn.is_some() {
        return Err(CallError::Unable("rdma_connect chooses the first PSN itself"));
    }
    if !connect.datagrams && connect.service != "rc" {
        return Err(CallError::Unable("connections of librdmacm in the space of TCP are RC"));
    }
    let mut conn: RdmaConnParam = zeroed();
    conn.private_data_len = length(&connect.private_data)?;
    conn.private_data = connect.private_data.as_ptr().cast();
    conn.responder_resources = connect.responder_resources;
    conn.initiator_depth = connect.initiator_depth;
    conn.retry_count = connect.retry_count;
    conn.rnr_retry_count = connect.rnr_retry_count;
    conn.qp_num = connect.qpn;
    let id = create(cm, connect.datagrams)?;
    let connected = resolve(cm, id, connect).and_then(|()| {
        // SAFETY: the id is there, and the private data while the call lasts.
        check(unsafe { (cm.library.rdma_connect)(id, &raw mut conn) })
    });
    match connected {
        Ok(()) => cm.connections.push(Connection {
            name: connect.connection.clone(),
            id,
            is_exchange: connect.datagrams,
            is_gone: false,
        }),
        Err(_) => discard(cm, id),
    }
    connected
}

/// Finds the way to the peer.
fn resolve(cm: &mut Cm<'_>, id: *mut RdmaCmId, connect: &Connect) -> Result<(), CallError> {
    let library = cm.library;
    let patience = RESOLUTION.as_millis() as c_int;
    let source = SockaddrStorage::from(SocketAddr::new(cm.own, 0));
    let peer = SockaddrStorage::from(SocketAddr::new(cm.peer, connect.port));
    let (source, peer) = (source.as_ptr().cast_mut(), peer.as_ptr().cast_mut());
    // SAFETY: the id is there, and the addresses, which are only read.
    check(unsafe { (library.rdma_resolve_addr)(id, source, peer, patience) })?;
    cm.wait_for(id, RDMA_CM_EVENT_ADDR_RESOLVED)?;
    if connect.traffic_class != 0 {
        set(cm, id, RDMA_OPTION_ID_TOS, connect.traffic_class)?;
    }
    if let Some(code) = connect.ack_timeout {
        set(cm, id, RDMA_OPTION_ID_ACK_TIMEOUT, code)?;
    }
    // SAFETY: the id is there.
    check(unsafe { (library.rdma_resolve_route)(id, patience) })?;
    cm.wait_for(id, RDMA_CM_EVENT_ROUTE_RESOLVED)
}

fn set(cm: &Cm<'_>, id: *mut RdmaCmId, option: c_int, mut value: u8) -> Result<(), CallError> {
    let value = (&raw mut value).cast::<c_void>();
    // SAFETY: the id is there, and the value, of one byte.
    check(unsafe { (cm.library.rdma_set_option)(id, RDMA_OPTION_ID, option, value, 1) })
}

fn take(cm: &mut Cm<'_>, accept: &Accept) -> Result<(), CallError> {
    let library = cm.library;
    let &mut Connection { id, is_exchange, .. } = cm.connection(&accept.connection)?;
    if accept.psn.is_some() && !is_exchange {
        return Err(CallError::Unable("rdma_accept chooses the first PSN itself"));
    }
    if accept.qkey.is_some() {
        return Err(CallError::Unable("rdma_accept chooses the Q_Key itself"));
    }
    let mut conn: RdmaConnParam = zeroed();
    conn.private_data_len = length(&accept.private_data)?;
    conn.private_data = accept.private_data.as_ptr().cast();
    conn.responder_resources = accept.responder_resources;
    conn.initiator_depth = accept.initiator_depth;
    conn.rnr_retry_count = accept.rnr_retry_count;
    conn.qp_num = accept.qpn;
    // SAFETY: the id is there, and the private data while the call lasts.
    check(unsafe { (library.rdma_accept)(id, &raw mut conn) })
}
