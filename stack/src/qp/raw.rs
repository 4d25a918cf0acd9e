//! Raw packets: whole Ethernet frames of the application's own making, put on the link as they are.
//! Nothing is added, neither headers nor ICRC nor FCS. What rules steer to such a QP arrives whole,
//! too.

use super::{Env, Qp, Received};
use crate::ah::MAX_OVERHEAD;
use crate::discard::Discard;
use crate::outgoing::Outgoing;
use crate::sq::{self, Progress};
use crate::verbs::{QpState, WcStatus};
use crate::wire::Kind;

/// Destination, source and EtherType.
const HEADER_LEN: usize = 14;

impl Qp {
    /// Sends the next frame; it completes as soon as it has left.
    pub(super) fn transmit_raw(&mut self, env: &mut Env, frame: &mut [u8]) -> Option<usize> {
        while self.state == QpState::Rts {
            let index = self.requester.wqe;
            let len = self.sq.get(index)?.len as usize;
            match self.build_raw(env, frame, index, len) {
                Ok(()) => {
                    self.requester.move_to(index + 1);
                    env.shared.counters.sent_pkts += 1;
                    self.counters.sent_pkts += 1;
                    if let Some(wqe) = self.sq.get_mut(index) {
                        wqe.progress = Progress::Done;
                    }
                    self.retire(env);
                    return Some(len);
                }
                Err(status) => self.fail_in_order(env, index, status),
            }
        }
        None
    }

    /// Gathers the frame: at least an Ethernet header, at most what the link takes.
    fn build_raw(
        &self,
        env: &Env,
        frame: &mut [u8],
        index: u64,
        len: usize,
    ) -> Result<(), WcStatus> {
        let longest = env.shared.port.active_mtu.bytes() + MAX_OVERHEAD;
        if !(HEADER_LEN..=longest).contains(&len) {
            return Err(WcStatus::LocLenErr);
        }
        let pd = self.init.pd.ok_or(WcStatus::LocProtErr)?;
        let mut out = Outgoing::bare(&mut frame[..len]);
        self.sq.gather(index, 0, &mut out, pd, &env.shared.regions, env.memory)
    }

    /// Receives a frame. One that does not fit is dropped and its receive work request stays, as
    /// with datagrams.
    pub fn handle_raw(&mut self, env: &mut Env, frame: &[u8]) -> Result<(), Discard> {
        if !self.takes(Kind::Send) {
            return Err(Discard::WrongState);
        }
        let room = self.next_recv_len(env.shared).ok_or(Discard::NoReceive)?;
        if frame.len() as u64 > room {
            return Err(Discard::BadMessage);
        }
        self.take_recv(env.shared);
        let pd = self.receive_pd(env.shared).ok_or(WcStatus::LocProtErr);
        let placed = pd.and_then(|pd| {
            let held = &self.responder.held;
            sq::scatter(held.sges.iter(), 0, frame, pd, &env.shared.regions, env.memory)
        });
        if let Err(status) = placed {
            self.complete_held(env.shared, status, &Received::NOTHING);
            self.enter_error(env.shared);
            return Err(Discard::BadMessage);
        }
        let received = Received { byte_len: frame.len() as u32, ..Received::NOTHING };
        self.complete_held(env.shared, WcStatus::Success, &received);
        Ok(())
    }
}
