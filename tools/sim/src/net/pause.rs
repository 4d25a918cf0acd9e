//! Pause frames of priority flow control (IEEE 802.1Qbb, Annex 31D of 802.3).

use ferroce_stack::wire::Mac;

use crate::plan::CLASSES;

/// Bytes of a pause frame, without FCS: the least a frame has.
pub const LEN: usize = 60;
/// Bit times of one quantum.
const QUANTUM_BITS: u64 = 512;
/// The longest pause.
pub const QUANTA_MAX: u16 = u16::MAX;

/// To the other end of the link and no further.
const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x01];
const MAC_CONTROL: [u8; 2] = [0x88, 0x08];
const CLASS_BASED: [u8; 2] = [0x01, 0x01];

/// What a pause frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Classes it speaks of, as bits.
    pub classes: u8,
    /// For how long each pauses, in quanta; 0 resumes it.
    pub quanta: [u16; CLASSES],
}

impl Pause {
    /// All of `classes` pause for so many quanta.
    pub fn of(classes: u8, quanta: u16) -> Pause {
        let of = |class: usize| if classes >> class & 1 == 1 { quanta } else { 0 };
        Pause { classes, quanta: std::array::from_fn(of) }
    }

    /// Writes the frame into the first [`LEN`] bytes of `out`.
    pub fn emit(&self, from: Mac, out: &mut [u8]) {
        let frame = &mut out[..LEN];
        frame.fill(0);
        frame[..6].copy_from_slice(&DESTINATION);
        frame[6..12].copy_from_slice(&from.0);
        frame[12..14].copy_from_slice(&MAC_CONTROL);
        frame[14..16].copy_from_slice(&CLASS_BASED);
        frame[17] = self.classes;
        for (field, quanta) in frame[18..34].chunks_exact_mut(2).zip(self.quanta) {
            field.copy_from_slice(&quanta.to_be_bytes());
        }
    }

    /// Reads a frame; `None` if it is no pause frame.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Pause> {
        if frame.len() < LEN || frame[12..14] != MAC_CONTROL || frame[14..16] != CLASS_BASED {
            return None;
        }
        let quanta = std::array::from_fn(|class| {
            u16::from_be_bytes([frame[18 + 2 * class], frame[19 + 2 * class]])
        });
        Some(Pause { classes: frame[17], quanta })
    }
}

/// Picoseconds that so many quanta last at `rate` bits per second.
pub fn quanta_time(quanta: u16, rate: u64) -> u64 {
    let bits = u128::from(u64::from(quanta) * QUANTUM_BITS);
    u64::try_from(bits * 1_000_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_frame_stands_as_the_standard_has_it() {
        let mut frame = [0xff; 100];
        let pause = Pause::of(0b1000, 0x1234);
        pause.emit(Mac([2, 0, 0, 0, 0, 9]), &mut frame);
        let start = [
            0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 8, 1, 1, 0, 8, 0, 0, 0, 0, 0, 0,
            0x12, 0x34, 0, 0,
        ];
        assert_eq!(frame[..28], start);
        assert!(frame[28..LEN].iter().all(|&byte| byte == 0));
        assert_eq!(Pause::parse(&frame[..LEN]), Some(pause));
        assert_eq!(Pause::parse(&frame[..LEN - 1]), None);
        assert_eq!(Pause::parse(&[0; LEN]), None);
    }

    #[test]
    fn quanta_are_512_bit_times() {
        assert_eq!(quanta_time(1, 1_000_000_000_000), 512);
        assert_eq!(quanta_time(QUANTA_MAX, 100_000_000_000), 335_539_200);
        assert_eq!(quanta_time(QUANTA_MAX, 1), u64::MAX);
    }
}
