//! Connections come up, carry their private data and values, and end.

use ferroce_stack::mad::message::{Dreq, Req};
use ferroce_stack::mad::{CmEventKind, Connect, RejReason, SidrAccept};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Mtu, QpType, Qpn};
use ferroce_tests::cm::{
    Pair, SERVICE, Side, accept, config, connect, gid, ip, kinds, path, read, resolve,
};

/// `private_data` at the start of an area of `len` bytes, the rest 0.
fn padded(private_data: &[u8], len: usize) -> Box<[u8]> {
    let mut area = private_data.to_vec();
    area.resize(len, 0);
    area.into()
}

#[test]
fn values_reach_the_other_side_as_it_needs_them() {
    let mut pair = Pair::default();
    let active = pair.active.cm.connect(pair.now, &connect(b"hello")).unwrap();
    pair.exchange();
    let event = pair.passive.event();
    assert_eq!(event.cookie, 22, "the listener's");
    let CmEventKind::Request(request) = event.kind else { panic!("{event:?}") };
    assert_eq!(request.path, path(2, 1));
    assert_eq!(request.ip, Some(ip()));
    assert_eq!((request.qp_type, request.remote_qpn), (QpType::Rc, Qpn(0x101)));
    assert_eq!(request.remote_ca_guid, pair.active.config.ca_guid);
    assert_eq!(request.remote_comm_id, active);
    assert_eq!(request.psn, 0x111111);
    assert_eq!((request.responder_resources, request.initiator_depth), (5, 4), "swapped");
    assert_eq!((request.retry_count, request.rnr_retry_count), (6, 7));
    assert_eq!((request.flow_control, request.srq, request.mtu), (true, false, Mtu::Mtu1024));
    assert_eq!(request.ack_timeout, 17, "as Linux computes it from 16 and 15");
    assert_eq!(request.private_data, padded(b"hello", 56));

    pair.passive.cm.set_cookie(event.id, 44);
    pair.passive.cm.accept(pair.now, event.id, &accept(b"welcome")).unwrap();
    pair.exchange();
    let event = pair.active.event();
    assert_eq!((event.cookie, event.id), (11, active));
    let CmEventKind::Reply(reply) = event.kind else { panic!("{event:?}") };
    assert_eq!((reply.remote_qpn, reply.psn), (Qpn(0x202), 0x222222));
    assert_eq!((reply.responder_resources, reply.initiator_depth), (5, 4));
    assert_eq!((reply.rnr_retry_count, reply.flow_control, reply.srq), (3, true, true));
    assert_eq!(reply.ack_timeout, 17, "likewise");
    assert_eq!(reply.private_data, padded(b"welcome", 196));

    pair.active.cm.confirm(active, b"thanks").unwrap();
    pair.exchange();
    let event = pair.passive.event();
    assert_eq!(event.cookie, 44);
    let private_data = padded(b"thanks", 224);
    assert_eq!(event.kind, CmEventKind::Established { private_data });
    assert!(pair.active.events().is_empty(), "who confirms knows");
}

#[test]
fn either_side_ends_a_connection() {
    for active_ends in [true, false] {
        let mut pair = Pair::default();
        let (active, passive) = pair.establish();
        if active_ends {
            pair.active.cm.disconnect(pair.now, active, b"bye").unwrap();
        } else {
            pair.passive.cm.disconnect(pair.now, passive, b"bye").unwrap();
        }
        pair.exchange();
        let of_drep = CmEventKind::Disconnected { private_data: padded(b"", 224) };
        let of_dreq = CmEventKind::Disconnected { private_data: padded(b"bye", 220) };
        let kinds = if active_ends { [of_drep, of_dreq] } else { [of_dreq, of_drep] };
        assert_eq!([pair.active.event().kind, pair.passive.event().kind], kinds);
        // The event says it; the call that follows it is no error.
        pair.active.cm.disconnect(pair.now, active, b"").unwrap();
        pair.passive.cm.disconnect(pair.now, passive, b"").unwrap();
        assert!(pair.active.cm.is_quiet() && pair.passive.cm.is_quiet());
        while pair.wait() {}
        assert_eq!(pair.active.event().kind, CmEventKind::TimewaitExit);
        assert_eq!(pair.passive.event().kind, CmEventKind::TimewaitExit);
        assert!(pair.active.cm.is_empty() && pair.passive.cm.is_empty());
    }
}

#[test]
fn crossing_disconnects_answer_each_other() {
    let mut pair = Pair::default();
    let (active, passive) = pair.establish();
    pair.active.cm.disconnect(pair.now, active, b"").unwrap();
    pair.passive.cm.disconnect(pair.now, passive, b"").unwrap();
    let (a, b) = (pair.active.sent_one(), pair.passive.sent_one());
    pair.active.hear(pair.now, 2, &b);
    pair.passive.hear(pair.now, 1, &a);
    assert_eq!(read::<Dreq>(&a).remote_qpn, 0x202);
    assert_eq!(kinds(&pair.active.sent()), ["DREP"]);
    assert_eq!(kinds(&pair.passive.sent()), ["DREP"]);
    assert!(matches!(pair.active.event().kind, CmEventKind::Disconnected { .. }));
    assert!(matches!(pair.passive.event().kind, CmEventKind::Disconnected { .. }));
}

#[test]
fn rejects_say_why() {
    let mut pair = Pair::default();
    pair.active.cm.connect(pair.now, &connect(b"")).unwrap();
    pair.exchange();
    let id = pair.passive.event().id;
    pair.passive.cm.reject(id, RejReason::CONSUMER, b"why", b"no").unwrap();
    pair.exchange();
    let CmEventKind::Rejected { reason, ari, private_data } = pair.active.event().kind else {
        panic!("not rejected")
    };
    assert_eq!((reason, &*ari), (RejReason::CONSUMER, &b"why"[..]));
    assert_eq!(private_data, padded(b"no", 148));
    assert!(pair.active.cm.is_empty() && pair.passive.cm.is_empty());
}

#[test]
fn service_ids_are_resolved() {
    let mut pair = Pair::default();
    let id = pair.active.cm.resolve(pair.now, &resolve(b"who")).unwrap();
    pair.exchange();
    let event = pair.passive.event();
    assert_eq!(event.cookie, 33);
    let CmEventKind::SidrRequest(request) = event.kind else { panic!("{event:?}") };
    assert_eq!((request.path, request.ip, request.pkey), (path(2, 1), Some(ip()), 0xffff));
    assert_eq!(request.private_data, padded(b"who", 180));
    let answer = SidrAccept { status: 0, qpn: Qpn(0x303), qkey: 0x0123_4567, private_data: b"I" };
    pair.passive.cm.answer(event.id, &answer).unwrap();
    pair.exchange();
    let event = pair.active.event();
    let CmEventKind::SidrReply(reply) = event.kind else { panic!("{event:?}") };
    assert_eq!((event.id, reply.status, reply.qpn), (id, 0, Qpn(0x303)));
    assert_eq!((reply.qkey, reply.private_data), (0x0123_4567, padded(b"I", 136)));
    assert!(pair.active.cm.is_empty() && pair.passive.cm.is_empty());
}

#[test]
fn xrc_asks_with_the_initiator_and_is_answered_with_the_target() {
    let mut pair = Pair::default();
    let asked = Connect { qp_type: QpType::XrcSend, ..connect(b"") };
    let id = pair.active.cm.connect(pair.now, &asked).unwrap();
    let mad = pair.active.sent_one();
    let req: Req = read(&mad);
    assert_eq!((req.transport, req.extended_transport, req.initiator_depth), (3, 1, 5));
    assert_eq!((req.responder_resources, req.retry_count, req.rnr_retry_count), (0, 0, 0));
    pair.passive.hear(pair.now, 1, &mad);
    let event = pair.passive.event();
    pair.passive.cm.accept(pair.now, event.id, &accept(b"")).unwrap();
    pair.exchange();
    let CmEventKind::Reply(reply) = pair.active.event().kind else { panic!("no reply") };
    assert_eq!((reply.remote_qpn, reply.srq), (Qpn(0x202), true));
    pair.active.cm.confirm(id, b"").unwrap();
    pair.active.cm.disconnect(pair.now, id, b"").unwrap();
    pair.exchange();
    let kinds: Vec<_> = pair.passive.events().into_iter().map(|event| event.kind).collect();
    assert!(matches!(
        kinds[..],
        [CmEventKind::Established { .. }, CmEventKind::Disconnected { .. }]
    ));
}

#[test]
fn a_host_connects_to_itself() {
    let mut side = Side::new(1, config(1));
    side.cm.listen(SERVICE, None, 1, 22).unwrap();
    let now = Instant::ZERO;
    let deliver = |side: &mut Side| {
        while let Some((path, mad)) = side.cm.poll_transmit() {
            assert_eq!((path.sgid, path.dgid), (gid(1), gid(1)));
            side.hear(now, 1, &mad);
        }
    };
    let active = side.cm.connect(now, &Connect { path: path(1, 1), ..connect(b"") }).unwrap();
    deliver(&mut side);
    let passive = side.event().id;
    side.cm.accept(now, passive, &accept(b"")).unwrap();
    deliver(&mut side);
    assert!(matches!(side.event().kind, CmEventKind::Reply(_)));
    side.cm.confirm(active, b"").unwrap();
    deliver(&mut side);
    assert!(matches!(side.event().kind, CmEventKind::Established { .. }));
    side.cm.disconnect(now, passive, b"").unwrap();
    deliver(&mut side);
    let ended: Vec<_> = side.events().into_iter().map(|event| event.id).collect();
    assert_eq!(ended, [active, passive]);
}
