//! Programs of our own, in C, where no other does what is to be tested.

use std::path::PathBuf;
use std::process::Command;

use super::{Fabric, limited};

/// Compiles `programs/<name>.c` of this package into the home folder of the fabric.
///
/// # Panics
/// If it does not compile without a warning.
pub fn compile(fabric: &Fabric, name: &str, libraries: &[&str]) -> PathBuf {
    let source = format!("{}/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = fabric.home().join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Werror", &source, "-o"]).arg(&program).args(libraries);
    limited(&mut gcc).check().unwrap_or_else(|error| panic!("{error}"));
    program
}
