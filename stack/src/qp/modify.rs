//! The table of states and attributes (IBA 10.3.1, 11.2.5.3), and what each transition does. A
//! modification takes effect whole or not at all.

use super::selective::Recovery;
use super::{Qp, Shared};
use crate::ah::Path;
use crate::verbs::{AttrMask, QpAttr, QpState, QpType, VerbsError};
use crate::wire::source_port;

use AttrMask as M;
use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// Attributes a transition needs and those it may have besides ([`transition`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Must be given.
    pub required: AttrMask,
    /// May be given.
    pub optional: AttrMask,
}

const NONE: AttrMask = AttrMask::NONE;

const fn set<const N: usize>(masks: [AttrMask; N]) -> AttrMask {
    let (mut all, mut at) = (NONE, 0);
    while at < N {
        all = all.with(masks[at]);
        at += 1;
    }
    all
}

/// What a QP of a service needs to go from one state to another; `None` if it cannot.
pub fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    let row = |required, optional| Some(Transition { required, optional });
    match (from, to) {
        (Reset, Error) => None,
        (_, Reset | Error) => row(NONE, NONE),
        (Reset, Init) => row(of_init(qp_type), NONE),
        (Init, Init) => row(NONE, of_init(qp_type)),
        (Init, Rtr) => row(init_to_rtr(qp_type), init_to_rtr_optional(qp_type)),
        (Rtr, Rts) => row(rtr_to_rts(qp_type), running_optional(qp_type)),
        (Rts, Rts) | (Sqd, Rts) => row(NONE, running_optional(qp_type)),
        (Rts, Sqd) => row(NONE, rts_to_sqd_optional(qp_type)),
        (Sqd, Sqd) => row(NONE, sqd_optional(qp_type)),
        (Sqe, Rts) => row(NONE, sqe_to_rts_optional(qp_type)),
        _ => None,
    }
}

/// What INIT is made of: needed to enter it, allowed while there.
fn of_init(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::Ud => set([M::PKEY_INDEX, M::PORT, M::QKEY]),
        QpType::Gsi => set([M::PKEY_INDEX, M::QKEY]),
        QpType::RawPacket => M::PORT,
        _ => set([M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
    }
}

fn init_to_rtr(qp_type: QpType) -> AttrMask {
    const CONNECTED: AttrMask = set([M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN]);
    match qp_type {
        QpType::Ud | QpType::Gsi | QpType::RawPacket => NONE,
        QpType::Uc | QpType::XrcSend => CONNECTED,
        QpType::Rc | QpType::XrcRecv => {
            CONNECTED.with(M::MAX_DEST_RD_ATOMIC).with(M::MIN_RNR_TIMER)
        }
    }
}

fn init_to_rtr_optional(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::Ud | QpType::Gsi => set([M::PKEY_INDEX, M::QKEY]),
        QpType::RawPacket => NONE,
        _ => set([M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX]),
    }
}

fn rtr_to_rts(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::RawPacket => NONE,
        QpType::Ud | QpType::Gsi | QpType::Uc => M::SQ_PSN,
        QpType::XrcRecv => set([M::SQ_PSN, M::TIMEOUT]),
        QpType::Rc | QpType::XrcSend => {
            set([M::SQ_PSN, M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC])
        }
    }
}

/// Optional on the way to RTS from RTR, RTS and SQD alike.
fn running_optional(qp_type: QpType) -> AttrMask {
    const CONNECTED: AttrMask =
        set([M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE]);
    match qp_type {
        QpType::RawPacket => NONE,
        QpType::Ud | QpType::Gsi => set([M::CUR_STATE, M::QKEY]),
        QpType::Uc | QpType::XrcSend => CONNECTED,
        QpType::Rc | QpType::XrcRecv => CONNECTED.with(M::MIN_RNR_TIMER),
    }
}

fn rts_to_sqd_optional(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::RawPacket => NONE,
        _ => M::EN_SQD_ASYNC_NOTIFY,
    }
}

fn sqd_optional(qp_type: QpType) -> AttrMask {
    const UC: AttrMask =
        set([M::AV, M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX, M::PATH_MIG_STATE]);
    const REQUESTER: AttrMask =
        set([M::PORT, M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC]);
    const RESPONDER: AttrMask = set([M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]);
    match qp_type {
        QpType::RawPacket => NONE,
        QpType::Ud | QpType::Gsi => set([M::PKEY_INDEX, M::QKEY]),
        QpType::Uc => UC,
        QpType::Rc => set([UC, REQUESTER, RESPONDER]),
        QpType::XrcSend => UC.with(REQUESTER),
        QpType::XrcRecv => set([UC, M::PORT, M::TIMEOUT, RESPONDER]),
    }
}

fn sqe_to_rts_optional(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::Ud | QpType::Gsi => set([M::CUR_STATE, M::QKEY]),
        QpType::Uc => set([M::CUR_STATE, M::ACCESS_FLAGS]),
        _ => NONE,
    }
}

impl Qp {
    /// Changes state and attributes (`ibv_modify_qp`).
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the transition does not exist, an attribute is missing, not
    /// allowed or out of range; then nothing has changed.
    pub fn modify(
        &mut self,
        shared: &mut Shared,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), VerbsError> {
        let from = self.claimed_state(attr, mask)?;
        let to = if mask.has(M::STATE) { attr.qp_state } else { from };
        let row = transition(self.init.qp_type, from, to).ok_or(VerbsError::Invalid)?;
        let allowed = row.required.with(row.optional).with(M::STATE);
        if !mask.has(row.required) || mask.without(allowed) != NONE {
            return Err(VerbsError::Invalid);
        }
        if self.state == Sqd && self.attr.sq_draining && !matches!(to, Reset | Error) {
            return Err(VerbsError::Invalid);
        }
        check_ranges(shared, attr, mask)?;
        let merged = merge(&self.attr, attr, mask);
        let path = self.path_for(shared, &merged, mask)?;
        let pkey = match mask.has(M::PKEY_INDEX) {
            true => shared.port.pkey(merged.pkey_index)?,
            false => self.pkey,
        };
        self.attr = merged;
        self.pkey = pkey;
        if path.is_some() {
            self.path = path;
        }
        self.enter(shared, to);
        Ok(())
    }

    /// The state the row is chosen by: the real one, or the one claimed where that is legal.
    fn claimed_state(&self, attr: &QpAttr, mask: AttrMask) -> Result<QpState, VerbsError> {
        if !mask.has(M::CUR_STATE) {
            return Ok(self.state);
        }
        match attr.cur_qp_state {
            Rtr | Rts | Sqd | Sqe if attr.cur_qp_state == self.state => Ok(self.state),
            // The queue may have failed since the application looked.
            Rts if self.state == Sqe => Ok(Sqe),
            _ => Err(VerbsError::Invalid),
        }
    }

    fn path_for(
        &self,
        shared: &Shared,
        merged: &QpAttr,
        mask: AttrMask,
    ) -> Result<Option<Path>, VerbsError> {
        if !mask.has(M::AV) {
            return Ok(None);
        }
        if merged.ah_attr.dgid.is_multicast() {
            return Err(VerbsError::Invalid);
        }
        let flow_label = merged.ah_attr.flow_label;
        let port = source_port(flow_label, self.qpn.0, merged.dest_qp_num.0);
        Path::new(&shared.port, &merged.ah_attr, port).map(Some)
    }

    fn enter(&mut self, shared: &mut Shared, to: QpState) {
        let from = self.state;
        match to {
            Reset => {
                self.forget_kept(shared);
                return self.reset();
            }
            Error => return self.fail(shared),
            _ => self.state = to,
        }
        match (from, to) {
            (Init, Rtr) => {
                self.start_recovery(shared.limits.loss_recovery);
                self.start_responder();
                self.start_limiter(shared);
            }
            (Rtr, Rts) => self.start_requester(),
            (Sqd, _) => self.reload_retries(),
            (Rts, Sqd) => {
                self.attr.sq_draining = true;
                self.check_drained(shared);
            }
            _ => {}
        }
    }

    /// To RESET: queues emptied without completions, all forgotten.
    fn reset(&mut self) {
        self.sq.clear();
        self.rq.clear();
        self.state = Reset;
        self.attr = QpAttr::default();
        self.path = None;
        self.limiter = None;
        self.recovery = Recovery::GoBackN;
        self.start_requester();
        self.start_responder();
    }
}

fn check_ranges(shared: &Shared, attr: &QpAttr, mask: AttrMask) -> Result<(), VerbsError> {
    let limit = shared.limits.max_rd_atomic;
    let fits = |bit, ok: bool| !mask.has(bit) || ok;
    let all_fit = fits(M::PORT, attr.port_num == 1)
        && fits(M::PATH_MTU, attr.path_mtu <= shared.port.active_mtu)
        && fits(M::TIMEOUT, attr.timeout < 32)
        && fits(M::RETRY_CNT, attr.retry_cnt < 8)
        && fits(M::RNR_RETRY, attr.rnr_retry < 8)
        && fits(M::MIN_RNR_TIMER, attr.min_rnr_timer < 32)
        && fits(M::MAX_QP_RD_ATOMIC, attr.max_rd_atomic <= limit)
        && fits(M::MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic <= limit)
        && fits(M::DEST_QPN, attr.dest_qp_num.0 <= 0xff_ffff)
        && fits(M::ACCESS_FLAGS, attr.qp_access_flags.is_known());
    if all_fit { Ok(()) } else { Err(VerbsError::Invalid) }
}

/// `present` with the attributes of `mask` taken from `new`.
fn merge(present: &QpAttr, new: &QpAttr, mask: AttrMask) -> QpAttr {
    let mut merged = *present;
    let mut take = |bit, copy: fn(&mut QpAttr, &QpAttr)| {
        if mask.has(bit) {
            copy(&mut merged, new);
        }
    };
    take(M::EN_SQD_ASYNC_NOTIFY, |to, from| to.en_sqd_async_notify = from.en_sqd_async_notify);
    take(M::ACCESS_FLAGS, |to, from| to.qp_access_flags = from.qp_access_flags);
    take(M::PKEY_INDEX, |to, from| to.pkey_index = from.pkey_index);
    take(M::PORT, |to, from| to.port_num = from.port_num);
    take(M::QKEY, |to, from| to.qkey = from.qkey);
    take(M::AV, |to, from| to.ah_attr = from.ah_attr);
    take(M::PATH_MTU, |to, from| to.path_mtu = from.path_mtu);
    take(M::TIMEOUT, |to, from| to.timeout = from.timeout);
    take(M::RETRY_CNT, |to, from| to.retry_cnt = from.retry_cnt);
    take(M::RNR_RETRY, |to, from| to.rnr_retry = from.rnr_retry);
    take(M::RQ_PSN, |to, from| to.rq_psn = from.rq_psn);
    take(M::MAX_QP_RD_ATOMIC, |to, from| to.max_rd_atomic = from.max_rd_atomic);
    take(M::MIN_RNR_TIMER, |to, from| to.min_rnr_timer = from.min_rnr_timer);
    take(M::SQ_PSN, |to, from| to.sq_psn = from.sq_psn);
    take(M::MAX_DEST_RD_ATOMIC, |to, from| to.max_dest_rd_atomic = from.max_dest_rd_atomic);
    take(M::DEST_QPN, |to, from| to.dest_qp_num = from.dest_qp_num);
    merged
}
