//! What a file says, made into a [`Plan`].
//!
//! `docs/sim.md` describes the file. Whatever is wrong with it is told with the file, the line, the
//! key and what would be right.

mod build;
mod congestion;
pub(crate) mod document;
pub mod error;
mod networks;
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
