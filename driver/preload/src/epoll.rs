//! Sets of epoll(7) with rsockets.
//!
//! A set of the system cannot have them. So a set that is to have one gets a set of the rsocket
//! library beside it, which has the rsockets and the set of the system as its members.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{epoll_event, sigset_t};

use crate::call::{fail, target};
use crate::library::{Inside, R, c, r};
use crate::wait::Mask;

/// What the member that is the set of the system has as its data.
static SYSTEM: u8 = 0;

/// Sets of the rsocket library, by the system's sets they stand beside.
static BESIDE: Mutex<BTreeMap<c_int, c_int>> = Mutex::new(BTreeMap::new());

fn beside() -> MutexGuard<'static, BTreeMap<c_int, c_int>> {
    BESIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn system_data() -> u64 {
    (&raw const SYSTEM).addr() as u64
}

/// An rsocket is closed: no set has it any more.
pub fn forget(rsocket: c_int) {
    let Some(r) = r() else { return };
    let sets: Vec<c_int> = beside().values().copied().collect();
    let _inside = Inside::enter();
    for set in sets {
        // SAFETY: there is no event. Sets that do not have it say so.
        unsafe { (r.repoll_ctl)(set, libc::EPOLL_CTL_DEL, rsocket, core::ptr::null_mut()) };
    }
}

/// A number is closed, and if it is a set's, so is the one beside it.
pub fn close(fd: c_int) {
    let removed = beside().remove(&fd);
    if let (Some(set), Some(r)) = (removed, r()) {
        let _inside = Inside::enter();
        // SAFETY: it takes no pointers.
        unsafe { (r.rclose)(set) };
    }
}

/// The set beside one of the system's, made if there is none; -1 and errno if that fails.
fn set_beside(r: &R, epoll: c_int) -> c_int {
    let mut beside = beside();
    if let Some(&set) = beside.get(&epoll) {
        return set;
    }
    let _inside = Inside::enter();
    // SAFETY: the event is there.
    unsafe {
        let set = (r.repoll_create)(0);
        if set < 0 {
            return -1;
        }
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: system_data() };
        if (r.repoll_ctl)(set, libc::EPOLL_CTL_ADD, epoll, &mut event) != 0 {
            (r.rclose)(set);
            return -1;
        }
        beside.insert(epoll, set);
        set
    }
}

/// # Safety
/// As epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_epoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        let Some((r, rsocket)) = target(fd) else { return (c().epoll_ctl)(epoll, op, fd, event) };
        let set = set_beside(r, epoll);
        if set < 0 {
            return -1;
        }
        let _inside = Inside::enter();
        (r.repoll_ctl)(set, op, rsocket, event)
    }
}

/// # Safety
/// As epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe { rspreload_epoll_pwait(epoll, events, room, timeout_ms, core::ptr::null()) }
}

/// # Safety
/// As epoll_pwait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rspreload_epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    let set = if Inside::is_inside() { None } else { beside().get(&epoll).copied() };
    let (Some(set), Some(r)) = (set, r()) else {
        // SAFETY: as the program promises.
        return unsafe { (c().epoll_pwait)(epoll, events, room, timeout_ms, mask) };
    };
    let Ok(size @ 1..) = usize::try_from(room) else { return fail(libc::EINVAL) };
    // SAFETY: as the program promises.
    let out = unsafe { core::slice::from_raw_parts_mut(events, size) };
    // SAFETY: as above.
    let _mask = unsafe { Mask::set(mask) };
    let end = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    loop {
        let left_ms = end.map_or(-1, |end| {
            let left = end.saturating_duration_since(Instant::now());
            c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
        });
        let inside = Inside::enter();
        // SAFETY: there is room for so many.
        let found = unsafe { (r.repoll_wait)(set, out.as_mut_ptr(), room, left_ms) };
        drop(inside);
        let Ok(found) = usize::try_from(found) else { return -1 };
        let count = with_systems(epoll, out, found);
        if count > 0 || left_ms == 0 {
            return count as c_int;
        }
    }
}

/// Puts the events of the system's set in the place of its own, if it is among them; returns how
/// many events there are then.
fn with_systems(epoll: c_int, out: &mut [epoll_event], found: usize) -> usize {
    let is_system = |event: &epoll_event| event.u64 == system_data();
    let Some(place) = out[..found].iter().position(is_system) else { return found };
    let last = found - 1;
    out.swap(place, last);
    let rest = &mut out[last..];
    let room = c_int::try_from(rest.len()).unwrap_or(c_int::MAX);
    // SAFETY: there is room for so many.
    let more = unsafe { (c().epoll_pwait)(epoll, rest.as_mut_ptr(), room, 0, core::ptr::null()) };
    last + usize::try_from(more).unwrap_or(0)
}
