//! Captures of links.

use std::io;

use ferroce::frame::pcap::Recorder;
use ferroce_stack::time::Instant;

use super::{Folder, Run};

/// A pcapng of each link that is captured, both ways: what leaves its first end is of interface
/// `node0`, what leaves the other of `node1`.
///
/// # Errors
/// If one cannot be written.
pub(super) fn write(run: &Run<'_>, folder: &Folder) -> io::Result<()> {
    let experiment = run.experiment;
    for link in &experiment.plan.captures {
        let name = experiment.network.port(2 * link).replace([':', '#'], "-");
        let mut recorder = Recorder::create(&folder.path().join(format!("{name}.pcapng")), 2)?;
        for captured in run.outcome.captures.iter().filter(|frame| frame.port / 2 == *link) {
            recorder.record(Instant::from_nanos(captured.at), captured.port % 2, &captured.frame);
        }
        recorder.finish()?;
    }
    Ok(())
}
