//! Service IDs of RDMA-CM and the header it puts before private data (annex A11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::bytes::{be16, field, put};

/// A port space of RDMA-CM; its value is that of Linux's `enum rdma_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand.
    Ipoib = 0x0002,
    /// Reliable connections named by IP addresses.
    Tcp = 0x0106,
    /// Datagrams named by IP addresses.
    Udp = 0x0111,
    /// Connections named by GIDs or IP addresses.
    Ib = 0x013f,
}

impl PortSpace {
    /// Every port space.
    pub const ALL: [PortSpace; 4] =
        [PortSpace::Ipoib, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib];
}

/// A service ID, in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service ID of a port.
    pub const fn new(space: PortSpace, port: u16) -> ServiceId {
        ServiceId((space as u64) << 16 | port as u64)
    }

    /// The port; none of a service outside RDMA-CM's spaces.
    pub fn port(self) -> Option<u16> {
        self.space().map(|_| self.0 as u16)
    }

    /// The port space; none of a service outside RDMA-CM's.
    pub fn space(self) -> Option<PortSpace> {
        PortSpace::ALL.into_iter().find(|&space| space as u64 == self.0 >> 16)
    }

    /// Whether every request for the service begins its private data with an [`IpHeader`].
    pub(crate) fn requires_ip_header(self) -> bool {
        matches!(self.space(), Some(PortSpace::Ipoib | PortSpace::Tcp | PortSpace::Udp))
    }
}

/// Who asks whom, in the words of IP: the first bytes of the private data of REQ and SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpHeader {
    /// Address of the one who asks.
    pub source: IpAddr,
    /// Its port, in host order.
    pub source_port: u16,
    /// Address of the one who is asked; of the family of `source`.
    pub destination: IpAddr,
}

impl IpHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// Reads the first [`LEN`](Self::LEN) bytes; none if there are fewer, or the header's version
    /// or the IP version is unknown.
    pub fn parse(bytes: &[u8]) -> Option<IpHeader> {
        let bytes: &[u8; IpHeader::LEN] = bytes.first_chunk()?;
        let address: fn([u8; 16]) -> IpAddr = match (bytes[0], bytes[1] >> 4) {
            (0, 4) => |[.., a, b, c, d]| Ipv4Addr::new(a, b, c, d).into(),
            (0, 6) => |octets| Ipv6Addr::from(octets).into(),
            _ => return None,
        };
        Some(IpHeader {
            source: address(field(bytes, 4)),
            source_port: be16(bytes, 2),
            destination: address(field(bytes, 20)),
        })
    }

    /// Writes the first [`LEN`](Self::LEN) bytes. Where only one of the addresses is IPv6, the
    /// other becomes its v4-mapped form.
    ///
    /// # Panics
    ///
    /// If `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let is_v4 = self.source.is_ipv4() && self.destination.is_ipv4();
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) if is_v4 => {
                let mut octets = [0; 16];
                put(&mut octets, 12, address.octets());
                octets
            }
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        out[0] = 0;
        out[1] = if is_v4 { 0x40 } else { 0x60 };
        put(out, 2, self.source_port.to_be_bytes());
        put(out, 4, octets(self.source));
        put(out, 20, octets(self.destination));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ids_name_space_and_port() {
        let service = ServiceId::new(PortSpace::Tcp, 7471);
        assert_eq!(service, ServiceId(0x0000_0000_0106_1d2f));
        for space in PortSpace::ALL {
            for port in [0, 1, 7471, 0xffff] {
                let service = ServiceId::new(space, port);
                assert_eq!((service.space(), service.port()), (Some(space), Some(port)));
            }
        }
        for other in [0, 0x0107_1d2f, 1 << 63 | 0x0106_1d2f] {
            assert_eq!((ServiceId(other).space(), ServiceId(other).port()), (None, None));
        }
    }

    #[test]
    fn ip_header_of_both_families_and_mixed() {
        let header = |source: &str, destination: &str| IpHeader {
            source: source.parse().unwrap(),
            source_port: 0xabcd,
            destination: destination.parse().unwrap(),
        };
        let mut bytes = [0xff; IpHeader::LEN];
        for header in [header("10.77.0.12", "10.77.0.11"), header("fd77::12", "fd77::11")] {
            header.emit(&mut bytes);
            assert_eq!(IpHeader::parse(&bytes), Some(header));
        }
        header("10.1.2.3", "fd77::11").emit(&mut bytes);
        assert_eq!(IpHeader::parse(&bytes), Some(header("::ffff:10.1.2.3", "fd77::11")));
    }

    #[test]
    fn ip_header_of_another_version_is_none() {
        let mut bytes = [0; IpHeader::LEN];
        for (version, ip, is_known) in [(0, 0x40, true), (0, 0x6f, true), (0x10, 0x40, false)] {
            bytes[..2].copy_from_slice(&[version, ip]);
            assert_eq!(IpHeader::parse(&bytes).is_some(), is_known);
        }
        bytes[..2].copy_from_slice(&[0, 0x50]);
        assert_eq!(IpHeader::parse(&bytes), None);
        bytes[1] = 0x40;
        assert_eq!(IpHeader::parse(&bytes[..35]), None);
    }
}
