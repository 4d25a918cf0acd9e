//! Every header field of a packet, a line for each header.

use ferroce_stack::LossRecovery;
use ferroce_stack::mad::message::AnyMessage;
use ferroce_stack::wire::{Bth, Ethernet, Extensions, Net, SyndromeKind, Transport, rnr_delay_ns};

use crate::label::{arrived_text, nak_words, short_time};
use crate::packet::{Content, Icrc, Management, Parsed, Roce};

/// The lines that tell all of a packet.
pub(crate) fn details(parsed: &Parsed) -> Vec<String> {
    match &parsed.content {
        Content::Roce(roce) => of_roce(roce),
        Content::Neighbour(message) => {
            vec![format!("Ethernet: {} to {}", parsed.src, parsed.dst), format!("{message:?}")]
        }
        Content::Other(discard) => vec![
            format!("Ethernet: {} to {}", parsed.src, parsed.dst),
            format!("no RoCE packet: {}", discard.name()),
        ],
    }
}

fn of_roce(roce: &Roce) -> Vec<String> {
    let headers = &roce.headers;
    let mut lines = vec![ethernet(&headers.eth), network(&headers.net)];
    if !headers.net.is_v1() {
        let udp = &headers.udp;
        lines.push(format!("UDP: source port {} checksum {:#06x}", udp.source_port, udp.checksum));
    }
    lines.push(transport(&headers.bth));
    extended(&headers.ext, &mut lines);
    if roce.headers_cut {
        lines.push(String::from("further headers were cut by the capture"));
    }
    if let Some(management) = &roce.mad {
        datagram(management, &mut lines);
    }
    lines.push(format!("payload: {} bytes{}", roce.payload_len, arrived_text(roce)));
    lines.push(String::from(match roce.icrc {
        Icrc::Right => "ICRC: right",
        Icrc::RxeFlush => "ICRC: as Linux rxe computes that of FLUSH",
        Icrc::Wrong => "ICRC: wrong",
        Icrc::Cut => "ICRC: not judged, the packet is not whole here",
    }));
    lines
}

fn ethernet(eth: &Ethernet) -> String {
    let vlan = eth.vlan.map_or(String::new(), |vlan| {
        format!(" VLAN {} priority {} DEI {}", vlan.vid, vlan.pcp, u8::from(vlan.dei))
    });
    format!("Ethernet: {} to {}{vlan}", eth.src, eth.dst)
}

fn network(net: &Net) -> String {
    let class = |class: u8| format!("DSCP {} ECN {:02b}", class >> 2, class & 3);
    match net {
        Net::V4(ip) => format!(
            "IPv4: {} to {} {} ID {:#06x} DF {} TTL {}",
            ip.src,
            ip.dst,
            class(ip.tos),
            ip.ident,
            u8::from(ip.dont_fragment),
            ip.ttl,
        ),
        Net::V6(ip) | Net::V1(ip) => format!(
            "{}: {} to {} {} flow label {:#07x} hop limit {}",
            if net.is_v1() { "GRH" } else { "IPv6" },
            ip.src,
            ip.dst,
            class(ip.traffic_class),
            ip.flow_label,
            ip.hop_limit,
        ),
    }
}

fn transport(bth: &Bth) -> String {
    let service = bth.opcode.transport().map_or("manufacturer", Transport::name);
    let name = bth.opcode.info().map_or(format!("{service} reserved"), |info| info.name.into());
    let reliable = matches!(bth.opcode.transport(), Some(Transport::Rc | Transport::Xrc));
    let offered = LossRecovery::marked(bth.reserved7).filter(|_| reliable);
    let offered = offered.map_or(String::new(), |offered| format!(" ({})", offered.name()));
    format!(
        "BTH: opcode {:#04x} ({name}) SE {} M {} pad {} TVer {} P_Key {:#06x} FECN {} BECN {} \
         reserved6 {:#x} destination QP {:#x} A {} reserved7 {:#x}{offered} PSN {} ({:#08x})",
        bth.opcode.0,
        u8::from(bth.solicited),
        u8::from(bth.mig_req),
        bth.pad_count,
        bth.transport_version,
        bth.pkey,
        u8::from(bth.fecn),
        u8::from(bth.becn),
        bth.reserved6,
        bth.dest_qp,
        u8::from(bth.ack_req),
        bth.reserved7,
        bth.psn.value(),
        bth.psn.value(),
    )
}

fn extended(ext: &Extensions, lines: &mut Vec<String>) {
    let texts = [
        ext.rdeth.map(|rdeth| format!("RDETH: EE context {}", rdeth.ee_context)),
        ext.deth
            .map(|deth| format!("DETH: Q_Key {:#010x} source QP {:#x}", deth.qkey, deth.src_qp)),
        ext.xrceth.map(|xrceth| format!("XRCETH: SRQ {:#x}", xrceth.srqn)),
        ext.feth.map(|feth| {
            format!("FETH: selectivity {} placement {:#x}", feth.level, feth.placement)
        }),
        ext.reth.map(|reth| {
            let (va, rkey, len) = (reth.va, reth.rkey, reth.dma_len);
            format!("RETH: VA {va:#x} R_Key {rkey:#010x} DMALen {len}")
        }),
        ext.atomic_eth.map(|atomic| {
            format!(
                "AtomicETH: VA {:#x} R_Key {:#010x} swap or add {:#x} compare {:#x}",
                atomic.va, atomic.rkey, atomic.swap_or_add, atomic.compare
            )
        }),
        ext.aeth.map(|aeth| {
            let (syndrome, msn) = (aeth.syndrome, aeth.msn);
            format!("AETH: syndrome {:#04x} ({}) MSN {msn}", syndrome.0, verdict(syndrome.kind()))
        }),
        ext.atomic_ack_eth.map(|ack| format!("AtomicAckETH: original {:#x}", ack.original)),
        ext.imm_dt.map(|imm| format!("ImmDt: {:#010x}", u32::from_be_bytes(imm.0))),
        ext.ieth.map(|ieth| format!("IETH: R_Key {:#010x}", ieth.rkey)),
    ];
    lines.extend(texts.into_iter().flatten());
}

fn verdict(kind: SyndromeKind) -> String {
    match kind {
        SyndromeKind::Ack { credits: None } => String::from("ACK"),
        SyndromeKind::Ack { credits: Some(credits) } => format!("ACK, {credits} credits"),
        SyndromeKind::RnrNak { timer } => {
            format!("RNR NAK, {}", short_time(std::time::Duration::from_nanos(rnr_delay_ns(timer))))
        }
        SyndromeKind::Nak(code) => format!("NAK, {}", nak_words(code)),
        SyndromeKind::Reserved => String::from("reserved"),
    }
}

fn datagram(management: &Management, lines: &mut Vec<String>) {
    let mad = &management.header;
    lines.push(format!(
        "MAD: class {:#04x} method {:#04x} status {:#06x} attribute {:#06x} ({}) \
         transaction {:#018x}",
        mad.class,
        mad.method,
        mad.status,
        mad.attribute_id,
        mad.cm_message().map_or("not of connection management", |kind| kind.name()),
        mad.transaction_id,
    ));
    match &management.message {
        // Its additional information is 72 bytes that say little.
        Some(AnyMessage::Rej(rej)) => lines.push(format!(
            "Rej: local_comm_id {:#010x} remote_comm_id {:#010x} rejected {} reason {} ({})",
            rej.local_comm_id,
            rej.remote_comm_id,
            rej.rejected,
            rej.reason.0,
            rej.reason.name().unwrap_or("no name"),
        )),
        Some(message) => lines.push(fields(message)),
        None => {}
    }
}

/// The fields of a message, as the standard library shows a value's.
fn fields(message: &AnyMessage) -> String {
    match message {
        AnyMessage::Req(message) => format!("{message:?}"),
        AnyMessage::Mra(message) => format!("{message:?}"),
        AnyMessage::Rej(message) => format!("{message:?}"),
        AnyMessage::Rep(message) => format!("{message:?}"),
        AnyMessage::Rtu(message) => format!("{message:?}"),
        AnyMessage::Dreq(message) => format!("{message:?}"),
        AnyMessage::Drep(message) => format!("{message:?}"),
        AnyMessage::SidrReq(message) => format!("{message:?}"),
        AnyMessage::SidrRep(message) => format!("{message:?}"),
        AnyMessage::Lap(message) => format!("{message:?}"),
        AnyMessage::Apr(message) => format!("{message:?}"),
    }
}
