//! Connections of a scenario, by the machine's librdmacm: as a program without QPs of its own in
//! them uses it, one event channel for all.
//!
//! Programs answer the end of a connection by `rdma_disconnect`, and so does the agent: without it
//! no DREP leaves a kernel.

mod call;
mod tell;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ferroce_conform::cm::{CmCall, Report};
use ferroce_conform::target::{Object, Reply};
use ferroce_stack::gid::Gid;
use ferroce_verbs_layout::{RDMA_CM_EVENT_DISCONNECTED, RdmaCmEvent, RdmaCmId, RdmaEventChannel};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{CallError, check, made};
use crate::library::RdmaLibrary;

/// An address or a route is resolved within this time, or not at all.
const RESOLUTION: Duration = Duration::from_secs(5);

/// A connection, or a request for one.
#[derive(Debug)]
struct Connection {
    name: Object,
    id: *mut RdmaCmId,
    /// It is about the UD QP of a service.
    is_exchange: bool,
    /// It is destroyed, and its id with it.
    is_gone: bool,
}

/// Connections and listeners; destroyed with it.
#[derive(Debug)]
pub struct Cm<'a> {
    library: &'a RdmaLibrary,
    channel: *mut RdmaEventChannel,
    /// The address of the device.
    own: IpAddr,
    /// The one that is connected to.
    peer: IpAddr,
    connections: Vec<Connection>,
    listeners: Vec<*mut RdmaCmId>,
    /// What is to be told.
    reports: VecDeque<Report>,
}

/// Something that has happened to an id.
struct Happened {
    id: *mut RdmaCmId,
    event: i32,
    status: i32,
}

impl<'a> Cm<'a> {
    /// One without connections, between these addresses.
    ///
    /// # Errors
    /// If there is no event channel to be had.
    pub fn new(library: &'a RdmaLibrary, own: IpAddr, peer: [u8; 16]) -> Result<Cm<'a>, CallError> {
        // SAFETY: it needs nothing.
        let channel = made(unsafe { (library.rdma_create_event_channel)() })?;
        let cm = Cm {
            library,
            channel,
            own,
            peer: Gid(peer).to_ip(),
            connections: Vec::new(),
            listeners: Vec::new(),
            reports: VecDeque::new(),
        };
        fcntl(cm.descriptor(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(|errno| CallError::Refused(errno as i32))?;
        Ok(cm)
    }

    /// Readable when something has happened to a connection.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel).fd) }
    }

    /// Carries a call out.
    ///
    /// # Errors
    /// What the verb says, or why there is none for that.
    pub fn call(&mut self, call: &CmCall) -> Result<Reply, CallError> {
        call::carry_out(self, call).map(|()| Reply::Done)
    }

    /// What has happened and was not told.
    pub fn reports(&mut self) -> impl Iterator<Item = Report> {
        while self.take().is_some() {}
        std::mem::take(&mut self.reports).into_iter()
    }

    /// Takes the next event, and notes what is to be told of it.
    fn take(&mut self) -> Option<Happened> {
        let mut event: *mut RdmaCmEvent = std::ptr::null_mut();
        // SAFETY: the channel is open, the event is the verb's to write; it does not block.
        check(unsafe { (self.library.rdma_get_cm_event)(self.channel, &raw mut event) }).ok()?;
        // SAFETY: the event is there until it is acknowledged.
        let what = unsafe { &*event };
        let happened = Happened { id: what.id, event: what.event, status: what.status };
        if let Some(report) = tell::report(self, what) {
            self.reports.push_back(report);
        }
        // SAFETY: it has just been taken, and nothing of it is kept.
        unsafe { (self.library.rdma_ack_cm_event)(event) };
        if happened.event == RDMA_CM_EVENT_DISCONNECTED {
            // Where it was this side that ended the connection there is nothing left to answer.
            // SAFETY: the id is there: it is destroyed by calls only.
            let _ = unsafe { (self.library.rdma_disconnect)(happened.id) };
        }
        Some(happened)
    }

    /// Waits until this has happened to an id.
    fn wait_for(&mut self, id: *mut RdmaCmId, event: i32) -> Result<(), CallError> {
        let deadline = Instant::now() + RESOLUTION;
        loop {
            while let Some(happened) = self.take() {
                if happened.id == id && happened.event == event {
                    return Ok(());
                }
                if happened.id == id {
                    return Err(CallError::Refused(happened.status.unsigned_abs() as i32));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CallError::Refused(libc::ETIMEDOUT));
            }
            let mut waits = [PollFd::new(self.descriptor(), PollFlags::POLLIN)];
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut waits, left) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(CallError::Refused(errno as i32)),
            }
        }
    }

    /// The connection of this name that was made last.
    fn connection(&mut self, name: &str) -> Result<&mut Connection, CallError> {
        let found = self.connections.iter_mut().rfind(|own| own.name == name && !own.is_gone);
        found.ok_or(crate::error::STALE)
    }
}

impl Drop for Cm<'_> {
    fn drop(&mut self) {
        let connections = self.connections.iter().filter(|connection| !connection.is_gone);
        for id in connections.map(|connection| connection.id).chain(self.listeners.iter().copied())
        {
            // SAFETY: each is destroyed once; all its events are acknowledged.
            unsafe { (self.library.rdma_destroy_id)(id) };
        }
        // SAFETY: its ids are gone.
        unsafe { (self.library.rdma_destroy_event_channel)(self.channel) };
    }
}
