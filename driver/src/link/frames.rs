//! A batch of frames, in memory of its own.

use crate::fabric::FRAME_MAX;

/// Frames moved at a time.
pub const BATCH: usize = 64;

/// A batch of frames.
#[derive(Debug)]
pub struct Frames {
    bytes: Box<[u8]>,
    lens: [usize; BATCH],
    count: usize,
    /// How many have been taken.
    taken: usize,
}

impl Default for Frames {
    /// An empty batch.
    fn default() -> Frames {
        let bytes = vec![0; BATCH * Frames::STRIDE].into_boxed_slice();
        Frames { bytes, lens: [0; BATCH], count: 0, taken: 0 }
    }
}

impl Frames {
    /// Room for a frame: what a member takes, in whole cache lines.
    const STRIDE: usize = FRAME_MAX.next_multiple_of(64);

    /// Takes all frames out.
    pub fn clear(&mut self) {
        self.count = 0;
        self.taken = 0;
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

    /// Whether there are frames that have not been taken.
    pub fn has_next(&self) -> bool {
        self.taken < self.count
    }

    /// The next frame that has not been taken and has any bytes.
    pub fn next(&mut self) -> Option<&mut [u8]> {
        while self.has_next() {
            self.taken += 1;
            if self.lens[self.taken - 1] > 0 {
                return Some(self.get_mut(self.taken - 1));
            }
        }
        None
    }

    /// The room of every frame the batch can hold, from `offset` on.
    pub fn rooms(&mut self, offset: usize) -> impl Iterator<Item = &mut [u8]> {
        let rooms = self.bytes.chunks_exact_mut(Frames::STRIDE);
        rooms.map(move |room| &mut room[offset..FRAME_MAX])
    }

    /// Keeps the first `count` rooms as frames of these lengths; one of length 0 has no bytes.
    pub fn set(&mut self, lens: impl Iterator<Item = usize>) {
        self.clear();
        for (slot, len) in self.lens.iter_mut().zip(lens) {
            *slot = len.min(FRAME_MAX);
            self.count += 1;
        }
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
