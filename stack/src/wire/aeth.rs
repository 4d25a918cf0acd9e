//! ACK Extended Transport Header (IBA 9.3.5), its syndrome codes and their tables (IBA 9.7.5).

use super::bytes::{be24, head, head_mut, with_top};

/// A responder's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Verdict and its value.
    pub syndrome: Syndrome,
    /// Messages completed, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Aeth {
        let bytes = head::<{ Aeth::LEN }>(bytes);
        Aeth { syndrome: Syndrome(bytes[0]), msn: be24(bytes, 1) }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        *head_mut(out) = with_top(self.syndrome.0, self.msn);
    }
}

/// The syndrome byte as it is on the wire; any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Syndrome(pub u8);

/// What a syndrome says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyndromeKind {
    /// Positive.
    Ack {
        /// Receive work requests the responder has left; none if it does not tell.
        credits: Option<u16>,
    },
    /// No receive work request was there; try again later.
    RnrNak {
        /// Code of the delay, 0 to 31: see [`rnr_delay_ns`].
        timer: u8,
    },
    /// Negative.
    Nak(NakCode),
    /// Not defined.
    Reserved,
}

impl Syndrome {
    /// ACK that tells nothing of credits.
    pub const ACK: Syndrome = Syndrome::ack(NO_CREDITS);

    /// ACK with a credit code, 0 to 31.
    pub const fn ack(credit: u8) -> Syndrome {
        Syndrome(credit & 0x1f)
    }

    /// RNR NAK with a timer code, 0 to 31.
    pub const fn rnr_nak(timer: u8) -> Syndrome {
        Syndrome(0x20 | timer & 0x1f)
    }

    /// NAK.
    pub const fn nak(code: NakCode) -> Syndrome {
        Syndrome(0x60 | code.code())
    }

    /// What it says.
    #[inline]
    pub const fn kind(self) -> SyndromeKind {
        let value = self.0 & 0x1f;
        match self.0 >> 5 {
            0b000 if value == NO_CREDITS => SyndromeKind::Ack { credits: None },
            0b000 => SyndromeKind::Ack { credits: Some(CREDITS[value as usize]) },
            0b001 => SyndromeKind::RnrNak { timer: value },
            0b011 => SyndromeKind::Nak(NakCode::new(value)),
            _ => SyndromeKind::Reserved,
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// 0: a gap before this PSN.
    PsnSequence,
    /// 1: malformed, out of place or not allowed on this QP.
    InvalidRequest,
    /// 2: key, range or rights of the memory.
    RemoteAccess,
    /// 3: the responder failed.
    RemoteOperational,
    /// 4: reliable datagrams only.
    InvalidRd,
    /// 5 to 31.
    Reserved(u8),
}

impl NakCode {
    /// From the low five bits of a syndrome.
    pub const fn new(code: u8) -> NakCode {
        match code & 0x1f {
            0 => NakCode::PsnSequence,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRd,
            code => NakCode::Reserved(code),
        }
    }

    /// The low five bits of its syndrome.
    pub const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequence => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
            NakCode::Reserved(code) => code & 0x1f,
        }
    }
}

/// Credit code of an ACK that tells nothing of credits.
const NO_CREDITS: u8 = 31;

const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// Receive work requests that an ACK's credit code (its low five bits) grants beyond its MSN; none
/// for 31, which tells nothing.
#[inline]
pub fn credits(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code & 0x1f)).map(|&credits| u32::from(credits))
}

/// In units of 10 microseconds.
const RNR_DELAYS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The delay, in nanoseconds, of an RNR NAK's timer code (its low five bits).
#[inline]
pub fn rnr_delay_ns(code: u8) -> u64 {
    u64::from(RNR_DELAYS[usize::from(code & 0x1f)]) * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes() {
        let table = [
            (0x00, SyndromeKind::Ack { credits: Some(0) }),
            (0x05, SyndromeKind::Ack { credits: Some(6) }),
            (0x1e, SyndromeKind::Ack { credits: Some(32768) }),
            (0x1f, SyndromeKind::Ack { credits: None }),
            (0x20, SyndromeKind::RnrNak { timer: 0 }),
            (0x3f, SyndromeKind::RnrNak { timer: 31 }),
            (0x40, SyndromeKind::Reserved),
            (0x60, SyndromeKind::Nak(NakCode::PsnSequence)),
            (0x61, SyndromeKind::Nak(NakCode::InvalidRequest)),
            (0x62, SyndromeKind::Nak(NakCode::RemoteAccess)),
            (0x63, SyndromeKind::Nak(NakCode::RemoteOperational)),
            (0x64, SyndromeKind::Nak(NakCode::InvalidRd)),
            (0x7f, SyndromeKind::Nak(NakCode::Reserved(31))),
            (0x80, SyndromeKind::Reserved),
            (0xe0, SyndromeKind::Reserved),
        ];
        for (byte, kind) in table {
            assert_eq!(Syndrome(byte).kind(), kind, "{byte:#x}");
        }
    }

    #[test]
    fn every_defined_syndrome_is_built_as_it_is_read() {
        assert_eq!(Syndrome::ACK, Syndrome(0x1f));
        for value in 0..32 {
            assert_eq!(Syndrome::ack(value), Syndrome(value));
            assert_eq!(Syndrome::rnr_nak(value), Syndrome(0x20 | value));
            assert_eq!(Syndrome::nak(NakCode::new(value)), Syndrome(0x60 | value));
        }
    }

    #[test]
    fn credit_codes() {
        // The scale has two codes an octave: 2^n and 1.5 * 2^n.
        let table = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192];
        for (code, value) in table.into_iter().enumerate() {
            assert_eq!(credits(code as u8), Some(value));
        }
        for code in 16..31 {
            assert_eq!(credits(code), credits(code - 8).map(|value| value * 16));
        }
        assert_eq!(credits(31), None);
    }

    #[test]
    fn rnr_timer_codes() {
        let milliseconds = [
            655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96,
            1.28, 1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92,
            122.88, 163.84, 245.76, 327.68, 491.52,
        ];
        for (code, ms) in milliseconds.into_iter().enumerate() {
            assert_eq!(rnr_delay_ns(code as u8), (ms * 1e6_f64).round() as u64, "{code}");
        }
    }
}
