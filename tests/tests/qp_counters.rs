//! What each QP counts adds up to what its device counts.

use ferroce::frame::fault::{Action, Class, Rule, Which};
use ferroce::world::{ConnectOptions, Endpoint, World, WorldConfig};
use ferroce_stack::verbs::{SendOp, SendWr, WcStatus};
use ferroce_stack::{Counters, QpCounters};

const SIZE: usize = 64 << 10;
const SEC: u64 = 1_000_000_000;

fn sum(world: &World, node: usize, endpoints: &[&Endpoint]) -> QpCounters {
    let device = world.device_ref(node);
    let mut sum = QpCounters::default();
    for endpoint in endpoints {
        let one = device.qp_counters(endpoint.qpn).unwrap();
        sum.sent_pkts += one.sent_pkts;
        sum.rcvd_pkts += one.rcvd_pkts;
        sum.retransmitted_pkts += one.retransmitted_pkts;
        sum.duplicate_request += one.duplicate_request;
    }
    sum
}

fn of_device(counters: &Counters) -> QpCounters {
    QpCounters {
        sent_pkts: counters.sent_pkts,
        rcvd_pkts: counters.rcvd_pkts,
        retransmitted_pkts: counters.retransmitted_pkts,
        duplicate_request: counters.duplicate_request,
    }
}

#[test]
fn counters_of_qps_add_up_to_those_of_the_device() {
    let which = Which::Chance(0.05);
    let loss =
        Rule { action: Action::Drop, which, class: Class::default(), conditions: Vec::new() };
    let config = WorldConfig { faults: vec![loss], ..WorldConfig::default() };
    let mut world = World::new(config).unwrap();
    let options = ConnectOptions { timeout: 10, ..ConnectOptions::default() };
    let pairs = [0, 1].map(|_| world.connect_rc(0, 1, &options).unwrap());
    for (a, b) in &pairs {
        let local = world.register(a, SIZE, options.access).unwrap();
        let remote = world.register(b, SIZE, options.access).unwrap();
        let sges = [local.sge()];
        for op in [SendOp::Write(remote.remote()), SendOp::Read(remote.remote())] {
            for wr_id in 0..8 {
                let wr = SendWr::new(wr_id, op, &sges);
                world.device(0).post_send(a.qpn, &wr).unwrap();
            }
        }
        assert_eq!(world.device_ref(0).outstanding(a.qpn), Some((16, 0)));
    }
    world.run_until_idle(100 * SEC).unwrap();
    for (a, _) in &pairs {
        let completions = world.poll(0, a.send_cq).unwrap();
        assert!(completions.iter().all(|wc| wc.status == WcStatus::Success));
        assert_eq!(world.device_ref(0).outstanding(a.qpn), Some((0, 0)));
    }
    let [(a, b), (c, d)] = &pairs;
    for (node, endpoints) in [(0, [a, c]), (1, [b, d])] {
        let of_qps = sum(&world, node, &endpoints);
        assert_eq!(of_qps, of_device(world.device_ref(node).counters()));
        let lossy = if node == 0 { of_qps.retransmitted_pkts } else { of_qps.duplicate_request };
        assert!(lossy > 0, "{of_qps:?}");
    }
}
