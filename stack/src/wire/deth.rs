//! Datagram Extended Transport Header (IBA 9.3.2).

use super::bytes::{be24, be32, head, head_mut, put, with_top};

/// Who sent a datagram, and the key that lets it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Byte 4.
    pub reserved: u8,
    /// The sender's QPN, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Deth {
        let bytes = head::<{ Deth::LEN }>(bytes);
        Deth { qkey: be32(bytes, 0), reserved: bytes[4], src_qp: be24(bytes, 5) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ Deth::LEN }>(out);
        put(out, 0, self.qkey.to_be_bytes());
        put(out, 4, with_top(self.reserved, self.src_qp));
    }
}
