//! Scenarios across a cable: `ferroce conform` at one end, our own library with its agent at the
//! other.

use std::time::Duration;

use ferroce_tests::links::{Cable, Side};
use ferroce_tests::programs::{Installed, Running, is_root};

/// Longer than all scenarios take.
const LIFE: Duration = Duration::from_secs(900);

/// A scenario's frames are longer than those of a cable of 1500 bytes.
const MTU: &[&str] = &["mtu", "4500"];

/// Starts an agent over our library at the server's end, whose device has this address.
fn agent(cable: &Cable, address: &str) -> Running {
    let listen = format!("{}:4780", Side::Server.tcp());
    let ferroce = Installed::get().ferroce.to_string_lossy().into_owned();
    let mut command = cable.ferroce(Side::Server);
    let link = format!("packet:{}", Side::Server.interface());
    command.args(["run", "--link", &link, "--addr", address, "--", &ferroce]);
    command.args(["conform-agent", "--listen", &listen]);
    let mut agent = Running::start_within(&mut command, LIFE);
    let is_ready = agent.wait_for(|agent| agent.out().contains("listens at"));
    assert!(is_ready, "{}", agent.err());
    agent
}

/// Only what takes no measure of time is judged here: a test does not fail because a machine is
/// slow.
#[test]
fn our_library_fulfils_scenarios_across_a_link() {
    if !is_root() {
        return eprintln!("skipped: the other end's frames need a packet socket, and that root");
    }
    let Some(cable) = Cable::with(MTU) else { return };
    for (target, own) in [
        (Side::Server.ipv4(), None),
        (Side::Server.ipv4(), Some("192.0.2.9")),
        (Side::Server.ipv6(), None),
    ] {
        let agent = agent(&cable, target);
        let mut command = cable.ferroce(Side::Client);
        let link = format!("packet:{}", Side::Client.interface());
        let port = format!("{}:4780", Side::Server.tcp());
        command.args(["conform", "--link", &link, "--target", target, "--agent", &port]);
        if let Some(own) = own {
            command.args(["--addr", own]);
        }
        command.args(["--tag", "segmentation", "--tag", "keys", "--tag", "icrc"]);
        let ended = Running::start_within(&mut command, LIFE).wait();
        assert!(ended.check().is_ok(), "{target}: {ended}");
        agent.kill();
        let _ = agent.wait();
    }
}
