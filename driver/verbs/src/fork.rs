//! The fork calls of libibverbs. They exist to keep pages under DMA out of a child's reach; our
//! copies are made by the processor, so that copy-on-write does no harm and there is nothing to
//! do.

use core::ffi::{c_int, c_void};

/// `IBV_FORK_UNNEEDED`.
const UNNEEDED: c_int = 2;

pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    UNNEEDED
}

pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
