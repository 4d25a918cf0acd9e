//! Devices, contexts and what queries about them answer.

use core::ffi::{c_char, c_int, c_void};

use super::attr::{
    IbvAllocDmAttr, IbvCqInitAttrEx, IbvParentDomainInitAttr, IbvQpInitAttrEx, IbvQpOpenAttr,
    IbvSrqInitAttrEx, IbvTdInitAttr, IbvXrcdInitAttr,
};
use super::flow::{IbvFlow, IbvFlowAttr};
use super::layout;
use super::object::{IbvCq, IbvCqEx, IbvDm, IbvMr, IbvMw, IbvPd, IbvQp, IbvSrq, IbvTd, IbvXrcd};
use super::work::{IbvMwBind, IbvRecvWr, IbvSendWr, IbvSge, IbvWc};

/// A slot nothing calls any more, or that we leave empty: the caller's inline answers EOPNOTSUPP.
pub type EmptySlot = *mut c_void;

/// `union ibv_gid`: 16 bytes in network order, aligned like its 64-bit halves.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IbvGid {
    /// The bytes.
    pub raw: [u8; 16],
}

layout! {
    /// A device; programs read its names and paths directly.
    IbvDevice = "ibv_device", 664 {
        _ops @ 0: [EmptySlot; 2],
        node_type @ 16: c_int,
        transport_type @ 20: c_int,
        name @ 24: [c_char; 64],
        dev_name @ 88: [c_char; 64],
        dev_path @ 152: [c_char; 256],
        ibdev_path @ 408: [c_char; 256],
    }

    /// Operations that inlines of the header call through the context.
    IbvContextOps = "ibv_context_ops", 256 {
        _compat_query_device @ 0:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int>,
        _compat_query_port @ 8:
            Option<unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int>,
        _compat_alloc_pd @ 16: EmptySlot,
        _compat_dealloc_pd @ 24: EmptySlot,
        _compat_reg_mr @ 32: EmptySlot,
        _compat_rereg_mr @ 40: EmptySlot,
        _compat_dereg_mr @ 48: EmptySlot,
        alloc_mw @ 56: Option<unsafe extern "C" fn(*mut IbvPd, c_int) -> *mut IbvMw>,
        bind_mw @ 64:
            Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvMw, *mut IbvMwBind) -> c_int>,
        dealloc_mw @ 72: Option<unsafe extern "C" fn(*mut IbvMw) -> c_int>,
        _compat_create_cq @ 80: EmptySlot,
        poll_cq @ 88: Option<unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int>,
        req_notify_cq @ 96: Option<unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int>,
        _compat_cq_event @ 104: EmptySlot,
        _compat_resize_cq @ 112: EmptySlot,
        _compat_destroy_cq @ 120: EmptySlot,
        _compat_create_srq @ 128: EmptySlot,
        _compat_modify_srq @ 136: EmptySlot,
        _compat_query_srq @ 144: EmptySlot,
        _compat_destroy_srq @ 152: EmptySlot,
        post_srq_recv @ 160: Option<
            unsafe extern "C" fn(*mut IbvSrq, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int,
        >,
        _compat_create_qp @ 168: EmptySlot,
        _compat_query_qp @ 176: EmptySlot,
        _compat_modify_qp @ 184: EmptySlot,
        _compat_destroy_qp @ 192: EmptySlot,
        post_send @ 200: Option<
            unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int,
        >,
        post_recv @ 208: Option<
            unsafe extern "C" fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int,
        >,
        _compat_create_ah @ 216: EmptySlot,
        _compat_destroy_ah @ 224: EmptySlot,
        _compat_attach_mcast @ 232: EmptySlot,
        _compat_detach_mcast @ 240: EmptySlot,
        _compat_async_event @ 248: EmptySlot,
    }

    /// An opened device. `abi_compat` is all ones where a `verbs_context` surrounds it.
    IbvContext = "ibv_context", 328 {
        device @ 0: *mut IbvDevice,
        ops @ 8: IbvContextOps,
        cmd_fd @ 264: c_int,
        async_fd @ 268: c_int,
        num_comp_vectors @ 272: c_int,
        mutex @ 280: libc::pthread_mutex_t,
        abi_compat @ 320: usize,
    }

    /// The extended operations in front of a context. Inlines find a slot by its distance from
    /// `context`, so this grows at the front.
    VerbsContext = "verbs_context", 696 {
        free_buf @ 0: EmptySlot,
        alloc_buf @ 8: EmptySlot,
        dm_export_dmabuf_fd @ 16: EmptySlot,
        reg_mr_ex @ 24: EmptySlot,
        dealloc_dmah @ 32: EmptySlot,
        alloc_dmah @ 40: EmptySlot,
        query_port @ 48: Option<
            unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr, usize) -> c_int,
        >,
        advise_mr @ 56: Option<
            unsafe extern "C" fn(*mut IbvPd, c_int, u32, *mut IbvSge, u32) -> c_int,
        >,
        alloc_null_mr @ 64: Option<unsafe extern "C" fn(*mut IbvPd) -> *mut IbvMr>,
        read_counters @ 72: EmptySlot,
        attach_counters_point_flow @ 80: EmptySlot,
        create_counters @ 88: EmptySlot,
        destroy_counters @ 96: EmptySlot,
        reg_dm_mr @ 104: Option<
            unsafe extern "C" fn(*mut IbvPd, *mut IbvDm, u64, usize, u32) -> *mut IbvMr,
        >,
        alloc_dm @ 112:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvAllocDmAttr) -> *mut IbvDm>,
        free_dm @ 120: Option<unsafe extern "C" fn(*mut IbvDm) -> c_int>,
        modify_flow_action_esp @ 128: EmptySlot,
        destroy_flow_action @ 136: EmptySlot,
        create_flow_action_esp @ 144: EmptySlot,
        modify_qp_rate_limit @ 152: EmptySlot,
        alloc_parent_domain @ 160: Option<
            unsafe extern "C" fn(*mut IbvContext, *mut IbvParentDomainInitAttr) -> *mut IbvPd,
        >,
        dealloc_td @ 168: Option<unsafe extern "C" fn(*mut IbvTd) -> c_int>,
        alloc_td @ 176:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvTdInitAttr) -> *mut IbvTd>,
        modify_cq @ 184: EmptySlot,
        post_srq_ops @ 192: EmptySlot,
        destroy_rwq_ind_table @ 200: EmptySlot,
        create_rwq_ind_table @ 208: EmptySlot,
        destroy_wq @ 216: EmptySlot,
        modify_wq @ 224: EmptySlot,
        create_wq @ 232: EmptySlot,
        query_rt_values @ 240:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvValuesEx) -> c_int>,
        create_cq_ex @ 248:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvCqInitAttrEx) -> *mut IbvCqEx>,
        priv_ @ 256: *mut c_void,
        query_device_ex @ 264: Option<
            unsafe extern "C" fn(
                *mut IbvContext,
                *const IbvQueryDeviceExInput,
                *mut IbvDeviceAttrEx,
                usize,
            ) -> c_int,
        >,
        ibv_destroy_flow @ 272: Option<unsafe extern "C" fn(*mut IbvFlow) -> c_int>,
        ABI_placeholder2 @ 280: EmptySlot,
        ibv_create_flow @ 288:
            Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvFlowAttr) -> *mut IbvFlow>,
        ABI_placeholder1 @ 296: EmptySlot,
        open_qp @ 304:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpOpenAttr) -> *mut IbvQp>,
        create_qp_ex @ 312:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpInitAttrEx) -> *mut IbvQp>,
        get_srq_num @ 320: Option<unsafe extern "C" fn(*mut IbvSrq, *mut u32) -> c_int>,
        create_srq_ex @ 328:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvSrqInitAttrEx) -> *mut IbvSrq>,
        open_xrcd @ 336:
            Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvXrcdInitAttr) -> *mut IbvXrcd>,
        close_xrcd @ 344: Option<unsafe extern "C" fn(*mut IbvXrcd) -> c_int>,
        _ABI_placeholder3 @ 352: u64,
        sz @ 360: usize,
        context @ 368: IbvContext,
    }

    /// Properties of a device; GUIDs in network order.
    IbvDeviceAttr = "ibv_device_attr", 232 {
        fw_ver @ 0: [c_char; 64],
        node_guid @ 64: u64,
        sys_image_guid @ 72: u64,
        max_mr_size @ 80: u64,
        page_size_cap @ 88: u64,
        vendor_id @ 96: u32,
        vendor_part_id @ 100: u32,
        hw_ver @ 104: u32,
        max_qp @ 108: c_int,
        max_qp_wr @ 112: c_int,
        device_cap_flags @ 116: u32,
        max_sge @ 120: c_int,
        max_sge_rd @ 124: c_int,
        max_cq @ 128: c_int,
        max_cqe @ 132: c_int,
        max_mr @ 136: c_int,
        max_pd @ 140: c_int,
        max_qp_rd_atom @ 144: c_int,
        max_ee_rd_atom @ 148: c_int,
        max_res_rd_atom @ 152: c_int,
        max_qp_init_rd_atom @ 156: c_int,
        max_ee_init_rd_atom @ 160: c_int,
        atomic_cap @ 164: c_int,
        max_ee @ 168: c_int,
        max_rdd @ 172: c_int,
        max_mw @ 176: c_int,
        max_raw_ipv6_qp @ 180: c_int,
        max_raw_ethy_qp @ 184: c_int,
        max_mcast_grp @ 188: c_int,
        max_mcast_qp_attach @ 192: c_int,
        max_total_mcast_qp_attach @ 196: c_int,
        max_ah @ 200: c_int,
        max_fmr @ 204: c_int,
        max_map_per_fmr @ 208: c_int,
        max_srq @ 212: c_int,
        max_srq_wr @ 216: c_int,
        max_srq_sge @ 220: c_int,
        max_pkeys @ 224: u16,
        local_ca_ack_delay @ 226: u8,
        phys_port_cnt @ 227: u8,
    }

    /// What `ibv_query_device_ex` is asked.
    IbvQueryDeviceExInput = "ibv_query_device_ex_input", 4 {
        comp_mask @ 0: u32,
    }

    /// On-demand paging; the last three are `per_transport_caps` in C.
    IbvOdpCaps = "ibv_odp_caps", 24 {
        general_caps @ 0: u64,
        per_transport_caps @ 8: [u32; 3],
    }

    /// Properties of a device, extended.
    IbvDeviceAttrEx = "ibv_device_attr_ex", 400 {
        orig_attr @ 0: IbvDeviceAttr,
        comp_mask @ 232: u32,
        odp_caps @ 240: IbvOdpCaps,
        completion_timestamp_mask @ 264: u64,
        hca_core_clock @ 272: u64,
        device_cap_flags_ex @ 280: u64,
        tso_caps @ 288: [u32; 2],
        rss_caps @ 296: [u64; 4],
        max_wq_type_rq @ 328: u32,
        packet_pacing_caps @ 332: [u32; 3],
        raw_packet_caps @ 344: u32,
        tm_caps @ 348: [u32; 5],
        cq_mod_caps @ 368: [u16; 2],
        max_dm_size @ 376: u64,
        pci_atomic_caps @ 384: [u16; 3],
        xrc_odp_caps @ 392: u32,
        phys_port_cnt_ex @ 396: u32,
    }

    /// Properties of a port. Programs of the first API own only the first 48 bytes.
    IbvPortAttr = "ibv_port_attr", 56 {
        state @ 0: c_int,
        max_mtu @ 4: c_int,
        active_mtu @ 8: c_int,
        gid_tbl_len @ 12: c_int,
        port_cap_flags @ 16: u32,
        max_msg_sz @ 20: u32,
        bad_pkey_cntr @ 24: u32,
        qkey_viol_cntr @ 28: u32,
        pkey_tbl_len @ 32: u16,
        lid @ 34: u16,
        sm_lid @ 36: u16,
        lmc @ 38: u8,
        max_vl_num @ 39: u8,
        sm_sl @ 40: u8,
        subnet_timeout @ 41: u8,
        init_type_reply @ 42: u8,
        active_width @ 43: u8,
        active_speed @ 44: u8,
        phys_state @ 45: u8,
        link_layer @ 46: u8,
        flags @ 47: u8,
        port_cap_flags2 @ 48: u16,
        active_speed_ex @ 52: u32,
    }

    /// A GID with its place and type.
    IbvGidEntry = "ibv_gid_entry", 32 {
        gid @ 0: IbvGid,
        gid_index @ 16: u32,
        port_num @ 20: u32,
        gid_type @ 24: u32,
        ndev_ifindex @ 28: u32,
    }

    /// Values of the moment.
    IbvValuesEx = "ibv_values_ex", 24 {
        comp_mask @ 0: u32,
        raw_clock @ 8: libc::timespec,
    }

    /// An asynchronous event; `element` holds a pointer or a port number.
    IbvAsyncEvent = "ibv_async_event", 16 {
        element @ 0: usize,
        event_type @ 8: c_int,
    }
}
