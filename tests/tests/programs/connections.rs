//! Connections in trouble, in great numbers, and with private data of every length.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ferroce_tests::programs::{
    Ended, Fabric, Running, compile, each_row, have, host_address, limited,
};

const PORT: u16 = 7471;
const PORT_TEXT: &str = "7471";
/// Thousands of connections take their time where the library is not optimised.
const LONG: Duration = Duration::from_secs(300);

/// A server, and what starts its clients.
struct Scene {
    fabric: Fabric,
    program: String,
}

impl Scene {
    /// None, with the reason printed, where there is no compiler or no header.
    fn new() -> Option<Scene> {
        if !have("gcc", "gcc") || !have("/usr/include/rdma/rdma_cma.h", "librdmacm-dev") {
            return None;
        }
        let fabric = Fabric::new();
        let program = compile(&fabric, "connections", &["-lrdmacm", "-libverbs"]);
        let program = program.to_str().expect("a path of ours").to_owned();
        Some(Scene { fabric, program })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.fabric.run(&self.program);
        command.args(arguments);
        command
    }

    fn server(&self) -> Running {
        let mut server = Running::start_within(&mut self.command(&["serve", PORT_TEXT]), LONG);
        assert!(server.wait_for(|server| server.out().contains("listening")), "{}", server.wait());
        server
    }

    fn client(&self, mode: &str, last: &str) -> Running {
        let arguments = [mode, "127.0.0.1", PORT_TEXT, last];
        Running::start_within(&mut self.command(&arguments), LONG)
    }
}

fn ends_well(said: &Ended) -> Result<(), String> {
    said.check()?;
    match said.out.lines().last() {
        Some("ok") => Ok(()),
        _ => Err(said.to_string()),
    }
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Client,
}

const CONNECT_REQUEST: &str = "RDMA_CM_EVENT_CONNECT_REQUEST";
const CONNECT_RESPONSE: &str = "RDMA_CM_EVENT_CONNECT_RESPONSE";
const ESTABLISHED: &str = "RDMA_CM_EVENT_ESTABLISHED";
const DISCONNECTED: &str = "RDMA_CM_EVENT_DISCONNECTED";
/// 28: rejected by the program, as Linux says for one that is gone.
const REJECTED: &str = "RDMA_CM_EVENT_REJECTED 28";
/// A request that has no answer yet is not spoken of: who answers it finds out.
const NOTHING: &str = "";

/// The client's mode and wish; the event, on the server's side or the client's, after which one
/// dies; and the event that tells the other. The same as with Linux.
type Death = (&'static str, &'static str, (Victim, &'static str), Victim, &'static str);

const DEATHS: [Death; 6] = [
    ("watch", "hold", (Victim::Server, CONNECT_REQUEST), Victim::Server, REJECTED),
    ("watch", "hold", (Victim::Server, CONNECT_REQUEST), Victim::Client, NOTHING),
    ("half", "accept", (Victim::Client, CONNECT_RESPONSE), Victim::Server, REJECTED),
    ("half", "accept", (Victim::Client, CONNECT_RESPONSE), Victim::Client, REJECTED),
    ("watch", "accept", (Victim::Server, ESTABLISHED), Victim::Server, DISCONNECTED),
    ("watch", "accept", (Victim::Server, ESTABLISHED), Victim::Client, DISCONNECTED),
];

#[test]
fn a_peer_that_dies_is_noticed_in_every_state() {
    let Some(scene) = Scene::new() else { return };
    each_row(&DEATHS, |(mode, wish, (where_seen, seen), victim, told)| {
        let mut server = scene.server();
        let mut client = scene.client(mode, wish);
        match where_seen {
            Victim::Server => server.wait_for(|server| server.out().contains(seen)),
            Victim::Client => client.wait_for(|client| client.out().contains(seen)),
        };
        // Both must have come as far: of an established connection, either side is told.
        if *seen == ESTABLISHED {
            client.wait_for(|client| client.out().contains(seen));
        }
        let (dead, mut alive) = match victim {
            Victim::Server => (server, client),
            Victim::Client => (client, server),
        };
        dead.kill();
        let dead = dead.wait();
        let is_told = alive.wait_for(|alive| alive.out().contains(told));
        // The client has had its last event and ends by itself.
        if *victim == Victim::Client {
            let next = scene.client("cycle", "3").wait();
            alive.kill();
            ends_well(&next)?;
        }
        let alive = alive.wait();
        let ended_well = *victim == Victim::Client || ends_well(&alive).is_ok();
        match is_told && ended_well {
            true => Ok(()),
            false => Err(format!("dead: {dead}\nalive: {alive}")),
        }
    });
}

#[test]
fn private_data_of_every_length_arrives() {
    let Some(scene) = Scene::new() else { return };
    let server = scene.server();
    let client = scene.client("lengths", "").wait();
    server.kill();
    let server = server.wait();
    ends_well(&client).unwrap_or_else(|error| panic!("{error}\nserver: {server}"));
}

/// What one process holds.
fn files(process: &Running) -> usize {
    let folder = Path::new("/proc").join(process.id().to_string()).join("fd");
    fs::read_dir(folder).unwrap().count()
}

/// Lines of `ferroce ports`, which tells of each port that is bound.
fn bound_ports(fabric: &Fabric) -> usize {
    let ports = fabric.ports();
    ports.lines().skip(1).count()
}

#[test]
fn five_thousand_connections_leave_nothing_behind() {
    const KIB: u64 = 1024;
    let Some(scene) = Scene::new() else { return };
    let server = scene.server();
    // Its first connection makes what it keeps.
    ends_well(&scene.client("cycle", "1").wait()).unwrap();
    let before = files(&server);
    let client = scene.client("cycle", "5000").wait();
    ends_well(&client).unwrap_or_else(|error| {
        server.kill();
        let end: Vec<String> = server.out().lines().rev().take(3).map(str::to_owned).collect();
        panic!("{error}\nserver: {end:?}")
    });
    let grown = client
        .out
        .lines()
        .find_map(|line| line.strip_prefix("grown by ")?.strip_suffix(" KiB")?.parse::<i64>().ok());
    // A byte for each connection would be seen in more; what the allocator keeps is less.
    assert!(grown.is_some_and(|grown| grown < (2 * KIB) as i64), "{client}");
    assert_eq!(files(&server), before);
    assert_eq!(bound_ports(&scene.fabric), 1, "{}", scene.fabric.ports());
    server.kill();
    server.wait();
}

#[test]
fn a_thousand_connections_are_open_at_once() {
    let Some(scene) = Scene::new() else { return };
    let server = scene.server();
    for _ in 0..2 {
        let client = scene.client("together", "1000").wait();
        if let Err(error) = ends_well(&client) {
            server.kill();
            panic!("{error}\nserver: {}", server.wait());
        }
    }
    server.kill();
    server.wait();
}

/// Runs `rping -c` at an address; its last words.
fn rping(fabric: &Fabric, flags: &[&str], address: &str) -> Ended {
    let mut client = fabric.run_with(flags, "rping");
    limited(client.args(["-c", "-C", "1", "-p", PORT_TEXT, "-a", address]))
}

#[test]
fn where_nobody_listens_a_connection_is_refused() {
    if !have("rping", "rdmacm-utils") {
        return;
    }
    let fabric = Fabric::new();
    let host = host_address().to_string();
    each_row(&["127.0.0.1", &host, "::1"], |address| {
        let said = rping(&fabric, &[], address);
        // 8: no such service.
        match said.err.contains("RDMA_CM_EVENT_REJECTED, error 8") {
            true => Ok(()),
            false => Err(said.to_string()),
        }
    });
}

#[test]
fn a_host_that_does_not_listen_refuses_and_one_that_is_not_there_cannot_be_reached() {
    if !have("rping", "rdmacm-utils") || !have("cmtime", "rdmacm-utils") {
        return;
    }
    let fabric = Fabric::new();
    let flags = ["--addr", "10.7.0.2"];
    let said = rping(&fabric, &flags, "10.7.0.1");
    // 113: no route to host.
    assert!(said.err.contains("RDMA_CM_EVENT_ADDR_ERROR, error -113"), "{said}");
    // The host is there now, and listens elsewhere.
    let mut server = fabric.run_with(&["--addr", "10.7.0.1"], "cmtime");
    let mut server = Running::start(server.args(["-p", "7472"]));
    assert!(server.wait_for(|_| fabric.listens(PORT + 1)), "{}", server.wait());
    let said = rping(&fabric, &flags, "10.7.0.1");
    assert!(said.err.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{said}");
    server.kill();
    server.wait();
}

#[test]
fn a_port_is_one_listeners_until_it_is_gone() {
    if !have("rping", "rdmacm-utils") {
        return;
    }
    let fabric = Fabric::new();
    let serve = |address: &str| {
        let mut server = fabric.run("rping");
        server.args(["-s", "-P", "-p", PORT_TEXT, "-a", address]);
        server
    };
    let mut first = Running::start(&mut serve("127.0.0.1"));
    assert!(first.wait_for(|_| fabric.listens(PORT)), "{}", first.wait());
    for address in ["127.0.0.1", "0.0.0.0"] {
        let second = limited(&mut serve(address));
        assert!(second.err.contains("Address already in use"), "{second}");
    }
    first.kill();
    first.wait();
    let mut third = Running::start(&mut serve("0.0.0.0"));
    assert!(third.wait_for(|_| fabric.listens(PORT)), "{}", third.wait());
    assert_eq!(rping(&fabric, &[], "127.0.0.1").check(), Ok(()));
    third.kill();
    third.wait();
}
