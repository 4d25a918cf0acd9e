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
//!
//! Datagrams to one address that follow each other are sent as one, and cut apart by the kernel or
//! the interface, which number them from 0; those of one sender come as one where the kernel can
//! join them ([`segments`](super::segments)).

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ferroce_stack::icrc::Reach;
use ferroce_stack::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ipv4, Ipv6, Mac, Net, ROCE_PORT, Udp,
};

use super::netlink::{LinkInfo, Netlink};
use super::segments::{
    self, ETHERNET, HEADERS_MAX, Head, Ident, JOINED_MAX, Segments, V4_IDENT, V4_UDP, WHOLE_MAX,
};
use super::sending::{self, BUFFER, Patience};
use super::silence::Silence;
use super::socket::{Arrival, Departure, MESSAGES, Recipient, Socket};
use super::udp_groups::{GroupReceiver, GroupSockets};
use super::{
    BATCH, Frames, Link, LinkCounters, LinkError, LinkPort, LinkReceiver, LinkSender, LostFrames,
    count,
};
use crate::fabric::destination;
use crate::identity;

/// Nobody looks at it: the packet has been received.
const HOPS: u8 = 64;

/// In front of a received datagram's payload, room for its headers.
const IN_FRONT: usize = HEADERS_MAX.next_multiple_of(64);

/// Room for what is received as one, in whole cache lines, and not in a whole number of pages:
/// else all of it would be in the same lines of the cache.
const ROOM: usize = IN_FRONT + (WHOLE_MAX + 1);

/// Bytes of the ICRC.
const ICRC: usize = 4;

/// Payloads of datagrams that are sent as one, at most, in bytes.
const PAYLOADS_MAX: usize = WHOLE_MAX - Ipv6::LEN - Udp::LEN;

/// Opens the link of an address.
pub fn open(address: IpAddr, counters: &Arc<LinkCounters>) -> Result<Link, LinkError> {
    let (LinkInfo { index, mtu, .. }, line_rate) = interface_of(address)?;
    let own = SocketAddr::new(address, ROCE_PORT);
    let socket = bind(own).map_err(LinkError::io("bind UDP port 4791 of the address"))?;
    let socket = Arc::new(socket);
    let groups = GroupSockets::new(&socket, address, index)
        .map_err(LinkError::io("send to multicast groups"))?;
    let groups = Arc::new(groups);
    let receiver = UdpReceiver::new(socket.clone(), address, counters.clone());
    let sender = UdpSender {
        socket,
        own,
        mtu,
        frames: Frames::default(),
        payloads: [Payload::NONE; BATCH],
        joins: true,
        reach: Reach::new(0),
        counters: counters.clone(),
    };
    Ok(Link {
        receiver: Box::new(GroupReceiver::new(receiver, groups.clone())),
        sender: Box::new(sender),
        mtu,
        line_rate,
        addresses: vec![address],
        takes_any_address: false,
        watch: None,
        port: LinkPort::of_address(index, address, groups, counters)
            .map_err(LinkError::io("follow the interface"))?,
        // The socket is at the port.
        silence: Silence::default(),
    })
}

/// The interface that has the address, and the rate of its link in bit/s, if it knows it.
fn interface_of(address: IpAddr) -> Result<(LinkInfo, Option<u64>), LinkError> {
    let name = identity::interface_of(address)
        .map_err(LinkError::interfaces)?
        .ok_or(LinkError::NoAddress(address))?;
    let mut netlink = Netlink::open().map_err(LinkError::io("ask the kernel for interfaces"))?;
    let info = netlink.link(&name);
    let info = info.map_err(LinkError::io("ask the kernel for the interface"))?;
    Ok((info, netlink.line_rate(&name)))
}

fn bind(own: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::udp(own.ip())?;
    set_up(&socket, own.ip())?;
    socket.enlarge_buffers(BUFFER);
    socket.bind(own)?;
    Ok(socket)
}

/// Makes a socket of the address's family one for RoCE.
pub fn set_up(socket: &Socket, own: IpAddr) -> io::Result<()> {
    match own {
        IpAddr::V4(_) => {
            socket.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            socket.set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        }
        IpAddr::V6(_) => {
            let discover = libc::IPV6_PMTUDISC_DO;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, discover)?;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            // RoCE's senders leave the checksum out; there is the ICRC.
            socket.set(libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
        }
    }
    // Without it, datagrams come one by one.
    let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, 1);
    Ok(())
}

/// Receives what comes to one address, or one group.
#[derive(Debug)]
pub struct UdpReceiver {
    socket: Arc<Socket>,
    own: IpAddr,
    /// What is received, at [`ROOM`] bytes each.
    bytes: Box<[u8]>,
    arrivals: [Arrival; MESSAGES],
    /// The last fetch filled its one place, or found several.
    expects_several: bool,
    /// How many there are, and how many have been begun with.
    count: usize,
    begun: usize,
    /// The datagrams of the one begun with last.
    segments: Segments,
    /// The first of them had an identification, so its sender counts its packets.
    counts: bool,
    counters: Arc<LinkCounters>,
}

impl LinkReceiver for UdpReceiver {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn fetch(&mut self) -> io::Result<bool> {
        if self.has_next() {
            return Ok(true);
        }
        (self.count, self.begun) = (0, 0);
        let rooms = self.bytes.chunks_exact_mut(ROOM).map(|room| &mut room[IN_FRONT..]);
        let [first, ..] = &mut self.arrivals;
        let expects_several = std::mem::take(&mut self.expects_several);
        let outcome = match expects_several {
            true => self.socket.receive_batch(rooms, &mut self.arrivals),
            false => self.socket.receive_batch(rooms, std::array::from_mut(first)),
        };
        self.count = match outcome {
            // What a host has answered to a datagram of ours.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            outcome => outcome?,
        };
        self.expects_several = !expects_several || self.count > 1;
        Ok(true)
    }

    fn next(&mut self) -> Option<&mut [u8]> {
        let (at, range) = loop {
            let at = self.begun.saturating_sub(1) * ROOM;
            let buffer = &mut self.bytes[at..][..ROOM];
            let is_first = self.segments.cut() == 0;
            if let Some(range) = self.segments.next(buffer) {
                match self.segments.find_ident(&mut buffer[range.clone()]) {
                    Ident::Known => {}
                    Ident::Recovered => count(&self.counters.ident_recovered, 1),
                    Ident::Unknown => count(&self.counters.ident_unknown, 1),
                }
                if is_first {
                    self.counts = self.segments.ident() != 0;
                }
                break (at, range);
            }
            if !self.begin() {
                return None;
            }
        };
        Some(&mut self.bytes[at..][range])
    }

    fn look(&self) -> io::Result<()> {
        Ok(())
    }
}

impl UdpReceiver {
    /// Receives by a socket that is bound to `own`.
    pub fn new(socket: Arc<Socket>, own: IpAddr, counters: Arc<LinkCounters>) -> UdpReceiver {
        UdpReceiver {
            socket,
            own,
            bytes: vec![0; MESSAGES * ROOM].into(),
            arrivals: [Arrival::NONE; MESSAGES],
            expects_several: false,
            count: 0,
            begun: 0,
            segments: Segments::NONE,
            counts: false,
            counters,
        }
    }

    /// Receives by another socket from now on; all that was fetched must have been taken.
    pub fn turn_to(&mut self, socket: Arc<Socket>, own: IpAddr) {
        (self.socket, self.own, self.counts) = (socket, own, false);
    }

    /// Whether there are frames left of the last time.
    pub fn has_next(&self) -> bool {
        !self.segments.is_empty() || self.begun < self.count
    }

    /// What counts what it drops.
    pub fn counters(&self) -> &Arc<LinkCounters> {
        &self.counters
    }

    /// Begins with the next arrival; false if there is none.
    fn begin(&mut self) -> bool {
        let Some(arrival) = self.arrivals[..self.count].get(self.begun) else { return false };
        self.begun += 1;
        let ident = if self.counts { self.segments.ident().wrapping_add(1) } else { 0 };
        self.segments = match segments(arrival, self.own, ident) {
            Some(segments) => segments,
            None => {
                let lost = &self.counters.lost;
                count(if arrival.len == 0 { &lost.not_roce } else { &lost.too_long }, 1);
                Segments::NONE
            }
        };
        true
    }
}

/// The datagrams of an arrival, with headers as their sender must have written them, but for what
/// only it knows. None if there are none, or they are too long.
fn segments(arrival: &Arrival, own: IpAddr, ident: u16) -> Option<Segments> {
    let &Arrival { len, truncated, from, traffic_class, segment } = arrival;
    let from = from.filter(|_| !truncated)?;
    // Between members and gateway nobody looks at Ethernet addresses.
    let eth = Ethernet { dst: Mac::default(), src: Mac::default(), vlan: None };
    let (net, ethertype) = match (from.ip(), own) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (tos, ttl) = (traffic_class, HOPS);
            let ip = Ipv4 { src, dst, tos, ident, dont_fragment: true, ttl };
            (Net::V4(ip), ETHERTYPE_IPV4)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ip = Ipv6 { src, dst, traffic_class, flow_label: 0, hop_limit: HOPS };
            (Net::V6(ip), ETHERTYPE_IPV6)
        }
        // A socket takes packets of its own family only.
        _ => return None,
    };
    let mut head = Head { eth: [0; ETHERNET], net, source_port: from.port() };
    eth.emit(ethertype, &mut head.eth);
    let size = if segment == 0 { len } else { segment };
    Segments::of(head, IN_FRONT..IN_FRONT + len, size)
}

#[derive(Debug)]
struct UdpSender {
    socket: Arc<Socket>,
    own: SocketAddr,
    mtu: usize,
    frames: Frames,
    /// Of each of them.
    payloads: [Payload; BATCH],
    /// Whether the system cuts datagrams apart.
    joins: bool,
    /// Of the frame before.
    reach: Reach,
    counters: Arc<LinkCounters>,
}

/// What of a frame is a datagram's payload, and where that goes.
#[derive(Clone, Copy, Debug)]
struct Payload {
    /// Where the UDP header before it stands.
    udp_at: usize,
    /// Where it and the frame end.
    end: usize,
    to: Recipient,
    /// How many it is sent with as one before it, and how many bytes they make with it.
    index: usize,
    sum: usize,
}

impl Payload {
    /// Nothing, to nowhere.
    const NONE: Payload = Payload {
        udp_at: 0,
        end: Udp::LEN,
        to: Recipient {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            traffic_class: 0,
            segment: 0,
        },
        index: 0,
        sum: 0,
    };

    /// The same, sent alone.
    fn alone(self) -> Payload {
        let len = self.range().len();
        // No more than a frame has bytes.
        let to = Recipient { segment: len as u16, ..self.to };
        Payload { to, index: 0, sum: len, ..self }
    }

    /// Bytes.
    fn range(&self) -> Range<usize> {
        self.udp_at + Udp::LEN..self.end
    }

    /// Sends it as one with the payload before it, if it can be.
    fn join(&mut self, before: &Payload) {
        let len = self.range().len();
        let segment = usize::from(before.to.segment);
        if before.range().len() == segment
            && len <= segment
            && before.index + 1 < JOINED_MAX
            && before.sum + len <= PAYLOADS_MAX
            && (before.to.address, before.to.traffic_class)
                == (self.to.address, self.to.traffic_class)
        {
            self.to = before.to;
            self.index = before.index + 1;
            self.sum = before.sum + len;
        }
    }
}

impl LinkSender for UdpSender {
    fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    fn room(&mut self) -> &mut [u8] {
        self.frames.room()
    }

    fn push(&mut self, len: usize) {
        let at = self.frames.len();
        let frame = &mut self.frames.room()[..len];
        let mut payload = match judge(frame, self.own, self.mtu) {
            Ok(payload) => payload,
            Err(reason) => return count(reason(&self.counters.lost), 1),
        };
        if self.joins && at > 0 {
            payload.join(&self.payloads[at - 1]);
        }
        prepare(frame, &payload, self.own.port(), &mut self.reach);
        self.payloads[at] = payload;
        self.frames.push(len);
    }

    fn flush(&mut self) -> io::Result<()> {
        let (mut done, mut patience) = (0, Patience::default());
        while done < self.frames.len() {
            let (sent, was_refused) = self.send_from(done, &mut patience)?;
            done += sent;
            if was_refused {
                self.part(done);
            }
        }
        self.frames.clear();
        Ok(())
    }

    fn neighbours_changed(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl UdpSender {
    /// Sends frames of the batch, from one of them on, or counts them as lost; says how many, and
    /// whether the system would not cut the others apart.
    fn send_from(&self, from: usize, patience: &mut Patience) -> io::Result<(usize, bool)> {
        let UdpSender { socket, frames, payloads, counters, .. } = self;
        let payloads = &payloads[..frames.len()];
        let mut parts = [IoSlice::new(&[]); BATCH];
        for (index, payload) in payloads.iter().enumerate().skip(from) {
            parts[index] = IoSlice::new(&frames.get(index)[payload.range()]);
        }
        let mut departures = [Departure::NONE; MESSAGES];
        let (mut count, mut next) = (0, from);
        while count < MESSAGES && next < payloads.len() {
            let joined = payloads[next + 1..].iter().take_while(|payload| payload.index > 0);
            let frames = 1 + joined.count();
            let (parts, to) = (&parts[next..next + frames], Some(payloads[next].to));
            departures[count] = Departure { parts, frames, to };
            next += frames;
            count += 1;
        }
        let done = sending::send(socket, &departures[..count], patience, counters)?;
        Ok((done, from + done < next))
    }

    /// Has the frames of the batch, from one of them on, and all that follow, sent alone.
    fn part(&mut self, from: usize) {
        self.joins = false;
        for index in from..self.frames.len() {
            let payload = &mut self.payloads[index];
            *payload = payload.alone();
            let frame = self.frames.get_mut(index);
            prepare(frame, payload, self.own.port(), &mut self.reach);
        }
    }
}

/// A counter of frames that are lost.
type Reason = fn(&LostFrames) -> &AtomicU64;

/// The payload of a frame, sent alone, or why it cannot be sent.
fn judge(frame: &[u8], own: SocketAddr, mtu: usize) -> Result<Payload, Reason> {
    // What is behind the UDP header, its receiver judges.
    let udp_at = segments::udp_at(frame).filter(|_| destination(frame).is_some());
    let Some(udp_at) = udp_at else { return Err(|lost| &lost.not_roce) };
    let header = &frame[ETHERNET..];
    let (from, to, traffic_class) = match udp_at {
        V4_UDP => {
            // The kernel would write a right one.
            if !is_checksum_right(header) {
                return Err(|lost| &lost.not_roce);
            }
            let ip = Ipv4::parse(header);
            (IpAddr::V4(ip.src), IpAddr::V4(ip.dst), ip.tos)
        }
        _ => {
            let ip = Ipv6::parse(header);
            (IpAddr::V6(ip.src), IpAddr::V6(ip.dst), ip.traffic_class)
        }
    };
    if from != own.ip() {
        return Err(|lost| &lost.foreign_source);
    }
    if header.len() > mtu {
        return Err(|lost| &lost.too_long);
    }
    let to = Recipient { address: SocketAddr::new(to, ROCE_PORT), traffic_class, segment: 0 };
    Ok(Payload { udp_at, end: frame.len(), to, ..Payload::NONE }.alone())
}

/// Whether the ones' complement sum of an IPv4 header without options is all ones.
fn is_checksum_right(header: &[u8]) -> bool {
    let halves = header[..Ipv4::LEN].chunks_exact(2);
    let sum: u32 = halves.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Makes the ICRC that of the datagram as it will be: sent from this port, so many before it.
/// `reach` is that of another frame, or this one's.
fn prepare(frame: &mut [u8], payload: &Payload, port: u16, reach: &mut Reach) {
    // From the identification, which IPv4 has, to the source port.
    const SPAN: usize = V4_UDP + PORT - V4_IDENT;
    const IDENT: usize = 4;
    const PORT: usize = 2;
    const DONT_FRAGMENT: u8 = 0x40;
    let &Payload { udp_at, end, index, .. } = payload;
    let mut change = [0; SPAN];
    if udp_at == V4_UDP {
        // No more than are sent as one. They may not be cut.
        let [high, low] = (index as u16).to_be_bytes();
        let ident = [high, low, DONT_FRAGMENT, 0];
        replace(&mut frame[V4_IDENT..][..IDENT], &ident, &mut change);
    }
    replace(&mut frame[udp_at..][..PORT], &port.to_be_bytes(), &mut change[SPAN - PORT..]);
    let distance = end - ICRC - udp_at - PORT;
    if reach.distance() != distance {
        *reach = Reach::new(distance);
    }
    let icrc = &mut frame[end - ICRC..];
    icrc.iter_mut().zip(reach.change(&change).to_le_bytes()).for_each(|(byte, of)| *byte ^= of);
}

/// Replaces bytes, and says how they differ.
fn replace(bytes: &mut [u8], by: &[u8], change: &mut [u8]) {
    for ((byte, by), change) in bytes.iter_mut().zip(by).zip(change) {
        *change = *byte ^ by;
        *byte = *by;
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::Ordering;

    use ferroce_stack::wire::Packet;

    use super::*;

    /// Two addresses of loopback that no other process has.
    fn addresses(test: u8) -> [Ipv4Addr; 2] {
        let [.., high, low] = std::process::id().to_be_bytes();
        [test, test + 1].map(|last| Ipv4Addr::new(127, high | 1, low, last))
    }

    /// A frame as a device makes one, from this port and with this identification.
    fn frame(own: [Ipv4Addr; 2], source_port: u16, ident: u16) -> Vec<u8> {
        segments::tests::frame(header(own, ident), source_port, 5, 7)
    }

    fn header([src, dst]: [Ipv4Addr; 2], ident: u16) -> Net {
        Net::V4(Ipv4 { src, dst, tos: 2, ident, dont_fragment: true, ttl: 9 })
    }

    fn arrivals(receiver: &mut dyn LinkReceiver) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        // Loopback delivers before the sender's call ends.
        while receiver.fetch().unwrap() {
            frames.extend(std::iter::from_fn(|| receiver.next().map(|frame| frame.to_vec())));
        }
        frames
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
        let mut unsummed = whole.clone();
        unsummed[22] ^= 1;
        let foreign = frame([Ipv4Addr::new(192, 0, 2, 9), own[1]], 0xc123, 0);
        for bytes in [&whole[..], &damaged, &unsummed, &foreign, b"not a frame at all"] {
            from.sender.room()[..bytes.len()].copy_from_slice(bytes);
            from.sender.push(bytes.len());
        }
        from.sender.flush().unwrap();
        let frames = arrivals(&mut *to.receiver);
        assert_eq!(frames.len(), 2);
        let [first, second] = [0, 1].map(|index| Packet::parse(&frames[index]).unwrap());
        assert!(first.icrc_ok(&frames[0]) && first.payload.len() == 7);
        let Net::V4(ip) = first.headers.net else { panic!("{:?}", first.headers) };
        assert_eq!(([ip.src, ip.dst], ip.ident, ip.tos), (own, 0, 2));
        assert_eq!(first.headers.udp.source_port, ROCE_PORT);
        assert!(!second.icrc_ok(&frames[1]));
        let lost = &counters.lost;
        assert_eq!((value(&lost.foreign_source), value(&lost.not_roce)), (1, 2));
        assert_eq!((value(&counters.link_sent), value(&counters.ident_unknown)), (2, 1));
    }

    #[test]
    fn frames_of_a_sender_that_counts_its_packets_are_rebuilt() {
        let own = addresses(3);
        let counters = Arc::new(LinkCounters::default());
        let mut to = open(own[1].into(), &counters).unwrap();
        let from = UdpSocket::bind((own[0], 0)).unwrap();
        let sent = frame(own, from.local_addr().unwrap().port(), 0xbeef);
        from.send_to(&sent[ETHERNET + Ipv4::LEN + Udp::LEN..], (own[1], ROCE_PORT)).unwrap();
        let frames = arrivals(&mut *to.receiver);
        let packet = Packet::parse(&frames[0]).unwrap();
        let Net::V4(ip) = packet.headers.net else { panic!("{:?}", packet.headers) };
        assert!(packet.icrc_ok(&frames[0]));
        assert_eq!((ip.ident, value(&counters.ident_recovered)), (0xbeef, 1));
    }

    /// Datagrams of unequal lengths, the ends of what can be sent as one among them, to two
    /// addresses; the number of each is in its PSN.
    fn burst(own: [Ipv4Addr; 3]) -> Vec<Vec<u8>> {
        let lens = [(70, 1024), (1, 16), (20, 4096), (40, 64), (1, 68), (9, 0)];
        let lens = lens.iter().flat_map(|&(count, len)| std::iter::repeat_n(len, count));
        let frame = |(index, len): (usize, usize)| {
            let to = if (95..105).contains(&index) { own[2] } else { own[1] };
            let net = header([own[0], to], index as u16 + 0x100);
            segments::tests::frame(net, 0xc001, index as u32, len)
        };
        lens.enumerate().map(frame).collect()
    }

    /// The PSNs of what has come for one of the addresses, all of it being right.
    fn psns(receiver: &mut dyn LinkReceiver) -> Vec<u32> {
        let number = |frame: Vec<u8>| {
            let packet = Packet::parse(&frame).unwrap();
            assert!(packet.icrc_ok(&frame));
            packet.headers.bth.psn.value()
        };
        arrivals(receiver).into_iter().map(number).collect()
    }

    #[test]
    fn a_burst_arrives_in_order_whether_or_not_it_is_joined() {
        let [a, b] = addresses(5);
        let own = [a, b, addresses(7)[0]];
        let counters = Arc::new(LinkCounters::default());
        let [mut to, mut third] = [own[1], own[2]].map(|ip| open(ip.into(), &counters).unwrap());
        let from = SocketAddr::new(a.into(), ROCE_PORT);
        let mut sender = UdpSender {
            socket: Arc::new(bind(from).unwrap()),
            own: from,
            mtu: 65535,
            frames: Frames::default(),
            payloads: [Payload::NONE; BATCH],
            joins: true,
            reach: Reach::new(0),
            counters: counters.clone(),
        };
        let burst = burst(own);
        for round in 0..2 {
            for (index, frame) in burst.iter().enumerate() {
                // The second time the system turns out not to cut datagrams apart.
                if sender.is_full() || (round == 1 && index == 20) {
                    if round == 1 {
                        sender.part(0);
                    }
                    sender.flush().unwrap();
                }
                sender.room()[..frame.len()].copy_from_slice(frame);
                sender.push(frame.len());
            }
            assert_eq!(sender.payloads.iter().any(|payload| payload.index > 0), round == 0);
            sender.flush().unwrap();
            let others: Vec<u32> = (0..95).chain(105..141).collect();
            assert_eq!(psns(&mut *to.receiver), others);
            assert_eq!(psns(&mut *third.receiver), (95..105).collect::<Vec<u32>>());
        }
        let all = 2 * burst.len() as u64;
        let (known, sent) = (&counters.ident_recovered, value(&counters.link_sent));
        assert_eq!((value(known), value(&counters.ident_unknown), sent), (0, 0, all));
    }
}
