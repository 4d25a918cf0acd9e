//! Selective repeat between two of ours: what arrives ahead of a lost packet is kept, and only what
//! was lost is sent again.
//!
//! A requester that offers it marks its requests; a responder that has seen the mark marks its
//! answers. Each uses it once it has seen the other's mark on this connection, and is go-back-N
//! until then: a foreign peer, which never sends the mark, is sent one bit that it ignores.
//!
//! Packets ahead of a gap are kept as frames ([`stash`]) and handled in their turn as if they had
//! come just then, so that what is checked, executed, counted and completed, and in which order, is
//! the same in both modes. `responder` keeps requests and tells the peer which have come;
//! `requester` learns from that what is missing ([`holes`]), and keeps answers. Between `sent` and
//! `una_psn` it knows what to send again; a timeout probes with the oldest packet, and if the
//! answer shows nothing else, all that was on its way then is lost; after an RNR NAK it does the
//! same once the time is over. Whatever does not fit goes back, as ever.

mod holes;
mod requester;
mod responder;
mod stash;

use super::{Qp, Shared};
use crate::loss_recovery::LossRecovery;
use crate::wire::Packet;

use requester::Repair;
use stash::{Room, Stash};

const MARK: u8 = LossRecovery::SelectiveRepeat.mark();

/// How a connection recovers from loss.
#[derive(Debug, Default)]
pub(super) enum Recovery {
    #[default]
    GoBackN,
    /// Go-back-N until the peer has shown the mark.
    Offered,
    Selective(Box<Selective>),
}

/// What selective repeat keeps of a connection.
#[derive(Debug)]
pub(super) struct Selective {
    /// Requests ahead of the expected one.
    early: Stash,
    repair: Repair,
}

impl Recovery {
    /// How a connection begins.
    pub fn new(offered: LossRecovery, is_reliable: bool) -> Recovery {
        match offered {
            LossRecovery::SelectiveRepeat if is_reliable => Recovery::Offered,
            _ => Recovery::GoBackN,
        }
    }

    /// Reserved bits of requests.
    #[inline]
    pub fn request_mark(&self) -> u8 {
        if matches!(self, Recovery::GoBackN) { 0 } else { MARK }
    }

    /// Reserved bits of answers.
    #[inline]
    pub fn answer_mark(&self) -> u8 {
        if matches!(self, Recovery::Selective(_)) { MARK } else { 0 }
    }

    fn selective(&self) -> Option<&Selective> {
        match self {
            Recovery::Selective(selective) => Some(selective),
            _ => None,
        }
    }

    fn selective_mut(&mut self) -> Option<&mut Selective> {
        match self {
            Recovery::Selective(selective) => Some(selective),
            _ => None,
        }
    }
}

impl Qp {
    /// Whether both sides have agreed on selective repeat.
    #[inline]
    pub(super) fn is_selective(&self) -> bool {
        matches!(self.recovery, Recovery::Selective(_))
    }

    /// The connection begins.
    pub(super) fn start_recovery(&mut self, offered: LossRecovery) {
        self.recovery = Recovery::new(offered, self.is_reliable());
    }

    /// The sending half begins at its first PSN.
    pub(super) fn start_repair(&mut self) {
        let una = self.requester.una_psn;
        if let Some(selective) = self.recovery.selective_mut() {
            selective.repair = Repair::new(una);
        }
    }

    /// Looks for the peer's mark.
    #[inline]
    pub(super) fn look_for_mark(&mut self, packet: &Packet) {
        if matches!(self.recovery, Recovery::Offered) && packet.headers.bth.reserved7 == MARK {
            let repair = Repair::new(self.requester.una_psn);
            let selective = Selective { early: Stash::default(), repair };
            self.recovery = Recovery::Selective(Box::new(selective));
        }
    }

    /// Gives back what is kept: the QP fails, or is reset or destroyed.
    pub fn forget_kept(&mut self, shared: &mut Shared) {
        if let Some(selective) = self.recovery.selective_mut() {
            selective.early.clear(&mut shared.reorder_left);
            selective.repair.clear(&mut shared.reorder_left);
        }
    }
}

/// Room for one more packet of a QP.
fn room(shared: &mut Shared) -> Room<'_> {
    Room { packets: shared.limits.max_reorder as usize, bytes: &mut shared.reorder_left }
}
