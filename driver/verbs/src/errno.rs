//! The three ways in which calls of this library fail.

use core::ffi::c_int;

use ferroce_stack::verbs::VerbsError;

/// A positive errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub c_int);

impl From<VerbsError> for Errno {
    fn from(error: VerbsError) -> Errno {
        Errno(match error {
            VerbsError::Invalid => libc::EINVAL,
            VerbsError::NoMemory => libc::ENOMEM,
            VerbsError::Busy => libc::EBUSY,
            VerbsError::NotSupported => libc::EOPNOTSUPP,
        })
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// An argument that cannot be.
pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);

/// Sets the calling thread's `errno`.
pub(crate) fn set(code: c_int) {
    // SAFETY: the pointer is to the calling thread's own errno.
    unsafe { *libc::__errno_location() = code };
}

/// The calling thread's `errno`.
pub(crate) fn last() -> Errno {
    // SAFETY: as above.
    Errno(unsafe { *libc::__errno_location() })
}

/// 0, or the errno, which is set as well.
pub(crate) fn code(outcome: Result<(), Errno>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(code)) => {
            set(code);
            code
        }
    }
}

/// The value, or -1 with errno set.
pub(crate) fn minus_one(outcome: Result<c_int, Errno>) -> c_int {
    match outcome {
        Ok(value) => value,
        Err(Errno(code)) => {
            set(code);
            -1
        }
    }
}

/// The object, or null with errno set.
pub(crate) fn pointer<T>(outcome: Result<*mut T, Errno>) -> *mut T {
    match outcome {
        Ok(object) => object,
        Err(Errno(code)) => {
            set(code);
            core::ptr::null_mut()
        }
    }
}
