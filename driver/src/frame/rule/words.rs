//! The words of classes.

use ferroce_stack::wire::{CmMessage, HeaderSet, Kind, Position, Transport};

use super::Subject;

/// The value a word of the table stands for.
pub fn value<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|&(_, value)| value)
}

/// The word that stands for a value.
pub fn word<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    table.iter().find(|(_, other)| other == value).map(|&(name, _)| name)
}

pub const TRANSPORTS: [(&str, Transport); 5] = [
    ("rc", Transport::Rc),
    ("uc", Transport::Uc),
    ("ud", Transport::Ud),
    ("rd", Transport::Rd),
    ("xrc", Transport::Xrc),
];

pub const SUBJECTS: [(&str, Subject); 27] = [
    ("send", Subject::Kind(Kind::Send)),
    ("write", Subject::Kind(Kind::Write)),
    ("read-request", Subject::Kind(Kind::ReadRequest)),
    ("read-response", Subject::Kind(Kind::ReadResponse)),
    ("acknowledge", Subject::Kind(Kind::Acknowledge)),
    ("ack", Subject::Ack),
    ("nak", Subject::Nak),
    ("rnr-nak", Subject::RnrNak),
    ("atomic-ack", Subject::Kind(Kind::AtomicAcknowledge)),
    ("cmp-swap", Subject::Kind(Kind::CompareSwap)),
    ("fetch-add", Subject::Kind(Kind::FetchAdd)),
    ("resync", Subject::Kind(Kind::Resync)),
    ("flush", Subject::Kind(Kind::Flush)),
    ("atomic-write", Subject::Kind(Kind::AtomicWrite)),
    ("cnp", Subject::Kind(Kind::Cnp)),
    ("cm", Subject::Cm(None)),
    ("cm-req", Subject::Cm(Some(CmMessage::Req))),
    ("cm-mra", Subject::Cm(Some(CmMessage::Mra))),
    ("cm-rej", Subject::Cm(Some(CmMessage::Rej))),
    ("cm-rep", Subject::Cm(Some(CmMessage::Rep))),
    ("cm-rtu", Subject::Cm(Some(CmMessage::Rtu))),
    ("cm-dreq", Subject::Cm(Some(CmMessage::Dreq))),
    ("cm-drep", Subject::Cm(Some(CmMessage::Drep))),
    ("cm-sidr-req", Subject::Cm(Some(CmMessage::SidrReq))),
    ("cm-sidr-rep", Subject::Cm(Some(CmMessage::SidrRep))),
    ("cm-lap", Subject::Cm(Some(CmMessage::Lap))),
    ("cm-apr", Subject::Cm(Some(CmMessage::Apr))),
];

pub const POSITIONS: [(&str, Position); 4] = [
    ("first", Position::First),
    ("middle", Position::Middle),
    ("last", Position::Last),
    ("only", Position::Only),
];

pub const SUFFIXES: [(&str, HeaderSet); 2] = [("imm", HeaderSet::IMM_DT), ("inv", HeaderSet::IETH)];
