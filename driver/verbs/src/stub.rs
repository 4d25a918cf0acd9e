//! What answers for operations we do not have. EOPNOTSUPP is the one errno that programs take for
//! "do it another way"; a pointer must be null, or they would use the number as one.

use core::ffi::{c_char, c_int, c_void};

use crate::errno;

/// For what returns an errno.
pub(crate) extern "C" fn code() -> c_int {
    errno::set(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For what returns an object.
pub(crate) extern "C" fn pointer() -> *mut c_void {
    errno::set(libc::EOPNOTSUPP);
    core::ptr::null_mut()
}

/// For what returns -1 on failure: file descriptors, counts, all of librdmacm.
pub(crate) extern "C" fn minus_one() -> isize {
    errno::set(libc::EOPNOTSUPP);
    -1
}

/// For what returns nothing.
pub(crate) extern "C" fn nothing() {}

/// For what returns a number where 0 means "none".
pub(crate) extern "C" fn zero() -> usize {
    errno::set(libc::EOPNOTSUPP);
    0
}

/// For what returns a text.
pub(crate) extern "C" fn unknown() -> *const c_char {
    c"unknown".as_ptr()
}
