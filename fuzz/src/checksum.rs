//! Checksums put right in damaged frames: a fuzzer would hardly ever find them.

use ferroce_stack::wire::Ethernet;

const IPV4: usize = 20;
const IPV6: usize = 40;
const ICMPV6: u8 = 58;

/// `frame` with the checksum of an IPv4 header, or of ICMPv6 behind an IPv6 header, put right; none
/// if there is no such checksum.
pub fn repaired(frame: &[u8]) -> Option<Vec<u8>> {
    let (eth, ethertype) = Ethernet::parse(frame)?;
    let net = eth.header_len();
    let mut frame = frame.to_vec();
    match ethertype {
        0x0800 => {
            let header = frame.get_mut(net..net + IPV4)?;
            header[10..12].fill(0);
            let sum = !fold(sum(header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        0x86dd => {
            let (ip, rest) = frame.get_mut(net..)?.split_at_mut_checked(IPV6)?;
            let len = u16::from_be_bytes([ip[4], ip[5]]);
            let message = rest.get_mut(..usize::from(len))?;
            if ip[6] != ICMPV6 || message.len() < 4 {
                return None;
            }
            message[2..4].fill(0);
            let pseudo = sum(&ip[8..40]) + u32::from(len) + u32::from(ICMPV6);
            let sum = !fold(pseudo + sum(message));
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        _ => return None,
    }
    Some(frame)
}

/// Sum of 16-bit words (RFC 1071), an odd last byte as the upper half of one.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| {
        u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]))
    });
    words.sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
