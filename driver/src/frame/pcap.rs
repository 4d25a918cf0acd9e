//! Recorder of frames: classic pcap with nanosecond timestamps, or pcapng, which also says which
//! node sent each frame.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use ferroce_stack::time::Instant;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

/// Longer than every frame.
const SNAPLEN: u32 = 65_535;

/// File format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Classic pcap.
    Pcap,
    /// pcapng, one interface for each node.
    PcapNg,
}

impl Format {
    /// pcapng for the extension `pcapng`, else pcap.
    fn of(path: &Path) -> Format {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("pcapng") => Format::PcapNg,
            _ => Format::Pcap,
        }
    }
}

type Output = BufWriter<Box<dyn Write>>;

/// Writes records in either format.
pub(super) enum Writer<W: Write> {
    Pcap(PcapWriter<W>),
    PcapNg(PcapNgWriter<W>),
}

impl<W: Write> Writer<W> {
    /// Writes the file's head: the format is that of `path`'s extension, the nodes `nodes`.
    pub fn new(output: W, path: &Path, nodes: usize) -> io::Result<Writer<W>> {
        Writer::with_format(output, Format::of(path), nodes)
    }

    fn with_format(output: W, format: Format, nodes: usize) -> io::Result<Writer<W>> {
        match format {
            Format::Pcap => new_pcap(output).map(Writer::Pcap),
            Format::PcapNg => new_pcapng(output, nodes).map(Writer::PcapNg),
        }
        .map_err(to_io)
    }

    /// Writes a record of `frame`, sent by `node` at `timestamp`.
    pub fn write(&mut self, timestamp: Duration, node: usize, frame: &[u8]) -> io::Result<()> {
        let original_len = frame.len() as u32;
        let outcome = match self {
            Writer::Pcap(writer) => {
                writer.write_packet(&PcapPacket::new(timestamp, original_len, frame))
            }
            Writer::PcapNg(writer) => writer.write_pcapng_block(EnhancedPacketBlock {
                interface_id: node as u32,
                timestamp,
                original_len,
                data: frame.into(),
                options: Vec::new(),
            }),
        };
        outcome.map(|_| ()).map_err(to_io)
    }
}

/// Writes frames to a capture. Timestamps are the virtual clock's.
pub struct Recorder {
    writer: Writer<Output>,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
    frames: u64,
}

impl Recorder {
    /// Creates the file `path`, pcapng if its extension says so and else pcap, for `nodes` nodes.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: &Path, nodes: usize) -> io::Result<Recorder> {
        Recorder::new(Box::new(File::create(path)?), Format::of(path), nodes)
    }

    fn new(output: Box<dyn Write>, format: Format, nodes: usize) -> io::Result<Recorder> {
        let output = BufWriter::with_capacity(1 << 16, output);
        let writer = Writer::with_format(output, format, nodes)?;
        Ok(Recorder { writer, failure: None, frames: 0 })
    }

    /// Records a frame of node `node`. A failure is kept for [`Recorder::finish`].
    pub fn record(&mut self, at: Instant, node: usize, frame: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let timestamp = Duration::from_nanos(at.nanos());
        match self.writer.write(timestamp, node, frame) {
            Ok(()) => self.frames += 1,
            Err(error) => self.failure = Some(error),
        }
    }

    /// Completes the capture and returns how many frames it holds.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(self) -> io::Result<u64> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let mut output = match self.writer {
            Writer::Pcap(writer) => writer.into_writer(),
            Writer::PcapNg(writer) => writer.into_inner(),
        };
        output.flush()?;
        Ok(self.frames)
    }
}

fn new_pcap<W: Write>(output: W) -> Result<PcapWriter<W>, PcapError> {
    let header = PcapHeader {
        snaplen: SNAPLEN,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    PcapWriter::with_header(output, header)
}

fn new_pcapng<W: Write>(output: W, nodes: usize) -> Result<PcapNgWriter<W>, PcapError> {
    let mut writer = PcapNgWriter::with_endianness(output, Endianness::Little)?;
    for node in 0..nodes {
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: SNAPLEN,
            options: vec![
                InterfaceDescriptionOption::IfName(format!("node{node}").into()),
                // Timestamps in units of 10^-9 s.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        })?;
    }
    Ok(writer)
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcap::PcapReader;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(format: Format) -> Vec<u8> {
        let output = Shared::default();
        let mut recorder = Recorder::new(Box::new(output.clone()), format, 2).unwrap();
        recorder.record(Instant::from_nanos(1_000_000_007), 1, &[1, 2, 3]);
        assert_eq!(recorder.finish().unwrap(), 1);
        output.0.take()
    }

    #[test]
    fn pcap_keeps_nanoseconds() {
        let bytes = record(Format::Pcap);
        let mut reader = PcapReader::new(&bytes[..]).unwrap();
        assert_eq!(reader.header().datalink, DataLink::ETHERNET);
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!(
            (packet.timestamp.as_nanos(), &packet.data[..]),
            (1_000_000_007, &[1, 2, 3][..])
        );
    }

    #[test]
    fn pcapng_names_the_node() {
        let bytes = record(Format::PcapNg);
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                packets.push((packet.interface_id, packet.timestamp.as_nanos(), packet.data.len()));
            }
        }
        assert_eq!(packets, [(1, 1_000_000_007, 3)]);
        assert_eq!(reader.interfaces().len(), 2);
    }

    #[test]
    fn the_extension_decides() {
        assert_eq!(Format::of(Path::new("a.pcapng")), Format::PcapNg);
        assert_eq!(Format::of(Path::new("a.pcap")), Format::Pcap);
    }
}
