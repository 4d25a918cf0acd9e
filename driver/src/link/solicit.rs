//! What is asked and said of addresses of the fabric's own: the messages of ARP and neighbour
//! discovery, each with the Ethernet address it goes to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_stack::gid::Gid;
use ferroce_stack::wire::{Mac, NeighbourMessage};

use crate::identity::link_local;

/// All hosts of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Who has `hop`? From one of our addresses of its family, if there is one; to all, or only to the
/// one that is thought to be it.
pub fn question(
    own: Mac,
    hop: IpAddr,
    from: Option<IpAddr>,
    thought: Option<Mac>,
) -> (Mac, NeighbourMessage) {
    match hop {
        IpAddr::V4(target) => {
            let sender = match from {
                Some(IpAddr::V4(ip)) => ip,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let message = NeighbourMessage::ArpRequest { sender, sender_mac: own, target };
            (thought.unwrap_or(Mac::BROADCAST), message)
        }
        IpAddr::V6(target) => {
            let src = match from {
                Some(IpAddr::V6(ip)) => ip,
                _ => link_local(own),
            };
            let dst = if thought.is_some() { target } else { solicited_node(target) };
            let message = NeighbourMessage::Solicitation { src, dst, src_mac: Some(own), target };
            (thought.unwrap_or_else(|| group_mac(dst)), message)
        }
    }
}

/// Has somebody this address, which we are about to take?
pub fn probe(own: Mac, ip: IpAddr) -> (Mac, NeighbourMessage) {
    match ip {
        IpAddr::V4(target) => {
            let sender = Ipv4Addr::UNSPECIFIED;
            let message = NeighbourMessage::ArpRequest { sender, sender_mac: own, target };
            (Mac::BROADCAST, message)
        }
        IpAddr::V6(target) => {
            let (src, dst) = (Ipv6Addr::UNSPECIFIED, solicited_node(target));
            let message = NeighbourMessage::Solicitation { src, dst, src_mac: None, target };
            (group_mac(dst), message)
        }
    }
}

/// This address is ours.
pub fn announcement(own: Mac, ip: IpAddr) -> (Mac, NeighbourMessage) {
    match ip {
        IpAddr::V4(ip) => {
            let message = NeighbourMessage::ArpRequest { sender: ip, sender_mac: own, target: ip };
            (Mac::BROADCAST, message)
        }
        IpAddr::V6(ip) => {
            let message = NeighbourMessage::Advertisement {
                src: ip,
                dst: ALL_NODES,
                target: ip,
                target_mac: Some(own),
                router: false,
                solicited: false,
                overrides: true,
            };
            (group_mac(ALL_NODES), message)
        }
    }
}

/// The group that a solicitation for an address goes to (RFC 4291 2.7.1).
pub fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    let [high, low] = [u16::from_be_bytes([0xff, a]), u16::from_be_bytes([b, c])];
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// The Ethernet address of a group.
pub fn group_mac(group: Ipv6Addr) -> Mac {
    Gid::from(group).multicast_mac().unwrap_or(Mac::BROADCAST)
}

/// Whether it can be the address of one host.
pub fn is_station(mac: Mac) -> bool {
    mac.0[0] & 1 == 0 && mac != Mac::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solicitations_go_to_the_group_of_their_target() {
        let target: Ipv6Addr = "fd00::12:3456".parse().unwrap();
        let (to, message) = probe(Mac([2, 0, 0, 0, 0, 1]), target.into());
        assert_eq!(to.to_string(), "33:33:ff:12:34:56");
        let NeighbourMessage::Solicitation { src, dst, .. } = message else { panic!() };
        assert_eq!(
            (src.to_string().as_str(), dst.to_string().as_str()),
            ("::", "ff02::1:ff12:3456")
        );
    }

    #[test]
    fn who_has_no_address_of_the_family_asks_from_its_own() {
        let own = Mac([2, 0, 0, 0, 0, 1]);
        let (_, message) = question(own, "fd00::9".parse().unwrap(), None, None);
        let NeighbourMessage::Solicitation { src, .. } = message else { panic!() };
        assert_eq!(src.to_string(), "fe80::ff:fe00:1");
    }
}
