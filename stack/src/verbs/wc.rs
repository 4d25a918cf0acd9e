//! Completions and events (IBA 11.4.2, 11.6).

use std::ffi::CStr;

use super::{Cq, Qpn, Srq};

/// Outcome of a work request (IBA 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// A message is longer than the port or the receive allows.
    LocLenErr = 1,
    /// The work request itself is at fault.
    LocQpOpErr = 2,
    /// RD only.
    LocEecOpErr = 3,
    /// A local key, range or right is wrong.
    LocProtErr = 4,
    /// Flushed by an earlier error.
    WrFlushErr = 5,
    /// A window could not be bound.
    MwBindErr = 6,
    /// The responder answered out of order or with a wrong length.
    BadRespErr = 7,
    /// A protection fault while placing RDMA WRITE data.
    LocAccessErr = 8,
    /// The responder found the request invalid.
    RemInvReqErr = 9,
    /// The responder refused the access.
    RemAccessErr = 10,
    /// The responder failed.
    RemOpErr = 11,
    /// No answer after all retries.
    RetryExcErr = 12,
    /// No receive was posted after all RNR retries.
    RnrRetryExcErr = 13,
    /// RD only.
    LocRddViolErr = 14,
    /// RD only.
    RemInvRdReqErr = 15,
    /// A message was given up half way (UC with an SRQ).
    RemAbortErr = 16,
    /// RD only.
    InvEecnErr = 17,
    /// RD only.
    InvEecStateErr = 18,
    /// Beyond repair.
    FatalErr = 19,
    /// No answer to a MAD.
    RespTimeoutErr = 20,
    /// Anything else.
    GeneralErr = 21,
    /// Tag matching only.
    TmErr = 22,
    /// Tag matching only.
    TmRndvIncomplete = 23,
}

impl WcStatus {
    /// What `ibv_wc_status_str` says of each, by its number.
    pub const TEXTS: [&'static CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];

    /// What `ibv_wc_status_str` says of it.
    pub const fn text(self) -> &'static CStr {
        WcStatus::TEXTS[self as usize]
    }
}

/// What completed (`IBV_WC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WcOpcode {
    /// SEND of any kind.
    Send = 0,
    /// RDMA WRITE, with immediate or not.
    RdmaWrite = 1,
    /// RDMA READ.
    RdmaRead = 2,
    /// Compare and swap.
    CompSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// Bind.
    BindMw = 5,
    /// Local invalidate.
    LocalInv = 6,
    /// FLUSH.
    Flush = 8,
    /// ATOMIC WRITE.
    AtomicWrite = 9,
    /// Receive of a SEND.
    Recv = 128,
    /// Receive taken by an RDMA WRITE with immediate.
    RecvRdmaWithImm = 129,
}

/// A work completion (`ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// From the work request.
    pub wr_id: u64,
    /// Outcome.
    pub status: WcStatus,
    /// What completed; valid on success.
    pub opcode: WcOpcode,
    /// Receives: bytes of the message (UD: 40 more). READ and atomics: bytes returned. Other
    /// sends: bytes sent.
    pub byte_len: u32,
    /// Immediate data of a receive.
    pub imm_data: Option<[u8; 4]>,
    /// The key a received SEND with invalidate has invalidated.
    pub invalidated_rkey: Option<u32>,
    /// The QP.
    pub qp_num: Qpn,
    /// Sender of a datagram or XRC message.
    pub src_qp: Qpn,
    /// A UD receive: the first 40 bytes hold the network header.
    pub grh: bool,
    /// A receive whose sender asked for a solicited event.
    pub solicited: bool,
    /// Index of the P_Key a received datagram matched.
    pub pkey_index: u16,
    /// Service level (UD): the PCP of the frame.
    pub sl: u8,
}

impl Default for Wc {
    /// A place for [`crate::Device::poll_cq`] to fill.
    fn default() -> Wc {
        Wc {
            wr_id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Send,
            byte_len: 0,
            imm_data: None,
            invalidated_rkey: None,
            qp_num: Qpn(0),
            src_qp: Qpn(0),
            grh: false,
            solicited: false,
            pkey_index: 0,
            sl: 0,
        }
    }
}

/// What happened to an object without a completion (`IBV_EVENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// A CQ overran.
    CqErr = 0,
    /// A QP failed and no completion can tell.
    QpFatal = 1,
    /// The peer sent an invalid request.
    QpReqErr = 2,
    /// The peer tried an access it may not.
    QpAccessErr = 3,
    /// The first packet arrived in RTR.
    CommEst = 4,
    /// The send queue is drained.
    SqDrained = 5,
    /// The port is up.
    PortActive = 9,
    /// The port is down.
    PortErr = 10,
    /// An SRQ failed.
    SrqErr = 14,
    /// An SRQ fell below its limit.
    SrqLimitReached = 15,
    /// A QP in ERR takes no more from its SRQ.
    QpLastWqeReached = 16,
    /// The GID table changed.
    GidChange = 18,
}

/// Something the application is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An armed CQ has a completion; it is no longer armed.
    Completion(Cq),
    /// Asynchronous event of a CQ.
    Cq(Cq, EventKind),
    /// Asynchronous event of a QP.
    Qp(Qpn, EventKind),
    /// Asynchronous event of an SRQ.
    Srq(Srq, EventKind),
    /// Asynchronous event of the port.
    Port(EventKind),
}
