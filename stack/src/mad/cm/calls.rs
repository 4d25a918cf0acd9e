//! What the owner of connections asks for.

use super::Cm;
use super::codes::{ack_timeout, code_ns};
use super::conn::{Conn, State};
use crate::mad::message::{
    DATA_LEN, Dreq, Message, Mra, PathRecord, Rej, Rep, Req, Rtu, SidrRep, SidrReq,
};
use crate::mad::{
    Accept, CmError, CmEventKind, CommId, Connect, IpHeader, Path, RejReason, SidrAccept,
    SidrConnect, SidrReply,
};
use crate::time::Instant;
use crate::verbs::{QpType, Qpn};

/// Service timeout code asked for by MRA: 68.7 s.
const SERVICE_TIMEOUT: u8 = 24;

impl Cm {
    /// Asks for a connection (REQ). [`Reply`](CmEventKind::Reply),
    /// [`Rejected`](CmEventKind::Rejected) or [`Unreachable`](CmEventKind::Unreachable) follows.
    ///
    /// # Errors
    ///
    /// [`CmError::Argument`], [`CmError::PrivateData`], [`CmError::NoRoom`]
    pub fn connect(&mut self, now: Instant, connect: &Connect<'_>) -> Result<CommId, CmError> {
        let (transport, extended_transport) =
            Req::transport_of(connect.qp_type).ok_or(CmError::Argument)?;
        let private_data = with_ip::<Req>(connect.ip, connect.private_data)?;
        let id = self.table.take_id().ok_or(CmError::NoRoom)?;
        let timeout = connect.ack_timeout.unwrap_or_else(|| self.own_ack_timeout()).min(31);
        let is_xrc = connect.qp_type == QpType::XrcSend;
        let unless_xrc = |value| if is_xrc { 0 } else { value };
        let req = Req {
            local_comm_id: id,
            service: connect.service,
            local_ca_guid: self.config.ca_guid,
            local_qkey: connect.qkey,
            local_qpn: connect.qpn.0,
            responder_resources: unless_xrc(connect.responder_resources),
            initiator_depth: connect.initiator_depth,
            remote_response_timeout: self.config.response_timeout.min(31),
            transport,
            flow_control: connect.flow_control,
            starting_psn: connect.psn,
            local_response_timeout: self.config.response_timeout.min(31),
            retry_count: unless_xrc(connect.retry_count),
            pkey: connect.pkey,
            path_mtu: connect.mtu as u8,
            rnr_retry_count: unless_xrc(connect.rnr_retry_count),
            max_cm_retries: self.max_retries(),
            srq: connect.srq && !is_xrc,
            extended_transport,
            primary: path_record(&connect.path, timeout),
            ..Req::default()
        };
        let transaction_id = self.transaction_id(id);
        let mad = Cm::datagram(&req, transaction_id, &private_data)?;
        let conn = Conn {
            local_qpn: req.local_qpn & 0xff_ffff,
            is_xrc,
            ack_timeout: timeout,
            max_refusals: connect.refused_retries.min(15),
            sent: Some(mad.clone()),
            ..self.outgoing(State::ReqSent, connect.cookie, connect.path, transaction_id)
        };
        self.start(now, id, conn);
        self.counters.requested += 1;
        self.send::<Req>(connect.path, mad);
        Ok(CommId(id))
    }

    /// Who listens has a request in hand, and answers it when it likes: it counts no more among
    /// those that the listener holds. An ID that is not there is no error.
    pub fn take(&mut self, id: CommId) {
        let Some(conn) = self.table.get_mut(id.0) else { return };
        if let Some(listener) = conn.listener.take() {
            self.listeners.answered(listener);
        }
    }

    /// Accepts a request (REP). [`Established`](CmEventKind::Established),
    /// [`Rejected`](CmEventKind::Rejected), [`Unreachable`](CmEventKind::Unreachable) or
    /// [`Disconnected`](CmEventKind::Disconnected) follows.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`], [`CmError::PrivateData`]
    pub fn accept(&mut self, now: Instant, id: CommId, accept: &Accept<'_>) -> Result<(), CmError> {
        let (ca_guid, ack_delay) = (self.config.ca_guid, self.config.ack_delay.min(31));
        let conn = self.owned(id)?;
        if !matches!(conn.state, State::ReqRcvd | State::MraReqSent) {
            return Err(CmError::State);
        }
        let qpn = accept.qpn.0 & 0xff_ffff;
        let rep = Rep {
            local_comm_id: id.0,
            remote_comm_id: conn.remote_id.unwrap_or(0),
            local_qkey: accept.qkey,
            local_qpn: if conn.is_xrc { 0 } else { qpn },
            local_eecn: if conn.is_xrc { qpn } else { 0 },
            ece_vendor_id: 0,
            starting_psn: accept.psn,
            responder_resources: accept.responder_resources.min(conn.remote_initiator_depth),
            initiator_depth: accept.initiator_depth.min(conn.remote_responder_resources),
            target_ack_delay: ack_delay,
            failover: 0,
            flow_control: accept.flow_control,
            rnr_retry_count: accept.rnr_retry_count & 7,
            srq: accept.srq || conn.is_xrc,
            local_ca_guid: ca_guid,
        };
        let mad = Cm::datagram(&rep, conn.transaction_id, accept.private_data)?;
        conn.local_qpn = qpn;
        conn.state = State::RepSent;
        conn.retries_left = conn.max_retries;
        conn.sent = Some(mad.clone());
        let (path, resend_at) = (conn.path, now + conn.resend_ns);
        self.take(id);
        self.table.arm(id.0, resend_at);
        self.send::<Rep>(path, mad);
        Ok(())
    }

    /// Confirms a reply (RTU): the connection is established.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`], [`CmError::PrivateData`]
    pub fn confirm(&mut self, id: CommId, private_data: &[u8]) -> Result<(), CmError> {
        let conn = self.owned(id)?;
        if !matches!(conn.state, State::RepRcvd | State::MraRepSent) {
            return Err(CmError::State);
        }
        let rtu = Rtu { local_comm_id: id.0, remote_comm_id: conn.remote_id.unwrap_or(0) };
        let mad = Cm::datagram(&rtu, conn.transaction_id, private_data)?;
        conn.state = State::Established;
        conn.sent = Some(mad.clone());
        let path = conn.path;
        self.counters.established += 1;
        self.send::<Rtu>(path, mad);
        Ok(())
    }

    /// Rejects a request or a reply (REJ), or a connection not yet established; its ID is
    /// forgotten. `ari` are at most 72 bytes, `private_data` at most 148.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`], [`CmError::PrivateData`]
    pub fn reject(
        &mut self,
        id: CommId,
        reason: RejReason,
        ari: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        match self.owned(id)?.state {
            State::Withdrawn => {}
            State::ReqSent
            | State::MraReqRcvd
            | State::ReqRcvd
            | State::MraReqSent
            | State::RepRcvd
            | State::MraRepSent
            | State::RepSent
            | State::MraRepRcvd => self.send_rej(id.0, reason, ari, private_data)?,
            _ => return Err(CmError::State),
        }
        self.forget(id.0);
        Ok(())
    }

    /// Asks the peer for time to answer its request or reply (MRA). A peer that grows impatient
    /// and resends is asked by itself.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`]
    pub fn delay(&mut self, id: CommId) -> Result<(), CmError> {
        self.owned(id)?;
        if self.send_mra(id.0) { Ok(()) } else { Err(CmError::State) }
    }

    /// Data came on the QP before RTU: the peer has confirmed. Gives
    /// [`Established`](CmEventKind::Established), once.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`]
    pub fn established(&mut self, id: CommId) -> Result<(), CmError> {
        match self.owned(id)?.state {
            State::RepSent | State::MraRepRcvd => {
                self.establish(id.0, Box::default());
                Ok(())
            }
            State::Established => Ok(()),
            _ => Err(CmError::State),
        }
    }

    /// Ends a connection (DREQ). [`Disconnected`](CmEventKind::Disconnected) follows. Of one that
    /// is ending or over nothing more is done. `private_data` are at most 220 bytes.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`], [`CmError::PrivateData`]
    pub fn disconnect(
        &mut self,
        now: Instant,
        id: CommId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        match self.owned(id)?.state {
            State::DreqSent | State::Timewait => Ok(()),
            State::Established
            | State::RepSent
            | State::MraRepRcvd
            | State::RepRcvd
            | State::MraRepSent => self.send_dreq(now, id.0, private_data),
            _ => Err(CmError::State),
        }
    }

    /// Forgets a connection or exchange in any state: ends, cancels or rejects it, and tells
    /// nothing more of it. An ID that is not there is no error.
    pub fn destroy(&mut self, now: Instant, id: CommId) {
        let Ok(conn) = self.owned(id) else { return };
        conn.is_silent = true;
        let ari = self.config.ca_guid.to_be_bytes();
        // A message without private data always fits.
        let _ = match self.table.get(id.0).map(|conn| conn.state) {
            Some(State::Timewait | State::DreqSent) => Ok(()),
            Some(State::Established) => self.send_dreq(now, id.0, &[]),
            Some(State::ReqSent | State::MraReqRcvd) => {
                self.send_rej(id.0, RejReason::TIMEOUT, &ari, &[])
            }
            Some(State::SidrReqRcvd) => self.send_sidr_rep(id.0, &REFUSED),
            Some(State::Withdrawn | State::SidrReqSent) | None => Ok(()),
            Some(_) => self.send_rej(id.0, RejReason::CONSUMER, &[], &[]),
        };
        let ends_in_time = |conn: &Conn| matches!(conn.state, State::Timewait | State::DreqSent);
        if !self.table.get(id.0).is_some_and(ends_in_time) {
            self.forget(id.0);
        }
        self.events.retain(|event| event.id != id);
    }

    /// Has further events of a connection or exchange have this cookie.
    pub fn set_cookie(&mut self, id: CommId, cookie: u64) {
        if let Ok(conn) = self.owned(id) {
            conn.cookie = cookie;
        }
    }

    /// Asks for the UD QP of a service (SIDR_REQ). [`SidrReply`](CmEventKind::SidrReply) or
    /// [`Unreachable`](CmEventKind::Unreachable) follows.
    ///
    /// # Errors
    ///
    /// [`CmError::PrivateData`], [`CmError::NoRoom`]
    pub fn resolve(&mut self, now: Instant, sidr: &SidrConnect<'_>) -> Result<CommId, CmError> {
        let private_data = with_ip::<SidrReq>(sidr.ip, sidr.private_data)?;
        let id = self.table.take_id().ok_or(CmError::NoRoom)?;
        let req = SidrReq { request_id: id, pkey: sidr.pkey, service: sidr.service };
        let transaction_id = self.transaction_id(id);
        let mad = Cm::datagram(&req, transaction_id, &private_data)?;
        let conn = Conn {
            max_refusals: sidr.refused_retries.min(15),
            sent: Some(mad.clone()),
            ..self.outgoing(State::SidrReqSent, sidr.cookie, sidr.path, transaction_id)
        };
        self.start(now, id, conn);
        self.send::<SidrReq>(sidr.path, mad);
        Ok(CommId(id))
    }

    /// Answers a request for a UD QP (SIDR_REP); its ID is forgotten.
    ///
    /// # Errors
    ///
    /// [`CmError::UnknownId`], [`CmError::State`], [`CmError::PrivateData`]
    pub fn answer(&mut self, id: CommId, answer: &SidrAccept<'_>) -> Result<(), CmError> {
        match self.owned(id)?.state {
            State::Withdrawn => {}
            State::SidrReqRcvd => self.send_sidr_rep(id.0, answer)?,
            _ => return Err(CmError::State),
        }
        self.forget(id.0);
        Ok(())
    }

    /// The peer's process is gone, as somebody knows who need not ask it. This is as if the peer
    /// had said what Linux says for a process that is killed: an established connection is ended,
    /// a request or reply rejected. Nothing is sent.
    pub fn peer_died(&mut self, now: Instant, id: CommId) {
        let Some(state) = self.table.get(id.0).map(|conn| conn.state) else { return };
        let reason = match state {
            State::SidrReqSent => {
                let private_data = Box::new([0; DATA_LEN - SidrRep::PRIVATE_DATA]);
                let reply =
                    SidrReply { status: SidrRep::REJECTED, qpn: Qpn(0), qkey: 0, private_data };
                self.tell(id.0, CmEventKind::SidrReply(Box::new(reply)));
                return self.forget(id.0);
            }
            // Whose request it is would say nothing.
            State::SidrReqRcvd => return self.withdraw(id.0, CmEventKind::Unreachable),
            State::Withdrawn | State::Timewait => return,
            State::ReqRcvd | State::MraReqSent => RejReason::TIMEOUT,
            _ => RejReason::CONSUMER,
        };
        let private_data = Box::new([0; DATA_LEN - Rej::PRIVATE_DATA]);
        let why = CmEventKind::Rejected { reason, ari: Box::default(), private_data };
        self.be_rejected(now, id.0, state, why);
    }

    fn max_retries(&self) -> u8 {
        self.config.max_retries.min(15)
    }

    fn own_ack_timeout(&self) -> u8 {
        ack_timeout(self.config.ack_delay, self.config.packet_life)
    }

    fn transaction_id(&self, id: u32) -> u64 {
        self.config.seed << 32 | u64::from(id)
    }

    /// A connection or exchange this side starts.
    fn outgoing(&self, state: State, cookie: u64, path: Path, transaction_id: u64) -> Conn {
        let resend_ns =
            2 * code_ns(self.config.packet_life) + code_ns(self.config.response_timeout);
        Conn {
            resend_ns,
            max_retries: self.max_retries(),
            retries_left: self.max_retries(),
            ..Conn::new(state, cookie, path, transaction_id)
        }
    }

    fn start(&mut self, now: Instant, id: u32, conn: Conn) {
        let resend_at = now + conn.resend_ns;
        self.table.insert(id, conn);
        self.table.arm(id, resend_at);
    }

    /// Sends REJ along a connection; what it rejects follows from the state.
    pub(super) fn send_rej(
        &mut self,
        id: u32,
        reason: RejReason,
        ari: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let conn = self.table.get(id).ok_or(CmError::UnknownId)?;
        let (local_comm_id, rejected) = match conn.state {
            // The peer has never learnt the ID.
            State::ReqRcvd => (0, Rej::REQ),
            State::MraReqSent => (id, Rej::REQ),
            State::RepRcvd | State::MraRepSent => (id, Rej::REP),
            _ => (id, Rej::OTHER),
        };
        let mut rej = Rej {
            local_comm_id,
            remote_comm_id: conn.remote_id.unwrap_or(0),
            rejected,
            ari_len: ari.len() as u8,
            reason,
            ari: [0; Rej::ARI_LEN],
        };
        rej.ari.get_mut(..ari.len()).ok_or(CmError::PrivateData)?.copy_from_slice(ari);
        let mad = Cm::datagram(&rej, conn.transaction_id, private_data)?;
        let path = conn.path;
        self.send::<Rej>(path, mad);
        Ok(())
    }

    /// Asks the peer of a request or reply for time; whether there is one.
    pub(super) fn send_mra(&mut self, id: u32) -> bool {
        let Some(conn) = self.table.get_mut(id) else { return false };
        let (state, received) = match conn.state {
            State::ReqRcvd | State::MraReqSent => (State::MraReqSent, Mra::REQ),
            State::RepRcvd | State::MraRepSent => (State::MraRepSent, Mra::REP),
            _ => return false,
        };
        conn.state = state;
        let mra = Mra {
            local_comm_id: id,
            remote_comm_id: conn.remote_id.unwrap_or(0),
            received,
            service_timeout: SERVICE_TIMEOUT,
        };
        let (path, transaction_id) = (conn.path, conn.transaction_id);
        self.respond(&path, transaction_id, &mra);
        true
    }

    /// Sends DREQ, and again until it is answered.
    pub(super) fn send_dreq(
        &mut self,
        now: Instant,
        id: u32,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let transaction_id = self.transaction_id(id);
        let conn = self.table.get_mut(id).ok_or(CmError::UnknownId)?;
        let dreq = Dreq {
            local_comm_id: id,
            remote_comm_id: conn.remote_id.unwrap_or(0),
            remote_qpn: conn.remote_qpn,
        };
        let mad = Cm::datagram(&dreq, transaction_id, private_data)?;
        conn.state = State::DreqSent;
        conn.retries_left = conn.max_retries;
        conn.sent = Some(mad.clone());
        let (path, resend_at) = (conn.path, now + conn.resend_ns);
        self.table.arm(id, resend_at);
        self.send::<Dreq>(path, mad);
        Ok(())
    }

    fn send_sidr_rep(&mut self, id: u32, answer: &SidrAccept<'_>) -> Result<(), CmError> {
        let conn = self.table.get(id).ok_or(CmError::UnknownId)?;
        let rep = SidrRep {
            request_id: conn.remote_id.unwrap_or(0),
            status: answer.status,
            info_len: 0,
            ece_vendor_id: 0,
            qpn: answer.qpn.0,
            service: conn.service,
            qkey: answer.qkey,
            info: [0; SidrRep::INFO_LEN],
        };
        let mad = Cm::datagram(&rep, conn.transaction_id, answer.private_data)?;
        let path = conn.path;
        self.send::<SidrRep>(path, mad);
        Ok(())
    }
}

/// The answer to a request for a UD QP whose owner does not care.
const REFUSED: SidrAccept<'static> =
    SidrAccept { status: SidrRep::REJECTED, qpn: Qpn(0), qkey: 0, private_data: &[] };

/// Private data of message `M` behind the header of RDMA-CM.
fn with_ip<M: Message>(ip: Option<IpHeader>, private_data: &[u8]) -> Result<Vec<u8>, CmError> {
    let mut bytes = vec![0; ip.map_or(0, |_| IpHeader::LEN)];
    if let Some(ip) = ip {
        ip.emit(&mut bytes);
    }
    bytes.extend_from_slice(private_data);
    let fits = bytes.len() + M::PRIVATE_DATA <= DATA_LEN;
    if fits { Ok(bytes) } else { Err(CmError::PrivateData) }
}

/// A path of RoCE in REQ, which has no LIDs.
fn path_record(path: &Path, ack_timeout: u8) -> PathRecord {
    let subnet_local = path.hop_limit <= 1;
    let lid = if subnet_local { 0 } else { 0xffff };
    PathRecord {
        local_lid: lid,
        remote_lid: lid,
        local_gid: path.sgid,
        remote_gid: path.dgid,
        flow_label: path.flow_label,
        packet_rate: 0,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        sl: path.sl,
        subnet_local,
        ack_timeout,
    }
}
