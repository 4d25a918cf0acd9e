use std::net::Ipv4Addr;

use ferroce_stack::mad::message::{DATA_LEN, Message as _, Rej, Rep, Req};
use ferroce_stack::mad::{IpHeader, RejReason, ServiceId};
use ferroce_stack::wire::{Mac, Mad};
use ferroce_stack::{GidEntry, GidType};

use super::message::Style;
use super::*;
use crate::ast::{Expr, Field as Sentence, Value};
use crate::frame::{Side, Use};
use crate::value::Datum;

const NAMES: [&str; 12] = [
    "cm-req",
    "cm-mra",
    "cm-rej",
    "cm-rep",
    "cm-rtu",
    "cm-dreq",
    "cm-drep",
    "cm-lap",
    "cm-apr",
    "cm-sidr-req",
    "cm-sidr-rep",
    "mad",
];

fn word(value: &str) -> Word {
    Word { value: value.into(), line: 1, column: 1 }
}

fn given(name: &str, datum: Datum) -> Given {
    Given { name: word(name), datum }
}

fn number(name: &str, value: u64) -> Given {
    given(name, Datum::Number(value))
}

fn both() -> Flow {
    let entry = |host: u8| GidEntry {
        gid: Ipv4Addr::new(10, 0, 0, host).into(),
        gid_type: GidType::RoceV2,
        mac: Mac([2, 0, 0, 0, 0, host]),
        vlan: None,
    };
    flow(entry(1), entry(2), 2)
}

fn mad_of(frame: &[u8]) -> [u8; MAD_LEN] {
    let packet = Packet::parse(frame).unwrap();
    *datagram(&packet).unwrap()
}

fn sent(name: &str, fields: &[Given], flow: &mut Flow) -> [u8; MAD_LEN] {
    let frame = crate::frame::build(&word(name), fields, flow).unwrap();
    flow.note(&frame);
    mad_of(&frame)
}

fn data(mad: &[u8; MAD_LEN]) -> &[u8; DATA_LEN] {
    mad.last_chunk().unwrap()
}

#[test]
fn no_two_fields_of_a_message_share_a_bit() {
    for name in NAMES {
        let message = Message::named(name).unwrap();
        for has_header in [false, message.may_have_header()] {
            let mut taken = [false; MAD_LEN * 8];
            for field in message.all(has_header) {
                let bits = &mut taken[field.first..field.first + field.bits];
                assert!(bits.iter().all(|&taken| !taken), "{name}: {}", field.name);
                bits.fill(true);
            }
        }
    }
}

#[test]
fn every_field_is_built_and_compared() {
    for name in NAMES {
        let message = Message::named(name).unwrap();
        for field in message.all(message.may_have_header()) {
            let known = ["class", "attribute", "service-id"].contains(&field.name);
            let datum = match field.style {
                Style::Gid | Style::Address => Datum::Text(String::from("10.1.2.3")),
                Style::Bytes => Datum::Bytes(vec![0x5a; field.bits / 8]),
                _ if known => continue,
                _ => Datum::Number(field.most() / 3 * 2 + 1),
            };
            let said = [given(field.name, datum)];
            let flow = both();
            let frame = crate::frame::build(&word(name), &said, &flow).unwrap();
            let same = crate::frame::compare(&word(name), &said, &flow, &frame);
            assert_eq!(same, Ok(vec![]), "{name}: {}", field.name);
            let plain = crate::frame::build(&word(name), &[], &flow).unwrap();
            let other = crate::frame::compare(&word(name), &said, &flow, &plain).unwrap_err();
            assert_eq!(other[0].field, field.name, "{name}");
        }
    }
}

#[test]
fn fields_are_where_the_stack_reads_them() {
    let mut flow = both();
    let said = [
        number("local-id", 0x1122_3344),
        number("service-id", 0x0106_1d30),
        number("local-qpn", 0xabcdef),
        number("path-mtu", 5),
        number("primary-flow-label", 0xabcde),
        number("primary-sl", 9),
        number("primary-packet-rate", 0x15),
        number("local-response-timeout", 21),
        number("retry-count", 5),
        number("starting-psn", 0xfedcba),
        number("srq", 1),
    ];
    let mad = sent("cm-req", &said, &mut flow);
    let req = Req::parse(data(&mad));
    assert_eq!((req.local_comm_id, req.service), (0x1122_3344, ServiceId(0x0106_1d30)));
    assert_eq!((req.local_qpn, req.path_mtu, req.starting_psn), (0xabcdef, 5, 0xfedcba));
    assert_eq!((req.primary.flow_label, req.primary.sl), (0xabcde, 9));
    assert_eq!((req.primary.packet_rate, req.srq, req.transport), (0x15, true, 0));
    assert_eq!((req.local_response_timeout, req.retry_count), (21, 5));
    let ip = IpHeader::parse(Req::private_data(data(&mad))).unwrap();
    assert_eq!(ip.source, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(ip.destination, Ipv4Addr::new(10, 0, 0, 1));

    let said = [number("failover", 2), number("rnr-retry-count", 6), number("srq", 1)];
    let rep = Rep::parse(data(&sent("cm-rep", &said, &mut flow)));
    assert_eq!((rep.failover, rep.rnr_retry_count, rep.srq), (2, 6, true));
    let said = [number("reason", 26), given("information", Datum::Bytes(vec![5]))];
    let rej = Rej::parse(data(&sent("cm-rej", &said, &mut flow)));
    assert_eq!((rej.reason, rej.ari()), (RejReason(26), &[5][..]));
}

#[test]
fn a_header_can_be_left_out() {
    let said = [given("ip-header", Datum::Word("none".into())), given("private-data", bytes(92))];
    let mad = sent("cm-req", &said, &mut both());
    assert_eq!(Req::private_data(data(&mad)), [7; 92]);
}

fn bytes(count: usize) -> Datum {
    Datum::Bytes(vec![7; count])
}

#[test]
fn what_is_not_said_follows_from_the_messages_before() {
    let mut flow = both();
    // The target asks; a frame of its own has its addresses.
    let mirrored = Flow { target: flow.peer, peer: flow.target, ..both() };
    let said = [number("local-id", 0x77), number("transaction", 0x99)];
    let asked = crate::frame::build(&word("cm-req"), &said, &mirrored).unwrap();
    flow.note(&asked);
    let mad = sent("cm-rep", &[number("local-id", 5)], &mut flow);
    let rep = Rep::parse(data(&mad));
    assert_eq!(Mad::parse(&mad).transaction_id, 0x99);
    assert_eq!((rep.local_comm_id, rep.remote_comm_id), (5, 0x77));
    let mad = sent("cm-dreq", &[], &mut flow);
    assert_eq!(mad[24..32], [0, 0, 0, 5, 0, 0, 0, 0x77]);
    // A connection of the peer is another one.
    let req = Req::parse(data(&sent("cm-req", &[], &mut flow)));
    assert_ne!((req.local_comm_id, req.local_qpn), (5, 0xb005));
}

#[test]
fn the_last_connections_are_remembered_and_no_more() {
    let mut flow = both();
    for _ in 0..1000 {
        sent("cm-req", &[], &mut flow);
    }
    let known = |id: u64| flow.talks.find(false, Some(id), None).is_some();
    assert!(known(1000) && known(745) && !known(744));
}

#[test]
fn every_datagram_of_a_target_is_judged() {
    let flow = both();
    let judged = |name: &str, said: &[Given]| {
        let mirrored = Flow { target: flow.peer, peer: flow.target, ..both() };
        let frame = crate::frame::build(&word(name), said, &mirrored).unwrap();
        let faults = crate::frame::Judge::default().judge(&frame, &flow);
        faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>()
    };
    for name in NAMES.iter().filter(|&&name| name != "mad") {
        assert_eq!(judged(name, &[]), [""; 0], "{name}");
    }
    assert_eq!(judged("cm-req", &[number("method", 1)]), ["method"]);
    assert_eq!(judged("cm-req", &[number("class-version", 1)]), ["class-version"]);
    assert_eq!(judged("cm-rtu", &[number("mad-status", 4)]), ["mad-status"]);
    assert_eq!(judged("cm-rtu", &[number("mad-reserved", 4)]), ["reserved bits"]);
    assert_eq!(judged("mad", &[number("attribute", 0x1b)]), ["attribute"]);
    assert_eq!(judged("cm-rtu", &[number("mad-length", 200)]), ["payload-length"]);
    assert_eq!(judged("cm-rtu", &[number("qkey", 1)]), [""; 0], "the scenario compares it");
}

#[test]
fn wrong_fields_are_found_before_a_scenario_runs() {
    let check = |frame: &str, name: &str, value: Value, of| {
        let field = Sentence { name: word(name), value };
        crate::frame::check(&word(frame), &[field], of).map_err(|error| error.message)
    };
    let one = || Value::Expr(Expr::Number(1));
    assert_eq!(check("cm-req", "primary-sl", one(), Use::Built), Ok(()));
    assert_eq!(check("cm-req", "qkey", one(), Use::Built), Ok(()));
    assert_eq!(check("cm-rep", "local-id", Value::Any(Some(word("x"))), Use::Compared), Ok(()));
    let error = check("cm-rtu", "primary-sl", one(), Use::Built).unwrap_err();
    assert!(error.contains("primary-sl"), "{error}");
    check("cm-req", "private-data", one(), Use::Built).unwrap_err();
    check("cm-req", "primary-local-gid", one(), Use::Built).unwrap_err();
    check("cm-req", "local-id", Value::Any(None), Use::Built).unwrap_err();
    check("cm-req", "ip-header", one(), Use::Built).unwrap_err();
}

#[test]
fn too_much_does_not_fit() {
    let refused = |name: &str, said: Given| {
        crate::frame::build(&word(name), &[said], &both()).unwrap_err().message
    };
    assert!(refused("cm-req", given("private-data", bytes(57))).contains("at most 56 bytes"));
    assert!(refused("cm-rej", number("information-length", 128)).contains("at most 127"));
    assert!(refused("cm-req", number("qkey", 1 << 32)).contains("qkey"));
}

#[test]
fn described_as_a_sentence() {
    let mut flow = both();
    let said = [number("local-id", 3), given("private-data", bytes(2)), number("qkey", 1)];
    let frame = crate::frame::build(&word("cm-req"), &said, &flow).unwrap();
    let text = crate::frame::describe(&frame, &flow);
    assert!(text.starts_with("cm-req, transaction 0x3, local-id 0x3"), "{text}");
    assert!(text.ends_with("private-data hex \"07 07\", qkey 0x1"), "{text}");
    flow.note(&frame);
    assert_eq!(flow.sender(&Packet::parse(&frame).unwrap().headers), Side::Peer);
}
