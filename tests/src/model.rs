//! The model of a node's memory: what every registered area must hold.

use ferroce::world::World;
use ferroce_stack::MrInit;
use ferroce_stack::verbs::{Access, MrKeys, Pd, Remote, Sge, VerbsError};

use crate::plan::Piece;

/// A registered area with its expected content.
#[derive(Clone, Debug)]
pub struct Area {
    /// Its node.
    pub node: usize,
    /// Handle and keys.
    pub keys: MrKeys,
    /// What SGEs and peers call the first byte.
    pub base: u64,
    /// Its content is not known exactly; it is checked in another way.
    pub loose: bool,
    /// Application address.
    addr: u64,
    expected: Vec<u8>,
}

impl Area {
    /// Allocates and registers an area at `node` that holds `content`; `iova_shift` is what its
    /// addresses differ by from the application's.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn new(
        world: &mut World,
        node: usize,
        pd: Pd,
        content: Vec<u8>,
        access: Access,
        iova_shift: u64,
    ) -> Result<Area, VerbsError> {
        let device = world.device(node);
        let addr = device.memory_mut().alloc(content.len());
        device.memory_mut().bytes_mut(addr, content.len()).copy_from_slice(&content);
        let iova = addr + iova_shift;
        let init = MrInit { addr, length: content.len() as u64, iova, access };
        let keys = device.reg_mr(pd, &init)?;
        let base = if access.has(Access::ZERO_BASED) { 0 } else { iova };
        Ok(Area { node, keys, base, loose: false, addr, expected: content })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.expected.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// The pieces, for a work request.
    pub fn sges(&self, pieces: &[Piece]) -> Vec<Sge> {
        pieces
            .iter()
            .map(|&(offset, len)| Sge {
                addr: self.base + offset as u64,
                length: len as u32,
                lkey: self.keys.lkey,
            })
            .collect()
    }

    /// An offset, for the peer.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.base + offset as u64, rkey: self.keys.rkey }
    }

    /// Expected bytes of the pieces.
    pub fn gather(&self, pieces: &[Piece]) -> Vec<u8> {
        let parts = pieces.iter().map(|&(offset, len)| &self.expected[offset..offset + len]);
        parts.collect::<Vec<_>>().concat()
    }

    /// The transport will have put `data` into the pieces.
    pub fn scatter(&mut self, pieces: &[Piece], mut data: &[u8]) {
        for &(offset, len) in pieces {
            let (part, rest) = data.split_at(len.min(data.len()));
            self.expected[offset..offset + part.len()].copy_from_slice(part);
            data = rest;
        }
    }

    /// The expected word at `offset`.
    pub fn word(&self, offset: usize) -> u64 {
        let bytes = self.expected[offset..].first_chunk().expect("a word lies in the area");
        u64::from_ne_bytes(*bytes)
    }

    /// The application uses the pieces for something else.
    pub fn scribble(&mut self, world: &mut World, pieces: &[Piece]) {
        for &(offset, len) in pieces {
            let actual = world.device(self.node).memory_mut();
            let actual = actual.bytes_mut(self.addr + offset as u64, len);
            actual.iter_mut().for_each(|byte| *byte = !*byte);
            self.expected[offset..offset + len].copy_from_slice(actual);
        }
    }

    /// What memory holds from `offset` on.
    pub fn actual<'a>(&self, world: &'a World, offset: usize, len: usize) -> &'a [u8] {
        world.device_ref(self.node).memory().bytes(self.addr + offset as u64, len)
    }

    /// What memory holds in the pieces, together.
    pub fn actual_of(&self, world: &World, pieces: &[Piece]) -> Vec<u8> {
        let parts = pieces.iter().map(|&(offset, len)| self.actual(world, offset, len));
        parts.collect::<Vec<_>>().concat()
    }

    /// Compares memory with the model.
    ///
    /// # Errors
    /// Names the first byte that differs.
    pub fn check(&self, world: &World) -> Result<(), String> {
        let actual = self.actual(world, 0, self.len());
        if self.loose || actual == self.expected {
            return Ok(());
        }
        let differs = |&at: &usize| actual[at] != self.expected[at];
        let at = (0..self.len()).find(differs).unwrap_or_default();
        Err(format!(
            "node {} memory at {:#x} (offset {at} of {}) holds {:#04x}, expected {:#04x}",
            self.node,
            self.addr + at as u64,
            self.len(),
            actual[at],
            self.expected[at],
        ))
    }
}
