//! Attributes of queue pairs, changed and asked for. What is refused says in the log which
//! attribute, with which value, and what would do.

use core::ffi::c_int;
use core::fmt::Write;

use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::transition;
use ferroce_stack::verbs::{Access, AhAttr, AttrMask, Mtu, QpAttr, QpInit, QpState, QpType, Qpn};

use crate::ah;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvAhAttr, IbvGid, IbvGlobalRoute, IbvQp, IbvQpAttr, IbvQpInitAttr, zeroed};
use crate::log::refuse;
use crate::qp::{Qp, cap_of};

/// `enum ibv_qp_attr_mask`, for the log.
const NAMES: [(AttrMask, &str); 22] = [
    (AttrMask::STATE, "IBV_QP_STATE"),
    (AttrMask::CUR_STATE, "IBV_QP_CUR_STATE"),
    (AttrMask::EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
    (AttrMask::ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS"),
    (AttrMask::PKEY_INDEX, "IBV_QP_PKEY_INDEX"),
    (AttrMask::PORT, "IBV_QP_PORT"),
    (AttrMask::QKEY, "IBV_QP_QKEY"),
    (AttrMask::AV, "IBV_QP_AV"),
    (AttrMask::PATH_MTU, "IBV_QP_PATH_MTU"),
    (AttrMask::TIMEOUT, "IBV_QP_TIMEOUT"),
    (AttrMask::RETRY_CNT, "IBV_QP_RETRY_CNT"),
    (AttrMask::RNR_RETRY, "IBV_QP_RNR_RETRY"),
    (AttrMask::RQ_PSN, "IBV_QP_RQ_PSN"),
    (AttrMask::MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC"),
    (AttrMask::ALT_PATH, "IBV_QP_ALT_PATH"),
    (AttrMask::MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"),
    (AttrMask::SQ_PSN, "IBV_QP_SQ_PSN"),
    (AttrMask::MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC"),
    (AttrMask::PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE"),
    (AttrMask::CAP, "IBV_QP_CAP"),
    (AttrMask::DEST_QPN, "IBV_QP_DEST_QPN"),
    (AttrMask::RATE_LIMIT, "IBV_QP_RATE_LIMIT"),
];

/// # Safety
/// The QP must be null or live, the attributes null or valid.
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut IbvQp,
    attr: *mut IbvQpAttr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(qp), Some(attr)) = (unsafe { (Qp::of(qp), attr.as_ref()) }) else {
        return errno::code(Err(EINVAL));
    };
    let mask = of_service(qp.queue.init().qp_type, AttrMask(mask as u32));
    let outcome = modify(qp, attr, mask);
    qp.show_state();
    errno::code(outcome)
}

/// The mask without what half a connection has no use for: programs give both ends of XRC the
/// attributes of RC, and Linux lets them.
fn of_service(qp_type: QpType, mask: AttrMask) -> AttrMask {
    match qp_type {
        QpType::XrcSend => mask.without(AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER),
        QpType::XrcRecv => {
            mask.without(AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY)
        }
        _ => mask,
    }
}

fn modify(qp: &Qp, attr: &IbvQpAttr, mask: AttrMask) -> Result<(), Errno> {
    let qpn = qp.queue.qpn().0;
    let path = &attr.ah_attr;
    let mut attr =
        stack_attr(attr, mask).map_err(|why| refuse!(EINVAL, "modify_qp of QP {qpn:#x}: {why}"))?;
    if mask.has(AttrMask::AV) {
        attr.ah_attr = ah::attributes(qp.context()?, path)?;
    }
    let from = qp.queue.state();
    qp.engine.modify_qp(&qp.queue, &attr, mask).map_err(|error| {
        let why = explain(qp, from, &attr, mask);
        refuse!(EINVAL, "modify_qp of QP {qpn:#x}: {why}");
        Errno::from(error)
    })
}

/// The attributes of `mask` in the stack's words, or what is wrong with one.
fn stack_attr(attr: &IbvQpAttr, mask: AttrMask) -> Result<QpAttr, String> {
    let mut to = QpAttr {
        qkey: attr.qkey,
        rq_psn: Psn::new(attr.rq_psn),
        sq_psn: Psn::new(attr.sq_psn),
        dest_qp_num: Qpn(attr.dest_qp_num),
        qp_access_flags: Access(attr.qp_access_flags),
        pkey_index: attr.pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        ..QpAttr::default()
    };
    if mask.has(AttrMask::STATE) {
        to.qp_state = state_of(attr.qp_state)?;
    }
    if mask.has(AttrMask::CUR_STATE) {
        to.cur_qp_state = state_of(attr.cur_qp_state)?;
    }
    if mask.has(AttrMask::PATH_MTU) {
        let known = Mtu::ALL.into_iter().find(|&mtu| mtu as c_int == attr.path_mtu);
        to.path_mtu = known.ok_or_else(|| {
            format!("path_mtu {}: not one of IBV_MTU_256 (1) to IBV_MTU_4096 (5)", attr.path_mtu)
        })?;
    }
    Ok(to)
}

fn state_of(state: c_int) -> Result<QpState, String> {
    let known = QpState::ALL.into_iter().find(|&known| known as c_int == state);
    known.ok_or_else(|| format!("state {state}: not one of IBV_QPS_RESET (0) to IBV_QPS_ERR (6)"))
}

/// Why the device refused a modification.
fn explain(qp: &Qp, from: QpState, attr: &QpAttr, mask: AttrMask) -> String {
    let Ok(device) = qp.engine.lock() else {
        return "the process was forked after the device was opened".to_owned();
    };
    let mut why = transition_faults(qp.queue.init(), from, attr, mask);
    let mut fault = |bit: AttrMask, wrong: bool, what: &dyn std::fmt::Display| {
        if mask.has(bit) && wrong {
            let _ = write!(why, "; {what}");
        }
    };
    let mtu = device.query_port().active_mtu;
    let limit = device.config().max_rd_atomic;
    let pkeys = device.config().pkeys.len();
    let gid = device.query_gid(attr.ah_attr.sgid_index);
    let index = attr.ah_attr.sgid_index;
    let dgid = attr.ah_attr.dgid;
    let family = gid.is_some_and(|entry| entry.gid.ipv4().is_some() != dgid.ipv4().is_some());
    let access = attr.qp_access_flags.0;
    let peer = attr.dest_qp_num.0;
    type M = AttrMask;
    fault(M::PORT, attr.port_num != 1, &format_args!("port_num {}, want 1", attr.port_num));
    fault(
        M::PKEY_INDEX,
        usize::from(attr.pkey_index) >= pkeys,
        &format_args!("pkey_index {}, there are {pkeys}", attr.pkey_index),
    );
    fault(
        M::PATH_MTU,
        attr.path_mtu > mtu,
        &format_args!("path_mtu {}, the port has {}", attr.path_mtu.bytes(), mtu.bytes()),
    );
    fault(M::AV, gid.is_none(), &format_args!("ah_attr.grh.sgid_index {index} has no GID"));
    fault(
        M::AV,
        family,
        &format_args!("dgid {dgid} and the GID at sgid_index {index} are not of one IP version"),
    );
    fault(M::AV, dgid.is_multicast(), &format_args!("dgid {dgid} is multicast"));
    fault(M::AV, dgid == Gid::default(), &"dgid is all zero");
    fault(M::DEST_QPN, peer > 0xff_ffff, &format_args!("dest_qp_num {peer:#x}, over 24 bits"));
    fault(
        M::ACCESS_FLAGS,
        access & 0xf_fc00 != 0,
        &format_args!("qp_access_flags {access:#x}, known are 0x3ff and from 0x100000 on"),
    );
    fault(M::TIMEOUT, attr.timeout > 31, &format_args!("timeout {}, over 31", attr.timeout));
    fault(M::RETRY_CNT, attr.retry_cnt > 7, &format_args!("retry_cnt {}, over 7", attr.retry_cnt));
    fault(M::RNR_RETRY, attr.rnr_retry > 7, &format_args!("rnr_retry {}, over 7", attr.rnr_retry));
    fault(
        M::MIN_RNR_TIMER,
        attr.min_rnr_timer > 31,
        &format_args!("min_rnr_timer {}, over 31", attr.min_rnr_timer),
    );
    for (bit, name, value) in [
        (M::MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic),
        (M::MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr.max_dest_rd_atomic),
    ] {
        fault(bit, value > limit, &format_args!("{name} {value}, over {limit}"));
    }
    why
}

/// What is wrong with the transition as such.
fn transition_faults(init: &QpInit, from: QpState, attr: &QpAttr, mask: AttrMask) -> String {
    let to = if mask.has(AttrMask::STATE) { attr.qp_state } else { from };
    let mut why = format!("{:?} from {from:?} to {to:?}", init.qp_type);
    if mask.has(AttrMask::CUR_STATE) && attr.cur_qp_state != from {
        let _ = write!(why, "; cur_qp_state {:?} is not the state", attr.cur_qp_state);
    }
    let Some(row) = transition(init.qp_type, from, to) else {
        why.push_str("; there is no such transition");
        return why;
    };
    let missing = names(row.required.without(mask));
    if !missing.is_empty() {
        let _ = write!(why, "; missing in the mask: {missing}");
    }
    let allowed = row.required | row.optional | AttrMask::STATE;
    let surplus = names(mask.without(allowed));
    if !surplus.is_empty() {
        let _ = write!(why, "; not allowed here: {surplus}");
    }
    why
}

fn names(mask: AttrMask) -> String {
    let mut text = String::new();
    let mut rest = mask;
    for (bit, name) in NAMES {
        if mask.has(bit) {
            rest = rest.without(bit);
            let _ = write!(text, "{}{name}", if text.is_empty() { "" } else { " " });
        }
    }
    if rest != AttrMask::NONE {
        let _ = write!(text, " {:#x}", rest.0);
    }
    text
}

/// # Safety
/// The QP must be null or live, the other pointers null or valid.
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut IbvQp,
    attr: *mut IbvQpAttr,
    _mask: c_int,
    init_attr: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(found) = (unsafe { Qp::of(qp) }) else { return errno::code(Err(EINVAL)) };
    // SAFETY: as above.
    let (attr, init_attr) = unsafe { (attr.as_mut(), init_attr.as_mut()) };
    errno::code(found.engine.query_qp(&found.queue).map_err(Errno::from).map(|(present, init)| {
        found.show_state();
        if let Some(attr) = attr {
            *attr = abi_attr(&present, &init);
        }
        if let Some(init_attr) = init_attr {
            // SAFETY: the QP is live; these fields never change.
            let base = unsafe { &(*found.abi()).qp_base };
            *init_attr = IbvQpInitAttr {
                qp_context: base.qp_context,
                send_cq: base.send_cq,
                recv_cq: base.recv_cq,
                srq: base.srq,
                cap: cap_of(&init.cap),
                qp_type: init.qp_type as c_int,
                sq_sig_all: c_int::from(init.sq_sig_all),
            };
        }
    }))
}

fn abi_attr(from: &QpAttr, init: &QpInit) -> IbvQpAttr {
    let mut attr: IbvQpAttr = zeroed();
    attr.qp_state = from.qp_state as c_int;
    attr.cur_qp_state = from.qp_state as c_int;
    attr.path_mtu = from.path_mtu as c_int;
    attr.qkey = from.qkey;
    attr.rq_psn = from.rq_psn.value();
    attr.sq_psn = from.sq_psn.value();
    attr.dest_qp_num = from.dest_qp_num.0;
    attr.qp_access_flags = from.qp_access_flags.0;
    attr.cap = cap_of(&init.cap);
    if from.ah_attr.dgid != Gid::default() {
        attr.ah_attr = abi_path(&from.ah_attr);
    }
    attr.pkey_index = from.pkey_index;
    attr.en_sqd_async_notify = u8::from(from.en_sqd_async_notify);
    attr.sq_draining = u8::from(from.sq_draining);
    attr.max_rd_atomic = from.max_rd_atomic;
    attr.max_dest_rd_atomic = from.max_dest_rd_atomic;
    attr.min_rnr_timer = from.min_rnr_timer;
    attr.port_num = from.port_num;
    attr.timeout = from.timeout;
    attr.retry_cnt = from.retry_cnt;
    attr.rnr_retry = from.rnr_retry;
    attr
}

fn abi_path(from: &AhAttr) -> IbvAhAttr {
    let mut attr: IbvAhAttr = zeroed();
    attr.grh = IbvGlobalRoute {
        dgid: IbvGid { raw: from.dgid.0 },
        flow_label: from.flow_label,
        sgid_index: from.sgid_index,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
    };
    attr.sl = from.sl;
    attr.is_global = 1;
    attr.port_num = 1;
    attr
}

#[cfg(test)]
mod tests {
    use ferroce_stack::verbs::QpCap;

    use super::*;

    const RC: QpInit = QpInit {
        qp_type: QpType::Rc,
        pd: None,
        send_cq: None,
        recv_cq: None,
        srq: None,
        xrcd: None,
        cap: QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        sq_sig_all: false,
    };

    #[test]
    fn attributes_survive_the_way_there_and_back() {
        let mut attr: IbvQpAttr = zeroed();
        attr.qp_state = 2;
        attr.path_mtu = 5;
        attr.rq_psn = 0x12_3456;
        attr.dest_qp_num = 77;
        let mask = AttrMask::STATE | AttrMask::PATH_MTU;
        let mut there = stack_attr(&attr, mask).unwrap();
        there.ah_attr = AhAttr { dgid: Gid([9; 16]), sgid_index: 1, ..AhAttr::default() };
        let back = abi_attr(&there, &RC);
        assert_eq!((back.qp_state, back.path_mtu, back.rq_psn), (2, 5, 0x12_3456));
        assert_eq!((back.ah_attr.grh.dgid.raw, back.ah_attr.grh.sgid_index), ([9; 16], 1));
        assert_eq!((back.ah_attr.is_global, back.ah_attr.port_num), (1, 1));
    }

    #[test]
    fn codes_out_of_range_are_named() {
        let mut attr: IbvQpAttr = zeroed();
        (attr.qp_state, attr.path_mtu) = (9, 6);
        assert!(stack_attr(&attr, AttrMask::STATE).is_err_and(|why| why.contains("state 9")));
        assert!(stack_attr(&attr, AttrMask::PATH_MTU).is_err_and(|why| why.contains("path_mtu 6")));
        assert!(stack_attr(&attr, AttrMask::NONE).is_ok());
    }

    #[test]
    fn ends_of_xrc_take_the_attributes_of_rc() {
        let mask = AttrMask::STATE | AttrMask::MIN_RNR_TIMER | AttrMask::RETRY_CNT;
        assert_eq!(of_service(QpType::Rc, mask), mask);
        let send = of_service(QpType::XrcSend, mask);
        assert_eq!(send, AttrMask::STATE | AttrMask::RETRY_CNT);
        let recv = of_service(QpType::XrcRecv, mask);
        assert_eq!(recv, AttrMask::STATE | AttrMask::MIN_RNR_TIMER);
    }

    #[test]
    fn a_refused_transition_names_what_is_missing_and_what_is_too_much() {
        let attr = QpAttr { qp_state: QpState::Init, ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::PORT | AttrMask::QKEY;
        let why = transition_faults(&RC, QpState::Reset, &attr, mask);
        assert!(
            why.contains("missing in the mask: IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX"),
            "{why}"
        );
        assert!(why.contains("not allowed here: IBV_QP_QKEY"), "{why}");
        let why = transition_faults(&RC, QpState::Rts, &attr, AttrMask::STATE);
        assert!(why.contains("no such transition"), "{why}");
    }
}
