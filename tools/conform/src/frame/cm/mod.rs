//! Management datagrams of connection management: UD SENDs from QP1 to QP1 of 256 bytes.
//!
//! One table (`message`) says what the fields of each message are called and where they are.
//! What a message says that no sentence says follows from those before it (`talks`).

mod build;
mod compare;
mod message;
mod talks;
#[cfg(test)]
mod tests;

use ferroce_stack::GidEntry;
use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::verbs::GSI_QKEY;
use ferroce_stack::wire::{CmMessage, Packet, Transport};

use super::judge::Findings;
use super::{FieldError, Flow};
use crate::ast::Word;
use crate::value::{Datum, Given};
use message::{COMMON, HEADER, Message};

pub(super) use build::{build, check};
pub(super) use compare::{compare, describe};
pub use talks::Talks;

/// The QP of management datagrams.
pub const GSI: u32 = 1;

const CLAUSE: &str = "IBA 12.6, 13.4";

/// Whether it is the name of a management datagram.
pub fn is_datagram(frame: &Word) -> bool {
    Message::named(&frame.value).is_some()
}

/// The flow between both QP1s.
pub fn flow(target: GidEntry, peer: GidEntry, peer_guid: u64) -> Flow {
    let flow = Flow::new(target, peer, Transport::Ud);
    Flow { target_qpn: GSI, peer_qpn: GSI, qkey: GSI_QKEY, peer_guid, ..flow }
}

/// The datagram in a frame, if there is one.
fn datagram<'a>(packet: &Packet<'a>) -> Option<&'a [u8; MAD_LEN]> {
    packet.payload.try_into().ok()
}

/// The frame in which the peer sends a datagram of this flow.
///
/// # Errors
/// None that a datagram can have.
pub fn frame(mad: &[u8; MAD_LEN], flow: &Flow) -> Result<Vec<u8>, FieldError> {
    let word = |value: &str| Word { value: String::from(value), line: 0, column: 0 };
    let fields = [
        Given { name: word("psn"), datum: Datum::Number(0) },
        Given { name: word("payload"), datum: Datum::Bytes(mad.to_vec()) },
    ];
    super::build(&word("send-only"), &fields, flow)
}

/// The datagram that a frame of this flow's target brings, if it is right.
pub fn received<'a>(frame: &'a [u8], flow: &Flow) -> Option<&'a [u8; MAD_LEN]> {
    let packet = Packet::parse(frame).ok()?;
    let is_of_target = packet.headers.net.source() == flow.target.gid;
    datagram(&packet).filter(|_| is_of_target)
}

/// The communication ID that a datagram's sender has given itself, or its question; 0 if it says none
/// of its own.
pub fn sender_id(frame: &[u8]) -> Option<u32> {
    let packet = Packet::parse(frame).ok()?;
    let mad = datagram(&packet)?;
    if Message::of(mad).kind == Some(CmMessage::SidrRep) {
        return Some(0);
    }
    mad.get(HEADER..)?.first_chunk().map(|id| u32::from_be_bytes(*id))
}

/// The frame that carries datagrams.
fn carrier(frame: &Word) -> Word {
    Word { value: String::from("send-only"), ..frame.clone() }
}

/// Whether private data begins with the header of RDMA-CM: it does unless the sentence says no,
/// or names a service of another kind.
fn has_header(message: &Message, fields: &[Given], service: u64) -> bool {
    let says_no = fields.iter().any(|given| given.name.value == "ip-header");
    message.may_have_header() && !says_no && matches!(service >> 16, 0x0002 | 0x0106 | 0x0111)
}

/// What every datagram of a target must fulfil.
pub(super) fn judge(found: &mut Findings, packet: &Packet<'_>, flow: &Flow) {
    let Some(mad) = datagram(packet) else {
        let got = format!("{} bytes", packet.payload.len());
        return found.say(CLAUSE, "payload-length", format!("{MAD_LEN} bytes"), got);
    };
    let message = Message::of(mad);
    let right = [("base-version", 1), ("class", 7), ("class-version", 2), ("method", 3)];
    for (name, value) in right.into_iter().chain([("mad-status", 0), ("class-specific", 0)]) {
        if let Some(field) = COMMON.iter().find(|field| field.name == name) {
            found.equal_hex(CLAUSE, name, value, field.get(mad) as u32);
        }
    }
    if message.kind.is_none() {
        let got = format!("{:#x}", u16::from_be_bytes([mad[16], mad[17]]));
        return found.say(CLAUSE, "attribute", String::from("a message"), got);
    }
    judge_transaction(found, message, mad, &flow.talks);
    let reserved = reserved(message);
    if let Some(at) = (0..MAD_LEN).find(|&at| mad[at] & reserved[at] != 0) {
        let got = format!("{:#x} in byte {}", mad[at] & reserved[at], at as i64 - HEADER as i64);
        found.say(CLAUSE, "reserved bits", String::from("0"), got);
    }
}

/// What answers a request, and what answers that, repeats its transaction.
fn judge_transaction(found: &mut Findings, message: &Message, mad: &[u8; MAD_LEN], talks: &Talks) {
    let repeats = [CmMessage::Rep, CmMessage::Mra, CmMessage::Rej, CmMessage::Rtu];
    let get = |name: &str| message.field(name, false).map_or(0, |field| field.get(mad));
    if !message.kind.is_some_and(|kind| repeats.contains(&kind)) {
        return;
    }
    let talk = talks.find(false, Some(get("remote-id")).filter(|&id| id != 0), None);
    let (wanted, got) = (talk.map(|talk| talk.transaction), get("transaction"));
    if let Some(wanted) = wanted.filter(|&wanted| wanted != got) {
        found.say(CLAUSE, "transaction", format!("{wanted:#x}"), format!("{got:#x}"));
    }
}

/// A mask of the bits of a message that no field has.
fn reserved(message: &Message) -> [u8; MAD_LEN] {
    let mut mask = [0xff; MAD_LEN];
    for field in message.all(false).filter(|field| field.name != "mad-reserved") {
        for at in field.first..field.first + field.bits {
            mask[at / 8] &= !(0x80 >> (at % 8));
        }
    }
    mask
}
