//! A frame taken apart as far as it can be: RoCE, address resolution, or neither.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ferroce_stack::discard::Discard;
use ferroce_stack::icrc;
use ferroce_stack::mad::message::{AnyMessage, DATA_LEN};
use ferroce_stack::verbs::GSI_QKEY;
use ferroce_stack::wire::{
    Bth, Ethernet, Extensions, Headers, Kind, Layout, Mac, Mad, Neighbour, NeighbourMessage,
    PsnRange,
};

/// More than all headers of a packet take together.
const HEADERS_MAX: usize = 256;
const QP1: u32 = 1;

/// Who sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// By IP address, or the GID of RoCE v1.
    Ip(IpAddr),
    /// By Ethernet address, where that is all there is.
    Mac(Mac),
    /// A QP of an end that talks to itself, if known.
    Loopback(IpAddr, Option<u32>),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Ip(ip) | End::Loopback(ip, _) => ip.fmt(f),
            End::Mac(mac) => mac.fmt(f),
        }
    }
}

/// A frame and who exchanges it.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub src: End,
    pub dst: End,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Roce(Box<Roce>),
    Neighbour(NeighbourMessage),
    /// Not RoCE, or not sound, and why.
    Other(Discard),
}

/// A RoCE packet.
#[derive(Clone, Debug)]
pub(crate) struct Roce {
    pub headers: Headers,
    /// Bytes of payload, whether they are here or not.
    pub payload_len: usize,
    pub icrc: Icrc,
    /// The extended headers are not all here; none is shown.
    pub headers_cut: bool,
    pub mad: Option<Management>,
    /// What has arrived beyond the PSN, if it is a sequence NAK of selective repeat: as far as it
    /// is here.
    pub arrived: Vec<PsnRange>,
    /// QPN of the sender, if it is known.
    pub source_qp: Option<u32>,
}

/// A management datagram: its header, and the message if it is one of connection management and
/// whole.
#[derive(Clone, Debug)]
pub(crate) struct Management {
    pub header: Mad,
    pub message: Option<AnyMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Icrc {
    Right,
    /// As Linux rxe computes that of FLUSH, in its own way.
    RxeFlush,
    Wrong,
    /// Not here.
    Cut,
}

impl Parsed {
    /// Takes a frame apart, which is but the beginning of one if `cut`; none if it does not even
    /// have an Ethernet header.
    pub fn new(frame: &[u8], cut: bool, source_qp: Option<u32>) -> Option<Parsed> {
        let (eth, _) = Ethernet::parse(frame)?;
        match Roce::new(frame, cut, source_qp) {
            Ok(roce) => {
                let net = &roce.headers.net;
                let (src, dst) = (net.source().to_ip(), net.destination().to_ip());
                let (src, dst) = match src == dst {
                    true => (
                        End::Loopback(src, roce.source_qp),
                        End::Loopback(dst, Some(roce.headers.bth.dest_qp)),
                    ),
                    false => (End::Ip(src), End::Ip(dst)),
                };
                Some(Parsed { src, dst, content: Content::Roce(Box::new(roce)) })
            }
            Err(discard) => {
                let content = Neighbour::parse(frame)
                    .map_or(Content::Other(discard), |found| Content::Neighbour(found.message));
                Some(Parsed { src: End::Mac(eth.src), dst: End::Mac(eth.dst), content })
            }
        }
    }

    /// The packet, if it is RoCE.
    pub fn roce(&self) -> Option<&Roce> {
        match &self.content {
            Content::Roce(roce) => Some(roce),
            Content::Neighbour(_) | Content::Other(_) => None,
        }
    }
}

impl Roce {
    fn new(frame: &[u8], cut: bool, source_qp: Option<u32>) -> Result<Roce, Discard> {
        let readable = match cut {
            // Headers that were cut are read as zeros, and hidden again below.
            true if frame.len() < HEADERS_MAX => {
                let mut longer = frame.to_vec();
                longer.resize(HEADERS_MAX, 0);
                Cow::Owned(longer)
            }
            _ => Cow::Borrowed(frame),
        };
        let (mut headers, layout) = Headers::parse(&readable)?;
        let whole = frame.len() >= layout.icrc + 4;
        if frame.len() < layout.bth + Bth::LEN || !whole && !cut {
            return Err(Discard::Truncated);
        }
        let headers_cut = frame.len() < layout.payload;
        if headers_cut {
            headers.ext = Extensions::default();
        }
        let pad_at = layout.icrc - usize::from(headers.bth.pad_count);
        let payload = &frame[layout.payload.min(frame.len())..pad_at.min(frame.len())];
        let payload_len = pad_at - layout.payload;
        let arrived = match PsnRange::are_told(&headers.bth, headers.ext.aeth, payload_len) {
            true => &payload[..payload.len() / PsnRange::LEN * PsnRange::LEN],
            false => &[],
        };
        Ok(Roce {
            payload_len,
            arrived: PsnRange::parse_all(arrived).collect(),
            icrc: judge(frame, &headers, &layout),
            headers_cut,
            mad: Management::new(&headers, payload),
            source_qp: source_qp.or(headers.ext.deth.map(|deth| deth.src_qp)),
            headers,
        })
    }
}

fn judge(frame: &[u8], headers: &Headers, layout: &Layout) -> Icrc {
    let Some(carried) = frame.get(layout.icrc..).and_then(<[u8]>::first_chunk) else {
        return Icrc::Cut;
    };
    let carried = u32::from_le_bytes(*carried);
    let is_flush = headers.bth.opcode.info().is_some_and(|info| info.kind == Kind::Flush);
    if icrc::compute(frame, layout) == carried {
        Icrc::Right
    } else if is_flush && icrc::rxe_flush(frame, layout) == carried {
        Icrc::RxeFlush
    } else {
        Icrc::Wrong
    }
}

impl Management {
    fn new(headers: &Headers, payload: &[u8]) -> Option<Management> {
        let key = headers.ext.deth?.qkey;
        let (header, data) = payload.split_at_checked(Mad::LEN)?;
        if headers.bth.dest_qp != QP1 || key != GSI_QKEY {
            return None;
        }
        let header = Mad::parse(header);
        let message = header
            .cm_message()
            .zip(data.first_chunk::<DATA_LEN>())
            .and_then(|(kind, data)| AnyMessage::parse(kind, data));
        Some(Management { header, message })
    }
}
