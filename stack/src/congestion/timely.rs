//! TIMELY: how fast round trips grow or shrink, their gradient, decides the rate.
//!
//! After Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter" (SIGCOMM 2015).
//! The paper steps at each completion of a segment of 16 to 64 KB, which at a high rate is many
//! times in a round trip. Here it steps once for each round trip that is measured, so that `delta`
//! is added less often, and the gradient is that of the round trips themselves. Of a step so soon
//! after the last that `min_rtt` has not gone by, that part is done: a short way must not make it
//! faster than the paper's. And no step takes more than half of the rate. Both are in the code that
//! the paper's authors have published, besides.
//!
//! The paper has no answer to losses, since PFC spares its network them: here one halves the rate.
//! `patched` is the change of Zhu et al., "ECN or Delay" (CoNEXT 2016), which makes shares fair.

use super::{Control, PathInfo, parameters};
use crate::time::Instant;

/// Round trips in a row with a gradient below 0 from which on so many steps are made at once.
const HYPERACTIVE: u32 = 5;

const MBIT: u64 = 1_000_000;

parameters! {
    /// Parameters under the names of the paper.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Params {
        /// Nanoseconds of a round trip below which the rate grows, whatever the gradient.
        t_low: u64 = 1..=1_000_000_000,
        /// Nanoseconds of a round trip above which it falls, whatever the gradient.
        t_high: u64 = 1..=1_000_000_000,
        /// Nanoseconds of a round trip without queues: the unit of the gradient.
        min_rtt: u64 = 1..=1_000_000_000,
        /// Mbit/s by which a step raises the rate.
        delta: u64 = 1..=1_000_000,
        /// The share that a cut takes of what asks for it, gradient or excess, in 1/1000.
        beta: u32 = 1..=1_000,
        /// Weight of the newest difference in the mean of differences, in 1/1000.
        alpha: u32 = 1..=1_000,
        /// Above 0, the change of "ECN or Delay": between `t_low` and `t_high` the gradient weighs
        /// a step against a cut, which takes this share of the excess over `t_low`, in 1/1000.
        patched: u32 = 0..=1_000,
        /// The lowest rate in Mbit/s.
        min_rate: u64 = 1..=1_000_000,
    }
}

impl Params {
    /// Those of the paper; `alpha` and `min_rtt`, which it does not tell, are those of "ECN or
    /// Delay".
    pub const fn paper() -> Params {
        Params {
            t_low: 50_000,
            t_high: 500_000,
            min_rtt: 20_000,
            delta: 10,
            beta: 800,
            alpha: 875,
            patched: 0,
            min_rate: 10,
        }
    }

    /// The same with the change of "ECN or Delay". There, `beta` is as small as `patched`; here it
    /// stays, or flows that begin together would not get out of round trips above `t_high`.
    pub const fn patched() -> Params {
        Params { patched: 8, ..Params::paper() }
    }
}

impl Default for Params {
    fn default() -> Params {
        Params::paper()
    }
}

/// TIMELY on one QP.
#[derive(Clone, Debug)]
pub struct State {
    params: Params,
    /// In bit/s, as all rates.
    line_rate: u64,
    rate: u64,
    /// The last round trip, and when it ended.
    last: Option<(f64, Instant)>,
    /// Mean difference between a round trip and the one before it, in nanoseconds.
    difference: f64,
    /// Round trips in a row with a gradient below 0.
    shrinking: u32,
    /// No loss cuts before this.
    loss_cuts_from: Instant,
}

impl Control for State {
    type Params = Params;

    const MEASURES_ROUND_TRIPS: bool = true;

    fn new(params: &Params, path: &PathInfo) -> State {
        State {
            params: params.clamped(),
            line_rate: path.line_rate,
            rate: path.line_rate,
            last: None,
            difference: 0.0,
            shrinking: 0,
            loss_cuts_from: Instant::ZERO,
        }
    }

    fn on_cnp(&mut self, _now: Instant) -> bool {
        false
    }

    fn on_ack(&mut self, now: Instant, rtt: Option<u64>, _bytes: u64) {
        if let Some(rtt) = rtt {
            self.step(now, (rtt as f64).max(1.0));
        }
    }

    fn on_loss(&mut self, now: Instant) {
        if now >= self.loss_cuts_from {
            let round_trip = self.last.map_or(self.params.t_high, |(rtt, _)| rtt as u64);
            self.loss_cuts_from = now + round_trip;
            self.change(0.0, 0.5);
        }
    }

    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn rate(&mut self, _now: Instant) -> u64 {
        self.rate
    }

    fn window(&self) -> Option<u64> {
        None
    }
}

impl State {
    /// A round trip of `rtt` nanoseconds has ended.
    fn step(&mut self, now: Instant, rtt: f64) {
        let params = &self.params;
        let (t_low, t_high) = (params.t_low as f64, params.t_high as f64);
        let share = |thousandths: u32| f64::from(thousandths) / 1000.0;
        let (min_rtt, alpha, beta) =
            (params.min_rtt as f64, share(params.alpha), share(params.beta));
        let (last_rtt, last_at) = self.last.replace((rtt, now)).unwrap_or((rtt, Instant::ZERO));
        let elapsed = now.nanos().saturating_sub(last_at.nanos()) as f64;
        let part = (elapsed / min_rtt).min(1.0);
        self.difference = (1.0 - alpha) * self.difference + alpha * (rtt - last_rtt);
        let gradient = self.difference / min_rtt;
        self.shrinking = if gradient < 0.0 { self.shrinking.saturating_add(1) } else { 0 };
        let steps = if self.shrinking >= HYPERACTIVE { HYPERACTIVE } else { 1 };
        let (steps, cut) = if rtt < t_low {
            (1.0, 0.0)
        } else if rtt > t_high {
            (0.0, beta * (1.0 - t_high / rtt))
        } else if params.patched > 0 {
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            (1.0 - weight, share(params.patched) * weight * (rtt - t_low) / t_low)
        } else if gradient > 0.0 {
            (0.0, beta * gradient)
        } else {
            (f64::from(steps), 0.0)
        };
        self.change(steps * part, cut * part);
    }

    /// Adds so many steps, and takes this share of the rate: half of it at most.
    fn change(&mut self, steps: f64, cut: f64) {
        let added = steps * (self.params.delta * MBIT) as f64;
        let left = self.rate as f64 * (1.0 - cut.min(0.5));
        let lowest = self.line_rate.min(self.params.min_rate * MBIT);
        self.rate = ((left + added) as u64).clamp(lowest, self.line_rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;
    const PATH: PathInfo = PathInfo { line_rate: 10 * GBIT, path_mtu: 1024 };
    const US: u64 = 1000;

    /// TIMELY at work, a millisecond between the ends of two round trips.
    struct Flow {
        state: State,
        now: Instant,
    }

    impl Flow {
        fn new(params: Params) -> Flow {
            let state = State::new(&params, &PATH);
            Flow { state, now: Instant::from_nanos(GBIT) }
        }

        /// The rate in Mbit/s after a round trip of `us` microseconds.
        fn after(&mut self, us: u64) -> u64 {
            self.now = self.now + 1000 * US;
            self.state.on_ack(self.now, Some(us * US), 1024);
            self.mbit()
        }

        /// Rounded.
        fn mbit(&self) -> u64 {
            (self.state.rate + MBIT / 2) / MBIT
        }
    }

    #[test]
    fn short_round_trips_add_a_step_even_while_they_grow() {
        let mut flow = Flow::new(Params::paper());
        assert_eq!(flow.after(10), 10_000, "no more than the line rate");
        flow.state.rate = GBIT;
        assert_eq!([flow.after(20), flow.after(49), flow.after(10)], [1010, 1020, 1030]);
    }

    #[test]
    fn long_round_trips_cut_by_what_is_too_much_even_while_they_shrink() {
        let mut flow = Flow::new(Params::paper());
        // Half of it is too much, of which 0.8 counts; then a fifth.
        assert_eq!([flow.after(1000), flow.after(625)], [6000, 5040]);
    }

    #[test]
    fn in_between_a_gradient_above_zero_cuts_by_it_and_another_adds() {
        let mut flow = Flow::new(Params::paper());
        assert_eq!(flow.after(100), 10_000);
        // 0.875 of 10 us more, to the 20 us of `min_rtt`, of which 0.8 counts.
        assert_eq!(flow.after(110), 6500);
        // The mean is 0.125 of those 8.75 us less 0.875 of 10: it shrinks.
        assert_eq!(flow.after(100), 6510);
    }

    #[test]
    fn from_the_fifth_that_shrinks_on_five_steps_are_made_at_once() {
        let mut flow = Flow::new(Params::paper());
        flow.after(400);
        flow.state.rate = GBIT;
        let rates: Vec<u64> = (1..=6).map(|time| flow.after(400 - 10 * time)).collect();
        assert_eq!(rates, [1010, 1020, 1030, 1040, 1090, 1140]);
        flow.after(350);
        let rate = flow.mbit();
        assert_eq!([flow.after(340), flow.after(330)], [rate + 10, rate + 20], "counted anew");
    }

    #[test]
    fn one_round_trip_takes_no_more_than_half() {
        let mut flow = Flow::new(Params::paper());
        flow.after(60);
        assert_eq!([flow.after(400), flow.after(480)], [5000, 2500]);
        assert_eq!(flow.after(1_000_000), 1250, "nor does the longest");
    }

    #[test]
    fn the_rate_does_not_fall_below_the_lowest() {
        let mut flow = Flow::new(Params::paper());
        let lowest = (0..20).map(|time| flow.after(1000 * (time + 1))).last();
        assert_eq!(lowest, Some(10));
    }

    /// Round trips of a tenth of `min_rtt` make a tenth of a step.
    #[test]
    fn ten_short_round_trips_do_not_add_more_than_one_of_min_rtt() {
        let mut state = State::new(&Params::paper(), &PATH);
        let mut now = Instant::from_nanos(GBIT);
        state.on_ack(now, Some(2 * US), 1024);
        state.rate = GBIT;
        for _ in 0..10 {
            now = now + 2 * US;
            state.on_ack(now, Some(2 * US), 1024);
        }
        assert_eq!(state.rate, GBIT + 10 * MBIT);
    }

    #[test]
    fn patched_it_weighs_growth_against_the_excess_over_t_low() {
        let mut flow = Flow::new(Params::patched());
        flow.after(100);
        flow.state.rate = GBIT;
        // No gradient: half of a step, and half of 0.008 times an excess of one `t_low`.
        assert_eq!(flow.after(100), 1001);
        flow.state.rate = GBIT;
        // A gradient above a quarter: no step, and all of 0.008 times an excess of two.
        assert_eq!(flow.after(150), 984);
        flow.state.rate = GBIT;
        assert_eq!(flow.after(100), 1010, "one below: a step, and no cut");
    }

    #[test]
    fn a_loss_halves_the_rate_once_in_a_round_trip() {
        let mut flow = Flow::new(Params::paper());
        flow.after(100);
        for (us, mbit) in [(0, 5000), (99, 5000), (100, 2500), (150, 2500)] {
            flow.state.on_loss(flow.now + us * US);
            assert_eq!(flow.mbit(), mbit, "{us}");
        }
    }

    #[test]
    fn without_a_round_trip_and_by_cnps_nothing_changes() {
        let mut flow = Flow::new(Params::paper());
        flow.state.rate = GBIT;
        flow.state.on_ack(flow.now, None, 65_536);
        assert!(!flow.state.on_cnp(flow.now));
        assert_eq!(flow.state.rate(flow.now + 3600 * GBIT), GBIT);
    }
}
