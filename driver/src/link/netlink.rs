//! What the kernel knows of interfaces, routes and neighbours, asked by rtnetlink (RFC 3549).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ferroce_stack::wire::Mac;
use libc::{
    IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, NDA_LLADDR, NETLINK_ROUTE, NLM_F_REQUEST, NLMSG_ERROR,
    RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_VIA, RTM_GETLINK, RTM_GETNEIGH, RTM_GETROUTE, RTM_NEWLINK,
    RTM_NEWNEIGH, RTM_NEWROUTE,
};

use super::ethtool;
use super::socket::Socket;

/// How long an answer may take: the kernel gives it before the question's call ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// Of a message: length, type, flags, sequence number, port.
const HEADER: usize = 16;
/// Of an attribute: length with this header, type.
const ATTRIBUTE: usize = 4;
/// Headers of the three kinds of messages.
const LINK: usize = 16;
const NEIGHBOUR: usize = 12;
const ROUTE: usize = 12;

/// `IFLA_VLAN_ID`, `IFLA_VLAN_PROTOCOL`: in what a VLAN's link tells of itself.
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;

/// Flags of an attribute's type (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const TYPE_FLAGS: u16 = 0xc000;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its number.
    pub index: u32,
    /// `ARPHRD_*`.
    pub hardware: u16,
    /// `IFF_*`.
    pub flags: u32,
    /// Its Ethernet address; zeros if it has none.
    pub mac: Mac,
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// The VLAN that it is the interface of.
    pub vlan: Option<VlanInfo>,
}

/// A VLAN (802.1Q) over another interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanInfo {
    /// The number of the interface below.
    pub over: u32,
    /// Which VLAN.
    pub vid: u16,
}

/// How to reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// `RTN_*`.
    pub kind: u8,
    /// The router, if it is not on the link.
    pub gateway: Option<IpAddr>,
}

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// `NUD_*`.
    pub state: u16,
    /// Its Ethernet address, if known.
    pub mac: Option<Mac>,
}

/// A way to ask.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Netlink {
    /// Opens one.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> io::Result<Netlink> {
        let socket = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_ROUTE)?;
        socket.bind_netlink(0)?;
        socket.limit_waits(PATIENCE)?;
        Ok(Netlink { socket, sequence: 0, buffer: vec![0; 32 << 10].into_boxed_slice() })
    }

    /// An interface by name.
    ///
    /// # Errors
    /// What the system says; raw `ENODEV` if there is none.
    pub fn link(&mut self, name: &str) -> io::Result<LinkInfo> {
        let name = [name.as_bytes(), &[0]].concat();
        let body = self.ask(RTM_GETLINK, RTM_NEWLINK, &[0; LINK], &[(IFLA_IFNAME, &name)])?;
        let (header, attributes) = split(body, LINK)?;
        let mac = attribute(attributes, IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok());
        let mtu = attribute(attributes, IFLA_MTU).and_then(|bytes| bytes.try_into().ok());
        Ok(LinkInfo {
            hardware: u16::from_ne_bytes([header[2], header[3]]),
            index: word(header, 4),
            flags: word(header, 8),
            mac: Mac(mac.unwrap_or_default()),
            mtu: u32::from_ne_bytes(mtu.ok_or(io::ErrorKind::InvalidData)?) as usize,
            vlan: vlan(attributes),
        })
    }

    /// The rate of an interface's link in bit/s, if its driver knows it. That is no question of
    /// rtnetlink's, but its socket serves to ask it in the network namespace of all others.
    pub fn line_rate(&self, name: &str) -> Option<u64> {
        ethtool::line_rate(self.socket.as_fd(), name)
    }

    /// The route to an address by an interface.
    ///
    /// # Errors
    /// What the system says: that there is none, among others.
    pub fn route(&mut self, to: IpAddr, index: u32) -> io::Result<RouteInfo> {
        let (family, address) = bytes_of(to);
        let mut header = [0; ROUTE];
        (header[0], header[1]) = (family, address.len() as u8 * 8);
        let questions: [(u16, &[u8]); 2] = [(RTA_DST, &address), (RTA_OIF, &index.to_ne_bytes())];
        let body = self.ask(RTM_GETROUTE, RTM_NEWROUTE, &header, &questions)?;
        let (header, attributes) = split(body, ROUTE)?;
        // The router of an IPv4 route may have an IPv6 address.
        let via = attribute(attributes, RTA_VIA).and_then(|bytes| bytes.get(2..));
        let gateway = attribute(attributes, RTA_GATEWAY).or(via).and_then(address_of);
        Ok(RouteInfo { kind: header[7], gateway })
    }

    /// A neighbour on an interface; none if the kernel has no entry.
    ///
    /// # Errors
    /// What the system says.
    pub fn neighbour(&mut self, ip: IpAddr, index: u32) -> io::Result<Option<NeighbourInfo>> {
        let (family, address) = bytes_of(ip);
        let mut header = [0; NEIGHBOUR];
        header[0] = family;
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        let questions: [(u16, &[u8]); 1] = [(libc::NDA_DST, &address)];
        let body = match self.ask(RTM_GETNEIGH, RTM_NEWNEIGH, &header, &questions) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            outcome => outcome?,
        };
        let (header, attributes) = split(body, NEIGHBOUR)?;
        let mac = attribute(attributes, NDA_LLADDR).and_then(|bytes| bytes.try_into().ok());
        let state = u16::from_ne_bytes([header[8], header[9]]);
        Ok(Some(NeighbourInfo { state, mac: mac.map(Mac) }))
    }

    /// Asks for one thing; gives the body of the answer.
    fn ask(
        &mut self,
        question: u16,
        answer: u16,
        header: &[u8],
        attributes: &[(u16, &[u8])],
    ) -> io::Result<&[u8]> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![0; HEADER];
        message.extend_from_slice(header);
        for (kind, value) in attributes {
            message.extend_from_slice(&((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
            message.extend_from_slice(&kind.to_ne_bytes());
            message.extend_from_slice(value);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        let len = message.len() as u32;
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message[4..6].copy_from_slice(&question.to_ne_bytes());
        message[6..8].copy_from_slice(&(NLM_F_REQUEST as u16).to_ne_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        self.socket.send(&message, None, true)?;
        loop {
            let len = self.socket.receive(&mut self.buffer, true)?;
            let received = self.buffer.get(..len).ok_or(io::ErrorKind::InvalidData)?;
            // An answer to an earlier question that was given up.
            if len < HEADER || word(received, 8) != self.sequence {
                continue;
            }
            return open(&self.buffer[..len], answer);
        }
    }
}

/// The body of the first message in `received`, which should be of this type.
fn open(received: &[u8], expected: u16) -> io::Result<&[u8]> {
    let len = word(received, 0) as usize;
    let kind = u16::from_ne_bytes([received[4], received[5]]);
    let body = received.get(HEADER..len).ok_or(io::ErrorKind::InvalidData)?;
    if kind == expected {
        return Ok(body);
    }
    if kind == NLMSG_ERROR as u16 && body.len() >= 4 {
        return Err(io::Error::from_raw_os_error((word(body, 0) as i32).wrapping_neg()));
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Hears of changes; what changed is for [`Netlink`] to ask.
#[derive(Debug)]
pub struct Changes(Socket);

impl Changes {
    /// Hears of links, addresses, routes and neighbours from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> io::Result<Changes> {
        let neighbours = libc::RTMGRP_NEIGH | libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE;
        Changes::of(Changes::PORTS | neighbours)
    }

    /// Hears of links and addresses from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_ports() -> io::Result<Changes> {
        Changes::of(Changes::PORTS)
    }

    const PORTS: libc::c_int =
        libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;

    fn of(groups: libc::c_int) -> io::Result<Changes> {
        let socket = Socket::new(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_ROUTE)?;
        socket.bind_netlink(groups as u32)?;
        Ok(Changes(socket))
    }

    /// Forgets what has been heard, and says whether it was anything. What there was no room for
    /// counts as well.
    pub fn drain(&self) -> bool {
        let (mut heard, mut byte) = (false, [0; 1]);
        loop {
            match self.0.receive(&mut byte, false) {
                Ok(_) => heard = true,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => heard = true,
                Err(_) => return heard,
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn split(body: &[u8], at: usize) -> io::Result<(&[u8], &[u8])> {
    body.split_at_checked(at).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The value of an attribute.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let header = attributes.first_chunk::<ATTRIBUTE>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(ATTRIBUTE..len)?;
        if u16::from_ne_bytes([header[2], header[3]]) & !TYPE_FLAGS == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

/// The VLAN that the attributes of a link tell of.
fn vlan(attributes: &[u8]) -> Option<VlanInfo> {
    let over = attribute(attributes, libc::IFLA_LINK)?.try_into().ok()?;
    let info = attribute(attributes, libc::IFLA_LINKINFO)?;
    if attribute(info, libc::IFLA_INFO_KIND)? != b"vlan\0" {
        return None;
    }
    let data = attribute(info, libc::IFLA_INFO_DATA)?;
    let is_outer = attribute(data, VLAN_PROTOCOL).is_some_and(|tpid| tpid != [0x81, 0x00]);
    let vid = attribute(data, VLAN_ID).filter(|_| !is_outer)?.try_into().ok()?;
    Some(VlanInfo { over: u32::from_ne_bytes(over), vid: u16::from_ne_bytes(vid) })
}

/// Family and bytes of an address.
fn bytes_of(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (libc::AF_INET as u8, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6 as u8, ip.octets().to_vec()),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_in_bounds() {
        let bytes = |parts: &[&[u8]]| parts.concat();
        let attributes = bytes(&[&[5, 0, 1, 0, 9, 0, 0, 0], &[6, 0, 2, 0, 7, 8]]);
        assert_eq!(attribute(&attributes, 1), Some(&[9][..]));
        assert_eq!(attribute(&attributes, 2), Some(&[7, 8][..]));
        assert_eq!(attribute(&attributes, 3), None);
        // Lengths that cannot be.
        for damaged in [&[0, 0, 1, 0][..], &[3, 0, 1, 0], &[9, 0, 1, 0, 0, 0], &[4, 0]] {
            assert_eq!(attribute(damaged, 1), None);
        }
    }

    #[test]
    fn a_vlan_is_one_of_802_1q_over_an_interface() {
        let attribute = |kind: u16, value: &[u8]| {
            let len = (ATTRIBUTE + value.len()) as u16;
            let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let link = |name: &[u8], protocol: [u8; 2]| {
            let data =
                [attribute(VLAN_PROTOCOL, &protocol), attribute(VLAN_ID, &7u16.to_ne_bytes())];
            let info = [
                attribute(libc::IFLA_INFO_KIND, name),
                attribute(libc::IFLA_INFO_DATA | 0x8000, &data.concat()),
            ];
            let over = attribute(libc::IFLA_LINK, &3u32.to_ne_bytes());
            [over, attribute(libc::IFLA_LINKINFO, &info.concat())].concat()
        };
        let found = Some(VlanInfo { over: 3, vid: 7 });
        assert_eq!(vlan(&link(b"vlan\0", [0x81, 0])), found);
        assert_eq!(vlan(&link(b"vlan\0", [0x88, 0xa8])), None);
        assert_eq!(vlan(&link(b"veth\0", [0x81, 0])), None);
        assert_eq!(vlan(&[]), None);
    }

    #[test]
    fn the_kernel_knows_the_loopback_interface() {
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.link("lo").unwrap();
        assert_eq!((lo.hardware, lo.flags & libc::IFF_LOOPBACK as u32 != 0), (772, true));
        assert!(lo.mtu >= 1280 && lo.index > 0);
        let error = netlink.link("no-such-iface").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert_eq!(netlink.neighbour("192.0.2.77".parse().unwrap(), lo.index).unwrap(), None);
    }
}
