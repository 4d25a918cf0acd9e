//! The background thread as a state machine: told the time and how its last action went, it says
//! what to do next.
//!
//! - **Drive**: batch after batch. Pollers about: Watch. Idle for long: Armed.
//! - **Armed**: asleep until a publisher, a poller that takes over, or a timer.
//! - **Watch**: asleep while pollers drive, looking now and then whether they still do.
//!
//! Two refinements. A yield that takes long means that another program wants the core, and the
//! thread goes to sleep at once for a while. Frames found after pollers have stopped without a
//! word mean a program that polls now and then only, and the thread *holds*: it keeps the work
//! for a while, whoever polls.

use super::{ARMED, AWAKE, Driven, Look, POLLED, Progress, Settings, Wake};
use crate::sync::{Ordering, fence};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Try the lock and run one batch.
    Drive,
    /// Try the lock and see what there is to do.
    Look,
    /// Give the core to somebody else, once.
    Yield,
    /// Sleep while the word is `expected`.
    Wait {
        /// Value of the word.
        expected: u32,
        /// At most so many nanoseconds, if limited.
        timeout_ns: Option<u64>,
    },
    /// End the thread.
    Stop,
}

/// How the last action went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The thread begins, or is back from [`Action::Wait`] or [`Action::Yield`].
    Awake,
    /// After [`Action::Drive`].
    Driven(Driven),
    /// After [`Action::Look`].
    Looked(Look),
}

/// The machine. Times are nanoseconds of one clock that does not go back.
#[derive(Debug)]
pub struct Thread {
    state: State,
    /// `notifies` when `polls_counted_from` was last set.
    notifies: u32,
    /// `polls` when driving began or a completion queue was last armed.
    polls_counted_from: u32,
    /// `polls` at the last batch, or when last set anew.
    polls_last: u32,
    /// `polls` when the lock was last found taken, unless it has been free since.
    polls_when_busy: Option<u32>,
    /// The batch to come follows a watch that pollers have let run out: how long that was.
    after_watch_ns: Option<u64>,
    idle_since_ns: Option<u64>,
    yielded_at_ns: Option<u64>,
    /// Idle turns left that sleep at once.
    hog_turns: u32,
    /// Their number after the next slow yield; 0 stands for the first.
    hog_turns_next: u32,
    missed_at_ns: Option<u64>,
    hold_until_ns: u64,
    hold_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Drive,
    Armed,
    Watch {
        span_ns: u64,
        until_ns: u64,
        /// Polls and posts when it began.
        driven: u32,
    },
}

impl Default for Thread {
    fn default() -> Thread {
        Thread::new()
    }
}

impl Thread {
    /// Begins by driving.
    pub fn new() -> Thread {
        Thread {
            state: State::Begin,
            notifies: 0,
            polls_counted_from: 0,
            polls_last: 0,
            polls_when_busy: None,
            after_watch_ns: None,
            idle_since_ns: None,
            yielded_at_ns: None,
            hog_turns: 0,
            hog_turns_next: 0,
            missed_at_ns: None,
            hold_until_ns: 0,
            hold_ns: 0,
        }
    }

    /// The next action, given how the last one went.
    pub fn step<W: Wake>(&mut self, progress: &Progress<W>, now_ns: u64, seen: Seen) -> Action {
        if now_ns >= self.hold_until_ns && progress.holds.load(Ordering::Relaxed) {
            progress.holds.store(false, Ordering::Relaxed);
        }
        let action = match (seen, self.state) {
            (Seen::Driven(driven), _) => self.driven(progress, now_ns, driven),
            (Seen::Looked(look), _) => self.looked(progress, now_ns, look),
            (Seen::Awake, State::Begin) => self.drive(progress),
            (Seen::Awake, State::Drive) => self.yielded(progress, now_ns),
            (Seen::Awake, State::Armed) => match progress.wake.word().load(Ordering::Acquire) {
                ARMED => Action::Look,
                POLLED => self.watch(progress, now_ns, progress.settings.watch_ns),
                // AWAKE; or nonsense of a peer's, with which it would never sleep again.
                _ => self.drive(progress),
            },
            (Seen::Awake, State::Watch { span_ns, until_ns, driven }) => {
                self.watched(progress, now_ns, span_ns, until_ns, driven)
            }
        };
        // Last: `stop` either sees the word this step has left, or is seen here.
        fence(Ordering::SeqCst);
        if progress.stopping.load(Ordering::Relaxed) { Action::Stop } else { action }
    }

    /// After a batch.
    fn driven<W: Wake>(&mut self, progress: &Progress<W>, now_ns: u64, driven: Driven) -> Action {
        let settings = &progress.settings;
        if self.notifies != progress.counters.notifies.load(Ordering::Relaxed) {
            self.count_polls_from_now(progress);
        }
        let polls = progress.counters.polls.load(Ordering::Relaxed);
        // Also from one time that the lock was taken to the next, asleep or not in between.
        let polls_moved =
            polls != self.polls_last || self.polls_when_busy.is_some_and(|before| polls != before);
        self.polls_last = polls;
        self.polls_when_busy = (driven == Driven::Busy).then_some(polls);
        let after_watch_ns = self.after_watch_ns.take();
        if after_watch_ns.is_some() && driven == (Driven::Worked { frames: true }) {
            self.missed(progress, now_ns);
        }
        let holds = now_ns < self.hold_until_ns;
        // Signed: a count that another thread's increment has overwritten goes back a little.
        let polls = polls.wrapping_sub(self.polls_counted_from).cast_signed();
        match (driven, after_watch_ns) {
            // Within a batch that takes longer than the watch did: who does it drives, too.
            (Driven::Busy, Some(span_ns)) if !holds => {
                self.step_back(progress, now_ns, longer(span_ns, settings))
            }
            (Driven::Busy, _) if polls_moved && !holds => {
                self.step_back(progress, now_ns, settings.watch_ns)
            }
            (Driven::Busy, _) => {
                self.arm(progress);
                self.sleep_armed(progress, now_ns, Some(now_ns + settings.busy_ns))
            }
            _ if polls >= settings.polls_before_watch.cast_signed() && !holds => {
                self.step_back(progress, now_ns, settings.watch_ns)
            }
            (Driven::Worked { .. }, _) => {
                self.idle_since_ns = None;
                Action::Drive
            }
            (Driven::Idle, _) => self.idle(progress, now_ns),
        }
    }

    /// After a batch without work, with no poller about.
    fn idle<W: Wake>(&mut self, progress: &Progress<W>, now_ns: u64) -> Action {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        if self.hog_turns > 0 {
            self.hog_turns -= 1;
            self.arm(progress);
            return Action::Look;
        }
        if now_ns.saturating_sub(since_ns) >= progress.settings.idle_ns {
            self.arm(progress);
            return Action::Look;
        }
        self.yielded_at_ns = Some(now_ns);
        Action::Yield
    }

    /// After a yield.
    fn yielded<W>(&mut self, progress: &Progress<W>, now_ns: u64) -> Action {
        let settings = &progress.settings;
        if let Some(at_ns) = self.yielded_at_ns.take() {
            if now_ns.saturating_sub(at_ns) > settings.slow_yield_ns {
                self.hog_turns = self.hog_turns_next.max(settings.hog_turns);
                self.hog_turns_next = (self.hog_turns * 2).min(settings.hog_turns_max);
            } else {
                self.hog_turns_next = 0;
            }
        }
        Action::Drive
    }

    /// After a look, armed.
    fn looked<W: Wake>(&mut self, progress: &Progress<W>, now_ns: u64, look: Look) -> Action {
        match look {
            Look::Work => self.drive(progress),
            Look::Busy => {
                self.sleep_armed(progress, now_ns, Some(now_ns + progress.settings.busy_ns))
            }
            Look::Nothing { deadline_ns: Some(deadline_ns) } if deadline_ns <= now_ns => {
                self.drive(progress)
            }
            Look::Nothing { deadline_ns } => self.sleep_armed(progress, now_ns, deadline_ns),
        }
    }

    /// Awake in Watch.
    fn watched<W>(
        &mut self,
        progress: &Progress<W>,
        now_ns: u64,
        span_ns: u64,
        until_ns: u64,
        driven: u32,
    ) -> Action
    where
        W: Wake,
    {
        let wake = progress.wake.word().load(Ordering::Acquire);
        if wake == AWAKE {
            return self.drive(progress);
        }
        if now_ns < until_ns {
            return Action::Wait { expected: wake, timeout_ns: Some(until_ns - now_ns) };
        }
        if driven_count(progress) != driven {
            let span_ns = longer(span_ns, &progress.settings);
            return self.watch_for(progress, now_ns, span_ns, wake);
        }
        if wake == ARMED {
            // A poller has left, and armed the word: it is not the thread's to store.
            self.enter_armed(progress);
            return Action::Look;
        }
        let action = self.drive(progress);
        self.after_watch_ns = Some(span_ns);
        action
    }

    /// Enters Drive, from anywhere.
    fn drive<W: Wake>(&mut self, progress: &Progress<W>) -> Action {
        self.state = State::Drive;
        progress.armed_until_ns.store(0, Ordering::Relaxed);
        progress.wake.word().swap(AWAKE, Ordering::AcqRel);
        self.count_polls_from_now(progress);
        self.after_watch_ns = None;
        self.idle_since_ns = None;
        self.yielded_at_ns = None;
        Action::Drive
    }

    /// Enters Armed from Drive, where only the thread changes the word.
    fn arm<W>(&mut self, progress: &Progress<W>)
    where
        W: Wake,
    {
        progress.wake.word().store(ARMED, Ordering::Release);
        self.enter_armed(progress);
    }

    /// In Armed, about to look. Until then every timer an application sets wakes the thread.
    fn enter_armed<W>(&mut self, progress: &Progress<W>) {
        self.state = State::Armed;
        progress.armed_until_ns.store(u64::MAX, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeps in Armed.
    fn sleep_armed<W>(
        &mut self,
        progress: &Progress<W>,
        now_ns: u64,
        deadline_ns: Option<u64>,
    ) -> Action {
        progress.armed_until_ns.store(deadline_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
        let timeout_ns = deadline_ns.map(|deadline_ns| deadline_ns - now_ns);
        Action::Wait { expected: ARMED, timeout_ns }
    }

    /// Leaves the work to pollers: enters Watch from Drive, for so long.
    fn step_back<W: Wake>(&mut self, progress: &Progress<W>, now_ns: u64, span_ns: u64) -> Action {
        progress.wake.word().store(POLLED, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.notifies != progress.counters.notifies.load(Ordering::Relaxed) {
            // The last poller has just said that it will wait, and found the thread awake.
            return self.drive(progress);
        }
        self.watch(progress, now_ns, span_ns)
    }

    /// Enters Watch; the word is `POLLED`.
    fn watch<W>(&mut self, progress: &Progress<W>, now_ns: u64, span_ns: u64) -> Action {
        progress.armed_until_ns.store(0, Ordering::Relaxed);
        self.watch_for(progress, now_ns, span_ns, POLLED)
    }

    fn watch_for<W>(
        &mut self,
        progress: &Progress<W>,
        now_ns: u64,
        span_ns: u64,
        expected: u32,
    ) -> Action {
        let driven = driven_count(progress);
        self.state = State::Watch { span_ns, until_ns: now_ns + span_ns, driven };
        Action::Wait { expected, timeout_ns: Some(span_ns) }
    }

    /// Frames lay there after a watch. The second time, the thread holds.
    fn missed<W>(&mut self, progress: &Progress<W>, now_ns: u64) {
        let settings = &progress.settings;
        let again = self
            .missed_at_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) <= settings.miss_window_ns);
        if !again {
            self.missed_at_ns = Some(now_ns);
            return;
        }
        self.missed_at_ns = None;
        let long_ago = now_ns.saturating_sub(self.hold_until_ns) > settings.hold_max_ns;
        self.hold_ns = if self.hold_ns == 0 || long_ago {
            settings.hold_ns
        } else {
            (self.hold_ns * 2).min(settings.hold_max_ns)
        };
        self.hold_until_ns = now_ns + self.hold_ns;
        progress.holds.store(true, Ordering::Relaxed);
    }

    fn count_polls_from_now<W>(&mut self, progress: &Progress<W>) {
        // In this order: the polls before a notify seen here are seen too, and not counted.
        let notifies = progress.counters.notifies.load(Ordering::Acquire);
        if self.notifies != notifies {
            // Whoever has polled waits now.
            self.polls_when_busy = None;
        }
        self.notifies = notifies;
        self.polls_counted_from = progress.counters.polls.load(Ordering::Relaxed);
        self.polls_last = self.polls_counted_from;
    }
}

/// The next watch, if pollers are about.
fn longer(span_ns: u64, settings: &Settings) -> u64 {
    (span_ns * 2).min(settings.watch_max_ns)
}

/// Polls and posts.
fn driven_count<W>(progress: &Progress<W>) -> u32 {
    let counters = &progress.counters;
    counters.polls.load(Ordering::Relaxed).wrapping_add(counters.posts.load(Ordering::Relaxed))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Futex;
    use super::*;
    use crate::sync::AtomicU32;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const WORKED: Driven = Driven::Worked { frames: false };
    const FRAMES: Driven = Driven::Worked { frames: true };
    const NOTHING: Look = Look::Nothing { deadline_ns: None };

    /// The machine, its word and a clock.
    struct Rig {
        progress: Progress<Futex<Box<AtomicU32>>>,
        thread: Thread,
        now_ns: u64,
    }

    impl Rig {
        /// Driving, since just now.
        fn new() -> Rig {
            let wake = Futex(Box::new(AtomicU32::new(POLLED)));
            let progress = Progress::new(wake, Settings::default());
            // Later than any time the machine remembers when it begins.
            let mut rig = Rig { progress, thread: Thread::new(), now_ns: 10_000 * MS };
            assert_eq!(rig.awake(0), Action::Drive);
            assert_eq!(rig.wake(), AWAKE);
            rig
        }

        /// In Armed, asleep without a timer.
        fn armed() -> Rig {
            let mut rig = Rig::new();
            assert_eq!(rig.driven(0, Driven::Idle), Action::Yield);
            assert_eq!(rig.awake(50 * US), Action::Drive);
            assert_eq!(rig.driven(0, Driven::Idle), Action::Look);
            assert_eq!(rig.looked(NOTHING), wait(ARMED, None));
            rig
        }

        /// In Watch, asleep for the first time.
        fn watching() -> Rig {
            let mut rig = Rig::new();
            rig.watch();
            rig
        }

        /// From Drive to Watch.
        fn watch(&mut self) {
            self.poll(16);
            assert_eq!(self.driven(0, Driven::Idle), wait(POLLED, Some(200 * US)));
            assert_eq!(self.wake(), POLLED);
        }

        /// From Watch, lets it run out and finds frames.
        fn miss(&mut self) -> Action {
            assert_eq!(self.awake(200 * US), Action::Drive);
            self.driven(0, FRAMES)
        }

        fn step(&mut self, after_ns: u64, seen: Seen) -> Action {
            self.now_ns += after_ns;
            self.thread.step(&self.progress, self.now_ns, seen)
        }

        fn awake(&mut self, after_ns: u64) -> Action {
            self.step(after_ns, Seen::Awake)
        }

        fn driven(&mut self, after_ns: u64, driven: Driven) -> Action {
            self.step(after_ns, Seen::Driven(driven))
        }

        fn looked(&mut self, look: Look) -> Action {
            self.step(0, Seen::Looked(look))
        }

        fn poll(&self, times: u32) {
            for _ in 0..times {
                self.progress.polled();
            }
        }

        fn wake(&self) -> u32 {
            self.progress.wake.word().load(Ordering::Relaxed)
        }

        fn holds(&self) -> bool {
            self.progress.holds.load(Ordering::Relaxed)
        }
    }

    fn wait(expected: u32, timeout_ns: Option<u64>) -> Action {
        Action::Wait { expected, timeout_ns }
    }

    #[test]
    fn drive_goes_on_while_there_is_work() {
        let mut rig = Rig::new();
        for _ in 0..1000 {
            assert_eq!(rig.driven(US, FRAMES), Action::Drive);
        }
        assert_eq!(rig.wake(), AWAKE);
    }

    #[test]
    fn drive_yields_when_idle_and_arms_after_50_us() {
        let mut rig = Rig::new();
        for _ in 0..5 {
            assert_eq!(rig.driven(0, Driven::Idle), Action::Yield);
            assert_eq!(rig.awake(9 * US), Action::Drive);
        }
        assert_eq!(rig.driven(0, WORKED), Action::Drive, "work begins the time anew");
        for _ in 0..5 {
            assert_eq!(rig.driven(0, Driven::Idle), Action::Yield);
            assert_eq!(rig.awake(10 * US), Action::Drive);
        }
        assert_eq!(rig.driven(0, Driven::Idle), Action::Look);
        assert_eq!(rig.wake(), ARMED);
    }

    #[test]
    fn armed_drives_if_it_finds_work() {
        let mut rig = Rig::armed();
        assert_eq!(rig.awake(MS), Action::Look);
        assert_eq!(rig.looked(Look::Work), Action::Drive);
        assert_eq!(rig.wake(), AWAKE);
    }

    #[test]
    fn nonsense_in_the_word_does_not_keep_the_thread_from_sleeping() {
        let mut rig = Rig::armed();
        rig.progress.wake.word().store(7, Ordering::Relaxed);
        assert_eq!(rig.awake(0), Action::Drive);
        assert_eq!(rig.wake(), AWAKE);
    }

    #[test]
    fn armed_sleeps_50_us_if_the_lock_is_taken() {
        let mut rig = Rig::armed();
        assert_eq!(rig.awake(MS), Action::Look);
        assert_eq!(rig.looked(Look::Busy), wait(ARMED, Some(50 * US)));
        assert_eq!(rig.wake(), ARMED);
        assert_eq!(rig.awake(50 * US), Action::Look);
    }

    #[test]
    fn armed_sleeps_until_the_next_timer() {
        let mut rig = Rig::armed();
        assert_eq!(rig.awake(MS), Action::Look);
        let deadline_ns = Some(rig.now_ns + 7 * MS);
        assert_eq!(rig.looked(Look::Nothing { deadline_ns }), wait(ARMED, Some(7 * MS)));
        assert_eq!(rig.awake(7 * MS), Action::Look);
        assert_eq!(rig.looked(Look::Nothing { deadline_ns }), Action::Drive, "it is due");
    }

    #[test]
    fn armed_is_woken_by_a_timer_set_while_it_looked() {
        let mut rig = Rig::armed();
        assert_eq!(rig.awake(MS), Action::Look);
        rig.progress.timer(|| Some(rig.now_ns + MS));
        assert_eq!(rig.looked(NOTHING), wait(ARMED, None));
        assert_eq!(rig.wake(), AWAKE, "the wait does not begin");
        assert_eq!(rig.awake(0), Action::Drive);
    }

    #[test]
    fn armed_drives_when_a_publisher_wakes_it() {
        let mut rig = Rig::armed();
        rig.progress.ring_bell();
        assert_eq!(rig.awake(MS), Action::Drive);
        assert_eq!(rig.wake(), AWAKE);
        assert_eq!(rig.driven(0, FRAMES), Action::Drive);
    }

    #[test]
    fn armed_watches_when_a_poller_takes_over() {
        let mut rig = Rig::armed();
        rig.progress.empty_poll(8);
        assert_eq!(rig.awake(MS), wait(POLLED, Some(200 * US)));
        assert_eq!(rig.wake(), POLLED);
    }

    #[test]
    fn drive_watches_after_16_polls_but_not_after_posts() {
        let mut rig = Rig::new();
        rig.poll(15);
        for _ in 0..100 {
            rig.progress.posted();
        }
        assert_eq!(rig.driven(0, WORKED), Action::Drive);
        rig.poll(1);
        assert_eq!(rig.driven(0, WORKED), wait(POLLED, Some(200 * US)));
    }

    #[test]
    fn arming_a_completion_queue_begins_the_polls_anew() {
        let mut rig = Rig::new();
        rig.poll(15);
        rig.progress.notified();
        rig.poll(10);
        // Ten of them are counted to the time before: when they came is not known.
        assert_eq!(rig.driven(0, WORKED), Action::Drive);
        rig.poll(15);
        assert_eq!(rig.driven(0, WORKED), Action::Drive);
        rig.poll(1);
        assert_eq!(rig.driven(0, WORKED), wait(POLLED, Some(200 * US)));
    }

    #[test]
    fn drive_with_the_lock_taken_watches_if_somebody_polls() {
        let mut rig = Rig::new();
        rig.poll(1);
        assert_eq!(rig.driven(0, Driven::Busy), wait(POLLED, Some(200 * US)));
    }

    #[test]
    fn drive_with_the_lock_taken_does_not_watch_for_who_polled_and_then_waits() {
        let mut rig = Rig::new();
        rig.poll(1);
        rig.progress.notified();
        assert_eq!(rig.driven(0, Driven::Busy), wait(ARMED, Some(50 * US)));
    }

    #[test]
    fn drive_with_the_lock_taken_sleeps_armed_50_us_if_nobody_polls() {
        let mut rig = Rig::new();
        assert_eq!(rig.driven(0, Driven::Busy), wait(ARMED, Some(50 * US)));
        assert_eq!(rig.wake(), ARMED);
        assert_eq!(rig.awake(50 * US), Action::Look);
    }

    #[test]
    fn a_lock_that_is_taken_again_after_polls_is_a_pollers() {
        let mut rig = Rig::new();
        for _ in 0..3 {
            assert_eq!(rig.driven(0, Driven::Busy), wait(ARMED, Some(50 * US)));
            // A frame has come, for which nobody has polled yet.
            rig.progress.ring_bell();
            assert_eq!(rig.awake(5 * US), Action::Drive);
        }
        assert_eq!(rig.driven(0, Driven::Busy), wait(ARMED, Some(50 * US)));
        rig.poll(1);
        rig.progress.ring_bell();
        assert_eq!(rig.awake(5 * US), Action::Drive);
        assert_eq!(rig.driven(0, Driven::Busy), wait(POLLED, Some(200 * US)));
    }

    #[test]
    fn a_lock_that_is_taken_again_is_not_that_of_who_polled_and_then_waits() {
        let mut rig = Rig::new();
        assert_eq!(rig.driven(0, Driven::Busy), wait(ARMED, Some(50 * US)));
        rig.poll(1);
        rig.progress.notified();
        rig.progress.ring_bell();
        assert_eq!(rig.awake(5 * US), Action::Drive);
        assert_eq!(rig.driven(0, Driven::Busy), wait(ARMED, Some(50 * US)));
    }

    #[test]
    fn watch_lasts_longer_up_to_2_ms_while_somebody_polls_or_posts() {
        let mut rig = Rig::watching();
        let mut span_ns = 200 * US;
        for longer_ns in [400 * US, 800 * US, 1600 * US, 2 * MS, 2 * MS] {
            rig.progress.posted();
            assert_eq!(rig.awake(span_ns), wait(POLLED, Some(longer_ns)));
            span_ns = longer_ns;
        }
        assert_eq!(rig.awake(span_ns), Action::Drive);
        assert_eq!(rig.wake(), AWAKE);
    }

    #[test]
    fn watch_goes_on_longer_if_it_ends_within_a_long_batch_of_a_poller() {
        let mut rig = Rig::watching();
        let mut span_ns = 200 * US;
        for longer_ns in [400 * US, 800 * US, 1600 * US, 2 * MS, 2 * MS] {
            assert_eq!(rig.awake(span_ns), Action::Drive);
            assert_eq!(rig.driven(0, Driven::Busy), wait(POLLED, Some(longer_ns)));
            assert_eq!(rig.wake(), POLLED);
            span_ns = longer_ns;
        }
        assert_eq!(rig.awake(span_ns), Action::Drive);
        assert_eq!(rig.driven(0, WORKED), Action::Drive, "nobody drives any more");
    }

    #[test]
    fn watch_sleeps_on_if_the_word_moves_between_armed_and_polled() {
        let mut rig = Rig::watching();
        assert!(rig.progress.leave());
        assert_eq!(rig.awake(50 * US), wait(ARMED, Some(150 * US)));
        rig.progress.empty_poll(1);
        assert_eq!(rig.awake(50 * US), wait(POLLED, Some(100 * US)));
    }

    #[test]
    fn watch_arms_when_pollers_have_left() {
        let mut rig = Rig::watching();
        assert!(rig.progress.leave());
        assert_eq!(rig.awake(200 * US), Action::Look);
        assert_eq!(rig.looked(NOTHING), wait(ARMED, None));
        assert_eq!(rig.wake(), ARMED);
    }

    #[test]
    fn watch_drives_when_a_completion_queue_is_armed() {
        let mut rig = Rig::watching();
        rig.progress.notified();
        assert_eq!(rig.awake(US), Action::Drive);
        assert_eq!(rig.wake(), AWAKE);
    }

    #[test]
    fn watch_drives_when_a_publisher_finds_that_pollers_have_left() {
        let mut rig = Rig::watching();
        assert!(rig.progress.leave());
        rig.progress.ring_bell();
        assert_eq!(rig.awake(US), Action::Drive);
    }

    #[test]
    fn the_second_frame_nobody_polled_for_within_100_ms_makes_the_thread_hold_for_4_ms() {
        let mut rig = Rig::watching();
        assert_eq!(rig.miss(), Action::Drive);
        assert!(!rig.holds());
        rig.watch();
        assert_eq!(rig.miss(), Action::Drive);
        assert!(rig.holds());

        rig.poll(100);
        assert_eq!(rig.driven(US, WORKED), Action::Drive, "it does not step back");
        rig.poll(1);
        assert_eq!(rig.driven(US, Driven::Busy), wait(ARMED, Some(50 * US)));
        rig.progress.empty_poll(8);
        assert_eq!(rig.wake(), ARMED, "pollers leave the word alone");
        assert_eq!(rig.awake(4 * MS), Action::Look);
        assert!(!rig.holds());
        assert_eq!(rig.looked(Look::Work), Action::Drive);
        rig.watch();
    }

    #[test]
    fn frames_missed_seldom_and_watches_that_find_none_do_not_make_it_hold() {
        let mut rig = Rig::watching();
        for _ in 0..5 {
            rig.miss();
            assert!(!rig.holds());
            rig.now_ns += 101 * MS;
            rig.watch();
            assert_eq!(rig.awake(200 * US), Action::Drive);
            assert_eq!(rig.driven(0, WORKED), Action::Drive);
            assert_eq!(rig.driven(0, FRAMES), Action::Drive, "no longer after the watch");
            rig.watch();
        }
    }

    #[test]
    fn each_hold_is_twice_as_long_up_to_500_ms_and_the_first_again_after_a_pause() {
        let mut rig = Rig::watching();
        let hold_ns = |rig: &mut Rig| {
            rig.miss();
            rig.watch();
            rig.miss();
            assert!(rig.holds());
            let hold_ns = rig.thread.hold_until_ns - rig.now_ns;
            assert_eq!(rig.driven(hold_ns, WORKED), Action::Drive);
            assert!(!rig.holds());
            rig.watch();
            hold_ns
        };
        let holds: Vec<u64> = (0..9).map(|_| hold_ns(&mut rig) / MS).collect();
        assert_eq!(holds, [4, 8, 16, 32, 64, 128, 256, 500, 500]);
        rig.now_ns += 501 * MS;
        assert_eq!(hold_ns(&mut rig), 4 * MS);
    }

    #[test]
    fn after_a_slow_yield_idle_turns_sleep_at_once() {
        let mut rig = Rig::new();
        let mut turns = Vec::new();
        for _ in 0..7 {
            assert_eq!(rig.driven(0, Driven::Idle), Action::Yield);
            assert_eq!(rig.awake(501 * US), Action::Drive);
            let mut count = 0;
            while rig.thread.hog_turns > 0 {
                assert_eq!(rig.driven(0, Driven::Idle), Action::Look);
                assert_eq!(rig.looked(Look::Work), Action::Drive);
                count += 1;
            }
            turns.push(count);
        }
        assert_eq!(turns, [32, 64, 128, 256, 512, 1024, 1024]);
        assert_eq!(rig.driven(0, Driven::Idle), Action::Yield);
        assert_eq!(rig.awake(500 * US), Action::Drive, "quick enough");
        assert_eq!(rig.driven(0, WORKED), Action::Drive);
        assert_eq!(rig.driven(0, Driven::Idle), Action::Yield);
        assert_eq!(rig.awake(501 * US), Action::Drive);
        assert_eq!(rig.thread.hog_turns, 32);
    }

    #[test]
    fn a_stopped_thread_ends_from_wherever_it_is() {
        for mut rig in [Rig::new(), Rig::armed(), Rig::watching()] {
            rig.progress.stop();
            assert_eq!(rig.wake(), AWAKE, "no wait begins");
            assert_eq!(rig.awake(0), Action::Stop);
        }
        let mut rig = Rig::new();
        rig.progress.stop();
        assert_eq!(rig.driven(0, FRAMES), Action::Stop);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use ::loom::sync::Arc;
    use ::loom::thread;

    use super::super::{Futex, Settings};
    use super::*;
    use crate::sync::AtomicU32;

    /// An engine whose only work is a number of frames.
    struct Engine {
        progress: Progress<Futex<Box<AtomicU32>>>,
        frames: AtomicU32,
    }

    impl Engine {
        /// The thread sleeps as soon as it is idle, and steps back at the first poll. Its waits
        /// have no time-out: a wake-up that is lost is a deadlock.
        fn new(wake: u32) -> Arc<Engine> {
            let settings = Settings { idle_ns: 0, polls_before_watch: 1, ..Settings::default() };
            let progress = Progress::new(Futex(Box::new(AtomicU32::new(wake))), settings);
            Arc::new(Engine { progress, frames: AtomicU32::new(0) })
        }

        /// A peer publishes a frame.
        fn publish(&self) {
            self.frames.fetch_add(1, Ordering::Release);
            self.progress.ring_bell();
        }

        /// The background thread, until `ends` is true of an action or a batch.
        fn run(&self, ends: impl Fn(Action, u32) -> bool) {
            let mut thread = Thread::new();
            let mut seen = Seen::Awake;
            let mut taken = 0;
            loop {
                let action = thread.step(&self.progress, 0, seen);
                if ends(action, taken) {
                    return;
                }
                seen = match action {
                    Action::Drive => {
                        let count = self.frames.swap(0, Ordering::Acquire);
                        taken += count;
                        Seen::Driven(if count > 0 {
                            Driven::Worked { frames: true }
                        } else {
                            Driven::Idle
                        })
                    }
                    Action::Look => Seen::Looked(match self.frames.load(Ordering::Acquire) {
                        0 => Look::Nothing { deadline_ns: None },
                        _ => Look::Work,
                    }),
                    Action::Wait { expected, .. } => {
                        self.progress.wake.wait(expected, None);
                        Seen::Awake
                    }
                    Action::Yield | Action::Stop => unreachable!("{action:?}"),
                };
            }
        }
    }

    #[test]
    fn a_frame_published_while_the_thread_arms_wakes_it() {
        ::loom::model(|| {
            let engine = Engine::new(AWAKE);
            let peer = {
                let engine = engine.clone();
                thread::spawn(move || engine.publish())
            };
            engine.run(|_, taken| taken == 1);
            peer.join().unwrap();
        });
    }

    #[test]
    fn a_poller_that_takes_over_while_the_thread_goes_to_sleep_tells_it() {
        ::loom::model(|| {
            let engine = Engine::new(AWAKE);
            let poller = {
                let engine = engine.clone();
                thread::spawn(move || {
                    if engine.progress.takes_over(8) {
                        engine.progress.wake.wake();
                    }
                    if engine.progress.wake.word().load(Ordering::Relaxed) != POLLED {
                        engine.publish();
                    }
                })
            };
            let watches =
                Action::Wait { expected: POLLED, timeout_ns: Some(Settings::default().watch_ns) };
            engine.run(|action, taken| action == watches || taken == 1);
            poller.join().unwrap();
        });
    }

    #[test]
    fn a_frame_published_while_a_poller_leaves_is_seen_by_one_of_the_two() {
        ::loom::model(|| {
            let engine = Engine::new(POLLED);
            let peer = {
                let engine = engine.clone();
                thread::spawn(move || {
                    engine.frames.fetch_add(1, Ordering::Release);
                    super::super::takes_wake(engine.progress.wake.word())
                })
            };
            assert!(engine.progress.leave());
            let seen = engine.frames.load(Ordering::Acquire) > 0;
            assert!(peer.join().unwrap() || seen);
        });
    }

    #[test]
    fn a_completion_queue_armed_while_the_thread_steps_back_keeps_it_awake() {
        ::loom::model(|| {
            let engine = Engine::new(AWAKE);
            let application = {
                let engine = engine.clone();
                thread::spawn(move || {
                    engine.progress.polled();
                    engine.progress.notified();
                    engine.publish();
                })
            };
            engine.run(|_, taken| taken == 1);
            application.join().unwrap();
        });
    }

    #[test]
    fn a_thread_stopped_while_it_goes_to_sleep_ends() {
        ::loom::model(|| {
            let engine = Engine::new(AWAKE);
            let closer = {
                let engine = engine.clone();
                thread::spawn(move || engine.progress.stop())
            };
            engine.run(|action, _| action == Action::Stop);
            closer.join().unwrap();
        });
    }
}
