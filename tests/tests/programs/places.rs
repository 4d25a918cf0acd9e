//! Where two programs may be: on one processor, or in two network namespaces.

use std::path::Path;
use std::process::Command;

use ferroce_tests::programs::{
    Fabric, Installed, Pair, each_row, free_port, have, is_root, limited,
};

#[test]
fn one_processor_for_both() {
    if !have("taskset", "util-linux") || !have("ib_write_bw", "perftest") {
        return;
    }
    let fabric = Fabric::new();
    let rows = [
        "ibv_rc_pingpong -g 1 -n 200",
        "ibv_rc_pingpong -g 1 -n 200 -e",
        "ib_write_lat -F -n 200",
        "ib_send_lat -F -n 200",
        "ib_write_bw -F -n 200",
        "ib_send_bw -F -n 200 -b",
        "ib_read_bw -F -n 200",
    ];
    each_row(&rows, |row| {
        let port = free_port().to_string();
        let command = || {
            let mut command = fabric.run("taskset");
            command.args(["-c", "0"]).args(row.split_whitespace()).args(["-p", &port]);
            command
        };
        let number = port.parse().expect("a port");
        Pair::of(&mut command(), number, command().arg("127.0.0.1")).check()
    });
}

/// Two network namespaces, joined by a pair of virtual interfaces; removed at the end.
struct Networks {
    names: [String; 2],
}

impl Networks {
    fn new() -> Result<Networks, String> {
        let id = std::process::id();
        let names = ["a", "b"].map(|side| format!("ferroce-{id}-{side}"));
        let [left, right] = names.clone();
        // Dropped, and with it what has been made, if a command fails.
        let networks = Networks { names };
        let commands = [
            format!("netns add {left}"),
            format!("netns add {right}"),
            format!("-n {left} link add one type veth peer name two netns {right}"),
            format!("-n {left} addr add 10.9.0.1/24 dev one"),
            format!("-n {right} addr add 10.9.0.2/24 dev two"),
            format!("-n {left} link set one up"),
            format!("-n {right} link set two up"),
        ];
        commands.iter().try_for_each(|command| ip(command))?;
        Ok(networks)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let said = limited(Command::new("ip").args(arguments.split_whitespace()));
    said.check()
}

#[test]
fn two_network_namespaces_share_a_fabric() {
    if !have("ip", "iproute2") || !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    if !is_root() {
        println!("skipped: only root may make network namespaces");
        return;
    }
    let networks = match Networks::new() {
        Ok(networks) => networks,
        Err(error) => return println!("skipped, as this machine allows none: {error}"),
    };
    let fabric = Fabric::new();
    let port = free_port();
    let command = |side: usize| {
        // Only root may enter one; the program has no rights again.
        let mut command = fabric.command(Path::new("ip"));
        command.args(["netns", "exec", &networks.names[side], "setpriv"]);
        let (uid, gid) = ferroce_tests::programs::user();
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg("--clear-groups").arg(&Installed::get().ferroce);
        command.args(["run", "--", "ibv_rc_pingpong", "-g", "1", "-c", "-p", &port.to_string()]);
        command
    };
    let pair = Pair::of(&mut command(0), port, command(1).arg("10.9.0.1"));
    pair.check().unwrap();
    // Each has the address of its network's interface.
    for (own, peer, side) in
        [("10.9.0.1", "10.9.0.2", &pair.server), ("10.9.0.2", "10.9.0.1", &pair.client)]
    {
        let line = |start: &str| {
            side.out.lines().find(|line| line.trim().starts_with(start)).unwrap_or_default()
        };
        assert!(line("local address").ends_with(&format!("::ffff:{own}")), "{side}");
        assert!(line("remote address").ends_with(&format!("::ffff:{peer}")), "{side}");
    }
}
