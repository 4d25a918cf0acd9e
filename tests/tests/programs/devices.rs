//! The programs that show devices.

use ferroce_tests::programs::{Fabric, Running, have, limited};

#[test]
fn ibv_devices_lists_the_device() {
    if !have("ibv_devices", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    for mut command in [fabric.run("ibv_devices"), fabric.plain("ibv_devices")] {
        let said = limited(&mut command);
        said.check().unwrap();
        let device: Vec<&str> =
            said.out.lines().last().unwrap_or_default().split_whitespace().collect();
        let ["ferroce0", guid] = device[..] else { panic!("{said}") };
        let guid = u64::from_str_radix(guid, 16).unwrap();
        assert_ne!(guid, 0);
    }
}

#[test]
fn every_address_is_a_device() {
    if !have("ibv_devices", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let flags = ["--addr", "10.7.0.1", "--addr", "10.7.0.2", "--device", "lab"];
    let said = limited(&mut fabric.run_with(&flags, "ibv_devices"));
    said.check().unwrap();
    let names: Vec<&str> =
        said.out.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["lab0", "lab1"], "{said}");
}

#[test]
fn ibv_devinfo_shows_what_clients_decide_by() {
    if !have("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let flags = ["--addr", "192.0.2.7"];
    let said = limited(fabric.run_with(&flags, "ibv_devinfo").arg("-v"));
    said.check().unwrap();
    let fields: Vec<(&str, &str)> = said
        .out
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let expected = [
        ("hca_id", "ferroce0"),
        ("transport", "InfiniBand (0)"),
        ("vendor_id", "0xffffff"),
        ("phys_port_cnt", "1"),
        ("atomic_cap", "ATOMIC_GLOB (2)"),
        ("state", "PORT_ACTIVE (4)"),
        ("max_mtu", "4096 (5)"),
        ("active_mtu", "4096 (5)"),
        ("port_lid", "0"),
        ("link_layer", "Ethernet"),
        ("max_msg_sz", "0x80000000"),
        ("pkey_tbl_len", "1"),
        ("phys_state", "LINK_UP (5)"),
        ("GID[  1]", "::ffff:192.0.2.7, RoCE v2"),
    ];
    for field in expected {
        assert!(fields.contains(&field), "{field:?} is not in\n{said}");
    }
    let above_0 = ["max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd"];
    let above_0 = above_0.iter().chain(&["max_srq", "max_ah", "max_mw", "num_comp_vectors"]);
    for name in above_0 {
        let value = fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
        let value = value.unwrap_or_else(|| panic!("no {name} in\n{said}"));
        assert!(value.parse::<u64>().is_ok_and(|value| value > 0), "{name}: {value}");
    }
}

#[test]
fn ibv_asyncwatch_waits_for_events() {
    if !have("ibv_asyncwatch", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    // It writes into a pipe when its buffer is full; to a terminal, at once.
    let mut command = fabric.run("stdbuf");
    let mut watch = Running::start(command.args(["-oL", "ibv_asyncwatch"]));
    let ready = watch.wait_for(|watch| watch.out().contains("async event FD"));
    watch.kill();
    let said = watch.wait();
    assert!(ready && said.out.starts_with("ferroce0"), "{said}");
}
