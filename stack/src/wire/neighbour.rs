//! Address resolution: ARP (RFC 826) for IPv4, neighbour discovery (RFC 4861) for IPv6.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv6Packet, Icmpv6Repr, IpProtocol,
    Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

use super::{Ethernet, FrameTooSmall, Ipv6, Mac};

const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ARP_LEN: usize = 28;
/// Routers decrement it, so a message with another did not come from this link (RFC 4861 7.1).
const HOP_LIMIT: u8 = 255;

/// A frame of address resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Ethernet and 802.1Q.
    pub eth: Ethernet,
    /// What it asks or says.
    pub message: NeighbourMessage,
}

/// A question for the Ethernet address of an IP address, or the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourMessage {
    /// ARP request: who has `target`?
    ArpRequest {
        /// Who asks.
        sender: Ipv4Addr,
        /// The asker's Ethernet address.
        sender_mac: Mac,
        /// Whom it looks for.
        target: Ipv4Addr,
    },
    /// ARP reply: `sender` is at `sender_mac`.
    ArpReply {
        /// Who answers.
        sender: Ipv4Addr,
        /// The answer.
        sender_mac: Mac,
        /// Who had asked.
        target: Ipv4Addr,
        /// The asker's Ethernet address.
        target_mac: Mac,
    },
    /// Neighbour solicitation: who has `target`?
    Solicitation {
        /// Who asks; unspecified when it is only probing for a duplicate.
        src: Ipv6Addr,
        /// The target, or its solicited-node group.
        dst: Ipv6Addr,
        /// The asker's Ethernet address.
        src_mac: Option<Mac>,
        /// Whom it looks for.
        target: Ipv6Addr,
    },
    /// Neighbour advertisement: `target` is at `target_mac`.
    Advertisement {
        /// Who answers.
        src: Ipv6Addr,
        /// Who had asked, or all nodes.
        dst: Ipv6Addr,
        /// The address advertised.
        target: Ipv6Addr,
        /// The answer.
        target_mac: Option<Mac>,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It replaces what the receiver knew.
        overrides: bool,
    },
}

impl Neighbour {
    /// Parses a frame without FCS; none if it is nothing of address resolution, or damaged.
    pub fn parse(frame: &[u8]) -> Option<Neighbour> {
        let (eth, ethertype) = Ethernet::parse(frame)?;
        let bytes = &frame[eth.header_len()..];
        let message = match ethertype {
            ETHERTYPE_ARP => parse_arp(bytes)?,
            ETHERTYPE_IPV6 => parse_ndp(bytes)?,
            _ => return None,
        };
        Some(Neighbour { eth, message })
    }

    /// Writes the frame and returns its length.
    ///
    /// # Errors
    ///
    /// If it does not fit `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, FrameTooSmall> {
        let net = self.eth.header_len();
        match self.message {
            NeighbourMessage::ArpRequest { sender, sender_mac, target } => {
                let repr =
                    arp(ArpOperation::Request, (sender, sender_mac), (target, Mac::default()));
                self.emit_arp(&repr, net, out)
            }
            NeighbourMessage::ArpReply { sender, sender_mac, target, target_mac } => {
                let repr = arp(ArpOperation::Reply, (sender, sender_mac), (target, target_mac));
                self.emit_arp(&repr, net, out)
            }
            NeighbourMessage::Solicitation { src, dst, src_mac, target } => {
                let repr =
                    NdiscRepr::NeighborSolicit { target_addr: target, lladdr: src_mac.map(raw) };
                self.emit_ndp(src, dst, repr, net, out)
            }
            NeighbourMessage::Advertisement {
                src,
                dst,
                target,
                target_mac,
                router,
                solicited,
                overrides,
            } => {
                let mut flags = NdiscNeighborFlags::empty();
                flags.set(NdiscNeighborFlags::ROUTER, router);
                flags.set(NdiscNeighborFlags::SOLICITED, solicited);
                flags.set(NdiscNeighborFlags::OVERRIDE, overrides);
                let lladdr = target_mac.map(raw);
                let repr = NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr };
                self.emit_ndp(src, dst, repr, net, out)
            }
        }
    }

    fn emit_arp(&self, repr: &ArpRepr, net: usize, out: &mut [u8]) -> Result<usize, FrameTooSmall> {
        let bytes = out.get_mut(net..net + ARP_LEN).ok_or(FrameTooSmall)?;
        repr.emit(&mut ArpPacket::new_unchecked(bytes));
        self.eth.emit(ETHERTYPE_ARP, out);
        Ok(net + ARP_LEN)
    }

    fn emit_ndp(
        &self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        repr: NdiscRepr<'_>,
        net: usize,
        out: &mut [u8],
    ) -> Result<usize, FrameTooSmall> {
        let repr = Icmpv6Repr::Ndisc(repr);
        let len = repr.buffer_len();
        let end = net + Ipv6::LEN + len;
        let bytes = out.get_mut(net..end).ok_or(FrameTooSmall)?;
        let (ip, icmp) = bytes.split_at_mut(Ipv6::LEN);
        Ipv6Repr {
            src_addr: src,
            dst_addr: dst,
            next_header: IpProtocol::Icmpv6,
            payload_len: len,
            hop_limit: HOP_LIMIT,
        }
        .emit(&mut Ipv6Packet::new_unchecked(ip));
        let checksums = ChecksumCapabilities::default();
        repr.emit(&src, &dst, &mut Icmpv6Packet::new_unchecked(icmp), &checksums);
        self.eth.emit(ETHERTYPE_IPV6, out);
        Ok(end)
    }
}

fn arp(operation: ArpOperation, source: (Ipv4Addr, Mac), target: (Ipv4Addr, Mac)) -> ArpRepr {
    ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(source.1.0),
        source_protocol_addr: source.0,
        target_hardware_addr: EthernetAddress(target.1.0),
        target_protocol_addr: target.0,
    }
}

fn raw(mac: Mac) -> RawHardwareAddress {
    EthernetAddress(mac.0).into()
}

fn mac(address: RawHardwareAddress) -> Option<Mac> {
    address.as_bytes().first_chunk().copied().map(Mac)
}

fn parse_arp(bytes: &[u8]) -> Option<NeighbourMessage> {
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr: sender,
        target_hardware_addr,
        target_protocol_addr: target,
    } = ArpRepr::parse(&ArpPacket::new_checked(bytes).ok()?).ok()?
    else {
        return None;
    };
    let sender_mac = Mac(source_hardware_addr.0);
    match operation {
        ArpOperation::Request => Some(NeighbourMessage::ArpRequest { sender, sender_mac, target }),
        ArpOperation::Reply => {
            let target_mac = Mac(target_hardware_addr.0);
            Some(NeighbourMessage::ArpReply { sender, sender_mac, target, target_mac })
        }
        ArpOperation::Unknown(_) => None,
    }
}

fn parse_ndp(bytes: &[u8]) -> Option<NeighbourMessage> {
    let packet = Ipv6Packet::new_checked(bytes).ok()?;
    let (src, dst) = (packet.src_addr(), packet.dst_addr());
    if packet.next_header() != IpProtocol::Icmpv6 || packet.hop_limit() != HOP_LIMIT {
        return None;
    }
    let icmp = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    match Icmpv6Repr::parse(&src, &dst, &icmp, &ChecksumCapabilities::default()).ok()? {
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: target, lladdr }) => {
            let src_mac = lladdr.and_then(mac);
            Some(NeighbourMessage::Solicitation { src, dst, src_mac, target })
        }
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr }) => {
            Some(NeighbourMessage::Advertisement {
                src,
                dst,
                target,
                target_mac: lladdr.and_then(mac),
                router: flags.contains(NdiscNeighborFlags::ROUTER),
                solicited: flags.contains(NdiscNeighborFlags::SOLICITED),
                overrides: flags.contains(NdiscNeighborFlags::OVERRIDE),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Vlan;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn messages() -> [NeighbourMessage; 5] {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (src, dst) = ("fd00::1".parse().unwrap(), "ff02::1:ff00:2".parse().unwrap());
        let target = "fd00::2".parse().unwrap();
        [
            NeighbourMessage::ArpRequest { sender: a, sender_mac: OURS, target: b },
            NeighbourMessage::ArpReply {
                sender: b,
                sender_mac: THEIRS,
                target: a,
                target_mac: OURS,
            },
            NeighbourMessage::Solicitation { src, dst, src_mac: Some(OURS), target },
            NeighbourMessage::Solicitation {
                src: Ipv6Addr::UNSPECIFIED,
                dst,
                src_mac: None,
                target,
            },
            NeighbourMessage::Advertisement {
                src: target,
                dst: src,
                target,
                target_mac: Some(THEIRS),
                router: false,
                solicited: true,
                overrides: true,
            },
        ]
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        for message in messages() {
            for vlan in [None, Some(Vlan { pcp: 0, dei: false, vid: 7 })] {
                let eth = Ethernet { dst: Mac::BROADCAST, src: OURS, vlan };
                let neighbour = Neighbour { eth, message };
                let mut out = [0xa5; 128];
                let len = neighbour.emit(&mut out).unwrap();
                // Ethernet's pad does not disturb.
                assert_eq!(Neighbour::parse(&out), Some(neighbour));
                assert_eq!(Neighbour::parse(&out[..len - 1]), None);
                assert_eq!(neighbour.emit(&mut [0; 128][..len - 1]), Err(FrameTooSmall));
            }
        }
    }

    #[test]
    fn arp_request_is_that_of_rfc_826() {
        let eth = Ethernet { dst: Mac::BROADCAST, src: OURS, vlan: None };
        let mut out = [0; 42];
        Neighbour { eth, message: messages()[0] }.emit(&mut out).unwrap();
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4,
            0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_solicitation_from_beyond_a_router_is_ignored() {
        let eth = Ethernet { dst: Mac::BROADCAST, src: OURS, vlan: None };
        let mut out = [0; 128];
        Neighbour { eth, message: messages()[2] }.emit(&mut out).unwrap();
        out[14 + 7] = 254;
        assert_eq!(Neighbour::parse(&out), None);
    }
}
