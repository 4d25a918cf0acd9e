//! Frames on their way out: faults, delays, and who they are for. Also what faults do to frames
//! that have come for the device.

use ferroce_stack::Device;
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::Qpn;

use super::network::Network;
use crate::fabric::{Courier, Handed, Member, Route, Sent, Slots, destination};
use crate::frame::fault::Rule;
use crate::frame::striker::{Striker, Struck};
use crate::frame::tap::Tap;
use crate::memory::HostMemory;

/// Where a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is for this very device.
    Own,
    /// On its way, waiting or lost.
    Gone,
    /// To leave by this engine's own link.
    Link,
}

/// Frames that never reached anybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// The receiver had not emptied its ring for long.
    pub ring_full: u64,
    /// No member has the address, or the one that had has gone; or there is no address, in a frame
    /// of the application's that is not RoCE.
    pub unreachable: u64,
}

#[derive(Debug)]
pub(super) struct Outbound {
    tap: Option<Tap>,
    striker: Option<Striker>,
    /// Of what has come.
    incoming: Option<Striker>,
    courier: Courier,
    pub lost: Lost,
}

impl Outbound {
    pub fn new(faults: &[Rule], seed: u64, tap: Option<Tap>) -> Outbound {
        let [striker, incoming] = Striker::of_host(faults, seed);
        Outbound { tap, striker, incoming, courier: Courier::new(), lost: Lost::default() }
    }

    /// Records a frame that has arrived with `tag`, unless its sender has.
    pub fn record_arrival(&mut self, now: Instant, frame: &[u8], tag: u32) {
        if let Some(tap) = self.tap.as_mut().filter(|tap| tap.id() != tag) {
            tap.record(now, frame);
        }
    }

    /// Says with each frame in which capture it is; 0 for none.
    pub fn tag(&self) -> u32 {
        self.tap.as_ref().map_or(0, Tap::id)
    }

    /// Whether no frame waits here.
    pub fn is_quiet(&self) -> bool {
        !self.courier.is_waiting() && self.next_due().is_none()
    }

    /// Frames that faults have lost.
    pub fn injected(&self) -> u64 {
        self.strikers().map(Striker::lost).sum()
    }

    fn strikers(&self) -> impl Iterator<Item = &Striker> {
        self.striker.iter().chain(&self.incoming)
    }

    fn next_due(&self) -> Option<Instant> {
        self.strikers().filter_map(Striker::next_due).min()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.next_due().into_iter().chain(self.courier.retry_at()).min()
    }

    /// Whether another frame may be sent; tries the one that waits again.
    #[inline]
    pub fn is_clear(&mut self, now: Instant, member: &mut Member) -> bool {
        if !self.courier.is_waiting() {
            return true;
        }
        match self.courier.retry(now, member) {
            Some(Handed::Waits) => return false,
            Some(handed) => self.count(handed),
            None => {}
        }
        true
    }

    fn count(&mut self, handed: Handed) {
        match handed {
            Handed::Done | Handed::Waits => {}
            Handed::Full => self.lost.ring_full += 1,
            Handed::Gone => self.lost.unreachable += 1,
        }
    }

    /// Sends a frame the device has built. A fault may change it; how long it is then. The capture
    /// has it as it leaves, and whether or not it arrives.
    pub fn send(
        &mut self,
        now: Instant,
        sender: impl FnOnce() -> Option<Qpn>,
        frame: &mut [u8],
        member: &mut Member,
    ) -> (Outcome, usize) {
        let struck = match &mut self.striker {
            Some(striker) => striker.strike(now, sender().map(|qpn| qpn.0), frame),
            None => Struck { len: frame.len(), passes: true },
        };
        let Struck { len, passes } = struck;
        if let Some(tap) = &mut self.tap {
            tap.record(now, &frame[..len]);
        }
        match passes {
            true => (self.forward(now, &frame[..len], member), len),
            false => (Outcome::Gone, len),
        }
    }

    /// Gives the device a frame that has come for it, unless a fault loses it or holds it back.
    /// It may have a `sum` ([`Device::handle_summed_frame`]).
    #[inline]
    pub fn admit(
        &mut self,
        now: Instant,
        frame: &mut [u8],
        sum: Option<u32>,
        device: &mut Device<HostMemory>,
    ) {
        // Why a frame had no effect, the device has counted.
        if self.incoming.is_none() {
            let _ = device.handle_summed_frame(now, frame, sum);
            return;
        }
        let Struck { len, passes } = self.strike_incoming(now, frame, device);
        if passes {
            let _ = device.handle_frame(now, &frame[..len]);
        }
    }

    #[cold]
    fn strike_incoming(
        &mut self,
        now: Instant,
        frame: &mut [u8],
        device: &Device<HostMemory>,
    ) -> Struck {
        let len = frame.len();
        let peer = |(_, qpn, _)| device.query_qp(qpn).ok().map(|(attr, _)| attr.dest_qp_num.0);
        let source_qp = destination(frame).and_then(peer);
        let striker = self.incoming.as_mut();
        let struck = striker.map(|striker| striker.strike(now, source_qp, frame));
        struck.unwrap_or(Struck { len, passes: true })
    }

    /// Sends, and gives the device, what a fault has held back long enough.
    pub fn run_delayed(
        &mut self,
        now: Instant,
        member: &mut Member,
        device: &mut Device<HostMemory>,
        mut network: Option<&mut Network>,
    ) {
        while let Some(frame) = self.incoming.as_mut().and_then(|striker| striker.take_due(now)) {
            let _ = device.handle_frame(now, &frame);
        }
        let is_due = |striker: &Striker| striker.next_due().is_some_and(|at| at <= now);
        while self.striker.as_ref().is_some_and(is_due) && self.is_clear(now, member) {
            let due = self.striker.as_mut().and_then(|striker| striker.take_due(now));
            let Some(frame) = due else { return };
            match self.forward(now, &frame, member) {
                Outcome::Own => {
                    let _ = device.handle_frame(now, &frame);
                }
                Outcome::Link => match &mut network {
                    Some(network) => network.push_copy(&frame),
                    None => self.lost.unreachable += 1,
                },
                Outcome::Gone => {}
            }
        }
    }

    fn forward(&mut self, now: Instant, frame: &[u8], member: &mut Member) -> Outcome {
        let Some((gid, qpn, datagram)) = destination(frame) else {
            return self.forward_foreign(frame, member);
        };
        match member.route(gid, qpn, datagram) {
            Route::Own => return Outcome::Own,
            Route::Member(to) => {
                let tag = self.tag();
                let handed = self.courier.hand(now, member, to, frame, tag);
                self.count(handed);
            }
            Route::Link => return Outcome::Link,
            Route::Members(members) => {
                self.forward_to_all(members, frame, member);
                // Of a group the device has looked for members by itself.
                if gid.is_multicast() && member.is_gateway() {
                    return Outcome::Link;
                }
                if !gid.is_multicast() && members.contains(member.slot()) {
                    return Outcome::Own;
                }
            }
            Route::Unreachable => self.lost.unreachable += 1,
        }
        Outcome::Gone
    }

    /// Sends a frame that is not RoCE to all who steer such frames.
    #[cold]
    fn forward_foreign(&mut self, frame: &[u8], member: &mut Member) -> Outcome {
        let takers = member.wanting_foreign();
        self.lost.unreachable += u64::from(takers.is_empty());
        self.forward_to_all(takers, frame, member);
        if takers.contains(member.slot()) { Outcome::Own } else { Outcome::Gone }
    }

    /// Sends a frame to all others of these. Datagrams: who has no room loses them.
    fn forward_to_all(&mut self, takers: Slots, frame: &[u8], member: &mut Member) {
        let own = member.slot();
        for to in takers.iter().filter(|&to| to != own) {
            let sent = member.send(to, frame, self.tag());
            self.lost.ring_full += u64::from(sent == Sent::Full);
        }
    }
}
