//! `[switch]`: what is not said follows from the rate of the hosts' links.

use super::error::Problem;
use super::schema::{EcnKeys, PfcKeys, SwitchKeys};
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

/// How every switch behaves, for traffic of the classes `used`.
pub(super) fn switch(
    keys: &SwitchKeys,
    network: &Network,
    used: &[bool; CLASSES],
) -> Result<Switch, Problem> {
    let buffer = keys.buffer.map_or(DEFAULT_BUFFER, |size| size.0);
    if !(2 * FRAME..=MAX_BUFFER).contains(&buffer) {
        return Err(Problem::new("switch.buffer", "expected 10 KB to 1 TB"));
    }
    let alpha = keys.alpha.unwrap_or(1.0);
    if !(1.0 / 1024.0..=1024.0).contains(&alpha) {
        return Err(Problem::new("switch.alpha", format!("{alpha}: expected 1/1024 to 1024")));
    }
    let ecn = ecn(&keys.ecn, network.fastest_host_rate())?;
    let marking = classes("switch.ecn.classes", &keys.ecn.classes, used)?;
    let lossless = classes("switch.pfc.classes", &keys.pfc.classes, used)?;
    let queues = lossless.iter().filter(|is_lossless| **is_lossless).count() as u64;
    let pfc = pfc(&keys.pfc, network, buffer, queues.max(1))?;
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
    network: &Network,
    buffer: u64,
    classes: u64,
) -> Result<Option<Pfc>, Problem> {
    if keys.enabled == Some(false) {
        return Ok(None);
    }
    let topology = &network.topology;
    let mut ports = vec![0; topology.switches];
    for end in topology.links.iter().flat_map(|link| link.ends) {
        if let Node::Switch(switch) = end {
            ports[switch] += 1;
        }
    }
    let ports = ports.into_iter().max().unwrap_or(1).max(1) * classes;
    let needed = topology.links.iter().map(headroom).max().unwrap_or(0);
    let headroom = part("switch.pfc.headroom", keys.headroom)?.unwrap_or(needed);
    let share = (buffer / ports).saturating_sub(headroom);
    let xoff = match part("switch.pfc.xoff", keys.xoff)? {
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
