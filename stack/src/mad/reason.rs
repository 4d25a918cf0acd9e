//! Why a connection is rejected (IBA 12.6.7.2).

/// A reason of REJ; codes without a name are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejReason(pub u16);

macro_rules! reasons {
    ($($name:ident = $code:literal $text:literal,)*) => {
        impl RejReason {
            $(#[doc = concat!("The peer says: ", $text, ".")]
            pub const $name: RejReason = RejReason($code);)*

            /// In words, as in `stale connection`; none of a code without a name.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    NO_QP = 1 "no QP",
    NO_EEC = 2 "no EE context",
    NO_RESOURCES = 3 "no resources",
    TIMEOUT = 4 "timeout",
    UNSUPPORTED = 5 "unsupported request",
    INVALID_COMM_ID = 6 "invalid communication ID",
    INVALID_COMM_INSTANCE = 7 "invalid communication instance",
    INVALID_SERVICE_ID = 8 "invalid service ID",
    INVALID_TRANSPORT_TYPE = 9 "invalid transport type",
    STALE_CONNECTION = 10 "stale connection",
    RDC_NOT_EXIST = 11 "RDC does not exist",
    INVALID_GID = 12 "invalid GID",
    INVALID_LID = 13 "invalid LID",
    INVALID_SL = 14 "invalid SL",
    INVALID_TRAFFIC_CLASS = 15 "invalid traffic class",
    INVALID_HOP_LIMIT = 16 "invalid hop limit",
    INVALID_PACKET_RATE = 17 "invalid packet rate",
    INVALID_ALT_GID = 18 "invalid alternate GID",
    INVALID_ALT_LID = 19 "invalid alternate LID",
    INVALID_ALT_SL = 20 "invalid alternate SL",
    INVALID_ALT_TRAFFIC_CLASS = 21 "invalid alternate traffic class",
    INVALID_ALT_HOP_LIMIT = 22 "invalid alternate hop limit",
    INVALID_ALT_PACKET_RATE = 23 "invalid alternate packet rate",
    PORT_AND_CM_REDIRECT = 24 "port and CM redirection",
    PORT_REDIRECT = 25 "port redirection",
    INVALID_MTU = 26 "invalid path MTU",
    INSUFFICIENT_RESPONDER_RESOURCES = 27 "insufficient responder resources",
    CONSUMER = 28 "consumer reject",
    RNR_RETRY_COUNT = 29 "RNR retry count reject",
    DUPLICATE_LOCAL_COMM_ID = 30 "duplicate local communication ID",
    INVALID_CLASS_VERSION = 31 "unsupported class version",
    INVALID_FLOW_LABEL = 32 "invalid flow label",
    INVALID_ALT_FLOW_LABEL = 33 "invalid alternate flow label",
    VENDOR_OPTION = 35 "vendor option not supported",
}
