//! Rules as text that is read back as the same rules.

use std::fmt::{Display, Formatter, Result};
use std::ops::RangeInclusive;

use super::parse::percentage;
use super::words::{POSITIONS, SUBJECTS, SUFFIXES, TRANSPORTS, word};
use super::{Action, Change, Class, Condition, Corruption, Place, Rule, Which};

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Rule { action, which, class, conditions } = self;
        write_action(action, f)?;
        write_which(which, f)?;
        write!(f, " {class}")?;
        for condition in conditions {
            write!(f, " {condition}")?;
        }
        if let Which::Every { burst: len @ 2.., .. } | Which::Bursts { len, .. } = which {
            write!(f, " in bursts of {len}")?;
        }
        match action {
            Action::Delay { nanos } | Action::Reorder { nanos } => {
                f.write_str(" by ")?;
                write_time(*nanos, f)
            }
            Action::Corrupt(Corruption { change, icrc_fixed, .. }) => {
                if let Change::By(amount) = change {
                    write!(f, " by {amount}")?;
                }
                write_icrc(*icrc_fixed, f)
            }
            Action::Truncate { bytes, icrc_fixed } => {
                write!(f, " by {bytes} bytes")?;
                write_icrc(*icrc_fixed, f)
            }
            Action::Drop | Action::Duplicate | Action::MarkCe => Ok(()),
        }
    }
}

impl Display for Class {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Class { transport, subject, position, suffix } = self;
        let words = [
            transport.as_ref().and_then(|value| word(&TRANSPORTS, value)),
            subject.as_ref().and_then(|value| word(&SUBJECTS, value)),
            position.as_ref().and_then(|value| word(&POSITIONS, value)),
            suffix.as_ref().and_then(|value| word(&SUFFIXES, value)),
        ];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.write_str(if words.is_empty() { "any".to_owned() } else { words.join("-") }.as_str())
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Condition::FromNode(node) => write!(f, "from node {node}"),
            Condition::ToNode(node) => write!(f, "to node {node}"),
            Condition::Outgoing => f.write_str("outgoing"),
            Condition::Incoming => f.write_str("incoming"),
            Condition::FromAddress(address) => write!(f, "from {address}"),
            Condition::ToAddress(address) => write!(f, "to {address}"),
            Condition::FromQp(qpn) => write!(f, "from qp {qpn:#x}"),
            Condition::ToQp(qpn) => write!(f, "to qp {qpn:#x}"),
            Condition::Psn(psns) if psns.start() == psns.end() => write!(f, "psn {}", psns.start()),
            Condition::Psn(psns) => write!(f, "psn {}..{}", psns.start(), psns.end()),
            Condition::Opcode(codes) => write_opcodes(codes, f),
            Condition::After(moment) => {
                f.write_str("after ")?;
                write_time(moment.nanos(), f)
            }
            Condition::Before(moment) => {
                f.write_str("before ")?;
                write_time(moment.nanos(), f)
            }
        }
    }
}

fn write_action(action: &Action, f: &mut Formatter<'_>) -> Result {
    let Corruption { place, change, .. } = match action {
        Action::Drop => return f.write_str("drop"),
        Action::Duplicate => return f.write_str("duplicate"),
        Action::Delay { .. } => return f.write_str("delay"),
        Action::Reorder { .. } => return f.write_str("reorder"),
        Action::MarkCe => return f.write_str("mark ce"),
        Action::Truncate { .. } => return f.write_str("truncate"),
        Action::Corrupt(what) => what,
    };
    f.write_str("corrupt")?;
    match (place, change) {
        (Place::AnyByte, Change::To(_)) => f.write_str(" byte")?,
        (Place::AnyByte, _) => return Ok(()),
        (Place::Byte(at), _) => write!(f, " byte {at}")?,
        (Place::Field(field), _) => write!(f, " {}", field.name())?,
    }
    if let Change::To(value) = change {
        write!(f, " to {value:#x}")?;
    }
    f.write_str(" of")
}

fn write_icrc(is_fixed: bool, f: &mut Formatter<'_>) -> Result {
    f.write_str(if is_fixed { " with icrc fixed" } else { "" })
}

fn write_which(which: &Which, f: &mut Formatter<'_>) -> Result {
    match which {
        Which::All => Ok(()),
        Which::Nth(range) if range.start() == range.end() => {
            write!(f, " {}{}", range.end(), suffix_of(*range.end()))
        }
        Which::Nth(range) if *range.end() == u64::MAX => write!(f, " {}..", range.start()),
        Which::Nth(range) => {
            write!(f, " {}..{}{}", range.start(), range.end(), suffix_of(*range.end()))
        }
        Which::Every { nth, .. } => write!(f, " every {nth}{}", suffix_of(*nth)),
        Which::Chance(share) | Which::Bursts { share, .. } => write_percentage(*share, f),
    }
}

fn suffix_of(number: u64) -> &'static str {
    match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    }
}

/// In the plain form, unless that would be read as another number.
fn write_percentage(share: f64, f: &mut Formatter<'_>) -> Result {
    let scientific = format!("{share:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exact = format!("{digits}e{}", exponent.parse().unwrap_or(0) + 2);
    let plain = exact.parse().unwrap_or(share * 100.0).to_string();
    let is_exact = percentage(&plain) == Some(share);
    write!(f, " {}% of", if is_exact { plain } else { exact })
}

fn write_opcodes(codes: &RangeInclusive<u8>, f: &mut Formatter<'_>) -> Result {
    match codes.start() == codes.end() {
        true => write!(f, "opcode {:#04x}", codes.start()),
        false => write!(f, "opcode {:#04x}..{:#04x}", codes.start(), codes.end()),
    }
}

/// In the largest unit that makes it a whole number.
fn write_time(nanos: u64, f: &mut Formatter<'_>) -> Result {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let whole = units.into_iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit));
    let (name, unit) = whole.unwrap_or(("ns", 1));
    write!(f, "{}{name}", nanos / unit)
}
