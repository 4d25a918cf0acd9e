//! The invariant CRC (IBA 7.8.1, Annex A16, Annex A17.3.3): CRC-32 over all that no router may
//! change. Fields that may change count as ones.
//!
//! The CRC takes eight bytes of ones (the LRH that RoCE does not have), the network header, UDP and
//! BTH with their variant fields as ones, and the rest as it is. On the wire the least significant
//! byte comes first.

use std::hint::black_box;

use crc32fast::Hasher;

use crate::wire::{Bth, Ipv4, Ipv6, Layout, Lrh, Udp};

/// Ones before the network header that go through the CRC with the header, so that both together
/// are whole blocks of 16 bytes; the others are in the CRC it starts from.
const IPV4_ONES: usize = 8;
const IPV6_ONES: usize = 4;

/// The CRC-32 of eight bytes of ones, of four, and of none.
const AFTER_8_ONES: u32 = 0x2144_df1c;
const AFTER_4_ONES: u32 = 0xffff_ffff;
const AFTER_0_ONES: u32 = 0;

/// An Ethernet header without a tag.
const ETHERNET: usize = 14;

const IPV4_HEAD: usize = IPV4_ONES + Ipv4::LEN + Udp::LEN + Bth::LEN;
const IPV6_HEAD: usize = IPV6_ONES + Ipv6::LEN + Udp::LEN + Bth::LEN;
const GRH_HEAD: usize = Ipv6::LEN + Bth::LEN;
const LRH_HEAD: usize = Lrh::LEN + Bth::LEN;
const LONGEST_HEAD: usize = IPV6_HEAD;

/// Bytes behind the BTH of a short packet, at most.
const SHORT: usize = 96;

/// Ones where a field counts as ones.
static IPV4_MASK: [u8; IPV4_HEAD] =
    mask(IPV4_ONES, &[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff), (26, 0xff), (27, 0xff)]);
static IPV6_MASK: [u8; IPV6_HEAD] = mask(
    IPV6_ONES,
    &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff), (46, 0xff), (47, 0xff)],
);
static GRH_MASK: [u8; GRH_HEAD] = mask(0, &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)]);
static LRH_MASK: [u8; LRH_HEAD] = mask(0, &[(0, 0xf0)]);

/// So many ones, then the variant bits of the headers, of which the BTH is the last.
const fn mask<const N: usize>(ones: usize, variant: &[(usize, u8)]) -> [u8; N] {
    let mut mask = [0; N];
    let mut index = 0;
    while index < ones {
        mask[index] = 0xff;
        index += 1;
    }
    index = 0;
    while index < variant.len() {
        mask[ones + variant[index].0] = variant[index].1;
        index += 1;
    }
    mask[N - Bth::LEN + 4] = 0xff;
    mask
}

/// The ICRC of the packet that `layout` finds in `frame`.
///
/// # Panics
///
/// Panics if the packet's layout does not fit the frame.
#[inline]
pub fn compute(frame: &[u8], layout: &Layout) -> u32 {
    masked(frame, layout).finalize()
}

/// The CRC-32 of `bytes` behind others whose CRC-32 is `crc`, which is 0 if there are none.
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = Hasher::new_with_initial(crc);
    crc.update(bytes);
    crc.finalize()
}

/// What the ICRC of a packet is before its payload goes in.
///
/// # Panics
///
/// Panics if the packet's layout does not fit the frame.
#[inline]
pub(crate) fn of_headers(frame: &[u8], layout: &Layout) -> u32 {
    masked(frame, &Layout { icrc: layout.payload, ..*layout }).finalize()
}

/// The ICRC that Linux rxe computes for FLUSH in place of the right one: it goes over BTH and
/// extended headers a second time, with nothing masked. rxe sends it and takes no other.
///
/// # Panics
///
/// Panics if the packet's layout does not fit the frame.
pub fn rxe_flush(frame: &[u8], layout: &Layout) -> u32 {
    let mut crc = masked(frame, layout);
    crc.update(&frame[layout.bth..layout.icrc]);
    crc.finalize()
}

/// The identification and DF with which the ICRC carried by an IPv4 packet is right, all else of it
/// being as it is; none if there are none, so that the packet is damaged. `frame` is what a
/// receiver has made of a datagram whose IP header it has not seen.
///
/// A damaged packet is taken for a whole one with a chance of 2 in 65,536.
///
/// # Panics
///
/// Panics if the packet's layout does not fit the frame.
pub fn hidden_ident(frame: &[u8], layout: &Layout, carried: u32) -> Option<(u16, bool)> {
    const IDENT: usize = 4;
    let word = layout.net + IDENT;
    if layout.bth - layout.net != Ipv4::LEN + Udp::LEN {
        return None;
    }
    // The CRC is linear: what the word is off by, moved on over the bytes from there to the end,
    // is what the ICRC is off by. Multiplying by x goes round after 2^32 - 1 steps, so moving on
    // by the rest of the round is moving back.
    const ROUND: u64 = (1 << 32) - 1;
    let behind = (layout.icrc - word) as u64;
    let mut off = Hasher::new_with_initial(compute(frame, layout) ^ carried);
    off.combine(&Hasher::new_with_initial_len(0, ROUND - behind));
    let [a, b, flags, offset] = off.finalize().to_le_bytes();
    const DF: u8 = 0x40;
    let flags = flags ^ frame[word + 2];
    (flags & !DF == 0 && offset ^ frame[word + 3] == 0)
        .then(|| (u16::from_be_bytes([a ^ frame[word], b ^ frame[word + 1]]), flags & DF != 0))
}

/// Bytes of the headers of an untagged frame over IPv4, up to the end of the BTH.
pub const PLAIN_HEAD: usize = ETHERNET + Ipv4::LEN + Udp::LEN + Bth::LEN;

/// What the ICRC of an untagged frame over IPv4 is before what is behind the BTH goes in, which
/// counts as it is ([`append`]).
#[inline]
pub fn of_plain_head(head: &[u8; PLAIN_HEAD]) -> u32 {
    over::<IPV4_HEAD, IPV4_ONES>(AFTER_0_ONES, &head[ETHERNET..], &IPV4_MASK).finalize()
}

/// Whether what [`of_plain_head`] began, and the rest of the frame but the last four bytes, makes
/// the frame's ICRC.
#[inline]
pub(crate) fn is_plain(frame: &[u8], layout: &Layout) -> bool {
    layout.net == ETHERNET
        && layout.bth + Bth::LEN == PLAIN_HEAD
        && layout.icrc + size_of::<u32>() == frame.len()
}

/// What a change of bytes under the ICRC makes of it, so many bytes before it. Cheaper than the
/// ICRC itself, however long the packet is, if it is made once for many packets of a length.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    distance: usize,
    /// What x to the power of the bits in between makes of each half of a byte, the lowest first.
    products: [[u32; 16]; 8],
}

impl Reach {
    /// Of bytes that end so many bytes before the ICRC.
    pub fn new(distance: usize) -> Reach {
        const POLYNOMIAL: u32 = 0xedb8_8320;
        const ONE: u32 = 1 << 31;
        let mut factor = Hasher::new_with_initial(ONE);
        factor.combine(&Hasher::new_with_initial_len(0, distance as u64));
        let mut products = [[0; 16]; 8];
        // The product with 1, which is the highest bit, with x, and so on.
        let mut product = factor.finalize();
        for bit in (0..u32::BITS as usize).rev() {
            let of_half = &mut products[bit / 4];
            for half in (0..of_half.len()).filter(|half| half >> (bit % 4) & 1 == 1) {
                of_half[half] ^= product;
            }
            product = product >> 1 ^ (POLYNOMIAL & 0_u32.wrapping_sub(product & 1));
        }
        Reach { distance, products }
    }

    /// From their end to the ICRC, in bytes.
    #[inline]
    pub fn distance(&self) -> usize {
        self.distance
    }

    /// What the ICRC differs by, with the bytes that differ by these.
    #[inline]
    pub fn change(&self, bytes: &[u8]) -> u32 {
        // Without the ones that a CRC begins and ends with.
        let mut crc = Hasher::new_with_initial(u32::MAX);
        crc.update(bytes);
        self.carry(!crc.finalize())
    }

    /// What a CRC makes of the ICRC, or of the CRC of as many bytes as there are in between.
    #[inline]
    fn carry(&self, crc: u32) -> u32 {
        let halves = self.products.iter().enumerate();
        halves.fold(0, |sum, (at, of_half)| sum ^ of_half[(crc >> (4 * at) & 15) as usize])
    }
}

/// The ICRC of a native InfiniBand packet without a GRH, up to its ICRC at `end`: the LRH counts,
/// but for its virtual lane.
///
/// # Panics
///
/// Panics if `packet` is shorter than `end`, or `end` lies in the headers.
pub fn compute_local(packet: &[u8], end: usize) -> u32 {
    over::<LRH_HEAD, 0>(AFTER_0_ONES, &packet[..end], &LRH_MASK).finalize()
}

/// The CRC up to the ICRC.
#[inline]
fn masked(frame: &[u8], layout: &Layout) -> Hasher {
    const IPV4_UDP: usize = Ipv4::LEN + Udp::LEN;
    const IPV6_UDP: usize = Ipv6::LEN + Udp::LEN;
    let packet = &frame[layout.net..layout.icrc];
    match layout.bth - layout.net {
        IPV4_UDP => over::<IPV4_HEAD, IPV4_ONES>(AFTER_0_ONES, packet, &IPV4_MASK),
        IPV6_UDP => over::<IPV6_HEAD, IPV6_ONES>(AFTER_4_ONES, packet, &IPV6_MASK),
        _ => over::<GRH_HEAD, 0>(AFTER_8_ONES, packet, &GRH_MASK),
    }
}

/// The CRC of ones and `packet`, its headers masked, after a string whose CRC is `crc`.
#[inline]
fn over<const HEAD: usize, const ONES: usize>(
    crc: u32,
    packet: &[u8],
    mask: &'static [u8; HEAD],
) -> Hasher {
    let (headers, rest) = packet.split_at(HEAD - ONES);
    // Hidden from the optimiser, the mask is applied in whole vectors. If it knew the bytes, it
    // would store them in small pieces, which stall the wide loads of the CRC.
    let mask = black_box(mask);
    let mut head = [0; HEAD];
    head[ONES..].copy_from_slice(headers);
    let head: [u8; HEAD] = std::array::from_fn(|at| head[at] | mask[at]);
    let mut crc = Hasher::new_with_initial(crc);
    if rest.len() > SHORT {
        crc.update(&head);
        crc.update(rest);
        return crc;
    }
    // In one piece: what each piece costs beside its bytes is most of what a short packet does.
    let mut whole = [0; LONGEST_HEAD + SHORT];
    whole[..HEAD].copy_from_slice(&head);
    whole[HEAD..][..rest.len()].copy_from_slice(rest);
    crc.update(&whole[..HEAD + rest.len()]);
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Opcode, Packet};

    const IPV4: &str = "020000000002 020000000001 0800";
    const IPV6: &str = "020000000002 020000000001 86dd";
    const V1: &str = "020000000002 020000000001 8915";

    fn bytes(parts: &[&str]) -> Vec<u8> {
        let hex: Vec<u8> = parts.concat().bytes().filter(|digit| *digit != b' ').collect();
        let pairs = hex.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    /// Parses the frame, checks its ICRC, and returns its opcode and payload.
    fn check(parts: &[&str], value: u32) -> (Opcode, Vec<u8>) {
        let frame = bytes(parts);
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!(packet.layout.icrc + 4, frame.len());
        assert_eq!(compute(&frame, &packet.layout), value);
        assert!(packet.icrc_ok(&frame));
        (packet.headers.bth.opcode, packet.payload.to_vec())
    }

    #[test]
    fn ipv4_send_with_pad() {
        let parts = [
            IPV4,
            "4500003c 12344000 4011a479 c0000201 c0000202",
            "c12312b700280000 0430ffff 00000011 80123456",
            "68656c6c6f2c20526f43457632 000000",
            "e0c2ba08",
        ];
        let payload = b"hello, RoCEv2".to_vec();
        assert_eq!(check(&parts, 0x08ba_c2e0), (Opcode::RC_SEND_ONLY, payload));
    }

    #[test]
    fn ipv6_write() {
        let parts = [
            IPV6,
            "66812345 00301140",
            "20010db8000000000000000000000001 20010db8000000000000000000000002",
            "c12312b700300000 0a00ffff 00000011 80ffffff",
            "00007f0012345678 00abcd01 00000008 0001020304050607",
            "96caa50c",
        ];
        let payload = vec![0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(check(&parts, 0x0ca5_ca96), (Opcode::RC_WRITE_ONLY, payload));
    }

    #[test]
    fn v1_acknowledge() {
        let parts = [
            V1,
            "60000000 00141b01",
            "fe80000000000000020000fffe000001 fe80000000000000020000fffe000002",
            "1100ffff 00000012 00123456 1f000001",
            "f98def2e",
        ];
        assert_eq!(check(&parts, 0x2eef_8df9), (Opcode::RC_ACKNOWLEDGE, vec![]));
    }

    #[test]
    fn published_packets_of_hardware() {
        let cnp = [
            IPV4,
            "45c2003c 718c4000 40119161 0a001101 0a001201",
            "000012b700280000 8100ffff 40000118 00000000",
            "00000000000000000000000000000000",
            "82fd002a",
        ];
        assert_eq!(check(&cnp, 0x2a00_fd82), (Opcode::CNP, vec![0; 16]));
        let uc_send = [
            IPV4,
            "45010040 04784000 4011b4d5 c0a80007 c0a80007",
            "c00012b7002caca2 2460ffff 000000d3 00cf1710",
            "4630818be28935d90e9a95505401be885e50 0000",
            "78f353f3",
        ];
        assert_eq!(check(&uc_send, 0xf353_f378).0, Opcode::UC_SEND_ONLY);
    }

    #[test]
    fn an_identification_nobody_has_seen_follows_from_the_icrc() {
        let seen = "4500003c 12344000 4011a479 c0000201 c0000202";
        let unseen = "4500003c 00004000 4011b6ad c0000201 c0000202";
        let without_df = "4500003c 00000000 4011f6ad c0000201 c0000202";
        let rest = "c12312b700280000 0430ffff 00000011 80123456 \
                    68656c6c6f2c20526f43457632 000000 e0c2ba08";
        for ip in [seen, unseen, without_df] {
            let frame = bytes(&[IPV4, ip, rest]);
            let Packet { layout, icrc, .. } = Packet::parse(&frame).unwrap();
            assert_eq!(hidden_ident(&frame, &layout, icrc), Some((0x1234, true)), "{ip}");
            let mut damaged = frame;
            for bit in 0..8 {
                damaged[layout.payload] ^= 1 << bit;
                assert_eq!(hidden_ident(&damaged, &layout, icrc), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_change_of_headers_changes_the_icrc_as_its_reach_says() {
        let frame = bytes(&[
            IPV4,
            "4500003c 12344000 4011a479 c0000201 c0000202",
            "c12312b700280000 0430ffff 00000011 80123456",
            "68656c6c6f2c20526f43457632 000000 e0c2ba08",
        ]);
        let layout = Packet::parse(&frame).unwrap().layout;
        for at in [4, 12, 20, 26].map(|at| layout.net + at) {
            let mut changed = frame.clone();
            let change = [0x12, 0, 0xff, 0];
            for (byte, change) in changed[at..].iter_mut().zip(change) {
                *byte ^= change;
            }
            let reach = Reach::new(layout.icrc - at - change.len());
            let expected = compute(&frame, &layout) ^ compute(&changed, &layout);
            let is_masked = at == layout.net + 26;
            assert_eq!(reach.change(&change) == expected, !is_masked, "byte {at}");
        }
        assert_eq!(
            Reach::new(0).change(b"1234"),
            crc32fast::hash(b"1234") ^ crc32fast::hash(&[0; 4])
        );
    }

    #[test]
    fn a_plain_frame_summed_beforehand_has_the_same_icrc() {
        for (len, vlan) in [(0, ""), (4, ""), (13, ""), (13, "8100 0007")] {
            let mut frame = bytes(&[
                &IPV4[..26],
                vlan,
                "0800",
                "4500003c 12344000 4011a479 c0000201 c0000202",
                "c12312b700280000 0430ffff 00000011 80123456",
            ]);
            let bth = frame.len() - Bth::LEN;
            frame.extend_from_slice(&[7; 32][..len + 4]);
            let icrc = frame.len() - 4;
            let layout = Layout { net: bth - 28, bth, payload: bth + Bth::LEN, icrc };
            assert_eq!(is_plain(&frame, &layout), vlan.is_empty());
            assert!(!is_plain(&frame[..icrc + 3], &layout));
            let sum = append(of_plain_head(frame.first_chunk().unwrap()), &frame[PLAIN_HEAD..icrc]);
            assert_eq!(sum == compute(&frame, &layout), vlan.is_empty());
        }
    }

    #[test]
    fn starting_values_are_those_of_the_ones_left_out() {
        assert_eq!(crc32fast::hash(&[0xff; 8]), AFTER_8_ONES);
        assert_eq!(crc32fast::hash(&[0xff; 4]), AFTER_4_ONES);
        assert_eq!(crc32fast::hash(&[]), AFTER_0_ONES);
    }

    #[test]
    fn every_byte_counts_but_for_what_routers_change() {
        let frame = bytes(&[
            IPV4,
            "4500003c 12344000 4011a479 c0000201 c0000202",
            "c12312b700280000 0430ffff 00000011 80123456",
            "68656c6c6f2c20526f43457632 000000 e0c2ba08",
        ]);
        let layout = Packet::parse(&frame).unwrap().layout;
        let variant: Vec<usize> = [1, 8, 10, 11, 26, 27, 32].map(|at| layout.net + at).into();
        for at in layout.net..layout.icrc {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x55;
            let is_same = compute(&damaged, &layout) == compute(&frame, &layout);
            assert_eq!(is_same, variant.contains(&at), "byte {}", at - layout.net);
        }
    }
}
