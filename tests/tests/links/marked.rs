//! A switch that marks packets, between two fabrics and in front of rxe, which knows nothing of
//! marks: whoever should slow down does, and nobody is harmed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use ferroce_tests::links::{Cable, Gateway, Kernel, Lab, Marked, Marker, Peers, Side, has_lost};
use ferroce_tests::programs::{Ended, Running, free_port, have, limited};
use serde_json::Value;

use crate::veth::up;

/// What the port marks: all above a rate that any machine exceeds.
const ABOVE: &str = "limit rate over 5000 kbytes/second burst 64 kbytes";

/// A sender that comes down to that within milliseconds, and goes up again by little.
const GENTLE: &str = "dcqcn,line_rate=1000000000,dce_tcp_rtt=1000,rpg_time_reset=2000,\
                      rpg_byte_reset=0,rpg_ai_rate=1";

/// Bytes that pass the port before it is looked at, and those that are compared.
const BEFORE: u64 = 2_000_000;
const LOOKED_AT: u64 = 16_000_000;

/// The sum of a counter over the processes of a fabric, as `ferroce stat` tells it.
fn counted(stat: &Ended, name: &str) -> u64 {
    let processes: Vec<Value> = serde_json::from_str(&stat.out).expect("JSON");
    processes.iter().filter_map(|process| process["counters"][name].as_u64()).sum()
}

/// What becomes of a long transfer from the client to the server.
struct Passed {
    /// What the port has seen, once it has begun.
    port: Marked,
    /// `ferroce stat` of server and client.
    stats: [Ended; 2],
}

/// Sends with this congestion control and traffic class, for as many bytes as are looked at.
fn pass(cable: &Cable, congestion: &str, tclass: &str) -> Passed {
    let switch = |program: &Path| cable.at_switch(program);
    let port = free_port();
    let start = |side: Side, peer: &[&str]| {
        let mut command = cable.ferroce(side);
        command.args(["run", "--congestion", congestion, "--", "ib_write_bw", "-F", "-x", "1"]);
        command.args(["-s", "65536", "-D", "60", "--run_infinitely", "--tclass", tclass]);
        Running::start(command.args(["-p", &port.to_string()]).args(peer))
    };
    let marker = Marker::start(&switch, Cable::port(Side::Client), ABOVE);
    let mut server = start(Side::Server, &[]);
    assert!(server.wait_for(|server| server.listens(port)), "{}", server.wait());
    let mut client = start(Side::Client, &[Side::Server.tcp()]);
    let mut reach = |taken: u64| {
        let reached = client.wait_for(|_| marker.counts().taken >= taken);
        let now = marker.counts();
        assert!(reached, "{now:?}\n{}{}", client.out(), client.err());
        now
    };
    let first = reach(BEFORE);
    let last = reach(first.taken + LOOKED_AT);
    let stats = Side::BOTH.map(|side| limited(cable.ferroce(side).args(["stat", "--json"])));
    for program in [&client, &server] {
        program.kill();
    }
    // The next transfer should not meet what is left of this one.
    let _ = [client, server].map(Running::wait);
    let port = Marked { taken: last.taken - first.taken, marked: last.marked - first.marked };
    Passed { port, stats }
}

#[test]
fn a_sender_comes_down_to_what_a_switch_lets_pass_unmarked() {
    if !have("nft", "nftables") || !have("ib_write_bw", "perftest") {
        return;
    }
    let Some(cable) = Cable::through_switch() else { return };
    let gateways = Side::BOTH.map(|side| up(&cable, side, "packet", Side::ipv4));
    // ECN-capable, as without congestion control nothing is by itself.
    let without = pass(&cable, "off", "2");
    let with = pass(&cable, GENTLE, "0");
    // What leaves before a neighbour is found, or after it was killed, may be lost.
    for ended in gateways.map(Gateway::end) {
        ended.check().unwrap_or_else(|error| panic!("{error}"));
    }
    let names = ["np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored"];
    let told = [&without, &with]
        .map(|passed| names.map(|name| [0, 1].map(|side| counted(&passed.stats[side], name))));
    eprintln!("without {:?} {:?}\nwith {:?} {:?}", without.port, told[0], with.port, told[1]);
    assert_eq!(told[0], [[0; 2]; 4]);
    let [[marked, 0], [sent, 0], [0, handled], [0, _]] = told[1] else {
        panic!("who sends is who reacts, and who receives who notifies: {told:?}");
    };
    assert!(0 < sent && sent <= marked, "{told:?}");
    assert!(handled > 0, "{told:?}");
    if without.port.marked < without.port.taken / 2 {
        eprintln!("skipped: this machine sends no faster than the port lets pass");
        return;
    }
    assert!(with.port.marked < with.port.taken / 4, "{:?} {:?}", with.port, without.port);
}

/// What this side counts of congestion.
const TELL: &str = "np_ecn_marked_roce_packets,np_cnp_sent,rp_cnp_handled,rp_cnp_ignored";

/// Ports of the switch between: from the guest, and from this side.
const FROM_RXE: &str = "tap-a";
const FROM_US: &str = "h0br";

/// Messages that fill packets, ECN-capable on both sides.
const MESSAGES: &str = "size=65536 count=64 depth=8 timeout=20 tclass=2";

/// A transfer: its requester and operation, and whose packets are marked.
const TRANSFERS: [(&str, &str); 5] = [
    ("requester=there op=write", FROM_RXE),
    ("requester=there op=send", FROM_RXE),
    ("requester=here op=read", FROM_RXE),
    ("requester=here op=write", FROM_US),
    ("requester=there op=read", FROM_US),
];

/// One packet of five, whatever the rate.
const SOME: &str = "numgen random mod 5 == 0";

/// CNPs to us from the middle of the path.
const FORGED: u64 = 32;

/// What this side tells, in the order of [`TELL`].
fn told(said: &str) -> [u64; 4] {
    let mut values = TELL.split(',').map(|name| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {said}"))
    });
    [(); 4].map(|()| values.next().expect("four"))
}

/// What rxe counts, of what went wrong.
fn harm(lab: &Lab) -> u64 {
    const NAMES: [&str; 4] =
        ["retry_exceeded_err", "retry_rnr_exceeded_err", "send_err", "link_downed"];
    let said = limited(lab.guest("rdma").args(["statistic", "show", "link", "rxe0/1"])).out;
    let words: Vec<&str> = said.split_whitespace().collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| *word == name).expect("rxe counts it");
        words[at + 1].parse::<u64>().expect("a number")
    };
    eprintln!("rxe: {said}");
    NAMES.iter().map(|name| value(name)).sum()
}

/// Packets in both directions are marked, and rxe's neighbour gets CNPs.
fn marks_in_front_of(kernel: Kernel) {
    if !have("nft", "nftables") {
        return;
    }
    let Some(lab) = Lab::new(kernel, 1500) else { return };
    let capture = lab.home().join("marked.pcapng");
    let path = capture.to_str().expect("a path of ours");
    let gateway = Gateway::start(&mut lab.ferroce(), "packet:h0", &["--addr", Lab::HOST]);
    let mut peers = Peers::start_with(&lab, &["--congestion", "dcqcn", "--pcap", path]);
    let switch = |program: &Path| lab.host(program);
    for (transfer, port) in TRANSFERS {
        let begin = Instant::now();
        let marker = Marker::start(&switch, port, SOME);
        let run = format!("transfer {transfer} {MESSAGES} tell={TELL}");
        let said = peers.run(&run).unwrap_or_else(|error| panic!("{run}: {error}"));
        let (marks, told) = (marker.counts(), told(&said));
        eprintln!("{transfer}: {marks:?} {told:?} {:?}", begin.elapsed());
        let [marked, sent, handled, ignored] = told;
        assert!(marks.marked > 0, "{run}: {marks:?}");
        assert_eq!([handled, ignored], [0; 2], "{run}: rxe sends no CNPs");
        assert!(sent <= marked, "{run}: {told:?}");
        match port {
            FROM_RXE => assert!(sent > 0, "{run}: {told:?}"),
            _ => assert_eq!([marked, sent], [0; 2], "{run}"),
        }
    }
    reacts_to_forged(&lab, &mut peers);
    peers.end().unwrap_or_else(|error| panic!("{error}"));
    let ended = gateway.end();
    assert!(!has_lost(&ended), "{ended}");
    assert_eq!(harm(&lab), 0);
    let log = limited(&mut lab.guest("dmesg")).out.to_lowercase();
    assert!(!log.contains("warning") && !log.contains("icrc"), "{log}");
    let decoded = limited(lab.ferroce().args(["decode", "--verify"]).arg(&capture));
    assert_eq!(decoded.out.lines().last(), Some("no violation"));
    cnps_are_apart(&limited(lab.ferroce().args(["decode", "--json"]).arg(&capture)).out);
}

/// CNPs for one QP of rxe's, by the clock that lets them go.
fn cnps_are_apart(decoded: &str) {
    // A double knows the time of day to a quarter of a microsecond.
    const APART: f64 = 49e-6;
    let mut last = BTreeMap::new();
    let mut count = 0;
    for line in decoded.lines() {
        let packet: Value = serde_json::from_str(line).expect("JSON");
        if packet["opcode"] != 0x81 || packet["dst"] != Lab::GUEST {
            continue;
        }
        count += 1;
        assert_eq!([&packet["dscp"], &packet["ecn"], &packet["payload_len"]], [48, 2, 16]);
        let time = packet["time"].as_f64().expect("seconds");
        let before = last.insert(packet["dest_qp"].to_string(), time);
        assert!(before.is_none_or(|before| time - before > APART), "{packet}, after {before:?}");
    }
    assert!(count > 0, "no CNP in the capture");
}

/// CNPs for our QP while it sends to rxe.
fn reacts_to_forged(lab: &Lab, peers: &mut Peers) {
    let script = lab.home().join("cnp.py");
    fs::write(&script, include_str!("../../src/links/cnp.py")).expect("a folder of ours");
    let mut forger = lab.host(Path::new("/usr/bin/python3"));
    forger.arg(script).args(["--in", FROM_RXE, "--out", FROM_US, "--count", &FORGED.to_string()]);
    let mut forger = Running::start(&mut forger);
    assert!(forger.wait_for(|forger| forger.out().contains("ready")), "{}", forger.wait());
    let run = format!("transfer requester=here op=write {MESSAGES} tell={TELL}");
    let said = peers.run(&run).unwrap_or_else(|error| panic!("{run}: {error}"));
    forger.wait().check().unwrap_or_else(|error| panic!("{error}"));
    let [_, _, handled, ignored] = told(&said);
    eprintln!("forged: {handled} handled, {ignored} ignored");
    assert!(handled > 0 && handled + ignored <= FORGED, "{handled} {ignored}");
}

#[test]
fn marks_in_front_of_rxe() {
    marks_in_front_of(Kernel::Stock);
}

#[test]
fn marks_in_front_of_newer_rxe() {
    marks_in_front_of(Kernel::Newer);
}
