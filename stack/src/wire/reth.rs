//! RDMA Extended Transport Header (IBA 9.3.3).

use super::bytes::{be32, be64, head, head_mut, put};

/// What an RDMA operation claims of the responder's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address.
    pub va: u64,
    /// Key of the region or window.
    pub rkey: u32,
    /// Bytes of the whole message, 0 to 2^31.
    pub dma_len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Reth {
        let bytes = head::<{ Reth::LEN }>(bytes);
        Reth { va: be64(bytes, 0), rkey: be32(bytes, 8), dma_len: be32(bytes, 12) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ Reth::LEN }>(out);
        put(out, 0, self.va.to_be_bytes());
        put(out, 8, self.rkey.to_be_bytes());
        put(out, 12, self.dma_len.to_be_bytes());
    }
}
