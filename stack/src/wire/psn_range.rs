//! A run of PSNs: what the payload of a selective NAK consists of (`docs/loss-recovery.md`). Only
//! devices that have agreed on selective repeat send it.

use std::fmt;

use super::bytes::{be24, head, head_mut, put, with_top};
use super::{Aeth, Bth, Kind, NakCode, Syndrome};
use crate::loss_recovery::LossRecovery;
use crate::psn::Psn;

/// PSNs that have arrived although earlier ones are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsnRange {
    /// The first.
    pub first: Psn,
    /// How many, below 2^24.
    pub count: u32,
}

impl PsnRange {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Ranges that one packet has at most: they fit the smallest path MTU.
    pub const MAX: usize = 32;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    pub fn parse(bytes: &[u8]) -> PsnRange {
        let bytes = head::<{ PsnRange::LEN }>(bytes);
        PsnRange { first: Psn::new(be24(bytes, 1)), count: be24(bytes, 5) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes; the top byte of each half is 0.
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ PsnRange::LEN }>(out);
        put(out, 0, with_top(0, self.first.value()));
        put(out, 4, with_top(0, self.count));
    }

    /// The ranges of a payload, at most [`MAX`](Self::MAX); none if it is none of ranges.
    pub fn parse_all(payload: &[u8]) -> impl Iterator<Item = PsnRange> {
        let whole = payload.len().is_multiple_of(PsnRange::LEN);
        let chunks = if whole { payload } else { &[] }.chunks_exact(PsnRange::LEN);
        chunks.take(PsnRange::MAX).map(PsnRange::parse)
    }

    /// Whether a packet with `payload_len` bytes of payload is a sequence NAK that tells ranges.
    pub fn are_told(bth: &Bth, aeth: Option<Aeth>, payload_len: usize) -> bool {
        let sequence = Syndrome::nak(NakCode::PsnSequence);
        bth.reserved7 == LossRecovery::SelectiveRepeat.mark()
            && bth.opcode.info().is_some_and(|info| info.kind == Kind::Acknowledge)
            && aeth.is_some_and(|aeth| aeth.syndrome == sequence)
            && (PsnRange::LEN..=PsnRange::MAX * PsnRange::LEN).contains(&payload_len)
            && payload_len.is_multiple_of(PsnRange::LEN)
    }
}

/// The first and the last PSN, as in `5` or `5 to 7`.
impl fmt::Display for PsnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.value().fmt(f)?;
        match self.count {
            1 => Ok(()),
            count => write!(f, " to {}", self.first.advance(count.wrapping_sub(1)).value()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Opcode;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let range = PsnRange { first: Psn::new(0xfe_dcba), count: 0x01_0203 };
        let mut wire = [0xff; PsnRange::LEN];
        range.emit(&mut wire);
        assert_eq!(wire, [0, 0xfe, 0xdc, 0xba, 0, 1, 2, 3]);
        assert_eq!(PsnRange::parse(&wire), range);
    }

    #[test]
    fn only_a_marked_sequence_nak_tells_ranges() {
        let nak = |reserved7, opcode, syndrome, len| {
            let bth = Bth { reserved7, ..Bth::new(opcode, 5, Psn::new(7)) };
            PsnRange::are_told(&bth, Some(Aeth { syndrome, msn: 0 }), len)
        };
        let (mark, ack) = (LossRecovery::SelectiveRepeat.mark(), Opcode::RC_ACKNOWLEDGE);
        let sequence = Syndrome::nak(NakCode::PsnSequence);
        assert!(nak(mark, ack, sequence, 8) && nak(mark, ack, sequence, 256));
        assert!(!nak(mark, ack, sequence, 0) && !nak(mark, ack, sequence, 264));
        assert!(!nak(mark, ack, sequence, 12) && !nak(mark, ack, Syndrome::ACK, 8));
        assert!(!nak(0, ack, sequence, 8) && !nak(mark, Opcode::RC_SEND_ONLY, sequence, 8));
    }

    #[test]
    fn ranges_in_words() {
        let text = |first, count| PsnRange { first: Psn::new(first), count }.to_string();
        assert_eq!([text(5, 1), text(5, 3), text(0xff_ffff, 2)], ["5", "5 to 7", "16777215 to 0"]);
    }

    #[test]
    fn a_payload_of_odd_length_has_none() {
        for len in 0..600 {
            let count = PsnRange::parse_all(&vec![7; len]).count();
            let expected = if len % 8 == 0 { (len / 8).min(PsnRange::MAX) } else { 0 };
            assert_eq!(count, expected, "{len} bytes");
        }
    }
}
