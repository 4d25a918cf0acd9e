//! Two hosts, as two network namespaces of this machine, with two cables between them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::programs::{Fabric, Installed, Running, is_listed, is_root, limited};

/// Longer than any test.
const LIFE: Duration = Duration::from_secs(600);

/// Which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that listens.
    Server,
    /// The one that connects.
    Client,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Server, Side::Client];

    /// Its interface on the cable under test.
    pub fn interface(self) -> &'static str {
        match self {
            Side::Server => "roce0",
            Side::Client => "roce1",
        }
    }

    /// The interface's IPv4 address.
    pub fn ipv4(self) -> &'static str {
        match self {
            Side::Server => "192.0.2.1",
            Side::Client => "192.0.2.2",
        }
    }

    /// The interface's IPv6 address.
    pub fn ipv6(self) -> &'static str {
        match self {
            Side::Server => "fd00:77::1",
            Side::Client => "fd00:77::2",
        }
    }

    /// Where it is found by TCP.
    pub fn tcp(self) -> &'static str {
        match self {
            Side::Server => "198.51.100.1",
            Side::Client => "198.51.100.2",
        }
    }
}

/// The hosts and their cables; all of it vanishes at the end.
#[derive(Debug)]
pub struct Cable {
    /// Two processes, in whose network namespaces the hosts are.
    holders: [Running; 2],
    /// Another, where a switch is in the middle of the cable under test.
    switch: Option<Running>,
    fabric: Fabric,
}

impl Cable {
    /// Lays the cables; says why not on a machine that does not allow it.
    ///
    /// # Panics
    /// If the namespaces are there, but not what belongs into them.
    pub fn new() -> Option<Cable> {
        Cable::with(&[])
    }

    /// As [`Cable::new`], with these properties at both ends of the cable under test, in the words
    /// of `ip link add`.
    ///
    /// # Panics
    /// As [`Cable::new`].
    pub fn with(properties: &[&str]) -> Option<Cable> {
        let cable = Cable::hosts()?;
        let [server, client] = &cable.holders;
        cable.join((server, "roce0"), (client, "roce1"), properties);
        cable.plug_in();
        Some(cable)
    }

    /// As [`Cable::new`], with a switch in the middle of the cable under test.
    ///
    /// # Panics
    /// As [`Cable::new`].
    pub fn through_switch() -> Option<Cable> {
        let mut cable = Cable::hosts()?;
        let switch = holder_beside(&cable.holders[0]);
        for side in Side::BOTH {
            let host = &cable.holders[side as usize];
            cable.join((host, side.interface()), (&switch, Cable::port(side)), &[]);
        }
        cable.ip_at(&switch, &["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"]);
        for port in Side::BOTH.map(Cable::port) {
            cable.ip_at(&switch, &["link", "set", port, "master", "br0", "up"]);
        }
        cable.ip_at(&switch, &["link", "set", "br0", "up"]);
        cable.switch = Some(switch);
        cable.plug_in();
        Some(cable)
    }

    /// The switch's interface to a host.
    pub fn port(side: Side) -> &'static str {
        match side {
            Side::Server => "port0",
            Side::Client => "port1",
        }
    }

    /// The hosts, joined for TCP alone.
    fn hosts() -> Option<Cable> {
        let mut unshare = Command::new("unshare");
        unshare.args(if is_root() { &["-n"][..] } else { &["-rn"] });
        let trial = limited(Command::new("unshare").args(unshare.get_args()).arg("true"));
        if trial.check().is_err() {
            eprintln!("skipped: no network namespaces here\n{trial}");
            return None;
        }
        // The hosts' life should not pass with building what runs there.
        Installed::get();
        let fabric = Fabric::new();
        let mut first = Running::start_within(unshare.args(["sleep", "600"]), LIFE);
        is_apart(&mut first);
        let second = holder_beside(&first);
        let cable = Cable { holders: [first, second], switch: None, fabric };
        let [server, client] = &cable.holders;
        cable.join((server, "tcp0"), (client, "tcp1"), &[]);
        for (side, name) in [(Side::Server, "tcp0"), (Side::Client, "tcp1")] {
            cable.set_up(side, name, &[side.tcp()]);
            cable.ip(side, &["link", "set", "lo", "up"]);
        }
        Some(cable)
    }

    /// Connects two namespaces by a pair of interfaces of these names and properties.
    fn join(&self, from: (&Running, &str), to: (&Running, &str), properties: &[&str]) {
        let other = to.0.id().to_string();
        let first = [&["link", "add", from.1], properties, &["type", "veth"]].concat();
        let second = [&["peer", "name", to.1], properties, &["netns", &other]].concat();
        self.ip_at(from.0, &[first, second].concat());
    }

    /// Sets up the hosts' ends of the cable under test.
    fn plug_in(&self) {
        for side in Side::BOTH {
            self.set_up(side, side.interface(), &[side.ipv4(), side.ipv6()]);
        }
    }

    fn set_up(&self, side: Side, name: &str, addresses: &[&str]) {
        for address in addresses {
            let (len, nodad) = match address.contains(':') {
                true => ("64", &["nodad"][..]),
                false => ("24", &[][..]),
            };
            let address = format!("{address}/{len}");
            self.ip(side, &[&["address", "replace", &address, "dev", name], nodad].concat());
        }
        self.ip(side, &["link", "set", name, "up"]);
    }

    /// Runs `ip` on a host.
    ///
    /// # Panics
    /// If that fails.
    pub fn ip(&self, side: Side, arguments: &[&str]) -> String {
        self.ip_at(&self.holders[side as usize], arguments)
    }

    fn ip_at(&self, holder: &Running, arguments: &[&str]) -> String {
        let ended = limited(self.at(holder, Path::new("ip")).args(arguments));
        ended.check().unwrap_or_else(|error| panic!("{error}"));
        ended.out
    }

    /// A program on a host, with the settings of that host's fabric.
    pub fn on(&self, side: Side, program: &Path) -> Command {
        let mut command = self.at(&self.holders[side as usize], program);
        command.env("FERROCE_FABRIC", self.fabric_of(side));
        command
    }

    /// A program on the switch.
    ///
    /// # Panics
    /// If there is none.
    pub fn at_switch(&self, program: &Path) -> Command {
        self.at(self.switch.as_ref().expect("a cable through a switch"), program)
    }

    /// A program in the namespaces of a process.
    fn at(&self, holder: &Running, program: &Path) -> Command {
        let entered = enter(holder);
        let mut command = self.fabric.command(Path::new(entered.get_program()));
        command.args(entered.get_args()).arg(program);
        command
    }

    /// `ferroce run` of a program on a host.
    pub fn run(&self, side: Side, program: &str) -> Command {
        let mut command = self.ferroce(side);
        command.args(["run", "--", program]);
        command
    }

    /// Whether somebody of a host's fabric takes connections at `port`, by rdma_cm.
    pub fn listens(&self, side: Side, port: u16) -> bool {
        is_listed(&limited(self.ferroce(side).arg("ports")).out, port)
    }

    /// `ferroce` on a host.
    pub fn ferroce(&self, side: Side) -> Command {
        self.on(side, &Installed::get().ferroce)
    }

    /// The folder of a host's fabric.
    fn fabric_of(&self, side: Side) -> PathBuf {
        self.fabric.home().join(side.interface())
    }

    /// A folder for files.
    pub fn home(&self) -> PathBuf {
        self.fabric.home()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for holder in self.holders.iter().chain(&self.switch) {
            holder.kill();
        }
    }
}

/// A process in a network namespace of its own, otherwise where `holder` is.
fn holder_beside(holder: &Running) -> Running {
    let mut command = enter(holder);
    command.args(["unshare", "-n", "sleep", "600"]);
    let mut beside = Running::start_within(&mut command, LIFE);
    is_apart(&mut beside);
    beside
}

/// A command that continues in the namespaces of a process.
fn enter(holder: &Running) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &holder.id().to_string(), "-n"]);
    if !is_root() {
        command.args(["-U", "--preserve-credentials"]);
    }
    command.arg("--");
    command
}

/// Waits until a process has become `sleep` in a network namespace other than this one's.
fn is_apart(holder: &mut Running) {
    let apart = holder.wait_for(|holder| {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", holder.id()));
        name.is_ok_and(|name| name.trim() == "sleep")
    });
    assert!(apart, "no namespace");
}
