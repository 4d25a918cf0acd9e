//! The checked-in captures.

use std::fs;
use std::path::PathBuf;

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;

/// Path of a file among the captures.
pub fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../tests/captures", name].iter().collect()
}

/// Link type and frames of a capture, without what the link type puts before them.
pub fn frames(name: &str) -> (DataLink, Vec<Vec<u8>>) {
    /// Record header of an ERF frame without extensions.
    const ERF_HEADER_LEN: usize = 16;
    let file = fs::File::open(path(name)).unwrap();
    let mut reader = PcapReader::new(file).unwrap();
    let link = reader.header().datalink;
    let skip = if link == DataLink::ERF { ERF_HEADER_LEN } else { 0 };
    let mut frames = Vec::new();
    while let Some(record) = reader.next_packet() {
        frames.push(record.unwrap().data[skip..].to_vec());
    }
    (link, frames)
}
