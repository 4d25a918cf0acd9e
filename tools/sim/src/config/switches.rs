//! `[switch]`: what is not said follows from the rate of the hosts' links.

use std::collections::BTreeMap;

use super::error::Problem;
use super::schema::{EcnKeys, PfcKeys, SwitchAtKeys, SwitchKeys};
use super::units::{Share, Size};
use crate::plan::{CLASSES, Ecn, Link, Node, Pfc, Switch};
use crate::topology::Network;

/// Bytes of a switch's buffer, unless the file says: 12 MB.
const DEFAULT_BUFFER: u64 = 12_000_000;

/// The most bytes of a buffer, and of any of its parts: 1 TB, about.
const MAX_BUFFER: u64 = 1 << 40;

/// The marking of the DCQCN paper, which is for links of 40 Gbit/s.
const PAPER: Ecn = Ecn { kmin: 5_000, kmax: 200_000, pmax: 0.01 };
const PAPER_RATE: u64 = 40_000_000_000;

/// The longest frame, about, with preamble and gap.
const FRAME: u64 = 4_200;

/// What defaults follow from.
struct Ground<'n> {
    /// The classes of the traffic.
    used: &'n [bool; CLASSES],
    /// The rate of the hosts' fastest link, in bit/s.
    rate: u64,
    /// Ports of the largest switch.
    ports: u64,
    /// Bytes of headroom that the worst link needs.
    headroom: u64,
}

/// How every switch behaves, for traffic of the classes `used`, and those that behave otherwise, by
/// number.
pub(super) fn switches(
    keys: &SwitchKeys,
    network: &Network,
    used: &[bool; CLASSES],
) -> Result<(Switch, BTreeMap<usize, Switch>), Problem> {
    let topology = &network.topology;
    let mut ports = vec![0; topology.switches];
    for end in topology.links.iter().flat_map(|link| link.ends) {
        if let Node::Switch(switch) = end {
            ports[switch] += 1;
        }
    }
    let ground = Ground {
        used,
        rate: network.fastest_host_rate(),
        ports: ports.into_iter().max().unwrap_or(1).max(1),
        headroom: topology.links.iter().map(headroom).max().unwrap_or(0),
    };
    let of_all = SwitchAtKeys {
        buffer: keys.buffer,
        alpha: keys.alpha,
        ecn: keys.ecn.clone(),
        pfc: keys.pfc.clone(),
    };
    let common = switch(&of_all, &ground)?;
    let names: Vec<String> =
        (0..topology.switches).map(|number| network.node(Node::Switch(number))).collect();
    let mut unknown = keys.at.keys().filter(|at| names.iter().all(|name| !is_of(name, at)));
    if let Some(at) = unknown.next() {
        return Err(no_switch(at, &names));
    }
    let mut others = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        // First those of its kind, then its own.
        let mut layers: Vec<_> = keys.at.iter().filter(|(at, _)| is_of(name, at)).collect();
        layers.sort_by_key(|(at, _)| *at == name);
        let mut own = of_all.clone();
        for (at, keys) in layers {
            own = own.with(keys);
            let other = switch(&own, &ground).map_err(|problem| problem.at(at))?;
            others.insert(number, other);
        }
    }
    Ok((common, others))
}

/// Whether `at` is a switch's name, or that of its kind: `leaf` is that of `leaf0`.
fn is_of(name: &str, at: &str) -> bool {
    at == name || at == kind(name)
}

fn kind(name: &str) -> &str {
    name.trim_end_matches(|char: char| char.is_ascii_digit())
}

fn no_switch(at: &str, names: &[String]) -> Problem {
    let key = format!("switch.at.{at}");
    let Some(first) = names.first() else {
        return Problem::new(key, "there are no switches");
    };
    let mut kinds: Vec<&str> = names.iter().map(|name| kind(name)).collect();
    kinds.dedup();
    let kinds = kinds.join("\", \"");
    Problem::new(
        key,
        format!("no such switch: expected one such as \"{first}\", or a kind: \"{kinds}\""),
    )
}

impl Problem {
    /// The problem, with the key that a switch of this name has instead.
    fn at(self, name: &str) -> Problem {
        let key = match self.key.strip_prefix("switch.") {
            Some(key) => format!("switch.at.{name}.{key}"),
            None => self.key,
        };
        Problem { key, ..self }
    }
}

impl SwitchAtKeys {
    /// Those of `at`, and these where that says nothing.
    fn with(self, at: &SwitchAtKeys) -> SwitchAtKeys {
        let (ecn, pfc) = (&at.ecn, &at.pfc);
        SwitchAtKeys {
            buffer: at.buffer.or(self.buffer),
            alpha: at.alpha.or(self.alpha),
            ecn: EcnKeys {
                enabled: ecn.enabled.or(self.ecn.enabled),
                classes: ecn.classes.clone().or(self.ecn.classes),
                kmin: ecn.kmin.or(self.ecn.kmin),
                kmax: ecn.kmax.or(self.ecn.kmax),
                pmax: ecn.pmax.or(self.ecn.pmax),
            },
            pfc: PfcKeys {
                enabled: pfc.enabled.or(self.pfc.enabled),
                classes: pfc.classes.clone().or(self.pfc.classes),
                xoff: pfc.xoff.or(self.pfc.xoff),
                xon: pfc.xon.or(self.pfc.xon),
                headroom: pfc.headroom.or(self.pfc.headroom),
            },
        }
    }
}

/// How a switch with these keys behaves.
fn switch(keys: &SwitchAtKeys, ground: &Ground<'_>) -> Result<Switch, Problem> {
    let buffer = keys.buffer.map_or(DEFAULT_BUFFER, |size| size.0);
    if !(2 * FRAME..=MAX_BUFFER).contains(&buffer) {
        return Err(Problem::new("switch.buffer", "expected 10 KB to 1 TB"));
    }
    let alpha = keys.alpha.unwrap_or(1.0);
    if !(1.0 / 1024.0..=1024.0).contains(&alpha) {
        return Err(Problem::new("switch.alpha", format!("{alpha}: expected 1/1024 to 1024")));
    }
    let ecn = ecn(&keys.ecn, ground.rate)?;
    let marking = classes("switch.ecn.classes", &keys.ecn.classes, ground.used)?;
    let lossless = classes("switch.pfc.classes", &keys.pfc.classes, ground.used)?;
    let queues = lossless.iter().filter(|is_lossless| **is_lossless).count() as u64;
    let pfc = pfc(&keys.pfc, ground, buffer, queues.max(1))?;
    Ok(Switch {
        buffer,
        ecn: std::array::from_fn(|class| ecn.filter(|_| marking[class])),
        pfc: std::array::from_fn(|class| pfc.filter(|_| lossless[class])),
        alpha,
    })
}

/// The classes that a key names, or those in use.
fn classes(
    key: &str,
    value: &Option<Vec<u64>>,
    used: &[bool; CLASSES],
) -> Result<[bool; CLASSES], Problem> {
    let Some(value) = value else { return Ok(*used) };
    let mut classes = [false; CLASSES];
    for class in value {
        match usize::try_from(*class).ok().and_then(|class| classes.get_mut(class)) {
            Some(entry) => *entry = true,
            None => return Err(Problem::new(key, format!("{class}: expected classes 0 to 7"))),
        }
    }
    Ok(classes)
}

/// Bytes of a part of the buffer, if the file says.
fn part(key: &str, size: Option<Size>) -> Result<Option<u64>, Problem> {
    match size {
        Some(Size(bytes)) if bytes > MAX_BUFFER => Err(Problem::new(key, "expected at most 1 TB")),
        size => Ok(size.map(|size| size.0)),
    }
}

/// Says of a size that nobody has set it.
fn default_mark(size: Option<Size>) -> &'static str {
    if size.is_some() { "" } else { " (the default)" }
}

fn ecn(keys: &EcnKeys, rate: u64) -> Result<Option<Ecn>, Problem> {
    if keys.enabled == Some(false) {
        return Ok(None);
    }
    let scaled =
        |bytes: u64| (u128::from(bytes) * u128::from(rate) / u128::from(PAPER_RATE)) as u64;
    let ecn = Ecn {
        kmin: part("switch.ecn.kmin", keys.kmin)?.unwrap_or(scaled(PAPER.kmin)),
        kmax: part("switch.ecn.kmax", keys.kmax)?.unwrap_or(scaled(PAPER.kmax)),
        pmax: keys.pmax.unwrap_or(Share(PAPER.pmax)).0,
    };
    match ecn.kmin > ecn.kmax {
        true => Err(Problem::new(
            if keys.kmin.is_some() { "switch.ecn.kmin" } else { "switch.ecn.kmax" },
            format!(
                "kmin {} B{} is above kmax {} B{}: expected at most that",
                ecn.kmin,
                default_mark(keys.kmin),
                ecn.kmax,
                default_mark(keys.kmax)
            ),
        )),
        false => Ok(Some(ecn)),
    }
}

/// Headroom for what a link still brings once it is told to pause; of the rest, each ingress port
/// of the busiest switch may hold its part before it is.
fn pfc(
    keys: &PfcKeys,
    ground: &Ground<'_>,
    buffer: u64,
    classes: u64,
) -> Result<Option<Pfc>, Problem> {
    if keys.enabled == Some(false) {
        return Ok(None);
    }
    let ports = ground.ports * classes;
    let headroom = part("switch.pfc.headroom", keys.headroom)?.unwrap_or(ground.headroom);
    let share = (buffer / ports).saturating_sub(headroom);
    let xoff = match part("switch.pfc.xoff", keys.xoff)? {
        Some(bytes) if bytes > buffer => {
            let message = format!("{bytes} B: expected at most the buffer, {buffer} B");
            return Err(Problem::new("switch.pfc.xoff", message));
        }
        Some(bytes) => bytes,
        None if share < 2 * FRAME => {
            return Err(Problem::new(
                "switch.buffer",
                format!(
                    "{buffer} B are too few for PFC: {ports} ports and classes need a headroom of \
                     {headroom} B each; expected at least {} B, or switch.pfc.enabled = false",
                    ports * (headroom + 2 * FRAME)
                ),
            ));
        }
        None => share,
    };
    let xon = keys.xon.map_or(xoff.saturating_sub(2 * FRAME), |size| size.0);
    match xon > xoff {
        true => Err(Problem::new(
            if keys.xon.is_some() { "switch.pfc.xon" } else { "switch.pfc.xoff" },
            format!(
                "xon {xon} B{} is above xoff {xoff} B{}: expected at most that",
                default_mark(keys.xon),
                default_mark(keys.xoff)
            ),
        )),
        false => Ok(Some(Pfc { xoff, xon, headroom })),
    }
}

/// Bytes that arrive between the decision to pause and the pause: those on the link both ways, and
/// at either end the frame that has just begun, and the pause frame's own time.
fn headroom(link: &Link) -> u64 {
    let on_link = u128::from(link.rate) * u128::from(link.delay) * 2 / 8_000_000_000;
    on_link as u64 + 2 * FRAME + 2 * 84
}
