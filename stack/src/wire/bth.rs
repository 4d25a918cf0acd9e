//! Base Transport Header (IBA 9.2; BECN: Annex A17.9).

use super::Opcode;
use super::bytes::{be16, be24, head, head_mut, put, with_top};
use crate::psn::Psn;

/// The header every packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Service and operation.
    pub opcode: Opcode,
    /// SE: the receiver asks for an event.
    pub solicited: bool,
    /// M: path migration state, 1 = migrated.
    pub mig_req: bool,
    /// Pad bytes after the payload, 0 to 3.
    pub pad_count: u8,
    /// TVer, 4 bits; only 0 is defined.
    pub transport_version: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification; unused in RoCE v2.
    pub fecn: bool,
    /// Backward congestion notification; set in a CNP.
    pub becn: bool,
    /// Byte 4, low 6 bits. Some NICs set them.
    pub reserved6: u8,
    /// 24 bits; 0xFFFFFF is multicast.
    pub dest_qp: u32,
    /// A: the responder is asked to acknowledge.
    pub ack_req: bool,
    /// Byte 8, low 7 bits; under the ICRC. Devices of ours mark what they offer each other here
    /// ([`LossRecovery::mark`](crate::LossRecovery::mark)).
    pub reserved7: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// A header with the default P_Key and M set, as packets of a path without an alternate have
    /// (IBA 17.2.8.1); all else is 0.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            mig_req: true,
            pad_count: 0,
            transport_version: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            reserved6: 0,
            dest_qp,
            ack_req: false,
            reserved7: 0,
            psn,
        }
    }

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Bth {
        let bytes = head::<{ Bth::LEN }>(bytes);
        Bth {
            opcode: Opcode(bytes[0]),
            solicited: bytes[1] & 0x80 != 0,
            mig_req: bytes[1] & 0x40 != 0,
            pad_count: bytes[1] >> 4 & 3,
            transport_version: bytes[1] & 0x0f,
            pkey: be16(bytes, 2),
            fecn: bytes[4] & 0x80 != 0,
            becn: bytes[4] & 0x40 != 0,
            reserved6: bytes[4] & 0x3f,
            dest_qp: be24(bytes, 5),
            ack_req: bytes[8] & 0x80 != 0,
            reserved7: bytes[8] & 0x7f,
            psn: Psn::new(be24(bytes, 9)),
        }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ Bth::LEN }>(out);
        out[0] = self.opcode.0;
        out[1] = u8::from(self.solicited) << 7
            | u8::from(self.mig_req) << 6
            | (self.pad_count & 3) << 4
            | self.transport_version & 0x0f;
        put(out, 2, self.pkey.to_be_bytes());
        let congestion = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        put(out, 4, with_top(congestion | self.reserved6 & 0x3f, self.dest_qp));
        let ack = u8::from(self.ack_req) << 7 | self.reserved7 & 0x7f;
        put(out, 8, with_top(ack, self.psn.value()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_kept() {
        for byte in 0..Bth::LEN {
            for bit in 0..8 {
                let mut wire = [0; Bth::LEN];
                wire[byte] = 1 << bit;
                let mut out = [0xff; Bth::LEN];
                Bth::parse(&wire).emit(&mut out);
                assert_eq!(out, wire);
            }
        }
    }

    #[test]
    fn fields_stand_where_the_standard_puts_them() {
        let wire = [0x04, 0xf0, 0x12, 0x34, 0xd0, 0x00, 0x01, 0x18, 0x81, 0x12, 0x34, 0x56];
        let bth = Bth {
            opcode: Opcode::RC_SEND_ONLY,
            solicited: true,
            mig_req: true,
            pad_count: 3,
            transport_version: 0,
            pkey: 0x1234,
            fecn: true,
            becn: true,
            reserved6: 0x10,
            dest_qp: 0x118,
            ack_req: true,
            reserved7: 1,
            psn: Psn::new(0x123456),
        };
        assert_eq!(Bth::parse(&wire), bth);
    }
}
