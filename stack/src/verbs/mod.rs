//! The words applications speak: handles, attributes, work requests, completions, events. Numeric
//! values are those of libibverbs, so that a C ABI can pass them through.

mod attr;
mod check;
mod flags;
mod wc;
mod wr;

use std::fmt;

pub use attr::{AhAttr, Mtu, QpAttr, QpCap, QpInit, QpState, QpType};
pub use flags::{Access, AttrMask, SendFlags};
pub use wc::{Event, EventKind, Wc, WcOpcode, WcStatus};
pub use wr::{FlushLevel, MwBind, RecvWr, Remote, SendData, SendOp, SendWr, Sge, UdTarget};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// The handle as a number, unique among live and recently destroyed objects.
            pub const fn value(self) -> u32 {
                self.0
            }
        })*
    };
}

handles! {
    /// A protection domain.
    Pd,
    /// A memory region.
    Mr,
    /// A memory window.
    Mw,
    /// An address handle.
    Ah,
    /// A completion queue.
    Cq,
    /// A shared receive queue; its value is the SRQ number of XRC.
    Srq,
    /// An XRC domain.
    Xrcd,
}

impl Mr {
    /// No region: what the unbinding of a window may name.
    pub const NONE: Mr = Mr(0);
}

/// A queue pair number, 24 bits; the handle of its QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u32);

impl Qpn {
    /// The general services QP of a port.
    pub const GSI: Qpn = Qpn(1);
    /// The destination of multicast packets.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);
}

/// Q_Key of the general services QP (IBA 13.5.3.3).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Why a verb was refused: each variant is one errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerbsError {
    /// EINVAL: an argument or attribute is wrong, or a handle is stale.
    Invalid,
    /// ENOMEM: a table or queue is full, or a request is larger than the queue takes.
    NoMemory,
    /// EBUSY: other objects still use this one.
    Busy,
    /// EOPNOTSUPP: this service has no such operation.
    NotSupported,
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VerbsError::Invalid => "an argument is invalid (EINVAL)",
            VerbsError::NoMemory => "a table or queue is full (ENOMEM)",
            VerbsError::Busy => "the object is in use (EBUSY)",
            VerbsError::NotSupported => "the service has no such operation (EOPNOTSUPP)",
        })
    }
}

impl std::error::Error for VerbsError {}

/// Type of a memory window (IBA 10.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MwType {
    /// Bound by a verb, usable through any QP of its protection domain.
    Type1,
    /// Type 2B: bound by a work request, usable through that QP alone, key chosen by the consumer.
    Type2,
}

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// The region.
    pub mr: Mr,
    /// Key for local use.
    pub lkey: u32,
    /// Key for the peer; 0 where the region gives no remote right.
    pub rkey: u32,
}
