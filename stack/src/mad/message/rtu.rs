//! The two messages that say nothing but which connection they end a handshake of.

use super::{Data, Message};
use crate::wire::CmMessage;
use crate::wire::bytes::{be32, put};

macro_rules! ids_only {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            /// The sender's communication ID.
            pub local_comm_id: u32,
            /// The receiver's communication ID.
            pub remote_comm_id: u32,
        }

        impl Message for $name {
            const KIND: CmMessage = CmMessage::$name;
            const PRIVATE_DATA: usize = 8;

            fn parse(data: &Data) -> $name {
                $name { local_comm_id: be32(data, 0), remote_comm_id: be32(data, 4) }
            }

            fn emit(&self, data: &mut Data) {
                put(data, 0, self.local_comm_id.to_be_bytes());
                put(data, 4, self.remote_comm_id.to_be_bytes());
            }
        }
    };
}

ids_only! {
    /// RTU: the connection may be used.
    Rtu
}

ids_only! {
    /// DREP: the connection is over for this side too.
    Drep
}
