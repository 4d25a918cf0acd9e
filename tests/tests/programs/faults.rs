//! Peers that die, folders that are full, in the way or somebody else's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ferroce_tests::programs::{
    Ended, Fabric, Installed, Pair, Running, free_port, have, is_root, limited, user,
};

/// The file of each member that the fabric has.
fn members(fabric: &Fabric) -> Vec<String> {
    let entries = fs::read_dir(fabric.path()).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "registry")
        .collect();
    names.sort();
    names
}

fn next_pair_works(fabric: &Fabric) {
    let pair = Pair::run(fabric, "ibv_rc_pingpong", "-g 1 -c", "-g 1 -c");
    pair.check().unwrap();
}

#[test]
fn a_killed_client_leaves_its_server_with_exceeded_retries() {
    if !have("ib_write_bw", "perftest") || !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let port = free_port();
    let command = || {
        // Otherwise it keeps to itself what it prints until it ends.
        let mut command = fabric.run("stdbuf");
        // Both ways, so that the server has requests of its own.
        command.args(["-oL", "ib_write_bw", "-F", "-b", "-n", "10000000", "-p", &port.to_string()]);
        command
    };
    let mut server = Running::start(&mut command());
    assert!(server.wait_for(|server| server.listens(port)), "{}", server.wait());
    let mut client = Running::start(command().arg("127.0.0.1"));
    // The head of the table comes first; after that nothing shows how far it is.
    let started = client.wait_for(|client| client.out().contains("MsgRate"));
    thread::sleep(Duration::from_millis(300));
    client.kill();
    let client = client.wait();
    assert!(started, "{client}");
    let server = server.wait();
    assert!(server.status.is_some_and(|status| !status.success()), "{server}");
    // 12: IBV_WC_RETRY_EXC_ERR. It says so of the client, as it believes itself to be one then.
    let said = format!("{}{}", server.out, server.err);
    assert!(said.contains("Failed status 12"), "{server}");
    next_pair_works(&fabric);
    assert_eq!(members(&fabric), [""; 0], "the dead have left files behind");
}

/// What a process holds, for comparison.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    files: usize,
    threads: usize,
    mappings: usize,
}

fn holdings(process: &Running) -> Holdings {
    let folder = Path::new("/proc").join(process.id().to_string());
    let count = |name: &str| fs::read_dir(folder.join(name)).unwrap().count();
    let maps = fs::read_to_string(folder.join("maps")).unwrap();
    let mappings = maps.lines().filter(|line| line.contains("/member-")).count();
    Holdings { files: count("fd"), threads: count("task"), mappings }
}

#[test]
fn two_hundred_deaths_leave_nothing_behind() {
    const ROUNDS: u64 = 200;
    if !have("ibv_rc_pingpong", "ibverbs-utils") || !have("ibv_asyncwatch", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let mut watch = fabric.run("stdbuf");
    let limit = Duration::from_secs(300);
    let mut watch = Running::start_within(watch.args(["-oL", "ibv_asyncwatch"]), limit);
    assert!(watch.wait_for(|watch| watch.out().contains("async event FD")), "{}", watch.wait());
    let before = holdings(&watch);
    let alone = members(&fabric);
    for round in 0..ROUNDS {
        let port = free_port();
        let command = || {
            let mut command = fabric.plain("ibv_rc_pingpong");
            command.args(["-g", "1", "-n", "100000000", "-p", &port.to_string()]);
            command
        };
        let mut server = Running::start(&mut command());
        assert!(server.wait_for(|server| server.listens(port)), "{}", server.wait());
        let client = Running::start(command().arg("127.0.0.1"));
        // At any moment from before it joins to well after it has started to send.
        thread::sleep(Duration::from_micros(round * 7919 % 30_000));
        client.kill();
        client.wait();
        server.kill();
        server.wait();
    }
    next_pair_works(&fabric);
    assert_eq!(members(&fabric), alone);
    assert_eq!(holdings(&watch), before);
    watch.kill();
    watch.wait();
    next_pair_works(&fabric);
    assert_eq!(members(&fabric), [""; 0]);
}

/// Whether it has failed, and said on standard error what is the matter with which folder.
fn told(said: &Ended, folder: &str, matter: &str) {
    assert!(said.status.is_some_and(|status| !status.success()), "{said}");
    assert!(said.err.contains(folder) && said.err.contains(matter), "{said}");
}

#[test]
fn a_read_only_folder_is_named() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let fabric = Fabric::new();
    let folder = fabric.path();
    fs::create_dir(&folder).unwrap();
    let (uid, gid) = user();
    chown(&folder, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
    let said = limited(&mut fabric.run("ibv_rc_pingpong"));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    told(&said, folder.to_str().unwrap(), "cannot be written to");
}

#[test]
fn a_folder_of_other_users_is_named() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    if !is_root() {
        println!("skipped: only root can make a folder of another user");
        return;
    }
    let fabric = Fabric::new();
    let folder = fabric.path();
    fs::create_dir(&folder).unwrap();
    let run = || {
        // In a user namespace, every other user would be nobody, as this one is.
        limited(&mut fabric.run_with(&["--no-namespace"], "ibv_rc_pingpong"))
    };
    told(&run(), folder.to_str().unwrap(), "belongs to user 0");
    let (uid, gid) = user();
    chown(&folder, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    told(&run(), folder.to_str().unwrap(), "others may write to");
}

#[test]
fn full_shared_memory_is_named() {
    if !have("ibv_rc_pingpong", "ibverbs-utils") || !have("unshare", "util-linux") {
        return;
    }
    let fabric = Fabric::new();
    // A tmpfs of its own, too small for a member; then without rights again.
    let script = "mount -t tmpfs -o size=256k,mode=777 tmpfs \"$0\" && exec \"$@\"";
    let folder = fabric.home();
    let mut command = fabric.command(Path::new("unshare"));
    if !is_root() {
        command.arg("-r");
    }
    command.args(["-m", "sh", "-c", script]).arg(&folder);
    if is_root() {
        let (uid, gid) = user();
        command.args(["setpriv", "--clear-groups"]);
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
    }
    command.arg(&Installed::get().ferroce).args(["run", "--no-namespace", "--fabric"]);
    command.arg(folder.join("full"));
    let said = limited(command.args(["--", "ibv_rc_pingpong"]));
    if said.err.contains("unshare failed") || said.err.contains("mount: ") {
        println!("skipped, as this machine allows no namespace: {}", said.err);
        return;
    }
    told(&said, "full", "the file system is full");
}

#[test]
fn no_hardware_is_here() {
    let modules = Command::new("cat").arg("/proc/modules").output().unwrap();
    let modules = String::from_utf8_lossy(&modules.stdout).into_owned();
    for module in ["ib_core", "ib_uverbs", "rdma_rxe", "rdma_cm"] {
        let is_loaded = modules.lines().any(|line| line.starts_with(&format!("{module} ")));
        assert!(!is_loaded, "kernel module {module} is loaded");
    }
}
