//! The verbs of queue pairs: made, changed and destroyed, posted to, attached to multicast groups.

use super::{Outcome, found, stored};
use crate::congestion::QpRate;
use crate::device::Device;
use crate::flow::{Flow, FlowRule};
use crate::gid::Gid;
use crate::memory::Memory;
use crate::qp::Qp;
use crate::time::Instant;
use crate::verbs::{
    AttrMask, QpAttr, QpInit, QpState, QpType, Qpn, RecvWr, SendWr, Srq, VerbsError,
};

impl<M: Memory> Device<M> {
    /// Makes a QP in RESET.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if an object is missing, not allowed for the service, or a size is
    /// beyond the device's limits; [`VerbsError::NoMemory`] for a second GSI QP.
    pub fn create_qp(&mut self, init: &QpInit) -> Outcome<Qpn> {
        self.check_qp_init(init)?;
        let gsi = init.qp_type == QpType::Gsi;
        let qpn = stored(self.qps.insert(gsi, |qpn| Qp::new(qpn, *init)))?;
        for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
            self.use_cq(cq, true);
        }
        self.use_srq(init.srq, true);
        Ok(qpn)
    }

    fn check_qp_init(&self, init: &QpInit) -> Outcome<()> {
        let (needs_send_cq, needs_recv_cq, is_target) = match init.qp_type {
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi | QpType::RawPacket => {
                (true, true, false)
            }
            QpType::XrcSend => (true, false, false),
            QpType::XrcRecv => (false, false, true),
        };
        let objects_fit = init.send_cq.is_some() == needs_send_cq
            && init.recv_cq.is_some() == needs_recv_cq
            && init.xrcd.is_some() == is_target
            && init.pd.is_none() == is_target
            && (init.srq.is_none() || needs_recv_cq);
        if !objects_fit {
            return Err(VerbsError::Invalid);
        }
        for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
            found(self.shared.cqs.get(cq.0))?;
        }
        if let Some(pd) = init.pd {
            self.check_pd(pd)?;
        }
        if let Some(xrcd) = init.xrcd {
            found(self.xrcds.get(xrcd.0))?;
        }
        if let Some(srq) = init.srq {
            let basic = found(self.shared.srqs.get(srq.0))?.xrc.is_none();
            if !basic {
                return Err(VerbsError::Invalid);
            }
        }
        self.check_queue(init.cap.max_send_wr, init.cap.max_send_sge)?;
        self.check_queue(init.cap.max_recv_wr, init.cap.max_recv_sge)?;
        let inline_fits = init.cap.max_inline_data <= self.config.max_inline;
        if inline_fits { Ok(()) } else { Err(VerbsError::Invalid) }
    }

    fn use_srq(&mut self, srq: Option<Srq>, more: bool) {
        if let Some(queue) = srq.and_then(|srq| self.shared.srqs.get_mut(srq.0)) {
            queue.users = if more { queue.users + 1 } else { queue.users - 1 };
        }
    }

    /// How fast a QP may send at `now`, and how much it may have unacknowledged. `None` if there is
    /// no such QP, it has not been connected, or congestion is not controlled for it.
    pub fn qp_rate(&self, now: Instant, qpn: Qpn) -> Option<QpRate> {
        self.qps.get(qpn)?.rate(now)
    }

    /// Changes state and attributes of a QP by the transition table (IBA 10.3.1). In RESET its
    /// completions that nobody has polled are gone, as with hardware.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the transition does not exist, an attribute is missing, not
    /// allowed or out of range; nothing has changed then.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr, mask: AttrMask) -> Outcome<()> {
        let qp = found(self.qps.get_mut(qpn))?;
        qp.modify(&mut self.shared, attr, mask)?;
        if qp.state == QpState::Reset {
            // What was bound for the last peer is not for the next, nor what it made complete.
            self.shared.regions.unbind_qp(qpn);
            let init = qp.init;
            self.forget_completions(qpn, &init);
        }
        self.settle(self.qps.slot_of(qpn));
        self.fail_users_of_overrun_cqs();
        Ok(())
    }

    fn forget_completions(&mut self, qpn: Qpn, init: &QpInit) {
        for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
            if let Some(queue) = self.shared.cqs.get_mut(cq.0) {
                queue.forget(qpn);
            }
        }
    }

    /// Attributes as configured, the present state, and the PSNs each half has come to.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn query_qp(&self, qpn: Qpn) -> Outcome<(QpAttr, QpInit)> {
        let qp = found(self.qps.get(qpn))?;
        Ok((qp.query(), qp.init))
    }

    /// Destroys a QP; its work requests vanish without completions, and its completions that nobody
    /// has polled with it.
    ///
    /// # Errors
    /// [`VerbsError::Busy`] while it is attached to a multicast group or a flow steers to it.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Outcome<()> {
        if self.qp_mut(qpn)?.group_count > 0 || self.flows.uses(qpn) {
            return Err(VerbsError::Busy);
        }
        let mut qp = found(self.qps.remove(qpn))?;
        qp.forget_kept(&mut self.shared);
        if qp.in_line || qp.awaits_resumption {
            self.forget(self.qps.slot_of(qpn));
        }
        for cq in [qp.init.send_cq, qp.init.recv_cq].into_iter().flatten() {
            self.use_cq(cq, false);
        }
        self.use_srq(qp.init.srq, false);
        self.forget_completions(qpn, &qp.init);
        self.shared.regions.unbind_qp(qpn);
        Ok(())
    }

    /// Posts a send work request.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] in RESET, INIT or RTR, for too many SGEs, a message over 2^31 bytes,
    /// a misaligned or missized atomic, a missing address (one that is no longer there is found
    /// when the packet is built, and completes with an error); [`VerbsError::NotSupported`] if the
    /// service has no such operation; [`VerbsError::NoMemory`] if the queue is full or the inline
    /// bytes are too many.
    pub fn post_send(&mut self, qpn: Qpn, wr: &SendWr) -> Outcome<()> {
        let qp = found(self.qps.get_mut(qpn))?;
        qp.post_send(&mut self.shared, wr)?;
        self.settle(self.qps.slot_of(qpn));
        self.fail_users_of_overrun_cqs();
        Ok(())
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] in RESET, for a QP without an own receive queue, or for too many
    /// SGEs; [`VerbsError::NoMemory`] if the queue is full.
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr) -> Outcome<()> {
        let qp = found(self.qps.get_mut(qpn))?;
        qp.post_recv(&mut self.shared, wr)?;
        self.fail_users_of_overrun_cqs();
        Ok(())
    }

    /// Attaches a UD QP to a multicast group.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the QP is not UD or the GID not multicast.
    pub fn attach_mcast(&mut self, qpn: Qpn, group: Gid) -> Outcome<()> {
        let qp = self.qp_mut(qpn)?;
        if qp.init.qp_type != QpType::Ud || !group.is_multicast() {
            return Err(VerbsError::Invalid);
        }
        let members = match self.groups.iter_mut().position(|(gid, _)| *gid == group) {
            Some(at) => &mut self.groups[at].1,
            None => {
                self.groups.push((group, Vec::new()));
                let last = self.groups.len() - 1;
                &mut self.groups[last].1
            }
        };
        if !members.contains(&qpn) {
            members.push(qpn);
            self.qp_mut(qpn)?.group_count += 1;
        }
        Ok(())
    }

    /// Detaches a UD QP from a multicast group.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if it is not attached.
    pub fn detach_mcast(&mut self, qpn: Qpn, group: Gid) -> Outcome<()> {
        let at = found(self.groups.iter().position(|(gid, _)| *gid == group))?;
        let members = &mut self.groups[at].1;
        let member = found(members.iter().position(|&member| member == qpn))?;
        members.remove(member);
        if members.is_empty() {
            self.groups.remove(at);
        }
        self.qp_mut(qpn)?.group_count -= 1;
        Ok(())
    }

    /// Steers frames that are not RoCE to a raw packet QP.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] for any other QP; [`VerbsError::NoMemory`] if there are too many
    /// rules.
    pub fn create_flow(&mut self, qpn: Qpn, rule: &FlowRule) -> Outcome<Flow> {
        if self.qp_mut(qpn)?.init.qp_type != QpType::RawPacket {
            return Err(VerbsError::Invalid);
        }
        self.flows.insert(qpn, rule)
    }

    /// Undoes [`Device::create_flow`].
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn destroy_flow(&mut self, flow: Flow) -> Outcome<()> {
        self.flows.remove(flow)
    }

    /// Whether there is a rule for frames that are not RoCE.
    pub fn steers(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Send work requests that have retired since the QP was made, and receive work requests of
    /// its own queue: so many slots are free again.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn retired(&self, qpn: Qpn) -> Outcome<(u64, u64)> {
        found(self.qps.get(qpn)).map(|qp| (qp.sends_retired(), qp.recvs_retired()))
    }

    /// Receive work requests that have left an SRQ since it was made.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn srq_retired(&self, srq: Srq) -> Outcome<u64> {
        found(self.shared.srqs.get(srq.0)).map(|srq| srq.queue.taken())
    }

    /// Whether any QP is attached to a multicast group.
    pub fn hears_multicast(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Every multicast group that a QP is attached to, once.
    pub fn groups(&self) -> impl Iterator<Item = Gid> {
        self.groups.iter().map(|(group, _)| *group)
    }

    /// State of a QP.
    ///
    /// # Errors
    /// See [`Device::dealloc_pd`].
    pub fn qp_state(&self, qpn: Qpn) -> Outcome<QpState> {
        found(self.qps.get(qpn)).map(|qp| qp.state)
    }
}
