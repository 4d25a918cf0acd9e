//! A captured frame taken apart: a RoCE packet as far as it was captured, or what else it is.

use std::borrow::Cow;
use std::fmt;

use ferroce_stack::LossRecovery;
use ferroce_stack::discard::Discard;
use ferroce_stack::gid::Gid;
use ferroce_stack::icrc;
use ferroce_stack::verbs::GSI_QKEY;
use ferroce_stack::wire::{
    Bth, Extensions, Headers, Kind, Layout, Lrh, Mad, NativePacket, Net, Opcode, OpcodeInfo,
    PsnRange, Transport, Vlan,
};
use serde::Serialize;

use crate::capture::Frame;
use crate::link::{self, Carried};

/// More than all headers of a packet take together.
const HEADERS_MAX: usize = 256;
const QP1: u32 = 1;

/// Who sent a packet, or should get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Global identifier; shown as IP address.
    Gid(Gid),
    /// Local identifier, all that a native InfiniBand packet without GRH has.
    Lid(u16),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Gid(gid) => gid.to_ip().fmt(f),
            Address::Lid(lid) => write!(f, "lid:{lid}"),
        }
    }
}

/// What the ICRC of a packet is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Icrc {
    /// Right.
    Ok,
    /// Wrong.
    Bad,
    /// Unknown: the capture does not hold the whole packet.
    Truncated,
}

/// A RoCE packet (or a native InfiniBand one).
#[derive(Clone, Debug)]
pub struct Packet<'a> {
    /// Its frame, counted from 1.
    pub frame: u64,
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: Option<u64>,
    /// RoCE version, 1 or 2; 0 for native InfiniBand.
    pub roce: u8,
    /// Sender.
    pub src: Address,
    /// Receiver.
    pub dst: Address,
    /// VLAN tag.
    pub vlan: Option<Vlan>,
    /// DSCP (upper six bits) and ECN (lower two); none without IP header or GRH.
    pub traffic_class: Option<u8>,
    /// IPv4 identification.
    pub ip_ident: Option<u16>,
    /// UDP source port; none in v1.
    pub udp_sport: Option<u16>,
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers. None of them if the capture cut any.
    pub ext: Extensions,
    /// Whether the capture cut the headers.
    pub headers_cut: bool,
    /// Payload as far as it was captured.
    pub payload: &'a [u8],
    /// Bytes of payload the packet had.
    pub payload_len: u32,
    /// Pad bytes as far as they were captured.
    pub pad: &'a [u8],
    /// Verdict on the ICRC.
    pub icrc: Icrc,
    /// A FLUSH with the ICRC that Linux rxe computes in its own way; `icrc` is `Bad`.
    pub rxe_flush: bool,
}

impl Packet<'_> {
    /// The row of its opcode; none if that is not defined.
    pub fn info(&self) -> Option<&'static OpcodeInfo> {
        self.bth.opcode.info()
    }

    /// The IPv4 identification, if it tells one packet from the next: some senders leave it 0.
    pub fn telling_ident(&self) -> Option<u16> {
        self.ip_ident.filter(|&ident| ident != 0)
    }

    /// What its sender offers about loss recovery beyond what every device does.
    pub fn loss_recovery(&self) -> Option<LossRecovery> {
        let reliable = matches!(self.bth.opcode.transport(), Some(Transport::Rc | Transport::Xrc));
        LossRecovery::marked(self.bth.reserved7).filter(|_| reliable)
    }

    /// What has arrived beyond the PSN, if it is a sequence NAK of selective repeat: as far as it
    /// was captured.
    pub fn arrived(&self) -> Option<impl Iterator<Item = PsnRange>> {
        let whole = self.payload.len() / PsnRange::LEN * PsnRange::LEN;
        PsnRange::are_told(&self.bth, self.ext.aeth, self.payload_len as usize)
            .then(|| PsnRange::parse_all(&self.payload[..whole]))
    }

    /// The management datagram in it, and the bytes behind that one's header.
    pub fn mad(&self) -> Option<(Mad, &[u8])> {
        let to_qp1 =
            self.bth.dest_qp == QP1 && self.ext.deth.is_some_and(|deth| deth.qkey == GSI_QKEY);
        let (header, data) = self.payload.split_at_checked(Mad::LEN)?;
        to_qp1.then(|| (Mad::parse(header), data))
    }
}

/// What a frame is that holds no RoCE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonRoce {
    /// ARP.
    Arp,
    /// Neighbour discovery of IPv6.
    Ndp,
    /// TCP.
    Tcp,
    /// Anything else.
    Other,
    /// Meant to be RoCE (by ethertype or UDP port), but its headers contradict each other.
    Malformed(Discard),
    /// Cut by the capture before it could be told.
    Cut,
}

impl NonRoce {
    /// Every name it may be counted under.
    pub const NAMES: [&str; 6] = ["arp", "ndp", "tcp", "other", "malformed", "cut"];

    /// The name it is counted under.
    pub fn name(self) -> &'static str {
        match self {
            NonRoce::Arp => "arp",
            NonRoce::Ndp => "ndp",
            NonRoce::Tcp => "tcp",
            NonRoce::Other => "other",
            NonRoce::Malformed(_) => "malformed",
            NonRoce::Cut => "cut",
        }
    }
}

/// Takes `frame` apart and hands the packet to `found`, which may borrow from it.
///
/// # Errors
///
/// If there is no RoCE packet in it: says what there is.
pub fn with_packet<T>(frame: &Frame, found: impl FnOnce(&Packet<'_>) -> T) -> Result<T, NonRoce> {
    let cut = (frame.bytes.len() as u64) < u64::from(frame.original_len);
    match link::carried(frame.link_type, &frame.bytes) {
        Carried::Ethernet(bytes) => {
            ethernet_packet(frame, &bytes, cut).map(|packet| found(&packet))
        }
        Carried::InfiniBand(bytes) => {
            let whole = extended(bytes, cut.then(|| native_len(bytes)));
            native_packet(frame, &whole, bytes.len()).map(|packet| found(&packet))
        }
        Carried::Other if cut => Err(NonRoce::Cut),
        Carried::Other => Err(NonRoce::Other),
    }
}

fn ethernet_packet<'a>(frame: &Frame, bytes: &'a [u8], cut: bool) -> Result<Packet<'a>, NonRoce> {
    // Headers that were cut are read as zeros, and hidden again below.
    let readable = extended(bytes, cut.then(|| bytes.len().max(HEADERS_MAX)));
    let (headers, layout) = Headers::parse(&readable).map_err(|discard| match discard {
        Discard::NotRoce => classify(bytes),
        Discard::Truncated if !cut => match classify(bytes) {
            NonRoce::Other => NonRoce::Malformed(discard),
            kind => kind,
        },
        _ if cut => NonRoce::Cut,
        discard => NonRoce::Malformed(discard),
    })?;
    let captured_to = bytes.len();
    if captured_to < layout.icrc + 4 && !cut {
        return Err(NonRoce::Malformed(Discard::Truncated));
    }
    let (ip_ident, udp_sport) = match headers.net {
        Net::V4(ip) => (Some(ip.ident), Some(headers.udp.source_port)),
        Net::V6(_) => (None, Some(headers.udp.source_port)),
        Net::V1(_) => (None, None),
    };
    let computed = icrc_in(bytes, &layout).map(|carried| {
        let rxe = headers.bth.opcode.info().is_some_and(|info| info.kind == Kind::Flush)
            && icrc::rxe_flush(bytes, &layout) == carried;
        (icrc::compute(bytes, &layout) == carried, rxe)
    });
    let base = Packet {
        frame: frame.index,
        time_ns: frame.time_ns,
        roce: if headers.net.is_v1() { 1 } else { 2 },
        src: Address::Gid(headers.net.source()),
        dst: Address::Gid(headers.net.destination()),
        vlan: headers.eth.vlan,
        traffic_class: Some(headers.net.traffic_class()),
        ip_ident,
        udp_sport,
        ..Packet::blank(headers.bth, headers.ext)
    };
    base.with_body(bytes, &layout, computed)
}

/// The ICRC carried, if it was captured. On the wire its least significant byte comes first.
fn icrc_in(bytes: &[u8], layout: &Layout) -> Option<u32> {
    let carried = bytes.get(layout.icrc..)?.first_chunk()?;
    Some(u32::from_le_bytes(*carried))
}

fn native_packet<'a>(
    frame: &Frame,
    whole: &'a [u8],
    captured_len: usize,
) -> Result<Packet<'a>, NonRoce> {
    let native = NativePacket::parse(whole).map_err(|discard| match discard {
        Discard::NotRoce => NonRoce::Other,
        _ if captured_len < whole.len() => NonRoce::Cut,
        discard => NonRoce::Malformed(discard),
    })?;
    let (src, dst) = match native.grh {
        Some(grh) => (Address::Gid(Gid::from(grh.src)), Address::Gid(Gid::from(grh.dst))),
        None => (Address::Lid(native.lrh.slid), Address::Lid(native.lrh.dlid)),
    };
    let bytes = &whole[..captured_len.min(whole.len())];
    let computed = icrc_in(bytes, &native.layout).map(|_| (native.icrc_ok(whole), false));
    let base = Packet {
        frame: frame.index,
        time_ns: frame.time_ns,
        src,
        dst,
        traffic_class: native.grh.map(|grh| grh.traffic_class),
        ..Packet::blank(native.bth, native.ext)
    };
    base.with_body(bytes, &native.layout, computed)
}

impl<'a> Packet<'a> {
    fn blank(bth: Bth, ext: Extensions) -> Packet<'a> {
        Packet {
            frame: 0,
            time_ns: None,
            roce: 0,
            src: Address::Lid(0),
            dst: Address::Lid(0),
            vlan: None,
            traffic_class: None,
            ip_ident: None,
            udp_sport: None,
            bth,
            ext,
            headers_cut: false,
            payload: &[],
            payload_len: 0,
            pad: &[],
            icrc: Icrc::Truncated,
            rxe_flush: false,
        }
    }

    /// Adds what stands behind the headers in the bytes captured. `icrc` is whether the ICRC is
    /// right, and whether it is that of rxe's FLUSH; none if it was cut.
    fn with_body(
        mut self,
        bytes: &'a [u8],
        layout: &Layout,
        icrc: Option<(bool, bool)>,
    ) -> Result<Packet<'a>, NonRoce> {
        if bytes.len() < layout.bth + Bth::LEN {
            return Err(NonRoce::Cut);
        }
        if bytes.len() < layout.payload {
            self.ext = Extensions::default();
            self.headers_cut = true;
        }
        let pad_at = layout.icrc - usize::from(self.bth.pad_count);
        let captured = |from: usize, to: usize| &bytes[from.min(bytes.len())..to.min(bytes.len())];
        self.payload = captured(layout.payload, pad_at);
        self.pad = captured(pad_at, layout.icrc);
        self.payload_len = (pad_at - layout.payload) as u32;
        if let Some((right, rxe_flush)) = icrc {
            self.icrc = if right { Icrc::Ok } else { Icrc::Bad };
            self.rxe_flush = rxe_flush && !right;
        }
        Ok(self)
    }
}

/// Bytes a native packet says it has, ICRC included.
fn native_len(bytes: &[u8]) -> usize {
    bytes
        .first_chunk::<{ Lrh::LEN }>()
        .map_or(0, |lrh| usize::from(Lrh::parse(lrh).packet_words) * 4)
}

/// `bytes`, and zeros up to `len`.
fn extended(bytes: &[u8], len: Option<usize>) -> Cow<'_, [u8]> {
    match len {
        Some(len) if len > bytes.len() => {
            let mut longer = bytes.to_vec();
            longer.resize(len, 0);
            Cow::Owned(longer)
        }
        _ => Cow::Borrowed(bytes),
    }
}

/// What an Ethernet frame is that is not RoCE.
fn classify(bytes: &[u8]) -> NonRoce {
    const NDP: std::ops::RangeInclusive<u8> = 133..=137;
    let Some((eth, ethertype)) = ferroce_stack::wire::Ethernet::parse(bytes) else {
        return NonRoce::Other;
    };
    let ip = &bytes[eth.header_len()..];
    let protocol_at = match ethertype {
        0x0806 => return NonRoce::Arp,
        0x0800 => 9,
        0x86dd => 6,
        _ => return NonRoce::Other,
    };
    match (ip.get(protocol_at), ip.get(40)) {
        (Some(6), _) => NonRoce::Tcp,
        (Some(58), Some(kind)) if ethertype == 0x86dd && NDP.contains(kind) => NonRoce::Ndp,
        _ => NonRoce::Other,
    }
}

/// The opcode in words: as in `RC SEND Only`, or the service and number of one not defined.
pub fn opcode_name(opcode: Opcode) -> Cow<'static, str> {
    match opcode.info() {
        Some(info) => Cow::Borrowed(info.name),
        None => {
            let service = opcode.transport().map_or("manufacturer", Transport::name);
            Cow::Owned(format!("{service} reserved {:#04x}", opcode.0))
        }
    }
}
