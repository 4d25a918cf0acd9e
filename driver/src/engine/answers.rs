//! Whether an ACK may be held back because nobody waits for it.
//!
//! A program that polls, takes a message and posts an answer makes its peer wait for the answer, not
//! for the ACK of the message. So the ACK may stand back for the next drive, in which the answer goes
//! first. But no ACK waits for a program that has something else to do: one is only put off where
//! the last few were followed by an answer at once, and for no longer than until anybody drives
//! next, or, if that brought receives, once more.
//!
//! Nor need the ACK go right behind the answer: where the peer sends its next message without it, one
//! ACK tells of both, and in a conversation that saves nearly every second frame. Whether the peer
//! does is found by trying, and tried again ever more seldom where that was in vain. No ACK waits
//! longer than [`LONGEST_NS`] for its peer, and none for a program that has stopped polling.

use ferroce_stack::psn::Psn;
use ferroce_stack::time::Instant;

use super::batch::Driver;

/// Times in a row before the next is counted on; twice as many after each disappointment.
const FIRST: u32 = 4;
/// The most of them.
const MOST: u32 = 1024;
/// How often it has to be right to count on it, in a row, until disappointments are forgotten. Who
/// waits for every sixteenth ACK loses more by waiting than both save by fewer ACKs, and is not
/// forgiven; a busy machine, where one message in some dozens is late, is.
const CALM: u32 = 32;

/// How long the peer's next message is waited for, in nanoseconds: a round trip on one machine, or
/// between two that are close.
const WAIT_NS: u64 = 24_000;
/// How long the oldest message waits for its ACK, in nanoseconds: long enough that most messages
/// need none of their own, a tenth of any ACK timeout with which one is held back at all, and less
/// than a peer's own timeout down to 131 us, should it be much shorter than ours.
const LONGEST_NS: u64 = 120_000;

/// What was posted since the last drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Posted {
    #[default]
    Nothing,
    Receives,
    Sends,
}

/// Who drives, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drive {
    pub now: Instant,
    pub driver: Driver,
    /// What was posted since the last one.
    pub posted: Posted,
    /// The program has been told of something.
    pub told: bool,
    /// What the ACK acknowledges that is held back.
    pub held: Option<Psn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was told that may be answered.
    Rest,
    /// The program has been told; by how many more drives it may post receives first.
    Told { patience: u8 },
    /// It has answered, and an ACK is held for the peer's next message until then.
    Answered { until: Instant },
}

/// Whether something can be counted on, from how often it has happened.
#[derive(Clone, Copy, Debug)]
struct Trust {
    /// Times still to be seen.
    missing: u32,
    /// How many after the next disappointment.
    price: u32,
    /// How often it was right to count on it since the last.
    calm: u32,
}

impl Trust {
    const NEW: Trust = Trust { missing: FIRST, price: FIRST, calm: 0 };

    fn is_there(&self) -> bool {
        self.missing == 0
    }

    fn grow(&mut self) {
        if self.missing > 0 {
            self.missing -= 1;
            return;
        }
        self.calm += 1;
        if self.calm == CALM {
            (self.price, self.calm) = (FIRST, 0);
        }
    }

    fn disappoint(&mut self) {
        self.missing = self.price;
        self.price = MOST.min(self.price * 2);
        self.calm = 0;
    }
}

#[derive(Debug)]
pub(super) struct Answers {
    state: State,
    /// That the program answers at once.
    program: Trust,
    /// That the peer goes on without the ACK.
    peer: Trust,
    /// When the oldest message came that the ACK held back tells of.
    since: Instant,
    /// What that ACK acknowledged at the last drive.
    held: Option<Psn>,
}

impl Answers {
    pub fn new() -> Answers {
        Answers {
            state: State::Rest,
            program: Trust::NEW,
            peer: Trust::NEW,
            since: Instant::default(),
            held: None,
        }
    }

    /// A polling program has been told of something, and only an ACK is to be sent. Whether that is
    /// held back for the answer.
    pub fn told(&mut self, now: Instant) -> bool {
        self.state = State::Told { patience: 1 };
        self.since = now;
        self.program.is_there()
    }

    /// Whether this ACK, held back, waits for the peer, whose next message has not come: then a poll
    /// in vain changes nothing for a while.
    pub fn may_poll(&self, held: Option<Psn>) -> bool {
        matches!(self.state, State::Answered { .. }) && held == self.held
    }

    /// Somebody has driven in vain, and no ACK is held back for the program.
    pub fn missed(&mut self, posted: Posted) {
        if let State::Told { patience } = self.state {
            self.driven_after_telling(posted, patience);
        }
    }

    /// When somebody must drive, if an ACK is held back.
    pub fn due(&self) -> Instant {
        match self.state {
            State::Answered { until } => until,
            State::Rest | State::Told { .. } => self.since,
        }
    }

    /// Somebody drives. Whether the ACK that is held back still is.
    pub fn driven(&mut self, drive: &Drive) -> bool {
        let stays = match self.state {
            State::Rest => false,
            State::Told { patience } => {
                self.driven_after_telling(drive.posted, patience)
                    && (drive.posted != Posted::Sends || self.goes_without(drive.now))
            }
            State::Answered { until } => self.driven_after_answer(drive, until),
        };
        self.held = drive.held.filter(|_| stays);
        if self.held.is_none() && !matches!(self.state, State::Told { .. }) {
            self.state = State::Rest;
        }
        self.held.is_some()
    }

    /// Whether an ACK stays back, as far as the program goes.
    fn driven_after_telling(&mut self, posted: Posted, patience: u8) -> bool {
        self.state = State::Rest;
        match posted {
            Posted::Receives if patience > 0 => {
                self.state = State::Told { patience: patience - 1 };
                self.program.is_there()
            }
            Posted::Sends => {
                self.program.grow();
                true
            }
            Posted::Nothing | Posted::Receives => {
                self.program.disappoint();
                false
            }
        }
    }

    /// Whether the ACK stays back though the answer goes.
    fn goes_without(&mut self, now: Instant) -> bool {
        if !self.peer.is_there() {
            self.peer.grow();
            return false;
        }
        let until = now + WAIT_NS;
        self.state = State::Answered { until };
        until <= self.since + LONGEST_NS
    }

    fn driven_after_answer(&mut self, drive: &Drive, until: Instant) -> bool {
        let polls = drive.driver == Driver::Poller;
        if drive.held != self.held {
            // The peer's next message, which has come without it.
            self.peer.grow();
            let is_told = drive.told && polls;
            self.state = if is_told { State::Told { patience: 1 } } else { State::Rest };
            return is_told;
        }
        match drive.posted {
            Posted::Sends => false,
            Posted::Receives => true,
            Posted::Nothing if polls && drive.now < until => true,
            Posted::Nothing => {
                self.peer.disappoint();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program, a peer and a clock.
    struct Rig {
        answers: Answers,
        now: Instant,
        /// What the ACK acknowledges, and whether it is held back.
        psn: u32,
        holds: bool,
    }

    impl Rig {
        fn new() -> Rig {
            Rig { answers: Answers::new(), now: Instant::from_nanos(5), psn: 0, holds: false }
        }

        /// Both programs answer at once, and the peer has not yet been seen to wait.
        fn trusting() -> Rig {
            let mut rig = Rig::new();
            for _ in 0..2 * FIRST {
                rig.message();
                rig.drive(Driver::Other, Posted::Sends);
            }
            rig
        }

        fn run(&mut self, driver: Driver, posted: Posted, told: bool) {
            let held = self.holds.then_some(Psn::new(self.psn));
            let drive = Drive { now: self.now, driver, posted, told, held };
            self.holds = self.answers.driven(&drive);
        }

        /// Whether the ACK is held back after somebody has driven.
        fn drive(&mut self, driver: Driver, posted: Posted) -> bool {
            self.run(driver, posted, false);
            self.holds
        }

        /// A poll that finds a message; whether its ACK is held back.
        fn message(&mut self) -> bool {
            self.psn += 1;
            let held_before = self.holds;
            self.run(Driver::Poller, Posted::Nothing, true);
            if !held_before {
                self.holds = self.answers.told(self.now);
            }
            self.holds
        }

        /// Whether the ACK is held back for another poll in vain, after so long.
        fn poll(&mut self, after_ns: u64) -> bool {
            self.now = self.now + after_ns;
            self.drive(Driver::Poller, Posted::Nothing)
        }

        /// Messages that are answered at once; of each, whether its ACK went behind the answer.
        fn answered(&mut self, times: u32) -> Vec<bool> {
            let mut round = || {
                let waits = self.message();
                assert!(!self.drive(Driver::Other, Posted::Sends) || waits);
                self.holds = false;
                self.answers.state = State::Rest;
                waits
            };
            (0..times).map(|_| round()).collect()
        }
    }

    #[test]
    fn an_ack_stands_back_once_four_messages_in_a_row_were_answered() {
        let mut rig = Rig::new();
        assert_eq!(rig.answered(6), [false, false, false, false, true, true]);
        assert!(!rig.drive(Driver::Poller, Posted::Nothing), "nothing was told");
        assert!(rig.message());
    }

    #[test]
    fn receives_may_be_posted_before_the_answer_but_once() {
        let mut rig = Rig::new();
        rig.answered(4);
        assert!(rig.message());
        assert!(rig.drive(Driver::Other, Posted::Receives));
        assert!(!rig.drive(Driver::Other, Posted::Receives));
        assert!(!rig.message(), "that was no answer");
    }

    #[test]
    fn each_disappointment_takes_more_answers_to_forget() {
        let mut rig = Rig::new();
        let mut counts = Vec::new();
        for round in 0..10 {
            assert_eq!(rig.message(), round > 0);
            rig.poll(1);
            let missing = rig.answers.program.missing;
            counts.push(missing);
            assert!(!rig.answered(missing).contains(&true));
        }
        assert_eq!(counts[..4], [4, 8, 16, 32]);
        assert_eq!(counts[9], MOST);
        rig.answered(MOST + CALM);
        rig.message();
        rig.poll(1);
        assert_eq!(rig.answers.program.missing, FIRST, "long ago");
    }

    #[test]
    fn one_ack_tells_of_all_messages_of_its_time() {
        let mut rig = Rig::trusting();
        let (from, mut sent) = (rig.now, Vec::new());
        for _ in 0..40 {
            assert!(rig.message(), "for the answer");
            if !rig.drive(Driver::Other, Posted::Sends) {
                sent.push(rig.now.nanos() - from.nanos());
            }
            if rig.holds {
                assert!(rig.drive(Driver::Other, Posted::Receives), "after the answer");
                assert!(rig.poll(5_000) && rig.poll(5_000));
            }
        }
        // Such that the next message, 10 us later at the latest, need not be waited for.
        assert_eq!(sent, [100_000, 200_000, 300_000]);
    }

    #[test]
    fn a_peer_that_waits_for_the_ack_gets_it_and_is_tried_again_ever_more_seldom() {
        let mut rig = Rig::trusting();
        for price in [4, 8, 16] {
            rig.message();
            assert!(rig.drive(Driver::Other, Posted::Sends));
            assert_eq!(rig.answers.due(), rig.now + WAIT_NS);
            assert!(rig.poll(WAIT_NS - 1));
            assert!(!rig.poll(1), "nothing has come");
            for _ in 0..price {
                assert!(rig.message());
                assert!(!rig.drive(Driver::Other, Posted::Sends), "right behind the answer");
            }
        }
    }

    #[test]
    fn a_peer_that_waits_for_every_sixteenth_ack_stalls_ever_more_seldom() {
        let mut rig = Rig::trusting();
        let mut stalls = Vec::new();
        for message in 0..10_000 {
            rig.message();
            if rig.drive(Driver::Other, Posted::Sends) && message % 16 == 15 {
                assert!(!rig.poll(WAIT_NS), "nothing has come");
                stalls.push(message);
            }
        }
        assert!(stalls.len() < 30, "{stalls:?}");
    }

    #[test]
    fn an_ack_waits_for_the_peer_only_while_the_program_polls() {
        let others: [fn(&mut Rig) -> bool; 3] = [
            |rig| rig.drive(Driver::Other, Posted::Nothing),
            |rig| rig.drive(Driver::Other, Posted::Sends),
            |rig| {
                rig.psn += 1;
                rig.drive(Driver::Other, Posted::Nothing)
            },
        ];
        for (row, other) in others.into_iter().enumerate() {
            let mut rig = Rig::trusting();
            rig.message();
            assert!(rig.drive(Driver::Other, Posted::Sends));
            assert!(rig.answers.may_poll(Some(Psn::new(rig.psn))));
            assert!(!other(&mut rig), "row {row}");
            assert!(!rig.answers.may_poll(Some(Psn::new(rig.psn))));
        }
    }
}
