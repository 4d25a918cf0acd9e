//! Two fabrics, each with its gateway, at the ends of a cable: every kind of link with every other.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ferroce_tests::links::{Cable, Gateway, Side, has_lost};
use ferroce_tests::programs::{Pair, Running, free_port, have, limited};

/// Program and options of both sides.
type Row = (&'static str, &'static str);

/// Of everything a little; each program looks at its data where it can.
const ROWS: &[Row] = &[
    ("ibv_rc_pingpong", "-g 1 -c -n 200"),
    ("ibv_rc_pingpong", "-g 1 -c -e -s 65537 -n 50"),
    ("ibv_uc_pingpong", "-g 1 -c -n 200"),
    ("ibv_ud_pingpong", "-g 1 -c -n 200 -s 1024"),
    ("ibv_srq_pingpong", "-g 1 -c -n 200"),
    ("ib_write_bw", "-F -x 1 -u 20 -a -n 5"),
    ("ib_read_bw", "-F -x 1 -u 20 -a -n 5"),
    ("ib_send_bw", "-F -x 1 -u 20 -b -n 200"),
    ("ib_write_lat", "-F -x 1 -u 20 -n 50 -s 8"),
    ("ib_atomic_bw", "-F -x 1 -u 20 -n 50"),
];

/// Runs a program across the cable.
pub(super) fn pair(cable: &Cable, program: &str, options: &str) -> Pair {
    let port = free_port();
    let command = |side| {
        let mut command = cable.run(side, program);
        command.args(["-p", &port.to_string()]).args(options.split_whitespace());
        command
    };
    let mut client = command(Side::Client);
    Pair::of(&mut command(Side::Server), port, client.arg(Side::Server.tcp()))
}

/// The link of a side, of this kind and family.
fn link(kind: &str, side: Side, ip: fn(Side) -> &'static str) -> String {
    let (kind, options) = kind.split_at(kind.find(',').unwrap_or(kind.len()));
    match kind {
        "udp" => format!("udp:{}", ip(side)),
        _ => format!("{kind}:{}{options}", side.interface()),
    }
}

pub(super) fn up(cable: &Cable, side: Side, kind: &str, ip: fn(Side) -> &'static str) -> Gateway {
    Gateway::start(&mut cable.ferroce(side), &link(kind, side, ip), &["--addr", ip(side)])
}

/// Ends gateways that have lost nothing and damaged nothing.
pub(super) fn end<const COUNT: usize>(gateways: [Gateway; COUNT]) {
    for ended in gateways.map(Gateway::end) {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        assert!(!has_lost(&ended), "{ended}");
    }
}

/// How many packets have come to a side's kernel for UDP ports that nobody has: it answers them,
/// and should know nothing of RoCE. Some are from neighbours being looked for.
fn unwanted(cable: &Cable, side: Side) -> u64 {
    let mut table = cable.on(side, Path::new("cat"));
    let text = limited(table.args(["/proc/net/snmp", "/proc/net/snmp6"])).out;
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Udp: ")).collect();
    let [names, values] = &lines[..] else { panic!("{text}") };
    let ipv4 = names.split(' ').zip(values.split(' '));
    let ipv6 = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let counts = ipv4.chain(ipv6).filter(|(name, _)| ["NoPorts", "Udp6NoPorts"].contains(name));
    counts.map(|(_, value)| value.trim().parse::<u64>().expect("a number")).sum()
}

fn every_program(kinds: [&str; 2], ip: fn(Side) -> &'static str) {
    let Some(cable) = Cable::new() else { return };
    every_program_of(&cable, kinds, ip);
}

/// The same, across a cable that there is.
pub(super) fn every_program_of(cable: &Cable, kinds: [&str; 2], ip: fn(Side) -> &'static str) {
    if !have("ibv_rc_pingpong", "ibverbs-utils") || !have("ib_write_bw", "perftest") {
        return;
    }
    let gateways = [up(cable, Side::Server, kinds[0], ip), up(cable, Side::Client, kinds[1], ip)];
    for (program, options) in ROWS {
        let outcome = pair(cable, program, options).check();
        outcome.unwrap_or_else(|error| panic!("{program} {options}: {error}"));
    }
    end(gateways);
    for side in Side::BOTH {
        assert!(unwanted(cable, side) < 100, "{side:?}'s kernel hears RoCE");
    }
}

#[test]
fn packet_to_packet() {
    every_program(["packet", "packet"], Side::ipv4);
}

#[test]
fn packet_to_packet_ipv6() {
    every_program(["packet", "packet"], Side::ipv6);
}

#[test]
fn udp_to_udp() {
    every_program(["udp", "udp"], Side::ipv4);
}

#[test]
fn udp_to_udp_ipv6() {
    every_program(["udp", "udp"], Side::ipv6);
}

#[test]
fn udp_to_packet() {
    every_program(["udp", "packet"], Side::ipv4);
}

/// Runs a short one.
pub(super) fn ping_pong(cable: &Cable) -> Result<(), String> {
    pair(cable, "ibv_rc_pingpong", "-g 1 -c -n 20").check()
}

#[test]
fn a_gateway_lets_go_of_the_rings_of_programs_that_have_ended() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let rings = |running: &Running| {
        let maps = fs::read_to_string(format!("/proc/{}/maps", running.id())).unwrap();
        let rings = maps.lines().filter(|line| line.contains("/member-"));
        rings.map(str::to_owned).collect::<Vec<String>>()
    };
    let mut gateways = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    for _ in 0..5 {
        ping_pong(&cable).unwrap_or_else(|error| panic!("{error}"));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    for gateway in &mut gateways {
        let mut held = Vec::new();
        gateway.wait_for(|running| {
            held = rings(running);
            held.len() == 3 || Instant::now() > deadline
        });
        assert_eq!(held.len(), 3, "each half has one, and its device: {held:#?}");
    }
    end(gateways);
}

#[test]
fn what_passes_the_cable_breaks_no_rule() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    let capture = cable.home().join("cable.pcapng");
    let port = free_port();
    let command = |side| {
        let mut command = cable.ferroce(side);
        command.args(["run", "--pcap"]).arg(&capture);
        command.args(["--", "ibv_rc_pingpong", "-g", "1", "-c", "-n", "20"]);
        command.args(["-p", &port.to_string()]);
        command
    };
    let mut client = command(Side::Client);
    let both = Pair::of(&mut command(Side::Server), port, client.arg(Side::Server.tcp()));
    both.check().unwrap_or_else(|error| panic!("{error}"));
    end(gateways);
    let decoded = limited(cable.ferroce(Side::Server).args(["decode", "--verify"]).arg(&capture));
    decoded.check().unwrap_or_else(|error| panic!("{error}"));
    assert!(decoded.out.contains("no violation"), "{decoded}");
}

/// Program of both sides, options of the server, and of the client.
const CONNECTIONS: &[(&str, &str, &str)] = &[
    ("rping", "-p 7174 -s -C 10 -v -a 192.0.2.1", "-p 7174 -c -C 10 -v -a 192.0.2.1"),
    ("ucmatose", "-p 7174 -c 3 -C 5 -b 192.0.2.1", "-p 7174 -c 3 -C 5 -s 192.0.2.1"),
    // Has but this port.
    ("udaddy", "-c 3 -C 5 -b 192.0.2.1", "-c 3 -C 5 -s 192.0.2.1"),
];

#[test]
fn connections() {
    if !have("rping", "rdmacm-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    for (program, server, client) in CONNECTIONS {
        let command = |side, options: &str| {
            let mut command = cable.run(side, program);
            command.args(options.split(' '));
            command
        };
        let ready = |_: &Running| cable.listens(Side::Server, 7174);
        let mut client = command(Side::Client, client);
        let both = Pair::when(&mut command(Side::Server, server), ready, &mut client);
        both.check().unwrap_or_else(|error| panic!("{program}: {error}"));
    }
    end(gateways);
}

#[test]
fn who_connects_where_nobody_listens_is_told() {
    if !have("rping", "rdmacm-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    let mut client = cable.run(Side::Client, "rping");
    let ended = limited(client.args(["-c", "-C", "1", "-a", Side::Server.ipv4()]));
    assert!(format!("{ended}").contains("RDMA_CM_EVENT_REJECTED, error 8"), "{ended}");
    end(gateways);
}

#[test]
fn a_gateway_that_was_killed_is_replaced() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let [server, client] = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    ping_pong(&cable).unwrap_or_else(|error| panic!("{error}"));
    let second = limited(cable.ferroce(Side::Client).args(["up", "--link", "packet:roce1"]));
    assert!(second.err.contains("is the gateway of fabric"), "{second}");
    client.kill();
    let client = up(&cable, Side::Client, "packet", Side::ipv4);
    ping_pong(&cable).unwrap_or_else(|error| panic!("{error}"));
    end([server, client]);
}

#[test]
fn other_traffic_of_the_interface_is_undisturbed() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") || !have("ping", "iputils-ping") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    let mut ping = cable.on(Side::Client, Path::new("ping"));
    let ping = Running::start(ping.args(["-c", "2000", "-i", "0.001", Side::Server.ipv4()]));
    ping_pong(&cable).unwrap_or_else(|error| panic!("{error}"));
    let ping = ping.wait();
    assert!(ping.out.contains(" 0% packet loss"), "{ping}");
    end(gateways);
}

#[test]
fn a_cable_that_was_pulled_and_plugged_in_again() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    pull_and_plug_in_again(&cable, "packet");
}

/// Gateways of a kind go on when their interfaces have been down.
pub(super) fn pull_and_plug_in_again(cable: &Cable, kind: &str) {
    let gateways = Side::BOTH.map(|side| up(cable, side, kind, Side::ipv4));
    for state in ["down", "up"] {
        cable.ip(Side::Server, &["link", "set", "roce0", state]);
    }
    ping_pong(cable).unwrap_or_else(|error| panic!("{error}"));
    for ended in gateways.map(Gateway::end) {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_gateway_ends_when_its_interface_is_gone() {
    let Some(cable) = Cable::new() else { return };
    take_away_the_interface(&cable, "packet");
}

/// A gateway of a kind ends when its interface is gone.
pub(super) fn take_away_the_interface(cable: &Cable, kind: &str) {
    let gateway = up(cable, Side::Server, kind, Side::ipv4);
    cable.ip(Side::Server, &["link", "delete", "roce0"]);
    let ended = gateway.wait();
    assert_eq!(ended.status.and_then(|status| status.code()), Some(2), "{ended}");
    assert!(ended.err.contains("the link is gone"), "{ended}");
}

/// What a gateway sends is recorded as faults have left it, what comes as it came; the programs at
/// both ends recover.
#[test]
fn a_gateway_records_and_strikes_what_passes_it() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let server = up(&cable, Side::Server, "packet", Side::ipv4);
    let capture = cable.home().join("gateway.pcapng");
    let path = capture.to_str().expect("a path of ours");
    // What the other side sends is lost too late to be missing in the capture.
    let faults = "drop 2nd rc-send-only from node 0; duplicate 4th rc-send-only from node 0; \
                  drop 3rd rc-send-only from node 1; delay 2nd ack from node 1 by 1ms";
    let arguments = ["--addr", Side::Client.ipv4(), "--pcap", path, "--fault", faults];
    let client = Gateway::start(&mut cable.ferroce(Side::Client), "packet:roce1", &arguments);
    pair(&cable, "ibv_rc_pingpong", "-g 1 -c -n 20 -s 1000").check().unwrap();
    let [server, client] = [server, client].map(Gateway::end);
    assert!(!has_lost(&server) && !has_lost(&client), "{server}{client}");
    assert!(client.out.contains("injected 2"), "{client}");
    let decoded = limited(cable.ferroce(Side::Client).args(["decode", "--verify"]).arg(path));
    let shows = |kind: &str| decoded.out.contains(&format!(" {kind} "));
    assert!(shows("duplicate_frame") && shows("retransmission"), "{decoded}");
    assert!(decoded.out.contains("no violation"), "{decoded}");
}

#[test]
fn one_program_with_a_link_of_its_own() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let port = free_port();
    let command = |side: Side, link: &str| {
        let mut command = cable.ferroce(side);
        command.args(["run", "--link", link, "--", "ibv_rc_pingpong", "-g", "1", "-c"]);
        command.args(["-p", &port.to_string()]);
        command
    };
    let mut client = command(Side::Client, "udp:192.0.2.2");
    let mut server = command(Side::Server, "packet:roce0");
    let both = Pair::of(&mut server, port, client.arg(Side::Server.tcp()));
    both.check().unwrap_or_else(|error| panic!("{error}"));
    let mut command = cable.ferroce(Side::Client);
    command.args(["run", "--link", "packet:roce1", "--", "no-such-program"]);
    let ended = limited(&mut command);
    assert_eq!(ended.status.and_then(|status| status.code()), Some(127), "{ended}");
}

#[test]
fn a_device_tells_the_rate_of_its_link() {
    if !have("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let told = |link: &[&str]| {
        let mut command = cable.ferroce(Side::Client);
        let ended = limited(command.arg("run").args(link).args(["--", "ibv_devinfo", "-v"]));
        let of = |name: &str| {
            let line = ended.out.lines().find_map(|line| line.trim().strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {ended}")).trim().to_owned()
        };
        [of("active_width:"), of("active_speed:")]
    };
    assert_eq!(told(&[]), ["4X (2)", "10.0 Gbps (8)"]);
    // A cable of veth says 10 Gbit/s.
    let expected = ["1X (1)", "10.0 Gbps (8)"];
    assert_eq!(told(&["--link", "packet:roce1"]), expected);
    let gateway = up(&cable, Side::Client, "udp", Side::ipv4);
    assert_eq!(told(&[]), expected);
    end([gateway]);
}

#[test]
fn what_is_wrong_with_a_link_is_said() {
    let Some(cable) = Cable::new() else { return };
    let table = [
        (&["--link", "packet:nowhere"][..], "there is no interface nowhere"),
        (&["--link", "udp:203.0.113.9"], "no interface of this machine has 203.0.113.9"),
        (&["--link", "eth0"], "expected packet:IFACE, xdp:IFACE or udp:ADDR"),
        (&[], "no link: give --link"),
    ];
    for (arguments, expected) in table {
        let ended = limited(cable.ferroce(Side::Server).arg("up").args(arguments));
        assert!(ended.err.contains(expected), "{ended}");
        assert_eq!(ended.status.and_then(|status| status.code()), Some(2), "{ended}");
    }
}
