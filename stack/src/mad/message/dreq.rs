//! Request to end a connection.

use super::{Data, Message};
use crate::wire::CmMessage;
use crate::wire::bytes::{be24, be32, put};

/// DREQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dreq {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's communication ID.
    pub remote_comm_id: u32,
    /// The receiver's QPN or EE context, 24 bits.
    pub remote_qpn: u32,
}

impl Message for Dreq {
    const KIND: CmMessage = CmMessage::Dreq;
    const PRIVATE_DATA: usize = 12;

    fn parse(data: &Data) -> Dreq {
        Dreq {
            local_comm_id: be32(data, 0),
            remote_comm_id: be32(data, 4),
            remote_qpn: be24(data, 8),
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, self.remote_comm_id.to_be_bytes());
        put(data, 8, (self.remote_qpn << 8).to_be_bytes());
    }
}
