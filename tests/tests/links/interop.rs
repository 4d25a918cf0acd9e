//! With the Linux kernel's rxe in a virtual machine, each side in each role.

use std::process::Command;

use ferroce_tests::links::{Kernel, Lab, Setup};
use ferroce_tests::programs::{Pair, Running, free_port, have, limited};

/// Program, and options of both sides but for the GID.
type Row = (&'static str, &'static str);

/// Programs with timeouts of their own have long ones: a guest without help from the processor is
/// not always scheduled.
const ROWS: &[Row] = &[
    ("ibv_rc_pingpong", "-c -n 50"),
    ("ibv_uc_pingpong", "-c -n 50"),
    ("ibv_ud_pingpong", "-c -n 50 -s 1024"),
    ("ibv_srq_pingpong", "-c -n 50"),
    ("ib_write_bw", "-F -u 20 -s 1048576 -n 5"),
    ("ib_read_bw", "-F -u 20 -s 1048576 -n 5"),
    ("ib_send_bw", "-F -u 20 -s 65537 -n 10"),
    ("ib_write_bw", "-F -c UC -s 4096 -n 20"),
    ("ib_send_lat", "-F -u 20 -s 64 -n 20"),
    ("ib_write_lat", "-F -u 20 -s 8 -n 20"),
    ("ib_atomic_bw", "-F -u 20 -n 20"),
    ("ib_atomic_bw", "-F -u 20 -n 20 -A CMP_AND_SWAP"),
];

/// What of them shows whether a link gets the headers right.
const FEW: &[Row] = &[
    ("ibv_rc_pingpong", "-c -n 20"),
    ("ibv_ud_pingpong", "-c -n 20 -s 1000"),
    ("ib_read_bw", "-F -u 20 -s 65537 -n 5"),
];

/// As [`FEW`], with the largest packets.
const LARGE: &[Row] = &[
    ("ibv_rc_pingpong", "-c -n 20 -m 4096"),
    ("ibv_ud_pingpong", "-c -n 20 -s 4000"),
    ("ib_read_bw", "-F -u 20 -s 65537 -n 5"),
];

/// Program, options of the server before its own address, and of the client before the server's.
type Connection = (&'static str, &'static str, &'static str);

/// Programs that connect by rdma_cm.
const CONNECTIONS: &[Connection] = &[
    ("rping", "-s -C 10 -v -a", "-c -C 10 -v -a"),
    ("ucmatose", "-c 3 -C 5 -b", "-c 3 -C 5 -s"),
    (UDADDY, "-c 3 -C 5 -b", "-c 3 -C 5 -s"),
    ("rdma_server rdma_client", "-s", "-s"),
    ("rstream", "-S 20000 -C 10 -I 5 -T v -b", "-S 20000 -C 10 -I 5 -T v -s"),
];

/// Its port cannot be chosen.
const UDADDY: &str = "udaddy";
const UDADDY_PORT: u16 = 7174;

/// Programs that give up after half a second without an answer, in which a guest may not have been
/// scheduled, say so.
const TRIES: u32 = 3;
const GAVE_UP: &str = "transport retry counter exceeded";

/// One program in both directions, each side with its GID.
fn both_ways(setup: &Setup, (program, options): &Row) -> Result<(), String> {
    // Those of rdma-core call the GID's index -g, perftest -x.
    let flag = if program.starts_with("ibv_") { "-g" } else { "-x" };
    let arguments = |mut command: Command, gid, port: u16| {
        command.args(options.split_whitespace()).args([flag, gid, "-p"]).arg(port.to_string());
        command
    };
    let here = |port| arguments(setup.here(program), "1", port);
    let there = |port| arguments(setup.lab.guest(program), setup.guest_gid(), port);
    let port = free_port();
    let (mut server, mut client) = (there(port), here(port));
    let ready = |_: &Running| setup.lab.guest_listens(port);
    let pair = Pair::when(&mut server, ready, client.arg(Lab::GUEST));
    pair.check().map_err(|error| format!("to the guest: {error}"))?;
    let port = free_port();
    let (mut server, mut client) = (here(port), there(port));
    let pair = Pair::of(&mut server, port, client.arg(Lab::HOST));
    pair.check().map_err(|error| format!("from the guest: {error}"))
}

fn run(setup: &Setup, row: &Row) -> Result<(), String> {
    let mut outcome = both_ways(setup, row);
    for _ in 1..TRIES {
        match &outcome {
            Err(error) if error.contains(GAVE_UP) => outcome = both_ways(setup, row),
            _ => break,
        }
    }
    outcome.map_err(|error| format!("{} {}: {error}", row.0, row.1))
}

/// One program that connects, in both directions.
fn connect(setup: &Setup, (program, server, client): &Connection) -> Result<(), String> {
    let of_server = program.split(' ').next().unwrap_or_default();
    let of_client = program.split(' ').next_back().unwrap_or_default();
    let arguments = |mut command: Command, options: &str, address, port: u16| {
        if *program != UDADDY {
            command.args(["-p", &port.to_string()]);
        }
        command.args(options.split(' ')).arg(address);
        command
    };
    let any_port = || if *program == UDADDY { UDADDY_PORT } else { free_port() };
    let port = any_port();
    let mut to = arguments(setup.lab.guest(of_server), server, setup.guest, port);
    let ready = |_: &Running| setup.lab.guest_listens(port);
    let mut from = arguments(setup.here(of_client), client, setup.guest, port);
    let pair = Pair::when(&mut to, ready, &mut from);
    pair.check().map_err(|error| format!("{program} to the guest: {error}"))?;
    let port = any_port();
    let mut to = arguments(setup.here(of_server), server, setup.host, port);
    let ready = |_: &Running| setup.lab.fabric_listens(port);
    let mut from = arguments(setup.lab.guest(of_client), client, setup.host, port);
    let pair = Pair::when(&mut to, ready, &mut from);
    pair.check().map_err(|error| format!("{program} from the guest: {error}"))
}

/// Runs every program over a link, and looks at everything that has passed.
fn over(lab: &Lab, link: &str, address: &'static str, rows: &[Row], connections: &[Connection]) {
    let setup = Setup::start(lab, link, address);
    let rows = rows.iter().filter_map(|row| run(&setup, row).err());
    let connections = connections.iter().filter_map(|row| connect(&setup, row).err());
    let failed: Vec<String> = rows.chain(connections).collect();
    setup.end(&failed);
}

/// A guest on a wire of this MTU, and all that is needed.
fn lab(kernel: Kernel, mtu: u32) -> Option<Lab> {
    let programs = [
        ("ibv_rc_pingpong", "ibverbs-utils"),
        ("ib_write_bw", "perftest"),
        ("rping", "rdmacm-utils"),
    ];
    let all = programs.iter().all(|(program, package)| have(program, package));
    all.then(|| Lab::new(kernel, mtu)).flatten()
}

#[test]
fn rxe_at_path_mtu_1024() {
    let Some(lab) = lab(Kernel::Stock, 1500) else { return };
    over(&lab, "packet:h0", Lab::HOST, ROWS, CONNECTIONS);
    over(&lab, "packet:h0", Lab::HOST_IPV6, FEW, CONNECTIONS);
    over(&lab, "udp:10.77.0.1", Lab::HOST, FEW, &CONNECTIONS[..1]);
    over(&lab, "udp:fd77::1", Lab::HOST_IPV6, FEW, &CONNECTIONS[..1]);
    let log = limited(&mut lab.guest("dmesg")).out.to_lowercase();
    assert!(!log.contains("icrc"), "{log}");
}

#[test]
fn rxe_at_path_mtu_4096() {
    let Some(lab) = lab(Kernel::Stock, 9000) else { return };
    over(&lab, "packet:h0", Lab::HOST, LARGE, &[]);
    over(&lab, "udp:10.77.0.1", Lab::HOST, LARGE, &[]);
    over(&lab, "packet:h0", Lab::HOST_IPV6, LARGE, &[]);
}

#[test]
fn newer_rxe() {
    let Some(lab) = lab(Kernel::Newer, 9000) else { return };
    over(&lab, "packet:h0", Lab::HOST, ROWS, CONNECTIONS);
    over(&lab, "packet:h0", Lab::HOST_IPV6, FEW, &CONNECTIONS[..1]);
    over(&lab, "udp:10.77.0.1", Lab::HOST, LARGE, &CONNECTIONS[..1]);
}
