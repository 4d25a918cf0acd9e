//! Atomic Acknowledge Extended Transport Header (IBA 9.3.5.3).

use super::bytes::{head, head_mut};

/// The outcome of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What the responder's memory held before.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> AtomicAckEth {
        AtomicAckEth { original: u64::from_be_bytes(*head(bytes)) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        *head_mut(out) = self.original.to_be_bytes();
    }
}
