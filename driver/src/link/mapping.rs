//! Memory shared with the kernel: rings, and the frames they tell of.
//!
//! Whoever has a frame, the kernel or we, follows from the rings; only ours may be lent.

use std::io;
use std::os::fd::BorrowedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::fabric::shm::Shared;
use crate::sys;

/// A mapping that is not inherited by children.
#[derive(Debug)]
pub struct Mapping(Shared);

impl Mapping {
    /// `len` bytes of what a socket offers, from `offset` on.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn of(socket: BorrowedFd<'_>, offset: i64, len: usize) -> io::Result<Mapping> {
        Ok(Mapping(Shared::of(sys::Mapping::of(Some(socket), offset, len)?)))
    }

    /// New memory of `len` bytes, zeros, to be given to the kernel.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn anonymous(len: usize) -> io::Result<Mapping> {
        Ok(Mapping(Shared::of(sys::Mapping::of(None, 0, len)?)))
    }

    /// Address of the first byte, aligned to a page.
    pub fn address(&self) -> u64 {
        self.0.mapping().start().as_ptr().addr() as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.mapping().len()
    }

    /// The half word at `offset`, a multiple of 4.
    ///
    /// # Panics
    /// If it is not, or beyond the end.
    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        self.0.half(offset)
    }

    /// The word at `offset`, a multiple of 8.
    ///
    /// # Panics
    /// If it is not, or beyond the end.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(offset)
    }

    /// Fetches the cache line at `offset` for writing, and does not wait for it.
    ///
    /// # Panics
    /// If it is beyond the end.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize) {
        self.0.prefetch_to_write(offset);
    }

    /// The `len` bytes at `offset`.
    ///
    /// # Panics
    /// If there are not so many.
    ///
    /// # Safety
    /// For as long as they are lent, nobody else may use these bytes: the kernel has given them
    /// back, and they are lent once.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len() && len <= self.len() - offset, "offset beyond the mapping");
        let start = self.0.mapping().start();
        // SAFETY: inside the mapping, which lives as long as `self`; the caller answers for the
        // rest.
        unsafe { slice::from_raw_parts_mut(start.add(offset).as_ptr(), len) }
    }
}
