//! What a file says, made into a [`Plan`].
//!
//! `docs/sim.md` describes the file. Whatever is wrong with it is told with the file, the line, the
//! key and what would be right.

mod build;
mod congestion;
pub(crate) mod document;
pub mod error;
mod networks;
mod plots;
pub(crate) mod schema;
mod switches;
pub(crate) mod units;
mod words;

use crate::plan::Plan;
use crate::topology::Network;

pub use document::{Document, Setting};
pub use error::{ConfigError, Place};

/// What a file says.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What is simulated.
    pub plan: Plan,
    /// Its topology with the names of nodes and ports.
    pub network: Network,
    /// Rates and means are taken from here on, in nanoseconds.
    pub warmup: u64,
    /// What is right, and may not be meant.
    pub notes: Vec<String>,
    /// How it is drawn.
    pub plots: Plots,
}

/// How plots of a run, or of a sweep, are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plots {
    /// Ports whose queues are drawn, as numbered in [`Outcome::ports`](crate::Outcome::ports);
    /// empty: the busiest.
    pub ports: Vec<usize>,
    /// The first nanosecond of plots over time.
    pub from: u64,
    /// The last one; `None`: the end.
    pub until: Option<u64>,
    /// Pixels a plot is wide.
    pub width: u32,
}

/// What a file says of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepSpec {
    /// How many seeds, from the file's on.
    pub seeds: Option<u64>,
    /// Keys, and the values each takes in turn, as [`Setting`]s have them.
    pub axes: Vec<(String, Vec<String>)>,
    /// The metrics to be drawn.
    pub plot: Vec<String>,
    /// The key it is drawn against.
    pub against: Option<String>,
}
