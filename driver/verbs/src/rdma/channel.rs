//! Event channels and the events programs get from them.

use core::ffi::c_int;
use core::{mem, ptr};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ferroce::engine::EventQueue;

use super::devices::drive_until;
use super::id::{CmId, Queued};
use super::incoming;
use super::qp::flush_connected;
use crate::device;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_REJECTED, RdmaCmEvent, RdmaEventChannel,
    RdmaEventParam,
};
use crate::log::refuse;

/// A channel. What programs hold is `abi`.
#[repr(C)]
pub(super) struct Channel {
    abi: RdmaEventChannel,
    /// The process it was made in.
    process: u32,
    pub queue: Arc<EventQueue<Queued>>,
}

impl Channel {
    /// A new channel.
    pub fn create() -> Result<*mut RdmaEventChannel, Errno> {
        if device::all()?.is_empty() {
            return Err(refuse!(ENODEV, "there is no device"));
        }
        let queue = Arc::new(EventQueue::new()?);
        let abi = RdmaEventChannel { fd: queue.as_raw_fd() };
        Ok(Box::into_raw(Box::new(Channel { abi, process: std::process::id(), queue })).cast())
    }

    /// The channel a program means.
    ///
    /// # Errors
    /// EINVAL for null, and for one of the process this one was forked from: a child shares its
    /// descriptor, and would take the parent's events away.
    ///
    /// # Safety
    /// `channel` must be null or live.
    pub unsafe fn of<'a>(channel: *mut RdmaEventChannel) -> Result<&'a Channel, Errno> {
        // SAFETY: the caller's promise; channels are made here alone.
        match unsafe { channel.cast::<Channel>().as_ref() } {
            None => Err(refuse!(EINVAL, "the rdma_event_channel is null")),
            Some(channel) if channel.process != std::process::id() => {
                Err(refuse!(EINVAL, "the channel is of the process this one was forked from"))
            }
            Some(channel) => Ok(channel),
        }
    }

    /// Frees a channel.
    ///
    /// # Safety
    /// `channel` must be null or live, and is gone afterwards.
    pub unsafe fn destroy(channel: *mut RdmaEventChannel) {
        if !channel.is_null() {
            // SAFETY: made by `create`, and the caller gives it up.
            drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
        }
    }
}

/// An event in a program's hands. What it holds is `abi`.
#[repr(C)]
struct Event {
    abi: RdmaCmEvent,
    /// Whose destruction waits until it is acknowledged.
    owner: Arc<CmId>,
    group: Option<u64>,
    /// What `abi` points to.
    _private_data: Box<[u8]>,
}

/// What becomes an event.
pub(super) struct Made {
    pub event: c_int,
    pub status: c_int,
    pub param: RdmaEventParam,
    pub private_data: Box<[u8]>,
    /// A new id that a peer wants to connect to; the owner is its listener.
    pub child: Option<Arc<CmId>>,
}

impl Made {
    /// An event that says no more than this.
    pub fn plain(event: c_int, status: c_int) -> Made {
        let param = RdmaEventParam { ud: crate::layout::zeroed() };
        Made { event, status, param, private_data: Box::default(), child: None }
    }

    /// What the program gets.
    fn into_abi(self, owner: Arc<CmId>, group: Option<u64>) -> *mut RdmaCmEvent {
        let (id, listen_id) = match self.child {
            Some(child) => (child.into_abi(), owner.abi()),
            None => (owner.abi(), ptr::null_mut()),
        };
        let Made { event, status, param, private_data, .. } = self;
        let abi = RdmaCmEvent { id, listen_id, event, status, param };
        let event = Event { abi, owner, group, _private_data: private_data };
        Box::into_raw(Box::new(event)).cast()
    }
}

/// A channel; null and errno if there is no device or no descriptor.
pub(crate) extern "C" fn rdma_create_event_channel() -> *mut RdmaEventChannel {
    errno::pointer(Channel::create())
}

/// # Safety
/// `channel` must be null or live, and is gone afterwards.
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut RdmaEventChannel) {
    // SAFETY: the caller's promise.
    unsafe { Channel::destroy(channel) };
}

/// The next event of a channel; waits for one unless the program has made the descriptor
/// non-blocking.
///
/// # Safety
/// The channel must be null or live, `event` null or valid.
pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut RdmaEventChannel,
    event: *mut *mut RdmaCmEvent,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { get(channel, event, next_event) }
}

/// The same, but the QP of a connection that is over keeps what it holds: for who has to tell what
/// was lost before from what is given back now.
///
/// # Safety
/// As [`rdma_get_cm_event`].
pub(crate) unsafe fn get_cm_event_alone(
    channel: *mut RdmaEventChannel,
    event: *mut *mut RdmaCmEvent,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { get(channel, event, take_event) }
}

/// # Safety
/// As [`rdma_get_cm_event`].
unsafe fn get(
    channel: *mut RdmaEventChannel,
    event: *mut *mut RdmaCmEvent,
    next: fn(&Channel) -> Result<*mut RdmaCmEvent, Errno>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { event.as_mut() }) else { return errno::minus_one(Err(EINVAL)) };
    // SAFETY: as above.
    let next = unsafe { Channel::of(channel) }.and_then(next);
    errno::minus_one(next.map(|event| {
        *place = event;
        0
    }))
}

/// The next event of a channel, for the program. With the news that its connection is over a QP
/// gives back what it holds: programs written for iWARP wait for that before they destroy it.
pub(super) fn next_event(channel: &Channel) -> Result<*mut RdmaCmEvent, Errno> {
    let event = take_event(channel)?;
    // SAFETY: the event is new, and made here.
    let Event { abi, owner, .. } = unsafe { &*event.cast::<Event>() };
    if abi.event == RDMA_CM_EVENT_DISCONNECTED {
        flush_connected(owner);
    }
    Ok(event)
}

fn take_event(channel: &Channel) -> Result<*mut RdmaCmEvent, Errno> {
    // The channel may be destroyed while this waits.
    let queue = channel.queue.clone();
    loop {
        if queue.is_empty() && queue.blocks() {
            drive_until(|| !queue.is_empty());
        }
        let next = queue.pop_then(|queued| queued.id.hand_out(queued.group()))?;
        let group = next.group();
        match incoming::process(&next) {
            Some(made) => return Ok(made.into_abi(next.id, group)),
            None => next.id.take_back(group),
        }
    }
}

/// # Safety
/// `event` must be null or from [`rdma_get_cm_event`], and is gone afterwards.
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut RdmaCmEvent) -> c_int {
    if event.is_null() {
        return errno::minus_one(Err(refuse!(EINVAL, "ack_cm_event: the event is null")));
    }
    // SAFETY: events are made here alone, and the program gives it up.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    let (owner, group) = (event.owner.clone(), event.group);
    drop(event);
    owner.take_back(group);
    0
}

/// Ends a call of an id with a channel of its own: waits for the event it causes, which stays in
/// the id until the next such call.
pub(super) fn complete(id: &Arc<CmId>) -> Result<(), Errno> {
    if !id.state().is_sync {
        return Ok(());
    }
    id.release_event();
    // SAFETY: the channel of such an id lives as long as the id.
    let event = next_event(unsafe { Channel::of((*id.abi()).channel) }?)?;
    // SAFETY: the field is the program's, and the event is new.
    let (kind, status) = unsafe {
        (*id.abi()).event = event;
        ((*event).event, (*event).status)
    };
    status_of(kind, status)
}

/// What a call says that ends with this event.
pub(super) fn status_of(event: c_int, status: c_int) -> Result<(), Errno> {
    match (event, status) {
        (_, 0) => Ok(()),
        (RDMA_CM_EVENT_REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) => Err(Errno(status.saturating_abs())),
    }
}

const _: () = assert!(mem::offset_of!(Channel, abi) == 0);
const _: () = assert!(mem::offset_of!(Event, abi) == 0);
