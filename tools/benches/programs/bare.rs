//! Bounds that no stack is better than: two threads, memory, nothing between.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use crossbeam_utils::CachePadded;
use ferroce::ring::{WorkConsumer, WorkProducer, work_ring};

use crate::machine::pin;

/// Payload of a packet.
const ITEM: usize = 4096;
const SLOTS: usize = 1024;
/// Entries published, or released, at a time.
const BURST: usize = 16;
/// Round trips that are timed together, and how often.
const TURNS: u64 = 2000;
const BATCHES: u64 = 64;
/// A round trip between near CPUs takes about 100 ns, between far ones about 500.
const NEAR_NS: f64 = 250.0;

/// Half a round trip of one word between two CPUs, in µs.
pub fn half_round_trip(cpus: (usize, usize)) -> Result<f64> {
    let there = CachePadded::new(AtomicU64::new(0));
    let back = CachePadded::new(AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Unpinned it answers too.
            let _ = pin(cpus.1);
            for turn in 1..=TURNS * BATCHES {
                wait_for(&there, turn);
                back.store(turn, Ordering::Release);
            }
        });
        let asker = scope.spawn(|| {
            pin(cpus.0)?;
            let mut batches: Vec<f64> = (0..BATCHES)
                .map(|batch| {
                    let start = Instant::now();
                    for turn in batch * TURNS + 1..=(batch + 1) * TURNS {
                        there.store(turn, Ordering::Release);
                        wait_for(&back, turn);
                    }
                    start.elapsed().as_nanos() as f64 / (2 * TURNS) as f64 / 1000.0
                })
                .collect();
            batches.sort_by(f64::total_cmp);
            Ok(batches[batches.len() / 2])
        });
        asker.join().expect("the asker does not panic")
    })
}

/// How far the two CPUs are apart, in words.
pub fn probe(cpus: (usize, usize)) -> Result<String> {
    let round_trip_ns = 2000.0 * half_round_trip(cpus)?;
    let word = if round_trip_ns < NEAR_NS { "near" } else { "far" };
    Ok(format!("{round_trip_ns:.0} ns for a round trip of one word ({word})"))
}

/// Bytes a second, in GB/s, from one thread to another: a copy and a CRC on each side. Messages of
/// `len` bytes from one buffer to one other.
pub fn ring(cpus: (usize, usize), len: usize, messages: usize) -> Result<f64> {
    let (producer, consumer) = work_ring(SLOTS, 0, ITEM)?;
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            pin(cpus.1)?;
            Ok::<_, anyhow::Error>(receive(consumer, len, messages + WARM_UP.div_ceil(len)))
        });
        let sender = scope.spawn(move || {
            let pinned = pin(cpus.0);
            let (mut producer, message) = (producer, vec![7; len]);
            send(&mut producer, &message, WARM_UP.div_ceil(len));
            let start = Instant::now();
            send(&mut producer, &message, messages);
            pinned.map(|()| start)
        });
        let start = sender.join().expect("the sender does not panic");
        let end = receiver.join().expect("every CRC is right");
        Ok((len * messages) as f64 / (end? - start?).as_nanos() as f64)
    })
}

/// Bytes sent before the clock runs: once around the ring, whose memory is new.
const WARM_UP: usize = SLOTS * ITEM;

fn send(producer: &mut WorkProducer<u32, u8>, message: &[u8], count: usize) {
    for _ in 0..count {
        for (index, item) in message.chunks(ITEM).enumerate() {
            let crc = crc32fast::hash(item);
            while producer.push(crc, &[], item).is_err() {
                producer.publish();
                hint::spin_loop();
            }
            if index % BURST == BURST - 1 {
                producer.publish();
            }
        }
        producer.publish();
    }
}

/// Takes everything; when it was done.
fn receive(mut consumer: WorkConsumer<u32, u8>, len: usize, count: usize) -> Instant {
    let mut message = vec![0; len];
    for _ in 0..count {
        for (index, item) in message.chunks_mut(ITEM).enumerate() {
            let mut take = |crc: u32, _: &[u8], bytes: &[u8]| {
                assert_eq!(crc32fast::hash(bytes), crc, "torn item");
                item.copy_from_slice(bytes);
            };
            while consumer.pop(&mut take).is_none() {
                hint::spin_loop();
            }
            if index % BURST == BURST - 1 {
                consumer.release();
            }
        }
        consumer.release();
    }
    Instant::now()
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) != value {}
}
