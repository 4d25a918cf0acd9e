//! Message received, wait.

use super::{Data, Message};
use crate::wire::CmMessage;
use crate::wire::bytes::{be32, put};

/// MRA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mra {
    /// The sender's communication ID.
    pub local_comm_id: u32,
    /// The receiver's communication ID.
    pub remote_comm_id: u32,
    /// Which message was received: [`REQ`](Self::REQ), [`REP`](Self::REP), 2 LAP.
    pub received: u8,
    /// Code: within this the answer comes, 5 bits.
    pub service_timeout: u8,
}

impl Mra {
    /// `received`: REQ.
    pub const REQ: u8 = 0;
    /// `received`: REP.
    pub const REP: u8 = 1;
}

impl Message for Mra {
    const KIND: CmMessage = CmMessage::Mra;
    const PRIVATE_DATA: usize = 10;

    fn parse(data: &Data) -> Mra {
        Mra {
            local_comm_id: be32(data, 0),
            remote_comm_id: be32(data, 4),
            received: data[8] >> 6,
            service_timeout: data[9] >> 3,
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, self.remote_comm_id.to_be_bytes());
        data[8] = self.received << 6;
        data[9] = self.service_timeout << 3;
    }
}
