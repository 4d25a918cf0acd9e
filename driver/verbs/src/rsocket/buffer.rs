//! Registered memory: what is sent from, and what a peer writes to.
//!
//! A peer may write to its part of it at any time, whatever was agreed, so nothing refers to these
//! bytes: they are copied in and out by address.

use core::alloc::Layout;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc;

use ferroce::memory;

use super::protocol::{Mapping, Order, Target};
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvMr, IbvPd};
use crate::mr::{ibv_dereg_mr, ibv_reg_mr};

/// `IBV_ACCESS_LOCAL_WRITE`.
pub const LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_WRITE`.
pub const REMOTE_WRITE: c_int = 2;

/// A device reads and writes whole pages.
const PAGE: usize = 4096;

/// A region of registered memory of our own, zero at first.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
    region: Region,
}

// SAFETY: the memory is reached by copies alone, and by whom is up to the flow control.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes, more than none, with the rights `access`.
    ///
    /// # Errors
    /// ENOMEM, and those of a registration.
    ///
    /// # Safety
    /// The domain must be live, and outlive the buffer.
    pub unsafe fn new(pd: *mut IbvPd, len: usize, access: c_int) -> Result<Buffer, Errno> {
        let layout = Layout::from_size_align(len, PAGE).map_err(|_| EINVAL)?.pad_to_align();
        if layout.size() == 0 {
            return Err(EINVAL);
        }
        // SAFETY: the layout is not of nothing.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(Errno(libc::ENOMEM))?;
        // SAFETY: the memory is ours, and the domain live by the caller's promise.
        match unsafe { Region::new(pd, start.as_ptr(), layout.size(), access) } {
            Ok(region) => Ok(Buffer { start, layout, region }),
            Err(error) => {
                // SAFETY: allocated above, and nobody knows of it.
                unsafe { alloc::dealloc(start.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// What peers call it.
    pub fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    /// What the device calls it.
    pub fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// The address of a byte in it.
    pub fn addr(&self, at: u32) -> u64 {
        self.place(at as usize, 0).addr() as u64
    }

    /// `len` bytes from `at`, which must lie in it.
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.layout.size()));
        // SAFETY: just checked.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Copies an application's bytes in.
    ///
    /// # Errors
    /// EFAULT if they are not there.
    ///
    /// # Safety
    /// What is mapped of `from` must be readable for as long as this takes.
    pub unsafe fn fill(&self, at: u32, from: *const u8, len: u32) -> Result<(), Errno> {
        let place = self.place(at as usize, len as usize);
        // SAFETY: the place is this buffer's, and reserved for this one sender.
        let out = unsafe { core::slice::from_raw_parts_mut(place, len as usize) };
        // SAFETY: the caller's promise.
        unsafe { memory::copy_from(from, out) }.map_err(|_| Errno(libc::EFAULT))
    }

    /// Copies bytes of ours in.
    pub fn put(&self, at: u32, bytes: &[u8]) {
        let place = self.place(at as usize, bytes.len());
        // SAFETY: the place is in this buffer, and `bytes` is not.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Copies `len` bytes out to an application.
    ///
    /// # Errors
    /// EFAULT if there is no room.
    ///
    /// # Safety
    /// What is mapped of `to` must be writable for as long as this takes.
    pub unsafe fn drain(&self, at: u32, to: *mut u8, len: u32) -> Result<(), Errno> {
        let place = self.place(at as usize, len as usize);
        // SAFETY: the caller's promise.
        let out = unsafe { core::slice::from_raw_parts_mut(to, len as usize) };
        // SAFETY: the place is in this buffer. A peer that writes where it must not makes the
        // bytes be some mixture.
        unsafe { memory::copy_from(place, out) }.map_err(|_| Errno(libc::EFAULT))
    }

    /// Copies bytes out to us.
    pub fn get(&self, at: u32, out: &mut [u8]) {
        let place = self.place(at as usize, out.len());
        // SAFETY: the place is in this buffer, which is mapped.
        let copied = unsafe { memory::copy_from(place, out) };
        assert!(copied.is_ok());
    }

    /// The 8 bytes at `at`, a multiple of 8, as the last word of an entry that a peer writes: who
    /// sees it sees what lies before it in the entry.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8));
        // SAFETY: in the buffer, aligned, and never written otherwise than atomically: the engine
        // stores the last word of a write in one piece.
        unsafe { AtomicU64::from_ptr(self.place(at, 8).cast()) }
    }

    /// Takes the target a peer has written to entry `index` of a list at the start, if there is
    /// one, and leaves the entry empty.
    pub fn take_target(&self, index: usize) -> Option<Target> {
        let at = index * Target::LEN;
        let word = self.word(at + 8).load(Ordering::Acquire);
        let mut entry = [0; Target::LEN];
        entry[..8].copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
        entry[8..].copy_from_slice(&word.to_ne_bytes());
        let target = Target::parse(&entry, Order::HOST);
        if target.length == 0 {
            return None;
        }
        self.word(at + 8).store(0, Ordering::Relaxed);
        Some(target)
    }

    /// The buffer a peer has mapped in entry `index` of a table at byte `start`; of no bytes if
    /// there is none.
    pub fn mapping(&self, start: usize, index: usize) -> Mapping {
        let at = start + index * Mapping::LEN;
        let mut entry = [0; Mapping::LEN];
        let last = self.word(at + 16).load(Ordering::Acquire);
        entry[16..].copy_from_slice(&last.to_ne_bytes());
        for place in [0, 8] {
            let word = self.word(at + place).load(Ordering::Relaxed);
            entry[place..place + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Mapping::parse(&entry, Order::HOST)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.region.deregister() {
            // SAFETY: allocated by `new`, and the device knows of it no more.
            unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// A registration of memory.
#[derive(Debug)]
pub struct Region {
    mr: *mut IbvMr,
}

// SAFETY: a region is used from any thread.
unsafe impl Send for Region {}

impl Region {
    /// # Errors
    /// Those of `ibv_reg_mr`.
    ///
    /// # Safety
    /// The domain must be live, and outlive the region; the memory may be accessed as `access`
    /// says until then.
    pub unsafe fn new(
        pd: *mut IbvPd,
        start: *mut u8,
        len: usize,
        access: c_int,
    ) -> Result<Region, Errno> {
        // SAFETY: the caller's promise.
        let mr = unsafe { ibv_reg_mr(pd, start.cast(), len, access) };
        if mr.is_null() { Err(errno::last()) } else { Ok(Region { mr }) }
    }

    /// What peers call it.
    pub fn rkey(&self) -> u32 {
        // SAFETY: live until dropped.
        unsafe { (*self.mr).rkey }
    }

    /// What the device calls it.
    pub fn lkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.mr).lkey }
    }

    /// Whether nothing uses the memory any more. Not so in a forked child, which cannot tell.
    fn deregister(&mut self) -> bool {
        let mr = core::mem::replace(&mut self.mr, core::ptr::null_mut());
        // SAFETY: made by `new`, and given up once.
        mr.is_null() || unsafe { ibv_dereg_mr(mr) } == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.deregister();
    }
}
