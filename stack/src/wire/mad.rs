//! The header of a management datagram (IBA 13.4.2), and the kinds of communication management
//! messages (IBA 12.6).

use super::bytes::{be16, be32, be64, head, head_mut, put};

/// The header common to all management datagrams, which are 256 bytes on QP1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// 1.
    pub base_version: u8,
    /// Management class; [`COMMUNICATION`](Self::COMMUNICATION) is connection management.
    pub class: u8,
    /// 2 for connection management.
    pub class_version: u8,
    /// Method; bit 7 marks a response. Connection management has but Send, 3.
    pub method: u8,
    /// Status.
    pub status: u16,
    /// Class-specific.
    pub class_specific: u16,
    /// Transaction.
    pub transaction_id: u64,
    /// What the datagram is about.
    pub attribute_id: u16,
    /// Bytes 18 and 19.
    pub reserved: u16,
    /// Further qualifies the attribute.
    pub attribute_modifier: u32,
}

impl Mad {
    /// Bytes on the wire.
    pub const LEN: usize = 24;
    /// The class of connection management.
    pub const COMMUNICATION: u8 = 0x07;
    /// The version of that class.
    pub const CM_VERSION: u8 = 2;
    /// The method of every message of that class.
    pub const SEND: u8 = 0x03;

    /// Reads the first [`LEN`](Self::LEN) bytes.
    pub fn parse(bytes: &[u8]) -> Mad {
        let bytes = head::<{ Mad::LEN }>(bytes);
        Mad {
            base_version: bytes[0],
            class: bytes[1],
            class_version: bytes[2],
            method: bytes[3],
            status: be16(bytes, 4),
            class_specific: be16(bytes, 6),
            transaction_id: be64(bytes, 8),
            attribute_id: be16(bytes, 16),
            reserved: be16(bytes, 18),
            attribute_modifier: be32(bytes, 20),
        }
    }

    /// Writes the first [`LEN`](Self::LEN) bytes.
    pub fn emit(&self, out: &mut [u8]) {
        let out = head_mut::<{ Mad::LEN }>(out);
        out[0] = self.base_version;
        out[1] = self.class;
        out[2] = self.class_version;
        out[3] = self.method;
        put(out, 4, self.status.to_be_bytes());
        put(out, 6, self.class_specific.to_be_bytes());
        put(out, 8, self.transaction_id.to_be_bytes());
        put(out, 16, self.attribute_id.to_be_bytes());
        put(out, 18, self.reserved.to_be_bytes());
        put(out, 20, self.attribute_modifier.to_be_bytes());
    }

    /// The header of a connection management message (IBA 13.4.2, 12.11).
    pub fn cm(kind: CmMessage, transaction_id: u64) -> Mad {
        Mad {
            base_version: 1,
            class: Mad::COMMUNICATION,
            class_version: Mad::CM_VERSION,
            method: Mad::SEND,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute_id: kind.attribute_id(),
            reserved: 0,
            attribute_modifier: 0,
        }
    }

    /// The kind of connection management message; none of another class or attribute.
    pub fn cm_message(&self) -> Option<CmMessage> {
        let is_cm = self.class == Mad::COMMUNICATION;
        CmMessage::ALL
            .iter()
            .copied()
            .find(|kind| is_cm && kind.attribute_id() == self.attribute_id)
    }
}

macro_rules! cm_messages {
    ($($(#[$doc:meta])* $kind:ident = $id:literal $name:literal,)*) => {
        /// A kind of connection management message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CmMessage {
            $($(#[$doc])* $kind,)*
        }

        impl CmMessage {
            /// Every kind.
            pub const ALL: &'static [CmMessage] = &[$(CmMessage::$kind,)*];

            /// Its AttributeID.
            pub const fn attribute_id(self) -> u16 {
                match self {
                    $(CmMessage::$kind => $id,)*
                }
            }

            /// As in `REQ`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(CmMessage::$kind => $name,)*
                }
            }
        }
    };
}

cm_messages! {
    /// Capabilities of the class.
    ClassPortInfo = 0x0001 "ClassPortInfo",
    /// Request a connection.
    Req = 0x0010 "REQ",
    /// Message received, wait.
    Mra = 0x0011 "MRA",
    /// Reject.
    Rej = 0x0012 "REJ",
    /// Reply.
    Rep = 0x0013 "REP",
    /// Ready to use.
    Rtu = 0x0014 "RTU",
    /// Request a disconnect.
    Dreq = 0x0015 "DREQ",
    /// Reply to a disconnect.
    Drep = 0x0016 "DREP",
    /// Resolve a service ID to a UD QP.
    SidrReq = 0x0017 "SIDR_REQ",
    /// Reply to that.
    SidrRep = 0x0018 "SIDR_REP",
    /// Load an alternate path.
    Lap = 0x0019 "LAP",
    /// Reply to that.
    Apr = 0x001a "APR",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_keeps_every_byte() {
        let wire: [u8; Mad::LEN] = std::array::from_fn(|at| at as u8 + 1);
        let mut out = [0; Mad::LEN];
        Mad::parse(&wire).emit(&mut out);
        assert_eq!(out, wire);
    }

    #[test]
    fn kind_depends_on_class_and_attribute() {
        let mut wire = [0; Mad::LEN];
        wire[..4].copy_from_slice(&[1, Mad::COMMUNICATION, 2, 3]);
        wire[17] = 0x17;
        assert_eq!(Mad::parse(&wire).cm_message().map(CmMessage::name), Some("SIDR_REQ"));
        wire[17] = 0x1b;
        assert_eq!(Mad::parse(&wire).cm_message(), None);
        wire[1..18].copy_from_slice(&[3; 17]);
        assert_eq!(Mad::parse(&wire).cm_message(), None);
    }
}
