//! Which members a frame is for: a pure function of its destination and who is in the fabric.

use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::Qpn;

use super::registry::{Entry, MEMBERS, Wanted};

/// QPNs below this are not a member's own.
pub(super) const RESERVED_QPNS: u32 = 16;

/// A set of members' slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots([u64; MEMBERS / 64]);

impl Slots {
    /// Nobody.
    pub const NONE: Slots = Slots([0; MEMBERS / 64]);

    /// Adds a slot.
    #[inline]
    pub fn insert(&mut self, slot: u8) {
        self.0[usize::from(slot / 64)] |= 1 << (slot % 64);
    }

    /// Whether a slot is in it.
    pub fn contains(&self, slot: u8) -> bool {
        self.0[usize::from(slot / 64)] & 1 << (slot % 64) != 0
    }

    /// Whether no slot is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        *self == Slots::NONE
    }

    /// The slots, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..self.0.len()).flat_map(move |word| {
            let mut bits = self.0[word];
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.checked_sub(1)?;
                Some(word as u8 * 64 + bit as u8)
            })
        })
    }
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the member that asks.
    Own,
    /// To another member.
    Member(u8),
    /// To each of these, which may include the member that asks, or be none.
    Members(Slots),
    /// To nobody in the fabric.
    Unreachable,
}

/// Where a frame to a QP goes. `members` is indexed by slot, `own` is who asks.
#[inline]
pub(super) fn route(members: &[Entry], own: u8, destination: Gid, qpn: Qpn) -> Route {
    if destination.is_multicast() {
        // Groups are not looked at: a member drops what none of its QPs has attached to.
        return Route::Members(wanting(members, Wanted::Multicast));
    }
    let slot = if qpn == Qpn::GSI {
        general_services(members, destination)
    } else if qpn.0 < RESERVED_QPNS {
        None
    } else {
        // A QPN's high bits are the slot of the member that made it.
        u8::try_from(qpn.0 >> 16)
            .ok()
            .filter(|&slot| members.get(usize::from(slot)).is_some_and(|to| to.has(destination)))
    };
    match slot {
        Some(slot) if slot == own => Route::Own,
        Some(slot) => Route::Member(slot),
        None => Route::Unreachable,
    }
}

/// The members that want such frames.
#[cold]
pub(super) fn wanting(members: &[Entry], wanted: Wanted) -> Slots {
    let mut slots = Slots::NONE;
    for (slot, member) in (0..=u8::MAX).zip(members) {
        if member.wants(wanted) {
            slots.insert(slot);
        }
    }
    slots
}

/// The member that answers on QP1 of a device: the first one that is on it. Of several, the
/// content of the datagram will have to choose; that belongs here.
#[cold]
fn general_services(members: &[Entry], destination: Gid) -> Option<u8> {
    (0..=u8::MAX).zip(members).find(|(_, member)| member.has(destination)).map(|(slot, _)| slot)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ferroce_stack::wire::Mac;

    use super::*;

    fn gid(last: u8) -> Gid {
        Gid::from(Ipv4Addr::new(10, 0, 0, last))
    }

    /// Slots 1 and 2 share a device, 200 has another and wants multicast, as does 2.
    fn members() -> Vec<Entry> {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut members = vec![Entry::VACANT; MEMBERS];
        members[1] = Entry::member(&[(gid(9), mac), (gid(1), mac)], Wanted::Foreign as u64);
        members[2] = Entry::member(&[(gid(9), mac), (gid(1), mac)], Wanted::Multicast as u64);
        members[200] =
            Entry::member(&[(gid(2), mac)], Wanted::Multicast as u64 | Wanted::Foreign as u64);
        members
    }

    #[test]
    fn by_qpn_and_gid() {
        let table = [
            (gid(1), 0x01_0010, Route::Member(1)),
            (gid(9), 0x01_ffff, Route::Member(1)),
            (gid(1), 0x02_0000, Route::Own),
            (gid(2), 0xc8_1234, Route::Member(200)),
            // Not a GID of that member, no such member, no member's QPN, no QPN.
            (gid(2), 0x01_0010, Route::Unreachable),
            (gid(1), 0x03_0010, Route::Unreachable),
            (gid(1), 0, Route::Unreachable),
            (gid(1), 2, Route::Unreachable),
            (gid(1), 0x0101_0010, Route::Unreachable),
            (gid(1), 0xff_ffff, Route::Unreachable),
            (gid(3), 1, Route::Unreachable),
        ];
        for (destination, qpn, expected) in table {
            assert_eq!(route(&members(), 2, destination, Qpn(qpn)), expected, "{qpn:#x}");
        }
    }

    #[test]
    fn general_services_go_to_the_first_member_of_the_device() {
        assert_eq!(route(&members(), 2, gid(1), Qpn::GSI), Route::Member(1));
        assert_eq!(route(&members(), 1, gid(1), Qpn::GSI), Route::Own);
        assert_eq!(route(&members(), 2, gid(2), Qpn::GSI), Route::Member(200));
    }

    #[test]
    fn multicast_goes_to_all_who_want_it() {
        let group = Gid::from(Ipv4Addr::new(239, 1, 1, 1));
        let Route::Members(slots) = route(&members(), 2, group, Qpn::MULTICAST) else {
            panic!("not a set");
        };
        assert_eq!(slots.iter().collect::<Vec<_>>(), [2, 200]);
        let foreign = wanting(&members(), Wanted::Foreign);
        assert_eq!(foreign.iter().collect::<Vec<_>>(), [1, 200]);
    }

    #[test]
    fn a_set_of_slots() {
        let mut slots = Slots::NONE;
        assert!(slots.is_empty());
        for slot in [255, 0, 63, 64, 7] {
            slots.insert(slot);
        }
        assert_eq!(slots.iter().collect::<Vec<_>>(), [0, 7, 63, 64, 255]);
    }
}
