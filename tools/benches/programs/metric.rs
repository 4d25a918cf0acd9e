//! What is measured, and how each program says it.

use anyhow::{Context, Result};

use crate::program::{Lab, Program};
use crate::shared::{probe, process};
use crate::{RING_SIZES, SIZES, bare, writes};

/// Bytes moved for a bandwidth.
const VOLUME: usize = 1 << 30;
const MIB: f64 = (1 << 20) as f64;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10^9 bytes a second.
    GigabytesPerSecond,
    /// Half a round trip.
    Microseconds,
}

impl Unit {
    /// How the table names it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Microseconds => "µs",
        }
    }
}

/// One figure, measured again in each round.
#[derive(Debug)]
pub struct Metric {
    /// How the table names it.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    what: What,
}

#[derive(Debug)]
enum What {
    PingPong,
    Ring { len: usize, count: usize },
    Writes { len: usize, count: usize },
    Program(Program, Answer),
}

/// Where a program's output has the figure.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// perftest: a column of the line that begins with the size.
    Column { size: usize, column: usize },
    /// UCX: a column of the CSV table, by its title.
    Title(&'static str),
    /// fi_pingpong: a column of the last line.
    Last { column: usize },
}

/// Names under which figures are compared.
pub mod names {
    pub const PING_PONG: &str = "bare ping-pong";
    pub const WRITE_LAT: &str = "ib_write_lat 8 B";
    pub const SEND_LAT: &str = "ib_send_lat 8 B";
    pub const UCX_SHM: &str = "UCX tag_lat 8 B, posix";
    pub const FI_SHM: &str = "fi_pingpong 8 B, shm";
    pub const FI_TCP: &str = "fi_pingpong 8 B, tcp";

    /// A name with a size.
    pub fn sized(what: &str, len: usize) -> String {
        match len {
            0..0x10_0000 => format!("{what} {} KiB", len >> 10),
            _ => format!("{what} {} MiB", len >> 20),
        }
    }
}

impl Metric {
    /// Everything that can be measured here, what is compared side by side.
    pub fn all(lab: &Lab) -> Vec<Metric> {
        let mut all = latencies(lab);
        for size in SIZES {
            all.extend(bandwidths(lab, size));
        }
        let is_here = |metric: &Metric| match &metric.what {
            What::Program(program, _) => process::is_installed(program.name),
            _ => true,
        };
        all.retain(is_here);
        all
    }

    /// Measures once.
    pub fn measure(&self, lab: &Lab) -> Result<f64> {
        match &self.what {
            What::PingPong => probe::half_round_trip(lab.cpus),
            &What::Ring { len, count } => bare::ring(lab.cpus, len, count),
            &What::Writes { len, count } => writes::bandwidth(lab.fabric, lab.cpus, len, count),
            What::Program(program, answer) => {
                let printed = program.run(lab, None)?;
                let value = answer
                    .find(&printed)
                    .with_context(|| format!("{} has said something else: {printed}", self.name))?;
                Ok(match self.unit {
                    Unit::GigabytesPerSecond => value * MIB / 1e9,
                    Unit::Microseconds => value,
                })
            }
        }
    }
}

impl Answer {
    fn find(self, printed: &str) -> Option<f64> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match self {
            Answer::Column { size, column } => {
                let size = size.to_string();
                let mut lines = printed.lines().map(words);
                let line = lines.find(|words| words.first() == Some(&size))?;
                line.get(column)?.parse().ok()
            }
            Answer::Title(title) => process::value_of(printed, title),
            Answer::Last { column } => words(printed.lines().last()?).get(column)?.parse().ok(),
        }
    }
}

fn latencies(lab: &Lab) -> Vec<Metric> {
    let latency = |name: &str, what| Metric { name: name.into(), unit: Unit::Microseconds, what };
    let typical = Answer::Column { size: 8, column: 4 };
    let perftest = |program, count| What::Program(perftest(program, 8, count), typical);
    let (ucx, median) =
        (ucx("tag_lat", "posix,self", 8, 200_000 / lab.work), "50.0_percentile_lat");
    let fi = |provider| What::Program(fi_pingpong(provider, lab), Answer::Last { column: 6 });
    vec![
        latency(names::PING_PONG, What::PingPong),
        latency(names::WRITE_LAT, perftest("ib_write_lat", 50_000 / lab.work)),
        latency(names::SEND_LAT, perftest("ib_send_lat", 200_000 / lab.work)),
        latency(names::UCX_SHM, What::Program(ucx, Answer::Title(median))),
        latency(names::FI_SHM, fi("shm")),
        latency(names::FI_TCP, fi("tcp")),
    ]
}

fn bandwidths(lab: &Lab, len: usize) -> Vec<Metric> {
    let count = (VOLUME / len / lab.work).clamp(16, 100_000);
    let bandwidth = |name: &str, what| Metric {
        name: names::sized(name, len),
        unit: Unit::GigabytesPerSecond,
        what,
    };
    let average = Answer::Column { size: len, column: 3 };
    let perftest = |name| bandwidth(name, What::Program(perftest(name, len, count), average));
    let mut all = Vec::new();
    if RING_SIZES.contains(&len) {
        all.push(bandwidth("two-core ring", What::Ring { len, count }));
        all.push(bandwidth("RC WRITE, own", What::Writes { len, count }));
    }
    all.extend([perftest("ib_write_bw"), perftest("ib_send_bw")]);
    let ucx = What::Program(ucx("tag_bw", "tcp,self", len, count), Answer::Title("overall_bw"));
    all.push(bandwidth("UCX tag_bw, tcp", ucx));
    all
}

/// Programs of ours that have to finish on one core too. Those that spin on memory get a message
/// across only when the scheduler takes the core from them: few messages.
pub fn on_one_core() -> Vec<Program> {
    let all = [
        ("ib_write_bw", 64 << 10, 2000),
        ("ib_send_bw", 64 << 10, 2000),
        ("ib_write_lat", 8, 200),
        ("ib_send_lat", 8, 200),
    ];
    let programs = all.map(|(name, size, count)| perftest(name, size, count));
    programs.into_iter().filter(|program| process::is_installed(program.name)).collect()
}

/// A program of perftest, over our library.
fn perftest(name: &'static str, size: usize, count: usize) -> Program {
    let size = size.to_string();
    let mut both = words(&["-F", "-m", "4096", "-s", &size, "-n", &count.to_string()]);
    if name.ends_with("_bw") {
        // No peaks: it would keep a time of each message, of 20 000 at most.
        both.push("-N".into());
    }
    Program {
        name,
        is_ours: true,
        variables: &[],
        both,
        server_port: "-p",
        client_port: "-p",
        client: Vec::new(),
    }
}

fn ucx(test: &str, transports: &'static str, size: usize, count: usize) -> Program {
    let (size, warm_up) = (size.to_string(), (count / 10).to_string());
    let variables: &[_] = match transports {
        "tcp,self" => &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")],
        _ => &[("UCX_TLS", "posix,self")],
    };
    let count = count.to_string();
    Program {
        name: "ucx_perftest",
        is_ours: false,
        variables,
        both: Vec::new(),
        server_port: "-p",
        client_port: "-p",
        client: words(&["-t", test, "-s", &size, "-n", &count, "-w", &warm_up, "-f", "-v"]),
    }
}

fn fi_pingpong(provider: &str, lab: &Lab) -> Program {
    let count = (20_000 / lab.work).to_string();
    Program {
        name: "fi_pingpong",
        is_ours: false,
        variables: &[],
        both: words(&["-p", provider, "-e", "rdm", "-S", "8", "-I", &count]),
        server_port: "-B",
        client_port: "-P",
        client: Vec::new(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
