//! Frames into other members' rings, of which some may be full.
//!
//! The fabric loses nothing of its own: a frame for a member whose ring is full waits, and
//! everything behind it. So that a member that stands still or crawls does not hold up the others,
//! the time there is to wait for it is limited, and grows again only with the frames it takes; when
//! it is used up, frames to it are lost.

use ferroce_stack::time::Instant;

use super::member::{Member, Sent};
use super::registry::MEMBERS;

/// How long a full ring holds up its senders.
const PATIENCE_NS: u64 = 20_000_000;

/// By how much a frame that finds room lengthens the time there is to wait: a ring of them makes
/// all of it.
const PATIENCE_PER_FRAME_NS: u64 = PATIENCE_NS / 1024;

/// How soon a full ring is looked at again though nothing else happens: its owner tells nobody when
/// there is room.
pub(crate) const RETRY_NS: u64 = 50_000;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    /// It is in the member's ring.
    Done,
    /// It waits, and nothing else is to be handed over before [`Courier::retry`] says so.
    Waits,
    /// The ring has been full for long: it is lost.
    Full,
    /// There is no such member: it is lost.
    Gone,
}

/// A frame that waits for room.
#[derive(Debug)]
struct Waiting {
    to: u8,
    tag: u32,
    frame: Vec<u8>,
    since: Instant,
}

/// Puts frames into members' rings.
#[derive(Debug)]
pub(crate) struct Courier {
    waiting: Option<Waiting>,
    /// When the frame that waits is due again.
    retry_at: Option<Instant>,
    /// How long each member's ring may hold us up yet, in nanoseconds.
    patience_ns: [u64; MEMBERS],
}

impl Courier {
    pub fn new() -> Courier {
        Courier { waiting: None, retry_at: None, patience_ns: [PATIENCE_NS; MEMBERS] }
    }

    /// Puts a frame into a member's ring, or keeps it until there is room.
    #[inline]
    pub fn hand(
        &mut self,
        now: Instant,
        member: &mut Member,
        to: u8,
        frame: &[u8],
        tag: u32,
    ) -> Handed {
        let sent = member.send(to, frame, tag);
        let patience_ns = &mut self.patience_ns[usize::from(to)];
        match sent {
            Sent::Done => {
                if *patience_ns < PATIENCE_NS {
                    *patience_ns += PATIENCE_PER_FRAME_NS;
                }
                Handed::Done
            }
            Sent::Full if *patience_ns >= RETRY_NS => {
                self.retry_at = Some(now + RETRY_NS);
                self.waiting = Some(Waiting { to, tag, frame: frame.to_vec(), since: now });
                Handed::Waits
            }
            Sent::Full => Handed::Full,
            Sent::Gone => Handed::Gone,
        }
    }

    /// Tries again with the frame that waits; none if there is none.
    pub fn retry(&mut self, now: Instant, member: &mut Member) -> Option<Handed> {
        let waiting = self.waiting.take()?;
        self.retry_at = None;
        let sent = member.send(waiting.to, &waiting.frame, waiting.tag);
        let patience_ns = &mut self.patience_ns[usize::from(waiting.to)];
        if sent == Sent::Full && now < waiting.since + *patience_ns {
            self.retry_at = Some(now + RETRY_NS);
            self.waiting = Some(waiting);
            return Some(Handed::Waits);
        }
        *patience_ns =
            patience_ns.saturating_sub(now.nanos().saturating_sub(waiting.since.nanos()));
        Some(match sent {
            Sent::Done => Handed::Done,
            Sent::Full => {
                member.reap();
                Handed::Full
            }
            Sent::Gone => Handed::Gone,
        })
    }

    /// Whether a frame waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// When the frame that waits is due again.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}
