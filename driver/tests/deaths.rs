//! What the death of its peers leaves a process with: nothing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::config::Settings;
use ferroce::verbs::{Access, QpType, WcStatus};
use ferroce::{
    ConnectOptions, Context, Cq, Endpoint, Mr, Pd, Qp, QpOptions, RemoteRegion, SendRequest,
};

/// Where a child finds the fabric.
const FOLDER: &str = "FERROCE_TEST_FOLDER";
const LEN: usize = 64 << 10;
const LONG: Duration = Duration::from_secs(20);

struct Host {
    // Objects before those they are made of.
    mr: Mr,
    cq: Cq,
    pd: Pd,
}

impl Host {
    fn open(folder: &Path, addr: &str) -> Host {
        let mut settings = Settings::default();
        settings.addr = vec![addr.parse().unwrap()];
        settings.fabric = folder.join("fabric");
        let pd = Context::open(&settings).unwrap().alloc_pd().unwrap();
        let cq = pd.context().create_cq(256).unwrap();
        let mr = pd.register_zeroed(LEN, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        Host { mr, cq, pd }
    }

    fn qp(&self) -> Qp {
        self.pd.create_qp(&QpOptions::new(QpType::Rc, &self.cq)).unwrap()
    }

    /// What a peer needs to connect and to write here, as a line.
    fn card(&self, qp: &Qp) -> String {
        let RemoteRegion { addr, rkey, len } = self.mr.remote();
        format!("card {} {addr} {rkey} {len}", qp.endpoint())
    }

    /// Writes to a peer until that fails, and says how.
    fn write_on(&self, qp: &Qp, remote: RemoteRegion) -> WcStatus {
        let slices = [self.mr.slice(..).unwrap()];
        loop {
            qp.post_send(&SendRequest::write(0, &slices, remote)).unwrap();
            let status = self.cq.wait(LONG).unwrap().wc.status;
            if status != WcStatus::Success {
                return status;
            }
        }
    }
}

/// Connects to the peer of a card.
fn connect(qp: &Qp, card: &str) -> RemoteRegion {
    let words: Vec<&str> = card.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let peer: Endpoint = words[1].parse().unwrap();
    let options = ConnectOptions { timeout: 8, retry_cnt: 2, ..ConnectOptions::default() };
    qp.connect(&peer, &options).unwrap();
    RemoteRegion { addr: number(2), rkey: number(3) as u32, len: number(4) }
}

fn start_child(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Writes to whoever it is told of until it is killed; nothing by itself.
#[test]
#[ignore = "is started by another test"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let host = Host::open(Path::new(&folder), "192.0.2.2");
    let qp = host.qp();
    println!("\n{}", host.card(&qp));
    let mut card = String::new();
    std::io::stdin().read_line(&mut card).unwrap();
    let remote = connect(&qp, &card);
    host.write_on(&qp, remote);
}

/// What a process holds.
#[derive(Debug)]
struct Holdings {
    files: usize,
    threads: usize,
    /// Rings that are mapped: its own, and those of others.
    rings: usize,
    /// Memory of its own, in KiB.
    own_kib: u64,
}

fn holdings() -> Holdings {
    let count = |name: &str| fs::read_dir(Path::new("/proc/self").join(name)).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("/member-")).count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let own_kib = own.trim().trim_end_matches(" kB").parse().unwrap();
    Holdings { files: count("fd"), threads: count("task"), rings, own_kib }
}

#[test]
fn a_survivor_of_two_hundred_deaths_holds_what_it_held_after_fifty() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let host = Host::open(folder.path(), "192.0.2.1");
    let mut after_fifty = None;
    for round in 0..200 {
        survive(folder.path(), &host, Duration::from_micros(round * 7919 % 5_000));
        if round == 49 {
            after_fifty = Some(holdings());
        }
    }
    // The dead are looked for once a second, and by nobody but the survivor.
    let deadline = Instant::now() + LONG;
    while holdings().rings > 1 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let (before, after) = (after_fifty.unwrap(), holdings());
    assert_eq!((after.files, after.threads), (before.files, before.threads));
    assert_eq!(after.rings, 1, "its own: {before:?} {after:?}");
    // A page of each would be twice that.
    assert!(after.own_kib < before.own_kib + 300, "{before:?} {after:?}");
}

/// Writes to a peer that writes back, and is killed so long after it could begin to.
fn survive(folder: &Path, host: &Host, after: Duration) {
    let mut child = start_child(folder);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let card = lines.find(|line| line.starts_with("card")).unwrap();
    let qp = host.qp();
    let remote = connect(&qp, &card);
    writeln!(child.stdin.as_mut().unwrap(), "{}", host.card(&qp)).unwrap();
    let killer = thread::spawn(move || {
        thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    assert_eq!(host.write_on(&qp, remote), WcStatus::RetryExcErr);
    killer.join().unwrap();
}
