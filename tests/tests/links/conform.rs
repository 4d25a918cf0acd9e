//! Scenarios across a cable: `ferroce conform` at one end, our own library at the other, with its agent
//! or with a program that accepts connections.

use std::process::Command;
use std::time::Duration;

use ferroce_tests::links::{Cable, Side};
use ferroce_tests::programs::{Installed, Running, have, is_root};

/// Longer than all scenarios take.
const LIFE: Duration = Duration::from_secs(900);

/// A scenario's frames are longer than those of a cable of 1500 bytes.
const MTU: &[&str] = &["mtu", "4500"];

/// Where programs accept connections.
const PORT: u16 = 7174;

/// A cable; says why not where there is none.
fn cable() -> Option<Cable> {
    if !is_root() {
        eprintln!("skipped: the other end's frames need a packet socket, and that root");
        return None;
    }
    Cable::with(MTU)
}

/// `ferroce run` at the server's end, with a device of this address on the cable.
fn run(cable: &Cable, address: &str) -> Command {
    let mut command = cable.ferroce(Side::Server);
    let link = format!("packet:{}", Side::Server.interface());
    command.args(["run", "--link", &link, "--addr", address, "--"]);
    command
}

/// Starts an agent over our library at the server's end, whose device has this address.
fn agent(cable: &Cable, address: &str) -> Running {
    let listen = format!("{}:4780", Side::Server.tcp());
    let mut command = run(cable, address);
    command.arg(&Installed::get().ferroce).args(["conform-agent", "--listen", &listen]);
    let mut agent = Running::start_within(&mut command, LIFE);
    let is_ready = agent.wait_for(|agent| agent.out().contains("listens at"));
    assert!(is_ready, "{}", agent.err());
    agent
}

/// Judges the target of this address by scenarios, and says what came of it; all must be fulfilled.
fn judge(cable: &Cable, target: &str, arguments: &[&str]) -> String {
    let mut command = cable.ferroce(Side::Client);
    let link = format!("packet:{}", Side::Client.interface());
    command.args(["conform", "--link", &link, "--target", target]).args(arguments);
    let ended = Running::start_within(&mut command, LIFE).wait();
    assert!(ended.check().is_ok(), "{target}: {ended}");
    ended.out
}

fn judge_with_agent(cable: &Cable, target: &str, arguments: &[&str]) {
    let agent = agent(cable, target);
    let listens = format!("{}:4780", Side::Server.tcp());
    judge(cable, target, &[&["--agent", &listens], arguments].concat());
    agent.kill();
    let _ = agent.wait();
}

/// Only what takes no measure of time is judged here: a test does not fail because a machine is
/// slow.
#[test]
fn our_library_fulfils_scenarios_across_a_link() {
    let Some(cable) = cable() else { return };
    let (ipv4, ipv6) = (Side::Server.ipv4(), Side::Server.ipv6());
    judge_with_agent(&cable, ipv4, &["--tag", "segmentation", "--tag", "keys", "--tag", "icrc"]);
    // What is another address's shows in any frame.
    judge_with_agent(&cable, ipv4, &["--addr", "192.0.2.9", "--tag", "icrc"]);
    judge_with_agent(&cable, ipv6, &["--tag", "icrc"]);
}

#[test]
fn our_library_fulfils_scenarios_of_connections_across_a_link() {
    let Some(cable) = cable() else { return };
    judge_with_agent(&cable, Side::Server.ipv4(), &["cm"]);
}

#[test]
fn a_program_that_accepts_connections_needs_no_agent() {
    let Some(cable) = cable() else { return };
    if !have("rping", "rdmacm-utils") {
        return;
    }
    for target in [Side::Server.ipv4(), Side::Server.ipv6()] {
        let port = PORT.to_string();
        let mut command = run(&cable, target);
        command.args(["rping", "-s", "-P", "-a", target, "-p", &port]);
        let mut program = Running::start_within(&mut command, LIFE);
        program.wait_for(|_| cable.listens(Side::Server, PORT));
        let out = judge(&cable, target, &["--cm", &port, "--verbose", "connected"]);
        assert!(out.contains("connected/key-of-nobody: passed"), "{out}");
        assert!(!out.contains(": skipped"), "{out}");
        program.kill();
        let _ = program.wait();
    }
}
