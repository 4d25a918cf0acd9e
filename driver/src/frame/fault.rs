//! Faults: what happens to frames on the way, by rules ([`rule`](super::rule)) and a seed.
//!
//! Every frame is shown to every rule, in order; the effects of all rules that strike add up. The
//! same seed and the same frames give the same faults.

use ferroce_stack::time::Instant;
use ferroce_stack::wire::{Headers, Kind, OpcodeInfo, SyndromeKind};

pub use super::rule::{Action, Class, Condition, Rule, RuleError, Subject, Which};

use crate::rand::Rng;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It does not arrive.
    pub dropped: bool,
    /// How many more times it arrives.
    pub duplicates: u32,
    /// How much later it arrives, in nanoseconds.
    pub delay_ns: u64,
    /// Bits of it have been flipped.
    pub corrupted: bool,
}

/// Rules at work.
#[derive(Clone, Debug)]
pub struct Injector {
    /// Each with how many frames have matched it.
    rules: Vec<(Rule, u64)>,
    rng: Rng,
}

impl Injector {
    /// An injector of `rules`, its chances decided by `seed`.
    pub fn new(rules: impl IntoIterator<Item = Rule>, seed: u64) -> Injector {
        let rules = rules.into_iter().map(|rule| (rule, 0)).collect();
        Injector { rules, rng: Rng::new(seed) }
    }

    /// Adds a rule; it counts matches from here on.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push((rule, 0));
    }

    /// Forgets all rules: from here on frames arrive as they are sent.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Decides about a frame that `node` sends, and damages it where a rule says so.
    pub fn strike(&mut self, now: Instant, node: usize, frame: &mut [u8]) -> Fate {
        let mut fate = Fate::default();
        if self.rules.is_empty() {
            return fate;
        }
        let sighting = Sighting::new(now, node, frame);
        for (rule, matches) in &mut self.rules {
            if !sighting.matches(rule) {
                continue;
            }
            *matches += 1;
            let strikes = match &rule.which {
                Which::All => true,
                Which::Nth(range) => range.contains(matches),
                Which::Chance(probability) => self.rng.chance(*probability),
            };
            if strikes {
                apply(rule.action, &mut self.rng, frame, &mut fate);
            }
        }
        fate
    }
}

fn apply(action: Action, rng: &mut Rng, frame: &mut [u8], fate: &mut Fate) {
    match action {
        Action::Drop => fate.dropped = true,
        Action::Duplicate => fate.duplicates += 1,
        Action::Delay { nanos } => fate.delay_ns += nanos,
        Action::Reorder { nanos } => fate.delay_ns += rng.below(nanos.saturating_add(1)),
        Action::Corrupt { byte } => {
            let at = byte.unwrap_or_else(|| rng.below(frame.len() as u64) as usize);
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << rng.below(8);
                fate.corrupted = true;
            }
        }
    }
}

/// A frame as rules see it.
struct Sighting {
    now: Instant,
    node: usize,
    headers: Option<Headers>,
}

impl Sighting {
    fn new(now: Instant, node: usize, frame: &[u8]) -> Sighting {
        Sighting { now, node, headers: Headers::parse(frame).ok().map(|(headers, _)| headers) }
    }

    fn matches(&self, rule: &Rule) -> bool {
        self.is_in_class(rule.class) && rule.conditions.iter().all(|when| self.meets(when))
    }

    fn meets(&self, condition: &Condition) -> bool {
        let bth = self.headers.as_ref().map(|headers| &headers.bth);
        match condition {
            Condition::From(node) => self.node == *node,
            Condition::ToQp(qpn) => bth.is_some_and(|bth| bth.dest_qp == *qpn),
            Condition::Psn(psns) => bth.is_some_and(|bth| psns.contains(&bth.psn.value())),
            Condition::After(moment) => self.now >= *moment,
            Condition::Before(moment) => self.now < *moment,
        }
    }

    fn is_in_class(&self, class: Class) -> bool {
        if class == Class::default() {
            return true;
        }
        let Some(headers) = &self.headers else { return false };
        let Some(info) = headers.bth.opcode.info() else { return false };
        let subject = class.subject.is_none_or(|subject| is_subject(subject, info, headers));
        let suffix = class.suffix.is_none_or(|suffix| info.headers.has(suffix));
        class.transport.is_none_or(|transport| transport == info.transport)
            && class.position.is_none_or(|position| position == info.position)
            && subject
            && suffix
    }
}

fn is_subject(subject: Subject, info: &OpcodeInfo, headers: &Headers) -> bool {
    let answer = || headers.ext.aeth.map(|aeth| aeth.syndrome.kind());
    match subject {
        Subject::Kind(kind) => info.kind == kind,
        Subject::Ack => {
            info.kind == Kind::Acknowledge && matches!(answer(), Some(SyndromeKind::Ack { .. }))
        }
        Subject::Nak => matches!(answer(), Some(SyndromeKind::Nak(_))),
        Subject::RnrNak => matches!(answer(), Some(SyndromeKind::RnrNak { .. })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_stack::psn::Psn;
    use ferroce_stack::wire::{
        Aeth, Bth, Ethernet, Extensions, Ipv4, Mac, Net, Opcode, Syndrome, Udp, seal,
    };

    fn frame(opcode: Opcode, psn: u32, syndrome: Option<Syndrome>) -> Vec<u8> {
        let ip = Ipv4 {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            tos: 0,
            ident: 0,
            dont_fragment: true,
            ttl: 64,
        };
        let bth = Bth::new(opcode, 0x11, Psn::new(psn));
        let headers = Headers {
            eth: Ethernet { dst: Mac::default(), src: Mac::default(), vlan: None },
            net: Net::V4(ip),
            udp: Udp { source_port: 49_152, checksum: 0 },
            bth,
            ext: Extensions {
                aeth: syndrome.map(|syndrome| Aeth { syndrome, msn: 0 }),
                ..Extensions::default()
            },
        };
        let mut frame = vec![0; 200];
        let layout = headers.emit(0, &mut frame).unwrap();
        let len = seal(&mut frame, &layout, 0);
        frame.truncate(len);
        frame
    }

    fn injector(rule: &str) -> Injector {
        Injector::new([rule.parse().unwrap()], 1)
    }

    /// Whether each of a row of frames is dropped.
    fn dropped<const N: usize>(rule: &str, frames: [Vec<u8>; N]) -> [bool; N] {
        let mut injector = injector(rule);
        frames.map(|mut frame| injector.strike(Instant::ZERO, 0, &mut frame).dropped)
    }

    #[test]
    fn counts_only_what_matches() {
        let send = || frame(Opcode::RC_SEND_ONLY, 0, None);
        let read = || frame(Opcode::RC_READ_RESPONSE_MIDDLE, 0, None);
        let row = || [read(), send(), read(), send(), read(), send()];
        assert_eq!(
            dropped("drop 2nd rc-read-response", row()),
            [false, false, true, false, false, false]
        );
        assert_eq!(dropped("drop 2..3rd send", row()), [false, false, false, true, false, true]);
        assert_eq!(dropped("drop 6th any", row()), [false, false, false, false, false, true]);
        assert_eq!(dropped("drop uc", row()), [false; 6]);
    }

    #[test]
    fn acks_and_naks_are_told_apart() {
        let ack = |syndrome| frame(Opcode::RC_ACKNOWLEDGE, 7, Some(syndrome));
        let nak = Syndrome::nak(ferroce_stack::wire::NakCode::PsnSequence);
        let row = || [ack(Syndrome::ACK), ack(nak), ack(Syndrome::rnr_nak(1))];
        assert_eq!(dropped("drop ack", row()), [true, false, false]);
        assert_eq!(dropped("drop nak", row()), [false, true, false]);
        assert_eq!(dropped("drop rnr-nak", row()), [false, false, true]);
        assert_eq!(dropped("drop rc-acknowledge psn 7", row()), [true; 3]);
    }

    #[test]
    fn conditions_narrow() {
        let send = |psn| frame(Opcode::RC_SEND_ONLY, psn, None);
        let row = || [send(4), send(5), send(6)];
        assert_eq!(dropped("drop psn 5", row()), [false, true, false]);
        assert_eq!(dropped("drop psn 5..6 to qp 0x11", row()), [false, true, true]);
        assert_eq!(dropped("drop any from node 1", row()), [false; 3]);
        assert_eq!(dropped("drop any after 1ns", row()), [false; 3]);
        assert_eq!(dropped("drop any before 1ns", row()), [true; 3]);
    }

    #[test]
    fn corruption_changes_one_bit() {
        let original = frame(Opcode::RC_SEND_ONLY, 0, None);
        for rule in ["corrupt any", "corrupt byte 20 of 1st send"] {
            let mut damaged = original.clone();
            assert!(injector(rule).strike(Instant::ZERO, 0, &mut damaged).corrupted);
            let bits = original.iter().zip(&damaged).map(|(a, b)| (a ^ b).count_ones());
            assert_eq!(bits.sum::<u32>(), 1, "{rule}");
        }
    }

    #[test]
    fn chances_follow_the_seed() {
        let run = |seed| {
            let mut injector = Injector::new(["drop 50% of any".parse().unwrap()], seed);
            let mut frame = frame(Opcode::RC_SEND_ONLY, 0, None);
            let fates = (0..64).map(|_| injector.strike(Instant::ZERO, 0, &mut frame).dropped);
            fates.collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
