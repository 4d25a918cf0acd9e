//! The words that scenarios have for the codes of verbs, by the codes' numbers in the C interface.

use ferroce_stack::verbs::{AttrMask, QpState, QpType};

/// For `enum ibv_wc_status`, from 0.
pub const STATUSES: [&str; 24] = [
    "success",
    "local-length",
    "local-qp-operation",
    "local-eec-operation",
    "local-protection",
    "flushed",
    "memory-window-bind",
    "bad-response",
    "local-access",
    "remote-invalid-request",
    "remote-access",
    "remote-operation",
    "retry-exceeded",
    "rnr-retry-exceeded",
    "local-rdd-violation",
    "remote-invalid-rd-request",
    "remote-aborted",
    "invalid-eec-number",
    "invalid-eec-state",
    "fatal",
    "response-timeout",
    "general",
    "tag-matching",
    "tag-matching-rendezvous",
];

/// For `enum ibv_wc_opcode`.
pub const OPCODES: [(i32, &str); 11] = [
    (0, "send"),
    (1, "write"),
    (2, "read"),
    (3, "compare-swap"),
    (4, "fetch-add"),
    (5, "bind"),
    (6, "invalidate"),
    (8, "flush"),
    (9, "atomic-write"),
    (128, "receive"),
    (129, "receive-write-imm"),
];

/// For `enum ibv_event_type`, without what happens to ports: that is no part of a scenario.
pub const EVENTS: [(i32, &str); 11] = [
    (0, "cq-error"),
    (1, "qp-fatal"),
    (2, "qp-request-error"),
    (3, "qp-access-error"),
    (4, "communication-established"),
    (5, "send-queue-drained"),
    (7, "path-migration-error"),
    (8, "device-fatal"),
    (14, "srq-error"),
    (15, "srq-limit-reached"),
    (16, "last-wqe-reached"),
];

/// For `enum ibv_qp_state`, from 0.
pub const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

/// Services of a QP.
pub const SERVICES: [&str; 5] = ["rc", "uc", "ud", "xrc-send", "xrc-receive"];

/// The word for a status.
pub fn status(code: i32) -> String {
    let word = usize::try_from(code).ok().and_then(|code| STATUSES.get(code));
    word.map_or_else(|| format!("status-{code}"), |word| (*word).to_owned())
}

/// The word for what completed.
pub fn opcode(code: i32) -> String {
    let found = OPCODES.iter().find(|(other, _)| *other == code);
    found.map_or_else(|| format!("opcode-{code}"), |(_, word)| (*word).to_owned())
}

/// The word for an event; none if it is about a port.
pub fn event(code: i32) -> Option<&'static str> {
    EVENTS.iter().find(|(other, _)| *other == code).map(|&(_, word)| word)
}

/// The words for events.
pub fn events() -> impl Iterator<Item = &'static str> {
    EVENTS.iter().map(|&(_, word)| word)
}

/// The word for a state.
pub fn state(state: QpState) -> &'static str {
    STATES[state as usize]
}

/// The state of this word.
pub fn state_of(word: &str) -> Option<QpState> {
    let code = STATES.iter().position(|other| *other == word)?;
    Some(QpState::ALL[code])
}

/// The service of this word.
pub fn service_of(word: &str) -> Option<QpType> {
    Some(match word {
        "rc" => QpType::Rc,
        "uc" => QpType::Uc,
        "ud" => QpType::Ud,
        "xrc-send" => QpType::XrcSend,
        "xrc-receive" => QpType::XrcRecv,
        _ => return None,
    })
}

/// The attribute that a field of [`QpAttributes`](crate::target::QpAttributes) belongs to, in
/// either spelling of its name.
pub fn attribute_of(field: &str) -> Option<AttrMask> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_words() {
        assert_eq!(
            (status(0), status(5), status(13)),
            ("success".into(), "flushed".into(), "rnr-retry-exceeded".into())
        );
        assert_eq!(status(99), "status-99");
        assert_eq!(status(-1), "status--1");
        assert_eq!((opcode(129), opcode(7)), ("receive-write-imm".into(), "opcode-7".into()));
        assert_eq!((event(3), event(18)), (Some("qp-access-error"), None));
        for word in STATES {
            assert_eq!(state_of(word).map(state), Some(word));
        }
        assert_eq!((state_of("rts"), service_of("rc")), (None, Some(QpType::Rc)));
        assert!(SERVICES.iter().all(|word| service_of(word).is_some()));
    }

    #[test]
    fn attributes_are_known_by_either_spelling() {
        assert_eq!(attribute_of("rnr-retry"), Some(AttrMask::RNR_RETRY));
        assert_eq!(attribute_of("hop_limit"), Some(AttrMask::AV));
        assert_eq!(attribute_of("port"), None);
    }
}
