//! Open MPI: two ranks over UCX on the device.

use std::process::Command;

use ferroce_tests::programs::{Fabric, have, limited};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/ranks.c");

#[test]
fn two_ranks_exchange_and_reduce() {
    if !have("mpicc", "libopenmpi-dev gcc") || !have("mpirun", "openmpi-bin") {
        return;
    }
    let fabric = Fabric::new();
    let ranks = fabric.home().join("ranks");
    let mut compile = Command::new("mpicc");
    limited(compile.args(["-O2", "-Wall", "-Werror", SOURCE, "-o"]).arg(&ranks)).check().unwrap();
    // Both in one namespace: that is how they see each other's processes.
    let mut run = fabric.run("mpirun");
    run.args(["-n", "2", "--oversubscribe", "--mca", "pml", "ucx"]).arg(&ranks);
    run.env("UCX_TLS", "rc_v,ud_v,self").env("UCX_NET_DEVICES", "ferroce0:1");
    let said = limited(&mut run);
    assert!(said.status.is_some_and(|status| status.success()), "{said}");
    assert_eq!(said.out.lines().last(), Some("ok"), "{said}");
    let rates: Vec<f64> = said
        .out
        .lines()
        .filter_map(|line| line.split_once(" bytes: ")?.1.strip_suffix(" MB/s")?.parse().ok())
        .collect();
    assert_eq!(rates.len(), 7, "{said}");
    assert!(rates.last().is_some_and(|rate| *rate > 0.0), "{said}");
}
