//! The command, with no setting from outside, and a folder that is removed at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The command, without the settings of whoever runs the tests.
pub fn ferroce(arguments: &[&str]) -> Command {
    ferroce_at(Path::new(env!("CARGO_BIN_EXE_ferroce")), arguments)
}

/// The command that stands there.
pub fn ferroce_at(executable: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(executable);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERROCE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_LIBRARY_PATH").args(arguments);
    command
}

/// What a command has said.
#[derive(Debug)]
pub struct Said {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

pub fn output(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Said {
        status: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// A folder that is removed at the end.
pub struct TempFolder(PathBuf);

impl TempFolder {
    pub fn new() -> TempFolder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferroce-launch-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        TempFolder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
