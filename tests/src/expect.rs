//! Frames seen on the wire, and what a test expects of them field by field.

use std::fmt;

use ferroce_stack::wire::{Headers, Opcode, Packet};

/// A frame a device sent.
#[derive(Clone)]
pub struct Seen {
    /// Its headers.
    pub headers: Headers,
    /// Its payload without pad.
    pub payload: Vec<u8>,
    /// All of it.
    pub frame: Vec<u8>,
}

impl Seen {
    /// Parses a frame.
    ///
    /// # Panics
    /// If it is no RoCE packet with a correct ICRC: no device may send such a frame.
    pub fn new(frame: Vec<u8>) -> Seen {
        let packet = Packet::parse(&frame).expect("a RoCE packet");
        assert!(packet.icrc_ok(&frame), "wrong ICRC: {frame:02x?}");
        let (headers, payload) = (packet.headers, packet.payload.to_vec());
        Seen { headers, payload, frame }
    }

    /// Opcode of its BTH.
    pub fn opcode(&self) -> Opcode {
        self.headers.bth.opcode
    }

    /// PSN of its BTH.
    pub fn psn(&self) -> u32 {
        self.headers.bth.psn.value()
    }

    /// Syndrome byte, if it has an AETH.
    pub fn syndrome(&self) -> Option<u8> {
        self.headers.ext.aeth.map(|aeth| aeth.syndrome.0)
    }

    /// The value of a field as text; `-` where the packet has no such field.
    fn field(&self, field: Field) -> String {
        let (bth, ext) = (&self.headers.bth, &self.headers.ext);
        let text = match field {
            Field::Opcode => Some(bth.opcode.name().to_string()),
            Field::Psn => Some(format!("{:#x}", bth.psn.value())),
            Field::DestQp => Some(format!("{:#x}", bth.dest_qp)),
            Field::AckReq => Some(bth.ack_req.to_string()),
            Field::Solicited => Some(bth.solicited.to_string()),
            Field::Syndrome => ext.aeth.map(|aeth| format!("{:#x}", aeth.syndrome.0)),
            Field::Msn => ext.aeth.map(|aeth| aeth.msn.to_string()),
            Field::Va => ext.reth.map(|reth| format!("{:#x}", reth.va)),
            Field::DmaLen => ext.reth.map(|reth| reth.dma_len.to_string()),
            Field::Original => ext.atomic_ack_eth.map(|eth| format!("{:#x}", eth.original)),
            Field::PayloadLen => Some(self.payload.len().to_string()),
        };
        text.unwrap_or_else(|| "-".to_string())
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field(Field::Opcode))?;
        for field in Field::AFTER_OPCODE {
            match self.field(field).as_str() {
                "-" => {}
                value => write!(f, " {field:?}={value}")?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Opcode,
    Psn,
    DestQp,
    AckReq,
    Solicited,
    Syndrome,
    Msn,
    Va,
    DmaLen,
    Original,
    PayloadLen,
}

impl Field {
    const AFTER_OPCODE: [Field; 10] = [
        Field::Psn,
        Field::DestQp,
        Field::AckReq,
        Field::Solicited,
        Field::Syndrome,
        Field::Msn,
        Field::Va,
        Field::DmaLen,
        Field::Original,
        Field::PayloadLen,
    ];
}

/// What a test expects of a packet: the fields named, and no others.
#[derive(Clone, Debug)]
pub struct Expected {
    fields: Vec<(Field, String)>,
}

/// Expects a packet of this opcode.
pub fn packet(opcode: Opcode) -> Expected {
    Expected { fields: vec![(Field::Opcode, opcode.name().to_string())] }
}

impl Expected {
    /// An ACK of everything up to `psn`.
    pub fn ack(psn: u32) -> Expected {
        packet(Opcode::RC_ACKNOWLEDGE).psn(psn).syndrome(0x1f)
    }

    /// A NAK or RNR NAK for `psn`.
    pub fn nak(psn: u32, syndrome: u8) -> Expected {
        packet(Opcode::RC_ACKNOWLEDGE).psn(psn).syndrome(syndrome)
    }

    fn with(mut self, field: Field, value: String) -> Expected {
        self.fields.push((field, value));
        self
    }

    /// This PSN.
    pub fn psn(self, psn: u32) -> Expected {
        self.with(Field::Psn, format!("{:#x}", psn & 0xff_ffff))
    }

    /// To this QPN.
    pub fn dest_qp(self, qpn: u32) -> Expected {
        self.with(Field::DestQp, format!("{qpn:#x}"))
    }

    /// AckReq.
    pub fn ack_req(self, ack_req: bool) -> Expected {
        self.with(Field::AckReq, ack_req.to_string())
    }

    /// SE.
    pub fn solicited(self, solicited: bool) -> Expected {
        self.with(Field::Solicited, solicited.to_string())
    }

    /// Syndrome byte of the AETH.
    pub fn syndrome(self, syndrome: u8) -> Expected {
        self.with(Field::Syndrome, format!("{syndrome:#x}"))
    }

    /// MSN of the AETH.
    pub fn msn(self, msn: u32) -> Expected {
        self.with(Field::Msn, msn.to_string())
    }

    /// Address and length of the RETH.
    pub fn reth(self, va: u64, dma_len: u32) -> Expected {
        self.with(Field::Va, format!("{va:#x}")).with(Field::DmaLen, dma_len.to_string())
    }

    /// Value returned by an atomic.
    pub fn original(self, original: u64) -> Expected {
        self.with(Field::Original, format!("{original:#x}"))
    }

    /// Payload bytes.
    pub fn payload_len(self, len: usize) -> Expected {
        self.with(Field::PayloadLen, len.to_string())
    }
}

/// Asserts that exactly the expected packets were seen.
///
/// # Panics
/// If not; the message lists each field that differs, and all packets.
#[track_caller]
pub fn expect_packets(context: impl fmt::Display, seen: &[Seen], expected: &[Expected]) {
    let mut faults = String::new();
    for (index, expected) in expected.iter().enumerate() {
        let Some(seen) = seen.get(index) else { break };
        for (field, value) in &expected.fields {
            let got = seen.field(*field);
            if got != *value {
                faults += &format!("  packet {index} {field:?}: expected {value}, got {got}\n");
            }
        }
    }
    if seen.len() != expected.len() {
        faults += &format!("  expected {} packets, got {}\n", expected.len(), seen.len());
    }
    assert!(faults.is_empty(), "{context}\n{faults}  expected {expected:?}\n  got {seen:#?}");
}
