//! Every packet of every capture parses, has the ICRC the manifest says, and comes out again as it
//! went in.

mod common;

use std::collections::BTreeMap;
use std::fs;

use ferroce_stack::discard::Discard;
use ferroce_stack::icrc;
use ferroce_stack::wire::{NativePacket, Opcode, Packet, seal};
use pcap_file::DataLink;
use serde::Deserialize;

/// Longest frame of the captures, with room.
const FRAME_LEN: usize = 9216;

#[derive(Deserialize)]
struct Manifest {
    file: String,
    #[serde(flatten)]
    counts: Counts,
}

/// What a file holds.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Counts {
    frames: usize,
    roce: usize,
    icrc_valid: usize,
    icrc_invalid: usize,
    truncated: usize,
    rxe_flush: usize,
    opcodes: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    link_type: String,
    roce: String,
    opcode: String,
    vlan: Vec<u16>,
    hex: String,
    expected_icrc: String,
    icrc_valid: bool,
    trailing_bytes: usize,
}

#[test]
fn every_capture_agrees_with_its_manifest() {
    let manifest = fs::read(common::path("manifest.json")).unwrap();
    let manifest: Vec<Manifest> = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest.len(), captures_in_folder());
    for Manifest { file, counts } in manifest {
        let (link, frames) = common::frames(&file);
        let mut seen = Counts { frames: frames.len(), ..Counts::default() };
        for (index, frame) in frames.iter().enumerate() {
            let at = format!("{file} frame {}", index + 1);
            match link {
                DataLink::ERF => native(frame, &at, &mut seen),
                _ => roce(frame, &at, &mut seen),
            }
        }
        assert_eq!(seen, counts, "{file}");
    }
}

fn captures_in_folder() -> usize {
    let names = fs::read_dir(common::path("")).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".pcap")).count()
}

fn roce(frame: &[u8], at: &str, seen: &mut Counts) {
    let packet = match Packet::parse(frame) {
        Ok(packet) => packet,
        Err(Discard::Truncated) => {
            seen.roce += 1;
            seen.truncated += 1;
            return;
        }
        Err(discard) => return assert_eq!(discard, Discard::NotRoce, "{at}"),
    };
    let layout = &packet.layout;
    let is_rxe_flush = packet.headers.bth.opcode == Opcode::RC_FLUSH
        && icrc::rxe_flush(frame, layout) == packet.icrc;
    count(packet.headers.bth.opcode, packet.icrc_ok(frame), is_rxe_flush, seen);

    let wire = &frame[..layout.icrc + 4];
    let mut out = [0xa5; FRAME_LEN];
    assert_eq!(packet.emit(&mut out), Ok(wire.len()), "{at}");
    assert_eq!(&out[..wire.len()], wire, "{at}");

    if packet.icrc_ok(frame) {
        out.fill(0xa5);
        let layout = packet.headers.emit(packet.payload.len(), &mut out).unwrap();
        assert_eq!(layout, packet.layout, "{at}");
        out[layout.payload..][..packet.payload.len()].copy_from_slice(packet.payload);
        assert_eq!(seal(&mut out, &layout, packet.payload.len()), wire.len(), "{at}");
        assert_eq!(&out[..wire.len()], wire, "{at}");
    }
}

fn native(bytes: &[u8], at: &str, seen: &mut Counts) {
    let packet = NativePacket::parse(bytes).unwrap();
    count(packet.bth.opcode, packet.icrc_ok(bytes), false, seen);
    let mut out = [0xa5; FRAME_LEN];
    assert_eq!(packet.emit(&mut out), Ok(bytes.len()), "{at}");
    assert_eq!(&out[..bytes.len()], bytes, "{at}");
}

fn count(opcode: Opcode, icrc_ok: bool, is_rxe_flush: bool, seen: &mut Counts) {
    seen.roce += 1;
    *seen.opcodes.entry(opcode.name().to_owned()).or_default() += 1;
    match (icrc_ok, is_rxe_flush) {
        (true, _) => seen.icrc_valid += 1,
        (false, true) => seen.rxe_flush += 1,
        (false, false) => seen.icrc_invalid += 1,
    }
}

#[test]
fn vectors_of_other_implementations() {
    let vectors = fs::read(common::path("vectors.json")).unwrap();
    let vectors: Vectors = serde_json::from_slice(&vectors).unwrap();
    assert_eq!(vectors.vectors.len(), 41);
    for vector in &vectors.vectors {
        let frame = ethernet_frame(vector);
        let packet = Packet::parse(&frame).unwrap();
        let headers = &packet.headers;
        let end = packet.layout.icrc + 4;
        let name = &vector.name;
        assert_eq!(packet.icrc_ok(&frame), vector.icrc_valid, "{name}");
        let computed = icrc::compute(&frame, &packet.layout).to_le_bytes();
        assert_eq!(computed.to_vec(), bytes(&vector.expected_icrc), "{name}");
        assert_eq!(frame.len() - end, vector.trailing_bytes, "{name}");
        assert_eq!(headers.net.is_v1(), vector.roce == "v1", "{name}");
        assert_eq!(headers.eth.vlan.map(|vlan| vlan.vid), vector.vlan.first().copied(), "{name}");
        assert_eq!(headers.bth.opcode, opcode(&vector.opcode), "{name}");
        let mut out = [0xa5; FRAME_LEN];
        assert_eq!(packet.emit(&mut out), Ok(end), "{name}");
        assert_eq!(out[..end], frame[..end], "{name}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// The vector's frame, with an Ethernet header put before bare IPv4.
fn ethernet_frame(vector: &Vector) -> Vec<u8> {
    let mut frame = match vector.link_type.as_str() {
        "raw-ip" => [[0; 12].as_slice(), &[0x08, 0x00]].concat(),
        _ => Vec::new(),
    };
    frame.extend(bytes(&vector.hex));
    frame
}

/// The vectors' names of opcodes.
fn opcode(name: &str) -> Opcode {
    match name {
        "CNP" => Opcode::CNP,
        "RC_ACK" => Opcode::RC_ACKNOWLEDGE,
        "RC_ATOMIC_ACK" => Opcode::RC_ATOMIC_ACKNOWLEDGE,
        "RC_CMP_SWAP" => Opcode::RC_CMP_SWAP,
        "RC_OP24" => Opcode(24),
        "RC_READ_REQ" => Opcode::RC_READ_REQUEST,
        "RC_READ_RESP_FIRST" => Opcode::RC_READ_RESPONSE_FIRST,
        "RC_READ_RESP_ONLY" => Opcode::RC_READ_RESPONSE_ONLY,
        "RC_SEND_FIRST" => Opcode::RC_SEND_FIRST,
        "RC_SEND_LAST_IMM" => Opcode::RC_SEND_LAST_IMM,
        "RC_SEND_ONLY" => Opcode::RC_SEND_ONLY,
        "RC_SEND_ONLY_IMM" => Opcode::RC_SEND_ONLY_IMM,
        "RC_WRITE_ONLY" => Opcode::RC_WRITE_ONLY,
        "UC_SEND_ONLY" => Opcode::UC_SEND_ONLY,
        "UD_SEND_ONLY" => Opcode::UD_SEND_ONLY,
        _ => panic!("{name}"),
    }
}
