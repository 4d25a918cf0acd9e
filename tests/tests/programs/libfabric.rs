//! libfabric's verbs provider: its endpoints of connections, which rdma_cm connects, those of
//! reliable datagrams that it makes of either kind of QP, and those of datagrams.

use ferroce_tests::programs::{Fabric, Pair, each_row, free_port, have, limited};

#[test]
fn fi_info_shows_every_kind_of_endpoint() {
    if !have("fi_info", "libfabric-bin") {
        return;
    }
    let fabric = Fabric::new();
    let said = limited(fabric.run("fi_info").args(["-p", "verbs"]));
    said.check().unwrap();
    for line in ["domain: ferroce0", "type: FI_EP_MSG", "type: FI_EP_DGRAM", "type: FI_EP_RDM"] {
        assert!(said.out.lines().any(|found| found.trim() == line), "{line}\n{said}");
    }
}

fn pingpong(fabric: &Fabric, provider: &str, options: &str) -> Pair {
    let port = free_port();
    let command = |flag: &str| {
        let mut command = fabric.run("fi_pingpong");
        command.args(["-p", provider, flag, &port.to_string()]).args(options.split_whitespace());
        command
    };
    Pair::of(&mut command("-B"), port, command("-P").arg("127.0.0.1"))
}

#[test]
fn fi_pingpong_runs_over_every_kind_of_endpoint() {
    if !have("fi_pingpong", "libfabric-bin") {
        return;
    }
    let fabric = Fabric::new();
    let rows = [
        ("verbs", "-e msg -I 100", 6),
        ("verbs", "-e msg -I 100 -c", 6),
        ("verbs", "-e msg -I 20 -c -S 1048576", 1),
        ("verbs;ofi_rxm", "-e rdm -I 100 -c", 6),
        ("verbs;ofi_rxm", "-e rdm -I 100 -c -m tagged", 6),
        ("verbs;ofi_rxm", "-e rdm -I 20 -c -S 1048576", 1),
        ("verbs;ofi_rxd", "-e rdm -I 100 -c", 6),
        ("verbs;ofi_rxd", "-e rdm -I 20 -c -S 1048576", 1),
        ("verbs", "-e rdm -I 100", 6),
        ("verbs", "-e dgram -I 100 -S 1024", 1),
    ];
    each_row(&rows, |(provider, options, sizes)| {
        let pair = pingpong(&fabric, provider, options);
        pair.check()?;
        // Size, messages sent and acknowledged, bytes, time, rates.
        let lines = pair.client.out.lines().skip(1);
        let rates: Vec<f64> = lines
            .filter_map(|line| line.split_whitespace().nth(5)?.parse().ok())
            .filter(|rate| *rate > 0.0)
            .collect();
        let is_whole = rates.len() == *sizes;
        if is_whole { Ok(()) } else { Err(format!("not {sizes} rates: {}", pair.client)) }
    });
}
