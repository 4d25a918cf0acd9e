//! The fields of a sentence, by name and of the kind that is wanted.

use std::time::Duration;

use crate::ast::{Field, Word};
use crate::frame::Difference;
use crate::value::{Datum, Given};

use super::failure::{ScriptError, difference};
use super::scope::Scope;

/// The fields of a sentence, with their values.
pub(super) struct Fields(pub Vec<Given>);

impl Fields {
    pub fn new(scope: &Scope, fields: &[Field]) -> Result<Fields, ScriptError> {
        scope.fields(fields).map(Fields)
    }

    pub fn get(&self, name: &str) -> Option<&Given> {
        self.0.iter().find(|given| given.name.value == name)
    }

    /// A number that fits into a `T`.
    pub fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, ScriptError> {
        self.get(name).map(|given| narrow(&given.name, &given.datum)).transpose()
    }

    /// A number that fits into a `T`, or the one it is if it is not said.
    pub fn number_or<T: TryFrom<u64>>(&self, name: &str, default: T) -> Result<T, ScriptError> {
        Ok(self.number(name)?.unwrap_or(default))
    }

    pub fn word(&self, name: &str) -> Result<Option<Word>, ScriptError> {
        self.get(name).map(|given| word(&given.name, &given.datum)).transpose()
    }

    /// One word or several.
    pub fn words(&self, name: &str) -> Result<Option<Vec<Word>>, ScriptError> {
        let Some(Given { name, datum }) = self.get(name) else { return Ok(None) };
        let words = match datum {
            Datum::Word(word) => vec![word.clone()],
            Datum::Words(words) => words.clone(),
            other => return Err(mismatch(name, "words", other)),
        };
        let at_field = |value: String| Word { value, line: name.line, column: name.column };
        Ok(Some(words.into_iter().map(at_field).collect()))
    }

    pub fn time(&self, name: &str) -> Result<Option<Duration>, ScriptError> {
        match self.get(name) {
            None => Ok(None),
            Some(Given { datum: Datum::Time(time), .. }) => Ok(Some(*time)),
            Some(Given { name, datum }) => Err(mismatch(name, "a time", datum)),
        }
    }

    pub fn bytes(&self, name: &str) -> Result<Option<&[u8]>, ScriptError> {
        match self.get(name) {
            None => Ok(None),
            Some(Given { datum: Datum::Bytes(bytes), .. }) => Ok(Some(bytes)),
            Some(Given { name, datum }) => Err(mismatch(name, "bytes", datum)),
        }
    }

    /// Whether a field that stands alone is there.
    pub fn flag(&self, name: &str) -> Result<bool, ScriptError> {
        match self.get(name) {
            None => Ok(false),
            Some(Given { datum: Datum::Flag, .. }) => Ok(true),
            Some(Given { name, datum }) => Err(mismatch(name, "nothing behind it", datum)),
        }
    }

    /// All but those of these names.
    pub fn without(&self, names: &[&str]) -> Vec<Given> {
        let other = |given: &&Given| !names.contains(&given.name.value.as_str());
        self.0.iter().filter(other).cloned().collect()
    }
}

/// A word, at the place of the field `name`.
pub(super) fn word(name: &Word, datum: &Datum) -> Result<Word, ScriptError> {
    match datum {
        Datum::Word(value) => {
            Ok(Word { value: value.clone(), line: name.line, column: name.column })
        }
        other => Err(mismatch(name, "a word", other)),
    }
}

/// A number that fits into a `T`.
pub(super) fn narrow<T: TryFrom<u64>>(name: &Word, datum: &Datum) -> Result<T, ScriptError> {
    let Datum::Number(number) = datum else {
        return Err(mismatch(name, "a number", datum));
    };
    T::try_from(*number).map_err(|_| {
        let message = format!("{number:#x} is too large for `{}`", name.value);
        ScriptError::at(name, message)
    })
}

fn mismatch(name: &Word, wanted: &str, datum: &Datum) -> ScriptError {
    let got = match datum {
        Datum::Flag => "nothing".to_owned(),
        Datum::Number(number) => format!("the number {number}"),
        Datum::Word(word) => format!("`{word}`, which is no variable"),
        Datum::Words(words) => format!("the words `{}`", words.join(" ")),
        Datum::Any(_) => "`any`".to_owned(),
        Datum::Range(..) => "a range".to_owned(),
        Datum::Time(_) => "a time".to_owned(),
        Datum::Bytes(_) => "bytes".to_owned(),
        Datum::Text(text) => format!("the text {text:?}"),
    };
    ScriptError::at(name, format!("`{}` takes {wanted}, not {got}", name.value))
}

/// What must not be there.
const NONE: &str = "none";

/// Compares what a field must be with what it is. A variable that becomes its value goes to
/// `bindings`.
pub(super) fn compare(
    given: &Given,
    got: Option<u64>,
    differences: &mut Vec<Difference>,
    bindings: &mut Vec<(String, u64)>,
) -> Result<(), ScriptError> {
    let right = match (&given.datum, got) {
        (Datum::Number(expected), Some(got)) => *expected == got,
        (Datum::Range(from, to), Some(got)) => (*from..=*to).contains(&got),
        (Datum::Any(name), Some(got)) => {
            bindings.extend(name.clone().map(|name| (name, got)));
            true
        }
        (Datum::Number(_) | Datum::Range(..) | Datum::Any(_), None) => false,
        (Datum::Word(word), got) if word == NONE => got.is_none(),
        (other, _) => {
            return Err(mismatch(&given.name, "a number, a range, `any` or `none`", other));
        }
    };
    if !right {
        let expected = match &given.datum {
            Datum::Number(number) => number_text(*number),
            Datum::Range(from, to) => format!("{} to {}", number_text(*from), number_text(*to)),
            Datum::Word(word) => word.clone(),
            _ => "any".to_owned(),
        };
        let got = got.map_or_else(|| NONE.to_owned(), number_text);
        differences.push(difference(&given.name.value, expected, got));
    }
    Ok(())
}

/// A number as a person reads it best.
pub(super) fn number_text(number: u64) -> String {
    match number {
        0..10 => number.to_string(),
        _ => format!("{number} ({number:#x})"),
    }
}
