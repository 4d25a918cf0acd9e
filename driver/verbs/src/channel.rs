//! Completion channels: how a program sleeps until a CQ has something.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ferroce::engine::{Channel, Engine};

use crate::context::Context;
use crate::cq::Cq;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvCompChannel, IbvContext, IbvCq};
use crate::log::refuse;

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    abi: UnsafeCell<IbvCompChannel>,
    engine: Arc<Engine>,
    pub queue: Arc<Channel>,
}

impl CompChannel {
    /// The channel behind a program's pointer; `None` for null.
    ///
    /// # Safety
    /// The pointer must be null or of a live channel, for as long as the reference lives.
    pub unsafe fn of<'a>(channel: *mut IbvCompChannel) -> Option<&'a CompChannel> {
        // SAFETY: channels are made here alone, as the head of a `CompChannel`.
        unsafe { channel.cast::<CompChannel>().as_ref() }
    }

    /// CQs that use it. Programs may read it, and none of them atomically.
    fn users(&self) -> &AtomicI32 {
        // SAFETY: the field lives as long as the channel and this library alone writes it.
        unsafe { AtomicI32::from_ptr(&raw mut (*self.abi.get()).refcnt) }
    }

    /// One more CQ uses it.
    pub fn enter(&self) {
        self.users().fetch_add(1, Ordering::AcqRel);
    }

    /// One less.
    pub fn leave(&self) {
        self.users().fetch_sub(1, Ordering::AcqRel);
    }
}

/// # Safety
/// The context must be null or open.
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut IbvContext,
) -> *mut IbvCompChannel {
    // SAFETY: the caller's promise.
    errno::pointer(unsafe { Context::of(context) }.ok_or(EINVAL).and_then(|owner| {
        let queue = Arc::new(Channel::new()?);
        let abi = IbvCompChannel { context, fd: queue.as_raw_fd(), refcnt: 0 };
        let engine = owner.engine.clone();
        let channel = CompChannel { abi: UnsafeCell::new(abi), engine, queue };
        Ok(Box::into_raw(Box::new(channel)).cast())
    }))
}

/// # Safety
/// The channel must be null or live, and is gone afterwards.
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int {
    // SAFETY: the caller's promise.
    let outcome = match unsafe { CompChannel::of(channel) } {
        None => Err(EINVAL),
        Some(found) if found.users().load(Ordering::Acquire) > 0 => {
            Err(refuse!(EBUSY, "destroy_comp_channel: completion queues use it"))
        }
        Some(_) => Ok(()),
    };
    if outcome.is_ok() {
        // SAFETY: made by `create`, unused, and the program gives it up.
        drop(unsafe { Box::from_raw(channel.cast::<CompChannel>()) });
    }
    errno::code(outcome)
}

/// # Safety
/// The channel must be null or live; the other pointers null or valid.
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(channel) = (unsafe { CompChannel::of(channel) }) else {
        return errno::minus_one(Err(EINVAL));
    };
    // The channel may be destroyed while this waits.
    let (engine, queue) = (channel.engine.clone(), channel.queue.clone());
    let cookie = match engine.wait(&queue) {
        Ok(cookie) => cookie,
        Err(error) => return errno::minus_one(Err(Errno::from(error))),
    };
    let told = cookie as usize as *mut IbvCq;
    // SAFETY: the cookie of a CQ is its address, and its destruction waits until this event is
    // acknowledged.
    unsafe {
        if !cq.is_null() {
            *cq = told;
        }
        if !cq_context.is_null() {
            *cq_context = (*told).cq_context;
        }
    }
    0
}

/// # Safety
/// The CQ must be null or live.
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, count: c_uint) {
    // SAFETY: the caller's promise.
    if let Some(cq) = unsafe { Cq::of(cq) } {
        cq.acknowledge(count);
    }
}
