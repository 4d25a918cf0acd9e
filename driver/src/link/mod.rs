//! Links to real networks, as a gateway holds them: a network interface by packet socket
//! ([`packet`](LinkKind::Packet)) or AF_XDP ([`xdp`](LinkKind::Xdp)), or a UDP socket
//! ([`udp`](LinkKind::Udp)).
//!
//! A link has two halves, one for each direction, which two threads may have. Both move whole
//! Ethernet frames, as the members of the fabric exchange them, whatever the link makes of them.

mod addressing;
mod delivery;
#[allow(unsafe_code)]
mod ethtool;
mod filter;
mod frames;
mod groups;
mod interface;
mod kernel_neighbours;
#[allow(unsafe_code)]
mod mapping;
mod name;
mod neighbour;
mod netlink;
mod own;
mod own_neighbours;
mod packet;
mod port;
mod resolve;
#[allow(unsafe_code)]
mod ring;
mod segments;
mod sending;
mod silence;
#[allow(unsafe_code)]
mod socket;
mod solicit;
mod udp;
mod udp_groups;
mod xdp;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use frames::BATCH;
use frames::Frames;

use crate::identity::IdentityError;

pub(crate) use delivery::Delivery;
pub use interface::Purpose;
pub use name::{LinkKind, LinkName};
pub use neighbour::Watch;
pub use own::Tell;
pub use own_neighbours::Conflict;
pub use port::{LinkPort, PortState};
pub use resolve::{Resolved, resolve};
pub use silence::Silence;
pub use xdp::XdpError;

macro_rules! counters {
    ($name:ident { $($(#[$doc:meta])* $field:ident,)* } $($rest:tt)*) => {
        /// What a link and who owns it count. Each only grows.
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: AtomicU64,)*
            /// Frames that got no further, by reason.
            pub lost: LostFrames,
        }

        counters!(@ LostFrames $($rest)*);
        counters!(iter $name { $($field,)* });
    };
    (@ $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        /// Frames that got no further, by reason.
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: AtomicU64,)*
        }

        counters!(iter $name { $($field,)* });
    };
    (iter $name:ident { $($field:ident,)* }) => {
        impl $name {
            /// Every counter, by name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field.load(Ordering::Relaxed)),)*].into_iter()
            }
        }
    };
}

counters! {
    LinkCounters {
        /// Frames the link has taken.
        link_sent,
        /// Frames that came by the link.
        link_received,
        /// Frames from the link that have reached a member.
        delivered,
        /// Datagrams whose IPv4 identification the ICRC has told.
        ident_recovered,
        /// Datagrams whose ICRC fits no identification; their receivers drop them.
        ident_unknown,
        /// Multicast groups that were joined.
        groups_joined,
        /// Multicast groups that could not be joined when a program was attached to them.
        groups_refused,
        /// Frames of ARP and NDP that were sent for addresses of the fabric's own.
        neighbours_sent,
        /// Those of them that answered somebody.
        neighbours_answered,
        /// How often somebody else had an address of the fabric's own.
        address_conflicts,
    }
    {
        /// Frames that are not RoCE.
        not_roce,
        /// Frames longer than the link's MTU, or than any RoCE frame.
        too_long,
        /// Frames for whose next hop no Ethernet address was found.
        no_neighbour,
        /// Frames from an address that is not the UDP link's.
        foreign_source,
        /// Frames the system refused to send, or had no room for all the time.
        send_failed,
        /// Frames that came faster than they were taken.
        overrun,
        /// Frames that came joined in a way that is none of ours, or not as their headers say.
        joined_badly,
        /// Frames from the link that are for no member.
        no_member,
        /// Frames from the link for members who had not emptied their ring for long.
        ring_full,
        /// Frames that a fault, of those the user wants, has lost.
        injected,
    }
}

/// Adds to a counter that one thread or several may move.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// The half of a link by which frames arrive.
pub trait LinkReceiver: Send + fmt::Debug {
    /// Readable when frames have arrived that are not fetched yet.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Takes from the system what has arrived, without waiting, unless there are frames left of
    /// the last time. Says whether there are any.
    ///
    /// # Errors
    /// If the link is down, which may pass (`NetworkDown`), or gone.
    fn fetch(&mut self) -> io::Result<bool>;

    /// The next of the frames fetched: whole, of at most
    /// [`FRAME_MAX`](crate::fabric::FRAME_MAX) bytes, and the caller's to change until the next
    /// call. What was dropped of them is counted.
    fn next(&mut self) -> Option<&mut [u8]>;

    /// Looks, after the [`Watch`] has told of a change, whether the link is still there.
    ///
    /// # Errors
    /// If it is gone for good.
    fn look(&self) -> io::Result<()>;
}

/// The half of a link by which frames leave. They are written where [`LinkSender::room`] says, and
/// stay there until they are sent.
pub trait LinkSender: Send + fmt::Debug {
    /// Whether there is no room before [`LinkSender::flush`].
    fn is_full(&self) -> bool;

    /// Where the next frame is written, at its start:
    /// [`FRAME_MAX`](crate::fabric::FRAME_MAX) bytes, which hold anything.
    ///
    /// # Panics
    /// If there is none.
    fn room(&mut self) -> &mut [u8];

    /// Adds the frame of `len` bytes that is where [`LinkSender::room`] said, or counts why it
    /// cannot be sent. Its Ethernet addresses may be anything.
    ///
    /// # Panics
    /// If there is no such room.
    fn push(&mut self, len: usize);

    /// Sends every frame, in order, or counts it as lost. Waits for room, but not for ever.
    ///
    /// # Errors
    /// If the link is gone.
    fn flush(&mut self) -> io::Result<()>;

    /// Tells that neighbours or routes have changed: what has waited for them may go.
    ///
    /// # Errors
    /// As [`LinkSender::flush`].
    fn neighbours_changed(&mut self) -> io::Result<()>;
}

/// An open link.
#[derive(Debug)]
pub struct Link {
    /// The half by which frames arrive.
    pub receiver: Box<dyn LinkReceiver>,
    /// The half by which frames leave.
    pub sender: Box<dyn LinkSender>,
    /// The largest IP packet it takes, in bytes.
    pub mtu: usize,
    /// The rate of the interface's link in bit/s, if it knows it.
    pub line_rate: Option<u64>,
    /// The addresses the kernel has there, the one that others should use first.
    pub addresses: Vec<IpAddr>,
    /// The fabric may have any other address as well.
    pub takes_any_address: bool,
    /// Tells of changes of neighbours and routes, where the link needs to hear of them.
    pub watch: Option<Watch>,
    /// The interface under it.
    pub port: LinkPort,
    /// Keeps the kernel from answering what comes for us.
    pub silence: Silence,
}

impl Link {
    /// Opens a link. Those of the purpose's addresses that the interface does not have are the
    /// fabric's own from then on, unless it turns out that somebody else has them, which is told
    /// before this returns.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn open(name: &LinkName, purpose: &Purpose<'_>) -> Result<Link, LinkError> {
        match &name.kind {
            LinkKind::Packet(interface) => packet::open(name, interface, purpose),
            LinkKind::Xdp(interface) => xdp::open(name, interface, purpose),
            LinkKind::Udp(address) => udp::open(*address, purpose.counters),
        }
    }
}

/// Why a link cannot be opened.
#[derive(Debug)]
pub enum LinkError {
    /// There is no such interface.
    NoInterface(String),
    /// No interface has the address.
    NoAddress(IpAddr),
    /// The interface does not carry Ethernet frames.
    NotEthernet(String),
    /// The system refuses something that AF_XDP needs.
    Xdp(XdpError),
    /// The system refuses something.
    Io {
        /// What.
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl From<XdpError> for LinkError {
    fn from(error: XdpError) -> LinkError {
        LinkError::Xdp(error)
    }
}

impl LinkError {
    fn interfaces(error: IdentityError) -> LinkError {
        LinkError::Io { action: "list the interfaces", source: error.errno.into() }
    }

    fn io(action: &'static str) -> impl Fn(io::Error) -> LinkError {
        move |source| LinkError::Io { action, source }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::NoInterface(name) => write!(f, "there is no interface {name}"),
            LinkError::NoAddress(ip) => write!(f, "no interface of this machine has {ip}"),
            LinkError::NotEthernet(name) => write!(f, "interface {name} is not Ethernet"),
            LinkError::Xdp(error) => error.fmt(f),
            LinkError::Io { action, source } => {
                write!(f, "cannot {action}: {source}")?;
                if source.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str(
                        " (packet sockets need CAP_NET_RAW; a link udp:ADDR needs nothing)",
                    )?;
                }
                Ok(())
            }
        }
    }
}

// What the system says is in its words already.
impl std::error::Error for LinkError {}
