//! The two ends of a stream as they meet: the queue pair, its buffers, and what both sides know of
//! each other's room.
//!
//! Whoever calls into a socket takes the completions that are there, whatever they are of, and
//! tells the peer of room that has become free. Nothing does so while the program is busy
//! elsewhere: the peer can then send until the buffer is full, and no more.

use std::sync::{Mutex, MutexGuard};

use super::buffer::{Buffer, LOCAL_WRITE, REMOTE_WRITE};
use super::cm::CmId;
use super::config::Sizes;
use super::flow::{Pieces, RecvFlow, SendFlow};
use super::iov::Cursor;
use super::mapping::Mapped;
use super::protocol::{Hello, Mapping, Message, Order, TARGETS, Target};
use super::verbs::{self, Completed, Completions, Place, Source};
use crate::device::lock;
use crate::errno::Errno;
use crate::layout::{IbvPd, IbvQp, IbvQpCap, IbvQpInitAttr, IbvSge, IbvWc, zeroed};

/// `IBV_QPT_RC`.
const RC: libc::c_int = 2;
/// Completions that are taken at a time.
const BATCH: usize = 16;

/// Kinds of work requests, in the upper half of their number; the lower says how many bytes of the
/// send buffer they read.
const RECEIVE: u64 = 0;
const DATA: u64 = 1;
const CONTROL: u64 = 2;
const LAST: u64 = 3;

fn wr_id(kind: u64, len: u32) -> u64 {
    kind << 32 | u64::from(len)
}

/// A queue pair with its buffers.
#[derive(Debug)]
pub struct Link {
    qp: *mut IbvQp,
    completions: Completions,
    send_buffer: Buffer,
    recv_buffer: Buffer,
    /// What the peer writes: targets, then mapped buffers.
    lists: Buffer,
    sizes: Sizes,
    flow: Mutex<Flow>,
    /// One thread at a time sends, and one receives.
    pub sending: Mutex<()>,
    /// See [`Link::sending`].
    pub receiving: Mutex<()>,
    /// Buffers the application has mapped.
    pub mapped: Mutex<Mapped>,
}

// SAFETY: a QP is used from any thread.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

/// Why nothing can be sent or received any more, except what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// One of the two sides has said so, or is gone.
    Orderly,
    /// Something went wrong. The first to ask is told.
    Broken(Errno),
    /// It has been told.
    Told,
}

/// What changes.
#[derive(Debug)]
pub struct Flow {
    /// What may be sent.
    pub send: SendFlow,
    /// What has arrived.
    pub recv: RecvFlow,
    /// What the peer has told, once it has.
    peer: Option<Peer>,
    /// The entry of our list that the peer writes next.
    next_entry: usize,
    /// Whether an event is on its way when something completes.
    is_armed: bool,
    /// Whether the connection is established, so that messages may be sent.
    is_open: bool,
    /// Neither this side nor the peer has said that no more comes in.
    pub is_readable: bool,
    /// This side has not said that no more goes out.
    pub is_writable: bool,
    /// Set once and for all.
    pub end: Option<End>,
}

/// What the peer has told.
#[derive(Clone, Copy, Debug)]
struct Peer {
    order: Order,
    list: Target,
    next_entry: u32,
    mappings: u16,
}

impl Link {
    /// Makes the QP of an id that has a device, and posts its receives.
    ///
    /// # Errors
    /// Those of the verbs.
    pub fn new(id: &CmId, sizes: Sizes) -> Result<Link, Errno> {
        let count = u32::from(sizes.send_queue) + u32::from(sizes.recv_queue);
        // SAFETY: a context of an id is never closed.
        let completions = unsafe { Completions::new(id.context(), count)? };
        let mut attr = IbvQpInitAttr {
            send_cq: completions.cq(),
            recv_cq: completions.cq(),
            qp_type: RC,
            sq_sig_all: 1,
            cap: IbvQpCap {
                max_send_wr: u32::from(sizes.send_queue),
                max_recv_wr: u32::from(sizes.recv_queue),
                max_send_sge: 2,
                max_recv_sge: 1,
                // Entries for the peer's lists are always inline.
                max_inline_data: sizes.inline.max(Mapping::LEN as u32),
            },
            ..zeroed()
        };
        // SAFETY: the queue lives as long as the QP: it is destroyed after it.
        let qp = unsafe { id.create_qp(&mut attr)? };
        let sizes = Sizes { inline: attr.cap.max_inline_data, ..sizes };
        let [send_buffer, recv_buffer, lists] = prepare(qp, &sizes).inspect_err(|_| {
            id.destroy_qp();
        })?;
        let flow = Flow {
            send: SendFlow::new(sizes.send_buffer, u32::from(sizes.send_queue)),
            recv: RecvFlow::new(sizes.recv_buffer, sizes.recv_queue),
            peer: None,
            next_entry: 1,
            is_armed: false,
            is_open: false,
            is_readable: true,
            is_writable: true,
            end: None,
        };
        Ok(Link {
            qp,
            completions,
            send_buffer,
            recv_buffer,
            lists,
            sizes,
            flow: Mutex::new(flow),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            mapped: Mutex::default(),
        })
    }

    /// What the peer needs to know.
    pub fn hello(&self) -> Hello {
        let length = self.sizes.recv_buffer / 2;
        Hello {
            order: Order::HOST,
            credits: self.sizes.recv_queue,
            mappings: self.sizes.mappings,
            list: Target {
                addr: self.lists.addr(0),
                rkey: self.lists.rkey(),
                length: TARGETS as u32,
            },
            buffer: Target {
                addr: self.recv_buffer.addr(0),
                rkey: self.recv_buffer.rkey(),
                length,
            },
        }
    }

    /// What the peer has told.
    pub fn meet(&self, hello: &Hello) {
        let mut flow = self.flow();
        flow.send.start(hello.credits, hello.buffer);
        let Hello { order, list, mappings, .. } = *hello;
        flow.peer = Some(Peer { order, list, next_entry: 1 % list.length, mappings });
    }

    /// The connection is established.
    pub fn open(&self) {
        self.flow().is_open = true;
    }

    /// What changes, to oneself.
    pub fn flow(&self) -> MutexGuard<'_, Flow> {
        lock(&self.flow)
    }

    /// What the QP was made with.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The descriptor that an event makes readable.
    pub fn event_fd(&self) -> std::os::fd::RawFd {
        self.completions.fd()
    }

    /// Takes what has completed and tells the peer of room. Returns whether anything has changed.
    pub fn process(&self, flow: &mut Flow) -> bool {
        let mut has_changed = false;
        // No more than were there at first, or a peer could keep us here.
        let most = usize::from(self.sizes.send_queue) + usize::from(self.sizes.recv_queue);
        let mut taken = 0;
        while taken < most {
            let mut room = [zeroed::<IbvWc>(); BATCH];
            let (mut found, mut received) = (0, 0);
            for completed in self.completions.poll(&mut room) {
                found += 1;
                received +=
                    u32::from(completed.wr_id == wr_id(RECEIVE, 0) && completed.is_success());
                flow.completed(&completed);
            }
            for _ in 0..received {
                // SAFETY: the QP is live.
                if let Err(error) = unsafe { verbs::recv(self.qp, wr_id(RECEIVE, 0), &[]) } {
                    flow.end(End::Broken(error));
                }
            }
            taken += found;
            has_changed |= found > 0;
            if found < BATCH {
                break;
            }
        }
        if flow.send.wants_target()
            && let Some(target) = self.lists.take_target(flow.next_entry)
        {
            flow.next_entry = (flow.next_entry + 1) % TARGETS;
            flow.send.set_target(target);
            has_changed = true;
        }
        self.grant(flow);
        has_changed
    }

    /// Asks for an event at the next completion, unless one is on its way.
    pub fn arm(&self, flow: &mut Flow) {
        if !flow.is_armed {
            flow.is_armed = true;
            self.completions.arm();
        }
    }

    /// Takes the event that was asked for, if it has come: others that rely on it must be woken.
    pub fn take_event(&self, flow: &mut Flow) -> bool {
        let taken = self.completions.take_event();
        if taken {
            flow.is_armed = false;
        }
        taken
    }

    /// Tells the peer of room, if it is to be told and that is possible.
    pub fn grant(&self, flow: &mut Flow) {
        while flow.can_control() && flow.is_readable && flow.recv.owes_grant() {
            let Some(peer) = &mut flow.peer else { return };
            let grant = flow.recv.grant();
            let message = Message::Credit(grant.limit);
            let Some((at, length)) = grant.target else {
                self.control(flow, message);
                continue;
            };
            let addr = self.recv_buffer.addr(at);
            let target = Target { addr, rkey: self.recv_buffer.rkey(), length };
            let entry = target.emit(peer.order);
            let offset = u64::from(peer.next_entry) * Target::LEN as u64;
            let place = Place { addr: peer.list.addr.wrapping_add(offset), rkey: peer.list.rkey };
            peer.next_entry = (peer.next_entry + 1) % peer.list.length;
            flow.send.control();
            self.post(flow, wr_id(CONTROL, 0), Source::Inline(&[sge_of(&entry)]), place, message);
        }
    }

    /// Sends a message of 0 bytes; only if there [is room](Flow::can_control).
    pub fn control(&self, flow: &mut Flow, message: Message) {
        flow.send.control();
        let kind = if message == Message::Disconnect { LAST } else { CONTROL };
        self.post(flow, wr_id(kind, 0), Source::Registered(&[]), Place::default(), message);
    }

    /// Sends a sign of life, if there is room for one: an RDMA WRITE of nothing, which the
    /// program there does not see.
    pub fn keep_alive(&self, flow: &mut Flow) {
        if flow.can_control() {
            flow.send.control();
            let source = Source::Registered(&[]);
            // SAFETY: the QP is live.
            let posted =
                unsafe { verbs::write(self.qp, wr_id(CONTROL, 0), source, Place::default(), None) };
            if let Err(error) = posted {
                flow.end(End::Broken(error));
            }
        }
    }

    fn post(
        &self,
        flow: &mut Flow,
        wr_id: u64,
        source: Source<'_>,
        place: Place,
        message: Message,
    ) {
        // SAFETY: the QP is live, and so are the inline bytes.
        if let Err(error) = unsafe { verbs::write(self.qp, wr_id, source, place, message.emit()) } {
            flow.end(End::Broken(error));
        }
    }

    /// Takes the next `len` bytes of an application: inline if that is possible, or else copied to
    /// their place in the send buffer. For the one thread that [sends](Link::sending), if there is
    /// room for them.
    ///
    /// # Errors
    /// EFAULT; some of the bytes are then taken, but nothing is lost.
    ///
    /// # Safety
    /// The bytes must be there.
    pub unsafe fn gather(&self, bytes: &mut Cursor<'_>, len: u32) -> Result<Outgoing, Errno> {
        if len <= self.sizes.inline
            && let Some(start) = bytes.take(len)
        {
            return Ok(Outgoing::Inline(start, len));
        }
        let pieces = self.flow().send.place(len);
        for (at, len) in pieces {
            // SAFETY: the caller's promise.
            unsafe { bytes.fill(&self.send_buffer, at, len)? };
        }
        Ok(Outgoing::Buffered(pieces))
    }

    /// Writes bytes that are reserved, and says so in `message`. If it fails the stream is broken:
    /// it has a hole.
    ///
    /// # Errors
    /// Those of `ibv_post_send`.
    ///
    /// # Safety
    /// Inline bytes must be there.
    pub unsafe fn post_data(
        &self,
        bytes: Outgoing,
        place: Place,
        message: Option<Message>,
    ) -> Result<(), Errno> {
        let imm = message.and_then(Message::emit);
        let posted = match bytes {
            Outgoing::Inline(addr, len) => {
                let sge = IbvSge { addr: addr.addr() as u64, length: len, lkey: 0 };
                let source = Source::Inline(core::slice::from_ref(&sge));
                // SAFETY: the QP is live; the bytes are the caller's promise.
                unsafe { verbs::write(self.qp, wr_id(DATA, 0), source, place, imm) }
            }
            Outgoing::Buffered(pieces) => {
                let lkey = self.send_buffer.lkey();
                let sges = pieces.map(|(at, length)| {
                    let addr = if length > 0 { self.send_buffer.addr(at) } else { 0 };
                    IbvSge { addr, length, lkey }
                });
                let count = if pieces[1].1 > 0 { 2 } else { 1 };
                let len = pieces[0].1 + pieces[1].1;
                let source = Source::Registered(&sges[..count]);
                // SAFETY: the QP is live.
                unsafe { verbs::write(self.qp, wr_id(DATA, len), source, place, imm) }
            }
        };
        posted.inspect_err(|&error| self.flow().end(End::Broken(error)))
    }

    /// What the peer writes to.
    pub fn recv_buffer(&self) -> &Buffer {
        &self.recv_buffer
    }

    /// A buffer the peer has mapped; of no bytes if it has not.
    pub fn peer_mapping(&self, index: u16) -> Mapping {
        self.lists.mapping(TARGETS * Target::LEN, usize::from(index))
    }

    /// The domain of its memory.
    pub fn pd(&self) -> *mut IbvPd {
        // SAFETY: the QP is live.
        unsafe { (*self.qp).pd }
    }
}

/// Bytes on their way.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing {
    /// Copied as they are posted: where they are, and how many.
    Inline(*const u8, u32),
    /// In the send buffer.
    Buffered(Pieces),
}

impl Outgoing {
    /// Whether they take no room in the send buffer.
    pub fn is_inline(&self) -> bool {
        matches!(self, Outgoing::Inline(..))
    }
}

impl Flow {
    /// Whether both sides know of each other and nothing has ended.
    pub fn is_live(&self) -> bool {
        self.is_open && self.end.is_none()
    }

    /// Whether a control message can be sent.
    pub fn can_control(&self) -> bool {
        self.is_live() && self.send.has_control()
    }

    /// Whether all that was sent has arrived, or never will.
    pub fn is_settled(&self) -> bool {
        !self.is_live() || self.send.is_idle()
    }

    /// Nothing more will come or go. What came first is the reason.
    pub fn end(&mut self, why: End) {
        self.end.get_or_insert(why);
    }

    /// Bytes that can be sent in one message; `None` if there will never be room.
    pub fn room(&self) -> Option<u32> {
        (self.is_writable && self.end.is_none()).then(|| self.send.room())
    }

    /// The same of a message that is not aimed at the stream's target.
    pub fn buffer_room(&self) -> Option<u32> {
        (self.is_writable && self.end.is_none()).then(|| self.send.buffer_room())
    }

    /// Why nothing can be sent.
    pub fn send_error(&mut self) -> Errno {
        match self.end {
            Some(End::Broken(error)) => {
                self.end = Some(End::Told);
                error
            }
            None if !self.is_writable => Errno(libc::EPIPE),
            _ => Errno(libc::ECONNRESET),
        }
    }

    /// Where the peer's list of mapped buffers is, how many it has, and how it reads them.
    pub fn peer_mappings(&self) -> Option<(Target, u16, Order)> {
        let Peer { order, list, mappings, .. } = self.peer?;
        let behind = u64::from(list.length) * Target::LEN as u64;
        Some((Target { addr: list.addr.wrapping_add(behind), ..list }, mappings, order))
    }

    fn completed(&mut self, completed: &Completed) {
        let (kind, len) = (completed.wr_id >> 32, completed.wr_id as u32);
        match kind {
            RECEIVE => {
                if completed.is_success()
                    && let Some(imm) = completed.imm
                {
                    self.received(Message::parse(imm));
                }
                // Receives fail only when the QP does, which the sends or the peer's end tell.
                return;
            }
            DATA => self.send.completed(len),
            _ => self.send.control_completed(),
        }
        if !completed.is_success() {
            tracing::info!(status = completed.status, kind, "rsocket: a message does not arrive");
            self.end(End::Broken(Errno(libc::ECONNRESET)));
        } else if kind == LAST {
            self.end(End::Orderly);
        }
    }

    fn received(&mut self, message: Message) {
        match message {
            Message::Data(len) => {
                if self.recv.arrive(len).is_err() && self.end.is_none() {
                    tracing::warn!(len, "rsocket: the peer says it sent more than it was granted");
                    self.end(End::Broken(Errno(libc::EPROTO)));
                }
            }
            Message::Credit(limit) => self.send.grant(limit),
            Message::Mapped(_) => self.recv.message_read(),
            Message::Disconnect => self.end(End::Orderly),
            Message::Shutdown => {
                self.is_readable = false;
                if !self.is_writable {
                    self.end(End::Orderly);
                }
            }
            Message::KeepAlive | Message::Unknown => {}
        }
    }
}

/// Posts the receives of a QP and makes its buffers: to send from, to receive in, and for lists.
fn prepare(qp: *mut IbvQp, sizes: &Sizes) -> Result<[Buffer; 3], Errno> {
    for _ in 0..sizes.recv_queue {
        // SAFETY: the QP is live.
        unsafe { verbs::recv(qp, wr_id(RECEIVE, 0), &[])? };
    }
    let lists_len = TARGETS * Target::LEN + usize::from(sizes.mappings) * Mapping::LEN;
    let remote = LOCAL_WRITE | REMOTE_WRITE;
    // SAFETY: the QP is live, and the domain of a device is never freed.
    unsafe {
        let pd = (*qp).pd;
        Ok([
            Buffer::new(pd, sizes.send_buffer as usize, LOCAL_WRITE)?,
            Buffer::new(pd, sizes.recv_buffer as usize, remote)?,
            Buffer::new(pd, lists_len, remote)?,
        ])
    }
}

/// An entry as what a work request reads.
fn sge_of(bytes: &[u8]) -> IbvSge {
    IbvSge { addr: bytes.as_ptr().addr() as u64, length: bytes.len() as u32, lkey: 0 }
}
