//! A run in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Run;
use super::flows::{self, FlowFigures};
use super::stats::{FIGURES, Spread, Times, jain};
use crate::plan::Node;

/// A run in numbers. Nothing in it depends on the machine or on how long it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The name of the file.
    pub name: String,
    /// What was set beside it, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// Hosts of the network.
    pub hosts: usize,
    /// Switches of the network.
    pub switches: usize,
    /// When it ended, in microseconds.
    pub ended_us: f64,
    /// All flows.
    pub all: Group,
    /// The flows of each workload, by name.
    pub groups: Vec<Group>,
    /// Queues of switches.
    pub queue: QueueFigures,
    /// PFC.
    pub pfc: PfcFigures,
    /// Frames marked CE.
    pub marked: u64,
    /// Frames that found the buffer full.
    pub dropped: u64,
    /// Frames struck by a fault.
    pub struck: u64,
    /// Frames handed to links: each hop counts.
    pub hops: u64,
    /// Frames that devices have handled.
    pub delivered: u64,
    /// Counters of all devices together.
    pub counters: BTreeMap<&'static str, u64>,
}

/// Some flows in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Their workload's name.
    pub name: String,
    /// How many there are.
    pub flows: usize,
    /// How many have finished.
    pub finished: usize,
    /// How many have failed.
    pub failed: usize,
    /// How many had neither finished nor failed when the clock stopped; without endless ones.
    pub unfinished: usize,
    /// Bytes of payload that arrived, each once.
    pub bytes: u64,
    /// Payload of all together, from the first start (or the warm-up's end) to the last end.
    pub goodput_gbps: f64,
    /// Payload of each flow, from its start (or the warm-up's end) to its own end.
    pub flow_goodput_gbps: Option<Spread>,
    /// Jain's index of that.
    pub jain: Option<f64>,
    /// From a flow's start to its last completion; without endless flows.
    pub fct_us: Option<Times>,
    /// That, divided by the time it would take alone.
    pub slowdown: Option<Times>,
    /// The same by the flows' size.
    pub slowdown_by_size: Vec<Bucket>,
    /// From a message's post to its completion.
    pub latency_us: Option<Times>,
    /// Request packets sent again.
    pub retransmitted: u64,
}

/// A number of a run, as sweeps know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, with the unit.
    pub name: String,
    /// It; `None` where nothing was observed, or it is not known.
    pub value: Option<f64>,
    /// If it is not known, what it is at least.
    pub at_least: Option<f64>,
}

/// Flows of about a size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// More bytes than this.
    pub above: u64,
    /// But no more than this.
    pub up_to: u64,
    /// Their slowdown.
    pub slowdown: Times,
}

/// Queues of switches in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueFigures {
    /// The most bytes that one port held.
    pub max_bytes: u64,
    /// That port.
    pub max_port: Option<String>,
    /// The mean of the port whose mean is largest, after the warm-up; `None` without samples.
    pub mean_bytes: Option<f64>,
    /// That port.
    pub mean_port: Option<String>,
}

/// PFC in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PfcFigures {
    /// Pauses received.
    pub pauses: u64,
    /// Ports that received one.
    pub ports: usize,
    /// How long ports stood paused, all together.
    pub paused_us: f64,
}

impl Summary {
    /// Of a run.
    pub fn of(run: &Run<'_>, flows: &[FlowFigures]) -> Summary {
        let plan = &run.experiment.plan;
        let outcome = run.outcome;
        let mut counters = BTreeMap::new();
        for (name, value) in outcome.counters.iter().flatten() {
            *counters.entry(*name).or_default() += value;
        }
        let ports = &outcome.ports;
        Summary {
            name: run.name.to_owned(),
            set: run.set.to_vec(),
            seed: plan.seed,
            hosts: plan.topology.hosts,
            switches: plan.topology.switches,
            ended_us: outcome.ended as f64 / 1e3,
            all: Group::of("all", flows.iter()),
            groups: groups(flows),
            queue: queues(run),
            pfc: PfcFigures {
                pauses: ports.iter().flat_map(|port| port.pauses).sum(),
                ports: ports.iter().filter(|port| port.pauses != [0; 8]).count(),
                paused_us: ports.iter().flat_map(|port| port.paused).sum::<u64>() as f64 / 1e3,
            },
            marked: ports.iter().map(|port| port.marked).sum(),
            dropped: ports.iter().map(|port| port.dropped).sum(),
            struck: ports.iter().map(|port| port.struck).sum(),
            hops: outcome.hops,
            delivered: outcome.delivered,
            counters,
        }
    }

    /// Every number under the name that sweeps know it by, such as `jain` or `fct_p99_us`; with
    /// several workloads also those of each, such as `incast.jain`.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.all.metrics("");
        let mut add = |name: &str, value: Option<f64>| {
            metrics.push(Metric { name: name.to_owned(), value, at_least: None });
        };
        add("queue_max_bytes", Some(self.queue.max_bytes as f64));
        add("queue_mean_bytes", self.queue.mean_bytes);
        add("pfc_pauses", Some(self.pfc.pauses as f64));
        add("pfc_paused_us", Some(self.pfc.paused_us));
        add("marked", Some(self.marked as f64));
        add("dropped", Some(self.dropped as f64));
        add("struck", Some(self.struck as f64));
        add("ended_us", Some(self.ended_us));
        add("hops", Some(self.hops as f64));
        if self.groups.len() > 1 {
            for group in &self.groups {
                metrics.extend(group.metrics(&format!("{}.", group.name)));
            }
        }
        metrics
    }
}

impl Group {
    fn of<'f>(name: &str, flows: impl Iterator<Item = &'f FlowFigures>) -> Group {
        let flows: Vec<&FlowFigures> = flows.collect();
        let goodputs: Vec<f64> = flows.iter().filter_map(|flow| flow.goodput_gbps).collect();
        let begin = flows.iter().map(|flow| flow.begin).min().unwrap_or(0);
        let end = flows.iter().map(|flow| flow.end).max().unwrap_or(0);
        let measured: u64 = flows.iter().map(|flow| flow.measured).sum();
        Group {
            name: name.to_owned(),
            flows: flows.len(),
            finished: flows.iter().filter(|flow| flow.fct_us.is_some()).count(),
            failed: flows.iter().filter(|flow| flow.failed).count(),
            unfinished: flows.iter().filter(|flow| flow.is_unfinished()).count(),
            bytes: flows.iter().map(|flow| flow.delivered).sum(),
            goodput_gbps: match end.saturating_sub(begin) {
                0 => 0.0,
                time => measured as f64 * 8.0 / time as f64,
            },
            jain: jain(&goodputs),
            flow_goodput_gbps: Spread::of(goodputs),
            fct_us: flows::fct(&flows),
            slowdown: flows::slowdown(&flows),
            slowdown_by_size: buckets(&flows),
            latency_us: flows::latency(&flows),
            retransmitted: flows.iter().map(|flow| flow.retransmitted).sum(),
        }
    }

    fn metrics(&self, prefix: &str) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let mut add = |name: &str, value| {
            metrics.push(Metric { name: format!("{prefix}{name}"), value, at_least: None });
        };
        add("flows", Some(self.flows as f64));
        add("finished", Some(self.finished as f64));
        add("failed", Some(self.failed as f64));
        add("unfinished", Some(self.unfinished as f64));
        add("goodput_gbps", Some(self.goodput_gbps));
        let goodput = self.flow_goodput_gbps.as_ref();
        add("flow_goodput_mean_gbps", goodput.map(|spread| spread.mean));
        add("flow_goodput_min_gbps", goodput.map(|spread| spread.min));
        add("flow_goodput_max_gbps", goodput.map(|spread| spread.max));
        add("jain", self.jain);
        add("retransmitted", Some(self.retransmitted as f64));
        let spreads = [
            ("fct", "_us", &self.fct_us),
            ("slowdown", "", &self.slowdown),
            ("latency", "_us", &self.latency_us),
        ];
        for (name, unit, times) in spreads {
            let times = times.as_ref();
            metrics.extend(FIGURES.map(|(part, value, at_least)| {
                let value = times.and_then(value);
                let bounds = times.and_then(|times| times.at_least.as_ref());
                Metric {
                    name: format!("{prefix}{name}_{part}{unit}"),
                    at_least: bounds.filter(|_| value.is_none()).map(at_least),
                    value,
                }
            }));
        }
        metrics
    }
}

/// The groups, in the order in which they start.
fn groups(flows: &[FlowFigures]) -> Vec<Group> {
    let mut names = Vec::<&str>::new();
    for flow in flows {
        if !names.contains(&flow.group.as_str()) {
            names.push(&flow.group);
        }
    }
    let of = |name: &&str| Group::of(name, flows.iter().filter(|flow| flow.group == *name));
    names.iter().map(of).collect()
}

/// Slowdown by powers of ten of the size.
fn buckets(flows: &[&FlowFigures]) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let (mut above, mut up_to) = (0, 1_000);
    while above < u64::MAX {
        let inside = |flow: &&&FlowFigures| flow.size > above && flow.size <= up_to;
        let inside: Vec<&FlowFigures> = flows.iter().filter(inside).copied().collect();
        buckets.extend(flows::slowdown(&inside).map(|slowdown| Bucket { above, up_to, slowdown }));
        (above, up_to) = (up_to, if up_to >= 100_000_000 { u64::MAX } else { up_to * 10 });
    }
    buckets
}

/// Whether a port is one of a switch.
pub(super) fn is_switch_port(run: &Run<'_>, port: usize) -> bool {
    let link = run.experiment.plan.topology.links.get(port / 2);
    link.is_some_and(|link| matches!(link.ends[port % 2], Node::Switch(_)))
}

fn queues(run: &Run<'_>) -> QueueFigures {
    let outcome = run.outcome;
    let name = |port: usize| Some(run.experiment.network.port(port).to_owned());
    let mut figures = QueueFigures::default();
    let mut best_mean = -1.0;
    let samples: Vec<_> =
        outcome.samples.iter().filter(|sample| sample.at >= run.experiment.warmup).collect();
    for (port, record) in outcome.ports.iter().enumerate() {
        if !is_switch_port(run, port) {
            continue;
        }
        if record.max_queue > figures.max_bytes || figures.max_port.is_none() {
            figures.max_bytes = record.max_queue;
            figures.max_port = name(port);
        }
        if samples.is_empty() {
            continue;
        }
        let sum: u64 = samples.iter().filter_map(|sample| sample.queues.get(port)).sum();
        let mean = sum as f64 / samples.len() as f64;
        if mean > best_mean {
            best_mean = mean;
            figures.mean_bytes = Some(mean);
            figures.mean_port = name(port);
        }
    }
    figures
}
