//! `ferroce decode`: every recorded packet has its JSON object, and no file makes it fail.

mod ladder;
mod selective;
mod support;
mod verify;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::process::Command;

use ferroce_stack::wire::Vlan;
use ferroce_tools::capture::Capture;
use ferroce_tools::decode::{Options, decode};
use serde_json::Value;
use support::{Altered, Random, directory, file, json, pcap, recorded};

#[test]
fn packets_icrcs_and_opcodes_are_those_of_the_manifest() {
    let text = std::fs::read_to_string(directory().join("manifest.json")).expect("manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    let rows = manifest.as_array().expect("a list");
    assert_eq!(rows.len(), recorded().len());
    for row in rows {
        let name = row["file"].as_str().expect("a name");
        let (lines, summary) = json(file(name), false, false);
        assert_eq!(
            (&summary["frames"], &summary["roce"]),
            (&row["frames"], &row["roce"]),
            "{name}"
        );
        let icrc = &summary["icrc"];
        let count = |key: &str| row[key].as_u64().expect("a count");
        assert_eq!(icrc["ok"], row["icrc_valid"], "{name}");
        assert_eq!(icrc["bad"], count("icrc_invalid") + count("rxe_flush"), "{name}");
        assert_eq!(icrc["truncated"], row["truncated"], "{name}");
        let mut opcodes: BTreeMap<&str, u64> = BTreeMap::new();
        for line in &lines {
            let opcode = line["opcode_name"].as_str().expect("a name");
            let reserved = opcode.contains("reserved");
            *opcodes.entry(if reserved { "reserved" } else { opcode }).or_default() += 1;
        }
        assert_eq!(serde_json::json!(opcodes), row["opcodes"], "{name}");
    }
}

#[test]
fn every_packet_has_its_object() {
    for (name, bytes) in recorded() {
        let (lines, summary) = json(bytes, false, false);
        assert_eq!(summary["roce"], lines.len(), "{name}");
        let non_roce = summary["non_roce"].as_object().expect("an object");
        let others: u64 = non_roce.values().filter_map(Value::as_u64).sum();
        let frames = summary["frames"].as_u64().expect("a number");
        assert_eq!(frames, lines.len() as u64 + others, "{name}");
        for line in lines {
            let numbers = ["frame", "time", "roce", "opcode", "dest_qp", "psn", "payload_len"];
            assert!(numbers.iter().all(|key| line[key].is_number()), "{name}: {line}");
            assert!(["src", "dst", "opcode_name"].iter().all(|key| line[key].is_string()));
            assert!(["ok", "bad", "truncated"].iter().any(|verdict| line["icrc"] == *verdict));
            assert_eq!(line["udp_sport"].is_number(), line["roce"] == 2, "{name}: {line}");
        }
    }
}

#[test]
fn non_roce_frames_are_counted_by_kind() {
    let (_, summary) = json(file("hw-huawei-hi1822-send-imm.pcap"), false, false);
    assert_eq!(
        summary["non_roce"],
        serde_json::json!({"arp": 0, "ndp": 2, "tcp": 10, "other": 2, "malformed": 0, "cut": 0})
    );
    let mut arp = vec![0xff; 12];
    arp.extend_from_slice(&[0x08, 0x06]);
    arp.resize(60, 0);
    let (_, summary) = json(pcap(&[arp]), false, false);
    assert_eq!(summary["non_roce"]["arp"], 1);
}

#[test]
fn headers_have_their_keys() {
    let of = |name: &str, opcode: u8| {
        let (lines, _) = json(file(name), false, false);
        lines.into_iter().find(|line| line["opcode"] == opcode).expect("such a packet")
    };
    let read = of("rxe-rc-read.pcap", 0x0c);
    assert_eq!(read["opcode_name"], "RC RDMA READ Request");
    assert!(read["reth"]["va"].as_str().is_some_and(|va| va.starts_with("0x")));
    assert!(read["reth"]["dma_len"].is_number());
    let nak = json(file("rxe-naks.pcap"), false, false).0;
    let is_access_nak = |line: &&Value| line["aeth"]["syndrome"] == 0x62;
    let nak = nak.iter().find(is_access_nak).expect("a NAK");
    assert_eq!(nak["aeth"]["syndrome_name"], "NAK, remote access error");
    assert!(of("rxe-rc-atomic.pcap", 0x13)["atomic_eth"]["compare"].is_string());
    assert!(of("rxe-rc-atomic.pcap", 0x12)["atomic_ack_eth"]["original"].is_string());
    assert!(of("rxe-rc-write-imm.pcap", 0x0b)["imm_dt"]["imm"].is_number());
    assert!(of("rxe-send-inv-mw2.pcap", 0x17)["ieth"]["rkey"].is_number());
    assert!(of("rxe-ud.pcap", 0x64)["deth"]["src_qp"].is_number());
    let flush = of("rxe-6.12-flush.pcap", 0x1c);
    assert_eq!(
        (&flush["icrc"], &flush["icrc_note"]),
        (&Value::from("bad"), &Value::from("rxe FLUSH"))
    );
    assert!(flush["feth"]["placement"].is_number() && flush["reth"].is_object());
    let vlan = of("rxe-vlan.pcap", 0x04);
    assert_eq!(vlan["vlan"]["vid"], 100);
    let request = of("rxe-cm-rping.pcap", 0x64);
    assert_eq!(request["mad"]["cm"], "REQ");
    assert!(request["mad"]["qpn"].is_number() && request["mad"]["local_comm_id"].is_number());
    assert_eq!(of("rxe-tclass96.pcap", 0x00)["tos"], 96);
}

#[test]
fn undefined_opcodes_are_shown_not_refused() {
    let (lines, _) = json(file("hw-mellanox-cx5-cm-atomics-nak.pcap"), true, true);
    let masked = lines.iter().find(|line| line["opcode"] == 0x18).expect("a masked atomic");
    assert_eq!(masked["opcode_name"], "RC reserved 0x18");
    assert_eq!((&masked["payload_len"], &masked["icrc"]), (&Value::from(44), &Value::from("ok")));
}

#[test]
fn native_infiniband_has_version_0() {
    let (lines, _) = json(file("hw-infiniband-native-cm-rc.pcap"), true, false);
    assert_eq!(lines.len(), 43);
    assert!(lines.iter().all(|line| line["roce"] == 0 && line["icrc"] == "ok"));
    assert!(lines[0]["src"].as_str().is_some_and(|src| src.starts_with("lid:")));
}

/// The captures of RoCE v1 and CNP are single packets.
#[test]
fn single_vectors_decode() {
    let text = std::fs::read_to_string(directory().join("vectors.json")).expect("vectors");
    let vectors: Value = serde_json::from_str(&text).expect("JSON");
    let mut versions = [0; 3];
    for vector in vectors["vectors"].as_array().expect("a list") {
        let hex = vector["hex"].as_str().expect("bytes");
        let frame: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[at * 2..][..2], 16).expect("hexadecimal"))
            .collect();
        let mut bytes = pcap(&[frame]);
        if vector["link_type"] == "raw-ip" {
            bytes[20] = 101;
        }
        let (lines, summary) = json(bytes, true, false);
        let [line] = lines.as_slice() else { panic!("{vector}: {summary}") };
        versions[line["roce"].as_u64().expect("a number") as usize] += 1;
        assert_eq!(line["icrc"], if vector["icrc_valid"] == false { "bad" } else { "ok" });
    }
    assert!(versions[1] > 0 && versions[2] > 0, "{versions:?}");
}

#[test]
fn time_keeps_its_nanoseconds() {
    let mut bytes = pcap(&Altered::of("rxe-rc-atomic.pcap").0[..1]);
    bytes[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    bytes[24..28].copy_from_slice(&1_700_000_000_u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&123_456_789_u32.to_le_bytes());
    let mut out = Vec::new();
    let capture = Capture::new(Cursor::new(bytes)).expect("header");
    decode(capture, Options { json: true, ..Options::default() }, &mut out).expect("memory");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains("\"time\":1700000000.123456789,"), "{text}");
}

#[test]
fn cut_packets_show_what_is_there() {
    let frames = support::frames("rxe-rc-write.pcap");
    let first = frames.iter().position(|frame| frame.bytes.len() > 1000).expect("a long frame");
    let whole = pcap(&[frames[first].bytes.clone()]);
    let cut_to = |len: usize| {
        let mut bytes = whole[..40 + len].to_vec();
        bytes[32..36].copy_from_slice(&(len as u32).to_le_bytes());
        json(bytes, true, true)
    };
    let (whole_lines, _) = json(whole.clone(), false, false);
    for len in 0..frames[first].bytes.len() {
        let (lines, summary) = cut_to(len);
        // Ethernet, IPv4, UDP and BTH.
        if len < 54 {
            assert_eq!((lines.len(), &summary["roce"]), (0, &Value::from(0)), "{len}");
            continue;
        }
        assert_eq!(lines[0]["icrc"], "truncated");
        for key in ["opcode", "psn", "payload_len", "dest_qp", "src"] {
            assert_eq!(lines[0][key], whole_lines[0][key], "{len}");
        }
        assert_eq!(lines[0]["reth"].is_object(), len >= 70, "{len}");
        assert_eq!(summary["violations"], 0);
    }
}

#[test]
fn vlan_tag_does_not_change_the_verdict() {
    let vlan = Vlan { pcp: 3, dei: false, vid: 7 };
    let tagged =
        Altered::of("rxe-rc-send.pcap").change(1, |headers, _| headers.eth.vlan = Some(vlan));
    let (lines, _) = json(pcap(&tagged.0), false, false);
    assert_eq!(
        (&lines[0]["vlan"]["pcp"], &lines[0]["icrc"]),
        (&Value::from(3), &Value::from("ok"))
    );
}

/// Decodes whatever it is, in both ways; returns how many frames were read.
fn survive(bytes: &[u8]) -> u64 {
    let mut frames = 0;
    for json in [false, true] {
        let Ok(capture) = Capture::new(Cursor::new(bytes.to_vec())) else {
            continue;
        };
        let options = Options { json, verify: true, complete: json };
        let summary = decode(capture, options, &mut Vec::new()).expect("memory takes it");
        let summary = serde_json::to_value(&summary).expect("JSON");
        frames = summary["frames"].as_u64().expect("a number");
    }
    frames
}

#[test]
fn damaged_files_are_read_up_to_the_damage() {
    for (name, bytes) in recorded() {
        let whole = survive(&bytes);
        let step = (bytes.len() / 12).max(1);
        let mut before = 0;
        for end in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
            let frames = survive(&bytes[..end]);
            assert!(before <= frames && frames < whole, "{name} cut at {end}");
            before = frames;
        }
        let (_, summary) = json(bytes[..bytes.len() - 1].to_vec(), false, false);
        assert_eq!(summary["damage"]["after_frame"], whole - 1, "{name}");
    }
}

#[test]
fn flipped_bits_and_garbage_are_survived() {
    let mut random = Random(0x5eed);
    for (_, mut bytes) in recorded() {
        bytes.truncate(40_000);
        for _ in 0..4 {
            let mut flipped = bytes.clone();
            for _ in 0..flipped.len() / 100 {
                let at = random.below(flipped.len());
                flipped[at] ^= 1 << random.below(8);
            }
            survive(&flipped);
            // Whole records with damage within, so that packets and connections suffer.
            let mut packets = bytes.clone();
            for at in (24 + 16 + 14..packets.len()).step_by(97) {
                packets[at] = random.below(256) as u8;
            }
            survive(&packets);
        }
    }
    for len in [0, 1, 23, 24, 100, 5000, 100_000] {
        let mut garbage: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        survive(&garbage);
        for magic in [[0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x0a, 0x0d, 0x0d, 0x0a]]
        {
            if len >= 4 {
                garbage[..4].copy_from_slice(&magic);
                survive(&garbage);
            }
        }
    }
}

fn ferroce(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_ferroce")).args(arguments).output().expect("it runs")
}

#[test]
fn exit_status_and_messages() {
    let path = directory().join("rxe-rc-send.pcap");
    let path = path.to_str().expect("UTF-8");
    let good = ferroce(&["decode", "--verify", path]);
    assert_eq!(good.status.code(), Some(0));
    let text = String::from_utf8(good.stdout).expect("UTF-8");
    assert!(text.contains("RC SEND Only") && text.ends_with("no violation\n"), "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");

    let missing = ferroce(&["decode", "/nonexistent/file.pcap"]);
    assert_eq!(missing.status.code(), Some(2));
    let message = String::from_utf8(missing.stderr).expect("UTF-8");
    assert!(message.contains("/nonexistent/file.pcap"), "{message}");
    let no_capture = ferroce(&["decode", env!("CARGO_MANIFEST_PATH")]);
    assert_eq!(no_capture.status.code(), Some(2));

    let mut bad = Altered::of("rxe-rc-send.pcap");
    bad.0[2][60] ^= 1;
    let name = format!("ferroce-decode-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, pcap(&bad.0)).expect("temporary file");
    let status = |extra: &[&str]| {
        let arguments = [&["decode", path.to_str().expect("UTF-8")], extra].concat();
        ferroce(&arguments).status.code()
    };
    assert_eq!((status(&[]), status(&["--verify"])), (Some(0), Some(1)));
    std::fs::remove_file(&path).expect("temporary file");
}

#[test]
fn captures_of_any_interface_decode_like_ethernet() {
    let frames = support::frames_of(file("rxe-ipv6-rc-read.pcap"));
    let behind = |header: &[u8]| -> Vec<Vec<u8>> {
        frames.iter().map(|frame| [header, &frame[14..]].concat()).collect()
    };
    let (expected, _) = json(pcap(&frames), true, true);
    let cooked = [[0; 14].as_slice(), &[0x86, 0xdd]].concat();
    let cooked2 = [[0x86, 0xdd].as_slice(), &[0; 18]].concat();
    for (link_type, header) in [(113_u16, cooked), (276, cooked2), (101, Vec::new())] {
        let mut bytes = pcap(&behind(&header));
        bytes[20..22].copy_from_slice(&link_type.to_le_bytes());
        let (lines, summary) = json(bytes, true, true);
        assert_eq!(lines, expected, "link type {link_type}");
        assert_eq!(summary["violations"], 0);
    }
}
