//! `[topology]`.

use super::error::Problem;
use super::schema::{Kinds, LinkKeys, TopologyKeys, kind_of};
use super::units::{Rate, Time};
use crate::plan::{Link, Node};
use crate::topology::{self, MAX_NODES, Network, Wire};

/// Rate of links, unless the file says: 100 Gbit/s.
const DEFAULT_RATE: u64 = 100_000_000_000;

/// Delay of links, unless the file says: 1 us, some 200 m of fibre.
const DEFAULT_DELAY: u64 = 1_000;

const DEFAULT: Wire = Wire { rate: DEFAULT_RATE, delay: DEFAULT_DELAY };

/// The highest rate, at which a byte takes a picosecond: 8 Tbit/s.
const MAX_RATE: u64 = 8_000_000_000_000;

/// The longest delay: 1 s.
const MAX_DELAY: u64 = 1_000_000_000;

/// The most links between leaves and spines.
const MAX_UPLINKS: usize = 1 << 17;

/// Keys that every kind has.
const COMMON: &[&str] = &["kind", "rate", "delay"];

/// A kind of topology and the keys it has beside the common ones.
const KINDS: Kinds = &[
    ("star", &["hosts"]),
    ("dumbbell", &["left", "right", "bottleneck_rate", "bottleneck_delay"]),
    ("leaf-spine", &["leaves", "spines", "hosts_per_leaf", "uplink_rate", "uplink_delay"]),
    ("fat-tree", &["k"]),
    ("links", &["hosts", "switches", "link"]),
];

/// The network that the keys describe; `present` are those that are there.
pub(super) fn network(keys: &TopologyKeys, present: &[String]) -> Result<Network, Problem> {
    let kind = kind_of("topology", keys.kind.as_deref(), KINDS, COMMON, present)?;
    let wire = wire("topology", ["rate", "delay"], keys.rate, keys.delay, DEFAULT)?;
    match kind {
        "star" => Ok(topology::star(count("hosts", keys.hosts, 2)?, wire)),
        "dumbbell" => {
            let left = count("left", keys.left, 1)?;
            let right = count("right", keys.right, 1)?;
            let names = ["bottleneck_rate", "bottleneck_delay"];
            let middle =
                self::wire("topology", names, keys.bottleneck_rate, keys.bottleneck_delay, wire)?;
            Ok(topology::dumbbell(left, right, wire, middle))
        }
        "leaf-spine" => leaf_spine(keys, wire),
        "fat-tree" => match keys.k {
            Some(k @ 2..=24) if k % 2 == 0 => Ok(topology::fat_tree(k, wire)),
            _ => Err(Problem::new("topology.k", "expected an even number of ports, 2 to 24")),
        },
        _ => links(keys, wire),
    }
}

fn wire(
    table: &str,
    names: [&str; 2],
    rate: Option<Rate>,
    delay: Option<Time>,
    default: Wire,
) -> Result<Wire, Problem> {
    let wire = Wire {
        rate: rate.map_or(default.rate, |rate| rate.0),
        delay: delay.map_or(default.delay, |delay| delay.0),
    };
    if !(1_000_000..=MAX_RATE).contains(&wire.rate) {
        let message = "expected 1 Mbit/s to 8 Tbit/s";
        return Err(Problem::new(format!("{table}.{}", names[0]), message));
    }
    match wire.delay > MAX_DELAY {
        true => Err(Problem::new(format!("{table}.{}", names[1]), "expected at most 1 s")),
        false => Ok(wire),
    }
}

fn count(key: &str, value: Option<usize>, least: usize) -> Result<usize, Problem> {
    match value {
        Some(value) if (least..=MAX_NODES).contains(&value) => Ok(value),
        Some(value) => Err(Problem::new(
            format!("topology.{key}"),
            format!("{value}: expected {least} to {MAX_NODES}"),
        )),
        None => {
            let message = format!("missing: expected a number, {least} to {MAX_NODES}");
            Err(Problem::new(format!("topology.{key}"), message))
        }
    }
}

fn leaf_spine(keys: &TopologyKeys, wire: Wire) -> Result<Network, Problem> {
    let leaves = count("leaves", keys.leaves, 1)?;
    let spines = count("spines", keys.spines, 1)?;
    let hosts = count("hosts_per_leaf", keys.hosts_per_leaf, 1)?;
    if leaves * spines > MAX_UPLINKS {
        let message = format!("expected at most {MAX_UPLINKS} links between leaves and spines");
        return Err(Problem::new("topology.spines", message));
    }
    if leaves * hosts > MAX_NODES || leaves * hosts < 2 || leaves + spines > MAX_NODES {
        let message = format!("expected 2 to {MAX_NODES} hosts, at most {MAX_NODES} switches");
        return Err(Problem::new("topology.leaves", message));
    }
    let names = ["uplink_rate", "uplink_delay"];
    let uplink = self::wire("topology", names, keys.uplink_rate, keys.uplink_delay, wire)?;
    Ok(topology::leaf_spine(leaves, spines, hosts, wire, uplink))
}

fn links(keys: &TopologyKeys, default: Wire) -> Result<Network, Problem> {
    let hosts = count("hosts", keys.hosts, 2)?;
    let switches = match keys.switches.unwrap_or(0) {
        switches @ 0..=MAX_NODES => switches,
        _ => {
            let message = format!("expected at most {MAX_NODES}");
            return Err(Problem::new("topology.switches", message));
        }
    };
    let mut links = Vec::with_capacity(keys.link.len());
    for (index, link) in keys.link.iter().enumerate() {
        let table = format!("topology.link[{index}]");
        let wire = wire(&table, ["rate", "delay"], link.rate, link.delay, default)?;
        let ends = ends(link, hosts, switches)
            .map_err(|message| Problem::new(format!("{table}.ends"), message))?;
        links.push(Link { ends, rate: wire.rate, delay: wire.delay });
    }
    topology::explicit(hosts, switches, links)
        .map_err(|message| Problem::new("topology.link", message))
}

fn ends(link: &LinkKeys, hosts: usize, switches: usize) -> Result<[Node; 2], String> {
    let node = |name: &String| {
        let number = |prefix| name.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
        let host = number('h').filter(|host| *host < hosts).map(Node::Host);
        host.or_else(|| number('s').filter(|switch| *switch < switches).map(Node::Switch))
    };
    let nodes = link.ends.iter().map(node).collect::<Option<Vec<_>>>();
    match nodes.as_deref() {
        Some(&[a, b]) if a != b => Ok([a, b]),
        _ => Err(format!(
            "expected two ends such as [\"h0\", \"s0\"]: there are {hosts} hosts, \
             {switches} switches"
        )),
    }
}
