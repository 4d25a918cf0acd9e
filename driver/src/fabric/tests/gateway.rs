//! A gateway among the members.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::fabric::{FabricPort, GatewayNote, PortNews};

fn note() -> GatewayNote {
    let addresses = vec!["10.0.0.1".parse().unwrap()];
    GatewayNote { link: "packet:eth0".to_owned(), addresses, mtu: 1024, line_rate: None, v1: false }
}

#[test]
fn what_no_member_has_goes_to_the_gateway() {
    let dir = TempDir::new();
    let mut a = join(&dir, 1);
    let far = Qpn(a.qpns().start + 5);
    assert_eq!(a.route(gid(9), far, &[]), Route::Unreachable);
    assert!(!a.reaches(gid(9)));

    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    let mut from_link = Member::join_from_link(&dir.0).unwrap();
    assert_eq!(a.route(gid(9), far, &[]), Route::Member(gateway.slot()));
    assert_eq!(a.route(gid(9), Qpn::GSI, &[]), Route::Member(gateway.slot()));
    assert!(a.reaches(gid(9)));
    // An address of the fabric stays in the fabric, whatever the QPN.
    let nobodys = Qpn(own_qpn(&gateway).0);
    assert_eq!(a.route(gid(1), nobodys, &[]), Route::Unreachable);

    // What comes from the link goes to members, and never back.
    assert_eq!(from_link.route_from_link(gid(1), own_qpn(&a), &[]), Route::Member(a.slot()));
    assert_eq!(from_link.route_from_link(gid(1), Qpn::GSI, &[]), Route::Member(a.slot()));
    assert_eq!(from_link.route_from_link(gid(9), far, &[]), Route::Unreachable);

    drop(gateway);
    assert_eq!(a.route(gid(9), far, &[]), Route::Unreachable);
}

fn slots_of(slots: &[u8]) -> Route {
    let mut all = Slots::NONE;
    slots.iter().for_each(|&slot| all.insert(slot));
    Route::Members(all)
}

#[test]
fn groups_are_also_the_gateways() {
    let dir = TempDir::new();
    let (mut a, mut b) = (join(&dir, 1), join(&dir, 2));
    let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
    b.set_groups(&[group]);
    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    let mut from_link = Member::join_from_link(&dir.0).unwrap();
    let slots = |member: &mut Member| match member.route(group, Qpn::MULTICAST, &[]) {
        Route::Members(slots) => slots.iter().collect::<Vec<u8>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(slots(&mut a), [b.slot(), gateway.slot()]);
    assert_eq!(from_link.route_from_link(group, Qpn::MULTICAST, &[]), slots_of(&[b.slot()]));
}

#[test]
fn the_gateway_tells_of_its_link_and_is_told_of_groups() {
    let dir = TempDir::new();
    let mut a = join(&dir, 1);
    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    let mut port = FabricPort::open(&dir.0, &gateway).unwrap();
    let before = a.hear();
    assert!(before.is_active && !a.has_news());

    // Who sleeps is woken, and only then.
    a.wake_word().store(1, Ordering::SeqCst);
    port.set_active(false);
    assert_eq!(a.wake_word().load(Ordering::SeqCst), 0);
    assert!(a.has_news());
    assert_eq!(a.hear(), PortNews { is_active: false, ..before });
    port.set_note(&note()).unwrap();
    assert_eq!(a.hear(), PortNews { is_active: false, notes: before.notes + 1 });
    port.set_active(true);
    assert!(a.hear().is_active && !a.has_news());

    let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
    gateway.wake_word().store(1, Ordering::SeqCst);
    a.set_groups(&[group]);
    assert_eq!(gateway.wake_word().load(Ordering::SeqCst), 0);
    assert_eq!(port.groups().collect::<Vec<_>>(), [group]);
    drop(a);
    assert_eq!(port.groups().count(), 0);

    // A link ends with its gateway.
    let mut b = join(&dir, 2);
    port.set_active(false);
    assert!(!b.hear().is_active);
    drop(gateway);
    assert!(b.hear().is_active);
    port.set_active(false);
    assert!(b.hear().is_active);
}

#[test]
fn there_is_one_gateway_and_its_note_goes_with_it() {
    let dir = TempDir::new();
    assert_eq!(GatewayNote::read(&dir.0), None);
    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    gateway.set_note(&note()).unwrap();
    assert_eq!(GatewayNote::read(&dir.0), Some(note()));
    let second = Member::join_as_gateway(&dir.0);
    assert!(
        matches!(second, Err(FabricError::HasGateway { pid, .. }) if pid == std::process::id())
    );
    // A member in whose slot the gateway was takes no note with it.
    drop(gateway);
    assert_eq!(GatewayNote::read(&dir.0), None);
    let members: Vec<Member> = (0..MEMBERS).map(|_| join(&dir, 1)).collect();
    drop(members);
    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    gateway.set_note(&note()).unwrap();
    drop(join(&dir, 2));
    assert_eq!(GatewayNote::read(&dir.0), Some(note()));
}

#[test]
fn a_note_that_is_none_is_not_taken_for_one() {
    let dir = TempDir::new();
    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    for text in ["", "{}", "{\"link\": 1}"] {
        fs::write(dir.0.join("gateway"), text).unwrap();
        assert_eq!(GatewayNote::read(&dir.0), None, "{text:?}");
    }
    drop(gateway);
}

#[test]
fn a_member_that_sleeps_on_descriptors_is_woken_by_its_socket() {
    let dir = TempDir::new();
    // What a member left that died between two steps.
    fs::create_dir_all(&dir.0).unwrap();
    for slot in 0..3 {
        fs::write(dir.0.join(format!("wake-{slot}")), "no socket").unwrap();
    }
    let (owner, socket) = Member::join_with_link(&dir.0, &[entry(1)]).unwrap();
    let path = dir.0.join(format!("wake-{}", owner.slot()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let mut sender = join(&dir, 2);
    let is_woken = || {
        let mut waits = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let woken = poll(&mut waits, PollTimeout::ZERO).unwrap() == 1;
        socket.drain();
        woken
    };
    for (before, after, woken) in [(0, 0, false), (1, 0, true), (2, 2, false)] {
        owner.wake_word().store(before, Ordering::SeqCst);
        assert_eq!(sender.send(owner.slot(), b"frame", 0), Sent::Done);
        sender.flush();
        assert_eq!((owner.wake_word().load(Ordering::SeqCst), is_woken()), (after, woken));
    }
    drop(owner);
    assert!(!path.exists());
}

#[test]
fn a_gateway_with_addresses_sends_what_nobody_has_by_its_own_link() {
    let dir = TempDir::new();
    let (mut owner, _socket) = Member::join_with_link(&dir.0, &[entry(1)]).unwrap();
    let mut other = join(&dir, 2);
    let far = Qpn(other.qpns().start + 5);
    assert!(owner.is_gateway() && !other.is_gateway());
    assert_eq!(owner.route(gid(9), far, &[]), Route::Link);
    assert_eq!(other.route(gid(9), far, &[]), Route::Member(owner.slot()));
    assert_eq!(owner.route(gid(2), own_qpn(&other), &[]), Route::Member(other.slot()));
    let own = own_qpn(&owner);
    assert_eq!(owner.route(gid(1), own, &[]), Route::Own);
    assert_eq!(owner.route_from_link(gid(1), own, &[]), Route::Own);
    assert_eq!(owner.route_from_link(gid(9), far, &[]), Route::Unreachable);

    owner.set_note(&note()).unwrap();
    owner.resign();
    assert_eq!(
        (owner.route(gid(9), far, &[]), GatewayNote::read(&dir.0)),
        (Route::Unreachable, None)
    );
    assert!(Member::join_with_link(&dir.0, &[entry(3)]).is_ok());
}
