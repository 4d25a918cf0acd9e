//! Work requests, and batches of them.

use ferroce_stack::MAX_MESSAGE;
use ferroce_stack::verbs::{
    Access, FlushLevel, MwBind, QpState, QpType, Qpn, RecvWr, SendData, SendFlags, SendOp, SendWr,
    Sge, UdTarget, VerbsError,
};

use super::{AddressHandle, Context, Error, LocalSlice, RemoteRegion, Window};
use crate::engine::{self, QueuePair};

/// Slices of one work request, at most: those of the device.
const MAX_SLICES: usize = 32;

/// The bytes a send work request sends, or where the bytes it fetches go.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory, piece after piece. It is read when packets are built: until the work
    /// request has completed, what is written there may be sent.
    Slices(&'a [LocalSlice<'a>]),
    /// Bytes that are copied when posted; only for a SEND or an RDMA WRITE.
    Inline(&'a [u8]),
}

impl<'a> From<&'a [LocalSlice<'a>]> for Payload<'a> {
    fn from(slices: &'a [LocalSlice<'a>]) -> Payload<'a> {
        Payload::Slices(slices)
    }
}

impl<'a, const N: usize> From<&'a [LocalSlice<'a>; N]> for Payload<'a> {
    fn from(slices: &'a [LocalSlice<'a>; N]) -> Payload<'a> {
        Payload::Slices(slices)
    }
}

/// A send work request. It makes a completion unless it says [`SendRequest::unsignaled`]; one that
/// fails always does.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    wr_id: u64,
    op: SendOp,
    payload: Payload<'a>,
    flags: SendFlags,
    ud: Option<UdTarget>,
    srqn: Option<u32>,
}

impl<'a> SendRequest<'a> {
    fn new(wr_id: u64, op: SendOp, payload: Payload<'a>) -> SendRequest<'a> {
        SendRequest { wr_id, op, payload, flags: SendFlags::SIGNALED, ud: None, srqn: None }
    }

    /// SEND: a message to a receive of the peer.
    pub fn send(wr_id: u64, payload: impl Into<Payload<'a>>) -> SendRequest<'a> {
        SendRequest::new(wr_id, SendOp::Send, payload.into())
    }

    /// SEND with four bytes for the completion of the receive.
    pub fn send_with_imm(wr_id: u64, payload: impl Into<Payload<'a>>, imm: u32) -> SendRequest<'a> {
        SendRequest::new(wr_id, SendOp::SendImm(imm.to_be_bytes()), payload.into())
    }

    /// SEND that invalidates a window of the peer.
    pub fn send_with_invalidate(
        wr_id: u64,
        payload: impl Into<Payload<'a>>,
        window: RemoteRegion,
    ) -> SendRequest<'a> {
        SendRequest::new(wr_id, SendOp::SendInv(window.rkey), payload.into())
    }

    /// RDMA WRITE to the start of `remote`.
    pub fn write(
        wr_id: u64,
        payload: impl Into<Payload<'a>>,
        remote: RemoteRegion,
    ) -> SendRequest<'a> {
        SendRequest::new(wr_id, SendOp::Write(remote.first()), payload.into())
    }

    /// RDMA WRITE that takes a receive of the peer and hands it four bytes.
    pub fn write_with_imm(
        wr_id: u64,
        payload: impl Into<Payload<'a>>,
        remote: RemoteRegion,
        imm: u32,
    ) -> SendRequest<'a> {
        let op = SendOp::WriteImm(remote.first(), imm.to_be_bytes());
        SendRequest::new(wr_id, op, payload.into())
    }

    /// RDMA READ from the start of `remote` into `slices`, until they are full.
    pub fn read(wr_id: u64, slices: &'a [LocalSlice<'a>], remote: RemoteRegion) -> SendRequest<'a> {
        SendRequest::new(wr_id, SendOp::Read(remote.first()), slices.into())
    }

    /// Atomic: sets the 8-byte word at the start of `remote` to `swap` if it is `compare`. What it
    /// was goes to `slices`, 8 bytes.
    pub fn compare_swap(
        wr_id: u64,
        slices: &'a [LocalSlice<'a>],
        remote: RemoteRegion,
        compare: u64,
        swap: u64,
    ) -> SendRequest<'a> {
        let op = SendOp::CompareSwap { remote: remote.first(), compare, swap };
        SendRequest::new(wr_id, op, slices.into())
    }

    /// Atomic: adds to the 8-byte word at the start of `remote`, modulo 2^64. What it was goes to
    /// `slices`, 8 bytes.
    pub fn fetch_add(
        wr_id: u64,
        slices: &'a [LocalSlice<'a>],
        remote: RemoteRegion,
        add: u64,
    ) -> SendRequest<'a> {
        let op = SendOp::FetchAdd { remote: remote.first(), add };
        SendRequest::new(wr_id, op, slices.into())
    }

    /// ATOMIC WRITE: stores the 8-byte word at the start of `remote` in one piece, after all
    /// earlier work requests.
    pub fn atomic_write(wr_id: u64, remote: RemoteRegion, value: u64) -> SendRequest<'a> {
        let op = SendOp::AtomicWrite(remote.first(), value);
        SendRequest::new(wr_id, op, Payload::Slices(&[]))
    }

    /// FLUSH: completes when earlier writes to `remote` are visible there to everybody
    /// ([`Access::FLUSH_GLOBAL`]), or will outlast the power ([`Access::FLUSH_PERSISTENT`]).
    pub fn flush(wr_id: u64, remote: RemoteRegion, placement: Access) -> SendRequest<'a> {
        let length = u32::try_from(remote.len).unwrap_or(u32::MAX);
        let (level, remote) = (FlushLevel::Range, remote.first());
        let op = SendOp::Flush { remote, length, level, placement };
        SendRequest::new(wr_id, op, Payload::Slices(&[]))
    }

    /// Binds a window to `slice`, with `access` for the peer of this QP. The region needs
    /// [`Access::MW_BIND`], and a window that is bound has to be invalidated first.
    pub fn bind(
        wr_id: u64,
        window: &Window,
        slice: &LocalSlice<'_>,
        access: Access,
    ) -> SendRequest<'a> {
        let Sge { addr, length, .. } = slice.sge();
        let bind = MwBind { mr: slice.mr().handle(), addr, length: u64::from(length), access };
        let op = SendOp::BindMw { mw: window.handle(), rkey: window.take_key().into(), bind };
        SendRequest::new(wr_id, op, Payload::Slices(&[]))
    }

    /// Invalidates a window of this side.
    pub fn invalidate(wr_id: u64, window: RemoteRegion) -> SendRequest<'a> {
        SendRequest::new(wr_id, SendOp::LocalInv(window.rkey), Payload::Slices(&[]))
    }

    /// The destination of a datagram: a UD QP there, and its Q_Key.
    pub fn to(self, ah: &'a AddressHandle, qpn: Qpn, qkey: u32) -> SendRequest<'a> {
        SendRequest { ud: Some(UdTarget { ah: ah.handle(), qpn, qkey }), ..self }
    }

    /// The destination of an XRC message: the number of a shared receive queue of the peer.
    pub fn to_srq(self, number: u32) -> SendRequest<'a> {
        SendRequest { srqn: Some(number), ..self }
    }

    /// Makes no completion if it succeeds. The queue is full once it holds as many of these as it
    /// takes: only a later signaled one tells that they are done.
    pub fn unsignaled(self) -> SendRequest<'a> {
        SendRequest { flags: self.flags.without(SendFlags::SIGNALED), ..self }
    }

    /// Waits for earlier READs and atomics of the QP.
    pub fn fence(self) -> SendRequest<'a> {
        SendRequest { flags: self.flags | SendFlags::FENCE, ..self }
    }

    /// Wakes a peer that has armed its CQ for solicited completions only.
    pub fn solicited(self) -> SendRequest<'a> {
        SendRequest { flags: self.flags | SendFlags::SOLICITED, ..self }
    }
}

/// Send work requests on their way into a queue; they are posted when the batch is dropped. Other
/// threads that post to the same QP wait meanwhile.
#[derive(Debug)]
pub struct SendBatch<'a> {
    context: &'a Context,
    qp: &'a QueuePair,
    batch: engine::SendBatch<'a>,
}

impl<'a> SendBatch<'a> {
    pub(super) fn new(context: &'a Context, qp: &'a QueuePair) -> SendBatch<'a> {
        SendBatch { context, qp, batch: context.engine().send(qp) }
    }

    /// Adds a work request.
    ///
    /// # Errors
    /// [`Error::Refused`] if the QP does not take it; [`Error::QueueFull`]. Those before it stay.
    pub fn push(&mut self, request: &SendRequest<'_>) -> Result<(), Error> {
        let mut sges = [Sge::default(); MAX_SLICES];
        let data = match request.payload {
            Payload::Slices(slices) => SendData::Sges(fill(&mut sges, slices)),
            Payload::Inline(bytes) => SendData::Inline(bytes),
        };
        let SendRequest { wr_id, op, flags, ud, srqn, .. } = *request;
        let wr = SendWr { wr_id, op, data, flags, ud, srqn };
        if let Payload::Slices(slices) = request.payload
            && slices.len() > MAX_SLICES
        {
            return Err(self.explain(&wr, slices.len(), VerbsError::Invalid));
        }
        self.batch.push(&wr).map_err(|error| match data {
            SendData::Sges(sges) => self.explain(&wr, sges.len(), error),
            SendData::Inline(_) => self.explain(&wr, 0, error),
        })
    }

    /// Which part of a refused work request is at fault.
    fn explain(&self, wr: &SendWr<'_>, slices: usize, error: VerbsError) -> Error {
        const VERB: &str = "post_send";
        let init = self.qp.init();
        let (state, cap) = (self.qp.state(), init.cap);
        let inline = match wr.data {
            SendData::Inline(bytes) => bytes.len(),
            SendData::Sges(_) => 0,
        };
        if error == VerbsError::NoMemory && inline <= cap.max_inline_data as usize {
            return Error::QueueFull { verb: VERB, max_wr: cap.max_send_wr };
        }
        // What is too long is the caller's fault, not want of room.
        let shown = if error == VerbsError::NoMemory { VerbsError::Invalid } else { error };
        self.context.refused(VERB, shown, || {
            if error == VerbsError::NotSupported {
                return format!("a QP of service {:?} has no such operation", init.qp_type);
            }
            if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
                return format!("the QP is in state {state:?}: connect it first");
            }
            if (init.qp_type == QpType::Ud) != wr.ud.is_some() {
                return "a datagram needs a destination, any other QP takes none".to_owned();
            }
            if init.qp_type == QpType::XrcSend && wr.srqn.is_none() {
                return "a request of an XRC QP needs a shared receive queue".to_owned();
            }
            if slices > cap.max_send_sge as usize {
                return format!("{slices} slices, and the QP takes {}", cap.max_send_sge);
            }
            if inline > cap.max_inline_data as usize {
                return format!("{inline} inline bytes, and the QP takes {}", cap.max_inline_data);
            }
            format!(
                "the operation cannot have this payload or remote address: messages have at most \
                 {MAX_MESSAGE} bytes, atomics 8 at a multiple of 8, only SEND and WRITE inline ones"
            )
        })
    }
}

/// Receive work requests on their way into a queue, as [`SendBatch`].
#[derive(Debug)]
pub struct RecvBatch<'a> {
    context: &'a Context,
    batch: engine::RecvBatch<'a>,
    max_wr: u32,
    max_sge: u32,
}

impl<'a> RecvBatch<'a> {
    pub(super) fn new(
        context: &'a Context,
        batch: engine::RecvBatch<'a>,
        max_wr: u32,
        max_sge: u32,
    ) -> RecvBatch<'a> {
        RecvBatch { context, batch, max_wr, max_sge }
    }

    /// Adds a work request: a message goes to `slices`.
    ///
    /// # Errors
    /// As [`SendBatch::push`].
    pub fn push(&mut self, wr_id: u64, slices: &[LocalSlice<'_>]) -> Result<(), Error> {
        const VERB: &str = "post_recv";
        let mut sges = [Sge::default(); MAX_SLICES];
        let sges = fill(&mut sges, slices);
        let pushed = match slices.len() > MAX_SLICES {
            true => Err(VerbsError::Invalid),
            false => self.batch.push(&RecvWr { wr_id, sges }),
        };
        pushed.map_err(|error| {
            if error == VerbsError::NoMemory {
                return Error::QueueFull { verb: VERB, max_wr: self.max_wr };
            }
            self.context.refused(VERB, error, || match slices.len() > self.max_sge as usize {
                true => format!("{} slices, and the queue takes {}", slices.len(), self.max_sge),
                false => "the QP has no receive queue of its own, or is in RESET".to_owned(),
            })
        })
    }
}

/// The SGEs of as many slices as fit.
fn fill<'s>(sges: &'s mut [Sge; MAX_SLICES], slices: &[LocalSlice<'_>]) -> &'s [Sge] {
    let count = slices.len().min(MAX_SLICES);
    for (sge, slice) in sges.iter_mut().zip(slices) {
        *sge = slice.sge();
    }
    &sges[..count]
}
