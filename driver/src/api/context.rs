//! An open device, and what happens to it and its objects without a completion.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::VerbsError;
use ferroce_stack::{Config, Counters, PortAttr};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::{Cq, Error, Pd, Xrcd};
use crate::config::Settings;
use crate::engine::{AsyncEvent, AsyncQueue, Engine, Guard, Options, Subject};
use crate::identity::{self, DeviceInfo};

/// An open device. Clones are the same; it is closed when the last object made from it is gone.
///
/// Each call of [`Context::open`] makes a member of the fabric, with a background thread: a program
/// opens a device once and hands out clones.
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub engine: Engine,
    pub events: Arc<AsyncQueue>,
    /// Sizes and bounds of the device, for messages.
    pub limits: Config,
    pub gid_index: u8,
    /// The address it was opened with.
    gid: Gid,
    name: String,
    next_id: AtomicU64,
}

impl Context {
    /// Opens the first device that `settings` make.
    ///
    /// # Errors
    /// If the machine does not list its interfaces, or the fabric cannot be joined.
    pub fn open(settings: &Settings) -> Result<Context, Error> {
        let devices = identity::devices(settings)?;
        Context::open_device(settings, devices.first().ok_or(Error::NoDevice)?)
    }

    /// Opens one of the devices that [`identity::devices`] lists.
    ///
    /// # Errors
    /// If the fabric cannot be joined.
    pub fn open_device(settings: &Settings, device: &DeviceInfo) -> Result<Context, Error> {
        let engine = Engine::open(&Options::new(settings, device))?;
        let events = AsyncQueue::new()
            .map_err(|source| Error::Io { action: "make an eventfd for events", source })?;
        let events = Arc::new(events);
        let is_global = |gid: Gid| gid.0[..2] != [0xfe, 0x80];
        let gids = || device.gids.iter().map(|entry| entry.gid);
        let at = gids().position(is_global).unwrap_or(0);
        let limits = engine.lock().map(|guard| guard.config().clone());
        let inner = Inner {
            limits: limits.unwrap_or_default(),
            events: events.clone(),
            gid_index: at as u8,
            gid: gids().nth(at).unwrap_or_default(),
            name: device.name.clone(),
            next_id: AtomicU64::new(1),
            engine,
        };
        let context = Context { inner: Arc::new(inner) };
        context
            .engine()
            .add_context(events)
            .map_err(|error| context.refused("open", error, String::new))?;
        Ok(context)
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The address that its endpoints name: the first that is not link-local. It changes when the
    /// link of the fabric's gateway gets another one.
    pub fn gid(&self) -> Gid {
        let gids = self.engine().gids().unwrap_or_default();
        gids.get(usize::from(self.inner.gid_index)).map_or(self.inner.gid, |entry| entry.gid)
    }

    /// Attributes of the port.
    ///
    /// # Errors
    /// In a forked child, as every call.
    pub fn query_port(&self) -> Result<PortAttr, Error> {
        Ok(self.lock("query_port")?.query_port())
    }

    /// What the device has counted.
    ///
    /// # Errors
    /// As [`Context::query_port`].
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(self.lock("counters")?.counters().clone())
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// If the device has no room for another.
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        Pd::new(self)
    }

    /// Makes a completion queue for `cqe` completions. One that overruns is broken, with the QPs
    /// that use it: it needs room for all work requests that may be outstanding.
    ///
    /// # Errors
    /// If `cqe` is 0 or more than the device takes, or there is no descriptor left.
    pub fn create_cq(&self, cqe: u32) -> Result<Cq, Error> {
        Cq::new(self, cqe)
    }

    /// Makes an XRC domain.
    ///
    /// # Errors
    /// If the device has no room for another.
    pub fn open_xrcd(&self) -> Result<Xrcd, Error> {
        Xrcd::new(self)
    }

    /// The oldest event, if there is one.
    pub fn try_event(&self) -> Option<AsyncEvent> {
        self.inner.events.try_pop()
    }

    /// Waits for an event. A QP, CQ or SRQ is named by what its `id` method says.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn wait_event(&self, timeout: Duration) -> Result<AsyncEvent, Error> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(event) = self.try_event() {
                return Ok(event);
            }
            deadline.wait_readable(self.as_fd())?;
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// How the next object is named in events.
    pub(super) fn next_id(&self) -> u64 {
        self.inner.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lock(&self, verb: &'static str) -> Result<Guard<'_>, Error> {
        self.engine().lock().map_err(|error| self.refused(verb, error, String::new))
    }

    /// The error that `verb` was refused; `invalid` says what of its arguments may be at fault.
    pub(super) fn refused(
        &self,
        verb: &'static str,
        error: VerbsError,
        invalid: impl FnOnce() -> String,
    ) -> Error {
        let cause = if !self.engine().is_here() {
            "the device was opened before this process was forked".to_owned()
        } else if error == VerbsError::NoMemory {
            "the device has no room for another".to_owned()
        } else {
            invalid()
        };
        Error::Refused { verb, cause, error }
    }

    /// Takes back the events about an object that is gone.
    pub(super) fn forget(&self, subject: Subject) {
        self.inner.events.remove(|event| event.subject == subject);
    }
}

/// Readable while there are events: for poll and epoll. Take them with [`Context::try_event`].
impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.as_fd()
    }
}

/// When a waiting call gives up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    timeout: Duration,
    start: Instant,
}

impl Deadline {
    pub fn after(timeout: Duration) -> Deadline {
        Deadline { timeout, start: Instant::now() }
    }

    /// Waits until `fd` can be read.
    pub fn wait_readable(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        loop {
            let left = self.timeout.saturating_sub(self.start.elapsed());
            // Rounded up: less than a millisecond is not yet the end.
            let left_ms = left.as_nanos().div_ceil(1_000_000).min(u16::MAX.into()) as u16;
            match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], left_ms) {
                Ok(0) if left.is_zero() => return Err(Error::TimedOut(self.timeout)),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(Error::Io { action: "wait", source: errno.into() }),
            }
        }
    }
}
