//! Work requests (IBA 11.4).

use super::{Access, Ah, Mr, Mw, Qpn, SendFlags};

/// One piece of local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address, as the region counts them.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// L_Key of the region.
    pub lkey: u32,
}

/// Remote memory a work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address, as the remote region counts them.
    pub addr: u64,
    /// R_Key.
    pub rkey: u32,
}

/// How much a FLUSH covers (IBA A19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushLevel {
    /// The range named.
    Range,
    /// The whole region of the R_Key.
    Region,
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwBind {
    /// The region.
    pub mr: Mr,
    /// First byte, as the region counts them.
    pub addr: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// Remote rights, and [`Access::ZERO_BASED`] for type 2.
    pub access: Access,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate data, as its four bytes go on the wire.
    SendImm([u8; 4]),
    /// SEND that invalidates a window of the peer.
    SendInv(u32),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate data.
    WriteImm(Remote, [u8; 4]),
    /// RDMA READ.
    Read(Remote),
    /// Atomic compare and swap.
    CompareSwap {
        /// The word.
        remote: Remote,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Atomic fetch and add.
    FetchAdd {
        /// The word.
        remote: Remote,
        /// What to add.
        add: u64,
    },
    /// ATOMIC WRITE of the 8 bytes that hold this value in the memory of this host.
    AtomicWrite(Remote, u64),
    /// FLUSH.
    Flush {
        /// First byte.
        remote: Remote,
        /// Bytes; ignored at region level.
        length: u32,
        /// Range or region.
        level: FlushLevel,
        /// [`Access::FLUSH_GLOBAL`], [`Access::FLUSH_PERSISTENT`] or both.
        placement: Access,
    },
    /// Bind a window. A type 2 window takes the key `(its index) | (low byte of rkey)`.
    BindMw {
        /// The window.
        mw: Mw,
        /// The new key's low byte (type 2).
        rkey: u32,
        /// To what.
        bind: MwBind,
    },
    /// Invalidate a type 2 window of this side.
    LocalInv(u32),
}

impl SendOp {
    /// Whether it sends bytes of its own: a SEND or an RDMA WRITE.
    pub(crate) const fn sends_data(&self) -> bool {
        matches!(
            self,
            SendOp::Send
                | SendOp::SendImm(_)
                | SendOp::SendInv(_)
                | SendOp::Write(_)
                | SendOp::WriteImm(..)
        )
    }

    /// Whether it runs here and sends nothing.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, SendOp::BindMw { .. } | SendOp::LocalInv(_))
    }

    /// Whether it takes a slot among `max_rd_atomic` and is answered by more than an ACK.
    pub(crate) const fn awaits_response(&self) -> bool {
        !self.sends_data() && !self.is_local()
    }
}

/// Where the bytes of a send work request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendData<'a> {
    /// In registered memory: gathered from it, or scattered to it by READs and atomics.
    Sges(&'a [Sge]),
    /// Here; copied when posted ([`SendFlags::INLINE`]).
    Inline(&'a [u8]),
}

/// Destination of a UD send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdTarget {
    /// Address handle.
    pub ah: Ah,
    /// QPN there.
    pub qpn: Qpn,
    /// Q_Key; with bit 31 set the sending QP's own is used (IBA 10.2.5).
    pub qkey: u32,
}

/// A send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr<'a> {
    /// The application's own number.
    pub wr_id: u64,
    /// Operation.
    pub op: SendOp,
    /// Local bytes.
    pub data: SendData<'a>,
    /// Flags; [`SendFlags::INLINE`] is implied by `data`.
    pub flags: SendFlags,
    /// Destination, UD and GSI only.
    pub ud: Option<UdTarget>,
    /// Remote SRQ number, XRC only.
    pub srqn: Option<u32>,
}

impl<'a> SendWr<'a> {
    /// A signaled work request of a connected QP.
    pub fn new(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
        SendWr {
            wr_id,
            op,
            data: SendData::Sges(sges),
            flags: SendFlags::SIGNALED,
            ud: None,
            srqn: None,
        }
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr<'a> {
    /// The application's own number.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}
