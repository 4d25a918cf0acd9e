//! Frames from a link on their way into the fabric.

use ferroce_stack::time::Instant;

use super::{LinkCounters, count};
use crate::fabric::{Courier, Handed, Member, Route, Sent, destination};

/// Puts frames from a link where they belong.
#[derive(Debug)]
pub(crate) struct Delivery(Courier);

impl Delivery {
    pub fn new() -> Delivery {
        Delivery(Courier::new())
    }

    /// Puts a frame into the rings of those it is for, or counts it as lost. `tag` names the
    /// capture it is in. Says whether it is for `member` itself.
    #[inline]
    pub fn deliver(
        &mut self,
        now: Instant,
        member: &mut Member,
        (frame, tag): (&[u8], u32),
        counters: &LinkCounters,
    ) -> bool {
        count(&counters.link_received, 1);
        let Some((gid, qpn, datagram)) = destination(frame) else {
            count(&counters.lost.not_roce, 1);
            return false;
        };
        match member.route_from_link(gid, qpn, datagram) {
            Route::Own => {
                count(&counters.delivered, 1);
                return true;
            }
            Route::Member(to) => {
                let handed = self.0.hand(now, member, to, frame, tag);
                count_handed(handed, counters);
            }
            Route::Members(members) if !members.is_empty() => {
                let own = member.slot();
                // Datagrams: who has no room loses them.
                for to in members.iter().filter(|&to| to != own) {
                    count_handed(handed_once(member.send(to, frame, tag)), counters);
                }
                return members.contains(own);
            }
            Route::Members(_) | Route::Link | Route::Unreachable => {
                count(&counters.lost.no_member, 1);
            }
        }
        false
    }

    /// Whether another frame may be delivered; tries the one that waits again.
    pub fn is_clear(&mut self, now: Instant, member: &mut Member, counters: &LinkCounters) -> bool {
        let Some(handed) = self.0.retry(now, member) else { return true };
        count_handed(handed, counters);
        handed != Handed::Waits
    }

    /// Whether a frame waits for room.
    pub fn is_waiting(&self) -> bool {
        self.0.is_waiting()
    }

    /// When the frame that waits is due again.
    pub fn retry_at(&self) -> Option<Instant> {
        self.0.retry_at()
    }
}

fn handed_once(sent: Sent) -> Handed {
    match sent {
        Sent::Done => Handed::Done,
        Sent::Full => Handed::Full,
        Sent::Gone => Handed::Gone,
    }
}

fn count_handed(handed: Handed, counters: &LinkCounters) {
    match handed {
        Handed::Done => count(&counters.delivered, 1),
        Handed::Waits => {}
        Handed::Full => count(&counters.lost.ring_full, 1),
        Handed::Gone => count(&counters.lost.no_member, 1),
    }
}
