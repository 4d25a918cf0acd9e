//! Engines that own the link of their fabric: two fabrics of one process, joined by UDP on loopback,
//! which needs no rights.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use ferroce::config::Settings;
use ferroce::fabric::GatewayNote;
use ferroce::verbs::{Access, QpType, Wc, WcStatus};
use ferroce::{ConnectOptions, Context, Cq, Mr, Payload, Pd, Qp, QpOptions, SendRequest, identity};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(20);
/// Long enough for an engine with nothing to do to fall asleep; where it is not, less is tested.
const NAP: Duration = Duration::from_millis(5);
const BYTES: usize = 1 << 17;

/// An address of loopback that no other test or process has.
fn address() -> Ipv4Addr {
    static LAST: AtomicU8 = AtomicU8::new(100);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 1, low, LAST.fetch_add(1, Ordering::Relaxed))
}

/// A fabric with a network address.
struct Site {
    folder: TempDir,
    address: Ipv4Addr,
}

impl Site {
    fn new() -> Site {
        Site { folder: tempfile::tempdir_in("/dev/shm").unwrap(), address: address() }
    }

    fn fabric(&self) -> PathBuf {
        self.folder.path().join("fabric")
    }

    fn settings(&self, link: &str) -> Settings {
        let mut settings = Settings::default();
        settings.fabric = self.fabric();
        settings.link = Some(link.parse().unwrap());
        settings
    }

    /// A process of the fabric; the first has the link.
    fn open(&self) -> Host {
        Host::open(&self.settings(&format!("udp:{}", self.address)))
    }
}

/// A device with a domain, a CQ and registered memory.
struct Host {
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

impl Host {
    fn open(settings: &Settings) -> Host {
        let context = Context::open(settings).unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let mr = pd.register_zeroed(BYTES, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        Host { pd, cq, mr }
    }

    fn qp(&self) -> Qp {
        self.pd.create_qp(&QpOptions::new(QpType::Rc, &self.cq)).unwrap()
    }

    fn wait(&self) -> Wc {
        self.cq.wait(LONG).unwrap().ok().unwrap()
    }
}

fn connect(a: &Host, b: &Host) -> [Qp; 2] {
    let [qa, qb] = [a.qp(), b.qp()];
    qa.connect(&qb.endpoint(), &ConnectOptions::default()).unwrap();
    qb.connect(&qa.endpoint(), &ConnectOptions::default()).unwrap();
    [qa, qb]
}

/// Sends `len` bytes and checks that they have arrived.
fn send(from: &Host, by: &Qp, to: &Host, at: &Qp, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|index| (index * 7 + len) as u8).collect();
    from.mr.write_at(0, &bytes).unwrap();
    at.post_recv(1, &[to.mr.slice(..len).unwrap()]).unwrap();
    by.post_send(&SendRequest::send(2, &[from.mr.slice(..len).unwrap()])).unwrap();
    assert_eq!((to.wait().byte_len as usize, from.wait().wr_id), (len, 2));
    let mut arrived = vec![0; len];
    to.mr.read_at(0, &mut arrived).unwrap();
    assert!(arrived == bytes);
}

/// Writes to a host that does nothing by itself, and reads it back.
fn write_and_read(from: &Host, by: &Qp, to: &Host) {
    let half = BYTES / 2;
    let bytes: Vec<u8> = (0..half).map(|index| (index / 3) as u8).collect();
    from.mr.write_at(0, &bytes).unwrap();
    let remote = to.mr.remote().slice(..half).unwrap();
    by.post_send(&SendRequest::write(3, &[from.mr.slice(..half).unwrap()], remote)).unwrap();
    assert_eq!(from.wait().wr_id, 3);
    let into = [from.mr.slice(half..).unwrap()];
    by.post_send(&SendRequest::read(4, &into, remote)).unwrap();
    assert_eq!(from.wait().wr_id, 4);
    let mut back = vec![0; half];
    from.mr.read_at(half, &mut back).unwrap();
    assert!(back == bytes);
}

#[test]
fn two_fabrics_reach_each_other() {
    let sites = [Site::new(), Site::new()];
    let [a, b] = [sites[0].open(), sites[1].open()];
    let [qa, qb] = connect(&a, &b);
    for len in [1, 100, 4096, 4097, 50_000] {
        send(&a, &qa, &b, &qb, len);
        send(&b, &qb, &a, &qa, len);
    }
    write_and_read(&a, &qa, &b);
    write_and_read(&b, &qb, &a);
}

#[test]
fn what_comes_by_the_link_wakes_who_sleeps() {
    let sites = [Site::new(), Site::new()];
    let [a, b] = [sites[0].open(), sites[1].open()];
    let [qa, qb] = connect(&a, &b);
    for _ in 0..20 {
        thread::sleep(NAP);
        // Nobody there polls.
        write_and_read(&a, &qa, &b);
        qb.post_recv(1, &[b.mr.slice(..64).unwrap()]).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(b.wait().wr_id, 1));
            thread::sleep(NAP);
            qa.post_send(&SendRequest::send(2, Payload::Inline(b"wake up"))).unwrap();
            a.wait();
        });
    }
}

#[test]
fn a_member_wakes_an_engine_that_sleeps_on_its_link() {
    let site = Site::new();
    let [owner, member] = [site.open(), site.open()];
    let [_kept, qm] = connect(&owner, &member);
    for _ in 0..20 {
        thread::sleep(NAP);
        write_and_read(&member, &qm, &owner);
    }
}

#[test]
fn members_reach_the_network_through_the_one_that_has_the_link() {
    let sites = [Site::new(), Site::new()];
    let [_owner, member, far] = [sites[0].open(), sites[0].open(), sites[1].open()];
    let [qm, qf] = connect(&member, &far);
    for _ in 0..5 {
        send(&member, &qm, &far, &qf, 50_000);
        send(&far, &qf, &member, &qm, 50_000);
        thread::sleep(NAP);
        write_and_read(&far, &qf, &member);
    }
}

#[test]
fn when_the_owner_ends_the_others_lose_the_network_until_there_is_a_new_one() {
    let sites = [Site::new(), Site::new()];
    let [owner, member, far] = [sites[0].open(), sites[0].open(), sites[1].open()];
    let [qm, qf] = connect(&member, &far);
    send(&member, &qm, &far, &qf, 100);
    drop(owner);
    assert_eq!(GatewayNote::read(&sites[0].fabric()), None);
    qm.post_send(&SendRequest::send(5, Payload::Inline(b"lost"))).unwrap();
    assert_eq!(member.cq.wait(LONG).unwrap().wc.status, WcStatus::RetryExcErr);

    let _owner = sites[0].open();
    let [qm, qf] = connect(&member, &far);
    send(&member, &qm, &far, &qf, 100);
    send(&far, &qf, &member, &qm, 100);
}

/// The wake socket of the only member of a fabric that has one.
fn wake_socket(fabric: &Path) -> PathBuf {
    let entries = std::fs::read_dir(fabric).unwrap().map(|entry| entry.unwrap());
    let is_one = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("wake-");
    entries.map(|entry| entry.path()).find(|path| path.file_name().is_some_and(is_one)).unwrap()
}

#[test]
fn garbage_and_floods_at_the_wake_socket_do_no_harm() {
    let sites = [Site::new(), Site::new()];
    let [a, member, b] = [sites[0].open(), sites[0].open(), sites[1].open()];
    let [qa, qb] = connect(&a, &b);
    let [_kept, qm] = connect(&a, &member);
    let socket = wake_socket(&sites[0].fabric());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for len in [0, 1, 100, 1 << 16] {
            let (socket, done) = (&socket, &done);
            scope.spawn(move || {
                let flood = UnixDatagram::unbound().unwrap();
                flood.set_nonblocking(true).unwrap();
                flood.connect(socket).unwrap();
                let bytes = vec![0xee; len];
                while !done.load(Ordering::Relaxed) {
                    // A full one is the point.
                    if flood.send(&bytes).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..10 {
            write_and_read(&b, &qb, &a);
            write_and_read(&a, &qa, &b);
            thread::sleep(NAP);
            write_and_read(&member, &qm, &a);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_wake_socket_that_somebody_has_removed_delays_what_comes_later_but_loses_nothing() {
    let site = Site::new();
    let owner = site.open();
    std::fs::remove_file(wake_socket(&site.fabric())).unwrap();
    let member = site.open();
    let [_kept, qm] = connect(&owner, &member);
    for _ in 0..3 {
        thread::sleep(NAP);
        write_and_read(&member, &qm, &owner);
    }
}

#[test]
fn devices_are_the_same_before_and_after_their_link_is_opened() {
    let site = Site::new();
    let settings = site.settings(&format!("udp:{}", site.address));
    let before = identity::devices(&settings).unwrap();
    assert_eq!(before[0].gids[1].gid, ferroce::Gid::from(site.address));
    let context = Context::open(&settings).unwrap();
    assert_eq!(identity::devices(&settings).unwrap(), before);
    let note = GatewayNote::read(&site.fabric()).unwrap();
    assert_eq!((note.addresses, note.mtu), (vec![site.address.into()], 4096));
    drop(context);
    assert_eq!(identity::devices(&settings).unwrap(), before);
}

#[test]
fn a_link_that_cannot_be_opened_is_why_the_device_cannot() {
    let site = Site::new();
    let settings = site.settings("udp:203.0.113.9");
    let error = Context::open(&settings).unwrap_err().to_string();
    assert!(error.contains("udp:203.0.113.9: no interface of this machine has"), "{error}");
    // It has left nothing in the fabric: the next has its link.
    let _host = site.open();
    assert!(GatewayNote::read(&site.fabric()).is_some());
}
