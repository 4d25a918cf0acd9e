//! Ids: made, moved between channels, destroyed.
//!
//! What programs see of an id is written by their own threads alone. Devices reach an id only
//! through its inbox; what an event needs of an id's state is done by who gets the event.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::{mem, ptr};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use ferroce::engine::{BoundPort, EventQueue, QueuePair};
use ferroce_stack::mad::{CmEventKind, CommId, ListenerId, Path, PortSpace};
use ferroce_stack::verbs::{Mtu, QpType, Qpn};

use super::bind::release_ports;
use super::channel::{Channel, rdma_ack_cm_event};
use super::devices::Attached;
use super::sink;
use crate::device::{Device, lock};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvQpInitAttr, IbvSaPathRec, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, RdmaCmId,
    RdmaEventChannel, zeroed,
};
use crate::log::refuse;

// `IBV_QPT_*`.
pub(super) const QPT_RC: c_int = QpType::Rc as c_int;
pub(super) const QPT_UC: c_int = QpType::Uc as c_int;
pub(super) const QPT_UD: c_int = QpType::Ud as c_int;
pub(super) const QPT_XRC_SEND: c_int = QpType::XrcSend as c_int;
pub(super) const QPT_XRC_RECV: c_int = QpType::XrcRecv as c_int;

/// Something that happened and that nobody has got yet.
#[derive(Clone)]
pub(super) struct Queued {
    pub id: Arc<CmId>,
    pub what: What,
}

/// What happened.
#[derive(Clone)]
pub(super) enum What {
    /// An event that says no more than this.
    Told { event: c_int, status: c_int },
    /// Something of a connection.
    Cm { device: &'static Device, comm: CommId, kind: Arc<CmEventKind> },
    /// A multicast group is joined.
    Joined { group: u64 },
    /// The program's own event.
    User { status: c_int, arg: u64 },
}

impl Queued {
    /// The multicast group it is of.
    pub fn group(&self) -> Option<u64> {
        match self.what {
            What::Joined { group } => Some(group),
            _ => None,
        }
    }
}

/// How far an id has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// Asked a peer, or has its answer.
    Connecting,
    /// Asked by a peer.
    Requested,
    /// Said yes, or is connected; stays so when the connection is over.
    Connected,
    Destroyed,
}

/// What the two ends of a connection have agreed on, for the QP here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub mtu: Mtu,
    /// READs and atomics taken at a time.
    pub responder_resources: u8,
    /// READs and atomics sent at a time.
    pub initiator_depth: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// Code of the QP's timeout.
    pub ack_timeout: u8,
    /// The peer's QP and the PSN to begin with, once they are known.
    pub peer: Option<(Qpn, u32)>,
}

/// A multicast group an id has joined.
pub(super) struct Group {
    pub key: u64,
    pub address: SocketAddr,
    pub context: *mut c_void,
    /// Its QP only sends.
    pub send_only: bool,
    pub attached: bool,
}

/// What programs set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choices {
    pub tos: Option<u8>,
    pub reuse_address: bool,
    /// An id bound to all IPv6 addresses hears nothing of IPv4.
    pub only_family: bool,
    pub ack_timeout: Option<u8>,
}

/// What an id is about.
pub(super) struct State {
    pub phase: Phase,
    /// The id has a channel of its own and its calls wait for their events.
    pub is_sync: bool,
    pub attached: Option<Attached>,
    pub ports: Vec<(Attached, BoundPort)>,
    pub listeners: Vec<(Attached, ListenerId)>,
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    pub path: Path,
    pub sgid_index: u8,
    pub comm: Option<CommId>,
    /// PSN its QP expects first.
    pub psn: u32,
    pub link: Option<Link>,
    /// Its QP, once it has a peer: threads that get events must not touch what programs destroy.
    pub connected: Weak<QueuePair>,
    pub choices: Choices,
    /// What goes before the private data of a request.
    pub connect_data: Vec<u8>,
    /// What the QPs of a listener's ids are made of.
    pub passive_qp: Option<IbvQpInitAttr>,
    pub groups: Vec<Group>,
    /// The peer has said yes, but the QP could not be moved: what follows is not told.
    pub has_failed: bool,
}

impl State {
    fn new(is_sync: bool) -> State {
        State {
            phase: Phase::Idle,
            is_sync,
            attached: None,
            ports: Vec::new(),
            listeners: Vec::new(),
            source: None,
            destination: None,
            path: Path::default(),
            sgid_index: 0,
            comm: None,
            psn: RandomState::new().build_hasher().finish() as u32 & 0xff_ffff,
            link: None,
            connected: Weak::new(),
            choices: Choices::default(),
            connect_data: Vec::new(),
            passive_qp: None,
            groups: Vec::new(),
            has_failed: false,
        }
    }

    /// The device, once there is one.
    ///
    /// # Errors
    /// EINVAL.
    pub fn attached(&self) -> Result<Attached, Errno> {
        self.attached.ok_or_else(|| refuse!(EINVAL, "the id has no device: bind or resolve first"))
    }
}

/// Events in a program's hands.
#[derive(Default)]
struct Handed {
    all: u32,
    /// Of multicast groups, which are counted among `all` too.
    groups: BTreeMap<u64, u32>,
}

/// An id. What programs hold is `abi`.
#[repr(C)]
pub(crate) struct CmId {
    abi: UnsafeCell<RdmaCmId>,
    /// The process it was made in.
    process: u32,
    pub cookie: u64,
    pub space: PortSpace,
    inbox: Mutex<Arc<EventQueue<Queued>>>,
    handed: Mutex<Handed>,
    fewer: Condvar,
    state: Mutex<State>,
}

// SAFETY: the program's part is written by the program's threads, which librdmacm has them
// coordinate; pointers in the rest are only carried.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl CmId {
    /// A new id of `channel`, or with a channel of its own.
    ///
    /// # Safety
    /// The channel must be null or live.
    pub unsafe fn new(
        channel: *mut RdmaEventChannel,
        context: *mut c_void,
        ps: c_int,
        qp_type: c_int,
    ) -> Result<Arc<CmId>, Errno> {
        let space = match ps {
            RDMA_PS_IPOIB => PortSpace::Ipoib,
            RDMA_PS_TCP => PortSpace::Tcp,
            RDMA_PS_UDP => PortSpace::Udp,
            RDMA_PS_IB => PortSpace::Ib,
            _ => return Err(refuse!(EINVAL, ps, "create_id: no such port space")),
        };
        let is_sync = channel.is_null();
        let channel = if is_sync { Channel::create()? } else { channel };
        // SAFETY: the caller's promise, or made above.
        let queue = unsafe { Channel::of(channel) }?.queue.clone();
        let mut abi: RdmaCmId = zeroed();
        (abi.channel, abi.context, abi.ps, abi.qp_type) = (channel, context, ps, qp_type);
        let id = Arc::new(CmId {
            abi: UnsafeCell::new(abi),
            process: std::process::id(),
            cookie: sink::new_cookie(),
            space,
            inbox: Mutex::new(queue),
            handed: Mutex::default(),
            fewer: Condvar::new(),
            state: Mutex::new(State::new(is_sync)),
        });
        sink::enter(&id);
        Ok(id)
    }

    /// The id a program means.
    ///
    /// # Errors
    /// EINVAL for null, and for one of the process this one was forked from.
    ///
    /// # Safety
    /// `id` must be null or live.
    pub unsafe fn of(id: *mut RdmaCmId) -> Result<Arc<CmId>, Errno> {
        let id = id.cast::<CmId>().cast_const();
        // SAFETY: the caller's promise; ids are made here alone.
        match unsafe { id.as_ref() } {
            None => Err(refuse!(EINVAL, "the rdma_cm_id is null")),
            Some(found) if found.process != std::process::id() => {
                Err(refuse!(EINVAL, "the rdma_cm_id is of the process this one was forked from"))
            }
            Some(_) => {
                // SAFETY: what programs hold came from `into_abi`.
                unsafe {
                    Arc::increment_strong_count(id);
                    Ok(Arc::from_raw(id))
                }
            }
        }
    }

    /// Gives it to the program, which destroys it.
    pub fn into_abi(self: Arc<CmId>) -> *mut RdmaCmId {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// What the program sees of it.
    pub fn abi(&self) -> *mut RdmaCmId {
        self.abi.get()
    }

    /// What it is about. Not to be held over a call that waits for events.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub fn qp_type(&self) -> c_int {
        // SAFETY: the field is written when the id is made.
        unsafe { (*self.abi()).qp_type }
    }

    /// Whether it is of the datagram service.
    pub fn is_datagram(&self) -> bool {
        self.qp_type() == QPT_UD
    }

    /// Puts something that happened into the queue of its channel.
    pub fn post(self: &Arc<CmId>, what: What) {
        let queue = lock(&self.inbox);
        queue.push(Queued { id: self.clone(), what });
    }

    /// An event goes to the program.
    pub fn hand_out(&self, group: Option<u64>) {
        let mut handed = lock(&self.handed);
        handed.all += 1;
        if let Some(group) = group {
            *handed.groups.entry(group).or_default() += 1;
        }
    }

    /// The program is done with one.
    pub fn take_back(&self, group: Option<u64>) {
        let mut handed = lock(&self.handed);
        handed.all -= 1;
        if let Some(group) = group
            && let Some(count) = handed.groups.get_mut(&group)
        {
            *count -= 1;
            if *count == 0 {
                handed.groups.remove(&group);
            }
        }
        drop(handed);
        self.fewer.notify_all();
    }

    /// Waits until the program has no event of it, or of one of its groups.
    pub fn wait_for_events(&self, group: Option<u64>) {
        let is_waited_for = |handed: &mut Handed| match group {
            Some(group) => handed.groups.contains_key(&group),
            None => handed.all > 0,
        };
        let outcome = self.fewer.wait_while(lock(&self.handed), is_waited_for);
        drop(outcome.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes what nobody has got yet and `is_wanted` is true of out of the queue, in order.
    pub fn take_queued(&self, is_wanted: impl FnMut(&Queued) -> bool) -> Vec<Queued> {
        let queue = lock(&self.inbox).clone();
        take_of(&queue, self, is_wanted)
    }

    /// Acknowledges the event a synchronous call has left in the id.
    pub fn release_event(&self) {
        // SAFETY: the field is the program's own, and null or an event.
        unsafe {
            let event = mem::replace(&mut (*self.abi()).event, ptr::null_mut());
            if !event.is_null() {
                rdma_ack_cm_event(event);
            }
        }
    }
}

/// Takes what `is_wanted` is true of out of what `queue` holds of an id, in order.
fn take_of(
    queue: &EventQueue<Queued>,
    id: &CmId,
    mut is_wanted: impl FnMut(&Queued) -> bool,
) -> Vec<Queued> {
    let mut taken = Vec::new();
    queue.remove(|queued| {
        let wanted = ptr::eq(&*queued.id, id) && is_wanted(queued);
        if wanted {
            taken.push(queued.clone());
        }
        wanted
    });
    taken
}

impl Drop for CmId {
    fn drop(&mut self) {
        let abi = self.abi.get_mut();
        if !abi.route.path_rec.is_null() {
            // SAFETY: allocated as a `Box` in `set_path`, and the id's alone.
            drop(unsafe { Box::from_raw(abi.route.path_rec) });
        }
    }
}

/// The path of an id as its program sees it.
pub(super) fn set_path(id: &CmId, record: IbvSaPathRec) {
    // SAFETY: the route is written by the program's threads alone.
    let route = unsafe { &mut (*id.abi()).route };
    match route.path_rec.is_null() {
        true => route.path_rec = Box::into_raw(Box::new(record)),
        // SAFETY: ours, from before.
        false => unsafe { *route.path_rec = record },
    }
    route.num_paths = 1;
}

/// # Safety
/// The channel must be null or live, `id` null or valid.
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut RdmaEventChannel,
    id: *mut *mut RdmaCmId,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { id.as_mut() }) else { return errno::minus_one(Err(EINVAL)) };
    let qp_type = if matches!(ps, RDMA_PS_IPOIB | RDMA_PS_UDP) { QPT_UD } else { QPT_RC };
    // SAFETY: as above.
    let made = unsafe { CmId::new(channel, context, ps, qp_type) };
    errno::minus_one(made.map(|id| {
        *place = id.into_abi();
        0
    }))
}

/// Destroys an id; waits until its events are acknowledged.
///
/// # Safety
/// The id must be null or live, and is gone if this succeeds.
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { CmId::of(id) };
    errno::minus_one(found.map(|id| {
        destroy(&id);
        // SAFETY: this is the count the program had.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&id)) };
        0
    }))
}

/// Ends all an id is about. Nothing is told of it afterwards.
pub(super) fn destroy(id: &Arc<CmId>) {
    release(id);
    sink::leave(id);
    for queued in id.take_queued(|_| true) {
        refuse_request(&queued);
    }
    id.release_event();
    id.wait_for_events(None);
    let is_sync = id.state().is_sync;
    if is_sync {
        // SAFETY: the channel is the id's own.
        unsafe { Channel::destroy((*id.abi()).channel) };
    }
}

/// Gives back what it has of its devices.
fn release(id: &CmId) {
    let mut state = id.state();
    state.phase = Phase::Destroyed;
    let listeners = mem::take(&mut state.listeners);
    let ports = mem::take(&mut state.ports);
    let connection = state.attached.zip(state.comm.take());
    // Where an engine cannot be locked, nothing of it is left either.
    for (attached, listener) in listeners {
        if let Ok(mut cm) = attached.engine.cm() {
            cm.unlisten(listener);
        }
    }
    if let Some((attached, comm)) = connection
        && let Ok(mut cm) = attached.engine.cm()
    {
        let now = cm.now();
        cm.destroy(now, comm);
    }
    release_ports(ports);
}

/// A request nobody will get any more is refused.
fn refuse_request(queued: &Queued) {
    if let What::Cm { device, comm, kind } = &queued.what
        && matches!(**kind, CmEventKind::Request(_) | CmEventKind::SidrRequest(_))
        && let Ok(attached) = Attached::new(device)
        && let Ok(mut cm) = attached.engine.cm()
    {
        let now = cm.now();
        cm.destroy(now, *comm);
    }
}

/// Moves an id, and what nobody has got yet of it, to another channel, or to one of its own.
///
/// # Safety
/// The id must be null or live, so must the channel.
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut RdmaCmId,
    channel: *mut RdmaEventChannel,
) -> c_int {
    // SAFETY: the caller's promise.
    let outcome = unsafe { CmId::of(id).and_then(|id| migrate(&id, channel)) };
    errno::minus_one(outcome.map(|()| 0))
}

/// # Safety
/// The channel must be null or live.
unsafe fn migrate(id: &Arc<CmId>, channel: *mut RdmaEventChannel) -> Result<(), Errno> {
    let was_sync = id.state().is_sync;
    let is_sync = channel.is_null();
    if was_sync && is_sync {
        return Err(refuse!(EINVAL, "migrate_id: the id has a channel of its own already"));
    }
    let channel = if is_sync { Channel::create()? } else { channel };
    // SAFETY: the caller's promise, or made above.
    let queue = unsafe { Channel::of(channel) }?.queue.clone();
    {
        // Nothing arrives meanwhile, so that the order stays.
        let mut inbox = lock(&id.inbox);
        if !Arc::ptr_eq(&inbox, &queue) {
            // One queue after the other: somebody may move an id the other way.
            for queued in take_of(&inbox, id, |_| true) {
                queue.push(queued);
            }
            *inbox = queue;
        }
    }
    // SAFETY: the field is the program's.
    let before = unsafe { mem::replace(&mut (*id.abi()).channel, channel) };
    id.state().is_sync = is_sync;
    if was_sync {
        id.release_event();
        // SAFETY: it was the id's own.
        unsafe { Channel::destroy(before) };
    }
    id.wait_for_events(None);
    Ok(())
}
