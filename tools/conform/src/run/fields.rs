//! The fields and words that sentences can have.

use super::make;
use crate::words;

/// Beside those of the frame, in `peer sends`.
pub(crate) const OF_PEER: &[&str] = &["on", "as"];

/// In expectations of frames, completions and events.
pub(crate) const OF_EXPECTATION: &[&str] = &["on", "within", "after", "optional"];

/// Of a completion.
pub(crate) const COMPLETION: &[&str] =
    &["status", "opcode", "length", "imm", "invalidated", "source-qp"];

/// Attributes of a QP, which `qp` and `moves` can change.
const ATTRIBUTES: &[&str] = &[
    "mtu",
    "access",
    "send-psn",
    "receive-psn",
    "timeout",
    "retries",
    "rnr-retries",
    "rnr-timer",
    "initiator-depth",
    "responder-depth",
    "traffic-class",
    "flow-label",
    "hop-limit",
    "sl",
    "qkey",
];

/// What a query of a QP tells.
pub(crate) const OF_QP: &[&str] = ATTRIBUTES;

/// What a query of an SRQ tells.
pub(crate) const OF_SRQ: &[&str] = &["limit", "size"];

/// What can be made, with its fields.
pub(crate) const OBJECTS: [(&str, &[&[&str]]); 7] = [
    ("memory", &[&["access", "read-only", "at", "holds", "domain", "refused"]]),
    (
        "qp",
        &[
            ATTRIBUTES,
            &["state", "srq", "domain", "send-queue", "receive-queue", "inline", "signal-all"],
            &["cq", "send-cq", "receive-cq", "xrc-domain", "refused"],
        ],
    ),
    ("cq", &[&["unpolled", "refused"]]),
    ("srq", &[&["xrc", "xrc-domain", "cq", "limit", "domain", "refused"]]),
    ("window", &[&["domain", "refused"]]),
    ("domain", &[&["refused"]]),
    ("xrc-domain", &[&["refused"]]),
];

/// What the target does, with its fields; `posts` has those of the work request.
pub(crate) const VERBS: [(&str, &[&[&str]]); 10] = [
    ("moves", &[ATTRIBUTES, &["refused"]]),
    ("destroys", &[&["refused"]]),
    ("deregisters", &[&["refused"]]),
    ("reregisters", &[&["access", "read-only", "domain", "refused"]]),
    ("arms", &[&["refused"]]),
    ("polls", &[&["refused"]]),
    ("resizes", &[&["refused"]]),
    ("joins", &[&["on", "refused"]]),
    ("leaves", &[&["on", "refused"]]),
    ("stores", &[&["in"]]),
];

/// Of every work request that is posted to a send queue.
const SENT: &[&str] = &["unsignaled", "solicited", "fence"];

/// Of work requests with memory of the target, and of those whose memory an answer is stored into.
const LOCAL: &[&str] = &["from", "offset", "length", "lkey"];
const ANSWERED: &[&str] = &["from", "into", "offset", "length", "lkey"];

/// Of work requests about memory of the peer.
const REMOTE: &[&str] = &["to", "key", "srq"];

/// Work requests, with their fields.
pub(crate) const WORK_REQUESTS: [(&str, &[&[&str]]); 10] = [
    ("send", &[LOCAL, SENT, &["inline", "imm", "invalidate", "destination", "qkey", "srq"]]),
    ("write", &[LOCAL, SENT, REMOTE, &["inline", "imm"]]),
    ("read", &[ANSWERED, SENT, REMOTE]),
    ("compare-swap", &[ANSWERED, SENT, REMOTE, &["compare", "swap"]]),
    ("fetch-add", &[ANSWERED, SENT, REMOTE, &["add"]]),
    ("atomic-write", &[SENT, REMOTE, &["value"]]),
    ("flush", &[SENT, REMOTE, &["length", "level", "placement"]]),
    ("bind", &[&["window", "memory", "offset", "length", "access", "unsignaled", "fence"]]),
    ("invalidate", &[SENT, &["key"]]),
    ("receive", &[&["to", "into", "offset", "length", "lkey"]]),
];

/// Verbs of connection management, with their fields.
pub(crate) const CM_VERBS: [(&str, &[&[&str]]); 8] = [
    ("listens", &[&["datagrams", "backlog", "refused"]]),
    (
        "connects",
        &[
            BINDING,
            &["as", "datagrams", "service", "retry-count", "ack-timeout", "traffic-class"],
            &["private-data", "refused"],
        ],
    ),
    ("accepts", &[BINDING, &["qkey", "private-data", "refused"]]),
    ("confirms", &[&["private-data", "refused"]]),
    ("rejects", &[&["reason", "information", "private-data", "refused"]]),
    ("prolongs", &[&["refused"]]),
    ("notifies", &[&["refused"]]),
    ("disconnects", &[&["private-data", "refused"]]),
];

/// What a connection binds.
const BINDING: &[&str] =
    &["qp", "qpn", "psn", "responder-resources", "initiator-depth", "rnr-retry-count"];

/// In reports, beside their numbers.
pub(crate) const OF_REPORT: &[&str] = &["as", "private-data", "private-data-length", "information"];

/// Words of `status`: no QP of a scenario matches tags, of which the last two tell.
pub(crate) const STATUSES: &[&str] = words::STATUSES.split_at(22).0;

/// Asynchronous events.
pub(crate) const EVENTS: &[&str] = &[
    "qp-fatal",
    "qp-request-error",
    "qp-access-error",
    "communication-established",
    "send-queue-drained",
    "last-wqe-reached",
    "srq-limit-reached",
    "srq-error",
    "cq-error",
];

/// Words of `needs`.
pub(crate) const NEEDS: &[&str] = &[
    "rc",
    "uc",
    "ud",
    "xrc",
    "atomic",
    "atomic-write",
    "flush",
    "flush-persistent",
    "windows",
    "srq",
    "multicast",
    "reregister",
    "resize-cq",
    "resize-srq",
    "cm",
    "cm-services",
    "counters",
    "mtu-2048",
    "mtu-4096",
    "ipv4",
    "ipv6",
    "vlan",
    "exact-time",
    "congestion",
];

/// Words of `access`.
pub(crate) fn access() -> Vec<&'static str> {
    make::ACCESS.iter().map(|&(name, _)| name).collect()
}
