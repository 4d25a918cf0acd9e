//! UCX, over the transports that use plain verbs, and connected by rdma_cm.

use ferroce_tests::programs::{
    Ended, Fabric, Pair, Running, Table, each_row, free_port, have, host_address, limited,
};

/// What says that a device was found, of `ucx_info -d`.
const TRANSPORTS: [&str; 2] = ["rc_verbs", "ud_verbs"];

#[test]
fn ucx_info_shows_both_transports_on_the_device() {
    if !have("ucx_info", "ucx-utils") {
        return;
    }
    let fabric = Fabric::new();
    let said = limited(fabric.run("ucx_info").arg("-d"));
    let mut lines = said.out.lines().map(|line| line.trim_start_matches(['#', ' ']));
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(transport) = line.strip_prefix("Transport: ")
            && lines.next() == Some("Device: ferroce0:1")
        {
            found.push(transport);
        }
    }
    for transport in TRANSPORTS {
        assert!(found.contains(&transport), "{transport} is not in {found:?}\n{said}");
    }
}

/// Transports, and the options of the client.
type Row = (&'static str, &'static str);

const ROWS: [Row; 17] = [
    ("rc_v,ud_v,self", "-t tag_lat -s 8 -n 1000"),
    ("rc_v,ud_v,self", "-t tag_lat -s 65536 -n 200"),
    ("rc_v,ud_v,self", "-t tag_bw -s 8 -n 1000"),
    ("rc_v,ud_v,self", "-t tag_bw -s 4096 -n 1000"),
    ("rc_v,ud_v,self", "-t tag_bw -s 8388608 -n 10"),
    ("rc_v,ud_v,self", "-t tag_sync_lat -s 8 -n 500"),
    ("rc_v,ud_v,self", "-t ucp_put_lat -s 8 -n 1000"),
    ("rc_v,ud_v,self", "-t ucp_put_bw -s 65536 -n 200"),
    ("rc_v,ud_v,self", "-t ucp_get -s 65536 -n 200"),
    ("rc_v,ud_v,self", "-t ucp_fadd -s 8 -n 500"),
    ("rc_v,ud_v,self", "-t ucp_cswap -s 8 -n 500"),
    ("rc_v,ud_v,self", "-t stream_bw -s 4096 -n 500"),
    ("rc_v,ud_v,self", "-t ucp_am_lat -s 8 -n 1000"),
    ("ud_v,self", "-t tag_lat -s 8 -n 500"),
    ("ud_v,self", "-t tag_bw -s 65536 -n 50"),
    ("rc_verbs", "-t am_lat -x rc_verbs -d ferroce0:1 -s 8 -n 1000"),
    ("ud_verbs", "-t am_lat -x ud_verbs -d ferroce0:1 -s 8 -n 500"),
];

#[test]
fn ucx_perftest_runs_over_both() {
    if !have("ucx_perftest", "ucx-utils") {
        return;
    }
    let fabric = Fabric::new();
    each_row(&ROWS, |(transports, options)| {
        let port = free_port();
        let command = || {
            let mut command = fabric.run("ucx_perftest");
            command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "ferroce0:1");
            command.args(["-p", &port.to_string()]);
            command
        };
        let mut client = command();
        client.args(["-f", "-w", "10"]).args(options.split_whitespace()).arg("127.0.0.1");
        let pair = Pair::of(&mut command(), port, &mut client);
        let succeeded = |side: &Ended| side.status.is_some_and(|status| status.success());
        // It complains of rdma_cm, which it can do without.
        if !succeeded(&pair.server) || !succeeded(&pair.client) {
            return Err(format!("client: {}\nserver: {}", pair.client, pair.server));
        }
        // Iterations, three times, two bandwidths, two rates.
        let rows = Table::parse(&pair.client.out).rows;
        let last = rows.last().filter(|row| row.len() >= 7 && row[3] > 0.0);
        last.map(drop).ok_or_else(|| format!("no result\n{}", pair.client))
    });
}

#[test]
fn io_demo_connects_by_rdmacm() {
    if !have("io_demo", "ucx-utils") {
        return;
    }
    let fabric = Fabric::new();
    let host = host_address();
    let port = free_port();
    let command = || {
        let mut command = fabric.run("io_demo");
        command.env("UCX_TLS", "rc_v,ud_v,self").env("UCX_NET_DEVICES", "ferroce0:1");
        // By default it would also listen by TCP.
        command.env("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm");
        command.args(["-q", "-d", "64:65536", "-p", &port.to_string()]);
        command
    };
    let mut server = Running::start(&mut command());
    assert!(server.wait_for(|_| fabric.listens(port)), "{}", server.wait());
    let mut client = command();
    client.args(["-i", "500", "-o", "read,write"]).arg(format!("{host}:{port}"));
    let client = limited(&mut client);
    server.kill();
    let server = server.wait();
    let succeeded = client.status.is_some_and(|status| status.success());
    // Iterations that it counts at the end; it checks what it reads.
    assert!(succeeded && client.out.contains("500"), "client: {client}\nserver: {server}");
}
