//! `host.congestion` and `[congestion]`: the parameters are those of the transport, by its names.

use ferroce_stack::congestion::{Algorithm, Config};
use toml::Value;

use super::document::text;
use super::error::Problem;
use super::schema::File;

/// How hosts control congestion, on links of `rate` bits per second.
pub(super) fn config(keys: &File, rate: u64) -> Result<Option<Config>, Problem> {
    let chosen = keys.host.congestion.as_deref().unwrap_or("none");
    let mut config = match (chosen, Algorithm::named(chosen)) {
        (_, Some(algorithm)) => Some(Config::new(algorithm, 0)),
        ("none", None) => None,
        (_, None) => {
            let names = Algorithm::NAMES.join("\", \"");
            // As other tools take them, after the algorithm.
            let hint = match chosen.contains('=') {
                true => "; parameters stand in [congestion.NAME]",
                false => "",
            };
            let message = format!("'{chosen}': expected \"none\", \"{names}\"{hint}");
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
                config.set(name, &text(value)).map_err(|error| {
                    let tables = Algorithm::NAMES.join("], [congestion.");
                    let message = format!("{error}, and tables [congestion.{tables}]");
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
            .set(name, &text(value))
            .map_err(|error| Problem::new(format!("{key}.{name}"), error.to_string()))?;
    }
    Ok(algorithm)
}
