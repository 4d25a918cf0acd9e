//! The addresses of the fabric's own on an interface: a thread and a packet socket that run
//! [`OwnNeighbours`] beside the link, whatever moves its RoCE frames.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferroce_stack::wire::{Mac, Vlan};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::neighbour::{NextHop, drain};
use super::netlink::Changes;
use super::own_neighbours::{Conflict, OwnNeighbours};
use super::socket::Socket;
use super::{LinkCounters, count, filter};
use crate::sys;

/// No frame of ARP or NDP that is of use is longer, in bytes.
const FRAME: usize = 512;

/// Frames taken before anything else is looked at.
const AT_ONCE: usize = 64;

/// A socket that has no room for so long loses the frame: it is sent again.
const SEND_WAIT: Duration = Duration::from_millis(10);

/// How long may pass until it is known whether the addresses are free.
const SETTLE: Duration = Duration::from_secs(2);

/// Told when somebody else has an address of the fabric's.
pub type Tell = Arc<dyn Fn(Conflict) + Send + Sync>;

/// Where addresses are to be had.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number of the interface.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The tag that frames are sent with; only those of its VLAN are taken.
    pub tag: Option<Vlan>,
}

/// The addresses, for as long as this lives.
#[derive(Debug)]
pub struct OwnAddresses {
    shared: Arc<Shared>,
    /// Wakes the thread.
    wake: UnixDatagram,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the link share.
struct Shared {
    addresses: Vec<IpAddr>,
    table: Mutex<OwnNeighbours>,
    /// It is known of all addresses whether they are free.
    settled: Condvar,
    socket: Socket,
    stopped: AtomicBool,
    changes: Arc<AtomicU64>,
    /// Leads to the link's watch.
    told: UnixDatagram,
    counters: Arc<LinkCounters>,
    tell: Tell,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl OwnAddresses {
    /// Takes these addresses, unless somebody else has them, which is told. Returns when that is
    /// known, with where changes of neighbours are told, which are counted in `changes`.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(
        place: Place,
        addresses: Vec<IpAddr>,
        changes: Arc<AtomicU64>,
        counters: Arc<LinkCounters>,
        tell: Tell,
    ) -> io::Result<(OwnAddresses, UnixDatagram)> {
        let Place { index, mac, tag } = place;
        let (told, watch) = pair()?;
        let (wake, woken) = pair()?;
        let heard = Changes::open()?;
        let shared = Arc::new(Shared {
            socket: socket(index, tag.map_or(0, |tag| tag.vid))?,
            table: Mutex::new(OwnNeighbours::new(mac, tag, &addresses, sys::now_ns())),
            addresses,
            settled: Condvar::new(),
            stopped: AtomicBool::new(false),
            changes,
            told,
            counters,
            tell,
        });
        let running = shared.clone();
        // Signals are for the program's own threads.
        let blocked = sys::block_signals();
        let builder = thread::Builder::new().name("ferroce-neigh".to_owned());
        let thread = builder.spawn(move || running.run(&heard, &woken))?;
        drop(blocked);
        let own = OwnAddresses { shared, wake, thread: Some(thread) };
        let is_open = |table: &mut OwnNeighbours| !table.is_settled();
        let settled = own.shared.settled.wait_timeout_while(own.shared.table(), SETTLE, is_open);
        drop(settled);
        Ok((own, watch))
    }

    /// The addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.shared.addresses
    }

    /// The Ethernet address of a neighbour, for frames from this address.
    pub fn next_hop(&self, hop: IpAddr, from: IpAddr) -> NextHop {
        let mut table = self.shared.table();
        let found = table.next_hop(hop, from, sys::now_ns());
        if self.shared.send(&mut table) > 0 {
            // It has an answer to wait for. If it cannot be told, it has been already.
            let _ = self.wake.send(&[0]);
        }
        found
    }

    /// What has become of a neighbour that has been asked for.
    pub fn outcome(&self, hop: IpAddr) -> NextHop {
        self.shared.table().outcome(hop)
    }
}

impl Drop for OwnAddresses {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = self.wake.send(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, OwnNeighbours> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, heard: &Changes, woken: &UnixDatagram) {
        let mut buffer = [0; FRAME];
        while !self.stopped.load(Ordering::SeqCst) {
            let deadline_ns = self.step(&mut buffer);
            if heard.drain() {
                self.tell_change();
            }
            let mut waits = [self.socket.as_fd(), heard.as_fd(), woken.as_fd()]
                .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
            // An interruption is a reason to look as good as any.
            let _ = poll(&mut waits, timeout(deadline_ns));
            drain(woken);
        }
    }

    /// Takes what has come, does what is due, sends what is to be sent; says when something is due
    /// next.
    fn step(&self, buffer: &mut [u8; FRAME]) -> Option<u64> {
        let mut table = self.table();
        let answers = table.answers();
        for _ in 0..AT_ONCE {
            match self.socket.receive(buffer, false) {
                Ok(len) => table.handle_frame(&buffer[..len], sys::now_ns()),
                // What is wrong with the interface is the link's to say.
                Err(_) => break,
            }
        }
        table.handle_timeout(sys::now_ns());
        self.send(&mut table);
        count(&self.counters.neighbours_answered, table.answers() - answers);
        let (has_changed, conflicts) = (table.take_change(), table.take_conflicts());
        let (is_settled, deadline_ns) = (table.is_settled(), table.deadline_ns());
        drop(table);
        if has_changed {
            self.tell_change();
        }
        for conflict in conflicts {
            count(&self.counters.address_conflicts, 1);
            (self.tell)(conflict);
        }
        if is_settled {
            self.settled.notify_all();
        }
        deadline_ns
    }

    /// Sends what there is to be sent; says how many frames.
    fn send(&self, table: &mut OwnNeighbours) -> u64 {
        let (mut sent, mut buffer) = (0, [0; FRAME]);
        while let Some(frame) = table.transmit() {
            if let Ok(len) = frame.emit(&mut buffer) {
                // A frame that is lost is one that nobody answers.
                let _ = self.socket.send(&buffer[..len], None, true);
            }
            sent += 1;
        }
        count(&self.counters.neighbours_sent, sent);
        sent
    }

    fn tell_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        // If it has no room there is something in it already.
        let _ = self.told.send(&[0]);
    }
}

/// Until then, in whole milliseconds, and never too early.
fn timeout(deadline_ns: Option<u64>) -> PollTimeout {
    let Some(deadline_ns) = deadline_ns else { return PollTimeout::NONE };
    let wait_ms = deadline_ns.saturating_sub(sys::now_ns()).div_ceil(1_000_000);
    i32::try_from(wait_ms).ok().and_then(|ms| ms.try_into().ok()).unwrap_or(PollTimeout::MAX)
}

/// Two sockets that do not wait.
fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
    let (from, to) = UnixDatagram::pair()?;
    from.set_nonblocking(true)?;
    to.set_nonblocking(true)?;
    Ok((from, to))
}

/// A socket for the ARP and NDP of a VLAN, or of none (0).
fn socket(index: u32, vid: u16) -> io::Result<Socket> {
    let socket = Socket::new(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    socket.attach(&filter::neighbours(vid))?;
    socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // Solicitations go to groups. Interfaces that cannot filter those hear them all anyhow.
    let _ = socket.hear_groups(index);
    socket.limit_waits(SEND_WAIT)?;
    socket.bind_packet(index, libc::ETH_P_ALL as u16)?;
    Ok(socket)
}
