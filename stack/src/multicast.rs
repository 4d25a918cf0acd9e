//! Datagrams to a multicast group (IBA 10.5.2): every QP attached to it gets a copy, those of the
//! sender's device too.

use crate::device::Device;
use crate::discard::Discard;
use crate::memory::Memory;
use crate::port::pkeys_match;
use crate::qp::Env;
use crate::time::Instant;
use crate::verbs::Qpn;
use crate::wire::{Packet, Transport};

impl<M: Memory> Device<M> {
    /// Delivers a copy to every member of the group (IBA 9.8.3.3).
    pub(crate) fn receive_multicast(
        &mut self,
        now: Instant,
        packet: &Packet,
        frame: &[u8],
    ) -> Result<(), Discard> {
        // Reliable datagrams have a DETH too.
        let is_datagram = packet.info().is_some_and(|info| info.transport == Transport::Ud);
        if !is_datagram || !packet.headers.net.destination().is_multicast() {
            return Err(Discard::WrongService);
        }
        if !packet.icrc_ok(frame) {
            return Err(Discard::BadIcrc);
        }
        if self.deliver_multicast(now, packet, frame, None) {
            self.shared.counters.rcvd_pkts += 1;
            return Ok(());
        }
        Err(Discard::NotAMember)
    }

    /// Delivers to every member but `sender`; whether there was one with the right keys.
    fn deliver_multicast(
        &mut self,
        now: Instant,
        packet: &Packet,
        frame: &[u8],
        sender: Option<Qpn>,
    ) -> bool {
        let group = packet.headers.net.destination();
        let qkey = packet.headers.ext.deth.map_or(0, |deth| deth.qkey);
        let Some((_, members)) = self.groups.iter().find(|(gid, _)| *gid == group) else {
            return false;
        };
        let mut heard = false;
        for &qpn in members.iter().filter(|&&qpn| Some(qpn) != sender) {
            let Some(qp) = self.qps.get_mut(qpn) else { continue };
            if !qp.hears_multicast(qkey) || !pkeys_match(qp.pkey(), packet.headers.bth.pkey) {
                continue;
            }
            let mut env = Env { now, shared: &mut self.shared, memory: &mut self.memory };
            heard = true;
            qp.counters.rcvd_pkts += 1;
            if let Err(reason) = qp.handle(&mut env, packet, frame) {
                env.shared.counters.discard(reason);
            }
        }
        heard
    }

    /// A multicast datagram sent from here reaches the members here too, its sender excepted.
    pub(crate) fn loop_back_multicast(&mut self, now: Instant, slot: u32, frame: &[u8]) {
        // The group bit of the destination MAC.
        if frame[0] & 1 == 0 {
            return;
        }
        let (Some(qp), Ok(packet)) = (self.qps.at(slot), Packet::parse(frame)) else { return };
        if qp.transport().is_none() {
            // Nothing of it has been checked yet; to one QP it comes as any other frame.
            if Qpn(packet.headers.bth.dest_qp) == Qpn::MULTICAST {
                let _ = self.handle_frame(now, frame);
            }
            return;
        }
        let sender = Some(qp.qpn);
        self.deliver_multicast(now, &packet, frame, sender);
        self.fail_users_of_overrun_cqs();
    }
}
