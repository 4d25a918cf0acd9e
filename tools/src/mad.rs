//! Management datagrams to QP1, and the fields of connection management messages by which one
//! follows a connection (IBA 12.6).

use ferroce_stack::wire::{CmMessage, Mad};
use serde::Serialize;

/// What a management datagram says. Fields its message does not have are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Management class; 7 is connection management.
    pub class: u8,
    /// Method, bit 7 marks a response.
    pub method: u8,
    /// AttributeID.
    pub attribute_id: u16,
    /// The message in words, as in `REQ`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cm: Option<&'static str>,
    /// TransactionID, in hexadecimal: JSON's numbers are too small for it.
    pub transaction_id: String,
    /// Local Communication ID: the sender's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_comm_id: Option<u32>,
    /// Remote Communication ID: the receiver's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_comm_id: Option<u32>,
    /// RequestID of service ID resolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u32>,
    /// ServiceID, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,
    /// QPN: the sender's, but in DREQ and LAP the receiver's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// The PSN with which the receiver of this message starts to send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting_psn: Option<u32>,
    /// Path MTU in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
    /// READs and atomics the sender takes at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responder_resources: Option<u8>,
    /// READs and atomics the sender sends at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator_depth: Option<u8>,
    /// REJ: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<u16>,
    /// SIDR_REP, APR: the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
}

impl Message {
    /// Reads a datagram: its header, and the data behind it as far as captured.
    pub fn new(mad: &Mad, data: &[u8]) -> Message {
        let kind = mad.cm_message();
        let mut message = Message {
            class: mad.class,
            method: mad.method,
            attribute_id: mad.attribute_id,
            cm: kind.map(CmMessage::name),
            transaction_id: format!("{:#018x}", mad.transaction_id),
            ..Message::default()
        };
        match kind {
            Some(CmMessage::SidrReq | CmMessage::SidrRep) => message.request_id = be32(data, 0),
            Some(CmMessage::ClassPortInfo) | None => {}
            Some(_) => message.local_comm_id = be32(data, 0),
        }
        if !matches!(
            kind,
            None | Some(
                CmMessage::Req | CmMessage::SidrReq | CmMessage::SidrRep | CmMessage::ClassPortInfo
            )
        ) {
            message.remote_comm_id = be32(data, 4);
        }
        message.read_fields(kind, data);
        message
    }

    fn read_fields(&mut self, kind: Option<CmMessage>, data: &[u8]) {
        match kind {
            Some(CmMessage::Req) => {
                self.service_id = service_id(data, 8);
                self.qpn = be24(data, 32);
                self.responder_resources = data.get(35).copied();
                self.initiator_depth = data.get(39).copied();
                self.starting_psn = be24(data, 44);
                let code = data.get(50).map(|byte| byte >> 4);
                self.path_mtu = code.filter(|code| (1..=5).contains(code)).map(|code| 128 << code);
            }
            Some(CmMessage::Rep) => {
                self.qpn = be24(data, 12);
                self.starting_psn = be24(data, 20);
                self.responder_resources = data.get(24).copied();
                self.initiator_depth = data.get(25).copied();
            }
            Some(CmMessage::Rej) => self.reason = be16(data, 10),
            Some(CmMessage::Dreq) => self.qpn = be24(data, 8),
            Some(CmMessage::Lap) => self.qpn = be24(data, 12),
            Some(CmMessage::Apr) => self.status = data.get(9).copied(),
            Some(CmMessage::SidrReq) => self.service_id = service_id(data, 8),
            Some(CmMessage::SidrRep) => {
                self.status = data.get(4).copied();
                self.qpn = be24(data, 8);
                self.service_id = service_id(data, 12);
            }
            _ => {}
        }
    }
}

fn field<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..)?.first_chunk().copied()
}

fn be16(data: &[u8], at: usize) -> Option<u16> {
    field(data, at).map(u16::from_be_bytes)
}

fn be24(data: &[u8], at: usize) -> Option<u32> {
    field(data, at).map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    field(data, at).map(u32::from_be_bytes)
}

fn service_id(data: &[u8], at: usize) -> Option<String> {
    field(data, at).map(|bytes| format!("{:#018x}", u64::from_be_bytes(bytes)))
}
