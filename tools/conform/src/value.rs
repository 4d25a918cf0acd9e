//! Fields whose calculations are done: what a frame is built from and compared with.

use std::time::Duration;

use crate::ast::Word;

/// A field with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Name, with its place in the file.
    pub name: Word,
    /// Value.
    pub datum: Datum,
}

/// A value without variables.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// The field stands alone.
    Flag,
    /// A number.
    Number(u64),
    /// A word that is no variable.
    Word(String),
    /// Several words.
    Words(Vec<String>),
    /// Anything; the variable of this name becomes it.
    Any(Option<String>),
    /// From and to, both included.
    Range(u64, u64),
    /// A time.
    Time(Duration),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A text.
    Text(String),
}
