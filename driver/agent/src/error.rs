//! Why a call is not done.

use core::ffi::c_int;

use ferroce_conform::target::Reply;
use nix::errno::Errno;

use crate::words;

/// Why a call is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The verb says so, with this errno.
    Refused(c_int),
    /// There is no way to ask for that here, for this reason.
    Unable(&'static str),
    /// It makes no sense: no such object, no such word, more than an agent gives.
    Wrong(String),
}

/// What is said of an object that is destroyed.
pub const STALE: CallError = CallError::Refused(libc::EINVAL);

/// What the library or the device has not.
pub const UNSUPPORTED: CallError = CallError::Refused(libc::EOPNOTSUPP);

impl CallError {
    /// What is said to the runner; the error if it is no answer of a verb.
    pub fn into_reply(self) -> Result<Reply, String> {
        match self {
            CallError::Refused(code) => Ok(Reply::Refused { errno: words::errno(code) }),
            CallError::Unable(why) => Ok(Reply::Unable { why: why.to_owned() }),
            CallError::Wrong(error) => Err(error),
        }
    }
}

/// The answer of a verb that returns 0 or an errno; some return -1 and set errno.
pub fn check(code: c_int) -> Result<(), CallError> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(CallError::Refused(code)),
        _ => Err(last()),
    }
}

/// The answer of a verb that makes an object.
pub fn made<T>(object: *mut T) -> Result<*mut T, CallError> {
    if object.is_null() { Err(last()) } else { Ok(object) }
}

/// What errno says; a verb that has set none has refused all the same.
fn last() -> CallError {
    match Errno::last_raw() {
        0 => CallError::Refused(libc::EIO),
        code => CallError::Refused(code),
    }
}
