//! A process's place in a fabric.

use std::fs::{self, DirBuilder};
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ferroce_stack::GidEntry;
use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::Qpn;
use ferroce_stack::wire::Mac;

use super::error::FabricError;
use super::groups::Groups;
use super::note::GatewayNote;
use super::ports::Ports;
use super::registry::{self, FOREIGN, FROM_LINK, GATEWAY, GIDS, MEMBERS, Presence, Registry, View};
use super::report::Report;
use super::ring::{self, Inbound, Outbound, Owner, Received, Sleep, Watch};
use super::route::{Addressee, RESERVED_QPNS, Route, Slots, general_services, route, saying};
use super::shm::Shared;
use super::waker::{WakeSocket, Waker};
use crate::sys;

/// How long a peer's ring may be full before the sender looks whether the peer still lives.
const FULL_NS: u64 = 10_000_000;

/// Whom files belong to whose owner a user namespace does not have.
const OVERFLOW_USER: u32 = 65534;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the receiver's ring; [`Member::flush`] must follow.
    Done,
    /// The ring has no room: try again later. [`Member::flush`] should be called here too,
    /// lest the receiver sleeps.
    Full,
    /// There is no such member.
    Gone,
}

/// A process's place in a fabric: a slot, an inbound ring, and the way to all other members.
///
/// It belongs to the process that joined. A child made by fork has no access to its memory and
/// may do nothing with it but drop it.
///
/// The member lives until it is dropped or its process ends, however it ends; until then a lock
/// is held by the mapping of its ring. Only a child made by fork in the instant of joining, while
/// the descriptor is open, would prolong it.
#[derive(Debug)]
pub struct Member {
    process: u32,
    pub(super) slot: u8,
    pub(super) generation: u64,
    pub(super) registry: Registry,
    pub(super) view: View,
    pub(super) ports: Ports,
    pub(super) groups: Groups,
    /// The change of the registry up to which [`Member::hear`] knows it.
    pub(super) heard: u64,
    inbound: Inbound,
    /// By slot: the rings sent to so far.
    peers: Vec<Option<Peer>>,
    /// Sent to since the last [`Member::flush`].
    unwoken: Slots,
}

#[derive(Debug)]
struct Peer {
    generation: u64,
    ring: Outbound,
    waker: Waker,
    /// Since when, or since the last look at the peer, every frame found the ring full.
    full_since_ns: Option<u64>,
}

/// A member's wake word, which outlives the member and may be used by any thread.
#[derive(Clone, Debug)]
pub struct WakeWord(Arc<Shared>);

/// The word, as [`Member::wake_word`].
impl Deref for WakeWord {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        ring::wake_word(&self.0)
    }
}

impl WakeWord {
    /// Sleeps while the word is `expected`, until it is woken by any process, for at most
    /// `timeout_ns` nanoseconds if given. May return early.
    pub fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        sys::futex_wait(self, expected, timeout_ns);
    }

    /// Wakes whoever sleeps in [`WakeWord::wait`].
    pub fn wake(&self) {
        sys::futex_wake(self);
    }
}

/// What the ring asks, answered from the registry.
struct Deaths<'a> {
    registry: &'a Registry,
    view: &'a mut View,
}

impl Watch for Deaths<'_> {
    fn now_ns(&self) -> u64 {
        sys::now_ns()
    }

    fn is_dead(&mut self, owner: Owner) -> bool {
        let slot = owner.slot();
        self.view.refresh(self.registry);
        match self.view.entry(slot).generation() {
            Some(generation) if Owner::new(slot, generation) == owner => {
                self.registry.is_dead(slot)
            }
            _ => true,
        }
    }
}

impl Member {
    /// Joins the fabric in a directory with the given addresses, at most 8. The directory is made
    /// if it does not exist, and so is the one it is in.
    ///
    /// # Errors
    ///
    /// See [`FabricError`].
    pub fn join(dir: &Path, gids: &[GidEntry]) -> Result<Member, FabricError> {
        Member::join_as(dir, gids, 0)
    }

    /// Joins with the given addresses as the one member to which frames go whose destination no
    /// member has: it owns a link to a network. It sleeps on descriptors, of which the socket is
    /// one, and not on its wake word; others wake it so.
    ///
    /// # Errors
    ///
    /// As [`Member::join_as_gateway`].
    pub fn join_with_link(
        dir: &Path,
        gids: &[GidEntry],
    ) -> Result<(Member, WakeSocket), FabricError> {
        let mut socket = None;
        let member = Member::join_with(dir, gids, GATEWAY, |registry, slot| {
            let path = registry.wake_path(slot);
            let bound = WakeSocket::bind(&path);
            socket = Some(bound.map_err(|error| FabricError::io("make the socket", &path, error))?);
            Ok(Sleep::Socket)
        })?;
        Ok((member, socket.expect("made when the member was")))
    }

    /// Joins as the one member to which frames go whose destination no member has.
    ///
    /// # Errors
    ///
    /// [`FabricError::HasGateway`] if there is another; see [`FabricError`].
    pub fn join_as_gateway(dir: &Path) -> Result<Member, FabricError> {
        Member::join_as(dir, &[], GATEWAY)
    }

    /// Joins as the other half of a gateway, which sends what has come from its link: of that,
    /// nothing goes back to the gateway.
    ///
    /// # Errors
    ///
    /// See [`FabricError`].
    pub fn join_from_link(dir: &Path) -> Result<Member, FabricError> {
        Member::join_as(dir, &[], FROM_LINK)
    }

    fn join_as(dir: &Path, gids: &[GidEntry], flags: u64) -> Result<Member, FabricError> {
        Member::join_with(dir, gids, flags, |_, _| Ok(Sleep::Word))
    }

    /// Joins. `sleep` says what the member will sleep on, which must be there by then.
    fn join_with(
        dir: &Path,
        gids: &[GidEntry],
        flags: u64,
        sleep: impl FnOnce(&Registry, u8) -> Result<Sleep, FabricError>,
    ) -> Result<Member, FabricError> {
        if gids.len() > GIDS {
            return Err(FabricError::TooManyGids { count: gids.len() });
        }
        prepare(dir)?;
        let (registry, lock) = Registry::open(dir)?;
        registry.sweep(&lock);
        let mut view = View::new(&registry);
        if let (GATEWAY, Some(slot)) = (flags, view.gateway()) {
            return Err(FabricError::HasGateway { dir: dir.into(), pid: view.entry(slot).pid() });
        }
        let (slot, generation) =
            registry.claim(&lock).ok_or_else(|| FabricError::Full { dir: dir.into() })?;
        let made = sleep(&registry, slot)
            .and_then(|sleep| create_ring(&registry.member_path(slot), generation, sleep));
        let shared = match made {
            Ok(shared) => Arc::new(shared),
            Err(error) => {
                registry.release(&lock, slot);
                return Err(error);
            }
        };
        registry.publish(&lock, slot, gids, flags);
        drop(lock);
        view.refresh(&registry);
        Ok(Member {
            process: std::process::id(),
            slot,
            generation,
            view,
            registry,
            ports: Ports::new(slot),
            groups: Groups::new(),
            heard: 0,
            inbound: Inbound::new(shared),
            peers: std::iter::repeat_with(|| None).take(MEMBERS).collect(),
            unwoken: Slots::NONE,
        })
    }

    /// The slot, different from that of every other live member.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// The QPNs that lead to this member: their high 8 bits are its slot. Those with a meaning of
    /// their own are left out.
    pub fn qpns(&self) -> Range<u32> {
        let first = u32::from(self.slot) << 16;
        first.max(RESERVED_QPNS)..(first + 0x1_0000).min(Qpn::MULTICAST.0)
    }

    /// Inbound frames that are there now or are just being written, counted no further than 64.
    /// 0 says that there is nothing to wait for but a wake-up.
    #[inline]
    pub fn pending(&self) -> usize {
        self.inbound.pending()
    }

    /// Copies the next inbound frame to the start of `frame`, which should have room for
    /// [`FRAME_MAX`](super::FRAME_MAX) bytes: a longer one is dropped. None if there is no frame,
    /// or if the next one is still being written. Where its receiver will look at its ICRC,
    /// `sums` has a long one summed meanwhile.
    #[inline]
    pub fn receive(&mut self, frame: &mut [u8], sums: bool) -> Option<Received> {
        let mut deaths = Deaths { registry: &self.registry, view: &mut self.view };
        self.inbound.receive(frame, sums, &mut deaths)
    }

    /// Says that [`Member::pending`] was 0. Now and then it has [`Member::mend`] happen.
    #[inline]
    pub fn found_nothing(&mut self) {
        self.inbound.found_nothing();
    }

    /// Puts right what others may have written to this member's ring, lest senders find no way in.
    /// Some loads; to be called before sleeping, too.
    pub fn mend(&mut self) {
        self.inbound.mend();
    }

    /// Copies a frame, and a tag for its receiver, to the ring of the member in slot `to`, which
    /// may be this one. The receiver is not woken before [`Member::flush`]. A frame of no
    /// bytes does not arrive.
    ///
    /// # Panics
    ///
    /// If the frame is longer than [`FRAME_MAX`](super::FRAME_MAX).
    #[inline]
    pub fn send(&mut self, to: u8, frame: &[u8], tag: u32) -> Sent {
        self.view.refresh(&self.registry);
        let generation = self.view.entry(to).generation();
        let known = &self.peers[usize::from(to)];
        if known.as_ref().is_none_or(|peer| Some(peer.generation) != generation) {
            self.connect(to, generation);
        }
        let Some(peer) = &mut self.peers[usize::from(to)] else {
            return Sent::Gone;
        };
        self.unwoken.insert(to);
        if peer.ring.push(frame, tag) {
            peer.full_since_ns = None;
            return Sent::Done;
        }
        self.full(to)
    }

    /// Has all frames sent since the last call seen, and wakes those of their receivers that
    /// sleep. Once per burst. How many frames were lost since [`Member::send`] had put them into
    /// their rings: a receiver gives up those of a sender that stands still for a second.
    #[inline]
    pub fn flush(&mut self) -> usize {
        let mut lost = 0;
        for slot in std::mem::take(&mut self.unwoken).iter() {
            if let Some(peer) = &mut self.peers[usize::from(slot)] {
                lost += peer.ring.flush();
                peer.waker.wake(peer.ring.shared());
            }
        }
        lost
    }

    /// Whether this member is the gateway.
    #[inline]
    pub fn is_gateway(&mut self) -> bool {
        self.view.refresh(&self.registry);
        self.view.gateway() == Some(self.slot)
    }

    /// Is the gateway no longer: the link is gone.
    pub fn resign(&mut self) {
        // In this order: a next gateway's note is its own.
        self.registry.remove_note();
        self.registry.set_flag(self.slot, GATEWAY, false);
        self.view.refresh(&self.registry);
    }

    /// Leaves word of what the gateway leads to, for as long as this member is the gateway.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn set_note(&self, note: &GatewayNote) -> io::Result<()> {
        self.registry.write_note(note)
    }

    /// Where a frame to a QP goes. Of one to QP1, what it carries behind the DETH decides which
    /// process of a device gets it. One for a GID that no member has goes to the gateway, if there
    /// is one, and one for a group also there; where the gateway is this member, see
    /// [`Route::Link`], and a group's frame goes to its link as well.
    #[inline]
    pub fn route(&mut self, destination: Gid, qpn: Qpn, datagram: &[u8]) -> Route {
        self.view.refresh(&self.registry);
        let gateway = self.view.gateway();
        if destination.is_multicast() {
            let mut slots = self.groups.hearers(&self.registry, &self.view, destination);
            let others = gateway.filter(|&gateway| gateway != self.slot);
            others.into_iter().for_each(|gateway| slots.insert(gateway));
            return Route::Members(slots);
        }
        match gateway {
            Some(gateway) if !self.view.has(destination) => {
                if gateway == self.slot {
                    Route::Link
                } else {
                    Route::Member(gateway)
                }
            }
            _ => self.route_within(destination, qpn, datagram),
        }
    }

    /// Where a frame goes that comes from this member's link: nothing goes back there.
    #[inline]
    pub fn route_from_link(&mut self, destination: Gid, qpn: Qpn, datagram: &[u8]) -> Route {
        self.view.refresh(&self.registry);
        if destination.is_multicast() {
            return Route::Members(self.groups.hearers(&self.registry, &self.view, destination));
        }
        self.route_within(destination, qpn, datagram)
    }

    /// Whether a member has the GID.
    #[inline]
    pub fn has(&mut self, gid: Gid) -> bool {
        self.view.refresh(&self.registry);
        self.view.has(gid)
    }

    #[inline]
    fn route_within(&mut self, destination: Gid, qpn: Qpn, datagram: &[u8]) -> Route {
        if qpn == Qpn::GSI {
            return self.route_to_services(destination, datagram);
        }
        route(self.view.entries(), self.slot, destination, qpn)
    }

    /// Where a datagram to QP1 goes. A request wakes no process that has died.
    #[cold]
    fn route_to_services(&mut self, destination: Gid, datagram: &[u8]) -> Route {
        let addressee = Addressee::of(datagram);
        let found = self.find_services(destination, addressee);
        match (addressee, found) {
            (Addressee::Listener { .. }, Route::Member(slot)) if self.registry.is_dead(slot) => {
                self.reap();
                self.find_services(destination, addressee)
            }
            _ => found,
        }
    }

    fn find_services(&mut self, destination: Gid, addressee: Addressee) -> Route {
        let Member { ports, registry, view, slot, .. } = self;
        general_services(view.entries(), *slot, destination, addressee, |to| match addressee {
            Addressee::Listener { service, address } => {
                ports.listens(registry, view, to, service, address)
            }
            _ => None,
        })
    }

    /// The number of the last question for a report, which a [`Report`] has to name; 0 before the
    /// first. One load.
    #[inline]
    pub fn reports_wanted(&self) -> u64 {
        self.inbound.reports_wanted()
    }

    /// Tells slots of the same number apart: no two members in one slot have the same.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Leaves a report for those who have asked, in place of the last.
    ///
    /// # Errors
    ///
    /// If it cannot be written; there is no new one then.
    pub fn report(&self, report: &Report) -> io::Result<()> {
        let unfinished = self.registry.unfinished_report_path(self.slot);
        let outcome = report.write(&unfinished, &self.registry.report_path(self.slot));
        if outcome.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        outcome
    }

    /// Says whether this member wants frames that are not RoCE.
    pub fn set_foreign(&self, wants: bool) {
        self.registry.set_flag(self.slot, FOREIGN, wants);
    }

    /// The members that want frames that are not RoCE; may include this one.
    pub fn wanting_foreign(&mut self) -> Slots {
        self.view.refresh(&self.registry);
        saying(self.view.entries(), FOREIGN)
    }

    /// The Ethernet address that goes with a GID of a member.
    pub fn mac_of(&mut self, gid: Gid) -> Option<Mac> {
        self.view.refresh(&self.registry);
        self.view.entries().iter().find_map(|entry| entry.mac_of(gid))
    }

    /// The word by which others know whether this member must be woken: 0 awake; 1 armed: whoever
    /// sends sets it to 0 and wakes who sleeps on it; others: not to be woken.
    ///
    /// To sleep: store 1, full fence, see that [`Member::pending`] is 0, [`WakeWord::wait`]. With
    /// a time limit: a sender that dies between its frame and the wake-up wakes nobody.
    #[inline]
    pub fn wake_word(&self) -> &AtomicU32 {
        ring::wake_word(self.inbound.shared())
    }

    /// The wake word for threads that do not have the member.
    pub fn wake_handle(&self) -> WakeWord {
        WakeWord(self.inbound.shared().clone())
    }

    /// Looks for dead members, frees their slots and files, and puts right what may have been
    /// written to this member's ring. For now and then: some system calls for each member. Does
    /// nothing about the dead while somebody else has the registry's lock.
    pub fn reap(&mut self) {
        if let Some(lock) = self.registry.try_lock() {
            self.registry.sweep(&lock);
        }
        self.view.refresh(&self.registry);
        self.forget_gone();
        self.inbound.mend();
    }

    /// Lets go of the files of members that are no longer there: their memory stays as long as
    /// anybody has them mapped.
    pub(super) fn forget_gone(&mut self) {
        self.view.forget_gone(&mut self.peers, |peer| peer.generation);
        self.ports.forget_gone(&self.view);
        self.groups.forget_gone(&self.view);
    }

    /// Has the member in `slot` look around, if it sleeps.
    pub(super) fn rouse(&mut self, slot: u8) {
        let generation = self.view.entry(slot).generation();
        let known = &self.peers[usize::from(slot)];
        if known.as_ref().is_none_or(|peer| Some(peer.generation) != generation) {
            self.connect(slot, generation);
        }
        if let Some(peer) = &self.peers[usize::from(slot)] {
            peer.waker.wake(peer.ring.shared());
        }
    }

    /// Maps the ring of the member in `slot`, in place of that of an earlier one.
    #[cold]
    fn connect(&mut self, slot: u8, generation: Option<u64>) {
        self.peers[usize::from(slot)] = generation.and_then(|generation| {
            let path = self.registry.member_path(slot);
            let file = registry::open_file(&path, Presence::Existing).ok()?;
            let shared = Shared::map_sparsely(&file, ring::FILE_LEN).ok()?;
            let ring = Outbound::new(shared, Owner::new(self.slot, self.generation));
            let waker = Waker::of(ring.shared(), &self.registry.wake_path(slot));
            let peer = Peer { generation, ring, waker, full_since_ns: None };
            peer.ring.leads_to(generation).then_some(peer)
        });
    }

    /// A peer's ring is full: it may be dead.
    #[cold]
    fn full(&mut self, to: u8) -> Sent {
        let Some(peer) = &mut self.peers[usize::from(to)] else {
            return Sent::Gone;
        };
        let now_ns = sys::now_ns();
        let since_ns = *peer.full_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < FULL_NS {
            return Sent::Full;
        }
        peer.full_since_ns = Some(now_ns);
        if self.registry.is_dead(to) {
            self.reap();
        }
        if self.peers[usize::from(to)].is_some() { Sent::Full } else { Sent::Gone }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        // Without the lock the slot stays until somebody finds the member's own lock free.
        if let Some(lock) = self.registry.lock() {
            self.view.refresh(&self.registry);
            if self.view.entry(self.slot).generation() == Some(self.generation) {
                self.registry.release(&lock, self.slot);
            }
        }
    }
}

/// Makes a member's file and an empty ring in it; its lock is held by the mapping returned.
fn create_ring(path: &Path, generation: u64, sleep: Sleep) -> Result<Shared, FabricError> {
    let file = registry::open_file(path, Presence::New)
        .map_err(|error| FabricError::from_creation(path, error, ring::FILE_LEN as u64))?;
    registry::allocate(&file, path, ring::FILE_LEN)?;
    registry::wait_for_lock(&file, path)?;
    let shared =
        Shared::map(&file, ring::FILE_LEN).map_err(|error| FabricError::io("map", path, error))?;
    ring::format(&shared, generation, sleep);
    Ok(shared)
}

/// Makes the directory, and the one it is in, if need be, and refuses one that will not do.
fn prepare(dir: &Path) -> Result<(), FabricError> {
    let create = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    };
    let mut outcome = create(dir);
    if let (Err(error), Some(parent)) = (&outcome, dir.parent())
        && error.kind() == io::ErrorKind::NotFound
    {
        outcome = create(parent).and_then(|()| create(dir));
    }
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FabricError::NoParent { dir: dir.into() },
        io::ErrorKind::NotADirectory => FabricError::NotADirectory { dir: dir.into() },
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            FabricError::ReadOnly { dir: dir.into() }
        }
        _ => FabricError::from_creation(dir, error, 0),
    })?;
    check_parent(dir)?;
    check(dir)
}

/// Refuses a directory that another user could replace, as the owner of the one it is in. Root
/// may be trusted; a user namespace that does not have root shows it as [`OVERFLOW_USER`].
fn check_parent(dir: &Path) -> Result<(), FabricError> {
    let parent = match dir.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    let metadata =
        fs::metadata(parent).map_err(|error| FabricError::io("look at", parent, error))?;
    let (owner, user) = (metadata.uid(), sys::effective_user());
    if [user, 0, OVERFLOW_USER].contains(&owner) {
        return Ok(());
    }
    Err(FabricError::OtherUser { dir: parent.into(), owner, user })
}

/// Refuses a directory in which others have a say, and what is none.
pub(super) fn check(dir: &Path) -> Result<(), FabricError> {
    let metadata =
        fs::symlink_metadata(dir).map_err(|error| FabricError::io("look at", dir, error))?;
    let (owner, user) = (metadata.uid(), sys::effective_user());
    if !metadata.is_dir() {
        return Err(FabricError::NotADirectory { dir: dir.into() });
    }
    if owner != user {
        return Err(FabricError::OtherUser { dir: dir.into(), owner, user });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(FabricError::WritableByOthers { dir: dir.into(), mode });
    }
    Ok(())
}
