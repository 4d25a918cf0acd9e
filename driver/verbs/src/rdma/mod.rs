//! librdmacm: ids, their events and connections, over the connection manager of each device.
//!
//! An id (`id`) has an inbox in an event channel (`channel`). Devices put there what happens to
//! connections (`sink`); the thread that gets an event does what it needs (`incoming`): a new id
//! for a peer's request, a QP moved to RTS for a peer's answer. Semantics are those of librdmacm
//! 44 to 65 over Linux's connection manager.

mod address;
mod addrinfo;
mod bind;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod id;
mod incoming;
mod multicast;
mod option;
mod qp;
mod resolve;
mod sink;
mod srq;

pub(crate) use address::{rdma_get_dst_port, rdma_get_src_port};
pub(crate) use addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub(crate) use bind::{rdma_bind_addr, rdma_listen};
pub(crate) use channel::{
    get_cm_event_alone, rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel,
    rdma_get_cm_event,
};
pub(crate) use connect::{
    connect_once, rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify,
    rdma_reject, rdma_reject_ece,
};
pub(crate) use devices::{rdma_free_devices, rdma_get_devices};
pub(crate) use endpoint::{rdma_create_ep, rdma_destroy_ep, rdma_get_request};
pub(crate) use id::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
pub(crate) use multicast::{rdma_join_multicast, rdma_join_multicast_ex, rdma_leave_multicast};
pub(crate) use option::{
    rdma_get_remote_ece, rdma_set_local_ece, rdma_set_option, rdma_write_cm_event,
};
pub(crate) use qp::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp, rdma_init_qp_attr};
pub(crate) use resolve::{rdma_resolve_addr, rdma_resolve_route};
pub(crate) use srq::{rdma_create_srq, rdma_create_srq_ex, rdma_destroy_srq};
