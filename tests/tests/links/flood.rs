//! A hostile host on the network.

use std::env;
use std::path::Path;
use std::time::Duration;

use ferroce_tests::links::{Cable, Gateway, Side};
use ferroce_tests::programs::{Running, example, free_port};

use crate::veth::up;

/// How long each flood lasts, in seconds; `FERROCE_FLOOD_SECONDS` sets another time.
const SECONDS: u64 = 10;

/// Longer than anything here, but for the flood itself.
const LIMIT: Duration = Duration::from_secs(300);

/// The Ethernet address of a side.
fn mac(cable: &Cable, side: Side) -> String {
    let shown = cable.ip(side, &["-o", "link", "show", side.interface()]);
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).unwrap_or_else(|| panic!("no Ethernet address in {shown}")).to_owned()
}

/// Floods the server, over whose link a transfer runs meanwhile.
fn flooded(kind: &str) {
    let [flood, transfer] = ["flood", "transfer"].map(example);
    let Some(cable) = Cable::new() else { return };
    let seconds = env::var("FERROCE_FLOOD_SECONDS").map_or(SECONDS, |text| {
        text.parse().unwrap_or_else(|error| panic!("FERROCE_FLOOD_SECONDS {text}: {error}"))
    });
    let limit = LIMIT + Duration::from_secs(seconds);
    let gateways = Side::BOTH.map(|side| up(&cable, side, kind, Side::ipv4));
    let mut flood = cable.on(Side::Client, &flood);
    flood.args([Side::Client.interface(), &mac(&cable, Side::Server)]);
    flood.args([Side::Client.ipv4(), Side::Server.ipv4(), &seconds.to_string(), "1"]);
    flood.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("captures"));
    let flood = Running::start_within(&mut flood, limit);
    let port = free_port();
    let mut server = cable.on(Side::Server, &transfer);
    let mut server = Running::start_within(server.args(["listen", &port.to_string()]), limit);
    assert!(server.wait_for(|server| server.listens(port)), "{}", server.wait());
    let mut client = cable.on(Side::Client, &transfer);
    client.args([format!("{}:{port}", Side::Server.tcp()), seconds.to_string()]);
    let client = Running::start_within(&mut client, limit);
    let [client, server, flood] = [client, server, flood].map(Running::wait);
    let [here, there] = gateways.map(Gateway::end);
    let all = [&client, &server, &flood, &here, &there];
    eprintln!("{kind}: {}", all.map(ToString::to_string).concat());
    for ended in all {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(flood.out.lines().all(|line| !line.starts_with("0 ")), "not every kind was sent");
    assert!(server.out.contains("dropped: "), "nothing has reached the transfer");
}

#[test]
fn a_transfer_by_packet_socket_survives_a_flood() {
    flooded("packet");
}

#[test]
fn a_transfer_by_udp_survives_a_flood() {
    flooded("udp");
}
