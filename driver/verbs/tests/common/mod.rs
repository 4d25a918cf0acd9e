//! Where the shared library is, and a C compiler for programs that use it.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The shared library cargo has built along with this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("path of the test");
    let deps = test.parent().expect("a folder");
    deps.join("libferroce_verbs.so")
}

/// A fresh folder of this test, with the library under both its names.
pub fn library_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the links");
    for link in ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1"] {
        std::os::unix::fs::symlink(library(), folder.join(link)).expect("a link");
    }
    folder
}

/// Compiles `source`; `None`, with the reason printed, where there is no compiler or no header.
pub fn compile(folder: &Path, source: &str, libraries: &[&str]) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        println!("skipped: infiniband/verbs.h is not installed (libibverbs-dev)");
        return None;
    }
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).expect("the source is written");
    let outcome = Command::new("cc")
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", folder.display()))
        .args(libraries)
        .output();
    let output: Output = match outcome {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: no C compiler ({error})");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs a compiled program over our library and returns what it prints; it must exit with 0 and
/// the loader must not complain.
pub fn run(folder: &Path, program: &Path) -> String {
    run_with(folder, program, &[])
}

/// The same with variables set.
pub fn run_with(folder: &Path, program: &Path, variables: &[(&str, &str)]) -> String {
    let output = Command::new(program)
        .envs(variables.iter().copied())
        .env("LD_LIBRARY_PATH", folder)
        .env("LD_BIND_NOW", "1")
        .env("FERROCE_FABRIC", folder.join("fabric"))
        .env_remove("FERROCE_LOG")
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}{errors}", output.status);
    assert_eq!(errors, "", "a program that succeeds says nothing");
    said.into_owned()
}

/// A device with a domain, a CQ and memory, and pairs of QPs between themselves, for programs to
/// begin with.
pub const PAIR: &str = include_str!("pair.h");

/// Compiles and runs a program that begins with `prelude` and prints only what is wrong.
pub fn run_silent(prelude: &str, name: &str, variables: &[(&str, &str)], body: &str) {
    let folder = library_folder(name);
    let source = format!("{prelude}\n#line 1\n{body}");
    let Some(program) = compile(&folder, &source, &["-libverbs"]) else { return };
    assert_eq!(run_with(&folder, &program, variables), "");
}
