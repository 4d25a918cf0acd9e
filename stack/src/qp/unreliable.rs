//! Incoming messages of an unreliable connection (IBA 9.8.2): nothing is answered; a gap or a
//! fault of the peer's drops the message, never the QP.

use super::responder::{Open, Refusal, takes_recv};
use super::{Env, Qp, Received};
use crate::discard::Discard;
use crate::sq;
use crate::verbs::{WcOpcode, WcStatus};
use crate::wire::{Kind, OpcodeInfo, Packet};

impl Qp {
    /// Handles a UC packet.
    pub(super) fn handle_unreliable(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
    ) -> Result<(), Discard> {
        let psn = packet.headers.bth.psn;
        let begins = info.position.begins();
        let expected = psn == self.responder.epsn;
        if !expected || begins && self.responder.open != Open::No {
            self.abandon_message(env);
        }
        // After a loss everything up to the next message is dropped, without moving the PSN.
        if !expected && !begins {
            return Err(Discard::RequestGap);
        }
        self.responder.epsn = psn.advance(1);
        self.accept_unreliable(env, packet, info).inspect_err(|_| {
            self.abandon_message(env);
        })
    }

    fn accept_unreliable(
        &mut self,
        env: &mut Env,
        packet: &Packet,
        info: &OpcodeInfo,
    ) -> Result<(), Discard> {
        let bad = |_: Refusal| Discard::BadMessage;
        self.check_sequence(info).map_err(bad)?;
        self.check_enabled(packet, info).map_err(bad)?;
        self.check_length(packet, info).map_err(bad)?;
        if takes_recv(info) && !self.take_recv(env.shared) {
            return Err(Discard::NoReceive);
        }
        match info.kind {
            Kind::Send => self.place_send(env, packet)?,
            Kind::Write => {
                self.place_write(env, packet, info).map_err(bad)?;
            }
            _ => return Err(Discard::BadMessage),
        }
        if info.position.ends() {
            self.end_unreliable(env, packet, info);
        }
        Ok(())
    }

    fn place_send(&mut self, env: &mut Env, packet: &Packet) -> Result<(), Discard> {
        let len = packet.payload.len() as u64;
        let held = &self.responder.held;
        if held.filled + len > held.len {
            return Err(Discard::BadMessage);
        }
        let pd = self.receive_pd(env.shared).ok_or(Discard::BadMessage)?;
        let regions = &env.shared.regions;
        let placed =
            sq::scatter(held.sges.iter(), held.filled, packet.payload, pd, regions, env.memory);
        if let Err(status) = placed {
            // The receive itself is at fault (class A).
            self.complete_held(env.shared, status, &Received::NOTHING);
            self.enter_error(env.shared);
            return Err(Discard::BadMessage);
        }
        self.responder.held.filled += len;
        self.responder.open = Open::Send;
        Ok(())
    }

    fn end_unreliable(&mut self, env: &mut Env, packet: &Packet, info: &OpcodeInfo) {
        let total = match self.responder.open {
            Open::Write(write) => write.total,
            _ => self.responder.held.filled as u32,
        };
        self.responder.open = Open::No;
        if !self.responder.holds {
            return;
        }
        let received = Received {
            opcode: match info.kind {
                Kind::Write => WcOpcode::RecvRdmaWithImm,
                _ => WcOpcode::Recv,
            },
            byte_len: total,
            imm_data: packet.headers.ext.imm_dt.map(|imm| imm.0),
            solicited: packet.headers.bth.solicited,
            ..Received::NOTHING
        };
        self.complete_held(env.shared, WcStatus::Success, &received);
    }

    /// Drops the message in progress. Its receive work request waits for the next message; one
    /// of an SRQ cannot go back and completes with an error (classes D1 and E).
    fn abandon_message(&mut self, env: &mut Env) {
        self.responder.open = Open::No;
        if !self.responder.holds {
            return;
        }
        if self.init.srq.is_some() {
            self.complete_held(env.shared, WcStatus::RemAbortErr, &Received::NOTHING);
        } else {
            self.rq.put_back(&self.responder.held);
            self.responder.holds = false;
        }
    }
}
