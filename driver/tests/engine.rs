//! Engines of one process, in one fabric.

use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ferroce::engine::{
    AsyncQueue, Channel, Completion, CompletionQueue, Engine, Options, OwnLink, QueuePair,
};
use ferroce::fabric::{FRAME_MAX, Member, Report, observe};
use ferroce::link::LinkName;
use ferroce::memory::Region;
use ferroce_stack::congestion::{self, Algorithm, dcqcn};
use ferroce_stack::gid::Gid;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    Access, AhAttr, AttrMask, Mtu, Pd, QpAttr, QpCap, QpInit, QpState, QpType, Qpn, RecvWr, Remote,
    SendFlags, SendOp, SendWr, Sge, WcOpcode, WcStatus,
};
use ferroce_stack::wire::Mac;
use ferroce_stack::{GidEntry, GidType, MrInit, SrqInit};
use nix::sched::{CloneFlags, unshare};

struct Node {
    engine: Engine,
    events: Arc<AsyncQueue>,
    pd: Pd,
    cq: Arc<CompletionQueue>,
    gid: Gid,
}

struct Fabric(PathBuf);

impl Fabric {
    fn new(name: &str) -> Fabric {
        Fabric(PathBuf::from(format!("/dev/shm/ferroce-test-{name}-{}", std::process::id())))
    }

    fn node(&self, host: u8) -> Node {
        self.node_with(host, None)
    }

    fn node_with(&self, host: u8, congestion: Option<&congestion::Config>) -> Node {
        let gid = Gid::from(Ipv4Addr::new(10, 9, 0, host));
        let mac = Mac([2, 0, 10, 9, 0, host]);
        let entry = GidEntry { gid, gid_type: GidType::RoceV2, mac, vlan: None };
        let gids = [entry];
        let options = Options { congestion, ..Options::plain(&self.0, &gids) };
        let engine = Engine::open(&options).unwrap();
        let events = Arc::new(AsyncQueue::new().unwrap());
        let pd = engine.lock().unwrap().alloc_pd().unwrap();
        let cq = engine.create_cq(256, None, events.clone(), 7).unwrap();
        Node { engine, events, pd, cq, gid }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Node {
    fn qp(&self) -> Arc<QueuePair> {
        self.qp_of(QpType::Rc, &self.cq)
    }

    fn qp_of(&self, qp_type: QpType, cq: &CompletionQueue) -> Arc<QueuePair> {
        let cq = Some(cq.handle());
        let init = QpInit {
            qp_type,
            pd: Some(self.pd),
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            xrcd: None,
            cap: QpCap::default(),
            sq_sig_all: false,
        };
        self.engine.create_qp(&init, self.events.clone(), 1).unwrap()
    }

    fn connect(&self, qp: &QueuePair, peer: &Node, to: &QueuePair) {
        self.connect_to(qp, peer.gid, to.qpn());
    }

    fn connect_to(&self, qp: &QueuePair, peer: Gid, to: Qpn) {
        let is_reliable = qp.init().qp_type == QpType::Rc;
        let only_reliable = |mask| if is_reliable { mask } else { AttrMask::STATE };
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            qp_access_flags: Access::REMOTE_WRITE | Access::REMOTE_READ,
            path_mtu: Mtu::Mtu4096,
            dest_qp_num: to,
            rq_psn: Psn::new(5),
            sq_psn: Psn::new(5),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            ah_attr: AhAttr { dgid: peer, hop_limit: 64, ..AhAttr::default() },
            ..QpAttr::default()
        };
        let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        self.engine.modify_qp(qp, &attr, init).unwrap();
        let rtr = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | only_reliable(AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER);
        self.engine.modify_qp(qp, &QpAttr { qp_state: QpState::Rtr, ..attr }, rtr).unwrap();
        let rts = AttrMask::STATE
            | AttrMask::SQ_PSN
            | only_reliable(
                AttrMask::TIMEOUT
                    | AttrMask::RETRY_CNT
                    | AttrMask::RNR_RETRY
                    | AttrMask::MAX_QP_RD_ATOMIC,
            );
        self.engine.modify_qp(qp, &QpAttr { qp_state: QpState::Rts, ..attr }, rts).unwrap();
    }

    fn reset(&self, qp: &QueuePair) {
        let attr = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        self.engine.modify_qp(qp, &attr, AttrMask::STATE).unwrap();
    }

    fn poll(&self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        let start = Instant::now();
        while all.len() < count {
            let mut batch = [Completion::default(); 16];
            let got = self.engine.poll_cq(&self.cq, &mut batch);
            all.extend_from_slice(&batch[..got]);
            assert!(start.elapsed() < Duration::from_secs(60), "{} of {count}", all.len());
        }
        all
    }

    fn reg(&self, buffer: &mut [u8], access: Access) -> (u32, u32) {
        self.reg_range(buffer.as_mut_ptr() as u64, buffer.len(), access)
    }

    fn reg_region(&self, region: &Region, access: Access) -> (u32, u32) {
        self.reg_range(region.addr(), region.len(), access)
    }

    fn reg_range(&self, addr: u64, len: usize, access: Access) -> (u32, u32) {
        let init = MrInit { addr, length: len as u64, iova: addr, access };
        let keys = self.engine.lock().unwrap().reg_mr(self.pd, &init).unwrap();
        (keys.lkey, keys.rkey)
    }
}

#[test]
fn writes_between_two_engines_arrive() {
    let fabric = Fabric::new("writes");
    let (a, b) = (fabric.node(1), fabric.node(2));
    let (qa, qb) = (a.qp(), b.qp());
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    let mut from = vec![7u8; 1 << 20];
    let mut to = vec![0u8; 1 << 20];
    let (lkey, _) = a.reg(&mut from, Access::NONE);
    let (_, rkey) = b.reg(&mut to, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let sges = [Sge { addr: from.as_ptr() as u64, length: 1 << 20, lkey }];
    let remote = Remote { addr: to.as_ptr() as u64, rkey };
    for round in 0..20 {
        a.engine.send(&qa).push(&SendWr::new(round, SendOp::Write(remote), &sges)).unwrap();
        let wc = a.poll(1)[0].wc;
        assert_eq!((wc.wr_id, wc.status), (round, WcStatus::Success));
    }
    assert!(to == from);
}

#[test]
fn sends_ping_and_pong() {
    let fabric = Fabric::new("sends");
    let (a, b) = (fabric.node(1), fabric.node(2));
    let (qa, qb) = (a.qp(), b.qp());
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    let rounds = 20_000;
    let run = |node: &Node, qp: &QueuePair, first: bool| {
        let mut buffer = vec![0u8; 128];
        let (lkey, _) = node.reg(&mut buffer, Access::LOCAL_WRITE);
        let sges = [Sge { addr: buffer.as_ptr() as u64, length: 8, lkey }];
        for wr_id in 0..100 {
            node.engine.recv(qp).push(&RecvWr { wr_id, sges: &sges }).unwrap();
        }
        if first {
            node.engine.send(qp).push(&SendWr::new(0, SendOp::Send, &sges)).unwrap();
        }
        let (mut received, mut sent) = (0, u32::from(first));
        while received < rounds {
            for Completion { wc, .. } in node.poll(1) {
                assert_eq!(wc.status, WcStatus::Success);
                if wc.opcode == WcOpcode::Recv {
                    received += 1;
                    node.engine.recv(qp).push(&RecvWr { wr_id: 0, sges: &sges }).unwrap();
                    if sent < rounds {
                        sent += 1;
                        let wr = SendWr::new(0, SendOp::Send, &sges);
                        node.engine.send(qp).push(&wr).unwrap();
                    }
                }
            }
        }
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| run(&b, &qb, false));
        run(&a, &qa, true);
    });
    println!("{:?} a round", start.elapsed() / rounds);
}

fn ask(fabric: &Fabric) -> Vec<Report> {
    let answers = observe(&fabric.0).unwrap().ask(Duration::from_secs(20));
    answers.into_iter().map(|answer| answer.report.unwrap()).collect()
}

#[test]
fn engines_say_of_themselves_what_they_do() {
    let fabric = Fabric::new("report");
    let (a, b) = (fabric.node(1), fabric.node(2));
    let (qa, qb) = (a.qp(), b.qp());
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    let mut from = vec![7u8; 1 << 16];
    let mut to = vec![0u8; 1 << 16];
    let (lkey, _) = a.reg(&mut from, Access::NONE);
    let (_, rkey) = b.reg(&mut to, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let sges = [Sge { addr: from.as_ptr() as u64, length: 1 << 16, lkey }];
    let remote = Remote { addr: to.as_ptr() as u64, rkey };
    a.engine.send(&qa).push(&SendWr::new(1, SendOp::Write(remote), &sges)).unwrap();
    b.engine.recv(&qb).push(&RecvWr { wr_id: 1, sges: &[] }).unwrap();
    a.poll(1);
    // Both engines have nothing to do and sleep.
    std::thread::sleep(Duration::from_millis(20));

    let reports = ask(&fabric);
    let [of_a, of_b] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((of_a.pid, of_a.device.as_str()), (std::process::id(), "ferroce0"));
    assert!(of_a.program.starts_with("engine"), "{}", of_a.program);
    assert_eq!(of_a.gids, ["::ffff:10.9.0.1"]);
    assert_eq!((of_a.counters["rdma_sends"], of_a.lost["ring_full"]), (1, 0));
    let [qp] = &of_a.qps[..] else { panic!("{:?}", of_a.qps) };
    assert_eq!((qp.qpn, qp.qp_type.as_str(), qp.state.as_str()), (qa.qpn().0, "RC", "RTS"));
    assert_eq!(qp.peer_gid.as_deref(), Some("::ffff:10.9.0.2"));
    assert_eq!((qp.peer_qpn, qp.sq_psn), (Some(qb.qpn().0), 5 + 16));
    assert_eq!((qp.sent_pkts, qp.rcvd_pkts), (16, of_b.qps[0].sent_pkts));
    assert_eq!(qp.sent_pkts, of_a.counters["sent_pkts"]);
    assert_eq!((of_b.qps[0].rcvd_pkts, of_b.qps[0].rq_psn), (16, 5 + 16));
    assert_eq!((qp.sq_outstanding, of_b.qps[0].rq_outstanding), (0, 1));

    drop(b);
    assert_eq!(ask(&fabric).len(), 1);
}

#[test]
fn engine_whose_application_polls_answers() {
    let fabric = Fabric::new("polled");
    let node = fabric.node(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                node.engine.poll_cq(&node.cq, &mut [Completion::default()]);
            }
        });
        for _ in 0..20 {
            assert_eq!(ask(&fabric).len(), 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    // It has stopped without a word.
    assert_eq!(ask(&fabric).len(), 1);
}

#[test]
fn message_longer_than_a_batch_is_sent_though_nobody_polls() {
    const LEN: usize = 2 << 20;
    let fabric = Fabric::new("long");
    let (a, b) = (fabric.node(1), fabric.node(2));
    let (qa, qb) = (a.qp_of(QpType::Uc, &a.cq), b.qp_of(QpType::Uc, &b.cq));
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    let (from, to) = (Region::zeroed(LEN).unwrap(), Region::zeroed(LEN).unwrap());
    from.write_at(LEN - 1, &[7]).unwrap();
    let (lkey, _) = a.reg_region(&from, Access::NONE);
    let (_, rkey) = b.reg_region(&to, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    // Until both engines sleep.
    std::thread::sleep(Duration::from_millis(50));
    let sges = [Sge { addr: from.addr(), length: LEN as u32, lkey }];
    let remote = Remote { addr: to.addr(), rkey };
    a.engine.send(&qa).push(&SendWr::new(1, SendOp::Write(remote), &sges)).unwrap();
    let last = || {
        let mut byte = [0];
        to.read_at(LEN - 1, &mut byte).unwrap();
        byte[0]
    };
    let start = Instant::now();
    while last() != 7 {
        assert!(start.elapsed() < Duration::from_secs(5), "the end of the message never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Held to 100 Mbit/s: 2 MB take 160 ms, whether the sender is polled, and its thread watches, or
/// nobody polls, and the thread sleeps from packet to packet.
#[test]
fn pacing_is_kept_by_pollers_and_by_the_thread() {
    const LEN: usize = 2_000_000;
    let slow = dcqcn::Params { rpg_max_rate: 100, ..dcqcn::Params::paper() };
    let control = congestion::Config::new(Algorithm::Dcqcn(slow), 10_000_000_000);
    let fabric = Fabric::new("paced");
    let (a, b) = (fabric.node_with(1, Some(&control)), fabric.node(2));
    let (qa, qb) = (a.qp(), b.qp());
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    let (from, to) = (Region::zeroed(LEN).unwrap(), Region::zeroed(LEN).unwrap());
    let (lkey, _) = a.reg_region(&from, Access::NONE);
    let (_, rkey) = b.reg_region(&to, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let sges = [Sge { addr: from.addr(), length: LEN as u32, lkey }];
    let remote = Remote { addr: to.addr(), rkey };
    for round in 1..=2u8 {
        from.write_at(LEN - 1, &[round]).unwrap();
        let start = Instant::now();
        let write = SendWr::new(1, SendOp::Write(remote), &sges);
        a.engine.send(&qa).push(&write).unwrap();
        let last = || {
            let mut byte = [0];
            to.read_at(LEN - 1, &mut byte).unwrap();
            byte[0]
        };
        while round == 2 && last() != round {
            assert!(start.elapsed() < Duration::from_secs(60), "the end never came");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(a.poll(1)[0].wc.status, WcStatus::Success);
        assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
        assert_eq!(last(), round);
    }
}

#[test]
fn unless_it_is_set_the_line_rate_is_that_of_the_link() {
    let fabric = Fabric::new("line-rate");
    let gids = [GidEntry {
        gid: Gid::from(Ipv4Addr::new(192, 0, 2, 1)),
        gid_type: GidType::RoceV2,
        mac: Mac([2, 0, 192, 0, 2, 1]),
        vlan: None,
    }];
    let line_rate = |control: &str, of_gateway, link: Option<&LinkName>| {
        let control: congestion::Config = control.parse().unwrap();
        let options = Options {
            congestion: Some(&control),
            line_rate: of_gateway,
            link: link.map(|name| OwnLink { name, addresses: &[] }),
            ..Options::plain(&fabric.0, &gids)
        };
        let engine = Engine::open(&options).unwrap();
        let guard = engine.lock().unwrap();
        guard.config().congestion.as_ref().unwrap().line_rate
    };
    assert_eq!(line_rate("dcqcn", None, None), 10_000_000_000);
    assert_eq!(line_rate("dcqcn", Some(100_000_000_000), None), 100_000_000_000);
    let by_hand = "dcqcn,line_rate=40000000000";
    assert_eq!(line_rate(by_hand, Some(100_000_000_000), None), 40_000_000_000);

    let on_a_link_of_its_own = || {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            return eprintln!("skipped: no new network namespace: {errno}");
        }
        let commands = [
            "ip tuntap add tap0 mode tap",
            "ethtool -s tap0 speed 25000 duplex full autoneg off",
            "ip addr add 192.0.2.1/24 dev tap0",
            "ip link set tap0 up",
        ];
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            match Command::new(words[0]).args(&words[1..]).output() {
                Ok(output) if output.status.success() => {}
                other => return eprintln!("skipped: {command}: {other:?}"),
            }
        }
        let link = "udp:192.0.2.1".parse().unwrap();
        assert_eq!(line_rate("swift", None, Some(&link)), 25_000_000_000);
        assert_eq!(line_rate(by_hand, None, Some(&link)), 40_000_000_000);
    };
    std::thread::scope(|scope| {
        scope.spawn(on_a_link_of_its_own);
    });
}

/// Offset of the hint in a member's file: where senders look for the end of its ring.
const HINT_AT: u64 = 128;

#[test]
fn ring_whose_hint_was_scribbled_over_takes_frames_again() {
    let fabric = Fabric::new("hint");
    let (a, b) = (fabric.node(1), fabric.node(2));
    let (qa, qb) = (a.qp(), b.qp());
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    for (wr_id, hint) in [1 << 20, 500, 3, u64::MAX].into_iter().enumerate() {
        for node in [&a, &b] {
            let slot = node.engine.lock().unwrap().config().qpns.start >> 16;
            let file = fabric.0.join(format!("member-{slot}"));
            let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
            file.write_all_at(&u64::to_ne_bytes(hint), HINT_AT).unwrap();
        }
        let remote = Remote { addr: 0, rkey: 0 };
        let wr = SendWr::new(wr_id as u64, SendOp::Write(remote), &[]);
        a.engine.send(&qa).push(&wr).unwrap();
        let wc = a.poll(1)[0].wc;
        assert_eq!((wc.wr_id, wc.status), (wr_id as u64, WcStatus::Success), "hint {hint}");
    }
}

/// Sends from `a` to `b` while it floods a third member, who takes a frame each time that `pace`
/// says, if it does. A send takes microseconds; where the flood holds it up, half a second.
fn send_beside_a_flood(name: &str, pace: Option<Duration>) {
    const SENDS: u64 = 400;
    const LIMIT: Duration = Duration::from_secs(100);

    let fabric = Fabric::new(name);
    let (a, b) = (fabric.node(1), fabric.node(2));
    let (to_b, from_a) = (a.qp(), b.qp());
    a.connect(&to_b, &b, &from_a);
    b.connect(&from_a, &a, &to_b);
    let gid = Gid::from(Ipv4Addr::new(10, 9, 0, 3));
    let mac = Mac([2, 0, 10, 9, 0, 3]);
    let entry = GidEntry { gid, gid_type: GidType::RoceV2, mac, vlan: None };
    let mut third = Member::join(&fabric.0, &[entry]).unwrap();
    let to_third = Qpn(third.qpns().end - 1);
    let other_cq = a.engine.create_cq(64, None, a.events.clone(), 9).unwrap();
    let floods: Vec<_> = (0..8).map(|_| a.qp_of(QpType::Uc, &other_cq)).collect();
    floods.iter().for_each(|qp| a.connect_to(qp, gid, to_third));
    let from = Region::zeroed(1 << 20).unwrap();
    let (lkey, _) = a.reg_region(&from, Access::NONE);
    let sges = [Sge { addr: from.addr(), length: 1 << 20, lkey }];
    let remote = Remote { addr: 0, rkey: 0 };
    let flood = SendWr { flags: SendFlags(0), ..SendWr::new(0, SendOp::Write(remote), &sges) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Some(pace) = pace else { return };
            let mut frame = [0; FRAME_MAX];
            while !done.load(Ordering::Relaxed) {
                third.receive(&mut frame, false);
                std::thread::sleep(pace);
            }
        });
        let start = Instant::now();
        for send in 0..SENDS {
            for qp in &floods {
                // A full queue is no matter.
                let _ = a.engine.send(qp).push(&flood);
            }
            a.engine.send(&to_b).push(&SendWr::new(0, SendOp::Write(remote), &[])).unwrap();
            assert_eq!(a.poll(1)[0].wc.status, WcStatus::Success);
            if start.elapsed() > LIMIT {
                done.store(true, Ordering::Relaxed);
                panic!("{send} of {SENDS} sends in {LIMIT:?}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn member_that_stands_still_holds_up_nobody_else() {
    send_beside_a_flood("still", None);
}

#[test]
fn member_that_crawls_holds_up_nobody_else() {
    send_beside_a_flood("crawls", Some(Duration::from_millis(15)));
}

#[test]
fn sleeper_hears_that_its_peer_is_dead() {
    let fabric = Fabric::new("dead");
    let (a, b) = (fabric.node(1), fabric.node(2));
    let channel = Arc::new(Channel::new().unwrap());
    let cq = a.engine.create_cq(16, Some(channel.clone()), a.events.clone(), 5).unwrap();
    let (qa, qb) = (a.qp_of(QpType::Rc, &cq), b.qp());
    a.connect(&qa, &b, &qb);
    b.connect(&qb, &a, &qa);
    drop(qb);
    drop(b);
    a.engine.req_notify_cq(&cq, false);
    let remote = Remote { addr: 0, rkey: 0 };
    a.engine.send(&qa).push(&SendWr::new(1, SendOp::Write(remote), &[])).unwrap();
    let start = Instant::now();
    assert_eq!(a.engine.wait(&channel).unwrap(), 5);
    // Eight times 67 ms at least, up to four times that.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let mut wc = [Completion::default()];
    assert_eq!(a.engine.poll_cq(&cq, &mut wc), 1);
    assert_eq!(wc[0].wc.status, WcStatus::RetryExcErr);
}

#[test]
fn completions_that_found_the_ring_full_come_with_those_in_it() {
    let fabric = Fabric::new("backlog");
    let a = fabric.node(1);
    let cq = a.engine.create_cq(4, None, a.events.clone(), 5).unwrap();
    let qp = a.qp_of(QpType::Rc, &cq);
    a.connect(&qp, &a, &qp);
    let remote = Remote { addr: 0, rkey: 0 };
    for wr_id in 0..7 {
        a.engine.send(&qp).push(&SendWr::new(wr_id, SendOp::Write(remote), &[])).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    // A program that takes fewer than it asked for believes that there are no more.
    let mut wcs = [Completion::default(); 16];
    assert_eq!(a.engine.poll_cq(&cq, &mut wcs), 7);
}

#[test]
fn receives_posted_while_an_srq_is_resized_are_not_lost() {
    const COUNT: u32 = 30_000;
    let fabric = Fabric::new("resize");
    let a = fabric.node(1);
    let init = SrqInit { pd: a.pd, max_wr: 1 << 15, max_sge: 1, xrc: None };
    for _ in 0..20 {
        let srq = a.engine.create_srq(&init, a.events.clone(), 1).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for size in (COUNT..1 << 15).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    a.engine.modify_srq(&srq, Some(size), None).unwrap();
                }
            });
            for wr_id in 0..COUNT.into() {
                a.engine.recv_shared(&srq).push(&RecvWr { wr_id, sges: &[] }).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        // An armed limit is reached at once if fewer are posted.
        a.engine.modify_srq(&srq, None, Some(COUNT)).unwrap();
        assert_eq!(a.events.try_pop(), None, "receives were lost");
        a.engine.destroy_srq(&srq).unwrap();
    }
}

#[test]
fn posts_that_meet_a_reset_take_no_room_for_ever() {
    let fabric = Fabric::new("reset");
    let a = fabric.node(1);
    let qp = a.qp();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wr = SendWr::new(0, SendOp::Write(Remote { addr: 0, rkey: 0 }), &[]);
            while !done.load(Ordering::Relaxed) {
                // Refused in RESET.
                let _ = a.engine.send(&qp).push(&wr);
                let _ = a.engine.recv(&qp).push(&RecvWr { wr_id: 0, sges: &[] });
            }
        });
        for _ in 0..3000 {
            a.connect(&qp, &a, &qp);
            a.reset(&qp);
        }
        done.store(true, Ordering::Relaxed);
    });
    a.connect(&qp, &a, &qp);
    let QpCap { max_send_wr, max_recv_wr, .. } = qp.init().cap;
    a.engine.send(&qp).reserve(max_send_wr as usize).unwrap();
    for wr_id in 0..max_recv_wr.into() {
        a.engine.recv(&qp).push(&RecvWr { wr_id, sges: &[] }).unwrap();
    }
}
