//! Whether the program is about to answer what it has just been told of.
//!
//! A program that polls, takes a message and posts an answer makes its peer wait for the answer, not
//! for the ACK of the message. So the ACK may stand back for the next drive, in which the answer goes
//! first and the ACK right behind. But no ACK waits for a program that has something else to do:
//! one is only put off where the last few were followed by an answer at once, and for no longer than
//! until anybody drives next, or, if that brought receives, once more.

/// Answers in a row before the next is counted on; twice as many after each disappointment.
const FIRST: u32 = 4;
/// The most of them.
const MOST: u32 = 1024;

/// What was posted since the last drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Posted {
    #[default]
    Nothing,
    Receives,
    Sends,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was told that may be answered.
    Rest,
    /// The program has been told; by how many more drives it may post receives first.
    Told { patience: u8 },
}

#[derive(Debug)]
pub(super) struct Answers {
    state: State,
    /// Answers still to be seen before one is counted on.
    missing: u32,
    /// How many after the next disappointment.
    price: u32,
}

impl Answers {
    pub fn new() -> Answers {
        Answers { state: State::Rest, missing: FIRST, price: FIRST }
    }

    /// A polling program has been told of something, and only an ACK is to be sent. Whether that
    /// stands back for the answer.
    pub fn told(&mut self) -> bool {
        self.state = State::Told { patience: 1 };
        self.missing == 0
    }

    /// Somebody drives. Whether an ACK that stands back still does.
    pub fn driven(&mut self, posted: Posted) -> bool {
        let State::Told { patience } = self.state else { return false };
        if posted == Posted::Receives && patience > 0 {
            self.state = State::Told { patience: patience - 1 };
            return self.missing == 0;
        }
        self.state = State::Rest;
        if posted == Posted::Sends {
            self.price = FIRST.max(self.price - u32::from(self.missing == 0));
            self.missing = self.missing.saturating_sub(1);
        } else {
            self.missing = self.price;
            self.price = MOST.min(self.price * 2);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answers: &mut Answers, times: u32) -> Vec<bool> {
        let mut round = || {
            let waits = answers.told();
            assert!(!answers.driven(Posted::Sends));
            waits
        };
        (0..times).map(|_| round()).collect()
    }

    #[test]
    fn an_ack_stands_back_once_four_messages_in_a_row_were_answered() {
        let mut answers = Answers::new();
        assert_eq!(answered(&mut answers, 6), [false, false, false, false, true, true]);
        assert!(!answers.driven(Posted::Nothing), "nothing was told");
        assert!(answers.told());
    }

    #[test]
    fn receives_may_be_posted_before_the_answer_but_once() {
        let mut answers = Answers::new();
        answered(&mut answers, 4);
        assert!(answers.told());
        assert!(answers.driven(Posted::Receives));
        assert!(!answers.driven(Posted::Receives));
        assert!(!answers.told(), "that was no answer");
    }

    #[test]
    fn each_disappointment_takes_more_answers_to_forget() {
        let mut answers = Answers::new();
        let mut disappoint = || {
            answers.told();
            answers.driven(Posted::Nothing);
            let waits = answered(&mut answers, 2 * MOST);
            waits.iter().position(|waits| *waits).unwrap() as u32
        };
        assert_eq!(disappoint(), FIRST);
        let counts: Vec<u32> = (0..3).map(|_| disappoint()).collect();
        assert_eq!(counts, [FIRST; 3], "long ago");

        let mut answers = Answers::new();
        let mut counts = Vec::new();
        for _ in 0..10 {
            answers.told();
            answers.driven(Posted::Nothing);
            counts.push(answers.missing);
            let missing = answers.missing;
            answered(&mut answers, missing);
        }
        assert_eq!(counts[..4], [4, 8, 16, 32]);
        assert_eq!(counts[9], MOST);
    }
}
