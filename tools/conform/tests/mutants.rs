//! The suite catches every way of breaking the transport that `mutants.toml` lists.
//!
//! A copy of the sources gets all mutants at once, each behind a switch, and is built once; then the
//! suite runs in memory with each switched on, in a process of its own: it may panic or never end.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;

/// What the copy is made of.
const SOURCES: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "docs", "stack", "driver", "tools", "tests", "fuzz"];
/// What the crates need of them at build time is source, not data.
const LEFT_OUT: [&str; 3] = ["captures", "corpus", "target"];
/// Which mutant is on, for the program that is built.
const SWITCH: &str = "FERROCE_MUTANT";
/// Processor time of the suite, several times what it takes: else it has met a mutant that never ends.
const SECONDS: u32 = 30;
/// What ends a process that has used its processor time.
const SIGXCPU: i32 = 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    file: String,
    after: Option<String>,
    was: String,
    now: String,
}

impl Mutant {
    /// The text with a switch where it was.
    fn applied(&self, text: &str, number: usize) -> Result<String, String> {
        let from = match &self.after {
            None => 0,
            Some(after) => {
                let found = text.find(after).ok_or(format!("{}: no `{after}`", self.name))?;
                found + after.len()
            }
        };
        let found = text[from..].find(&self.was).ok_or(format!("{}: no `{}`", self.name, self.was));
        let at = from + found?;
        let end = at + self.was.len();
        if self.after.is_none() && text[end..].contains(&self.was) {
            return Err(format!("{}: `{}` stands there twice", self.name, self.was));
        }
        let (was, now) = (&self.was, &self.now);
        let switch = format!("if crate::mutant::is({number}) {{ {now} }} else {{ {was} }}");
        let switched = if was.ends_with(';') { switch } else { format!("({switch})") };
        Ok(format!("{}{switched}{}", &text[..at], &text[end..]))
    }
}

#[test]
fn every_mutant_is_caught() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list: List = toml::from_str(include_str!("mutants.toml")).expect("mutants.toml");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    fs::create_dir_all(&copy).expect("folder");
    let changed = mutated(&root, &list.mutant);
    for source in SOURCES {
        copy_tree(&root.join(source), &copy.join(source), &changed);
    }
    let judge = build(&copy);
    let scenarios = root.join("tests/scenarios");
    assert_eq!(run(&judge, &scenarios, None), Outcome::Passed, "nothing is wrong, unless it is");

    let next = AtomicUsize::new(0);
    let survivors = std::thread::scope(|scope| {
        let work = || {
            let mut survivors = Vec::new();
            while let Some(mutant) = list.mutant.get(next.fetch_add(1, Ordering::Relaxed)) {
                let number = list.mutant.iter().position(|other| std::ptr::eq(other, mutant));
                let outcome = run(&judge, &scenarios, number);
                println!("{:52} {outcome:?}", mutant.name);
                if outcome == Outcome::Passed {
                    survivors.push(mutant.name.clone());
                }
            }
            survivors
        };
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("worker")).collect::<Vec<_>>()
    });
    assert!(survivors.is_empty(), "no scenario catches {survivors:?}");
}

/// The files that change, as they become.
fn mutated(root: &Path, mutants: &[Mutant]) -> HashMap<PathBuf, String> {
    let mut files: HashMap<PathBuf, String> = HashMap::new();
    let read = |path: &Path| fs::read_to_string(path).expect("source");
    for (number, mutant) in mutants.iter().enumerate() {
        let path = root.join(&mutant.file);
        let text = files.entry(path.clone()).or_insert_with(|| read(&path));
        *text = mutant.applied(text, number).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    let lib = root.join("stack/src/lib.rs");
    let text = files.entry(lib.clone()).or_insert_with(|| read(&lib));
    text.push_str(&format!(
        r#"
/// Which mutant is on.
mod mutant {{
    pub fn is(number: u32) -> bool {{
        static ON: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
        let read = || std::env::var("{SWITCH}").ok()?.parse().ok();
        *ON.get_or_init(read) == Some(number)
    }}
}}
"#
    ));
    files
}

/// Copies what differs, so that a second build has little to do.
fn copy_tree(from: &Path, to: &Path, changed: &HashMap<PathBuf, String>) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("folder");
        for entry in fs::read_dir(from).expect("folder") {
            let name = entry.expect("entry").file_name();
            if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                copy_tree(&from.join(&name), &to.join(&name), changed);
            }
        }
        return;
    }
    let bytes = match changed.get(from) {
        Some(text) => text.clone().into_bytes(),
        None => fs::read(from).expect("source"),
    };
    if fs::read(to).ok().as_ref() != Some(&bytes) {
        fs::write(to, bytes).expect("copy");
    }
}

/// Builds the program that runs the suite.
fn build(copy: &Path) -> PathBuf {
    let target = copy.join("target");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--package",
            "ferroce-conform",
            "--example",
            "judge",
        ])
        .args(["--config", "profile.dev.opt-level=1", "--config", "profile.dev.debug=false"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(copy)
        // Unused where a mutant is off, and not written for the eye.
        .env("RUSTFLAGS", "--cap-lints=allow")
        .status()
        .expect("cargo");
    assert!(status.success(), "the mutated copy at {} does not build", copy.display());
    target.join("debug/examples/judge")
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Every scenario passes.
    Passed,
    /// One does not; what was said of it.
    Caught(String),
    /// The suite never ended.
    Hung,
}

fn run(judge: &Path, scenarios: &Path, mutant: Option<usize>) -> Outcome {
    // Its processor time is limited, not its time: a slow machine ends nothing.
    let limited = format!("ulimit -t {SECONDS} && exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh"]).arg(judge).arg(scenarios);
    command.stdin(Stdio::null()).stderr(Stdio::null()).env_remove(SWITCH);
    if let Some(number) = mutant {
        command.env(SWITCH, number.to_string());
    }
    let output = command.output().expect("judge");
    if output.status.success() {
        return Outcome::Passed;
    }
    match output.status.signal() {
        Some(SIGXCPU) => Outcome::Hung,
        _ => Outcome::Caught(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
    }
}
