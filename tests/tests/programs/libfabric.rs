//! libfabric's verbs provider: its endpoints of connections, which rdma_cm connects, those of
//! reliable datagrams that it makes of either kind of QP, and those of datagrams.

use ferroce_tests::programs::{Fabric, Pair, Running, each_row, free_port, have, limited};

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

/// A server and its client, which prints its results as they come.
fn pingpong(fabric: &Fabric, provider: &str, options: &str) -> (Running, Running) {
    let port = free_port();
    let command = |flag: &str| {
        let mut command = fabric.run("stdbuf");
        command.args(["-oL", "fi_pingpong", "-p", provider, flag, &port.to_string()]);
        command.args(options.split_whitespace());
        command
    };
    let mut server = Running::start(&mut command("-B"));
    // A server that ended instead shows itself by what the client says.
    server.wait_for(|server| server.listens(port));
    let client = Running::start(command("-P").arg("127.0.0.1"));
    (server, client)
}

/// How many sizes have a rate: of size, messages sent and acknowledged, bytes, time and rates.
fn measured(out: &str) -> usize {
    let lines = out.lines().skip(1);
    let rates = lines.filter_map(|line| line.split_whitespace().nth(5)?.parse::<f64>().ok());
    rates.filter(|rate| *rate > 0.0).count()
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
        ("verbs", "-e dgram -I 100 -S 1024", 1),
    ];
    each_row(&rows, |(provider, options, sizes)| {
        let (mut server, mut client) = pingpong(&fabric, provider, options);
        client.wait_for(|client| measured(&client.out()) == *sizes);
        // The side that ends last over RxM may lose its last completions: it destroys the queue
        // pair when the other has gone, and looks at them after that.
        let is_checked = *provider != "verbs;ofi_rxm";
        if !is_checked {
            server.kill();
            client.kill();
        }
        let client = client.wait();
        if client.check().is_err() && server.is_alive() {
            server.wait_shortly();
        }
        let pair = Pair { server: server.wait(), client };
        if is_checked {
            pair.check()?;
        }
        match measured(&pair.client.out) == *sizes {
            true => Ok(()),
            false => Err(format!("not {sizes} rates: {}{}", pair.client, pair.server)),
        }
    });
}
