//! The memory that frames of an AF_XDP socket are in, as chunks that go back and forth between the
//! kernel and us.
//!
//! Sender and receiver each have an area of it. An area knows which of its chunks are ours, so an
//! address that the kernel should not have said is refused.

use std::sync::Arc;

use crate::link::mapping::Mapping;

/// Bytes of a chunk; a frame may have several.
pub const CHUNK: usize = 4096;

/// Whole chunks of the UMEM, which one half of a link has.
#[derive(Debug)]
pub struct Area {
    umem: Arc<Mapping>,
    /// Number of the first chunk.
    first: usize,
    is_ours: Box<[bool]>,
}

impl Area {
    /// Splits new memory into areas of `first` and `second` chunks, which are all ours.
    pub fn split(umem: Mapping, first: usize, second: usize) -> [Area; 2] {
        assert!(umem.len() == (first + second) * CHUNK);
        let umem = Arc::new(umem);
        let area = |start, chunks| Area {
            umem: umem.clone(),
            first: start,
            is_ours: vec![true; chunks].into_boxed_slice(),
        };
        [area(0, first), area(first, second)]
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> usize {
        self.is_ours.len()
    }

    /// Gives a chunk to the kernel, and says its address.
    ///
    /// # Panics
    /// If it is not ours.
    #[inline]
    pub fn give(&mut self, chunk: usize) -> u64 {
        assert!(self.is_ours(chunk), "chunk {chunk} is the kernel's");
        self.is_ours[chunk] = false;
        ((self.first + chunk) * CHUNK) as u64
    }

    /// Takes back from the kernel the chunk that an address is in; none if that is not the
    /// kernel's to give.
    #[inline]
    pub fn take(&mut self, address: u64) -> Option<usize> {
        let chunk = usize::try_from(address / CHUNK as u64).ok()?.checked_sub(self.first)?;
        let is_ours = self.is_ours.get_mut(chunk).filter(|is_ours| !**is_ours)?;
        *is_ours = true;
        Some(chunk)
    }

    /// Whether a chunk is ours.
    #[inline]
    pub fn is_ours(&self, chunk: usize) -> bool {
        self.is_ours.get(chunk).is_some_and(|is_ours| *is_ours)
    }

    /// `len` bytes from `offset` of a chunk on, perhaps as far as into the chunk behind it.
    ///
    /// # Panics
    /// If they are not all ours.
    #[inline]
    pub fn bytes(&mut self, chunk: usize, offset: usize, len: usize) -> &mut [u8] {
        let end = offset + len;
        assert!(end <= 2 * CHUNK && self.is_ours(chunk));
        assert!(end <= CHUNK || self.is_ours(chunk + 1));
        // SAFETY: the kernel has given the chunks back, or not had them yet. Only this area lends
        // its chunks, and is borrowed itself meanwhile.
        unsafe { self.umem.bytes((self.first + chunk) * CHUNK + offset, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas() -> [Area; 2] {
        Area::split(Mapping::anonymous(5 * CHUNK).unwrap(), 2, 3)
    }

    #[test]
    fn only_what_the_kernel_has_comes_back_from_it() {
        let [mut first, mut second] = areas();
        let address = second.give(2);
        assert_eq!(address, 4 * CHUNK as u64);
        assert!(!second.is_ours(2));
        for wrong in [0, CHUNK as u64, 3 * CHUNK as u64, 5 * CHUNK as u64, u64::MAX] {
            assert_eq!((first.take(wrong), second.take(wrong)), (None, None), "{wrong}");
        }
        assert_eq!(first.take(address), None, "of another area");
        assert_eq!(second.take(address + 256), Some(2));
        assert_eq!(second.take(address), None, "twice");
    }

    #[test]
    fn two_chunks_side_by_side_hold_one_frame() {
        let [mut first, mut second] = areas();
        first.bytes(0, CHUNK - 1, 3).copy_from_slice(b"abc");
        second.bytes(0, 0, 1).fill(b'd');
        assert_eq!(first.bytes(1, 0, 2), b"bc");
    }

    #[test]
    #[should_panic(expected = "is_ours")]
    fn what_the_kernel_has_is_not_lent() {
        let [mut first, _] = areas();
        first.give(1);
        first.bytes(0, 100, CHUNK);
    }
}
