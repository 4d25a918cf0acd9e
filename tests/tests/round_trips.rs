//! Algorithms that live on round trips measure one all the time, however slow a QP has become:
//! which packets ask for an ACK for that, and which answers tell how long a round trip takes.

use ferroce_stack::congestion::{self, Algorithm, dcqcn, swift, timely};
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{QpAttr, QpState, QpType, Qpn, SendOp, WcStatus};
use ferroce_stack::wire::{Opcode, PsnRange};
use ferroce_stack::{Config, LossRecovery};

use ferroce_tests::node::address;
use ferroce_tests::{Builder, EPSN, MS, Node, PSN, Peer, Seen, US, statuses};

const MARK: u8 = LossRecovery::SelectiveRepeat.mark();
const LINE: u64 = 10_000_000_000;
const ACK: u8 = 0x1f;
const SEQUENCE_NAK: u8 = 0x60;

/// TIMELY to which every round trip is so long that it halves the rate: that tells of each which is
/// measured. A loss halves it, too.
fn halving() -> Algorithm {
    let params = timely::Params {
        t_low: 1,
        t_high: 1,
        min_rtt: 1,
        min_rate: 1,
        beta: 1000,
        ..timely::Params::paper()
    };
    Algorithm::Timely(params)
}

/// One of ours and a scripted peer, to which 32 packets are on their way.
struct Pair {
    node: Node,
    peer: Peer,
    qpn: Qpn,
}

impl Pair {
    fn new(algorithm: Option<Algorithm>, qp_type: QpType, config: Config) -> Pair {
        let congestion = algorithm.map(|algorithm| congestion::Config::new(algorithm, LINE));
        let mut node = Node::with_config(address(1), Config { congestion, ..config });
        let (own, own_qpn) = (address(2), Qpn(0x55));
        let qpn = node.create(qp_type);
        let (rq_psn, sq_psn) = (Psn::new(EPSN), Psn::new(PSN));
        let attr = QpAttr { rq_psn, sq_psn, ..node.attr_to(&own, own_qpn) };
        node.bring_up(qpn, &attr, QpState::Rts);
        let peer = Peer { own, own_qpn, to: node.entry, to_qpn: qpn, qkey: 0, srqn: 0 };
        Pair { node, peer, qpn }
    }

    fn writing(algorithm: Algorithm, config: Config) -> Pair {
        let mut pair = Pair::new(Some(algorithm), QpType::Rc, config);
        pair.write(32);
        pair
    }

    /// With selective repeat, on which the peer's first packet agrees.
    fn selective(algorithm: Algorithm) -> Pair {
        let loss_recovery = LossRecovery::SelectiveRepeat;
        let config = Config { loss_recovery, ..Config::default() };
        let mut pair = Pair::new(Some(algorithm), QpType::Rc, config);
        let first = pair.peer.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(pair.node.remote(0), 4);
        pair.node.receive(&marked(first.fill(0, 4)).frame()).unwrap();
        pair.write(32);
        pair
    }

    fn write(&mut self, packets: u32) {
        let write = SendOp::Write(self.node.remote(0));
        self.node.post(self.qpn, 1, write, 0, packets << 10);
    }

    /// The next packet, at the moment when its turn comes.
    fn next(&mut self) -> Seen {
        loop {
            if let Some(seen) = self.node.next_frame() {
                return seen;
            }
            self.node.now = self.node.device.poll_timeout().expect("something is up");
            self.node.device.handle_timeout(self.node.now);
        }
    }

    /// The next packets as `(PSN, whether it asks for an ACK)`, PSNs counted from the first.
    fn asking(&mut self, packets: usize) -> Vec<(u32, bool)> {
        let mut next = || {
            let bth = self.next().headers.bth;
            (bth.psn.value() - PSN, bth.ack_req)
        };
        (0..packets).map(|_| next()).collect()
    }

    /// The peer's answer to packet `number`, 10 microseconds later.
    fn answer(&mut self, syndrome: u8, number: u32, told: &[(u32, u32)]) {
        self.node.now = self.node.now + 10 * US;
        let mut payload = vec![0; told.len() * PsnRange::LEN];
        for (&(first, count), out) in told.iter().zip(payload.chunks_exact_mut(PsnRange::LEN)) {
            PsnRange { first: Psn::new(PSN + first), count }.emit(out);
        }
        let packet = self.peer.packet(Opcode::RC_ACKNOWLEDGE, PSN + number).aeth(syndrome, 0);
        self.node.receive(&marked(packet.payload(&payload)).frame()).unwrap();
    }

    fn ack(&mut self, number: u32) {
        self.answer(ACK, number, &[]);
    }

    /// How often the rate has been halved.
    fn halvings(&self) -> u32 {
        let rate = self.node.device.qp_rate(self.node.now, self.qpn).unwrap().rate;
        (LINE / rate).ilog2()
    }
}

fn marked(builder: Builder) -> Builder {
    builder.change(|headers| headers.bth.reserved7 = MARK)
}

#[test]
fn an_ack_is_asked_for_while_none_is_on_its_way_and_so_once_in_a_round_trip() {
    for algorithm in
        [Algorithm::Swift(swift::Params::default()), Algorithm::Timely(timely::Params::paper())]
    {
        let mut pair = Pair::writing(algorithm, Config::default());
        assert_eq!(pair.asking(4), [(0, true), (1, false), (2, false), (3, false)]);
        pair.ack(0);
        assert_eq!(pair.asking(3), [(4, true), (5, false), (6, false)]);
        pair.ack(4);
        pair.ack(6);
        assert_eq!(pair.asking(2), [(7, true), (8, false)]);
    }
}

#[test]
fn at_the_lowest_rate_every_packet_is_measured() {
    let mut pair = Pair::writing(halving(), Config::default());
    for number in 0..31 {
        assert_eq!(pair.asking(1), [(number, true)]);
        pair.ack(number);
        assert_eq!(pair.halvings(), (number + 1).min(13));
    }
    assert_eq!(pair.asking(1), [(31, true)]);
    pair.ack(31);
    assert_eq!(statuses(&pair.node.sent()), [(1, WcStatus::Success)]);
    assert_eq!(pair.node.device.counters().local_ack_timeout_err, 0);
}

#[test]
fn what_does_not_live_on_round_trips_asks_as_seldom_as_without() {
    for algorithm in [None, Some(Algorithm::Dcqcn(dcqcn::Params::paper()))] {
        let config = Config { ack_every: 12, ..Config::default() };
        let mut pair = Pair::new(algorithm, QpType::Rc, config);
        pair.write(32);
        let asking: Vec<u32> =
            pair.asking(32).into_iter().filter(|&(_, asks)| asks).map(|(psn, _)| psn).collect();
        assert_eq!(asking, [11, 23, 31]);
    }
}

/// Held back, it would tell its sender of a longer way than there is.
#[test]
fn no_ack_is_held_where_round_trips_are_measured() {
    let (swift, dcqcn) = (swift::Params::default(), dcqcn::Params::paper());
    for (algorithm, holds) in [
        (None, true),
        (Some(Algorithm::Dcqcn(dcqcn)), true),
        (Some(Algorithm::Swift(swift)), false),
        (Some(halving()), false),
    ] {
        let name = format!("{algorithm:?}");
        let mut pair = Pair::new(algorithm, QpType::Rc, Config::default());
        let write = pair.peer.packet(Opcode::RC_WRITE_ONLY, EPSN).reth(pair.node.remote(0), 8);
        pair.node.receive(&write.fill(1, 8).ack_req().frame()).unwrap();
        assert_eq!(pair.node.device.hold_ack(), holds, "{name}");
    }
}

#[test]
fn on_an_unreliable_connection_nothing_is_asked() {
    let mut pair = Pair::new(Some(halving()), QpType::Uc, Config::default());
    for _ in 0..3 {
        pair.write(4);
        assert!(pair.asking(4).iter().all(|&(_, asks)| !asks));
    }
    assert_eq!(pair.node.sent().len(), 3);
    assert_eq!(pair.halvings(), 0);
}

#[test]
fn a_read_is_measured_by_its_first_response_and_nothing_is_sent_for_that() {
    let mut pair = Pair::new(Some(halving()), QpType::Rc, Config::default());
    let read = SendOp::Read(pair.node.remote(0));
    pair.node.post(pair.qpn, 1, read, 0, 4 << 10);
    pair.write(4);
    assert_eq!(pair.next().opcode(), Opcode::RC_READ_REQUEST);
    assert_eq!(pair.asking(1), [(4, false)], "the READ is being measured");
    for (number, opcode) in (0..).zip([
        Opcode::RC_READ_RESPONSE_FIRST,
        Opcode::RC_READ_RESPONSE_MIDDLE,
        Opcode::RC_READ_RESPONSE_MIDDLE,
    ]) {
        pair.node.now = pair.node.now + 10 * US;
        let response = pair.peer.packet(opcode, PSN + number).fill(7, 1024);
        let has_aeth = opcode == Opcode::RC_READ_RESPONSE_FIRST;
        let response = if has_aeth { response.aeth(ACK, 0) } else { response };
        pair.node.receive(&response.frame()).unwrap();
        assert_eq!(pair.halvings(), 1, "response {number}");
    }
    assert_eq!(pair.asking(1), [(5, true)]);
}

#[test]
fn what_is_sent_again_is_not_measured_and_what_follows_is() {
    let mut pair = Pair::writing(halving(), Config::default());
    assert_eq!(pair.asking(3), [(0, true), (1, false), (2, false)]);
    pair.answer(SEQUENCE_NAK, 0, &[]);
    assert_eq!(pair.halvings(), 1, "the loss");
    assert_eq!(pair.asking(2), [(0, false), (1, false)]);
    pair.ack(0);
    assert_eq!(pair.halvings(), 1);
    assert_eq!(pair.asking(3), [(2, false), (3, true), (4, false)]);
    pair.ack(3);
    assert_eq!(pair.halvings(), 2);
}

#[test]
fn with_selective_repeat_none_is_measured_that_waits_for_what_is_missing() {
    let mut pair = Pair::selective(halving());
    assert_eq!(pair.asking(4), [(0, true), (1, false), (2, false), (3, false)]);
    pair.answer(SEQUENCE_NAK, 0, &[(1, 3)]);
    assert_eq!(pair.halvings(), 1, "the loss");
    // What is sent again asks, as always; what is new does not.
    assert_eq!(pair.asking(3), [(0, true), (4, false), (5, false)]);
    pair.ack(3);
    assert_eq!(pair.halvings(), 1);
    assert_eq!(pair.asking(2), [(6, true), (7, false)]);
    pair.ack(6);
    assert_eq!(pair.halvings(), 2);
}

#[test]
fn a_lost_ack_delays_the_measurement_and_does_not_end_it() {
    let mut pair = Pair::writing(halving(), Config { ack_every: 8, ..Config::default() });
    let asking: Vec<bool> = pair.asking(9).into_iter().map(|(_, asks)| asks).collect();
    assert_eq!(asking, [true, false, false, false, false, false, false, false, true]);
    pair.ack(8);
    assert_eq!(pair.halvings(), 1);
    assert_eq!(pair.asking(2), [(9, true), (10, false)]);
}

#[test]
fn after_an_ack_timeout_the_next_new_packet_is_measured() {
    for selective in [false, true] {
        let mut pair = if selective {
            Pair::selective(halving())
        } else {
            Pair::writing(halving(), Config::default())
        };
        assert_eq!(pair.asking(2), [(0, true), (1, false)]);
        // The peer falls silent before it has room for more.
        pair.node.run_for(1);
        let all = pair.node.run_for(100 * MS);
        assert!(all.iter().any(|(_, seen)| seen.psn() == PSN), "the timeout");
        let halved = pair.halvings();
        pair.ack(31);
        assert_eq!(pair.halvings(), halved, "selective {selective}: sent again");
        pair.write(4);
        assert_eq!(pair.asking(2), [(32, true), (33, false)]);
    }
}
