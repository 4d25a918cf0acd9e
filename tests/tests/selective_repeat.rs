//! Selective repeat: what it sends again, how it is agreed upon, and what a hostile peer can make of
//! it. That all work is done once and in order is shown by the simulation.

use ferroce::frame::fault::Rule;
use ferroce::frame::wire::Link as WireLink;
use ferroce::rand::Rng;
use ferroce::world::{ConnectOptions, Endpoint, World, WorldConfig};
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{Mtu, QpAttr, QpState, QpType, Qpn, SendOp, SendWr, WcStatus};
use ferroce_stack::wire::{Opcode, PsnRange};
use ferroce_stack::{Config, LossRecovery};
use ferroce_tests::node::address;
use ferroce_tests::{Builder, EPSN, MS, Node, PSN, Peer, Seen, statuses};

const MARK: u8 = LossRecovery::SelectiveRepeat.mark();

fn config(loss_recovery: LossRecovery) -> Config {
    Config { loss_recovery, ..Config::default() }
}

/// A world of two nodes with 16 work requests of `op` outstanding until all are done.
struct Load {
    world: World,
    a: Endpoint,
}

impl Load {
    fn run(recovery: LossRecovery, is_read: bool, rules: &str) -> Load {
        const COUNT: u64 = 64;
        const LEN: usize = 256 << 10;
        let link =
            WireLink { rate_bps: Some(10_000_000_000), delay_ns: 5000, ..WireLink::default() };
        let faults = Rule::parse_all(rules).unwrap();
        let config =
            WorldConfig { link, faults, device: config(recovery), ..WorldConfig::default() };
        let mut world = World::new(config).unwrap();
        let psns = [Psn::new(0); 2];
        let options =
            ConnectOptions { mtu: Mtu::Mtu4096, timeout: 10, psns, ..ConnectOptions::default() };
        let (a, b) = world.connect_rc(0, 1, &options).unwrap();
        let local = world.register(&a, LEN, options.access).unwrap();
        let remote = world.register(&b, LEN, options.access).unwrap();
        let op = match is_read {
            true => SendOp::Read(remote.remote()),
            false => SendOp::Write(remote.remote()),
        };
        let (mut posted, mut done) = (0, 0);
        let finished = |world: &mut World| {
            for wc in world.poll(0, a.send_cq).unwrap() {
                assert_eq!((wc.wr_id, wc.status), (done, WcStatus::Success));
                done += 1;
            }
            while posted < COUNT && posted - done < 16 {
                let sges = [local.sge()];
                let wr = SendWr::new(posted, op, &sges);
                world.device(0).post_send(a.qpn, &wr).unwrap();
                posted += 1;
            }
            done == COUNT
        };
        world.run_until(finished, 60_000_000_000).unwrap();
        Load { world, a }
    }

    /// Packets with data beyond those that were needed, and frames lost.
    fn extra_and_lost(&mut self, is_read: bool) -> (u64, u64) {
        let counters = self.world.device_ref(usize::from(is_read)).counters();
        let extra = match is_read {
            true => counters.sent_pkts - 64 * 64,
            false => counters.retransmitted_pkts,
        };
        assert!(self.world.device_ref(0).outstanding(self.a.qpn) == Some((0, 0)));
        (extra, self.world.wire().counters().dropped)
    }
}

/// One percent of 4096 packets: go-back-N sends many again for each, selective repeat about one.
#[test]
fn what_is_sent_again_is_about_what_was_lost() {
    for is_read in [false, true] {
        let rules = "drop 1% of any";
        let mut all = Load::run(LossRecovery::GoBackN, is_read, rules);
        let mut one = Load::run(LossRecovery::SelectiveRepeat, is_read, rules);
        let (all, all_lost) = all.extra_and_lost(is_read);
        let (one, one_lost) = one.extra_and_lost(is_read);
        println!("read {is_read}: go-back-N {all} for {all_lost}, selective {one} for {one_lost}");
        assert!(one_lost > 20 && one <= one_lost * 5 / 4, "{one} for {one_lost} lost");
        assert!(all > 4 * one, "go-back-N sends {all} again, selective repeat {one}");
    }
}

/// A packet that is lost again and again is found each time by what left after it.
#[test]
fn a_lost_repetition_does_not_wait_for_the_timer() {
    let write = "drop 1..3rd rc-write psn 1000";
    for (is_read, rules) in [(false, write), (true, "drop 1st rc-read-response psn 1000")] {
        let mut load = Load::run(LossRecovery::SelectiveRepeat, is_read, rules);
        let (extra, lost) = load.extra_and_lost(is_read);
        assert_eq!(extra, lost, "{rules}");
        assert_eq!(load.world.device_ref(0).counters().local_ack_timeout_err, 0, "{rules}");
    }
}

/// One of ours and a scripted peer that speaks selective repeat, or something like it.
struct Pair {
    node: Node,
    peer: Peer,
    qpn: Qpn,
}

impl Pair {
    fn new(config: Config) -> Pair {
        let mut node = Node::with_config(address(1), config);
        let (own, own_qpn) = (address(2), Qpn(0x55));
        let qpn = node.create(QpType::Rc);
        let (rq_psn, sq_psn) = (Psn::new(EPSN), Psn::new(PSN));
        let attr = QpAttr { rq_psn, sq_psn, ..node.attr_to(&own, own_qpn) };
        node.bring_up(qpn, &attr, QpState::Rts);
        let peer = Peer { own, own_qpn, to: node.entry, to_qpn: qpn, qkey: 0, srqn: 0 };
        Pair { node, peer, qpn }
    }

    fn packet(&self, opcode: Opcode, psn: u32) -> Builder {
        self.peer.packet(opcode, psn).change(|headers| headers.bth.reserved7 = MARK)
    }

    fn write(&self, psn: u32) -> Builder {
        let remote = self.node.remote(0);
        self.packet(Opcode::RC_WRITE_ONLY, psn).reth(remote, 256).fill(psn as u8, 256)
    }

    fn ranges(seen: &Seen) -> Vec<(u32, u32)> {
        PsnRange::parse_all(&seen.payload).map(|it| (it.first.value(), it.count)).collect()
    }
}

#[test]
fn a_nak_tells_what_has_come_and_the_rest_is_handled_in_its_turn() {
    let mut pair = Pair::new(config(LossRecovery::SelectiveRepeat));
    for psn in [EPSN + 1, EPSN + 2, EPSN + 4] {
        pair.node.receive(&pair.write(psn).frame()).unwrap();
    }
    let sent = pair.node.transmit();
    assert_eq!(sent.len(), 1, "the second NAK says what the first would");
    assert_eq!((sent[0].psn(), sent[0].headers.bth.reserved7), (EPSN, MARK));
    assert_eq!(Pair::ranges(&sent[0]), [(EPSN + 1, 2), (EPSN + 4, 1)]);
    pair.node.receive(&pair.write(EPSN).frame()).unwrap();
    let sent = pair.node.transmit();
    assert_eq!((sent.len(), sent[0].psn()), (1, EPSN + 3));
    assert_eq!(Pair::ranges(&sent[0]), [(EPSN + 4, 1)]);
    assert_eq!(pair.node.device.memory().bytes(ferroce_tests::BASE, 1), [(EPSN + 2) as u8]);
    pair.node.receive(&pair.write(EPSN + 3).frame()).unwrap();
    let sent = pair.node.transmit();
    assert_eq!((sent.len(), sent[0].psn(), sent[0].payload.len()), (1, EPSN + 4, 0));
}

#[test]
fn only_what_is_missing_is_sent_again() {
    let mut pair = Pair::new(config(LossRecovery::SelectiveRepeat));
    let write = SendOp::Write(pair.node.remote(0));
    pair.node.post(pair.qpn, 1, write, 0, 8 << 10);
    let first = pair.node.transmit();
    assert!(first.iter().all(|seen| seen.headers.bth.reserved7 == MARK));
    let told = [(PSN + 2, 1), (PSN + 4, 3)].map(|(first, count)| {
        let mut bytes = [0; PsnRange::LEN];
        PsnRange { first: Psn::new(first), count }.emit(&mut bytes);
        bytes
    });
    let nak = pair.packet(Opcode::RC_ACKNOWLEDGE, PSN + 1).aeth(0x60, 0).payload(&told.concat());
    pair.node.receive(&nak.frame()).unwrap();
    let psns = |seen: Vec<Seen>| seen.iter().map(Seen::psn).collect::<Vec<_>>();
    assert_eq!(psns(pair.node.transmit()), [PSN + 1, PSN + 3]);
    pair.node.receive(&nak.frame()).unwrap();
    assert_eq!(psns(pair.node.transmit()), [0; 0], "one resending for one loss");
    // A NAK without ranges is go-back-N's.
    pair.node.receive(&pair.packet(Opcode::RC_ACKNOWLEDGE, PSN + 3).aeth(0x60, 0).frame()).unwrap();
    assert_eq!(psns(pair.node.transmit()), [PSN + 3, PSN + 4, PSN + 5, PSN + 6, PSN + 7]);
    // A timeout asks with the first alone; what its answer does not tell of was lost.
    let again: Vec<u32> = pair.node.run_for(68 * MS).iter().map(|(_, seen)| seen.psn()).collect();
    assert_eq!(again, [PSN + 3]);
    pair.node.receive(&pair.packet(Opcode::RC_ACKNOWLEDGE, PSN + 3).aeth(0x1f, 0).frame()).unwrap();
    assert_eq!(psns(pair.node.transmit()), [PSN + 4, PSN + 5, PSN + 6, PSN + 7]);
    pair.node.receive(&pair.packet(Opcode::RC_ACKNOWLEDGE, PSN + 7).aeth(0x1f, 1).frame()).unwrap();
    assert_eq!(statuses(&pair.node.sent()), [(1, WcStatus::Success)]);
}

/// Without the mark, or with any other bits in its place, all is as ever.
#[test]
fn a_foreign_peer_gets_go_back_n() {
    for (own, marks) in [(LossRecovery::GoBackN, MARK), (LossRecovery::SelectiveRepeat, 0x7f)] {
        let mut pair = Pair::new(config(own));
        for psn in [EPSN + 1, EPSN + 2, EPSN + 4] {
            let write = pair.write(psn).change(|headers| headers.bth.reserved7 = marks);
            pair.node.receive(&write.frame()).ok();
        }
        let sent = pair.node.transmit();
        assert_eq!((sent.len(), sent[0].psn(), sent[0].payload.len()), (1, EPSN, 0));
        assert_eq!(sent[0].headers.bth.reserved7, 0);
        assert_eq!(pair.node.device.counters().reordered_pkts, 0);
    }
}

#[test]
fn what_a_peer_can_make_be_kept_is_bounded_and_given_back() {
    let max_reorder_bytes = 100 * 400;
    let recovery = LossRecovery::SelectiveRepeat;
    let mut pair = Pair::new(Config { max_reorder: 50, max_reorder_bytes, ..config(recovery) });
    let flood = |pair: &mut Pair| {
        let before = pair.node.device.counters().reordered_pkts;
        for psn in 1..2000 {
            pair.node.receive(&pair.write(EPSN + 7 * psn).frame()).ok();
            assert!(pair.node.transmit().len() <= 1);
        }
        pair.node.device.counters().reordered_pkts - before
    };
    assert_eq!(flood(&mut pair), 50);
    assert_eq!(flood(&mut pair), 0);
    // The end of a QP gives its room to others, in whatever way it ends.
    for ending in [QpState::Reset, QpState::Err, QpState::Rts] {
        for _ in 0..20 {
            match ending {
                QpState::Rts => assert_eq!(pair.node.device.destroy_qp(pair.qpn), Ok(())),
                _ => pair.node.to_state(pair.qpn, ending),
            }
            let qpn = pair.node.create(QpType::Rc);
            let attr = pair.node.attr_to(&address(2), Qpn(0x55));
            let attr = QpAttr { rq_psn: Psn::new(EPSN), ..attr };
            pair.node.bring_up(qpn, &attr, QpState::Rts);
            (pair.qpn, pair.peer.to_qpn) = (qpn, qpn);
            assert_eq!(flood(&mut pair), 50, "{ending:?}");
        }
    }
}

/// Ranges of any content and length make nothing but what is outstanding leave again.
#[test]
fn whatever_a_nak_tells_only_what_is_outstanding_is_sent_again() {
    let mut rng = Rng::new(7);
    for _ in 0..300 {
        let mut pair = Pair::new(config(LossRecovery::SelectiveRepeat));
        let (read, write) = (SendOp::Read(pair.node.remote(0)), SendOp::Write(pair.node.remote(0)));
        for (wr_id, op) in (0..).zip([write, read, write, read, write]) {
            pair.node.post(pair.qpn, wr_id, op, 0, 20 << 10);
        }
        pair.node.transmit();
        for _ in 0..20 {
            let mut payload = vec![0; rng.below(300) as usize];
            payload.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
            if rng.chance(0.7) {
                payload = (0..rng.below(40)).flat_map(|_| near(&mut rng)).collect();
            }
            let psn = PSN + rng.below(110) as u32;
            let syndrome = if rng.chance(0.8) { 0x60 } else { 0x1f };
            let nak = pair.packet(Opcode::RC_ACKNOWLEDGE, psn).aeth(syndrome, 0).payload(&payload);
            pair.node.receive(&nak.frame()).ok();
            let sent = pair.node.transmit();
            assert!(sent.len() <= 110, "{} packets for one NAK", sent.len());
            assert!(sent.iter().all(|seen| (PSN..PSN + 100).contains(&seen.psn())));
        }
    }
}

/// A range about what is outstanding.
fn near(rng: &mut Rng) -> [u8; PsnRange::LEN] {
    let first = Psn::new(PSN + rng.below(120) as u32);
    let mut bytes = [0; PsnRange::LEN];
    PsnRange { first, count: rng.below(5) as u32 }.emit(&mut bytes);
    bytes
}

/// Up to a fifth of all frames lost, repeated, delayed and damaged each: additions to one word are
/// made once each, and complete in order. A connection may run out of retries then, which leaves
/// open only whether its last addition was made.
#[test]
fn additions_are_made_once_on_any_link() {
    const ADDITIONS: u64 = 500;
    for percent in [0.01, 0.1, 1.0, 5.0, 20.0] {
        let rules = format!(
            "drop {percent}% of any\nduplicate {percent}% of any\n\
             reorder {percent}% of any by 20us\ncorrupt {percent}% of any"
        );
        let faults = Rule::parse_all(&rules).unwrap();
        let device = config(LossRecovery::SelectiveRepeat);
        let mut world =
            World::new(WorldConfig { faults, device, ..WorldConfig::default() }).unwrap();
        let (mut made, mut connections) = (0, 0);
        while made < ADDITIONS {
            made += add_until_given_up(&mut world, ADDITIONS - made, &rules);
            connections += 1;
        }
        println!("{connections} connections for {rules}");
    }
}

/// Makes `count` additions of a new connection, one after the other; how many it has tried, the last
/// of which may have failed.
fn add_until_given_up(world: &mut World, count: u64, rules: &str) -> u64 {
    let options = ConnectOptions { timeout: 8, retry_cnt: 7, ..ConnectOptions::default() };
    let (a, b) = world.connect_rc(0, 1, &options).unwrap();
    let local = world.register(&a, 8, options.access).unwrap();
    let remote = world.register(&b, 8, options.access).unwrap();
    let op = SendOp::FetchAdd { remote: remote.remote(), add: 1 };
    let word = |world: &World, buffer| u64::from_ne_bytes(world.bytes(buffer).try_into().unwrap());
    for number in 0..count {
        let sges = [local.sge()];
        world.device(0).post_send(a.qpn, &SendWr::new(number, op, &sges)).unwrap();
        let mut done = Vec::new();
        let finished = |world: &mut World| {
            done.extend(world.poll(0, a.send_cq).unwrap());
            !done.is_empty()
        };
        world.run_until(finished, 1_000_000_000).unwrap();
        assert_eq!(done.len(), 1, "{rules}");
        assert_eq!(done[0].wr_id, number, "{rules}");
        if done[0].status == WcStatus::RetryExcErr {
            // What is on its way yet makes no further one.
            world.run_for(MS);
            assert!((number..=number + 1).contains(&word(world, &remote)), "{rules}");
            return number + 1;
        }
        assert_eq!(done[0].status, WcStatus::Success, "{rules}");
        assert_eq!(word(world, &local), number, "{rules}");
        assert_eq!(word(world, &remote), number + 1, "{rules}");
    }
    count
}
