//! A QP of the target, and its flow to the peer.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_stack::LossRecovery;
use ferroce_stack::wire::Transport;

use crate::frame::{Flow, Judge};
use crate::target::{Completion, Description, QpAttributes, SELECTIVE_REPEAT};

/// A QP of the target, with what it has told and nobody has asked for yet.
pub(super) struct Qp {
    /// Its name at the target.
    pub id: String,
    /// Its name in the script.
    pub name: String,
    pub service: String,
    /// What `qp` and `moves` said last.
    pub attributes: QpAttributes,
    /// What frames between it and the peer are built from and compared with.
    pub flow: Flow,
    /// What each of its frames must fulfil.
    pub judge: Judge,
    pub frames: VecDeque<Frame>,
    pub completions: VecDeque<(Duration, Completion)>,
}

/// A frame of the target.
pub(super) struct Frame {
    pub at: Duration,
    pub bytes: Vec<u8>,
}

impl Qp {
    /// A QP that has told nothing yet. `srqn` is the SRQ that the peer's XRC requests name.
    pub fn new(
        description: &Description,
        (id, name): (&str, &str),
        service: &str,
        (qpn, srqn): (u32, u32),
        attributes: QpAttributes,
    ) -> Qp {
        let transport = match service {
            "uc" => Transport::Uc,
            "ud" => Transport::Ud,
            "xrc-send" | "xrc-receive" => Transport::Xrc,
            _ => Transport::Rc,
        };
        let mut flow = Flow::new(description.address, description.peer, transport);
        flow.target_qpn = qpn;
        flow.srqn = srqn;
        if description.features.iter().any(|feature| feature == SELECTIVE_REPEAT) {
            flow.mark = LossRecovery::SelectiveRepeat.mark();
        }
        let mut qp = Qp {
            id: id.to_owned(),
            name: name.to_owned(),
            service: service.to_owned(),
            attributes: attributes.clone(),
            flow,
            judge: Judge::default(),
            frames: VecDeque::new(),
            completions: VecDeque::new(),
        };
        qp.set_attributes(attributes);
        qp
    }

    /// Takes over attributes: frames follow them from here on.
    pub fn set_attributes(&mut self, attributes: QpAttributes) {
        let flow = &mut self.flow;
        flow.peer_qpn = attributes.dest_qp_num;
        flow.send_psn = attributes.sq_psn;
        flow.receive_psn = attributes.rq_psn;
        flow.mtu = attributes.path_mtu;
        flow.qkey = attributes.qkey;
        flow.traffic_class = attributes.traffic_class;
        flow.flow_label = attributes.flow_label;
        flow.sl = attributes.sl;
        self.attributes = attributes;
    }
}
