//! `ferroce demo`: two nodes in one process run every operation on every transport that has it,
//! compare every byte of their memory with what it must be, and show one table.

mod drawing;
mod lab;
mod operations;
mod report;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ferroce::frame::pcap::Recorder;
use ferroce::frame::wire::CapturePoint;
use ferroce_stack::verbs::Mtu;

use crate::ladder;

use drawing::Drawing;
use lab::{Failure, Lab};
use operations::{Moved, Operation, PLAN, Transport};

pub use lab::Settings;
pub use report::{Report, Row};

/// Shown below `ferroce demo --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce demo                                    every operation, once
  ferroce demo --loss 0.05 --seed 7               on a link that loses 5 % of all frames
  ferroce demo --loss 0.01 --ladder lossy.svg      and draw what was lost, and what became of it
  ferroce demo --ipv6 --mtu 4096 --pcap demo.pcapng
  ferroce decode --verify demo.pcapng             judge the packets of the run before
  ferroce demo --json | jq 'select(.right == false)'    what went wrong, if anything

Each row of the table is one operation over one transport: how many work
requests (WRs), how many bytes they moved, how many packets that took both ways,
how many request packets were sent again, how the requests completed. Binding a
window also shows that the peer can write and read through it, invalidating it
that the peer no longer can.

The verdict is `ok` if every completion is right and every byte of memory is
what it must be. On a lossy link an unreliable transport (UC, UD, GSI) may lose
a message; the verdict counts them. A reliable one (RC, XRC) must not; but above
a loss of about 0.1 its seven retries need not suffice, and a connection gives
up as it must: RETRY_EXC_ERR.

The clock is virtual and all chance comes from the seed: the same arguments give
the same packets, byte for byte.

JSON: an object a line for each row, then {\"summary\": ...}. `right` says
whether all went as it must, `verdict` how not.

Exit status: 0 all is right, 1 something is not, 2 the arguments are wrong, or
the capture or the output could not be written.";

/// Run every RDMA operation between two nodes in this process, and verify it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Record every frame that is sent: pcapng if FILE ends so, else pcap
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Draw the packets around each that is lost, or the first, to a file by its suffix
    #[arg(long, value_name = "OUT.svg|OUT.html", value_parser = ladder::output)]
    ladder: Option<ladder::Output>,
    /// RoCE v2 over IPv6 rather than IPv4
    #[arg(long)]
    ipv6: bool,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "1024", value_parser = parse_mtu)]
    mtu: Mtu,
    /// Probability that a frame is lost on the way, 0 to 0.5
    #[arg(long, value_name = "P", default_value = "0", value_parser = parse_loss)]
    #[arg(allow_negative_numbers = true)]
    loss: f64,
    /// Decides which frames are lost and what the messages hold
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write JSON, an object a line
    #[arg(long)]
    json: bool,
}

fn parse_mtu(text: &str) -> Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| String::from("a path MTU is 256, 512, 1024, 2048 or 4096 bytes"))
}

fn parse_loss(text: &str) -> Result<f64, String> {
    let loss = text.parse().ok().filter(|loss| (0.0..=0.5).contains(loss));
    loss.ok_or_else(|| String::from("a loss is a probability from 0 to 0.5, such as 0.05"))
}

/// Runs `ferroce demo`; whether all is right.
///
/// # Errors
/// If the capture or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let settings = Settings {
        mtu: arguments.mtu,
        ipv6: arguments.ipv6,
        loss: arguments.loss,
        seed: arguments.seed,
    };
    let mut drawing = arguments.ladder.as_ref().map(|_| Drawing::default());
    let (report, lab) = carry_out(settings, arguments.pcap.as_deref(), drawing.as_mut())?;
    if let (Some(output), Some(drawing)) = (&arguments.ladder, drawing) {
        let (events, options) = drawing.finish(&lab);
        ladder::write(output, &events, &options)?;
    }
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let mut out = anstream::AutoStream::auto(stdout.lock());
    let written = match arguments.json {
        true => report.write_json(&mut out),
        false => report.write_table(&mut out, is_terminal),
    };
    match written.and_then(|()| out.flush()) {
        // Whoever reads (`head`) has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        outcome => outcome.context("cannot write")?,
    }
    Ok(report.is_right())
}

/// Runs every operation, and records the frames in the file `pcap` if there is one.
///
/// # Errors
/// If the capture cannot be written.
pub fn perform(settings: Settings, pcap: Option<&Path>) -> Result<Report> {
    carry_out(settings, pcap, None).map(|(report, _)| report)
}

/// The same, with what is to be drawn; and where it took place.
fn carry_out(
    settings: Settings,
    pcap: Option<&Path>,
    mut drawing: Option<&mut Drawing>,
) -> Result<(Report, Lab)> {
    let mut lab = Lab::new(settings).map_err(|Failure(reason)| anyhow::anyhow!(reason))?;
    if let Some(path) = pcap {
        let recorder = Recorder::create(path, lab.world.nodes())
            .with_context(|| format!("cannot create {}", path.display()))?;
        lab.world.wire().record(recorder, CapturePoint::Sent);
    }
    if drawing.is_some() {
        lab.world.wire().keep_log();
    }
    let mut rows = Vec::new();
    for (transport, operations) in PLAN {
        for &operation in operations {
            rows.push(perform_one(&mut lab, transport, operation, drawing.as_deref_mut()));
        }
    }
    let recorded = lab.world.wire().finish_recording();
    let capture = match pcap {
        None => None,
        Some(path) => {
            let frames = recorded.with_context(|| format!("cannot write {}", path.display()))?;
            Some((path.to_owned(), frames))
        }
    };
    let report = Report {
        settings,
        rows,
        frames_lost: lab.world.wire_ref().counters().dropped,
        time_ns: lab.world.now().nanos(),
        capture,
    };
    Ok((report, lab))
}

fn perform_one(
    lab: &mut Lab,
    transport: Transport,
    operation: Operation,
    drawing: Option<&mut Drawing>,
) -> Row {
    let (packets, retransmissions) = traffic(lab);
    let mut moved = Moved::default();
    let (mut statuses, mut ends) = (Vec::new(), None);
    let outcome = lab.connect(transport, operation.rights()).and_then(|mut connection| {
        let outcome = operation.run(lab, &mut connection, &mut moved);
        ends = Some(connection.ends());
        statuses = connection.statuses;
        outcome
    });
    if let Some(drawing) = drawing {
        let name = format!("{} over {}", operation.name(), transport.name());
        drawing.add(&lab.world.wire().take_log(), &name, ends.as_ref(), lab.settings().loss > 0.0);
    }
    let (packets_after, retransmissions_after) = traffic(lab);
    Row {
        operation: operation.name(),
        transport: transport.name(),
        requests: statuses.iter().map(|(_, count)| count).sum(),
        bytes: moved.bytes,
        packets: packets_after - packets,
        retransmissions: retransmissions_after - retransmissions,
        statuses,
        messages: moved.messages,
        lost: moved.lost,
        failure: outcome.err().map(|Failure(reason)| reason),
    }
}

/// Packets both nodes have sent, and how many of them again.
fn traffic(lab: &Lab) -> (u64, u64) {
    let counters = [0, 1].map(|node| lab.world.device_ref(node).counters());
    let sum = |count: fn(&ferroce_stack::Counters) -> u64| counters.map(count).iter().sum();
    (sum(|counters| counters.sent_pkts), sum(|counters| counters.retransmitted_pkts))
}
