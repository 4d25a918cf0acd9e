//! Ports of connection management: which services the processes of a device have bound, so that
//! no two bind the same, and a request finds the process that listens.
//!
//! A member writes what it has bound to a table of its own, made with the first; all others read
//! it. Binding and listening happen under the registry's lock, so of two who want the same one
//! gets it; giving up needs no lock. Members that have an address in common are processes of one
//! host and share its ports. What a member has bound ends with it: its table is removed when its
//! slot is freed.
//!
//! Requests are routed without the lock. Who reads an entry while it changes may send one request
//! to a process that has just stopped to listen, as would have happened a moment before.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::Ordering;

use ferroce_stack::gid::Gid;

use super::error::FabricError;
use super::member::Member;
use super::registry::{CONNECTIONS, Lock, MEMBERS, PORTS, Registry, View};
use super::shm::Shared;
use super::table;

/// What one member can have bound at a time.
const ENTRIES: usize = 1 << 14;

/// What is given to those who ask for any port: the default of Linux's `ip_local_port_range`.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// In place of an address: all of the host's.
pub const ANY_ADDRESS: Gid = Gid([0; 16]);

/// In place of an address: all of the host's IPv4 addresses.
pub const ANY_IPV4: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]);

/// In place of an address: all of the host's IPv6 addresses.
pub const ANY_IPV6: Gid = Gid([0xff; 16]);

// Offsets in the header, behind its generation.
const COUNT_AT: usize = 8;
const ENTRIES_AT: usize = 64;

// Offsets in an entry.
const ENTRY_LEN: usize = 32;
const STATE: usize = 0;
const SERVICE: usize = 8;
const ADDRESS: usize = 16;

const FILE_LEN: usize = ENTRIES_AT + ENTRIES * ENTRY_LEN;

// Bits of an entry's state.
const BOUND: u64 = 1;
const REUSE: u64 = 2;
const LISTENING: u64 = 4;

/// A service and the address it is bound at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Service ID: port space and port.
    pub service: u64,
    /// An address of the host, [`ANY_ADDRESS`], [`ANY_IPV4`] or [`ANY_IPV6`].
    pub address: Gid,
    /// Others who say so too may bind the same, until one listens.
    pub reuse: bool,
    /// Requests for it go to who has bound it.
    pub listening: bool,
}

impl Binding {
    /// Whether there are requests that both are for.
    fn overlaps(&self, other: &Binding) -> bool {
        let meets = self.is_at(other.address) || other.is_at(self.address);
        self.service == other.service && meets
    }

    /// Whether a request for `address` is for this.
    fn is_at(&self, address: Gid) -> bool {
        match self.address {
            ANY_ADDRESS => true,
            ANY_IPV4 => address.ipv4().is_some(),
            ANY_IPV6 => address.ipv4().is_none(),
            own => own == address,
        }
    }

    /// The address: none if it is all of them, an unspecified one if it is all of its family.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.address {
            ANY_ADDRESS => None,
            ANY_IPV6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            address => Some(address.to_ip()),
        }
    }

    /// Whether this can be bound beside `other`.
    fn goes_with(&self, other: &Binding) -> bool {
        let shared = self.reuse && other.reuse && !other.listening;
        shared || !self.overlaps(other)
    }
}

/// What the member in `slot` listens for; nothing of a member that is not of this generation.
pub(super) fn listening(registry: &Registry, slot: u8, generation: u64) -> Vec<Binding> {
    let Some(table) = Table::open(&registry.ports_path(slot), generation) else {
        return Vec::new();
    };
    table.bindings().map(|(_, binding)| binding).filter(|binding| binding.listening).collect()
}

/// Why a service cannot be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// Somebody else binds or joins: try again at once.
    Busy,
    /// Somebody has it.
    InUse,
    /// All ephemeral ports are taken, the table is full, or there is no room for it.
    NotAvailable,
}

/// What a member has bound, until [`Member::release`].
#[derive(Debug)]
pub struct Bound {
    index: u32,
    binding: Binding,
}

impl Bound {
    /// Its service ID.
    pub fn service(&self) -> u64 {
        self.binding.service
    }
}

/// How a member listens for a request, the better the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listens {
    /// At any address.
    Anywhere,
    /// At the very address the request is for.
    There,
}

/// A mapped table, of which nothing is believed.
#[derive(Debug)]
struct Table(Shared);

impl Table {
    /// The table of a member; none if it has none of this generation.
    fn open(path: &Path, generation: u64) -> Option<Table> {
        table::open(path, generation, FILE_LEN).map(Table)
    }

    /// Makes the table of a member.
    fn create(path: &Path, generation: u64) -> Result<Table, FabricError> {
        table::create(path, generation, FILE_LEN).map(Table)
    }

    /// Entries that have ever been in use: those beyond are free.
    fn count(&self) -> usize {
        let count = self.0.word(COUNT_AT).load(Ordering::Acquire);
        usize::try_from(count).map_or(ENTRIES, |count| count.min(ENTRIES))
    }

    fn get(&self, index: usize) -> Option<Binding> {
        let at = entry_at(index);
        let state = self.0.word(at + STATE).load(Ordering::Acquire);
        if state & BOUND == 0 {
            return None;
        }
        let load = |offset| self.0.word(at + offset).load(Ordering::Relaxed);
        let address = u128::from(load(ADDRESS)) << 64 | u128::from(load(ADDRESS + 8));
        Some(Binding {
            service: load(SERVICE),
            address: Gid(address.to_be_bytes()),
            reuse: state & REUSE != 0,
            listening: state & LISTENING != 0,
        })
    }

    fn set(&self, index: usize, binding: &Binding) {
        let at = entry_at(index);
        let store = |offset, value| self.0.word(at + offset).store(value, Ordering::Relaxed);
        let address = u128::from_be_bytes(binding.address.0);
        store(SERVICE, binding.service);
        store(ADDRESS, (address >> 64) as u64);
        store(ADDRESS + 8, address as u64);
        let reuse = if binding.reuse { REUSE } else { 0 };
        let listening = if binding.listening { LISTENING } else { 0 };
        self.0.word(at + STATE).store(BOUND | reuse | listening, Ordering::Release);
    }

    fn clear(&self, index: usize) {
        self.0.word(entry_at(index) + STATE).store(0, Ordering::Release);
    }

    /// What is bound, by index.
    fn bindings(&self) -> impl Iterator<Item = (usize, Binding)> {
        (0..self.count()).filter_map(|index| Some((index, self.get(index)?)))
    }

    /// How the member listens for a request, if it does. Without an address, a request is for any.
    fn listens(&self, service: u64, address: Option<Gid>) -> Option<Listens> {
        let of_binding = |(_, binding): (usize, Binding)| {
            if binding.service != service || !binding.listening {
                return None;
            }
            let is_at = address.is_none_or(|address| binding.is_at(address));
            match address == Some(binding.address) {
                true => Some(Listens::There),
                false => is_at.then_some(Listens::Anywhere),
            }
        };
        self.bindings().filter_map(of_binding).max()
    }
}

fn entry_at(index: usize) -> usize {
    ENTRIES_AT + index * ENTRY_LEN
}

/// The tables of a fabric as one member has them.
#[derive(Debug)]
pub(super) struct Ports {
    slot: u8,
    own: Option<OwnTable>,
    /// By slot: those of others, with the generation of the member each belongs to.
    others: Vec<Option<(u64, Table)>>,
    /// Where the search for a free ephemeral port goes on.
    next: u16,
}

#[derive(Debug)]
struct OwnTable {
    table: Table,
    /// Entries below the table's count that are free again: the first is taken, so that the table
    /// stays short.
    free: BinaryHeap<Reverse<u32>>,
    count: u32,
}

impl OwnTable {
    fn insert(&mut self, binding: Binding) -> Option<Bound> {
        let index = match self.free.pop() {
            Some(Reverse(index)) => index,
            None if self.count as usize == ENTRIES => return None,
            None => {
                self.count += 1;
                self.count - 1
            }
        };
        self.table.set(index as usize, &binding);
        self.table.0.word(COUNT_AT).store(self.count.into(), Ordering::Release);
        Some(Bound { index, binding })
    }
}

impl Ports {
    pub fn new(slot: u8) -> Ports {
        // Processes that begin at different ports do not take one that another has just given up.
        let next = EPHEMERAL.start() + u16::from(slot) * 109;
        let others = std::iter::repeat_with(|| None).take(MEMBERS).collect();
        Ports { slot, own: None, others, next }
    }

    /// How the member in `slot` listens for a request.
    pub fn listens(
        &mut self,
        registry: &Registry,
        view: &View,
        slot: u8,
        service: u64,
        address: Option<Gid>,
    ) -> Option<Listens> {
        self.table(registry, view, slot)?.listens(service, address)
    }

    /// Lets go of the tables of members that are no longer there.
    pub fn forget_gone(&mut self, view: &View) {
        view.forget_gone(&mut self.others, |(of, _)| *of);
    }

    /// The table of the member in `slot`, if it has one.
    fn table(&mut self, registry: &Registry, view: &View, slot: u8) -> Option<&Table> {
        if slot == self.slot {
            return self.own.as_ref().map(|own| &own.table);
        }
        let entry = view.entry(slot);
        let generation = entry.generation().filter(|_| entry.says(PORTS));
        let known = &mut self.others[usize::from(slot)];
        if known.as_ref().map(|(of, _)| *of) != generation {
            let open = |of| Some((of, Table::open(&registry.ports_path(slot), of)?));
            *known = generation.and_then(open);
        }
        known.as_ref().map(|(_, table)| table)
    }
}

impl Member {
    /// Says that this member answers on QP1.
    pub fn serve_connections(&self) {
        self.registry.set_flag(self.slot, CONNECTIONS, true);
    }

    /// Binds a service at an address; with no port in `binding.service` (its low 16 bits 0), at an
    /// ephemeral one that nobody else has.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn bind(&mut self, binding: &Binding) -> Result<Bound, ClaimError> {
        let lock = self.registry.try_lock().ok_or(ClaimError::Busy)?;
        self.view.refresh(&self.registry);
        if self.ports.own.is_none() {
            let path = self.registry.ports_path(self.slot);
            let table = Table::create(&path, self.generation);
            let table = table.map_err(|_| ClaimError::NotAvailable)?;
            self.ports.own = Some(OwnTable { table, free: BinaryHeap::new(), count: 0 });
            self.registry.set_flag(self.slot, PORTS, true);
            self.view.refresh(&self.registry);
        }
        let mut service = self.choose(binding);
        if service.is_err() {
            self.bury(&lock);
            service = self.choose(binding);
        }
        let binding = Binding { service: service?, ..*binding };
        let own = self.ports.own.as_mut().ok_or(ClaimError::NotAvailable)?;
        own.insert(binding).ok_or(ClaimError::NotAvailable)
    }

    /// From now on requests for what is bound come to this member.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn listen(&mut self, bound: &Bound) -> Result<(), ClaimError> {
        let lock = self.registry.try_lock().ok_or(ClaimError::Busy)?;
        self.view.refresh(&self.registry);
        let wanted = Binding { listening: true, ..bound.binding };
        if !self.may_listen(bound) {
            self.bury(&lock);
            if !self.may_listen(bound) {
                return Err(ClaimError::InUse);
            }
        }
        let own = self.ports.own.as_ref().ok_or(ClaimError::NotAvailable)?;
        own.table.set(bound.index as usize, &wanted);
        Ok(())
    }

    /// Undoes [`Member::listen`]; what is bound stays so.
    pub fn unlisten(&mut self, bound: &Bound) {
        if let Some(own) = &self.ports.own {
            own.table.set(bound.index as usize, &bound.binding);
        }
    }

    /// Gives up what is bound.
    pub fn release(&mut self, bound: Bound) {
        if let Some(own) = &mut self.ports.own {
            own.table.clear(bound.index as usize);
            own.free.push(Reverse(bound.index));
        }
    }

    /// Whether a live member has the address, or a gateway leads to it for all we know.
    pub fn reaches(&mut self, gid: Gid) -> bool {
        self.view.refresh(&self.registry);
        let has = |slot: &u8| self.view.entry(*slot).has(gid);
        (0..=u8::MAX)
            .filter(has)
            .chain(self.view.gateway())
            .any(|slot| slot == self.slot || !self.registry.is_dead(slot))
    }

    /// Whether the member that had this generation is in `slot` yet, and lives.
    pub fn is_alive(&mut self, slot: u8, generation: u64) -> bool {
        self.view.refresh(&self.registry);
        self.view.entry(slot).generation() == Some(generation)
            && (slot == self.slot || !self.registry.is_dead(slot))
    }

    /// The generation of the member in `slot`, if it has the address.
    pub fn generation_at(&mut self, slot: u8, gid: Gid) -> Option<u64> {
        self.view.refresh(&self.registry);
        let entry = self.view.entry(slot);
        entry.generation().filter(|_| entry.has(gid))
    }

    /// The service to bind: that asked for if it is free, or one at a free ephemeral port.
    fn choose(&mut self, wanted: &Binding) -> Result<u64, ClaimError> {
        if wanted.service & 0xffff != 0 {
            let mut is_free = true;
            self.for_each_neighbour(|_, _, binding| is_free &= wanted.goes_with(binding));
            return if is_free { Ok(wanted.service) } else { Err(ClaimError::InUse) };
        }
        let mut taken = vec![0u64; (1 << 16) / 64];
        self.for_each_neighbour(|_, _, binding| {
            if binding.service & !0xffff == wanted.service {
                let port = binding.service as usize & 0xffff;
                taken[port / 64] |= 1 << (port % 64);
            }
        });
        let count = EPHEMERAL.end() - EPHEMERAL.start() + 1;
        for _ in 0..count {
            let port = self.ports.next;
            self.ports.next = if port >= *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            if taken[usize::from(port) / 64] >> (port % 64) & 1 == 0 {
                return Ok(wanted.service | u64::from(port));
            }
        }
        Err(ClaimError::NotAvailable)
    }

    fn may_listen(&mut self, bound: &Bound) -> bool {
        let own = (self.slot, bound.index as usize);
        let mut is_free = true;
        self.for_each_neighbour(|slot, index, binding| {
            let clashes = binding.listening && bound.binding.overlaps(binding);
            is_free &= !clashes || (slot, index) == own;
        });
        is_free
    }

    /// Calls `see` with everything that this member and those that share an address with it have
    /// bound.
    fn for_each_neighbour(&mut self, mut see: impl FnMut(u8, usize, &Binding)) {
        for slot in 0..=u8::MAX {
            let (own, other) = (self.view.entry(self.slot), self.view.entry(slot));
            let is_neighbour = own.gids().iter().any(|&gid| other.has(gid));
            if slot != self.slot && !is_neighbour {
                continue;
            }
            let table = self.ports.table(&self.registry, &self.view, slot);
            let Some(table) = table else { continue };
            for (index, binding) in table.bindings() {
                see(slot, index, &binding);
            }
        }
    }

    /// Frees the slots of the dead, and with them what they had bound.
    fn bury(&mut self, lock: &Lock) {
        self.registry.sweep(lock);
        self.view.refresh(&self.registry);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ferroce_stack::wire::Mac;
    use ferroce_stack::{GidEntry, GidType};

    use super::*;

    /// Binds ephemeral ports from the `from`th, as many as the table takes; how many.
    fn fill(member: &mut Member, space: &Binding, from: u16) -> u16 {
        let own = member.ports.own.as_mut().unwrap();
        let ports = EPHEMERAL.skip(from.into());
        let bindings =
            ports.map(|port| Binding { service: space.service | u64::from(port), ..*space });
        bindings.map_while(|binding| own.insert(binding)).count() as u16
    }

    #[test]
    fn tables_and_ephemeral_ports_run_out() {
        let name = format!("ferroce-ports-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let gid = Gid::from(std::net::Ipv4Addr::LOCALHOST);
        let entry = GidEntry { gid, gid_type: GidType::RoceV2, mac: Mac([2; 6]), vlan: None };
        let [mut a, mut b] = [(); 2].map(|()| Member::join(&dir, &[entry]).unwrap());
        let space = 0x0106 << 16;
        let any = Binding { service: space, address: ANY_ADDRESS, reuse: false, listening: false };
        let [of_a, of_b] = [&mut a, &mut b].map(|member| {
            member.bind(&Binding { service: space | 1, reuse: true, ..any }).unwrap()
        });

        let count = fill(&mut a, &any, 0);
        assert_eq!(usize::from(count), ENTRIES - 1);
        assert_eq!(a.bind(&any).unwrap_err(), ClaimError::NotAvailable);
        // The place that is free again is taken.
        a.release(of_a);
        let bound = a.bind(&any).unwrap();
        assert_eq!(bound.index, 0);
        assert!(bound.service() >= space | u64::from(EPHEMERAL.start() + count));
        a.release(bound);

        fill(&mut b, &any, count);
        b.release(of_b);
        assert_eq!(b.bind(&any).unwrap_err(), ClaimError::NotAvailable);
        b.release(Bound { index: 1, binding: any });
        let service = space | u64::from(EPHEMERAL.start() + count);
        assert_eq!(b.bind(&any).unwrap().service(), service);
        drop((a, b));
        fs::remove_dir_all(&dir).unwrap();
    }
}
