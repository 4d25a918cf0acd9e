//! What every frame of a target must fulfil, whatever the scenario.

use ferroce_stack::icrc;
use ferroce_stack::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, HeaderSet, Kind, NakCode, Net, PayloadRule, Position,
    ROCE_PORT, SyndromeKind, Transport,
};

use super::build::ones_complement;
use super::describe::SHORTEST;
use super::names::name_of;
use super::{Flow, Seen};

/// The longest message.
const MOST: u32 = 1 << 31;
/// The longest datagram.
const LARGEST_MTU: u32 = 4096;
/// From here on, UDP source ports tell flows apart.
const FLOW_PORTS: u16 = 0xc000;

const IP: &str = "IBA A17.3.1";
const UDP: &str = "IBA A17.3.1";
const BTH: &str = "IBA 9.2";
const EXTENDED: &str = "IBA 9.3";
const PAYLOAD: &str = "IBA 9.2.1 table 38";
const PKEY: &str = "IBA 10.9.3";
const ICRC: &str = "IBA 7.8.1, A17.3.3";
const AETH: &str = "IBA 9.7.5.2";

/// A rule that a frame breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where the rule is.
    pub clause: &'static str,
    /// What is at fault.
    pub field: &'static str,
    /// What it must be.
    pub expected: String,
    /// What it is.
    pub got: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fault { clause, field, expected, got } = self;
        write!(f, "{field}: expected {expected}, got {got} ({clause})")
    }
}

/// Judges the frames that one QP of a target sends.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    /// UDP source port of the first, which all must have.
    source_port: Option<u16>,
}

/// What has been found of one frame.
pub(super) struct Findings(Vec<Fault>);

impl Findings {
    pub(super) fn say(
        &mut self,
        clause: &'static str,
        field: &'static str,
        expected: String,
        got: String,
    ) {
        self.0.push(Fault { clause, field, expected, got });
    }

    /// A fault unless both are equal.
    fn equal<T: PartialEq + std::fmt::Display>(
        &mut self,
        clause: &'static str,
        field: &'static str,
        expected: T,
        got: T,
    ) {
        if expected != got {
            self.say(clause, field, expected.to_string(), got.to_string());
        }
    }

    /// A fault unless both are equal; written in hexadecimal.
    pub(super) fn equal_hex(
        &mut self,
        clause: &'static str,
        field: &'static str,
        expected: u32,
        got: u32,
    ) {
        if expected != got {
            self.say(clause, field, format!("{expected:#x}"), format!("{got:#x}"));
        }
    }
}

impl Judge {
    /// Every rule that a frame breaks.
    pub fn judge(&mut self, bytes: &[u8], flow: &Flow) -> Vec<Fault> {
        let mut found = Findings(Vec::new());
        if !judge_ethernet(&mut found, bytes, flow) {
            return found.0;
        }
        let seen = match Seen::new(bytes) {
            Ok(seen) => seen,
            Err(reason) => {
                let got = format!("no packet: {}", reason.name());
                found.say(IP, "frame", String::from("a RoCE v2 packet"), got);
                return found.0;
            }
        };
        judge_network(&mut found, &seen, flow);
        self.judge_udp(&mut found, &seen, flow);
        judge_bth(&mut found, &seen, flow);
        judge_flags(&mut found, &seen);
        judge_payload(&mut found, &seen, flow);
        judge_extended(&mut found, &seen, flow);
        if flow.target_qpn == super::cm::GSI {
            super::cm::judge(&mut found, &seen.packet, flow);
        }
        let right = icrc::compute(bytes, seen.layout());
        found.equal_hex(ICRC, "icrc", right, seen.packet.icrc);
        found.0
    }

    fn judge_udp(&mut self, found: &mut Findings, seen: &Seen, flow: &Flow) {
        let udp = &seen.headers().udp;
        let port = udp.source_port;
        if port < FLOW_PORTS {
            let range = format!("{FLOW_PORTS:#x} to 0xffff");
            found.say(UDP, "source-port", range, format!("{port:#x}"));
        }
        let first = match flow.service {
            // Datagrams go to many peers.
            Transport::Ud => port,
            _ => *self.source_port.get_or_insert(port),
        };
        found.equal_hex(UDP, "source-port", u32::from(first), u32::from(port));
        if udp.checksum != 0 && !udp_checksum_is_right(seen) {
            let expected = String::from("0, or a right one");
            found.say(UDP, "udp-checksum", expected, format!("{:#x}", udp.checksum));
        }
    }
}

/// MAC addresses, VLAN, ethertype; whether the rest can be looked at.
fn judge_ethernet(found: &mut Findings, bytes: &[u8], flow: &Flow) -> bool {
    const CLAUSE: &str = "IBA A17.3.1, IEEE 802.3";
    let Some((eth, ethertype)) = Ethernet::parse(bytes) else {
        found.say(CLAUSE, "frame", String::from("an Ethernet header"), String::from("less"));
        return false;
    };
    found.equal(CLAUSE, "source MAC", flow.target.mac, eth.src);
    found.equal(CLAUSE, "destination MAC", flow.peer.mac, eth.dst);
    let tag = |vid: Option<u16>| vid.map_or(String::from("none"), |vid| vid.to_string());
    let vid = eth.vlan.map(|tag| tag.vid);
    found.equal("IEEE 802.1Q", "vlan", tag(flow.target.vlan), tag(vid));
    let is_fixed = flow.target_qpn != super::cm::GSI;
    if let (Some(tag), Some(_), true) = (eth.vlan, flow.target.vlan, is_fixed) {
        found.equal("IEEE 802.1Q", "priority", flow.sl, tag.pcp);
    }
    let is_v4 = flow.target.gid.ipv4().is_some();
    let wanted = if is_v4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    found.equal_hex(CLAUSE, "ethertype", u32::from(wanted), u32::from(ethertype));
    if ethertype != wanted {
        return false;
    }
    judge_lengths(found, bytes, &bytes[eth.header_len()..], is_v4)
}

/// Version, lengths and ports, which a parser takes for granted; whether it would.
fn judge_lengths(found: &mut Findings, bytes: &[u8], ip: &[u8], is_v4: bool) -> bool {
    let header_len = if is_v4 { 20 } else { 40 };
    let Some(udp) = ip.get(header_len..).and_then(<[u8]>::first_chunk::<8>) else {
        let expected = String::from("headers of IP and UDP");
        found.say(IP, "frame", expected, format!("{} bytes", bytes.len()));
        return false;
    };
    let before = found.0.len();
    let be16 = |bytes: &[u8], at: usize| u32::from(bytes[at]) << 8 | u32::from(bytes[at + 1]);
    let udp_len = be16(udp, 4);
    if is_v4 {
        found.equal_hex(IP, "IPv4 version and header length", 0x45, u32::from(ip[0]));
        found.equal(IP, "ip-length", 20 + udp_len, be16(ip, 2));
        found.equal_hex(IP, "IPv4 flags and fragment offset", 0x4000, be16(ip, 6));
        found.equal(IP, "IPv4 protocol", 17, ip[9]);
        let sum = u32::from(ones_complement(&ip[..header_len]));
        found.equal_hex("RFC 791", "ones' complement sum of the IPv4 header", 0xffff, sum);
    } else {
        found.equal(IP, "IPv6 version", 6, ip[0] >> 4);
        found.equal(IP, "ip-length", udp_len, be16(ip, 4));
        found.equal(IP, "IPv6 next header", 17, ip[6]);
    }
    found.equal(UDP, "destination-port", u32::from(ROCE_PORT), be16(udp, 2));
    let packet = bytes.len() - ip.len() + header_len + udp_len as usize;
    if packet > bytes.len() || packet < bytes.len() && bytes.len() > SHORTEST {
        let got = format!("{} bytes", bytes.len());
        found.say(IP, "length of the frame", format!("{packet} bytes"), got);
    }
    found.0.len() == before
}

fn judge_network(found: &mut Findings, seen: &Seen, flow: &Flow) {
    let net = &seen.headers().net;
    found.equal(IP, "source-address", flow.target.gid, net.source());
    found.equal(IP, "destination-address", flow.peer.gid, net.destination());
    let is_cnp = seen.packet.info().is_some_and(|info| info.kind == Kind::Cnp);
    let class = net.traffic_class();
    // A management datagram goes the way its connection goes.
    let is_fixed = !is_cnp && flow.target_qpn != super::cm::GSI;
    if is_fixed && class >> 2 != flow.traffic_class >> 2 {
        let shown = |class: u8| format!("DSCP {}", class >> 2);
        found.say(IP, "traffic-class", shown(flow.traffic_class), shown(class));
    }
    let hops = match net {
        Net::V4(ip) => ip.ttl,
        Net::V6(ip) | Net::V1(ip) => ip.hop_limit,
    };
    if hops == 0 {
        found.say(IP, "hop-limit", String::from("1 or more"), String::from("0"));
    }
}

/// With the pseudo header of RFC 768 or RFC 8200.
fn udp_checksum_is_right(seen: &Seen) -> bool {
    let end = seen.layout().icrc + 4;
    let udp = seen.layout().bth - 8;
    let mut summed = Vec::new();
    match seen.headers().net {
        Net::V4(ip) => summed.extend([ip.src.octets(), ip.dst.octets()].concat()),
        Net::V6(ip) | Net::V1(ip) => summed.extend([ip.src.octets(), ip.dst.octets()].concat()),
    }
    summed.extend([0, 17]);
    summed.extend(((end - udp) as u16).to_be_bytes());
    summed.extend_from_slice(&seen.bytes[udp..end]);
    ones_complement(&summed) == 0xffff
}

fn judge_bth(found: &mut Findings, seen: &Seen, flow: &Flow) {
    let bth = &seen.headers().bth;
    let (name, _) = name_of(bth.opcode, None, flow.service);
    let transport = seen.packet.info().map(|info| info.transport);
    if transport.is_none_or(|own| own != flow.service && own != Transport::Cnp) {
        let expected = format!("an opcode of {}", flow.service.name());
        found.say(BTH, "opcode", expected, format!("{:#x} ({name})", bth.opcode.0));
    }
    found.equal(BTH, "version", 0, bth.transport_version);
    found.equal_hex(PKEY, "pkey", u32::from(flow.pkey), u32::from(bth.pkey));
    found.equal_hex(BTH, "destination", flow.peer_qpn, bth.dest_qp);
    let marked = seen.packet.info().is_some_and(|info| {
        matches!(info.transport, Transport::Rc | Transport::Xrc) && !info.kind.is_response()
    });
    // The peer never shows the mark, so that answers never have it.
    let mark = if marked { flow.mark } else { 0 };
    found.equal_hex(BTH, "reserved", u32::from(mark), u32::from(bth.reserved7));
    found.equal_hex(BTH, "reserved6", 0, u32::from(bth.reserved6));
    let is_cnp = transport == Some(Transport::Cnp);
    found.equal("IBA A17.9", "fecn", 0, u8::from(bth.fecn));
    found.equal("IBA A17.9", "becn", u8::from(is_cnp), u8::from(bth.becn));
    let body = seen.layout().icrc - seen.layout().bth;
    if !body.is_multiple_of(4) {
        let got = format!("{body} bytes from the BTH to the pad");
        found.say(BTH, "pad", String::from("a multiple of 4 bytes"), got);
    }
    let pad = &seen.bytes[seen.layout().icrc - usize::from(bth.pad_count)..seen.layout().icrc];
    if pad.iter().any(|&byte| byte != 0) {
        found.say(BTH, "pad", String::from("zeros"), format!("{pad:02x?}"));
    }
}

/// AckReq and SE, where they may be.
fn judge_flags(found: &mut Findings, seen: &Seen) {
    let bth = &seen.headers().bth;
    let Some(info) = seen.packet.info() else { return };
    let acknowledged = matches!(info.transport, Transport::Rc | Transport::Xrc | Transport::Rd);
    if bth.ack_req && (!acknowledged || info.kind.is_response()) {
        found.say(BTH, "ack-request", String::from("0"), String::from("1"));
    }
    let notifies = match info.kind {
        Kind::Send => info.position.ends(),
        Kind::Write => info.headers.has(HeaderSet::IMM_DT),
        _ => false,
    };
    if bth.solicited && !notifies {
        found.say(BTH, "solicited", String::from("0"), String::from("1"));
    }
}

fn judge_payload(found: &mut Findings, seen: &Seen, flow: &Flow) {
    let Some(info) = seen.packet.info() else { return };
    let length = seen.packet.payload.len() as u32;
    let mtu = if info.transport == Transport::Ud { LARGEST_MTU } else { flow.mtu };
    let (from, to) = match info.payload {
        PayloadRule::Empty => (0, 0),
        PayloadRule::Mtu => (mtu, mtu),
        PayloadRule::OneToMtu => (1, mtu),
        PayloadRule::UpToMtu => (0, mtu),
        PayloadRule::Exactly(bytes) => (u32::from(bytes), u32::from(bytes)),
    };
    if !(from..=to).contains(&length) {
        let expected = if from == to { from.to_string() } else { format!("{from} to {to}") };
        found.say(PAYLOAD, "payload-length", expected, length.to_string());
    }
    if info.kind == Kind::Cnp && seen.packet.payload.iter().any(|&byte| byte != 0) {
        let got = format!("{:02x?}", seen.packet.payload);
        found.say("IBA A17.9", "payload", String::from("16 zeros"), got);
    }
}

fn judge_extended(found: &mut Findings, seen: &Seen, flow: &Flow) {
    let Some(info) = seen.packet.info() else { return };
    let ext = &seen.headers().ext;
    let length = seen.packet.payload.len() as u32;
    if let Some(reth) = ext.reth {
        let whole = match (info.kind, info.position) {
            (Kind::Write | Kind::AtomicWrite, Position::Only) => Some((length, length)),
            (Kind::Write, _) => Some((flow.mtu + 1, MOST)),
            (Kind::ReadRequest, _) => Some((0, MOST)),
            _ => None,
        };
        if let Some((from, to)) = whole.filter(|(from, to)| !(*from..=*to).contains(&reth.dma_len))
        {
            let expected = if from == to { from.to_string() } else { format!("{from} to {to}") };
            found.say(EXTENDED, "length", expected, reth.dma_len.to_string());
        }
    }
    if let Some(atomic) = ext.atomic_eth.filter(|atomic| !atomic.va.is_multiple_of(8)) {
        let got = format!("{:#x}", atomic.va);
        found.say(EXTENDED, "to", String::from("a multiple of 8"), got);
    }
    if let Some(feth) = ext.feth {
        found.equal_hex("IBA A19.4", "reserved bits of the FETH", 0, feth.reserved);
    }
    if let Some(deth) = ext.deth {
        found.equal_hex(EXTENDED, "source-qp", flow.target_qpn, deth.src_qp);
        found.equal_hex(EXTENDED, "reserved bits of the DETH", 0, u32::from(deth.reserved));
    }
    if let Some(xrceth) = ext.xrceth {
        found.equal_hex(EXTENDED, "reserved bits of the XRCETH", 0, u32::from(xrceth.reserved));
    }
    if let Some(aeth) = ext.aeth {
        let kind = aeth.syndrome.kind();
        let positive = matches!(kind, SyndromeKind::Ack { .. });
        let reserved = matches!(
            kind,
            SyndromeKind::Reserved | SyndromeKind::Nak(NakCode::Reserved(_) | NakCode::InvalidRd)
        );
        if reserved || info.kind != Kind::Acknowledge && !positive {
            let expected = if reserved { "a syndrome that is defined" } else { "ACK" };
            found.say(AETH, "syndrome", expected.into(), format!("{:#x}", aeth.syndrome.0));
        }
    }
}
