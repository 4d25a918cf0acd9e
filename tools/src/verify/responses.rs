//! What a responder may say to the requests of a flow (IBA 9.7.5, 9.7.6).

use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{Aeth, Kind as Operation, NakCode, Position, SyndromeKind, rnr_delay_ns};

use super::finding::Kind;
use super::flow::{Findings, Flow, Holes, OpenNak};
use super::message::packet_len_problem;
use super::requests::{Request, Sizing};
use crate::packet::Packet;

impl Flow {
    /// Follows a response to this flow's requests.
    pub fn response(&mut self, packet: &Packet<'_>, out: &mut Findings) {
        self.responses += 1;
        let (false, Some(info)) = (self.cut, packet.info()) else {
            return;
        };
        let position = self.requests.position_of(packet.bth.psn);
        if info.kind == Operation::ReadResponse {
            self.requests.learn_from_response(position, info.position, packet.payload_len);
        }
        if position >= self.requests.next_at_most() {
            let next = self.requests.next & 0x00ff_ffff;
            let detail = format!("PSN {} never sent; next is {next}", packet.bth.psn.value());
            return self.find(out, packet.frame, Kind::AckUnsent, detail);
        }
        if position < self.requests.begin {
            if self.start.is_some_and(|start| position < start) {
                let detail = String::from("PSN below the connection's first");
                self.find(out, packet.frame, Kind::AckUnsent, detail);
            }
            return;
        }
        match (info.kind, packet.ext.aeth) {
            (Operation::Acknowledge, Some(aeth)) => {
                self.acknowledge(packet, position, aeth, out);
            }
            (Operation::ReadResponse | Operation::AtomicAcknowledge, aeth) => {
                if let Some(aeth) = aeth
                    && !matches!(aeth.syndrome.kind(), SyndromeKind::Ack { .. })
                {
                    let detail = format!("syndrome {:#04x} in {}", aeth.syndrome.0, info.name);
                    self.find(out, packet.frame, Kind::BadSyndrome, detail);
                }
                self.answer(packet, position, info.kind, info.position, out);
            }
            _ => {}
        }
        if let Some(aeth) = packet.ext.aeth {
            self.check_msn(packet.frame, position, aeth.msn, out);
        }
    }

    fn acknowledge(&mut self, packet: &Packet<'_>, position: u64, aeth: Aeth, out: &mut Findings) {
        let (frame, psn) = (packet.frame, packet.bth.psn.value());
        if packet.payload_len > 0 && packet.arrived().is_none() {
            let detail = format!("{} bytes of payload in an Acknowledge", packet.payload_len);
            self.find(out, frame, Kind::WrongLength, detail);
        }
        match aeth.syndrome.kind() {
            SyndromeKind::Ack { .. } if position < self.acked_to => {
                self.find(out, frame, Kind::DuplicateAck, format!("PSN {psn} again"));
            }
            SyndromeKind::Ack { .. } => {
                self.tell_lost_before(position + 1, frame, out);
                self.acknowledge_to(position + 1, out);
            }
            SyndromeKind::RnrNak { timer } => {
                let delay_us = rnr_delay_ns(timer) / 1000;
                let detail = format!("PSN {psn}, wait {delay_us} us");
                self.find(out, frame, Kind::RnrNak, detail);
                self.rnr_at = Some(position);
                self.resend_cause = Some(format!("after the RNR NAK of frame {frame}"));
                self.acknowledge_to(position, out);
            }
            SyndromeKind::Nak(NakCode::PsnSequence) => self.sequence_nak(packet, position, out),
            SyndromeKind::Nak(code) => {
                let detail = format!("PSN {psn}: {}", nak_text(code));
                self.find(out, frame, Kind::Nak, detail);
                self.refused = true;
                self.acknowledge_to(position, out);
            }
            SyndromeKind::Reserved => {
                let detail = format!("reserved syndrome {:#04x}", aeth.syndrome.0);
                self.find(out, frame, Kind::BadSyndrome, detail);
            }
        }
    }

    fn sequence_nak(&mut self, packet: &Packet<'_>, position: u64, out: &mut Findings) {
        let (frame, psn) = (packet.frame, packet.bth.psn.value());
        let ip_ident = packet.telling_ident();
        let before = self.nak.filter(|nak| nak.position == position);
        if let Some(before) = before
            && before.ip_ident == ip_ident
        {
            let detail = format!("the NAK of frame {}, repeated by the network", before.frame);
            return self.find(out, frame, Kind::DuplicateFrame, detail);
        }
        let end = self
            .requests
            .at(position)
            .map_or(position + 1, |(first, request)| first + u64::from(request.count));
        if end >= self.requests.next {
            let detail = format!("PSN {psn} expected, and nothing after it was sent");
            return self.find(out, frame, Kind::NakWithoutGap, detail);
        }
        let selective = self.note_arrived(packet, position, out);
        if self.rnr_at == Some(position) {
            let detail = format!("PSN {psn} has drawn an RNR NAK; rxe does so");
            self.find(out, frame, Kind::NakAfterRnr, detail);
        } else if let Some(before) = before
            && !before.resent
            && !selective
        {
            let detail = format!("PSN {psn}, already asked for in frame {}", before.frame);
            self.find(out, frame, Kind::RepeatedNak, detail);
        } else {
            self.find(out, frame, Kind::SequenceNak, format!("PSN {psn} expected"));
        }
        if self.rnr_at != Some(position) {
            self.resend_cause = Some(format!("after the NAK of frame {frame}"));
        }
        self.nak = Some(OpenNak { position, frame, ip_ident, resent: false });
        self.acknowledge_to(position, out);
    }

    /// Notes what a sequence NAK of selective repeat tells, which may come again and again while
    /// anything is missing; whether it is one.
    fn note_arrived(&mut self, packet: &Packet<'_>, position: u64, out: &mut Findings) -> bool {
        let (frame, end) = (packet.frame, self.requests.next_at_most());
        self.holes = Holes { ranges: Vec::new(), frame };
        let Some(ranges) = packet.arrived() else { return false };
        let mut missing = position;
        for range in ranges {
            let first = self.requests.position_of(range.first);
            let next = first + u64::from(range.count);
            if first <= missing || range.count == 0 {
                let detail = format!("arrived {range}, where nothing can be missing before it");
                self.find(out, frame, Kind::Malformed, detail);
                break;
            }
            if next > end {
                let detail = format!("arrived {range}, which was never sent");
                self.find(out, frame, Kind::AckUnsent, detail);
                break;
            }
            self.holes.ranges.push((missing, first));
            missing = next;
        }
        true
    }

    /// Follows the response of a READ, an atomic, a FLUSH or an ATOMIC WRITE.
    fn answer(
        &mut self,
        packet: &Packet<'_>,
        position: u64,
        operation: Operation,
        place: Position,
        out: &mut Findings,
    ) {
        let frame = packet.frame;
        let Some((first, request)) = self.requests.at_mut(position) else {
            let detail = format!("the request of PSN {}", packet.bth.psn.value());
            return self.find(out, frame, Kind::Missing, detail);
        };
        let index = (position - first) as u32;
        let asked = request.frame;
        let problem = match (request.operation(), operation) {
            (Some(Operation::ReadRequest), Operation::ReadResponse) => {
                return self.read_response(packet, position, index, place, out);
            }
            (Some(Operation::Flush | Operation::AtomicWrite), Operation::ReadResponse) => {
                let fits = place == Position::Only && packet.payload_len == 0;
                (!fits).then(|| String::from("only an empty READ Response Only answers it"))
            }
            (Some(Operation::CompareSwap | Operation::FetchAdd) | None, _) => {
                if operation == Operation::AtomicAcknowledge || request.info.is_none() {
                    None
                } else {
                    Some(String::from("a READ response to an atomic"))
                }
            }
            (Some(other), _) => Some(format!("a response of its own to a {other:?}")),
        };
        if let Some(problem) = problem {
            let detail = format!("{problem} (request: frame {asked})");
            return self.find(out, frame, Kind::UnexpectedResponse, detail);
        }
        let original = packet.ext.atomic_ack_eth.map(|ack| ack.original);
        let before = request.original;
        let repeated = request.answered > 0;
        request.answered = 1;
        request.original = before.or(original);
        if before.is_some() && original.is_some() && before != original {
            let detail = format!("another value than before for the atomic of frame {asked}");
            self.find(out, frame, Kind::ReplayDiffers, detail);
        } else if repeated {
            let detail = format!("of frame {asked}");
            self.find(out, frame, Kind::DuplicateResponse, detail);
        }
        self.tell_lost_before(first, frame, out);
        self.acknowledge_to(position + 1, out);
    }

    fn read_response(
        &mut self,
        packet: &Packet<'_>,
        position: u64,
        index: u32,
        place: Position,
        out: &mut Findings,
    ) {
        let (frame, pmtu) = (packet.frame, self.requests.pmtu);
        let Some((first, request)) = self.requests.at_mut(position) else {
            return;
        };
        let (asked, due) = (request.frame, request.answered);
        let problem = place_problem(request, index, place);
        let len_problem = read_len_problem(request, index, place, packet.payload_len, pmtu);
        request.answered = due.max(index + 1);
        let detail = |text: &str| format!("{text} (READ: frame {asked})");
        match problem {
            Some(Misplaced::Never(text)) => {
                return self.find(out, frame, Kind::UnexpectedResponse, detail(&text));
            }
            Some(Misplaced::UnlessResumed) => {
                let text = format!("response {index} begins a stream that nothing here asked for");
                self.find(out, frame, Kind::Missing, detail(&text));
            }
            None => {}
        }
        if let Some(text) = len_problem {
            self.find(out, frame, Kind::WrongLength, detail(&text));
        }
        if index > due {
            self.resend_cause = Some(format!("a response before frame {frame} was missing"));
            let text = format!("response {due} due, {index} came");
            self.find(out, frame, Kind::ResponseGap, detail(&text));
        } else if index < due {
            self.find(out, frame, Kind::DuplicateResponse, detail(&format!("response {index}")));
        }
        self.tell_lost_before(first, frame, out);
        self.acknowledge_to(position + 1, out);
    }

    /// Tells of requests below `position` that wanted a response of their own and did not get it,
    /// though the responder is past them.
    fn tell_lost_before(&mut self, position: u64, frame: u64, out: &mut Findings) {
        // A READ that began before what is acknowledged may still lack its last responses.
        let from = self.requests.at(self.acked_to.saturating_sub(1)).map_or(0, |(first, _)| first);
        let from = from.max(self.requests.begin);
        let mut lost = Vec::new();
        for (_, request) in self.requests.between(from, position) {
            let whole = request.sizing != Sizing::Certain || request.answered >= request.count;
            if request.wants_response() && !whole && !request.told_lost {
                request.told_lost = true;
                lost.push(request.frame);
            }
        }
        for asked in lost {
            self.resend_cause = Some(format!("no whole response to frame {asked}"));
            let detail = format!("passes frame {asked}, whose response is not whole");
            self.find(out, frame, Kind::ResponseLost, detail);
        }
    }

    fn check_msn(&mut self, frame: u64, position: u64, msn: u32, out: &mut Findings) {
        if let Some((newest, before)) = self.last_msn {
            if position < newest {
                return;
            }
            if Psn::new(msn).distance(Psn::new(before)) < 0 {
                self.find(out, frame, Kind::Msn, format!("MSN {msn} after {before}"));
            }
        }
        self.last_msn = Some((position, msn));
    }
}

/// Why a READ response is out of place.
enum Misplaced {
    Never(String),
    /// Fine if the READ was asked for again from there.
    UnlessResumed,
}

fn place_problem(request: &Request, index: u32, place: Position) -> Option<Misplaced> {
    if request.sizing != Sizing::Certain {
        return None;
    }
    let is_last = index + 1 == request.count;
    let may_end = is_last || request.resumed_to.contains(&(index + 1));
    let begins_stream = index == 0 || request.resumed_at.contains(&index);
    let fits = match place {
        Position::First => !is_last,
        Position::Middle => index > 0 && !is_last,
        Position::Last => index > 0 && may_end,
        Position::Only => may_end,
    };
    let rest_of_unseen = index == 0
        && !request.adjoins
        && matches!((place, is_last), (Position::Middle, false) | (Position::Last, true));
    if rest_of_unseen {
        return Some(Misplaced::UnlessResumed);
    }
    if !fits {
        let count = request.count;
        return Some(Misplaced::Never(format!("{place:?} as response {index} of {count}")));
    }
    let begins = place.begins();
    (begins && !begins_stream).then_some(Misplaced::UnlessResumed)
}

fn read_len_problem(
    request: &Request,
    index: u32,
    place: Position,
    payload_len: u32,
    pmtu: Option<u32>,
) -> Option<String> {
    let ends = place.ends();
    let certain = request.sizing == Sizing::Certain;
    let (true, true, Some(pmtu)) = (ends, certain, pmtu) else {
        return match place {
            // A READ of no bytes, or of one packet whatever the path MTU is.
            Position::Only if certain && request.count == 1 => {
                let len = request.read_len();
                (payload_len != len).then(|| format!("{payload_len} bytes of {len}"))
            }
            Position::Only => None,
            place => packet_len_problem(place, payload_len, pmtu),
        };
    };
    let left = request.read_len().saturating_sub(index.saturating_mul(pmtu)).min(pmtu);
    (payload_len != left)
        .then(|| format!("{payload_len} bytes in the {place:?}, where {left} were left"))
}

/// A NAK code in words.
pub(crate) fn nak_text(code: NakCode) -> String {
    match code {
        NakCode::PsnSequence => String::from("PSN sequence error"),
        NakCode::InvalidRequest => String::from("invalid request"),
        NakCode::RemoteAccess => String::from("remote access error"),
        NakCode::RemoteOperational => String::from("remote operational error"),
        NakCode::InvalidRd => String::from("invalid RD request"),
        NakCode::Reserved(code) => format!("reserved NAK code {code}"),
    }
}
