//! Why settings could not be loaded.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{Key, Source};

/// Why the settings could not be loaded.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not TOML.
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// The file has a key that is none.
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The one that may have been meant.
        nearest: Option<Key>,
    },
    /// A value is not valid.
    Value {
        /// What it was to set.
        key: Key,
        /// The value.
        value: String,
        /// Where it came from.
        source: Source,
        /// What would be right.
        expected: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::File { path, error } => {
                write!(f, "configuration file {}: {error}", path.display())
            }
            ConfigError::Syntax { path, reason } => {
                write!(f, "configuration file {} is not TOML: {reason}", path.display())
            }
            ConfigError::UnknownKey { path, key, nearest } => {
                write!(f, "configuration file {}: unknown key '{key}'", path.display())?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean '{}'?", nearest.name()),
                    None => {
                        let names = Key::ALL.map(Key::name).join(", ");
                        write!(f, "; there are {names}")
                    }
                }
            }
            ConfigError::Value { key, value, source, expected } => {
                let key = key.name();
                write!(f, "{key} is '{value}' ({source}): expected {expected}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
