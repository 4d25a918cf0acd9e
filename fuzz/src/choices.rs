//! What the input chooses of both worlds: addresses, loss recovery, congestion control.

use ferroce::world::Addressing;
use ferroce_stack::congestion::{self, Algorithm};
use ferroce_stack::{Config, LossRecovery};

use crate::input::Input;

/// One byte of input: addresses in its remainder by 3; then two bits, whether the first and the
/// second device offer selective repeat; the rest is the algorithm of both, or none.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Of both.
    pub addressing: Addressing,
    recovery: u8,
    congestion: usize,
}

impl Choices {
    /// The next byte's.
    pub fn read(input: &mut Input) -> Choices {
        const ALL: [Addressing; 3] = [Addressing::Ipv4, Addressing::Ipv6, Addressing::RoceV1];
        let byte = input.byte();
        let rest = byte / ALL.len() as u8;
        let addressing = ALL[usize::from(byte) % ALL.len()];
        Choices { addressing, recovery: rest & 3, congestion: usize::from(rest >> 2) }
    }

    /// `base` with what device `node`, 0 or 1, has of it.
    pub fn apply(self, node: usize, base: &Config) -> Config {
        let loss_recovery = match self.recovery >> node & 1 {
            0 => LossRecovery::GoBackN,
            _ => LossRecovery::SelectiveRepeat,
        };
        let names = Algorithm::NAMES;
        let name = (self.congestion % (names.len() + 1)).checked_sub(1).map(|at| names[at]);
        let congestion = name.and_then(Algorithm::named).map(|algorithm| {
            congestion::Config::new(algorithm, congestion::Config::DEFAULT_LINE_RATE)
        });
        Config { loss_recovery, congestion, ..base.clone() }
    }
}
