//! Native InfiniBand packets (IBA 7.7): a Local Route Header in the place of Ethernet, IP and UDP.
//! Never spoken, only read, since captures of channel adapters hold them.

use super::bytes::{be16, head, head_mut, put};
use super::packet::{ICRC_LEN, NEXT_HEADER_BTH, parse_grh, parse_transport};
use super::{Bth, Extensions, FrameTooSmall, Ipv6, Layout};
use crate::discard::Discard;
use crate::icrc;

/// A Local Route Header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lrh {
    /// Virtual lane, 4 bits.
    pub vl: u8,
    /// Version, 4 bits: 0.
    pub version: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Byte 1, bits 3 and 2.
    pub reserved2: u8,
    /// LNH, 2 bits: 2 before a BTH, 3 before a GRH.
    pub next_header: u8,
    /// Destination local identifier.
    pub dlid: u16,
    /// Byte 4, upper 5 bits.
    pub reserved5: u8,
    /// Length from the LRH to the ICRC, both included, in words of four bytes; 11 bits.
    pub packet_words: u16,
    /// Source local identifier.
    pub slid: u16,
}

impl Lrh {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    /// LNH before a BTH.
    pub const NEXT_IS_BTH: u8 = 2;
    /// LNH before a GRH.
    pub const NEXT_IS_GRH: u8 = 3;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    pub fn parse(bytes: &[u8]) -> Lrh {
        let bytes = head::<{ Lrh::LEN }>(bytes);
        Lrh {
            vl: bytes[0] >> 4,
            version: bytes[0] & 15,
            service_level: bytes[1] >> 4,
            reserved2: bytes[1] >> 2 & 3,
            next_header: bytes[1] & 3,
            dlid: be16(bytes, 2),
            reserved5: bytes[4] >> 3,
            packet_words: be16(bytes, 4) & 0x07ff,
            slid: be16(bytes, 6),
        }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ Lrh::LEN }>(out);
        out[0] = self.vl << 4 | self.version & 15;
        out[1] = self.service_level << 4 | (self.reserved2 & 3) << 2 | self.next_header & 3;
        put(out, 2, self.dlid.to_be_bytes());
        let words = u16::from(self.reserved5) << 11 | self.packet_words & 0x07ff;
        put(out, 4, words.to_be_bytes());
        put(out, 6, self.slid.to_be_bytes());
    }
}

/// A parsed native InfiniBand packet.
#[derive(Clone, Copy, Debug)]
pub struct NativePacket<'a> {
    /// Local route header.
    pub lrh: Lrh,
    /// Global route header.
    pub grh: Option<Ipv6>,
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Extensions,
    /// Where they stand; `net` is where the LRH ends.
    pub layout: Layout,
    /// Payload without pad.
    pub payload: &'a [u8],
    /// Invariant CRC as carried.
    pub icrc: u32,
    /// Variant CRC as carried, which covers a single link; not checked.
    pub vcrc: Option<[u8; 2]>,
}

impl<'a> NativePacket<'a> {
    /// Parses a packet, with or without its VCRC.
    ///
    /// # Errors
    ///
    /// Says why the bytes are no whole packet of the InfiniBand transport.
    pub fn parse(bytes: &'a [u8]) -> Result<NativePacket<'a>, Discard> {
        let lrh = Lrh::parse(bytes.first_chunk::<{ Lrh::LEN }>().ok_or(Discard::Truncated)?);
        let end = usize::from(lrh.packet_words) * 4;
        let net = Lrh::LEN;
        let (grh, bth_at) = match lrh.next_header {
            Lrh::NEXT_IS_BTH => (None, net),
            Lrh::NEXT_IS_GRH => (Some(parse_grh(&bytes[net..])?), net + Ipv6::LEN),
            _ => return Err(Discard::NotRoce),
        };
        let len = end.checked_sub(bth_at).ok_or(Discard::BadLength)?;
        let (bth, ext, headers_len) = parse_transport(&bytes[bth_at..], len)?;
        let layout =
            Layout { net, bth: bth_at, payload: bth_at + headers_len, icrc: end - ICRC_LEN };
        let icrc = bytes.get(layout.icrc..).and_then(<[u8]>::first_chunk);
        let icrc = u32::from_le_bytes(*icrc.ok_or(Discard::Truncated)?);
        let payload = &bytes[layout.payload..layout.icrc - usize::from(bth.pad_count)];
        let vcrc = bytes[end..].first_chunk().copied();
        Ok(NativePacket { lrh, grh, bth, ext, layout, payload, icrc, vcrc })
    }

    /// Whether the ICRC carried is that of `bytes`, from which the packet was parsed.
    pub fn icrc_ok(&self, bytes: &[u8]) -> bool {
        let icrc = match self.grh {
            Some(_) => icrc::compute(bytes, &self.layout),
            None => icrc::compute_local(bytes, self.layout.icrc),
        };
        icrc == self.icrc
    }

    /// Writes the packet with the lengths and CRCs it carries and returns its length.
    ///
    /// # Errors
    ///
    /// If it does not fit `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, FrameTooSmall> {
        let Layout { net, bth, payload, icrc } = self.layout;
        let end = icrc + ICRC_LEN + self.vcrc.map_or(0, |vcrc| vcrc.len());
        let out = out.get_mut(..end).ok_or(FrameTooSmall)?;
        out.fill(0);
        self.lrh.emit(out);
        if let Some(grh) = &self.grh {
            grh.emit(NEXT_HEADER_BTH, (icrc + ICRC_LEN - bth) as u16, &mut out[net..]);
        }
        self.bth.emit(&mut out[bth..]);
        self.ext.emit(&mut out[bth + Bth::LEN..]);
        out[payload..][..self.payload.len()].copy_from_slice(self.payload);
        put(out, icrc, self.icrc.to_le_bytes());
        if let Some(vcrc) = self.vcrc {
            put(out, icrc + ICRC_LEN, vcrc);
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_keeps_every_bit() {
        for bit in 0..64 {
            let wire = (1u64 << bit).to_be_bytes();
            let mut out = [0xff; Lrh::LEN];
            Lrh::parse(&wire).emit(&mut out);
            assert_eq!(out, wire);
        }
    }

    #[test]
    fn faults_are_refused() {
        // LRH of eight words, BTH 0x04 (SEND Only), 8 bytes of payload, ICRC, VCRC.
        let mut packet = [0; 34];
        packet[..8].copy_from_slice(&[0, 2, 0, 1, 0, 8, 0, 2]);
        packet[8] = 0x04;
        assert_eq!(NativePacket::parse(&packet).unwrap().payload.len(), 8);
        for len in 0..32 {
            let discard = NativePacket::parse(&packet[..len]).err();
            assert_eq!(discard, Some(Discard::Truncated), "{len}");
        }
        for (at, value, discard) in [
            (1, 0, Discard::NotRoce),
            (1, 3, Discard::BadGrh),
            (5, 1, Discard::BadLength),
            (5, 5, Discard::BadLength),
        ] {
            let mut packet = [packet.as_slice(), &[0; 40]].concat();
            packet[at] = value;
            assert_eq!(NativePacket::parse(&packet).err(), Some(discard), "{at} {value}");
        }
    }
}
