//! Access to application memory where faults are not caught: a page that is not mapped ends the
//! process, as it does with any other access.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ferroce_stack::memory::{AtomicOp, MemoryFault};

/// The signals a fault arrives as.
pub const FAULT_SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// There is nothing to install.
#[inline]
pub fn install() {}

/// Copies `len` bytes in increasing address order.
///
/// # Errors
/// None.
///
/// # Safety
/// The caller may read `from` and write `to`. They do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), MemoryFault> {
    let word = size_of::<usize>();
    let aligned = to.addr().is_multiple_of(word) && from.addr().is_multiple_of(word);
    let words = if aligned { len / word } else { 0 };
    for index in 0..words {
        // SAFETY: inside both ranges, and aligned.
        unsafe {
            let value = ptr::read_volatile(from.cast::<usize>().add(index));
            ptr::write_volatile(to.cast::<usize>().add(index), value);
        }
    }
    for index in words * word..len {
        // SAFETY: inside both ranges.
        unsafe { ptr::write_volatile(to.add(index), ptr::read_volatile(from.add(index))) };
    }
    Ok(())
}

/// Copies as many bytes as can be summed on the way, which is none: how many, and `crc`.
///
/// # Errors
/// None.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn copy_summing(
    _to: *mut u8,
    _from: *const u8,
    _len: usize,
    crc: u32,
) -> Result<(usize, u32), MemoryFault> {
    Ok((0, crc))
}

/// Copies an integer of 1, 2, 4 or 8 bytes with one store, after all earlier writes.
///
/// # Errors
/// None.
///
/// # Safety
/// As [`copy`]; `len` is 1, 2, 4 or 8, and `to` a multiple of it.
#[inline]
pub unsafe fn store(to: *mut u8, from: *const u8, len: usize) -> Result<(), MemoryFault> {
    let order = Ordering::Release;
    // SAFETY: the caller's promise, of length and alignment too.
    unsafe {
        match len {
            1 => AtomicU8::from_ptr(to).store(from.read(), order),
            2 => AtomicU16::from_ptr(to.cast()).store(from.cast::<u16>().read_unaligned(), order),
            4 => AtomicU32::from_ptr(to.cast()).store(from.cast::<u32>().read_unaligned(), order),
            _ => AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), order),
        }
    }
    Ok(())
}

/// Runs `op` on an aligned word and returns its value before.
///
/// # Errors
/// None.
///
/// # Safety
/// The caller may write `word`. It is aligned.
#[inline]
pub unsafe fn atomic(word: *mut u64, op: AtomicOp) -> Result<u64, MemoryFault> {
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(word) };
    Ok(match op {
        AtomicOp::CompareSwap { compare, swap } => {
            let outcome = word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
            outcome.unwrap_or_else(|original| original)
        }
        AtomicOp::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
        AtomicOp::Store(value) => word.swap(value, Ordering::SeqCst),
    })
}

/// Nothing is known here: only the null page is taken for unmapped.
///
/// # Safety
/// None is needed.
pub unsafe fn is_mapped(byte: *mut u8, _write: bool) -> bool {
    byte.addr() >= 4096
}
