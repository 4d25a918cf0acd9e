//! Ports: who may bind what beside whom, and to whom requests go.

use std::net::IpAddr;

use ferroce_stack::mad::{PortSpace, ServiceId};
use ferroce_stack::wire::{CmMessage, Mad};

use super::*;

const ANY: Binding = Binding { service: 0, address: ANY_ADDRESS, reuse: false, listening: false };

fn tcp(port: u16) -> u64 {
    ServiceId::new(PortSpace::Tcp, port).0
}

fn at(address: &str) -> Gid {
    match address {
        "*" => ANY_ADDRESS,
        "::" => ANY_IPV6,
        address => Gid::from_ip(address.parse().unwrap()),
    }
}

fn binding(port: u16, address: &str, reuse: bool) -> Binding {
    Binding { service: tcp(port), address: at(address), reuse, listening: false }
}

fn listen(member: &mut Member, port: u16, address: &str) -> Bound {
    let bound = member.bind(&binding(port, address, false)).unwrap();
    member.listen(&bound).unwrap();
    bound
}

/// Where a request for a port goes, without an address in it.
fn route_of(member: &mut Member, host: u8, port: u16) -> Route {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, Mad::COMMUNICATION, 2, 3]);
    mad[16..18].copy_from_slice(&CmMessage::Req.attribute_id().to_be_bytes());
    mad[32..40].copy_from_slice(&tcp(port).to_be_bytes());
    // No IP header: its version is unknown.
    mad[164] = 0xff;
    member.route(gid(host), Qpn::GSI, &mad)
}

#[test]
fn processes_of_a_host_share_its_ports() {
    // Address and whether it says that others may have the same; of both, and whether they meet.
    let table = [
        (("*", false), ("*", false), true),
        (("*", false), ("10.0.0.1", false), true),
        (("10.0.0.1", false), ("*", false), true),
        (("10.0.0.1", false), ("10.0.0.1", false), true),
        (("10.0.0.1", false), ("127.0.0.1", false), false),
        (("0.0.0.0", false), ("10.0.0.1", false), true),
        (("0.0.0.0", false), ("::", false), false),
        (("::", false), ("fd00::1", false), true),
        (("::", false), ("10.0.0.1", false), false),
        (("*", false), ("0.0.0.0", false), true),
        (("*", true), ("*", true), false),
        (("*", true), ("*", false), true),
        (("*", false), ("*", true), true),
    ];
    let dir = TempDir::new();
    let (mut a, mut b, mut other) = (join(&dir, 1), join(&dir, 1), join(&dir, 2));
    for (row, (first, second, meet)) in table.into_iter().enumerate() {
        let held = a.bind(&binding(7471, first.0, first.1)).unwrap();
        let wanted = binding(7471, second.0, second.1);
        for member in [&mut a, &mut b] {
            match member.bind(&wanted) {
                Ok(bound) => {
                    assert!(!meet, "row {row}");
                    member.release(bound);
                }
                Err(error) => assert_eq!((error, meet), (ClaimError::InUse, true), "row {row}"),
            }
        }
        // Another port, space or host.
        let udp = Binding { service: ServiceId::new(PortSpace::Udp, 7471).0, ..wanted };
        let elsewhere = [b.bind(&Binding { service: tcp(7472), ..wanted }), b.bind(&udp)];
        for bound in elsewhere {
            b.release(bound.unwrap());
        }
        let bound = other.bind(&wanted).unwrap();
        other.release(bound);
        a.release(held);
    }
}

#[test]
fn of_those_who_share_a_port_one_listens() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 1));
    let shared = binding(7471, "*", true);
    let (of_a, of_b) = (a.bind(&shared).unwrap(), b.bind(&shared).unwrap());
    a.listen(&of_a).unwrap();
    a.listen(&of_a).unwrap();
    assert_eq!(b.listen(&of_b), Err(ClaimError::InUse));
    assert_eq!(b.bind(&shared).unwrap_err(), ClaimError::InUse);
    a.release(of_a);
    b.listen(&of_b).unwrap();
}

#[test]
fn ephemeral_ports_are_nobody_elses() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 1));
    let any = Binding { service: tcp(0), reuse: true, ..ANY };
    let mut ports = BTreeSet::new();
    let held: Vec<Bound> = (0..1000)
        .flat_map(|_| [a.bind(&any).unwrap(), b.bind(&any).unwrap()])
        .inspect(|bound| {
            let service = ServiceId(bound.service());
            assert_eq!(service.space(), Some(PortSpace::Tcp));
            assert!((32_768..61_000).contains(&service.port().unwrap()));
            assert!(ports.insert(service));
        })
        .collect();
    // One given up does not come back at once.
    for _ in 0..100 {
        let bound = a.bind(&any).unwrap();
        assert!(ports.insert(ServiceId(bound.service())));
        a.release(bound);
    }
    assert_eq!(held.len(), 2000);
}

#[test]
fn who_joins_or_binds_keeps_others_waiting_and_not_for_ever() {
    let dir = TempDir::new();
    let mut a = join(&dir, 1);
    let bound = a.bind(&binding(7471, "*", false)).unwrap();
    let (registry, lock) = registry::Registry::open(&dir.0).unwrap();
    assert_eq!(a.bind(&binding(7472, "*", false)).unwrap_err(), ClaimError::Busy);
    assert_eq!(a.listen(&bound), Err(ClaimError::Busy));
    drop((lock, registry));
    a.listen(&bound).unwrap();
}

#[test]
fn listeners_are_seen_from_outside() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    let _silent = a.bind(&binding(7470, "*", false)).unwrap();
    let gone = listen(&mut a, 7471, "*");
    listen(&mut a, 7472, "10.0.0.1");
    listen(&mut b, 7472, "::");
    listen(&mut b, 7473, "*");
    a.release(gone);
    let seen = observe(&dir.0).unwrap().listening();
    let seen: Vec<_> = seen
        .iter()
        .map(|listener| (listener.process.slot, listener.service.port(), listener.address))
        .collect();
    let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    assert_eq!(
        seen,
        [(0, Some(7472), ip("10.0.0.1")), (1, Some(7472), ip("::")), (1, Some(7473), None)]
    );
}

#[test]
fn requests_find_the_process_that_listens() {
    let dir = TempDir::new();
    let (mut client, mut a, mut b) = (join(&dir, 1), join(&dir, 1), join(&dir, 2));
    a.serve_connections();
    listen(&mut b, 7471, "*");
    let bound = listen(&mut client, 7471, "*");
    // The client itself, the other host, nobody: who can say so.
    assert_eq!(route_of(&mut client, 1, 7471), Route::Own);
    assert_eq!(route_of(&mut client, 2, 7471), Route::Member(2));
    assert_eq!(route_of(&mut client, 1, 7472), Route::Member(1));
    assert_eq!(route_of(&mut client, 3, 7471), Route::Unreachable);
    client.release(bound);
    let bound = listen(&mut a, 7471, "10.0.0.1");
    assert_eq!(route_of(&mut client, 1, 7471), Route::Member(1));
    assert_eq!(route_of(&mut b, 1, 7471), Route::Member(1));
    a.release(bound);
    drop(a);
    assert_eq!(route_of(&mut b, 1, 7471), Route::Member(0));
    assert!((b.reaches(gid(1)), b.reaches(gid(2)), b.reaches(gid(3))) == (true, true, false));
}

/// Listens until it is killed.
pub fn serve(dir: &Path) {
    let mut member = join_as(dir, 1).unwrap();
    let _bound = listen(&mut member, 7471, "*");
    println!("joined {}", member.slot());
    loop {
        thread::park();
    }
}

#[test]
fn ports_of_a_killed_process_are_free() {
    let dir = TempDir::new();
    let mut own = join(&dir, 1);
    let mut other = start("serve", &dir.0);
    assert_eq!(line_of(&mut other, "joined ").unwrap(), "1");
    assert!(dir.files().contains("ports-1"));
    assert_eq!(own.bind(&binding(7471, "*", false)).unwrap_err(), ClaimError::InUse);
    assert_eq!(route_of(&mut own, 1, 7471), Route::Member(1));
    let generation = own.generation_at(1, gid(1)).unwrap();
    assert!(own.is_alive(1, generation) && !own.is_alive(1, generation + 2));
    kill(other);
    assert!(eventually(|| !own.is_alive(1, generation)));
    // No request goes to the dead, whether or not somebody has swept.
    assert_eq!(route_of(&mut own, 1, 7471), Route::Own);
    listen(&mut own, 7471, "*");
    let expected = ["registry", "member-0", "ports-0"].map(Into::into);
    assert_eq!(dir.files(), BTreeSet::from(expected));
}

#[test]
fn table_of_another_generation_or_size_is_not_believed() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 1));
    listen(&mut b, 7471, "*");
    let path = dir.0.join("ports-1");
    let whole = fs::read(&path).unwrap();
    for content in [&whole[..4096], &[], &vec![0; whole.len()]] {
        fs::remove_file(&path).unwrap();
        fs::write(&path, content).unwrap();
        assert_eq!(route_of(&mut a, 1, 7471), Route::Own);
        let bound = a.bind(&binding(7471, "*", false)).unwrap();
        a.release(bound);
    }
}

#[test]
fn scribbled_tables_harm_nobody() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 1));
    listen(&mut a, 7471, "*");
    listen(&mut b, 7472, "10.0.0.1");
    let paths = ["ports-0", "ports-1"].map(|name| dir.0.join(name));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let scribbler = scope.spawn(|| scribble(&paths, 5, &stop));
        let mut taken = 0;
        for round in 0..3000u16 {
            for member in [&mut a, &mut b] {
                // Whatever comes of it, but no panic, and no access out of bounds.
                let _ = route_of(member, 1, 7470 + round % 4);
                if let Ok(bound) = member.bind(&binding(round % 2 * 9000, "*", true)) {
                    taken += 1;
                    let _ = member.listen(&bound);
                    member.release(bound);
                }
            }
            let _ = observe(&dir.0).unwrap().listening();
        }
        stop.store(true, Ordering::Relaxed);
        scribbler.join().unwrap();
        println!("{taken} bound");
    });
}

#[test]
fn who_hears_that_a_member_has_gone_lets_go_of_its_files() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
    listen(&mut b, 7471, "*");
    b.set_groups(&[group]);
    assert_eq!(a.send(b.slot(), b"frame", 0), Sent::Done);
    a.flush();
    assert_eq!(route_of(&mut a, 2, 7471), Route::Member(b.slot()));
    assert_ne!(a.route(group, Qpn::MULTICAST, &[]), Route::Members(Slots::NONE));
    let gone = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_dir = |line: &&str| line.contains(dir.0.to_str().unwrap());
        maps.lines().filter(of_dir).filter(|line| line.ends_with("(deleted)")).count()
    };
    drop(b);
    assert_eq!(gone(), 3, "ring, ports and groups");
    assert!(a.has_news());
    a.hear();
    assert_eq!(gone(), 0);
}
