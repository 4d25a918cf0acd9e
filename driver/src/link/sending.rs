//! How messages leave by a socket, and when they are given up.

use std::io;
use std::thread;
use std::time::Duration;

use super::socket::{Departure, Socket};
use super::{LinkCounters, count};

/// Of a link's sockets, in bytes: bursts of a full window of several QPs.
pub const BUFFER: i32 = 8 << 20;

/// How long a flush waits at a time when the system has no room, and how often. A sleep takes
/// about twice what it is asked for, so that makes some 20 ms; what is lost then is sent again when
/// its peer misses it.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSES: u32 = 200;

/// How often one flush hears of what hosts have answered to earlier ones.
const ANSWERS: u32 = 200;

/// What is left of the patience of one flush.
#[derive(Debug)]
pub struct Patience {
    pauses: u32,
    answers: u32,
}

impl Default for Patience {
    /// All of it.
    fn default() -> Patience {
        Patience { pauses: PAUSES, answers: ANSWERS }
    }
}

/// Sends messages in order, or counts their frames as lost, and says how many frames that makes:
/// all of them, unless the system will not cut the next message into its frames.
///
/// # Errors
/// If the interface is gone.
pub fn send(
    socket: &Socket,
    mut departures: &[Departure<'_>],
    patience: &mut Patience,
    counters: &LinkCounters,
) -> io::Result<usize> {
    let mut done = 0;
    while let [first, rest @ ..] = departures {
        let error = match socket.send_batch(departures) {
            Ok(sent) => {
                let frames: usize = departures[..sent].iter().map(|sent| sent.frames).sum();
                count(&counters.link_sent, frames as u64);
                done += frames;
                departures = &departures[sent..];
                continue;
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            // Its own buffer is full, or the queue in front of the interface; nothing tells when
            // that is not.
            Some(libc::EAGAIN | libc::ENOBUFS) if patience.pauses > 0 => {
                patience.pauses -= 1;
                thread::sleep(PAUSE);
                continue;
            }
            // What a host has answered to an earlier one; this one has not been sent.
            Some(libc::ECONNREFUSED) if patience.answers > 0 => {
                patience.answers -= 1;
                continue;
            }
            Some(libc::ENXIO | libc::ENODEV) => return Err(error),
            // Segmentation is something that the system or the interface does not know, or the path
            // is too narrow for a segment.
            Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE) if first.frames > 1 => break,
            Some(libc::EMSGSIZE) => count(&counters.lost.too_long, first.frames as u64),
            _ => count(&counters.lost.send_failed, first.frames as u64),
        }
        done += first.frames;
        departures = rest;
    }
    Ok(done)
}
