//! What the words of a script stand for: variables, and the objects of the target.

use std::collections::HashMap;

use crate::ast::{Bytes, Expr, Field, Operator, Value, Word};
use crate::hint::hint;
use crate::value::{Datum, Given};

use super::failure::ScriptError;

/// Bytes a script may ask for at once.
const MAX_BYTES: u64 = 16 << 20;

/// An object of the target.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// Its name at the target. A name that a script uses again is another object, of another name.
    pub id: String,
    pub kind: ObjectKind,
}

/// What it is, and what its verbs have told.
#[derive(Clone, Debug)]
pub(super) enum ObjectKind {
    Memory(Memory),
    /// An index into the QPs of the scenario.
    Qp(usize),
    Cq {
        size: u32,
    },
    Srq {
        number: Option<u32>,
        size: u32,
    },
    Window {
        rkey: u32,
    },
    Domain,
    XrcDomain,
    Connection,
}

#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub address: u64,
    pub lkey: u32,
    pub rkey: u32,
    /// Bytes.
    pub length: u64,
    /// What the program has put there, from its first byte on; zeros behind.
    pub content: Vec<u8>,
}

impl ObjectKind {
    /// As the language calls it.
    fn name(&self) -> &'static str {
        match self {
            ObjectKind::Memory(_) => "memory",
            ObjectKind::Qp(_) => "qp",
            ObjectKind::Cq { .. } => "cq",
            ObjectKind::Srq { .. } => "srq",
            ObjectKind::Window { .. } => "window",
            ObjectKind::Domain => "domain",
            ObjectKind::XrcDomain => "xrc-domain",
            ObjectKind::Connection => "connection",
        }
    }
}

/// Variables and objects.
#[derive(Default)]
pub(super) struct Scope {
    variables: HashMap<String, Datum>,
    objects: HashMap<String, Object>,
    /// How often each name was used for an object.
    made: HashMap<String, u32>,
    /// `(qpn, peer_qpn)` of each QP, for its properties.
    pub qpns: Vec<(u32, u32)>,
}

impl Scope {
    pub fn set(&mut self, name: &str, value: Datum) {
        self.variables.insert(name.to_owned(), value);
    }

    /// The value of a variable, if there is one of this name.
    pub fn variable(&self, name: &str) -> Option<&Datum> {
        self.variables.get(name)
    }

    /// Gives a variable the value it had, if it had one.
    pub fn restore(&mut self, name: &str, value: Option<Datum>) {
        match value {
            Some(value) => self.set(name, value),
            None => drop(self.variables.remove(name)),
        }
    }

    /// A name at the target for the next object that the script calls `name`.
    pub fn fresh(&mut self, name: &str) -> String {
        let count = self.made.entry(name.to_owned()).or_default();
        *count += 1;
        match *count {
            1 => name.to_owned(),
            count => format!("{name}.{count}"),
        }
    }

    pub fn insert(&mut self, name: &str, object: Object) {
        self.objects.insert(name.to_owned(), object);
    }

    /// The name of the object meant: a variable of a loop may hold it.
    fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        match self.variables.get(name) {
            Some(Datum::Word(value)) if !self.objects.contains_key(name) => value,
            _ => name,
        }
    }

    /// An object by its name.
    pub fn object(&self, name: &Word) -> Result<&Object, ScriptError> {
        self.objects.get(self.resolve(&name.value)).ok_or_else(|| {
            let hint = hint(&name.value, self.objects.keys().map(String::as_str));
            ScriptError::at(name, format!("there is no `{}` here{hint}", name.value))
        })
    }

    /// A memory by its name.
    pub fn memory(&mut self, name: &Word) -> Result<(&str, &mut Memory), ScriptError> {
        let wrong = self.wrong_kind(name, "memory");
        let key = self.resolve(&name.value).to_owned();
        match self.objects.get_mut(&key) {
            Some(Object { id, kind: ObjectKind::Memory(memory) }) => Ok((id, memory)),
            _ => Err(wrong),
        }
    }

    /// The index of a QP by its name.
    pub fn qp(&self, name: &Word) -> Result<usize, ScriptError> {
        match self.object(name)?.kind {
            ObjectKind::Qp(index) => Ok(index),
            _ => Err(self.wrong_kind(name, "qp")),
        }
    }

    /// The name at the target of an SRQ, and its number if it is one of XRC.
    pub fn srq(&self, name: &Word) -> Result<(&str, Option<u32>), ScriptError> {
        match self.object(name)? {
            Object { id, kind: ObjectKind::Srq { number, .. } } => Ok((id, *number)),
            _ => Err(self.wrong_kind(name, "srq")),
        }
    }

    /// The name at the target of a CQ.
    pub fn cq(&self, name: &Word) -> Result<&str, ScriptError> {
        match self.object(name)? {
            Object { id, kind: ObjectKind::Cq { .. } } => Ok(id),
            _ => Err(self.wrong_kind(name, "cq")),
        }
    }

    /// Notes what a CQ or an SRQ holds from here on.
    pub fn resized(&mut self, name: &Word, now: u32) {
        let key = self.resolve(&name.value).to_owned();
        let kind = self.objects.get_mut(&key).map(|object| &mut object.kind);
        if let Some(ObjectKind::Cq { size } | ObjectKind::Srq { size, .. }) = kind {
            *size = now;
        }
    }

    /// The name at the target of an XRC domain.
    pub fn xrc_domain(&self, name: &Word) -> Result<&str, ScriptError> {
        match self.object(name)? {
            Object { id, kind: ObjectKind::XrcDomain } => Ok(id),
            _ => Err(self.wrong_kind(name, "xrc-domain")),
        }
    }

    /// The name at the target of a domain.
    pub fn domain(&self, name: &Word) -> Result<&str, ScriptError> {
        match self.object(name)? {
            Object { id, kind: ObjectKind::Domain } => Ok(id),
            _ => Err(self.wrong_kind(name, "domain")),
        }
    }

    /// The name at the target of a connection.
    pub fn connection(&self, name: &Word) -> Result<&str, ScriptError> {
        match self.object(name)? {
            Object { id, kind: ObjectKind::Connection } => Ok(id),
            _ => Err(self.wrong_kind(name, "connection")),
        }
    }

    /// The name in the script of an object that is called `id` at the target.
    pub fn name_of(&self, id: &str) -> Option<&str> {
        let mut objects = self.objects.iter();
        objects.find(|(_, object)| object.id == id).map(|(name, _)| name.as_str())
    }

    /// A window's name at the target, and its key.
    pub fn window(&mut self, name: &Word) -> Result<(&str, &mut u32), ScriptError> {
        let wrong = self.wrong_kind(name, "window");
        let key = self.resolve(&name.value).to_owned();
        match self.objects.get_mut(&key) {
            Some(Object { id, kind: ObjectKind::Window { rkey } }) => Ok((id, rkey)),
            _ => Err(wrong),
        }
    }

    fn wrong_kind(&self, name: &Word, wanted: &str) -> ScriptError {
        match self.object(name) {
            Err(error) => error,
            Ok(Object { kind, .. }) => {
                let kind = kind.name();
                ScriptError::at(name, format!("`{}` is a {kind}, not a {wanted}", name.value))
            }
        }
    }

    /// The values of fields.
    pub fn fields(&self, fields: &[Field]) -> Result<Vec<Given>, ScriptError> {
        let given = |field: &Field| {
            Ok(Given { name: field.name.clone(), datum: self.datum(&field.value, &field.name)? })
        };
        fields.iter().map(given).collect()
    }

    /// A value; `place` is where it is said to be if it has no place itself.
    pub fn datum(&self, value: &Value, place: &Word) -> Result<Datum, ScriptError> {
        Ok(match value {
            Value::Flag => Datum::Flag,
            Value::Expr(expr) => self.expr(expr)?,
            Value::Any(name) => Datum::Any(name.as_ref().map(|name| name.value.clone())),
            Value::Range(from, to) => Datum::Range(self.number(from)?, self.number(to)?),
            Value::Time(time) => Datum::Time(*time),
            Value::Words(words) => {
                Datum::Words(words.iter().map(|word| self.word(word)).collect::<Result<_, _>>()?)
            }
            Value::Bytes(bytes) => Datum::Bytes(self.bytes(bytes, place)?),
            Value::Text(text) => Datum::Text(text.value.clone()),
        })
    }

    /// A word, or what the variable of this name holds.
    pub fn word(&self, word: &Word) -> Result<String, ScriptError> {
        match self.variables.get(&word.value) {
            None => Ok(word.value.clone()),
            Some(Datum::Word(value)) => Ok(value.clone()),
            Some(_) => Err(ScriptError::at(word, format!("`{}` is a number here", word.value))),
        }
    }

    /// A number, or a word that stands for itself.
    pub fn expr(&self, expr: &Expr) -> Result<Datum, ScriptError> {
        let Expr::Name(word) = expr else {
            return self.number(expr).map(Datum::Number);
        };
        let variable = self.variables.get(&word.value).cloned();
        Ok(variable.unwrap_or_else(|| Datum::Word(word.value.clone())))
    }

    /// A number.
    pub fn number(&self, expr: &Expr) -> Result<u64, ScriptError> {
        match expr {
            Expr::Number(number) => Ok(*number),
            Expr::Name(word) => match self.variables.get(&word.value) {
                Some(Datum::Number(number)) => Ok(*number),
                Some(_) => {
                    let message = format!("`{}` is a word here, not a number", word.value);
                    Err(ScriptError::at(word, message))
                }
                None => Err(self.unknown(word)),
            },
            Expr::Property(object, property) => self.property(object, property),
            Expr::Negative(inner) => Ok(self.number(inner)?.wrapping_neg()),
            Expr::Binary(left, operator, right) => {
                let (left, right) = (self.number(left)?, self.number(right)?);
                Ok(match operator {
                    Operator::Add => left.wrapping_add(right),
                    Operator::Subtract => left.wrapping_sub(right),
                    Operator::Multiply => left.wrapping_mul(right),
                })
            }
        }
    }

    fn unknown(&self, word: &Word) -> ScriptError {
        if let Some(object) = self.objects.get(&word.value) {
            let kind = object.kind.name();
            let message =
                format!("`{}` is a {kind}; a number would be a property of it", word.value);
            return ScriptError::at(word, message);
        }
        let hint = hint(&word.value, self.variables.keys().map(String::as_str));
        ScriptError::at(word, format!("there is no variable `{}`{hint}", word.value))
    }

    fn property(&self, name: &Word, property: &Word) -> Result<u64, ScriptError> {
        let object = self.object(name)?;
        let properties: &[(&str, u64)] = &match &object.kind {
            ObjectKind::Memory(memory) => vec![
                ("address", memory.address),
                ("key", memory.rkey.into()),
                ("lkey", memory.lkey.into()),
            ],
            ObjectKind::Qp(index) => {
                let (qpn, peer_qpn) = self.qpns[*index];
                vec![("qpn", qpn.into()), ("peer-qpn", peer_qpn.into())]
            }
            ObjectKind::Cq { size } => vec![("size", (*size).into())],
            ObjectKind::Srq { number, size } => {
                let number = number.map(|number| ("number", number.into()));
                number.into_iter().chain([("size", (*size).into())]).collect()
            }
            ObjectKind::Window { rkey } => vec![("key", (*rkey).into())],
            ObjectKind::Domain | ObjectKind::XrcDomain | ObjectKind::Connection => Vec::new(),
        };
        let found = properties.iter().find(|(known, _)| *known == property.value);
        found.map(|&(_, value)| value).ok_or_else(|| {
            let kind = object.kind.name();
            let known: Vec<&str> = properties.iter().map(|&(known, _)| known).collect();
            let message = match known.is_empty() {
                true => format!("a {kind} such as `{}` has no properties", name.value),
                false => format!("a {kind} has no `{}`, but {}", property.value, known.join(", ")),
            };
            ScriptError::at(property, message)
        })
    }

    /// The bytes a rule tells.
    pub fn bytes(&self, bytes: &Bytes, place: &Word) -> Result<Vec<u8>, ScriptError> {
        let count = |expr: &Expr| {
            let count = self.number(expr)?;
            match count <= MAX_BYTES {
                true => Ok(count as usize),
                false => Err(ScriptError::at(place, format!("{count} bytes are too many"))),
            }
        };
        Ok(match bytes {
            Bytes::Of(len, byte) => vec![self.byte(byte, place)?; count(len)?],
            Bytes::Counting(len, first) => {
                let first = self.byte(first, place)?;
                (0..count(len)?).map(|index| first.wrapping_add(index as u8)).collect()
            }
            Bytes::Hex(bytes) => bytes.clone(),
            Bytes::Quad(value) => self.number(value)?.to_ne_bytes().to_vec(),
        })
    }

    fn byte(&self, expr: &Expr, place: &Word) -> Result<u8, ScriptError> {
        let value = self.number(expr)?;
        u8::try_from(value)
            .map_err(|_| ScriptError::at(place, format!("{value:#x} does not fit into a byte")))
    }
}
