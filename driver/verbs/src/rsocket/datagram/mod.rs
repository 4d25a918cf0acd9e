//! Datagram sockets.
//!
//! A datagram socket is a UDP socket, whose number and port it has, and a UD queue pair on each
//! local address it has sent from. The first datagram to a peer goes through UDP with the number
//! of our queue pair in front; the peer's answer says its own, and later ones go from one queue
//! pair to the other. Who receives such a datagram learns of our queue pair at once. What comes
//! through UDP is read by the [`service`](super::service) thread.
//!
//! Anybody can send UDP datagrams: peers that are remembered, queue pairs and datagrams that wait
//! to be read are bounded, and what finds no room is dropped.

mod header;
mod pair;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use self::header::{Op, UdHeader, UdpHeader};
use self::pair::{Handle, Pair, Received, SLOT};
use super::addr::SockAddr;
use super::config::defaults;
use super::fd::check;
use super::iov::Cursor;
use super::options::{Options, Place, SOL_RDMA, Value};
use super::service::{self, Served};
use super::wait::{Awaited, Patience, Waiters, wait_for};
use crate::device::lock;
use crate::errno::{EINVAL, Errno};

/// Peers that are remembered. The one that was added first is forgotten for another.
const MAX_PEERS: usize = 1024;
/// Local addresses.
const MAX_PAIRS: usize = 16;
/// Datagrams the service thread reads at a time.
const BATCH: usize = 64;

/// A datagram socket.
#[derive(Debug)]
pub struct Datagram {
    udp: OwnedFd,
    state: Mutex<State>,
    waiters: Waiters,
    /// What the program has set.
    pub options: Mutex<Options>,
}

#[derive(Debug, Default)]
struct State {
    pairs: Vec<Arc<Pair>>,
    peers: VecDeque<Known>,
    /// Where datagrams without an address go.
    connected: Option<SockAddr>,
    /// Datagrams that are not read, and their senders.
    inbox: VecDeque<(SockAddr, Body)>,
    is_watched: bool,
    is_closed: bool,
}

/// A peer.
#[derive(Clone, Debug)]
struct Known {
    addr: SockAddr,
    /// From where datagrams go to it.
    pair: Arc<Pair>,
    /// Its queue pair, once it has told.
    target: Option<(Arc<Handle>, u32)>,
}

/// What has been received.
#[derive(Debug)]
enum Body {
    /// By a queue pair.
    Direct(Received),
    /// Through UDP.
    Udp(Vec<u8>),
}

impl Datagram {
    /// A new socket of an address family.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new(family: libc::c_int) -> Result<Arc<Datagram>, Errno> {
        // SAFETY: it takes no pointers, and what it returns is ours.
        let udp = unsafe {
            let fd = check(libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Arc::new(Datagram {
            udp,
            state: Mutex::default(),
            waiters: Waiters::default(),
            options: Mutex::new(Options::new(family, defaults().sizes)),
        }))
    }

    /// The number programs know it by.
    pub fn fd(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn patience(&self, way: usize, flags: libc::c_int) -> Patience {
        let options = lock(&self.options);
        if options.is_nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            return Patience::None;
        }
        let end = options.timeouts[way].and_then(|timeout| Instant::now().checked_add(timeout));
        end.map_or(Patience::Endless, Patience::Until)
    }

    /// Has the service thread read what comes through UDP.
    fn watch(self: &Arc<Datagram>) -> Result<(), Errno> {
        if !std::mem::replace(&mut self.state().is_watched, true) {
            service::watch(self.fd(), self)?;
        }
        Ok(())
    }

    /// # Errors
    /// Those of bind(2).
    pub fn bind(self: &Arc<Datagram>, addr: &SockAddr) -> Result<(), Errno> {
        // SAFETY: the address has that length.
        check(unsafe { libc::bind(self.fd(), addr.as_ptr(), addr.len()) })?;
        self.watch()
    }

    /// # Errors
    /// Those of connect(2), and of a queue pair.
    pub fn connect(self: &Arc<Datagram>, peer: &SockAddr) -> Result<(), Errno> {
        // SAFETY: the address has that length.
        check(unsafe { libc::connect(self.fd(), peer.as_ptr(), peer.len()) })?;
        self.watch()?;
        self.know(peer)?;
        self.state().connected = Some(*peer);
        Ok(())
    }

    /// Its own address.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> Result<SockAddr, Errno> {
        local_addr(self.fd())
    }

    /// The one that datagrams without an address go to.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_addr(&self) -> Result<SockAddr, Errno> {
        self.state().connected.ok_or(Errno(libc::ENOTCONN))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// EDESTADDRREQ, EMSGSIZE, EAGAIN, EINTR, EFAULT; those of a queue pair, and of sendmsg(2).
    ///
    /// # Safety
    /// The bytes must be there.
    pub unsafe fn send(
        self: &Arc<Datagram>,
        bytes: &mut Cursor<'_>,
        peer: Option<&SockAddr>,
        flags: libc::c_int,
    ) -> Result<usize, Errno> {
        let connected = self.state().connected;
        let peer = peer.copied().or(connected).ok_or(Errno(libc::EDESTADDRREQ))?;
        self.watch()?;
        let known = self.know(&peer)?;
        let len = bytes.left();
        if len + UdpHeader::MAX > SLOT as usize {
            return Err(Errno(libc::EMSGSIZE));
        }
        let fits = len + UdHeader::MAX <= known.pair.most as usize;
        match &known.target {
            Some((handle, qpn)) if fits => {
                let room = wait_for(&**self, self.patience(0, flags), || {
                    self.process(&mut self.state());
                    if self.state().is_closed {
                        return Some(Err(Errno(libc::EBADF)));
                    }
                    // SAFETY: the caller's promise.
                    match unsafe { known.pair.send(bytes, handle, *qpn) } {
                        Err(Errno(libc::EAGAIN)) => None,
                        outcome => Some(outcome),
                    }
                });
                room?.map(|()| len)
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.send_udp(&known, bytes, Op::Data, flags) }.map(|()| len),
        }
    }

    /// Sends what is left of `bytes` through UDP.
    ///
    /// # Safety
    /// The bytes must be there.
    unsafe fn send_udp(
        &self,
        known: &Known,
        bytes: &mut Cursor<'_>,
        op: Op,
        flags: libc::c_int,
    ) -> Result<(), Errno> {
        let Known { addr, pair, .. } = known;
        let header = UdpHeader { op, qpn: pair.qpn(), addr: pair.source.address() }.emit();
        let head =
            libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() };
        let mut pieces = vec![head];
        pieces.extend(bytes.rest());
        // SAFETY: a structure of numbers and pointers.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = addr.as_ptr().cast_mut().cast();
        message.msg_namelen = addr.len();
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len() as _;
        let nonblocking = match self.patience(0, flags) {
            Patience::None => libc::MSG_DONTWAIT,
            _ => 0,
        };
        // SAFETY: all it points to is there; the pieces are the caller's promise.
        let sent = unsafe { libc::sendmsg(self.fd(), &message, nonblocking | libc::MSG_NOSIGNAL) };
        check(sent.clamp(-1, 0) as libc::c_int).map(drop)
    }

    /// Receives the oldest datagram, cut to the room there is.
    ///
    /// # Errors
    /// EAGAIN, EINTR, EFAULT.
    ///
    /// # Safety
    /// There must be as much room as said.
    pub unsafe fn recv(
        self: &Arc<Datagram>,
        room: &mut Cursor<'_>,
        flags: libc::c_int,
    ) -> Result<(usize, SockAddr), Errno> {
        self.watch()?;
        wait_for(&**self, self.patience(1, flags), || {
            let mut state = self.state();
            if state.inbox.is_empty() {
                self.process(&mut state);
            }
            if state.inbox.is_empty() && state.is_closed {
                return Some(Err(Errno(libc::EBADF)));
            }
            let (from, body) = state.inbox.front()?;
            let from = *from;
            // SAFETY: the caller's promise.
            let outcome = unsafe { body.drain(room) };
            if flags & libc::MSG_PEEK == 0 {
                state.inbox.pop_front();
            }
            Some(outcome.map(|len| (len, from)))
        })?
    }

    /// What poll(2) would say of it.
    pub fn revents(&self, events: i16) -> i16 {
        let mut state = self.state();
        self.process(&mut state);
        let readable = if state.inbox.is_empty() { 0 } else { libc::POLLIN };
        let is_writable = state.pairs.iter().all(|pair| pair.has_room());
        let writable = if is_writable { libc::POLLOUT } else { 0 };
        events & (readable | writable)
    }

    /// Nothing more is received, and what was sent is on its way.
    pub fn close(&self) {
        service::forget(self.fd());
        self.state().is_closed = true;
        self.waiters.wake();
        // Sends of datagrams complete by themselves, whatever becomes of them.
        let _ = wait_for(self, Patience::of_ms(1000), || {
            let mut state = self.state();
            self.process(&mut state);
            state.pairs.iter().all(|pair| pair.is_idle()).then_some(())
        });
        let mut state = self.state();
        state.inbox.clear();
        state.peers.clear();
    }

    /// Takes what the queue pairs have completed.
    fn process(&self, state: &mut State) {
        let State { pairs, inbox, connected, .. } = state;
        let mut has_changed = false;
        for pair in pairs {
            has_changed |= pair.process(|from, received| {
                let fits = inbox.len() < inbox_size(received.room());
                let is_wanted = connected.is_none_or(|peer| peer == from);
                if fits && is_wanted {
                    inbox.push_back((from, Body::Direct(received)));
                }
            });
        }
        if has_changed {
            self.waiters.wake();
        }
    }

    /// What is known of a peer, who is known from now on.
    fn know(&self, peer: &SockAddr) -> Result<Known, Errno> {
        if let Some(known) = self.state().peer(peer) {
            return Ok(known.clone());
        }
        let source = self.source_for(peer)?;
        let pair = self.pair_at(&source)?;
        let mut state = self.state();
        if let Some(known) = state.peer(peer) {
            return Ok(known.clone());
        }
        if state.peers.len() >= MAX_PEERS {
            state.peers.pop_front();
        }
        let known = Known { addr: *peer, pair, target: None };
        state.peers.push_back(known.clone());
        Ok(known)
    }

    /// The queue pair of a local address.
    fn pair_at(&self, source: &SockAddr) -> Result<Arc<Pair>, Errno> {
        let find = |state: &State| state.pairs.iter().find(|pair| pair.source == *source).cloned();
        if let Some(pair) = find(&self.state()) {
            return Ok(pair);
        }
        let sizes = lock(&self.options).sizes;
        let pair = Pair::new(source, &sizes)?;
        let mut state = self.state();
        // Another thread may have made one meanwhile.
        if let Some(pair) = find(&state) {
            return Ok(pair);
        }
        if state.is_closed || state.pairs.len() >= MAX_PAIRS {
            return Err(Errno(libc::ENOBUFS));
        }
        state.pairs.push(pair.clone());
        drop(state);
        // Who sleeps must know of its completion queue.
        self.waiters.wake();
        Ok(pair)
    }

    /// The local address that datagrams to a peer come from.
    fn source_for(&self, peer: &SockAddr) -> Result<SockAddr, Errno> {
        let mut own = self.local_addr()?;
        if own.port() == [0; 2] {
            // It gets a port, as from a first datagram.
            let any = SockAddr::any(own.family());
            // SAFETY: the address has that length.
            check(unsafe { libc::bind(self.fd(), any.as_ptr(), any.len()) })?;
            own = self.local_addr()?;
        }
        if !own.is_any() {
            return Ok(own);
        }
        // The system says which it would take.
        // SAFETY: it takes no pointers, and what it returns is ours.
        let probe = unsafe {
            let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
            OwnedFd::from_raw_fd(check(libc::socket(peer.family(), kind, 0))?)
        };
        // SAFETY: the address has that length.
        check(unsafe { libc::connect(probe.as_raw_fd(), peer.as_ptr(), peer.len()) })?;
        Ok(local_addr(probe.as_raw_fd())?.with_port(own.port()))
    }

    /// A datagram that came through UDP.
    fn arrived(&self, datagram: &[u8], from: &SockAddr) -> Result<(), Errno> {
        let Some((header, data)) = UdpHeader::parse(datagram) else { return Ok(()) };
        let known = self.know(from)?;
        if header.op == Op::Data {
            // SAFETY: there are no bytes.
            unsafe {
                self.send_udp(&known, &mut Cursor::new(&[])?, Op::Control, libc::MSG_DONTWAIT)?
            };
            let mut state = self.state();
            if state.inbox.len() < inbox_size(known.pair.recv_count()) {
                state.inbox.push_back((*from, Body::Udp(data.to_vec())));
            }
            drop(state);
            self.waiters.wake();
        }
        if known.target.as_ref().is_none_or(|(_, qpn)| *qpn != header.qpn) {
            let handle = known.pair.handle_to(from)?;
            if let Some(known) = self.state().peer_mut(from) {
                known.target = Some((handle, header.qpn));
            }
        }
        Ok(())
    }

    /// # Errors
    /// Those of setsockopt(2); EINVAL.
    pub fn set_option(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        value: Value,
    ) -> Result<(), Errno> {
        let has_begun = !self.state().pairs.is_empty();
        let mut options = lock(&self.options);
        let is_ours = options.set_sizes(level, name, value, has_begun)?
            || options.set_timeout(level, name, value)?;
        if is_ours || level == SOL_RDMA {
            return if is_ours { Ok(()) } else { Err(EINVAL) };
        }
        value.apply(self.fd(), level, name)
    }

    /// # Errors
    /// Those of getsockopt(2); EINVAL.
    pub fn option(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        place: Place<'_>,
    ) -> Result<(), Errno> {
        let size = lock(&self.options).size(level, name);
        match size {
            Some(size) => place.write(&size),
            None if level == SOL_RDMA => return Err(EINVAL),
            None => return place.ask(self.fd(), level, name),
        }
        Ok(())
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        service::forget(self.fd());
    }
}

impl Served for Datagram {
    fn serve(self: Arc<Datagram>) {
        let mut room = [0; SLOT as usize];
        for _ in 0..BATCH {
            let Some((len, from)) = receive(self.fd(), &mut room) else { return };
            if let Err(error) = self.arrived(&room[..len], &from) {
                tracing::debug!(errno = error.0, "rsocket: a datagram cannot be answered");
            }
        }
    }

    fn keep_alive(&self) {}
}

impl Awaited for Datagram {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn arm(&self, fds: &mut Vec<RawFd>) {
        fds.extend(self.state().pairs.iter().map(|pair| pair.arm()));
    }

    fn take_events(&self) {
        let pairs = self.state().pairs.clone();
        let taken = pairs.iter().filter(|pair| pair.take_event()).count();
        if taken > 0 {
            self.waiters.wake();
        }
    }
}

impl State {
    fn peer(&self, addr: &SockAddr) -> Option<&Known> {
        self.peers.iter().find(|known| known.addr == *addr)
    }

    fn peer_mut(&mut self, addr: &SockAddr) -> Option<&mut Known> {
        self.peers.iter_mut().find(|known| known.addr == *addr)
    }
}

impl Body {
    /// # Safety
    /// There must be as much room as said.
    unsafe fn drain(&self, room: &mut Cursor<'_>) -> Result<usize, Errno> {
        match self {
            // SAFETY: the caller's promise.
            Body::Direct(received) => unsafe { received.drain(room) },
            // SAFETY: as above.
            Body::Udp(data) => unsafe { room.put(data) },
        }
    }
}

/// Datagrams that may wait, for a queue pair that receives so many.
fn inbox_size(recv_count: usize) -> usize {
    2 * recv_count
}

fn local_addr(fd: RawFd) -> Result<SockAddr, Errno> {
    let mut addr = SockAddr::any(0);
    let mut len = SockAddr::CAPACITY;
    // SAFETY: there is that much room.
    check(unsafe { libc::getsockname(fd, addr.as_mut_ptr(), &mut len) })?;
    Ok(addr)
}

/// Receives a UDP datagram, if there is one, and its sender.
fn receive(fd: RawFd, room: &mut [u8]) -> Option<(usize, SockAddr)> {
    let mut from = SockAddr::any(0);
    let mut len = SockAddr::CAPACITY;
    // SAFETY: there is as much room as said.
    let received = unsafe {
        let (start, size) = (room.as_mut_ptr().cast(), room.len());
        libc::recvfrom(fd, start, size, libc::MSG_DONTWAIT, from.as_mut_ptr(), &mut len)
    };
    usize::try_from(received).ok().map(|len| (len, from))
}
