//! Congestion control between two devices on a virtual clock: marks become CNPs, CNPs slow down
//! requests and READ responses, nothing stalls.

use ferroce::frame::wire::{Link, SentFrame};
use ferroce::rand::Rng;
use ferroce::world::{Addressing, Buffer, ConnectOptions, Endpoint, World, WorldConfig};
use ferroce_stack::congestion::{self, Algorithm, dcqcn, swift, timely};
use ferroce_stack::time::Instant;
use ferroce_stack::verbs::{RecvWr, SendOp, SendWr, WcStatus};
use ferroce_stack::wire::{Opcode, Packet};
use ferroce_stack::{Config, Counters};

use ferroce_tests::{MS, SEC, US};

const LINE: u64 = 10_000_000_000;
const MBIT: u64 = 1_000_000;
/// 67 ms: longer than a packet takes at 1 Mbit/s.
const PATIENT: u8 = 14;

fn paper() -> dcqcn::Params {
    dcqcn::Params::paper()
}

fn world(algorithm: Algorithm, faults: &[&str]) -> World {
    world_of(algorithm, faults, WorldConfig::default())
}

fn world_of(algorithm: Algorithm, faults: &[&str], config: WorldConfig) -> World {
    let congestion = Some(congestion::Config::new(algorithm, LINE));
    let mut world = World::new(WorldConfig {
        device: Config { congestion, ..Config::default() },
        link: Link { rate_bps: Some(LINE), delay_ns: 5 * US, ..config.link },
        faults: faults.iter().map(|rule| rule.parse().unwrap()).collect(),
        ..config
    })
    .unwrap();
    world.wire().keep_log();
    world
}

/// A connection with memory on both sides, of `len` bytes.
struct Pair {
    a: Endpoint,
    b: Endpoint,
    local: Buffer,
    remote: Buffer,
}

impl Pair {
    fn new(world: &mut World, len: usize, timeout: u8) -> Pair {
        let options = ConnectOptions { timeout, ..ConnectOptions::default() };
        let (a, b) = world.connect_rc(0, 1, &options).unwrap();
        let local = world.register(&a, len, options.access).unwrap();
        let remote = world.register(&b, len, options.access).unwrap();
        let bytes = world.bytes_mut(&local);
        bytes.iter_mut().zip((0..=250u8).cycle()).for_each(|(byte, value)| *byte = value);
        Pair { a, b, local, remote }
    }

    fn write(&self) -> SendOp {
        SendOp::Write(self.remote.remote())
    }

    fn read(&self) -> SendOp {
        SendOp::Read(self.remote.remote())
    }

    fn post(&self, world: &mut World, op: SendOp) {
        let sges = [self.local.sge()];
        world.device(0).post_send(self.a.qpn, &SendWr::new(1, op, &sges)).unwrap();
    }

    /// Posts, and waits until it has ended well.
    fn finish(&self, world: &mut World, op: SendOp) {
        self.post(world, op);
        self.await_end(world);
        assert!(world.bytes(&self.local) == world.bytes(&self.remote));
    }

    fn await_end(&self, world: &mut World) {
        let mut done = Vec::new();
        let ended = |world: &mut World| {
            done.extend(world.poll(0, self.a.send_cq).unwrap());
            !done.is_empty()
        };
        world.run_until(ended, 600 * SEC).unwrap();
        assert_eq!(done[0].status, WcStatus::Success);
    }

    fn rate(&self, world: &World) -> u64 {
        world.device_ref(0).qp_rate(world.now(), self.a.qpn).unwrap().rate
    }
}

fn opcode(frame: &SentFrame) -> Opcode {
    Packet::parse(&frame.bytes).unwrap().headers.bth.opcode
}

fn ecn(frame: &SentFrame) -> u8 {
    Packet::parse(&frame.bytes).unwrap().headers.net.traffic_class() & 0b11
}

fn cnps(log: &[SentFrame]) -> Vec<&SentFrame> {
    log.iter().filter(|frame| opcode(frame) == Opcode::CNP).collect()
}

fn counters(world: &World, node: usize) -> Counters {
    world.device_ref(node).counters().clone()
}

#[test]
fn marks_become_cnps_as_the_annex_wants_them() {
    for (addressing, vlan) in
        [(Addressing::Ipv4, None), (Addressing::Ipv6, None), (Addressing::Ipv4, Some(7))]
    {
        let config = WorldConfig { addressing, vlan, ..WorldConfig::default() };
        let mut world = world_of(Algorithm::Dcqcn(paper()), &["mark ce any"], config);
        let pair = Pair::new(&mut world, 1 << 20, PATIENT);
        pair.finish(&mut world, pair.write());
        let log = world.wire().take_log();
        let cnps = cnps(&log);
        let (sender, receiver) = (counters(&world, 0), counters(&world, 1));
        assert!(cnps.len() > 10, "{}", cnps.len());
        assert_eq!(receiver.np_cnp_sent, cnps.len() as u64);
        assert_eq!(sender.rp_cnp_handled + sender.rp_cnp_ignored, receiver.np_cnp_sent);
        assert_eq!(sender.np_cnp_sent, 0, "acknowledgements and CNPs with marks owe none");
        assert_eq!(receiver.np_ecn_marked_roce_packets, 1024);
        for pair in cnps.windows(2) {
            assert!(pair[1].at >= pair[0].at + 50 * US);
        }
        for cnp in cnps {
            let packet = Packet::parse(&cnp.bytes).unwrap();
            let (headers, bth) = (packet.headers, packet.headers.bth);
            assert!(packet.icrc_ok(&cnp.bytes) && packet.payload == [0; 16]);
            assert_eq!((cnp.from, headers.net.traffic_class()), (1, 0xc2));
            assert_eq!(headers.eth.vlan.map(|vlan| (vlan.vid, vlan.pcp)), vlan.map(|id| (id, 6)));
            assert_eq!((bth.dest_qp, bth.pkey, bth.becn), (pair.a.qpn.0, 0xffff, true));
            let rest = (bth.fecn, bth.ack_req, bth.solicited, bth.mig_req, bth.psn.value());
            assert_eq!(rest, (false, false, false, false, 0));
        }
    }
}

#[test]
fn data_is_ecn_capable_and_nothing_else() {
    let mut world = world(Algorithm::Dcqcn(paper()), &[]);
    let pair = Pair::new(&mut world, 3000, PATIENT);
    for op in [pair.write(), pair.read(), SendOp::FetchAdd { remote: pair.remote.remote(), add: 0 }]
    {
        let sges =
            [pair.local.slice(0, if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { 3000 })];
        world.device(0).post_send(pair.a.qpn, &SendWr::new(1, op, &sges)).unwrap();
        pair.await_end(&mut world);
    }
    let log = world.wire().take_log();
    assert_eq!(log.len(), 3 + 1 + 1 + 3 + 2);
    for frame in &log {
        let carries = !Packet::parse(&frame.bytes).unwrap().payload.is_empty();
        assert_eq!(ecn(frame), if carries { 0b10 } else { 0 }, "{:?}", opcode(frame));
    }
}

#[test]
fn without_congestion_control_nothing_changes_on_the_wire() {
    let faults = vec!["mark ce any".parse().unwrap()];
    let mut world = World::new(WorldConfig { faults, ..WorldConfig::default() }).unwrap();
    world.wire().keep_log();
    let pair = Pair::new(&mut world, 1 << 20, PATIENT);
    pair.finish(&mut world, pair.write());
    let log = world.wire().take_log();
    assert!(cnps(&log).is_empty() && log.iter().all(|frame| ecn(frame) == 0));
    assert_eq!(counters(&world, 1).np_ecn_marked_roce_packets, 0);
    assert_eq!(world.device_ref(0).qp_rate(Instant::ZERO, pair.a.qpn), None);
}

#[test]
fn roce_v1_has_neither_ecn_nor_cnps() {
    let config = WorldConfig { addressing: Addressing::RoceV1, ..WorldConfig::default() };
    let mut world = world_of(Algorithm::Dcqcn(paper()), &["mark ce any"], config);
    let pair = Pair::new(&mut world, 100_000, PATIENT);
    pair.finish(&mut world, pair.write());
    let log = world.wire().take_log();
    assert!(cnps(&log).is_empty() && log.iter().all(|frame| ecn(frame) == 0));
}

#[test]
fn the_rate_falls_with_cnps_and_comes_back() {
    let mut world = world(Algorithm::Dcqcn(paper()), &["mark ce 1..2000th rc-write"]);
    let pair = Pair::new(&mut world, 4 << 20, PATIENT);
    assert_eq!(pair.rate(&world), LINE);
    pair.post(&mut world, pair.write());
    let mut lowest = LINE;
    let cut = |world: &mut World| {
        lowest = lowest.min(pair.rate(world));
        world.wire().counters().marked == 2000
    };
    world.run_until(cut, SEC).unwrap();
    assert!(lowest < LINE / 8, "{lowest}");
    pair.await_end(&mut world);
    assert!(world.bytes(&pair.local) == world.bytes(&pair.remote));
    world.run_for(SEC);
    assert_eq!(pair.rate(&world), LINE);
    assert_eq!(counters(&world, 0).local_ack_timeout_err, 0);
}

/// Bytes of the frames that `node` sent in the second from 100 ms on.
fn bytes_in_a_second(world: &mut World, node: usize) -> u64 {
    world.run_for(100 * MS);
    world.wire().take_log();
    world.run_for(SEC);
    let log = world.wire().take_log();
    log.iter().filter(|frame| frame.from == node).map(|frame| frame.bytes.len() as u64).sum()
}

#[test]
fn pacing_keeps_to_the_rate_for_requests_and_for_read_responses() {
    let slow = dcqcn::Params { rpg_max_rate: 100, ..paper() };
    for node in [0, 1] {
        let mut world = world(Algorithm::Dcqcn(slow.clone()), &[]);
        let pair = Pair::new(&mut world, 16 << 20, PATIENT);
        pair.post(&mut world, if node == 0 { pair.write() } else { pair.read() });
        let bytes = bytes_in_a_second(&mut world, node);
        let expected = 100 * MBIT / 8;
        assert!(bytes.abs_diff(expected) <= 2 * 1100, "node {node}: {bytes}");
        pair.await_end(&mut world);
        assert_eq!(counters(&world, 0).local_ack_timeout_err, 0);
        assert_eq!(counters(&world, 0).retransmitted_pkts, 0);
    }
}

#[test]
fn pacing_is_no_ack_timeout_and_waits_outside_the_line() {
    // A packet takes 8.8 ms, the peer answers within 1 ms or not at all.
    let slow = dcqcn::Params { rpg_max_rate: 1, ..paper() };
    let mut world = world(Algorithm::Dcqcn(slow), &[]);
    let pair = Pair::new(&mut world, 100_000, 8);
    pair.post(&mut world, pair.write());
    world.run_for(20 * MS);
    assert!(!world.device(0).wants_to_transmit(pair.a.qpn));
    assert!(world.device(0).is_quiet());
    pair.await_end(&mut world);
    assert_eq!(counters(&world, 0).local_ack_timeout_err, 0);
    assert!(world.now() > Instant::from_nanos(800 * MS));
}

#[test]
fn a_dead_peer_is_noticed_in_spite_of_pacing() {
    let slow = dcqcn::Params { rpg_max_rate: 10, ..paper() };
    let mut world = world(Algorithm::Dcqcn(slow), &["drop any"]);
    let pair = Pair::new(&mut world, 1 << 20, 8);
    pair.post(&mut world, pair.write());
    world.run_until_idle(60 * SEC).unwrap();
    let completions = world.poll(0, pair.a.send_cq).unwrap();
    assert_eq!(completions[0].status, WcStatus::RetryExcErr);
}

#[test]
fn requests_and_read_responses_of_one_qp_share_its_rate() {
    let slow = dcqcn::Params { rpg_max_rate: 100, ..paper() };
    let mut world = world(Algorithm::Dcqcn(slow), &[]);
    let pair = Pair::new(&mut world, 4 << 20, PATIENT);
    pair.post(&mut world, pair.write());
    let sges = [pair.remote.sge()];
    let read = SendWr::new(2, SendOp::Read(pair.local.remote()), &sges);
    world.device(1).post_send(pair.b.qpn, &read).unwrap();
    world.run_for(200 * MS);
    let log = world.wire().take_log();
    let count = |class: fn(Opcode) -> bool| {
        log.iter().filter(|frame| frame.from == 0 && class(opcode(frame))).count()
    };
    let is_response = |code: Opcode| (0x0d..=0x10).contains(&code.0);
    let is_write = |code: Opcode| (0x06..=0x0a).contains(&code.0);
    let (responses, writes) = (count(is_response), count(is_write));
    assert!(responses.abs_diff(writes) <= 4, "{responses} {writes}");
    pair.await_end(&mut world);
    assert_eq!(counters(&world, 0).local_ack_timeout_err, 0);
}

#[test]
fn a_qp_that_waits_does_not_stop_another() {
    let slow = dcqcn::Params { rpg_max_rate: 100, ..paper() };
    let mut world = world(Algorithm::Dcqcn(slow), &[]);
    let pairs = [(); 4].map(|()| Pair::new(&mut world, 4 << 20, PATIENT));
    for pair in &pairs {
        pair.post(&mut world, pair.write());
    }
    let bytes = bytes_in_a_second(&mut world, 0);
    let expected = 4 * 100 * MBIT / 8;
    // They end within that second.
    let all: u64 = pairs.len() as u64 * (4 << 20);
    assert!(bytes < expected.min(all + all / 10), "{bytes}");
    for pair in &pairs {
        pair.await_end(&mut world);
        assert!(world.bytes(&pair.local) == world.bytes(&pair.remote));
    }
    assert!(world.now() < Instant::from_nanos(1200 * MS));
}

#[test]
fn a_sender_on_an_unreliable_connection_slows_down_too() {
    let mut world = world(Algorithm::Dcqcn(paper()), &["mark ce any"]);
    let options = ConnectOptions::default();
    let (a, b) = world.connect_uc(0, 1, &options).unwrap();
    let local = world.register(&a, 1 << 20, options.access).unwrap();
    let remote = world.register(&b, 1 << 20, options.access).unwrap();
    let sges = [local.sge()];
    let write = SendWr::new(1, SendOp::Write(remote.remote()), &sges);
    world.device(0).post_send(a.qpn, &write).unwrap();
    world.run_until_idle(60 * SEC).unwrap();
    assert_eq!(world.poll(0, a.send_cq).unwrap().len(), 1);
    assert!(counters(&world, 0).rp_cnp_handled > 10);
    // A megabyte takes 0.9 ms at the line rate.
    assert!(world.now() > Instant::from_nanos(2 * MS));
}

#[test]
fn datagrams_are_left_alone() {
    let mut world = world(Algorithm::Dcqcn(paper()), &["mark ce any"]);
    let options = ConnectOptions::default();
    let (a, b) = (world.ud(0, &options).unwrap(), world.ud(1, &options).unwrap());
    let attr = world.ah_attr(1);
    let ah = world.create_ah(&a, &attr).unwrap();
    let local = world.register(&a, 100, options.access).unwrap();
    let remote = world.register(&b, 140, options.access).unwrap();
    let sges = [remote.sge()];
    world.device(1).post_recv(b.qpn, &RecvWr { wr_id: 1, sges: &sges }).unwrap();
    let sges = [local.sge()];
    let to = ferroce_stack::verbs::UdTarget { ah, qpn: b.qpn, qkey: options.qkey };
    let send = SendWr { ud: Some(to), ..SendWr::new(1, SendOp::Send, &sges) };
    world.device(0).post_send(a.qpn, &send).unwrap();
    world.run_until_idle(SEC).unwrap();
    assert_eq!(world.poll(1, b.recv_cq).unwrap().len(), 1);
    let log = world.wire().take_log();
    assert_eq!((log.len(), ecn(&log[0])), (1, 0));
    assert_eq!(world.device_ref(0).qp_rate(world.now(), a.qpn), None);
}

/// Whatever CNPs come and whatever is lost, rates stay within bounds, every transfer ends, and the
/// bytes are right.
#[test]
fn no_storm_of_cnps_stalls_a_transfer() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let name = Algorithm::NAMES[seed as usize % Algorithm::NAMES.len()];
        let algorithm = Algorithm::named(name).unwrap();
        let faults = ["drop 1% of any", "mark ce 20% of any", "delay 2% of any by 1ms"];
        let config = WorldConfig { seed, ..WorldConfig::default() };
        let mut world = world_of(algorithm, &faults, config);
        let pair = Pair::new(&mut world, 60_000, PATIENT);
        pair.finish(&mut world, pair.write());
        let log = world.wire().take_log();
        let cnp = cnps(&log).first().map(|cnp| cnp.bytes.clone()).expect("some are marked");
        for op in [pair.write(), pair.read(), pair.write()] {
            pair.post(&mut world, op);
            let mut done = Vec::new();
            let deadline = world.now() + 60 * SEC;
            while done.is_empty() {
                for _ in 0..rng.below(3) {
                    world.inject(1, &cnp);
                }
                world.run_for(rng.below(300) * US);
                for (node, qpn) in [(0, pair.a.qpn), (1, pair.b.qpn)] {
                    let rate = world.device_ref(node).qp_rate(world.now(), qpn).unwrap().rate;
                    assert!((MBIT..=LINE).contains(&rate), "seed {seed}: {rate}");
                }
                done.extend(world.poll(0, pair.a.send_cq).unwrap());
                assert!(world.now() < deadline, "seed {seed}: stalled");
            }
            assert_eq!(done[0].status, WcStatus::Success, "seed {seed}");
            assert!(world.bytes(&pair.local) == world.bytes(&pair.remote), "seed {seed}");
        }
    }
}

#[test]
fn swift_narrows_the_window_where_round_trips_are_long_and_ends() {
    let mut world = world(Algorithm::Swift(swift::Params::default()), &["delay any by 40us"]);
    let pair = Pair::new(&mut world, 4 << 20, PATIENT);
    pair.post(&mut world, pair.write());
    let window = |world: &World| {
        world.device_ref(0).qp_rate(world.now(), pair.a.qpn).unwrap().window.unwrap()
    };
    let widest = window(&world);
    let mut narrowest = widest;
    let ended = |world: &mut World| {
        narrowest = narrowest.min(window(world));
        world.device_ref(0).outstanding(pair.a.qpn) == Some((0, 0))
    };
    world.run_until(ended, 60 * SEC).unwrap();
    assert!(narrowest < widest / 50, "{narrowest} of {widest}");
    assert_eq!(counters(&world, 0).local_ack_timeout_err, 0);
    assert_eq!(world.poll(0, pair.a.send_cq).unwrap()[0].status, WcStatus::Success);
    assert!(world.bytes(&pair.local) == world.bytes(&pair.remote));
}

#[test]
fn short_round_trips_are_left_alone() {
    for algorithm in
        [Algorithm::Swift(swift::Params::default()), Algorithm::Timely(timely::Params::paper())]
    {
        let mut world = world(algorithm, &[]);
        let pair = Pair::new(&mut world, 4 << 20, PATIENT);
        pair.finish(&mut world, pair.write());
        // 4 MiB and their headers at 10 Gbit/s.
        assert!(world.now() < Instant::from_nanos(3800 * US), "{:?}", world.now());
    }
}

/// Once it measured one round trip in 64 packets, which at this rate are 57 ms.
#[test]
fn timely_does_not_stay_at_the_lowest_rate_when_round_trips_are_short_again() {
    let faults = ["delay any by 1ms before 20ms"];
    let mut world = world(Algorithm::Timely(timely::Params::paper()), &faults);
    let pair = Pair::new(&mut world, 16 << 20, PATIENT);
    pair.post(&mut world, pair.write());
    world.run_for(20 * MS);
    let lowest = pair.rate(&world);
    assert!(lowest < 20 * MBIT, "{lowest}");
    world.run_for(20 * MS);
    let later = pair.rate(&world);
    assert!(later > 3_000 * MBIT, "{later}");
    pair.await_end(&mut world);
    assert!(world.bytes(&pair.local) == world.bytes(&pair.remote));
    assert_eq!(counters(&world, 0).local_ack_timeout_err, 0);
}
