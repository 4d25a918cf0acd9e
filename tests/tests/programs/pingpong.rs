//! The five `ibv_*_pingpong` programs.

use ferroce_tests::programs::{Ended, Fabric, Pair, each_row, have};

/// Program, options of both sides, and the bytes and iterations that each tells of.
type Row = (&'static str, &'static str, u64, u64);

/// The index of the IPv4 GID.
const GID: &str = "-g 1";

fn check(fabric: &Fabric, row: &Row) -> Result<(), String> {
    let (program, options, bytes, iterations) = *row;
    let options = format!("{GID} {options}");
    let pair = Pair::run(fabric, program, &options, &options);
    pair.check()?;
    [&pair.server, &pair.client].iter().try_for_each(|side| told(side, bytes, iterations))
}

/// Whether it tells of as many bytes and iterations as there should have been.
fn told(side: &Ended, bytes: u64, iterations: u64) -> Result<(), String> {
    let lines = [format!("{bytes} bytes in "), format!("{iterations} iters in ")];
    match lines.iter().find(|start| !side.out.lines().any(|line| line.starts_with(*start))) {
        None => Ok(()),
        Some(line) => Err(format!("no line `{line}…`\n{side}")),
    }
}

fn run(rows: &[Row]) {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    each_row(rows, |row| check(&fabric, row));
}

// Not -e with -t: then the program takes an event with no completion behind it for an error, and one
// is left whenever a completion arrives between arming and polling, on hardware too.

/// Bytes both ways, of 4096 each.
const DEFAULT: u64 = 1000 * 4096 * 2;

#[test]
fn rc() {
    let program = "ibv_rc_pingpong";
    run(&[
        (program, "", DEFAULT, 1000),
        (program, "-c", DEFAULT, 1000),
        (program, "-e", DEFAULT, 1000),
        (program, "-t", DEFAULT, 1000),
        (program, "-N", DEFAULT, 1000),
        (program, "-e -c -N", DEFAULT, 1000),
        (program, "-t -c -N", DEFAULT, 1000),
        (program, "-o -c", DEFAULT, 1000),
        (program, "-O -c", DEFAULT, 1000),
        (program, "-o -P -c", DEFAULT, 1000),
        (program, "-j", DEFAULT, 1000),
        (program, "-s 1 -n 2000", 2000 * 2, 2000),
        (program, "-s 1023 -m 256 -c", 1000 * 1023 * 2, 1000),
        (program, "-s 65537 -m 4096 -r 2 -n 100 -c", 100 * 65537 * 2, 100),
        (program, "-s 8388608 -n 10 -r 4 -c", 10 * 8_388_608 * 2, 10),
    ]);
}

#[test]
fn uc() {
    let program = "ibv_uc_pingpong";
    run(&[
        (program, "", DEFAULT, 1000),
        (program, "-c", DEFAULT, 1000),
        (program, "-e", DEFAULT, 1000),
        (program, "-e -c -m 4096", DEFAULT, 1000),
        (program, "-s 1", 1000 * 2, 1000),
        (program, "-s 1048576 -n 20 -c", 20 * 1_048_576 * 2, 20),
    ]);
}

#[test]
fn ud() {
    let program = "ibv_ud_pingpong";
    run(&[
        (program, "", 1000 * 1024 * 2, 1000),
        (program, "-c", 1000 * 1024 * 2, 1000),
        (program, "-e", 1000 * 1024 * 2, 1000),
        (program, "-e -c", 1000 * 1024 * 2, 1000),
        (program, "-s 1", 1000 * 2, 1000),
        (program, "-s 4096 -c", DEFAULT, 1000),
    ]);
}

#[test]
fn srq() {
    let program = "ibv_srq_pingpong";
    run(&[
        (program, "-n 100", 100 * 4096 * 2, 100),
        (program, "-n 100 -c", 100 * 4096 * 2, 100),
        (program, "-n 100 -e", 100 * 4096 * 2, 100),
        (program, "-n 100 -e -c -q 4", 100 * 4096 * 2, 100),
        (program, "-n 100 -o -c", 100 * 4096 * 2, 100),
        (program, "-n 10 -q 4 -s 1048576", 10 * 1_048_576 * 2, 10),
    ]);
}

#[test]
fn xsrq() {
    if !have("ibv_xsrq_pingpong", "ibverbs-utils") {
        return;
    }
    let rows = ["", "-e", "-o", "-s 1", "-m 4096 -s 1048576", "-n 100", "-e -n 100"];
    let fabric = Fabric::new();
    each_row(&rows, |options| {
        let options = format!("{GID} {options}");
        Pair::run(&fabric, "ibv_xsrq_pingpong", &options, &options).check()
    });
}
