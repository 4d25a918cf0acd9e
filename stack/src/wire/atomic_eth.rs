//! Atomic Extended Transport Header (IBA 9.3.4).

use super::bytes::{be32, be64, head, head_mut, put};

/// What an atomic operation does, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub va: u64,
    /// Key of the region or window.
    pub rkey: u32,
    /// The value to swap in, or to add.
    pub swap_or_add: u64,
    /// The value to compare with; 0 for FetchAdd.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> AtomicEth {
        let bytes = head::<{ AtomicEth::LEN }>(bytes);
        AtomicEth {
            va: be64(bytes, 0),
            rkey: be32(bytes, 8),
            swap_or_add: be64(bytes, 12),
            compare: be64(bytes, 20),
        }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ AtomicEth::LEN }>(out);
        put(out, 0, self.va.to_be_bytes());
        put(out, 8, self.rkey.to_be_bytes());
        put(out, 12, self.swap_or_add.to_be_bytes());
        put(out, 20, self.compare.to_be_bytes());
    }
}
