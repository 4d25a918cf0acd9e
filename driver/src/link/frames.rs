//! A batch of frames, in memory of its own.

use crate::fabric::FRAME_MAX;

/// Frames moved at a time: of the longest, as many as four joined ones hold
/// ([`segments`](super::segments)), so that none of these is short when there are more to come.
pub const BATCH: usize = 60;

/// A batch of frames.
#[derive(Debug)]
pub struct Frames {
    bytes: Box<[u8]>,
    lens: [usize; BATCH],
    count: usize,
}

impl Default for Frames {
    /// An empty batch.
    fn default() -> Frames {
        let bytes = vec![0; BATCH * Frames::STRIDE].into_boxed_slice();
        Frames { bytes, lens: [0; BATCH], count: 0 }
    }
}

impl Frames {
    /// Room for a frame: what a member takes, in whole cache lines.
    const STRIDE: usize = FRAME_MAX.next_multiple_of(64);

    /// Takes all frames out.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether it holds as many as it can.
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// How many it holds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Where the next frame is written, at its start; [`Frames::push`] follows.
    ///
    /// # Panics
    ///
    /// Panics if the batch is full.
    pub fn room(&mut self) -> &mut [u8] {
        let start = self.count * Frames::STRIDE;
        &mut self.bytes[start..][..FRAME_MAX]
    }

    /// Adds the frame of `len` bytes that is where [`Frames::room`] said.
    ///
    /// # Panics
    ///
    /// Panics if the batch is full or the frame longer than the room.
    pub fn push(&mut self, len: usize) {
        assert!(!self.is_full() && len <= FRAME_MAX);
        self.lens[self.count] = len;
        self.count += 1;
    }

    /// A frame of the batch.
    ///
    /// # Panics
    ///
    /// Panics if there are not so many.
    pub fn get(&self, index: usize) -> &[u8] {
        assert!(index < self.count);
        &self.bytes[index * Frames::STRIDE..][..self.lens[index]]
    }

    /// As [`Frames::get`], to change it.
    ///
    /// # Panics
    ///
    /// Panics if there are not so many.
    pub fn get_mut(&mut self, index: usize) -> &mut [u8] {
        assert!(index < self.count);
        &mut self.bytes[index * Frames::STRIDE..][..self.lens[index]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_each_frame_apart() {
        let mut frames = Frames::default();
        for len in 1..=BATCH {
            frames.room()[..len].fill(len as u8);
            frames.push(len);
        }
        assert!(frames.is_full());
        for index in 0..BATCH {
            assert_eq!(frames.get(index), vec![index as u8 + 1; index + 1]);
        }
    }
}
