//! Memory of the program that uses the device: one range of addresses for each region, and nothing
//! between them.

use ferroce_stack::memory::{AtomicOp, Memory, MemoryFault, Span};

/// Where the first range begins.
const FIRST: u64 = 0x10_0000;
/// Ranges begin at multiples of this.
const PAGE: u64 = 4096;
/// At least so many addresses between two ranges lead nowhere.
const GAP: u64 = 0x10_0000;
/// Bytes of all ranges together.
const MOST: u64 = 8 << 30;

/// One range.
#[derive(Debug)]
struct Range {
    address: u64,
    bytes: Vec<u8>,
}

/// All ranges, by ascending address.
#[derive(Debug, Default)]
pub(super) struct Host {
    ranges: Vec<Range>,
}

impl Host {
    /// Allocates `length` bytes that hold `first`, then zeros; its address, or nothing if that is
    /// more than there is.
    pub fn allocate(&mut self, length: u64, first: &[u8]) -> Option<u64> {
        let taken: u64 = self.ranges.iter().map(|range| range.bytes.len() as u64).sum();
        if length > MOST - taken.min(MOST) {
            return None;
        }
        let address = self.ranges.last().map_or(FIRST, |last| {
            (last.address + last.bytes.len() as u64 + GAP).next_multiple_of(PAGE)
        });
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        let held = first.len().min(bytes.len());
        bytes[..held].copy_from_slice(&first[..held]);
        self.ranges.push(Range { address, bytes });
        Some(address)
    }

    /// The `length` bytes at `address`, if they lie in one range.
    pub fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        let range = &self.ranges[self.index(address)?];
        let at = usize::try_from(address - range.address).ok()?;
        range.bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
    }

    /// The same, to change.
    pub fn bytes_mut(&mut self, address: u64, length: u64) -> Option<&mut [u8]> {
        let index = self.index(address)?;
        let range = &mut self.ranges[index];
        let at = usize::try_from(address - range.address).ok()?;
        range.bytes.get_mut(at..at.checked_add(usize::try_from(length).ok()?)?)
    }

    /// The last range that begins at or before `address`.
    fn index(&self, address: u64) -> Option<usize> {
        self.ranges.partition_point(|range| range.address <= address).checked_sub(1)
    }

    fn span(&self, span: Span) -> Result<&[u8], MemoryFault> {
        self.bytes(span.addr(), span.len() as u64).ok_or(MemoryFault)
    }

    fn span_mut(&mut self, span: Span) -> Result<&mut [u8], MemoryFault> {
        self.bytes_mut(span.addr(), span.len() as u64).ok_or(MemoryFault)
    }
}

impl Memory for Host {
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault> {
        out.copy_from_slice(self.span(span)?);
        Ok(())
    }

    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault> {
        self.span_mut(span)?.copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, span: Span, op: AtomicOp) -> Result<u64, MemoryFault> {
        let word = self.span_mut(span)?;
        let original = u64::from_ne_bytes((&*word).try_into().map_err(|_| MemoryFault)?);
        word.copy_from_slice(&op.apply(original).to_ne_bytes());
        Ok(original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_apart() {
        let mut host = Host::default();
        let a = host.allocate(100, &[1, 2]).unwrap();
        let b = host.allocate(4096, &[]).unwrap();
        assert_eq!(host.bytes(a, 3), Some(&[1, 2, 0][..]));
        assert_eq!(host.bytes(a, 101), None);
        assert_eq!(host.bytes(a - 1, 1), None);
        assert_eq!(host.bytes(b - 1, 1), None);
        assert!(b - a >= GAP && b.is_multiple_of(PAGE));
        host.bytes_mut(b + 4095, 1).unwrap()[0] = 7;
        assert_eq!(host.bytes(b + 4094, 2), Some(&[0, 7][..]));
        assert_eq!(host.bytes(b + 4095, 2), None);
        assert_eq!(host.bytes(a, u64::MAX), None);
        assert_eq!(host.allocate(u64::MAX, &[]), None);
    }
}
