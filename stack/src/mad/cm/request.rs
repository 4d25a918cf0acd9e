//! Requests of peers: in which order they are screened, and what becomes of them (IBA 12.9.8.3).

use super::Cm;
use super::codes::{ack_timeout, code_ns};
use super::conn::{Conn, Name, State};
use super::listeners::Asked;
use crate::mad::message::{Data, Message, Rej, Req, SidrRep, SidrReq};
use crate::mad::{CmEventKind, CommId, IpHeader, Path, RejReason, Request, SidrRequest};
use crate::time::Instant;
use crate::verbs::{Mtu, QpType, Qpn};

/// What a peer may say of how soon it answers: 16.8 ms to 17.2 s. Shorter would have it flooded,
/// longer would keep its connection here for too long.
const RESPONSE_TIMEOUTS: (u8, u8) = (12, 22);

impl Cm {
    pub(super) fn handle_req(&mut self, now: Instant, path: &Path, tid: u64, data: &Data) {
        let req = Req::parse(data);
        let refusal = match self.screen(now, path, &req, Req::private_data(data)) {
            Ok(Some(asked)) => return self.offer(path, tid, &req, asked, data),
            Ok(None) => return,
            Err(reason) => reason,
        };
        let mut rej = Rej {
            local_comm_id: 0,
            remote_comm_id: req.local_comm_id,
            rejected: Rej::REQ,
            ari_len: 0,
            reason: refusal,
            ari: [0; Rej::ARI_LEN],
        };
        if refusal == RejReason::INVALID_MTU {
            (rej.ari_len, rej.ari[0]) = (1, Mtu::Mtu4096 as u8);
        }
        self.respond(path, tid, &rej);
    }

    /// Who is asked; none if it is a duplicate, which has been dealt with.
    fn screen(
        &mut self,
        now: Instant,
        path: &Path,
        req: &Req,
        private_data: &[u8],
    ) -> Result<Option<Asked>, RejReason> {
        let (gid, guid) = (path.dgid, req.local_ca_guid);
        if req.local_comm_id == 0 {
            self.counters.malformed += 1;
            return Ok(None);
        }
        if let Some(id) = self.table.find(Name::Comm(gid, guid, req.local_comm_id)) {
            return self.screen_duplicate(id);
        }
        if let Some(id) = self.table.find(Name::Qp(gid, guid, req.local_qpn)) {
            self.tear_down_stale(now, id);
            return Err(RejReason::STALE_CONNECTION);
        }
        let asked = self.listeners.find(req.service, private_data)?;
        if req.qp_type().is_none() {
            return Err(RejReason::INVALID_TRANSPORT_TYPE);
        }
        if mtu(req.path_mtu).is_none() {
            return Err(RejReason::INVALID_MTU);
        }
        if !asked.has_room || !self.table.has_room_for_peers() {
            self.counters.no_room += 1;
            return Err(RejReason::NO_RESOURCES);
        }
        Ok(Some(asked))
    }

    /// A request whose connection is known. Who resends is impatient and asked for time.
    fn screen_duplicate(&mut self, id: u32) -> Result<Option<Asked>, RejReason> {
        self.counters.out_of_state += 1;
        match self.table.get(id).map(|conn| conn.state) {
            Some(State::Timewait) => Err(RejReason::STALE_CONNECTION),
            Some(State::ReqRcvd | State::MraReqSent) => {
                self.send_mra(id);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The peer has a new connection where an old one is still in use here: it has forgotten it.
    pub(super) fn tear_down_stale(&mut self, now: Instant, id: u32) {
        self.counters.stale += 1;
        if self.table.get(id).is_some_and(|conn| conn.state == State::Established) {
            // It fits.
            let _ = self.send_dreq(now, id, &[]);
        }
    }

    /// Makes a connection of a request and offers it to who is asked.
    fn offer(&mut self, path: &Path, tid: u64, req: &Req, asked: Asked, data: &Data) {
        let (Some(mtu), Some(qp_type)) = (mtu(req.path_mtu), req.qp_type()) else { return };
        let Some(id) = self.table.take_id() else { return };
        let path = Path {
            flow_label: req.primary.flow_label,
            traffic_class: req.primary.traffic_class,
            hop_limit: req.primary.hop_limit.max(1),
            // Of its 4 bits Ethernet's priority has room for 3 (IBA A17.4.3.1).
            sl: req.primary.sl & 7,
            ..*path
        };
        let packet_life = req.primary.ack_timeout.saturating_sub(1);
        let ack_timeout = ack_timeout(self.config.ack_delay, packet_life);
        let (soonest, latest) = RESPONSE_TIMEOUTS;
        let conn = Conn {
            listener: Some(asked.listener),
            remote_id: Some(req.local_comm_id),
            remote_qpn: req.local_qpn,
            is_xrc: qp_type == QpType::XrcSend,
            remote_responder_resources: req.responder_resources,
            remote_initiator_depth: req.initiator_depth,
            ack_timeout,
            resend_ns: code_ns(req.local_response_timeout.clamp(soonest, latest)),
            max_retries: req.max_cm_retries,
            ..Conn::new(State::ReqRcvd, asked.cookie, path, tid)
        };
        self.table.insert(id, conn);
        self.table.name(id, Name::Comm(path.dgid, req.local_ca_guid, req.local_comm_id));
        self.table.name(id, Name::Qp(path.dgid, req.local_ca_guid, req.local_qpn));
        self.listeners.asked(asked.listener);
        self.counters.offered += 1;
        let request = Request {
            listener: asked.listener,
            path,
            service: req.service,
            ip: asked.ip,
            pkey: req.pkey,
            qp_type,
            remote_qpn: Qpn(req.local_qpn),
            remote_ca_guid: req.local_ca_guid,
            remote_comm_id: CommId(req.local_comm_id),
            qkey: req.local_qkey,
            psn: req.starting_psn,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            flow_control: req.flow_control,
            srq: req.srq,
            mtu,
            ack_timeout,
            private_data: behind_ip(asked.ip, Req::private_data(data)),
        };
        self.tell(id, CmEventKind::Request(Box::new(request)));
    }

    pub(super) fn handle_sidr_req(&mut self, path: &Path, tid: u64, data: &Data) {
        let req = SidrReq::parse(data);
        let name = Name::Exchange(path.dgid, req.request_id);
        if self.table.find(name).is_some() {
            self.counters.out_of_state += 1;
            return;
        }
        let asked = match self.listeners.find(req.service, SidrReq::private_data(data)) {
            Ok(asked) => asked,
            Err(reason) => {
                let is_unknown = reason == RejReason::INVALID_SERVICE_ID;
                let status = if is_unknown { SidrRep::UNSUPPORTED } else { SidrRep::REJECTED };
                return self.respond(path, tid, &refusal(&req, status));
            }
        };
        // There is no status for it; the peer asks again.
        let has_room = asked.has_room && self.table.has_room_for_peers();
        let Some(id) = has_room.then(|| self.table.take_id()).flatten() else {
            self.counters.no_room += 1;
            return;
        };
        let conn = Conn {
            listener: Some(asked.listener),
            remote_id: Some(req.request_id),
            service: req.service,
            ..Conn::new(State::SidrReqRcvd, asked.cookie, *path, tid)
        };
        self.table.insert(id, conn);
        self.table.name(id, name);
        self.listeners.asked(asked.listener);
        self.counters.offered += 1;
        let request = SidrRequest {
            listener: asked.listener,
            path: *path,
            service: req.service,
            ip: asked.ip,
            pkey: req.pkey,
            private_data: behind_ip(asked.ip, SidrReq::private_data(data)),
        };
        self.tell(id, CmEventKind::SidrRequest(Box::new(request)));
    }
}

fn mtu(code: u8) -> Option<Mtu> {
    Mtu::ALL.into_iter().find(|&mtu| mtu as u8 == code)
}

/// Private data without the header of RDMA-CM.
fn behind_ip(ip: Option<IpHeader>, private_data: &[u8]) -> Box<[u8]> {
    private_data[ip.map_or(0, |_| IpHeader::LEN)..].into()
}

/// The answer to a request for a UD QP that nobody offers.
fn refusal(req: &SidrReq, status: u8) -> SidrRep {
    SidrRep {
        request_id: req.request_id,
        status,
        info_len: 0,
        ece_vendor_id: 0,
        qpn: 0,
        service: req.service,
        qkey: 0,
        info: [0; SidrRep::INFO_LEN],
    }
}
