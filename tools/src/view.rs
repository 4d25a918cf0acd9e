//! A packet as it is shown: the JSON object, and the line of text.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use ferroce_stack::LossRecovery;
use ferroce_stack::wire::{Aeth, PsnRange, SyndromeKind, rnr_delay_ns};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::mad;
use crate::packet::{Icrc, Packet, opcode_name};
use crate::verify::{Finding, nak_text};

/// The JSON object of a packet. What has 64 bits (addresses, atomic operands) is hexadecimal text,
/// as many programs read JSON's numbers as floating point.
#[derive(Debug, Serialize)]
pub struct PacketView {
    frame: u64,
    time: Option<Box<RawValue>>,
    roce: u8,
    src: String,
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<Vlan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tos: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dscp: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ecn: Option<u8>,
    udp_sport: Option<u16>,
    opcode: u8,
    opcode_name: String,
    dest_qp: u32,
    psn: u32,
    pkey: u16,
    ack_req: bool,
    solicited: bool,
    mig_req: bool,
    fecn: bool,
    becn: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_recovery: Option<&'static str>,
    pad: u8,
    payload_len: u32,
    icrc: Icrc,
    #[serde(skip_serializing_if = "Option::is_none")]
    icrc_note: Option<&'static str>,
    #[serde(flatten)]
    ext: ExtensionsView,
    /// What a sequence NAK of selective repeat tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    arrived: Option<Vec<ArrivedView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mad: Option<mad::Message>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Vlan {
    vid: u16,
    pcp: u8,
    dei: bool,
}

/// One key for each extended header.
#[derive(Debug, Default, Serialize)]
struct ExtensionsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    rdeth: Option<RdethView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deth: Option<DethView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xrceth: Option<XrcethView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    feth: Option<FethView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reth: Option<RethView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_eth: Option<AtomicEthView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aeth: Option<AethView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atomic_ack_eth: Option<AtomicAckEthView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    imm_dt: Option<ImmDtView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ieth: Option<IethView>,
}

#[derive(Debug, Serialize)]
struct RdethView {
    ee_context: u32,
}

#[derive(Debug, Serialize)]
struct DethView {
    qkey: u32,
    src_qp: u32,
}

#[derive(Debug, Serialize)]
struct XrcethView {
    srqn: u32,
}

#[derive(Debug, Serialize)]
struct FethView {
    level: u8,
    placement: u8,
}

#[derive(Debug, Serialize)]
struct RethView {
    va: String,
    rkey: u32,
    dma_len: u32,
}

#[derive(Debug, Serialize)]
struct AtomicEthView {
    va: String,
    rkey: u32,
    swap_or_add: String,
    compare: String,
}

#[derive(Debug, Serialize)]
struct AethView {
    syndrome: u8,
    syndrome_name: String,
    msn: u32,
}

#[derive(Debug, Serialize)]
struct AtomicAckEthView {
    original: String,
}

#[derive(Debug, Serialize)]
struct ImmDtView {
    /// As the four bytes on the wire read in order.
    imm: u32,
}

#[derive(Debug, Serialize)]
struct IethView {
    rkey: u32,
}

#[derive(Debug, Serialize)]
struct ArrivedView {
    first_psn: u32,
    count: u32,
}

impl ArrivedView {
    fn new(range: PsnRange) -> ArrivedView {
        ArrivedView { first_psn: range.first.value(), count: range.count }
    }
}

impl PacketView {
    /// What is shown of a packet, with what following its connection brought to light.
    pub fn new(packet: &Packet<'_>, findings: Vec<Finding>) -> PacketView {
        let bth = &packet.bth;
        PacketView {
            frame: packet.frame,
            time: packet.time_ns.and_then(seconds),
            roce: packet.roce,
            src: packet.src.to_string(),
            dst: packet.dst.to_string(),
            vlan: packet.vlan.map(|vlan| Vlan { vid: vlan.vid, pcp: vlan.pcp, dei: vlan.dei }),
            tos: packet.traffic_class,
            dscp: packet.traffic_class.map(|class| class >> 2),
            ecn: packet.traffic_class.map(|class| class & 3),
            udp_sport: packet.udp_sport,
            opcode: bth.opcode.0,
            opcode_name: opcode_name(bth.opcode).into_owned(),
            dest_qp: bth.dest_qp,
            psn: bth.psn.value(),
            pkey: bth.pkey,
            ack_req: bth.ack_req,
            solicited: bth.solicited,
            mig_req: bth.mig_req,
            fecn: bth.fecn,
            becn: bth.becn,
            loss_recovery: packet.loss_recovery().map(LossRecovery::name),
            pad: bth.pad_count,
            payload_len: packet.payload_len,
            icrc: packet.icrc,
            icrc_note: packet.rxe_flush.then_some("rxe FLUSH"),
            ext: ExtensionsView::new(packet),
            arrived: packet.arrived().map(|ranges| ranges.map(ArrivedView::new).collect()),
            mad: packet.mad().map(|(header, data)| mad::Message::new(&header, data)),
            findings,
        }
    }
}

impl ExtensionsView {
    fn new(packet: &Packet<'_>) -> ExtensionsView {
        let ext = &packet.ext;
        ExtensionsView {
            rdeth: ext.rdeth.map(|rdeth| RdethView { ee_context: rdeth.ee_context }),
            deth: ext.deth.map(|deth| DethView { qkey: deth.qkey, src_qp: deth.src_qp }),
            xrceth: ext.xrceth.map(|xrceth| XrcethView { srqn: xrceth.srqn }),
            feth: ext.feth.map(|feth| FethView { level: feth.level, placement: feth.placement }),
            reth: ext.reth.map(|reth| RethView {
                va: hex64(reth.va),
                rkey: reth.rkey,
                dma_len: reth.dma_len,
            }),
            atomic_eth: ext.atomic_eth.map(|atomic| AtomicEthView {
                va: hex64(atomic.va),
                rkey: atomic.rkey,
                swap_or_add: hex64(atomic.swap_or_add),
                compare: hex64(atomic.compare),
            }),
            aeth: ext.aeth.map(|aeth| AethView {
                syndrome: aeth.syndrome.0,
                syndrome_name: syndrome_name(&aeth),
                msn: aeth.msn,
            }),
            atomic_ack_eth: ext
                .atomic_ack_eth
                .map(|ack| AtomicAckEthView { original: hex64(ack.original) }),
            imm_dt: ext.imm_dt.map(|imm| ImmDtView { imm: u32::from_be_bytes(imm.0) }),
            ieth: ext.ieth.map(|ieth| IethView { rkey: ieth.rkey }),
        }
    }
}

/// Nanoseconds as a JSON number of seconds with nine decimals. The text is exact; a reader that
/// makes it a double keeps a quarter of a microsecond.
fn seconds(time_ns: u64) -> Option<Box<RawValue>> {
    RawValue::from_string(seconds_text(time_ns)).ok()
}

fn seconds_text(time_ns: u64) -> String {
    format!("{}.{:09}", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

fn hex64(value: u64) -> String {
    format!("{value:#018x}")
}

/// An AETH's syndrome in words, as in `ACK` or `RNR NAK 0.01 ms`.
fn syndrome_name(aeth: &Aeth) -> String {
    match aeth.syndrome.kind() {
        SyndromeKind::Ack { credits: None } => String::from("ACK"),
        SyndromeKind::Ack { credits: Some(credits) } => format!("ACK, {credits} credits"),
        SyndromeKind::RnrNak { timer } => {
            let hundredths = rnr_delay_ns(timer) / 10_000;
            format!("RNR NAK, {}.{:02} ms", hundredths / 100, hundredths % 100)
        }
        SyndromeKind::Nak(code) => format!("NAK, {}", nak_text(code)),
        SyndromeKind::Reserved => String::from("reserved"),
    }
}

/// Colours of what deserves attention.
pub mod style {
    use super::{AnsiColor, Style};

    /// What broke the protocol, or is damaged.
    pub const BAD: Style = AnsiColor::Red.on_default().bold();
    /// What a network does at times.
    pub const EVENT: Style = AnsiColor::Yellow.on_default();
    /// What went well.
    pub const GOOD: Style = AnsiColor::Green.on_default();
    /// Titles.
    pub const TITLE: Style = Style::new().bold();
    /// What is seldom needed.
    pub const FAINT: Style = Style::new().dimmed();
}

/// The line of text of a packet: frame, seconds since `start_ns`, addresses, what it is.
pub fn line(packet: &Packet<'_>, start_ns: u64) -> String {
    let since = packet.time_ns.map(|time_ns| seconds_text(time_ns.saturating_sub(start_ns)));
    let bth = &packet.bth;
    let mut line = format!(
        "{:>6} {faint}{:>13}{faint:#} {} > {} {title}{}{title:#} qp {} psn {}",
        packet.frame,
        since.unwrap_or_else(|| String::from("-")),
        packet.src,
        packet.dst,
        opcode_name(bth.opcode),
        qpn_text(bth.dest_qp),
        bth.psn.value(),
        faint = style::FAINT,
        title = style::TITLE,
    );
    let add = &mut line;
    let result = extensions_text(packet, add)
        .and_then(|()| details_text(packet, add))
        .and_then(|()| icrc_text(packet, add));
    debug_assert!(result.is_ok(), "text takes everything");
    line
}

fn qpn_text(qpn: u32) -> String {
    if qpn == 0x00ff_ffff { String::from("multicast") } else { format!("{qpn:#x}") }
}

fn extensions_text(packet: &Packet<'_>, out: &mut String) -> std::fmt::Result {
    let ext = &packet.ext;
    if let Some(rdeth) = ext.rdeth {
        write!(out, " eec {}", rdeth.ee_context)?;
    }
    if let Some(deth) = ext.deth {
        write!(out, " from qp {} qkey {:#x}", qpn_text(deth.src_qp), deth.qkey)?;
    }
    if let Some(xrceth) = ext.xrceth {
        write!(out, " srq {:#x}", xrceth.srqn)?;
    }
    if let Some(feth) = ext.feth {
        write!(out, " placement {} level {}", feth.placement, feth.level)?;
    }
    if let Some(reth) = ext.reth {
        write!(out, " va {:#x} rkey {:#x} len {}", reth.va, reth.rkey, reth.dma_len)?;
    }
    if let Some(atomic) = ext.atomic_eth {
        write!(out, " va {:#x} rkey {:#x}", atomic.va, atomic.rkey)?;
        write!(out, " operand {:#x} compare {:#x}", atomic.swap_or_add, atomic.compare)?;
    }
    if let Some(aeth) = ext.aeth {
        let style = match aeth.syndrome.kind() {
            SyndromeKind::Ack { .. } => Style::new(),
            SyndromeKind::RnrNak { .. } => style::EVENT,
            SyndromeKind::Nak(_) | SyndromeKind::Reserved => style::BAD,
        };
        write!(out, " {style}{}{style:#} msn {}", syndrome_name(&aeth), aeth.msn)?;
    }
    if let Some(ranges) = packet.arrived() {
        let ranges: Vec<String> = ranges.map(|range| range.to_string()).collect();
        write!(out, " arrived {}", ranges.join(", "))?;
    }
    if let Some(ack) = ext.atomic_ack_eth {
        write!(out, " original {:#x}", ack.original)?;
    }
    if let Some(imm) = ext.imm_dt {
        write!(out, " imm {:#x}", u32::from_be_bytes(imm.0))?;
    }
    if let Some(ieth) = ext.ieth {
        write!(out, " invalidates {:#x}", ieth.rkey)?;
    }
    Ok(())
}

fn details_text(packet: &Packet<'_>, out: &mut String) -> std::fmt::Result {
    let bth = &packet.bth;
    if let Some((header, data)) = packet.mad() {
        let message = mad::Message::new(&header, data);
        write!(out, " {}", message.cm.unwrap_or("MAD"))?;
        if let Some(qpn) = message.qpn {
            write!(out, " of qp {}", qpn_text(qpn))?;
        }
        if let Some(psn) = message.starting_psn {
            write!(out, " starting psn {psn}")?;
        }
        if let Some(reason) = message.reason {
            write!(out, " reason {reason}")?;
        }
    } else if packet.payload_len > 0 {
        write!(out, " payload {}", packet.payload_len)?;
    }
    let flags = [
        (bth.ack_req, "ack-req"),
        (bth.solicited, "solicited"),
        (bth.fecn, "fecn"),
        (bth.becn, "becn"),
        (packet.traffic_class.is_some_and(|class| class & 3 == 3), "congestion"),
        (packet.roce == 1, "v1"),
    ];
    for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
        write!(out, " {name}")?;
    }
    if let Some(offered) = packet.loss_recovery() {
        write!(out, " {}", offered.name())?;
    }
    if let Some(vlan) = packet.vlan {
        write!(out, " vlan {}", vlan.vid)?;
    }
    Ok(())
}

fn icrc_text(packet: &Packet<'_>, out: &mut String) -> std::fmt::Result {
    let bad = style::BAD;
    match packet.icrc {
        Icrc::Ok => Ok(()),
        Icrc::Bad if packet.rxe_flush => {
            let event = style::EVENT;
            write!(out, " {event}ICRC of rxe FLUSH{event:#}")
        }
        Icrc::Bad => write!(out, " {bad}ICRC BAD{bad:#}"),
        Icrc::Truncated => write!(out, " truncated"),
    }
}

/// The line of text of a finding, to stand below that of its packet.
pub fn finding_line(finding: &Finding) -> String {
    let (style, word) = match finding.violation {
        true => (style::BAD, "violation"),
        false => (style::EVENT, "event"),
    };
    let flow = finding.flow.map_or(String::new(), |flow| format!(" in flow {flow}"));
    let Finding { frame, kind, detail, .. } = finding;
    format!("       {style}{word}: {}{style:#} at frame {frame}{flow}: {detail}", kind.name())
}

/// A number with its digits in groups of three, as in `1,048,576`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
