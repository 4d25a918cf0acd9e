//! What hosts do, by the kinds of workload that researchers name.

mod kinds;
pub mod sizes;
mod trace;

use std::path::Path;

use ferroce::rand::Rng;
use ferroce_stack::MAX_MESSAGE;

use crate::config::error::Problem;
use crate::config::schema::{Kinds, WorkloadKeys, kind_of};
use crate::config::units::{Amount, Hosts, Size};
use crate::plan::{Flow, Verb};
use crate::topology::Network;

/// The most flows of an experiment.
pub const MAX_FLOWS: usize = 1_000_000;

/// Bytes of the messages of a flow that does not say and is larger.
const LARGE_MESSAGE: u64 = 1 << 20;

/// Keys that every kind has.
const COMMON: &[&str] = &["kind", "name", "start", "dscp"];

/// A kind of workload and the keys it has beside the common ones.
const KINDS: Kinds = &[
    ("flows", &["spread", "size", "message", "depth", "gap", "verb", "qps", "pairs"]),
    (
        "incast",
        &["spread", "size", "message", "depth", "gap", "verb", "qps", "from", "to", "senders"],
    ),
    ("permutation", &["spread", "size", "message", "depth", "gap", "verb", "qps", "hosts"]),
    ("all-to-all", &["spread", "size", "message", "depth", "gap", "verb", "qps", "hosts"]),
    (
        "request-response",
        &["spread", "depth", "gap", "qps", "clients", "servers", "request", "response", "requests"],
    ),
    ("poisson", &["verb", "from", "to", "sizes", "load", "flows", "until", "share-qp"]),
    ("trace", &["verb", "file", "share-qp"]),
];

/// What a workload is made from.
pub(crate) struct Maker<'a> {
    /// What it is called in errors, such as `workload[1]`.
    place: String,
    /// Its keys.
    keys: &'a WorkloadKeys,
    /// The name of its flows.
    group: String,
    /// The network.
    network: &'a Network,
    /// Files are sought here.
    folder: &'a Path,
    /// The end of the simulation.
    until: u64,
    rng: Rng,
    flows: Vec<Flow>,
    /// The first number of a shared QP pair that is free.
    next_qp: usize,
}

/// What all workloads have in common.
pub(crate) struct Setting<'a> {
    /// The network.
    pub network: &'a Network,
    /// Files are sought here.
    pub folder: &'a Path,
    /// The end of the simulation.
    pub until: u64,
    /// Decides all chance.
    pub seed: u64,
}

/// The flows of all workloads, by start. `present` tells which keys the n-th one has.
pub(crate) fn flows(
    setting: &Setting<'_>,
    workloads: &[WorkloadKeys],
    present: impl Fn(usize) -> Vec<String>,
) -> Result<Vec<Flow>, Problem> {
    if workloads.is_empty() {
        return Err(Problem::new("workload", "there is none: expected at least one [[workload]]"));
    }
    let mut flows = Vec::new();
    let mut next_qp = 0;
    for (index, keys) in workloads.iter().enumerate() {
        let place = format!("workload[{index}]");
        let kind = kind_of(&place, keys.kind.as_deref(), KINDS, COMMON, &present(index))?;
        let mut maker = Maker {
            group: keys.name.clone().unwrap_or_else(|| default_name(workloads, index, kind)),
            place,
            keys,
            network: setting.network,
            folder: setting.folder,
            until: setting.until,
            // What one workload draws does not depend on the others.
            rng: Rng::new(Rng::new(setting.seed.wrapping_add(index as u64 + 1)).next_u64()),
            flows: Vec::new(),
            next_qp,
        };
        maker.make(kind)?;
        if maker.flows.is_empty() {
            return Err(Problem::new(maker.place, "there is no flow in it: expected at least one"));
        }
        next_qp = maker.next_qp;
        flows.append(&mut maker.flows);
        if flows.len() > MAX_FLOWS {
            let message = format!("more than {MAX_FLOWS} flows");
            return Err(Problem::new(format!("workload[{index}]"), message));
        }
    }
    flows.sort_by_key(|flow| flow.start);
    Ok(flows)
}

/// A workload without a name has that of its kind, with a number from the second of them on.
fn default_name(workloads: &[WorkloadKeys], index: usize, kind: &str) -> String {
    let same = |keys: &&WorkloadKeys| keys.kind.as_deref() == Some(kind) && keys.name.is_none();
    match workloads[..index].iter().filter(same).count() {
        0 => kind.to_owned(),
        earlier => format!("{kind}-{}", earlier + 1),
    }
}

impl Maker<'_> {
    fn make(&mut self, kind: &str) -> Result<(), Problem> {
        if self.keys.dscp.is_some_and(|dscp| dscp > 63) {
            return Err(self.problem("dscp", "expected 0 to 63"));
        }
        match kind {
            "flows" => self.make_flows(),
            "incast" => self.make_incast(),
            "permutation" => self.make_permutation(),
            "all-to-all" => self.make_all_to_all(),
            "request-response" => self.make_request_response(),
            "poisson" => self.make_poisson(),
            _ => self.make_trace(),
        }
    }

    fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        Problem::new(format!("{}.{key}", self.place), message)
    }

    /// The hosts that a key names, or those that it stands for.
    fn hosts(&self, key: &str, value: &Option<Hosts>) -> Result<Vec<usize>, Problem> {
        let count = self.network.topology.hosts;
        let hosts = value.as_ref().unwrap_or(&Hosts::All).resolve(count).map_err(|missing| {
            self.problem(key, format!("no host h{missing}: expected h0 to h{}", count - 1))
        })?;
        let mut sorted = hosts.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.problem(key, format!("h{} is there twice", pair[0]))),
            None => Ok(hosts),
        }
    }

    /// The verb of its flows.
    fn verb(&self) -> Result<Verb, Problem> {
        match self.keys.verb.as_deref() {
            None | Some("write") => Ok(Verb::Write),
            Some("send") => Ok(Verb::Send),
            Some("read") => Ok(Verb::Read),
            Some(other) => Err(self
                .problem("verb", format!("'{other}': expected \"write\", \"send\" or \"read\""))),
        }
    }

    /// A message's bytes, from a key.
    fn message(&self, key: &str, size: Size) -> Result<u64, Problem> {
        match size.0 {
            1..=MAX_MESSAGE => Ok(size.0),
            _ => Err(self.problem(key, "expected 1 byte to 2 GiB")),
        }
    }

    /// Bytes and number of the messages of a flow from this host.
    fn messages(&self, from: usize) -> Result<(u64, u64), Problem> {
        let message = match self.keys.message {
            Some(size) => Some(self.message("message", size)?),
            None => None,
        };
        match self.keys.size {
            None => Err(self.problem("size", "missing: expected a size such as \"1 MiB\"")),
            Some(Amount::Bytes(0)) => Err(self.problem("size", "expected at least 1 byte")),
            Some(Amount::Bytes(size)) => {
                let message = message.unwrap_or(match size {
                    ..=MAX_MESSAGE => size,
                    _ => LARGE_MESSAGE,
                });
                match size.is_multiple_of(message) {
                    true => Ok((message, size / message)),
                    false => Err(self.problem("size", "expected a multiple of the message's")),
                }
            }
            Some(Amount::Endless) => {
                let message = message.unwrap_or(LARGE_MESSAGE);
                let rate = self.network.host_rate(from);
                let bytes = u128::from(rate) * u128::from(self.until) / 8_000_000_000;
                Ok((message, (bytes / u128::from(message)) as u64 + 2))
            }
        }
    }

    /// How many messages are posted at a time.
    fn depth(&self, default: u32) -> Result<u32, Problem> {
        match self.keys.depth.unwrap_or(default) {
            depth @ 1..=4096 => Ok(depth),
            _ => Err(self.problem("depth", "expected 1 to 4096")),
        }
    }

    /// A start, with what chance adds to it.
    fn start(&mut self) -> u64 {
        let spread = self.keys.spread.unwrap_or_default().0;
        self.keys.start.unwrap_or_default().0.saturating_add(self.rng.below(spread))
    }

    /// Flows between two hosts, by the keys that most kinds have.
    fn connect(&mut self, from: usize, to: usize) -> Result<(), Problem> {
        let (message, messages) = self.messages(from)?;
        let verb = self.verb()?;
        let depth = self.depth(2)?;
        self.add(from, to, message, messages, depth, verb)
    }

    /// A flow on each of the QP pairs between two hosts.
    fn add(
        &mut self,
        from: usize,
        to: usize,
        message: u64,
        messages: u64,
        depth: u32,
        verb: Verb,
    ) -> Result<(), Problem> {
        for _ in 0..self.keys.qps.unwrap_or(1) {
            if self.flows.len() == MAX_FLOWS {
                let message = format!("more than {MAX_FLOWS} flows");
                return Err(Problem::new(self.place.clone(), message));
            }
            let start = self.start();
            self.flows.push(Flow {
                group: self.group.clone(),
                from,
                to,
                start,
                message,
                messages,
                is_endless: matches!(self.keys.size, Some(Amount::Endless)),
                depth,
                gap: self.keys.gap.unwrap_or_default().0,
                verb,
                dscp: self.keys.dscp.unwrap_or(DEFAULT_DSCP),
                qp: None,
            });
        }
        Ok(())
    }
}

/// DSCP of packets, unless a workload says another: the one usual for RoCE, of class 3.
pub const DEFAULT_DSCP: u8 = 26;
