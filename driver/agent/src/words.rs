//! What the codes of verbs are about, and their errors' names; other words are
//! [`ferroce_conform::words`].

use core::ffi::c_int;

use nix::errno::Errno;

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// All of the device.
    Device,
}

/// What an event of `enum ibv_event_type` is about that has a word.
pub fn subject(code: c_int) -> Subject {
    match code {
        0 => Subject::Cq,
        8 => Subject::Device,
        14 | 15 => Subject::Srq,
        _ => Subject::Qp,
    }
}

/// The name of an errno.
pub fn errno(code: c_int) -> String {
    match Errno::from_raw(code) {
        Errno::UnknownErrno => format!("errno-{code}"),
        errno => format!("{errno:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names_and_events_subjects() {
        assert_eq!((errno(22), errno(95)), ("EINVAL".into(), "EOPNOTSUPP".into()));
        assert_eq!((subject(3), subject(15)), (Subject::Qp, Subject::Srq));
    }
}
