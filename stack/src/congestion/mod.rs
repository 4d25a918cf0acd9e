//! Congestion control (Annex A17.9, and what NICs do beyond it): how fast each QP may send.
//!
//! An algorithm is a [`Control`]: it is told what happens to a QP's packets, and says at which rate
//! it may send and how much may be outstanding. What is the same for all of them, ECN marks, CNPs
//! and pacing, is the business of `limiter`. `docs/congestion.md` tells how to add an algorithm.
//!
//! Nothing here holds a timer: whoever asks says what time it is, and what should have happened
//! since the last question happens then.

pub mod dcqcn;
#[cfg(test)]
pub mod example;
mod limiter;
mod parameters;
pub mod swift;
pub mod timely;

use std::fmt;
use std::str::FromStr;

use crate::time::Instant;

pub(crate) use limiter::{Half, Limiter};
pub use parameters::ParameterError;
pub(crate) use parameters::parameters;

/// An algorithm at work on one QP.
///
/// Whatever it is told, [`rate`](Control::rate) must not be 0, nor may it fall so low that a packet
/// outlasts the peer's ACK timeouts.
pub trait Control: Clone + fmt::Debug {
    /// What can be set.
    type Params;

    /// Whether it lives on round trips: then a request asks for an ACK whenever none is being
    /// measured, so that one is in each round trip, however slow the QP has become.
    const MEASURES_ROUND_TRIPS: bool;

    /// Before the first packet.
    fn new(params: &Self::Params, path: &PathInfo) -> Self;

    /// A CNP has come for this QP. Whether that changed anything.
    fn on_cnp(&mut self, now: Instant) -> bool;

    /// The peer has acknowledged `bytes` more (in whole path MTUs), or has answered so many.
    /// `rtt` is the time in nanoseconds between a packet that asked for the acknowledgement and its
    /// arrival; `None` if nothing was measured, or the packet had been sent more than once.
    fn on_ack(&mut self, now: Instant, rtt: Option<u64>, bytes: u64);

    /// Packets were lost: a sequence NAK, an answer that is missing, or an ACK timeout.
    fn on_loss(&mut self, now: Instant);

    /// A packet has left, `bytes` long with all its headers.
    fn on_sent(&mut self, now: Instant, bytes: u64);

    /// The rate at which this QP may send, in bit/s; from the line rate on, it is not limited.
    fn rate(&mut self, now: Instant) -> u64;

    /// Bytes it may have unacknowledged, if the algorithm limits that: rounded down to whole path
    /// MTUs, but at least one.
    fn window(&self) -> Option<u64>;
}

/// What an algorithm may want to know of a QP's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Rate of the link in bit/s.
    pub line_rate: u64,
    /// Path MTU in bytes.
    pub path_mtu: u32,
}

/// The present limits of one QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpRate {
    /// In bit/s.
    pub rate: u64,
    /// Bytes it may have unacknowledged, if its algorithm limits that.
    pub window: Option<u64>,
}

/// The enum of algorithms' parameters and that of their states, from one list of modules. Each has
/// a `Params`, and a `State` that is a [`Control`]. Sets of parameters have names beside theirs.
macro_rules! algorithms {
    (
        sets { $($named:literal: $Of:ident($params:expr),)* }
        $($(#[$doc:meta])* $Name:ident in $module:ident,)*
    ) => {
        /// Which algorithm, with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Algorithm {
            $($(#[$doc])* $Name($module::Params),)*
        }

        impl Algorithm {
            /// The names that [`Algorithm::named`] knows.
            pub const NAMES: &'static [&'static str] =
                &[$(stringify!($module),)* $($named,)*];

            /// The algorithm `name` with its default parameters, or with those of the name.
            pub fn named(name: &str) -> Option<Algorithm> {
                match name {
                    $(stringify!($module) => Some(Algorithm::$Name($module::Params::default())),)*
                    $($named => Some(Algorithm::$Of($params)),)*
                    _ => None,
                }
            }

            /// Its name, whatever its parameters.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Algorithm::$Name(_) => stringify!($module),)*
                }
            }

            /// Sets one of its parameters.
            ///
            /// # Errors
            /// If there is no such parameter, or the value is none it may have.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
                match self {
                    $(Algorithm::$Name(params) => params.set(name, value),)*
                }
            }

            /// Every parameter with its value.
            pub fn parameters(&self) -> Vec<(&'static str, u64)> {
                match self {
                    $(Algorithm::$Name(params) => params.iter().collect(),)*
                }
            }
        }

        /// An algorithm at work.
        #[derive(Clone, Debug)]
        enum State {
            $($Name($module::State),)*
        }

        impl State {
            fn new(algorithm: &Algorithm, path: &PathInfo) -> State {
                match algorithm {
                    $(Algorithm::$Name(params) => State::$Name(Control::new(params, path)),)*
                }
            }

            fn measures_round_trips(&self) -> bool {
                match self {
                    $(State::$Name(_) => <$module::State as Control>::MEASURES_ROUND_TRIPS,)*
                }
            }

            fn on_cnp(&mut self, now: Instant) -> bool {
                match self {
                    $(State::$Name(state) => state.on_cnp(now),)*
                }
            }

            fn on_ack(&mut self, now: Instant, rtt: Option<u64>, bytes: u64) {
                match self {
                    $(State::$Name(state) => state.on_ack(now, rtt, bytes),)*
                }
            }

            fn on_loss(&mut self, now: Instant) {
                match self {
                    $(State::$Name(state) => state.on_loss(now),)*
                }
            }

            fn on_sent(&mut self, now: Instant, bytes: u64) {
                match self {
                    $(State::$Name(state) => state.on_sent(now, bytes),)*
                }
            }

            fn rate(&mut self, now: Instant) -> u64 {
                match self {
                    $(State::$Name(state) => state.rate(now),)*
                }
            }

            fn window(&self) -> Option<u64> {
                match self {
                    $(State::$Name(state) => state.window(),)*
                }
            }
        }
    };
}

algorithms! {
    sets {
        "dcqcn-nvidia": Dcqcn(dcqcn::Params::nvidia()),
    }
    /// DCQCN: marks become CNPs, CNPs cut the rate.
    Dcqcn in dcqcn,
    /// Swift: the round-trip time decides how much may be outstanding.
    Swift in swift,
    /// TIMELY: how fast round-trip times grow decides the rate.
    Timely in timely,
}

parameters! {
    /// How a device controls congestion.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// Rate of the link in bit/s: no QP is held to more, and one held to that is not held. 0:
        /// that of the device's link ([`Config::on_link`]).
        line_rate: u64 = 1_000_000..=1_000_000_000_000 or 0,
        /// Nanoseconds between two CNPs that one QP sends, at least.
        min_time_between_cnps: u64 = 0..=1_000_000_000,
        /// DSCP of CNPs.
        cnp_dscp: u8 = 0..=63,
        /// Priority of CNPs on a VLAN.
        cnp_802p_prio: u8 = 0..=7,
        /// Bytes a QP may send at once that has not sent for a while; never less than two packets
        /// of the path MTU.
        burst: u32 = 0..=1_073_741_824,
    }
    with {
        /// What decides the rate.
        algorithm: Algorithm,
    }
}

impl Config {
    /// `algorithm` on a link of `line_rate` bit/s; CNPs as NICs send them, 50 microseconds apart.
    pub fn new(algorithm: Algorithm, line_rate: u64) -> Config {
        Config {
            algorithm,
            line_rate,
            min_time_between_cnps: 50_000,
            cnp_dscp: 48,
            cnp_802p_prio: 6,
            burst: 0,
        }
    }

    /// Rate of the link where nobody says: 10 Gbit/s.
    pub const DEFAULT_LINE_RATE: u64 = 10_000_000_000;

    /// The same on a link of `rate` bit/s, if that is known: unless a `line_rate` is set, it is
    /// that, or else [`Config::DEFAULT_LINE_RATE`].
    #[must_use]
    pub fn on_link(mut self, rate: Option<u64>) -> Config {
        if self.line_rate == 0 {
            self.line_rate = rate.filter(|rate| *rate > 0).unwrap_or(Config::DEFAULT_LINE_RATE);
        }
        self.clamped()
    }
}

/// `dcqcn,line_rate=25000000000,rpg_ai_rate=40`: an algorithm, then parameters of its own and of
/// [`Config`], each in the unit of its field. Without a `line_rate` that is 0, the link's.
impl FromStr for Config {
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Config, ParameterError> {
        let mut words = text.split(',').map(str::trim);
        let name = words.next().unwrap_or_default();
        let unknown = || ParameterError::Algorithm(name.to_owned(), Algorithm::NAMES.to_vec());
        let algorithm = Algorithm::named(name).ok_or_else(unknown)?;
        let mut config = Config::new(algorithm, 0);
        for word in words {
            let syntax = || ParameterError::Syntax(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(syntax)?;
            let name = name.trim();
            if Config::NAMES.contains(&name) {
                config.set(name, value)?;
                continue;
            }
            config.algorithm.set(name, value).map_err(|error| match error {
                ParameterError::Unknown(name, mut names) => {
                    names.extend(Config::NAMES);
                    ParameterError::Unknown(name, names)
                }
                other => other,
            })?;
        }
        Ok(config)
    }
}

/// As it is read, with every parameter.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        for (name, value) in self.iter().chain(self.algorithm.parameters()) {
            write!(f, ",{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_set_by_its_name_and_told_again() {
        let config: Config =
            "dcqcn, line_rate=25000000000,rpg_ai_rate=5,cnp_dscp=46,burst=65536".parse().unwrap();
        let params = dcqcn::Params { rpg_ai_rate: 5, ..dcqcn::Params::paper() };
        let expected = Config {
            cnp_dscp: 46,
            burst: 65536,
            ..Config::new(Algorithm::Dcqcn(params), 25_000_000_000)
        };
        assert_eq!(config, expected);
        for name in Algorithm::NAMES {
            let config: Config = name.parse().unwrap();
            assert_eq!(config.to_string().parse(), Ok(config.clone()));
            for (name, value) in config.algorithm.parameters() {
                assert_eq!(config.algorithm.clone().set(name, &value.to_string()), Ok(()));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        let table = [
            ("cubic", "no algorithm 'cubic'; there are dcqcn, "),
            ("dcqcn,rpg_ai_rate", "'rpg_ai_rate' is not NAME=VALUE"),
            ("dcqcn,rpg_gd=12", "rpg_gd is a whole number from 10 to 11"),
            ("swift,beta=x", "beta is a whole number from 1 to 1000"),
            ("swift,line_rate=25", "line_rate is a whole number from 1000000 to "),
            ("swift,cnp_dscp=64", "cnp_dscp is a whole number from 0 to 63"),
            ("swift,rpg_gd=10", "no parameter 'rpg_gd'; there are base_target_delay, fs_range"),
        ];
        for (text, expected) in table {
            let error = text.parse::<Config>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_set_of_parameters_has_a_name_and_each_may_be_another_in_any_order() {
        let config: Config = "dcqcn-nvidia".parse().unwrap();
        assert_eq!(config.algorithm, Algorithm::Dcqcn(dcqcn::Params::nvidia()));
        let params = dcqcn::Params { rpg_ai_rate: 7, ..dcqcn::Params::nvidia() };
        for text in ["burst=9,rpg_ai_rate=7", "rpg_ai_rate=7,burst=9"] {
            let config: Config = format!("dcqcn-nvidia,{text}").parse().unwrap();
            assert_eq!(config.algorithm, Algorithm::Dcqcn(params.clone()));
            // Told with all parameters, it needs the name no more.
            assert_eq!(config.to_string().parse(), Ok(config));
        }
        // The name comes first, as nothing else does.
        let error = "rpg_ai_rate=7,dcqcn-nvidia".parse::<Config>().unwrap_err().to_string();
        assert!(error.starts_with("no algorithm 'rpg_ai_rate=7'"), "{error}");
        let error = "dcqcn,dcqcn-nvidia".parse::<Config>().unwrap_err().to_string();
        assert_eq!(error, "'dcqcn-nvidia' is not NAME=VALUE");
    }

    /// The algorithm that the guide adds is compiled here, where one that is added stands.
    #[test]
    fn the_guide_has_the_example_word_for_word() {
        let guide = include_str!("../../../docs/congestion.md");
        assert!(guide.contains(include_str!("example.rs")));
    }

    #[test]
    fn every_algorithm_leaves_a_rate_whatever_comes_and_however_long_nothing_does() {
        const HOUR: u64 = 3_600_000_000_000;
        let path = PathInfo { line_rate: 10_000_000_000, path_mtu: 4096 };
        for name in Algorithm::NAMES {
            let mut state = State::new(&Algorithm::named(name).unwrap(), &path);
            let mut now = Instant::ZERO;
            let mut seed = 1u64;
            for _ in 0..20_000 {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let chance = (seed >> 33) as usize;
                now = now + [0, 1, 1_000, 50_000, 1_000_000, HOUR][chance % 6];
                let rtt = [0, 10_000, 60_000, 1_000_000, u64::MAX][chance / 6 % 5];
                match chance / 30 % 6 {
                    0 => _ = state.on_cnp(now),
                    1 => state.on_loss(now),
                    2 => state.on_ack(now, None, 4096),
                    3 => state.on_ack(now, Some(rtt), 65_536),
                    _ => state.on_sent(now, 4_200),
                }
                assert!(state.rate(now) >= 1_000_000, "{name}");
            }
        }
    }

    #[test]
    fn a_line_rate_that_is_not_set_is_that_of_the_link() {
        let of = |text: &str, rate| text.parse::<Config>().unwrap().on_link(rate).line_rate;
        assert_eq!(of("dcqcn", Some(25_000_000_000)), 25_000_000_000);
        assert_eq!(of("dcqcn", None), Config::DEFAULT_LINE_RATE);
        assert_eq!(of("dcqcn,line_rate=0", None), Config::DEFAULT_LINE_RATE);
        assert_eq!(of("dcqcn,line_rate=40000000000", Some(25_000_000_000)), 40_000_000_000);
        // A link may say anything.
        let bounded = |rate| of("swift", Some(rate));
        assert_eq!([1, u64::MAX].map(bounded), [1_000_000, 1_000_000_000_000]);
        // As a device takes it that nobody has told of a link.
        assert_eq!("swift".parse::<Config>().unwrap().clamped().line_rate, 0);
    }

    #[test]
    fn values_out_of_bounds_are_brought_within() {
        let params = dcqcn::Params { rpg_time_reset: 0, rpg_gd: 60, ..dcqcn::Params::paper() };
        let clamped = params.clamped();
        assert_eq!((clamped.rpg_time_reset, clamped.rpg_gd), (1, 11));
    }
}
