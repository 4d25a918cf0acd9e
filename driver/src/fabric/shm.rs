//! Memory that other processes write to: checked offsets, atomic words, copies in and out.
//!
//! No reference to plain data in it is ever made, so nothing that another process does can break
//! a promise the compiler relies on: words are atomics, bytes are copied to and from private
//! memory. A copy that races with a writer gives some bytes; whoever takes them must not care
//! which, or know by a word that there is no writer.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::memory::{copy_from, copy_from_and_sum, copy_to};
use crate::sys::{Mapping, Pages};

/// A mapped file.
#[derive(Debug)]
pub struct Shared {
    mapping: Mapping,
}

impl Shared {
    /// Maps the first `len` bytes of a file that must be that long.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file's length is not `len`, or what the system says.
    pub fn map(file: &File, len: usize) -> io::Result<Shared> {
        Shared::with(file, len, Pages::AtOnce)
    }

    /// The same of a file of which perhaps little is used, whose pages are looked up when they are
    /// touched: with a ring of 4 MiB the rest would take longer than to connect.
    ///
    /// # Errors
    ///
    /// As [`Shared::map`].
    pub fn map_sparsely(file: &File, len: usize) -> io::Result<Shared> {
        Shared::with(file, len, Pages::AsTouched)
    }

    fn with(file: &File, len: usize, pages: Pages) -> io::Result<Shared> {
        if file.metadata()?.len() != len as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Shared { mapping: Mapping::new(file, len, pages)? })
    }

    /// What is in a mapping.
    pub fn of(mapping: Mapping) -> Shared {
        Shared { mapping }
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The word at `offset`, a multiple of 8.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        self.check(offset, 8);
        // SAFETY: inside the mapping, which is page aligned and lives as long as `self`; every
        // access of ours to these bytes is by an atomic of this size.
        unsafe { AtomicU64::from_ptr(self.mapping.start().add(offset).cast().as_ptr()) }
    }

    /// The half word at `offset`, a multiple of 4.
    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        self.check(offset, 4);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.mapping.start().add(offset).cast().as_ptr()) }
    }

    /// Copies `bytes` to `offset`. Where the page is gone, as the file was cut, they are lost.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // Not as the C library copies: its string instructions take ten times as long where the
        // addresses lie badly to each other within their pages, and a frame's do by chance.
        // SAFETY: inside the mapping, of which nobody has references.
        let _ = unsafe { copy_to(self.mapping.start().as_ptr().add(offset), bytes) };
    }

    /// Copies what is at `offset` to `bytes`. Where the page is gone, anything is there.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: as in `write`.
        let _ = unsafe { copy_from(self.mapping.start().as_ptr().add(offset), bytes) };
    }

    /// As [`Shared::read`], and returns the CRC-32 of what was read behind bytes whose CRC-32 is
    /// `crc`; none if the page is gone.
    #[inline]
    pub fn read_and_sum(&self, offset: usize, bytes: &mut [u8], crc: u32) -> Option<u32> {
        self.check(offset, bytes.len());
        // SAFETY: as in `write`.
        unsafe { copy_from_and_sum(self.mapping.start().as_ptr().add(offset), bytes, crc) }.ok()
    }

    /// Has the CPU fetch the cache line at `offset`, to be written to. A hint.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize) {
        self.check(offset, 1);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: inside the mapping; nothing is read or written.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(self.mapping.start().as_ptr().add(offset).cast());
        }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let len_there = self.mapping.len();
        assert!(offset <= len_there && len <= len_there - offset, "offset beyond the mapping");
    }
}
