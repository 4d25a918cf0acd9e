//! Memory for regions, of the agent's own.

use core::ffi::c_void;

use nix::errno::Errno;

use crate::error::CallError;

/// Bytes of a page, as far as addresses of regions go.
const PAGE: usize = 4096;

/// Mapped memory; devices may read and write it at any time.
#[derive(Debug)]
pub struct Mapping {
    base: *mut c_void,
    mapped: usize,
    /// Where it begins to be used.
    start: usize,
    len: usize,
}

impl Mapping {
    /// `len` bytes of zeros; `at` is an address whose place within a page theirs has as well.
    ///
    /// # Errors
    /// Refused if the system has no such memory.
    pub fn new(len: usize, at: u64) -> Result<Mapping, CallError> {
        let start = (at % PAGE as u64) as usize;
        let mapped = len
            .checked_add(start)
            .and_then(|len| len.max(1).checked_next_multiple_of(PAGE))
            .ok_or(CallError::Refused(libc::ENOMEM))?;
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: new memory, wherever there is room.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, rights, kind | libc::MAP_ANONYMOUS, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(CallError::Refused(Errno::last_raw()));
        }
        Ok(Mapping { base, mapped, start, len })
    }

    /// Its first byte.
    pub fn address(&self) -> *mut c_void {
        self.base.wrapping_byte_add(self.start)
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where `len` bytes from `offset` on are, if they are all of it.
    ///
    /// # Errors
    /// Wrong if they are not.
    pub fn part(&self, offset: u64, len: usize) -> Result<*mut u8, CallError> {
        let offset = usize::try_from(offset).ok();
        let end = offset.and_then(|offset| offset.checked_add(len));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= self.len => {
                Ok(self.address().wrapping_byte_add(offset).cast())
            }
            _ => Err(CallError::Wrong(format!("outside of a memory of {} bytes", self.len))),
        }
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Errors
    /// Wrong if they are not all of it.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, CallError> {
        let part = self.part(offset, len)?;
        // SAFETY: these bytes are mapped. A device may write them meanwhile: each is read once, for
        // itself.
        Ok((0..len).map(|at| unsafe { part.add(at).read_volatile() }).collect())
    }

    /// Stores bytes from `offset` on.
    ///
    /// # Errors
    /// Wrong if they do not all fit.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), CallError> {
        let part = self.part(offset, bytes.len())?;
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: as above.
            unsafe { part.add(at).write_volatile(*byte) };
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and the region over it is gone.
        unsafe { libc::munmap(self.base, self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_read_and_written() {
        let mapping = Mapping::new(100, 0x1_0007).unwrap();
        assert_eq!((mapping.address() as usize % PAGE, mapping.len()), (7, 100));
        mapping.write(98, &[1, 2]).unwrap();
        assert_eq!(mapping.read(97, 3).unwrap(), [0, 1, 2]);
        assert_eq!(mapping.read(100, 0), Ok(Vec::new()));
        for (offset, len) in [(98, 3), (101, 0), (u64::MAX, 2)] {
            assert!(mapping.read(offset, len).is_err(), "{offset} {len}");
        }
        assert!(mapping.write(99, &[1, 2]).is_err());
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert_eq!(Mapping::new(usize::MAX, 1).unwrap_err(), CallError::Refused(libc::ENOMEM));
    }
}
