//! Copies to and from application memory beside plain ones.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ferroce::memory::{copy_from, copy_to};

fn copies(c: &mut Criterion) {
    let mut group = c.benchmark_group("host memory");
    for len in [8, 64, 1024, 4096] {
        group.throughput(Throughput::Bytes(len as u64));
        let mut host = vec![1u8; len];
        let mut private = vec![2u8; len];
        group.bench_function(BenchmarkId::new("write", len), |b| {
            b.iter(|| {
                // SAFETY: `host` is ours, as long as `private`, and used by nobody else.
                unsafe { copy_to(black_box(host.as_mut_ptr()), black_box(&private)) }
            });
        });
        group.bench_function(BenchmarkId::new("read", len), |b| {
            b.iter(|| {
                // SAFETY: as above.
                unsafe { copy_from(black_box(host.as_ptr()), black_box(&mut private)) }
            });
        });
        group.bench_function(BenchmarkId::new("copy_nonoverlapping", len), |b| {
            b.iter(|| {
                let (from, to) = (private.as_ptr(), host.as_mut_ptr());
                // SAFETY: two vectors of the same length.
                unsafe { black_box(from).copy_to_nonoverlapping(black_box(to), black_box(len)) }
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(500))
        .sample_size(20);
    targets = copies
}
criterion_main!(benches);
