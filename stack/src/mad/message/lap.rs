//! Load an alternate path, and the answer.

use super::{Data, Message};
use crate::gid::Gid;
use crate::wire::CmMessage;
use crate::wire::bytes::{be16, be24, be32, field, put};

/// LAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lap {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's communication ID.
    pub remote_comm_id: u32,
    /// The receiver's QPN or EE context, 24 bits.
    pub remote_qpn: u32,
    /// Code: within this the sender expects an answer.
    pub remote_response_timeout: u8,
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
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Packet rate, 6 bits.
    pub packet_rate: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// The path does not leave the subnet.
    pub subnet_local: bool,
    /// Code: ACK timeout for the receiver's QP, 5 bits.
    pub ack_timeout: u8,
}

impl Message for Lap {
    const KIND: CmMessage = CmMessage::Lap;
    const PRIVATE_DATA: usize = 64;

    fn parse(data: &Data) -> Lap {
        Lap {
            local_comm_id: be32(data, 0),
            remote_comm_id: be32(data, 4),
            remote_qpn: be24(data, 12),
            remote_response_timeout: data[15] >> 3,
            local_lid: be16(data, 20),
            remote_lid: be16(data, 22),
            local_gid: Gid(field(data, 24)),
            remote_gid: Gid(field(data, 40)),
            flow_label: be24(data, 56) >> 4,
            traffic_class: data[59],
            hop_limit: data[60],
            packet_rate: data[61] & 0x3f,
            sl: data[62] >> 4,
            subnet_local: data[62] & 8 != 0,
            ack_timeout: data[63] >> 3,
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, self.remote_comm_id.to_be_bytes());
        put(data, 8, [0; 4]);
        let timeout = u32::from(self.remote_response_timeout << 3);
        put(data, 12, (self.remote_qpn << 8 | timeout).to_be_bytes());
        put(data, 16, [0; 4]);
        put(data, 20, self.local_lid.to_be_bytes());
        put(data, 22, self.remote_lid.to_be_bytes());
        put(data, 24, self.local_gid.0);
        put(data, 40, self.remote_gid.0);
        put(data, 56, (self.flow_label << 12 | u32::from(self.traffic_class)).to_be_bytes());
        data[60] = self.hop_limit;
        data[61] = self.packet_rate & 0x3f;
        data[62] = self.sl << 4 | u8::from(self.subnet_local) << 3;
        data[63] = self.ack_timeout << 3;
    }
}

/// APR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apr {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's communication ID.
    pub remote_comm_id: u32,
    /// How many bytes of `info` count.
    pub info_len: u8,
    /// The outcome: 0 loaded, [`UNSUPPORTED`](Self::UNSUPPORTED), or why not.
    pub status: u8,
    /// Additional information.
    pub info: [u8; Apr::INFO_LEN],
}

impl Apr {
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;
    /// `status`: this side loads no paths.
    pub const UNSUPPORTED: u8 = 2;
}

impl Message for Apr {
    const KIND: CmMessage = CmMessage::Apr;
    const PRIVATE_DATA: usize = 84;

    fn parse(data: &Data) -> Apr {
        Apr {
            local_comm_id: be32(data, 0),
            remote_comm_id: be32(data, 4),
            info_len: data[8],
            status: data[9],
            info: field(data, 12),
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, self.remote_comm_id.to_be_bytes());
        put(data, 8, [self.info_len, self.status, 0, 0]);
        put(data, 12, self.info);
    }
}
