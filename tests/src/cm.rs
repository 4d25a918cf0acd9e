//! Connection management of two sides on a virtual clock, and what lies between them.

use std::collections::VecDeque;

use ferroce_stack::gid::Gid;
use ferroce_stack::mad::message::{DATA_LEN, Data, MAD_LEN, Message};
use ferroce_stack::mad::{
    Accept, Cm, CmConfig, CmEvent, CmEventKind, CommId, Connect, IpHeader, Path, PortSpace,
    ServiceId, SidrConnect,
};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{Mtu, QpType, Qpn};
use ferroce_stack::wire::{CmMessage, Mad};

/// A management datagram.
pub type Datagram = [u8; MAD_LEN];

/// The service asked for.
pub const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, 7471);

/// The service for datagrams.
pub const UDP_SERVICE: ServiceId = ServiceId::new(PortSpace::Udp, 7471);

/// One side's connection management, and its address.
#[derive(Debug)]
pub struct Side {
    /// The state machine.
    pub cm: Cm,
    /// Its configuration.
    pub config: CmConfig,
    /// Last byte of its IP address.
    pub host: u8,
}

/// The GID of a host.
pub fn gid(host: u8) -> Gid {
    Gid::from_ip([10, 0, 0, host].into())
}

/// The path from one host to another.
pub fn path(from: u8, to: u8) -> Path {
    Path { sgid: gid(from), dgid: gid(to), flow_label: 0x12345, hop_limit: 64, ..Path::default() }
}

/// The configuration of a host.
pub fn config(host: u8) -> CmConfig {
    let first = u32::from(host) << 24;
    CmConfig {
        ids: first..first + 0x100_0000,
        ca_guid: 0xfe00_0000_0000_0000 | u64::from(host),
        ..CmConfig::default()
    }
}

/// A request of host 1 to host 2.
pub fn connect(private_data: &[u8]) -> Connect<'_> {
    Connect {
        cookie: 11,
        service: SERVICE,
        path: path(1, 2),
        pkey: 0xffff,
        qp_type: QpType::Rc,
        qpn: Qpn(0x101),
        psn: 0x111111,
        qkey: 0,
        responder_resources: 4,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry_count: 7,
        flow_control: true,
        srq: false,
        mtu: Mtu::Mtu1024,
        ack_timeout: None,
        refused_retries: 0,
        ip: Some(ip()),
        private_data,
    }
}

/// The header of a request of host 1 to host 2.
pub fn ip() -> IpHeader {
    IpHeader { source: gid(1).to_ip(), source_port: 40000, destination: gid(2).to_ip() }
}

/// Consent of host 2.
pub fn accept(private_data: &[u8]) -> Accept<'_> {
    Accept {
        qpn: Qpn(0x202),
        psn: 0x222222,
        qkey: 0,
        responder_resources: 5,
        initiator_depth: 4,
        rnr_retry_count: 3,
        flow_control: true,
        srq: true,
        private_data,
    }
}

/// A request of host 1 for the UD QP of host 2.
pub fn resolve(private_data: &[u8]) -> SidrConnect<'_> {
    SidrConnect {
        cookie: 11,
        service: UDP_SERVICE,
        path: path(1, 2),
        pkey: 0xffff,
        refused_retries: 0,
        ip: Some(ip()),
        private_data,
    }
}

/// The kind of message in a datagram.
///
/// # Panics
///
/// If it is none.
pub fn kind(mad: &Datagram) -> CmMessage {
    Mad::parse(mad).cm_message().expect("a message")
}

/// The fixed fields of the message in a datagram.
///
/// # Panics
///
/// If it is of another kind.
pub fn read<M: Message>(mad: &Datagram) -> M {
    assert_eq!(kind(mad), M::KIND);
    M::parse(data(mad))
}

/// The datagram with the fixed fields of this message in place of its own.
pub fn patched<M: Message>(mad: &Datagram, message: &M) -> Datagram {
    let mut data = *data(mad);
    message.emit(&mut data);
    let mut out = *mad;
    out[Mad::LEN..].copy_from_slice(&data);
    out
}

/// What is behind a datagram's header.
pub fn data(mad: &Datagram) -> &Data {
    let data: &[u8; DATA_LEN] = mad.last_chunk().expect("longer than that");
    data
}

impl Side {
    /// A host with this configuration.
    pub fn new(host: u8, config: CmConfig) -> Side {
        Side { cm: Cm::new(config.clone()), config, host }
    }

    /// All it has to send.
    pub fn sent(&mut self) -> Vec<(Path, Datagram)> {
        std::iter::from_fn(|| self.cm.poll_transmit()).collect()
    }

    /// The one datagram it has to send.
    ///
    /// # Panics
    ///
    /// If there is none, or another.
    pub fn sent_one(&mut self) -> Datagram {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "{:?}", kinds(&sent));
        sent[0].1
    }

    /// All it has to tell.
    pub fn events(&mut self) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.cm.poll_event()).collect()
    }

    /// The one event it has to tell.
    ///
    /// # Panics
    ///
    /// If there is none, or another.
    pub fn event(&mut self) -> CmEvent {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Hands it a datagram of another host.
    pub fn hear(&mut self, now: Instant, from: u8, mad: &[u8]) {
        self.cm.handle_mad(now, &path(self.host, from), mad);
    }
}

/// The kinds of datagrams.
pub fn kinds(sent: &[(Path, Datagram)]) -> Vec<&'static str> {
    sent.iter().map(|(_, mad)| kind(mad).name()).collect()
}

/// Host 1, which asks, and host 2, which is asked and listens.
#[derive(Debug)]
pub struct Pair {
    /// Host 1.
    pub active: Side,
    /// Host 2.
    pub passive: Side,
    /// The time.
    pub now: Instant,
}

impl Default for Pair {
    fn default() -> Pair {
        let mut passive = Side::new(2, config(2));
        passive.cm.listen(SERVICE, None, 8, 22).expect("nobody else listens");
        passive.cm.listen(UDP_SERVICE, None, 8, 33).expect("nobody else listens");
        Pair { active: Side::new(1, config(1)), passive, now: Instant::ZERO }
    }
}

impl Pair {
    /// Carries datagrams until nobody has one.
    pub fn exchange(&mut self) {
        let mut under_way = VecDeque::new();
        loop {
            under_way.extend(self.active.sent().into_iter().map(|(_, mad)| (2, mad)));
            under_way.extend(self.passive.sent().into_iter().map(|(_, mad)| (1, mad)));
            match under_way.pop_front() {
                Some((1, mad)) => self.active.hear(self.now, 2, &mad),
                Some((_, mad)) => self.passive.hear(self.now, 1, &mad),
                None => return,
            }
        }
    }

    /// Host 1 asks host 2 for a connection: its ID, and the request, which host 2 has not heard.
    ///
    /// # Panics
    ///
    /// If it cannot ask.
    pub fn request(&mut self) -> (CommId, Datagram) {
        let id = self.active.cm.connect(self.now, &connect(b"hello")).expect("there is room");
        (id, self.active.sent_one())
    }

    /// Both sides' IDs of an established connection.
    ///
    /// # Panics
    ///
    /// If it is not established.
    pub fn establish(&mut self) -> (CommId, CommId) {
        let active = self.active.cm.connect(self.now, &connect(b"hello")).expect("there is room");
        self.exchange();
        let event = self.passive.event();
        assert!(matches!(event.kind, CmEventKind::Request(_)), "{event:?}");
        let passive = event.id;
        self.passive.cm.set_cookie(passive, 44);
        self.passive.cm.accept(self.now, passive, &accept(b"welcome")).expect("it is a request");
        self.exchange();
        let event = self.active.event();
        assert!(matches!(event.kind, CmEventKind::Reply(_)), "{event:?}");
        self.active.cm.confirm(active, b"thanks").expect("it is a reply");
        self.exchange();
        let event = self.passive.event();
        assert!(matches!(event.kind, CmEventKind::Established { .. }), "{event:?}");
        (active, passive)
    }

    /// Lets time pass to the next moment somebody waits for; whether there is one.
    pub fn wait(&mut self) -> bool {
        let next = [self.active.cm.poll_timeout(), self.passive.cm.poll_timeout()];
        let Some(next) = next.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        self.active.cm.handle_timeout(self.now);
        self.passive.cm.handle_timeout(self.now);
        true
    }
}
