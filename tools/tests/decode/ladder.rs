//! `--ladder`: the picture has every packet, and marks what following the connections finds.

use std::io::{self, Cursor};

use ferroce_ladder::{Axis, Event, Options};
use ferroce_tools::capture::Capture;
use ferroce_tools::decode::{Options as DecodeOptions, decode_into};
use ferroce_tools::ladder::Recorder;
use roxmltree::{Document, Node};
use serde_json::Value;

use crate::ferroce;
use crate::support::{self, directory, file, json, pcap, recorded};

/// What `ferroce decode --ladder` draws a capture from.
fn drawing(bytes: Vec<u8>, options: Options) -> (Vec<Event>, Options) {
    let capture = Capture::new(Cursor::new(bytes)).expect("header");
    let recorder = Recorder::new(options);
    let decoded = decode_into(capture, DecodeOptions::default(), Some(recorder), &mut io::sink());
    decoded.expect("nothing to fail").1.expect("a drawing")
}

fn svg(bytes: Vec<u8>, options: Options) -> String {
    let (events, options) = drawing(bytes, options);
    ferroce_ladder::svg(&events, &options)
}

/// The elements of a picture that have this class.
fn with_class<'a>(document: &'a Document<'a>, class: &'a str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| has_class(node, class)).collect()
}

fn has_class(node: &Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|list| list.split(' ').any(|one| one == class))
}

/// The frames of the packets drawn with this class.
fn frames_with(document: &Document<'_>, class: &str) -> Vec<u64> {
    let packets = with_class(document, "packet");
    packets.iter().filter(|node| has_class(node, class)).map(frame_of).collect()
}

fn frame_of(node: &Node<'_, '_>) -> u64 {
    node.attribute("data-frame").and_then(|text| text.parse().ok()).expect("a frame")
}

fn number_of(node: &Node<'_, '_>, key: &str) -> i64 {
    node.attribute(key).and_then(|text| text.parse().ok()).expect("a number")
}

/// The label of a packet, marks included.
fn label(node: &Node<'_, '_>) -> String {
    let label = node.descendants().find(|node| has_class(node, "label")).expect("a label");
    let texts = label.descendants().filter(|node| node.is_text()).filter_map(|node| node.text());
    let words: Vec<&str> = texts.flat_map(str::split_whitespace).collect();
    words.join(" ")
}

/// Frames with a finding of one of these kinds, in order.
fn found(lines: &[Value], summary: &Value, kinds: &[&str]) -> Vec<u64> {
    let unattached = summary["unattached"].as_array().into_iter().flatten();
    let attached = lines.iter().filter_map(|line| line["findings"].as_array()).flatten();
    let mut frames: Vec<u64> = attached
        .chain(unattached)
        .filter(|finding| kinds.contains(&finding["kind"].as_str().expect("a kind")))
        .map(|finding| finding["frame"].as_u64().expect("a frame"))
        .collect();
    frames.sort_unstable();
    frames.dedup();
    frames
}

#[test]
fn every_packet_is_an_arrow_and_marked_as_verified() {
    for (name, bytes) in recorded() {
        let (lines, summary) = json(bytes.clone(), true, false);
        let options = Options { packets_max: 2000, ..Options::default() };
        let text = svg(bytes, options);
        let document = Document::parse(&text).expect(&name);
        // Native InfiniBand has no Ethernet header.
        let drawn: Vec<&Value> = lines.iter().filter(|line| line["roce"] != 0).take(2000).collect();
        let frames: Vec<u64> = drawn.iter().filter_map(|line| line["frame"].as_u64()).collect();
        let packets = with_class(&document, "packet");
        assert_eq!(packets.iter().map(frame_of).collect::<Vec<u64>>(), frames, "{name}");
        let mut y = 0;
        for node in &packets {
            let next = number_of(node, "data-y");
            assert!(next > y, "{name}: frame {}", frame_of(node));
            y = next;
        }
        let in_picture = |frame: &u64| frames.contains(frame);
        let again = ["retransmission", "read_resume", "duplicate_response"];
        let again: Vec<u64> =
            found(&lines, &summary, &again).into_iter().filter(in_picture).collect();
        let marked: Vec<u64> = packets
            .iter()
            .filter(|node| label(node).split(' ').any(|word| word == "again"))
            .map(frame_of)
            .collect();
        assert_eq!(marked, again, "{name}");
        let naks = found(&lines, &summary, &["sequence_nak", "nak", "nak_after_rnr"]);
        let drawn_naks = frames_with(&document, "nak");
        assert!(naks.iter().filter(|frame| in_picture(frame)).all(|nak| drawn_naks.contains(nak)));
        let rnr_naks = found(&lines, &summary, &["rnr_nak"]);
        let drawn_rnr = frames_with(&document, "rnr-nak");
        assert_eq!(drawn_rnr, rnr_naks, "{name}");
        let gaps = found(&lines, &summary, &["gap", "response_gap"]);
        let losses = with_class(&document, "loss").len();
        assert!(losses >= gaps.iter().filter(|frame| in_picture(frame)).count(), "{name}");
    }
}

#[test]
fn labels_say_what_packets_are() {
    let labels = |name: &str| -> Vec<String> {
        let text = svg(file(name), Options::default());
        let document = Document::parse(&text).expect("XML");
        with_class(&document, "packet").iter().map(label).collect()
    };
    let has = |labels: &[String], start: &str| {
        assert!(labels.iter().any(|label| label.starts_with(start)), "{start}: {labels:?}");
    };
    let naks = labels("rxe-naks.pcap");
    has(&naks, "NAK remote access psn ");
    let rnr = labels("rxe-rnr.pcap");
    has(&rnr, "RNR NAK ");
    has(&rnr, "SEND Only psn ");
    let read = labels("rxe-rc-read.pcap");
    assert!(
        read.iter()
            .any(|label| label.starts_with("READ Request psn") && label.contains(" responses)"))
    );
    has(&read, "READ Response First psn ");
    let connect = labels("rxe-cm-rping.pcap");
    for message in ["CM REQ port ", "CM REP qp ", "CM RTU", "CM DREQ", "CM DREP"] {
        has(&connect, message);
    }
    has(&labels("rxe-6.12-cm-reject.pcap"), "CM REJ ");
}

#[test]
fn rnr_waits_are_brackets_from_the_nak_to_the_request_sent_again() {
    let text = svg(file("rxe-rnr.pcap"), Options::default());
    let document = Document::parse(&text).expect("XML");
    let waits = with_class(&document, "wait");
    assert!(!waits.is_empty());
    let packets = with_class(&document, "packet");
    let at = |y: i64| {
        packets.iter().find(|node| number_of(node, "data-y") == y).expect("a packet there")
    };
    for wait in waits {
        assert!(has_class(at(number_of(&wait, "data-y1")), "rnr-nak"));
        let resend = at(number_of(&wait, "data-y2"));
        assert!(has_class(resend, "request") && label(resend).contains("again"));
    }
}

#[test]
fn both_directions_of_a_connection_are_one_flow_that_can_be_chosen() {
    let (events, options) = drawing(file("rxe-ib-send-bw-32k-2qp.pcap"), Options::default());
    let qpn = events.iter().find_map(|event| event.source_qp).expect("a QP whose peer is known");
    let text = ferroce_ladder::svg(&events, &Options { qps: vec![qpn], ..options });
    let document = Document::parse(&text).expect("XML");
    let packets = with_class(&document, "packet");
    let flows: Vec<&str> = packets.iter().filter_map(|node| node.attribute("data-flow")).collect();
    assert!(packets.len() > 2 && packets.len() < events.len());
    assert!(flows.iter().all(|&flow| flow == flows[0]), "{flows:?}");
    let direction = |node: &Node<'_, '_>| {
        let wire = node.children().find(|node| has_class(node, "wire")).expect("an arrow");
        number_of(&wire, "data-x1") < number_of(&wire, "data-x2")
    };
    assert!(packets.iter().any(direction) && !packets.iter().all(direction));
}

#[test]
fn long_captures_are_cut_and_say_so() {
    let (_, bytes) = recorded().into_iter().max_by_key(|(_, bytes)| bytes.len()).expect("one");
    let (lines, _) = json(bytes.clone(), false, false);
    let last = lines.last().and_then(|line| line["frame"].as_u64()).expect("a frame");
    let options = Options { numbers: Some(last - 9..=last), ..Options::default() };
    let text = svg(bytes, options);
    let document = Document::parse(&text).expect("XML");
    assert_eq!(with_class(&document, "packet").len(), 10);
    let words = format!("10 of {} packets; left out: {} not selected", last, last - 10);
    assert!(text.contains(&words), "{words}");
}

#[test]
fn damaged_and_foreign_frames_are_drawn_or_left_out_never_fatal() {
    let mut random = support::Random(0x1add);
    for (_, bytes) in recorded() {
        let mut frames = support::frames_of(bytes);
        frames.truncate(60);
        for frame in &mut frames {
            for _ in 0..4 {
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
            }
        }
        for axis in [Axis::Order, Axis::Time] {
            let options = Options { axis, ..Options::default() };
            let text = svg(pcap(&frames), options);
            Document::parse(&text).expect("XML");
        }
    }
}

/// The picture of the README, as `ferroce decode tests/captures/rxe-6.12-rnr.pcap --ladder
/// docs/ladder-rnr.svg --ladder-packets 29..45` draws it.
#[test]
fn picture_of_the_readme_is_up_to_date() {
    let out = std::env::temp_dir().join(format!("ferroce-readme-{}.svg", std::process::id()));
    let out = out.to_str().expect("UTF-8");
    let capture = directory().join("rxe-6.12-rnr.pcap");
    let capture = capture.to_str().expect("UTF-8");
    let run = ferroce(&["decode", capture, "--ladder", out, "--ladder-packets", "29..45"]);
    assert!(run.status.success(), "{run:?}");
    let drawn = std::fs::read_to_string(out).expect("a picture");
    std::fs::remove_file(out).expect("temporary file");
    let shown = directory().join("../../docs/ladder-rnr.svg");
    assert!(drawn == std::fs::read_to_string(shown).expect("docs"), "draw it anew");
}

#[test]
fn files_are_whole_or_as_before() {
    let folder = std::env::temp_dir().join(format!("ferroce-ladder-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("temporary folder");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let capture = directory().join("rxe-naks.pcap");
    let capture = capture.to_str().expect("UTF-8");
    let html = path("a.html");
    std::fs::write(&html, "before").expect("temporary file");
    let run = ferroce(&["decode", capture, "--ladder", &html]);
    assert_eq!((run.status.code(), run.stdout.as_slice()), (Some(0), &b""[..]));
    let page = std::fs::read_to_string(&html).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    let wrong = ferroce(&["decode", capture, "--ladder", &path("a.png")]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("drawn as .svg or .html"));
    let nowhere = ferroce(&["decode", capture, "--ladder", &path("no/a.svg")]);
    assert_eq!(nowhere.status.code(), Some(2));
    let left: Vec<_> = std::fs::read_dir(&folder).expect("folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
    std::fs::remove_dir_all(&folder).expect("temporary folder");
}
