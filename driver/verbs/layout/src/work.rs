//! Work requests and completions.

use core::ffi::{c_int, c_void};

use super::layout;
use super::object::{IbvAh, IbvMr, IbvMw};

/// `wr` of a send work request: what its opcode needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IbvSendWrOp {
    /// RDMA.
    pub rdma: IbvRdma,
    /// Atomics.
    pub atomic: IbvAtomic,
    /// Datagrams.
    pub ud: IbvUd,
}

// SAFETY: all its variants are.
unsafe impl super::Abi for IbvSendWrOp {}

/// The unnamed last union of a send work request.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IbvSendWrTail {
    /// Bind of a window.
    pub bind_mw: IbvWrBindMw,
    /// Segmentation offload of raw packets.
    pub tso: IbvWrTso,
}

// SAFETY: all its variants are.
unsafe impl super::Abi for IbvSendWrTail {}

/// Remote memory of an RDMA operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvRdma {
    /// Address.
    pub remote_addr: u64,
    /// R_Key.
    pub rkey: u32,
}

/// Remote memory and operands of an atomic.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvAtomic {
    /// Address.
    pub remote_addr: u64,
    /// What to compare with, or to add.
    pub compare_add: u64,
    /// What to swap in.
    pub swap: u64,
    /// R_Key.
    pub rkey: u32,
}

/// Where a datagram goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvUd {
    /// Address handle.
    pub ah: *mut IbvAh,
    /// QPN.
    pub remote_qpn: u32,
    /// Q_Key.
    pub remote_qkey: u32,
}

/// A bind as a work request.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvWrBindMw {
    /// The window.
    pub mw: *mut IbvMw,
    /// Its new key.
    pub rkey: u32,
    /// To what.
    pub bind_info: IbvMwBindInfo,
}

/// Segmentation offload.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvWrTso {
    /// Headers.
    pub hdr: *mut c_void,
    /// Bytes of them.
    pub hdr_sz: u16,
    /// Largest segment.
    pub mss: u16,
}

layout! {
    /// A piece of local memory.
    IbvSge = "ibv_sge", 16 {
        addr @ 0: u64,
        length @ 8: u32,
        lkey @ 12: u32,
    }

    /// A piece of memory without a key.
    IbvDataBuf = "ibv_data_buf", 16 {
        addr @ 0: *mut c_void,
        length @ 8: usize,
    }

    /// What a window is bound to.
    IbvMwBindInfo = "ibv_mw_bind_info", 32 {
        mr @ 0: *mut IbvMr,
        addr @ 8: u64,
        length @ 16: u64,
        mw_access_flags @ 24: u32,
    }

    /// A bind of a type 1 window.
    IbvMwBind = "ibv_mw_bind", 48 {
        wr_id @ 0: u64,
        send_flags @ 8: u32,
        bind_info @ 16: IbvMwBindInfo,
    }

    /// A send work request; `imm_data` also holds the key to invalidate.
    IbvSendWr = "ibv_send_wr", 128 {
        wr_id @ 0: u64,
        next @ 8: *mut IbvSendWr,
        sg_list @ 16: *mut IbvSge,
        num_sge @ 24: c_int,
        opcode @ 28: c_int,
        send_flags @ 32: u32,
        imm_data @ 36: u32,
        wr @ 40: IbvSendWrOp,
        qp_type @ 72: u32,
        bind_mw @ 80: IbvSendWrTail,
    }

    /// A receive work request.
    IbvRecvWr = "ibv_recv_wr", 32 {
        wr_id @ 0: u64,
        next @ 8: *mut IbvRecvWr,
        sg_list @ 16: *mut IbvSge,
        num_sge @ 24: c_int,
    }

    /// A completion; `imm_data` in network order, or the key that was invalidated.
    IbvWc = "ibv_wc", 48 {
        wr_id @ 0: u64,
        status @ 8: c_int,
        opcode @ 12: c_int,
        vendor_err @ 16: u32,
        byte_len @ 20: u32,
        imm_data @ 24: u32,
        qp_num @ 28: u32,
        src_qp @ 32: u32,
        wc_flags @ 36: u32,
        pkey_index @ 40: u16,
        slid @ 42: u16,
        sl @ 44: u8,
        dlid_path_bits @ 45: u8,
    }

    /// Options of `ibv_start_poll`.
    IbvPollCqAttr = "ibv_poll_cq_attr", 4 {
        comp_mask @ 0: u32,
    }

    /// Tag matching.
    IbvWcTmInfo = "ibv_wc_tm_info", 16 {
        tag @ 0: u64,
        priv_ @ 8: u32,
    }
}
