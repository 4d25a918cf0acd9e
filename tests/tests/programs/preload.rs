//! Plain programs of TCP, over rsockets: `ferroce run --rsockets`. None of them knows of RDMA, and
//! nothing listens by TCP.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use ferroce_tests::programs::{Fabric, Pair, Running, each_row, free_port, have, limited, user};

const RSOCKETS: [&str; 1] = ["--rsockets"];

fn command(fabric: &Fabric, program: &str, options: &str) -> Command {
    let mut command = fabric.run_with(&RSOCKETS, program);
    command.args(options.split_whitespace());
    command
}

/// A server that listens in the fabric, and not in the system.
fn serving(fabric: &Fabric, server: &mut Command, port: u16) -> Running {
    let mut server = Running::start(server);
    assert!(server.wait_for(|_| fabric.listens(port)), "{}", server.wait());
    assert!(!server.listens(port), "it listens by TCP as well");
    server
}

#[test]
fn iperf3_measures_both_ways() {
    if !have("iperf3", "iperf3") {
        return;
    }
    let fabric = Fabric::new();
    let rows = ["-n 64M", "-n 64M -R", "-n 16M -P 4", "-n 1M -l 1000", "-n 16M --bidir"];
    each_row(&rows, |options| {
        let port = free_port();
        let mut server = command(&fabric, "iperf3", &format!("-s -1 -p {port}"));
        let options = format!("-c 127.0.0.1 -p {port} {options}");
        let mut client = command(&fabric, "iperf3", &options);
        let pair = Pair::by_cm(&fabric, &mut server, port, &mut client);
        pair.check()?;
        match pair.client.out.contains("iperf Done.") {
            true => Ok(()),
            false => Err(format!("client: {}\nserver: {}", pair.client, pair.server)),
        }
    });
}

#[test]
fn curl_fetches_from_a_web_server() {
    if !have("curl", "curl") || !have("/usr/bin/python3", "python3") {
        return;
    }
    let fabric = Fabric::new();
    let port = free_port();
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|index| ((index * 31) >> 5) as u8).collect();
    let page = fabric.home().join("page");
    fs::write(&page, &bytes).unwrap();
    chown(&page, Some(user().0), None).unwrap();
    let options = format!("-m http.server {port} --bind 127.0.0.1");
    let server = serving(&fabric, &mut command(&fabric, "/usr/bin/python3", &options), port);
    for round in 0..3 {
        let options = format!("-s -S -o copy{round} http://127.0.0.1:{port}/page");
        limited(&mut command(&fabric, "curl", &options)).check().unwrap();
        let copy = fs::read(fabric.home().join(format!("copy{round}"))).unwrap();
        assert!(copy == bytes, "{} bytes, or others", copy.len());
    }
    let options = format!("-s -S -f http://127.0.0.1:{port}/nothing");
    let said = limited(&mut command(&fabric, "curl", &options));
    assert!(said.err.contains("404"), "{said}");
    server.kill();
    server.wait();
    let options = format!("-s -S http://127.0.0.1:{port}/page");
    let said = limited(&mut command(&fabric, "curl", &options));
    // 7: it could not connect.
    assert_eq!(said.status.and_then(|status| status.code()), Some(7), "{said}");
}

#[test]
fn redis_serves_its_benchmark() {
    if !have("redis-server", "redis-server") || !have("redis-benchmark", "redis-tools") {
        return;
    }
    let fabric = Fabric::new();
    let port = free_port();
    let mut server = command(&fabric, "redis-server", &format!("--port {port} --bind 127.0.0.1"));
    let server = serving(&fabric, server.args(["--save", ""]), port);
    let tests = ["set", "get", "incr", "lpush", "lpop", "sadd", "mset"];
    let options = format!("-p {port} -n 2000 -c 20 -d 1000 -q -t {}", tests.join(","));
    let said = limited(&mut command(&fabric, "redis-benchmark", &options));
    said.check().unwrap();
    for test in tests {
        let shows = |line: &str| line.to_lowercase().contains(test);
        let measured = said
            .out
            .split(['\r', '\n'])
            .any(|line| shows(line) && line.contains("requests per second"));
        assert!(measured, "{test}: {said}");
    }
    let cli = |words: &str| {
        let said = limited(&mut command(&fabric, "redis-cli", &format!("-p {port} {words}")));
        said.check().unwrap();
        said.out.trim().to_owned()
    };
    assert_eq!(cli("set key value"), "OK");
    assert_eq!(cli("get key"), "value");
    cli("shutdown nosave");
    let server = server.wait();
    assert!(server.status.is_some_and(|status| status.success()), "{server}");
}
