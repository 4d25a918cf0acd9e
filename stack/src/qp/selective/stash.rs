//! Packets that came ahead of a missing one, kept as they came until their turn is up. What one QP
//! keeps is bounded by packets, what all keep together by bytes.

use std::collections::VecDeque;

use crate::psn::Psn;
use crate::wire::PsnRange;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Now,
    /// It is there already.
    Before,
    /// There is no room.
    Not,
}

/// How much may be kept.
#[derive(Debug)]
pub(super) struct Room<'a> {
    /// Packets of this QP.
    pub packets: usize,
    /// Bytes that are left for all QPs.
    pub bytes: &'a mut usize,
}

/// The packets kept, by PSN. All lie in the half of the PSNs ahead of the one that is missing.
#[derive(Debug, Default)]
pub(super) struct Stash {
    packets: VecDeque<Packet>,
}

#[derive(Debug)]
struct Packet {
    /// Its PSNs: a READ request has more than one.
    range: PsnRange,
    frame: Box<[u8]>,
}

impl Packet {
    fn end(&self) -> Psn {
        self.range.first.advance(self.range.count)
    }
}

impl Stash {
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The PSN after all that is kept.
    pub fn end(&self) -> Option<Psn> {
        self.packets.back().map(Packet::end)
    }

    pub fn keep(&mut self, range: PsnRange, frame: &[u8], room: Room) -> Kept {
        let psn = range.first;
        let at = self.packets.partition_point(|kept| kept.range.first.distance(psn) < 0);
        if self.packets.get(at).is_some_and(|kept| kept.range.first == psn) {
            return Kept::Before;
        }
        if self.packets.len() >= room.packets || frame.len() > *room.bytes {
            return Kept::Not;
        }
        *room.bytes -= frame.len();
        self.packets.insert(at, Packet { range, frame: frame.into() });
        Kept::Now
    }

    /// Takes the packet `psn` out, and drops what is before it; its bytes go back to `bytes`.
    pub fn take(&mut self, psn: Psn, bytes: &mut usize) -> Option<Box<[u8]>> {
        while let Some(first) = self.packets.front().map(|kept| kept.range.first) {
            if first.distance(psn) > 0 {
                break;
            }
            let frame = self.packets.pop_front()?.frame;
            *bytes += frame.len();
            if first == psn {
                return Some(frame);
            }
        }
        None
    }

    /// Drops everything.
    pub fn clear(&mut self, bytes: &mut usize) {
        *bytes += self.packets.drain(..).map(|kept| kept.frame.len()).sum::<usize>();
    }

    /// What is kept, oldest first, as few ranges as it takes: a PSN that is missing is before each
    /// but the first, even if a peer's requests overlap.
    pub fn ranges(&self) -> impl Iterator<Item = PsnRange> {
        let mut packets = self.packets.iter().map(|kept| kept.range).peekable();
        std::iter::from_fn(move || {
            let PsnRange { first, mut count } = packets.next()?;
            while let Some(next) = packets.next_if(|next| next.first.since(first) <= count) {
                count = count.max(next.first.since(first).saturating_add(next.count));
            }
            Some(PsnRange { first, count })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, count: u32) -> PsnRange {
        PsnRange { first: Psn::new(first), count }
    }

    #[test]
    fn what_is_kept_comes_out_in_order_across_the_end_of_the_psns() {
        let (mut stash, mut bytes) = (Stash::default(), 1000);
        for psn in [3, 0xff_fffe, 0xff_ffff, 5, 0xff_ffff] {
            stash.keep(range(psn, 1), &[1; 10], Room { packets: 8, bytes: &mut bytes });
        }
        stash.keep(range(0, 3), &[2; 10], Room { packets: 8, bytes: &mut bytes });
        assert_eq!(bytes, 950);
        let ranges: Vec<PsnRange> = stash.ranges().collect();
        assert_eq!(ranges, [range(0xff_fffe, 6), range(5, 1)]);
        assert_eq!(stash.end(), Some(Psn::new(6)));
        assert!(stash.take(Psn::new(0xff_fffd), &mut bytes).is_none());
        assert!(stash.take(Psn::new(0), &mut bytes).is_some_and(|frame| frame[0] == 2));
        assert_eq!(bytes, 980, "what is before it is gone");
        assert!(stash.take(Psn::new(4), &mut bytes).is_none());
        assert!(stash.take(Psn::new(5), &mut bytes).is_some());
        assert!(stash.is_empty());
        assert_eq!(bytes, 1000);
    }

    #[test]
    fn requests_that_overlap_are_told_as_one_range() {
        let (mut stash, mut bytes) = (Stash::default(), 1000);
        let half = 1 << 23;
        for kept in [range(4, 6), range(6, 1), range(9, 3), range(13, 1), range(half, half)] {
            stash.keep(kept, &[0; 10], Room { packets: 8, bytes: &mut bytes });
        }
        let ranges: Vec<PsnRange> = stash.ranges().collect();
        assert_eq!(ranges, [range(4, 8), range(13, 1), range(half, half)]);
        stash.keep(range(14, half), &[0; 10], Room { packets: 8, bytes: &mut bytes });
        let ranges: Vec<PsnRange> = stash.ranges().collect();
        assert_eq!(ranges, [range(4, 8), range(13, 2 * half - 13)]);
    }

    #[test]
    fn packets_and_bytes_are_bounded() {
        let (mut stash, mut bytes) = (Stash::default(), 25);
        let mut keep =
            |psn, packets| stash.keep(range(psn, 1), &[0; 10], Room { packets, bytes: &mut bytes });
        assert_eq!([keep(1, 1), keep(2, 1), keep(1, 1)], [Kept::Now, Kept::Not, Kept::Before]);
        assert_eq!([keep(2, 9), keep(3, 9)], [Kept::Now, Kept::Not]);
        stash.clear(&mut bytes);
        assert_eq!(bytes, 25);
    }
}
