//! How a scenario ended, and what is said about it.

use std::fmt;

use crate::ast::{Rule, Statement, Word};
use crate::frame::{Difference, FieldError};
use crate::target::Broken;

/// What a scenario has shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The target did all that it must.
    Passed,
    /// It did not.
    Failed(Box<Failure>),
    /// It was not asked, or not all: the scenario needs something the target cannot do. Why.
    Skipped(String),
    /// The script cannot be carried out.
    Invalid(ScriptError),
    /// The target is lost.
    Broken(Broken),
}

/// An expectation that was not met.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Line of the sentence, from 1.
    pub line: u32,
    /// The sentence, as written.
    pub sentence: String,
    /// The variables of the loops around it, with their values.
    pub variables: Vec<(String, String)>,
    /// What it rests on.
    pub rule: Option<Rule>,
    /// What is wrong, in a sentence.
    pub problem: String,
    /// What came instead, in the language's words.
    pub got: Option<String>,
    /// Which fields differ.
    pub differences: Vec<Difference>,
    /// How many entries of the transcript happened before it was noticed.
    pub before: usize,
}

/// Something in the script that cannot be carried out, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1; 0 if the whole sentence is meant.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl ScriptError {
    /// An error at a word.
    pub fn at(word: &Word, message: impl Into<String>) -> ScriptError {
        ScriptError { line: word.line, column: word.column, message: message.into() }
    }

    /// An error of a sentence.
    pub fn of(statement: &Statement, message: impl Into<String>) -> ScriptError {
        ScriptError { line: statement.line, column: 0, message: message.into() }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => write!(f, "{}: {}", self.line, self.message),
            column => write!(f, "{}:{column}: {}", self.line, self.message),
        }
    }
}

impl std::error::Error for ScriptError {}

/// Why a scenario does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(Box<Failure>),
    /// The target has no way to do what the scenario asks for.
    Skipped(String),
    Invalid(ScriptError),
    Broken(Broken),
}

impl From<ScriptError> for Stop {
    fn from(error: ScriptError) -> Stop {
        Stop::Invalid(error)
    }
}

impl From<FieldError> for ScriptError {
    fn from(error: FieldError) -> ScriptError {
        let FieldError { line, column, message } = error;
        ScriptError { line, column, message }
    }
}

impl From<FieldError> for Stop {
    fn from(error: FieldError) -> Stop {
        Stop::Invalid(error.into())
    }
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

impl From<Stop> for Verdict {
    fn from(stop: Stop) -> Verdict {
        match stop {
            Stop::Failed(failure) => Verdict::Failed(failure),
            Stop::Skipped(why) => Verdict::Skipped(why),
            Stop::Invalid(error) => Verdict::Invalid(error),
            Stop::Broken(broken) => Verdict::Broken(broken),
        }
    }
}

/// What stops the scenario here, if anything does.
pub(super) type Step<T = ()> = Result<T, Stop>;

/// A field that must be one thing and is another.
pub(super) fn difference(
    field: impl Into<String>,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Difference {
    Difference { field: field.into(), expected: expected.into(), got: got.into() }
}
