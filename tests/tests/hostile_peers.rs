//! A hostile peer against congestion control and selective repeat, both at once: whatever it sends,
//! timers move forward, what it makes grow is bounded and given back, and nobody else suffers.

use ferroce::frame::wire::Link;
use ferroce::rand::Rng;
use ferroce::world::{ConnectOptions, World, WorldConfig};
use ferroce_stack::congestion::{self, Algorithm, dcqcn, swift, timely};
use ferroce_stack::discard::Discard;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{
    AttrMask, Mtu, QpAttr, QpState, QpType, Qpn, Remote, SendOp, SendWr, Sge, WcStatus,
};
use ferroce_stack::wire::{Opcode, PsnRange};
use ferroce_stack::{Config, LossRecovery, MAX_MESSAGE};
use ferroce_tests::node::address;
use ferroce_tests::{BASE, Builder, EPSN, MS, Node, PSN, Peer, SEC, Seen, US, statuses};

const MARK: u8 = LossRecovery::SelectiveRepeat.mark();
const LINE: u64 = 10_000_000_000;
const MBIT: u64 = 1_000_000;
/// Congestion experienced.
const CE: u8 = 0b11;

fn algorithms() -> [Algorithm; 4] {
    [
        Algorithm::Dcqcn(dcqcn::Params::paper()),
        Algorithm::Dcqcn(dcqcn::Params::nvidia()),
        Algorithm::Timely(timely::Params::paper()),
        Algorithm::Swift(swift::Params::default()),
    ]
}

fn config(algorithm: Algorithm) -> Config {
    Config {
        congestion: Some(congestion::Config::new(algorithm, LINE)),
        loss_recovery: LossRecovery::SelectiveRepeat,
        ..Config::default()
    }
}

/// One of ours and a scripted peer.
struct Pair {
    node: Node,
    peer: Peer,
    qpn: Qpn,
}

impl Pair {
    fn new(config: Config) -> Pair {
        Pair::with(config, |_| {})
    }

    fn with(config: Config, change: impl FnOnce(&mut QpAttr)) -> Pair {
        let mut node = Node::with_config(address(1), config);
        let (qpn, peer) = connect(&mut node, change);
        Pair { node, peer, qpn }
    }

    fn packet(&self, opcode: Opcode, psn: u32) -> Builder {
        self.peer.packet(opcode, psn).change(|headers| headers.bth.reserved7 = MARK)
    }

    fn write(&self, psn: u32) -> Builder {
        let remote = self.node.remote(0);
        self.packet(Opcode::RC_WRITE_ONLY, psn).reth(remote, 256).fill(psn as u8, 256)
    }

    fn cnp(&self) -> Builder {
        let cnp = self.peer.packet(Opcode::CNP, 0).fill(0, 16);
        cnp.change(|headers| headers.bth.becn = true)
    }

    /// A sequence NAK that tells these ranges.
    fn nak(&self, psn: u32, told: &[(u32, u32)]) -> Builder {
        let mut payload = vec![0; told.len() * PsnRange::LEN];
        for (&(first, count), out) in told.iter().zip(payload.chunks_exact_mut(PsnRange::LEN)) {
            PsnRange { first: Psn::new(first), count }.emit(out);
        }
        self.packet(Opcode::RC_ACKNOWLEDGE, psn).aeth(0x60, 0).payload(&payload)
    }

    fn ack(&self, psn: u32) -> Builder {
        self.packet(Opcode::RC_ACKNOWLEDGE, psn).aeth(0x1f, 0)
    }

    fn rate(&self) -> u64 {
        self.node.device.qp_rate(self.node.now, self.qpn).unwrap().rate
    }

    /// Lets timers act that are due, of which there must soon be none.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.node.device.handle_timeout(self.node.now);
            self.node.transmit();
        }
        let next = self.node.device.poll_timeout();
        assert!(next.is_none_or(|at| at > self.node.now), "{next:?} at {:?}", self.node.now);
    }
}

fn connect(node: &mut Node, change: impl FnOnce(&mut QpAttr)) -> (Qpn, Peer) {
    let (own, own_qpn) = (address(2), Qpn(0x55));
    let qpn = node.create(QpType::Rc);
    let (rq_psn, sq_psn) = (Psn::new(EPSN), Psn::new(PSN));
    let mut attr = QpAttr { rq_psn, sq_psn, ..node.attr_to(&own, own_qpn) };
    change(&mut attr);
    node.bring_up(qpn, &attr, QpState::Rts);
    (qpn, Peer { own, own_qpn, to: node.entry, to_qpn: qpn, qkey: 0, srqn: 0 })
}

fn psns(seen: &[Seen]) -> Vec<u32> {
    seen.iter().map(Seen::psn).collect()
}

#[test]
fn a_flood_of_cnps_leaves_the_lowest_rate_and_no_timer_in_the_past() {
    for algorithm in algorithms() {
        let mut pair = Pair::new(config(algorithm));
        let write = SendOp::Write(pair.node.remote(0));
        pair.node.post(pair.qpn, 1, write, 0, 20 << 10);
        let cnp = pair.cnp().frame();
        let (mut sent, mut wakes, mut next) = (0, 0, PSN);
        while sent < 20 {
            assert!(pair.node.now.nanos() < 2 * SEC, "{sent} packets");
            for _ in 0..20 {
                pair.node.receive(&cnp).unwrap();
                pair.node.now = pair.node.now + 5 * US;
            }
            assert!(pair.rate() >= MBIT);
            if pair.node.device.poll_timeout().is_some_and(|at| at <= pair.node.now) {
                wakes += 1;
                pair.node.device.handle_timeout(pair.node.now);
            }
            for seen in pair.node.transmit() {
                assert_eq!(seen.psn(), next, "nothing is sent again");
                next += 1;
                sent += 1;
            }
            pair.settle();
        }
        assert!(wakes <= 2 * sent, "{wakes} wakes for {sent} packets");
        pair.node.receive(&pair.ack(PSN + 19).frame()).unwrap();
        assert_eq!(statuses(&pair.node.sent()), [(1, WcStatus::Success)]);
        assert_eq!(pair.node.device.counters().local_ack_timeout_err, 0);
    }
}

#[test]
fn cnps_of_strangers_and_in_other_states_change_nothing() {
    let [dcqcn, ..] = algorithms();
    let mut pair = Pair::new(config(dcqcn));
    let stranger = Peer { own: address(3), ..pair.peer };
    let cnp = |peer: &Peer| peer.packet(Opcode::CNP, 0).fill(0, 16);
    let nowhere = Peer { to_qpn: Qpn(0x777), ..pair.peer };
    let table = [
        (cnp(&stranger).frame(), Discard::WrongPeer),
        (cnp(&nowhere).frame(), Discard::UnknownQp),
        (cnp(&pair.peer).bad_icrc().frame(), Discard::BadIcrc),
    ];
    for (frame, reason) in table {
        assert_eq!(pair.node.receive(&frame), Err(reason));
    }
    assert_eq!(pair.rate(), LINE);
    let good = pair.cnp().frame();
    pair.node.to_state(pair.qpn, QpState::Sqd);
    pair.node.receive(&good).unwrap();
    assert!(pair.rate() < LINE, "in SQD what was sent is still outstanding");
    for state in [QpState::Err, QpState::Reset] {
        pair.node.to_state(pair.qpn, state);
        assert_eq!(pair.node.receive(&good), Err(Discard::WrongState), "{state:?}");
        pair.settle();
    }
    let attr = pair.node.attr_to(&address(2), Qpn(0x55));
    pair.node.bring_up(pair.qpn, &attr, QpState::Init);
    assert_eq!(pair.node.receive(&good), Err(Discard::WrongState));
    assert_eq!(pair.node.device.counters().rp_cnp_handled, 1);
}

#[test]
fn marks_on_everything_owe_one_cnp_in_an_interval() {
    let [dcqcn, ..] = algorithms();
    let mut pair = Pair::new(config(dcqcn));
    let mut cnps = 0;
    for number in 0..3000u32 {
        // New ones, duplicates, and some far ahead of what is expected.
        let psn = EPSN + [number / 3, number / 6, number / 3 + 5000][number as usize % 3];
        let frame = pair.write(psn).change(|headers| headers.net.set_traffic_class(CE)).frame();
        pair.node.receive(&frame).ok();
        cnps += pair.node.transmit().iter().filter(|seen| seen.opcode() == Opcode::CNP).count();
        pair.node.now = pair.node.now + US;
    }
    assert_eq!(cnps, 3000 / 50);
}

/// A packet that came early is judged by what holds when its turn is up.
#[test]
fn what_was_kept_is_refused_if_its_key_has_gone_meanwhile() {
    let [dcqcn, ..] = algorithms();
    let mut pair = Pair::new(config(dcqcn));
    let access =
        ferroce_stack::verbs::Access::LOCAL_WRITE | ferroce_stack::verbs::Access::REMOTE_WRITE;
    let keys = pair.node.reg_mr(4096, 4096, access);
    let remote = Remote { addr: BASE + 4096, rkey: keys.rkey };
    let early = pair.packet(Opcode::RC_WRITE_ONLY, EPSN + 1).reth(remote, 64).fill(7, 64);
    pair.node.receive(&early.frame()).unwrap();
    pair.node.transmit();
    pair.node.dereg_mr(keys.mr);
    pair.node.receive(&pair.write(EPSN).frame()).unwrap();
    let sent = pair.node.transmit();
    assert_eq!(sent.last().and_then(Seen::syndrome), Some(0x62), "remote access error");
    assert_eq!(pair.node.device.memory().bytes(BASE + 4096, 1), [0]);
    assert_eq!(pair.node.state(pair.qpn), QpState::Err);
}

#[test]
fn what_was_kept_has_no_effect_once_the_qp_has_failed() {
    for state in [QpState::Err, QpState::Reset] {
        let [dcqcn, ..] = algorithms();
        let mut pair = Pair::new(config(dcqcn));
        pair.node.receive(&pair.write(EPSN + 1).frame()).unwrap();
        pair.node.to_state(pair.qpn, state);
        pair.node.receive(&pair.write(EPSN).frame()).unwrap_err();
        assert_eq!(pair.node.device.memory().bytes(BASE, 1), [0]);
        pair.settle();
    }
}

/// All QPs have one bound: it is there again, to the byte, when those that used it up are gone.
#[test]
fn thousands_of_qps_use_up_one_bound_and_give_it_back() {
    const QPS: usize = 2000;
    let frame_len = Pair::new(Config::default()).write(0).frame().len();
    let [dcqcn, ..] = algorithms();
    let config = Config { max_reorder_bytes: 500 * frame_len, max_qp: 4096, ..config(dcqcn) };
    let mut node = Node::with_config(address(1), config);
    for round in 0..3 {
        let qps: Vec<_> = (0..QPS).map(|_| connect(&mut node, |_| {})).collect();
        let before = node.device.counters().reordered_pkts;
        for &(_, peer) in &qps {
            let write = |psn| {
                let write = peer.packet(Opcode::RC_WRITE_ONLY, psn).reth(node.remote(0), 256);
                write.fill(1, 256).change(|headers| headers.bth.reserved7 = MARK).frame()
            };
            let early = write(EPSN + 1);
            node.receive(&early).ok();
        }
        assert_eq!(node.device.counters().reordered_pkts - before, 500, "round {round}");
        // Where there was no room, the peer goes back.
        let naks = node.transmit();
        assert_eq!(naks.iter().filter(|seen| seen.payload.is_empty()).count(), QPS - 500);
        for (number, (qpn, _)) in qps.into_iter().enumerate() {
            match number % 3 {
                0 => node.to_state(qpn, QpState::Err),
                1 => node.to_state(qpn, QpState::Reset),
                _ => {}
            }
            assert_eq!(node.device.destroy_qp(qpn), Ok(()));
        }
    }
}

/// Half of all PSNs: the end of the message is no longer ahead of its first packet.
#[test]
fn the_first_packet_of_the_longest_message_can_be_repaired() {
    let [dcqcn, ..] = algorithms();
    for op in [SendOp::Write, SendOp::Read] {
        let mut pair = Pair::with(config(dcqcn.clone()), |attr| attr.path_mtu = Mtu::Mtu256);
        // The peer shows the mark.
        pair.node.receive(&pair.write(EPSN).frame()).unwrap();
        let op = op(pair.node.remote(0));
        pair.node.post(pair.qpn, 1, op, 0, MAX_MESSAGE as u32);
        let first = pair.node.transmit();
        assert!(!first.is_empty());
        match op {
            SendOp::Write(_) => pair.node.receive(&pair.nak(PSN, &[(PSN + 1, 3)]).frame()).unwrap(),
            _ => {
                let answer = pair.packet(Opcode::RC_READ_RESPONSE_MIDDLE, PSN + 1).fill(1, 256);
                pair.node.receive(&answer.frame()).unwrap();
            }
        }
        assert_eq!(psns(&pair.node.transmit())[..1], [PSN], "{op:?}");
    }
}

/// Parts of a READ are owed up to a bound, whatever is asked for.
#[test]
fn a_flood_of_parts_of_a_read_is_bounded() {
    let [dcqcn, ..] = algorithms();
    let mut pair = Pair::new(config(dcqcn));
    let remote = |pair: &Pair, packet: u32| {
        let all = pair.node.remote(0);
        Remote { addr: all.addr + 1024 * u64::from(packet), ..all }
    };
    let read = pair.packet(Opcode::RC_READ_REQUEST, EPSN).reth(remote(&pair, 0), 60 << 10);
    pair.node.receive(&read.frame()).unwrap();
    assert_eq!(pair.node.transmit().len(), 60);
    for round in 0..50 {
        for packet in 0..60 {
            for len in [1, 1024, 2048, 4096] {
                let part = pair.packet(Opcode::RC_READ_REQUEST, EPSN + packet);
                let part = part.reth(remote(&pair, packet), len);
                pair.node.receive(&part.frame()).ok();
            }
        }
        let sent = pair.node.transmit().len();
        assert!(sent <= 64 * 4, "{sent} packets in round {round}");
    }
}

/// Frames of a peer that knows the connection and does what it likes.
fn any_frame(pair: &Pair, rng: &mut Rng, next: &mut u32) -> Vec<u8> {
    let near = |rng: &mut Rng, psn: u32| Psn::new(psn + rng.below(80) as u32).value();
    let request = Psn::new(*next + rng.below(6) as u32).value();
    let ahead = if rng.chance(0.5) { request } else { near(rng, *next) };
    let answer = near(rng, PSN);
    let remote = pair.node.remote(rng.below(8) * 512);
    let len = rng.below(9000) as u32;
    let builder = match rng.below(12) {
        0 => pair.cnp(),
        1 => pair.write(ahead),
        2 => pair.packet(Opcode::RC_READ_REQUEST, ahead).reth(remote, len),
        3 => pair.packet(Opcode::RC_FETCH_ADD, ahead).atomic(remote, 1, 0),
        4 => pair.packet(Opcode::RC_SEND_ONLY, ahead).fill(3, 100),
        5 => pair.packet(Opcode::RC_READ_RESPONSE_MIDDLE, answer).fill(4, 1024),
        6 => {
            let response = pair.packet(Opcode::RC_READ_RESPONSE_ONLY, answer).aeth(0x1f, 1);
            response.fill(5, rng.below(1025) as usize)
        }
        7 => pair.ack(answer),
        8 => pair.packet(Opcode::RC_ACKNOWLEDGE, answer).aeth(0x20 | rng.below(32) as u8, 0),
        9 => pair.packet(Opcode::RC_ATOMIC_ACKNOWLEDGE, answer).aeth(0x1f, 1).original(9),
        _ => {
            let told: Vec<(u32, u32)> =
                (0..rng.below(40)).map(|_| (near(rng, answer), rng.below(6) as u32)).collect();
            pair.nak(answer, &told)
        }
    };
    if rng.chance(0.3) {
        *next = next.wrapping_add(1);
    }
    let mark = if rng.chance(0.1) { rng.below(128) as u8 } else { MARK };
    let class = if rng.chance(0.3) { CE } else { 0 };
    let ask = rng.chance(0.3);
    let builder = builder.change(|headers| {
        headers.bth.reserved7 = mark;
        headers.bth.ack_req |= ask;
        headers.net.set_traffic_class(class);
    });
    builder.frame()
}

/// The state of both features is random, the PSNs wrap, QPs drain, fail and begin anew.
#[test]
fn whatever_a_peer_sends_work_ends_and_no_timer_stays_in_the_past() {
    let seeds = std::env::var("FERROCE_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..seeds.unwrap_or(150) {
        let mut rng = Rng::new(seed);
        let algorithm = algorithms()[rng.below(4) as usize].clone();
        let small =
            Config { max_reorder: 20, max_reorder_bytes: 20_000, window: 32, ..config(algorithm) };
        let mut pair = Pair::new(small);
        let mut next = EPSN;
        for _ in 0..600 {
            if pair.node.state(pair.qpn) == QpState::Err {
                pair.node.to_state(pair.qpn, QpState::Reset);
                let attr = pair.node.attr_to(&address(2), Qpn(0x55));
                let (rq_psn, sq_psn) = (Psn::new(EPSN), Psn::new(PSN));
                let attr = QpAttr { rq_psn, sq_psn, ..attr };
                pair.node.bring_up(pair.qpn, &attr, QpState::Rts);
                next = EPSN;
            }
            let remote = pair.node.remote(0);
            let op =
                [SendOp::Write(remote), SendOp::Read(remote), SendOp::Send][rng.below(3) as usize];
            let sges = [pair.node.sge(0, rng.below(9000) as u32)];
            if rng.chance(0.3) {
                let _ = pair.node.device.post_send(pair.qpn, &SendWr::new(1, op, &sges));
            }
            if rng.chance(0.02) {
                let to = [QpState::Sqd, QpState::Err, QpState::Rts][rng.below(3) as usize];
                let attr = QpAttr { qp_state: to, ..QpAttr::default() };
                let _ = pair.node.device.modify_qp(pair.qpn, &attr, AttrMask::STATE);
            }
            let frame = any_frame(&pair, &mut rng, &mut next);
            pair.node.receive(&frame).ok();
            let sent = pair.node.transmit().len();
            assert!(sent < 1000, "seed {seed}: {sent} packets for one");
            if rng.chance(0.3) {
                pair.node.now = pair.node.now + rng.below(2 * MS);
                pair.settle();
            }
        }
        // It falls silent: all that is posted ends, well or not.
        for _ in 0..3 {
            pair.node.run_for(20 * SEC);
            let attr = QpAttr { qp_state: QpState::Rts, ..QpAttr::default() };
            let _ = pair.node.device.modify_qp(pair.qpn, &attr, AttrMask::STATE);
        }
        pair.node.sent();
        let outstanding = pair.node.device.outstanding(pair.qpn);
        assert_eq!(outstanding.map(|(sends, _)| sends), Some(0), "seed {seed}");
        // All room is there again.
        let _ = pair.node.device.destroy_qp(pair.qpn);
        (pair.qpn, pair.peer) = connect(&mut pair.node, |_| {});
        let before = pair.node.device.counters().reordered_pkts;
        for psn in 1..100 {
            pair.node.receive(&pair.write(EPSN + 2 * psn).frame()).ok();
        }
        assert_eq!(pair.node.device.counters().reordered_pkts - before, 20, "seed {seed}");
    }
}

/// It knows that the peer has executed more than `una_psn` says, but must not act on that any more.
#[test]
fn a_response_that_fails_the_qp_leaves_no_timer_running() {
    let [dcqcn, ..] = algorithms();
    let mut pair = Pair::new(config(dcqcn));
    pair.node.receive(&pair.write(EPSN).frame()).unwrap();
    let (read, write) = (SendOp::Read(pair.node.remote(0)), SendOp::Write(pair.node.remote(0)));
    for (wr_id, op) in (0..).zip([read, write, write]) {
        pair.node.post(pair.qpn, wr_id, op, 0, 2048);
    }
    pair.node.transmit();
    // The first WRITE is executed; the READ before it has no answer yet, and then a wrong one.
    pair.node.receive(&pair.ack(PSN + 3).frame()).unwrap();
    let short = pair.packet(Opcode::RC_READ_RESPONSE_MIDDLE, PSN).fill(1, 512);
    pair.node.receive(&short.frame()).ok();
    let wrong = pair.packet(Opcode::RC_READ_RESPONSE_ONLY, PSN).aeth(0x1f, 0).fill(1, 512);
    pair.node.receive(&wrong.frame()).ok();
    assert_eq!(pair.node.state(pair.qpn), QpState::Err);
    pair.node.transmit();
    assert_eq!(pair.node.run_for(SEC).len(), 0);
    assert_eq!(pair.node.device.counters().local_ack_timeout_err, 0);
}

/// What is acknowledged lets the next work request fail, which has failed here; then nothing waits.
#[test]
fn an_rnr_nak_that_lets_the_qp_fail_leaves_no_timer_running() {
    for loss_recovery in LossRecovery::ALL {
        let mut pair = Pair::new(Config { loss_recovery, ..Config::default() });
        pair.node.post(pair.qpn, 1, SendOp::Send, 0, 100);
        let good = pair.node.sge(0, 1024);
        let sges = [good, Sge { lkey: good.lkey ^ 0xff00, ..good }];
        pair.node.post_wr(pair.qpn, &SendWr::new(2, SendOp::Send, &sges));
        assert_eq!(psns(&pair.node.transmit()), [PSN, PSN + 1]);
        let busy = pair.packet(Opcode::RC_ACKNOWLEDGE, PSN + 1).aeth(0x20 | 1, 0);
        pair.node.receive(&busy.frame()).unwrap();
        let expected = [(1, WcStatus::Success), (2, WcStatus::LocProtErr)];
        assert_eq!(statuses(&pair.node.sent()), expected);
        assert_eq!(pair.node.run_for(SEC).len(), 0);
        assert_eq!(pair.node.device.counters().local_ack_timeout_err, 0);
    }
}

/// Selective repeat tells congestion control of losses as go-back-N does.
#[test]
fn swift_hears_of_losses_that_selective_repeat_repairs() {
    let [.., swift] = algorithms();
    let mut pair = Pair::new(config(swift));
    pair.node.receive(&pair.write(EPSN).frame()).unwrap();
    let window =
        |pair: &Pair| pair.node.device.qp_rate(pair.node.now, pair.qpn).unwrap().window.unwrap();
    let widest = window(&pair);
    let write = SendOp::Write(pair.node.remote(0));
    pair.node.post(pair.qpn, 1, write, 0, 16 << 10);
    pair.node.transmit();
    pair.node.receive(&pair.nak(PSN, &[(PSN + 1, 3)]).frame()).unwrap();
    assert_eq!(window(&pair), widest / 2, "a request");
    let [.., swift] = algorithms();
    let mut pair = Pair::new(config(swift));
    pair.node.receive(&pair.write(EPSN).frame()).unwrap();
    let read = SendOp::Read(pair.node.remote(0));
    pair.node.post(pair.qpn, 1, read, 0, 16 << 10);
    pair.node.transmit();
    let answer = pair.packet(Opcode::RC_READ_RESPONSE_MIDDLE, PSN + 1).fill(1, 1024);
    pair.node.receive(&answer.frame()).unwrap();
    assert_eq!(window(&pair), widest / 2, "an answer");
}

/// A receiver that is not ready says nothing of the path.
#[test]
fn the_wait_for_a_receive_is_no_round_trip() {
    for loss_recovery in LossRecovery::ALL {
        let [.., swift] = algorithms();
        let mut pair = Pair::new(Config { loss_recovery, ..config(swift) });
        pair.node.receive(&pair.write(EPSN).frame()).unwrap();
        let window = |pair: &Pair| {
            pair.node.device.qp_rate(pair.node.now, pair.qpn).unwrap().window.unwrap()
        };
        let widest = window(&pair);
        pair.node.post(pair.qpn, 1, SendOp::Send, 0, 100);
        pair.node.transmit();
        // RNR NAK with the code of 10.24 ms.
        let busy = pair.packet(Opcode::RC_ACKNOWLEDGE, PSN).aeth(0x20 | 20, 0);
        pair.node.receive(&busy.frame()).unwrap();
        let again = pair.node.run_for(11 * MS);
        assert_eq!(again.len(), 1);
        pair.node.receive(&pair.ack(PSN).frame()).unwrap();
        assert_eq!(statuses(&pair.node.sent()), [(1, WcStatus::Success)]);
        assert_eq!(window(&pair), widest);
    }
}

/// A twentieth of all frames lost, rates cut again and again, PSNs that wrap: all ends, and the
/// bytes are right.
#[test]
fn both_at_five_percent_loss_finish_across_the_wrap_of_psns() {
    for (seed, algorithm) in (0..).zip(algorithms().into_iter().cycle().take(12)) {
        let rules = ["drop 5% of any", "mark ce 10% of any", "reorder 5% of any by 30us"];
        let mut world = World::new(WorldConfig {
            seed,
            device: config(algorithm),
            link: Link { rate_bps: Some(LINE), delay_ns: 5 * US, ..Link::default() },
            faults: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..WorldConfig::default()
        })
        .unwrap();
        let psns = [Psn::new(0xff_ff80), Psn::new(0xff_ffc0)];
        let options = ConnectOptions { timeout: 14, psns, ..ConnectOptions::default() };
        let (a, b) = world.connect_rc(0, 1, &options).unwrap();
        let local = world.register(&a, 300_000, options.access).unwrap();
        let remote = world.register(&b, 300_000, options.access).unwrap();
        for (wr_id, is_read) in (0..8).zip([false, true].into_iter().cycle()) {
            let (from, to) = if is_read { (&remote, &local) } else { (&local, &remote) };
            let fill = |byte: &mut u8| *byte = byte.wrapping_mul(31).wrapping_add(wr_id as u8 + 1);
            world.bytes_mut(from).iter_mut().for_each(fill);
            let op = if is_read { SendOp::Read } else { SendOp::Write };
            let sges = [local.sge()];
            let wr = SendWr::new(wr_id, op(remote.remote()), &sges);
            world.device(0).post_send(a.qpn, &wr).unwrap();
            let mut done = Vec::new();
            let ended = |world: &mut World| {
                done.extend(world.poll(0, a.send_cq).unwrap());
                !done.is_empty()
            };
            world.run_until(ended, 600 * SEC).unwrap();
            assert_eq!((done[0].wr_id, done[0].status), (wr_id, WcStatus::Success), "seed {seed}");
            assert!(world.bytes(from) == world.bytes(to), "seed {seed}");
        }
    }
}

/// A QP that waited for its class to go on leaves no place in line to the one that gets its slot.
#[test]
fn qps_destroyed_while_their_class_is_paused_are_forgotten() {
    let [dcqcn, ..] = algorithms();
    let mut node = Node::with_config(address(1), Config { max_qp: 3, ..config(dcqcn) });
    let [first, second, _] = [0; 3].map(|_| connect(&mut node, |_| {}).0);
    let post = |node: &mut Node, qpn, wr_id| {
        let write = SendOp::Write(node.remote(0));
        node.post(qpn, wr_id, write, 0, 100 * wr_id as u32);
        assert!(node.transmit().is_empty());
    };
    node.device.pause_dscps(1);
    post(&mut node, first, 1);
    post(&mut node, second, 2);
    assert_eq!(node.device.destroy_qp(first), Ok(()));
    let (third, _) = connect(&mut node, |_| {});
    post(&mut node, third, 3);
    node.device.pause_dscps(0);
    let lens: Vec<usize> = node.transmit().iter().map(|seen| seen.payload.len()).collect();
    assert_eq!(lens, [200, 300], "in the order they came to wait");
}
