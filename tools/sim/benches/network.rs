//! What a simulated packet costs: time for each that a device has handled, ACKs among them.
//!
//! `star` is one switch between 16 hosts, each of which sends to the next; `leaf-spine` has three
//! switches on the way between most of its 64 hosts; `transport` is the same work as `star` between
//! two hosts on one cable, and so hardly more than what the transport itself takes.

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ferroce_sim::plan::{CLASSES, Flow, Host, Link, Node, Pfc, Plan, Switch, Topology, Verb};
use ferroce_sim::run;
use ferroce_stack::Config;
use ferroce_stack::verbs::Mtu;

const RATE: u64 = 100_000_000_000;

fn link(a: Node, b: Node) -> Link {
    Link { ends: [a, b], rate: RATE, delay: 500 }
}

fn cable() -> Topology {
    Topology { hosts: 2, switches: 0, links: vec![link(Node::Host(0), Node::Host(1))] }
}

fn star(hosts: usize) -> Topology {
    let links = (0..hosts).map(|host| link(Node::Host(host), Node::Switch(0))).collect();
    Topology { hosts, switches: 1, links }
}

fn leaf_spine(leaves: usize, hosts: usize, spines: usize) -> Topology {
    let all = leaves * hosts;
    let down = (0..all).map(|host| link(Node::Host(host), Node::Switch(host / hosts)));
    let up = (0..leaves * spines)
        .map(|n| link(Node::Switch(n / spines), Node::Switch(leaves + n % spines)));
    Topology { hosts: all, switches: leaves + spines, links: down.chain(up).collect() }
}

/// Every host sends `messages` of 64 KiB to the one `stride` further.
fn plan(topology: Topology, stride: usize, messages: u64) -> Plan {
    let hosts = topology.hosts;
    let flow = |from| Flow {
        group: String::new(),
        from,
        to: (from + stride) % hosts,
        start: 0,
        message: 64 << 10,
        messages,
        is_endless: false,
        depth: 2,
        gap: 0,
        verb: Verb::Write,
        dscp: 0,
        qp: None,
    };
    let pfc = Pfc { xoff: 100_000, xon: 50_000, headroom: 100_000 };
    Plan {
        seed: 1,
        flows: (0..hosts).map(flow).collect(),
        topology,
        other_switches: BTreeMap::new(),
        switch: Switch {
            buffer: 64 << 20,
            ecn: [None; CLASSES],
            pfc: [Some(pfc), None, None, None, None, None, None, None],
            alpha: 1.0,
        },
        host: Host {
            device: Config::default(),
            mtu: Mtu::Mtu1024,
            timeout: 14,
            retry_cnt: 7,
            classes: [0; 64],
        },
        faults: Vec::new(),
        until: u64::MAX,
        sample_every: 0,
        captures: Vec::new(),
    }
}

fn packets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packet");
    group.sample_size(10);
    let plans = [
        ("transport", plan(cable(), 1, 320)),
        ("star", plan(star(16), 1, 40)),
        ("leaf-spine", plan(leaf_spine(8, 8, 4), 9, 40)),
    ];
    for (name, plan) in plans {
        let outcome = run(&plan, &mut |_| {}).expect("a plan that can be simulated");
        assert!(outcome.flows.iter().all(|flow| flow.finished.is_some()));
        let hops = outcome.hops as f64 / outcome.delivered as f64;
        println!("{name}: {} packets, {hops:.2} hops each", outcome.delivered);
        group.throughput(Throughput::Elements(outcome.delivered));
        group.bench_with_input(BenchmarkId::from_parameter(name), &plan, |bencher, plan| {
            bencher.iter(|| black_box(run(plan, &mut |_| {})));
        });
    }
    group.finish();
}

criterion_group!(benches, packets);
criterion_main!(benches);
