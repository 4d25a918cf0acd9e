use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ferroce_stack::GidType;
use ferroce_stack::gid::Gid;
use ferroce_stack::wire::{Mac, Net};
use proptest::prelude::*;

use super::fields::{FIELDS, Style};
use super::*;
use crate::ast::{Bytes, Expr, Kind, Value};
use crate::value::{Datum, Given};

fn word(value: &str) -> Word {
    Word { value: value.into(), line: 1, column: 1 }
}

fn given(name: &str, datum: Datum) -> Given {
    Given { name: word(name), datum }
}

fn number(name: &str, value: u64) -> Given {
    given(name, Datum::Number(value))
}

fn entry(gid: Gid, host: u8, vlan: Option<u16>) -> GidEntry {
    GidEntry { gid, gid_type: GidType::RoceV2, mac: Mac([2, 0, 0, 0, 0, host]), vlan }
}

fn flow_of(service: Transport) -> Flow {
    let address = |host| entry(Gid::from(Ipv4Addr::new(10, 0, 0, host)), host, None);
    let flow = Flow::new(address(1), address(2), service);
    Flow { target_qpn: 0x10, peer_qpn: 0x55, srqn: 0x77, ..flow }
}

fn v6_flow(service: Transport) -> Flow {
    let address = |host: u8| {
        entry(Gid::from(Ipv6Addr::from([0x20u16, u16::from(host), 0, 0, 0, 0, 0, 1])), host, None)
    };
    Flow { target: address(1), peer: address(2), ..flow_of(service) }
}

/// The flow as the other side sees it, so that what the peer sends can be compared.
fn mirrored(flow: &Flow) -> Flow {
    Flow { send_psn: flow.receive_psn, receive_psn: flow.send_psn, ..flow.clone() }
}

/// What has to be said of each frame.
fn least(frame: &str) -> Vec<Given> {
    let remote = || vec![number("to", 0x1000), number("key", 0x101)];
    let payload = || vec![given("payload", Datum::Bytes(vec![7; 5]))];
    let mut fields = match frame {
        "send-last" | "write-last" => payload(),
        "send-last-imm" | "write-last-imm" => [payload(), vec![number("imm", 1)]].concat(),
        "send-only-imm" => vec![number("imm", 1)],
        "send-last-inv" => [payload(), vec![number("invalidate", 1)]].concat(),
        "send-only-inv" => vec![number("invalidate", 1)],
        "write-first" | "read-request" | "flush" => {
            [remote(), vec![number("length", 3000)]].concat()
        }
        "write-only" | "atomic-write" => remote(),
        "write-only-imm" => [remote(), vec![number("imm", 1)]].concat(),
        "compare-swap" => [remote(), vec![number("compare", 1), number("swap", 2)]].concat(),
        "fetch-add" => [remote(), vec![number("add", 2)]].concat(),
        "read-response-last" => payload(),
        "atomic-acknowledge" => vec![number("original", 9)],
        _ => Vec::new(),
    };
    fields.push(number("psn", 0));
    fields
}

const FRAMES: [&str; 31] = [
    "send-first",
    "send-middle",
    "send-last",
    "send-last-imm",
    "send-last-inv",
    "send-only",
    "send-only-imm",
    "send-only-inv",
    "write-first",
    "write-middle",
    "write-last",
    "write-last-imm",
    "write-only",
    "write-only-imm",
    "read-request",
    "read-response-first",
    "read-response-middle",
    "read-response-last",
    "read-response-only",
    "acknowledge",
    "atomic-acknowledge",
    "compare-swap",
    "fetch-add",
    "flush",
    "atomic-write",
    "cnp",
    "ack",
    "nak-sequence",
    "nak-remote-access",
    "rnr-nak",
    "opcode-24",
];

/// A frame and flow that has the field.
fn home(name: &str) -> (&'static str, Flow) {
    let rc = || flow_of(Transport::Rc);
    match name {
        "to" | "key" | "length" => ("write-only", rc()),
        "compare" | "swap" => ("compare-swap", rc()),
        "add" => ("fetch-add", rc()),
        "timer" => ("rnr-nak", rc()),
        "credits" | "syndrome" | "msn" => ("acknowledge", rc()),
        "original" => ("atomic-acknowledge", rc()),
        "imm" => ("send-only-imm", rc()),
        "invalidate" => ("send-only-inv", rc()),
        "level" | "placement" => ("flush", rc()),
        "qkey" | "source-qp" => ("send-only", flow_of(Transport::Ud)),
        "srq" => ("send-only", flow_of(Transport::Xrc)),
        "flow-label" => ("send-only", v6_flow(Transport::Rc)),
        _ => ("send-only", rc()),
    }
}

/// The fields of `least` with one of them replaced or added.
fn with_field(frame: &str, field: Given) -> Vec<Given> {
    let mut fields = least(frame);
    fields.retain(|given| given.name.value != field.name.value);
    fields.push(field);
    fields
}

#[test]
fn every_field_is_read_as_it_is_set() {
    for field in FIELDS {
        let (frame, flow) = home(field.name);
        let damaged = ["ip-length", "ip-checksum", "udp-length", "destination-port"];
        for value in [0, 1, field.most() / 2, field.most()] {
            let fields = with_field(frame, number(field.name, value));
            let bytes = build(&word(frame), &fields, &flow).unwrap();
            if damaged.contains(&field.name) {
                continue;
            }
            let seen =
                Seen::new(&bytes).unwrap_or_else(|reason| panic!("{}: {reason:?}", field.name));
            let read = field.read(&seen);
            let wanted = match field.style {
                Style::Psn => (value + u64::from(flow.receive_psn)) & field.most(),
                _ => value,
            };
            assert_eq!(read, Some(wanted), "{} of {frame}", field.name);
            // Another opcode is another frame.
            if field.name == "opcode" {
                continue;
            }
            let same = compare(&word(frame), &fields, &mirrored(&flow), &bytes);
            assert_eq!(same, Ok(vec![]), "{} of {frame}", field.name);
            let other = with_field(frame, number(field.name, value ^ 1));
            let differences = compare(&word(frame), &other, &mirrored(&flow), &bytes);
            let differences = differences.unwrap_err();
            assert_eq!(differences.len(), 1, "{differences:?}");
        }
        let beyond = with_field(frame, number(field.name, field.most().wrapping_add(1)));
        let refused = build(&word(frame), &beyond, &flow).is_err();
        assert!(refused || field.bits == 64 || field.style == Style::Psn, "{}", field.name);
    }
}

#[test]
fn derived_fields_are_where_they_belong() {
    let flow = flow_of(Transport::Rc);
    let at = |name: &str, value: u64| {
        let fields = with_field("send-only", number(name, value));
        let bytes = build(&word("send-only"), &fields, &flow).unwrap();
        let offset = match name {
            "ip-length" => 16,
            "ip-checksum" => 24,
            "destination-port" => 36,
            _ => 38,
        };
        u64::from(u16::from_be_bytes([bytes[offset], bytes[offset + 1]]))
    };
    for name in ["ip-length", "ip-checksum", "udp-length", "destination-port"] {
        assert_eq!(at(name, 0x1234), 0x1234, "{name}");
    }
}

#[test]
fn everything_that_is_not_said_is_right() {
    for flow in [flow_of(Transport::Rc), v6_flow(Transport::Rc)] {
        for frame in FRAMES.into_iter().filter(|&frame| frame != "opcode-24") {
            let bytes = build(&word(frame), &least(frame), &flow).unwrap();
            // What the peer sends, judged as if it were the target.
            let flow = Flow {
                target: flow.peer,
                peer: flow.target,
                target_qpn: flow.peer_qpn,
                peer_qpn: flow.target_qpn,
                ..flow.clone()
            };
            let faults = Judge::default().judge(&bytes, &flow);
            assert_eq!(faults, vec![], "{frame}");
        }
    }
}

#[test]
fn psns_wrap_both_ways() {
    let flow = Flow { receive_psn: 1, ..flow_of(Transport::Rc) };
    let psn = |value: i64| {
        let fields = [number("psn", value as u64)];
        let bytes = build(&word("send-only"), &fields, &flow).unwrap();
        Seen::new(&bytes).unwrap().headers().bth.psn.value()
    };
    assert_eq!((psn(0), psn(-1), psn(-2), psn(5)), (1, 0, 0xff_ffff, 6));
    // The answers of the peer count from the PSN that the target began with.
    let bytes = build(&word("ack"), &[number("psn", 2)], &flow).unwrap();
    assert_eq!(Seen::new(&bytes).unwrap().headers().bth.psn.value(), 0x802);
}

#[test]
fn ranges_of_psns_wrap_and_bind() {
    let flow = flow_of(Transport::Rc);
    let bytes = build(&word("send-only"), &[number("psn", u64::MAX)], &flow).unwrap();
    let own = mirrored(&flow);
    let range = |from: i64, to: i64| given("psn", Datum::Range(from as u64, to as u64));
    assert_eq!(compare(&word("send-only"), &[range(-2, 3)], &own, &bytes), Ok(vec![]));
    assert!(compare(&word("send-only"), &[range(0, 3)], &own, &bytes).is_err());
    let any = given("psn", Datum::Any(Some("x".into())));
    let bound = compare(&word("send-only"), &[any], &own, &bytes);
    assert_eq!(bound, Ok(vec![("x".into(), u64::MAX)]));
}

#[test]
fn the_icrc_is_damaged_as_it_is_said() {
    let flow = flow_of(Transport::Rc);
    let icrc = |fields: &[Given]| {
        let fields = [&[number("psn", 0)][..], fields].concat();
        let bytes = build(&word("send-only"), &fields, &flow).unwrap();
        let seen = Seen::new(&bytes).unwrap();
        (seen.packet.icrc, seen.packet.icrc_ok(&bytes))
    };
    let payload = given("payload", Datum::Bytes(vec![1, 2, 3]));
    let right = icrc(std::slice::from_ref(&payload));
    assert!(right.1);
    let how = |word: &str| given("icrc", Datum::Word(word.into()));
    assert!(!icrc(&[payload.clone(), how("wrong")]).1);
    assert!(!icrc(&[payload.clone(), how("without-pad")]).1);
    assert_eq!(icrc(&[payload.clone(), how("swapped")]), (right.0.swap_bytes(), false));
    assert_eq!(icrc(&[payload, number("icrc", 5)]), (5, false));
    let refused = build(&word("send-only"), &[number("psn", 0), how("without-pad")], &flow);
    assert!(refused.is_err());
}

#[test]
fn bytes_are_cut_added_and_changed() {
    let flow = flow_of(Transport::Rc);
    let frame = |fields: &[Given]| {
        let fields = [&[number("psn", 0)][..], fields].concat();
        build(&word("send-only"), &fields, &flow).unwrap()
    };
    let plain = frame(&[]);
    assert_eq!(plain.len(), 58);
    assert_eq!(frame(&[number("cut", 4)]), plain[..54]);
    let trailing = given("trailing", Datum::Bytes(vec![0, 0]));
    assert_eq!(frame(&[trailing]), [&plain[..], &[0, 0]].concat());
    let changed = frame(&[given("byte", Datum::Range(3, 9))]);
    assert_eq!(changed[3], 9);
    let beyond = [number("psn", 0), given("byte", Datum::Range(58, 9))];
    assert!(build(&word("send-only"), &beyond, &flow).is_err());
    let pad = [number("psn", 0), number("pad", 2)];
    assert_eq!(build(&word("send-only"), &pad, &flow).unwrap().len(), 60);
}

#[test]
fn what_is_missing_is_named() {
    let flow = flow_of(Transport::Rc);
    let refused =
        |frame: &str, fields: &[Given]| build(&word(frame), fields, &flow).unwrap_err().message;
    assert_eq!(refused("send-only", &[]), "`send-only` needs `psn`");
    assert_eq!(refused("write-only", &[number("psn", 0)]), "`write-only` needs `to`");
    assert_eq!(refused("read-request", &[number("psn", 0)]), "`read-request` needs `length`");
    assert_eq!(refused("send-lsat", &[]), "there is no frame `send-lsat`; is it `send-last`?");
    let foreign = [number("psn", 0), number("to", 0)];
    assert_eq!(refused("send-only", &foreign), "this frame has no `to`");
    let label = [number("psn", 0), number("flow-label", 0)];
    assert_eq!(refused("send-only", &label), "this frame has no `flow-label` over IPv4");
}

#[test]
fn a_frame_is_described_as_it_would_be_said() {
    let flow = flow_of(Transport::Rc);
    let described = |frame: &str, fields: &[Given]| {
        let mut all = least(frame);
        for field in fields {
            all.retain(|given| given.name.value != field.name.value);
            all.push(field.clone());
        }
        describe(&build(&word(frame), &all, &flow).unwrap(), &flow)
    };
    let payload = given("payload", Datum::Bytes(vec![0xab; 64]));
    let asks = given("ack-request", Datum::Flag);
    let table = [
        (
            described("write-only", &[payload, asks]),
            "write-only, psn 0, to 0x1000, key 0x101, length 64, ack-request, payload 64 of 0xab",
        ),
        (described("nak-remote-access", &[number("msn", 3)]), "nak-remote-access, psn 0, msn 3"),
        (
            described("send-only", &[number("psn", -1_i64 as u64), number("pkey", 0x7fff)]),
            "send-only, psn -1, pkey 0x7fff",
        ),
        (
            described("send-only", &[given("service", Datum::Word("uc".into()))]),
            "send-only, service uc, psn 0",
        ),
        (
            described("send-only", &[given("payload", Datum::Bytes(vec![1, 2, 3, 9]))]),
            "send-only, psn 0, payload hex \"01 02 03 09\"",
        ),
        (described("rnr-nak", &[number("timer", 4)]), "rnr-nak, psn 0, timer 4, msn 0"),
        (described("opcode-24", &[]), "opcode-24, psn 0"),
    ];
    for (line, wanted) in table {
        assert_eq!(line, wanted);
    }
    let short = describe(&[1, 2], &flow);
    assert_eq!(short, "# 2 bytes that are no packet (truncated): 01 02");
}

#[test]
fn differences_are_written_as_the_field_is() {
    let flow = flow_of(Transport::Rc);
    let bytes = build(&word("write-only"), &least("write-only"), &flow).unwrap();
    let differs = |frame: &str, field: Given| {
        let differences = compare(&word(frame), &[field], &mirrored(&flow), &bytes).unwrap_err();
        differences[0].to_string()
    };
    let table = [
        (differs("write-only", number("key", 0x102)), "key: expected 0x102, got 0x101"),
        (differs("write-only", number("psn", 3)), "psn: expected 3 (0x103), got 0 (0x100)"),
        (differs("ack", number("psn", 3)), "frame: expected ack, got write-only, psn 0"),
        (differs("write-only", number("msn", 3)), "msn: expected 3, got none"),
    ];
    for (line, wanted) in table {
        assert_eq!(line, wanted);
    }
}

/// Frames of a capture in the classic format, little-endian.
fn frames_of(file: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let bytes = std::fs::read(folder.join(file)).unwrap();
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        frames.push(after[..len].to_vec());
        rest = &after[len..];
    }
    frames
}

/// A flow to which a frame of a capture belongs.
fn flow_from(bytes: &[u8], mtu: u32) -> Option<Flow> {
    let (headers, _) = Headers::parse(bytes).ok()?;
    let service = headers.bth.opcode.info()?.transport;
    let vlan = headers.eth.vlan.map(|tag| tag.vid);
    let gid_type = GidType::RoceV2;
    let target = GidEntry { gid: headers.net.source(), gid_type, mac: headers.eth.src, vlan };
    let peer = GidEntry { gid: headers.net.destination(), mac: headers.eth.dst, ..target };
    let flow = Flow {
        target_qpn: headers.ext.deth.map_or(0, |deth| deth.src_qp),
        peer_qpn: headers.bth.dest_qp,
        mtu,
        traffic_class: headers.net.traffic_class(),
        sl: headers.eth.vlan.map_or(0, |tag| tag.pcp),
        ..Flow::new(target, peer, service)
    };
    Some(flow).filter(|_| !matches!(headers.net, Net::V1(_)))
}

#[test]
fn frames_of_other_implementations_pass_or_fail_as_known() {
    let files: [(&str, u32, &[&str]); 12] = [
        ("rxe-6.12-rc-write.pcap", 1024, &[]),
        ("rxe-6.12-rc-read.pcap", 1024, &[]),
        // One of its requests is misaligned on purpose.
        ("rxe-6.12-naks.pcap", 1024, &["to"]),
        ("rxe-6.12-uc.pcap", 1024, &[]),
        ("rxe-6.12-ipv6-rc-send.pcap", 1024, &[]),
        ("rxe-6.12-mtu4096-rc-write.pcap", 4096, &[]),
        ("rxe-6.12-rc-atomic.pcap", 1024, &[]),
        ("rxe-6.12-atomic-write.pcap", 1024, &[]),
        ("rxe-6.12-send-inv-mw2.pcap", 1024, &[]),
        ("rxe-vlan.pcap", 1024, &[]),
        ("rxe-tclass96.pcap", 1024, &[]),
        // Its ICRC of FLUSH goes over the headers twice.
        ("rxe-6.12-flush.pcap", 1024, &["icrc"]),
    ];
    for (file, mtu, known) in files {
        let mut judges = HashMap::new();
        let (mut judged, mut fields) = (0, Vec::new());
        for bytes in frames_of(file) {
            let Some(flow) = flow_from(&bytes, mtu).filter(|flow| flow.peer_qpn != 1) else {
                continue;
            };
            let judge: &mut Judge = judges.entry((flow.target.gid, flow.peer_qpn)).or_default();
            for fault in judge.judge(&bytes, &flow) {
                assert!(
                    known.contains(&fault.field),
                    "{file}: {fault}: {}",
                    describe(&bytes, &flow)
                );
                fields.push(fault.field);
            }
            judged += 1;
        }
        assert!(judged > 2, "{file}");
        assert!(known.iter().all(|field| fields.contains(field)), "{file}");
    }
}

#[test]
fn each_rule_finds_its_fault() {
    let flow = flow_of(Transport::Rc);
    let judged = Flow {
        target: flow.peer,
        peer: flow.target,
        target_qpn: flow.peer_qpn,
        peer_qpn: flow.target_qpn,
        ..flow.clone()
    };
    let flag = |name: &str| given(name, Datum::Flag);
    let table = [
        ("send-only", number("version", 1), "version"),
        ("send-only", number("pkey", 0x7fff), "pkey"),
        ("send-only", number("destination", 3), "destination"),
        ("send-only", number("reserved", 1), "reserved"),
        ("send-only", number("reserved6", 1), "reserved6"),
        ("send-only", flag("fecn"), "fecn"),
        ("send-only", flag("becn"), "becn"),
        ("send-only", number("pad", 1), "pad"),
        ("send-only", number("source-port", 0x8000), "source-port"),
        ("send-only", number("destination-port", 4790), "destination-port"),
        ("send-only", number("udp-checksum", 1), "udp-checksum"),
        ("send-only", number("udp-length", 25), "ip-length"),
        ("send-only", number("ip-checksum", 1), "ones' complement sum of the IPv4 header"),
        ("send-only", number("ttl", 0), "hop-limit"),
        ("send-only", number("tos", 4), "traffic-class"),
        ("send-only", flag("fragment"), "IPv4 flags and fragment offset"),
        ("send-only", given("icrc", Datum::Word("wrong".into())), "icrc"),
        ("send-only", given("trailing", Datum::Bytes(vec![0; 3])), "length of the frame"),
        ("send-only", number("cut", 1), "length of the frame"),
        ("send-only", number("vlan", 5), "vlan"),
        ("send-only", given("source-address", Datum::Text("10.0.0.3".into())), "source-address"),
        ("send-only", given("service", Datum::Word("uc".into())), "opcode"),
        ("send-middle", given("payload", Datum::Bytes(vec![0; 1020])), "payload-length"),
        ("send-middle", flag("solicited"), "solicited"),
        ("write-only", flag("solicited"), "solicited"),
        ("ack", flag("ack-request"), "ack-request"),
        ("ack", number("syndrome", 0x47), "syndrome"),
        ("read-response-only", number("syndrome", 0x62), "syndrome"),
        ("write-only", number("length", 5), "length"),
        ("compare-swap", number("to", 4), "to"),
    ];
    for (frame, field, wanted) in table {
        let said = format!("{frame} with {field:?}");
        let bytes = build(&word(frame), &with_field(frame, field), &flow).unwrap();
        let faults = Judge::default().judge(&bytes, &judged);
        let found: Vec<&str> = faults.iter().map(|fault| fault.field).collect();
        assert!(found.contains(&wanted), "{said}: {found:?}");
    }
    let mut judge = Judge::default();
    let other = with_field("send-only", number("source-port", 0xc123));
    let first = build(&word("send-only"), &least("send-only"), &flow).unwrap();
    assert_eq!(judge.judge(&first, &judged), vec![]);
    let second = build(&word("send-only"), &other, &flow).unwrap();
    assert_eq!(judge.judge(&second, &judged)[0].field, "source-port");
}

/// A sentence as a scenario would have it.
fn read_back(sentence: &str) -> (Word, Vec<Given>) {
    let text = format!("ferroce scenarios 1\nscenario a\n\"A.\"\nqp a rc\npeer sends {sentence}\n");
    let mut file = crate::parse::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let Kind::PeerSends { frame, fields } = file.scenarios.remove(0).body.remove(1).kind else {
        panic!("{sentence}");
    };
    check(&frame, &fields, Use::Built).unwrap_or_else(|error| panic!("{error}: {sentence}"));
    let fields = fields.into_iter().map(|field| Given {
        name: field.name,
        datum: match field.value {
            Value::Flag => Datum::Flag,
            Value::Text(text) => Datum::Text(text.value),
            Value::Expr(Expr::Name(word)) => Datum::Word(word.value),
            Value::Expr(expr) => Datum::Number(value_of(&expr)),
            Value::Bytes(Bytes::Hex(bytes)) => Datum::Bytes(bytes),
            Value::Bytes(Bytes::Of(count, byte)) => {
                Datum::Bytes(vec![value_of(&byte) as u8; value_of(&count) as usize])
            }
            Value::Bytes(Bytes::Counting(count, first)) => {
                let byte = |index| value_of(&first).wrapping_add(index) as u8;
                Datum::Bytes((0..value_of(&count)).map(byte).collect())
            }
            other => panic!("{other:?}"),
        },
    });
    (frame, fields.collect())
}

fn value_of(expr: &Expr) -> u64 {
    match expr {
        Expr::Number(value) => *value,
        Expr::Negative(value) => value_of(value).wrapping_neg(),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_compares_equal(
        frame in 0..FRAMES.len(),
        chosen in prop::collection::vec((0..FIELDS.len(), any::<u64>()), 0..6),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        v6 in any::<bool>(),
    ) {
        let frame = FRAMES[frame];
        let flow = if v6 { v6_flow(Transport::Rc) } else { flow_of(Transport::Rc) };
        let mut fields = least(frame);
        fields.retain(|given| given.name.value != "payload");
        fields.push(given("payload", Datum::Bytes(payload)));
        for (index, value) in chosen {
            let field = &FIELDS[index];
            let untold = matches!(field.place, super::fields::Place::Derived(..))
                || ["timer", "credits", "syndrome", "swap", "add", "pad"].contains(&field.name)
                || ["tos", "traffic-class", "ttl", "hop-limit"].contains(&field.name)
                || fields.iter().any(|given| given.name.value == field.name);
            let value = if field.style == Style::Psn { value } else { value & field.most() };
            let mut tried = fields.clone();
            tried.push(number(field.name, value));
            if !untold && build(&word(frame), &tried, &flow).is_ok() {
                fields = tried;
            }
        }
        let bytes = build(&word(frame), &fields, &flow).unwrap();
        // Another opcode has other headers; with headers that it does not have, a parser finds them
        // in the payload.
        let foreign = fields.iter().any(|given| given.name.value == "opcode");
        if !frame.starts_with("opcode") && !foreign {
            let outcome = compare(&word(frame), &fields, &mirrored(&flow), &bytes);
            prop_assert_eq!(outcome, Ok(vec![]));
        }
        let described = describe(&bytes, &flow);
        // Headers of another opcode may have bits that are no field, or not be there; long payload
        // is not written out.
        if !foreign && !described.contains('#') {
            let (frame, fields) = read_back(&described);
            let again = build(&frame, &fields, &flow);
            prop_assert_eq!(again.as_ref(), Ok(&bytes), "{}", described);
        }
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let flow = flow_of(Transport::Rc);
        let mut framed = build(&word("ack"), &[number("psn", 0)], &flow).unwrap();
        for (own, other) in framed.iter_mut().skip(12).zip(&bytes) {
            *own = *other;
        }
        for frame in [&bytes, &framed] {
            let _ = Judge::default().judge(frame, &flow);
            let _ = describe(frame, &flow);
            let _ = compare(&word("ack"), &least("ack"), &flow, frame);
        }
    }
}
