//! Datagrams of the peer.

use std::net::IpAddr;

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::wire::CmMessage;

use super::super::build::{number, wants};
use super::super::check::{Shape, check_shape};
use super::super::{FieldError, Flow, Side, Use};
use super::message::{Field, Message, Style};
use super::talks::{Talk, Talks};
use super::{carrier, has_header};
use crate::ast::{self, Word};
use crate::value::{Datum, Given};

/// QPN of the peer's first connection is one more.
const QPNS: u64 = 0xb000;
/// The port from which the peer asks.
const SOURCE_PORT: u64 = 40_000;
/// The port asked for if no other is said.
const PORT: u64 = 7471;
/// The peer answers within half a second: 4.096 us * 2^17.
const RESPONSE_TIMEOUT: u64 = 17;
/// The peer waits 268 ms for acknowledges.
const ACK_TIMEOUT: u64 = 16;
/// The Q_Key of datagrams that RDMA-CM sets up.
const UDP_QKEY: u64 = 0x0123_4567;

/// Fields that are not in the table of a message.
const ALSO: [&str; 3] = ["port", "ip-header", "mad-length"];

/// The frame a sentence says the peer sends.
///
/// # Errors
/// As of other frames.
pub(in super::super) fn build(
    frame: &Word,
    fields: &[Given],
    flow: &Flow,
) -> Result<Vec<u8>, FieldError> {
    let Some(message) = Message::named(&frame.value) else {
        return Err(FieldError::at(frame, "this is no management datagram"));
    };
    let (own, mut of_frame) = split(message, fields, flow);
    let mad = draft(message, &own, flow, Side::Peer)?;
    let said = |name: &str| of_frame.iter().any(|given| given.name.value == name);
    let give = |name: &str, datum| Given {
        name: Word { value: String::from(name), ..frame.clone() },
        datum,
    };
    let mut more = Vec::new();
    if !said("psn") {
        more.push(give("psn", Datum::Number(0)));
    }
    if !said("payload") {
        let length = match own.iter().find(|given| given.name.value == "mad-length") {
            None => MAD_LEN,
            Some(given) => number(&given.name, &given.datum, 4096)? as usize,
        };
        let mut bytes = mad.to_vec();
        bytes.resize(length, 0);
        more.push(give("payload", Datum::Bytes(bytes)));
    }
    of_frame.extend(more);
    super::super::build(&carrier(frame), &of_frame, flow)
}

/// Fields of the datagram, and those of the frame around it. Addresses of both sides have a name.
pub(super) fn split(message: &Message, fields: &[Given], flow: &Flow) -> (Vec<Given>, Vec<Given>) {
    let address = |gid: Gid| Datum::Text(gid.to_ip().to_string());
    let known = fields.iter().map(|given| match &given.datum {
        Datum::Text(text) if text == "target" => {
            Given { datum: address(flow.target.gid), ..given.clone() }
        }
        Datum::Text(text) if text == "peer" => {
            Given { datum: address(flow.peer.gid), ..given.clone() }
        }
        _ => given.clone(),
    });
    known.partition(|given| is_own(message, &given.name.value))
}

fn is_own(message: &Message, name: &str) -> bool {
    ALSO.contains(&name) || message.field(name, message.may_have_header()).is_some()
}

/// The number a sentence says of a field.
fn said(fields: &[Given], name: &str) -> Option<u64> {
    fields.iter().find_map(|given| match given.datum {
        Datum::Number(value) if given.name.value == name => Some(value),
        _ => None,
    })
}

/// The datagram with these fields. What is not said follows from what was said before.
pub(super) fn draft(
    message: &'static Message,
    fields: &[Given],
    flow: &Flow,
    from: Side,
) -> Result<[u8; MAD_LEN], FieldError> {
    let port = said(fields, "port").unwrap_or(PORT);
    let talk = talk(message, fields, &flow.talks);
    let service = match message.kind {
        Some(CmMessage::SidrRep) => talk.map_or(0, |talk| talk.service),
        _ => message.space() << 16 | port & 0xffff,
    };
    let service = said(fields, "service-id").unwrap_or(service);
    let mut sheet = Sheet {
        message,
        mad: [0; MAD_LEN],
        has_header: has_header(message, fields, service),
        service,
    };
    sheet.common();
    sheet.ids(fields, &flow.talks, talk);
    sheet.rest(flow, from);
    for given in fields {
        sheet.take(given)?;
    }
    Ok(sheet.mad)
}

/// The connection a message is about.
fn talk<'a>(message: &Message, fields: &[Given], talks: &'a Talks) -> Option<&'a Talk> {
    match message.kind {
        None | Some(CmMessage::Req | CmMessage::SidrReq) => None,
        // An answer has the ID of the one who asks.
        Some(CmMessage::SidrRep) => talks.find(true, None, said(fields, "request-id")),
        Some(_) => talks.meant(said(fields, "local-id"), said(fields, "remote-id")),
    }
}

/// A datagram in the making.
struct Sheet {
    message: &'static Message,
    mad: [u8; MAD_LEN],
    has_header: bool,
    service: u64,
}

impl Sheet {
    fn set(&mut self, name: &str, value: u64) {
        if let Some(field) = self.message.field(name, self.has_header) {
            field.set(&mut self.mad, value);
        }
    }

    fn set_all(&mut self, values: &[(&str, u64)]) {
        values.iter().for_each(|&(name, value)| self.set(name, value));
    }

    fn common(&mut self) {
        let attribute = self.message.kind.map_or(0, CmMessage::attribute_id);
        self.set_all(&[
            ("base-version", 1),
            ("class", 7),
            ("class-version", 2),
            ("method", 3),
            ("attribute", attribute.into()),
        ]);
    }

    /// Communication IDs, transaction, and what is numbered by them.
    fn ids(&mut self, fields: &[Given], talks: &Talks, talk: Option<&Talk>) {
        let none = Talk::default();
        let is_asked = talk.is_some_and(|talk| talk.begun_by_target);
        let kind = self.message.kind;
        let fresh = talks.fresh_id();
        let known = talk.unwrap_or(&none);
        let own = match (kind, known.peer_id) {
            (Some(CmMessage::Req), _) => fresh,
            // Who rejects a request needs no ID.
            (Some(CmMessage::Rej), id) => id,
            (_, 0) => fresh,
            (_, id) => id,
        };
        let own = said(fields, "local-id").unwrap_or(own);
        let request = match kind {
            Some(CmMessage::SidrRep) => known.target_id,
            _ => said(fields, "request-id").unwrap_or(fresh),
        };
        let transaction = match kind {
            Some(CmMessage::Req | CmMessage::Dreq | CmMessage::Lap) => own,
            Some(CmMessage::SidrReq) => request,
            Some(CmMessage::Drep | CmMessage::Apr) => known.asked,
            _ => known.transaction,
        };
        self.set_all(&[
            ("transaction", transaction),
            ("local-id", own),
            ("remote-id", known.target_id),
            ("request-id", request),
            ("local-qpn", QPNS + (own & 0xfff)),
            ("remote-qpn", known.target_qpn),
            ("mraed", u64::from(!is_asked)),
            ("rejected", u64::from(!is_asked)),
        ]);
    }

    /// What does not depend on the connection.
    fn rest(&mut self, flow: &Flow, from: Side) {
        let (own, other) = match from {
            Side::Peer => (flow.peer.gid, flow.target.gid),
            Side::Target => (flow.target.gid, flow.peer.gid),
        };
        let is_lap = self.message.kind == Some(CmMessage::Lap);
        self.set_all(&[
            ("service-id", self.service),
            ("ca-guid", flow.peer_guid),
            ("starting-psn", flow.send_psn.into()),
            ("responder-resources", 16),
            ("initiator-depth", 16),
            ("remote-response-timeout", RESPONSE_TIMEOUT),
            ("local-response-timeout", RESPONSE_TIMEOUT),
            ("retry-count", 7),
            ("rnr-retry-count", 7),
            ("max-cm-retries", 15),
            ("partition-key", 0xffff),
            ("path-mtu", 3),
            ("target-ack-delay", 15),
            ("service-timeout", 20),
            ("reason", 28),
            ("service-qpn", QPNS),
            ("service-qkey", UDP_QKEY),
            ("ip-version", if own.ipv4().is_some() { 4 } else { 6 }),
            ("cma-port", SOURCE_PORT),
        ]);
        let prefix = if is_lap { "alternate" } else { "primary" };
        let flow_label = (SOURCE_PORT * 31 + (self.service & 0xffff)) & 0xf_ffff;
        for (name, value) in [
            ("local-lid", 0xffff),
            ("remote-lid", 0xffff),
            ("flow-label", flow_label),
            ("hop-limit", 64),
            ("ack-timeout", ACK_TIMEOUT),
        ] {
            self.set(&format!("{prefix}-{name}"), value);
        }
        let (local, remote) = (format!("{prefix}-local-gid"), format!("{prefix}-remote-gid"));
        let addresses =
            [(&*local, own), (&*remote, other), ("cma-source", own), ("cma-destination", other)];
        for (name, gid) in addresses {
            self.set_address(name, gid);
        }
    }

    fn set_address(&mut self, name: &str, gid: Gid) {
        if let Some(field) = self.message.field(name, self.has_header) {
            let bytes = field.address(gid);
            field.bytes_mut(&mut self.mad).copy_from_slice(&bytes);
        }
    }

    /// Takes over what is said.
    fn take(&mut self, given: &Given) -> Result<(), FieldError> {
        let name = &given.name;
        if ALSO.contains(&name.value.as_str()) {
            return Ok(());
        }
        let Some(field) = self.message.field(&name.value, self.has_header) else {
            return Err(FieldError::at(name, format!("this message has no `{}`", name.value)));
        };
        match (field.style, &given.datum) {
            (Style::Gid | Style::Address, Datum::Text(text)) => {
                let ip: IpAddr =
                    text.parse().map_err(|_| wants(name, "an IP address in quotes"))?;
                self.set_address(&name.value, Gid::from_ip(ip));
            }
            (Style::Gid | Style::Address, _) => return Err(wants(name, "an address in quotes")),
            (Style::Bytes, Datum::Bytes(bytes)) => {
                let area = field.bytes_mut(&mut self.mad);
                let size = area.len();
                let part = area.get_mut(..bytes.len());
                part.ok_or_else(|| wants(name, &format!("at most {size} bytes")))?
                    .copy_from_slice(bytes);
                if name.value == "information" && self.information_length_is_open() {
                    self.set("information-length", bytes.len() as u64);
                }
            }
            (Style::Bytes, _) => return Err(wants(name, "bytes")),
            (_, Datum::Flag) if field.bits == 1 => field.set(&mut self.mad, 1),
            (_, datum) => {
                let value = number(name, datum, field.most())?;
                field.set(&mut self.mad, value);
            }
        }
        Ok(())
    }

    /// Whether nothing was said of it before.
    fn information_length_is_open(&self) -> bool {
        let field = self.message.field("information-length", false);
        field.is_some_and(|field| field.get(&self.mad) == 0)
    }
}

/// Checks names and kinds of fields before a scenario is run.
///
/// # Errors
/// The first that is wrong.
pub(in super::super) fn check(
    frame: &Word,
    fields: &[ast::Field],
    of: Use,
) -> Result<(), FieldError> {
    let Some(message) = Message::named(&frame.value) else { return Ok(()) };
    let mut of_frame = Vec::new();
    for given in fields {
        let name = given.name.value.as_str();
        match message.field(name, message.may_have_header()) {
            Some(field) => check_shape(given, shape(&field), of)?,
            None if name == "qp" => {}
            None if ALSO.contains(&name) => check_also(given, of)?,
            None => of_frame.push(given.clone()),
        }
    }
    super::super::check(&carrier(frame), &of_frame, of)
}

fn shape(field: &Field) -> Shape {
    match field.style {
        Style::Gid | Style::Address => Shape::Text,
        Style::Bytes => Shape::Bytes,
        _ if field.bits == 1 => Shape::Flag,
        _ => Shape::Number,
    }
}

fn check_also(given: &ast::Field, of: Use) -> Result<(), FieldError> {
    match given.name.value.as_str() {
        "ip-header" => match &given.value {
            ast::Value::Expr(ast::Expr::Name(word)) if word.value == "none" => Ok(()),
            _ => Err(wants(&given.name, "none")),
        },
        _ => check_shape(given, Shape::Number, of),
    }
}
