//! The thread that listens to connection management, and to the UDP sockets of datagram sockets,
//! while programs do other things. One for the process, begun with the first socket that needs it.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::fd::{Flag, check};
use crate::device::lock;
use crate::errno::Errno;

/// Descriptors that are looked at in one round.
const ROUND: usize = 64;

/// What the thread does for a socket.
pub trait Served: Send + Sync {
    /// Its descriptor is readable.
    fn serve(self: Arc<Self>);
    /// The peer is to be shown that this end is there.
    fn keep_alive(&self);
}

/// One socket.
struct Entry {
    socket: Weak<dyn Served>,
    /// Held while the thread does something for it.
    turn: Arc<Mutex<()>>,
    keep_alive: Option<KeepAlive>,
}

struct KeepAlive {
    every: Duration,
    next: Instant,
}

/// The thread as others see it.
struct Service {
    epoll: OwnedFd,
    /// Raised when there is a new time to wake up at.
    changed: Flag,
    entries: Mutex<BTreeMap<RawFd, Entry>>,
    /// Itself, once it runs.
    thread: OnceLock<ThreadId>,
}

/// The service of this process, and the process it is of: a forked child has no thread.
static SERVICE: Mutex<Option<(u32, Arc<Service>)>> = Mutex::new(None);

/// Has the thread listen to a socket, whose descriptor this is, until it is forgotten.
///
/// # Errors
/// If there is no thread or descriptor left.
pub fn watch<T: Served + 'static>(fd: RawFd, socket: &Arc<T>) -> Result<(), Errno> {
    let service = running()?;
    let socket: Weak<dyn Served> = Arc::downgrade(&(socket.clone() as Arc<dyn Served>));
    lock(&service.entries).insert(fd, Entry { socket, turn: Arc::default(), keep_alive: None });
    service.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN).inspect_err(|_| {
        lock(&service.entries).remove(&fd);
    })
}

/// No longer: when this returns, the thread has nothing of the socket in its hands.
pub fn forget(fd: RawFd) {
    let Some(service) = present() else { return };
    let Some(entry) = lock(&service.entries).remove(&fd) else { return };
    // It is in the set, as it was in the table.
    let _ = service.control(libc::EPOLL_CTL_DEL, fd, 0);
    if service.thread.get() != Some(&thread::current().id()) {
        drop(lock(&entry.turn));
    }
}

/// Not for the moment.
pub fn pause(fd: RawFd) {
    modify(fd, 0);
}

/// Again.
pub fn resume(fd: RawFd) {
    modify(fd, libc::EPOLLIN);
}

/// Has signs of life sent every so often, or no more.
pub fn set_keep_alive(fd: RawFd, every: Option<Duration>) {
    let Some(service) = present() else { return };
    if let Some(entry) = lock(&service.entries).get_mut(&fd) {
        entry.keep_alive = every.map(|every| KeepAlive { every, next: Instant::now() + every });
    }
    service.changed.raise();
}

fn modify(fd: RawFd, events: libc::c_int) {
    if let Some(service) = present()
        && lock(&service.entries).contains_key(&fd)
    {
        // Who is not in the set any more needs no events.
        let _ = service.control(libc::EPOLL_CTL_MOD, fd, events);
    }
}

/// The service, if it runs in this process.
fn present() -> Option<Arc<Service>> {
    let process = std::process::id();
    let service = lock(&SERVICE);
    service.as_ref().filter(|(of, _)| *of == process).map(|(_, service)| service.clone())
}

/// The service, begun if need be.
fn running() -> Result<Arc<Service>, Errno> {
    if let Some(service) = present() {
        return Ok(service);
    }
    let mut place = lock(&SERVICE);
    let process = std::process::id();
    if let Some((of, service)) = &*place
        && *of == process
    {
        return Ok(service.clone());
    }
    // SAFETY: it takes no pointers, and what it returns is ours.
    let epoll = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
    let service = Arc::new(Service {
        epoll,
        changed: Flag::new()?,
        entries: Mutex::default(),
        thread: OnceLock::new(),
    });
    service.control(libc::EPOLL_CTL_ADD, service.changed.fd(), libc::EPOLLIN)?;
    let own = service.clone();
    let blocked = BlockedSignals::block();
    let started = thread::Builder::new().name("rsocket".into()).spawn(move || own.run());
    drop(blocked);
    started?;
    *place = Some((process, service.clone()));
    Ok(service)
}

impl Service {
    fn control(&self, op: libc::c_int, fd: RawFd, events: libc::c_int) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        // SAFETY: the event is only read.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) }).map(drop)
    }

    fn run(&self) -> ! {
        self.thread.get_or_init(|| thread::current().id());
        loop {
            let timeout_ms = self.keep_alives();
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; ROUND];
            // SAFETY: there is room for so many.
            let count = unsafe {
                let epoll = self.epoll.as_raw_fd();
                libc::epoll_wait(epoll, events.as_mut_ptr(), ROUND as libc::c_int, timeout_ms)
            };
            for event in &events[..usize::try_from(count).unwrap_or(0)] {
                let fd = event.u64 as RawFd;
                if fd == self.changed.fd() {
                    self.changed.lower();
                    continue;
                }
                self.with(fd, |socket| socket.serve());
            }
        }
    }

    /// Does something for a socket, if it is not forgotten.
    fn with(&self, fd: RawFd, act: impl FnOnce(Arc<dyn Served>)) {
        let Some(turn) = lock(&self.entries).get(&fd).map(|entry| entry.turn.clone()) else {
            return;
        };
        let _turn = lock(&turn);
        // The number may be another socket's by now.
        let find = |entry: &Entry| match Arc::ptr_eq(&entry.turn, &turn) {
            true => entry.socket.upgrade(),
            false => None,
        };
        let socket = lock(&self.entries).get(&fd).and_then(find);
        if let Some(socket) = socket {
            act(socket);
        }
    }

    /// Sends the signs of life that are due; returns when the next ones are, for epoll_wait(2).
    fn keep_alives(&self) -> libc::c_int {
        let now = Instant::now();
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        for (&fd, entry) in lock(&self.entries).iter_mut() {
            let Some(keep_alive) = &mut entry.keep_alive else { continue };
            if keep_alive.next <= now {
                keep_alive.next = now + keep_alive.every;
                due.push(fd);
            }
            next = Some(next.map_or(keep_alive.next, |next| next.min(keep_alive.next)));
        }
        for fd in due {
            self.with(fd, |socket| socket.keep_alive());
        }
        let Some(next) = next else { return -1 };
        let left = next.saturating_duration_since(now).as_nanos().div_ceil(1_000_000);
        libc::c_int::try_from(left).unwrap_or(libc::c_int::MAX)
    }
}

/// All signals blocked in this thread, for one that it starts to inherit: handlers are the
/// program's threads' to run. Memory faults are not blocked, as the copies of the engine need.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block() -> BlockedSignals {
        // SAFETY: the sets are ours, and all these can be given.
        unsafe {
            let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::sigdelset(&mut all, libc::SIGSEGV);
            libc::sigdelset(&mut all, libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: as it was before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}
