//! Frames as RoCE has them, all headers right but those behind UDP.

use crate::task::{End, Task};

/// Bytes before the payload of UDP.
pub const HEADERS: usize = 14 + 20 + 8;
/// The port of RoCE v2.
pub const PORT: u16 = 4791;

/// A frame from here to there with `len` bytes behind its UDP header. Its UDP checksum is what the
/// kernel wants to find where it makes the rest.
pub fn build(task: &Task, len: usize) -> Vec<u8> {
    let End { mac: from_mac, ip: from, .. } = &task.here;
    let End { mac: to_mac, ip: to, .. } = &task.there;
    let (ip_len, udp_len) = ((20 + 8 + len) as u16, (8 + len) as u16);
    let mut frame = Vec::with_capacity(HEADERS + len);
    frame.extend(to_mac);
    frame.extend(from_mac);
    frame.extend([0x08, 0x00, 0x45, 0x02]);
    frame.extend(ip_len.to_be_bytes());
    // Identification 0, do not fragment, 64 hops, UDP.
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    let sum = !folded(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    for number in [PORT, PORT, udp_len] {
        frame.extend(number.to_be_bytes());
    }
    let pseudo = folded(&frame[26..34], 17 + u32::from(udp_len));
    frame.extend(pseudo.to_be_bytes());
    frame.resize(HEADERS + len, 7);
    frame
}

/// The sum of the Internet checksum over bytes, an even number, and a start.
fn folded(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum = start + words.sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
