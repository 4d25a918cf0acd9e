//! `host.congestion` and `[congestion]`: the parameters are those of the transport, by its names.

use ferroce_stack::congestion::{Algorithm, Config, ParameterError};
use toml::Value;

use super::document::text;
use super::error::Problem;
use super::schema::File;
use super::units::in_unit;
use crate::near::did_you_mean;

/// Units of parameters, as docs/congestion.md lists them.
const UNITS: &[(&str, &[&str])] = &[
    ("bit/s", &["line_rate"]),
    ("B", &["burst", "rpg_byte_reset"]),
    (
        "ns",
        &["min_time_between_cnps", "base_target_delay", "fs_range", "t_low", "t_high", "min_rtt"],
    ),
    ("us", &["dce_tcp_rtt", "rpg_time_reset", "rate_reduce_monitor_period"]),
    (
        "Mbit/s",
        &[
            "rpg_ai_rate",
            "rpg_hai_rate",
            "rpg_max_rate",
            "rpg_min_rate",
            "rate_to_set_on_first_cnp",
            "min_rate",
            "delta",
        ],
    ),
];

/// How hosts control congestion, on links of `rate` bits per second.
pub(super) fn config(keys: &File, rate: u64) -> Result<Option<Config>, Problem> {
    let chosen = keys.host.congestion.as_deref().unwrap_or("none");
    let mut config = match (chosen, Algorithm::named(chosen)) {
        (_, Some(algorithm)) => Some(Config::new(algorithm, 0)),
        ("none", None) => None,
        (_, None) => {
            let near = did_you_mean(chosen, Algorithm::NAMES);
            let names = Algorithm::NAMES.join("\", \"");
            // As other tools take them, after the algorithm.
            let hint = match chosen.contains('=') {
                true => "; parameters stand in [congestion.NAME]",
                false => "",
            };
            let message = format!("'{chosen}': {near}expected \"none\", \"{names}\"{hint}");
            return Err(Problem::new("host.congestion", message));
        }
    };
    for (name, value) in &keys.congestion {
        let key = format!("congestion.{name}");
        match (Algorithm::named(name), value) {
            (Some(algorithm), Value::Table(parameters)) => {
                let algorithm = with_parameters(algorithm, &key, parameters)?;
                match &mut config {
                    Some(config) if chosen == name => config.algorithm = algorithm,
                    _ => {}
                }
            }
            (Some(_), _) => return Err(Problem::new(key, "expected a table of parameters")),
            (None, _) => {
                // Checked even if no congestion is controlled: a typing error is one.
                let mut unused = Config::new(default_algorithm(), 0);
                let config = config.as_mut().unwrap_or(&mut unused);
                let name = name.replace('-', "_");
                config.set(&name, &number(&name, value)).map_err(|error| {
                    let tables = Algorithm::NAMES.join("], [congestion.");
                    let message = match &error {
                        ParameterError::Unknown(..) => {
                            format!("{}, and tables [congestion.{tables}]", told(&error))
                        }
                        _ => told(&error),
                    };
                    Problem::new(key, message)
                })?;
            }
        }
    }
    Ok(config.map(|config| config.on_link(Some(rate))))
}

fn default_algorithm() -> Algorithm {
    Algorithm::Dcqcn(Default::default())
}

fn with_parameters(
    mut algorithm: Algorithm,
    key: &str,
    parameters: &toml::Table,
) -> Result<Algorithm, Problem> {
    for (name, value) in parameters {
        algorithm
            .set(name, &number(name, value))
            .map_err(|error| Problem::new(format!("{key}.{name}"), told(&error)))?;
    }
    Ok(algorithm)
}

/// The unit of a parameter, if it has one.
fn unit(name: &str) -> Option<&'static str> {
    let of = |(unit, names): &(&'static str, &[&str])| names.contains(&name).then_some(*unit);
    UNITS.iter().find_map(of)
}

/// A parameter's value as the transport takes it: without the unit.
fn number(name: &str, value: &Value) -> String {
    let written = text(value);
    let number = unit(name).and_then(|unit| in_unit(&written, unit));
    number.map_or(written, |number| number.to_string())
}

/// What is wrong with a parameter, with its unit, or with names that are like it.
fn told(error: &ParameterError) -> String {
    match error {
        ParameterError::Unknown(name, names) => {
            let near = did_you_mean(name, names);
            format!("no parameter '{name}': {near}there are {}", names.join(", "))
        }
        ParameterError::Value(name, ..) => match unit(name) {
            Some(unit) => format!("{error}, in {unit}"),
            None => error.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_that_of_a_parameter() {
        let mut names = Config::NAMES.to_vec();
        for name in Algorithm::NAMES {
            let algorithm = Algorithm::named(name).unwrap();
            names.extend(algorithm.parameters().into_iter().map(|(name, _)| name));
        }
        for name in UNITS.iter().flat_map(|(_, names)| *names) {
            assert!(names.contains(name), "{name}");
        }
    }
}
