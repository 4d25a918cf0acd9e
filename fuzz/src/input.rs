//! A fuzzer's bytes, taken from the front. When they are used up, zeros follow: whoever loops
//! looks at [`Input::is_empty`].

/// What is left of an input.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    /// Whether all bytes are used up.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// The next byte's lowest bit.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// A number below `bound`, at most 256, from one byte; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()).checked_rem(bound).unwrap_or(0)
    }

    /// One of `all`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// 16 bits.
    pub fn word16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}
