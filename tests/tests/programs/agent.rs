//! The agent of a runner of scenarios, over our library: its QPs are connected to each other.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use ferroce_conform::agent::{Ask, Hello, Request, Said, VERSION};
use ferroce_conform::target::{
    Call, Completion, Event, QpAttributes, QpMake, Reply, SendOperation, SendRequest, Span,
};
use ferroce_tests::programs::{Fabric, Installed, Running, free_port};

/// `IBV_SEND_SIGNALED`, `IBV_SEND_INLINE`.
const SIGNALED: u32 = 1 << 1;
const INLINE: u32 = 1 << 3;
/// Local write, remote write, read, atomic, bind, global FLUSH.
const ACCESS: u32 = 0b1_0001_1111;

/// An agent in a fabric of its own.
struct Agent {
    running: Running,
    port: u16,
    _fabric: Fabric,
}

/// The runner's end.
struct Runner {
    stream: BufReader<TcpStream>,
    asked: u64,
    completions: VecDeque<Completion>,
    events: VecDeque<Event>,
    hello: Hello,
}

impl Agent {
    fn new() -> Agent {
        let fabric = Fabric::new();
        let port = free_port();
        let ferroce = Installed::get().ferroce.to_string_lossy().into_owned();
        let listen = format!("127.0.0.1:{port}");
        let mut command = fabric.run(&ferroce);
        let mut running = Running::start(command.args(["conform-agent", "--listen", &listen]));
        let is_ready = |running: &Running| running.out().contains("listens at");
        assert!(running.wait_for(is_ready), "{}", running.err());
        Agent { running, port, _fabric: fabric }
    }

    fn runner(&self) -> Runner {
        Runner::connect(self.port)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.running.kill();
    }
}

impl Runner {
    /// Connects, says hello, and begins a scenario whose peer is the target itself.
    fn connect(port: u16) -> Runner {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let hello =
            Hello { version: 0, name: String::new(), gid: [0; 16], mtu: 0, features: Vec::new() };
        let mut runner = Runner {
            stream: BufReader::new(stream),
            asked: 0,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            hello,
        };
        match runner.ask(Ask::Hello { version: VERSION, target: None }) {
            Said::Hello(hello) => runner.hello = hello,
            other => panic!("{other:?}"),
        }
        runner.begin();
        runner
    }

    fn begin(&mut self) {
        let peer = self.hello.gid;
        let said = self.ask(Ask::Begin { peer });
        assert!(matches!(said, Said::Reply { reply: Reply::Done, .. }), "{said:?}");
        // What is left of another scenario.
        self.completions.clear();
        self.events.clear();
    }

    /// Sends a line as it is.
    fn send(&mut self, line: &str) {
        self.stream.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// The next line.
    fn hear(&mut self) -> Said {
        let mut line = String::new();
        assert!(self.stream.read_line(&mut line).unwrap() > 0, "the agent is gone");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The answer to a question; what is told before is kept.
    fn ask(&mut self, ask: Ask) -> Said {
        self.asked += 1;
        let request = serde_json::to_string(&Request { id: self.asked, ask }).unwrap();
        self.send(&(request + "\n"));
        loop {
            match self.hear() {
                Said::Completion(completion) => self.completions.push_back(completion),
                Said::Event(event) => self.events.push_back(event),
                answer => return answer,
            }
        }
    }

    fn call(&mut self, call: Call) -> Reply {
        match self.ask(Ask::Call(call)) {
            Said::Reply { id, reply } if id == self.asked => reply,
            other => panic!("{other:?}"),
        }
    }

    fn done(&mut self, call: Call) {
        assert_eq!(self.call(call.clone()), Reply::Done, "{call:?}");
    }

    fn completion(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.completions.pop_front() {
                return completion;
            }
            match self.hear() {
                Said::Completion(completion) => return completion,
                Said::Event(event) => self.events.push_back(event),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for a completion, which it takes, or an event, which it leaves.
    fn wait_for_news(&mut self) {
        while self.completions.pop_front().is_none() && self.events.is_empty() {
            match self.hear() {
                Said::Completion(completion) => self.completions.push_back(completion),
                Said::Event(event) => self.events.push_back(event),
                other => panic!("{other:?}"),
            }
        }
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            match self.hear() {
                Said::Completion(completion) => self.completions.push_back(completion),
                Said::Event(event) => return event,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Registers 64 bytes: address and key.
    fn memory(&mut self, name: &str, holds: &[u8]) -> (u64, u32) {
        let call = Call::RegMr {
            memory: name.into(),
            pd: "pd".into(),
            length: 64,
            iova: None,
            access: ACCESS,
            holds: holds.into(),
        };
        match self.call(call) {
            Reply::Memory { address, rkey, .. } => (address, rkey),
            other => panic!("{other:?}"),
        }
    }

    fn bytes(&mut self, memory: &str, length: u64) -> Vec<u8> {
        match self.call(Call::ReadMemory { memory: memory.into(), offset: 0, length }) {
            Reply::Bytes { bytes } => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, name: &str, service: &str, srq: Option<&str>) -> u32 {
        let make = QpMake {
            qp: name.into(),
            service: service.into(),
            pd: "pd".into(),
            srq: srq.map(str::to_owned),
            send_cq: None,
            recv_cq: None,
            xrcd: (service == "xrc-receive").then(|| "xrcd".to_owned()),
            max_send_wr: 16,
            max_recv_wr: 16,
            max_inline: 32,
            signal_all: false,
            state: "RTS".into(),
            attributes: attributes(0),
        };
        match self.call(Call::CreateQp(Box::new(make))) {
            Reply::Qp { qpn } => qpn,
            other => panic!("{other:?}"),
        }
    }

    /// Brings a QP to RTS, connected to that one.
    fn bring_up(&mut self, name: &str, dest_qp_num: u32) {
        for state in ["INIT", "RTR", "RTS"] {
            let attributes = attributes(dest_qp_num);
            self.done(Call::ModifyQp { qp: name.into(), state: state.into(), attributes });
        }
    }

    /// Two connected QPs, `a` and `b`.
    fn pair(&mut self, service: &str) -> (u32, u32) {
        let (a, b) = (self.create("a", service, None), self.create("b", service, None));
        self.bring_up("a", b);
        self.bring_up("b", a);
        (a, b)
    }

    fn post(&mut self, qp: &str, op: SendOperation, sges: &[Span], flags: u32) -> Reply {
        let wr = SendRequest {
            wr_id: 7,
            op,
            sges: sges.to_vec(),
            flags: SIGNALED | flags,
            datagram: None,
            srqn: None,
        };
        self.call(Call::PostSend { qp: qp.into(), wr: Box::new(wr) })
    }

    /// Posts, and gives what has completed.
    fn carry_out(&mut self, op: SendOperation, sges: &[Span]) -> Completion {
        assert_eq!(self.post("a", op, sges, 0), Reply::Done);
        self.completion()
    }

    fn receive(&mut self, to: &str, memory: &str) {
        let sges = vec![span(memory, 64)];
        self.done(Call::PostRecv { to: to.into(), wr_id: 9, sges });
    }
}

fn attributes(dest_qp_num: u32) -> QpAttributes {
    QpAttributes {
        path_mtu: 1024,
        dest_qp_num,
        rq_psn: 5,
        sq_psn: 5,
        access: 0b1_0000_1110,
        qkey: 0x11,
        timeout: 18,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        sl: 0,
        change: Vec::new(),
    }
}

fn span(memory: &str, length: u32) -> Span {
    Span { memory: memory.into(), offset: 0, length, lkey: None }
}

fn what(completion: &Completion) -> (&str, &str, &str) {
    (&completion.qp, &completion.opcode, &completion.status)
}

#[test]
fn an_agent_carries_out_the_operations_of_rc() {
    let agent = Agent::new();
    let mut runner = agent.runner();
    runner.pair("rc");
    let (_, _) = runner.memory("here", &[1, 2, 3]);
    let (address, key) = runner.memory("there", &[]);

    for (op, opcode) in [
        (SendOperation::Write { address, key }, "write"),
        (SendOperation::AtomicWrite { address: address + 8, key, value: 0x55 }, "atomic-write"),
        (SendOperation::Flush { address, key, length: 16, placement: 1, region: false }, "flush"),
        (SendOperation::FetchAdd { address: address + 8, key, add: 1 }, "fetch-add"),
        (
            SendOperation::CompareSwap { address: address + 8, key, compare: 0x56, swap: 9 },
            "compare-swap",
        ),
        (SendOperation::Read { address, key }, "read"),
    ] {
        let sges = match opcode {
            "atomic-write" | "flush" => vec![],
            _ => vec![span("here", 8)],
        };
        let completion = runner.carry_out(op, &sges);
        assert_eq!(what(&completion), ("a", opcode, "success"));
    }
    // What was written went there and came back, though atomics have used the place meanwhile.
    assert_eq!(runner.bytes("here", 4), [1, 2, 3, 0]);
    assert_eq!(runner.bytes("there", 9), [1, 2, 3, 0, 0, 0, 0, 0, 9]);

    runner.receive("b", "there");
    assert_eq!(
        runner.post("a", SendOperation::SendImm([1, 2, 3, 4]), &[span("here", 2)], INLINE),
        Reply::Done
    );
    let mut both = [runner.completion(), runner.completion()];
    both.sort_by(|one, other| one.qp.cmp(&other.qp));
    assert_eq!(what(&both[0]), ("a", "send", "success"));
    assert_eq!(what(&both[1]), ("b", "receive", "success"));
    assert_eq!((both[1].wr_id, both[1].length, both[1].imm), (9, 2, Some([1, 2, 3, 4])));

    let wrong = SendOperation::Read { address, key: key ^ 0x100 };
    assert_eq!(what(&runner.carry_out(wrong, &[span("here", 8)])), ("a", "read", "remote-access"));
    let event = runner.event();
    assert_eq!((event.event.as_str(), event.of.as_deref()), ("qp-access-error", Some("b")));
    let reply = runner.call(Call::QueryQp { qp: "b".into() });
    assert_eq!(reply, Reply::State { state: "ERR".into() });
}

#[test]
fn an_agent_binds_and_invalidates_windows() {
    let agent = Agent::new();
    let mut runner = agent.runner();
    runner.pair("rc");
    let (address, _) = runner.memory("m", &[]);
    for mw_type in [1, 2] {
        let window = format!("w{mw_type}");
        let alloc = Call::AllocMw { window: window.clone(), pd: "pd".into(), mw_type };
        assert!(matches!(runner.call(alloc), Reply::Key { .. }));
        let bind = SendOperation::BindMw {
            window,
            memory: "m".into(),
            offset: 8,
            length: 8,
            access: 0b10,
        };
        // Of `b`, whose peer may use it then.
        let Reply::Key { rkey } = runner.post("b", bind, &[], 0) else { panic!() };
        assert_eq!(what(&runner.completion()), ("b", "bind", "success"));
        let write = SendOperation::Write { address: address + 8, key: rkey };
        assert_eq!(what(&runner.carry_out(write, &[span("m", 8)])), ("a", "write", "success"));
        if mw_type == 2 {
            runner.receive("b", "m");
            assert_eq!(runner.post("a", SendOperation::SendInv(rkey), &[], 0), Reply::Done);
            let all = [runner.completion(), runner.completion()];
            assert!(all.iter().any(|one| one.invalidated == Some(rkey)), "{all:?}");
        }
    }
}

#[test]
fn an_agent_has_srqs_xrc_and_datagrams() {
    let agent = Agent::new();
    let mut runner = agent.runner();
    runner.memory("m", &[]);
    let srq = |name: &str, xrcd: Option<&str>| Call::CreateSrq {
        srq: name.into(),
        pd: "pd".into(),
        max_wr: 4,
        xrcd: xrcd.map(str::to_owned),
        cq: None,
    };
    assert!(matches!(runner.call(srq("s", None)), Reply::Srq { srqn: None, size: 4.. }));
    runner.receive("s", "m");
    runner.receive("s", "m");
    runner.done(Call::ArmSrq { srq: "s".into(), limit: 2 });
    let (a, b) = (runner.create("a", "rc", None), runner.create("b", "rc", Some("s")));
    runner.bring_up("a", b);
    runner.bring_up("b", a);
    assert_eq!(runner.carry_out(SendOperation::Send, &[span("m", 4)]).status, "success");
    let event = runner.event();
    assert_eq!((event.event.as_str(), event.of.as_deref()), ("srq-limit-reached", Some("s")));

    runner.begin();
    runner.memory("m", &[]);
    let Reply::Srq { srqn: Some(srqn), .. } = runner.call(srq("x", Some("xrcd"))) else { panic!() };
    runner.receive("x", "m");
    let (a, b) = (runner.create("a", "xrc-send", None), runner.create("b", "xrc-receive", None));
    runner.bring_up("a", b);
    runner.bring_up("b", a);
    let mut wr = SendRequest {
        wr_id: 7,
        op: SendOperation::Send,
        sges: vec![span("m", 4)],
        flags: SIGNALED,
        datagram: None,
        srqn: Some(srqn),
    };
    runner.done(Call::PostSend { qp: "a".into(), wr: Box::new(wr.clone()) });
    let all = [runner.completion(), runner.completion()];
    assert!(all.iter().any(|one| what(one) == ("b", "receive", "success")), "{all:?}");

    runner.begin();
    runner.memory("m", &[]);
    let (a, b) = (runner.create("a", "ud", None), runner.create("b", "ud", None));
    runner.bring_up("a", 0);
    runner.bring_up("b", 0);
    runner.receive("b", "m");
    (wr.srqn, wr.datagram) = (None, Some((b, 0x11)));
    runner.done(Call::PostSend { qp: "a".into(), wr: Box::new(wr) });
    let all = [runner.completion(), runner.completion()];
    let received = all.iter().find(|one| one.qp == "b").unwrap();
    assert_eq!((received.length, received.source_qp), (44, Some(a)));
}

#[test]
fn an_agent_leaves_completions_where_they_are_and_tells_of_an_overrun() {
    let agent = Agent::new();
    let mut runner = agent.runner();
    runner.memory("m", &[]);
    let create = Call::CreateCq { cq: "c".into(), cqe: 4, unpolled: true };
    let Reply::Size { size } = runner.call(create) else { panic!() };
    let make = |qp: &str, recv_cq: Option<&str>| {
        Call::CreateQp(Box::new(QpMake {
            qp: qp.into(),
            service: "rc".into(),
            pd: "pd".into(),
            srq: None,
            send_cq: None,
            recv_cq: recv_cq.map(str::to_owned),
            xrcd: None,
            max_send_wr: 16,
            max_recv_wr: 64,
            max_inline: 32,
            signal_all: false,
            state: "RTS".into(),
            attributes: attributes(0),
        }))
    };
    let Reply::Qp { qpn: a } = runner.call(make("a", None)) else { panic!() };
    let Reply::Qp { qpn: b } = runner.call(make("b", Some("c"))) else { panic!() };
    runner.bring_up("a", b);
    runner.bring_up("b", a);

    runner.receive("b", "m");
    assert_eq!(what(&runner.carry_out(SendOperation::Send, &[])), ("a", "send", "success"));
    assert!(runner.completions.is_empty(), "{:?}", runner.completions);
    runner.done(Call::PollCq { cq: "c".into() });
    assert_eq!(what(&runner.completion()), ("b", "receive", "success"));
    let resized = runner.call(Call::ResizeCq { cq: "c".into(), cqe: size + 1 });
    let Reply::Size { size } = resized else { panic!("{resized:?}") };
    let refused = |errno: &str| Reply::Refused { errno: errno.into() };
    assert_eq!(runner.call(Call::DestroyCq { cq: "c".into() }), refused("EBUSY"));

    // The library may hold some more beside the queue itself.
    for _ in 0..4 * size {
        if runner.events.is_empty() {
            runner.receive("b", "m");
            assert_eq!(runner.post("a", SendOperation::Send, &[], 0), Reply::Done);
            // What overruns the queue is not acknowledged.
            runner.wait_for_news();
        }
    }
    let event = runner.event();
    assert_eq!((event.event.as_str(), event.of.as_deref()), ("cq-error", Some("c")));
    let reply = runner.call(Call::QueryQp { qp: "b".into() });
    assert_eq!(reply, Reply::State { state: "ERR".into() });

    let Reply::Attributes { attributes } = runner.call(Call::QueryAttributes { qp: "a".into() })
    else {
        panic!()
    };
    assert_eq!((attributes.dest_qp_num, attributes.timeout, attributes.path_mtu), (b, 18, 1024));
    for qp in ["a", "b"] {
        runner.done(Call::DestroyQp { qp: qp.into() });
    }
    runner.done(Call::DestroyCq { cq: "c".into() });
}

#[test]
fn an_agent_answers_what_is_no_request_and_goes_on() {
    let agent = Agent::new();
    let mut runner = agent.runner();
    for line in ["", "{", "[]", "{\"id\":3}", "{\"id\":3,\"ask\":{\"call\":{\"call\":\"x\"}}}"] {
        runner.send(&format!("{line}\n"));
        let said = runner.hear();
        assert!(matches!(said, Said::Wrong { id: None, .. }), "{line}: {said:?}");
    }
    let calls = [
        Call::DestroyQp { qp: "none".into() },
        Call::RegMr {
            memory: "m".into(),
            pd: "pd".into(),
            length: u64::MAX,
            iova: None,
            access: 1,
            holds: Vec::new(),
        },
        Call::AllocMw { window: "w".into(), pd: "other".into(), mw_type: 1 },
    ];
    for call in calls {
        let said = runner.ask(Ask::Call(call));
        assert!(matches!(said, Said::Wrong { id: Some(_), .. }), "{said:?}");
    }
    runner.memory("m", &[1]);
    let outside = Call::ReadMemory { memory: "m".into(), offset: u64::MAX, length: 2 };
    let said = runner.ask(Ask::Call(outside));
    assert!(matches!(said, Said::Wrong { .. }), "{said:?}");
    let alloc = Call::AllocMw { window: "w".into(), pd: "pd".into(), mw_type: 9 };
    assert_eq!(runner.call(alloc), Reply::Refused { errno: "EINVAL".into() });
    assert_eq!(runner.bytes("m", 2), [1, 0]);
    let none = Call::Counter { name: "../../../etc/passwd".into() };
    assert_eq!(runner.call(none), Reply::Counter { value: None });
}

#[test]
fn what_was_made_for_a_runner_goes_with_it() {
    let agent = Agent::new();
    let mut runner = agent.runner();
    runner.pair("rc");
    runner.memory("m", &[]);
    drop(runner);
    let mut runner = agent.runner();
    for call in [
        Call::QueryQp { qp: "a".into() },
        Call::ReadMemory { memory: "m".into(), offset: 0, length: 1 },
    ] {
        let said = runner.ask(Ask::Call(call));
        assert!(matches!(said, Said::Wrong { .. }), "{said:?}");
    }
    runner.pair("rc");
}
