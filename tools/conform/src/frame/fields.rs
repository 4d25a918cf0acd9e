//! The table of fields: what each is called, how many bits it has, how it is read and set, and how
//! its values are written.

use ferroce_stack::wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Extensions, Feth, HeaderSet, Headers, Ieth, ImmDt, Net,
    Opcode, Reth, Syndrome, SyndromeKind, Vlan, XrcEth,
};

use super::{Seen, names};

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Decimal,
    Hex,
    /// One bit: the name alone, or 0 or 1.
    Flag,
    /// Counted from the first PSN of whoever numbers the packet.
    Psn,
    Syndrome,
}

/// Where a field is.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// In headers that every packet has.
    Always(Get, Set),
    /// In an extended header of these; any one of them will do.
    Extended(HeaderSet, Get, Set),
    /// 16 bits in the frame that follow from the rest, and can be set otherwise afterwards: so
    /// many bytes behind the beginning of the IPv4, IPv6 or UDP header, if there are any there.
    Derived(Option<usize>, Option<usize>, Option<usize>),
    /// PadCnt: follows from the payload.
    Pad,
}

type Get = fn(&Headers) -> Option<u64>;
/// False if the frame has no such field.
type Set = fn(&mut Headers, u64) -> bool;

/// A field.
pub(super) struct Field {
    pub name: &'static str,
    pub bits: u32,
    pub style: Style,
    pub place: Place,
}

const ATOMIC_OR_RETH: HeaderSet = HeaderSet::RETH.with(HeaderSet::ATOMIC_ETH);

/// A field of the BTH.
macro_rules! bth {
    ($name:literal, $bits:literal, $style:ident, $field:ident as $type:ty) => {
        Field {
            name: $name,
            bits: $bits,
            style: Style::$style,
            place: Place::Always(
                |headers| Some(u64::from(headers.bth.$field)),
                |headers, value| {
                    headers.bth.$field = value as $type;
                    true
                },
            ),
        }
    };
    ($name:literal, $field:ident) => {
        Field {
            name: $name,
            bits: 1,
            style: Style::Flag,
            place: Place::Always(
                |headers| Some(u64::from(headers.bth.$field)),
                |headers, value| {
                    headers.bth.$field = value != 0;
                    true
                },
            ),
        }
    };
}

/// A field of one extended header: `$get` of the header, `$set` into it.
macro_rules! ext {
    ($name:literal, $bits:literal, $style:ident, $set_of:expr, $header:ident,
     $get:expr, $set:expr) => {
        Field {
            name: $name,
            bits: $bits,
            style: Style::$style,
            place: Place::Extended(
                $set_of,
                |headers| headers.ext.$header.and_then($get),
                |headers, value| with(&mut headers.ext.$header, |header| $set(header, value)),
            ),
        }
    };
}

fn with<T>(header: &mut Option<T>, set: impl FnOnce(&mut T)) -> bool {
    header.as_mut().map(set).is_some()
}

const fn derived(
    name: &'static str,
    style: Style,
    v4: Option<usize>,
    v6: Option<usize>,
    udp: Option<usize>,
) -> Field {
    Field { name, bits: 16, style, place: Place::Derived(v4, v6, udp) }
}

const fn always(name: &'static str, bits: u32, style: Style, get: Get, set: Set) -> Field {
    Field { name, bits, style, place: Place::Always(get, set) }
}

/// Every field with a number, in the order in which they are described.
#[rustfmt::skip]
pub(super) static FIELDS: &[Field] = &[
    always("psn", 24, Style::Psn, |h| Some(u64::from(h.bth.psn.value())), |h, v| {
        h.bth.psn = ferroce_stack::psn::Psn::new(v as u32);
        true
    }),
    Field { name: "to", bits: 64, style: Style::Hex, place: Place::Extended(ATOMIC_OR_RETH, |h| {
        h.ext.reth.map(|reth| reth.va).or(h.ext.atomic_eth.map(|atomic| atomic.va))
    }, |h, v| {
        with(&mut h.ext.reth, |reth| reth.va = v) | with(&mut h.ext.atomic_eth, |a| a.va = v)
    }) },
    Field { name: "key", bits: 32, style: Style::Hex, place: Place::Extended(ATOMIC_OR_RETH, |h| {
        let rkey = h.ext.reth.map(|reth| reth.rkey).or(h.ext.atomic_eth.map(|atomic| atomic.rkey));
        rkey.map(u64::from)
    }, |h, v| {
        with(&mut h.ext.reth, |reth| reth.rkey = v as u32)
            | with(&mut h.ext.atomic_eth, |atomic| atomic.rkey = v as u32)
    }) },
    ext!("length", 32, Decimal, HeaderSet::RETH, reth,
        |h| Some(u64::from(h.dma_len)), |h: &mut Reth, v| h.dma_len = v as u32),
    ext!("compare", 64, Hex, HeaderSet::ATOMIC_ETH, atomic_eth,
        |h| Some(h.compare), |h: &mut AtomicEth, v| h.compare = v),
    ext!("swap", 64, Hex, HeaderSet::ATOMIC_ETH, atomic_eth,
        |h| Some(h.swap_or_add), |h: &mut AtomicEth, v| h.swap_or_add = v),
    ext!("add", 64, Hex, HeaderSet::ATOMIC_ETH, atomic_eth,
        |h| Some(h.swap_or_add), |h: &mut AtomicEth, v| h.swap_or_add = v),
    ext!("timer", 5, Decimal, HeaderSet::AETH, aeth, |h| match h.syndrome.kind() {
        SyndromeKind::RnrNak { timer } => Some(u64::from(timer)),
        _ => None,
    }, |h: &mut Aeth, v| h.syndrome = Syndrome::rnr_nak(v as u8)),
    ext!("credits", 5, Decimal, HeaderSet::AETH, aeth, |h| match h.syndrome.kind() {
        SyndromeKind::Ack { .. } => Some(u64::from(h.syndrome.0 & 0x1f)),
        _ => None,
    }, |h: &mut Aeth, v| h.syndrome = Syndrome::ack(v as u8)),
    ext!("syndrome", 8, Syndrome, HeaderSet::AETH, aeth,
        |h| Some(u64::from(h.syndrome.0)), |h: &mut Aeth, v| h.syndrome = Syndrome(v as u8)),
    ext!("msn", 24, Decimal, HeaderSet::AETH, aeth,
        |h| Some(u64::from(h.msn)), |h: &mut Aeth, v| h.msn = v as u32),
    ext!("original", 64, Hex, HeaderSet::ATOMIC_ACK_ETH, atomic_ack_eth,
        |h| Some(h.original), |h: &mut AtomicAckEth, v| h.original = v),
    ext!("imm", 32, Hex, HeaderSet::IMM_DT, imm_dt,
        |h| Some(u64::from(u32::from_be_bytes(h.0))),
        |h: &mut ImmDt, v: u64| h.0 = (v as u32).to_be_bytes()),
    ext!("invalidate", 32, Hex, HeaderSet::IETH, ieth,
        |h| Some(u64::from(h.rkey)), |h: &mut Ieth, v| h.rkey = v as u32),
    ext!("level", 2, Decimal, HeaderSet::FETH, feth,
        |h| Some(u64::from(h.level)), |h: &mut Feth, v| h.level = v as u8),
    ext!("placement", 4, Decimal, HeaderSet::FETH, feth,
        |h| Some(u64::from(h.placement)), |h: &mut Feth, v| h.placement = v as u8),
    ext!("qkey", 32, Hex, HeaderSet::DETH, deth,
        |h| Some(u64::from(h.qkey)), |h: &mut Deth, v| h.qkey = v as u32),
    ext!("source-qp", 24, Hex, HeaderSet::DETH, deth,
        |h| Some(u64::from(h.src_qp)), |h: &mut Deth, v| h.src_qp = v as u32),
    ext!("srq", 24, Hex, HeaderSet::XRCETH, xrceth,
        |h| Some(u64::from(h.srqn)), |h: &mut XrcEth, v| h.srqn = v as u32),
    bth!("ack-request", ack_req),
    bth!("solicited", solicited),
    bth!("migrated", mig_req),
    Field { name: "pad", bits: 2, style: Style::Decimal, place: Place::Pad },
    always("opcode", 8, Style::Hex, |h| Some(u64::from(h.bth.opcode.0)), |h, v| {
        h.bth.opcode = Opcode(v as u8);
        true
    }),
    bth!("version", 4, Decimal, transport_version as u8),
    bth!("pkey", 16, Hex, pkey as u16),
    bth!("destination", 24, Hex, dest_qp as u32),
    bth!("fecn", fecn),
    bth!("becn", becn),
    bth!("reserved6", 6, Hex, reserved6 as u8),
    bth!("reserved", 7, Hex, reserved7 as u8),
    always("tos", 8, Style::Hex, traffic_class, set_traffic_class),
    always("traffic-class", 8, Style::Hex, traffic_class, set_traffic_class),
    always("ttl", 8, Style::Decimal, hop_limit, set_hop_limit),
    always("hop-limit", 8, Style::Decimal, hop_limit, set_hop_limit),
    always("ident", 16, Style::Hex, |h| match h.net {
        Net::V4(ip) => Some(u64::from(ip.ident)),
        _ => None,
    }, |h, v| match &mut h.net {
        Net::V4(ip) => { ip.ident = v as u16; true }
        _ => false,
    }),
    always("flow-label", 20, Style::Hex, |h| match h.net {
        Net::V6(ip) | Net::V1(ip) => Some(u64::from(ip.flow_label)),
        Net::V4(_) => None,
    }, |h, v| match &mut h.net {
        Net::V6(ip) | Net::V1(ip) => { ip.flow_label = v as u32; true }
        Net::V4(_) => false,
    }),
    derived("ip-length", Style::Decimal, Some(2), Some(4), None),
    derived("ip-checksum", Style::Hex, Some(10), None, None),
    derived("udp-length", Style::Decimal, None, None, Some(4)),
    always("source-port", 16, Style::Hex, |h| Some(u64::from(h.udp.source_port)), |h, v| {
        h.udp.source_port = v as u16;
        true
    }),
    derived("destination-port", Style::Decimal, None, None, Some(2)),
    always("udp-checksum", 16, Style::Hex, |h| Some(u64::from(h.udp.checksum)), |h, v| {
        h.udp.checksum = v as u16;
        true
    }),
    always("vlan", 12, Style::Decimal, |h| h.eth.vlan.map(|tag| u64::from(tag.vid)), |h, v| {
        tag(h).vid = v as u16;
        true
    }),
    always("priority", 3, Style::Decimal, |h| h.eth.vlan.map(|tag| u64::from(tag.pcp)), |h, v| {
        tag(h).pcp = v as u8;
        true
    }),
];

fn traffic_class(headers: &Headers) -> Option<u64> {
    Some(u64::from(headers.net.traffic_class()))
}

fn set_traffic_class(headers: &mut Headers, value: u64) -> bool {
    headers.net.set_traffic_class(value as u8);
    true
}

fn hop_limit(headers: &Headers) -> Option<u64> {
    Some(u64::from(match headers.net {
        Net::V4(ip) => ip.ttl,
        Net::V6(ip) | Net::V1(ip) => ip.hop_limit,
    }))
}

fn set_hop_limit(headers: &mut Headers, value: u64) -> bool {
    match &mut headers.net {
        Net::V4(ip) => ip.ttl = value as u8,
        Net::V6(ip) | Net::V1(ip) => ip.hop_limit = value as u8,
    }
    true
}

/// The VLAN tag; a priority tag if there was none.
fn tag(headers: &mut Headers) -> &mut Vlan {
    headers.eth.vlan.get_or_insert(Vlan { pcp: 0, dei: false, vid: 0 })
}

/// The field of this name.
pub(super) fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

impl Field {
    /// The largest value.
    pub fn most(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Its value in a packet; nothing if the packet has no such field.
    pub fn read(&self, seen: &Seen) -> Option<u64> {
        let (net, bth) = (seen.layout().net, seen.layout().bth);
        match self.place {
            Place::Always(get, _) | Place::Extended(_, get, _) => get(seen.headers()),
            Place::Pad => Some(u64::from(seen.headers().bth.pad_count)),
            Place::Derived(v4, v6, udp) => {
                seen.be16(derived_at(seen.headers(), net, bth, [v4, v6, udp])?)
            }
        }
    }

    /// A value as it is written in scenarios.
    pub fn shown(&self, value: u64) -> String {
        match self.style {
            Style::Hex | Style::Syndrome => format!("{value:#x}"),
            Style::Decimal | Style::Flag | Style::Psn => value.to_string(),
        }
    }

    /// A value with what it means.
    pub fn explained(&self, value: u64) -> String {
        let meaning = match self.style {
            Style::Syndrome => names::syndrome_name(Syndrome(value as u8)),
            _ => None,
        };
        let shown = self.shown(value);
        meaning.map_or_else(|| shown.clone(), |name| format!("{shown} ({name})"))
    }
}

/// Where a derived field is in a frame whose IP header begins at `net`, BTH at `bth`.
pub(super) fn derived_at(
    headers: &Headers,
    net: usize,
    bth: usize,
    [v4, v6, udp]: [Option<usize>; 3],
) -> Option<usize> {
    const UDP_LEN: usize = 8;
    match headers.net {
        Net::V1(_) => None,
        _ if udp.is_some() => udp.map(|offset| bth - UDP_LEN + offset),
        Net::V4(_) => v4.map(|offset| net + offset),
        Net::V6(_) => v6.map(|offset| net + offset),
    }
}

/// Headers of this set, of zeros.
pub(super) fn zeros(set: HeaderSet) -> Extensions {
    const LONGEST: [u8; 128] = [0; 128];
    Extensions::parse(set, &LONGEST)
}
