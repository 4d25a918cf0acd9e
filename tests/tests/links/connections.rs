//! What connects by rdma_cm with the Linux kernel itself in a virtual machine: its storage targets,
//! and the time to connect.

use std::process::Command;

use ferroce_tests::links::{Kernel, Lab, Setup};
use ferroce_tests::programs::{Fabric, Running, compile, free_port, have, limited};

/// The addresses of this machine, by which the family of a connection is chosen.
const HOSTS: [&str; 2] = [Lab::HOST, Lab::HOST_IPV6];

/// Who logs in.
const INITIATOR: &str = "iqn.2001-04.com.example:initiator";

/// The storage in the guest, and its name.
const TARGET: &str = "iqn.2001-04.com.example:storage";
const SUBSYSTEM: &str = "nqn.2014-08.org.example:disk";

/// Ports of iSCSI and NVMe over Fabrics.
const ISER: u16 = 3260;
const NVME: u16 = 4420;

/// Makes the kernel's iSCSI target of a disk in memory, 32 MiB in pages of 4 KiB. libiscsi
/// announces immediate data over iSER that it then does not send, so there shall be none.
const ISER_TARGET: &str = "
    modprobe ib_isert
    cd /sys/kernel/config/target
    mkdir -p core/rd_mcp_0/disk iscsi
    echo rd_pages=8192 > core/rd_mcp_0/disk/control
    echo 1 > core/rd_mcp_0/disk/enable
    portals=$PWD/iscsi/$TARGET/tpgt_1
    mkdir -p $portals/lun/lun_1 $portals/np
    ln -s $PWD/core/rd_mcp_0/disk $portals/lun/lun_1/disk
    for address in $ADDRESS [$ADDRESS_IPV6]; do
        mkdir $portals/np/$address:$PORT
        echo 1 > $portals/np/$address:$PORT/iser
    done
    cd $portals
    echo No > param/ImmediateData
    echo 0 > attrib/authentication
    echo 1 > attrib/generate_node_acls
    echo 1 > attrib/cache_dynamic_acls
    echo 0 > attrib/demo_mode_write_protect
    echo 1 > enable";

/// Makes the kernel's NVMe over Fabrics target of a disk in memory, 32 MiB.
const NVME_TARGET: &str = "
    modprobe brd rd_nr=1 rd_size=32768
    modprobe nvmet-rdma
    cd /sys/kernel/config/nvmet
    mkdir -p subsystems/$TARGET/namespaces/1
    echo 1 > subsystems/$TARGET/attr_allow_any_host
    echo /dev/ram0 > subsystems/$TARGET/namespaces/1/device_path
    echo 1 > subsystems/$TARGET/namespaces/1/enable
    for port in ipv4=$ADDRESS ipv6=$ADDRESS_IPV6; do
        family=${port%%=*}
        mkdir ports/${family#ipv}
        echo rdma > ports/${family#ipv}/addr_trtype
        echo $family > ports/${family#ipv}/addr_adrfam
        echo ${port#*=} > ports/${family#ipv}/addr_traddr
        echo $PORT > ports/${family#ipv}/addr_trsvcid
        ln -s $PWD/subsystems/$TARGET ports/${family#ipv}/subsystems/
    done";

/// Runs a script in the guest that makes a target, which listens when it has ended.
fn make_target(lab: &Lab, script: &str, name: &str, port: u16) {
    let settings = format!(
        "set -e; TARGET={name} PORT={port} ADDRESS={} ADDRESS_IPV6={}\n",
        Lab::GUEST,
        Lab::GUEST_IPV6
    );
    limited(lab.guest("sh").args(["-c", &(settings + script)])).check().unwrap();
    assert!(lab.guest_listens(port), "{}", limited(&mut lab.guest("dmesg")));
}

/// Runs a program that is to say "ok" at last.
fn is_ok(command: &mut Command) -> Result<(), String> {
    let said = limited(command);
    said.check()?;
    match said.out.lines().last() {
        Some("ok") => Ok(()),
        _ => Err(said.to_string()),
    }
}

#[test]
fn the_kernels_iscsi_target_serves_libiscsi_over_iser() {
    let here = have("gcc", "gcc")
        && have("iscsi-inq", "libiscsi-bin")
        && have("/usr/include/iscsi/iscsi.h", "libiscsi-dev");
    let Some(lab) = here.then(|| Lab::new(Kernel::Stock, 1500)).flatten() else { return };
    make_target(&lab, ISER_TARGET, TARGET, ISER);
    let fabric = Fabric::new();
    let disk = compile(&fabric, "disk", &["-liscsi"]);
    for host in HOSTS {
        let setup = Setup::start(&lab, "packet:h0", host);
        let url = match setup.guest.contains(':') {
            true => format!("iser://[{}]:{ISER}/{TARGET}/1", setup.guest),
            false => format!("iser://{}:{ISER}/{TARGET}/1", setup.guest),
        };
        let tool = |name: &str, options: &[&str], answer: &str| {
            let mut command = setup.here(name);
            let said = limited(command.args(["-i", INITIATOR]).args(options).arg(&url));
            match said.check() {
                Ok(()) if said.out.contains(answer) => Ok(()),
                _ => Err(said.to_string()),
            }
        };
        let outcomes = [
            tool("iscsi-inq", &[], "LIO-ORG"),
            tool("iscsi-readcapacity16", &[], "Total size:33554432"),
            tool("iscsi-perf", &["-b", "16", "-t", "1"], "finished"),
            is_ok(setup.here(disk.to_str().expect("a path of ours")).arg(&url)),
        ];
        setup.end(&outcomes.into_iter().filter_map(Result::err).collect::<Vec<_>>());
    }
}

#[test]
fn the_kernels_nvme_target_serves_a_host_in_user_space() {
    let here = have("gcc", "gcc") && have("/usr/include/rdma/rdma_cma.h", "librdmacm-dev");
    let Some(lab) = here.then(|| Lab::new(Kernel::Stock, 1500)).flatten() else { return };
    make_target(&lab, NVME_TARGET, SUBSYSTEM, NVME);
    let fabric = Fabric::new();
    let nvme = compile(&fabric, "nvme", &["-lrdmacm", "-libverbs"]);
    for host in HOSTS {
        let setup = Setup::start(&lab, "packet:h0", host);
        let mut command = setup.here(nvme.to_str().expect("a path of ours"));
        let outcome = is_ok(command.args([setup.guest, &NVME.to_string(), SUBSYSTEM]));
        setup.end(&outcome.err().into_iter().collect::<Vec<_>>());
    }
}

/// What `cmtime` shows of a client: the time of each step, and no error.
fn check_times(client: &mut Command) -> Result<(), String> {
    let said = limited(client);
    said.check()?;
    let steps = ["resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];
    // It goes on after failures, and says so on standard output.
    match !said.out.contains("rror") && steps.iter().all(|step| said.out.contains(step)) {
        true => Ok(()),
        false => Err(said.to_string()),
    }
}

/// `cmtime` to a server that is ended, as it does not end by itself.
fn cmtime(
    [server, client]: [Command; 2],
    address: &str,
    port: u16,
    ready: impl Fn() -> bool,
) -> Result<(), String> {
    let with_port = |mut command: Command| {
        command.args(["-p", &port.to_string()]);
        command
    };
    let mut server = Running::start(with_port(server).args(["-b", address]));
    if !server.wait_for(|_| ready()) {
        return Err(server.wait().to_string());
    }
    let outcome = check_times(with_port(client).args(["-c", "20", "-s", address]));
    let is_well = server.is_alive();
    server.terminate();
    let said = server.wait();
    match is_well {
        true => outcome,
        false => Err(said.to_string()),
    }
}

#[test]
fn cmtime_measures_every_step_each_way() {
    let Some(lab) = have("cmtime", "rdmacm-utils").then(|| Lab::new(Kernel::Stock, 1500)).flatten()
    else {
        return;
    };
    for host in HOSTS {
        let setup = Setup::start(&lab, "packet:h0", host);
        let sides = || (setup.lab.guest("cmtime"), setup.here("cmtime"));
        let port = free_port();
        let ((there, here), ready) = (sides(), || lab.guest_listens(port));
        let to = cmtime([there, here], setup.guest, port, ready);
        let port = free_port();
        let ((there, here), ready) = (sides(), || lab.fabric_listens(port));
        let from = cmtime([here, there], setup.host, port, ready);
        setup.end(&[to, from].into_iter().filter_map(Result::err).collect::<Vec<_>>());
    }
}
