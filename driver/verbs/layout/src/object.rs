//! Objects programs hold pointers to. Each is the head of a larger allocation of ours.

use core::ffi::{c_int, c_void};

use super::device::{EmptySlot, IbvContext};
use super::layout;
use super::work::{IbvDataBuf, IbvMwBindInfo, IbvPollCqAttr, IbvSge, IbvWcTmInfo};

/// A setter or work request of `ibv_qp_ex` without arguments of its own.
pub type QpExCall = Option<unsafe extern "C" fn(*mut IbvQpEx)>;
/// A reader of `ibv_cq_ex`.
pub type CqExReader<T> = Option<unsafe extern "C" fn(*mut IbvCqEx) -> T>;

layout! {
    /// A protection domain.
    IbvPd = "ibv_pd", 16 {
        context @ 0: *mut IbvContext,
        handle @ 8: u32,
    }

    /// A thread domain.
    IbvTd = "ibv_td", 8 {
        context @ 0: *mut IbvContext,
    }

    /// An XRC domain.
    IbvXrcd = "ibv_xrcd", 8 {
        context @ 0: *mut IbvContext,
    }

    /// A memory region.
    IbvMr = "ibv_mr", 48 {
        context @ 0: *mut IbvContext,
        pd @ 8: *mut IbvPd,
        addr @ 16: *mut c_void,
        length @ 24: usize,
        handle @ 32: u32,
        lkey @ 36: u32,
        rkey @ 40: u32,
    }

    /// A memory window.
    IbvMw = "ibv_mw", 32 {
        context @ 0: *mut IbvContext,
        pd @ 8: *mut IbvPd,
        rkey @ 16: u32,
        handle @ 20: u32,
        type_ @ 24: c_int,
    }

    /// An address handle.
    IbvAh = "ibv_ah", 24 {
        context @ 0: *mut IbvContext,
        pd @ 8: *mut IbvPd,
        handle @ 16: u32,
    }

    /// Device memory.
    IbvDm = "ibv_dm", 32 {
        context @ 0: *mut IbvContext,
        memcpy_to_dm @ 8:
            Option<unsafe extern "C" fn(*mut IbvDm, u64, *const c_void, usize) -> c_int>,
        memcpy_from_dm @ 16:
            Option<unsafe extern "C" fn(*mut c_void, *mut IbvDm, u64, usize) -> c_int>,
        comp_mask @ 24: u32,
        handle @ 28: u32,
    }

    /// A completion channel.
    IbvCompChannel = "ibv_comp_channel", 16 {
        context @ 0: *mut IbvContext,
        fd @ 8: c_int,
        refcnt @ 12: c_int,
    }

    /// A completion queue.
    IbvCq = "ibv_cq", 128 {
        context @ 0: *mut IbvContext,
        channel @ 8: *mut IbvCompChannel,
        cq_context @ 16: *mut c_void,
        handle @ 24: u32,
        cqe @ 28: c_int,
        mutex @ 32: libc::pthread_mutex_t,
        cond @ 72: libc::pthread_cond_t,
        comp_events_completed @ 120: u32,
        async_events_completed @ 124: u32,
    }

    /// A completion queue with readers; its first 128 bytes are an `ibv_cq`.
    IbvCqEx = "ibv_cq_ex", 288 {
        context @ 0: *mut IbvContext,
        channel @ 8: *mut IbvCompChannel,
        cq_context @ 16: *mut c_void,
        handle @ 24: u32,
        cqe @ 28: c_int,
        mutex @ 32: libc::pthread_mutex_t,
        cond @ 72: libc::pthread_cond_t,
        comp_events_completed @ 120: u32,
        async_events_completed @ 124: u32,
        comp_mask @ 128: u32,
        status @ 132: c_int,
        wr_id @ 136: u64,
        start_poll @ 144:
            Option<unsafe extern "C" fn(*mut IbvCqEx, *mut IbvPollCqAttr) -> c_int>,
        next_poll @ 152: CqExReader<c_int>,
        end_poll @ 160: CqExReader<()>,
        read_opcode @ 168: CqExReader<c_int>,
        read_vendor_err @ 176: CqExReader<u32>,
        read_byte_len @ 184: CqExReader<u32>,
        read_imm_data @ 192: CqExReader<u32>,
        read_qp_num @ 200: CqExReader<u32>,
        read_src_qp @ 208: CqExReader<u32>,
        read_wc_flags @ 216: CqExReader<u32>,
        read_slid @ 224: CqExReader<u32>,
        read_sl @ 232: CqExReader<u8>,
        read_dlid_path_bits @ 240: CqExReader<u8>,
        read_completion_ts @ 248: CqExReader<u64>,
        read_cvlan @ 256: CqExReader<u16>,
        read_flow_tag @ 264: CqExReader<u32>,
        read_tm_info @ 272: Option<unsafe extern "C" fn(*mut IbvCqEx, *mut IbvWcTmInfo)>,
        read_completion_wallclock_ns @ 280: CqExReader<u64>,
    }

    /// A shared receive queue.
    IbvSrq = "ibv_srq", 128 {
        context @ 0: *mut IbvContext,
        srq_context @ 8: *mut c_void,
        pd @ 16: *mut IbvPd,
        handle @ 24: u32,
        mutex @ 32: libc::pthread_mutex_t,
        cond @ 72: libc::pthread_cond_t,
        events_completed @ 120: u32,
    }

    /// A queue pair.
    IbvQp = "ibv_qp", 160 {
        context @ 0: *mut IbvContext,
        qp_context @ 8: *mut c_void,
        pd @ 16: *mut IbvPd,
        send_cq @ 24: *mut IbvCq,
        recv_cq @ 32: *mut IbvCq,
        srq @ 40: *mut IbvSrq,
        handle @ 48: u32,
        qp_num @ 52: u32,
        state @ 56: c_int,
        qp_type @ 60: c_int,
        mutex @ 64: libc::pthread_mutex_t,
        cond @ 104: libc::pthread_cond_t,
        events_completed @ 152: u32,
    }

    /// A queue pair with the `ibv_wr_*` calls. Keys and addresses come before other arguments.
    IbvQpEx = "ibv_qp_ex", 360 {
        qp_base @ 0: IbvQp,
        comp_mask @ 160: u64,
        wr_id @ 168: u64,
        wr_flags @ 176: u32,
        wr_atomic_cmp_swp @ 184:
            Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u64, u64)>,
        wr_atomic_fetch_add @ 192: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u64)>,
        wr_bind_mw @ 200: Option<
            unsafe extern "C" fn(*mut IbvQpEx, *mut IbvMw, u32, *const IbvMwBindInfo),
        >,
        wr_local_inv @ 208: Option<unsafe extern "C" fn(*mut IbvQpEx, u32)>,
        wr_rdma_read @ 216: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64)>,
        wr_rdma_write @ 224: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64)>,
        wr_rdma_write_imm @ 232: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u32)>,
        wr_send @ 240: QpExCall,
        wr_send_imm @ 248: Option<unsafe extern "C" fn(*mut IbvQpEx, u32)>,
        wr_send_inv @ 256: Option<unsafe extern "C" fn(*mut IbvQpEx, u32)>,
        wr_send_tso @ 264: EmptySlot,
        wr_set_ud_addr @ 272: Option<unsafe extern "C" fn(*mut IbvQpEx, *mut IbvAh, u32, u32)>,
        wr_set_xrc_srqn @ 280: Option<unsafe extern "C" fn(*mut IbvQpEx, u32)>,
        wr_set_inline_data @ 288: Option<unsafe extern "C" fn(*mut IbvQpEx, *mut c_void, usize)>,
        wr_set_inline_data_list @ 296:
            Option<unsafe extern "C" fn(*mut IbvQpEx, usize, *const IbvDataBuf)>,
        wr_set_sge @ 304: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u32)>,
        wr_set_sge_list @ 312: Option<unsafe extern "C" fn(*mut IbvQpEx, usize, *const IbvSge)>,
        wr_start @ 320: QpExCall,
        wr_complete @ 328: Option<unsafe extern "C" fn(*mut IbvQpEx) -> c_int>,
        wr_abort @ 336: QpExCall,
        wr_atomic_write @ 344:
            Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, *const c_void)>,
        wr_flush @ 352: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, usize, u8, u8)>,
    }
}
