//! Objects by handle. A handle is `index << 8 | variant`; the variant changes each time a slot is
//! used again, so a handle or key that outlived its object finds nothing (IBA 10.6.3.3).

use std::collections::VecDeque;

/// Slots a table may hold: an index has 24 bits, and index 0 is never used.
const MAX_SLOTS: usize = (1 << 24) - 1;

/// A slot rests until this many others are free, so that its 256 variants last longer.
const RESTING: usize = 16;

#[derive(Debug)]
struct Slot<T> {
    variant: u8,
    value: Option<T>,
}

/// A table of `T` by 32-bit handle.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    capacity: usize,
}

impl<T> Table<T> {
    /// An empty table for at most `capacity` objects.
    pub fn new(capacity: usize) -> Table<T> {
        Table { slots: Vec::new(), free: VecDeque::new(), capacity: capacity.min(MAX_SLOTS) }
    }

    /// Objects in the table.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores the object `make` builds from its handle; `None` if the table is full.
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        if self.len() >= self.capacity {
            return None;
        }
        let room = self.slots.len() < MAX_SLOTS;
        let index = if self.free.len() > RESTING || !room {
            self.free.pop_front()?
        } else {
            self.slots.push(Slot { variant: 0, value: None });
            self.slots.len() as u32
        };
        let slot = &mut self.slots[index as usize - 1];
        slot.variant = slot.variant.wrapping_add(1);
        let handle = index << 8 | u32::from(slot.variant);
        slot.value = Some(make(handle));
        Some(handle)
    }

    /// Stores `value`; `None` if the table is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        self.insert_with(|_| value)
    }

    /// The object with exactly this handle.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<&T> {
        let slot = self.slots.get((handle >> 8).wrapping_sub(1) as usize)?;
        if slot.variant != handle as u8 {
            return None;
        }
        slot.value.as_ref()
    }

    /// The object with exactly this handle, to change.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut((handle >> 8).wrapping_sub(1) as usize)?;
        if slot.variant != handle as u8 {
            return None;
        }
        slot.value.as_mut()
    }

    /// Takes the object out; its handle is dead from now on.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        self.get(handle)?;
        let value = self.slots[(handle >> 8) as usize - 1].value.take();
        self.free.push_back(handle >> 8);
        value
    }

    /// Gives the object a new variant and so a new handle, chosen by the caller.
    pub fn rename(&mut self, handle: u32, variant: u8) -> Option<u32> {
        self.get(handle)?;
        self.slots[(handle >> 8) as usize - 1].variant = variant;
        Some(handle & !0xff | u32::from(variant))
    }

    /// All objects with their handles, by index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().zip(1u32..).filter_map(|(slot, index)| {
            slot.value.as_ref().map(|value| (index << 8 | u32::from(slot.variant), value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_handle_finds_nothing() {
        let mut table = Table::new(100);
        let first = table.insert('a').unwrap();
        assert_eq!(table.remove(first), Some('a'));
        assert_eq!(table.get(first), None);
        let mut recent = VecDeque::from([first]);
        for _ in 0..5000 {
            let handle = table.insert('b').unwrap();
            assert!(!recent.contains(&handle), "{handle:#x} came back at once");
            table.remove(handle);
            recent.push_back(handle);
            if recent.len() > 4000 {
                recent.pop_front();
            }
        }
    }

    #[test]
    fn capacity_holds() {
        let mut table = Table::new(2);
        assert!(table.insert(1).is_some());
        let second = table.insert(2).unwrap();
        assert_eq!(table.insert(3), None);
        table.remove(second);
        assert!(table.insert(4).is_some());
        assert_eq!(table.len(), 2);
    }
}
