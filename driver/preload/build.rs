//! Link arguments that give the shared library the names of the C library.
//!
//! In the Rust library, and so in what tests and the command are linked from, the functions have
//! names of their own: only who is preloaded stands in for the C library.

use std::env;
use std::fs;
use std::path::PathBuf;

/// The names, one a line.
const NAMES: &str = include_str!("names.txt");

fn main() {
    println!("cargo:rerun-if-changed=names.txt");
    let mut script = String::from("{ global:\n");
    for name in NAMES.lines() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--defsym={name}=rspreload_{name}");
        script.push_str(&format!("    {name};\n"));
    }
    script.push_str("};\n");
    let out = env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR");
    let path = PathBuf::from(out).join("preload.map");
    fs::write(&path, script).expect("OUT_DIR can be written");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", path.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librspreload.so");
}
