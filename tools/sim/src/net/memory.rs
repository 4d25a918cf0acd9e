//! What the hosts' programs send and receive: a pattern that costs next to no memory, however many
//! messages there are and however long. What arrives is counted, and nothing is kept.

use ferroce_stack::memory::{AtomicOp, Memory, MemoryFault, Span};

/// Bytes after which the pattern begins again.
const PERIOD: usize = 4096;
/// Bits of an address that are an offset in a message: none is longer than 2^31 bytes.
const OFFSET_BITS: u32 = 31;
/// Bits that number the receives of a QP.
const RING_BITS: u32 = 8;
/// Bits that number flows and receiving QPs.
const INDEX_BITS: u32 = 22;

/// Receives of a QP that can be told apart.
pub const RING_MAX: u32 = 1 << RING_BITS;
/// Flows, or ends of QP pairs, that can be told apart.
pub const INDEX_MAX: usize = 1 << INDEX_BITS;
/// Length of the one region, from address 0, that holds every area.
pub const REGION_LEN: u64 = 1 << (OFFSET_BITS + RING_BITS + INDEX_BITS + 1);

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The memory that a flow's WRITEs and READs fill.
    Flow(u32),
    /// The memory of a receive work request.
    Receive {
        /// The end of a QP pair it is posted to.
        end: u32,
        /// Its number, modulo [`RING_MAX`].
        ring: u32,
    },
}

impl Area {
    /// Address of its first byte.
    pub const fn addr(self) -> u64 {
        let (index, ring, is_receive) = match self {
            Area::Flow(flow) => (flow, 0, 0),
            Area::Receive { end, ring } => (end, ring % RING_MAX, 1),
        };
        let area = (index as u64) << (RING_BITS + 1) | (ring as u64) << 1 | is_receive;
        area << OFFSET_BITS
    }

    /// The area an address is in.
    pub const fn of(addr: u64) -> Area {
        let area = addr >> OFFSET_BITS;
        let index = (area >> (RING_BITS + 1)) as u32;
        match area & 1 {
            0 => Area::Flow(index),
            _ => Area::Receive { end: index, ring: (area >> 1) as u32 % RING_MAX },
        }
    }
}

/// The memory of a host.
#[derive(Debug)]
pub struct Pattern {
    /// Two periods, so that any packet is one run of them.
    bytes: Box<[u8]>,
    /// Where payload has landed since that was last asked, and how many bytes.
    pub landed: Vec<(Area, u32)>,
}

impl Default for Pattern {
    fn default() -> Pattern {
        let byte = |at: usize| (at % PERIOD) as u8 ^ ((at % PERIOD) >> 8) as u8;
        Pattern { bytes: (0..2 * PERIOD).map(byte).collect(), landed: Vec::new() }
    }
}

impl Memory for Pattern {
    #[inline]
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault> {
        for (chunk, at) in out.chunks_mut(PERIOD).zip((span.addr()..).step_by(PERIOD)) {
            let start = at as usize % PERIOD;
            chunk.copy_from_slice(&self.bytes[start..start + chunk.len()]);
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault> {
        self.landed.push((Area::of(span.addr()), data.len() as u32));
        Ok(())
    }

    fn atomic(&mut self, _: Span, _: AtomicOp) -> Result<u64, MemoryFault> {
        Err(MemoryFault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_told_apart_by_their_addresses() {
        let last = INDEX_MAX as u32 - 1;
        for area in [
            Area::Flow(0),
            Area::Flow(last),
            Area::Receive { end: 0, ring: 0 },
            Area::Receive { end: last, ring: RING_MAX - 1 },
        ] {
            assert_eq!(Area::of(area.addr()), area);
            assert_eq!(Area::of(area.addr() + (1 << 31) - 1), area);
            assert!(area.addr() + (1 << 31) <= REGION_LEN);
        }
    }
}
