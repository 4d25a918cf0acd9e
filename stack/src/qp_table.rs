//! QPs by number. The slot of a QP is the low part of its QPN; the rest changes each time the slot
//! is used again, so that late packets for a destroyed QP find nobody.

use std::collections::VecDeque;

use crate::qp::Qp;
use crate::verbs::Qpn;

/// Slot of the general services QP, whose number is always 1.
const GSI_SLOT: u32 = 0;

/// QPNs below this one are not given out: 0 and 1 are special, and users expect two digits.
const FIRST_QPN: u32 = 16;

#[derive(Debug)]
pub(crate) struct QpTable {
    slots: Vec<Option<Box<Qp>>>,
    /// Times each slot was used.
    uses: Vec<u32>,
    free: VecDeque<u32>,
    /// Slots there may be, a power of two.
    slot_count: u32,
}

impl QpTable {
    /// A table for at least `capacity` QPs, at most 2^20.
    pub fn new(capacity: usize) -> QpTable {
        let slot_count = (capacity + 1).clamp(2, 1 << 20).next_power_of_two() as u32;
        QpTable { slots: vec![None], uses: vec![0], free: VecDeque::new(), slot_count }
    }

    /// The slot a QPN would be in.
    #[inline]
    pub fn slot_of(&self, qpn: Qpn) -> u32 {
        match qpn {
            Qpn::GSI => GSI_SLOT,
            Qpn(number) => number.wrapping_sub(FIRST_QPN) & (self.slot_count - 1),
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
        // The last generation would run into the multicast QPN.
        let generations = ((1 << 24) - FIRST_QPN) / self.slot_count - 1;
        let generation = self.uses[slot as usize] % generations.max(1);
        self.uses[slot as usize] += 1;
        let qpn = Qpn(FIRST_QPN + generation * self.slot_count + slot);
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
