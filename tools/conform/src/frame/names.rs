//! Names of frames.

use ferroce_stack::wire::{NakCode, Opcode, Syndrome, SyndromeKind, Transport};

use super::FieldError;
use crate::ast::Word;
use crate::hint::hint;

/// An acknowledge packet told by its syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ack,
    RnrNak,
    Nak(NakCode),
}

impl Answer {
    /// The syndrome if nothing more is said of it.
    pub fn syndrome(self) -> Syndrome {
        /// 0.64 ms.
        const TIMER: u8 = 12;
        match self {
            Answer::Ack => Syndrome::ACK,
            Answer::RnrNak => Syndrome::rnr_nak(TIMER),
            Answer::Nak(code) => Syndrome::nak(code),
        }
    }

    /// Whether a syndrome is one of these.
    pub fn is(self, syndrome: Syndrome) -> bool {
        match (self, syndrome.kind()) {
            (Answer::Ack, SyndromeKind::Ack { .. })
            | (Answer::RnrNak, SyndromeKind::RnrNak { .. }) => true,
            (Answer::Nak(code), SyndromeKind::Nak(own)) => code == own,
            _ => false,
        }
    }
}

/// Low five bits of the opcodes, by name.
const OPERATIONS: [(&str, u8); 25] = [
    ("send-first", 0x00),
    ("send-middle", 0x01),
    ("send-last", 0x02),
    ("send-last-imm", 0x03),
    ("send-only", 0x04),
    ("send-only-imm", 0x05),
    ("write-first", 0x06),
    ("write-middle", 0x07),
    ("write-last", 0x08),
    ("write-last-imm", 0x09),
    ("write-only", 0x0a),
    ("write-only-imm", 0x0b),
    ("read-request", 0x0c),
    ("read-response-first", 0x0d),
    ("read-response-middle", 0x0e),
    ("read-response-last", 0x0f),
    ("read-response-only", 0x10),
    ("acknowledge", ACKNOWLEDGE),
    ("atomic-acknowledge", 0x12),
    ("compare-swap", 0x13),
    ("fetch-add", 0x14),
    ("send-last-inv", 0x16),
    ("send-only-inv", 0x17),
    ("flush", 0x1c),
    ("atomic-write", 0x1d),
];

const ACKNOWLEDGE: u8 = 0x11;

/// Acknowledge packets by their syndrome.
const ANSWERS: [(&str, Answer); 7] = [
    ("ack", Answer::Ack),
    ("rnr-nak", Answer::RnrNak),
    ("nak-sequence", Answer::Nak(NakCode::PsnSequence)),
    ("nak-invalid-request", Answer::Nak(NakCode::InvalidRequest)),
    ("nak-remote-access", Answer::Nak(NakCode::RemoteAccess)),
    ("nak-remote-operational", Answer::Nak(NakCode::RemoteOperational)),
    ("nak-invalid-rd", Answer::Nak(NakCode::InvalidRd)),
];

/// Word for the services.
pub(super) const SERVICES: [(&str, Transport); 5] = [
    ("rc", Transport::Rc),
    ("uc", Transport::Uc),
    ("rd", Transport::Rd),
    ("ud", Transport::Ud),
    ("xrc", Transport::Xrc),
];

/// A frame by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its opcode.
    pub opcode: Opcode,
    /// What kind of acknowledge packet.
    pub answer: Option<Answer>,
    /// The name is a number: any header may be in it.
    pub by_number: bool,
}

/// The frame a word names in a service.
pub(super) fn named(frame: &Word, service: Transport) -> Result<Named, FieldError> {
    let word = frame.value.as_str();
    if let Some(number) = word.strip_prefix("opcode-") {
        let code = match number.strip_prefix("0x") {
            Some(hex) => u8::from_str_radix(hex, 16),
            None => number.parse(),
        };
        let code = code.map_err(|_| FieldError::at(frame, "an opcode is 0 to 255"))?;
        return Ok(Named { opcode: Opcode(code), answer: None, by_number: true });
    }
    if word == "cnp" {
        return Ok(Named { opcode: Opcode::CNP, answer: None, by_number: false });
    }
    let answer = ANSWERS.iter().find(|(name, _)| *name == word).map(|&(_, answer)| answer);
    let low = match answer {
        Some(_) => Some(ACKNOWLEDGE),
        None => OPERATIONS.iter().find(|(name, _)| *name == word).map(|&(_, low)| low),
    };
    let Some(low) = low else {
        let names = OPERATIONS.iter().map(|&(name, _)| name);
        let names = names.chain(ANSWERS.iter().map(|&(name, _)| name)).chain(["cnp"]);
        let hint = hint(word, names);
        return Err(FieldError::at(frame, format!("there is no frame `{word}`{hint}")));
    };
    Ok(Named { opcode: Opcode(base(service) | low), answer, by_number: false })
}

/// Bits 7 to 5 of a service's opcodes.
const fn base(service: Transport) -> u8 {
    match service {
        Transport::Rc => 0x00,
        Transport::Uc => 0x20,
        Transport::Rd => 0x40,
        Transport::Ud => 0x60,
        Transport::Cnp => 0x80,
        Transport::Xrc => 0xa0,
    }
}

/// What a packet is called, and the service that has to be said with it, if it is not `service`.
pub(super) fn name_of(
    opcode: Opcode,
    syndrome: Option<Syndrome>,
    service: Transport,
) -> (String, Option<&'static str>) {
    if opcode == Opcode::CNP {
        return (String::from("cnp"), None);
    }
    let by_number = || (format!("opcode-{}", opcode.0), None);
    let Some(transport) = opcode.info().map(|info| info.transport) else { return by_number() };
    let low = opcode.0 & 0x1f;
    let Some(&(name, _)) = OPERATIONS.iter().find(|&&(_, own)| own == low) else {
        return by_number();
    };
    let Some(&(word, _)) = SERVICES.iter().find(|&&(_, own)| own == transport) else {
        return by_number();
    };
    let answer = syndrome.filter(|_| low == ACKNOWLEDGE).and_then(syndrome_name);
    let name = answer.unwrap_or(name);
    (String::from(name), (transport != service).then_some(word))
}

/// The word for a syndrome.
pub(super) fn syndrome_name(syndrome: Syndrome) -> Option<&'static str> {
    ANSWERS.iter().find(|(_, answer)| answer.is(syndrome)).map(|&(name, _)| name)
}

/// Who numbers a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// Its sender.
    Request,
    /// The one it answers.
    Answer,
    /// Nobody.
    None,
}

/// Who numbers packets of an opcode, defined or not.
pub(super) fn numbering(opcode: Opcode) -> Numbering {
    const ANSWERING: std::ops::RangeInclusive<u8> = 0x0d..=0x12;
    match opcode.transport() {
        Some(Transport::Cnp) | None => Numbering::None,
        _ if ANSWERING.contains(&(opcode.0 & 0x1f)) => Numbering::Answer,
        _ => Numbering::Request,
    }
}
