//! The program that picks out of all frames of an interface those for the sockets.
//!
//! It takes RoCE v2 (unfragmented UDP to port 4791, IPv4 without options or IPv6 without extension
//! headers) and RoCE v1, of the link's VLAN. Everything else goes on to the kernel.

use ferroce_stack::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, ROCE_PORT};

/// An instruction as the kernel has it: operation, registers, offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// Operations: class, size or source, what.
mod code {
    pub const LOAD_U8: u8 = 0x71;
    pub const LOAD_U16: u8 = 0x69;
    pub const LOAD_U32: u8 = 0x61;
    pub const LOAD_IMMEDIATE_U64: u8 = 0x18;
    pub const MOVE_REGISTER: u8 = 0xbf;
    pub const MOVE: u8 = 0xb7;
    pub const ADD: u8 = 0x07;
    pub const AND: u8 = 0x57;
    pub const JUMP: u8 = 0x05;
    pub const IF_GREATER_REGISTER: u8 = 0x2d;
    pub const IF_EQUAL: u8 = 0x15;
    pub const IF_NOT_EQUAL: u8 = 0x55;
    pub const IF_ANY_OF: u8 = 0x45;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
}

/// Fields of the context (`struct xdp_md`), in bytes.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// In the source register of [`code::LOAD_IMMEDIATE_U64`]: the value is a map's descriptor.
const MAP: u8 = 1;

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

const UDP: i32 = 17;

/// Bytes of headers.
const IPV4_AND_UDP: i32 = 28;
const IPV6_AND_UDP: i32 = 48;

/// Of a tag, in front of the frame's own.
pub const ETHERTYPE_VLAN: u16 = 0x8100;

/// Registers: the result, arguments, and one that calls leave alone.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const R6: u8 = 6;

/// Where a jump leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Ipv6,
    Tagged,
    TaggedIpv6,
    Redirect,
    Pass,
}

/// The instructions so far, and what of them is not known yet.
#[derive(Debug, Default)]
struct Assembly {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembly {
    fn add(&mut self, code: u8, [to, from]: [u8; 2], offset: i16, value: i32) {
        let registers = match cfg!(target_endian = "big") {
            true => to << 4 | from,
            false => from << 4 | to,
        };
        self.code.push(Instruction { code, registers, offset, value });
    }

    fn jump(&mut self, code: u8, registers: [u8; 2], value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.add(code, registers, 0, value);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    /// Reads from the frame into R5.
    fn load(&mut self, code: u8, at: i16) {
        self.add(code, [R5, R2], at, 0);
    }

    /// Jumps unless R5 is this number of the network's.
    fn require(&mut self, value: u16) {
        self.jump(code::IF_NOT_EQUAL, [R5, 0], i32::from(value.to_be()), Label::Pass);
    }

    /// Makes sure that the frame has so many more bytes. RoCE v1 has more than are asked for.
    fn grow(&mut self, bytes: i32) {
        self.add(code::ADD, [R4, 0], 0, bytes);
        self.jump(code::IF_GREATER_REGISTER, [R4, R3], 0, Label::Pass);
    }

    /// Selects frames whose Ethertype is in R5 and whose IP header is at `net`.
    fn select(&mut self, net: i16, ipv6: Label) {
        let of = |ethertype: u16| i32::from(ethertype.to_be());
        self.jump(code::IF_EQUAL, [R5, 0], of(ETHERTYPE_IPV6), ipv6);
        self.jump(code::IF_EQUAL, [R5, 0], of(ETHERTYPE_ROCE_V1), Label::Redirect);
        self.require(ETHERTYPE_IPV4);
        // Version and header length, protocol, MF and offset, destination port.
        self.load(code::LOAD_U8, net);
        self.jump(code::IF_NOT_EQUAL, [R5, 0], 0x45, Label::Pass);
        self.load(code::LOAD_U8, net + 9);
        self.jump(code::IF_NOT_EQUAL, [R5, 0], UDP, Label::Pass);
        self.load(code::LOAD_U16, net + 6);
        self.jump(code::IF_ANY_OF, [R5, 0], of(0x3fff), Label::Pass);
        self.load(code::LOAD_U16, net + 22);
        self.require(ROCE_PORT);
        self.jump(code::JUMP, [0, 0], 0, Label::Redirect);
        self.label(ipv6);
        self.grow(IPV6_AND_UDP - IPV4_AND_UDP);
        // Next header, destination port.
        self.load(code::LOAD_U8, net + 6);
        self.jump(code::IF_NOT_EQUAL, [R5, 0], UDP, Label::Pass);
        self.load(code::LOAD_U16, net + 42);
        self.require(ROCE_PORT);
        self.jump(code::JUMP, [0, 0], 0, Label::Redirect);
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.labels.iter().find(|(other, _)| *other == label);
            let (_, target) = place.expect("every label is placed");
            self.code[at].offset = (target - at - 1) as i16;
        }
        self.code
    }
}

/// The program for frames of a VLAN (0 is that of frames that have no tag, or only a priority), and
/// sockets in the map of descriptor `map`.
pub fn assemble(map: i32, vid: u16) -> Vec<Instruction> {
    let mut a = Assembly::default();
    a.add(code::MOVE_REGISTER, [R6, R1], 0, 0);
    a.add(code::LOAD_U32, [R2, R1], DATA, 0);
    a.add(code::LOAD_U32, [R3, R1], DATA_END, 0);
    a.add(code::MOVE_REGISTER, [R4, R2], 0, 0);
    a.grow(14 + IPV4_AND_UDP);
    a.load(code::LOAD_U16, 12);
    if vid == 0 {
        let tag = i32::from(ETHERTYPE_VLAN.to_be());
        a.jump(code::IF_EQUAL, [R5, 0], tag, Label::Tagged);
        a.select(14, Label::Ipv6);
        a.label(Label::Tagged);
    } else {
        a.require(ETHERTYPE_VLAN);
    }
    a.grow(4);
    a.load(code::LOAD_U16, 14);
    a.add(code::AND, [R5, 0], 0, i32::from(0x0fff_u16.to_be()));
    a.require(vid);
    a.load(code::LOAD_U16, 16);
    a.select(18, Label::TaggedIpv6);
    a.label(Label::Redirect);
    a.add(code::LOAD_U32, [R2, R6], QUEUE, 0);
    a.add(code::LOAD_IMMEDIATE_U64, [R1, MAP], 0, map);
    a.add(0, [0, 0], 0, 0);
    // What a queue without socket gets is the kernel's.
    a.add(code::MOVE, [R3, 0], 0, XDP_PASS);
    a.add(code::CALL, [0, 0], 0, REDIRECT_MAP);
    a.add(code::EXIT, [0, 0], 0, 0);
    a.label(Label::Pass);
    a.add(code::MOVE, [R0, 0], 0, XDP_PASS);
    a.add(code::EXIT, [0, 0], 0, 0);
    a.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 1 << 40;
    const DATA_START: u64 = 1 << 32;
    const MAP_DESCRIPTOR: i32 = 77;

    /// Whether the program redirects a frame that has come by queue 3.
    fn takes(program: &[Instruction], frame: &[u8]) -> bool {
        let (mut at, mut r) = (0, [0u64; 11]);
        r[1] = CONTEXT;
        loop {
            let Instruction { code, registers, offset, value } = program[at];
            let (to, from) = (usize::from(registers & 15), usize::from(registers >> 4));
            at += 1;
            let byte = |index: u64| frame[(r[from] - DATA_START + offset as u64 + index) as usize];
            let field = |offset| match offset {
                DATA => DATA_START,
                DATA_END => DATA_START + frame.len() as u64,
                QUEUE => 3,
                _ => panic!("field {offset}"),
            };
            let jumps = match code {
                code::JUMP => true,
                code::IF_GREATER_REGISTER => r[to] > r[from],
                code::IF_EQUAL => r[to] == value as u64,
                code::IF_NOT_EQUAL => r[to] != value as u64,
                code::IF_ANY_OF => r[to] & value as u64 != 0,
                _ => false,
            };
            match code {
                _ if jumps => at += offset as usize,
                code::LOAD_U8 => r[to] = byte(0).into(),
                code::LOAD_U16 => r[to] = u16::from_ne_bytes([byte(0), byte(1)]).into(),
                code::LOAD_U32 if r[from] == CONTEXT => r[to] = field(offset),
                code::LOAD_IMMEDIATE_U64 => (r[to], at) = (value as u64, at + 1),
                code::MOVE_REGISTER => r[to] = r[from],
                code::MOVE => r[to] = value as u64,
                code::ADD => r[to] += value as u64,
                code::AND => r[to] &= value as u64,
                code::CALL => {
                    let arguments = (value, r[1] as i32, r[2], r[3]);
                    assert_eq!(arguments, (REDIRECT_MAP, MAP_DESCRIPTOR, 3, XDP_PASS as u64));
                    return true;
                }
                code::EXIT => {
                    assert_eq!(r[0], XDP_PASS as u64);
                    return false;
                }
                code::IF_GREATER_REGISTER
                | code::IF_EQUAL
                | code::IF_NOT_EQUAL
                | code::IF_ANY_OF => {}
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

    fn tagged(ethertype: u16, changes: &[(usize, u8)], tag: [u8; 4]) -> Vec<u8> {
        let mut frame = frame(ethertype, changes);
        frame.splice(12..12, tag);
        frame
    }

    const V4: &[(usize, u8)] = &[(14, 0x45), (20, 0x40), (23, 17), (36, 0x12), (37, 0xb7)];
    const V6: &[(usize, u8)] = &[(14, 0x60), (20, 17), (56, 0x12), (57, 0xb7)];

    #[test]
    fn takes_roce_and_nothing_else() {
        let program = assemble(MAP_DESCRIPTOR, 0);
        let takes = |frame: &[u8]| takes(&program, frame);
        let with = |base: &[(usize, u8)], at, byte| [base, &[(at, byte)]].concat();
        assert!(takes(&frame(0x0800, V4)) && takes(&frame(0x86dd, V6)));
        assert!(takes(&frame(0x8915, &[])));
        // Options, TCP, a first fragment, a later one, another port.
        for (at, byte) in [(14, 0x46), (23, 6), (20, 0x60), (21, 1), (37, 0xb8)] {
            assert!(!takes(&frame(0x0800, &with(V4, at, byte))), "byte {at}");
        }
        for (at, byte) in [(20, 58), (56, 0)] {
            assert!(!takes(&frame(0x86dd, &with(V6, at, byte))), "byte {at}");
        }
        assert!(!takes(&frame(0x0806, V4)) && !takes(&frame(0x8100, V4)));
        // A tag with a priority and no VLAN, and one with a VLAN.
        for (ethertype, changes) in [(0x0800, V4), (0x86dd, V6)] {
            assert!(takes(&tagged(ethertype, changes, [0x81, 0, 0xe0, 0])));
            assert!(!takes(&tagged(ethertype, changes, [0x81, 0, 0xe0, 1])));
        }
        assert!(!takes(&tagged(0x86dd, V6, [0x81, 0, 0, 0])[..65]));
        assert!(!takes(&frame(0x0800, V4)[..41]) && !takes(&frame(0x86dd, V6)[..61]));
        assert!(!takes(&[]));
    }

    #[test]
    fn takes_the_frames_of_its_vlan_alone() {
        let program = assemble(MAP_DESCRIPTOR, 0x234);
        for (ethertype, changes) in [(0x0800, V4), (0x86dd, V6)] {
            assert!(takes(&program, &tagged(ethertype, changes, [0x81, 0, 0xe2, 0x34])));
            assert!(!takes(&program, &tagged(ethertype, changes, [0x81, 0, 0xe2, 0x35])));
            assert!(!takes(&program, &tagged(ethertype, changes, [0x88, 0xa8, 2, 0x34])));
            assert!(!takes(&program, &frame(ethertype, changes)));
        }
        assert!(!takes(&program, &tagged(0x0806, V4, [0x81, 0, 2, 0x34])));
    }
}
