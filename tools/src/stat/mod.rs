//! `ferroce stat`: what every process of a fabric counts, for each QP and device, and why frames
//! were dropped.
//!
//! `sample` asks the processes, `text` shows one sample as tables, `view` two as rates on a
//! terminal that `watch` keeps.

mod sample;
mod text;
mod view;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ferroce::config::{Flags, Key, Settings};

use sample::Sample;

/// Shown below `ferroce stat --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce stat                                    every process, once
  ferroce stat --watch                            rates each second; q quits
  ferroce stat --watch 5 --fabric lab
  ferroce stat --json | jq '.[] | {pid, program, discards}'

Counters have the kernel's names; those that are 0 are not shown. Drops are frames
that came and had no effect, by reason, and frames that never reached anybody:
ring_full (the receiver did not run), unreachable (no process has the address),
injected (a fault of --fault). SQ and RQ are work requests not yet retired.

JSON: an array with one object a process. One that did not answer, because it is
stopped for instance, has `error` and lacks what only it knows. With --watch, one
array a line; where the output is no terminal, --watch prints the tables again
each time.

Exit status: 0, also if there is no process, or 2 if a setting is wrong, the
fabric is another user's, or the output cannot be written.";

/// How long processes have to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// Show what every process counts, and why frames were dropped.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Fabric to look at: a name, or a folder (with a '/')
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Write JSON, an array of processes
    #[arg(long)]
    json: bool,
    /// Go on looking, and show rates
    #[arg(
        long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = parse_seconds
    )]
    watch: Option<Duration>,
}

/// Runs `ferroce stat`.
///
/// # Errors
///
/// If a setting is wrong, the fabric is none of this user's, or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let values = arguments.fabric.iter().map(|name| (Key::Fabric, name.clone())).collect();
    let dir = Settings::load_with(&Flags { config: None, values })?.fabric;
    let is_terminal = io::stdout().is_terminal();
    match arguments.watch {
        None => print(&dir, arguments.json).map(drop),
        Some(interval) if is_terminal && !arguments.json => watch::run(&dir, interval),
        Some(interval) => {
            while print(&dir, arguments.json)? {
                thread::sleep(interval);
            }
            Ok(())
        }
    }
}

/// Prints one sample; whether anybody still reads.
fn print(dir: &Path, json: bool) -> Result<bool> {
    let sample = Sample::take(dir, PATIENCE)?;
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    let outcome = match json {
        true => write_json(&sample, &mut out),
        false => text::write(&sample, dir, &mut out, io::stdout().is_terminal()),
    };
    match outcome.and_then(|()| out.flush()) {
        // Whoever reads (`head`) has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true).context("cannot write"),
    }
}

fn write_json(sample: &Sample, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", serde_json::to_string(&sample.processes)?)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "0.1 to 86400 seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn watch_takes_seconds_or_none() {
        let parse = |line: &str| {
            let line = CommandLine::try_parse_from(line.split_whitespace()).ok()?;
            Some(line.arguments.watch)
        };
        assert_eq!(parse("stat"), Some(None));
        assert_eq!(parse("stat --watch"), Some(Some(Duration::from_secs(1))));
        assert_eq!(parse("stat --watch 0.5 --json"), Some(Some(Duration::from_millis(500))));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert_eq!(parse(&format!("stat --watch={wrong}")), None, "{wrong}");
        }
    }

    #[test]
    fn json_is_an_array_and_says_who_is_silent() {
        let sample = sample::tests::sample(0, 7);
        let mut out = Vec::new();
        write_json(&sample, &mut out).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(all[0]["pid"], 41);
        assert_eq!(all[0]["qps"][1]["peer_qpn"], 0x10011);
        assert_eq!(all[0]["discards"]["bad_icrc"], 7);
        assert_eq!(all[0].get("error"), None);
        assert_eq!(all[1]["error"], "did not answer in time");
        assert_eq!(all[1].get("counters"), None);
    }
}
