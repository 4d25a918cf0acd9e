//! The QP transition table (IBA 10.3.1, table 91 and its relatives) as data, with the rows and the
//! columns of the published tables: what a transition requires and what it allows besides.

use ferroce_stack::verbs::{AttrMask, QpState, QpType};

use AttrMask as M;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// Every service.
pub const TYPES: [QpType; 7] = [
    QpType::Ud,
    QpType::Gsi,
    QpType::Uc,
    QpType::Rc,
    QpType::XrcSend,
    QpType::XrcRecv,
    QpType::RawPacket,
];

/// Every state.
pub const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

/// The way from RESET to RTS.
pub const FORWARD: [(QpState, QpState); 3] = [(Reset, Init), (Init, Rtr), (Rtr, Rts)];

/// Every mask bit there is.
pub const BITS: [AttrMask; 22] = [
    M::STATE,
    M::CUR_STATE,
    M::EN_SQD_ASYNC_NOTIFY,
    M::ACCESS_FLAGS,
    M::PKEY_INDEX,
    M::PORT,
    M::QKEY,
    M::AV,
    M::PATH_MTU,
    M::TIMEOUT,
    M::RETRY_CNT,
    M::RNR_RETRY,
    M::RQ_PSN,
    M::MAX_QP_RD_ATOMIC,
    M::ALT_PATH,
    M::MIN_RNR_TIMER,
    M::SQ_PSN,
    M::MAX_DEST_RD_ATOMIC,
    M::PATH_MIG_STATE,
    M::CAP,
    M::DEST_QPN,
    M::RATE_LIMIT,
];

/// What a transition requires and allows besides STATE.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Without one of these the transition is refused.
    pub required: AttrMask,
    /// These may be given.
    pub optional: AttrMask,
}

/// Columns: UD, GSI, UC, RC, XRC initiator, XRC target, raw packets.
type Cells = [&'static [AttrMask]; 7];

const NOTHING: Cells = [&[]; 7];
const CONNECTED_INIT: &[AttrMask] = &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS];
const UC_RTR: &[AttrMask] = &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN];
const RC_RTR: &[AttrMask] =
    &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN, M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER];
const RC_RTS: &[AttrMask] =
    &[M::SQ_PSN, M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC];
const UD_RUNNING: &[AttrMask] = &[M::CUR_STATE, M::QKEY];
const UC_RUNNING: &[AttrMask] = &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE];
const RC_RUNNING: &[AttrMask] =
    &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE, M::MIN_RNR_TIMER];
const RTR_OPTIONAL: &[AttrMask] = &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX];
const SQD_UC: &[AttrMask] =
    &[M::AV, M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX, M::PATH_MIG_STATE];
const SQD_RC: &[AttrMask] = &[
    M::PORT,
    M::AV,
    M::TIMEOUT,
    M::RETRY_CNT,
    M::RNR_RETRY,
    M::MAX_QP_RD_ATOMIC,
    M::MAX_DEST_RD_ATOMIC,
    M::ALT_PATH,
    M::ACCESS_FLAGS,
    M::PKEY_INDEX,
    M::MIN_RNR_TIMER,
    M::PATH_MIG_STATE,
];
const SQD_XRC_SEND: &[AttrMask] = &[
    M::PORT,
    M::AV,
    M::TIMEOUT,
    M::RETRY_CNT,
    M::RNR_RETRY,
    M::MAX_QP_RD_ATOMIC,
    M::ALT_PATH,
    M::ACCESS_FLAGS,
    M::PKEY_INDEX,
    M::PATH_MIG_STATE,
];
const SQD_XRC_RECV: &[AttrMask] = &[
    M::PORT,
    M::AV,
    M::TIMEOUT,
    M::MAX_DEST_RD_ATOMIC,
    M::ALT_PATH,
    M::ACCESS_FLAGS,
    M::PKEY_INDEX,
    M::MIN_RNR_TIMER,
    M::PATH_MIG_STATE,
];
const NOTIFY: &[AttrMask] = &[M::EN_SQD_ASYNC_NOTIFY];
const UD_KEYS: &[AttrMask] = &[M::PKEY_INDEX, M::QKEY];

/// From, to, required, optional.
const ROWS: [(QpState, QpState, Cells, Cells); 9] = [
    (
        Reset,
        Init,
        [
            &[M::PKEY_INDEX, M::PORT, M::QKEY],
            UD_KEYS,
            CONNECTED_INIT,
            CONNECTED_INIT,
            CONNECTED_INIT,
            CONNECTED_INIT,
            &[M::PORT],
        ],
        NOTHING,
    ),
    (
        Init,
        Init,
        NOTHING,
        [
            &[M::PKEY_INDEX, M::PORT, M::QKEY],
            UD_KEYS,
            CONNECTED_INIT,
            CONNECTED_INIT,
            CONNECTED_INIT,
            CONNECTED_INIT,
            &[M::PORT],
        ],
    ),
    (
        Init,
        Rtr,
        [&[], &[], UC_RTR, RC_RTR, UC_RTR, RC_RTR, &[]],
        [UD_KEYS, UD_KEYS, RTR_OPTIONAL, RTR_OPTIONAL, RTR_OPTIONAL, RTR_OPTIONAL, &[]],
    ),
    (
        Rtr,
        Rts,
        [&[M::SQ_PSN], &[M::SQ_PSN], &[M::SQ_PSN], RC_RTS, RC_RTS, &[M::SQ_PSN, M::TIMEOUT], &[]],
        [UD_RUNNING, UD_RUNNING, UC_RUNNING, RC_RUNNING, UC_RUNNING, RC_RUNNING, &[]],
    ),
    (
        Rts,
        Rts,
        NOTHING,
        [UD_RUNNING, UD_RUNNING, UC_RUNNING, RC_RUNNING, UC_RUNNING, RC_RUNNING, &[]],
    ),
    (Rts, Sqd, NOTHING, [NOTIFY, NOTIFY, NOTIFY, NOTIFY, NOTIFY, NOTIFY, &[]]),
    (Sqd, Sqd, NOTHING, [UD_KEYS, UD_KEYS, SQD_UC, SQD_RC, SQD_XRC_SEND, SQD_XRC_RECV, &[]]),
    (
        Sqd,
        Rts,
        NOTHING,
        [UD_RUNNING, UD_RUNNING, UC_RUNNING, RC_RUNNING, UC_RUNNING, RC_RUNNING, &[]],
    ),
    (
        Sqe,
        Rts,
        NOTHING,
        [UD_RUNNING, UD_RUNNING, &[M::CUR_STATE, M::ACCESS_FLAGS], &[], &[], &[], &[]],
    ),
];

/// The row of a transition; `None` if it does not exist.
pub fn row(qp_type: QpType, from: QpState, to: QpState) -> Option<Row> {
    match (from, to) {
        (Reset, Err) => return None,
        (_, Reset | Err) => return Some(Row { required: M::NONE, optional: M::NONE }),
        _ => {}
    }
    let column = TYPES.iter().position(|&column| column == qp_type)?;
    let (.., required, optional) = ROWS.iter().find(|row| (row.0, row.1) == (from, to))?;
    Some(Row { required: union(required[column]), optional: union(optional[column]) })
}

/// All of `bits` together.
fn union(bits: &[AttrMask]) -> AttrMask {
    bits.iter().fold(AttrMask::NONE, |all, &bit| all | bit)
}

/// The bits of `mask` one by one.
pub fn bits(mask: AttrMask) -> impl Iterator<Item = AttrMask> {
    BITS.into_iter().filter(move |&bit| mask.has(bit))
}
