//! The requests one QP has sent to another, by PSN, and what the responder has said to them.
//!
//! PSNs are unwrapped: a position is a `u64` whose low 24 bits are the PSN, so that order is
//! plain order. A READ takes one position for each of its responses (IBA 9.7.3).

use std::collections::{BTreeMap, BTreeSet};

use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{Kind as Operation, Opcode, OpcodeInfo, PayloadRule, Position, Reth};

use super::message::{PATH_MTU_MAX, PATH_MTUS};

/// Where positions start: far above any distance back.
const BASE: u64 = 1 << 40;
/// Records kept to compare a resent request with.
const RECORDS_MAX: usize = 16 << 10;

/// A request packet as first sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub frame: u64,
    pub opcode: Opcode,
    pub info: Option<&'static OpcodeInfo>,
    pub payload_len: u32,
    pub reth: Option<Reth>,
    /// Over what a resend must not change; none if the capture cut the packet.
    pub digest: Option<u64>,
    /// IPv4 identification, if it tells packets apart.
    pub ip_ident: Option<u16>,
    /// Positions taken.
    pub count: u32,
    /// How well the count is known.
    pub sizing: Sizing,
    /// The PSN before was seen, so that a READ cannot be the rest of one that was not.
    pub adjoins: bool,
    /// READ: the response due next, counted from 0. Others: 1 once answered.
    pub answered: u32,
    /// READ: where it was asked for again, counted in responses.
    pub resumed_at: BTreeSet<u32>,
    /// READ: one past the last response that was asked for again, where that is not the last of
    /// all, as selective repeat does.
    pub resumed_to: BTreeSet<u32>,
    /// Atomics: the value returned.
    pub original: Option<u64>,
    /// Told that the responder went past it.
    pub told_lost: bool,
}

/// How well it is known how many positions a request takes. A READ's depend on the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizing {
    /// For certain.
    Certain,
    /// From what came next; what the capture missed may have misled.
    Guessed,
    /// Nothing has told yet: the count is the least there can be.
    Open,
}

impl Request {
    pub fn operation(&self) -> Option<Operation> {
        self.info.map(|info| info.kind)
    }

    /// Whether only a response of its own, not an ACK, completes it.
    pub fn wants_response(&self) -> bool {
        matches!(
            self.operation(),
            Some(
                Operation::ReadRequest
                    | Operation::CompareSwap
                    | Operation::FetchAdd
                    | Operation::AtomicWrite
                    | Operation::Flush
            )
        )
    }

    fn is_read(&self) -> bool {
        self.operation() == Some(Operation::ReadRequest)
    }

    /// Bytes a READ asks for.
    pub fn read_len(&self) -> u32 {
        self.reth.map_or(0, |reth| reth.dma_len)
    }
}

/// Response packets, and so PSNs, of a READ of `len` bytes.
pub(super) fn packet_count(len: u32, pmtu: u32) -> u32 {
    len.div_ceil(pmtu).max(1)
}

/// All that is known of what one QP has sent.
#[derive(Debug, Default)]
pub(super) struct Requests {
    records: BTreeMap<u64, Request>,
    /// The lowest position that is judged; below it lies what came before the capture.
    pub begin: u64,
    /// Requests below `begin` were forgotten.
    pub forgotten: bool,
    /// One past the highest position sent.
    pub next: u64,
    /// Path MTU in bytes, once known.
    pub pmtu: Option<u32>,
}

impl Requests {
    /// Starts at `psn`.
    pub fn new(psn: Psn, pmtu: Option<u32>) -> Requests {
        let begin = BASE | u64::from(psn.value());
        Requests { records: BTreeMap::new(), begin, forgotten: false, next: begin, pmtu }
    }

    /// The position of `psn` that is nearest to the next one.
    pub fn position_of(&self, psn: Psn) -> u64 {
        let next = Psn::new((self.next & 0x00ff_ffff) as u32);
        self.next.saturating_add_signed(i64::from(psn.distance(next)))
    }

    /// The request that owns a position, and its first position.
    pub fn at(&self, position: u64) -> Option<(u64, &Request)> {
        let (&first, request) = self.records.range(..=position).next_back()?;
        (position - first < u64::from(request.count)).then_some((first, request))
    }

    /// As [`at`](Self::at), to be changed.
    pub fn at_mut(&mut self, position: u64) -> Option<(u64, &mut Request)> {
        let (&first, request) = self.records.range_mut(..=position).next_back()?;
        (position - first < u64::from(request.count)).then_some((first, request))
    }

    /// The first request at or after a position.
    pub fn from(&self, position: u64) -> Option<u64> {
        self.records.range(position..).next().map(|(&first, _)| first)
    }

    /// The requests that begin within a range of positions.
    pub fn between(
        &mut self,
        begin: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, &mut Request)> + use<'_> {
        self.records.range_mut(begin..end.max(begin)).map(|(&first, request)| (first, request))
    }

    /// One past the highest position that may have been sent, whatever the path MTU is.
    pub fn next_at_most(&self) -> u64 {
        match self.records.last_key_value() {
            Some((first, request)) if request.sizing == Sizing::Open => {
                self.next.max(first + u64::from(packet_count(request.read_len(), PATH_MTUS[0])))
            }
            _ => self.next,
        }
    }

    /// Adds a request at a position that no other owns.
    pub fn insert(&mut self, position: u64, mut request: Request) {
        if position >= self.next {
            self.settle(self.pmtu.unwrap_or(PATH_MTU_MAX), Sizing::Guessed);
        }
        if request.is_read() {
            let len = request.read_len();
            request.count = packet_count(len, self.pmtu.unwrap_or(PATH_MTU_MAX));
            if self.pmtu.is_none() && len > PATH_MTUS[0] {
                request.sizing = Sizing::Open;
            }
        }
        request.adjoins = self.at(position - 1).is_some();
        // A READ that fills a gap: what follows it is already there.
        if let Some(following) = self.from(position + 1) {
            let room = following - position;
            if u64::from(request.count) > room || request.sizing == Sizing::Open {
                request.count = request.count.min(room as u32);
                request.sizing = Sizing::Guessed;
            }
        }
        self.next = self.next.max(position + u64::from(request.count));
        self.begin = self.begin.min(position);
        self.records.insert(position, request);
    }

    /// Takes back a guess: the READ at `first` takes `count` positions at most.
    pub fn shorten_guess(&mut self, first: u64, count: u32) {
        if let Some(request) = self.records.get_mut(&first)
            && request.sizing != Sizing::Certain
        {
            request.count = request.count.min(count);
            request.sizing = Sizing::Guessed;
        }
    }

    /// Forgets the oldest requests before `position` beyond what is kept for comparing; returns
    /// whether there is too much even so.
    pub fn forget_before(&mut self, position: u64) -> bool {
        while self.records.len() > RECORDS_MAX
            && let Some(oldest) = self.records.first_entry()
            && *oldest.key() < position
        {
            let end = oldest.key() + u64::from(oldest.get().count);
            oldest.remove();
            self.begin = self.begin.max(end);
            self.forgotten = true;
        }
        self.records.len() > RECORDS_MAX
    }

    /// Takes a path MTU just seen, if none was known.
    pub fn learn_pmtu(&mut self, pmtu: u32) {
        if self.pmtu.is_some() || !PATH_MTUS.contains(&pmtu) {
            return;
        }
        self.pmtu = Some(pmtu);
        self.settle(pmtu, Sizing::Certain);
        let mut following = u64::MAX;
        for (&first, request) in self.records.iter_mut().rev() {
            let count = packet_count(request.read_len(), pmtu);
            if request.sizing == Sizing::Guessed && first + u64::from(count) <= following {
                request.count = count;
                request.sizing = Sizing::Certain;
                self.next = self.next.max(first + u64::from(count));
            }
            following = first;
        }
    }

    /// Learns how many responses the last READ has from where the request after it stands.
    pub fn learn_from_next(&mut self, position: u64) {
        if let Some((&first, request)) = self.records.last_key_value()
            && request.sizing == Sizing::Open
        {
            let len = request.read_len();
            let fits = |&&pmtu: &&u32| first + u64::from(packet_count(len, pmtu)) == position;
            if let Some(&pmtu) = PATH_MTUS.iter().find(fits) {
                self.settle(pmtu, Sizing::Guessed);
            }
        }
    }

    /// Learns from a READ response: a First or Middle is as long as the path MTU, a Last or Only
    /// ends the READ.
    pub fn learn_from_response(&mut self, position: u64, place: Position, payload_len: u32) {
        if !place.ends() {
            return self.learn_pmtu(payload_len);
        }
        if let Some((&first, request)) = self.records.last_key_value()
            && request.sizing == Sizing::Open
            && position >= first
        {
            let (len, count) = (request.read_len(), position - first + 1);
            let fits = |&&pmtu: &&u32| u64::from(packet_count(len, pmtu)) == count;
            if let Some(&pmtu) = PATH_MTUS.iter().find(fits) {
                self.settle(pmtu, Sizing::Guessed);
            }
        }
    }

    /// Ends a capture: no request follows that would tell more.
    pub fn end(&mut self) {
        self.settle(PATH_MTU_MAX, Sizing::Guessed);
    }

    /// Sizes the last request for this path MTU, if it is a READ of open size.
    fn settle(&mut self, pmtu: u32, sizing: Sizing) {
        if let Some(mut last) = self.records.last_entry()
            && last.get().sizing == Sizing::Open
        {
            let first = *last.key();
            let request = last.get_mut();
            request.count = packet_count(request.read_len(), pmtu);
            request.sizing = sizing;
            self.next = self.next.max(first + u64::from(request.count));
        }
    }
}

/// Whether the payload of this opcode may only have one length, whatever the path MTU.
pub(super) fn fixed_payload_len(info: &OpcodeInfo) -> Option<u32> {
    match info.payload {
        PayloadRule::Empty => Some(0),
        PayloadRule::Exactly(len) => Some(u32::from(len)),
        PayloadRule::Mtu | PayloadRule::OneToMtu | PayloadRule::UpToMtu => None,
    }
}
