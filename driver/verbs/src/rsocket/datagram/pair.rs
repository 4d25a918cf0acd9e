//! A UD queue pair on one of this host's addresses, and the way to a peer from it.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::header::UdHeader;
use crate::ah::{ibv_create_ah, ibv_destroy_ah};
use crate::device::lock;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvAh, IbvAhAttr, IbvGid, IbvPortAttr, IbvQp, IbvQpCap, IbvQpInitAttr, IbvSaPathRec, IbvSge,
    IbvWc, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_UDP_QKEY, zeroed,
};
use crate::port::{ibv_query_gid, ibv_query_port};
use crate::rsocket::addr::SockAddr;
use crate::rsocket::buffer::{Buffer, LOCAL_WRITE};
use crate::rsocket::cm::{CmId, EventChannel};
use crate::rsocket::config::Sizes;
use crate::rsocket::fd::poll;
use crate::rsocket::iov::Cursor;
use crate::rsocket::verbs::{self, Completions, Peer, Source};

/// `IBV_QPT_UD`.
const UD: libc::c_int = 4;
/// Bytes of the largest datagram that peers take, with its header, and of a buffer to send from.
pub const SLOT: u32 = 2048;
/// Bytes of a buffer to receive in: what any packet can hold, so that none breaks the QP.
const RECV_SLOT: u32 = 4096;
/// Bytes in front of what is received, which nobody needs.
const GRH: u32 = 40;
/// Completions that are taken at a time.
const BATCH: usize = 16;
/// How long a step of resolving a peer's address may take.
const RESOLVE_MS: libc::c_int = 2000;

/// Bit of a work request's number that says that it is a send.
const IS_SEND: u64 = 1 << 32;

/// A QP with its buffers.
#[derive(Debug)]
pub struct Pair {
    qp: *mut IbvQp,
    completions: Completions,
    send_buffer: Buffer,
    recv_buffer: Buffer,
    id: CmId,
    /// Only to be there: nothing happens to an id that is bound.
    _channel: EventChannel,
    /// Where peers see datagrams come from.
    pub source: SockAddr,
    /// Bytes of the largest datagram, header and all.
    pub most: u32,
    inline: u32,
    recv_count: u32,
    state: Mutex<State>,
}

// SAFETY: a QP is used from any thread.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

#[derive(Debug)]
struct State {
    free: Vec<u32>,
    /// By the slot that is sent: the address handle is in use until then.
    handles: Vec<Option<Arc<Handle>>>,
    is_armed: bool,
}

/// A datagram in a buffer of the QP, which gets it back to be filled again.
#[derive(Debug)]
pub struct Received {
    pair: Arc<Pair>,
    slot: u32,
    len: u32,
}

impl Pair {
    /// A QP on a local address.
    ///
    /// # Errors
    /// Those of the verbs; EADDRNOTAVAIL, ENODEV.
    pub fn new(source: &SockAddr, sizes: &Sizes) -> Result<Arc<Pair>, Errno> {
        let channel = EventChannel::new()?;
        let id = CmId::datagram(&channel)?;
        id.bind(source)?;
        if id.context().is_null() {
            return Err(Errno(libc::ENODEV));
        }
        let count = |queue: u16, bytes: u32| u32::from(queue).min(bytes / SLOT).max(1);
        let send_count = count(sizes.send_queue, sizes.send_buffer);
        let recv_count = count(sizes.recv_queue, sizes.recv_buffer);
        // SAFETY: a context of an id is never closed.
        let completions = unsafe { Completions::new(id.context(), send_count + recv_count)? };
        let mut attr = IbvQpInitAttr {
            send_cq: completions.cq(),
            recv_cq: completions.cq(),
            qp_type: UD,
            sq_sig_all: 1,
            cap: IbvQpCap {
                max_send_wr: send_count,
                max_recv_wr: recv_count,
                max_send_sge: 1,
                max_recv_sge: 2,
                max_inline_data: sizes.inline,
            },
            ..zeroed()
        };
        // SAFETY: the queue lives as long as the QP: it is destroyed after it.
        let qp = unsafe { id.create_qp(&mut attr)? };
        let built = prepare(&id, qp, send_count, recv_count);
        let (send_buffer, recv_buffer, most) = built.inspect_err(|_| id.destroy_qp())?;
        let state = State {
            free: (0..send_count).collect(),
            handles: (0..send_count).map(|_| None).collect(),
            is_armed: false,
        };
        Ok(Arc::new(Pair {
            qp,
            completions,
            send_buffer,
            recv_buffer,
            id,
            _channel: channel,
            source: *source,
            most,
            inline: attr.cap.max_inline_data,
            recv_count,
            state: Mutex::new(state),
        }))
    }

    /// Its number.
    pub fn qpn(&self) -> u32 {
        // SAFETY: the QP is live.
        unsafe { (*self.qp).qp_num }
    }

    /// Datagrams it can receive before any is read.
    pub fn recv_count(&self) -> usize {
        self.recv_count as usize
    }

    /// Whether a datagram can be sent.
    pub fn has_room(&self) -> bool {
        !lock(&self.state).free.is_empty()
    }

    /// Whether all that was sent has gone.
    pub fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.free.len() == state.handles.len()
    }

    /// Sends a datagram, if there [is room](Pair::has_room) for it: else EAGAIN.
    ///
    /// # Errors
    /// Those of `ibv_post_send`; EFAULT.
    ///
    /// # Safety
    /// The bytes must be there.
    pub unsafe fn send(
        &self,
        bytes: &mut Cursor<'_>,
        handle: &Arc<Handle>,
        qpn: u32,
    ) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let slot = state.free.pop().ok_or(Errno(libc::EAGAIN))?;
        let header = UdHeader::emit(&self.source);
        let (at, data_len) = (slot * SLOT, bytes.left() as u32);
        let header_len = header.len() as u32;
        self.send_buffer.put(at, &header);
        let length = header_len + data_len;
        let sge =
            [IbvSge { addr: self.send_buffer.addr(at), length, lkey: self.send_buffer.lkey() }];
        let source =
            if length <= self.inline { Source::Inline(&sge) } else { Source::Registered(&sge) };
        let peer = Peer { ah: handle.0, qpn, qkey: RDMA_UDP_QKEY };
        // SAFETY: the caller's promise; the QP and the handle are live.
        let posted = unsafe {
            let filled = bytes.fill(&self.send_buffer, at + header_len, data_len);
            let wr_id = IS_SEND | u64::from(slot);
            filled.and_then(|()| verbs::send_to(self.qp, wr_id, source, peer))
        };
        match &posted {
            Ok(()) => state.handles[slot as usize] = Some(handle.clone()),
            Err(_) => state.free.push(slot),
        }
        posted
    }

    /// Takes what has completed, and gives datagrams of rsockets to `inbox`. Returns whether there
    /// was anything.
    pub fn process(self: &Arc<Pair>, mut inbox: impl FnMut(SockAddr, Received)) -> bool {
        let mut state = lock(&self.state);
        let most = state.handles.len() + self.recv_count();
        let mut taken = 0;
        while taken < most {
            let mut room = [zeroed::<IbvWc>(); BATCH];
            let before = taken;
            for completed in self.completions.poll(&mut room) {
                taken += 1;
                let slot = completed.wr_id as u32;
                if completed.wr_id & IS_SEND != 0 {
                    state.free.push(slot);
                    state.handles[slot as usize] = None;
                    continue;
                }
                if !completed.is_success() {
                    continue;
                }
                let len = completed.byte_len.saturating_sub(GRH).min(RECV_SLOT);
                let received = Received { pair: self.clone(), slot, len };
                if let Some(from) = received.sender() {
                    inbox(from, received);
                }
            }
            if taken - before < BATCH {
                break;
            }
        }
        taken > 0
    }

    /// Asks for an event at the next completion, and returns the descriptor it makes readable.
    pub fn arm(&self) -> RawFd {
        let mut state = lock(&self.state);
        if !state.is_armed {
            state.is_armed = true;
            self.completions.arm();
        }
        self.completions.fd()
    }

    /// Takes the event, if it has come: others that rely on it must be woken.
    pub fn take_event(&self) -> bool {
        let mut state = lock(&self.state);
        let taken = self.completions.take_event();
        if taken {
            state.is_armed = false;
        }
        taken
    }

    /// The way to a peer from here.
    ///
    /// # Errors
    /// EHOSTUNREACH, ETIMEDOUT; those of the verbs.
    pub fn handle_to(&self, peer: &SockAddr) -> Result<Arc<Handle>, Errno> {
        let channel = EventChannel::new()?;
        let id = CmId::datagram(&channel)?;
        let source = self.source.with_port([0; 2]);
        id.resolve_addr(Some(&source), peer, RESOLVE_MS)?;
        expect(&channel, RDMA_CM_EVENT_ADDR_RESOLVED)?;
        id.resolve_route(RESOLVE_MS)?;
        expect(&channel, RDMA_CM_EVENT_ROUTE_RESOLVED)?;
        let path = *id.paths().first().ok_or(Errno(libc::EHOSTUNREACH))?;
        let mut attr = self.ah_attr(&path)?;
        // SAFETY: the domain of a QP that is live.
        let ah = unsafe { ibv_create_ah((*self.qp).pd, &mut attr) };
        if ah.is_null() { Err(errno::last()) } else { Ok(Arc::new(Handle(ah))) }
    }

    fn ah_attr(&self, path: &IbvSaPathRec) -> Result<IbvAhAttr, Errno> {
        let mut attr: IbvAhAttr = zeroed();
        attr.is_global = 1;
        attr.grh.dgid = path.dgid;
        attr.grh.flow_label = u32::from_be(path.flow_label);
        attr.grh.sgid_index = self.gid_index(&path.sgid)?;
        attr.grh.hop_limit = path.hop_limit;
        attr.grh.traffic_class = path.traffic_class;
        attr.sl = path.sl;
        attr.port_num = self.id.port_num();
        Ok(attr)
    }

    fn gid_index(&self, wanted: &IbvGid) -> Result<u8, Errno> {
        let found = (0..=u8::MAX).find_map(|index| {
            let mut gid = IbvGid { raw: [0; 16] };
            // SAFETY: the context of an id is never closed.
            let outcome = unsafe {
                ibv_query_gid(self.id.context(), self.id.port_num(), index.into(), &mut gid)
            };
            match outcome {
                0 => (gid.raw == wanted.raw).then_some(Ok(index)),
                _ => Some(Err(EINVAL)),
            }
        });
        found.unwrap_or(Err(EINVAL))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.id.destroy_qp();
    }
}

/// The buffers of a QP, all receives posted, and the bytes of the largest datagram.
fn prepare(
    id: &CmId,
    qp: *mut IbvQp,
    send_count: u32,
    recv_count: u32,
) -> Result<(Buffer, Buffer, u32), Errno> {
    // SAFETY: the QP is live, and the domain of a device is never freed.
    let (send_buffer, recv_buffer) = unsafe {
        let pd = (*qp).pd;
        (
            Buffer::new(pd, (send_count * SLOT) as usize, LOCAL_WRITE)?,
            Buffer::new(pd, (recv_count * RECV_SLOT + GRH) as usize, LOCAL_WRITE)?,
        )
    };
    for slot in 0..recv_count {
        post_recv(qp, &recv_buffer, recv_count, slot)?;
    }
    let mut port: IbvPortAttr = zeroed();
    // SAFETY: the context of an id is never closed.
    match unsafe { ibv_query_port(id.context(), id.port_num(), &mut port) } {
        0 => {}
        error => return Err(Errno(error)),
    }
    let mtu = 128u32 << port.active_mtu.clamp(1, 5);
    Ok((send_buffer, recv_buffer, mtu.min(SLOT)))
}

fn post_recv(qp: *mut IbvQp, buffer: &Buffer, count: u32, slot: u32) -> Result<(), Errno> {
    let lkey = buffer.lkey();
    let sge = |at, length| IbvSge { addr: buffer.addr(at), length, lkey };
    // SAFETY: the QP is live.
    unsafe {
        verbs::recv(
            qp,
            slot.into(),
            &[sge(count * RECV_SLOT, GRH), sge(slot * RECV_SLOT, RECV_SLOT)],
        )
    }
}

/// Waits for an event of that kind.
fn expect(channel: &EventChannel, kind: libc::c_int) -> Result<(), Errno> {
    let end = Instant::now() + Duration::from_millis(RESOLVE_MS as u64);
    loop {
        if let Some(event) = channel.next() {
            return match event.kind {
                found if found == kind => Ok(()),
                _ if event.status < 0 => Err(Errno(-event.status)),
                _ => Err(Errno(libc::EHOSTUNREACH)),
            };
        }
        let left = end.checked_duration_since(Instant::now()).ok_or(Errno(libc::ETIMEDOUT))?;
        let mut fds = [libc::pollfd { fd: channel.fd(), events: libc::POLLIN, revents: 0 }];
        poll(&mut fds, left.as_millis() as libc::c_int + 1)?;
    }
}

/// An address handle.
#[derive(Debug)]
pub struct Handle(*mut IbvAh);

// SAFETY: a handle is used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `handle_to`; no work request uses it any more.
        unsafe { ibv_destroy_ah(self.0) };
    }
}

impl Received {
    /// Datagrams its queue pair receives before any is read.
    pub fn room(&self) -> usize {
        self.pair.recv_count()
    }

    /// Who has sent it; `None` if it is not of an rsocket.
    fn sender(&self) -> Option<SockAddr> {
        Some(self.header()?.0)
    }

    fn header(&self) -> Option<(SockAddr, usize)> {
        let mut head = [0; UdHeader::MAX];
        let head = &mut head[..UdHeader::MAX.min(self.len as usize)];
        self.pair.recv_buffer.get(self.slot * RECV_SLOT, head);
        UdHeader::parse(head)
    }

    /// Where the data lies in the buffer, and how long it is.
    fn data(&self) -> (u32, u32) {
        let header_len = self.header().map_or(0, |(_, len)| len as u32);
        (self.slot * RECV_SLOT + header_len, self.len - header_len)
    }

    /// Moves the data to a program, cut to the room there is. Returns how much fits.
    ///
    /// # Errors
    /// EFAULT.
    ///
    /// # Safety
    /// There must be as much room as said.
    pub unsafe fn drain(&self, room: &mut Cursor<'_>) -> Result<usize, Errno> {
        let (at, len) = self.data();
        let len = u32::try_from(room.left()).unwrap_or(u32::MAX).min(len);
        // SAFETY: the caller's promise.
        unsafe { room.drain(&self.pair.recv_buffer, at, len)? };
        Ok(len as usize)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Pair { qp, recv_buffer, recv_count, .. } = &*self.pair;
        if let Err(error) = post_recv(*qp, recv_buffer, *recv_count, self.slot) {
            tracing::warn!(errno = error.0, "rsocket: a datagram's buffer is lost");
        }
    }
}
