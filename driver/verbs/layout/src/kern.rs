//! Structures of the kernel's verbs interface, and the path record of libibverbs.

use core::ffi::c_int;

use super::device::IbvGid;
use super::layout;

layout! {
    /// The address of a peer.
    KernAhAttr = "ib_uverbs_ah_attr", 32 {
        dgid @ 0: [u8; 16],
        flow_label @ 16: u32,
        sgid_index @ 20: u8,
        hop_limit @ 21: u8,
        traffic_class @ 22: u8,
        dlid @ 24: u16,
        sl @ 26: u8,
        src_path_bits @ 27: u8,
        static_rate @ 28: u8,
        is_global @ 29: u8,
        port_num @ 30: u8,
        reserved @ 31: u8,
    }

    /// Attributes of a QP.
    KernQpAttr = "ib_uverbs_qp_attr", 144 {
        qp_attr_mask @ 0: u32,
        qp_state @ 4: u32,
        cur_qp_state @ 8: u32,
        path_mtu @ 12: u32,
        path_mig_state @ 16: u32,
        qkey @ 20: u32,
        rq_psn @ 24: u32,
        sq_psn @ 28: u32,
        dest_qp_num @ 32: u32,
        qp_access_flags @ 36: u32,
        ah_attr @ 40: KernAhAttr,
        alt_ah_attr @ 72: KernAhAttr,
        max_send_wr @ 104: u32,
        max_recv_wr @ 108: u32,
        max_send_sge @ 112: u32,
        max_recv_sge @ 116: u32,
        max_inline_data @ 120: u32,
        pkey_index @ 124: u16,
        alt_pkey_index @ 126: u16,
        en_sqd_async_notify @ 128: u8,
        sq_draining @ 129: u8,
        max_rd_atomic @ 130: u8,
        max_dest_rd_atomic @ 131: u8,
        min_rnr_timer @ 132: u8,
        port_num @ 133: u8,
        timeout @ 134: u8,
        retry_cnt @ 135: u8,
        rnr_retry @ 136: u8,
        alt_port_num @ 137: u8,
        alt_timeout @ 138: u8,
        reserved @ 139: [u8; 5],
    }

    /// A path record of the kernel.
    KernPathRec = "ib_user_path_rec", 64 {
        dgid @ 0: [u8; 16],
        sgid @ 16: [u8; 16],
        dlid @ 32: u16,
        slid @ 34: u16,
        raw_traffic @ 36: u32,
        flow_label @ 40: u32,
        reversible @ 44: u32,
        mtu @ 48: u32,
        pkey @ 52: u16,
        hop_limit @ 54: u8,
        traffic_class @ 55: u8,
        numb_path @ 56: u8,
        sl @ 57: u8,
        mtu_selector @ 58: u8,
        rate_selector @ 59: u8,
        rate @ 60: u8,
        packet_life_time_selector @ 61: u8,
        packet_life_time @ 62: u8,
        preference @ 63: u8,
    }

    /// A path record.
    IbvSaPathRec = "ibv_sa_path_rec", 64 {
        dgid @ 0: IbvGid,
        sgid @ 16: IbvGid,
        dlid @ 32: u16,
        slid @ 34: u16,
        raw_traffic @ 36: c_int,
        flow_label @ 40: u32,
        hop_limit @ 44: u8,
        traffic_class @ 45: u8,
        reversible @ 48: c_int,
        numb_path @ 52: u8,
        pkey @ 54: u16,
        sl @ 56: u8,
        mtu_selector @ 57: u8,
        mtu @ 58: u8,
        rate_selector @ 59: u8,
        rate @ 60: u8,
        packet_life_time_selector @ 61: u8,
        packet_life_time @ 62: u8,
        preference @ 63: u8,
    }
}
