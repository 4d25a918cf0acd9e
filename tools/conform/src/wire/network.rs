//! Frames to and from a target: a link to receive by, a packet socket to send by.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ferroce::link::{Conflict, Link, LinkCounters, LinkKind, LinkName, Purpose};
use ferroce_stack::wire::Mac;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, send, socket,
};

use super::{WireError, resolve};

/// The wire between peer and target.
#[derive(Debug)]
pub struct Network {
    link: Link,
    sender: OwnedFd,
    /// The peer's address.
    pub own: IpAddr,
    /// The peer's Ethernet address.
    pub own_mac: Mac,
    /// The target's Ethernet address.
    pub target_mac: Mac,
}

impl Network {
    /// Opens the link, with these addresses of the peer's own, and finds the target on it.
    pub fn open(
        name: &LinkName,
        addresses: &[IpAddr],
        target: IpAddr,
    ) -> Result<Network, WireError> {
        let interface = match &name.kind {
            LinkKind::Packet(interface) | LinkKind::Xdp(interface) => interface,
            LinkKind::Udp(_) => {
                return Err(WireError::Unfit(
                    "by a link udp:ADDR the kernel writes headers that scenarios are about; \
                     use packet:IFACE or xdp:IFACE",
                ));
            }
        };
        if name.vlan.is_some() || name.v1 {
            return Err(WireError::Unfit(
                "a scenario's link takes neither vlan= nor v1; use the VLAN's interface",
            ));
        }
        let conflict = Arc::new(Mutex::new(None));
        let heard = conflict.clone();
        let tell = Arc::new(move |conflict: Conflict| {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(conflict.ip);
        });
        let counters = Arc::new(LinkCounters::default());
        let purpose = Purpose { addresses, counters: &counters, tell: &(tell as _) };
        let link = Link::open(name, &purpose).map_err(WireError::Link)?;
        if let Some(ip) = *conflict.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(WireError::Taken(ip));
        }
        let is_of_kind = |ip: &&IpAddr| ip.is_ipv4() == target.is_ipv4();
        let own = addresses.iter().chain(&link.addresses).find(is_of_kind).copied();
        let own = own.ok_or(WireError::NoAddress(target))?;
        let place = place_of(interface)?;
        let own_mac = Mac(place.addr().unwrap_or_default());
        let target_mac = resolve::resolve(&place, (own, own_mac), target)?;
        let sender = open_socket(&place, None).map_err(WireError::io("open a packet socket"))?;
        Ok(Network { link, sender, own, own_mac, target_mac })
    }

    /// Readable when frames have arrived.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.receiver.descriptor()
    }

    /// The next of the frames that have arrived.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let receiver = &mut self.link.receiver;
        loop {
            if let Some(frame) = receiver.next() {
                return Ok(Some(frame.to_vec()));
            }
            if !receiver.fetch()? {
                return Ok(None);
            }
        }
    }

    /// Sends a frame as it is.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            match send(self.sender.as_raw_fd(), frame, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// A packet socket on an interface; with no protocol it receives nothing.
pub fn open_socket(place: &LinkAddr, protocol: Option<SockProtocol>) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, protocol)?;
    bind(socket.as_raw_fd(), place)?;
    Ok(socket)
}

/// An interface, as packet sockets name it.
fn place_of(interface: &str) -> Result<LinkAddr, WireError> {
    let all = getifaddrs().map_err(WireError::io("list the interfaces"))?;
    all.filter(|one| one.interface_name == interface)
        .find_map(|one| one.address?.as_link_addr().copied())
        .ok_or_else(|| WireError::io("find the interface")(io::ErrorKind::NotFound))
}
