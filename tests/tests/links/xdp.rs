//! Links by AF_XDP, with each other and with packet sockets, on an interface that others use too.

use std::path::Path;

use ferroce_tests::links::{Cable, Gateway, Side};
use ferroce_tests::programs::{Installed, Pair, Running, have, limited};

use super::veth::{
    end, every_program_of, pair, ping_pong, pull_and_plug_in_again, take_away_the_interface, up,
};

/// One queue, whatever the kernel would have made.
const ONE_QUEUE: &[&str] = &["numtxqueues", "1", "numrxqueues", "1"];
const THREE_QUEUES: &[&str] = &["numtxqueues", "3", "numrxqueues", "3"];
const JUMBO: &[&str] = &["mtu", "9000"];

/// A cable for AF_XDP; says why not on a machine that does not allow that.
fn cable(properties: &[&str]) -> Option<Cable> {
    let cable = Cable::with(properties)?;
    match Gateway::try_start(&mut cable.ferroce(Side::Server), "xdp:roce0", &[]) {
        Ok(gateway) => end([gateway]),
        Err(trial) => {
            let refusals = ["AF_XDP needs CAP_NET_RAW", "this kernel has no AF_XDP"];
            let is_refused = refusals.iter().any(|refusal| trial.err.contains(refusal));
            assert!(is_refused, "{trial}");
            eprintln!("skipped: no AF_XDP here\n{trial}");
            return None;
        }
    }
    Some(cable)
}

/// What `ip` shows of a program on a side's interface.
fn program(cable: &Cable, side: Side) -> Option<String> {
    let shown = cable.ip(side, &["-details", "link", "show", "dev", side.interface()]);
    let mut words = shown.split_whitespace();
    words.find(|word| word.starts_with("xdp") || *word == "prog/xdp").map(str::to_owned)
}

fn every_program(kinds: [&str; 2], properties: &[&str], ip: fn(Side) -> &'static str) {
    if let Some(cable) = cable(properties) {
        every_program_of(&cable, kinds, ip);
    }
}

#[test]
fn xdp_to_xdp() {
    every_program(["xdp", "xdp"], ONE_QUEUE, Side::ipv4);
}

#[test]
fn xdp_to_xdp_ipv6() {
    every_program(["xdp", "xdp"], &[], Side::ipv6);
}

#[test]
fn xdp_to_xdp_frames_of_several_chunks() {
    every_program(["xdp", "xdp"], &[ONE_QUEUE, JUMBO].concat(), Side::ipv4);
}

#[test]
fn xdp_to_xdp_frames_of_several_chunks_ipv6() {
    every_program(["xdp", "xdp"], JUMBO, Side::ipv6);
}

#[test]
fn xdp_with_several_queues() {
    every_program(["xdp", "packet"], &[THREE_QUEUES, JUMBO].concat(), Side::ipv4);
}

#[test]
fn xdp_to_packet() {
    every_program(["xdp", "packet"], &[], Side::ipv4);
}

#[test]
fn packet_to_xdp_frames_of_several_chunks() {
    every_program(["packet", "xdp"], JUMBO, Side::ipv6);
}

#[test]
fn generic_xdp() {
    every_program(["xdp,generic", "xdp,generic"], JUMBO, Side::ipv4);
}

#[test]
fn in_a_vlan() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = cable(JUMBO) else { return };
    for kind in ["packet,vlan=7", "xdp,vlan=7,generic"] {
        let gateways = [
            up(&cable, Side::Server, "xdp,vlan=7", Side::ipv4),
            up(&cable, Side::Client, kind, Side::ipv4),
        ];
        ping_pong(&cable).unwrap_or_else(|error| panic!("{kind}: {error}"));
        end(gateways);
    }
}

#[test]
fn roce_v1() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = cable(JUMBO) else { return };
    for kind in ["xdp,v1", "xdp,v1,generic", "packet,v1"] {
        let gateways = [
            up(&cable, Side::Server, "xdp,v1", Side::ipv4),
            up(&cable, Side::Client, kind, Side::ipv4),
        ];
        ping_pong(&cable).unwrap_or_else(|error| panic!("{kind}: {error}"));
        end(gateways);
    }
}

#[test]
fn a_driver_that_can_is_used_and_another_is_not() {
    let Some(cable) = cable(&[]) else { return };
    for (link, shown) in [("xdp:roce0", "xdp"), ("xdp:roce0,generic", "xdpgeneric")] {
        let gateway = Gateway::start(&mut cable.ferroce(Side::Server), link, &[]);
        assert_eq!(program(&cable, Side::Server).as_deref(), Some(shown));
        end([gateway]);
        assert_eq!(program(&cable, Side::Server), None, "after {link}");
    }
}

#[test]
fn what_was_killed_leaves_nothing_on_the_interface() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = cable(&[]) else { return };
    let [server, client] = Side::BOTH.map(|side| up(&cable, side, "xdp", Side::ipv4));
    ping_pong(&cable).unwrap_or_else(|error| panic!("{error}"));
    client.kill();
    assert_eq!(program(&cable, Side::Client), None);
    let client = up(&cable, Side::Client, "xdp", Side::ipv4);
    ping_pong(&cable).unwrap_or_else(|error| panic!("{error}"));
    end([server, client]);
}

#[test]
fn other_traffic_passes_a_program() {
    let programs =
        [("ibv_rc_pingpong", "ibverbs-utils"), ("ping", "iputils-ping"), ("iperf3", "iperf3")];
    if !programs.iter().all(|(program, package)| have(program, package)) {
        return;
    }
    let Some(cable) = cable(&[]) else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "xdp", Side::ipv4));
    let host = |side, program| cable.on(side, Path::new(program));
    let mut ping = host(Side::Client, "ping");
    let ping = Running::start(ping.args(["-c", "5000", "-i", "0.001", Side::Server.ipv4()]));
    let mut ping6 = host(Side::Client, "ping");
    let ping6 = Running::start(ping6.args(["-c", "5000", "-i", "0.001", Side::Server.ipv6()]));
    let listens = |_: &Running| limited(host(Side::Server, "ss").arg("-ltn")).out.contains(":5201");
    let mut server = host(Side::Server, "iperf3");
    let mut client = host(Side::Client, "iperf3");
    // 64 MiB are some forty thousand frames of that size.
    client.args(["-n", "64M", "-M", "1400", "-c", Side::Server.ipv4()]);
    let transfer = Pair::when(server.args(["-s", "-1"]), listens, &mut client);
    transfer.check().unwrap_or_else(|error| panic!("{error}"));
    pair(&cable, "ibv_rc_pingpong", "-g 1 -c -n 1000").check().expect("RoCE passes as well");
    for ping in [ping.wait(), ping6.wait()] {
        assert!(ping.out.contains(" 0% packet loss"), "{ping}");
    }
    end(gateways);
}

#[test]
fn an_interface_that_was_down() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = cable(&[]) else { return };
    pull_and_plug_in_again(&cable, "xdp");
}

#[test]
fn an_interface_that_is_gone_ends_the_gateway() {
    let Some(cable) = cable(THREE_QUEUES) else { return };
    take_away_the_interface(&cable, "xdp");
}

#[test]
fn why_there_is_no_such_link_is_said() {
    let Some(cable) = cable(&[]) else { return };
    let gateway = up(&cable, Side::Server, "xdp", Side::ipv4);
    let mut second = cable.ferroce(Side::Server);
    second.env("FERROCE_FABRIC", cable.home().join("another"));
    let second = limited(second.args(["up", "--link", "xdp:roce0"]));
    assert!(second.err.contains("another gateway perhaps, has queue 0"), "{second}");
    assert_eq!(second.err.matches("os error").count(), 1, "said once: {second}");
    end([gateway]);
    let mut limited_memory = cable.on(Side::Server, Path::new("setpriv"));
    limited_memory.args(["--bounding-set=-ipc_lock", "prlimit", "--memlock=65536"]);
    limited_memory.arg(&Installed::get().ferroce);
    let no_memory = limited(limited_memory.args(["up", "--link", "xdp:roce0"]));
    assert!(no_memory.err.contains("ulimit -l, is too low for 10 MiB"), "{no_memory}");
    let mut none = cable.ferroce(Side::Server);
    let none = limited(none.args(["up", "--link", "xdp:nowhere"]));
    assert!(none.err.contains("there is no interface nowhere"), "{none}");
    let mut user = cable.on(Side::Server, Path::new("setpriv"));
    user.arg("--bounding-set=-net_admin,-bpf,-sys_admin");
    user.arg(&Installed::get().ferroce);
    let user = limited(user.args(["up", "--link", "xdp:roce0"]));
    assert!(user.err.contains("AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"), "{user}");
}
