//! What time does: resend, give up, forget.

use super::Cm;
use super::codes::code_ns;
use super::conn::{Conn, State};
use crate::mad::message::{Dreq, Rep, Req, SidrReq};
use crate::mad::{CmEventKind, RejReason};
use crate::time::Instant;

/// Until a request is sent again for the first time where nobody listens.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// Longest time a connection rests, as an ACK timeout code: 8.6 s. A peer's word must not keep it
/// for hours.
const MAX_TIMEWAIT: u8 = 21;

impl Cm {
    /// Time has passed: what was not answered is sent again or given up, what has rested is
    /// forgotten.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.table.pop_due(now) {
            self.come_up(now, id);
        }
    }

    fn come_up(&mut self, now: Instant, id: u32) {
        let Some(conn) = self.table.get_mut(id) else { return };
        if conn.state == State::Timewait {
            self.tell(id, CmEventKind::TimewaitExit);
            return self.forget(id);
        }
        if conn.retries_left == 0 {
            return self.run_out(now, id);
        }
        conn.retries_left -= 1;
        conn.state = match conn.state {
            State::MraReqRcvd => State::ReqSent,
            State::MraRepRcvd => State::RepSent,
            state => state,
        };
        let (state, path, mad) = (conn.state, conn.path, conn.sent.clone());
        let resend_at = now + conn.resend_ns;
        let Some(mad) = mad else { return };
        match state {
            State::ReqSent => self.send::<Req>(path, mad),
            State::RepSent => self.send::<Rep>(path, mad),
            State::DreqSent => self.send::<Dreq>(path, mad),
            State::SidrReqSent => self.send::<SidrReq>(path, mad),
            _ => return,
        }
        self.counters.resent += 1;
        self.table.arm(id, resend_at);
    }

    /// Nobody listens: whether the request is to be sent again, in case somebody is about to.
    pub(super) fn ask_again(&mut self, now: Instant, id: u32) -> bool {
        let may_be = |conn: &&mut Conn| conn.refusals < conn.max_refusals;
        let Some(conn) = self.table.get_mut(id).filter(may_be) else { return false };
        let wait_ns = ASK_AGAIN_NS << conn.refusals;
        conn.refusals += 1;
        // The peer is there and hears: that it answers is no sign of a bad way.
        conn.retries_left = conn.max_retries.max(1);
        if conn.state == State::MraReqRcvd {
            conn.state = State::ReqSent;
        }
        self.table.arm(id, now + wait_ns);
        true
    }

    /// No resend was answered. The peer is told, in case it hears but cannot be heard.
    fn run_out(&mut self, now: Instant, id: u32) {
        match self.table.get(id).map(|conn| conn.state) {
            Some(State::DreqSent) => return self.enter_timewait(now, id, Box::default()),
            Some(State::SidrReqSent) | None => {}
            Some(_) => {
                let ari = self.config.ca_guid.to_be_bytes();
                // It fits.
                let _ = self.send_rej(id, RejReason::TIMEOUT, &ari, &[]);
            }
        }
        self.give_up(id);
    }

    /// Forgets a connection or exchange whose peer does not answer.
    pub(super) fn give_up(&mut self, id: u32) {
        self.counters.unreachable += 1;
        self.tell(id, CmEventKind::Unreachable);
        self.forget(id);
    }

    /// A request's peer is not interested any more. It stays until its owner forgets it, so that
    /// what its owner has still to hear of is bounded.
    pub(super) fn withdraw(&mut self, id: u32, why: CmEventKind) {
        self.tell(id, why);
        self.table.forget_qp(id);
        if let Some(conn) = self.table.get_mut(id) {
            conn.state = State::Withdrawn;
        }
    }

    /// The connection is established by the peer's word or its data.
    pub(super) fn establish(&mut self, id: u32, private_data: Box<[u8]>) {
        if let Some(conn) = self.table.get_mut(id) {
            conn.state = State::Established;
            conn.sent = None;
        }
        self.table.disarm(id);
        self.counters.established += 1;
        self.tell(id, CmEventKind::Established { private_data });
    }

    /// The connection is over and rests until no packet of it is under way.
    pub(super) fn enter_timewait(&mut self, now: Instant, id: u32, private_data: Box<[u8]>) {
        self.counters.disconnected += 1;
        self.tell(id, CmEventKind::Disconnected { private_data });
        self.table.forget_qp(id);
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.state = State::Timewait;
        conn.sent = None;
        let rest_ns = code_ns(conn.ack_timeout.min(MAX_TIMEWAIT));
        self.table.arm(id, now + rest_ns);
    }
}
