//! Whole Ethernet frames on one interface, by packet sockets; the interface's addresses stay the
//! kernel's, who answers ARP, NDP and all else.
//!
//! One socket receives, of which a filter takes only RoCE; another one, bound to no protocol, only
//! sends.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::net::if_::if_indextoname;

use super::addressing::Addressing;
use super::neighbour::Neighbours;
use super::netlink::Netlink;
use super::silence::Silence;
use super::socket::{Arrival, Departure, Socket};
use super::{
    BATCH, Frames, Link, LinkCounters, LinkError, LinkReceiver, LinkSender, count, filter,
};
use crate::identity;

/// Of both sockets, in bytes: bursts of a full window of several QPs.
const BUFFER: i32 = 8 << 20;

/// How long room to send is waited for at a time.
const SEND_WAIT: Duration = Duration::from_millis(100);

/// How often the system may say that it has no room, with a pause in between, before frames are
/// lost.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);

/// Opens the link of an interface.
pub fn open(name: &str, counters: &Arc<LinkCounters>) -> Result<Link, LinkError> {
    let mut netlink = Netlink::open().map_err(LinkError::io("ask the kernel for interfaces"))?;
    let info = netlink.link(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => LinkError::NoInterface(name.to_owned()),
        _ => LinkError::Io { action: "ask the kernel for the interface", source: error },
    })?;
    if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&info.hardware) {
        return Err(LinkError::NotEthernet(name.to_owned()));
    }
    let (receive, send) =
        sockets(info.index).map_err(LinkError::io("open a packet socket on the interface"))?;
    let is_mute = info.flags & (libc::IFF_NOARP | libc::IFF_LOOPBACK) as u32 != 0;
    let (neighbours, watch) = Neighbours::open(netlink, name, info.index, is_mute)
        .map_err(LinkError::io("follow the kernel's neighbours"))?;
    let addresses = identity::addresses_of(name)
        .map_err(|error| LinkError::Io { action: "list addresses", source: error.errno.into() })?;
    let sender = PacketSender {
        socket: send,
        addressing: Addressing::new(info.mac, info.mtu, neighbours, counters.clone()),
        frames: Frames::default(),
        counters: counters.clone(),
    };
    let receiver = PacketReceiver {
        socket: receive,
        index: info.index,
        frames: Frames::default(),
        counters: counters.clone(),
    };
    Ok(Link {
        receiver: Box::new(receiver),
        sender: Box::new(sender),
        mtu: info.mtu,
        addresses,
        watch: Some(watch),
        silence: Silence::of_interface(name),
    })
}

fn sockets(index: u32) -> io::Result<(Socket, Socket)> {
    // With no protocol nothing is queued before the filter is in place.
    let receive = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    receive.attach(&filter::ROCE)?;
    receive.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    receive.enlarge_buffers(BUFFER);
    // Interfaces that cannot filter groups hear them all anyhow.
    let _ = receive.hear_groups(index);
    // All protocols, not those of the filter: sockets of one protocol get nothing where the
    // firewall drops on ingress.
    receive.bind_packet(index, libc::ETH_P_ALL as u16)?;
    let send = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    send.enlarge_buffers(BUFFER);
    send.limit_waits(SEND_WAIT)?;
    send.bind_packet(index, 0)?;
    Ok((receive, send))
}

#[derive(Debug)]
struct PacketReceiver {
    socket: Socket,
    index: u32,
    frames: Frames,
    counters: Arc<LinkCounters>,
}

impl LinkReceiver for PacketReceiver {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn fetch(&mut self) -> io::Result<bool> {
        if self.frames.has_next() {
            return Ok(true);
        }
        self.frames.clear();
        let mut arrivals = [Arrival::NONE; BATCH];
        let received = match self.socket.receive_batch(self.frames.rooms(0), &mut arrivals) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            outcome => outcome?,
        };
        let arrivals = &arrivals[..received];
        let cut = arrivals.iter().filter(|arrival| arrival.truncated).count();
        count(&self.counters.lost.too_long, cut as u64);
        // A frame that was cut is none.
        self.frames.set(arrivals.iter().map(|a| if a.truncated { 0 } else { a.len }));
        Ok(true)
    }

    fn next(&mut self) -> Option<&mut [u8]> {
        self.frames.next()
    }

    fn look(&self) -> io::Result<()> {
        // To the socket, an interface that is gone is one that is down. No name is what a number
        // has that is none's.
        match if_indextoname(self.index) {
            Ok(name) if !name.is_empty() => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }
}

#[derive(Debug)]
struct PacketSender {
    socket: Socket,
    addressing: Addressing,
    frames: Frames,
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
        if let Some(len) = self.addressing.address(self.frames.room(), len) {
            self.frames.push(len);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // What has waited goes first.
        if self.addressing.may_release() {
            self.neighbours_changed()?;
        }
        let mut departures = [Departure { bytes: &[], to: None }; BATCH];
        let count = self.frames.len();
        for (index, departure) in departures[..count].iter_mut().enumerate() {
            departure.bytes = self.frames.get(index);
        }
        send_all(&self.socket, &departures[..count], &self.counters)?;
        self.frames.clear();
        Ok(())
    }

    fn neighbours_changed(&mut self) -> io::Result<()> {
        let PacketSender { socket, addressing, counters, .. } = self;
        addressing
            .release(|frame| send_all(socket, &[Departure { bytes: frame, to: None }], counters))
    }
}

/// Sends all, or counts what is lost.
fn send_all(
    socket: &Socket,
    mut departures: &[Departure<'_>],
    counters: &LinkCounters,
) -> io::Result<()> {
    let mut tries = 0;
    while !departures.is_empty() {
        match socket.send_batch(departures) {
            Ok(sent) => {
                count(&counters.link_sent, sent as u64);
                departures = &departures[sent..];
                tries = 0;
            }
            // The queue in front of the interface is full; nothing tells when it is not.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && tries < TRIES => {
                tries += 1;
                thread::sleep(PAUSE);
            }
            Err(error) if is_gone(&error) => return Err(error),
            Err(_) => {
                count(&counters.lost.send_failed, 1);
                departures = &departures[1..];
            }
        }
    }
    Ok(())
}

/// Whether the interface is no more, rather than down.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV))
}
