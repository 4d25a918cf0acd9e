//! Neighbours of addresses that an interface has, from the kernel's routes and neighbour table.
//!
//! The kernel asks, repeats, ages and gives up; here is only read what it has found. Frames by
//! packet socket do not make it ask, nor tell it that an entry is in use, so an empty datagram to
//! the discard port does, sent the ordinary way. (Not to RoCE's port: it makes the kernel of a host
//! with rxe panic.)

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use super::neighbour::NextHop;
use super::netlink::{NeighbourInfo, Netlink};
use super::socket::Socket;

/// RFC 863.
const DISCARD_PORT: u16 = 9;

const USABLE: u16 = libc::NUD_REACHABLE
    | libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE;

/// The kernel's neighbours on one interface.
#[derive(Debug)]
pub struct KernelNeighbours {
    netlink: Netlink,
    index: u32,
    ipv4: Socket,
    ipv6: Option<Socket>,
}

impl KernelNeighbours {
    /// Those of an interface.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(netlink: Netlink, name: &str, index: u32) -> io::Result<KernelNeighbours> {
        let ipv4 = Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        ipv4.bind_device(name)?;
        // A machine may have no IPv6.
        let ipv6 = Socket::new(libc::AF_INET6, libc::SOCK_DGRAM, 0).ok();
        if let Some(ipv6) = &ipv6 {
            ipv6.bind_device(name)?;
        }
        Ok(KernelNeighbours { netlink, index, ipv4, ipv6 })
    }

    /// The next hop to a destination, which is asked for if need be.
    pub fn next_hop(&mut self, to: IpAddr) -> NextHop {
        self.look_up(to).unwrap_or(NextHop::None)
    }

    /// What has become of a next hop that has been asked for.
    pub fn outcome(&mut self, to: IpAddr) -> NextHop {
        match self.entry(to) {
            Ok((_, Some(NeighbourInfo { state, mac: Some(mac) }))) if state & USABLE != 0 => {
                NextHop::Mac(mac)
            }
            Ok((_, Some(NeighbourInfo { state: libc::NUD_INCOMPLETE, .. }))) => NextHop::Asked,
            _ => NextHop::None,
        }
    }

    /// The address to which the kernel's routes lead a packet for `to` from an address that is not
    /// the kernel's: a router's, or its own where there is no route. None if there is no way.
    pub fn hop(&mut self, to: IpAddr) -> Option<IpAddr> {
        match self.netlink.route(to, self.index) {
            Ok(route) if route.kind == libc::RTN_UNICAST => Some(route.gateway.unwrap_or(to)),
            Ok(_) => None,
            Err(_) => Some(to),
        }
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
        match socket.send(&[], Some(address), true) {
            // The answer of one of the hosts before; the datagram was not sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                socket.send(&[], Some(address), true)?;
            }
            outcome => outcome?,
        }
        Ok(NextHop::Asked)
    }
}
