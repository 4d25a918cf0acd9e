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
        write!(f, "{:>13}  {}", clock_text(self.at), self.text)
    }
}

/// A time of the target's clock, in milliseconds.
pub(super) fn clock_text(at: Duration) -> String {
    let micros = at.as_nanos() / 1000;
    format!("{}.{:03} ms", micros / 1000, micros % 1000)
}

/// How long something takes, as the language writes it: `100 ms`.
pub(super) fn time_text(time: Duration) -> String {
    let text = format!("{time:?}");
    let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    format!("{number} {}", unit.replace('µ', "u"))
}
