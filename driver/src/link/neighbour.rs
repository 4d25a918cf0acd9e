//! Ethernet addresses of next hops, and what is remembered of them so that a frame costs no more
//! than a look.
//!
//! For frames from an address that the interface has, the kernel knows; for frames from one of the
//! fabric's own, we do. What was found holds until one of them says that something has changed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_stack::gid::Gid;
use ferroce_stack::wire::Mac;

use super::kernel_neighbours::KernelNeighbours;
use super::netlink::Changes;
use super::own::OwnAddresses;
use crate::sys;

/// Ways remembered; when there are more, all are looked for again.
const REMEMBERED: usize = 4096;

/// For how long a next hop that has not answered is not asked for again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// What is known of the next hop to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Its Ethernet address.
    Mac(Mac),
    /// It is being asked for; a change will be told.
    Asked,
    /// There is no way, or it does not answer.
    None,
}

/// From where to where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// The destination.
    pub to: IpAddr,
    /// The source, if it is one of the fabric's own.
    pub own: Option<IpAddr>,
}

/// The next hops of one interface.
#[derive(Debug)]
pub struct Neighbours {
    sources: Sources,
    known: HashMap<Way, Known>,
    /// Of the frame before, which mostly is the next one's as well.
    last: Option<(Way, Mac)>,
    /// The changes that `known` and `last` follow from.
    seen: u64,
    changes: Arc<AtomicU64>,
}

/// Who knows of neighbours.
#[derive(Debug)]
pub struct Sources {
    /// The interface has no addresses to ask for.
    pub is_mute: bool,
    /// The kernel; not in a VLAN that it is not in.
    pub kernel: Option<KernelNeighbours>,
    /// We ourselves, for addresses of the fabric's own.
    pub own: Option<OwnAddresses>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    hop: NextHop,
    at_ns: u64,
}

impl Known {
    fn is_fresh(&self) -> bool {
        sys::now_ns().saturating_sub(self.at_ns) < ASK_AGAIN_NS
    }
}

/// Hears of changes of neighbours, routes and interfaces.
#[derive(Debug)]
pub struct Watch(Ear);

/// Who tells of them.
#[derive(Debug)]
enum Ear {
    /// The kernel; to be counted there.
    Kernel(Changes, Arc<AtomicU64>),
    /// Our own thread: a datagram for each change, which it has counted.
    Own(UnixDatagram),
}

impl Watch {
    /// Hears what the kernel says, and counts it there.
    pub(super) fn of_kernel(changes: Changes, count: Arc<AtomicU64>) -> Watch {
        Watch(Ear::Kernel(changes, count))
    }

    /// Hears a datagram for each change that has been counted.
    pub(super) fn told(by: UnixDatagram) -> Watch {
        Watch(Ear::Own(by))
    }

    /// Readable when there has been a change.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Ear::Kernel(changes, _) => changes.as_fd(),
            Ear::Own(told) => told.as_fd(),
        }
    }

    /// Takes note of changes, and says whether there were any.
    pub fn take_note(&self) -> bool {
        match &self.0 {
            Ear::Kernel(changes, count) => {
                let changed = changes.drain();
                if changed {
                    count.fetch_add(1, Ordering::Release);
                }
                changed
            }
            Ear::Own(told) => drain(told),
        }
    }
}

/// Forgets what a socket that does not wait has been sent, and says whether it was anything.
pub fn drain(told: &UnixDatagram) -> bool {
    let mut heard = false;
    while told.recv(&mut [0; 1]).is_ok() {
        heard = true;
    }
    heard
}

impl Neighbours {
    /// Asks these; `changes` counts what they tell of.
    pub fn new(sources: Sources, changes: Arc<AtomicU64>) -> Neighbours {
        Neighbours { sources, known: HashMap::new(), last: None, seen: 0, changes }
    }

    /// Whether it is an address of the fabric's own.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.sources.own.as_ref().is_some_and(|own| own.addresses().contains(&ip))
    }

    /// Whether any address is.
    pub fn has_own(&self) -> bool {
        self.sources.own.is_some()
    }

    /// The next hop of a way.
    #[inline]
    pub fn next_hop(&mut self, way: Way) -> NextHop {
        match self.last {
            Some((last, mac)) if last == way && !self.have_changed() => NextHop::Mac(mac),
            _ => self.look_up(way),
        }
    }

    fn look_up(&mut self, way: Way) -> NextHop {
        if let Some(mac) = Gid::from_ip(way.to).multicast_mac() {
            return NextHop::Mac(mac);
        }
        if self.sources.is_mute {
            return NextHop::Mac(Mac::default());
        }
        // Read before anybody is asked: what changes meanwhile makes the answer stale.
        let changes = self.changes.load(Ordering::Acquire);
        if changes != self.seen || self.known.len() > REMEMBERED {
            self.seen = changes;
            self.last = None;
            // What has been given up is not tried again for that.
            self.known.retain(|_, known| known.hop == NextHop::None && known.is_fresh());
            if self.known.len() > REMEMBERED {
                self.known.clear();
            }
        }
        match self.known.get(&way) {
            Some(Known { hop: NextHop::Mac(mac), .. }) => {
                self.last = Some((way, *mac));
                return NextHop::Mac(*mac);
            }
            Some(known) if known.is_fresh() => return known.hop,
            _ => {}
        }
        let hop = self.sources.next_hop(way);
        self.known.insert(way, Known { hop, at_ns: sys::now_ns() });
        hop
    }

    /// Whether a change has been told of since [`Neighbours::next_hop`] last asked.
    pub fn have_changed(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.seen
    }

    /// Takes a way whose next hop has been asked for again, and says what has come of it.
    pub fn outcome(&mut self, way: Way) -> NextHop {
        let hop = self.sources.outcome(way);
        self.known.insert(way, Known { hop, at_ns: sys::now_ns() });
        hop
    }
}

impl Sources {
    fn next_hop(&mut self, Way { to, own }: Way) -> NextHop {
        match (own, &self.own, &mut self.kernel) {
            (Some(from), Some(table), kernel) => match hop(kernel, to) {
                Some(hop) => table.next_hop(hop, from),
                None => NextHop::None,
            },
            (_, _, Some(kernel)) => kernel.next_hop(to),
            _ => NextHop::None,
        }
    }

    fn outcome(&mut self, Way { to, own }: Way) -> NextHop {
        match (own, &self.own, &mut self.kernel) {
            (Some(_), Some(table), kernel) => match hop(kernel, to) {
                Some(hop) => table.outcome(hop),
                None => NextHop::None,
            },
            (_, _, Some(kernel)) => kernel.outcome(to),
            _ => NextHop::None,
        }
    }
}

/// Where a packet from an address of our own goes first.
fn hop(kernel: &mut Option<KernelNeighbours>, to: IpAddr) -> Option<IpAddr> {
    match kernel {
        Some(kernel) => kernel.hop(to),
        None => Some(to),
    }
}
