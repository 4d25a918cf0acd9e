//! The sizes rsockets begin with. As with rdma-core, files in `/etc/rdma/rsocket` change them.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::flow::LOW_WATER;
use super::protocol::scaled;

/// Where the files are.
const FOLDER: &str = "/etc/rdma/rsocket";
/// Bounds of the queues.
const QUEUE: core::ops::RangeInclusive<u32> = 16..=0xfffe;
/// Bounds of the buffers.
const BUFFER: core::ops::RangeInclusive<u32> = 2 * LOW_WATER..=1 << 30;

/// What a socket is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Work requests of the send queue.
    pub send_queue: u16,
    /// Work requests of the receive queue.
    pub recv_queue: u16,
    /// Bytes that are sent without a copy in the buffer.
    pub inline: u32,
    /// Bytes of the buffers.
    pub send_buffer: u32,
    /// The receive buffer, an even number.
    pub recv_buffer: u32,
    /// Buffers a peer can map.
    pub mappings: u16,
}

/// What holds unless a program says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Of each socket.
    pub sizes: Sizes,
    /// How long a call looks for completions before it sleeps.
    pub polling_time: Duration,
}

impl Sizes {
    /// Within bounds.
    pub fn set_send_queue(&mut self, count: u32) {
        self.send_queue = count.clamp(*QUEUE.start(), *QUEUE.end()) as u16;
    }

    /// Within bounds.
    pub fn set_recv_queue(&mut self, count: u32) {
        self.recv_queue = count.clamp(*QUEUE.start(), *QUEUE.end()) as u16;
    }

    /// Within bounds.
    pub fn set_send_buffer(&mut self, bytes: u32) {
        self.send_buffer = bytes.clamp(*BUFFER.start(), *BUFFER.end());
    }

    /// Within bounds.
    pub fn set_recv_buffer(&mut self, bytes: u32) {
        self.recv_buffer = bytes.clamp(*BUFFER.start(), *BUFFER.end()).next_multiple_of(2);
    }

    /// Within bounds, and a number that peers can be told.
    pub fn set_mappings(&mut self, count: u32) {
        self.mappings = scaled(u16::try_from(count).unwrap_or(u16::MAX));
    }
}

/// Those of this machine, read once.
pub fn defaults() -> &'static Defaults {
    static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
    DEFAULTS.get_or_init(|| read(Path::new(FOLDER)))
}

fn read(folder: &Path) -> Defaults {
    let number = |name: &str, default: u32| {
        let text = fs::read_to_string(folder.join(name)).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(default)
    };
    let mut sizes = Sizes {
        send_queue: 0,
        recv_queue: 0,
        inline: number("inline_default", 64).min(u32::from(u16::MAX)),
        send_buffer: 0,
        recv_buffer: 0,
        mappings: 0,
    };
    sizes.set_send_queue(number("sqsize_default", 384));
    sizes.set_recv_queue(number("rqsize_default", 384));
    sizes.set_send_buffer(number("wmem_default", 1 << 17));
    sizes.set_recv_buffer(number("mem_default", 1 << 17));
    sizes.set_mappings(number("iomap_size", 0));
    let polling_time = number("polling_time", 10).min(1_000_000);
    Defaults { sizes, polling_time: Duration::from_micros(u64::from(polling_time)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_change_the_sizes_within_bounds() {
        let folder = std::env::temp_dir().join(format!("rsocket-config-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let usual = read(&folder);
        assert_eq!(usual.sizes.send_queue, 384);
        assert_eq!((usual.sizes.recv_buffer, usual.sizes.mappings), (131_072, 0));
        let files = [
            ("sqsize_default", "100\n"),
            ("rqsize_default", "0"),
            ("mem_default", "100001"),
            ("wmem_default", "nonsense"),
            ("iomap_size", "300"),
            ("polling_time", "0"),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let changed = read(&folder);
        let wanted = Sizes {
            send_queue: 100,
            recv_queue: 16,
            inline: 64,
            send_buffer: 131_072,
            recv_buffer: 100_002,
            mappings: 256,
        };
        assert_eq!(changed.sizes, wanted);
        assert_eq!(changed.polling_time, Duration::ZERO);
        fs::remove_dir_all(&folder).unwrap();
    }
}
