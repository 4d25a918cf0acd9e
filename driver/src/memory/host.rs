//! The application's own memory, reached by raw address: the only code that touches it.

use std::cell::Cell;
use std::ffi::c_int;

use ferroce_stack::icrc;
use ferroce_stack::memory::{AtomicOp, Memory, MemoryFault, Span};

use super::access;
use crate::sys;

/// The memory of this process; spans are its addresses.
///
/// What holds for a write, for a program that watches the memory with ordinary loads:
/// - Bytes become visible in increasing address order, at most 32 at a time (x86-64).
/// - Those in the last aligned 8-byte word are stored after all others are visible, and an aligned
///   integer of 1, 2, 4 or 8 bytes that ends the payload is stored last and in one piece. So a
///   program that polls it, or the last byte, and sees it (acquire), sees the whole payload.
///
/// What holds if a page in a range is not mapped, or not with the rights needed (x86-64 Linux;
/// elsewhere the process dies): the operation returns [`MemoryFault`]. A write has then stored a
/// prefix of the data that ends less than 32 bytes before the page, an atomic operation has done
/// nothing. This needs a signal handler, installed once by [`HostMemory::new`] or the first access,
/// which passes all else on to the handler it found. The limits:
/// - A thread that accesses memory must not block the [`fault_signals`]: the kernel kills the
///   process for a fault whose signal is blocked. [`admit_faults`] sees to it, unless a program
///   blocks them afterwards.
/// - A program that installs its own handler later, and does not call the one it replaces, gets the
///   faults of our routines like any others, as if we had no handler.
/// - The code of the handler must stay loaded: a shared object with it must not be unloaded.
///
/// Whoever registers a region vouches for it: the transport may read and write it as the region's
/// rights allow, until it is deregistered, and no Rust reference relies on its bytes meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory(());

impl HostMemory {
    /// Access to this process's memory. The first call installs the handlers of the
    /// [`fault_signals`], before those that a program installs later.
    #[expect(clippy::new_without_default, reason = "it changes the process")]
    pub fn new() -> HostMemory {
        access::install();
        HostMemory(())
    }
}

impl Memory for HostMemory {
    #[inline]
    fn read(&self, span: Span, out: &mut [u8]) -> Result<(), MemoryFault> {
        assert_eq!(span.len(), out.len());
        // SAFETY: a span lies in a region, which the application has given the transport.
        unsafe { copy_from(std::ptr::with_exposed_provenance(address(span)?), out) }
    }

    #[inline]
    fn read_and_sum(&self, span: Span, out: &mut [u8], crc: u32) -> Result<u32, MemoryFault> {
        assert_eq!(span.len(), out.len());
        // SAFETY: as in `read`.
        unsafe { copy_from_and_sum(std::ptr::with_exposed_provenance(address(span)?), out, crc) }
    }

    #[inline]
    fn write(&mut self, span: Span, data: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(span.len(), data.len());
        // SAFETY: as in `read`; the region table has checked that the region may be written.
        unsafe { copy_to(std::ptr::with_exposed_provenance_mut(address(span)?), data) }
    }

    fn atomic(&mut self, span: Span, op: AtomicOp) -> Result<u64, MemoryFault> {
        let addr = address(span)?;
        if span.len() != 8 || !addr.is_multiple_of(8) {
            return Err(MemoryFault);
        }
        // SAFETY: as in `write`, and aligned.
        unsafe { access::atomic(std::ptr::with_exposed_provenance_mut(addr), op) }
    }
}

#[inline]
fn address(span: Span) -> Result<usize, MemoryFault> {
    usize::try_from(span.addr()).map_err(|_| MemoryFault)
}

/// Fills `out` from `addr`, in increasing address order.
///
/// For any memory that may go away: registered, or shared with a process that may truncate its
/// file. What is read may change meanwhile; `out` then has some mixture.
///
/// # Errors
/// [`MemoryFault`] if a page cannot be read or the range wraps; `out` is then undefined.
///
/// # Safety
/// As far as the range is mapped, the caller may read it, and nobody has it borrowed mutably.
#[inline]
pub unsafe fn copy_from(addr: *const u8, out: &mut [u8]) -> Result<(), MemoryFault> {
    addr.addr().checked_add(out.len()).ok_or(MemoryFault)?;
    // SAFETY: the caller's promise; `out` is borrowed mutably, so nothing overlaps it.
    unsafe { access::copy(out.as_mut_ptr(), addr, out.len()) }
}

/// As [`copy_from`], and returns the CRC-32 of `out` behind bytes whose CRC-32 is `crc`.
///
/// # Errors
/// As [`copy_from`].
///
/// # Safety
/// As [`copy_from`].
#[inline]
pub unsafe fn copy_from_and_sum(
    addr: *const u8,
    out: &mut [u8],
    crc: u32,
) -> Result<u32, MemoryFault> {
    addr.addr().checked_add(out.len()).ok_or(MemoryFault)?;
    // SAFETY: the caller's promise; `out` is borrowed mutably, so nothing overlaps it.
    let (done, sum) = unsafe { access::copy_summing(out.as_mut_ptr(), addr, out.len(), crc) }?;
    let rest = &mut out[done..];
    if rest.is_empty() {
        return Ok(sum);
    }
    // SAFETY: the caller's promise, of what is left of the range.
    unsafe { copy_from(addr.wrapping_add(done), rest) }?;
    Ok(icrc::append(sum, rest))
}

/// Stores `data` at `addr`, in increasing address order, what falls into the last aligned 8-byte
/// word last and with release order.
///
/// # Errors
/// [`MemoryFault`] if a page cannot be written or the range wraps. A prefix of `data` that ends
/// less than 32 bytes before the first such page is then stored.
///
/// # Safety
/// As far as the range is mapped, the caller may write it, and nobody has it borrowed.
#[inline]
pub unsafe fn copy_to(addr: *mut u8, data: &[u8]) -> Result<(), MemoryFault> {
    let Some(last) = data.len().checked_sub(1) else { return Ok(()) };
    let last = addr.addr().checked_add(last).ok_or(MemoryFault)?;
    let tail_len = (last % 8 + 1).min(data.len());
    let (body, mut tail) = data.split_at(data.len() - tail_len);
    let mut to = addr.wrapping_add(body.len());
    if !body.is_empty() {
        // SAFETY: the caller's promise; `data` is borrowed, so it overlaps nothing that may be
        // written.
        unsafe { access::copy(addr, body.as_ptr(), body.len()) }?;
    }
    if tail.len() == 8 {
        // SAFETY: as above, and a whole aligned word.
        return unsafe { access::store(to, tail.as_ptr(), 8) };
    }
    // The largest aligned integers that fit, one by one.
    while !tail.is_empty() {
        let integer_len = 1 << to.addr().trailing_zeros().min(tail.len().ilog2());
        let (integer, rest) = tail.split_at(integer_len);
        // SAFETY: as above; a power of two of less than 8, and `to` a multiple of it.
        unsafe { access::store(to, integer.as_ptr(), integer_len) }?;
        to = to.wrapping_add(integer_len);
        tail = rest;
    }
    Ok(())
}

/// Unblocks the [`fault_signals`] in the calling thread, the first time it is called there: threads
/// that block all signals, so that one other handles them, are common. Blocked, these two do nothing
/// but have the kernel kill the process without asking a handler.
#[inline]
pub fn admit_faults() {
    thread_local! {
        static ADMITTED: Cell<bool> = const { Cell::new(false) };
    }
    if !ADMITTED.replace(true) {
        sys::unblock_signals(&fault_signals());
    }
}

/// Whether the first and the last page of a range can be read, and written if `write`; nothing
/// changes. True of an empty range, false of one that wraps. Where faults are not caught, only the
/// null page is known to be unmapped.
pub fn probe(addr: u64, len: u64, write: bool) -> bool {
    let Some(last) = len.checked_sub(1) else { return true };
    admit_faults();
    let ends = [Some(addr), addr.checked_add(last)];
    ends.into_iter().all(|end| {
        let Some(end) = end.and_then(|end| usize::try_from(end).ok()) else { return false };
        // SAFETY: one byte is read, or written with what is there in one atomic step: whatever
        // it belongs to, no one sees a change.
        unsafe { access::is_mapped(std::ptr::with_exposed_provenance_mut(end), write) }
    })
}

/// The signals that a thread which accesses memory must leave unblocked: SIGSEGV and SIGBUS.
pub const fn fault_signals() -> [c_int; 2] {
    access::FAULT_SIGNALS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index * 7 + index / 256) as u8 | 1).collect()
    }

    #[test]
    fn round_trips_of_all_sizes_touch_nothing_else() {
        let lens = (0..600).chain([1000, 4095, 4096, 4097, 65_536]);
        for (len, offset) in lens.flat_map(|len| (0..40).step_by(3).map(move |at| (len, at))) {
            let data = pattern(len);
            let mut host = vec![0u8; len + 80];
            let mut back = vec![0u8; len + 2];
            let addr = host.as_mut_ptr().wrapping_add(offset);
            // SAFETY: inside `host`.
            let sum = unsafe {
                copy_to(addr, &data).unwrap();
                copy_from(addr, &mut back[1..=len]).unwrap();
                assert!(back[1..=len] == data[..]);
                back.fill(0);
                copy_from_and_sum(addr, &mut back[1..=len], 0x1234_5678).unwrap()
            };
            assert_eq!(sum, icrc::append(0x1234_5678, &data), "{len} at {offset}");
            assert!(back[1..=len] == data[..] && back[0] == 0 && back[len + 1] == 0);
            assert!(host[offset..offset + len] == data[..], "{len} at {offset}");
            assert!(host[..offset].iter().chain(&host[offset + len..]).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn atomics_return_the_word_before() {
        let word = AtomicU64::new(5);
        // SAFETY: an atomic of ours.
        let run = |op| unsafe { access::atomic(word.as_ptr(), op) };
        let swap = |compare| AtomicOp::CompareSwap { compare, swap: 9 };
        assert_eq!(run(swap(4)), Ok(5));
        assert_eq!(run(swap(5)), Ok(5));
        assert_eq!(run(AtomicOp::FetchAdd(u64::MAX)), Ok(9));
        assert_eq!(run(AtomicOp::Store(1)), Ok(8));
        assert_eq!(word.into_inner(), 1);
    }

    #[test]
    fn atomics_are_atomic_against_the_cpu() {
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    // SAFETY: an atomic that outlives the thread.
                    unsafe { access::atomic(word.as_ptr(), AtomicOp::FetchAdd(1)) }.unwrap();
                }
            });
            scope.spawn(|| (0..10_000).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed)));
        });
        assert_eq!(word.into_inner(), 20_000);
    }

    /// A program that polls the last byte of a WRITE.
    #[test]
    fn who_sees_the_last_byte_sees_all() {
        for (len, offset) in [(8, 4), (13, 3), (31, 1), (300, 0), (1021, 9), (4096, 0)] {
            let host: Vec<AtomicU8> = (0..len + 16).map(|_| AtomicU8::new(0)).collect();
            let host = &host[offset..offset + len];
            let seen = AtomicU8::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 1..=200u8 {
                        // SAFETY: atomics, of which nobody has a mutable borrow.
                        unsafe { copy_to(host.as_ptr() as *mut u8, &vec![round; len]) }.unwrap();
                        while seen.load(Ordering::Acquire) != round {
                            std::thread::yield_now();
                        }
                    }
                });
                for round in 1..=200 {
                    while host[len - 1].load(Ordering::Acquire) != round {
                        std::hint::spin_loop();
                    }
                    let stale = host.iter().position(|at| at.load(Ordering::Relaxed) != round);
                    seen.store(round, Ordering::Release);
                    assert_eq!(stale, None, "{len} bytes at {offset}");
                }
            });
        }
    }

    #[test]
    fn probe_survives_any_range() {
        let mut host = [7u8; 64];
        let addr = host.as_mut_ptr().expose_provenance() as u64;
        for write in [false, true] {
            assert!(probe(addr, 64, write));
            assert!(probe(0, 0, write) && probe(u64::MAX, 0, write));
            assert!(!probe(0, 1, write));
            assert!(!probe(addr, u64::MAX, write));
            assert!(!probe(u64::MAX, 2, write));
        }
        assert_eq!(host, [7; 64]);
    }

    #[test]
    fn ranges_that_wrap_are_refused() {
        let end = std::ptr::without_provenance_mut(usize::MAX - 3);
        // SAFETY: nothing is mapped there.
        unsafe {
            assert_eq!(copy_from(end, &mut [0; 8]), Err(MemoryFault));
            assert_eq!(copy_to(end, &[0; 8]), Err(MemoryFault));
        }
    }
}
