//! Names of codes, in the words programs compare and print.

use core::ffi::{CStr, c_char, c_int};

use ferroce_stack::verbs::WcStatus;

/// `enum ibv_node_type`.
pub(crate) extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    let name: &CStr = match node_type {
        1 => c"InfiniBand channel adapter",
        2 => c"InfiniBand switch",
        3 => c"InfiniBand router",
        4 => c"iWARP NIC",
        5 => c"usNIC",
        6 => c"usNIC UDP",
        7 => c"unspecified",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `enum ibv_port_state`.
pub(crate) extern "C" fn ibv_port_state_str(port_state: c_int) -> *const c_char {
    let name: &CStr = match port_state {
        0 => c"no state change (NOP)",
        1 => c"down",
        2 => c"init",
        3 => c"armed",
        4 => c"active",
        5 => c"active defer",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `enum ibv_event_type`.
pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    let name: &CStr = match event {
        0 => c"CQ error",
        1 => c"local work queue catastrophic error",
        2 => c"invalid request local work queue error",
        3 => c"local access violation work queue error",
        4 => c"communication established",
        5 => c"send queue drained",
        6 => c"path migrated",
        7 => c"path migration request error",
        8 => c"local catastrophic error",
        9 => c"port active",
        10 => c"port error",
        11 => c"LID change",
        12 => c"P_Key change",
        13 => c"SM change",
        14 => c"SRQ catastrophic error",
        15 => c"SRQ limit reached",
        16 => c"last WQE reached",
        17 => c"client reregistration",
        18 => c"GID table change",
        19 => c"WQ fatal",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `enum ibv_wc_status`.
pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    let known = usize::try_from(status).ok().and_then(|status| WcStatus::TEXTS.get(status));
    known.copied().unwrap_or(c"unknown").as_ptr()
}

/// `enum rdma_cm_event_type`.
pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let name: &CStr = match event {
        0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        1 => c"RDMA_CM_EVENT_ADDR_ERROR",
        2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
        4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        6 => c"RDMA_CM_EVENT_CONNECT_ERROR",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        8 => c"RDMA_CM_EVENT_REJECTED",
        9 => c"RDMA_CM_EVENT_ESTABLISHED",
        10 => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        12 => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        13 => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: *const c_char) -> &'static str {
        // SAFETY: the functions above return string literals.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap()
    }

    #[test]
    fn codes_have_the_names_of_the_field() {
        assert_eq!(text(ibv_wc_status_str(12)), "transport retry counter exceeded");
        assert_eq!(text(ibv_event_type_str(15)), "SRQ limit reached");
        assert_eq!(text(ibv_port_state_str(4)), "active");
        assert_eq!(text(ibv_node_type_str(1)), "InfiniBand channel adapter");
        assert_eq!(text(rdma_event_str(9)), "RDMA_CM_EVENT_ESTABLISHED");
    }

    #[test]
    fn codes_out_of_range_have_a_name_too() {
        for code in [c_int::MIN, -2, 24, c_int::MAX] {
            assert_eq!(text(ibv_wc_status_str(code)), "unknown");
            assert_eq!(text(rdma_event_str(code)), "UNKNOWN EVENT");
        }
    }
}
