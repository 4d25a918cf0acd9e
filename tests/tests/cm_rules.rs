//! The rules of connection management one by one: screening, resending, timers, stale connections.

use ferroce::rand::Rng;
use ferroce_stack::mad::message::{Dreq, MAD_LEN, Message, Mra, Rej, Rep, Req, Rtu};
use ferroce_stack::mad::{
    Accept, CmConfig, CmError, CmEventKind, CommId, Connect, IpHeader, PortSpace, RejReason,
    ServiceId, SidrAccept, SidrConnect,
};
use ferroce_stack::verbs::{QpType, Qpn};
use ferroce_tests::SEC;
use ferroce_tests::cm::{
    Datagram, Pair, SERVICE, Side, UDP_SERVICE, accept, config, connect, gid, ip, kinds, patched,
    path, read, resolve,
};

/// The datagram with its fixed fields changed.
fn changed<M: Message>(mad: &Datagram, change: impl FnOnce(&mut M)) -> Datagram {
    let mut message: M = read(mad);
    change(&mut message);
    patched(mad, &message)
}

/// With which reason, of which additional information, host 2 rejects a request at once.
fn refused(pair: &mut Pair, mad: &Datagram) -> (RejReason, Vec<u8>) {
    pair.passive.hear(pair.now, 1, mad);
    let rej: Rej = read(&pair.passive.sent_one());
    assert_eq!((rej.local_comm_id, rej.rejected), (0, Rej::REQ));
    assert_eq!(rej.remote_comm_id, read::<Req>(mad).local_comm_id);
    (rej.reason, rej.ari().to_vec())
}

#[test]
fn requests_are_screened() {
    let mut pair = Pair::default();
    let (_, mad) = pair.request();
    let bad = changed(&mad, |req: &mut Req| req.service = ServiceId(5));
    assert_eq!(refused(&mut pair, &bad), (RejReason::INVALID_SERVICE_ID, vec![]));
    let bad = changed(&mad, |req: &mut Req| req.transport = 2);
    assert_eq!(refused(&mut pair, &bad), (RejReason::INVALID_TRANSPORT_TYPE, vec![]));
    for path_mtu in [0, 6, 15] {
        let bad = changed(&mad, |req: &mut Req| req.path_mtu = path_mtu);
        assert_eq!(refused(&mut pair, &bad), (RejReason::INVALID_MTU, vec![5]));
    }
    let mut bad = mad;
    bad[24 + Req::PRIVATE_DATA] = 0x10;
    assert_eq!(refused(&mut pair, &bad), (RejReason::CONSUMER, vec![]), "header's version");
    let nobody = changed(&mad, |req: &mut Req| req.local_comm_id = 0);
    pair.passive.hear(pair.now, 1, &nobody);
    assert!(pair.passive.cm.is_quiet() && pair.passive.cm.is_empty());
    pair.passive.hear(pair.now, 1, &mad);
    assert!(matches!(pair.passive.event().kind, CmEventKind::Request(_)));
}

#[test]
fn a_peers_service_level_is_one_that_can_be_sent_with() {
    let mut pair = Pair::default();
    let (_, mad) = pair.request();
    let high = changed(&mad, |req: &mut Req| req.primary.sl = 13);
    pair.passive.hear(pair.now, 1, &high);
    match pair.passive.event().kind {
        CmEventKind::Request(request) => assert_eq!(request.path.sl, 5),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_listener_of_the_very_address_is_asked_first() {
    let mut pair = Pair::default();
    let any = SERVICE;
    let other = ServiceId::new(PortSpace::Tcp, 1);
    let address = |text: &str| Some(text.parse().unwrap());
    let cm = &mut pair.passive.cm;
    assert_eq!(cm.listen(any, None, 8, 0), Err(CmError::InUse));
    cm.listen(any, address("0.0.0.0"), 8, 4).unwrap();
    let exact = cm.listen(any, address("10.0.0.2"), 8, 5).unwrap();
    cm.listen(any, address("::"), 8, 6).unwrap();
    cm.listen(other, address("10.0.0.3"), 8, 7).unwrap();
    let ask = |pair: &mut Pair, service, destination: &str| {
        let ip = IpHeader { destination: destination.parse().unwrap(), ..ip() };
        let asked = Connect { service, ip: Some(ip), ..connect(b"") };
        pair.active.cm.connect(pair.now, &asked).unwrap();
        let mad = pair.active.sent_one();
        pair.passive.hear(pair.now, 1, &mad);
        let told = pair.passive.events().pop();
        let sent = pair.passive.sent();
        match told {
            Some(event) => {
                pair.passive.cm.destroy(pair.now, event.id);
                pair.passive.sent();
                Ok(event.cookie)
            }
            None => Err(read::<Rej>(&sent[0].1).reason),
        }
    };
    assert_eq!(ask(&mut pair, any, "10.0.0.2"), Ok(5));
    assert_eq!(ask(&mut pair, any, "::ffff:10.0.0.2"), Ok(5));
    assert_eq!(ask(&mut pair, any, "10.0.0.9"), Ok(4));
    assert_eq!(ask(&mut pair, any, "fd77::2"), Ok(6));
    assert_eq!(ask(&mut pair, other, "10.0.0.2"), Err(RejReason::CONSUMER));
    pair.passive.cm.unlisten(exact);
    assert_eq!(ask(&mut pair, any, "10.0.0.2"), Ok(4));
}

#[test]
fn a_request_is_resent_unchanged_until_the_peer_counts_as_unreachable() {
    let mut pair = Pair::default();
    let (_, mad) = pair.request();
    for _ in 0..pair.active.config.max_retries {
        assert!(pair.wait());
        assert_eq!(pair.active.sent_one(), mad);
        assert!(pair.active.events().is_empty());
    }
    // 15 times 2 * 4.096 us * 2^14 and 4.096 us * 2^17.
    assert_eq!(pair.now.nanos(), 15 * (4096 << 15) + 15 * (4096 << 17));
    assert!(pair.wait());
    assert_eq!(pair.active.event().kind, CmEventKind::Unreachable);
    let rej: Rej = read(&pair.active.sent_one());
    assert_eq!(rej.reason, RejReason::TIMEOUT);
    assert_eq!(rej.ari(), pair.active.config.ca_guid.to_be_bytes());
    assert!(pair.active.cm.is_empty() && !pair.wait());
}

/// Host 2 does not listen.
fn deaf() -> Pair {
    Pair { passive: Side::new(2, config(2)), ..Pair::default() }
}

/// Asks up to three times more.
fn patient() -> Connect<'static> {
    Connect { refused_retries: 3, ..connect(b"") }
}

/// The same of a UD QP.
fn patient_sidr() -> SidrConnect<'static> {
    SidrConnect { refused_retries: 3, ..resolve(b"") }
}

#[test]
fn where_nobody_listens_a_request_is_sent_again_for_a_while() {
    let mut pair = deaf();
    pair.active.cm.connect(pair.now, &patient()).unwrap();
    pair.exchange();
    for millis in [1, 3, 7] {
        assert!(pair.active.events().is_empty() && pair.wait());
        assert_eq!(pair.now.nanos(), millis * 1_000_000);
        pair.exchange();
    }
    let CmEventKind::Rejected { reason, .. } = pair.active.event().kind else { panic!() };
    assert_eq!(reason, RejReason::INVALID_SERVICE_ID);
    assert!(pair.active.cm.is_empty() && !pair.wait());

    pair.active.cm.resolve(pair.now, &patient_sidr()).unwrap();
    pair.exchange();
    for _ in 0..3 {
        assert!(pair.active.events().is_empty() && pair.wait());
        pair.exchange();
    }
    let CmEventKind::SidrReply(reply) = pair.active.event().kind else { panic!() };
    assert_eq!(reply.status, 1, "unsupported");
    assert!(pair.active.cm.is_empty() && !pair.wait());
}

#[test]
fn who_does_not_ask_again_is_refused_at_once() {
    let mut pair = deaf();
    pair.active.cm.connect(pair.now, &connect(b"")).unwrap();
    pair.active.cm.resolve(pair.now, &resolve(b"")).unwrap();
    pair.exchange();
    assert_eq!(pair.active.events().len(), 2);
    assert!(pair.active.cm.is_empty() && !pair.wait());
}

#[test]
fn who_listens_just_after_the_request_is_connected_to() {
    let mut pair = deaf();
    pair.active.cm.connect(pair.now, &patient()).unwrap();
    pair.active.cm.resolve(pair.now, &patient_sidr()).unwrap();
    pair.exchange();
    pair.passive.cm.listen(SERVICE, None, 8, 22).unwrap();
    pair.passive.cm.listen(UDP_SERVICE, None, 8, 33).unwrap();
    assert!(pair.wait());
    pair.exchange();
    let events = pair.passive.events();
    let is_request =
        |kind: &CmEventKind| matches!(kind, CmEventKind::Request(_) | CmEventKind::SidrRequest(_));
    assert!(events.len() == 2 && events.iter().all(|event| is_request(&event.kind)), "{events:?}");
    assert!(pair.active.events().is_empty());
}

#[test]
fn a_refusal_of_another_kind_is_final() {
    let mut pair = deaf();
    pair.active.cm.connect(pair.now, &patient()).unwrap();
    let mad = pair.active.sent_one();
    let full = Rej {
        local_comm_id: 0,
        remote_comm_id: read::<Req>(&mad).local_comm_id,
        rejected: Rej::REQ,
        ari_len: 0,
        reason: RejReason::NO_RESOURCES,
        ari: [0; Rej::ARI_LEN],
    };
    pair.active.hear(pair.now, 2, &full.datagram(0, &[]).unwrap());
    let CmEventKind::Rejected { reason, .. } = pair.active.event().kind else { panic!() };
    assert_eq!(reason, RejReason::NO_RESOURCES);
}

#[test]
fn a_reply_is_resent_as_often_as_the_request_says() {
    let mut pair = Pair::default();
    let (_, mad) = pair.request();
    let mad = changed(&mad, |req: &mut Req| {
        (req.max_cm_retries, req.local_response_timeout) = (2, 31);
    });
    pair.passive.hear(pair.now, 1, &mad);
    let id = pair.passive.event().id;
    pair.passive.cm.accept(pair.now, id, &accept(b"")).unwrap();
    let rep = pair.passive.sent_one();
    let mut now = pair.now;
    for _ in 0..2 {
        let next = pair.passive.cm.poll_timeout().unwrap();
        assert_eq!(next.nanos() - now.nanos(), 4096 << 22, "a peer's word is not taken for hours");
        now = next;
        pair.passive.cm.handle_timeout(now);
        assert_eq!(pair.passive.sent_one(), rep);
    }
    pair.passive.cm.handle_timeout(pair.passive.cm.poll_timeout().unwrap());
    assert_eq!(pair.passive.event().kind, CmEventKind::Unreachable);
    assert_eq!(read::<Rej>(&pair.passive.sent_one()).reason, RejReason::TIMEOUT);
    assert!(pair.passive.cm.is_empty());
}

#[test]
fn who_is_asked_for_time_waits_and_then_asks_again() {
    let mut pair = Pair::default();
    let (_, mad) = pair.request();
    pair.passive.hear(pair.now, 1, &mad);
    pair.passive.event();
    assert!(pair.passive.sent().is_empty(), "nobody is impatient yet");
    pair.passive.hear(pair.now, 1, &mad);
    let mra = pair.passive.sent_one();
    assert_eq!(read::<Mra>(&mra).received, Mra::REQ);
    pair.active.hear(pair.now, 2, &mra);
    let wait = (4096 << 24) + (4096 << 14);
    assert_eq!(pair.active.cm.poll_timeout(), Some(pair.now + wait));
    // Only a resend may be answered so.
    pair.active.hear(pair.now + SEC, 2, &mra);
    assert_eq!(pair.active.cm.poll_timeout(), Some(pair.now + wait));
    assert!(pair.wait());
    assert_eq!(pair.active.sent_one(), mad);
}

#[test]
fn a_service_timeout_of_hours_is_cut() {
    let mut pair = Pair::default();
    let (id, _) = pair.request();
    let mra =
        Mra { local_comm_id: 1, remote_comm_id: id.0, received: Mra::REQ, service_timeout: 31 };
    pair.active.hear(pair.now, 2, &mra.datagram(1, &[]).unwrap());
    assert!(pair.active.cm.poll_timeout().unwrap().nanos() < 70 * SEC);
}

#[test]
fn a_lost_rtu_is_sent_again() {
    let mut pair = Pair::default();
    let (active, _) = pair.request();
    let mut again = Pair::default();
    let (_, mad) = again.request();
    pair.passive.hear(pair.now, 1, &mad);
    let passive = pair.passive.event().id;
    pair.passive.cm.accept(pair.now, passive, &accept(b"")).unwrap();
    let rep = pair.passive.sent_one();
    pair.active.hear(pair.now, 2, &rep);
    pair.active.event();
    pair.active.cm.confirm(active, b"x").unwrap();
    let rtu = pair.active.sent_one();
    pair.active.hear(pair.now, 2, &rep);
    assert_eq!(pair.active.sent_one(), rtu);
    assert!(pair.active.events().is_empty());
}

#[test]
fn data_before_rtu_establishes_once() {
    let mut pair = Pair::default();
    let (active, mad) = pair.request();
    pair.passive.hear(pair.now, 1, &mad);
    let passive = pair.passive.event().id;
    assert_eq!(pair.passive.cm.established(passive), Err(CmError::State));
    pair.passive.cm.accept(pair.now, passive, &accept(b"")).unwrap();
    pair.exchange();
    pair.active.event();
    pair.active.cm.confirm(active, b"").unwrap();
    let rtu = pair.active.sent_one();
    pair.passive.cm.established(passive).unwrap();
    pair.passive.cm.established(passive).unwrap();
    let private_data = Box::default();
    assert_eq!(pair.passive.event().kind, CmEventKind::Established { private_data });
    pair.passive.hear(pair.now, 1, &rtu);
    assert!(pair.passive.cm.is_quiet());
    assert_eq!(pair.passive.cm.poll_timeout(), None, "the reply is not resent");
}

#[test]
fn a_cancelled_request_is_told_and_keeps_its_place_until_forgotten() {
    let mut pair = Pair::default();
    let (active, mad) = pair.request();
    pair.passive.hear(pair.now, 1, &mad);
    let passive = pair.passive.event().id;
    pair.active.cm.destroy(pair.now, active);
    pair.exchange();
    let CmEventKind::Rejected { reason, .. } = pair.passive.event().kind else { panic!() };
    assert_eq!(reason, RejReason::TIMEOUT);
    assert_eq!(pair.passive.cm.accept(pair.now, passive, &accept(b"")), Err(CmError::State));
    assert_eq!(pair.passive.cm.len(), 1);
    pair.passive.cm.destroy(pair.now, passive);
    assert!(pair.passive.cm.is_empty() && pair.passive.cm.is_quiet());
}

#[test]
fn a_request_from_a_qp_in_use_ends_the_connection_its_peer_has_forgotten() {
    let mut pair = Pair::default();
    let (_, passive) = pair.establish();
    // The peer starts again, with other IDs and the same QP.
    pair.active = Side::new(1, CmConfig { seed: 77, ..config(1) });
    let again = pair.active.cm.connect(pair.now, &connect(b"")).unwrap();
    pair.exchange();
    let CmEventKind::Rejected { reason, .. } = pair.active.event().kind else { panic!() };
    assert_eq!(reason, RejReason::STALE_CONNECTION);
    let event = pair.passive.event();
    assert_eq!(event.id, passive);
    assert!(matches!(event.kind, CmEventKind::Disconnected { .. }), "{event:?}");
    assert_ne!(again, passive);
    // Now the QP is free.
    pair.active.cm.connect(pair.now, &connect(b"")).unwrap();
    pair.exchange();
    assert!(matches!(pair.passive.event().kind, CmEventKind::Request(_)));
}

#[test]
fn a_reply_from_a_qp_in_use_ends_the_connection_its_peer_has_forgotten() {
    let mut pair = Pair::default();
    let (old, _) = pair.establish();
    pair.passive = Side::new(2, CmConfig { seed: 77, ..config(2) });
    pair.passive.cm.listen(SERVICE, None, 1, 22).unwrap();
    pair.active.cm.connect(pair.now, &Connect { qpn: Qpn(0x102), ..connect(b"") }).unwrap();
    pair.exchange();
    let id = pair.passive.event().id;
    pair.passive.cm.accept(pair.now, id, &accept(b"")).unwrap();
    pair.exchange();
    let CmEventKind::Rejected { reason, .. } = pair.passive.event().kind else { panic!() };
    assert_eq!(reason, RejReason::STALE_CONNECTION);
    let event = pair.active.event();
    assert_eq!(event.id, old);
    assert!(matches!(event.kind, CmEventKind::Disconnected { .. }), "{event:?}");
}

#[test]
fn a_disconnect_names_the_right_qp_or_is_ignored() {
    let mut pair = Pair::default();
    let (active, _) = pair.establish();
    pair.active.cm.disconnect(pair.now, active, b"").unwrap();
    let dreq = pair.active.sent_one();
    let wrong = changed(&dreq, |dreq: &mut Dreq| {
        dreq.remote_qpn += 1;
    });
    pair.passive.hear(pair.now, 1, &wrong);
    assert!(pair.passive.cm.is_quiet());
    pair.passive.hear(pair.now, 1, &dreq);
    assert_eq!(kinds(&pair.passive.sent()), ["DREP"]);
}

#[test]
fn a_destroyed_connection_is_ended_without_a_word() {
    let mut pair = Pair::default();
    let (active, passive) = pair.establish();
    pair.active.cm.destroy(pair.now, active);
    assert_eq!(pair.active.cm.disconnect(pair.now, active, b""), Err(CmError::UnknownId));
    // The DREQ is lost.
    assert_eq!(kinds(&pair.active.sent()), ["DREQ"]);
    assert!(pair.wait());
    pair.exchange();
    let event = pair.passive.event();
    assert_eq!(event.id, passive);
    while pair.wait() {}
    assert!(pair.active.events().is_empty());
    assert!(pair.active.cm.is_empty());
}

#[test]
fn ids_rest_while_their_connections_do() {
    let mut pair = Pair::default();
    let ids = 0x0100_0000..0x0100_0004;
    pair.active = Side::new(1, CmConfig { ids: ids.clone(), seed: 3, ..config(1) });
    let mut given: Vec<u32> = (0..4).map(|_| pair.request().0.0).collect();
    assert_eq!(pair.active.cm.connect(pair.now, &connect(b"")), Err(CmError::NoRoom));
    given.sort();
    assert_eq!(given, ids.collect::<Vec<_>>());
    pair.active.cm.destroy(pair.now, CommId(given[1]));
    pair.active.sent();
    assert_eq!(pair.request().0.0, given[1]);
}

#[test]
fn a_successor_starts_with_other_ids() {
    let first = |seed| {
        let active = Side::new(1, CmConfig { seed, ..config(1) });
        Pair { active, ..Pair::default() }.request().0
    };
    assert_ne!(first(1), first(2));
    assert_eq!(first(2), first(2));
}

#[test]
fn private_data_of_every_length_and_no_more() {
    let mut pair = Pair::default();
    let bytes = [7; 256];
    for len in 0..=93 {
        let with = |ip| Connect { ip, service: ServiceId(1), ..connect(&bytes[..len]) };
        for (ip, most) in [(None, 92), (Some(ip()), 56)] {
            let result = pair.active.cm.connect(pair.now, &with(ip));
            assert_eq!(result.err(), (len > most).then_some(CmError::PrivateData), "{len}");
        }
    }
    for len in 0..=217 {
        for (ip, most) in [(None, 216), (Some(ip()), 180)] {
            let result =
                pair.active.cm.resolve(pair.now, &SidrConnect { ip, ..resolve(&bytes[..len]) });
            assert_eq!(result.err(), (len > most).then_some(CmError::PrivateData), "{len}");
        }
    }
    let mut pair = Pair::default();
    let (active, mad) = pair.request();
    pair.passive.hear(pair.now, 1, &mad);
    let passive = pair.passive.event().id;
    let reason = RejReason::CONSUMER;
    let cm = &mut pair.passive.cm;
    let too_long = Err(CmError::PrivateData);
    assert_eq!(cm.accept(pair.now, passive, &accept(&bytes[..197])), too_long);
    assert_eq!(cm.reject(passive, reason, &bytes[..73], &[]), too_long);
    assert_eq!(cm.reject(passive, reason, &[], &bytes[..149]), too_long);
    assert!(cm.is_quiet(), "what is refused changes nothing");
    cm.accept(pair.now, passive, &accept(&bytes[..196])).unwrap();
    pair.exchange();
    pair.active.event();
    assert_eq!(pair.active.cm.confirm(active, &bytes[..225]), too_long);
    pair.active.cm.confirm(active, &bytes[..224]).unwrap();
    pair.exchange();
    let private_data = bytes[..224].into();
    assert_eq!(pair.passive.event().kind, CmEventKind::Established { private_data });
    assert_eq!(pair.active.cm.disconnect(pair.now, active, &bytes[..221]), too_long);
    pair.active.cm.disconnect(pair.now, active, &bytes[..220]).unwrap();
    pair.exchange();
    let private_data = bytes[..220].into();
    assert_eq!(pair.passive.event().kind, CmEventKind::Disconnected { private_data });

    pair.active.event();
    pair.active.cm.resolve(pair.now, &resolve(b"")).unwrap();
    pair.exchange();
    let id = pair.passive.event().id;
    let answer = |len| SidrAccept { status: 0, qpn: Qpn(1), qkey: 1, private_data: &bytes[..len] };
    assert_eq!(pair.passive.cm.answer(id, &answer(137)), too_long);
    pair.passive.cm.answer(id, &answer(136)).unwrap();
}

#[test]
fn what_cannot_connect_is_refused() {
    let mut pair = Pair::default();
    for qp_type in [QpType::Ud, QpType::Gsi, QpType::RawPacket, QpType::XrcRecv] {
        let result = pair.active.cm.connect(pair.now, &Connect { qp_type, ..connect(b"") });
        assert_eq!(result, Err(CmError::Argument));
    }
    assert!(pair.active.cm.is_empty());
}

#[test]
fn no_more_is_accepted_than_the_peer_offers() {
    let mut pair = Pair::default();
    let (_, mad) = pair.request();
    pair.passive.hear(pair.now, 1, &mad);
    let id = pair.passive.event().id;
    let greedy = Accept { responder_resources: 200, initiator_depth: 200, ..accept(b"") };
    pair.passive.cm.accept(pair.now, id, &greedy).unwrap();
    let rep: Rep = read(&pair.passive.sent_one());
    assert_eq!((rep.responder_resources, rep.initiator_depth), (5, 4));
}

#[test]
fn peers_are_those_of_connections_that_are_not_over() {
    let mut pair = Pair::default();
    let (active, passive) = pair.establish();
    let peers = |side: &Side| side.cm.peers().collect::<Vec<_>>();
    assert_eq!(peers(&pair.active), [(active, path(1, 2).dgid, Some(passive))]);
    assert_eq!(peers(&pair.passive), [(passive, path(2, 1).dgid, Some(active))]);
    pair.active.cm.disconnect(pair.now, active, b"").unwrap();
    pair.exchange();
    assert_eq!((peers(&pair.active), peers(&pair.passive)), (vec![], vec![]));
}

/// Whatever is no message, or not the peer's, leaves everything as if it had never come.
#[test]
fn malformed_and_foreign_datagrams_change_nothing() {
    let undisturbed = conversation(None);
    assert_eq!(undisturbed.0.len(), 7, "a whole life of a connection");
    for seed in 0..300 {
        assert_eq!(conversation(Some(Rng::new(seed))), undisturbed, "{seed}");
    }
}

/// What is told and said in the life of a connection, disturbed by junk or not.
fn conversation(mut junk: Option<Rng>) -> (Vec<CmEventKind>, Vec<Datagram>) {
    let mut pair = Pair::default();
    let (mut told, mut said) = (Vec::new(), Vec::new());
    let id = pair.active.cm.connect(pair.now, &connect(b"hello")).unwrap();
    for round in 0..20 {
        if round == 10 {
            pair.active.cm.disconnect(pair.now, id, b"").unwrap();
        }
        let under_way = [pair.active.sent(), pair.passive.sent()].concat();
        said.extend(under_way.iter().map(|(_, mad)| *mad));
        if let Some(rng) = &mut junk {
            disturb(&mut pair, rng, &said);
        }
        for (path, mad) in under_way {
            if path.dgid == gid(1) {
                pair.active.hear(pair.now, 2, &mad);
            } else {
                pair.passive.hear(pair.now, 1, &mad);
            }
        }
        if round > 15 {
            pair.wait();
        }
        for side in [&mut pair.active, &mut pair.passive] {
            for event in side.events() {
                let result = match event.kind {
                    CmEventKind::Request(_) => side.cm.accept(pair.now, event.id, &accept(b"")),
                    CmEventKind::Reply(_) => side.cm.confirm(event.id, b""),
                    _ => Ok(()),
                };
                assert_eq!(result, Ok(()));
                told.push(event.kind);
            }
        }
    }
    (told, said)
}

/// Both sides hear a datagram from somebody else, and one cut short from their peer. It may be
/// answered, as to somebody unknown.
fn disturb(pair: &mut Pair, rng: &mut Rng, said: &[Datagram]) {
    let junk = junk(rng, said);
    for (side, peer) in [(&mut pair.active, 2), (&mut pair.passive, 1)] {
        let before = side.cm.poll_timeout();
        side.hear(pair.now, 9, &junk);
        side.hear(pair.now, peer, &junk[..200]);
        side.sent();
        assert_eq!(side.events(), []);
        assert_eq!(side.cm.poll_timeout(), before);
    }
}

/// A datagram seen before but REQ, changed or not, or anything.
fn junk(rng: &mut Rng, history: &[Datagram]) -> Datagram {
    let mut mad = [0; MAD_LEN];
    rng.fill(&mut mad);
    let at = rng.below(history.len().max(1) as u64) as usize;
    match history.get(at) {
        Some(seen) if rng.chance(0.8) && seen[17] != 0x10 => {
            mad = *seen;
            if rng.chance(0.5) {
                mad[24 + rng.below(232) as usize] ^= rng.next_u64() as u8;
            }
        }
        _ if rng.chance(0.5) => mad[..4].copy_from_slice(&[1, 7, 2, 3]),
        _ => {}
    }
    mad
}

#[test]
fn other_classes_and_versions_are_counted() {
    let mut pair = Pair::default();
    let (id, mad) = pair.request();
    let rtu = Rtu { local_comm_id: 1, remote_comm_id: id.0 }.datagram(1, &[]).unwrap();
    let with = |at: usize, value: u8| {
        let mut bad = mad;
        bad[at] = value;
        bad
    };
    for bad in [with(0, 2), with(2, 1), with(3, 1), with(17, 0x1b), with(17, 0x20)] {
        pair.passive.hear(pair.now, 1, &bad);
    }
    pair.passive.hear(pair.now, 1, &mad[..255]);
    pair.passive.hear(pair.now, 1, &[]);
    pair.passive.hear(pair.now, 1, &with(1, 3));
    pair.passive.hear(pair.now, 1, &rtu);
    let counters = pair.passive.cm.counters();
    assert_eq!((counters.malformed, counters.other_class, counters.for_nobody), (7, 1, 1));
    assert_eq!(counters.received, 9);
    assert!(pair.passive.cm.is_quiet() && pair.passive.cm.is_empty());
}
