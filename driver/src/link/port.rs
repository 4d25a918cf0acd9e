//! The interface under a link as the port of a device: whether it is up, its addresses, and the
//! multicast groups it is in.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::net::if_::if_indextoname;

use super::groups::Memberships;
use super::netlink::{Changes, Netlink};
use super::udp_groups::GroupSockets;
use super::{LinkCounters, count};
use crate::identity;

/// Groups that a link joins at most.
const GROUPS: usize = 1024;

/// What is to be known of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortState {
    /// It is up and has a carrier.
    pub is_up: bool,
    /// Those of its addresses that the link can have, IPv4 first, without link-local ones.
    pub addresses: Vec<IpAddr>,
}

/// Where groups are joined.
#[derive(Debug)]
enum Joined {
    /// By memberships alone: the link hears all frames.
    Interface(Memberships),
    /// By sockets that also receive.
    Sockets(Arc<GroupSockets>),
}

/// The interface under a link.
#[derive(Debug)]
pub struct LinkPort {
    changes: Changes,
    netlink: Netlink,
    index: u32,
    /// The one address without which the link does not work.
    address: Option<IpAddr>,
    joined: Joined,
    /// The groups in there.
    groups: BTreeSet<IpAddr>,
    /// Those that could not be joined.
    refused: BTreeSet<IpAddr>,
    counters: Arc<LinkCounters>,
}

impl LinkPort {
    /// The port of a link that hears all frames of an interface.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn of_interface(index: u32, counters: &Arc<LinkCounters>) -> io::Result<LinkPort> {
        LinkPort::open(index, None, Joined::Interface(Memberships::new(index)), counters)
    }

    /// The port of a link that has one address of an interface.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn of_address(
        index: u32,
        address: IpAddr,
        sockets: Arc<GroupSockets>,
        counters: &Arc<LinkCounters>,
    ) -> io::Result<LinkPort> {
        LinkPort::open(index, Some(address), Joined::Sockets(sockets), counters)
    }

    fn open(
        index: u32,
        address: Option<IpAddr>,
        joined: Joined,
        counters: &Arc<LinkCounters>,
    ) -> io::Result<LinkPort> {
        Ok(LinkPort {
            changes: Changes::of_ports()?,
            netlink: Netlink::open()?,
            index,
            address,
            joined,
            groups: BTreeSet::new(),
            refused: BTreeSet::new(),
            counters: counters.clone(),
        })
    }

    /// Readable when an interface has changed.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Forgets which interfaces have changed, and says whether one has.
    pub fn take_note(&self) -> bool {
        self.changes.drain()
    }

    /// What the interface is like now.
    ///
    /// # Errors
    /// What the system says; that it is gone, among others.
    pub fn look(&mut self) -> io::Result<PortState> {
        const UP: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
        let name = if_indextoname(self.index)?;
        let name = name.to_str().map_err(|_| io::ErrorKind::InvalidData)?;
        let flags = self.netlink.link(name)?.flags;
        let addresses = identity::addresses_of(name).map_err(|error| error.errno)?;
        let is_up = flags & UP == UP;
        Ok(match self.address {
            Some(ip) => PortState { is_up: is_up && is_among(&addresses, ip), addresses: vec![ip] },
            None => PortState { is_up, addresses },
        })
    }

    /// Joins these groups and leaves all others; gives those that are not joined but now should
    /// be, with what the system says of one of them.
    pub fn set_groups(&mut self, wanted: &BTreeSet<IpAddr>) -> Option<(Vec<IpAddr>, io::Error)> {
        let left: Vec<IpAddr> = self.groups.difference(wanted).copied().collect();
        for group in &left {
            self.leave(*group);
            self.groups.remove(group);
        }
        // Whether there is room for those is known only where something has gone.
        self.refused.retain(|group| left.is_empty() && wanted.contains(group));
        let (mut refused, mut error) = (Vec::new(), None);
        for &group in wanted {
            if self.groups.contains(&group) || self.refused.contains(&group) {
                continue;
            }
            match self.join(group) {
                Ok(()) => {
                    self.groups.insert(group);
                    count(&self.counters.groups_joined, 1);
                }
                Err(reason) => {
                    self.refused.insert(group);
                    refused.push(group);
                    error = Some(reason);
                    count(&self.counters.groups_refused, 1);
                }
            }
        }
        error.map(|error| (refused, error))
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if self.groups.len() >= GROUPS {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        match &mut self.joined {
            Joined::Interface(memberships) => memberships.join(group),
            Joined::Sockets(sockets) => sockets.join(group),
        }
    }

    fn leave(&mut self, group: IpAddr) {
        match &mut self.joined {
            Joined::Interface(memberships) => memberships.leave(group),
            Joined::Sockets(sockets) => sockets.leave(group),
        }
    }
}

/// Whether an interface with these addresses has this one; all of 127.0.0.0/8 is loopback's.
fn is_among(addresses: &[IpAddr], ip: IpAddr) -> bool {
    let own_block = ip.is_ipv4() && ip.is_loopback();
    addresses.contains(&ip) || own_block && addresses.iter().any(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::Ordering;

    use nix::net::if_::if_nametoindex;

    use super::super::socket::Socket;
    use super::*;

    #[test]
    fn groups_that_are_refused_are_counted_and_told_once() {
        let index = if_nametoindex("lo").unwrap();
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let socket = Socket::udp(own).unwrap();
        socket.bind(SocketAddr::new(own, 0)).unwrap();
        let sockets = Arc::new(GroupSockets::new(&socket, own, index).unwrap());
        let counters = Arc::new(LinkCounters::default());
        let mut port = LinkPort::of_address(index, own, sockets, &counters).unwrap();
        let groups = |texts: &[&str]| -> BTreeSet<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let count = || {
            let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            (load(&counters.groups_joined), load(&counters.groups_refused))
        };

        // To the other IP version the link does not lead.
        let both = groups(&["239.77.9.1", "ff0e::77:9"]);
        let (refused, error) = port.set_groups(&both).unwrap();
        if count().0 == 0 {
            return eprintln!("skipped: groups cannot be joined here: {error}");
        }
        assert_eq!(error.raw_os_error(), Some(libc::EAFNOSUPPORT));
        assert_eq!((refused, count()), (vec!["ff0e::77:9".parse().unwrap()], (1, 1)));
        assert!(port.set_groups(&both).is_none());
        assert_eq!(count(), (1, 1));
        // Where one has gone there may be room for another.
        assert!(port.set_groups(&groups(&["ff0e::77:9"])).is_some());
        assert!(port.set_groups(&groups(&[])).is_none());
        assert_eq!(count(), (1, 2));
    }
}
