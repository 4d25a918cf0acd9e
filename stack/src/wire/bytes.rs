//! Big-endian fields at fixed offsets of a header. With the header's length in the type, no access
//! is checked at run time.

/// The first `N` bytes.
///
/// # Panics
///
/// Panics if there are fewer: the caller has not checked the packet's length.
#[inline]
pub fn head<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("the header fits")
}

/// The first `N` bytes, to write to.
///
/// # Panics
///
/// Panics if there are fewer: the caller has not checked the frame's length.
#[inline]
pub fn head_mut<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("the header fits")
}

/// `N` bytes from `at` on.
#[inline]
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *head(&bytes[at..])
}

/// 16 bits at `at`.
#[inline]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

/// 24 bits at `at`.
#[inline]
pub fn be24(bytes: &[u8], at: usize) -> u32 {
    let [a, b, c] = field(bytes, at);
    u32::from_be_bytes([0, a, b, c])
}

/// 32 bits at `at`.
#[inline]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

/// 64 bits at `at`.
#[inline]
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(field(bytes, at))
}

/// Writes `N` bytes at `at`.
#[inline]
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    *head_mut(&mut bytes[at..]) = value;
}

/// Eight bits above 24, as in `reserved, QPN`; of `low` the low 24 bits count.
#[inline]
pub const fn with_top(top: u8, low: u32) -> [u8; 4] {
    ((top as u32) << 24 | low & 0x00ff_ffff).to_be_bytes()
}
