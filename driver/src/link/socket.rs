//! Sockets of the kinds that the standard library has not, each call as a function that cannot be
//! misused.

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use libc::{iovec, mmsghdr, sockaddr_in, sockaddr_in6, sockaddr_ll, sockaddr_nl, socklen_t};

/// Messages that one system call moves.
pub const MESSAGES: usize = 16;

/// Room for the control messages of a datagram, as words: its traffic class, and the length of the
/// segments it is cut into.
const CONTROL_WORDS: usize = 6;

/// A socket; closed on exec.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// The addresses of the families in use. All are plain old data, of which zeros are a value.
#[repr(C)]
#[derive(Clone, Copy)]
union Address {
    family: libc::sa_family_t,
    v4: sockaddr_in,
    v6: sockaddr_in6,
    packet: sockaddr_ll,
    netlink: sockaddr_nl,
}

/// A message to send: a frame or a datagram, or several that the kernel cuts apart.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// What to send, one part after the other.
    pub parts: &'a [IoSlice<'a>],
    /// How many frames it is.
    pub frames: usize,
    /// To whom, and how; none on a bound packet socket.
    pub to: Option<Recipient>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// To whom.
    pub address: SocketAddr,
    /// The traffic class of its packets.
    pub traffic_class: u8,
    /// The length of the datagrams it is cut into, in bytes.
    pub segment: u16,
}

impl Departure<'_> {
    /// Nothing.
    pub const NONE: Departure<'static> = Departure { parts: &[], frames: 0, to: None };
}

/// A datagram that has come, or several as one.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its length in bytes, as received.
    pub len: usize,
    /// It was longer.
    pub truncated: bool,
    /// Who sent it; none on a packet socket.
    pub from: Option<SocketAddr>,
    /// Its traffic class; 0 if the socket does not tell.
    pub traffic_class: u8,
    /// The length in bytes of the datagrams that have come as one, the last of which may be
    /// shorter; 0 if it is one.
    pub segment: usize,
}

impl Arrival {
    /// Nothing.
    pub const NONE: Arrival =
        Arrival { len: 0, truncated: false, from: None, traffic_class: 0, segment: 0 };
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// A new one.
    ///
    /// # Errors
    /// What socket(2) says.
    pub fn new(family: c_int, kind: c_int, protocol: c_int) -> io::Result<Socket> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
        check(fd)?;
        // SAFETY: just opened, and nobody else has it.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A UDP socket of the address's family.
    ///
    /// # Errors
    /// What socket(2) says.
    pub fn udp(ip: IpAddr) -> io::Result<Socket> {
        let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        Socket::new(family, libc::SOCK_DGRAM, 0)
    }

    /// Sets an option that is a number.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        self.set_value(level, option, &value)
    }

    /// Receives and sends on one interface only.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn bind_device(&self, name: &str) -> io::Result<()> {
        let (value, len) = (name.as_ptr().cast(), name.len() as socklen_t);
        let fd = self.0.as_raw_fd();
        // SAFETY: the bytes are borrowed for the call and as many as said.
        check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, value, len) })
    }

    /// Receives what the program takes, from now on.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn attach(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The kernel copies the program and does not write to it.
        let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        self.set_value(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Asks for so large buffers in both directions, in bytes; gets what the system allows.
    pub fn enlarge_buffers(&self, bytes: c_int) {
        let pairs =
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)];
        for (privileged, plain) in pairs {
            if self.set(libc::SOL_SOCKET, privileged, bytes).is_err() {
                let _ = self.set(libc::SOL_SOCKET, plain, bytes);
            }
        }
    }

    /// Ends a wait for room to send, or for an answer, after so long.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn limit_waits(&self, limit: Duration) -> io::Result<()> {
        let value = libc::timeval {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_usec: limit.subsec_micros().into(),
        };
        self.set_value(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &value)?;
        self.set_value(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value)
    }

    /// Joins all groups of an interface, as far as Ethernet goes.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn hear_groups(&self, index: u32) -> io::Result<()> {
        let value = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_ALLMULTI as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set_value(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &value)
    }

    /// Gives a packet socket a ring for what comes: bytes of a block, blocks, bytes of a slot, slots.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn set_ring(&self, numbers: [u32; 4]) -> io::Result<()> {
        // A `tpacket_req`.
        self.set_value(libc::SOL_PACKET, libc::PACKET_RX_RING, &numbers)
    }

    /// Joins a multicast group on an interface.
    ///
    /// # Errors
    /// What setsockopt(2) says; `ENOBUFS` or `ENOMEM` if the socket is in too many.
    pub fn join(&self, group: IpAddr, index: u32) -> io::Result<()> {
        self.set_membership(group, index, libc::IP_ADD_MEMBERSHIP, libc::IPV6_ADD_MEMBERSHIP)
    }

    /// Leaves a multicast group on an interface.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn leave(&self, group: IpAddr, index: u32) -> io::Result<()> {
        self.set_membership(group, index, libc::IP_DROP_MEMBERSHIP, libc::IPV6_DROP_MEMBERSHIP)
    }

    /// Receives no groups but those it joins, whatever other sockets of the machine are in; `own`
    /// is of its family.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn hear_joined_only(&self, own: IpAddr) -> io::Result<()> {
        match own {
            IpAddr::V4(_) => self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0),
            IpAddr::V6(_) => self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0),
        }
    }

    /// Sends to multicast groups by an interface, as far as routers let it, and not back to this
    /// machine. `own` is the socket's address.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn send_groups_by(&self, own: IpAddr, index: u32) -> io::Result<()> {
        const HOPS: c_int = 64;
        match own {
            IpAddr::V4(ip) => {
                let by = membership(Ipv4Addr::UNSPECIFIED, ip, index);
                self.set_value(libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &by)?;
                self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, HOPS)?;
                self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 0)
            }
            IpAddr::V6(_) => {
                self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, index as c_int)?;
                self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, HOPS)?;
                self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 0)
            }
        }
    }

    fn set_membership(&self, group: IpAddr, index: u32, v4: c_int, v6: c_int) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                let value = membership(group, Ipv4Addr::UNSPECIFIED, index);
                self.set_value(libc::IPPROTO_IP, v4, &value)
            }
            IpAddr::V6(group) => {
                let ipv6mr_multiaddr = libc::in6_addr { s6_addr: group.octets() };
                let value = libc::ipv6_mreq { ipv6mr_multiaddr, ipv6mr_interface: index };
                self.set_value(libc::IPPROTO_IPV6, v6, &value)
            }
        }
    }

    fn set_value<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let (len, fd) = (mem::size_of::<T>() as socklen_t, self.0.as_raw_fd());
        // SAFETY: the value is borrowed for the call and as long as said. What a filter points to
        // outlives the call as well.
        check(unsafe { libc::setsockopt(fd, level, option, ptr::from_ref(value).cast(), len) })
    }

    /// The error that has come to the socket since it was last asked.
    ///
    /// # Errors
    /// That one.
    pub fn pending_error(&self) -> io::Result<()> {
        match self.value::<c_int>(libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// How many packets a packet socket has not taken, for want of room, since it was last asked.
    pub fn overrun(&self) -> u64 {
        // Packets, and how many of them were dropped.
        let counts = self.value::<[u32; 2]>(libc::SOL_PACKET, libc::PACKET_STATISTICS);
        counts.map_or(0, |[_, dropped]| dropped.into())
    }

    /// An option that is numbers.
    fn value<T: Default>(&self, level: c_int, option: c_int) -> io::Result<T> {
        let (mut value, mut len) = (T::default(), mem::size_of::<T>() as socklen_t);
        let (fd, start) = (self.0.as_raw_fd(), (&raw mut value).cast());
        // SAFETY: the value is ours and as long as said, and numbers may be anything.
        check(unsafe { libc::getsockopt(fd, level, option, start, &mut len) })?;
        Ok(value)
    }

    /// Binds to an address of this machine.
    ///
    /// # Errors
    /// What bind(2) says.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let (address, len) = Address::of(address);
        self.bind_to(&address, len)
    }

    /// Binds a packet socket to an interface; `protocol` is an Ethertype, 0 to receive nothing.
    ///
    /// # Errors
    /// What bind(2) says.
    pub fn bind_packet(&self, index: u32, protocol: u16) -> io::Result<()> {
        let mut address = Address::zeros();
        address.packet = sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index as c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        self.bind_to(&address, mem::size_of::<sockaddr_ll>())
    }

    /// Binds a netlink socket, and joins these groups.
    ///
    /// # Errors
    /// What bind(2) says.
    pub fn bind_netlink(&self, groups: u32) -> io::Result<()> {
        let mut address = Address::zeros();
        address.family = libc::AF_NETLINK as libc::sa_family_t;
        // SAFETY: zeros and a family are a netlink address.
        let mut netlink = unsafe { address.netlink };
        netlink.nl_groups = groups;
        address.netlink = netlink;
        self.bind_to(&address, mem::size_of::<sockaddr_nl>())
    }

    fn bind_to(&self, address: &Address, len: usize) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        // SAFETY: the address is borrowed for the call and at least as long as said.
        check(unsafe { libc::bind(fd, ptr::from_ref(address).cast(), len as socklen_t) })
    }

    /// Sends one frame or datagram to where the socket leads by itself, or to an address. `wait`
    /// says whether to wait for room.
    ///
    /// # Errors
    /// What sendto(2) says.
    #[inline]
    pub fn send(&self, bytes: &[u8], to: Option<SocketAddr>, wait: bool) -> io::Result<()> {
        let address = to.map(Address::of);
        let (name, len) = match &address {
            Some((address, len)) => (ptr::from_ref(address).cast(), *len as socklen_t),
            None => (ptr::null(), 0),
        };
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let (fd, start) = (self.0.as_raw_fd(), bytes.as_ptr().cast());
        // SAFETY: bytes and address are borrowed for the call and as long as said.
        let sent = unsafe { libc::sendto(fd, start, bytes.len(), flags, name, len) };
        check(sent as c_int)
    }

    /// Receives one datagram, of which `buffer` gets the first bytes, and gives its length there.
    /// `wait` says whether to wait for it.
    ///
    /// # Errors
    /// What recv(2) says.
    pub fn receive(&self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let (fd, start) = (self.0.as_raw_fd(), buffer.as_mut_ptr().cast());
        // SAFETY: the buffer is ours and as long as said.
        let received = unsafe { libc::recv(fd, start, buffer.len(), flags) };
        check(received as c_int)?;
        Ok(received as usize)
    }

    /// Sends at most [`MESSAGES`], in order and without waiting, and says how many the system took.
    ///
    /// # Errors
    /// What sendmmsg(2) says of the first; none is sent then. `WouldBlock` if the socket holds as
    /// much as it may.
    pub fn send_batch(&self, departures: &[Departure<'_>]) -> io::Result<usize> {
        match departures.len() {
            0 | 1 => self.send_some::<1>(departures),
            _ => self.send_some::<MESSAGES>(departures),
        }
    }

    /// As [`Socket::send_batch`], with room for `N` messages: clearing that takes longer than all
    /// else that is done here for one.
    fn send_some<const N: usize>(&self, departures: &[Departure<'_>]) -> io::Result<usize> {
        let mut addresses = [Address::zeros(); N];
        let mut controls = [[0u64; CONTROL_WORDS]; N];
        // SAFETY: zeros are a value of these headers.
        let mut headers: [mmsghdr; N] = unsafe { mem::zeroed() };
        let count = departures.len().min(N);
        for (index, departure) in departures[..count].iter().enumerate() {
            let header = &mut headers[index].msg_hdr;
            // An `IoSlice` is an iovec, and only read by the call.
            header.msg_iov = departure.parts.as_ptr().cast_mut().cast();
            header.msg_iovlen = departure.parts.len();
            let Some(to) = departure.to else { continue };
            let (address, len) = Address::of(to.address);
            addresses[index] = address;
            header.msg_name = (&raw mut addresses[index]).cast();
            header.msg_namelen = len as socklen_t;
            header.msg_controllen = put_controls(&mut controls[index], to, departure.frames > 1);
            header.msg_control = controls[index].as_mut_ptr().cast();
        }
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: every header points to addresses and control messages of this function and parts
        // of our caller's, each as long as said, which outlive the call.
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count as u32, flags) };
        check(sent)?;
        Ok(sent as usize)
    }

    /// Receives datagrams that are there, one into each of at most `N` buffers, without waiting;
    /// says how many. More cost more, also where fewer come.
    ///
    /// # Errors
    /// What recvmmsg(2) says, `WouldBlock` if none is there.
    pub fn receive_batch<'a, const N: usize>(
        &self,
        buffers: impl Iterator<Item = &'a mut [u8]>,
        arrivals: &mut [Arrival; N],
    ) -> io::Result<usize> {
        let mut addresses = [Address::zeros(); N];
        let mut controls = [[0u64; CONTROL_WORDS]; N];
        let mut vectors = [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; N];
        // SAFETY: zeros are a value of these headers.
        let mut headers: [mmsghdr; N] = unsafe { mem::zeroed() };
        let mut count = 0;
        for (index, buffer) in buffers.take(N).enumerate() {
            vectors[index].iov_base = buffer.as_mut_ptr().cast();
            vectors[index].iov_len = buffer.len();
            let header = &mut headers[index].msg_hdr;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut addresses[index]).cast();
            header.msg_namelen = mem::size_of::<Address>() as socklen_t;
            header.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_controllen = mem::size_of_val(&controls[index]);
            count += 1;
        }
        let (fd, flags) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: as when sending; the buffers are borrowed from our caller until the call ends.
        let received =
            unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count, flags, ptr::null_mut()) };
        check(received)?;
        for (index, header) in headers[..received as usize].iter().enumerate() {
            let control_len = header.msg_hdr.msg_controllen.min(CONTROL_WORDS * 8);
            let (traffic_class, segment) = read_controls(&controls[index], control_len);
            arrivals[index] = Arrival {
                len: (header.msg_len as usize).min(vectors[index].iov_len),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                from: addresses[index].socket_address(),
                traffic_class,
                segment,
            };
        }
        Ok(received as usize)
    }
}

fn membership(group: Ipv4Addr, address: Ipv4Addr, index: u32) -> libc::ip_mreqn {
    let in_addr = |ip: Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
    libc::ip_mreqn {
        imr_multiaddr: in_addr(group),
        imr_address: in_addr(address),
        imr_ifindex: index as c_int,
    }
}

fn check(outcome: c_int) -> io::Result<()> {
    match outcome {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Address {
    fn zeros() -> Address {
        // SAFETY: zeros are a value of each of them.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    fn of(address: SocketAddr) -> (Address, usize) {
        let mut union = Address::zeros();
        match address {
            SocketAddr::V4(v4) => {
                union.v4 = sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (union, mem::size_of::<sockaddr_in>())
            }
            SocketAddr::V6(v6) => {
                union.v6 = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (union, mem::size_of::<sockaddr_in6>())
            }
        }
    }

    fn socket_address(&self) -> Option<SocketAddr> {
        // SAFETY: every address begins with its family, and zeros are none that is asked for.
        match c_int::from(unsafe { self.family }) {
            libc::AF_INET => {
                // SAFETY: the family says which it is; any bytes are a value.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Of a control message: length with this header, level, type. Then its data, in whole words.
const CONTROL_HEADER: usize = 16;
const _: () = assert!(mem::size_of::<libc::cmsghdr>() == CONTROL_HEADER);

/// Bytes of a control message, its data being at most a word.
const CONTROL: usize = CONTROL_HEADER + 8;

/// Writes the control messages that give a datagram its traffic class and, if `is_cut`, have it
/// cut; returns their length.
fn put_controls(control: &mut [u64; CONTROL_WORDS], to: Recipient, is_cut: bool) -> usize {
    let (level, kind) = match to.address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    let words = |a: c_int, b: c_int| {
        let [a, b] = [a, b].map(c_int::to_ne_bytes);
        u64::from_ne_bytes(std::array::from_fn(|at| if at < 4 { a[at] } else { b[at - 4] }))
    };
    control[0] = (CONTROL_HEADER + mem::size_of::<c_int>()) as u64;
    control[1] = words(level, kind);
    control[2] = words(c_int::from(to.traffic_class), 0);
    if !is_cut {
        return CONTROL;
    }
    let [low, high] = to.segment.to_ne_bytes();
    control[3] = (CONTROL_HEADER + mem::size_of::<u16>()) as u64;
    control[4] = words(libc::SOL_UDP, libc::UDP_SEGMENT);
    control[5] = u64::from_ne_bytes([low, high, 0, 0, 0, 0, 0, 0]);
    2 * CONTROL
}

/// The traffic class and the length of segments that `len` bytes of control messages tell, 0 where
/// they do not.
fn read_controls(control: &[u64; CONTROL_WORDS], len: usize) -> (u8, usize) {
    let mut bytes = [0; CONTROL_WORDS * 8];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(control) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    let (mut class, mut segment) = (0, 0);
    let mut rest = &bytes[..len];
    while let Some((header, data)) = rest.split_at_checked(CONTROL_HEADER) {
        let number = |at: usize| i32::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
        let value = || data.first_chunk().map_or(0, |value| i32::from_ne_bytes(*value));
        match (number(8), number(12)) {
            // One byte in IPv4, a number in IPv6.
            (libc::IPPROTO_IP, libc::IP_TOS) => class = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => class = value() as u8,
            (libc::SOL_UDP, libc::UDP_GRO) => segment = usize::try_from(value()).unwrap_or(0),
            _ => {}
        }
        let len = (number(0) as usize).max(CONTROL_HEADER).next_multiple_of(8);
        rest = rest.get(len..).unwrap_or_default();
    }
    (class, segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ip: &str) -> Option<(Socket, Socket, SocketAddr)> {
        let ip: IpAddr = ip.parse().unwrap();
        // A machine may have no IPv6.
        let own = std::net::UdpSocket::bind((ip, 0)).ok()?.local_addr().unwrap();
        let (from, to) = (Socket::udp(ip).unwrap(), Socket::udp(ip).unwrap());
        to.bind(own).ok()?;
        let (level, option) = match ip {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        };
        to.set(level, option, 1).unwrap();
        Some((from, to, own))
    }

    #[test]
    fn a_batch_arrives_in_order_with_its_traffic_class() {
        for ip in ["127.0.0.1", "::1"] {
            let Some((from, to, address)) = pair(ip) else {
                eprintln!("skipped: this machine has no {ip}");
                continue;
            };
            let bytes: Vec<Vec<u8>> = (1..=MESSAGES).map(|len| vec![len as u8; len]).collect();
            let recipient = Recipient { address, traffic_class: 0x22, segment: 0 };
            let parts: Vec<[IoSlice<'_>; 2]> = bytes
                .iter()
                .map(|b| b.split_at(1))
                .map(|(a, b)| [a, b].map(IoSlice::new))
                .collect();
            let to_all = Some(recipient);
            let departures: Vec<Departure<'_>> =
                parts.iter().map(|parts| Departure { parts, frames: 1, to: to_all }).collect();
            assert_eq!(from.send_batch(&departures).unwrap(), MESSAGES);
            let (mut room, mut arrivals) = ([0; MESSAGES * 32], [Arrival::NONE; MESSAGES]);
            let taken = to.receive_batch(room.chunks_exact_mut(32), &mut arrivals).unwrap();
            assert_eq!(taken, MESSAGES);
            for (index, room) in room.chunks_exact(32).enumerate() {
                let Arrival { len, truncated, from, traffic_class, segment } = arrivals[index];
                assert_eq!(&room[..len], bytes[index]);
                assert_eq!((truncated, traffic_class, segment), (false, 0x22, 0), "{ip}");
                assert_eq!(from.unwrap().ip(), address.ip());
            }
            let error = to.receive_batch(room.chunks_exact_mut(32), &mut arrivals).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn datagrams_that_leave_as_one_arrive_as_one_and_say_how_to_cut_it() {
        for ip in ["127.0.0.1", "::1"] {
            let Some((from, to, address)) = pair(ip) else {
                eprintln!("skipped: this machine has no {ip}");
                continue;
            };
            if to.set(libc::SOL_UDP, libc::UDP_GRO, 1).is_err() {
                eprintln!("skipped: this kernel joins no datagrams");
                return;
            }
            let recipient = Recipient { address, traffic_class: 2, segment: 40 };
            let parts = [[1; 40], [2; 40], [3; 40]];
            let parts = [&parts[0][..], &parts[1], &parts[2][..7]].map(IoSlice::new);
            let departure = Departure { parts: &parts, frames: 3, to: Some(recipient) };
            assert_eq!(from.send_batch(&[departure]).unwrap(), 1);
            let (mut room, mut arrivals) = ([0; 200], [Arrival::NONE; MESSAGES]);
            let room = std::iter::once(&mut room[..]);
            assert_eq!(to.receive_batch(room, &mut arrivals).unwrap(), 1);
            let Arrival { len, segment, traffic_class, .. } = arrivals[0];
            assert_eq!((len, segment, traffic_class), (87, 40, 2), "{ip}");
        }
    }

    #[test]
    fn what_is_longer_than_its_buffer_is_cut_and_says_so() {
        let (from, to, address) = pair("127.0.0.1").unwrap();
        from.send(&[9; 100], Some(address), true).unwrap();
        let (mut buffer, mut arrivals) = ([0; 60], [Arrival::NONE; MESSAGES]);
        let buffers = std::iter::once(&mut buffer[..]);
        assert_eq!(to.receive_batch(buffers, &mut arrivals).unwrap(), 1);
        assert_eq!((arrivals[0].len, arrivals[0].truncated), (60, true));
    }
}
