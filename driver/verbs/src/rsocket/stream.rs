//! Stream sockets: from nothing to a connection, and to its end.
//!
//! What connection management says is heard by the [`service`](super::service) thread, whatever
//! the program does meanwhile. So a connection that was begun is completed, and a listener's
//! queue is filled, without anybody who calls.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::addr::SockAddr;
use super::cm::{CmId, EventChannel};
use super::config::{Sizes, defaults};
use super::link::{End, Flow, Link};
use super::options::Options;
use super::protocol::Message;
use super::service;
use super::wait::{Awaited, Patience, Waiters, wait_for};
use crate::device::lock;
use crate::errno::{EINVAL, Errno};

/// How long each step of resolving an address may take.
pub(super) const RESOLVE_MS: libc::c_int = 10_000;
/// Connections that wait for a listener whose program does not say how many.
const MAX_BACKLOG: usize = 1024;
/// How long the end of a connection waits for the peer to take what was sent. All data has room
/// there, so that only a peer that does not even take the word of the end makes it wait.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// A stream socket.
#[derive(Debug)]
pub struct Stream {
    /// Set when the connection is begun.
    pub(super) link: OnceLock<Link>,
    pub(super) id: CmId,
    pub(super) channel: EventChannel,
    phase: Mutex<Phase>,
    pub(super) waiters: Waiters,
    /// What the program has set.
    pub options: Mutex<Options>,
}

/// Where it is on its way. The end of a connection is told by its [`Flow`].
#[derive(Debug)]
pub(super) enum Phase {
    /// Made, or bound.
    Idle,
    /// Queue of connections.
    Listening(Listener),
    /// The peer's address, route or answer is waited for.
    Connecting,
    /// The peer's last word is waited for, for the sake of a listener.
    Accepting(Weak<Stream>),
    /// There is, or was, a connection.
    Open,
    /// There will be none.
    Failed(Errno),
}

/// Which of the two timeouts a call has.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Of calls that send, or connect.
    Send = 0,
    /// Of calls that receive, or accept.
    Recv = 1,
}

/// The queue of a listener.
#[derive(Debug)]
pub(super) struct Listener {
    /// Connections that are established.
    pub(super) ready: VecDeque<Arc<Stream>>,
    /// And those that are about to be.
    pub(super) pending: Vec<Arc<Stream>>,
    /// Most of both.
    backlog: usize,
}

impl Listener {
    /// Whether it takes no more.
    pub(super) fn is_full(&self) -> bool {
        self.ready.len() + self.pending.len() >= self.backlog
    }
}

impl Stream {
    /// A new socket of an address family.
    ///
    /// # Errors
    /// If there is no device, memory or descriptor.
    pub fn new(family: libc::c_int) -> Result<Arc<Stream>, Errno> {
        let channel = EventChannel::new()?;
        let id = CmId::connected(&channel)?;
        let options = Options::new(family, defaults().sizes);
        Ok(Arc::new(Stream::with(channel, id, Phase::Idle, options)))
    }

    pub(super) fn with(channel: EventChannel, id: CmId, phase: Phase, options: Options) -> Stream {
        Stream {
            link: OnceLock::new(),
            id,
            channel,
            phase: Mutex::new(phase),
            waiters: Waiters::default(),
            options: Mutex::new(options),
        }
    }

    /// The number programs know it by.
    pub fn fd(&self) -> RawFd {
        self.channel.fd()
    }

    /// Its ends, once the connection has been begun.
    pub fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    pub(super) fn phase(&self) -> MutexGuard<'_, Phase> {
        lock(&self.phase)
    }

    pub(super) fn sizes(&self) -> Sizes {
        lock(&self.options).sizes
    }

    /// How long a call waits that sends or receives.
    pub fn patience(&self, way: Way, flags: libc::c_int) -> Patience {
        let options = lock(&self.options);
        let timeout = options.timeouts[way as usize];
        match options.is_nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            true => Patience::None,
            false => timeout.map_or(Patience::Endless, |timeout| {
                // One that the clock cannot tell will not come.
                Instant::now().checked_add(timeout).map_or(Patience::Endless, Patience::Until)
            }),
        }
    }

    /// Whether it is a listener.
    pub fn is_listening(&self) -> bool {
        matches!(&*self.phase(), Phase::Listening(_))
    }

    /// # Errors
    /// Those of `rdma_bind_addr`.
    pub fn bind(&self, addr: &SockAddr) -> Result<(), Errno> {
        self.id.bind(addr)
    }

    /// Its own address, of its family even if it has none.
    pub fn local_addr(&self) -> SockAddr {
        let addr = self.id.local_addr();
        if addr.family() == 0 { SockAddr::any(lock(&self.options).family) } else { addr }
    }

    /// # Errors
    /// Those of `rdma_listen`; EINVAL if it connects.
    pub fn listen(self: &Arc<Stream>, backlog: libc::c_int) -> Result<(), Errno> {
        let wanted = usize::try_from(backlog).unwrap_or(0);
        let backlog_len = if (1..=MAX_BACKLOG).contains(&wanted) { wanted } else { MAX_BACKLOG };
        let mut phase = self.phase();
        match &mut *phase {
            Phase::Listening(listener) => listener.backlog = backlog_len,
            Phase::Idle => {
                let family = lock(&self.options).family;
                if self.id.local_addr().family() == 0 {
                    self.id.bind(&SockAddr::any(family))?;
                }
                self.id.listen(backlog)?;
                let (ready, pending) = (VecDeque::new(), Vec::new());
                *phase = Phase::Listening(Listener { ready, pending, backlog: backlog_len });
                drop(phase);
                return service::watch(self.fd(), self);
            }
            _ => return Err(EINVAL),
        }
        drop(phase);
        service::resume(self.fd());
        Ok(())
    }

    /// # Errors
    /// EAGAIN, EINTR; EINVAL if it does not listen.
    pub fn accept(&self) -> Result<Arc<Stream>, Errno> {
        let accepted = wait_for(self, self.patience(Way::Recv, 0), || match &mut *self.phase() {
            Phase::Listening(listener) => listener.ready.pop_front().map(Ok),
            _ => Some(Err(EINVAL)),
        })??;
        service::resume(self.fd());
        Ok(accepted)
    }

    /// # Errors
    /// EINPROGRESS, EALREADY, EISCONN; why there is no connection.
    pub fn connect(self: &Arc<Stream>, peer: &SockAddr) -> Result<(), Errno> {
        let mut phase = self.phase();
        match &*phase {
            Phase::Idle => {
                self.id.resolve_addr(None, peer, RESOLVE_MS)?;
                *phase = Phase::Connecting;
                drop(phase);
                service::watch(self.fd(), self)?;
                self.start_keep_alive();
                let in_progress = Errno(libc::EINPROGRESS);
                match self.patience(Way::Send, 0) {
                    // Even if it is established already: programs count on it.
                    Patience::None => Err(in_progress),
                    patience => self.wait_open(patience).map_err(|error| match error {
                        Errno(libc::EAGAIN) => in_progress,
                        error => error,
                    }),
                }
            }
            Phase::Connecting | Phase::Accepting(_) => Err(Errno(libc::EALREADY)),
            Phase::Open => Err(Errno(libc::EISCONN)),
            Phase::Listening(_) => Err(EINVAL),
            Phase::Failed(error) => Err(*error),
        }
    }

    /// Waits for the outcome of a connection that was begun.
    fn wait_open(&self, patience: Patience) -> Result<(), Errno> {
        let outcome = wait_for(self, patience, || match &*self.phase() {
            Phase::Idle | Phase::Listening(_) => Some(Err(Errno(libc::ENOTCONN))),
            Phase::Connecting | Phase::Accepting(_) => None,
            Phase::Open => Some(Ok(())),
            Phase::Failed(error) => Some(Err(*error)),
        })?;
        if outcome.is_err() {
            // Told now, so not again by SO_ERROR.
            lock(&self.options).error = None;
        }
        outcome
    }

    /// Its ends, when the connection is established.
    ///
    /// # Errors
    /// EAGAIN, EINTR, ENOTCONN, or why there is no connection.
    pub fn open_link(&self, patience: Patience) -> Result<&Link, Errno> {
        if let Some(link) = self.link()
            && (link.flow().is_live() || self.is_open())
        {
            return Ok(link);
        }
        self.wait_open(patience)?;
        self.link().ok_or(Errno(libc::ENOTCONN))
    }

    /// Whether it is, or was, connected.
    pub fn has_peer(&self) -> bool {
        matches!(&*self.phase(), Phase::Accepting(_) | Phase::Open)
    }

    fn is_open(&self) -> bool {
        matches!(&*self.phase(), Phase::Open)
    }

    /// Takes what has completed, and wakes who may wait for it.
    pub fn process(&self, link: &Link, flow: &mut Flow) {
        if link.process(flow) {
            self.waiters.wake();
        }
    }

    /// # Errors
    /// ENOTCONN; EINTR.
    pub fn shutdown(&self, how: libc::c_int) -> Result<(), Errno> {
        let (reads, writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(EINVAL),
        };
        let Some(link) = self.link().filter(|_| self.is_open()) else {
            return Err(Errno(libc::ENOTCONN));
        };
        let patience = Patience::Until(Instant::now() + CLOSE_PATIENCE);
        let has_said = {
            let mut flow = link.flow();
            flow.is_readable &= !reads;
            flow.is_writable &= !writes;
            match (flow.is_readable, flow.is_writable) {
                (false, false) => Some(Message::Disconnect),
                (_, false) if writes => Some(Message::Shutdown),
                _ => None,
            }
        };
        self.waiters.wake();
        let Some(message) = has_said else { return Ok(()) };
        let said = wait_for(self, patience, || {
            let mut flow = link.flow();
            self.process(link, &mut flow);
            let can = flow.can_control();
            if can {
                link.control(&mut flow, message);
            }
            (can || !flow.is_live()).then_some(())
        });
        let settled = said.and_then(|()| {
            wait_for(self, patience, || {
                let mut flow = link.flow();
                self.process(link, &mut flow);
                flow.is_settled().then_some(())
            })
        });
        // Whoever does not take the word of the end within that time is told by other means.
        if settled == Err(Errno(libc::EAGAIN)) {
            link.flow().end(End::Orderly);
        }
        if !link.flow().is_live() {
            self.id.disconnect();
            self.waiters.wake();
        }
        Ok(())
    }

    /// Ends what there is. Other threads' calls return.
    pub fn close(&self) {
        // Not connected, or over already: nothing is lost.
        let _ = self.shutdown(libc::SHUT_RDWR);
        service::forget(self.fd());
        let before = std::mem::replace(&mut *self.phase(), Phase::Failed(Errno(libc::EBADF)));
        self.waiters.wake();
        // With a listener's queue go the connections in it.
        drop(before);
    }

    /// What poll(2) would say of it.
    pub fn revents(&self, events: i16) -> i16 {
        use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT};
        match &*self.phase() {
            Phase::Idle | Phase::Connecting | Phase::Accepting(_) => return 0,
            Phase::Failed(_) => return (events & (POLLIN | POLLOUT)) | POLLERR,
            Phase::Listening(listener) => {
                return if listener.ready.is_empty() { 0 } else { events & POLLIN };
            }
            Phase::Open => {}
        }
        let Some(link) = self.link() else { return 0 };
        let mut flow = link.flow();
        self.process(link, &mut flow);
        let mut revents = match flow.end {
            // Programs that hear of the end do not always read what came before it.
            _ if flow.recv.has_data() => 0,
            None => 0,
            Some(End::Orderly | End::Told) => POLLHUP,
            Some(End::Broken(_)) => POLLERR,
        };
        if flow.recv.has_data() || !flow.is_readable || flow.end.is_some() {
            revents |= events & POLLIN;
        }
        if flow.room().is_none_or(|room| room > 0) {
            revents |= events & POLLOUT;
        }
        revents
    }

    /// Sends a sign of life, if there is room for one.
    pub fn keep_alive(&self) {
        if let Some(link) = self.link() {
            let mut flow = link.flow();
            self.process(link, &mut flow);
            link.keep_alive(&mut flow);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        service::forget(self.fd());
        if self.link.get().is_some() {
            self.id.destroy_qp();
        }
    }
}

impl Awaited for Stream {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn arm(&self, fds: &mut Vec<RawFd>) {
        if let Some(link) = self.link() {
            link.arm(&mut link.flow());
            fds.push(link.event_fd());
        }
    }

    fn take_events(&self) {
        if let Some(link) = self.link()
            && link.take_event(&mut link.flow())
        {
            self.waiters.wake();
        }
    }
}
