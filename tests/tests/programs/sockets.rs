//! Programs of rsockets: rdma-core's, which call them by their names.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use ferroce_tests::programs::{Fabric, Pair, Running, each_row, have, host_address, limited, user};

const PACKAGE: &str = "rdmacm-utils";
const PORT: u16 = 7471;

/// Options of both sides, with `HOST` for the machine's address: of the server, of the client.
type Row = (&'static str, &'static str);

fn with(mut command: Command, options: &str) -> Command {
    let host = host_address().to_string();
    let words = options.split_whitespace();
    command.args(words.map(|word| if word == "HOST" { &host } else { word }));
    command
}

fn check(program: &str, both: &str, rows: &[Row]) {
    if !have(program, PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    each_row(rows, |(server, client)| {
        let mut server = with(fabric.run(program), &format!("-p 7471 {both} {server}"));
        let mut client = with(fabric.run(program), &format!("-p 7471 {both} {client}"));
        let pair = Pair::by_cm(&fabric, &mut server, PORT, &mut client);
        pair.check()?;
        // It goes on after some failures, and says so. Its table has a line for what it has done.
        for side in [&pair.server, &pair.client] {
            if !side.out.contains("custom") || side.out.contains("fail") {
                return Err(format!("{}{}", pair.server, pair.client));
            }
        }
        Ok(())
    });
}

#[test]
fn rstream_verifies_what_it_receives() {
    check(
        "rstream",
        "-T v",
        &[
            ("-S 64 -C 1 -I 2000", "-S 64 -C 1 -I 2000 -s 127.0.0.1"),
            ("-S 65536 -C 200 -I 1", "-S 65536 -C 200 -I 1 -s 127.0.0.1"),
            ("-S 1000000 -C 5 -I 2 -b HOST", "-S 1000000 -C 5 -I 2 -s HOST"),
            // The size of the buffers, inline or not, waiting or not.
            ("-S 10000 -C 50 -I 1 -B 4096", "-S 10000 -C 50 -I 1 -B 4096 -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -i 0", "-S 4096 -C 50 -I 2 -i 0 -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -T b", "-S 4096 -C 50 -I 2 -T b -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -T n", "-S 4096 -C 50 -I 2 -T n -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -T a", "-S 4096 -C 50 -I 2 -T a -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -T a -T n", "-S 4096 -C 50 -I 2 -T a -T n -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -T r", "-S 4096 -C 50 -I 2 -T r -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -b ::", "-S 4096 -C 50 -I 2 -s ::1"),
            ("-S 4096 -C 50 -I 2 -k 5", "-S 4096 -C 50 -I 2 -k 5 -s 127.0.0.1"),
        ],
    );
}

#[test]
fn riostream_verifies_what_it_receives() {
    check(
        "riostream",
        "-T v",
        &[
            ("-S 64 -C 1 -I 2000", "-S 64 -C 1 -I 2000 -s 127.0.0.1"),
            ("-S 65536 -C 100 -I 1", "-S 65536 -C 100 -I 1 -s 127.0.0.1"),
            ("-S 4096 -C 50 -I 2 -T a", "-S 4096 -C 50 -I 2 -T a -s HOST"),
            ("-S 4096 -C 50 -I 2 -T n", "-S 4096 -C 50 -I 2 -T n -s 127.0.0.1"),
        ],
    );
}

#[test]
fn rcopy_copies_a_file() {
    if !have("rcopy", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    let [source, copy] = ["source", "copy"].map(|name| fabric.home().join(name));
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|index| ((index * 31) >> 5) as u8).collect();
    fs::write(&source, &bytes).unwrap();
    chown(&source, Some(user().0), None).unwrap();
    let mut server = Running::start(fabric.run("rcopy").args(["-p", "7471"]));
    assert!(server.wait_for(|_| fabric.listens(PORT)), "{}", server.wait());
    for _ in 0..2 {
        let mut client = fabric.run("rcopy");
        client.arg(&source).arg(format!("127.0.0.1:{}", copy.display())).args(["-p", "7471"]);
        let client = limited(&mut client);
        client.check().unwrap();
        assert!(client.out.contains("3000001 bytes in"), "{client}");
        assert!(fs::read(&copy).unwrap() == bytes, "the copy has other bytes");
        fs::remove_file(&copy).unwrap();
    }
    server.kill();
    server.wait();
}

#[test]
fn udpong_exchanges_datagrams() {
    if !have("udpong", PACKAGE) {
        return;
    }
    let fabric = Fabric::new();
    let rows = ["-C 1000 -S 64 -T e", "-C 1000 -S 1024 -T e -T n", "-C 200 -S 1024 -T e -T a"];
    // It serves one client after the other, for ever, and clients repeat what it has not heard.
    let mut server = Running::start(&mut with(fabric.run("udpong"), "-p 7471 -b 127.0.0.1"));
    each_row(&rows, |options| {
        let options = format!("-p 7471 -s 127.0.0.1 {options}");
        let client = limited(&mut with(fabric.run("udpong"), &options));
        client.check()?;
        if client.out.contains("custom") { Ok(()) } else { Err(client.to_string()) }
    });
    assert!(server.is_alive(), "{}", server.wait());
    server.kill();
    server.wait();
}
