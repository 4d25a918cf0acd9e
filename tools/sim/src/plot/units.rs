//! Units that suit the largest of some numbers.

/// Of a time in microseconds: the unit, and how many microseconds it has.
pub fn of_time(micros: f64) -> (&'static str, f64) {
    match micros {
        micros if micros < 2e3 => ("us", 1.0),
        micros if micros < 2e6 => ("ms", 1e3),
        _ => ("s", 1e6),
    }
}

/// Of a size in bytes: the unit, and how many bytes it has.
pub fn of_size(bytes: f64) -> (&'static str, f64) {
    match bytes {
        bytes if bytes < 2e3 => ("B", 1.0),
        bytes if bytes < 2e6 => ("KB", 1e3),
        bytes if bytes < 2e9 => ("MB", 1e6),
        _ => ("GB", 1e9),
    }
}
