//! Which PSNs are missing, as far as is known, and which of them have been sent again.
//!
//! Up to `top` every PSN is either in a hole or has arrived. A hole that was sent again is still
//! missing, and not on its way any more, once something has arrived that left later.

use crate::psn::Psn;
use crate::wire::PsnRange;

/// Holes at a time; what would make more is not learned. A peer says what has arrived, and must
/// not make us keep more than that.
const MAX_HOLES: usize = 256;

/// The moment at which a hole was sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sending {
    /// Packets sent again before and with it.
    pub order: u64,
    /// The next PSN never sent before.
    pub next_psn: Psn,
}

/// Missing PSNs that follow each other.
#[derive(Clone, Copy, Debug)]
struct Hole {
    first: Psn,
    end: Psn,
    /// Those before it were sent again.
    resent: Psn,
    sending: Sending,
}

impl Hole {
    fn new(first: Psn, end: Psn) -> Hole {
        Hole { first, end, resent: first, sending: Sending::default() }
    }

    /// The part in `first..end`, if there is one.
    fn part(&self, first: Psn, end: Psn) -> Option<Hole> {
        let first = later(self.first, first);
        let end = if end.distance(self.end) < 0 { end } else { self.end };
        let resent = later(self.resent, first);
        let resent = if resent.distance(end) > 0 { end } else { resent };
        (end.distance(first) > 0).then_some(Hole { first, end, resent, ..*self })
    }
}

#[derive(Debug)]
pub(super) struct Holes {
    /// In order.
    list: Vec<Hole>,
    /// Nothing is known of it and what comes after it.
    top: Psn,
    /// The last packet sent again that has arrived.
    delivered: u64,
}

impl Holes {
    /// Nothing is missing, and nothing known from `top` on.
    pub fn new(top: Psn) -> Holes {
        Holes { list: Vec::new(), top, delivered: 0 }
    }

    /// Forgets what is missing: nothing is known from `top` on.
    pub fn forget(&mut self, top: Psn) {
        self.list.clear();
        self.top = top;
    }

    /// All before `psn` has arrived.
    pub fn arrived_before(&mut self, psn: Psn) {
        if self.list.first().is_some_and(|hole| psn.distance(hole.first) > 0) {
            let first = self.list[0].first;
            self.fill(first, psn);
        }
        self.top = later(self.top, psn);
    }

    /// A range has arrived; what is between it and all that was known is missing. Whether more is
    /// missing now.
    pub fn arrived(&mut self, range: PsnRange) -> bool {
        let end = range.first.advance(range.count);
        if self.list.len() + 2 > MAX_HOLES {
            return false;
        }
        let more = self.missing_before(range.first);
        self.fill(range.first, end);
        self.top = later(self.top, end);
        more
    }

    /// All that is not known before `psn` is missing. Whether that is anything.
    pub fn missing_before(&mut self, psn: Psn) -> bool {
        let more = psn.distance(self.top) > 0 && self.list.len() < MAX_HOLES;
        if more {
            self.list.push(Hole::new(self.top, psn));
            self.top = psn;
        }
        more
    }

    /// `first..end`, before all other holes, is missing and has to be sent again, whatever was
    /// known. Where the hole ends that begins there.
    pub fn reopen(&mut self, first: Psn, end: Psn) -> Psn {
        match self.list.first_mut() {
            Some(hole) if hole.first == first => hole.resent = first,
            _ => self.list.insert(0, Hole::new(first, end)),
        }
        self.top = later(self.top, end);
        self.list[0].end
    }

    fn fill(&mut self, first: Psn, end: Psn) {
        let touches = |hole: &Hole| hole.part(first, end).is_some();
        if !self.list.iter().any(touches) {
            return;
        }
        for hole in std::mem::take(&mut self.list) {
            let Some(filled) = hole.part(first, end) else {
                self.list.push(hole);
                continue;
            };
            if filled.resent != filled.first {
                self.delivered = self.delivered.max(filled.sending.order);
            }
            let rest = [hole.part(hole.first, first), hole.part(end, hole.end)];
            self.list.extend(rest.into_iter().flatten());
        }
    }

    /// Opens again what was sent again and lost again.
    pub fn find_lost_again(&mut self) {
        for hole in self.list.iter_mut().filter(|hole| hole.resent == hole.end) {
            let Sending { order, next_psn } = hole.sending;
            if self.delivered > order || self.top.distance(next_psn) > 0 {
                hole.resent = hole.first;
            }
        }
    }

    /// The first that is missing.
    pub fn first(&self) -> Option<Psn> {
        self.list.first().map(|hole| hole.first)
    }

    /// The next PSN to send again, and where its hole ends.
    pub fn next(&self) -> Option<(Psn, Psn)> {
        let hole = self.list.iter().find(|hole| hole.resent != hole.end)?;
        Some((hole.resent, hole.end))
    }

    /// All of the hole of [`next`](Self::next) was sent again before `psn`, or need not be.
    pub fn resent_before(&mut self, psn: Psn, sending: Sending) {
        if let Some(hole) = self.list.iter_mut().find(|hole| hole.resent != hole.end) {
            hole.resent = if psn.distance(hole.end) > 0 { hole.end } else { psn };
            hole.sending = sending;
        }
    }
}

fn later(a: Psn, b: Psn) -> Psn {
    if a.distance(b) > 0 { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, count: u32) -> PsnRange {
        PsnRange { first: Psn::new(first), count }
    }

    fn missing(holes: &Holes) -> Vec<(u32, u32)> {
        holes.list.iter().map(|hole| (hole.first.value(), hole.end.value())).collect()
    }

    /// Sends again all there is to send.
    fn resend(holes: &mut Holes, order: &mut u64, next_psn: u32) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some((psn, _)) = holes.next() {
            *order += 1;
            let sending = Sending { order: *order, next_psn: Psn::new(next_psn) };
            holes.resent_before(psn.advance(1), sending);
            sent.push(psn.value());
        }
        sent
    }

    #[test]
    fn only_what_has_not_arrived_is_missing_and_it_is_sent_again_once() {
        let (mut holes, mut order) = (Holes::new(Psn::new(10)), 0);
        assert!(holes.arrived(range(12, 2)));
        assert!(holes.arrived(range(15, 1)));
        assert!(!holes.arrived(range(12, 2)));
        assert_eq!(missing(&holes), [(10, 12), (14, 15)]);
        assert_eq!(resend(&mut holes, &mut order, 20), [10, 11, 14]);
        holes.find_lost_again();
        assert_eq!(holes.next(), None);
        holes.arrived(range(11, 1));
        assert_eq!(missing(&holes), [(10, 11), (14, 15)]);
        holes.arrived_before(Psn::new(14));
        assert_eq!(missing(&holes), [(14, 15)]);
        holes.arrived_before(Psn::new(30));
        assert_eq!((missing(&holes), holes.top), (vec![], Psn::new(30)));
    }

    #[test]
    fn what_left_later_and_has_arrived_shows_that_a_resent_packet_was_lost_again() {
        let (mut holes, mut order) = (Holes::new(Psn::new(0xff_ffff)), 0);
        holes.arrived(range(0, 1));
        holes.arrived(range(2, 1));
        assert_eq!(resend(&mut holes, &mut order, 5), [0xff_ffff, 1]);
        // Sent again after the first.
        holes.arrived(range(1, 1));
        holes.find_lost_again();
        assert_eq!(resend(&mut holes, &mut order, 5), [0xff_ffff]);
        // Sent before it was sent again, and after.
        holes.arrived(range(3, 2));
        holes.find_lost_again();
        assert_eq!(holes.next(), None);
        holes.arrived(range(5, 1));
        holes.find_lost_again();
        assert_eq!(resend(&mut holes, &mut order, 6), [0xff_ffff]);
    }

    #[test]
    fn holes_are_bounded() {
        let mut holes = Holes::new(Psn::new(0));
        for psn in 0..10_000 {
            holes.arrived(range(1 + 2 * psn, 1));
        }
        holes.missing_before(Psn::new(50_000));
        assert!(holes.list.len() <= MAX_HOLES);
        let mut wide = Holes::new(Psn::new(0));
        wide.missing_before(Psn::new(50_000));
        for psn in 0..10_000 {
            wide.arrived(range(1 + 2 * psn, 1));
        }
        assert!(wide.list.len() <= MAX_HOLES);
    }

    #[test]
    fn the_first_hole_can_be_opened_again() {
        let (mut holes, mut order) = (Holes::new(Psn::new(4)), 0);
        holes.arrived(range(7, 1));
        resend(&mut holes, &mut order, 8);
        assert_eq!(holes.reopen(Psn::new(4), Psn::new(5)), Psn::new(7));
        assert_eq!(resend(&mut holes, &mut order, 8), [4, 5, 6]);
        holes.arrived_before(Psn::new(8));
        assert_eq!(holes.reopen(Psn::new(8), Psn::new(9)), Psn::new(9));
        assert_eq!(resend(&mut holes, &mut order, 8), [8]);
    }
}
