//! What the program's numbers stand for.
//!
//! Each is a file of the system, a socket that does nothing, so that nothing else can have the
//! number; several may stand for one rsocket, as after `dup`.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

/// Numbers that can stand for something. Who has more files has them without rsockets.
const COUNT: usize = 1 << 16;

/// The rsocket's number and one more; 0 for those that are what they are.
static STAND_FOR: [AtomicI32; COUNT] = [const { AtomicI32::new(0) }; COUNT];

fn place(fd: c_int) -> Option<&'static AtomicI32> {
    STAND_FOR.get(usize::try_from(fd).ok()?)
}

/// The rsocket that a number stands for.
pub fn rsocket(fd: c_int) -> Option<c_int> {
    match place(fd)?.load(Ordering::Acquire) {
        0 => None,
        number => Some(number - 1),
    }
}

/// From now on it stands for that; false if it cannot.
pub fn set(fd: c_int, rsocket: c_int) -> bool {
    place(fd).map(|place| place.store(rsocket + 1, Ordering::Release)).is_some()
}

/// It stands for nothing any more. Returns what it stood for, if no other number does.
pub fn clear(fd: c_int) -> Option<Cleared> {
    match place(fd)?.swap(0, Ordering::AcqRel) {
        0 => None,
        number => {
            let is_last = STAND_FOR.iter().all(|place| place.load(Ordering::Acquire) != number);
            Some(Cleared { rsocket: number - 1, is_last })
        }
    }
}

/// What a number stood for.
#[derive(Clone, Copy, Debug)]
pub struct Cleared {
    /// The rsocket.
    pub rsocket: c_int,
    /// Whether no number stands for it now.
    pub is_last: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_an_rsocket_until_it_is_cleared() {
        assert_eq!(rsocket(-1), None);
        assert_eq!(rsocket(7), None);
        assert!(!set(-1, 3) && !set(1 << 16, 3));
        assert!(set(7, 0) && set(8, 0));
        assert_eq!((rsocket(7), rsocket(8)), (Some(0), Some(0)));
        let first = clear(7).unwrap();
        assert_eq!((first.rsocket, first.is_last), (0, false));
        assert!(clear(8).unwrap().is_last);
        assert!(clear(8).is_none());
    }
}
