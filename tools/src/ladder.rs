//! `ferroce decode --ladder`: gathers what a capture holds for the picture, and writes it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use ferroce_ladder::{Axis, Event, Fate, Mark, Note, Options, PACKETS_MAX};

use crate::capture::Frame;
use crate::link::{self, Carried};
use crate::packet::{Address, Packet};
use crate::verify::{Finding, Kind, Report};

/// Bytes of a frame that are kept: headers, and a whole management datagram.
const FRAME_MAX: usize = 512;
/// Frames kept of those from which `--flow` will choose at the end.
const HELD_MAX: usize = 100_000;

/// What of a capture is drawn, and where to.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Ladder diagram")]
pub struct Arguments {
    /// Draw the packets as arrows between the two ends, to a file by its suffix
    #[arg(long, value_name = "OUT.svg|OUT.html", value_parser = output)]
    pub ladder: Option<Output>,
    /// Draw only flows from or to these QPs (0x11 or 17)
    #[arg(long, value_name = "QP", value_delimiter = ',', requires = "ladder", value_parser = qpn)]
    pub flow: Vec<u32>,
    /// Draw only these frames, by their numbers, both included
    #[arg(long, value_name = "A..B", requires = "ladder", value_parser = numbers)]
    pub ladder_packets: Option<RangeInclusive<u64>>,
    /// What the way down means: even steps, or time with long silence cut out
    #[arg(long, value_name = "AXIS", default_value = "order", requires = "ladder")]
    pub by: By,
}

impl Arguments {
    /// How to draw what is chosen of a capture called `title`.
    pub fn options(&self, title: &str) -> Options {
        let axis = match self.by {
            By::Order => Axis::Order,
            By::Time => Axis::Time,
        };
        Options {
            title: String::from(title),
            qps: self.flow.clone(),
            numbers: self.ladder_packets.clone(),
            axis,
            ..Options::default()
        }
    }
}

/// What the way down means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Even steps
    Order,
    /// Steps as long as the time between
    Time,
}

/// A file to write, and in what format.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    html: bool,
}

/// Reads the name of a file to draw to.
///
/// # Errors
/// What is wrong with it, in words: it does not say in what format.
pub fn output(text: &str) -> Result<Output, String> {
    let path = PathBuf::from(text);
    let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
    match suffix.to_ascii_lowercase().as_str() {
        "svg" => Ok(Output { path, html: false }),
        "html" => Ok(Output { path, html: true }),
        _ => Err(String::from("a ladder is drawn as .svg or .html; the name ends in neither")),
    }
}

fn qpn(text: &str) -> Result<u32, String> {
    const QPN_MAX: u32 = 0x00ff_ffff;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().filter(|&qpn| qpn <= QPN_MAX).ok_or_else(|| {
        String::from("a QP number is 0 to 16777215, in decimal or as 0x and hexadecimal")
    })
}

fn numbers(text: &str) -> Result<RangeInclusive<u64>, String> {
    let range = text.split_once("..").and_then(|(first, last)| {
        let first = if first.is_empty() { 1 } else { first.parse().ok()? };
        let last = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
        (first <= last).then_some(first..=last)
    });
    range.ok_or_else(|| String::from("frames are chosen as in 10..20, 10.. or ..20"))
}

/// Gathers the packets of a picture.
#[derive(Debug)]
pub struct Recorder {
    options: Options,
    events: Vec<Event>,
    /// Of each event who exchanged it, and the QPN of the receiver.
    ways: Vec<Option<Way>>,
    /// Indices of events, by their frames.
    by_frame: HashMap<u64, usize>,
    /// Native InfiniBand packets, which are not drawn.
    native: u64,
}

/// From whom to which QP of whom.
type Way = (Address, Address, u32);

impl Recorder {
    /// A recorder for a picture drawn in this way.
    pub fn new(options: Options) -> Recorder {
        Recorder {
            // The verifier tells a request sent again from a PSN used again.
            options: Options { find_repeats: false, ..options },
            events: Vec::new(),
            ways: Vec::new(),
            by_frame: HashMap::new(),
            native: 0,
        }
    }

    /// Takes a frame sent `at` since the start that holds `packet`, or is malformed.
    pub fn frame(&mut self, frame: &Frame, packet: Option<&Packet<'_>>, at: Duration) {
        let bytes = match link::carried(frame.link_type, &frame.bytes) {
            Carried::Ethernet(bytes) => bytes,
            Carried::InfiniBand(_) => {
                self.native += 1;
                return;
            }
            Carried::Other => return,
        };
        let wanted = self.options.numbers.as_ref();
        if wanted.is_some_and(|numbers| !numbers.contains(&frame.index)) {
            self.options.unselected += 1;
            return;
        }
        let room = if self.options.qps.is_empty() { PACKETS_MAX } else { HELD_MAX };
        if self.events.len() >= room {
            self.options.left_out += 1;
            return;
        }
        let kept = bytes.len().min(FRAME_MAX);
        let mut event = Event::new(frame.index, at, bytes[..kept].to_vec());
        event.cut = kept < bytes.len() || (frame.bytes.len() as u64) < frame.original_len.into();
        self.by_frame.insert(frame.index, self.events.len());
        self.events.push(event);
        self.ways.push(packet.map(|packet| (packet.src, packet.dst, packet.bth.dest_qp)));
    }

    /// Takes what following the connections has brought to light.
    pub fn finding(&mut self, finding: &Finding) {
        let Some(&index) = self.by_frame.get(&finding.frame) else { return };
        let event = &mut self.events[index];
        let mark = match finding.kind {
            // The packet says so itself.
            Kind::SequenceNak | Kind::RnrNak | Kind::Nak | Kind::Cnp => return,
            Kind::BadIcrc => {
                event.fate = Fate::Damaged { at: None };
                Mark::Violation
            }
            Kind::DuplicateFrame => {
                event.fate = Fate::Duplicate { at: None };
                Mark::Plain
            }
            _ if finding.violation => Mark::Violation,
            Kind::Gap | Kind::ResponseGap => Mark::Missing,
            Kind::Retransmission | Kind::ReadResume | Kind::DuplicateResponse => Mark::Again,
            _ => Mark::Plain,
        };
        let kind = finding.kind.name().replace('_', " ");
        let text = match finding.kind {
            // How it is drawn says what kind it is.
            Kind::Gap | Kind::Retransmission | Kind::ReadResume => finding.detail.clone(),
            _ => format!("{kind}: {}", finding.detail),
        };
        event.notes.push(Note { mark, text });
    }

    /// The events and how to draw them, once the capture has ended.
    pub fn finish(mut self, report: &Report) -> (Vec<Event>, Options) {
        report.unattached.iter().for_each(|finding| self.finding(finding));
        let mut senders: HashMap<(String, String, u32), u32> = HashMap::new();
        for flow in &report.flows {
            let Some(src_qp) = flow.src_qp else { continue };
            let (src, dst) = (flow.src.clone(), flow.dst.clone());
            senders.entry((dst.clone(), src.clone(), src_qp)).or_insert(flow.dest_qp);
            senders.entry((src, dst, flow.dest_qp)).or_insert(src_qp);
        }
        for (event, way) in self.events.iter_mut().zip(&self.ways) {
            event.source_qp = way.and_then(|(src, dst, dest_qp)| {
                senders.get(&(src.to_string(), dst.to_string(), dest_qp)).copied()
            });
        }
        if !report.findings.is_empty() {
            let found: Vec<String> = report
                .findings
                .iter()
                .map(|(kind, count)| format!("{} {count}", kind.replace('_', " ")))
                .collect();
            self.options.remarks.push(format!("found in the capture: {}", found.join(", ")));
        }
        if self.native > 0 {
            let text = format!("{} native InfiniBand packets are not drawn", self.native);
            self.options.remarks.push(text);
        }
        (self.events, self.options)
    }
}

/// Draws a picture into its file. What the file held before stays until the picture is whole.
///
/// # Errors
///
/// If the file, or the one beside it that takes its place, cannot be written.
pub fn write(output: &Output, events: &[Event], options: &Options) -> Result<()> {
    let text = match output.html {
        true => ferroce_ladder::html(events, options),
        false => ferroce_ladder::svg(events, options),
    };
    replace(&output.path, text.as_bytes())
        .with_context(|| format!("cannot write {}", output.path.display()))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let written = File::create_new(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Nothing may be there to remove.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_the_suffix() {
        assert!(output("a.b/c.SVG").is_ok_and(|output| !output.html));
        assert!(output("c.html").is_ok_and(|output| output.html));
        assert!(
            output("c.png").is_err() && output("svg").is_err() && output("/dev/stdout").is_err()
        );
    }

    #[test]
    fn qps_and_frames_are_numbers_in_bounds() {
        assert_eq!((qpn("0x11"), qpn("17")), (Ok(17), Ok(17)));
        assert!(qpn("0x1000000").is_err() && qpn("-1").is_err() && qpn("").is_err());
        assert_eq!(numbers("3..5"), Ok(3..=5));
        assert_eq!(numbers("3.."), Ok(3..=u64::MAX));
        assert_eq!(numbers("..5"), Ok(1..=5));
        assert!(numbers("5..3").is_err() && numbers("5").is_err() && numbers("a..b").is_err());
    }
}
