//! Names and kinds of fields, before a scenario is run.

use std::collections::BTreeSet;

use ferroce_stack::wire::{HeaderSet, Transport};

use super::build::{header_set, wants};
use super::fields::{FIELDS, Place, Style, field};
use super::names::named;
use super::{FieldError, RUNNERS};
use crate::ast::{Expr, Field, Value, Word};
use crate::hint::hint;

/// What a sentence says of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// `peer sends`.
    Built,
    /// `target sends`.
    Compared,
}

/// The shapes a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Number,
    Flag,
    Bytes,
    Text,
    Range,
    /// A word among these, or a number.
    Word(&'static [&'static str]),
}

/// Fields of what the peer sends that are no numbers of a header.
const BUILT: [(&str, Shape); 8] = [
    ("payload", Shape::Bytes),
    ("trailing", Shape::Bytes),
    ("fragment", Shape::Flag),
    ("icrc", Shape::Word(&["wrong", "without-pad", "swapped"])),
    ("cut", Shape::Number),
    ("byte", Shape::Range),
    ("source-address", Shape::Text),
    ("destination-address", Shape::Text),
];

/// The same of what the target must send.
const COMPARED: [(&str, Shape); 5] = [
    ("payload", Shape::Bytes),
    ("payload-length", Shape::Number),
    ("icrc", Shape::Number),
    ("source-address", Shape::Text),
    ("destination-address", Shape::Text),
];

/// Fields that may be said more than once.
const REPEATED: &str = "byte";

/// Checks a frame's name, the names of its fields, and the kinds of their values, as far as they
/// do not depend on the QP and on variables.
///
/// # Errors
/// The first that is wrong.
pub fn check(frame: &Word, fields: &[Field], of: Use) -> Result<(), FieldError> {
    if super::cm::is_datagram(frame) {
        return super::cm::check(frame, fields, of);
    }
    let service = fields.iter().find(|field| field.name.value == "service");
    let named = named(frame, Transport::Rc)?;
    let set = header_set(&named).with(HeaderSet::DETH).with(HeaderSet::XRCETH);
    let mut said = BTreeSet::new();
    for given in fields {
        let name = given.name.value.as_str();
        if !said.insert(name) && name != REPEATED {
            return Err(FieldError::at(&given.name, format!("`{name}` is said twice")));
        }
        check_field(given, if named.by_number { ALL } else { set }, of)?;
    }
    match service {
        // A variable may stand for one.
        Some(field) if !matches!(field.value, Value::Expr(Expr::Name(_))) => {
            Err(wants(&field.name, "rc, uc, rd, ud or xrc"))
        }
        _ => Ok(()),
    }
}

/// Every header.
const ALL: HeaderSet = HeaderSet(u16::MAX);

fn check_field(given: &Field, set: HeaderSet, of: Use) -> Result<(), FieldError> {
    let name = given.name.value.as_str();
    if RUNNERS.contains(&name) || name == "service" {
        return Ok(());
    }
    let own = match of {
        Use::Built => BUILT.iter().find(|(own, _)| *own == name),
        Use::Compared => COMPARED.iter().find(|(own, _)| *own == name),
    };
    if let Some(&(_, shape)) = own {
        return check_shape(given, shape, of);
    }
    let Some(field) = field(name) else {
        let own = if of == Use::Built { &BUILT[..] } else { &COMPARED[..] };
        let names = FIELDS.iter().map(|field| field.name);
        let names = names.chain(own.iter().map(|&(name, _)| name)).chain(RUNNERS);
        let message = format!("a frame has no field `{name}`{}", hint(name, names));
        return Err(FieldError::at(&given.name, message));
    };
    if matches!(field.place, Place::Extended(of, ..) if of.0 & set.0 == 0) {
        return Err(FieldError::at(&given.name, format!("this frame has no field `{name}`")));
    }
    let shape = match field.style {
        Style::Flag => Shape::Flag,
        _ if name == "vlan" => Shape::Word(&["none"]),
        _ => Shape::Number,
    };
    check_shape(given, shape, of)
}

pub(super) fn check_shape(given: &Field, shape: Shape, of: Use) -> Result<(), FieldError> {
    let compared = of == Use::Compared;
    let fits = match (&given.value, shape) {
        (Value::Any(name), Shape::Bytes) => compared && name.is_none(),
        (Value::Any(_), Shape::Number | Shape::Word(_) | Shape::Flag) => compared,
        (Value::Range(..), Shape::Number) => compared,
        (Value::Range(..), Shape::Range)
        | (Value::Flag, Shape::Flag)
        | (Value::Bytes(_), Shape::Bytes)
        | (Value::Text(_), Shape::Text) => true,
        // A variable or a number; a word that is neither is found when the scenario is run.
        (Value::Expr(_), Shape::Number | Shape::Flag | Shape::Word(_)) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let what = match shape {
        Shape::Number => String::from("a number"),
        Shape::Flag => String::from("nothing behind it, or 0 or 1"),
        Shape::Bytes => String::from("bytes, such as `64 of 0xab`"),
        Shape::Text => String::from("an address in quotes"),
        Shape::Range => String::from("`N to M`: byte N becomes M"),
        Shape::Word(words) => format!("{} or a number", words.join(", ")),
    };
    Err(wants(&given.name, &what))
}
