//! A scenario file as it was read: sentences with fields. What a field means, and whether a value
//! suits it, is said by whoever carries the sentence out.

use std::time::Duration;

use ferroce::frame::fault;

/// Something with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// It.
    pub value: T,
    /// Its line, from 1.
    pub line: u32,
    /// Its column in characters, from 1.
    pub column: u32,
}

/// A word of the file: letters, digits and hyphens, beginning with a letter.
pub type Word = At<String>;

/// The scenarios of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// In the file's order; names are unique in it.
    pub scenarios: Vec<Scenario>,
}

/// One scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name; with the file's, it is chosen by it.
    pub name: Word,
    /// What it shows, in a sentence.
    pub title: String,
    /// What the target must be able to do for it.
    pub needs: Vec<Word>,
    /// Subjects it belongs to.
    pub tags: Vec<Word>,
    /// What happens.
    pub body: Vec<Statement>,
}

/// A sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Its first line, from 1.
    pub line: u32,
    /// Its text, as written, without comment; the first line of a block.
    pub text: String,
    /// What it says.
    pub kind: Kind,
}

/// What a sentence says.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `rule "CLAUSE": "TEXT"`: what the expectations from here on rest on.
    Rule(Rule),
    /// `let NAME = VALUE`.
    Let {
        /// Variable.
        name: Word,
        /// Its value from here on.
        value: Expr,
    },
    /// `memory NAME SIZE bytes, FIELD...`, `qp NAME SERVICE, FIELD...`, `cq NAME SIZE, FIELD...`: an
    /// object of the target is made.
    Make {
        /// `memory`, `qp`, `cq`, `srq`, `window`, `domain`, `xrc-domain`.
        what: Word,
        /// Name of the object.
        name: Word,
        /// What stands between the name and the first comma, without the word `bytes`.
        of: Option<Value>,
        /// The rest.
        fields: Vec<Field>,
    },
    /// `peer sends FRAME, FIELD...`.
    PeerSends {
        /// Name of the opcode, or of a kind of answer.
        frame: Word,
        /// Its headers and payload, and how it deviates.
        fields: Vec<Field>,
    },
    /// `peer resends LABEL`: a frame that was named by its field `as`, byte for byte.
    PeerResends {
        /// The name.
        label: Word,
    },
    /// `target VERB ARGUMENT..., FIELD...`: the target's verbs are called.
    Call {
        /// `posts`, `moves`, `destroys`, `listens`...
        verb: Word,
        /// What stands between the verb and the first comma, without the words `to`, `on` and `at`.
        arguments: Vec<Value>,
        /// The rest.
        fields: Vec<Field>,
    },
    /// `target sends FRAME, FIELD...`: it must.
    TargetSends {
        /// Name of the opcode, or of a kind of answer.
        frame: Word,
        /// What its headers and payload must be.
        fields: Vec<Field>,
    },
    /// `target acknowledges psn N, FIELD...`: it must, in as many ACKs as it likes, the last of which
    /// has this PSN.
    TargetAcknowledges {
        /// `psn`, `msn`, `on`, `within`.
        fields: Vec<Field>,
    },
    /// `target completes ID, FIELD...`: a work request must complete next.
    TargetCompletes {
        /// `wr_id`.
        id: Expr,
        /// Of its work completion.
        fields: Vec<Field>,
    },
    /// `target raises EVENT, FIELD...`: an asynchronous event must be next.
    TargetRaises {
        /// Name of the event.
        event: Word,
        /// Whose.
        fields: Vec<Field>,
    },
    /// `target reports EVENT, FIELD...`: an event of a connection must be next.
    TargetReports {
        /// Name of the event.
        event: Word,
        /// What is said with it.
        fields: Vec<Field>,
    },
    /// `target sends nothing for TIME` (only frames count) or `target stays silent for TIME` (neither
    /// frame nor completion nor event).
    Silence {
        /// Only frames.
        frames_only: bool,
        /// For so long.
        time: Duration,
    },
    /// `qp NAME is STATE`.
    QpIs {
        /// QP.
        name: Word,
        /// RESET, INIT, RTR, RTS, SQD, SQE or ERR.
        state: Word,
    },
    /// `qp NAME has FIELD...` and `srq NAME has FIELD...`: what a query must tell.
    Has {
        /// `qp` or `srq`.
        what: Word,
        /// Object.
        name: Word,
        /// What must be so.
        fields: Vec<Field>,
    },
    /// `memory NAME holds BYTES at OFFSET` and `memory NAME is untouched`.
    MemoryHolds {
        /// Memory.
        name: Word,
        /// What it must hold; nothing if it must be as it was made.
        bytes: Option<Bytes>,
        /// From this offset on.
        at: Option<Expr>,
    },
    /// `counter NAME rises by N`: since the sentence before the last frame of the peer.
    CounterRises {
        /// Counter.
        name: Word,
        /// By this.
        by: Expr,
    },
    /// `fault "RULE"`: from here on it strikes frames between peer and target.
    Fault(fault::Rule),
    /// `wait TIME`.
    Wait(Duration),
    /// `for NAME in A to B` or `for NAME in A, B, C` ... `end`.
    For {
        /// Variable.
        name: Word,
        /// What it is, turn by turn.
        values: Values,
        /// What happens each time.
        body: Vec<Statement>,
    },
    /// `repeat N times` ... `end`.
    Repeat {
        /// So often.
        times: Expr,
        /// What happens each time.
        body: Vec<Statement>,
    },
    /// `in any order` ... `end`: expectations that may be met in any order.
    AnyOrder(Vec<Statement>),
    /// `either` ... `or` ... `end`: the standard leaves a choice. Each begins with an expectation, and
    /// the first one that is met chooses.
    Either(Vec<Vec<Statement>>),
}

/// `rule "CLAUSE": "TEXT"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Such as `IBA 9.7.5.2.8 (C9-142)`.
    pub clause: String,
    /// In our words.
    pub text: String,
}

/// Values of a loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Both ends included.
    Range(Expr, Expr),
    /// These; words stand for themselves.
    List(Vec<Expr>),
}

/// `NAME VALUE` between commas.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name.
    pub name: Word,
    /// Value.
    pub value: Value,
}

/// A value, told by its shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing: the field stands alone.
    Flag,
    /// A number, a word, a variable or a calculation.
    Expr(Expr),
    /// `any`, or `any as NAME`: whatever it is, and from then on the variable is it.
    Any(Option<Word>),
    /// `A to B`, both included.
    Range(Expr, Expr),
    /// A number and a unit of time.
    Time(Duration),
    /// Several words.
    Words(Vec<Word>),
    /// Bytes.
    Bytes(Bytes),
    /// `"..."`.
    Text(At<String>),
}

/// Bytes, told by a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Bytes {
    /// `N of BYTE`.
    Of(Expr, Expr),
    /// `N counting from BYTE`: each one more than the one before, modulo 256.
    Counting(Expr, Expr),
    /// `hex "00 11 22"`.
    Hex(Vec<u8>),
    /// `quad N`: 8 bytes in the byte order of the target's machine.
    Quad(Expr),
}

/// A calculation in 64 bits that wraps.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A number.
    Number(u64),
    /// A variable if there is one of this name, else the word itself.
    Name(Word),
    /// `OBJECT.PROPERTY`: `key` and `address` of a memory, `qpn` and `peer-qpn` of a QP.
    Property(Word, Word),
    /// `-A`.
    Negative(Box<Expr>),
    /// `A + B`, `A - B`, `A * B`.
    Binary(Box<Expr>, Operator, Box<Expr>),
}

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
}
