//! Frames on their way: buffers that are used again, and queues that are chains through them, so
//! that a packet costs no allocation.

/// No frame.
pub const NONE: u32 = u32::MAX;

/// What is known of a frame, beyond its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// The one behind it in its queue.
    pub next: u32,
    /// Bytes, without FCS.
    pub len: u32,
    /// When it has arrived at the other end of the link it is on, in picoseconds.
    pub at: u64,
    /// The host it is for, if that can be said.
    pub to: Option<u32>,
    /// Of addresses and ports.
    pub hash: u32,
    /// The port of a switch it came in by.
    pub ingress: u32,
    /// The QP that sent it.
    pub source_qp: u32,
    /// Traffic class.
    pub class: u8,
}

/// All frames there are.
#[derive(Debug)]
pub struct Frames {
    buffers: Vec<Box<[u8]>>,
    metas: Vec<Meta>,
    free: Vec<u32>,
    buffer_len: usize,
}

impl Frames {
    /// None, each to have room for `buffer_len` bytes.
    pub fn new(buffer_len: usize) -> Frames {
        Frames { buffers: Vec::new(), metas: Vec::new(), free: Vec::new(), buffer_len }
    }

    /// A frame of whatever was in it before.
    #[inline]
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.buffers.push(vec![0; self.buffer_len].into_boxed_slice());
            self.metas.push(Meta::default());
            self.metas.len() as u32 - 1
        })
    }

    /// A copy of a frame.
    pub fn copy(&mut self, frame: u32) -> u32 {
        let copy = self.take();
        let meta = self.metas[frame as usize];
        self.metas[copy as usize] = meta;
        let bytes = std::mem::take(&mut self.buffers[frame as usize]);
        let len = meta.len as usize;
        self.buffers[copy as usize][..len].copy_from_slice(&bytes[..len]);
        self.buffers[frame as usize] = bytes;
        copy
    }

    /// The frame is no more.
    #[inline]
    pub fn give_back(&mut self, frame: u32) {
        self.free.push(frame);
    }

    /// What is known of a frame.
    #[inline]
    pub fn meta(&self, frame: u32) -> &Meta {
        &self.metas[frame as usize]
    }

    /// What is known of a frame, to be changed.
    #[inline]
    pub fn meta_mut(&mut self, frame: u32) -> &mut Meta {
        &mut self.metas[frame as usize]
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self, frame: u32) -> &[u8] {
        &self.buffers[frame as usize][..self.metas[frame as usize].len as usize]
    }

    /// Its bytes, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        &mut self.buffers[frame as usize][..self.metas[frame as usize].len as usize]
    }

    /// All of its buffer.
    #[inline]
    pub fn buffer_mut(&mut self, frame: u32) -> &mut [u8] {
        &mut self.buffers[frame as usize]
    }
}

/// Frames one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    head: u32,
    tail: u32,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { head: NONE, tail: NONE, bytes: 0 }
    }
}

impl Queue {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first.
    #[inline]
    pub fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Adds one at the end.
    #[inline]
    pub fn push(&mut self, frames: &mut Frames, frame: u32) {
        let meta = frames.meta_mut(frame);
        meta.next = NONE;
        self.bytes += u64::from(meta.len);
        match self.tail {
            NONE => self.head = frame,
            tail => frames.meta_mut(tail).next = frame,
        }
        self.tail = frame;
    }

    /// Takes the first.
    #[inline]
    pub fn pop(&mut self, frames: &Frames) -> Option<u32> {
        let frame = self.front()?;
        let meta = frames.meta(frame);
        self.bytes -= u64::from(meta.len);
        self.head = meta.next;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_chains_and_buffers_come_back() {
        let mut frames = Frames::new(8);
        let mut queues = [Queue::default(); 2];
        for round in 0..3 {
            let all: Vec<u32> = (0..4).map(|_| frames.take()).collect();
            for (place, &frame) in all.iter().enumerate() {
                frames.meta_mut(frame).len = place as u32 + 1;
                queues[place % 2].push(&mut frames, frame);
            }
            assert_eq!(queues.map(|queue| queue.bytes), [4, 6], "round {round}");
            for &frame in &all {
                let place = frames.meta(frame).len as usize - 1;
                assert_eq!(queues[place % 2].pop(&frames), Some(frame));
                frames.give_back(frame);
            }
            assert!(queues.iter().all(|queue| queue.is_empty() && queue.bytes == 0));
        }
        assert_eq!(frames.metas.len(), 4);
    }

    #[test]
    fn a_copy_has_the_same_bytes() {
        let mut frames = Frames::new(8);
        let frame = frames.take();
        frames.meta_mut(frame).len = 3;
        frames.bytes_mut(frame).copy_from_slice(&[1, 2, 3]);
        let copy = frames.copy(frame);
        assert_ne!(copy, frame);
        assert_eq!(frames.bytes(copy), frames.bytes(frame));
    }
}
