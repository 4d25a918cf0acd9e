//! `ferroce decode`: says what every packet of a capture is, and whether it is right.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal, LineWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::capture::{Capture, Damage, Frame};
use crate::ladder::{self, Recorder};
use crate::packet::{self, Icrc, NonRoce, Packet};
use crate::verify::{Finding, Report, Verifier};
use crate::view::{self, PacketView, style};

/// Shown below `ferroce decode --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce decode traffic.pcap                     one line a packet
  ferroce decode --verify traffic.pcapng          follow each connection, judge it
  ferroce decode --json traffic.pcap | jq 'select(.psn == 7)'
  ferroce decode --json --verify traffic.pcap | tail -1 | jq .summary.flows
  ferroce decode traffic.pcap --ladder traffic.svg
  ferroce decode traffic.pcap --ladder traffic.html --flow 0x11,0x12 --by time
  ferroce decode traffic.pcap --ladder part.svg --ladder-packets 100..150
  tcpdump -U -w - udp port 4791 | ferroce decode /dev/stdin

A line of text: number of the frame, seconds since the first one, sender >
receiver, opcode, destination QP, PSN, and what the other headers say. After the
last packet come totals, and with --verify what was found on each flow: the
requests of one QP to another, and the responses to them.

--verify shows events, which a lossy network explains (gap, retransmission, NAK),
and violations, which nothing does (a wrong ICRC, a resend that differs). A
capture may begin within a connection and miss frames: what these may explain,
such as an ACK for what was never sent, is judged at the end, by whether the
capture shows other signs of missing some. With --complete it is taken to hold
every frame, so that what it lacks is a violation.

JSON: an object a line for each RoCE packet, then {\"summary\": ...}. `time` is a
number of seconds since 1970 with nine decimals (a reader that makes it a double
keeps a quarter of a microsecond); what has 64 bits (addresses, atomic operands)
is hexadecimal text. With --verify, packets that have any carry `findings`;
`summary.unattached` holds those of frames not shown, or judged at the end.

--ladder draws the ends as columns and each packet as an arrow, with what --verify
finds: what was lost, sent again, refused. An HTML page also has every header
field, and flows to switch on and off; it needs nothing but itself. A picture has
at most 2,000 packets and says how many it leaves out. Lines of text come only
with --verify or --json as well.

Exit status: 0 no violation, 1 violations found (with --verify), 2 the arguments
are wrong, the file could not be read at all, or the output could not be written.
A file that is damaged further on is read up to there; the summary says where.";

/// Say what every RoCE packet of a capture is, and whether it is right.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Capture to read: pcap or pcapng, of Ethernet, Linux cooked, raw IP or ERF frames
    #[arg(value_name = "FILE.pcap[ng]")]
    file: PathBuf,
    /// Write JSON, an object a line
    #[arg(long)]
    json: bool,
    /// Follow each connection and report what broke the protocol
    #[arg(long)]
    verify: bool,
    /// The capture holds every frame sent: what it lacks is a violation
    #[arg(long, requires = "verify")]
    complete: bool,
    #[command(flatten)]
    ladder: ladder::Arguments,
}

/// How a decoded file turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No violation found, or none looked for.
    Clean,
    /// Violations found.
    Violations,
}

/// What was in the file, all in all.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// Frames read.
    frames: u64,
    /// RoCE packets among them, native InfiniBand included.
    roce: u64,
    /// All else.
    non_roce: BTreeMap<&'static str, u64>,
    icrc: IcrcCounts,
    /// Where the file is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<DamageView>,
    #[serde(flatten)]
    report: Option<Report>,
}

#[derive(Debug, Default, Serialize)]
struct IcrcCounts {
    ok: u64,
    bad: u64,
    truncated: u64,
}

#[derive(Debug, Serialize)]
struct DamageView {
    offset: u64,
    after_frame: u64,
    reason: String,
}

/// Runs `ferroce decode`.
///
/// # Errors
///
/// If the file cannot be read at all, or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let capture = Capture::open(&arguments.file)?;
    let options =
        Options { json: arguments.json, verify: arguments.verify, complete: arguments.complete };
    let output = arguments.ladder.ladder.as_ref();
    let mut out = output_for(output.is_none() || arguments.json || arguments.verify);
    let recorder = output.map(|_| {
        let name = arguments.file.file_name().unwrap_or(arguments.file.as_os_str());
        Recorder::new(arguments.ladder.options(&name.to_string_lossy()))
    });
    let decoded = decode_into(capture, options, recorder, &mut *out).and_then(|decoded| {
        out.flush()?;
        Ok(decoded)
    });
    if let (Ok((_, Some((events, options)))), Some(output)) = (&decoded, output) {
        ladder::write(output, events, options)?;
    }
    match decoded.map(|(summary, _)| summary) {
        // Whoever reads (`head`) has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Outcome::Clean),
        Err(error) => Err(error).context("cannot write"),
        Ok(summary) => {
            if let Some(DamageView { offset, after_frame, reason }) = &summary.damage {
                let file = arguments.file.display();
                let place = format!("at byte {offset}, after frame {after_frame}");
                // Nobody may be there to be told.
                let _ = writeln!(io::stderr(), "ferroce: {file}: damaged {place}: {reason}");
            }
            Ok(summary.outcome())
        }
    }
}

/// Where lines go: nowhere unless they are `wanted`.
fn output_for(wanted: bool) -> Box<dyn Write> {
    let stdout = anstream::AutoStream::auto(io::stdout().lock());
    // A person who watches wants each line at once; a file wants blocks.
    match io::stdout().is_terminal() {
        _ if !wanted => Box::new(io::sink()),
        true => Box::new(LineWriter::new(stdout)),
        false => Box::new(BufWriter::new(stdout)),
    }
}

/// How to decode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// JSON, not text.
    pub json: bool,
    /// Follow connections.
    pub verify: bool,
    /// Take the capture to hold every frame.
    pub complete: bool,
}

/// Decodes a capture to `out`.
///
/// # Errors
///
/// If `out` cannot be written.
pub fn decode(capture: Capture, options: Options, out: &mut dyn Write) -> io::Result<Summary> {
    decode_into(capture, options, None, out).map(|(summary, _)| summary)
}

/// What a ladder is drawn from.
type Drawing = (Vec<ferroce_ladder::Event>, ferroce_ladder::Options);

/// Decodes a capture to `out`, and to `recorder` for a ladder, whose drawing is returned.
///
/// # Errors
///
/// If `out` cannot be written.
pub fn decode_into(
    capture: Capture,
    options: Options,
    recorder: Option<Recorder>,
    out: &mut dyn Write,
) -> io::Result<(Summary, Option<Drawing>)> {
    let follows = options.verify || recorder.is_some();
    let mut decoder = Decoder {
        options,
        verifier: follows.then(|| Verifier::new(options.complete)),
        recorder,
        summary: Summary::new(),
        unattached: Vec::new(),
        start_ns: None,
    };
    for frame in capture {
        match frame {
            Ok(frame) => decoder.frame(&frame, out)?,
            Err(damage) => decoder.summary.damage = Some(DamageView::from(damage)),
        }
    }
    decoder.finish(out)
}

struct Decoder {
    options: Options,
    verifier: Option<Verifier>,
    recorder: Option<Recorder>,
    summary: Summary,
    /// Findings about frames that are not shown.
    unattached: Vec<Finding>,
    start_ns: Option<u64>,
}

impl Decoder {
    fn frame(&mut self, frame: &Frame, out: &mut dyn Write) -> io::Result<()> {
        self.summary.frames += 1;
        self.start_ns = self.start_ns.or(frame.time_ns);
        match packet::with_packet(frame, |packet| self.packet(frame, packet, out)) {
            Ok(written) => written,
            Err(kind) => self.non_roce(frame, kind, out),
        }
    }

    /// Hands a frame to the recorder of a ladder.
    fn record(&mut self, frame: &Frame, packet: Option<&Packet<'_>>, findings: &[Finding]) {
        let Some(recorder) = &mut self.recorder else { return };
        let (start_ns, time_ns) = (self.start_ns.unwrap_or_default(), frame.time_ns);
        let since_ns = time_ns.map_or(0, |time_ns| time_ns.saturating_sub(start_ns));
        recorder.frame(frame, packet, Duration::from_nanos(since_ns));
        findings.iter().for_each(|finding| recorder.finding(finding));
    }

    fn packet(
        &mut self,
        frame: &Frame,
        packet: &Packet<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.summary.roce += 1;
        let count = match packet.icrc {
            Icrc::Ok => &mut self.summary.icrc.ok,
            Icrc::Bad => &mut self.summary.icrc.bad,
            Icrc::Truncated => &mut self.summary.icrc.truncated,
        };
        *count += 1;
        let mut findings =
            self.verifier.as_mut().map_or(Vec::new(), |verifier| verifier.packet(packet));
        self.record(frame, Some(packet), &findings);
        if !self.options.verify {
            findings.clear();
        }
        if self.options.json {
            return json_line(out, &PacketView::new(packet, findings));
        }
        writeln!(out, "{}", view::line(packet, self.start_ns.unwrap_or_default()))?;
        findings.iter().try_for_each(|finding| writeln!(out, "{}", view::finding_line(finding)))
    }

    fn non_roce(&mut self, frame: &Frame, kind: NonRoce, out: &mut dyn Write) -> io::Result<()> {
        *self.summary.non_roce.entry(kind.name()).or_default() += 1;
        let (NonRoce::Malformed(discard), Some(verifier)) = (kind, &mut self.verifier) else {
            return Ok(());
        };
        let finding = verifier.malformed(frame.index, discard.name());
        self.record(frame, None, std::slice::from_ref(&finding));
        if !self.options.verify {
            return Ok(());
        }
        if self.options.json {
            self.unattached.push(finding);
            return Ok(());
        }
        writeln!(out, "{}", view::finding_line(&finding))
    }

    fn finish(mut self, out: &mut dyn Write) -> io::Result<(Summary, Option<Drawing>)> {
        let report = self.verifier.map(Verifier::finish);
        let drawing = self.recorder.zip(report.as_ref());
        let drawing = drawing.map(|(recorder, report)| recorder.finish(report));
        self.summary.report = report.filter(|_| self.options.verify);
        if let Some(report) = &mut self.summary.report {
            report.unattached.splice(..0, self.unattached);
        }
        if self.options.json {
            json_line(out, &LastLine { summary: &self.summary })?;
        } else {
            self.summary.write_text(out)?;
        }
        Ok((self.summary, drawing))
    }
}

/// The last line of JSON.
#[derive(Serialize)]
struct LastLine<'a> {
    summary: &'a Summary,
}

fn json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

impl From<Damage> for DamageView {
    fn from(damage: Damage) -> DamageView {
        let Damage { offset, frames_before, reason } = damage;
        DamageView { offset, after_frame: frames_before, reason }
    }
}

impl Summary {
    fn new() -> Summary {
        let non_roce = NonRoce::NAMES.iter().map(|&name| (name, 0)).collect();
        Summary { non_roce, ..Summary::default() }
    }

    /// Whether there were violations.
    pub fn outcome(&self) -> Outcome {
        match &self.report {
            Some(report) if report.violations > 0 => Outcome::Violations,
            _ => Outcome::Clean,
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (title, bad, good) = (style::TITLE, style::BAD, style::GOOD);
        let IcrcCounts { ok, bad: wrong, truncated } = self.icrc;
        writeln!(out, "\n{title}{} frames, {} RoCE packets{title:#}", self.frames, self.roce)?;
        let mark = if wrong > 0 { bad } else { good };
        writeln!(out, "  ICRC      {mark}{ok} ok, {wrong} bad{mark:#}, {truncated} truncated")?;
        let kinds: Vec<String> = self
            .non_roce
            .iter()
            .filter(|&(_, &count)| count > 0)
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        if !kinds.is_empty() {
            writeln!(out, "  not RoCE  {}", kinds.join(", "))?;
        }
        if let Some(DamageView { offset, after_frame, reason }) = &self.damage {
            let place = format!("at byte {offset}, after frame {after_frame}");
            writeln!(out, "  {bad}damaged   {place}: {reason}{bad:#}")?;
        }
        match &self.report {
            Some(report) => write_report(report, out),
            None => Ok(()),
        }
    }
}

fn write_report(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (title, bad, good, faint) = (style::TITLE, style::BAD, style::GOOD, style::FAINT);
    for finding in &report.unattached {
        writeln!(out, "{}", view::finding_line(finding))?;
    }
    for flow in &report.flows {
        let src_qp = flow.src_qp.map_or(String::from("?"), |qpn| format!("{qpn:#x}"));
        writeln!(
            out,
            "\n{title}flow {} {}{title:#} {} qp {src_qp} > {} qp {:#x}",
            flow.flow, flow.service, flow.src, flow.dst, flow.dest_qp,
        )?;
        writeln!(
            out,
            "  {} packets, {} bytes of payload, {} messages, {} responses",
            flow.packets, flow.payload_bytes, flow.messages, flow.responses,
        )?;
        writeln!(
            out,
            "  {} retransmissions, {} gaps, NAKs: {} sequence, {} RNR, {} other",
            flow.retransmissions, flow.gaps, flow.sequence_naks, flow.rnr_naks, flow.naks,
        )?;
        if !flow.findings.is_empty() {
            let kinds: Vec<String> =
                flow.findings.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            writeln!(out, "  {faint}{}{faint:#}", kinds.join(", "))?;
        }
        if flow.violations > 0 {
            writeln!(out, "  {bad}{} violations{bad:#}", flow.violations)?;
        }
    }
    match report.violations {
        0 => writeln!(out, "\n{good}no violation{good:#}"),
        count => writeln!(out, "\n{bad}{count} violations{bad:#}"),
    }
}
