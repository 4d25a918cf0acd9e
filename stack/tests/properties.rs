//! Whatever bytes come: parsing does not panic, and what parses comes out again as it went in.

mod common;

use std::sync::LazyLock;

use ferroce_stack::wire::{Lrh, NativePacket, Neighbour, Packet};
use pcap_file::DataLink;
use proptest::collection::vec;
use proptest::prelude::*;

/// Frames of every encapsulation and opcode family, to damage.
static SEEDS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let files = [
        "hw-huawei-hi1822-send-imm.pcap",
        "hw-mellanox-cx5-cm-atomics-nak.pcap",
        "hw-mellanox-cx5-liteeth-cm-vlan.pcap",
        "rxe-6.12-atomic-write.pcap",
        "rxe-6.12-flush.pcap",
        "rxe-ipv6-ud.pcap",
        "rxe-rc-send-imm.pcap",
        "rxe-send-inv-mw2.pcap",
        "rxe-uc.pcap",
        "rxe-vlan.pcap",
    ];
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for file in files {
        let (link, frames) = common::frames(file);
        assert_eq!(link, DataLink::ETHERNET);
        seeds.extend(frames);
    }
    let v1: Vec<Vec<u8>> = seeds.iter().filter_map(|frame| as_v1(frame)).collect();
    seeds.extend(v1);
    seeds
});

/// An IPv6 RoCE v2 frame as RoCE v1: no capture has such frames.
fn as_v1(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::parse(frame).ok().filter(|packet| packet.layout.bth == 14 + 48)?;
    let mut v1 = frame[..packet.layout.icrc + 4].to_vec();
    v1.drain(54..62);
    v1[12..14].copy_from_slice(&[0x89, 0x15]);
    let len = (v1.len() - 54) as u16;
    v1[18..20].copy_from_slice(&len.to_be_bytes());
    v1[20] = 0x1b;
    Some(v1)
}

static NATIVE_SEEDS: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| common::frames("hw-infiniband-native-cm-rc.pcap").1);

/// One of `seeds` with up to eight bytes changed, most of them in the headers, and perhaps cut.
/// Mostly the IPv4 checksum is put right, or little else would be tried.
fn damaged(seeds: &'static [Vec<u8>]) -> impl Strategy<Value = Vec<u8>> {
    let at = prop_oneof![4 => 12..100usize, 1 => 0..4096usize];
    let changes = vec((at, any::<u8>()), 0..8);
    let cut = prop_oneof![3 => Just(usize::MAX), 1 => 0..200usize];
    let fix = prop::bool::weighted(0.8);
    (0..seeds.len(), changes, cut, fix).prop_map(|(index, changes, cut, fix)| {
        let mut frame = seeds[index].clone();
        for (at, value) in changes {
            let len = frame.len();
            frame[at % len] = value;
        }
        if fix && frame[12..14] == [0x08, 0x00] {
            fix_checksum(&mut frame[14..34]);
        }
        frame.truncate(cut);
        frame
    })
}

/// RFC 1071.
fn fix_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
}

/// Parses and emits again. Of a sound packet every byte is the same; emit sets but the pad right,
/// its count and its bytes.
fn round_trip(frame: &[u8]) {
    let Ok(packet) = Packet::parse(frame) else {
        return;
    };
    packet.icrc_ok(frame);
    let (headers, layout) = (&packet.headers, &packet.layout);
    let pad_count = headers.bth.pad_count;
    let is_pad_right = usize::from(pad_count) == packet.payload.len().wrapping_neg() & 3;
    let pad = layout.payload + packet.payload.len()..layout.icrc;
    let is_pad_zero = frame[pad].iter().all(|&byte| byte == 0);
    let mut out = vec![0; 1 << 17];
    match packet.emit(&mut out) {
        Ok(len) if is_pad_right && is_pad_zero => {
            assert_eq!(out[..len], frame[..layout.icrc + 4]);
        }
        // What was set right still means the same.
        Ok(len) => {
            let again = Packet::parse(&out[..len]).unwrap();
            assert_eq!(again.payload, packet.payload);
            assert_eq!(again.headers.ext, packet.headers.ext);
            assert_eq!(again.headers.net, packet.headers.net);
            assert_eq!(again.headers.udp, packet.headers.udp);
        }
        // Only a right pad can make a packet too long for its length field.
        Err(_) => assert!(!is_pad_right),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(20_000)
    })]

    #[test]
    fn random_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200), ethertype in 0..5usize) {
        let mut frame = bytes;
        if frame.len() >= 14 {
            let types = [[0x08, 0x00], [0x86, 0xdd], [0x89, 0x15], [0x81, 0x00], [0x08, 0x06]];
            frame[12..14].copy_from_slice(&types[ethertype]);
        }
        round_trip(&frame);
        Neighbour::parse(&frame);
    }

    #[test]
    fn damaged_frames_come_out_as_they_went_in(frame in damaged(&SEEDS)) {
        round_trip(&frame);
        Neighbour::parse(&frame);
    }

    #[test]
    fn damaged_native_packets_do_no_harm(bytes in damaged(&NATIVE_SEEDS)) {
        if let Ok(packet) = NativePacket::parse(&bytes) {
            packet.icrc_ok(&bytes);
            let mut out = vec![0; 1 << 14];
            let len = packet.emit(&mut out).unwrap();
            assert!(len <= bytes.len());
            let transport = packet.layout.bth..packet.layout.payload;
            assert_eq!(out[..Lrh::LEN], bytes[..Lrh::LEN]);
            assert_eq!(out[transport.clone()], bytes[transport]);
        }
    }
}
