//! Files programs read through the library. We have none of our own; what is there, for instance
//! what a launcher put there, is read.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::errno::{self, EINVAL, Errno};

/// Where sysfs is mounted: `SYSFS_PATH` or `/sys`.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static SYSFS_PATH: OnceLock<CString> = OnceLock::new();
    let path = SYSFS_PATH.get_or_init(|| {
        let named = std::env::var_os("SYSFS_PATH").and_then(|path| {
            let trimmed = path.as_bytes().strip_suffix(b"/").unwrap_or(path.as_bytes());
            CString::new(trimmed).ok()
        });
        named.unwrap_or_else(|| c"/sys".to_owned())
    });
    path.as_ptr()
}

/// Reads at most `size` bytes of `dir/file` without a trailing newline; returns how many, or -1.
///
/// # Safety
/// `dir` and `file` must be null or strings, `buf` null or writable for `size` bytes.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    if dir.is_null() || file.is_null() || buf.is_null() {
        return errno::minus_one(Err(EINVAL));
    }
    // SAFETY: the caller gives strings.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let path: PathBuf =
        Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
    errno::minus_one(read_line(&path, size).map(|text| {
        // SAFETY: the caller's buffer has `size` bytes, and `text` no more.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), text.len()) };
        if text.len() < size {
            // SAFETY: as above.
            unsafe { *buf.add(text.len()) = 0 };
        }
        text.len() as c_int
    }))
}

fn read_line(path: &Path, size: usize) -> Result<Vec<u8>, Errno> {
    let limit = size.min(c_int::MAX as usize) as u64;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(limit).read_to_end(&mut text)?;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_without_its_newline() {
        let mut buf = [1 as c_char; 16];
        // SAFETY: strings and a buffer of its size.
        let len = unsafe {
            ibv_read_sysfs_file(c"/proc/self".as_ptr(), c"comm".as_ptr(), buf.as_mut_ptr(), 16)
        };
        assert!(len > 0);
        assert_eq!(buf[len as usize], 0);
    }

    #[test]
    fn what_is_not_there_is_minus_one() {
        let mut buf = [0 as c_char; 4];
        // SAFETY: strings and a buffer of its size, or null.
        unsafe {
            let none = ibv_read_sysfs_file(c"/proc".as_ptr(), c"x".as_ptr(), buf.as_mut_ptr(), 4);
            assert_eq!(none, -1);
            let null = ibv_read_sysfs_file(core::ptr::null(), c"x".as_ptr(), buf.as_mut_ptr(), 4);
            assert_eq!(null, -1);
        }
    }
}
