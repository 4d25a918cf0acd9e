//! What a failed scenario leaves behind: its report, its frames, and a drawing of them.

use std::path::{Path, PathBuf};
use std::{fs, io};

use ferroce::frame::pcap::Recorder;
use ferroce_ladder::{Event, Mark, Note, Options};
use ferroce_stack::time::Instant;

use crate::frame::Difference;
use crate::run::{Entry, Failure, Side, Verdict};
use crate::session::Judged;

use super::{explain, is_shown};

/// Writes the evidence of a scenario to a folder, which is made, and says which files there are: the
/// whole transcript as text; the frames as pcapng, in which interface 0 is the peer's and 1 the
/// target's; and a ladder diagram of them.
///
/// # Errors
/// If a file cannot be written.
pub fn write_evidence(folder: &Path, judged: &Judged<'_>) -> io::Result<Vec<PathBuf>> {
    let base = folder.join(&judged.case.name);
    if let Some(parent) = base.parent() {
        fs::create_dir_all(parent)?;
    }
    let transcript = &judged.outcome.transcript;
    let mut text = explain(judged);
    // The report shows only the last ones, and none that came later.
    if !is_shown(judged) {
        text += "everything that happened:\n";
        text.extend(transcript.iter().map(|entry| format!("    {entry}\n")));
    }
    let files = ["txt", "pcapng", "svg"].map(|extension| base.with_added_extension(extension));
    let [report, capture, ladder] = &files;
    fs::write(report, text)?;
    write_frames(capture, transcript)?;
    fs::write(ladder, draw(judged))?;
    Ok(files.into())
}

fn write_frames(path: &Path, transcript: &[Entry]) -> io::Result<()> {
    let mut recorder = Recorder::create(path, 2)?;
    for entry in transcript {
        let Some(frame) = &entry.frame else { continue };
        let node = match entry.side {
            Side::Peer => 0,
            Side::Target => 1,
        };
        recorder.record(Instant::from_nanos(entry.at.as_nanos() as u64), node, frame);
    }
    recorder.finish().map(drop)
}

/// The frames as a ladder diagram. What else happened stands beside the frame before it.
fn draw(judged: &Judged<'_>) -> String {
    let transcript = &judged.outcome.transcript;
    let failure = match &judged.outcome.verdict {
        Verdict::Failed(failure) => Some(failure),
        _ => None,
    };
    let mut events: Vec<Event> = Vec::new();
    for (index, entry) in transcript.iter().enumerate() {
        match &entry.frame {
            Some(frame) => {
                let number = events.len() as u64 + 1;
                events.push(Event::new(number, entry.at, frame.clone()));
            }
            None => {
                if let Some(event) = events.last_mut() {
                    event.notes.push(Note::plain(&entry.text));
                }
            }
        }
        let wrong = failure.filter(|failure| is_cause(failure, index, entry));
        if let (Some(failure), Some(event)) = (wrong, events.last_mut()) {
            event.notes.push(Note { mark: Mark::Violation, text: failure.problem.clone() });
            event.notes.extend(failure.differences.iter().map(
                |Difference { field, expected, got }| {
                    Note::plain(format!("{field}: expected {expected}, got {got}"))
                },
            ));
        }
    }
    let mut remarks = vec![judged.case.scenario.title.clone()];
    remarks.extend(failure.map(|failure| format!("line {}: {}", failure.line, failure.problem)));
    let title = judged.case.name.clone();
    ferroce_ladder::svg(&events, &Options { title, remarks, ..Options::default() })
}

/// Whether an entry is what came instead of what was expected.
fn is_cause(failure: &Failure, index: usize, entry: &Entry) -> bool {
    index < failure.before && failure.got.as_ref() == Some(&entry.text)
}
