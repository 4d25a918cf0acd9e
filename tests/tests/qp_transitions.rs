//! The QP transition table (IBA 10.3.1): every (from, to, service) with every mask bit flipped. A
//! refused modification changes nothing.

use ferroce_stack::verbs::{
    AttrMask, QpAttr, QpState, QpType, Qpn, SendOp, SendWr, Sge, UdTarget, VerbsError,
};
use ferroce_tests::Node;
use ferroce_tests::node::address;
use ferroce_tests::transitions::{BITS, STATES, TYPES, bits, row};

/// A node with QPs of one service in any state.
struct Maker {
    node: Node,
    qp_type: QpType,
}

impl Maker {
    fn new(qp_type: QpType) -> Maker {
        Maker { node: Node::new(1), qp_type }
    }

    fn attr(&self) -> QpAttr {
        self.node.attr_to(&address(2), Qpn(0x55))
    }

    /// A QP in `state`; `None` if the service never gets there.
    fn qp_in(&mut self, state: QpState) -> Option<Qpn> {
        type T = QpType;
        let can_enter_sqe = matches!(self.qp_type, T::Ud | T::Gsi | T::Uc | T::RawPacket);
        if state == QpState::Sqe && !can_enter_sqe {
            return None;
        }
        let qpn = self.node.create(self.qp_type);
        match state {
            QpState::Reset => {}
            QpState::Init | QpState::Rtr | QpState::Rts => self.up_to(qpn, state),
            QpState::Sqd => {
                self.up_to(qpn, QpState::Rts);
                self.node.to_state(qpn, QpState::Sqd);
            }
            QpState::Sqe => {
                self.up_to(qpn, QpState::Rts);
                self.fail_send(qpn);
            }
            QpState::Err => {
                self.up_to(qpn, QpState::Init);
                self.node.to_state(qpn, QpState::Err);
            }
        }
        assert_eq!(self.node.state(qpn), state);
        Some(qpn)
    }

    fn up_to(&mut self, qpn: Qpn, state: QpState) {
        let attr = self.attr();
        self.node.bring_up(qpn, &attr, state);
    }

    /// A send whose key is wrong: a local error.
    fn fail_send(&mut self, qpn: Qpn) {
        let ud = matches!(self.qp_type, QpType::Ud | QpType::Gsi).then(|| {
            let ah = self.node.device.create_ah(self.node.pd, &self.attr().ah_attr).expect("AH");
            UdTarget { ah, qpn: Qpn(0x55), qkey: 1 }
        });
        let sges = [Sge { addr: 0, length: 4, lkey: 0x00de_ad00 }];
        let wr = SendWr { ud, ..SendWr::new(1, SendOp::Send, &sges) };
        self.node.post_wr(qpn, &wr);
        assert!(self.node.transmit().is_empty());
        self.node.sent();
    }

    /// A fresh QP in `from` is modified with `mask`; it must end in `to` or, where that is refused,
    /// be as before.
    fn check(&mut self, from: QpState, to: QpState, mask: AttrMask, allowed: bool, why: &str) {
        let qpn = self.qp_in(from).expect("reachable");
        let attr = QpAttr { qp_state: to, cur_qp_state: from, ..self.attr() };
        let before = self.node.device.query_qp(qpn);
        let outcome = self.node.device.modify_qp(qpn, &attr, mask);
        let case = format!("{:?} {from:?} to {to:?}, {why}, mask {mask:?}", self.qp_type);
        if allowed {
            assert_eq!(outcome, Ok(()), "{case}");
            assert_eq!(self.node.state(qpn), to, "{case}");
        } else {
            assert_eq!(outcome, Err(VerbsError::Invalid), "{case}");
            assert_eq!(self.node.device.query_qp(qpn), before, "{case}: something changed");
        }
        self.node.device.destroy_qp(qpn).expect("destroyed");
    }
}

/// Every cell of the table for one service.
fn check_service(qp_type: QpType) {
    let mut maker = Maker::new(qp_type);
    for from in STATES {
        let Some(qpn) = maker.qp_in(from) else { continue };
        maker.node.device.destroy_qp(qpn).expect("destroyed");
        for to in STATES {
            check_cell(&mut maker, from, to);
        }
    }
}

fn check_cell(maker: &mut Maker, from: QpState, to: QpState) {
    let state = AttrMask::STATE;
    let Some(row) = row(maker.qp_type, from, to) else {
        maker.check(from, to, state, false, "no such transition");
        for bit in BITS {
            maker.check(from, to, state | bit, false, "no such transition, one bit more");
        }
        return;
    };
    let exact = row.required | state;
    maker.check(from, to, exact, true, "what is required");
    maker.check(from, to, exact | row.optional, true, "all that is allowed");
    for bit in BITS {
        if row.required.has(bit) {
            maker.check(from, to, exact.without(bit), false, "a required attribute is missing");
        } else if row.optional.has(bit) {
            maker.check(from, to, exact | bit, true, "an optional attribute");
        } else if bit != state {
            maker.check(from, to, exact | bit, false, "an attribute that is not allowed");
            let all = exact | row.optional | bit;
            maker.check(from, to, all, false, "one not allowed among all that are");
        }
    }
}

#[test]
fn ud_transitions() {
    check_service(QpType::Ud);
}

#[test]
fn gsi_transitions() {
    check_service(QpType::Gsi);
}

#[test]
fn uc_transitions() {
    check_service(QpType::Uc);
}

#[test]
fn rc_transitions() {
    check_service(QpType::Rc);
}

#[test]
fn xrc_initiator_transitions() {
    check_service(QpType::XrcSend);
}

#[test]
fn xrc_target_transitions() {
    check_service(QpType::XrcRecv);
}

#[test]
fn raw_packet_transitions() {
    check_service(QpType::RawPacket);
}

/// Without STATE in the mask a QP stays where it is, by the row from its state to itself.
#[test]
fn without_a_state_the_row_is_that_of_staying() {
    for qp_type in TYPES {
        let mut maker = Maker::new(qp_type);
        for state in [QpState::Init, QpState::Rts, QpState::Sqd] {
            let row = row(qp_type, state, state).expect("staying is allowed");
            for bit in bits(row.optional) {
                maker.check(state, state, bit, true, "no STATE");
            }
            maker.check(state, state, AttrMask::CAP, false, "no STATE");
        }
        maker.check(QpState::Rtr, QpState::Rtr, AttrMask::QKEY, false, "no STATE");
    }
}

/// CUR_STATE may claim RTR, RTS, SQD or SQE, and nothing else (verbs table of attributes).
#[test]
fn cur_state_claims_only_states_a_queue_may_have_left_unseen() {
    for claimed in [QpState::Reset, QpState::Init, QpState::Err] {
        let mut maker = Maker::new(QpType::Rc);
        let qpn = maker.qp_in(QpState::Rts).expect("RTS");
        let attr = QpAttr { qp_state: QpState::Rts, cur_qp_state: claimed, ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::CUR_STATE;
        let outcome = maker.node.device.modify_qp(qpn, &attr, mask);
        assert_eq!(outcome, Err(VerbsError::Invalid), "claims {claimed:?}");
        assert_eq!(maker.node.state(qpn), QpState::Rts);
    }
}

/// The send queue may fail between the application's look and its call.
#[test]
fn claiming_rts_brings_a_failed_send_queue_back() {
    let mut maker = Maker::new(QpType::Ud);
    let qpn = maker.qp_in(QpState::Sqe).expect("SQE");
    let attr = QpAttr { qp_state: QpState::Rts, cur_qp_state: QpState::Rts, ..QpAttr::default() };
    let mask = AttrMask::STATE | AttrMask::CUR_STATE;
    assert_eq!(maker.node.device.modify_qp(qpn, &attr, mask), Ok(()));
    assert_eq!(maker.node.state(qpn), QpState::Rts);
}

/// P67: nothing is taken silently where the table does not list it.
#[test]
fn dest_qpn_is_not_taken_from_init_to_init() {
    let mut maker = Maker::new(QpType::Rc);
    maker.check(
        QpState::Init,
        QpState::Init,
        AttrMask::STATE | AttrMask::DEST_QPN,
        false,
        "DEST_QPN",
    );
}
