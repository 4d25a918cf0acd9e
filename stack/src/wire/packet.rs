//! A whole RoCE packet: parse a frame into headers and payload, emit headers into a frame.
//!
//! The lengths that count are IP's and UDP's, which have to agree (RoCE v2), and the GRH's (RoCE
//! v1); never the frame's, which Ethernet may have padded (Annex A17.3.1). What the transport
//! checks by QP is not checked here: TVer, ICRC, pad against payload, payload against opcode.

use std::fmt;

use smoltcp::wire::Ipv4Packet;

use super::bytes::{be16, put};
use super::{Bth, Ethernet, Extensions, HeaderSet, Ipv4, Ipv6, Net, OpcodeInfo, ROCE_PORT, Udp};
use crate::discard::Discard;
use crate::icrc;
use crate::outgoing::Sum;

/// Ethertype of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Ethertype of RoCE v1.
pub const ETHERTYPE_ROCE_V1: u16 = 0x8915;

const PROTOCOL_UDP: u8 = 17;
/// NxtHdr of a GRH before a BTH.
pub(super) const NEXT_HEADER_BTH: u8 = 0x1b;

/// Bytes of the ICRC.
pub(super) const ICRC_LEN: usize = 4;

/// Every header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Ethernet and 802.1Q.
    pub eth: Ethernet,
    /// IPv4 or IPv6 (RoCE v2), or GRH (RoCE v1).
    pub net: Net,
    /// Source port and checksum; ignored in RoCE v1.
    pub udp: Udp,
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers; they have to be those of the opcode.
    pub ext: Extensions,
}

/// Where the parts of a packet stand in its frame, as byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// IP header or GRH.
    pub net: usize,
    /// BTH.
    pub bth: usize,
    /// Payload.
    pub payload: usize,
    /// ICRC: the end of payload and pad. The packet ends 4 bytes later.
    pub icrc: usize,
}

/// A parsed packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its headers.
    pub headers: Headers,
    /// Where they stand.
    pub layout: Layout,
    /// Payload without pad. Of an opcode that is not in the table: all between BTH and pad.
    pub payload: &'a [u8],
    /// ICRC as carried (on the wire its least significant byte comes first).
    pub icrc: u32,
}

/// The packet is longer than the frame it should go into, or than its length fields can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTooSmall;

impl fmt::Display for FrameTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the packet does not fit its frame")
    }
}

impl std::error::Error for FrameTooSmall {}

impl<'a> Packet<'a> {
    /// Parses a frame without FCS. It may be longer than the packet.
    ///
    /// # Errors
    ///
    /// Says why the frame is no RoCE packet, or not a whole one. An undefined opcode is no error.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Packet<'a>, Discard> {
        let (headers, layout) = Headers::parse(frame)?;
        let icrc = frame.get(layout.icrc..).and_then(<[u8]>::first_chunk);
        let icrc = u32::from_le_bytes(*icrc.ok_or(Discard::Truncated)?);
        let payload = &frame[layout.payload..layout.icrc - usize::from(headers.bth.pad_count)];
        Ok(Packet { headers, layout, payload, icrc })
    }

    /// Whether the ICRC carried is that of `frame`, from which the packet was parsed.
    #[inline]
    pub fn icrc_ok(&self, frame: &[u8]) -> bool {
        icrc::compute(frame, &self.layout) == self.icrc
    }

    /// The row of its opcode; none if that is not defined.
    #[inline]
    pub fn info(&self) -> Option<&'static OpcodeInfo> {
        self.headers.bth.opcode.info()
    }

    /// Writes the packet with the ICRC it carries, right or wrong, and returns its length. Pad
    /// count and pad bytes become what the payload asks for.
    ///
    /// # Errors
    ///
    /// If it does not fit `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, FrameTooSmall> {
        let layout = self.headers.emit(self.payload.len(), out)?;
        let pad = layout.payload + self.payload.len();
        out[layout.payload..pad].copy_from_slice(self.payload);
        out[pad..layout.icrc].fill(0);
        put(out, layout.icrc, self.icrc.to_le_bytes());
        Ok(layout.icrc + ICRC_LEN)
    }
}

impl Headers {
    /// Parses the headers of a frame that may be cut short behind them, as captures are: the
    /// layout's `icrc` may lie beyond the frame.
    ///
    /// # Errors
    ///
    /// Says why the frame is no RoCE packet. An undefined opcode is no error.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Headers, Layout), Discard> {
        let (eth, ethertype) = Ethernet::parse(frame).ok_or(Discard::Truncated)?;
        let net_at = eth.header_len();
        let bytes = &frame[net_at..];
        let (net, bth_at, end) = match ethertype {
            ETHERTYPE_IPV4 => parse_ipv4(bytes)?,
            ETHERTYPE_IPV6 => parse_ipv6(bytes)?,
            ETHERTYPE_ROCE_V1 => parse_v1(bytes)?,
            _ => return Err(Discard::NotRoce),
        };
        let udp = match net {
            Net::V1(_) => Udp::default(),
            Net::V4(_) | Net::V6(_) => Udp::parse(&bytes[bth_at - Udp::LEN..]),
        };
        let (bth, ext, headers_len) = parse_transport(&bytes[bth_at..], end - bth_at)?;
        let bth_at = net_at + bth_at;
        let layout = Layout {
            net: net_at,
            bth: bth_at,
            payload: bth_at + headers_len,
            icrc: net_at + end - ICRC_LEN,
        };
        Ok((Headers { eth, net, udp, bth, ext }, layout))
    }

    /// Writes all headers of a packet of `payload_len` bytes, lengths, pad count and IPv4 checksum
    /// included. The payload then goes to `frame[layout.payload..]`, and [`seal`] ends the packet.
    ///
    /// # Errors
    ///
    /// If the whole packet does not fit `frame`.
    #[inline]
    pub fn emit(&self, payload_len: usize, frame: &mut [u8]) -> Result<Layout, FrameTooSmall> {
        let net = self.eth.header_len();
        let udp = net + self.net.header_len();
        let bth = if self.net.is_v1() { udp } else { udp + Udp::LEN };
        let payload = bth + Bth::LEN + self.ext.set().len();
        let pad_count = pad_count(payload_len);
        let icrc = payload + payload_len + usize::from(pad_count);
        if frame.len() < icrc + ICRC_LEN || icrc + ICRC_LEN - net > usize::from(u16::MAX) {
            return Err(FrameTooSmall);
        }
        // The check above keeps all lengths below 2^16.
        let len = (icrc + ICRC_LEN - udp) as u16;
        let out = &mut frame[net..];
        let ethertype = match &self.net {
            Net::V4(ip) => {
                ip.emit(len, out);
                self.udp.emit(len, &mut out[Ipv4::LEN..]);
                ETHERTYPE_IPV4
            }
            Net::V6(ip) => {
                ip.emit(PROTOCOL_UDP, len, out);
                self.udp.emit(len, &mut out[Ipv6::LEN..]);
                ETHERTYPE_IPV6
            }
            Net::V1(ip) => {
                ip.emit(NEXT_HEADER_BTH, len, out);
                ETHERTYPE_ROCE_V1
            }
        };
        self.eth.emit(ethertype, frame);
        Bth { pad_count, ..self.bth }.emit(&mut frame[bth..]);
        self.ext.emit(&mut frame[bth + Bth::LEN..]);
        Ok(Layout { net, bth, payload, icrc })
    }
}

/// Pad bytes that bring a payload to a multiple of 4.
#[inline]
pub const fn pad_count(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Ends a packet whose headers and payload of `payload_len` bytes are in place: zeroes the pad,
/// writes the ICRC and returns the length of the frame.
///
/// # Panics
///
/// Panics if `layout` and `payload_len` are not those of [`Headers::emit`] on this frame.
#[inline]
pub fn seal(frame: &mut [u8], layout: &Layout, payload_len: usize) -> usize {
    seal_summed(frame, layout, payload_len, Sum::AtTheEnd)
}

/// As [`seal`], with the sum of headers and payload.
#[inline]
pub(crate) fn seal_summed(
    frame: &mut [u8],
    layout: &Layout,
    payload_len: usize,
    mut sum: Sum,
) -> usize {
    let pad = &mut frame[layout.payload + payload_len..layout.icrc];
    pad.fill(0);
    if !pad.is_empty() {
        sum.add(pad);
    }
    let icrc = sum.finish(frame, layout);
    put(frame, layout.icrc, icrc.to_le_bytes());
    layout.icrc + ICRC_LEN
}

/// The header, and where BTH and packet begin and end, counted from the header.
type Network = (Net, usize, usize);

#[inline]
fn parse_ipv4(bytes: &[u8]) -> Result<Network, Discard> {
    const BTH_AT: usize = Ipv4::LEN + Udp::LEN;
    let ip = bytes.first_chunk::<{ Ipv4::LEN }>().ok_or(Discard::Truncated)?;
    let header = Ipv4Packet::new_unchecked(ip);
    let is_plain = ip[0] == 0x45 && be16(ip, 6) & !0x4000 == 0;
    if !is_plain || ip[9] != PROTOCOL_UDP {
        return Err(refuse_ipv4(bytes));
    }
    let udp = bytes[Ipv4::LEN..].first_chunk::<{ Udp::LEN }>().ok_or(Discard::Truncated)?;
    let end = udp_end(udp, usize::from(header.total_len()), Ipv4::LEN)?;
    if !header.verify_checksum() {
        return Err(Discard::BadIpChecksum);
    }
    Ok((Net::V4(Ipv4::parse(ip)), BTH_AT, end))
}

/// Why an IPv4 packet is refused that is not plain UDP.
#[cold]
fn refuse_ipv4(bytes: &[u8]) -> Discard {
    let header_len = usize::from(bytes[0] & 0x0f) * 4;
    let is_first_fragment = be16(bytes, 6) & 0x1fff == 0;
    match bytes.get(header_len..).and_then(<[u8]>::first_chunk::<{ Udp::LEN }>) {
        _ if bytes[0] >> 4 != 4 => Discard::BadIpHeader,
        _ if bytes[9] != PROTOCOL_UDP => Discard::NotRoce,
        Some(udp) if is_first_fragment && be16(udp, 2) != ROCE_PORT => Discard::NotRoce,
        _ => Discard::BadIpHeader,
    }
}

#[inline]
fn parse_ipv6(bytes: &[u8]) -> Result<Network, Discard> {
    const BTH_AT: usize = Ipv6::LEN + Udp::LEN;
    let ip = bytes.first_chunk::<{ Ipv6::LEN }>().ok_or(Discard::Truncated)?;
    if ip[0] >> 4 != 6 {
        return Err(Discard::BadIpHeader);
    }
    if ip[6] != PROTOCOL_UDP {
        return Err(refuse_ipv6(ip[6], &bytes[Ipv6::LEN..]));
    }
    let udp = bytes[Ipv6::LEN..].first_chunk::<{ Udp::LEN }>().ok_or(Discard::Truncated)?;
    let end = udp_end(udp, Ipv6::LEN + usize::from(be16(ip, 4)), Ipv6::LEN)?;
    Ok((Net::V6(Ipv6::parse(ip)), BTH_AT, end))
}

/// Why an IPv6 packet is refused that does not start with UDP: what its extension headers hide, if
/// it can be seen, may have been RoCE.
#[cold]
fn refuse_ipv6(mut next_header: u8, mut bytes: &[u8]) -> Discard {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    loop {
        let Some(header) = bytes.first_chunk::<8>() else {
            return Discard::NotRoce;
        };
        let len = match next_header {
            HOP_BY_HOP | ROUTING | DESTINATION => 8 * (usize::from(header[1]) + 1),
            FRAGMENT => 8,
            PROTOCOL_UDP if be16(header, 2) == ROCE_PORT => return Discard::BadIpHeader,
            _ => return Discard::NotRoce,
        };
        next_header = header[0];
        bytes = bytes.get(len..).unwrap_or_default();
    }
}

/// Where a UDP datagram ends, counted from the IP header that is `ip_len` long: at `ip_end`, where
/// the IP packet ends. The ICRC has no place but there.
#[inline]
fn udp_end(udp: &[u8; Udp::LEN], ip_end: usize, ip_len: usize) -> Result<usize, Discard> {
    if be16(udp, 2) != ROCE_PORT {
        return Err(Discard::NotRoce);
    }
    let udp_len = usize::from(be16(udp, 4));
    let end = ip_len + udp_len;
    if udp_len < Udp::LEN + Bth::LEN + ICRC_LEN || end != ip_end {
        return Err(Discard::BadLength);
    }
    Ok(end)
}

#[inline]
fn parse_v1(bytes: &[u8]) -> Result<Network, Discard> {
    let grh = parse_grh(bytes)?;
    let payload_len = usize::from(be16(bytes, 4));
    if payload_len < Bth::LEN + ICRC_LEN {
        return Err(Discard::BadLength);
    }
    Ok((Net::V1(grh), Ipv6::LEN, Ipv6::LEN + payload_len))
}

/// A GRH before a BTH.
#[inline]
pub(super) fn parse_grh(bytes: &[u8]) -> Result<Ipv6, Discard> {
    let grh = bytes.first_chunk::<{ Ipv6::LEN }>().ok_or(Discard::Truncated)?;
    if grh[0] >> 4 != 6 || grh[6] != NEXT_HEADER_BTH {
        return Err(Discard::BadGrh);
    }
    Ok(Ipv6::parse(grh))
}

/// BTH, extended headers, and the bytes they take, of a transport packet that is `len` bytes long,
/// ICRC included, of which `bytes` may hold less or more.
#[inline]
pub(super) fn parse_transport(
    bytes: &[u8],
    len: usize,
) -> Result<(Bth, Extensions, usize), Discard> {
    let bth = Bth::parse(bytes.first_chunk::<{ Bth::LEN }>().ok_or(Discard::Truncated)?);
    let (set, ext_len) =
        bth.opcode.info().map_or((HeaderSet::NONE, 0), |info| (info.headers, info.headers_len));
    let headers_len = Bth::LEN + ext_len;
    if headers_len + usize::from(bth.pad_count) + ICRC_LEN > len {
        return Err(Discard::BadLength);
    }
    let ext = bytes.get(Bth::LEN..headers_len).ok_or(Discard::Truncated)?;
    Ok((bth, Extensions::parse(set, ext), headers_len))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::psn::Psn;
    use crate::wire::{Mac, Opcode, Reth, Vlan};

    const PAYLOAD: &[u8] = b"five!";

    fn ipv4() -> Net {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        Net::V4(Ipv4 { src, dst, tos: 0x6a, ident: 0x1234, dont_fragment: true, ttl: 64 })
    }

    fn ipv6() -> Ipv6 {
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        Ipv6 { src, dst, traffic_class: 0x6a, flow_label: 0x12345, hop_limit: 64 }
    }

    fn headers(net: Net, vlan: Option<Vlan>) -> Headers {
        let bth = Bth {
            opcode: Opcode::RC_WRITE_ONLY,
            solicited: false,
            mig_req: true,
            pad_count: 3,
            transport_version: 0,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            reserved6: 0x10,
            dest_qp: 0x11,
            ack_req: true,
            reserved7: 0,
            psn: Psn::new(0x123456),
        };
        let reth = Some(Reth { va: 1 << 40, rkey: 0x1234_5678, dma_len: PAYLOAD.len() as u32 });
        let udp = match net {
            Net::V1(_) => Udp::default(),
            _ => Udp { source_port: 0xc123, checksum: 0 },
        };
        let eth = Ethernet { dst: Mac([2; 6]), src: Mac([4; 6]), vlan };
        Headers { eth, net, udp, bth, ext: Extensions { reth, ..Extensions::default() } }
    }

    /// A frame as the transport sends it.
    fn frame(headers: &Headers) -> Vec<u8> {
        let mut frame = vec![0xa5; 200];
        let layout = headers.emit(PAYLOAD.len(), &mut frame).unwrap();
        frame[layout.payload..][..PAYLOAD.len()].copy_from_slice(PAYLOAD);
        let len = seal(&mut frame, &layout, PAYLOAD.len());
        frame.truncate(len);
        frame
    }

    #[test]
    fn what_is_sent_is_what_is_received() {
        for net in [ipv4(), Net::V6(ipv6()), Net::V1(ipv6())] {
            for vlan in [None, Some(Vlan { pcp: 3, dei: false, vid: 100 })] {
                let headers = headers(net, vlan);
                let mut frame = frame(&headers);
                frame.extend([0x5a; 7]);
                let packet = Packet::parse(&frame).unwrap();
                assert_eq!(packet.headers, headers);
                assert_eq!(packet.payload, PAYLOAD);
                assert!(packet.icrc_ok(&frame));
            }
        }
    }

    #[test]
    fn a_frame_one_byte_short_is_refused_at_both_ends() {
        for net in [ipv4(), Net::V6(ipv6()), Net::V1(ipv6())] {
            let headers = headers(net, None);
            let frame = frame(&headers);
            for len in 0..frame.len() {
                assert_eq!(Packet::parse(&frame[..len]).err(), Some(Discard::Truncated), "{len}");
            }
            let mut short = vec![0; frame.len() - 1];
            assert_eq!(headers.emit(PAYLOAD.len(), &mut short), Err(FrameTooSmall));
            let packet = Packet::parse(&frame).unwrap();
            assert_eq!(packet.emit(&mut short), Err(FrameTooSmall));
            // A capture cut behind the headers still shows them.
            let cut = Headers::parse(&frame[..packet.layout.payload]);
            assert_eq!(cut, Ok((packet.headers, packet.layout)));
        }
        let mut huge = vec![0; 1 << 17];
        assert_eq!(headers(ipv4(), None).emit(0xffff, &mut huge), Err(FrameTooSmall));
    }

    /// The frame with bytes replaced, and the IPv4 checksum put right.
    fn with(frame: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        for &(at, value) in changes {
            frame[at] = value;
        }
        if frame[12..14] == [0x08, 0x00] && frame[14] == 0x45 {
            Ipv4Packet::new_unchecked(&mut frame[14..34]).fill_checksum();
        }
        frame
    }

    /// Encapsulation, bytes to replace, outcome.
    type Fault = (Net, &'static [(usize, u8)], Discard);

    #[test]
    fn each_fault_has_its_discard() {
        use Discard::*;
        let [v4, v6, v1] = [ipv4(), Net::V6(ipv6()), Net::V1(ipv6())];
        let table: &[Fault] = &[
            (v4, &[(13, 0x06)], NotRoce),
            // A second tag.
            (v4, &[(12, 0x81), (13, 0x00), (16, 0x81), (17, 0x00)], NotRoce),
            (v4, &[(14, 0x65)], BadIpHeader),
            (v4, &[(14, 0x46), (40, 0x12), (41, 0xb7)], BadIpHeader),
            (v4, &[(14, 0x46), (40, 0x00), (41, 0x35)], NotRoce),
            (v4, &[(14, 0x44)], NotRoce),
            (v4, &[(20, 0x20)], BadIpHeader),
            (v4, &[(21, 0x01)], BadIpHeader),
            (v4, &[(20, 0x80)], BadIpHeader),
            (v4, &[(20, 0x20), (37, 0x35)], NotRoce),
            (v4, &[(23, 6)], NotRoce),
            (v4, &[(37, 0x35)], NotRoce),
            // IP and UDP disagree; too short for a BTH; too short for RETH and pad.
            (v4, &[(17, 67)], BadLength),
            (v4, &[(17, 69)], BadLength),
            (v4, &[(17, 43), (39, 23)], BadLength),
            (v4, &[(17, 62), (39, 42)], BadLength),
            (v6, &[(14, 0x40)], BadIpHeader),
            (v6, &[(20, 58)], NotRoce),
            // Hop-by-hop options before UDP to port 4791, and to another.
            (v6, &[(20, 0), (54, 17), (55, 0), (64, 0x12), (65, 0xb7)], BadIpHeader),
            (v6, &[(20, 0), (54, 17), (55, 0), (64, 0x00), (65, 0x35)], NotRoce),
            (v6, &[(20, 44), (54, 17), (64, 0x12), (65, 0xb7)], BadIpHeader),
            (v6, &[(20, 43), (54, 17), (55, 255)], NotRoce),
            (v6, &[(19, 47)], BadLength),
            (v1, &[(14, 0x40)], BadGrh),
            (v1, &[(20, 17)], BadGrh),
            (v1, &[(18, 0), (19, 15)], BadLength),
            (v1, &[(18, 0), (19, 28)], BadLength),
        ];
        for (net, changes, discard) in table {
            let frame = with(&frame(&headers(*net, None)), changes);
            assert_eq!(Packet::parse(&frame).err(), Some(*discard), "{changes:?}");
        }
        let mut frame = frame(&headers(v4, None));
        frame[24] ^= 1;
        assert_eq!(Packet::parse(&frame).err(), Some(BadIpChecksum));
    }

    #[test]
    fn an_undefined_opcode_leaves_all_after_the_bth_as_payload() {
        let headers = headers(ipv4(), None);
        let mut frame = frame(&headers);
        frame[42] = 0x18;
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!(packet.info(), None);
        assert_eq!(packet.headers.ext, Extensions::default());
        assert_eq!(packet.payload.len(), Reth::LEN + PAYLOAD.len());
        let mut out = [0; 200];
        assert_eq!(packet.emit(&mut out), Ok(frame.len()));
        assert_eq!(out[..frame.len()], frame);
    }
}
