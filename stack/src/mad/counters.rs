//! What connection management has counted.

use crate::wire::CmMessage;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a [`Cm`](super::Cm) has counted since it was made.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct CmCounters {
            $($(#[$doc])* pub $name: u64,)*
            received_by_kind: [u64; CmMessage::ALL.len()],
            sent_by_kind: [u64; CmMessage::ALL.len()],
        }

        impl CmCounters {
            /// Every counter but those by kind of message, with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Management datagrams received.
    received,
    /// Management datagrams to send.
    sent,
    /// Received too short, of an unknown version, or with a method or attribute nobody has.
    malformed,
    /// Received of another management class.
    other_class,
    /// Received with communication IDs of no connection, or from somebody who is not its peer.
    for_nobody,
    /// Received, but without meaning in the connection's state: duplicates, mostly.
    out_of_state,
    /// Requests received for which there was no room.
    no_room,
    /// Sent again because no answer came in time.
    resent,
    /// Not sent because as many were waiting to be sent as may.
    send_queue_full,
    /// Connections asked for by this side.
    requested,
    /// Requests of peers told to a listener.
    offered,
    /// Connections established.
    established,
    /// Connections rejected by the peer.
    rejected,
    /// Connections and exchanges given up because the peer did not answer.
    unreachable,
    /// Connections that were established and are over.
    disconnected,
    /// Requests and replies of a peer that has forgotten an earlier connection of the same QP.
    stale,
}

impl CmCounters {
    /// Messages of this kind received.
    pub fn received_of(&self, kind: CmMessage) -> u64 {
        self.received_by_kind[kind as usize]
    }

    /// Messages of this kind to send.
    pub fn sent_of(&self, kind: CmMessage) -> u64 {
        self.sent_by_kind[kind as usize]
    }

    pub(crate) fn count_received(&mut self, kind: CmMessage) {
        self.received_by_kind[kind as usize] += 1;
    }

    pub(crate) fn count_sent(&mut self, kind: CmMessage) {
        self.sent += 1;
        self.sent_by_kind[kind as usize] += 1;
    }
}
