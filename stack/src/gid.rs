//! Global identifiers, the addresses of RoCE (IBA 4.1.1, Annex A17.4).
//!
//! A GID is an IPv6 address; an IPv4 address a.b.c.d is the GID `::ffff:a.b.c.d`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::Mac;

/// A global identifier, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

/// All but the last 32 bits of a v4-mapped GID.
const V4_MAPPED: u128 = 0xffff;

impl Gid {
    /// The GID of an IP address.
    #[inline]
    pub fn from_ip(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(ip) => Gid::from(ip),
            IpAddr::V6(ip) => Gid(ip.octets()),
        }
    }

    /// The IP address: IPv4 if the GID is v4-mapped.
    #[inline]
    pub fn to_ip(self) -> IpAddr {
        match self.ipv4() {
            Some(ip) => IpAddr::V4(ip),
            None => IpAddr::V6(Ipv6Addr::from(self.0)),
        }
    }

    /// The IPv4 address of a v4-mapped GID.
    #[inline]
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        let bits = u128::from_be_bytes(self.0);
        (bits >> 32 == V4_MAPPED).then_some(Ipv4Addr::from_bits(bits as u32))
    }

    /// Whether the GID names a group: ff00::/8, or 224.0.0.0/4 v4-mapped.
    #[inline]
    pub fn is_multicast(self) -> bool {
        self.0[0] == 0xff || self.ipv4().is_some_and(|ip| ip.is_multicast())
    }

    /// The Ethernet address of a group of RoCE v2 (RFC 1112 6.4, RFC 2464 7); none if the GID is
    /// no group's.
    pub fn multicast_mac(self) -> Option<Mac> {
        if !self.is_multicast() {
            return None;
        }
        let [.., a, b, c, d] = self.0;
        Some(match self.ipv4() {
            Some(_) => Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
            None => Mac([0x33, 0x33, a, b, c, d]),
        })
    }
}

impl From<Ipv4Addr> for Gid {
    #[inline]
    fn from(ip: Ipv4Addr) -> Gid {
        // As one number: bytes stored one by one stall the loads of whole words that follow.
        Gid((V4_MAPPED << 32 | u128::from(ip.to_bits())).to_be_bytes())
    }
}

impl From<Ipv6Addr> for Gid {
    #[inline]
    fn from(ip: Ipv6Addr) -> Gid {
        Gid(ip.octets())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid::from_ip(text.parse().unwrap())
    }

    #[test]
    fn ipv4_is_mapped_and_back() {
        let gid = gid("10.1.2.3");
        assert_eq!(format!("{gid} {gid:?}"), "::ffff:10.1.2.3 ::ffff:10.1.2.3");
        assert_eq!(gid.to_ip(), "10.1.2.3".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn ipv6_is_itself() {
        let gid = gid("fe80::200:ff:fe00:1");
        assert_eq!(gid.to_string(), "fe80::200:ff:fe00:1");
        assert_eq!(gid.to_ip(), "fe80::200:ff:fe00:1".parse::<IpAddr>().unwrap());
        assert_eq!(gid.ipv4(), None);
    }

    #[test]
    fn groups_and_their_ethernet_addresses() {
        let table = [
            ("239.205.7.5", Some("01:00:5e:4d:07:05")),
            ("224.0.0.1", Some("01:00:5e:00:00:01")),
            ("ff0e::1:2:a1b2:c3d4", Some("33:33:a1:b2:c3:d4")),
            ("10.0.0.1", None),
            ("fd77::1", None),
        ];
        for (text, mac) in table {
            let gid = gid(text);
            assert_eq!(gid.is_multicast(), mac.is_some(), "{text}");
            assert_eq!(gid.multicast_mac().map(|mac| mac.to_string()).as_deref(), mac, "{text}");
        }
    }
}
