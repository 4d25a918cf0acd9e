//! What the background thread of an engine sleeps on: the wake word of its member, or, where the
//! engine has a link, descriptors.
//!
//! The link's descriptor is armed for one event while the word says that nobody looks: what comes
//! by the link then wakes the thread as another member's frame does, and brings the word to awake.
//! While the application polls it stays silent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::fabric::{WakeSocket, WakeWord};
use crate::progress::{ARMED, Futex, Wake, takes_wake};
use crate::sync::lock;
use crate::sys::{self, LentFd};

/// Who has an event.
const WOKEN: u64 = 0;
const SOCKET: u64 = 1;
const LINK: u64 = 2;
const WATCH: u64 = 3;

/// Where a program has closed descriptors it does not know: the longest sleep then.
const BLIND_NS: u64 = 1_000_000;

/// Descriptors, one of which is a link's.
#[derive(Debug)]
pub(super) struct Descriptors {
    word: WakeWord,
    epoll: Epoll,
    /// By which this process wakes the thread, and others do.
    woken: LentFd,
    socket: WakeSocket,
    /// None once the link is gone.
    sources: Mutex<Option<Sources>>,
    /// Neighbours, routes or interfaces have.
    changed: AtomicBool,
}

/// Of a link, copies of what it is waited for.
#[derive(Debug)]
struct Sources {
    link: OwnedFd,
    watch: Option<OwnedFd>,
}

impl Descriptors {
    /// Waits for the wake-ups of a member, and a link's descriptors.
    ///
    /// # Errors
    /// If there is no descriptor left, or one cannot be waited for.
    pub fn open(
        word: WakeWord,
        socket: WakeSocket,
        link: BorrowedFd<'_>,
        watch: Option<BorrowedFd<'_>>,
    ) -> io::Result<Descriptors> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let woken = sys::eventfd()?;
        let watch = watch.map(|watch| watch.try_clone_to_owned()).transpose()?;
        let sources = Sources { link: link.try_clone_to_owned()?, watch };
        epoll.add(&woken, EpollEvent::new(EpollFlags::EPOLLIN, WOKEN))?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, SOCKET))?;
        epoll.add(&sources.link, EpollEvent::new(EpollFlags::EPOLLONESHOT, LINK))?;
        if let Some(watch) = &sources.watch {
            epoll.add(watch, once(WATCH))?;
        }
        let (sources, changed) = (Mutex::new(Some(sources)), AtomicBool::new(false));
        Ok(Descriptors { word, epoll, woken, socket, sources, changed })
    }

    /// Whether something of the network has changed that nobody has looked at yet.
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Says that somebody will look now; a later change is told again.
    pub fn take_change(&self) {
        self.changed.store(false, Ordering::Relaxed);
        if let Some(Sources { watch: Some(watch), .. }) = &*lock(&self.sources) {
            // Without it the change is seen when the link is next used in vain.
            let _ = self.epoll.modify(watch, &mut once(WATCH));
        }
    }

    /// The link is gone.
    pub fn forget_link(&self) {
        lock(&self.sources).take();
    }

    fn take_events(&self) {
        let mut events = [EpollEvent::empty(); 4];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                WOKEN => {
                    // It is readable, and nobody else reads it.
                    let _ = sys::read_u64(self.woken.as_fd());
                }
                SOCKET => self.socket.drain(),
                LINK => {
                    takes_wake(&self.word);
                }
                _ => {
                    self.changed.store(true, Ordering::Relaxed);
                    takes_wake(&self.word);
                }
            }
        }
    }
}

fn once(data: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, data)
}

impl Wake for Descriptors {
    fn word(&self) -> &AtomicU32 {
        &self.word
    }

    fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        if expected == ARMED {
            self.armed();
        }
        if self.word.load(Ordering::Acquire) != expected {
            return;
        }
        match sys::wait_readable(self.epoll.0.as_fd(), timeout_ns) {
            Ok(true) => self.take_events(),
            Ok(false) => {}
            Err(_) => {
                let timeout_ns = timeout_ns.map_or(BLIND_NS, |ns| ns.min(BLIND_NS));
                self.word.wait(expected, Some(timeout_ns));
            }
        }
    }

    fn wake(&self) {
        // Of 2^64 - 1 at most some are used.
        let _ = sys::write_u64(self.woken.as_fd(), 1);
    }

    fn armed(&self) {
        if let Some(Sources { link, .. }) = &*lock(&self.sources) {
            // What is there already makes an event as well.
            let _ = self.epoll.modify(link, &mut once(LINK));
        }
    }
}

/// What the thread of an engine sleeps on.
#[derive(Debug)]
pub(crate) enum Sleeper {
    Word(Futex<WakeWord>),
    Descriptors(Arc<Descriptors>),
}

impl Wake for Sleeper {
    #[inline]
    fn word(&self) -> &AtomicU32 {
        match self {
            Sleeper::Word(word) => word.word(),
            Sleeper::Descriptors(descriptors) => descriptors.word(),
        }
    }

    fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        match self {
            Sleeper::Word(word) => word.wait(expected, timeout_ns),
            Sleeper::Descriptors(descriptors) => descriptors.wait(expected, timeout_ns),
        }
    }

    fn wake(&self) {
        match self {
            Sleeper::Word(word) => word.wake(),
            Sleeper::Descriptors(descriptors) => descriptors.wake(),
        }
    }

    fn armed(&self) {
        match self {
            Sleeper::Word(word) => word.armed(),
            Sleeper::Descriptors(descriptors) => descriptors.armed(),
        }
    }
}
