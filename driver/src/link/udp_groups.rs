//! Multicast on a UDP link. Datagrams for a group do not come to a socket that is bound to an
//! address, so each group has a socket of its own, bound to the group, which is a member of it on
//! the link's interface; the kernel speaks IGMP and MLD for it. One descriptor stands for all of
//! them and the link's own socket.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_stack::wire::ROCE_PORT;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::LinkReceiver;
use super::socket::Socket;
use super::udp::{self, UdpReceiver};
use crate::sync::lock;

/// Groups, each with a descriptor, that a link has at most.
const GROUPS: usize = 256;

/// Of each of their sockets, in bytes.
const BUFFER: i32 = 1 << 20;

/// As the descriptor names the link's own socket.
const OWN: u64 = 0;

/// The sockets of a link's groups.
#[derive(Debug)]
pub struct GroupSockets {
    index: u32,
    is_ipv6: bool,
    epoll: Epoll,
    joined: Mutex<Joined>,
    /// How many there are.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Joined {
    /// As the descriptor names them.
    sockets: BTreeMap<u64, (IpAddr, Arc<Socket>)>,
    last: u64,
}

impl GroupSockets {
    /// None yet, beside the link's own socket, which will send to groups by the interface.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(own: &Socket, address: IpAddr, index: u32) -> io::Result<GroupSockets> {
        own.send_groups_by(address, index)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(own, EpollEvent::new(EpollFlags::EPOLLIN, OWN))?;
        let (is_ipv6, count) = (address.is_ipv6(), AtomicUsize::new(0));
        Ok(GroupSockets { index, is_ipv6, epoll, joined: Mutex::default(), count })
    }

    /// Joins a group.
    ///
    /// # Errors
    /// What the system says; `EAFNOSUPPORT` for one of the other family, to which the link leads
    /// nowhere; `ENOBUFS` if no more can be joined.
    pub fn join(&self, group: IpAddr) -> io::Result<()> {
        if group.is_ipv6() != self.is_ipv6 {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let mut joined = lock(&self.joined);
        if joined.sockets.len() >= GROUPS {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let place = match group {
            IpAddr::V4(_) => SocketAddr::new(group, ROCE_PORT),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, ROCE_PORT, 0, self.index).into(),
        };
        let socket = Socket::udp(group)?;
        // Other links of this machine may have the group as well.
        socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        udp::set_up(&socket, group)?;
        socket.enlarge_buffers(BUFFER);
        socket.hear_joined_only(group)?;
        // Who sees that the group is joined finds somebody there.
        socket.bind(place)?;
        socket.join(group, self.index)?;
        joined.last += 1;
        let key = joined.last;
        self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        joined.sockets.insert(key, (group, Arc::new(socket)));
        self.count.store(joined.sockets.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Leaves a group.
    pub fn leave(&self, group: IpAddr) {
        let mut joined = lock(&self.joined);
        if let Some(key) = joined.sockets.iter().find(|(_, (ip, _))| *ip == group).map(|(k, _)| *k)
            && let Some((_, socket)) = joined.sockets.remove(&key)
        {
            // Who has received from it last may still have it, so that it is not closed yet. An
            // interface that is gone has no groups.
            let _ = self.epoll.delete(&*socket);
            let _ = socket.leave(group, self.index);
        }
        self.count.store(joined.sockets.len(), Ordering::Relaxed);
    }

    /// A group for which something has come.
    fn ready(&self) -> Option<(IpAddr, Arc<Socket>)> {
        // One more than is needed: the first may be the link's own.
        let mut events = [EpollEvent::empty(); 2];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let joined = lock(&self.joined);
        events[..count].iter().find_map(|event| joined.sockets.get(&event.data())).cloned()
    }
}

/// Receives by the link's own socket, and by those of its groups.
#[derive(Debug)]
pub struct GroupReceiver {
    own: UdpReceiver,
    groups: Arc<GroupSockets>,
    /// What receives by their sockets, once there has been one.
    of_group: Option<Box<UdpReceiver>>,
    /// The last frames were a group's: neither holds up the other.
    was_group: bool,
}

impl GroupReceiver {
    /// With what receives by the link's own socket.
    pub fn new(own: UdpReceiver, groups: Arc<GroupSockets>) -> GroupReceiver {
        GroupReceiver { own, groups, of_group: None, was_group: false }
    }

    fn has_group_frames(&self) -> bool {
        self.of_group.as_ref().is_some_and(|receiver| receiver.has_next())
    }

    fn fetch_group(&mut self) -> io::Result<bool> {
        let Some((group, socket)) = self.groups.ready() else { return Ok(false) };
        let receiver = self.of_group.get_or_insert_with(|| {
            let counters = self.own.counters().clone();
            Box::new(UdpReceiver::new(socket.clone(), group, counters))
        });
        receiver.turn_to(socket, group);
        receiver.fetch()
    }
}

impl LinkReceiver for GroupReceiver {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.groups.epoll.0.as_fd()
    }

    fn fetch(&mut self) -> io::Result<bool> {
        if self.has_group_frames() {
            return Ok(true);
        }
        let has_groups = self.groups.count.load(Ordering::Relaxed) > 0;
        if has_groups && !self.was_group && !self.own.has_next() && self.fetch_group()? {
            self.was_group = true;
            return Ok(true);
        }
        let was_group = std::mem::take(&mut self.was_group);
        if self.own.fetch()? {
            return Ok(true);
        }
        self.was_group = has_groups && was_group && self.fetch_group()?;
        Ok(self.was_group)
    }

    fn next(&mut self) -> Option<&mut [u8]> {
        // They are never both there: nothing is fetched before all is taken.
        match &mut self.of_group {
            Some(receiver) if receiver.has_next() => receiver.next(),
            _ => self.own.next(),
        }
    }

    fn look(&self) -> io::Result<()> {
        self.own.look()
    }
}
