//! Sets of descriptors to wait for, like those of epoll(7) (`repoll_create`, `repoll_ctl`,
//! `repoll_wait`), some of which are rsockets.
//!
//! A wait is a poll of all members. Members are reported while they are ready, or once with
//! `EPOLLONESHOT`. An rsocket with `EPOLLET` is reported again when anything about it has changed,
//! which may be something else than what is reported.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::fd::Flag;
use super::poll::{Polled, poll_with};
use super::wait::Patience;
use crate::device::lock;
use crate::errno::{EINVAL, Errno};

/// Bits of events that poll(2) has as well.
const SHARED: u32 =
    (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// A set.
#[derive(Debug)]
pub struct Set {
    /// Raised when the members change. Its descriptor is the set's number.
    changed: Flag,
    members: Mutex<BTreeMap<RawFd, Member>>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    events: u32,
    /// What the program wants to be told.
    data: u64,
    /// Reported once, as it was asked for.
    is_muted: bool,
    /// With `EPOLLET`: how often it had changed when it was reported.
    reported: Option<u64>,
}

impl Set {
    /// A set without members.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new() -> Result<Arc<Set>, Errno> {
        Ok(Arc::new(Set { changed: Flag::new()?, members: Mutex::default() }))
    }

    /// The number programs know it by.
    pub fn fd(&self) -> RawFd {
        self.changed.fd()
    }

    /// Adds, changes or removes a member.
    ///
    /// # Errors
    /// EEXIST, ENOENT, EINVAL, EFAULT if there is no event.
    pub fn control(
        &self,
        op: libc::c_int,
        fd: RawFd,
        event: Option<&libc::epoll_event>,
    ) -> Result<(), Errno> {
        if fd == self.fd() {
            return Err(EINVAL);
        }
        let member = |event: &libc::epoll_event| {
            let (events, data) = (event.events, event.u64);
            Member { events, data, is_muted: false, reported: None }
        };
        let member = event.map(member).ok_or(Errno(libc::EFAULT));
        let mut members = lock(&self.members);
        match (op, members.contains_key(&fd)) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => {
                return Err(Errno(libc::ENOENT));
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                members.insert(fd, member?);
            }
            (libc::EPOLL_CTL_DEL, true) => {
                members.remove(&fd);
            }
            _ => return Err(EINVAL),
        }
        drop(members);
        self.changed.raise();
        Ok(())
    }

    /// Waits until members have something to say, and fills `events` with as many as fit. Returns
    /// how many.
    ///
    /// # Errors
    /// EINTR, and the others of poll(2).
    pub fn wait(
        &self,
        events: &mut [libc::epoll_event],
        timeout_ms: libc::c_int,
    ) -> Result<usize, Errno> {
        let patience = Patience::of_ms(timeout_ms);
        loop {
            self.changed.lower();
            let mut fds = self.polled();
            if poll_with(&mut fds, patience, Some(&self.changed))? > 0 {
                let count = self.report(&fds, events);
                if count > 0 {
                    return Ok(count);
                }
            }
            let is_over = match patience {
                Patience::None => true,
                Patience::Endless => false,
                Patience::Until(end) => Instant::now() >= end,
            };
            if is_over {
                return Ok(0);
            }
        }
    }

    /// All members that are to be reported.
    fn polled(&self) -> Vec<Polled> {
        let members = lock(&self.members);
        let heard = members.iter().filter(|(_, member)| !member.is_muted);
        let polled = heard.map(|(&fd, member)| {
            let events = (member.events & SHARED) as i16;
            let mut polled = Polled::new(libc::pollfd { fd, events, revents: 0 });
            polled.since = member.reported;
            polled
        });
        polled.collect()
    }

    /// Reports members that are still members.
    fn report(&self, fds: &[Polled], events: &mut [libc::epoll_event]) -> usize {
        let mut members = lock(&self.members);
        let mut count = 0;
        for polled in fds.iter().filter(|polled| polled.fd.revents != 0) {
            let Some(member) = members.get_mut(&polled.fd.fd) else { continue };
            let found = polled.fd.revents as u32 & SHARED;
            if found == 0 {
                // Closed: who has a set of the system's is not told either.
                members.remove(&polled.fd.fd);
                continue;
            }
            let Some(place) = events.get_mut(count) else { break };
            *place = libc::epoll_event { events: found, u64: member.data };
            member.is_muted = member.events & ONCE != 0;
            if member.events & EDGE != 0 {
                member.reported = Some(polled.changes);
            }
            count += 1;
        }
        count
    }
}
