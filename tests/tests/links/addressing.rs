//! By which addresses a fabric is found: those its interface has, its own, several at a time; in
//! VLANs, and as RoCE v1.

use std::path::Path;
use std::process::Command;

use ferroce_tests::links::{Cable, Gateway, Side, has_lost};
use ferroce_tests::programs::{Pair, Running, free_port, have, limited};

use super::veth::pair;

/// An IPv4 address of the fabric's own, of the subnet of the interface's.
fn own_ipv4(side: Side) -> &'static str {
    match side {
        Side::Server => "192.0.2.11",
        Side::Client => "192.0.2.12",
    }
}

/// The same of IPv6.
fn own_ipv6(side: Side) -> &'static str {
    match side {
        Side::Server => "fd00:77::11",
        Side::Client => "fd00:77::12",
    }
}

/// Addresses that only a VLAN knows.
fn vlan_ipv4(side: Side) -> &'static str {
    match side {
        Side::Server => "203.0.113.1",
        Side::Client => "203.0.113.2",
    }
}

fn vlan_ipv6(side: Side) -> &'static str {
    match side {
        Side::Server => "fd00:7::1",
        Side::Client => "fd00:7::2",
    }
}

/// A gateway by packet socket with these options, and addresses.
fn up(cable: &Cable, side: Side, options: &str, addresses: &[&str]) -> Gateway {
    let link = format!("packet:{}{options}", side.interface());
    let flags: Vec<&str> = addresses.iter().flat_map(|address| ["--addr", address]).collect();
    Gateway::start(&mut cable.ferroce(side), &link, &flags)
}

/// A connection by rdma_cm to an address of the server's.
fn rping(cable: &Cable, address: &str) -> Pair {
    let command = |side, role: &str| {
        let mut command = cable.run(side, "rping");
        command.args([role, "-p", "7174", "-C", "10", "-v", "-a", address]);
        command
    };
    let ready = |_: &Running| cable.listens(Side::Server, 7174);
    let mut client = command(Side::Client, "-c");
    Pair::when(&mut command(Side::Server, "-s"), ready, &mut client)
}

fn check(outcome: &Pair) {
    outcome.check().unwrap_or_else(|error| panic!("{error}"));
}

/// Both ways of finding one another: by the programs' own exchange, and by rdma_cm.
fn talk(cable: &Cable, address: &str) {
    check(&pair(cable, "ibv_rc_pingpong", "-g 1 -c -n 50"));
    check(&rping(cable, address));
}

/// Ends gateways that have lost nothing; gives what they have said.
fn end(gateways: [Gateway; 2]) -> [String; 2] {
    gateways.map(Gateway::end).map(|ended| {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        assert!(!has_lost(&ended), "{ended}");
        format!("{ended}")
    })
}

/// The cable, if the programs are there to use it.
fn cable() -> Option<Cable> {
    let has_programs = have("ibv_rc_pingpong", "ibverbs-utils") && have("rping", "rdmacm-utils");
    has_programs.then(Cable::new).flatten()
}

fn own_on_both_sides(ip: fn(Side) -> &'static str) {
    let Some(cable) = cable() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "", &[ip(side)]));
    talk(&cable, ip(Side::Server));
    for said in end(gateways) {
        assert!(said.contains("neighbours_answered"), "{said}");
        assert!(!said.contains("CONFLICT"), "{said}");
    }
}

#[test]
fn own_addresses_on_both_sides() {
    own_on_both_sides(own_ipv4);
}

#[test]
fn own_addresses_on_both_sides_ipv6() {
    own_on_both_sides(own_ipv6);
}

/// The Ethernet address of a side's interface.
fn mac(cable: &Cable, side: Side) -> String {
    let shown = cable.ip(side, &["-o", "link", "show", "dev", side.interface()]);
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[test]
fn own_addresses_and_those_of_the_kernel() {
    let Some(cable) = cable() else { return };
    for (own, kernel) in
        [(own_ipv4 as fn(Side) -> _, Side::ipv4 as fn(Side) -> _), (own_ipv6, Side::ipv6)]
    {
        let server = up(&cable, Side::Server, "", &[own(Side::Server)]);
        let client = up(&cable, Side::Client, "", &[kernel(Side::Client)]);
        talk(&cable, own(Side::Server));
        let known = cable.ip(Side::Client, &["neighbour", "show", own(Side::Server)]);
        assert!(known.contains(&mac(&cable, Side::Server)), "{known}");
        let [server, client] = end([server, client]);
        assert!(server.contains("neighbours_answered"), "{server}");
        assert!(!client.contains("neighbours_"), "{client}");
    }
}

#[test]
fn an_own_address_is_no_host_to_other_programs() {
    if !have("ping", "iputils-ping") {
        return;
    }
    let Some(cable) = cable() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "", &[own_ipv4(side)]));
    let mut ping = cable.on(Side::Client, Path::new("ping"));
    let ended = limited(ping.args(["-c", "1", "-W", "1", own_ipv4(Side::Server)]));
    assert!(ended.out.contains("100% packet loss"), "{ended}");
    // It was found, all the same.
    let known = cable.ip(Side::Client, &["neighbour", "show", own_ipv4(Side::Server)]);
    assert!(known.contains(&mac(&cable, Side::Server)), "{known}");
    end(gateways);
}

#[test]
fn an_address_that_another_host_has_is_left_to_it() {
    let Some(cable) = Cable::new() else { return };
    let taken = [Side::Client.ipv4(), Side::Client.ipv6()];
    // The kernel gives up an address that another host asks for before it is quite its own.
    let is_settled = || {
        cable.ip(Side::Client, &["-6", "address", "show", "dev", "roce1", "tentative"]).is_empty()
    };
    assert!((0..10_000).any(|_| is_settled()));
    let gateway = up(&cable, Side::Server, "", &taken);
    let ended = gateway.end();
    ended.check().unwrap_or_else(|error| panic!("{error}"));
    let owner = mac(&cable, Side::Client);
    for ip in taken {
        let expected = format!("ADDRESS CONFLICT: {ip} belongs to the host with {owner}");
        assert!(ended.err.contains(&expected), "{ended}");
    }
    assert!(ended.out.contains("address_conflicts 2"), "{ended}");
    assert!(!ended.out.contains("neighbours_answered"), "{ended}");
}

#[test]
fn several_addresses_at_a_time() {
    let Some(cable) = cable() else { return };
    // One that the interface has, and own ones, of both families.
    let gateways =
        Side::BOTH.map(|side| up(&cable, side, "", &[side.ipv4(), own_ipv4(side), own_ipv6(side)]));
    let port = [free_port(), free_port(), free_port()];
    let command = |side, number: usize| {
        let mut command = cable.run(side, "ibv_rc_pingpong");
        command.args(["-g", "1", "-c", "-n", "200", "-p", &port[number].to_string()]);
        command.args(["-d", &format!("ferroce{number}")]);
        command
    };
    let mut servers = [0, 1, 2].map(|number| Running::start(&mut command(Side::Server, number)));
    for (server, port) in servers.iter_mut().zip(port) {
        server.wait_for(|server| server.listens(port));
    }
    let clients = [0, 1, 2]
        .map(|number| Running::start(command(Side::Client, number).arg(Side::Server.tcp())));
    for ended in clients.into_iter().chain(servers).map(Running::wait) {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
    }
    end(gateways);
}

#[test]
fn a_vlan_on_both_sides() {
    let Some(cable) = cable() else { return };
    for ip in [vlan_ipv4 as fn(Side) -> _, vlan_ipv6] {
        let gateways = Side::BOTH.map(|side| up(&cable, side, ",vlan=7", &[ip(side)]));
        talk(&cable, ip(Side::Server));
        end(gateways);
    }
}

#[test]
fn one_vlan_does_not_hear_another() {
    let Some(cable) = cable() else { return };
    let vlans = [(Side::Server, ",vlan=7"), (Side::Client, ",vlan=8")];
    let gateways = vlans.map(|(side, options)| up(&cable, side, options, &[vlan_ipv4(side)]));
    let outcome = rping(&cable, vlan_ipv4(Side::Server));
    assert!(outcome.client.check().is_err(), "{outcome:?}");
    let [server, client] = gateways.map(Gateway::end);
    assert!(!server.out.contains("link_received"), "{server}");
    assert!(client.out.contains("no_neighbour"), "{client}");
}

/// Gives a side's kernel an interface in VLAN 7, if it knows what that is.
fn add_vlan(cable: &Cable, side: Side) -> Option<String> {
    let name = format!("{}.7", side.interface());
    let link = ["link", "add", "link", side.interface(), "name", &name, "type", "vlan", "id", "7"];
    let added = limited(cable.on(side, Path::new("ip")).args(link));
    if added.check().is_err() {
        eprintln!("skipped: no VLANs in this kernel\n{added}");
        return None;
    }
    for (ip, len, nodad) in [(vlan_ipv4(side), 24, &[][..]), (vlan_ipv6(side), 64, &["nodad"])] {
        let address = format!("{ip}/{len}");
        cable.ip(side, &[&["address", "add", &address, "dev", &name], nodad].concat());
    }
    cable.ip(side, &["link", "set", &name, "up"]);
    Some(name)
}

#[test]
fn a_vlan_and_the_kernels_interface_in_it() {
    let Some(cable) = cable() else { return };
    let Some(name) = add_vlan(&cable, Side::Client) else { return };
    for ip in [vlan_ipv4 as fn(Side) -> _, vlan_ipv6] {
        // Whether the kernel puts the tags there, or knows the neighbours of those that do.
        for link in [format!("packet:{name}"), "packet:roce1,vlan=7".to_owned()] {
            let server = up(&cable, Side::Server, ",vlan=7", &[ip(Side::Server)]);
            let mut client = cable.ferroce(Side::Client);
            let client = Gateway::start(&mut client, &link, &["--addr", ip(Side::Client)]);
            talk(&cable, ip(Side::Server));
            let [_, client] = end([server, client]);
            assert!(!client.contains("neighbours_"), "the kernel's: {client}");
        }
    }
}

/// Runs perftest with this traffic class until so many tagged RoCE frames have been seen; gives of
/// each priority, VLAN, and DSCP with ECN.
fn tags(cable: &Cable, traffic_class: u8) -> String {
    let tshark = "exec tshark -l -n -i roce1 -f 'vlan 7 and udp port 4791' -c 40 -T fields \
                  -e vlan.priority -e vlan.id -e ip.dsfield 2>&1";
    let mut shell = cable.on(Side::Client, Path::new("sh"));
    // It gives up the right to write to folders of others.
    let mut tshark = Running::start(shell.args(["-c", tshark]).env("TMPDIR", "/tmp"));
    assert!(tshark.wait_for(|tshark| tshark.out().contains("Capturing on")));
    while tshark.is_alive() {
        let options = format!("-F -x 1 -n 50 -s 64 --tclass {traffic_class}");
        check(&pair(cable, "ib_write_lat", &options));
    }
    tshark.wait().out
}

#[test]
fn priority_is_the_options_or_that_of_the_dscp() {
    if !have("ib_write_lat", "perftest") || !have("tshark", "tshark") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    for (options, expected) in [(",vlan=7", "3\t7\t0x6a"), (",vlan=7,pcp=5", "5\t7\t0x6a")] {
        let gateways = Side::BOTH.map(|side| up(&cable, side, options, &[vlan_ipv4(side)]));
        let seen = tags(&cable, 0x6a);
        assert!(seen.lines().any(|line| line == expected), "{options}: {seen}");
        end(gateways);
    }
}

#[test]
fn roce_v1_on_both_sides() {
    let Some(cable) = cable() else { return };
    let version = |side| {
        let mut command: Command = cable.run(side, "ibv_devinfo");
        limited(command.arg("-v")).out
    };
    for ip in [Side::ipv4 as fn(Side) -> _, Side::ipv6, own_ipv4, own_ipv6] {
        let gateways = Side::BOTH.map(|side| up(&cable, side, ",v1", &[ip(side)]));
        let said = version(Side::Server);
        assert!(said.contains("RoCE v1") && !said.contains("RoCE v2"), "{said}");
        talk(&cable, ip(Side::Server));
        check(&pair(&cable, "ibv_ud_pingpong", "-g 1 -c -n 50 -s 512"));
        end(gateways);
    }
}

#[test]
fn roce_v1_in_a_vlan() {
    let Some(cable) = cable() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, ",vlan=7,v1", &[vlan_ipv4(side)]));
    talk(&cable, vlan_ipv4(Side::Server));
    end(gateways);
}

#[test]
fn a_path_mtu_that_does_not_fit_is_lowered() {
    let Some(cable) = cable() else { return };
    let gateways = Side::BOTH.map(|side| {
        let link = format!("packet:{}", side.interface());
        Gateway::start(&mut cable.ferroce(side), &link, &["--mtu", "4096"])
    });
    for gateway in &gateways {
        assert!(gateway.summary().contains("path MTU 1024"), "{}", gateway.summary());
    }
    // A program that asks for more gets what fits as well.
    let mut command = cable.ferroce(Side::Client);
    let said = limited(command.args(["run", "--mtu", "2048", "--", "ibv_devinfo"])).out;
    let active = said.lines().find(|line| line.contains("active_mtu"));
    assert!(active.is_some_and(|line| line.contains("1024")), "{said}");
    talk(&cable, Side::Server.ipv4());
    for said in end(gateways) {
        assert!(
            said.contains("path MTU 4096 do not fit the link: it is lowered to 1024"),
            "{said}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_links_options_is_said() {
    let Some(cable) = Cable::new() else { return };
    let table = [
        ("udp:192.0.2.1,v1", "udp:ADDR has no options"),
        ("packet:roce0,vlan=4095", "vlan= and a number from 1 to 4094"),
        ("packet:roce0,pcp=1", "vlan= as well"),
        ("packet:roce0,vlan=7", "the link has no address: give it one, or name one with --addr"),
    ];
    for (link, expected) in table {
        let ended = limited(cable.ferroce(Side::Server).args(["up", "--link", link]));
        assert!(ended.err.contains(expected), "{ended}");
        assert_eq!(ended.status.and_then(|status| status.code()), Some(2), "{ended}");
    }
}
