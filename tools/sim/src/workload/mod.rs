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

/// Bytes of all messages of a flow: more than any network carries in the longest run.
pub const MAX_FLOW: u64 = 1 << 60;

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
    ("poisson", &["verb", "from", "to", "sizes", "load", "flows", "until", "share_qp"]),
    ("trace", &["verb", "file", "share_qp"]),
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

/// The flows of all workloads, by start, and what may not be meant of them. `present` tells which
/// keys the n-th one has.
pub(crate) fn flows(
    setting: &Setting<'_>,
    workloads: &[WorkloadKeys],
    present: impl Fn(usize) -> Vec<String>,
) -> Result<(Vec<Flow>, Vec<String>), Problem> {
    if workloads.is_empty() {
        return Err(Problem::new("workload", "there is none: expected at least one [[workload]]"));
    }
    check_names(workloads)?;
    let given: Vec<_> =
        workloads.iter().map(|keys| (keys.name.clone(), keys.kind.clone())).collect();
    let mut names = names(&given).into_iter();
    let (mut flows, mut notes) = (Vec::new(), Vec::new());
    let mut next_qp = 0;
    for (index, keys) in workloads.iter().enumerate() {
        let place = format!("workload[{index}]");
        let kind = kind_of(&place, keys.kind.as_deref(), KINDS, COMMON, &present(index))?;
        let mut maker = Maker {
            group: names.next().unwrap_or_default(),
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
        notes.extend(maker.check_starts(kind)?);
        next_qp = maker.next_qp;
        flows.append(&mut maker.flows);
        if flows.len() > MAX_FLOWS {
            let message = format!("more than {MAX_FLOWS} flows");
            return Err(Problem::new(format!("workload[{index}]"), message));
        }
    }
    flows.sort_by_key(|flow| flow.start);
    Ok((flows, notes))
}

/// What workloads are called, by the `name` and `kind` of each: one without a name has that of its
/// kind, from the second of them on with a number.
pub(crate) fn names(given: &[(Option<String>, Option<String>)]) -> Vec<String> {
    let mut names: Vec<String> =
        given.iter().map(|(name, _)| name.clone().unwrap_or_default()).collect();
    for (index, (name, kind)) in given.iter().enumerate() {
        let (None, Some(kind)) = (name, kind) else { continue };
        let kind = kind.replace('_', "-");
        let numbered = (2..).map(|number| format!("{kind}-{number}"));
        let mut candidates = std::iter::once(kind.clone()).chain(numbered);
        names[index] = candidates.find(|name| !names.contains(name)).unwrap_or_default();
    }
    names
}

/// Whether names can be told from each other, and from all else in keys and metrics.
fn check_names(workloads: &[WorkloadKeys]) -> Result<(), Problem> {
    for (index, keys) in workloads.iter().enumerate() {
        let Some(name) = &keys.name else { continue };
        let twin = workloads[..index].iter().position(|other| other.name.as_ref() == Some(name));
        let message = match twin {
            Some(twin) => format!("'{name}' is that of workload[{twin}]: expected another"),
            None if name == "all" => {
                "'all' is what all together are called: expected another".to_owned()
            }
            None if name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("'{name}': expected a name that is no number, such as \"victim\"")
            }
            None if name.contains(['.', ',', '=', '"', '[', ']'])
                || name.contains(char::is_control) =>
            {
                format!("'{name}': expected a name without dots, commas, quotes, brackets and =")
            }
            None => continue,
        };
        return Err(Problem::new(format!("workload[{index}].name"), message));
    }
    Ok(())
}

/// Whether a flow can be from one to the other, of so many hosts.
fn two_hosts(from: usize, to: usize, hosts: usize) -> Result<(), String> {
    match from.max(to) {
        host if host >= hosts => Err(format!("no host h{host}: expected h0 to h{}", hosts - 1)),
        host if from == to => Err(format!("h{host} to itself: expected two different hosts")),
        _ => Ok(()),
    }
}

impl Maker<'_> {
    fn make(&mut self, kind: &str) -> Result<(), Problem> {
        self.dscp()?;
        if let Some(start) = self.keys.start.filter(|start| start.0 >= self.until) {
            let (start, end) = (start.0 as f64 / 1e6, self.until as f64 / 1e6);
            let message = format!("{start} ms: expected less than the duration, {end} ms");
            return Err(self.problem("start", message));
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

    /// Whether any of its flows begins in time; a note if some do not.
    fn check_starts(&self, kind: &str) -> Result<Option<String>, Problem> {
        let late = self.flows.iter().filter(|flow| flow.start >= self.until).count();
        let end = self.until as f64 / 1e6;
        match (late, kind) {
            (0, _) => Ok(None),
            (late, _) if late < self.flows.len() => Ok(Some(format!(
                "{late} of {} flows of '{}' would start after the end: the duration is {end} ms",
                self.flows.len(),
                self.group
            ))),
            (_, "trace") => {
                let message = format!("no flow starts before the end: the duration is {end} ms");
                Err(self.problem("file", message))
            }
            _ => {
                let message = format!("so long that no flow starts in the duration, {end} ms");
                Err(self.problem("spread", message))
            }
        }
    }

    /// DSCP of its packets.
    fn dscp(&self) -> Result<u8, Problem> {
        match self.keys.dscp.map(u8::try_from) {
            None => Ok(DEFAULT_DSCP),
            Some(Ok(dscp @ 0..=63)) => Ok(dscp),
            _ => Err(self.problem("dscp", "expected 0 to 63")),
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
                    true if size <= MAX_FLOW => Ok((message, size / message)),
                    true => {
                        Err(self.problem("size", "expected at most 2^60 bytes, or \"endless\""))
                    }
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
        match self.keys.depth {
            None => Ok(default),
            Some(depth @ 1..=4096) => Ok(depth as u32),
            Some(depth) => Err(self.problem("depth", format!("{depth}: expected 1 to 4096"))),
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
        let dscp = self.dscp()?;
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
                dscp,
                qp: None,
            });
        }
        Ok(())
    }
}

/// DSCP of packets, unless a workload says another: the one usual for RoCE, of class 3.
pub const DEFAULT_DSCP: u8 = 26;
