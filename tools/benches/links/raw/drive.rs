//! What is done with frames, whatever brings them.

use std::hint;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{packet, udp, xdp};
use crate::conversation::{Conversation, Stop};
use crate::shared::table::median;
use crate::task::{Load, Raw, Task};

/// A socket, and the one frame or burst of them that it sends.
pub trait Wire {
    /// Sends it, or a part; how many frames. None where there is no room.
    fn send(&mut self) -> Result<usize>;

    /// Takes what is there, without waiting; how many frames.
    fn receive(&mut self) -> Result<usize>;
}

/// After so long an answer is lost. Nothing is sent again: that does not happen to single frames.
const LOST: Duration = Duration::from_secs(2);
/// Looks in vain between two at the clock.
const LOOKS: u32 = 1024;

/// Does one end's part.
pub fn be(task: &Task, raw: Raw, load: Load, conversation: Conversation) -> Result<()> {
    let mut wire: Box<dyn Wire> = match (raw, load) {
        (Raw::Xdp, _) => Box::new(xdp::Xdp::open(task, load)?),
        (Raw::Packet, Load::Stream { .. }) => Box::new(packet::Super::open(task, load)?),
        (Raw::Packet, Load::PingPong { .. }) => Box::new(packet::Single::open(task, load)?),
        (Raw::Udp, _) => Box::new(udp::Udp::open(task, load)?),
    };
    let (wire, millis) = (wire.as_mut(), Duration::from_millis(task.millis));
    let mut conversation = conversation;
    conversation.meet("")?;
    match (load, task.is_active) {
        (Load::Stream { .. }, true) => {
            let start = Instant::now();
            while start.elapsed() < millis {
                wire.send()?;
            }
            conversation.tell("done")
        }
        (Load::Stream { .. }, false) => {
            let stop = conversation.begin()?;
            let per_second = count(wire, &stop)?;
            stop.tell(&format!("figure {per_second}"))
        }
        (Load::PingPong { .. }, true) => {
            let half_ns = ask(wire, millis)?;
            conversation.tell(&format!("figure {half_ns}"))
        }
        (Load::PingPong { .. }, false) => {
            let stop = conversation.begin()?;
            while !stop.is_near() {
                if wire.receive()? > 0 {
                    while wire.send()? == 0 {}
                }
                hint::spin_loop();
            }
            stop.tell("done")
        }
    }
}

/// Frames a second, from the first that comes to the last.
fn count(wire: &mut dyn Wire, stop: &Stop) -> Result<f64> {
    while wire.receive()? == 0 {
        ensure!(!stop.is_near(), "no frame has come");
    }
    let (start, mut last, mut frames) = (Instant::now(), Instant::now(), 0);
    loop {
        match wire.receive()? {
            0 if stop.is_near() => break,
            0 => hint::spin_loop(),
            received => {
                frames += received;
                last = Instant::now();
            }
        }
    }
    Ok(frames as f64 / (last - start).as_secs_f64())
}

/// Half a round trip in ns, the median.
fn ask(wire: &mut dyn Wire, millis: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut halves = Vec::new();
    let mut before = start;
    while before - start < millis {
        while wire.send()? == 0 {}
        let mut looks = 0u32;
        while wire.receive()? == 0 {
            hint::spin_loop();
            looks = looks.wrapping_add(1);
            let is_late = looks.is_multiple_of(LOOKS) && before.elapsed() > LOST;
            ensure!(!is_late, "an answer is lost");
        }
        let now = Instant::now();
        halves.push((now - before).as_nanos() as f64 / 2.0);
        before = now;
    }
    Ok(median(halves))
}
