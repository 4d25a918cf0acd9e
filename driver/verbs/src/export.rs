//! Which function answers under which name and version.
//!
//! Programs ask for versioned symbols, such as `ibv_open_device@IBVERBS_1.1`. rustc writes the
//! linker's version script for a cdylib itself and knows no versions, so each name is a jump in
//! assembly with a `.symver` directive; `abi.map` defines the versions. The functions themselves
//! are not exported. A version with two `@` is the one new programs are linked to.

/// One name under its versions.
macro_rules! symbol {
    ([$($version:literal)+] $name:ident $target:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.abi.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl __abi_", stringify!($name)),
            concat!(".type __abi_", stringify!($name), ",@function"),
            concat!("__abi_", stringify!($name), ":"),
            jump!(),
            concat!(".size __abi_", stringify!($name), ", . - __abi_", stringify!($name)),
            $(concat!(
                ".symver __abi_", stringify!($name), ", ", stringify!($name), $version
            ),)+
            ".popsection",
            target = sym $target,
        );
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {target}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {target}"
    };
}

/// Functions of a module, each under its own name.
macro_rules! export {
    ($($versions:tt $module:ident { $($name:ident,)+ })+) => {
        $($(symbol!($versions $name crate::$module::$name);)+)+
    };
}

/// Names that one stub answers for.
macro_rules! stub {
    ($($versions:tt $kind:ident { $($name:ident,)+ })+) => {
        $($(symbol!($versions $name crate::stub::$kind);)+)+
    };
}

/// The same for names that exist in every private version whose libraries still matter.
macro_rules! private_stub {
    ($($kind:ident { $($name:ident,)+ })+) => {
        stub! {
            $([
                "@@IBVERBS_PRIVATE_34" "@IBVERBS_PRIVATE_57" "@IBVERBS_PRIVATE_59"
                "@IBVERBS_PRIVATE_64" "@IBVERBS_PRIVATE_65"
            ] $kind { $($name,)+ })+
        }
    };
}

export! {
    ["@@IBVERBS_1.0"] channel { ibv_create_comp_channel, ibv_destroy_comp_channel, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] channel { ibv_ack_cq_events, ibv_get_cq_event, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] cq { ibv_create_cq, ibv_destroy_cq, ibv_resize_cq, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] srq {
        ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq,
    }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] qp { ibv_create_qp, ibv_destroy_qp, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] qp_attr { ibv_modify_qp, ibv_query_qp, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] mcast { ibv_attach_mcast, ibv_detach_mcast, }
    ["@@IBVERBS_1.6"] qp { ibv_qp_to_qp_ex, }
    ["@@IBVERBS_1.1"] text {
        ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_wc_status_str,
    }
    ["@@RDMACM_1.0"] text { rdma_event_str, }
    ["@@RDMACM_1.0"] rdma {
        rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_connect, rdma_create_ep,
        rdma_create_event_channel, rdma_create_id, rdma_create_qp, rdma_create_qp_ex,
        rdma_create_srq, rdma_create_srq_ex, rdma_destroy_ep, rdma_destroy_event_channel,
        rdma_destroy_id, rdma_destroy_qp, rdma_destroy_srq, rdma_disconnect, rdma_free_devices,
        rdma_freeaddrinfo, rdma_get_cm_event, rdma_get_devices, rdma_get_dst_port,
        rdma_get_request, rdma_get_src_port, rdma_getaddrinfo, rdma_join_multicast,
        rdma_leave_multicast, rdma_listen, rdma_migrate_id, rdma_notify, rdma_reject,
        rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
    }
    ["@@RDMACM_1.0"] rsocket {
        raccept, rbind, rclose, rconnect, rfcntl, rgetpeername, rgetsockname, rgetsockopt, riomap,
        riounmap, riowrite, rlisten, rpoll, rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rselect,
        rsend, rsendmsg, rsendto, rsetsockopt, rshutdown, rsocket, rwrite, rwritev,
    }
    ["@@RDMACM_1.5"] rsocket { repoll_create, repoll_ctl, repoll_wait, }
    ["@@RDMACM_1.1"] rdma { rdma_join_multicast_ex, }
    ["@@RDMACM_1.2"] rdma { rdma_establish, rdma_init_qp_attr, }
    ["@@RDMACM_1.3"] rdma { rdma_get_remote_ece, rdma_reject_ece, rdma_set_local_ece, }
    ["@@RDMACM_1.4"] rdma { rdma_write_cm_event, }
    ["@@IBVERBS_1.0"] rate { ibv_rate_to_mult, mult_to_ibv_rate, }
    ["@@IBVERBS_1.1"] rate { ibv_rate_to_mbps, mbps_to_ibv_rate, }
    ["@@IBVERBS_1.0"] sysfs { ibv_get_sysfs_path, ibv_read_sysfs_file, }
    ["@@IBVERBS_1.0"] kern {
        ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern, ibv_copy_qp_attr_from_kern,
    }
    ["@@IBVERBS_1.1"] kern { ibv_copy_ah_attr_from_kern, }
    ["@@IBVERBS_1.1"] fork { ibv_fork_init, ibv_dontfork_range, ibv_dofork_range, }
    ["@@IBVERBS_1.13"] fork { ibv_is_fork_initialized, }
    ["@@IBVERBS_1.1"] neighbour { ibv_resolve_eth_l2_from_gid, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] device {
        ibv_free_device_list, ibv_get_device_guid, ibv_get_device_list, ibv_get_device_name,
        ibv_query_device,
    }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] context { ibv_close_device, ibv_open_device, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] port { ibv_query_gid, ibv_query_pkey, ibv_query_port, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] pd { ibv_alloc_pd, ibv_dealloc_pd, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] mr { ibv_dereg_mr, ibv_reg_mr, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] ah { ibv_create_ah, ibv_destroy_ah, }
    ["@@IBVERBS_1.1" "@IBVERBS_1.0"] event { ibv_ack_async_event, ibv_get_async_event, }
    ["@@IBVERBS_1.1"] ah { ibv_create_ah_from_wc, ibv_init_ah_from_wc, }
    ["@@IBVERBS_1.1"] mr { ibv_rereg_mr, }
    ["@@IBVERBS_1.5"] port { ibv_get_pkey_index, }
    ["@@IBVERBS_1.7"] mr { ibv_reg_mr_iova, }
    ["@@IBVERBS_1.8"] mr { ibv_reg_mr_iova2, }
    ["@@IBVERBS_1.9"] device { ibv_get_device_index, }
    ["@@IBVERBS_1.10"] context { ibv_import_device, }
    ["@@IBVERBS_1.10"] mr { ibv_import_mr, ibv_unimport_mr, }
    ["@@IBVERBS_1.10"] pd { ibv_import_pd, ibv_unimport_pd, }
    ["@@IBVERBS_1.11"] port { _ibv_query_gid_ex, _ibv_query_gid_table, }
    ["@@IBVERBS_1.13"] dm { ibv_import_dm, ibv_unimport_dm, }
    ["@@IBVERBS_1.14"] order { ibv_query_qp_data_in_order, }
    ["@@IBVERBS_1.16"] port { ibv_query_port_speed, }
    [
        "@@IBVERBS_PRIVATE_34" "@IBVERBS_PRIVATE_22" "@IBVERBS_PRIVATE_25" "@IBVERBS_PRIVATE_33"
        "@IBVERBS_PRIVATE_57" "@IBVERBS_PRIVATE_59" "@IBVERBS_PRIVATE_64" "@IBVERBS_PRIVATE_65"
    ] port { ibv_query_gid_type, }
}

stub! {
    ["@IBVERBS_1.1"] nothing { ibv_register_driver, }
    ["@@IBVERBS_1.10"] code { ibv_query_ece, ibv_set_ece, }
    ["@@IBVERBS_1.12"] pointer { ibv_reg_dmabuf_mr, }
    ["@@IBVERBS_1.15"] pointer { ibv_alloc_dmah, ibv_reg_mr_ex, }
    ["@@IBVERBS_1.15"] code { ibv_dealloc_dmah, }
    ["@@IBVERBS_1.16"] minus_one { ibv_dm_export_dmabuf_fd, }
    ["@@IBVERBS_1.17"] pointer { ibv_alloc_buf, ibv_reg_buf_mr, }
    ["@@IBVERBS_1.17"] code { ibv_free_buf, }
    ["@@IBVERBS_1.18"] pointer { ibv_create_comp_cntr, }
    ["@@IBVERBS_1.18"] minus_one { ibv_export_buf_dmabuf_fd, }
    ["@@IBVERBS_1.18"] code {
        _ibv_query_comp_cntr_caps, ibv_destroy_comp_cntr, ibv_inc_comp_cntr, ibv_inc_err_comp_cntr,
        ibv_qp_attach_comp_cntr, ibv_read_comp_cntr, ibv_read_err_comp_cntr, ibv_set_comp_cntr,
        ibv_set_err_comp_cntr,
    }
}

// What drivers of the vendors (libmlx5, libefa) need to load. They find none of their devices.
private_stub! {
    code {
        execute_ioctl, ibv_cmd_advise_mr, ibv_cmd_alloc_dm, ibv_cmd_alloc_dmah, ibv_cmd_alloc_mw,
        ibv_cmd_alloc_pd, ibv_cmd_attach_mcast, ibv_cmd_close_xrcd, ibv_cmd_create_ah,
        ibv_cmd_create_comp_cntr, ibv_cmd_create_counters, ibv_cmd_create_cq, ibv_cmd_create_cq_ex,
        ibv_cmd_create_cq_ex2, ibv_cmd_create_flow, ibv_cmd_create_flow_action_esp,
        ibv_cmd_create_qp, ibv_cmd_create_qp_ex, ibv_cmd_create_qp_ex2,
        ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq, ibv_cmd_create_srq_ex, ibv_cmd_create_wq,
        ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, ibv_cmd_destroy_ah,
        ibv_cmd_destroy_comp_cntr, ibv_cmd_destroy_counters, ibv_cmd_destroy_cq,
        ibv_cmd_destroy_flow, ibv_cmd_destroy_flow_action, ibv_cmd_destroy_qp,
        ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, ibv_cmd_destroy_wq,
        ibv_cmd_detach_mcast, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dm, ibv_cmd_free_dmah,
        ibv_cmd_get_context, ibv_cmd_inc_comp_cntr, ibv_cmd_inc_err_comp_cntr, ibv_cmd_modify_cq,
        ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex, ibv_cmd_modify_srq,
        ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_poll_cq, ibv_cmd_post_recv,
        ibv_cmd_post_send, ibv_cmd_post_srq_recv, ibv_cmd_qp_attach_comp_cntr,
        ibv_cmd_query_comp_cntr_caps, ibv_cmd_query_context, ibv_cmd_query_device_any,
        ibv_cmd_query_mr, ibv_cmd_query_port, ibv_cmd_query_port_speed, ibv_cmd_query_qp,
        ibv_cmd_query_srq, ibv_cmd_read_comp_cntr, ibv_cmd_read_counters,
        ibv_cmd_read_err_comp_cntr, ibv_cmd_reg_dm_mr, ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr,
        ibv_cmd_reg_mr_ex, ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, ibv_cmd_resize_cq,
        ibv_cmd_set_comp_cntr, ibv_cmd_set_err_comp_cntr,
    }
    pointer {
        _verbs_init_and_alloc_context, ibv_dmabuf_heap_alloc, ibv_dmabuf_heap_cc_shared_init,
        verbs_open_device,
    }
    nothing {
        __verbs_log, ibv_dmabuf_heap_destroy, ibv_dmabuf_heap_free, verbs_init_cq, verbs_set_ops,
        verbs_uninit_context,
    }
    zero { __ioctl_final_num_attrs, }
    minus_one { ibv_read_ibdev_sysfs_file, }
    unknown { ibv_wr_opcode_str, }
}

stub! {
    ["@@IBVERBS_PRIVATE_22"] nothing { verbs_register_driver_22, }
    ["@@IBVERBS_PRIVATE_25"] nothing { verbs_register_driver_25, }
    ["@@IBVERBS_PRIVATE_33"] nothing { verbs_register_driver_33, }
    ["@@IBVERBS_PRIVATE_34"] nothing { verbs_register_driver_34, }
    ["@@IBVERBS_PRIVATE_57"] nothing { verbs_register_driver_57, }
    ["@@IBVERBS_PRIVATE_59"] nothing { verbs_register_driver_59, }
    ["@@IBVERBS_PRIVATE_64"] nothing { verbs_register_driver_64, }
    ["@@IBVERBS_PRIVATE_65"] nothing { verbs_register_driver_65, }
}

stub! {
    ["@@RDMACM_1.4"] minus_one { rdma_query_addrinfo, rdma_resolve_addrinfo, }
}

macro_rules! disassociate_version {
    ($version:literal) => {
        concat!(
            ".symver __abi_verbs_allow_disassociate_destroy, ",
            "verbs_allow_disassociate_destroy",
            $version
        )
    };
}

// libmlx5 reads this byte: whether objects may be destroyed after their device is gone.
core::arch::global_asm!(
    ".pushsection .bss.abi.verbs_allow_disassociate_destroy,\"aw\",@nobits",
    ".globl __abi_verbs_allow_disassociate_destroy",
    ".type __abi_verbs_allow_disassociate_destroy,@object",
    ".size __abi_verbs_allow_disassociate_destroy, 1",
    "__abi_verbs_allow_disassociate_destroy: .zero 1",
    disassociate_version!("@@IBVERBS_PRIVATE_34"),
    disassociate_version!("@IBVERBS_PRIVATE_57"),
    disassociate_version!("@IBVERBS_PRIVATE_59"),
    disassociate_version!("@IBVERBS_PRIVATE_64"),
    disassociate_version!("@IBVERBS_PRIVATE_65"),
    ".popsection",
);
