//! IPv4 (RFC 791), IPv6 (RFC 8200), and the GRH of RoCE v1 (IBA 8.3), which looks like IPv6.
//!
//! Only what RoCE leaves free is a field: no options, no fragments, no extension headers.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv6Packet};

use super::bytes::{head, head_mut};
use crate::gid::Gid;

/// An IPv4 header without options or fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP (upper six bits) and ECN (lower two).
    pub tos: u8,
    /// Identification; under the ICRC.
    pub ident: u16,
    /// DF.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
}

impl Ipv4 {
    /// Bytes on the wire.
    pub const LEN: usize = 20;

    /// Reads the first [`LEN`](Self::LEN) bytes, whatever their version and options.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Ipv4 {
        let header = Ipv4Packet::new_unchecked(head::<{ Ipv4::LEN }>(bytes));
        Ipv4 {
            src: header.src_addr(),
            dst: header.dst_addr(),
            tos: header.dscp() << 2 | header.ecn(),
            ident: header.ident(),
            dont_fragment: header.dont_frag(),
            ttl: header.hop_limit(),
        }
    }

    /// Writes the header of a UDP datagram of `payload_len` bytes, checksum included.
    #[inline]
    pub fn emit(&self, payload_len: u16, out: &mut [u8]) {
        let mut bytes = [0; Ipv4::LEN];
        let mut header = Ipv4Packet::new_unchecked(&mut bytes);
        header.set_version(4);
        header.set_header_len(Ipv4::LEN as u8);
        header.set_dscp(self.tos >> 2);
        header.set_ecn(self.tos & 3);
        header.set_total_len(Ipv4::LEN as u16 + payload_len);
        header.set_ident(self.ident);
        header.set_dont_frag(self.dont_fragment);
        header.set_hop_limit(self.ttl);
        header.set_next_header(IpProtocol::Udp);
        header.set_src_addr(self.src);
        header.set_dst_addr(self.dst);
        header.fill_checksum();
        *head_mut(out) = bytes;
    }
}

/// An IPv6 header, or a GRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Source address or SGID.
    pub src: Ipv6Addr,
    /// Destination address or DGID.
    pub dst: Ipv6Addr,
    /// DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Ipv6 {
    /// Bytes on the wire.
    pub const LEN: usize = 40;

    /// Reads the first [`LEN`](Self::LEN) bytes, whatever their version and next header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Ipv6 {
        let header = Ipv6Packet::new_unchecked(head::<{ Ipv6::LEN }>(bytes));
        Ipv6 {
            src: header.src_addr(),
            dst: header.dst_addr(),
            traffic_class: header.traffic_class(),
            flow_label: header.flow_label(),
            hop_limit: header.hop_limit(),
        }
    }

    /// Writes the header of `payload_len` bytes that start with a `next_header`: 17 for UDP, 0x1B
    /// for the BTH.
    #[inline]
    pub fn emit(&self, next_header: u8, payload_len: u16, out: &mut [u8]) {
        let mut bytes = [0; Ipv6::LEN];
        let mut header = Ipv6Packet::new_unchecked(&mut bytes);
        header.set_version(6);
        header.set_traffic_class(self.traffic_class);
        header.set_flow_label(self.flow_label & 0x000f_ffff);
        header.set_payload_len(payload_len);
        header.set_next_header(IpProtocol::from(next_header));
        header.set_hop_limit(self.hop_limit);
        header.set_src_addr(self.src);
        header.set_dst_addr(self.dst);
        *head_mut(out) = bytes;
    }
}

/// The network header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// RoCE v2 over IPv4.
    V4(Ipv4),
    /// RoCE v2 over IPv6.
    V6(Ipv6),
    /// RoCE v1: a GRH directly before the BTH.
    V1(Ipv6),
}

impl Net {
    /// Source address.
    #[inline]
    pub fn source(&self) -> Gid {
        match self {
            Net::V4(ip) => Gid::from(ip.src),
            Net::V6(ip) | Net::V1(ip) => Gid::from(ip.src),
        }
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Gid {
        match self {
            Net::V4(ip) => Gid::from(ip.dst),
            Net::V6(ip) | Net::V1(ip) => Gid::from(ip.dst),
        }
    }

    /// DSCP (upper six bits) and ECN (lower two).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        match self {
            Net::V4(ip) => ip.tos,
            Net::V6(ip) | Net::V1(ip) => ip.traffic_class,
        }
    }

    /// Whether a switch has marked the packet: ECN is CE.
    #[inline]
    pub fn is_congestion_experienced(&self) -> bool {
        self.traffic_class() & 0b11 == 0b11
    }

    /// Sets DSCP and ECN. The ICRC does not cover them.
    #[inline]
    pub fn set_traffic_class(&mut self, value: u8) {
        match self {
            Net::V4(ip) => ip.tos = value,
            Net::V6(ip) | Net::V1(ip) => ip.traffic_class = value,
        }
    }

    /// Bytes on the wire: 20 for IPv4, else 40.
    #[inline]
    pub fn header_len(&self) -> usize {
        match self {
            Net::V4(_) => Ipv4::LEN,
            Net::V6(_) | Net::V1(_) => Ipv6::LEN,
        }
    }

    /// Whether this is RoCE v1.
    #[inline]
    pub fn is_v1(&self) -> bool {
        matches!(self, Net::V1(_))
    }
}
