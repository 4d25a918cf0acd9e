//! What loss costs: goodput on one link by operation, path MTU, message size and loss.
//!
//! Time is virtual, so the table is exact; it is compared with `goodput.txt`. After a change meant
//! to alter it, `FERROCE_BLESS=1 cargo test -p ferroce-tests --test goodput` writes it anew.

use std::fmt::Write;
use std::path::Path;

use ferroce::frame::fault::{Action, Class, Rule, Which};
use ferroce::frame::wire::Link;
use ferroce::world::{ConnectOptions, World, WorldConfig};
use ferroce_stack::verbs::{Mtu, SendOp, SendWr, WcStatus};

/// Of the link.
const RATE_BPS: u64 = 10_000_000_000;
const DELAY_NS: u64 = 5_000;
/// ACK timeout code: 4.2 ms, a long time on this link.
const TIMEOUT: u8 = 10;
/// Bytes moved for each cell.
const TOTAL: usize = 16 << 20;
/// Work requests outstanding.
const DEPTH: usize = 16;
const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.05];
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Write,
    Read,
}

/// What moving [`TOTAL`] bytes took.
struct Cell {
    /// Packets with data sent for each that was needed.
    packets: f64,
    /// Virtual time.
    nanos: u64,
    timeouts: u64,
}

fn drop_some(probability: f64) -> Vec<Rule> {
    let which = Which::Chance(probability);
    vec![Rule { action: Action::Drop, which, class: Class::default(), conditions: Vec::new() }]
}

fn measure(operation: Operation, mtu: Mtu, size: usize, faults: Vec<Rule>) -> Cell {
    let link = Link { rate_bps: Some(RATE_BPS), delay_ns: DELAY_NS, ..Link::default() };
    let mut world = World::new(WorldConfig { link, faults, ..WorldConfig::default() }).unwrap();
    let options = ConnectOptions { mtu, timeout: TIMEOUT, ..ConnectOptions::default() };
    let (a, b) = world.connect_rc(0, 1, &options).unwrap();
    let local = world.register(&a, size, options.access).unwrap();
    let remote = world.register(&b, size, options.access).unwrap();
    let op = match operation {
        Operation::Write => SendOp::Write(remote.remote()),
        Operation::Read => SendOp::Read(remote.remote()),
    };
    let (count, sges) = (TOTAL / size, [local.sge()]);
    let (mut posted, mut done) = (0, 0);
    let finished = |world: &mut World| {
        for wc in world.poll(0, a.send_cq).unwrap() {
            assert_eq!(wc.status, WcStatus::Success);
            done += 1;
        }
        while posted < count && posted - done < DEPTH {
            world.device(0).post_send(a.qpn, &SendWr::new(posted as u64, op, &sges)).unwrap();
            posted += 1;
        }
        done == count
    };
    world.run_until(finished, 60_000_000_000).unwrap();
    let sender = if operation == Operation::Write { 0 } else { 1 };
    let needed = count * size.div_ceil(mtu.bytes());
    Cell {
        packets: world.device(sender).counters().sent_pkts as f64 / needed as f64,
        nanos: world.now().nanos(),
        timeouts: world.device(0).counters().local_ack_timeout_err,
    }
}

fn table() -> String {
    let mut text = format!(
        "RC on a link of {} Gb/s, {} us one way; {} MiB for each cell, {DEPTH} work requests \
         outstanding.\nEach cell: packets sent for each one needed, goodput in Gb/s, ACK \
         timeouts.\n\n",
        RATE_BPS / 1_000_000_000,
        DELAY_NS / 1000,
        TOTAL >> 20,
    );
    text += "operation   MTU  message";
    for loss in LOSSES {
        write!(text, " | {:>16}", format!("loss {} %", loss * 100.0)).unwrap();
    }
    text += "\n";
    for operation in [Operation::Write, Operation::Read] {
        for mtu in [Mtu::Mtu1024, Mtu::Mtu4096] {
            for size in SIZES {
                write!(text, "{:<9?} {:>5} {:>8}", operation, mtu.bytes(), unit(size)).unwrap();
                for loss in LOSSES {
                    let cell = measure(operation, mtu, size, drop_some(loss));
                    let goodput = TOTAL as f64 * 8.0 / cell.nanos as f64;
                    let Cell { packets, timeouts, .. } = cell;
                    write!(text, " | {packets:>5.2} {goodput:>6.2} {timeouts:>3}").unwrap();
                }
                text += "\n";
            }
        }
    }
    text
}

fn unit(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

#[test]
fn table_is_as_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goodput.txt");
    let table = table();
    if std::env::var_os("FERROCE_BLESS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(table == expected, "the table has changed; now it is\n{table}");
}

/// A lost READ response is asked for again as soon as the next one shows that it is missing.
#[test]
fn read_gap_does_not_wait_for_the_timer() {
    let size = 1 << 20;
    let clean = measure(Operation::Read, Mtu::Mtu4096, size, Vec::new());
    let rules = Rule::parse_all("drop 300th rc-read-response").unwrap();
    let lossy = measure(Operation::Read, Mtu::Mtu4096, size, rules);
    assert_eq!(lossy.timeouts, 0);
    // A round trip, and what was under way meanwhile is sent twice.
    let cost = lossy.nanos - clean.nanos;
    assert!(cost < 20 * DELAY_NS, "{cost} ns");
}

/// Answers to duplicates go before answers to later requests; were they to queue behind, each READ
/// would come one too late for ever.
#[test]
fn one_lost_response_does_not_double_those_after_it() {
    let rules = Rule::parse_all("drop 300th rc-read-response").unwrap();
    let cell = measure(Operation::Read, Mtu::Mtu4096, 64 << 10, rules);
    // At most what was asked for already, 256 packets of 4096, is sent again.
    assert!(cell.packets < 1.07, "{} packets for each needed", cell.packets);
}
