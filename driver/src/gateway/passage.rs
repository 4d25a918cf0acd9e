//! What happens on purpose to frames that pass a gateway: they are recorded, and struck by faults.
//!
//! The capture shows frames as they are on the wire: what is sent after faults have struck it, what
//! comes before they do. Ethernet addresses are those of the fabric, for a link writes its own.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ferroce_stack::time::Instant;

use super::NO_TAG;
use crate::frame::fault::Rule;
use crate::frame::striker::Striker;
use crate::frame::tap::Tap;
use crate::link::{LinkCounters, count};
use crate::sys;

/// What happens to the frames of one direction.
#[derive(Debug)]
pub(super) struct Passage {
    tap: Option<Tap>,
    striker: Option<Striker>,
    counters: Arc<LinkCounters>,
}

impl Passage {
    /// Those out of the fabric and into it: to the rules, frames of node 0 and of node 1.
    ///
    /// # Errors
    /// If the capture cannot be written.
    pub fn of_both_directions(
        capture: Option<&Path>,
        faults: &[Rule],
        seed: u64,
        counters: &Arc<LinkCounters>,
    ) -> io::Result<[Passage; 2]> {
        let tap = || capture.map(|path| Tap::open(path, clock())).transpose();
        let [out, back] = Striker::of_passage(faults, seed);
        let passage = |tap, striker| Passage { tap, striker, counters: counters.clone() };
        Ok([passage(tap()?, out), passage(tap()?, back)])
    }

    /// The present moment, as far as anything here depends on it.
    pub fn now(&self) -> Instant {
        match (&self.tap, &self.striker) {
            (None, None) => Instant::ZERO,
            _ => clock(),
        }
    }

    /// Says with each frame in which capture it is; 0 for none.
    pub fn tag(&self) -> u32 {
        self.tap.as_ref().map_or(NO_TAG, Tap::id)
    }

    /// Records a frame, unless `tag` says that it is in the capture already.
    pub fn record(&mut self, now: Instant, frame: &[u8], tag: u32) {
        if let Some(tap) = self.tap.as_mut().filter(|tap| tap.id() != tag) {
            tap.record(now, frame);
        }
    }

    /// Strikes a frame, and may change it; what of it goes on now, if it does.
    pub fn strike<'a>(&mut self, now: Instant, frame: &'a mut [u8]) -> Option<&'a [u8]> {
        let Some(striker) = &mut self.striker else { return Some(frame) };
        let lost = striker.lost();
        let struck = striker.strike(now, None, frame);
        count(&self.counters.lost.injected, striker.lost() - lost);
        struck.passes.then(|| &frame[..struck.len])
    }

    /// When the next frame that was held back is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.striker.as_ref().and_then(Striker::next_due)
    }

    /// A frame that was held back and is due.
    pub fn take_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.striker.as_mut().and_then(|striker| striker.take_due(now))
    }

    /// How long one may sleep until then, in nanoseconds.
    pub fn nap_ns(&self) -> Option<u64> {
        let due = self.next_due()?;
        Some(due.nanos().saturating_sub(clock().nanos()))
    }
}

/// The present moment.
pub(super) fn clock() -> Instant {
    Instant::from_nanos(sys::now_ns())
}
