//! The file as TOML, with what the command line or a sweep sets, and where each value stands.

use std::borrow::Cow;
use std::fmt;
use std::fs::File as FsFile;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::error::{ConfigError, Place, Problem};
use super::schema::File;
use super::words::in_words;
use crate::near::did_you_mean;
use crate::workload;

/// A file is shorter than so many bytes.
pub(crate) const MAX_FILE: u64 = 4 << 20;

/// An experiment's file, and what is set beside it.
#[derive(Clone, Debug)]
pub struct Document {
    path: PathBuf,
    text: String,
    settings: Vec<Setting>,
}

/// A key and the value it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, such as `switch.pfc.enabled` or `workload.0.senders`: an element of an array of
    /// tables goes by its number or its `name`.
    pub key: String,
    /// The value, as TOML or else a text.
    pub value: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is not TOML.
    pub fn read(path: &Path) -> Result<Document, ConfigError> {
        match read_text(path) {
            Ok(text) => Document::parse(path, &text),
            Err(message) => Err(ConfigError {
                file: path.to_owned(),
                place: Place::File,
                key: String::new(),
                message,
            }),
        }
    }

    /// Takes `text` for what is in the file `path`. Files that it names are sought beside that.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn parse(path: &Path, text: &str) -> Result<Document, ConfigError> {
        let document =
            Document { path: path.to_owned(), text: text.to_owned(), settings: Vec::new() };
        document.tree()?;
        Ok(document)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is set beside it.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Sets a key. Whether it and its value are right is found out by [`Document::experiment`].
    pub fn set(&mut self, setting: Setting) {
        self.settings.push(setting);
    }

    /// A key with numbers instead of the names of workloads, such as `workload[0].size` for
    /// `workload.incast.size`: two keys that mean the same are the same then. One that is wrong
    /// stays as it is.
    pub fn full_key(&self, key: &str) -> String {
        let parts: Vec<&str> = key.split('.').collect();
        let full = self.tree().ok().and_then(|tree| full_key(tree.table.get_ref(), &parts));
        full.unwrap_or_else(|| key.to_owned())
    }

    /// What is wrong with a key of the file.
    pub(crate) fn wrong(&self, key: &str, message: &str) -> ConfigError {
        match self.tree() {
            Ok(tree) => tree.locate(Problem::new(key, message)),
            Err(error) => error,
        }
    }

    /// The file with the settings in it.
    pub(crate) fn tree(&self) -> Result<Tree<'_>, ConfigError> {
        let Document { path, text, settings } = self;
        let mut table = DeTable::parse(text).map_err(|error| ConfigError {
            file: path.clone(),
            place: error.span().map_or(Place::File, |span| Place::Line(line(text, span.start))),
            key: String::new(),
            message: not_toml(text, &error),
        })?;
        spell(table.get_mut(), "").map_err(|(key, span)| ConfigError {
            file: path.clone(),
            place: Place::Line(line(text, span.start)),
            message: twice(&key),
            key,
        })?;
        for (index, setting) in settings.iter().enumerate() {
            let at = text.len() + 1 + index;
            let value = match DeValue::parse(&setting.value) {
                Ok(value) => value.into_inner(),
                Err(_) => DeValue::String(Cow::Borrowed(&setting.value)),
            };
            let parts: Vec<&str> = setting.key.split('.').collect();
            let mut value = Spanned::new(at..at + 1, value);
            spell_value(&mut value, &setting.key).map_err(|(key, _)| ConfigError {
                file: path.clone(),
                place: Place::Setting(setting.to_string()),
                message: twice(&key),
                key,
            })?;
            insert(table.get_mut(), "", &parts, value).map_err(|message| ConfigError {
                file: path.clone(),
                place: Place::Setting(setting.to_string()),
                key: setting.key.clone(),
                message,
            })?;
        }
        Ok(Tree { path, text, settings, table })
    }
}

/// The file as TOML, with the settings in it.
pub(crate) struct Tree<'d> {
    path: &'d Path,
    text: &'d str,
    /// The span of the value of the n-th begins n + 1 bytes behind the text.
    settings: &'d [Setting],
    table: Spanned<DeTable<'d>>,
}

impl<'d> Tree<'d> {
    /// The file's keys.
    pub(crate) fn keys(&self) -> Result<File, ConfigError> {
        self.check_shape().map_err(|problem| self.locate(problem))?;
        File::deserialize(Deserializer::from(self.table.clone())).map_err(|error| {
            let (place, key) = match error.span() {
                Some(span) => (self.place(span.start), self.key_at(&span)),
                None => (Place::File, String::new()),
            };
            ConfigError {
                file: self.path.to_owned(),
                place,
                message: in_words(error.message(), &key),
                key,
            }
        })
    }

    /// Whether tables are tables: an array would be taken for their values, in some order.
    fn check_shape(&self) -> Result<(), Problem> {
        for key in ["topology", "switch", "switch.ecn", "switch.pfc", "host", "plots", "sweep"] {
            if let Some((_, DeValue::Array(_))) = self.find(key) {
                let message =
                    format!("is an array: expected one table, [{key}] in single brackets");
                return Err(Problem::new(key, message));
            }
        }
        for key in ["workload", "fault", "topology.link"] {
            let Some((_, DeValue::Array(items))) = self.find(key) else { continue };
            if let Some(index) = items.iter().position(|item| !item.get_ref().is_table()) {
                let message = format!("expected a table, [[{key}]] in double brackets");
                return Err(Problem::new(format!("{key}[{index}]"), message));
            }
        }
        Ok(())
    }

    /// Keys that a table has, such as those of `workload[1]`.
    pub(crate) fn keys_of(&self, table: &str) -> Vec<String> {
        match self.find(table).map(|(_, value)| value) {
            Some(DeValue::Table(table)) => {
                table.keys().map(|key| key.get_ref().to_string()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The problem, with its place.
    pub(crate) fn locate(&self, problem: Problem) -> ConfigError {
        let mut key = problem.key.as_str();
        let place = loop {
            if let Some((span, _)) = self.find(key) {
                break self.place(span.start);
            }
            match key.rfind(['.', '[']) {
                Some(end) => key = &key[..end],
                None => break Place::File,
            }
        };
        ConfigError {
            file: self.path.to_owned(),
            place,
            key: problem.key,
            message: problem.message,
        }
    }

    fn place(&self, at: usize) -> Place {
        match at.checked_sub(self.text.len() + 1).and_then(|index| self.settings.get(index)) {
            Some(setting) => Place::Setting(setting.to_string()),
            None => Place::Line(line(self.text, at)),
        }
    }

    /// A value and its span, by a key such as `workload[1].size`.
    fn find(&self, key: &str) -> Option<(Range<usize>, &DeValue<'d>)> {
        let mut parts = key.split(['.', '[']).map(|part| part.trim_end_matches(']'));
        let mut value = self.table.get_ref().get(parts.next()?)?;
        for part in parts {
            value = match value.get_ref() {
                DeValue::Table(table) => table.get(part)?,
                DeValue::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some((value.span(), value.get_ref()))
    }

    /// The key whose name or value is at `span`, or that of the smallest value around it.
    fn key_at(&self, span: &Range<usize>) -> String {
        let mut best = (usize::MAX, String::new());
        visit(self.table.get_ref(), "", &mut |key, place| {
            // Of equals the inner one, which comes later.
            let is_around = place.start <= span.start && span.end <= place.end;
            if is_around && place.len() <= best.0 {
                best = (place.len(), key.to_owned());
            }
        });
        best.1
    }
}

/// Reads a file of less than [`MAX_FILE`] bytes, or says why not.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = FsFile::open(path).map_err(|error| format!("cannot read: {error}"))?;
    match file.take(MAX_FILE).read_to_string(&mut text) {
        Err(error) => Err(format!("cannot read: {error}")),
        Ok(len) if len as u64 == MAX_FILE => Err(format!("longer than {MAX_FILE} bytes")),
        Ok(_) => Ok(text),
    }
}

/// The line of a place in a text, from 1.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Calls `each` with every key and the places of its name and its value.
fn visit(table: &DeTable<'_>, prefix: &str, each: &mut dyn FnMut(&str, Range<usize>)) {
    for (key, value) in table {
        let name = join(prefix, key.get_ref());
        each(&name, key.span());
        visit_value(value, &name, each);
    }
}

/// A value as settings have it.
pub(super) fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn visit_value(value: &Spanned<DeValue<'_>>, name: &str, each: &mut dyn FnMut(&str, Range<usize>)) {
    each(name, value.span());
    match value.get_ref() {
        DeValue::Table(table) => visit(table, name, each),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                visit_value(item, &format!("{name}[{index}]"), each);
            }
        }
        _ => {}
    }
}

/// Puts a value where `parts` lead to from the table at `path`.
fn insert<'d>(
    table: &mut DeTable<'d>,
    path: &str,
    parts: &[&'d str],
    value: Spanned<DeValue<'d>>,
) -> Result<(), String> {
    let Some((first, rest)) = parts.split_first().filter(|(first, _)| !first.is_empty()) else {
        return Err("expected a key such as switch.pfc.enabled".to_owned());
    };
    let name = spelling(path, first);
    let path = join(path, &name);
    if rest.is_empty() {
        table.remove(&*name);
        table.insert(Spanned::new(value.span(), name), value);
        return Ok(());
    }
    if !table.contains_key(&*name) {
        let empty = Spanned::new(value.span(), DeValue::Table(DeTable::new()));
        table.insert(Spanned::new(value.span(), name.clone()), empty);
    }
    let Some(inner) = table.get_mut(&*name) else {
        return Err(format!("no '{first}'"));
    };
    match inner.get_mut() {
        DeValue::Table(inner) => insert(inner, &path, rest, value),
        DeValue::Array(items) => {
            match element(items, rest[0]).and_then(|index| items.get_mut(index)) {
                Some(item) => match item.get_mut() {
                    DeValue::Table(inner) => insert(inner, &path, &rest[1..], value),
                    _ => Err(format!("'{first}.{}' is no table", rest[0])),
                },
                None => Err(no_element(first, rest[0], &names_of(items))),
            }
        }
        _ => Err(format!("'{first}' is no table")),
    }
}

/// Why a text is no TOML.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let place = error.span().and_then(|span| text.get(span));
    match place.map(str::trim).filter(|place| !place.is_empty() && !place.contains('\n')) {
        Some(key) if message == "duplicate key" => {
            format!("not TOML: '{key}' is there already: expected each key and table once")
        }
        _ => format!("not TOML: {message}"),
    }
}

/// The spelling under which a key of the table at `path` is known: with `_` for `-`, but where keys
/// are names.
fn spelling<'d>(path: &str, key: &'d str) -> Cow<'d, str> {
    match key.contains('-') && !has_names(path) {
        true => Cow::Owned(key.replace('-', "_")),
        false => Cow::Borrowed(key),
    }
}

/// Whether the keys of this table are names that somebody has given.
fn has_names(table: &str) -> bool {
    matches!(table, "sweep.set" | "switch.at" | "host.classes" | "congestion")
}

/// Spells all keys with `_`, as they are known. Answers with one that is there twice then.
fn spell(table: &mut DeTable<'_>, path: &str) -> Result<(), (String, Range<usize>)> {
    let other = |key: &str| key.contains('-') && !has_names(path);
    let keys: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
    for key in keys.into_iter().filter(|key| other(key)) {
        let Some((name, value)) = table.remove_entry(key.as_str()) else { continue };
        let right = key.replace('-', "_");
        if table.contains_key(right.as_str()) {
            return Err((join(path, &right), name.span()));
        }
        table.insert(Spanned::new(name.span(), Cow::Owned(right)), value);
    }
    let keys: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
    for key in keys {
        if let Some(value) = table.get_mut(key.as_str()) {
            spell_value(value, &join(path, &key))?;
        }
    }
    Ok(())
}

fn spell_value(value: &mut Spanned<DeValue<'_>>, path: &str) -> Result<(), (String, Range<usize>)> {
    match value.get_mut() {
        DeValue::Table(inner) => spell(inner, path),
        DeValue::Array(items) => items.iter_mut().try_for_each(|item| spell_value(item, path)),
        _ => Ok(()),
    }
}

fn twice(key: &str) -> String {
    format!("'{key}' is there already: - and _ are alike in keys")
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        _ => format!("{path}.{key}"),
    }
}

/// Why an array of tables has no element of this name, or number.
fn no_element(array: &str, name: &str, names: &[String]) -> String {
    let most = match names.len() {
        0 => return format!("no '{name}' in {array}: there is none in it"),
        1 => "0".to_owned(),
        count => format!("a number from 0 to {}", count - 1),
    };
    let names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let or_name = match names.is_empty() {
        true => String::new(),
        false => format!(", or a name: {}", names.join(", ")),
    };
    format!("no '{name}' in {array}: {}expected {most}{or_name}", did_you_mean(name, &names))
}

/// Which element of an array of tables is meant by its number or its name.
fn element(items: &[Spanned<DeValue<'_>>], name: &str) -> Option<usize> {
    let number = name.parse::<usize>().ok().filter(|number| *number < items.len());
    let names = names_of(items);
    let alike = |own: &String| own.replace('-', "_") == name.replace('-', "_");
    number
        .or_else(|| names.iter().position(|own| own == name))
        .or_else(|| names.iter().position(alike).filter(|_| !name.is_empty()))
}

/// What elements of an array of tables are called, as reports call them.
fn names_of(items: &[Spanned<DeValue<'_>>]) -> Vec<String> {
    let text = |item: &Spanned<DeValue<'_>>, key: &str| {
        item.get_ref().get(key).and_then(|name| name.get_ref().as_str()).map(str::to_owned)
    };
    let given: Vec<_> = items.iter().map(|item| (text(item, "name"), text(item, "kind"))).collect();
    workload::names(&given)
}

/// The key that `parts` lead to, with the numbers of elements.
fn full_key(table: &DeTable<'_>, parts: &[&str]) -> Option<String> {
    let mut full = String::new();
    let mut place = Some(table);
    let mut parts = parts.iter();
    while let Some(part) = parts.next() {
        let part = spelling(&full, part);
        full = join(&full, &part);
        place = match place.and_then(|table| table.get(&*part)).map(Spanned::get_ref) {
            Some(DeValue::Table(inner)) => Some(inner),
            Some(DeValue::Array(items)) => match parts.next() {
                None => None,
                Some(name) => {
                    let index = element(items, name)?;
                    full = format!("{full}[{index}]");
                    items.get(index)?.get_ref().as_table()
                }
            },
            _ => None,
        };
    }
    Some(full)
}
