//! Unreliable datagrams and the general services QP (IBA 9.8.3, 13.5): one packet a message, an
//! address with each.

use super::{Env, Qp, Received, Shared};
use crate::discard::Discard;
use crate::outgoing::Outgoing;
use crate::port::pkeys_match;
use crate::psn::Psn;
use crate::sq;
use crate::verbs::{QpState, QpType, Qpn, SendFlags, SendOp, UdTarget, WcOpcode, WcStatus};
use crate::wire::{
    Bth, Deth, Extensions, ImmDt, Kind, Layout, Net, Opcode, Packet, Position, Suffix, Transport,
    pad_count, seal_summed, source_port,
};

/// Bytes in front of a received datagram: a GRH, or what stands for it.
const GRH_LEN: usize = 40;

impl Qp {
    /// Sends the next datagram; it completes as soon as it has left.
    pub(super) fn transmit_datagram(&mut self, env: &mut Env, frame: &mut [u8]) -> Option<usize> {
        while self.state == QpState::Rts {
            let index = self.requester.wqe;
            let (op, to) = self.sq.get(index).map(|wqe| (wqe.op, wqe.ud))?;
            match self.build_datagram(env, frame, index, op, to) {
                Ok(len) => {
                    self.requester.move_to(index + 1);
                    env.shared.counters.sent_pkts += 1;
                    self.counters.sent_pkts += 1;
                    env.shared.counters.rdma_sends += 1;
                    if let Some(wqe) = self.sq.get_mut(index) {
                        wqe.progress = crate::sq::Progress::Done;
                    }
                    self.retire(env);
                    return Some(len);
                }
                Err(status) => self.fail_in_order(env, index, status),
            }
        }
        None
    }

    fn build_datagram(
        &mut self,
        env: &mut Env,
        frame: &mut [u8],
        index: u64,
        op: SendOp,
        to: Option<UdTarget>,
    ) -> Result<usize, WcStatus> {
        let to = to.ok_or(WcStatus::LocQpOpErr)?;
        let len = self.sq.get(index).map_or(0, |wqe| wqe.len as usize);
        if len > env.shared.port.active_mtu.bytes() {
            return Err(WcStatus::LocLenErr);
        }
        let ah = env.shared.ahs.get(to.ah.0).filter(|ah| Some(ah.pd) == self.init.pd);
        let ah = ah.ok_or(WcStatus::LocQpOpErr)?;
        let mut path = ah.path.clone();
        path.set_source_port(source_port(path.attr.flow_label, self.qpn.0, to.qpn.0));
        let (suffix, imm_dt) = match op {
            SendOp::SendImm(imm) => (Suffix::Immediate, Some(ImmDt(imm))),
            _ => (Suffix::None, None),
        };
        let opcode = Opcode::encode(Transport::Ud, Kind::Send, Position::Only, suffix)
            .ok_or(WcStatus::LocQpOpErr)?;
        let multicast = path.attr.dgid.is_multicast();
        let dest_qp = if multicast { Qpn::MULTICAST } else { to.qpn };
        let flags = self.sq.get(index).map_or(SendFlags::NONE, |wqe| wqe.flags);
        // A privileged Q_Key cannot be chosen in a work request (IBA 10.2.5).
        let qkey = if to.qkey >> 31 == 1 { self.qkey() } else { to.qkey };
        let deth = Some(Deth { qkey, reserved: 0, src_qp: self.qpn.0 });
        let ext = Extensions { deth, imm_dt, ..Extensions::default() };
        let psn = self.requester.next_psn;
        let bth = Bth {
            dest_qp: dest_qp.0,
            solicited: flags.has(SendFlags::SOLICITED),
            ..self.bth(opcode, psn, len)
        };
        let layout = path.emit(frame, &bth, &ext, len, env.shared.next_ident());
        let mut out = Outgoing::begin(frame, &layout, len);
        if len > 0 {
            let pd = self.init.pd.ok_or(WcStatus::LocProtErr)?;
            self.sq.gather(index, 0, &mut out, pd, &env.shared.regions, env.memory)?;
        }
        let sum = out.sum();
        self.advance_datagram_psn(psn);
        Ok(seal_summed(frame, &layout, len, sum))
    }

    fn advance_datagram_psn(&mut self, psn: Psn) {
        self.requester.next_psn = psn.advance(1);
        self.requester.una_psn = self.requester.next_psn;
    }

    /// Receives a datagram. One that does not fit is dropped and its receive work request stays:
    /// a long datagram must not silence QP1.
    pub(super) fn handle_datagram(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        frame: &[u8],
    ) -> Result<(), Discard> {
        let headers = &packet.headers;
        let deth = headers.ext.deth.ok_or(Discard::BadLength)?;
        let len = packet.payload.len();
        let padded = headers.bth.pad_count == pad_count(len);
        if len > env.shared.port.active_mtu.bytes() || !padded {
            return Err(Discard::BadMessage);
        }
        let room = self.next_recv_len(env.shared).ok_or(Discard::NoReceive)?;
        if (GRH_LEN + len) as u64 > room {
            return Err(Discard::BadMessage);
        }
        self.take_recv(env.shared);
        if let Err(status) = self.place_datagram(env, packet, frame) {
            // The receive itself is at fault (class A).
            self.complete_held(env.shared, status, &Received::NOTHING);
            self.enter_error(env.shared);
            return Err(Discard::BadMessage);
        }
        let received = Received {
            opcode: WcOpcode::Recv,
            byte_len: (GRH_LEN + len) as u32,
            imm_data: headers.ext.imm_dt.map(|imm| imm.0),
            src_qp: Qpn(deth.src_qp),
            grh: true,
            solicited: headers.bth.solicited,
            pkey_index: self.pkey_index_of(env.shared, headers.bth.pkey),
            sl: net_code(&headers.net),
            ..Received::NOTHING
        };
        self.complete_held(env.shared, WcStatus::Success, &received);
        Ok(())
    }

    fn place_datagram(&self, env: &mut Env, packet: &Packet, frame: &[u8]) -> Result<(), WcStatus> {
        let held = &self.responder.held;
        let pd = self.receive_pd(env.shared).ok_or(WcStatus::LocProtErr)?;
        let regions = &env.shared.regions;
        let area = grh_area(packet, frame);
        sq::scatter(held.sges.iter(), 0, &area, pd, regions, env.memory)?;
        let offset = GRH_LEN as u64;
        sq::scatter(held.sges.iter(), offset, packet.payload, pd, regions, env.memory)
    }

    /// Bytes the receive work request takes that is next; `None` if there is none.
    pub(super) fn next_recv_len(&self, shared: &Shared) -> Option<u64> {
        match self.init.srq {
            None => self.rq.next_len(),
            Some(srq) => shared.srqs.get(srq.0)?.queue.next_len(),
        }
    }

    /// The P_Key a datagram matched: QP1 takes every one of the port's (IBA 10.9.5).
    fn pkey_index_of(&self, shared: &Shared, pkey: u16) -> u16 {
        let matching = shared.port.pkeys.iter().position(|&own| pkeys_match(own, pkey));
        match self.init.qp_type {
            QpType::Gsi => matching.map_or(self.attr.pkey_index, |index| index as u16),
            _ => self.attr.pkey_index,
        }
    }

    /// Whether it may get a copy of a multicast datagram with this Q_Key.
    pub fn hears_multicast(&self, qkey: u32) -> bool {
        self.init.qp_type == QpType::Ud && self.takes(Kind::Send) && self.qkey() == qkey
    }
}

/// What stands for the service level, which Ethernet does not have: the kind of network header, in
/// the numbers of mlx5 devices. UCX finds the destination's address in the 40 bytes by it.
fn net_code(net: &Net) -> u8 {
    match net {
        Net::V1(_) => 0,
        Net::V6(_) => 1,
        Net::V4(_) => 2,
    }
}

/// The 40 bytes in front of a datagram: the IPv6 header or GRH, or 20 zero bytes and the IPv4
/// header (IBA A17.4.5.1).
fn grh_area(packet: &Packet, frame: &[u8]) -> [u8; GRH_LEN] {
    let mut area = [0; GRH_LEN];
    let Layout { net, .. } = packet.layout;
    match packet.headers.net {
        Net::V4(_) => area[20..].copy_from_slice(&frame[net..net + 20]),
        Net::V6(_) | Net::V1(_) => area.copy_from_slice(&frame[net..net + GRH_LEN]),
    }
    area
}
