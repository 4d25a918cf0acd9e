//! From keys to a plan.

use std::ops::RangeInclusive;
use std::path::Path;

use ferroce::frame::rule::Rule;
use ferroce_stack::Config;
use ferroce_stack::LossRecovery;
use ferroce_stack::verbs::Mtu;

use super::congestion;
use super::document::{Document, Tree, text};
use super::error::{ConfigError, Problem};
use super::networks;
use super::plots;
use super::schema::{File, HostKeys};
use super::switches;
use super::units::Time;
use super::{Experiment, SweepSpec};
use crate::near::did_you_mean;
use crate::net::{self, SimError};
use crate::plan::{Fault, Host, Plan};
use crate::topology::Network;
use crate::workload::{self, Setting};

/// The seed, unless the file says.
const DEFAULT_SEED: u64 = 1;

/// How long a simulation lasts, unless the file says: 10 ms.
const DEFAULT_DURATION: u64 = 10_000_000;

/// The longest a simulation may last: 1000 s.
const MAX_DURATION: u64 = 1_000_000_000_000;

/// Samples, unless the file says how often.
const DEFAULT_SAMPLES: u64 = 1000;

/// The most values that all samples together may have.
const MAX_SAMPLED: u64 = 50_000_000;

impl Document {
    /// What is to be simulated.
    ///
    /// # Errors
    /// If something in the file, or set beside it, is wrong.
    pub fn experiment(&self) -> Result<Experiment, ConfigError> {
        let tree = self.tree()?;
        let keys = tree.keys()?;
        build(self.path(), &tree, &keys).map_err(|problem| tree.locate(problem))
    }

    /// Tables of parameters of a congestion control that is none of `chosen`.
    ///
    /// # Errors
    /// If something in the file, or set beside it, is wrong.
    pub(crate) fn unused_parameters(&self, chosen: &[String]) -> Result<Vec<String>, ConfigError> {
        let keys = self.tree()?.keys()?;
        let own = [keys.host.congestion.unwrap_or_else(|| "none".to_owned())];
        let chosen = if chosen.is_empty() { &own } else { chosen };
        let is_unused =
            |(name, value): &(&String, &toml::Value)| value.is_table() && !chosen.contains(name);
        Ok(keys.congestion.iter().filter(is_unused).map(|(name, _)| name.clone()).collect())
    }

    /// The seed.
    ///
    /// # Errors
    /// If something in the file, or set beside it, is wrong.
    pub fn seed(&self) -> Result<u64, ConfigError> {
        Ok(self.tree()?.keys()?.seed.unwrap_or(DEFAULT_SEED))
    }

    /// Pixels that its plots are wide.
    ///
    /// # Errors
    /// If something in the file, or set beside it, is wrong.
    pub fn plots_width(&self) -> Result<u32, ConfigError> {
        let tree = self.tree()?;
        plots::width(&tree.keys()?.plots).map_err(|problem| tree.locate(problem))
    }

    /// What the file says of a sweep; `None` if nothing.
    ///
    /// # Errors
    /// If something in the file, or set beside it, is wrong.
    pub fn sweep(&self) -> Result<Option<SweepSpec>, ConfigError> {
        let keys = self.tree()?.keys()?;
        Ok(keys.sweep.map(|sweep| SweepSpec {
            seeds: sweep.seeds,
            axes: sweep
                .set
                .into_iter()
                .map(|(key, values)| (key, values.iter().map(text).collect()))
                .collect(),
            plot: sweep.plot.0,
            against: sweep.against,
        }))
    }
}

fn build(path: &Path, tree: &Tree<'_>, keys: &File) -> Result<Experiment, Problem> {
    let network = networks::network(&keys.topology, &tree.keys_of("topology"))?;
    let until = keys.duration.map_or(DEFAULT_DURATION, |time| time.0);
    if !(1..=MAX_DURATION).contains(&until) {
        return Err(Problem::new("duration", "expected more than 0, at most 1000 s"));
    }
    let warmup = keys.warmup.unwrap_or_default().0;
    if warmup >= until {
        return Err(Problem::new("warmup", "expected less than the duration"));
    }
    let seed = keys.seed.unwrap_or(DEFAULT_SEED);
    if warmup > 0 && keys.sample == Some(Time(0)) {
        return Err(Problem::new("warmup", "needs samples: expected sample to be more than 0"));
    }
    let host = host(keys, &network)?;
    let setting =
        Setting { network: &network, folder: path.parent().unwrap_or(Path::new("")), until, seed };
    let (flows, notes) = workload::flows(&setting, &keys.workload, |index| {
        tree.keys_of(&format!("workload[{index}]"))
    })?;
    let mut used = [false; 8];
    for flow in &flows {
        used[usize::from(host.classes[usize::from(flow.dscp & 63)] & 7)] = true;
    }
    let (switch, other_switches) = switches::switches(&keys.switch, &network, &used)?;
    let plan = Plan {
        seed,
        topology: network.topology.clone(),
        switch,
        other_switches,
        sample_every: sampling(keys, until, flows.len(), network.ports().len())?,
        host,
        flows,
        faults: faults(keys, &network)?,
        until,
        captures: captures(&keys.capture.0, &network)?,
    };
    let plots = plots::plots(&keys.plots, &network, until)?;
    net::check(&plan).map_err(|error| {
        let key = match error {
            SimError::NoBuffer { .. } => "switch.buffer",
            _ => "",
        };
        Problem::new(key, error.to_string())
    })?;
    Ok(Experiment { plan, network, warmup, notes, plots })
}

/// How often samples are taken: seldom enough that they have room.
fn sampling(keys: &File, until: u64, flows: usize, ports: usize) -> Result<u64, Problem> {
    let values = (2 * flows + 3 * ports) as u64;
    match keys.sample {
        Some(time) if time.0 == 0 => Ok(0),
        Some(time) => {
            let sampled = (until / time.0).saturating_mul(values);
            match sampled > MAX_SAMPLED {
                true => Err(Problem::new(
                    "sample",
                    format!(
                        "{sampled} values of {flows} flows and {ports} ports: expected at most \
                         {MAX_SAMPLED}, so a longer time, or 0 for no samples"
                    ),
                )),
                false => Ok(time.0),
            }
        }
        None => {
            let samples = DEFAULT_SAMPLES.min(MAX_SAMPLED / values).max(1);
            Ok(until.div_ceil(samples))
        }
    }
}

fn host(keys: &File, network: &Network) -> Result<Host, Problem> {
    let own = &keys.host;
    let bytes = own.mtu.unwrap_or(1024);
    let mtu = usize::try_from(bytes).ok().and_then(Mtu::from_bytes);
    let mtu = mtu.ok_or_else(|| {
        Problem::new("host.mtu", format!("{bytes}: expected 256, 512, 1024, 2048 or 4096"))
    })?;
    let defaults = Config::default();
    let device = Config {
        window: within("host.window", own.window, defaults.window, 1..=1 << 22)?,
        ack_every: within("host.ack_every", own.ack_every, defaults.ack_every, 1..=1 << 22)?,
        burst: within("host.burst", own.burst, defaults.burst, 1..=1 << 16)?,
        congestion: congestion::config(keys, network.fastest_host_rate())?,
        loss_recovery: loss_recovery(own)?,
        ..defaults
    };
    Ok(Host {
        device,
        mtu,
        timeout: within("host.timeout", own.timeout, 14, 0..=31)?,
        retry_cnt: within("host.retry_cnt", own.retry_cnt, 7, 0..=7)?,
        classes: classes(own)?,
    })
}

fn loss_recovery(keys: &HostKeys) -> Result<LossRecovery, Problem> {
    let name = keys.loss_recovery.as_deref().unwrap_or(LossRecovery::GoBackN.name());
    LossRecovery::named(&name.replace('_', "-")).ok_or_else(|| {
        let names = LossRecovery::ALL.map(LossRecovery::name);
        let near = did_you_mean(name, &names);
        let message = format!("'{name}': {near}expected \"{}\"", names.join("\", \""));
        Problem::new("host.loss_recovery", message)
    })
}

/// The value, if it is within its bounds.
fn within<T: TryFrom<u64>>(
    key: &str,
    value: Option<u64>,
    default: T,
    bounds: RangeInclusive<u64>,
) -> Result<T, Problem> {
    let Some(value) = value else { return Ok(default) };
    let right = T::try_from(value).ok().filter(|_| bounds.contains(&value));
    right.ok_or_else(|| {
        let message = format!("{value}: expected {} to {}", bounds.start(), bounds.end());
        Problem::new(key, message)
    })
}

/// The class of each DSCP: its upper three bits, unless the file says another.
fn classes(keys: &HostKeys) -> Result<[u8; 64], Problem> {
    let mut classes = std::array::from_fn(|dscp| (dscp >> 3) as u8);
    for (dscp, class) in &keys.classes {
        let key = format!("host.classes.{dscp}");
        let place = dscp.parse::<usize>().ok().and_then(|dscp| classes.get_mut(dscp));
        match (place, *class) {
            (Some(place), class @ 0..=7) => *place = class as u8,
            (None, _) => return Err(Problem::new(key, "expected a DSCP, 0 to 63, as the key")),
            (Some(_), class) => {
                return Err(Problem::new(key, format!("{class}: expected a class, 0 to 7")));
            }
        }
    }
    Ok(classes)
}

fn faults(keys: &File, network: &Network) -> Result<Vec<Fault>, Problem> {
    let mut faults = Vec::new();
    for (index, fault) in keys.fault.iter().enumerate() {
        let Some(text) = &fault.rule else {
            let message = "missing: expected a fault rule such as \"drop 1% of rc-write\"";
            return Err(Problem::new(format!("fault[{index}].rule"), message));
        };
        let link = match &fault.link {
            None => None,
            Some(name) => Some(
                link(network, name)
                    .map_err(|message| Problem::new(format!("fault[{index}].link"), message))?,
            ),
        };
        let rules = text.split(';').map(Rule::parse_all).collect::<Result<Vec<_>, _>>();
        let rules = rules
            .map_err(|error| Problem::new(format!("fault[{index}].rule"), error.to_string()))?;
        faults.extend(rules.into_iter().flatten().map(|rule| Fault { link, rule }));
    }
    Ok(faults)
}

fn captures(names: &[String], network: &Network) -> Result<Vec<usize>, Problem> {
    let mut captures = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let port = port(network, name)
            .map_err(|message| Problem::new(format!("capture[{index}]"), message))?;
        if !captures.contains(&port) {
            captures.push(port);
        }
    }
    Ok(captures)
}

fn link(network: &Network, name: &str) -> Result<usize, String> {
    Ok(port(network, name)? / 2)
}

/// A port, or that of a host.
pub(super) fn port(network: &Network, name: &str) -> Result<usize, String> {
    network.end(name).ok_or_else(|| {
        // Of the node that is meant, if it is there, else any.
        let node = name.split(':').next().unwrap_or_default();
        let own = network.ports().iter().filter(|port| port.split(':').next() == Some(node));
        let own: Vec<&str> = own.take(3).map(String::as_str).collect();
        let hosts = network.topology.hosts - 1;
        match own.is_empty() {
            false => {
                format!("'{name}' is no port: {node} has {}; --check lists all", own.join(", "))
            }
            true => format!(
                "'{name}' is no port: expected a host, \"h0\" to \"h{hosts}\", or a port such as \
                 \"{}\"; --check lists all",
                network.port(1)
            ),
        }
    })
}
