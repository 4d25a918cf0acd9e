//! Storage: an iSER target of `tgt` with the tools of libiscsi, remote memory by librpma, and fio.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use ferroce_tests::programs::{
    Ended, Fabric, Pair, Running, compile, each_row, free_port, have, host_address, limited,
};

const TARGET: &str = "iqn.2001-04.com.example:storage";
/// Who may log in, which the target wants to know besides the address.
const INITIATOR: &str = "iqn.2001-04.com.example:initiator";
const DISK_LEN: u64 = 64 << 20;

/// A running target with one disk, a file of zeros.
struct Target {
    fabric: Fabric,
    daemon: Running,
    port: u16,
}

impl Target {
    /// None, with the reason printed, where it is not installed.
    fn start() -> Option<Target> {
        if !have("/usr/sbin/tgtd", "tgt") {
            return None;
        }
        let fabric = Fabric::new();
        let port = free_port();
        let mut daemon = fabric.run("/usr/sbin/tgtd");
        daemon.arg("-f").env("TGT_IPC_SOCKET", fabric.home().join("socket"));
        daemon.args(["--iscsi", &format!("portal=127.0.0.1:{}", free_port())]);
        daemon.args(["--iser", &format!("port={port}")]);
        let daemon = Running::start_within(&mut daemon, Duration::from_secs(300));
        let mut target = Target { fabric, daemon, port };
        let fabric = &target.fabric;
        let listens = target.daemon.wait_for(|_| fabric.listens(port));
        assert!(listens, "{}", target.daemon.out());
        target.make_disk();
        Some(target)
    }

    fn make_disk(&self) {
        let disk = self.fabric.home().join("disk");
        let file = File::create(&disk).unwrap();
        file.set_len(DISK_LEN).unwrap();
        std::os::unix::fs::chown(&disk, Some(ferroce_tests::programs::user().0), None).unwrap();
        let disk = disk.to_str().expect("a path of ours");
        for words in [
            format!("--mode target --op new --tid 1 --targetname {TARGET}"),
            format!("--mode logicalunit --op new --tid 1 --lun 1 --backing-store {disk}"),
            "--mode target --op bind --tid 1 --initiator-address ALL".to_owned(),
            format!("--mode target --op bind --tid 1 --initiator-name {INITIATOR}"),
        ] {
            let mut command = self.fabric.as_user("/usr/sbin/tgtadm".as_ref());
            command.env("TGT_IPC_SOCKET", self.fabric.home().join("socket"));
            command.args(["--lld", "iser"]).args(words.split_whitespace());
            limited(&mut command).check().unwrap();
        }
    }

    fn url(&self, host: &str) -> String {
        format!("iser://{host}:{}/{TARGET}/1", self.port)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        limited(self.fabric.run(program).args(arguments))
    }

    fn is_well(&mut self) -> bool {
        self.daemon.is_alive()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.daemon.kill();
    }
}

#[test]
fn an_iser_target_serves_the_tools_of_libiscsi() {
    if !have("iscsi-inq", "libiscsi-bin") {
        return;
    }
    let Some(mut target) = Target::start() else { return };
    let url = target.url("127.0.0.1");
    let tool = |name: &str, options: &[&str]| {
        let said = target.run(name, &[&["-i", INITIATOR], options, &[&url]].concat());
        said.check().unwrap();
        said
    };
    let said = tool("iscsi-inq", &[]);
    assert!(said.out.contains("VIRTUAL-DISK"), "{said}");
    let said = tool("iscsi-readcapacity16", &[]);
    assert!(said.out.contains(&format!("Total size:{DISK_LEN}")), "{said}");
    let said = tool("iscsi-perf", &["-b", "16", "-t", "1"]);
    assert!(said.out.contains("finished"), "{said}");
    // iscsi-test-cu is not for iSER: libiscsi frees a connection while its thread still reads from
    // it, and crashes with data of no length.
    assert!(target.is_well());
}

#[test]
fn what_is_written_over_iser_is_read_back() {
    if !have("gcc", "gcc") || !have("/usr/include/iscsi/iscsi.h", "libiscsi-dev") {
        return;
    }
    let Some(mut target) = Target::start() else { return };
    let program = compile(&target.fabric, "disk", &["-liscsi"]);
    let program = program.to_str().expect("a path of ours");
    for host in ["127.0.0.1", &host_address().to_string(), "[::1]"] {
        let said = target.run(program, &[&target.url(host)]);
        said.check().unwrap();
        assert_eq!(said.out.lines().last(), Some("ok"), "{said}");
    }
    assert!(target.is_well());
}

#[test]
fn the_memory_of_another_process_is_written_and_read_by_librpma() {
    if !have("gcc", "gcc") || !have("/usr/include/librpma.h", "librpma-dev") {
        return;
    }
    let fabric = Fabric::new();
    let program = compile(&fabric, "rpma", &["-lrpma", "-libverbs"]);
    let program = program.to_str().expect("a path of ours");
    for host in ["127.0.0.1", &host_address().to_string()] {
        let mut server = fabric.run(program);
        server.args(["serve", host, "7471"]).arg(fabric.home().join("store"));
        let mut client = fabric.run(program);
        client.args(["write", host, "7471"]);
        let pair = Pair::by_cm(&fabric, &mut server, 7471, &mut client);
        pair.check().unwrap();
        for side in [&pair.server, &pair.client] {
            assert_eq!(side.out.lines().last(), Some("ok"), "{side}");
        }
    }
}

/// How the client of fio moves its bytes, and options of the server and of the client. A SEND for
/// which no receive waits is an error, as fio asks for no retries: the server posts them all.
const FIO: [(&str, &str, &str); 6] = [
    ("write", "--bs=64k --iodepth=16", "--bs=64k --iodepth=16"),
    ("write", "--bs=4k --iodepth=1", "--bs=4k --iodepth=1"),
    ("write", "--bs=1m --iodepth=4", "--bs=1m --iodepth=4"),
    ("read", "--bs=64k --iodepth=16", "--bs=64k --iodepth=16"),
    ("send", "--bs=64k --iodepth=256", "--bs=64k --iodepth=16"),
    (
        "send",
        "--bs=64k --iodepth=256 --verify=crc32c",
        "--bs=64k --iodepth=16 --verify=crc32c --do_verify=0",
    ),
];

#[test]
fn fio_moves_bytes_by_every_verb() {
    if !have("fio", "fio") {
        return;
    }
    let fabric = Fabric::new();
    each_row(&FIO, |(verb, server, client)| {
        let port = free_port();
        let command = |side: &str, options: &str| -> Command {
            let mut command = fabric.run("fio");
            // Processes of their own would outlive the one that is waited for.
            command.args(["--name=job", "--ioengine=rdma", "--size=16m", "--minimal", "--thread"]);
            command.arg(format!("--port={port}"));
            command.args(side.split_whitespace()).args(options.split_whitespace());
            command
        };
        let mut server = command("--rw=read", server);
        let mut client = command("--rw=write --hostname=127.0.0.1", client);
        client.arg(format!("--verb={verb}"));
        let pair = Pair::by_cm(&fabric, &mut server, port, &mut client);
        pair.check()?;
        // The 47th field: KiB that were written.
        let written = pair.client.out.split(';').nth(46).and_then(|field| field.parse().ok());
        match written {
            Some(16_384) => Ok(()),
            _ => Err(format!("client: {}\nserver: {}", pair.client, pair.server)),
        }
    });
}
