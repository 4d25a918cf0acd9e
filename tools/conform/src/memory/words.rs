//! Words of scenarios for the codes of verbs.

use ferroce_stack::verbs::{AttrMask, EventKind, QpState, QpType, VerbsError, WcOpcode, WcStatus};

/// The word for a status.
pub(super) const fn status(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "success",
        WcStatus::LocLenErr => "local-length",
        WcStatus::LocQpOpErr => "local-qp-operation",
        WcStatus::LocEecOpErr => "local-eec-operation",
        WcStatus::LocProtErr => "local-protection",
        WcStatus::WrFlushErr => "flushed",
        WcStatus::MwBindErr => "memory-window-bind",
        WcStatus::BadRespErr => "bad-response",
        WcStatus::LocAccessErr => "local-access",
        WcStatus::RemInvReqErr => "remote-invalid-request",
        WcStatus::RemAccessErr => "remote-access",
        WcStatus::RemOpErr => "remote-operation",
        WcStatus::RetryExcErr => "retry-exceeded",
        WcStatus::RnrRetryExcErr => "rnr-retry-exceeded",
        WcStatus::LocRddViolErr => "local-rdd-violation",
        WcStatus::RemInvRdReqErr => "remote-invalid-rd-request",
        WcStatus::RemAbortErr => "remote-aborted",
        WcStatus::InvEecnErr => "invalid-eec-number",
        WcStatus::InvEecStateErr => "invalid-eec-state",
        WcStatus::FatalErr => "fatal",
        WcStatus::RespTimeoutErr => "response-timeout",
        WcStatus::GeneralErr => "general",
        WcStatus::TmErr => "tag-matching",
        WcStatus::TmRndvIncomplete => "tag-matching-rendezvous",
    }
}

/// The word for what completed.
pub(super) const fn opcode(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "send",
        WcOpcode::RdmaWrite => "write",
        WcOpcode::RdmaRead => "read",
        WcOpcode::CompSwap => "compare-swap",
        WcOpcode::FetchAdd => "fetch-add",
        WcOpcode::BindMw => "bind",
        WcOpcode::LocalInv => "invalidate",
        WcOpcode::Flush => "flush",
        WcOpcode::AtomicWrite => "atomic-write",
        WcOpcode::Recv => "receive",
        WcOpcode::RecvRdmaWithImm => "receive-write-imm",
    }
}

/// The word for an event.
pub(super) const fn event(kind: EventKind) -> &'static str {
    match kind {
        EventKind::CqErr => "cq-error",
        EventKind::QpFatal => "qp-fatal",
        EventKind::QpReqErr => "qp-request-error",
        EventKind::QpAccessErr => "qp-access-error",
        EventKind::CommEst => "communication-established",
        EventKind::SqDrained => "send-queue-drained",
        EventKind::PortActive => "port-active",
        EventKind::PortErr => "port-error",
        EventKind::SrqErr => "srq-error",
        EventKind::SrqLimitReached => "srq-limit-reached",
        EventKind::QpLastWqeReached => "last-wqe-reached",
        EventKind::GidChange => "gid-change",
    }
}

/// The service a word names.
pub(super) fn service(word: &str) -> Option<QpType> {
    Some(match word {
        "rc" => QpType::Rc,
        "uc" => QpType::Uc,
        "ud" => QpType::Ud,
        "xrc-send" => QpType::XrcSend,
        "xrc-receive" => QpType::XrcRecv,
        _ => return None,
    })
}

/// States by their words.
const STATES: [(&str, QpState); 7] = [
    ("RESET", QpState::Reset),
    ("INIT", QpState::Init),
    ("RTR", QpState::Rtr),
    ("RTS", QpState::Rts),
    ("SQD", QpState::Sqd),
    ("SQE", QpState::Sqe),
    ("ERR", QpState::Err),
];

/// The state a word names.
pub(super) fn state(word: &str) -> Option<QpState> {
    STATES.iter().find(|&&(own, _)| own == word).map(|&(_, state)| state)
}

/// The word for a state.
pub(super) fn state_word(state: QpState) -> &'static str {
    STATES.iter().find(|&&(_, own)| own == state).map_or("?", |&(word, _)| word)
}

/// The attribute a field of [`crate::target::QpAttributes`] belongs to.
pub(super) fn attribute(field: &str) -> Option<AttrMask> {
    Some(match field.replace('-', "_").as_str() {
        "path_mtu" => AttrMask::PATH_MTU,
        "dest_qp_num" => AttrMask::DEST_QPN,
        "rq_psn" => AttrMask::RQ_PSN,
        "sq_psn" => AttrMask::SQ_PSN,
        "access" => AttrMask::ACCESS_FLAGS,
        "qkey" => AttrMask::QKEY,
        "timeout" => AttrMask::TIMEOUT,
        "retry_cnt" => AttrMask::RETRY_CNT,
        "rnr_retry" => AttrMask::RNR_RETRY,
        "min_rnr_timer" => AttrMask::MIN_RNR_TIMER,
        "max_rd_atomic" => AttrMask::MAX_QP_RD_ATOMIC,
        "max_dest_rd_atomic" => AttrMask::MAX_DEST_RD_ATOMIC,
        "traffic_class" | "flow_label" | "hop_limit" | "sl" => AttrMask::AV,
        _ => return None,
    })
}

/// The name of an errno.
pub(super) const fn errno(error: VerbsError) -> &'static str {
    match error {
        VerbsError::Invalid => "EINVAL",
        VerbsError::NoMemory => "ENOMEM",
        VerbsError::Busy => "EBUSY",
        VerbsError::NotSupported => "EOPNOTSUPP",
    }
}
