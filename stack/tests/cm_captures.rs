//! Every connection management message of every capture comes out again as it went in, and ours
//! says what others said.

mod common;

use std::collections::BTreeMap;
use std::fs;

use ferroce_stack::mad::message::{
    AnyMessage, DATA_LEN, Data, MAD_LEN, Message, PathRecord, Rep, Req,
};
use ferroce_stack::mad::{Accept, Cm, CmConfig, CmEventKind, Connect, IpHeader, Path};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Mtu, Qpn};
use ferroce_stack::wire::{Mad, NativePacket, Packet};
use pcap_file::DataLink;

/// The management datagrams to QP1 of a capture.
fn datagrams(name: &str) -> Vec<[u8; MAD_LEN]> {
    let (link, frames) = common::frames(name);
    let mut datagrams = Vec::new();
    for frame in &frames {
        let payload = match link {
            DataLink::ERF => {
                let packet = NativePacket::parse(frame).unwrap();
                (packet.bth.dest_qp == Qpn::GSI.0).then_some(packet.payload)
            }
            _ => Packet::parse(frame)
                .ok()
                .filter(|packet| packet.headers.bth.dest_qp == Qpn::GSI.0)
                .map(|packet| packet.payload),
        };
        datagrams.extend(payload.and_then(|payload| payload.first_chunk()));
    }
    datagrams
}

#[test]
fn every_message_of_every_capture_comes_out_as_it_went_in() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in fs::read_dir(common::path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".pcap") {
            continue;
        }
        for (index, mad) in datagrams(&name).iter().enumerate() {
            let header = Mad::parse(mad);
            let Some(kind) = header.cm_message() else { continue };
            *seen.entry(kind.name()).or_default() += 1;
            let data: &Data = mad[Mad::LEN..].try_into().unwrap();
            let message = AnyMessage::parse(kind, data).unwrap();
            let mut out = [0xa5; DATA_LEN];
            let private = message.private_data_at();
            out[private..].copy_from_slice(&data[private..]);
            message.emit(&mut out);
            assert_eq!(&out, data, "{name} message {} {message:?}", index + 1);
        }
    }
    let expected = [
        ("DREP", 23),
        ("DREQ", 25),
        ("REJ", 2),
        ("REP", 25),
        ("REQ", 29),
        ("RTU", 27),
        ("SIDR_REP", 1),
        ("SIDR_REQ", 1),
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}

/// A whole life of a connection of others, and both sides' configuration as it shows in it.
struct Capture {
    name: &'static str,
    response_timeout: u8,
    packet_life: u8,
    /// ACK delay of the side asked.
    ack_delay: u8,
    /// What the peers make of it.
    ack_timeouts: (u8, u8),
}

const CAPTURES: [Capture; 3] = [
    Capture {
        name: "rxe-cm-rping.pcap",
        response_timeout: 20,
        packet_life: 18,
        ack_delay: 15,
        ack_timeouts: (19, 19),
    },
    Capture {
        name: "rxe-cm-rping-ipv6.pcap",
        response_timeout: 20,
        packet_life: 18,
        ack_delay: 15,
        ack_timeouts: (19, 19),
    },
    Capture {
        name: "rxe-6.12-cm-rping.pcap",
        response_timeout: 20,
        packet_life: 16,
        ack_delay: 15,
        ack_timeouts: (17, 17),
    },
];

fn fields<M: Message>(mad: &[u8; MAD_LEN]) -> M {
    assert_eq!(Mad::parse(mad).cm_message(), Some(M::KIND));
    M::parse(mad[Mad::LEN..].try_into().unwrap())
}

fn config(capture: &Capture, first_id: u32, ca_guid: u64) -> CmConfig {
    CmConfig {
        ids: first_id..u32::MAX,
        ca_guid,
        response_timeout: capture.response_timeout,
        packet_life: capture.packet_life,
        ack_delay: capture.ack_delay,
        ..CmConfig::default()
    }
}

/// The path of a record, from the one who asks or to it.
fn path(record: &PathRecord, from_active: bool) -> Path {
    let (sgid, dgid) = match from_active {
        true => (record.local_gid, record.remote_gid),
        false => (record.remote_gid, record.local_gid),
    };
    Path {
        sgid,
        dgid,
        flow_label: record.flow_label,
        traffic_class: record.traffic_class,
        hop_limit: record.hop_limit,
        sl: record.sl,
    }
}

/// The call that makes the request.
fn asked<'a>(req: &Req, ip: Option<IpHeader>, private_data: &'a [u8]) -> Connect<'a> {
    Connect {
        cookie: 1,
        service: req.service,
        path: path(&req.primary, true),
        pkey: req.pkey,
        qp_type: req.qp_type().unwrap(),
        qpn: Qpn(req.local_qpn),
        psn: req.starting_psn,
        qkey: req.local_qkey,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        flow_control: req.flow_control,
        srq: req.srq,
        mtu: Mtu::Mtu1024,
        ack_timeout: None,
        refused_retries: 0,
        ip,
        private_data,
    }
}

/// Both sides of connections between other implementations, played by ours: from the same values
/// come the same bytes, and what they sent is understood.
#[test]
fn handshakes_of_others_are_played_by_both_sides() {
    for capture in CAPTURES {
        let seen = datagrams(capture.name);
        let [req_mad, rep_mad, rtu_mad, dreq_mad, drep_mad] = seen[..] else {
            panic!("{}: {} datagrams", capture.name, seen.len())
        };
        let (req, rep): (Req, Rep) = (fields(&req_mad), fields(&rep_mad));
        let now = Instant::ZERO;

        let mut active = Cm::new(config(&capture, req.local_comm_id, req.local_ca_guid));
        let there = path(&req.primary, true);
        let private_data = &req_mad[Mad::LEN + Req::PRIVATE_DATA..];
        let ip = IpHeader::parse(private_data);
        let asked = asked(&req, ip, &private_data[IpHeader::LEN..]);
        let id = active.connect(now, &asked).unwrap();
        says(&mut active, &req_mad);

        let mut passive = Cm::new(config(&capture, rep.local_comm_id, rep.local_ca_guid));
        passive.listen(req.service, None, 1, 2).unwrap();
        passive.handle_mad(now, &path(&req.primary, false), &req_mad);
        let event = passive.poll_event().unwrap();
        let CmEventKind::Request(request) = event.kind else { panic!("{event:?}") };
        assert_eq!((request.ip, request.mtu), (ip, Mtu::Mtu1024));
        assert_eq!(request.path, path(&req.primary, false));
        assert_eq!(request.ack_timeout, capture.ack_timeouts.0, "{}", capture.name);
        let accepted = Accept {
            qpn: Qpn(rep.local_qpn),
            psn: rep.starting_psn,
            qkey: rep.local_qkey,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            rnr_retry_count: rep.rnr_retry_count,
            flow_control: rep.flow_control,
            srq: rep.srq,
            private_data: &[],
        };
        passive.accept(now, event.id, &accepted).unwrap();
        says(&mut passive, &rep_mad);

        active.handle_mad(now, &there, &rep_mad);
        let CmEventKind::Reply(reply) = active.poll_event().unwrap().kind else { panic!() };
        assert_eq!(reply.ack_timeout, capture.ack_timeouts.1, "{}", capture.name);
        active.confirm(id, &[]).unwrap();
        says(&mut active, &rtu_mad);
        passive.handle_mad(now, &path(&req.primary, false), &rtu_mad);
        assert!(matches!(passive.poll_event().unwrap().kind, CmEventKind::Established { .. }));

        active.disconnect(now, id, &[]).unwrap();
        says(&mut active, &dreq_mad);
        passive.handle_mad(now, &path(&req.primary, false), &dreq_mad);
        assert!(matches!(passive.poll_event().unwrap().kind, CmEventKind::Disconnected { .. }));
        says(&mut passive, &drep_mad);
        active.handle_mad(now, &there, &drep_mad);
        assert!(matches!(active.poll_event().unwrap().kind, CmEventKind::Disconnected { .. }));
    }
}

/// The one datagram it has to send is this, but for the sender's choice of transaction.
fn says(cm: &mut Cm, expected: &[u8; MAD_LEN]) {
    let (_, mut mad) = cm.poll_transmit().unwrap();
    mad[8..16].copy_from_slice(&expected[8..16]);
    assert_eq!(&mad, expected);
    assert_eq!(cm.poll_transmit(), None);
}
