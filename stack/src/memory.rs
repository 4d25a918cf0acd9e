//! Application memory as the transport sees it: checked spans, and the trait that moves bytes.
//!
//! Only the region table (`mr`) makes a [`Span`], after it has checked key, protection
//! domain, rights and bounds, so no other address ever reaches a [`Memory`].

use crate::icrc;

/// A range of application memory inside a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    addr: u64,
    len: usize,
}

impl Span {
    pub(crate) const fn new(addr: u64, len: usize) -> Span {
        Span { addr, len }
    }

    /// Application address of the first byte.
    pub const fn addr(self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether the span holds no byte.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// A span that could not be reached although it is registered, for instance because the
/// application has unmapped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault;

/// An atomic operation on an aligned 8-byte word, in the host's byte order (IBA 9.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store `swap` if the word equals `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd(u64),
    /// Store (ATOMIC WRITE).
    Store(u64),
}

impl AtomicOp {
    /// The word after the operation, given the word before it.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            AtomicOp::CompareSwap { compare, swap } if original == compare => swap,
            AtomicOp::CompareSwap { .. } => original,
            AtomicOp::FetchAdd(add) => original.wrapping_add(add),
            AtomicOp::Store(value) => value,
        }
    }
}

/// Access to the memory the application has registered.
pub trait Memory {
    /// Fills `out`, as long as `span`, from the span.
    ///
    /// # Errors
    /// [`MemoryFault`] if the span cannot be read; `out` is then undefined.
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault>;

    /// As [`Memory::read`], and returns the CRC-32 of what was read behind bytes whose CRC-32 is
    /// `crc` ([`icrc::append`]): for memory that has both at one go.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn read_and_sum(&self, span: Span, out: &mut [u8], crc: u32) -> Result<u32, MemoryFault> {
        self.read(span, out)?;
        Ok(icrc::append(crc, out))
    }

    /// Stores `data`, as long as `span`, in increasing address order, the last bytes last:
    /// applications poll the last byte of an RDMA WRITE.
    ///
    /// # Errors
    /// [`MemoryFault`] if the span cannot be written.
    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault>;

    /// Runs `op` on the 8-byte-aligned word of `span` and returns its value before. Atomic against
    /// the application too.
    ///
    /// # Errors
    /// [`MemoryFault`] if the word cannot be accessed.
    fn atomic(&mut self, span: Span, op: AtomicOp) -> Result<u64, MemoryFault>;

    /// Makes earlier writes to the span visible to every observer, and `persistent` ones durable
    /// (IBA A19). Memory without such a distinction does nothing.
    ///
    /// # Errors
    /// [`MemoryFault`] if it cannot be done.
    fn flush(&mut self, span: Span, persistent: bool) -> Result<(), MemoryFault> {
        let _ = (span, persistent);
        Ok(())
    }
}
