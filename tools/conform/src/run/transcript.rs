//! What happened in a scenario, in order, in the words of the language.

use std::fmt;
use std::time::Duration;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The peer, which the script plays.
    Peer,
    /// The implementation that is judged.
    Target,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, since the scenario began.
    pub at: Duration,
    /// Whose doing it was.
    pub side: Side,
    /// What, as a sentence of the language.
    pub text: String,
    /// The frame, from its Ethernet header to the ICRC, if it was one.
    pub frame: Option<Vec<u8>>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.at.as_nanos() / 1000;
        write!(f, "{:>6}.{:03} ms  {}", micros / 1000, micros % 1000, self.text)
    }
}
