//! BTH opcodes, and the one table of which headers and payload each has (IBA 9.2.1 table 38; XRC:
//! Annex A14; CNP: Annex A17.9; FLUSH and ATOMIC WRITE: Annex A19).
//!
//! An operation has the same low five bits, and largely the same headers, in every service. So the
//! table is written by operation; the services differ in what they add ([`with_service`]).

/// A BTH opcode as it is on the wire; any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// Transport service of an opcode: its bits 7 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram; recognised, never spoken.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification.
    Cnp,
    /// Extended reliable connection.
    Xrc,
}

/// What a packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge: ACK, RNR NAK or NAK.
    Acknowledge,
    /// Atomic acknowledge.
    AtomicAcknowledge,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// RESYNC of reliable datagrams.
    Resync,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// Congestion notification packet.
    Cnp,
}

/// Where in its message a packet stands. Kinds of one packet are `Only`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether a message begins here.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Whether a message ends here.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// What a message carries besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suffix {
    /// Nothing.
    None,
    /// Immediate data.
    Immediate,
    /// A key to invalidate.
    Invalidate,
}

/// How many payload bytes an opcode carries, pad left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// None.
    Empty,
    /// The path MTU exactly.
    Mtu,
    /// One byte to the path MTU.
    OneToMtu,
    /// Zero bytes to the path MTU.
    UpToMtu,
    /// This many.
    Exactly(u8),
}

/// A set of extended headers, in the order in which they stand on the wire (lowest bit first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeaderSet(pub u16);

impl HeaderSet {
    /// No extended header.
    pub const NONE: HeaderSet = HeaderSet(0);
    /// RDETH, 4 bytes.
    pub const RDETH: HeaderSet = HeaderSet(1 << 0);
    /// DETH, 8 bytes.
    pub const DETH: HeaderSet = HeaderSet(1 << 1);
    /// XRCETH, 4 bytes.
    pub const XRCETH: HeaderSet = HeaderSet(1 << 2);
    /// FETH, 4 bytes.
    pub const FETH: HeaderSet = HeaderSet(1 << 3);
    /// RETH, 16 bytes.
    pub const RETH: HeaderSet = HeaderSet(1 << 4);
    /// AtomicETH, 28 bytes.
    pub const ATOMIC_ETH: HeaderSet = HeaderSet(1 << 5);
    /// AETH, 4 bytes.
    pub const AETH: HeaderSet = HeaderSet(1 << 6);
    /// AtomicAckETH, 8 bytes.
    pub const ATOMIC_ACK_ETH: HeaderSet = HeaderSet(1 << 7);
    /// ImmDt, 4 bytes.
    pub const IMM_DT: HeaderSet = HeaderSet(1 << 8);
    /// IETH, 4 bytes.
    pub const IETH: HeaderSet = HeaderSet(1 << 9);

    /// Both sets together.
    #[inline]
    pub const fn with(self, other: HeaderSet) -> HeaderSet {
        HeaderSet(self.0 | other.0)
    }

    /// Whether every header of `other` is in this set.
    #[inline]
    pub const fn has(self, other: HeaderSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Bytes all headers of the set take.
    #[inline]
    pub const fn len(self) -> usize {
        const LENGTHS: [usize; 10] = [4, 8, 4, 4, 16, 28, 4, 8, 4, 4];
        let (mut bit, mut sum) = (0, 0);
        while bit < LENGTHS.len() {
            if self.0 & (1 << bit) != 0 {
                sum += LENGTHS[bit];
            }
            bit += 1;
        }
        sum
    }

    /// Whether the set holds no header.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One row of the opcode table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// As in `RC SEND Only`.
    pub name: &'static str,
    /// Transport service.
    pub transport: Transport,
    /// What the packet does.
    pub kind: Kind,
    /// Where in its message it stands.
    pub position: Position,
    /// Extended headers after the BTH.
    pub headers: HeaderSet,
    /// Bytes they take together.
    pub headers_len: usize,
    /// Payload length allowed.
    pub payload: PayloadRule,
}

/// An operation's name with its service in front.
macro_rules! in_service {
    (Rc $name:literal) => {
        concat!("RC ", $name)
    };
    (Uc $name:literal) => {
        concat!("UC ", $name)
    };
    (Rd $name:literal) => {
        concat!("RD ", $name)
    };
    (Ud $name:literal) => {
        concat!("UD ", $name)
    };
    (Xrc $name:literal) => {
        concat!("XRC ", $name)
    };
}

macro_rules! header_set {
    ([$($header:ident),*]) => { HeaderSet::NONE$(.with(HeaderSet::$header))* };
}

macro_rules! operations {
    ($($low:literal $name:literal: $kind:ident $position:ident, $headers:tt,
        $payload:expr; $($service:ident $code:ident),+;)*) => {
        impl Opcode {
            $($(
                #[doc = concat!("`", in_service!($service $name), "`")]
                pub const $code: Opcode = Opcode(Transport::$service.base() | $low);
            )+)*
            /// `CNP`
            pub const CNP: Opcode = Opcode(0x81);
        }

        const fn table() -> [Option<OpcodeInfo>; 256] {
            use PayloadRule::*;
            let mut table = [None; 256];
            $($(
                let own = header_set!($headers);
                let headers = with_service(Transport::$service, Kind::$kind, own);
                table[Opcode::$code.0 as usize] = Some(OpcodeInfo {
                    name: in_service!($service $name),
                    transport: Transport::$service,
                    kind: Kind::$kind,
                    position: Position::$position,
                    headers,
                    headers_len: headers.len(),
                    payload: $payload,
                });
            )+)*
            table[Opcode::CNP.0 as usize] = Some(OpcodeInfo {
                name: "CNP",
                transport: Transport::Cnp,
                kind: Kind::Cnp,
                position: Position::Only,
                headers: HeaderSet::NONE,
                headers_len: 0,
                payload: Exactly(16),
            });
            table
        }
    };
}

#[rustfmt::skip]
operations! {
    0x00 "SEND First": Send First, [NONE], Mtu; Rc RC_SEND_FIRST, Uc UC_SEND_FIRST, Rd RD_SEND_FIRST, Xrc XRC_SEND_FIRST;
    0x01 "SEND Middle": Send Middle, [NONE], Mtu; Rc RC_SEND_MIDDLE, Uc UC_SEND_MIDDLE, Rd RD_SEND_MIDDLE, Xrc XRC_SEND_MIDDLE;
    0x02 "SEND Last": Send Last, [NONE], OneToMtu; Rc RC_SEND_LAST, Uc UC_SEND_LAST, Rd RD_SEND_LAST, Xrc XRC_SEND_LAST;
    0x03 "SEND Last with Immediate": Send Last, [IMM_DT], OneToMtu; Rc RC_SEND_LAST_IMM, Uc UC_SEND_LAST_IMM, Rd RD_SEND_LAST_IMM, Xrc XRC_SEND_LAST_IMM;
    0x04 "SEND Only": Send Only, [NONE], UpToMtu; Rc RC_SEND_ONLY, Uc UC_SEND_ONLY, Rd RD_SEND_ONLY, Ud UD_SEND_ONLY, Xrc XRC_SEND_ONLY;
    0x05 "SEND Only with Immediate": Send Only, [IMM_DT], UpToMtu; Rc RC_SEND_ONLY_IMM, Uc UC_SEND_ONLY_IMM, Rd RD_SEND_ONLY_IMM, Ud UD_SEND_ONLY_IMM, Xrc XRC_SEND_ONLY_IMM;
    0x06 "RDMA WRITE First": Write First, [RETH], Mtu; Rc RC_WRITE_FIRST, Uc UC_WRITE_FIRST, Rd RD_WRITE_FIRST, Xrc XRC_WRITE_FIRST;
    0x07 "RDMA WRITE Middle": Write Middle, [NONE], Mtu; Rc RC_WRITE_MIDDLE, Uc UC_WRITE_MIDDLE, Rd RD_WRITE_MIDDLE, Xrc XRC_WRITE_MIDDLE;
    0x08 "RDMA WRITE Last": Write Last, [NONE], OneToMtu; Rc RC_WRITE_LAST, Uc UC_WRITE_LAST, Rd RD_WRITE_LAST, Xrc XRC_WRITE_LAST;
    0x09 "RDMA WRITE Last with Immediate": Write Last, [IMM_DT], OneToMtu; Rc RC_WRITE_LAST_IMM, Uc UC_WRITE_LAST_IMM, Rd RD_WRITE_LAST_IMM, Xrc XRC_WRITE_LAST_IMM;
    0x0a "RDMA WRITE Only": Write Only, [RETH], UpToMtu; Rc RC_WRITE_ONLY, Uc UC_WRITE_ONLY, Rd RD_WRITE_ONLY, Xrc XRC_WRITE_ONLY;
    0x0b "RDMA WRITE Only with Immediate": Write Only, [RETH, IMM_DT], UpToMtu; Rc RC_WRITE_ONLY_IMM, Uc UC_WRITE_ONLY_IMM, Rd RD_WRITE_ONLY_IMM, Xrc XRC_WRITE_ONLY_IMM;
    0x0c "RDMA READ Request": ReadRequest Only, [RETH], Empty; Rc RC_READ_REQUEST, Rd RD_READ_REQUEST, Xrc XRC_READ_REQUEST;
    0x0d "RDMA READ Response First": ReadResponse First, [AETH], Mtu; Rc RC_READ_RESPONSE_FIRST, Rd RD_READ_RESPONSE_FIRST, Xrc XRC_READ_RESPONSE_FIRST;
    0x0e "RDMA READ Response Middle": ReadResponse Middle, [NONE], Mtu; Rc RC_READ_RESPONSE_MIDDLE, Rd RD_READ_RESPONSE_MIDDLE, Xrc XRC_READ_RESPONSE_MIDDLE;
    0x0f "RDMA READ Response Last": ReadResponse Last, [AETH], OneToMtu; Rc RC_READ_RESPONSE_LAST, Rd RD_READ_RESPONSE_LAST, Xrc XRC_READ_RESPONSE_LAST;
    0x10 "RDMA READ Response Only": ReadResponse Only, [AETH], UpToMtu; Rc RC_READ_RESPONSE_ONLY, Rd RD_READ_RESPONSE_ONLY, Xrc XRC_READ_RESPONSE_ONLY;
    0x11 "Acknowledge": Acknowledge Only, [AETH], Empty; Rc RC_ACKNOWLEDGE, Rd RD_ACKNOWLEDGE, Xrc XRC_ACKNOWLEDGE;
    0x12 "ATOMIC Acknowledge": AtomicAcknowledge Only, [AETH, ATOMIC_ACK_ETH], Empty; Rc RC_ATOMIC_ACKNOWLEDGE, Rd RD_ATOMIC_ACKNOWLEDGE, Xrc XRC_ATOMIC_ACKNOWLEDGE;
    0x13 "CmpSwap": CompareSwap Only, [ATOMIC_ETH], Empty; Rc RC_CMP_SWAP, Rd RD_CMP_SWAP, Xrc XRC_CMP_SWAP;
    0x14 "FetchAdd": FetchAdd Only, [ATOMIC_ETH], Empty; Rc RC_FETCH_ADD, Rd RD_FETCH_ADD, Xrc XRC_FETCH_ADD;
    0x15 "RESYNC": Resync Only, [NONE], Empty; Rd RD_RESYNC;
    0x16 "SEND Last with Invalidate": Send Last, [IETH], OneToMtu; Rc RC_SEND_LAST_INV, Xrc XRC_SEND_LAST_INV;
    0x17 "SEND Only with Invalidate": Send Only, [IETH], UpToMtu; Rc RC_SEND_ONLY_INV, Xrc XRC_SEND_ONLY_INV;
    0x1c "FLUSH": Flush Only, [FETH, RETH], Empty; Rc RC_FLUSH, Rd RD_FLUSH, Xrc XRC_FLUSH;
    0x1d "ATOMIC WRITE": AtomicWrite Only, [RETH], Exactly(8); Rc RC_ATOMIC_WRITE, Rd RD_ATOMIC_WRITE, Xrc XRC_ATOMIC_WRITE;
}

static TABLE: [Option<OpcodeInfo>; 256] = table();

/// What a service puts before an operation's own headers: RD and UD requests the DETH, RD and XRC
/// their own header.
const fn with_service(transport: Transport, kind: Kind, own: HeaderSet) -> HeaderSet {
    match transport {
        Transport::Rc | Transport::Uc | Transport::Cnp => own,
        Transport::Ud => own.with(HeaderSet::DETH),
        Transport::Xrc if kind.is_response() => own,
        Transport::Xrc => own.with(HeaderSet::XRCETH),
        Transport::Rd if kind.is_response() => own.with(HeaderSet::RDETH),
        Transport::Rd => own.with(HeaderSet::RDETH).with(HeaderSet::DETH),
    }
}

impl Kind {
    /// Whether a responder sends it, to answer a request.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(self, Kind::ReadResponse | Kind::Acknowledge | Kind::AtomicAcknowledge)
    }
}

impl Transport {
    /// Its abbreviation, as in `RC`.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Rd => "RD",
            Transport::Ud => "UD",
            Transport::Cnp => "CNP",
            Transport::Xrc => "XRC",
        }
    }

    /// Bits 7 to 5 of the service's opcodes, in place.
    const fn base(self) -> u8 {
        match self {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Rd => 0x40,
            Transport::Ud => 0x60,
            Transport::Cnp => 0x80,
            Transport::Xrc => 0xa0,
        }
    }
}

impl Opcode {
    /// The opcode's row of the table; none if it is not defined.
    #[inline]
    pub fn info(self) -> Option<&'static OpcodeInfo> {
        TABLE[usize::from(self.0)].as_ref()
    }

    /// As in `RC SEND Only`; `reserved` if the opcode is not defined.
    pub fn name(self) -> &'static str {
        self.info().map_or("reserved", |info| info.name)
    }

    /// The service its bits 7 to 5 name, even if the operation is not defined there; none from
    /// 0xC0 on, which is left to manufacturers.
    #[inline]
    pub const fn transport(self) -> Option<Transport> {
        Some(match self.0 >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Rd,
            3 => Transport::Ud,
            4 => Transport::Cnp,
            5 => Transport::Xrc,
            _ => return None,
        })
    }

    /// The opcode of a packet; none if the service has no such operation, or the operation no such
    /// position or suffix.
    #[inline]
    pub fn encode(
        transport: Transport,
        kind: Kind,
        position: Position,
        suffix: Suffix,
    ) -> Option<Opcode> {
        use Position::{First, Last, Middle, Only};
        use Suffix::{Immediate, Invalidate, None as Plain};
        let operation = match (kind, position, suffix) {
            (Kind::Send, First, Plain) => 0x00,
            (Kind::Send, Middle, Plain) => 0x01,
            (Kind::Send, Last, Plain) => 0x02,
            (Kind::Send, Last, Immediate) => 0x03,
            (Kind::Send, Only, Plain) => 0x04,
            (Kind::Send, Only, Immediate) => 0x05,
            (Kind::Write, First, Plain) => 0x06,
            (Kind::Write, Middle, Plain) => 0x07,
            (Kind::Write, Last, Plain) => 0x08,
            (Kind::Write, Last, Immediate) => 0x09,
            (Kind::Write, Only, Plain) => 0x0a,
            (Kind::Write, Only, Immediate) => 0x0b,
            (Kind::ReadRequest, Only, Plain) => 0x0c,
            (Kind::ReadResponse, First, Plain) => 0x0d,
            (Kind::ReadResponse, Middle, Plain) => 0x0e,
            (Kind::ReadResponse, Last, Plain) => 0x0f,
            (Kind::ReadResponse, Only, Plain) => 0x10,
            (Kind::Acknowledge, Only, Plain) => 0x11,
            (Kind::AtomicAcknowledge, Only, Plain) => 0x12,
            (Kind::CompareSwap, Only, Plain) => 0x13,
            (Kind::FetchAdd, Only, Plain) => 0x14,
            (Kind::Resync, Only, Plain) => 0x15,
            (Kind::Send, Last, Invalidate) => 0x16,
            (Kind::Send, Only, Invalidate) => 0x17,
            (Kind::Flush, Only, Plain) => 0x1c,
            (Kind::AtomicWrite, Only, Plain) => 0x1d,
            (Kind::Cnp, Only, Plain) => 0x01,
            _ => return None,
        };
        let opcode = Opcode(transport.base() | operation);
        opcode.info().filter(|info| info.kind == kind).map(|_| opcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header bytes after the BTH by low five bits, as decoders commonly list them for RC.
    const RC_HEADER_BYTES: [(u8, usize); 26] = [
        (0x00, 0),
        (0x01, 0),
        (0x02, 0),
        (0x03, 4),
        (0x04, 0),
        (0x05, 4),
        (0x06, 16),
        (0x07, 0),
        (0x08, 0),
        (0x09, 4),
        (0x0a, 16),
        (0x0b, 20),
        (0x0c, 16),
        (0x0d, 4),
        (0x0e, 0),
        (0x0f, 4),
        (0x10, 4),
        (0x11, 4),
        (0x12, 12),
        (0x13, 28),
        (0x14, 28),
        (0x15, 0),
        (0x16, 4),
        (0x17, 4),
        (0x1c, 20),
        (0x1d, 16),
    ];

    fn is_response(low: u8) -> bool {
        (0x0d..=0x12).contains(&low)
    }

    #[test]
    fn each_service_defines_exactly_these() {
        let rc: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]).collect();
        let rd = (0x00..=0x15).chain([0x1c, 0x1d]).map(|low| 0x40 | low);
        let mut defined: Vec<u8> = rc.clone();
        defined.extend((0x00..=0x0b).map(|low| 0x20 | low));
        defined.extend(rd);
        defined.extend([0x64, 0x65, 0x81]);
        defined.extend(rc.iter().map(|low| 0xa0 | low));
        let table: Vec<u8> = (0..=255).filter(|&code| Opcode(code).info().is_some()).collect();
        assert_eq!(table, defined);
    }

    #[test]
    fn services_add_their_headers_to_the_operation() {
        for (low, bytes) in RC_HEADER_BYTES {
            let request = usize::from(!is_response(low));
            for (base, added) in
                [(0x00, 0), (0x20, 0), (0x40, 4 + 8 * request), (0xa0, 4 * request)]
            {
                if let Some(info) = Opcode(base | low).info() {
                    assert_eq!(info.headers_len, bytes + added, "{}", info.name);
                    assert_eq!(info.headers.len(), info.headers_len);
                }
            }
        }
        assert_eq!(Opcode::UD_SEND_ONLY.info().unwrap().headers_len, 8);
        assert_eq!(Opcode::UD_SEND_ONLY_IMM.info().unwrap().headers_len, 12);
        assert_eq!(Opcode::CNP.info().unwrap().payload, PayloadRule::Exactly(16));
    }

    #[test]
    fn payload_rule_follows_kind_and_position() {
        for info in (0..=255).filter_map(|code| Opcode(code).info()) {
            let rule = match (info.kind, info.position) {
                (Kind::Send | Kind::Write | Kind::ReadResponse, position) => match position {
                    Position::First | Position::Middle => PayloadRule::Mtu,
                    Position::Last => PayloadRule::OneToMtu,
                    Position::Only => PayloadRule::UpToMtu,
                },
                (Kind::AtomicWrite, _) => PayloadRule::Exactly(8),
                (Kind::Cnp, _) => PayloadRule::Exactly(16),
                _ => PayloadRule::Empty,
            };
            assert_eq!(info.payload, rule, "{}", info.name);
        }
    }

    #[test]
    fn encode_inverts_the_table() {
        for code in 0..=255 {
            let Some(info) = Opcode(code).info() else {
                continue;
            };
            let suffix = if info.headers.has(HeaderSet::IMM_DT) {
                Suffix::Immediate
            } else if info.headers.has(HeaderSet::IETH) {
                Suffix::Invalidate
            } else {
                Suffix::None
            };
            let opcode = Opcode::encode(info.transport, info.kind, info.position, suffix);
            assert_eq!(opcode, Some(Opcode(code)), "{}", info.name);
            assert_eq!(Opcode(code).transport(), Some(info.transport));
        }
    }

    #[test]
    fn encode_refuses_what_a_service_lacks() {
        use {Kind as K, Position as P, Suffix as S, Transport as T};
        let refused = [
            (T::Uc, K::Send, P::Only, S::Invalidate),
            (T::Uc, K::ReadRequest, P::Only, S::None),
            (T::Ud, K::Send, P::First, S::None),
            (T::Ud, K::Write, P::Only, S::None),
            (T::Rc, K::Send, P::First, S::Immediate),
            (T::Rc, K::Write, P::Only, S::Invalidate),
            (T::Rc, K::Resync, P::Only, S::None),
            (T::Rc, K::Cnp, P::Only, S::None),
            (T::Cnp, K::Send, P::Middle, S::None),
            (T::Rc, K::Acknowledge, P::First, S::None),
        ];
        for (transport, kind, position, suffix) in refused {
            let opcode = Opcode::encode(transport, kind, position, suffix);
            assert_eq!(opcode, None, "{transport:?} {kind:?} {position:?} {suffix:?}");
        }
    }

    #[test]
    fn names() {
        let table = [
            (0x00, "RC SEND First"),
            (0x09, "RC RDMA WRITE Last with Immediate"),
            (0x0d, "RC RDMA READ Response First"),
            (0x11, "RC Acknowledge"),
            (0x12, "RC ATOMIC Acknowledge"),
            (0x13, "RC CmpSwap"),
            (0x14, "RC FetchAdd"),
            (0x18, "reserved"),
            (0x1c, "RC FLUSH"),
            (0x1d, "RC ATOMIC WRITE"),
            (0x2b, "UC RDMA WRITE Only with Immediate"),
            (0x55, "RD RESYNC"),
            (0x64, "UD SEND Only"),
            (0x80, "reserved"),
            (0x81, "CNP"),
            (0xb7, "XRC SEND Only with Invalidate"),
            (0xc0, "reserved"),
        ];
        for (code, name) in table {
            assert_eq!(Opcode(code).name(), name, "{code:#x}");
        }
        assert_eq!(Opcode(0x18).transport(), Some(Transport::Rc));
        assert_eq!(Opcode(0xc0).transport(), None);
    }
}
