//! Resolve a service ID to a UD QP, and the answer.

use super::{Data, Message};
use crate::mad::ServiceId;
use crate::wire::CmMessage;
use crate::wire::bytes::{be16, be24, be32, be64, field, put};

/// SIDR_REQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidrReq {
    /// The sender's ID of this exchange.
    pub request_id: u32,
    /// P_Key of the datagrams to come.
    pub pkey: u16,
    /// The service asked for.
    pub service: ServiceId,
}

impl Message for SidrReq {
    const KIND: CmMessage = CmMessage::SidrReq;
    const PRIVATE_DATA: usize = 16;

    fn parse(data: &Data) -> SidrReq {
        SidrReq {
            request_id: be32(data, 0),
            pkey: be16(data, 4),
            service: ServiceId(be64(data, 8)),
        }
    }

    fn emit(&self, data: &mut Data) {
        put(data, 0, self.request_id.to_be_bytes());
        put(data, 4, self.pkey.to_be_bytes());
        put(data, 6, [0; 2]);
        put(data, 8, self.service.0.to_be_bytes());
    }
}

/// SIDR_REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// ID of the exchange, as asked with.
    pub request_id: u32,
    /// The outcome: [`VALID`](Self::VALID), [`UNSUPPORTED`](Self::UNSUPPORTED),
    /// [`REJECTED`](Self::REJECTED), 3 no QP, 4 redirect, 5 unsupported version.
    pub status: u8,
    /// How many bytes of `info` count.
    pub info_len: u8,
    /// Vendor of the QP's enhancements, 24 bits.
    pub ece_vendor_id: u32,
    /// The UD QP, 24 bits.
    pub qpn: u32,
    /// The service asked for.
    pub service: ServiceId,
    /// Q_Key of the QP.
    pub qkey: u32,
    /// Additional information.
    pub info: [u8; SidrRep::INFO_LEN],
}

impl SidrRep {
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;
    /// `status`: the QP is valid.
    pub const VALID: u8 = 0;
    /// `status`: nobody offers the service.
    pub const UNSUPPORTED: u8 = 1;
    /// `status`: the service does not want the sender.
    pub const REJECTED: u8 = 2;
}

impl Message for SidrRep {
    const KIND: CmMessage = CmMessage::SidrRep;
    const PRIVATE_DATA: usize = 96;

    fn parse(data: &Data) -> SidrRep {
        SidrRep {
            request_id: be32(data, 0),
            status: data[4],
            info_len: data[5],
            ece_vendor_id: u32::from_be_bytes([0, data[6], data[7], data[11]]),
            qpn: be24(data, 8),
            service: ServiceId(be64(data, 12)),
            qkey: be32(data, 20),
            info: field(data, 24),
        }
    }

    fn emit(&self, data: &mut Data) {
        let [_, vendor_high, vendor_middle, vendor_low] = self.ece_vendor_id.to_be_bytes();
        put(data, 0, self.request_id.to_be_bytes());
        put(data, 4, [self.status, self.info_len, vendor_high, vendor_middle]);
        put(data, 8, (self.qpn << 8 | u32::from(vendor_low)).to_be_bytes());
        put(data, 12, self.service.0.to_be_bytes());
        put(data, 20, self.qkey.to_be_bytes());
        put(data, 24, self.info);
    }
}
