//! Captures of ports.

use std::io;

use ferroce::frame::pcap::Recorder;
use ferroce_stack::time::Instant;

use super::{Folder, Run};

/// A pcapng of each port that is captured: what it sends is of interface `node0`, as it is before
/// faults of the link strike; what it receives of `node1`, as it is behind them.
///
/// # Errors
/// If one cannot be written.
pub(super) fn write(run: &Run<'_>, folder: &Folder) -> io::Result<()> {
    let experiment = run.experiment;
    for port in &experiment.plan.captures {
        let name = experiment.network.port(*port).replace([':', '#'], "-");
        let mut recorder = Recorder::create(&folder.path().join(format!("{name}.pcapng")), 2)?;
        for captured in run.outcome.captures.iter().filter(|frame| frame.port == *port) {
            let node = usize::from(captured.came_in);
            recorder.record(Instant::from_nanos(captured.at), node, &captured.frame);
        }
        recorder.finish()?;
    }
    Ok(())
}
