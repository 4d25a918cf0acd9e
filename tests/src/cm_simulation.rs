//! Two hosts whose owners connect, accept, reject and disconnect as somebody chooses, over a link
//! that loses, repeats and reorders as somebody chooses.
//!
//! An owner's view of each connection is checked at every event: which may come after which, with
//! whose private data, and that no ID in use is given out again. Once the faults are over, every
//! connection has come to an end both owners know of, and nothing is left of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ferroce_stack::mad::message::MAD_LEN;
use ferroce_stack::mad::{
    Accept, CmConfig, CmCounters, CmError, CmEvent, CmEventKind, CommId, Connect, IpHeader,
    RejReason, SidrAccept, SidrConnect,
};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::Qpn;
use ferroce_stack::wire::{CmMessage, Mad};

use crate::cm::{
    Datagram, SERVICE, Side, UDP_SERVICE, accept, config, connect, gid, ip, path, resolve,
};

/// Steps before the faults end.
const STEPS_MAX: usize = 600;
/// Steps in which all comes to an end once nothing is lost.
const FINISH_MAX: usize = 200_000;
/// Requests a host holds unanswered.
const BACKLOG: u32 = 4;
/// QPs a host has, so that one is used again while the other side may not know that it is over.
const QPNS: u32 = 32;
/// Datagrams remembered to be sent again much later.
const HISTORY: usize = 32;

/// Where the choices come from; none when they have run out.
pub type Source<'a> = &'a mut dyn FnMut() -> Option<u8>;

/// How a connection stands in its owner's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asking,
    Asked,
    Withdrawn,
    Replied,
    Accepted,
    Up,
    Ending,
    Over,
    Resolving,
    AskedForQp,
}

/// A connection in its owner's view.
#[derive(Clone, Copy, Debug)]
struct Held {
    phase: Phase,
    /// The peer's ID, as a request said.
    peer: Option<CommId>,
}

/// A host and what its owner believes.
#[derive(Debug)]
struct Host {
    side: Side,
    held: BTreeMap<CommId, Held>,
    /// Lengths of private data sent, by ID.
    asked_with: BTreeMap<CommId, usize>,
    replied_with: BTreeMap<CommId, usize>,
    /// Connections the owner has confirmed.
    confirmed: BTreeSet<CommId>,
    qpns: u32,
}

#[derive(Debug)]
struct World {
    hosts: [Host; 2],
    now: Instant,
    /// Datagrams under way, and which host they go to.
    under_way: VecDeque<(usize, Datagram)>,
    history: VecDeque<(usize, Datagram)>,
    /// Somebody forges messages: what they say means nothing. Nor does it where so few IDs are to
    /// be had that a late datagram may mean an earlier connection.
    is_hostile: bool,
    incarnation: u64,
}

/// Runs until the choices have run out, then to the end; what each host has counted.
///
/// # Panics
///
/// If an owner is told what must not be, or something never ends.
pub fn run(source: Source<'_>) -> [CmCounters; 2] {
    let mut next = || source().unwrap_or(0);
    let is_hostile = next() & 1 != 0;
    let ids = [16, 64, 0x100_0000][usize::from(next() % 3)];
    let max_connections = [6, 12, 65536][usize::from(next() % 3)];
    let mut world = World {
        hosts: [1, 2].map(|host| Host::new(settings(host, ids, max_connections, 0))),
        now: Instant::ZERO,
        under_way: VecDeque::new(),
        history: VecDeque::new(),
        is_hostile,
        incarnation: 0,
    };
    for _ in 0..STEPS_MAX {
        let Some(choice) = source() else { break };
        world.step(choice, source);
        world.settle();
    }
    world.finish();
    world.hosts.map(|host| host.side.cm.counters().clone())
}

fn settings(host: u8, ids: u32, max_connections: usize, seed: u64) -> (u8, CmConfig) {
    let config = config(host);
    let ids = config.ids.start..config.ids.start + ids;
    (host, CmConfig { ids, max_connections, seed, max_retries: 3, ..config })
}

/// Private data of this length: no zeros, so that its end shows in a padded area.
fn private(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 255) as u8 + 1).collect()
}

/// Whether an area holds `private(len)` and zeros.
fn holds(area: &[u8], len: usize) -> bool {
    area.len() >= len && area[..len] == private(len) && area[len..].iter().all(|&byte| byte == 0)
}

impl Host {
    fn new((host, config): (u8, CmConfig)) -> Host {
        let mut side = Side::new(host, config);
        side.cm.listen(SERVICE, None, BACKLOG, 22).expect("nobody else listens");
        side.cm.listen(UDP_SERVICE, None, BACKLOG, 22).expect("nobody else listens");
        Host {
            side,
            held: BTreeMap::new(),
            asked_with: BTreeMap::new(),
            replied_with: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            qpns: 0,
        }
    }

    fn hold(&mut self, id: CommId, phase: Phase, peer: Option<CommId>) {
        let earlier = self.held.insert(id, Held { phase, peer });
        assert!(earlier.is_none(), "{id:?} was given out while it is {earlier:?}");
        self.confirmed.remove(&id);
    }

    fn next_qpn(&mut self) -> Qpn {
        self.qpns = (self.qpns + 1) % QPNS;
        Qpn(0x100 + self.qpns)
    }

    fn start(&mut self, now: Instant, len: usize, is_datagram: bool, cookie: u64) {
        let (own, other) = (self.side.host, 3 - self.side.host);
        let ip = IpHeader { source: gid(own).to_ip(), destination: gid(other).to_ip(), ..ip() };
        let (ip, path) = (Some(ip), path(own, other));
        let refused_retries = (len % 4) as u8;
        let (started, phase) = if is_datagram {
            let bytes = private(len % 181);
            let sidr = SidrConnect { cookie, path, refused_retries, ip, ..resolve(&bytes) };
            (self.side.cm.resolve(now, &sidr), Phase::Resolving)
        } else {
            let bytes = private(len % 57);
            let qpn = self.next_qpn();
            let asked = Connect { cookie, path, qpn, refused_retries, ip, ..connect(&bytes) };
            (self.side.cm.connect(now, &asked), Phase::Asking)
        };
        match started {
            Ok(id) => {
                self.hold(id, phase, None);
                self.asked_with.insert(id, len % if is_datagram { 181 } else { 57 });
            }
            Err(error) => assert_eq!(error, CmError::NoRoom),
        }
    }

    /// The owner does something with a connection; what its state refuses changes nothing.
    fn act(&mut self, now: Instant, id: CommId, choice: u8, len: usize) {
        let qpn = self.next_qpn();
        let cm = &mut self.side.cm;
        let Some(held) = self.held.get_mut(&id) else { return };
        let before = held.phase;
        let result = match choice % 8 {
            0 | 1 if before == Phase::AskedForQp => {
                let bytes = private(len % 137);
                let answer = SidrAccept { status: 0, qpn, qkey: 1, private_data: &bytes };
                let result = cm.answer(id, &answer);
                self.held.remove(&id);
                result
            }
            0 | 1 => {
                let bytes = private(len % 197);
                let result = cm.accept(now, id, &Accept { qpn, ..accept(&bytes) });
                if result.is_ok() {
                    held.phase = Phase::Accepted;
                    self.replied_with.insert(id, len % 197);
                }
                result
            }
            2 | 3 => {
                let result = cm.confirm(id, &private(len % 225));
                if result.is_ok() {
                    held.phase = Phase::Up;
                    self.confirmed.insert(id);
                }
                result
            }
            4 => {
                let result = cm.reject(id, RejReason::CONSUMER, &[], &private(len % 149));
                if result.is_ok() {
                    self.held.remove(&id);
                }
                result
            }
            5 => cm.delay(id),
            6 => {
                let result = cm.disconnect(now, id, &private(len % 221));
                if result.is_ok() && held.phase != Phase::Over {
                    held.phase = Phase::Ending;
                }
                result
            }
            _ => {
                cm.destroy(now, id);
                self.held.remove(&id);
                Ok(())
            }
        };
        assert_eq!(result.is_ok(), is_allowed(before, choice), "{before:?} {choice} {result:?}");
    }
}

/// Whether a connection in this phase allows the call that this choice is.
fn is_allowed(phase: Phase, choice: u8) -> bool {
    use Phase::*;
    match choice % 8 {
        0 | 1 => matches!(phase, Asked | AskedForQp),
        2 | 3 => matches!(phase, Replied),
        4 => matches!(phase, Asking | Asked | Withdrawn | Replied | Accepted),
        5 => matches!(phase, Asked | Replied),
        6 => matches!(phase, Replied | Accepted | Up | Ending | Over),
        _ => true,
    }
}

impl World {
    fn step(&mut self, choice: u8, source: Source<'_>) {
        let mut next = || usize::from(source().unwrap_or(0));
        let host = usize::from(choice >> 7);
        match choice & 0x1f {
            0..=7 => self.deliver(0),
            8 | 9 => self.deliver(next()),
            10 | 11 => drop(self.take(next())),
            12 => {
                let at = next();
                self.under_way
                    .extend(self.under_way.get(at % self.under_way.len().max(1)).copied());
            }
            13 => self.under_way.extend(self.history.get(next() % HISTORY).copied()),
            14 | 15 => self.pass_time(),
            16 | 17 => self.hosts[host].start(self.now, next(), false, 11),
            18 => self.hosts[host].start(self.now, next(), true, 11),
            19..=27 => self.act(host, next(), next() as u8, next()),
            28 if self.is_hostile => self.forge(next(), next(), next() as u8),
            29 if self.is_hostile => {
                let mad = self.invent(host, &mut next);
                self.hosts[host].side.hear(self.now, 2 - host as u8, &mad);
            }
            30 if choice & 0x60 == 0 => self.restart(host),
            31 => {
                let id = self.nth(host, next());
                // Somebody believes it, rightly or not.
                if let Some(id) = id {
                    self.hosts[host].side.cm.peer_died(self.now, id);
                }
            }
            _ => {}
        }
    }

    fn nth(&self, host: usize, at: usize) -> Option<CommId> {
        let held = &self.hosts[host].held;
        held.keys().nth(at % held.len().max(1)).copied()
    }

    fn act(&mut self, host: usize, at: usize, choice: u8, len: usize) {
        if let Some(id) = self.nth(host, at) {
            self.hosts[host].act(self.now, id, choice, len);
        }
    }

    fn take(&mut self, at: usize) -> Option<(usize, Datagram)> {
        self.under_way.remove(at % self.under_way.len().max(1))
    }

    fn deliver(&mut self, at: usize) {
        let Some((to, mad)) = self.take(at) else { return };
        self.history.push_back((to, mad));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        self.hosts[to].side.hear(self.now, 2 - to as u8, &mad);
    }

    /// A datagram under way is changed in one place.
    fn forge(&mut self, at: usize, place: usize, value: u8) {
        let Some((_, mad)) = self.under_way.get_mut(at) else { return };
        mad[place % MAD_LEN] ^= value;
    }

    /// A message of any kind to a host's connection, and with anything in it.
    fn invent(&self, host: usize, next: &mut dyn FnMut() -> usize) -> Vec<u8> {
        let kind = CmMessage::ALL[next() % CmMessage::ALL.len()];
        let (own, peer) = (self.nth(host, next()), self.nth(1 - host, next()));
        let mut mad = vec![0; MAD_LEN - usize::from(next() == 0)];
        Mad::cm(kind, next() as u64).emit(&mut mad);
        let (ids, rest) = mad[Mad::LEN..].split_at_mut(8);
        ids[..4].copy_from_slice(&peer.map_or(0, |id| id.0).to_be_bytes());
        ids[4..].copy_from_slice(&own.map_or(0, |id| id.0).to_be_bytes());
        let count = next();
        rest.iter_mut().take(count).for_each(|byte| *byte = next() as u8);
        mad
    }

    fn pass_time(&mut self) {
        let next = self.hosts.iter().filter_map(|host| host.side.cm.poll_timeout()).min();
        self.now = self.now.max(next.unwrap_or(self.now));
        for host in &mut self.hosts {
            host.side.cm.handle_timeout(self.now);
        }
    }

    /// A host's process dies and another takes its place.
    fn restart(&mut self, host: usize) {
        self.incarnation += 1;
        let old = &self.hosts[host].side.config;
        let ids = old.ids.end - old.ids.start;
        let seed = self.incarnation * 7;
        let settings = settings(1 + host as u8, ids, old.max_connections, seed);
        self.hosts[host] = Host::new(settings);
        // What its predecessor has sent says nothing about it.
        self.is_hostile = true;
    }

    /// Sends and tells what there is.
    fn settle(&mut self) {
        for at in 0..2 {
            let sent = self.hosts[at].side.sent();
            self.under_way.extend(sent.into_iter().map(|(_, mad)| (1 - at, mad)));
            for event in self.hosts[at].side.events() {
                self.told(at, event);
            }
        }
        for host in &self.hosts {
            assert!(host.side.cm.len() <= host.side.config.max_connections);
        }
    }

    fn told(&mut self, at: usize, event: CmEvent) {
        use Phase::*;
        let [first, second] = &mut self.hosts;
        let (host, peer) = if at == 0 { (first, &*second) } else { (second, &*first) };
        let id = event.id;
        let phase = host.held.get(&id).map(|held| held.phase);
        let is_new = matches!(event.kind, CmEventKind::Request(_) | CmEventKind::SidrRequest(_));
        assert!(phase.is_some() || is_new, "an event of a connection nobody has: {event:?}");
        let is_fair = !self.is_hostile && host.side.config.ids.len() > STEPS_MAX;
        let after = match event.kind {
            CmEventKind::Request(request) => {
                host.hold(id, Asked, Some(request.remote_comm_id));
                let len = peer.asked_with.get(&request.remote_comm_id);
                let is_told = len.is_some_and(|&len| holds(&request.private_data, len));
                assert!(is_told || !is_fair, "{len:?} {request:?}");
                let asked = host.held.values().filter(|held| held.phase == Asked).count();
                assert!(asked <= BACKLOG as usize);
                return;
            }
            CmEventKind::SidrRequest(_) => return host.hold(id, AskedForQp, None),
            CmEventKind::Reply(reply) => {
                assert_eq!(phase, Some(Asking));
                let answers = || {
                    let mut of = peer.replied_with.values();
                    of.any(|&len| holds(&reply.private_data, len))
                };
                assert!(!is_fair || answers());
                Replied
            }
            CmEventKind::Established { .. } => {
                assert_eq!(phase, Some(Accepted));
                let is_confirmed =
                    host.held[&id].peer.is_some_and(|id| peer.confirmed.contains(&id));
                assert!(!is_fair || is_confirmed, "established without the other side");
                Up
            }
            CmEventKind::Rejected { .. } | CmEventKind::Unreachable => match phase {
                Some(Asked | AskedForQp) => Withdrawn,
                Some(Asking | Replied | Accepted | Resolving) => {
                    host.held.remove(&id);
                    return;
                }
                _ => panic!("{phase:?} {event:?}"),
            },
            CmEventKind::Disconnected { .. } => {
                assert!(matches!(phase, Some(Replied | Accepted | Up | Ending)), "{phase:?}");
                Over
            }
            CmEventKind::TimewaitExit => {
                assert_eq!(phase, Some(Over));
                host.held.remove(&id);
                return;
            }
            CmEventKind::SidrReply(_) => {
                assert_eq!(phase, Some(Resolving));
                host.held.remove(&id);
                return;
            }
        };
        host.held.entry(id).and_modify(|held| held.phase = after);
    }

    /// Nothing is lost any more and owners do what is sensible, till all is over.
    fn finish(&mut self) {
        for _ in 0..FINISH_MAX {
            self.settle();
            if !self.under_way.is_empty() {
                self.deliver(0);
                continue;
            }
            if self.do_what_is_sensible() {
                continue;
            }
            if self.hosts.iter().all(|host| host.side.cm.is_empty()) {
                let left = self.hosts.iter().find(|host| !host.held.is_empty());
                assert!(left.is_none(), "an owner was not told of an end: {left:?}");
                return;
            }
            self.pass_time();
        }
        panic!("it never ends: {self:?}");
    }

    /// Whether an owner had something to do.
    fn do_what_is_sensible(&mut self) -> bool {
        for host in &mut self.hosts {
            for (id, held) in host.held.clone() {
                let choice = match held.phase {
                    Phase::Asked if id.0.is_multiple_of(3) => 4,
                    Phase::Asked | Phase::AskedForQp => 0,
                    Phase::Withdrawn => 7,
                    Phase::Replied => 2,
                    Phase::Up => 6,
                    _ => continue,
                };
                host.act(self.now, id, choice, 9);
                return true;
            }
        }
        false
    }
}
