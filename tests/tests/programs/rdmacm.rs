//! rdmacm-utils: rdma-core's own programs of connection management, over IPv4 and IPv6, between two
//! processes of one host and between two hosts of a fabric.

use std::net::IpAddr;
use std::process::Command;

use ferroce_tests::programs::{Ended, Fabric, Pair, Running, each_row, have, host_address};

const PACKAGE: &str = "rdmacm-utils";
/// Where the servers listen: each test has a fabric of its own, so none is taken.
const PORT: u16 = 7471;
/// What udaddy has fixed.
const UDADDY_PORT: u16 = 7174;

/// Options of the server and of the client. `HOST` stands for the machine's address.
type Row = (&'static str, &'static str);

/// Two hosts of a cluster.
const SERVER_HOST: [&str; 2] = ["--addr", "10.7.0.1"];
const CLIENT_HOST: [&str; 2] = ["--addr", "10.7.0.2"];

fn with(mut command: Command, options: &str, host: IpAddr) -> Command {
    let host = host.to_string();
    let words = options.split_whitespace();
    command.args(words.map(|word| if word == "HOST" { &host } else { word }));
    command
}

fn run(fabric: &Fabric, programs: [&str; 2], port: u16, row: &Row) -> Result<Pair, String> {
    let host = host_address();
    let mut server = with(fabric.run(programs[0]), row.0, host);
    let mut client = with(fabric.run(programs[1]), row.1, host);
    let pair = Pair::by_cm(fabric, &mut server, port, &mut client);
    pair.check()?;
    Ok(pair)
}

/// Runs the rows, in which both sides must succeed, and the client must say `said`.
fn check(programs: [&str; 2], port: u16, said: &str, rows: &[Row]) {
    if !have(programs[0], PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    each_row(rows, |row| {
        let pair = run(&fabric, programs, port, row)?;
        match pair.client.out.contains(said) {
            true => Ok(()),
            false => Err(format!("not {said:?}: {}", pair.client)),
        }
    });
}

/// How many pings a client has shown, each with the number that is due.
fn pings(client: &Ended) -> usize {
    let is_due = |(number, line): &(usize, &str)| {
        line.starts_with(&format!("ping data: rdma-ping-{number}: "))
    };
    client.out.lines().enumerate().take_while(is_due).count()
}

#[test]
fn rping_shows_each_ping() {
    if !have("rping", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    let rows = [
        ("-s -v -p 7471", "-c -v -V -C 1000 -p 7471 -a 127.0.0.1", 1000),
        ("-s -p 7471 -a 127.0.0.1", "-c -v -V -C 50 -p 7471 -a 127.0.0.1", 50),
        ("-s -p 7471", "-c -v -V -C 1000 -p 7471 -a HOST", 1000),
        ("-s -p 7471 -a HOST", "-c -v -V -C 50 -p 7471 -a HOST", 50),
        ("-s -p 7471 -a HOST", "-c -v -V -C 50 -p 7471 -a HOST -I HOST", 50),
        ("-s -p 7471 -a ::0", "-c -v -V -C 50 -p 7471 -a ::1", 50),
        ("-s -p 7471 -a ::1", "-c -v -V -C 50 -p 7471 -a ::1", 50),
        // A listener of every address takes both families.
        ("-s -p 7471 -a ::0", "-c -v -V -C 50 -p 7471 -a 127.0.0.1", 50),
        ("-s -p 7471 -S 65535", "-c -v -V -C 20 -p 7471 -S 65535 -a 127.0.0.1", 20),
        // QPs that the program makes and moves itself, on both sides, or on one.
        ("-s -p 7471 -q", "-c -v -V -C 50 -p 7471 -q -a 127.0.0.1", 50),
        ("-s -p 7471 -q", "-c -v -V -C 50 -p 7471 -a 127.0.0.1", 50),
        ("-s -p 7471", "-c -v -V -C 50 -p 7471 -q -a 127.0.0.1", 50),
    ];
    each_row(&rows, |(server, client, count)| {
        let pair = run(&fabric, ["rping"; 2], PORT, &(server, client))?;
        let shown = pings(&pair.client);
        if shown == *count { Ok(()) } else { Err(format!("{shown} pings: {}", pair.client)) }
    });
}

#[test]
fn rping_goes_from_host_to_host() {
    if !have("rping", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    let mut server = fabric.run_with(&SERVER_HOST, "rping");
    let mut client = fabric.run_with(&CLIENT_HOST, "rping");
    server.args(["-s", "-p", "7471"]);
    client.args(["-c", "-v", "-V", "-C", "100", "-p", "7471", "-a", "10.7.0.1"]);
    let pair = Pair::by_cm(&fabric, &mut server, PORT, &mut client);
    pair.check().unwrap();
    assert_eq!(pings(&pair.client), 100, "{}", pair.client);
}

#[test]
fn a_persistent_rping_serves_several_at_once() {
    const CLIENTS: usize = 4;
    const COUNT: &str = "500";
    if !have("rping", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    let mut server = Running::start(fabric.run("rping").args(["-s", "-P", "-p", "7471"]));
    assert!(server.wait_for(|_| fabric.listens(PORT)), "{}", server.wait());
    let start = || {
        // Otherwise it keeps to itself what it prints until it ends.
        let mut client = fabric.run("stdbuf");
        client.args(["-oL", "rping", "-c", "-v", "-V", "-C", COUNT]);
        let mut client = Running::start(client.args(["-p", "7471", "-a", "127.0.0.1"]));
        // It loses a request that comes before it has looked at the one before.
        client.wait_for(|client| client.out().contains("rdma-ping-0"));
        client
    };
    let clients: Vec<Running> = (0..CLIENTS).map(|_| start()).collect();
    for client in clients.into_iter().map(Running::wait) {
        client.check().unwrap();
        assert_eq!(pings(&client).to_string(), COUNT, "{client}");
    }
    assert!(server.is_alive(), "{}", server.wait());
    server.kill();
    server.wait();
}

#[test]
fn ucmatose_connects_transfers_and_disconnects() {
    check(
        ["ucmatose"; 2],
        PORT,
        "return status 0",
        &[
            ("", "-s 127.0.0.1"),
            ("-b HOST", "-s HOST"),
            ("-b 127.0.0.1", "-s 127.0.0.1 -b 127.0.0.1"),
            ("-c 100", "-s 127.0.0.1 -c 100"),
            ("-c 100 -b HOST", "-s HOST -c 100 -b HOST"),
            ("-c 10 -C 0", "-s 127.0.0.1 -c 10 -C 0"),
            ("-C 100 -S 65536", "-s 127.0.0.1 -C 100 -S 65536"),
            ("-b ::", "-s ::1"),
            ("-b ::1", "-s ::1 -c 1"),
            ("-f ip -b 127.0.0.1", "-f ip -s 127.0.0.1"),
            // To another event channel.
            ("-m -c 5", "-s 127.0.0.1 -m -c 5"),
            ("-t 32", "-s 127.0.0.1 -t 32"),
            ("-a 14", "-s 127.0.0.1 -a 20"),
            ("-P ib", "-s 127.0.0.1 -P ib"),
        ],
    );
}

#[test]
fn udaddy_finds_the_other_queue_pair() {
    check(
        ["udaddy"; 2],
        UDADDY_PORT,
        "return status 0",
        &[
            ("", "-s 127.0.0.1"),
            ("-b HOST", "-s HOST"),
            ("-c 50", "-s 127.0.0.1 -c 50"),
            ("-C 100 -S 4096", "-s 127.0.0.1 -C 100 -S 4096"),
            ("-C 0", "-s 127.0.0.1 -C 0"),
            ("-b ::1", "-s ::1"),
            ("-t 32", "-s 127.0.0.1 -t 32"),
            ("-P ipoib", "-s 127.0.0.1 -P ipoib"),
        ],
    );
}

#[test]
fn mckey_reaches_a_group() {
    if !have("mckey", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    // Each side waits three seconds once it has joined; the rows wait together.
    let rows = [
        ("-m 239.1.2.3", ""),
        ("-m 239.1.2.4 -b HOST", ""),
        ("-m ff0e::4:5", ""),
        ("-m 239.1.2.5", "-o"),
        ("-m 239.1.2.7 -p 0x2", ""),
    ];
    let start = |row: &Row, extra: &str| {
        // Otherwise it keeps to itself what it prints until it ends.
        let mut command = fabric.run("stdbuf");
        command.args(["-oL", "mckey"]);
        let options = format!("{} {extra}", row.0);
        Running::start(&mut with(command, &options, host_address()))
    };
    let mut receivers: Vec<Running> = rows.iter().map(|row| start(row, "")).collect();
    for receiver in &mut receivers {
        // One that ended instead shows itself below.
        receiver.wait_for(|receiver| receiver.out().contains("joined dgid"));
    }
    let sender = |row: &Row| start(row, &format!("-s {}", row.1));
    let senders: Vec<Running> = rows.iter().map(sender).collect();
    let ended: Vec<[Ended; 2]> = senders
        .into_iter()
        .zip(receivers)
        .map(|(sender, mut receiver)| {
            let sender = sender.wait();
            if sender.check().is_err() {
                receiver.wait_shortly();
            }
            [sender, receiver.wait()]
        })
        .collect();
    for said in ended.iter().flatten() {
        said.check().unwrap();
        assert!(said.out.contains("return status 0"), "{said}");
    }
}

#[test]
fn cmtime_measures_every_step() {
    if !have("cmtime", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    let mut server = Running::start(fabric.run("cmtime").args(["-p", "7471"]));
    assert!(server.wait_for(|_| fabric.listens(PORT)), "{}", server.wait());
    let host = host_address().to_string();
    each_row(&["-c 1000 -s 127.0.0.1", "-c 100 -s HOST -b HOST"], |options| {
        let client = with(fabric.run("cmtime"), options, host_address());
        let said = Running::start(&mut { client }).wait();
        said.check()?;
        // It goes on after failures, and says so on standard output.
        let failed = said.out.lines().find(|line| line.contains("rror"));
        let steps = said.out.lines().filter(|line| line.contains(" : ") || line.contains(": "));
        let is_whole = steps.count() >= if options.contains(&host) { 8 } else { 7 };
        match failed.is_none() && is_whole {
            true => Ok(()),
            false => Err(said.to_string()),
        }
    });
    assert!(server.is_alive(), "{}", server.wait());
    server.kill();
    server.wait();
}

#[test]
fn endpoints_connect_in_one_call() {
    check(
        ["rdma_server", "rdma_client"],
        PORT,
        "rdma_client: end 0",
        &[
            ("-p 7471", "-p 7471 -s 127.0.0.1"),
            ("-p 7471 -s HOST", "-p 7471 -s HOST"),
            ("-p 7471 -s ::", "-p 7471 -s ::1"),
        ],
    );
}

#[test]
fn endpoints_connect_over_xrc() {
    check(
        ["rdma_xserver", "rdma_xclient"],
        PORT,
        "end 0",
        &[
            ("-p 7471", "-p 7471 -s 127.0.0.1"),
            ("-p 7471", "-p 7471 -s HOST"),
            ("-p 7471 -c x", "-p 7471 -c x -s 127.0.0.1"),
            ("-p 7471 -c x", "-p 7471 -c x -s HOST"),
        ],
    );
}
