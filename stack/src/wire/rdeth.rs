//! Reliable Datagram Extended Transport Header (IBA 9.3.1). Recognised, never spoken.

use super::bytes::{be24, head, head_mut, with_top};

/// The end-to-end context of a reliable datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rdeth {
    /// Byte 0.
    pub reserved: u8,
    /// Number of the context, 24 bits.
    pub ee_context: u32,
}

impl Rdeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Rdeth {
        let bytes = head::<{ Rdeth::LEN }>(bytes);
        Rdeth { reserved: bytes[0], ee_context: be24(bytes, 1) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        *head_mut(out) = with_top(self.reserved, self.ee_context);
    }
}
