//! Scenarios to choose from: the suite that is built in, and files of one's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use crate::ast::Scenario;
use crate::check;
use crate::hint::hint;
use crate::parse::{self, ParseError};
use crate::run::ScriptError;

/// The files of the suite: name and text.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/suite.rs"));

/// How a file of scenarios is called.
const EXTENSION: &str = "scenario";

/// A scenario, with where it comes from.
#[derive(Clone, Debug)]
pub struct Case {
    /// File and scenario: `responder/write-with-wrong-key`.
    pub name: String,
    /// The file, as messages name it.
    pub file: Arc<str>,
    /// What the file says.
    pub text: Arc<str>,
    /// What happens in it.
    pub scenario: Scenario,
}

/// Something that keeps a file or a scenario from being used, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as messages name it.
    pub file: String,
    /// What is wrong with it, and where.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.message)
    }
}

/// Scenarios that can be carried out, and what is wrong with others.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// In the order of files and of scenarios in them.
    pub cases: Vec<Case>,
    /// Files and scenarios that cannot be used.
    pub problems: Vec<Problem>,
}

impl Suite {
    /// The suite that is built in.
    pub fn built_in() -> Suite {
        let mut suite = Suite::default();
        for (name, text) in BUILT_IN {
            suite.add(name, &format!("{name}.{EXTENSION}"), text);
        }
        suite
    }

    /// Adds the scenarios of a file, or of all files below a folder.
    ///
    /// # Errors
    /// If something cannot be read.
    pub fn load(&mut self, path: &Path) -> std::io::Result<()> {
        if !path.is_dir() {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            self.add(&stem, &path.display().to_string(), &fs::read_to_string(path)?);
            return Ok(());
        }
        let mut files = Vec::new();
        collect(path, "", &mut files)?;
        files.sort();
        for (name, path) in files {
            self.add(&name, &path.display().to_string(), &fs::read_to_string(&path)?);
        }
        Ok(())
    }

    /// Adds the scenarios of a text.
    pub fn add(&mut self, name: &str, file: &str, text: &str) {
        let problem = |message: String| Problem { file: file.to_owned(), message };
        let parsed = match parse::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => return self.problems.push(problem(error.to_string())),
        };
        let (file, shared): (Arc<str>, Arc<str>) = (file.into(), text.into());
        for scenario in parsed.scenarios {
            let errors = check::scenario(&scenario);
            if errors.is_empty() {
                let name = format!("{name}/{}", scenario.name.value);
                let (file, text) = (Arc::clone(&file), Arc::clone(&shared));
                self.cases.push(Case { name, file, text, scenario });
                continue;
            }
            let shown = |error: &ScriptError| problem(ParseError::of(text, error).to_string());
            self.problems.extend(errors.iter().map(shown));
        }
    }

    /// Keeps the scenarios that a pattern names and that have one of the tags. None of either keeps
    /// all.
    ///
    /// # Errors
    /// A pattern or tag that names none, with one that was perhaps meant.
    pub fn choose(&mut self, patterns: &[String], tags: &[String]) -> Result<(), String> {
        for pattern in patterns {
            if !self.cases.iter().any(|case| names(pattern, &case.name)) {
                let all = self.cases.iter().flat_map(|case| parts(&case.name));
                let hint = hint(pattern, all);
                return Err(format!("no scenario or file is called `{pattern}`{hint}"));
            }
        }
        for tag in tags {
            if !self.cases.iter().any(|case| case.has_tag(tag)) {
                let all = self.cases.iter().flat_map(|case| &case.scenario.tags);
                let hint = hint(tag, all.map(|tag| tag.value.as_str()));
                return Err(format!("no scenario has the tag `{tag}`{hint}"));
            }
        }
        self.cases.retain(|case| {
            (patterns.is_empty() || patterns.iter().any(|pattern| names(pattern, &case.name)))
                && (tags.is_empty() || tags.iter().any(|tag| case.has_tag(tag)))
        });
        Ok(())
    }
}

impl Case {
    /// Something that is wrong in it, with the line that it is about.
    pub fn problem(&self, error: &ScriptError) -> Problem {
        let message = ParseError::of(&self.text, error).to_string();
        Problem { file: self.file.to_string(), message }
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.scenario.tags.iter().any(|own| own.value == tag)
    }
}

/// The name of a scenario, of its file, and of it in its file.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let (file, scenario) = name.rsplit_once('/').unwrap_or_default();
    [name, file, scenario].into_iter()
}

/// Whether a pattern names a scenario: as a whole, by its file, or by what it is called in it.
pub(crate) fn names(pattern: &str, name: &str) -> bool {
    parts(name).any(|part| matches(pattern.as_bytes(), part.as_bytes()))
}

/// Whether a pattern with `*` (anything) and `?` (one byte) describes a text.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where to go on if the text does not go on as the pattern does: behind the last `*`, one byte
    // further on each time.
    let (mut at, mut in_text, mut star) = (0, 0, None);
    while in_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, in_text));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[in_text] => {
                at += 1;
                in_text += 1;
            }
            _ => match star {
                None => return false,
                Some((behind, from)) => {
                    star = Some((behind, from + 1));
                    at = behind;
                    in_text = from + 1;
                }
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, &format!("{prefix}{stem}/"), files)?;
        } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
            files.push((format!("{prefix}{stem}"), path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::Known;
    use crate::report::explain;
    use crate::session::{self, Status};

    #[test]
    fn patterns() {
        let name = "keys/write-with-wrong-key";
        for pattern in [name, "keys", "write-with-wrong-key", "keys/*", "*wrong*", "k?ys", "*"] {
            assert!(names(pattern, name), "{pattern}");
        }
        for pattern in ["key", "write", "keys/", "*right*", "k?s", ""] {
            assert!(!names(pattern, name), "{pattern}");
        }
    }

    /// The scenarios in the description of the language, as one file.
    fn described() -> Suite {
        let document = include_str!("../../../docs/scenarios.md");
        let mut file = String::from("ferroce scenarios 1\n");
        for block in document.split("```").skip(1).step_by(2) {
            let scenarios = block.trim_start().trim_start_matches("ferroce scenarios 1").trim();
            if scenarios.starts_with("scenario ") {
                file += &format!("{scenarios}\n");
            }
        }
        let mut suite = Suite::default();
        suite.add("described", "docs/scenarios.md", &file);
        suite
    }

    #[test]
    fn every_scenario_of_the_description_passes() {
        let suite = described();
        assert_eq!(suite.problems, []);
        assert!(suite.cases.len() >= 3);
        let told =
            session::run_in_memory(&suite.cases, &Known::default(), 1, |judged| {
                match judged.status() {
                    Status::Passed => Ok(()),
                    _ => Err(explain(&judged)),
                }
            });
        told.unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[test]
    fn a_mistake_found_while_playing_is_shown_with_its_line() {
        let mut suite = Suite::default();
        let text = "ferroce scenarios 1\nscenario s\n\"t\"\n  wait 1 ms\n";
        suite.add("mine", "mine.scenario", text);
        let whole = ScriptError { line: 4, column: 0, message: String::from("no") };
        let shown = "mine.scenario:4:3: no\n    wait 1 ms\n    ^";
        assert_eq!(suite.cases[0].problem(&whole).to_string(), shown);
        let word = ScriptError { column: 8, ..whole };
        let shown = "mine.scenario:4:8: no\n    wait 1 ms\n         ^";
        assert_eq!(suite.cases[0].problem(&word).to_string(), shown);
    }
}
