//! The payload of a packet that is being made, and the packet's ICRC, which of a long one is summed
//! while each byte is at hand.

use std::ops::Range;

use crate::icrc;
use crate::memory::{Memory, MemoryFault, Span};
use crate::wire::Layout;

/// Payload bytes of a long packet.
const LONG: usize = 512;

/// Bytes of a piece that is summed by itself; shorter ones are summed together.
const PIECE: usize = 256;

/// The ICRC of a packet that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sum {
    /// The packet is short: in one piece, when all of it is there.
    AtTheEnd,
    /// The CRC of what there is of it.
    SoFar(u32),
}

impl Sum {
    /// Takes in the next bytes of the packet.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        if let Sum::SoFar(crc) = self
            && !bytes.is_empty()
        {
            *crc = icrc::append(*crc, bytes);
        }
    }

    /// Of a packet that has all but the ICRC.
    #[inline]
    pub fn finish(self, frame: &[u8], layout: &Layout) -> u32 {
        match self {
            Sum::AtTheEnd => icrc::compute(frame, layout),
            Sum::SoFar(crc) => crc,
        }
    }
}

/// A payload that is filled in from its start to its end.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    bytes: &'a mut [u8],
    sum: Sum,
    /// How many of the bytes are in the sum.
    summed: usize,
}

impl<'a> Outgoing<'a> {
    /// Of a packet that has its headers.
    #[inline]
    pub fn begin(frame: &'a mut [u8], layout: &Layout, len: usize) -> Outgoing<'a> {
        let sum = match len < LONG {
            true => Sum::AtTheEnd,
            false => Sum::SoFar(icrc::of_headers(frame, layout)),
        };
        Outgoing { bytes: &mut frame[layout.payload..layout.payload + len], sum, summed: 0 }
    }

    /// Bytes with nothing around them.
    pub fn bare(bytes: &'a mut [u8]) -> Outgoing<'a> {
        Outgoing { bytes, sum: Sum::AtTheEnd, summed: 0 }
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Fills a range, the next, from memory.
    #[inline]
    pub fn read(
        &mut self,
        range: Range<usize>,
        memory: &dyn Memory,
        span: Span,
    ) -> Result<(), MemoryFault> {
        let (start, end) = (range.start, range.end);
        if end - start < PIECE {
            return memory.read(span, &mut self.bytes[range]);
        }
        self.sum.add(&self.bytes[self.summed..start]);
        self.summed = end;
        let out = &mut self.bytes[range];
        match &mut self.sum {
            Sum::AtTheEnd => memory.read(span, out),
            Sum::SoFar(crc) => memory.read_and_sum(span, out, *crc).map(|sum| *crc = sum),
        }
    }

    /// Fills a range, the next, byte by byte.
    #[inline]
    pub fn fill<'b>(&mut self, range: Range<usize>, bytes: impl Iterator<Item = &'b u8>) {
        self.bytes[range].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// Fills all of it.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.copy_from_slice(bytes);
    }

    /// The sum of what has been filled in, and of the headers before it.
    #[inline]
    pub fn sum(mut self) -> Sum {
        self.sum.add(&self.bytes[self.summed..]);
        self.sum
    }
}
