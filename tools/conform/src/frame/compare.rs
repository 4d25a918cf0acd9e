//! What a frame of the target must be, field by field.

use ferroce_stack::psn::Psn;

use super::build::{number, service_of, wants};
use super::fields::{Field, Style, field};
use super::names::{name_of, named};
use super::{Difference, FieldError, Flow, RUNNERS, Seen, Side};
use crate::ast::Word;
use crate::value::{Datum, Given};

/// Compares a frame of the target with what a sentence says it must be. What is given as `any as
/// NAME` is returned with its name.
///
/// # Errors
/// Every difference. A field that such a frame cannot have, or whose value is of the wrong kind, is
/// one, too: [`super::check`] finds it before a scenario is run.
pub fn compare(
    frame: &Word,
    fields: &[Given],
    flow: &Flow,
    bytes: &[u8],
) -> Result<Vec<(String, u64)>, Vec<Difference>> {
    if super::cm::is_datagram(frame) {
        return super::cm::compare(frame, fields, flow, bytes);
    }
    let seen = Seen::new(bytes).map_err(|reason| {
        vec![difference("frame", &frame.value, &format!("no packet: {}", reason.name()))]
    })?;
    if let Some(other) = other_frame(frame, fields, flow, &seen) {
        return Err(vec![other]);
    }
    let (mut bindings, mut differences) = (Vec::new(), Vec::new());
    for given in fields.iter().filter(|given| !RUNNERS.contains(&given.name.value.as_str())) {
        match compare_field(given, flow, &seen) {
            Ok(Some(binding)) => bindings.push(binding),
            Ok(None) => {}
            Err(difference) => differences.push(difference),
        }
    }
    if differences.is_empty() { Ok(bindings) } else { Err(differences) }
}

/// The difference if the opcode, or the kind of acknowledge packet, is another.
fn other_frame(frame: &Word, fields: &[Given], flow: &Flow, seen: &Seen) -> Option<Difference> {
    let opcode = seen.headers().bth.opcode;
    let syndrome = seen.headers().ext.aeth.map(|aeth| aeth.syndrome);
    let wanted = match service_of(fields, flow).and_then(|service| named(frame, service)) {
        Ok(wanted) => wanted,
        Err(error) => return Some(difference("frame", &error.message, "")),
    };
    let right_answer = wanted.answer.is_none_or(|answer| syndrome.is_some_and(|s| answer.is(s)));
    if wanted.opcode == opcode && right_answer {
        return None;
    }
    let (name, service) = name_of(opcode, syndrome, flow.service);
    let of = service.map_or(String::new(), |service| format!(" of service {service}"));
    let first = flow.first_psn(opcode, Side::Target);
    let psn = relative(seen.headers().bth.psn, first);
    Some(difference("frame", &frame.value, &format!("{name}{of}, psn {psn}")))
}

fn difference(field: &str, expected: &str, got: &str) -> Difference {
    Difference { field: field.into(), expected: expected.into(), got: got.into() }
}

/// A PSN as scripts count it.
pub(super) fn relative(psn: Psn, first: u32) -> i64 {
    i64::from(psn.distance(Psn::new(first)))
}

/// Compares one field; what it binds.
fn compare_field(
    given: &Given,
    flow: &Flow,
    seen: &Seen,
) -> Result<Option<(String, u64)>, Difference> {
    let name = given.name.value.as_str();
    let malformed = |error: FieldError| difference(name, &error.message, "");
    match (name, &given.datum) {
        ("service", _) => Ok(None),
        ("payload", Datum::Any(None)) => Ok(None),
        ("payload", Datum::Bytes(bytes)) => compare_payload(bytes, seen.packet.payload),
        ("payload", _) => Err(malformed(wants(&given.name, "bytes"))),
        ("payload-length", datum) => {
            let length = seen.packet.payload.len() as u64;
            in_range(datum, length).map_err(malformed_or(name, length))
        }
        ("icrc", datum) => {
            let value = u64::from(seen.packet.icrc);
            in_range(datum, value).map_err(malformed_or(name, value))
        }
        ("vlan", Datum::Word(word)) if word == "none" => match seen.headers().eth.vlan {
            None => Ok(None),
            Some(tag) => Err(difference(name, "none", &tag.vid.to_string())),
        },
        ("source-address" | "destination-address", Datum::Text(text)) => {
            let net = &seen.headers().net;
            let gid = if name == "source-address" { net.source() } else { net.destination() };
            let got = gid.to_ip();
            match text.parse::<std::net::IpAddr>() {
                Ok(ip) if ip == got => Ok(None),
                _ => Err(difference(name, text, &got.to_string())),
            }
        }
        _ => {
            let unknown = || {
                let message = format!("no frame of the target has a field `{name}`");
                malformed(FieldError::at(&given.name, message))
            };
            compare_number(field(name).ok_or_else(unknown)?, given, flow, seen)
        }
    }
}

fn malformed_or(name: &str, got: u64) -> impl Fn(Refusal) -> Difference {
    move |refusal| match refusal {
        Refusal::Is(expected) => difference(name, &expected, &got.to_string()),
        Refusal::Kind => difference(name, "a number", &got.to_string()),
    }
}

/// Why a value is not as given.
enum Refusal {
    /// It should be so.
    Is(String),
    /// What is given is no number.
    Kind,
}

/// Whether a value is as given; what that binds.
fn in_range(datum: &Datum, value: u64) -> Result<Option<(String, u64)>, Refusal> {
    match datum {
        Datum::Any(name) => Ok(name.clone().map(|name| (name, value))),
        Datum::Number(wanted) if *wanted == value => Ok(None),
        Datum::Number(wanted) => Err(Refusal::Is(wanted.to_string())),
        Datum::Range(from, to) if (*from..=*to).contains(&value) => Ok(None),
        Datum::Range(from, to) => Err(Refusal::Is(format!("{from} to {to}"))),
        _ => Err(Refusal::Kind),
    }
}

fn compare_number(
    field: &Field,
    given: &Given,
    flow: &Flow,
    seen: &Seen,
) -> Result<Option<(String, u64)>, Difference> {
    if field.style == Style::Psn {
        return compare_psn(given, flow, seen);
    }
    let name = field.name;
    let value = field.read(seen);
    let shown = |value: Option<u64>| value.map_or(String::from("none"), |v| field.explained(v));
    let expected = |wanted: String| difference(name, &wanted, &shown(value));
    let absent = || expected(String::from("some value"));
    match &given.datum {
        Datum::Any(None) if value.is_some() => Ok(None),
        Datum::Any(Some(name)) => value.map(|v| Some((name.clone(), v))).ok_or_else(absent),
        Datum::Any(None) => Err(absent()),
        Datum::Flag if field.style == Style::Flag && value == Some(1) => Ok(None),
        Datum::Flag if field.style == Style::Flag => Err(expected(field.shown(1))),
        Datum::Range(from, to) if value.is_some_and(|v| (*from..=*to).contains(&v)) => Ok(None),
        Datum::Range(from, to) => {
            Err(expected(format!("{} to {}", field.shown(*from), field.shown(*to))))
        }
        datum => match number(&given.name, datum, field.most()) {
            Ok(wanted) if value == Some(wanted) => Ok(None),
            Ok(wanted) => Err(expected(field.explained(wanted))),
            Err(error) => Err(expected(error.message)),
        },
    }
}

fn compare_psn(
    given: &Given,
    flow: &Flow,
    seen: &Seen,
) -> Result<Option<(String, u64)>, Difference> {
    const MASK: u64 = 0xff_ffff;
    let bth = &seen.headers().bth;
    let first = flow.first_psn(bth.opcode, Side::Target);
    let shown = |counted: i64| {
        let psn = u64::from(first).wrapping_add(counted as u64) & MASK;
        format!("{counted} ({psn:#x})")
    };
    let counted = relative(bth.psn, first);
    let behind = |from: u64| (counted as u64).wrapping_sub(from) & MASK;
    let is_right = match &given.datum {
        Datum::Any(name) => return Ok(name.clone().map(|name| (name, counted as u64))),
        Datum::Number(wanted) => behind(*wanted) == 0,
        Datum::Range(from, to) => behind(*from) <= to.wrapping_sub(*from) & MASK,
        _ => return Err(difference("psn", "a number", &shown(counted))),
    };
    if is_right {
        return Ok(None);
    }
    let wanted = match &given.datum {
        Datum::Range(from, to) => format!("{} to {}", shown(*from as i64), shown(*to as i64)),
        Datum::Number(wanted) => shown(*wanted as i64),
        _ => String::new(),
    };
    Err(difference("psn", &wanted, &shown(counted)))
}

fn compare_payload(wanted: &[u8], got: &[u8]) -> Result<Option<(String, u64)>, Difference> {
    if wanted == got { Ok(None) } else { Err(unlike_bytes("payload", wanted, got)) }
}

/// How bytes differ that should be the same.
pub(crate) fn unlike_bytes(name: &str, wanted: &[u8], got: &[u8]) -> Difference {
    if wanted.len() != got.len() {
        let bytes = |bytes: &[u8]| format!("{} bytes", bytes.len());
        return difference(name, &bytes(wanted), &bytes(got));
    }
    let at = wanted.iter().zip(got).take_while(|(wanted, got)| wanted == got).count();
    let from = |bytes: &[u8]| {
        let some: Vec<String> = bytes[at..].iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!("{} from byte {at} on", some.join(" "))
    };
    difference(name, &from(wanted), &from(got))
}
