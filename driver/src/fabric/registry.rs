//! Who is in a fabric: a file that all members map, one entry per slot.
//!
//! Entries change under a lock on the file and are read without; flags and GIDs a member changes
//! by itself. An entry's version is odd while it changes; an odd one seen under the lock is the
//! work of a process that died over it. Whoever takes a slot makes the version even again last,
//! whoever gives one back removes the member's file before: a death at any point leaves nothing
//! that the next holder of the lock does not find. The version of a member's entry is its
//! generation.
//!
//! A member lives as long as the lock on its own file is held.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use ferroce_stack::GidEntry;
use ferroce_stack::gid::Gid;
use ferroce_stack::wire::Mac;

use super::error::FabricError;
use super::note::{GatewayNote, note_path};
use super::shm::Shared;
use crate::sys::{self, Sharing};

/// Members a fabric has room for.
pub const MEMBERS: usize = 256;
/// GIDs a member can have.
pub const GIDS: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"FERROCE\0");
const VERSION: u64 = 1;

// Offsets in the header. What every member polls and what changes stand on lines of their own.
const MAGIC_AT: usize = 0;
const VERSION_AT: usize = 8;
const CHANGES_AT: usize = 128;
const NOTES_AT: usize = 136;
const CURSOR_AT: usize = 256;
const ENTRIES_AT: usize = 4096;

// Offsets in an entry.
const ENTRY_LEN: usize = 256;
const ENTRY_VERSION: usize = 0;
const STATE: usize = 8;
const PID: usize = 16;
const FLAGS: usize = 24;
const GID_COUNT: usize = 32;
const GIDS_VERSION: usize = 40;
const GID_TABLE: usize = 64;
const GID_LEN: usize = 24;
const _: () = assert!(GID_TABLE + GIDS * GID_LEN <= ENTRY_LEN);

const FILE_LEN: usize = ENTRIES_AT + MEMBERS * ENTRY_LEN;

const FREE: u64 = 0;
const LIVE: u64 = 1;
/// Flag of a member that is attached to multicast groups.
pub const MULTICAST: u64 = 1;
/// Flag of a member that answers on QP1.
pub const CONNECTIONS: u64 = 2;
/// Flag of a member that has bound ports.
pub const PORTS: u64 = 4;
/// Flag of a member that wants frames that are not RoCE.
pub const FOREIGN: u64 = 8;
/// Flag of the member that takes frames for GIDs that no member has.
pub const GATEWAY: u64 = 16;
/// Flag of the gateway whose link is down.
pub const LINK_DOWN: u64 = 64;
/// Flag of the gateway's other half, by which what comes from its link enters.
pub const FROM_LINK: u64 = 32;

/// How often an entry that changes under the reader is read again.
const READ_TRIES: usize = 16;
/// How long the lock is waited for, in milliseconds: its holders do little.
const LOCK_WAIT_MS: u32 = 5000;

/// Whether a file is to be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It must be.
    Existing,
    /// It is made anew, in place of what a process left that died between two steps.
    New,
    /// It is made if it is not.
    Either,
}

/// Opens a file of the fabric, which only its user may read and write.
pub fn open_file(path: &Path, presence: Presence) -> io::Result<File> {
    if presence == Presence::New {
        remove_stale(path)?;
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(presence == Presence::Either)
        .create_new(presence == Presence::New)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Removes a file, if it is there.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives a file storage, with zeros, by the means the file system has.
pub fn allocate(file: &File, path: &Path, len: usize) -> Result<(), FabricError> {
    let zeros = || {
        const CHUNK: [u8; 4096] = [0; 4096];
        let mut at = 0;
        while at < len {
            let count = CHUNK.len().min(len - at);
            file.write_all_at(&CHUNK[..count], at as u64)?;
            at += count;
        }
        Ok(())
    };
    let outcome = match sys::allocate(file, len as u64) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => zeros(),
        outcome => outcome,
    };
    outcome.map_err(|error| FabricError::from_creation(path, error, len as u64))
}

/// What an entry says.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Moves with every change of the entry but of its flags and GIDs.
    version: u64,
    flags: u64,
    live: bool,
    pid: u32,
    /// Moves with every change of the GIDs.
    gids_version: u64,
    gid_count: usize,
    gids: [Gid; GIDS],
    macs: [Mac; GIDS],
}

impl Entry {
    /// A slot nobody has.
    pub const VACANT: Entry = Entry {
        version: 0,
        flags: 0,
        live: false,
        pid: 0,
        gids_version: 0,
        gid_count: 0,
        gids: [Gid([0; 16]); GIDS],
        macs: [Mac([0; 6]); GIDS],
    };

    /// The entry of a member, as tests need it.
    #[cfg(test)]
    pub fn member(gids: &[(Gid, Mac)], flags: u64) -> Entry {
        let gid_count = gids.len();
        let mut entry = Entry { version: 2, live: true, gid_count, flags, ..Entry::VACANT };
        for (index, &(gid, mac)) in gids.iter().enumerate() {
            (entry.gids[index], entry.macs[index]) = (gid, mac);
        }
        entry
    }

    /// The member's generation; none if the slot has no member.
    #[inline]
    pub fn generation(&self) -> Option<u64> {
        self.live.then_some(self.version)
    }

    /// The process, as it said when it joined.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its GIDs.
    pub fn gids(&self) -> &[Gid] {
        &self.gids[..self.gid_count]
    }

    /// Whether there is a member that has said this of itself.
    #[inline]
    pub fn says(&self, flag: u64) -> bool {
        self.live && self.flags & flag != 0
    }

    /// Whether there is a member with that GID.
    #[inline]
    pub fn has(&self, gid: Gid) -> bool {
        self.live && self.gids[..self.gid_count].contains(&gid)
    }

    /// The Ethernet address that goes with a GID of the member.
    pub fn mac_of(&self, gid: Gid) -> Option<Mac> {
        let index = self.gids[..self.gid_count].iter().position(|&own| own == gid)?;
        self.live.then_some(self.macs[index])
    }
}

/// A member's copy of all entries.
#[derive(Debug)]
pub struct View {
    changes: u64,
    entries: Vec<Entry>,
    /// Every GID that a member has, once and in order.
    gids: Vec<Gid>,
    gateway: Option<u8>,
}

impl View {
    /// A copy of what the registry says now.
    pub fn new(registry: &Registry) -> View {
        let changes = registry.changes();
        let entries = vec![Entry::VACANT; MEMBERS];
        let mut view = View { changes, entries, gids: Vec::new(), gateway: None };
        view.reread(registry, changes);
        view
    }

    /// Brings the copy up to date, at the price of one load if nothing has changed.
    #[inline]
    pub fn refresh(&mut self, registry: &Registry) {
        let changes = registry.changes();
        if changes != self.changes {
            self.reread(registry, changes);
        }
    }

    /// The entry of a slot.
    #[inline]
    pub fn entry(&self, slot: u8) -> &Entry {
        &self.entries[usize::from(slot)]
    }

    /// All entries, by slot.
    #[inline]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Drops what is known of members, by slot, that are no longer there; `generation` tells of
    /// which member it is.
    pub fn forget_gone<T>(&self, known: &mut [Option<T>], generation: impl Fn(&T) -> u64) {
        for (entry, known) in self.entries.iter().zip(known) {
            if known.as_ref().map(&generation) != entry.generation() {
                *known = None;
            }
        }
    }

    /// The number of the change that it is up to date with.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a member has that GID.
    #[inline]
    pub fn has(&self, gid: Gid) -> bool {
        self.gids.binary_search(&gid).is_ok()
    }

    /// The member that takes frames for all other GIDs.
    #[inline]
    pub fn gateway(&self) -> Option<u8> {
        self.gateway
    }

    #[cold]
    fn reread(&mut self, registry: &Registry, changes: u64) {
        self.changes = changes;
        self.gids.clear();
        self.gateway = None;
        for (slot, entry) in (0..=u8::MAX).zip(&mut self.entries) {
            registry.refresh(slot, entry);
            if entry.live {
                self.gids.extend_from_slice(entry.gids());
            }
            if entry.says(GATEWAY) {
                self.gateway = self.gateway.or(Some(slot));
            }
        }
        self.gids.sort_unstable();
        self.gids.dedup();
    }
}

/// The registry of a fabric.
#[derive(Debug)]
pub struct Registry {
    dir: PathBuf,
    shared: Shared,
    /// Device and inode of the mapped file.
    identity: (u64, u64),
}

/// The lock on the registry.
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Not left to the end of the descriptor: a child may have inherited it.
        sys::unlock(&self.0);
    }
}

impl Registry {
    /// Opens the registry of a fabric, made if there is none, with the lock held.
    pub fn open(dir: &Path) -> Result<(Registry, Lock), FabricError> {
        let path = registry_path(dir);
        let file = open_file(&path, Presence::Either).map_err(|error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                FabricError::ReadOnly { dir: dir.into() }
            }
            _ => FabricError::from_creation(&path, error, FILE_LEN as u64),
        })?;
        wait_for_lock(&file, &path)?;
        let lock = Lock(file);
        let is_new = check(&lock.0, dir)?;
        if is_new {
            allocate(&lock.0, &path, FILE_LEN)?;
        }
        let registry = Registry::map(dir, &lock.0)?;
        if is_new {
            registry.shared.word(VERSION_AT).store(VERSION, Ordering::Relaxed);
            registry.shared.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        }
        Ok((registry, lock))
    }

    /// Opens the registry of a fabric without the lock; none if no member has made one.
    pub fn open_existing(dir: &Path) -> Result<Option<Registry>, FabricError> {
        let path = registry_path(dir);
        let file = match open_file(&path, Presence::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            outcome => outcome.map_err(|error| FabricError::io("open", &path, error))?,
        };
        match check(&file, dir)? {
            true => Ok(None),
            false => Registry::map(dir, &file).map(Some),
        }
    }

    fn map(dir: &Path, file: &File) -> Result<Registry, FabricError> {
        let path = registry_path(dir);
        let error = |action, error| FabricError::io(action, &path, error);
        let metadata = file.metadata().map_err(|source| error("look at", source))?;
        let shared = Shared::map(file, FILE_LEN).map_err(|source| error("map", source))?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Registry { dir: dir.into(), shared, identity })
    }

    /// Takes the lock if it is free, and if the file in the directory is still the one mapped.
    pub fn try_lock(&self) -> Option<Lock> {
        let file = self.reopen()?;
        sys::try_lock(&file, Sharing::Exclusive).ok()?.then(|| Lock(file))
    }

    /// Takes the lock, waiting some seconds for it at most; as [`Registry::try_lock`] else.
    pub fn lock(&self) -> Option<Lock> {
        let file = self.reopen()?;
        wait_for_lock(&file, &registry_path(&self.dir)).ok()?;
        Some(Lock(file))
    }

    fn reopen(&self) -> Option<File> {
        // Opened each time: a program may close all descriptors it does not know.
        let file = open_file(&registry_path(&self.dir), Presence::Existing).ok()?;
        let metadata = file.metadata().ok()?;
        (self.identity == (metadata.dev(), metadata.ino())).then_some(file)
    }

    /// Where the member in `slot` has its ring.
    pub fn member_path(&self, slot: u8) -> PathBuf {
        self.dir.join(format!("member-{slot}"))
    }

    /// Where the member in `slot` has the socket that wakes it, if it sleeps on descriptors.
    pub fn wake_path(&self, slot: u8) -> PathBuf {
        self.dir.join(format!("wake-{slot}"))
    }

    /// Where the member in `slot` leaves its report, when asked.
    pub fn report_path(&self, slot: u8) -> PathBuf {
        self.dir.join(format!("report-{slot}"))
    }

    /// Where it writes the report before others may see it.
    pub fn unfinished_report_path(&self, slot: u8) -> PathBuf {
        self.dir.join(format!("report-{slot}.new"))
    }

    /// Where the member in `slot` says which ports it has bound.
    pub fn ports_path(&self, slot: u8) -> PathBuf {
        self.dir.join(format!("ports-{slot}"))
    }

    /// Where the member in `slot` says which multicast groups it is attached to.
    pub fn groups_path(&self, slot: u8) -> PathBuf {
        self.dir.join(format!("groups-{slot}"))
    }

    /// Moves with every change of an entry.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.shared.word(CHANGES_AT).load(Ordering::Acquire)
    }

    /// Takes the slot that has been free longest, and gives its generation to be.
    /// [`Registry::publish`] or [`Registry::release`] must follow.
    pub fn claim(&self, _lock: &Lock) -> Option<(u8, u64)> {
        let cursor = self.shared.word(CURSOR_AT);
        let start = cursor.load(Ordering::Relaxed) as usize;
        let slot = (0..MEMBERS)
            .map(|offset| start.wrapping_add(offset) % MEMBERS)
            .find(|&slot| self.state(slot) == FREE)?;
        cursor.store((slot + 1) as u64, Ordering::Relaxed);
        let slot = slot as u8;
        Some((slot, self.begin(slot).wrapping_add(1)))
    }

    /// Makes the claimed slot's entry that of a live member, with these flags.
    pub fn publish(&self, _lock: &Lock, slot: u8, gids: &[GidEntry], flags: u64) {
        let at = entry_at(slot.into());
        let store = |offset, value| self.shared.word(at + offset).store(value, Ordering::Relaxed);
        self.write_gids(slot, gids);
        store(FLAGS, flags);
        store(PID, std::process::id().into());
        store(STATE, LIVE);
        self.end(slot);
    }

    /// Frees a slot and removes its files.
    pub fn release(&self, _lock: &Lock, slot: u8) {
        self.begin(slot);
        // An error leaves a file that is replaced when the slot is taken again.
        let _ = fs::remove_file(self.report_path(slot));
        let _ = fs::remove_file(self.unfinished_report_path(slot));
        let _ = fs::remove_file(self.ports_path(slot));
        let _ = fs::remove_file(self.groups_path(slot));
        let _ = fs::remove_file(self.wake_path(slot));
        let _ = fs::remove_file(self.member_path(slot));
        let flags = self.shared.word(entry_at(slot.into()) + FLAGS);
        if flags.load(Ordering::Relaxed) & GATEWAY != 0 {
            self.remove_note();
            flags.store(0, Ordering::Relaxed);
        }
        self.shared.word(entry_at(slot.into()) + STATE).store(FREE, Ordering::Relaxed);
        self.end(slot);
    }

    /// Frees the slots of the dead.
    pub fn sweep(&self, lock: &Lock) {
        for slot in 0..=u8::MAX {
            let half_done = !self.version(slot).is_multiple_of(2);
            let taken = self.state(slot.into()) != FREE;
            if half_done || (taken && self.is_dead(slot)) {
                self.release(lock, slot);
            }
        }
    }

    /// Whether nobody holds the lock on the member's file.
    pub fn is_dead(&self, slot: u8) -> bool {
        match open_file(&self.member_path(slot), Presence::Existing) {
            // On any error but these it may be alive.
            Ok(file) => matches!(sys::try_lock(&file, Sharing::Shared), Ok(true)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Says or takes back a flag of the member in `slot`, who alone may do so.
    pub fn set_flag(&self, slot: u8, flag: u64, on: bool) {
        let flags = self.shared.word(entry_at(slot.into()) + FLAGS);
        if on {
            flags.fetch_or(flag, Ordering::Release);
        } else {
            flags.fetch_and(!flag, Ordering::Release);
        }
        self.changed();
    }

    /// Changes the GIDs of the member in `slot`, who alone may do so.
    pub fn set_gids(&self, slot: u8, gids: &[GidEntry]) {
        self.write_gids(slot, gids);
        self.changed();
    }

    fn write_gids(&self, slot: u8, gids: &[GidEntry]) {
        let at = entry_at(slot.into());
        let store = |offset, value| self.shared.word(at + offset).store(value, Ordering::Relaxed);
        let version = self.shared.word(at + GIDS_VERSION);
        let odd = version.load(Ordering::Relaxed) | 1;
        version.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        for (index, entry) in gids.iter().take(GIDS).enumerate() {
            let gid = u128::from_be_bytes(entry.gid.0);
            let [a, b, c, d, e, f] = entry.mac.0;
            let row = GID_TABLE + index * GID_LEN;
            store(row, (gid >> 64) as u64);
            store(row + 8, gid as u64);
            store(row + 16, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        }
        store(GID_COUNT, gids.len().min(GIDS) as u64);
        version.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Leaves the gateway's word of what it leads to; it goes with the gateway.
    pub fn write_note(&self, note: &GatewayNote) -> io::Result<()> {
        note.write(&note_path(&self.dir))?;
        self.shared.word(NOTES_AT).fetch_add(1, Ordering::AcqRel);
        self.changed();
        Ok(())
    }

    /// How often a note has been left.
    pub fn notes(&self) -> u64 {
        self.shared.word(NOTES_AT).load(Ordering::Acquire)
    }

    /// Takes the word back.
    pub fn remove_note(&self) {
        // An error leaves a note that the next gateway replaces.
        let _ = fs::remove_file(note_path(&self.dir));
    }

    /// Brings a copy of the entry of `slot` up to date. One that somebody is changing is vacant;
    /// one whose GIDs alone are changing has those it had.
    pub fn refresh(&self, slot: u8, entry: &mut Entry) {
        for _ in 0..READ_TRIES {
            let version = self.version(slot);
            if !version.is_multiple_of(2) {
                break;
            }
            let gids_version = self.gids_version(slot);
            if version == entry.version {
                let flags = self.shared.word(entry_at(slot.into()) + FLAGS);
                entry.flags = flags.load(Ordering::Relaxed);
                if gids_version == entry.gids_version {
                    return;
                }
            }
            let copy = self.copy(slot, version, gids_version);
            fence(Ordering::Acquire);
            let is_whole = gids_version.is_multiple_of(2);
            if is_whole && (version, gids_version) == (self.version(slot), self.gids_version(slot))
            {
                *entry = copy;
                return;
            }
        }
        if self.version(slot) != entry.version {
            *entry = Entry::VACANT;
        }
    }

    fn copy(&self, slot: u8, version: u64, gids_version: u64) -> Entry {
        let at = entry_at(slot.into());
        let load = |offset| self.shared.word(at + offset).load(Ordering::Relaxed);
        let live = load(STATE) == LIVE;
        let gid_count = GIDS.min(load(GID_COUNT) as usize);
        let (flags, pid) = (load(FLAGS), load(PID) as u32);
        let mut entry =
            Entry { version, flags, live, pid, gids_version, gid_count, ..Entry::VACANT };
        for index in 0..gid_count {
            let row = GID_TABLE + index * GID_LEN;
            let gid = u128::from(load(row)) << 64 | u128::from(load(row + 8));
            let [_, _, mac @ ..] = load(row + 16).to_be_bytes();
            (entry.gids[index], entry.macs[index]) = (Gid(gid.to_be_bytes()), Mac(mac));
        }
        entry
    }

    fn version(&self, slot: u8) -> u64 {
        self.shared.word(entry_at(slot.into()) + ENTRY_VERSION).load(Ordering::Acquire)
    }

    fn gids_version(&self, slot: u8) -> u64 {
        self.shared.word(entry_at(slot.into()) + GIDS_VERSION).load(Ordering::Acquire)
    }

    fn state(&self, slot: usize) -> u64 {
        self.shared.word(entry_at(slot) + STATE).load(Ordering::Relaxed)
    }

    /// Marks an entry as changing; returns its version.
    fn begin(&self, slot: u8) -> u64 {
        let odd = self.version(slot) | 1;
        self.shared.word(entry_at(slot.into()) + ENTRY_VERSION).store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        odd
    }

    /// Marks a changing entry as whole, and tells all members.
    fn end(&self, slot: u8) {
        let even = (self.version(slot) | 1).wrapping_add(1);
        self.shared.word(entry_at(slot.into()) + ENTRY_VERSION).store(even, Ordering::Release);
        self.changed();
    }

    fn changed(&self) {
        self.shared.word(CHANGES_AT).fetch_add(1, Ordering::AcqRel);
    }
}

fn registry_path(dir: &Path) -> PathBuf {
    dir.join("registry")
}

fn entry_at(slot: usize) -> usize {
    ENTRIES_AT + slot * ENTRY_LEN
}

/// Whether the registry's first member has not come so far as to write a header; refuses what is
/// no registry of ours.
fn check(file: &File, dir: &Path) -> Result<bool, FabricError> {
    let path = registry_path(dir);
    let metadata = file.metadata().map_err(|error| FabricError::io("look at", &path, error))?;
    let (owner, user) = (metadata.uid(), sys::effective_user());
    if owner != user {
        return Err(FabricError::OtherUser { dir: dir.into(), owner, user });
    }
    match metadata.len() {
        0 => Ok(true),
        1..16 => Err(FabricError::NotAFabric { path }),
        len => check_header(file, &path, len),
    }
}

/// As [`check`], of the header alone.
fn check_header(file: &File, path: &Path, len: u64) -> Result<bool, FabricError> {
    let mut header = [0; 16];
    file.read_exact_at(&mut header, 0).map_err(|error| FabricError::io("read", path, error))?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| header[at + index]));
    match (word(MAGIC_AT), word(VERSION_AT)) {
        (0, _) => Ok(true),
        (MAGIC, VERSION) if len == FILE_LEN as u64 => Ok(false),
        (MAGIC, found) if found != VERSION => {
            Err(FabricError::OtherVersion { path: path.into(), found, expected: VERSION })
        }
        _ => Err(FabricError::NotAFabric { path: path.into() }),
    }
}

/// Takes the lock on a file, waiting some seconds for it at most.
pub fn wait_for_lock(file: &File, path: &Path) -> Result<(), FabricError> {
    for _ in 0..LOCK_WAIT_MS {
        let taken = sys::try_lock(file, Sharing::Exclusive)
            .map_err(|error| FabricError::io("lock", path, error))?;
        if taken {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(FabricError::Busy { path: path.into() })
}
