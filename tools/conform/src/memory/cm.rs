//! Connection management on the device: its QP1, and the program that uses it.

use ferroce_stack::MrInit;
use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::{MAD_LEN, SidrRep};
use ferroce_stack::mad::{
    Accept, Cm, CmConfig, CmError, CmEvent, CmEventKind, CommId, Connect, IpHeader, Path,
    PortSpace, RejReason, Request, ServiceId, SidrAccept, SidrConnect,
};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, Cq, GSI_QKEY, Mtu, Pd, QpAttr, QpCap, QpInit, QpState, QpType, Qpn,
    RecvWr, SendData, SendFlags, SendOp, SendWr, Sge, UdTarget, VerbsError, Wc, WcStatus,
};

use super::MemoryTarget;
use crate::cm::{self, CmCall, Report};
use crate::target::{Description, Object, Observation, Reply};
use crate::words;

/// Bytes in front of a received datagram.
const GRH_LEN: usize = 40;
/// Room for a received datagram.
const BUFFER_LEN: usize = GRH_LEN + MAD_LEN;
/// Datagrams that may have arrived and not been looked at.
const RECEIVES: u64 = 16;
/// Datagrams that may wait to be sent.
const SENDS: u32 = 64;
/// Hops of datagrams and of connections that this side asks for.
const HOPS: u8 = 64;
/// The port from which this side asks.
const SOURCE_PORT: u16 = 50_000;
/// Communication IDs, unlike those of a peer.
const IDS: std::ops::Range<u32> = 0x0100_0000..0x0200_0000;
/// The PSN that a QP expects first, if nothing is said of it.
const FIRST_PSN: u32 = 0x100;
/// GUID of the channel adapter.
const CA_GUID: u64 = 0x0200_00ff_fe00_0001;

/// Connection management and its QP.
#[derive(Debug)]
pub(super) struct Services {
    cm: Cm,
    pd: Pd,
    cq: Cq,
    lkey: u32,
    /// Where datagrams are received, [`BUFFER_LEN`] bytes each.
    buffers: u64,
    connections: Vec<Connection>,
}

/// A connection that the program knows.
#[derive(Debug)]
struct Connection {
    name: Object,
    id: CommId,
    /// It is about the UD QP of a service.
    is_exchange: bool,
}

impl Services {
    /// Whether completions of `cq` are for nobody else.
    pub fn owns(&self, cq: Cq) -> bool {
        self.cq == cq
    }

    fn connection(&self, name: &str) -> Result<&Connection, VerbsError> {
        self.connections.iter().rfind(|own| own.name == name).ok_or(VerbsError::Invalid)
    }

    fn id(&self, name: &str) -> Result<CommId, VerbsError> {
        self.connection(name).map(|connection| connection.id)
    }
}

/// As the verbs of RDMA-CM refuse.
fn refusal(error: CmError) -> VerbsError {
    match error {
        CmError::NoRoom => VerbsError::NoMemory,
        CmError::InUse => VerbsError::Busy,
        CmError::UnknownId | CmError::State | CmError::PrivateData | CmError::Argument => {
            VerbsError::Invalid
        }
    }
}

impl MemoryTarget {
    /// Carries a verb of connection management out.
    pub(super) fn carry_out_cm(&mut self, call: &CmCall) -> Result<Reply, VerbsError> {
        if let CmCall::Start = call {
            return self.start_cm().map(|()| Reply::Done);
        }
        let now = self.now;
        let services = self.services.as_mut().ok_or(VerbsError::NotSupported)?;
        let done = match call {
            CmCall::Start => Ok(()),
            CmCall::Listen { port, datagrams, backlog } => {
                services.cm.listen(service(*port, *datagrams), None, *backlog, 0).map(drop)
            }
            CmCall::Connect(connect) => return services.connect(now, &self.description, connect),
            CmCall::Accept(accept) => return services.accept(now, accept),
            CmCall::Confirm { connection, private_data } => {
                services.cm.confirm(services.id(connection)?, private_data)
            }
            CmCall::Reject { connection, reason, information, private_data } => {
                return services.reject(connection, *reason, information, private_data);
            }
            CmCall::Prolong { connection } => services.cm.delay(services.id(connection)?),
            CmCall::Notify { connection } => services.cm.established(services.id(connection)?),
            CmCall::Disconnect { connection, private_data } => {
                services.cm.disconnect(now, services.id(connection)?, private_data)
            }
            CmCall::Destroy { connection } => {
                services.cm.destroy(now, services.id(connection)?);
                Ok(())
            }
        };
        done.map(|()| Reply::Done).map_err(refusal)
    }

    /// Makes QP1 and brings it to RTS. Once.
    fn start_cm(&mut self) -> Result<(), VerbsError> {
        if self.services.is_some() {
            return Ok(());
        }
        let pd = self.device.alloc_pd()?;
        let cq = self.device.create_cq(RECEIVES as usize + SENDS as usize)?;
        let length = RECEIVES * BUFFER_LEN as u64;
        let buffers = self.device.memory_mut().allocate(length, &[]);
        let buffers = buffers.ok_or(VerbsError::NoMemory)?;
        let access = Access::LOCAL_WRITE;
        let keys =
            self.device.reg_mr(pd, &MrInit { addr: buffers, length, iova: buffers, access })?;
        let init = QpInit {
            qp_type: QpType::Gsi,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrcd: None,
            cap: QpCap {
                max_send_wr: SENDS,
                max_recv_wr: RECEIVES as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: MAD_LEN as u32,
            },
            sq_sig_all: false,
        };
        let qpn = self.device.create_qp(&init)?;
        let steps = [
            (QpState::Init, AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::QKEY),
            (QpState::Rtr, AttrMask::STATE),
            (QpState::Rts, AttrMask::STATE | AttrMask::SQ_PSN),
        ];
        for (qp_state, mask) in steps {
            let attr = QpAttr { qp_state, qkey: GSI_QKEY, ..QpAttr::default() };
            self.device.modify_qp(qpn, &attr, mask)?;
        }
        let config = CmConfig { ids: IDS, ca_guid: CA_GUID, ..CmConfig::default() };
        self.services = Some(Services {
            cm: Cm::new(config),
            pd,
            cq,
            lkey: keys.lkey,
            buffers,
            connections: Vec::new(),
        });
        (0..RECEIVES).for_each(|index| self.post_buffer(index));
        Ok(())
    }

    fn post_buffer(&mut self, index: u64) {
        let Some(services) = &self.services else { return };
        let addr = services.buffers + index * BUFFER_LEN as u64;
        let sges = [Sge { addr, length: BUFFER_LEN as u32, lkey: services.lkey }];
        // As many are posted as the queue takes, each again when it has completed.
        let _ = self.device.post_recv(Qpn::GSI, &RecvWr { wr_id: index, sges: &sges });
    }

    /// When connection management has something to do.
    pub(super) fn services_timeout(&self) -> Option<Instant> {
        self.services.as_ref().and_then(|services| services.cm.poll_timeout())
    }

    /// Counters of connection management, with their names.
    pub(super) fn cm_counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.services.iter().flat_map(|services| services.cm.counters().iter())
    }

    /// Takes datagrams that have arrived, lets time pass, posts what is to be sent and tells what
    /// came of it; whether something was posted.
    pub(super) fn serve(&mut self) -> bool {
        self.receive_datagrams();
        let now = self.now;
        if let Some(services) = &mut self.services {
            services.cm.handle_timeout(now);
        }
        let mut posted = false;
        while let Some((path, mad)) = self.services.as_mut().and_then(|own| own.cm.poll_transmit())
        {
            posted = true;
            // There is always a way to the one peer, and room: each is sent before the next.
            let _ = self.send_datagram(&path, &mad);
        }
        let Some(services) = &mut self.services else { return posted };
        while let Some(event) = services.cm.poll_event() {
            let report = services.report(event);
            self.happened.push_back(Observation::Report(report));
        }
        posted
    }

    /// Sends a datagram to the peer.
    fn send_datagram(&mut self, path: &Path, mad: &[u8]) -> Result<(), VerbsError> {
        let pd = self.services.as_ref().ok_or(VerbsError::Invalid)?.pd;
        let attr = AhAttr {
            dgid: path.dgid,
            sgid_index: 0,
            flow_label: path.flow_label,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            sl: path.sl,
            dmac: self.description.peer.mac,
        };
        let ah = self.device.create_ah(pd, &attr)?;
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Send,
            data: SendData::Inline(mad),
            flags: SendFlags::INLINE,
            ud: Some(UdTarget { ah, qpn: Qpn::GSI, qkey: GSI_QKEY }),
            srqn: None,
        };
        let done = self.device.post_send(Qpn::GSI, &wr);
        self.transmit();
        self.device.destroy_ah(ah)?;
        done
    }

    fn receive_datagrams(&mut self) {
        let Some(cq) = self.services.as_ref().map(|services| services.cq) else { return };
        let mut some = [Wc::default(); RECEIVES as usize];
        while let Ok(count @ 1..) = self.device.poll_cq(cq, &mut some) {
            for wc in some[..count].iter().filter(|wc| wc.opcode as u8 >= 128) {
                if wc.status == WcStatus::Success {
                    self.take_datagram(wc.wr_id, wc.byte_len);
                }
                self.post_buffer(wc.wr_id);
            }
        }
    }

    fn take_datagram(&mut self, index: u64, length: u32) {
        let Some(services) = &mut self.services else { return };
        let at = services.buffers + index * BUFFER_LEN as u64;
        let bytes = self.device.memory().bytes(at, u64::from(length)).unwrap_or_default();
        if let Some((area, mad)) = bytes.split_first_chunk() {
            services.cm.handle_mad(self.now, &path_back(area), mad);
        }
    }
}

/// The way back to the sender of a datagram, from the network header in front of it (IBA
/// A17.4.5.1).
fn path_back(area: &[u8; GRH_LEN]) -> Path {
    let gid = |at: usize| Gid(std::array::from_fn(|index| area[at + index]));
    let ipv4 = |at: usize| {
        let octets: [u8; 4] = std::array::from_fn(|index| area[at + index]);
        Gid::from(std::net::Ipv4Addr::from(octets))
    };
    let first = u32::from_be_bytes([area[0], area[1], area[2], area[3]]);
    let (sgid, dgid, traffic_class, flow_label) = match first >> 28 {
        6 => (gid(24), gid(8), (first >> 20) as u8, first & 0xf_ffff),
        _ => (ipv4(36), ipv4(32), area[21], 0),
    };
    let traffic_class = traffic_class & !0b11;
    Path { sgid, dgid, flow_label, traffic_class, hop_limit: HOPS, sl: 0 }
}

fn service(port: u16, datagrams: bool) -> ServiceId {
    ServiceId::new(if datagrams { PortSpace::Udp } else { PortSpace::Tcp }, port)
}

impl Services {
    fn connect(
        &mut self,
        now: Instant,
        description: &Description,
        connect: &cm::Connect,
    ) -> Result<Reply, VerbsError> {
        let (own, peer) = (description.address.gid, description.peer.gid);
        let path = Path {
            sgid: own,
            dgid: peer,
            flow_label: (u32::from(SOURCE_PORT) * 31 + u32::from(connect.port)) & 0xf_ffff,
            traffic_class: connect.traffic_class,
            hop_limit: HOPS,
            sl: 0,
        };
        let ip =
            IpHeader { source: own.to_ip(), source_port: SOURCE_PORT, destination: peer.to_ip() };
        let service = service(connect.port, connect.datagrams);
        let private_data = &connect.private_data;
        let id = if connect.datagrams {
            self.cm.resolve(
                now,
                &SidrConnect {
                    cookie: 0,
                    service,
                    path,
                    pkey: 0xffff,
                    refused_retries: 0,
                    ip: Some(ip),
                    private_data,
                },
            )
        } else {
            let qp_type = match connect.service.as_str() {
                "xrc" => QpType::XrcSend,
                other => words::service_of(other).ok_or(VerbsError::Invalid)?,
            };
            self.cm.connect(
                now,
                &Connect {
                    cookie: 0,
                    service,
                    path,
                    pkey: 0xffff,
                    qp_type,
                    qpn: Qpn(connect.qpn),
                    psn: connect.psn.unwrap_or(FIRST_PSN),
                    qkey: 0,
                    responder_resources: connect.responder_resources,
                    initiator_depth: connect.initiator_depth,
                    retry_count: connect.retry_count,
                    rnr_retry_count: connect.rnr_retry_count,
                    flow_control: false,
                    srq: false,
                    mtu: Mtu::Mtu1024,
                    ack_timeout: connect.ack_timeout,
                    refused_retries: 0,
                    ip: Some(ip),
                    private_data,
                },
            )
        };
        let (name, is_exchange) = (connect.connection.clone(), connect.datagrams);
        self.connections.push(Connection { name, id: id.map_err(refusal)?, is_exchange });
        Ok(Reply::Done)
    }

    fn accept(&mut self, now: Instant, accept: &cm::Accept) -> Result<Reply, VerbsError> {
        let &Connection { id, is_exchange, .. } = self.connection(&accept.connection)?;
        let (qpn, qkey) = (Qpn(accept.qpn), accept.qkey.unwrap_or(0));
        let private_data = &*accept.private_data;
        let done = if is_exchange {
            let status = SidrRep::VALID;
            self.cm.answer(id, &SidrAccept { status, qpn, qkey, private_data })
        } else {
            self.cm.accept(
                now,
                id,
                &Accept {
                    qpn,
                    psn: accept.psn.unwrap_or(FIRST_PSN),
                    qkey,
                    responder_resources: accept.responder_resources,
                    initiator_depth: accept.initiator_depth,
                    rnr_retry_count: accept.rnr_retry_count,
                    flow_control: false,
                    srq: false,
                    private_data,
                },
            )
        };
        done.map(|()| Reply::Done).map_err(refusal)
    }

    fn reject(
        &mut self,
        name: &str,
        reason: u16,
        information: &[u8],
        private_data: &[u8],
    ) -> Result<Reply, VerbsError> {
        let &Connection { id, is_exchange, .. } = self.connection(name)?;
        let done = if is_exchange {
            let status = u8::try_from(reason).map_err(|_| VerbsError::Invalid)?;
            self.cm.answer(id, &SidrAccept { status, qpn: Qpn(0), qkey: 0, private_data })
        } else {
            self.cm.reject(id, RejReason(reason), information, private_data)
        };
        done.map(|()| Reply::Done).map_err(refusal)
    }

    /// An event in the words of RDMA-CM.
    fn report(&mut self, event: CmEvent) -> Report {
        let id = event.id;
        let is_exchange = matches!(event.kind, CmEventKind::SidrRequest(_));
        let known = self.connections.iter().rfind(|connection| connection.id == id);
        let is_request = is_exchange || matches!(event.kind, CmEventKind::Request(_));
        let connection = match known.filter(|_| !is_request) {
            Some(connection) => connection.name.clone(),
            None => {
                let name = format!("request.{}", self.connections.len() + 1);
                self.connections.push(Connection { name: name.clone(), id, is_exchange });
                name
            }
        };
        let information = match &event.kind {
            CmEventKind::Rejected { ari, .. } => ari.to_vec(),
            _ => Vec::new(),
        };
        let (event, numbers, private_data) = told(&event.kind);
        let numbers = numbers.into_iter().map(|(name, value)| (String::from(name), value));
        Report {
            connection,
            event: String::from(event),
            numbers: numbers.collect(),
            private_data: private_data.to_vec(),
            information,
            untold: Vec::new(),
        }
    }
}

/// The word for an event, the numbers that are said with it, and its private data.
fn told(kind: &CmEventKind) -> (&'static str, Vec<(&'static str, u64)>, &[u8]) {
    match kind {
        CmEventKind::Request(request) => {
            ("connect-request", of_request(request), &request.private_data)
        }
        CmEventKind::Reply(reply) => {
            let numbers = vec![
                ("qpn", reply.remote_qpn.0.into()),
                ("ca-guid", reply.remote_ca_guid),
                ("qkey", reply.qkey.into()),
                ("psn", reply.psn.into()),
                ("responder-resources", reply.responder_resources.into()),
                ("initiator-depth", reply.initiator_depth.into()),
                ("rnr-retry-count", reply.rnr_retry_count.into()),
                ("flow-control", reply.flow_control.into()),
                ("srq", reply.srq.into()),
                ("ack-timeout", reply.ack_timeout.into()),
            ];
            ("connect-response", numbers, &reply.private_data)
        }
        CmEventKind::Established { private_data } => ("established", Vec::new(), private_data),
        CmEventKind::Rejected { reason, private_data, .. } => {
            ("rejected", vec![("status", reason.0.into())], private_data)
        }
        CmEventKind::Unreachable => ("unreachable", Vec::new(), &[]),
        CmEventKind::Disconnected { private_data } => ("disconnected", Vec::new(), private_data),
        CmEventKind::TimewaitExit => ("timewait-exit", Vec::new(), &[]),
        CmEventKind::SidrRequest(request) => {
            let ip = request.ip.map_or(0, |ip| u64::from(ip.source_port));
            let numbers = vec![
                ("port", request.service.port().map_or(0, u64::from)),
                ("peer-port", ip),
                ("partition-key", request.pkey.into()),
            ];
            ("connect-request", numbers, &request.private_data)
        }
        CmEventKind::SidrReply(reply) => {
            let numbers = vec![
                ("status", reply.status.into()),
                ("qpn", reply.qpn.0.into()),
                ("qkey", reply.qkey.into()),
            ];
            let event = match reply.status {
                SidrRep::VALID => "established",
                _ => "unreachable",
            };
            (event, numbers, &reply.private_data)
        }
    }
}

fn of_request(request: &Request) -> Vec<(&'static str, u64)> {
    let service = match request.qp_type {
        QpType::Uc => 1,
        QpType::XrcSend => 3,
        _ => 0,
    };
    vec![
        ("service", service),
        ("port", request.service.port().map_or(0, u64::from)),
        ("peer-port", request.ip.map_or(0, |ip| ip.source_port.into())),
        ("peer-id", request.remote_comm_id.0.into()),
        ("qpn", request.remote_qpn.0.into()),
        ("psn", request.psn.into()),
        ("qkey", request.qkey.into()),
        ("ca-guid", request.remote_ca_guid),
        ("responder-resources", request.responder_resources.into()),
        ("initiator-depth", request.initiator_depth.into()),
        ("retry-count", request.retry_count.into()),
        ("rnr-retry-count", request.rnr_retry_count.into()),
        ("flow-control", request.flow_control.into()),
        ("srq", request.srq.into()),
        ("mtu", request.mtu.bytes() as u64),
        ("ack-timeout", request.ack_timeout.into()),
        ("partition-key", request.pkey.into()),
        ("traffic-class", request.path.traffic_class.into()),
        ("flow-label", request.path.flow_label.into()),
        ("hop-limit", request.path.hop_limit.into()),
        ("sl", request.path.sl.into()),
    ]
}
