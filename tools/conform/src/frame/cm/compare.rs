//! What a datagram of the target must be, and how it is described.

use std::fmt::Write;
use std::net::IpAddr;

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::wire::Packet;

use super::super::{Difference, Flow, Seen, Side};
use super::build::{draft, split};
use super::message::{Field, Message, Style};
use super::{carrier, datagram, has_header};
use crate::ast::Word;
use crate::value::{Datum, Given};

/// Compares a datagram of the target with what a sentence says it must be.
///
/// # Errors
/// Every difference.
pub(in super::super) fn compare(
    frame: &Word,
    fields: &[Given],
    flow: &Flow,
    bytes: &[u8],
) -> Result<Vec<(String, u64)>, Vec<Difference>> {
    let other = |got: String| vec![difference("frame", frame.value.clone(), got)];
    let Some(message) = Message::named(&frame.value) else {
        return Err(other(String::from("no management datagram")));
    };
    let seen = Seen::new(bytes).map_err(|reason| other(format!("no packet: {}", reason.name())))?;
    let Some(mad) = datagram(&seen.packet) else {
        return Err(other(format!("a datagram of {} bytes", seen.packet.payload.len())));
    };
    let own = Message::of(mad);
    if message.kind.is_some() && message.kind != own.kind {
        return Err(other(String::from(own.name)));
    }
    let (of_message, of_frame) = split(message, fields, flow);
    let (mut bindings, mut differences) = (Vec::new(), Vec::new());
    let has_header = has_header(message, fields, service(message, mad));
    for given in &of_message {
        match compare_field(message, has_header, given, mad) {
            Ok(binding) => bindings.extend(binding),
            Err(difference) => differences.push(difference),
        }
    }
    match super::super::compare(&carrier(frame), &of_frame, flow, bytes) {
        Ok(more) => bindings.extend(more),
        Err(more) => differences.extend(more),
    }
    if differences.is_empty() { Ok(bindings) } else { Err(differences) }
}

fn service(message: &Message, mad: &[u8; MAD_LEN]) -> u64 {
    message.field("service-id", false).map_or(0, |field| field.get(mad))
}

fn difference(field: &str, expected: String, got: String) -> Difference {
    Difference { field: field.into(), expected, got }
}

fn compare_field(
    message: &Message,
    has_header: bool,
    given: &Given,
    mad: &[u8; MAD_LEN],
) -> Result<Option<(String, u64)>, Difference> {
    let name = given.name.value.as_str();
    if name == "ip-header" {
        return Ok(None);
    }
    if name == "port" {
        let service = service(message, mad);
        if service >> 16 != message.space() {
            let expected = format!("a service of space {:#x}", message.space());
            return Err(difference(name, expected, format!("service-id {service:#x}")));
        }
        return compare_number(name, &given.datum, service & 0xffff, &|value| value.to_string());
    }
    let Some(field) = message.field(name, has_header) else {
        return Err(difference(name, String::from("some value"), String::from("none")));
    };
    match &given.datum {
        _ if field.is_number() => {
            let shown = |value: u64| match field.style {
                Style::Hex => format!("{value:#x}"),
                _ => value.to_string(),
            };
            compare_number(name, &given.datum, field.get(mad), &shown)
        }
        Datum::Any(_) => Ok(None),
        datum => match wanted(&field, datum) {
            Some(wanted) if wanted == field.bytes(mad) => Ok(None),
            Some(wanted) => Err(unlike(&field, &wanted, mad)),
            None => {
                let what = if field.style == Style::Bytes { "bytes" } else { "an address" };
                Err(difference(name, String::from(what), field.shown(mad)))
            }
        },
    }
}

/// The bytes a field must have.
fn wanted(field: &Field, datum: &Datum) -> Option<Vec<u8>> {
    match (field.style, datum) {
        (Style::Bytes, Datum::Bytes(bytes)) => {
            let mut area = bytes.clone();
            area.resize(area.len().max(field.bits / 8), 0);
            Some(area)
        }
        (Style::Gid | Style::Address, Datum::Text(text)) => {
            let ip: IpAddr = text.parse().ok()?;
            Some(field.address(Gid::from_ip(ip)).to_vec())
        }
        _ => None,
    }
}

fn unlike(field: &Field, wanted: &[u8], mad: &[u8; MAD_LEN]) -> Difference {
    let got = field.bytes(mad);
    if field.style == Style::Bytes {
        return super::super::compare::unlike_bytes(field.name, wanted, got);
    }
    let mut other = *mad;
    field.bytes_mut(&mut other).copy_from_slice(wanted);
    difference(field.name, field.shown(&other), field.shown(mad))
}

fn compare_number(
    name: &str,
    datum: &Datum,
    got: u64,
    shown: &dyn Fn(u64) -> String,
) -> Result<Option<(String, u64)>, Difference> {
    let expected = match datum {
        Datum::Any(variable) => return Ok(variable.clone().map(|variable| (variable, got))),
        Datum::Number(wanted) if *wanted == got => return Ok(None),
        Datum::Flag if got == 1 => return Ok(None),
        Datum::Range(from, to) if (*from..=*to).contains(&got) => return Ok(None),
        Datum::Number(wanted) => shown(*wanted),
        Datum::Flag => shown(1),
        Datum::Range(from, to) => format!("{} to {}", shown(*from), shown(*to)),
        _ => String::from("a number"),
    };
    Err(difference(name, expected, shown(got)))
}

/// A datagram as a sentence would say it; what follows from the rest is left out.
pub(in super::super) fn describe(packet: &Packet<'_>, flow: &Flow, from: Side) -> Option<String> {
    let mad = datagram(packet)?;
    let message = Message::of(mad);
    let mut line = String::from(message.name);
    let has_header = has_header(message, &[], service(message, mad));
    let plain = draft(message, &[], flow, from).unwrap_or([0; MAD_LEN]);
    for field in message.all(has_header) {
        let is_id = ["transaction", "local-id", "remote-id", "request-id"].contains(&field.name);
        let same = if field.is_number() {
            field.get(mad) == field.get(&plain)
        } else {
            field.bytes(mad) == field.bytes(&plain)
        };
        if !same || is_id {
            let _ = write!(line, ", {} {}", field.name, field.shown(mad));
        }
    }
    describe_carrier(&mut line, packet, flow);
    Some(line)
}

/// What the frame says otherwise than frames of QP1 do.
fn describe_carrier(line: &mut String, packet: &Packet<'_>, flow: &Flow) {
    let headers = &packet.headers;
    let source = headers.ext.deth.map_or(0, |deth| deth.src_qp);
    let qkey = headers.ext.deth.map_or(0, |deth| deth.qkey);
    for (name, got, right) in [
        ("pkey", u32::from(headers.bth.pkey), u32::from(flow.pkey)),
        ("destination", headers.bth.dest_qp, super::GSI),
        ("source-qp", source, super::GSI),
        ("qkey", qkey, flow.qkey),
    ] {
        if got != right {
            let _ = write!(line, ", {name} {got:#x}");
        }
    }
}
