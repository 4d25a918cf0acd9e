//! Static rates (`enum ibv_rate`) as multiples of 2.5 Gb/s and as Mb/s.

use core::ffi::c_int;

/// Code, multiple of 2.5 Gb/s where it is one, Mb/s.
const RATES: [(c_int, Option<c_int>, c_int); 23] = [
    (2, Some(1), 2_500),
    (3, Some(4), 10_000),
    (4, Some(12), 30_000),
    (5, Some(2), 5_000),
    (6, Some(8), 20_000),
    (7, Some(16), 40_000),
    (8, Some(24), 60_000),
    (9, Some(32), 80_000),
    (10, Some(48), 120_000),
    (11, None, 14_062),
    (12, None, 56_250),
    (13, None, 112_500),
    (14, None, 168_750),
    (15, None, 25_781),
    (16, None, 103_125),
    (17, None, 206_250),
    (18, None, 309_375),
    (19, Some(11), 28_125),
    (20, Some(20), 53_125),
    (21, Some(160), 425_000),
    (22, Some(240), 637_500),
    (23, Some(320), 850_000),
    (24, Some(480), 1_275_000),
];

/// `IBV_RATE_MAX`: what a number that is no rate becomes.
const MAX: c_int = 0;

/// The multiple of 2.5 Gb/s, or -1.
pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).and_then(|row| row.1).unwrap_or(-1)
}

/// The rate of a multiple of 2.5 Gb/s, or 0.
pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES.iter().find(|row| row.1 == Some(mult)).map_or(MAX, |row| row.0)
}

/// Mb/s, or -1.
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.2)
}

/// The rate of exactly so many Mb/s, or 0.
pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|row| row.2 == mbps).map_or(MAX, |row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_convert_both_ways() {
        for (rate, mult, mbps) in RATES {
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            assert_eq!(mbps_to_ibv_rate(mbps), rate);
            assert_eq!(ibv_rate_to_mult(rate), mult.unwrap_or(-1));
            if let Some(mult) = mult {
                assert_eq!(mult_to_ibv_rate(mult), rate);
            }
        }
    }

    #[test]
    fn numbers_that_are_no_rate() {
        for number in [c_int::MIN, -1, 0, 1, 3, 25, c_int::MAX] {
            assert_eq!(
                (mult_to_ibv_rate(-number.saturating_abs()), mbps_to_ibv_rate(number)),
                (0, 0)
            );
        }
        assert_eq!((ibv_rate_to_mult(0), ibv_rate_to_mbps(25)), (-1, -1));
    }
}
