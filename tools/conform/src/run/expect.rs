//! What the target must do: expectations of frames, completions and events.

use std::time::Duration;

use crate::ast::{Field, Kind, Statement, Word};
use crate::frame::{self, Difference};
use crate::target::Completion;
use crate::value::{Datum, Given};

use super::failure::{Failure, ScriptError, Step, Stop, difference};
use super::fields::OF_EXPECTATION;
use super::given::{Fields, compare};
use super::observe::{completion_text, event_text};
use super::stage::Stage;
use super::state::Look;
use super::transcript::{clock_text, time_text};

/// Sequence numbers have 24 bits.
const PSN_MASK: u64 = 0xff_ffff;

/// An expectation that waits to be met.
pub(super) struct Expectation<'s> {
    pub statement: &'s Statement,
    pub want: Want,
    /// It need not come.
    pub optional: bool,
    /// When it has not come.
    pub deadline: Duration,
    /// How long that is.
    pub within: Duration,
    /// Not before.
    earliest: Duration,
    /// Not after, if the script says so.
    latest: Option<Duration>,
}

/// What is expected.
pub(super) enum Want {
    Frame {
        qp: usize,
        frame: Word,
        fields: Vec<Given>,
    },
    Acknowledges {
        qp: usize,
        ack: Word,
        psn: u64,
        fields: Vec<Given>,
        /// PSN of the ACK before.
        before: Option<u64>,
    },
    Completion {
        qp: usize,
        id: u64,
        fields: Fields,
    },
    Event {
        event: String,
        of: Option<String>,
    },
    Report {
        event: String,
        of: Option<String>,
        /// What the script calls the connection from then on.
        name: Option<Word>,
        fields: Fields,
    },
    /// Something to look at, rather than to be told of; and how it was not as it must be when it
    /// was looked at last.
    State(Option<Box<Failure>>),
}

/// How an expectation stands.
pub(super) enum Attempt {
    Met,
    /// What it is about has not come yet.
    Waiting,
    /// Something else came.
    Mismatch(Box<Failure>),
}

impl Expectation<'_> {
    /// Whether it is met by looking, not by what the target tells.
    pub fn looks(&self) -> bool {
        matches!(self.want, Want::State(_))
    }
}

impl Stage<'_> {
    /// Waits until `statement` is met.
    pub fn expect(&mut self, statement: &Statement) -> Step {
        let mut expectation = self.expectation(statement)?;
        let mut dry = false;
        loop {
            let failure = match self.attempt(&mut expectation)? {
                Attempt::Met => return Ok(()),
                Attempt::Mismatch(failure) => failure,
                Attempt::Waiting if !dry && self.target.now() < expectation.deadline => {
                    dry = self.wait_for(statement, expectation.deadline, expectation.looks())?;
                    continue;
                }
                Attempt::Waiting if !dry && !expectation.looks() => {
                    // What has come up to now is still to be taken in.
                    dry = !self.observe(statement, expectation.deadline)?;
                    continue;
                }
                Attempt::Waiting => self.missing(&expectation),
            };
            return if expectation.optional { Ok(()) } else { Err(Stop::Failed(failure)) };
        }
    }

    /// What a sentence expects, from now on.
    pub fn expectation<'s>(&self, statement: &'s Statement) -> Step<Expectation<'s>> {
        let (want, fields) = self.want(statement)?;
        let within = fields.time("within")?;
        let now = self.target.now();
        let is_unraised = match &want {
            Want::Event { event, .. } => self.options.unraised.contains(event),
            _ => false,
        };
        let deadline = match within {
            _ if is_unraised => now,
            Some(within) => (self.mark + within).max(now),
            None => now + self.options.within,
        };
        Ok(Expectation {
            statement,
            want,
            optional: is_unraised || fields.flag("optional")?,
            deadline,
            within: within.unwrap_or(self.options.within),
            earliest: fields.time("after")?.map_or(Duration::ZERO, |after| {
                self.mark + after.saturating_sub(self.options.slack)
            }),
            latest: within.map(|within| self.mark + within),
        })
    }

    fn want(&self, statement: &Statement) -> Result<(Want, Fields), ScriptError> {
        let evaluate = |fields: &[Field]| Fields::new(&self.scope, fields);
        let place = &Word { value: String::new(), line: statement.line, column: 0 };
        match &statement.kind {
            Kind::TargetSends { frame, fields } => {
                let fields = evaluate(fields)?;
                let frame = Word { value: self.scope.word(frame)?, ..frame.clone() };
                let qp = self.qp_for(&frame, fields.word("on")?.as_ref())?;
                let of_frame = self.expand_qp(false, fields.without(OF_EXPECTATION))?;
                Ok((Want::Frame { qp, frame, fields: of_frame }, fields))
            }
            Kind::TargetAcknowledges { fields } => {
                let fields = evaluate(fields)?;
                let qp = self.qp_of(fields.word("on")?.as_ref(), place)?;
                let psn = fields.number("psn")?;
                let psn = psn.ok_or_else(|| ScriptError::of(statement, "`psn` is missing"))?;
                let of_frame = fields.without(&[OF_EXPECTATION, &["psn"]].concat());
                let ack = Word { value: "ack".to_owned(), ..place.clone() };
                let want = Want::Acknowledges { qp, ack, psn, fields: of_frame, before: None };
                Ok((want, fields))
            }
            Kind::TargetCompletes { id, fields } => {
                let fields = evaluate(fields)?;
                let qp = self.qp_of(fields.word("on")?.as_ref(), place)?;
                let of_completion = Fields(fields.without(OF_EXPECTATION));
                let id = self.scope.number(id)?;
                Ok((Want::Completion { qp, id, fields: of_completion }, fields))
            }
            Kind::TargetRaises { event, fields } => {
                let fields = evaluate(fields)?;
                let of = match fields.word("on")? {
                    None => None,
                    Some(name) => Some(self.scope.object(&name)?.id.clone()),
                };
                Ok((Want::Event { event: self.scope.word(event)?, of }, fields))
            }
            Kind::TargetReports { event, fields } => {
                let fields = evaluate(fields)?;
                Ok((self.want_report(event, &fields)?, fields))
            }
            _ => Ok((Want::State(None), Fields(Vec::new()))),
        }
    }

    /// Meets an expectation, if what it expects has come. Nothing is taken from a queue otherwise.
    pub fn attempt(&mut self, expectation: &mut Expectation<'_>) -> Step<Attempt> {
        match &expectation.want {
            Want::Frame { .. } => Ok(self.attempt_frame(expectation)),
            Want::Acknowledges { .. } => Ok(self.attempt_acknowledges(expectation)),
            Want::Completion { .. } => self.attempt_completion(expectation),
            Want::Event { event, of } => Ok(self.attempt_event(expectation, event, of.as_deref())),
            Want::Report { .. } => self.attempt_report(expectation),
            Want::State(_) => match self.look(expectation.statement)? {
                Look::Right => {
                    self.mark = self.target.now();
                    Ok(Attempt::Met)
                }
                Look::NotYet(failure) => {
                    expectation.want = Want::State(Some(failure));
                    Ok(Attempt::Waiting)
                }
                Look::Wrong(failure) => Ok(Attempt::Mismatch(failure)),
            },
        }
    }

    fn attempt_frame(&mut self, expectation: &Expectation<'_>) -> Attempt {
        let Want::Frame { qp, frame, fields } = &expectation.want else { return Attempt::Waiting };
        let QpHead { at, bytes, flow } = match self.head(*qp) {
            None => return Attempt::Waiting,
            Some(head) => head,
        };
        match frame::compare(frame, fields, flow, bytes) {
            Err(differences) => self.other_frame(expectation, *qp, differences),
            Ok(bindings) => match self.untimely(expectation, at) {
                Some(failure) => Attempt::Mismatch(failure),
                None => self.met_frame(*qp, at, bindings),
            },
        }
    }

    fn attempt_acknowledges(&mut self, expectation: &mut Expectation<'_>) -> Attempt {
        let Want::Acknowledges { qp, ack, psn, fields, before } = &expectation.want else {
            return Attempt::Waiting;
        };
        let (qp, psn, before) = (*qp, *psn, *before);
        let Some(QpHead { at, bytes, flow }) = self.head(qp) else { return Attempt::Waiting };
        let variable = "psn".to_owned();
        let any_psn = Given {
            name: Word { value: "psn".to_owned(), ..ack.clone() },
            datum: Datum::Any(Some(variable.clone())),
        };
        let bindings = match frame::compare(ack, &[any_psn], flow, bytes) {
            Err(differences) => return self.other_frame(expectation, qp, differences),
            Ok(bindings) => bindings,
        };
        let got = bindings.iter().find(|(name, _)| *name == variable).map_or(0, |&(_, psn)| psn);
        let ahead = |from: u64, to: u64| {
            let distance = to.wrapping_sub(from) & PSN_MASK;
            distance != 0 && distance <= PSN_MASK / 2
        };
        if before.is_some_and(|before| !ahead(before, got)) || ahead(psn, got) {
            let expected = match before {
                None => format!("at most {}", signed(psn)),
                Some(before) => format!("more than {}, at most {}", signed(before), signed(psn)),
            };
            let difference = difference("psn", expected, signed(got));
            return self.other_frame(expectation, qp, vec![difference]);
        }
        if ahead(got, psn) {
            if let Want::Acknowledges { before, .. } = &mut expectation.want {
                *before = Some(got);
            }
            self.qps[qp].frames.pop_front();
            return self.attempt_acknowledges(expectation);
        }
        match frame::compare(ack, fields, flow, bytes) {
            Err(differences) => self.other_frame(expectation, qp, differences),
            Ok(bindings) => match self.untimely(expectation, at) {
                Some(failure) => Attempt::Mismatch(failure),
                None => self.met_frame(qp, at, bindings),
            },
        }
    }

    fn head(&self, qp: usize) -> Option<QpHead<'_>> {
        let qp = &self.qps[qp];
        let frame = qp.frames.front()?;
        Some(QpHead { at: frame.at, bytes: &frame.bytes, flow: &qp.flow })
    }

    fn met_frame(&mut self, qp: usize, at: Duration, bindings: Vec<(String, u64)>) -> Attempt {
        self.qps[qp].frames.pop_front();
        self.met(at, bindings)
    }

    pub fn met(&mut self, at: Duration, bindings: Vec<(String, u64)>) -> Attempt {
        for (name, value) in bindings {
            self.scope.set(&name, Datum::Number(value));
        }
        self.mark = at;
        Attempt::Met
    }

    fn other_frame(
        &self,
        expectation: &Expectation<'_>,
        qp: usize,
        differences: Vec<Difference>,
    ) -> Attempt {
        let text = self.head(qp).map(|head| frame::describe(head.bytes, head.flow));
        let got = self.with_name(format!("target sends {}", text.unwrap_or_default()), qp);
        let problem = match differences.iter().any(|difference| difference.field == "frame") {
            true => "the next frame is another",
            false => "the next frame is not as it must be",
        };
        Attempt::Mismatch(self.mismatch(expectation.statement, problem, got, differences))
    }

    /// What is wrong with the time at which something came, if anything is.
    pub fn untimely(&self, expectation: &Expectation<'_>, at: Duration) -> Option<Box<Failure>> {
        let Expectation { statement, earliest, latest, .. } = expectation;
        if at < *earliest {
            let (at, earliest) = (clock_text(at), clock_text(*earliest));
            let problem = format!("it came at {at}, and not before {earliest} was right");
            return Some(self.failure(statement, problem));
        }
        let latest = latest.filter(|&latest| at > latest)?;
        let (at, latest) = (clock_text(at), clock_text(latest));
        Some(self.failure(statement, format!("it came at {at}, and had to by {latest}")))
    }

    fn attempt_completion(&mut self, expectation: &Expectation<'_>) -> Step<Attempt> {
        let Want::Completion { qp, id, fields } = &expectation.want else {
            return Ok(Attempt::Waiting);
        };
        let Some((at, completion)) = self.qps[*qp].completions.front() else {
            return Ok(Attempt::Waiting);
        };
        let (mut differences, mut bindings) = (Vec::new(), Vec::new());
        if completion.wr_id != *id {
            let (expected, got) = (id.to_string(), completion.wr_id.to_string());
            differences.push(difference("wr_id", expected, got));
        }
        compare_completion(completion, fields, &mut differences, &mut bindings)?;
        if !differences.is_empty() {
            let got = self.with_name(completion_text(completion), *qp);
            let problem = "the next completion is not as it must be";
            let failure = self.mismatch(expectation.statement, problem, got, differences);
            return Ok(Attempt::Mismatch(failure));
        }
        let at = *at;
        if let Some(failure) = self.untimely(expectation, at) {
            return Ok(Attempt::Mismatch(failure));
        }
        self.qps[*qp].completions.pop_front();
        Ok(self.met(at, bindings))
    }

    fn attempt_event(
        &mut self,
        expectation: &Expectation<'_>,
        expected: &str,
        of: Option<&str>,
    ) -> Attempt {
        let Some((at, event)) = self.events.front() else { return Attempt::Waiting };
        let mut differences = Vec::new();
        if event.event != expected {
            differences.push(difference("event", expected, &event.event));
        }
        let got_of = event.of.as_deref().unwrap_or_default();
        if let Some(of) = of.filter(|of| *of != got_of) {
            differences.push(difference("on", of, got_of));
        }
        if !differences.is_empty() {
            let problem = "the next event is not as it must be";
            let got = event_text(event, got_of);
            let failure = self.mismatch(expectation.statement, problem, got, differences);
            return Attempt::Mismatch(failure);
        }
        let at = *at;
        if let Some(failure) = self.untimely(expectation, at) {
            return Attempt::Mismatch(failure);
        }
        self.events.pop_front();
        self.met(at, Vec::new())
    }

    /// What is expected has not come, and its time is over.
    pub fn missing(&self, expectation: &Expectation<'_>) -> Box<Failure> {
        let what = match &expectation.want {
            Want::Frame { .. } => "no such frame",
            Want::Acknowledges { before: None, .. } => "no ACK",
            Want::Acknowledges { .. } => "no ACK that goes so far",
            Want::Completion { .. } => "no completion",
            Want::Event { .. } => "no event",
            Want::Report { .. } => "no report",
            Want::State(Some(failure)) => return failure.clone(),
            Want::State(None) => "nothing of it",
        };
        let problem = format!("{what} came within {}", time_text(expectation.within));
        let failure = self.failure(expectation.statement, problem);
        Box::new(Failure { got: self.leftover(false), ..*failure })
    }
}

/// The frame that is next on a QP.
struct QpHead<'a> {
    at: Duration,
    bytes: &'a [u8],
    flow: &'a frame::Flow,
}

fn compare_completion(
    completion: &Completion,
    fields: &Fields,
    differences: &mut Vec<Difference>,
    bindings: &mut Vec<(String, u64)>,
) -> Result<(), ScriptError> {
    let words =
        [("status", Some("success"), &completion.status), ("opcode", None, &completion.opcode)];
    for (name, default, got) in words {
        let said = match fields.get(name).map(|given| &given.datum) {
            Some(Datum::Any(None)) => continue,
            _ => fields.word(name)?,
        };
        match said.as_ref().map(|said| said.value.as_str()).or(default) {
            Some(expected) if expected != got => differences.push(difference(name, expected, got)),
            _ => {}
        }
    }
    let numbers = [
        ("length", Some(completion.length)),
        ("imm", completion.imm.map(u32::from_be_bytes)),
        ("invalidated", completion.invalidated),
        ("source-qp", completion.source_qp),
    ];
    for (name, got) in numbers {
        if let Some(given) = fields.get(name) {
            compare(given, got.map(u64::from), differences, bindings)?;
        }
    }
    Ok(())
}

/// A PSN, counted from the first: the ones before it are negative.
fn signed(psn: u64) -> String {
    let psn = psn & PSN_MASK;
    match psn > PSN_MASK / 2 {
        true => format!("-{}", PSN_MASK + 1 - psn),
        false => psn.to_string(),
    }
}
