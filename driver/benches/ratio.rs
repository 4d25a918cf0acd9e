//! The transport as a share of its bound: both measured in turn, many times over, so that a noisy
//! machine disturbs them alike; medians. Ratios travel between machines, nanoseconds do not.

mod pair;

use std::time::Instant;

use ferroce_stack::verbs::Mtu;
use pair::{Bound, Operation, Pair};

const ROUNDS: usize = 41;
/// Bytes moved in one measurement, about.
const BYTES: usize = 8 << 20;

fn main() {
    println!("share of the bound (one copy and one CRC on each side), median of {ROUNDS} rounds");
    println!(
        "{:<10} {:>5} {:>9} {:>14} {:>14} {:>6}",
        "", "MTU", "bytes", "ns/packet", "bound", "share"
    );
    for mtu in [Mtu::Mtu4096, Mtu::Mtu1024] {
        for operation in Operation::ALL {
            for len in [64, 4096, 65_536, 1 << 20] {
                share(operation, mtu, len);
            }
        }
    }
    println!("\ncost of a frame by number of QPs, WRITE of 64 B, each message on the next QP");
    println!("{:>6} {:>10} {:>10}", "QPs", "ns/frame", "times");
    many_qps();
}

fn share(operation: Operation, mtu: Mtu, len: usize) {
    let mut pair = Pair::new(1, mtu, len);
    let mut bound = Bound::new(len);
    let packets = len.div_ceil(mtu.bytes());
    let batch = (BYTES / len / 16).clamp(1, 16);
    let batches = (BYTES / len / batch).clamp(1, 2000);
    let count = (batch * batches * packets) as f64;
    let (mut costs, mut bounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        costs.push(nanos(|| (0..batches).for_each(|_| pair.run(operation, len as u32, batch))));
        bounds.push(nanos(|| (0..batch * batches).for_each(|_| bound.run(len, mtu))));
    }
    let (cost, bound) = (median(&mut costs) / count, median(&mut bounds) / count);
    println!(
        "{:<10} {:>5} {len:>9} {cost:>14.1} {bound:>14.1} {:>5.0}%",
        operation.name(),
        mtu.bytes(),
        100.0 * bound / cost
    );
}

fn many_qps() {
    let counts = [1, 100, 10_000];
    let mut pairs = counts.map(|count| Pair::new(count, Mtu::Mtu4096, 64));
    let mut costs = counts.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (pair, costs) in pairs.iter_mut().zip(&mut costs) {
            let before = pair.frames;
            // Once around all QPs of the largest set.
            let spent = nanos(|| (0..160).for_each(|_| pair.run(Operation::Write, 64, 64)));
            costs.push(spent / (pair.frames - before) as f64);
        }
    }
    let medians = costs.each_mut().map(|costs| median(costs));
    for (count, cost) in counts.into_iter().zip(medians) {
        println!("{count:>6} {cost:>10.1} {:>10.2}", cost / medians[0]);
    }
}

fn nanos(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
