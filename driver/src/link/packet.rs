//! Whole Ethernet frames on one interface, by packet sockets; the interface's addresses stay the
//! kernel's, who answers all but RoCE.
//!
//! One socket receives, of which a filter takes only RoCE; two others, bound to no protocol, only
//! send: one of them frames that go alone, which need no header then.
//!
//! What costs is a buffer of the kernel's, however long it is. So frames of one flow that follow
//! each other are sent as one, which the interface or its peer cuts apart, and come as one where
//! the peer is on this machine, or the kernel has joined them ([`segments`](super::segments)).
//! In front of each frame there is a header that tells so, virtio's, in the byte order of the
//! machine.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::addressing::Addressing;
use super::interface::{self, Interface, Purpose};
use super::ring::{Ring, Taken, VNET};
use super::segments::{ETHERNET, Flow, HEADERS_MAX, Segments, WHOLE_MAX};
use super::sending::{self, BUFFER, Patience};
use super::socket::{Departure, MESSAGES, Socket};
use super::{
    BATCH, Frames, Link, LinkCounters, LinkError, LinkName, LinkReceiver, LinkSender, LostFrames,
    count, filter,
};
use crate::fabric::FRAME_MAX;

/// Of the header in front of a frame: what is to be done with it.
const NEEDS_CHECKSUM: u8 = 1;

/// How frames are joined: not at all, or as UDP datagrams. With either goes a bit that does not
/// matter.
const SINGLE: u8 = 0;
const UDP_SEGMENTS: u8 = 5;
const ECN: u8 = 0x80;

/// Of looks that find nothing, every so many-th asks the socket whether the interface is down: that
/// would not cost too much, and who sleeps until there is something to see does not look in vain
/// for long.
const LOOKS: u32 = 1024;

/// Opens the link of an interface.
pub fn open(link: &LinkName, name: &str, purpose: &Purpose<'_>) -> Result<Link, LinkError> {
    let Interface { index, vid, mtu, line_rate, addresses, addressing, watch, port, silence } =
        Interface::open(link, name, purpose)?;
    let Sockets { receive, ring, send, alone } = Sockets::open(index, vid)
        .map_err(LinkError::io("open a packet socket on the interface"))?;
    let counters = purpose.counters;
    let sender = PacketSender {
        socket: send,
        alone,
        addressing,
        frames: Frames::default(),
        heads: [[0; VNET + HEADERS_MAX]; MESSAGES],
        joins: true,
        counters: counters.clone(),
    };
    let receiver = PacketReceiver {
        socket: receive,
        ring,
        index,
        long: vec![0; VNET + ETHERNET + WHOLE_MAX + 1].into(),
        is_long: false,
        segments: Segments::NONE,
        left: 0,
        looks: 0,
        counters: counters.clone(),
    };
    Ok(Link {
        receiver: Box::new(receiver),
        sender: Box::new(sender),
        mtu,
        line_rate,
        addresses,
        takes_any_address: true,
        watch: Some(watch),
        port,
        silence,
    })
}

struct Sockets {
    receive: Socket,
    ring: Ring,
    send: Socket,
    alone: Socket,
}

impl Sockets {
    fn open(index: u32, vid: u16) -> io::Result<Sockets> {
        // With no protocol nothing is queued before the filter is in place.
        let receive = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        receive.attach(&filter::roce(vid))?;
        receive.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        receive.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        receive.enlarge_buffers(BUFFER);
        let ring = Ring::of(&receive)?;
        // Interfaces that cannot filter groups hear them all anyhow.
        let _ = receive.hear_groups(index);
        // All protocols, not those of the filter: sockets of one protocol get nothing where the
        // firewall drops on ingress.
        receive.bind_packet(index, libc::ETH_P_ALL as u16)?;
        let [send, alone] = [Sockets::to_send()?, Sockets::to_send()?];
        send.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        for socket in [&send, &alone] {
            socket.bind_packet(index, 0)?;
        }
        Ok(Sockets { receive, ring, send, alone })
    }

    fn to_send() -> io::Result<Socket> {
        let socket = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        socket.enlarge_buffers(BUFFER);
        Ok(socket)
    }
}

#[derive(Debug)]
struct PacketReceiver {
    socket: Socket,
    ring: Ring,
    index: u32,
    /// Where frames go that are longer than a slot of the ring.
    long: Box<[u8]>,
    /// The frames at hand are there, not in a slot.
    is_long: bool,
    /// The frames at hand.
    segments: Segments,
    /// How many may be taken until the next fetch.
    left: usize,
    /// How often nothing was found.
    looks: u32,
    counters: Arc<LinkCounters>,
}

impl LinkReceiver for PacketReceiver {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn fetch(&mut self) -> io::Result<bool> {
        if self.segments.is_empty() {
            self.ring.release();
        }
        let any = !self.segments.is_empty() || self.ring.has_next();
        self.left = if any { BATCH } else { 0 };
        if !any {
            self.looks = self.looks.wrapping_add(1);
            if self.looks.is_multiple_of(LOOKS) {
                self.socket.pending_error()?;
            }
        }
        Ok(any)
    }

    fn next(&mut self) -> Option<&mut [u8]> {
        let range = loop {
            if self.left == 0 {
                return None;
            }
            let (segments, buffer) = self.at_hand();
            if let Some(range) = segments.next(buffer) {
                segments.see_whether_numbered(&mut buffer[range.clone()]);
                break range;
            }
            if !self.advance() {
                self.left = 0;
            }
        };
        self.left -= 1;
        Some(&mut self.at_hand().1[range])
    }

    fn look(&self) -> io::Result<()> {
        interface::look(self.index)
    }
}

impl PacketReceiver {
    /// The frames at hand, and where they are.
    fn at_hand(&mut self) -> (&mut Segments, &mut [u8]) {
        let buffer = if self.is_long { &mut self.long[..] } else { self.ring.bytes() };
        (&mut self.segments, buffer)
    }

    /// Goes on to what is in the next slot of the ring; false if there is nothing.
    fn advance(&mut self) -> bool {
        self.ring.release();
        let Some((taken, has_lost)) = self.ring.take() else { return false };
        let lost = &self.counters.lost;
        if has_lost {
            count(&lost.overrun, self.socket.overrun());
        }
        self.is_long = matches!(taken, Taken::AtSocket);
        let outcome = match taken {
            Taken::Here => cut(self.ring.bytes()),
            Taken::AtSocket => match receive(&self.socket, &mut self.long) {
                Some(message) => cut(message),
                None => Err(Uncut::Lost),
            },
            Taken::Lost => Err(Uncut::Lost),
        };
        if self.is_long {
            self.ring.release();
        }
        self.segments = outcome.unwrap_or_else(|reason| {
            count(reason.counter(lost), 1);
            Segments::NONE
        });
        true
    }
}

/// Receives what the socket has kept because it was longer than a slot.
fn receive<'a>(socket: &Socket, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // It is there, but an error goes first, once.
    let len = socket.receive(buffer, false).or_else(|_| socket.receive(buffer, false)).ok()?;
    Some(&buffer[..len])
}

/// Why a message from the system is not cut into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uncut {
    /// It is one frame, and longer than any of RoCE's.
    TooLong,
    /// It is not as its headers say, or made of something else.
    Bad,
    /// There was no room for it.
    Lost,
}

impl Uncut {
    fn counter(self, lost: &LostFrames) -> &AtomicU64 {
        match self {
            Uncut::TooLong => &lost.too_long,
            Uncut::Bad => &lost.joined_badly,
            Uncut::Lost => &lost.overrun,
        }
    }
}

/// The frames of a message, which is [`VNET`] bytes, headers, and payloads. Nothing it says of
/// lengths is believed.
fn cut(message: &[u8]) -> Result<Segments, Uncut> {
    let Some([_, kind, _, _, low, high, ..]) = message.first_chunk::<VNET>() else {
        return Err(Uncut::Bad);
    };
    match kind & !ECN {
        SINGLE if message.len() - VNET > FRAME_MAX => Err(Uncut::TooLong),
        SINGLE => Ok(Segments::whole(VNET..message.len())),
        UDP_SEGMENTS => {
            let size = usize::from(u16::from_ne_bytes([*low, *high]));
            Segments::parse(message, VNET..message.len(), size).ok_or(Uncut::Bad)
        }
        _ => Err(Uncut::Bad),
    }
}

/// The header in front of frames, and those of the frames themselves if several are one.
type Head = [u8; VNET + HEADERS_MAX];

#[derive(Debug)]
struct PacketSender {
    socket: Socket,
    /// For a frame that goes alone.
    alone: Socket,
    addressing: Addressing,
    frames: Frames,
    /// Of messages under way.
    heads: [Head; MESSAGES],
    /// Whether the system cuts frames apart.
    joins: bool,
    counters: Arc<LinkCounters>,
}

impl LinkSender for PacketSender {
    fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    fn room(&mut self) -> &mut [u8] {
        self.frames.room()
    }

    fn push(&mut self, len: usize) {
        if self.addressing.may_release() {
            // What has waited goes first. That the link is gone is found at the next flush, too.
            let _ = self.neighbours_changed();
        }
        if let Some(len) = self.addressing.address(self.frames.room(), len) {
            self.frames.push(len);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.addressing.may_release() {
            self.neighbours_changed()?;
        }
        if self.frames.len() == 1 && self.alone.send(self.frames.get(0), None, false).is_ok() {
            count(&self.counters.link_sent, 1);
            self.frames.clear();
            return Ok(());
        }
        // What is not sent is tried once more, by the other socket, whose errors are judged.
        let (mut done, mut patience) = (0, Patience::default());
        while done < self.frames.len() {
            done += self.send_from(done, &mut patience)?;
        }
        self.frames.clear();
        Ok(())
    }

    fn neighbours_changed(&mut self) -> io::Result<()> {
        let PacketSender { socket, addressing, counters, .. } = self;
        let mut patience = Patience::default();
        addressing.release(|frame| {
            let parts = [IoSlice::new(&[0; VNET]), IoSlice::new(frame)];
            let departure = Departure { parts: &parts, frames: 1, to: None };
            sending::send(socket, &[departure], &mut patience, counters).map(drop)
        })
    }
}

impl PacketSender {
    /// Sends frames of the batch, from one of them on, or counts them as lost; says how many.
    fn send_from(&mut self, from: usize, patience: &mut Patience) -> io::Result<usize> {
        let PacketSender { socket, frames, heads, joins, counters, .. } = self;
        // Of each message, how many frames it has, and how long their headers are if they are
        // joined.
        let mut messages = [(0, 0); MESSAGES];
        let (mut count, mut next) = (0, from);
        while count < MESSAGES && next < frames.len() {
            messages[count] = join(frames, next, *joins, &mut heads[count]);
            next += messages[count].0;
            count += 1;
        }
        let messages = &messages[..count];
        let mut parts = [IoSlice::new(&[]); MESSAGES + BATCH];
        let (mut at, mut frame) = (0, from);
        for (head, &(frames_len, headers_len)) in heads.iter().zip(messages) {
            parts[at] = IoSlice::new(&head[..VNET + headers_len]);
            for part in &mut parts[at + 1..=at + frames_len] {
                *part = IoSlice::new(&frames.get(frame)[headers_len..]);
                frame += 1;
            }
            at += 1 + frames_len;
        }
        let mut departures = [Departure::NONE; MESSAGES];
        let mut rest = &parts[..];
        for (departure, &(frames_len, _)) in departures.iter_mut().zip(messages) {
            let (parts, others) = rest.split_at(1 + frames_len);
            *departure = Departure { parts, frames: frames_len, to: None };
            rest = others;
        }
        let done = sending::send(socket, &departures[..count], patience, counters)?;
        *joins &= from + done == next;
        Ok(done)
    }
}

/// Joins frames of the batch, from one of them on, if they `may` be, and writes what goes in front
/// of them; says how many there are, and how long their headers are if there are several.
fn join(frames: &Frames, from: usize, may: bool, head: &mut Head) -> (usize, usize) {
    let (vnet, headers) = head.split_at_mut(VNET);
    vnet.fill(0);
    let first = frames.get(from);
    let Some(mut flow) = Flow::of(first).filter(|_| may) else { return (1, 0) };
    while from + flow.frames() < frames.len() && flow.join(frames.get(from + flow.frames())) {}
    if flow.frames() == 1 {
        return (1, 0);
    }
    let (headers_len, (udp_at, checksum_at)) = (flow.headers_len(), flow.checksum_at());
    let numbers = [headers_len, first.len() - headers_len, udp_at, checksum_at];
    vnet[..2].copy_from_slice(&[NEEDS_CHECKSUM, UDP_SEGMENTS]);
    for (half, number) in vnet[2..].chunks_exact_mut(2).zip(numbers) {
        // No more than a frame has bytes.
        half.copy_from_slice(&(number as u16).to_ne_bytes());
    }
    flow.put_headers(headers);
    (flow.frames(), headers_len)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::Ordering;
    use std::thread;

    use ferroce_stack::wire::Net;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sched::{CloneFlags, unshare};

    use super::super::segments::tests::{frame, v4, v6};
    use super::*;

    /// How long a test waits for what never comes.
    const GIVE_UP_MS: u16 = 60_000;

    fn tool(command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }

    /// Runs a test with two links at the ends of a cable, in a network namespace of its own. The
    /// near end offers the far one what these options say.
    fn with_cable(options: &[&str], test: fn(Link, Link, &LinkCounters)) {
        let options: Vec<String> = options.iter().map(|text| (*text).to_owned()).collect();
        let run = move || {
            if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("skipped: no new network namespace: {errno}");
                return;
            }
            let made = Command::new("ip")
                .args("link add near numtxqueues 1 type veth peer name far".split(' '))
                .output();
            match made {
                Ok(output) if output.status.success() => {}
                other => return eprintln!("skipped: no pair of interfaces: {other:?}"),
            }
            for name in ["near", "far"] {
                tool(&format!("ip link set {name} mtu 4300 up"));
            }
            tool("ip addr add 192.0.2.1/24 dev near");
            tool("ip addr add fd00::1/64 dev near nodad");
            for ip in ["192.0.2.2", "fd00::2", "192.0.2.3"] {
                let mac = "lladdr 02:02:02:02:02:02 dev near nud permanent";
                tool(&format!("ip neigh add {ip} {mac}"));
            }
            for option in &options {
                let ethtool = Command::new("ethtool").args(option.split(' ')).output();
                match ethtool {
                    Ok(output) if output.status.success() => {}
                    other => return eprintln!("skipped: ethtool {option}: {other:?}"),
                }
            }
            let counters = Arc::new(LinkCounters::default());
            let purpose =
                Purpose { addresses: &[], counters: &counters, tell: &(Arc::new(|_| {}) as _) };
            let [near, far] = ["packet:near", "packet:far"]
                .map(|name| Link::open(&name.parse().unwrap(), &purpose).unwrap());
            test(near, far, &counters);
        };
        thread::spawn(run).join().unwrap();
    }

    fn push(link: &mut Link, frame: &[u8]) {
        if link.sender.is_full() {
            link.sender.flush().unwrap();
        }
        link.sender.room()[..frame.len()].copy_from_slice(frame);
        link.sender.push(frame.len());
    }

    /// A frame without what differs by who has sent it: Ethernet addresses and UDP checksum.
    fn stripped(frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        frame[..12].fill(0);
        let udp_at = if frame[12] == 8 { 34 } else { 54 };
        frame[udp_at + 6..udp_at + 8].fill(0);
        frame
    }

    /// The next frames, until there are so many, and all that were fetched with them.
    fn take(link: &mut Link, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            if !link.receiver.fetch().unwrap() {
                let mut waits = [PollFd::new(link.receiver.descriptor(), PollFlags::POLLIN)];
                let ready = poll(&mut waits, PollTimeout::from(GIVE_UP_MS)).unwrap();
                assert_eq!(ready, 1, "{} of {count} frames have come", frames.len());
            }
            while let Some(frame) = link.receiver.next() {
                frames.push(stripped(frame));
            }
        }
        frames
    }

    fn value(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    /// All that a burst can be made of: unequal lengths, identifications over the end of their
    /// range, two queue pairs in turn, a shorter last packet, IPv6, a packet without payload.
    fn burst() -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let ident = |index: u32| 0xfff0_u16.wrapping_add(index as u16);
        for index in 0..40 {
            let len = [4096, 4096, 256, 4096][index as usize / 10];
            frames.push(frame(v4(1, 2, ident(index)), 0xc001, index, len));
        }
        for index in 40..60 {
            let port = [0xc001, 0xc002][index as usize / 5 % 2];
            frames.push(frame(v4(1, 2, ident(index)), port, index, 1024));
        }
        for index in 60..80 {
            frames.push(frame(v4(1, 2, ident(index)), 0xc001 + index as u16 % 2, index, 64));
        }
        for index in 80..90 {
            let net: Net = v6(1, 2);
            frames.push(frame(net, 0xc001, index, if index == 89 { 0 } else { 1024 }));
        }
        frames.push(frame(v4(1, 3, 5), 0xc001, 90, 0));
        frames
    }

    fn burst_arrives(mut near: Link, mut far: Link, counters: &LinkCounters) {
        let sent = burst();
        for _ in 0..3 {
            sent.iter().for_each(|frame| push(&mut near, frame));
            near.sender.flush().unwrap();
            let expected: Vec<Vec<u8>> = sent.iter().map(|frame| stripped(frame)).collect();
            let arrived = take(&mut far, sent.len());
            assert_eq!(arrived.len(), sent.len());
            for (index, (arrived, expected)) in arrived.iter().zip(&expected).enumerate() {
                assert!(arrived == expected, "frame {index}");
            }
        }
        assert_eq!(value(&counters.link_sent), 3 * sent.len() as u64);
        assert_eq!(counters.lost.iter().map(|(_, count)| count).sum::<u64>(), 0);
    }

    #[test]
    fn a_burst_arrives_where_nobody_cuts_it() {
        with_cable(&[], burst_arrives);
    }

    #[test]
    fn a_burst_arrives_where_the_system_cuts_it() {
        with_cable(&["-K near tx-udp-segmentation off"], burst_arrives);
        with_cable(&["-K near tx off"], burst_arrives);
    }

    #[test]
    fn a_burst_arrives_where_the_peer_takes_no_joined_frames() {
        with_cable(&["-K far gro on", "-K far rx-udp-gro-forwarding on"], burst_arrives);
    }

    #[test]
    fn a_lone_frame_that_cannot_be_sent_is_counted_once() {
        with_cable(&[], |mut near, mut far, counters| {
            let mut send = |len| {
                push(&mut near, &frame(v4(1, 2, 7), 0xc001, 0, len));
                near.sender.flush().unwrap();
            };
            tool("ip link set near mtu 1000");
            send(1024);
            tool("ip link set near down");
            send(64);
            let lost = &counters.lost;
            assert_eq!((value(&lost.too_long), value(&lost.send_failed)), (1, 1));
            assert_eq!(value(&counters.link_sent), 0);
            tool("ip link set near up");
            tool("ip neigh replace 192.0.2.2 lladdr 02:02:02:02:02:02 dev near nud permanent");
            near.sender.neighbours_changed().unwrap();
            push(&mut near, &frame(v4(1, 2, 7), 0xc001, 0, 64));
            near.sender.flush().unwrap();
            assert_eq!(take(&mut far, 1).len(), 1);
            assert_eq!(value(&counters.link_sent), 1);
        });
    }

    #[test]
    fn what_overruns_a_receiver_is_counted_and_the_rest_arrives() {
        with_cable(&[], |mut near, mut far, counters| {
            let one = frame(v4(1, 2, 7), 0xc001, 0, 64);
            // No two of them can be joined.
            (0..3000).for_each(|_| push(&mut near, &one));
            near.sender.flush().unwrap();
            let mut arrived = 0;
            loop {
                arrived += take(&mut far, 1).len() as u64;
                assert!(arrived <= value(&counters.link_sent));
                if arrived + value(&counters.lost.overrun) == value(&counters.link_sent) {
                    break;
                }
                // The kernel tells of what it has dropped when there is room again.
                push(&mut near, &one);
                near.sender.flush().unwrap();
            }
            assert!(value(&counters.lost.overrun) > 0 && arrived > 900);
        });
    }

    #[test]
    fn long_frames_without_room_leave_the_others_in_order() {
        with_cable(&[], |mut near, mut far, counters| {
            let send = |near: &mut Link, bursts: u16| {
                for ident in 0..bursts * 15 {
                    push(near, &frame(v4(1, 2, ident), 0xc001, ident.into(), 4096));
                }
                let mark = frame(v4(1, 2, 0), 0xc002, 0, 64);
                push(near, &mark);
                near.sender.flush().unwrap();
                stripped(&mark)
            };
            let mark = send(&mut near, 400);
            let mut kept = Vec::new();
            while kept.last() != Some(&mark) {
                kept.append(&mut take(&mut far, 1));
            }
            kept.pop();
            let lost = value(&counters.lost.overrun);
            assert!(lost > 0 && kept.len() as u64 + lost * 15 >= 6000, "{} {lost}", kept.len());
            let mark = send(&mut near, 2);
            let all = take(&mut far, 31);
            assert!(all.len() == 31 && all[30] == mark);
            for (ident, arrived) in (0..30).zip(all) {
                let sent = frame(v4(1, 2, ident), 0xc001, ident.into(), 4096);
                assert!(arrived == stripped(&sent), "frame {ident}");
            }
        });
    }

    #[test]
    fn what_is_no_frame_of_ours_is_counted() {
        let message = |kind: u8, size: u16, frame: &[u8]| {
            let [low, high] = size.to_ne_bytes();
            [&[1, kind, 0, 0, low, high, 0, 0, 0, 0], frame].concat()
        };
        let whole = frame(v4(1, 2, 7), 0xc001, 0, 600);
        assert!(cut(&message(0, 0, &whole)).is_ok());
        assert!(cut(&message(5, 100, &whole)).is_ok());
        assert!(cut(&message(0x85, 100, &whole)).is_ok());
        let table = [
            // TCP's, and a datagram in fragments.
            (message(1, 100, &whole), Uncut::Bad),
            (message(3, 100, &whole), Uncut::Bad),
            (message(5, 0, &whole), Uncut::Bad),
            (message(5, 100, &whole[..500]), Uncut::Bad),
            (message(5, 100, &[]), Uncut::Bad),
            (message(5, 9000, &frame(v4(1, 2, 7), 0xc001, 0, 9000)), Uncut::Bad),
            (message(0, 0, &frame(v4(1, 2, 7), 0xc001, 0, 9000)), Uncut::TooLong),
            (vec![0; 5], Uncut::Bad),
        ];
        for (row, (message, expected)) in table.iter().enumerate() {
            assert_eq!(cut(message).err(), Some(*expected), "row {row}");
        }
    }
}
