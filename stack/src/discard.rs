//! Why a frame was ignored: one variant, one counter (the receive validation of IBA 9.6).

macro_rules! discards {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a frame had no effect. A discard is counted and never answered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Discard {
            $($(#[$doc])* $variant,)*
        }

        impl Discard {
            /// Every reason, in counter order.
            pub const ALL: &'static [Discard] = &[$(Discard::$variant,)*];

            /// The counter's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Discard::$variant => $name,)*
                }
            }
        }
    };
}

discards! {
    /// Not RoCE: another ethertype, IP protocol or UDP port.
    NotRoce = "not_roce",
    /// A header or the length it claims does not fit the bytes that came.
    Truncated = "truncated",
    /// An IP fragment, IPv4 options, an IPv6 extension header or a wrong version.
    BadIpHeader = "bad_ip_header",
    /// The IPv4 header checksum is wrong.
    BadIpChecksum = "bad_ip_checksum",
    /// The GRH of RoCE v1 is not followed by a BTH.
    BadGrh = "bad_grh",
    /// Lengths of IP, UDP, headers, pad and ICRC contradict each other.
    BadLength = "bad_length",
    /// BTH.TVer is not 0.
    BadTransportVersion = "bad_transport_version",
    /// The opcode is not defined for any service, or for one that is not supported.
    UnknownOpcode = "unknown_opcode",
    /// The destination address is not one of ours.
    NotOurAddress = "not_our_address",
    /// No QP has this number.
    UnknownQp = "unknown_qp",
    /// The QP is of another service than the opcode.
    WrongService = "wrong_service",
    /// The QP's state takes no such packet.
    WrongState = "wrong_state",
    /// Not from the connected peer, or not on its GID or VLAN.
    WrongPeer = "wrong_peer",
    /// P_Key mismatch.
    BadPkey = "bad_pkey_cntr",
    /// Q_Key mismatch.
    BadQkey = "qkey_viol_cntr",
    /// ICRC mismatch.
    BadIcrc = "bad_icrc",
    /// A response to nothing outstanding.
    GhostResponse = "ghost_response",
    /// A response this QP has already taken.
    DuplicateResponse = "duplicate_response",
    /// A response ahead of the one that is missing.
    ResponseGap = "response_gap",
    /// A request ahead of the expected PSN, its gap already reported.
    RequestGap = "request_gap",
    /// A duplicate READ or atomic of which no record is left.
    StaleDuplicate = "stale_duplicate",
    /// UC or UD: no receive work request was posted.
    NoReceive = "out_of_buffer",
    /// UC or UD: a message of wrong length, order or rights.
    BadMessage = "bad_message",
    /// A multicast packet nobody on this device has joined.
    NotAMember = "not_a_member",
    /// A reserved acknowledge syndrome.
    ReservedSyndrome = "reserved_syndrome",
}
