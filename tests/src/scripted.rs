//! One device under test and a scripted peer.

use ferroce_stack::discard::Discard;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{Event, EventKind, QpAttr, QpInit, QpState, QpType, Qpn, Srq};
use ferroce_stack::wire::Opcode;

use crate::expect::Seen;
use crate::node::{Node, address};
use crate::peer::{Builder, Peer};

/// PSN the device expects first.
pub const EPSN: u32 = 0x100;
/// PSN the device sends first.
pub const PSN: u32 = 0x800;
/// QPN of the scripted peer.
pub const PEER_QPN: Qpn = Qpn(0x55);

/// A device with one QP in RTS, connected to a scripted peer.
#[derive(Debug)]
pub struct Scripted {
    /// The device under test.
    pub node: Node,
    /// The other end.
    pub peer: Peer,
    /// The QP under test.
    pub qpn: Qpn,
    /// XRC: the SRQ the peer names; else the QP's SRQ if it has one.
    pub srq: Option<Srq>,
    /// The service's opcode bits.
    service: Opcode,
}

impl Scripted {
    /// An RC QP.
    pub fn rc() -> Scripted {
        Scripted::new(QpType::Rc)
    }

    /// A QP of this type with default attributes.
    pub fn new(qp_type: QpType) -> Scripted {
        Scripted::with(qp_type, |_| {}, |_, _| {})
    }

    /// An RC QP with some attributes changed.
    pub fn rc_with(change: impl FnOnce(&mut QpAttr)) -> Scripted {
        Scripted::with(QpType::Rc, change, |_, _| {})
    }

    /// A QP of this type on an SRQ for 16 receives.
    pub fn on_srq(qp_type: QpType) -> Scripted {
        Scripted::with(qp_type, |_| {}, |node, init| init.srq = Some(node.create_srq(16, None)))
    }

    /// A QP of this type with attributes and make changed. An XRC target gets a domain and an
    /// SRQ for 16 receives.
    pub fn with(
        qp_type: QpType,
        change: impl FnOnce(&mut QpAttr),
        make: impl FnOnce(&mut Node, &mut QpInit),
    ) -> Scripted {
        let mut node = Node::new(1);
        let xrcd = (qp_type == QpType::XrcRecv).then(|| node.device.open_xrcd().expect("XRCD"));
        let srq = xrcd.map(|xrcd| node.create_srq(16, Some(xrcd)));
        let mut init = node.qp_init(qp_type, xrcd);
        make(&mut node, &mut init);
        let qpn = node.device.create_qp(&init).expect("QP");
        let own = address(2);
        let mut attr = QpAttr {
            rq_psn: Psn::new(EPSN),
            sq_psn: Psn::new(PSN),
            ..node.attr_to(&own, PEER_QPN)
        };
        change(&mut attr);
        let peer = Peer {
            own,
            own_qpn: PEER_QPN,
            to: node.entry,
            to_qpn: qpn,
            qkey: attr.qkey,
            srqn: srq.map_or(0, Srq::value),
        };
        node.bring_up(qpn, &attr, QpState::Rts);
        let service = match qp_type {
            QpType::Rc => Opcode(0x00),
            QpType::Uc => Opcode(0x20),
            QpType::Ud | QpType::Gsi => Opcode(0x60),
            QpType::XrcSend | QpType::XrcRecv => Opcode(0xa0),
            QpType::RawPacket => panic!("raw packets have no opcodes"),
        };
        Scripted { node, peer, qpn, srq: srq.or(init.srq), service }
    }

    /// A packet of the peer.
    pub fn packet(&self, opcode: Opcode, psn: u32) -> Builder {
        self.peer.packet(opcode, psn)
    }

    /// A request of the peer: the RC opcode's counterpart in the QP's own service.
    pub fn request(&self, rc_opcode: Opcode, psn: u32) -> Builder {
        self.peer.packet(Opcode(self.service.0 | rc_opcode.0), psn)
    }

    /// Posts a receive where the QP takes it from.
    pub fn post_recv(&mut self, wr_id: u64, offset: u64, length: u32) {
        match self.srq {
            Some(srq) => self.node.post_srq(srq, wr_id, offset, length),
            None => self.node.post_recv(self.qpn, wr_id, offset, length),
        }
    }

    /// Asynchronous events of the QP since the last call.
    pub fn events(&mut self) -> Vec<EventKind> {
        let of_qp = |event| match event {
            Event::Qp(qpn, kind) if qpn == self.qpn => Some(kind),
            _ => None,
        };
        self.node.events().into_iter().filter_map(of_qp).collect()
    }

    /// The peer sends a packet.
    ///
    /// # Errors
    /// Why the device ignored it.
    pub fn send(&mut self, packet: &Builder) -> Result<(), Discard> {
        self.node.receive(&packet.frame())
    }

    /// The peer sends a packet that has to have an effect.
    #[track_caller]
    pub fn deliver(&mut self, packet: &Builder) {
        assert_eq!(self.send(packet), Ok(()), "{packet:?}");
    }

    /// The peer sends packets that have to have an effect; what comes back.
    #[track_caller]
    pub fn exchange(&mut self, packets: &[Builder]) -> Vec<Seen> {
        for packet in packets {
            self.deliver(packet);
        }
        self.frames()
    }

    /// The peer sends an acknowledge packet.
    ///
    /// # Errors
    /// Why the device ignored it.
    pub fn answer(&mut self, psn: u32, syndrome: u8) -> Result<(), Discard> {
        let packet = self.request(Opcode::RC_ACKNOWLEDGE, psn).aeth(syndrome, 0);
        self.send(&packet)
    }

    /// Every frame the device sends now.
    pub fn frames(&mut self) -> Vec<Seen> {
        self.node.transmit()
    }

    /// State of the QP under test.
    pub fn state(&self) -> QpState {
        self.node.state(self.qpn)
    }
}
