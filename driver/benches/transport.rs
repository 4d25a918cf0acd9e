//! In-process WRITE, READ and SEND beside the bound, message rate over many QPs, and the cost of
//! parsing and emitting one packet.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

mod pair;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ferroce_stack::Config;
use ferroce_stack::congestion::{self, Algorithm, dcqcn, swift};
use ferroce_stack::psn::Psn;
use ferroce_stack::verbs::Mtu;
use ferroce_stack::wire::{
    Bth, Ethernet, Extensions, Headers, Ipv4, Mac, Net, Opcode, Packet, Reth, Udp, seal,
};
use pair::{Bound, Operation, Pair};

const SIZES: [usize; 4] = [64, 4096, 65_536, 1 << 20];

fn messages(c: &mut Criterion) {
    for mtu in [Mtu::Mtu1024, Mtu::Mtu4096] {
        for operation in Operation::ALL {
            let name = format!("{}/mtu {}", operation.name(), mtu.bytes());
            let mut group = c.benchmark_group(name);
            for len in SIZES {
                group.throughput(Throughput::Bytes(len as u64 * 16));
                let mut pair = Pair::new(1, mtu, len);
                group.bench_function(BenchmarkId::new("transport", len), |b| {
                    b.iter(|| pair.run(operation, len as u32, 16));
                });
                let mut bound = Bound::new(len);
                group.bench_function(BenchmarkId::new("bound", len), |b| {
                    b.iter(|| (0..16).for_each(|_| bound.run(len, mtu)));
                });
            }
        }
    }
}

fn many_qps(c: &mut Criterion) {
    let mut group = c.benchmark_group("message rate, WRITE of 64 B");
    group.throughput(Throughput::Elements(64));
    for qp_count in [1, 100, 10_000] {
        let mut pair = Pair::new(qp_count, Mtu::Mtu4096, 64);
        group.bench_function(BenchmarkId::from_parameter(qp_count), |b| {
            b.iter(|| pair.run(Operation::Write, 64, 64));
        });
    }
}

/// A WRITE of 64 packets: with congestion control, each is marked ECN-capable and asks the
/// algorithm; when held to a rate, which here never makes it wait, it is charged for as well.
fn congestion_control(c: &mut Criterion) {
    const LINE: u64 = 100_000_000_000;
    let of = |algorithm| Some(congestion::Config::new(algorithm, LINE));
    let held = dcqcn::Params { rpg_max_rate: 99_999, ..dcqcn::Params::paper() };
    let held = congestion::Config {
        burst: 1 << 30,
        ..congestion::Config::new(Algorithm::Dcqcn(held), LINE)
    };
    let mut group = c.benchmark_group("64 packets of 1024 B by congestion control");
    group.throughput(Throughput::Elements(64));
    for (name, congestion) in [
        ("off", None),
        ("dcqcn", of(Algorithm::Dcqcn(dcqcn::Params::paper()))),
        ("dcqcn, held", Some(held)),
        ("swift", of(Algorithm::Swift(swift::Params::default()))),
    ] {
        let config = Config { congestion, ..Config::default() };
        let mut pair = Pair::with_config(1, Mtu::Mtu1024, 65_536, &config);
        group.bench_function(name, |b| b.iter(|| pair.run(Operation::Write, 65_536, 1)));
    }
}

fn packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    for len in [0, 64, 1024, 4096] {
        let mut frame = vec![0; 4200];
        let headers = write_only(len);
        group.bench_function(BenchmarkId::new("emit and seal", len), |b| {
            b.iter(|| {
                let layout = black_box(&headers).emit(len, &mut frame).unwrap();
                seal(&mut frame, &layout, len)
            });
        });
        let layout = headers.emit(len, &mut frame).unwrap();
        let frame_len = seal(&mut frame, &layout, len);
        let frame = &frame[..frame_len];
        group.bench_function(BenchmarkId::new("parse", len), |b| {
            b.iter(|| Packet::parse(black_box(frame)).unwrap().payload.len());
        });
        group.bench_function(BenchmarkId::new("parse and check", len), |b| {
            b.iter(|| Packet::parse(black_box(frame)).unwrap().icrc_ok(frame));
        });
    }
}

fn write_only(len: usize) -> Headers {
    let ip = |number| [192, 0, 2, number].into();
    let (src, dst) = (ip(1), ip(2));
    let reth = Some(Reth { va: 0x1000, rkey: 0x100, dma_len: len as u32 });
    Headers {
        eth: Ethernet { dst: Mac([2; 6]), src: Mac([4; 6]), vlan: None },
        net: Net::V4(Ipv4 { src, dst, tos: 0, ident: 1, dont_fragment: true, ttl: 64 }),
        udp: Udp { source_port: 0xc123, checksum: 0 },
        bth: Bth { ack_req: true, ..Bth::new(Opcode::RC_WRITE_ONLY, 17, Psn::new(1)) },
        ext: Extensions { reth, ..Extensions::default() },
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(30);
    targets = messages, many_qps, congestion_control, packets
}
criterion_main!(benches);
