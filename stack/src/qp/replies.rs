//! What the responder owes the requester, in the order it will leave: acknowledgements, READ
//! responses, atomic acknowledgements, NAKs.
//!
//! Bounded by construction: an acknowledgement replaces one that waits at the end, and every other
//! reply belongs to a record of the responder, which has at most one waiting; parts of READs asked
//! for again have a bound of their own.

use std::collections::VecDeque;

use super::{Env, Qp};
use crate::congestion::Half;
use crate::mr::RemoteClaim;
use crate::outgoing::Outgoing;
use crate::psn::Psn;
use crate::verbs::{Access, Pd, QpState};
use crate::wire::{
    Aeth, AtomicAckEth, Bth, Extensions, Kind, NakCode, Opcode, Position, Suffix, Syndrome,
    pad_count, seal_summed,
};

/// No end-to-end credits are given: RNR NAK is the flow control.
const NO_CREDITS: u8 = 0x1f;

/// Code of the shortest ACK timeout with which an ACK may be held back: a millisecond.
const PATIENT_TIMEOUT: u8 = 8;

/// Parts of READs that a QP owes again at a time.
const MAX_PARTS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// ACK, RNR NAK or NAK.
    Acknowledge { psn: Psn, msn: u32, syndrome: Syndrome },
    /// What is left of the responses to a READ.
    Read(ReadReply),
    /// ATOMIC Acknowledge.
    Atomic { psn: Psn, msn: u32, original: u64, again: bool },
    /// READ Response Only without data: answers ATOMIC WRITE and FLUSH.
    Placed { psn: Psn, msn: u32, again: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadReply {
    /// PSN of the READ the responder has on record.
    pub record: Psn,
    pub msn: u32,
    /// Domain the request was checked in; XRC may address another SRQ's meanwhile.
    pub pd: Option<Pd>,
    /// Of the next response.
    pub psn: Psn,
    pub va: u64,
    pub rkey: u32,
    /// Bytes left.
    pub len: u32,
    /// The next response is the first of this stream.
    pub first: bool,
    /// It answers a duplicate.
    pub again: bool,
    /// It answers a duplicate that asks for less than the rest.
    pub part: bool,
}

/// One response packet.
pub(super) struct Response<'a> {
    pub kind: Kind,
    pub position: Position,
    pub psn: Psn,
    pub ext: Extensions,
    pub payload: Payload<'a>,
}

/// Where the payload of a response comes from.
pub(super) enum Payload<'a> {
    Bytes(&'a [u8]),
    /// So many bytes of what a READ asks for, if it may.
    Memory(Option<RemoteClaim>, usize),
}

impl Payload<'_> {
    const NONE: Payload<'static> = Payload::Bytes(&[]);

    fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Memory(_, len) => *len,
        }
    }
}

impl Reply {
    /// Whether it repeats an answer given before, for a duplicate.
    fn is_again(&self) -> bool {
        match *self {
            Reply::Acknowledge { .. } => false,
            Reply::Read(ReadReply { again, .. }) => again,
            Reply::Atomic { again, .. } | Reply::Placed { again, .. } => again,
        }
    }

    fn is_part(&self) -> bool {
        matches!(self, Reply::Read(ReadReply { part: true, .. }))
    }

    /// PSN of its next packet.
    fn psn(&self) -> Psn {
        match *self {
            Reply::Acknowledge { psn, .. } => psn,
            Reply::Read(ReadReply { psn, .. }) => psn,
            Reply::Atomic { psn, .. } | Reply::Placed { psn, .. } => psn,
        }
    }

    /// PSN of the record it belongs to.
    fn record(&self) -> Option<Psn> {
        match *self {
            Reply::Acknowledge { .. } => None,
            Reply::Read(ReadReply { record, .. }) => Some(record),
            Reply::Atomic { psn, .. } | Reply::Placed { psn, .. } => Some(psn),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
}

impl Replies {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// What the one ACK acknowledges, if that is all there is.
    fn plain_ack(&self) -> Option<Psn> {
        let plain = Syndrome::ack(NO_CREDITS);
        match self.queue.front() {
            Some(Reply::Acknowledge { psn, syndrome, .. }) if *syndrome == plain => {
                (self.queue.len() == 1).then_some(*psn)
            }
            _ => None,
        }
    }

    /// Owes an ACK or NAK; it says all that one waiting at the end would say.
    pub fn acknowledge(&mut self, psn: Psn, msn: u32, syndrome: Syndrome) {
        let reply = Reply::Acknowledge { psn, msn, syndrome };
        match self.queue.back_mut() {
            Some(last @ Reply::Acknowledge { .. }) => *last = reply,
            _ => self.queue.push_back(reply),
        }
    }

    /// Owes an ACK for a duplicate: not in place of a NAK or of an ACK of more.
    pub fn acknowledge_again(&mut self, psn: Psn, msn: u32) {
        if matches!(self.queue.back(), Some(Reply::Acknowledge { .. })) {
            return;
        }
        self.acknowledge(psn, msn, Syndrome::ack(NO_CREDITS));
    }

    pub fn push(&mut self, reply: Reply) {
        self.queue.push_back(reply);
    }

    /// Owes an answer to a duplicate. It leaves before all answers to later requests: the peer
    /// drops those until it has this one.
    pub fn push_again(&mut self, reply: Reply) {
        let psn = reply.psn();
        let later = |waiting: &Reply| waiting.psn().distance(psn) > 0;
        let place = self.queue.iter().position(later).unwrap_or(self.queue.len());
        self.queue.insert(place, reply);
    }

    /// The waiting reply that belongs to the record of `psn`, and is to bring all that is left.
    pub fn of_record(&mut self, psn: Psn) -> Option<&mut Reply> {
        self.queue.iter_mut().find(|reply| reply.record() == Some(psn) && !reply.is_part())
    }

    /// Owes a part of a READ again, unless it does already or owes too many.
    pub fn push_part(&mut self, part: ReadReply) -> bool {
        let is_same =
            |reply: &Reply| matches!(reply, Reply::Read(read) if read.psn == part.psn && read.part);
        let count = self.queue.iter().filter(|reply| reply.is_part()).count();
        let fits = count < MAX_PARTS && !self.queue.iter().any(is_same);
        if fits {
            self.push_again(Reply::Read(part));
        }
        fits
    }

    /// Whether a reply of a record waits: not so once its last packet has left.
    pub fn waits_for(&self, psn: Psn) -> bool {
        self.queue.iter().any(|reply| reply.record() == Some(psn))
    }

    /// Forgets the repetitions that wait for a record; `false` if the first answer itself waits.
    pub fn forget_again(&mut self, psn: Psn) -> bool {
        let of_record = |reply: &Reply| reply.record() == Some(psn);
        if self.queue.iter().any(|reply| of_record(reply) && !reply.is_again()) {
            return false;
        }
        self.queue.retain(|reply| !of_record(reply));
        true
    }
}

impl Qp {
    /// Whether a reply may leave.
    pub(super) fn may_reply(&self) -> bool {
        !self.replies.is_empty() && !self.waits(Half::Reply)
    }

    /// What the ACK acknowledges that is all it owes.
    pub fn plain_ack(&self) -> Option<Psn> {
        self.replies.plain_ack().filter(|_| !self.owes_cnp())
    }

    /// Whether one ACK is all it has to send, and the peer has patience and does not judge the
    /// network by how soon the ACK comes: in all this it is taken to be as the QP itself.
    pub fn may_hold_ack(&self) -> bool {
        let is_patient = self.attr.timeout == 0 || self.attr.timeout >= PATIENT_TIMEOUT;
        is_patient
            && !self.measures_round_trips()
            && self.plain_ack().is_some()
            && !self.wants_to_request()
    }

    /// Owes an ACK for the request packet `psn`.
    pub(super) fn acknowledge(&mut self, psn: Psn) {
        self.replies.acknowledge(psn, self.responder.msn, Syndrome::ack(NO_CREDITS));
    }

    /// Writes the next reply into `frame`.
    pub(super) fn transmit_reply(&mut self, env: &mut Env, frame: &mut [u8]) -> Option<usize> {
        let reply = *self.replies.queue.front()?;
        if let Some(len) = self.transmit_missing(env, frame, &reply) {
            self.replies.queue.pop_front();
            return Some(len);
        }
        let ack = Syndrome::ack(NO_CREDITS);
        let (kind, psn, ext) = match reply {
            Reply::Read(_) if self.must_wait(env.now, Half::Reply) => return None,
            Reply::Read(read) => return self.transmit_read_response(env, frame, read),
            Reply::Acknowledge { psn, msn, syndrome } => {
                (Kind::Acknowledge, psn, aeth(syndrome, msn))
            }
            Reply::Atomic { psn, msn, original, .. } => {
                let atomic_ack_eth = Some(AtomicAckEth { original });
                (Kind::AtomicAcknowledge, psn, Extensions { atomic_ack_eth, ..aeth(ack, msn) })
            }
            Reply::Placed { psn, msn, .. } => (Kind::ReadResponse, psn, aeth(ack, msn)),
        };
        self.replies.queue.pop_front();
        let position = Position::Only;
        let response = Response { kind, position, psn, ext, payload: Payload::NONE };
        self.emit_reply(env, frame, &response).ok()
    }

    fn transmit_read_response(
        &mut self,
        env: &mut Env,
        frame: &mut [u8],
        read: ReadReply,
    ) -> Option<usize> {
        let mtu = self.attr.path_mtu.bytes();
        let last = read.len as usize <= mtu;
        let payload_len = (read.len as usize).min(mtu);
        let position = match (read.first, last) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let ext = match position {
            Position::Middle => Extensions::default(),
            _ => aeth(Syndrome::ack(NO_CREDITS), read.msn),
        };
        let read_part = read.pd.map(|pd| RemoteClaim {
            pd,
            qpn: self.qpn,
            rkey: read.rkey,
            va: read.va,
            len: payload_len as u64,
            access: Access::REMOTE_READ,
        });
        let kind = Kind::ReadResponse;
        let payload = Payload::Memory(read_part, payload_len);
        let response = Response { kind, position, psn: read.psn, ext, payload };
        match self.emit_reply(env, frame, &response) {
            Ok(frame_len) => {
                self.advance_read(read, payload_len, last);
                Some(frame_len)
            }
            // A late copy must not hurt: what it asks for was answered while it could be.
            // Nor is there more to say once a NAK waits that tells of another fault.
            Err(_) if read.again || self.state == QpState::Err => {
                self.replies.queue.pop_front();
                self.transmit_reply(env, frame)
            }
            Err(code) => {
                self.replies.clear();
                self.fail_as_responder(env, code);
                let ext = aeth(Syndrome::nak(code), self.responder.msn);
                let (kind, position) = (Kind::Acknowledge, Position::Only);
                let nak = Response { kind, position, psn: read.psn, ext, payload: Payload::NONE };
                self.emit_reply(env, frame, &nak).ok()
            }
        }
    }

    fn advance_read(&mut self, read: ReadReply, payload_len: usize, last: bool) {
        if last {
            self.replies.queue.pop_front();
        } else if let Some(Reply::Read(front)) = self.replies.queue.front_mut() {
            front.psn = read.psn.advance(1);
            front.va = read.va.wrapping_add(payload_len as u64);
            front.len = read.len - payload_len as u32;
            front.first = false;
        }
    }

    /// The memory behind a READ went away after the request was accepted.
    fn fail_as_responder(&mut self, env: &mut Env, code: NakCode) {
        env.shared.counters.resp_cqe_error += 1;
        self.raise_responder_event(env.shared, code);
        self.enter_error(env.shared);
    }

    pub(super) fn emit_reply(
        &mut self,
        env: &mut Env,
        frame: &mut [u8],
        response: &Response<'_>,
    ) -> Result<usize, NakCode> {
        let path = self.path.as_ref().ok_or(NakCode::RemoteOperational)?;
        let (kind, position) = (response.kind, response.position);
        let transport = self.transport().ok_or(NakCode::RemoteOperational)?;
        let opcode = Opcode::encode(transport, kind, position, Suffix::None)
            .ok_or(NakCode::RemoteOperational)?;
        let payload_len = response.payload.len();
        let reserved7 = self.recovery.answer_mark();
        let bth = Bth { reserved7, ..self.bth(opcode, response.psn, payload_len) };
        let ident = env.shared.next_ident();
        let layout = path.emit(frame, &bth, &response.ext, payload_len, ident);
        let mut out = Outgoing::begin(frame, &layout, payload_len);
        match response.payload {
            Payload::Bytes(bytes) => out.put(bytes),
            Payload::Memory(_, 0) => {}
            Payload::Memory(claim, _) => {
                let claim = claim.ok_or(NakCode::RemoteAccess)?;
                let span = env.shared.regions.remote(&claim).map_err(|_| NakCode::RemoteAccess)?;
                let all = 0..payload_len;
                out.read(all, env.memory, span).map_err(|_| NakCode::RemoteOperational)?;
            }
        }
        let sum = out.sum();
        env.shared.counters.sent_pkts += 1;
        self.counters.sent_pkts += 1;
        let len = seal_summed(frame, &layout, payload_len, sum);
        let is_read = matches!(response.payload, Payload::Memory(Some(_), _));
        self.note_reply(env.now, &mut frame[..len], is_read);
        Ok(len)
    }

    /// A BTH of this QP's packets, addressed to the connected peer.
    pub(super) fn bth(&self, opcode: Opcode, psn: Psn, payload_len: usize) -> Bth {
        Bth {
            pad_count: pad_count(payload_len),
            pkey: self.pkey,
            ..Bth::new(opcode, self.attr.dest_qp_num.0, psn)
        }
    }
}

pub(super) fn aeth(syndrome: Syndrome, msn: u32) -> Extensions {
    Extensions { aeth: Some(Aeth { syndrome, msn }), ..Extensions::default() }
}
