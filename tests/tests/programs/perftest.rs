//! The eight programs of perftest, over each transport that they have.

use ferroce_tests::programs::{Fabric, Pair, Table, each_row, free_port, have};

/// Program, options of both sides, and the sizes in bytes that the client tells of.
type Row = (&'static str, &'static str, &'static [u64]);

/// What `-a` runs through.
const ALL: [u64; 23] = all_sizes();
const DEFAULT_BW: &[u64] = &[65536];
const DEFAULT_LAT: &[u64] = &[2];
const ATOMIC: &[u64] = &[8];
/// The default of UD, which sends no more than the MTU.
const MTU: &[u64] = &[4096];
const MEBIBYTES: &[u64] = &[8 << 20];

const fn all_sizes() -> [u64; 23] {
    let mut sizes = [0; 23];
    let mut index = 0;
    while index < 23 {
        sizes[index] = 2 << index;
        index += 1;
    }
    sizes
}

fn check(fabric: &Fabric, row: &Row) -> Result<(), String> {
    let (program, options, _) = *row;
    // Without -F it may complain of the processor's clock.
    let options = format!("-F {options}");
    let pair = Pair::run(fabric, program, &options, &options);
    pair.check()?;
    check_table(row, &pair)
}

fn check_table(row: &Row, pair: &Pair) -> Result<(), String> {
    let (program, _, sizes) = *row;
    // The average latency; the rate of messages, as few small ones round to no bandwidth.
    let column = if program.ends_with("_lat") { 5 } else { 4 };
    let table = Table::parse(&pair.client.out);
    // On a busy machine it may not find out how fast the clock is, and then rates are anything.
    let has_clock = !pair.client.err.contains("Correlation coefficient");
    let column = if has_clock { column } else { 1 };
    table.check(sizes, column).map_err(|error| format!("{error}\n{}", pair.client))
}

/// The same, connected by rdma_cm and without a TCP socket.
fn check_by_cm(fabric: &Fabric, row: &Row) -> Result<(), String> {
    let (program, options, _) = *row;
    let port = free_port();
    let command = || {
        let mut command = fabric.run(program);
        command.args(["-F", "-R", "-p", &port.to_string()]).args(options.split_whitespace());
        command
    };
    let pair = Pair::by_cm(fabric, &mut command(), port, command().arg("127.0.0.1"));
    pair.check()?;
    check_table(row, &pair)
}

/// Makes way for the files that stand for XRC domains: perftest has one name for every user.
fn remove_xrc_files() {
    for side in ["server", "client"] {
        // There may be none, or it may be somebody else's and in the way.
        let _ = std::fs::remove_file(format!("/tmp/xrc_domain_{side}"));
    }
}

fn run(rows: &[Row]) {
    run_with(rows, check);
}

fn run_with(rows: &[Row], check: impl Fn(&Fabric, &Row) -> Result<(), String>) {
    if !have("ib_write_bw", "perftest") {
        return;
    }
    remove_xrc_files();
    let fabric = Fabric::new();
    each_row(rows, |row| check(&fabric, row));
}

#[test]
fn write_bw() {
    let program = "ib_write_bw";
    run(&[
        (program, "-n 200", DEFAULT_BW),
        (program, "-n 20 -a", &ALL),
        (program, "-n 20 -a -b", &ALL),
        (program, "-n 200 -b", DEFAULT_BW),
        (program, "-n 100 -q 8", DEFAULT_BW),
        (program, "-n 100 -q 8 -b", DEFAULT_BW),
        (program, "-n 200 --use_old_post_send", DEFAULT_BW),
        (program, "-n 1000 -s 1 -I 1", &[1]),
        (program, "-n 1000 -s 64 -I 128", &[64]),
        (program, "-n 960 -s 200 -I 220 -l 16", &[200]),
        (program, "-n 1000 -s 1 -m 256", &[1]),
        (program, "-n 10 -s 8388608", MEBIBYTES),
        (program, "-n 200 --mr_per_qp -q 4", DEFAULT_BW),
        (program, "-n 200 --odp", DEFAULT_BW),
        (program, "-n 200 -c UC", DEFAULT_BW),
        (program, "-n 20 -c UC -a", &ALL),
        (program, "-n 200 -c UC -b -q 8", DEFAULT_BW),
        (program, "-n 200 -c XRC", DEFAULT_BW),
        (program, "-n 20 -c XRC -a -b", &ALL),
        (program, "-n 200 -c XRC -q 8", DEFAULT_BW),
    ]);
}

#[test]
fn write_lat() {
    let program = "ib_write_lat";
    run(&[
        (program, "-n 500", DEFAULT_LAT),
        (program, "-n 20 -a", &ALL),
        (program, "-n 500 -s 64 -I 64", &[64]),
        (program, "-n 500 -s 1 -I 0", &[1]),
        (program, "-n 500 --use_old_post_send", DEFAULT_LAT),
        (program, "-n 10 -s 8388608", MEBIBYTES),
        (program, "-n 500 -c UC", DEFAULT_LAT),
        (program, "-n 500 -c XRC", DEFAULT_LAT),
    ]);
}

#[test]
fn send_bw() {
    let program = "ib_send_bw";
    run(&[
        (program, "-n 200", DEFAULT_BW),
        (program, "-n 20 -a", &ALL),
        (program, "-n 20 -a -b", &ALL),
        (program, "-n 200 -e", DEFAULT_BW),
        (program, "-n 200 -q 8 --use-srq", DEFAULT_BW),
        (program, "-n 200 -q 8 -b", DEFAULT_BW),
        (program, "-n 200 --use_old_post_send -e -b", DEFAULT_BW),
        (program, "-n 1000 -s 1 -I 1", &[1]),
        (program, "-n 1000 -s 100 -I 128 -r 64", &[100]),
        (program, "-n 10 -s 8388608", MEBIBYTES),
        // UC and UD have no flow control, and perftest waits for ever for what a receiver has lost
        // that stood still for long: all of their packets have to fit its ring, 1024 of them.
        (program, "-n 50 -c UC", DEFAULT_BW),
        (program, "-n 50 -c UC -e", DEFAULT_BW),
        (program, "-n 500 -c UC -s 2", &[2]),
        (program, "-n 6 -c UC -s 524288", &[524_288]),
        (program, "-n 200 -c UD", MTU),
        (program, "-n 200 -c UD -s 1 -e", &[1]),
        // With more queue pairs there are fewer receives than datagrams, and those are lost.
        (program, "-n 200 -c UD --use-srq", MTU),
        (program, "-n 100 -c UD -q 8", MTU),
        (program, "-n 200 -c UD -b -s 64 -I 64", &[64]),
        (program, "-n 100 -c UD -a", ALL.split_at(12).0),
        (program, "-n 200 -c XRC", DEFAULT_BW),
        (program, "-n 20 -c XRC -a", &ALL),
        (program, "-n 200 -c XRC -q 8 -b", DEFAULT_BW),
    ]);
}

#[test]
fn send_lat() {
    let program = "ib_send_lat";
    run(&[
        (program, "-n 500", DEFAULT_LAT),
        (program, "-n 20 -a", &ALL),
        (program, "-n 500 -e", DEFAULT_LAT),
        (program, "-n 500 --use-srq", DEFAULT_LAT),
        (program, "-n 500 -s 128 -I 128", &[128]),
        (program, "-n 500 --use_old_post_send", DEFAULT_LAT),
        (program, "-n 10 -s 8388608", MEBIBYTES),
        (program, "-n 500 -c UC", DEFAULT_LAT),
        (program, "-n 500 -c UD", DEFAULT_LAT),
        (program, "-n 500 -c UD -s 4096 -e", MTU),
        (program, "-n 500 -c UD --use-srq", DEFAULT_LAT),
        (program, "-n 500 -c XRC", DEFAULT_LAT),
        (program, "-n 500 -c XRC -e", DEFAULT_LAT),
    ]);
}

#[test]
fn read_bw() {
    let program = "ib_read_bw";
    run(&[
        (program, "-n 200", DEFAULT_BW),
        (program, "-n 20 -a", &ALL),
        (program, "-n 20 -a -b", &ALL),
        (program, "-n 200 -e", DEFAULT_BW),
        (program, "-n 100 -q 8", DEFAULT_BW),
        (program, "-n 200 -o 1", DEFAULT_BW),
        (program, "-n 200 --use_old_post_send", DEFAULT_BW),
        (program, "-n 1000 -s 1", &[1]),
        (program, "-n 10 -s 8388608", MEBIBYTES),
        (program, "-n 200 -c XRC", DEFAULT_BW),
        (program, "-n 20 -c XRC -a", &ALL),
    ]);
}

#[test]
fn read_lat() {
    let program = "ib_read_lat";
    run(&[
        (program, "-n 500", DEFAULT_LAT),
        (program, "-n 20 -a", &ALL),
        (program, "-n 500 -e", DEFAULT_LAT),
        (program, "-n 500 -s 1 --use_old_post_send", &[1]),
        (program, "-n 10 -s 8388608", MEBIBYTES),
        (program, "-n 500 -c XRC", DEFAULT_LAT),
    ]);
}

#[test]
fn atomics() {
    let (bw, lat) = ("ib_atomic_bw", "ib_atomic_lat");
    run(&[
        (bw, "-n 1000", ATOMIC),
        (bw, "-n 1000 -A CMP_AND_SWAP", ATOMIC),
        (bw, "-n 1000 -b", ATOMIC),
        (bw, "-n 1000 -e", ATOMIC),
        (bw, "-n 200 -q 8", ATOMIC),
        (bw, "-n 1000 -o 1 --use_old_post_send", ATOMIC),
        (bw, "-n 1000 -c XRC", ATOMIC),
        (lat, "-n 500", ATOMIC),
        (lat, "-n 500 -A CMP_AND_SWAP", ATOMIC),
        (lat, "-n 500 -e", ATOMIC),
        (lat, "-n 500 --use_old_post_send", ATOMIC),
        (lat, "-n 500 -c XRC", ATOMIC),
    ]);
}

// XRC is what perftest does not connect by rdma_cm.
#[test]
fn all_programs_connect_by_cm() {
    run_with(
        &[
            ("ib_write_bw", "-n 200", DEFAULT_BW),
            ("ib_write_bw", "-n 100 -q 8 -b", DEFAULT_BW),
            ("ib_write_lat", "-n 500", DEFAULT_LAT),
            ("ib_write_lat", "-n 20 -a", &ALL),
            ("ib_send_bw", "-n 200 -e", DEFAULT_BW),
            ("ib_send_bw", "-n 200 -q 8 --use-srq", DEFAULT_BW),
            ("ib_send_bw", "-n 200 -c UD", MTU),
            ("ib_send_bw", "-n 100 -c UD -q 8", MTU),
            ("ib_send_lat", "-n 500", DEFAULT_LAT),
            ("ib_send_lat", "-n 500 -c UD", DEFAULT_LAT),
            ("ib_read_bw", "-n 200 -q 4", DEFAULT_BW),
            ("ib_read_lat", "-n 500", DEFAULT_LAT),
            ("ib_read_lat", "-n 500 -T 96", DEFAULT_LAT),
            ("ib_atomic_bw", "-n 1000", ATOMIC),
            ("ib_atomic_lat", "-n 500", ATOMIC),
            // Only its own words go by rdma_cm.
            ("ib_write_bw", "-n 200 -z", DEFAULT_BW),
        ],
        check_by_cm,
    );
}
