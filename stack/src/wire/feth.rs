//! FLUSH Extended Transport Header (Annex A19).

use super::bytes::{head, head_mut};

/// What a FLUSH makes durable, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    /// Bits 31 to 6.
    pub reserved: u32,
    /// Selectivity, 2 bits: [`RANGE`](Self::RANGE) or [`REGION`](Self::REGION).
    pub level: u8,
    /// Placement, 4 bits: [`VISIBILITY`](Self::VISIBILITY), [`PERSISTENCE`](Self::PERSISTENCE).
    pub placement: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    /// Level: the range the RETH names.
    pub const RANGE: u8 = 0;
    /// Level: the whole region of the R_Key; address and length do not count.
    pub const REGION: u8 = 1;
    /// Placement bit: visible to all that read the memory.
    pub const VISIBILITY: u8 = 1;
    /// Placement bit: survives a power failure.
    pub const PERSISTENCE: u8 = 2;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Feth {
        let word = u32::from_be_bytes(*head(bytes));
        Feth { reserved: word >> 6, level: (word >> 4 & 3) as u8, placement: (word & 15) as u8 }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (level, placement) = (u32::from(self.level & 3), u32::from(self.placement & 15));
        *head_mut(out) = (self.reserved << 6 | level << 4 | placement).to_be_bytes();
    }
}
