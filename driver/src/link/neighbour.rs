//! Ethernet addresses of next hops, from the kernel's routes and neighbour table.
//!
//! The kernel asks, repeats, ages and gives up (ARP, RFC 826; NDP, RFC 4861); here is only read
//! what it has found. Frames by packet socket do not make it ask, nor tell it that an entry is in
//! use, so an empty datagram to the discard port does, sent the ordinary way. (Not to RoCE's
//! port: it makes the kernel of a host with rxe panic.) What was read holds until the kernel says
//! that something has changed.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_stack::gid::Gid;
use ferroce_stack::wire::Mac;

use super::netlink::{Changes, NeighbourInfo, Netlink};
use super::socket::Socket;
use crate::sys;

/// Destinations remembered; when there are more, all are asked for again.
const REMEMBERED: usize = 4096;

/// For how long a next hop that has not answered is not asked for again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// RFC 863.
const DISCARD_PORT: u16 = 9;

const USABLE: u16 = libc::NUD_REACHABLE
    | libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE;

/// What is known of the next hop to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Its Ethernet address.
    Mac(Mac),
    /// It is being asked for; a change will be told.
    Asked,
    /// There is no way, or it does not answer.
    None,
}

/// The next hops of one interface.
#[derive(Debug)]
pub struct Neighbours {
    netlink: Netlink,
    index: u32,
    /// The interface has no addresses to ask for.
    is_mute: bool,
    ipv4: Socket,
    ipv6: Option<Socket>,
    known: HashMap<IpAddr, Known>,
    /// The changes that `known` follows from.
    seen: u64,
    changes: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    hop: NextHop,
    at_ns: u64,
}

impl Known {
    fn is_fresh(&self) -> bool {
        sys::now_ns().saturating_sub(self.at_ns) < ASK_AGAIN_NS
    }
}

/// Hears of changes of neighbours, routes and interfaces.
#[derive(Debug)]
pub struct Watch {
    changes: Changes,
    count: Arc<AtomicU64>,
}

impl Watch {
    /// Readable when there has been a change.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// Takes note of changes, and says whether there were any.
    pub fn take_note(&self) -> bool {
        let changed = self.changes.drain();
        if changed {
            self.count.fetch_add(1, Ordering::Release);
        }
        changed
    }
}

impl Neighbours {
    /// Those of an interface, `is_mute` if it does not resolve addresses.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(
        netlink: Netlink,
        name: &str,
        index: u32,
        is_mute: bool,
    ) -> io::Result<(Neighbours, Watch)> {
        let count = Arc::new(AtomicU64::new(0));
        let watch = Watch { changes: Changes::open()?, count: count.clone() };
        let ipv4 = Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        ipv4.bind_device(name)?;
        // A machine may have no IPv6.
        let ipv6 = Socket::new(libc::AF_INET6, libc::SOCK_DGRAM, 0).ok();
        if let Some(ipv6) = &ipv6 {
            ipv6.bind_device(name)?;
        }
        let known = HashMap::new();
        let neighbours =
            Neighbours { netlink, index, is_mute, ipv4, ipv6, known, seen: 0, changes: count };
        Ok((neighbours, watch))
    }

    /// The next hop to a destination.
    pub fn next_hop(&mut self, to: IpAddr) -> NextHop {
        if let Some(mac) = Gid::from_ip(to).multicast_mac() {
            return NextHop::Mac(mac);
        }
        if self.is_mute {
            return NextHop::Mac(Mac::default());
        }
        // Read before the kernel is asked: what changes meanwhile makes the answer stale.
        let changes = self.changes.load(Ordering::Acquire);
        if changes != self.seen || self.known.len() > REMEMBERED {
            self.seen = changes;
            // What has been given up is not tried again for that.
            self.known.retain(|_, known| known.hop == NextHop::None && known.is_fresh());
            if self.known.len() > REMEMBERED {
                self.known.clear();
            }
        }
        match self.known.get(&to) {
            Some(Known { hop: hop @ NextHop::Mac(_), .. }) => return *hop,
            Some(known) if known.is_fresh() => return known.hop,
            _ => {}
        }
        let hop = self.look_up(to).unwrap_or(NextHop::None);
        self.known.insert(to, Known { hop, at_ns: sys::now_ns() });
        hop
    }

    /// Whether the kernel has told of a change since [`Neighbours::next_hop`] last asked.
    pub fn have_changed(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.seen
    }

    /// Takes a destination whose next hop has been asked for again, and says what has come of it.
    pub fn outcome(&mut self, to: IpAddr) -> NextHop {
        let hop = match self.entry(to) {
            Ok((_, Some(NeighbourInfo { state, mac: Some(mac) }))) if state & USABLE != 0 => {
                NextHop::Mac(mac)
            }
            Ok((_, Some(NeighbourInfo { state: libc::NUD_INCOMPLETE, .. }))) => NextHop::Asked,
            _ => NextHop::None,
        };
        self.known.insert(to, Known { hop, at_ns: sys::now_ns() });
        hop
    }

    fn look_up(&mut self, to: IpAddr) -> io::Result<NextHop> {
        let (hop, entry) = self.entry(to)?;
        let Some(NeighbourInfo { state, mac }) = entry else { return self.ask_for(hop) };
        match (state, mac) {
            (libc::NUD_STALE, Some(mac)) => {
                // Good until the kernel finds that it is not, for which it must be in use.
                self.ask_for(hop)?;
                Ok(NextHop::Mac(mac))
            }
            (_, Some(mac)) if state & USABLE != 0 => Ok(NextHop::Mac(mac)),
            (libc::NUD_INCOMPLETE, _) => Ok(NextHop::Asked),
            _ => self.ask_for(hop),
        }
    }

    /// The address of the next hop, and the kernel's entry for it.
    fn entry(&mut self, to: IpAddr) -> io::Result<(IpAddr, Option<NeighbourInfo>)> {
        let route = self.netlink.route(to, self.index)?;
        if route.kind != libc::RTN_UNICAST {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let hop = route.gateway.unwrap_or(to);
        Ok((hop, self.netlink.neighbour(hop, self.index)?))
    }

    /// Has the kernel ask for a next hop, or make sure that it is still there.
    fn ask_for(&self, hop: IpAddr) -> io::Result<NextHop> {
        let (socket, address) = match hop {
            IpAddr::V4(_) => (Some(&self.ipv4), SocketAddr::new(hop, DISCARD_PORT)),
            IpAddr::V6(ip) => {
                let scope = if ip.is_unicast_link_local() { self.index } else { 0 };
                (self.ipv6.as_ref(), SocketAddrV6::new(ip, DISCARD_PORT, 0, scope).into())
            }
        };
        let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
        match socket.send(&[], Some(address)) {
            // The answer of one of the hosts before; the datagram was not sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                socket.send(&[], Some(address))?;
            }
            outcome => outcome?,
        }
        Ok(NextHop::Asked)
    }
}
