//! What of a work request can be judged when it is posted, by the QP's service and sizes alone.

use super::{
    Access, FlushLevel, QpInit, QpState, QpType, RecvWr, SendData, SendOp, SendWr, VerbsError,
};

impl QpInit {
    /// Whether packets carry the address of each message.
    pub const fn is_datagram(&self) -> bool {
        matches!(self.qp_type, QpType::Ud | QpType::Gsi)
    }

    /// Whether a QP in `state` takes this send work request; how many bytes its message has.
    ///
    /// # Errors
    /// [`VerbsError::NotSupported`] if the service has no such operation (IBA 10.2.4.4);
    /// [`VerbsError::Invalid`] in RESET, INIT or RTR, for too many SGEs, a message over 2^31 bytes,
    /// an atomic that is misaligned or not of 8 bytes, an address or SRQ number that is missing or
    /// too much; [`VerbsError::NoMemory`] for too many inline bytes.
    pub fn check_send(&self, state: QpState, wr: &SendWr) -> Result<u32, VerbsError> {
        if !self.has_operation(&wr.op) {
            return Err(VerbsError::NotSupported);
        }
        let xrc_addressed = wr.srqn.is_some() || wr.op.is_local();
        let addressed = self.is_datagram() == wr.ud.is_some()
            && (self.qp_type != QpType::XrcSend || xrc_addressed);
        if !addressed || matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(VerbsError::Invalid);
        }
        let total = match wr.data {
            SendData::Sges(sges) if sges.len() > self.cap.max_send_sge as usize => {
                return Err(VerbsError::Invalid);
            }
            SendData::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            SendData::Inline(_) if !wr.op.sends_data() => return Err(VerbsError::Invalid),
            SendData::Inline(bytes) if bytes.len() > self.cap.max_inline_data as usize => {
                return Err(VerbsError::NoMemory);
            }
            SendData::Inline(bytes) => bytes.len() as u64,
        };
        if total > crate::MAX_MESSAGE || !fits_operation(&wr.op, total) {
            return Err(VerbsError::Invalid);
        }
        Ok(total as u32)
    }

    /// Whether a QP in `state` takes this receive work request to its own queue.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] in RESET, without an own receive queue, or for too many SGEs.
    pub fn check_recv(&self, state: QpState, wr: &RecvWr) -> Result<(), VerbsError> {
        let has_own_queue = self.srq.is_none() && self.recv_cq.is_some();
        let fits = wr.sges.len() <= self.cap.max_recv_sge as usize;
        if state == QpState::Reset || !has_own_queue || !fits {
            return Err(VerbsError::Invalid);
        }
        Ok(())
    }

    fn has_operation(&self, op: &SendOp) -> bool {
        match self.qp_type {
            QpType::Rc | QpType::XrcSend => true,
            QpType::Uc => matches!(
                op,
                SendOp::Send
                    | SendOp::SendImm(_)
                    | SendOp::Write(_)
                    | SendOp::WriteImm(..)
                    | SendOp::BindMw { .. }
                    | SendOp::LocalInv(_)
            ),
            QpType::Ud | QpType::Gsi => matches!(op, SendOp::Send | SendOp::SendImm(_)),
            QpType::RawPacket => matches!(op, SendOp::Send),
            QpType::XrcRecv => false,
        }
    }
}

/// Whether the operation can have a message of `total` bytes and its remote address (IBA 11.4.1.1).
fn fits_operation(op: &SendOp, total: u64) -> bool {
    match op {
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            total == 8 && remote.addr.is_multiple_of(8)
        }
        SendOp::AtomicWrite(remote, _) => total == 0 && remote.addr.is_multiple_of(8),
        SendOp::Flush { length, level, placement, .. } => {
            let ranged = *level == FlushLevel::Range;
            let placements = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
            total == 0
                && *placement != Access::NONE
                && placement.without(placements) == Access::NONE
                && (!ranged || u64::from(*length) <= crate::MAX_MESSAGE)
        }
        SendOp::BindMw { .. } | SendOp::LocalInv(_) => total == 0,
        _ => true,
    }
}
