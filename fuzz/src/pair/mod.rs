//! Two devices, connected on every service through a link whose faults the input chooses, as it
//! does what their applications do.
//!
//! Once the faults are over, all comes to an end; each work request has completed once and in
//! order; and on RC memory holds what a model says, byte for byte.

mod faults;
mod side;

use ferroce::world::{ConnectOptions, World, WorldConfig};
use ferroce_stack::Config;
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::{AttrMask, Mtu, QpAttr, QpCap, QpState};

use crate::choices::Choices;
use crate::input::Input;
use side::{Service, Side};

/// Steps an input may take; a longer one is cut.
const STEPS_MAX: usize = 200;
/// Faults below which no retry counter can run out.
const FAULTS_SURVIVED: u64 = 3;
/// Rounds in which all comes to an end, and how long each is: a few ACK timeouts.
const ROUNDS_MAX: usize = 200;
const ROUND_NS: u64 = 4_000_000;
const QKEY: u32 = 0x1111_1111;

/// For calls whose arguments are valid.
const VALID: &str = "the harness's own call is valid";

struct Pair {
    world: World,
    sides: [Side; 2],
}

/// Runs the input.
///
/// # Panics
///
/// If a device does what it must not.
pub fn pair(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        pair.step(&mut input);
    }
    pair.finish();
}

impl Pair {
    fn new(input: &mut Input) -> Pair {
        let faults = faults::rules(input);
        let device = Config {
            max_qp: 7,
            max_mr: 32,
            max_objects: 32,
            max_cqe: 1024,
            window: input.pick(&[1, 3, 16, 64]),
            ack_every: input.pick(&[1, 4, 64]),
            burst: input.pick(&[1, 4, 16]),
            max_reorder: 8,
            ..Config::default()
        };
        let choices = Choices::read(input);
        let addressing = choices.addressing;
        let devices = [0, 1].map(|node| choices.apply(node, &device)).to_vec();
        let options = options(input);
        let arena_capacity = 1 << 17;
        let config = WorldConfig {
            device,
            devices,
            addressing,
            faults,
            arena_capacity,
            ..Default::default()
        };
        let mut world = World::new(config).expect(VALID);
        let rc = world.connect_rc(0, 1, &options).expect(VALID);
        let uc = world.connect_uc(0, 1, &options).expect(VALID);
        let ud = [0, 1].map(|node| world.ud(node, &options).expect(VALID));
        let ahs = [0, 1].map(|node| {
            let to = world.ah_attr(1 - node);
            world.create_ah(&ud[node], &to).expect(VALID)
        });
        let first = Side::new(&mut world, [rc.0, uc.0, ud[0]], (ahs[0], ud[1].qpn));
        let second = Side::new(&mut world, [rc.1, uc.1, ud[1]], (ahs[1], ud[0].qpn));
        Pair { world, sides: [first, second] }
    }

    fn step(&mut self, input: &mut Input) {
        let what = input.byte();
        let [first, second] = &mut self.sides;
        let (side, peer) = if what & 0x80 == 0 { (first, second) } else { (second, first) };
        let world = &mut self.world;
        match what & 15 {
            0..=6 => side.post_send(world, peer, input),
            7..=9 => {
                let service = input.pick(&Service::ALL);
                for _ in 0..=what >> 4 & 7 {
                    side.post_recv(world, service);
                }
            }
            10 => side.poll(world, peer),
            11 => modify(world, side, QpState::Sqd),
            12 => modify(world, side, QpState::Rts),
            _ => world.run_for(1 << (input.byte() % 22)),
        }
    }

    /// The faults are over: all that was posted is done.
    fn finish(&mut self) {
        let Pair { world, sides: [first, second] } = self;
        world.wire().faults_mut().clear();
        let mut idle = false;
        for _ in 0..ROUNDS_MAX {
            for side in [&*first, &*second] {
                modify(world, side, QpState::Rts);
            }
            first.poll(world, second);
            second.poll(world, first);
            let more = first.post_owed(world, second) | second.post_owed(world, first);
            idle = !more && !world.step();
            if idle {
                break;
            }
            // Whoever has not enough receives is asked again and again, until the next round.
            let _ = world.run_until_idle(ROUND_NS);
        }
        assert!(idle, "it does not come to an end");
        let counters = world.wire_ref().counters();
        let faults = counters.dropped + counters.delayed + counters.corrupted;
        let gave_up = first.gave_up || second.gave_up;
        assert!(!gave_up || faults > FAULTS_SURVIVED, "given up after {counters:?}");
        first.check(world, second, !gave_up);
        second.check(world, first, !gave_up);
    }
}

fn options(input: &mut Input) -> ConnectOptions {
    let psns = input.pick(&[[0, 0], [0xff_fff0, 0x7f_fffe], [0xff_ffff, 0x80_0000]]);
    ConnectOptions {
        mtu: input.pick(&[Mtu::Mtu256, Mtu::Mtu1024]),
        max_rd_atomic: input.pick(&[1, 2, 4]),
        max_dest_rd_atomic: 4,
        psns: psns.map(Psn::new),
        cap: QpCap { max_send_wr: 16, max_recv_wr: 16, ..QpCap::default() },
        sq_sig_all: false,
        qkey: QKEY,
        ..ConnectOptions::default()
    }
}

/// Stops or resumes sending on RC; the QP may have failed, or still drain.
fn modify(world: &mut World, side: &Side, qp_state: QpState) {
    let end = side.end(Service::Rc);
    let attr = QpAttr { qp_state, ..QpAttr::default() };
    let _ = world.device(end.node).modify_qp(end.qpn, &attr, AttrMask::STATE);
}
