//! Pictures of events that no capture has: arrivals, losses, copies, hostile words.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ferroce_ladder::{Axis, Event, Fate, Mark, Note, Options, html, svg};
use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{
    Aeth, Bth, Ethernet, Extensions, Headers, Ipv4, Mac, Net, Opcode, Syndrome, Udp, seal,
};
use roxmltree::{Document, Node};

const CLIENT: u8 = 1;
const SERVER: u8 = 2;

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

/// A packet of 64 bytes of payload from a host to the other; an ACK if there is a syndrome.
fn frame(from: u8, to: u8, opcode: Opcode, psn: u32, syndrome: Option<Syndrome>) -> Vec<u8> {
    let (src, dst) = (address(from), address(to));
    let payload_len = if syndrome.is_some() { 0 } else { 64 };
    let ip = Ipv4 { src, dst, tos: 2, ident: 0, dont_fragment: true, ttl: 64 };
    let aeth = syndrome.map(|syndrome| Aeth { syndrome, msn: 1 });
    let headers = Headers {
        eth: Ethernet { dst: Mac([to; 6]), src: Mac([from; 6]), vlan: None },
        net: Net::V4(ip),
        udp: Udp { source_port: 0xc000, checksum: 0 },
        bth: Bth::new(opcode, 0x10 + u32::from(to), Psn::new(psn)),
        ext: Extensions { aeth, ..Extensions::default() },
    };
    let mut frame = vec![0; 200];
    let layout = headers.emit(payload_len, &mut frame).expect("room");
    let len = seal(&mut frame, &layout, payload_len);
    frame.truncate(len);
    frame
}

fn send(number: u64, at_us: u64, psn: u32) -> Event {
    let bytes = frame(CLIENT, SERVER, Opcode::RC_SEND_ONLY, psn, None);
    let mut event = Event::new(number, Duration::from_micros(at_us), bytes);
    event.fate = Fate::Arrived { at: Duration::from_micros(at_us + 10) };
    event.source_qp = Some(0x10 + u32::from(CLIENT));
    event
}

fn answer(number: u64, at_us: u64, psn: u32, syndrome: Syndrome) -> Event {
    let bytes = frame(SERVER, CLIENT, Opcode::RC_ACKNOWLEDGE, psn, Some(syndrome));
    let mut event = Event::new(number, Duration::from_micros(at_us), bytes);
    event.fate = Fate::Arrived { at: Duration::from_micros(at_us + 10) };
    event.source_qp = Some(0x10 + u32::from(SERVER));
    event
}

fn has_class(node: &Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|list| list.split(' ').any(|one| one == class))
}

fn with_class<'a>(document: &'a Document<'a>, class: &'a str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| has_class(node, class)).collect()
}

fn number(node: &Node<'_, '_>, key: &str) -> i64 {
    node.attribute(key).and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn arrows_slant_where_the_arrival_is_known_and_keep_cause_before_effect() {
    let events = [send(1, 0, 5), send(2, 1, 6), answer(3, 11, 6, Syndrome::ACK)];
    for axis in [Axis::Order, Axis::Time] {
        let text = svg(&events, &Options { axis, ..Options::default() });
        let document = Document::parse(&text).expect("XML");
        let packets = with_class(&document, "packet");
        let (sent, arrived): (Vec<i64>, Vec<i64>) = packets
            .iter()
            .map(|node| (number(node, "data-y"), number(node, "data-arrival")))
            .unzip();
        assert!(sent[0] < sent[1] && sent[1] < arrived[0] && arrived[0] < arrived[1]);
        assert!(arrived[1] < sent[2] && sent[2] < arrived[2], "{axis:?}");
    }
}

#[test]
fn losses_end_in_a_cross_and_resends_are_dashed() {
    let mut lost = send(1, 0, 5);
    lost.fate = Fate::Lost;
    lost.notes.push(Note::plain("dropped by the script"));
    let mut copy = send(3, 60, 5);
    copy.fate = Fate::Duplicate { at: None };
    let events = [lost, send(2, 50, 5), copy, answer(4, 61, 5, Syndrome::ACK)];
    let text = svg(&events, &Options::default());
    let document = Document::parse(&text).expect("XML");
    let packets = with_class(&document, "packet");
    let cross = |node: &Node<'_, '_>| node.descendants().any(|node| has_class(&node, "cross"));
    let head = |node: &Node<'_, '_>| node.descendants().any(|node| has_class(&node, "head"));
    assert!(cross(&packets[0]) && !head(&packets[0]));
    assert!(head(&packets[1]) && has_class(&packets[1], "again"));
    assert!(has_class(&packets[2], "copy") && !has_class(&packets[2], "again"));
    assert!(text.contains("dropped by the script"));
    let unjudged = svg(&events, &Options { find_repeats: false, ..Options::default() });
    assert!(with_class(&Document::parse(&unjudged).expect("XML"), "again").is_empty());
}

#[test]
fn rnr_wait_lasts_from_the_naks_arrival_to_the_resend() {
    let events = [
        send(1, 0, 5),
        answer(2, 20, 5, Syndrome::rnr_nak(14)),
        send(3, 2030, 5),
        answer(4, 2050, 5, Syndrome::ACK),
    ];
    let text = svg(&events, &Options::default());
    let document = Document::parse(&text).expect("XML");
    let [wait] = with_class(&document, "wait")[..] else { panic!("{text}") };
    let packets = with_class(&document, "packet");
    assert_eq!(number(&wait, "data-y1"), number(&packets[1], "data-arrival"));
    assert_eq!(number(&wait, "data-y2"), number(&packets[2], "data-y"));
    assert!(text.contains("RNR 1.28 ms") && text.contains("took 2 ms"));
    let by_time = svg(&events, &Options { axis: Axis::Time, ..Options::default() });
    assert!(by_time.contains("2 ms without a packet"));
}

#[test]
fn hostile_words_stay_words() {
    let hostile = "</text><script>alert('1')</script>\"&\u{1b}\u{202e}";
    let mut event = send(1, 0, 5);
    event.notes = vec![Note { mark: Mark::Violation, text: hostile.repeat(1000) }; 1000];
    event.notes.push(Note { mark: Mark::Missing, text: hostile.into() });
    let options = Options {
        title: hostile.repeat(1000),
        remarks: vec![hostile.repeat(1000)],
        names: vec![(IpAddr::V4(address(CLIENT)), hostile.into())],
        ..Options::default()
    };
    let events = [event];
    let picture = svg(&events, &options);
    let document = Document::parse(&picture).expect("XML");
    assert!(document.descendants().all(|node| !node.has_tag_name("script")));
    let page = html(&events, &options);
    assert_eq!(page.matches("<script").count(), 1);
    assert!(picture.len() < 40_000 && page.len() < 60_000, "{}", page.len());
}

#[test]
fn pictures_are_bounded_and_say_what_they_leave_out() {
    let events: Vec<Event> = (0..300).map(|at| send(at + 1, at, at as u32)).collect();
    let options = Options { packets_max: 100, left_out: 7, ..Options::default() };
    let text = svg(&events, &options);
    let document = Document::parse(&text).expect("XML");
    assert_eq!(with_class(&document, "packet").len(), 100);
    assert!(text.contains("100 of 307 packets; left out: 207 beyond the limit"));
    let crowd: Vec<Event> = (0..200)
        .map(|host| {
            let bytes = frame(host, host + 1, Opcode::RC_SEND_ONLY, 0, None);
            Event::new(u64::from(host) + 1, Duration::ZERO, bytes)
        })
        .collect();
    let text = svg(&crowd, &Options::default());
    let document = Document::parse(&text).expect("XML");
    assert_eq!(with_class(&document, "name").len(), 12);
    assert!(text.contains("11 of 200 packets; left out: 189 of further ends"));
}

#[test]
fn columns_are_in_order_of_appearance_and_flows_are_chosen_by_qp() {
    let mut events = vec![answer(1, 0, 5, Syndrome::ACK), send(2, 30, 6)];
    events.push(Event::new(
        3,
        Duration::from_micros(90),
        frame(3, 1, Opcode::RC_SEND_ONLY, 9, None),
    ));
    let text = svg(&events, &Options::default());
    let document = Document::parse(&text).expect("XML");
    let names: Vec<&str> = with_class(&document, "name").iter().filter_map(Node::text).collect();
    assert_eq!(names, ["10.0.0.2", "10.0.0.1", "10.0.0.3"]);
    let text = svg(&events, &Options { qps: vec![0x12], ..Options::default() });
    let document = Document::parse(&text).expect("XML");
    assert_eq!(with_class(&document, "packet").len(), 2);
}

#[test]
fn any_bytes_are_drawn() {
    let whole = frame(CLIENT, SERVER, Opcode::RC_SEND_ONLY, 5, None);
    for len in 0..whole.len() {
        for cut in [false, true] {
            let mut event = Event::new(1, Duration::MAX, whole[..len].to_vec());
            event.cut = cut;
            let text = svg(&[event], &Options { axis: Axis::Time, ..Options::default() });
            let document = Document::parse(&text).expect("XML");
            // Without an Ethernet header there is nobody to draw.
            assert_eq!(with_class(&document, "packet").len(), usize::from(len >= 14));
        }
    }
    let mut damaged = whole.clone();
    damaged[60] ^= 1;
    let text = svg(&[Event::new(1, Duration::ZERO, damaged)], &Options::default());
    assert!(text.contains("ICRC WRONG") && text.contains("damaged"));
    Document::parse(&svg(&[], &Options::default())).expect("an empty picture is one, too");
}

#[test]
fn talking_to_oneself_has_a_column_for_each_qp() {
    let mut there = Event::new(1, Duration::ZERO, frame(1, 1, Opcode::RC_SEND_ONLY, 5, None));
    there.source_qp = Some(0x20);
    let text = svg(&[there], &Options::default());
    let document = Document::parse(&text).expect("XML");
    assert_eq!(with_class(&document, "name").len(), 2);
    assert!(text.contains("qp 0x20") && text.contains("qp 0x11"));
}

#[test]
fn page_needs_nothing_but_itself_and_has_every_flow_and_header() {
    let events = [send(1, 0, 5), answer(2, 20, 5, Syndrome::ACK)];
    let page = html(&events, &Options::default());
    assert_eq!(page.matches("://").count(), 1, "but the name of SVG's namespace");
    assert!(!page.contains("src=") && !page.contains("href="));
    assert_eq!(page.matches("type=\"checkbox\"").count(), 1);
    assert!(page.contains("10.0.0.1 qp 0x11 \u{2013} 10.0.0.2 qp 0x12"));
    for field in ["BTH: opcode 0x04 (RC SEND Only)", "PSN 5 ", "AETH: syndrome 0x1f", "TTL 64"] {
        assert!(page.contains(field), "{field}");
    }
}
