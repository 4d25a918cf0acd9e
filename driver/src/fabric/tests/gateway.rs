//! A gateway among the members.

use super::*;
use crate::fabric::GatewayNote;

fn note() -> GatewayNote {
    let addresses = vec!["10.0.0.1".parse().unwrap()];
    GatewayNote { link: "packet:eth0".to_owned(), addresses, mtu: 1024, v1: false }
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
    assert_eq!(from_link.route(gid(1), own_qpn(&a), &[]), Route::Member(a.slot()));
    assert_eq!(from_link.route(gid(1), Qpn::GSI, &[]), Route::Member(a.slot()));
    assert_eq!(from_link.route(gid(9), far, &[]), Route::Unreachable);

    drop(gateway);
    assert_eq!(a.route(gid(9), far, &[]), Route::Unreachable);
}

#[test]
fn groups_are_also_the_gateways() {
    let dir = TempDir::new();
    let (mut a, b) = (join(&dir, 1), join(&dir, 2));
    b.set_multicast(true);
    let gateway = Member::join_as_gateway(&dir.0).unwrap();
    let mut from_link = Member::join_from_link(&dir.0).unwrap();
    let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
    let slots = |member: &mut Member| match member.route(group, Qpn::MULTICAST, &[]) {
        Route::Members(slots) => slots.iter().collect::<Vec<u8>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(slots(&mut a), [b.slot(), gateway.slot()]);
    assert_eq!(slots(&mut from_link), [b.slot()]);
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
