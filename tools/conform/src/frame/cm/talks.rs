//! Which connections peer and target talk about: what is right in a message if nothing is said.

use std::collections::VecDeque;

use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::wire::CmMessage;

use super::super::Side;
use super::message::Message;

/// Connections and exchanges remembered, the youngest ones.
const MOST: usize = 256;

/// A connection or an exchange that messages are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Talk {
    /// Whether it is about the QP of a service, and its IDs are those of requests.
    pub is_exchange: bool,
    pub begun_by_target: bool,
    /// Communication ID of the peer; 0 if it has none yet.
    pub peer_id: u64,
    /// Communication ID of the target; 0 if it is not known.
    pub target_id: u64,
    /// Of the request and of what answers it.
    pub transaction: u64,
    /// Of the target's last DREQ or LAP.
    pub asked: u64,
    /// The target's QP.
    pub target_qpn: u64,
    /// The service asked for.
    pub service: u64,
}

/// Connections and exchanges, the one that a message was last about at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Talks {
    all: VecDeque<Talk>,
    /// How many there have been.
    begun: u64,
}

impl Talks {
    /// An ID that no connection of the peer has had.
    pub(super) fn fresh_id(&self) -> u64 {
        self.begun + 1
    }

    /// The last one with these IDs, as far as they are said.
    pub(super) fn find(
        &self,
        is_exchange: bool,
        peer_id: Option<u64>,
        target_id: Option<u64>,
    ) -> Option<&Talk> {
        self.position(is_exchange, peer_id, target_id).map(|index| &self.all[index])
    }

    /// The one that a message of the peer is about whose IDs are these, as far as they are said.
    /// The peer's first answer gives it its ID.
    pub(super) fn meant(&self, peer_id: Option<u64>, target_id: Option<u64>) -> Option<&Talk> {
        self.find(false, peer_id, target_id).or_else(|| self.find(false, Some(0), target_id))
    }

    fn position(
        &self,
        is_exchange: bool,
        peer_id: Option<u64>,
        target_id: Option<u64>,
    ) -> Option<usize> {
        self.all.iter().rposition(|talk| {
            talk.is_exchange == is_exchange
                && peer_id.is_none_or(|id| id == talk.peer_id)
                && target_id.is_none_or(|id| id == talk.target_id)
        })
    }

    /// Remembers what a datagram says.
    pub(in super::super) fn note(&mut self, mad: &[u8; MAD_LEN], side: Side) {
        let message = Message::of(mad);
        let Some(kind) = message.kind else { return };
        let get = |name: &str| message.field(name, false).map_or(0, |field| field.get(mad));
        let is_exchange = matches!(kind, CmMessage::SidrReq | CmMessage::SidrRep);
        let by_target = side == Side::Target;
        if matches!(kind, CmMessage::Req | CmMessage::SidrReq) {
            let id = get(if is_exchange { "request-id" } else { "local-id" });
            let known = if by_target { (None, Some(id)) } else { (Some(id), None) };
            let transaction = get("transaction");
            let known = self.position(is_exchange, known.0, known.1);
            let is_again = |index: &usize| {
                let talk = &self.all[*index];
                talk.begun_by_target == by_target && talk.transaction == transaction
            };
            if let Some(talk) = known.filter(is_again).and_then(|index| self.all.remove(index)) {
                return self.all.push_back(talk);
            }
            let (peer_id, target_id) = if by_target { (0, id) } else { (id, 0) };
            return self.begin(Talk {
                is_exchange,
                begun_by_target: by_target,
                peer_id,
                target_id,
                transaction,
                target_qpn: if by_target { get("local-qpn") } else { 0 },
                service: get("service-id"),
                ..Talk::default()
            });
        }
        if is_exchange {
            return;
        }
        let (local, remote) = (get("local-id"), get("remote-id"));
        let found = match side {
            Side::Target => self.position(false, Some(remote), None),
            Side::Peer => self.position(false, None, Some(remote)),
        };
        let Some(mut talk) = found.and_then(|index| self.all.remove(index)) else { return };
        let own = if by_target { &mut talk.target_id } else { &mut talk.peer_id };
        // Who cancels or rejects may have no ID.
        if *own == 0 && local != 0 {
            *own = local;
        }
        match kind {
            CmMessage::Rep if by_target => talk.target_qpn = get("local-qpn") | get("local-eecn"),
            CmMessage::Dreq | CmMessage::Lap if by_target => talk.asked = get("transaction"),
            _ => {}
        }
        self.all.push_back(talk);
    }

    fn begin(&mut self, talk: Talk) {
        self.begun += 1;
        if self.all.len() == MOST {
            self.all.pop_front();
        }
        self.all.push_back(talk);
    }
}
