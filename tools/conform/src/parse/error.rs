//! What a reader is told about a file that cannot be understood.

use std::fmt;

use crate::lex::Fault;
use crate::run::ScriptError;

/// Why a text is not a file of scenarios.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was found, and what would be right.
    pub message: String,
    /// The line, or of a long one the part around the column; tabs are spaces.
    pub excerpt: String,
    /// Where in the excerpt the column is, in characters from 0.
    pub caret: usize,
}

/// Characters of an excerpt.
const EXCERPT: usize = 100;

impl ParseError {
    /// A mistake that was found later, with the line it is about.
    pub(crate) fn of(text: &str, error: &ScriptError) -> ParseError {
        let ScriptError { line, mut column, ref message } = *error;
        if column == 0 {
            let text = text.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default();
            column = 1 + text.chars().take_while(|c| c.is_whitespace()).count() as u32;
        }
        ParseError::new(text, Fault { line, column, value: message.clone() })
    }

    pub(super) fn new(text: &str, fault: Fault) -> ParseError {
        let line = text.lines().nth(fault.line.saturating_sub(1) as usize).unwrap_or_default();
        let column = fault.column.saturating_sub(1) as usize;
        let skipped = if column < EXCERPT { 0 } else { column - EXCERPT / 2 };
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let excerpt = line.chars().skip(skipped).take(EXCERPT).map(shown).collect();
        ParseError {
            line: fault.line,
            column: fault.column,
            message: fault.value,
            excerpt,
            caret: column - skipped,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        writeln!(f, "  {}", self.excerpt)?;
        write!(f, "  {:>width$}", '^', width = self.caret + 1)
    }
}

impl std::error::Error for ParseError {}

/// The candidate that a mistyped word most likely stands for.
pub(crate) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // Every word of one or two letters is near another.
    if !(3..=40).contains(&word.len()) {
        return None;
    }
    let allowed = if word.len() < 4 { 1 } else { 2 };
    let candidates = candidates.iter().map(|&candidate| (distance(word, candidate), candidate));
    candidates.filter(|&(far, _)| far <= allowed).min().map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out or replaced to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
