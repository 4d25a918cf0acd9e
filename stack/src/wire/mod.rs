//! Bytes to plain values and back, one file per header.
//!
//! Every header is a struct with `LEN`, `parse` and `emit`. Fields are in host byte order; unknown
//! codes and reserved bits that live traffic sets are kept. `parse` and `emit` take at least `LEN`
//! bytes, which whole packets ([`Packet`], [`NativePacket`]) check once for all their headers.

mod aeth;
mod atomic_ack_eth;
mod atomic_eth;
mod bth;
pub(crate) mod bytes;
mod deth;
mod eth;
mod ext;
mod feth;
mod ieth;
mod imm_dt;
mod ip;
mod lrh;
mod mad;
mod neighbour;
mod opcode;
mod packet;
mod psn_range;
mod rdeth;
mod reth;
mod udp;
mod xrceth;

pub use aeth::{Aeth, NakCode, Syndrome, SyndromeKind, credits, rnr_delay_ns};
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::Bth;
pub use deth::Deth;
pub use eth::{Ethernet, Mac, Vlan};
pub use ext::Extensions;
pub use feth::Feth;
pub use ieth::Ieth;
pub use imm_dt::ImmDt;
pub use ip::{Ipv4, Ipv6, Net};
pub use lrh::{Lrh, NativePacket};
pub use mad::{CmMessage, Mad};
pub use neighbour::{Neighbour, NeighbourMessage};
pub use opcode::{HeaderSet, Kind, Opcode, OpcodeInfo, PayloadRule, Position, Suffix, Transport};
pub(crate) use packet::seal_summed;
pub use packet::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE_V1, FrameTooSmall, Headers, Layout, Packet,
    pad_count, seal,
};
pub use psn_range::PsnRange;
pub use rdeth::Rdeth;
pub use reth::Reth;
pub use udp::{ROCE_PORT, Udp, source_port};
pub use xrceth::XrcEth;
