//! XRC Extended Transport Header (Annex A14).

use super::bytes::{be24, head, head_mut, with_top};

/// The shared receive queue a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcEth {
    /// Byte 0.
    pub reserved: u8,
    /// Number of the SRQ, 24 bits.
    pub srqn: u32,
}

impl XrcEth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> XrcEth {
        let bytes = head::<{ XrcEth::LEN }>(bytes);
        XrcEth { reserved: bytes[0], srqn: be24(bytes, 1) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        *head_mut(out) = with_top(self.reserved, self.srqn);
    }
}
