//! The table of management datagrams (IBA 12.6, 12.11, 13.4.2, annex A11): what each message and
//! each of its fields is called, and where it is.

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::wire::CmMessage;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Decimal,
    Hex,
    /// An address in quotes, as a GID.
    Gid,
    /// An address in quotes, as in the header of RDMA-CM: of IPv4 only the last four bytes.
    Address,
    /// Bytes; those not said are zeros.
    Bytes,
}

/// A field of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub name: &'static str,
    /// Its first bit, the highest of byte 0 of the datagram being bit 0.
    pub first: usize,
    pub bits: usize,
    pub style: Style,
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub name: &'static str,
    /// Nothing if it can be any datagram.
    pub kind: Option<CmMessage>,
    /// Behind the header that every datagram has.
    pub fields: &'static [Field],
    /// First byte of its private data, which ends with the datagram.
    pub private_data: usize,
}

/// Bytes of the header that every datagram has.
pub(super) const HEADER: usize = 24;

/// Bytes of the header that RDMA-CM puts before private data.
pub(super) const IP_HEADER: usize = 36;

/// A field of whole bytes of a datagram.
const fn mad(name: &'static str, byte: usize, bits: usize, style: Style) -> Field {
    Field { name, first: byte * 8, bits, style }
}

/// A field behind the header whose highest bit is bit `high` of a byte.
const fn bits(name: &'static str, byte: usize, high: usize, bits: usize) -> Field {
    Field { name, first: (HEADER + byte) * 8 + 7 - high, bits, style: Style::Decimal }
}

/// A field of whole bytes behind the header, written in decimal.
const fn number(name: &'static str, byte: usize, bits: usize) -> Field {
    mad(name, HEADER + byte, bits, Style::Decimal)
}

/// The same, written in hexadecimal.
const fn hex(name: &'static str, byte: usize, bits: usize) -> Field {
    mad(name, HEADER + byte, bits, Style::Hex)
}

const fn gid(name: &'static str, byte: usize) -> Field {
    mad(name, HEADER + byte, 128, Style::Gid)
}

const fn area(name: &'static str, byte: usize, end: usize) -> Field {
    mad(name, HEADER + byte, (end - byte) * 8, Style::Bytes)
}

/// The header that every datagram has.
pub(super) const COMMON: &[Field] = &[
    mad("base-version", 0, 8, Style::Decimal),
    mad("class", 1, 8, Style::Hex),
    mad("class-version", 2, 8, Style::Decimal),
    mad("method", 3, 8, Style::Hex),
    mad("mad-status", 4, 16, Style::Hex),
    mad("class-specific", 6, 16, Style::Hex),
    mad("transaction", 8, 64, Style::Hex),
    mad("attribute", 16, 16, Style::Hex),
    mad("mad-reserved", 18, 16, Style::Hex),
    mad("attribute-modifier", 20, 32, Style::Hex),
];

/// A path in REQ that begins at a byte.
macro_rules! path {
    ($prefix:literal, $at:literal) => {
        [
            hex(concat!($prefix, "-local-lid"), $at, 16),
            hex(concat!($prefix, "-remote-lid"), $at + 2, 16),
            gid(concat!($prefix, "-local-gid"), $at + 4),
            gid(concat!($prefix, "-remote-gid"), $at + 20),
            hex(concat!($prefix, "-flow-label"), $at + 36, 20),
            bits(concat!($prefix, "-packet-rate"), $at + 39, 5, 6),
            hex(concat!($prefix, "-traffic-class"), $at + 40, 8),
            number(concat!($prefix, "-hop-limit"), $at + 41, 8),
            bits(concat!($prefix, "-sl"), $at + 42, 7, 4),
            bits(concat!($prefix, "-subnet-local"), $at + 42, 3, 1),
            bits(concat!($prefix, "-ack-timeout"), $at + 43, 7, 5),
        ]
    };
}

/// Fields of several parts of a message.
const fn join<const A: usize, const B: usize, const C: usize>(
    one: [Field; A],
    two: [Field; B],
) -> [Field; C] {
    let mut all = [one[0]; C];
    let mut index = 0;
    while index < C {
        all[index] = if index < A { one[index] } else { two[index - A] };
        index += 1;
    }
    all
}

const REQ_FIXED: [Field; 24] = [
    hex("local-id", 0, 32),
    hex("ece-vendor-id", 5, 24),
    hex("service-id", 8, 64),
    hex("ca-guid", 16, 64),
    hex("local-qkey", 28, 32),
    hex("local-qpn", 32, 24),
    number("responder-resources", 35, 8),
    hex("local-eecn", 36, 24),
    number("initiator-depth", 39, 8),
    hex("remote-eecn", 40, 24),
    bits("remote-response-timeout", 43, 7, 5),
    bits("transport", 43, 2, 2),
    bits("flow-control", 43, 0, 1),
    hex("starting-psn", 44, 24),
    bits("local-response-timeout", 47, 7, 5),
    bits("retry-count", 47, 2, 3),
    hex("partition-key", 48, 16),
    bits("path-mtu", 50, 7, 4),
    bits("rdc-exists", 50, 3, 1),
    bits("rnr-retry-count", 50, 2, 3),
    bits("max-cm-retries", 51, 7, 4),
    bits("srq", 51, 3, 1),
    bits("extended-transport", 51, 2, 3),
    bits("sap-supported", 139, 2, 1),
];
const REQ_PATHS: [Field; 22] = join(path!("primary", 52), path!("alternate", 96));
static REQ: [Field; 46] = join(REQ_FIXED, REQ_PATHS);

const IDS: [Field; 2] = [hex("local-id", 0, 32), hex("remote-id", 4, 32)];

static REP: [Field; 17] = join(
    IDS,
    [
        hex("local-qkey", 8, 32),
        hex("local-qpn", 12, 24),
        hex("ece-vendor-high", 15, 8),
        hex("local-eecn", 16, 24),
        hex("ece-vendor-middle", 19, 8),
        hex("starting-psn", 20, 24),
        hex("ece-vendor-low", 23, 8),
        number("responder-resources", 24, 8),
        number("initiator-depth", 25, 8),
        bits("target-ack-delay", 26, 7, 5),
        bits("failover", 26, 2, 2),
        bits("flow-control", 26, 0, 1),
        bits("rnr-retry-count", 27, 7, 3),
        bits("srq", 27, 4, 1),
        hex("ca-guid", 28, 64),
    ],
);

static MRA: [Field; 4] = join(IDS, [bits("mraed", 8, 7, 2), bits("service-timeout", 9, 7, 5)]);

static REJ: [Field; 6] = join(
    IDS,
    [
        bits("rejected", 8, 7, 2),
        bits("information-length", 9, 7, 7),
        number("reason", 10, 16),
        area("information", 12, 84),
    ],
);

static DREQ: [Field; 3] = join(IDS, [hex("remote-qpn", 8, 24)]);

static LAP: [Field; 15] = join(
    IDS,
    [
        hex("remote-qpn", 12, 24),
        bits("remote-response-timeout", 15, 7, 5),
        hex("alternate-local-lid", 20, 16),
        hex("alternate-remote-lid", 22, 16),
        gid("alternate-local-gid", 24),
        gid("alternate-remote-gid", 40),
        hex("alternate-flow-label", 56, 20),
        hex("alternate-traffic-class", 59, 8),
        number("alternate-hop-limit", 60, 8),
        bits("alternate-packet-rate", 61, 5, 6),
        bits("alternate-sl", 62, 7, 4),
        bits("alternate-subnet-local", 62, 3, 1),
        bits("alternate-ack-timeout", 63, 7, 5),
    ],
);

static APR: [Field; 5] = join(
    IDS,
    [number("information-length", 8, 8), number("status", 9, 8), area("information", 12, 84)],
);

static SIDR_REQ: [Field; 3] =
    [hex("request-id", 0, 32), hex("partition-key", 4, 16), hex("service-id", 8, 64)];

static SIDR_REP: [Field; 9] = [
    hex("request-id", 0, 32),
    number("status", 4, 8),
    number("information-length", 5, 8),
    hex("ece-vendor-high", 6, 16),
    hex("service-qpn", 8, 24),
    hex("ece-vendor-low", 11, 8),
    hex("service-id", 12, 64),
    hex("service-qkey", 20, 32),
    area("information", 24, 96),
];

static DATA: [Field; 1] = [area("data", 0, MAD_LEN - HEADER)];

/// Of the header that RDMA-CM puts before private data: offsets are from its first byte.
pub(super) const IP_FIELDS: [Field; 6] = [
    mad("cma-version", 0, 8, Style::Hex),
    Field { name: "ip-version", first: 8, bits: 4, style: Style::Decimal },
    Field { name: "cma-reserved", first: 12, bits: 4, style: Style::Hex },
    mad("cma-port", 2, 16, Style::Decimal),
    mad("cma-source", 4, 128, Style::Address),
    mad("cma-destination", 20, 128, Style::Address),
];

const fn message(
    name: &'static str,
    kind: CmMessage,
    fields: &'static [Field],
    private_data: usize,
) -> Message {
    Message { name, kind: Some(kind), fields, private_data: HEADER + private_data }
}

static MESSAGES: [Message; 12] = [
    message("cm-req", CmMessage::Req, &REQ, 140),
    message("cm-mra", CmMessage::Mra, &MRA, 10),
    message("cm-rej", CmMessage::Rej, &REJ, 84),
    message("cm-rep", CmMessage::Rep, &REP, 36),
    message("cm-rtu", CmMessage::Rtu, &IDS, 8),
    message("cm-dreq", CmMessage::Dreq, &DREQ, 12),
    message("cm-drep", CmMessage::Drep, &IDS, 8),
    message("cm-lap", CmMessage::Lap, &LAP, 64),
    message("cm-apr", CmMessage::Apr, &APR, 84),
    message("cm-sidr-req", CmMessage::SidrReq, &SIDR_REQ, 16),
    message("cm-sidr-rep", CmMessage::SidrRep, &SIDR_REP, 96),
    Message { name: "mad", kind: None, fields: &DATA, private_data: MAD_LEN },
];

impl Message {
    /// The message of this name.
    pub fn named(name: &str) -> Option<&'static Message> {
        MESSAGES.iter().find(|message| message.name == name)
    }

    /// The message that a datagram is; `mad` if it is no other.
    pub fn of(mad: &[u8; MAD_LEN]) -> &'static Message {
        let kind = ferroce_stack::wire::Mad::parse(mad).cm_message();
        let own = MESSAGES.iter().find(|message| message.kind.is_some() && message.kind == kind);
        own.unwrap_or(&MESSAGES[MESSAGES.len() - 1])
    }

    /// Whether private data may begin with the header of RDMA-CM.
    pub fn may_have_header(&self) -> bool {
        matches!(self.kind, Some(CmMessage::Req | CmMessage::SidrReq))
    }

    /// The field of this name; the header of RDMA-CM is there if `has_header`.
    pub fn field(&self, name: &str, has_header: bool) -> Option<Field> {
        self.all(has_header).find(|field| field.name == name)
    }

    /// Every field, in the order of the datagram but for the areas.
    pub fn all(&self, has_header: bool) -> impl Iterator<Item = Field> {
        let at = self.private_data * 8;
        let ip = IP_FIELDS.map(|field| Field { first: at + field.first, ..field });
        let skipped = if has_header { IP_HEADER } else { 0 };
        let begins = self.private_data + skipped;
        let rest = (begins < MAD_LEN)
            .then(|| mad("private-data", begins, (MAD_LEN - begins) * 8, Style::Bytes));
        let ip = ip.into_iter().filter(move |_| has_header);
        COMMON.iter().chain(self.fields).copied().chain(ip).chain(rest)
    }

    /// The space of ports of its services, as in a service ID.
    pub fn space(&self) -> u64 {
        if self.kind == Some(CmMessage::SidrReq) { 0x0111 } else { 0x0106 }
    }
}

impl Field {
    /// The largest number it holds.
    pub fn most(&self) -> u64 {
        u64::MAX >> (64 - self.bits.min(64))
    }

    /// Its number.
    pub fn get(&self, mad: &[u8; MAD_LEN]) -> u64 {
        let bit = |at: usize| u64::from(mad[at / 8] >> (7 - at % 8) & 1);
        (self.first..self.first + self.bits).fold(0, |value, at| value << 1 | bit(at))
    }

    /// Makes its number another.
    pub fn set(&self, mad: &mut [u8; MAD_LEN], value: u64) {
        for (place, at) in (self.first..self.first + self.bits).rev().enumerate() {
            let mask = 1 << (7 - at % 8);
            let bit = if value >> place & 1 == 1 { mask } else { 0 };
            mad[at / 8] = mad[at / 8] & !mask | bit;
        }
    }

    /// Its bytes; of a field that has whole ones.
    pub fn bytes<'a>(&self, mad: &'a [u8; MAD_LEN]) -> &'a [u8] {
        &mad[self.first / 8..(self.first + self.bits) / 8]
    }

    /// The same, to change.
    pub fn bytes_mut<'a>(&self, mad: &'a mut [u8; MAD_LEN]) -> &'a mut [u8] {
        &mut mad[self.first / 8..(self.first + self.bits) / 8]
    }

    /// Whether it holds a number.
    pub fn is_number(&self) -> bool {
        matches!(self.style, Style::Decimal | Style::Hex)
    }

    /// The bytes of an address in this field.
    pub fn address(&self, gid: Gid) -> [u8; 16] {
        let mut bytes = gid.0;
        if self.style == Style::Address && gid.ipv4().is_some() {
            bytes[..12].fill(0);
        }
        bytes
    }

    /// Its value as it is written in scenarios.
    pub fn shown(&self, mad: &[u8; MAD_LEN]) -> String {
        match self.style {
            Style::Decimal => self.get(mad).to_string(),
            Style::Hex => format!("{:#x}", self.get(mad)),
            Style::Gid | Style::Address => {
                let mut bytes: [u8; 16] = self.bytes(mad).try_into().unwrap_or_default();
                if self.style == Style::Address && bytes[..12] == [0; 12] {
                    bytes[10..12].fill(0xff);
                }
                format!("\"{}\"", Gid(bytes).to_ip())
            }
            Style::Bytes => {
                let bytes = self.bytes(mad);
                let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                format!("hex \"{}\"", super::super::describe::hex(&bytes[..len]))
            }
        }
    }
}
