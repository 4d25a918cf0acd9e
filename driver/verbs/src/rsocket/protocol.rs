//! What rsockets say to each other: the private data of REQ and REP, the immediate data of a
//! message, and the entries that a peer writes into our memory.
//!
//! Private data is in network order. Entries in memory are in the order of the host that reads
//! them, which the flags of its private data tell.

/// The only version there is.
pub const VERSION: u8 = 1;
/// Entries of our list of targets.
pub const TARGETS: usize = 2;

/// The sender of the private data reads its memory in network order.
const BIG_ENDIAN: u8 = 1;
/// The sender has a table of mapped buffers.
const IOMAP: u8 = 2;
/// Bits of a size in the private data.
const SCALE_BITS: u32 = 8;
/// Bits of a message that are data; the others are its kind.
const DATA_BITS: u32 = 29;

/// A piece of a peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Address.
    pub addr: u64,
    /// R_Key.
    pub rkey: u32,
    /// Bytes, or entries of a list.
    pub length: u32,
}

impl Target {
    /// Bytes of an entry.
    pub const LEN: usize = 16;

    /// From the three fields as a host has them in memory.
    fn from_fields(addr: [u8; 8], rkey: [u8; 4], length: [u8; 4], order: Order) -> Target {
        Target { addr: order.u64(addr), rkey: order.u32(rkey), length: order.u32(length) }
    }

    /// As an entry of a host that reads its memory in `order`.
    pub fn emit(&self, order: Order) -> [u8; Target::LEN] {
        let mut entry = [0; Target::LEN];
        entry[..8].copy_from_slice(&order.bytes_u64(self.addr));
        entry[8..12].copy_from_slice(&order.bytes_u32(self.rkey));
        entry[12..].copy_from_slice(&order.bytes_u32(self.length));
        entry
    }

    /// An entry of `order`.
    pub fn parse(entry: &[u8; Target::LEN], order: Order) -> Target {
        let [a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, l0, l1, l2, l3] = *entry;
        let addr = [a0, a1, a2, a3, a4, a5, a6, a7];
        Target::from_fields(addr, [k0, k1, k2, k3], [l0, l1, l2, l3], order)
    }
}

/// A buffer a peer has mapped: its offset, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// What the peer's application calls its first byte.
    pub offset: u64,
    /// Where it is.
    pub target: Target,
}

impl Mapping {
    /// Bytes of an entry.
    pub const LEN: usize = 24;

    /// As an entry of a host that reads its memory in `order`.
    pub fn emit(&self, order: Order) -> [u8; Mapping::LEN] {
        let mut entry = [0; Mapping::LEN];
        entry[..8].copy_from_slice(&order.bytes_u64(self.offset));
        entry[8..].copy_from_slice(&self.target.emit(order));
        entry
    }

    /// An entry of `order`.
    pub fn parse(entry: &[u8; Mapping::LEN], order: Order) -> Mapping {
        let (mut offset, mut target) = ([0; 8], [0; Target::LEN]);
        offset.copy_from_slice(&entry[..8]);
        target.copy_from_slice(&entry[8..]);
        Mapping { offset: order.u64(offset), target: Target::parse(&target, order) }
    }
}

/// The byte order of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As on x86-64.
    Little,
    /// As in a packet.
    Big,
}

impl Order {
    /// Ours.
    pub const HOST: Order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    fn bytes_u64(self, value: u64) -> [u8; 8] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    fn bytes_u32(self, value: u32) -> [u8; 4] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }
}

/// The private data of REQ and REP: what the other end needs to send to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// How this end reads its memory.
    pub order: Order,
    /// Messages it has room for.
    pub credits: u16,
    /// Entries of its table of mapped buffers, which lies behind the list of targets.
    pub mappings: u16,
    /// Its list of targets; `length` is the number of entries.
    pub list: Target,
    /// Its first buffer, as if it stood in the list's first entry.
    pub buffer: Target,
}

impl Hello {
    /// Bytes of it.
    pub const LEN: usize = 40;

    /// `None` if it is too short, of another version, or has a list without entries.
    pub fn parse(data: &[u8]) -> Option<Hello> {
        let data: &[u8; Hello::LEN] = data.first_chunk()?;
        let [version, flags, c0, c1, _, _, _, mappings, rest @ ..] = *data;
        let (list, buffer) = rest.split_at(Target::LEN);
        let list = Target::parse(list.first_chunk()?, Order::Big);
        let buffer = Target::parse(buffer.first_chunk()?, Order::Big);
        if version != VERSION || list.length == 0 {
            return None;
        }
        let order = if flags & BIG_ENDIAN != 0 { Order::Big } else { Order::Little };
        let mappings = if flags & IOMAP != 0 { from_scale(mappings) } else { 0 };
        Some(Hello { order, credits: u16::from_be_bytes([c0, c1]), mappings, list, buffer })
    }

    /// As private data. The number of mappings must be one of [`scaled`].
    pub fn emit(&self) -> [u8; Hello::LEN] {
        let mut data = [0; Hello::LEN];
        data[0] = VERSION;
        data[1] = IOMAP | if self.order == Order::Big { BIG_ENDIAN } else { 0 };
        data[2..4].copy_from_slice(&self.credits.to_be_bytes());
        data[7] = to_scale(self.mappings);
        data[8..24].copy_from_slice(&self.list.emit(Order::Big));
        data[24..].copy_from_slice(&self.buffer.emit(Order::Big));
        data
    }
}

/// The largest size not above `size` that the private data can tell.
pub fn scaled(size: u16) -> u16 {
    let most = from_scale(u8::MAX);
    from_scale(to_scale(size.min(most)))
}

/// Small sizes as they are; larger ones as multiples of 256, with the highest bit set.
fn to_scale(size: u16) -> u8 {
    let limit = 1 << (SCALE_BITS - 1);
    match size <= limit {
        true => size as u8,
        false => limit as u8 | (size >> SCALE_BITS) as u8,
    }
}

fn from_scale(code: u8) -> u16 {
    let limit = 1 << (SCALE_BITS - 1);
    match code <= limit {
        true => u16::from(code),
        false => u16::from(code & !limit) << SCALE_BITS,
    }
}

/// A message: the immediate data of an RDMA WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// So many bytes have been written behind those of the last such message.
    Data(u32),
    /// The messages up to this number may be sent; an entry of the list of targets may be new.
    Credit(u16),
    /// This entry of the table of mapped buffers is new.
    Mapped(u16),
    /// Nothing more will be sent or read.
    Disconnect,
    /// The peer is there.
    KeepAlive,
    /// Nothing more will be sent.
    Shutdown,
    /// Of a kind, or with a code, that means nothing.
    Unknown,
}

const DATA: u32 = 0;
const CREDIT: u32 = 4;
const MAPPED: u32 = 6;
const CONTROL: u32 = 7;

const DISCONNECT: u32 = 0;
const KEEP_ALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

impl Message {
    /// The largest number of bytes of a data message.
    pub const MAX_DATA: u32 = (1 << DATA_BITS) - 1;

    /// From immediate data in host order.
    pub fn parse(imm: u32) -> Message {
        let data = imm & Message::MAX_DATA;
        match (imm >> DATA_BITS, data) {
            (DATA, length) => Message::Data(length),
            // The number of a message has 16 bits; what is above them is a carry.
            (CREDIT, number) => Message::Credit(number as u16),
            (MAPPED, index) => Message::Mapped(index as u16),
            (CONTROL, DISCONNECT) => Message::Disconnect,
            (CONTROL, KEEP_ALIVE) => Message::KeepAlive,
            (CONTROL, SHUTDOWN) => Message::Shutdown,
            _ => Message::Unknown,
        }
    }

    /// Immediate data in host order; `None` of what cannot be sent.
    pub fn emit(self) -> Option<u32> {
        let (kind, data) = match self {
            Message::Data(length) if length <= Message::MAX_DATA => (DATA, length),
            Message::Credit(number) => (CREDIT, u32::from(number)),
            Message::Mapped(index) => (MAPPED, u32::from(index)),
            Message::Disconnect => (CONTROL, DISCONNECT),
            Message::KeepAlive => (CONTROL, KEEP_ALIVE),
            Message::Shutdown => (CONTROL, SHUTDOWN),
            Message::Data(_) | Message::Unknown => return None,
        };
        Some(kind << DATA_BITS | data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            order: Order::Little,
            credits: 384,
            mappings: 5,
            list: Target { addr: 0x7f01_0203_0405_0607, rkey: 0x1122_3344, length: 2 },
            buffer: Target { addr: 0x10_2000, rkey: 0x5566_7788, length: 65_536 },
        }
    }

    #[test]
    fn private_data_has_its_fields_where_peers_look() {
        let data = hello().emit();
        let wanted = [
            1, 2, 0x01, 0x80, 0, 0, 0, 5, // version, flags, credits, mappings
            0x7f, 1, 2, 3, 4, 5, 6, 7, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 2, // list
            0, 0, 0, 0, 0, 0x10, 0x20, 0, 0x55, 0x66, 0x77, 0x88, 0, 1, 0, 0, // buffer
        ];
        assert_eq!(data, wanted);
        assert_eq!(Hello::parse(&data), Some(hello()));
        // REQ and REP have more room.
        assert_eq!(Hello::parse(&[&data[..], &[0; 16]].concat()), Some(hello()));
    }

    #[test]
    fn private_data_that_cannot_be_is_refused() {
        let data = hello().emit();
        assert_eq!(Hello::parse(&data[..39]), None);
        assert_eq!(Hello::parse(&[]), None);
        let with = |at: usize, byte| {
            let mut data = data;
            data[at] = byte;
            Hello::parse(&data)
        };
        assert_eq!(with(0, 2), None);
        assert_eq!(with(23, 0), None);
        assert_eq!(with(1, 0), Some(Hello { mappings: 0, ..hello() }));
        assert_eq!(with(1, 3), Some(Hello { order: Order::Big, ..hello() }));
    }

    #[test]
    fn sizes_survive_their_scale() {
        for size in (0..=128).chain([256, 512, 0x100 * 127]) {
            assert_eq!(scaled(size), size);
        }
        assert_eq!((scaled(300), scaled(u16::MAX)), (256, 0x7f00));
        assert!((0..=u16::MAX).all(|size| scaled(size) <= size));
    }

    #[test]
    fn entries_are_in_the_order_of_their_reader() {
        let target = Target { addr: 0x0102_0304_0506_0708, rkey: 0x0a0b_0c0d, length: 0x10 };
        let little = [8, 7, 6, 5, 4, 3, 2, 1, 0xd, 0xc, 0xb, 0xa, 0x10, 0, 0, 0];
        assert_eq!(target.emit(Order::Little), little);
        let mapping = Mapping { offset: 7, target };
        for order in [Order::Little, Order::Big] {
            assert_eq!(Target::parse(&target.emit(order), order), target);
            assert_eq!(Mapping::parse(&mapping.emit(order), order), mapping);
        }
    }

    #[test]
    fn messages_are_told_by_their_upper_three_bits() {
        let known = [
            (Message::Data(5), 0x0000_0005),
            (Message::Credit(0x180), 0x8000_0180),
            (Message::Mapped(3), 0xc000_0003),
            (Message::Disconnect, 0xe000_0000),
            (Message::KeepAlive, 0xe000_0001),
            (Message::Shutdown, 0xe000_0002),
        ];
        for (message, imm) in known {
            assert_eq!((message.emit(), Message::parse(imm)), (Some(imm), message));
        }
        for imm in [0x2000_0001, 0x4000_0001, 0x6000_0000, 0xa000_0000, 0xe000_0003] {
            assert_eq!(Message::parse(imm), Message::Unknown);
        }
        assert_eq!(Message::Data(Message::MAX_DATA + 1).emit(), None);
        assert_eq!(Message::parse(0x8001_0002), Message::Credit(2));
    }
}
