//! Programs that others measure networks with, between the same hosts.

use anyhow::{Context, Result, ensure};

use crate::cable::{Cable, Place};
use crate::shared::process::{self, free_port, is_installed, value_of};

const MIB: f64 = (1 << 20) as f64;

/// TCP, one way, in bytes a second: iperf3.
pub fn tcp(cable: &Cable) -> Result<f64> {
    ensure!(is_installed("iperf3"), "iperf3 is not installed");
    let (port, address) = (free_port()?, cable.server().0.to_string());
    let mut server = cable.command(Place::Server, "iperf3");
    server.args(["-s", "-1", "-p", &port.to_string()]);
    let mut client = cable.command(Place::Client, "iperf3");
    client.args(["-c", &address, "-p", &port.to_string(), "-t", "1", "-J"]);
    let sockets = cable.sockets();
    let printed = process::pair("iperf3", &mut server, &mut client, (&sockets, port))?;
    let said: serde_json::Value = serde_json::from_str(&printed).context("iperf3's JSON")?;
    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.context("what iperf3 has received")? / 8.0)
}

/// UCX over TCP, 1 MiB, one way, in bytes a second.
pub fn ucx_bandwidth(cable: &Cable) -> Result<f64> {
    let printed = ucx(cable, &["-t", "tag_bw", "-s", "1048576", "-n", "2000", "-w", "200"])?;
    Ok(value_of(&printed, "overall_bw").context("UCX's bandwidth")? * MIB)
}

/// UCX over TCP, 8 B, half a round trip in ns, the median.
pub fn ucx_latency(cable: &Cable) -> Result<f64> {
    let printed = ucx(cable, &["-t", "tag_lat", "-s", "8", "-n", "20000", "-w", "2000"])?;
    Ok(value_of(&printed, "50.0_percentile_lat").context("UCX's latency")? * 1000.0)
}

fn ucx(cable: &Cable, client_arguments: &[&str]) -> Result<String> {
    ensure!(is_installed("ucx_perftest"), "ucx_perftest is not installed");
    let port = free_port()?.to_string();
    let (address, interface) = cable.server();
    let command = |place| {
        let mut command = cable.command(place, "ucx_perftest");
        command.envs([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", interface)]);
        command.args(["-p", &port]);
        command
    };
    let mut client = command(Place::Client);
    client.args(client_arguments).args(["-f", "-v", &address.to_string()]);
    let sockets = (&*cable.sockets(), port.parse()?);
    process::pair("ucx_perftest", &mut command(Place::Server), &mut client, sockets)
}
