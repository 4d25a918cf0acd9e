//! The fault rule language, one fault a line:
//!
//! ```text
//! rule      := action [which] [class] condition*
//! action    := "drop" | "duplicate" | "delay" | "reorder" | "corrupt" ["byte" N "of"]
//! which     := N"th" | N".."M"th" | N".." | P"%" "of"
//! class     := "any" | [transport "-"] [subject] ["-" position] ["-" suffix]
//! transport := "rc" | "uc" | "ud" | "rd" | "xrc"
//! subject   := "send" | "write" | "read-request" | "read-response" | "acknowledge" | "ack"
//!            | "nak" | "rnr-nak" | "atomic-ack" | "cmp-swap" | "fetch-add" | "flush"
//!            | "atomic-write" | "cnp"
//! position  := "first" | "middle" | "last" | "only"
//! suffix    := "imm" | "inv"
//! condition := "from" "node" N | "to" "qp" N | "psn" N [".." M]
//!            | "after" TIME | "before" TIME | "by" TIME
//! ```
//!
//! `which` counts, from 1, the frames that class and conditions match; ranges include both ends;
//! without it a rule strikes every one of them. An `ack` is a positive acknowledge, an
//! `acknowledge` also a NAK or RNR NAK. Numbers may be hexadecimal (`0x11`); a TIME is a number and
//! `ns`, `us`, `ms` or `s`. `delay` needs a `by`; `reorder` delays by a random time up to its `by`,
//! 20 us if it has none. `corrupt` flips one random bit, of the byte that is named or of any.
//!
//! ```text
//! drop 3rd rc-read-response
//! drop 1% of rc-send
//! duplicate psn 5 from node 0
//! delay 2nd ack by 100us
//! corrupt byte 60 of 1st write-only
//! ```

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ferroce_stack::time::Instant;
use ferroce_stack::wire::{HeaderSet, Kind, Position, Transport};

/// What a `reorder` without `by` delays at most.
const REORDER_NS: u64 = 20_000;

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What happens.
    pub action: Action,
    /// To which of the frames that match.
    pub which: Which,
    /// Frames that match: their class,
    pub class: Class,
    /// and what else must hold.
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
    /// One of its bits is flipped.
    Corrupt {
        /// Offset of the byte; any if none.
        byte: Option<usize>,
    },
}

/// Which of the matching frames a rule strikes.
#[derive(Clone, Debug, PartialEq)]
pub enum Which {
    /// Every one.
    All,
    /// Those, counted from 1.
    Nth(RangeInclusive<u64>),
    /// Each with this probability, 0 to 1.
    Chance(f64),
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
}

/// What must hold for a frame to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// This node sends it.
    From(usize),
    /// Its destination QP.
    ToQp(u32),
    /// Its PSN.
    Psn(RangeInclusive<u32>),
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
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleError { rule, column, word, expected } = self;
        match word.as_str() {
            "" => write!(f, "fault rule '{rule}' ends too early: expected {expected}"),
            _ => write!(f, "fault rule '{rule}', column {column}, '{word}': expected {expected}"),
        }
    }
}

impl std::error::Error for RuleError {}

impl Rule {
    /// `action` for each frame with this probability, 0 to 1.
    pub fn random(action: Action, probability: f64) -> Rule {
        let which = Which::Chance(probability);
        Rule { action, which, class: Class::default(), conditions: Vec::new() }
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

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Rule, RuleError> {
        let mut words = Words::new(rule);
        let mut action = words.action()?;
        let which = words.which()?;
        let class = words.class()?;
        let mut conditions = Vec::new();
        let mut has_by = false;
        while let Some(word) = words.next() {
            match word {
                "from" => conditions.push(Condition::From(words.labelled("node")? as usize)),
                "to" => conditions.push(Condition::ToQp(words.labelled("qp")? as u32)),
                "psn" => conditions.push(Condition::Psn(words.psns()?)),
                "after" => conditions.push(Condition::After(Instant::from_nanos(words.time()?))),
                "before" => conditions.push(Condition::Before(Instant::from_nanos(words.time()?))),
                "by" => match &mut action {
                    Action::Delay { nanos } | Action::Reorder { nanos } => {
                        *nanos = words.time()?;
                        has_by = true;
                    }
                    _ => return Err(words.error("'by' with 'delay' or 'reorder' only")),
                },
                _ => return Err(words.error("'from', 'to', 'psn', 'after', 'before' or 'by'")),
            }
        }
        if matches!(action, Action::Delay { .. }) && !has_by {
            words.next();
            return Err(words.error("'by' and a time"));
        }
        Ok(Rule { action, which, class, conditions })
    }
}

/// The words of a rule, and which was taken last.
struct Words<'a> {
    rule: &'a str,
    words: Vec<(usize, &'a str)>,
    taken: usize,
}

impl<'a> Words<'a> {
    fn new(rule: &'a str) -> Words<'a> {
        let offset = |word: &str| word.as_ptr() as usize - rule.as_ptr() as usize;
        let words = rule.split_whitespace().map(|word| (offset(word), word)).collect();
        Words { rule, words, taken: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.taken).map(|&(_, word)| word)
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.taken += 1;
        word
    }

    fn skip(&mut self, expected: &'static str, word: &str) -> Result<(), RuleError> {
        if self.next() == Some(word) { Ok(()) } else { Err(self.error(expected)) }
    }

    /// An error about the word taken last.
    fn error(&self, expected: &'static str) -> RuleError {
        let (offset, word) =
            self.words.get(self.taken - 1).copied().unwrap_or((self.rule.len(), ""));
        let column = self.rule[..offset].chars().count() + 1;
        RuleError { rule: self.rule.into(), column, word: word.into(), expected }
    }

    fn action(&mut self) -> Result<Action, RuleError> {
        Ok(match self.next() {
            Some("drop") => Action::Drop,
            Some("duplicate") => Action::Duplicate,
            Some("delay") => Action::Delay { nanos: 0 },
            Some("reorder") => Action::Reorder { nanos: REORDER_NS },
            Some("corrupt") if self.peek() == Some("byte") => {
                let byte = self.labelled("byte")?;
                self.skip("'of' after the byte's offset", "of")?;
                Action::Corrupt { byte: Some(byte as usize) }
            }
            Some("corrupt") => Action::Corrupt { byte: None },
            _ => {
                return Err(self.error("'drop', 'duplicate', 'delay', 'reorder' or 'corrupt'"));
            }
        })
    }

    fn which(&mut self) -> Result<Which, RuleError> {
        let Some(word) = self.peek().filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        else {
            return Ok(Which::All);
        };
        self.taken += 1;
        if let Some(percent) = word.strip_suffix('%') {
            let chance = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
            let chance: f64 = chance.ok_or_else(|| self.error("0% to 100%"))?;
            self.skip("'of' after the percentage", "of")?;
            return Ok(Which::Chance(chance / 100.0));
        }
        let range = parse_ordinals(word).filter(|range| *range.start() > 0 && !range.is_empty());
        range.map(Which::Nth).ok_or_else(|| self.error("'3rd', '2..4th', '2..' or '1%'"))
    }

    fn class(&mut self) -> Result<Class, RuleError> {
        match self.peek() {
            None | Some("from" | "to" | "psn" | "after" | "before" | "by") => Ok(Class::default()),
            Some(word) => {
                self.taken += 1;
                parse_class(word).ok_or_else(|| {
                    self.error("a class such as 'any', 'rc-send', 'read-response-last' or 'ack'")
                })
            }
        }
    }

    /// A number behind the word `label`.
    fn labelled(&mut self, label: &str) -> Result<u64, RuleError> {
        let expected = match label {
            "node" => "'node' and its number, from 0",
            "qp" => "'qp' and its number",
            _ => "'byte' and its offset in the frame",
        };
        self.skip(expected, label)?;
        let number = self.next().and_then(parse_number).filter(|&number| number < 1 << 24);
        number.ok_or_else(|| self.error(expected))
    }

    fn psns(&mut self) -> Result<RangeInclusive<u32>, RuleError> {
        let word = self.next().unwrap_or_default();
        let (first, last) = word.split_once("..").unwrap_or((word, word));
        let psn = |text| parse_number(text).filter(|&psn| psn < 1 << 24).map(|psn| psn as u32);
        let range = psn(first).zip(psn(last)).filter(|(first, last)| first <= last);
        range
            .map(|(first, last)| first..=last)
            .ok_or_else(|| self.error("a PSN or a range of them such as '5..7', below 0x1000000"))
    }

    /// Nanoseconds.
    fn time(&mut self) -> Result<u64, RuleError> {
        let word = self.next().unwrap_or_default();
        parse_time(word).ok_or_else(|| self.error("a time such as '100us', '1.5ms' or '1s'"))
    }
}

fn parse_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// `3rd`, `2..4th`, `2..`
fn parse_ordinals(word: &str) -> Option<RangeInclusive<u64>> {
    if let Some(first) = word.strip_suffix("..") {
        return Some(first.parse().ok()?..=u64::MAX);
    }
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|suffix| word.strip_suffix(suffix))?;
    let (first, last) = digits.split_once("..").unwrap_or((digits, digits));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

fn parse_time(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let number: f64 = digits.parse().ok().filter(|number| (0.0..1e9).contains(number))?;
    Some((number * unit).round() as u64)
}

fn parse_class(word: &str) -> Option<Class> {
    if word == "any" {
        return Some(Class::default());
    }
    let mut rest: Vec<&str> = word.split('-').collect();
    let transport = rest.first().and_then(|word| lookup(&TRANSPORTS, word));
    if transport.is_some() {
        rest.remove(0);
    }
    let suffix = rest.last().and_then(|word| lookup(&SUFFIXES, word));
    if suffix.is_some() {
        rest.pop();
    }
    let position = rest.last().and_then(|word| lookup(&POSITIONS, word));
    if position.is_some() {
        rest.pop();
    }
    let subject = match rest.join("-").as_str() {
        "" => None,
        word => Some(lookup(&SUBJECTS, word)?),
    };
    Some(Class { transport, subject, position, suffix })
}

fn lookup<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|&(_, value)| value)
}

const TRANSPORTS: [(&str, Transport); 5] = [
    ("rc", Transport::Rc),
    ("uc", Transport::Uc),
    ("ud", Transport::Ud),
    ("rd", Transport::Rd),
    ("xrc", Transport::Xrc),
];

const SUBJECTS: [(&str, Subject); 14] = [
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
    ("flush", Subject::Kind(Kind::Flush)),
    ("atomic-write", Subject::Kind(Kind::AtomicWrite)),
    ("cnp", Subject::Kind(Kind::Cnp)),
];

const POSITIONS: [(&str, Position); 4] = [
    ("first", Position::First),
    ("middle", Position::Middle),
    ("last", Position::Last),
    ("only", Position::Only),
];

const SUFFIXES: [(&str, HeaderSet); 2] = [("imm", HeaderSet::IMM_DT), ("inv", HeaderSet::IETH)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_mean_what_they_say() {
        let rule: Rule = "drop 2..4th rc-read-response-last from node 1".parse().unwrap();
        let class = Class {
            transport: Some(Transport::Rc),
            subject: Some(Subject::Kind(Kind::ReadResponse)),
            position: Some(Position::Last),
            suffix: None,
        };
        let conditions = vec![Condition::From(1)];
        assert_eq!(
            rule,
            Rule { action: Action::Drop, which: Which::Nth(2..=4), class, conditions }
        );

        let rule: Rule = "delay 2nd ack by 1.5us".parse().unwrap();
        assert_eq!(rule.action, Action::Delay { nanos: 1500 });
        assert_eq!(rule.class.subject, Some(Subject::Ack));

        let rule: Rule = "drop 2.5% of any".parse().unwrap();
        assert_eq!(rule, Rule::random(Action::Drop, 0.025));

        let rule: Rule = "corrupt byte 0x3c of 1st write-only-imm".parse().unwrap();
        assert_eq!(rule.action, Action::Corrupt { byte: Some(60) });
        assert_eq!(rule.class.suffix, Some(HeaderSet::IMM_DT));
    }

    #[test]
    fn errors_point_at_the_word() {
        let table = [
            ("", 1, ""),
            ("lose any", 1, "lose"),
            ("drop 3th rc-sned", 10, "rc-sned"),
            ("drop 0th any", 6, "0th"),
            ("drop 4..2th any", 6, "4..2th"),
            ("drop 101% of any", 6, "101%"),
            ("drop 1% any", 9, "any"),
            ("drop any psn 0x1000000", 14, "0x1000000"),
            ("drop any from qp 1", 15, "qp"),
            ("drop any by 1us", 10, "by"),
            ("delay any", 10, ""),
            ("delay any by 10", 14, "10"),
            ("corrupt byte 4 any", 16, "any"),
        ];
        for (text, column, word) in table {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!((error.column, error.word.as_str()), (column, word), "{error}");
        }
    }

    #[test]
    fn a_script_has_comments() {
        let rules = Rule::parse_all("# nothing\n\ndrop 1st any # the first\n").unwrap();
        assert_eq!(rules.len(), 1);
    }
}
