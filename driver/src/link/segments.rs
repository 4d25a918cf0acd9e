//! Several frames of one flow as one: how they are joined before the system cuts them apart, and
//! cut apart when it has joined them.
//!
//! Joined frames share one set of headers, in front of their payloads: Ethernet, IP and UDP as of
//! one long datagram. Each payload is as long as the first one, but for the last, which may be
//! shorter. What is cut out gets headers with its own lengths; IPv4 identifications count up from
//! that of the whole, which is what makes each frame's ICRC known beforehand.

use std::ops::Range;

use ferroce_stack::icrc;
use ferroce_stack::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ipv4, Ipv6, Layout, Net, Packet, Udp};

use crate::fabric::FRAME_MAX;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET: usize = 14;

/// Bytes of the headers in front of a payload, at most.
pub const HEADERS_MAX: usize = ETHERNET + Ipv6::LEN + Udp::LEN;

/// Frames that are joined at most: as many as every kernel cuts.
pub const JOINED_MAX: usize = 64;

/// Bytes of a joined frame, at most.
pub const WHOLE_MAX: usize = 65535;

const PROTOCOL_UDP: u8 = 17;
const HALF: usize = 2;

/// Bytes of the ICRC.
const ICRC: usize = 4;

/// Where fields of the headers stand.
const ETHERTYPE: usize = 12;
const VERSION: usize = ETHERNET;
const V4_LEN: usize = ETHERNET + 2;
/// The identification of IPv4.
pub const V4_IDENT: usize = ETHERNET + 4;
const V4_FRAGMENT: usize = ETHERNET + 6;
const V4_PROTOCOL: usize = ETHERNET + 9;
const V4_CHECKSUM: usize = ETHERNET + 10;
const V4_ADDRESSES: usize = ETHERNET + 12;
/// The UDP header behind IPv4.
pub const V4_UDP: usize = ETHERNET + Ipv4::LEN;
const V6_LEN: usize = ETHERNET + 4;
const V6_PROTOCOL: usize = ETHERNET + 6;
const V6_ADDRESSES: usize = ETHERNET + 8;
const V6_UDP: usize = ETHERNET + Ipv6::LEN;
const UDP_LEN: usize = 4;
const UDP_CHECKSUM: usize = 6;

/// Of the fragment field: more follow, or an offset.
const FRAGMENT: u16 = 0x3fff;

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_half(bytes: &mut [u8], at: usize, value: usize) {
    // Lengths of packets, which are below 2^16.
    bytes[at..at + HALF].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Where the UDP header of a frame stands, if that is IP without options and UDP, all its lengths
/// say that it ends where it ends, and there is any payload.
pub fn udp_at(frame: &[u8]) -> Option<usize> {
    if frame.len() < V4_UDP + Udp::LEN {
        return None;
    }
    let (udp_at, protocol, len) = match (half(frame, ETHERTYPE), frame[VERSION]) {
        (ETHERTYPE_IPV4, 0x45) if half(frame, V4_FRAGMENT) & FRAGMENT == 0 => {
            (V4_UDP, frame[V4_PROTOCOL], ETHERNET + usize::from(half(frame, V4_LEN)))
        }
        (ETHERTYPE_IPV6, 0x60..=0x6f) if frame.len() >= HEADERS_MAX => {
            (V6_UDP, frame[V6_PROTOCOL], V6_UDP + usize::from(half(frame, V6_LEN)))
        }
        _ => return None,
    };
    let is_whole = protocol == PROTOCOL_UDP
        && len == frame.len()
        && udp_at + usize::from(half(frame, udp_at + UDP_LEN)) == len
        && len > udp_at + Udp::LEN;
    is_whole.then_some(udp_at)
}

/// Which frames can be joined with one.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    first: &'a [u8],
    last: &'a [u8],
    udp_at: usize,
    frames: usize,
    len: usize,
}

impl<'a> Flow<'a> {
    /// Of one frame; none if it can be joined with no other.
    pub fn of(first: &'a [u8]) -> Option<Flow<'a>> {
        let udp_at = udp_at(first)?;
        Some(Flow { first, last: first, udp_at, frames: 1, len: first.len() })
    }

    /// Joins the next frame, or says that it cannot be.
    pub fn join(&mut self, next: &'a [u8]) -> bool {
        let Flow { first, last, udp_at, frames, len } = *self;
        let headers_len = udp_at + Udp::LEN;
        let may = frames < JOINED_MAX
            && last.len() == first.len()
            && next.len() <= first.len()
            && self::udp_at(next) == Some(udp_at)
            && len + next.len() - headers_len <= WHOLE_MAX
            && is_same_flow(first, next, udp_at)
            && (udp_at == V6_UDP || half(next, V4_IDENT) == half(last, V4_IDENT).wrapping_add(1));
        if may {
            self.last = next;
            self.frames += 1;
            self.len += next.len() - headers_len;
        }
        may
    }

    /// How many frames it is.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of the headers of each.
    pub fn headers_len(&self) -> usize {
        self.udp_at + Udp::LEN
    }

    /// Writes the headers of the whole, as [`Flow::headers_len`] says. The UDP checksum is the part
    /// of it that the system completes: the sum of the pseudo-header.
    pub fn put_headers(&self, out: &mut [u8]) {
        let Flow { first, udp_at, len, .. } = *self;
        let headers_len = self.headers_len();
        out[..headers_len].copy_from_slice(&first[..headers_len]);
        let udp_len = len - udp_at;
        let addresses = if udp_at == V4_UDP {
            Ipv4::parse(&first[ETHERNET..]).emit(udp_len as u16, &mut out[ETHERNET..]);
            V4_ADDRESSES
        } else {
            put_half(out, V6_LEN, udp_len);
            V6_ADDRESSES
        };
        put_half(out, udp_at + UDP_LEN, udp_len);
        let sum = out[addresses..udp_at].chunks_exact(HALF).map(|pair| u32::from(half(pair, 0)));
        let sum = sum.sum::<u32>() + u32::from(PROTOCOL_UDP) + udp_len as u32;
        // At most 20 halves: folded twice it is one.
        let folded = (sum & 0xffff) + (sum >> 16);
        put_half(out, udp_at + UDP_CHECKSUM, ((folded & 0xffff) + (folded >> 16)) as usize);
    }

    /// Where the system finds the UDP header and the checksum in it.
    pub fn checksum_at(&self) -> (usize, usize) {
        (self.udp_at, UDP_CHECKSUM)
    }
}

/// Whether the headers of two frames differ in nothing but lengths, identification and checksums.
fn is_same_flow(a: &[u8], b: &[u8], udp_at: usize) -> bool {
    match udp_at {
        V4_UDP => {
            is_same::<0, V4_LEN>(a, b)
                && is_same::<V4_FRAGMENT, V4_CHECKSUM>(a, b)
                && is_same::<V4_ADDRESSES, { V4_UDP + UDP_LEN }>(a, b)
        }
        _ => is_same::<0, V6_LEN>(a, b) && is_same::<V6_PROTOCOL, { V6_UDP + UDP_LEN }>(a, b),
    }
}

/// Whether these bytes of two frames are the same. How many they are is known when this is
/// compiled, so that no call is made for a few of them.
#[inline]
fn is_same<const FROM: usize, const TO: usize>(a: &[u8], b: &[u8]) -> bool {
    a[FROM..TO] == b[FROM..TO]
}

/// The headers of a frame over UDP.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Ethernet's.
    pub eth: [u8; ETHERNET],
    /// IP's, not that of RoCE v1.
    pub net: Net,
    /// Of UDP.
    pub source_port: u16,
}

impl Head {
    /// Its length in bytes.
    fn len(&self) -> usize {
        ETHERNET + self.net.header_len() + Udp::LEN
    }

    /// Writes it in front of a payload of `len` bytes.
    fn put(&self, len: usize, out: &mut [u8]) {
        out[..ETHERNET].copy_from_slice(&self.eth);
        // Frames are far shorter than 2^16.
        let udp_len = (Udp::LEN + len) as u16;
        match self.net {
            Net::V4(ip) => ip.emit(udp_len, &mut out[ETHERNET..]),
            Net::V6(ip) | Net::V1(ip) => ip.emit(PROTOCOL_UDP, udp_len, &mut out[ETHERNET..]),
        }
        let udp = Udp { source_port: self.source_port, checksum: 0 };
        udp.emit(udp_len, &mut out[self.len() - Udp::LEN..]);
    }
}

/// A joined frame in a buffer, to be cut in place: each frame's headers are written in front of
/// its payload, over the end of the one before it.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    /// None if there is one frame, which has its headers.
    head: Option<Head>,
    /// Where the next payload begins, and the last one ends.
    at: usize,
    end: usize,
    /// Bytes of each payload but the last.
    size: usize,
    /// How many have been cut.
    cut: usize,
    /// The identification of the frame cut last and of the one before it.
    ident: u16,
    ident_before: u16,
    /// What is between the identifications of one frame and the next.
    step: u16,
}

/// What is known of a frame's IPv4 identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ident {
    /// All there is to know; or the frame has none.
    Known,
    /// What the ICRC tells, which is a weaker check then.
    Recovered,
    /// The ICRC is right with none.
    Unknown,
}

impl Segments {
    /// Nothing.
    pub const NONE: Segments =
        Segments { head: None, at: 0, end: 0, size: 1, cut: 0, ident: 0, ident_before: 0, step: 1 };

    /// One frame that is as it should be.
    pub fn whole(range: Range<usize>) -> Segments {
        let size = range.len().max(1);
        Segments { at: range.start, end: range.end, size, ..Segments::NONE }
    }

    /// Payloads of `size` bytes that fill `range`, and the headers for them. There must be
    /// [`HEADERS_MAX`] bytes in front of it. None if a frame of them would be too long.
    pub fn of(head: Head, range: Range<usize>, size: usize) -> Option<Segments> {
        let (at, end) = (range.start, range.end);
        let fits = size > 0 && head.len() + size.min(range.len()) <= FRAME_MAX;
        fits.then_some(Segments { head: Some(head), at, end, size, ..Segments::NONE })
    }

    /// A joined frame that fills `range` of a buffer, as its headers say, with payloads of `size`
    /// bytes. None if it is not as they say, or a frame of it would be too long.
    pub fn parse(buffer: &[u8], range: Range<usize>, size: usize) -> Option<Segments> {
        let frame = &buffer[range.clone()];
        let udp_at = udp_at(frame)?;
        let bytes = &frame[ETHERNET..];
        let net = match udp_at {
            V4_UDP => Net::V4(Ipv4::parse(bytes)),
            _ => Net::V6(Ipv6::parse(bytes)),
        };
        let eth = frame.first_chunk().copied()?;
        let head = Head { eth, net, source_port: Udp::parse(&frame[udp_at..]).source_port };
        Segments::of(head, range.start + udp_at + Udp::LEN..range.end, size)
    }

    /// Whether all have been cut.
    pub fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Cuts the next frame, and says where it is.
    pub fn next(&mut self, buffer: &mut [u8]) -> Option<Range<usize>> {
        if self.is_empty() {
            return None;
        }
        let len = self.size.min(self.end - self.at);
        let mut start = self.at;
        if let Some(head) = &mut self.head {
            start -= head.len();
            if let Net::V4(ip) = &mut head.net {
                self.ident_before = self.ident;
                if self.cut > 0 {
                    ip.ident = self.ident.wrapping_add(self.step);
                }
                self.ident = ip.ident;
            }
            head.put(len, &mut buffer[start..self.at]);
        }
        self.at += len;
        self.cut += 1;
        Some(start..self.at)
    }

    /// Finds out whether all of the frames have one identification, as some senders number them,
    /// by the second of them, just cut: `frame`.
    pub fn see_whether_numbered(&mut self, frame: &mut [u8]) {
        if self.cut != 2 || self.head.is_none() {
            return;
        }
        if let Some(Truth { ip, layout }) = hidden(frame).flatten()
            && ip.ident == self.ident_before
        {
            self.set(frame, ip, &layout);
        }
    }

    /// Finds the identification of the frame just cut, which has been guessed, and writes it; those
    /// that follow go on from there.
    pub fn find_ident(&mut self, frame: &mut [u8]) -> Ident {
        match hidden(frame) {
            None => Ident::Known,
            Some(None) => Ident::Unknown,
            Some(Some(Truth { ip, layout })) => {
                let is_repeated = self.cut > 1 && ip.ident == self.ident_before;
                self.set(frame, ip, &layout);
                if is_repeated || ip.ident == 0 { Ident::Known } else { Ident::Recovered }
            }
        }
    }

    /// How many have been cut.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// The identification of the frame cut last.
    pub fn ident(&self) -> u16 {
        self.ident
    }

    /// Gives the frame cut last this header.
    fn set(&mut self, frame: &mut [u8], ip: Ipv4, layout: &Layout) {
        ip.emit((layout.icrc + ICRC - layout.net - Ipv4::LEN) as u16, &mut frame[layout.net..]);
        self.step = u16::from(self.cut < 2 || ip.ident != self.ident_before);
        self.ident = ip.ident;
        if let Some(head) = &mut self.head {
            head.net = Net::V4(ip);
        }
    }
}

/// The header with which a frame's ICRC is right.
struct Truth {
    ip: Ipv4,
    layout: Layout,
}

/// None if the frame is right as it is, or none to be judged; `Some(None)` if its ICRC is wrong
/// with any identification.
fn hidden(frame: &[u8]) -> Option<Option<Truth>> {
    let packet = Packet::parse(frame).ok()?;
    let Net::V4(ip) = packet.headers.net else { return None };
    if packet.icrc_ok(frame) {
        return None;
    }
    let layout = packet.layout;
    let found = icrc::hidden_ident(frame, &layout, packet.icrc);
    Some(
        found.map(|(ident, dont_fragment)| Truth {
            ip: Ipv4 { ident, dont_fragment, ..ip },
            layout,
        }),
    )
}

#[cfg(test)]
pub mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ferroce_stack::psn::Psn;
    use ferroce_stack::wire::{Bth, Ethernet, Extensions, Headers, Mac, Opcode, seal};

    use super::*;

    /// A network header of these addresses' last bytes.
    pub fn v4(src: u8, dst: u8, ident: u16) -> Net {
        let [src, dst] = [src, dst].map(|last| Ipv4Addr::new(192, 0, 2, last));
        Net::V4(Ipv4 { src, dst, tos: 2, ident, dont_fragment: true, ttl: 9 })
    }

    pub fn v6(src: u16, dst: u16) -> Net {
        let [src, dst] = [src, dst].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        Net::V6(Ipv6 { src, dst, traffic_class: 2, flow_label: 7, hop_limit: 9 })
    }

    /// A frame as a device makes one, with so many bytes of payload.
    pub fn frame(net: Net, source_port: u16, psn: u32, len: usize) -> Vec<u8> {
        let headers = Headers {
            eth: Ethernet { dst: Mac([2; 6]), src: Mac([4; 6]), vlan: None },
            net,
            udp: Udp { source_port, checksum: 0 },
            bth: Bth::new(Opcode::RC_WRITE_MIDDLE, 0x11, Psn::new(psn)),
            ext: Extensions::default(),
        };
        let mut bytes = vec![0; len + 128];
        let layout = headers.emit(len, &mut bytes).unwrap();
        for (at, byte) in bytes[layout.payload..][..len].iter_mut().enumerate() {
            *byte = (at as u32 * 7 + psn) as u8;
        }
        let end = seal(&mut bytes, &layout, len);
        bytes.truncate(end);
        bytes
    }

    /// As many frames as can be joined with the first, as the system would get them.
    fn joined(frames: &[Vec<u8>]) -> (usize, Vec<u8>) {
        let mut flow = Flow::of(&frames[0]).unwrap();
        let count = 1 + frames[1..].iter().take_while(|next| flow.join(next)).count();
        assert_eq!(flow.frames(), count);
        let mut whole = vec![0; HEADERS_MAX];
        flow.put_headers(&mut whole);
        whole.truncate(flow.headers_len());
        for frame in &frames[..count] {
            whole.extend_from_slice(&frame[flow.headers_len()..]);
        }
        (count, whole)
    }

    /// All frames that are cut out of a joined one, each changed as a receiver may.
    fn cut(whole: &[u8], size: usize) -> Option<Vec<Vec<u8>>> {
        let mut buffer = [&[0; 10], whole].concat();
        let mut segments = Segments::parse(&buffer, 10..buffer.len(), size)?;
        let mut frames = Vec::new();
        while let Some(range) = segments.next(&mut buffer) {
            segments.see_whether_numbered(&mut buffer[range.clone()]);
            frames.push(buffer[range.clone()].to_vec());
            buffer[range].fill(0xee);
        }
        Some(frames)
    }

    fn payload_len(frame: &[u8]) -> usize {
        frame.len() - udp_at(frame).unwrap() - Udp::LEN
    }

    #[test]
    fn what_is_cut_is_what_was_joined() {
        for (count, last_len) in [(2, 256), (15, 256), (15, 4), (64, 0)] {
            for is_v4 in [true, false] {
                let frames: Vec<Vec<u8>> = (0..count)
                    .map(|index| {
                        // Identifications go over the end of their range.
                        let ident = 0xfffe_u16.wrapping_add(index as u16);
                        let net = if is_v4 { v4(1, 2, ident) } else { v6(1, 2) };
                        let len = if index == count - 1 { last_len } else { 256 };
                        frame(net, 0xc001, index, len)
                    })
                    .collect();
                let (joined, whole) = joined(&frames);
                assert_eq!(joined, frames.len());
                assert_eq!(cut(&whole, payload_len(&frames[0])).unwrap(), frames);
            }
        }
    }

    #[test]
    fn frames_that_differ_in_more_than_the_system_makes_are_not_joined() {
        let first = frame(v4(1, 2, 7), 0xc001, 0, 64);
        let mut tagged = first.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert!(Flow::of(&tagged).is_none());
        assert!(Flow::of(&[&first[..], &[0]].concat()).is_none());
        let mut padded = frame(v4(1, 2, 8), 0xc001, 1, 40);
        padded.extend([0; 4]);
        let mut other_mac = frame(v4(1, 2, 8), 0xc001, 1, 64);
        other_mac[0] ^= 4;
        let mut fragmentable = frame(v4(1, 2, 8), 0xc001, 1, 64);
        fragmentable[V4_FRAGMENT] = 0;
        let others = [
            frame(v4(1, 2, 8), 0xc002, 1, 64),
            frame(v4(1, 3, 8), 0xc001, 1, 64),
            frame(v4(1, 2, 9), 0xc001, 1, 64),
            frame(v4(1, 2, 8), 0xc001, 1, 68),
            frame(v6(1, 2), 0xc001, 1, 44),
            padded,
            other_mac,
            fragmentable,
        ];
        for (row, other) in others.iter().enumerate() {
            assert!(!Flow::of(&first).unwrap().join(other), "row {row}");
        }
        let shorter = frame(v4(1, 2, 8), 0xc001, 1, 60);
        let mut flow = Flow::of(&first).unwrap();
        assert!(flow.join(&shorter) && !flow.join(&frame(v4(1, 2, 9), 0xc001, 2, 60)));
    }

    #[test]
    fn no_more_is_joined_than_an_ip_packet_holds() {
        let frames: Vec<Vec<u8>> =
            (0..20).map(|index| frame(v4(1, 2, index), 0xc001, index.into(), 4096)).collect();
        let (count, whole) = joined(&frames);
        assert_eq!(count, 15);
        assert!(whole.len() <= WHOLE_MAX);
    }

    #[test]
    fn a_joined_frame_with_lying_headers_is_none() {
        for net in [v4(1, 2, 7), v6(1, 2)] {
            let whole = frame(net, 0xc001, 0, 600);
            assert!(cut(&whole, 100).is_some());
            assert!(cut(&whole, 0).is_none());
            let udp_at = udp_at(&whole).unwrap();
            for len in 0..whole.len() {
                assert!(cut(&whole[..len], 100).is_none(), "{len} bytes");
            }
            assert!(cut(&[&whole[..], &[0]].concat(), 100).is_none());
            // Ethertype, version, protocol, and both lengths.
            let (len, protocol) =
                if udp_at == V4_UDP { (V4_LEN, V4_PROTOCOL) } else { (V6_LEN, V6_PROTOCOL) };
            for at in [12, 14, protocol, len, len + 1, udp_at + UDP_LEN, udp_at + UDP_LEN + 1] {
                let mut lie = whole.clone();
                lie[at] ^= 0x80;
                assert!(cut(&lie, 100).is_none(), "byte {at}");
            }
        }
        let mut fragment = frame(v4(1, 2, 7), 0xc001, 0, 600);
        fragment[V4_FRAGMENT] = 0x20;
        assert!(cut(&fragment, 100).is_none());
        let long = frame(v4(1, 2, 7), 0xc001, 0, 3 * FRAME_MAX);
        assert!(cut(&long, FRAME_MAX).is_none());
    }

    #[test]
    fn segments_shorter_than_their_headers_are_cut_apart() {
        let whole = frame(v4(1, 2, 7), 0xc001, 0, 100);
        let frames = cut(&whole, 3).unwrap();
        let payloads: Vec<u8> = frames.iter().flat_map(|frame| &frame[42..]).copied().collect();
        assert_eq!(payloads, whole[42..]);
    }

    #[test]
    fn one_identification_for_all_is_found_out() {
        let frames: Vec<Vec<u8>> =
            (0..4).map(|psn| frame(v4(1, 2, 0x77), 0xc001, psn, 64)).collect();
        let numbered: Vec<Vec<u8>> =
            (0..4).map(|psn| frame(v4(1, 2, 0x77 + psn as u16), 0xc001, psn, 64)).collect();
        let (_, whole) = joined(&numbered);
        // The same headers, and payloads with ICRCs of one identification.
        let mut same = whole[..42].to_vec();
        frames.iter().for_each(|frame| same.extend_from_slice(&frame[42..]));
        assert_eq!(cut(&same, payload_len(&frames[0])).unwrap(), frames);
        // A damaged second one stays damaged.
        let second = 42 + payload_len(&frames[0]);
        let mut damaged = whole;
        damaged[second + 20] ^= 1;
        let cut = cut(&damaged, payload_len(&frames[0])).unwrap();
        assert_eq!([&cut[0], &cut[2], &cut[3]], [&numbered[0], &numbered[2], &numbered[3]]);
        assert!(!Packet::parse(&cut[1]).unwrap().icrc_ok(&cut[1]));
    }

    #[test]
    fn identifications_nobody_has_seen_are_recovered_once() {
        for (base, step, expected) in [
            (0, 1, [Ident::Known; 4]),
            (0, 0, [Ident::Known; 4]),
            (0xfffe, 1, [Ident::Recovered, Ident::Known, Ident::Known, Ident::Known]),
            (0x77, 0, [Ident::Recovered, Ident::Known, Ident::Known, Ident::Known]),
        ] {
            let ident = |psn: u32| (base + step * psn) as u16;
            let frames: Vec<Vec<u8>> =
                (0..4).map(|psn| frame(v4(1, 2, ident(psn)), 0xc001, psn, 64)).collect();
            let mut buffer = vec![0; HEADERS_MAX];
            frames.iter().for_each(|frame| buffer.extend_from_slice(&frame[42..]));
            let head = Head {
                eth: *frames[0].first_chunk().unwrap(),
                net: v4(1, 2, 0),
                source_port: 0xc001,
            };
            let size = frames[0].len() - 42;
            let mut segments = Segments::of(head, HEADERS_MAX..buffer.len(), size).unwrap();
            for (frame, expected) in frames.iter().zip(expected) {
                let range = segments.next(&mut buffer).unwrap();
                assert_eq!(segments.find_ident(&mut buffer[range.clone()]), expected, "{base}");
                assert_eq!(&buffer[range], frame);
            }
            assert!(segments.is_empty());
        }
    }
}
