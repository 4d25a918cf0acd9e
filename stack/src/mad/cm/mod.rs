//! Connection management of one process on one device (IBA 12).
//!
//! Calls are in `calls`, what messages do in `receive` and `request`, what time does in `timers`.
//! Every message finds its connection by a sorted map; a message from another GID than the peer's
//! finds none. Everything a peer can make grow is bounded: requests by their listener's backlog,
//! connections by the configuration, answers by the queue of what is to be sent.

mod calls;
mod codes;
mod conn;
mod listeners;
mod receive;
mod request;
mod table;
mod timers;

use std::collections::VecDeque;
use std::net::IpAddr;

use self::conn::Conn;
use self::listeners::Listeners;
use self::table::Table;
use super::message::{MAD_LEN, Message};
use super::{
    CmConfig, CmCounters, CmError, CmEvent, CmEventKind, CommId, ListenerId, Path, ServiceId,
};
use crate::gid::Gid;
use crate::time::Instant;

/// Datagrams that may wait to be sent before answers to peers are dropped as on a full link.
const SEND_QUEUE: usize = 4096;

/// Connection management of one process on one device: a pure state machine.
///
/// Datagrams received from QP1 go in by [`handle_mad`](Self::handle_mad), those to send come out
/// by [`poll_transmit`](Self::poll_transmit), time passes by
/// [`handle_timeout`](Self::handle_timeout), and the owner learns by
/// [`poll_event`](Self::poll_event). After the same calls it does the same.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    table: Table,
    listeners: Listeners,
    outbox: VecDeque<(Path, Box<[u8; MAD_LEN]>)>,
    events: VecDeque<CmEvent>,
    counters: CmCounters,
}

impl Cm {
    /// One without connections.
    pub fn new(config: CmConfig) -> Cm {
        Cm {
            table: Table::new(config.ids.clone(), config.seed, config.max_connections),
            listeners: Listeners::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            counters: CmCounters::default(),
            config,
        }
    }

    /// Waits for requests for `service` to `address`: any of its family if it is the unspecified
    /// one, any at all if there is none. Who listens to the very address is asked first, then who
    /// listens to its family. At least one and at most `backlog` requests are held that are neither
    /// answered nor [taken](Cm::take); more are rejected with
    /// [`RejReason::NO_RESOURCES`](super::RejReason::NO_RESOURCES). Events of a request have
    /// `cookie` until it has its own.
    ///
    /// # Errors
    ///
    /// [`CmError::InUse`]
    pub fn listen(
        &mut self,
        service: ServiceId,
        address: Option<IpAddr>,
        backlog: u32,
        cookie: u64,
    ) -> Result<ListenerId, CmError> {
        self.listeners.add(service, address, backlog, cookie)
    }

    /// Waits no longer. Unanswered requests stay until their owner destroys them.
    pub fn unlisten(&mut self, listener: ListenerId) {
        self.listeners.remove(listener);
    }

    /// The next datagram to send from QP1, and along which path.
    pub fn poll_transmit(&mut self) -> Option<(Path, [u8; MAD_LEN])> {
        self.outbox.pop_front().map(|(path, mad)| (path, *mad))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    /// Whether there is nothing to send or to tell.
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.events.is_empty()
    }

    /// Connections and exchanges in all states.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no connection or exchange in any state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The peers of connections that are not over: their GID, and their communication ID as far
    /// as it is known.
    pub fn peers(&self) -> impl Iterator<Item = (CommId, Gid, Option<CommId>)> {
        let live = self.table.iter().filter(|(_, conn)| conn.is_live());
        live.map(|(id, conn)| (CommId(id), conn.path.dgid, conn.remote_id.map(CommId)))
    }

    /// What has been counted.
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// The datagram of a message.
    fn datagram<M: Message>(
        message: &M,
        transaction_id: u64,
        private_data: &[u8],
    ) -> Result<Box<[u8; MAD_LEN]>, CmError> {
        let mad = message.datagram(transaction_id, private_data);
        mad.map(Box::new).ok_or(CmError::PrivateData)
    }

    /// Sends a datagram by the owner's wish or because it is time.
    fn send<M: Message>(&mut self, path: Path, mad: Box<[u8; MAD_LEN]>) {
        self.counters.count_sent(M::KIND);
        self.outbox.push_back((path, mad));
    }

    /// Answers a peer's message, without private data, unless too much waits to be sent.
    fn respond<M: Message>(&mut self, path: &Path, transaction_id: u64, message: &M) {
        if let Some(mad) = message.datagram(transaction_id, &[]) {
            self.resend::<M>(path, &mad);
        }
    }

    /// Sends a datagram because of a peer's message, unless too much waits to be sent.
    fn resend<M: Message>(&mut self, path: &Path, mad: &[u8; MAD_LEN]) {
        if self.outbox.len() >= SEND_QUEUE {
            self.counters.send_queue_full += 1;
        } else {
            self.send::<M>(*path, Box::new(*mad));
        }
    }

    /// Tells the owner of a connection, unless it has forgotten it.
    fn tell(&mut self, id: u32, kind: CmEventKind) {
        if let Some(conn) = self.table.get(id).filter(|conn| !conn.is_silent) {
            self.events.push_back(CmEvent { cookie: conn.cookie, id: CommId(id), kind });
        }
    }

    /// A connection that is there and not forgotten by its owner.
    fn owned(&mut self, id: CommId) -> Result<&mut Conn, CmError> {
        let conn = self.table.get_mut(id.0).filter(|conn| !conn.is_silent);
        conn.ok_or(CmError::UnknownId)
    }

    /// Takes a connection out; if it was a request, there is room for another.
    fn forget(&mut self, id: u32) {
        if let Some(listener) = self.table.remove(id).and_then(|conn| conn.listener) {
            self.listeners.answered(listener);
        }
    }
}
