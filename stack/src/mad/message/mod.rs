//! The messages of connection management (IBA 12.6, 12.7, 12.11): bytes to plain values and back.
//!
//! A message is a management datagram whose [`Data`] holds fixed fields and, behind them up to the
//! end, private data. Unknown codes are kept.

mod dreq;
mod lap;
mod mra;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr;

pub use dreq::Dreq;
pub use lap::{Apr, Lap};
pub use mra::Mra;
pub use rej::Rej;
pub use rep::Rep;
pub use req::{PathRecord, Req};
pub use rtu::{Drep, Rtu};
pub use sidr::{SidrRep, SidrReq};

use crate::wire::{CmMessage, Mad};

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

/// Bytes of a message behind the header.
pub const DATA_LEN: usize = MAD_LEN - Mad::LEN;

/// A message behind the header.
pub type Data = [u8; DATA_LEN];

/// The fixed fields of a kind of message.
pub trait Message: Sized {
    /// Its kind.
    const KIND: CmMessage;
    /// Where its private data begins, which ends with the data.
    const PRIVATE_DATA: usize;

    /// Reads the fixed fields.
    fn parse(data: &Data) -> Self;

    /// Writes the fixed fields, reserved ones as 0.
    fn emit(&self, data: &mut Data);

    /// The private data of such a message, the whole area.
    fn private_data(data: &Data) -> &[u8] {
        &data[Self::PRIVATE_DATA..]
    }

    /// The whole datagram; none if `private_data` does not fit.
    fn datagram(&self, transaction_id: u64, private_data: &[u8]) -> Option<[u8; MAD_LEN]> {
        let mut data = [0; DATA_LEN];
        data[Self::PRIVATE_DATA..].get_mut(..private_data.len())?.copy_from_slice(private_data);
        self.emit(&mut data);
        let mut mad = [0; MAD_LEN];
        Mad::cm(Self::KIND, transaction_id).emit(&mut mad);
        mad[Mad::LEN..].copy_from_slice(&data);
        Some(mad)
    }
}

/// A message of any kind but ClassPortInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the message of its name")]
pub enum AnyMessage {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
    Lap(Lap),
    Apr(Apr),
}

macro_rules! any_message {
    ($($kind:ident)*) => {
        impl AnyMessage {
            /// Reads the fixed fields of a message of this kind; none of ClassPortInfo.
            pub fn parse(kind: CmMessage, data: &Data) -> Option<AnyMessage> {
                match kind {
                    $(CmMessage::$kind => Some(AnyMessage::$kind($kind::parse(data))),)*
                    CmMessage::ClassPortInfo => None,
                }
            }

            /// Writes the fixed fields, reserved ones as 0.
            pub fn emit(&self, data: &mut Data) {
                match self {
                    $(AnyMessage::$kind(message) => message.emit(data),)*
                }
            }

            /// Where the private data begins.
            pub fn private_data_at(&self) -> usize {
                match self {
                    $(AnyMessage::$kind(_) => $kind::PRIVATE_DATA,)*
                }
            }
        }
    };
}

any_message!(Req Mra Rej Rep Rtu Dreq Drep SidrReq SidrRep Lap Apr);
