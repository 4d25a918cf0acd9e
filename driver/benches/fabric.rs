//! What a frame costs through the fabric: between two members on two threads, and with one thread
//! that does both sides.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ferroce::fabric::{FRAME_MAX, Member, Sent};

const FRAMES: u32 = 320_000;
const BURST: u32 = 16;
const ROUNDS: usize = 7;
/// Empty looks in a row before the receiver lets others have its core.
const EMPTY_BEFORE_YIELD: u32 = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(format!("/dev/shm/ferroce-bench-{}", std::process::id()));
    let outcome = run(&dir);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn run(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (mut a, mut b) = (Member::join(dir, &[])?, Member::join(dir, &[])?);
    println!("ns per frame, median of {ROUNDS}");
    println!("{:>8} {:>12} {:>12}", "bytes", "one thread", "two threads");
    for len in [64, 1024, 4096] {
        let frame = vec![7; len];
        let one = median(|| one_thread(&mut a, &mut b, &frame));
        let two = median(|| two_threads(&mut a, &mut b, &frame));
        println!("{len:>8} {one:>12.1} {two:>12.1}");
    }
    let empty = median(|| {
        per_frame(FRAMES, || {
            for _ in 0..FRAMES {
                black_box(b.pending());
            }
        })
    });
    println!("look at an empty ring: {empty:.1} ns");
    Ok(())
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut results: Vec<f64> = (0..ROUNDS).map(|_| measure()).collect();
    results.sort_by(f64::total_cmp);
    results[ROUNDS / 2]
}

fn per_frame(frames: u32, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / f64::from(frames)
}

fn one_thread(from: &mut Member, to: &mut Member, frame: &[u8]) -> f64 {
    let mut buffer = [0; FRAME_MAX];
    per_frame(FRAMES, || {
        for _ in 0..FRAMES / BURST {
            for tag in 0..BURST {
                assert_eq!(from.send(to.slot(), frame, tag), Sent::Done);
            }
            from.flush();
            while black_box(to.receive(&mut buffer, false)).is_some() {}
        }
    })
}

fn two_threads(from: &mut Member, to: &mut Member, frame: &[u8]) -> f64 {
    let slot = to.slot();
    let go = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut buffer = [0; FRAME_MAX];
            let (mut taken, mut empty) = (0, 0);
            go.store(true, Ordering::Release);
            while taken < FRAMES {
                match black_box(to.receive(&mut buffer, false)) {
                    Some(_) => (taken, empty) = (taken + 1, 0),
                    None if empty < EMPTY_BEFORE_YIELD => empty += 1,
                    None => thread::yield_now(),
                }
            }
        });
        while !go.load(Ordering::Acquire) {
            thread::yield_now();
        }
        per_frame(FRAMES, || {
            for tag in 0..FRAMES {
                while from.send(slot, frame, tag) == Sent::Full {
                    from.flush();
                    thread::yield_now();
                }
                if tag % BURST == 0 {
                    from.flush();
                }
            }
            receiver.join().expect("the receiver does not panic");
        })
    })
}
