//! A frame in the words of scenarios.

use std::fmt::Write;

use ferroce_stack::icrc;
use ferroce_stack::wire::{HeaderSet, Headers, PayloadRule, pad_count};

use super::build::plain;
use super::compare::relative;
use super::fields::{FIELDS, Field, Place, Style};
use super::names::{Named, name_of, syndrome_name};
use super::{Flow, Seen, Side};

/// Payload is written out up to so many bytes.
const WRITTEN: usize = 64;

/// A frame in one line, as a sentence would say it: what follows from the rest is left out. Who
/// sent it is told by its source address.
pub fn describe(bytes: &[u8], flow: &Flow) -> String {
    match Seen::new(bytes) {
        Ok(seen) => describe_packet(&seen, flow),
        Err(reason) => {
            format!(
                "# {} bytes that are no packet ({}): {}",
                bytes.len(),
                reason.name(),
                hex(bytes)
            )
        }
    }
}

fn describe_packet(seen: &Seen, flow: &Flow) -> String {
    let headers = seen.headers();
    let sender = flow.sender(headers);
    let is_datagram = flow.target_qpn == super::cm::GSI;
    if let Some(line) = is_datagram.then(|| super::cm::describe(&seen.packet, flow, sender)) {
        return line.unwrap_or_else(|| describe_any(seen, flow, sender));
    }
    describe_any(seen, flow, sender)
}

fn describe_any(seen: &Seen, flow: &Flow, sender: Side) -> String {
    let headers = seen.headers();
    let opcode = headers.bth.opcode;
    let syndrome = headers.ext.aeth.map(|aeth| aeth.syndrome);
    let (name, service) = name_of(opcode, syndrome, flow.service);
    let by_number = name.starts_with("opcode-");
    let mut line = name;
    if let Some(service) = service {
        let _ = write!(line, ", service {service}");
    }
    let set = if by_number { HeaderSet::NONE } else { headers.ext.set() };
    let answer = syndrome.and_then(syndrome_name);
    let named = Named { opcode, answer: None, by_number };
    let expected = expected(&named, set, flow, sender, headers);
    for field in FIELDS.iter().filter(|field| !is_alias(field, headers)) {
        let Some(value) = field.read(seen) else { continue };
        let style = field.style;
        let shown = match (field.name, field.place) {
            ("psn", _) => {
                let first = flow.first_psn(opcode, sender);
                relative(headers.bth.psn, first).to_string()
            }
            ("syndrome", _) if answer.is_some() => continue,
            ("credits", _) if value == 31 => continue,
            ("level" | "compare", _) if value == 0 => continue,
            ("pad", _) if value == u64::from(pad_count(seen.packet.payload.len())) => continue,
            (_, Place::Derived(..)) => continue,
            (_, Place::Always(get, _)) if get(&expected) == Some(value) => continue,
            ("source-qp" | "srq" | "qkey", Place::Extended(_, get, _))
                if get(&expected) == Some(value) =>
            {
                continue;
            }
            _ if style == Style::Flag && value == 1 => String::new(),
            _ => field.shown(value),
        };
        let _ = write!(line, ", {}", field.name);
        if !shown.is_empty() {
            let _ = write!(line, " {shown}");
        }
    }
    describe_addresses(&mut line, headers, &expected);
    describe_rest(&mut line, seen);
    line
}

/// Where it is from and for, if that is not as it should be.
fn describe_addresses(line: &mut String, headers: &Headers, expected: &Headers) {
    if headers.eth.vlan.is_none() && expected.eth.vlan.is_some() {
        line.push_str(", vlan none");
    }
    let (own, right) = (&headers.net, &expected.net);
    if own.source() != right.source() {
        let _ = write!(line, ", source-address \"{}\"", own.source().to_ip());
    }
    if own.destination() != right.destination() {
        let _ = write!(line, ", destination-address \"{}\"", own.destination().to_ip());
    }
}

/// What the frame would have if nothing were said of it.
fn expected(named: &Named, set: HeaderSet, flow: &Flow, sender: Side, own: &Headers) -> Headers {
    let mut expected = plain(named, set, flow, sender);
    if sender == Side::Target {
        expected.udp.source_port = own.udp.source_port;
        expected.udp.checksum = own.udp.checksum;
        expected.net.set_traffic_class(flow.traffic_class);
        for name in ["ident", "ttl", "flow-label"] {
            let of = FIELDS.iter().find(|field| field.name == name);
            if let Some(Field { place: Place::Always(get, set), .. }) = of {
                get(own).map(|value| set(&mut expected, value));
            }
        }
        if let Some(tag) = &mut expected.eth.vlan {
            tag.pcp = flow.sl;
        }
    }
    expected
}

/// Whether another field of the table says the same of this frame.
fn is_alias(field: &Field, headers: &Headers) -> bool {
    use ferroce_stack::wire::{Kind, Net};
    let kind = headers.bth.opcode.info().map(|info| info.kind);
    let is_v4 = matches!(headers.net, Net::V4(_));
    match field.name {
        "swap" => kind == Some(Kind::FetchAdd),
        "add" => kind != Some(Kind::FetchAdd),
        "tos" | "ttl" => !is_v4,
        "traffic-class" | "hop-limit" => is_v4,
        _ => false,
    }
}

/// Payload, ICRC and what is behind it.
fn describe_rest(line: &mut String, seen: &Seen) {
    let payload = seen.packet.payload;
    let icrc = icrc::compute(seen.bytes, seen.layout());
    let own = seen.packet.icrc;
    let mut comment = None;
    match payload {
        [] if is_never_empty(seen) => line.push_str(", payload 0 of 0"),
        [] => {}
        [first, rest @ ..] => {
            let count = payload.len();
            let counts = |(index, byte): (usize, &u8)| *byte == first.wrapping_add(index as u8);
            if rest.iter().all(|byte| byte == first) {
                let _ = write!(line, ", payload {count} of {first:#x}");
            } else if payload.iter().enumerate().all(counts) {
                let _ = write!(line, ", payload {count} counting from {first:#x}");
            } else if count <= WRITTEN {
                let _ = write!(line, ", payload hex \"{}\"", hex(payload));
            } else {
                let _ = write!(line, ", payload-length {count}");
                comment = Some(hex(&payload[..WRITTEN / 2]));
            }
        }
    }
    if own == icrc.swap_bytes() && own != icrc {
        line.push_str(", icrc swapped");
    } else if own != icrc {
        let _ = write!(line, ", icrc {own:#x}");
    }
    let end = seen.layout().icrc + 4;
    if seen.bytes.len() > end && seen.bytes.len() > SHORTEST {
        let _ = write!(line, ", trailing hex \"{}\"", hex(&seen.bytes[end..]));
    }
    if let Some(comment) = comment {
        let _ = write!(line, " # {comment} ...");
    }
}

/// Whether no payload has to be said, since other frames of this opcode have one.
fn is_never_empty(seen: &Seen) -> bool {
    let rule = seen.packet.info().map(|info| info.payload);
    rule.is_some_and(|rule| !matches!(rule, PayloadRule::Empty | PayloadRule::UpToMtu))
}

/// Bytes to which Ethernet fills a frame up.
pub(super) const SHORTEST: usize = 60;

pub(super) fn hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}
