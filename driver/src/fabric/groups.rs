//! Multicast groups: which ones the processes of a fabric are attached to, so that frames for a
//! group go to no others, and who owns a link knows which groups to join there.
//!
//! A member writes its groups to a table of its own, made with the first; all others read it, and
//! again whenever the registry tells of a change. What a member is attached to ends with it: its
//! table is removed when its slot is freed. A member with more groups than the table takes, or
//! without room for one, gets the frames of all groups.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use ferroce_stack::gid::Gid;

use super::error::FabricError;
use super::member::Member;
use super::registry::{MEMBERS, MULTICAST, Registry, View};
use super::route::Slots;
use super::shm::Shared;
use super::table;

/// Groups of one member that others are told of.
const ENTRIES: usize = 1024;

// Offsets in the file, behind its generation: groups, and those, in network byte order.
const COUNT_AT: usize = 8;
const ENTRIES_AT: usize = 64;
const ENTRY_LEN: usize = 16;

const FILE_LEN: usize = ENTRIES_AT + ENTRIES * ENTRY_LEN;

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

    /// Writes all groups. Who reads meanwhile gets some of both; the change of the registry that
    /// has to follow makes him read again.
    fn set(&self, groups: &[Gid]) {
        for (index, group) in groups.iter().take(ENTRIES).enumerate() {
            self.0.write(ENTRIES_AT + index * ENTRY_LEN, &group.0);
        }
        self.0.word(COUNT_AT).store(groups.len() as u64, Ordering::Release);
    }

    /// The groups; none if there are more than the table takes.
    fn get(&self) -> Option<impl Iterator<Item = Gid>> {
        let count = self.0.word(COUNT_AT).load(Ordering::Acquire);
        let count = usize::try_from(count).ok().filter(|&count| count <= ENTRIES)?;
        Some((0..count).map(|index| {
            let mut group = Gid::default();
            self.0.read(ENTRIES_AT + index * ENTRY_LEN, &mut group.0);
            group
        }))
    }
}

/// The tables of a fabric as one member has them.
#[derive(Debug)]
pub(super) struct Groups {
    own: Option<Table>,
    /// By slot, this member's own as well: with the generation of the member each belongs to.
    tables: Vec<Option<(u64, Table)>>,
    /// Who is attached to a group.
    known: BTreeMap<Gid, Slots>,
    /// Who gets the frames of every group.
    all: Slots,
    /// The change of the registry that both follow from.
    seen: Option<u64>,
}

impl Groups {
    pub fn new() -> Groups {
        let tables = std::iter::repeat_with(|| None).take(MEMBERS).collect();
        Groups { own: None, tables, known: BTreeMap::new(), all: Slots::NONE, seen: None }
    }

    /// The members that want the frames of a group.
    #[inline]
    pub fn hearers(&mut self, registry: &Registry, view: &View, group: Gid) -> Slots {
        self.refresh(registry, view);
        self.known.get(&group).map_or(self.all, |slots| slots.union(self.all))
    }

    /// Every group that a member is attached to, in order.
    pub fn known(&mut self, registry: &Registry, view: &View) -> impl Iterator<Item = Gid> {
        self.refresh(registry, view);
        self.known.keys().copied()
    }

    /// Lets go of the tables of members that are no longer there.
    pub fn forget_gone(&mut self, view: &View) {
        view.forget_gone(&mut self.tables, |(of, _)| *of);
    }

    #[inline]
    fn refresh(&mut self, registry: &Registry, view: &View) {
        // A table that changes after the view was read will have moved the registry once more.
        if self.seen != Some(view.changes()) {
            self.reread(registry, view);
        }
    }

    #[cold]
    fn reread(&mut self, registry: &Registry, view: &View) {
        self.seen = Some(view.changes());
        self.known.clear();
        self.all = Slots::NONE;
        for slot in 0..=u8::MAX {
            let entry = view.entry(slot);
            let generation = entry.generation().filter(|_| entry.says(MULTICAST));
            let table = &mut self.tables[usize::from(slot)];
            if table.as_ref().map(|(of, _)| *of) != generation {
                let open = |of| Some((of, Table::open(&registry.groups_path(slot), of)?));
                *table = generation.and_then(open);
            }
            let groups = table.as_ref().and_then(|(_, table)| table.get());
            match groups {
                Some(groups) => {
                    for group in groups.filter(|group| group.is_multicast()) {
                        self.known.entry(group).or_default().insert(slot);
                    }
                }
                None if generation.is_some() => self.all.insert(slot),
                None => {}
            }
        }
    }
}

impl Member {
    /// Says which multicast groups this member's QPs are attached to, and so which frames it
    /// wants; the gateway has its link join them.
    pub fn set_groups(&mut self, groups: &[Gid]) {
        if self.groups.own.is_none() && !groups.is_empty() {
            let path = self.registry.groups_path(self.slot);
            // Without a table it gets the frames of all groups.
            self.groups.own = Table::create(&path, self.generation).ok();
        }
        if let Some(own) = &self.groups.own {
            own.set(groups);
        }
        self.registry.set_flag(self.slot, MULTICAST, !groups.is_empty());
        self.view.refresh(&self.registry);
        if let Some(gateway) = self.view.gateway() {
            self.rouse(gateway);
        }
    }
}
