//! What the messages of peers do.

use super::Cm;
use super::codes::{ack_timeout, code_ns};
use super::conn::{Name, State};
use crate::mad::message::{
    Apr, Data, Drep, Dreq, Lap, MAD_LEN, Message, Mra, Rej, Rep, Rtu, SidrRep,
};
use crate::mad::{CmEventKind, Path, RejReason, Reply, SidrReply};
use crate::time::Instant;
use crate::verbs::Qpn;
use crate::wire::{CmMessage, Mad};

/// Longest time a peer may ask for by MRA, as a code: 68.7 s.
const MAX_SERVICE_TIMEOUT: u8 = 24;

impl Cm {
    /// Takes a datagram from QP1. `path` is seen from this side: `sgid` is the GID it was sent to,
    /// `dgid` that of its sender, so that an answer goes along it as it is.
    pub fn handle_mad(&mut self, now: Instant, path: &Path, mad: &[u8]) {
        self.counters.received += 1;
        let Some((kind, header, data)) = self.check(path, mad) else { return };
        self.counters.count_received(kind);
        let tid = header.transaction_id;
        match kind {
            CmMessage::Req => self.handle_req(now, path, tid, data),
            CmMessage::Mra => self.handle_mra(now, path, &Mra::parse(data)),
            CmMessage::Rej => self.handle_rej(now, path, data),
            CmMessage::Rep => self.handle_rep(now, path, tid, data),
            CmMessage::Rtu => self.handle_rtu(path, data),
            CmMessage::Dreq => self.handle_dreq(now, path, tid, data),
            CmMessage::Drep => self.handle_drep(now, path, data),
            CmMessage::SidrReq => self.handle_sidr_req(path, tid, data),
            CmMessage::SidrRep => self.handle_sidr_rep(now, path, data),
            CmMessage::Lap => self.handle_lap(path, tid, &Lap::parse(data)),
            CmMessage::Apr | CmMessage::ClassPortInfo => self.counters.out_of_state += 1,
        }
    }

    /// The message, if the datagram is one.
    fn check<'a>(&mut self, path: &Path, mad: &'a [u8]) -> Option<(CmMessage, Mad, &'a Data)> {
        let bytes: Option<&[u8; MAD_LEN]> = mad.first_chunk();
        let message = bytes.filter(|_| !path.dgid.is_multicast()).and_then(|bytes| {
            let (header, data) = bytes.split_first_chunk::<{ Mad::LEN }>()?;
            Some((Mad::parse(header), data.first_chunk()?))
        });
        let Some((header, data)) = message else {
            self.counters.malformed += 1;
            return None;
        };
        if header.class != Mad::COMMUNICATION {
            self.counters.other_class += 1;
            return None;
        }
        let is_known = (header.base_version, header.class_version, header.method)
            == (1, Mad::CM_VERSION, Mad::SEND);
        let kind = header.cm_message().filter(|_| is_known);
        if kind.is_none() {
            self.counters.malformed += 1;
        }
        kind.map(|kind| (kind, header, data))
    }

    /// The connection of this side's ID, if the message is from its peer.
    fn of_peer(&mut self, path: &Path, local: u32, remote: u32) -> Option<(u32, State)> {
        let conn = self.table.get(local).filter(|conn| conn.is_peer(path.dgid, remote));
        // An exchange has a request ID, which is another space of numbers.
        let conn = conn.filter(|conn| !matches!(conn.state, State::SidrReqRcvd));
        if conn.is_none() {
            self.counters.for_nobody += 1;
        }
        conn.map(|conn| (local, conn.state))
    }

    fn handle_rep(&mut self, now: Instant, path: &Path, tid: u64, data: &Data) {
        let rep = Rep::parse(data);
        let conn = self.table.get(rep.remote_comm_id).filter(|conn| conn.path.dgid == path.dgid);
        match conn.map(|conn| (conn.state, conn.remote_id)) {
            Some((State::ReqSent | State::MraReqRcvd, _)) => {
                self.take_rep(now, path, tid, &rep, data);
            }
            Some((state, Some(id))) if id == rep.local_comm_id => self.repeat(&rep, state),
            Some(_) => self.counters.for_nobody += 1,
            None => {
                self.counters.for_nobody += 1;
                self.refuse_rep(path, tid, &rep, RejReason::INVALID_COMM_ID);
            }
        }
    }

    /// The first reply to a request, screened (IBA 12.9.8.4).
    fn take_rep(&mut self, now: Instant, path: &Path, tid: u64, rep: &Rep, data: &Data) {
        let id = rep.remote_comm_id;
        let Some(conn) = self.table.get(id) else { return };
        let remote_qpn = if conn.is_xrc { rep.local_eecn } else { rep.local_qpn };
        let peer = Name::Comm(path.dgid, rep.local_ca_guid, rep.local_comm_id);
        let peer_qp = Name::Qp(path.dgid, rep.local_ca_guid, remote_qpn);
        if rep.local_comm_id == 0 || self.table.find(peer).is_some() {
            self.counters.for_nobody += 1;
            return;
        }
        if let Some(old) = self.table.find(peer_qp) {
            self.refuse_rep(path, tid, rep, RejReason::STALE_CONNECTION);
            return self.tear_down_stale(now, old);
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.state = State::RepRcvd;
        conn.sent = None;
        conn.remote_id = Some(rep.local_comm_id);
        conn.remote_qpn = remote_qpn;
        let packet_life = conn.ack_timeout.saturating_sub(1);
        conn.ack_timeout = ack_timeout(rep.target_ack_delay, packet_life);
        let reply = Reply {
            remote_qpn: Qpn(remote_qpn),
            remote_ca_guid: rep.local_ca_guid,
            qkey: rep.local_qkey,
            psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            rnr_retry_count: rep.rnr_retry_count,
            flow_control: rep.flow_control,
            srq: rep.srq,
            ack_timeout: conn.ack_timeout,
            private_data: Rep::private_data(data).into(),
        };
        self.table.disarm(id);
        self.table.name(id, peer);
        self.table.name(id, peer_qp);
        self.tell(id, CmEventKind::Reply(Box::new(reply)));
    }

    /// A reply that was already taken: the peer has not heard of it.
    fn repeat(&mut self, rep: &Rep, state: State) {
        self.counters.out_of_state += 1;
        let id = rep.remote_comm_id;
        if matches!(state, State::RepRcvd | State::MraRepSent) {
            self.send_mra(id);
            return;
        }
        // Only who has confirmed keeps a message while established.
        let conn = self.table.get(id).filter(|_| state == State::Established);
        if let Some((path, rtu)) = conn.and_then(|conn| Some((conn.path, conn.sent.clone()?))) {
            self.resend::<Rtu>(&path, &rtu);
        }
    }

    fn refuse_rep(&mut self, path: &Path, tid: u64, rep: &Rep, reason: RejReason) {
        let rej = Rej {
            local_comm_id: rep.remote_comm_id,
            remote_comm_id: rep.local_comm_id,
            rejected: Rej::REP,
            ari_len: 0,
            reason,
            ari: [0; Rej::ARI_LEN],
        };
        self.respond(path, tid, &rej);
    }

    fn handle_rtu(&mut self, path: &Path, data: &Data) {
        let rtu = Rtu::parse(data);
        match self.of_peer(path, rtu.remote_comm_id, rtu.local_comm_id) {
            Some((id, State::RepSent | State::MraRepRcvd)) => {
                self.establish(id, Rtu::private_data(data).into());
            }
            Some(_) => self.counters.out_of_state += 1,
            None => {}
        }
    }

    fn handle_mra(&mut self, now: Instant, path: &Path, mra: &Mra) {
        let wait_ns = code_ns(mra.service_timeout.min(MAX_SERVICE_TIMEOUT))
            + code_ns(self.config.packet_life);
        let conn = self.table.get_mut(mra.remote_comm_id);
        let Some(conn) = conn.filter(|conn| conn.path.dgid == path.dgid) else {
            self.counters.for_nobody += 1;
            return;
        };
        conn.state = match (conn.state, mra.received) {
            (State::ReqSent, Mra::REQ) => State::MraReqRcvd,
            (State::RepSent, Mra::REP) if conn.remote_id == Some(mra.local_comm_id) => {
                State::MraRepRcvd
            }
            _ => {
                self.counters.out_of_state += 1;
                return;
            }
        };
        self.table.arm(mra.remote_comm_id, now + wait_ns);
    }

    fn handle_rej(&mut self, now: Instant, path: &Path, data: &Data) {
        let rej = Rej::parse(data);
        let Some((id, state)) = self.rejected(path, &rej) else {
            self.counters.for_nobody += 1;
            return;
        };
        let why = CmEventKind::Rejected {
            reason: rej.reason,
            ari: rej.ari().into(),
            private_data: Rej::private_data(data).into(),
        };
        match state {
            State::ReqSent | State::MraReqRcvd
                if rej.reason == RejReason::INVALID_SERVICE_ID && self.ask_again(now, id) => {}
            _ => self.be_rejected(now, id, state, why),
        }
    }

    /// The peer does not want the connection, or not any more.
    pub(super) fn be_rejected(&mut self, now: Instant, id: u32, state: State, why: CmEventKind) {
        match state {
            State::ReqSent
            | State::MraReqRcvd
            | State::RepRcvd
            | State::MraRepSent
            | State::RepSent
            | State::MraRepRcvd => {
                self.counters.rejected += 1;
                self.tell(id, why);
                self.forget(id);
            }
            State::ReqRcvd | State::MraReqSent => {
                self.counters.rejected += 1;
                self.withdraw(id, why);
            }
            State::Established | State::DreqSent => self.enter_timewait(now, id, Box::default()),
            State::Withdrawn | State::Timewait | State::SidrReqSent | State::SidrReqRcvd => {
                self.counters.out_of_state += 1;
            }
        }
    }

    /// Which connection a REJ is about. Who cancels a request does not know the ID here, and says
    /// its own and its channel adapter.
    fn rejected(&self, path: &Path, rej: &Rej) -> Option<(u32, State)> {
        let id = match (rej.remote_comm_id, rej.reason, rej.ari().first_chunk()) {
            (0, RejReason::TIMEOUT, Some(&guid)) => {
                let guid = u64::from_be_bytes(guid);
                self.table.find(Name::Comm(path.dgid, guid, rej.local_comm_id))?
            }
            (id, ..) => id,
        };
        let conn = self.table.get(id).filter(|conn| conn.path.dgid == path.dgid)?;
        // Before a reply the peer's ID is unknown, and it may have none.
        let is_peer = conn.remote_id.is_none_or(|remote| remote == rej.local_comm_id);
        is_peer.then_some((id, conn.state))
    }

    fn handle_dreq(&mut self, now: Instant, path: &Path, tid: u64, data: &Data) {
        let dreq = Dreq::parse(data);
        let known = self.of_peer(path, dreq.remote_comm_id, dreq.local_comm_id);
        let local_qpn = known.and_then(|(id, _)| self.table.get(id)).map(|conn| conn.local_qpn);
        let is_open = |state| {
            !matches!(
                state,
                State::ReqRcvd | State::MraReqSent | State::Withdrawn | State::Timewait
            )
        };
        if let Some((id, _)) = known.filter(|&(_, state)| is_open(state)) {
            if local_qpn != Some(dreq.remote_qpn) {
                self.counters.for_nobody += 1;
                return;
            }
            self.enter_timewait(now, id, Dreq::private_data(data).into());
        }
        // Also who has forgotten the connection says that it is over.
        let drep = Drep { local_comm_id: dreq.remote_comm_id, remote_comm_id: dreq.local_comm_id };
        self.respond(path, tid, &drep);
    }

    fn handle_drep(&mut self, now: Instant, path: &Path, data: &Data) {
        let drep = Drep::parse(data);
        match self.of_peer(path, drep.remote_comm_id, drep.local_comm_id) {
            Some((id, State::DreqSent)) => {
                self.enter_timewait(now, id, Drep::private_data(data).into());
            }
            Some(_) => self.counters.out_of_state += 1,
            None => {}
        }
    }

    fn handle_sidr_rep(&mut self, now: Instant, path: &Path, data: &Data) {
        let rep = SidrRep::parse(data);
        let conn = self.table.get(rep.request_id);
        let is_asked =
            conn.is_some_and(|c| c.state == State::SidrReqSent && c.path.dgid == path.dgid);
        if !is_asked {
            self.counters.for_nobody += 1;
            return;
        }
        if rep.status == SidrRep::UNSUPPORTED && self.ask_again(now, rep.request_id) {
            return;
        }
        let reply = SidrReply {
            status: rep.status,
            qpn: Qpn(rep.qpn),
            qkey: rep.qkey,
            private_data: SidrRep::private_data(data).into(),
        };
        self.tell(rep.request_id, CmEventKind::SidrReply(Box::new(reply)));
        self.forget(rep.request_id);
    }

    /// Paths are not changed under a connection.
    fn handle_lap(&mut self, path: &Path, tid: u64, lap: &Lap) {
        match self.of_peer(path, lap.remote_comm_id, lap.local_comm_id) {
            Some((id, State::Established)) => {
                let apr = Apr {
                    local_comm_id: id,
                    remote_comm_id: lap.local_comm_id,
                    info_len: 0,
                    status: Apr::UNSUPPORTED,
                    info: [0; Apr::INFO_LEN],
                };
                self.respond(path, tid, &apr);
            }
            Some(_) => self.counters.out_of_state += 1,
            None => {}
        }
    }
}
