//! qperf, with rdma_cm and without. Without, it knows its peer by LID alone, which `--no-grh own`
//! takes for the device itself.

use std::time::Duration;

use ferroce_tests::programs::{Fabric, Running, each_row, free_port, have, limited};

/// Test, its options, and the measure that it prints.
type Row = (&'static str, &'static str, &'static str);

const FLAGS: [&str; 2] = ["--no-grh", "own"];

const ROWS: [Row; 21] = [
    ("rc_bw", "", "bw"),
    ("rc_bw", "-m 1048576 -mt 4096", "bw"),
    ("rc_bw", "-cp1", "bw"),
    ("rc_bi_bw", "", "bw"),
    ("rc_lat", "", "latency"),
    ("rc_lat", "-cp1", "latency"),
    ("uc_bw", "", "send_bw"),
    ("uc_lat", "", "latency"),
    ("ud_bw", "", "send_bw"),
    ("ud_bi_bw", "", "send_bw"),
    ("ud_lat", "", "latency"),
    ("rc_rdma_read_bw", "", "bw"),
    ("rc_rdma_read_lat", "", "latency"),
    ("rc_rdma_write_bw", "", "bw"),
    ("rc_rdma_write_lat", "", "latency"),
    ("rc_rdma_write_poll_lat", "", "latency"),
    ("uc_rdma_write_bw", "", "send_bw"),
    ("uc_rdma_write_lat", "", "latency"),
    ("rc_compare_swap_mr", "", "msg_rate"),
    ("rc_fetch_add_mr", "", "msg_rate"),
    ("ver_rc_fetch_add", "", "msg_rate"),
];

/// With rdma_cm it can do what RC does.
const CM_ROWS: [Row; 7] = [
    ("rc_bw", "-cm1", "bw"),
    ("rc_bi_bw", "-cm1", "bw"),
    ("rc_lat", "-cm1 -cp1", "latency"),
    ("rc_rdma_read_bw", "-cm1", "bw"),
    ("rc_rdma_write_lat", "-cm1", "latency"),
    ("rc_rdma_write_poll_lat", "-cm1", "latency"),
    ("ver_rc_fetch_add", "-cm1", "msg_rate"),
];

#[test]
fn every_test_prints_its_measure() {
    run(&FLAGS, &ROWS);
}

#[test]
fn every_test_of_connections_prints_its_measure_by_cm() {
    run(&[], &CM_ROWS);
}

fn run(flags: &[&str], rows: &[Row]) {
    if !have("qperf", "qperf") {
        return;
    }
    let fabric = Fabric::new();
    let port = free_port().to_string();
    let limit = Duration::from_secs(300);
    let mut server = fabric.run_with(flags, "qperf");
    let mut server = Running::start_within(server.args(["-lp", &port]), limit);
    let number = port.parse().unwrap();
    assert!(server.wait_for(|server| server.listens(number)), "{}", server.wait());
    each_row(rows, |(test, options, measure)| {
        let mut client = fabric.run_with(flags, "qperf");
        client
            .args(["-lp", &port, "-t", "1"])
            .args(options.split_whitespace())
            .args(["127.0.0.1", test]);
        let said = limited(&mut client);
        said.check()?;
        let value = said.out.lines().find_map(|line| line.trim().strip_prefix(measure));
        match value.and_then(|value| value.split_whitespace().nth(1)?.parse::<f64>().ok()) {
            Some(value) if value > 0.0 => Ok(()),
            _ => Err(format!("no {measure} above 0\n{said}")),
        }
    });
    server.kill();
    server.wait();
}
