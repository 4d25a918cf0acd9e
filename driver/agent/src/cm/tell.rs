//! What happens to connections, in the words of scenarios.

use core::ffi::{c_int, c_void};

use ferroce_conform::cm::{NUMBERS, Report};
use ferroce_stack::verbs::{Mtu, QpState, QpType};
use ferroce_verbs_layout::{
    IbvQpAttr, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, RDMA_PS_UDP,
    RdmaCmEvent, RdmaCmId, zeroed,
};

use super::{Cm, Connection};

/// The words for events; those that are part of resolving an address are not told.
const WORDS: [(c_int, &str); 8] = [
    (RDMA_CM_EVENT_CONNECT_REQUEST, "connect-request"),
    (RDMA_CM_EVENT_CONNECT_RESPONSE, "connect-response"),
    (RDMA_CM_EVENT_CONNECT_ERROR, "connect-error"),
    (RDMA_CM_EVENT_UNREACHABLE, "unreachable"),
    (RDMA_CM_EVENT_REJECTED, "rejected"),
    (RDMA_CM_EVENT_ESTABLISHED, "established"),
    (RDMA_CM_EVENT_DISCONNECTED, "disconnected"),
    (RDMA_CM_EVENT_TIMEWAIT_EXIT, "timewait-exit"),
];

type Number = (&'static str, u64);

/// What is to be told of an event, if anything is.
pub(super) fn report(cm: &mut Cm<'_>, event: &RdmaCmEvent) -> Option<Report> {
    let &(code, word) = WORDS.iter().find(|(code, _)| *code == event.event)?;
    // SAFETY: ids of events are there.
    let is_exchange = unsafe { (*event.id).ps } == RDMA_PS_UDP;
    let connection = match code {
        RDMA_CM_EVENT_CONNECT_REQUEST => adopt(cm, event.id, is_exchange),
        _ => {
            let of_id = |own: &&Connection| own.id == event.id && !own.is_gone;
            cm.connections.iter().rfind(of_id)?.name.clone()
        }
    };
    let mut numbers = Vec::new();
    if code == RDMA_CM_EVENT_CONNECT_REQUEST {
        numbers.extend(of_id(event.id));
    }
    if event.status > 0 || is_exchange && code == RDMA_CM_EVENT_ESTABLISHED {
        numbers.push(("status", event.status.unsigned_abs().into()));
    }
    let private_data = if is_exchange {
        of_datagrams(event, &mut numbers)
    } else {
        of_connection(cm, event, &mut numbers)
    };
    let is_told = |name: &str| numbers.iter().any(|(told, _)| *told == name);
    let mut untold: Vec<String> =
        NUMBERS.iter().filter(|name| !is_told(name)).map(|name| (*name).to_owned()).collect();
    untold.push("information".to_owned());
    if private_data.is_empty() {
        untold.push("private-data".to_owned());
    }
    Some(Report {
        connection,
        event: word.to_owned(),
        numbers: numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        private_data,
        information: Vec::new(),
        untold,
    })
}

/// Gives a request a name.
fn adopt(cm: &mut Cm<'_>, id: *mut RdmaCmId, is_exchange: bool) -> String {
    let name = format!("request.{}", cm.connections.len() + 1);
    cm.connections.push(Connection { name: name.clone(), id, is_exchange, is_gone: false });
    name
}

/// Ports and partition of an id.
fn of_id(id: *mut RdmaCmId) -> Vec<Number> {
    // SAFETY: the id is there.
    let route = unsafe { (*id).route };
    let port = |address: &libc::sockaddr_storage| {
        // Both families have it, in network order, behind the family.
        let address = (&raw const *address).cast::<libc::sockaddr_in>();
        // SAFETY: the storage is larger than that, and aligned for any address.
        u64::from(u16::from_be(unsafe { (*address).sin_port }))
    };
    let mut numbers =
        vec![("port", port(&route.addr.src_storage)), ("peer-port", port(&route.addr.dst_storage))];
    if route.num_paths > 0 && !route.path_rec.is_null() {
        // SAFETY: there are so many paths.
        let pkey = unsafe { (*route.path_rec).pkey };
        numbers.push(("partition-key", u16::from_be(pkey).into()));
    }
    numbers
}

/// Numbers and private data of an event of the datagram service.
fn of_datagrams(event: &RdmaCmEvent, numbers: &mut Vec<Number>) -> Vec<u8> {
    // SAFETY: of ids of this space it is these parameters that an event has.
    let ud = unsafe { event.param.ud };
    if event.event == RDMA_CM_EVENT_ESTABLISHED {
        numbers.extend([("qpn", ud.qp_num.into()), ("qkey", ud.qkey.into())]);
    }
    bytes(ud.private_data, ud.private_data_len)
}

/// Numbers and private data of an event of a connection.
fn of_connection(cm: &Cm<'_>, event: &RdmaCmEvent, numbers: &mut Vec<Number>) -> Vec<u8> {
    // SAFETY: of ids of this space it is these parameters that an event has.
    let conn = unsafe { event.param.conn };
    let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
    if is_request || event.event == RDMA_CM_EVENT_CONNECT_RESPONSE {
        numbers.extend([
            ("qpn", conn.qp_num.into()),
            ("responder-resources", conn.responder_resources.into()),
            ("initiator-depth", conn.initiator_depth.into()),
            ("rnr-retry-count", conn.rnr_retry_count.into()),
            ("flow-control", conn.flow_control.into()),
            ("srq", conn.srq.into()),
        ]);
        numbers.extend(of_qp(cm, event.id));
    }
    if is_request {
        numbers.push(("retry-count", conn.retry_count.into()));
        // SAFETY: the id is there.
        let service = match unsafe { (*event.id).qp_type } {
            service if service == QpType::Rc as c_int => Some(0),
            service if service == QpType::Uc as c_int => Some(1),
            service if service == QpType::XrcRecv as c_int => Some(3),
            _ => None,
        };
        numbers.extend(service.map(|service| ("service", service)));
    }
    bytes(conn.private_data, conn.private_data_len)
}

/// What a QP of the connection would be given.
fn of_qp(cm: &Cm<'_>, id: *mut RdmaCmId) -> Vec<Number> {
    let Some(init) = cm.library.rdma_init_qp_attr else { return Vec::new() };
    let attr_in = |state: QpState| {
        let (mut attr, mut mask): (IbvQpAttr, c_int) = (zeroed(), 0);
        attr.qp_state = state as c_int;
        // SAFETY: the id is there, attributes and mask are the verb's to fill.
        let code = unsafe { init(id, &raw mut attr, &raw mut mask) };
        (code == 0).then_some(attr)
    };
    let mut numbers = Vec::new();
    if let Some(attr) = attr_in(QpState::Rtr) {
        let mtu = Mtu::ALL.into_iter().find(|mtu| *mtu as c_int == attr.path_mtu);
        numbers.extend(mtu.map(|mtu| ("mtu", mtu.bytes() as u64)));
        numbers.extend([
            ("traffic-class", attr.ah_attr.grh.traffic_class.into()),
            ("flow-label", attr.ah_attr.grh.flow_label.into()),
            ("hop-limit", attr.ah_attr.grh.hop_limit.into()),
            ("sl", attr.ah_attr.sl.into()),
        ]);
    }
    if let Some(attr) = attr_in(QpState::Rts) {
        numbers.extend([("psn", attr.sq_psn.into()), ("ack-timeout", attr.timeout.into())]);
    }
    numbers
}

/// Private data of an event.
fn bytes(data: *const c_void, len: u8) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    // SAFETY: an event's private data has so many bytes, until it is acknowledged.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec()
}
