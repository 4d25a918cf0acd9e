//! Classic BPF programs: which packets a socket takes at all.

use ferroce_stack::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, ROCE_PORT};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD,
    BPF_RET, BPF_W, SKF_AD_OFF, SKF_AD_VLAN_TAG, SKF_AD_VLAN_TAG_PRESENT, sock_filter,
};

/// Takes nothing.
pub const NOTHING: [sock_filter; 1] = [take(0)];

/// More than any packet has.
const WHOLE: u32 = 0x0004_0000;

const UDP: u32 = 17;
const ICMPV6: u32 = 58;
const ETHERTYPE_ARP: u32 = 0x0806;
/// ICMPv6's type of a neighbour solicitation; that of an advertisement is one more.
const SOLICITATION: u32 = 135;

/// The shortest UDP datagram that can be RoCE: headers of UDP and transport, ICRC.
const SHORTEST: u32 = 8 + 12 + 4;

/// Of the Ethernet frames of a VLAN, takes RoCE v1 and unfragmented UDP to RoCE's port without IP
/// options. VLAN 0 is that of frames that have no tag, or only a priority. The kernel has taken
/// tags out of the frames before.
pub const fn roce(vid: u16) -> [sock_filter; 27] {
    /// Where its parts begin.
    const IPV4: u8 = 9;
    const IPV6: u8 = 19;
    const DROP: u8 = 25;
    const TAKE: u8 = 26;
    let [present, untagged, tag, id, other] = of_vlan(vid, DROP);
    [
        present,
        untagged,
        tag,
        id,
        other,
        load(BPF_H, 12),
        if_equal(ETHERTYPE_IPV4 as u32, IPV4 - 7, 0),
        if_equal(ETHERTYPE_IPV6 as u32, IPV6 - 8, 0),
        if_equal(ETHERTYPE_ROCE_V1 as u32, TAKE - 9, DROP - 9),
        // IPv4: version and header length, protocol, MF and offset, destination port, length.
        load(BPF_B, 14),
        if_equal(0x45, 0, DROP - 11),
        load(BPF_B, 14 + 9),
        if_equal(UDP, 0, DROP - 13),
        load(BPF_H, 14 + 6),
        if_any_of(0x3fff, DROP - 15, 0),
        load(BPF_H, 14 + 20 + 2),
        if_equal(ROCE_PORT as u32, 0, DROP - 17),
        load(BPF_H, 14 + 20 + 4),
        if_at_least(SHORTEST, TAKE - 19, DROP - 19),
        // IPv6: next header, destination port, length.
        load(BPF_B, 14 + 6),
        if_equal(UDP, 0, DROP - 21),
        load(BPF_H, 14 + 40 + 2),
        if_equal(ROCE_PORT as u32, 0, DROP - 23),
        load(BPF_H, 14 + 40 + 4),
        if_at_least(SHORTEST, TAKE - 25, DROP - 25),
        take(0),
        take(WHOLE),
    ]
}

/// Of the Ethernet frames of a VLAN, as above, takes ARP, and NDP's solicitations and
/// advertisements of neighbours.
pub const fn neighbours(vid: u16) -> [sock_filter; 17] {
    const DROP: u8 = 15;
    const TAKE: u8 = 16;
    let [present, untagged, tag, id, other] = of_vlan(vid, DROP);
    [
        present,
        untagged,
        tag,
        id,
        other,
        load(BPF_H, 12),
        if_equal(ETHERTYPE_ARP, TAKE - 7, 0),
        if_equal(ETHERTYPE_IPV6 as u32, 0, DROP - 8),
        // Next header, hop limit (a router's is less), type.
        load(BPF_B, 14 + 6),
        if_equal(ICMPV6, 0, DROP - 10),
        load(BPF_B, 14 + 7),
        if_equal(255, 0, DROP - 12),
        load(BPF_B, 14 + 40),
        if_at_least(SOLICITATION, 0, DROP - 14),
        if_at_least(SOLICITATION + 2, DROP - 15, TAKE - 15),
        take(0),
        take(WHOLE),
    ]
}

/// What the kernel keeps beside a frame: whether it had a tag, and which. Where it had none, the
/// other may be an older one.
const VLAN_TAG_PRESENT: u32 = (SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT) as u32;
const VLAN_TAG: u32 = (SKF_AD_OFF + SKF_AD_VLAN_TAG) as u32;
/// Of a tag, the VLAN.
const VID: u32 = 0x0fff;

/// How a program begins that goes to its instruction `drop` with the frames of other VLANs.
const fn of_vlan(vid: u16, drop: u8) -> [sock_filter; 5] {
    [
        load(BPF_B, VLAN_TAG_PRESENT),
        if_equal(0, 2, 0),
        load(BPF_W, VLAN_TAG),
        and(VID),
        if_equal(vid as u32, 0, drop - 5),
    ]
}

const fn load(size: u32, at: u32) -> sock_filter {
    sock_filter { code: (BPF_LD | BPF_ABS | size) as u16, jt: 0, jf: 0, k: at }
}

/// Skips `yes` or `no` instructions.
const fn if_equal(value: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt: yes, jf: no, k: value }
}

const fn if_at_least(value: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JGE | BPF_K) as u16, jt: yes, jf: no, k: value }
}

const fn if_any_of(bits: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | BPF_JSET | BPF_K) as u16, jt: yes, jf: no, k: bits }
}

const fn and(bits: u32) -> sock_filter {
    sock_filter { code: (BPF_ALU | BPF_AND | BPF_K) as u16, jt: 0, jf: 0, k: bits }
}

const fn take(bytes: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's of another frame.
    const STALE: u32 = 0x0009;

    /// Runs a program on a frame whose tag the kernel has taken out.
    fn takes_tagged(program: &[sock_filter], tag: Option<u32>, frame: &[u8]) -> bool {
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let skip = |yes: bool| usize::from(if yes { jt } else { jf });
            let byte = |at: u32| frame.get(at as usize).copied().map(u32::from);
            match u32::from(code) {
                0x30 if k == VLAN_TAG_PRESENT => value = u32::from(tag.is_some()),
                0x20 if k == VLAN_TAG => value = tag.unwrap_or(STALE),
                0x54 => value &= k,
                0x30 => match byte(k) {
                    Some(byte) => value = byte,
                    None => return false,
                },
                0x28 => match (byte(k), byte(k + 1)) {
                    (Some(high), Some(low)) => value = high << 8 | low,
                    _ => return false,
                },
                0x15 => at += skip(value == k),
                0x35 => at += skip(value >= k),
                0x45 => at += skip(value & k != 0),
                0x06 => return k != 0,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    fn takes(program: &[sock_filter], frame: &[u8]) -> bool {
        takes_tagged(program, None, frame)
    }

    fn frame(ethertype: u16, changes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 80];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        for &(at, byte) in changes {
            frame[at] = byte;
        }
        frame
    }

    #[test]
    fn takes_roce_and_nothing_else() {
        let v4 = [(14, 0x45), (20, 0x40), (23, 17), (36, 0x12), (37, 0xb7), (39, 24)];
        let v6 = [(14, 0x60), (20, 17), (56, 0x12), (57, 0xb7), (59, 24)];
        let with = |base: &[(usize, u8)], at, byte| [base, &[(at, byte)]].concat();
        assert!(takes(&roce(0), &frame(0x0800, &v4)));
        assert!(takes(&roce(0), &frame(0x86dd, &v6)));
        assert!(takes(&roce(0), &frame(0x8915, &[])));
        // Options, TCP, a first fragment, a later one, another port, too short.
        for (at, byte) in [(14, 0x46), (23, 6), (20, 0x60), (21, 1), (37, 0xb8), (39, 23)] {
            assert!(!takes(&roce(0), &frame(0x0800, &with(&v4, at, byte))), "byte {at}");
        }
        for (at, byte) in [(20, 58), (56, 0), (59, 23)] {
            assert!(!takes(&roce(0), &frame(0x86dd, &with(&v6, at, byte))), "byte {at}");
        }
        assert!(!takes(&roce(0), &frame(0x0806, &v4)));
        assert!(!takes(&roce(0), &frame(0x0800, &v4)[..36]));
        assert!(!takes(&NOTHING, &frame(0x0800, &v4)));
    }
    #[test]
    fn each_vlan_is_apart() {
        let v1 = frame(0x8915, &[]);
        for (vid, tag, expected) in [
            (0, None, true),
            // A mere priority.
            (0, Some(0xe000), true),
            (0, Some(0x0007), false),
            (7, Some(0x0007), true),
            (7, Some(0xf007), true),
            (7, Some(0x0017), false),
            (7, None, false),
            (9, None, false),
        ] {
            assert_eq!(takes_tagged(&roce(vid), tag, &v1), expected, "{vid} {tag:?}");
            let arp = frame(0x0806, &[]);
            assert_eq!(takes_tagged(&neighbours(vid), tag, &arp), expected, "{vid} {tag:?}");
        }
    }

    #[test]
    fn of_neighbours_takes_what_is_asked_and_said() {
        let v6 = [(20, 58), (21, 255), (54, 135)];
        let with = |at, byte| frame(0x86dd, &[&v6[..], &[(at, byte)]].concat());
        assert!(takes(&neighbours(0), &with(54, 135)) && takes(&neighbours(0), &with(54, 136)));
        // UDP, from beyond a router, router's advertisement, redirect.
        for (at, byte) in [(20, 17), (21, 254), (54, 134), (54, 137)] {
            assert!(!takes(&neighbours(0), &with(at, byte)), "byte {at}");
        }
        assert!(!takes(&neighbours(0), &frame(0x0800, &v6)));
        assert!(!takes(&neighbours(0), &with(54, 135)[..54]));
    }
}
