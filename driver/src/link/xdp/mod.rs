//! Whole Ethernet frames on one interface, by AF_XDP: the driver, or the kernel for it, puts them
//! into memory of ours and takes them from there. The interface's addresses stay the kernel's, who
//! answers ARP, NDP and all else, and gets what is not RoCE.
//!
//! Every queue that receives has a socket; the first one's sends as well. A [`program`] on the
//! interface brings each frame of RoCE to the socket of its queue. It is gone with the process.

mod attach;
mod error;
mod program;
mod receiver;
mod ring;
mod sender;
mod socket;
#[allow(unsafe_code)]
mod sys;
#[allow(unsafe_code)]
mod umem;

use std::os::fd::AsFd;

use attach::Selection;
use receiver::XdpReceiver;
use sender::XdpSender;
use socket::{Halves, Place, ReceiveHalf, SendHalf, Sizes};
use umem::CHUNK;

use super::ethtool;
use super::interface::{Interface, Purpose};
use super::socket::Socket;
use super::{Link, LinkError, LinkName};
use crate::fabric::FRAME_MAX;

pub use error::XdpError;

/// Sockets there may be.
const QUEUES: u32 = 16;

/// Chunks to receive into, of one queue or of all, and the least for one; a frame of 4 KiB has two.
const RECEIVE: u32 = 2048;
const RECEIVE_LEAST: u32 = 512;

/// Chunks to send from, two for a frame, and of queues that do not send.
const SEND: u32 = 512;
const SEND_NOTHING: u32 = 2;

/// Bytes of a frame that one chunk holds when it arrives.
const ARRIVES: usize = CHUNK - 256;

/// Bytes of an Ethernet header, with a VLAN tag.
const ETHERNET: usize = 18;

/// Opens the link of an interface.
pub fn open(link: &LinkName, name: &str, purpose: &Purpose<'_>) -> Result<Link, LinkError> {
    let Interface { index, vid, mtu, line_rate, addresses, addressing, watch, port, silence } =
        Interface::open(link, name, purpose)?;
    let queues = receive_queues(name)?;
    // First what needs most rights.
    let map = attach::make_map(queues)?;
    let (receive, send, bears_frags) = sockets(index, queues)?;
    for (queue, half) in (0..).zip(&receive) {
        sys::put(map.as_fd(), queue, half.socket.as_fd())
            .map_err(XdpError::at("put a socket into the map"))?;
    }
    let selection = Selection { interface: index, vid, bears_frags, is_generic: link.generic };
    let program = attach::attach(map.as_fd(), selection)?;
    let counters = purpose.counters;
    let receiver = XdpReceiver::new(program, receive, index, counters.clone())
        .map_err(XdpError::at("wait for several sockets"))?;
    let (frame_max, sends) = if bears_frags { (FRAME_MAX, FRAME_MAX) } else { (ARRIVES, CHUNK) };
    Ok(Link {
        receiver: Box::new(receiver),
        sender: Box::new(XdpSender::new(send, sends, addressing, counters.clone())),
        mtu: mtu.min(frame_max - ETHERNET),
        line_rate,
        addresses,
        takes_any_address: true,
        watch: Some(watch),
        port,
        silence,
    })
}

/// How many queues of an interface receive.
fn receive_queues(interface: &str) -> Result<u32, XdpError> {
    let any = Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(XdpError::at(COUNT))?;
    let queues = match ethtool::receive_queues(any.as_fd(), interface) {
        // Virtual interfaces have one.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => 1,
        outcome => outcome.map_err(XdpError::at(COUNT))?.max(1),
    };
    match queues <= QUEUES {
        true => Ok(queues),
        false => Err(XdpError::too_many_queues(interface, queues, QUEUES)),
    }
}

const COUNT: &str = "count the interface's queues";

/// A socket for each queue: all receive, the first one also sends. Says whether frames may have
/// several chunks.
fn sockets(interface: u32, queues: u32) -> Result<(Vec<ReceiveHalf>, SendHalf, bool), XdpError> {
    let each = (RECEIVE / queues.next_power_of_two()).max(RECEIVE_LEAST);
    let sizes = Sizes { receive: each, send: SEND };
    let Halves { receive, send, mut bears_frags } =
        socket::open(Place { interface, queue: 0 }, sizes)?;
    let mut all = vec![receive];
    for queue in 1..queues {
        let sizes = Sizes { receive: each, send: SEND_NOTHING };
        let halves = socket::open(Place { interface, queue }, sizes)?;
        bears_frags &= halves.bears_frags;
        all.push(halves.receive);
    }
    Ok((all, send, bears_frags))
}
