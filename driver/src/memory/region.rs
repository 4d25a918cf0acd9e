//! Memory that a program lends the transport for as long as it is registered.
//!
//! A peer may write to registered memory at any moment, so its bytes are never lent out as a slice:
//! they are copied in and out, and single words are loaded and stored atomically. What holds for
//! the order of bytes is said at [`copy_to`](super::copy_to).

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use super::host::{copy_from, copy_to};

/// Base-2 logarithm of the huge pages asked for: 2 MiB.
const HUGE_PAGE_BITS: u8 = 21;

/// A run of memory the library owns: zero pages of its own, or a mapping it was given.
#[derive(Debug, Default)]
pub struct Region {
    /// None where there is not one byte.
    map: Option<MmapRaw>,
    len: usize,
    huge_pages: bool,
}

/// Why bytes of a region cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The range leaves the region.
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes of the region.
        region_len: usize,
    },
    /// A word that is not at a multiple of 8.
    Misaligned {
        /// Its first byte.
        offset: usize,
    },
    /// The file behind the region has become shorter.
    Gone {
        /// First byte of the range.
        offset: usize,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::OutOfRange { offset, len, region_len } => {
                write!(f, "{len} bytes at offset {offset} leave a region of {region_len} bytes")
            }
            RegionError::Misaligned { offset } => {
                write!(f, "a word at offset {offset}, which is not a multiple of 8")
            }
            RegionError::Gone { offset } => {
                write!(f, "the memory at offset {offset} has gone: its file was truncated")
            }
        }
    }
}

impl std::error::Error for RegionError {}

impl Region {
    /// `len` zero bytes, page-aligned.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn zeroed(len: usize) -> io::Result<Region> {
        if len == 0 {
            return Ok(Region::default());
        }
        Ok(Region::from(MmapOptions::new().len(len).map_anon()?))
    }

    /// `len` zero bytes on huge pages of 2 MiB where the system has some reserved; on ordinary
    /// pages otherwise, with the wish for transparent huge pages. [`Region::has_huge_pages`] tells
    /// which it became.
    ///
    /// # Errors
    /// If the system refuses the memory of ordinary pages too.
    pub fn huge(len: usize) -> io::Result<Region> {
        let page = 1 << HUGE_PAGE_BITS;
        // The mapping has whole pages, or it could not be unmapped.
        let Some(whole) = len.max(1).checked_next_multiple_of(page) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let mut options = MmapOptions::new();
        if let Ok(map) = options.len(whole).huge(Some(HUGE_PAGE_BITS)).map_anon() {
            return Ok(Region { map: Some(MmapRaw::from(map)), len, huge_pages: true });
        }
        let map = MmapOptions::new().len(whole).map_anon()?;
        #[cfg(target_os = "linux")]
        // A wish: kernels without transparent huge pages refuse it.
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Region { map: Some(MmapRaw::from(map)), len, huge_pages: false })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it lies on reserved huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Address of the first byte, for the transport to use.
    pub fn addr(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.as_mut_ptr().expose_provenance() as u64)
    }

    /// Copies `out.len()` bytes from `offset`. A peer that writes meanwhile makes a mixture of old
    /// and new bytes.
    ///
    /// # Errors
    /// [`RegionError`] if they leave the region or have gone.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), RegionError> {
        let from = self.at(offset, out.len())?;
        // SAFETY: inside the mapping, which is ours; nobody borrows from it.
        unsafe { copy_from(from, out) }.map_err(|_| RegionError::Gone { offset })
    }

    /// Copies `data` to `offset`, in increasing address order, the last bytes last.
    ///
    /// # Errors
    /// As [`Region::read_at`].
    pub fn write_at(&self, offset: usize, data: &[u8]) -> Result<(), RegionError> {
        let to = self.at(offset, data.len())?;
        // SAFETY: inside the mapping, which is ours and writable; nobody borrows from it.
        unsafe { copy_to(to, data) }.map_err(|_| RegionError::Gone { offset })
    }

    /// The word at `offset`, with acquire order: what a peer wrote before it is there too.
    ///
    /// # Errors
    /// [`RegionError`] if the word leaves the region or is misaligned. The process gets SIGBUS if
    /// the file behind a region was truncated.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RegionError> {
        self.with_word(offset, |word| word.load(Ordering::Acquire))
    }

    /// Stores a word at `offset`, with release order.
    ///
    /// # Errors
    /// As [`Region::load_u64`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RegionError> {
        self.with_word(offset, |word| word.store(value, Ordering::Release))
    }

    /// Whether `len` bytes at `offset` lie inside.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`] if not.
    pub fn check_range(&self, offset: usize, len: usize) -> Result<(), RegionError> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let region_len = self.len;
        if fits { Ok(()) } else { Err(RegionError::OutOfRange { offset, len, region_len }) }
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, RegionError> {
        self.check_range(offset, len)?;
        let base = self.map.as_ref().map_or(std::ptr::null_mut(), MmapRaw::as_mut_ptr);
        Ok(base.wrapping_add(offset))
    }

    fn with_word<T>(
        &self,
        offset: usize,
        access: impl FnOnce(&AtomicU64) -> T,
    ) -> Result<T, RegionError> {
        let word = self.at(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(RegionError::Misaligned { offset });
        }
        // SAFETY: inside the mapping, and aligned, as mappings begin at a page. All others that
        // reach it, the transport among them, use copies and atomics of their own.
        Ok(access(unsafe { AtomicU64::from_ptr(word.cast()) }))
    }
}

/// A mapping of any kind, for instance of a file that is to hold what peers write.
impl From<MmapMut> for Region {
    fn from(map: MmapMut) -> Region {
        let len = map.len();
        Region { map: Some(MmapRaw::from(map)), len, huge_pages: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_words_are_where_they_were_put() {
        let region = Region::zeroed(10_000).unwrap();
        let mut bytes = [1; 9];
        region.read_at(9_991, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 9]);
        region.write_at(9_991, b"last ones").unwrap();
        region.read_at(9_991, &mut bytes).unwrap();
        assert_eq!(&bytes, b"last ones");
        region.store_u64(64, 0x0102_0304).unwrap();
        assert_eq!(region.load_u64(64), Ok(0x0102_0304));
        region.read_at(64, &mut bytes[..8]).unwrap();
        assert_eq!(bytes[..8], 0x0102_0304_u64.to_ne_bytes());
    }

    #[test]
    fn what_leaves_the_region_is_refused() {
        let region = Region::zeroed(100).unwrap();
        let refused = |offset, len| RegionError::OutOfRange { offset, len, region_len: 100 };
        assert_eq!(region.read_at(93, &mut [0; 8]), Err(refused(93, 8)));
        assert_eq!(region.write_at(usize::MAX, &[0; 2]), Err(refused(usize::MAX, 2)));
        assert_eq!(region.load_u64(96), Err(refused(96, 8)));
        assert_eq!(region.store_u64(4, 0), Err(RegionError::Misaligned { offset: 4 }));
        assert_eq!(region.write_at(100, &[]), Ok(()));
    }

    #[test]
    fn regions_may_be_empty_or_huge() {
        let empty = Region::zeroed(0).unwrap();
        assert!(empty.is_empty());
        assert_eq!(empty.read_at(0, &mut []), Ok(()));
        let huge = Region::huge(3 << 20).unwrap();
        assert_eq!(huge.len(), 3 << 20);
        huge.write_at((3 << 20) - 4, b"tail").unwrap();
        let small = Region::huge(0).unwrap();
        assert!(small.is_empty());
    }

    #[test]
    fn a_file_keeps_what_was_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: nobody else has the file.
        let map = unsafe { MmapMut::map_mut(&file) }.unwrap();
        let region = Region::from(map);
        region.write_at(100, b"kept").unwrap();
        drop(region);
        let mut kept = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut kept, 100).unwrap();
        assert_eq!(&kept, b"kept");
    }
}
