//! What the processes of a host share: a directory through which they send each other frames,
//! with no daemon and no privilege.
//!
//! Each process is a [`Member`] with one of 256 slots. The directory holds
//!
//! - `registry`: who has which slot, and with which addresses;
//! - `member-N`, for the member in slot N: the ring in which others leave frames for it;
//! - `wake-N`: the socket by which it is woken, if it sleeps on descriptors;
//! - `gateway`: where the member leads that owns a link to a network, if there is one
//!   ([`GatewayNote`]);
//! - `ports-N`: the ports it has bound, once it has bound one;
//! - `groups-N`: the multicast groups it is attached to, once it has been to one;
//! - `report-N`: what that member last said of itself, once somebody has asked ([`observe`]).
//!
//! A QPN's high bits are the slot of the process that made the QP, so that a frame's destination
//! says whose it is; slots are not used again before all others have been, so that a late frame
//! does not meet a new QP of an old number. Several members may have the same address: they are
//! processes that share a device.
//!
//! A member that ends, however it ends, is noticed by the lock on its file, which is then free:
//! when somebody joins, when somebody's frames find its ring full, and in [`Member::reap`]. Its
//! slot and its file go back, frames it had not taken are lost as on a real wire.
//!
//! # What one member can do to another
//!
//! All members run as one user, who can do worse than this, but a program gone astray should harm
//! nobody else. Nothing in shared memory is believed: one that scribbles over a ring or the
//! registry can make frames be lost, garbled (which their ICRC tells) or invented, and members
//! unreachable. It cannot make another read or write out of bounds, panic or loop. Nor does a
//! full file system: files get all their storage when they are made. A file that is cut after
//! others have mapped it gives them SIGBUS; no look at its length beforehand could prevent that,
//! so who embeds this has to handle the signal.

mod courier;
mod error;
mod groups;
mod member;
mod note;
mod observe;
mod port;
mod ports;
mod registry;
mod report;
mod ring;
mod route;
#[allow(unsafe_code)]
pub(crate) mod shm;
mod table;
mod waker;

#[cfg(test)]
mod tests;

pub(crate) use courier::{Courier, Handed, RETRY_NS};
pub use error::FabricError;
pub use member::{Member, Sent, WakeWord};
pub use note::GatewayNote;
pub use observe::{Answer, Listener, NoReport, Observer, Process, observe};
pub use port::{FabricPort, PortNews};
pub use ports::{ANY_ADDRESS, ANY_IPV4, ANY_IPV6, Binding, Bound, ClaimError};
pub use report::{QpReport, Report};
pub use ring::{FRAME_MAX, Received};
pub use route::{Route, Slots, destination};
pub use waker::WakeSocket;
