//! Fault rules, as values and as text. Both say the same: [`Rule`] is [`FromStr`], and what its
//! [`Display`](fmt::Display) writes is read back as the same rule. What follows is the whole
//! language, `docs/faults.md`.
#![doc = include_str!("../../../docs/faults.md")]

mod display;
mod field;
mod parse;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ferroce_stack::time::Instant;
use ferroce_stack::wire::{CmMessage, HeaderSet, Kind, Position, Transport};

pub(super) use field::Bits;
pub use field::Field;

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What happens.
    pub action: Action,
    /// To which of the frames that match.
    pub which: Which,
    /// Frames that match: their class,
    pub class: Class,
    /// and what else must hold. A frame that lacks what the action changes matches no rule.
    pub conditions: Vec<Condition>,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives this much later.
    Delay {
        /// Nanoseconds.
        nanos: u64,
    },
    /// It arrives later by a random time, so that others overtake it.
    Reorder {
        /// At most so many nanoseconds.
        nanos: u64,
    },
    /// Some of its bits are others.
    Corrupt(Corruption),
    /// The ECN bits of its IP header, or GRH, become 3: congestion experienced. The checksum of an
    /// IPv4 header is right afterwards; the ICRC does not cover them.
    MarkCe,
    /// Its payload is shorter, and all lengths and the pad are those of the rest.
    Truncate {
        /// How many bytes are taken off its end; of a shorter payload, all.
        bytes: usize,
        /// Whether the ICRC becomes that of the rest, or stays what it was.
        icrc_fixed: bool,
    },
}

/// What is changed in a frame, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Where.
    pub place: Place,
    /// What becomes of it.
    pub change: Change,
    /// Whether the ICRC becomes right again.
    pub icrc_fixed: bool,
}

/// A place in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A byte of the frame's, by chance.
    AnyByte,
    /// The byte at this offset from the frame's first, 0, below 2^24.
    Byte(usize),
    /// A field. That of an IPv4 header leaves the header's checksum right, unless it is the
    /// checksum itself.
    Field(Field),
}

/// What becomes of bits in a frame. Of a place longer than 64 bits, [`Change::To`] and
/// [`Change::By`] change the last 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// One of them, by chance, is the other.
    Flip,
    /// They are this number, its lowest bit last.
    To(u64),
    /// They are a number as much greater, and start again at 0 behind their greatest.
    By(i64),
}

impl Corruption {
    /// One bit, by chance, of the whole frame is flipped.
    pub const ANY_BIT: Corruption = Corruption::of(Place::AnyByte);

    /// One bit there, by chance, is flipped; the ICRC stays.
    pub const fn of(place: Place) -> Corruption {
        Corruption { place, change: Change::Flip, icrc_fixed: false }
    }
}

/// Which of the matching frames a rule strikes.
#[derive(Clone, Debug, PartialEq)]
pub enum Which {
    /// Every one.
    All,
    /// Those, counted from 1.
    Nth(RangeInclusive<u64>),
    /// The `nth` and each `nth` after it, every time `burst` in a row, all from 1.
    Every {
        /// From the first of one row to that of the next.
        nth: u64,
        /// Frames in a row.
        burst: u64,
    },
    /// Each with this probability, 0 to 1.
    Chance(f64),
    /// This share of them, 0 to 1, by chance, so many in a row.
    Bursts {
        /// The share.
        share: f64,
        /// Frames in a row, from 1.
        len: u64,
    },
}

/// A class of packets; the default is all frames, RoCE or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Of this service.
    pub transport: Option<Transport>,
    /// That do this.
    pub subject: Option<Subject>,
    /// That stand here in their message.
    pub position: Option<Position>,
    /// That carry this header.
    pub suffix: Option<HeaderSet>,
}

/// What packets of a class do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An operation.
    Kind(Kind),
    /// A positive acknowledge.
    Ack,
    /// A NAK.
    Nak,
    /// An RNR NAK.
    RnrNak,
    /// A message of connection management, of this kind or any.
    Cm(Option<CmMessage>),
}

/// What must hold for a frame to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// This node sends it.
    FromNode(usize),
    /// It is on its way to this node.
    ToNode(usize),
    /// Node 0 sends it: where rules are given to one host, that host.
    Outgoing,
    /// Another than node 0 sends it.
    Incoming,
    /// Its source address, or GID.
    FromAddress(IpAddr),
    /// Its destination address, or GID.
    ToAddress(IpAddr),
    /// Its source QP, where that is known: see [`Way`](super::fault::Way).
    FromQp(u32),
    /// Its destination QP.
    ToQp(u32),
    /// Its PSN.
    Psn(RangeInclusive<u32>),
    /// Its opcode.
    Opcode(RangeInclusive<u8>),
    /// It is sent at this moment or later.
    After(Instant),
    /// It is sent before this moment.
    Before(Instant),
}

/// A rule that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The rule.
    pub rule: String,
    /// Where in it, counted in characters from 1.
    pub column: usize,
    /// The word there; empty at the end.
    pub word: String,
    /// What would be right.
    pub expected: &'static str,
    /// The right word that may have been meant.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleError { rule, column, word, expected, nearest } = self;
        match word.as_str() {
            "" => write!(f, "fault rule '{rule}' ends too early: expected {expected}"),
            _ => write!(f, "fault rule '{rule}', column {column}, '{word}': expected {expected}"),
        }?;
        nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean '{nearest}'?"))
    }
}

impl std::error::Error for RuleError {}

impl Rule {
    /// `action` for every frame of `class`.
    pub const fn new(action: Action, class: Class) -> Rule {
        Rule { action, which: Which::All, class, conditions: Vec::new() }
    }

    /// `action` for each frame with this probability, 0 to 1.
    pub fn random(action: Action, probability: f64) -> Rule {
        Rule { which: Which::Chance(probability), ..Rule::new(action, Class::default()) }
    }

    /// Only to these of the frames that match.
    #[must_use]
    pub fn which(self, which: Which) -> Rule {
        Rule { which, ..self }
    }

    /// Only if this holds as well.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Rule {
        self.conditions.push(condition);
        self
    }

    /// Whether it can strike frames of another node than 0 only.
    pub fn is_incoming(&self) -> bool {
        self.conditions.iter().any(|condition| match condition {
            Condition::Incoming => true,
            Condition::FromNode(node) => *node != 0,
            _ => false,
        })
    }

    /// Whether what it does depends on the seed.
    pub fn is_random(&self) -> bool {
        let by_chance = matches!(self.which, Which::Chance(_) | Which::Bursts { .. });
        by_chance
            || match self.action {
                Action::Reorder { .. } => true,
                Action::Corrupt(what) => {
                    what.change == Change::Flip || what.place == Place::AnyByte
                }
                _ => false,
            }
    }

    /// Reads one rule a line; empty lines and what follows a `#` are ignored.
    ///
    /// # Errors
    /// For the first line that is no rule.
    pub fn parse_all(text: &str) -> Result<Vec<Rule>, RuleError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        lines.filter(|line| !line.is_empty()).map(Rule::from_str).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
