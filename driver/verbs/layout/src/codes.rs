//! Codes that more than one side of the interface has need of, under the names of `verbs.h` without
//! their prefixes.

/// `enum ibv_wr_opcode`.
#[allow(missing_docs, reason = "the names are those of C")]
pub mod wr {
    use core::ffi::c_int;

    pub const WRITE: c_int = 0;
    pub const WRITE_IMM: c_int = 1;
    pub const SEND: c_int = 2;
    pub const SEND_IMM: c_int = 3;
    pub const READ: c_int = 4;
    pub const COMPARE_SWAP: c_int = 5;
    pub const FETCH_ADD: c_int = 6;
    pub const LOCAL_INV: c_int = 7;
    pub const BIND_MW: c_int = 8;
    pub const SEND_INV: c_int = 9;
}

/// `IBV_SEND_INLINE` of `enum ibv_send_flags`.
pub const SEND_INLINE: u32 = 1 << 3;

/// `IBV_WC_WITH_IMM` of `enum ibv_wc_flags`.
pub const WC_WITH_IMM: u32 = 1 << 1;
/// `IBV_WC_WITH_INV`.
pub const WC_WITH_INV: u32 = 1 << 3;
