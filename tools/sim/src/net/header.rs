//! What switches look at in a frame, and the one thing they change.

use ferroce_stack::wire::Mac;

const ETHERNET_LEN: usize = 14;
const VLAN_TAG: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Congestion experienced.
const CE: u8 = 3;

/// What the way of a frame depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The host it is for, by its MAC.
    pub to: Option<u32>,
    /// DSCP, 0 for what is not IP.
    pub dscp: u8,
    /// Of addresses, protocol and ports.
    pub hash: u32,
}

/// The MAC of a host.
pub fn host_mac(host: usize) -> Mac {
    let [a, b, c, d] = (host as u32).to_be_bytes();
    Mac([0x02, 0x00, a, b, c, d])
}

/// The MAC of a switch's port.
pub fn port_mac(port: u32) -> Mac {
    let [a, b, c, d] = port.to_be_bytes();
    Mac([0x06, 0x00, a, b, c, d])
}

/// Where the IP header is, and whether it is of version 4.
fn ip(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = ETHERNET_LEN;
    if frame.get(at - 2..at)? == VLAN_TAG {
        at += 4;
    }
    let ethertype = frame.get(at - 2..at)?;
    if ethertype == IPV4 && frame.len() >= at + 24 {
        Some((at, true))
    } else if ethertype == IPV6 && frame.len() >= at + 44 {
        Some((at, false))
    } else {
        None
    }
}

impl Header {
    /// Reads a frame.
    #[inline]
    pub fn of(frame: &[u8]) -> Header {
        let to = match frame.first_chunk() {
            Some([0x02, 0x00, a, b, c, d]) => Some(u32::from_be_bytes([*a, *b, *c, *d])),
            _ => None,
        };
        let Some((at, is_v4)) = ip(frame) else { return Header { to, dscp: 0, hash: 0 } };
        let header = &frame[at..];
        let (dscp, addresses, protocol, ports) = match is_v4 {
            true => {
                let ports = usize::from(header[0] & 0xf) * 4;
                (header[1] >> 2, &header[12..20], header[9], ports)
            }
            false => {
                let class = header[0] << 4 | header[1] >> 4;
                (class >> 2, &header[8..40], header[6], 40)
            }
        };
        let ports = header.get(ports..ports + 4).unwrap_or_default();
        let words = addresses.chunks(4).chain([ports]);
        let hash = words.fold(u64::from(protocol), |hash, word| {
            let word = word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        Header { to, dscp, hash: (hash >> 32) as u32 }
    }
}

/// Says in a frame that it has met congestion, if it is ECN-capable; whether it is.
#[inline]
pub fn mark(frame: &mut [u8]) -> bool {
    let Some((at, is_v4)) = ip(frame) else { return false };
    if !is_v4 {
        // The lower half of the traffic class is the upper half of the second byte.
        let byte = &mut frame[at + 1];
        if *byte & 0x30 == 0 {
            return false;
        }
        *byte |= CE << 4;
        return true;
    }
    let header = &mut frame[at..at + 20];
    let before = u16::from_be_bytes([header[0], header[1]]);
    if before & 3 == 0 {
        return false;
    }
    header[1] |= CE;
    let after = before | u16::from(CE);
    // RFC 1624, equation 3.
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_stack::psn::Psn;
    use ferroce_stack::wire::{
        Bth, Ethernet, Extensions, Headers, Ipv4, Ipv6, Net, Opcode, Packet, Udp, Vlan, seal,
    };

    fn nets(class: u8) -> [Net; 2] {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let v4 = Ipv4 { src, dst, tos: class, ident: 7, dont_fragment: true, ttl: 64 };
        let (src, dst) = (1u128.into(), 2u128.into());
        let v6 = Ipv6 { src, dst, traffic_class: class, flow_label: 0x12345, hop_limit: 64 };
        [Net::V4(v4), Net::V6(v6)]
    }

    fn frame(net: Net, vlan: Option<u16>, source_port: u16) -> Vec<u8> {
        let vlan = vlan.map(|vid| Vlan { pcp: 0, dei: false, vid });
        let headers = Headers {
            eth: Ethernet { dst: host_mac(70_000), src: host_mac(1), vlan },
            net,
            udp: Udp { source_port, checksum: 0 },
            bth: Bth::new(Opcode::RC_SEND_ONLY, 0x11, Psn::new(5)),
            ext: Extensions::default(),
        };
        let mut frame = vec![0; 200];
        let layout = headers.emit(0, &mut frame).unwrap();
        let len = seal(&mut frame, &layout, 0);
        frame.truncate(len);
        frame
    }

    #[test]
    fn ecn_capable_packets_are_marked_and_stay_whole() {
        for ecn in 0..4 {
            for net in nets(26 << 2 | ecn) {
                for vlan in [None, Some(5)] {
                    let mut marked = frame(net, vlan, 49_152);
                    assert_eq!(mark(&mut marked), ecn != 0);
                    let packet = Packet::parse(&marked).unwrap();
                    let class = if ecn == 0 { 26 << 2 } else { 26 << 2 | CE };
                    assert_eq!(packet.headers.net.traffic_class(), class);
                    assert!(packet.icrc_ok(&marked));
                    if let Net::V4(ip) = packet.headers.net {
                        let mut right = [0; 20];
                        ip.emit((marked.len() - packet.layout.net - 20) as u16, &mut right);
                        assert_eq!(marked[packet.layout.net..][..20], right);
                    }
                }
            }
        }
    }

    #[test]
    fn headers_are_read_with_and_without_a_tag() {
        for net in nets(26 << 2 | 1) {
            let [plain, tagged] = [None, Some(5)].map(|vlan| Header::of(&frame(net, vlan, 50_000)));
            assert_eq!(plain, tagged);
            assert_eq!((plain.to, plain.dscp), (Some(70_000), 26));
            let other = Header::of(&frame(net, None, 50_001));
            assert_ne!(plain.hash, other.hash);
        }
    }

    #[test]
    fn whatever_is_no_packet_is_left_alone() {
        let whole = frame(nets(1)[0], Some(1), 1);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            Header::of(&cut);
            mark(&mut cut);
        }
        assert_eq!(Header::of(&[0xff; 60]), Header { to: None, dscp: 0, hash: 0 });
    }
}
