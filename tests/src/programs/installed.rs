//! The command and the library as a user has them: built by Cargo, placed by `ferroce install`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

/// Where they stand: a folder that any user may read, which a later run of the tests removes.
#[derive(Debug)]
pub struct Installed {
    /// The command.
    pub ferroce: PathBuf,
    /// The folder for `LD_LIBRARY_PATH`.
    pub library: PathBuf,
}

impl Installed {
    /// Builds and places them, once in this process.
    ///
    /// # Panics
    /// If they cannot be built or placed.
    pub fn get() -> &'static Installed {
        static INSTALLED: OnceLock<Result<Installed, String>> = OnceLock::new();
        match INSTALLED.get_or_init(install) {
            Ok(installed) => installed,
            Err(error) => panic!("{error}"),
        }
    }
}

fn install() -> Result<Installed, String> {
    let built = build()?;
    let prefix = temporary_folder("installed");
    succeed(Command::new(built).args(["install", "--prefix"]).arg(&prefix))?;
    Ok(Installed { ferroce: prefix.join("bin/ferroce"), library: prefix.join("lib/ferroce") })
}

/// Has Cargo build the command, and with it the library. Building the tests alone builds neither.
fn build() -> Result<PathBuf, String> {
    Ok(cargo_build(&["--package", "ferroce-tools"])?.join("ferroce"))
}

/// Has Cargo build something in the profile of this executable, and gives the folder.
fn cargo_build(what: &[&str]) -> Result<PathBuf, String> {
    let executable = env::current_exe().expect("this executable has a path");
    // Cargo places it in <target folder>/<profile>/deps.
    let [folder, target] =
        [2, 3].map(|up| executable.ancestors().nth(up).expect("built by Cargo").to_owned());
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        // What `cargo test` builds stands where that of the profile `dev` does.
        Some("debug") | None => "test",
        Some(name) => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", profile]).args(what);
    cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    succeed(&mut cargo)?;
    Ok(folder)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} ends with {}: {said}", output.status))
}

/// A program of this package's own, an example.
///
/// # Panics
/// If it cannot be built.
pub fn example(name: &str) -> PathBuf {
    match cargo_build(&["--package", "ferroce-tests", "--example", name]) {
        Ok(folder) => folder.join("examples").join(name),
        Err(error) => panic!("{error}"),
    }
}

/// A fresh folder that any user may read, for what outlives a test. Those of test runs that have
/// ended are removed.
///
/// # Panics
/// If it cannot be made.
pub fn temporary_folder(name: &str) -> PathBuf {
    const PREFIX: &str = "ferroce-programs-";
    remove_old(&env::temp_dir(), PREFIX);
    let folder = env::temp_dir().join(format!("{PREFIX}{}", process::id())).join(name);
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for folder in folder.ancestors().take(2) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    folder
}

/// Removes `PREFIX<pid>…` of processes that are gone from `parent`.
pub(super) fn remove_old(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        let pid: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if !pid.is_empty() && !Path::new("/proc").join(pid).exists() {
            // Another test run may be removing it just now.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether the program is installed. If not, its test is left out, but never in CI.
///
/// # Panics
/// If it is missing and the variable `CI` is `true`.
pub fn have(program: &str, package: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = Path::new(program).is_absolute() && Path::new(program).exists()
        || env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        let missing = format!("{program} is not installed (apt-get install {package})");
        assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{missing}");
        println!("skipped: {missing}");
    }
    found
}
