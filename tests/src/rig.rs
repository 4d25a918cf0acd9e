//! Two nodes with a connected pair of QPs of any connected service, XRC included: `a` requests, `b`
//! serves.

use ferroce_stack::verbs::{
    Event, EventKind, QpAttr, QpInit, QpState, QpType, Qpn, SendData, SendFlags, SendOp, SendWr,
    Sge, Srq, Wc, WcStatus,
};

use crate::link::Link;
use crate::node::{Node, statuses};

/// Two connected QPs.
#[derive(Debug)]
pub struct Rig {
    /// The nodes.
    pub link: Link,
    /// Requester.
    pub a: Qpn,
    /// Responder.
    pub b: Qpn,
    /// Where `b` receives from, if not from its own queue.
    pub srq: Option<Srq>,
    xrc: bool,
}

impl Rig {
    /// Two RC QPs, or UC QPs, or for [`QpType::XrcSend`] an XRC initiator and target.
    pub fn new(qp_type: QpType) -> Rig {
        Rig::with(qp_type, |_, _| {}, |_, _| {})
    }

    /// Two QPs with `b`'s making and then both sides' attributes changed; the flag of `change` is
    /// true for `a`.
    pub fn with(
        qp_type: QpType,
        make_b: impl FnOnce(&mut Node, &mut QpInit),
        change: impl Fn(&mut QpAttr, bool),
    ) -> Rig {
        let mut link = Link::default();
        let xrc = qp_type == QpType::XrcSend;
        let a = link.a.create(qp_type);
        let xrcd = xrc.then(|| link.b.device.open_xrcd().expect("XRCD"));
        let srq = xrcd.map(|xrcd| link.b.create_srq(64, Some(xrcd)));
        let b_type = if xrc { QpType::XrcRecv } else { qp_type };
        let mut init = link.b.qp_init(b_type, xrcd);
        make_b(&mut link.b, &mut init);
        let b = link.b.device.create_qp(&init).expect("QP");
        let mut of_a = link.a.attr_to(&link.b.entry, b);
        let mut of_b = link.b.attr_to(&link.a.entry, a);
        change(&mut of_a, true);
        change(&mut of_b, false);
        link.a.bring_up(a, &of_a, QpState::Rts);
        link.b.bring_up(b, &of_b, QpState::Rts);
        Rig { link, a, b, srq: srq.or(init.srq), xrc }
    }

    /// `a` posts a signaled work request over `length` bytes at `offset` of its memory.
    pub fn post(&mut self, wr_id: u64, op: SendOp, offset: u64, length: u32) {
        let sges = [self.link.a.sge(offset, length)];
        self.post_sges(wr_id, op, if length == 0 { &[] } else { &sges });
    }

    /// `a` posts a signaled work request over these SGEs.
    pub fn post_sges(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.post_wr(wr_id, op, SendData::Sges(sges), SendFlags::SIGNALED);
    }

    /// `a` posts any work request.
    pub fn post_wr(&mut self, wr_id: u64, op: SendOp, data: SendData, flags: SendFlags) {
        let srqn = self.srq.filter(|_| self.xrc).map(Srq::value);
        self.link.a.post_wr(self.a, &SendWr { wr_id, op, data, flags, ud: None, srqn });
    }

    /// `b` posts a receive.
    pub fn post_recv(&mut self, wr_id: u64, offset: u64, length: u32) {
        match self.srq {
            Some(srq) => self.link.b.post_srq(srq, wr_id, offset, length),
            None => self.link.b.post_recv(self.b, wr_id, offset, length),
        }
    }

    /// What completed at `a`.
    pub fn sent(&mut self) -> Vec<(u64, WcStatus)> {
        statuses(&self.link.a.sent())
    }

    /// What was received at `b`.
    pub fn received(&mut self) -> Vec<Wc> {
        self.link.b.received()
    }

    /// Events of the QP `b`.
    pub fn events_of_b(&mut self) -> Vec<EventKind> {
        let of_b = |event| match event {
            Event::Qp(qpn, kind) if qpn == self.b => Some(kind),
            _ => None,
        };
        self.link.b.events().into_iter().filter_map(of_b).collect()
    }

    /// States of `a` and `b`.
    pub fn states(&self) -> (QpState, QpState) {
        (self.link.a.state(self.a), self.link.b.state(self.b))
    }
}
