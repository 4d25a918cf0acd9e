//! Times as connection management codes them: 4.096 us * 2^code, five bits.

/// Nanoseconds of a code.
pub const fn code_ns(code: u8) -> u64 {
    4096 << if code > 31 { 31 } else { code }
}

/// The ACK timeout code of a path whose packets live `packet_life` and whose other end takes
/// `ack_delay` to acknowledge: twice the one and once the other, in powers of two (IBA 12.7.34).
pub const fn ack_timeout(ack_delay: u8, packet_life: u8) -> u8 {
    let round_trip = packet_life.saturating_add(1);
    let (longer, shorter) =
        if round_trip >= ack_delay { (round_trip, ack_delay) } else { (ack_delay, round_trip) };
    // A power of two holds what is half of it as well; below that the rest does not count.
    let code = if shorter.saturating_add(1) >= longer { longer.saturating_add(1) } else { longer };
    if code > 31 { 31 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_is_what_rxe_sends() {
        assert_eq!(ack_timeout(15, 18), 19, "kernel 6.1");
        assert_eq!(ack_timeout(15, 16), 17, "kernel 6.12");
        assert_eq!(ack_timeout(15, 14), 16);
        assert_eq!(ack_timeout(20, 14), 20);
        assert_eq!(ack_timeout(255, 255), 31);
    }
}
