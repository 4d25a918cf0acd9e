//! A bound that no stack is better than: two threads, memory, nothing between.

use std::hint;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use ferroce::ring::{WorkConsumer, WorkProducer, work_ring};

use crate::shared::machine::pin;

/// Payload of a packet.
const ITEM: usize = 4096;
const SLOTS: usize = 1024;
/// Entries published, or released, at a time.
const BURST: usize = 16;

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
