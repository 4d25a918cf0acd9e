//! libfabric's verbs provider. Reliable datagrams (`rdm`, which it makes of UD) run; its other
//! kinds of endpoints want an event channel of rdma_cm first.

use ferroce_tests::programs::{Ended, Fabric, Pair, each_row, free_port, have, limited};

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

fn pingpong(fabric: &Fabric, options: &str) -> Pair {
    let port = free_port();
    let command = |flag: &str| {
        let mut command = fabric.run("fi_pingpong");
        command.args(["-p", "verbs", flag, &port.to_string()]).args(options.split_whitespace());
        command
    };
    Pair::of(&mut command("-B"), port, command("-P").arg("127.0.0.1"))
}

#[test]
fn fi_pingpong_runs_over_reliable_datagrams() {
    if !have("fi_pingpong", "libfabric-bin") {
        return;
    }
    let fabric = Fabric::new();
    let rows = [
        ("-e rdm -I 100", 6),
        ("-e rdm -I 100 -c", 6),
        ("-e rdm -I 100 -c -m tagged", 6),
        ("-e rdm -I 20 -c -S 1048576", 1),
    ];
    each_row(&rows, |(options, sizes)| {
        let pair = pingpong(&fabric, options);
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

#[test]
fn fi_pingpong_over_others_runs_or_fails_in_order() {
    if !have("fi_pingpong", "libfabric-bin") {
        return;
    }
    let fabric = Fabric::new();
    each_row(&["-e msg -I 10", "-e dgram -I 10"], |options| {
        let pair = pingpong(&fabric, options);
        // Neither hangs nor crashes; a signal would leave no code.
        let ended = |side: &Ended| side.status.is_some_and(|status| status.code().is_some());
        match ended(&pair.server) && ended(&pair.client) {
            true => Ok(()),
            false => Err(format!("server: {}\nclient: {}", pair.server, pair.client)),
        }
    });
}
