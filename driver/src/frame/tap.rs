//! A capture that several processes append to: each records the frames it sends, so that every
//! frame stands in it once, and an answer after what it answers.

use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ferroce_stack::time::Instant;

use super::pcap::Writer;
use crate::sync::{Arc, Mutex, lock};

/// Records as they are made, to be written in one piece: pieces of several processes would mix.
#[derive(Clone, Default)]
struct Piece(Arc<Mutex<Vec<u8>>>);

impl Write for Piece {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One process's end of a capture.
pub struct Tap {
    file: File,
    writer: Writer<Piece>,
    piece: Piece,
    id: u32,
    /// Time of day at the origin of the clock.
    origin: Duration,
    /// Nothing is written after a failure.
    failed: bool,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Tap {
    /// Opens the capture `path`, or begins it, pcapng if its extension says so and else pcap.
    /// `now` is the present moment of the clock frames will be recorded with.
    ///
    /// # Errors
    /// If the file cannot be opened or written.
    pub fn open(path: &Path, now: Instant) -> io::Result<Tap> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let piece = Piece::default();
        let writer = Writer::new(piece.clone(), path, 1)?;
        let head = std::mem::take(&mut *lock(&piece.0));
        file.lock()?;
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            file.write_all(&head)?;
        }
        file.unlock()?;
        let mut hasher = DefaultHasher::new();
        (metadata.dev(), metadata.ino()).hash(&mut hasher);
        let id = hasher.finish() as u32 | 1;
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let origin = today.saturating_sub(Duration::from_nanos(now.nanos()));
        Ok(Tap { file, writer, piece, id, origin, failed: false })
    }

    /// Names the capture; never 0. Frames that are in it already carry the same.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Appends a frame. A failure ends the recording, and not the traffic.
    pub fn record(&mut self, at: Instant, frame: &[u8]) {
        if self.failed {
            return;
        }
        let timestamp = self.origin + Duration::from_nanos(at.nanos());
        let made = self.writer.write(timestamp, 0, frame);
        let mut piece = lock(&self.piece.0);
        self.failed = made.and_then(|()| self.file.write_all(&piece)).is_err();
        piece.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_of_one_capture_append_to_it() {
        for extension in ["pcap", "pcapng"] {
            let name = format!("ferroce-tap-{}.{extension}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_file(&path);
            let mut taps = [(); 2].map(|()| Tap::open(&path, Instant::ZERO).unwrap());
            assert_eq!(taps[0].id(), taps[1].id());
            for turn in 0..10u8 {
                taps[usize::from(turn % 2)].record(Instant::from_nanos(turn.into()), &[turn; 100]);
            }
            let bytes = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let at = |turn: u8| bytes.windows(100).position(|window| window == [turn; 100]);
            let positions: Vec<_> = (0..10).map(|turn| at(turn).unwrap()).collect();
            assert!(positions.is_sorted());
        }
    }
}
