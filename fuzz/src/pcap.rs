//! `ferroce decode` on arbitrary files: it ends, does not panic, and its output stays in
//! proportion to its input.

use std::io::{self, Cursor, Write};

use ferroce_tools::capture::Capture;
use ferroce_tools::decode::{Options, decode};

/// Bytes of output for any file, and for each byte of it. A record of pcapng takes 12 bytes at
/// least, and a line of output with its findings some hundred.
const OUTPUT: u64 = 1 << 16;
const OUTPUT_OF_A_BYTE: u64 = 1 << 10;

/// Counts what is written and keeps nothing.
struct Sink {
    left: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.expect("output out of proportion");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes all but the first byte of `data`, which says how, as a capture file.
///
/// # Panics
///
/// If the output is out of proportion, or anything of the decoder panics.
pub fn pcap(data: &[u8]) {
    let Some((&how, file)) = data.split_first() else { return };
    let Ok(capture) = Capture::new(Cursor::new(file.to_vec())) else { return };
    let options = Options { json: how & 1 != 0, verify: how & 2 != 0, complete: how & 4 != 0 };
    let mut out = Sink { left: OUTPUT + OUTPUT_OF_A_BYTE * file.len() as u64 };
    decode(capture, options, &mut out).expect("the sink takes everything");
}
