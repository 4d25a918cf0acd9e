//! Frames of the peer.

use std::net::IpAddr;

use ferroce_stack::GidEntry;
use ferroce_stack::gid::Gid;
use ferroce_stack::icrc;
use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{
    Bth, Deth, Ethernet, Extensions, HeaderSet, Headers, Ipv4, Ipv6, Kind, Layout, Net, Opcode,
    PayloadRule, Position, Transport, Udp, Vlan, XrcEth, pad_count,
};

use super::fields::{Place, Style, derived_at, field, zeros};
use super::names::{Named, SERVICES, named};
use super::{FieldError, Flow, RUNNERS, Side};
use crate::ast::Word;
use crate::value::{Datum, Given};

/// Hops of what is sent.
const HOPS: u8 = 64;
/// Longest frame that can be said.
const LONGEST: usize = 1 << 16;
const UDP: u8 = 17;
const ICRC_LEN: usize = 4;

/// The frame a sentence says the peer sends, from its Ethernet header to the ICRC. Everything that
/// is not said of it is right.
///
/// # Errors
/// A field that the frame does not have, a value that does not fit, or a field that is missing.
pub fn build(frame: &Word, fields: &[Given], flow: &Flow) -> Result<Vec<u8>, FieldError> {
    if super::cm::is_datagram(frame) {
        return super::cm::build(frame, fields, flow);
    }
    let mut draft = Draft::new(frame, fields, flow)?;
    for given in fields.iter().filter(|given| !RUNNERS.contains(&given.name.value.as_str())) {
        draft.take(given, flow)?;
    }
    draft.complete(frame, fields, flow)?;
    draft.finish(frame)
}

/// A frame in the making.
struct Draft<'a> {
    named: Named,
    headers: Headers,
    payload: Option<&'a [u8]>,
    pad: Option<u8>,
    /// MF.
    fragment: bool,
    /// Derived fields that are to be otherwise: offsets in IPv4, IPv6 and UDP header, and value.
    otherwise: Vec<([Option<usize>; 3], u16)>,
    icrc: Icrc,
    cut: usize,
    trailing: &'a [u8],
    bytes: Vec<(&'a Word, u64, u64)>,
}

/// What goes where the ICRC belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Icrc {
    Right,
    Wrong,
    WithoutPad,
    Swapped,
    Is(u32),
}

/// All headers of a packet of which only its opcode is known.
pub(super) fn plain(named: &Named, set: HeaderSet, flow: &Flow, sender: Side) -> Headers {
    let (from, to) = match sender {
        Side::Target => (&flow.target, &flow.peer),
        Side::Peer => (&flow.peer, &flow.target),
    };
    let (own_qpn, qpn) = match sender {
        Side::Target => (flow.target_qpn, flow.peer_qpn),
        Side::Peer => (flow.peer_qpn, flow.target_qpn),
    };
    let mut bth = Bth::new(named.opcode, qpn, Psn::new(0));
    bth.pkey = flow.pkey;
    bth.becn = named.opcode == Opcode::CNP;
    let mut ext = zeros(set);
    if let Some(deth) = &mut ext.deth {
        *deth = Deth { qkey: flow.qkey, reserved: 0, src_qp: own_qpn };
    }
    if let Some(xrceth) = &mut ext.xrceth {
        *xrceth = XrcEth { reserved: 0, srqn: flow.srqn };
    }
    if let Some(aeth) = &mut ext.aeth {
        aeth.syndrome = named.answer.unwrap_or(super::names::Answer::Ack).syndrome();
    }
    if let Some(feth) = &mut ext.feth {
        feth.placement = 1;
    }
    let vlan = from.vlan.map(|vid| Vlan { pcp: 0, dei: false, vid });
    Headers {
        eth: Ethernet { dst: to.mac, src: from.mac, vlan },
        net: network(from, to),
        udp: Udp { source_port: flow.source_port(), checksum: 0 },
        bth,
        ext,
    }
}

fn network(from: &GidEntry, to: &GidEntry) -> Net {
    match (from.gid.ipv4(), to.gid.ipv4()) {
        (Some(src), Some(dst)) => {
            Net::V4(Ipv4 { src, dst, tos: 0, ident: 0, dont_fragment: true, ttl: HOPS })
        }
        _ => Net::V6(Ipv6 {
            src: from.gid.0.into(),
            dst: to.gid.0.into(),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: HOPS,
        }),
    }
}

/// The headers a frame has, those of opcodes that no service defines included. A frame given by
/// number has those that its fields name.
pub(super) fn header_set(named: &Named) -> HeaderSet {
    if named.by_number {
        return HeaderSet::NONE;
    }
    if let Some(info) = named.opcode.info() {
        return info.headers;
    }
    // An operation of another service in this one.
    let own = Opcode(named.opcode.0 & 0x1f).info().map_or(HeaderSet::NONE, |info| info.headers);
    match named.opcode.transport() {
        Some(Transport::Ud) => own.with(HeaderSet::DETH),
        _ => own,
    }
}

/// Headers that the fields of a frame given by number name.
fn headers_named(fields: &[Given]) -> HeaderSet {
    let has = |name: &str| fields.iter().any(|given| given.name.value == name);
    let atomic = has("compare") || has("swap") || has("add");
    let sets = fields.iter().filter_map(|given| match field(&given.name.value)?.place {
        // The address is in the one or the other.
        Place::Extended(set, ..) if set.has(HeaderSet::RETH) => {
            Some(if atomic { HeaderSet::ATOMIC_ETH } else { HeaderSet::RETH })
        }
        Place::Extended(set, ..) => Some(set),
        _ => None,
    });
    sets.fold(HeaderSet::NONE, HeaderSet::with)
}

/// The service a frame is in: the flow's, unless a field says otherwise.
pub(super) fn service_of(fields: &[Given], flow: &Flow) -> Result<Transport, FieldError> {
    let Some(given) = fields.iter().find(|given| given.name.value == "service") else {
        return Ok(flow.service);
    };
    let known = match &given.datum {
        Datum::Word(word) => SERVICES.iter().find(|(name, _)| name == word),
        _ => None,
    };
    known
        .map(|&(_, service)| service)
        .ok_or_else(|| FieldError::at(&given.name, "`service` is rc, uc, rd, ud or xrc"))
}

impl<'a> Draft<'a> {
    fn new(frame: &Word, fields: &[Given], flow: &Flow) -> Result<Draft<'a>, FieldError> {
        let named = named(frame, service_of(fields, flow)?)?;
        let set = header_set(&named);
        let set = if named.by_number { set.with(headers_named(fields)) } else { set };
        Ok(Draft {
            named,
            headers: plain(&named, set, flow, Side::Peer),
            payload: None,
            pad: None,
            fragment: false,
            otherwise: Vec::new(),
            icrc: Icrc::Right,
            cut: 0,
            trailing: &[],
            bytes: Vec::new(),
        })
    }

    /// Takes over a field.
    fn take(&mut self, given: &'a Given, flow: &Flow) -> Result<(), FieldError> {
        let name = &given.name;
        match (name.value.as_str(), &given.datum) {
            ("service", _) => {}
            ("payload", Datum::Bytes(bytes)) => self.payload = Some(bytes),
            ("trailing", Datum::Bytes(bytes)) => self.trailing = bytes,
            ("payload" | "trailing", _) => return Err(wants(name, "bytes")),
            ("fragment", Datum::Flag) => self.fragment = true,
            ("icrc", datum) => self.icrc = icrc_of(name, datum)?,
            ("cut", datum) => self.cut = number(name, datum, LONGEST as u64)? as usize,
            ("byte", Datum::Range(at, value)) => self.bytes.push((name, *at, *value)),
            ("byte", _) => return Err(wants(name, "`N to M`: byte N becomes M")),
            ("vlan", Datum::Word(word)) if word == "none" => self.headers.eth.vlan = None,
            ("source-address" | "destination-address", datum) => self.address(name, datum)?,
            _ => self.take_number(given, flow)?,
        }
        Ok(())
    }

    fn take_number(&mut self, given: &Given, flow: &Flow) -> Result<(), FieldError> {
        let name = &given.name;
        let unknown = || FieldError::at(name, format!("a frame has no field `{}`", name.value));
        let field = field(&name.value).ok_or_else(unknown)?;
        let value = match (&given.datum, field.style) {
            (Datum::Flag, Style::Flag) => 1,
            (Datum::Number(value), Style::Psn) => {
                let first = flow.first_psn(self.named.opcode, Side::Peer);
                u64::from(first).wrapping_add(*value) & field.most()
            }
            (datum, _) => number(name, datum, field.most())?,
        };
        let absent = |draft: &Draft| {
            let network = if draft.headers.net.header_len() == Ipv4::LEN { "IPv4" } else { "IPv6" };
            let has = format!("this frame has no `{}`", name.value);
            let why = match field.place {
                Place::Extended(..) => String::new(),
                _ => format!(" over {network}"),
            };
            FieldError::at(name, has + &why)
        };
        match field.place {
            Place::Always(_, set) | Place::Extended(_, _, set) => {
                if !set(&mut self.headers, value) {
                    return Err(absent(self));
                }
            }
            Place::Pad => self.pad = Some(value as u8),
            Place::Derived(v4, v6, udp) => {
                if derived_at(&self.headers, 0, Udp::LEN, [v4, v6, udp]).is_none() {
                    return Err(absent(self));
                }
                self.otherwise.push(([v4, v6, udp], value as u16));
            }
        }
        Ok(())
    }

    fn address(&mut self, name: &Word, datum: &Datum) -> Result<(), FieldError> {
        let Datum::Text(text) = datum else { return Err(wants(name, "an address in quotes")) };
        let is_source = name.value == "source-address";
        let family = || wants(name, "an address of the same family as the target's");
        let ip: IpAddr = text.parse().map_err(|_| wants(name, "an IP address in quotes"))?;
        match (&mut self.headers.net, Gid::from_ip(ip).ipv4(), ip) {
            (Net::V4(own), Some(ip), _) if is_source => own.src = ip,
            (Net::V4(own), Some(ip), _) => own.dst = ip,
            (Net::V6(own), None, IpAddr::V6(ip)) if is_source => own.src = ip,
            (Net::V6(own), None, IpAddr::V6(ip)) => own.dst = ip,
            _ => return Err(family()),
        }
        Ok(())
    }

    /// What follows from the rest, and what has to be said.
    fn complete(&mut self, frame: &Word, fields: &[Given], flow: &Flow) -> Result<(), FieldError> {
        let said = |name: &str| fields.iter().any(|given| given.name.value == name);
        let first = flow.first_psn(self.named.opcode, Side::Peer);
        if !said("psn") {
            if super::names::numbering(self.named.opcode) != super::names::Numbering::None {
                return Err(needs(frame, "psn"));
            }
            self.headers.bth.psn = Psn::new(first);
        }
        if self.named.by_number {
            return Ok(());
        }
        let info = Opcode(self.named.opcode.0 & 0x1f).info().filter(|_| !is_cnp(&self.named));
        let kind = info.map_or(Kind::Cnp, |info| info.kind);
        if self.payload.is_none() {
            self.payload = Some(default_payload(kind, info.map(|info| info.position), flow));
            if info.is_some_and(|info| info.payload == PayloadRule::OneToMtu) {
                return Err(needs(frame, "payload"));
            }
        }
        let payload_len = self.payload.map_or(0, <[u8]>::len);
        if let (Some(reth), false) = (&mut self.headers.ext.reth, said("length")) {
            let only = info.is_some_and(|info| info.position == Position::Only);
            match kind {
                Kind::Write if only => reth.dma_len = payload_len as u32,
                Kind::AtomicWrite => reth.dma_len = 8,
                _ => return Err(needs(frame, "length")),
            }
        }
        self.check_said(frame, kind, said)
    }

    fn check_said(
        &self,
        frame: &Word,
        kind: Kind,
        said: impl Fn(&str) -> bool,
    ) -> Result<(), FieldError> {
        let ext: &Extensions = &self.headers.ext;
        let remote = ext.reth.is_some() || ext.atomic_eth.is_some();
        let needed = [
            ("to", remote),
            ("key", remote),
            ("compare", kind == Kind::CompareSwap),
            ("swap", kind == Kind::CompareSwap),
            ("add", kind == Kind::FetchAdd),
            ("original", ext.atomic_ack_eth.is_some()),
            ("imm", ext.imm_dt.is_some()),
            ("invalidate", ext.ieth.is_some()),
        ];
        match needed.into_iter().find(|&(name, needed)| needed && !said(name)) {
            Some((name, _)) => Err(needs(frame, name)),
            None => Ok(()),
        }
    }

    /// The bytes.
    fn finish(mut self, frame: &Word) -> Result<Vec<u8>, FieldError> {
        let payload = self.payload.unwrap_or(&[]);
        self.headers.bth.pad_count = self.pad.unwrap_or(pad_count(payload.len()));
        let (mut bytes, layout) = emit(&self.headers, payload).ok_or_else(|| {
            FieldError::at(frame, "the frame is longer than its length fields can say")
        })?;
        if self.fragment {
            let Net::V4(_) = self.headers.net else {
                return Err(FieldError::at(frame, "over IPv6 no frame has `fragment`"));
            };
            bytes[layout.net + 6] |= 0x20;
            set_ipv4_checksum(&mut bytes[layout.net..]);
        }
        self.set_otherwise(&mut bytes, &layout);
        let right = icrc::compute(&bytes, &layout);
        let value = match self.icrc {
            Icrc::Right => right,
            Icrc::Wrong => right ^ 1 << 13,
            Icrc::WithoutPad => without_pad(frame, &bytes, &layout, self.headers.bth.pad_count)?,
            Icrc::Swapped => right.swap_bytes(),
            Icrc::Is(value) => value,
        };
        bytes[layout.icrc..].copy_from_slice(&value.to_le_bytes());
        bytes.truncate(bytes.len().saturating_sub(self.cut));
        bytes.extend_from_slice(self.trailing);
        for (name, at, value) in self.bytes {
            let value = u8::try_from(value).map_err(|_| FieldError::at(name, "a byte is 0 to 255"));
            let length = bytes.len();
            let beyond = || FieldError::at(name, format!("the frame has {length} bytes"));
            let index = usize::try_from(at).map_err(|_| beyond())?;
            *bytes.get_mut(index).ok_or_else(beyond)? = value?;
        }
        Ok(bytes)
    }

    fn set_otherwise(&self, bytes: &mut [u8], layout: &Layout) {
        let mut checksum_is_said = false;
        for &(offsets, value) in &self.otherwise {
            if let Some(at) = derived_at(&self.headers, layout.net, layout.bth, offsets) {
                bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
                checksum_is_said |= at == layout.net + IPV4_CHECKSUM;
            }
        }
        if matches!(self.headers.net, Net::V4(_)) && !checksum_is_said {
            set_ipv4_checksum(&mut bytes[layout.net..]);
        }
    }
}

/// Offset of the header checksum.
const IPV4_CHECKSUM: usize = 10;

fn set_ipv4_checksum(header: &mut [u8]) {
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
    let sum = !ones_complement(&header[..Ipv4::LEN]);
    header[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Ones' complement sum of big-endian 16-bit words, an odd last byte filled up by zero (RFC 1071).
pub(super) fn ones_complement(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A packet with the pad count its BTH says, and so many bytes of pad; its ICRC is zero.
fn emit(headers: &Headers, payload: &[u8]) -> Option<(Vec<u8>, Layout)> {
    let net = headers.eth.header_len();
    let udp = net + headers.net.header_len();
    let bth = udp + Udp::LEN;
    let payload_at = bth + Bth::LEN + headers.ext.set().len();
    let icrc = payload_at + payload.len() + usize::from(headers.bth.pad_count);
    let end = icrc + ICRC_LEN;
    let udp_len = u16::try_from(end - udp).ok().filter(|_| end - net <= usize::from(u16::MAX))?;
    let mut bytes = vec![0; end];
    let ethertype = match &headers.net {
        Net::V4(ip) => {
            ip.emit(udp_len, &mut bytes[net..]);
            ferroce_stack::wire::ETHERTYPE_IPV4
        }
        Net::V6(ip) | Net::V1(ip) => {
            ip.emit(UDP, udp_len, &mut bytes[net..]);
            ferroce_stack::wire::ETHERTYPE_IPV6
        }
    };
    headers.eth.emit(ethertype, &mut bytes);
    headers.udp.emit(udp_len, &mut bytes[udp..]);
    headers.bth.emit(&mut bytes[bth..]);
    headers.ext.emit(&mut bytes[bth + Bth::LEN..]);
    bytes[payload_at..payload_at + payload.len()].copy_from_slice(payload);
    Some((bytes, Layout { net, bth, payload: payload_at, icrc }))
}

/// The ICRC of a sender that leaves the pad out.
fn without_pad(
    frame: &Word,
    bytes: &[u8],
    layout: &Layout,
    pad_count: u8,
) -> Result<u32, FieldError> {
    if pad_count == 0 {
        return Err(FieldError::at(frame, "`icrc without-pad` of a frame that has no pad"));
    }
    let layout = Layout { icrc: layout.icrc - usize::from(pad_count), ..*layout };
    Ok(icrc::compute(bytes, &layout))
}

fn is_cnp(named: &Named) -> bool {
    named.opcode == Opcode::CNP
}

/// What a frame carries if nothing is said of it.
fn default_payload(kind: Kind, position: Option<Position>, flow: &Flow) -> &'static [u8] {
    static ZEROS: [u8; 4096] = [0; 4096];
    match (kind, position) {
        (Kind::Cnp, _) => &ZEROS[..16],
        (Kind::AtomicWrite, _) => &ZEROS[..8],
        (_, Some(Position::First | Position::Middle)) => {
            &ZEROS[..(flow.mtu as usize).min(ZEROS.len())]
        }
        _ => &[],
    }
}

fn icrc_of(name: &Word, datum: &Datum) -> Result<Icrc, FieldError> {
    Ok(match datum {
        Datum::Word(word) if word == "wrong" => Icrc::Wrong,
        Datum::Word(word) if word == "without-pad" => Icrc::WithoutPad,
        Datum::Word(word) if word == "swapped" => Icrc::Swapped,
        Datum::Number(value) => {
            Icrc::Is(u32::try_from(*value).map_err(|_| wants(name, "32 bits"))?)
        }
        _ => return Err(wants(name, "wrong, without-pad, swapped or a number")),
    })
}

/// A number of at most `most`.
pub(super) fn number(name: &Word, datum: &Datum, most: u64) -> Result<u64, FieldError> {
    match datum {
        Datum::Number(value) if *value <= most => Ok(*value),
        Datum::Number(value) => {
            let message = format!("`{}` is at most {most} ({most:#x}), not {value}", name.value);
            Err(FieldError::at(name, message))
        }
        _ => Err(wants(name, "a number")),
    }
}

pub(super) fn wants(name: &Word, what: &str) -> FieldError {
    FieldError::at(name, format!("`{}` wants {what}", name.value))
}

fn needs(frame: &Word, name: &str) -> FieldError {
    FieldError::at(frame, format!("`{}` needs `{name}`", frame.value))
}
