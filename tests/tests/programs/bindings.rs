//! A Rust program that knows libibverbs by a crate of bindings: an example of `sideway`, as the
//! registry has it. It opens the library by name when it runs.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ferroce_tests::programs::{Fabric, Pair, Running, free_port, have, temporary_folder};

const CRATE: [&str; 3] = ["sideway", "--version", "0.4.3"];
const EXAMPLE: &str = "rc_pingpong";

/// Whether there is what generates the bindings.
fn has_libclang() -> bool {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders.map(|folder| folder.path()).any(|folder| {
        let is_llvm =
            folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm-"));
        is_llvm && folder.join("lib/libclang.so.1").exists()
    })
}

/// Has Cargo build the example; that is kept between runs.
fn build() -> PathBuf {
    let executable = env::current_exe().expect("this executable has a path");
    let target = executable.ancestors().nth(3).expect("built by Cargo").join("bindings");
    let root = temporary_folder("bindings");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("install").args(CRATE).args(["--locked", "--quiet", "--example", EXAMPLE]);
    cargo.arg("--root").arg(&root).arg("--target-dir").arg(target);
    let said = Running::start_within(&mut cargo, Duration::from_secs(900)).wait();
    assert!(said.status.is_some_and(|status| status.success()), "{said}");
    root.join("bin").join(EXAMPLE)
}

#[test]
fn an_example_of_sideway_runs() {
    let has_libclang = has_libclang() || have("libclang", "libclang-dev");
    if !has_libclang || !have("cmake", "cmake") {
        return;
    }
    let program = build();
    let fabric = Fabric::new();
    let port = free_port();
    let command = || {
        let mut command = fabric.run(program.to_str().expect("a path of ours"));
        command.args(["-p", &port.to_string(), "-g", "1", "-n", "1000"]);
        command
    };
    let pair = Pair::of(&mut command(), port, command().arg("127.0.0.1"));
    pair.check().unwrap();
    assert!(pair.client.out.contains("1000 iters in"), "{}", pair.client);
}
