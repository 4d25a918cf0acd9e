//! What an engine makes of what its fabric's gateway tells of the port.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ferroce::engine::{AsyncEvent, AsyncQueue, Engine, Options, Subject};
use ferroce::fabric::{FabricPort, GatewayNote, Member};
use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::EventKind;
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};

struct Fabric(PathBuf);

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, last).into()
}

fn entry(gid: Gid) -> GidEntry {
    GidEntry { gid, gid_type: GidType::RoceV2, mac: Mac([2, 0, 10, 9, 0, 1]), vlan: None }
}

fn note(addresses: &[IpAddr]) -> GatewayNote {
    GatewayNote {
        link: "packet:eth0".to_owned(),
        addresses: addresses.to_vec(),
        mtu: 4096,
        line_rate: None,
        v1: false,
    }
}

/// An engine that nobody drives.
struct Node {
    engine: Engine,
    events: Arc<AsyncQueue>,
}

impl Node {
    fn open(fabric: &Fabric, follows: Option<usize>) -> Node {
        let link_local = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0xff, 0xfe, 9, 0, 1]);
        let gids = [entry(link_local), entry(Gid::from_ip(address(1)))];
        let options = Options { follows, ..Options::plain(&fabric.0, &gids) };
        let engine = Engine::open(&options).unwrap();
        let events = Arc::new(AsyncQueue::new().unwrap());
        engine.add_context(events.clone()).unwrap();
        Node { engine, events }
    }

    /// Waits for the next event.
    fn hears(&self, kind: EventKind) {
        assert_eq!(self.events.pop().unwrap(), AsyncEvent { kind, subject: Subject::Port });
    }

    fn address(&self) -> IpAddr {
        let gids = self.engine.gids().unwrap();
        assert_eq!(gids.len(), 2);
        gids[1].gid.to_ip()
    }
}

#[test]
fn engines_that_sleep_hear_of_link_and_address() {
    let fabric = Fabric(std::env::temp_dir().join(format!("ferroce-port-{}", std::process::id())));
    let mut gateway = Member::join_as_gateway(&fabric.0).unwrap();
    gateway.set_note(&note(&[address(1)])).unwrap();
    let mut port = FabricPort::open(&fabric.0, &gateway).unwrap();
    port.set_active(false);
    let (follower, other) = (Node::open(&fabric, Some(0)), Node::open(&fabric, None));
    // What was so before a program came is no event.
    assert!(!follower.engine.port().unwrap().active);
    assert_eq!(follower.events.try_pop(), None);

    for active in [true, false, true] {
        port.set_active(active);
        for node in [&follower, &other] {
            node.hears(if active { EventKind::PortActive } else { EventKind::PortErr });
            assert_eq!(node.engine.port().unwrap().active, active);
        }
    }

    port.set_note(&note(&[address(2)])).unwrap();
    follower.hears(EventKind::GidChange);
    follower.hears(EventKind::GidChange);
    assert_eq!(follower.address(), address(2));
    // So the fabric finds both where they are.
    let found = [1, 2].map(|last| gateway.mac_of(Gid::from_ip(address(last))).is_some());
    assert_eq!(found, [true, true]);
    // Nothing to follow: the same, none, and what is no address of a host.
    for addresses in [&[address(2)][..], &[], &[Ipv4Addr::new(224, 0, 0, 1).into()]] {
        port.set_note(&note(addresses)).unwrap();
        assert_eq!(follower.address(), address(2));
    }
    assert_eq!(other.address(), address(1));
    assert_eq!(other.events.try_pop(), None);
}
