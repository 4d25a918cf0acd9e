//! Rules that steer frames that are not RoCE to raw packet QPs.

use crate::verbs::{Qpn, VerbsError};
use crate::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

/// Rules a device takes.
const RULES_MAX: usize = 1 << 12;

macro_rules! flow_key {
    ($($(#[$doc:meta])* $field:ident: $ty:ty,)*) => {
        /// What rules look at in a frame, as numbers in host order; as a mask, which bits of it.
        /// What a frame does not have is 0.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct FlowKey {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl FlowKey {
            /// Whether it equals `value` in the bits of `mask`.
            fn matches(&self, value: &FlowKey, mask: &FlowKey) -> bool {
                true $(&& (self.$field ^ value.$field) & mask.$field == 0)*
            }
        }
    };
}

flow_key! {
    /// Destination MAC, 48 bits.
    dst_mac: u64,
    /// Source MAC, 48 bits.
    src_mac: u64,
    /// EtherType, behind a VLAN tag if there is one.
    ethertype: u16,
    /// Tag control information of 802.1Q.
    vlan_tag: u16,
    /// 4 or 6.
    ip_version: u8,
    /// Source address; one of IPv4 in the low 32 bits.
    src_ip: u128,
    /// Destination address; one of IPv4 in the low 32 bits.
    dst_ip: u128,
    /// Protocol, or next header.
    protocol: u8,
    /// Type of service, or traffic class.
    traffic_class: u8,
    /// Time to live, or hop limit.
    hop_limit: u8,
    /// The three flags of IPv4, the one for more fragments lowest.
    ip_flags: u8,
    /// Flow label of IPv6, 20 bits.
    flow_label: u32,
    /// Source port of TCP or UDP.
    src_port: u16,
    /// Destination port of TCP or UDP.
    dst_port: u16,
}

impl FlowKey {
    /// Reads the key of a frame; `None` if it is no Ethernet frame. A header that is cut short, and
    /// what is behind IPv4's first fragment or an extension header of IPv6, counts as not there.
    pub fn of(frame: &[u8]) -> Option<FlowKey> {
        let mut key = FlowKey {
            dst_mac: number(frame.get(..6)?) as u64,
            src_mac: number(frame.get(6..12)?) as u64,
            ethertype: number(frame.get(12..14)?) as u16,
            ..FlowKey::default()
        };
        let mut ip = &frame[14..];
        if let (0x8100, Some((tag, rest))) = (key.ethertype, ip.split_at_checked(4)) {
            key.vlan_tag = number(&tag[..2]) as u16;
            key.ethertype = number(&tag[2..]) as u16;
            ip = rest;
        }
        let ports = match key.ethertype {
            ETHERTYPE_IPV4 => key.read_ipv4(ip),
            ETHERTYPE_IPV6 => key.read_ipv6(ip),
            _ => None,
        };
        if let (6 | 17, Some(ports)) = (key.protocol, ports) {
            key.src_port = number(&ports[..2]) as u16;
            key.dst_port = number(&ports[2..]) as u16;
        }
        Some(key)
    }

    /// Reads a header of IPv4; returns the first four bytes behind it.
    fn read_ipv4<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let header = bytes.first_chunk::<20>()?;
        self.ip_version = header[0] >> 4;
        self.traffic_class = header[1];
        self.ip_flags = header[6] >> 5;
        self.hop_limit = header[8];
        self.protocol = header[9];
        self.src_ip = number(&header[12..16]);
        self.dst_ip = number(&header[16..]);
        let is_first = number(&header[6..8]) & 0x1fff == 0;
        let len = usize::from(header[0] & 0x0f) * 4;
        bytes.get(len..len + 4).filter(|_| is_first)
    }

    /// As [`FlowKey::read_ipv4`], of IPv6.
    fn read_ipv6<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let header = bytes.first_chunk::<40>()?;
        let first = number(&header[..4]) as u32;
        self.ip_version = (first >> 28) as u8;
        self.traffic_class = (first >> 20) as u8;
        self.flow_label = first & 0xf_ffff;
        self.protocol = header[6];
        self.hop_limit = header[7];
        self.src_ip = number(&header[8..24]);
        self.dst_ip = number(&header[24..]);
        bytes.get(40..44)
    }
}

/// The number that up to 16 bytes are in network byte order.
pub fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

/// Which frames go to a QP: those whose key equals `value` in the bits of `mask`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowRule {
    /// Of several rules that match, the lowest number counts, then the oldest.
    pub priority: u32,
    /// What the key is to be.
    pub value: FlowKey,
    /// In which bits.
    pub mask: FlowKey,
}

/// A rule that steers frames to a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow(u32);

impl Flow {
    /// Its number.
    pub fn value(self) -> u32 {
        self.0
    }
}

/// The rules of a device, in the order in which they are tried.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    rules: Vec<(Flow, Qpn, FlowRule)>,
    last: u32,
}

impl FlowTable {
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub fn insert(&mut self, qpn: Qpn, rule: &FlowRule) -> Result<Flow, VerbsError> {
        if self.rules.len() >= RULES_MAX {
            return Err(VerbsError::NoMemory);
        }
        self.last = self.last.wrapping_add(1);
        let flow = Flow(self.last);
        let at = self.rules.partition_point(|(.., other)| other.priority <= rule.priority);
        self.rules.insert(at, (flow, qpn, *rule));
        Ok(flow)
    }

    pub fn remove(&mut self, flow: Flow) -> Result<(), VerbsError> {
        let at = self.rules.iter().position(|(other, ..)| *other == flow);
        self.rules.remove(at.ok_or(VerbsError::Invalid)?);
        Ok(())
    }

    pub fn uses(&self, qpn: Qpn) -> bool {
        self.rules.iter().any(|(_, user, _)| *user == qpn)
    }

    /// Whose a frame is.
    pub fn find(&self, frame: &[u8]) -> Option<Qpn> {
        let key = FlowKey::of(frame)?;
        let found = self.rules.iter().find(|(.., rule)| key.matches(&rule.value, &rule.mask));
        found.map(|(_, qpn, _)| *qpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: [u8; 2], ip: &[u8], ports: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend(ethertype);
        frame.extend(ip);
        frame.extend(ports);
        frame
    }

    fn ipv4(protocol: u8) -> [u8; 20] {
        let mut header = [0; 20];
        (header[0], header[1], header[6], header[8], header[9]) = (0x45, 3, 0x40, 64, protocol);
        header[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        header
    }

    #[test]
    fn keys_of_frames() {
        let key = FlowKey::of(&frame([8, 0], &ipv4(17), [0, 80, 1, 0])).unwrap();
        let expected = FlowKey {
            dst_mac: 0x0200_0000_0001,
            src_mac: 0x0200_0000_0002,
            ethertype: 0x800,
            ip_version: 4,
            src_ip: 0x0a00_0001,
            dst_ip: 0x0a00_0002,
            protocol: 17,
            traffic_class: 3,
            hop_limit: 64,
            ip_flags: 2,
            src_port: 80,
            dst_port: 256,
            ..FlowKey::default()
        };
        assert_eq!(key, expected);
        let tagged = [&[0x60, 1, 8, 0][..], &ipv4(6)].concat();
        let key = FlowKey::of(&frame([0x81, 0], &tagged, [0, 80, 1, 0])).unwrap();
        assert_eq!(key, FlowKey { vlan_tag: 0x6001, protocol: 6, ..expected });
        let mut header = [0; 40];
        header[..8].copy_from_slice(&[0x61, 0x2a, 0xbc, 0xde, 0, 4, 6, 9]);
        (header[23], header[39]) = (1, 2);
        let key = FlowKey::of(&frame([0x86, 0xdd], &header, [0, 1, 0, 2])).unwrap();
        assert_eq!((key.ip_version, key.traffic_class, key.flow_label), (6, 0x12, 0xa_bcde));
        assert_eq!((key.src_ip, key.dst_ip, key.hop_limit), (1, 2, 9));
        assert_eq!((key.protocol, key.src_port, key.dst_port), (6, 1, 2));
    }

    #[test]
    fn what_is_not_there_is_0() {
        let whole = frame([8, 0], &ipv4(17), [0, 80, 1, 0]);
        for len in 0..whole.len() {
            let key = FlowKey::of(&whole[..len]);
            assert_eq!(key.is_some(), len >= 14);
            assert!(key.is_none_or(|key| key.src_port == 0 && key.dst_port == 0), "{len}");
        }
        for (at, byte) in [(7, 1), (9, 1), (0, 0x4f)] {
            let mut header = ipv4(17);
            header[at] = byte;
            let key = FlowKey::of(&frame([8, 0], &header, [0, 80, 1, 0])).unwrap();
            assert_eq!((key.src_port, key.dst_port), (0, 0), "byte {at}");
        }
        assert_eq!(FlowKey::of(&frame([0x81, 0], &[1; 3], [0; 4])).unwrap().vlan_tag, 0x0101);
        assert_eq!(FlowKey::of(&[0x81; 14]).unwrap().vlan_tag, 0);
    }

    #[test]
    fn the_lowest_priority_counts_then_the_oldest() {
        let mut table = FlowTable::default();
        let rule = |priority| FlowRule { priority, ..FlowRule::default() };
        let web = FlowKey { dst_port: 80, ..FlowKey::default() };
        let mask = FlowKey { dst_port: u16::MAX, ..FlowKey::default() };
        let all = table.insert(Qpn(1), &rule(9)).unwrap();
        table.insert(Qpn(2), &rule(9)).unwrap();
        let first = table.insert(Qpn(3), &FlowRule { priority: 0, value: web, mask }).unwrap();
        let to = |port| frame([8, 0], &ipv4(6), [0, 0, 0, port]);
        assert_eq!((table.find(&to(80)), table.find(&to(81))), (Some(Qpn(3)), Some(Qpn(1))));
        assert!(table.uses(Qpn(3)));
        table.remove(first).unwrap();
        table.remove(all).unwrap();
        assert_eq!(table.find(&to(80)), Some(Qpn(2)));
        assert_eq!(table.remove(all), Err(VerbsError::Invalid));
        assert!(!table.uses(Qpn(3)));
    }

    #[test]
    fn rules_are_limited() {
        let mut table = FlowTable::default();
        for _ in 0..RULES_MAX {
            table.insert(Qpn(1), &FlowRule::default()).unwrap();
        }
        assert_eq!(table.insert(Qpn(1), &FlowRule::default()), Err(VerbsError::NoMemory));
    }
}
