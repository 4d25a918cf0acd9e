//! Members among themselves: in one process, in others that are killed, in directories and file
//! systems that will not have them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::Qpn;
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};

use super::registry::MEMBERS;
use super::*;
use crate::rand::Rng;
use crate::sys;

mod gateway;
mod ports;

/// What the child of a test is to do.
const ROLE: &str = "FERROCE_TEST_FABRIC_ROLE";
/// The fabric's directory.
const DIR: &str = "FERROCE_TEST_FABRIC_DIR";

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct TempDir(PathBuf);

impl TempDir {
    /// The path of a directory that does not exist.
    fn new() -> TempDir {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ferroce-fabric-{}-{count}", std::process::id());
        TempDir(std::env::temp_dir().join(name))
    }

    fn files(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn gid(last: u8) -> Gid {
    Gid::from(Ipv4Addr::new(10, 0, 0, last))
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 10, 0, 0, last])
}

fn entry(last: u8) -> GidEntry {
    GidEntry { gid: gid(last), gid_type: GidType::RoceV2, mac: mac(last), vlan: None }
}

fn join_as(dir: &Path, last: u8) -> Result<Member, FabricError> {
    Member::join(dir, &[entry(last)])
}

fn join(dir: &TempDir, last: u8) -> Member {
    join_as(&dir.0, last).unwrap()
}

fn take(member: &mut Member) -> Option<(Vec<u8>, u32)> {
    let mut frame = [0; FRAME_MAX];
    let received = member.receive(&mut frame, true)?;
    Some((frame[..received.len].to_vec(), received.tag))
}

fn own_qpn(member: &Member) -> Qpn {
    Qpn(member.qpns().start + 5)
}

/// Calls `done` until it is true, some seconds at most.
fn eventually(mut done: impl FnMut() -> bool) -> bool {
    (0..10_000).any(|_| {
        let is_done = done();
        if !is_done {
            thread::sleep(Duration::from_millis(1));
        }
        is_done
    })
}

#[test]
fn frames_go_from_member_to_member() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    assert_eq!((a.slot(), b.slot()), (0, 1));
    assert_eq!((a.qpns(), b.qpns()), (0x10..0x1_0000, 0x1_0000..0x2_0000));
    assert_eq!(fs::metadata(&dir.0).unwrap().mode() & 0o777, 0o700);

    assert_eq!(a.route(gid(2), own_qpn(&b), &[]), Route::Member(1));
    assert_eq!(a.route(gid(1), own_qpn(&b), &[]), Route::Unreachable);
    assert_eq!(b.route(gid(2), own_qpn(&b), &[]), Route::Own);
    assert_eq!((a.mac_of(gid(2)), a.mac_of(gid(3))), (Some(mac(2)), None));

    assert_eq!(a.send(1, b"to b", 7), Sent::Done);
    assert_eq!(b.send(0, b"to a", 8), Sent::Done);
    assert_eq!(a.send(0, b"to itself", 9), Sent::Done);
    assert_eq!(a.send(2, b"to nobody", 0), Sent::Gone);
    assert_eq!((a.pending(), b.pending()), (2, 1));
    assert_eq!(take(&mut b), Some((b"to b".to_vec(), 7)));
    assert_eq!(take(&mut a), Some((b"to a".to_vec(), 8)));
    assert_eq!(take(&mut a), Some((b"to itself".to_vec(), 9)));
    assert_eq!((take(&mut a), take(&mut b)), (None, None));
}

#[test]
fn member_that_leaves_is_gone_and_the_next_is_another() {
    let dir = TempDir::new();
    let (mut a, b) = (join(&dir, 1), join(&dir, 2));
    assert_eq!(a.send(1, b"frame", 0), Sent::Done);
    drop(b);
    assert_eq!(a.send(1, b"frame", 0), Sent::Gone);
    assert_eq!(a.route(gid(2), Qpn(0x1_0005), &[]), Route::Unreachable);
    assert_eq!(dir.files(), BTreeSet::from(["registry".into(), "member-0".into()]));
    // Every other slot is used before the same one is.
    for round in 1..MEMBERS {
        let mut c = join(&dir, 3);
        let expected = 1 + round % (MEMBERS - 1);
        assert_eq!(usize::from(c.slot()), expected);
        assert_eq!(a.send(c.slot(), b"for c", 0), Sent::Done);
        assert_eq!(take(&mut c), Some((b"for c".to_vec(), 0)));
        assert_eq!(take(&mut c), None);
    }
}

#[test]
fn multicast_reaches_who_is_attached() {
    let dir = TempDir::new();
    let (mut a, mut b, mut c) = (join(&dir, 1), join(&dir, 2), join(&dir, 3));
    let group = |last| Gid::from(Ipv4Addr::new(224, 0, 0, last));
    let hearers = |member: &mut Member, last| match member.route(group(last), Qpn::MULTICAST, &[]) {
        Route::Members(slots) => slots.iter().collect::<Vec<u8>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(hearers(&mut a, 9), [0u8; 0]);
    a.set_groups(&[group(9)]);
    c.set_groups(&[group(8), group(9)]);
    assert_eq!((hearers(&mut b, 8), hearers(&mut b, 9)), (vec![2], vec![0, 2]));
    assert_eq!((hearers(&mut a, 8), hearers(&mut a, 9)), (vec![2], vec![0, 2]));
    a.set_groups(&[]);
    c.set_groups(&[group(9), group(7)]);
    assert_eq!(hearers(&mut b, 8), [0u8; 0]);
    assert_eq!((hearers(&mut b, 7), hearers(&mut b, 9)), (vec![2], vec![2]));
    // More than others can be told of: all.
    let many = (0..2000).map(|last| Gid::from(Ipv4Addr::from(0xe000_0000 + last)));
    a.set_groups(&many.collect::<Vec<_>>());
    assert_eq!((hearers(&mut b, 8), hearers(&mut b, 9)), (vec![0], vec![0, 2]));
    // And all ends with the member.
    drop(a);
    drop(c);
    assert_eq!(hearers(&mut b, 9), [0u8; 0]);
    assert!(!dir.0.join("groups-0").exists());
}

#[test]
fn addresses_of_a_member_change_without_its_leaving() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    assert_eq!(b.send(a.slot(), b"before", 0), Sent::Done);
    let generation = b.generation_at(a.slot(), gid(1));
    let entry = GidEntry { gid: gid(7), gid_type: GidType::RoceV2, mac: Mac([7; 6]), vlan: None };
    a.set_gids(&[entry]);
    assert_eq!(b.generation_at(a.slot(), gid(1)), None);
    assert_eq!(
        (b.generation_at(a.slot(), gid(7)), b.mac_of(gid(7))),
        (generation, Some(entry.mac))
    );
    assert_eq!(b.route(gid(7), own_qpn(&a), &[]), Route::Member(a.slot()));
    assert_eq!(b.send(a.slot(), b"after", 0), Sent::Done);
    assert_eq!(take(&mut a).map(|(frame, _)| frame), Some(b"before".to_vec()));
    assert_eq!(take(&mut a).map(|(frame, _)| frame), Some(b"after".to_vec()));
}

#[test]
fn sleeping_member_is_woken_once_for_a_burst() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    // Polled: left alone.
    b.wake_word().store(2, Ordering::SeqCst);
    assert_eq!(a.send(1, b"frame", 0), Sent::Done);
    a.flush();
    assert_eq!(b.wake_word().load(Ordering::SeqCst), 2);
    assert!(take(&mut b).is_some());

    b.wake_word().store(1, Ordering::SeqCst);
    let wake = b.wake_handle();
    let sleeper = thread::spawn(move || {
        while wake.load(Ordering::SeqCst) == 1 {
            wake.wait(1, None);
        }
    });
    for tag in 0..10 {
        assert_eq!(a.send(1, b"frame", tag), Sent::Done);
    }
    assert_eq!(b.wake_word().load(Ordering::SeqCst), 1);
    a.flush();
    sleeper.join().unwrap();
    // Nothing sent since: nobody is woken.
    b.wake_word().store(1, Ordering::SeqCst);
    a.flush();
    assert_eq!(b.wake_word().load(Ordering::SeqCst), 1);
}

/// What a member without an engine would say of itself.
fn report_of(member: &Member, program: &str) -> Report {
    Report {
        generation: member.generation(),
        served: member.reports_wanted(),
        program: program.to_owned(),
        ..Report::default()
    }
}

#[test]
fn fabric_without_members_is_observed_and_not_made() {
    let dir = TempDir::new();
    let asked = |dir: &TempDir| observe(&dir.0).unwrap().ask(Duration::from_secs(1)).len();
    assert_eq!(asked(&dir), 0);
    assert!(!dir.0.exists());
    drop(join(&dir, 1));
    assert_eq!(asked(&dir), 0);
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o720)).unwrap();
    assert!(matches!(observe(&dir.0), Err(FabricError::WritableByOthers { .. })));
}

#[test]
fn who_is_asked_is_woken_and_answers_and_who_does_not_is_named() {
    let dir = TempDir::new();
    let (a, b) = (join(&dir, 1), join(&dir, 2));
    a.wake_word().store(1, Ordering::SeqCst);
    let answers = thread::scope(|scope| {
        scope.spawn(|| {
            while a.wake_word().load(Ordering::SeqCst) == 1 {
                a.wake_handle().wait(1, None);
            }
            assert_eq!(a.reports_wanted(), 1);
            a.report(&report_of(&a, "first")).unwrap();
        });
        observe(&dir.0).unwrap().ask(Duration::from_millis(200))
    });
    let own = std::process::id();
    let process = |member: &Member, gids| Process {
        slot: member.slot(),
        generation: member.generation(),
        pid: own,
        gids,
    };
    assert_eq!(answers[0].process, process(&a, vec![gid(1)]));
    assert_eq!(answers[0].report.as_ref().unwrap().program, "first");
    assert_eq!(answers[1].process, process(&b, vec![gid(2)]));
    assert!(matches!(answers[1].report, Err(NoReport::Silent)));
    assert_eq!(answers.len(), 2);
    assert!(dir.files().contains("report-0"));

    // The old answer does not answer a new question.
    let answers = observe(&dir.0).unwrap().ask(Duration::from_millis(20));
    assert!(matches!(answers[0].report, Err(NoReport::Silent)));
    drop((a, b));
    assert_eq!(dir.files(), BTreeSet::from(["registry".into()]));
}

#[test]
fn report_that_is_none_is_refused() {
    let dir = TempDir::new();
    let a = join(&dir, 1);
    let path = dir.0.join("report-0");
    let deep = "[".repeat(1 << 20);
    for text in ["", "nonsense", "{}", "{\"generation\": -1}", &deep] {
        fs::write(&path, text).unwrap();
        let answers = observe(&dir.0).unwrap().ask(Duration::from_millis(10));
        let refused = matches!(answers[0].report, Err(NoReport::Unreadable(_)));
        assert!(refused, "{:?}", answers[0].report);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(a.report(&report_of(&a, "first")).is_err());
    assert_eq!(
        dir.files(),
        BTreeSet::from_iter(["registry", "member-0", "report-0"].map(Into::into))
    );
    let answers = observe(&dir.0).unwrap().ask(Duration::from_millis(10));
    assert!(answers[0].report.is_err());
}

#[test]
fn observer_removes_what_a_dead_member_said() {
    let dir = TempDir::new();
    let own = join(&dir, 1);
    let mut other = start("flood", &dir.0);
    assert_eq!(line_of(&mut other, "joined ").unwrap(), "1");
    fs::write(dir.0.join("report-1"), "last words").unwrap();
    fs::write(dir.0.join("report-1.new"), "half of a wo").unwrap();
    assert_eq!(observe(&dir.0).unwrap().members().len(), 2);
    kill(other);
    assert!(eventually(|| observe(&dir.0).unwrap().ask(Duration::ZERO).len() == 1));
    assert_eq!(dir.files(), BTreeSet::from(["registry".into(), "member-0".into()]));
    drop(own);
}

#[test]
fn fabric_has_room_for_256_members() {
    let dir = TempDir::new();
    let members: Vec<_> = (0..MEMBERS).map(|_| join(&dir, 1)).collect();
    let slots: BTreeSet<u8> = members.iter().map(Member::slot).collect();
    assert_eq!(slots.len(), MEMBERS);
    let error = join_as(&dir.0, 1).unwrap_err();
    assert!(matches!(error, FabricError::Full { .. }), "{error}");
    assert!(error.to_string().contains("all 256 slots"), "{error}");
    drop(members);
    assert_eq!(dir.files(), BTreeSet::from(["registry".into()]));
}

#[test]
fn too_many_addresses_are_refused() {
    let entry = GidEntry { gid: gid(1), gid_type: GidType::RoceV2, mac: mac(1), vlan: None };
    let error = Member::join(&TempDir::new().0, &[entry; 9]).unwrap_err();
    assert!(error.to_string().starts_with("9 addresses"), "{error}");
}

#[test]
fn place_that_will_not_do_is_refused_with_a_reason() {
    let refuse = |dir: &Path, says: &str| {
        let message = join_as(dir, 1).unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    };
    let dir = TempDir::new();
    refuse(&dir.0.join("a/b/c"), "does not exist");
    fs::write(&dir.0, "a file").unwrap();
    refuse(&dir.0, "is not a directory");
    refuse(&dir.0.join("below"), "is not a directory");
    fs::remove_file(&dir.0).unwrap();

    // Missing, and so is what it should be in.
    drop(join_as(&dir.0.join("fabric"), 1).unwrap());
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o720)).unwrap();
    refuse(&dir.0, "others may write to fabric directory");
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o700)).unwrap();

    fs::write(dir.0.join("registry"), "no registry at all").unwrap();
    refuse(&dir.0, "is not the registry of a fabric");
    fs::remove_file(dir.0.join("registry")).unwrap();
    drop(join(&dir, 1));
    let registry = fs::OpenOptions::new().write(true).open(dir.0.join("registry")).unwrap();
    registry.write_all_at(&9u64.to_ne_bytes(), 8).unwrap();
    refuse(&dir.0, "has layout version 9, this library has 1");
}

#[test]
fn directory_of_another_user_is_refused() {
    if sys::effective_user() != 0 {
        println!("skipped: only root can give a directory to another user");
        return;
    }
    let dir = TempDir::new();
    drop(join(&dir, 1));
    std::os::unix::fs::chown(&dir.0, Some(12_345), None).unwrap();
    let message = join_as(&dir.0, 1).unwrap_err().to_string();
    assert!(message.contains("belongs to user 12345, and this process runs as user 0"));
    std::os::unix::fs::chown(&dir.0, Some(0), None).unwrap();
    std::os::unix::fs::chown(dir.0.join("registry"), Some(12_345), None).unwrap();
    assert!(matches!(join_as(&dir.0, 1), Err(FabricError::OtherUser { owner: 12_345, .. })));
}

#[test]
fn directory_that_another_user_could_replace_is_refused() {
    if sys::effective_user() != 0 {
        println!("skipped: only root can give a directory to another user");
        return;
    }
    let parent = TempDir::new();
    fs::create_dir(&parent.0).unwrap();
    let dir = parent.0.join("default");
    drop(join_as(&dir, 1).unwrap());
    std::os::unix::fs::chown(&parent.0, Some(12_345), None).unwrap();
    let message = join_as(&dir, 1).unwrap_err().to_string();
    assert!(
        message.contains(&format!("{} belongs to user 12345", parent.0.display())),
        "{message}"
    );
}

#[test]
fn registry_that_its_first_member_did_not_finish_is_made_anew() {
    let dir = TempDir::new();
    fs::create_dir(&dir.0).unwrap();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o700)).unwrap();
    for len in [0, 100_000, 20] {
        fs::write(dir.0.join("registry"), vec![0; len]).unwrap();
        if len == 100_000 {
            continue;
        }
        let mut a = join(&dir, 1);
        assert_eq!(a.send(a.slot(), b"frame", 0), Sent::Done);
        assert!(take(&mut a).is_some());
    }
}

#[test]
fn slot_of_a_process_that_died_while_it_joined_is_freed() {
    let dir = TempDir::new();
    let mut a = join(&dir, 1);
    let (registry, lock) = registry::Registry::open(&dir.0).unwrap();
    let (slot, _) = registry.claim(&lock).unwrap();
    fs::write(registry.member_path(slot), "half a ring").unwrap();
    drop((lock, registry));
    assert_eq!(a.send(slot, b"frame", 0), Sent::Gone);
    drop(join(&dir, 2));
    assert_eq!(dir.files(), BTreeSet::from(["registry".into(), "member-0".into()]));
}

#[test]
fn ring_of_a_wrong_size_or_generation_is_not_sent_to() {
    let dir = TempDir::new();
    let (mut a, b) = (join(&dir, 1), join(&dir, 2));
    let path = dir.0.join("member-1");
    let whole = fs::read(&path).unwrap();
    // In place of the file, not in it: it is mapped.
    for content in [&whole[..4096], &[], &vec![0; whole.len()]] {
        fs::remove_file(&path).unwrap();
        fs::write(&path, content).unwrap();
        assert_eq!(a.send(b.slot(), b"frame", 0), Sent::Gone);
    }
}

/// The test binary as another process, in a role.
fn start(role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fabric::tests::child", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a line that a child prints, and gives what follows it.
fn line_of(child: &mut Child, prefix: &str) -> Option<String> {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    lines.map_while(Result::ok).find_map(|line| {
        let at = line.find(prefix)?;
        Some(line[at + prefix.len()..].to_string())
    })
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What children do; nothing by itself.
#[test]
#[ignore = "is started by other tests"]
fn child() {
    let (Ok(role), Ok(dir)) = (std::env::var(ROLE), std::env::var(DIR)) else {
        return;
    };
    let dir = PathBuf::from(dir);
    match role.as_str() {
        "flood" => flood(&dir),
        "serve" => ports::serve(&dir),
        "full" => full_file_system(&dir),
        "read-only" => {
            println!("outcome {}", join_as(&dir, 1).map(|member| member.slot()).unwrap_err());
        }
        other => panic!("no role {other}"),
    }
}

/// Sends frames to slot 0 until it is killed.
fn flood(dir: &Path) {
    let mut member = join_as(dir, 2).unwrap();
    println!("joined {}", member.slot());
    let mut frame = vec![0; FRAME_MAX];
    for tag in 0.. {
        frame.fill(tag as u8);
        let len = 1 + tag as usize % FRAME_MAX;
        while member.send(0, &frame[..len], tag) != Sent::Done {
            member.flush();
            thread::yield_now();
        }
        member.flush();
    }
}

#[test]
fn killed_members_leave_nothing() {
    const ROUNDS: u32 = 200;
    let dir = TempDir::new();
    let mut own = join(&dir, 1);
    let files_before = fs::read_dir("/proc/self/fd").unwrap().count();
    let mut frame = [0; FRAME_MAX];
    for round in 0..ROUNDS {
        let mut other = start("flood", &dir.0);
        let slot: u8 = line_of(&mut other, "joined ").unwrap().parse().unwrap();
        assert_eq!(own.send(slot, b"frame", 0), Sent::Done);
        // Some are killed with their frames flowing, some before a ring that is full.
        for tag in 0..round % 7 * 50 {
            while own.pending() == 0 {
                thread::yield_now();
            }
            while let Some(received) = own.receive(&mut frame, true) {
                assert_eq!(received.len, 1 + received.tag as usize % FRAME_MAX);
                let fill = received.tag as u8;
                assert!(frame[..received.len].iter().all(|&byte| byte == fill));
                if received.tag > tag {
                    break;
                }
            }
        }
        kill(other);
        // What it had begun to send is skipped, all else arrives.
        assert!(eventually(|| {
            while own.receive(&mut frame, true).is_some() {}
            own.pending() == 0
        }));
        assert!(eventually(|| {
            own.reap();
            own.send(slot, b"frame", 0) == Sent::Gone
        }));
        assert_eq!(dir.files(), BTreeSet::from(["registry".into(), "member-0".into()]));
    }
    // Children of other tests in this process may have some open just now.
    assert!(eventually(|| fs::read_dir("/proc/self/fd").unwrap().count() < files_before + 50));
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let name = dir.0.to_str().unwrap();
    assert!(maps.lines().filter(|line| line.contains(name)).count() <= 3);
    assert_eq!(own.send(0, b"still works", 1), Sent::Done);
    assert_eq!(take(&mut own), Some((b"still works".to_vec(), 1)));
}

#[test]
fn death_is_noticed_by_who_joins_and_who_finds_the_ring_full() {
    let dir = TempDir::new();
    let mut own = join(&dir, 1);
    let mut other = start("flood", &dir.0);
    assert_eq!(line_of(&mut other, "joined ").unwrap(), "1");
    kill(other);
    assert!(eventually(|| {
        while own.send(1, b"frame", 0) == Sent::Done {}
        own.send(1, b"frame", 0) == Sent::Gone
    }));

    let mut other = start("flood", &dir.0);
    assert_eq!(line_of(&mut other, "joined ").unwrap(), "2");
    assert_eq!(own.send(2, b"frame", 0), Sent::Done);
    kill(other);
    assert!(eventually(|| {
        drop(join(&dir, 3));
        own.send(2, b"frame", 0) == Sent::Gone
    }));
}

/// Runs a child with a file system of its own at `dir`, mounted by `mount`. None, with the reason
/// printed, if that is not allowed here.
fn in_own_file_system(role: &str, dir: &TempDir, mount: &str) -> Option<String> {
    fs::create_dir(&dir.0).unwrap();
    let exe = std::env::current_exe().unwrap();
    let script =
        format!("{mount} && exec \"$EXE\" --exact fabric::tests::child --ignored --nocapture");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env("EXE", exe)
        .env(ROLE, role)
        .env(DIR, &dir.0)
        .output();
    let stdout = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(_) => String::new(),
    };
    if !stdout.contains("running 1 test") {
        println!("skipped: cannot mount a file system in a namespace of its own here");
        return None;
    }
    Some(stdout)
}

fn full_file_system(dir: &Path) {
    let message = join_as(&dir.join("fabric"), 1).unwrap_err().to_string();
    println!("outcome {message}");
    let files = fs::read_dir(dir.join("fabric")).unwrap().count();
    println!("files {files}");
}

#[test]
fn full_file_system_is_an_error_that_names_file_and_size() {
    let mount = "mount -t tmpfs -o size=1m,mode=700 none \"$FERROCE_TEST_FABRIC_DIR\"";
    if let Some(output) = in_own_file_system("full", &TempDir::new(), mount) {
        let says = format!("fabric/member-0, which needs {} bytes", ring::FILE_LEN);
        assert!(output.contains(&says), "{output}");
        assert!(output.contains("files 1\n"), "{output}");
    }
    let mount = "mount -t tmpfs -o size=16k,mode=700 none \"$FERROCE_TEST_FABRIC_DIR\"";
    if let Some(output) = in_own_file_system("full", &TempDir::new(), mount) {
        assert!(output.contains("no space for"), "{output}");
        assert!(output.contains("fabric/registry, which needs"), "{output}");
    }
}

#[test]
fn read_only_file_system_is_an_error_that_says_so() {
    let mount = "mount -t tmpfs -o ro,mode=700 none \"$FERROCE_TEST_FABRIC_DIR\"";
    if let Some(output) = in_own_file_system("read-only", &TempDir::new(), mount) {
        assert!(output.contains("cannot be written to: name a fabric in a writable place"));
    }
}

/// Writes nonsense to random places of all files of the fabric until told to stop.
fn scribble(paths: &[PathBuf], seed: u64, stop: &AtomicBool) {
    let files: Vec<_> = paths
        .iter()
        .map(|path| fs::OpenOptions::new().read(true).write(true).open(path).unwrap())
        .collect();
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let file = &files[rng.below(files.len() as u64) as usize];
        let len = file.metadata().unwrap().len();
        // Half of it where the control words are.
        let at = if rng.chance(0.5) { rng.below(512) } else { rng.below(len) };
        let mut nonsense = [0; 8];
        rng.fill(&mut nonsense);
        let count = 8.min(len - at) as usize;
        file.write_all_at(&nonsense[..count], at).unwrap();
        if rng.chance(0.01) {
            thread::yield_now();
        }
    }
}

#[test]
fn scribbling_member_harms_nobody_elses_process() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    assert_eq!(a.send(1, b"frame", 0), Sent::Done);
    let paths: Vec<_> = dir.files().iter().map(|name| dir.0.join(name)).collect();
    let stop = AtomicBool::new(false);
    let mut frame = [0; FRAME_MAX];
    thread::scope(|scope| {
        let scribbler = scope.spawn(|| scribble(&paths, 3, &stop));
        for round in 0..100_000u32 {
            let len = 1 + round as usize % FRAME_MAX;
            let _ = a.send((round % 3) as u8, &[7; FRAME_MAX][..len], round);
            let _ = b.send((round % 5) as u8, &[7; FRAME_MAX][..len], round);
            let _ = a.route(gid(2), Qpn(round & 0xff_ffff), &[]);
            let _ = a.mac_of(gid(2));
            for member in [&mut a, &mut b] {
                let _ = member.pending();
                if let Some(received) = member.receive(&mut frame, true) {
                    assert!((1..=FRAME_MAX).contains(&received.len));
                }
            }
            if round % 1024 == 0 {
                a.flush();
                b.reap();
                // May fail with any error, but with an error.
                let _ = join_as(&dir.0, 3);
            }
        }
        stop.store(true, Ordering::Relaxed);
        scribbler.join().unwrap();
    });
}
