//! Time to connect: the steps of `cmtime`, unmodified over our library, beside the round trips that
//! the protocol needs for them, each as long as `ibv_ud_pingpong -e` takes for one of datagrams as
//! large as CM's, in turn with it; both wait for events. Medians of the rounds.
//!
//! Each round is a first connection between fresh processes, with everything that is done once:
//! resolving opens the device, connecting maps the peer's inbound ring, and whoever slept has to be
//! woken. What is left of that among many connections begun at once is in the last two columns.
//!
//! Compare the ratios, never the times. Figures decide nothing: the exit status says whether all
//! programs finished.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Parser;
use ferroce_tests::programs::{Fabric, Pair, Running};

/// RDMA-CM's port of the servers.
const PORT: u16 = 7471;
/// Bytes of a management datagram.
const MAD_LEN: &str = "256";
/// Connections begun at once, to see what one costs among many.
const MANY: usize = 100;

/// Steps as `cmtime` names them, and the round trips each needs: REQ, REP and RTU, of which the
/// last is not waited for; DREQ and DREP. Addresses are resolved without asking anybody.
const STEPS: [(&str, f64); 7] = [
    ("create id", 0.0),
    ("resolve addr", 0.0),
    ("resolve route", 0.0),
    ("create qp", 0.0),
    ("connect", 1.5),
    ("disconnect", 1.0),
    ("destroy", 0.0),
];

/// What the table does not say, as traces of the system calls and of the page faults have it.
const FIRST: &str = "\
Of a first connection the packets are the least. The threads it needs are asleep, on each side that
which drives the device and that of the program: each datagram wakes one and then the other, by a
futex and an eventfd, while the sides of the round trip above are still awake and drive the device
themselves. cmtime has one more thread, which makes and answers the connections and sleeps as well.
Each side maps the other's inbound ring (about 15 system calls; 10 page faults), and runs code no
CPU has in its cache. Between the same processes, after 0.3 s of idleness, a connection takes about
two thirds of the time of the first, and one right after another less than half of it: what is left
is waking.";

/// Time to connect, as a ratio to the round trips that are needed.
#[derive(Debug, Parser)]
struct Arguments {
    /// Three rounds instead of fifteen
    #[arg(long)]
    quick: bool,
    /// Cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let rounds = if Arguments::parse().quick { 3 } else { 15 };
    let (mut trips, mut one, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        trips.push(round_trip_us()?);
        one.push(steps_us(1)?);
        many.push(steps_us(MANY)?);
    }
    let trip = median(trips);
    println!("round trip of {MAD_LEN} bytes by UD, with events: {trip:.1} us\n");
    println!("| step | round trips | us | ratio | us, one among {MANY} | ratio |");
    println!("|---|---|---|---|---|---|");
    for (index, (step, needed)) in STEPS.into_iter().enumerate() {
        let of = |all: &[[f64; STEPS.len()]]| median(all.iter().map(|us| us[index]).collect());
        let (one, many) = (of(&one), of(&many));
        let ratio = |us: f64| match needed > 0.0 {
            true => format!("{:.1}", us / needed / trip),
            false => String::new(),
        };
        let (of_one, of_many) = (ratio(one), ratio(many));
        println!("| {step} | {needed} | {one:.1} | {of_one} | {many:.1} | {of_many} |");
    }
    println!("\n{FIRST}");
    Ok(())
}

/// What a program has said that has succeeded.
fn said(ended: &ferroce_tests::programs::Ended) -> Result<&str> {
    match ended.check() {
        Ok(()) => Ok(&ended.out),
        Err(error) => bail!(error),
    }
}

fn round_trip_us() -> Result<f64> {
    let arguments = format!("-e -g 1 -s {MAD_LEN} -n 2000");
    let pair = Pair::run(&Fabric::new(), "ibv_ud_pingpong", &arguments, &arguments);
    let printed = said(&pair.client)?;
    let (before, _) = printed.split_once(" usec/iter").context("ibv_ud_pingpong gives a time")?;
    Ok(before.rsplit(' ').next().unwrap_or_default().parse()?)
}

/// Microseconds a connection of each step, for so many begun at once.
fn steps_us(connections: usize) -> Result<[f64; STEPS.len()]> {
    let fabric = Fabric::new();
    let cmtime = |more: &[&str]| -> Command {
        let mut command = fabric.run("cmtime");
        command.args(["-p", &PORT.to_string()]).args(more);
        command
    };
    let mut server = Running::start(&mut cmtime(&[]));
    if !server.wait_for(|_| fabric.listens(PORT)) {
        bail!("cmtime does not listen: {}", server.wait());
    }
    let count = connections.to_string();
    let client = Running::start(&mut cmtime(&["-c", &count, "-s", "127.0.0.1"])).wait();
    server.kill();
    server.wait();
    let printed = said(&client)?;
    let mut all = [0.0; STEPS.len()];
    for (us, (step, _)) in all.iter_mut().zip(STEPS) {
        let line = printed.lines().find(|line| line.starts_with(step) && line.contains(':'));
        let last = line.and_then(|line| line.split_whitespace().next_back());
        *us = last.with_context(|| format!("cmtime says nothing of {step}: {client}"))?.parse()?;
    }
    Ok(all)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
