//! Quantities as researchers write them: "100 Gbit/s", "1.5 us", "256 KiB", "1 %".

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use crate::near::did_you_mean;

/// A time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A share of a whole, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// More than can be sent by the end.
    Endless,
}

/// Some of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every one.
    All,
    /// Those in these ranges, in this order.
    Ranges(Vec<RangeInclusive<usize>>),
}

/// Names: one, or an array of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OneOrMany(pub Vec<String>);

/// Two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair(pub usize, pub usize);

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    // The micro sign, and the Greek letter that looks the same.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const RATES: &[(&str, u64)] = &[
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
    ("kb/s", 1_000),
    ("Mb/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("Tb/s", 1_000_000_000_000),
    ("kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("Tbps", 1_000_000_000_000),
];

/// A number and a unit: "1.5 us" is 1500 if "us" is 1000. What is finer than 1 is cut off.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at(end);
    let scale = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let fraction = match fraction.get(..fraction.len().min(18)) {
        Some("") | None => 0,
        Some(digits) => {
            let value = u128::from(digits.parse::<u64>().ok()?) * u128::from(scale);
            u64::try_from(value / 10_u128.pow(digits.len() as u32)).ok()?
        }
    };
    whole.checked_add(fraction)
}

/// What is the matter with a text that is no quantity, if that can be said; ends with a space.
fn fault(text: &str, units: &[(&str, u64)]) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let unit = text.trim_start_matches(is_number).trim();
    match () {
        () if text.starts_with('-') => "it cannot be negative; ".to_owned(),
        () if unit.len() == text.len() || units.iter().any(|(name, _)| *name == unit) => {
            String::new()
        }
        () if unit.is_empty() => "its unit is missing; ".to_owned(),
        () => {
            let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
            let near = did_you_mean(unit, &names);
            let end = if near.is_empty() { "; " } else { ": " };
            format!("no unit '{unit}'{end}{near}")
        }
    }
}

/// A parameter of a transport that counts in `unit`, from a text that has a unit of its own: 40000
/// kbit/s are 40 Mbit/s. `None` if the text is none, or does not come out even.
pub(super) fn in_unit(text: &str, unit: &str) -> Option<u64> {
    let units = [TIMES, SIZES, RATES]
        .into_iter()
        .find(|units| units.iter().any(|(name, _)| *name == unit))?;
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let value = quantity(text, units)?;
    value.is_multiple_of(scale).then_some(value / scale)
}

/// A value that one text, or one number, describes.
trait Quantity: Sized {
    /// What is right, for errors.
    const EXPECTED: &str;

    /// Units it may have.
    const UNITS: &[(&str, u64)];

    fn from_text(text: &str) -> Option<Self>;

    fn from_number(number: f64) -> Option<Self>;
}

/// Only 0 is the same in every unit.
fn zero(number: f64) -> Option<u64> {
    (number == 0.0).then_some(0)
}

impl Quantity for Time {
    const EXPECTED: &str = "a time with its unit, ns, us, ms or s, such as \"1.5 us\"";
    const UNITS: &[(&str, u64)] = TIMES;

    fn from_text(text: &str) -> Option<Time> {
        quantity(text, TIMES).map(Time)
    }

    fn from_number(number: f64) -> Option<Time> {
        zero(number).map(Time)
    }
}

impl Quantity for Size {
    const EXPECTED: &str =
        "a size in bytes, or with a unit, kB, MB, GB, KiB, MiB or GiB, such as \"256 KiB\"";
    const UNITS: &[(&str, u64)] = SIZES;

    fn from_text(text: &str) -> Option<Size> {
        quantity(text, SIZES).map(Size)
    }

    fn from_number(number: f64) -> Option<Size> {
        let is_right = (0.0..=(1_u64 << 53) as f64).contains(&number) && number.fract() == 0.0;
        is_right.then_some(Size(number as u64))
    }
}

impl Quantity for Rate {
    const EXPECTED: &str = "a rate with its unit, Mbit/s, Gbit/s or Tbit/s, such as \"100 Gbit/s\"";
    const UNITS: &[(&str, u64)] = RATES;

    fn from_text(text: &str) -> Option<Rate> {
        quantity(text, RATES).map(Rate)
    }

    fn from_number(number: f64) -> Option<Rate> {
        zero(number).map(Rate)
    }
}

impl Quantity for Share {
    const EXPECTED: &str = "a share from 0 to 1, or in percent, such as 0.01 or \"1 %\"";
    const UNITS: &[(&str, u64)] = &[];

    fn from_text(text: &str) -> Option<Share> {
        let percent = text.strip_suffix('%')?.trim_end().parse::<f64>().ok()?;
        Share::from_number(percent / 100.0)
    }

    fn from_number(number: f64) -> Option<Share> {
        (0.0..=1.0).contains(&number).then_some(Share(number))
    }
}

impl Quantity for Amount {
    const EXPECTED: &str = "a size such as \"1 MiB\", or \"endless\"";
    const UNITS: &[(&str, u64)] = SIZES;

    fn from_text(text: &str) -> Option<Amount> {
        match text {
            "endless" => Some(Amount::Endless),
            _ => Size::from_text(text).map(|size| Amount::Bytes(size.0)),
        }
    }

    fn from_number(number: f64) -> Option<Amount> {
        Size::from_number(number).map(|size| Amount::Bytes(size.0))
    }
}

impl Size {
    /// A size with its unit.
    pub fn parse(text: &str) -> Option<Size> {
        Size::from_text(text)
    }
}

/// Reads a [`Quantity`].
struct QuantityVisitor<Q>(PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for QuantityVisitor<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Q::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Q, E> {
        Q::from_text(text).ok_or_else(|| {
            let fault = match Q::UNITS {
                [] => String::new(),
                units => fault(text.trim(), units),
            };
            E::custom(format!("{text:?}: {fault}expected {}", Q::EXPECTED))
        })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Q, E> {
        let value = Q::from_number(number as f64);
        value.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Q, E> {
        let value = Q::from_number(number);
        value.ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

macro_rules! deserialize_quantity {
    ($($quantity:ty),*) => {
        $(impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(QuantityVisitor::<$quantity>(PhantomData))
            }
        })*
    };
}

deserialize_quantity!(Time, Size, Rate, Share, Amount);

impl Hosts {
    /// The hosts meant, of `count`; one is there twice if they are more than that, and those beyond
    /// are left out.
    ///
    /// # Errors
    /// With the number of one that is not there.
    pub fn resolve(&self, count: usize) -> Result<Vec<usize>, usize> {
        match self {
            Hosts::All => Ok((0..count).collect()),
            Hosts::Ranges(ranges) => {
                match ranges.iter().map(|range| *range.end()).find(|end| *end >= count) {
                    Some(missing) => Err(missing),
                    None => Ok(ranges.iter().cloned().flatten().take(count + 1).collect()),
                }
            }
        }
    }

    fn from_text(text: &str) -> Option<Hosts> {
        if text.trim() == "all" {
            return Some(Hosts::All);
        }
        text.split(',').map(range).collect::<Option<Vec<_>>>().map(Hosts::Ranges)
    }
}

/// "3", "h3", "0..3": both ends belong to it.
fn range(text: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (host(first)?, host(last)?);
    (first <= last).then_some(first..=last)
}

fn host(text: &str) -> Option<usize> {
    let text = text.trim();
    text.strip_prefix('h').unwrap_or(text).parse::<u32>().ok().map(|number| number as usize)
}

/// Reads [`Hosts`].
struct HostsVisitor;

impl<'de> Visitor<'de> for HostsVisitor {
    type Value = Hosts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "hosts: \"all\", one such as 3 or \"h3\", ranges such as \"0..3, 8\", or an array of \
             these",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Hosts, E> {
        Hosts::from_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Hosts, E> {
        match u32::try_from(number) {
            Ok(host) => Ok(Hosts::Ranges(vec![host as usize..=host as usize])),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Hosts, A::Error> {
        let mut ranges = Vec::new();
        while let Some(hosts) = items.next_element::<Hosts>()? {
            match hosts {
                Hosts::Ranges(some) => ranges.extend(some),
                Hosts::All => {
                    return Err(A::Error::custom(
                        "\"all\" in an array: expected hosts, or \"all\" alone",
                    ));
                }
            }
        }
        Ok(Hosts::Ranges(ranges))
    }
}

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hosts, D::Error> {
        from.deserialize_any(HostsVisitor)
    }
}

/// Reads a [`Pair`].
struct PairVisitor;

impl<'de> Visitor<'de> for PairVisitor {
    type Value = Pair;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two hosts, such as [1, 0] or [\"h1\", \"h0\"]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Pair, A::Error> {
        let mut hosts = Vec::new();
        while let Some(host) = items.next_element::<Hosts>()? {
            match host {
                Hosts::Ranges(ranges)
                    if ranges.len() == 1 && ranges[0].start() == ranges[0].end() =>
                {
                    hosts.push(*ranges[0].start());
                }
                _ => {
                    return Err(A::Error::custom(
                        "more than one host: expected two hosts, such as [1, 0] or \
                         [\"h1\", \"h0\"]",
                    ));
                }
            }
        }
        match hosts[..] {
            [from, to] => Ok(Pair(from, to)),
            _ => Err(A::Error::invalid_length(hosts.len(), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pair, D::Error> {
        from.deserialize_any(PairVisitor)
    }
}

/// Reads [`OneOrMany`].
struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name in quotes, or an array of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = items.next_element()? {
            names.push(name);
        }
        Ok(OneOrMany(names))
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OneOrMany, D::Error> {
        from.deserialize_any(NamesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_every_unit() {
        assert_eq!(Time::from_text("1.5 us"), Some(Time(1_500)));
        assert_eq!(Time::from_text("10ms"), Some(Time(10_000_000)));
        assert_eq!(Size::from_text("256 KiB"), Some(Size(262_144)));
        assert_eq!(Size::from_text("1_000 KB"), Some(Size(1_000_000)));
        assert_eq!(Rate::from_text("100 Gbit/s"), Some(Rate(100_000_000_000)));
        assert_eq!(Rate::from_text("2.5Gbps"), Some(Rate(2_500_000_000)));
        assert_eq!(Share::from_text("1 %"), Some(Share(0.01)));
        assert_eq!(Amount::from_text("endless"), Some(Amount::Endless));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "us", "1", "1.5.2 us", "1. us", ".5 us", "-1 us", "1 parsec", "1 ms ms"] {
            assert_eq!(Time::from_text(text), None, "{text}");
        }
        assert_eq!(Time::from_text("99999999999999999999 s"), None);
        assert_eq!(Time::from_text("18446744074 s"), None);
        assert_eq!(Share::from_text("101 %"), None);
        assert_eq!(Size::from_number(1.5), None);
    }

    #[test]
    fn a_long_fraction_is_cut_off() {
        assert_eq!(Time::from_text("1.0000000000000000000000009 s"), Some(Time(1_000_000_000)));
    }

    #[test]
    fn hosts_are_ranges_with_both_ends() {
        let hosts = Hosts::from_text("0..2, h5").unwrap();
        assert_eq!(hosts.resolve(6), Ok(vec![0, 1, 2, 5]));
        assert_eq!(hosts.resolve(5), Err(5));
        assert_eq!(Hosts::from_text("all").unwrap().resolve(2), Ok(vec![0, 1]));
        assert_eq!(Hosts::from_text("2..1"), None);
    }
}
