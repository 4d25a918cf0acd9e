//! Rules of flow steering. Addresses and ports are in network order.

use core::ffi::c_int;

use super::device::IbvContext;
use super::layout;

layout! {
    /// A rule; its specifications follow in memory.
    IbvFlowAttr = "ibv_flow_attr", 20 {
        comp_mask @ 0: u32,
        type_ @ 4: c_int,
        size @ 8: u16,
        priority @ 10: u16,
        num_of_specs @ 12: u8,
        port @ 13: u8,
        flags @ 16: u32,
    }

    /// A rule that is in force.
    IbvFlow = "ibv_flow", 24 {
        comp_mask @ 0: u32,
        context @ 8: *mut IbvContext,
        handle @ 16: u32,
    }

    /// Ethernet's header.
    IbvFlowEthFilter = "ibv_flow_eth_filter", 16 {
        dst_mac @ 0: [u8; 6],
        src_mac @ 6: [u8; 6],
        ether_type @ 12: u16,
        vlan_tag @ 14: u16,
    }

    /// What Ethernet's header is to be.
    IbvFlowSpecEth = "ibv_flow_spec_eth", 40 {
        type_ @ 0: c_int,
        size @ 4: u16,
        val @ 6: IbvFlowEthFilter,
        mask @ 22: IbvFlowEthFilter,
    }

    /// Addresses of IPv4.
    IbvFlowIpv4Filter = "ibv_flow_ipv4_filter", 8 {
        src_ip @ 0: u32,
        dst_ip @ 4: u32,
    }

    /// What the addresses of IPv4 are to be.
    IbvFlowSpecIpv4 = "ibv_flow_spec_ipv4", 24 {
        type_ @ 0: c_int,
        size @ 4: u16,
        val @ 8: IbvFlowIpv4Filter,
        mask @ 16: IbvFlowIpv4Filter,
    }

    /// IPv4's header.
    IbvFlowIpv4ExtFilter = "ibv_flow_ipv4_ext_filter", 12 {
        src_ip @ 0: u32,
        dst_ip @ 4: u32,
        proto @ 8: u8,
        tos @ 9: u8,
        ttl @ 10: u8,
        flags @ 11: u8,
    }

    /// What IPv4's header is to be.
    IbvFlowSpecIpv4Ext = "ibv_flow_spec_ipv4_ext", 32 {
        type_ @ 0: c_int,
        size @ 4: u16,
        val @ 8: IbvFlowIpv4ExtFilter,
        mask @ 20: IbvFlowIpv4ExtFilter,
    }

    /// IPv6's header.
    IbvFlowIpv6Filter = "ibv_flow_ipv6_filter", 40 {
        src_ip @ 0: [u8; 16],
        dst_ip @ 16: [u8; 16],
        flow_label @ 32: u32,
        next_hdr @ 36: u8,
        traffic_class @ 37: u8,
        hop_limit @ 38: u8,
    }

    /// What IPv6's header is to be.
    IbvFlowSpecIpv6 = "ibv_flow_spec_ipv6", 88 {
        type_ @ 0: c_int,
        size @ 4: u16,
        val @ 8: IbvFlowIpv6Filter,
        mask @ 48: IbvFlowIpv6Filter,
    }

    /// Ports of TCP or UDP.
    IbvFlowTcpUdpFilter = "ibv_flow_tcp_udp_filter", 4 {
        dst_port @ 0: u16,
        src_port @ 2: u16,
    }

    /// What the ports of TCP or UDP are to be.
    IbvFlowSpecTcpUdp = "ibv_flow_spec_tcp_udp", 16 {
        type_ @ 0: c_int,
        size @ 4: u16,
        val @ 6: IbvFlowTcpUdpFilter,
        mask @ 10: IbvFlowTcpUdpFilter,
    }
}
