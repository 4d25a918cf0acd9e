//! Structures and constants of librdmacm (`rdma/rdma_cma.h`).

use core::ffi::{c_char, c_int, c_void};

use super::attr::IbvAhAttr;
use super::device::{IbvContext, IbvGid};
use super::kern::IbvSaPathRec;
use super::layout;
use super::object::{IbvCompChannel, IbvCq, IbvPd, IbvQp, IbvSrq};

/// `enum rdma_port_space`.
pub const RDMA_PS_IPOIB: c_int = 0x0002;
/// Connections: RC, UC, XRC.
pub const RDMA_PS_TCP: c_int = 0x0106;
/// Datagrams: UD.
pub const RDMA_PS_UDP: c_int = 0x0111;
/// Any service, addressed by `AF_IB` or IP.
pub const RDMA_PS_IB: c_int = 0x013f;

/// `enum rdma_cm_event_type`.
pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
/// An address cannot be reached.
pub const RDMA_CM_EVENT_ADDR_ERROR: c_int = 1;
/// There is a route.
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
/// There is no route.
pub const RDMA_CM_EVENT_ROUTE_ERROR: c_int = 3;
/// A peer wants to connect.
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
/// A peer has accepted; the id has no QP that could be moved.
pub const RDMA_CM_EVENT_CONNECT_RESPONSE: c_int = 5;
/// Something failed here while connecting.
pub const RDMA_CM_EVENT_CONNECT_ERROR: c_int = 6;
/// A peer does not answer.
pub const RDMA_CM_EVENT_UNREACHABLE: c_int = 7;
/// A peer does not want to connect.
pub const RDMA_CM_EVENT_REJECTED: c_int = 8;
/// There is a connection.
pub const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;
/// The connection is over.
pub const RDMA_CM_EVENT_DISCONNECTED: c_int = 10;
/// The device is gone.
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_int = 11;
/// A multicast group is joined.
pub const RDMA_CM_EVENT_MULTICAST_JOIN: c_int = 12;
/// A multicast group cannot be joined.
pub const RDMA_CM_EVENT_MULTICAST_ERROR: c_int = 13;
/// The address of the device has changed.
pub const RDMA_CM_EVENT_ADDR_CHANGE: c_int = 14;
/// The QP of a connection that is over may be used again.
pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: c_int = 15;
/// Of `rdma_write_cm_event`.
pub const RDMA_CM_EVENT_USER: c_int = 18;

/// Q_Key of UD QPs and groups of `RDMA_PS_UDP`.
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;
/// As many incoming READs and atomics as the device can do.
pub const RDMA_MAX_RESP_RES: u8 = 0xff;
/// As many outgoing READs and atomics as the device can do.
pub const RDMA_MAX_INIT_DEPTH: u8 = 0xff;

/// Flags of `rdma_addrinfo`.
pub const RAI_PASSIVE: c_int = 1;
/// The node is an address, not a name.
pub const RAI_NUMERICHOST: c_int = 2;

/// Levels of `rdma_set_option`.
pub const RDMA_OPTION_ID: c_int = 0;
/// Options of the path.
pub const RDMA_OPTION_IB: c_int = 1;
/// `u8`: type of service.
pub const RDMA_OPTION_ID_TOS: c_int = 0;
/// `int`: as `SO_REUSEADDR`.
pub const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
/// `int`: as `IPV6_V6ONLY`.
pub const RDMA_OPTION_ID_AFONLY: c_int = 2;
/// `u8`: code of the QP's timeout.
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
/// [`IbvPathData`]s.
pub const RDMA_OPTION_IB_PATH: c_int = 1;

/// Fields of [`RdmaCmJoinMcAttrEx`] that are given.
pub const RDMA_CM_JOIN_MC_ATTR_ADDRESS: u32 = 1;
/// The flags are given.
pub const RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: u32 = 2;
/// Who sends and receives.
pub const RDMA_MC_JOIN_FLAG_FULLMEMBER: u32 = 0;
/// Who only sends.
pub const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u32 = 1;

/// What an event says beyond its type: of the datagram service, or of a connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub union RdmaEventParam {
    /// Of ids of `RDMA_PS_TCP`.
    pub conn: RdmaConnParam,
    /// Of ids of `RDMA_PS_UDP` and `RDMA_PS_IPOIB`.
    pub ud: RdmaUdParam,
    /// Of `RDMA_CM_EVENT_USER`: what the program gave.
    pub arg: u64,
}

layout! {
    /// Addresses of InfiniBand.
    RdmaIbAddr = "rdma_ib_addr", 40 {
        sgid @ 0: IbvGid,
        dgid @ 16: IbvGid,
        pkey @ 32: u16,
    }

    /// Both ends' addresses; IPv4 and IPv6 addresses lie in the storage.
    RdmaAddr = "rdma_addr", 296 {
        src_storage @ 0: libc::sockaddr_storage,
        dst_storage @ 128: libc::sockaddr_storage,
        addr @ 256: RdmaIbAddr,
    }

    /// Addresses and the ways between them.
    RdmaRoute = "rdma_route", 312 {
        addr @ 0: RdmaAddr,
        path_rec @ 296: *mut IbvSaPathRec,
        num_paths @ 304: c_int,
    }

    /// Where the events of ids arrive.
    RdmaEventChannel = "rdma_event_channel", 4 {
        fd @ 0: c_int,
    }

    /// One end of a connection, or a listener.
    RdmaCmId = "rdma_cm_id", 416 {
        verbs @ 0: *mut IbvContext,
        channel @ 8: *mut RdmaEventChannel,
        context @ 16: *mut c_void,
        qp @ 24: *mut IbvQp,
        route @ 32: RdmaRoute,
        ps @ 344: c_int,
        port_num @ 348: u8,
        event @ 352: *mut RdmaCmEvent,
        send_cq_channel @ 360: *mut IbvCompChannel,
        send_cq @ 368: *mut IbvCq,
        recv_cq_channel @ 376: *mut IbvCompChannel,
        recv_cq @ 384: *mut IbvCq,
        srq @ 392: *mut IbvSrq,
        pd @ 400: *mut IbvPd,
        qp_type @ 408: c_int,
    }

    /// What the ends of a connection agree on.
    RdmaConnParam = "rdma_conn_param", 24 {
        private_data @ 0: *const c_void,
        private_data_len @ 8: u8,
        responder_resources @ 9: u8,
        initiator_depth @ 10: u8,
        flow_control @ 11: u8,
        retry_count @ 12: u8,
        rnr_retry_count @ 13: u8,
        srq @ 14: u8,
        qp_num @ 16: u32,
    }

    /// How datagrams reach a peer.
    RdmaUdParam = "rdma_ud_param", 56 {
        private_data @ 0: *const c_void,
        private_data_len @ 8: u8,
        ah_attr @ 16: IbvAhAttr,
        qp_num @ 48: u32,
        qkey @ 52: u32,
    }

    /// Something that happened to an id.
    RdmaCmEvent = "rdma_cm_event", 80 {
        id @ 0: *mut RdmaCmId,
        listen_id @ 8: *mut RdmaCmId,
        event @ 16: c_int,
        status @ 20: c_int,
        param @ 24: RdmaEventParam,
    }

    /// A result of `rdma_getaddrinfo`, or what is asked of it.
    RdmaAddrinfo = "rdma_addrinfo", 96 {
        ai_flags @ 0: c_int,
        ai_family @ 4: c_int,
        ai_qp_type @ 8: c_int,
        ai_port_space @ 12: c_int,
        ai_src_len @ 16: libc::socklen_t,
        ai_dst_len @ 20: libc::socklen_t,
        ai_src_addr @ 24: *mut libc::sockaddr,
        ai_dst_addr @ 32: *mut libc::sockaddr,
        ai_src_canonname @ 40: *mut c_char,
        ai_dst_canonname @ 48: *mut c_char,
        ai_route_len @ 56: usize,
        ai_route @ 64: *mut c_void,
        ai_connect_len @ 72: usize,
        ai_connect @ 80: *mut c_void,
        ai_next @ 88: *mut RdmaAddrinfo,
    }

    /// Which group is joined, and how.
    RdmaCmJoinMcAttrEx = "rdma_cm_join_mc_attr_ex", 16 {
        comp_mask @ 0: u32,
        join_flags @ 4: u32,
        addr @ 8: *mut libc::sockaddr,
    }

    /// A path as it lies in a packet, all in network order.
    IbvPathRecord = "ibv_path_record", 64 {
        service_id @ 0: u64,
        dgid @ 8: IbvGid,
        sgid @ 24: IbvGid,
        dlid @ 40: u16,
        slid @ 42: u16,
        flowlabel_hoplimit @ 44: u32,
        tclass @ 48: u8,
        reversible_numpath @ 49: u8,
        pkey @ 50: u16,
        qosclass_sl @ 52: u16,
        mtu @ 54: u8,
        rate @ 55: u8,
        packetlifetime @ 56: u8,
        preference @ 57: u8,
        reserved @ 58: [u8; 6],
    }

    /// A path and what it is for.
    IbvPathData = "ibv_path_data", 72 {
        flags @ 0: u32,
        reserved @ 4: u32,
        path @ 8: IbvPathRecord,
    }
}
