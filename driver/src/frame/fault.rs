//! Faults: what happens to frames on the way, by rules ([`rule`](super::rule)) and a seed.
//!
//! Every frame is shown to every rule, in order; the effects of all rules that strike add up. The
//! same seed and the same frames give the same faults.

mod damage;

use std::net::IpAddr;

use ferroce_stack::time::Instant;
use ferroce_stack::wire::{Headers, Kind, Mad, Net, OpcodeInfo, SyndromeKind, Transport};

pub use super::rule::{
    Action, Change, Class, Condition, Corruption, Field, Place, Rule, RuleError, Subject, Which,
};

use crate::rand::Rng;
use damage::Target;

/// The QP that management datagrams are for.
const GSI: u32 = 1;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// It does not arrive.
    pub dropped: bool,
    /// How many more times it arrives.
    pub duplicates: u32,
    /// How much later it arrives, in nanoseconds.
    pub delay_ns: u64,
    /// Bits of it have been changed.
    pub corrupted: bool,
    /// It says that it has met congestion.
    pub marked: bool,
    /// How many bytes shorter the frame is.
    pub cut: usize,
}

/// Between whom a frame is, as far as that is known where it is struck and does not stand in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The node that sends it.
    pub from: usize,
    /// The node it is for.
    pub to: Option<usize>,
    /// The QP that sends it. Packets of datagram services say it themselves; those of connected
    /// ones do not.
    pub source_qp: Option<u32>,
}

impl Way {
    /// Of a frame that this node sends; nothing else is known.
    pub const fn from(node: usize) -> Way {
        Way { from: node, to: None, source_qp: None }
    }
}

/// Rules at work.
#[derive(Clone, Debug)]
pub struct Injector {
    rules: Vec<Working>,
    rng: Rng,
}

/// A rule, and what it has seen.
#[derive(Clone, Debug)]
struct Working {
    rule: Rule,
    /// Frames that have matched.
    matches: u64,
    /// Frames of a burst still to strike.
    burst_left: u64,
}

impl Working {
    fn new(rule: Rule) -> Working {
        Working { rule, matches: 0, burst_left: 0 }
    }

    /// Whether the rule strikes another frame that matches.
    fn strikes(&mut self, rng: &mut Rng) -> bool {
        self.matches += 1;
        let matches = self.matches;
        match &self.rule.which {
            Which::All => true,
            Which::Nth(range) => range.contains(&matches),
            Which::Every { nth, burst } => {
                matches >= *nth && matches.checked_rem(*nth).is_some_and(|rest| rest < *burst)
            }
            Which::Chance(probability) => rng.chance(*probability),
            Which::Bursts { share, len } => {
                // So often that the bursts make up the share, with the gaps between them.
                let often = share / (share + *len as f64 * (1.0 - share));
                if self.burst_left == 0 && rng.chance(often) {
                    self.burst_left = *len;
                }
                let strikes = self.burst_left > 0;
                self.burst_left = self.burst_left.saturating_sub(1);
                strikes
            }
        }
    }
}

impl Injector {
    /// An injector of `rules`, its chances decided by `seed`.
    pub fn new(rules: impl IntoIterator<Item = Rule>, seed: u64) -> Injector {
        Injector { rules: rules.into_iter().map(Working::new).collect(), rng: Rng::new(seed) }
    }

    /// Adds a rule; it counts matches from here on.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(Working::new(rule));
    }

    /// Forgets all rules: from here on frames arrive as they are sent.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Decides about a frame, and changes it where a rule says so. Of one that is cut short,
    /// the last [`Fate::cut`] bytes are no part any more.
    pub fn strike(&mut self, now: Instant, way: Way, frame: &mut [u8]) -> Fate {
        let mut fate = Fate::default();
        if self.rules.is_empty() {
            return fate;
        }
        let mut target = Target::new(frame);
        let sighting = Sighting::new(now, way, &target);
        for working in &mut self.rules {
            let action = working.rule.action;
            let matches = target.takes(action) && sighting.matches(&working.rule);
            if matches && working.strikes(&mut self.rng) {
                apply(action, &mut self.rng, &mut target, &mut fate);
            }
        }
        fate
    }
}

fn apply(action: Action, rng: &mut Rng, target: &mut Target, fate: &mut Fate) {
    match action {
        Action::Drop => fate.dropped = true,
        Action::Duplicate => fate.duplicates = fate.duplicates.saturating_add(1),
        Action::Delay { nanos } => fate.delay_ns = fate.delay_ns.saturating_add(nanos),
        Action::Reorder { nanos } => {
            let late = rng.below(nanos.saturating_add(1));
            fate.delay_ns = fate.delay_ns.saturating_add(late);
        }
        Action::Corrupt(what) => fate.corrupted |= target.corrupt(&what, rng),
        Action::MarkCe => fate.marked |= target.mark_ce(),
        Action::Truncate { bytes, icrc_fixed } => fate.cut += target.truncate(bytes, icrc_fixed),
    }
}

/// A frame as rules see it: as it was before the first of them struck.
struct Sighting {
    now: Instant,
    way: Way,
    headers: Option<Headers>,
    /// Of a management datagram.
    mad: Option<Mad>,
}

impl Sighting {
    fn new(now: Instant, way: Way, target: &Target) -> Sighting {
        let headers = target.headers().copied();
        let is_mad = |headers: &&Headers| {
            headers.bth.dest_qp == GSI && headers.bth.opcode.transport() == Some(Transport::Ud)
        };
        let payload = headers.as_ref().filter(is_mad).and_then(|_| target.payload());
        let mad = payload.map(|bytes: &[u8; Mad::LEN]| Mad::parse(bytes));
        Sighting { now, way, headers, mad }
    }

    fn matches(&self, rule: &Rule) -> bool {
        self.is_in_class(rule.class) && rule.conditions.iter().all(|when| self.meets(when))
    }

    fn meets(&self, condition: &Condition) -> bool {
        let bth = self.headers.as_ref().map(|headers| &headers.bth);
        match condition {
            Condition::FromNode(node) => self.way.from == *node,
            Condition::ToNode(node) => self.way.to == Some(*node),
            Condition::Outgoing => self.way.from == 0,
            Condition::Incoming => self.way.from != 0,
            Condition::FromAddress(address) => {
                self.addresses().is_some_and(|[from, _]| from == *address)
            }
            Condition::ToAddress(address) => self.addresses().is_some_and(|[_, to]| to == *address),
            Condition::FromQp(qpn) => self.source_qp() == Some(*qpn),
            Condition::ToQp(qpn) => bth.is_some_and(|bth| bth.dest_qp == *qpn),
            Condition::Psn(psns) => bth.is_some_and(|bth| psns.contains(&bth.psn.value())),
            Condition::Opcode(codes) => bth.is_some_and(|bth| codes.contains(&bth.opcode.0)),
            Condition::After(moment) => self.now >= *moment,
            Condition::Before(moment) => self.now < *moment,
        }
    }

    /// Source and destination.
    fn addresses(&self) -> Option<[IpAddr; 2]> {
        Some(match self.headers.as_ref()?.net {
            Net::V4(ip) => [IpAddr::V4(ip.src), IpAddr::V4(ip.dst)],
            Net::V6(ip) | Net::V1(ip) => {
                [ip.src, ip.dst].map(|address| IpAddr::V6(address).to_canonical())
            }
        })
    }

    fn source_qp(&self) -> Option<u32> {
        let deth = self.headers.as_ref().and_then(|headers| headers.ext.deth);
        deth.map(|deth| deth.src_qp).or(self.way.source_qp)
    }

    fn is_in_class(&self, class: Class) -> bool {
        if class == Class::default() {
            return true;
        }
        let Some(headers) = &self.headers else { return false };
        let Some(info) = headers.bth.opcode.info() else { return false };
        let subject = class.subject.is_none_or(|subject| self.is_subject(subject, info, headers));
        let suffix = class.suffix.is_none_or(|suffix| info.headers.has(suffix));
        class.transport.is_none_or(|transport| transport == info.transport)
            && class.position.is_none_or(|position| position == info.position)
            && subject
            && suffix
    }

    fn is_subject(&self, subject: Subject, info: &OpcodeInfo, headers: &Headers) -> bool {
        let answer = || headers.ext.aeth.map(|aeth| aeth.syndrome.kind());
        let message = || self.mad.and_then(|mad| mad.cm_message());
        match subject {
            Subject::Kind(kind) => info.kind == kind,
            Subject::Ack => {
                info.kind == Kind::Acknowledge && matches!(answer(), Some(SyndromeKind::Ack { .. }))
            }
            Subject::Nak => matches!(answer(), Some(SyndromeKind::Nak(_))),
            Subject::RnrNak => matches!(answer(), Some(SyndromeKind::RnrNak { .. })),
            Subject::Cm(None) => message().is_some(),
            Subject::Cm(kind) => message() == kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_stack::psn::Psn;
    use ferroce_stack::wire::{
        Aeth, Bth, Ethernet, Extensions, Ipv4, Mac, Opcode, Syndrome, Udp, seal,
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
        frames.map(|mut frame| injector.strike(Instant::ZERO, Way::from(0), &mut frame).dropped)
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
        assert_eq!(dropped("drop any to node 1", row()), [false; 3]);
        assert_eq!(dropped("drop outgoing from 10.0.0.1 to 10.0.0.2", row()), [true; 3]);
        assert_eq!(dropped("drop any from 10.0.0.2", row()), [false; 3]);
        assert_eq!(dropped("drop opcode rc-send-only psn 6", row()), [false, false, true]);
        assert_eq!(dropped("drop opcode 0x05..0xff", row()), [false; 3]);
        assert_eq!(dropped("drop any after 1ns", row()), [false; 3]);
        assert_eq!(dropped("drop any before 1ns", row()), [true; 3]);
    }

    #[test]
    fn corruption_changes_one_bit() {
        let original = frame(Opcode::RC_SEND_ONLY, 0, None);
        for rule in ["corrupt any", "corrupt byte 20 of 1st send", "corrupt psn of send"] {
            let mut damaged = original.clone();
            assert!(injector(rule).strike(Instant::ZERO, Way::from(0), &mut damaged).corrupted);
            let bits = original.iter().zip(&damaged).map(|(a, b)| (a ^ b).count_ones());
            assert_eq!(bits.sum::<u32>(), 1, "{rule}");
        }
    }

    #[test]
    fn rows_of_frames_are_struck_every_so_often() {
        let send = || frame(Opcode::RC_SEND_ONLY, 0, None);
        let row = || [(); 8].map(|()| send());
        let every = |rule| dropped(rule, row()).map(u8::from);
        assert_eq!(every("drop every 3rd any"), [0, 0, 1, 0, 0, 1, 0, 0]);
        assert_eq!(every("drop every 4th any in bursts of 2"), [0, 0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(every("drop every 1st any in bursts of 2"), [1; 8]);
    }

    #[test]
    fn bursts_make_up_the_share_in_rows_of_their_length() {
        let mut injector = injector("drop 10% of any in bursts of 4");
        let mut frame = frame(Opcode::RC_SEND_ONLY, 0, None);
        let mut strike = || injector.strike(Instant::ZERO, Way::from(0), &mut frame).dropped;
        let row: Vec<bool> = (0..10_000).map(|_| strike()).collect();
        let lost = row.iter().filter(|&&lost| lost).count();
        assert!((800..1200).contains(&lost), "{lost}");
        let lengths = row.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len);
        let ended: Vec<usize> = lengths.take(20).collect();
        assert!(ended.iter().all(|len| len % 4 == 0), "{ended:?}");
        for (rule, all) in [("0%", false), ("100%", true)] {
            let rule = format!("drop {rule} of any in bursts of 3");
            assert_eq!(dropped(&rule, [(); 5].map(|()| send_only())), [all; 5]);
        }
    }

    fn send_only() -> Vec<u8> {
        frame(Opcode::RC_SEND_ONLY, 0, None)
    }

    #[test]
    fn a_source_qp_is_that_of_the_frame_or_of_who_sends_it() {
        let strike = |rule: &str, source_qp| {
            let way = Way { source_qp, ..Way::default() };
            injector(rule).strike(Instant::ZERO, way, &mut send_only()).dropped
        };
        assert!(strike("drop from qp 0x20", Some(0x20)));
        assert!(!strike("drop from qp 0x20", Some(0x21)) && !strike("drop from qp 0x20", None));
    }

    #[test]
    fn chances_follow_the_seed() {
        let run = |seed| {
            let mut injector = Injector::new(["drop 50% of any".parse().unwrap()], seed);
            let mut frame = frame(Opcode::RC_SEND_ONLY, 0, None);
            let fates =
                (0..64).map(|_| injector.strike(Instant::ZERO, Way::from(0), &mut frame).dropped);
            fates.collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
