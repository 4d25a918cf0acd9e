//! The structures programs share with us, byte for byte (x86-64 and aarch64 Linux, LP64).
//!
//! Their sizes only ever grow: what is here is the largest shape known, so that a program built
//! against an older header finds every field where it looks for it. `ibv_port_attr` and
//! `ibv_qp_ex` grew at the end, `verbs_context` at the front. Field names are those of
//! `infiniband/verbs.h` and `rdma/rdma_cma.h`; each offset is checked when this is compiled.

mod attr;
pub mod codes;
mod device;
mod flow;
mod kern;
mod object;
mod rdma;
mod work;

pub use attr::*;
pub use device::*;
pub use flow::*;
pub use kern::*;
pub use object::*;
pub use rdma::*;
pub use work::*;

/// One structure: its name in C, its size, and its fields with their offsets, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name in C, without `struct`.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Field names and offsets.
    pub fields: &'static [(&'static str, usize)],
}

/// Every structure of this module.
pub const LAYOUTS: [&[Layout]; 7] = [
    device::LAYOUTS,
    object::LAYOUTS,
    attr::LAYOUTS,
    work::LAYOUTS,
    flow::LAYOUTS,
    kern::LAYOUTS,
    rdma::LAYOUTS,
];

/// A structure of the ABI, valid when all its bytes are zero.
///
/// # Safety
/// All-zero bytes must be a valid value.
pub unsafe trait Abi: Copy {}

/// A structure of zero bytes.
pub fn zeroed<T: Abi>() -> T {
    // SAFETY: `Abi` promises that zero bytes are a valid value.
    unsafe { core::mem::zeroed() }
}

/// Structures with the offset of each field said and checked.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident = $c:literal, $size:literal {
        $($field:ident @ $offset:literal: $ty:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(non_snake_case)] // The names are those of C.
            pub struct $name {
                $(#[doc = concat!("At byte ", $offset, ".")] pub $field: $ty,)*
            }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
            };

            // SAFETY: every field is a number, a raw pointer, an optional function or such a
            // structure itself.
            unsafe impl $crate::Abi for $name {}
        )*

        /// The structures of this file.
        pub(super) const LAYOUTS: &[$crate::Layout] = &[$($crate::Layout {
            name: $c,
            size: $size,
            fields: &[$((stringify!($field), $offset),)*],
        },)*];
    };
}
use layout;
