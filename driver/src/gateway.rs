//! The gateway of a fabric: a member that owns a link to a real network and passes frames both
//! ways, so that all processes of the fabric have one NIC.
//!
//! Frames for GIDs that no member has come to the gateway's ring, and leave by the link; frames
//! that come by the link go where a member's own would. Each direction has a thread, which sleeps
//! when there is nothing: one on the wake word of the ring, the other on the link's descriptor.
//! Transport, ICRC and retransmission are the members' own; to the gateway a frame is bytes with a
//! destination. What happens to it on purpose, and is recorded, is its `passage`'s.

mod passage;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ferroce_stack::time::Instant;
use ferroce_stack::verbs::Mtu;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};

use crate::fabric::{
    FabricError, FabricPort, GatewayNote, Member, RETRY_NS, Received, Report, WakeWord,
};
use crate::frame::fault::Rule;
use crate::keeper::{self, Caller, Keeper, PortNotice};
use crate::link::{
    Conflict, Delivery, Link, LinkCounters, LinkError, LinkName, LinkReceiver, LinkSender, Purpose,
    Silence, Tell, Watch, count,
};
use crate::sys::{self, LentFd};

use passage::{Passage, clock};

/// How long either half sleeps at most. A sender that dies between its frame and the wake-up wakes
/// nobody, and that may hold up the frame so long; as often, the dead are looked for and their
/// files let go.
const NAP_NS: u64 = 1_000_000_000;

/// Frames taken from the ring at a time.
const TURN: usize = 64;

/// In the capture of no process.
const NO_TAG: u32 = 0;

/// What a gateway is made of.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The directory of the fabric.
    pub fabric: &'a Path,
    /// Where it leads.
    pub link: &'a LinkName,
    /// Addresses by which the network knows the fabric's devices; empty: the link's first one.
    pub addresses: &'a [IpAddr],
    /// The largest path MTU; none: the largest that fits the link.
    pub mtu: Option<Mtu>,
    /// What goes wrong on the way; frames out of the fabric are node 0's, those into it node 1's.
    pub faults: &'a [Rule],
    /// Decides what chances the faults take.
    pub seed: u64,
    /// A capture of the frames that pass, as they are on the wire.
    pub pcap: Option<&'a Path>,
}

/// A gateway at work; it ends when dropped.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    note: GatewayNote,
    notices: Vec<Notice>,
    _keeper: Keeper,
    /// For as long as the gateway works.
    _silence: Silence,
}

/// Something about a gateway that works which its user should know.
#[derive(Debug)]
pub enum Notice {
    /// The link has no such address, so the network does not find it there.
    ForeignAddress(IpAddr),
    /// Somebody else has an address of the fabric's own.
    Conflict(Conflict),
    /// What has come of the link's interface.
    Port(PortNotice),
    /// Frames of this path MTU do not fit the link; the largest that do, which is used.
    MtuTooLarge(Mtu, Mtu),
    /// The kernel may answer packets that are ours by ICMP.
    NotSilent(io::Error),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::ForeignAddress(ip) => {
                write!(f, "the link does not have address {ip}: nobody will find it there")
            }
            Notice::Conflict(Conflict { ip, mac, is_lost: true }) => {
                write!(
                    f,
                    "ADDRESS CONFLICT: {ip} belongs to the host with {mac}; the fabric leaves it \
                     alone until that host does not answer any more"
                )
            }
            Notice::Conflict(Conflict { ip, mac, is_lost: false }) => {
                write!(f, "ADDRESS CONFLICT: the host with {mac} uses {ip}, which is the fabric's")
            }
            Notice::Port(notice) => notice.fmt(f),
            Notice::MtuTooLarge(set, fits) => {
                let (set, fits) = (set.bytes(), fits.bytes());
                write!(f, "packets of path MTU {set} do not fit the link: it is lowered to {fits}")
            }
            Notice::NotSilent(error) => {
                write!(f, "the kernel may answer RoCE packets by ICMP: {error}")
            }
        }
    }
}

/// What the threads and their owner share.
#[derive(Debug)]
struct Shared {
    counters: Arc<LinkCounters>,
    stopped: AtomicBool,
    /// Readable once stopped.
    stop: LentFd,
    /// Wakes the thread that sends by the link.
    wake: WakeWord,
    /// Neighbours or routes have changed.
    neighbours_changed: AtomicBool,
}

impl Shared {
    /// Has the thread that sends by the link look around.
    fn rouse(&self) {
        self.wake.store(0, Ordering::SeqCst);
        self.wake.wake();
    }
}

impl Gateway {
    /// Opens the link, joins the fabric and starts. Other threads call `ended` at most once, if the
    /// link is gone for good, and `noticed` with what is found later than this returns, or by them.
    ///
    /// # Errors
    /// [`GatewayError`].
    pub fn open(
        options: &Options<'_>,
        ended: impl Fn(io::Error) + Send + Sync + 'static,
        noticed: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Gateway, GatewayError> {
        let counters = Arc::new(LinkCounters::default());
        let noticed = Arc::new(noticed);
        let of_port = noticed.clone();
        let tell: Tell = Arc::new(move |conflict| noticed(Notice::Conflict(conflict)));
        let purpose = Purpose { addresses: options.addresses, counters: &counters, tell: &tell };
        let link = Link::open(options.link, &purpose).map_err(GatewayError::Link)?;
        let Options { addresses, mtu, .. } = *options;
        let (note, notices) = describe(options.link, addresses, mtu, &link)?;
        let Options { pcap, faults, seed, .. } = *options;
        let [out, back] = Passage::of_both_directions(pcap, faults, seed, &counters)
            .map_err(|error| GatewayError::capture(pcap, error))?;
        let outward = Member::join_as_gateway(options.fabric).map_err(GatewayError::Fabric)?;
        let inward = Member::join_from_link(options.fabric).map_err(GatewayError::Fabric)?;
        outward.set_note(&note).map_err(GatewayError::Io)?;
        let fabric = FabricPort::open(options.fabric, &outward).map_err(GatewayError::Fabric)?;
        let follows = options.addresses.is_empty();
        let port = keeper::Port { fabric, link: link.port, note: note.clone(), follows };
        let keeper = Keeper::start(port, move |notice| of_port(Notice::Port(notice)))
            .map_err(GatewayError::Io)?;
        let shared = Arc::new(Shared {
            counters,
            stopped: AtomicBool::new(false),
            stop: sys::eventfd().map_err(GatewayError::Io)?,
            wake: outward.wake_handle(),
            neighbours_changed: AtomicBool::new(false),
        });
        let Link { receiver, sender, watch, silence, .. } = link;
        let mut outward = Outward {
            shared: shared.clone(),
            member: outward,
            sender,
            passage: out,
            device: note.link.clone(),
            keeper: keeper.caller(),
            answered: 0,
        };
        let mut inward = Inward {
            shared: shared.clone(),
            member: inward,
            receiver,
            watch,
            passage: back,
            delivery: Delivery::new(),
        };
        let threads = Vec::new();
        let mut gateway =
            Gateway { shared, threads, note, notices, _keeper: keeper, _silence: silence };
        let ended = Arc::new(ended);
        let end = ended.clone();
        gateway.start("ferroce-out", move || outward.run().unwrap_or_else(|error| end(error)))?;
        gateway.start("ferroce-in", move || inward.run().unwrap_or_else(|error| ended(error)))?;
        Ok(gateway)
    }

    /// What programs of the fabric find of it.
    pub fn note(&self) -> &GatewayNote {
        &self.note
    }

    /// What its user should know.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// What it counts.
    pub fn counters(&self) -> &LinkCounters {
        &self.shared.counters
    }

    fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), GatewayError> {
        // Signals are for the program's own threads.
        let _blocked = sys::block_signals();
        let builder = thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(run).map_err(GatewayError::Io)?);
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Of 2^64 - 1 at most one is used.
        let _ = sys::write_u64(self.shared.stop.as_fd(), 1);
        self.shared.rouse();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What programs will find of a link of this name, and what is not as it should be; for the
/// addresses and the path MTU that were asked for.
pub(crate) fn describe(
    name: &LinkName,
    addresses: &[IpAddr],
    mtu: Option<Mtu>,
    link: &Link,
) -> Result<(GatewayNote, Vec<Notice>), GatewayError> {
    let fits = Mtu::of_link(link.mtu).ok_or(GatewayError::Mtu(link.mtu))?;
    let addresses = match addresses {
        [] => link.addresses.first().copied().into_iter().collect(),
        given => given.to_vec(),
    };
    if addresses.is_empty() {
        return Err(GatewayError::NoAddress);
    }
    let is_foreign = |ip: &&IpAddr| !link.takes_any_address && !link.addresses.contains(ip);
    let foreign = addresses.iter().filter(is_foreign);
    let mut notices: Vec<Notice> = foreign.map(|ip| Notice::ForeignAddress(*ip)).collect();
    if let Some(set) = mtu.filter(|set| set.bytes() > fits.bytes()) {
        notices.push(Notice::MtuTooLarge(set, fits));
    }
    if let Some(error) = &link.silence.trouble {
        notices.push(Notice::NotSilent(io::Error::new(error.kind(), error.to_string())));
    }
    let mtu = mtu.map_or(fits, |set| set.min(fits)).bytes() as u32;
    let note = GatewayNote {
        link: name.to_string(),
        addresses,
        mtu,
        line_rate: link.line_rate,
        v1: name.v1,
    };
    Ok((note, notices))
}

/// From the fabric to the link.
#[derive(Debug)]
struct Outward {
    shared: Arc<Shared>,
    member: Member,
    sender: Box<dyn LinkSender>,
    passage: Passage,
    /// As which reports name it.
    device: String,
    /// Hears of the fabric.
    keeper: Caller,
    /// The number of the last question for a report that was answered.
    answered: u64,
}

impl Outward {
    fn run(&mut self) -> io::Result<()> {
        while !self.shared.stopped.load(Ordering::SeqCst) {
            if self.shared.neighbours_changed.swap(false, Ordering::SeqCst) {
                self.sender.neighbours_changed()?;
            }
            if self.member.has_news() {
                self.member.look_around();
                self.keeper.call();
            }
            if self.take() {
                self.sender.flush()?;
                continue;
            }
            self.member.found_nothing();
            if self.member.reports_wanted() != self.answered {
                self.answer();
            }
            self.sleep();
        }
        Ok(())
    }

    /// Takes frames as far as there is room for them, and says whether there were any.
    fn take(&mut self) -> bool {
        let mut any = false;
        let now = self.passage.now();
        while !self.sender.is_full()
            && let Some(frame) = self.passage.take_due(now)
        {
            self.passage.record(now, &frame, NO_TAG);
            self.sender.room()[..frame.len()].copy_from_slice(&frame);
            self.sender.push(frame.len());
            any = true;
        }
        for _ in 0..TURN {
            if self.sender.is_full() {
                break;
            }
            let room = self.sender.room();
            let Some(Received { len, tag, .. }) = self.member.receive(room, false) else { break };
            any = true;
            if let Some(frame) = self.passage.strike(now, &mut room[..len]) {
                self.passage.record(now, frame, tag);
                let len = frame.len();
                self.sender.push(len);
            }
        }
        any
    }

    /// Sleeps unless there is something to do.
    fn sleep(&mut self) {
        self.member.mend();
        let word = &*self.shared.wake;
        word.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_idle = self.member.pending() == 0
            && self.member.reports_wanted() == self.answered
            && !self.member.has_news()
            && !self.shared.neighbours_changed.load(Ordering::Relaxed)
            && !self.shared.stopped.load(Ordering::Relaxed);
        if !is_idle {
            word.store(0, Ordering::Relaxed);
            return;
        }
        let nap_ns = self.passage.nap_ns().unwrap_or(NAP_NS).min(NAP_NS);
        self.shared.wake.wait(1, Some(nap_ns));
        if word.swap(0, Ordering::Relaxed) == 1 && nap_ns == NAP_NS {
            // Nobody has woken us: time to look around.
            self.member.reap();
        }
    }

    /// Leaves a report for who has asked.
    #[cold]
    fn answer(&mut self) {
        self.answered = self.member.reports_wanted();
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let report = Report {
            generation: self.member.generation(),
            served: self.answered,
            pid: std::process::id(),
            program: "gateway".to_owned(),
            device: self.device.clone(),
            counters: self.shared.counters.iter().map(named).collect(),
            discards: BTreeMap::new(),
            lost: self.shared.counters.lost.iter().map(named).collect(),
            ..Report::default()
        };
        // Whoever has asked says that there was no answer.
        let _ = self.member.report(&report);
    }
}

/// From the link to the fabric.
#[derive(Debug)]
struct Inward {
    shared: Arc<Shared>,
    member: Member,
    receiver: Box<dyn LinkReceiver>,
    watch: Option<Watch>,
    passage: Passage,
    delivery: Delivery,
}

impl Inward {
    fn run(&mut self) -> io::Result<()> {
        while !self.shared.stopped.load(Ordering::SeqCst) {
            if self.member.has_news() {
                self.member.look_around();
            }
            match self.receiver.fetch() {
                // It may come up again.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(true) => self.deliver_all(),
                Ok(false) => {
                    self.deliver_due();
                    self.sleep()?;
                }
            }
        }
        Ok(())
    }

    /// Puts all frames fetched where they belong.
    fn deliver_all(&mut self) {
        self.deliver_due();
        let now = clock();
        while let Some(frame) = self.receiver.next() {
            self.passage.record(now, frame, NO_TAG);
            if let Some(frame) = self.passage.strike(now, frame) {
                let tagged = (frame, self.passage.tag());
                deliver(now, &mut self.member, &mut self.delivery, tagged, &self.shared);
            }
        }
        flush(&mut self.member, &self.shared);
    }

    /// Puts frames where they belong that were held back, and are due.
    fn deliver_due(&mut self) {
        let now = self.passage.now();
        while let Some(frame) = self.passage.take_due(now) {
            let tagged = (&frame[..], self.passage.tag());
            deliver(now, &mut self.member, &mut self.delivery, tagged, &self.shared);
        }
        flush(&mut self.member, &self.shared);
    }

    /// Sleeps until something has come, is due, or has changed, or it is time to look around.
    fn sleep(&mut self) -> io::Result<()> {
        let mut waits = [
            PollFd::new(self.receiver.descriptor(), PollFlags::POLLIN),
            PollFd::new(self.shared.stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.stop.as_fd(), PollFlags::POLLIN),
        ];
        if let Some(watch) = &self.watch {
            waits[2] = PollFd::new(watch.descriptor(), PollFlags::POLLIN);
        }
        let nap_ns = self.passage.nap_ns().unwrap_or(NAP_NS).min(NAP_NS);
        match ppoll(&mut waits, Some(Duration::from_nanos(nap_ns).into()), None) {
            Err(errno) if errno != Errno::EINTR => return Err(errno.into()),
            _ => {}
        }
        if let Some(watch) = &self.watch
            && watch.take_note()
        {
            self.receiver.look()?;
            self.shared.neighbours_changed.store(true, Ordering::SeqCst);
            self.shared.rouse();
        }
        Ok(())
    }
}

/// Puts a frame that is there now where it belongs; waits if there is no room.
fn deliver(
    now: Instant,
    member: &mut Member,
    delivery: &mut Delivery,
    tagged: (&[u8], u32),
    shared: &Shared,
) {
    let counters = &shared.counters;
    if delivery.deliver(now, member, tagged, counters) {
        // This member has no address.
        count(&counters.lost.no_member, 1);
    }
    while delivery.is_waiting() {
        flush(member, shared);
        thread::sleep(Duration::from_nanos(RETRY_NS));
        delivery.is_clear(clock(), member, counters);
    }
}

/// Has what was delivered seen, and counts what its receivers have given up meanwhile.
fn flush(member: &mut Member, shared: &Shared) {
    count(&shared.counters.lost.ring_full, member.flush() as u64);
}

/// Why a gateway cannot be opened.
#[derive(Debug)]
pub enum GatewayError {
    /// The link.
    Link(LinkError),
    /// The fabric.
    Fabric(FabricError),
    /// The link has no address, and none was given.
    NoAddress,
    /// Not even the smallest path MTU fits a link of this MTU, in bytes.
    Mtu(usize),
    /// The capture cannot be written.
    Capture(PathBuf, io::Error),
    /// The system refuses something else.
    Io(io::Error),
}

impl GatewayError {
    fn capture(path: Option<&Path>, error: io::Error) -> GatewayError {
        GatewayError::Capture(path.map(Path::to_owned).unwrap_or_default(), error)
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayError::Link(error) => error.fmt(f),
            GatewayError::Fabric(error) => error.fmt(f),
            GatewayError::NoAddress => {
                f.write_str("the link has no address: give it one, or name one with --addr")
            }
            GatewayError::Mtu(mtu) => write!(f, "the link's MTU of {mtu} is too small for RoCE"),
            GatewayError::Capture(path, error) => {
                write!(f, "cannot record to {}: {error}", path.display())
            }
            GatewayError::Io(error) => write!(f, "cannot start the gateway: {error}"),
        }
    }
}

impl std::error::Error for GatewayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its words are in ours.
            GatewayError::Fabric(error) => error.source(),
            _ => None,
        }
    }
}
