//! The memory of the device under test: plots with every kind of rights, and what must never
//! happen to them.

use ferroce::memory::Arena;
use ferroce_stack::verbs::{Access, MrKeys, Pd, VerbsError};
use ferroce_stack::{Device, MrInit};

/// Rights that let a peer do everything.
const ALL: Access = Access::REMOTE.with(Access::LOCAL_WRITE).with(Access::MW_BIND);

/// A piece of memory that may be registered.
#[derive(Debug)]
pub struct Plot {
    /// Its protection domain.
    pub pd: Pd,
    /// How it is registered.
    pub init: MrInit,
    /// Its keys while it is registered.
    pub keys: Option<MrKeys>,
    /// What it must hold while nobody may write to it.
    frozen: Option<Vec<u8>>,
    /// Nobody may ever write to it.
    read_only: bool,
}

impl Plot {
    fn new(arena: &mut Arena, pd: Pd, len: usize, access: Access, read_only: bool) -> Plot {
        let addr = arena.alloc(len);
        fill(arena.bytes_mut(addr, len));
        let init = MrInit { addr, length: len as u64, iova: addr, access };
        let frozen = Some(arena.bytes(addr, len).to_vec());
        Plot { pd, init, keys: None, frozen, read_only }
    }

    /// Address of the first byte as peers count.
    pub fn base(&self) -> u64 {
        if self.init.access.has(Access::ZERO_BASED) { 0 } else { self.init.iova }
    }

    /// Registers it.
    pub fn register(&mut self, device: &mut Device<Arena>) -> Result<(), VerbsError> {
        self.check(device.memory());
        self.keys = Some(device.reg_mr(self.pd, &self.init)?);
        if !self.read_only {
            self.frozen = None;
        }
        Ok(())
    }

    /// Deregisters it, if no window is bound to it: its bytes must not change from here on.
    pub fn deregister(&mut self, device: &mut Device<Arena>) {
        let Some(keys) = self.keys else { return };
        if device.dereg_mr(keys.mr).is_ok() {
            self.keys = None;
            let MrInit { addr, length, .. } = self.init;
            self.frozen = Some(device.memory().bytes(addr, length as usize).to_vec());
        }
    }

    /// # Panics
    ///
    /// If it has changed while nobody might write to it.
    pub fn check(&self, arena: &Arena) {
        let Some(frozen) = &self.frozen else { return };
        let MrInit { addr, length, .. } = self.init;
        assert!(arena.bytes(addr, length as usize) == frozen, "{self:x?} was written to");
    }
}

/// What peers may read, by its place.
fn fill(bytes: &mut [u8]) {
    bytes.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = (at * 7 + 3) as u8);
}

/// All plots: those of `pd`, one of the domain of an XRC SRQ, one of a domain no QP has.
pub fn all(arena: &mut Arena, pd: Pd, xrc: Pd, foreign: Pd) -> Vec<Plot> {
    let read = Access::REMOTE_READ;
    let write = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let atomic = Access::LOCAL_WRITE.with(Access::REMOTE_ATOMIC).with(Access::ZERO_BASED);
    let mut plots = vec![
        Plot::new(arena, pd, 4096, ALL, false),
        Plot::new(arena, pd, 2048, Access::LOCAL_WRITE, false),
        Plot::new(arena, pd, 2048, read.with(Access::MW_BIND), true),
        Plot::new(arena, pd, 1024, write, false),
        Plot::new(arena, pd, 68, atomic, false),
        Plot::new(arena, pd, 0, ALL, true),
        Plot::new(arena, xrc, 2048, ALL, false),
        Plot::new(arena, foreign, 1024, ALL, true),
        Plot::new(arena, pd, 1024, ALL, false),
    ];
    // Counted from an odd address.
    plots[3].init.iova = 0x1003;
    // Aligned as peers count, not so in memory.
    plots[4].init.addr += 4;
    plots[4].init.length = 64;
    plots[4].frozen = None;
    // The last byte there is.
    plots[8].init.iova = u64::MAX - 1024;
    plots
}
