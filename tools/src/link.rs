//! Link headers of captures: all that carry Ethernet or IP are turned into plain Ethernet with at
//! most one VLAN tag, so that one parser reads them.

use std::borrow::Cow;

use crate::capture::LinkType;

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethertypes of VLAN tags: 802.1Q, 802.1ad, and what was used before the latter.
const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];

/// The Endace header before each ERF record.
const ERF_LEN: usize = 16;
const ERF_EXTENSION_LEN: usize = 8;
const ERF_ETHERNET: u8 = 2;
const ERF_INFINIBAND: u8 = 21;
/// Offset and pad byte between the ERF header and Ethernet.
const ERF_ETHERNET_PAD: usize = 2;

/// A frame without what the capture put before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried<'a> {
    /// An Ethernet frame.
    Ethernet(Cow<'a, [u8]>),
    /// A native InfiniBand packet, from the LRH on.
    InfiniBand(&'a [u8]),
    /// Neither, or cut before that could be told.
    Other,
}

/// Takes the header of `link_type` off a captured frame.
pub fn carried(link_type: LinkType, bytes: &[u8]) -> Carried<'_> {
    match link_type {
        LinkType::ETHERNET => ethernet(bytes),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => raw_ip(bytes),
        // The protocol is the last field of version 1 and the first of version 2.
        LinkType::LINUX_SLL => cooked(bytes, 14, 16),
        LinkType::LINUX_SLL2 => cooked(bytes, 0, 20),
        LinkType::ERF => erf(bytes),
        _ => Carried::Other,
    }
}

/// Leaves only the innermost VLAN tag.
fn ethernet(bytes: &[u8]) -> Carried<'_> {
    let is_tag =
        |at: usize| bytes.get(at..at + 2).is_some_and(|id| TAGS.iter().any(|tag| tag == id));
    if !is_tag(12) {
        return Carried::Ethernet(Cow::Borrowed(bytes));
    }
    let mut at = 12;
    while is_tag(at + TAG_LEN) {
        at += TAG_LEN;
    }
    let mut plain = bytes[..12].to_vec();
    plain.extend_from_slice(&TAGS[0]);
    plain.extend_from_slice(&bytes[at + 2..]);
    Carried::Ethernet(Cow::Owned(plain))
}

fn raw_ip(bytes: &[u8]) -> Carried<'_> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => with_ethernet(IPV4, bytes),
        Some(6) => with_ethernet(IPV6, bytes),
        _ => Carried::Other,
    }
}

fn cooked(bytes: &[u8], protocol_at: usize, header_len: usize) -> Carried<'_> {
    let protocol = bytes.get(protocol_at..).and_then(<[u8]>::first_chunk);
    match (protocol, bytes.get(header_len..)) {
        (Some(&protocol), Some(rest)) => with_ethernet(protocol, rest),
        _ => Carried::Other,
    }
}

fn with_ethernet(ethertype: [u8; 2], rest: &[u8]) -> Carried<'static> {
    let mut frame = vec![0; ETHERNET_LEN - 2];
    frame.extend_from_slice(&ethertype);
    frame.extend_from_slice(rest);
    match ethernet(&frame) {
        Carried::Ethernet(plain) => Carried::Ethernet(Cow::Owned(plain.into_owned())),
        _ => Carried::Other,
    }
}

fn erf(bytes: &[u8]) -> Carried<'_> {
    let Some(&kind) = bytes.get(8) else {
        return Carried::Other;
    };
    let mut at = ERF_LEN;
    let mut more = kind & 0x80 != 0;
    while more {
        let Some(&extension) = bytes.get(at) else {
            return Carried::Other;
        };
        more = extension & 0x80 != 0;
        at += ERF_EXTENSION_LEN;
    }
    let Some(rest) = bytes.get(at..) else {
        return Carried::Other;
    };
    match kind & 0x7f {
        ERF_INFINIBAND => Carried::InfiniBand(rest),
        ERF_ETHERNET if rest.len() >= ERF_ETHERNET_PAD => ethernet(&rest[ERF_ETHERNET_PAD..]),
        _ => Carried::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 4] = [0x45, 1, 2, 3];

    fn ethernet_of(link_type: LinkType, header: &[u8]) -> Vec<u8> {
        let bytes = [header, &PACKET].concat();
        match carried(link_type, &bytes) {
            Carried::Ethernet(frame) => frame.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_link_header_becomes_ethernet() {
        let plain = [&[0; 12][..], &IPV4, &PACKET].concat();
        assert_eq!(ethernet_of(LinkType::RAW, &[]), plain);
        assert_eq!(ethernet_of(LinkType::LINUX_SLL, &[[0; 14].as_slice(), &IPV4].concat()), plain);
        let sll2 = [IPV4.as_slice(), &[0; 18]].concat();
        assert_eq!(ethernet_of(LinkType::LINUX_SLL2, &sll2), plain);
    }

    #[test]
    fn outer_tags_are_taken_off() {
        let tags = [0x88, 0xa8, 0, 7, 0x81, 0, 0, 100, 8, 0];
        let header = [[1; 12].as_slice(), &tags].concat();
        let expected = [&[1; 12][..], &[0x81, 0, 0, 100, 8, 0], &PACKET].concat();
        assert_eq!(ethernet_of(LinkType::ETHERNET, &header), expected);
    }

    #[test]
    fn short_headers_carry_nothing() {
        let erf = [&[0; 8][..], &[0x95], &[0; 7], &[0x80]].concat();
        assert_eq!(carried(LinkType::ERF, &erf), Carried::Other);
        assert_eq!(carried(LinkType::LINUX_SLL, &[0; 15]), Carried::Other);
        assert_eq!(carried(LinkType::RAW, &[]), Carried::Other);
        assert_eq!(carried(LinkType(9999), &PACKET), Carried::Other);
    }
}
