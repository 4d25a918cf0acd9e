//! Which members a frame is for: a pure function of its destination, who is in the fabric and,
//! where several processes share the general services QP of a device, of who listens for what.

use std::cmp::Reverse;
use std::net::Ipv4Addr;

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::{MAD_LEN, Message, Req, SidrReq};
use ferroce_stack::mad::{IpHeader, ServiceId};
use ferroce_stack::verbs::Qpn;
use ferroce_stack::wire::{
    Bth, CmMessage, Deth, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, Mad, ROCE_PORT,
};

use super::ports::Listens;
use super::registry::{CONNECTIONS, Entry, MEMBERS};

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

    /// The slots of both.
    #[inline]
    pub fn union(self, other: Slots) -> Slots {
        Slots(std::array::from_fn(|word| self.0[word] | other.0[word]))
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
    /// Out of the fabric, by the link of the member that asks.
    Link,
    /// To nobody.
    Unreachable,
}

/// Where a frame to a QP goes, other than to [`Qpn::GSI`] or a group. `members` is indexed by
/// slot, `own` is who asks.
#[inline]
pub(super) fn route(members: &[Entry], own: u8, destination: Gid, qpn: Qpn) -> Route {
    if qpn.0 < RESERVED_QPNS {
        return Route::Unreachable;
    }
    // A QPN's high bits are the slot of the member that made it.
    let slot = u8::try_from(qpn.0 >> 16)
        .ok()
        .filter(|&slot| members.get(usize::from(slot)).is_some_and(|to| to.has(destination)));
    to_slot(slot, own)
}

/// The way to the member in a slot.
#[inline]
pub(super) fn to_slot(slot: Option<u8>, own: u8) -> Route {
    match slot {
        Some(slot) if slot == own => Route::Own,
        Some(slot) => Route::Member(slot),
        None => Route::Unreachable,
    }
}

/// The members that say this of themselves.
#[cold]
pub(super) fn saying(members: &[Entry], flag: u64) -> Slots {
    all(members, |member| member.says(flag))
}

fn all(members: &[Entry], is_one: impl Fn(&Entry) -> bool) -> Slots {
    let mut slots = Slots::NONE;
    for (slot, _) in (0..=u8::MAX).zip(members).filter(|(_, member)| is_one(member)) {
        slots.insert(slot);
    }
    slots
}

/// Which of the processes of a device a datagram to its QP1 is for, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    /// Who listens for a service, at this address if it names one.
    Listener {
        /// Service ID.
        service: u64,
        /// Where the sender has connected to.
        address: Option<Gid>,
    },
    /// The member in this slot: its communication IDs begin with it.
    Slot(u8),
    /// Whoever has a request that its sender takes back without knowing who that is.
    Holder,
    /// Any of them.
    Anybody,
}

impl Addressee {
    /// That of a datagram, which may be cut off or anything at all.
    pub fn of(datagram: &[u8]) -> Addressee {
        // Message and, in requests, the data behind it.
        const DATA: usize = Mad::LEN;
        const SERVICE: usize = DATA + 8;
        const REQ_PRIVATE: usize = DATA + Req::PRIVATE_DATA;
        const SIDR_PRIVATE: usize = DATA + SidrReq::PRIVATE_DATA;
        let Some(mad) = datagram.get(..MAD_LEN) else { return Addressee::Anybody };
        match Mad::parse(mad).cm_message() {
            Some(CmMessage::Req) => listener(&mad[SERVICE..], &mad[REQ_PRIVATE..]),
            Some(CmMessage::SidrReq) => listener(&mad[SERVICE..], &mad[SIDR_PRIVATE..]),
            Some(CmMessage::SidrRep) => slot_of(&mad[DATA..]),
            Some(CmMessage::Rej) if mad[DATA + 4..DATA + 8] == [0; 4] => Addressee::Holder,
            Some(CmMessage::ClassPortInfo) | None => Addressee::Anybody,
            Some(_) => slot_of(&mad[DATA + 4..]),
        }
    }
}

/// The slot of the receiver's communication or request ID.
fn slot_of(id: &[u8]) -> Addressee {
    Addressee::Slot(id[0])
}

/// The listener of a request with a service ID and private data.
fn listener(service: &[u8], private_data: &[u8]) -> Addressee {
    let service = u64::from_be_bytes(std::array::from_fn(|at| service[at]));
    let header = ServiceId(service).space().and_then(|_| IpHeader::parse(private_data));
    Addressee::Listener { service, address: header.map(|header| Gid::from_ip(header.destination)) }
}

/// To whom a datagram to QP1 of a device goes. `listens` says how the member in a slot listens
/// for the request that it is.
pub(super) fn general_services(
    members: &[Entry],
    own: u8,
    destination: Gid,
    addressee: Addressee,
    mut listens: impl FnMut(u8) -> Option<Listens>,
) -> Route {
    let on_device =
        |slot: &u8| members.get(usize::from(*slot)).is_some_and(|to| to.has(destination));
    let answers = |slot: &u8| on_device(slot) && members[usize::from(*slot)].says(CONNECTIONS);
    let named = match addressee {
        Addressee::Listener { .. } => (0..=u8::MAX)
            .filter(on_device)
            .filter_map(|slot| Some((listens(slot)?, Reverse(slot))))
            .max()
            .map(|(_, Reverse(slot))| slot),
        Addressee::Slot(slot) => Some(slot).filter(on_device),
        Addressee::Holder => {
            let answers = |member: &Entry| member.has(destination) && member.says(CONNECTIONS);
            return Route::Members(all(members, answers));
        }
        Addressee::Anybody => None,
    };
    // Who answers says that there is no such service or connection.
    let anybody = || {
        let mut slots = 0..=u8::MAX;
        slots.clone().find(answers).or_else(|| slots.find(on_device))
    };
    to_slot(named.or_else(anybody), own)
}

/// Destination GID and QPN of a RoCE frame, and what is behind the BTH and DETH of a datagram;
/// `None` for any other. Raw packets are whatever the application makes them: whether one is right
/// in all else, the receiver finds out.
#[inline]
pub fn destination(frame: &[u8]) -> Option<(Gid, Qpn, &[u8])> {
    let half =
        |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let net = if half(12)? == 0x8100 { 18 } else { 14 };
    let is_udp = |protocol: usize, udp: usize| {
        frame.get(protocol) == Some(&17) && half(udp + 2) == Some(ROCE_PORT)
    };
    let (gid, bth) = match half(net - 2)? {
        ETHERTYPE_IPV4 if is_udp(net + 9, net + 20) => {
            let address: [u8; 4] = frame.get(net + 16..net + 20)?.try_into().ok()?;
            (Gid::from(Ipv4Addr::from(address)), net + 20 + 8)
        }
        ETHERTYPE_IPV6 if is_udp(net + 6, net + 40) => {
            (Gid(frame.get(net + 24..net + 40)?.try_into().ok()?), net + 40 + 8)
        }
        ETHERTYPE_ROCE_V1 => (Gid(frame.get(net + 24..net + 40)?.try_into().ok()?), net + 40),
        _ => return None,
    };
    let qpn = frame.get(bth + 5..bth + 8)?;
    let datagram = frame.get(bth + Bth::LEN + Deth::LEN..).unwrap_or_default();
    Some((gid, Qpn(u32::from_be_bytes([0, qpn[0], qpn[1], qpn[2]])), datagram))
}

#[cfg(test)]
mod tests {
    use ferroce_stack::wire::Mac;

    use super::*;
    use crate::fabric::registry::FOREIGN;

    fn gid(last: u8) -> Gid {
        Gid::from(Ipv4Addr::new(10, 0, 0, last))
    }

    /// Slots 1 and 2 share a device, 200 has another.
    fn members() -> Vec<Entry> {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut members = vec![Entry::VACANT; MEMBERS];
        members[1] = Entry::member(&[(gid(9), mac), (gid(1), mac)], FOREIGN);
        members[2] = Entry::member(&[(gid(9), mac), (gid(1), mac)], 0);
        members[200] = Entry::member(&[(gid(2), mac)], FOREIGN);
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
            (gid(3), 0x01_0010, Route::Unreachable),
        ];
        for (destination, qpn, expected) in table {
            assert_eq!(route(&members(), 2, destination, Qpn(qpn)), expected, "{qpn:#x}");
        }
    }

    /// A datagram of connection management with `data` at each place.
    fn datagram(message: CmMessage, data: &[(usize, &[u8])]) -> Vec<u8> {
        let mut mad = vec![0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, Mad::COMMUNICATION, 2, 3]);
        mad[16..18].copy_from_slice(&message.attribute_id().to_be_bytes());
        for (at, bytes) in data {
            mad[Mad::LEN + at..][..bytes.len()].copy_from_slice(bytes);
        }
        mad
    }

    fn ip_header(destination: &str) -> [u8; IpHeader::LEN] {
        let header = IpHeader {
            source: "10.0.0.7".parse().unwrap(),
            source_port: 40_000,
            destination: destination.parse().unwrap(),
        };
        let mut bytes = [0; IpHeader::LEN];
        header.emit(&mut bytes);
        bytes
    }

    #[test]
    fn datagrams_say_which_process_they_are_for() {
        type M = CmMessage;
        let service = 0x0106_4d2b_u64;
        let id: (usize, &[u8]) = (4, &[200, 1, 2, 3]);
        let wire = service.to_be_bytes();
        let to = |destination: &str| {
            let address =
                (!destination.is_empty()).then(|| Gid::from_ip(destination.parse().unwrap()));
            Addressee::Listener { service, address }
        };
        let (v4, v6) = (ip_header("10.0.0.1"), ip_header("fd00::9"));
        let raw = 0x1000_0000_0000_0042_u64;
        let table = [
            (datagram(M::Req, &[(8, &wire), (140, &v4)]), to("10.0.0.1")),
            (datagram(M::Req, &[(8, &wire), (140, &v6)]), to("fd00::9")),
            (datagram(M::SidrReq, &[(8, &wire), (16, &v4)]), to("10.0.0.1")),
            // No such header: the service alone.
            (datagram(M::Req, &[(8, &wire), (140, &[0xff; 36])]), to("")),
            (
                datagram(M::Req, &[(8, &raw.to_be_bytes()), (140, &v4)]),
                Addressee::Listener { service: raw, address: None },
            ),
            (datagram(M::Rep, &[id]), Addressee::Slot(200)),
            (datagram(M::Rtu, &[id]), Addressee::Slot(200)),
            (datagram(M::Mra, &[id]), Addressee::Slot(200)),
            (datagram(M::Rej, &[id]), Addressee::Slot(200)),
            (datagram(M::Dreq, &[id]), Addressee::Slot(200)),
            (datagram(M::Drep, &[id]), Addressee::Slot(200)),
            (datagram(M::Lap, &[id]), Addressee::Slot(200)),
            (datagram(M::Apr, &[id]), Addressee::Slot(200)),
            (datagram(M::SidrRep, &[(0, &[7, 0, 0, 1])]), Addressee::Slot(7)),
            (datagram(M::Rej, &[(0, &[7, 0, 0, 1])]), Addressee::Holder),
            (datagram(M::ClassPortInfo, &[]), Addressee::Anybody),
            (datagram(M::Req, &[])[..255].to_vec(), Addressee::Anybody),
            (vec![3; 256], Addressee::Anybody),
            (Vec::new(), Addressee::Anybody),
        ];
        for (row, (datagram, expected)) in table.into_iter().enumerate() {
            assert_eq!(Addressee::of(&datagram), expected, "row {row}");
        }
    }

    /// Slots 1, 2, 3 and 0 share a device; of them 2 and 3 answer on QP1, and 200 on another.
    fn servers() -> Vec<Entry> {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut members = vec![Entry::VACANT; MEMBERS];
        for (slot, flags) in [(0, 0), (1, 0), (2, CONNECTIONS), (3, CONNECTIONS)] {
            members[slot] = Entry::member(&[(gid(1), mac)], flags);
        }
        members[200] = Entry::member(&[(gid(2), mac)], CONNECTIONS);
        members[201] = Entry::member(&[(gid(3), mac)], 0);
        members
    }

    fn services(destination: Gid, addressee: Addressee, listeners: &[(u8, Listens)]) -> Route {
        let listens = |slot| listeners.iter().find(|(at, _)| *at == slot).map(|(_, how)| *how);
        general_services(&servers(), 2, destination, addressee, listens)
    }

    #[test]
    fn requests_go_to_who_listens() {
        let request = Addressee::Listener { service: 5, address: None };
        let check = |destination, listeners: &[(u8, Listens)], expected| {
            assert_eq!(services(destination, request, listeners), expected, "{listeners:?}");
        };
        check(gid(1), &[(3, Listens::Anywhere)], Route::Member(3));
        check(gid(1), &[(2, Listens::There)], Route::Own);
        check(gid(1), &[(1, Listens::Anywhere), (3, Listens::There)], Route::Member(3));
        check(gid(1), &[(1, Listens::There), (3, Listens::There)], Route::Member(1));
        // Nobody: who can say so says so.
        check(gid(1), &[], Route::Own);
        // A listener of another device is none.
        check(gid(2), &[(3, Listens::There)], Route::Member(200));
        check(gid(4), &[(3, Listens::There)], Route::Unreachable);
    }

    #[test]
    fn all_else_goes_to_whose_connection_it_is() {
        let table = [
            (gid(1), Addressee::Slot(3), Route::Member(3)),
            (gid(1), Addressee::Slot(0), Route::Member(0)),
            (gid(1), Addressee::Slot(2), Route::Own),
            // Not of this device, nobody's.
            (gid(1), Addressee::Slot(200), Route::Own),
            (gid(2), Addressee::Slot(9), Route::Member(200)),
            (gid(1), Addressee::Anybody, Route::Own),
            // Nobody answers there: the first one drops it.
            (gid(3), Addressee::Anybody, Route::Member(201)),
        ];
        for (row, (destination, addressee, expected)) in table.into_iter().enumerate() {
            assert_eq!(services(destination, addressee, &[]), expected, "row {row}");
        }
    }

    #[test]
    fn request_taken_back_unanswered_is_told_all_who_may_have_it() {
        let Route::Members(slots) = services(gid(1), Addressee::Holder, &[]) else {
            panic!("not a set");
        };
        assert_eq!(slots.iter().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn what_is_not_roce_goes_to_all_who_want_it() {
        let foreign = saying(&members(), FOREIGN);
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
        let mut others = Slots::NONE;
        others.insert(64);
        others.insert(65);
        assert_eq!(others.union(slots).iter().collect::<Vec<_>>(), [0, 7, 63, 64, 65, 255]);
    }
}
