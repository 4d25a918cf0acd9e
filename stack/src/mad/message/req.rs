//! Request for a connection.

use super::{Data, Message};
use crate::gid::Gid;
use crate::mad::ServiceId;
use crate::verbs::QpType;
use crate::wire::CmMessage;
use crate::wire::bytes::{be16, be24, be32, be64, field, put, with_top};

/// REQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Req {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// Vendor of the connection's enhancements, 24 bits.
    pub ece_vendor_id: u32,
    /// The service asked for.
    pub service: ServiceId,
    /// The sender's channel adapter.
    pub local_ca_guid: u64,
    /// The sender's Q_Key.
    pub local_qkey: u32,
    /// The sender's QPN, 24 bits.
    pub local_qpn: u32,
    /// READs and atomics the sender takes at a time.
    pub responder_resources: u8,
    /// The sender's EE context, 24 bits.
    pub local_eecn: u32,
    /// READs and atomics the sender wants to send at a time.
    pub initiator_depth: u8,
    /// The receiver's EE context, 24 bits.
    pub remote_eecn: u32,
    /// Code: within this the sender expects an answer.
    pub remote_response_timeout: u8,
    /// Transport service type: 0 RC, 1 UC, 2 RD, 3 extended.
    pub transport: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// PSN with which the receiver starts to send, 24 bits.
    pub starting_psn: u32,
    /// Code: within this the sender answers.
    pub local_response_timeout: u8,
    /// Retries the receiver shall use, 3 bits.
    pub retry_count: u8,
    /// P_Key of the connection.
    pub pkey: u16,
    /// Path MTU, 4 bits: 1 to 5 are 256 to 4096 bytes.
    pub path_mtu: u8,
    /// An RDC exists.
    pub rdc_exists: bool,
    /// RNR retries the receiver shall use, 3 bits.
    pub rnr_retry_count: u8,
    /// How often the sender resends, 4 bits.
    pub max_cm_retries: u8,
    /// The sender's QP has a shared receive queue.
    pub srq: bool,
    /// Extended transport type, 3 bits: 1 XRC.
    pub extended_transport: u8,
    /// The path.
    pub primary: PathRecord,
    /// Another path; all zero if there is none.
    pub alternate: PathRecord,
}

impl Req {
    /// Transport service type and extended type of a QP; none of one that does not connect.
    pub const fn transport_of(qp_type: QpType) -> Option<(u8, u8)> {
        match qp_type {
            QpType::Rc => Some((0, 0)),
            QpType::Uc => Some((1, 0)),
            QpType::XrcSend => Some((3, 1)),
            _ => None,
        }
    }

    /// Type of the sender's QP; none if it is none of RC, UC and XRC.
    pub const fn qp_type(&self) -> Option<QpType> {
        match (self.transport, self.extended_transport) {
            (0, _) => Some(QpType::Rc),
            (1, _) => Some(QpType::Uc),
            (3, 1) => Some(QpType::XrcSend),
            _ => None,
        }
    }
}

impl Message for Req {
    const KIND: CmMessage = CmMessage::Req;
    const PRIVATE_DATA: usize = 140;

    fn parse(data: &Data) -> Req {
        Req {
            local_comm_id: be32(data, 0),
            ece_vendor_id: be24(data, 5),
            service: ServiceId(be64(data, 8)),
            local_ca_guid: be64(data, 16),
            local_qkey: be32(data, 28),
            local_qpn: be24(data, 32),
            responder_resources: data[35],
            local_eecn: be24(data, 36),
            initiator_depth: data[39],
            remote_eecn: be24(data, 40),
            remote_response_timeout: data[43] >> 3,
            transport: data[43] >> 1 & 3,
            flow_control: data[43] & 1 != 0,
            starting_psn: be24(data, 44),
            local_response_timeout: data[47] >> 3,
            retry_count: data[47] & 7,
            pkey: be16(data, 48),
            path_mtu: data[50] >> 4,
            rdc_exists: data[50] & 8 != 0,
            rnr_retry_count: data[50] & 7,
            max_cm_retries: data[51] >> 4,
            srq: data[51] & 8 != 0,
            extended_transport: data[51] & 7,
            primary: PathRecord::parse(field(data, 52)),
            alternate: PathRecord::parse(field(data, 96)),
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, with_top(0, self.ece_vendor_id));
        put(data, 8, self.service.0.to_be_bytes());
        put(data, 16, self.local_ca_guid.to_be_bytes());
        put(data, 24, [0; 4]);
        put(data, 28, self.local_qkey.to_be_bytes());
        put(data, 32, with_low(self.local_qpn, self.responder_resources));
        put(data, 36, with_low(self.local_eecn, self.initiator_depth));
        let kind = self.remote_response_timeout << 3 | (self.transport & 3) << 1;
        put(data, 40, with_low(self.remote_eecn, kind | u8::from(self.flow_control)));
        let retries = self.local_response_timeout << 3 | self.retry_count & 7;
        put(data, 44, with_low(self.starting_psn, retries));
        put(data, 48, self.pkey.to_be_bytes());
        data[50] = self.path_mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry_count & 7;
        data[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_transport & 7;
        put(data, 52, self.primary.emit());
        put(data, 96, self.alternate.emit());
    }
}

/// The low 24 bits of `high`, and eight bits below.
const fn with_low(high: u32, low: u8) -> [u8; 4] {
    (high << 8 | low as u32).to_be_bytes()
}

/// A path in REQ, seen from the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRecord {
    /// The sender's LID.
    pub local_lid: u16,
    /// The receiver's LID.
    pub remote_lid: u16,
    /// The sender's GID.
    pub local_gid: Gid,
    /// The receiver's GID.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Packet rate, 6 bits; 0 is that of the port.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The path does not leave the subnet.
    pub subnet_local: bool,
    /// Code: ACK timeout for the receiver's QP, 5 bits.
    pub ack_timeout: u8,
}

impl PathRecord {
    /// Bytes on the wire.
    pub const LEN: usize = 44;

    /// Reads it.
    pub fn parse(bytes: [u8; PathRecord::LEN]) -> PathRecord {
        PathRecord {
            local_lid: be16(&bytes, 0),
            remote_lid: be16(&bytes, 2),
            local_gid: Gid(field(&bytes, 4)),
            remote_gid: Gid(field(&bytes, 20)),
            flow_label: be24(&bytes, 36) >> 4,
            packet_rate: bytes[39] & 0x3f,
            traffic_class: bytes[40],
            hop_limit: bytes[41],
            sl: bytes[42] >> 4,
            subnet_local: bytes[42] & 8 != 0,
            ack_timeout: bytes[43] >> 3,
        }
    }

    /// Writes it, reserved bits as 0.
    pub fn emit(&self) -> [u8; PathRecord::LEN] {
        let mut bytes = [0; PathRecord::LEN];
        put(&mut bytes, 0, self.local_lid.to_be_bytes());
        put(&mut bytes, 2, self.remote_lid.to_be_bytes());
        put(&mut bytes, 4, self.local_gid.0);
        put(&mut bytes, 20, self.remote_gid.0);
        put(&mut bytes, 36, with_low(self.flow_label << 4, self.packet_rate & 0x3f));
        bytes[40] = self.traffic_class;
        bytes[41] = self.hop_limit;
        bytes[42] = self.sl << 4 | u8::from(self.subnet_local) << 3;
        bytes[43] = self.ack_timeout << 3;
        bytes
    }
}
