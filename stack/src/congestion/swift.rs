//! Swift: the round-trip time against a target decides how many packets may be outstanding; less
//! than one means that they are paced.
//!
//! After Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter" (SIGCOMM 2020). Two things are left out, since RoCE's packets do not tell: delay of
//! the hosts apart from that of the fabric, and the number of hops. Only operations that IEEE 754
//! defines to the last bit, square root among them, so that it is the same everywhere.

use super::{Control, PathInfo, parameters};
use crate::time::Instant;

/// Losses in a row after which the window is at its smallest.
const MAX_LOSSES: u32 = 5;

parameters! {
    /// Parameters under the names of the paper; windows are in thousandths of a packet.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Params {
        /// Nanoseconds a round trip takes without queues, and what queue may be there for long.
        base_target_delay: u64 = 1_000..=1_000_000_000,
        /// Nanoseconds by which the target of a flow with the smallest window is longer.
        fs_range: u64 = 0..=1_000_000_000,
        /// Window from which on down the target is longest.
        fs_min_cwnd: u64 = 1..=1_000_000,
        /// Window from which on up the target is not prolonged.
        fs_max_cwnd: u64 = 1..=100_000_000,
        /// By how much a round trip without congestion widens the window.
        ai: u64 = 1..=1_000_000,
        /// How much of the excess of delay is taken off the window, in 1/1000.
        beta: u32 = 1..=1_000,
        /// The most that one decrease takes off the window, in 1/1000.
        max_mdf: u32 = 1..=999,
        /// The smallest window.
        min_cwnd: u64 = 1..=1_000_000,
        /// The largest window.
        max_cwnd: u64 = 1_000..=100_000_000,
        /// The lowest rate in Mbit/s, however long round trips take.
        min_rate: u64 = 1..=1_000_000,
    }
}

impl Default for Params {
    /// For round trips of some 10 microseconds.
    fn default() -> Params {
        Params {
            base_target_delay: 25_000,
            fs_range: 100_000,
            fs_min_cwnd: 100,
            fs_max_cwnd: 100_000,
            ai: 1_000,
            beta: 800,
            max_mdf: 500,
            min_cwnd: 10,
            max_cwnd: 256_000,
            min_rate: 1,
        }
    }
}

/// Swift on one QP.
#[derive(Clone, Debug)]
pub struct State {
    /// In packets, as all windows.
    cwnd: f64,
    min_cwnd: f64,
    max_cwnd: f64,
    /// In bit/s.
    min_rate: u64,
    ai: f64,
    beta: f64,
    max_mdf: f64,
    base_target: f64,
    scaling: Scaling,
    path: PathInfo,
    /// The last round trip, in nanoseconds; of the base target before the first.
    rtt: f64,
    /// No decrease before this: one in each round trip.
    decrease_from: Instant,
    losses_in_row: u32,
}

/// Small windows get a longer target: many flows share the queue then.
#[derive(Clone, Debug)]
struct Scaling {
    range: f64,
    alpha: f64,
    beta: f64,
}

impl Scaling {
    fn new(params: &Params) -> Scaling {
        let root = |milli: u64| 1.0 / (milli as f64 / 1000.0).sqrt();
        let (longest, shortest) = (root(params.fs_min_cwnd), root(params.fs_max_cwnd));
        let range = params.fs_range as f64;
        let alpha = match longest - shortest {
            span if span > 0.0 => range / span,
            _ => 0.0,
        };
        Scaling { range, alpha, beta: -alpha * shortest }
    }

    fn prolongs(&self, cwnd: f64) -> f64 {
        (self.alpha / cwnd.sqrt() + self.beta).clamp(0.0, self.range)
    }
}

impl Control for State {
    type Params = Params;

    const MEASURES_ROUND_TRIPS: bool = true;

    fn new(params: &Params, path: &PathInfo) -> State {
        let params = params.clamped();
        let packets = |milli: u64| milli as f64 / 1000.0;
        let share = |milli: u32| f64::from(milli) / 1000.0;
        let max_cwnd = packets(params.max_cwnd);
        State {
            cwnd: max_cwnd,
            min_cwnd: packets(params.min_cwnd).min(max_cwnd),
            max_cwnd,
            min_rate: path.line_rate.min(params.min_rate * 1_000_000),
            ai: packets(params.ai),
            beta: share(params.beta),
            max_mdf: share(params.max_mdf),
            base_target: params.base_target_delay as f64,
            scaling: Scaling::new(&params),
            path: *path,
            rtt: params.base_target_delay as f64,
            decrease_from: Instant::ZERO,
            losses_in_row: 0,
        }
    }

    fn on_cnp(&mut self, _now: Instant) -> bool {
        false
    }

    fn on_ack(&mut self, now: Instant, rtt: Option<u64>, bytes: u64) {
        self.losses_in_row = 0;
        let acked = bytes as f64 / f64::from(self.path.path_mtu);
        if let Some(rtt) = rtt {
            self.rtt = (rtt as f64).max(1.0);
        }
        let target = self.base_target + self.scaling.prolongs(self.cwnd);
        if self.rtt < target {
            self.cwnd += match self.cwnd >= 1.0 {
                true => self.ai * acked / self.cwnd,
                false => self.ai * acked,
            };
        } else if rtt.is_some() {
            let excess = (self.rtt - target) / self.rtt;
            self.decrease(now, (self.beta * excess).min(self.max_mdf));
        }
        self.cwnd = self.cwnd.clamp(self.min_cwnd, self.max_cwnd);
    }

    fn on_loss(&mut self, now: Instant) {
        self.losses_in_row += 1;
        if self.losses_in_row >= MAX_LOSSES {
            self.cwnd = self.min_cwnd;
        } else {
            self.decrease(now, self.max_mdf);
        }
    }

    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn rate(&mut self, _now: Instant) -> u64 {
        if self.cwnd >= 1.0 {
            return self.path.line_rate;
        }
        let bits = self.cwnd * f64::from(self.path.path_mtu) * 8.0;
        // Whole bits each second; what does not fit is the largest number.
        ((bits * 1e9 / self.rtt) as u64).clamp(self.min_rate, self.path.line_rate)
    }

    fn window(&self) -> Option<u64> {
        Some((self.cwnd * f64::from(self.path.path_mtu)) as u64)
    }
}

impl State {
    /// Takes a share off the window, once in a round trip.
    fn decrease(&mut self, now: Instant, share: f64) {
        if now >= self.decrease_from {
            self.cwnd = (self.cwnd * (1.0 - share)).max(self.min_cwnd);
            self.decrease_from = now + self.rtt as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathInfo = PathInfo { line_rate: 10_000_000_000, path_mtu: 1000 };
    const US: u64 = 1000;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * US)
    }

    fn without_scaling(max_cwnd: u64) -> State {
        State::new(&Params { fs_range: 0, max_cwnd, ..Params::default() }, &PATH)
    }

    #[test]
    fn delay_above_the_target_narrows_the_window_once_in_a_round_trip() {
        let mut state = without_scaling(100_000);
        assert_eq!((state.window(), state.rate(at(0))), (Some(100_000), PATH.line_rate));
        // Half of the delay is too much, of which 0.8 counts.
        state.on_ack(at(50), Some(50 * US), 1000);
        assert_eq!(state.window(), Some(60_000));
        state.on_ack(at(60), Some(50 * US), 1000);
        assert_eq!(state.window(), Some(60_000), "too soon");
        state.on_ack(at(100), Some(1_000 * US), 1000);
        assert_eq!(state.window(), Some(30_000), "by half at most");
    }

    #[test]
    fn a_round_trip_below_the_target_widens_the_window_by_a_packet() {
        let mut state = without_scaling(100_000);
        state.cwnd = 10.0;
        for ack in 0..10 {
            state.on_ack(at(ack), Some(10 * US), 1000);
        }
        assert!((10.9..11.0).contains(&state.cwnd), "{}", state.cwnd);
        state.on_ack(at(20), None, 1_000_000);
        assert_eq!(state.window(), Some(100_000), "no more than the widest");
    }

    #[test]
    fn less_than_a_packet_is_paced() {
        let mut state = without_scaling(1_000);
        state.on_ack(at(100), Some(100 * US), 1000);
        assert_eq!(state.cwnd, 0.5);
        // Half a packet of 8000 bits in 100 microseconds.
        assert_eq!(state.rate(at(100)), 40_000_000);
        state.on_ack(at(200), Some(10 * US), 1000);
        assert_eq!(state.window(), Some(1000), "by a packet for each acknowledged");
    }

    #[test]
    fn however_long_round_trips_take_a_rate_is_left() {
        let mut state = without_scaling(1_000);
        for second in 1..20 {
            state.on_ack(at(second * 1_000_000), Some(1_000_000 * US), 1000);
        }
        assert_eq!((state.cwnd, state.rate(at(20_000_000))), (0.01, 1_000_000));
    }

    #[test]
    fn losses_narrow_the_window_and_a_row_of_them_closes_it_nearly() {
        let mut state = without_scaling(100_000);
        for (us, window) in [(0, 50_000), (1, 50_000), (30, 25_000), (60, 12_500), (61, 10)] {
            state.on_loss(at(us));
            assert_eq!(state.window(), Some(window), "{us}");
        }
    }

    #[test]
    fn small_windows_have_a_longer_target() {
        let scaling = Scaling::new(&Params::default());
        assert_eq!(scaling.prolongs(100.0), 0.0);
        assert_eq!(scaling.prolongs(1000.0), 0.0);
        assert_eq!(scaling.prolongs(0.01), 100_000.0);
        let one = scaling.prolongs(1.0);
        assert!((29_000.0..31_000.0).contains(&one), "{one}");
    }
}
