//! QPs by number. The slot of a QP is the low part of its QPN; the rest changes each time the slot
//! is used again, so that late packets for a destroyed QP find nobody.

use std::collections::VecDeque;
use std::ops::Range;

use crate::qp::Qp;
use crate::verbs::Qpn;

/// Slot of the general services QP, whose number is always 1.
const GSI_SLOT: u32 = 0;

/// QPNs that may be given out: 0 and 1 are special and users expect two digits; the last is the
/// destination of multicast packets.
const ALLOWED: Range<u32> = 16..0xff_ffff;

#[derive(Debug)]
pub(crate) struct QpTable {
    slots: Vec<Option<Box<Qp>>>,
    /// Times each slot was used.
    uses: Vec<u32>,
    free: VecDeque<u32>,
    /// Slots there may be, a power of two.
    slot_count: u32,
    /// The QPN of slot 0 in its first use.
    first: u32,
    /// Times a slot is used before its first QPN comes back.
    generations: u32,
}

impl QpTable {
    /// A table for `capacity` QPs with numbers in `qpns`; fewer where the range is too short.
    pub fn new(capacity: usize, qpns: &Range<u32>) -> QpTable {
        let first = qpns.start.max(ALLOWED.start);
        let count = qpns.end.min(ALLOWED.end).saturating_sub(first).max(2);
        let most = 1 << count.ilog2();
        let wanted = (capacity + 1).clamp(2, 1 << 20).next_power_of_two() as u32;
        let slot_count = wanted.min(most);
        QpTable {
            slots: vec![None],
            uses: vec![0],
            free: VecDeque::new(),
            slot_count,
            first,
            generations: count / slot_count,
        }
    }

    /// The slot a QPN would be in.
    #[inline]
    pub fn slot_of(&self, qpn: Qpn) -> u32 {
        match qpn {
            Qpn::GSI => GSI_SLOT,
            Qpn(number) => number.wrapping_sub(self.first) & (self.slot_count - 1),
        }
    }

    #[inline]
    pub fn at(&mut self, slot: u32) -> Option<&mut Qp> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    #[inline]
    pub fn get(&self, qpn: Qpn) -> Option<&Qp> {
        let qp = self.slots.get(self.slot_of(qpn) as usize)?.as_deref()?;
        (qp.qpn == qpn).then_some(qp)
    }

    #[inline]
    pub fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        let slot = self.slot_of(qpn);
        let qp = self.at(slot)?;
        (qp.qpn == qpn).then_some(qp)
    }

    /// Stores the QP `make` builds from its number; `None` if there is no room.
    pub fn insert(&mut self, gsi: bool, make: impl FnOnce(Qpn) -> Qp) -> Option<Qpn> {
        if gsi {
            let slot = &mut self.slots[GSI_SLOT as usize];
            if slot.is_some() {
                return None;
            }
            *slot = Some(Box::new(make(Qpn::GSI)));
            return Some(Qpn::GSI);
        }
        let slot = if (self.slots.len() as u32) < self.slot_count {
            self.slots.push(None);
            self.uses.push(0);
            self.slots.len() as u32 - 1
        } else {
            self.free.pop_front()?
        };
        let generation = self.uses[slot as usize] % self.generations;
        self.uses[slot as usize] += 1;
        let qpn = Qpn(self.first + generation * self.slot_count + slot);
        self.slots[slot as usize] = Some(Box::new(make(qpn)));
        Some(qpn)
    }

    pub fn remove(&mut self, qpn: Qpn) -> Option<Box<Qp>> {
        self.get(qpn)?;
        let slot = self.slot_of(qpn);
        if slot != GSI_SLOT {
            self.free.push_back(slot);
        }
        self.slots[slot as usize].take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().filter_map(|slot| slot.as_deref())
    }

    /// QPNs of all QPs, in slot order.
    pub fn qpns(&self) -> Vec<Qpn> {
        self.iter().map(|qp| qp.qpn).collect()
    }
}
