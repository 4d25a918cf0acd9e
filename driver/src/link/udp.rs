//! A UDP socket, which needs no rights: RoCE's datagrams are UDP's, and the kernel writes the
//! headers.
//!
//! The ICRC covers what the kernel writes (wire format: `ferroce_stack::icrc`), so it has to be
//! known beforehand. An unconnected socket that forbids fragments sends IPv4 with DF and
//! identification 0; all else that counts follows from the socket's address and the length. A
//! frame's ICRC is changed by exactly what the change of its headers changes: one that was wrong
//! stays wrong.
//!
//! A receiver does not see the IPv4 identification, which the ICRC also covers. Where 0, the first
//! guess, does not fit, the ICRC itself tells ([`icrc::hidden_ident`]), and is a weaker check then.
//! Frames are rebuilt with the ICRC they carried, so their receivers judge it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_stack::icrc;
use ferroce_stack::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, Mac, Net, Packet, ROCE_PORT, Udp,
};

use super::netlink::Netlink;
use super::silence::Silence;
use super::socket::{Arrival, Departure, Socket};
use super::{
    BATCH, Frames, Link, LinkCounters, LinkError, LinkReceiver, LinkSender, LostFrames, count,
};
use crate::fabric::FRAME_MAX;
use crate::identity;

const ETHERNET: usize = 14;
const PROTOCOL_UDP: u8 = 17;

/// Of the transport header and the ICRC.
const SHORTEST: usize = 12 + 4;

/// Nobody looks at it: the packet has been received.
const HOPS: u8 = 64;

/// Of the socket, in bytes: bursts of a full window of several QPs.
const BUFFER: i32 = 8 << 20;

/// How long room to send is waited for at a time.
const SEND_WAIT: Duration = Duration::from_millis(100);

/// How often the system may say that it has no room, with a pause in between, before datagrams are
/// lost.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);

/// Opens the link of an address.
pub fn open(address: IpAddr, counters: &Arc<LinkCounters>) -> Result<Link, LinkError> {
    let mtu = mtu_of(address)?;
    let own = SocketAddr::new(address, ROCE_PORT);
    let socket = bind(own).map_err(LinkError::io("bind UDP port 4791 of the address"))?;
    let socket = Arc::new(socket);
    let receiver = UdpReceiver {
        socket: socket.clone(),
        own: address,
        frames: Frames::default(),
        counters: counters.clone(),
    };
    let sender = UdpSender {
        socket,
        own,
        mtu,
        frames: Frames::default(),
        payloads: [Payload::NONE; BATCH],
        counters: counters.clone(),
    };
    Ok(Link {
        receiver: Box::new(receiver),
        sender: Box::new(sender),
        mtu,
        addresses: vec![address],
        watch: None,
        // The socket is at the port.
        silence: Silence::default(),
    })
}

/// The MTU of the interface that has the address.
fn mtu_of(address: IpAddr) -> Result<usize, LinkError> {
    let name = identity::interface_of(address)
        .map_err(|error| LinkError::Io { action: "list addresses", source: error.errno.into() })?
        .ok_or(LinkError::NoAddress(address))?;
    let mut netlink = Netlink::open().map_err(LinkError::io("ask the kernel for interfaces"))?;
    let info = netlink.link(&name).map_err(LinkError::io("ask the kernel for the interface"))?;
    Ok(info.mtu)
}

fn bind(own: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::udp(own.ip())?;
    match own {
        SocketAddr::V4(_) => {
            socket.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            socket.set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        }
        SocketAddr::V6(_) => {
            let discover = libc::IPV6_PMTUDISC_DO;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, discover)?;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            // RoCE's senders leave the checksum out; there is the ICRC.
            socket.set(libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        }
    }
    socket.enlarge_buffers(BUFFER);
    socket.limit_waits(SEND_WAIT)?;
    socket.bind(own)?;
    Ok(socket)
}

#[derive(Debug)]
struct UdpReceiver {
    socket: Arc<Socket>,
    own: IpAddr,
    frames: Frames,
    counters: Arc<LinkCounters>,
}

impl LinkReceiver for UdpReceiver {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn fetch(&mut self) -> io::Result<bool> {
        if self.frames.has_next() {
            return Ok(true);
        }
        let payload = payload_at(self.own);
        let mut arrivals = [Arrival::NONE; BATCH];
        let received = match self.socket.receive_batch(self.frames.rooms(payload), &mut arrivals) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // Some host has refused what was sent to it.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(false),
            outcome => outcome?,
        };
        let arrivals = &arrivals[..received];
        let cut = arrivals.iter().filter(|arrival| arrival.truncated).count();
        count(&self.counters.lost.too_long, cut as u64);
        self.frames.set(arrivals.iter().map(|arrival| match arrival {
            // What is shorter cannot be RoCE.
            Arrival { truncated: false, len: len @ SHORTEST.., from: Some(_), .. } => payload + len,
            _ => 0,
        }));
        for (index, arrival) in arrivals.iter().enumerate() {
            if let (Arrival { from: Some(from), traffic_class, len, .. }, frame @ [_, ..]) =
                (arrival, self.frames.get_mut(index))
            {
                put_headers(frame, *from, self.own, *traffic_class, *len);
                put_ident(frame, &self.counters);
            }
        }
        Ok(true)
    }

    fn next(&mut self) -> Option<&mut [u8]> {
        self.frames.next()
    }

    fn look(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Finds the IPv4 identification.
fn put_ident(frame: &mut [u8], counters: &LinkCounters) {
    let Ok(packet) = Packet::parse(frame) else { return };
    let Net::V4(ip) = packet.headers.net else { return };
    if packet.icrc_ok(frame) {
        return;
    }
    match icrc::hidden_ident(frame, &packet.layout, packet.icrc) {
        Some((ident, dont_fragment)) => {
            count(&counters.ident_recovered, 1);
            let at = packet.layout.net;
            let len = (packet.layout.icrc + 4 - at - Ipv4::LEN) as u16;
            Ipv4 { ident, dont_fragment, ..ip }.emit(len, &mut frame[at..]);
        }
        None => count(&counters.ident_unknown, 1),
    }
}

/// Where a datagram's payload stands in a frame.
fn payload_at(ip: IpAddr) -> usize {
    ETHERNET + Udp::LEN + if ip.is_ipv4() { Ipv4::LEN } else { Ipv6::LEN }
}

/// Writes the headers in front of a payload of `len` bytes, as its sender must have written them,
/// but for what only it knows.
fn put_headers(frame: &mut [u8], from: SocketAddr, own: IpAddr, traffic_class: u8, len: usize) {
    // Frames are far shorter than 2^16.
    let udp_len = (Udp::LEN + len) as u16;
    // Between members and gateway nobody looks at Ethernet addresses.
    let eth = Ethernet { dst: Mac::default(), src: Mac::default(), vlan: None };
    let udp_at = match (from.ip(), own) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            eth.emit(ETHERTYPE_IPV4, frame);
            let (tos, ttl) = (traffic_class, HOPS);
            let ip = Ipv4 { src, dst, tos, ident: 0, dont_fragment: true, ttl };
            ip.emit(udp_len, &mut frame[ETHERNET..]);
            ETHERNET + Ipv4::LEN
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            eth.emit(ETHERTYPE_IPV6, frame);
            let ip = Ipv6 { src, dst, traffic_class, flow_label: 0, hop_limit: HOPS };
            ip.emit(PROTOCOL_UDP, udp_len, &mut frame[ETHERNET..]);
            ETHERNET + Ipv6::LEN
        }
        // A socket takes packets of its own family only.
        _ => return,
    };
    let udp = Udp { source_port: from.port(), checksum: 0 };
    udp.emit(udp_len, &mut frame[udp_at..]);
}

#[derive(Debug)]
struct UdpSender {
    socket: Arc<Socket>,
    own: SocketAddr,
    mtu: usize,
    frames: Frames,
    /// Of each of them.
    payloads: [Payload; BATCH],
    counters: Arc<LinkCounters>,
}

impl LinkSender for UdpSender {
    fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    fn room(&mut self) -> &mut [u8] {
        self.frames.room()
    }

    fn push(&mut self, len: usize) {
        let frame = &mut self.frames.room()[..len];
        if let Some(payload) = prepare(frame, self.own, self.mtu, &self.counters.lost) {
            self.payloads[self.frames.len()] = payload;
            self.frames.push(len);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut departures = [Departure { bytes: &[], to: None }; BATCH];
        let count = self.frames.len();
        for (index, departure) in departures[..count].iter_mut().enumerate() {
            let Payload { start, end, to, traffic_class } = self.payloads[index];
            departure.bytes = &self.frames.get(index)[start..end];
            departure.to = Some((to, traffic_class));
        }
        self.send_all(&departures[..count]);
        self.frames.clear();
        Ok(())
    }

    fn neighbours_changed(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What of a frame is a datagram's payload, and where that goes.
#[derive(Clone, Copy, Debug)]
struct Payload {
    start: usize,
    end: usize,
    to: SocketAddr,
    traffic_class: u8,
}

impl Payload {
    /// Nothing, to nowhere.
    const NONE: Payload = Payload {
        start: 0,
        end: 0,
        to: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        traffic_class: 0,
    };
}

/// Makes the ICRC that of the datagram as it will be.
fn prepare(frame: &mut [u8], own: SocketAddr, mtu: usize, lost: &LostFrames) -> Option<Payload> {
    let Ok(packet) = Packet::parse(frame) else {
        count(&lost.not_roce, 1);
        return None;
    };
    let Packet { headers, layout, icrc: carried, .. } = packet;
    let (from, to, traffic_class) = match headers.net {
        Net::V4(ip) => (IpAddr::V4(ip.src), IpAddr::V4(ip.dst), ip.tos),
        Net::V6(ip) => (IpAddr::V6(ip.src), IpAddr::V6(ip.dst), ip.traffic_class),
        Net::V1(_) => {
            count(&lost.not_roce, 1);
            return None;
        }
    };
    if from != own.ip() {
        count(&lost.foreign_source, 1);
        return None;
    }
    let end = layout.icrc + 4;
    if end - layout.net > mtu {
        count(&lost.too_long, 1);
        return None;
    }
    let before = icrc::compute(frame, &layout);
    if let Net::V4(ip) = headers.net {
        let sent = Ipv4 { ident: 0, dont_fragment: true, ..ip };
        sent.emit((end - layout.net - Ipv4::LEN) as u16, &mut frame[layout.net..]);
    }
    let port_at = layout.bth - Udp::LEN;
    frame[port_at..port_at + 2].copy_from_slice(&own.port().to_be_bytes());
    let icrc = carried ^ before ^ icrc::compute(frame, &layout);
    frame[layout.icrc..end].copy_from_slice(&icrc.to_le_bytes());
    let to = SocketAddr::new(to, ROCE_PORT);
    Some(Payload { start: layout.bth, end, to, traffic_class })
}

impl UdpSender {
    /// Sends all, or counts what is lost.
    fn send_all(&self, mut departures: &[Departure<'_>]) {
        let mut tries = 0;
        while !departures.is_empty() {
            match self.socket.send_batch(departures) {
                Ok(sent) => {
                    count(&self.counters.link_sent, sent as u64);
                    departures = &departures[sent..];
                    tries = 0;
                }
                // The queue in front of the interface is full; nothing tells when it is not.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && tries < TRIES => {
                    tries += 1;
                    thread::sleep(PAUSE);
                }
                // What a host has answered to an earlier one; this one has not been sent.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && tries < TRIES => {
                    tries += 1;
                }
                Err(error) => {
                    let too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
                    let lost = &self.counters.lost;
                    count(if too_long { &lost.too_long } else { &lost.send_failed }, 1);
                    departures = &departures[1..];
                }
            }
        }
    }
}

const _: () = assert!(ETHERNET + Ipv6::LEN + Udp::LEN < FRAME_MAX);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicU64, Ordering};

    use ferroce_stack::psn::Psn;
    use ferroce_stack::wire::{Bth, Extensions, Headers, Opcode, seal};

    use super::*;

    /// Two addresses of loopback that no other process has.
    fn addresses(test: u8) -> [Ipv4Addr; 2] {
        let [.., high, low] = std::process::id().to_be_bytes();
        [test, test + 1].map(|last| Ipv4Addr::new(127, high | 1, low, last))
    }

    /// A frame as a device makes one, from this port and with this identification.
    fn frame([src, dst]: [Ipv4Addr; 2], source_port: u16, ident: u16) -> Vec<u8> {
        let payload = b"payload";
        let headers = Headers {
            eth: Ethernet { dst: Mac::default(), src: Mac::default(), vlan: None },
            net: Net::V4(Ipv4 { src, dst, tos: 2, ident, dont_fragment: true, ttl: 9 }),
            udp: Udp { source_port, checksum: 0 },
            bth: Bth::new(Opcode::RC_SEND_ONLY, 0x11, Psn::new(5)),
            ext: Extensions::default(),
        };
        let mut bytes = vec![0; 256];
        let layout = headers.emit(payload.len(), &mut bytes).unwrap();
        bytes[layout.payload..][..payload.len()].copy_from_slice(payload);
        let len = seal(&mut bytes, &layout, payload.len());
        bytes.truncate(len);
        bytes
    }

    fn arrivals(receiver: &mut dyn LinkReceiver) -> Vec<Vec<u8>> {
        // Loopback delivers before the sender's call ends.
        assert!(receiver.fetch().unwrap());
        std::iter::from_fn(|| receiver.next().map(|frame| frame.to_vec())).collect()
    }

    fn value(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[test]
    fn icrc_is_that_of_what_the_kernel_sends_and_a_wrong_one_stays_wrong() {
        let own = addresses(1);
        let counters = Arc::new(LinkCounters::default());
        let [mut from, mut to] = own.map(|ip| open(ip.into(), &counters).unwrap());
        let whole = frame(own, 0xc123, 77);
        let mut damaged = whole.clone();
        damaged[50] ^= 1;
        let foreign = frame([Ipv4Addr::new(192, 0, 2, 9), own[1]], 0xc123, 0);
        for bytes in [&whole[..], &damaged, &foreign, b"not a frame at all"] {
            from.sender.room()[..bytes.len()].copy_from_slice(bytes);
            from.sender.push(bytes.len());
        }
        from.sender.flush().unwrap();
        let frames = arrivals(&mut *to.receiver);
        assert_eq!(frames.len(), 2);
        let [first, second] = [0, 1].map(|index| Packet::parse(&frames[index]).unwrap());
        assert!(first.icrc_ok(&frames[0]) && first.payload == b"payload");
        let Net::V4(ip) = first.headers.net else { panic!("{:?}", first.headers) };
        assert_eq!(([ip.src, ip.dst], ip.ident, ip.tos), (own, 0, 2));
        assert_eq!(first.headers.udp.source_port, ROCE_PORT);
        assert!(!second.icrc_ok(&frames[1]));
        let lost = &counters.lost;
        assert_eq!((value(&lost.foreign_source), value(&lost.not_roce)), (1, 1));
        assert_eq!((value(&counters.link_sent), value(&counters.ident_unknown)), (2, 1));
    }

    #[test]
    fn frames_of_a_sender_that_counts_its_packets_are_rebuilt() {
        let own = addresses(3);
        let counters = Arc::new(LinkCounters::default());
        let mut to = open(own[1].into(), &counters).unwrap();
        let from = UdpSocket::bind((own[0], 0)).unwrap();
        let sent = frame(own, from.local_addr().unwrap().port(), 0xbeef);
        from.send_to(&sent[payload_at(own[0].into())..], (own[1], ROCE_PORT)).unwrap();
        let frames = arrivals(&mut *to.receiver);
        let packet = Packet::parse(&frames[0]).unwrap();
        let Net::V4(ip) = packet.headers.net else { panic!("{:?}", packet.headers) };
        assert!(packet.icrc_ok(&frames[0]));
        assert_eq!((ip.ident, value(&counters.ident_recovered)), (0xbeef, 1));
    }
}
