//! Fields of scenarios and frames of the wire: built, compared, judged, described.
//!
//! One table (`fields`) says what each field is called, how it is set and read, and which frames
//! have it. Everything that is not said of a frame is right.

mod build;
mod check;
pub mod cm;
mod compare;
mod describe;
mod fields;
mod judge;
mod names;
#[cfg(test)]
mod tests;

use std::fmt;

use ferroce_stack::wire::{Headers, Layout, Opcode, Packet, Transport, source_port};
use ferroce_stack::{GidEntry, LossRecovery};

use crate::ast::Word;

pub use build::build;
pub use check::{Use, check};
pub use compare::compare;
pub(crate) use compare::unlike_bytes;
pub use describe::describe;
pub use judge::{Fault, Judge};

/// Fields that say when or whose, not what; they are the runner's.
pub const RUNNERS: [&str; 5] = ["on", "as", "within", "after", "optional"];

/// A QP of the target and the peer's QP at the other end.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Address of the target.
    pub target: GidEntry,
    /// Address of the peer that we play.
    pub peer: GidEntry,
    /// Service of both.
    pub service: Transport,
    /// The target's QPN.
    pub target_qpn: u32,
    /// The peer's.
    pub peer_qpn: u32,
    /// First PSN of the target's requests.
    pub send_psn: u32,
    /// First PSN of the peer's requests.
    pub receive_psn: u32,
    /// Payload bytes of a full packet.
    pub mtu: u32,
    /// Of both directions.
    pub pkey: u16,
    /// Of the peer's datagrams.
    pub qkey: u32,
    /// Of the peer's XRC requests.
    pub srqn: u32,
    /// Of the target's packets: its address vector.
    pub traffic_class: u8,
    /// Of the target's packets.
    pub flow_label: u32,
    /// Service level of the target's packets.
    pub sl: u8,
    /// GUID of the peer's channel adapter.
    pub peer_guid: u64,
    /// Reserved bits of the BTH behind AckReq in the target's requests: the mark of what it offers
    /// about loss recovery.
    pub mark: u8,
    /// What management datagrams were about, of the flow between both QP1s.
    pub talks: cm::Talks,
}

impl Flow {
    /// A flow with what a QP has that nothing is said of.
    pub fn new(target: GidEntry, peer: GidEntry, service: Transport) -> Flow {
        Flow {
            target,
            peer,
            service,
            target_qpn: 0,
            peer_qpn: 0,
            send_psn: 0x800,
            receive_psn: 0x100,
            mtu: 1024,
            pkey: 0xffff,
            qkey: 0x1111_1111,
            srqn: 0,
            traffic_class: 0,
            flow_label: 0,
            sl: 0,
            peer_guid: 0,
            mark: LossRecovery::GoBackN.mark(),
            talks: cm::Talks::default(),
        }
    }

    /// Takes down what a frame of this flow says that later ones are right by.
    pub fn note(&mut self, bytes: &[u8]) {
        if self.target_qpn != cm::GSI {
            return;
        }
        let Ok(seen) = Seen::new(bytes) else { return };
        if let Ok(mad) = seen.packet.payload.try_into() {
            let side = self.sender(seen.headers());
            self.talks.note(mad, side);
        }
    }

    /// Who has sent a frame.
    fn sender(&self, headers: &Headers) -> Side {
        let from_peer = headers.net.source() == self.peer.gid || headers.eth.src == self.peer.mac;
        if from_peer { Side::Peer } else { Side::Target }
    }

    /// UDP source port of what the peer sends.
    fn source_port(&self) -> u16 {
        source_port(self.flow_label, self.peer_qpn, self.target_qpn)
    }

    /// The PSN from which a packet's PSN is counted.
    fn first_psn(&self, opcode: Opcode, sender: Side) -> u32 {
        match (names::numbering(opcode), sender) {
            (names::Numbering::Request, Side::Target) | (names::Numbering::Answer, Side::Peer) => {
                self.send_psn
            }
            (names::Numbering::Request, Side::Peer) | (names::Numbering::Answer, Side::Target) => {
                self.receive_psn
            }
            (names::Numbering::None, _) => 0,
        }
    }
}

/// Who sends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Target,
    Peer,
}

/// The QPN a frame is for; nothing if it is no RoCE packet. Its ICRC is not looked at.
pub fn destination_qpn(bytes: &[u8]) -> Option<u32> {
    Headers::parse(bytes).ok().map(|(headers, _)| headers.bth.dest_qp)
}

/// A packet with its frame.
struct Seen<'a> {
    packet: Packet<'a>,
    bytes: &'a [u8],
}

impl<'a> Seen<'a> {
    fn new(bytes: &'a [u8]) -> Result<Seen<'a>, ferroce_stack::discard::Discard> {
        Packet::parse(bytes).map(|packet| Seen { packet, bytes })
    }

    fn headers(&self) -> &Headers {
        &self.packet.headers
    }

    fn layout(&self) -> &Layout {
        &self.packet.layout
    }

    /// The 16 bits at an offset of the frame.
    fn be16(&self, at: usize) -> Option<u64> {
        let pair = self.bytes.get(at..)?.first_chunk::<2>()?;
        Some(u64::from(u16::from_be_bytes(*pair)))
    }
}

/// A frame that cannot be built or compared as its sentence says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Line of the file, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl FieldError {
    fn at(word: &Word, message: impl Into<String>) -> FieldError {
        FieldError { line: word.line, column: word.column, message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for FieldError {}

/// A field that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name; `frame` if it is another frame altogether.
    pub field: String,
    /// What it must be.
    pub expected: String,
    /// What it is.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, got {}", self.field, self.expected, self.got)
    }
}
