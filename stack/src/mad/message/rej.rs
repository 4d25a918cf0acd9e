//! Reject.

use super::{Data, Message};
use crate::mad::RejReason;
use crate::wire::CmMessage;
use crate::wire::bytes::{be16, be32, field, put};

/// REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The sender's communication ID; 0 if it never had one.
    pub local_comm_id: u32,
    /// The receiver's communication ID; 0 if the sender does not know it.
    pub remote_comm_id: u32,
    /// What is rejected: [`REQ`](Self::REQ), [`REP`](Self::REP) or [`OTHER`](Self::OTHER).
    pub rejected: u8,
    /// How many bytes of `ari` count, 7 bits.
    pub ari_len: u8,
    /// Why.
    pub reason: RejReason,
    /// Additional reject information.
    pub ari: [u8; Rej::ARI_LEN],
}

impl Rej {
    /// Bytes of additional reject information.
    pub const ARI_LEN: usize = 72;
    /// `rejected`: REQ.
    pub const REQ: u8 = 0;
    /// `rejected`: REP.
    pub const REP: u8 = 1;
    /// `rejected`: no message, or another.
    pub const OTHER: u8 = 2;

    /// The additional information as far as it counts.
    pub fn ari(&self) -> &[u8] {
        &self.ari[..usize::from(self.ari_len).min(Rej::ARI_LEN)]
    }
}

impl Message for Rej {
    const KIND: CmMessage = CmMessage::Rej;
    const PRIVATE_DATA: usize = 84;

    fn parse(data: &Data) -> Rej {
        Rej {
            local_comm_id: be32(data, 0),
            remote_comm_id: be32(data, 4),
            rejected: data[8] >> 6,
            ari_len: data[9] >> 1,
            reason: RejReason(be16(data, 10)),
            ari: field(data, 12),
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.local_comm_id.to_be_bytes());
        put(data, 4, self.remote_comm_id.to_be_bytes());
        data[8] = self.rejected << 6;
        data[9] = self.ari_len << 1;
        put(data, 10, self.reason.0.to_be_bytes());
        put(data, 12, self.ari);
    }
}
