//! What an arrow says, in the few words that fit beside it.

use std::fmt::Write as _;
use std::time::Duration;

use ferroce_stack::mad::message::AnyMessage;
use ferroce_stack::wire::{
    Aeth, CmMessage, Kind, NakCode, NeighbourMessage, OpcodeInfo, Position, PsnRange, SyndromeKind,
    Transport, rnr_delay_ns,
};

use crate::packet::{Content, Icrc, Management, Parsed, Roce};

/// What sort of packet it is: how it is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Request,
    Response,
    Ack,
    RnrNak,
    Nak,
    Cnp,
    Management,
    Other,
}

impl Class {
    /// Every class, in the order of the legend.
    pub const ALL: [Class; 8] = [
        Class::Request,
        Class::Response,
        Class::Ack,
        Class::RnrNak,
        Class::Nak,
        Class::Cnp,
        Class::Management,
        Class::Other,
    ];

    /// As it is named in the picture's source.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Request => "request",
            Class::Response => "response",
            Class::Ack => "ack",
            Class::RnrNak => "rnr-nak",
            Class::Nak => "nak",
            Class::Cnp => "cnp",
            Class::Management => "management",
            Class::Other => "other",
        }
    }

    /// As it is named in the legend.
    pub const fn words(self) -> &'static str {
        match self {
            Class::Request => "request",
            Class::Response => "response with data",
            Class::Ack => "ACK",
            Class::RnrNak => "RNR NAK",
            Class::Nak => "NAK",
            Class::Cnp => "CNP (congestion)",
            Class::Management => "connection management",
            Class::Other => "other",
        }
    }
}

/// The class of a packet.
pub(crate) fn class(parsed: &Parsed) -> Class {
    let Some(roce) = parsed.roce() else {
        return Class::Other;
    };
    if roce.mad.is_some() {
        return Class::Management;
    }
    let Some(info) = roce.headers.bth.opcode.info() else {
        return Class::Other;
    };
    let syndrome = roce.headers.ext.aeth.map(|aeth| aeth.syndrome.kind());
    match (info.kind, syndrome) {
        (Kind::Cnp, _) => Class::Cnp,
        (_, Some(SyndromeKind::RnrNak { .. })) => Class::RnrNak,
        (_, Some(SyndromeKind::Nak(_) | SyndromeKind::Reserved)) => Class::Nak,
        (Kind::Acknowledge, _) => Class::Ack,
        (kind, _) if kind.is_response() => Class::Response,
        _ => Class::Request,
    }
}

/// The words of a packet. `path_mtu` in bytes, if known, tells how many responses a READ has;
/// `with_qp` adds to which QP the packet goes.
pub(crate) fn label(parsed: &Parsed, path_mtu: Option<usize>, with_qp: bool) -> String {
    match &parsed.content {
        Content::Roce(roce) => roce_label(roce, path_mtu, with_qp),
        Content::Neighbour(message) => neighbour_label(message),
        Content::Other(discard) => format!("not RoCE ({})", discard.name().replace('_', " ")),
    }
}

fn roce_label(roce: &Roce, path_mtu: Option<usize>, with_qp: bool) -> String {
    if let Some(management) = &roce.mad {
        return management_label(management);
    }
    let bth = &roce.headers.bth;
    let psn = bth.psn.value();
    let mut text = match (bth.opcode.info(), roce.headers.ext.aeth) {
        (Some(info), _) if info.kind == Kind::Cnp => String::from("CNP"),
        (Some(info), Some(aeth)) if is_verdict(info, &aeth) => {
            format!("{}{}", verdict_label(&aeth, psn), arrived_text(roce))
        }
        (Some(info), _) => format!("{} psn {psn}{}", name(info), extra(roce, info, path_mtu)),
        (None, _) => {
            let service = bth.opcode.transport().map_or("manufacturer's", Transport::name);
            format!("{service} opcode {:#04x} psn {psn}", bth.opcode.0)
        }
    };
    let add = &mut text;
    let result = match with_qp {
        true => write!(add, " qp {:#x}", bth.dest_qp),
        false => Ok(()),
    };
    debug_assert!(result.is_ok(), "text takes everything");
    if roce.icrc == Icrc::Wrong {
        text.push_str(" ICRC WRONG");
    }
    text
}

/// Whether the syndrome says it all: in an Acknowledge, and where no ACK is in place.
fn is_verdict(info: &OpcodeInfo, aeth: &Aeth) -> bool {
    info.kind == Kind::Acknowledge || !matches!(aeth.syndrome.kind(), SyndromeKind::Ack { .. })
}

/// The operation without its service, which the flow has, but for datagrams.
fn name(info: &OpcodeInfo) -> String {
    let operation = info.name.strip_prefix(info.transport.name()).unwrap_or(info.name).trim_start();
    let operation = operation.strip_prefix("RDMA ").unwrap_or(operation);
    match info.transport {
        Transport::Ud => format!("UD {operation}"),
        _ => String::from(operation),
    }
}

fn verdict_label(aeth: &Aeth, psn: u32) -> String {
    match aeth.syndrome.kind() {
        SyndromeKind::Ack { .. } => format!("ACK psn {psn} msn {}", aeth.msn),
        SyndromeKind::RnrNak { timer } => {
            let delay = Duration::from_nanos(rnr_delay_ns(timer));
            format!("RNR NAK {} psn {psn}", short_time(delay))
        }
        SyndromeKind::Nak(code) => format!("NAK {} psn {psn}", nak_words(code)),
        SyndromeKind::Reserved => format!("reserved syndrome {:#04x} psn {psn}", aeth.syndrome.0),
    }
}

/// What has arrived beyond the PSN, as in ` arrived 6 to 7, 9`.
pub(crate) fn arrived_text(roce: &Roce) -> String {
    let ranges: Vec<String> = roce.arrived.iter().map(PsnRange::to_string).collect();
    if ranges.is_empty() { String::new() } else { format!(" arrived {}", ranges.join(", ")) }
}

/// A NAK code in words.
pub(crate) fn nak_words(code: NakCode) -> String {
    match code {
        NakCode::PsnSequence => String::from("PSN sequence"),
        NakCode::InvalidRequest => String::from("invalid request"),
        NakCode::RemoteAccess => String::from("remote access"),
        NakCode::RemoteOperational => String::from("remote operational"),
        NakCode::InvalidRd => String::from("invalid RD request"),
        NakCode::Reserved(code) => format!("code {code}"),
    }
}

/// What stands behind the PSN: lengths and operands.
fn extra(roce: &Roce, info: &OpcodeInfo, path_mtu: Option<usize>) -> String {
    let ext = &roce.headers.ext;
    let payload_len = roce.payload_len;
    match (info.kind, ext.reth, ext.atomic_eth, ext.atomic_ack_eth) {
        (Kind::ReadRequest, Some(reth), ..) => match responses(reth.dma_len as usize, path_mtu) {
            Some(1) => format!(" len {} (1 response)", reth.dma_len),
            Some(count) => format!(" len {} ({count} responses)", reth.dma_len),
            None => format!(" len {}", reth.dma_len),
        },
        (_, Some(reth), ..) if info.kind != Kind::AtomicWrite => format!(" len {}", reth.dma_len),
        (Kind::CompareSwap, _, Some(atomic), _) => {
            format!(" {:#x} if {:#x}", atomic.swap_or_add, atomic.compare)
        }
        (Kind::FetchAdd, _, Some(atomic), _) => format!(" add {:#x}", atomic.swap_or_add),
        (_, _, _, Some(ack)) => format!(" was {:#x}", ack.original),
        _ if info.position == Position::Only && payload_len > 0 => format!(" len {payload_len}"),
        _ => String::new(),
    }
}

/// Responses a READ of `len` bytes has. Even without a path MTU those of a short one are known.
fn responses(len: usize, path_mtu: Option<usize>) -> Option<usize> {
    const PATH_MTU_MIN: usize = 256;
    if len <= PATH_MTU_MIN {
        return Some(1);
    }
    path_mtu.map(|path_mtu| len.div_ceil(path_mtu.max(PATH_MTU_MIN)))
}

fn management_label(management: &Management) -> String {
    let header = &management.header;
    let Some(kind) = header.cm_message() else {
        let (class, attribute) = (header.class, header.attribute_id);
        return format!("MAD class {class:#04x} attribute {attribute:#06x}");
    };
    let detail = match &management.message {
        Some(AnyMessage::Req(req)) => {
            let port = match req.service.port() {
                Some(port) => format!("port {port} "),
                None => String::new(),
            };
            format!(" {port}qp {:#x} psn {}", req.local_qpn, req.starting_psn)
        }
        Some(AnyMessage::Rep(rep)) => {
            format!(" qp {:#x} psn {}", rep.local_qpn, rep.starting_psn)
        }
        Some(AnyMessage::Rej(rej)) => match rej.reason.name() {
            Some(name) => format!(" {name}"),
            None => format!(" reason {}", rej.reason.0),
        },
        Some(AnyMessage::SidrReq(request)) => match request.service.port() {
            Some(port) => format!(" port {port}"),
            None => String::new(),
        },
        Some(AnyMessage::SidrRep(reply)) => match reply.status {
            0 => format!(" qp {:#x}", reply.qpn),
            status => format!(" status {status}"),
        },
        _ => String::new(),
    };
    format!("CM {}{detail}", CmMessage::name(kind))
}

fn neighbour_label(message: &NeighbourMessage) -> String {
    match message {
        NeighbourMessage::ArpRequest { target, .. } => format!("ARP who has {target}?"),
        NeighbourMessage::ArpReply { sender, .. } => format!("ARP {sender} is here"),
        NeighbourMessage::Solicitation { target, .. } => format!("NDP who has {target}?"),
        NeighbourMessage::Advertisement { target, .. } => format!("NDP {target} is here"),
    }
}

/// A duration in its natural unit, with up to three decimals, as in `1.28 ms`.
pub(crate) fn short_time(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let (unit_ns, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1_000, "\u{b5}s"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let text = format!("{}.{:03}", ns / unit_ns, ns % unit_ns / (unit_ns / 1000));
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_natural_unit() {
        let text = |ns| short_time(Duration::from_nanos(ns));
        assert_eq!(text(0), "0 ns");
        assert_eq!(text(999), "999 ns");
        assert_eq!(text(10_000), "10 \u{b5}s");
        assert_eq!(text(1_280_000), "1.28 ms");
        assert_eq!(text(655_360_000), "655.36 ms");
        assert_eq!(text(2_000_500_000), "2 s");
    }

    #[test]
    fn reads_have_as_many_responses_as_their_length_needs() {
        assert_eq!(responses(0, None), Some(1));
        assert_eq!(responses(257, None), None);
        assert_eq!(responses(4096, Some(1024)), Some(4));
        assert_eq!(responses(4097, Some(1024)), Some(5));
    }
}
