//! Ethernet II and one IEEE 802.1Q tag.

use std::fmt;

use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol};

use super::bytes::{be16, head_mut, put};

/// Ethertype of an 802.1Q tag.
const TPID: u16 = 0x8100;
const UNTAGGED_LEN: usize = 14;
const TAG_LEN: usize = 4;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vlan {
    /// Priority, 0 to 7.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN, 0 to 4095; 0 is a mere priority tag.
    pub vid: u16,
}

impl Vlan {
    #[inline]
    fn parse(tci: u16) -> Vlan {
        Vlan { pcp: (tci >> 13) as u8, dei: tci & 0x1000 != 0, vid: tci & 0x0fff }
    }

    #[inline]
    fn tci(self) -> u16 {
        u16::from(self.pcp) << 13 | u16::from(self.dei) << 12 | self.vid & 0x0fff
    }
}

/// Ethernet header with at most one tag. The ethertype follows from what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// 802.1Q tag.
    pub vlan: Option<Vlan>,
}

impl Ethernet {
    /// Bytes on the wire: 14, or 18 with a tag.
    #[inline]
    pub fn header_len(&self) -> usize {
        if self.vlan.is_some() { UNTAGGED_LEN + TAG_LEN } else { UNTAGGED_LEN }
    }

    /// The header and the ethertype behind its tag; none if the frame ends before.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<(Ethernet, u16)> {
        let header = EthernetFrame::new_unchecked(frame.first_chunk::<UNTAGGED_LEN>()?);
        let (dst, src) = (Mac(header.dst_addr().0), Mac(header.src_addr().0));
        let ethertype = u16::from(header.ethertype());
        if ethertype != TPID {
            return Some((Ethernet { dst, src, vlan: None }, ethertype));
        }
        let tag = frame[UNTAGGED_LEN..].first_chunk::<TAG_LEN>()?;
        let vlan = Some(Vlan::parse(be16(tag, 0)));
        Some((Ethernet { dst, src, vlan }, be16(tag, 2)))
    }

    /// Writes the header with this ethertype behind its tag. `out` holds at least
    /// [`header_len`](Self::header_len) bytes.
    #[inline]
    pub fn emit(&self, ethertype: u16, out: &mut [u8]) {
        let first = if self.vlan.is_some() { TPID } else { ethertype };
        let mut header = EthernetFrame::new_unchecked(head_mut::<UNTAGGED_LEN>(out));
        header.set_dst_addr(EthernetAddress(self.dst.0));
        header.set_src_addr(EthernetAddress(self.src.0));
        header.set_ethertype(EthernetProtocol::from(first));
        if let Some(vlan) = self.vlan {
            put(out, UNTAGGED_LEN, vlan.tci().to_be_bytes());
            put(out, UNTAGGED_LEN + 2, ethertype.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    #[test]
    fn tag_fields_stand_where_802_1q_puts_them() {
        let vlan = Some(Vlan { pcp: 5, dei: true, vid: 0x123 });
        let eth = Ethernet { dst: Mac::BROADCAST, src: SRC, vlan };
        let mut out = [0; 18];
        eth.emit(0x0800, &mut out);
        assert_eq!(out[12..], [0x81, 0x00, 0xb1, 0x23, 0x08, 0x00]);
        assert_eq!(Ethernet::parse(&out), Some((eth, 0x0800)));
        assert_eq!(Ethernet::parse(&out[..17]), None);
    }

    #[test]
    fn untagged() {
        let eth = Ethernet { dst: Mac::BROADCAST, src: SRC, vlan: None };
        let mut out = [0; 14];
        eth.emit(0x86dd, &mut out);
        assert_eq!(Ethernet::parse(&out), Some((eth, 0x86dd)));
        assert_eq!(Ethernet::parse(&out[..13]), None);
        assert_eq!(SRC.to_string(), "02:00:00:00:00:01");
    }
}
