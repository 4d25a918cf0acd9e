//! Flow steering: which frames that are not RoCE a raw packet queue pair receives.

use core::ffi::c_int;
use core::mem::offset_of;

use ferroce_stack::flow::{Flow, FlowRule, number};

use crate::errno::{self, EINVAL, Errno};
use crate::layout::{
    IbvFlow, IbvFlowAttr, IbvFlowSpecEth, IbvFlowSpecIpv4, IbvFlowSpecIpv4Ext, IbvFlowSpecIpv6,
    IbvFlowSpecTcpUdp, IbvQp,
};
use crate::log::refuse;
use crate::qp::Qp;

// `enum ibv_flow_attr_type`.
const ATTR_NORMAL: c_int = 0;
const ATTR_ALL_DEFAULT: c_int = 1;
const ATTR_MC_DEFAULT: c_int = 2;

// `enum ibv_flow_spec_type`.
const SPEC_ETH: c_int = 0x20;
const SPEC_IPV4: c_int = 0x30;
const SPEC_IPV6: c_int = 0x31;
const SPEC_IPV4_EXT: c_int = 0x32;
const SPEC_TCP: c_int = 0x40;
const SPEC_UDP: c_int = 0x41;

/// Rules that are tried when no other matches, those for multicast first.
const LAST: u32 = u32::MAX;

/// A rule and whose it is.
#[repr(C)]
struct Rule {
    abi: IbvFlow,
    flow: Flow,
}

/// Steers frames to a raw packet QP.
///
/// # Safety
/// `qp` must be null or valid, `attr` null or followed by as many bytes as its size says.
pub(crate) unsafe extern "C" fn create_flow(
    qp: *mut IbvQp,
    attr: *mut IbvFlowAttr,
) -> *mut IbvFlow {
    // SAFETY: as the caller promises.
    errno::pointer(unsafe { create(qp, attr) })
}

/// # Safety
/// As [`create_flow`].
unsafe fn create(abi: *mut IbvQp, attr: *const IbvFlowAttr) -> Result<*mut IbvFlow, Errno> {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(qp), Some(head)) = (unsafe { (Qp::of(abi), attr.as_ref()) }) else {
        return Err(EINVAL);
    };
    let (flags, comp_mask) = (head.flags, head.comp_mask);
    if flags != 0 || comp_mask != 0 {
        return Err(refuse!(EOPNOTSUPP, flags, comp_mask, "create_flow takes no flags"));
    }
    let mut rule = FlowRule { priority: head.priority.into(), ..FlowRule::default() };
    match head.type_ {
        // SAFETY: the caller's promise.
        ATTR_NORMAL => unsafe { read_specs(attr, &mut rule)? },
        ATTR_MC_DEFAULT => {
            const GROUP_BIT: u64 = 1 << 40;
            (rule.value.dst_mac, rule.mask.dst_mac) = (GROUP_BIT, GROUP_BIT);
            rule.priority = LAST - 1;
        }
        ATTR_ALL_DEFAULT => rule.priority = LAST,
        kind => {
            return Err(refuse!(EOPNOTSUPP, kind, "create_flow: NORMAL, ALL_DEFAULT, MC_DEFAULT"));
        }
    }
    let flow = qp.engine.create_flow(&qp.queue, &rule).map_err(|error| {
        refuse!(EINVAL, %error, "create_flow: frames are steered to raw packet QPs only");
        Errno::from(error)
    })?;
    // SAFETY: a QP of ours is live.
    let context = unsafe { (*abi).context };
    let handle = IbvFlow { comp_mask: 0, context, handle: flow.value() };
    Ok(Box::into_raw(Box::new(Rule { abi: handle, flow })).cast())
}

/// Reads the specifications that follow `attr`.
///
/// # Safety
/// As [`create_flow`]: so many bytes must be readable.
unsafe fn read_specs(attr: *const IbvFlowAttr, rule: &mut FlowRule) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (size, count) = unsafe { ((*attr).size, (*attr).num_of_specs) };
    let mut at = size_of::<IbvFlowAttr>();
    for _ in 0..count {
        // SAFETY: type and size, which every specification begins with; the sizes are the
        // program's own, as the kernel's interface has it.
        let (kind, len) = unsafe {
            let spec = attr.byte_add(at);
            let size_at = spec.byte_add(offset_of!(IbvFlowSpecEth, size));
            (spec.cast::<c_int>().read_unaligned(), size_at.cast::<u16>().read_unaligned())
        };
        // SAFETY: as above.
        let spec = unsafe { attr.byte_add(at) };
        macro_rules! read {
            ($spec:ty, $read:ident) => {{
                if usize::from(len) != size_of::<$spec>() {
                    return Err(refuse!(EINVAL, kind, len, "create_flow: size of a specification"));
                }
                // SAFETY: the program says that it is as long as this.
                $read(&unsafe { spec.cast::<$spec>().read_unaligned() }, rule)
            }};
        }
        match kind {
            SPEC_ETH => read!(IbvFlowSpecEth, read_eth),
            SPEC_IPV4 => read!(IbvFlowSpecIpv4, read_ipv4),
            SPEC_IPV4_EXT => read!(IbvFlowSpecIpv4Ext, read_ipv4_ext),
            SPEC_IPV6 => read!(IbvFlowSpecIpv6, read_ipv6),
            SPEC_TCP | SPEC_UDP => read!(IbvFlowSpecTcpUdp, read_ports),
            _ => {
                return Err(refuse!(
                    EOPNOTSUPP,
                    kind,
                    size,
                    "create_flow: specifications of Ethernet, IPv4, IPv6, TCP and UDP"
                ));
            }
        }
        at += usize::from(len);
    }
    Ok(())
}

fn read_eth(spec: &IbvFlowSpecEth, rule: &mut FlowRule) {
    for (key, filter) in [(&mut rule.value, &spec.val), (&mut rule.mask, &spec.mask)] {
        key.dst_mac = number(&filter.dst_mac) as u64;
        key.src_mac = number(&filter.src_mac) as u64;
        key.ethertype = u16::from_be(filter.ether_type);
        key.vlan_tag = u16::from_be(filter.vlan_tag);
    }
}

/// Has the rule match frames of one version of IP alone.
fn only_version(version: u8, rule: &mut FlowRule) {
    (rule.value.ip_version, rule.mask.ip_version) = (version, u8::MAX);
}

fn read_ipv4(spec: &IbvFlowSpecIpv4, rule: &mut FlowRule) {
    only_version(4, rule);
    for (key, filter) in [(&mut rule.value, &spec.val), (&mut rule.mask, &spec.mask)] {
        key.src_ip = u32::from_be(filter.src_ip).into();
        key.dst_ip = u32::from_be(filter.dst_ip).into();
    }
}

fn read_ipv4_ext(spec: &IbvFlowSpecIpv4Ext, rule: &mut FlowRule) {
    only_version(4, rule);
    for (key, filter) in [(&mut rule.value, &spec.val), (&mut rule.mask, &spec.mask)] {
        key.src_ip = u32::from_be(filter.src_ip).into();
        key.dst_ip = u32::from_be(filter.dst_ip).into();
        key.protocol = filter.proto;
        key.traffic_class = filter.tos;
        key.hop_limit = filter.ttl;
        key.ip_flags = filter.flags;
    }
}

fn read_ipv6(spec: &IbvFlowSpecIpv6, rule: &mut FlowRule) {
    only_version(6, rule);
    for (key, filter) in [(&mut rule.value, &spec.val), (&mut rule.mask, &spec.mask)] {
        key.src_ip = number(&filter.src_ip);
        key.dst_ip = number(&filter.dst_ip);
        key.flow_label = u32::from_be(filter.flow_label);
        key.protocol = filter.next_hdr;
        key.traffic_class = filter.traffic_class;
        key.hop_limit = filter.hop_limit;
    }
}

fn read_ports(spec: &IbvFlowSpecTcpUdp, rule: &mut FlowRule) {
    let protocol = if spec.type_ == SPEC_TCP { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
    (rule.value.protocol, rule.mask.protocol) = (protocol as u8, u8::MAX);
    for (key, filter) in [(&mut rule.value, &spec.val), (&mut rule.mask, &spec.mask)] {
        key.dst_port = u16::from_be(filter.dst_port);
        key.src_port = u16::from_be(filter.src_port);
    }
}

/// Undoes [`create_flow`].
///
/// # Safety
/// `flow` must be null or from [`create_flow`], and not used afterwards.
pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut IbvFlow) -> c_int {
    // SAFETY: a rule of ours begins with what programs hold.
    let Some(rule) = (unsafe { flow.cast::<Rule>().as_ref() }) else {
        return errno::code(Err(EINVAL));
    };
    // SAFETY: a program closes a context after its flows.
    let context = unsafe { crate::context::Context::of(rule.abi.context) };
    let outcome = context.ok_or(EINVAL).and_then(|context| {
        context.engine.destroy_flow(rule.flow)?;
        Ok(())
    });
    errno::code(outcome.map(|()| {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(flow.cast::<Rule>()) });
    }))
}
