//! 24-bit packet sequence numbers (IBA 9.7.1).
//!
//! A PSN has no order, only a signed distance modulo 2^24, so the type offers neither operators
//! nor comparison.

/// A packet sequence number, 0 to 2^24 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

const MASK: u32 = 0x00ff_ffff;

impl Psn {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The number itself, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `count` packets later.
    pub const fn advance(self, count: u32) -> Psn {
        Psn(self.0.wrapping_add(count) & MASK)
    }

    /// The PSN one packet earlier.
    pub const fn previous(self) -> Psn {
        Psn(self.0.wrapping_sub(1) & MASK)
    }

    /// How far `self` is ahead of `other`: -2^23 to 2^23 - 1, negative if behind.
    pub const fn distance(self, other: Psn) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// How many PSNs there are from `first` up to `self`: 0 to 2^24 - 1.
    pub const fn since(self, first: Psn) -> u32 {
        self.0.wrapping_sub(first.0) & MASK
    }

    /// Whether `self` lies in `first..first + count`.
    pub const fn is_within(self, first: Psn, count: u32) -> bool {
        self.since(first) < count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_signed_modulo_2_24() {
        let table = [
            (0, 0, 0),
            (1, 0, 1),
            (0, 1, -1),
            (0, 0xff_ffff, 1),
            (0xff_ffff, 0, -1),
            (0x7f_ffff, 0, 0x7f_ffff),
            (0x80_0000, 0, -0x80_0000),
        ];
        for (a, b, distance) in table {
            assert_eq!(Psn::new(a).distance(Psn::new(b)), distance, "{a:#x} - {b:#x}");
        }
    }

    #[test]
    fn window_wraps() {
        let first = Psn::new(0xff_fffe);
        assert!(Psn::new(0xff_fffe).is_within(first, 4));
        assert!(Psn::new(1).is_within(first, 4));
        assert!(!Psn::new(2).is_within(first, 4));
        assert!(!Psn::new(0xff_fffd).is_within(first, 4));
        assert_eq!(first.advance(3), Psn::new(1));
        assert_eq!((Psn::new(1).since(first), first.since(Psn::new(1))), (3, 0xff_fffd));
        assert_eq!(Psn::new(0).previous(), Psn::new(0xff_ffff));
    }
}
