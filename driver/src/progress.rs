//! Who drives the engine: whoever polls, or a background thread while nobody does.
//!
//! The two agree by one word, which peers see too: it lies beside the ring their frames arrive
//! in.
//!
//! | `wake` | who looks at the ring | a peer that has published a frame |
//! | --- | --- | --- |
//! | [`AWAKE`] | the thread | does nothing |
//! | [`ARMED`] | nobody | swaps the word to `AWAKE` and wakes the thread |
//! | [`POLLED`] | the application | does nothing |
//!
//! The application's half is [`Progress`]; the thread's is [`Thread`], a state machine without a
//! system call. Transitions of the word:
//!
//! - `AWAKE` to `ARMED` or `POLLED`: the thread alone;
//! - `ARMED` to `POLLED`: an application that polls in vain;
//! - `POLLED` to `ARMED`: one that has nothing left to poll for;
//! - `POLLED` to `AWAKE`: one that will wait for an event instead of polling;
//! - anything to `AWAKE`: the thread, when it begins to drive; `ARMED` to `AWAKE`: a peer.
//!
//! Invariant: no wake-up is lost. Whoever arms does so before it looks at the ring; whoever
//! publishes does so before it looks at the word.

mod thread;

use std::ops::Deref;

use crossbeam_utils::CachePadded;

use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Ordering, fence, futex_wait, futex_wake, yield_now,
};
use crate::sys::now_ns;

pub use thread::{Action, Seen, Thread};

/// The thread drives.
pub const AWAKE: u32 = 0;
/// Nobody drives; a publisher wakes the thread.
pub const ARMED: u32 = 1;
/// An application drives by polling.
pub const POLLED: u32 = 2;

/// The numbers of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Empty polls in a row before a poller takes over from a thread that sleeps armed: it costs
    /// a system call.
    pub polls_before_takeover: u32,
    /// From this empty poll in a row on, each yields the core.
    pub polls_before_yield: u32,
    /// After a yield that was in vain, one in so many does.
    pub polls_between_vain_yields: u32,
    /// A yield that takes fewer nanoseconds was in vain: nobody else wants the core.
    pub vain_yield_ns: u64,
    /// Polls after which a driving thread leaves the work to the poller.
    pub polls_before_watch: u32,
    /// Nanoseconds the thread drives in vain before it sleeps armed.
    pub idle_ns: u64,
    /// Nanoseconds the thread sleeps, armed, after finding the engine's lock taken.
    pub busy_ns: u64,
    /// Nanoseconds after which the thread first looks whether pollers still poll.
    pub watch_ns: u64,
    /// The longest such time, in nanoseconds: it doubles while they do.
    pub watch_max_ns: u64,
    /// A yield longer than this many nanoseconds means that something else wants the core.
    pub slow_yield_ns: u64,
    /// Idle turns after a slow yield that sleep at once instead of yielding.
    pub hog_turns: u32,
    /// The most such turns: they double with each further slow yield.
    pub hog_turns_max: u32,
    /// Nanoseconds within which finding frames nobody polled for counts as happening again.
    pub miss_window_ns: u64,
    /// Nanoseconds the thread then keeps the work to itself.
    pub hold_ns: u64,
    /// The longest such time, in nanoseconds: it doubles each time, and starts anew after as
    /// long without.
    pub hold_max_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            polls_before_takeover: 8,
            polls_before_yield: 33,
            polls_between_vain_yields: 64,
            vain_yield_ns: 2_000,
            polls_before_watch: 16,
            idle_ns: 50_000,
            busy_ns: 50_000,
            watch_ns: 200_000,
            watch_max_ns: 2_000_000,
            slow_yield_ns: 500_000,
            hog_turns: 32,
            hog_turns_max: 1024,
            miss_window_ns: 100_000_000,
            hold_ns: 4_000_000,
            hold_max_ns: 500_000_000,
        }
    }
}

/// How one bounded batch of the engine went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Somebody else holds the lock, and drives.
    Busy,
    /// Nothing was to be done.
    Idle,
    /// Something was.
    Worked {
        /// Frames had arrived.
        frames: bool,
    },
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Somebody else holds the lock, and drives.
    Busy,
    /// Frames, posted work requests, or a timer that is due.
    Work,
    /// Nothing before this time of the clock, in nanoseconds.
    Nothing {
        /// The next timer, if one runs.
        deadline_ns: Option<u64>,
    },
}

/// The word, and how the thread sleeps and is woken.
pub trait Wake {
    /// The word.
    fn word(&self) -> &AtomicU32;

    /// Sleeps while the word is `expected`, until [`wake`](Wake::wake), a peer that has brought the
    /// word from [`ARMED`] to [`AWAKE`], or `timeout_ns` nanoseconds if given. May return early.
    fn wait(&self, expected: u32, timeout_ns: Option<u64>);

    /// Wakes the thread.
    fn wake(&self);

    /// A poller has armed the word while the thread sleeps: what arrives without a peer's telling
    /// wakes it from now on.
    fn armed(&self);
}

/// A word that is slept on by itself.
#[derive(Debug)]
pub struct Futex<W>(pub W);

impl<W: Deref<Target = AtomicU32>> Wake for Futex<W> {
    #[inline]
    fn word(&self) -> &AtomicU32 {
        &self.0
    }

    fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        futex_wait(&self.0, expected, timeout_ns);
    }

    fn wake(&self) {
        futex_wake(&self.0);
    }

    fn armed(&self) {}
}

/// What an application and the background thread of one engine share: the word, and what the
/// thread goes by. `W` leads to the word.
#[derive(Debug)]
pub struct Progress<W> {
    wake: W,
    settings: Settings,
    counters: CachePadded<Counters>,
    /// 0, or the thread is in ARMED and sleeps until then, in nanoseconds of the clock.
    armed_until_ns: AtomicU64,
    /// The last yield of a poller was in vain.
    yields_in_vain: AtomicBool,
    /// The thread does not step back for pollers.
    holds: AtomicBool,
    stopping: AtomicBool,
}

/// Counts that only have to move when something happens: increments may be lost.
#[derive(Debug)]
struct Counters {
    polls: AtomicU32,
    posts: AtomicU32,
    /// This one is exact.
    notifies: AtomicU32,
}

impl<W: Wake> Progress<W> {
    /// Around the word `wake`, which the background thread is to bring to [`AWAKE`] first.
    pub fn new(wake: W, settings: Settings) -> Progress<W> {
        Progress {
            wake,
            settings,
            counters: CachePadded::new(Counters {
                polls: AtomicU32::new(0),
                posts: AtomicU32::new(0),
                notifies: AtomicU32::new(0),
            }),
            armed_until_ns: AtomicU64::new(0),
            yields_in_vain: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// A completion queue was polled. Full ones count too: a program that keeps finding what the
    /// thread has done is able to do it itself.
    #[inline]
    pub fn polled(&self) {
        count(&self.counters.polls);
    }

    /// Work was posted; a batch follows. Counts as driving, but not as polling: a program that
    /// only posts does not send the thread away.
    #[inline]
    pub fn posted(&self) {
        count(&self.counters.posts);
    }

    /// A poll and its batch brought nothing, `streak` times in a row. Takes over from the thread
    /// if that sleeps, and yields the core if it lasts. A yield costs as much as ten looks even
    /// where nobody else wants the core: there it becomes rarer.
    #[inline]
    pub fn empty_poll(&self, streak: u32) {
        if self.takes_over(streak) {
            self.wake.wake();
        }
        if self.yields(streak) {
            let before = now_ns();
            yield_now();
            let took = now_ns().saturating_sub(before);
            self.yields_in_vain.store(took < self.settings.vain_yield_ns, Ordering::Relaxed);
        }
    }

    fn yields(&self, streak: u32) -> bool {
        let Settings { polls_before_yield, polls_between_vain_yields, .. } = self.settings;
        streak >= polls_before_yield
            && (!self.yields_in_vain.load(Ordering::Relaxed)
                || streak.is_multiple_of(polls_between_vain_yields))
    }

    /// Says that a poller has nothing left to poll for: peers wake the thread from now on.
    /// If true, look at the inbound ring once more: a peer may have published unheard.
    #[inline]
    pub fn leave(&self) -> bool {
        // Plain first: mostly there is nothing to change, and the line is shared with peers.
        if self.wake.word().load(Ordering::Relaxed) != POLLED {
            return false;
        }
        let word = self.wake.word();
        let left =
            word.compare_exchange(POLLED, ARMED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        fence(Ordering::SeqCst);
        if left {
            self.wake.armed();
        }
        left
    }

    /// Work was posted that nobody may look at: the lock was taken. Wakes the thread if it sleeps
    /// armed.
    #[inline]
    pub fn ring_bell(&self) {
        if takes_wake(self.wake.word()) {
            self.wake.wake();
        }
    }

    /// A completion queue was armed: its owner will wait instead of polling. Hands over to the
    /// thread.
    pub fn notified(&self) {
        self.counters.notifies.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.hands_over() {
            self.wake.wake();
        }
    }

    /// The engine's next timer, after a batch of the application's; asked for where the thread
    /// sleeps. Wakes it if it would sleep past the timer. Call it before the engine's lock is
    /// released.
    #[inline]
    pub fn timer(&self, deadline_ns: impl FnOnce() -> Option<u64>) {
        let armed_until_ns = self.armed_until_ns.load(Ordering::Relaxed);
        if armed_until_ns != 0 && deadline_ns().is_some_and(|at| at < armed_until_ns) {
            self.ring_bell();
        }
    }

    /// Ends [`run`](Progress::run), soon.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.wake.word().swap(AWAKE, Ordering::AcqRel);
        self.wake.wake();
    }

    /// The background thread, until [`stop`](Progress::stop). `drive` tries the lock and runs
    /// one batch; `look` tries it and says what there is to do.
    pub fn run(&self, mut drive: impl FnMut() -> Driven, mut look: impl FnMut() -> Look) {
        let mut thread = Thread::new();
        let mut seen = Seen::Awake;
        loop {
            seen = match thread.step(self, now_ns(), seen) {
                Action::Drive => Seen::Driven(drive()),
                Action::Look => Seen::Looked(look()),
                Action::Yield => {
                    yield_now();
                    Seen::Awake
                }
                Action::Wait { expected, timeout_ns } => {
                    self.wake.wait(expected, timeout_ns);
                    Seen::Awake
                }
                Action::Stop => return,
            };
        }
    }

    /// Brings `ARMED` to `POLLED` if that is due; true if the thread has to be told.
    #[inline]
    fn takes_over(&self, streak: u32) -> bool {
        if self.wake.word().load(Ordering::Relaxed) != ARMED || self.holds.load(Ordering::Relaxed) {
            return false;
        }
        if self.sleeps_armed() && streak < self.settings.polls_before_takeover {
            return false;
        }
        let taken = self
            .wake
            .word()
            .compare_exchange(ARMED, POLLED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        // The thread may have gone to sleep meanwhile; nobody else would wake it any more.
        fence(Ordering::SeqCst);
        taken && self.sleeps_armed()
    }

    /// Brings `POLLED` to `AWAKE`; true if the thread has to be told.
    fn hands_over(&self) -> bool {
        self.wake
            .word()
            .compare_exchange(POLLED, AWAKE, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn sleeps_armed(&self) -> bool {
        self.armed_until_ns.load(Ordering::Relaxed) != 0
    }
}

/// What a publisher does after publishing: if nobody looks, brings the word to [`AWAKE`]. True for
/// the one publisher that has to wake the thread then.
#[inline]
pub fn takes_wake(wake: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    wake.load(Ordering::Relaxed) == ARMED
        && wake.compare_exchange(ARMED, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// One more, or about that: a load and a store, no locked instruction.
#[inline]
fn count(counter: &AtomicU32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn progress(wake: u32) -> Progress<Futex<Box<AtomicU32>>> {
        Progress::new(Futex(Box::new(AtomicU32::new(wake))), Settings::default())
    }

    fn wake(progress: &Progress<Futex<Box<AtomicU32>>>) -> u32 {
        progress.wake.word().load(Ordering::Relaxed)
    }

    #[test]
    fn a_poller_takes_over_from_a_sleeping_thread_at_the_eighth_empty_poll() {
        let progress = progress(ARMED);
        progress.armed_until_ns.store(u64::MAX, Ordering::Relaxed);
        for streak in 1..8 {
            assert!(!progress.takes_over(streak));
            assert_eq!(wake(&progress), ARMED);
        }
        assert!(progress.takes_over(8), "the thread is told");
        assert_eq!(wake(&progress), POLLED);
        assert!(!progress.takes_over(9), "once");
    }

    #[test]
    fn a_poller_takes_over_from_a_watching_thread_at_once_and_silently() {
        let progress = progress(ARMED);
        assert!(!progress.takes_over(1));
        assert_eq!(wake(&progress), POLLED);
    }

    #[test]
    fn a_poller_leaves_the_word_to_a_thread_that_drives_or_holds() {
        let driving = progress(AWAKE);
        assert!(!driving.takes_over(100));
        assert_eq!(wake(&driving), AWAKE);
        let holding = progress(ARMED);
        holding.holds.store(true, Ordering::Relaxed);
        assert!(!holding.takes_over(100));
        assert_eq!(wake(&holding), ARMED);
    }

    #[test]
    fn a_poller_whose_yields_are_in_vain_yields_ever_and_again() {
        let progress = progress(POLLED);
        let yields = || (1..=160).filter(|&streak| progress.yields(streak)).collect::<Vec<_>>();
        assert_eq!(yields(), (33..=160).collect::<Vec<_>>());
        progress.yields_in_vain.store(true, Ordering::Relaxed);
        assert_eq!(yields(), [64, 128]);
    }

    #[test]
    fn who_leaves_arms_the_word_and_looks_again() {
        for (before, after, looks) in
            [(POLLED, ARMED, true), (ARMED, ARMED, false), (AWAKE, AWAKE, false)]
        {
            let progress = progress(before);
            assert_eq!(progress.leave(), looks);
            assert_eq!(wake(&progress), after);
        }
    }

    #[test]
    fn arming_a_completion_queue_hands_a_polled_ring_to_the_thread() {
        for (before, after, tells) in
            [(POLLED, AWAKE, true), (ARMED, ARMED, false), (AWAKE, AWAKE, false)]
        {
            let progress = progress(before);
            assert_eq!(progress.hands_over(), tells);
            assert_eq!(wake(&progress), after);
        }
    }

    #[test]
    fn one_publisher_wakes_a_sleeping_thread_and_none_a_poller() {
        let word = AtomicU32::new(ARMED);
        assert!(takes_wake(&word));
        assert_eq!(word.load(Ordering::Relaxed), AWAKE);
        assert!(!takes_wake(&word));
        word.store(POLLED, Ordering::Relaxed);
        assert!(!takes_wake(&word));
        assert_eq!(word.load(Ordering::Relaxed), POLLED);
    }

    #[test]
    fn only_a_timer_the_thread_would_sleep_past_wakes_it() {
        let progress = progress(ARMED);
        progress.timer(|| Some(5));
        assert_eq!(wake(&progress), ARMED, "it is about to look");
        progress.armed_until_ns.store(10, Ordering::Relaxed);
        progress.timer(|| None);
        progress.timer(|| Some(10));
        assert_eq!(wake(&progress), ARMED);
        progress.timer(|| Some(9));
        assert_eq!(wake(&progress), AWAKE);
    }

    #[test]
    fn the_thread_sleeps_wakes_for_a_publisher_and_ends() {
        let progress = Arc::new(progress(AWAKE));
        let published = Arc::new(AtomicUsize::new(0));
        let taken = Arc::new(AtomicUsize::new(0));
        let thread = {
            let (progress, published, taken) = (progress.clone(), published.clone(), taken.clone());
            std::thread::spawn(move || {
                progress.run(
                    || match published.swap(0, Ordering::SeqCst) {
                        0 => Driven::Idle,
                        count => {
                            taken.fetch_add(count, Ordering::SeqCst);
                            Driven::Worked { frames: true }
                        }
                    },
                    || match published.load(Ordering::SeqCst) {
                        0 => Look::Nothing { deadline_ns: None },
                        _ => Look::Work,
                    },
                );
            })
        };
        for round in 1..=50 {
            while !progress.sleeps_armed() {
                std::thread::yield_now();
            }
            published.fetch_add(1, Ordering::SeqCst);
            progress.ring_bell();
            while taken.load(Ordering::SeqCst) < round {
                std::thread::yield_now();
            }
        }
        progress.stop();
        thread.join().unwrap();
    }
}
