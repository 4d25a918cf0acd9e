//! Reply to a request for a connection.

use super::{Data, Message};
use crate::wire::CmMessage;
use crate::wire::bytes::{be24, be32, be64, put};

/// REP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rep {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's communication ID.
    pub remote_comm_id: u32,
    /// The sender's Q_Key.
    pub local_qkey: u32,
    /// The sender's QPN, 24 bits; 0 for XRC.
    pub local_qpn: u32,
    /// The sender's EE context, 24 bits; for XRC the QPN of the target.
    pub local_eecn: u32,
    /// Vendor of the connection's enhancements, 24 bits.
    pub ece_vendor_id: u32,
    /// PSN with which the receiver starts to send, 24 bits.
    pub starting_psn: u32,
    /// READs and atomics the sender takes at a time.
    pub responder_resources: u8,
    /// READs and atomics the sender sends at a time.
    pub initiator_depth: u8,
    /// Code: how long the sender takes to acknowledge, 5 bits.
    pub target_ack_delay: u8,
    /// Failover: 0 accepted, 1 unsupported, 2 rejected.
    pub failover: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retries the receiver shall use, 3 bits.
    pub rnr_retry_count: u8,
    /// The sender's QP has a shared receive queue.
    pub srq: bool,
    /// The sender's channel adapter.
    pub local_ca_guid: u64,
}

impl Message for Rep {
    const KIND: CmMessage = CmMessage::Rep;
    const PRIVATE_DATA: usize = 36;

    fn parse(data: &Data) -> Rep {
        Rep {
            local_comm_id: be32(data, 0),
            remote_comm_id: be32(data, 4),
            local_qkey: be32(data, 8),
            local_qpn: be24(data, 12),
            local_eecn: be24(data, 16),
            ece_vendor_id: u32::from_be_bytes([0, data[15], data[19], data[23]]),
            starting_psn: be24(data, 20),
            responder_resources: data[24],
            initiator_depth: data[25],
            target_ack_delay: data[26] >> 3,
            failover: data[26] >> 1 & 3,
            flow_control: data[26] & 1 != 0,
            rnr_retry_count: data[27] >> 5,
            srq: data[27] & 0x10 != 0,
            local_ca_guid: be64(data, 28),
        }
    }

    fn emit(&self, data: &mut Data) {
        let [_, vendor_high, vendor_middle, vendor_low] = self.ece_vendor_id.to_be_bytes();
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, self.remote_comm_id.to_be_bytes());
        put(data, 8, self.local_qkey.to_be_bytes());
        put(data, 12, (self.local_qpn << 8 | u32::from(vendor_high)).to_be_bytes());
        put(data, 16, (self.local_eecn << 8 | u32::from(vendor_middle)).to_be_bytes());
        put(data, 20, (self.starting_psn << 8 | u32::from(vendor_low)).to_be_bytes());
        data[24] = self.responder_resources;
        data[25] = self.initiator_depth;
        data[26] =
            self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        data[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(data, 28, self.local_ca_guid.to_be_bytes());
    }
}
