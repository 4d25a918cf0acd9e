//! The UDP header of RoCE v2 (Annex A17.3.1.4): a fixed destination port, and a source port that
//! gives routers the entropy to spread flows.

use smoltcp::wire::UdpPacket;

use super::bytes::{head, head_mut};

/// Destination port of every RoCE v2 packet.
pub const ROCE_PORT: u16 = 4791;

/// A UDP header to port 4791.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Any value is legal on receipt.
    pub source_port: u16,
    /// 0 means none; the ICRC does not cover it.
    pub checksum: u16,
}

impl Udp {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first [`LEN`](Self::LEN) bytes, whatever their destination port.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Udp {
        let header = UdpPacket::new_unchecked(head::<{ Udp::LEN }>(bytes));
        Udp { source_port: header.src_port(), checksum: header.checksum() }
    }

    /// Writes the header of a datagram of `len` bytes, these eight included.
    #[inline]
    pub fn emit(&self, len: u16, out: &mut [u8]) {
        let mut header = UdpPacket::new_unchecked(head_mut::<{ Udp::LEN }>(out));
        header.set_src_port(self.source_port);
        header.set_dst_port(ROCE_PORT);
        header.set_len(len);
        header.set_checksum(self.checksum);
    }
}

/// The source port of a flow, 0xC000 to 0xFFFF, as Linux and hardware choose it: from the flow
/// label (20 bits), or if that is 0 from the two QPNs, in either order.
pub fn source_port(flow_label: u32, local: u32, remote: u32) -> u16 {
    let mut label = u64::from(flow_label & 0x000f_ffff);
    if label == 0 {
        label = u64::from(local) * u64::from(remote);
        label ^= label >> 20;
        label ^= label >> 40;
    }
    let (low, high) = (label & 0x03fff, (label & 0xfc000) >> 14);
    (low ^ high) as u16 | 0xc000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_port_folds_the_label_or_the_qpns() {
        let table = [
            (0, 0x11, 0x11, 0xc121),
            (0, 0x11, 0x12, 0xc132),
            (0, 0x1234, 0x5678, 0xc01a),
            (0x12345, 0, 0, 0xe341),
            (0xfffff, 0, 0, 0xffc0),
            // Seen on the wire: rxe, and ConnectX-5 with and without RDMA-CM.
            (0, 0x79, 0x7a, 0xf9aa),
            (0, 0x506f, 0x89b7, 0xe4fe),
            (0x5ba59, 0, 0, 0xfa4f),
        ];
        for (label, local, remote, port) in table {
            assert_eq!(
                source_port(label, local, remote),
                port,
                "{label:#x} {local:#x} {remote:#x}"
            );
            assert_eq!(
                source_port(label, remote, local),
                port,
                "{label:#x} {remote:#x} {local:#x}"
            );
        }
    }
}
