//! The codes of verbs, and the words that scenarios have for them.

use core::ffi::c_int;

use ferroce_stack::verbs::{QpState, QpType};
use nix::errno::Errno;

/// `enum ibv_wc_status`, from 0.
const STATUSES: [&str; 24] = [
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

/// `enum ibv_wc_opcode`.
const OPCODES: [(c_int, &str); 11] = [
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

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// All of the device.
    Device,
}

/// `enum ibv_event_type`, without what happens to ports: that is no part of a scenario.
const EVENTS: [(c_int, &str, Subject); 11] = [
    (0, "cq-error", Subject::Cq),
    (1, "qp-fatal", Subject::Qp),
    (2, "qp-request-error", Subject::Qp),
    (3, "qp-access-error", Subject::Qp),
    (4, "communication-established", Subject::Qp),
    (5, "send-queue-drained", Subject::Qp),
    (7, "path-migration-error", Subject::Qp),
    (8, "device-fatal", Subject::Device),
    (14, "srq-error", Subject::Srq),
    (15, "srq-limit-reached", Subject::Srq),
    (16, "last-wqe-reached", Subject::Qp),
];

/// `enum ibv_qp_state`, from 0.
const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

/// `enum ibv_qp_type`.
const SERVICES: [(QpType, &str); 5] = [
    (QpType::Rc, "rc"),
    (QpType::Uc, "uc"),
    (QpType::Ud, "ud"),
    (QpType::XrcSend, "xrc-send"),
    (QpType::XrcRecv, "xrc-receive"),
];

/// The word for a status.
pub fn status(code: c_int) -> String {
    let word = usize::try_from(code).ok().and_then(|code| STATUSES.get(code));
    word.map_or_else(|| format!("status-{code}"), |word| (*word).to_owned())
}

/// The word for what completed.
pub fn opcode(code: c_int) -> String {
    let found = OPCODES.iter().find(|(other, _)| *other == code);
    found.map_or_else(|| format!("opcode-{code}"), |(_, word)| (*word).to_owned())
}

/// The word for an event, and what it is about; none if it is about a port.
pub fn event(code: c_int) -> Option<(&'static str, Subject)> {
    EVENTS.iter().find(|(other, ..)| *other == code).map(|&(_, word, subject)| (word, subject))
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
    SERVICES.iter().find(|(_, other)| *other == word).map(|&(service, _)| service)
}

/// The name of an errno.
pub fn errno(code: c_int) -> String {
    match Errno::from_raw(code) {
        Errno::UnknownErrno => format!("errno-{code}"),
        errno => format!("{errno:?}"),
    }
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
        assert_eq!(event(3), Some(("qp-access-error", Subject::Qp)));
        assert_eq!(event(18), None);
        assert_eq!((errno(22), errno(95)), ("EINVAL".into(), "EOPNOTSUPP".into()));
        for word in STATES {
            assert_eq!(state_of(word).map(state), Some(word));
        }
        assert_eq!((state_of("rts"), service_of("rc")), (None, Some(QpType::Rc)));
    }
}
