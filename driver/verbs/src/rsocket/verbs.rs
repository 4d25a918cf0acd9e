//! The verbs that rsockets need, over the calls a program has: completion queues with a channel,
//! and work requests.

use core::ffi::c_int;
use core::ptr;
use std::os::fd::RawFd;

use crate::channel::{
    ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event,
};
use crate::cq::{ibv_create_cq, ibv_destroy_cq, poll_cq, req_notify_cq};
use crate::errno::{self, Errno};
use crate::layout::codes::wr::{SEND, WRITE, WRITE_IMM};
use crate::layout::codes::{SEND_INLINE, WC_WITH_IMM};
use crate::layout::{
    IbvAh, IbvCompChannel, IbvContext, IbvCq, IbvQp, IbvRdma, IbvRecvWr, IbvSendWr, IbvSendWrOp,
    IbvSge, IbvUd, IbvWc, zeroed,
};
use crate::post::{post_recv, post_send};

use super::fd::set_nonblocking;

/// `IBV_WC_SUCCESS`.
const SUCCESS: c_int = 0;

/// A completion queue and its channel, which never blocks.
#[derive(Debug)]
pub struct Completions {
    channel: *mut IbvCompChannel,
    cq: *mut IbvCq,
}

// SAFETY: a CQ and a channel are used from any thread.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// As it was posted.
    pub wr_id: u64,
    /// `IBV_WC_*`.
    pub status: c_int,
    /// Bytes received.
    pub byte_len: u32,
    /// Immediate data that came along, in host order.
    pub imm: Option<u32>,
}

impl Completed {
    /// Whether the work was done.
    pub fn is_success(&self) -> bool {
        self.status == SUCCESS
    }
}

impl Completions {
    /// For `count` completions.
    ///
    /// # Errors
    /// Those of the verbs.
    ///
    /// # Safety
    /// The context must be live, and outlive this.
    pub unsafe fn new(context: *mut IbvContext, count: u32) -> Result<Completions, Errno> {
        // SAFETY: the caller's promise.
        let channel = unsafe { ibv_create_comp_channel(context) };
        if channel.is_null() {
            return Err(errno::last());
        }
        let mut completions = Completions { channel, cq: ptr::null_mut() };
        set_nonblocking(completions.fd())?;
        let count = c_int::try_from(count).unwrap_or(c_int::MAX);
        // SAFETY: as above; the channel was just made.
        completions.cq = unsafe { ibv_create_cq(context, count, ptr::null_mut(), channel, 0) };
        if completions.cq.is_null() { Err(errno::last()) } else { Ok(completions) }
    }

    /// The queue itself, for a QP that lives less long.
    pub fn cq(&self) -> *mut IbvCq {
        self.cq
    }

    /// Becomes readable when something completes after [`Completions::arm`].
    pub fn fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as this.
        unsafe { (*self.channel).fd }
    }

    /// Asks for an event at the next completion.
    pub fn arm(&self) {
        // SAFETY: the queue lives as long as this.
        unsafe { req_notify_cq(self.cq, 0) };
    }

    /// Takes an event, if there is one.
    pub fn take_event(&self) -> bool {
        let mut cq = ptr::null_mut();
        // SAFETY: the channel and its one queue live as long as this.
        unsafe {
            let taken = ibv_get_cq_event(self.channel, &mut cq, ptr::null_mut()) == 0;
            if taken {
                ibv_ack_cq_events(cq, 1);
            }
            taken
        }
    }

    /// Takes completions, at most as many as there is room for.
    pub fn poll<'a>(&self, room: &'a mut [IbvWc]) -> impl Iterator<Item = Completed> + use<'a> {
        // SAFETY: the queue lives as long as this, and there is room for so many.
        let count = unsafe { poll_cq(self.cq, room.len() as c_int, room.as_mut_ptr()) };
        room[..usize::try_from(count).unwrap_or(0)].iter().map(|wc| Completed {
            wr_id: wc.wr_id,
            status: wc.status,
            byte_len: wc.byte_len,
            imm: (wc.wc_flags & WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data)),
        })
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the QP is gone before.
        unsafe {
            if !self.cq.is_null() {
                ibv_destroy_cq(self.cq);
            }
            ibv_destroy_comp_channel(self.channel);
        }
    }
}

/// What a work request reads.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Bytes that are copied when it is posted.
    Inline(&'a [IbvSge]),
    /// Registered memory.
    Registered(&'a [IbvSge]),
}

/// Where an RDMA WRITE goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Address.
    pub addr: u64,
    /// R_Key.
    pub rkey: u32,
}

/// Posts an RDMA WRITE, with immediate data if there is some, in host order.
///
/// # Errors
/// Those of `ibv_post_send`.
///
/// # Safety
/// The QP must be live, and inline bytes be there.
pub unsafe fn write(
    qp: *mut IbvQp,
    wr_id: u64,
    source: Source<'_>,
    place: Place,
    imm: Option<u32>,
) -> Result<(), Errno> {
    let opcode = if imm.is_some() { WRITE_IMM } else { WRITE };
    let rdma = IbvRdma { remote_addr: place.addr, rkey: place.rkey };
    let imm_data = imm.unwrap_or(0).to_be();
    let wr = IbvSendWr { wr_id, opcode, imm_data, wr: IbvSendWrOp { rdma }, ..zeroed() };
    // SAFETY: the caller's promise.
    unsafe { post(qp, wr, source) }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Address handle.
    pub ah: *mut IbvAh,
    /// QPN.
    pub qpn: u32,
    /// Q_Key.
    pub qkey: u32,
}

/// Posts a SEND of a datagram.
///
/// # Errors
/// Those of `ibv_post_send`.
///
/// # Safety
/// The QP and the address handle must be live, and inline bytes be there.
pub unsafe fn send_to(
    qp: *mut IbvQp,
    wr_id: u64,
    source: Source<'_>,
    peer: Peer,
) -> Result<(), Errno> {
    let ud = IbvUd { ah: peer.ah, remote_qpn: peer.qpn, remote_qkey: peer.qkey };
    let wr = IbvSendWr { wr_id, opcode: SEND, wr: IbvSendWrOp { ud }, ..zeroed() };
    // SAFETY: the caller's promise.
    unsafe { post(qp, wr, source) }
}

/// # Safety
/// As its callers'.
unsafe fn post(qp: *mut IbvQp, mut wr: IbvSendWr, source: Source<'_>) -> Result<(), Errno> {
    let (list, flags) = match source {
        Source::Inline(list) => (list, SEND_INLINE),
        Source::Registered(list) => (list, 0),
    };
    // The list is only read.
    wr.sg_list = list.as_ptr().cast_mut();
    wr.num_sge = list.len() as c_int;
    wr.send_flags = flags;
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's promise; all else lives during the call.
    match unsafe { post_send(qp, &mut wr, &mut bad) } {
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}

/// Posts a receive.
///
/// # Errors
/// Those of `ibv_post_recv`.
///
/// # Safety
/// The QP must be live.
pub unsafe fn recv(qp: *mut IbvQp, wr_id: u64, list: &[IbvSge]) -> Result<(), Errno> {
    let sg_list = list.as_ptr().cast_mut();
    let mut wr = IbvRecvWr { wr_id, sg_list, num_sge: list.len() as c_int, ..zeroed() };
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's promise; all else lives during the call.
    match unsafe { post_recv(qp, &mut wr, &mut bad) } {
        0 => Ok(()),
        error => Err(Errno(error)),
    }
}
