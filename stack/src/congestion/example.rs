//! Halving: a CNP halves the rate, and each period without one adds a step to it.

use super::{Control, PathInfo, parameters};
use crate::time::Instant;

parameters! {
    /// What can be set.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Params {
        /// Microseconds between two steps.
        period: u64 = 1..=1_000_000,
        /// A step in Mbit/s.
        step: u64 = 1..=1_000_000,
        /// The lowest rate in Mbit/s.
        min_rate: u64 = 1..=1_000_000,
    }
}

impl Default for Params {
    fn default() -> Params {
        Params { period: 100, step: 50, min_rate: 10 }
    }
}

/// Halving on one QP.
#[derive(Clone, Debug)]
pub struct State {
    params: Params,
    line_rate: u64,
    /// In bit/s.
    rate: u64,
    /// The next step is a period after this.
    stepped_at: Instant,
}

impl Control for State {
    type Params = Params;

    const MEASURES_ROUND_TRIPS: bool = false;

    fn new(params: &Params, path: &PathInfo) -> State {
        State {
            params: params.clamped(),
            line_rate: path.line_rate,
            rate: path.line_rate,
            stepped_at: Instant::ZERO,
        }
    }

    fn on_cnp(&mut self, now: Instant) -> bool {
        let lowest = self.line_rate.min(self.params.min_rate * 1_000_000);
        self.rate = (self.rate(now) / 2).max(lowest);
        self.stepped_at = now;
        true
    }

    fn on_ack(&mut self, _now: Instant, _rtt: Option<u64>, _bytes: u64) {}

    fn on_loss(&mut self, _now: Instant) {}

    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn rate(&mut self, now: Instant) -> u64 {
        let period = self.params.period * 1_000;
        let steps = now.nanos().saturating_sub(self.stepped_at.nanos()) / period;
        let gained = steps.saturating_mul(self.params.step * 1_000_000);
        self.rate = self.rate.saturating_add(gained).min(self.line_rate);
        self.stepped_at = self.stepped_at + steps * period;
        self.rate
    }

    fn window(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cnp_halves_and_each_period_adds_a_step() {
        let path = PathInfo { line_rate: 1_000_000_000, path_mtu: 4096 };
        let mut state = State::new(&Params::default(), &path);
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        assert!(state.on_cnp(at(50)));
        assert_eq!(state.rate(at(149)), 500_000_000);
        assert_eq!(state.rate(at(150)), 550_000_000);
        assert_eq!(state.rate(at(350)), 650_000_000);
        assert_eq!(state.rate(at(10_000)), 1_000_000_000);
    }
}
