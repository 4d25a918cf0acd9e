//! Classic BPF programs: which packets a socket takes at all.

use ferroce_stack::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, ROCE_PORT};
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, SKF_AD_OFF,
    SKF_AD_VLAN_TAG_PRESENT, sock_filter,
};

/// Takes nothing.
pub const NOTHING: [sock_filter; 1] = [take(0)];

/// More than any packet has.
const WHOLE: u32 = 0x0004_0000;

const UDP: u32 = 17;

/// The shortest UDP datagram that can be RoCE: headers of UDP and transport, ICRC.
const SHORTEST: u32 = 8 + 12 + 4;

/// Of Ethernet frames, takes RoCE v1 and unfragmented UDP to RoCE's port without IP options.
/// Tagged ones are the business of another interface.
pub const ROCE: [sock_filter; 24] = [
    load(BPF_B, (SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT) as u32),
    if_equal(0, 0, DROP - 2),
    load(BPF_H, 12),
    if_equal(ETHERTYPE_IPV4 as u32, IPV4 - 4, 0),
    if_equal(ETHERTYPE_IPV6 as u32, IPV6 - 5, 0),
    if_equal(ETHERTYPE_ROCE_V1 as u32, TAKE - 6, DROP - 6),
    // IPv4: version and header length, protocol, MF and offset, destination port, length.
    load(BPF_B, 14),
    if_equal(0x45, 0, DROP - 8),
    load(BPF_B, 14 + 9),
    if_equal(UDP, 0, DROP - 10),
    load(BPF_H, 14 + 6),
    if_any_of(0x3fff, DROP - 12, 0),
    load(BPF_H, 14 + 20 + 2),
    if_equal(ROCE_PORT as u32, 0, DROP - 14),
    load(BPF_H, 14 + 20 + 4),
    if_at_least(SHORTEST, TAKE - 16, DROP - 16),
    // IPv6: next header, destination port, length.
    load(BPF_B, 14 + 6),
    if_equal(UDP, 0, DROP - 18),
    load(BPF_H, 14 + 40 + 2),
    if_equal(ROCE_PORT as u32, 0, DROP - 20),
    load(BPF_H, 14 + 40 + 4),
    if_at_least(SHORTEST, TAKE - 22, DROP - 22),
    take(0),
    take(WHOLE),
];

/// Where in [`ROCE`] its parts begin.
const IPV4: u8 = 6;
const IPV6: u8 = 16;
const DROP: u8 = 22;
const TAKE: u8 = 23;

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

const fn take(bytes: u32) -> sock_filter {
    sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on an untagged frame.
    fn takes(program: &[sock_filter], frame: &[u8]) -> bool {
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let skip = |yes: bool| usize::from(if yes { jt } else { jf });
            let byte = |at: u32| frame.get(at as usize).copied().map(u32::from);
            match u32::from(code) {
                0x30 if k > 0xffff_0000 => value = 0,
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
        assert!(takes(&ROCE, &frame(0x0800, &v4)));
        assert!(takes(&ROCE, &frame(0x86dd, &v6)));
        assert!(takes(&ROCE, &frame(0x8915, &[])));
        // Options, TCP, a first fragment, a later one, another port, too short.
        for (at, byte) in [(14, 0x46), (23, 6), (20, 0x60), (21, 1), (37, 0xb8), (39, 23)] {
            assert!(!takes(&ROCE, &frame(0x0800, &with(&v4, at, byte))), "byte {at}");
        }
        for (at, byte) in [(20, 58), (56, 0), (59, 23)] {
            assert!(!takes(&ROCE, &frame(0x86dd, &with(&v6, at, byte))), "byte {at}");
        }
        assert!(!takes(&ROCE, &frame(0x0806, &v4)));
        assert!(!takes(&ROCE, &frame(0x0800, &v4)[..36]));
        assert!(!takes(&NOTHING, &frame(0x0800, &v4)));
    }
}
