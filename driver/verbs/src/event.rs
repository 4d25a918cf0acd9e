//! Asynchronous events, and the rule that an object outlives the events a program has of it.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use ferroce::engine::{AsyncEvent, AsyncQueue, Subject};

use crate::context::Context;
use crate::device::lock;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvAsyncEvent, IbvContext};

/// The one port.
const PORT: usize = 1;

/// Events that programs have got and not acknowledged, by the object's cookie.
pub(crate) struct Unacked {
    counts: Mutex<BTreeMap<u64, u32>>,
    fewer: Condvar,
}

impl Unacked {
    pub const fn new() -> Unacked {
        Unacked { counts: Mutex::new(BTreeMap::new()), fewer: Condvar::new() }
    }

    /// A program has got an event of an object.
    pub fn add(&self, cookie: u64) {
        *lock(&self.counts).entry(cookie).or_default() += 1;
    }

    /// A program has acknowledged `count` events of an object; more than it got are ignored.
    pub fn ack(&self, cookie: u64, count: u32) {
        let mut counts = lock(&self.counts);
        let Some(left) = counts.get_mut(&cookie) else { return };
        *left = left.saturating_sub(count);
        if *left == 0 {
            counts.remove(&cookie);
        }
        drop(counts);
        self.fewer.notify_all();
    }

    /// Waits until all are acknowledged.
    pub fn wait(&self, cookie: u64) {
        let counts = lock(&self.counts);
        let outcome = self.fewer.wait_while(counts, |counts| counts.contains_key(&cookie));
        drop(outcome.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Asynchronous events got and not acknowledged.
static ASYNC: Unacked = Unacked::new();

fn cookie(event: &AsyncEvent) -> Option<u64> {
    match event.subject {
        Subject::Cq(cookie) | Subject::Qp(cookie) | Subject::Srq(cookie) => Some(cookie),
        Subject::Port => None,
    }
}

/// Makes the events of an object that goes away vanish: those not got are taken back, those got
/// are waited for. The object must make no more.
pub(crate) fn settle(events: &AsyncQueue, object: u64) {
    events.remove(|event| cookie(event) == Some(object));
    ASYNC.wait(object);
}

/// The next event; waits unless the program has made `async_fd` non-blocking.
///
/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut IbvContext,
    event: *mut IbvAsyncEvent,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(place)) = (unsafe { (Context::of(context), event.as_mut()) }) else {
        return errno::minus_one(Err(EINVAL));
    };
    // A forked child shares the descriptor, and would take the parent's events away.
    if !context.is_here() {
        return errno::minus_one(Err(EINVAL));
    }
    // The context may be closed while this waits.
    let events = context.events.clone();
    let popped = events.pop_then(|event| {
        if let Some(object) = cookie(event) {
            ASYNC.add(object);
        }
    });
    errno::minus_one(popped.map_err(Errno::from).map(|event| {
        place.element = cookie(&event).map_or(PORT, |object| object as usize);
        place.event_type = event.kind as c_int;
        0
    }))
}

/// # Safety
/// `event` must be null or one that [`ibv_get_async_event`] has filled in.
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut IbvAsyncEvent) {
    // SAFETY: the caller gives a valid pointer or null.
    if let Some(event) = unsafe { event.as_ref() } {
        ASYNC.ack(event.element as u64, 1);
    }
}

#[cfg(test)]
mod tests {
    use ferroce_stack::verbs::EventKind;

    use super::*;

    #[test]
    fn an_object_waits_for_its_events() {
        let unacked = Unacked::new();
        unacked.add(7);
        unacked.add(7);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| unacked.wait(7));
            unacked.ack(7, 1);
            assert!(!waiter.is_finished());
            unacked.ack(7, 1);
        });
        unacked.ack(7, 1);
        unacked.wait(7);
    }

    #[test]
    fn events_not_got_are_taken_back() {
        let events = AsyncQueue::new().unwrap();
        let kind = EventKind::CqErr;
        events.push(AsyncEvent { kind, subject: Subject::Cq(1) });
        events.push(AsyncEvent { kind, subject: Subject::Cq(2) });
        settle(&events, 1);
        assert_eq!(events.try_pop(), Some(AsyncEvent { kind, subject: Subject::Cq(2) }));
        assert_eq!(events.try_pop(), None);
    }
}
