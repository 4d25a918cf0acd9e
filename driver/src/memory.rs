//! Memory the transport reads and writes: the application's own ([`HostMemory`]), and memory the
//! library owns ([`Region`] for programs, [`Arena`] for tests).

mod arena;
#[allow(unsafe_code)]
mod host;
#[allow(unsafe_code)]
mod region;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64")))]
#[allow(unsafe_code)]
#[path = "memory/plain.rs"]
mod access;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64"))]
#[allow(unsafe_code)]
#[path = "memory/guarded.rs"]
mod access;

pub use arena::{ARENA_BASE, Arena, CanaryOverwritten};
pub use host::{
    HostMemory, admit_faults, copy_from, copy_from_and_sum, copy_to, fault_signals, probe,
};
pub use region::{Region, RegionError};
