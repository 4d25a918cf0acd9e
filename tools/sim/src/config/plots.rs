//! `[plots]`: how results are drawn.

use super::Plots;
use super::build::port;
use super::error::Problem;
use super::schema::PlotsKeys;
use crate::plot::{DEFAULT_WIDTH, WIDTHS};
use crate::topology::Network;

/// The most ports whose queues are drawn.
const MAX_PORTS: usize = 28;

/// How results are drawn of a simulation of `duration` nanoseconds.
pub(super) fn plots(keys: &PlotsKeys, network: &Network, duration: u64) -> Result<Plots, Problem> {
    let mut ports = Vec::new();
    for (index, name) in keys.ports.iter().enumerate() {
        let port = port(network, name)
            .map_err(|message| Problem::new(format!("plots.ports[{index}]"), message))?;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    if ports.len() > MAX_PORTS {
        let message = format!("{} ports: expected at most {MAX_PORTS}", ports.len());
        return Err(Problem::new("plots.ports", message));
    }
    let from = keys.from.unwrap_or_default().0;
    let until = keys.until.map(|time| time.0);
    if from >= until.unwrap_or(duration).min(duration) {
        let key = if keys.from.is_some() { "plots.from" } else { "plots.until" };
        return Err(Problem::new(key, "expected from to be before until and the duration's end"));
    }
    Ok(Plots { ports, from, until, width: width(keys)? })
}

/// Pixels that plots are wide.
pub(super) fn width(keys: &PlotsKeys) -> Result<u32, Problem> {
    let width = keys.width.unwrap_or(DEFAULT_WIDTH);
    match WIDTHS.contains(&width) {
        true => Ok(width),
        false => {
            let (least, most) = (WIDTHS.start(), WIDTHS.end());
            let message = format!("{width}: expected {least} to {most} pixels");
            Err(Problem::new("plots.width", message))
        }
    }
}
