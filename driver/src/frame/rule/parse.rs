//! Rules from text, word by word.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ferroce_stack::time::Instant;
use ferroce_stack::wire::{HeaderSet, Opcode, Position, Suffix};

use super::words::{POSITIONS, SUBJECTS, SUFFIXES, TRANSPORTS, value};
use super::{
    Action, Change, Class, Condition, Corruption, Field, Place, Rule, RuleError, Subject, Which,
};

/// What a `reorder` without `by` delays at most.
const REORDER_NS: u64 = 20_000;

/// Numbers of bytes, nodes and QPs are below this.
const NUMBER_MAX: u64 = 1 << 24;

const ACTIONS: [&str; 7] = ["drop", "duplicate", "delay", "reorder", "corrupt", "mark", "truncate"];

/// The words that begin what stands behind the class.
const TAILS: [&str; 11] =
    ["from", "to", "psn", "opcode", "after", "before", "outgoing", "incoming", "in", "by", "with"];

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Rule, RuleError> {
        let mut words = Words::new(rule);
        let mut action = words.action()?;
        let which = words.which()?;
        let class = words.class()?;
        let mut rule = Rule { action, which, class, conditions: Vec::new() };
        let mut has_by = false;
        while let Some(word) = words.next() {
            match word {
                "by" => {
                    words.amount(&mut action)?;
                    has_by = true;
                }
                "with" => words.icrc(&mut action)?,
                "in" => words.bursts(&mut rule.which)?,
                word => rule.conditions.push(words.condition(word)?),
            }
        }
        let needed = match action {
            Action::Delay { .. } => "'by' and a time",
            Action::Truncate { .. } => "'by', a number and 'bytes'",
            _ => "",
        };
        if !needed.is_empty() && !has_by {
            words.next();
            return Err(words.error(needed));
        }
        Ok(Rule { action, ..rule })
    }
}

/// The words of a rule, and how many have been taken.
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
        self.error_near(expected, [])
    }

    /// An error about the word taken last, which may have been meant to be one of `right`.
    fn error_near(
        &self,
        expected: &'static str,
        right: impl IntoIterator<Item = &'static str>,
    ) -> RuleError {
        let (offset, word) =
            self.words.get(self.taken - 1).copied().unwrap_or((self.rule.len(), ""));
        let column = self.rule[..offset].chars().count() + 1;
        let likeness = |right: &&'static str| strsim::jaro_winkler(right, word);
        let nearest = right.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let nearest = nearest.filter(|right| likeness(right) > 0.8);
        RuleError { rule: self.rule.into(), column, word: word.into(), expected, nearest }
    }

    fn action(&mut self) -> Result<Action, RuleError> {
        Ok(match self.next() {
            Some("drop") => Action::Drop,
            Some("duplicate") => Action::Duplicate,
            Some("delay") => Action::Delay { nanos: 0 },
            Some("reorder") => Action::Reorder { nanos: REORDER_NS },
            Some("corrupt") => Action::Corrupt(self.corruption()?),
            Some("mark") => {
                self.skip("'ce' after 'mark'", "ce")?;
                Action::MarkCe
            }
            Some("truncate") => Action::Truncate { bytes: 0, icrc_fixed: false },
            _ => {
                let expected =
                    "'drop', 'duplicate', 'delay', 'reorder', 'corrupt', 'mark ce' or 'truncate'";
                return Err(self.error_near(expected, ACTIONS));
            }
        })
    }

    /// What is corrupted, up to its `of`; without one, a bit of all.
    fn corruption(&mut self) -> Result<Corruption, RuleError> {
        let ahead = &self.words[self.taken..];
        let is_of = |at: usize| ahead.get(at).is_some_and(|&(_, word)| word == "of");
        // As in "corrupt 5% of any", "corrupt psn of any" and "corrupt psn to 5 of any".
        let names_place = match ahead.first() {
            Some(&(_, "byte")) => true,
            Some(&(_, word)) if is_ordinal(word) || word == "every" => false,
            Some(&(_, word)) => {
                is_of(1) || is_of(3) || Field::ALL.iter().any(|field| field.name() == word)
            }
            None => false,
        };
        // A field that is also a class, or the first word of a condition, needs its "of" to be one.
        let is_other = |word: &str| TAILS.contains(&word) || parse_class(word).is_some();
        let has_of = is_of(1) || is_of(3);
        if !names_place || !has_of && self.peek().is_some_and(is_other) {
            return Ok(Corruption::ANY_BIT);
        }
        let (place, bits) = self.place()?;
        let mut what = Corruption::of(place);
        if self.peek() == Some("to") {
            self.taken += 1;
            let value = self.next().and_then(parse_number);
            let fits = |value: &u64| bits >= u64::BITS || value >> bits == 0;
            let value = value.filter(fits).ok_or_else(|| self.error(too_wide(bits)))?;
            what.change = Change::To(value);
        }
        self.skip("'of' after what is corrupted", "of")?;
        Ok(what)
    }

    /// A place, and how many bits a value for it may have.
    fn place(&mut self) -> Result<(Place, u32), RuleError> {
        let word = self.next().unwrap_or_default();
        if word == "byte" {
            let place = match self.peek() {
                Some("of" | "to") => Place::AnyByte,
                _ => {
                    self.taken -= 1;
                    Place::Byte(self.labelled("byte")? as usize)
                }
            };
            return Ok((place, u8::BITS));
        }
        let field = Field::ALL.iter().copied().find(|field| field.name() == word);
        field.map(|field| (Place::Field(field), field.value_bits())).ok_or_else(|| {
            let expected = "'byte' or a field such as 'psn', 'rkey', 'dma-length' or 'payload'";
            self.error_near(expected, Field::ALL.iter().map(|field| field.name()))
        })
    }

    fn which(&mut self) -> Result<Which, RuleError> {
        if self.peek() == Some("every") {
            self.taken += 1;
            let nth = self.next().and_then(parse_ordinals);
            let nth = nth.filter(|range| *range.start() > 0 && range.start() == range.end());
            let nth = nth.ok_or_else(|| self.error("an ordinal after 'every', such as '10th'"))?;
            return Ok(Which::Every { nth: *nth.start(), burst: 1 });
        }
        let Some(word) = self.peek().filter(|word| is_ordinal(word)) else {
            return Ok(Which::All);
        };
        self.taken += 1;
        if let Some(percent) = word.strip_suffix('%') {
            let chance = percentage(percent).filter(|chance| (0.0..=1.0).contains(chance));
            let chance = chance.ok_or_else(|| self.error("0% to 100%"))?;
            self.skip("'of' after the percentage", "of")?;
            return Ok(Which::Chance(chance));
        }
        let range = parse_ordinals(word).filter(|range| *range.start() > 0 && !range.is_empty());
        range.map(Which::Nth).ok_or_else(|| self.error("'3rd', '2..4th', '2..' or '1%'"))
    }

    fn class(&mut self) -> Result<Class, RuleError> {
        match self.peek() {
            None => Ok(Class::default()),
            Some(word) if TAILS.contains(&word) => Ok(Class::default()),
            Some(word) => {
                self.taken += 1;
                parse_class(word).ok_or_else(|| {
                    let expected =
                        "a class such as 'any', 'rc-send', 'read-response-last' or 'ack'";
                    self.error_near(expected, SUBJECTS.iter().map(|&(word, _)| word))
                })
            }
        }
    }

    fn condition(&mut self, word: &str) -> Result<Condition, RuleError> {
        Ok(match word {
            "outgoing" => Condition::Outgoing,
            "incoming" => Condition::Incoming,
            "from" => match self.peek() {
                Some("node") => Condition::FromNode(self.labelled("node")? as usize),
                Some("qp") => Condition::FromQp(self.labelled("qp")? as u32),
                _ => Condition::FromAddress(self.address()?),
            },
            "to" => match self.peek() {
                Some("node") => Condition::ToNode(self.labelled("node")? as usize),
                Some("qp") => Condition::ToQp(self.labelled("qp")? as u32),
                _ => Condition::ToAddress(self.address()?),
            },
            "psn" => Condition::Psn(self.psns()?),
            "opcode" => Condition::Opcode(self.opcodes()?),
            "after" => Condition::After(Instant::from_nanos(self.time()?)),
            "before" => Condition::Before(Instant::from_nanos(self.time()?)),
            _ => {
                let expected = "'from', 'to', 'outgoing', 'incoming', 'psn', 'opcode', 'after', \
                                'before', 'in', 'by' or 'with'";
                return Err(self.error_near(expected, TAILS));
            }
        })
    }

    /// What stands behind `by`.
    fn amount(&mut self, action: &mut Action) -> Result<(), RuleError> {
        match action {
            Action::Delay { nanos } | Action::Reorder { nanos } => *nanos = self.time()?,
            Action::Truncate { bytes, .. } => {
                let expected = "a number of bytes from 1, and 'bytes', after 'by'";
                let number = self.next().and_then(parse_number);
                let number = number.filter(|number| (1..NUMBER_MAX).contains(number));
                *bytes = number.ok_or_else(|| self.error(expected))? as usize;
                self.skip(expected, "bytes")?;
            }
            Action::Corrupt(Corruption {
                change: change @ (Change::Flip | Change::By(_)), ..
            }) => {
                let number = self.next().and_then(parse_signed);
                let expected = "what to add, such as '1', '-1' or '0x10'";
                *change = Change::By(number.ok_or_else(|| self.error(expected))?);
            }
            Action::Corrupt(_) => return Err(self.error("no 'by' after a 'to' and its value")),
            Action::Drop | Action::Duplicate | Action::MarkCe => {
                return Err(
                    self.error("'by' with 'delay', 'reorder', 'truncate' or 'corrupt' only")
                );
            }
        }
        Ok(())
    }

    /// What stands behind `with`.
    fn icrc(&mut self, action: &mut Action) -> Result<(), RuleError> {
        let icrc_fixed = match action {
            Action::Corrupt(Corruption { icrc_fixed, .. })
            | Action::Truncate { icrc_fixed, .. } => icrc_fixed,
            _ => return Err(self.error("'with' after 'corrupt' or 'truncate' only")),
        };
        self.skip("'icrc fixed' after 'with'", "icrc")?;
        self.skip("'fixed' after 'icrc'", "fixed")?;
        *icrc_fixed = true;
        Ok(())
    }

    /// What stands behind `in`.
    fn bursts(&mut self, which: &mut Which) -> Result<(), RuleError> {
        let expected = "'bursts of' and a number from 1 after 'in'";
        if !matches!(which, Which::Every { .. } | Which::Chance(_) | Which::Bursts { .. }) {
            return Err(self.error("'in bursts of' with 'every' or a percentage only"));
        }
        self.skip(expected, "bursts")?;
        self.skip(expected, "of")?;
        let number = self.next().and_then(parse_number).filter(|&number| number > 0);
        let number = number.ok_or_else(|| self.error(expected))?;
        match which {
            Which::Every { burst, .. } => *burst = number,
            Which::Chance(share) => *which = Which::Bursts { share: *share, len: number },
            Which::Bursts { len, .. } => *len = number,
            Which::All | Which::Nth(_) => {}
        }
        Ok(())
    }

    /// A number behind the word `label`.
    fn labelled(&mut self, label: &str) -> Result<u64, RuleError> {
        let expected = match label {
            "node" => "'node' and its number, from 0",
            "qp" => "'qp' and its number",
            _ => "'byte' and its offset in the frame",
        };
        self.skip(expected, label)?;
        let number = self.next().and_then(parse_number).filter(|&number| number < NUMBER_MAX);
        number.ok_or_else(|| self.error(expected))
    }

    fn address(&mut self) -> Result<IpAddr, RuleError> {
        let address = self.next().and_then(|word| word.parse().ok());
        let address = address.map(|address: IpAddr| address.to_canonical());
        address.ok_or_else(|| {
            self.error_near("'node' or 'qp' and a number, or an IP address", ["node", "qp"])
        })
    }

    fn psns(&mut self) -> Result<RangeInclusive<u32>, RuleError> {
        let psn = |word: &str| parse_number(word).filter(|&psn| psn < 1 << 24);
        let range = parse_range(self.next().unwrap_or_default(), psn);
        range
            .map(|(first, last)| first as u32..=last as u32)
            .ok_or_else(|| self.error("a PSN or a range of them such as '5..7', below 0x1000000"))
    }

    fn opcodes(&mut self) -> Result<RangeInclusive<u8>, RuleError> {
        let code = |word: &str| {
            let number = parse_number(word).and_then(|code| u8::try_from(code).ok());
            number.or_else(|| parse_opcode(word).map(|opcode| opcode.0))
        };
        parse_range(self.next().unwrap_or_default(), code)
            .map(|(first, last)| first..=last)
            .ok_or_else(|| {
                self.error("an opcode such as '0x0a' or 'rc-write-only', or a range '0x00..0x05'")
            })
    }

    /// Nanoseconds.
    fn time(&mut self) -> Result<u64, RuleError> {
        let word = self.next().unwrap_or_default();
        parse_time(word).ok_or_else(|| self.error("a time such as '100us', '1.5ms' or '1s'"))
    }
}

fn is_ordinal(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// What would be right for a value of so many bits.
fn too_wide(bits: u32) -> &'static str {
    match bits {
        1 => "0 or 1",
        2 => "a value from 0 to 3",
        3 => "a value from 0 to 7",
        4 => "a value from 0 to 15",
        6 => "a value from 0 to 63",
        8 => "a value from 0 to 0xff",
        12 => "a value from 0 to 0xfff",
        16 => "a value from 0 to 0xffff",
        20 => "a value from 0 to 0xfffff",
        24 => "a value from 0 to 0xffffff",
        32 => "a value from 0 to 0xffffffff",
        48 => "a value from 0 to 0xffffffffffff",
        _ => "a value of at most 64 bits",
    }
}

fn parse_number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

fn parse_signed(word: &str) -> Option<i64> {
    let (is_negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let number = i128::from(parse_number(digits)?);
    i64::try_from(if is_negative { -number } else { number }).ok()
}

/// One, or the first and the last of several.
fn parse_range<T: PartialOrd + Copy>(
    word: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<(T, T)> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    parse(first).zip(parse(last)).filter(|(first, last)| first <= last)
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

/// The share that so many percent are: the number that is nearest to the decimal fraction.
pub(super) fn percentage(digits: &str) -> Option<f64> {
    let (digits, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    format!("{digits}e{}", exponent.checked_sub(2)?).parse().ok()
}

fn parse_time(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let number: f64 = digits.parse().ok().filter(|number| (0.0..1e9).contains(number))?;
    Some((number * unit as f64).round() as u64)
}

fn parse_class(word: &str) -> Option<Class> {
    if word == "any" {
        return Some(Class::default());
    }
    // As the standard names them.
    let word = word.replace("rdma-", "").replace("atomic-acknowledge", "atomic-ack");
    let word = word.replace("with-immediate", "imm").replace("with-invalidate", "inv");
    let word = word.replace("cmpswap", "cmp-swap").replace("fetchadd", "fetch-add");
    let mut rest: Vec<&str> = word.split('-').collect();
    let transport = rest.first().and_then(|word| value(&TRANSPORTS, word));
    if transport.is_some() {
        rest.remove(0);
    }
    let suffix = rest.last().and_then(|word| value(&SUFFIXES, word));
    if suffix.is_some() {
        rest.pop();
    }
    let position = rest.last().and_then(|word| value(&POSITIONS, word));
    if position.is_some() {
        rest.pop();
    }
    let subject = match rest.join("-").as_str() {
        "" => None,
        word => Some(value(&SUBJECTS, word)?),
    };
    Some(Class { transport, subject, position, suffix })
}

/// The one opcode that a class names.
fn parse_opcode(word: &str) -> Option<Opcode> {
    if word == "cnp" {
        return Some(Opcode::CNP);
    }
    let Class { transport, subject, position, suffix } = parse_class(word)?;
    let suffix = match suffix {
        None => Suffix::None,
        Some(HeaderSet::IMM_DT) => Suffix::Immediate,
        Some(_) => Suffix::Invalidate,
    };
    let Some(Subject::Kind(kind)) = subject else { return None };
    Opcode::encode(transport?, kind, position.unwrap_or(Position::Only), suffix)
}
