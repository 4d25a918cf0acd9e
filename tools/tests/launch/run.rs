//! `ferroce run` and `ferroce env`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Said, TempFolder, ferroce, output};

const LINKS: [&str; 4] = ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"];

/// What a script says that is run so.
fn script(flags: &[&str], text: &str) -> Said {
    output(ferroce(&["run"]).args(flags).args(["--", "sh", "-c", text]))
}

#[test]
fn exit_status_is_the_programs() {
    assert_eq!(script(&[], "exit 7").status, Some(7));
    // A folder in PATH that may not be read makes no difference.
    let temp = TempFolder::new();
    let permit = |mode| fs::set_permissions(temp.path(), fs::Permissions::from_mode(mode)).unwrap();
    permit(0o000);
    let path = format!("{}/x:/usr/bin:/bin", temp.text());
    let said = output(ferroce(&["run", "no-such-program"]).env("PATH", path));
    permit(0o700);
    assert_eq!(said.status, Some(127), "{said:?}");
    assert!(said.err.contains("cannot run no-such-program: it is not found"), "{said:?}");
    let said = output(&mut ferroce(&["run", "/etc/passwd"]));
    assert_eq!(said.status, Some(126), "{said:?}");
    let said = output(&mut ferroce(&["run", "--mtu", "9", "true"]));
    assert_eq!(said.status, Some(125), "{said:?}");
}

#[test]
fn the_programs_arguments_are_its_own() {
    let said = output(&mut ferroce(&["run", "--mtu", "512", "echo", "--mtu", "x", "--", "-n"]));
    assert_eq!(said.out, "--mtu x -- -n\n");
}

#[test]
fn loader_finds_the_library_under_each_name() {
    let said = script(&[], "echo $LD_LIBRARY_PATH");
    let folder = PathBuf::from(said.out.trim());
    for link in LINKS {
        let library = folder.join(link).canonicalize().unwrap();
        assert_eq!(library.file_name().unwrap(), "libferroce_verbs.so");
    }
    let again = output(
        ferroce(&["run", "sh", "-c", "echo $LD_LIBRARY_PATH"]).env("LD_LIBRARY_PATH", "/a:/b"),
    );
    assert_eq!(again.out.trim(), format!("{}:/a:/b", folder.display()));
}

#[test]
fn what_makes_sockets_rsockets_is_preloaded_if_asked_for() {
    assert_eq!(script(&[], "echo $LD_PRELOAD").out, "\n");
    let said = script(&["--rsockets"], "echo $LD_PRELOAD");
    let preload = Path::new(said.out.trim());
    assert!(preload.is_file() && preload.ends_with("librspreload.so"), "{said:?}");
    assert_eq!(said.err, "");
}

#[test]
fn a_folder_others_may_write_to_is_refused() {
    let temp = TempFolder::new();
    let run = || {
        let mut command = ferroce(&["run", "true"]);
        output(command.env("TMPDIR", temp.path()).env_remove("XDG_RUNTIME_DIR"))
    };
    assert_eq!(run().status, Some(0));
    let made: Vec<PathBuf> =
        fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [folder] = &made[..] else { panic!("{made:?}") };
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let said = run();
    assert_eq!(said.status, Some(125), "{said:?}");
    assert!(said.err.contains("only this user may write to"), "{said:?}");
}

#[test]
fn settings_reach_the_program_as_variables() {
    let folder = TempFolder::new();
    fs::write(folder.path().join("f.toml"), "seed = 5\npcap = 'a.pcap'\n").unwrap();
    let mut command = ferroce(&["run", "--config", "f.toml", "--mtu", "1024"]);
    let rules = ["--fault", "drop 1st ack", "--fault", "drop 2nd ack"];
    command.args(rules).args(["sh", "-c", "env | grep -A1 ^FERROCE_ | sort"]);
    command.current_dir(folder.path()).env("FERROCE_CONFIG", "gone.toml");
    let said = output(command.env("FERROCE_FABRIC", "./shared"));
    let fabric = format!("FERROCE_FABRIC={}/shared", folder.text());
    let pcap = format!("FERROCE_PCAP={}/a.pcap", folder.text());
    let expected = [
        fabric.as_str(),
        "FERROCE_FAULT=drop 1st ack",
        "FERROCE_MTU=1024",
        &pcap,
        "FERROCE_SEED=5",
        "drop 2nd ack",
    ];
    let lines: Vec<&str> = said
        .out
        .lines()
        .filter(|line| line.starts_with("FERROCE_") || line.contains("ack"))
        .collect();
    assert_eq!(lines, expected, "{said:?}");
}

#[test]
fn env_does_for_a_shell_what_run_does_for_a_program() {
    let said = output(&mut ferroce(&["env", "--fabric", "/tmp/it's", "--seed", "8"]));
    let text = format!("{}\necho $LD_LIBRARY_PATH; echo $FERROCE_FABRIC $FERROCE_SEED", said.out);
    let shell = |before: &str| {
        let mut command = std::process::Command::new("sh");
        output(command.args(["-c", &text]).env("LD_LIBRARY_PATH", before)).out
    };
    let out = shell("/a");
    let [path, settings] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
    let folder = path.strip_suffix(":/a").unwrap();
    assert!(Path::new(folder).join("libibverbs.so.1").exists());
    assert_eq!(settings, "/tmp/it's 8");
    assert_eq!(shell("").lines().next(), Some(folder));
}

/// What a script says that sees the devices; nothing where the machine allows no namespace.
fn inside(flags: &[&str], text: &str) -> Option<Said> {
    let said = script(&[&["--log", "info"], flags].concat(), text);
    if said.err.contains("no /sys/class/infiniband") {
        eprintln!("skipped, as this machine allows no namespace: {}", said.err);
        return None;
    }
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{said:?}");
    Some(said)
}

#[test]
fn devices_are_in_sys_and_dev_inside_and_not_outside() {
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let folders = ["/sys/class", "/sys/class/infiniband", "/dev/infiniband"];
    let before = folders.map(names);
    let text = "set -e; cd /sys/class/infiniband; echo *; cd ferroce1
                cat node_guid ports/1/state ports/1/gids/1 ports/1/gid_attrs/types/0
                cat ../ferroce0/ports/1/gid_attrs/ndevs/1; ls ../ferroce0/device/net
                cd /dev/infiniband
                for node in uverbs0 uverbs1; do test -c $node; : <> $node; done
                test -e /sys/class/net/lo/ifindex; : >/dev/null; readlink /dev/fd";
    let addr = ["--addr", "127.0.0.1", "--addr", "203.0.113.9"];
    let Some(said) = inside(&addr, text) else { return };
    let expected = "ferroce0 ferroce1\n\
                    0000:cbff:fe00:7109\n\
                    4: ACTIVE\n\
                    0000:0000:0000:0000:0000:ffff:cb00:7109\n\
                    RoCE v2\n\
                    lo\n\
                    lo\n\
                    /proc/self/fd\n";
    assert_eq!(said.out, expected);
    assert_eq!(folders.map(names), before);
}

#[test]
fn everything_else_in_dev_and_sys_stays() {
    let text = "ls /dev /sys/class | grep -v infiniband
                stat -c '%n %F %t:%T %a' /dev/null /dev/urandom /dev/shm /dev/pts /sys/class/net";
    let Some(inside) = inside(&[], text) else { return };
    assert_eq!(inside.out, script(&["--no-namespace"], text).out);
}

#[test]
fn user_stays_the_same_and_may_run_it_again() {
    let Some(said) = inside(&[], "id -u") else { return };
    assert_eq!(said.out, script(&["--no-namespace"], "id -u").out);
    let again = format!("{} run ls /sys/class/infiniband", env!("CARGO_BIN_EXE_ferroce"));
    assert_eq!(inside(&[], &again).unwrap().out, "ferroce0\n");
}

#[test]
fn a_user_namespace_without_rights_leaves_the_user_who_it_is() {
    // Root without CAP_SETFCAP may make one, but not map its user.
    let command = "exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" run --log info id -u";
    let outside = ["-Ur", "sh", "-c", command, env!("CARGO_BIN_EXE_ferroce")];
    let temp = TempFolder::new();
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(outside).env("TMPDIR", temp.path()).env_remove("XDG_RUNTIME_DIR");
    let said = output(&mut unshare);
    if said.err.contains("unshare: ") || said.err.contains("setpriv: ") {
        eprintln!("skipped: {}", said.err);
        return;
    }
    assert_eq!((said.status, said.out.as_str()), (Some(0), "0\n"), "{said:?}");
    assert!(said.err.contains("no user namespace"), "{said:?}");
}
