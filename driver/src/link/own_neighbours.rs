//! Addresses that an interface does not have and the fabric has on it: answers for them, and looks
//! for their neighbours. ARP (RFC 826), its conflict detection (RFC 5227); neighbour discovery
//! (RFC 4861), duplicate address detection (RFC 4862).
//!
//! Frames in, frames out, time an argument. Only neighbours that were asked for are remembered, so
//! nobody else decides how many those are; what others say of them is believed as far as the RFCs
//! say.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_stack::wire::{Ethernet, Mac, Neighbour, NeighbourMessage, Vlan};

use super::neighbour::NextHop;
use super::solicit::{self, ALL_NODES, group_mac, is_station, solicited_node};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Neighbours remembered.
const REMEMBERED: usize = 1024;

/// Frames that wait to be sent.
const OUTGOING: usize = 256;

/// A neighbour is asked for so often, each time waiting twice as long, before it is given up.
const QUESTIONS: u32 = 4;
const FIRST_WAIT_NS: u64 = 250 * MS;

/// For how long one that was given up is not asked for again.
const GIVEN_UP_NS: u64 = SECOND;

/// For how long a neighbour that has answered is not doubted (REACHABLE_TIME).
const FRESH_NS: u64 = 30 * SECOND;

/// For how long one is remembered that is not in use.
const UNUSED_NS: u64 = 600 * SECOND;

/// How often one in use is asked whether it is still there (MAX_UNICAST_SOLICIT, RETRANS_TIMER).
const CHECKS: u32 = 3;
const CHECK_WAIT_NS: u64 = SECOND;

/// An ARP packet does not replace what another one has said so shortly before: of several answers
/// the first one counts.
const SETTLED_NS: u64 = SECOND;

/// How often we ask whether somebody has our address, and how long we wait for an answer.
const PROBES: u32 = 3;
const PROBE_WAIT_NS: u64 = 100 * MS;

/// How often an address is announced once it is ours (RFC 5227 ANNOUNCE_NUM, ANNOUNCE_INTERVAL).
const ANNOUNCEMENTS: u32 = 2;
const ANNOUNCEMENT_WAIT_NS: u64 = 2 * SECOND;

/// How seldom we insist on an address (RFC 5227 DEFEND_INTERVAL), and try again for one that
/// somebody else had.
const DEFENCE_WAIT_NS: u64 = 10 * SECOND;

/// How seldom the same conflict is told.
const TOLD_WAIT_NS: u64 = 60 * SECOND;

/// Answers: so many at once, and one more each so many nanoseconds.
const ANSWERS: u64 = 256;
const ANSWER_NS: u64 = MS;

/// Somebody else has an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub ip: IpAddr,
    /// Who has it as well.
    pub mac: Mac,
    /// It had it first: we leave it alone.
    pub is_lost: bool,
}

/// The addresses and their neighbours.
#[derive(Debug)]
pub struct OwnNeighbours {
    mac: Mac,
    vlan: Option<Vlan>,
    own: Vec<Own>,
    known: BTreeMap<IpAddr, Entry>,
    outgoing: VecDeque<Neighbour>,
    conflicts: Vec<Conflict>,
    /// Up to when answers are accounted for: never more than `ANSWERS` of them behind.
    answered_ns: u64,
    /// Answers given.
    answers: u64,
    has_changed: bool,
}

/// An address of ours.
#[derive(Clone, Copy, Debug)]
struct Own {
    ip: IpAddr,
    state: OwnState,
    told_ns: Option<u64>,
    defended_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum OwnState {
    /// We ask whether somebody has it.
    Probing { sent: u32, at_ns: u64 },
    /// Somebody has; we try again.
    Lost { again_ns: u64 },
    /// Nobody has. It is announced so many times more.
    Ours { announcements: u32, at_ns: u64 },
}

/// A neighbour.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// For which of our addresses it was asked for.
    asker: IpAddr,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Asked for so often; at that time again.
    Asking { asked: u32, at_ns: u64 },
    /// It has answered.
    Fresh { mac: Mac, since_ns: u64 },
    /// It did once; whoever uses it should make sure.
    Stale { mac: Mac, since_ns: u64 },
    /// In use, and asked so often whether it is still there.
    Checking { mac: Mac, asked: u32, at_ns: u64 },
    /// It does not answer.
    GivenUp { until_ns: u64 },
}

impl State {
    fn mac(self) -> Option<Mac> {
        match self {
            State::Fresh { mac, .. } | State::Stale { mac, .. } | State::Checking { mac, .. } => {
                Some(mac)
            }
            State::Asking { .. } | State::GivenUp { .. } => None,
        }
    }

    /// When something happens by itself.
    fn deadline_ns(self) -> u64 {
        match self {
            State::Asking { at_ns, .. } | State::Checking { at_ns, .. } => at_ns,
            State::Fresh { since_ns, .. } => since_ns + FRESH_NS,
            State::Stale { since_ns, .. } => since_ns + UNUSED_NS,
            State::GivenUp { until_ns } => until_ns,
        }
    }
}

/// What somebody says of where an address is.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// An ARP packet, to us or to all.
    Arp { to_us: bool },
    /// A solicitation that comes from there.
    Solicitation,
    /// An advertisement.
    Advertisement { solicited: bool, overrides: bool },
}

impl OwnNeighbours {
    /// Begins to use these addresses on an interface with this Ethernet address; frames that are
    /// sent have this tag. Those received come without.
    pub fn new(mac: Mac, vlan: Option<Vlan>, addresses: &[IpAddr], now_ns: u64) -> OwnNeighbours {
        let state = OwnState::Probing { sent: 0, at_ns: now_ns };
        let own = |ip: &IpAddr| Own { ip: *ip, state, told_ns: None, defended_ns: None };
        OwnNeighbours {
            mac,
            vlan,
            own: addresses.iter().map(own).collect(),
            known: BTreeMap::new(),
            outgoing: VecDeque::new(),
            conflicts: Vec::new(),
            answered_ns: 0,
            answers: 0,
            has_changed: false,
        }
    }

    /// Whether it is known of each address whether it is ours.
    pub fn is_settled(&self) -> bool {
        self.own.iter().all(|own| !matches!(own.state, OwnState::Probing { .. }))
    }

    /// Whether what is known of a neighbour has changed since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Conflicts found since the last call.
    pub fn take_conflicts(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.conflicts)
    }

    /// How many questions have been answered.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// The next frame to send.
    pub fn transmit(&mut self) -> Option<Neighbour> {
        self.outgoing.pop_front()
    }

    /// When [`OwnNeighbours::handle_timeout`] has something to do; none: never.
    pub fn deadline_ns(&self) -> Option<u64> {
        let own = self.own.iter().filter_map(|own| match own.state {
            OwnState::Probing { at_ns, .. } => Some(at_ns),
            OwnState::Lost { again_ns } => Some(again_ns),
            OwnState::Ours { announcements: 0, .. } => None,
            OwnState::Ours { at_ns, .. } => Some(at_ns),
        });
        own.chain(self.known.values().map(|entry| entry.state.deadline_ns())).min()
    }

    /// The Ethernet address of a neighbour, for frames from this address of ours. Asks for it if
    /// need be.
    pub fn next_hop(&mut self, hop: IpAddr, from: IpAddr, now_ns: u64) -> NextHop {
        let is_ours = |own: &Own| own.ip == from && matches!(own.state, OwnState::Ours { .. });
        if !self.own.iter().any(is_ours) || self.own.iter().any(|own| own.ip == hop) {
            return NextHop::None;
        }
        let Some(entry) = self.known.get_mut(&hop) else {
            return self.begin(hop, from, now_ns);
        };
        match entry.state {
            State::Asking { .. } => NextHop::Asked,
            State::GivenUp { until_ns } if now_ns < until_ns => NextHop::None,
            State::GivenUp { .. } => self.begin(hop, from, now_ns),
            State::Fresh { mac, since_ns } if now_ns < since_ns + FRESH_NS => NextHop::Mac(mac),
            State::Fresh { mac, .. } | State::Stale { mac, .. } => {
                let at_ns = now_ns + CHECK_WAIT_NS;
                *entry = Entry { asker: from, state: State::Checking { mac, asked: 1, at_ns } };
                self.ask(hop, from, Some(mac));
                NextHop::Mac(mac)
            }
            State::Checking { mac, .. } => NextHop::Mac(mac),
        }
    }

    /// What has become of a neighbour that has been asked for.
    pub fn outcome(&self, hop: IpAddr) -> NextHop {
        match self.known.get(&hop).map(|entry| (entry.state, entry.state.mac())) {
            Some((_, Some(mac))) => NextHop::Mac(mac),
            Some((State::Asking { .. }, None)) => NextHop::Asked,
            _ => NextHop::None,
        }
    }

    /// Starts to ask for a neighbour.
    fn begin(&mut self, hop: IpAddr, asker: IpAddr, now_ns: u64) -> NextHop {
        if !self.known.contains_key(&hop) && self.known.len() >= REMEMBERED && !self.forget_one() {
            return NextHop::None;
        }
        let state = State::Asking { asked: 1, at_ns: now_ns + FIRST_WAIT_NS };
        self.known.insert(hop, Entry { asker, state });
        self.ask(hop, asker, None);
        NextHop::Asked
    }

    /// Makes room for another neighbour, unless all are being asked for.
    fn forget_one(&mut self) -> bool {
        let worth = |state: State| match state {
            State::GivenUp { .. } => 0,
            State::Stale { .. } => 1,
            State::Fresh { .. } => 2,
            State::Checking { .. } => 3,
            State::Asking { .. } => 4,
        };
        let rank = |entry: &Entry| (worth(entry.state), entry.state.deadline_ns());
        let least = self.known.iter().min_by_key(|(_, entry)| rank(entry));
        let Some((ip, entry)) = least.map(|(ip, entry)| (*ip, *entry)) else { return false };
        if matches!(entry.state, State::Asking { .. }) {
            return false;
        }
        self.known.remove(&ip);
        self.has_changed = true;
        true
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        for index in 0..self.own.len() {
            self.step_own(index, now_ns);
        }
        let is_due = |entry: &Entry| entry.state.deadline_ns() <= now_ns;
        let due: Vec<IpAddr> =
            self.known.iter().filter(|(_, entry)| is_due(entry)).map(|(ip, _)| *ip).collect();
        for ip in due {
            if let Some(entry) = self.known.remove(&ip)
                && let Some(state) = self.step(ip, entry, now_ns)
            {
                self.known.insert(ip, Entry { state, ..entry });
            }
        }
    }

    /// What a neighbour is after its time has come; none if it is forgotten.
    fn step(&mut self, ip: IpAddr, entry: Entry, now_ns: u64) -> Option<State> {
        match entry.state {
            State::Asking { asked, .. } if asked < QUESTIONS => {
                self.ask(ip, entry.asker, None);
                let at_ns = now_ns + (FIRST_WAIT_NS << asked);
                Some(State::Asking { asked: asked + 1, at_ns })
            }
            State::Checking { mac, asked, .. } if asked < CHECKS => {
                self.ask(ip, entry.asker, Some(mac));
                Some(State::Checking { mac, asked: asked + 1, at_ns: now_ns + CHECK_WAIT_NS })
            }
            State::Asking { .. } => {
                self.has_changed = true;
                Some(State::GivenUp { until_ns: now_ns + GIVEN_UP_NS })
            }
            State::Fresh { mac, .. } => {
                // Whoever uses it asks for it again, and so has it looked for.
                self.has_changed = true;
                Some(State::Stale { mac, since_ns: now_ns })
            }
            State::Checking { .. } | State::Stale { .. } => {
                self.has_changed = true;
                None
            }
            State::GivenUp { .. } => None,
        }
    }

    fn step_own(&mut self, index: usize, now_ns: u64) {
        let Own { ip, state, .. } = self.own[index];
        let state = match state {
            OwnState::Probing { sent, at_ns } if at_ns <= now_ns && sent < PROBES => {
                self.outgoing(solicit::probe(self.mac, ip));
                OwnState::Probing { sent: sent + 1, at_ns: now_ns + PROBE_WAIT_NS }
            }
            OwnState::Probing { at_ns, .. } if at_ns <= now_ns => {
                self.outgoing(solicit::announcement(self.mac, ip));
                let at_ns = now_ns + ANNOUNCEMENT_WAIT_NS;
                OwnState::Ours { announcements: ANNOUNCEMENTS - 1, at_ns }
            }
            OwnState::Ours { announcements: left @ 1.., at_ns } if at_ns <= now_ns => {
                self.outgoing(solicit::announcement(self.mac, ip));
                OwnState::Ours { announcements: left - 1, at_ns: now_ns + ANNOUNCEMENT_WAIT_NS }
            }
            OwnState::Lost { again_ns } if again_ns <= now_ns => {
                self.outgoing(solicit::probe(self.mac, ip));
                OwnState::Probing { sent: 1, at_ns: now_ns + PROBE_WAIT_NS }
            }
            unchanged => unchanged,
        };
        self.own[index].state = state;
    }

    /// Takes a frame that has come. What is none of ARP and NDP, or damaged, is ignored.
    pub fn handle_frame(&mut self, frame: &[u8], now_ns: u64) {
        let Some(Neighbour { eth, message }) = Neighbour::parse(frame) else { return };
        // Ours, come back.
        if eth.src == self.mac || !is_station(eth.src) {
            return;
        }
        let to_us = eth.dst == self.mac;
        match message {
            NeighbourMessage::ArpRequest { sender, sender_mac, target } => {
                if !self.handle_arp(sender, sender_mac, to_us, now_ns) {
                    return;
                }
                let answer = NeighbourMessage::ArpReply {
                    sender: target,
                    sender_mac: self.mac,
                    target: sender,
                    target_mac: sender_mac,
                };
                let is_probe = sender.is_unspecified();
                self.answer(target.into(), sender_mac, sender_mac, answer, is_probe, now_ns);
            }
            NeighbourMessage::ArpReply { sender, sender_mac, .. } => {
                self.handle_arp(sender, sender_mac, to_us, now_ns);
            }
            NeighbourMessage::Solicitation { src, dst, src_mac, target } => {
                self.handle_solicitation(eth.src, src, dst, src_mac, target, now_ns);
            }
            NeighbourMessage::Advertisement {
                dst,
                target,
                target_mac,
                solicited,
                overrides,
                ..
            } => {
                if solicited && dst.is_multicast() || target.is_multicast() {
                    return;
                }
                let mac = target_mac.filter(|mac| is_station(*mac));
                if !self.conflicts_with(target.into(), mac.unwrap_or(eth.src), now_ns) {
                    let word = Word::Advertisement { solicited, overrides };
                    self.hear(target.into(), mac, word, now_ns);
                }
            }
        }
    }

    /// Takes note of an ARP packet's sender; says whether to go on.
    fn handle_arp(&mut self, sender: Ipv4Addr, mac: Mac, to_us: bool, now_ns: u64) -> bool {
        if !is_station(mac) || mac == self.mac {
            return false;
        }
        if self.conflicts_with(sender.into(), mac, now_ns) {
            return false;
        }
        self.hear(sender.into(), Some(mac), Word::Arp { to_us }, now_ns);
        true
    }

    fn handle_solicitation(
        &mut self,
        from: Mac,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        src_mac: Option<Mac>,
        target: Ipv6Addr,
        now_ns: u64,
    ) {
        let is_probe = src.is_unspecified();
        let is_sound = !target.is_multicast()
            && !src.is_multicast()
            && (dst == target || dst == solicited_node(target))
            && !(is_probe && (src_mac.is_some() || dst == target));
        if !is_sound || src_mac.is_some_and(|mac| !is_station(mac) || mac == self.mac) {
            return;
        }
        if !is_probe {
            if self.conflicts_with(src.into(), src_mac.unwrap_or(from), now_ns) {
                return;
            }
            if src_mac.is_some() {
                self.hear(src.into(), src_mac, Word::Solicitation, now_ns);
            }
        }
        let (to, dst) = match is_probe {
            true => (None, ALL_NODES),
            false => (Some(src_mac.unwrap_or(from)), src),
        };
        let answer = NeighbourMessage::Advertisement {
            src: target,
            dst,
            target,
            target_mac: Some(self.mac),
            router: false,
            solicited: !is_probe,
            overrides: true,
        };
        let to = to.unwrap_or_else(|| group_mac(ALL_NODES));
        self.answer(target.into(), from, to, answer, is_probe, now_ns);
    }

    /// Answers a question for an address, if it is ours. `asker` has asked; its being about to take
    /// the address while we are is a conflict.
    fn answer(
        &mut self,
        ip: IpAddr,
        asker: Mac,
        to: Mac,
        message: NeighbourMessage,
        is_probe: bool,
        now_ns: u64,
    ) {
        let Some(own) = self.own.iter().find(|own| own.ip == ip) else { return };
        match own.state {
            OwnState::Probing { .. } if is_probe => {
                self.conflicts_with(ip, asker, now_ns);
            }
            OwnState::Ours { .. } => {
                self.answered_ns = self.answered_ns.max(now_ns.saturating_sub(ANSWERS * ANSWER_NS));
                if self.answered_ns + ANSWER_NS <= now_ns {
                    self.answered_ns += ANSWER_NS;
                    self.answers += 1;
                    self.outgoing((to, message));
                }
            }
            OwnState::Probing { .. } | OwnState::Lost { .. } => {}
        }
    }

    /// Whether somebody who says that it has this address is wrong, as it is ours.
    fn conflicts_with(&mut self, ip: IpAddr, mac: Mac, now_ns: u64) -> bool {
        let Some(own) = self.own.iter_mut().find(|own| own.ip == ip) else { return false };
        if mac == self.mac {
            return true;
        }
        let is_over = |since: Option<u64>, wait| since.is_none_or(|since| since + wait <= now_ns);
        let mut is_defended = false;
        match own.state {
            OwnState::Probing { .. } | OwnState::Lost { .. } => {
                // Two that try at one time should not do so for ever.
                let apart_ns = u64::from(self.mac.0[5]) * 10 * MS;
                own.state = OwnState::Lost { again_ns: now_ns + DEFENCE_WAIT_NS + apart_ns };
            }
            OwnState::Ours { .. } if is_over(own.defended_ns, DEFENCE_WAIT_NS) => {
                own.defended_ns = Some(now_ns);
                is_defended = true;
            }
            OwnState::Ours { .. } => {}
        }
        if is_over(own.told_ns, TOLD_WAIT_NS) {
            own.told_ns = Some(now_ns);
            let is_lost = matches!(own.state, OwnState::Lost { .. });
            self.conflicts.push(Conflict { ip, mac, is_lost });
        }
        if is_defended {
            self.outgoing(solicit::announcement(self.mac, ip));
        }
        true
    }

    /// Takes note of what somebody says of a neighbour: RFC 826, reception, and RFC 4861 7.2.3 and
    /// 7.2.5. `said` is where it is; none: where we know it to be.
    fn hear(&mut self, ip: IpAddr, said: Option<Mac>, word: Word, now_ns: u64) {
        let Some(entry) = self.known.get_mut(&ip) else { return };
        let before = entry.state;
        let Some(mac) = said.or(before.mac()).filter(|mac| *mac != self.mac) else { return };
        let is_asked = matches!(before, State::Asking { .. } | State::Checking { .. });
        let is_answer = match word {
            Word::Arp { to_us } => to_us && is_asked,
            Word::Solicitation => false,
            Word::Advertisement { solicited, .. } => solicited,
        };
        let believed = if is_answer {
            State::Fresh { mac, since_ns: now_ns }
        } else {
            State::Stale { mac, since_ns: now_ns }
        };
        entry.state = match (before, word) {
            (State::Asking { .. } | State::GivenUp { .. }, _) => believed,
            (State::Fresh { mac: old, .. }, Word::Advertisement { overrides: false, .. })
                if old != mac =>
            {
                State::Stale { mac: old, since_ns: now_ns }
            }
            (_, Word::Advertisement { overrides: false, .. }) if before.mac() != Some(mac) => {
                before
            }
            (State::Fresh { mac: old, since_ns }, Word::Arp { .. })
                if old != mac && now_ns < since_ns + SETTLED_NS =>
            {
                before
            }
            _ if before.mac() == Some(mac) && !is_answer => before,
            _ => believed,
        };
        self.has_changed |= entry.state.mac() != before.mac();
    }

    /// Asks for a neighbour: all, or only the one that is thought to be it.
    fn ask(&mut self, hop: IpAddr, from: IpAddr, thought: Option<Mac>) {
        let of_family = |ip: &IpAddr| ip.is_ipv4() == hop.is_ipv4();
        let own = self.own.iter().map(|own| own.ip);
        let from = [from].into_iter().chain(own).find(of_family);
        self.outgoing(solicit::question(self.mac, hop, from, thought));
    }

    fn outgoing(&mut self, (to, message): (Mac, NeighbourMessage)) {
        if self.outgoing.len() < OUTGOING {
            let eth = Ethernet { dst: to, src: self.mac, vlan: self.vlan };
            self.outgoing.push_back(Neighbour { eth, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 3]);
    const START: u64 = SECOND;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn v4(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, last)
    }

    fn v6(last: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)
    }

    /// A table and its clock.
    struct Rig {
        table: OwnNeighbours,
        now_ns: u64,
    }

    impl Rig {
        fn new() -> Rig {
            let own = [v4(1).into(), v6(1).into()];
            Rig { table: OwnNeighbours::new(OURS, None, &own, START), now_ns: START }
        }

        /// One whose addresses are its own, with nothing more to say.
        fn settled() -> Rig {
            let mut rig = Rig::new();
            rig.pass(10 * SECOND);
            assert!(rig.table.is_settled() && rig.table.take_conflicts().is_empty());
            assert_eq!(rig.table.deadline_ns(), None);
            rig.sent();
            rig
        }

        /// Lets time pass, and does what is due meanwhile.
        fn pass(&mut self, ns: u64) {
            let end_ns = self.now_ns + ns;
            while let Some(at_ns) = self.table.deadline_ns().filter(|at_ns| *at_ns <= end_ns) {
                self.now_ns = self.now_ns.max(at_ns);
                self.table.handle_timeout(self.now_ns);
            }
            self.now_ns = end_ns;
        }

        fn sent(&mut self) -> Vec<(Mac, NeighbourMessage)> {
            std::iter::from_fn(|| self.table.transmit())
                .map(|frame| (frame.eth.dst, frame.message))
                .collect()
        }

        /// Something comes, by way of bytes.
        fn hear(&mut self, src: Mac, dst: Mac, message: NeighbourMessage) {
            let frame = Neighbour { eth: Ethernet { dst, src, vlan: None }, message };
            let mut bytes = [0; 128];
            let len = frame.emit(&mut bytes).unwrap();
            self.table.handle_frame(&bytes[..len], self.now_ns);
        }

        fn next_hop(&mut self, last: u8) -> NextHop {
            self.table.next_hop(v4(last).into(), v4(1).into(), self.now_ns)
        }

        fn next_hop_v6(&mut self, last: u16) -> NextHop {
            self.table.next_hop(v6(last).into(), v6(1).into(), self.now_ns)
        }
    }

    fn arp_request(sender: Ipv4Addr, sender_mac: Mac, target: Ipv4Addr) -> NeighbourMessage {
        NeighbourMessage::ArpRequest { sender, sender_mac, target }
    }

    fn arp_reply(last: u8, sender_mac: Mac) -> NeighbourMessage {
        let (sender, target) = (v4(last), v4(1));
        NeighbourMessage::ArpReply { sender, sender_mac, target, target_mac: OURS }
    }

    fn solicitation(src: Ipv6Addr, src_mac: Option<Mac>, target: Ipv6Addr) -> NeighbourMessage {
        let dst = solicited_node(target);
        NeighbourMessage::Solicitation { src, dst, src_mac, target }
    }

    fn advertisement(last: u16, mac: Mac, solicited: bool, overrides: bool) -> NeighbourMessage {
        let (target, dst) = (v6(last), if solicited { v6(1) } else { ALL_NODES });
        NeighbourMessage::Advertisement {
            src: target,
            dst,
            target,
            target_mac: Some(mac),
            router: false,
            solicited,
            overrides,
        }
    }

    #[test]
    fn addresses_are_probed_then_announced() {
        let mut rig = Rig::new();
        rig.pass(0);
        let probes = rig.sent();
        assert_eq!(probes[0], (Mac::BROADCAST, arp_request(Ipv4Addr::UNSPECIFIED, OURS, v4(1))));
        assert_eq!(probes[1].1, solicitation(Ipv6Addr::UNSPECIFIED, None, v6(1)));
        assert!(!rig.table.is_settled());
        // Not ours to use before it is known.
        assert_eq!(rig.next_hop(2), NextHop::None);
        rig.pass(2 * PROBE_WAIT_NS);
        assert_eq!(rig.sent().len(), 4);
        rig.pass(PROBE_WAIT_NS);
        assert!(rig.table.is_settled());
        let announced = [arp_request(v4(1), OURS, v4(1)), advertisement(1, OURS, false, true)];
        let said: Vec<_> = rig.sent().into_iter().map(|(_, message)| message).collect();
        assert_eq!(said, announced);
        rig.pass(60 * SECOND);
        assert_eq!(rig.sent().len(), 2, "once more, and no more");
    }

    #[test]
    fn questions_for_own_addresses_are_answered() {
        let mut rig = Rig::settled();
        rig.hear(THEIRS, Mac::BROADCAST, arp_request(v4(2), THEIRS, v4(1)));
        rig.hear(THEIRS, Mac::BROADCAST, arp_request(v4(2), THEIRS, v4(9)));
        let reply = NeighbourMessage::ArpReply {
            sender: v4(1),
            sender_mac: OURS,
            target: v4(2),
            target_mac: THEIRS,
        };
        assert_eq!(rig.sent(), [(THEIRS, reply)]);
        rig.hear(
            THEIRS,
            group_mac(solicited_node(v6(1))),
            solicitation(v6(2), Some(THEIRS), v6(1)),
        );
        let NeighbourMessage::Advertisement { dst, target_mac, solicited, overrides, .. } =
            rig.sent()[0].1
        else {
            panic!()
        };
        assert_eq!((dst, target_mac, solicited, overrides), (v6(2), Some(OURS), true, true));
        // A host about to take our address is told, with all others, that it is ours.
        let probe = solicitation(Ipv6Addr::UNSPECIFIED, None, v6(1));
        rig.hear(THEIRS, group_mac(solicited_node(v6(1))), probe);
        let sent = rig.sent();
        assert_eq!(sent[0].0, group_mac(ALL_NODES));
        assert_eq!(sent[0].1, advertisement(1, OURS, false, true));
        assert_eq!(rig.table.answers(), 3);
        assert!(rig.table.take_conflicts().is_empty());
    }

    #[test]
    fn answers_are_bounded() {
        let mut rig = Rig::settled();
        let flood = |rig: &mut Rig| {
            let mut answers = 0;
            for _ in 0..1000 {
                rig.hear(THEIRS, Mac::BROADCAST, arp_request(v4(2), THEIRS, v4(1)));
                answers += rig.sent().len() as u64;
            }
            answers
        };
        assert_eq!(flood(&mut rig), ANSWERS);
        rig.pass(10 * ANSWER_NS);
        assert_eq!(flood(&mut rig), 10);
    }

    #[test]
    fn a_neighbour_is_asked_for_and_found() {
        let mut rig = Rig::settled();
        assert_eq!(rig.next_hop(2), NextHop::Asked);
        assert_eq!(rig.next_hop(2), NextHop::Asked);
        assert_eq!(rig.sent(), [(Mac::BROADCAST, arp_request(v4(1), OURS, v4(2)))]);
        rig.hear(THEIRS, OURS, arp_reply(2, THEIRS));
        assert!(rig.table.take_change());
        assert_eq!(rig.table.outcome(v4(2).into()), NextHop::Mac(THEIRS));
        assert_eq!(rig.next_hop_v6(2), NextHop::Asked);
        let (to, question) = rig.sent()[0];
        assert_eq!(to, group_mac(solicited_node(v6(2))));
        assert_eq!(question, solicitation(v6(1), Some(OURS), v6(2)));
        rig.hear(THEIRS, OURS, advertisement(2, THEIRS, true, true));
        assert_eq!(rig.next_hop_v6(2), NextHop::Mac(THEIRS));
        // Ourselves are no neighbour; nor is anybody one of an address that is not ours.
        assert_eq!(rig.next_hop(1), NextHop::None);
        assert_eq!(rig.table.next_hop(ip("192.0.2.2"), ip("192.0.2.7"), START), NextHop::None);
    }

    #[test]
    fn a_question_is_repeated_ever_more_seldom_then_given_up() {
        let mut rig = Rig::settled();
        assert_eq!(rig.next_hop(2), NextHop::Asked);
        let mut asked = vec![rig.now_ns];
        rig.sent();
        while rig.table.outcome(v4(2).into()) == NextHop::Asked {
            let at_ns = rig.table.deadline_ns().unwrap();
            rig.pass(at_ns - rig.now_ns);
            asked.extend(rig.sent().iter().map(|_| at_ns));
        }
        let waits: Vec<u64> = asked.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect();
        assert_eq!(waits, [250, 500, 1000]);
        assert!(rig.table.take_change());
        // Not again at once.
        assert_eq!(rig.next_hop(2), NextHop::None);
        rig.pass(GIVEN_UP_NS);
        assert_eq!(rig.next_hop(2), NextHop::Asked);
        rig.pass(60 * SECOND);
        assert!(rig.table.known.is_empty(), "forgotten");
        // Who asks for us is there after all.
        assert_eq!(rig.next_hop(3), NextHop::Asked);
        rig.pass(4 * SECOND);
        assert_eq!(rig.next_hop(3), NextHop::None);
        rig.hear(OTHER, Mac::BROADCAST, arp_request(v4(3), OTHER, v4(1)));
        assert_eq!(rig.next_hop(3), NextHop::Mac(OTHER));
    }

    #[test]
    fn a_neighbour_in_use_is_checked_and_forgotten_if_it_is_silent() {
        let mut rig = Rig::settled();
        rig.next_hop(2);
        rig.hear(THEIRS, OURS, arp_reply(2, THEIRS));
        rig.sent();
        rig.table.take_change();
        rig.pass(FRESH_NS);
        // The link has to ask again, and so tells that it is in use.
        assert!(rig.table.take_change());
        assert_eq!(rig.next_hop(2), NextHop::Mac(THEIRS));
        assert_eq!(rig.sent(), [(THEIRS, arp_request(v4(1), OURS, v4(2)))]);
        rig.hear(THEIRS, OURS, arp_reply(2, THEIRS));
        assert!(!rig.table.take_change());
        rig.pass(FRESH_NS);
        assert_eq!(rig.next_hop(2), NextHop::Mac(THEIRS));
        rig.pass(u64::from(CHECKS) * CHECK_WAIT_NS);
        assert_eq!(rig.sent().len() as u32, CHECKS);
        assert!(rig.table.take_change());
        assert_eq!(rig.next_hop(2), NextHop::Asked);
        // One not in use is not asked for, and forgotten later.
        rig.hear(THEIRS, OURS, arp_reply(2, THEIRS));
        rig.sent();
        rig.pass(FRESH_NS + UNUSED_NS);
        assert!(rig.sent().is_empty() && rig.table.known.is_empty());
    }

    #[test]
    fn neighbours_are_bounded_and_nobody_else_adds_any() {
        let mut rig = Rig::settled();
        for number in 0..5000u16 {
            let [high, low] = number.to_be_bytes();
            let sender = Ipv4Addr::new(10, 0, high, low);
            rig.hear(THEIRS, Mac::BROADCAST, arp_request(sender, THEIRS, v4(1)));
        }
        assert!(rig.table.known.is_empty());
        let hop = |number: usize| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number as u32));
        for number in 0..REMEMBERED {
            let asked = rig.table.next_hop(hop(number), v4(1).into(), rig.now_ns);
            assert_eq!(asked, NextHop::Asked);
        }
        // All are being asked for.
        let refused = rig.table.next_hop(hop(REMEMBERED), v4(1).into(), rig.now_ns);
        assert_eq!(refused, NextHop::None);
        assert!(rig.sent().len() <= OUTGOING);
        rig.pass(4 * SECOND);
        let asked = rig.table.next_hop(hop(REMEMBERED), v4(1).into(), rig.now_ns);
        assert_eq!(asked, NextHop::Asked);
        assert!(rig.table.known.len() <= REMEMBERED);
    }

    #[test]
    fn arp_replaces_what_was_said_some_time_before() {
        let mut rig = Rig::settled();
        rig.next_hop(2);
        rig.hear(THEIRS, OURS, arp_reply(2, THEIRS));
        rig.hear(OTHER, OURS, arp_reply(2, OTHER));
        assert_eq!(rig.next_hop(2), NextHop::Mac(THEIRS), "the first answer counts");
        rig.pass(SETTLED_NS);
        rig.sent();
        rig.hear(OTHER, Mac::BROADCAST, arp_request(v4(2), OTHER, v4(2)));
        assert!(rig.table.take_change());
        assert_eq!(rig.next_hop(2), NextHop::Mac(OTHER));
        // But it has to prove that it is there.
        assert_eq!(rig.sent(), [(OTHER, arp_request(v4(1), OURS, v4(2)))]);
    }

    #[test]
    fn an_advertisement_that_does_not_override_does_not() {
        let mut rig = Rig::settled();
        rig.next_hop_v6(2);
        rig.hear(THEIRS, OURS, advertisement(2, THEIRS, true, true));
        rig.hear(OTHER, OURS, advertisement(2, OTHER, true, false));
        rig.sent();
        assert_eq!(rig.next_hop_v6(2), NextHop::Mac(THEIRS));
        // It was doubted, though (RFC 4861 7.2.5).
        assert_eq!(rig.sent()[0].0, THEIRS);
        rig.hear(OTHER, group_mac(ALL_NODES), advertisement(2, OTHER, false, true));
        assert_eq!(rig.next_hop_v6(2), NextHop::Mac(OTHER));
    }

    #[test]
    fn what_no_host_can_be_is_not_believed() {
        let mut rig = Rig::settled();
        rig.next_hop(2);
        rig.next_hop_v6(2);
        for mac in [Mac::BROADCAST, Mac::default(), Mac([1, 0, 0x5e, 0, 0, 1]), OURS] {
            rig.hear(THEIRS, OURS, arp_reply(2, mac));
            rig.hear(THEIRS, OURS, advertisement(2, mac, true, true));
            rig.hear(mac, OURS, arp_reply(2, THEIRS));
        }
        assert_eq!(rig.next_hop(2), NextHop::Asked);
        assert_eq!(rig.next_hop_v6(2), NextHop::Asked);
        rig.sent();
        // Solicitations that RFC 4861 7.1.1 forbids.
        let group = group_mac(solicited_node(v6(1)));
        let odd = solicitation(Ipv6Addr::UNSPECIFIED, Some(THEIRS), v6(1));
        rig.hear(THEIRS, group, odd);
        rig.hear(THEIRS, group, solicitation(ALL_NODES, Some(THEIRS), v6(1)));
        assert!(rig.sent().is_empty());
    }

    #[test]
    fn an_address_that_somebody_has_is_left_to_them_and_tried_again() {
        let mut rig = Rig::new();
        rig.pass(0);
        rig.sent();
        rig.hear(THEIRS, OURS, arp_reply(1, THEIRS));
        rig.hear(OTHER, group_mac(ALL_NODES), advertisement(1, OTHER, false, true));
        rig.pass(SECOND);
        let conflicts = [
            Conflict { ip: v4(1).into(), mac: THEIRS, is_lost: true },
            Conflict { ip: v6(1).into(), mac: OTHER, is_lost: true },
        ];
        assert_eq!(rig.table.take_conflicts(), conflicts);
        assert!(rig.table.is_settled());
        rig.hear(THEIRS, Mac::BROADCAST, arp_request(v4(2), THEIRS, v4(1)));
        assert!(rig.sent().is_empty(), "neither announced nor answered for");
        assert_eq!(rig.next_hop(2), NextHop::None);
        rig.pass(2 * DEFENCE_WAIT_NS);
        assert!(rig.table.take_conflicts().is_empty());
        assert_eq!(rig.next_hop(2), NextHop::Asked, "its owner is gone");
    }

    #[test]
    fn two_that_try_one_address_at_a_time_are_in_conflict() {
        let mut rig = Rig::new();
        rig.pass(0);
        let probe = arp_request(Ipv4Addr::UNSPECIFIED, THEIRS, v4(1));
        rig.hear(THEIRS, Mac::BROADCAST, probe);
        assert_eq!(rig.table.take_conflicts().len(), 1);
        // Our own, come back, is none.
        rig.hear(OURS, Mac::BROADCAST, arp_request(Ipv4Addr::UNSPECIFIED, OURS, v4(1)));
        assert!(rig.table.take_conflicts().is_empty());
    }

    #[test]
    fn an_address_of_ours_is_defended_now_and_then() {
        let mut rig = Rig::settled();
        for _ in 0..100 {
            rig.hear(THEIRS, Mac::BROADCAST, arp_request(v4(1), THEIRS, v4(2)));
        }
        assert_eq!(rig.sent(), [(Mac::BROADCAST, arp_request(v4(1), OURS, v4(1)))]);
        let conflict = Conflict { ip: v4(1).into(), mac: THEIRS, is_lost: false };
        assert_eq!(rig.table.take_conflicts(), [conflict]);
        assert_eq!(rig.next_hop(2), NextHop::Asked, "it stays ours");
        rig.sent();
        rig.pass(DEFENCE_WAIT_NS);
        rig.sent();
        rig.hear(THEIRS, Mac::BROADCAST, arp_request(v4(1), THEIRS, v4(2)));
        assert_eq!(rig.sent().len(), 1);
        assert!(rig.table.take_conflicts().is_empty(), "told not so long ago");
    }

    #[test]
    fn frames_have_the_tag_of_their_vlan() {
        let tag = Some(Vlan { pcp: 3, dei: false, vid: 7 });
        let mut table = OwnNeighbours::new(OURS, tag, &[v4(1).into()], START);
        table.handle_timeout(START);
        assert_eq!(table.transmit().unwrap().eth.vlan, tag);
    }
}
