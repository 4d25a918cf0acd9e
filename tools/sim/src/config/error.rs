//! Why an experiment could not be understood.

use std::fmt;
use std::path::PathBuf;

/// Where a wrong value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file, in this line, counted from 1.
    Line(usize),
    /// In the file; nothing in it is to blame alone.
    File,
    /// On the command line, or in a sweep: `KEY=VALUE`.
    Setting(String),
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub place: Place,
    /// The key, such as `workload[1].size`; empty if it is none's.
    pub key: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(line) => write!(f, "{}:{line}: ", self.file.display())?,
            Place::File => write!(f, "{}: ", self.file.display())?,
            Place::Setting(setting) => {
                write!(f, "{}, with {setting}: ", self.file.display())?;
            }
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// What is wrong with a key; where that stands is found later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The key, such as `workload[1].size`.
    pub key: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

impl Problem {
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { key: key.into(), message: message.into() }
    }
}
