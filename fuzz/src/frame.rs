//! The frame parser on arbitrary bytes: nothing panics, and what parses comes out as it went in.

use ferroce_stack::icrc;
use ferroce_stack::wire::{Headers, Lrh, Mad, NativePacket, Neighbour, Packet, seal};

use crate::checksum;

/// Longer than any packet, whose lengths have 16 bits.
const OUT_LEN: usize = 1 << 17;

/// Parses `data` as every kind of frame there is, as it is and with its IP checksum put right.
///
/// # Panics
///
/// If a parsed packet does not come out as it went in, or anything of the parser panics.
pub fn frame(data: &[u8]) {
    let mut out = vec![0; OUT_LEN];
    let repaired = checksum::repaired(data);
    // Built for fuzzing, the IP headers' crate takes any checksum for right.
    if repaired.is_none() || !cfg!(fuzzing) {
        one(data, &mut out);
    }
    if let Some(repaired) = repaired {
        one(&repaired, &mut out);
    }
    native(data, &mut out);
    if data.len() >= Mad::LEN {
        let mad = Mad::parse(data);
        mad.emit(&mut out);
        assert_eq!(out[..Mad::LEN], data[..Mad::LEN]);
        assert_eq!(Mad::parse(&out).cm_message(), mad.cm_message());
    }
}

fn one(frame: &[u8], out: &mut [u8]) {
    match (Headers::parse(frame), Packet::parse(frame)) {
        (Ok((headers, layout)), Ok(packet)) => {
            assert_eq!((headers, layout), (packet.headers, packet.layout));
            whole(frame, &packet, out);
        }
        // Cut behind its headers.
        (Ok((_, layout)), Err(_)) => assert!(layout.icrc + 4 > frame.len()),
        (Err(headers), Err(packet)) => assert_eq!(headers, packet),
        (Err(discard), Ok(_)) => panic!("a packet without headers: {discard:?}"),
    }
    neighbour(frame, out);
}

fn whole(frame: &[u8], packet: &Packet, out: &mut [u8]) {
    let end = packet.layout.icrc + 4;
    // The ICRC depends on nothing behind the packet.
    let exact = frame[..end].to_vec();
    assert_eq!(packet.icrc_ok(frame), packet.icrc_ok(&exact));
    let _ = icrc::rxe_flush(&exact, &packet.layout);
    emit_again(&exact, packet, out);
    seal_again(packet, out);
}

/// Every byte is the same, but that the pad becomes what the payload asks for.
fn emit_again(exact: &[u8], packet: &Packet, out: &mut [u8]) {
    let (headers, layout) = (&packet.headers, &packet.layout);
    let pad_is_right =
        usize::from(headers.bth.pad_count) == packet.payload.len().wrapping_neg() & 3;
    let pad = layout.payload + packet.payload.len()..layout.icrc;
    let pad_is_zero = exact[pad].iter().all(|&byte| byte == 0);
    match packet.emit(out) {
        Ok(len) if pad_is_right && pad_is_zero => assert_eq!(out[..len], *exact),
        Ok(len) => {
            let again = Packet::parse(&out[..len]).expect("it was emitted");
            assert_eq!(again.payload, packet.payload);
            assert_eq!(again.headers.ext, headers.ext);
            assert_eq!(again.headers.net, headers.net);
            assert_eq!(again.headers.udp, headers.udp);
            assert_eq!(again.headers.eth, headers.eth);
        }
        // Only a right pad can make a packet too long for its length field.
        Err(_) => assert!(!pad_is_right),
    }
}

/// What the sender builds from the same headers, the receiver finds right.
fn seal_again(packet: &Packet, out: &mut [u8]) {
    let payload = packet.payload;
    let Ok(layout) = packet.headers.emit(payload.len(), out) else { return };
    out[layout.payload..][..payload.len()].copy_from_slice(payload);
    let len = seal(out, &layout, payload.len());
    let again = Packet::parse(&out[..len]).expect("it was sealed");
    assert!(again.icrc_ok(&out[..len]));
}

fn neighbour(frame: &[u8], out: &mut [u8]) {
    let Some(neighbour) = Neighbour::parse(frame) else { return };
    let Ok(len) = neighbour.emit(out) else { panic!("{neighbour:?} does not fit") };
    assert_eq!(Neighbour::parse(&out[..len]), Some(neighbour));
}

fn native(bytes: &[u8], out: &mut [u8]) {
    let Ok(packet) = NativePacket::parse(bytes) else { return };
    packet.icrc_ok(bytes);
    let len = packet.emit(out).expect("it is no longer than it was");
    assert!(len <= bytes.len());
    let transport = packet.layout.bth..packet.layout.payload;
    assert_eq!(out[..Lrh::LEN], bytes[..Lrh::LEN]);
    assert_eq!(out[transport.clone()], bytes[transport]);
    let again = NativePacket::parse(&out[..len]).expect("it was emitted");
    assert_eq!(again.payload, packet.payload);
    assert_eq!((again.ext, again.icrc, again.vcrc), (packet.ext, packet.icrc, packet.vcrc));
}
