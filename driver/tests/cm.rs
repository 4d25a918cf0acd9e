//! Connection management between engines: on one host and on several, with losses, and with peers
//! that end or are killed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ferroce::engine::{BoundPort, CmSink, Engine, Options, PortClaim, PortError};
use ferroce::fabric::observe;
use ferroce_stack::gid::Gid;
use ferroce_stack::mad::{
    Accept, CmEvent, CmEventKind, CommId, Connect, IpHeader, Path, PortSpace, RejReason, Reply,
    Request, ServiceId, SidrAccept, SidrConnect,
};
use ferroce_stack::verbs::{Mtu, QpType, Qpn, VerbsError};
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType};

const PORT: u16 = 7471;
const SERVICE: ServiceId = ServiceId::new(PortSpace::Tcp, PORT);

/// The cookie of listeners.
const LISTENER: u64 = 1;
/// The cookie of connections.
const CONNECTION: u64 = 2;

/// In a child: the fabric, and its address.
const DIR: &str = "FERROCE_TEST_CM_DIR";
const ADDRESS: &str = "FERROCE_TEST_CM_ADDRESS";

/// Events, in order.
#[derive(Debug, Default)]
struct Inbox {
    events: Mutex<VecDeque<CmEvent>>,
    arrived: Condvar,
}

impl CmSink for Inbox {
    fn deliver(&self, event: CmEvent) {
        self.events.lock().unwrap().push_back(event);
        self.arrived.notify_one();
    }
}

struct Fabric(PathBuf);

impl Fabric {
    fn new(name: &str) -> Fabric {
        Fabric(PathBuf::from(format!("/dev/shm/ferroce-cm-{name}-{}", std::process::id())))
    }

    fn node(&self, address: &str) -> Node {
        Node::open(&self.0, address, &[])
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Node {
    engine: Engine,
    inbox: Arc<Inbox>,
    address: IpAddr,
}

impl Node {
    fn open(fabric: &FilePath, address: &str, faults: &[&str]) -> Node {
        let address: IpAddr = address.parse().unwrap();
        let gid = Gid::from_ip(address);
        let mac = Mac([2, 0, 0, 0, 0, gid.0[15]]);
        let faults: Vec<_> = faults.iter().map(|rule| rule.parse().unwrap()).collect();
        let gids = [GidEntry { gid, gid_type: GidType::RoceV2, mac, vlan: None }];
        let options =
            Options { active_mtu: Mtu::Mtu1024, faults: &faults, ..Options::plain(fabric, &gids) };
        let engine = Engine::open(&options).unwrap();
        let inbox = Arc::new(Inbox::default());
        engine.start_cm(inbox.clone()).unwrap();
        Node { engine, inbox, address }
    }

    fn bind(&self, port: u16) -> Result<BoundPort, PortError> {
        let claim = PortClaim { space: PortSpace::Tcp, address: None, port, reuse: false };
        self.engine.bind_port(&claim)
    }

    fn listen(&self) -> BoundPort {
        let port = self.bind(PORT).unwrap();
        self.engine.listen_port(&port).unwrap();
        self.engine.cm().unwrap().listen(SERVICE, None, 64, LISTENER).unwrap();
        port
    }

    fn path_to(&self, peer: IpAddr) -> Path {
        let (sgid, dgid) = (Gid::from_ip(self.address), Gid::from_ip(peer));
        Path { sgid, dgid, traffic_class: 0x20, hop_limit: 64, ..Path::default() }
    }

    fn header_to(&self, peer: IpAddr) -> Option<IpHeader> {
        Some(IpHeader { source: self.address, source_port: 40_000, destination: peer })
    }

    fn connect(&self, peer: IpAddr, private_data: &[u8]) -> CommId {
        self.connect_qp(Qpn(0x11), peer, private_data)
    }

    fn connect_qp(&self, qpn: Qpn, peer: IpAddr, private_data: &[u8]) -> CommId {
        let mut cm = self.engine.cm().unwrap();
        let connect = Connect {
            cookie: CONNECTION,
            service: SERVICE,
            path: self.path_to(peer),
            pkey: 0xffff,
            qp_type: QpType::Rc,
            qpn,
            psn: 5,
            qkey: 0,
            responder_resources: 3,
            initiator_depth: 2,
            retry_count: 7,
            rnr_retry_count: 6,
            flow_control: true,
            srq: false,
            mtu: Mtu::Mtu1024,
            ack_timeout: None,
            refused_retries: 0,
            ip: self.header_to(peer),
            private_data,
        };
        let now = cm.now();
        cm.connect(now, &connect).unwrap()
    }

    fn accept(&self, id: CommId, private_data: &[u8]) {
        self.accept_qp(Qpn(0x22), id, private_data);
    }

    fn accept_qp(&self, qpn: Qpn, id: CommId, private_data: &[u8]) {
        let mut cm = self.engine.cm().unwrap();
        cm.set_cookie(id, CONNECTION);
        let accept = Accept {
            qpn,
            psn: 6,
            qkey: 0,
            responder_resources: 2,
            initiator_depth: 3,
            rnr_retry_count: 7,
            flow_control: true,
            srq: false,
            private_data,
        };
        let now = cm.now();
        cm.accept(now, id, &accept).unwrap();
    }

    fn confirm(&self, id: CommId) {
        let mut cm = self.engine.cm().unwrap();
        cm.confirm(id, b"confirmed").unwrap();
    }

    fn disconnect(&self, id: CommId) {
        let mut cm = self.engine.cm().unwrap();
        let now = cm.now();
        cm.disconnect(now, id, b"done").unwrap();
    }

    /// The next event; waits for it as long as nothing but a fault can take.
    fn event(&self) -> CmEvent {
        let events = self.inbox.events.lock().unwrap();
        let is_empty = |events: &mut VecDeque<CmEvent>| events.is_empty();
        let patience = Duration::from_secs(120);
        let waited = self.inbox.arrived.wait_timeout_while(events, patience, is_empty);
        waited.unwrap().0.pop_front().expect("no event came")
    }

    fn request(&self) -> (CommId, Box<Request>) {
        let event = self.event();
        assert_eq!(event.cookie, LISTENER);
        match event.kind {
            CmEventKind::Request(request) => (event.id, request),
            other => panic!("{other:?}"),
        }
    }

    fn reply(&self) -> (CommId, Box<Reply>) {
        let event = self.event();
        assert_eq!(event.cookie, CONNECTION);
        match event.kind {
            CmEventKind::Reply(reply) => (event.id, reply),
            other => panic!("{other:?}"),
        }
    }

    fn established(&self) -> CommId {
        let event = self.event();
        let is_it = matches!(event.kind, CmEventKind::Established { .. });
        assert!(is_it && event.cookie == CONNECTION, "{event:?}");
        event.id
    }

    fn disconnected(&self) -> CommId {
        let event = self.event();
        let is_it = matches!(event.kind, CmEventKind::Disconnected { .. });
        assert!(is_it && event.cookie == CONNECTION, "{event:?}");
        event.id
    }
}

/// Connects, looks at what each side is told of the other, and disconnects.
fn converse(client: &Node, server: &Node) {
    let id = client.connect(server.address, b"may I?");
    let (incoming, request) = server.request();
    assert_eq!(request.ip, client.header_to(server.address));
    assert_eq!(request.path.sgid, Gid::from_ip(server.address));
    assert_eq!(request.path.dgid, Gid::from_ip(client.address));
    assert_eq!((request.remote_qpn, request.psn), (Qpn(0x11), 5));
    assert_eq!((request.service, request.qp_type), (SERVICE, QpType::Rc));
    assert!(request.private_data.starts_with(b"may I?\0"));
    server.accept(incoming, b"you may");
    let (of, reply) = client.reply();
    assert_eq!((of, reply.remote_qpn, reply.psn), (id, Qpn(0x22), 6));
    assert!(reply.private_data.starts_with(b"you may\0"));
    client.confirm(id);
    assert_eq!(server.established(), incoming);
    client.disconnect(id);
    assert_eq!(server.disconnected(), incoming);
    assert_eq!(client.disconnected(), id);
    for (node, id) in [(client, id), (server, incoming)] {
        let event = node.event();
        assert_eq!((event.id, event.kind), (id, CmEventKind::TimewaitExit));
    }
}

#[test]
fn connection_between_hosts() {
    for (client, server) in [("10.9.0.1", "10.9.0.2"), ("fd99::1", "fd99::2")] {
        let fabric = Fabric::new("hosts");
        let (client, server) = (fabric.node(client), fabric.node(server));
        let _port = server.listen();
        converse(&client, &server);
        converse(&client, &server);
    }
}

#[test]
fn connection_between_processes_of_one_host() {
    let fabric = Fabric::new("host");
    let [other, client, server] = [(); 3].map(|()| fabric.node("10.9.0.1"));
    let _port = server.listen();
    converse(&client, &server);
    converse(&other, &server);
    assert!(server.inbox.events.lock().unwrap().is_empty());
}

#[test]
fn connection_with_oneself() {
    let fabric = Fabric::new("self");
    let node = fabric.node("10.9.0.1");
    let _port = node.listen();
    let id = node.connect(node.address, b"");
    let (incoming, _) = node.request();
    node.accept(incoming, b"");
    assert_eq!(node.reply().0, id);
    node.confirm(id);
    assert_eq!(node.established(), incoming);
    node.disconnect(incoming);
    assert_eq!([node.disconnected(), node.disconnected()].map(|of| of == incoming), [false, true]);
}

#[test]
fn ports_lead_to_who_listens_now() {
    let fabric = Fabric::new("ports");
    let [client, first, second] = [(); 3].map(|()| fabric.node("10.9.0.1"));
    let port = first.listen();
    assert_eq!(second.bind(PORT).unwrap_err(), PortError::InUse);
    let ephemeral = second.bind(0).unwrap().port();
    assert!((32_768..61_000).contains(&ephemeral));
    converse(&client, &first);
    first.engine.release_port(port);
    let _port = second.listen();
    converse(&client, &second);
}

#[test]
fn refused_where_nobody_listens() {
    let fabric = Fabric::new("refused");
    let [client, bystander, _server] =
        ["10.9.0.1", "10.9.0.2", "10.9.0.2"].map(|at| fabric.node(at));
    client.connect(bystander.address, b"");
    match client.event().kind {
        CmEventKind::Rejected { reason, .. } => assert_eq!(reason, RejReason::INVALID_SERVICE_ID),
        other => panic!("{other:?}"),
    }
    assert!(client.engine.reaches(Gid::from_ip(bystander.address)));
    assert!(!client.engine.reaches(Gid::from_ip("10.9.0.3".parse().unwrap())));
}

#[test]
fn request_given_up_is_taken_back() {
    let fabric = Fabric::new("back");
    // The server is no process of the lowest slot that has its address.
    let [client, _other, server] = [(); 3].map(|()| fabric.node("10.9.0.1"));
    let _port = server.listen();
    let id = client.connect(server.address, b"");
    let (incoming, _) = server.request();
    let mut cm = client.engine.cm().unwrap();
    let now = cm.now();
    cm.destroy(now, id);
    drop(cm);
    let event = server.event();
    let is_it = matches!(event.kind, CmEventKind::Rejected { reason: RejReason::TIMEOUT, .. });
    assert!(is_it && event.id == incoming, "{event:?}");
}

#[test]
fn datagram_service_is_resolved() {
    let fabric = Fabric::new("sidr");
    let [client, server] = ["10.9.0.1", "10.9.0.2"].map(|at| fabric.node(at));
    let _port = server.listen();
    let mut cm = client.engine.cm().unwrap();
    let sidr = SidrConnect {
        cookie: CONNECTION,
        service: SERVICE,
        path: client.path_to(server.address),
        pkey: 0xffff,
        refused_retries: 0,
        ip: client.header_to(server.address),
        private_data: b"where?",
    };
    let now = cm.now();
    let id = cm.resolve(now, &sidr).unwrap();
    drop(cm);
    let event = server.event();
    let CmEventKind::SidrRequest(request) = event.kind else { panic!("{event:?}") };
    assert!(request.private_data.starts_with(b"where?\0"));
    let mut cm = server.engine.cm().unwrap();
    let answer = SidrAccept { status: 0, qpn: Qpn(0x33), qkey: 0x1234, private_data: b"here" };
    cm.answer(event.id, &answer).unwrap();
    drop(cm);
    let event = client.event();
    let CmEventKind::SidrReply(reply) = event.kind else { panic!("{event:?}") };
    assert_eq!((event.id, reply.qpn, reply.qkey, reply.status), (id, Qpn(0x33), 0x1234, 0));
}

#[test]
fn lost_datagrams_are_sent_again() {
    let fabric = Fabric::new("lossy");
    let faults = ["drop 1st ud-send", "drop 3rd ud-send"];
    let client = Node::open(&fabric.0, "10.9.0.1", &faults);
    let server = Node::open(&fabric.0, "10.9.0.2", &faults);
    let _port = server.listen();
    converse(&client, &server);
    let reports = observe(&fabric.0).unwrap().ask(Duration::from_secs(60));
    for answer in reports {
        let report = answer.report.unwrap();
        assert_eq!(report.lost["injected"], 2, "{report:?}");
        assert!(report.counters["cm_resent"] > 0, "{report:?}");
        assert_eq!(report.counters["cm_established"], 1, "{report:?}");
    }
}

#[test]
fn thousand_connections_at_once() {
    const COUNT: u32 = 1000;
    let fabric = Fabric::new("many");
    let [client, server] = ["10.9.0.1", "10.9.0.2"].map(|at| fabric.node(at));
    let port = server.bind(PORT).unwrap();
    server.engine.listen_port(&port).unwrap();
    server.engine.cm().unwrap().listen(SERVICE, None, COUNT, LISTENER).unwrap();
    for number in 0..COUNT {
        client.connect_qp(Qpn(0x100 + number), server.address, b"");
    }
    for number in 0..COUNT {
        server.accept_qp(Qpn(0x100 + number), server.request().0, b"");
    }
    for _ in 0..COUNT {
        client.confirm(client.reply().0);
    }
    for _ in 0..COUNT {
        server.established();
    }
    // An engine that goes takes leave of all of them.
    drop(client);
    for _ in 0..COUNT {
        server.disconnected();
    }
}

#[test]
fn connection_management_has_to_be_started_and_not_twice() {
    let fabric = Fabric::new("start");
    let node = fabric.node("10.9.0.1");
    let second = Arc::new(Inbox::default());
    node.engine.start_cm(second.clone()).unwrap();
    let _port = node.listen();
    node.connect(node.address, b"");
    node.request();
    assert!(second.events.lock().unwrap().is_empty());

    let gid = Gid::from_ip("10.9.0.2".parse().unwrap());
    let gids = [GidEntry { gid, gid_type: GidType::RoceV2, mac: Mac([2; 6]), vlan: None }];
    let options = Options { active_mtu: Mtu::Mtu1024, ..Options::plain(&fabric.0, &gids) };
    let engine = Engine::open(&options).unwrap();
    assert_eq!(engine.cm().unwrap_err(), VerbsError::Invalid);
}

/// The test binary as another process that connects from an address.
fn start_client(fabric: &Fabric, address: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(DIR, &fabric.0)
        .env(ADDRESS, address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Connects and waits to be killed; nothing by itself.
#[test]
#[ignore = "is started by other tests"]
fn child() {
    let (Ok(dir), Ok(address)) = (std::env::var(DIR), std::env::var(ADDRESS)) else { return };
    let node = Node::open(FilePath::new(&dir), &address, &[]);
    node.connect("10.9.0.1".parse().unwrap(), b"");
    println!("asked");
    node.confirm(node.reply().0);
    println!("connected");
    loop {
        std::thread::park();
    }
}

/// Waits for a line of the child, and kills it.
fn kill_when(mut child: Child, line: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|found| found.contains(line)));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_peer_of_a_request_is_noticed() {
    let fabric = Fabric::new("asked");
    let server = fabric.node("10.9.0.1");
    let _port = server.listen();
    let client = start_client(&fabric, "10.9.0.2");
    let (incoming, _) = server.request();
    kill_when(client, "asked");
    let event = server.event();
    let gone = matches!(event.kind, CmEventKind::Unreachable | CmEventKind::Rejected { .. });
    assert!(gone && event.id == incoming, "{event:?}");
}

#[test]
fn killed_listener_of_a_request_is_noticed() {
    let fabric = Fabric::new("asking");
    let client = fabric.node("10.9.0.2");
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "listening_child", "--ignored", "--nocapture"])
        .env(DIR, &fabric.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening")));
    let id = client.connect("10.9.0.1".parse().unwrap(), b"");
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("asked")));
    server.kill().unwrap();
    server.wait().unwrap();
    let event = client.event();
    let gone = matches!(event.kind, CmEventKind::Unreachable | CmEventKind::Rejected { .. });
    assert!(gone && event.id == id, "{event:?}");
}

/// Listens, never answers, and waits to be killed; nothing by itself.
#[test]
#[ignore = "is started by other tests"]
fn listening_child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let node = Node::open(FilePath::new(&dir), "10.9.0.1", &[]);
    let _port = node.listen();
    println!("listening");
    node.request();
    println!("asked");
    loop {
        std::thread::park();
    }
}

#[test]
fn killed_peer_is_noticed() {
    for address in ["10.9.0.1", "10.9.0.2"] {
        let fabric = Fabric::new("killed");
        let server = fabric.node("10.9.0.1");
        let _port = server.listen();
        let client = start_client(&fabric, address);
        let (incoming, _) = server.request();
        server.accept(incoming, b"");
        assert_eq!(server.established(), incoming);
        kill_when(client, "connected");
        assert_eq!(server.disconnected(), incoming);
        let event = server.event();
        assert_eq!((event.id, event.kind), (incoming, CmEventKind::TimewaitExit));
        // Whoever comes next is somebody else.
        let next = fabric.node(address);
        converse(&next, &server);
    }
}
