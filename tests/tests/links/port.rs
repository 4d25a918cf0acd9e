//! What programs of a fabric and the interface under its link know of each other: multicast groups,
//! the state of the link, its addresses.

use std::process::Command;

use ferroce_tests::links::{Cable, Gateway, Side};
use ferroce_tests::programs::{Pair, Running, have, limited};

/// The other kind of link is the peer's.
fn up(cable: &Cable, side: Side, kind: &str, ip: &str) -> Gateway {
    let link = match kind {
        "packet" => format!("packet:{}", side.interface()),
        _ => format!("udp:{ip}"),
    };
    Gateway::start(&mut cable.ferroce(side), &link, &["--addr", ip])
}

/// Whether the kernel of a side is in a group on the cable.
fn is_joined(cable: &Cable, side: Side, group: &str) -> bool {
    let listed = cable.ip(side, &["maddr", "show", "dev", side.interface()]);
    listed.split_whitespace().any(|word| word == group)
}

fn mckey(cable: &Cable, side: Side, group: &str, ip: &str) -> Command {
    let mut command = cable.run(side, "mckey");
    command.args(["-m", group, "-b", ip, "-C", "5"]);
    command
}

/// Datagrams pass from the client to the group, which the server's kernel is in for as long as
/// the program is that receives them.
fn group_across(kinds: [&str; 2], ip: fn(Side) -> &'static str, group: &str) {
    if !have("mckey", "rdmacm-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let [mut server, client] = [(Side::Server, kinds[0]), (Side::Client, kinds[1])]
        .map(|(side, kind)| up(&cable, side, kind, ip(side)));
    let is_there = |_: &Running| is_joined(&cable, Side::Server, group);
    let is_gone = |_: &Running| !is_joined(&cable, Side::Server, group);

    let mut hears = mckey(&cable, Side::Server, group, ip(Side::Server));
    let mut sends = mckey(&cable, Side::Client, group, ip(Side::Client));
    let both = Pair::when(&mut hears, is_there, sends.arg("-s"));
    both.check().unwrap_or_else(|error| panic!("{group}: {error}"));
    assert!(server.wait_for(is_gone), "left with the program");

    let mut killed = Running::start(&mut hears);
    assert!(killed.wait_for(is_there), "{}", killed.wait());
    killed.kill();
    assert!(server.wait_for(is_gone), "left with the program that was killed");
    for ended in [server, client].map(Gateway::end) {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        assert!(!ended.out.contains("groups_refused"), "{ended}");
    }
}

#[test]
fn group_of_packet_links() {
    group_across(["packet", "packet"], Side::ipv4, "239.77.1.1");
}

#[test]
fn group_of_packet_links_ipv6() {
    group_across(["packet", "packet"], Side::ipv6, "ff0e::77:1");
}

#[test]
fn group_to_a_udp_link() {
    group_across(["udp", "packet"], Side::ipv4, "239.77.1.1");
}

#[test]
fn group_from_a_udp_link() {
    group_across(["packet", "udp"], Side::ipv4, "239.77.1.1");
}

#[test]
fn group_of_udp_links_ipv6() {
    group_across(["udp", "udp"], Side::ipv6, "ff0e::77:1");
}

/// What programs find of the device.
fn devinfo(cable: &Cable) -> String {
    let ended = limited(cable.run(Side::Server, "ibv_devinfo").arg("-v"));
    ended.check().unwrap_or_else(|error| panic!("{error}"));
    ended.out
}

/// A program that tells what it hears, from now on.
fn watch(cable: &Cable) -> Running {
    let mut command = cable.run(Side::Server, "stdbuf");
    let mut watch = Running::start(command.args(["-oL", "ibv_asyncwatch", "-d", "ferroce0"]));
    assert!(watch.wait_for(|watch| watch.out().contains("event FD")), "{}", watch.wait());
    watch
}

/// Waits until it has heard so many events of a kind.
fn hears(watch: &mut Running, event: &str, times: usize) {
    let heard = watch.wait_for(|watch| watch.out().matches(event).count() >= times);
    assert!(heard, "not {times} of {event}: {}", watch.out());
}

#[test]
fn programs_hear_of_a_link_that_goes_down_and_comes_up() {
    if !have("ibv_asyncwatch", "ibverbs-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let gateway = up(&cable, Side::Server, "packet", Side::Server.ipv4());
    let mut watch = watch(&cable);
    assert!(devinfo(&cable).contains("PORT_ACTIVE"));
    // The interface itself, and the carrier, which its peer makes.
    for (times, (side, name)) in [(1, (Side::Server, "roce0")), (2, (Side::Client, "roce1"))] {
        cable.ip(side, &["link", "set", name, "down"]);
        hears(&mut watch, "IBV_EVENT_PORT_ERR", times);
        assert!(devinfo(&cable).contains("PORT_DOWN"));
        cable.ip(side, &["link", "set", name, "up"]);
        hears(&mut watch, "IBV_EVENT_PORT_ACTIVE", times);
        assert!(devinfo(&cable).contains("PORT_ACTIVE"));
    }
    // A fabric without a gateway needs no link.
    cable.ip(Side::Server, &["link", "set", "roce0", "down"]);
    hears(&mut watch, "IBV_EVENT_PORT_ERR", 3);
    let ended = gateway.end();
    assert!(ended.err.contains("the link is down"), "{ended}");
    hears(&mut watch, "IBV_EVENT_PORT_ACTIVE", 3);
    watch.kill();
}

#[test]
fn devices_follow_the_address_of_the_link() {
    if !have("ibv_asyncwatch", "ibverbs-utils") || !have("rping", "rdmacm-utils") {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let gateways = Side::BOTH.map(|side| {
        let link = format!("packet:{}", side.interface());
        Gateway::start(&mut cable.ferroce(side), &link, &[])
    });
    let mut watch = watch(&cable);
    let mut command = cable.run(Side::Server, "rping");
    let mut server = Running::start(command.args(["-s", "-C", "3", "-v"]));
    let listens = server.wait_for(|_| cable.listens(Side::Server, 7174));
    assert!(listens, "{}", server.wait());

    // Of another network's prefix: with the first of a prefix the kernel removes the others.
    cable.ip(Side::Server, &["address", "add", "192.0.2.9/25", "dev", "roce0"]);
    let old = format!("{}/24", Side::Server.ipv4());
    cable.ip(Side::Server, &["address", "del", &old, "dev", "roce0"]);
    // One for what goes, one for what comes.
    hears(&mut watch, "IBV_EVENT_GID_CHANGE", 2);
    let found = devinfo(&cable);
    assert!(found.contains("::ffff:192.0.2.9") && !found.contains("::ffff:192.0.2.1"), "{found}");

    // Who listened before is found there.
    let mut client = cable.run(Side::Client, "rping");
    let client = limited(client.args(["-c", "-C", "3", "-v", "-a", "192.0.2.9"]));
    client.check().unwrap_or_else(|error| panic!("{error}"));
    let server = server.wait();
    assert!(server.out.contains("server ping data: rdma-ping-2"), "{server}");

    // An address that goes is kept until another comes.
    cable.ip(Side::Server, &["address", "flush", "dev", "roce0"]);
    cable.ip(Side::Server, &["address", "add", "192.0.2.10/24", "dev", "roce0"]);
    hears(&mut watch, "IBV_EVENT_GID_CHANGE", 4);
    assert!(devinfo(&cable).contains("::ffff:192.0.2.10"));
    watch.kill();
    for ended in gateways.map(Gateway::end) {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
    }
}
