//! Address vectors: all the headers in front of the BTH, made once, so that a packet only fills in
//! its lengths, IPv4 identification and checksum.

use crate::gid::Gid;
use crate::port::{GidEntry, GidType, Port};
use crate::psn::Psn;
use crate::verbs::{AhAttr, Pd, VerbsError};
use crate::wire::{Bth, Ethernet, Extensions, Headers, Ipv4, Ipv6, Layout, Net, Opcode, Udp, Vlan};

/// Ethernet, 802.1Q, IPv6, UDP.
const MAX_PREFIX: usize = 14 + 4 + 40 + 8;

/// Bytes of frame headers, extended headers, pad and ICRC a packet may have around its payload:
/// the prefix, BTH 12, AtomicETH 28 + XRCETH 4 at most, pad 3, ICRC 4.
pub(crate) const MAX_OVERHEAD: usize = MAX_PREFIX + 12 + 32 + 3 + 4;

/// Stands in for the BTH while the headers before it are made.
const NO_BTH: Bth = Bth::new(Opcode(0), 0, Psn::new(0));

/// A resolved address vector.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub attr: AhAttr,
    pub source: GidEntry,
    /// The peer's ICRC of FLUSH is [`crate::icrc::rxe_flush`].
    pub rxe_flush: bool,
    prefix: [u8; MAX_PREFIX],
    net: u8,
    bth: u8,
    kind: PrefixKind,
    /// Ones' complement sum of the IPv4 header without total length and identification.
    ipv4_sum: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrefixKind {
    V4,
    V6,
    V1,
}

impl Path {
    /// The path `attr` names, its packets with UDP source port `source_port`.
    pub fn new(port: &Port, attr: &AhAttr, source_port: u16) -> Result<Path, VerbsError> {
        let source = *port.gid(attr.sgid_index)?;
        if attr.sl > 7 || attr.flow_label > 0xf_ffff || attr.dgid == Gid::default() {
            return Err(VerbsError::Invalid);
        }
        let (net, kind) = network(&source, attr)?;
        let dst = attr.dgid.multicast_mac().unwrap_or(attr.dmac);
        let vlan = source.vlan.map(|vid| Vlan { pcp: attr.sl, dei: false, vid });
        let headers = Headers {
            eth: Ethernet { dst, src: source.mac, vlan },
            net,
            udp: Udp { source_port, checksum: 0 },
            bth: NO_BTH,
            ext: Extensions::default(),
        };
        let mut frame = [0; MAX_PREFIX + 16];
        let layout = headers.emit(0, &mut frame).map_err(|_| VerbsError::Invalid)?;
        let mut prefix = [0; MAX_PREFIX];
        prefix[..layout.bth].copy_from_slice(&frame[..layout.bth]);
        let ipv4_sum = match kind {
            PrefixKind::V4 => sum_without_length_and_ident(&prefix[layout.net..layout.net + 20]),
            _ => 0,
        };
        let (net, bth) = (layout.net as u8, layout.bth as u8);
        let rxe_flush = port.rxe_flush_peers.contains(&attr.dgid);
        Ok(Path { attr: *attr, source, rxe_flush, prefix, net, bth, kind, ipv4_sum })
    }

    /// The same path with another UDP source port.
    pub fn set_source_port(&mut self, source_port: u16) {
        if self.kind != PrefixKind::V1 {
            let at = usize::from(self.bth) - 8;
            self.prefix[at..at + 2].copy_from_slice(&source_port.to_be_bytes());
        }
    }

    /// The same path with another traffic class, and another priority where there is a VLAN.
    pub fn set_priority(&mut self, traffic_class: u8, pcp: u8) {
        let net = usize::from(self.net);
        set_traffic_class(self.kind, &mut self.prefix[net..], traffic_class);
        if self.kind == PrefixKind::V4 {
            self.ipv4_sum = sum_without_length_and_ident(&self.prefix[net..net + 20]);
        }
        if self.source.vlan.is_some() {
            self.prefix[14] = self.prefix[14] & 0x1f | pcp << 5;
        }
    }

    /// Makes a packet of this path ECT(0), unless the address vector has said something of ECN. A
    /// RoCE v1 packet cannot be.
    #[inline]
    pub fn mark_ecn_capable(&self, frame: &mut [u8]) {
        let class = self.attr.traffic_class;
        if class & 0b11 != 0 || self.kind == PrefixKind::V1 {
            return;
        }
        let header = &mut frame[usize::from(self.net)..];
        set_traffic_class(self.kind, header, class | 0b10);
        if self.kind == PrefixKind::V4 {
            let sum = !u16::from_be_bytes([header[10], header[11]]);
            header[10..12].copy_from_slice(&(!fold(u32::from(sum) + 0b10)).to_be_bytes());
        }
    }

    /// Whether a packet with these headers comes from the peer at the other end.
    pub fn is_from_peer(&self, eth: &Ethernet, net: &Net) -> bool {
        // VLAN 0 is a priority tag: no VLAN.
        let vlan = eth.vlan.map(|vlan| vlan.vid).filter(|&vid| vid != 0);
        net.source() == self.attr.dgid
            && net.destination() == self.source.gid
            && vlan == self.source.vlan
            && net.is_v1() == (self.kind == PrefixKind::V1)
    }

    /// Writes every header of a packet into `frame`, which must be large enough. The payload goes
    /// to `layout.payload`; then [`crate::wire::seal`] closes the frame.
    #[inline]
    pub fn emit(
        &self,
        frame: &mut [u8],
        bth: &Bth,
        ext: &Extensions,
        payload_len: usize,
        ident: u16,
    ) -> Layout {
        let (net, at) = (usize::from(self.net), usize::from(self.bth));
        frame[..MAX_PREFIX].copy_from_slice(&self.prefix);
        bth.emit(&mut frame[at..]);
        let payload = at + Bth::LEN + ext.emit(&mut frame[at + Bth::LEN..]);
        let icrc = payload + payload_len + usize::from(bth.pad_count);
        let ib_len = icrc + 4 - at;
        let net_header = &mut frame[net..at];
        match self.kind {
            PrefixKind::V4 => {
                let total_len = (20 + 8 + ib_len) as u16;
                net_header[2..4].copy_from_slice(&total_len.to_be_bytes());
                net_header[4..6].copy_from_slice(&ident.to_be_bytes());
                let sum = self.ipv4_sum + u32::from(total_len) + u32::from(ident);
                net_header[10..12].copy_from_slice(&(!fold(sum)).to_be_bytes());
                net_header[24..26].copy_from_slice(&((8 + ib_len) as u16).to_be_bytes());
            }
            PrefixKind::V6 => {
                let udp_len = ((8 + ib_len) as u16).to_be_bytes();
                net_header[4..6].copy_from_slice(&udp_len);
                net_header[44..46].copy_from_slice(&udp_len);
            }
            PrefixKind::V1 => net_header[4..6].copy_from_slice(&(ib_len as u16).to_be_bytes()),
        }
        Layout { net, bth: at, payload, icrc }
    }
}

/// An address handle.
#[derive(Debug)]
pub(crate) struct AddressHandle {
    pub pd: Pd,
    pub path: Path,
}

fn network(source: &GidEntry, attr: &AhAttr) -> Result<(Net, PrefixKind), VerbsError> {
    let v6 = |source: Gid| Ipv6 {
        src: source.0.into(),
        dst: attr.dgid.0.into(),
        traffic_class: attr.traffic_class,
        flow_label: attr.flow_label,
        hop_limit: attr.hop_limit,
    };
    match (source.gid_type, source.gid.ipv4(), attr.dgid.ipv4()) {
        (GidType::RoceV1, ..) => Ok((Net::V1(v6(source.gid)), PrefixKind::V1)),
        (GidType::RoceV2, Some(src), Some(dst)) => {
            let ip = Ipv4 {
                src,
                dst,
                tos: attr.traffic_class,
                ident: 0,
                dont_fragment: true,
                ttl: attr.hop_limit,
            };
            Ok((Net::V4(ip), PrefixKind::V4))
        }
        (GidType::RoceV2, None, None) => Ok((Net::V6(v6(source.gid)), PrefixKind::V6)),
        _ => Err(VerbsError::Invalid),
    }
}

/// Writes DSCP and ECN into an IP header; of an IPv4 header, its checksum is not touched.
fn set_traffic_class(kind: PrefixKind, header: &mut [u8], class: u8) {
    match kind {
        PrefixKind::V4 => header[1] = class,
        PrefixKind::V6 | PrefixKind::V1 => {
            header[0] = header[0] & 0xf0 | class >> 4;
            header[1] = header[1] & 0x0f | class << 4;
        }
    }
}

fn sum_without_length_and_ident(header: &[u8]) -> u32 {
    let words = header.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    words
        .enumerate()
        .filter(|(index, _)| !matches!(index, 1 | 2 | 5))
        .map(|(_, word)| u32::from(word))
        .sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
