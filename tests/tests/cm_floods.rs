//! What a peer, or somebody in the name of many, can make grow is bounded.

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::{Dreq, MAD_LEN, Message, Rej, Rep, Req, SidrReq};
use ferroce_stack::mad::{
    Accept, Cm, CmConfig, CmEventKind, Connect, Path, PortSpace, RejReason, ServiceId, SidrAccept,
};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::Qpn;
use ferroce_tests::cm::{Datagram, Pair, SERVICE, UDP_SERVICE, accept, config, connect, ip};

const FLOOD: u32 = 50_000;
const BACKLOG: u32 = 16;
/// Datagrams that may wait to be sent.
const SEND_QUEUE: u64 = 4096;

/// Host 2, whose owner has not looked yet.
fn host() -> Cm {
    let mut cm = Cm::new(config(2));
    cm.listen(SERVICE, None, BACKLOG, 0).unwrap();
    cm.listen(UDP_SERVICE, None, BACKLOG, 0).unwrap();
    cm
}

/// The path to the sender of the `n`th spoofed datagram.
fn spoofed(n: u32) -> Path {
    let [.., a, b, c] = n.to_be_bytes();
    Path {
        sgid: Gid::from_ip([10, 0, 0, 2].into()),
        dgid: Gid::from_ip([11, a, b, c].into()),
        ..Path::default()
    }
}

fn with_ip<M: Message>(message: &M) -> Datagram {
    let mut private_data = [0; 36];
    ip().emit(&mut private_data);
    message.datagram(1, &private_data).unwrap()
}

fn req(n: u32) -> Datagram {
    with_ip(&Req {
        local_comm_id: n + 1,
        service: SERVICE,
        local_ca_guid: u64::from(n),
        local_qpn: n,
        path_mtu: 3,
        ..Req::default()
    })
}

fn sidr_req(n: u32) -> Datagram {
    with_ip(&SidrReq { request_id: n + 1, pkey: 0xffff, service: UDP_SERVICE })
}

/// Each datagram comes from another address.
fn flood(cm: &mut Cm, datagram: fn(u32) -> [u8; MAD_LEN]) {
    for n in 0..FLOOD {
        cm.handle_mad(Instant::ZERO, &spoofed(n), &datagram(n));
    }
}

fn events(cm: &mut Cm) -> usize {
    std::iter::from_fn(|| cm.poll_event()).count()
}

fn sent(cm: &mut Cm) -> u64 {
    std::iter::from_fn(|| cm.poll_transmit()).count() as u64
}

#[test]
fn a_flood_of_requests_fills_the_backlog_and_no_more() {
    let mut cm = host();
    flood(&mut cm, req);
    assert_eq!(cm.len(), BACKLOG as usize);
    assert_eq!(events(&mut cm), BACKLOG as usize);
    assert_eq!(sent(&mut cm), SEND_QUEUE, "rejects");
    let counters = cm.counters();
    assert_eq!(counters.no_room, u64::from(FLOOD - BACKLOG));
    assert_eq!(counters.send_queue_full, u64::from(FLOOD - BACKLOG) - SEND_QUEUE);
    // Duplicates are asked to wait, also no more than fit.
    for _ in 0..2 * SEND_QUEUE {
        cm.handle_mad(Instant::ZERO, &spoofed(0), &req(0));
    }
    assert_eq!(sent(&mut cm), SEND_QUEUE);
    assert_eq!((cm.len(), events(&mut cm)), (BACKLOG as usize, 0));
}

#[test]
fn requests_taken_back_keep_their_places_until_their_owner_looks() {
    let mut cm = host();
    for n in 0..FLOOD {
        cm.handle_mad(Instant::ZERO, &spoofed(0), &req(n));
        let rej = Rej {
            local_comm_id: n + 1,
            remote_comm_id: 0,
            rejected: Rej::OTHER,
            ari_len: 8,
            reason: RejReason::TIMEOUT,
            ari: std::array::from_fn(|at| u64::from(n).to_be_bytes().get(at).copied().unwrap_or(0)),
        };
        cm.handle_mad(Instant::ZERO, &spoofed(0), &rej.datagram(1, &[]).unwrap());
    }
    assert_eq!(cm.len(), BACKLOG as usize);
    assert_eq!(events(&mut cm), 2 * BACKLOG as usize);
}

#[test]
fn a_request_in_hand_leaves_room_for_another() {
    let mut pair = Pair::default();
    pair.passive.cm.listen(ServiceId(77), None, 1, 44).unwrap();
    let ask = |pair: &mut Pair, n: u32| {
        let asked = Connect { service: ServiceId(77), qpn: Qpn(0x1000 + n), ..connect(b"") };
        pair.active.cm.connect(pair.now, &asked).unwrap();
        pair.exchange();
    };
    for n in 0..3 {
        ask(&mut pair, n);
        let id = pair.passive.event().id;
        pair.passive.cm.take(id);
        // It is counted once.
        pair.passive.cm.take(id);
        if n == 1 {
            pair.passive.cm.destroy(pair.now, id);
        }
        pair.exchange();
    }
    pair.active.events();
    ask(&mut pair, 3);
    ask(&mut pair, 4);
    let CmEventKind::Rejected { reason, .. } = pair.active.event().kind else { panic!() };
    assert_eq!(reason, RejReason::NO_RESOURCES);
}

#[test]
fn a_flood_of_resolutions_fills_the_backlog_and_no_more() {
    let mut cm = host();
    flood(&mut cm, sidr_req);
    assert_eq!((cm.len(), events(&mut cm)), (BACKLOG as usize, BACKLOG as usize));
    assert_eq!(sent(&mut cm), 0, "who is not heard asks again");
    assert_eq!(cm.counters().no_room, u64::from(FLOOD - BACKLOG));
}

#[test]
fn an_owner_who_accepts_all_holds_as_many_as_configured() {
    let mut cm = Cm::new(CmConfig { max_connections: 1000, ..config(2) });
    cm.listen(SERVICE, None, BACKLOG, 0).unwrap();
    cm.listen(UDP_SERVICE, None, BACKLOG, 0).unwrap();
    let mut now = Instant::ZERO;
    for n in 0..10_000 {
        cm.handle_mad(now, &spoofed(n), &req(n));
        cm.handle_mad(now, &spoofed(n), &sidr_req(n));
        while let Some(event) = cm.poll_event() {
            match event.kind {
                CmEventKind::Request(_) => cm.accept(now, event.id, &accept(b"")).unwrap(),
                CmEventKind::SidrRequest(_) => {
                    let answer = SidrAccept { status: 0, qpn: Qpn(3), qkey: 1, private_data: &[] };
                    cm.answer(event.id, &answer).unwrap();
                }
                _ => {}
            }
        }
        sent(&mut cm);
        assert!(cm.len() <= 875, "peers take seven eighths");
    }
    cm.connect(now, &connect(b"")).expect("there is room for what this side starts");
    // Nobody answers; after the last resend all is free.
    while let Some(next) = cm.poll_timeout() {
        now = next;
        cm.handle_timeout(now);
        sent(&mut cm);
    }
    assert!(cm.is_empty());
}

#[test]
fn answers_to_nobody_are_bounded() {
    let mut cm = host();
    let rep = Rep::default().datagram(1, &[]).unwrap();
    let dreq = Dreq::default().datagram(1, &[]).unwrap();
    let other =
        with_ip(&SidrReq { service: ServiceId::new(PortSpace::Udp, 1), ..SidrReq::default() });
    for n in 0..FLOOD {
        for mad in [&rep, &dreq, &other] {
            cm.handle_mad(Instant::ZERO, &spoofed(n), mad);
        }
    }
    assert_eq!(sent(&mut cm), SEND_QUEUE);
    assert!(cm.is_empty() && cm.is_quiet());
}

/// Thousands of connections at once, each found among all others by every message.
#[test]
fn thousands_of_connections_come_and_go() {
    const COUNT: u32 = 8000;
    let mut pair = Pair::default();
    let mut ids = Vec::new();
    for n in 0..COUNT {
        let asked = Connect { qpn: Qpn(0x1000 + n), ..connect(b"") };
        let active = pair.active.cm.connect(pair.now, &asked).unwrap();
        pair.exchange();
        let passive = pair.passive.event().id;
        let accept = Accept { qpn: Qpn(0x1000 + n), ..accept(b"") };
        pair.passive.cm.accept(pair.now, passive, &accept).unwrap();
        pair.exchange();
        pair.active.event();
        pair.active.cm.confirm(active, b"").unwrap();
        pair.exchange();
        pair.passive.event();
        ids.push(active);
    }
    assert_eq!((pair.active.cm.len(), pair.passive.cm.len()), (COUNT as usize, COUNT as usize));
    for &id in &ids {
        pair.active.cm.disconnect(pair.now, id, b"").unwrap();
    }
    pair.exchange();
    while pair.wait() {}
    assert_eq!(pair.active.events().len(), 2 * COUNT as usize);
    assert_eq!(pair.passive.events().len(), 2 * COUNT as usize);
    assert!(pair.active.cm.is_empty() && pair.passive.cm.is_empty());
}
