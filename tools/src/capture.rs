//! Capture files, frame by frame: pcap (microseconds and nanoseconds, either byte order) and pcapng
//! (several sections and interfaces, each with its own link type and clock).
//!
//! Reading is a stream with one bounded buffer: no claim made by the file decides how much memory
//! is taken. The first record that makes no sense ends the file as a [`Damage`].

use std::fmt;
use std::io::{Cursor, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock, OptionCode, parse_sectionheaderblock};
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{PcapBlockOwned, PcapError, PcapHeader, create_reader};

/// What is read of a file before its format is judged; also the buffer at the start.
const FIRST_READ: usize = 64 << 10;
/// The largest record or block accepted. Capture programs stop at 256 KiB a frame; pcapng blocks
/// of names or keys can be longer.
const RECORD_MAX: usize = 4 << 20;

/// Link types by their number in the pcap registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// IPv4 or IPv6 without a link header.
    pub const RAW: LinkType = LinkType(101);
    /// Linux cooked capture, version 1 (`-i any`).
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Endace ERF records; native InfiniBand comes in these.
    pub const ERF: LinkType = LinkType(197);
    /// IPv4 without a link header.
    pub const IPV4: LinkType = LinkType(228);
    /// IPv6 without a link header.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux cooked capture, version 2 (`-i any`).
    pub const LINUX_SLL2: LinkType = LinkType(276);
}

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its place in the file; the first frame is 1.
    pub index: u64,
    /// Nanoseconds since 1970-01-01 UTC; `None` if the file holds no time for this frame.
    pub time_ns: Option<u64>,
    /// What `bytes` begins with.
    pub link_type: LinkType,
    /// Bytes the frame had on the wire; more than `bytes` holds if the capture cut it.
    pub original_len: u32,
    /// The bytes captured.
    pub bytes: Vec<u8>,
}

/// Where and why a file could be read no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Bytes from the start of the file to the record that is damaged.
    pub offset: u64,
    /// Frames read before it.
    pub frames_before: u64,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { offset, frames_before, reason } = self;
        write!(f, "damaged at byte {offset}, after frame {frames_before}: {reason}")
    }
}

/// A capture file being read. An iterator over its frames that ends after the first [`Damage`].
pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    buffer_len: usize,
    interfaces: Vec<Interface>,
    big_endian: bool,
    frames: u64,
    ended: bool,
}

/// One interface of a pcapng section, or the only one of a pcap file.
#[derive(Clone, Copy)]
struct Interface {
    link_type: LinkType,
    clock: Clock,
}

/// How an interface counts time.
#[derive(Clone, Copy)]
struct Clock {
    ticks_per_second: u128,
    offset_s: i64,
}

impl Clock {
    fn to_ns(self, seconds: u64, ticks: u64) -> Option<u64> {
        let fraction = u128::from(ticks) * 1_000_000_000 / self.ticks_per_second;
        let whole = (i128::from(seconds) + i128::from(self.offset_s)) * 1_000_000_000;
        u64::try_from(whole + i128::try_from(fraction).ok()?).ok()
    }
}

impl Capture {
    /// Opens the capture file at `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or does not begin as a pcap or pcapng file does.
    pub fn open(path: &Path) -> Result<Capture> {
        let name = path.display();
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {name}"))?;
        Capture::new(file).with_context(|| format!("cannot read {name}"))
    }

    /// Reads a capture file from `source`, which may be a pipe.
    ///
    /// # Errors
    ///
    /// If `source` cannot be read or does not begin as a pcap or pcapng file does.
    pub fn new(mut source: impl Read + Send + 'static) -> Result<Capture> {
        let start = read_start(&mut source)?;
        match create_reader(FIRST_READ, Cursor::new(start).chain(source)) {
            Ok(reader) => Ok(Capture {
                reader,
                buffer_len: FIRST_READ,
                interfaces: Vec::new(),
                big_endian: false,
                frames: 0,
                ended: false,
            }),
            Err(PcapError::Eof) => bail!("the file is empty"),
            Err(PcapError::Incomplete(_)) => bail!("the file ends within its header"),
            Err(PcapError::ReadError) => bail!("reading failed"),
            Err(_) => bail!("neither a pcap nor a pcapng file"),
        }
    }

    fn damage(&mut self, reason: impl Into<String>) -> Damage {
        self.ended = true;
        Damage {
            offset: self.reader.consumed() as u64,
            frames_before: self.frames,
            reason: reason.into(),
        }
    }

    /// Reads one record; `None` if it holds no frame.
    fn read_record(&mut self) -> Result<Option<Frame>, Stop> {
        let (record_len, block) = match self.reader.next() {
            Ok(read) => read,
            Err(error) => return Err(Stop::from(error)),
        };
        let state = (&mut self.interfaces, &mut self.big_endian);
        let frame = frame_of(block, self.frames + 1, state).map_err(Stop::Damage)?;
        self.reader.consume(record_len);
        self.frames += u64::from(frame.is_some());
        Ok(frame)
    }

    /// Makes room for and reads more of the file. Each call moves the end of the file closer.
    fn read_more(&mut self, grow: bool) -> Result<(), String> {
        if grow {
            self.buffer_len *= 2;
            if self.buffer_len > RECORD_MAX {
                return Err(format!("a record claims more than {RECORD_MAX} bytes"));
            }
            self.reader.grow(self.buffer_len);
        }
        self.reader.refill().map_err(|_| String::from("reading failed"))
    }
}

/// Why no record was read.
enum Stop {
    End,
    NeedData,
    NeedRoom,
    Damage(String),
}

impl From<PcapError<&[u8]>> for Stop {
    fn from(error: PcapError<&[u8]>) -> Stop {
        match error {
            PcapError::Eof => Stop::End,
            PcapError::Incomplete(_) => Stop::NeedData,
            PcapError::BufferTooSmall => Stop::NeedRoom,
            PcapError::UnexpectedEof => Stop::Damage("the file ends within a record".into()),
            PcapError::ReadError => Stop::Damage("reading failed".into()),
            _ => Stop::Damage("the record makes no sense".into()),
        }
    }
}

impl Iterator for Capture {
    type Item = Result<Frame, Damage>;

    fn next(&mut self) -> Option<Result<Frame, Damage>> {
        while !self.ended {
            let more = match self.read_record() {
                Ok(Some(frame)) => return Some(Ok(frame)),
                Ok(None) => Ok(()),
                Err(Stop::End) => {
                    self.ended = true;
                    Ok(())
                }
                Err(Stop::NeedData) => self.read_more(false),
                Err(Stop::NeedRoom) => self.read_more(true),
                Err(Stop::Damage(reason)) => Err(reason),
            };
            if let Err(reason) = more {
                return Some(Err(self.damage(reason)));
            }
        }
        None
    }
}

/// Reads as much of a file as its format is judged by. A pipe may return it in small pieces, and
/// may have no more for now.
fn read_start(source: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut start = vec![0; FIRST_READ];
    let mut len = 0;
    while len < FIRST_READ && !is_start(&start[..len]) {
        match source.read(&mut start[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    start.truncate(len);
    Ok(start)
}

/// Whether these bytes hold all of a pcap header, or of a pcapng file's first block.
fn is_start(bytes: &[u8]) -> bool {
    const PCAP_HEADER_LEN: usize = 24;
    let incomplete = parse_sectionheaderblock(bytes).is_err_and(|error| error.is_incomplete());
    bytes.len() >= PCAP_HEADER_LEN && !incomplete
}

/// The frame in `block`, if it holds one, as number `index`. Blocks about the file change `state`:
/// the interfaces of this section, and its byte order.
fn frame_of(
    block: PcapBlockOwned<'_>,
    index: u64,
    (interfaces, big_endian): (&mut Vec<Interface>, &mut bool),
) -> Result<Option<Frame>, String> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            interfaces.push(only_interface(&header));
            Ok(None)
        }
        PcapBlockOwned::Legacy(record) => {
            let interface = interfaces.first().ok_or("a frame before the file's header")?;
            let (seconds, fraction) = (record.ts_sec.into(), record.ts_usec.into());
            Ok(Some(Frame {
                index,
                time_ns: interface.clock.to_ns(seconds, fraction),
                link_type: interface.link_type,
                original_len: record.origlen,
                bytes: record.data.to_vec(),
            }))
        }
        PcapBlockOwned::NG(Block::SectionHeader(section)) => {
            interfaces.clear();
            *big_endian = section.big_endian();
            Ok(None)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            interfaces.push(interface_of(&description, *big_endian)?);
            Ok(None)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = interfaces
                .get(packet.if_id as usize)
                .ok_or_else(|| format!("a frame of interface {}, not described", packet.if_id))?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            Ok(Some(Frame {
                index,
                time_ns: interface.clock.to_ns(0, ticks),
                link_type: interface.link_type,
                original_len: packet.origlen,
                bytes: packet.packet_data().to_vec(),
            }))
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            let interface = interfaces.first().ok_or("a frame before any interface")?;
            Ok(Some(Frame {
                index,
                time_ns: None,
                link_type: interface.link_type,
                original_len: packet.origlen,
                bytes: packet.packet_data().to_vec(),
            }))
        }
        PcapBlockOwned::NG(_) => Ok(None),
    }
}

/// The one interface of a pcap file.
fn only_interface(header: &PcapHeader) -> Interface {
    let nanoseconds = header.is_nanosecond_precision();
    let ticks_per_second = if nanoseconds { 1_000_000_000 } else { 1_000_000 };
    // The upper half of the field holds the length of the FCS, if there is one.
    let link_type = LinkType((header.network.0 & 0xffff) as u16);
    Interface { link_type, clock: Clock { ticks_per_second, offset_s: 0 } }
}

fn interface_of(
    description: &InterfaceDescriptionBlock<'_>,
    big_endian: bool,
) -> Result<Interface, String> {
    let option = |code| description.options.iter().find(|option| option.code == code);
    let exponent = u32::from(description.if_tsresol & 0x7f);
    let base: u128 = if description.if_tsresol & 0x80 == 0 { 10 } else { 2 };
    let ticks_per_second = base
        .checked_pow(exponent)
        .filter(|&ticks| ticks <= 1 << 64)
        .ok_or_else(|| format!("an interface with clock resolution {base}^-{exponent}"))?;
    let offset_s = option(OptionCode::IfTsoffset)
        .and_then(|option| option.value().first_chunk())
        .map_or(0, |&bytes| match big_endian {
            true => i64::from_be_bytes(bytes),
            false => i64::from_le_bytes(bytes),
        });
    let link_type = LinkType(description.linktype.0 as u16);
    Ok(Interface { link_type, clock: Clock { ticks_per_second, offset_s } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8], big_endian: bool) -> Vec<u8> {
        let word = |value: u32| {
            if big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
        };
        let padded_len = body.len().next_multiple_of(4);
        let total = word(padded_len as u32 + 12);
        let mut bytes = [word(kind), total].concat();
        bytes.extend_from_slice(body);
        bytes.resize(8 + padded_len, 0);
        bytes.extend_from_slice(&total);
        bytes
    }

    fn section_header() -> Vec<u8> {
        let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        body.extend_from_slice(&[1, 0, 0, 0]);
        body.extend_from_slice(&[0xff; 8]);
        block(0x0a0d_0d0a, &body, false)
    }

    fn interface(link_type: u16, tsresol: u8) -> Vec<u8> {
        let mut body = link_type.to_le_bytes().to_vec();
        body.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
        body.extend_from_slice(&[9, 0, 1, 0, tsresol, 0, 0, 0, 0, 0, 0, 0]);
        block(1, &body, false)
    }

    fn packet(interface: u32, ticks: u64, data: &[u8]) -> Vec<u8> {
        let len = data.len() as u32;
        let mut body = Vec::new();
        for word in [interface, (ticks >> 32) as u32, ticks as u32, len, len + 4] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(data);
        block(6, &body, false)
    }

    fn read(bytes: Vec<u8>) -> Vec<Result<Frame, Damage>> {
        Capture::new(Cursor::new(bytes)).expect("header").collect()
    }

    #[test]
    fn each_interface_has_its_link_type_and_clock() {
        let mut file = section_header();
        file.extend(interface(1, 9));
        file.extend(interface(113, 0x80 | 10));
        file.extend(packet(1, 3 * 1024 + 512, &[1, 2, 3]));
        file.extend(packet(0, 1_700_000_000_123_456_789, &[4]));
        let frames: Vec<Frame> = read(file).into_iter().map(|frame| frame.unwrap()).collect();
        assert_eq!(frames[0].link_type, LinkType::LINUX_SLL);
        assert_eq!(frames[0].time_ns, Some(3_500_000_000));
        assert_eq!((frames[0].bytes.as_slice(), frames[0].original_len), (&[1, 2, 3][..], 7));
        assert_eq!(frames[1].link_type, LinkType::ETHERNET);
        assert_eq!(frames[1].time_ns, Some(1_700_000_000_123_456_789));
        assert_eq!(frames[1].index, 2);
    }

    #[test]
    fn huge_record_is_damage_not_memory() {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&[0, 0, 4, 0, 1, 0, 0, 0]);
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&[0xff; 8]);
        file.extend_from_slice(&[0; 1000]);
        let damage = read(file).pop().unwrap().unwrap_err();
        assert_eq!((damage.offset, damage.frames_before), (24, 0));
    }

    #[test]
    fn frame_of_an_unknown_interface_ends_the_file_there() {
        let mut file = section_header();
        let offset = file.len() as u64;
        file.extend(packet(3, 0, &[0; 20]));
        let frames = read(file);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].as_ref().unwrap_err().offset, offset);
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(Capture::new(Cursor::new(b"".to_vec())).is_err());
        assert!(Capture::new(Cursor::new(vec![0xd4, 0xc3, 0xb2])).is_err());
        assert!(Capture::new(Cursor::new(b"#!/bin/sh\necho no capture here\n".to_vec())).is_err());
    }
}
