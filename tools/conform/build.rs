//! Puts the suite into the binary: whoever has installed `ferroce` has no source tree.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let suite = manifest.join("../../tests/scenarios");
    println!("cargo::rerun-if-changed={}", suite.display());
    let mut files = Vec::new();
    if suite.is_dir() {
        collect(&suite, "", &mut files)?;
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (name, path) in files {
        println!("cargo::rerun-if-changed={}", path.display());
        let path = fs::canonicalize(path)?;
        let _ = writeln!(list, "    ({name:?}, include_str!({path:?})),");
    }
    list.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("suite.rs"), list)
}

/// All scenario files below a folder, with their names: paths without the extension.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, &format!("{prefix}{stem}/"), files)?;
        } else if path.extension().is_some_and(|extension| extension == "scenario") {
            files.push((format!("{prefix}{stem}"), path));
        }
    }
    Ok(())
}
