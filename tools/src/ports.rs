//! `ferroce ports`: where the processes of a fabric listen by rdma_cm, as `ss -l` shows sockets. It
//! asks no process: where they listen lies in the fabric.

use std::io::{self, IsTerminal};
use std::net::IpAddr;

use anyhow::{Context, Result};
use comfy_table::Table;
use ferroce::config::{Flags, Key, Settings};
use ferroce::fabric::{self, Listener};
use ferroce_stack::mad::PortSpace;

use crate::table::{empty_table, write_table};

/// Shown below `ferroce ports --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce ports
  ferroce ports --fabric lab

A line for each port: the port space of rdma_cm, the address (* is every one), the
process.

Exit status: 0, also if there is none, or 2 if a setting is wrong, the fabric is
another user's, or the output cannot be written.";

/// Show where processes listen for connections by rdma_cm.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Fabric to look at: a name, or a folder (with a '/')
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
}

/// Runs `ferroce ports`.
///
/// # Errors
///
/// If a setting is wrong, the fabric is none of this user's, or the output cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let values = arguments.fabric.iter().map(|name| (Key::Fabric, name.clone())).collect();
    let dir = Settings::load_with(&Flags { config: None, values })?.fabric;
    let mut table = empty_table(["space", "address", "pid"], io::stdout().is_terminal());
    for listener in fabric::observe(&dir)?.listening() {
        add_row(&mut table, &listener);
    }
    write_table(&table, &mut io::stdout().lock()).context("cannot write")
}

fn add_row(table: &mut Table, listener: &Listener) {
    let service = listener.service;
    let (space, port) = match (service.space(), service.port()) {
        (Some(space), Some(port)) => (space_text(space), port.to_string()),
        _ => ("-", format!("{:#x}", service.0)),
    };
    let address = match listener.address {
        None => format!("*:{port}"),
        Some(IpAddr::V4(address)) => format!("{address}:{port}"),
        Some(IpAddr::V6(address)) => format!("[{address}]:{port}"),
    };
    table.add_row([space, &address, &listener.process.pid.to_string()]);
}

fn space_text(space: PortSpace) -> &'static str {
    match space {
        PortSpace::Ipoib => "ipoib",
        PortSpace::Tcp => "tcp",
        PortSpace::Udp => "udp",
        PortSpace::Ib => "ib",
    }
}

#[cfg(test)]
mod tests {
    use ferroce::fabric::Process;
    use ferroce_stack::mad::ServiceId;

    use super::*;

    fn line(service: u64, address: Option<&str>) -> String {
        let process = Process { slot: 0, generation: 1, pid: 42, gids: Vec::new() };
        let address = address.map(|address| address.parse().unwrap());
        let mut table = empty_table(["space", "address", "pid"], false);
        add_row(&mut table, &Listener { process, service: ServiceId(service), address });
        let line = table.lines().nth(1).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_listener_is_shown_with_its_address() {
        assert_eq!(line(0x0106_1d2f, None), "tcp *:7471 42");
        assert_eq!(line(0x0111_1d2f, Some("10.0.0.1")), "udp 10.0.0.1:7471 42");
        assert_eq!(line(0x013f_0001, Some("::")), "ib [::]:1 42");
        assert_eq!(line(0x0002_0001, Some("0.0.0.0")), "ipoib 0.0.0.0:1 42");
        assert_eq!(line(0x1000_0000_0000_0001, Some("::1")), "- [::1]:0x1000000000000001 42");
    }
}
