//! Application memory the library owns, for programs that do not bring their own: tests, tools
//! and benchmarks.
//!
//! An [`Arena`] is one run of bytes at a fixed virtual address. Every allocation stands between
//! canaries, so that a transport that writes a byte too far is found out.

use std::cell::Cell;
use std::fmt;

use ferroce_stack::memory::{AtomicOp, Memory, MemoryFault, Span};

/// Address of the first byte of every arena.
pub const ARENA_BASE: u64 = 0x7000_0000_0000;
/// Bytes of canary before and after each allocation; also the alignment.
const GUARD: usize = 64;

/// What stands at `offset` where nothing is allocated.
const fn canary(offset: usize) -> u8 {
    (offset as u8).wrapping_mul(31) ^ 0xc5
}

/// A growing piece of memory with bump allocation. Nothing is freed before the arena is.
#[derive(Debug)]
pub struct Arena {
    bytes: Vec<u8>,
    /// Offset and length of each allocation, ascending.
    allocations: Vec<(usize, usize)>,
    stray_accesses: Cell<u64>,
}

/// Bytes outside every allocation have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanaryOverwritten {
    /// The first such byte.
    pub addr: u64,
}

impl fmt::Display for CanaryOverwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory at {:#x}, outside every allocation, was written to", self.addr)
    }
}

impl std::error::Error for CanaryOverwritten {}

impl Default for Arena {
    fn default() -> Arena {
        Arena::with_capacity(0)
    }
}

impl Arena {
    /// An empty arena that takes about `capacity` bytes before it has to move.
    pub fn with_capacity(capacity: usize) -> Arena {
        let mut bytes = Vec::with_capacity(capacity.max(GUARD));
        bytes.extend((0..GUARD).map(canary));
        Arena { bytes, allocations: Vec::new(), stray_accesses: Cell::new(0) }
    }

    /// Allocates `len` zero bytes, 64-byte aligned, and returns their address.
    pub fn alloc(&mut self, len: usize) -> u64 {
        let start = self.bytes.len();
        let end = (start + len).next_multiple_of(GUARD) + GUARD;
        self.bytes.resize(start + len, 0);
        self.bytes.extend((start + len..end).map(canary));
        self.allocations.push((start, len));
        ARENA_BASE + start as u64
    }

    /// `len` bytes at `addr`.
    ///
    /// # Panics
    /// If they do not lie in the arena.
    pub fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        let start = self.start(addr, len).expect("address outside the arena");
        &self.bytes[start..start + len]
    }

    /// `len` bytes at `addr`, to be changed by the application.
    ///
    /// # Panics
    /// If they do not lie in the arena.
    pub fn bytes_mut(&mut self, addr: u64, len: usize) -> &mut [u8] {
        let start = self.start(addr, len).expect("address outside the arena");
        &mut self.bytes[start..start + len]
    }

    /// Looks at every byte outside the allocations.
    ///
    /// # Errors
    /// Where the first one is that has changed.
    pub fn check_canaries(&self) -> Result<(), CanaryOverwritten> {
        let ends = self.allocations.iter().map(|&(start, len)| start + len);
        let starts = self.allocations.iter().map(|&(start, _)| start);
        let gaps = std::iter::once(0).chain(ends).zip(starts.chain([self.bytes.len()]));
        for (from, to) in gaps {
            if let Some(offset) = (from..to).find(|&offset| self.bytes[offset] != canary(offset)) {
                return Err(CanaryOverwritten { addr: ARENA_BASE + offset as u64 });
            }
        }
        Ok(())
    }

    /// Accesses by the transport that were refused because they left the arena.
    pub fn stray_accesses(&self) -> u64 {
        self.stray_accesses.get()
    }

    /// Offset of `len` bytes at `addr`, none if they leave the arena. What lies between the
    /// allocations is not looked for here, where every packet passes; the canaries tell later.
    #[inline]
    fn start(&self, addr: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(addr.checked_sub(ARENA_BASE)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start)
    }

    #[inline]
    fn resolve(&self, span: Span) -> Result<usize, MemoryFault> {
        self.start(span.addr(), span.len()).ok_or_else(|| {
            self.stray_accesses.set(self.stray_accesses.get() + 1);
            MemoryFault
        })
    }
}

impl Memory for Arena {
    #[inline]
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault> {
        let start = self.resolve(span)?;
        out.copy_from_slice(&self.bytes[start..start + span.len()]);
        Ok(())
    }

    #[inline]
    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault> {
        let start = self.resolve(span)?;
        self.bytes[start..start + span.len()].copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, span: Span, op: AtomicOp) -> Result<u64, MemoryFault> {
        let start = self.resolve(span)?;
        let word = self.bytes[start..].first_chunk_mut().ok_or(MemoryFault)?;
        let original = u64::from_ne_bytes(*word);
        *word = op.apply(original).to_ne_bytes();
        Ok(original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_zero_and_apart() {
        let mut arena = Arena::default();
        let addresses = [0, 1, 63, 64, 65, 4096].map(|len| (arena.alloc(len), len));
        for pair in addresses.windows(2) {
            assert!(pair[1].0 >= pair[0].0 + pair[0].1 as u64 + 64);
        }
        for (addr, len) in addresses {
            assert_eq!(addr % 64, 0);
            assert!(arena.bytes(addr, len).iter().all(|&byte| byte == 0));
            arena.bytes_mut(addr, len).fill(0xff);
        }
        assert_eq!(arena.check_canaries(), Ok(()));
    }

    #[test]
    fn a_byte_too_far_is_found() {
        for offset in [-1i64, 10] {
            let mut arena = Arena::default();
            arena.alloc(5);
            let addr = arena.alloc(10).wrapping_add_signed(offset);
            arena.bytes_mut(addr, 1)[0] ^= 1;
            assert_eq!(arena.check_canaries(), Err(CanaryOverwritten { addr }));
        }
    }

    #[test]
    fn addresses_outside_have_no_offset() {
        let mut arena = Arena::default();
        let addr = arena.alloc(100);
        assert_eq!(arena.start(addr, 100), Some(64));
        for (addr, len) in [(ARENA_BASE - 1, 1), (addr, 1000), (u64::MAX, 1), (addr, usize::MAX)] {
            assert_eq!(arena.start(addr, len), None, "{addr:#x} + {len}");
        }
    }
}
