//! The whole network at work.

use std::collections::BTreeMap;

use ferroce_stack::Config;
use ferroce_stack::verbs::Mtu;

use super::pause::Pause;
use super::*;
use crate::plan::{CLASSES, Ecn, Fault, Flow, Link, Pfc, Topology, Verb};

const GIGABIT: u64 = 1_000_000_000;
const SECOND: u64 = 1_000_000_000;
const KILOBYTE: u64 = 1024;

fn link(a: Node, b: Node) -> Link {
    Link { ends: [a, b], rate: 10 * GIGABIT, delay: 1000 }
}

/// Hosts around one switch.
fn star(hosts: usize) -> Topology {
    let links = (0..hosts).map(|host| link(Node::Host(host), Node::Switch(0))).collect();
    Topology { hosts, switches: 1, links }
}

/// `leaves` switches with `hosts` each, every one linked with all of `spines` more.
fn leaf_spine(leaves: usize, hosts: usize, spines: usize) -> Topology {
    let all = leaves * hosts;
    let mut links: Vec<Link> =
        (0..all).map(|host| link(Node::Host(host), Node::Switch(host / hosts))).collect();
    let between = (0..leaves).flat_map(|leaf| (0..spines).map(move |spine| (leaf, spine)));
    links.extend(
        between.map(|(leaf, spine)| link(Node::Switch(leaf), Node::Switch(leaves + spine))),
    );
    Topology { hosts: all, switches: leaves + spines, links }
}

fn flow(from: usize, to: usize, message: u64) -> Flow {
    Flow {
        group: String::new(),
        from,
        to,
        start: 0,
        message,
        messages: 1,
        is_endless: false,
        depth: 1,
        gap: 0,
        verb: Verb::Write,
        dscp: 26,
        qp: None,
    }
}

fn plan(topology: Topology, flows: Vec<Flow>) -> Plan {
    let mut classes = [0; 64];
    classes[26] = 3;
    classes[48] = 6;
    Plan {
        seed: 1,
        topology,
        other_switches: BTreeMap::new(),
        switch: crate::plan::Switch {
            buffer: 1 << 20,
            ecn: [None; CLASSES],
            pfc: [None; CLASSES],
            alpha: 1.0,
        },
        host: crate::plan::Host {
            device: Config::default(),
            mtu: Mtu::Mtu1024,
            timeout: 10,
            retry_cnt: 7,
            classes,
        },
        flows,
        faults: Vec::new(),
        until: SECOND,
        sample_every: 0,
        captures: Vec::new(),
    }
}

fn simulate(plan: &Plan) -> Outcome {
    run(plan, &mut |_| {}).unwrap()
}

/// All flows have finished with all their bytes.
fn complete(plan: &Plan) -> Outcome {
    let outcome = simulate(plan);
    for (flow, record) in plan.flows.iter().zip(&outcome.flows) {
        let bytes = flow.message * flow.messages;
        assert_eq!((record.bytes, record.delivered), (bytes, bytes), "{flow:?} {record:?}");
        assert!(record.finished.is_some() && record.failed.is_none(), "{flow:?} {record:?}");
        assert_eq!(record.latencies.len() as u64, flow.messages);
    }
    outcome
}

fn counter(outcome: &Outcome, host: usize, name: &str) -> u64 {
    outcome.counters[host].iter().find(|(other, _)| *other == name).map_or(0, |&(_, count)| count)
}

fn dropped(outcome: &Outcome) -> u64 {
    outcome.ports.iter().map(|port| port.dropped).sum()
}

fn fault(link: Option<usize>, rule: &str) -> Fault {
    Fault { link, rule: rule.parse().unwrap() }
}

/// 32 hosts send to one at once.
fn incast(senders: usize) -> Plan {
    let flows = (1..=senders).map(|from| flow(from, 0, 256 * KILOBYTE)).collect();
    plan(star(senders + 1), flows)
}

fn pausing() -> [Option<Pfc>; CLASSES] {
    let mut pfc = [None; CLASSES];
    pfc[3] = Some(Pfc { xoff: 8 * KILOBYTE, xon: 4 * KILOBYTE, headroom: 16 * KILOBYTE });
    pfc
}

#[test]
fn a_message_takes_the_time_its_bits_and_the_way_take() {
    // A full packet is 1098 bytes and 24 of framing, an ACK 62 and 24.
    let (data, ack) = (1122 * 8, 86 * 8);
    let cable = Link { ends: [Node::Host(0), Node::Host(1)], rate: GIGABIT, delay: 700 };
    let topology = Topology { hosts: 2, switches: 0, links: vec![cable] };
    let outcome = complete(&plan(topology, vec![flow(0, 1, 1024)]));
    assert_eq!(outcome.flows[0].latencies, [data + ack + 2 * 700]);
    assert_eq!((outcome.hops, outcome.delivered), (2, 2));

    let mut around = star(2);
    around.links.iter_mut().for_each(|link| link.rate = GIGABIT);
    let outcome = complete(&plan(around.clone(), vec![flow(0, 1, 1024)]));
    assert_eq!(outcome.flows[0].latencies, [2 * (data + ack + 2 * 1000)]);

    // Of two packets the second, without a RETH, waits for the first at the switch.
    let outcome = complete(&plan(around, vec![flow(0, 1, 2048)]));
    let first = 1122 * 8;
    let second = (1122 - 16) * 8;
    assert_eq!(outcome.flows[0].latencies, [2 * first + second + 2 * ack + 4 * 1000]);
}

#[test]
fn fractions_of_a_nanosecond_add_up() {
    let mut topology = star(2);
    topology.links.iter_mut().for_each(|link| link.rate = 400 * GIGABIT);
    let mut one = plan(topology, vec![flow(0, 1, 1 << 20)]);
    one.host.device.window = 1 << 20;
    let outcome = complete(&one);
    // All packets one after the other, of which the first has a RETH and goes over two links.
    let bits = (2 * 1122 + 1023 * (1122 - 16) + 2 * 86) * 8;
    assert_eq!(outcome.flows[0].latencies, [bits / 400 + 4000]);
}

#[test]
fn every_verb_moves_its_bytes() {
    for verb in [Verb::Write, Verb::Send, Verb::Read, Verb::Request(3000), Verb::Request(0)] {
        let many = Flow { verb, messages: 20, depth: 3, ..flow(0, 1, 5000) };
        let outcome = complete(&plan(star(2), vec![many.clone(), Flow { gap: 100, ..many }]));
        assert_eq!(outcome.flows[0].retransmitted, 0, "{verb:?}");
        assert_eq!(counter(&outcome, 1, "send_rnr_err"), 0);
    }
}

#[test]
fn flows_that_share_a_qp_are_told_apart() {
    let verbs = [Verb::Send, Verb::Request(100), Verb::Write, Verb::Send, Verb::Request(9000)];
    let share = |(number, verb)| Flow {
        verb,
        messages: 30,
        depth: 4,
        qp: Some(7),
        ..flow(0, 1, 1000 * (number as u64 + 1))
    };
    let flows: Vec<Flow> = verbs.into_iter().enumerate().map(share).collect();
    let outcome = complete(&plan(star(2), flows.clone()));
    assert_eq!(dropped(&outcome), 0);
    let mut lossy = plan(star(2), flows);
    lossy.faults.push(fault(None, "drop 2% of any"));
    complete(&lossy);
}

#[test]
fn a_gap_is_kept_between_completion_and_post() {
    let paced = Flow { messages: 5, gap: 10_000, ..flow(0, 1, 100) };
    let mut slow = plan(star(2), vec![paced]);
    slow.topology.links.iter_mut().for_each(|link| link.rate = GIGABIT);
    let outcome = complete(&slow);
    let busy: u64 = outcome.flows[0].latencies.iter().sum();
    assert_eq!(outcome.ended, busy + 4 * 10_000);
}

#[test]
fn senders_share_a_link_and_fill_it() {
    let mut two = incast(2);
    two.switch.pfc = pausing();
    let outcome = complete(&two);
    let frames = 2 * 256;
    let least = frames * (1122 - 16) * 8 / 10;
    assert!((least..least + 20_000).contains(&outcome.ended), "{} {least}", outcome.ended);
    let finished = outcome.flows.iter().filter_map(|flow| flow.finished);
    assert!(finished.min().unwrap() > least * 9 / 10);
}

#[test]
fn pauses_keep_an_incast_from_losing_anything() {
    let mut many = incast(32);
    many.switch.buffer = 33 * 16 * KILOBYTE + 300 * KILOBYTE;
    let without = complete(&many);
    assert!(dropped(&without) > 0);
    assert!(without.flows.iter().map(|flow| flow.retransmitted).sum::<u64>() > 0);
    many.switch.pfc = pausing();
    let with = complete(&many);
    assert_eq!(dropped(&with), 0);
    assert!(with.flows.iter().all(|flow| flow.retransmitted == 0));
    for host in 1..=32 {
        let port = &with.ports[2 * host];
        assert!(port.pauses[3] > 0 && port.paused[3] > 0, "{port:?}");
        assert_eq!((port.pauses[0], port.paused[0]), (0, 0));
    }
    assert!(with.ended < without.ended);
}

#[test]
fn long_pauses_are_asked_for_again() {
    // All quanta of a class are over after 839 us at 40 Gb/s; the receiver's link is slow.
    let mut slow = incast(4);
    slow.topology.links.iter_mut().for_each(|link| link.rate = 40 * GIGABIT);
    slow.topology.links[0].rate = GIGABIT / 10;
    slow.host.timeout = 20;
    slow.switch.pfc = pausing();
    let outcome = complete(&slow);
    assert_eq!(dropped(&outcome), 0);
    assert!(outcome.ports[2].pauses[3] > 5, "{:?}", outcome.ports[2]);
}

#[test]
fn a_flow_suffers_from_pauses_meant_for_another() {
    // Hosts 0 to 3 at one switch, 4 and 5 at the other: 0 to 2 overload 4, 3 sends to 5.
    let mut links: Vec<Link> =
        (0..6).map(|host| link(Node::Host(host), Node::Switch(host / 4))).collect();
    links.push(Link { rate: 40 * GIGABIT, ..link(Node::Switch(0), Node::Switch(1)) });
    let topology = Topology { hosts: 6, switches: 2, links };
    let mut flows = vec![flow(3, 5, 1 << 20)];
    let alone = complete(&plan(topology.clone(), flows.clone())).flows[0].finished.unwrap();
    flows.extend((0..3).map(|from| flow(from, 4, 2 << 20)));
    let mut crowded = plan(topology, flows);
    crowded.switch.pfc = pausing();
    let outcome = complete(&crowded);
    let victim = outcome.flows[0].finished.unwrap();
    assert!(victim > alone * 2, "{victim} {alone}");
    assert!(outcome.ports[12].paused[3] > 0, "the link between the switches was never paused");
    // In another class it does not.
    crowded.flows[0].dscp = 48;
    let other = complete(&crowded).flows[0].finished.unwrap();
    assert!(other < alone * 11 / 10, "{other} {alone}");
}

#[test]
fn a_paused_class_does_not_stop_another_of_the_same_host() {
    let mut both = incast(4);
    both.switch.pfc = pausing();
    both.flows.push(Flow { dscp: 48, messages: 10, ..flow(1, 0, 64) });
    let outcome = complete(&both);
    let urgent = outcome.flows.last().unwrap().finished.unwrap();
    assert!(urgent < outcome.flows[0].finished.unwrap() / 4, "{urgent}");
}

#[test]
fn notifications_slow_senders_down_until_the_queue_is_short() {
    let mut two = incast(2);
    for flow in &mut two.flows {
        flow.message = 8 << 20;
    }
    two.switch.buffer = 4 << 20;
    let deepest = |plan: &Plan| complete(plan).ports[1].max_queue;
    assert!(deepest(&two) > 200 * KILOBYTE);
    two.host.device.congestion = Some("dcqcn".parse().unwrap());
    two.switch.ecn[3] = Some(Ecn { kmin: 5 * KILOBYTE, kmax: 200 * KILOBYTE, pmax: 0.01 });
    two.sample_every = 1_000_000;
    let outcome = complete(&two);
    assert!(outcome.ports[1].marked > 0);
    assert!(counter(&outcome, 0, "np_cnp_sent") > 0);
    assert!(counter(&outcome, 1, "rp_cnp_handled") > 0);
    let last = &outcome.samples[outcome.samples.len() - 3];
    assert!(last.rates.iter().all(|rate| (1..10 * GIGABIT).contains(rate)), "{last:?}");
    assert!(last.queues[1] < 100 * KILOBYTE, "{last:?}");
}

#[test]
fn a_switch_of_its_own_marks_and_pauses_where_others_do_not() {
    let links = vec![
        link(Node::Host(0), Node::Switch(0)),
        Link { rate: GIGABIT, ..link(Node::Host(1), Node::Switch(1)) },
        link(Node::Switch(0), Node::Switch(1)),
    ];
    let topology = Topology { hosts: 2, switches: 2, links };
    let mut slow = plan(topology, vec![flow(0, 1, 1 << 20)]);
    slow.faults.push(fault(Some(0), "corrupt ecn to 1 of rc-write"));
    let mut other = slow.switch.clone();
    other.ecn[3] = Some(Ecn { kmin: 0, kmax: 0, pmax: 0.0 });
    other.pfc = pausing();
    slow.other_switches.insert(1, other);
    let outcome = complete(&slow);
    let [first, .., last] = &outcome.ports[..] else { panic!("six ports") };
    let marked: Vec<u64> = outcome.ports.iter().map(|port| port.marked).collect();
    // Of all ways out of a switch, the one to the receiver.
    assert_eq!(marked, [0, 0, 0, 1024, 0, 0]);
    // What the second switch pauses is the first, which then has room, and pauses nobody.
    assert!(last.pauses[3] + outcome.ports[4].pauses[3] > 0, "{outcome:?}");
    assert_eq!(first.pauses[3] + outcome.ports[1].pauses[3], 0, "{outcome:?}");
}

#[test]
fn marks_come_as_often_as_the_queue_says() {
    let ecn = Ecn { kmin: 20 * KILOBYTE, kmax: 100 * KILOBYTE, pmax: 0.5 };
    for (queue, probability) in
        [(0, 0.0), (20, 0.0), (60, 0.25), (99, 0.49), (100, 1.0), (500, 1.0)]
    {
        assert!((ecn.probability(queue * KILOBYTE) - probability).abs() < 0.01, "{queue}");
    }
    let mut marking = incast(2);
    marking.switch.ecn[3] = Some(Ecn { kmin: 0, kmax: 1 << 30, pmax: 1.0 });
    marking.switch.buffer = 1 << 24;
    // Nothing says that it is ECN-capable: nothing is marked.
    let outcome = complete(&marking);
    assert_eq!(outcome.ports[1].marked, 0);
    for link in 1..=2 {
        marking.faults.push(fault(Some(link), "corrupt ecn to 1 of rc-write"));
    }
    marking.switch.ecn[3] = Some(Ecn { kmin: 0, kmax: 256 * KILOBYTE, pmax: 0.2 });
    let outcome = complete(&marking);
    // The queue grows to 256 KB and shrinks to none: half of the greatest probability.
    let marked = outcome.ports[1].marked;
    assert!((20..80).contains(&marked), "{marked}");
    marking.switch.ecn[3] = Some(Ecn { kmin: 0, kmax: 0, pmax: 0.0 });
    assert_eq!(complete(&marking).ports[1].marked, 512);
}

#[test]
fn flows_spread_over_paths_of_equal_length() {
    let topology = leaf_spine(2, 8, 4);
    let flows = (0..128).map(|n| flow(n % 8, 8 + n / 8 % 8, 10_000)).collect();
    let outcome = complete(&plan(topology, flows));
    // Links 16 to 19 lead from the first leaf to the spines.
    for uplink in 16..20 {
        let frames = outcome.ports[2 * uplink].frames;
        assert!((128 * 10 / 8..128 * 10 / 2).contains(&frames), "{frames} of 1280");
    }
    // A flow keeps to its path: nothing comes out of order.
    assert!(outcome.counters.iter().flatten().all(|&(name, _)| name != "out_of_seq_request"));
}

#[test]
fn the_same_plan_has_the_same_outcome() {
    let mut random = incast(8);
    random.faults.push(fault(None, "drop 1% of any"));
    random.faults.push(fault(Some(3), "reorder 5% of any by 20us"));
    random.sample_every = 10_000;
    random.captures = vec![0];
    let outcome = complete(&random);
    assert!(!outcome.samples.is_empty() && !outcome.captures.is_empty());
    assert_eq!(outcome, simulate(&random));
    random.seed = 2;
    assert_ne!(outcome, simulate(&random));
}

#[test]
fn faults_strike_on_their_links() {
    let strike = |link, rule: &str| {
        let mut struck = plan(star(3), vec![flow(0, 1, 100_000), flow(2, 1, 100_000)]);
        struck.faults.push(fault(link, rule));
        complete(&struck)
    };
    let outcome = strike(Some(0), "drop 5th rc-write");
    assert!(outcome.flows[0].retransmitted > 0);
    assert_eq!((outcome.flows[1].retransmitted, outcome.ports[0].struck), (0, 1));
    let outcome = strike(Some(0), "corrupt 5th rc-write");
    assert!(outcome.flows[0].retransmitted > 0);
    let outcome = strike(Some(0), "duplicate 5th rc-write");
    assert_eq!(counter(&outcome, 1, "duplicate_request"), 1);
    let outcome = strike(Some(2), "delay 5th rc-write by 5us");
    assert!(outcome.flows[1].retransmitted > 0 && counter(&outcome, 1, "out_of_seq_request") > 0);
    let outcome = strike(None, "drop 5th rc-write");
    let struck: u64 = outcome.ports.iter().map(|port| port.struck).sum();
    assert_eq!(struck, 3, "one on each link");
}

#[test]
fn a_flow_that_cannot_get_through_fails() {
    let mut cut = plan(star(2), vec![flow(0, 1, 100), Flow { qp: None, ..flow(1, 0, 100) }]);
    cut.faults.push(fault(Some(0), "drop rc-write from node 0"));
    cut.host.timeout = 5;
    let outcome = simulate(&cut);
    assert_eq!(outcome.flows[0].failed.as_deref(), Some("transport retry counter exceeded"));
    assert_eq!(outcome.flows[0].finished, None);
    assert!(outcome.flows[1].finished.is_some());
    cut.until = 1000;
    let outcome = simulate(&cut);
    assert_eq!(outcome.ended, 1000);
    assert_eq!(outcome.flows[0].failed, None);
}

#[test]
fn captures_hold_both_ways_and_the_pauses() {
    let mut seen = incast(4);
    seen.switch.pfc = pausing();
    seen.captures = vec![2];
    let outcome = complete(&seen);
    assert!(outcome.captures.is_sorted_by_key(|captured| captured.at));
    let frames = outcome.ports[2].frames + outcome.ports[3].frames;
    assert_eq!(outcome.captures.len() as u64, frames);
    let pauses: Vec<Pause> =
        outcome.captures.iter().filter_map(|captured| Pause::parse(&captured.frame)).collect();
    let sent = pauses.iter().filter(|pause| pause.quanta[3] > 0).count() as u64;
    assert_eq!(sent, outcome.ports[2].pauses[3]);
    assert_eq!(sent, outcome.ports[3].pauses_sent[3]);
    assert_eq!((outcome.ports[3].pauses, outcome.ports[2].pauses_sent), ([0; 8], [0; 8]));
    assert!(pauses.iter().any(|pause| pause.quanta[3] == 0 && pause.classes == 8));
}

#[test]
fn samples_show_queues_and_progress() {
    let mut sampled = incast(4);
    sampled.sample_every = 50_000;
    let outcome = complete(&sampled);
    // And what came after the last of them, at the end.
    assert_eq!(outcome.samples.len() as u64, outcome.ended.div_ceil(50_000) + 1);
    assert_eq!(outcome.samples.last().unwrap().at, outcome.ended);
    let longest = outcome.samples.iter().map(|sample| sample.longest[1]).max().unwrap();
    assert_eq!(longest, outcome.ports[1].max_queue);
    let deepest = outcome.samples.iter().map(|sample| sample.queues[1]).max().unwrap();
    assert!(deepest > 0 && deepest <= outcome.ports[1].max_queue);
    for (before, after) in outcome.samples.iter().zip(&outcome.samples[1..]) {
        assert!(before.delivered.iter().zip(&after.delivered).all(|(a, b)| a <= b));
    }
}

#[test]
fn impossible_plans_are_refused_with_a_reason() {
    type Spoil = fn(&mut Plan);
    let table: [(Spoil, &str); 20] = [
        (|p| p.topology.links[1].rate = 0, "link 1: rate is 0, and must be"),
        (|p| p.topology.hosts = 4, "host 3 has no link"),
        (|p| p.topology.links.push(link(Node::Host(1), Node::Switch(0))), "host 1 has 2 links"),
        (|p| p.topology.links[0].ends[1] = Node::Switch(9), "link 0 ends at switch 9"),
        (|p| p.topology.links.push(link(Node::Switch(0), Node::Switch(0))), "link 3 has both ends"),
        (
            |p| {
                p.topology.switches = 2;
                p.topology.links[2].ends[1] = Node::Switch(1);
            },
            "flow 0: there is no way from host 2 to host 0",
        ),
        (|p| p.flows[0].to = 3, "flow 0: to is 3"),
        (|p| p.flows[0].to = 2, "flow 0: to is 2"),
        (|p| p.flows[0].message = 0, "flow 0: message is 0"),
        (|p| p.flows[0].messages = 0, "flow 0: messages is 0"),
        (|p| p.flows[0].depth = 0, "flow 0: depth is 0"),
        (|p| p.flows[0].dscp = 64, "flow 0: dscp is 64"),
        (|p| p.switch.alpha = f64::NAN, "switch: alpha is NaN"),
        (
            |p| p.switch.pfc[3] = Some(Pfc { xoff: 1, xon: 2, headroom: 0 }),
            "switch, class 3: xon is 2",
        ),
        (
            |p| p.switch.pfc[3] = Some(Pfc { xoff: 1, xon: 1, headroom: 1 << 20 }),
            "switch 0: its ports' headroom is 3145728 bytes, and its buffer 1048576",
        ),
        (
            |p| {
                let pfc = Some(Pfc { xoff: 1, xon: 2, headroom: 0 });
                let other = crate::plan::Switch { pfc: [pfc; CLASSES], ..p.switch.clone() };
                p.other_switches.insert(0, other);
            },
            "switch 0, class 0: xon is 2",
        ),
        (|p| _ = p.other_switches.insert(1, p.switch.clone()), "other_switches: switch is 1"),
        (|p| p.host.classes[5] = 8, "host: class of a DSCP is 8"),
        (|p| p.captures = vec![99], "captures: port is 99"),
        (|p| p.faults = vec![fault(Some(3), "drop any")], "fault: link is 3"),
    ];
    for (spoil, reason) in table {
        let mut spoilt = plan(star(3), vec![flow(2, 0, 100)]);
        spoil(&mut spoilt);
        let error = run(&spoilt, &mut |_| {}).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
    let shared = |to| Flow { qp: Some(5), ..flow(0, to, 100) };
    let error = run(&plan(star(3), vec![shared(1), shared(2)]), &mut |_| {}).unwrap_err();
    assert_eq!(error, SimError::UnequalFlows { flows: [0, 1], qp: 5 });
}

#[test]
fn two_hundred_hosts_and_ten_thousand_qps() {
    let mut topology = leaf_spine(20, 10, 10);
    topology.links.iter_mut().for_each(|link| link.rate = 100 * GIGABIT);
    let pair = |n: usize| flow(n % 200, (n % 200 + 1 + n / 200 * 3) % 200, 4000);
    let mut large = plan(topology, (0..5_000).map(pair).collect());
    large.switch.buffer = 16 << 20;
    let mut reports = 0;
    let outcome = run(&large, &mut |progress| {
        reports += 1;
        assert!(progress.flows_over <= 5_000);
    })
    .unwrap();
    assert!(outcome.flows.iter().all(|flow| flow.finished.is_some() && flow.bytes == 4000));
    assert!(reports > 1);
}
