//! DCQCN: a CNP cuts the rate, timers and a byte counter bring it back.
//!
//! After Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), with the
//! parameters NICs have, under their names. Whole numbers only, so that it is the same everywhere.

use super::{Control, PathInfo, parameters};
use crate::time::Instant;

/// Bits behind the point of alpha.
const ALPHA_BITS: u32 = 20;
/// Alpha of 1.
const ONE: u64 = 1 << ALPHA_BITS;
const US: u64 = 1_000;
const MBIT: u64 = 1_000_000;

parameters! {
    /// Parameters under the names NVIDIA's NICs give them, in their units.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Params {
        /// 1 - g, the share of alpha that is kept at each of its updates, in 1/1024.
        dce_tcp_g: u32 = 0..=1023,
        /// Microseconds without a CNP after which alpha decays, again and again.
        dce_tcp_rtt: u64 = 1..=1_000_000,
        /// Alpha before the first CNP, in 1/1024.
        initial_alpha_value: u32 = 0..=1024,
        /// Microseconds between increases by the timer.
        rpg_time_reset: u64 = 1..=1_000_000,
        /// Bytes between increases by the byte counter; 0: it is off.
        rpg_byte_reset: u64 = 0..=1_000_000_000,
        /// Increases by either that belong to fast recovery: below this number of them.
        rpg_threshold: u32 = 1..=31,
        /// Mbit/s by which additive increase raises the target rate.
        rpg_ai_rate: u64 = 1..=1_000_000,
        /// Mbit/s by which hyper increase raises the target rate, once more each time.
        rpg_hai_rate: u64 = 1..=1_000_000,
        /// The highest rate in Mbit/s; 0: the line rate.
        rpg_max_rate: u64 = 0..=1_000_000,
        /// The lowest rate in Mbit/s.
        rpg_min_rate: u64 = 1..=1_000_000,
        /// A cut leaves at least this share of the rate, in percent.
        rpg_min_dec_fac: u32 = 0..=100,
        /// A cut takes alpha, times 1024, divided by 2 to this power, of the rate.
        rpg_gd: u32 = 10..=11,
        /// The rate in Mbit/s after the first CNP; 0: as after any other.
        rate_to_set_on_first_cnp: u64 = 0..=1_000_000,
        /// Microseconds after a cut in which CNPs are ignored.
        rate_reduce_monitor_period: u64 = 0..=1_000_000,
        /// 1: each cut makes the rate before it the target. 0: only one that comes after an
        /// increase does.
        clamp_tgt_rate: u8 = 0..=1,
        /// 1: increases by the timer count for that, too. 0: only those by the byte counter.
        clamp_tgt_rate_after_time_inc: u8 = 0..=1,
    }
}

impl Params {
    /// Those of the paper, for 40 Gbit/s.
    pub const fn paper() -> Params {
        Params {
            dce_tcp_g: 1020,
            dce_tcp_rtt: 55,
            initial_alpha_value: 1024,
            rpg_time_reset: 55,
            rpg_byte_reset: 10_000_000,
            rpg_threshold: 5,
            rpg_ai_rate: 40,
            rpg_hai_rate: 200,
            rpg_max_rate: 0,
            rpg_min_rate: 1,
            rpg_min_dec_fac: 50,
            rpg_gd: 11,
            rate_to_set_on_first_cnp: 0,
            rate_reduce_monitor_period: 50,
            clamp_tgt_rate: 1,
            clamp_tgt_rate_after_time_inc: 1,
        }
    }

    /// Those NVIDIA's NICs come with.
    pub const fn nvidia() -> Params {
        Params {
            dce_tcp_g: 1019,
            dce_tcp_rtt: 1,
            initial_alpha_value: 1023,
            rpg_time_reset: 300,
            rpg_byte_reset: 32_767,
            rpg_threshold: 1,
            rpg_ai_rate: 5,
            rpg_hai_rate: 50,
            rpg_max_rate: 0,
            rpg_min_rate: 1,
            rpg_min_dec_fac: 50,
            rpg_gd: 11,
            rate_to_set_on_first_cnp: 0,
            rate_reduce_monitor_period: 4,
            clamp_tgt_rate: 0,
            clamp_tgt_rate_after_time_inc: 1,
        }
    }
}

impl Default for Params {
    fn default() -> Params {
        Params::paper()
    }
}

/// DCQCN's reaction point on one QP.
#[derive(Clone, Debug)]
pub struct State {
    params: Params,
    /// In bit/s, as all rates.
    max_rate: u64,
    min_rate: u64,
    rate: u64,
    target: u64,
    /// Fixed point with [`ALPHA_BITS`].
    alpha: u64,
    /// Alpha's timer counts from here; `None` before the first CNP.
    alpha_since: Option<Instant>,
    /// The rate timer counts from here.
    increased_at: Instant,
    /// No CNP cuts before this.
    monitored_until: Instant,
    /// Bytes sent since the byte counter began.
    bytes: u64,
    time_stage: u32,
    byte_stage: u32,
    /// An increase since the last cut makes the rate the target at the next.
    has_increased: bool,
}

impl Control for State {
    type Params = Params;

    const MEASURES_ROUND_TRIPS: bool = false;

    fn new(params: &Params, path: &PathInfo) -> State {
        let params = params.clamped();
        let max_rate = match params.rpg_max_rate {
            0 => path.line_rate,
            mbit => path.line_rate.min(mbit * MBIT),
        };
        State {
            max_rate,
            min_rate: max_rate.min(params.rpg_min_rate * MBIT),
            rate: max_rate,
            target: max_rate,
            alpha: u64::from(params.initial_alpha_value) << (ALPHA_BITS - 10),
            alpha_since: None,
            increased_at: Instant::ZERO,
            monitored_until: Instant::ZERO,
            bytes: 0,
            time_stage: 0,
            byte_stage: 0,
            has_increased: true,
            params,
        }
    }

    fn on_cnp(&mut self, now: Instant) -> bool {
        if now < self.monitored_until {
            return false;
        }
        self.let_time_pass(now);
        self.let_alpha_decay(now);
        let is_first = self.alpha_since.is_none();
        if self.has_increased || self.params.clamp_tgt_rate == 1 {
            self.target = self.rate;
        }
        self.rate = match self.params.rate_to_set_on_first_cnp {
            mbit if mbit > 0 && is_first => (mbit * MBIT).clamp(self.min_rate, self.rate),
            _ => self.cut(),
        };
        let gain = u64::from(1024 - self.params.dce_tcp_g);
        self.alpha = self.kept(self.alpha) + gain * (ONE / 1024);
        self.alpha_since = Some(now);
        self.increased_at = now;
        self.monitored_until = now + self.params.rate_reduce_monitor_period * US;
        self.bytes = 0;
        self.time_stage = 0;
        self.byte_stage = 0;
        self.has_increased = false;
        true
    }

    fn on_ack(&mut self, _now: Instant, _rtt: Option<u64>, _bytes: u64) {}

    fn on_loss(&mut self, _now: Instant) {}

    fn on_sent(&mut self, now: Instant, bytes: u64) {
        if self.rate >= self.max_rate || self.params.rpg_byte_reset == 0 {
            return;
        }
        self.let_time_pass(now);
        self.bytes += bytes;
        while self.bytes >= self.params.rpg_byte_reset {
            self.bytes -= self.params.rpg_byte_reset;
            self.byte_stage += 1;
            self.has_increased = true;
            self.increase();
        }
    }

    fn rate(&mut self, now: Instant) -> u64 {
        self.let_time_pass(now);
        self.rate
    }

    fn window(&self) -> Option<u64> {
        None
    }
}

impl State {
    /// The rate after a cut.
    fn cut(&self) -> u64 {
        // A rate has 40 bits, alpha 21.
        let taken = self.rate * (self.alpha >> (self.params.rpg_gd - 10)) / ONE;
        let least = self.rate * u64::from(self.params.rpg_min_dec_fac) / 100;
        (self.rate - taken).max(least).max(self.min_rate)
    }

    fn kept(&self, alpha: u64) -> u64 {
        alpha * u64::from(self.params.dce_tcp_g) / 1024
    }

    /// Alpha's timer, each time it has run out by `now`.
    fn let_alpha_decay(&mut self, now: Instant) {
        let Some(since) = self.alpha_since else { return };
        let elapsed = now.nanos().saturating_sub(since.nanos());
        for _ in 0..elapsed / (self.params.dce_tcp_rtt * US) {
            self.alpha = self.kept(self.alpha);
            // It decays no further, however much time has passed.
            if self.alpha == 0 {
                break;
            }
        }
    }

    /// The rate timer, each time it has run out by `now`, until the rate is back at its highest.
    fn let_time_pass(&mut self, now: Instant) {
        let period = self.params.rpg_time_reset * US;
        while self.rate < self.max_rate && self.increased_at + period <= now {
            self.increased_at = self.increased_at + period;
            self.time_stage += 1;
            self.has_increased |= self.params.clamp_tgt_rate_after_time_inc == 1;
            self.increase();
        }
    }

    fn increase(&mut self) {
        let threshold = self.params.rpg_threshold;
        let ahead = self.time_stage.max(self.byte_stage);
        let behind = self.time_stage.min(self.byte_stage);
        if behind > threshold {
            self.target += u64::from(behind - threshold) * self.params.rpg_hai_rate * MBIT;
        } else if ahead >= threshold {
            self.target += self.params.rpg_ai_rate * MBIT;
        }
        self.target = self.target.min(self.max_rate);
        // Upwards, or half of a gap of 1 would never be closed.
        self.rate = (self.target + self.rate).div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;
    const PATH: PathInfo = PathInfo { line_rate: 40 * GBIT, path_mtu: 4096 };

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * US)
    }

    /// After CNPs at 0 and 60 microseconds.
    fn cut_twice(params: &Params) -> State {
        let mut state = State::new(params, &PATH);
        assert!(state.on_cnp(at(0)));
        assert!(state.on_cnp(at(60)));
        state
    }

    #[test]
    fn the_first_cnp_halves_and_fast_recovery_halves_the_gap() {
        let mut state = State::new(&Params::paper(), &PATH);
        assert_eq!(state.rate(at(0)), 40 * GBIT);
        assert!(state.on_cnp(at(0)));
        assert_eq!((state.rate, state.target, state.alpha), (20 * GBIT, 40 * GBIT, ONE));
        for (us, mbit) in [(54, 20_000), (55, 30_000), (110, 35_000), (165, 37_500), (220, 38_750)]
        {
            assert_eq!(state.rate(at(us)), mbit * MBIT, "{us}");
        }
    }

    #[test]
    fn the_second_cut_is_of_the_decayed_alpha_and_additive_increase_follows_recovery() {
        let mut state = cut_twice(&Params::paper());
        // Alpha of 1020/1024 takes 510/1024 of 30 Gbit/s.
        assert_eq!((state.rate, state.target), (15_058_593_750, 30 * GBIT));
        assert_eq!(state.alpha, ONE * 1020 / 1024 * 1020 / 1024 + ONE * 4 / 1024);
        let rates = [
            22_529_296_875,
            26_264_648_438,
            28_132_324_219,
            29_066_162_110,
            // The fifth: the target is 40 Mbit/s more.
            29_553_081_055,
        ];
        for (step, rate) in (1u64..).zip(rates) {
            assert_eq!(state.rate(at(60 + 55 * step)), rate);
        }
        assert_eq!(state.target, 30_040 * MBIT);
    }

    #[test]
    fn hyper_increase_begins_when_both_counters_are_past_the_threshold() {
        let mut state = cut_twice(&Params::paper());
        for _ in 0..6 {
            state.on_sent(at(60), 10_000_000);
        }
        assert_eq!(state.target, 30_080 * MBIT, "additive at 5 and 6");
        state.rate(at(60 + 5 * 55));
        assert_eq!(state.target, 30_280 * MBIT, "additive while the timer is at 1 to 5");
        state.rate(at(60 + 6 * 55));
        assert_eq!(state.target, 30_480 * MBIT, "hyper, once");
        state.on_sent(at(60 + 6 * 55), 10_000_000);
        assert_eq!(state.target, 30_680 * MBIT, "still once: the timer is at 6");
        state.rate(at(60 + 7 * 55));
        assert_eq!(state.target, 31_080 * MBIT, "twice");
    }

    #[test]
    fn cnps_within_the_monitor_period_are_ignored() {
        let mut state = State::new(&Params::paper(), &PATH);
        assert!(state.on_cnp(at(0)));
        assert!(!state.on_cnp(at(49)));
        assert_eq!(state.rate, 20 * GBIT);
        assert!(state.on_cnp(at(50)));
        assert_eq!((state.rate, state.target), (10 * GBIT, 20 * GBIT));
    }

    #[test]
    fn each_parameter_of_a_cut_counts() {
        let first = |params: Params| {
            let mut state = State::new(&params, &PATH);
            state.on_cnp(at(0));
            state.rate
        };
        let paper = Params::paper;
        assert_eq!(first(Params { rpg_min_dec_fac: 75, ..paper() }), 30 * GBIT);
        assert_eq!(first(Params { rpg_min_dec_fac: 25, rpg_gd: 10, ..paper() }), 10 * GBIT);
        assert_eq!(first(Params { rpg_min_dec_fac: 25, ..paper() }), 20 * GBIT);
        assert_eq!(first(Params { rate_to_set_on_first_cnp: 7, ..paper() }), 7 * MBIT);
        assert_eq!(first(Params { initial_alpha_value: 512, ..paper() }), 30 * GBIT);
        assert_eq!(first(Params { rpg_min_rate: 25_000, ..paper() }), 25 * GBIT);
        assert_eq!(first(Params { rpg_max_rate: 1_000, ..paper() }), GBIT / 2);
    }

    #[test]
    fn without_clamping_the_target_stays_until_there_was_an_increase() {
        let params = Params { clamp_tgt_rate: 0, ..Params::paper() };
        let mut state = State::new(&params, &PATH);
        for us in [0, 50, 100] {
            assert!(state.on_cnp(at(us)));
            assert_eq!(state.target, 40 * GBIT);
        }
        assert_eq!(state.rate(at(155)), 22_500_000_000, "half of the way from 5 Gbit/s");
        assert!(state.on_cnp(at(155)));
        assert_eq!(state.target, 22_500_000_000);
    }

    #[test]
    fn the_rate_comes_back_to_the_line_rate_and_stays() {
        for params in [Params::paper(), Params::nvidia()] {
            let mut state = cut_twice(&params);
            assert_eq!(state.rate(at(10_000_000)), 40 * GBIT);
            assert!(state.on_cnp(at(10_000_001)));
            let expected = if params.dce_tcp_g == 1020 { 40 * GBIT } else { state.target };
            assert_eq!((state.rate, state.target), (expected, 40 * GBIT), "alpha has decayed");
        }
    }

    /// What should have happened happens at the next question, as if it had been asked always.
    #[test]
    fn asked_now_and_then_or_always_it_says_the_same() {
        for params in [Params::paper(), Params::nvidia()] {
            let mut always = State::new(&params, &PATH);
            let mut rarely = always.clone();
            let (mut random, mut now) = (1u64, 0);
            for _ in 0..500 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let next = now + (random >> 40) % 400;
                for us in now..=next {
                    always.rate(at(us));
                }
                now = next;
                if random >> 62 == 0 {
                    assert_eq!(always.on_cnp(at(now)), rarely.on_cnp(at(now)));
                } else {
                    let bytes = (random >> 33) % 3_000_000;
                    always.on_sent(at(now), bytes);
                    rarely.on_sent(at(now), bytes);
                }
                assert_eq!(always.rate(at(now)), rarely.rate(at(now)));
                assert_eq!((always.alpha, always.target), (rarely.alpha, rarely.target));
                assert!((MBIT..=40 * GBIT).contains(&always.rate));
            }
        }
    }
}
