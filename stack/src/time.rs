//! Time as the caller tells it: nanoseconds since an origin the caller chose.

use core::ops::Add;

/// A moment, in nanoseconds since the caller's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }
}

impl Add<u64> for Instant {
    type Output = Instant;

    /// The moment `nanos` nanoseconds later; stays at the end of time rather than wrap.
    fn add(self, nanos: u64) -> Instant {
        Instant(self.0.saturating_add(nanos))
    }
}

/// The local ACK timeout of an attribute code, 4.096 us * 2^code (IBA 9.7.6.1.3); `None` for code
/// 0, which switches the timer off.
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code {
        0 => None,
        code => Some(4096 << (code & 31)),
    }
}
