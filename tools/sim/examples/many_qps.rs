//! 10,000 QPs of 200 hosts at work in a leaf-spine network: how long that takes, and what memory.
//!
//! `cargo run --release -p ferroce-sim --example many_qps [messages of each QP pair]`

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::time::Instant;

use ferroce_sim::plan::{CLASSES, Ecn, Flow, Host, Link, Node, Pfc, Plan, Switch, Topology, Verb};
use ferroce_sim::run;
use ferroce_stack::Config;
use ferroce_stack::verbs::Mtu;

const LEAVES: usize = 20;
const HOSTS: usize = 200;
const SPINES: usize = 10;
const PAIRS: usize = 5_000;
const RATE: u64 = 100_000_000_000;
const PAGE: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(10), |count| count.parse())?;
    let plan = plan(messages)?;
    let before = resident()?;
    let mut most = before;
    let start = Instant::now();
    let outcome = run(&plan, &mut |_| most = most.max(resident().unwrap_or_default()))?;
    let taken = start.elapsed();
    let finished = outcome.flows.iter().filter(|flow| flow.finished.is_some()).count();
    let delivered: u64 = outcome.flows.iter().map(|flow| flow.delivered).sum();
    let dropped: u64 = outcome.ports.iter().map(|port| port.dropped).sum();
    println!("{HOSTS} hosts, {} QPs, {finished} of {PAIRS} flows finished", 2 * PAIRS);
    println!("virtual {} us, real {} ms", outcome.ended / 1000, taken.as_millis());
    println!("{} MB of payload, {dropped} frames dropped", delivered / 1_000_000);
    let packets = outcome.delivered as f64;
    println!(
        "{packets} packets, {:.2} hops each: {:.0} ns a packet, {:.0} ns a hop",
        outcome.hops as f64 / packets,
        taken.as_nanos() as f64 / packets,
        taken.as_nanos() as f64 / outcome.hops as f64
    );
    println!(
        "{} KiB resident before, {} KiB more at most: {} bytes a QP, with all that is under way",
        before >> 10,
        (most - before) >> 10,
        (most - before) / (2 * PAIRS as u64)
    );
    Ok(())
}

/// Bytes of this process that are in memory.
fn resident() -> Result<u64, Box<dyn Error>> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split_whitespace().nth(1).ok_or("no resident pages")?.parse()?;
    Ok(pages * PAGE)
}

fn plan(messages: u64) -> Result<Plan, Box<dyn Error>> {
    let link = |a, b| Link { ends: [a, b], rate: RATE, delay: 1000 };
    let per_leaf = HOSTS / LEAVES;
    let down = (0..HOSTS).map(|host| link(Node::Host(host), Node::Switch(host / per_leaf)));
    let up = (0..LEAVES * SPINES)
        .map(|n| link(Node::Switch(n / SPINES), Node::Switch(LEAVES + n % SPINES)));
    // Every host has 25 peers, all over the network.
    let flow = |n: usize| Flow {
        group: "all".into(),
        from: n % HOSTS,
        to: (n % HOSTS + 1 + n / HOSTS * 7) % HOSTS,
        start: 0,
        message: 16 << 10,
        messages,
        is_endless: false,
        depth: 1,
        gap: 0,
        verb: Verb::Write,
        dscp: 26,
        qp: None,
    };
    let mut classes = [0; 64];
    (classes[26], classes[48]) = (3, 6);
    let (mut ecn, mut pfc) = ([None; CLASSES], [None; CLASSES]);
    ecn[3] = Some(Ecn { kmin: 100 << 10, kmax: 400 << 10, pmax: 0.2 });
    pfc[3] = Some(Pfc { xoff: 300 << 10, xon: 200 << 10, headroom: 100 << 10 });
    Ok(Plan {
        seed: 1,
        topology: Topology {
            hosts: HOSTS,
            switches: LEAVES + SPINES,
            links: down.chain(up).collect(),
        },
        other_switches: BTreeMap::new(),
        switch: Switch { buffer: 32 << 20, ecn, pfc, alpha: 1.0 },
        host: Host {
            device: Config {
                congestion: Some("dcqcn,line_rate=100000000000".parse()?),
                ..Config::default()
            },
            mtu: Mtu::Mtu1024,
            timeout: 16,
            retry_cnt: 7,
            classes,
        },
        flows: (0..PAIRS).map(flow).collect(),
        faults: Vec::new(),
        until: 10_000_000_000,
        sample_every: 0,
        captures: Vec::new(),
    })
}
