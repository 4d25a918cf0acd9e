//! A run as files: tables, numbers, plots, captures.
//!
//! Nothing in them depends on the machine, the clock or the number of threads: the same file and
//! seed give the same bytes.

mod capture;
pub mod csv;
pub mod flows;
mod folder;
pub mod ideal;
pub mod stats;
pub mod summary;
mod warnings;

use std::io;

use crate::config::Experiment;
use crate::outcome::Outcome;
use crate::plot::figures;

pub use folder::Folder;
pub use summary::Summary;
pub use warnings::warnings;

/// What was simulated, and what came out.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The name of the file, without its extension.
    pub name: &'a str,
    /// What was set beside it, as `KEY=VALUE`.
    pub set: &'a [String],
    /// What was simulated.
    pub experiment: &'a Experiment,
    /// What came out.
    pub outcome: &'a Outcome,
}

impl Run<'_> {
    /// The run in numbers.
    pub fn summary(&self) -> Summary {
        Summary::of(self, &flows::figures(self))
    }

    /// Writes every file of the run, and returns it in numbers.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Folder) -> io::Result<Summary> {
        let flows = flows::figures(self);
        let summary = Summary::of(self, &flows);
        folder.write("flows.csv", |out| csv::write_flows(self, &flows, out))?;
        folder.write("ports.csv", |out| csv::write_ports(self, out))?;
        folder.write("samples.csv", |out| csv::write_samples(self, out))?;
        folder.write("summary.json", |out| write_json(&summary, out))?;
        for (name, chart) in figures::of_run(self, &flows) {
            folder.write(&format!("{name}.svg"), |out| out.write_all(chart.svg().as_bytes()))?;
        }
        capture::write(self, folder)?;
        Ok(summary)
    }
}

/// Writes a value as JSON with indentation, and a line end.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_json(value: &impl serde::Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
