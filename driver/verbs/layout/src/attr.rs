//! Attributes objects are made with, changed to and asked for.

use core::ffi::{c_int, c_void};

use super::device::IbvGid;
use super::layout;
use super::object::{IbvCompChannel, IbvCq, IbvPd, IbvSrq, IbvTd, IbvXrcd};

layout! {
    /// A global route.
    IbvGlobalRoute = "ibv_global_route", 24 {
        dgid @ 0: IbvGid,
        flow_label @ 16: u32,
        sgid_index @ 20: u8,
        hop_limit @ 21: u8,
        traffic_class @ 22: u8,
    }

    /// A GRH as it lies in front of a datagram, in network order.
    IbvGrh = "ibv_grh", 40 {
        version_tclass_flow @ 0: u32,
        paylen @ 4: u16,
        next_hdr @ 6: u8,
        hop_limit @ 7: u8,
        sgid @ 8: IbvGid,
        dgid @ 24: IbvGid,
    }

    /// The address of a peer.
    IbvAhAttr = "ibv_ah_attr", 32 {
        grh @ 0: IbvGlobalRoute,
        dlid @ 24: u16,
        sl @ 26: u8,
        src_path_bits @ 27: u8,
        static_rate @ 28: u8,
        is_global @ 29: u8,
        port_num @ 30: u8,
    }

    /// Sizes of a QP's queues.
    IbvQpCap = "ibv_qp_cap", 20 {
        max_send_wr @ 0: u32,
        max_recv_wr @ 4: u32,
        max_send_sge @ 8: u32,
        max_recv_sge @ 12: u32,
        max_inline_data @ 16: u32,
    }

    /// What a QP is made of.
    IbvQpInitAttr = "ibv_qp_init_attr", 64 {
        qp_context @ 0: *mut c_void,
        send_cq @ 8: *mut IbvCq,
        recv_cq @ 16: *mut IbvCq,
        srq @ 24: *mut IbvSrq,
        cap @ 32: IbvQpCap,
        qp_type @ 52: c_int,
        sq_sig_all @ 56: c_int,
    }

    /// Receive side scaling of raw packet QPs.
    IbvRxHashConf = "ibv_rx_hash_conf", 24 {
        rx_hash_function @ 0: u8,
        rx_hash_key_len @ 1: u8,
        rx_hash_key @ 8: *mut u8,
        rx_hash_fields_mask @ 16: u64,
    }

    /// What a QP is made of, extended.
    IbvQpInitAttrEx = "ibv_qp_init_attr_ex", 136 {
        qp_context @ 0: *mut c_void,
        send_cq @ 8: *mut IbvCq,
        recv_cq @ 16: *mut IbvCq,
        srq @ 24: *mut IbvSrq,
        cap @ 32: IbvQpCap,
        qp_type @ 52: c_int,
        sq_sig_all @ 56: c_int,
        comp_mask @ 60: u32,
        pd @ 64: *mut IbvPd,
        xrcd @ 72: *mut IbvXrcd,
        create_flags @ 80: u32,
        max_tso_header @ 84: u16,
        rwq_ind_tbl @ 88: *mut c_void,
        rx_hash_conf @ 96: IbvRxHashConf,
        source_qpn @ 120: u32,
        send_ops_flags @ 128: u64,
    }

    /// Which XRC target to open.
    IbvQpOpenAttr = "ibv_qp_open_attr", 32 {
        comp_mask @ 0: u32,
        qp_num @ 4: u32,
        xrcd @ 8: *mut IbvXrcd,
        qp_context @ 16: *mut c_void,
        qp_type @ 24: c_int,
    }

    /// Attributes of a QP.
    IbvQpAttr = "ibv_qp_attr", 144 {
        qp_state @ 0: c_int,
        cur_qp_state @ 4: c_int,
        path_mtu @ 8: c_int,
        path_mig_state @ 12: c_int,
        qkey @ 16: u32,
        rq_psn @ 20: u32,
        sq_psn @ 24: u32,
        dest_qp_num @ 28: u32,
        qp_access_flags @ 32: u32,
        cap @ 36: IbvQpCap,
        ah_attr @ 56: IbvAhAttr,
        alt_ah_attr @ 88: IbvAhAttr,
        pkey_index @ 120: u16,
        alt_pkey_index @ 122: u16,
        en_sqd_async_notify @ 124: u8,
        sq_draining @ 125: u8,
        max_rd_atomic @ 126: u8,
        max_dest_rd_atomic @ 127: u8,
        min_rnr_timer @ 128: u8,
        port_num @ 129: u8,
        timeout @ 130: u8,
        retry_cnt @ 131: u8,
        rnr_retry @ 132: u8,
        alt_port_num @ 133: u8,
        alt_timeout @ 134: u8,
        rate_limit @ 136: u32,
    }

    /// Sizes and limit of an SRQ.
    IbvSrqAttr = "ibv_srq_attr", 12 {
        max_wr @ 0: u32,
        max_sge @ 4: u32,
        srq_limit @ 8: u32,
    }

    /// What an SRQ is made of.
    IbvSrqInitAttr = "ibv_srq_init_attr", 24 {
        srq_context @ 0: *mut c_void,
        attr @ 8: IbvSrqAttr,
    }

    /// What an SRQ is made of, extended.
    IbvSrqInitAttrEx = "ibv_srq_init_attr_ex", 64 {
        srq_context @ 0: *mut c_void,
        attr @ 8: IbvSrqAttr,
        comp_mask @ 20: u32,
        srq_type @ 24: c_int,
        pd @ 32: *mut IbvPd,
        xrcd @ 40: *mut IbvXrcd,
        cq @ 48: *mut IbvCq,
        tm_cap @ 56: [u32; 2],
    }

    /// What an extended CQ is made of.
    IbvCqInitAttrEx = "ibv_cq_init_attr_ex", 56 {
        cqe @ 0: u32,
        cq_context @ 8: *mut c_void,
        channel @ 16: *mut IbvCompChannel,
        comp_vector @ 24: u32,
        wc_flags @ 32: u64,
        comp_mask @ 40: u32,
        flags @ 44: u32,
        parent_domain @ 48: *mut IbvPd,
    }

    /// What a thread domain is made of.
    IbvTdInitAttr = "ibv_td_init_attr", 4 {
        comp_mask @ 0: u32,
    }

    /// What a parent domain is made of.
    IbvParentDomainInitAttr = "ibv_parent_domain_init_attr", 48 {
        pd @ 0: *mut IbvPd,
        td @ 8: *mut IbvTd,
        comp_mask @ 16: u32,
        alloc @ 24: Option<
            unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, usize, u64) -> *mut c_void,
        >,
        free @ 32: Option<unsafe extern "C" fn(*mut IbvPd, *mut c_void, *mut c_void, u64)>,
        pd_context @ 40: *mut c_void,
    }

    /// What an XRC domain is made of.
    IbvXrcdInitAttr = "ibv_xrcd_init_attr", 12 {
        comp_mask @ 0: u32,
        fd @ 4: c_int,
        oflags @ 8: c_int,
    }

    /// What device memory is made of.
    IbvAllocDmAttr = "ibv_alloc_dm_attr", 16 {
        length @ 0: usize,
        log_align_req @ 8: u32,
        comp_mask @ 12: u32,
    }

    /// Enhanced connection establishment.
    IbvEce = "ibv_ece", 12 {
        vendor_id @ 0: u32,
        options @ 4: u32,
        comp_mask @ 8: u32,
    }
}
