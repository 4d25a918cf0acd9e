//! The engine's own link to a network: the fabric's gateway is then a part of this engine.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use ferroce_stack::Device;
use ferroce_stack::time::Instant;

use super::outbound::Outbound;
use super::sleeper::Descriptors;
use crate::fabric::{Member, destination};
use crate::keeper::Keeper;
use crate::link::{
    Delivery, Link, LinkCounters, LinkKind, LinkName, LinkPort, LinkReceiver, LinkSender, Silence,
    Watch,
};
use crate::memory::HostMemory;

/// Frames taken from the link in one batch: those of some super-frames.
const BATCH: usize = 128;

/// Whom a frame that another member has sent here is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// For this device.
    No,
    /// For the network.
    Yes,
    /// For a group.
    Also,
}

#[derive(Debug)]
pub(super) struct Network {
    name: LinkName,
    receiver: Box<dyn LinkReceiver>,
    sender: Box<dyn LinkSender>,
    watch: Option<Watch>,
    counters: Arc<LinkCounters>,
    delivery: Delivery,
    descriptors: Arc<Descriptors>,
    /// Frames have been fetched and not all taken.
    has_frames: bool,
    /// Frames have been pushed since the last flush.
    is_dirty: bool,
    /// The link is gone.
    failure: Option<io::Error>,
    keeper: Keeper,
    _silence: Silence,
}

impl Network {
    /// One with an open link; `keep` starts what keeps the fabric and its interface in step.
    pub fn new(
        name: &LinkName,
        link: Link,
        counters: Arc<LinkCounters>,
        descriptors: Arc<Descriptors>,
        keep: impl FnOnce(LinkPort) -> io::Result<Keeper>,
    ) -> io::Result<Network> {
        let Link { receiver, sender, watch, port, silence, .. } = link;
        let keeper = keep(port)?;
        Ok(Network {
            name: name.clone(),
            receiver,
            sender,
            watch,
            counters,
            delivery: Delivery::new(),
            descriptors,
            has_frames: false,
            is_dirty: false,
            failure: None,
            keeper,
            _silence: silence,
        })
    }

    pub fn name(&self) -> &LinkName {
        &self.name
    }

    /// Whether frames come into memory, where a look needs no system call.
    pub fn has_ring(&self) -> bool {
        !matches!(self.name.kind, LinkKind::Udp(_))
    }

    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Whether the link is gone.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why the link is gone, if it is.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Takes from the system what has arrived.
    #[inline]
    pub fn fetch(&mut self) {
        if self.has_frames {
            return;
        }
        match self.receiver.fetch() {
            Ok(has_frames) => self.has_frames = has_frames,
            // It may come up again.
            Err(error) if error.kind() == ErrorKind::NetworkDown => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.failure = Some(error),
        }
    }

    /// Whether there is something to do.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.has_frames
            || self.is_dirty
            || self.failure.is_some()
            || self.delivery.is_waiting()
            || self.descriptors.has_changed()
    }

    /// When something is due though nothing else happens.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.delivery.retry_at() {
            None if self.has_frames => Some(Instant::default()),
            retry_at => retry_at,
        }
    }

    /// Puts frames that were fetched where they belong; whether there were any.
    pub fn take(
        &mut self,
        now: Instant,
        device: &mut Device<HostMemory>,
        member: &mut Member,
        outbound: &mut Outbound,
    ) -> bool {
        let mut taken = false;
        for _ in 0..BATCH {
            if !self.delivery.is_clear(now, member, &self.counters) || !self.has_frames {
                break;
            }
            let Some(frame) = self.receiver.next() else {
                self.has_frames = false;
                break;
            };
            taken = true;
            outbound.record_arrival(now, frame, 0);
            let arrival = (&*frame, outbound.tag());
            if self.delivery.deliver(now, member, arrival, &self.counters) {
                outbound.admit(now, frame, None, device);
            }
        }
        taken
    }

    /// Where the next frame is written, if the link is still there.
    #[inline]
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.sender.is_full() {
            self.flush();
        }
        if self.failure.is_some() { None } else { Some(self.sender.room()) }
    }

    /// Adds the frame that is where [`Network::room`] said.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.sender.push(len);
        self.is_dirty = true;
    }

    /// Adds a frame from elsewhere.
    pub fn push_copy(&mut self, frame: &[u8]) {
        if let Some(room) = self.room().and_then(|room| room.get_mut(..frame.len())) {
            room.copy_from_slice(frame);
            self.push(frame.len());
        }
    }

    /// Sends what has been added.
    #[inline]
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            let outcome = self.sender.flush();
            self.note(outcome);
        }
    }

    /// Looks at what has changed of neighbours and routes, and whether the link is still there.
    #[cold]
    pub fn look(&mut self) {
        self.descriptors.take_change();
        if let Some(watch) = &self.watch {
            watch.take_note();
        }
        let outcome = self.receiver.look().and_then(|()| self.sender.neighbours_changed());
        self.note(outcome);
    }

    /// There may be something new in the fabric for the link.
    pub fn see_fabric(&self) {
        self.keeper.caller().call();
    }

    #[inline]
    pub fn has_changed(&self) -> bool {
        self.descriptors.has_changed()
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.failure = Some(error);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.descriptors.forget_link();
    }
}

/// Whom a frame is for that another member has put into this engine's ring.
#[inline]
pub(super) fn leaves(frame: &[u8], member: &mut Member) -> Leaves {
    match destination(frame) {
        Some((gid, ..)) if gid.is_multicast() => Leaves::Also,
        Some((gid, ..)) if !member.has(gid) => Leaves::Yes,
        // A frame that is not RoCE stays in the fabric.
        _ => Leaves::No,
    }
}
