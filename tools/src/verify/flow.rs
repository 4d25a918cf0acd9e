//! One direction of a connection: the requests of a QP, and what came back for them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use ferroce_stack::psn::Psn;
use ferroce_stack::wire::{Kind as Operation, Position, Reth, Transport};

use super::finding::{Finding, Kind};
use super::message::{Message, Part};
use super::requests::{Request, Requests, Sizing, fixed_payload_len};
use crate::packet::{Address, Packet};

/// PSNs further apart than this are of two lives of the QP. No requester has as many outstanding.
const RESTART_DISTANCE: u64 = 1 << 16;
/// Findings of one flow that wait for the end of the capture; if there
/// are more, they are judged by what is known then.
const DOUBTFUL_MAX: usize = 4096;

/// What sets a flow apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    /// Who sends the requests.
    pub src: Address,
    /// Who answers them.
    pub dst: Address,
    /// QPN of the responder.
    pub dest_qp: u32,
    /// Transport service.
    pub service: Transport,
}

/// A flow: the requests of one QP to another, with their responses.
#[derive(Debug)]
pub(super) struct Flow {
    pub index: usize,
    pub key: FlowKey,
    /// QPN of the requester, once known.
    pub src_qp: Option<u32>,
    pub udp_sport: Option<u16>,
    pub counts: BTreeMap<Kind, u64>,
    pub packets: u64,
    pub payload_bytes: u64,
    pub responses: u64,
    pub messages: u64,
    pub violations: u64,
    /// Frame of the newest request.
    pub last_frame: u64,
    pub(super) requests: Requests,
    /// Position of the first request, if the connection's beginning told it.
    pub(super) start: Option<u64>,
    message: Message,
    /// Up to where requests were taken as messages.
    checked_to: u64,
    /// One past what the responder is known to have taken.
    pub(super) acked_to: u64,
    /// One past the newest request packet.
    newest: u64,
    /// What asks for requests to be sent again, in words.
    pub(super) resend_cause: Option<String>,
    pub(super) nak: Option<OpenNak>,
    pub(super) holes: Holes,
    pub(super) rnr_at: Option<u64>,
    pub(super) refused: bool,
    pub(super) last_msn: Option<(u64, u32)>,
    /// Listed among those whose requester's QPN has to be learnt.
    pub waits_for_peer: bool,
    /// The capture cut headers of it, so that it cannot be followed.
    pub(super) cut: bool,
    complete: bool,
    doubtful: Vec<(u64, Kind, String)>,
    /// A gap was still open at the end.
    unfilled: bool,
}

/// A sequence NAK whose gap is still open.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenNak {
    pub position: u64,
    pub frame: u64,
    pub ip_ident: Option<u16>,
    /// The PSN asked for has come by since.
    pub resent: bool,
}

/// What the newest sequence NAK of selective repeat has asked for, and is not sent again so far.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Positions, each range from its first to one past its last.
    pub ranges: Vec<(u64, u64)>,
    /// Frame of the NAK.
    pub frame: u64,
}

impl Holes {
    /// Takes note of a resend; the frame of the NAK if that has asked for it.
    fn take(&mut self, position: u64) -> Option<u64> {
        let hole = self.ranges.iter_mut().find(|(from, to)| (*from..*to).contains(&position))?;
        hole.0 = position + 1;
        Some(self.frame)
    }
}

/// Where findings go.
pub(super) type Findings = Vec<Finding>;

impl Flow {
    /// A flow of which `psn` is the first PSN seen. `complete` if the capture holds every frame.
    pub fn new(index: usize, key: FlowKey, psn: Psn, complete: bool) -> Flow {
        let requests = Requests::new(psn, None);
        let begin = requests.begin;
        Flow {
            index,
            key,
            src_qp: None,
            udp_sport: None,
            counts: BTreeMap::new(),
            packets: 0,
            payload_bytes: 0,
            responses: 0,
            messages: 0,
            violations: 0,
            last_frame: 0,
            requests,
            start: None,
            message: Message::Unknown,
            checked_to: begin,
            acked_to: begin,
            newest: begin,
            resend_cause: None,
            nak: None,
            holes: Holes::default(),
            rnr_at: None,
            refused: false,
            last_msn: None,
            waits_for_peer: false,
            cut: false,
            complete,
            doubtful: Vec::new(),
            unfilled: false,
        }
    }

    /// Begins anew at `psn`, as a QP does that was set up again; `known` if that is its first PSN
    /// for certain.
    pub fn restart(&mut self, psn: Psn, known: bool, pmtu: Option<u32>) {
        self.requests = Requests::new(psn, pmtu);
        let begin = self.requests.begin;
        self.start = known.then_some(begin);
        self.message = if known { Message::None } else { Message::Unknown };
        (self.checked_to, self.acked_to, self.newest) = (begin, begin, begin);
        (self.resend_cause, self.nak, self.rnr_at) = (None, None, None);
        self.holes = Holes::default();
        (self.refused, self.last_msn) = (false, None);
    }

    /// Notes a finding about `frame`. What a missed frame may explain waits for the end of the
    /// capture, which tells whether frames were missed.
    pub fn find(&mut self, out: &mut Findings, frame: u64, kind: Kind, detail: String) {
        if !kind.is_doubtful() || self.complete {
            self.count(out, frame, kind, detail);
            return;
        }
        self.doubtful.push((frame, kind, detail));
        if self.doubtful.len() >= DOUBTFUL_MAX {
            self.judge_doubtful(self.has_missed(), out);
        }
    }

    /// Judges what waited for the end. `missed` if the capture is known to have missed frames.
    pub fn judge_doubtful(&mut self, missed: bool, out: &mut Findings) {
        for (frame, kind, detail) in std::mem::take(&mut self.doubtful) {
            if missed {
                let detail = format!("frames the capture missed, or {}: {detail}", kind.name());
                self.count(out, frame, Kind::Missing, detail);
            } else {
                self.count(out, frame, kind, detail);
            }
        }
    }

    /// Whether the capture has missed frames of this flow, once it has ended.
    pub fn has_missed(&self) -> bool {
        let signs = [Kind::Missing, Kind::UnmatchedResponse];
        self.unfilled || signs.iter().any(|kind| self.counts.contains_key(kind))
    }

    fn count(&mut self, out: &mut Findings, frame: u64, kind: Kind, detail: String) {
        let violation = kind.is_violation(self.complete);
        *self.counts.entry(kind).or_default() += 1;
        self.violations += u64::from(violation);
        out.push(Finding { frame, flow: Some(self.index), kind, violation, detail });
    }

    /// Follows a request.
    pub fn request(&mut self, packet: &Packet<'_>, out: &mut Findings) {
        self.packets += 1;
        self.payload_bytes += u64::from(packet.payload_len);
        self.udp_sport = packet.udp_sport;
        self.last_frame = packet.frame;
        self.cut |= packet.headers_cut;
        if self.cut {
            return;
        }
        let psn = packet.bth.psn;
        let mut position = self.requests.position_of(psn);
        self.requests.learn_from_next(position);
        if self.begins_anew(packet, position) {
            let (from, to) = (self.requests.next & 0x00ff_ffff, psn.value());
            let pmtu = self.requests.pmtu;
            self.restart(psn, false, pmtu);
            // Whoever has the QP now may have another peer.
            self.src_qp = None;
            position = self.requests.begin;
            self.find(out, packet.frame, Kind::Restart, format!("PSN {from} expected, {to} sent"));
        }
        if let Some(Position::First | Position::Middle) = packet.info().map(|info| info.position) {
            self.requests.learn_pmtu(packet.payload_len);
        }
        if let Some(nak) = &mut self.nak {
            nak.resent |= nak.position == position;
        }
        if position < self.requests.next {
            self.earlier(packet, position, out);
        } else {
            if position > self.requests.next {
                let (first, count) = (self.requests.next, position - self.requests.next);
                self.find(out, packet.frame, Kind::Gap, gap_text(first, count));
            }
            self.requests.insert(position, new_request(packet));
        }
        let end = self
            .requests
            .at(position)
            .map_or(position + 1, |(first, request)| first + u64::from(request.count));
        self.newest = end;
        self.take_messages(out);
    }

    /// Whether the PSN only makes sense if the QP was set up again.
    fn begins_anew(&self, packet: &Packet<'_>, position: u64) -> bool {
        let next = self.requests.next;
        if position.abs_diff(next) >= RESTART_DISTANCE.max(next - self.requests.begin) {
            return true;
        }
        // A QP refused for good sends nothing new before it is reset.
        self.refused
            && position != next
            && !self
                .requests
                .at(position)
                .is_some_and(|(first, known)| first == position && known.digest == digest(packet))
    }

    /// Follows a request whose PSN is not beyond all others.
    fn earlier(&mut self, packet: &Packet<'_>, position: u64, out: &mut Findings) {
        let frame = packet.frame;
        let request = new_request(packet);
        if let Some((first, known)) = self.requests.at(position)
            && first < position
            && !is_rest(known, &request, packet)
        {
            self.requests.shorten_guess(first, (position - first) as u32);
        }
        let goes_back = position < self.newest;
        let Some((first, known)) = self.requests.at(position) else {
            if self.start.is_some_and(|start| position < start) {
                let detail = String::from("PSN below the connection's first");
                return self.find(out, frame, Kind::ResendDiffers, detail);
            }
            if position < self.requests.begin && self.requests.forgotten {
                let detail = String::from("older than what can be compared");
                return self.find(out, frame, Kind::Retransmission, detail);
            }
            self.requests.insert(position, request);
            return self.first_seen(position, goes_back, frame, out);
        };
        let (offset, was) = ((position - first) as u32, known.frame);
        let part = part_of_read(known, &request, packet, offset, self.requests.pmtu);
        let is_read = known.operation() == Some(Operation::ReadRequest);
        let may_be_part = is_read && is_rest(known, &request, packet);
        let problem = match (part, self.requests.pmtu) {
            (Some(_), _) => None,
            (None, None) if may_be_part && packet.loss_recovery().is_some() => None,
            (None, pmtu) => resend_problem(known, &request, offset, pmtu),
        };
        if offset == 0
            && known.ip_ident.is_some()
            && known.ip_ident == request.ip_ident
            && known.digest == request.digest
        {
            let detail = format!("frame {was} again, same IP identification");
            return self.find(out, frame, Kind::DuplicateFrame, detail);
        }
        let cause = self.cause_of_resend(position, goes_back, frame, out);
        match problem {
            Some(problem) => self.find(out, frame, Kind::ResendDiffers, problem),
            None if offset > 0 || part.is_some() => {
                if let Some((_, known)) = self.requests.at_mut(position) {
                    known.resumed_at.insert(offset);
                    known.resumed_to.extend(part);
                }
                let detail = match part {
                    Some(end) => format!("READ of frame {was}, responses {offset} to {}", end - 1),
                    None => format!("READ of frame {was} from response {offset} on"),
                };
                self.find(out, frame, Kind::ReadResume, detail);
            }
            None => {
                let detail = format!("frame {was} again{cause}");
                self.find(out, frame, Kind::Retransmission, detail);
            }
        }
        // Whoever waits for a lost response has it coming.
        if let Some((_, known)) = self.requests.at_mut(position) {
            known.told_lost = false;
        }
    }

    /// Tells of a request that was not seen before though later ones were.
    fn first_seen(&mut self, position: u64, goes_back: bool, frame: u64, out: &mut Findings) {
        let asked = self.holes.take(position).map(|nak| format!("after the NAK of frame {nak}"));
        if goes_back && self.resend_cause.is_none() && asked.is_none() {
            let detail = String::from("first seen after later PSNs");
            return self.find(out, frame, Kind::Late, detail);
        }
        let cause = self.resend_cause.take().or(asked);
        let cause = cause.unwrap_or_else(|| String::from("goes on"));
        self.find(out, frame, Kind::Retransmission, format!("not seen before: {cause}"));
    }

    /// Why requests known before are sent again, for the detail; where a turn back begins that
    /// nothing asked for, that is a finding of its own.
    fn cause_of_resend(
        &mut self,
        position: u64,
        goes_back: bool,
        frame: u64,
        out: &mut Findings,
    ) -> String {
        if let Some(nak) = self.holes.take(position) {
            self.resend_cause = None;
            return format!(": after the NAK of frame {nak}");
        }
        if !goes_back {
            return String::new();
        }
        match self.resend_cause.take() {
            Some(cause) => format!(": {cause}"),
            None if self.key.service == Transport::Uc => String::new(),
            None => {
                let detail = String::from("sent again without a NAK");
                self.find(out, frame, Kind::Timeout, detail);
                String::new()
            }
        }
    }

    /// Notes that the responder has taken everything below `position`.
    pub fn acknowledge_to(&mut self, position: u64, out: &mut Findings) {
        if position > self.acked_to {
            self.acked_to = position;
            self.take_messages(out);
        }
    }

    /// Ends the flow: what is still missing will not come.
    pub fn finish(&mut self, out: &mut Findings) {
        self.requests.end();
        while let Some(first) = self.requests.from(self.checked_to) {
            self.unfilled |= self.key.service != Transport::Uc;
            self.skip_to(first);
            self.take_messages(out);
        }
    }

    /// Takes the requests that are there in PSN order as messages, up to the first gap that may
    /// still be filled.
    fn take_messages(&mut self, out: &mut Findings) {
        loop {
            let position = self.checked_to;
            let crowded = self.requests.forget_before(position);
            match self.requests.at(position) {
                Some((_, request)) if request.sizing == Sizing::Open => return,
                Some((first, request)) if first == position => {
                    let request = request.clone();
                    self.take_message_packet(&request, out);
                    self.checked_to = position + u64::from(request.count);
                    if request.sizing == Sizing::Guessed {
                        // Packets may be missing behind it.
                        self.message = Message::Unknown;
                    }
                }
                Some((first, request)) => {
                    let end = first + u64::from(request.count);
                    self.skip_to(end);
                }
                None => {
                    let Some(first) = self.requests.from(position) else {
                        return;
                    };
                    let taken = self.acked_to > position;
                    if taken {
                        let frame = self.requests.at(first).map_or(0, |(_, next)| next.frame);
                        let count = first.min(self.acked_to) - position;
                        let text = gap_text(position, count);
                        let detail = format!("{text}, but the responder has taken them");
                        self.find(out, frame, Kind::Missing, detail);
                    }
                    // UC never fills a gap.
                    if !taken && !crowded && self.key.service != Transport::Uc {
                        return;
                    }
                    self.skip_to(first);
                }
            }
        }
    }

    fn skip_to(&mut self, position: u64) {
        self.checked_to = position;
        self.message = Message::Unknown;
    }

    fn take_message_packet(&mut self, request: &Request, out: &mut Findings) {
        let Some(info) = request.info else {
            self.messages += 1;
            return;
        };
        let mut problems = Vec::new();
        let part = Part {
            operation: info.kind,
            position: info.position,
            payload_len: request.payload_len,
            reth: request.reth,
        };
        let ends = self.message.take(&part, self.requests.pmtu, |kind, detail| {
            problems.push((kind, detail));
        });
        if let Some(len) = fixed_payload_len(info)
            && len != request.payload_len
        {
            let detail = format!("{} bytes of payload, {len} expected", request.payload_len);
            problems.push((Kind::WrongLength, detail));
        }
        self.messages += u64::from(ends);
        for (kind, detail) in problems {
            self.find(out, request.frame, kind, detail);
        }
    }
}

/// `PSN 5` or `PSN 5 to 7` and that they are not there.
fn gap_text(first: u64, count: u64) -> String {
    let psn = |position: u64| position & 0x00ff_ffff;
    match count {
        1 => format!("PSN {} is not here", psn(first)),
        _ => format!("PSN {} to {} are not here", psn(first), psn(first + count - 1)),
    }
}

/// What is wrong with `again`, sent at `offset` positions into `known`.
fn resend_problem(
    known: &Request,
    again: &Request,
    offset: u32,
    pmtu: Option<u32>,
) -> Option<String> {
    let was = known.frame;
    if known.opcode != again.opcode {
        let (old, new) = (known.opcode, again.opcode);
        return Some(format!("{} where frame {was} had {}", new.name(), old.name()));
    }
    if offset == 0 {
        let differs = matches!((known.digest, again.digest), (Some(a), Some(b)) if a != b);
        return differs.then(|| format!("content differs from that of frame {was}"));
    }
    let (Some(old), Some(new), Some(pmtu)) = (known.reth, again.reth, pmtu) else {
        return None;
    };
    let done = offset.saturating_mul(pmtu);
    let fits = known.operation() == Some(Operation::ReadRequest)
        && new.rkey == old.rkey
        && new.va == old.va.wrapping_add(u64::from(done))
        && new.dma_len == old.dma_len.saturating_sub(done);
    (!fits).then(|| format!("not the rest of the READ of frame {was} from byte {done} on"))
}

/// Whether `again`, which is `packet`, may ask for the rest of the READ `known`: it ends where that
/// ends, or before with selective repeat.
fn is_rest(known: &Request, again: &Request, packet: &Packet<'_>) -> bool {
    let (Some(old), Some(new)) = (known.reth, again.reth) else {
        return false;
    };
    let end = |reth: Reth| reth.va.wrapping_add(u64::from(reth.dma_len)).wrapping_sub(old.va);
    let ends = end(new) == end(old) || packet.loss_recovery().is_some() && end(new) < end(old);
    known.opcode == again.opcode && new.dma_len < old.dma_len && ends
}

/// Where `again`, which is `packet`, stops asking if it is a part of the READ `known` that begins
/// with the response `offset` and ends before its last: one past the last response.
fn part_of_read(
    known: &Request,
    again: &Request,
    packet: &Packet<'_>,
    offset: u32,
    pmtu: Option<u32>,
) -> Option<u32> {
    let (old, new, pmtu) = (known.reth?, again.reth?, pmtu?);
    packet.loss_recovery()?;
    let from = offset.checked_mul(pmtu)?;
    let to = from.checked_add(new.dma_len)?;
    let fits = known.operation() == Some(Operation::ReadRequest)
        && known.opcode == again.opcode
        && new.rkey == old.rkey
        && new.va == old.va.wrapping_add(u64::from(from))
        && (from + 1..old.dma_len).contains(&to)
        && to.is_multiple_of(pmtu);
    fits.then_some(to / pmtu)
}

fn new_request(packet: &Packet<'_>) -> Request {
    Request {
        frame: packet.frame,
        opcode: packet.bth.opcode,
        info: packet.info(),
        payload_len: packet.payload_len,
        reth: packet.ext.reth,
        digest: digest(packet),
        ip_ident: packet.telling_ident(),
        count: 1,
        sizing: Sizing::Certain,
        adjoins: false,
        answered: 0,
        resumed_at: BTreeSet::new(),
        resumed_to: BTreeSet::new(),
        original: None,
        told_lost: false,
    }
}

/// Over what a resend must keep: opcode, extended headers, payload. None if they were cut.
fn digest(packet: &Packet<'_>) -> Option<u64> {
    if packet.headers_cut || packet.payload.len() < packet.payload_len as usize {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    let mut headers = [0; 128];
    let headers_len = packet.ext.emit(&mut headers);
    packet.bth.opcode.hash(&mut hasher);
    headers[..headers_len].hash(&mut hasher);
    packet.payload.hash(&mut hasher);
    Some(hasher.finish())
}
