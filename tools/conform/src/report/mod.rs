//! What is told of scenarios that were carried out: to people, to programs, and as evidence.

mod evidence;
mod json;
mod junit;
mod text;

use std::collections::BTreeMap;

pub use evidence::write_evidence;
pub use json::{case_json, summary_json};
pub use junit::Junit;
use text::is_shown;
pub use text::{explain, write_totals};

use crate::session::{Judged, Status};

/// How many scenarios ended how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    counts: [usize; Status::ALL.len()],
    tags: BTreeMap<String, [usize; Status::ALL.len()]>,
    /// Scenarios that passed although they were expected to fail.
    pub unexpected: Vec<String>,
}

impl Totals {
    /// Counts a scenario.
    pub fn count(&mut self, judged: &Judged<'_>) {
        let status = judged.status();
        self.counts[status as usize] += 1;
        for tag in &judged.case.scenario.tags {
            self.tags.entry(tag.value.clone()).or_default()[status as usize] += 1;
        }
        if status == Status::Passed && judged.known.is_some() {
            self.unexpected.push(judged.case.name.clone());
        }
    }

    /// How many ended so.
    pub fn of(&self, status: Status) -> usize {
        self.counts[status as usize]
    }

    /// How many there were.
    pub fn all(&self) -> usize {
        self.counts.iter().sum()
    }
}
