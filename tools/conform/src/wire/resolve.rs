//! The target's Ethernet address, by ARP or neighbour discovery: asked from the peer's address,
//! which the kernel of this machine need not have.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use ferroce_stack::gid::Gid;
use ferroce_stack::wire::{Ethernet, Mac, Neighbour, NeighbourMessage};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{LinkAddr, MsgFlags, SockProtocol, recv, send};
use nix::sys::time::TimeSpec;

use super::WireError;
use super::network::open_socket;

/// It is asked so often, and has so long to answer each time.
const TRIES: usize = 5;
const WAIT: Duration = Duration::from_millis(600);

/// No frame of address resolution is longer, in bytes.
const FRAME: usize = 512;

/// Asks who has an address, from one of the peer's.
pub fn resolve(
    place: &LinkAddr,
    (own, own_mac): (IpAddr, Mac),
    target: IpAddr,
) -> Result<Mac, WireError> {
    let failed = WireError::io("look for the target on the link");
    let question = question(own, own_mac, target).ok_or(WireError::NoAddress(target))?;
    let mut asked = [0; FRAME];
    let len = question.emit(&mut asked).map_err(|_| WireError::Silent(target))?;
    let socket = open_socket(place, Some(SockProtocol::EthAll)).map_err(&failed)?;
    for _ in 0..TRIES {
        send(socket.as_raw_fd(), &asked[..len], MsgFlags::empty()).map_err(&failed)?;
        let deadline = Instant::now() + WAIT;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let mut waits = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut waits, Some(TimeSpec::from_duration(left)), None) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(failed(errno)),
            }
            let mut frame = [0; FRAME];
            let len = recv(socket.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).unwrap_or(0);
            if let Some(mac) = answer(&frame[..len], target) {
                return Ok(mac);
            }
        }
    }
    Err(WireError::Silent(target))
}

/// Who has the target's address? None if ours is of another kind.
fn question(own: IpAddr, own_mac: Mac, target: IpAddr) -> Option<Neighbour> {
    let (to, message) = match (own, target) {
        (IpAddr::V4(sender), IpAddr::V4(target)) => {
            let message = NeighbourMessage::ArpRequest { sender, sender_mac: own_mac, target };
            (Mac::BROADCAST, message)
        }
        (IpAddr::V6(src), IpAddr::V6(target)) => {
            let dst = solicited_node(target);
            let to = Gid::from(dst).multicast_mac()?;
            (to, NeighbourMessage::Solicitation { src, dst, src_mac: Some(own_mac), target })
        }
        _ => return None,
    };
    Some(Neighbour { eth: Ethernet { dst: to, src: own_mac, vlan: None }, message })
}

/// The group that a solicitation for an address goes to (RFC 4291 2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    let [high, low] = [u16::from_be_bytes([0xff, a]), u16::from_be_bytes([b, c])];
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// The target's Ethernet address, if that is what a frame tells.
fn answer(frame: &[u8], target: IpAddr) -> Option<Mac> {
    match Neighbour::parse(frame)?.message {
        NeighbourMessage::ArpReply { sender, sender_mac, .. } if target == sender => {
            Some(sender_mac)
        }
        NeighbourMessage::Advertisement { target: told, target_mac, .. } if target == told => {
            target_mac
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_question_is_of_the_addresses_kind() {
        let asked = question(ip("192.0.2.1"), OWN, ip("192.0.2.2")).unwrap();
        assert_eq!(asked.eth.dst, Mac::BROADCAST);
        let asked = question(ip("fd00::1"), OWN, ip("fd00::12:3456")).unwrap();
        assert_eq!(asked.eth.dst.to_string(), "33:33:ff:12:34:56");
        assert!(question(ip("fd00::1"), OWN, ip("192.0.2.2")).is_none());
    }

    #[test]
    fn only_the_target_answers_for_itself() {
        let IpAddr::V4(sender) = ip("192.0.2.2") else { panic!() };
        let IpAddr::V4(target) = ip("192.0.2.1") else { panic!() };
        let message =
            NeighbourMessage::ArpReply { sender, sender_mac: OTHER, target, target_mac: OWN };
        let eth = Ethernet { dst: OWN, src: OTHER, vlan: None };
        let mut frame = [0; FRAME];
        let len = Neighbour { eth, message }.emit(&mut frame).unwrap();
        assert_eq!(answer(&frame[..len], ip("192.0.2.2")), Some(OTHER));
        assert_eq!(answer(&frame[..len], ip("192.0.2.3")), None);
        assert_eq!(answer(&frame[..20], ip("192.0.2.2")), None);
    }
}
