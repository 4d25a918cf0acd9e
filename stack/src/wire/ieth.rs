//! Invalidate Extended Transport Header (IBA 9.3.7).

use super::bytes::{head, head_mut};

/// The key a SEND with invalidate makes stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// Key of the region or window.
    pub rkey: u32,
}

impl Ieth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Ieth {
        Ieth { rkey: u32::from_be_bytes(*head(bytes)) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        *head_mut(out) = self.rkey.to_be_bytes();
    }
}
