//! An application's bytes in several pieces, gone through from front to back.

use ferroce::memory;

use super::buffer::Buffer;
use crate::errno::{EINVAL, Errno};

/// Most pieces of one call (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// Pieces, and how far they have been gone through.
#[derive(Debug)]
pub struct Cursor<'a> {
    pieces: &'a [libc::iovec],
    /// Bytes of the first of them that are done.
    done: usize,
    left: usize,
}

impl<'a> Cursor<'a> {
    /// At the front.
    ///
    /// # Errors
    /// EINVAL if there are too many pieces, or more bytes than a call can return.
    pub fn new(pieces: &'a [libc::iovec]) -> Result<Cursor<'a>, Errno> {
        if pieces.len() > MAX_PIECES {
            return Err(EINVAL);
        }
        let sum = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.iov_len));
        let left = sum.filter(|&sum| isize::try_from(sum).is_ok()).ok_or(EINVAL)?;
        Ok(Cursor { pieces, done: 0, left })
    }

    /// Pieces of a program.
    ///
    /// # Errors
    /// As [`Cursor::new`]; EFAULT if there are none where there should be.
    ///
    /// # Safety
    /// `pieces` must be null or have `count` entries.
    pub unsafe fn of(pieces: *const libc::iovec, count: usize) -> Result<Cursor<'a>, Errno> {
        match (count, pieces.is_null()) {
            (0, _) => Cursor::new(&[]),
            (_, true) => Err(Errno(libc::EFAULT)),
            (1..=MAX_PIECES, false) => {
                // SAFETY: the caller's promise.
                Cursor::new(unsafe { core::slice::from_raw_parts(pieces, count) })
            }
            _ => Err(EINVAL),
        }
    }

    /// Bytes that are not done.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The bytes that come next and lie together; empty at the end.
    fn next(&mut self) -> (*mut u8, usize) {
        while let [first, rest @ ..] = self.pieces {
            if first.iov_len > self.done {
                let start = first.iov_base.cast::<u8>().wrapping_add(self.done);
                return (start, first.iov_len - self.done);
            }
            self.done = 0;
            self.pieces = rest;
        }
        (core::ptr::null_mut(), 0)
    }

    /// The next `len` bytes, if they lie together; they are then done.
    pub fn take(&mut self, len: u32) -> Option<*const u8> {
        let (start, together) = self.next();
        let lies_together = together >= len as usize;
        lies_together.then(|| {
            self.advance(len as usize);
            start.cast_const()
        })
    }

    /// The pieces that are not done.
    pub fn rest(&mut self) -> Vec<libc::iovec> {
        let (start, together) = self.next();
        let [_, rest @ ..] = self.pieces else { return Vec::new() };
        let first = libc::iovec { iov_base: start.cast(), iov_len: together };
        [&[first], rest].concat()
    }

    fn advance(&mut self, len: usize) {
        self.done += len;
        self.left -= len;
    }

    /// Moves the next `len` bytes into a buffer.
    ///
    /// # Errors
    /// EFAULT.
    ///
    /// # Safety
    /// As far as they are mapped, they must be readable for as long as this takes.
    pub unsafe fn fill(&mut self, buffer: &Buffer, at: u32, len: u32) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < len {
            let (start, together) = self.next();
            let part = together.min((len - filled) as usize);
            // SAFETY: the caller's promise.
            unsafe { buffer.fill(at + filled, start, part as u32)? };
            self.advance(part);
            filled += part as u32;
        }
        Ok(())
    }

    /// Moves bytes of ours to where the next bytes are, as many as there is room for. Returns how
    /// many.
    ///
    /// # Errors
    /// EFAULT.
    ///
    /// # Safety
    /// As far as they are mapped, they must be writable for as long as this takes.
    pub unsafe fn put(&mut self, data: &[u8]) -> Result<usize, Errno> {
        let mut data = &data[..data.len().min(self.left)];
        let len = data.len();
        while !data.is_empty() {
            let (start, together) = self.next();
            let (part, rest) = data.split_at(together.min(data.len()));
            // SAFETY: the caller's promise.
            unsafe { memory::copy_to(start, part) }.map_err(|_| Errno(libc::EFAULT))?;
            self.advance(part.len());
            data = rest;
        }
        Ok(len)
    }

    /// Moves `len` bytes of a buffer to where the next bytes are.
    ///
    /// # Errors
    /// EFAULT.
    ///
    /// # Safety
    /// As far as they are mapped, they must be writable for as long as this takes.
    pub unsafe fn drain(&mut self, buffer: &Buffer, at: u32, len: u32) -> Result<(), Errno> {
        let mut drained = 0;
        while drained < len {
            let (start, together) = self.next();
            let part = together.min((len - drained) as usize);
            // SAFETY: the caller's promise.
            unsafe { buffer.drain(at + drained, start, part as u32)? };
            self.advance(part);
            drained += part as u32;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_gone_through_in_order() {
        let bytes = *b"abcdefgh";
        let piece = |at: usize, len| libc::iovec {
            iov_base: bytes[at..].as_ptr().cast_mut().cast(),
            iov_len: len,
        };
        let pieces = [piece(0, 0), piece(0, 3), piece(3, 0), piece(3, 5)];
        let mut cursor = Cursor::new(&pieces).unwrap();
        assert_eq!(cursor.left(), 8);
        assert_eq!(cursor.take(2), Some(bytes.as_ptr()));
        assert_eq!(cursor.take(2), None, "they do not lie together");
        assert_eq!(cursor.take(1), Some(bytes[2..].as_ptr()));
        assert_eq!(cursor.take(5), Some(bytes[3..].as_ptr()));
        assert_eq!((cursor.left(), cursor.take(1)), (0, None));
    }

    #[test]
    fn sums_that_cannot_be_are_refused() {
        let piece = |iov_len| libc::iovec { iov_base: core::ptr::null_mut(), iov_len };
        assert!(Cursor::new(&[piece(usize::MAX), piece(1)]).is_err());
        assert!(Cursor::new(&[piece(isize::MAX as usize + 1)]).is_err());
        assert!(Cursor::new(&[piece(0); MAX_PIECES + 1]).is_err());
        // SAFETY: null.
        assert!(unsafe { Cursor::of(core::ptr::null(), 1) }.is_err());
    }
}
