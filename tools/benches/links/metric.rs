//! What is measured, and what is compared to what.

use anyhow::Result;

use crate::cable::{Cable, Mode};
use crate::program;
use crate::shared::table::Target;
use crate::task::{Job, Load, Operation, Raw};

/// Bytes of a packet behind UDP that are not payload: BTH and ICRC; and RETH.
const HEADERS: usize = 12 + 4;
const RETH: usize = 16;
/// Payload of a packet, in bytes.
const LARGE: usize = 4096;
const SMALL: usize = 1024;
/// Frames of these payloads that fit into one super-frame.
const LARGE_COUNT: usize = 15;
const SMALL_COUNT: usize = 62;
/// Frames that are sent with one call where each is for itself.
const BURST: usize = 32;
/// Of the messages in bandwidths, latencies and rates.
const MESSAGE: usize = 1 << 20;
const SHORT: usize = 8;
const LINE: usize = 64;

/// The links that there are.
const LINKS: [&str; 3] = ["packet", "udp", "xdp"];

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10^9 bytes a second.
    GigabytesPerSecond,
    /// Half a round trip.
    Microseconds,
    /// 10^6 messages or frames a second.
    MillionsPerSecond,
}

/// One figure, measured again in each round.
#[derive(Clone, Debug)]
pub struct Metric {
    /// How the table names it.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    what: What,
    /// From what a measurement tells to the unit.
    scale: f64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Raw(Job),
    Rdma { job: Job, link: &'static str, mode: Mode },
    Program(fn(&Cable) -> Result<f64>),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// How the table names it.
    pub name: String,
    /// What is compared: the best of these figures.
    pub of: Vec<String>,
    /// The figure it is compared to.
    pub to: String,
    /// What the ratio is meant to be.
    pub target: Target,
}

impl Unit {
    /// How the table names it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Microseconds => "µs",
            Unit::MillionsPerSecond => "M/s",
        }
    }

    /// Whether the first of two figures is the better one.
    pub fn is_better(self, one: f64, other: f64) -> bool {
        if self == Unit::Microseconds { one < other } else { one > other }
    }
}

impl Metric {
    /// Measures once, for so long.
    pub fn measure(&self, cable: &Cable, millis: u64) -> Result<f64> {
        let told = match self.what {
            What::Raw(job) => cable.raw(job, millis)?,
            What::Rdma { job, link, mode } => cable.rdma(job, millis, link, mode)?,
            What::Program(run) => run(cable)?,
        };
        Ok(told * self.scale)
    }

    /// Everything, what is compared side by side.
    pub fn all(modes: &[Mode]) -> Vec<Metric> {
        use Unit::{GigabytesPerSecond as Bandwidth, Microseconds as Latency};
        let mut all = Vec::new();
        let stream = |payload, count| Load::Stream { len: payload + HEADERS, count };
        let raw = |name: &str, unit, way, load, scale| {
            let what = What::Raw(Job::Raw(way, load));
            Metric { name: name.into(), unit, what, scale }
        };
        let bandwidth = |name, way, payload, count| {
            raw(name, Bandwidth, way, stream(payload, count), payload as f64 / 1e9)
        };
        let program = |name: &str, unit, run, scale| Metric {
            name: name.into(),
            unit,
            what: What::Program(run),
            scale,
        };
        all.push(bandwidth(names::XDP, Raw::Xdp, LARGE, BURST));
        all.push(bandwidth(names::SUPER_LARGE, Raw::Packet, LARGE, LARGE_COUNT));
        all.push(bandwidth(names::UDP, Raw::Udp, LARGE, LARGE_COUNT));
        all.push(program(names::TCP, Bandwidth, program::tcp, 1e-9));
        all.push(program(names::UCX_BW, Bandwidth, program::ucx_bandwidth, 1e-9));
        let write = |len| Operation::Write(len);
        all.extend(rdma(modes, "WRITE 1 MiB", write(MESSAGE), LARGE));
        all.push(bandwidth(names::SUPER_SMALL, Raw::Packet, SMALL, SMALL_COUNT));
        all.extend(rdma(modes, "WRITE 1 MiB", write(MESSAGE), SMALL));
        let line = stream(LINE + RETH, BURST);
        all.push(raw(names::RATE, Unit::MillionsPerSecond, Raw::Xdp, line, 1e-6));
        all.extend(rdma(modes, "WRITE 64 B", write(LINE), LARGE));
        let ping = Load::PingPong { len: SHORT + HEADERS };
        for (name, way) in [
            (names::PING_PACKET, Raw::Packet),
            (names::PING_UDP, Raw::Udp),
            (names::PING_XDP, Raw::Xdp),
        ] {
            all.push(raw(name, Latency, way, ping, 1e-3));
        }
        all.push(program(names::UCX_LAT, Latency, program::ucx_latency, 1e-3));
        all.extend(rdma(modes, "SEND 8 B", Operation::PingPong(SHORT), LARGE));
        all
    }
}

/// An operation over every link, in every mode.
fn rdma(modes: &[Mode], what: &str, operation: Operation, mtu: usize) -> Vec<Metric> {
    let (unit, scale) = match operation {
        Operation::PingPong(_) => (Unit::Microseconds, 1e-3),
        Operation::Write(LINE) => (Unit::MillionsPerSecond, 1e-6),
        Operation::Write(len) => (Unit::GigabytesPerSecond, len as f64 / 1e9),
    };
    let job = Job::Rdma { operation, mtu };
    let of = |&mode: &Mode| {
        LINKS.map(|link| {
            let name = names::rdma(what, mtu, link, mode);
            Metric { name, unit, what: What::Rdma { job, link, mode }, scale }
        })
    };
    modes.iter().flat_map(of).collect()
}

/// Names under which figures are compared.
pub mod names {
    use super::Mode;

    pub const XDP: &str = "raw AF_XDP 4 KiB";
    pub const SUPER_LARGE: &str = "raw super-frames 15 x 4 KiB";
    pub const SUPER_SMALL: &str = "raw super-frames 62 x 1 KiB";
    pub const UDP: &str = "raw UDP GSO+GRO 15 x 4 KiB";
    pub const TCP: &str = "iperf3 TCP";
    pub const UCX_BW: &str = "UCX tag_bw 1 MiB, tcp";
    pub const RATE: &str = "raw AF_XDP frames, 138 B";
    pub const PING_PACKET: &str = "raw packet ping-pong";
    pub const PING_UDP: &str = "raw UDP ping-pong";
    pub const PING_XDP: &str = "raw AF_XDP ping-pong";
    pub const UCX_LAT: &str = "UCX tag_lat 8 B, tcp";

    /// Of an operation over a link.
    pub fn rdma(what: &str, mtu: usize, link: &str, mode: Mode) -> String {
        let by = if mode == Mode::Gateway { ", gateway" } else { "" };
        match what {
            "WRITE 1 MiB" => format!("{what}, MTU {mtu}, {link}{by}"),
            _ => format!("{what}, {link}{by}"),
        }
    }
}

/// What is compared to what.
pub fn comparisons(modes: &[Mode]) -> Vec<Comparison> {
    modes.iter().flat_map(|&mode| comparisons_in(mode)).collect()
}

fn comparisons_in(mode: Mode) -> Vec<Comparison> {
    use Target::{AtLeast, AtMost};
    let bandwidth = |link, mtu| names::rdma("WRITE 1 MiB", mtu, link, mode);
    let rate = |link| names::rdma("WRITE 64 B", LARGE, link, mode);
    let latency = |link| names::rdma("SEND 8 B", LARGE, link, mode);
    let one = |name: String, to: &str, target| Comparison {
        of: vec![name.clone()],
        name,
        to: to.into(),
        target,
    };
    let best = |what: &str, name: &dyn Fn(&'static str) -> String, to: &str, target| Comparison {
        name: name("best link").replace("best link", what),
        of: LINKS.map(name).into(),
        to: to.into(),
        target,
    };
    let large = |link| bandwidth(link, LARGE);
    vec![
        one(bandwidth("xdp", LARGE), names::XDP, AtLeast(0.8)),
        one(bandwidth("packet", LARGE), names::SUPER_LARGE, AtLeast(0.45)),
        one(bandwidth("packet", SMALL), names::SUPER_SMALL, AtLeast(0.33)),
        one(bandwidth("packet", LARGE), names::XDP, AtLeast(2.0)),
        one(bandwidth("udp", LARGE), names::UDP, AtLeast(0.5)),
        best("best link", &large, names::TCP, AtLeast(1.0)),
        best("best link", &large, names::UCX_BW, AtLeast(1.2)),
        one(latency("packet"), names::PING_PACKET, AtMost(1.3)),
        one(latency("udp"), names::PING_UDP, AtMost(1.3)),
        one(latency("xdp"), names::PING_XDP, AtMost(1.3)),
        best("best link", &latency, names::UCX_LAT, AtMost(0.6)),
        one(rate("packet"), names::RATE, AtLeast(4.0)),
        one(rate("udp"), names::RATE, Target::None),
        one(rate("xdp"), names::RATE, Target::None),
    ]
}
