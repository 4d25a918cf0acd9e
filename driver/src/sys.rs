//! System calls, each as a function that cannot be misused.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// A descriptor that the program knows, and may have closed by itself: then it is no error that it
/// is not there any more.
#[derive(Debug)]
pub struct LentFd(RawFd);

impl AsFd for LentFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not -1. Whether it is still open is up to the program; every use of it is a
        // system call that says so.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for LentFd {
    fn drop(&mut self) {
        // SAFETY: it was given to us to close.
        unsafe { libc::close(self.0) };
    }
}

/// An eventfd at 0 whose reads take one each; closed on exec.
///
/// # Errors
/// If the process or the system has no descriptor left.
pub fn eventfd() -> io::Result<LentFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(LentFd(fd))
}

/// Reads the eight bytes of an eventfd; waits for them unless the descriptor is non-blocking.
///
/// # Errors
/// `WouldBlock`, `Interrupted`, and what else read(2) says.
pub fn read_u64(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value = [0u8; 8];
    // SAFETY: the buffer is ours and as long as said.
    let read = unsafe { libc::read(fd.as_raw_fd(), value.as_mut_ptr().cast(), value.len()) };
    eight_bytes(read, value)
}

/// Reads the eight bytes of an eventfd without waiting, whether or not the descriptor is
/// non-blocking.
///
/// # Errors
/// `WouldBlock`; `Unsupported` where the kernel cannot promise not to wait.
pub fn read_u64_now(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value = [0u8; 8];
    let buffer = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: value.len() };
    // SAFETY: the one buffer is ours and as long as said.
    let read = unsafe { libc::preadv2(fd.as_raw_fd(), &buffer, 1, -1, libc::RWF_NOWAIT) };
    eight_bytes(read, value)
}

/// Writes eight bytes to an eventfd: adds to its counter.
///
/// # Errors
/// What write(2) says.
pub fn write_u64(fd: BorrowedFd<'_>, value: u64) -> io::Result<()> {
    let value = value.to_ne_bytes();
    // SAFETY: the buffer is ours and as long as said.
    let written = unsafe { libc::write(fd.as_raw_fd(), value.as_ptr().cast(), value.len()) };
    eight_bytes(written, value).map(|_| ())
}

fn eight_bytes(count: isize, value: [u8; 8]) -> io::Result<u64> {
    match count {
        8 => Ok(u64::from_ne_bytes(value)),
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Waits until a descriptor is readable, a signal, or for `timeout_ns` nanoseconds if given; whether
/// it is readable.
///
/// # Errors
/// If it is not open, and what else ppoll(2) says.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout_ns: Option<u64>) -> io::Result<bool> {
    let timeout = timeout_ns.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut wait = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the one descriptor and the timeout live in this frame; there is no signal mask.
    let count = unsafe { libc::ppoll(&mut wait, 1, timeout, ptr::null()) };
    match (count, wait.revents) {
        (0, _) => Ok(false),
        (1, revents) if revents & libc::POLLIN != 0 => Ok(true),
        (1, _) => Err(io::Error::from_raw_os_error(libc::EBADF)),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps while `word` is `expected`, until [`futex_wake`] by any process that maps the word, a
/// signal, or `timeout_ns` nanoseconds from now. May return early: look at the word.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let timeout = timeout_ns.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word is borrowed for the call, and the timeout lives in this frame.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timeout) };
}

/// Wakes one thread that sleeps on `word`, in this process or another.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the address is only looked up.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Nanoseconds of the monotonic clock, the same in every process of the machine.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result is ours. This clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Who may hold a lock beside its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Exclusive,
    /// Others that share it.
    Shared,
}

/// Takes the flock(2) of an open file if it is free, and says whether it was.
///
/// The lock belongs to the open file, not to the descriptor or process: it lives as long as any
/// descriptor or [`Mapping`] of this opening does, or until [`unlock`].
///
/// # Errors
///
/// What the system says, other than that somebody else holds the lock.
pub fn try_lock(file: &File, sharing: Sharing) -> io::Result<bool> {
    let operation = match sharing {
        Sharing::Exclusive => libc::LOCK_EX,
        Sharing::Shared => libc::LOCK_SH,
    };
    // SAFETY: the descriptor is open as long as `file` is.
    if unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// Gives up the flock(2) of an open file, also for children that have inherited it.
pub fn unlock(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is. There is nothing to do about an error.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// Gives the file's first `len` bytes storage, so that no later write to them can fail or fault
/// for want of space; the file is as long as that afterwards. New bytes are zero.
///
/// # Errors
///
/// What the system says: `StorageFull` if there is no space, `Unsupported` if the file system
/// cannot do it; `FileTooLarge` beyond the limit of the process, before that ends it by a signal.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the result is ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0;
    if known && limit.rlim_cur < len {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    loop {
        // SAFETY: the descriptor is open as long as `file` is.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => continue,
            error => return Err(error),
        }
    }
}

/// When the pages of a mapping are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// When it is made: no access waits for them later.
    AtOnce,
    /// At the first access to each: of a large mapping perhaps little is used.
    AsTouched,
}

/// A shared mapping of a file or of new memory, readable and writable, that is not inherited by
/// children.
///
/// It keeps the open file alive, and with it a lock taken by [`try_lock`]; the descriptor may be
/// closed. What is in it may change at any moment: it hands out no references, only its address.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    process: u32,
}

// SAFETY: a mapping is an address range that any thread may use; it is unmapped only when the
// last owner drops it.
unsafe impl Send for Mapping {}
// SAFETY: as above; whoever reads or writes through the address answers for data races.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new(file: &File, len: usize, pages: Pages) -> io::Result<Mapping> {
        Mapping::with(Some(file.as_fd()), 0, len, pages)
    }

    /// Maps `len` bytes, and its pages at once: from `offset` of what has the descriptor, or new
    /// ones of zeros.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn of(what: Option<BorrowedFd<'_>>, offset: i64, len: usize) -> io::Result<Mapping> {
        Mapping::with(what, offset, len, Pages::AtOnce)
    }

    fn with(
        what: Option<BorrowedFd<'_>>,
        offset: i64,
        len: usize,
        pages: Pages,
    ) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, anonymous) = what.map_or((-1, libc::MAP_ANONYMOUS), |fd| (fd.as_raw_fd(), 0));
        let populate = match pages {
            Pages::AtOnce => libc::MAP_POPULATE,
            Pages::AsTouched => 0,
        };
        let flags = libc::MAP_SHARED | populate | anonymous;
        // SAFETY: a new mapping at an address the kernel picks touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let mapping = Mapping { start, len, process: std::process::id() };
        // SAFETY: the range is the mapping just made.
        if unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// Address of the first byte, aligned to a page. Valid for [`Mapping::len`] bytes as long as
    /// the mapping lives, in the process that made it, and while the file is that long: an access
    /// beyond the end of a file that somebody has cut raises SIGBUS.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child has not inherited the mapping, and may have something else in its place.
        if std::process::id() == self.process {
            // SAFETY: the range is our mapping, and nobody uses it after its last owner.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Forks of this process and its ancestors since [`fork_generation`] was first called in one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A number that is another one in each forked child: what was made under a different one belongs
/// to the parent, whose threads and mappings the child does not have.
#[inline]
pub fn fork_generation() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler only adds to an atomic. It stays loaded: the library is never
        // unloaded, and neither is a program.
        let outcome = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        assert_eq!(outcome, 0, "no memory for a fork handler");
    });
    FORKS.load(Ordering::Relaxed)
}

/// Has `handler` called when the process ends by `exit`, or by returning from `main`.
pub fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the handler stays loaded: the library is never unloaded, and neither is a program.
    let outcome = unsafe { libc::atexit(handler) };
    assert_eq!(outcome, 0, "no memory for an exit handler");
}

/// The calling thread's signals as they were; put back when dropped.
#[derive(Debug)]
pub struct BlockedSignals {
    before: libc::sigset_t,
}

/// Blocks all signals of the calling thread, and so of those it starts meanwhile, but for the ones
/// a fault of its own raises.
pub fn block_signals() -> BlockedSignals {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first call fills the set, the others work on it; the last fills `before`. None
    // can fail for these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        BlockedSignals { before: before.assume_init() }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the system.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// Unblocks `signals` in the calling thread.
pub fn unblock_signals(signals: &[c_int]) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills the set, the others work on it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Whether reading a descriptor waits for something to read.
pub fn blocks(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: takes no pointer.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK == 0
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::Duration;

    use super::*;

    struct TempFile(PathBuf);

    impl TempFile {
        fn new(name: &str) -> TempFile {
            let name = format!("ferroce-sys-{name}-{}", std::process::id());
            TempFile(std::env::temp_dir().join(name))
        }

        fn open(&self) -> File {
            open(&self.0)
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    fn locked_mapping(path: &Path) -> Mapping {
        let file = open(path);
        allocate(&file, 4096).unwrap();
        assert!(try_lock(&file, Sharing::Exclusive).unwrap());
        Mapping::new(&file, 4096, Pages::AtOnce).unwrap()
    }

    /// Waits for the lock: a child that another test starts at the same moment may for an instant
    /// hold a copy of every descriptor.
    fn becomes_free(path: &Path) -> bool {
        (0..5000).any(|_| {
            let free = try_lock(&open(path), Sharing::Shared).unwrap();
            if !free {
                thread::sleep(Duration::from_millis(1));
            }
            free
        })
    }

    #[test]
    fn lock_lives_as_long_as_the_mapping() {
        let path = TempFile::new("lock");
        let mapping = locked_mapping(&path.0);
        assert!(!try_lock(&path.open(), Sharing::Shared).unwrap());
        assert!(!try_lock(&path.open(), Sharing::Exclusive).unwrap());
        drop(mapping);
        assert!(becomes_free(&path.0));
    }

    #[test]
    fn forked_child_does_not_keep_the_lock() {
        let path = TempFile::new("fork");
        let mapping = locked_mapping(&path.0);
        // SAFETY: the child calls nothing but pause and _exit, which are safe after a fork of a
        // process with threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(0);
            }
        }
        assert!(child > 0);
        assert!(!try_lock(&path.open(), Sharing::Shared).unwrap());
        drop(mapping);
        let free = becomes_free(&path.0);
        // SAFETY: `child` is a child of ours that has not been waited for.
        let alive_until_killed = unsafe {
            let alive = libc::waitpid(child, ptr::null_mut(), libc::WNOHANG) == 0;
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, ptr::null_mut(), 0);
            alive
        };
        assert!(free);
        assert!(alive_until_killed);
    }

    #[test]
    fn futex_wakes_a_sleeper() {
        let word = Arc::new(AtomicU32::new(1));
        let sleeper = thread::spawn({
            let word = word.clone();
            move || {
                while word.load(Ordering::Acquire) == 1 {
                    futex_wait(&word, 1, None);
                }
            }
        });
        word.store(0, Ordering::Release);
        futex_wake(&word);
        sleeper.join().unwrap();
        // Not the expected value: returns at once. Time over: returns.
        futex_wait(&word, 1, None);
        futex_wait(&word, 0, Some(1000));
    }

    #[test]
    fn allocation_gives_length_and_zeros() {
        let path = TempFile::new("allocate");
        allocate(&path.open(), 10_000).unwrap();
        assert_eq!(std::fs::read(&path.0).unwrap(), vec![0; 10_000]);
    }
}
