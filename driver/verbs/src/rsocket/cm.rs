//! Connection management, over the calls a program has. All of it is asynchronous: what a call
//! begins, an event on the id's channel ends.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::RawFd;

use crate::errno::{self, Errno};
use crate::layout::{
    IbvContext, IbvQp, IbvQpInitAttr, IbvSaPathRec, RDMA_OPTION_ID, RDMA_PS_TCP, RDMA_PS_UDP,
    RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel,
};
use crate::rdma::{
    connect_once, get_cm_event_alone, rdma_accept, rdma_ack_cm_event, rdma_bind_addr,
    rdma_create_event_channel, rdma_create_id, rdma_create_qp, rdma_destroy_event_channel,
    rdma_destroy_id, rdma_destroy_qp, rdma_disconnect, rdma_listen, rdma_migrate_id, rdma_reject,
    rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
};

use super::addr::SockAddr;
use super::fd::set_nonblocking;

/// Private data of an event that is kept: that of REQ and REP fits.
const PRIVATE_DATA: usize = 256;

/// 0, or the errno of a call that returns -1.
fn check(outcome: c_int) -> Result<(), Errno> {
    if outcome == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Where an id's events arrive. Never blocks.
#[derive(Debug)]
pub struct EventChannel(*mut RdmaEventChannel);

// SAFETY: a channel is used from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// # Errors
    /// If there is no device, or no descriptor left.
    pub fn new() -> Result<EventChannel, Errno> {
        let channel = rdma_create_event_channel();
        if channel.is_null() {
            return Err(errno::last());
        }
        let channel = EventChannel(channel);
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    /// Readable while there are events.
    pub fn fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as this.
        unsafe { (*self.0).fd }
    }

    /// Takes the oldest event, if there is one.
    pub fn next(&self) -> Option<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel lives as long as this.
        unsafe {
            if get_cm_event_alone(self.0, &mut event) != 0 {
                return None;
            }
            let copy = Event::copy(&*event);
            rdma_ack_cm_event(event);
            Some(copy)
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the ids that use it are gone before.
        unsafe { rdma_destroy_event_channel(self.0) };
    }
}

/// What an event said.
pub struct Event {
    /// `RDMA_CM_EVENT_*`.
    pub kind: c_int,
    /// A negative errno, a reason of a rejection, or 0.
    pub status: c_int,
    /// The id it was about: of a connection request, a new one.
    pub id: *mut RdmaCmId,
    /// What the ends of a connection agree on; without the private data.
    pub param: RdmaConnParam,
    /// What the peer has added.
    pub private_data: Vec<u8>,
}

impl Event {
    /// # Safety
    /// The event must not be acknowledged yet.
    unsafe fn copy(event: &RdmaCmEvent) -> Event {
        // SAFETY: any bytes make this variant. Those of datagrams begin with the same fields.
        let mut param = unsafe { event.param.conn };
        let len = usize::from(param.private_data_len).min(PRIVATE_DATA);
        let private_data = match param.private_data.is_null() {
            true => Vec::new(),
            // SAFETY: the event has so many bytes there.
            false => unsafe {
                core::slice::from_raw_parts(param.private_data.cast::<u8>(), len).to_vec()
            },
        };
        param.private_data = ptr::null();
        param.private_data_len = 0;
        Event { kind: event.event, status: event.status, id: event.id, param, private_data }
    }
}

/// One end of a connection, or a listener.
#[derive(Debug)]
pub struct CmId(*mut RdmaCmId);

// SAFETY: an id is used from any thread.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl CmId {
    fn new(channel: &EventChannel, space: c_int) -> Result<CmId, Errno> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is live; whoever makes an id keeps the channel longer.
        check(unsafe { rdma_create_id(channel.0, &mut id, ptr::null_mut(), space) })?;
        Ok(CmId(id))
    }

    /// For connections. The channel must outlive it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn connected(channel: &EventChannel) -> Result<CmId, Errno> {
        CmId::new(channel, RDMA_PS_TCP)
    }

    /// For datagrams. The channel must outlive it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn datagram(channel: &EventChannel) -> Result<CmId, Errno> {
        CmId::new(channel, RDMA_PS_UDP)
    }

    /// The new id of a connection request, which nobody else has.
    ///
    /// # Safety
    /// It must come from such an event, once.
    pub unsafe fn of_request(id: *mut RdmaCmId) -> CmId {
        CmId(id)
    }

    /// Has its events arrive at another channel, which must outlive it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn migrate(&self, channel: &EventChannel) -> Result<(), Errno> {
        // SAFETY: both are live.
        check(unsafe { rdma_migrate_id(self.0, channel.0) })
    }

    /// Gives it a local address.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, ENODEV.
    pub fn bind(&self, addr: &SockAddr) -> Result<(), Errno> {
        // SAFETY: the address is only read.
        check(unsafe { rdma_bind_addr(self.0, addr.as_ptr().cast_mut()) })
    }

    /// Waits for connection requests.
    ///
    /// # Errors
    /// EADDRINUSE if another does.
    pub fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        // SAFETY: the id is live.
        check(unsafe { rdma_listen(self.0, backlog) })
    }

    /// Looks for the device that leads to an address, from that it is bound to or `source`.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn resolve_addr(
        &self,
        source: Option<&SockAddr>,
        peer: &SockAddr,
        timeout_ms: c_int,
    ) -> Result<(), Errno> {
        let source = source.map_or(ptr::null_mut(), |source| source.as_ptr().cast_mut());
        // SAFETY: the addresses are only read.
        check(unsafe { rdma_resolve_addr(self.0, source, peer.as_ptr().cast_mut(), timeout_ms) })
    }

    /// Looks for the way to it.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn resolve_route(&self, timeout_ms: c_int) -> Result<(), Errno> {
        // SAFETY: the id is live.
        check(unsafe { rdma_resolve_route(self.0, timeout_ms) })
    }

    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn connect(&self, param: &RdmaConnParam, private_data: &[u8]) -> Result<(), Errno> {
        let param = with_private_data(param, private_data);
        // SAFETY: the parameters are only read.
        check(unsafe { connect_once(self.0, &param) })
    }

    /// Takes what a peer has asked for.
    ///
    /// # Errors
    /// If the request is gone.
    pub fn accept(&self, param: &RdmaConnParam, private_data: &[u8]) -> Result<(), Errno> {
        let mut param = with_private_data(param, private_data);
        // SAFETY: the parameters are only read.
        check(unsafe { rdma_accept(self.0, &mut param) })
    }

    /// Refuses it. If the peer is gone already, that is as well.
    pub fn reject(&self) {
        // SAFETY: the id is live.
        unsafe { rdma_reject(self.0, ptr::null(), 0) };
    }

    /// Ends the connection, if there is one.
    pub fn disconnect(&self) {
        // SAFETY: the id is live.
        unsafe { rdma_disconnect(self.0) };
    }

    /// Sets an option of level `RDMA_OPTION_ID`.
    ///
    /// # Errors
    /// Those of the call.
    pub fn set_option<T: Copy>(&self, option: c_int, mut value: T) -> Result<(), Errno> {
        let pointer = (&raw mut value).cast::<c_void>();
        // SAFETY: the value is as long as said.
        check(unsafe { rdma_set_option(self.0, RDMA_OPTION_ID, option, pointer, size_of::<T>()) })
    }

    /// Makes its QP; `attr` then has the capacities that were granted.
    ///
    /// # Errors
    /// Those of the call.
    ///
    /// # Safety
    /// The completion queues of `attr` must be live and outlive the QP.
    pub unsafe fn create_qp(&self, attr: &mut IbvQpInitAttr) -> Result<*mut IbvQp, Errno> {
        // SAFETY: the id is live; the rest is the caller's promise.
        unsafe {
            check(rdma_create_qp(self.0, ptr::null_mut(), attr))?;
            Ok((*self.0).qp)
        }
    }

    /// Destroys it.
    pub fn destroy_qp(&self) {
        // SAFETY: the id is live.
        unsafe { rdma_destroy_qp(self.0) };
    }

    /// The context of its device; null before it has one.
    pub fn context(&self) -> *mut IbvContext {
        // SAFETY: the id is live.
        unsafe { (*self.0).verbs }
    }

    /// The port of its device.
    pub fn port_num(&self) -> u8 {
        // SAFETY: the id is live.
        unsafe { (*self.0).port_num }
    }

    /// Its own address.
    pub fn local_addr(&self) -> SockAddr {
        // SAFETY: the id is live.
        SockAddr::from_storage(unsafe { &(*self.0).route.addr.src_storage })
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SockAddr {
        // SAFETY: the id is live.
        SockAddr::from_storage(unsafe { &(*self.0).route.addr.dst_storage })
    }

    /// The paths that lead to the peer.
    pub fn paths(&self) -> Vec<IbvSaPathRec> {
        // SAFETY: the id is live and has so many.
        unsafe {
            let route = &(*self.0).route;
            match usize::try_from(route.num_paths) {
                Ok(count) if count > 0 && !route.path_rec.is_null() => {
                    core::slice::from_raw_parts(route.path_rec, count).to_vec()
                }
                _ => Vec::new(),
            }
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: ours alone; its QP is gone and its events are acknowledged.
        unsafe { rdma_destroy_id(self.0) };
    }
}

fn with_private_data(param: &RdmaConnParam, private_data: &[u8]) -> RdmaConnParam {
    RdmaConnParam {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len() as u8,
        ..*param
    }
}
