//! Application memory of a test: one flat array, with a range that can be made to fault.

use std::ops::Range;

use ferroce_stack::memory::{AtomicOp, Memory, MemoryFault, Span};

/// Address of the first byte.
pub const BASE: u64 = 0x10_0000;

/// Bytes there are.
const SIZE: usize = 4 << 20;

/// Flat memory from [`BASE`] on.
#[derive(Debug)]
pub struct Flat {
    bytes: Vec<u8>,
    /// Addresses that fault.
    pub faulty: Range<u64>,
    /// FLUSHes seen: address, length in bytes, persistent.
    pub flushes: Vec<(u64, usize, bool)>,
}

impl Default for Flat {
    fn default() -> Flat {
        Flat { bytes: vec![0; SIZE], faulty: 0..0, flushes: Vec::new() }
    }
}

impl Flat {
    /// Bytes of the whole memory.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The `len` bytes at `addr`.
    pub fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        let at = (addr - BASE) as usize;
        &self.bytes[at..at + len]
    }

    /// Stores `data` at `addr`.
    pub fn put(&mut self, addr: u64, data: &[u8]) {
        let at = (addr - BASE) as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    /// The word at `addr`, in host byte order.
    pub fn word(&self, addr: u64) -> u64 {
        u64::from_ne_bytes(self.bytes(addr, 8).try_into().expect("8 bytes"))
    }

    fn range(&self, span: Span) -> Result<Range<usize>, MemoryFault> {
        let end = span.addr() + span.len() as u64;
        if span.addr() < self.faulty.end && self.faulty.start < end {
            return Err(MemoryFault);
        }
        let at = (span.addr() - BASE) as usize;
        Ok(at..at + span.len())
    }
}

impl Memory for Flat {
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault> {
        out.copy_from_slice(&self.bytes[self.range(span)?]);
        Ok(())
    }

    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault> {
        let range = self.range(span)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, span: Span, op: AtomicOp) -> Result<u64, MemoryFault> {
        let range = self.range(span)?;
        let original = self.word(span.addr());
        self.bytes[range].copy_from_slice(&op.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn flush(&mut self, span: Span, persistent: bool) -> Result<(), MemoryFault> {
        self.range(span)?;
        self.flushes.push((span.addr(), span.len(), persistent));
        Ok(())
    }
}
