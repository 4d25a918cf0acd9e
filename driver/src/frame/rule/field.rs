//! Header fields by name, and where each stands in a frame.

use ferroce_stack::wire::{Bth, HeaderSet, Headers, Layout, Net, Udp};

/// Bits of a frame, counted from its first byte's highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::frame) struct Bits {
    pub first: usize,
    pub len: usize,
}

impl Bits {
    /// `len` bits, `first` bits behind the byte `at`.
    const fn at(at: usize, first: usize, len: usize) -> Bits {
        Bits { first: at * 8 + first, len }
    }

    /// Whole bytes.
    pub const fn of_bytes(at: usize, len: usize) -> Bits {
        Bits::at(at, 0, len * 8)
    }

    /// Where the last of them ends, in bytes.
    pub const fn end(self) -> usize {
        (self.first + self.len).div_ceil(8)
    }
}

macro_rules! fields {
    ($($field:ident $name:literal $bits:literal $doc:literal,)*) => {
        /// A field of a frame, by its name in rules.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Field {
            $(#[doc = $doc] $field,)*
        }

        impl Field {
            /// Every field.
            pub const ALL: &'static [Field] = &[$(Field::$field,)*];

            /// Its name in rules.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Field::$field => $name,)*
                }
            }

            /// How many bits a value for it may have: those of the field, at most 64.
            pub const fn value_bits(self) -> u32 {
                match self {
                    $(Field::$field => $bits,)*
                }
            }
        }
    };
}

fields! {
    DestMac "dest-mac" 48 "Ethernet destination.",
    SourceMac "source-mac" 48 "Ethernet source.",
    Pcp "pcp" 3 "Priority in the 802.1Q tag.",
    Vlan "vlan" 12 "VLAN in the 802.1Q tag.",
    Tos "tos" 8 "IPv4 TOS; traffic class of IPv6 and of the GRH.",
    Dscp "dscp" 6 "Upper six bits of the TOS.",
    Ecn "ecn" 2 "Lower two bits of the TOS.",
    FlowLabel "flow-label" 20 "Flow label of IPv6 and of the GRH.",
    IpLength "ip-length" 16 "IPv4 total length; payload length of IPv6 and of the GRH.",
    IpId "ip-id" 16 "IPv4 identification.",
    Ttl "ttl" 8 "IPv4 TTL; hop limit of IPv6 and of the GRH.",
    Protocol "protocol" 8 "IPv4 protocol; next header of IPv6 and of the GRH.",
    IpChecksum "ip-checksum" 16 "IPv4 header checksum.",
    SourceIp "source-ip" 64 "Source address or GID.",
    DestIp "dest-ip" 64 "Destination address or GID.",
    SourcePort "source-port" 16 "UDP source port.",
    DestPort "dest-port" 16 "UDP destination port.",
    UdpLength "udp-length" 16 "UDP length.",
    UdpChecksum "udp-checksum" 16 "UDP checksum.",
    Opcode "opcode" 8 "BTH opcode.",
    Solicited "solicited" 1 "BTH solicited event (SE).",
    MigReq "mig-req" 1 "BTH migration state (M).",
    PadCount "pad-count" 2 "BTH pad count.",
    TransportVersion "tver" 4 "BTH transport version.",
    Pkey "pkey" 16 "BTH partition key.",
    Fecn "fecn" 1 "BTH forward congestion notification.",
    Becn "becn" 1 "BTH backward congestion notification.",
    DestQp "dest-qp" 24 "BTH destination QP.",
    AckReq "ack-req" 1 "BTH acknowledge request (A).",
    Psn "psn" 24 "BTH packet sequence number.",
    EeContext "ee-context" 24 "RDETH end-to-end context.",
    Qkey "qkey" 32 "DETH Q_Key.",
    SourceQp "source-qp" 24 "DETH source QP.",
    XrcSrq "xrc-srq" 24 "XRCETH SRQ number.",
    FlushType "flush-type" 4 "FETH placement type.",
    FlushLevel "flush-level" 2 "FETH selectivity level.",
    Va "va" 64 "Virtual address, of the RETH or AtomicETH.",
    Rkey "rkey" 32 "R_Key, of the RETH, AtomicETH or IETH.",
    DmaLength "dma-length" 32 "RETH length of the message.",
    SwapAdd "swap-add" 64 "AtomicETH value to swap in or to add.",
    Compare "compare" 64 "AtomicETH value to compare with.",
    Syndrome "syndrome" 8 "AETH syndrome.",
    Msn "msn" 24 "AETH message sequence number.",
    Original "original" 64 "AtomicAckETH original value.",
    Imm "imm" 32 "Immediate data.",
    Payload "payload" 64 "The payload, without pad.",
    Icrc "icrc" 32 "The ICRC, first byte first.",
}

impl Field {
    /// Where it stands; none in a frame without it. The frame may end before.
    pub(in crate::frame) fn bits(self, headers: &Headers, layout: &Layout) -> Option<Bits> {
        use Field::*;
        match self {
            DestMac => Some(Bits::at(0, 0, 48)),
            SourceMac => Some(Bits::at(6, 0, 48)),
            Pcp => headers.eth.vlan.map(|_| Bits::at(14, 0, 3)),
            Vlan => headers.eth.vlan.map(|_| Bits::at(14, 4, 12)),
            Payload => {
                let end = layout.icrc.checked_sub(usize::from(headers.bth.pad_count))?;
                let len = end.checked_sub(layout.payload)?;
                (len > 0).then(|| Bits::of_bytes(layout.payload, len))
            }
            Icrc => Some(Bits::at(layout.icrc, 0, 32)),
            _ => match headers.net {
                Net::V4(_) => self.of_ipv4(layout.net),
                Net::V6(_) | Net::V1(_) => self.of_ipv6(layout.net),
            }
            .or_else(|| self.of_udp(headers, layout))
            .or_else(|| self.of_bth(layout.bth))
            .or_else(|| self.of_extension(headers, layout)),
        }
    }

    /// Whether it stands in the IP header or GRH.
    pub(in crate::frame) fn is_of_ip(self) -> bool {
        self.of_ipv4(0).or_else(|| self.of_ipv6(0)).is_some()
    }

    fn of_ipv4(self, at: usize) -> Option<Bits> {
        Some(match self {
            Field::Tos => Bits::at(at, 8, 8),
            Field::Dscp => Bits::at(at, 8, 6),
            Field::Ecn => Bits::at(at, 14, 2),
            Field::IpLength => Bits::at(at, 16, 16),
            Field::IpId => Bits::at(at, 32, 16),
            Field::Ttl => Bits::at(at, 64, 8),
            Field::Protocol => Bits::at(at, 72, 8),
            Field::IpChecksum => Bits::at(at, 80, 16),
            Field::SourceIp => Bits::at(at, 96, 32),
            Field::DestIp => Bits::at(at, 128, 32),
            _ => return None,
        })
    }

    fn of_ipv6(self, at: usize) -> Option<Bits> {
        Some(match self {
            Field::Tos => Bits::at(at, 4, 8),
            Field::Dscp => Bits::at(at, 4, 6),
            Field::Ecn => Bits::at(at, 10, 2),
            Field::FlowLabel => Bits::at(at, 12, 20),
            Field::IpLength => Bits::at(at, 32, 16),
            Field::Protocol => Bits::at(at, 48, 8),
            Field::Ttl => Bits::at(at, 56, 8),
            Field::SourceIp => Bits::at(at, 64, 128),
            Field::DestIp => Bits::at(at, 192, 128),
            _ => return None,
        })
    }

    fn of_udp(self, headers: &Headers, layout: &Layout) -> Option<Bits> {
        if headers.net.is_v1() {
            return None;
        }
        let at = layout.bth.checked_sub(Udp::LEN)?;
        Some(match self {
            Field::SourcePort => Bits::at(at, 0, 16),
            Field::DestPort => Bits::at(at, 16, 16),
            Field::UdpLength => Bits::at(at, 32, 16),
            Field::UdpChecksum => Bits::at(at, 48, 16),
            _ => return None,
        })
    }

    fn of_bth(self, at: usize) -> Option<Bits> {
        Some(match self {
            Field::Opcode => Bits::at(at, 0, 8),
            Field::Solicited => Bits::at(at, 8, 1),
            Field::MigReq => Bits::at(at, 9, 1),
            Field::PadCount => Bits::at(at, 10, 2),
            Field::TransportVersion => Bits::at(at, 12, 4),
            Field::Pkey => Bits::at(at, 16, 16),
            Field::Fecn => Bits::at(at, 32, 1),
            Field::Becn => Bits::at(at, 33, 1),
            Field::DestQp => Bits::at(at, 40, 24),
            Field::AckReq => Bits::at(at, 64, 1),
            Field::Psn => Bits::at(at, 72, 24),
            _ => return None,
        })
    }

    /// Of the first header that has such a field.
    fn of_extension(self, headers: &Headers, layout: &Layout) -> Option<Bits> {
        let places: &[(HeaderSet, usize, usize)] = match self {
            Field::EeContext => &[(HeaderSet::RDETH, 8, 24)],
            Field::Qkey => &[(HeaderSet::DETH, 0, 32)],
            Field::SourceQp => &[(HeaderSet::DETH, 40, 24)],
            Field::XrcSrq => &[(HeaderSet::XRCETH, 8, 24)],
            Field::FlushLevel => &[(HeaderSet::FETH, 26, 2)],
            Field::FlushType => &[(HeaderSet::FETH, 28, 4)],
            Field::Va => &[(HeaderSet::RETH, 0, 64), (HeaderSet::ATOMIC_ETH, 0, 64)],
            Field::Rkey => &[
                (HeaderSet::RETH, 64, 32),
                (HeaderSet::ATOMIC_ETH, 64, 32),
                (HeaderSet::IETH, 0, 32),
            ],
            Field::DmaLength => &[(HeaderSet::RETH, 96, 32)],
            Field::SwapAdd => &[(HeaderSet::ATOMIC_ETH, 96, 64)],
            Field::Compare => &[(HeaderSet::ATOMIC_ETH, 160, 64)],
            Field::Syndrome => &[(HeaderSet::AETH, 0, 8)],
            Field::Msn => &[(HeaderSet::AETH, 8, 24)],
            Field::Original => &[(HeaderSet::ATOMIC_ACK_ETH, 0, 64)],
            Field::Imm => &[(HeaderSet::IMM_DT, 0, 32)],
            _ => return None,
        };
        let present = headers.bth.opcode.info()?.headers;
        let &(header, first, len) = places.iter().find(|(header, ..)| present.has(*header))?;
        // Headers stand in the order of their bits.
        let before = HeaderSet(present.0 & (header.0 - 1)).len();
        Some(Bits::at(layout.bth + Bth::LEN + before, first, len))
    }
}
